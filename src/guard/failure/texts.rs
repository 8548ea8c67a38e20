//! What a result says, as one text.

use std::borrow::Cow;

use super::{READ_HEAD, READ_TAIL, number};
use crate::guard::reminder::own;
use crate::provider::json::{Walker, inside};

/// Blocks of a result whose texts are looked at.
const BLOCKS: usize = 8;

/// The text of a content, still escaped: of a string its inside without a reminder, of a list of
/// blocks the texts of the first few, each cut in its middle.
pub(super) fn text(raw: &[u8]) -> Cow<'_, [u8]> {
    if raw.first() != Some(&b'[') {
        return Cow::Borrowed(own(inside(raw)));
    }
    let mut all = Vec::new();
    // What was gathered before a fault is as good as it gets.
    let _ = texts(raw, &mut all);
    Cow::Owned(all)
}

fn texts(raw: &[u8], into: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut walk = Walker::new(raw)?;
    walk.enter(b'[')?;
    let (mut first, mut blocks) = (true, 0);
    while blocks < BLOCKS && walk.element(&mut first)? {
        if !walk.enter(b'{')? {
            walk.skip()?;
            continue;
        }
        blocks += 1;
        let (mut first, mut exit) = (true, None);
        while let Some(key) = walk.key(&mut first)? {
            let is_text = walk.peek()? == b'"';
            let value = walk.skip()?.of(raw);
            match key.as_ref() {
                b"text" | b"stdout" | b"stderr" if is_text => add_text(inside(value), into),
                b"outcome" if !is_text => exit = outcome(value),
                _ => {}
            }
        }
        if let Some(code) = exit {
            add_text(format!("Exit code: {code}").as_bytes(), into);
        }
    }
    Ok(())
}

fn add_text(value: &[u8], into: &mut Vec<u8>) {
    if value.is_empty() {
        return;
    }
    if !into.is_empty() {
        into.extend_from_slice(b"\\n");
    }
    if value.len() <= READ_HEAD + READ_TAIL {
        into.extend_from_slice(value);
    } else {
        into.extend_from_slice(&value[..READ_HEAD]);
        into.extend_from_slice(&value[value.len() - READ_TAIL..]);
    }
}

/// The exit code that the outcome of a shell's command says; a command that took too long has the
/// one that timeout(1) gives.
fn outcome(value: &[u8]) -> Option<i64> {
    const TIMED_OUT: i64 = 124;
    let mut exit = None;
    let mut timed_out = false;
    let mut read = || -> Result<(), &'static str> {
        let mut walk = Walker::new(value)?;
        let mut first = true;
        if !walk.enter(b'{')? {
            return Ok(());
        }
        while let Some(key) = walk.key(&mut first)? {
            let said = walk.skip()?.of(value);
            match key.as_ref() {
                b"exit_code" => exit = number(said),
                b"type" => timed_out = said == b"\"timeout\"",
                _ => {}
            }
        }
        Ok(())
    };
    read().ok()?;
    exit.or(timed_out.then_some(TIMED_OUT))
}
