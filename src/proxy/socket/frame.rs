//! An incremental reader of WebSocket frames that pass by.
//!
//! It says of any piece of the byte stream which frame it belongs to, and puts messages together
//! from their fragments, unmasked, as far as they are looked at. What it reads depends on the bytes
//! alone, never on how they were cut. Bounded: one message up to a limit, of a larger one the
//! beginning.
//!
//! Source: RFC 6455, sections 5.2 to 5.5. No extension is known here, so reserved bits are an error.

use std::mem;

use bytes::Bytes;

/// Longest payload of a control frame. RFC 6455 section 5.5.
const MAX_CONTROL_BYTES: usize = 125;
/// Longest head: two bytes, eight of length, four of mask.
const MAX_HEAD_BYTES: usize = 14;
/// What is kept of a message that is too large: its beginning.
const KEPT_BYTES: usize = 4 << 10;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;

/// Bytes that are no WebSocket frames, as a stable word for records.
pub type Broken = &'static str;

/// The next piece of the byte stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// So many of the bytes belong to it; none, where more are needed.
    pub used: usize,
    /// They belong to a control frame, which may stand between the fragments of a message.
    pub control: bool,
    /// What has been seen with its last byte.
    pub seen: Option<Seen>,
}

/// What has been seen.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// The head of the first frame of a message.
    Begun {
        /// Bytes of payload that this frame announces.
        bytes: u64,
        /// It is the only frame of the message.
        whole: bool,
    },
    /// A message is complete.
    Message(Message),
    /// The connection is being closed, with this code, if one was given.
    Close(Option<u16>),
    /// Another control frame is complete.
    Control,
}

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// It is text, not binary data.
    pub text: bool,
    /// Its payload; of one that was too large, the beginning.
    pub payload: Bytes,
    /// Bytes of its payload.
    pub bytes: u64,
}

impl Message {
    /// All of it is there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.payload.len() as u64 == self.bytes
    }
}

/// See the module.
#[derive(Debug)]
pub struct Frames {
    limit: usize,
    head: [u8; MAX_HEAD_BYTES],
    head_len: usize,
    /// The frame whose payload is under way.
    frame: Option<Frame>,
    /// The message whose frames are under way.
    message: Option<Assembly>,
    control: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: u8,
    last: bool,
    left: u64,
    mask: [u8; 4],
}

#[derive(Debug)]
struct Assembly {
    text: bool,
    payload: Vec<u8>,
    bytes: u64,
    /// Most bytes that are kept.
    room: usize,
}

impl Frames {
    /// A reader that keeps messages of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            head: [0; MAX_HEAD_BYTES],
            head_len: 0,
            frame: None,
            message: None,
            control: Vec::new(),
        }
    }

    /// Takes bytes up to the next thing to be seen. To be called with the rest, also with an empty
    /// one, until it uses and sees nothing.
    ///
    /// # Errors
    /// The bytes are no frames. Nothing can be read any more.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Part, Broken> {
        let mut used = 0;
        let mut frame = match self.frame {
            Some(frame) => frame,
            None => {
                used = self.read_head(bytes);
                if self.head_len < self.head_wanted() {
                    let control = self.head_len > 0 && is_control(self.head[0] & 0x0F);
                    return Ok(Part {
                        used,
                        control,
                        seen: None,
                    });
                }
                let (frame, begun) = self.open()?;
                self.head_len = 0;
                self.frame = Some(frame);
                if let Some(begun) = begun {
                    // An empty fragment has ended already.
                    self.frame = (frame.left > 0 || frame.last).then_some(frame);
                    return Ok(Part {
                        used,
                        control: false,
                        seen: Some(begun),
                    });
                }
                frame
            }
        };
        let rest = &bytes[used..];
        let taken = usize::try_from(frame.left).map_or(rest.len(), |left| left.min(rest.len()));
        self.take(&rest[..taken], frame);
        used += taken;
        frame.left -= taken as u64;
        frame.mask.rotate_left(taken % 4);
        let control = is_control(frame.opcode);
        self.frame = (frame.left > 0).then_some(frame);
        let seen = (frame.left == 0).then(|| self.close(frame)).flatten();
        Ok(Part {
            used,
            control,
            seen,
        })
    }

    /// Whether the bytes seen so far end with a frame, and with a message: a message of another
    /// hand may stand here.
    #[must_use]
    pub fn on_border(&self) -> bool {
        self.on_frame_border() && self.message.is_none()
    }

    /// Whether they end with a frame: a control frame may stand here.
    #[must_use]
    pub fn on_frame_border(&self) -> bool {
        self.frame.is_none() && self.head_len == 0
    }

    /// Keeps no more of the message under way than of one that is too large.
    pub fn forget(&mut self) {
        if let Some(message) = &mut self.message {
            message.shorten();
        }
    }

    fn head_wanted(&self) -> usize {
        if self.head_len < 2 {
            return 2;
        }
        let length = match self.head[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        2 + length + mask
    }

    fn read_head(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while self.head_len < self.head_wanted() {
            let Some(byte) = bytes.get(used) else { break };
            self.head[self.head_len] = *byte;
            self.head_len += 1;
            used += 1;
        }
        used
    }

    /// Reads a whole head.
    fn open(&mut self) -> Result<(Frame, Option<Seen>), Broken> {
        let head = &self.head[..self.head_len];
        let (first, short) = (head[0], head[1] & 0x7F);
        let length = match short {
            126 => &head[2..4],
            127 => &head[2..10],
            _ => &head[1..2],
        };
        let bytes = match short {
            126 | 127 => length.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)),
            short => u64::from(short),
        };
        let mut mask = [0; 4];
        if head[1] & 0x80 != 0 {
            mask.copy_from_slice(&head[head.len() - 4..]);
        }
        let (opcode, last) = (first & 0x0F, first & 0x80 != 0);
        if first & 0x70 != 0 {
            return Err("reserved_bits");
        }
        if bytes > i64::MAX as u64 {
            return Err("frame_length");
        }
        let frame = Frame {
            opcode,
            last,
            left: bytes,
            mask,
        };
        match opcode {
            CLOSE | PING | PONG if !last || bytes > MAX_CONTROL_BYTES as u64 => {
                Err("control_frame")
            }
            CLOSE | PING | PONG => {
                self.control.clear();
                Ok((frame, None))
            }
            CONTINUATION if self.message.is_some() => Ok((frame, None)),
            TEXT | BINARY if self.message.is_none() => {
                self.message = Some(Assembly {
                    text: opcode == TEXT,
                    payload: Vec::new(),
                    bytes: 0,
                    room: self.limit,
                });
                let begun = Seen::Begun { bytes, whole: last };
                Ok((frame, Some(begun)))
            }
            CONTINUATION | TEXT | BINARY => Err("fragments"),
            _ => Err("opcode"),
        }
    }

    /// Takes a piece of a frame's payload.
    fn take(&mut self, bytes: &[u8], frame: Frame) {
        let plain = bytes.iter().zip(frame.mask.iter().cycle());
        let plain = plain.map(|(byte, mask)| byte ^ mask);
        if is_control(frame.opcode) {
            self.control.extend(plain);
        } else if let Some(message) = &mut self.message {
            message.bytes = message.bytes.saturating_add(bytes.len() as u64);
            let fit = message.room.saturating_sub(message.payload.len());
            message.payload.extend(plain.take(fit));
            if fit < bytes.len() {
                message.shorten();
            }
        }
    }

    /// The end of a frame.
    fn close(&mut self, frame: Frame) -> Option<Seen> {
        match frame.opcode {
            CLOSE => {
                let code = self.control.first_chunk::<2>().copied();
                Some(Seen::Close(code.map(u16::from_be_bytes)))
            }
            opcode if is_control(opcode) => Some(Seen::Control),
            _ if frame.last => {
                let message = self.message.take()?;
                Some(Seen::Message(Message {
                    text: message.text,
                    bytes: message.bytes,
                    payload: message.payload.into(),
                }))
            }
            _ => None,
        }
    }
}

impl Assembly {
    fn shorten(&mut self) {
        self.room = self.room.min(KEPT_BYTES);
        if self.payload.len() > self.room {
            // The large one goes.
            let kept = self.payload[..self.room].to_vec();
            drop(mem::replace(&mut self.payload, kept));
        }
    }
}

fn is_control(opcode: u8) -> bool {
    opcode & 0x8 != 0
}

/// A text message of one frame, unmasked as a server writes it.
#[must_use]
pub fn text(payload: &[u8]) -> Vec<u8> {
    server(TEXT, payload)
}

/// A frame that closes the connection.
#[must_use]
pub fn close(code: u16, reason: &str) -> Vec<u8> {
    let reason = crate::text::prefix(reason, MAX_CONTROL_BYTES - 2);
    server(
        CLOSE,
        &[&code.to_be_bytes()[..], reason.as_bytes()].concat(),
    )
}

fn server(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + MAX_HEAD_BYTES);
    frame.push(0x80 | opcode);
    match payload.len() {
        short @ 0..126 => frame.push(short as u8),
        middle @ 126..0x1_0000 => {
            frame.push(126);
            frame.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            frame.push(127);
            frame.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

#[cfg(test)]
mod tests;
