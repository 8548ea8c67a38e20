//! Reads an answer while it passes by: a stream or one JSON body, in any of the wire formats.
//!
//! It sees a decoded copy, can fail in no way that matters to the traffic, and holds a bounded
//! amount of memory whatever the upstream sends.
//!
//! How an answer ended: [`Answer::finished`] is the terminal event or a complete JSON body;
//! [`Answer::error`] is an end in the provider's own words; neither of them means a cut.
//!
//! | warning | what happened |
//! |---|---|
//! | `no_event_names` | the upstream sends `data` lines only; SDKs skip such events |
//! | `event_too_large` | an event was skipped; tool calls open at that time stay incomplete |
//! | `event_unreadable` | a known event had another shape or was no JSON |
//! | `too_many_calls`, `too_many_choices`, `too_many_iterations` | more than is kept; with the last the usage is unknown |
//! | `usage_inconsistent` | token counts that cannot all be true; the kinds concerned are unknown |
//! | `write_ttl_unknown` | cache writes without a split by lifetime, which could not be inferred |
//! | `answer_too_large`, `answer_unreadable`, `content_unreadable` | nothing, or no call, is known of a JSON body |
//! | `content_type_unclear` | a success without a usable content type; the first byte decided |

use std::mem;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::api_error::{error_of, kind_of_status, message_text};
use super::dialect::Counting;
use super::view::{Answer, ApiError, Ttl};
use super::wire::Wire;
use super::{anthropic, openai};
use crate::sse::{self, Event};

/// How much of an error body that is not JSON is kept as its message, in bytes.
const TEXT_ERROR_BYTES: usize = 200;

/// What one reader may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest event of a stream; larger ones are skipped with the warning `event_too_large`.
    /// Server tools put whole search results into one event, hence the size.
    pub event_bytes: usize,
    /// Largest JSON body; of a larger one nothing is known (`answer_too_large`).
    pub body_bytes: usize,
    /// How much of the input of one tool call is kept.
    pub tool_input_bytes: usize,
    /// How much tool input is kept of one answer in all.
    pub tool_inputs_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_bytes: 2 << 20,
            body_bytes: 8 << 20,
            tool_input_bytes: 64 << 10,
            tool_inputs_bytes: 1 << 20,
        }
    }
}

/// What the body of an answer is, by its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Server-sent events.
    Stream,
    /// One JSON body (or, with an error status, whatever an intermediary wrote).
    Json {
        /// The status of the answer.
        status: u16,
    },
    /// A success that does not say what it is; the first byte tells.
    Unlabelled {
        /// The status of the answer.
        status: u16,
    },
}

impl Shape {
    /// By status and `content-type`. What the request asked for does not matter: errors are JSON
    /// also where a stream was asked for.
    #[must_use]
    pub fn of(status: u16, content_type: Option<&str>) -> Self {
        if !is_success(status) {
            return Self::Json { status };
        }
        let essence = content_type.unwrap_or_default();
        let essence = essence.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("text/event-stream") {
            Self::Stream
        } else if essence.eq_ignore_ascii_case("application/json") {
            Self::Json { status }
        } else {
            Self::Unlabelled { status }
        }
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// An answer of one wire format in the making.
pub(super) trait Progress {
    /// Takes the next event of a stream.
    fn event(&mut self, event: Event<'_>);

    /// Takes a whole JSON object that came with a success. Says whether it is an answer.
    fn body(&mut self, json: &[u8]) -> bool;

    /// How the upstream counts tokens, where its format has several ways.
    fn count_by(&mut self, _counting: Counting) {}

    /// The last events of the stream were too large to be held.
    fn lost_end(&mut self) {}

    /// Nothing more will come. `ttl` is the lifetime of writes that the provider did not split.
    fn settle(&mut self, ttl: Option<Ttl>);

    /// What is known so far.
    fn answer(&mut self) -> &mut Answer;

    /// Adds a warning, once.
    fn warn(&mut self, warning: &'static str) {
        let warnings = &mut self.answer().warnings;
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
}

/// The format that an answer comes in.
#[derive(Debug)]
enum Making {
    Messages(anthropic::stream::Progress),
    Chat(openai::stream::chat::Progress),
    Responses(openai::stream::responses::Progress),
}

impl Making {
    fn new(wire: Wire, limits: &Limits) -> Self {
        match wire {
            Wire::Messages => Self::Messages(anthropic::stream::Progress::new(limits)),
            Wire::Chat => Self::Chat(openai::stream::chat::Progress::new(limits)),
            Wire::Responses => Self::Responses(openai::stream::responses::Progress::new(limits)),
        }
    }

    fn progress(&mut self) -> &mut dyn Progress {
        match self {
            Self::Messages(progress) => progress,
            Self::Chat(progress) => progress,
            Self::Responses(progress) => progress,
        }
    }

    fn answer(&self) -> &Answer {
        match self {
            Self::Messages(progress) => &progress.answer,
            Self::Chat(progress) => &progress.answer,
            Self::Responses(progress) => &progress.answer,
        }
    }

    fn into_answer(self) -> Answer {
        match self {
            Self::Messages(progress) => progress.answer,
            Self::Chat(progress) => progress.answer,
            Self::Responses(progress) => progress.answer,
        }
    }
}

/// The reader. Feed it the decoded bytes as they arrive, then end it, also when the answer broke off.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    limits: Limits,
    making: Making,
    /// Events that came by themselves were lost since the last one.
    gap: bool,
}

#[derive(Debug)]
enum Source {
    Unlabelled { status: u16 },
    Stream(sse::Decoder),
    Body(Body),
    Ended,
}

#[derive(Debug)]
struct Body {
    status: u16,
    bytes: Vec<u8>,
    too_large: bool,
    /// The last byte that was not white space.
    last: Option<u8>,
}

impl Reader {
    /// A reader for an answer of this format and shape.
    #[must_use]
    pub fn new(wire: Wire, shape: Shape, mut limits: Limits) -> Self {
        if wire == Wire::Responses {
            // The event that ends a stream carries the whole answer once more.
            limits.event_bytes = limits.event_bytes.max(limits.body_bytes);
        }
        Self {
            source: match shape {
                Shape::Stream => Source::Stream(sse::Decoder::new(limits.event_bytes)),
                Shape::Json { status } => Source::Body(Body::new(status)),
                Shape::Unlabelled { status } => Source::Unlabelled { status },
            },
            making: Making::new(wire, &limits),
            limits,
            gap: false,
        }
    }

    /// The same for an upstream that counts tokens in this way. Formats that have but one way take
    /// no notice.
    #[must_use]
    pub fn counting(mut self, counting: Counting) -> Self {
        self.making.progress().count_by(counting);
        self
    }

    /// Takes the next decoded bytes of the body, cut anywhere.
    pub fn feed(&mut self, decoded: &[u8]) {
        if let Source::Unlabelled { status } = self.source {
            let Some(first) = decoded.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                return;
            };
            self.source = match first {
                // The first letters of the fields of a stream, a comment, a byte order mark.
                b'e' | b'd' | b'i' | b'r' | b':' | 0xEF => {
                    Source::Stream(sse::Decoder::new(self.limits.event_bytes))
                }
                _ => Source::Body(Body::new(status)),
            };
            self.making.progress().warn("content_type_unclear");
        }
        match &mut self.source {
            Source::Stream(decoder) => {
                let progress = self.making.progress();
                decoder.feed(decoded, |event| progress.event(event));
            }
            Source::Body(body) => body.feed(decoded, self.limits.body_bytes),
            Source::Unlabelled { .. } | Source::Ended => {}
        }
    }

    /// Takes the data of an event that came by itself, as a message of a WebSocket.
    pub fn event(&mut self, data: &[u8]) {
        let after_gap = mem::take(&mut self.gap);
        self.making.progress().event(Event {
            name: None,
            data,
            after_gap,
        });
    }

    /// An event that came by itself was too large to be held. `last`: it was the terminal one.
    pub fn lost_event(&mut self, last: bool) {
        self.gap = true;
        let progress = self.making.progress();
        progress.warn("event_too_large");
        if last {
            progress.lost_end();
        }
    }

    /// The body has ended, in whatever way. `inferred_ttl` is the lifetime of the request's markers,
    /// for writes of which the provider gives only the sum; `None` when they had several or it is
    /// not known, which leaves such writes unknown. A second call does nothing.
    pub fn end(&mut self, inferred_ttl: Option<Ttl>) {
        let progress = self.making.progress();
        match mem::replace(&mut self.source, Source::Ended) {
            Source::Stream(decoder) => {
                if decoder.oversized() > 0 {
                    progress.warn("event_too_large");
                }
                if decoder.ended_in_gap() {
                    progress.lost_end();
                }
            }
            Source::Body(body) => body.read(progress),
            Source::Unlabelled { .. } => {}
            Source::Ended => return,
        }
        progress.settle(inferred_ttl);
    }

    /// What is known so far. A stream tells more with every event; a JSON body only at its end.
    #[must_use]
    pub fn answer(&self) -> &Answer {
        self.making.answer()
    }

    /// What is known, without a copy.
    #[must_use]
    pub fn into_answer(self) -> Answer {
        self.making.into_answer()
    }

    /// Whether an event of our own may be written after the bytes seen so far. Never inside JSON.
    /// It speaks of decoded bytes: an encoded body has no such place.
    #[must_use]
    pub fn on_border(&self) -> bool {
        match &self.source {
            Source::Stream(decoder) => decoder.on_border(),
            Source::Unlabelled { .. } | Source::Body(_) | Source::Ended => false,
        }
    }
}

#[derive(Deserialize)]
struct ErrorEnvelope<'a> {
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Some intermediaries put it at the top.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

impl Body {
    fn new(status: u16) -> Self {
        Self {
            status,
            bytes: Vec::new(),
            too_large: false,
            last: None,
        }
    }

    fn feed(&mut self, decoded: &[u8], limit: usize) {
        let last = decoded.iter().rfind(|byte| !byte.is_ascii_whitespace());
        self.last = last.copied().or(self.last);
        if self.too_large {
            return;
        }
        if self.bytes.len() + decoded.len() > limit {
            self.too_large = true;
            // Enough for the beginning of an error text, however the body was cut.
            let missing = TEXT_ERROR_BYTES.saturating_sub(self.bytes.len());
            self.bytes
                .extend_from_slice(&decoded[..decoded.len().min(missing)]);
            self.bytes.truncate(TEXT_ERROR_BYTES);
            self.bytes.shrink_to_fit();
        } else {
            self.bytes.extend_from_slice(decoded);
        }
    }

    fn read(self, progress: &mut dyn Progress) {
        let read = if self.too_large {
            progress.warn("answer_too_large");
            Parsed::Not
        } else {
            self.parse(progress)
        };
        // A body that could not be read may still be whole, and is then no sign of a cut.
        let closed = self.last == Some(b'}');
        progress.answer().finished = match read {
            Parsed::Whole => true,
            Parsed::Cut => false,
            Parsed::Not => closed,
        };
        if is_success(self.status) {
            if matches!(read, Parsed::Not) && !self.too_large && self.last.is_some() {
                progress.warn("answer_unreadable");
            }
        } else if progress.answer().error.is_none() {
            progress.answer().error = Some(ApiError {
                kind: kind_of_status(self.status).into(),
                message: beginning(&self.bytes),
            });
        }
    }

    fn parse(&self, progress: &mut dyn Progress) -> Parsed {
        let success = is_success(self.status);
        // Mostly it is an answer and tells of no error: then it is read once.
        let plain = success && memchr::memmem::find(&self.bytes, b"\"error\"").is_none();
        if plain && progress.body(&self.bytes) {
            return Parsed::Whole;
        }
        let envelope: ErrorEnvelope<'_> = match serde_json::from_slice(&self.bytes) {
            Ok(envelope) => envelope,
            Err(error) if error.is_eof() => return Parsed::Cut,
            Err(_) => return Parsed::Not,
        };
        let kind = kind_of_status(self.status);
        progress.answer().error = match (envelope.error, envelope.message) {
            (Some(error), _) => Some(error_of(error, kind)),
            (None, Some(message)) if !success => Some(ApiError {
                kind: kind.into(),
                message: message_text(message),
            }),
            _ => None,
        };
        if !success {
            return Parsed::Whole;
        }
        // An answer that failed may be one all the same, with an id and a usage.
        let failed = progress.answer().error.is_some();
        if (!plain && progress.body(&self.bytes)) || failed {
            Parsed::Whole
        } else {
            Parsed::Not
        }
    }
}

#[derive(Clone, Copy)]
enum Parsed {
    /// A complete JSON object.
    Whole,
    /// The beginning of one.
    Cut,
    /// Something else.
    Not,
}

/// The beginning of a body that is text; nothing for binary data.
fn beginning(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(TEXT_ERROR_BYTES)];
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character cut at the end is no sign of binary data.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => "",
    };
    let textual = |c: char| !c.is_control() || c.is_ascii_whitespace();
    if valid.chars().all(textual) {
        valid.trim().to_owned()
    } else {
        String::new()
    }
}
