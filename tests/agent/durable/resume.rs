//! A run that was killed goes on as if it had not been.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use prefixgate::agent::driver::{Agent, INTERRUPTED};
use prefixgate::agent::journal::{Directory, Fsync, Journals};
use prefixgate::agent::machine::{Bill, Event, Happened, Outcome, Stop};
use prefixgate::agent::talk::{Answer, Block, CallResult, Entry, Kind, ToolCall};
use prefixgate::provider::wire::Wire;
use tempfile::TempDir;

use super::world::{IDEMPOTENT, MODEL, World, happened, main_of, resumed};

const FIRST: &str = "Go. [[plan:tool=look+tool=charge+tool=send,tool=count,tool=charge,\
    tool=look+tool=send+tool=count,tool=look,end]]";

/// Long enough that what came before has to be summed up.
fn second() -> String {
    let words = "Now that all of this is done, please go on with what is left to do. ";
    format!(
        "{}[[plan:tool=send+tool=look,tool=charge,end]]",
        words.repeat(10)
    )
}

/// Lets the user say all that is left to say.
async fn to_the_end(agent: &mut Agent, said: usize) {
    assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
    if said < 2 {
        agent.say(&second()).unwrap();
        assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
    }
}

/// Ids of calls are the provider's: told apart here by their order.
fn anonymous(json: &str) -> String {
    let ids = regex::Regex::new("toolu_[0-9A-Za-z]+").unwrap();
    let mut known: Vec<String> = Vec::new();
    let number = |found: &regex::Captures<'_>| {
        let at = known
            .iter()
            .position(|id| *id == found[0])
            .unwrap_or_else(|| {
                known.push(found[0].to_owned());
                known.len() - 1
            });
        format!("call-{at}")
    };
    ids.replace_all(json, number).into_owned()
}

fn shown(entries: &[Entry]) -> String {
    anonymous(&serde_json::to_string_pretty(entries).unwrap())
}

/// What is known of the calls of these events: those that ended, and those that only began.
fn calls(events: &[Happened]) -> (BTreeSet<String>, BTreeMap<String, ToolCall>) {
    let mut ended = BTreeSet::new();
    let mut begun = BTreeMap::new();
    for happened in events {
        match &happened.event {
            Event::CallBegan { call, key } => {
                begun.insert(key.clone(), call.clone());
            }
            Event::CallEnded { result } => {
                let key = begun.iter().find(|(_, call)| call.id == result.call);
                let key = key.unwrap().0.clone();
                begun.remove(&key);
                ended.insert(key);
            }
            _ => {}
        }
    }
    (ended, begun)
}

fn data_dir_with(journal: &[u8], checkpoint: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let main = main_of(dir.path(), "r");
    fs::create_dir_all(main.parent().unwrap()).unwrap();
    fs::write(&main, journal).unwrap();
    fs::copy(checkpoint, main.with_extension("checkpoint")).unwrap();
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_every_event_it_ends_with_the_same_history() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let journals = Directory::new(dir.path(), Fsync::Never);
    let mut setup = world.setup("r");
    setup.compact_at = 2920;
    let journal = journals.create("r", "main").unwrap();
    let mut agent = Agent::begin(world.parts(journal), setup, FIRST).unwrap();
    to_the_end(&mut agent, 1).await;
    let whole = agent.run().entries().to_vec();
    drop(agent);
    let events = journals.events("r", "main").unwrap();
    let compactions = events
        .iter()
        .filter(|h| matches!(h.event, Event::Compacted { .. }));
    assert_eq!(compactions.count(), 1);
    world.made();
    world.asked();

    let main = main_of(dir.path(), "r");
    let bytes = fs::read(&main).unwrap();
    let checkpoint = main.with_extension("checkpoint");
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &bytes)
        .map(|at| at + 1)
        .collect();
    assert_eq!(
        ends.len(),
        events.len() + 1,
        "a line for each, and the first"
    );
    let mut interrupted_runs = 0;
    for cut in 2..=events.len() {
        let killed = &bytes[..ends[cut]];
        let events = &events[..cut];
        let (ended, begun) = calls(events);
        let said = events
            .iter()
            .filter(|h| matches!(h.event, Event::Said { .. }))
            .count();
        let mut firsts = Vec::new();
        for resumes in [1, 2] {
            let dir = data_dir_with(killed, &checkpoint);
            let journals = Directory::new(dir.path(), Fsync::Never);
            let mut agent = None;
            for _ in 0..resumes {
                drop(agent.take());
                let journal = journals.open("r", "main").unwrap();
                agent = Agent::resume(world.parts(journal), resumed()).unwrap();
            }
            let mut agent = agent.unwrap();
            to_the_end(&mut agent, said).await;

            let made = world.made();
            let keys: BTreeSet<&String> = made.iter().map(|(_, key)| key).collect();
            assert_eq!(keys.len(), made.len(), "cut {cut}: a call was made twice");
            for key in &ended {
                assert!(!keys.contains(key), "cut {cut}: {key} had ended");
            }
            let mut expected = whole.clone();
            for (key, call) in &begun {
                let again = IDEMPOTENT.contains(&call.name.as_str());
                assert_eq!(keys.contains(key), again, "cut {cut}: {} {key}", call.name);
                if !again {
                    interrupted_runs += 1;
                    interrupt(&mut expected, &call.id);
                }
            }
            assert_eq!(shown(agent.run().entries()), shown(&expected), "cut {cut}");
            firsts.push(world.asked().first().cloned());

            let state = serde_json::to_value(agent.run()).unwrap();
            drop(agent);
            let mut journal = journals.open("r", "main").unwrap();
            let loaded = journal.load().unwrap().unwrap();
            assert_eq!(serde_json::to_value(loaded).unwrap(), state, "cut {cut}");
        }
        assert_eq!(firsts[0], firsts[1], "cut {cut}: resumed twice");
    }
    assert!(interrupted_runs > 5, "{interrupted_runs}");
}

fn interrupt(entries: &mut [Entry], id: &str) {
    for entry in entries {
        if let Entry::User { results, .. } = entry {
            for result in results.iter_mut().filter(|result| result.call == id) {
                *result = CallResult::failed(id, INTERRUPTED);
            }
        }
    }
}

/// A journal cut inside a line is the journal up to the line before.
#[tokio::test(flavor = "multi_thread")]
async fn f01_3_a_cut_line_is_taken_off_wherever_it_was_cut() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let journals = Directory::new(dir.path(), Fsync::Never);
    let journal = journals.create("r", "main").unwrap();
    let mut agent = Agent::begin(world.parts(journal), world.setup("r"), FIRST).unwrap();
    agent.go().await.unwrap();
    drop(agent);
    let main = main_of(dir.path(), "r");
    let bytes = fs::read(&main).unwrap();
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &bytes)
        .map(|at| at + 1)
        .collect();
    for pair in ends.windows(2) {
        let &[before, end] = pair else { unreachable!() };
        for cut in [before + 1, (before + end) / 2, end - 1] {
            fs::write(&main, &bytes[..cut]).unwrap();
            let seen = journals.events("r", "main").unwrap();
            let mut journal = journals.open("r", "main").unwrap();
            assert_eq!(journal.events().unwrap(), seen);
            assert_eq!(fs::read(&main).unwrap(), &bytes[..before], "cut at {cut}");
            journal.append(&happened(resumed())).unwrap();
            assert_eq!(journal.events().unwrap().len(), seen.len() + 1);
        }
    }
}

fn call(id: &str, name: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        input: "{}".to_owned(),
    }
}

fn block(call: &ToolCall) -> Block {
    let ToolCall { id, name, .. } = call;
    Block {
        kind: Kind::Call(call.clone()),
        raw: format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#),
    }
}

fn text(text: &str) -> Block {
    Block {
        kind: Kind::Text(text.to_owned()),
        raw: serde_json::json!({"type": "text", "text": text}).to_string(),
    }
}

fn answered(blocks: Vec<Block>, stop: Stop) -> Event {
    Event::Answered {
        answer: Answer {
            wire: Wire::Messages,
            model: MODEL.to_owned(),
            blocks,
        },
        stop,
        open_call: false,
        bill: Bill::default(),
    }
}

fn write(data_dir: &Path, events: Vec<Event>) {
    let journals = Directory::new(data_dir, Fsync::Never);
    let mut journal = journals.create("r", "main").unwrap();
    for event in events {
        journal.append(&happened(event)).unwrap();
    }
}

fn said(text: &str) -> Event {
    Event::Said {
        text: text.to_owned(),
    }
}

fn began(call: &ToolCall) -> Event {
    Event::CallBegan {
        call: call.clone(),
        key: format!("r/main/1/{}", call.id),
    }
}

fn messages(body: &str) -> Vec<serde_json::Value> {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn f01_calls_without_a_result_are_answered_and_not_made_again() {
    let world = World::start();
    let calls = [
        call("t1", "charge"),
        call("t2", "send"),
        call("t3", "charge"),
    ];
    let mut bodies = Vec::new();
    for torn in ["", "", r#"{"at_ms":1,"event":"call_en"#] {
        let dir = tempfile::tempdir().unwrap();
        let mut events = vec![
            Event::Began(Box::new(world.setup("r"))),
            said("pay three bills"),
            answered(calls.iter().map(block).collect(), Stop::ToolUse),
        ];
        events.extend(calls.iter().map(began));
        events.push(Event::CallEnded {
            result: CallResult::new("t1", "paid".to_owned(), false),
        });
        write(dir.path(), events);
        let main = main_of(dir.path(), "r");
        let mut bytes = fs::read(&main).unwrap();
        bytes.extend_from_slice(torn.as_bytes());
        fs::write(&main, bytes).unwrap();

        let journals = Directory::new(dir.path(), Fsync::Never);
        let journal = journals.open("r", "main").unwrap();
        let mut agent = Agent::resume(world.parts(journal), resumed())
            .unwrap()
            .unwrap();
        agent.say("go on").unwrap();
        assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
        assert!(world.made().is_empty(), "nothing is made again by itself");
        let asked = world.asked();
        assert_eq!(asked.len(), 1);
        bodies.extend(asked);
    }
    assert_eq!(bodies[0], bodies[1], "resuming twice gives the same bytes");
    assert_eq!(bodies[0], bodies[2], "a cut last line is nothing");

    let messages = messages(&bodies[0]);
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[2]["role"], "user");
    let content = messages[2]["content"].as_array().unwrap();
    let kinds: Vec<_> = content
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "tool_result", "text"]);
    assert_eq!(content[0]["tool_use_id"], "t1");
    assert!(!content[0]["is_error"].as_bool().unwrap_or(false));
    assert!(content[0].to_string().contains("paid"));
    for (result, id) in content[1..3].iter().zip(["t2", "t3"]) {
        assert_eq!(result["tool_use_id"], id);
        assert_eq!(result["is_error"], true);
        let told = result.to_string();
        assert!(
            told.contains("outcome unknown") && !told.contains("user"),
            "{told}"
        );
    }
    assert_eq!(content[3]["text"], "go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn f05_2_a_log_with_empty_messages_goes_on() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let call = call("t1", "charge");
    write(
        dir.path(),
        vec![
            Event::Began(Box::new(world.setup("r"))),
            said("one"),
            answered(Vec::new(), Stop::EndTurn),
            said("two"),
            answered(vec![text("")], Stop::EndTurn),
            said("three"),
            answered(vec![text(""), block(&call)], Stop::ToolUse),
            began(&call),
            Event::CallEnded {
                // As an older program may have written it.
                result: CallResult {
                    call: "t1".to_owned(),
                    text: String::new().into(),
                    is_error: false,
                },
            },
            answered(vec![text(" \n")], Stop::EndTurn),
            said(""),
        ],
    );
    let journals = Directory::new(dir.path(), Fsync::Never);
    let journal = journals.open("r", "main").unwrap();
    let mut agent = Agent::resume(world.parts(journal), resumed())
        .unwrap()
        .unwrap();
    agent.say("four").unwrap();
    assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);
    let asked = world.asked();
    let messages = messages(&asked[0]);
    let roles: Vec<_> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    let blocks = messages
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap());
    let texts: Vec<_> = blocks.filter_map(|block| block["text"].as_str()).collect();
    assert_eq!(texts, ["one", "two", "three", "four"]);
    assert!(messages[2].to_string().contains("(no output)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_an_answer_that_never_became_whole_are_told() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    let calls = [call("t1", "charge"), call("t2", "send")];
    let mut events = vec![Event::Began(Box::new(world.setup("r"))), said("pay")];
    events.extend(calls.iter().map(began));
    events.push(Event::CallEnded {
        result: CallResult::new("t1", "paid 7".to_owned(), false),
    });
    write(dir.path(), events);
    let journals = Directory::new(dir.path(), Fsync::Never);
    for _ in 0..2 {
        let journal = journals.open("r", "main").unwrap();
        let mut agent = Agent::resume(world.parts(journal), resumed())
            .unwrap()
            .unwrap();
        agent.go().await.unwrap();
        assert!(world.made().is_empty());
    }
    let asked = world.asked();
    assert_eq!(asked.len(), 1, "the second time nothing was left to do");
    let messages = messages(&asked[0]);
    let told = messages[0]["content"][1]["text"].as_str().unwrap();
    assert!(told.contains("charge {}: result: paid 7"), "{told}");
    assert!(told.contains("send {}: outcome unknown"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_task_yet_is_nothing_to_resume() {
    let world = World::start();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), vec![Event::Began(Box::new(world.setup("r")))]);
    let journals = Directory::new(dir.path(), Fsync::Never);
    let journal = journals.open("r", "main").unwrap();
    assert!(
        Agent::resume(world.parts(journal), resumed())
            .unwrap()
            .is_none()
    );
}
