//! The WebSocket mode of Responses: requests as events of the client, answers as events of the
//! server, each a text message.
//!
//! A `response.create` has the members of a `POST /v1/responses` beside its own (`type`, `generate`,
//! `stream_id`), so it is viewed like such a body. Responses of one `stream_id`, a lane, are made one
//! after another, lanes side by side; the events of a response name its lane.
//! Source: SDK types, Nov 2026.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::provider::json::{Fault, Walker, says, unescape};
use crate::text;

/// Longest name of a lane that is kept, in bytes.
const MAX_LANE_BYTES: usize = 256;

/// What an event of the client is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// It asks for a response.
    pub create: bool,
    /// The response is only prepared: no model runs (`generate: false`).
    pub prepares: bool,
    /// The lane it names.
    pub lane: Option<String>,
}

/// Reads an event of the client. What is no JSON is read as far as it goes: a server may be more
/// lenient than this walk.
#[must_use]
pub fn asked(event: &[u8]) -> Asked {
    let mut asked = Asked::default();
    // Where it ends early, what was found until then is all there is.
    let _ = members(event, |key, value| match key {
        // Of a key that stands twice, nobody knows which one counts.
        b"type" => asked.create |= is_string(value) && says(value, "response.create"),
        b"generate" => asked.prepares = value == b"false",
        b"stream_id" => asked.lane = lane(value),
        _ => {}
    });
    asked
}

/// What an event of the server means for the response that it belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Step {
    /// The response has begun.
    Begun,
    /// It has ended; the event tells how, and what it used.
    Ended,
    /// An error, after which nothing more comes of the response.
    Failed,
    /// Anything in between, or beside it.
    #[default]
    Other,
}

/// What an event of the server is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// What it means.
    pub step: Step,
    /// It belongs to a response; events about steering do not.
    pub of_response: bool,
    /// The lane it names.
    pub lane: Option<String>,
    /// Of an error: the status that a refused `POST` would have had.
    pub status: Option<u16>,
    /// It is numbered within a response.
    pub numbered: bool,
}

/// Reads an event of the server, also the beginning of one.
#[must_use]
pub fn said(event: &[u8]) -> Said {
    let mut said = Said::default();
    let _ = members(event, |key, value| match key {
        b"type" if is_string(value) => {
            let kind = unescape(value);
            said.of_response = !kind.starts_with("response.steer.");
            said.step = match &*kind {
                "response.created" => Step::Begun,
                "response.completed" | "response.incomplete" | "response.failed" => Step::Ended,
                "error" => Step::Failed,
                _ => Step::Other,
            };
        }
        b"stream_id" => said.lane = lane(value),
        b"status" | b"status_code" => {
            let digits = std::str::from_utf8(value).ok();
            said.status = said
                .status
                .or_else(|| digits?.parse().ok())
                .filter(|status| (100..1_000).contains(status));
        }
        b"sequence_number" => said.numbered = value != b"null",
        _ => {}
    });
    said
}

/// The request that a response answers which nobody asked for: input that was queued by steering
/// makes the server go on by itself. It says what the event at its beginning tells: the model, and
/// which response it continues.
#[must_use]
pub fn unasked(created: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Created {
        response: Told,
    }
    #[derive(Deserialize)]
    struct Told {
        model: Option<String>,
        previous_response_id: Option<String>,
    }
    let told = serde_json::from_slice::<Created>(created).ok()?.response;
    let request = json!({
        "model": told.model,
        "previous_response_id": told.previous_response_id?,
        "input": [],
    });
    Some(request.to_string().into_bytes())
}

/// The event that refuses a request on its lane, with the status that a `POST` would have had.
/// `headers` are those of such an answer.
#[must_use]
pub fn refusal(
    status: u16,
    kind: &str,
    code: Option<&str>,
    message: &str,
    headers: &[(&str, String)],
    lane: Option<&str>,
) -> Vec<u8> {
    let mut error = json!({"message": message, "type": kind, "param": null, "code": code});
    if !headers.is_empty() {
        let headers = headers.iter();
        error["headers"] = headers
            .map(|(name, value)| ((*name).to_owned(), Value::from(value.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    let event = json!({"type": "error", "status": status, "error": error});
    on_lane(event.to_string().as_bytes(), lane)
}

/// An event of ours with the name of its lane.
#[must_use]
pub fn on_lane(event: &[u8], lane: Option<&str>) -> Vec<u8> {
    let mut out = event.to_vec();
    if let Some(lane) = lane
        && out.last() == Some(&b'}')
    {
        out.pop();
        out.extend_from_slice(b",\"stream_id\":");
        out.extend_from_slice(Value::from(lane).to_string().as_bytes());
        out.push(b'}');
    }
    out
}

fn members(event: &[u8], mut take: impl FnMut(&[u8], &[u8])) -> Result<(), Fault> {
    let mut walk = Walker::new(event)?;
    if !walk.enter(b'{')? {
        return Err("json_object_expected");
    }
    let mut first = true;
    while let Some(key) = walk.key(&mut first)? {
        let value = walk.skip()?;
        take(&key, value.of(event));
    }
    Ok(())
}

fn is_string(value: &[u8]) -> bool {
    value.first() == Some(&b'"')
}

fn lane(value: &[u8]) -> Option<String> {
    // An escape is at most six bytes long.
    let value = &value[..value.len().min(6 * MAX_LANE_BYTES)];
    is_string(value).then(|| text::prefix(&unescape(value), MAX_LANE_BYTES).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_wherever_its_type_stands() {
        let create = |lane: Option<&str>, prepares| Asked {
            create: true,
            prepares,
            lane: lane.map(str::to_owned),
        };
        for (event, expected) in [
            (
                r#"{"type":"response.create","model":"m"}"#,
                create(None, false),
            ),
            (
                r#" {"input":[{"type":"message"}],"stream_id":"a\u0062","type":"response\u002ecreate"} "#,
                create(Some("ab"), false),
            ),
            (
                r#"{"generate":false,"type":"response.create"}"#,
                create(None, true),
            ),
            (
                r#"{"type":"response.create","type":"x"}"#,
                create(None, false),
            ),
            (r#"{"type":"response.create","input"#, create(None, false)),
            (
                r#"{"type":"response.steer","input":{"type":"response.create"}}"#,
                Asked::default(),
            ),
            (r#"["response.create"]"#, Asked::default()),
            ("", Asked::default()),
        ] {
            assert_eq!(asked(event.as_bytes()), expected, "{event}");
        }
    }

    #[test]
    fn what_an_event_means_is_read_off_its_head() {
        let event = r#"{"type":"response.completed","sequence_number":7,"response":{"type":"error","status":"completed"},"stream_id":"a"}"#;
        let whole = said(event.as_bytes());
        assert_eq!((whole.step, whole.status), (Step::Ended, None));
        assert!(whole.numbered && whole.of_response);
        assert_eq!(whole.lane.as_deref(), Some("a"));
        let head = said(&event.as_bytes()[..60]);
        assert_eq!((head.step, head.lane), (Step::Ended, None));
        let error = said(br#"{"type":"error","status":429,"error":{"code":"c"}}"#);
        assert_eq!((error.step, error.status), (Step::Failed, Some(429)));
        assert!(!error.numbered);
        let steered = said(br#"{"type":"response.steer.accepted","sequence_number":1}"#);
        assert_eq!((steered.step, steered.of_response), (Step::Other, false));
    }

    #[test]
    fn a_refusal_has_the_documented_members_and_its_lane() {
        let headers = [("retry-after", "2".to_owned())];
        let bytes = refusal(
            400,
            "billing_error",
            Some("c"),
            "no \"more\"",
            &headers,
            Some("l"),
        );
        let event: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = json!({
            "type": "error", "status": 400, "stream_id": "l",
            "error": {
                "message": "no \"more\"", "type": "billing_error", "param": null, "code": "c",
                "headers": {"retry-after": "2"},
            },
        });
        assert_eq!(event, expected);
        let bytes = refusal(400, "t", None, "m", &[], None);
        let event: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(event["error"].get("headers").is_none() && event.get("stream_id").is_none());
        assert_eq!(said(&bytes).status, Some(400));
    }

    #[test]
    fn a_response_that_nobody_asked_for_says_what_it_continues() {
        let created = br#"{"type":"response.created","response":{"id":"r2","model":"m","previous_response_id":"r1"}}"#;
        let request: Value = serde_json::from_slice(&unasked(created).unwrap()).unwrap();
        assert_eq!(
            request,
            json!({"model": "m", "previous_response_id": "r1", "input": []})
        );
        assert_eq!(unasked(br#"{"response":{"id":"r2"}}"#), None);
    }
}
