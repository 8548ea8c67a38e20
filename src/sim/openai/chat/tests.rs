use super::*;

fn asked(body: &str) -> Result<(Asked, Wishes), OpenAiError> {
    let body = Json::parse(body.as_bytes()).unwrap();
    read(&body, "key", &Options::default())
}

fn pieces_of(messages: &str) -> Result<Vec<Piece>, OpenAiError> {
    asked(&format!(
        r#"{{"model":"gpt-6-sol","messages":[{messages}]}}"#
    ))
    .map(|(asked, _)| asked.pieces)
}

fn refused(body: &str, param: Option<&str>, code: Option<&str>) {
    let error = asked(body).unwrap_err();
    assert_eq!(error.param.as_deref(), param, "{body}: {error:?}");
    assert_eq!(error.code, code, "{body}: {error:?}");
}

#[test]
fn what_must_be_there_is_named() {
    let missing = Some("missing_required_parameter");
    refused(r#"{"messages":[]}"#, Some("model"), missing);
    refused(r#"{"model":"gpt-6-sol"}"#, Some("messages"), missing);
    refused(
        r#"{"model":"gpt-6-sol","messages":[]}"#,
        Some("messages"),
        Some("empty_array"),
    );
    refused(
        r#"{"model":"gpt-6-sol","messages":[{"content":"x"}]}"#,
        Some("messages[0].role"),
        missing,
    );
    let error = asked(r#"{"model":"gpt-99","messages":[{"role":"user","content":"x"}]}"#);
    let error = error.unwrap_err();
    assert_eq!((error.status, error.code), (404, Some("model_not_found")));
}

#[test]
fn a_conversation_must_be_one() {
    let user = r#"{"role":"user","content":"x"}"#;
    let call = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}"#;
    let result = r#"{"role":"tool","tool_call_id":"c","content":"r"}"#;
    assert!(pieces_of(&format!("{user},{call},{result}")).is_ok());
    for wrong in [
        format!("{user},{result}"),
        format!("{user},{call}"),
        format!("{user},{call},{user}"),
        format!("{user},{call},{result},{user},{result}"),
        format!("{user},{call},{}", result.replace("\"c\"", "\"d\"")),
        r#"{"role":"robot","content":"x"}"#.to_owned(),
        r#"{"role":"user","content":null}"#.to_owned(),
        r#"{"role":"assistant","content":null}"#.to_owned(),
        r#"{"role":"user","content":[{"type":"input_text","text":"x"}]}"#.to_owned(),
        r#"{"role":"system","content":[{"type":"image_url","image_url":{"url":"u"}}]}"#.to_owned(),
    ] {
        assert!(pieces_of(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let check = |member: &str, model: &str, param: &str, code: Option<&str>| {
        refused(
            &format!(
                r#"{{"model":"{model}","messages":[{{"role":"user","content":"x"}}],{member}}}"#
            ),
            Some(param),
            code,
        );
    };
    check(
        r#""stream_options":{"include_usage":true}"#,
        "gpt-6-sol",
        "stream_options",
        None,
    );
    check(
        r#""max_tokens":5"#,
        "gpt-6-sol",
        "max_tokens",
        Some("unsupported_parameter"),
    );
    check(
        r#""temperature":0"#,
        "gpt-6-sol",
        "temperature",
        Some("unsupported_value"),
    );
    check(
        r#""prompt_cache_options":{"mode":"explicit"}"#,
        "gpt-5.5",
        "prompt_cache_options",
        Some("unsupported_parameter"),
    );
    check(
        r#""prompt_cache_options":{"ttl":"12h"}"#,
        "gpt-6-sol",
        "prompt_cache_options.ttl",
        Some("invalid_value"),
    );
    check(
        r#""prompt_cache_retention":"in_memory""#,
        "gpt-5.5",
        "prompt_cache_retention",
        Some("invalid_value"),
    );
    check(
        r#""session_id":"s""#,
        "gpt-6-sol",
        "session_id",
        Some("unknown_parameter"),
    );
    check(r#""tool_choice":"auto""#, "gpt-6-sol", "tool_choice", None);
    assert!(
        asked(
            r#"{"model":"gpt-4.1","max_tokens":5,"temperature":0,"messages":[{"role":"user","content":"x"}]}"#
        )
        .is_ok()
    );
}

#[test]
fn a_string_and_its_one_part_are_one_prompt() {
    let short = pieces_of(r#"{"role":"system","content":"s"},{"role":"user","content":"u"}"#);
    let long = pieces_of(
        r#"{"role":"developer","content":[{"type":"text","text":"s"}]},{"role":"user","content":[{"type":"text","text":"u"}]}"#,
    );
    assert_eq!(short.unwrap(), long.unwrap());
}
