//! The dashboards of the records, asked of ClickHouse's real engine: every query of every panel and
//! variable as Grafana and its data source send it, and sums that are exact for any range.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use prefixgate::store::Totals;
use prefixgate::store::clickhouse::MAX_RETENTION_DAYS;
use prefixgate::trace::{RequestKind, TurnRecord};
use serde_json::Value;

use crate::prometheus::dashboards::{boards, queries};
use crate::support::ClickHouse;
use expand::Chosen;
use records::{BEGIN, END, KEY};

mod expand;
mod records;

const HOUR: i64 = 3_600_000;

/// An answer: names and types of its columns, and its rows.
struct Answer {
    columns: Vec<(String, String)>,
    rows: Vec<Vec<Value>>,
}

impl Answer {
    fn column(&self, name: &str) -> Vec<&Value> {
        let place = self.columns.iter().position(|(column, _)| column == name);
        let place = place.unwrap_or_else(|| panic!("no {name} in {:?}", self.columns));
        self.rows.iter().map(|row| &row[place]).collect()
    }
}

struct Store {
    clickhouse: ClickHouse,
    boards: Vec<(String, Value)>,
}

impl Store {
    /// The records, each delivered twice, as after answers that were lost.
    async fn filled() -> Self {
        let clickhouse = ClickHouse::start();
        // The database that queries without one are about.
        let mut settings = clickhouse.settings("default");
        settings.retention_days = MAX_RETENTION_DAYS;
        let mut sink = prefixgate::store::ClickHouseSink::new(&settings);
        for (number, entries) in records::entries().chunks(150).enumerate() {
            for _ in 0..2 {
                let token = format!("spool-{number}");
                sink.insert(&token, entries).await.unwrap();
            }
        }
        Self {
            clickhouse,
            boards: boards("clickhouse"),
        }
    }

    fn try_ask(&self, query: &str, chosen: &Chosen) -> Result<Answer, String> {
        let sql = format!("{}\nFORMAT JSONCompact", chosen.expand(query));
        let text = self.clickhouse.try_query(&sql)?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let columns = answer["meta"].as_array().unwrap().iter().map(|column| {
            let word = |key: &str| column[key].as_str().unwrap().to_owned();
            (word("name"), word("type"))
        });
        let rows = answer["data"].as_array().unwrap().iter();
        Ok(Answer {
            columns: columns.collect(),
            rows: rows.map(|row| row.as_array().unwrap().clone()).collect(),
        })
    }

    fn ask(&self, whose: &str, query: &str, chosen: &Chosen) -> Answer {
        self.try_ask(query, chosen)
            .unwrap_or_else(|error| panic!("{whose}: {error}\n{}", chosen.expand(query)))
    }

    fn board(&self, name: &str) -> &Value {
        let found = self
            .boards
            .iter()
            .find(|(file, _)| file == &format!("{name}.json"));
        &found.unwrap().1
    }

    /// What a panel shows.
    fn panel(&self, board: &str, title: &str, chosen: &Chosen) -> Answer {
        let all = queries(self.board(board));
        let of_title: Vec<_> = all.iter().filter(|(panel, _)| *panel == title).collect();
        let [(_, target)] = of_title.as_slice() else {
            panic!("{board}: {} panels are called {title}", of_title.len());
        };
        self.ask(title, sql(target), chosen)
    }

    /// The one number of a panel, if there is one.
    fn number(&self, board: &str, title: &str, chosen: &Chosen) -> Option<f64> {
        self.panel(board, title, chosen).rows[0][0].as_f64()
    }
}

fn sql(target: &Value) -> &str {
    target["rawSql"].as_str().unwrap()
}

fn variable_queries(board: &Value) -> Vec<(&str, &str)> {
    let list = board["templating"]["list"].as_array().unwrap();
    list.iter()
        .filter(|variable| variable["type"] == "query")
        .map(|variable| (variable["name"].as_str().unwrap(), sql(&variable["query"])))
        .collect()
}

/// Ranges and choices that dashboards are looked at with.
fn choices() -> Vec<(&'static str, Chosen)> {
    let run = records::run(0);
    let all = |from, to, interval| {
        let chosen = Chosen::all(from, to, interval);
        chosen.with("run", &[&run]).with("zone", &["UTC"])
    };
    let long = all(BEGIN + 1_234, END, 3_600);
    vec![
        ("all of it", long.clone()),
        ("two days", all(BEGIN, BEGIN + 48 * HOUR, 120)),
        (
            "one of each",
            long.with("app", &["it's", "no\"body"])
                .with("model", &["claude-sonnet-5"])
                .with("upstream", &["anthropic"])
                .with("key", &[KEY])
                .with("zone", &["Asia/Kolkata"])
                .with("thread", &["agent-1", "main"])
                .with("turn", &[&records::turn_id(3)])
                .with("tool", &["Bash"]),
        ),
        (
            "without a name",
            all(BEGIN, END, 60)
                .with("app", &["(none)"])
                .with("key", &["(none)"]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_every_dashboard_returns_rows() {
    let store = Store::filled().await;
    let mut count = 0;
    for (file, board) in &store.boards {
        let targets = queries(board);
        let panels = targets.iter().map(|(title, target)| (*title, sql(target)));
        for (title, query) in panels.chain(variable_queries(board)) {
            count += 1;
            assert!(!query.contains("_raw"), "{file}: {title} asks a raw table");
            for (what, chosen) in choices() {
                let whose = format!("{file}: {title}, {what}");
                let answer = store.ask(&whose, query, &chosen);
                // A turn of another run or key is none of those that are chosen.
                let narrow = matches!(what, "one of each" | "without a name");
                assert!(narrow || !answer.rows.is_empty(), "{whose}: no rows");
            }
        }
    }
    assert!(count > 90, "{count}");

    // Nothing at all is an answer too.
    let before = Chosen::all(BEGIN - 900 * HOUR, BEGIN - 1, 3_600).with("zone", &["UTC"]);
    for (file, board) in &store.boards {
        for (title, target) in queries(board) {
            store.ask(&format!("{file}: {title}, empty"), sql(target), &before);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn panels_speak_of_columns_that_their_queries_have() {
    let store = Store::filled().await;
    let chosen = choices().remove(0).1;
    for (file, board) in &store.boards {
        for panel in board["panels"].as_array().unwrap() {
            let Some(target) = panel["targets"].get(0) else {
                continue;
            };
            let whose = format!("{file}: {}", panel["title"]);
            let answer = store.ask(&whose, sql(target), &chosen);
            let columns: BTreeSet<&str> = answer.columns.iter().map(|(n, _)| n.as_str()).collect();
            assert_eq!(columns.len(), answer.columns.len(), "{whose}: {columns:?}");
            let settings = &panel["fieldConfig"];
            for one in settings["overrides"].as_array().unwrap() {
                let name = one["matcher"]["options"].as_str().unwrap();
                assert!(columns.contains(name), "{whose}: there is no {name}");
            }
            let text = settings.to_string();
            for after in text.split("__data.fields.").skip(1) {
                let name = after.split(['}', ':']).next().unwrap();
                assert!(columns.contains(name), "{whose}: a link reads {name}");
            }
            for sorted in panel["options"]["sortBy"].as_array().into_iter().flatten() {
                assert!(
                    columns.contains(sorted["displayName"].as_str().unwrap()),
                    "{whose}"
                );
            }
            for (name, kind) in &answer.columns {
                // What else there is would be shown as JSON or as bytes.
                let plain = ["String", "Int", "Float", "DateTime", "Bool"];
                let listed = ["Array", "Tuple", "Map", "UUID", "Enum", "AggregateFunction"];
                assert!(
                    plain.iter().any(|word| kind.contains(word)),
                    "{whose}: {name} {kind}"
                );
                assert!(
                    listed.iter().all(|word| !kind.contains(word)),
                    "{whose}: {name} {kind}"
                );
            }
            if target["queryType"] == "timeseries" {
                assert_eq!(
                    (&target["format"], &panel["type"]),
                    (&0.into(), &"timeseries".into())
                );
                is_a_time_series(&whose, panel, &answer);
            } else {
                assert_eq!(target["format"], 1, "{whose}");
            }
        }
    }
}

/// A time first, in order; then what a series is called after, if anything; then numbers.
fn is_a_time_series(whose: &str, panel: &Value, answer: &Answer) {
    let (name, kind) = &answer.columns[0];
    assert!(
        name == "time" && kind.starts_with("DateTime"),
        "{whose}: {name} {kind}"
    );
    let times: Vec<_> = answer
        .column("time")
        .iter()
        .map(|t| t.as_str().unwrap())
        .collect();
    assert!(times.is_sorted(), "{whose}");
    let (labels, values): (Vec<_>, Vec<_>) = answer.columns[1..]
        .iter()
        .partition(|(_, kind)| kind.contains("String"));
    assert!(!values.is_empty(), "{whose}");
    let called = panel["fieldConfig"]["defaults"]["displayName"].as_str();
    match labels.as_slice() {
        [] => assert_eq!(called, None, "{whose}"),
        [(label, _)] => {
            let wanted = format!("${{__field.labels.{label}}}");
            assert_eq!(called, Some(wanted.as_str()), "{whose}");
            assert_eq!(values.len(), 1, "{whose}");
        }
        more => panic!("{whose}: {more:?}"),
    }
}

/// Ranges that sums by hour cannot give by themselves, and such as they can.
fn ranges() -> [(i64, i64); 6] {
    let day = 24 * HOUR;
    [
        (BEGIN, END),
        (BEGIN + day, BEGIN + 6 * day - 1),
        (BEGIN + 1_234_567, BEGIN + 7_654_321 + 5 * day),
        // A request begins at the first and at the last moment.
        (
            BEGIN + 3 * (47 * 60_000 + 1_234),
            BEGIN + 200 * (47 * 60_000 + 1_234),
        ),
        (BEGIN + 5 * HOUR + 1, BEGIN + 29 * HOUR),
        (BEGIN + 5 * HOUR + 1, BEGIN + 6 * HOUR - 1),
    ]
}

fn is_costly(turn: &TurnRecord) -> bool {
    matches!(turn.kind, RequestKind::Turn | RequestKind::KeepWarm)
}

fn totals<'a>(turns: impl IntoIterator<Item = &'a TurnRecord>) -> Totals {
    let mut totals = Totals::default();
    for turn in turns {
        totals.add(turn);
    }
    totals
}

/// Money as a panel shows it, in pico-USD again.
fn pico(usd: &Value) -> Option<i128> {
    Some((usd.as_f64()? * 1e12).round() as i128)
}

#[tokio::test(flavor = "multi_thread")]
async fn e06_e13_spend_is_exact_for_any_range_and_its_days_are_those_of_the_zone() {
    let store = Store::filled().await;
    let turns = records::turns();
    for (from, to) in ranges() {
        let chosen = Chosen::all(from, to, 60).with("zone", &["UTC"]);
        let within = |turn: &&TurnRecord| (from..=to).contains(&turn.started_ms);
        let wanted = totals(turns.iter().filter(within));
        let at = format!("{from} to {to}");
        assert!(wanted.requests > 0, "{at}");
        let money = |board: &str, title: &str| pico(&store.panel(board, title, &chosen).rows[0][0]);
        assert_eq!(money("spend", "Cost"), wanted.cost_pico, "{at}");
        assert_eq!(
            money("spend", "Saved by the cache"),
            wanted.saving_pico,
            "{at}"
        );
        assert_eq!(money("spend", "Lost"), Some(wanted.lost_pico), "{at}");
        // The explorer asks the records, and says the same.
        assert_eq!(money("runs", "Cost"), wanted.cost_pico, "{at}");
        for (board, title, number) in [
            ("spend", "Turns", wanted.turns),
            ("spend", "Unpriced", wanted.unpriced),
            ("runs", "Turns", wanted.turns),
            ("runs", "Errors", wanted.errors),
        ] {
            let shown = store.number(board, title, &chosen);
            assert_eq!(shown, Some(number as f64), "{at}: {board}, {title}");
        }
        let ratio = store.number("spend", "Cache-hit ratio", &chosen);
        let off = ratio.unwrap_or(0.0) - wanted.hit_ratio().unwrap_or(0.0);
        assert!(
            off.abs() < 1e-12 && ratio.is_some() == wanted.hit_ratio().is_some(),
            "{at}: {ratio:?}"
        );
        // Groups and intervals add up to it, whatever they are.
        for (title, name) in [
            ("Spend", "Cost"),
            ("Cost by application", "cost"),
            ("Cost by key", "cost"),
        ] {
            let answer = store.panel("spend", title, &chosen);
            let parts = answer.column(name).into_iter().filter_map(pico);
            assert_eq!(
                parts.sum::<i128>(),
                wanted.cost_pico.unwrap_or(0),
                "{at}: {title}"
            );
        }

        for zone in ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"] {
            let tz = TimeZone::get(zone).unwrap();
            let mut days: BTreeMap<String, Totals> = BTreeMap::new();
            for turn in turns.iter().filter(within).filter(|turn| is_costly(turn)) {
                let start = Timestamp::from_millisecond(turn.started_ms).unwrap();
                let day = start.to_zoned(tz.clone()).date().to_string();
                days.entry(day).or_default().add(turn);
            }
            let answer = store.panel("spend", "Days", &chosen.clone().with("zone", &[zone]));
            let shown: Vec<_> = answer
                .rows
                .iter()
                .map(|row| {
                    let day = row[0].as_str().unwrap().to_owned();
                    (day, pico(&row[1]), row[5].as_u64().unwrap())
                })
                .collect();
            let wanted: Vec<_> = days
                .into_iter()
                .rev()
                .map(|(day, totals)| (day, totals.cost_pico, totals.turns))
                .collect();
            assert_eq!(shown, wanted, "{at} in {zone}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_say_of_runs_threads_culprits_and_tools_what_the_records_say() {
    let store = Store::filled().await;
    let turns = records::turns();
    let chosen = choices().remove(0).1;

    let runs = store.panel("runs", "Runs", &chosen);
    let names = runs.column("Run");
    let costs = runs.column("Cost");
    assert_eq!(names.len(), 20);
    for (name, cost) in names.iter().zip(costs) {
        let of_run = turns
            .iter()
            .filter(|turn| name.as_str() == Some(&turn.run_id));
        assert_eq!(pico(cost), totals(of_run).cost_pico, "{name}");
    }

    // The sub-agent stands behind the agent that started it, set off from it.
    let threads = store.panel("run", "Threads", &chosen);
    let agents = threads.column("Agent");
    assert_eq!(threads.column("Thread"), ["main", "agent-1"]);
    assert_eq!(agents, ["agent", "\u{2003}reviewer"]);
    let calls: u64 = threads
        .column("Tool calls")
        .iter()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(calls, 26);

    let breaks: Vec<_> = turns
        .iter()
        .filter(|turn| turn.started_ms >= chosen.from)
        .filter(|turn| {
            turn.cache
                .verdict
                .as_ref()
                .is_some_and(|v| v.reason.is_some())
        })
        .cloned()
        .collect();
    let culprits = store.panel("culprits", "Culprits", &chosen);
    let lost: i128 = culprits.column("Lost").into_iter().filter_map(pico).sum();
    assert_eq!(lost, totals(&breaks).lost_pico);
    // Places of the conversation are one culprit, of each application.
    assert_eq!(culprits.column("Path"), ["messages[*].content[*]"; 3]);
    let count: u64 = culprits
        .column("Breaks")
        .iter()
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(count, breaks.len() as u64);

    let tools = store.panel("tools", "Tools", &chosen);
    for (at, ok) in tools.column("Ok").iter().enumerate() {
        let of = |name: &str| tools.column(name)[at].as_u64().unwrap();
        let parts = ["Failed", "Incomplete", "Unanswered", "Pending"].map(of);
        assert_eq!(
            ok.as_u64().unwrap() + parts.iter().sum::<u64>(),
            of("Calls")
        );
    }

    for name in ["Bash", "Read"] {
        let answer = store.panel("tools", "Calls", &chosen.clone().with("tool", &[name]));
        assert_eq!(answer.rows[0][0], turns.len(), "{name}");
    }
    let of_app = chosen
        .clone()
        .with("app", &["it's"])
        .with("model", &["gpt-6"]);
    let wanted = turns
        .iter()
        .filter(|turn| turn.app.as_deref() == Some("it's"));
    let wanted = wanted.filter(|turn| turn.model_requested.as_deref() == Some("gpt-6"));
    let calls = store.panel("tools", "Calls", &of_app);
    assert_eq!(calls.rows[0][0], wanted.count() * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_choice_is_what_sums_are_of() {
    type Is = fn(&TurnRecord) -> bool;
    let store = Store::filled().await;
    let turns = records::turns();
    let chosen = choices().remove(0).1;
    let cases: [(&'static str, &str, Is); 6] = [
        ("app", "it's", |turn| turn.app.as_deref() == Some("it's")),
        ("app", "(none)", |turn| turn.app.is_none()),
        ("model", "gpt-6", |turn| {
            turn.model_requested.as_deref() == Some("gpt-6")
        }),
        ("upstream", "anthropic", |turn| turn.upstream == "anthropic"),
        ("key", KEY, |turn| turn.credential.is_some()),
        ("key", "(none)", |turn| turn.credential.is_none()),
    ];
    for (variable, value, is) in cases {
        let narrow = chosen.clone().with(variable, &[value]);
        let within = turns
            .iter()
            .filter(|turn| turn.started_ms >= chosen.from && is(turn));
        let wanted = totals(within).cost_pico;
        for board in ["spend", "runs"] {
            let shown = store.panel(board, "Cost", &narrow);
            assert_eq!(
                pico(&shown.rows[0][0]),
                wanted,
                "{board}: {variable} {value}"
            );
        }
    }

    // What was chosen is quoted: it cannot add a condition.
    let wicked = chosen.clone().with("app", &["x') OR 1=1 OR ('' = '"]);
    assert!(store.panel("spend", "Spend", &wicked).rows.is_empty());
}
