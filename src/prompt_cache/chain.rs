//! Block hashes and the chain that identifies a prefix.
//!
//! `h(block)` is over what the provider makes of a block: without its marker, without white space
//! outside of strings, and with "a string" and "an array of one text block" written alike. What
//! the provider does see (key order inside a block, the spelling of numbers, escapes, the role)
//! changes it. Where one message ends and the next of the same role begins does not: the provider
//! joins such turns (its API reference, Aug 2026).
//!
//! The chain is `c0 = H(scope)`, `ci = H(c(i-1), h(block i))`. Blocks outside of the prefix
//! (deferred tools, the client's attribution text) have a hash but do not move it.

mod memo;

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

use crate::provider::json::string_end;
use crate::provider::view::{Block, BlockKind, RequestView, Role, Section, Span, Unmarkable};
use memo::Memo;

/// A keyed hash, cut to 128 bits. Without the installation's secret nobody can confirm a guess of
/// what was hashed.
pub type Hash = [u8; 16];

/// Length of SHA-256's input block: the secret and a purpose fill exactly one, so that its
/// compression is paid once per [`Hasher`] and not once per hash.
const SHA_BLOCK: usize = 64;

/// SHA-256's state before the first block (FIPS 180-4, 5.3.3).
const SHA_START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Hashes of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// `h` of each block, by its index in the view.
    pub blocks: Vec<Hash>,
    /// The chain after each block, by its index in the view.
    pub at: Vec<Hash>,
    /// The chain after tools and system.
    pub root: Hash,
}

impl Chain {
    /// The chain with some blocks of the conversation left out, as with those outside of the prefix.
    pub fn leave_out(&mut self, hasher: &Hasher, head: usize, blocks: &[usize]) {
        let mut link = self.root;
        for (index, hash) in self.blocks.iter().enumerate().skip(head) {
            if blocks.binary_search(&index).is_err() {
                link = hasher.extend(link, hash);
            }
            if let Some(at) = self.at.get_mut(index) {
                *at = link;
            }
        }
    }
}

/// Hashes blocks, and remembers the hashes of blocks it has seen.
pub struct Hasher {
    labelled: Sha256,
    block: Sha256,
    step: Sha256,
    /// The state of `step`.
    step_state: [u32; 8],
    memo: Memo,
}

impl std::fmt::Debug for Hasher {
    /// Keeps the secret out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

impl Hasher {
    /// With the secret of the installation, which its replicas share.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        let first = |name: &[u8]| {
            let mut first = [0; SHA_BLOCK];
            first[..32].copy_from_slice(&secret);
            first[32..32 + name.len()].copy_from_slice(name);
            first
        };
        let purpose = |name: &[u8]| Sha256::new().chain_update(first(name));
        let mut step_state = SHA_START;
        compress256(&mut step_state, &[first(b"step")]);
        Self {
            labelled: purpose(b"labelled"),
            block: purpose(b"block"),
            step: purpose(b"step"),
            step_state,
            memo: Memo::new(&purpose(b"memo")),
        }
    }

    /// The chain of a request under a scope: whatever separates two caches of the provider though
    /// the prompt is the same (upstream, credential, model, speed), as bytes of the caller.
    #[must_use]
    pub fn chain(&self, body: &[u8], view: &RequestView, scope: &[u8]) -> Chain {
        let mut link = self.keyed("scope", scope);
        let mut chain = Chain {
            blocks: Vec::with_capacity(view.blocks.len()),
            at: Vec::with_capacity(view.blocks.len()),
            root: link,
        };
        // What the provider renders behind the tools, though it stands among them.
        let mut searches: Vec<Hash> = Vec::new();
        for block in &view.blocks {
            let hash = self.of_block(body, view, block);
            if block.section != Section::Tools && !searches.is_empty() {
                for search in searches.drain(..) {
                    link = self.extend(link, &search);
                }
                chain.root = link;
            }
            if block.section == Section::Tools && block.kind == BlockKind::ServerTool {
                searches.push(hash);
            } else if counts(block) {
                link = self.extend(link, &hash);
            }
            if block.section != Section::Messages {
                chain.root = link;
            }
            chain.blocks.push(hash);
            chain.at.push(link);
        }
        chain
    }

    /// A keyed hash of bytes; equal bytes under different labels have unrelated hashes.
    #[must_use]
    pub fn keyed(&self, label: &str, bytes: &[u8]) -> Hash {
        let state = self
            .labelled
            .clone()
            .chain_update((label.len() as u64).to_le_bytes());
        cut(state.chain_update(label).chain_update(bytes))
    }

    /// The chain one step on from `from`.
    #[must_use]
    pub fn extend(&self, from: Hash, bytes: &[u8]) -> Hash {
        let len = from.len() + bytes.len();
        // Every block of every request takes this step: where the input is one block with its
        // padding, that one is compressed and nothing else done.
        if len + 1 + 8 > SHA_BLOCK {
            return cut(self.step.clone().chain_update(from).chain_update(bytes));
        }
        let mut block = [0; SHA_BLOCK];
        block[..from.len()].copy_from_slice(&from);
        block[from.len()..len].copy_from_slice(bytes);
        block[len] = 0x80;
        let bits = 8 * (SHA_BLOCK + len) as u64;
        block[SHA_BLOCK - 8..].copy_from_slice(&bits.to_be_bytes());
        let mut state = self.step_state;
        compress256(&mut state, &[block]);
        let mut hash = Hash::default();
        for (bytes, word) in hash.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        hash
    }

    fn of_block(&self, body: &[u8], view: &RequestView, block: &Block) -> Hash {
        let role = match block.section {
            Section::Messages => view.messages.get(block.outer as usize).map(|m| m.role),
            _ => None,
        };
        let place = [section_code(block.section), role_code(role)];
        // Which members are what follows from the bytes, but for the level and kind.
        let context = u64::from_le_bytes([place[0], place[1], block.kind as u8, 0, 0, 0, 0, 0]);
        self.memo.get_or(block.span.of(body), context, || {
            let mut state = self.block.clone().chain_update(place);
            canonical(body, block, |bytes| state.update(bytes));
            cut(state)
        })
    }
}

/// Whether a block is part of the prefix.
#[must_use]
pub fn counts(block: &Block) -> bool {
    block.in_prefix() && block.unmarkable != Some(Unmarkable::Attribution)
}

/// Codes are part of stored hashes: never renumber.
fn section_code(section: Section) -> u8 {
    match section {
        Section::Tools => 1,
        Section::System => 2,
        Section::Messages => 3,
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

fn cut(state: Sha256) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(&state.finalize()[..16]);
    hash
}

/// Feeds a block in its canonical spelling: of everything that can be said as a bare string, the
/// bare string.
pub(super) fn canonical(body: &[u8], block: &Block, mut feed: impl FnMut(&[u8])) {
    if let (BlockKind::Text, Some(plain)) = (block.kind, block.plain) {
        return feed(plain.of(body));
    }
    // At most two members are written otherwise, in either order.
    let mut changes: [Option<(Span, Span)>; 2] = [
        block.marker_member.map(|member| {
            (
                with_comma(body, member, block.span),
                Span { start: 0, end: 0 },
            )
        }),
        block.content.zip(block.plain),
    ];
    changes.sort_by_key(|change| change.map(|(old, _)| old.start));
    let mut from = block.span.start;
    for (old, new) in changes.into_iter().flatten() {
        compacted(
            Span {
                start: from,
                end: old.start,
            }
            .of(body),
            block.compact,
            &mut feed,
        );
        feed(new.of(body));
        from = old.end;
    }
    compacted(
        Span {
            start: from,
            end: block.span.end,
        }
        .of(body),
        block.compact,
        &mut feed,
    );
}

/// A member together with the one comma that joins it to its neighbours.
pub(super) fn with_comma(body: &[u8], member: Span, object: Span) -> Span {
    let after = Span {
        start: member.end,
        end: object.end,
    }
    .of(body);
    if let Some(gap) = after.iter().position(|byte| !byte.is_ascii_whitespace())
        && after[gap] == b','
    {
        return Span {
            start: member.start,
            end: member.end + gap as u32 + 1,
        };
    }
    let before = Span {
        start: object.start,
        end: member.start,
    }
    .of(body);
    let kept = before.trim_ascii_end();
    let kept = kept.strip_suffix(b",").unwrap_or(kept);
    Span {
        start: object.start + kept.len() as u32,
        end: member.end,
    }
}

/// Feeds JSON without the white space between its tokens.
pub(super) fn compacted(json: &[u8], compact: bool, feed: &mut impl FnMut(&[u8])) {
    if compact {
        return feed(json);
    }
    let (mut from, mut at) = (0, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => at = string_end(json, at + 1).unwrap_or(json.len()),
            b' ' | b'\n' | b'\t' | b'\r' => {
                feed(&json[from..at]);
                at += 1;
                from = at;
            }
            _ => at += 1,
        }
    }
    feed(&json[from..]);
}

#[cfg(test)]
mod tests;
