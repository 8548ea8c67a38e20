//! What a call acts on, as far as its input says so under one of the usual names.

use xxhash_rust::xxh3::xxh3_64;

use super::{pair, said};
use crate::provider::json::{Walker, inside, unescape};

/// Members that name a file or a place.
const PLACES: [&[u8]; 12] = [
    b"file_path",
    b"path",
    b"file",
    b"filename",
    b"filepath",
    b"filePath",
    b"notebook_path",
    b"target_file",
    b"absolute_path",
    b"relative_path",
    b"uri",
    b"url",
];
/// Members that hold a command line.
const COMMANDS: [&[u8]; 2] = [b"command", b"cmd"];
/// A member that holds several.
const LINES: &[u8] = b"commands";
/// Members that may hold a patch.
const PATCHES: [&[u8]; 2] = [b"input", b"patch"];
/// The first line of a patch that names its files, and what stands before their names.
const PATCH: &str = "*** Begin Patch";
const FILES: [&str; 3] = ["*** Update File: ", "*** Add File: ", "*** Delete File: "];
/// Longest command line that is looked at, in bytes.
const COMMAND_BYTES: usize = 4096;

/// Hash of the first place or program that an input names; `None` where there is none.
pub(super) fn of(input: &[u8]) -> Option<u64> {
    if input.trim_ascii_start().starts_with(PATCH.as_bytes()) {
        return patched(&String::from_utf8_lossy(input));
    }
    let mut walk = Walker::new(input).ok()?;
    if !walk.enter(b'{').ok()? {
        return None;
    }
    let mut first = true;
    while let Some(key) = walk.key(&mut first).ok()? {
        let value = walk.skip().ok()?.of(input);
        if PLACES.contains(&key.as_ref()) && value.first() == Some(&b'"') {
            return Some(xxh3_64(&said(value)));
        }
        if PATCHES.contains(&key.as_ref()) && inside(value).starts_with(PATCH.as_bytes()) {
            return patched(&line(value));
        }
        if key.as_ref() == LINES {
            // Each of them is a whole line.
            return Some(pair(program(&first_of(value)?)?, 1));
        }
        if COMMANDS.contains(&key.as_ref()) {
            let program = match value.first() {
                Some(b'"') => program(&line(value)),
                Some(b'[') => program(&words(value)?),
                _ => None,
            };
            // A program is no file of that name.
            return Some(pair(program?, 1));
        }
    }
    None
}

/// Hash of the first file that a patch names.
fn patched(patch: &str) -> Option<u64> {
    let mut lines = patch.lines();
    let file = lines.find_map(|line| FILES.iter().find_map(|before| line.strip_prefix(before)));
    file.map(|file| xxh3_64(file.trim_end().as_bytes()))
}

/// The first text of a list.
fn first_of(list: &[u8]) -> Option<String> {
    let mut walk = Walker::new(list).ok()?;
    let entered = walk.enter(b'[').ok()?;
    (entered && walk.element(&mut true).ok()?).then_some(())?;
    Some(line(walk.skip().ok()?.of(list)))
}

/// The text of a command line, cut.
fn line(raw: &[u8]) -> String {
    let inner = inside(raw);
    unescape(&inner[..inner.len().min(COMMAND_BYTES)]).into_owned()
}

/// The command line that a list of words makes: behind `sh -c` the word that follows.
fn words(list: &[u8]) -> Option<String> {
    let mut walk = Walker::new(list).ok()?;
    walk.enter(b'[').ok()?;
    let (mut words, mut first) = (Vec::new(), true);
    while words.len() < 3 && walk.element(&mut first).ok()? {
        words.push(line(walk.skip().ok()?.of(list)));
    }
    let shell = words.first().is_some_and(|word| word.ends_with("sh"));
    let inline = words
        .get(1)
        .is_some_and(|word| word.starts_with('-') && word.ends_with('c'));
    Some(if shell && inline && words.len() == 3 {
        words.swap_remove(2)
    } else {
        words.join(" ")
    })
}

/// Hash of the program that a command line starts, after assignments and changes of directory.
fn program(line: &str) -> Option<u64> {
    let mut rest = line.trim_start();
    loop {
        let end = rest
            .find(|c: char| c.is_whitespace() || c == ';')
            .unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        let behind = behind.trim_start();
        let name = word.split('=').next().unwrap_or(word);
        let named =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let assigns = named && word.contains('=');
        if matches!(word, "cd" | "pushd") {
            let next = behind
                .find("&&")
                .map(|at| at + 2)
                .or(behind.find(';').map(|at| at + 1));
            let Some(next) = next else {
                return Some(xxh3_64(word.as_bytes()));
            };
            rest = behind[next..].trim_start();
        } else if !behind.is_empty()
            && (assigns || matches!(word, "sudo" | "env" | "time" | "nohup"))
        {
            rest = behind;
        } else {
            return (!word.is_empty()).then(|| xxh3_64(word.as_bytes()));
        }
    }
}
