//! Errors in the shape of the OpenAI APIs, for answers that prefixgate gives itself on their paths.
//!
//! Source: provider docs, Nov 2026: `{"error":{"message","type","param","code"}}`.

use serde_json::Value;

/// The JSON body of an error. Content type `application/json`.
#[must_use]
pub fn error_body(kind: &str, code: Option<&str>, message: &str) -> Vec<u8> {
    format!(
        r#"{{"error":{{"message":{},"type":{},"param":null,"code":{}}}}}"#,
        Value::from(message),
        Value::from(kind),
        code.map_or(Value::Null, Value::from),
    )
    .into_bytes()
}

/// The event that ends a Chat Completions stream with an error (their events have no names).
/// To be written on an event border only.
#[must_use]
pub fn chat_error_event(kind: &str, code: Option<&str>, message: &str) -> Vec<u8> {
    let mut event = b"data: ".to_vec();
    event.extend(error_body(kind, code, message));
    event.extend(b"\n\n");
    event
}

/// The events that end a Responses stream with an error. To be written on an event border only.
///
/// Clients differ in what they heed. The SDKs raise the error of the event `error`, which stands in
/// it twice: in its members, as documented for streams, and as `error`, by which the Python SDK
/// recognises it (3.57, Nov 2026); of a failed response they would not tell the text, so `error`
/// comes first. Codex passes over `error` and shows what `response.failed` says.
#[must_use]
pub fn responses_error_events(kind: &str, message: &str) -> Vec<u8> {
    let (kind, message) = (Value::from(kind), Value::from(message));
    format!(
        "event: error\ndata: {{\"type\":\"error\",\"sequence_number\":0,\"code\":{kind},\
         \"message\":{message},\"param\":null,\"error\":{{\"message\":{message},\"type\":{kind},\
         \"param\":null,\"code\":{kind}}}}}\n\n\
         event: response.failed\ndata: {{\"type\":\"response.failed\",\"sequence_number\":1,\
         \"response\":{{\"id\":\"\",\"object\":\"response\",\"status\":\"failed\",\
         \"error\":{{\"code\":{kind},\"message\":{message}}},\"output\":[]}}}}\n\n",
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shape_and_escapes() {
        let message = "cap \"x\"\nreached 🙂";
        let expected =
            |code: Value| json!({"error":{"message":message,"type":"t","param":null,"code":code}});
        let parse = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(
            parse(&error_body("t", None, message)),
            expected(Value::Null)
        );
        assert_eq!(
            parse(&error_body("t", Some("c"), message)),
            expected("c".into())
        );
        let event = chat_error_event("t", None, message);
        let data = event
            .strip_prefix(b"data: ")
            .and_then(|e| e.strip_suffix(b"\n\n"));
        assert_eq!(parse(data.unwrap()), expected(Value::Null));
    }

    /// B03 (i): the events of Responses carry their name, equal to the type in the data; those of
    /// Chat Completions have none. The SDKs stop at the first one.
    #[test]
    fn b03_error_events_are_named_where_the_format_has_names() {
        let message = "over \"the\" cap\n渐";
        let responses = [
            (Some("error"), "/error"),
            (Some("response.failed"), "/response/error"),
        ];
        for (bytes, events) in [
            (
                responses_error_events("billing_error", message),
                &responses[..],
            ),
            (
                chat_error_event("billing_error", None, message),
                &[(None, "/error")],
            ),
        ] {
            let mut seen = events.iter();
            let mut decoder = crate::sse::Decoder::new(4096);
            decoder.feed(&bytes, |event| {
                let (name, place) = seen.next().unwrap();
                assert_eq!(event.name, name.map(str::as_bytes));
                let data: Value = serde_json::from_slice(event.data).unwrap();
                assert_eq!(data["type"].as_str(), *name);
                let error = data.pointer(place).unwrap();
                assert_eq!(error["message"], message);
                let kind = if error["type"].is_null() {
                    "code"
                } else {
                    "type"
                };
                assert_eq!(error[kind], "billing_error");
            });
            assert!(seen.next().is_none() && decoder.on_border());
        }
    }
}
