//! Names and inputs, before anything is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use prefixgate::agent::machine::ToolSpec;
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, raw, typed};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{a_call, bad, ends, failure, good, one, toolbox};

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// What to look for
    q: String,
    /// How many
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    order: Order,
}

#[derive(Deserialize, JsonSchema, Default, Debug)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Newest,
    Oldest,
}

fn search() -> Arc<dyn Tool> {
    typed::<Search, _, _>(
        "search",
        "Searches.",
        Manners::READS,
        |input, _| async move { Ok(format!("{} {:?} {:?}", input.q, input.limit, input.order)) },
    )
}

fn nothing(name: &str) -> Arc<dyn Tool> {
    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}
    typed::<Nothing, _, _>(name, "Does nothing.", Manners::READS, |_, _| async {
        Ok("done".to_owned())
    })
}

#[tokio::test]
async fn f15_an_unknown_name_is_answered_with_the_known_ones_nearest_first() {
    let tools = toolbox([nothing("write_file"), search(), nothing("read_file")]);
    let told = bad(&tools, "serch", json!({"q": "x"})).await;
    assert_eq!(told["kind"], "unknown_tool");
    assert_eq!(told["message"], "there is no tool \"serch\"");
    assert_eq!(
        told["hint"],
        "the tools are, nearest first: search, read_file, write_file"
    );
    assert_eq!(told["retryable"], false);
    let none = bad(&toolbox([]), "serch", json!({})).await;
    assert_eq!(none["hint"], "there are no tools at all");
}

#[tokio::test]
async fn an_unknown_name_among_very_many_tools_lists_only_some() {
    let tools = toolbox((0..300).map(|number| nothing(&format!("tool_{number:03}"))));
    let told = bad(&tools, "tool_299x", json!({})).await;
    let hint = told["hint"].as_str().unwrap();
    assert!(
        hint.starts_with("the tools are, nearest first: tool_299, "),
        "{hint}"
    );
    assert!(hint.ends_with(" and 260 more"), "{hint}");
    let long = bad(&tools, &"é".repeat(100_000), json!({})).await;
    assert!(long["message"].as_str().unwrap().len() < 200);
}

#[tokio::test]
async fn f15_a_wrong_type_is_answered_with_its_path_what_is_expected_and_what_came() {
    let told = bad(&toolbox([search()]), "search", json!({"q": 5})).await;
    assert_eq!(told["kind"], "invalid_input");
    assert_eq!(
        told["violations"],
        json!([{"path": "/q", "expected": "string", "got": "number 5"}])
    );
}

#[tokio::test]
async fn all_violations_come_in_one_answer() {
    let input = json!({"limit": -1, "order": "best", "qq": "x"});
    let told = bad(&toolbox([search()]), "search", input).await;
    assert_eq!(told["message"], "the input is wrong in 4 places");
    let of = |path: &str| {
        let all = told["violations"].as_array().unwrap();
        let found = all.iter().find(|violation| violation["path"] == path);
        found.unwrap_or_else(|| panic!("{path}: {told}")).clone()
    };
    assert_eq!(of("/q")["got"], "nothing");
    assert_eq!(of("")["got"], "qq");
    assert_eq!(of("/limit")["got"], "number -1");
    assert!(
        of("/order")["expected"]
            .as_str()
            .unwrap()
            .contains("newest")
    );
    assert_eq!(of("/order")["got"], "string \"best\"");
}

#[tokio::test]
async fn violations_without_end_are_told_up_to_a_number_and_values_are_shortened() {
    let schema = r#"{"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}}"#;
    let tools = toolbox([raw("sum", "", schema, Manners::READS, |_, _| async {
        Ok(String::new())
    })]);
    let list = vec!["x".repeat(1000); 500];
    let told = bad(&tools, "sum", json!({"list": list})).await;
    assert_eq!(told["message"], "the input is wrong in at least 20 places");
    assert_eq!(told["violations"].as_array().unwrap().len(), 20);
    assert!(told.to_string().len() < 5_000);
}

#[tokio::test]
async fn what_is_no_json_is_said_to_be_none_and_an_empty_input_is_an_empty_object() {
    let tools = toolbox([nothing("noop"), search()]);
    let calls = vec![a_call("c1", "search", "{\"q\": ")];
    let told = failure(&ends(&tools, calls).await.remove(0).result);
    assert_eq!(told["kind"], "invalid_json");
    for empty in ["", "  ", "{}"] {
        let end = ends(&tools, vec![a_call("c1", "noop", empty)])
            .await
            .remove(0);
        assert_eq!(end.result.text, "done");
    }
    let missing = bad(&tools, "search", json!({})).await;
    assert_eq!(missing["violations"][0]["path"], "/q");
}

#[tokio::test]
async fn a_type_is_told_as_a_schema_and_read_back() {
    let spec = search().spec();
    let schema: Value = serde_json::from_str(&spec.schema).unwrap();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], json!(["q"]));
    assert_eq!(schema["properties"]["q"]["description"], "What to look for");
    assert!(schema.get("$schema").is_none() && schema.get("title").is_none());
    assert_eq!(spec, search().spec(), "the same bytes every time");
    let bare: Value = serde_json::from_str(&nothing("noop").spec().schema).unwrap();
    assert_eq!(bare["properties"], json!({}));
    let text = good(
        &toolbox([search()]),
        "search",
        json!({"q": "é x", "order": "oldest"}),
    )
    .await;
    assert_eq!(text, "é x None Oldest");
}

/// What a type asks for beyond its schema is refused by the type, and told all the same.
#[tokio::test]
async fn what_only_the_type_refuses_is_an_invalid_input_too() {
    #[derive(Deserialize, JsonSchema)]
    struct At {
        #[schemars(with = "String")]
        at: std::net::IpAddr,
    }
    let tools = toolbox([typed::<At, _, _>(
        "ping",
        "",
        Manners::READS,
        |input, _| async move { Ok(input.at.to_string()) },
    )]);
    assert_eq!(good(&tools, "ping", json!({"at": "::1"})).await, "::1");
    let told = bad(&tools, "ping", json!({"at": "home"})).await;
    assert_eq!(told["kind"], "invalid_input");
}

#[tokio::test]
async fn a_schema_that_nobody_can_meet_is_an_exception_when_it_is_called() {
    for schema in [
        "{",
        r#"{"type": "oject"}"#,
        r#"{"$ref": "https://example.com/schema"}"#,
    ] {
        let tools = toolbox([raw("odd", "", schema, Manners::READS, |_, _| async {
            Ok(String::new())
        })]);
        let end = ends(&tools, vec![a_call("c1", "odd", "{}")])
            .await
            .remove(0);
        let exception = end.exception.expect(schema);
        assert!(
            exception.starts_with("the schema of odd cannot be used"),
            "{exception}"
        );
        assert!(end.result.is_error);
    }
}

#[tokio::test]
async fn a_schema_is_read_once_however_often_its_tool_is_called() {
    struct Counted(AtomicUsize);
    impl Tool for Counted {
        fn spec(&self) -> ToolSpec {
            self.0.fetch_add(1, Ordering::SeqCst);
            ToolSpec {
                name: "counted".to_owned(),
                description: String::new(),
                schema: r#"{"type": "object"}"#.to_owned(),
            }
        }
        fn manners(&self) -> Manners {
            Manners::READS
        }
        fn call(&self, _: Value, _: CallContext) -> BoxFuture<'static, ToolResult> {
            Box::pin(async { Ok("yes".to_owned()) })
        }
    }
    let counted = Arc::new(Counted(AtomicUsize::new(0)));
    let tools = toolbox([Arc::clone(&counted) as Arc<dyn Tool>]);
    for _ in 0..50 {
        assert!(!one(&tools, "counted", json!({})).await.is_error);
    }
    assert_eq!(counted.0.load(Ordering::SeqCst), 1);
}

/// An expression that takes others years takes no time.
#[tokio::test]
async fn patterns_of_schemas_are_matched_in_linear_time() {
    let schema =
        r#"{"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}"#;
    let tools = toolbox([raw("match", "", schema, Manners::READS, |_, _| async {
        Ok("fits".to_owned())
    })]);
    let told = bad(
        &tools,
        "match",
        json!({"x": format!("{}b", "a".repeat(50_000))}),
    )
    .await;
    assert_eq!(told["violations"][0]["path"], "/x");
}
