//! Trails as bytes for the store: what is new after the thread's previous request.
//!
//! A growing conversation repeats itself with every turn, so its blocks are written as runs that
//! are copied from the same places of the previous trail, and the blocks between them. Whoever
//! writes gives `None` as the previous trail every now and then, so that no reader has to go far
//! back. The codes are stored: never renumber them.

use xxhash_rust::xxh3::xxh3_64;

use super::{Mark, Setting, Step, Trail};
use crate::provider::view::{BlockKind, Role, Section, Ttl};

/// The first byte of what this version writes.
const FORMAT: u8 = 1;
/// Most blocks of a trail that is read; a request of 32 MiB has fewer.
const MAX_STEPS: usize = 1 << 22;
/// Longest model name that is read.
const MAX_MODEL_BYTES: usize = 4096;
/// Fewest bytes of a block that is written out.
const STEP_BYTES: usize = 11;

/// There is a previous trail.
const BASED: u8 = 1;
/// The model stands here; otherwise it is the previous one's.
const MODEL: u8 = 1 << 1;
/// The settings stand here; otherwise they are the previous one's.
const SETTINGS: u8 = 1 << 2;
/// The set of beta features stands here; otherwise it is the previous one's.
const BETAS: u8 = 1 << 3;
/// The fast mode was asked for.
const FAST: u8 = 1 << 4;
const ALL_FLAGS: u8 = BASED | MODEL | SETTINGS | BETAS | FAST;

/// Names of settings by their code, which is the place in this list plus one. Append only.
const NAMES: [&str; 15] = [
    "speed",
    "citations",
    "tool_choice",
    "thinking",
    "output_config.effort",
    "images",
    "prompt",
    "prompt_cache_key",
    "service_tier",
    "response_format",
    "text.format",
    "reasoning_effort",
    "reasoning.effort",
    "verbosity",
    "text.verbosity",
];
/// The name of a setting that has no code.
const NAMELESS: &str = "other";

/// Why bytes are no trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// There are no bytes: the request was not looked at, or written by an earlier version.
    #[error("no blocks recorded")]
    Empty,
    /// Another version wrote them.
    #[error("written in a format that this version does not know")]
    Format,
    /// The previous trail is missing or another one.
    #[error("the record it builds on is missing")]
    Base,
    /// They are damaged.
    #[error("damaged")]
    Damaged,
}

/// Writes a trail, as what is new after `previous` where that is given.
#[must_use]
pub fn encode(now: &Trail, previous: Option<&Trail>) -> Vec<u8> {
    let before: &[Step] = previous.map_or(&[], |trail| &trail.steps);
    let mut out = Vec::with_capacity(64 + now.steps.len().saturating_sub(before.len()) * 14);
    let model = previous.is_none_or(|trail| trail.model != now.model);
    let settings = previous.is_none_or(|trail| trail.settings != now.settings);
    let betas = previous.is_none_or(|trail| trail.betas != now.betas);
    let flag = |is: bool, bit: u8| if is { bit } else { 0 };
    out.push(FORMAT);
    out.push(
        flag(previous.is_some(), BASED)
            | flag(model, MODEL)
            | flag(settings, SETTINGS)
            | flag(betas, BETAS)
            | flag(now.fast_beta, FAST),
    );
    if let Some(previous) = previous {
        out.extend(checksum(previous).to_le_bytes());
    }
    if model {
        number(&mut out, now.model.len() as u64);
        out.extend(now.model.as_bytes());
    }
    if settings {
        number(&mut out, now.settings.len() as u64);
        for setting in &now.settings {
            out.push(name_code(setting.name));
            out.push(section_code(setting.from));
            out.extend(setting.value.to_le_bytes());
        }
    }
    if betas {
        out.extend(now.betas.to_le_bytes());
    }
    number(&mut out, u64::from(now.head));
    number(&mut out, u64::from(now.messages));
    number(&mut out, now.steps.len() as u64);
    write_steps(&mut out, &now.steps, before);
    number(&mut out, now.marks.len() as u64);
    for mark in &now.marks {
        number(&mut out, u64::from(mark.at));
        // The lifetimes that came later have their third bit beside the flag.
        let ttl = ttl_code(mark.ttl);
        out.push(ttl & 3 | u8::from(mark.ours) << 2 | (ttl & 4) << 1);
    }
    out
}

/// Reads a trail; `previous` is the trail it was written after.
///
/// # Errors
/// The bytes are no trail, or build on another one than `previous`.
pub fn decode(bytes: &[u8], previous: Option<&Trail>) -> Result<Trail, Reason> {
    let mut input = Input(bytes);
    let flags = head_of(&mut input)?;
    let previous = if flags & BASED == 0 {
        None
    } else {
        let wanted = u64::from_le_bytes(input.array()?);
        let previous = previous.filter(|trail| checksum(trail) == wanted);
        Some(previous.ok_or(Reason::Base)?)
    };
    let model = if flags & MODEL != 0 {
        let length = input.count()?;
        if length > MAX_MODEL_BYTES {
            return Err(Reason::Damaged);
        }
        let name = std::str::from_utf8(input.take(length)?).map_err(|_| Reason::Damaged)?;
        name.into()
    } else {
        previous.ok_or(Reason::Damaged)?.model.clone()
    };
    let settings = if flags & SETTINGS != 0 {
        read_settings(&mut input)?
    } else {
        previous.ok_or(Reason::Damaged)?.settings.clone()
    };
    let betas = if flags & BETAS != 0 {
        u64::from_le_bytes(input.array()?)
    } else {
        previous.ok_or(Reason::Damaged)?.betas
    };
    let head = input.small()?;
    let messages = input.small()?;
    let steps = read_steps(&mut input, previous.map_or(&[], |trail| &trail.steps))?;
    let marks = read_marks(&mut input, steps.len())?;
    if !input.0.is_empty() || head as usize > steps.len() {
        return Err(Reason::Damaged);
    }
    Ok(Trail {
        steps: steps.into(),
        marks,
        settings,
        model,
        betas,
        fast_beta: flags & FAST != 0,
        head,
        messages,
    })
}

/// What a trail must have as its [`checksum`] so that these bytes can be read after it; `None`
/// where they stand for themselves.
///
/// # Errors
/// The bytes are no trail.
pub fn base(bytes: &[u8]) -> Result<Option<u64>, Reason> {
    let mut input = Input(bytes);
    let flags = head_of(&mut input)?;
    if flags & BASED == 0 {
        return Ok(None);
    }
    Ok(Some(u64::from_le_bytes(input.array()?)))
}

/// Tells a trail from others.
#[must_use]
pub fn checksum(trail: &Trail) -> u64 {
    xxh3_64(&encode(trail, None))
}

fn head_of(input: &mut Input<'_>) -> Result<u8, Reason> {
    if input.0.is_empty() {
        return Err(Reason::Empty);
    }
    if input.byte()? != FORMAT {
        return Err(Reason::Format);
    }
    let flags = input.byte()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(Reason::Format);
    }
    Ok(flags)
}

/// Runs of blocks that stand at the same places before, and between them the new ones.
fn write_steps(out: &mut Vec<u8>, now: &[Step], before: &[Step]) {
    let mut at = 0;
    while at < now.len() {
        let same = |at: usize| before.get(at) == now.get(at);
        let copied = (at..now.len()).take_while(|at| same(*at)).count();
        let from = at + copied;
        let new = (from..now.len()).take_while(|at| !same(*at)).count();
        number(out, copied as u64);
        number(out, new as u64);
        for step in &now[from..from + new] {
            out.extend(step.hash.to_le_bytes());
            number(out, u64::from(step.len));
            out.push(
                section_code(step.section) | u8::from(step.counts) << 2 | role_code(step.role) << 3,
            );
            out.push(kind_code(step.kind));
        }
        at = from + new;
    }
}

fn read_steps(input: &mut Input<'_>, before: &[Step]) -> Result<Vec<Step>, Reason> {
    let total = input.count()?;
    // Each block is in the bytes, or in the previous trail.
    if total > MAX_STEPS || total > before.len() + input.0.len() / STEP_BYTES {
        return Err(Reason::Damaged);
    }
    let mut steps = Vec::with_capacity(total);
    while steps.len() < total {
        let (copied, new) = (input.count()?, input.count()?);
        let left = total - steps.len();
        if copied > left || new > left - copied || copied + new == 0 {
            return Err(Reason::Damaged);
        }
        let from = steps.len();
        steps.extend_from_slice(before.get(from..from + copied).ok_or(Reason::Damaged)?);
        for _ in 0..new {
            let hash = u64::from_le_bytes(input.array()?);
            let len = input.small()?;
            let place = input.byte()?;
            let kind = input.byte()?;
            steps.push(Step {
                hash,
                len,
                section: section_of(place & 3)?,
                kind: kind_of(kind)?,
                role: role_of(place >> 3)?,
                counts: place & 4 != 0,
            });
        }
    }
    Ok(steps)
}

fn read_settings(input: &mut Input<'_>) -> Result<Vec<Setting>, Reason> {
    let count = input.count()?;
    if count > input.0.len() {
        return Err(Reason::Damaged);
    }
    let one = |input: &mut Input<'_>| {
        let name = usize::from(input.byte()?);
        Ok(Setting {
            name: match name.checked_sub(1) {
                None => NAMELESS,
                // A later version's; its value still tells whether it changed.
                Some(place) => NAMES.get(place).copied().unwrap_or(NAMELESS),
            },
            from: section_of(input.byte()?)?,
            value: u64::from_le_bytes(input.array()?),
        })
    };
    (0..count).map(|_| one(input)).collect()
}

fn read_marks(input: &mut Input<'_>, steps: usize) -> Result<Vec<Mark>, Reason> {
    let count = input.count()?;
    if count > input.0.len() {
        return Err(Reason::Damaged);
    }
    let one = |input: &mut Input<'_>| {
        let at = input.small()?;
        let code = input.byte()?;
        if at as usize >= steps || code > 15 {
            return Err(Reason::Damaged);
        }
        Ok(Mark {
            at,
            ttl: ttl_of(code & 3 | (code & 8) >> 1)?,
            ours: code & 4 != 0,
        })
    };
    (0..count).map(|_| one(input)).collect()
}

/// What is still to be read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Reason> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Reason::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Reason> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Reason::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Reason> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number in groups of seven bits, the lowest first.
    fn number(&mut self) -> Result<u64, Reason> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Reason::Damaged);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Reason::Damaged)
    }

    fn small(&mut self) -> Result<u32, Reason> {
        u32::try_from(self.number()?).map_err(|_| Reason::Damaged)
    }

    fn count(&mut self) -> Result<usize, Reason> {
        self.small().map(|count| count as usize)
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn name_code(name: &str) -> u8 {
    let place = NAMES.iter().position(|known| *known == name);
    place.map_or(0, |place| place as u8 + 1)
}

fn section_code(section: Section) -> u8 {
    match section {
        Section::Tools => 1,
        Section::System => 2,
        Section::Messages => 3,
    }
}

fn section_of(code: u8) -> Result<Section, Reason> {
    match code {
        1 => Ok(Section::Tools),
        2 => Ok(Section::System),
        3 => Ok(Section::Messages),
        _ => Err(Reason::Damaged),
    }
}

fn role_code(role: Option<Role>) -> u8 {
    match role {
        None => 0,
        Some(Role::User) => 1,
        Some(Role::Assistant) => 2,
        Some(Role::System) => 3,
        Some(Role::Other) => 4,
    }
}

fn role_of(code: u8) -> Result<Option<Role>, Reason> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Role::User)),
        2 => Ok(Some(Role::Assistant)),
        3 => Ok(Some(Role::System)),
        4 => Ok(Some(Role::Other)),
        _ => Err(Reason::Damaged),
    }
}

fn kind_code(kind: BlockKind) -> u8 {
    match kind {
        BlockKind::Other => 0,
        BlockKind::Tool => 1,
        BlockKind::Text => 2,
        BlockKind::Image => 3,
        BlockKind::Document => 4,
        BlockKind::ToolUse => 5,
        BlockKind::ToolResult => 6,
        BlockKind::ServerTool => 7,
        BlockKind::Thinking => 8,
    }
}

fn kind_of(code: u8) -> Result<BlockKind, Reason> {
    match code {
        0 => Ok(BlockKind::Other),
        1 => Ok(BlockKind::Tool),
        2 => Ok(BlockKind::Text),
        3 => Ok(BlockKind::Image),
        4 => Ok(BlockKind::Document),
        5 => Ok(BlockKind::ToolUse),
        6 => Ok(BlockKind::ToolResult),
        7 => Ok(BlockKind::ServerTool),
        8 => Ok(BlockKind::Thinking),
        _ => Err(Reason::Damaged),
    }
}

fn ttl_code(ttl: Option<Ttl>) -> u8 {
    match ttl {
        None => 0,
        Some(Ttl::M5) => 1,
        Some(Ttl::H1) => 2,
        Some(Ttl::M30) => 3,
        Some(Ttl::H12) => 4,
    }
}

fn ttl_of(code: u8) -> Result<Option<Ttl>, Reason> {
    match code {
        0 => Ok(None),
        1 => Ok(Some(Ttl::M5)),
        2 => Ok(Some(Ttl::H1)),
        3 => Ok(Some(Ttl::M30)),
        4 => Ok(Some(Ttl::H12)),
        _ => Err(Reason::Damaged),
    }
}

#[cfg(test)]
mod tests;
