//! Errors in the shape of the Messages API, of our own answers.
//!
//! Source: provider docs and SDK, Nov 2026. SDKs recognise errors by status, `error.type` and
//! `error.details.error_code`; they skip stream events without a name.

use serde_json::Value;

/// The JSON body of an error that prefixgate answers itself. Content type `application/json`.
#[must_use]
pub fn error_body(kind: &str, message: &str, request_id: Option<&str>) -> Vec<u8> {
    body(kind, message, "", request_id)
}

/// The stream event that ends an answer with an error. To be written on an event border only.
#[must_use]
pub fn error_event(kind: &str, message: &str) -> Vec<u8> {
    // JSON has no line ends inside strings, so the body is one data line.
    let mut event = b"event: error\ndata: ".to_vec();
    event.extend(body(kind, message, "", None));
    event.extend(b"\n\n");
    event
}

/// The body (status 404) upon which SDKs send a provider-held conversation again as a whole.
#[must_use]
pub fn thread_not_found_body(request_id: Option<&str>) -> Vec<u8> {
    body(
        "not_found_error",
        "prefixgate is configured to have the whole conversation sent: no thread state is kept for \
         this previous_message_id, replay the full history",
        r#","details":{"error_code":"thread_not_found"}"#,
        request_id,
    )
}

fn body(kind: &str, message: &str, more: &str, request_id: Option<&str>) -> Vec<u8> {
    let request_id =
        request_id.map_or_else(String::new, |id| format!(r#","request_id":{}"#, quoted(id)));
    format!(
        r#"{{"type":"error","error":{{"type":{},"message":{}{more}}}{request_id}}}"#,
        quoted(kind),
        quoted(message),
    )
    .into_bytes()
}

fn quoted(text: &str) -> Value {
    Value::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NASTY: &str = "a \"b\"\\ \n\r\t\u{0} 渐 🙂 </script>";

    fn parse(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn bodies_have_the_documented_shape() {
        assert_eq!(
            parse(&error_body("billing_error", NASTY, None)),
            json!({"type":"error","error":{"type":"billing_error","message":NASTY}})
        );
        assert_eq!(
            parse(&error_body("api_error", "x", Some("req_\"1"))),
            json!({"type":"error","error":{"type":"api_error","message":"x"},"request_id":"req_\"1"})
        );
    }

    /// B03 (i): events that prefixgate writes carry their name, equal to the type in the data.
    #[test]
    fn b03_error_events_are_named() {
        let bytes = error_event("overloaded_error", NASTY);
        let mut seen = 0;
        let mut decoder = crate::sse::Decoder::new(4096);
        decoder.feed(&bytes, |event| {
            seen += 1;
            let data = parse(event.data);
            assert_eq!(event.name, Some(b"error".as_slice()));
            assert_eq!(data["type"], "error");
            assert_eq!(
                data["error"],
                json!({"type":"overloaded_error","message":NASTY})
            );
        });
        assert_eq!((seen, decoder.on_border()), (1, true));
    }

    #[test]
    fn a_lost_thread_is_recognised_by_its_code() {
        let body = parse(&thread_not_found_body(Some("req_1")));
        assert_eq!(body["error"]["type"], "not_found_error");
        assert_eq!(
            body["error"]["details"],
            json!({"error_code":"thread_not_found"})
        );
        assert_eq!(body["request_id"], "req_1");
    }
}
