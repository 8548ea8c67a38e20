//! The cases, as far as books go.

use super::*;

#[test]
fn d08_requests_at_once_do_not_overshoot_and_release_what_they_do_not_use() {
    let mut gate = Gate::new();
    let limits = Limits {
        usd_pico: Some(USD),
        ..Limits::default()
    };
    let one = ask(limits, usd(USD * 30 / 100));
    let wave = |gate: &mut Gate| -> Vec<u128> {
        (0..10)
            .filter_map(|_| match gate.ask(&one) {
                (id, Answer::Granted { .. }) => Some(id),
                (_, Answer::Denied { denied, .. }) => {
                    assert_eq!((denied.cap, denied.limit), (Cap::Usd, USD));
                    None
                }
                (_, other) => panic!("{other:?}"),
            })
            .collect()
    };
    let first = wave(&mut gate);
    assert_eq!(first.len(), 3);
    assert_eq!(gate.figures(&one, Cap::Usd), (0, USD * 90 / 100));
    for id in first {
        gate.settle(&one, id, &usd(99_990_000_000));
    }
    assert_eq!(gate.figures(&one, Cap::Usd), (299_970_000_000, 0));

    let second = wave(&mut gate);
    assert_eq!(second.len(), 2);
    // One is refused upstream, one is aborted after some of it had come.
    gate.settle(&one, second[0], &Amounts::default());
    gate.settle(&one, second[1], &usd(30_000_000));
    assert_eq!(gate.figures(&one, Cap::Usd), (300_000_000_000, 0));
    assert_eq!(gate.figures(&one, Cap::Turns), (4, 0));
    assert_eq!(wave(&mut gate).len(), 2);
}

#[test]
fn c13_of_101_requests_that_cost_a_hundredth_of_the_cap_exactly_100_pass() {
    let mut gate = Gate::new();
    let limits = Limits {
        usd_pico: Some(36_000_000_000),
        ..Limits::default()
    };
    // Nothing is reserved: what was spent decides.
    let one = ask(limits, Amounts::default());
    for _ in 0..100 {
        gate.turn(&one, &usd(360_000_000));
    }
    let denied = gate.deny(&one);
    assert_eq!((denied.cap, denied.spent), (Cap::Usd, 36_000_000_000));
    assert_eq!(show::show(denied.cap, denied.spent), "0.036");
}

#[test]
fn d10_the_turns_the_depth_and_the_agents_of_a_tree_count_in_its_run() {
    let limits = Limits {
        turns: Some(40),
        depth: Some(2),
        agents: Some(10),
        ..Limits::default()
    };
    let by = |agent: &str, depth| Ask {
        agent: agent.into(),
        depth,
        ..ask(limits, usd(0))
    };
    let mut gate = Gate::new();
    let mut under_way = Vec::new();
    let mut start = |gate: &mut Gate, one: Ask| {
        let id = gate.grant(&one);
        under_way.push((one, id));
    };
    start(&mut gate, by("root", 0));
    for n in 0..5 {
        start(&mut gate, by(&format!("child {n}"), 1));
    }
    for n in 0..4 {
        start(&mut gate, by(&format!("grandchild {n}"), 2));
    }
    let denied = gate.deny(&by("grandchild 4", 2));
    assert_eq!(
        (denied.cap, denied.spent, denied.limit),
        (Cap::Agents, 10, 10)
    );
    let denied = gate.deny(&by("great-grandchild", 3));
    assert_eq!((denied.cap, denied.asked, denied.limit), (Cap::Depth, 3, 2));
    // Those that are at work go on.
    for (one, id) in under_way {
        gate.settle(&one, id, &usd(0));
    }
    gate.turn(&by("grandchild 3", 2), &usd(0));
    // One that has ended makes room for another.
    let last = by("grandchild 0", 2);
    let id = gate.grant(&last);
    gate.books
        .settle(&last, id, &usd(0), true, last.now_ms, &LEVELS);
    gate.turn(&by("grandchild 4", 2), &usd(0));
    for _ in 13..40 {
        gate.turn(&by("root", 0), &usd(0));
    }
    let denied = gate.deny(&by("child 1", 1));
    assert_eq!((denied.cap, denied.spent), (Cap::Turns, 40));
}

#[test]
fn d11_d15_attempts_count_by_what_they_used_and_only_the_answer_is_a_turn() {
    let limits = Limits {
        turns: Some(2),
        usd_pico: Some(USD),
        ..Limits::default()
    };
    let one = ask(limits, usd(USD / 10));
    let mut gate = Gate::new();
    // Refused by the upstream, cut, refused: not answered.
    for _ in 0..4 {
        gate.turn(&one, &Amounts::default());
    }
    assert_eq!(gate.figures(&one, Cap::Turns), (0, 0));
    // An attempt whose usage nobody knows is booked with what it held.
    let unknown = Amounts {
        turns: 0,
        ..one.most
    };
    gate.turn(&one, &unknown);
    gate.turn(&one, &usd(360_000_000));
    assert_eq!(gate.figures(&one, Cap::Turns), (1, 0));
    assert_eq!(gate.figures(&one, Cap::Usd), (USD / 10 + 360_000_000, 0));
}

#[test]
fn d13_an_unattended_run_stops_at_its_hour_and_tells_each_level_once() {
    let limits = Limits {
        wall_ms: Some(3_600_000),
        turns: Some(200),
        usd_pico: Some(5 * USD),
        ..Limits::default()
    };
    let mut gate = Gate::new();
    let mut heard = Vec::new();
    for minute in 0..70 {
        let mut one = ask(limits, usd(USD * 30 / 100));
        one.now_ms += minute * MINUTE;
        let (id, answer) = gate.ask(&one);
        let (passed, crossings) = match answer {
            Answer::Granted { crossings, .. } => (true, crossings),
            Answer::Denied { denied, crossings } => {
                assert_eq!(denied.cap, Cap::WallTime);
                assert_eq!(i64::try_from(denied.spent).unwrap(), minute * MINUTE);
                (false, crossings)
            }
            Answer::Unknown(scopes) => panic!("{scopes:?}"),
        };
        assert_eq!(passed, minute < 60, "minute {minute}");
        heard.extend(crossings.into_iter().map(|c| (minute, c.cap, c.level)));
        if passed {
            let crossings = gate.settle(&one, id, &usd(USD * 4 / 100));
            heard.extend(crossings.into_iter().map(|c| (minute, c.cap, c.level)));
        }
    }
    assert_eq!(
        heard,
        [
            (30, Cap::WallTime, 50),
            (48, Cap::WallTime, 80),
            (60, Cap::WallTime, 100),
        ]
    );
}

#[test]
fn d13_money_is_told_at_the_request_that_crosses_a_level_and_stops_at_the_cap() {
    let limits = Limits {
        usd_pico: Some(5 * USD),
        ..Limits::default()
    };
    let one = ask(limits, Amounts::default());
    let mut gate = Gate::new();
    let mut heard = Vec::new();
    for n in 1..=125 {
        let id = gate.grant(&one);
        let crossings = gate.settle(&one, id, &usd(USD * 4 / 100));
        heard.extend(crossings.into_iter().map(|c| (n, c.level, c.value)));
    }
    assert_eq!(
        heard,
        [
            (63, 50, USD * 252 / 100),
            (100, 80, USD * 4),
            (125, 100, USD * 5),
        ]
    );
    let (_, answer) = gate.ask(&one);
    let Answer::Denied { crossings, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(crossings, []);
}

#[test]
fn d13_a_run_that_goes_on_after_a_restart_has_spent_what_it_had_and_hears_no_level_again() {
    let limits = Limits {
        usd_pico: Some(5 * USD),
        wall_ms: Some(3_600_000),
        ..Limits::default()
    };
    let one = ask(limits, usd(USD / 10));
    let mut gate = Gate::new();
    let spent = Amounts {
        turns: 70,
        pico: USD * 39 / 10,
        ..Amounts::default()
    };
    // 60 % of the time, 78 % of the money.
    let first = one.now_ms - 36 * MINUTE;
    gate.books
        .open(run("r"), &spent, Some(first), one.now_ms)
        .unwrap();
    let (id, answer) = gate.ask(&one);
    let Answer::Granted { crossings, left } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(crossings, []);
    assert_eq!(left[0].1.wall_ms, Some(24 * 60_000));
    assert_eq!(left[0].1.usd_pico, Some(USD));
    let crossings = gate.settle(&one, id, &usd(USD / 10));
    assert_eq!(told(&crossings), [(Cap::Usd, 80)]);
}
