//! What was saved.

use super::*;
use crate::store::{Compared, DryRun};

fn with(run: &str, n: u32, policy: &'static str, cost_pico: Option<u64>) -> TurnRecord {
    let mut one = turn(run, n);
    one.cache.policy = Some(policy);
    one.cost_pico = cost_pico;
    one
}

fn compared(turns: Vec<TurnRecord>) -> Vec<Compared> {
    let (_dir, mut store) = store();
    write(&mut store, turns);
    store.savings(&ALL).unwrap().compared
}

#[test]
fn runs_left_alone_are_compared_with_those_that_were_not() {
    let mut turns = Vec::new();
    for run in 0..5 {
        for n in 1..=2 {
            turns.push(with(&format!("alone {run}"), n, "holdout", Some(400)));
            turns.push(with(&format!("filled {run}"), n, "fill", Some(100)));
        }
    }
    turns.push(with("off", 1, "off", Some(9_999)));
    let found = compared(turns.clone());
    assert_eq!(found.len(), 1);
    let one = &found[0];
    assert_eq!(
        (one.app.as_deref(), one.model.as_deref()),
        (Some("review"), Some("model-1"))
    );
    assert_eq!((one.holdout.runs, one.holdout.turns), (5, 10));
    assert_eq!((one.inserted.runs, one.inserted.turns), (5, 10));
    assert_eq!(one.holdout.per_turn(), Some(400));
    // 100 prompt tokens a turn.
    assert_eq!(one.holdout.per_thousand(), Some(4_000));
    assert_eq!(one.inserted.per_thousand(), Some(1_000));
    assert_eq!(one.inserted.hit_ratio(), Some(0.3));
    assert_eq!(one.saving(), Some((3_000, 0.75)));
    // What the helper sent for the filled runs is a part of their cost, and no prompt of theirs.
    let mut own = with("filled 1", 0, "fill", Some(1_000));
    own.kind = RequestKind::KeepWarm;
    turns.push(own);
    let found = compared(turns);
    assert_eq!(found[0].inserted.turns, 10);
    assert_eq!(found[0].inserted.per_thousand(), Some(2_000));
}

#[test]
fn too_few_runs_say_nothing_and_unpriced_turns_are_left_out() {
    let mut turns: Vec<_> = (0..5)
        .map(|run| with(&format!("filled {run}"), 1, "replace", Some(100)))
        .collect();
    turns.extend((0..4).map(|run| with(&format!("alone {run}"), 1, "holdout", Some(400))));
    turns.push(with("alone 0", 2, "holdout", None));
    let mut other = with("other", 1, "fill", Some(1));
    other.app = Some("no hold-out here".into());
    turns.push(other);
    let found = compared(turns);
    assert_eq!(found.len(), 1);
    let one = &found[0];
    assert!(!one.enough());
    assert_eq!(one.saving(), None);
    let alone = one.holdout;
    assert_eq!((alone.runs, alone.turns, alone.unpriced), (4, 5, 1));
    assert_eq!(alone.per_turn(), Some(400));
}

#[test]
fn helpers_and_dry_runs() {
    let (_dir, mut store) = store();
    let helped = |n, helper, tokens, pico| {
        let mut one = turn("r", n);
        one.cache.helper = Some(helper);
        (one.cache.helper_tokens, one.cache.helper_pico) = (tokens, pico);
        one
    };
    let mut own = helped(0, "keep_warm", None, Some(-50));
    own.kind = RequestKind::KeepWarm;
    own.cost_pico = Some(50);
    let mut planned = with("dry", 1, "dry-run", Some(1));
    planned.dry_run = true;
    let mut nothing = with("dry", 2, "dry-run", Some(1));
    nothing.dry_run = true;
    nothing.markers_added.clear();
    write(
        &mut store,
        [
            helped(1, "keep_warm", Some(10_000), Some(300)),
            own,
            helped(2, "tool_order", Some(7), None),
            planned,
            nothing,
        ],
    );
    let found = store.savings(&ALL).unwrap();
    let warm = &found.helpers[0];
    assert_eq!(
        (warm.helper.as_str(), warm.requests, warm.own_requests),
        ("keep_warm", 2, 1)
    );
    assert_eq!(
        (warm.pico.total(), warm.own_cost.total()),
        (Some(250), Some(50))
    );
    let order = &found.helpers[1];
    assert_eq!(
        (order.helper.as_str(), order.pico.total()),
        ("tool_order", None)
    );
    assert_eq!(
        (order.tokens.total(), order.own_cost.total()),
        (Some(7), Some(0))
    );
    let dry_run = DryRun {
        turns: 2,
        turns_planned: 1,
        markers: 2,
    };
    assert_eq!(found.dry_run, dry_run);
    assert_eq!((found.totals.turns, found.totals.keep_warm), (4, 1));
    assert_eq!(found.compared, []);
}
