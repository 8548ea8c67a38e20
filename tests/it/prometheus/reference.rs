//! `dashboards/METRICS.md` says what `/metrics` exposes: no more, no less.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Replica, Scene};
use crate::support::eventually;
use crate::support::prometheus::root;

/// Type and labels of families by name.
pub type Families = BTreeMap<String, (String, BTreeSet<String>)>;

/// The cells of the rows of a Markdown table with so many columns, without head and line.
fn rows(text: &str, columns: usize) -> impl Iterator<Item = Vec<&str>> {
    text.lines()
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .filter(move |cells| cells.len() == columns && cells[0].starts_with('`'))
}

/// The words between backticks.
fn ticked(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn page() -> String {
    std::fs::read_to_string(root().join("dashboards/METRICS.md")).unwrap()
}

/// What the page says there is.
pub fn documented() -> Families {
    let page = page();
    rows(&page, 6)
        .map(|cells| {
            let name = cells[0].trim_matches('`').to_owned();
            assert!(
                cells
                    .iter()
                    .enumerate()
                    .all(|(n, cell)| n == 2 || !cell.is_empty()),
                "{name}"
            );
            (name, (cells[1].to_owned(), ticked(cells[2])))
        })
        .collect()
}

/// The values of a label in a family; `None` where they are not all named.
fn values(label: &str, family: &str) -> Option<BTreeSet<String>> {
    let page = page();
    let of = rows(&page, 3).find(|cells| {
        cells[0].trim_matches('`') == label
            && (cells[1].is_empty() || ticked(cells[1]).contains(family))
    });
    let cell = of.unwrap_or_else(|| panic!("no values of {label} in {family}"))[2];
    (!cell.contains('*')).then(|| ticked(cell))
}

/// One sample: its family's name, its labels.
type Sample = (String, BTreeMap<String, String>);

/// What an exposition says, which must have a help text for each family.
fn exposed(text: &str) -> (Families, Vec<Sample>) {
    let mut families = Families::new();
    let mut samples = Vec::new();
    let mut helped = BTreeSet::new();
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty(), "{name}");
            helped.insert(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name), "{name} has no help");
            family = name.to_owned();
            families.insert(family.clone(), (kind.to_owned(), BTreeSet::new()));
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let suffix = name.strip_prefix(family.as_str()).unwrap();
            assert!(
                ["", "_bucket", "_sum", "_count"].contains(&suffix),
                "{line}"
            );
            let labels = line
                .split_once('{')
                .map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            let labels: BTreeMap<String, String> = labels
                .split("\",")
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (label, value) = pair.split_once("=\"").unwrap();
                    (label.to_owned(), value.trim_end_matches('"').to_owned())
                })
                .filter(|(label, _)| !(label == "le" && suffix == "_bucket"))
                .collect();
            let (_, known) = families.get_mut(&family).unwrap();
            known.extend(labels.keys().cloned());
            samples.push((family.clone(), labels));
        }
    }
    (families, samples)
}

fn linted(text: &str) {
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is needed: run tests/setup/install");
    tool.stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        output.stdout.is_empty() && output.stderr.is_empty(),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_says_what_is_exposed_and_nothing_else() {
    let mut scene = Scene::start();
    let fresh = scene.gateway.metrics().await;
    linted(&fresh);
    scene.round().await;
    // The last accounts are closed after their answers have left.
    let refused = [r#"outcome="upstream_unreachable""#];
    eventually("all is counted", async || {
        let dead = scene
            .gateway
            .metric("prefixgate_requests_total", &refused)
            .await;
        (dead > 0.0).then_some(())
    })
    .await;
    let text = scene.gateway.metrics().await;
    linted(&text);
    let (mut families, mut samples) = exposed(&text);
    // Stores are not part of that scene.
    let mut replica = Replica::start(&scene).await;
    replica.round().await;
    replica.delivered().await;
    let stores = replica.gateway.metrics().await;
    linted(&stores);
    let (more, of_stores) = exposed(&stores);
    for (name, found) in more {
        let of_stores = ["prefixgate_remote", "prefixgate_spool", "prefixgate_otlp"];
        if of_stores.iter().any(|of| name.starts_with(of)) {
            assert!(families.insert(name.clone(), found).is_none(), "{name}");
        }
    }
    samples.extend(of_stores);

    let documented = documented();
    for (name, found) in &families {
        let said = documented.get(name);
        let said = said.unwrap_or_else(|| panic!("{name} is exposed and not documented"));
        assert_eq!(said, found, "{name}");
    }
    let missing: Vec<&String> = documented
        .keys()
        .filter(|name| !families.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "documented and not exposed: {missing:?}"
    );
    for (family, labels) in samples {
        for (label, value) in labels {
            if let Some(known) = values(&label, &family) {
                assert!(known.contains(&value), "{family} {label}={value}");
            }
        }
    }
    // E01: a scrape is small, whatever has been sent.
    assert!(text.len() < 200_000, "{}", text.len());
    assert!(!text.contains("nobody-1") && !text.contains("careless-1"));
    scene.sim.shutdown().await;
}

#[tokio::test]
async fn what_can_be_counted_is_at_zero_before_the_first_request() {
    let scene = Scene::start();
    let text = scene.gateway.metrics().await;
    for line in [
        r#"prefixgate_requests_total{kind="turn",outcome="upstream_cut",upstream="dead"} 0"#,
        r#"prefixgate_upstream_errors_total{class="5xx",upstream="anthropic"} 0"#,
        r#"prefixgate_cache_lost_usd_total{app="capped",reason="tools"} 0"#,
        r#"prefixgate_loops_total{action="warn",detector="cycle"} 0"#,
        r#"prefixgate_cap_refusals_total{cap="turns",scope="run"} 0"#,
        r#"prefixgate_records_dropped_total{reason="queue_full"} 0"#,
        r#"prefixgate_capture_lost_total{reason="disk_full"} 0"#,
        "prefixgate_captured_turns_total 0",
        "prefixgate_ledger_up 1",
        "prefixgate_ledger_fallback_total 0",
        r#"prefixgate_config_info{cache="fill",caps="local",capture="none",clickhouse="off",loops="warn",otlp="off",webhooks="off"} 1"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
    }
    scene.sim.shutdown().await;
}
