//! A request's prompt as pieces in provider order, and the chain of prefixes they make.

use sha2::{Digest, Sha256};

use super::cache::Life;
use crate::sim::json::Json;
use crate::sim::prompt::{DOCUMENT_TOKENS, IMAGE_TOKENS, of_bytes};

/// Tokens between two places where an older model can be hit. Source: SDK docs, Nov 2026.
pub const STEP: u64 = 128;

/// Smallest prefix that is cached, in tokens. Source: SDK docs, Nov 2026.
pub const MIN_TOKENS: u64 = 1_024;

/// Bytes of content per token, as on the Messages side.
const BYTES_PER_TOKEN: usize = 4;

/// Identifies a prefix.
pub type Hash = [u8; 32];

/// Who a piece comes from, as far as the script and the breakpoints care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Instructions.
    System,
    /// The human's text.
    User(String),
    /// Something of the human that is no text.
    Media,
    /// What a tool gave back.
    Result,
    /// The model.
    Model,
}

/// The smallest part of a prompt that can carry a breakpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Who says it.
    pub said: Said,
    /// What it is, in the prompt's own terms: role, and whether a message begins here.
    pub tag: String,
    /// What the model reads, spelling kept.
    pub content: String,
    /// Tokens of what is not counted by its bytes.
    pub fixed: Option<u64>,
    /// The explicit breakpoint that stands behind it.
    pub marker: Option<Marker>,
    /// An earlier request of the conversation ended here, as the provider knows for what it held.
    pub ended: bool,
}

/// An explicit breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Its own lifetime; without one it takes the request's.
    pub life: Option<Life>,
}

impl Piece {
    /// A piece without a breakpoint, counted by its bytes.
    #[must_use]
    pub fn new(said: Said, tag: impl Into<String>, content: String) -> Self {
        Self {
            said,
            tag: tag.into(),
            content,
            fixed: None,
            marker: None,
            ended: false,
        }
    }

    /// An image.
    #[must_use]
    pub fn image(said: Said, tag: impl Into<String>, content: String) -> Self {
        Self {
            fixed: Some(IMAGE_TOKENS),
            ..Self::new(said, tag, content)
        }
    }

    /// A file or a recording.
    #[must_use]
    pub fn document(said: Said, tag: impl Into<String>, content: String) -> Self {
        Self {
            fixed: Some(DOCUMENT_TOKENS),
            ..Self::new(said, tag, content)
        }
    }

    fn tokens(&self) -> u64 {
        self.fixed
            .unwrap_or_else(|| of_bytes(self.content.len()).max(1))
    }
}

/// What stands before the input in a prefix, in the order in which it is told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Key {
    /// Credential and format.
    pub scope: String,
    /// The model's id.
    pub model: &'static str,
    /// The tier that serves.
    pub tier: String,
    /// `prompt_cache_key`.
    pub cache_key: String,
    /// Tool definitions.
    pub tools: Vec<String>,
    /// The text format, where it is not plain text.
    pub format: String,
    /// Reasoning effort, where it is not the default.
    pub effort: String,
    /// Verbosity, where it is not the default.
    pub verbosity: String,
}

/// Everything up to and including one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Identifies the prefix that ends here.
    pub chain: Hash,
    /// Its tokens.
    pub tokens: u64,
    /// The explicit breakpoint that stands here.
    pub marker: Option<Marker>,
    /// The model spoke next, or speaks now: an implicit breakpoint stood or stands here.
    pub turn_end: bool,
}

/// A prompt's prefixes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walked {
    /// The ends of all pieces of the input.
    pub positions: Vec<Position>,
    /// The prefixes at every [`STEP`] tokens, the first at [`MIN_TOKENS`].
    pub steps: Vec<Hash>,
    /// Tokens of the whole prompt.
    pub total: u64,
}

struct Walk {
    hash: Sha256,
    tokens: u64,
    steps: Vec<Hash>,
}

impl Walk {
    /// A setting that costs nothing and is part of every later prefix.
    fn mix(&mut self, name: &str, value: &str) {
        for part in [name, value] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
    }

    fn reach(&mut self, tokens: u64) {
        let mut next = (self.tokens / STEP + 1) * STEP;
        while next <= tokens {
            if next >= MIN_TOKENS {
                let here = self.hash.clone().chain_update(next.to_le_bytes());
                self.steps.push(here.finalize().into());
            }
            next += STEP;
        }
        self.tokens = tokens;
    }

    /// Content without its length, so that two contents with a common beginning share its tokens.
    fn push(&mut self, tag: &str, content: &str, fixed: Option<u64>) {
        self.hash.update((tag.len() as u64).to_le_bytes());
        self.hash.update(tag);
        if let Some(tokens) = fixed {
            self.hash.update(content);
            self.reach(self.tokens + tokens);
            self.hash.update([0]);
            return;
        }
        let end = self.tokens + of_bytes(content.len()).max(1);
        let mut rest = content.as_bytes();
        while self.tokens < end {
            let until = ((self.tokens / STEP + 1) * STEP).min(end);
            let bytes = usize::try_from(until - self.tokens)
                .unwrap_or(usize::MAX)
                .saturating_mul(BYTES_PER_TOKEN)
                .min(rest.len());
            let (piece, after) = rest.split_at(bytes);
            rest = after;
            self.hash.update(piece);
            if until == end {
                // Content is JSON text, in which no zero byte stands.
                self.hash.update([0]);
            }
            self.reach(until);
        }
    }
}

/// The prefixes of a prompt.
#[must_use]
pub fn walk(key: &Key, pieces: &[Piece]) -> Walked {
    let mut walk = Walk {
        hash: Sha256::new(),
        tokens: 0,
        steps: Vec::new(),
    };
    walk.mix("scope", &key.scope);
    walk.mix("key", &key.cache_key);
    walk.mix("model", key.model);
    walk.mix("tier", &key.tier);
    for tool in &key.tools {
        walk.push("tool", tool, None);
    }
    walk.mix("format", &key.format);
    walk.mix("effort", &key.effort);
    walk.mix("verbosity", &key.verbosity);
    let mut positions = Vec::with_capacity(pieces.len());
    for (at, piece) in pieces.iter().enumerate() {
        walk.push(&piece.tag, &piece.content, piece.fixed);
        let next = pieces.get(at + 1);
        positions.push(Position {
            chain: walk.hash.clone().finalize().into(),
            tokens: walk.tokens,
            marker: piece.marker,
            turn_end: piece.ended
                || next.is_none_or(|next| next.said == Said::Model && piece.said != Said::Model),
        });
    }
    Walked {
        positions,
        steps: walk.steps,
        total: walk.tokens,
    }
}

/// The hash of one piece alone, for comparing two prompts.
#[must_use]
pub fn of_piece(piece: &Piece) -> (Hash, u64) {
    let hash = Sha256::new()
        .chain_update((piece.tag.len() as u64).to_le_bytes())
        .chain_update(&piece.tag)
        .chain_update(&piece.content)
        .finalize();
    (hash.into(), piece.tokens())
}

/// A value without one member, spelling kept.
#[must_use]
pub fn without(value: &Json, left_out: &[&str]) -> String {
    let Json::Obj(members) = value else {
        return value.compact();
    };
    let kept = members
        .iter()
        .filter(|(key, _)| !left_out.contains(&key.as_str()))
        .cloned()
        .collect();
    Json::Obj(kept).compact()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key {
            scope: "k".into(),
            model: "m",
            ..Key::default()
        }
    }

    fn text(content: String) -> Piece {
        Piece::new(Said::User(content.clone()), "user", content)
    }

    #[test]
    fn prefixes_are_shared_up_to_the_first_token_that_differs() {
        // The 1,500th token differs; the steps before it are the same.
        let base = "x".repeat(8_000);
        let mut other = base.clone();
        other.replace_range(5_999..6_000, "y");
        let (a, b) = (
            walk(&key(), &[text(base)]).steps,
            walk(&key(), &[text(other)]).steps,
        );
        let shared = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        // Steps at 1,024, 1,152, 1,280 and 1,408.
        assert_eq!((a.len(), shared), (8, 4));
    }

    #[test]
    fn a_longer_prompt_holds_the_steps_of_the_shorter() {
        let short = walk(&key(), &[text("a".repeat(6_000))]);
        let long = walk(
            &key(),
            &[
                text("a".repeat(6_000)),
                Piece::image(Said::Media, "user", "{}".into()),
                text("b".into()),
            ],
        );
        assert_eq!(short.total, 1_500);
        assert_eq!(long.total, 1_500 + IMAGE_TOKENS + 1);
        assert_eq!(long.steps[..short.steps.len()], short.steps);
        assert_eq!(
            long.steps.len() as u64,
            (long.total - MIN_TOKENS) / STEP + 1
        );
        assert_eq!(long.positions[0].chain, short.positions[0].chain);
    }

    #[test]
    fn each_setting_of_the_key_makes_another_prefix() {
        let pieces = [text("a".repeat(6_000))];
        let base = walk(&key(), &pieces);
        let others = [
            Key {
                scope: "k2".into(),
                ..key()
            },
            Key {
                model: "m2",
                ..key()
            },
            Key {
                tier: "flex".into(),
                ..key()
            },
            Key {
                cache_key: "c".into(),
                ..key()
            },
            Key {
                tools: vec!["{}".into()],
                ..key()
            },
            Key {
                format: "f".into(),
                ..key()
            },
            Key {
                effort: "low".into(),
                ..key()
            },
            Key {
                verbosity: "low".into(),
                ..key()
            },
        ];
        for other in others {
            let walked = walk(&other, &pieces);
            assert_ne!(
                walked.positions[0].chain, base.positions[0].chain,
                "{other:?}"
            );
            assert_ne!(walked.steps[0], base.steps[0], "{other:?}");
        }
    }

    #[test]
    fn a_turn_ends_where_the_model_speaks() {
        let model = Piece::new(Said::Model, "assistant", "z".into());
        let walked = walk(
            &key(),
            &[
                Piece::new(Said::System, "system", "s".into()),
                text("q".into()),
                model.clone(),
                model,
                Piece::new(Said::Result, "tool", "r".into()),
            ],
        );
        let ends: Vec<bool> = walked.positions.iter().map(|p| p.turn_end).collect();
        assert_eq!(ends, [false, true, false, false, true]);
    }
}
