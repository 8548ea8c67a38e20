//! Whatever is asked and settled in whatever order.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// A request on one to three of three scopes, and what becomes of it.
#[derive(Debug, Clone)]
struct Step {
    scopes: Vec<usize>,
    most: [u64; 4],
    /// Percent of `most` that it uses.
    used: u64,
    /// Which of those under way is settled before it; none if there is none.
    settle: Option<usize>,
    agent: u8,
    later_ms: i64,
}

fn step() -> impl Strategy<Value = Step> {
    (
        proptest::sample::subsequence(vec![0, 1, 2], 1..=3),
        proptest::array::uniform4(0..40_u64),
        0..=100_u64,
        proptest::option::weighted(0.7, 0..8_usize),
        0..5_u8,
        -1_000..30_000_i64,
    )
        .prop_map(|(scopes, most, used, settle, agent, later_ms)| Step {
            scopes,
            most,
            used,
            settle,
            agent,
            later_ms,
        })
}

fn limits() -> impl Strategy<Value = Limits> {
    let some = |range| proptest::option::of(range);
    (
        some(1..60_u64),
        some(0..400_u64),
        some(0..400_u64),
        some(0..600_u64),
        some(1..400_u64),
        proptest::option::of(1..5_u32),
        proptest::option::of(1..9_u32),
        proptest::option::of(1..4_u32),
    )
        .prop_map(
            |(turns, input_tokens, output_tokens, tokens, usd_pico, agents, rate, at_once)| {
                Limits {
                    turns,
                    input_tokens,
                    output_tokens,
                    tokens,
                    usd_pico,
                    agents,
                    requests_per_minute: rate,
                    concurrency: at_once,
                    ..Limits::default()
                }
            },
        )
}

const CAPS: [Cap; 5] = [
    Cap::Turns,
    Cap::InputTokens,
    Cap::OutputTokens,
    Cap::Tokens,
    Cap::Usd,
];

fn of(cap: Cap, amounts: &Amounts) -> u64 {
    match cap {
        Cap::Turns => amounts.turns,
        Cap::InputTokens => amounts.input,
        Cap::OutputTokens => amounts.output,
        Cap::Tokens => amounts.input + amounts.output,
        _ => amounts.pico,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn never_above_a_cap_never_lost_and_nothing_held_at_the_end(
        steps in proptest::collection::vec(step(), 1..80),
        limits in proptest::array::uniform3(limits()),
    ) {
        let names = ["a", "b", "c"].map(run);
        let mut gate = Gate::new();
        let mut now_ms = 1_796_083_200_000;
        let mut under_way: Vec<(Ask, u128, Amounts)> = Vec::new();
        // What an exact account of each scope would say.
        let mut spent: HashMap<Scope, Vec<Amounts>> = HashMap::new();
        let mut heard = Vec::new();
        for step in steps {
            now_ms += step.later_ms;
            if let Some(which) = step.settle && !under_way.is_empty() {
                let (ask, id, used) = under_way.remove(which % under_way.len());
                heard.extend(gate.settle(&ask, id, &used));
                for (scope, _) in &ask.scopes {
                    spent.entry(scope.clone()).or_default().push(used);
                }
            }
            let [turns, input, output, pico] = step.most;
            let most = Amounts { turns: turns.min(1), input, output, pico };
            let asked = Ask {
                scopes: step.scopes.iter().map(|n| (names[*n].clone(), limits[*n])).collect(),
                most,
                agent: step.agent.to_string(),
                depth: 0,
                now_ms,
            };
            match gate.ask(&asked) {
                (id, Answer::Granted { left, crossings }) => {
                    heard.extend(crossings);
                    let part = |n: u64| n * step.used / 100;
                    let used = Amounts {
                        turns: most.turns.min(part(100) / 50),
                        input: part(input),
                        output: part(output),
                        pico: part(pico),
                    };
                    for (scope, limits) in &asked.scopes {
                        for cap in CAPS {
                            let figures = gate.books.figures(scope, cap);
                            if let (Some(limit), Some((spent, held))) = (limits.of(cap), figures) {
                                prop_assert!(spent + held <= limit, "{cap:?}");
                            }
                        }
                    }
                    prop_assert!(left.iter().all(|(scope, _)| gate.books.has(scope)));
                    under_way.push((asked, id, used));
                }
                (_, Answer::Denied { denied, crossings }) => {
                    heard.extend(crossings);
                    prop_assert_eq!(denied.after_ms.is_some(), denied.cap.passes_later());
                    if CAPS.contains(&denied.cap) {
                        let all = denied.spent + denied.held + denied.asked;
                        prop_assert!(denied.spent >= denied.limit || all > denied.limit);
                    }
                }
                (_, other) => prop_assert!(false, "{:?}", other),
            }
            // Conservation: what the books say is what was used and what is under way.
            for scope in &names {
                for cap in CAPS {
                    let Some((booked, held)) = gate.books.figures(scope, cap) else {
                        continue;
                    };
                    let used: u64 = spent.get(scope).into_iter().flatten().map(|a| of(cap, a)).sum();
                    let open: u64 = under_way
                        .iter()
                        .filter(|(ask, ..)| ask.scopes.iter().any(|(s, _)| s == scope))
                        .map(|(ask, ..)| of(cap, &ask.most))
                        .sum();
                    prop_assert_eq!((booked, held), (used, open));
                }
            }
        }
        for (ask, id, used) in under_way {
            heard.extend(gate.settle(&ask, id, &used));
        }
        for scope in &names {
            for cap in CAPS {
                let held = gate.books.figures(scope, cap).map_or(0, |(_, held)| held);
                prop_assert_eq!(held, 0);
            }
        }
        // Each level once, in order.
        let mut last: HashMap<(Scope, Cap), u32> = HashMap::new();
        for crossing in heard {
            let before = last.insert((crossing.scope, crossing.cap), crossing.level);
            prop_assert!(before.is_none_or(|level| level < crossing.level));
        }
    }
}
