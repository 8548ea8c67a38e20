//! One recorded request as a file has it.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::json;
use crate::provider::reader::{Limits, Reader, Shape};
use crate::provider::view::Ttl;
use crate::provider::wire::Wire;

/// Seconds from which on a time must be in milliseconds: the year 5138.
const ABSURD_SECONDS: f64 = 1e11;

/// A request, as far as its line says something of it.
#[derive(Debug)]
pub(super) struct Line {
    /// Its start, UTC milliseconds, where the line tells.
    pub(super) at_ms: Option<i64>,
    /// The run it was given.
    pub(super) run: Option<String>,
    /// Its headers.
    pub(super) headers: HeaderMap,
    /// The body as it was sent.
    pub(super) body: Vec<u8>,
    /// Tokens of the prompt as the answer says.
    pub(super) prompt_tokens: Option<u64>,
}

/// What a line is.
#[derive(Debug)]
pub(super) enum Found {
    /// A request for a turn.
    Request(Box<Line>),
    /// Another request, or one that was not answered.
    Skipped,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    ts: Option<&'a RawValue>,
    #[serde(default)]
    path: Option<String>,
    #[serde(borrow)]
    body: &'a RawValue,
    #[serde(borrow, default)]
    run: Option<&'a RawValue>,
    #[serde(borrow, default)]
    headers: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PromptUsage {
    input_tokens: u64,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

/// What decides whether an object is a request body of its own.
#[derive(Deserialize)]
struct Bare {
    messages: Option<serde::de::IgnoredAny>,
    body: Option<serde::de::IgnoredAny>,
}

/// Reads a line.
///
/// # Errors
/// Why it is no recorded request.
pub(super) fn read(text: &[u8]) -> Result<Found, String> {
    let bare: Bare = serde_json::from_slice(text).map_err(|error| not_json(&error))?;
    if bare.body.is_none() {
        if bare.messages.is_none() {
            return Err("neither `body` nor `messages`".into());
        }
        return Ok(Found::Request(Box::new(Line {
            at_ms: None,
            run: None,
            headers: HeaderMap::new(),
            body: text.to_vec(),
            prompt_tokens: None,
        })));
    }
    let line: Envelope<'_> = serde_json::from_slice(text).map_err(|error| not_json(&error))?;
    let path = line.path.as_deref().unwrap_or("/v1/messages");
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let refused = line.status.and_then(|raw| raw.get().parse::<u16>().ok());
    if !path.trim_end_matches('/').ends_with("/v1/messages")
        || refused.is_some_and(|status| !(200..300).contains(&status))
    {
        return Ok(Found::Skipped);
    }
    let at_ms = line.ts.map(|raw| milliseconds(raw.get())).transpose()?;
    // The text of the request, or the request itself.
    let raw = line.body.get();
    let body = match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(raw)
            .map_err(|error| not_json(&error))?
            .into_bytes(),
        Some(b'{') => raw.as_bytes().to_vec(),
        _ => return Err("`body` is neither a text nor an object".into()),
    };
    let run = line.run.map(RawValue::get);
    let run = run.and_then(|raw| serde_json::from_str(raw).ok());
    let usage = line.usage.and_then(|raw| prompt_of(raw.get()));
    Ok(Found::Request(Box::new(Line {
        at_ms,
        run,
        headers: line.headers.map(headers_of).unwrap_or_default(),
        body,
        prompt_tokens: usage.or_else(|| line.response.and_then(answered)),
    })))
}

/// Where and what, without any text of the line.
fn not_json(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "ends in the middle of JSON",
        serde_json::error::Category::Data => "a member has another type than expected",
        _ => "not JSON",
    };
    format!("{what} (column {})", error.column())
}

fn milliseconds(raw: &str) -> Result<i64, String> {
    let wrong = || "`ts` is not a number of seconds".to_owned();
    let seconds: f64 = raw.parse().map_err(|_| wrong())?;
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(wrong());
    }
    if seconds >= ABSURD_SECONDS {
        return Err("`ts` looks like milliseconds; seconds are expected".into());
    }
    #[expect(clippy::cast_possible_truncation, reason = "below the bound above")]
    Ok((seconds * 1000.0).round() as i64)
}

/// Headers as an object of texts; what cannot be a header is left out.
fn headers_of(raw: &RawValue) -> HeaderMap {
    let all: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(raw.get()).unwrap_or_default();
    let pairs = all.iter().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value.as_str()?).ok()?))
    });
    pairs.collect()
}

fn prompt_of(raw: &str) -> Option<u64> {
    let usage: PromptUsage = serde_json::from_str(raw).ok()?;
    usage
        .input_tokens
        .checked_add(usage.cache_read_input_tokens.unwrap_or(0))?
        .checked_add(usage.cache_creation_input_tokens.unwrap_or(0))
}

/// Tokens of the prompt as an answer has them: an object, or a text of JSON or of events.
fn answered(raw: &RawValue) -> Option<u64> {
    let text = raw.get();
    let text = match text.as_bytes().first()? {
        b'"' => json::unescape(text.as_bytes()).into_owned(),
        _ => text.to_owned(),
    };
    let mut reader = Reader::new(
        Wire::Messages,
        Shape::Unlabelled { status: 200 },
        Limits::default(),
    );
    reader.feed(text.as_bytes());
    // Only the sum counts here, so that the lifetime of unsplit writes does not matter.
    reader.end(Some(Ttl::M5));
    let usage = reader.answer().metered.usage;
    usage
        .uncached?
        .checked_add(usage.read.unwrap_or(0))?
        .checked_add(usage.written().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Line {
        match read(text.as_bytes()) {
            Ok(Found::Request(line)) => *line,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn forms_of_a_line() {
        let line = request(
            r#"{"ts":12.5,"path":"/v1/messages?beta=true","body":"{\"messages\":[]}","other":1}"#,
        );
        assert_eq!(
            (line.at_ms, line.body.as_slice()),
            (Some(12_500), &br#"{"messages":[]}"#[..])
        );
        let line = request(r#"{"ts":12,"run":"r","body":{"messages": []}}"#);
        assert_eq!((line.at_ms, line.run.as_deref()), (Some(12_000), Some("r")));
        assert_eq!(line.body, br#"{"messages": []}"#);
        assert_eq!(request(r#"{"messages":[]}"#).at_ms, None);
        for skipped in [
            r#"{"path":"/v1/messages/count_tokens","body":"{}"}"#,
            r#"{"path":"/v1/models","body":""}"#,
            r#"{"path":"/v1/messages","status":529,"body":"{}"}"#,
        ] {
            assert!(
                matches!(read(skipped.as_bytes()), Ok(Found::Skipped)),
                "{skipped}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_its_text() {
        for (text, reason) in [
            (r#"{"body":"secret"#, "ends in the middle"),
            ("secret", "not JSON"),
            (r#"{"prompt":"secret"}"#, "neither `body`"),
            (r#"{"body":7}"#, "neither a text nor"),
            (r#"{"ts":"secret","body":"{}"}"#, "not a number"),
            (r#"{"ts":-1,"body":"{}"}"#, "not a number"),
            (r#"{"ts":1796083200000,"body":"{}"}"#, "milliseconds"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(
                error.contains(reason) && !error.contains("secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn prompts_are_counted_by_their_answers() {
        let usage =
            r#"{"input_tokens":1,"cache_read_input_tokens":20,"cache_creation_input_tokens":300}"#;
        let of = |member: &str| request(&format!(r#"{{"body":"{{}}",{member}}}"#)).prompt_tokens;
        assert_eq!(of(&format!(r#""usage":{usage}"#)), Some(321));
        let answer = format!(r#"{{"id":"m","type":"message","model":"m","usage":{usage}}}"#);
        assert_eq!(of(&format!(r#""response":{answer}"#)), Some(321));
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(of(&format!(r#""response":{text}"#)), Some(321));
        assert_eq!(of(r#""usage":{"output_tokens":5}"#), None);
    }
}
