//! Valid and invalid inputs, names nobody declared, and schemas that are made to hurt.

use std::fmt::Write as _;

use super::*;
use crate::provider::anthropic::{request::view, tools};

fn declared(body: &str) -> Declared {
    let view = view(body.as_bytes()).unwrap();
    Declared::read(body.as_bytes(), &tools::declared(body.as_bytes(), &view))
}

fn with_schema(schema: &str) -> Declared {
    declared(&format!(
        r#"{{"tools":[{{"name":"t","input_schema":{schema}}}]}}"#
    ))
}

fn check(schema: &str, input: &str) -> Option<&'static str> {
    with_schema(schema).check("t", input.as_bytes(), true)
}

/// Whether a schema is checked against at all: it allows nothing.
fn is_checked(schema: &str) -> bool {
    check(&schema.replace("HERE", r#""not":{}"#), "{}") == Some(INVALID_INPUT)
}

#[test]
fn inputs_are_held_against_the_schema_of_their_tool() {
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"},"mode":{"enum":["r","w"]},
        "lines":{"type":"array","items":{"type":"integer"}}},"required":["path"],"additionalProperties":false}"#;
    for (input, expected) in [
        (r#"{"path":"a"}"#, None),
        (r#" {"path":"a","mode":"w","lines":[1,2]} "#, None),
        (r#"{}"#, Some(INVALID_INPUT)),
        (r#"{"path":7}"#, Some(INVALID_INPUT)),
        (r#"{"path":"a","more":1}"#, Some(INVALID_INPUT)),
        (r#"{"path":"a","mode":"x"}"#, Some(INVALID_INPUT)),
        (r#"{"path":"a","lines":[1,"2"]}"#, Some(INVALID_INPUT)),
        (r#"[]"#, Some(INVALID_INPUT)),
        // No JSON satisfies no schema; what only strict readers refuse is nobody's fault.
        (r#"{"path":"#, Some(INVALID_INPUT)),
        ("", Some(INVALID_INPUT)),
        (r#"{"path":"a"} x"#, Some(INVALID_INPUT)),
        (r#"{"path":"\ud800"}"#, None),
    ] {
        assert_eq!(check(schema, input), expected, "{input}");
    }
}

#[test]
fn schemas_of_older_drafts_and_local_references_are_understood() {
    let schema = r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{
        "node":{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/definitions/node"}}},
        "required":["name"]}},"properties":{"root":{"$ref":"#/definitions/node"}}}"##;
    let deep = r#"{"root":{"name":"a","children":[{"name":"b","children":[{"name":"c"}]}]}}"#;
    assert_eq!(check(schema, deep), None);
    assert_eq!(
        check(schema, &deep.replace(r#""name":"c""#, "")),
        Some(INVALID_INPUT)
    );
}

#[test]
fn a_name_that_is_not_declared_is_told_unless_more_tools_may_be_there() {
    let tools = r#"{"name":"re\u0061d","input_schema":{}},{"type":"bash_20250124","name":"bash"}"#;
    let closed = declared(&format!(r#"{{"tools":[{tools}]}}"#));
    assert_eq!(closed.check("read", b"{}", true), None);
    assert_eq!(closed.check("bash", b"7", true), None);
    assert_eq!(closed.check("write", b"{}", true), Some(UNDECLARED));
    assert_eq!(closed.check("write", b"{\"cut", false), Some(UNDECLARED));
    assert_eq!(declared("{}").check("x", b"{}", true), Some(UNDECLARED));
    let open = declared(&format!(
        r#"{{"tools":[{tools},{{"type":"mcp_toolset","mcp_server_name":"s"}}]}}"#
    ));
    assert_eq!(open.check("write", b"{}", true), None);
}

#[test]
fn what_cannot_be_checked_is_let_alone() {
    let never = r#"{"not":{}}"#;
    assert!(is_checked("{HERE}"));
    let tool = with_schema(never);
    assert_eq!(tool.check("t", b"{}", false), None);
    let large = format!(r#""{}""#, "x".repeat(MAX_INPUT_BYTES));
    assert_eq!(tool.check("t", large.as_bytes(), true), None);
    // Two tools of one name.
    let twice = declared(&format!(
        r#"{{"tools":[{{"name":"t","input_schema":{never}}},{{"name":"t","input_schema":{{}}}}]}}"#
    ));
    assert_eq!(twice.check("t", b"{}", true), None);
    for schema in [
        // Elsewhere: nothing is fetched, whatever the scheme.
        r#"{HERE,"$ref":"http://127.0.0.1:9/s.json"}"#,
        r#"{HERE,"properties":{"a":{"$ref":"https://schema.example/s.json"}}}"#,
        r#"{HERE,"$ref":"file:///etc/hostname"}"#,
        r#"{HERE,"$ref":"other.json"}"#,
        r##"{HERE,"$ref":"#/$defs/missing"}"##,
        r#"{HERE,"$schema":"http://127.0.0.1:9/meta.json"}"#,
        // Not a schema, or one that the linear engine does not take.
        r#"{HERE,"type":"no such type"}"#,
        r#"{HERE,"pattern":"(?=a)b"}"#,
        r#"{HERE,"pattern":"("}"#,
        r#"{HERE,"x":"\ud800"}"#,
    ] {
        assert!(!is_checked(schema), "{schema}");
    }
}

/// A schema in which each of `levels` definitions asks twice for the next one.
fn doubling(levels: usize, head: &str, wrap: impl Fn(usize) -> String) -> String {
    let mut defs = String::new();
    for level in 0..levels {
        let _ = write!(defs, r#""d{level}":{},"#, wrap(level + 1));
    }
    format!(r##"{{{head},"$ref":"#/$defs/d0","$defs":{{{defs}"d{levels}":{{}}}}}}"##)
}

#[test]
fn schemas_that_double_at_each_level_are_not_tried() {
    let same = |next: usize| {
        format!(r##"{{"allOf":[{{"$ref":"#/$defs/d{next}"}},{{"$ref":"#/$defs/d{next}"}}]}}"##)
    };
    assert!(is_checked(&doubling(3, "HERE", same)));
    assert!(!is_checked(&doubling(60, "HERE", same)));
    // The same by the depth of the input: fine while it is shallow.
    let inside = r##"{"items":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]},"maximum":0}"##;
    assert_eq!(check(inside, "[[[1]]]"), Some(INVALID_INPUT));
    let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    assert_eq!(check(inside, &deep), None);
    // Round and round at the same value.
    assert!(!is_checked(r##"{HERE,"$ref":"#"}"##));
    assert!(!is_checked(
        r##"{HERE,"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##
    ));
}

#[test]
fn long_chains_of_references_end_before_the_stack_does() {
    let chain = |levels| {
        let next = |next: usize| format!(r##"{{"$ref":"#/$defs/d{next}"}}"##);
        doubling(levels, "HERE", next)
    };
    assert!(is_checked(&chain(150)));
    assert!(!is_checked(&chain(1_000)));
    // At each level of the input one after the other.
    let inside = |levels: usize| {
        let next = |at: usize| match at < levels {
            true => format!(r##"{{"$ref":"#/$defs/d{at}"}}"##),
            false => r##"{"items":{"$ref":"#"},"maximum":0}"##.to_owned(),
        };
        doubling(levels, r#""title":"x""#, next)
    };
    let input = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    assert_eq!(check(&inside(5), &input), Some(INVALID_INPUT));
    assert_eq!(check(&inside(100), &input), None);
    assert_eq!(check(&inside(100), "1"), Some(INVALID_INPUT));
}

#[test]
fn the_deepest_schemas_that_are_tried_need_half_the_stack_of_a_thread() {
    let deep = |levels| {
        let nested = |next: usize| {
            format!(
                r##"{{"properties":{{"a":{{"items":{{"anyOf":[{{"not":{{"not":{{"$ref":"#/$defs/d{next}"}}}}}}]}}}}}}}}"##
            )
        };
        doubling(levels, "HERE", nested)
    };
    assert!(!is_checked(&deep(80)));
    let next = |at: usize| match at < 15 {
        true => format!(r##"{{"$ref":"#/$defs/d{at}"}}"##),
        false => r##"{"items":{"$ref":"#"},"maximum":0}"##.to_owned(),
    };
    let inside = doubling(15, r#""title":"x""#, next);
    let work = move || {
        assert!(is_checked(&deep(70)));
        let input = format!("{}1{}", "[".repeat(28), "]".repeat(28));
        assert_eq!(check(&inside, &input), Some(INVALID_INPUT));
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(work);
    thread.unwrap().join().unwrap();
}

#[test]
fn patterns_are_matched_in_linear_time_and_within_a_size() {
    let evil = r#"{"properties":{"a":{"pattern":"^(a+)+$"}}}"#;
    let input = format!(r#"{{"a":"{}!"}}"#, "a".repeat(100_000));
    assert_eq!(check(evil, &input), Some(INVALID_INPUT));
    assert!(!is_checked(r#"{HERE,"pattern":"(((a{100}){100}){100})"}"#));
    assert!(is_checked(r#"{HERE,"pattern":"^[a-z0-9_-]{1,64}$"}"#));
}

#[test]
fn large_schemas_are_not_copied() {
    let filler = |bytes: usize| format!(r#"{{"not":{{}},"title":"{}"}}"#, "x".repeat(bytes));
    let large = with_schema(&filler(MAX_SCHEMA_BYTES));
    assert_eq!(large.bytes, 1);
    assert_eq!(large.check("t", b"{}", true), None);
    let schema = filler(MAX_SCHEMA_BYTES - 1_000);
    let tools: Vec<String> = (0..40)
        .map(|at| format!(r#"{{"name":"t{at}","input_schema":{schema}}}"#))
        .collect();
    let many = declared(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")));
    assert!(many.bytes < MAX_SCHEMAS_BYTES + 1_000, "{}", many.bytes);
    assert_eq!(many.check("t0", b"{}", true), Some(INVALID_INPUT));
    assert_eq!(many.check("t39", b"{}", true), None);
    let tools: Vec<String> = (0..=MAX_TOOLS)
        .map(|at| format!(r#"{{"name":"t{at}"}}"#))
        .collect();
    let many = declared(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")));
    assert_eq!(many.tools.len(), MAX_TOOLS);
    assert_eq!(many.check("anything", b"{}", true), None);
}

#[test]
fn lists_are_read_once_and_forgotten_in_bounds() {
    let schemas = Schemas::new();
    let first = schemas.get_or_read(1, || with_schema("{}"));
    let again = schemas.get_or_read(1, || panic!("it is known"));
    assert!(Arc::ptr_eq(&first, &again));
    let bytes = |schemas: &Schemas| schemas.0.lock().unwrap().bytes;
    for key in 0..1_000 {
        schemas.get_or_read(key, || with_schema("{}"));
    }
    assert_eq!(schemas.0.lock().unwrap().by_key.len(), MAX_LISTS);
    assert_eq!(bytes(&schemas), MAX_LISTS * 3);
    let huge = |bytes| Declared {
        bytes,
        ..Declared::default()
    };
    schemas.get_or_read(2_000, || huge(MAX_LISTS_BYTES - 3));
    assert_eq!(bytes(&schemas), MAX_LISTS_BYTES);
    schemas.get_or_read(2_001, || huge(1_000));
    assert_eq!(bytes(&schemas), 1_000);
}

proptest::proptest! {
    /// Whatever stands where a schema and an input should, nothing panics and nothing hangs.
    #[test]
    fn no_schema_and_no_input_is_too_broken(
        schema in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
        near in r##"\{("(type|\$ref|items|properties|pattern|enum|anyOf|minimum|\$id)":("(string|#|#/a|object|\(a\|)"|\{"a":\{\}\}|\[\{\}, 1\]|-?[0-9]{1,3}|null),?){0,4}\}"##,
        input in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
        text in r#"[\[\]{}",:a1 ]{0,40}"#,
    ) {
        for schema in [&schema[..], near.replace(",}", "}").as_bytes()] {
            let mut body = b"{\"tools\":[{\"name\":\"t\",\"input_schema\":".to_vec();
            body.extend_from_slice(schema);
            body.extend_from_slice(b"}]}");
            let Ok(view) = view(&body) else { continue };
            let declared = Declared::read(&body, &tools::declared(&body, &view));
            for input in [&input[..], text.as_bytes(), b"{\"a\":1}"] {
                let _ = declared.check("t", input, true);
                let _ = declared.check("u", input, false);
            }
        }
    }
}
