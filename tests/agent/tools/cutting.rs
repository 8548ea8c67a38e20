//! Long results.

use std::sync::Arc;

use prefixgate::agent::tools::{Manners, ToolError, Toolbox, Violation, cut, raw};
use proptest::prelude::*;
use serde_json::Value;

use super::{a_call, ends};

proptest! {
    #[test]
    fn any_text_is_cut_to_any_limit(text in "\\PC{0,300}", max in 0usize..400) {
        let short = cut(text.clone(), max);
        prop_assert!(short.len() <= max);
        if text.len() <= max {
            prop_assert_eq!(short, text);
        } else if let Some((head, rest)) = short.split_once("\n[... ") {
            let (count, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
            prop_assert!(text.starts_with(head));
            prop_assert!(text.ends_with(tail));
            prop_assert_eq!(count.parse::<usize>().unwrap(), text.len() - head.len() - tail.len());
        } else {
            prop_assert!(text.starts_with(&short));
        }
    }

    #[test]
    fn any_failure_is_told_within_the_limit(message in "[\\x00-\\x7Fé\"\\\\]{0,2000}", max in 600usize..1500) {
        let told = ToolError::failed("io", message.clone()).hint("look").told(max);
        prop_assert!(told.len() <= max);
        let told: Value = serde_json::from_str(&told).unwrap();
        prop_assert_eq!(&told["kind"], "io");
        let words = told["message"].as_str().unwrap();
        prop_assert!(words == message || words.len() < message.len() + 40);
    }
}

#[test]
fn a_failure_is_one_object_with_only_what_there_is_to_say() {
    let told = ToolError::failed("busy", "later").retryable().told(1000);
    assert_eq!(
        told,
        r#"{"kind":"busy","message":"later","retryable":true}"#
    );
    let wrong = Violation {
        path: "/q".to_owned(),
        expected: "string".to_owned(),
        got: "null".to_owned(),
    };
    let told = ToolError::failed("invalid_input", "no")
        .violations(vec![wrong])
        .hint("do")
        .told(1000);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["violations"][0]["path"], "/q");
    assert_eq!(told["hint"], "do");
    assert_eq!(
        ToolError::Said("exit code 1\nno".to_owned()).told(1000),
        "exit code 1\nno"
    );
}

#[tokio::test]
async fn a_long_result_keeps_its_head_and_its_tail() {
    let mut toolbox = Toolbox::new().with_max_result(1000);
    let schema = r#"{"type": "object"}"#;
    toolbox.add(raw("log", "", schema, Manners::READS, |_, _| async {
        Ok(format!("first{}last", "é".repeat(5000)))
    }));
    let end = ends(&Arc::new(toolbox), vec![a_call("c1", "log", "{}")])
        .await
        .remove(0);
    let text = end.result.text;
    assert!(text.len() <= 1000 && text.len() > 990, "{}", text.len());
    assert!(text.starts_with("firsté") && text.ends_with("élast"));
    assert!(text.contains("bytes left out"));
}
