//! One run as a tree: its agent, the sub-agents it started, and theirs.

use std::collections::{HashMap, HashSet};

use jiff::tz::TimeZone;
use serde::Serialize;

use super::json::{TotalsJson, array, time as rfc3339};
use super::show::{SUMS, many, notes, sums, time};
use super::table::{Align, Table, clean, duration};
use crate::store::{ThreadSummary, Totals};

/// A thread and how deep it stands.
struct Node<'a> {
    thread: &'a ThreadSummary,
    depth: usize,
}

/// Parents before their children, both in the order of their start. A thread whose parent is not
/// there, or is its own descendant, stands at the top.
fn ordered(threads: &[ThreadSummary]) -> Vec<Node<'_>> {
    let known: HashSet<&str> = threads.iter().map(|t| t.id.as_str()).collect();
    let mut children: HashMap<Option<&str>, Vec<&ThreadSummary>> = HashMap::new();
    for thread in threads {
        let parent = thread.parent.as_deref();
        let parent = parent.filter(|parent| known.contains(parent) && *parent != thread.id);
        children.entry(parent).or_default().push(thread);
    }
    let mut nodes = Vec::with_capacity(threads.len());
    let mut seen = HashSet::new();
    let tops = children.remove(&None).unwrap_or_default();
    let rings = threads.iter();
    for top in tops.into_iter().chain(rings) {
        let mut waiting = vec![Node {
            thread: top,
            depth: 0,
        }];
        while let Some(node) = waiting.pop() {
            if !seen.insert(node.thread.id.as_str()) {
                continue;
            }
            let below = children.remove(&Some(node.thread.id.as_str()));
            let depth = node.depth + 1;
            nodes.push(node);
            // The last one in is the first one out.
            let below = below.unwrap_or_default().into_iter().rev();
            waiting.extend(below.map(|thread| Node { thread, depth }));
        }
    }
    nodes
}

/// As a table.
pub(super) fn show(run: &str, threads: &[ThreadSummary], zone: &TimeZone) -> String {
    let mut head = vec![
        ("THREAD", Align::Left),
        ("STARTED", Align::Left),
        ("TOOK", Align::Right),
        ("TOOLS", Align::Right),
        ("FAILED", Align::Right),
    ];
    head.extend(SUMS);
    let mut table = Table::new(&head);
    let mut all = Totals::default();
    for Node { thread, depth } in ordered(threads) {
        all.merge(&thread.totals);
        let took = thread.ended_ms.saturating_sub(thread.started_ms);
        let name = thread.agent.as_ref().unwrap_or(&thread.id);
        let or_blank = |n: u64| if n > 0 { n.to_string() } else { String::new() };
        let mut cells = vec![
            format!("{}{name}", "  ".repeat(depth)),
            time(thread.started_ms, zone),
            duration(took.unsigned_abs()),
            or_blank(thread.calls),
            or_blank(thread.failed),
        ];
        cells.extend(sums(&thread.totals));
        table.row(cells);
    }
    let count = many(threads.len() as u64, "thread");
    format!("run {}: {count}\n\n", clean(run)) + &table.render() + &notes(&all, zone, None)
}

#[derive(Serialize)]
struct ThreadJson<'a> {
    thread: &'a str,
    parent_thread: Option<&'a str>,
    agent: Option<&'a str>,
    depth: usize,
    started: Option<String>,
    ended: Option<String>,
    tool_calls: u64,
    tool_calls_failed: u64,
    #[serde(flatten)]
    totals: TotalsJson,
}

/// As an array, parents before their children.
pub(super) fn json(threads: &[ThreadSummary]) -> anyhow::Result<String> {
    array(ordered(threads).into_iter().map(|node| ThreadJson {
        thread: &node.thread.id,
        parent_thread: node.thread.parent.as_deref(),
        agent: node.thread.agent.as_deref(),
        depth: node.depth,
        started: rfc3339(node.thread.started_ms),
        ended: rfc3339(node.thread.ended_ms),
        tool_calls: node.thread.calls,
        tool_calls_failed: node.thread.failed,
        totals: TotalsJson::from(&node.thread.totals),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: &str, parent: Option<&str>) -> ThreadSummary {
        ThreadSummary {
            id: id.into(),
            parent: parent.map(Into::into),
            agent: None,
            started_ms: 0,
            ended_ms: 0,
            calls: 0,
            failed: 0,
            totals: Totals::default(),
        }
    }

    fn shape(threads: &[(&str, Option<&str>)]) -> Vec<(String, usize)> {
        let threads: Vec<_> = threads.iter().map(|(id, of)| thread(id, *of)).collect();
        let nodes = ordered(&threads);
        nodes
            .iter()
            .map(|node| (node.thread.id.clone(), node.depth))
            .collect()
    }

    #[test]
    fn children_stand_below_their_parent_in_the_order_of_their_start() {
        let found = shape(&[
            ("main", None),
            ("a", Some("main")),
            ("a1", Some("a")),
            ("b", Some("main")),
            ("a2", Some("a")),
        ]);
        let expected = [("main", 0), ("a", 1), ("a1", 2), ("a2", 2), ("b", 1)];
        assert_eq!(found, expected.map(|(id, depth)| (id.to_owned(), depth)));
    }

    #[test]
    fn every_thread_is_shown_once_whatever_the_records_say() {
        let found = shape(&[
            ("x", Some("y")),
            ("y", Some("x")),
            ("orphan", Some("gone")),
            ("own", Some("own")),
        ]);
        let expected = [("orphan", 0), ("own", 0), ("x", 0), ("y", 1)];
        assert_eq!(found, expected.map(|(id, depth)| (id.to_owned(), depth)));
    }
}
