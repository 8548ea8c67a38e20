//! What is sent: accepted by the strict simulated provider, growing from turn to turn, and true to
//! what came.

use std::sync::Arc;

use prefixgate::agent::machine::{Outcome, Setup};
use prefixgate::agent::model::{Ask, format_of};
use prefixgate::agent::talk::{Answer, Block, CallResult, Entry, Kind, ToolCall};
use prefixgate::provider::wire::Wire;
use prefixgate::sim::{Options, Sim};
use serde_json::Value;

use super::sample;
use super::support::{
    FORMATS, Upstream, accepted, agent, assemble, endpoint, setup, stopping, streamed,
};

const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

fn request(setup: &Setup, entries: &[Entry], aside: Option<&str>) -> String {
    let body = format_of(setup.wire).request(&Ask {
        setup,
        entries,
        aside,
        max_tokens: setup.max_tokens,
    });
    String::from_utf8(body).unwrap()
}

/// Whether `next` begins with all that `before` says, breakpoints left aside.
fn extends(next: &str, before: &str) -> bool {
    let (next, before) = (next.replace(MARKER, ""), before.replace(MARKER, ""));
    next.starts_with(before.strip_suffix("]}").unwrap())
}

#[tokio::test]
async fn every_request_is_accepted_and_extends_the_one_before() {
    let models = FORMATS.into_iter().chain([
        (Wire::Messages, "claude-fable-5-1"),
        (Wire::Messages, "test-sonnet"),
        (Wire::Chat, "gpt-5.4"),
        (Wire::Chat, "gpt-4.1"),
        (Wire::Chat, "test-gpt-old"),
        (Wire::Responses, "gpt-5.4"),
        (Wire::Responses, "gpt-4.1"),
    ]);
    for (wire, model) in models {
        let sim = Sim::start(Options::default()).unwrap();
        let task = "[[plan:shell_ok,par,shell_ok,unknown,badargs,shell_ok,end]]";
        let mut world = agent(wire, model, &sim.base_url(), task, |_, _| {});
        let ended = world.agent.go().await.unwrap();
        assert_eq!(ended, Outcome::EndTurn, "{wire:?} {model}");
        world.agent.say("and now [[plan:shell_ok,end]]").unwrap();
        world.agent.go().await.unwrap();
        let seen = sim.requests();
        assert_eq!(seen.len(), 9, "{wire:?} {model}");
        let bodies: Vec<&str> = seen
            .iter()
            .map(|seen| std::str::from_utf8(&seen.body).unwrap())
            .collect();
        for (at, pair) in bodies.windows(2).enumerate() {
            assert!(
                extends(pair[1], pair[0]),
                "{wire:?} {model} after {at}: {}",
                pair[1]
            );
        }
        // All but the newest turns come from the cache.
        for (at, seen) in seen.iter().enumerate().skip(1) {
            let (read, total) = match (seen.tokens, seen.openai) {
                (Some(tokens), _) => (tokens.read, tokens.read + tokens.uncached),
                (_, Some(tokens)) => (tokens.read, tokens.total),
                _ => panic!("no tokens"),
            };
            assert!(
                read * 10 >= total * 8,
                "{wire:?} {model} request {at}: {read} of {total}"
            );
        }
    }
}

#[test]
fn the_same_conversation_gives_the_same_bytes() {
    for (wire, model) in FORMATS {
        let setup = setup(wire, model);
        let entries = conversation(wire, model);
        let (one, other) = (
            request(&setup, &entries, None),
            request(&setup, &entries, None),
        );
        assert_eq!(one, other);
        // What is said once stands behind everything; in Messages it joins the user's turn.
        let aside = request(&setup, &entries, Some("sum up"));
        let one = match wire {
            Wire::Messages => one.strip_suffix("]}").unwrap(),
            Wire::Chat | Wire::Responses => &one,
        };
        assert!(extends(&aside, one), "{aside}");
        serde_json::from_str::<Value>(&aside).unwrap();
    }
}

fn said(text: &str) -> Entry {
    Entry::User {
        results: Vec::new(),
        texts: vec![text.to_owned()],
    }
}

/// A conversation with the sample answer of a format, its results, and an end.
fn conversation(wire: Wire, model: &str) -> Vec<Entry> {
    let (whole, _) = assemble(wire, [sample::stream(wire).as_bytes()]);
    let mut answer = whole.unwrap().answer;
    answer.model = model.to_owned();
    // What nobody knows is refused by a strict provider.
    answer.blocks.retain(|block| !block.raw.contains("new_"));
    let failed = CallResult::failed("t2", "not there");
    vec![
        said("go"),
        Entry::Assistant(answer),
        Entry::User {
            results: vec![CallResult::new("t1", "fine".to_owned(), false), failed],
            texts: Vec::new(),
        },
    ]
}

#[test]
fn requests_say_what_their_format_and_model_want() {
    let value = |wire, model: &str, effort: Option<&str>| -> Value {
        let mut setup = setup(wire, model);
        setup.effort = effort.map(str::to_owned);
        serde_json::from_str(&request(&setup, &conversation(wire, model), None)).unwrap()
    };
    let chat = value(Wire::Chat, "gpt-5.6-sol", Some("high"));
    assert_eq!(chat["max_completion_tokens"], 1000);
    assert_eq!(chat["reasoning_effort"], "high");
    assert_eq!(chat["stream_options"]["include_usage"], true);
    assert_eq!(chat["prompt_cache_key"], "run-1/main");
    assert_eq!(chat["messages"][0]["role"], "system");
    assert_eq!(
        chat["messages"][0]["content"][0]["prompt_cache_breakpoint"]["mode"],
        "explicit"
    );
    assert_eq!(chat["messages"][3]["content"], "fine");
    assert_eq!(chat["messages"][4]["content"], "Error: not there");
    let other = value(Wire::Chat, "vendor/some-model", None);
    assert_eq!(other["max_tokens"], 1000);
    for absent in [
        "max_completion_tokens",
        "reasoning_effort",
        "prompt_cache_key",
    ] {
        assert_eq!(other.get(absent), None, "{absent}");
    }
    assert!(other["messages"][0]["content"].is_string());
    for (model, newer) in [
        ("openai/gpt-5.6-sol", true),
        ("o3", true),
        ("gpt-4o", true),
        ("gpt-oss-120b", false),
        ("deepseek-chat", false),
        ("olmo-3", false),
    ] {
        let chat = value(Wire::Chat, model, None);
        assert_eq!(
            chat.get("max_completion_tokens").is_some(),
            newer,
            "{model}"
        );
        assert!(chat["messages"][0]["content"].is_string() || model == "gpt-5.6-sol");
    }
    let new = value(Wire::Responses, "gpt-5.6-sol", Some("low"));
    assert_eq!(
        (&new["store"], &new["reasoning"]["effort"]),
        (&false.into(), &"low".into())
    );
    assert_eq!(new["include"][0], "reasoning.encrypted_content");
    assert_eq!(new["input"][0]["role"], "developer");
    assert_eq!(new["tools"][0]["strict"], false);
    let old = value(Wire::Responses, "gpt-4.1", None);
    assert_eq!((old.get("include"), old.get("reasoning")), (None, None));
    assert!(old["instructions"].is_string() && old["input"][0]["role"] == "user");
    assert_eq!(old["input"][5]["output"], "fine");
    let messages = value(Wire::Messages, "claude-sonnet-5", Some("high"));
    assert_eq!(messages["output_config"]["effort"], "high");
}

#[tokio::test]
async fn empty_tools_and_systems_are_left_out() {
    for (wire, model) in FORMATS {
        let mut bare = setup(wire, model);
        bare.system = " ".to_owned();
        let body = request(&bare, &[said("go")], None);
        accepted(wire, body.as_bytes()).await.unwrap();
        assert_eq!(
            body.matches(MARKER).count(),
            if wire == Wire::Messages { 2 } else { 0 }
        );
        bare.tools = Vec::new();
        let body = request(&bare, &[said("go")], None);
        accepted(wire, body.as_bytes()).await.unwrap();
        assert!(
            !body.contains("\"tools\"") && !body.contains("\"system\""),
            "{body}"
        );
    }
}

#[tokio::test]
async fn f05_old_journals_with_empty_turns_are_told_so_that_they_are_accepted() {
    for (wire, model) in FORMATS {
        let setup = setup(wire, model);
        let empty = |raw: &str| {
            Entry::Assistant(Answer {
                wire,
                model: model.to_owned(),
                blocks: match raw {
                    "" => Vec::new(),
                    raw => vec![Block {
                        kind: Kind::Text(String::new()),
                        raw: raw.to_owned(),
                    }],
                },
            })
        };
        let raw = match wire {
            Wire::Messages => r#"{"type":"text","text":""}"#,
            Wire::Chat => r#"{"content":""}"#,
            Wire::Responses => r#"{"type":"message","role":"assistant","content":[]}"#,
        };
        let entries = [said("go"), empty(""), said(" "), empty(raw), said("on")];
        let body = request(&setup, &entries, None);
        accepted(wire, body.as_bytes()).await.unwrap();
        assert!(!body.contains(r#""text":"""#), "{body}");
    }
}

#[tokio::test]
async fn a_turn_of_many_blocks_keeps_the_breakpoint_before_it() {
    let block = |id: usize| Block {
        raw: format!(r#"{{"type":"tool_use","id":"t{id}","name":"search","input":{{}}}}"#),
        kind: Kind::Call(ToolCall {
            id: format!("t{id}"),
            name: "search".to_owned(),
            input: "{}".to_owned(),
        }),
    };
    let entries = |calls: usize| {
        let answer = Answer {
            wire: Wire::Messages,
            model: "claude-sonnet-5".to_owned(),
            blocks: (0..calls).map(block).collect(),
        };
        let result = |id| CallResult::new(&format!("t{id}"), "x".to_owned(), false);
        let results = Entry::User {
            results: (0..calls).map(result).collect(),
            texts: Vec::new(),
        };
        [said("go"), Entry::Assistant(answer), results]
    };
    let setup = setup(Wire::Messages, "claude-sonnet-5");
    let few = request(&setup, &entries(3), None);
    let many = request(&setup, &entries(12), None);
    assert_eq!(
        (few.matches(MARKER).count(), many.matches(MARKER).count()),
        (2, 3)
    );
    assert!(many.contains(&format!(r#""text":"go"{MARKER}"#)));
    accepted(Wire::Messages, many.as_bytes()).await.unwrap();
}

const BLOCKS: [&str; 7] = [
    r#"{"signature":"c2ln/1==","type":"thinking","thinking":"hm \u00e9"}"#,
    r#"{"type":"redacted_thinking","data":"xyz"}"#,
    r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}}"#,
    r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}"#,
    r#"{"type":"thinking","thinking":"so","signature":"c2ln2"}"#,
    r#"{"type":"text","text":"I search."}"#,
    r#"{"name":"search","type":"tool_use","id":"t1","input":{"q" : "x"}}"#,
];

#[tokio::test]
async fn f13_blocks_go_back_byte_for_byte_and_thinking_never_to_another_model() {
    let upstream = Upstream::start(|_, number| match number {
        0 => streamed(&stopping(&BLOCKS, "tool_use")),
        _ => streamed(&stopping(
            &[r#"{"type":"text","text":"Found."}"#],
            "end_turn",
        )),
    })
    .await;
    let model = "claude-opus-5";
    let mut world = agent(Wire::Messages, model, &upstream.url(), "go", |_, _| {});
    world.agent.go().await.unwrap();
    let body = String::from_utf8(upstream.last().body).unwrap();
    let expected = format!(r#"{{"role":"assistant","content":[{}]}}"#, BLOCKS.join(","));
    assert!(body.contains(&expected), "{body}");
    accepted(Wire::Messages, body.as_bytes()).await.unwrap();

    // Another model of the same provider: all reasoning is dropped, the rest stays as it came.
    let kept: Vec<&str> = BLOCKS
        .into_iter()
        .filter(|block| !block.contains("thinking"))
        .collect();
    let sonnet = Arc::new(endpoint(Wire::Messages, &upstream.url()));
    world.agent.switch(sonnet, "claude-sonnet-5").unwrap();
    assert!(world.told.all().contains(&"thinking dropped 3".to_owned()));
    world.agent.say("go on").unwrap();
    world.agent.go().await.unwrap();
    let body = String::from_utf8(upstream.last().body).unwrap();
    let expected = format!(r#"{{"role":"assistant","content":[{}]}}"#, kept.join(","));
    assert!(body.contains(&expected), "{body}");
    accepted(Wire::Messages, body.as_bytes()).await.unwrap();

    // Other providers: calls, results and texts.
    for wire in [Wire::Chat, Wire::Responses] {
        let sim = Sim::start(Options::default()).unwrap();
        let other = Arc::new(endpoint(wire, &sim.base_url()));
        world.agent.switch(other, "gpt-5.6-sol").unwrap();
        world.agent.say("go on").unwrap();
        assert_eq!(
            world.agent.go().await.unwrap(),
            Outcome::EndTurn,
            "{wire:?}"
        );
        let body = String::from_utf8(sim.requests()[0].body.to_vec()).unwrap();
        for kept in ["t1", "I search.", "found", "Found."] {
            assert!(body.contains(kept), "{kept}: {body}");
        }
        for dropped in ["hm", "xyz", "c2ln", "srvtoolu"] {
            assert!(!body.contains(dropped), "{dropped}: {body}");
        }
    }
    // And back to the one that wrote it: its reasoning is told again.
    let opus = Arc::new(endpoint(Wire::Messages, &upstream.url()));
    world.agent.switch(opus, model).unwrap();
    world.agent.say("go on").unwrap();
    world.agent.go().await.unwrap();
    let body = String::from_utf8(upstream.last().body).unwrap();
    assert!(body.contains(&BLOCKS.join(",")), "{body}");
    accepted(Wire::Messages, body.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn f13_every_format_tells_the_answers_of_every_other() {
    for (from, from_model) in FORMATS {
        let entries = conversation(from, from_model);
        for (to, model) in FORMATS {
            let format = format_of(to);
            for model in [
                model,
                if to == Wire::Messages {
                    "claude-opus-5"
                } else {
                    "gpt-5.4"
                },
            ] {
                let body = request(&setup(to, model), &entries, None);
                let same = from == to && from_model == model;
                if let Err(why) = accepted(to, body.as_bytes()).await {
                    // The sample's reasoning is none of the simulated provider's.
                    assert!(same, "{from:?} to {to:?}: {why}\n{body}");
                }
                let thinking = if from == Wire::Chat { 2 } else { 1 };
                let dropped = if same { 0 } else { thinking };
                assert_eq!(format.drops(&entries, model), dropped, "{from:?} to {to:?}");
                assert_eq!(body.contains("c2ln/"), same && from != Wire::Chat);
            }
        }
    }
}

#[tokio::test]
async fn ids_and_names_that_another_provider_would_refuse_are_told_otherwise() {
    let call = |id: &str, name: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        input: "{".to_owned(),
    };
    let answer = |calls: &[ToolCall]| {
        let block = |call: &ToolCall| Block {
            kind: Kind::Call(call.clone()),
            raw: String::new(),
        };
        Entry::Assistant(Answer {
            wire: Wire::Chat,
            model: "another".to_owned(),
            blocks: calls.iter().map(block).collect(),
        })
    };
    let results = |calls: &[ToolCall]| Entry::User {
        results: calls
            .iter()
            .map(|call| CallResult::new(&call.id, "x".to_owned(), false))
            .collect(),
        texts: Vec::new(),
    };
    let long = "x".repeat(90);
    let first = [
        call("call_0", "search"),
        call("functions.search:0", "a.b"),
        call(&long, &long),
    ];
    // Servers that count their calls anew in every answer.
    let second = [call("call_0", "search")];
    let mut entries = vec![said("go"), answer(&first), results(&first)];
    for (wire, model) in FORMATS {
        let setup = setup(wire, model);
        let before = request(&setup, &entries, None);
        let (answered, told) = (answer(&second), results(&second));
        entries.extend([answered, told]);
        let after = request(&setup, &entries, None);
        for body in [&before, &after] {
            accepted(wire, body.as_bytes()).await.unwrap();
        }
        assert!(extends(&after, &before));
        entries.truncate(3);
    }
}
