//! Everything that a client can change in what was cached: what is said of it, and where.

use prefixgate::prompt_cache::verdict::{Reason, Status, What, Whose};
use serde_json::{Value, json};

use super::{Talk, told, user, verdict};
use crate::support::world::World;

struct Case {
    name: &'static str,
    change: fn(&mut Talk),
    /// A change of the bytes that no JSON value shows.
    respell: Option<(&'static str, &'static str)>,
    reason: Reason,
    what: What,
    path: &'static str,
    /// A piece of the detail.
    detail: &'static str,
}

const fn case(
    name: &'static str,
    change: fn(&mut Talk),
    reason: Reason,
    what: What,
    path: &'static str,
    detail: &'static str,
) -> Case {
    Case {
        name,
        change,
        respell: None,
        reason,
        what,
        path,
        detail,
    }
}

fn replace(value: &mut Value, from: &str, to: &str) {
    let text = value.as_str().unwrap();
    assert!(text.contains(from), "{from}");
    *value = json!(text.replace(from, to));
}

const CASES: &[Case] = &[
    case(
        "clock in a message",
        |t| replace(&mut t.block(0, 1)["text"], "10:00:00", "10:00:20"),
        Reason::Messages,
        What::Clock,
        "messages[0].content[1].text",
        "time",
    ),
    case(
        "counter",
        |t| replace(&mut t.block(3, 0)["text"], "Request 17", "Request 18"),
        Reason::Messages,
        What::Counter,
        "messages[3].content[0].text",
        "number",
    ),
    case(
        "id",
        |t| {
            replace(
                &mut t.block(3, 0)["text"],
                "5f0c7b6e-3d61-4a0e-9d1c-0a4b7c1d2e3f",
                "c1b2a390-77aa-4e5b-8f00-b6a1d2c3e4f5",
            )
        },
        Reason::Messages,
        What::Id,
        "messages[3].content[0].text",
        "identifier",
    ),
    case(
        "text",
        |t| replace(&mut t.block(3, 0)["text"], "of session", "in session"),
        Reason::Messages,
        What::Text,
        "messages[3].content[0].text",
        "says something else",
    ),
    case(
        "text of the system prompt",
        |t| t.system[0]["text"] = json!(super::text(3000, "another")),
        Reason::System,
        What::Text,
        "system[0].text",
        "says something else",
    ),
    case(
        "a system block more",
        |t| {
            t.system
                .insert(0, json!({"type": "text", "text": "You are kind."}))
        },
        Reason::System,
        What::Inserted,
        "system[0]",
        "put in",
    ),
    case(
        "white space",
        |t| replace(&mut t.block(3, 0)["text"], "of session", "of  session"),
        Reason::Messages,
        What::Whitespace,
        "messages[3].content[0].text",
        "white space",
    ),
    Case {
        respell: Some(("\u{e9}", "\\u00e9")),
        ..case(
            "escapes",
            |_| {},
            Reason::Messages,
            What::Escapes,
            "messages[3].content[0].text",
            "spelling",
        )
    },
    Case {
        respell: Some((
            r#"{"from":1,"path":"src/a.rs"}"#,
            r#"{"path":"src/a.rs","from":1}"#,
        )),
        ..case(
            "key order",
            |_| {},
            Reason::Messages,
            What::KeyOrder,
            "messages[1].content[1].input",
            "another order",
        )
    },
    Case {
        respell: Some((r#""from":1,"#, r#""from":1.0,"#)),
        ..case(
            "spelling of a number",
            |_| {},
            Reason::Messages,
            What::Escapes,
            "messages[1].content[1].input",
            "spelling",
        )
    },
    case(
        "tools reordered",
        |t| t.tools.rotate_left(1),
        Reason::Tools,
        What::ToolsReordered,
        "tools[0]",
        "same set, order changed",
    ),
    case(
        "tool added",
        |t| {
            let tool = json!({"name": "grep", "input_schema": {"type": "object"}});
            t.tools.insert(1, tool);
        },
        Reason::Tools,
        What::ToolAdded,
        "tools[1]",
        "added: grep",
    ),
    case(
        "tool removed",
        |t| drop(t.tools.remove(1)),
        Reason::Tools,
        What::ToolRemoved,
        "tools[1]",
        "removed: edit",
    ),
    case(
        "tool changed",
        |t| replace(&mut t.tools[2]["description"], "bash", "BASH"),
        Reason::Tools,
        What::ToolChanged,
        "tools[2]",
        "changed: bash (description",
    ),
    case(
        "moved",
        |t| {
            let reminder = t.content(0).remove(0);
            let last = t.messages.len() - 1;
            t.content(last).insert(0, reminder);
        },
        Reason::Messages,
        What::Moved,
        "messages[0].content[0]",
        "found again at messages[",
    ),
    case(
        "removed",
        |t| drop(t.content(0).remove(2)),
        Reason::Messages,
        What::Removed,
        "messages[0].content[2]",
        "removed",
    ),
    case(
        "inserted",
        |t| {
            let block = json!({"type": "text", "text": "By the way, hurry up."});
            t.content(0).insert(1, block);
        },
        Reason::Messages,
        What::Inserted,
        "messages[0].content[1]",
        "put in",
    ),
    case(
        "replaced",
        |t| {
            *t.block(0, 2) = json!({"type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "another thing"}});
        },
        Reason::Messages,
        What::Replaced,
        "messages[0].content[2]",
        "text block replaced by document",
    ),
    case(
        "another image",
        |t| t.block(4, 0)["source"]["data"] = json!("d29ybGQ="),
        Reason::Messages,
        What::ImageReplaced,
        "messages[4].content[0].source",
        "another image",
    ),
    case(
        "the only image evicted",
        |t| *t.block(4, 0) = json!({"type": "text", "text": "[image removed]"}),
        Reason::Messages,
        What::ImageReplaced,
        "messages[4].content[0]",
        "image block replaced by text",
    ),
    case(
        "result pruned",
        |t| t.block(2, 0)["content"] = json!("[old result pruned]"),
        Reason::Messages,
        What::ResultPruned,
        "messages[2].content[0].content",
        "tool result cut",
    ),
    case(
        "reminder changed",
        |t| replace(&mut t.block(0, 0)["text"], "skills:", "abilities:"),
        Reason::Messages,
        What::Reminder,
        "messages[0].content[0].text",
        "reminder",
    ),
    case(
        "reminder gone",
        |t| drop(t.content(0).remove(0)),
        Reason::Messages,
        What::Reminder,
        "messages[0].content[0]",
        "injected reminder removed",
    ),
    case(
        "replaced by a summary",
        |t| {
            let newest = t.messages.split_off(t.messages.len() - 1);
            t.messages = vec![user(&format!("Summary: {}", super::text(300, "sum")))];
            t.messages.push(
                json!({"role": "assistant", "content": [{"type": "text", "text": "Understood."}]}),
            );
            t.messages.extend(newest);
        },
        Reason::Messages,
        What::Compaction,
        "messages[0].content[0]",
        "shorter",
    ),
];

/// Each once in whole answers and once in streams, beside the provider's own diagnosis.
#[tokio::test]
async fn each_change_is_named_and_placed() {
    let world = World::watching().await;
    let mut faults = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let run = format!("run-{number}");
        let mut talk = Talk::rich(&format!("seed {number}"));
        talk.extra.push(("stream", json!(number % 2 == 1)));
        let first = world.turn(&run, &talk.body()).await;
        assert_eq!(told(&first).0, Status::Cold, "{}: {first:#?}", case.name);
        talk.grow("more");
        let before = world.turn(&run, &talk.body()).await;
        assert_eq!(told(&before), (Status::Extended, None), "{}", case.name);
        talk.grow("and more");
        (case.change)(&mut talk);
        let mut body = talk.body().to_string();
        if let Some((from, to)) = case.respell {
            assert!(body.contains(from), "{}: {body}", case.name);
            body = body.replacen(from, to, 1);
        }
        let broken = world.turn_of(&run, &[], &body).await;
        let verdict = verdict(&broken);
        let there = before.usage.read.unwrap() + before.usage.written().unwrap();
        let prompt = broken.usage.prompt().unwrap();
        let lost = there.min(prompt) - broken.usage.read.unwrap();
        let said = (
            verdict.reason,
            verdict.what,
            verdict.first_changed.as_deref(),
            verdict.whose,
            verdict.lost_tokens,
        );
        let expected = (
            Some(case.reason),
            Some(case.what),
            Some(case.path),
            Some(Whose::Client),
            Some(lost),
        );
        let head = case.reason == Reason::Messages;
        let status = if head { Status::Partial } else { Status::Miss };
        if said != expected
            || verdict.status != status
            || !verdict.detail.contains(case.detail)
            || verdict.lost_pico.is_none_or(|pico| pico == 0)
            || broken.cache.native_agrees != Some(true)
        {
            faults.push(format!(
                "{}: {verdict:#?} {:?} not {expected:?}",
                case.name, broken.cache.native_agrees
            ));
        }
        // The next turn finds everything, so the break is told once.
        let mut next: Value = serde_json::from_str(&body).unwrap();
        if case.respell.is_none() {
            talk.grow("after");
            next = talk.body();
            let after = world.turn(&run, &next).await;
            if told(&after) != (Status::Extended, None) {
                faults.push(format!(
                    "{}: afterwards {:#?}",
                    case.name, after.cache.verdict
                ));
            }
        }
        drop(next);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Each case: the second turn, the change, and the one after where it is asked.
    assert!(
        world.compared() >= 2 * CASES.len() + 20,
        "{}",
        world.compared()
    );
}

/// Taken back to an earlier point and asked another thing: lost is only what stands on the new path.
#[tokio::test]
async fn a_conversation_that_was_taken_back_loses_nothing_that_it_does_not_send() {
    let world = World::watching().await;
    let mut talk = Talk::rich("s1");
    world.turn("r", &talk.body()).await;
    let kept = talk.messages.clone();
    talk.grow("one way");
    world.turn("r", &talk.body()).await;
    talk.grow("further");
    world.turn("r", &talk.body()).await;
    talk.messages = kept;
    talk.grow("another way");
    let record = world.turn("r", &talk.body()).await;
    // The entry that the first turn left is on the path, and it is read.
    assert_eq!(told(&record), (Status::Extended, None), "{record:#?}");
    assert_eq!(verdict(&record).lost_tokens, Some(0));
    assert_eq!(record.thread_id, "main");
}
