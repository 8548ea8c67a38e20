//! Compaction: where it may cut, what it costs, what it leaves alone.

use std::collections::HashSet;

use prefixgate::agent::machine::{Event, Outcome, Step, Stop, cut};
use prefixgate::agent::model::{Ask, Format as _, Messages};
use prefixgate::agent::talk::{Answer, CallResult, Entry};
use prefixgate::sim::{Options, Sim};

use super::legal::assert_legal;
use super::play::{Play, answered, bill, call, setup, text};
use super::site::{Site, cached, endpoint, shell};

/// Thirty turns with parallel calls, and a text of the user beside results.
fn long() -> Play {
    let mut setup = setup();
    setup.limits.turns = 1000;
    let mut play = Play::told(setup);
    for turn in 0..15 {
        let ids = [format!("x{turn}"), format!("y{turn}")];
        let calls = ids
            .iter()
            .map(|id| call(id, "work", &format!("{{\"id\":\"{id}\"}}")));
        let blocks = std::iter::once(text("next")).chain(calls).collect();
        play.put(answered(blocks, Stop::ToolUse));
        if turn == 9 {
            play.say("note: the newest word of the user");
        }
        play.make(|call| {
            (
                format!("{} {}", call.id, "result ".repeat(5 + turn * 3)),
                false,
            )
        });
    }
    play
}

fn newest_word(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| match entry {
        Entry::User { texts, .. } => texts.iter().any(|text| text.contains("newest word")),
        Entry::Assistant(_) => false,
    })
}

/// The run with another size at which it is compacted.
fn at_budget(play: &Play, compact_at: u64) -> Play {
    let mut written = play.written();
    written["setup"]["compact_at"] = compact_at.into();
    written["size"] = serde_json::Value::Null;
    written["sized"] = 0.into();
    let mut play = play.clone();
    play.run = serde_json::from_value(written).unwrap();
    play
}

#[tokio::test]
async fn f03_for_every_budget_pairs_stay_whole_and_the_provider_takes_what_is_left() {
    let long = long();
    let sim = Sim::start(Options::default()).unwrap();
    let endpoint = endpoint(&sim.base_url());
    let mut cuts = HashSet::new();
    let mut untouched = 0;
    for budget in 1..16_000 {
        let from = cut(long.run.entries(), budget);
        if from == 1 {
            untouched += 1;
            continue;
        }
        if !cuts.insert(from) {
            continue;
        }
        let mut play = long.clone();
        let spent = play.run.spent().clone();
        play.put(Event::Compacted {
            summary: "what was done".into(),
            from,
            bill: bill(400, 40, 90),
        });
        let entries = play.run.entries();
        assert_legal(entries);
        assert!(newest_word(entries), "budget {budget}");
        assert_eq!(
            play.run.spent().pico,
            spent.pico + 90,
            "the summary is paid"
        );
        assert_eq!(play.run.spent().tokens(), spent.tokens() + 440);
        assert_eq!(play.run.turns(), 15, "it is no turn");
        let ask = Ask {
            setup: play.run.setup(),
            entries,
            aside: None,
            max_tokens: 100,
        };
        let model = "claude-sonnet-5";
        let body = Messages.request(&ask);
        let reply = endpoint.ask(model, body, &Vec::new(), &mut |_| {}).await;
        assert!(reply.is_ok(), "budget {budget}: {reply:?}");
    }
    assert_eq!(cuts.len(), 15, "every border between pairs: {cuts:?}");
    assert!(untouched > 0);
}

#[test]
fn a_failed_compaction_leaves_the_history_byte_identical() {
    let mut play = at_budget(&long(), 900);
    assert!(matches!(play.next(), Step::Compact { .. }));
    let before = play.written();
    play.put(Event::CompactionFailed {
        reason: "the model gave no whole summary".into(),
        bill: bill(10, 1, 3),
    });
    assert_eq!(play.written()["entries"], before["entries"]);
    assert_eq!(play.run.spent().pico, 15 * 7 + 3, "what it cost is booked");
    assert!(play.asks_model(), "the run goes on without");
    let large = |id: &str| Event::Answered {
        answer: super::play::answer(vec![call(id, "work", "{}")]),
        stop: Stop::ToolUse,
        open_call: false,
        bill: bill(5000, 10, 0),
    };
    // And it is tried again some turns later.
    for turn in 0.. {
        if !play.asks_model() {
            assert_eq!(turn, 5);
            break;
        }
        play.put(large(&format!("z{turn}")));
        play.make(|call| (call.id.clone(), false));
    }
}

#[test]
fn a_second_summary_takes_the_place_of_the_first_and_keeps_all_that_was_said_last() {
    let mut play = at_budget(&long(), 900);
    play.say("one thing");
    play.say("and another");
    let Step::Compact { from } = play.next() else {
        panic!()
    };
    play.put(Event::Compacted {
        summary: "the first".into(),
        from,
        bill: bill(1, 1, 1),
    });
    let len = play.run.entries().len();
    play.put(Event::Compacted {
        summary: "the second".into(),
        from: len,
        bill: bill(1, 1, 1),
    });
    let [Entry::User { texts, .. }] = play.run.entries() else {
        panic!("{:?}", play.run.entries())
    };
    assert_eq!(texts.len(), 1 + 2, "{texts:?}");
    assert!(texts[0].contains("the second"));
    assert!(!texts.iter().any(|text| text.contains("the first")));
    assert_eq!(texts[1..], ["one thing", "and another"]);
}

#[test]
fn a_window_that_is_exceeded_is_compacted_once() {
    for event in [
        Event::TooLong,
        answered(vec![text("cut")], Stop::ContextWindow),
    ] {
        let mut play = long();
        play.put(event.clone());
        let Step::Compact { from } = play.next() else {
            panic!("{:?}", play.next())
        };
        // What does not fit cannot be asked about whole.
        let asked = play.run.to_sum_up(from);
        assert!(asked.len() < play.run.entries().len());
        assert!(matches!(asked.last(), Some(Entry::User { .. })));
        play.put(Event::Compacted {
            summary: "so far".into(),
            from,
            bill: bill(1, 1, 1),
        });
        assert!(play.asks_model());
        let mut again = play.clone();
        again.put(event.clone());
        assert_eq!(again.outcome(), Outcome::ContextWindow, "only once");
        // After an answer it may be done again.
        play.put(answered(vec![call("new", "work", "{}")], Stop::ToolUse));
        play.make(|_| ("fine".into(), false));
        play.put(event);
        assert_ne!(play.run.outcome(), Some(&Outcome::ContextWindow));
    }
}

#[test]
fn a_window_that_is_exceeded_ends_the_run_when_no_summary_comes_or_nothing_can_go() {
    let mut play = long();
    play.put(Event::TooLong);
    play.put(Event::CompactionFailed {
        reason: "too long".into(),
        bill: bill(0, 0, 0),
    });
    assert_eq!(play.outcome(), Outcome::ContextWindow);
    let mut play = Play::told(setup());
    play.put(Event::TooLong);
    assert_eq!(play.outcome(), Outcome::ContextWindow);
}

#[test]
fn one_result_that_fills_the_window_stays_out_of_the_request_for_a_summary() {
    let mut play = Play::told(setup());
    for (id, size) in [("a", 10), ("b", 10), ("c", 900_000)] {
        play.put(answered(
            vec![call(id, "work", &format!("\"{id}\""))],
            Stop::ToolUse,
        ));
        play.make(|_| ("x".repeat(size), false));
    }
    play.put(Event::TooLong);
    let Step::Compact { from } = play.next() else {
        panic!("{:?}", play.next())
    };
    assert_eq!(play.run.to_sum_up(from).len(), 5);
}

#[test]
fn a_conversation_that_stays_large_is_not_summed_up_every_turn() {
    let mut play = at_budget(&long(), 50);
    play.say(&"a task as long as a book ".repeat(40));
    let mut compactions = 0;
    for turn in 0..12 {
        if let Step::Compact { from } = play.next() {
            compactions += 1;
            play.put(Event::Compacted {
                summary: "short".into(),
                from,
                bill: bill(1, 1, 1),
            });
        }
        play.put(answered(
            vec![call(&format!("z{turn}"), "work", "{}")],
            Stop::ToolUse,
        ));
        play.make(|call| (call.id.clone(), false));
    }
    assert!((1..=3).contains(&compactions), "{compactions}");
}

#[tokio::test]
async fn the_summary_reads_the_cache_and_each_compaction_breaks_it_once() {
    let sim = Sim::start(Options::default()).unwrap();
    let site = Site::new(&sim.base_url(), [shell()]);
    let crew = site.crew();
    let mut setup = cached();
    setup.limits.turns = 24;
    setup.loop_threshold = 0;
    setup.compact_at = 5_000;
    let plan = vec!["shell_ok"; 30].join(",");
    let post = site.post(&crew, setup, &format!("Work on. [[plan:{plan},end]]"));
    let agent = crew.work(post).await.unwrap();
    assert_eq!(
        agent.run().outcome(),
        Some(&Outcome::MaxTurns),
        "{:?}",
        site.heard.all()
    );
    let compactions = site.heard.of("compacted true").len();
    assert!(compactions >= 1, "{:?}", site.heard.all());
    assert_eq!(site.heard.of("compacted false").len(), 0);

    let requests = sim.requests();
    assert!(requests.iter().all(|request| request.status == Some(200)));
    let mut breaks = 0;
    let mut summaries = 0;
    for pair in requests.windows(2) {
        let [before, now] = [&pair[0], &pair[1]].map(|request| request.tokens.unwrap());
        let cached = before.read + before.written();
        let summary =
            String::from_utf8_lossy(&pair[1].body).contains("Answer with the summary only");
        if summary {
            summaries += 1;
            assert_eq!(now.read, cached, "the summary reads all that was cached");
        }
        if now.read < cached {
            breaks += 1;
            assert!(now.read > 0, "system and tools are read all the same");
        }
    }
    assert_eq!((breaks, summaries), (compactions, compactions));
    // All of it is on the books.
    let paid: u64 = requests
        .iter()
        .map(|request| request.tokens.unwrap().total())
        .sum();
    let spent = agent.run().spent();
    assert_eq!(spent.uncached + spent.read + spent.written, paid);
    assert_eq!(*spent, crew.budget.spent());
}

#[test]
fn what_a_request_for_a_summary_adds_stands_behind_all_else() {
    let play = long();
    let body = |aside| {
        Messages.request(&Ask {
            setup: play.run.setup(),
            entries: play.run.entries(),
            aside,
            max_tokens: 1000,
        })
    };
    let [plain, asked] =
        [None, Some("sum up")].map(|aside| String::from_utf8(body(aside)).unwrap());
    let end = r#"]}]}"#;
    let same = plain.strip_suffix(end).unwrap();
    assert!(
        asked.starts_with(same),
        "all before it is byte for byte the same"
    );
    assert_eq!(
        &asked[same.len()..],
        r#",{"type":"text","text":"sum up"}]}]}"#
    );
}

#[test]
fn a_result_that_comes_after_a_compaction_finds_its_call() {
    // A compaction is never due while calls are open; were it done, nothing would be left alone.
    let mut play = long();
    play.put(answered(vec![call("late", "work", "{}")], Stop::ToolUse));
    assert!(matches!(play.next(), Step::CallTools(_)));
    play.put(Event::CallEnded {
        result: CallResult::new("late", "here".into(), false),
    });
    assert_legal(play.run.entries());
    let kept = play.run.entries().iter().rev().nth(1);
    assert!(matches!(kept, Some(Entry::Assistant(Answer { .. }))));
}
