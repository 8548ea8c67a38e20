use super::*;
use crate::sim::openai::models;

fn items(text: &str) -> Vec<Item> {
    let list = Json::parse(text.as_bytes()).unwrap();
    list.items()
        .iter()
        .enumerate()
        .map(|(index, item)| Item {
            json: Arc::new(item.clone()),
            at: Some(format!("input[{index}]")),
        })
        .collect()
}

fn read(text: &str) -> Result<Vec<Piece>, OpenAiError> {
    let checker = Checker {
        model: models::find("gpt-6-sol").unwrap(),
        strict: true,
        seal: Some(Seal { seed: 1 }),
        stored: &|id| id == "rs_stored",
    };
    checker.pieces(&items(text))
}

fn refused(text: &str) -> (String, Option<String>) {
    let error = read(text).unwrap_err();
    (error.message, error.param)
}

#[test]
fn what_an_echo_adds_does_not_change_the_prompt() {
    let written = read(
        r#"[{"role":"user","content":"hi"},
            {"type":"message","role":"assistant","content":"yes"},
            {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
            {"type":"function_call_output","call_id":"c","output":"r"}]"#,
    )
    .unwrap();
    let echoed = read(
        r#"[{"type":"message","role":"user","status":"completed","content":[{"type":"input_text","text":"hi"}]},
            {"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"commentary",
             "content":[{"type":"output_text","text":"yes","annotations":[],"logprobs":[]}]},
            {"id":"fc_1","status":"completed","type":"function_call","name":"f","arguments":"{}","call_id":"c"},
            {"type":"function_call_output","output":[{"type":"input_text","text":"r"}],"call_id":"c"}]"#,
    )
    .unwrap();
    assert_eq!(written, echoed);
}

#[test]
fn two_messages_are_not_one_of_two_parts() {
    let two = read(r#"[{"role":"user","content":"a"},{"role":"user","content":"b"}]"#);
    let one = read(
        r#"[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]"#,
    );
    assert_ne!(two.unwrap(), one.unwrap());
}

#[test]
fn calls_and_their_outputs_belong_together() {
    let call = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
    let output = r#"{"type":"function_call_output","call_id":"c","output":""}"#;
    assert!(read(&format!("[{call},{output}]")).is_ok());
    let (message, param) = refused(&format!("[{output},{call}]"));
    assert!(message.starts_with("No tool call found for function call output"));
    assert_eq!(param.as_deref(), Some("input"));
    assert!(
        refused(&format!("[{call}]"))
            .0
            .contains("No tool output found")
    );
    let custom = r#"{"type":"custom_tool_call_output","call_id":"c","output":""}"#;
    assert!(read(&format!("[{call},{custom}]")).is_err());
}

#[test]
fn parts_belong_to_their_role() {
    let (_, param) =
        refused(r#"[{"role":"assistant","content":[{"type":"input_text","text":"x"}]}]"#);
    assert_eq!(param.as_deref(), Some("input[0].content[0].type"));
    assert!(read(r#"[{"role":"user","content":[{"type":"output_text","text":"x"}]}]"#).is_err());
    assert!(read(r#"[{"role":"robot","content":"x"}]"#).is_err());
    assert!(read(r#"[{"type":"thought","content":"x"}]"#).is_err());
    let (_, param) = refused(
        r#"[{"role":"user","content":[{"type":"input_text","text":"x","cache_control":{}}]}]"#,
    );
    assert_eq!(param.as_deref(), Some("input[0].content[0].cache_control"));
}

#[test]
fn reasoning_is_the_providers_own_and_keeps_what_followed_it() {
    let own = Seal { seed: 1 }.close("01ab");
    let foreign = Seal { seed: 2 }.close("01ab");
    let with = |content: &str| {
        format!(
            r#"[{{"type":"reasoning","id":"rs_01ab","summary":[],"encrypted_content":"{content}"}},{{"role":"assistant","content":"x"}}]"#
        )
    };
    assert!(read(&with(&own)).is_ok());
    assert!(read(&with(&foreign)).is_err());
    let alone =
        r#"[{"type":"reasoning","id":"rs_stored","summary":[]},{"role":"user","content":"x"}]"#;
    assert!(refused(alone).0.contains("required following item"));
    let stored = |id: &str| {
        read(&format!(
            r#"[{{"type":"reasoning","id":"{id}","summary":[]}},{{"role":"assistant","content":"x"}}]"#
        ))
    };
    assert!(stored("rs_stored").is_ok());
    assert_eq!(stored("rs_lost").unwrap_err().status, 404);
    assert!(
        stored("msg_1")
            .unwrap_err()
            .message
            .contains("begins with 'rs'")
    );
}
