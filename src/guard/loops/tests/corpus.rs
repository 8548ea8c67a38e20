//! The labelled histories of tests/fixtures/loops, looked at as they grow turn by turn.
//!
//! A file begins with what it is: `healthy`, or `sick <detector> at <n>`, which says at how many
//! results the loop has to be found, neither earlier nor later. Lines that begin with `#` explain;
//! the rest is a script (see `script.rs`).

use std::fmt::Write as _;

use super::script::{Spelling, body, messages};
use crate::guard::loops::{Memo, Policy, look};
use crate::provider::anthropic::request::view;

pub(super) struct Case {
    pub name: String,
    /// The detector, and the results at which it has to speak.
    pub sick: Option<(String, usize)>,
    pub script: String,
}

pub(super) fn cases() -> Vec<Case> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/loops");
    let mut cases: Vec<Case> = std::fs::read_dir(dir)
        .unwrap()
        .map(|file| {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let (label, script) = text.split_once('\n').unwrap();
            let words: Vec<&str> = label.split(' ').collect();
            Case {
                name: path.file_stem().unwrap().to_str().unwrap().into(),
                sick: match words[..] {
                    ["healthy"] => None,
                    ["sick", detector, "at", results] => {
                        Some((detector.into(), results.parse().unwrap()))
                    }
                    _ => panic!("{path:?} says {label}"),
                },
                script: script.into(),
            }
        })
        .collect();
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    cases
}

/// The first finding of a history that grows: its detectors, and the results by then.
fn first_alarm(case: &Case, memo: &Memo, policy: &Policy) -> Option<(Vec<String>, usize)> {
    let messages = messages(&case.script);
    let mut results = 0;
    for (at, message) in messages.iter().enumerate() {
        let blocks = message["content"].as_array().unwrap();
        results += blocks
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .count();
        // Clients go from one spelling to the other while a conversation grows.
        let spelling = Spelling {
            lists: at % 3 == 0,
            ..Spelling::default()
        };
        let body = body(&messages[..=at], spelling);
        let seen = look(&body, &view(&body).unwrap(), policy, memo, None);
        if !seen.findings.is_empty() {
            let found = seen.findings.into_iter().map(|finding| finding.detector);
            return Some((found.collect(), results));
        }
    }
    None
}

#[test]
fn every_labelled_history_is_judged_as_its_label_says() {
    let cases = cases();
    let (memo, policy) = (Memo::default(), Policy::default());
    let (mut table, mut wrong) = (String::new(), Vec::new());
    let (mut hits, mut alarms, mut sick) = (0, 0, 0);
    for case in &cases {
        let alarm = first_alarm(case, &memo, &policy);
        let right = match (&case.sick, &alarm) {
            (None, None) => true,
            (Some((detector, at)), Some((found, results))) => {
                found.contains(detector) && results == at
            }
            _ => false,
        };
        sick += usize::from(case.sick.is_some());
        alarms += usize::from(alarm.is_some());
        hits += usize::from(alarm.is_some() && case.sick.is_some());
        let label = case
            .sick
            .as_ref()
            .map_or("healthy".into(), |(detector, at)| {
                format!("{detector} at {at}")
            });
        let said = alarm.map_or("silent".into(), |(found, results)| {
            format!("{} at {results}", found.join("+"))
        });
        let _ = writeln!(
            table,
            "{:<44} {label:<18} {said:<30} {}",
            case.name,
            if right { "" } else { "WRONG" }
        );
        if !right {
            wrong.push(&case.name);
        }
    }
    let _ = writeln!(
        table,
        "{} histories, {sick} sick: precision {hits}/{alarms}, recall {hits}/{sick}",
        cases.len()
    );
    println!("{table}");
    assert!(cases.len() >= 64 && sick >= 32 && cases.len() - sick >= 32);
    assert!(wrong.is_empty(), "{table}\nwrong: {wrong:?}");
}
