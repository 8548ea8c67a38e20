//! SQLite and ClickHouse answer every question alike, ClickHouse before any merge and with batches
//! that came twice.

use std::fmt::Debug;

use jiff::tz::TimeZone;
use prefixgate::store::{By, ClickHouseAnswers, CulpritBy, Filter, Questions, Sqlite, StoreError};
use prefixgate::trace::Sink as _;
use tempfile::TempDir;

use super::lifelike::{RUNS, at, entries};
use super::*;

const SEED: u64 = 20_261_201;
/// A moment by which some of what was written has outlived itself, and some has not.
const NOW: &str = "2026-03-29T12:00:00Z";

/// Two stores with the same records.
pub struct Both {
    sqlite: Sqlite,
    clickhouse: ClickHouseAnswers,
    compared: usize,
}

impl Both {
    pub fn of(sqlite: Sqlite, clickhouse: ClickHouseAnswers) -> Self {
        Self {
            sqlite,
            clickhouse,
            compared: 0,
        }
    }

    /// Delivers in batches, some of them more than once.
    fn filled(server: &ClickHouse, database: &str, entries: &[Entry]) -> (Self, TempDir) {
        let mut settings = server.settings(database);
        settings.retention_days = config::ClickHouse::MAX_RETENTION_DAYS;
        let mut sink = ClickHouseSink::new(&settings);
        let dir = tempfile::tempdir().unwrap();
        let mut sqlite = Sqlite::open(dir.path()).unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for (n, batch) in entries.chunks(500).enumerate() {
            sqlite.write(batch).unwrap();
            let mut deliver = |token: &str| runtime.block_on(sink.insert(token, batch)).unwrap();
            deliver(&format!("batch {n}"));
            // The server knows the one by its token; the other it stores again.
            match n % 3 {
                0 => deliver(&format!("batch {n}")),
                1 => deliver(&format!("batch {n}, moved over")),
                _ => {}
            }
        }
        let clickhouse = ClickHouseAnswers::open(&settings).unwrap();
        (Self::of(sqlite, clickhouse), dir)
    }

    /// Asks both and returns the answer.
    fn same<T: PartialEq + Debug>(
        &mut self,
        question: &str,
        filter: &Filter,
        ask: impl Fn(&dyn Questions) -> Result<T, StoreError>,
    ) -> T {
        let kept = ask(&self.sqlite).unwrap();
        let told = ask(&self.clickhouse).unwrap_or_else(|why| panic!("{question}: {why}"));
        self.compared += 1;
        if kept != told {
            let (kept, told) = (format!("{kept:#?}"), format!("{told:#?}"));
            let differs = kept.lines().zip(told.lines()).position(|(a, b)| a != b);
            let near = |text: &str| {
                let from = differs.unwrap_or(0).saturating_sub(30);
                let lines: Vec<_> = text.lines().skip(from).take(45).collect();
                lines.join("\n")
            };
            panic!(
                "{question} with {filter:?}\nSQLite:\n{}\nClickHouse:\n{}",
                near(&kept),
                near(&told)
            );
        }
        kept
    }

    /// Every question about a filter, and about each run.
    pub fn all_alike(&mut self, filter: &Filter) {
        let all = Filter::all(usize::MAX);
        let runs = self.same("all runs", &all, |s| s.runs(&all));
        self.same("runs", filter, |s| s.runs(filter));
        self.same("duplicates", filter, |s| s.duplicates(filter));
        self.same("agreement", filter, |s| s.agreement(filter));
        self.same("verdicts", filter, |s| s.verdicts(filter));
        self.same("savings", filter, |s| s.savings(filter));
        self.same("loops", filter, |s| s.loops(filter));
        self.same("caps", filter, |s| s.caps(filter));
        self.same("tools", filter, |s| s.tools(filter));
        for now in [NOW, "2025-10-26T02:00:00Z", "2030-01-01T00:00:00Z"] {
            let name = format!("unread at {now}");
            self.same(&name, filter, |s| s.unread(filter, at(now)));
        }
        let zones = ["UTC", "Europe/Berlin", "Asia/Kathmandu"];
        for zone in zones {
            let of = TimeZone::get(zone).unwrap();
            for by in [By::App, By::Model, By::Key, By::Upstream, By::Day, By::Hour] {
                if by.is_time() || zone == "UTC" {
                    let name = format!("spend by {by:?} in {zone}");
                    self.same(&name, filter, |s| s.spend(by, filter, &of));
                }
            }
            for by in [
                CulpritBy::Culprit,
                CulpritBy::Run,
                CulpritBy::App,
                CulpritBy::Day,
                CulpritBy::Client,
            ] {
                if by == CulpritBy::Day || zone == "UTC" {
                    let name = format!("culprits by {by:?} in {zone}");
                    self.same(&name, filter, |s| s.culprits(by, filter, &of));
                }
            }
        }
        for run in runs
            .iter()
            .map(|run| run.id.as_str())
            .step_by(2)
            .chain(["nobody's"])
        {
            let name = format!("tree of {run:?}");
            self.same(&name, filter, |s| s.tree(run, filter));
            for every_kind in [false, true] {
                let name = format!("turns of {run:?}, every kind: {every_kind}");
                self.same(&name, filter, |s| s.turns(run, filter, every_kind));
            }
        }
    }
}

fn filters() -> Vec<Filter> {
    let all = Filter::all(usize::MAX);
    let since = Some(at("2025-10-25T23:17:03Z"));
    let until = Some(at("2026-03-29T01:30:00Z"));
    let range = Filter {
        since_ms: since,
        until_ms: until,
        ..all.clone()
    };
    vec![
        Filter {
            limit: 3,
            ..all.clone()
        },
        Filter {
            app: Some("it's `an` \\app".into()),
            limit: 100,
            ..range.clone()
        },
        Filter {
            run: Some(RUNS[2].into()),
            ..all.clone()
        },
        Filter {
            run: Some(RUNS[1].into()),
            app: Some("review".into()),
            limit: 1,
            ..range.clone()
        },
        // Nothing at all.
        Filter {
            app: Some("nobody's".into()),
            ..all.clone()
        },
        Filter {
            since_ms: Some(i64::MIN),
            until_ms: Some(i64::MAX),
            ..all.clone()
        },
        range,
        all,
    ]
}

#[test]
fn both_stores_give_the_same_answer_to_every_question() {
    let server = ClickHouse::start();
    let records = entries(SEED, 3_000);
    let (mut both, _dir) = Both::filled(&server, "answers", &records);
    let doubled = server.query("SELECT count() - uniqExact(id) FROM answers.turns_raw");
    assert_ne!(doubled, "0");
    for filter in filters() {
        both.all_alike(&filter);
    }
    println!("{} answers compared", both.compared);

    // The records are worth asking: no question is about nothing.
    let all = Filter::all(usize::MAX);
    let store = &both.clickhouse;
    assert_eq!(store.runs(&all).unwrap().len(), RUNS.len());
    let hours = store
        .spend(By::Hour, &all, &TimeZone::get("Europe/Berlin").unwrap())
        .unwrap();
    let twice = |key: &str| {
        hours
            .iter()
            .filter(|h| h.key.as_deref() == Some(key))
            .count()
    };
    assert_eq!((twice("2025-10-26T02"), twice("2026-03-29T02")), (1, 0));
    let unread = store.unread(&all, at(NOW)).unwrap();
    assert!(
        unread.turns > 20 && unread.pending > 5 && unread.unattributed > 20,
        "{unread:?}"
    );
    assert!(store.duplicates(&all).unwrap().turns > 20);
    let agreement = store.agreement(&all).unwrap();
    assert!(
        agreement
            .agree
            .min(agreement.disagree)
            .min(agreement.not_comparable)
            > 20
    );
    let verdicts = store.verdicts(&all).unwrap();
    assert!(verdicts.by_status.len() > 3 && verdicts.unjudged.len() > 2);
    let savings = store.savings(&all).unwrap();
    assert!(savings.helpers.len() > 1 && savings.dry_run.markers > 10);
    assert!(
        savings
            .compared
            .iter()
            .any(|c| c.holdout.runs > 0 && c.inserted.runs > 0)
    );
    assert!(store.loops(&all).unwrap().len() > 10 && store.caps(&all).unwrap().len() > 10);
    let tools = store.tools(&all).unwrap();
    assert!(tools.len() > 3 && tools.iter().any(|t| t.p50_ms < t.p95_ms));
    let culprits = store
        .culprits(CulpritBy::Run, &all, &TimeZone::UTC)
        .unwrap();
    assert!(
        culprits
            .rows
            .iter()
            .any(|c| c.count > 1 && c.path.as_deref().is_some_and(|p| p.contains("[*]")))
    );
}

/// Sums beyond the integers of either store.
#[test]
fn sums_are_exact_beyond_the_largest_integer() {
    let server = ClickHouse::start();
    let mut dice = Dice::new(SEED);
    // Every number at the border of what SQLite can hold.
    let records: Vec<_> = (0..4).flat_map(|n| dice.entries(RUNS[n], 60)).collect();
    let (mut both, _dir) = Both::filled(&server, "borders", &records);
    for filter in [Filter::all(usize::MAX), Filter::all(2)] {
        both.all_alike(&filter);
    }
    let all = Filter::all(usize::MAX);
    let spend = both
        .clickhouse
        .spend(By::Upstream, &all, &TimeZone::UTC)
        .unwrap();
    let cost: i128 = spend.iter().filter_map(|s| s.totals.cost_pico).sum();
    assert!(cost > i128::from(u64::MAX));
}

#[test]
fn a_server_without_traces_or_with_other_ones_is_told_apart() {
    let server = ClickHouse::with_login("reader", "hush");
    let mut settings = server.settings("nothing");
    let open = |settings: &config::ClickHouse| ClickHouseAnswers::open(settings).map(|_| ());
    let why = |settings: &config::ClickHouse| open(settings).unwrap_err().to_string();
    let denied = why(&settings);
    assert!(
        denied.contains("[clickhouse] user and password"),
        "{denied}"
    );
    settings.user = Some("reader".into());
    settings.password = Some("hush".into());
    let nothing = why(&settings);
    assert!(
        nothing.contains("no traces in the database `nothing`"),
        "{nothing}"
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime
        .block_on(ClickHouseSink::new(&settings).prepare())
        .unwrap();
    open(&settings).unwrap();
    server.query("INSERT INTO nothing.schema_migrations (version, name, by) VALUES (99, 'x', 'y')");
    let newer = why(&settings);
    assert!(
        newer.contains("have schema 99") && newer.contains("use the newer"),
        "{newer}"
    );
    // Where others would have to wait.
    let inside = runtime.block_on(async { why(&settings) });
    assert!(inside.contains("must not wait"), "{inside}");
    settings.url = "http://127.0.0.1:9".into();
    let away = why(&settings);
    assert_eq!(
        away,
        "ClickHouse at http://127.0.0.1:9: the server cannot be reached"
    );
}
