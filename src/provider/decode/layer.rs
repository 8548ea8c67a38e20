//! One content encoding.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder as ZstdDecoder, Operation};

use super::{DecodeError, PIECE_BYTES, ZSTD_WINDOW_LOG_MAX};

/// Where decoded pieces go.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), DecodeError>;

pub(super) struct Layer {
    codec: Codec,
    piece: Box<[u8]>,
    left: u64,
    /// Whether any input came: an empty body is whole in every encoding.
    begun: bool,
}

enum Codec {
    Gzip(Gzip),
    /// `deflate`: zlib by the standard, bare by some servers; the first two bytes tell.
    Deflate {
        head: Vec<u8>,
        inflate: Option<Box<Decompress>>,
        ended: bool,
    },
    Brotli {
        state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
        ended: bool,
    },
    Zstd {
        decoder: ZstdDecoder<'static>,
        /// Between two frames.
        at_border: bool,
    },
}

/// What one step did.
struct Step {
    read: usize,
    written: usize,
}

impl Layer {
    pub(super) fn new(name: &str, max_out: u64) -> Result<Self, DecodeError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let codec = if is("gzip") || is("x-gzip") {
            Codec::Gzip(Gzip::default())
        } else if is("deflate") {
            Codec::Deflate {
                head: Vec::new(),
                inflate: None,
                ended: false,
            }
        } else if is("br") {
            Codec::Brotli {
                // Strict: no windows beyond the 16 MiB of the standard.
                state: Box::new(BrotliState::new_strict(
                    StandardAlloc::default(),
                    StandardAlloc::default(),
                    StandardAlloc::default(),
                )),
                ended: false,
            }
        } else if is("zstd") {
            let mut decoder = ZstdDecoder::new().map_err(|_| DecodeError::Broken)?;
            decoder
                .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
                .map_err(|_| DecodeError::Broken)?;
            Codec::Zstd {
                decoder,
                at_border: true,
            }
        } else {
            return Err(DecodeError::Unknown);
        };
        Ok(Self {
            codec,
            piece: Box::default(),
            left: max_out,
            begun: false,
        })
    }

    pub(super) fn feed(&mut self, bytes: &[u8], out: Sink<'_>) -> Result<(), DecodeError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.begun = true;
        if self.piece.is_empty() {
            self.piece = vec![0; PIECE_BYTES].into_boxed_slice();
        }
        let mut rest = bytes;
        loop {
            let step = self.codec.step(rest, &mut self.piece)?;
            rest = rest.get(step.read..).unwrap_or_default();
            if step.written > 0 {
                self.left = self
                    .left
                    .checked_sub(step.written as u64)
                    .ok_or(DecodeError::TooLarge)?;
                out(&self.piece[..step.written])?;
            }
            if step.read == 0 && step.written == 0 {
                return if rest.is_empty() {
                    Ok(())
                } else {
                    // It wants neither input nor room: there is something behind the end.
                    Err(DecodeError::Broken)
                };
            }
            // A full piece may have left output inside the codec.
            if rest.is_empty() && step.written < self.piece.len() {
                return Ok(());
            }
        }
    }

    pub(super) fn may_end(&self) -> bool {
        !self.begun
            || match &self.codec {
                Codec::Gzip(gzip) => gzip.at_border(),
                Codec::Deflate { ended, .. } | Codec::Brotli { ended, .. } => *ended,
                Codec::Zstd { at_border, .. } => *at_border,
            }
    }
}

impl Codec {
    /// Decodes some of `input` into `output`; nothing read and nothing written means no more can
    /// be done with this input.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        match self {
            Self::Gzip(gzip) => gzip.step(input, output),
            Self::Deflate {
                head,
                inflate,
                ended,
            } => {
                if *ended {
                    return Ok(Step::NONE);
                }
                if let Some(inflate) = inflate {
                    return run_inflate(inflate, input, output, ended);
                }
                let taken = input.len().min(2 - head.len().min(2));
                head.extend_from_slice(&input[..taken]);
                let [first, second] = head[..] else {
                    return Ok(Step::read(taken));
                };
                let zlib = first & 0x0F == 8
                    && first >> 4 <= 7
                    && u16::from_be_bytes([first, second]) % 31 == 0;
                let mut started = Box::new(Decompress::new(zlib));
                // The two bytes cannot end a stream that has more to come, nor fill a piece.
                let step = run_inflate(&mut started, head, output, ended)?;
                *inflate = Some(started);
                if step.read < head.len() && !*ended {
                    return Err(DecodeError::Broken);
                }
                Ok(Step {
                    read: taken,
                    written: step.written,
                })
            }
            Self::Brotli { state, ended } => {
                if *ended {
                    return Ok(Step::NONE);
                }
                let (mut read, mut written, mut total) = (0, 0, 0);
                let (mut available_in, mut available_out) = (input.len(), output.len());
                let result = BrotliDecompressStream(
                    &mut available_in,
                    &mut read,
                    input,
                    &mut available_out,
                    &mut written,
                    output,
                    &mut total,
                    state,
                );
                match result {
                    BrotliResult::ResultFailure => return Err(DecodeError::Broken),
                    BrotliResult::ResultSuccess => *ended = true,
                    BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
                }
                Ok(Step { read, written })
            }
            Self::Zstd { decoder, at_border } => {
                if input.is_empty() && *at_border {
                    return Ok(Step::NONE);
                }
                // The library takes a frame that lies whole before it by a shorter way, which sees
                // faults that the long one lets pass. By its first byte alone none is ever whole, so
                // that what is damaged does not depend on how the bytes were cut.
                let input = match input {
                    [first, ..] if *at_border => std::slice::from_ref(first),
                    all => all,
                };
                let status = decoder
                    .run_on_buffers(input, output)
                    .map_err(|_| DecodeError::Broken)?;
                if status.bytes_read > 0 || status.bytes_written > 0 {
                    *at_border = status.remaining == 0;
                }
                Ok(Step {
                    read: status.bytes_read,
                    written: status.bytes_written,
                })
            }
        }
    }
}

impl Step {
    const NONE: Self = Self::read(0);

    const fn read(read: usize) -> Self {
        Self { read, written: 0 }
    }
}

fn run_inflate(
    inflate: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
    ended: &mut bool,
) -> Result<Step, DecodeError> {
    let (total_in, total_out) = (inflate.total_in(), inflate.total_out());
    let status = inflate
        .decompress(input, output, FlushDecompress::None)
        .map_err(|_| DecodeError::Broken)?;
    *ended = matches!(status, Status::StreamEnd);
    let moved = |now: u64, before: u64| usize::try_from(now - before).unwrap_or(usize::MAX);
    Ok(Step {
        read: moved(inflate.total_in(), total_in),
        written: moved(inflate.total_out(), total_out),
    })
}

/// gzip: members one after the other, each a header, deflated data and a checksum. RFC 1952.
struct Gzip {
    part: Part,
    /// What of the fixed header or the trailer has been seen.
    seen: Vec<u8>,
    /// Optional header fields that still follow.
    flags: u8,
    inflate: Box<Decompress>,
    crc: Crc,
    members: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    ExtraLength,
    Extra(usize),
    /// A text that ends with a zero byte.
    Text,
    HeaderCrc,
    Data,
    Trailer,
}

const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;
const RESERVED: u8 = 0xE0;

impl Default for Gzip {
    fn default() -> Self {
        Self {
            part: Part::Header,
            seen: Vec::new(),
            flags: 0,
            inflate: Box::new(Decompress::new(false)),
            crc: Crc::new(),
            members: 0,
        }
    }
}

impl Gzip {
    fn at_border(&self) -> bool {
        self.part == Part::Header && self.seen.is_empty() && self.members > 0
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeError> {
        if self.part == Part::Data {
            let mut ended = false;
            let step = run_inflate(&mut self.inflate, input, output, &mut ended)?;
            self.crc.update(&output[..step.written]);
            if ended {
                self.part = Part::Trailer;
            }
            return Ok(step);
        }
        let mut read = 0;
        while self.part != Part::Data {
            let Some(byte) = input.get(read) else { break };
            read += 1;
            self.header_byte(*byte)?;
        }
        Ok(Step::read(read))
    }

    fn header_byte(&mut self, byte: u8) -> Result<(), DecodeError> {
        match self.part {
            Part::Text if byte == 0 => self.next_field(),
            Part::Text | Part::Data => {}
            Part::Extra(1) => self.next_field(),
            Part::Extra(left) => self.part = Part::Extra(left - 1),
            Part::Header | Part::ExtraLength | Part::HeaderCrc | Part::Trailer => {
                self.seen.push(byte);
                self.fixed_part()?;
            }
        }
        Ok(())
    }

    fn fixed_part(&mut self) -> Result<(), DecodeError> {
        match (self.part, &self.seen[..]) {
            (Part::Header, [0x1F, 0x8B, 8, flags, _, _, _, _, _, _]) if flags & RESERVED == 0 => {
                self.flags = *flags;
                self.next_field();
            }
            (Part::Header, [_, _, _, _, _, _, _, _, _, _]) => return Err(DecodeError::Broken),
            (Part::ExtraLength, [low, high]) => {
                match usize::from(u16::from_le_bytes([*low, *high])) {
                    0 => self.next_field(),
                    length => self.part = Part::Extra(length),
                }
            }
            (Part::HeaderCrc, [_, _]) => self.next_field(),
            (Part::Trailer, [a, b, c, d, e, f, g, h]) => {
                let sum = u32::from_le_bytes([*a, *b, *c, *d]);
                let size = u32::from_le_bytes([*e, *f, *g, *h]);
                if sum != self.crc.sum() || size != self.crc.amount() {
                    return Err(DecodeError::Broken);
                }
                self.members += 1;
                self.crc.reset();
                self.inflate.reset(false);
                self.part = Part::Header;
                self.seen.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Goes to the next optional part of the header, or to the data.
    fn next_field(&mut self) {
        self.seen.clear();
        for (flag, part) in [
            (EXTRA, Part::ExtraLength),
            (NAME, Part::Text),
            (COMMENT, Part::Text),
            (HEADER_CRC, Part::HeaderCrc),
        ] {
            if self.flags & flag != 0 {
                self.flags &= !flag;
                self.part = part;
                return;
            }
        }
        self.part = Part::Data;
    }
}
