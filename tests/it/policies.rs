//! The workloads of `tests/bench/policies` in short form.

#[path = "../bench/policy/mod.rs"]
mod policy;

use crate::support::client;
use policy::{Outcome, POLICIES, workloads};

#[tokio::test(flavor = "multi_thread")]
async fn no_simple_policy_is_cheaper_than_ours_on_any_workload() {
    let at = |name: &str| POLICIES.iter().position(|policy| *policy == name).unwrap();
    let (none, automatic) = (at("none"), at("automatic"));
    let (fill, optimum) = (at("fill"), at("optimum"));
    let mut all = [Outcome::default(); 6];
    for work in workloads::all(true) {
        let outcomes = policy::measure(&work).await;
        let usd = |policy: usize| outcomes[policy].usd();
        let simple = usd(none).min(usd(automatic));
        assert!(
            usd(fill) <= simple * 1.01,
            "{}: ${} instead of ${simple}",
            work.name,
            usd(fill)
        );
        let ratio = outcomes[fill].hit_ratio();
        assert!(!work.long_loop || ratio >= 0.97, "{}: {ratio}", work.name);
        for (sum, outcome) in all.iter_mut().zip(&outcomes) {
            assert_eq!(outcome.refused, 0, "{}", work.name);
            assert_eq!(
                outcome.tally.prompt(),
                outcomes[none].tally.prompt(),
                "{}: every policy sends the same",
                work.name
            );
            sum.add(outcome);
        }
    }
    // Short sessions have less time to learn in than those of the whole bench, where it is 3 %:
    // the first long pause, and orders of tools that come back, weigh more here.
    let over = all[fill].usd() / all[optimum].usd();
    assert!((0.999..1.10).contains(&over), "{over}");
}
