//! Who is compared with whom: side calls, sub-agents, compaction, restarts, conversations that the
//! provider holds, bodies that cannot be read.

use std::io::Write as _;
use std::time::Duration;

use flate2::write::GzEncoder;
use prefixgate::prompt_cache::verdict::{Reason, Status, What};
use prefixgate::sim::Options;
use prefixgate::trace::{Inspection, Outcome, TurnRecord};
use serde_json::{Value, json};

use super::{Talk, told, user, verdict};
use crate::support::Wire;
use crate::support::world::{MINUTE, World};

/// An agent with its own system prompt.
fn agent(name: &str) -> Talk {
    let mut talk = Talk::new(name);
    talk.tools.truncate(2);
    talk
}

fn extended(turn: &TurnRecord) {
    assert_eq!(told(turn), (Status::Extended, None), "{turn:#?}");
    assert_eq!(verdict(turn).lost_tokens, Some(0));
}

#[tokio::test]
async fn a16_side_calls_have_their_own_lineage() {
    let world = World::watching().await;
    let mut main = Talk::new("main");
    world.turn("r", &main.body()).await;
    for turn in 0..3 {
        main.grow(&format!("turn {turn}"));
        extended(&world.turn("r", &main.body()).await);
        let title = json!({
            "model": main.model, "max_tokens": 64,
            "system": [{"type": "text", "text": format!("Summarise {turn}. {}", super::text(2000, "sum")),
                        "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": format!("{:?}", main.messages)}],
        });
        let side = world.turn("r", &title).await;
        assert_eq!(told(&side), (Status::Cold, None), "{side:#?}");
        assert_ne!(side.thread_id, "main");
        assert!(
            verdict(&side).detail.contains("shares no prefix"),
            "{side:#?}"
        );
        assert!(side.cost_pico.unwrap() > 0);
    }
    main.grow("last");
    let last = world.turn("r", &main.body()).await;
    extended(&last);
    assert_eq!(last.thread_id, "main");
}

#[tokio::test]
async fn e11_a_sub_agent_with_and_without_its_name() {
    for named in [true, false] {
        let world = World::watching().await;
        let session = "x-claude-code-session-id: s1";
        let child_headers: Vec<&str> = match named {
            true => vec![
                session,
                "x-claude-code-agent-id: a7",
                "x-claude-code-parent-agent-id: a0",
            ],
            false => vec![session],
        };
        let mut parent = Talk::new("parent");
        for turn in 0..20 {
            parent.grow(&format!("turn {turn}"));
        }
        assert_eq!(parent.messages.len(), 41);
        world.turn_with("r", &[session], &parent.body()).await;
        let mut child = agent("child");
        let first = world.turn_with("r", &child_headers, &child.body()).await;
        assert_eq!(told(&first), (Status::Cold, None), "{first:#?}");
        parent.grow("goes on");
        let next = world.turn_with("r", &[session], &parent.body()).await;
        extended(&next);
        child.grow("found it");
        let second = world.turn_with("r", &child_headers, &child.body()).await;
        extended(&second);
        assert_eq!((next.turn, second.turn), (2, 2));
        assert_ne!(next.thread_id, second.thread_id);
        assert_eq!(first.thread_id, second.thread_id);
        if named {
            assert_eq!(second.agent.as_deref(), Some("a7"));
            assert_eq!(second.parent_agent.as_deref(), Some("a0"));
        }
        let seen = world.sim.requests();
        assert_eq!(
            seen[1].header("x-claude-code-agent-id"),
            named.then_some("a7")
        );
        assert_eq!(seen[1].header("x-claude-code-session-id"), Some("s1"));
    }
}

/// A tree of agents, all at once: each is compared with itself alone.
#[tokio::test]
async fn d10_a_tree_of_agents() {
    let world = World::watching().await;
    let mut agents: Vec<(String, Option<String>, Talk)> = vec![("a0".into(), None, agent("root"))];
    for child in 0..3 {
        agents.push((
            format!("a{child}x"),
            Some("a0".into()),
            agent(&format!("child {child}")),
        ));
        for grandchild in 0..2 {
            let name = format!("a{child}x{grandchild}");
            agents.push((name.clone(), Some(format!("a{child}x")), agent(&name)));
        }
    }
    for round in 1..=3_u32 {
        for (name, parent, talk) in &mut agents {
            let id = format!("x-claude-code-agent-id: {name}");
            let of = parent
                .as_ref()
                .map(|p| format!("x-claude-code-parent-agent-id: {p}"));
            let mut headers = vec!["x-claude-code-session-id: s1", &id];
            headers.extend(of.as_deref());
            let turn = world.turn_with("r", &headers, &talk.body()).await;
            assert_eq!((turn.turn, turn.agent.as_ref()), (round, Some(&*name)));
            assert_eq!(&turn.thread_id, name);
            assert_eq!(&turn.parent_thread, parent);
            match round {
                1 => assert_eq!(told(&turn), (Status::Cold, None), "{turn:#?}"),
                // One child's clock: its own break, and nobody else's.
                3 if name == "a1x" => {
                    assert_eq!(told(&turn).1, Some(Reason::System), "{turn:#?}");
                }
                _ => extended(&turn),
            }
            talk.grow(&format!("round {round}"));
            if round == 2 && name == "a1x" {
                talk.system[0]["text"] = json!(super::text(3000, "changed"));
            }
        }
    }
    assert_eq!(world.compared(), 2 * agents.len());
}

#[tokio::test]
async fn two_interleaved_conversations_of_one_session() {
    let world = World::watching().await;
    let (mut one, mut two) = (Talk::new("one"), Talk::new("two"));
    two.tools.truncate(1);
    world.turn("r", &one.body()).await;
    world.turn("r", &two.body()).await;
    for turn in 0..4 {
        one.grow(&format!("turn {turn}"));
        two.grow(&format!("turn {turn}"));
        extended(&world.turn("r", &one.body()).await);
        extended(&world.turn("r", &two.body()).await);
    }
}

#[tokio::test]
async fn compaction_is_named() {
    let world = World::watching().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    for turn in 0..4 {
        talk.grow(&format!("turn {turn}"));
        world.turn("r", &talk.body()).await;
    }
    let mut asking = Talk::new("s");
    asking.messages = talk.messages.clone();
    asking.grow("Please create a detailed summary");
    let class = ["x-claude-code-request-class: compaction"];
    let summed = world.turn_with("r", &class, &asking.body()).await;
    extended(&summed);
    talk.messages = vec![user(&format!(
        "This session goes on: {}",
        super::text(500, "sum")
    ))];
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(record.thread_id, "main", "{record:#?}");
    let said = verdict(&record);
    // The system prompt is still read; what is behind it is gone.
    assert_eq!(
        told(&record),
        (Status::Partial, Some(Reason::Messages)),
        "{record:#?}"
    );
    assert_eq!(said.what, Some(What::Compaction));
    assert_eq!(
        said.first_changed.as_deref(),
        Some("messages[0].content[0]")
    );
    talk.grow("on");
    extended(&world.turn("r", &talk.body()).await);
}

#[tokio::test]
async fn a_resumed_conversation_is_compared_with_what_it_was() {
    let mut world = World::watching().await;
    let mut talk = Talk::rich("s");
    world.turn("r", &talk.body()).await;
    talk.grow("next");
    let before = world.turn("r", &talk.body()).await;
    world.restart().await;
    talk.grow("resumed");
    let record = world.turn("r", &talk.body()).await;
    extended(&record);
    assert_eq!(record.turn, 3);
    let there = before.usage.read.unwrap() + before.usage.written().unwrap();
    assert_eq!(record.cache.expected_read, Some(there));
    // A block that moved is told without its text.
    world.restart().await;
    let reminder = talk.content(0).remove(0);
    talk.grow("resumed again");
    let last = talk.messages.len() - 1;
    talk.content(last).insert(0, reminder);
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(told(&record).1, Some(Reason::Messages), "{record:#?}");
    assert_eq!(verdict(&record).what, Some(What::Moved));
    assert_eq!(
        verdict(&record).first_changed.as_deref(),
        Some("messages[0].content[0]")
    );
    // And time goes on while nobody runs.
    world.restart().await;
    world.clock.advance(6 * MINUTE);
    talk.grow("the next day");
    let record = world.turn("r", &talk.body()).await;
    assert_eq!(
        told(&record),
        (Status::Miss, Some(Reason::Expired)),
        "{record:#?}"
    );
}

/// The provider holds the conversation, and a request shows only what is new: of what is not seen
/// nothing may be said.
#[tokio::test]
async fn held_conversations_get_no_false_verdict() {
    let world = World::untouched().await;
    let beta = ["anthropic-beta: message-threads-2026-08-12"];
    let mut body = Talk::new("s").body();
    body["thread"] = json!({"type": "create"});
    let mut faults = Vec::new();
    for (turn, gap) in [0, 0, 3, 4, 0].into_iter().enumerate() {
        world.clock.advance(gap * MINUTE);
        if turn == 4 {
            world.sim.evict_cache();
        }
        let reply = world.ask_with("r", &beta, &body).await.json();
        let record = world.recorded("r", turn + 1).await.remove(turn);
        let fine = match &record.cache.verdict {
            None => record.cache.unjudged == Some("history_held"),
            Some(verdict) => verdict.reason.is_none(),
        };
        if !fine || (turn == 0 && told(&record) != (Status::Cold, None)) {
            faults.push(format!("{turn}: {:#?}", record.cache));
        }
        body["messages"] = json!([{"role": "user", "content": [
            {"type": "text", "text": format!("turn {turn} {}", super::text(300, "more"))}]}]);
        body["thread"] = json!({"type": "continue", "previous_message_id": reply["id"]});
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A body that cannot be read has no verdict, and the record says why; the thread's next request is
/// compared with the last one that could be read.
#[tokio::test]
async fn what_cannot_be_read_is_not_judged() {
    let world = World::untouched().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    for (body, headers, why) in [
        ("{\"model\": \"claude", vec![], "json_cut_short"),
        (
            "abc",
            vec!["content-encoding: compress"],
            "encoding_unknown",
        ),
    ] {
        let before = world.turns("r").len();
        let reply = world.send("r", &headers, body).await;
        assert_eq!(reply.status, 400);
        let record = world.recorded("r", before + 1).await.remove(before);
        assert_eq!(record.inspection, Inspection::NotInspected(why));
        assert_eq!(record.cache.verdict, None);
        assert_eq!(record.cache.unjudged, Some(why), "{record:#?}");
    }
    talk.grow("next");
    extended(&world.turn("r", &talk.body()).await);
}

/// A refusal of the upstream is not judged, and breaks nothing.
#[tokio::test]
async fn what_was_not_answered_is_not_judged() {
    let world = World::untouched().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    talk.grow("next");
    let mut wrong: Value = talk.body();
    wrong["max_tokens"] = json!("many");
    let reply = world.send("r", &[], &wrong.to_string()).await;
    assert_eq!(reply.status, 400);
    let record = world.recorded("r", 2).await.remove(1);
    assert_eq!(
        (record.cache.verdict, record.cache.unjudged),
        (None, Some("not_answered"))
    );
    extended(&world.turn("r", &talk.body()).await);
}

/// Each credential has its own cache: another key is no eviction.
#[tokio::test]
async fn another_credential_has_another_cache() {
    let world = World::untouched().await;
    let mut talk = Talk::new("s");
    for turn in 0..2 {
        let record = world
            .turn_with("r", &["x-api-key: sk-one"], &talk.body())
            .await;
        let status = [Status::Cold, Status::Extended][turn];
        assert_eq!(told(&record), (status, None), "{record:#?}");
        talk.grow(&format!("turn {turn}"));
    }
    let other = world
        .turn_with("r", &["x-api-key: sk-two"], &talk.body())
        .await;
    assert_eq!(told(&other), (Status::Cold, None), "{other:#?}");
    talk.grow("back");
    let back = world
        .turn_with("r", &["x-api-key: sk-one"], &talk.body())
        .await;
    extended(&back);
}

/// A try that failed has written nothing, and the next one is compared with what was answered.
#[tokio::test]
async fn tries_that_fail_break_nothing() {
    let world = World::untouched().await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    talk.grow("next");
    talk.messages.pop();
    talk.messages.push(user("next [[inject:529 x2]]"));
    for attempt in 0..2 {
        let reply = world.send("r", &[], &talk.body().to_string()).await;
        assert_eq!(reply.status, 529);
        let record = world.recorded("r", attempt + 2).await.remove(attempt + 1);
        assert_eq!(record.cache.unjudged, Some("not_answered"));
    }
    let record = world.turn("r", &talk.body()).await;
    extended(&record);
    assert_eq!((record.turn, record.attempt), (2, 3));
}

/// A client that leaves in the middle of an answer has written its prefix all the same.
#[tokio::test]
async fn an_answer_that_nobody_waits_for_has_written() {
    let options = Options {
        event_delay: Duration::from_millis(150),
        ..Options::default()
    };
    let world = World::watching_with(options).await;
    let mut talk = Talk::new("s");
    talk.extra.push(("stream", json!(true)));
    let mut wire = Wire::connect(world.proxy()).await;
    let body = talk.body().to_string();
    wire.post("/v1/messages", &["x-prefixgate-run: r"], body.as_bytes())
        .await;
    let first = wire.head().await;
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    wire.until(b"message_start").await.unwrap();
    wire.until(b"\n\n").await.unwrap();
    drop(wire);
    let aborted = world.recorded("r", 1).await.remove(0);
    assert_eq!(aborted.outcome, Outcome::ClientAbort);
    assert_eq!(told(&aborted), (Status::Cold, None), "{aborted:#?}");
    talk.extra.clear();
    talk.grow("next");
    let headers = ["x-api-key: k"];
    let record = world.turn_with("r", &headers, &talk.body()).await;
    extended(&record);
    assert_eq!(record.cache.read_of, Some(aborted.id));
}

/// A compressed body is looked at as it was before.
#[tokio::test]
async fn compressed_bodies_are_judged() {
    let world = World::untouched().await;
    let mut talk = Talk::rich("s");
    for turn in 0..3 {
        if turn == 2 {
            talk.block(2, 0)["content"] = json!("[pruned]");
        }
        let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed
            .write_all(talk.body().to_string().as_bytes())
            .unwrap();
        let packed = packed.finish().unwrap();
        let headers = ["content-encoding: gzip", "x-prefixgate-run: r"];
        let reply = Wire::exchange(world.proxy(), "/v1/messages", &headers, &packed).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(world.sim.requests().last().unwrap().body, packed);
        let record = world.recorded("r", turn + 1).await.remove(turn);
        match turn {
            0 => assert_eq!(told(&record), (Status::Cold, None)),
            1 => extended(&record),
            _ => assert_eq!(
                verdict(&record).what,
                Some(What::ResultPruned),
                "{record:#?}"
            ),
        }
        talk.grow(&format!("turn {turn}"));
    }
}

/// Answers that come at once in one thread: each is compared with what was answered when it began,
/// and the next one with the newest.
#[tokio::test]
async fn parallel_requests_of_one_thread() {
    let options = Options {
        head_delay: Duration::from_millis(100),
        ..Options::default()
    };
    let world = World::watching_with(options).await;
    let mut talk = Talk::new("s");
    world.turn("r", &talk.body()).await;
    talk.grow("both");
    let (mut one, mut two) = (Talk::new("s"), Talk::new("s"));
    one.messages.clone_from(&talk.messages);
    two.messages.clone_from(&talk.messages);
    one.grow("one way");
    two.grow("another way");
    let (a, b) = (one.body(), two.body());
    tokio::join!(world.ask("r", &a), world.ask("r", &b));
    let turns = world.recorded("r", 3).await;
    for turn in &turns[1..] {
        extended(turn);
        assert_ne!(turn.cache.native_agrees, Some(false), "{turn:#?}");
    }
    for _ in 0..2 {
        for talk in [&mut one, &mut two] {
            talk.grow("goes on");
            extended(&world.turn("r", &talk.body()).await);
        }
    }
}
