//! Undoes content encodings of a copy, for looking; what passes by keeps its encoding.
//!
//! gzip, deflate (with and without the zlib wrapper), br, zstd, and up to [`MAX_LAYERS`] of them on
//! top of each other, undone from the last to the first. Output leaves in small pieces as soon as
//! the input allows it, so that each flushed event of an encoded stream is seen at once, and is
//! counted on its way: a bomb stops at the limit and is never held.
//!
//! Memory of a layer is bounded by its window (32 KiB, 16 MiB for br, [`ZSTD_WINDOW_LOG_MAX`]) and
//! one piece of [`PIECE_BYTES`].

use std::borrow::Cow;

use thiserror::Error;

mod layer;

use layer::Layer;

/// Most encodings on top of each other that are looked through.
pub const MAX_LAYERS: usize = 2;
/// Size of the pieces in which output is handed on.
pub const PIECE_BYTES: usize = 16 << 10;
/// Largest zstd window, as a power of two: the 8 MiB that RFC 9659 allows for HTTP.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Why a body could not be looked at. None of it is a reason not to pass it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// An encoding that this version does not know.
    #[error("content encoding is not known")]
    Unknown,
    /// More encodings on top of each other than [`MAX_LAYERS`].
    #[error("too many content encodings on top of each other")]
    Layered,
    /// The bytes are not what the encoding says, or end too early.
    #[error("body does not decode by its content encoding")]
    Broken,
    /// The decoded body is larger than the limit.
    #[error("decoded body is larger than the limit")]
    TooLarge,
}

impl DecodeError {
    /// A stable word for records and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "encoding_unknown",
            Self::Layered => "encoding_layered",
            Self::Broken => "encoding_broken",
            Self::TooLarge => "decoded_too_large",
        }
    }
}

/// Decodes a whole body. `encodings` is the value of `content-encoding` (several header lines joined
/// by commas; empty for none); the result is at most `max_out` bytes long. Without an encoding the
/// body is borrowed.
///
/// # Errors
/// Says why the body could not be looked at; a body that ends too early is broken.
pub fn decode_body<'a>(
    encodings: &str,
    body: &'a [u8],
    max_out: usize,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    let mut decoder = Decoder::with_limit(encodings, max_out as u64)?;
    if decoder.is_identity() {
        return if body.len() > max_out {
            Err(DecodeError::TooLarge)
        } else {
            Ok(Cow::Borrowed(body))
        };
    }
    let mut decoded = Vec::new();
    decoder.feed(body, &mut |piece| decoded.extend_from_slice(piece))?;
    decoder.finish()?;
    Ok(Cow::Owned(decoded))
}

/// Decodes a body piece by piece.
pub struct Decoder {
    /// In the order in which they are undone.
    layers: Vec<Layer>,
    /// What an unencoded body may still hand on; layers count for themselves.
    identity_left: u64,
    failed: Option<DecodeError>,
}

impl Decoder {
    /// A decoder for this value of `content-encoding`, which hands out at most `max_out` bytes.
    /// `None` when it is not known or has too many layers; an unencoded body passes through.
    #[must_use]
    pub fn new(encodings: &str, max_out: u64) -> Option<Self> {
        Self::with_limit(encodings, max_out).ok()
    }

    fn with_limit(encodings: &str, max_out: u64) -> Result<Self, DecodeError> {
        let mut layers = Vec::new();
        for name in encodings.rsplit(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            if layers.len() == MAX_LAYERS {
                return Err(DecodeError::Layered);
            }
            layers.push(Layer::new(name, max_out)?);
        }
        Ok(Self {
            layers,
            identity_left: max_out,
            failed: None,
        })
    }

    /// Whether the body is not encoded at all.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.layers.is_empty()
    }

    /// Takes the next encoded bytes and hands on all that they decode to. After an error nothing
    /// more comes.
    ///
    /// # Errors
    /// The bytes do not decode, or to more than the limit. What was handed on before stays valid.
    pub fn feed(&mut self, bytes: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let fed = if self.layers.is_empty() {
            let allowed = self.identity_left.min(bytes.len() as u64);
            self.identity_left -= allowed;
            let allowed = usize::try_from(allowed).unwrap_or(bytes.len());
            if allowed > 0 {
                out(&bytes[..allowed]);
            }
            if allowed < bytes.len() {
                Err(DecodeError::TooLarge)
            } else {
                Ok(())
            }
        } else {
            push(&mut self.layers, bytes, out)
        };
        self.failed = fed.err();
        fed
    }

    /// Whether the body may end here.
    ///
    /// # Errors
    /// An encoding is not at its end, or has failed before.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.layers.iter().all(Layer::may_end) {
            Ok(())
        } else {
            Err(DecodeError::Broken)
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("layers", &self.layers.len())
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

fn push(layers: &mut [Layer], bytes: &[u8], out: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
    match layers.split_first_mut() {
        None => {
            out(bytes);
            Ok(())
        }
        Some((layer, inner)) => layer.feed(bytes, &mut |piece| push(inner, piece, out)),
    }
}

#[cfg(test)]
mod tests;
