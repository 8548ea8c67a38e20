//! ClickHouse as a store, on its real engine.

use std::collections::BTreeMap;

use prefixgate::config;
use prefixgate::store::clickhouse::{Failure, Range};
use prefixgate::store::{ClickHouseSink, Totals};
use prefixgate::trace::{CallStatus, Entry, TurnRecord};

use crate::support::ClickHouse;
use crate::support::clickhouse::{Fault, Proxy};
use records::{Dice, now_ms};

pub mod answers;
mod faults;
mod lifelike;
mod moving;
mod once;
mod records;
mod rows;
mod schema;

fn turns(entries: &[Entry]) -> Vec<TurnRecord> {
    let turns = entries.iter().filter_map(|entry| match entry {
        Entry::Turn(turn) => Some((**turn).clone()),
        _ => None,
    });
    turns.collect()
}

fn how_many(entries: &[Entry], of: fn(&Entry) -> bool) -> usize {
    entries.iter().filter(|entry| of(entry)).count()
}

/// What every shipped question must answer after `entries` were delivered, each once, however often
/// they were sent: counts and exact sums of the views, and the sums by hour.
fn assert_once(clickhouse: &ClickHouse, database: &str, entries: &[Entry]) {
    let ask = |sql: &str| clickhouse.query(&sql.replace("{db}", database));
    let turns = turns(entries);
    assert_eq!(ask("SELECT count(), uniqExact(id) FROM {db}.turns"), {
        let n = turns.len();
        format!("{n}\t{n}")
    });
    let calls = how_many(entries, |e| matches!(e, Entry::Call(_)));
    assert_eq!(
        ask("SELECT count() FROM {db}.tool_calls"),
        calls.to_string()
    );
    let events = how_many(entries, |e| matches!(e, Entry::Event(_)));
    assert_eq!(ask("SELECT count() FROM {db}.events"), events.to_string());
    let cost: u128 = turns
        .iter()
        .filter_map(|t| t.cost_pico)
        .map(u128::from)
        .sum();
    let sum = ask("SELECT sum(toUInt128(ifNull(cost_pico, 0))) FROM {db}.turns");
    assert_eq!(sum, cost.to_string());

    let mut totals = Totals::default();
    for turn in &turns {
        totals.add(turn);
    }
    let told = |n: Option<i128>| n.map_or("\\N".to_owned(), |n| n.to_string());
    let expected = [
        totals.requests.to_string(),
        totals.turns.to_string(),
        totals.errors.to_string(),
        totals.keep_warm.to_string(),
        totals.judged.to_string(),
        totals.breaks.to_string(),
        totals.breaks_unpriced.to_string(),
        totals.lost_pico.to_string(),
        totals.unpriced.to_string(),
        totals.incomplete.to_string(),
        totals.estimated.to_string(),
        told(totals.cost_pico),
        told(totals.cost_no_cache_pico),
        told(totals.saving_pico),
    ];
    let hours = ask(
        "SELECT sumIf(requests, kind = 'turn'), sum(turns), sum(errors), \
            sumIf(requests, kind = 'keep_warm'), sum(judged), sum(breaks), sum(breaks_unpriced), \
            sum(lost_pico), sum(unpriced), sum(incomplete), sum(estimated), sum(cost_pico), \
            sum(cost_no_cache_pico), \
            toInt128(sum(cost_no_cache_pico)) - toInt128(sum(compared_pico)) \
        FROM {db}.turns_by_hour",
    );
    assert_eq!(hours.split('\t').collect::<Vec<_>>(), expected);
    // Tokens may outgrow the program's own sums, which end at the largest integer.
    let counted = |t: &&TurnRecord| matches!(t.kind.as_str(), "turn" | "keep_warm");
    let sum = |of: fn(&TurnRecord) -> Option<u64>| -> u128 {
        let turns = turns.iter().filter(counted);
        turns.filter_map(of).map(u128::from).sum()
    };
    let tokens = [
        sum(|t| t.usage.uncached),
        sum(|t| t.usage.read),
        sum(|t| t.usage.write_5m),
        sum(|t| t.usage.write_1h),
        sum(|t| t.usage.output),
    ];
    let hours = ask(
        "SELECT sum(uncached), sum(read), sum(write_5m), sum(write_1h), sum(output) \
        FROM {db}.turns_by_hour",
    );
    let hours: Vec<u128> = hours.split('\t').map(|n| n.parse().unwrap_or(0)).collect();
    assert_eq!(hours, tokens);
}

/// What a failure says; the test fails when the batch is not to come again.
fn later(told: Result<(), Failure>) -> String {
    match told {
        Err(Failure::Later { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn sink_by_way_of(proxy: &Proxy, clickhouse: &ClickHouse, database: &str) -> ClickHouseSink {
    let mut settings = clickhouse.settings(database);
    settings.url = proxy.url();
    ClickHouseSink::new(&settings)
}
