use super::memory::MAX_MEMBERS;
use super::*;
use crate::prompt_cache::chain::Hash;
use crate::provider::view::History;
use crate::run::Identity;

/// A conversation as hashes: one block a message, the chain a running sum.
struct Talk {
    system: u8,
    messages: Vec<u8>,
}

fn hash(bytes: &[u8]) -> Hash {
    let mut out = [0_u8; 16];
    for (i, b) in bytes.iter().enumerate() {
        out[i % 16] = out[i % 16]
            .wrapping_mul(31)
            .wrapping_add(*b)
            .wrapping_add(1);
    }
    out[15] = u8::try_from(bytes.len()).unwrap();
    out
}

#[derive(Default)]
struct Ask {
    run: Option<&'static str>,
    agent: Option<&'static str>,
    parent: Option<&'static str>,
    history: History,
    texts: Vec<Hash>,
    retries: u32,
    compaction: bool,
    now_ms: i64,
}

fn arrive(registry: &Registry, talk: &Talk, ask: Ask) -> Seat {
    let identity = Identity {
        compaction: ask.compaction,
        run: ask.run.map(|r| (r.to_owned(), "client")),
        agent: ask.agent.map(Into::into),
        parent_agent: ask.parent.map(Into::into),
        retries: ask.retries,
    };
    let all: Vec<u8> = std::iter::once(talk.system)
        .chain(talk.messages.iter().copied())
        .collect();
    let chain: Vec<Hash> = (1..=all.len()).map(|n| hash(&all[..n])).collect();
    let borders: Vec<usize> = (2..=all.len()).collect();
    let arrival = Arrival {
        identity: &identity,
        trace: None,
        chain: &chain,
        borders: &borders,
        root: Some(chain[0]),
        model_root: Some(chain[0]),
        first: talk.messages.first().map(|m| hash(&[*m])),
        newest: talk.messages.last().map(|m| hash(&[*m, 99])),
        has_history: talk.messages.len() > 1,
        history: &ask.history,
        body: u128::from_le_bytes(hash(&all)),
        now_ms: ask.now_ms,
    };
    registry.arrive(
        &arrival,
        &Given {
            texts: ask.texts,
            messages: talk
                .messages
                .iter()
                .rev()
                .map(|m| hash(&[*m, 99]))
                .collect(),
        },
    )
}

/// What a request could be found by.
#[derive(Default)]
struct Given {
    texts: Vec<Hash>,
    messages: Vec<Hash>,
}

impl Search for Given {
    fn opening_texts(&self) -> Vec<Hash> {
        self.texts.clone()
    }
    fn messages(&self) -> Vec<Hash> {
        self.messages.clone()
    }
}

fn ok(registry: &Registry, seat: &Seat) {
    registry.answered(
        seat,
        Answered {
            ok: true,
            ..Answered::default()
        },
    );
}

fn talk(system: u8, messages: &[u8]) -> Talk {
    Talk {
        system,
        messages: messages.to_vec(),
    }
}

#[test]
fn e10_without_ids_two_interleaved_conversations_stay_two() {
    let registry = Registry::default();
    let a1 = arrive(&registry, &talk(0, &[1]), Ask::default());
    let b1 = arrive(&registry, &talk(0, &[2]), Ask::default());
    ok(&registry, &a1);
    ok(&registry, &b1);
    let a2 = arrive(&registry, &talk(0, &[1, 10, 11]), Ask::default());
    let b2 = arrive(&registry, &talk(0, &[2, 10, 11]), Ask::default());
    assert_ne!(a1.run_id, b1.run_id);
    assert_eq!((&a1.run_id, &b1.run_id), (&a2.run_id, &b2.run_id));
    assert_eq!((a2.turn, b2.turn), (2, 2));
    assert_eq!(a2.previous_end, Some(2));
    assert!(!a1.root_seen && b1.root_seen);

    // A second process names the first conversation alike without any memory of it.
    let restarted = Registry::default();
    assert_eq!(
        arrive(&restarted, &talk(0, &[1, 10, 11]), Ask::default()).run_id,
        a1.run_id
    );
}

/// A05: a resumed conversation whose first message has lost an injected block.
#[test]
fn an_edited_opening_is_found_by_a_later_message() {
    for run in [None, Some("r")] {
        let registry = Registry::default();
        let ask = || Ask {
            run,
            ..Ask::default()
        };
        let before = arrive(&registry, &talk(0, &[1, 10, 11]), ask());
        ok(&registry, &before);
        let resumed = arrive(&registry, &talk(0, &[2, 10, 11, 12, 13]), ask());
        assert_eq!(resumed.run_id, before.run_id);
        assert_eq!(resumed.thread_id, before.thread_id);
        assert_eq!(resumed.turn, before.turn + 1);
    }
}

#[test]
fn a_conversation_that_was_summed_up_goes_on_in_its_thread() {
    let registry = Registry::default();
    let ask = |compaction| Ask {
        run: Some("s1"),
        compaction,
        ..Ask::default()
    };
    let main = arrive(&registry, &talk(0, &[1, 10, 11]), ask(false));
    ok(&registry, &main);
    // Nobody said that it was summed up: another conversation of the same run.
    let other = arrive(&registry, &talk(0, &[50]), ask(false));
    ok(&registry, &other);
    assert_ne!(other.thread_id, main.thread_id);
    let summing = arrive(&registry, &talk(0, &[1, 10, 11, 12, 13]), ask(true));
    ok(&registry, &summing);
    assert_eq!(summing.thread_id, main.thread_id);
    let after = arrive(&registry, &talk(0, &[60]), ask(false));
    assert_eq!(after.thread_id, main.thread_id);
    assert_eq!(after.turn, 3);
}

#[test]
fn the_same_script_started_again_is_another_run() {
    let registry = Registry::default();
    let first = arrive(&registry, &talk(0, &[1]), Ask::default());
    let retry = arrive(&registry, &talk(0, &[1]), Ask::default());
    assert_eq!(
        (&retry.run_id, retry.turn, retry.attempt),
        (&first.run_id, 1, 2)
    );
    ok(&registry, &first);
    ok(&registry, &retry);
    let again = arrive(&registry, &talk(0, &[1]), Ask::default());
    assert_ne!(again.run_id, first.run_id);
    assert_eq!((again.turn, again.attempt), (1, 1));
    ok(&registry, &again);
    // Its growth is its own, though the older run began with the same words.
    let grown = arrive(&registry, &talk(0, &[1, 9, 9]), Ask::default());
    assert_eq!(grown.run_id, again.run_id);
}

#[test]
fn e10_an_explicit_run_outlives_a_change_of_system_and_model() {
    let registry = Registry::default();
    let ask = || Ask {
        run: Some("s1"),
        ..Ask::default()
    };
    let a = arrive(&registry, &talk(0, &[1]), ask());
    ok(&registry, &a);
    let b = arrive(&registry, &talk(7, &[1, 2, 3]), ask());
    assert_eq!((&*b.run_id, &*b.thread_id, b.turn), ("s1", "main", 2));
}

#[test]
fn a_clock_in_the_system_prompt_does_not_tear_a_conversation_apart() {
    let registry = Registry::default();
    let mut messages = vec![1];
    let mut seen = Vec::new();
    for second in 0..10 {
        let seat = arrive(&registry, &talk(100 + second, &messages), Ask::default());
        ok(&registry, &seat);
        seen.push((seat.run_id.clone(), seat.turn));
        messages.extend([50 + second, 60 + second]);
    }
    assert!(seen.iter().all(|(run, _)| *run == seen[0].0), "{seen:?}");
    assert_eq!(
        seen.iter().map(|(_, turn)| *turn).collect::<Vec<_>>(),
        (1..=10).collect::<Vec<_>>()
    );
}

#[test]
fn e11_sub_agents_have_their_own_lineage_with_headers_and_without() {
    let long: Vec<u8> = (1..=40).collect();
    let longer: Vec<u8> = (1..=42).collect();
    for headers in [true, false] {
        let registry = Registry::default();
        let child_ask = || Ask {
            run: Some("s1"),
            agent: headers.then_some("a7"),
            parent: headers.then_some("a0"),
            ..Ask::default()
        };
        let parent_ask = || Ask {
            run: Some("s1"),
            agent: headers.then_some("a0"),
            ..Ask::default()
        };
        let parent = arrive(&registry, &talk(0, &long), parent_ask());
        ok(&registry, &parent);
        let child = arrive(&registry, &talk(5, &[200, 201]), child_ask());
        ok(&registry, &child);
        let next = arrive(&registry, &talk(0, &longer), parent_ask());
        assert_eq!(next.thread_id, parent.thread_id);
        assert_ne!(child.thread_id, parent.thread_id);
        assert_eq!(child.run_id, parent.run_id);
        assert_eq!((next.turn, child.turn), (2, 1));
        assert_eq!(
            next.previous_end,
            Some(41),
            "compared with its own 40 messages"
        );
        if headers {
            assert_eq!(child.parent_thread.as_deref(), Some("a0"));
        }
    }
}

#[test]
fn a_thread_that_starts_with_the_prompt_of_a_pending_call_is_a_child() {
    let registry = Registry::default();
    let parent = arrive(&registry, &talk(0, &[1]), Ask::default());
    let prompt = hash(b"do the thing");
    let calls = vec![AskedCall {
        id: "toolu_1".into(),
        prompts: vec![prompt],
    }];
    registry.answered(
        &parent,
        Answered {
            ok: true,
            calls,
            now_ms: 5,
            ..Answered::default()
        },
    );
    let ask = Ask {
        texts: vec![prompt],
        ..Ask::default()
    };
    let child = arrive(&registry, &talk(9, &[77]), ask);
    assert_eq!(child.run_id, parent.run_id);
    assert_eq!(child.parent_thread, Some(parent.thread_id.clone()));
    let settled = registry.settle(&parent, "toolu_1", 25).unwrap();
    assert_eq!(
        (settled.latency_ms, &settled.thread_id),
        (20, &parent.thread_id)
    );
    assert_eq!(
        registry.settle(&parent, "toolu_1", 30),
        None,
        "a result settles once"
    );
}

#[test]
fn provider_held_history_is_followed_by_answer_id() {
    let registry = Registry::default();
    let first = arrive(
        &registry,
        &talk(0, &[1]),
        Ask {
            history: History::Opened,
            ..Ask::default()
        },
    );
    let end = Some(hash(b"end"));
    let answer = Answered {
        ok: true,
        response_id: Some("msg_1".into()),
        end,
        ..Answered::default()
    };
    registry.answered(&first, answer);
    let go_on = |id: &str| Ask {
        history: History::Continues(id.into()),
        ..Ask::default()
    };
    let second = arrive(&registry, &talk(0, &[2]), go_on("msg_1"));
    assert_eq!((&second.run_id, second.turn), (&first.run_id, 2));
    assert_eq!(
        (second.run_source, second.base, second.history_seen),
        ("chain", end, true)
    );
    let lost = arrive(&registry, &talk(0, &[3]), go_on("msg_gone"));
    assert!(!lost.history_seen);
    assert_ne!(lost.run_id, first.run_id);
}

#[test]
fn a_failed_request_keeps_its_number_and_counts_attempts() {
    let registry = Registry::default();
    let ask = |retries| Ask {
        run: Some("r"),
        retries,
        ..Ask::default()
    };
    let first = arrive(&registry, &talk(0, &[1]), ask(0));
    registry.answered(&first, Answered::default());
    let second = arrive(&registry, &talk(0, &[1]), ask(1));
    assert_eq!((second.turn, second.attempt), (1, 2));
    registry.answered(&second, Answered::default());
    let third = arrive(&registry, &talk(0, &[1]), ask(2));
    assert_eq!((third.turn, third.attempt), (1, 3));
    ok(&registry, &third);
    let next = arrive(&registry, &talk(0, &[1, 2, 3]), ask(0));
    assert_eq!((next.turn, next.attempt), (2, 1));
}

#[test]
fn what_a_restart_knows_is_restored() {
    let registry = Registry::default();
    let whole = hash(&[0, 1]);
    registry.restore([Seed {
        run_id: "c-old".into(),
        thread_id: "t2".into(),
        parent_thread: Some("main".into()),
        agent: None,
        turns: 4,
        root: Some(hash(&[0])),
        chain: Some(whole),
        response_id: Some("msg_9".into()),
        last_ms: 1,
        policy: None,
    }]);
    let seat = arrive(&registry, &talk(0, &[1, 2, 3]), Ask::default());
    assert_eq!(
        (&*seat.run_id, &*seat.thread_id, seat.turn),
        ("c-old", "t2", 5)
    );
    assert_eq!(seat.parent_thread.as_deref(), Some("main"));
}

#[test]
fn memory_stays_bounded() {
    let registry = Registry::new(16);
    for n in 0..1000_u32 {
        let bytes = n.to_le_bytes();
        let seat = arrive(
            &registry,
            &talk(bytes[0], &[bytes[1], bytes[0]]),
            Ask::default(),
        );
        ok(&registry, &seat);
        assert!(registry.threads() <= 16);
    }
}

#[test]
fn calls_of_the_same_id_belong_to_their_threads() {
    let registry = Registry::default();
    let ask = |run| Ask {
        run: Some(run),
        ..Ask::default()
    };
    let seats = ["a", "b"].map(|run| {
        let seat = arrive(&registry, &talk(0, &[1]), ask(run));
        let calls = vec![AskedCall {
            id: "call_1".into(),
            prompts: Vec::new(),
        }];
        let end = Answered {
            ok: true,
            calls,
            ..Answered::default()
        };
        registry.answered(&seat, end);
        seat
    });
    for seat in seats {
        let settled = registry.settle(&seat, "call_1", 1).unwrap();
        assert_eq!(settled.run_id, seat.run_id);
        assert_eq!(registry.settle(&seat, "call_1", 1), None);
    }
}

#[test]
fn a_result_that_comes_in_another_thread_of_the_run_is_found() {
    let registry = Registry::default();
    let ask = || Ask {
        run: Some("a"),
        ..Ask::default()
    };
    let asker = arrive(&registry, &talk(0, &[1]), ask());
    let calls = vec![AskedCall {
        id: "call_1".into(),
        prompts: Vec::new(),
    }];
    let end = Answered {
        ok: true,
        calls,
        ..Answered::default()
    };
    registry.answered(&asker, end);
    let other = arrive(&registry, &talk(9, &[5]), ask());
    assert_ne!(other.thread_id, asker.thread_id);
    let settled = registry.settle(&other, "call_1", 1).unwrap();
    assert_eq!(settled.thread_id, asker.thread_id);
}

#[test]
fn a_retry_of_what_nobody_saw_stands_for_its_turn_and_one_after_an_answer_does_not() {
    let registry = Registry::default();
    let ask = |retries| Ask {
        retries,
        ..Ask::default()
    };
    let late = arrive(&registry, &talk(0, &[1]), ask(2));
    assert_eq!((late.turn, late.attempt), (1, 1));
    ok(&registry, &late);
    // The answer was complete here and did not reach the client.
    let again = arrive(&registry, &talk(0, &[1]), ask(3));
    assert_eq!(
        (&again.run_id, again.turn, again.attempt),
        (&late.run_id, 1, 4)
    );
}

#[test]
fn pictures_in_a_body_do_not_spoil_the_ratio_of_its_text() {
    let registry = Registry::default();
    let ratio_after = |prompt: (u64, u64), messages: &[u8]| {
        let ask = || Ask {
            run: Some("r"),
            ..Ask::default()
        };
        let seat = arrive(&registry, &talk(0, messages), ask());
        let end = Answered {
            ok: true,
            prompt: Some(prompt),
            ..Answered::default()
        };
        registry.answered(&seat, end);
        let grown: Vec<u8> = messages.iter().copied().chain([90, 91]).collect();
        arrive(&registry, &talk(0, &grown), ask()).bytes_per_token_milli
    };
    assert_eq!(ratio_after((1_500, 5_000_000), &[1]), None);
    assert_eq!(ratio_after((1_000, 3_500), &[2]), Some(3_500));
    assert_eq!(
        ratio_after((2_000, 5_000_000), &[2, 90, 91, 92, 93]),
        Some(3_500)
    );
}

#[test]
fn one_id_for_thousands_of_conversations_stays_quick_and_their_names_differ() {
    let registry = Registry::default();
    let identity = Identity {
        run: Some(("constant".into(), "header")),
        ..Identity::default()
    };
    let mut names = std::collections::HashSet::new();
    for n in 0..2_000_u128 {
        let words = n.to_le_bytes();
        let arrival = Arrival {
            identity: &identity,
            trace: None,
            chain: &[words],
            borders: &[1],
            root: Some(Hash::default()),
            model_root: None,
            first: Some(words),
            newest: None,
            has_history: false,
            history: &History::Whole,
            body: n,
            now_ms: 0,
        };
        let seat = registry.arrive(&arrival, &Given::default());
        ok(&registry, &seat);
        names.insert(seat.thread_id.to_string());
    }
    assert_eq!(names.len(), 2_000);
    let state = registry.lock();
    let members = &state.runs.get("constant").unwrap().members;
    assert_eq!(members.len(), MAX_MEMBERS);
    let oldest = state.threads.get(&members[0]).unwrap();
    assert_eq!(&*oldest.id, "main", "the first stays the parent of all");
}

#[test]
fn thousands_of_equal_openings_are_numbered_without_a_search() {
    let registry = Registry::default();
    let mut runs = std::collections::HashSet::new();
    for _ in 0..5_000 {
        let seat = arrive(&registry, &talk(0, &[1]), Ask::default());
        ok(&registry, &seat);
        runs.insert(seat.run_id);
    }
    assert_eq!(runs.len(), 5_000);
}
