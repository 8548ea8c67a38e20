//! Recorded traffic from files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::line::{self, Found, Line};
use super::seats::{Eyes, Looked, Seats};
use super::{Gathered, Source, Taken};

/// Longest line, and longest file that is one body.
const MAX_LINE_BYTES: u64 = 256 << 20;
/// Bad lines that are named one by one, over all files.
const MAX_NAMED: u64 = 50;
/// Where the time begins in a file that has none: prices need a date. 2026-12-01T00:00:00Z.
const UNTIMED_START_MS: i64 = 1_796_083_200_000;

/// Looks at all requests of some files, in the order of time, as the gateway would have seen them;
/// the rest says what was found in each file.
///
/// # Errors
/// A file cannot be opened or read.
pub(in crate::cli) fn look(
    files: &[PathBuf],
    eyes: Eyes,
) -> anyhow::Result<(Vec<Looked>, Gathered)> {
    let mut reading = Reading {
        eyes,
        ..Reading::default()
    };
    for path in files {
        reading.file(path)?;
    }
    let mut gathered = Gathered {
        sources: reading.sources,
        ..Gathered::default()
    };
    if reading.untimed > 0 {
        gathered.notes.push(format!(
            "{} without `ts`: taken as one second after the line before",
            many(reading.untimed)
        ));
    }
    let mut looked = reading.looked;
    looked.sort_by_key(|looked| looked.at_ms);
    Ok((looked, gathered))
}

/// Reads all files.
///
/// # Errors
/// A file cannot be opened or read.
pub(super) fn gather(files: &[PathBuf]) -> anyhow::Result<Gathered> {
    let (looked, mut gathered) = look(files, Eyes::default())?;
    let mut seats = Seats::default();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    for looked in looked {
        let super::seats::Place { run, thread, .. } = seats.seat(&looked);
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        let number = *numbers.entry(run.to_string()).or_insert_with(|| {
            gathered.runs.push(run.to_string());
            next
        });
        gathered.requests.push(Taken {
            at_ms: looked.at_ms,
            begins_ms: None,
            scope: looked.scope,
            run: number,
            thread,
            trail: looked.trail,
            unmarkable: Some(looked.unmarkable),
            forced: looked.forced,
            prompt_tokens: looked.prompt_tokens,
        });
    }
    Ok(gathered)
}

fn many(count: u64) -> String {
    match count {
        1 => "1 request".into(),
        n => format!("{n} requests"),
    }
}

#[derive(Default)]
struct Reading {
    sources: Vec<Source>,
    looked: Vec<Looked>,
    untimed: u64,
    named: u64,
    eyes: Eyes,
}

impl Reading {
    fn file(&mut self, path: &Path) -> anyhow::Result<()> {
        let name = path.display().to_string();
        let cannot = || format!("cannot read {name}");
        let file = File::open(path).with_context(cannot)?;
        let mut source = Source {
            name: name.clone(),
            ..Source::default()
        };
        let mut lines = BufReader::new(file);
        let mut last_ms = None;
        let mut text = Vec::new();
        for number in 1_u64.. {
            text.clear();
            let limit = MAX_LINE_BYTES + 1;
            let read = lines.by_ref().take(limit).read_until(b'\n', &mut text);
            if read.with_context(cannot)? == 0 {
                break;
            }
            let mut outcome = if text.len() as u64 > MAX_LINE_BYTES && !text.ends_with(b"\n") {
                skip_line(&mut lines).with_context(cannot)?;
                Err("longer than a line may be".to_owned())
            } else if text.trim_ascii().is_empty() {
                continue;
            } else {
                line::read(text.trim_ascii())
            };
            if number == 1 && outcome.is_err() {
                // A body that is printed over many lines.
                let mut whole = Vec::new();
                let rest = File::open(path).with_context(cannot)?;
                let read = rest.take(limit).read_to_end(&mut whole);
                read.with_context(cannot)?;
                let one = line::read(whole.trim_ascii());
                if one.is_ok() && whole.len() as u64 <= MAX_LINE_BYTES {
                    outcome = one;
                    lines = BufReader::new(File::open(path).with_context(cannot)?);
                    std::io::copy(&mut lines, &mut std::io::sink()).with_context(cannot)?;
                }
            }
            let outcome = outcome.and_then(|found| match found {
                Found::Skipped => Ok(false),
                Found::Request(line) => self.request(*line, &mut last_ms).map(|()| true),
            });
            match outcome {
                Ok(true) => source.requests += 1,
                Ok(false) => source.skipped += 1,
                Err(reason) => {
                    source.bad += 1;
                    self.bad(&name, number, &reason);
                }
            }
        }
        self.sources.push(source);
        Ok(())
    }

    fn request(&mut self, line: Line, last_ms: &mut Option<i64>) -> Result<(), String> {
        let timed = line.at_ms;
        let at_ms = timed.unwrap_or_else(|| match *last_ms {
            None => UNTIMED_START_MS,
            Some(last) => last.saturating_add(1_000),
        });
        let looked = self.eyes.look(&line, at_ms)?;
        *last_ms = Some(at_ms);
        self.untimed += u64::from(timed.is_none());
        self.looked.push(looked);
        Ok(())
    }

    fn bad(&mut self, name: &str, number: u64, reason: &str) {
        self.named += 1;
        if self.named <= MAX_NAMED {
            eprintln!("{name}:{number}: {reason}");
        } else if self.named == MAX_NAMED + 1 {
            eprintln!("prefixgate replay: further bad lines are only counted");
        }
    }
}

/// Passes over what is left of a line.
fn skip_line(lines: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = lines.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let (used, ended) = match memchr::memchr(b'\n', buffer) {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        lines.consume(used);
        if ended {
            return Ok(());
        }
    }
}
