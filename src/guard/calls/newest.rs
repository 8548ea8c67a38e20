//! What the newest turn brings: its results, how often each call had failed before, and the calls
//! that were left without a result.

use super::{Call, content, id, said};
use crate::guard::failure::Memory;
use crate::guard::loops::{History, Memo};
use crate::provider::view::{Block, BlockKind, RequestView, Role};

/// Results of the newest turn that are told, and calls in it that are looked at.
const MOST: usize = 256;
/// Longest id that is told, in bytes.
const MAX_ID: usize = 256;

/// How a call of the newest turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Id of the call, as the provider gave it.
    pub call_id: String,
    /// By the client's flag, or by what the text says where there is none.
    pub failed: bool,
    /// How often the same call had failed right before, with no success of it in between, as far
    /// as the history can be seen.
    pub retries: u32,
}

/// The newest turn: what stands after the last answer of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newest {
    /// Its results in their order, the first 256 of them.
    pub results: Vec<Outcome>,
    /// Ids of the calls of that answer to which no result came although the conversation went on.
    pub unanswered: Vec<String>,
}

/// A call of the last answer.
struct Asked {
    id: u64,
    text: String,
    key: Option<u64>,
    failures: u32,
    name: Vec<u8>,
    /// Length of the input, where equal ones have equal lengths.
    input: Option<u32>,
    answered: bool,
}

/// Reads the newest turn of a request. `from` is what the part of the history that the provider
/// holds has shown, as for [`crate::guard::loops::look`].
#[must_use]
pub fn results(body: &[u8], view: &RequestView, memo: &Memo, from: Option<&History>) -> Newest {
    let last = view.messages.len().saturating_sub(1);
    // An answer at the very end only begins the next one.
    let mut earlier = view.messages.iter().take(last);
    let answer = earlier.rposition(|message| message.role == Role::Assistant);
    let begin = answer.map_or(0, |at| at + 1);
    let blocks = |at: usize| {
        let range = view.messages[at].blocks.clone();
        view.blocks
            .get(range.start as usize..range.end as usize)
            .unwrap_or_default()
    };
    let newest = || (begin..view.messages.len()).filter(|at| view.messages[*at].role == Role::User);
    let mut asked = match (answer, from) {
        (Some(at), _) => asked(body, blocks(at)),
        (None, Some(history)) => held(history),
        (None, None) => Vec::new(),
    };
    if let Some(at) = answer {
        count_failures(body, view, memo.memory(), at, &mut asked);
        if let Some(history) = from {
            for call in asked.iter_mut().filter(|call| call.failures == 0) {
                call.failures = call.key.map_or(0, |key| history.failures(key));
            }
        }
    }
    let mut found = Newest::default();
    for block in newest().flat_map(blocks) {
        let (BlockKind::ToolResult, Some(call)) = (block.kind, id(body, block)) else {
            continue;
        };
        let asked = asked
            .iter_mut()
            .find(|asked| asked.id == call && !asked.answered);
        let retries = asked.map_or(0, |asked| {
            asked.answered = true;
            asked.failures
        });
        if found.results.len() < MOST {
            found.results.push(Outcome {
                call_id: text(body, block),
                failed: content(body, block).failed(memo.memory()),
                retries,
            });
        }
    }
    if newest().next().is_some() {
        let unanswered = asked.into_iter().filter(|asked| !asked.answered);
        found.unanswered = unanswered.map(|asked| asked.text).collect();
    }
    found
}

fn text(body: &[u8], block: &Block) -> String {
    let raw = block.call_id.map(|span| span.of(body)).unwrap_or_default();
    let text = String::from_utf8_lossy(&said(&raw[..raw.len().min(6 * MAX_ID)])).into_owned();
    crate::text::prefix(&text, MAX_ID).to_owned()
}

/// The calls of an answer in the body.
fn asked(body: &[u8], blocks: &[Block]) -> Vec<Asked> {
    let calls = blocks
        .iter()
        .filter(|block| block.kind == BlockKind::ToolUse);
    let calls = calls.filter_map(|block| {
        Some(Asked {
            id: id(body, block)?,
            text: text(body, block),
            key: Call::of(body, block).map(|call| call.key),
            failures: 0,
            name: block
                .name
                .map(|name| name.of(body).to_vec())
                .unwrap_or_default(),
            input: length(block),
            answered: false,
        })
    });
    calls.take(MOST).collect()
}

/// The calls of the last answer that the provider holds.
fn held(history: &History) -> Vec<Asked> {
    let calls = history.asked().map(|(id, text, key)| Asked {
        id,
        text: text.to_owned(),
        key: Some(key),
        failures: history.failures(key),
        name: Vec::new(),
        input: None,
        answered: false,
    });
    calls.collect()
}

/// Counts how often each of the calls had failed right before the answer that stands at `until`.
fn count_failures(
    body: &[u8],
    view: &RequestView,
    memory: &Memory,
    until: usize,
    asked: &mut [Asked],
) {
    if asked.is_empty() {
        return;
    }
    // Ids of equal calls that wait for their results, with what they are equal to.
    let mut open: Vec<(u64, u64)> = Vec::new();
    for message in &view.messages[..until] {
        let range = message.blocks.start as usize..message.blocks.end as usize;
        for block in view.blocks.get(range).unwrap_or_default() {
            match (message.role, block.kind) {
                (Role::Assistant, BlockKind::ToolUse) => {
                    let (Some(id), Some(key)) =
                        (id_of_equal(body, block, asked), Call::of(body, block))
                    else {
                        continue;
                    };
                    if asked.iter().any(|asked| asked.key == Some(key.key)) {
                        if open.len() == MOST {
                            open.remove(0);
                        }
                        open.push((id, key.key));
                    }
                }
                (Role::User, BlockKind::ToolResult) if !open.is_empty() => {
                    let Some(id) = id(body, block) else { continue };
                    let Some(at) = open.iter().rposition(|(open, _)| *open == id) else {
                        continue;
                    };
                    let (_, key) = open.remove(at);
                    let failed = content(body, block).failed(memory);
                    for call in asked.iter_mut().filter(|call| call.key == Some(key)) {
                        call.failures = if failed {
                            call.failures.saturating_add(1)
                        } else {
                            0
                        };
                    }
                }
                _ => {}
            }
        }
    }
}

/// The id of a call that looks like one of `asked`: hashing is for those only.
fn id_of_equal(body: &[u8], block: &Block, asked: &[Asked]) -> Option<u64> {
    let name = block.name?.of(body);
    let length = length(block);
    let alike = asked.iter().any(|asked| {
        let differs = asked
            .input
            .zip(length)
            .is_some_and(|(one, other)| one != other);
        !differs && asked.name == name
    });
    if alike { id(body, block) } else { None }
}

fn length(block: &Block) -> Option<u32> {
    let length = block.content.map_or(2, |input| input.len());
    block.compact.then_some(length)
}
