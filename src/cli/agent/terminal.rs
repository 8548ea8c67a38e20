//! Progress for people, on stderr.

use std::collections::{HashMap, HashSet};
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::summary::{cost, grouped, time};
use crate::agent::journal::MAIN;
use crate::agent::machine::{Bill, Spent, Stop};
use crate::agent::notice::{Listener, Notice};

/// How much of a call's input, or of what went wrong, is shown, in characters.
const PREVIEW: usize = 100;
/// Open calls whose tools are remembered. Later ones are shown without their name.
const MAX_CALLS: usize = 1_024;

/// Shows what happens as it happens. Text is not shown of sub-agents, since several streams at
/// once cannot be read; their calls and turns are.
#[derive(Debug)]
pub struct Terminal {
    dim: &'static str,
    plain: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Agents that no other agent has started: their text is shown.
    outer: HashSet<String>,
    /// The cursor stands behind text.
    in_line: bool,
    spent: Spent,
    turns: HashMap<String, u32>,
    tools: HashMap<String, String>,
}

impl Terminal {
    /// On this process's stderr; with colours where that is a terminal and nobody has said no.
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colours = std::io::stderr().is_terminal() && !dumb && !refused;
        let (dim, plain) = if colours {
            ("\x1b[2m", "\x1b[0m")
        } else {
            ("", "")
        };
        Self {
            dim,
            plain,
            state: Mutex::default(),
        }
    }

    fn show(&self, state: &mut State, agent: &str, notice: Notice<'_>) -> String {
        if let Notice::Began(run) = notice
            && run.setup().depth == 0
        {
            state.outer.insert(agent.to_owned());
        }
        let outer = state.outer.contains(agent);
        let who = match agent {
            MAIN => String::new(),
            other => format!("{other}: "),
        };
        let line = match notice {
            Notice::Began(run) => {
                let setup = run.setup();
                let again = match run.turns() {
                    0 => String::new(),
                    turns => format!(", goes on after {turns} turns"),
                };
                if agent == MAIN {
                    let tools = setup.tools.len();
                    format!("run {}: {}, {tools} tools{again}", setup.run, setup.model)
                } else {
                    format!("{who}begins{again}")
                }
            }
            Notice::Asked { turn, .. } => {
                state.turns.insert(agent.to_owned(), turn);
                return String::new();
            }
            Notice::Text(text) if outer => return self.text(state, text),
            Notice::Reset { reason, bill, wait } => {
                state.book(bill);
                let then = match wait {
                    Some(wait) => format!("; once more in {}", millis(wait)),
                    None => String::new(),
                };
                format!("{who}no answer: {}{then}", preview(reason))
            }
            Notice::Answered { bill, stop, took } => {
                state.book(bill);
                let turn = state.turns.get(agent).copied().unwrap_or_default();
                let stop = match stop {
                    Stop::EndTurn | Stop::ToolUse => String::new(),
                    other => format!("{other:?}, "),
                };
                format!(
                    "{who}[{turn}] {stop}{}, {}; so far {}{}",
                    millis(took),
                    tokens(bill),
                    cost(&state.spent),
                    ratio(&state.spent),
                )
            }
            Notice::CallBegan { call, .. } => {
                if state.tools.len() < MAX_CALLS {
                    state.tools.insert(call.id.clone(), call.name.clone());
                }
                format!(
                    "{who}  > {} {}",
                    printable(&call.name),
                    preview(&call.input)
                )
            }
            Notice::CallEnded { result, took } => {
                let tool = state.tools.remove(&result.call).unwrap_or_default();
                let (mark, what) = if result.is_error {
                    ("!", preview(&result.text))
                } else {
                    ("<", format!("{} bytes", grouped(result.text.len() as u64)))
                };
                format!(
                    "{who}  {mark} {} {}, {what}",
                    printable(&tool),
                    millis(took)
                )
            }
            Notice::ThinkingDropped(blocks) => {
                format!("{who}{blocks} blocks of thinking are not told to this model")
            }
            Notice::Compacting { tokens } => {
                format!(
                    "{who}summing up a conversation of {} tokens",
                    grouped(tokens)
                )
            }
            Notice::Compacted(Ok(bill)) => {
                state.book(bill);
                format!("{who}summed up: {}", tokens(bill))
            }
            Notice::Compacted(Err(reason)) => {
                format!("{who}not summed up: {}", preview(reason))
            }
            Notice::Planned { number, steps } => {
                let steps = steps.iter().zip(1..);
                let list = steps.map(|(step, at)| format!("\n  {at}. {}", preview(step)));
                format!("{who}plan {number}:{}", list.collect::<String>())
            }
            Notice::Judged { passed, why } => {
                let word = if passed { "passed" } else { "not passed" };
                format!("{who}{word}: {}", preview(why))
            }
            Notice::Reflected(text) => format!("{who}reflected: {}", preview(text)),
            Notice::Ended { outcome, run } if agent != MAIN => {
                state.turns.remove(agent);
                let turns = run.turns();
                format!("{who}{} after {turns} turns", outcome.as_str())
            }
            Notice::Text(_) | Notice::Thinking | Notice::CallOpened(_) | Notice::Ended { .. } => {
                return String::new();
            }
        };
        let before = if std::mem::take(&mut state.in_line) {
            "\n"
        } else {
            ""
        };
        format!("{before}{}{line}{}\n", self.dim, self.plain)
    }

    fn text(&self, state: &mut State, text: &str) -> String {
        let text = printable(text);
        state.in_line = !text.ends_with('\n') && (state.in_line || !text.is_empty());
        text
    }

    /// Shows lines that are no notice.
    pub fn line(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = if std::mem::take(&mut state.in_line) {
            "\n"
        } else {
            ""
        };
        put(&format!("{before}{text}\n"));
    }
}

impl Listener for Terminal {
    fn notice(&self, agent: &str, notice: Notice<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.show(&mut state, agent, notice);
        if !text.is_empty() {
            put(&text);
        }
    }
}

/// A terminal that has gone away is told nothing.
fn put(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes());
}

impl State {
    fn book(&mut self, bill: &Bill) {
        // An attempt that was refused has cost nothing.
        if *bill != Bill::default() {
            self.spent.answer(&bill.usage, bill.pico);
        }
    }
}

fn millis(took: Duration) -> String {
    time(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}

fn tokens(bill: &Bill) -> String {
    let usage = &bill.usage;
    let known = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), grouped);
    let cached = match usage.hit_ratio() {
        Some(ratio) => format!(" ({:.0} % from the cache)", ratio * 100.0),
        None => String::new(),
    };
    let prompt = usage.prompt().or(usage.uncached);
    format!("{} in{cached}, {} out", known(prompt), known(usage.output))
}

fn ratio(spent: &Spent) -> String {
    match spent.hit_ratio() {
        Some(ratio) => format!(", hit ratio {:.0} %", ratio * 100.0),
        None => String::new(),
    }
}

/// One line, short.
fn preview(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c == '\n' { ' ' } else { c })
        .collect();
    let line = printable(line.trim());
    match line.char_indices().nth(PREVIEW) {
        Some((at, _)) => format!("{}...", &line[..at]),
        None => line,
    }
}

/// Without what could steer a terminal: the text is a model's, or a stranger's file.
fn printable(text: &str) -> String {
    let good = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars()
        .map(|c| if good(c) { c } else { '\u{fffd}' })
        .collect()
}
