//! The dashboards as files: well-formed by Grafana's own schema, consistent with each other, and the
//! same as what their generator writes. The checks hold for every directory of `dashboards/`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::rules::known;
use crate::support::prometheus::{installed, root};

/// The directories of dashboards.
fn directories() -> Vec<String> {
    let all = std::fs::read_dir(root().join("dashboards")).unwrap();
    let mut names: Vec<String> = all
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["clickhouse", "prometheus"]);
    names
}

fn files(directory: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(root().join("dashboards").join(directory)).unwrap();
    let mut files: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{directory}");
    files
}

/// The dashboards of a directory by file name.
pub fn boards(directory: &str) -> Vec<(String, Value)> {
    files(directory)
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_str(&text).unwrap())
        })
        .collect()
}

fn everything() -> Vec<(String, Value)> {
    let all = directories();
    all.iter().flat_map(|directory| boards(directory)).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// All panels, those inside of rows too.
fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    list(board, "panels")
        .iter()
        .flat_map(|panel| std::iter::once(panel).chain(list(panel, "panels")))
}

/// The queries of all panels with their panel's title.
pub fn queries(board: &Value) -> Vec<(&str, &Value)> {
    panels(board)
        .flat_map(|panel| {
            let title = panel["title"].as_str().unwrap();
            list(panel, "targets")
                .iter()
                .map(move |target| (title, target))
        })
        .collect()
}

/// The queries of the variables that have one.
pub fn variables(board: &Value) -> Vec<&str> {
    list(&board["templating"], "list")
        .iter()
        .filter_map(|variable| variable["query"]["query"].as_str())
        .collect()
}

/// All texts in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(all) => all.iter().flat_map(texts).collect(),
        Value::Object(all) => all.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_files_are_what_the_generator_writes() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("python3")
        .arg(root().join("dashboards/build.py"))
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    for directory in directories() {
        let made = std::fs::read_dir(dir.path().join(&directory)).unwrap();
        let made: BTreeSet<_> = made.map(|entry| entry.unwrap().file_name()).collect();
        let kept = files(&directory);
        let names: BTreeSet<_> = kept
            .iter()
            .map(|path| path.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(made, names, "{directory}");
        for path in kept {
            let made = dir.path().join(&directory).join(path.file_name().unwrap());
            let same = std::fs::read(made).unwrap() == std::fs::read(&path).unwrap();
            assert!(same, "{}: run dashboards/build.py", path.display());
        }
    }
}

#[test]
fn grafanas_own_types_fit() {
    let modules = installed("npm-grafana/node_modules");
    let output = Command::new("node")
        .arg(root().join("tests/setup/grafana/check.mjs"))
        .arg(&modules)
        .args(directories().iter().flat_map(|directory| files(directory)))
        .output()
        .expect("node is needed: run tests/setup/install");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );

    // A type check that lets everything pass would be none.
    let dir = tempfile::tempdir().unwrap();
    let (_, mut board) = boards("prometheus").remove(0);
    board["graphTooltip"] = "crosshair".into();
    let wrong = dir.path().join("wrong.json");
    std::fs::write(&wrong, board.to_string()).unwrap();
    let output = Command::new("node")
        .arg(root().join("tests/setup/grafana/check.mjs"))
        .args([modules, wrong])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn names_are_unique_and_links_lead_somewhere() {
    let boards = everything();
    let mut uids = BTreeMap::new();
    let mut titles = BTreeSet::new();
    for (file, board) in &boards {
        let uid = board["uid"].as_str().unwrap();
        assert!(uid.len() <= 40, "{file}: Grafana takes 40 characters");
        assert_eq!(uids.insert(uid, file), None, "{uid}");
        assert!(titles.insert(board["title"].as_str().unwrap()), "{file}");
    }
    for (file, board) in &boards {
        let mut links = 0;
        for text in texts(board) {
            for after in text.split("/d/").skip(1) {
                let uid = after.split(['?', '/', '&']).next().unwrap();
                assert!(
                    uids.contains_key(uid),
                    "{file}: there is no dashboard {uid}"
                );
                links += 1;
            }
        }
        assert!(links > 0, "{file} leads nowhere");
    }
}

#[test]
fn every_dashboard_is_whole() {
    for (file, board) in everything() {
        assert_eq!(board["schemaVersion"], 42, "{file}");
        assert!(!board["description"].as_str().unwrap().is_empty(), "{file}");
        let defined: BTreeSet<&str> = list(&board["templating"], "list")
            .iter()
            .map(|variable| variable["name"].as_str().unwrap())
            .collect();
        assert!(defined.contains("datasource"), "{file}");
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in panels(&board) {
            let title = panel["title"].as_str().unwrap();
            let whose = format!("{file}: {title}");
            assert!(
                !title.is_empty() && ids.insert(panel["id"].as_u64().unwrap()),
                "{whose}"
            );
            let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{whose}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{whose} lies on another");
                }
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(
                panel["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 10),
                "{whose}"
            );
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{whose}");
            assert!(!list(panel, "targets").is_empty(), "{whose}");
            let refs: BTreeSet<&str> = list(panel, "targets")
                .iter()
                .map(|target| target["refId"].as_str().unwrap())
                .collect();
            assert_eq!(refs.len(), list(panel, "targets").len(), "{whose}");
            for target in list(panel, "targets") {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{whose}");
            }
            let unit = texts(&panel["fieldConfig"]).len() + texts(&panel["options"]).len();
            let named = panel.to_string().contains("\"unit\"");
            assert!(unit > 0 && named, "{whose} has no unit");
        }
        // Every variable that is used is defined, and the other way round.
        let text = board.to_string();
        for name in &defined {
            let used = [format!("${name}"), format!("${{{name}")];
            assert!(
                used.iter().any(|word| text.contains(word)),
                "{file}: nothing uses {name}"
            );
        }
        for (title, target) in queries(&board) {
            let text = texts(target).join(" ");
            for after in text.split('$').skip(1) {
                let name = after.trim_start_matches('{');
                let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &name[..end.unwrap_or(name.len())];
                let known = defined.contains(name) || name.starts_with("__");
                assert!(known, "{file}: {title}: there is no ${name}");
            }
        }
    }
}

#[test]
fn dashboards_ask_for_metrics_that_there_are() {
    for (file, board) in boards("prometheus") {
        for (title, target) in queries(&board) {
            known(
                target["expr"].as_str().unwrap(),
                &format!("{file}: {title}"),
            );
        }
        for query in variables(&board) {
            known(query, &file);
        }
    }
}
