//! SQLite and ClickHouse after real traffic: the demo's agents through the real gateway, read back from
//! both; and the commands that ask them.

use std::path::Path;
use std::process::Command;

use prefixgate::config;
use prefixgate::sim::agents::Agent;
use prefixgate::sim::{Options, Sim};
use prefixgate::store::{ClickHouseAnswers, ClickHouseSink, Filter, Questions as _, Sqlite};
use prefixgate::trace::{CallStatus, EventKind, EventRecord, ToolCallRecord, intern};
use uuid::Uuid;

use crate::clickhouse::answers::Both;
use crate::remotes::delivered;
use crate::support::upstream::{json, message};
use crate::support::{ClickHouse, Gateway, Upstream, Wire, ask, eventually, secure};

fn to(url: &str, more: &str) -> String {
    format!("[clickhouse]\nurl = \"{url}\"\ndatabase = \"kept\"\nbatch_wait = \"20ms\"\n{more}")
}

async fn play(gateway: &Gateway, run: &str, change: impl FnOnce(&mut Agent)) {
    let mut agent = Agent::new(run);
    change(&mut agent);
    agent.run(&gateway.url()).await.unwrap();
}

/// What the program prints; it must succeed.
fn printed(args: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    let output = command
        .args(args)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    // When it was asked.
    let lines = text.lines().filter(|line| !line.contains("\"now\": "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Tool calls and events as they stand in the file, without any code of the program.
fn in_file(data: &Path, run: &str) -> (Vec<ToolCallRecord>, Vec<EventRecord>) {
    let connection = rusqlite::Connection::open(data.join("prefixgate.db")).unwrap();
    let known = |value: Option<i64>| value.map(|v| u64::try_from(v).unwrap());
    let mut calls = connection
        .prepare(
            "SELECT turn_id, run_id, thread_id, call_id, name, input_hash, input_bytes, asked_ms, \
                status, latency_ms, result_bytes, wrong, retries FROM tool_calls \
            WHERE run_id = ? ORDER BY asked_ms, turn_id, call_id",
        )
        .unwrap();
    let calls = calls.query_map([run], |row| {
        Ok(ToolCallRecord {
            turn_id: Uuid::from_bytes(row.get(0)?),
            run_id: row.get(1)?,
            thread_id: row.get(2)?,
            call_id: row.get(3)?,
            name: row.get(4)?,
            input_hash: row.get(5)?,
            input_bytes: known(row.get(6)?).unwrap(),
            asked_ms: row.get(7)?,
            status: CallStatus::from_word(row.get_ref(8)?.as_str()?).unwrap(),
            latency_ms: known(row.get(9)?),
            result_bytes: known(row.get(10)?),
            wrong: row.get::<_, Option<String>>(11)?.as_deref().map(intern),
            retries: row.get(12)?,
        })
    });
    let calls = calls.unwrap().map(Result::unwrap).collect();
    let mut events = connection
        .prepare(
            "SELECT id, at_ms, kind, name, run_id, thread_id, turn_id, app, scope, action, value, \
                limit_value, level, pico, tools FROM events WHERE run_id = ? ORDER BY at_ms, id",
        )
        .unwrap();
    let events = events.query_map([run], |row| {
        Ok(EventRecord {
            id: Uuid::from_bytes(row.get(0)?),
            at_ms: row.get(1)?,
            kind: EventKind::from_word(row.get_ref(2)?.as_str()?).unwrap(),
            name: row.get(3)?,
            run_id: row.get(4)?,
            thread_id: row.get(5)?,
            turn_id: row.get::<_, Option<[u8; 16]>>(6)?.map(Uuid::from_bytes),
            app: row.get(7)?,
            scope: row.get(8)?,
            action: row.get(9)?,
            value: known(row.get(10)?),
            limit: known(row.get(11)?),
            level: row.get(12)?,
            pico: known(row.get(13)?),
            tools: serde_json::from_str(row.get_ref(14)?.as_str()?).unwrap(),
        })
    });
    (calls, events.unwrap().map(Result::unwrap).collect())
}

/// The demo's agents, the gateway first without and then with its breakpoints.
async fn demo(engine: &ClickHouse) -> Gateway {
    let sim = Sim::start(Options::default()).unwrap();
    let config = to(&engine.url(), "[caps.run]\nturns = 14\n");
    let mut gateway = Gateway::with(&sim.base_url(), &config, &["--cache", "off"]);
    play(&gateway, "no-markers-off", |_| {}).await;
    gateway.signal("TERM");
    gateway.ended().await;
    let gateway = gateway.restart(&sim.base_url(), &config, &["--cache", "fill"]);
    play(&gateway, "no-markers-fill", |_| {}).await;
    play(&gateway, "prefix-breaker", |agent| {
        agent.clock_in_system = true
    })
    .await;
    // Into the cap, which refuses the fifteenth turn.
    let mut stuck = Agent::new("long-loop");
    (stuck.stuck, stuck.tool_turns) = (true, 15);
    stuck.run(&gateway.url()).await.unwrap_err();
    let short = |agent: &mut Agent| {
        agent.app = agent.run.clone();
        agent.tool_turns = 4;
    };
    tokio::join!(
        play(&gateway, "left", short),
        play(&gateway, "right", short)
    );
    let gateway = delivered(gateway).await;
    sim.shutdown().await;
    gateway
}

#[test]
fn the_demos_traffic_is_the_same_in_both_stores_record_by_record_and_answer_by_answer() {
    let engine = ClickHouse::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let gateway = runtime.block_on(demo(&engine));
    let data = gateway.data();
    let sqlite = Sqlite::open_read(&data).unwrap();
    let settings = engine.settings("kept");
    let sink = ClickHouseSink::new(&settings);

    let all = Filter::all(usize::MAX);
    let runs = sqlite.runs(&all).unwrap();
    assert_eq!(runs.len(), 6);
    let (mut turns, mut calls, mut events, mut cost) = (0, 0, 0, 0);
    for run in &runs {
        let kept = sqlite.turns(&run.id, &all, true).unwrap();
        let told = runtime.block_on(sink.turns(&run.id, 10_000)).unwrap();
        assert_eq!(told, kept, "turns of {}", run.id);
        let (calls_kept, events_kept) = in_file(&data, &run.id);
        let told = runtime.block_on(sink.calls(&run.id, 10_000)).unwrap();
        assert_eq!(told, calls_kept, "calls of {}", run.id);
        let told = runtime.block_on(sink.events(&run.id, 10_000)).unwrap();
        assert_eq!(told, events_kept, "events of {}", run.id);
        turns += kept.len();
        calls += calls_kept.len();
        events += events_kept.len();
        cost += kept
            .iter()
            .filter_map(|t| t.cost_pico)
            .map(u128::from)
            .sum::<u128>();
    }
    // 3 x 12 turns, 14 and what the cap refused, 2 x 5.
    assert!(
        turns >= 61 && calls > 50 && events >= 2,
        "{turns} {calls} {events}"
    );
    for (view, n) in [("turns", turns), ("tool_calls", calls)] {
        let there = engine.query(&format!("SELECT count() FROM kept.{view}"));
        assert_eq!(there, n.to_string(), "{view}");
    }
    let sums = ["turns", "turns_by_hour"].map(|view| {
        engine.query(&format!(
            "SELECT sum(toUInt128(ifNull(cost_pico, 0))) FROM kept.{view}"
        ))
    });
    assert_eq!(sums, [cost.to_string(), cost.to_string()]);

    let clickhouse = ClickHouseAnswers::open(&settings).unwrap();
    let mut both = Both::of(sqlite, clickhouse);
    let started = runs.iter().map(|run| run.started_ms);
    let since_ms = started.clone().max();
    for filter in [
        all.clone(),
        Filter {
            since_ms,
            ..all.clone()
        },
        Filter {
            until_ms: since_ms,
            limit: 2,
            ..all.clone()
        },
        Filter {
            app: Some("left".into()),
            ..all.clone()
        },
        Filter {
            run: Some("prefix-breaker".into()),
            ..all
        },
    ] {
        both.all_alike(&filter);
    }
    commands_print_the_same(&engine, &data);
}

fn commands_print_the_same(engine: &ClickHouse, data: &Path) {
    let data_dir = data.display().to_string();
    let url = format!("{}/kept", engine.url());
    let file = data.join("asked.toml");
    std::fs::write(&file, to(&engine.url(), "")).unwrap();
    let file = file.display().to_string();
    for line in [
        "report runs",
        "report turns --run no-markers-fill",
        "report turns --run long-loop --all --limit 5",
        "report tree --run left",
        "report spend --by day --tz Asia/Kathmandu",
        "report spend --by hour --tz Europe/Berlin",
        "report spend --by app",
        "report savings",
        "report loops",
        "report caps",
        "report tools",
        "audit",
        "audit --by run --limit 3",
        "audit --by day --app demo --tz Europe/Berlin",
    ] {
        for json in [false, true] {
            let mut args: Vec<&str> = line.split(' ').collect();
            if json {
                args.push("--json");
            }
            let with = |more: &[&str], env: &[(&str, &str)]| {
                let all = [args.as_slice(), more].concat();
                printed(&all, env)
            };
            let kept = with(&["--data-dir", &data_dir], &[]);
            assert!(kept.len() > 40, "{line}: {kept}");
            assert_eq!(with(&["--clickhouse", &url], &[]), kept, "{line}");
            if line == "report runs" || line == "audit" {
                let store = ["--store", "clickhouse", "--config", &file];
                assert_eq!(with(&store, &[]), kept, "{line}");
                let env = [("PREFIXGATE_CLICKHOUSE", url.as_str())];
                assert_eq!(with(&["--store", "clickhouse"], &env), kept, "{line}");
            }
        }
    }
    let mut misused = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    let misused = misused.args(["audit", "--store", "sqlite", "--clickhouse", &url]);
    let output = misused.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// A company's own authority is trusted for ClickHouse as for upstreams, by the gateway and by the
/// commands; and nobody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clickhouse_behind_tls_is_trusted_by_the_extra_authority_only() {
    const USAGE: &str = r#"{"input_tokens":1000,"output_tokens":100,"cache_read_input_tokens":0,"cache_creation_input_tokens":0}"#;
    let engine = ClickHouse::with_login("gate", "hush");
    let (url, ca) = secure::before(engine.address()).await;
    let upstream = Upstream::answering(json(200, &message("claude-sonnet-5", USAGE))).await;
    let trusted = format!(
        "user = \"gate\"\npassword = \"hush\"\n[tls]\nextra_ca = \"{}\"\n",
        ca.path().display()
    );
    let gateway = Gateway::with(&upstream.url(), &to(&url, &trusted), &[]);
    let body = ask("claude-sonnet-5", false);
    let headers = ["x-api-key: k", "x-prefixgate-run: secret"];
    let reply = Wire::exchange(gateway.proxy, "/v1/messages", &headers, body.as_bytes()).await;
    assert_eq!(reply.status, 200);
    eventually("the row", async || {
        let found = engine.try_query("SELECT count() FROM kept.turns");
        (found.as_deref() == Ok("1")).then_some(())
    })
    .await;
    let gateway = delivered(gateway).await;

    let file = gateway.data().join("asked.toml");
    let path = file.display().to_string();
    let asked = [
        "report",
        "turns",
        "--run",
        "secret",
        "--store",
        "clickhouse",
        "--config",
        &path,
    ];
    std::fs::write(&file, to(&url, &trusted)).unwrap();
    let told = printed(&asked, &[]);
    let data = gateway.data().display().to_string();
    assert_eq!(
        told,
        printed(
            &["report", "turns", "--run", "secret", "--data-dir", &data],
            &[]
        )
    );

    // The password by the environment; and without the authority.
    std::fs::write(&file, to(&url, "user = \"gate\"\n")).unwrap();
    let hush = [("PREFIXGATE_CLICKHOUSE_PASSWORD", "hush")];
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    let output = command.args(asked).envs(hush).output().unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("ClickHouse at https://localhost") && !errors.contains("hush"),
        "{errors}"
    );
    let with_ca = format!(
        "user = \"gate\"\n[tls]\nextra_ca = \"{}\"\n",
        ca.path().display()
    );
    std::fs::write(&file, to(&url, &with_ca)).unwrap();
    assert_eq!(printed(&asked, &hush), told);

    // The client alone, with settings of its own.
    let mut settings = config::ClickHouse::at(url);
    (settings.user, settings.password) = (Some("gate".into()), Some("hush".into()));
    assert!(ClickHouseSink::new(&settings).prepare().await.is_err());
}
