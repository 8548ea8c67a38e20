//! What lies in a spool's directory. Looks only.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::cursor::{self, Found, Position};
use super::format::{self, HEADER, Head};
use super::source::{Source, Tail, locate, tail};
use super::state::Segment;

/// Ending of a segment's name.
const ENDING: &str = "seg";

/// The name of the segment that begins with a sequence number.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first:020}.{ENDING}")
}

fn first_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_suffix(ENDING)?.strip_suffix('.')?;
    (digits.len() == 20).then(|| digits.parse().ok()).flatten()
}

/// What was found.
#[derive(Debug)]
pub(super) struct Survey {
    pub position: Position,
    /// There is a cursor that can be read: its generation.
    pub generation: Option<u64>,
    /// A cursor is there and cannot be read.
    pub cursor_unreadable: bool,
    /// What can be read, in order, with nothing that is settled.
    pub segments: Vec<Segment>,
    /// What is settled altogether, and files in which nothing ever was.
    pub stale: Vec<PathBuf>,
    /// What cannot be read, with the reason.
    pub unreadable: Vec<(PathBuf, String)>,
    /// The end of the last segment, if it can be appended to.
    pub appendable: Option<Tail>,
    /// The last segment goes beyond what can be read of it, by a write that did not come to its end:
    /// where that begins.
    pub torn: Option<(PathBuf, u64)>,
    /// Time of the newest record.
    pub newest_ms: Option<i64>,
    /// Where the head lies in its segment.
    pub head_at: u64,
    /// Where the oldest record that waits lies in its segment, and its time.
    pub low_at: u64,
    pub oldest_ms: Option<i64>,
    /// Nobody has ever written here.
    pub empty: bool,
}

struct Candidate {
    path: PathBuf,
    first: u64,
    bytes: u64,
    head: Head,
    first_ms: Option<i64>,
}

/// Looks at a directory.
///
/// # Errors
/// It cannot be read.
pub(super) fn survey(dir: &Path) -> io::Result<Survey> {
    let (cursor_unreadable, known) = match cursor::read(dir)? {
        Found::Missing => (false, None),
        Found::Unreadable => (true, None),
        Found::Known(position, generation) => (false, Some((position, generation))),
    };
    let candidates = candidates(dir)?;
    let empty = candidates.is_empty() && known.is_none() && !cursor_unreadable;
    let headed = candidates.iter().rev().find_map(|one| match one.head {
        Head::Known { spool, .. } => Some(spool),
        Head::Foreign(_) | Head::Damaged => None,
    });
    let id = known.map(|(position, _)| position.spool).or(headed);
    let sorted = sort(candidates, id)?;
    let position = match known {
        Some((position, _)) => position,
        None => {
            // Without a cursor a number could be given twice where files are missing, so that a batch
            // would bear the token of another one: then the spool gets a new name.
            let whole = sorted.unreadable.is_empty() && !cursor_unreadable;
            let spool = id.filter(|_| whole).unwrap_or_else(Uuid::new_v4);
            let first = sorted.segments.first().map_or(1, |segment| segment.first);
            Position {
                spool,
                base: first,
                next: first,
                head: first,
                floor: first,
                claim: None,
                counted: super::Counted::default(),
            }
        }
    };
    let mut found = Survey {
        position,
        generation: known.map(|(_, generation)| generation),
        cursor_unreadable,
        segments: sorted.segments,
        stale: sorted.stale,
        unreadable: sorted.unreadable,
        appendable: None,
        torn: None,
        newest_ms: None,
        head_at: HEADER as u64,
        low_at: HEADER as u64,
        oldest_ms: None,
        empty,
    };
    found.find_end()?;
    found.drop_settled();
    found.find_head()?;
    Ok(found)
}

fn candidates(dir: &Path) -> io::Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(first) = first_of(&path) else {
            continue;
        };
        let mut begin = Vec::with_capacity(HEADER + format::FRAME);
        let bytes = match File::open(&path) {
            Ok(file) => {
                let bytes = file.metadata()?.len();
                file.take((HEADER + format::FRAME) as u64)
                    .read_to_end(&mut begin)?;
                bytes
            }
            // A live process has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        candidates.push(Candidate {
            path,
            first,
            bytes,
            head: format::head(&begin),
            first_ms: begin.get(HEADER..).and_then(format::claimed_ms),
        });
    }
    candidates.sort_by_key(|one| one.first);
    Ok(candidates)
}

struct Sorted {
    segments: Vec<Segment>,
    stale: Vec<PathBuf>,
    unreadable: Vec<(PathBuf, String)>,
}

/// What of the files can be read.
fn sort(candidates: Vec<Candidate>, id: Option<Uuid>) -> io::Result<Sorted> {
    let mut sorted = Sorted {
        segments: Vec::new(),
        stale: Vec::new(),
        unreadable: Vec::new(),
    };
    for one in candidates {
        let seed = match one.head {
            Head::Known { spool, first } if first == one.first => format::seed(spool),
            Head::Known { first, .. } => {
                let why = format!("it begins with number {first}, which is not its name");
                sorted.unreadable.push((one.path, why));
                continue;
            }
            Head::Foreign(version) => {
                let why = format!("version {version} of the format is not known");
                sorted.unreadable.push((one.path, why));
                continue;
            }
            // A write that came to nothing.
            Head::Damaged if one.bytes <= HEADER as u64 => {
                sorted.stale.push(one.path);
                continue;
            }
            Head::Damaged => {
                let seed = id.map(format::seed);
                let wanted = one.first..u64::MAX;
                let readable = |seed: u64| -> io::Result<bool> {
                    let mut source = Source::open(&one.path, seed)?;
                    let first = source.next(HEADER as u64, &wanted, one.bytes)?;
                    Ok(first.is_some())
                };
                match seed {
                    Some(seed) if readable(seed)? => seed,
                    _ => {
                        let why = "its header is damaged, and so is the rest".to_owned();
                        sorted.unreadable.push((one.path, why));
                        continue;
                    }
                }
            }
        };
        if let Some(before) = sorted.segments.last_mut() {
            let before: &mut Segment = before;
            before.end = one.first;
        }
        sorted.segments.push(Segment {
            path: one.path,
            first: one.first,
            end: u64::MAX,
            bytes: one.bytes,
            seed,
            first_ms: one.first_ms,
        });
    }
    Ok(sorted)
}

impl Survey {
    /// Finds out what the last segment ends with, and which number comes next.
    fn find_end(&mut self) -> io::Result<()> {
        let mut end = self.position.next;
        if let Some(last) = self.segments.last_mut() {
            let mut source = Source::open(&last.path, last.seed)?;
            let found = tail(&mut source, last.first, last.bytes)?;
            last.end = found.next;
            end = end.max(found.next);
            self.newest_ms = found.last_ms;
            let numbered_on = end == found.next;
            let own = last.seed == format::seed(self.position.spool);
            if numbered_on && own && !found.damaged {
                self.appendable = Some(found);
            }
            if !found.damaged {
                let torn = last.bytes > found.good;
                self.torn = torn.then(|| (last.path.clone(), found.good));
                last.bytes = found.good;
            }
        }
        let claimed = self.position.claim.map_or(0, |claim| claim.end);
        self.position.next = end.max(self.position.head).max(claimed);
        if self.position.next != end {
            self.appendable = None;
        }
        Ok(())
    }

    fn drop_settled(&mut self) {
        let position = &self.position;
        let low = position.claim.map_or(position.head, |claim| claim.done);
        let last = self.segments.len().saturating_sub(1);
        let keep_last = self.appendable.is_some();
        let mut place = 0;
        let stale = &mut self.stale;
        self.segments.retain(|segment| {
            let kept = segment.end > low || (place == last && keep_last);
            place += 1;
            if !kept {
                stale.push(segment.path.clone());
            }
            kept
        });
    }

    fn find_head(&mut self) -> io::Result<()> {
        let head = self.position.head;
        let low = self.position.claim.map_or(head, |claim| claim.done);
        for (sequence, is_head) in [(low, false), (head, true)] {
            let Some(segment) = self.segments.iter().find(|s| s.end > sequence) else {
                continue;
            };
            let (at, ms) = if segment.first >= sequence {
                (HEADER as u64, segment.first_ms)
            } else {
                let mut source = Source::open(&segment.path, segment.seed)?;
                locate(&mut source, segment.first, sequence, segment.bytes)?
            };
            if is_head {
                self.head_at = at;
            } else {
                (self.low_at, self.oldest_ms) = (at, ms);
            }
        }
        Ok(())
    }
}
