//! Whether the result of a tool failed, and which error it was.
//!
//! A client's flag decides where there is one. Many clients set none, so the text decides by rules
//! that look at how a failure is reported, not at what is talked about: a file that contains the
//! word error, or a search that finds it, is fine. Only the first and the last [`LOOKED_AT`] bytes
//! of a text are looked at. It has failed when
//!
//! - it begins (after white space and colours, whatever the case) with an error's own opening:
//!   `error:`, `error[E1]:`, `error executing`, the name of an exception and a colon, `Traceback`,
//!   `fatal:`, `panic:`, `<tool_use_error>`, `HTTP` and a status of 400 to 599, a word for an errno
//!   such as `ENOENT`, in capitals `ERROR`, or with what Codex says of a call that it refuses
//!   (`apply_patch verification failed`, `unsupported call:`, November 2026);
//! - it is one line that ends as the messages of shells and of the C library do (`: No such file or
//!   directory`);
//! - a line states an exit code other than 0 (`Exit code: 1`, `Process exited with code 1`), or a
//!   member of JSON does (`"returncode": 1`), also inside of `"metadata"`; of several statements the
//!   last one counts. Blocks with `stdout`, `stderr` and an `outcome`, which the shell of the
//!   Responses API has, are read as such a text;
//! - it is a JSON object (or a list of them) with `"success": false`, `"isError": true`,
//!   `"status": "error"`, or an `"error"` that says something.

mod memo;
mod normal;
#[cfg(test)]
mod tests;
mod texts;

pub(super) use memo::Memory;
use texts::text;
use xxhash_rust::xxh3::xxh3_64;

use crate::provider::json::{Walker, unescape};

/// Bytes at either end of a text in which a failure is looked for.
const LOOKED_AT: usize = 1024;
/// Bytes of an error's text that are read, from the start and before the end. A shorter text is
/// read whole.
const READ_HEAD: usize = 4096;
const READ_TAIL: usize = 1024;
/// Bytes of the normalised text that tell errors apart, from the start and before the end.
const KEPT_HEAD: usize = 2048;
const KEPT_TAIL: usize = 512;
/// Longest line that is taken for a message of a shell, in bytes.
const SHELL_LINE: usize = 300;

/// Which error a failed result reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Error {
    /// Hash of its text without what is volatile (times, ids, temporary paths).
    pub strict: u64,
    /// As `strict`, with most other numbers left out as well.
    pub loose: u64,
    /// It says no more than that something failed, so two of them need not be the same error.
    pub bare: bool,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It succeeded; hash of the result.
    Fine(u64),
    /// It failed.
    Failed(Error),
}

/// Content of a result, as it stands in the body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Content<'a> {
    /// A raw JSON string, or another value.
    pub raw: &'a [u8],
    /// Hash of the content, equal for spellings that mean the same.
    pub hash: u64,
    /// Whether the client flagged it as failed.
    pub flag: Option<bool>,
}

impl Content<'_> {
    /// Whether it failed.
    pub(super) fn failed(&self, memory: &Memory) -> bool {
        self.flag.unwrap_or_else(|| self.said(memory).failed)
    }

    /// How the call ended.
    pub(super) fn outcome(&self, memory: &Memory) -> Outcome {
        if self.flag == Some(false) {
            return Outcome::Fine(self.hash);
        }
        let said = self.said(memory);
        match said.error {
            _ if !self.flag.unwrap_or(said.failed) => Outcome::Fine(self.hash),
            Some(error) => Outcome::Failed(error),
            None => {
                let error = error(&text(self.raw));
                let error = Some(error);
                memory.put(self.hash, Said { error, ..said });
                error.map_or(Outcome::Fine(self.hash), Outcome::Failed)
            }
        }
    }

    fn said(&self, memory: &Memory) -> Said {
        memory.get(self.hash).unwrap_or_else(|| {
            let text = text(self.raw);
            let failed = failed(&text);
            let said = Said {
                failed,
                error: failed.then(|| error(&text)),
            };
            memory.put(self.hash, said);
            said
        })
    }
}

/// What is remembered of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    /// By the rules for texts.
    failed: bool,
    /// Its error, once somebody wanted to know.
    error: Option<Error>,
}

/// The error that an escaped text reports.
fn error(text: &[u8]) -> Error {
    let strict = if text.len() <= READ_HEAD {
        normal::strict(unescape(text).as_bytes(), usize::MAX)
    } else {
        // The borders are counted in the normalised text, so that a longer time or id before them
        // does not move them.
        let mut head = normal::strict(unescape(&text[..READ_HEAD]).as_bytes(), KEPT_HEAD);
        let tail = unescape(&text[text.len() - READ_TAIL..]);
        let tail = normal::strict(tail.as_bytes(), usize::MAX);
        head.push(b'\n');
        head.extend_from_slice(&tail[tail.len().saturating_sub(KEPT_TAIL)..]);
        head
    };
    Error {
        strict: xxh3_64(&strict),
        loose: xxh3_64(&normal::loose(&strict)),
        bare: normal::bare(&strict),
    }
}

/// Whether an escaped text reports a failure.
fn failed(text: &[u8]) -> bool {
    let whole = text.len() <= 2 * LOOKED_AT;
    let (head, tail) = if whole {
        (text, &text[..0])
    } else {
        (&text[..LOOKED_AT], &text[text.len() - LOOKED_AT..])
    };
    let (head, tail) = (unescape(head), unescape(tail));
    let head = normal::without_colours(head.trim_start());
    let head = head.trim_start();
    if opens_as_error(head) || (whole && is_shell_message(head)) {
        return true;
    }
    let head = behind_script(head);
    let json = head.starts_with(['{', '[']);
    if json {
        match json_says(head.as_bytes()) {
            Some(Verdict::Failed) => return true,
            Some(Verdict::Exit(code)) => return json_exit(&tail).unwrap_or(code) != 0,
            None => {}
        }
    }
    let exit = if json {
        // Line ends inside of strings of JSON are escapes.
        let lines = |text: &str| exit_code(&text.replace("\\n", "\n"));
        json_exit(&tail)
            .or_else(|| lines(&tail))
            .or_else(|| lines(head))
    } else {
        exit_code(&tail).or_else(|| exit_code(head))
    };
    exit.is_some_and(|code| code != 0)
}

/// What Codex puts before the result of a script that ran (its own words, version 0.171): the result
/// itself says whether what the script called had failed.
fn behind_script(text: &str) -> &str {
    const BORDER: &str = "\nOutput:\n";
    /// The border stands behind a line or two.
    const REACH: usize = 200;
    let script = text.starts_with("Script ");
    let border = text.find(BORDER).filter(|at| script && *at < REACH);
    border.map_or(text, |at| text[at + BORDER.len()..].trim_start())
}

/// Words for errno that tools print first.
const ERRNO: [&str; 32] = [
    "EACCES",
    "EADDRINUSE",
    "EAGAIN",
    "EAI_AGAIN",
    "EBADF",
    "EBUSY",
    "ECONNABORTED",
    "ECONNREFUSED",
    "ECONNRESET",
    "EEXIST",
    "EHOSTUNREACH",
    "EINVAL",
    "EIO",
    "EISDIR",
    "ELOOP",
    "EMFILE",
    "ENAMETOOLONG",
    "ENETUNREACH",
    "ENOENT",
    "ENOMEM",
    "ENOSPC",
    "ENOTCONN",
    "ENOTDIR",
    "ENOTEMPTY",
    "ENOTFOUND",
    "ENOTSUP",
    "EPERM",
    "EPIPE",
    "EROFS",
    "ETIMEDOUT",
    "ETXTBSY",
    "EXDEV",
];

fn opens_as_error(text: &str) -> bool {
    let starts = |words: &str| {
        let start = text.as_bytes().get(..words.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(words.as_bytes()))
    };
    const OPENINGS: [&str; 14] = [
        "apply_patch verification failed",
        "exec_command failed",
        "failed to parse function arguments",
        "unsupported call: ",
        "write_stdin failed",
        "traceback (most recent call last)",
        "<tool_use_error>",
        "fatal:",
        "fatal error:",
        "panic:",
        "exception in thread",
        "error executing ",
        "error calling ",
        "error running ",
    ];
    if OPENINGS.into_iter().any(starts) {
        return true;
    }
    let length = text
        .bytes()
        .position(|byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(length);
    let ends_here = |rest: &str| rest.is_empty() || rest.starts_with([':', '\n', '\r']);
    if word.eq_ignore_ascii_case("error") {
        let loud = word == "ERROR" && (rest.is_empty() || rest.starts_with([' ', '\n', '[', '-']));
        return loud || behind_code(rest).starts_with(':');
    }
    if word.eq_ignore_ascii_case("exception") {
        return ends_here(rest);
    }
    if word.eq_ignore_ascii_case("http") {
        return is_http_failure(rest);
    }
    if word.eq_ignore_ascii_case("thread") {
        let line = rest.lines().next().unwrap_or_default();
        return line.contains("panicked at");
    }
    let named = ["Error", "Exception"].iter().any(|end| word.ends_with(end));
    (named && (ends_here(rest) || rest.starts_with(" ["))) || ERRNO.contains(&word)
}

/// What stands behind a code that qualifies an error: `[E1]`, `(404)`, ` TS2304`.
fn behind_code(rest: &str) -> &str {
    let rest = rest.trim_start_matches(' ');
    let close = match rest.chars().next() {
        Some('[') => ']',
        Some('(') => ')',
        _ => {
            let end = rest
                .find(|c: char| !c.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            let has_digit = rest[..end].bytes().any(|byte| byte.is_ascii_digit());
            return if has_digit { &rest[end..] } else { rest };
        }
    };
    match rest.find(close) {
        Some(end) if end < 40 => &rest[end + close.len_utf8()..],
        _ => rest,
    }
}

fn is_http_failure(rest: &str) -> bool {
    let mut rest = rest;
    if let Some(version) = rest.strip_prefix('/') {
        rest = version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    }
    for word in ["error", "Error", "status", "code"] {
        rest = rest.trim_start_matches([' ', ':']);
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.trim_start_matches([' ', ':']);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits == 3 && rest.starts_with(['4', '5'])
}

/// One line that ends with the words of the C library or of a shell.
fn is_shell_message(text: &str) -> bool {
    const ENDS: [&str; 7] = [
        ": No such file or directory",
        ": Permission denied",
        ": Is a directory",
        ": Not a directory",
        ": command not found",
        ": Connection refused",
        ": not found",
    ];
    let line = text.trim_end();
    line.len() <= SHELL_LINE && !line.contains('\n') && ENDS.iter().any(|end| line.ends_with(end))
}

/// The exit code of the last line that states one.
fn exit_code(text: &str) -> Option<i64> {
    let lines = text.lines().rev();
    lines.map(str::trim).find_map(exit_code_of_line)
}

fn exit_code_of_line(line: &str) -> Option<i64> {
    const PHRASES: [&str; 6] = [
        "exit code",
        "exited with code",
        "exited with status",
        "exit status",
        "exited with",
        "<returncode>",
    ];
    /// Words that may stand before a statement, in bytes.
    const BEFORE: usize = 48;
    // A statement is short.
    if line.len() > 160 {
        return None;
    }
    let line = line.to_ascii_lowercase();
    PHRASES.iter().find_map(|phrase| {
        let at = line.find(phrase)?;
        let before = &line[..at];
        let prose = |byte: u8| byte.is_ascii_alphanumeric() || b" '`\"({[*_-.".contains(&byte);
        if before.len() > BEFORE || !before.bytes().all(prose) {
            return None;
        }
        let rest = line[at + phrase.len()..].trim_start_matches([' ', ':', '=', '(', '`']);
        let (code, rest) = leading_number(rest)?;
        let rest = rest.strip_prefix("</returncode>").unwrap_or(rest);
        let said = rest.trim_matches([' ', '.', ')', ']', '}', '"', '\'', '`', ',', ';', '*']);
        let over = said.is_empty() || said.starts_with("in ") || said.starts_with("after ");
        over.then_some(code)
    })
}

fn leading_number(text: &str) -> Option<(i64, &str)> {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(sign + digits);
    Some((number.parse().ok()?, rest))
}

enum Verdict {
    Failed,
    Exit(i64),
}

/// What the members of an object at the start of a text say, as far as the text reaches; of a list
/// the first object.
fn json_says(text: &[u8]) -> Option<Verdict> {
    let mut exit = None;
    match json_members(text, &mut exit) {
        Ok(true) => Some(Verdict::Failed),
        _ => exit.map(Verdict::Exit),
    }
}

fn json_members(text: &[u8], exit: &mut Option<i64>) -> Result<bool, &'static str> {
    let mut walk = Walker::new(text)?;
    walk.enter(b'[')?;
    if !walk.enter(b'{')? {
        return Ok(false);
    }
    let mut first = true;
    while let Some(key) = walk.key(&mut first)? {
        walk.peek()?;
        let rest = &text[walk.at() as usize..];
        let failed = match key.as_ref() {
            b"success" => rest.starts_with(b"false"),
            b"isError" | b"is_error" => rest.starts_with(b"true"),
            b"status" => rest.starts_with(b"\"error\""),
            b"error" => {
                const NOTHING: [&[u8]; 6] = [b"null", b"false", b"\"\"", b"[]", b"{}", b"0"];
                !NOTHING.iter().any(|nothing| rest.starts_with(nothing))
            }
            key if is_exit(key) => {
                *exit = number(rest).or(*exit);
                false
            }
            b"metadata" if rest.starts_with(b"{") => {
                let value = walk.skip()?.of(text);
                *exit = exit_in(value).or(*exit);
                continue;
            }
            _ => false,
        };
        if failed {
            return Ok(true);
        }
        walk.skip()?;
    }
    Ok(false)
}

fn is_exit(key: &[u8]) -> bool {
    matches!(
        key,
        b"returncode" | b"return_code" | b"exit_code" | b"exitCode"
    )
}

fn number(text: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(&text[..text.len().min(20)]);
    leading_number(&text).map(|(code, _)| code)
}

/// The exit code among the members of an object.
fn exit_in(object: &[u8]) -> Option<i64> {
    let mut walk = Walker::new(object).ok()?;
    walk.enter(b'{').ok()?;
    let (mut first, mut exit) = (true, None);
    while let Some(key) = walk.key(&mut first).ok()? {
        let value = walk.skip().ok()?.of(object);
        if is_exit(&key) {
            exit = number(value);
        }
    }
    exit
}

/// The last exit code among the members of JSON at the end of a text.
fn json_exit(text: &str) -> Option<i64> {
    const KEYS: [&str; 4] = [
        "\"returncode\"",
        "\"return_code\"",
        "\"exit_code\"",
        "\"exitCode\"",
    ];
    let last = KEYS
        .iter()
        .filter_map(|key| Some(text.rfind(key)? + key.len()))
        .max()?;
    let rest = text[last..].trim_start_matches([' ', ':']);
    leading_number(rest).map(|(code, _)| code)
}
