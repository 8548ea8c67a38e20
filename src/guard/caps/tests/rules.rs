//! The rules one by one.

use super::*;

const AT: i64 = 1_796_083_200_000;

fn amounts(turns: u64, input: u64, output: u64, pico: u64) -> Amounts {
    Amounts {
        turns,
        input,
        output,
        pico,
    }
}

#[test]
fn each_amount_passes_up_to_its_limit_and_not_beyond() {
    for (cap, limits) in [
        (
            Cap::Turns,
            Limits {
                turns: Some(10),
                ..Limits::default()
            },
        ),
        (
            Cap::InputTokens,
            Limits {
                input_tokens: Some(20),
                ..Limits::default()
            },
        ),
        (
            Cap::OutputTokens,
            Limits {
                output_tokens: Some(30),
                ..Limits::default()
            },
        ),
        (
            Cap::Tokens,
            Limits {
                tokens: Some(50),
                ..Limits::default()
            },
        ),
        (
            Cap::Usd,
            Limits {
                usd_pico: Some(40),
                ..Limits::default()
            },
        ),
    ] {
        let limit = limits.of(cap).unwrap();
        let mut gate = Gate::new();
        // Three tenths spent, three tenths held.
        gate.turn(&ask(limits, amounts(1, 1, 1, 1)), &amounts(3, 6, 9, 12));
        gate.grant(&ask(limits, amounts(3, 6, 9, 12)));
        let denied = gate.deny(&ask(limits, amounts(5, 10, 15, 20)));
        let tenth = limit / 10;
        assert_eq!(
            denied,
            Denied {
                scope: run("r"),
                cap,
                spent: 3 * tenth,
                held: 3 * tenth,
                asked: 5 * tenth,
                limit,
                after_ms: None,
            }
        );
        gate.grant(&ask(limits, amounts(4, 8, 12, 16)));
        assert_eq!(gate.deny(&ask(limits, amounts(1, 1, 1, 1))).cap, cap);
    }
}

#[test]
fn a_limit_of_zero_refuses_everything_and_no_arithmetic_overflows() {
    let none = Limits {
        usd_pico: Some(0),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let (_, answer) = gate.ask(&ask(none, Amounts::default()));
    let Answer::Denied { denied, crossings } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((denied.cap, denied.spent, denied.limit), (Cap::Usd, 0, 0));
    assert_eq!(crossings, []);

    let huge = amounts(u64::MAX, u64::MAX, u64::MAX, u64::MAX);
    let turns = Limits {
        turns: Some(u64::MAX),
        ..Limits::default()
    };
    let tokens = Limits {
        tokens: Some(u64::MAX),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let one = ask(turns, huge);
    let id = gate.grant(&one);
    assert_eq!(gate.deny(&ask(turns, usd(0))).cap, Cap::Turns);
    gate.settle(&one, id, &amounts(1, u64::MAX, u64::MAX, 0));
    let denied = gate.deny(&ask(tokens, huge));
    assert_eq!((denied.cap, denied.spent), (Cap::Tokens, u64::MAX));
    // What was held together with something else is given back to the unit.
    let first = ask(Limits::default(), huge);
    let (a, b) = (gate.grant(&first), gate.grant(&first));
    gate.settle(&first, a, &Amounts::default());
    assert_eq!(gate.figures(&first, Cap::Usd), (0, u64::MAX));
    gate.settle(&first, b, &Amounts::default());
    assert_eq!(gate.figures(&first, Cap::Usd), (0, 0));
}

#[test]
fn all_scopes_let_it_pass_or_nothing_is_held() {
    let key = Scope::Key("c0ffee".into(), "2026-12-01".into());
    let dollar = Limits {
        usd_pico: Some(USD),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let mut both = ask(dollar, usd(USD * 6 / 10));
    both.scopes.push((
        key.clone(),
        Limits {
            usd_pico: Some(USD / 2),
            ..Limits::default()
        },
    ));
    let denied = gate.deny(&both);
    assert_eq!((denied.scope, denied.limit), (key.clone(), USD / 2));
    assert_eq!(gate.figures(&both, Cap::Usd), (0, 0));
    assert_eq!(gate.figures(&both, Cap::Turns), (0, 0));
    both.most = usd(USD / 2);
    let id = gate.grant(&both);
    for scope in [run("r"), key.clone()] {
        assert_eq!(gate.books.figures(&scope, Cap::Usd), Some((0, USD / 2)));
    }
    gate.settle(&both, id, &usd(7));
    for scope in [run("r"), key] {
        assert_eq!(gate.books.figures(&scope, Cap::Usd), Some((7, 0)));
        assert_eq!(gate.books.figures(&scope, Cap::Turns), Some((1, 0)));
    }
}

#[test]
fn caps_that_do_not_pass_later_come_before_those_that_do() {
    let mut gate = Gate::new();
    let all = Limits {
        turns: Some(0),
        input_tokens: Some(0),
        output_tokens: Some(0),
        tokens: Some(0),
        usd_pico: Some(0),
        wall_ms: Some(0),
        depth: Some(0),
        agents: Some(0),
        requests_per_minute: Some(0),
        concurrency: Some(0),
    };
    let busy = Limits {
        concurrency: Some(0),
        ..Limits::default()
    };
    let mut one = ask(busy, usd(0));
    one.depth = 1;
    one.scopes.push((run("other"), all));
    let mut seen = Vec::new();
    // Each time without the cap that denied.
    for _ in 0..8 {
        let denied = gate.deny(&one);
        assert_eq!((&denied.scope, denied.after_ms), (&run("other"), None));
        seen.push(denied.cap);
        let limits = &mut one.scopes[1].1;
        match denied.cap {
            Cap::Turns => limits.turns = None,
            Cap::Usd => limits.usd_pico = None,
            Cap::Tokens => limits.tokens = None,
            Cap::InputTokens => limits.input_tokens = None,
            Cap::OutputTokens => limits.output_tokens = None,
            Cap::WallTime => limits.wall_ms = None,
            Cap::Depth => limits.depth = None,
            Cap::Agents => limits.agents = None,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        seen,
        [
            Cap::Turns,
            Cap::Usd,
            Cap::Tokens,
            Cap::InputTokens,
            Cap::OutputTokens,
            Cap::WallTime,
            Cap::Depth,
            Cap::Agents,
        ]
    );
    let denied = gate.deny(&one);
    assert_eq!((denied.scope, denied.cap), (run("r"), Cap::Concurrency));
    one.scopes.remove(0);
    assert_eq!(gate.deny(&one).cap, Cap::RequestsPerMinute);
}

#[test]
fn requests_at_a_time_and_in_a_minute_are_counted_and_denied_ones_are_not() {
    let limits = Limits {
        requests_per_minute: Some(3),
        concurrency: Some(2),
        ..Limits::default()
    };
    let one = ask(limits, usd(0));
    let mut gate = Gate::new();
    let (a, _) = (gate.grant(&one), gate.grant(&one));
    for _ in 0..5 {
        let denied = gate.deny(&one);
        assert_eq!(
            (denied.cap, denied.spent, denied.after_ms),
            (Cap::Concurrency, 2, Some(1_000))
        );
    }
    gate.settle(&one, a, &usd(0));
    gate.grant(&one);
    let denied = gate.deny(&one);
    assert_eq!((denied.cap, denied.spent), (Cap::RequestsPerMinute, 3));
    let mut later = one.clone();
    later.now_ms += i64::try_from(denied.after_ms.unwrap()).unwrap();
    assert_eq!(gate.deny(&later).cap, Cap::Concurrency);
}

#[test]
fn time_begins_with_the_first_request_that_asks_and_a_clock_set_back_does_no_harm() {
    let limits = Limits {
        wall_ms: Some(1_000),
        agents: Some(0),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    // Denied, but it was the first.
    assert_eq!(gate.deny(&ask(limits, usd(0))).cap, Cap::Agents);
    let timed = Limits {
        agents: None,
        ..limits
    };
    let at = |now_ms| Ask {
        now_ms,
        ..ask(timed, usd(0))
    };
    gate.grant(&at(AT + 999));
    assert_eq!(gate.deny(&at(AT + 1_000)).spent, 1_000);
    gate.grant(&at(AT - 5_000));
    gate.grant(&at(i64::MIN));
    assert_eq!(gate.deny(&at(i64::MAX)).cap, Cap::WallTime);
}

#[test]
fn an_agent_that_is_silent_or_done_makes_room() {
    let limits = Limits {
        agents: Some(1),
        ..Limits::default()
    };
    let by = |agent: &str, now_ms| Ask {
        agent: agent.into(),
        now_ms,
        ..ask(limits, usd(0))
    };
    let mut gate = Gate::new();
    gate.turn(&by("a", AT), &usd(0));
    gate.turn(&by("a", AT + 1), &usd(0));
    assert_eq!(gate.deny(&by("b", AT + 2)).cap, Cap::Agents);
    gate.turn(&by("b", AT + 2 + agents::LIVE_MS), &usd(0));
    assert_eq!(gate.deny(&by("a", AT + 3 + agents::LIVE_MS)).spent, 1);
}

#[test]
fn several_levels_at_once_are_told_in_order_and_lower_limits_do_not_tell_them_again() {
    let limit = |usd_pico| Limits {
        usd_pico: Some(usd_pico),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let wide = ask(limit(USD), Amounts::default());
    let id = gate.grant(&wide);
    let crossings = gate.settle(&wide, id, &usd(USD * 85 / 100));
    assert_eq!(
        crossings[1],
        Crossing {
            scope: run("r"),
            cap: Cap::Usd,
            level: 80,
            value: USD * 85 / 100,
            limit: USD,
        }
    );
    assert_eq!(told(&crossings), [(Cap::Usd, 50), (Cap::Usd, 80)]);
    // A header lowers the limit: denied, which uses nothing up.
    let (_, answer) = gate.ask(&ask(limit(USD / 2), Amounts::default()));
    let Answer::Denied { crossings, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(crossings, []);
    let id = gate.grant(&wide);
    assert_eq!(told(&gate.settle(&wide, id, &usd(USD))), [(Cap::Usd, 100)]);
}

#[test]
fn a_denial_is_no_level_and_uses_none_up() {
    let limits = Limits {
        tokens: Some(100),
        depth: Some(0),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let deny = |gate: &mut Gate, ask: &Ask| match gate.ask(ask).1 {
        Answer::Denied { crossings, .. } => assert_eq!(crossings, []),
        answer => panic!("{answer:?}"),
    };
    // Alone it could go beyond, and nothing has been used yet.
    deny(&mut gate, &ask(limits, amounts(1, 90, 11, 0)));
    let deep = Ask {
        depth: 1,
        ..ask(limits, usd(0))
    };
    deny(&mut gate, &deep);
    let one = ask(limits, usd(0));
    let id = gate.grant(&one);
    let crossings = gate.settle(&one, id, &amounts(1, 40, 45, 0));
    assert_eq!(told(&crossings), [(Cap::Tokens, 50), (Cap::Tokens, 80)]);
    deny(&mut gate, &ask(limits, amounts(1, 10, 6, 0)));
    let id = gate.grant(&one);
    let crossings = gate.settle(&one, id, &amounts(1, 10, 5, 0));
    assert_eq!(told(&crossings), [(Cap::Tokens, 100)]);
}

#[test]
fn what_is_left_counts_the_request_itself_and_the_least_of_the_token_limits() {
    let limits = Limits {
        turns: Some(3),
        input_tokens: Some(1_000),
        output_tokens: Some(100),
        tokens: Some(5_000),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let (_, answer) = gate.ask(&ask(limits, amounts(1, 200, 40, 9)));
    let Answer::Granted { left, .. } = answer else {
        panic!("{answer:?}");
    };
    let expected = Left {
        turns: Some(2),
        tokens: Some(60),
        usd_pico: None,
        wall_ms: None,
    };
    assert_eq!(left, [(run("r"), expected)]);
}

#[test]
fn a_scope_without_limits_has_no_book_but_what_it_spends_counts_when_it_has_one() {
    let mut gate = Gate::new();
    let free = ask(Limits::default(), usd(1));
    let early = gate.grant(&free);
    assert!(gate.books.is_empty());
    let dollar = Limits {
        usd_pico: Some(USD),
        ..Limits::default()
    };
    let one = ask(dollar, usd(5));
    let held = gate.grant(&one);
    // It began before there was a book, and holds nothing of another's.
    gate.settle(&free, early, &usd(3));
    assert_eq!(gate.figures(&one, Cap::Usd), (3, 5));
    let late = gate.grant(&free);
    assert_eq!(gate.figures(&one, Cap::Usd), (3, 6));
    gate.settle(&free, late, &usd(2));
    gate.settle(&one, held, &usd(5));
    assert_eq!(gate.figures(&one, Cap::Usd), (10, 0));
}

#[test]
fn idle_books_are_forgotten_runs_first_and_those_in_use_never() {
    let mut books = Books::new(4);
    let key = Scope::Key("c0ffee".into(), "2026-12-01".into());
    let none = Amounts::default();
    books.open(key.clone(), &none, None, AT - 1_000).unwrap();
    for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
        let at = AT + i64::try_from(n).unwrap();
        books.open(run(id), &none, None, at).unwrap();
    }
    let limits = Limits {
        turns: Some(1),
        ..Limits::default()
    };
    let busy = Ask {
        scopes: vec![(run("a"), limits)],
        ..ask(limits, usd(0))
    };
    assert!(matches!(
        books.ask(&busy, 1, &LEVELS),
        Answer::Granted { .. }
    ));
    // Nothing is idle yet.
    assert!(books.open(run("d"), &none, None, AT + 60_000).is_err());
    let later = AT + 200_000;
    books.open(run("d"), &none, None, later).unwrap();
    assert!(!books.has(&run("b")), "the run that was idle longest");
    books.open(run("e"), &none, None, later).unwrap();
    assert!(!books.has(&run("c")));
    books.open(run("f"), &none, None, later).unwrap();
    assert!(!books.has(&key));
    assert!(books.open(run("g"), &none, None, later).is_err());
    assert!(books.has(&run("a")));
    assert_eq!(books.len(), 4);
}
