//! What the model "decides". Words in the user's text drive it, so that it needs no state and works
//! the same behind a proxy.
//!
//! - `[[plan:shell_ok,read,end]]`: steps; the step is the number of tool-result turns since then
//! - `[[plan:read+shell_ok+tool=note,end]]`: three calls at once
//! - `[[plan:tool=edit;file=a.rs;line=7,end]]`: a call of that tool with these members of its input,
//!   each JSON where it can be read as such, else a text; no `,`, `+` or `;` can stand in one
//! - `[[inject:429ra x2 @1]]`: at step 1 the first two attempts end in that failure
//! - `[[usage:190000@2]]`: report that many input tokens at step 2
//! - `[[delay:300]]`: milliseconds before the head
//! - `[[text:5000]]`: a final text of that many bytes
//! - `[[inject-any]]`: failures also hit requests without tools

use super::json::Json;
use super::prompt::{Message, Prompt, Role, is_kind};
use super::tools::{self, Call, Tool};

/// Words that say a request wants a summary of the conversation.
const COMPACTION: &[&str] = &[
    "summary of the conversation",
    "create a detailed summary",
    "context checkpoint",
    "state_snapshot",
    "compacted",
    "compaction",
    "summarize the conversation",
    "anchored summary",
];

/// Words with which agents that know no tool blocks report results in plain text.
const OBSERVATIONS: &[&str] = &["observation", "returncode", "<output>"];

/// Longest final text a script may ask for.
const MAX_TEXT: usize = 8 << 20;

/// A failure that a script asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// Which.
    pub kind: String,
    /// How many attempts fail.
    pub times: u32,
    /// At which step.
    pub step: usize,
}

/// What the model answers with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// The text.
    pub text: String,
    /// Calls of tools.
    pub calls: Vec<Call>,
    /// Reported input tokens, if the script fixes them.
    pub usage: Option<u64>,
    /// Milliseconds before the head.
    pub delay_ms: u64,
    /// Failures to try at this step, in order; each with a key that counts its attempts.
    pub injections: Vec<(Injection, String)>,
    /// Number of tool-result turns since the plan was given.
    pub step: usize,
}

/// What the decision depends on beside the prompt.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The request body, for output formats and forced tools.
    pub body: &'a Json,
    /// Directory of the files that `read` steps name.
    pub workdir: &'a str,
    /// Failures also hit requests without tools.
    pub inject_any: bool,
}

struct Turn {
    user: bool,
    text: String,
    results: bool,
}

/// Decides the answer to a prompt.
#[must_use]
pub fn decide(prompt: &Prompt, setting: Setting<'_>) -> Decision {
    let turns: Vec<Turn> = prompt.messages.iter().map(turn).collect();
    let declared = tools::declared(&prompt.tools);
    let (plan, step) = plan(&turns);
    let all = turns.iter().fold(String::new(), |mut all, turn| {
        all.push_str(&turn.text);
        all.push('\n');
        all
    });
    let any = setting.inject_any || all.contains("[[inject-any]]");
    let injections = if declared.is_empty() && !any {
        Vec::new()
    } else {
        injections(&all)
            .into_iter()
            .filter(|injection| injection.step == step)
            .map(|injection| {
                let key = attempt_key(&injection, &turns);
                (injection, key)
            })
            .collect()
    };
    let decision = Decision {
        usage: usage(&all, step),
        delay_ms: marks(&all, "delay")
            .first()
            .and_then(|ms| ms.trim().parse().ok())
            .unwrap_or(0),
        injections,
        step,
        ..Decision::default()
    };
    let last = turns.last().map_or("", |turn| turn.text.as_str());
    if wants_summary(last, turns.len()) {
        return Decision {
            text: "<summary>\nThe work so far: commands were run. Continue with [[plan:shell_ok,end]]\n</summary>"
                .to_owned(),
            usage: None,
            ..decision
        };
    }
    let (text, calls) = answer(&declared, plan.as_deref(), step, &all, setting);
    Decision {
        text,
        calls,
        ..decision
    }
}

fn answer(
    declared: &[Tool],
    plan: Option<&str>,
    step: usize,
    all: &str,
    setting: Setting<'_>,
) -> (String, Vec<Call>) {
    let body = setting.body;
    let schema = body
        .given("output_config")
        .and_then(|config| config.given("format"))
        .or_else(|| body.given("output_format"))
        .and_then(|format| format.given("schema"));
    let forced = body
        .given("tool_choice")
        .filter(|choice| is_kind(choice, "tool"))
        .and_then(|choice| choice.text_of("name"))
        .and_then(|name| declared.iter().find(|tool| tool.name == name));
    let steps: Vec<&str> = plan
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|step| !step.is_empty())
        .collect();
    let word = steps.get(step).copied().unwrap_or("end");
    let text_bytes = marks(all, "text")
        .last()
        .and_then(|bytes| bytes.trim().parse().ok());
    if let (Some(schema), true) = (schema, declared.is_empty()) {
        return (tools::fill(Some(schema), 0).to_string(), Vec::new());
    }
    if let (Some(tool), "end") = (forced, word) {
        return (String::new(), vec![tools::call_with_filled_input(tool)]);
    }
    if let (Some(bytes), "end") = (text_bytes, word) {
        return (filler(bytes), Vec::new());
    }
    if declared.is_empty() {
        let text = if plan.is_some() {
            "Simulated title"
        } else {
            "ok"
        };
        return (text.to_owned(), Vec::new());
    }
    match word {
        "end" => (format!("DONE after {step} tool turns."), Vec::new()),
        "par" => {
            let calls = ["shell_ok", "shell_fail"];
            let calls = calls
                .iter()
                .filter_map(|word| tools::choose(word, declared, step, setting.workdir));
            ("Two calls at once.".to_owned(), calls.collect())
        }
        "paragent" => {
            let calls =
                (0..2).filter_map(|_| tools::choose("agent", declared, step, setting.workdir));
            ("Two agents at once.".to_owned(), calls.collect())
        }
        several if several.contains('+') => {
            let words = several.split('+');
            let calls =
                words.filter_map(|word| tools::choose(word, declared, step, setting.workdir));
            ("Several calls at once.".to_owned(), calls.collect())
        }
        word => match tools::choose(word, declared, step, setting.workdir) {
            Some(call) => (format!("Step {step}: {word}."), vec![call]),
            None => ("DONE (no usable tool).".to_owned(), Vec::new()),
        },
    }
}

fn turn(message: &Message) -> Turn {
    let user = message.role == Role::User;
    let texts: Vec<String> = message
        .blocks
        .iter()
        .filter(|block| user && is_kind(block, "text"))
        .filter_map(|block| block.text_of("text"))
        .collect();
    Turn {
        user,
        text: texts.join("\n"),
        results: user && message.has("tool_result"),
    }
}

/// The latest plan and how far it has come.
fn plan(turns: &[Turn]) -> (Option<String>, usize) {
    let found = turns
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, turn)| Some((at, (*marks(&turn.text, "plan").last()?).to_owned())));
    let from = found.as_ref().map_or(0, |(at, _)| *at);
    let mut step = turns[from.min(turns.len())..]
        .iter()
        .filter(|turn| turn.results)
        .count();
    if step == 0 {
        let later = turns
            .iter()
            .skip(found.as_ref().map_or(0, |(at, _)| at + 1));
        step = later
            .filter(|turn| turn.user && is_observation(&turn.text))
            .count();
    }
    (found.map(|(_, plan)| plan), step)
}

fn is_observation(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.starts_with("error:") || OBSERVATIONS.iter().any(|word| lower.contains(word))
}

fn wants_summary(last: &str, turns: usize) -> bool {
    let lower = last.to_lowercase();
    COMPACTION.iter().any(|word| lower.contains(word))
        && (turns > 1 || lower.contains("summary"))
        && !(last.trim_end().ends_with("]]") && last.contains("[[plan:"))
}

/// The contents of all `[[name:...]]` in a text.
fn marks<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let open = format!("[[{name}:");
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(&open) {
        rest = &rest[at + open.len()..];
        let Some(end) = rest.find(']') else { break };
        if rest[end..].starts_with("]]") {
            out.push(&rest[..end]);
        }
        rest = &rest[end..];
    }
    out
}

fn injections(all: &str) -> Vec<Injection> {
    marks(all, "inject")
        .into_iter()
        .filter_map(injection)
        .collect()
}

/// `KIND xN @STEP`, the last two optional.
fn injection(words: &str) -> Option<Injection> {
    let words = words.trim_start();
    let end = words
        .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .unwrap_or(words.len());
    let (kind, rest) = words.split_at(end);
    let mut parsed = Injection {
        kind: kind.to_owned(),
        times: 1,
        step: 0,
    };
    let mut rest = rest.trim();
    if let Some(times) = rest.strip_prefix('x') {
        let end = times
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(times.len());
        parsed.times = times[..end].parse().ok()?;
        rest = times[end..].trim_start();
    }
    if let Some(step) = rest.strip_prefix('@') {
        parsed.step = step.trim().parse().ok()?;
        rest = "";
    }
    (rest.is_empty() && !parsed.kind.is_empty()).then_some(parsed)
}

/// What tells one task's attempts from another's: the failure and the texts that ask for it.
fn attempt_key(injection: &Injection, turns: &[Turn]) -> String {
    const TAIL: usize = 400;
    let mut key = format!("{injection:?}");
    for turn in turns.iter().filter(|turn| turn.text.contains("[[inject")) {
        let start = turn.text.len().saturating_sub(TAIL);
        let start = (start..=turn.text.len()).find(|at| turn.text.is_char_boundary(*at));
        key.push_str(&turn.text[start.unwrap_or(0)..]);
    }
    key
}

fn usage(all: &str, step: usize) -> Option<u64> {
    marks(all, "usage").into_iter().find_map(|words| {
        let (tokens, at) = words.split_once('@')?;
        (at.trim().parse() == Ok(step)).then(|| tokens.trim().parse().ok())?
    })
}

/// Text of exactly `bytes` bytes (bounded), with characters of two to four bytes in it.
fn filler(bytes: usize) -> String {
    const WORDS: &str = "Plain words, naïve words, a dash — and a ✓, then a 🦀 for good measure. ";
    let bytes = bytes.min(MAX_TEXT);
    let mut text = WORDS.repeat(bytes / WORDS.len() + 1);
    let cut = (0..=bytes)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    text.truncate(cut);
    text.push_str(&".".repeat(bytes - cut));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::validate;

    const TOOLS: &str = r#""tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}}]"#;

    fn decided(body: &str) -> Decision {
        let body = Json::parse(body.as_bytes()).unwrap();
        let prompt = validate::prompt(&body).unwrap();
        let setting = Setting {
            body: &body,
            workdir: "/w",
            inject_any: false,
        };
        decide(&prompt, setting)
    }

    fn loop_of(first: &str, results: usize, tools: &str) -> Decision {
        let mut messages = format!(r#"{{"role":"user","content":"{first}"}}"#);
        for turn in 0..results {
            messages.push_str(&format!(
                r#",{{"role":"assistant","content":[{{"type":"tool_use","id":"t{turn}","name":"Bash","input":{{}}}}]}},
                {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{turn}","content":"ok"}}]}}"#
            ));
        }
        let tools = if tools.is_empty() {
            String::new()
        } else {
            format!(",{tools}")
        };
        decided(&format!(r#"{{"messages":[{messages}]{tools}}}"#))
    }

    #[test]
    fn a_plan_advances_with_tool_results() {
        let first = "go [[plan:shell_ok,par,end]]";
        let start = loop_of(first, 0, TOOLS);
        assert_eq!(start.calls[0].input, r#"{"command":"echo hello-0"}"#);
        let second = loop_of(first, 1, TOOLS);
        assert_eq!((second.step, second.calls.len()), (1, 2));
        let end = loop_of(first, 2, TOOLS);
        assert_eq!(end.text, "DONE after 2 tool turns.");
        assert!(end.calls.is_empty());
        assert_eq!(loop_of(first, 5, TOOLS).calls.len(), 0);
    }

    #[test]
    fn a_later_plan_replaces_the_earlier() {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":"[[plan:end]]"}},{{"role":"assistant","content":"x"}},{{"role":"user","content":"now [[plan:read,end]]"}}],{TOOLS}}}"#
        );
        assert_eq!(decided(&body).calls.len(), 1);
    }

    #[test]
    fn without_a_plan_it_answers_in_text() {
        assert_eq!(loop_of("hello", 0, "").text, "ok");
        assert_eq!(loop_of("hello", 0, TOOLS).text, "DONE after 0 tool turns.");
        assert_eq!(loop_of("[[plan:shell_ok]]", 0, "").text, "Simulated title");
        assert_eq!(loop_of("[[text:1003]]", 0, "").text.len(), 1003);
    }

    #[test]
    fn failures_hit_their_step_and_only_requests_with_tools() {
        let words = "a [[plan:shell_ok,end]] [[inject:429ra x2 @1]] [[inject:drop]]";
        let at = |results, tools| {
            loop_of(words, results, tools)
                .injections
                .into_iter()
                .map(|(i, _)| i.kind)
                .collect::<Vec<_>>()
        };
        assert_eq!(at(0, TOOLS), ["drop"]);
        assert_eq!(at(1, TOOLS), ["429ra"]);
        assert!(at(0, "").is_empty());
        assert_eq!(
            loop_of("[[inject:500]] [[inject-any]]", 0, "")
                .injections
                .len(),
            1
        );
    }

    #[test]
    fn the_words_of_a_failure_are_read_leniently() {
        let check = |words: &str, kind: &str, times: u32, step: usize| {
            let expected = Injection {
                kind: kind.into(),
                times,
                step,
            };
            assert_eq!(injection(words), Some(expected), "{words}");
        };
        check("429ra x2 @1", "429ra", 2, 1);
        check(" 529", "529", 1, 0);
        check("stall @3 ", "stall", 1, 3);
        check("cut x99", "cut", 99, 0);
        check("sse_overloaded x2@4", "sse_overloaded", 2, 4);
        assert_eq!(injection("429 y"), None);
        assert_eq!(injection(""), None);
    }

    #[test]
    fn usage_delay_and_summaries() {
        assert_eq!(loop_of("[[usage:190000@1]]", 1, TOOLS).usage, Some(190_000));
        assert_eq!(loop_of("[[usage:190000@1]]", 0, TOOLS).usage, None);
        assert_eq!(loop_of("[[delay:300]]", 0, TOOLS).delay_ms, 300);
        let summary = loop_of("Please create a detailed summary now", 0, "");
        assert!(summary.text.starts_with("<summary>"));
    }

    #[test]
    fn schemas_and_forced_tools_are_honoured() {
        let schema = r#"{"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":{"type":"object","properties":{"title":{"type":"string"}},"required":["title"]}}}}"#;
        assert_eq!(decided(schema).text, r#"{"title":"x"}"#);
        let forced = format!(
            r#"{{"messages":[{{"role":"user","content":"x"}}],{TOOLS},"tool_choice":{{"type":"tool","name":"Bash"}}}}"#
        );
        assert_eq!(decided(&forced).calls[0].input, r#"{"command":"x"}"#);
    }
}
