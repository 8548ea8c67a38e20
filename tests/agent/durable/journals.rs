//! What every kind of journal promises.

use prefixgate::agent::journal::{Database, Directory, Fsync, JournalError, Journals, Scratch};
use prefixgate::agent::machine::{
    AgentRun, Bill, Event, Happened, Limits, Outcome, Setup, Spent, Stop, ToolSpec,
};
use prefixgate::agent::talk::{Answer, Block, CallResult, Kind, ToolCall};
use prefixgate::provider::wire::Wire;
use prefixgate::usage::Usage;
use proptest::prelude::*;
use tempfile::TempDir;

struct Case {
    name: &'static str,
    journals: Box<dyn Journals>,
    _dir: TempDir,
}

fn cases() -> Vec<Case> {
    let kinds = [
        "memory",
        "lines",
        "lines-fsync",
        "lines-turn",
        "sqlite",
        "sqlite-fsync",
        "sqlite-turn",
    ];
    kinds.map(case).into()
}

fn case(name: &'static str) -> Case {
    let dir = tempfile::tempdir().unwrap();
    let fsync = match name.rsplit_once('-') {
        Some((_, "fsync")) => Fsync::Always,
        Some((_, "turn")) => Fsync::Turn,
        _ => Fsync::Never,
    };
    let journals: Box<dyn Journals> = match name.split('-').next() {
        Some("memory") => Box::new(Scratch::default()),
        Some("lines") => Box::new(Directory::new(dir.path(), fsync)),
        _ => Box::new(Database::open(&dir.path().join("agent.db"), fsync).unwrap()),
    };
    Case {
        name,
        journals,
        _dir: dir,
    }
}

fn setup(run: &str) -> Setup {
    Setup {
        run: run.to_owned(),
        agent: "main".to_owned(),
        parent: Some("…".to_owned()),
        depth: 1,
        wire: Wire::Responses,
        model: "m".to_owned(),
        system: "two\nlines, \"quoted\" \u{2028} \u{0}".to_owned(),
        tools: vec![ToolSpec {
            name: "t".to_owned(),
            description: "d".to_owned(),
            schema: r#"{"type":"object"}"#.to_owned(),
        }],
        max_tokens: 1,
        effort: Some("high".to_owned()),
        window: u64::MAX,
        compact_at: 1 << 60,
        limits: Limits::default(),
        loop_threshold: 3,
    }
}

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "t".to_owned(),
        input: "{\"a\": 1e400, \"b\": \"\\ud800\"".to_owned(),
    }
}

fn bill() -> Bill {
    Bill {
        usage: Usage {
            uncached: Some(u64::MAX / 2),
            output: Some(3),
            ..Usage::default()
        },
        pico: Some(u64::MAX / 3),
    }
}

fn answered(text: &str, calls: &[&str], stop: Stop) -> Event {
    let mut blocks = vec![Block {
        kind: Kind::Text(text.to_owned()),
        raw: format!(
            "{{\"type\": \"text\",\n\"text\":{}}}",
            serde_json::json!(text)
        ),
    }];
    blocks.extend(calls.iter().map(|id| Block {
        kind: Kind::Call(call(id)),
        raw: "{}".to_owned(),
    }));
    Event::Answered {
        answer: Answer {
            wire: Wire::Messages,
            model: "m".to_owned(),
            blocks,
        },
        stop,
        open_call: true,
        bill: bill(),
    }
}

/// One of each kind, in an order in which they could happen.
fn all_kinds() -> Vec<Happened> {
    let events = vec![
        Event::Began(Box::new(setup("r"))),
        Event::Said {
            text: "do \u{1F980}\r\n".to_owned(),
        },
        Event::Abandoned {
            reason: "broke off".to_owned(),
            bill: Bill::default(),
        },
        answered("so", &["a", "b"], Stop::ToolUse),
        Event::CallBegan {
            call: call("a"),
            key: "r/main/1/a".to_owned(),
        },
        Event::Delegated {
            call: "a".to_owned(),
            spent: Spent {
                calls: 2,
                ..Spent::default()
            },
        },
        Event::CallEnded {
            result: CallResult::new("a", "\n".to_owned(), false),
        },
        Event::CallEnded {
            result: CallResult::failed("b", "no"),
        },
        Event::TooLong,
        Event::Compacted {
            summary: "s".to_owned(),
            from: 1,
            bill: bill(),
        },
        Event::CompactionFailed {
            reason: "r".to_owned(),
            bill: bill(),
        },
        Event::Aside {
            answer: "beside".to_owned(),
            bill: bill(),
        },
        Event::Switched {
            wire: Wire::Chat,
            model: "other".to_owned(),
        },
        Event::Ended(Outcome::ProviderError("gone".to_owned())),
        Event::Ended(Outcome::LoopDetected(vec!["t".to_owned()])),
        Event::Forked {
            run: "q".to_owned(),
            turn: 3,
        },
        Event::Resumed {
            limits: Some(Limits {
                pico: Some(1),
                ..Limits::default()
            }),
        },
        answered("", &[], Stop::Unknown("later".to_owned())),
        answered("", &[], Stop::Refusal(Some("cyber".to_owned()))),
    ];
    let timed = events.into_iter().enumerate();
    timed
        .map(|(at, event)| Happened {
            at_ms: 1_796_083_200_000 + at as i64,
            event,
        })
        .collect()
}

fn same(name: &str, loaded: Option<AgentRun>, events: &[Happened]) {
    let loaded = serde_json::to_value(loaded).unwrap();
    let folded = serde_json::to_value(AgentRun::fold(events)).unwrap();
    assert_eq!(loaded, folded, "{name}");
}

#[test]
fn an_empty_journal_holds_no_run() {
    for case in cases() {
        let mut journal = case.journals.create("r", "main").unwrap();
        assert!(journal.load().unwrap().is_none(), "{}", case.name);
        assert!(journal.events().unwrap().is_empty(), "{}", case.name);
        assert!(case.journals.list().unwrap().is_empty(), "{}", case.name);
    }
}

#[test]
fn every_event_comes_back_as_it_was_at_once_and_after_reopening() {
    let events = all_kinds();
    for case in cases() {
        let mut journal = case.journals.create("r", "main").unwrap();
        for (at, happened) in events.iter().enumerate() {
            journal.append(happened).unwrap();
            assert_eq!(journal.events().unwrap(), &events[..=at], "{}", case.name);
            same(case.name, journal.load().unwrap(), &events[..=at]);
        }
        drop(journal);
        assert_eq!(
            case.journals.events("r", "main").unwrap(),
            events,
            "{}",
            case.name
        );
        let mut journal = case.journals.open("r", "main").unwrap();
        same(case.name, journal.load().unwrap(), &events);
        assert_eq!(journal.events().unwrap(), events, "{}", case.name);
    }
}

#[test]
fn a_checkpoint_and_what_came_after_it_are_the_same_as_all_events() {
    let events = all_kinds();
    for case in cases() {
        for at in 1..=events.len() {
            let run = format!("r{at}");
            let mut journal = case.journals.create(&run, "main").unwrap();
            let (before, after) = events.split_at(at);
            before
                .iter()
                .for_each(|happened| journal.append(happened).unwrap());
            journal
                .checkpoint(&AgentRun::fold(before).unwrap())
                .unwrap();
            same(case.name, journal.load().unwrap(), before);
            after
                .iter()
                .for_each(|happened| journal.append(happened).unwrap());
            same(case.name, journal.load().unwrap(), &events);
            drop(journal);
            let mut journal = case.journals.open(&run, "main").unwrap();
            same(case.name, journal.load().unwrap(), &events);
        }
    }
}

#[test]
fn a_journal_has_one_writer() {
    let events = all_kinds();
    for case in cases() {
        let mut journal = case.journals.create("r", "main").unwrap();
        journal.append(&events[0]).unwrap();
        let again = case.journals.create("r", "main");
        assert!(
            matches!(again, Err(JournalError::Exists(_))),
            "{}",
            case.name
        );
        let second = case.journals.open("r", "main");
        assert!(
            matches!(second, Err(JournalError::Busy(_))),
            "{}",
            case.name
        );
        assert_eq!(
            case.journals.events("r", "main").unwrap().len(),
            1,
            "reading is free"
        );
        // Other agents of the run and other runs are.
        case.journals
            .create("r", "other")
            .unwrap()
            .append(&events[0])
            .unwrap();
        case.journals
            .create("r2", "main")
            .unwrap()
            .append(&events[0])
            .unwrap();
        drop(journal);
        case.journals.open("r", "main").unwrap();
        let again = case.journals.create("r", "main");
        assert!(
            matches!(again, Err(JournalError::Exists(_))),
            "{}",
            case.name
        );
    }
}

#[test]
fn runs_and_agents_are_kept_apart() {
    let events = all_kinds();
    for case in cases() {
        for (at, (run, agent)) in [("b", "zoe"), ("b", "main"), ("a", "main")]
            .iter()
            .enumerate()
        {
            let mut journal = case.journals.create(run, agent).unwrap();
            events[..=at]
                .iter()
                .for_each(|happened| journal.append(happened).unwrap());
        }
        let mut runs = case.journals.runs().unwrap();
        runs.sort();
        assert_eq!(runs, ["a", "b"], "{}", case.name);
        assert_eq!(
            case.journals.agents("b").unwrap(),
            ["main", "zoe"],
            "{}",
            case.name
        );
        assert_eq!(case.journals.events("b", "zoe").unwrap().len(), 1);
        assert_eq!(case.journals.events("b", "main").unwrap().len(), 2);
        assert_eq!(case.journals.events("a", "main").unwrap().len(), 3);
    }
}

#[test]
fn what_is_not_there_and_what_is_no_name_is_refused() {
    for case in cases() {
        let missing = case.journals.open("r", "main");
        assert!(
            matches!(missing, Err(JournalError::Missing(_))),
            "{}",
            case.name
        );
        let missing = case.journals.events("r", "main");
        assert!(
            matches!(missing, Err(JournalError::Missing(_))),
            "{}",
            case.name
        );
        let missing = case.journals.summary("r");
        assert!(
            matches!(missing, Err(JournalError::Missing(_))),
            "{}",
            case.name
        );
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a\\b",
            ".hidden",
            "ü",
            "a b",
            "a@b",
            &"x".repeat(129),
        ] {
            let refused = case.journals.create(name, "main");
            assert!(
                matches!(refused, Err(JournalError::Name(_))),
                "{} {name}",
                case.name
            );
            let refused = case.journals.open("r", name);
            assert!(
                matches!(refused, Err(JournalError::Name(_))),
                "{} {name}",
                case.name
            );
        }
    }
}

/// What happens to a journal in the property below.
#[derive(Debug, Clone)]
enum Act {
    Append(Box<Event>),
    Checkpoint,
    Reopen,
}

fn stops() -> impl Strategy<Value = Stop> {
    prop_oneof![
        Just(Stop::EndTurn),
        Just(Stop::ToolUse),
        Just(Stop::MaxTokens),
        Just(Stop::Pause),
        Just(Stop::ContextWindow),
        Just(Stop::Refusal(None)),
        Just(Stop::Unknown("x".to_owned())),
    ]
}

fn ids() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c")]
}

fn some_events() -> impl Strategy<Value = Event> {
    prop_oneof![
        "(?s).{0,12}".prop_map(|text| Event::Said { text }),
        ("(?s).{0,6}", prop::collection::vec(ids(), 0..3), stops())
            .prop_map(|(text, calls, stop)| answered(&text, &calls, stop)),
        ids().prop_map(|id| Event::CallBegan {
            call: call(id),
            key: id.to_owned(),
        }),
        (ids(), "(?s).{0,6}", any::<bool>()).prop_map(|(id, text, is_error)| Event::CallEnded {
            result: CallResult::new(id, text, is_error),
        }),
        (0..9usize).prop_map(|from| Event::Compacted {
            summary: "s".to_owned(),
            from,
            bill: Bill::default(),
        }),
        prop::sample::select(all_kinds()).prop_map(|happened| happened.event),
    ]
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => some_events().prop_map(|event| Act::Append(Box::new(event))),
        1 => Just(Act::Checkpoint),
        1 => Just(Act::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_happens_the_journal_holds_the_fold_of_its_events(acts in prop::collection::vec(acts(), 1..40)) {
        for name in ["memory", "lines", "sqlite"] {
            let case = case(name);
            let mut journal = case.journals.create("r", "main").unwrap();
            let mut events = vec![all_kinds().swap_remove(0)];
            journal.append(&events[0]).unwrap();
            for act in &acts {
                match act {
                    Act::Append(event) => {
                        let happened = Happened {
                            at_ms: events.len() as i64,
                            event: event.as_ref().clone(),
                        };
                        journal.append(&happened).unwrap();
                        events.push(happened);
                    }
                    Act::Checkpoint => {
                        let run = AgentRun::fold(&events).unwrap();
                        journal.checkpoint(&run).unwrap();
                    }
                    Act::Reopen => {
                        drop(journal);
                        journal = case.journals.open("r", "main").unwrap();
                    }
                }
            }
            same(name, journal.load().unwrap(), &events);
            assert_eq!(journal.events().unwrap(), events);
        }
    }
}
