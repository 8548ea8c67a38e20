//! The shipped rules and configurations, by the tools of Prometheus and Alertmanager.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use super::names;
use super::reference::documented;
use crate::support::prometheus::{root, yaml};

fn shipped(name: &str) -> PathBuf {
    root().join("config/prometheus").join(name)
}

fn done(program: &str, args: &[&str], files: &[PathBuf]) {
    let output = Command::new(program)
        .args(args)
        .args(files)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; run tests/setup/install"));
    assert!(output.status.success(), "{output:#?}");
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The rules of a kind (`alert`, `record`) by name.
fn rules(kind: &str) -> BTreeMap<String, Value> {
    let file = yaml(&shipped("rules.yml"));
    let rules = list(&file, "groups")
        .iter()
        .flat_map(|group| list(group, "rules"));
    rules
        .filter_map(|rule| Some((rule[kind].as_str()?.to_owned(), rule.clone())))
        .collect()
}

/// Names of the series that recording rules make.
pub fn recorded() -> &'static BTreeSet<String> {
    static NAMES: LazyLock<BTreeSet<String>> =
        LazyLock::new(|| rules("record").into_keys().collect());
    &NAMES
}

/// Fails for a metric that neither the gateway nor a rule makes.
pub fn known(text: &str, whose: &str) {
    let (documented, recorded) = (documented(), recorded());
    for name in names(text) {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(
            documented.contains_key(family) || recorded.contains(name),
            "{whose}: there is no {name}"
        );
    }
}

#[test]
fn the_tools_accept_what_is_shipped() {
    done(
        "promtool",
        &["check", "config"],
        &[shipped("prometheus.yml")],
    );
    done("promtool", &["check", "rules"], &[shipped("rules.yml")]);
    let alertmanager = root().join("config/alertmanager/alertmanager.yml");
    done("amtool", &["check-config"], &[alertmanager]);
}

#[test]
fn every_alert_fires_when_it_should_and_not_when_it_should_not() {
    let files = std::fs::read_dir(shipped("tests")).unwrap();
    let files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    done("promtool", &["test", "rules"], &files);
    let mut fires = BTreeSet::new();
    let mut quiet = BTreeSet::new();
    for file in &files {
        let file = yaml(file);
        let cases = list(&file, "tests")
            .iter()
            .flat_map(|test| list(test, "alert_rule_test"));
        for case in cases {
            let name = case["alertname"].as_str().unwrap().to_owned();
            let said = list(case, "exp_alerts");
            (if said.is_empty() {
                &mut quiet
            } else {
                &mut fires
            })
            .insert(name);
        }
    }
    let alerts: BTreeSet<String> = rules("alert").into_keys().collect();
    assert_eq!(fires, alerts, "a case that fires for each");
    assert_eq!(quiet, alerts, "a case that does not for each");
}

#[test]
fn every_alert_says_what_to_do() {
    let runbook = std::fs::read_to_string(shipped("RUNBOOK.md")).unwrap();
    let sections: BTreeSet<&str> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let alerts = rules("alert");
    let mut told = BTreeSet::new();
    for (name, rule) in &alerts {
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["warning", "critical"].contains(&severity), "{name}");
        let text = |key: &str| {
            rule["annotations"][key]
                .as_str()
                .unwrap_or_else(|| panic!("{name} {key}"))
        };
        assert!(
            text("summary").len() > 20 && text("description").len() > 60,
            "{name}"
        );
        let place = format!("config/prometheus/RUNBOOK.md#{}", name.to_lowercase());
        assert_eq!(text("runbook"), place);
        assert!(sections.contains(name.as_str()), "no section on {name}");
        told.insert(name.as_str());
    }
    assert_eq!(sections, told, "a section on an alert that there is not");
}

#[test]
fn rules_ask_for_metrics_that_there_are() {
    for kind in ["alert", "record"] {
        for (name, rule) in rules(kind) {
            let expr = match &rule["expr"] {
                Value::String(expr) => expr.clone(),
                // A limit.
                number => number.to_string(),
            };
            known(&expr, &name);
        }
    }
    // Limits that nothing is held against would be lies.
    let text = std::fs::read_to_string(shipped("rules.yml")).unwrap();
    for limit in recorded()
        .iter()
        .filter(|name| name.starts_with("prefixgate:limit:"))
    {
        assert!(text.matches(limit.as_str()).count() > 1, "{limit}");
    }
}
