//! Captured content of a run, for reading.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::tz::TimeZone;

use super::show;
use crate::trace::TurnRecord;
use crate::trace::capture::{Body, Content, content};

/// Spaces of one level of JSON.
const INDENT: usize = 2;

/// The captured content of these turns as far as there is any; of the one with this number only.
///
/// # Errors
/// There is none, or it cannot be read.
pub(super) fn find(
    data_dir: &Path,
    run: &str,
    turns: &[TurnRecord],
    number: Option<u32>,
) -> anyhow::Result<Vec<(u32, Content)>> {
    let mut found = Vec::new();
    for turn in turns {
        if number.is_some_and(|number| number != turn.turn) {
            continue;
        }
        let content = content(data_dir, turn.started_ms, turn.id)
            .with_context(|| format!("the content of turn {} cannot be read", turn.id))?;
        found.extend(content.map(|content| (turn.turn, content)));
    }
    if found.is_empty() {
        let which = number.map_or_else(String::new, |number| format!("turn {number} of "));
        bail!(
            "nothing is captured of {which}the run `{run}`: content is kept of turns that come while \
             `mode = \"redacted\"` (or \"full\") is set in [capture], or `capture` in [app.NAME], and no \
             longer than `retention_days` and `retention_size` say"
        );
    }
    Ok(found)
}

/// As one JSON array.
pub(super) fn json(found: &[(u32, Content)]) -> anyhow::Result<String> {
    let contents: Vec<&Content> = found.iter().map(|(_, content)| content).collect();
    Ok(format!("{}\n", serde_json::to_string(&contents)?))
}

/// For people.
pub(super) fn text(found: &[(u32, Content)], zone: &TimeZone) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    for (number, content) in found {
        let _ = writeln!(
            out,
            "turn {number}  {}  thread {}  {}",
            show::time(content.started_ms, zone),
            content.thread,
            content.mode
        );
        let counts = content.replaced.0.iter();
        let counts: Vec<String> = counts.map(|(name, n)| format!("{name} {n}")).collect();
        if !counts.is_empty() {
            let _ = writeln!(out, "replaced: {}", counts.join(", "));
        }
        let _ = write!(out, "request");
        body(&mut out, &content.request);
        match &content.response {
            None => out.push_str("no answer of an upstream\n"),
            Some(response) => {
                let end = if response.complete {
                    ""
                } else {
                    ", not complete"
                };
                let _ = write!(out, "response {}{end}", response.status);
                body(&mut out, &response.body);
            }
        }
        out.push('\n');
    }
    // What is shown steers no terminal.
    out.replace(
        |c: char| c.is_control() && c != '\n' && c != '\t',
        "\u{fffd}",
    )
}

fn body(out: &mut String, body: &Body) {
    let _ = write!(out, ", {} bytes", body.bytes);
    if body.cut {
        out.push_str(", only the beginning");
    }
    if let Some(note) = &body.note {
        let _ = write!(out, " ({note})");
    }
    out.push('\n');
    if let Some(json) = &body.json {
        indented(out, json.get());
        out.push('\n');
    }
    if let Some(text) = &body.text {
        out.push_str(text);
        out.push('\n');
    }
}

/// JSON without white space, spread over lines in the order in which it stands.
fn indented(out: &mut String, json: &str) {
    let mut depth = 0_usize;
    let (mut quoted, mut escaped, mut opened) = (false, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth * INDENT));
    };
    for c in json.chars() {
        if quoted {
            out.push(c);
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        let closes = matches!(c, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        if opened != closes {
            // Something stands between two brackets.
            if opened || closes {
                line(out, depth);
            }
        }
        opened = matches!(c, '{' | '[');
        out.push(c);
        match c {
            '"' => quoted = true,
            '{' | '[' => depth += 1,
            ',' => line(out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn json_is_spread_over_lines_in_its_order() {
        let mut out = String::new();
        indented(&mut out, r#"{"b":[1,"x\",{"],"a":{},"c":[]}"#);
        let expected = "{\n  \"b\": [\n    1,\n    \"x\\\",{\"\n  ],\n  \"a\": {},\n  \"c\": []\n}";
        assert_eq!(out, expected);
    }
}
