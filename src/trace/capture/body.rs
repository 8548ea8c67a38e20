//! One body as it is kept: decoded, put together, redacted, and then cut to its size.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json;
use crate::config::CaptureMode;
use crate::provider::assembled::assembled;
use crate::provider::decode::{DecodeError, Decoder};
use crate::redact::{Counts, Redactor};
use crate::text;

/// An encoded body is decoded up to this size.
const DECODED_BYTES: u64 = 64 << 20;

const UNKNOWN_STREAM: &str = "not kept: a stream of a format that is not known cannot be put together, and so not be \
                              redacted safely";
const OPAQUE: &str = "not kept: it is no text, and so cannot be redacted";
const LOSSY: &str = "it is no text; bytes that are none were replaced";
const NOT_DECODED: &str = "it could not be decoded to its end by its content encoding";

/// A body as it is kept: `json` if it is JSON and fits, else `text`; neither where it is not kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Body {
    /// All of it, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub json: Option<Box<RawValue>>,
    /// What else it says, or the beginning of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// Bytes it had before anything was replaced or cut, its content encoding undone. Of a stream:
    /// of all its events.
    pub bytes: u64,
    /// `text` is only the beginning.
    pub cut: bool,
    /// Why it is not kept, or not as it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// A body as it passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed<'a> {
    /// Its bytes, or the first of them.
    pub(super) bytes: &'a [u8],
    /// How many there were.
    pub(super) total: u64,
    /// Value of `content-encoding`.
    pub(super) encoding: &'a str,
    /// It says that it is a stream of events.
    pub(super) stream: bool,
}

/// How bodies are kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keeping<'a> {
    pub(super) mode: CaptureMode,
    pub(super) max_bytes: usize,
    pub(super) redactor: &'a Redactor,
}

impl Keeping<'_> {
    /// The body as it is kept, and of a stream whether it had come to its end.
    pub(super) fn body(&self, passed: &Passed<'_>, counts: &mut Counts) -> (Body, Option<bool>) {
        let (decoded, fault) = decoded(passed);
        let held = passed.bytes.len() as u64;
        let bytes = match &decoded {
            // What was not held cannot be decoded, so its size is that on the wire.
            Some(decoded) if held == passed.total => decoded.len() as u64,
            _ => passed.total,
        };
        let mut body = Body {
            bytes,
            cut: held < passed.total,
            note: fault.map(|fault| format!("{NOT_DECODED} ({})", fault.reason())),
            ..Body::default()
        };
        let bytes = decoded.as_deref().unwrap_or(passed.bytes);
        if passed.stream {
            if let Some(whole) = assembled(bytes) {
                if whole.gaps {
                    body.note = Some("some of its events could not be read".to_owned());
                }
                let text = whole.message.to_string();
                self.put(&mut body, &text, counts);
                return (body, Some(whole.finished));
            }
            if self.mode != CaptureMode::Full {
                body.note = Some(UNKNOWN_STREAM.to_owned());
                return (body, None);
            }
        }
        match text_of(bytes, body.cut || body.note.is_some()) {
            Some(text) => self.put(&mut body, text, counts),
            None if self.mode == CaptureMode::Full => {
                body.note.get_or_insert_with(|| LOSSY.to_owned());
                let text = String::from_utf8_lossy(bytes);
                self.put(&mut body, &text, counts);
            }
            None => {
                body.note = Some(OPAQUE.to_owned());
            }
        }
        (body, None)
    }

    /// Redacts a text, and cuts it to its size.
    fn put(&self, body: &mut Body, text: &str, counts: &mut Counts) {
        let redactor = (self.mode != CaptureMode::Full).then_some(self.redactor);
        let (text, is_json) = match (json::rewritten(text, redactor, counts), redactor) {
            (Some(json), _) => (json, true),
            (None, Some(redactor)) => (redactor.text(text, counts).into_owned(), false),
            (None, None) => (text.to_owned(), false),
        };
        if text.len() > self.max_bytes {
            body.text = Some(text::prefix(&text, self.max_bytes).to_owned());
            body.cut = true;
        } else if is_json {
            match RawValue::from_string(text) {
                Ok(json) => body.json = Some(json),
                Err(_) => body.note = Some(OPAQUE.to_owned()),
            }
        } else {
            body.text = Some(text);
        }
    }
}

/// The decoded copy of an encoded body, as far as it goes; `None` where the bytes are what they are.
fn decoded(passed: &Passed<'_>) -> (Option<Vec<u8>>, Option<DecodeError>) {
    let Some(mut decoder) = Decoder::new(passed.encoding, DECODED_BYTES) else {
        return (None, Some(DecodeError::Unknown));
    };
    if decoder.is_identity() {
        return (None, None);
    }
    let mut decoded = Vec::new();
    let fed = decoder.feed(passed.bytes, &mut |piece| decoded.extend_from_slice(piece));
    let fault = fed.and_then(|()| decoder.finish()).err();
    (Some(decoded), fault)
}

/// The bytes as text. What is cut may end inside of a character.
fn text_of(bytes: &[u8], cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}
