use proptest::prelude::*;

use super::*;
use crate::prompt_cache::strategies::tests::{mark, request};
use crate::prompt_cache::strategies::{Policy, Recorded, replay, simulate};
use crate::prompt_cache::trail::Mark;

/// All choices of markers of a request with so many blocks that the provider takes.
fn choices(blocks: u32) -> Vec<Vec<Mark>> {
    let mut all = vec![Vec::new()];
    for at in 0..blocks {
        let mut longer = Vec::new();
        for chosen in &all {
            for ttl in [Ttl::M5, Ttl::H1] {
                let short_before = chosen.iter().any(|m: &Mark| m.ttl == Some(Ttl::M5));
                if chosen.len() < 4 && !(ttl == Ttl::H1 && short_before) {
                    let mut chosen: Vec<Mark> = chosen.clone();
                    chosen.push(mark(at, ttl));
                    longer.push(chosen);
                }
            }
        }
        all.extend(longer);
    }
    all
}

/// The cheapest of all choices of all requests.
fn brute_force(traffic: &Traffic) -> u128 {
    cheapest_of_all(traffic, |_| true)
}

/// Each piece is always written for the same lifetime, and for none longer than the one before it.
fn without_flips(traffic: &Traffic, tallies: &[Tally]) -> bool {
    let mut lifetimes = vec![None; traffic.nodes()];
    let mut pairs = Vec::new();
    for (request, tally) in traffic.requests().iter().zip(tallies) {
        let hour = tally.read + tally.write_1h;
        for (at, position) in request.positions.iter().enumerate() {
            let written = match position.upto {
                upto if upto <= tally.read => None,
                upto if upto <= hour => Some(Ttl::H1),
                upto if upto <= hour + tally.write_5m => Some(Ttl::M5),
                _ => None,
            };
            let known = &mut lifetimes[position.node as usize];
            if written.is_some() && known.is_some() && *known != written {
                return false;
            }
            *known = known.or(written);
            if let Some(before) = at.checked_sub(1) {
                pairs.push((request.positions[before].node, position.node));
            }
        }
    }
    pairs.iter().all(|(before, behind)| {
        lifetimes[*before as usize] != Some(Ttl::M5) || lifetimes[*behind as usize] != Some(Ttl::H1)
    })
}

/// The cheapest of those choices that are allowed.
fn cheapest_of_all(traffic: &Traffic, allowed: impl Fn(&[Tally]) -> bool) -> u128 {
    let options: Vec<_> = traffic
        .requests()
        .iter()
        .map(|r| choices(u32::try_from(r.recorded.trail.steps.len()).unwrap()))
        .collect();
    let mut chosen = vec![0; options.len()];
    let mut least = u128::MAX;
    loop {
        let mut turn = 0;
        let tallies = simulate(traffic, |_, _| {
            turn += 1;
            options[turn - 1][chosen[turn - 1]].clone()
        });
        if total(&tallies) < least && allowed(&tallies) {
            least = total(&tallies);
        }
        let Some(next) = (0..chosen.len()).find(|i| chosen[*i] + 1 < options[*i].len()) else {
            return least;
        };
        chosen[next] += 1;
        chosen[..next].fill(0);
    }
}

fn total(tallies: &[Tally]) -> u128 {
    tallies.iter().map(|tally| tally.cost_pico).sum()
}

/// Gaps around the lifetimes and the begin of answers.
fn gap() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just(400),
        Just(30_000),
        Just(240_000),
        Just(400_000),
        Just(2_000_000),
        Just(4_000_000),
    ]
}

/// A few requests with one to three blocks out of a small alphabet, so that many share a front.
fn anything() -> impl Strategy<Value = Vec<Recorded>> {
    let blocks = prop::collection::vec((0..2_u64, 1..4_u32), 1..4);
    let requests = prop::collection::vec((gap(), blocks, 0..2_u32), 1..4);
    (requests, 0..4_u32).prop_map(|(requests, min)| {
        let mut at = 0;
        let one = |(gap, blocks, thread): (i64, Vec<(u64, u32)>, u32)| {
            at += gap;
            // The same prefix always has the same size.
            let blocks: Vec<_> = blocks
                .iter()
                .map(|(hash, _)| (*hash, 100 + *hash as u32))
                .collect();
            Recorded {
                min_tokens: Some(min * 40),
                ..request(at, thread, &blocks)
            }
        };
        requests.into_iter().map(one).collect()
    })
}

/// One conversation that goes on, over three requests.
fn growth(
    gap: impl Strategy<Value = i64>,
    front: std::ops::Range<u32>,
    new: std::ops::Range<u32>,
) -> impl Strategy<Value = Vec<Recorded>> {
    let sizes = (front, new.clone(), new);
    (prop::collection::vec(gap, 3), sizes).prop_map(|(gaps, (a, b, c))| {
        let blocks = [(1, a), (2, b), (3, c)];
        let mut at = 0;
        let one = |(turn, gap): (usize, i64)| {
            at += gap;
            request(at, 0, &blocks[..=turn])
        };
        gaps.into_iter().enumerate().map(one).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_choice_of_markers_is_cheaper(requests in anything()) {
        let traffic = Traffic::new(requests);
        let best = optimum_with_flips(&traffic);
        prop_assert!(total(&best) <= brute_force(&traffic));
        let steady = optimum(&traffic);
        prop_assert!(total(&best) <= total(&steady));
        let least = cheapest_of_all(&traffic, |tallies| without_flips(&traffic, tallies));
        prop_assert!(total(&steady) <= least, "{} {}", total(&steady), least);
        for (tally, request) in best.iter().chain(&steady).zip(traffic.requests().iter().cycle()) {
            prop_assert_eq!(tally.prompt(), request.tokens);
        }
    }

    #[test]
    fn a_conversation_that_goes_on_reaches_the_bound(
        requests in growth(prop_oneof![0..290_000_i64, Just(4_000_000)], 1..500, 1..500),
    ) {
        let traffic = Traffic::new(requests);
        prop_assert_eq!(total(&optimum_with_flips(&traffic)), brute_force(&traffic));
        let least = cheapest_of_all(&traffic, |tallies| without_flips(&traffic, tallies));
        prop_assert_eq!(total(&optimum(&traffic)), least);
    }

    #[test]
    fn pauses_cost_little_more_than_the_bound(
        requests in growth(gap(), 5_000..9_000, 1..50),
    ) {
        let traffic = Traffic::new(requests);
        let bound = total(&optimum_with_flips(&traffic));
        let least = brute_force(&traffic);
        prop_assert!(bound <= least && least * 100 <= bound * 103, "{} {}", bound, least);
    }

    #[test]
    fn no_policy_is_cheaper(requests in prop::collection::vec(anything(), 1..8)) {
        let mut requests = requests.concat();
        let min = requests[0].min_tokens;
        requests.iter_mut().for_each(|request| request.min_tokens = min);
        let traffic = Traffic::new(requests);
        let best = total(&optimum_with_flips(&traffic));
        for policy in Policy::ALL {
            prop_assert!(best <= total(&replay(&traffic, policy)), "{:?}", policy);
        }
    }
}

#[test]
fn by_hand() {
    let minute = 60_000;
    let cost = |times: &[i64]| {
        let requests = times
            .iter()
            .map(|at| request(at * minute, 0, &[(1, 1_000)]));
        total(&optimum(&Traffic::new(requests.collect()))) / 1_000
    };
    assert_eq!(cost(&[0]), 1_000, "nobody reads it: not written");
    assert_eq!(cost(&[0, 4]), 1_250 + 100);
    assert_eq!(
        cost(&[0, 7]),
        2 * 1_000,
        "an hour costs more than twice the input"
    );
    assert_eq!(cost(&[0, 7, 14]), 2_000 + 200);
    assert_eq!(cost(&[0, 4, 8, 80]), 1_250 + 200 + 1_000);
    assert_eq!(
        cost(&[0, 0, 1]),
        1_250 + 1_000 + 100,
        "one of two at once writes"
    );
}

/// 2,000 requests of about 700 blocks: a matter of seconds also in a build for tests.
#[test]
fn a_long_series_takes_time_in_proportion() {
    let turns = 2_000;
    let blocks: Vec<(u64, u32)> = (0..700).map(|n| (n, 300)).collect();
    let requests = (0..turns).map(|turn| request(turn * 20_000, 0, &blocks));
    let traffic = Traffic::new(requests.collect());
    let begun = std::time::Instant::now();
    let best = optimum(&traffic);
    assert_eq!(best.len(), turns as usize);
    assert_eq!(best[1_999].read, 700 * 300);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}
