//! Caching policies compared on the real path; see `tests/bench/policies`.

#[path = "../it/support/client.rs"]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "shared with the tests"
)]
mod client;
mod policy;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use policy::{Outcome, POLICIES, workloads};
use serde_json::{Value, json};

/// Least hit ratio of long loops.
const LONG_LOOP: f64 = 0.97;
/// Most that `fill` may cost over the optimum, over the set.
const OVER_OPTIMUM: f64 = 0.03;
/// Most that `fill` may cost over the better of no markers and the automatic one, anywhere.
const OVER_SIMPLE: f64 = 0.01;

const NONE: usize = 0;
const AUTOMATIC: usize = 1;
const FILL: usize = 4;
const OPTIMUM: usize = 5;

struct Row {
    name: &'static str,
    about: &'static str,
    long_loop: bool,
    requests: usize,
    outcomes: [Outcome; 6],
}

impl Row {
    fn over(&self, policy: usize, base: f64) -> f64 {
        self.outcomes[policy].usd() / base - 1.0
    }

    fn over_optimum(&self) -> f64 {
        self.over(FILL, self.outcomes[OPTIMUM].usd())
    }

    fn over_simple(&self) -> f64 {
        let simple = self.outcomes[NONE].usd();
        self.over(FILL, simple.min(self.outcomes[AUTOMATIC].usd()))
    }

    fn total(rows: &[Self]) -> Self {
        let mut outcomes = [Outcome::default(); 6];
        for row in rows {
            for (sum, outcome) in outcomes.iter_mut().zip(&row.outcomes) {
                sum.add(outcome);
            }
        }
        Self {
            name: "all",
            about: "",
            long_loop: false,
            requests: rows.iter().map(|row| row.requests).sum(),
            outcomes,
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    if flag("--help") {
        println!("policies [--json | --markdown] [--short] [WORKLOAD...]");
        return ExitCode::SUCCESS;
    }
    let named: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|word| *word == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        eprintln!("policies: no runtime");
        return ExitCode::FAILURE;
    };
    let rows: Vec<Row> = workloads::all(flag("--short"))
        .iter()
        .filter(|work| wanted(work.name))
        .map(|work| Row {
            name: work.name,
            about: work.about,
            long_loop: work.long_loop,
            requests: work.steps.iter().map(|step| step.asks.len()).sum(),
            outcomes: runtime.block_on(policy::measure(work)),
        })
        .collect();
    let total = Row::total(&rows);
    let missed = missed(&rows, &total);
    if flag("--json") {
        println!("{}", as_json(&rows, &total, &missed));
    } else {
        print!("{}", as_table(&rows, &total, flag("--markdown")));
        for line in &missed {
            println!("missed: {line}");
        }
    }
    if missed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn missed(rows: &[Row], total: &Row) -> Vec<String> {
    let mut missed = Vec::new();
    for row in rows {
        let ratio = row.outcomes[FILL].hit_ratio();
        if row.long_loop && ratio < LONG_LOOP {
            missed.push(format!("{}: {:.2} % read", row.name, 100.0 * ratio));
        }
        if row.over_simple() > OVER_SIMPLE {
            let over = 100.0 * row.over_simple();
            missed.push(format!(
                "{}: {over:+.2} % over the better of none and automatic",
                row.name
            ));
        }
        for (policy, outcome) in POLICIES.iter().zip(&row.outcomes) {
            if outcome.refused > 0 {
                missed.push(format!(
                    "{}: {policy}: {} refused",
                    row.name, outcome.refused
                ));
            }
        }
    }
    if total.over_optimum() > OVER_OPTIMUM {
        let over = 100.0 * total.over_optimum();
        missed.push(format!("all: fill is {over:+.2} % over the optimum"));
    }
    missed
}

/// Cost of the input, writes included, in USD, and the part of all prompts that was read.
fn as_table(rows: &[Row], total: &Row, markdown: bool) -> String {
    let mut out = String::new();
    let mut line = |cells: Vec<String>| {
        if markdown {
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        } else {
            for (index, cell) in cells.iter().enumerate() {
                let _ = match index {
                    0 => write!(out, "{cell:<13}"),
                    _ => write!(out, " {cell:>15}"),
                };
            }
            out.push('\n');
        }
    };
    let mut head = vec!["input cost".to_owned(), "requests".to_owned()];
    head.extend(POLICIES.map(str::to_owned));
    head.extend(["to optimum".to_owned(), "to simple".to_owned()]);
    if markdown {
        let rule = vec!["---".to_owned(); head.len()];
        line(head);
        line(rule);
    } else {
        line(head);
    }
    for row in rows.iter().chain([total]) {
        let mut cells = vec![row.name.to_owned(), row.requests.to_string()];
        cells.extend(
            row.outcomes.iter().map(|outcome| {
                format!("${:.4} {:.1}%", outcome.usd(), 100.0 * outcome.hit_ratio())
            }),
        );
        cells.push(format!("{:+.1}%", 100.0 * row.over_optimum()));
        cells.push(format!("{:+.1}%", 100.0 * row.over_simple()));
        line(cells);
    }
    out
}

fn as_json(rows: &[Row], total: &Row, missed: &[String]) -> Value {
    let row = |row: &Row| {
        let policies: BTreeMap<&str, Value> = POLICIES
            .iter()
            .zip(&row.outcomes)
            .map(|(name, outcome)| {
                let tally = &outcome.tally;
                let told = json!({
                    "input_cost_usd": outcome.usd(), "hit_ratio": outcome.hit_ratio(),
                    "read": tally.read, "write_5m": tally.write_5m, "write_1h": tally.write_1h,
                    "uncached": tally.uncached, "refused": outcome.refused,
                });
                (*name, told)
            })
            .collect();
        json!({"name": row.name, "about": row.about, "requests": row.requests,
            "policies": policies, "fill_over_optimum": row.over_optimum(),
            "fill_over_none_or_automatic": row.over_simple()})
    };
    json!({"workloads": rows.iter().map(row).collect::<Vec<_>>(), "all": row(total),
        "missed": missed})
}
