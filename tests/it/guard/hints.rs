//! Texts in the history: the same ones at the same places on every later turn, whoever serves it.
//! The simulated provider is strict: it refuses a conversation whose thinking was written behind
//! other words than those that stand there now.

use prefixgate::guard::loops::{Action, Policy};
use prefixgate::prompt_cache::verdict::Status;
use prefixgate::sim::Options;
use serde_json::{Value, json};

use crate::support::Wire;
use crate::support::client::Reply;
use crate::support::world::World;

const MODEL: &str = "claude-opus-5-5";
const MARK: &str = r#",{"type":"text","text":"[prefixgate]"#;

/// An agent whose tool always fails in the same way.
struct Stuck {
    run: &'static str,
    messages: Vec<Value>,
}

impl Stuck {
    fn new(run: &'static str) -> Self {
        let plan = vec!["same_fail"; 30].join(",");
        // Long enough for the provider's cache.
        let task = format!("{run}: do it [[plan:{plan},end]] {}", "word ".repeat(1_200));
        Self {
            run,
            messages: vec![json!({"role": "user", "content": [{"type": "text", "text": task}]})],
        }
    }

    fn body(&self) -> Value {
        let bash = json!({"name": "Bash", "input_schema": {"type": "object",
            "properties": {"command": {"type": "string"}}, "required": ["command"]}});
        json!({
            "model": MODEL, "max_tokens": 4000, "tools": [bash],
            "thinking": {"type": "adaptive"},
            "messages": self.messages,
        })
    }

    /// One turn: what it sees, and what it makes of it.
    async fn turn(&mut self, world: &World) -> Reply {
        let reply = world.ask(self.run, &self.body()).await;
        self.take(&reply.json());
        reply
    }

    fn take(&mut self, answer: &Value) {
        let content = answer["content"].as_array().unwrap().clone();
        let results: Vec<Value> = content
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .map(|block| {
                json!({"type": "tool_result", "tool_use_id": block["id"], "is_error": true,
                       "content": "cat: /nonexistent-same: No such file or directory"})
            })
            .collect();
        assert!(!results.is_empty(), "it has stopped: {answer}");
        assert_eq!(content[0]["type"], "thinking");
        self.messages
            .push(json!({"role": "assistant", "content": content}));
        self.messages
            .push(json!({"role": "user", "content": results}));
    }
}

async fn world(action: Action) -> World {
    World::with(Options::default(), |config| {
        config.loops = Policy::of(action);
    })
    .await
}

/// The body that reached the provider last.
fn sent(world: &World) -> String {
    let requests = world.sim.requests();
    String::from_utf8(requests.last().unwrap().body.to_vec()).unwrap()
}

/// Messages that end in a text of ours.
fn places(world: &World) -> Vec<usize> {
    let body: Value = serde_json::from_str(&sent(world)).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let ours = |message: &Value| {
        let last = message["content"].as_array().and_then(|c| c.last());
        last.and_then(|block| block["text"].as_str())
            .is_some_and(|text| text.starts_with("[prefixgate]"))
    };
    (0..messages.len())
        .filter(|at| ours(&messages[*at]))
        .collect()
}

/// The body without texts and breakpoints of ours.
fn bare(body: &str) -> String {
    let mut out = String::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once(MARK) {
        out.push_str(before);
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &after[end.unwrap() + 1..];
        let marker = r#","cache_control":{"type":"ephemeral"}"#;
        rest = rest.strip_prefix(marker).unwrap_or(rest);
        rest = rest.strip_prefix('}').unwrap();
    }
    out.push_str(rest);
    out.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

#[tokio::test]
async fn a_hint_stays_where_it_was_over_turns_restarts_and_replicas() {
    let mut world = world(Action::Hint).await;
    let mut agent = Stuck::new("r");
    for results in 0..9 {
        let body = agent.body().to_string();
        agent.turn(&world).await;
        // The third result is in the seventh message.
        let expected: Vec<usize> = (3..=results).map(|n| 2 * n).collect();
        assert_eq!(places(&world), expected, "{results} results");
        // Nothing but that text and breakpoints has come to the client's bytes.
        assert_eq!(bare(&sent(&world)), body);
        match results {
            4 => world.restart().await,
            6 => world.replace_by_replica().await,
            _ => {}
        }
    }
    // Without the texts the provider would refuse what it has written itself.
    let mut wire = Wire::connect(world.sim.addr()).await;
    wire.post("/v1/messages", &[], agent.body().to_string().as_bytes())
        .await;
    let refused = wire.response().await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("thinking"), "{}", refused.text());
}

#[tokio::test]
async fn the_cache_holds_over_hints() {
    let mut world = world(Action::Hint).await;
    let mut agent = Stuck::new("r");
    for turn in 0..9 {
        agent.turn(&world).await;
        let records = world.recorded("r", turn + 1).await;
        let verdict = records[turn].cache.verdict.as_ref().unwrap();
        let expected = if turn == 0 {
            Status::Cold
        } else {
            Status::Extended
        };
        assert_eq!(verdict.status, expected, "turn {turn}: {verdict:#?}");
        assert_eq!(verdict.lost_tokens.unwrap_or(0), 0);
        let hints = u32::try_from(turn.saturating_sub(2)).unwrap();
        assert_eq!(records[turn].guard.hints, hints);
        if turn == 5 {
            world.restart().await;
        }
    }
}

#[tokio::test]
async fn another_setting_is_for_new_threads() {
    let mut world = world(Action::Hint).await;
    let mut old = Stuck::new("old");
    for _ in 0..5 {
        old.turn(&world).await;
    }
    assert_eq!(places(&world), [6, 8]);
    world
        .restart_with(|config| config.loops = Policy::of(Action::Warn))
        .await;
    let mut new = Stuck::new("new");
    for _ in 0..5 {
        old.turn(&world).await;
        new.turn(&world).await;
        assert!(places(&world).is_empty());
    }
    world
        .restart_with(|config| config.loops = Policy::of(Action::Hint))
        .await;
    let mut newest = Stuck::new("newest");
    for turn in 0..5 {
        old.turn(&world).await;
        let expected: Vec<usize> = (3..10 + turn + 1).map(|n| 2 * n).collect();
        assert_eq!(places(&world), expected);
        new.turn(&world).await;
        assert!(places(&world).is_empty(), "its thread was begun without");
        newest.turn(&world).await;
    }
    assert_eq!(places(&world), [6, 8]);
}

#[tokio::test]
async fn the_model_reads_which_tool_failed_how_often() {
    let world = world(Action::Hint).await;
    let mut agent = Stuck::new("r");
    for _ in 0..4 {
        agent.turn(&world).await;
    }
    let body: Value = serde_json::from_str(&sent(&world)).unwrap();
    let content = body["messages"][6]["content"].as_array().unwrap();
    // Results come first, as the API wants them.
    assert_eq!(content[0]["type"], "tool_result");
    let text = content[1]["text"].as_str().unwrap();
    assert!(
        text.contains("`Bash`") && text.contains("3 times"),
        "{text}"
    );
    assert!(text.len() < 600, "{text}");
    let last = world.recorded("r", 4).await.pop().unwrap();
    assert_eq!(last.guard.action.as_deref(), Some("hint"));
}
