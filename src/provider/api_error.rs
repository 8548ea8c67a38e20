//! Errors in the providers' own words. Both families put them into a member `error` with `type`
//! and `message` (provider docs and SDK types, Nov 2026).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::lenient::{Text, Word, cut};
use super::view::ApiError;

/// Longest error message that is kept, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 512;

/// A word for a status, where a body does not say it itself.
pub(super) fn kind_of_status(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 | 408 => "timeout_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The `error` member of a body or an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireError<'a> {
    #[serde(rename = "type")]
    pub(super) kind: Word,
    /// A narrower word, or a status.
    #[serde(borrow)]
    pub(super) code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
}

impl WireError<'_> {
    /// In the words of the view: its type, else its code; `kind` where the error names none.
    pub(super) fn into_error(self, kind: &str) -> ApiError {
        let code = || self.code.and_then(kind_of_code);
        ApiError {
            kind: self.kind.0.or_else(code).unwrap_or_else(|| kind.to_owned()),
            message: self.message.map_or_else(String::new, message_text),
        }
    }
}

/// The word that a code is, or stands for as a status.
fn kind_of_code(code: &RawValue) -> Option<String> {
    let word: Word = serde_json::from_str(code.get()).ok()?;
    let status = || match serde_json::from_str(code.get()) {
        Ok(status @ 400..=599) => Some(kind_of_status(status).to_owned()),
        _ => None,
    };
    word.0.or_else(status)
}

/// An error as it stands in a body or an event: an object, or whatever else is there. `kind` where
/// it names none.
pub(super) fn error_of(raw: &RawValue, kind: &str) -> ApiError {
    match serde_json::from_str::<WireError<'_>>(raw.get()) {
        Ok(error) => error.into_error(kind),
        Err(_) => ApiError {
            kind: kind.into(),
            message: message_text(raw),
        },
    }
}

/// A message as text: the string, or whatever JSON stands there.
pub(super) fn message_text(raw: &RawValue) -> String {
    match serde_json::from_str::<Text<'_>>(raw.get()) {
        Ok(text) => cut(&text.0, MAX_MESSAGE_BYTES),
        Err(_) => cut(raw.get().as_bytes(), MAX_MESSAGE_BYTES),
    }
}
