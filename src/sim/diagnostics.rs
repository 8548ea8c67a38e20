//! The API's own explanation of a cache miss. Source: SDK types and docs, Sept to Nov 2026.

use std::collections::{HashMap, VecDeque};

use sha2::{Digest, Sha256};

use super::cache::Tokens;
use super::json::Json;
use super::prompt::{self, Prompt, Salts, canonical};

/// Fingerprints kept.
const MAX_FINGERPRINTS: usize = 10_000;

type Hash = [u8; 32];

/// What is remembered of a request that carried the `diagnostics` object.
#[derive(Debug, Clone)]
pub struct Fingerprint {
    root: String,
    speed: bool,
    tools: Hash,
    system: Hash,
    blocks: Vec<Hash>,
    parameters: String,
    tokens: u64,
}

fn hash<'a>(blocks: impl Iterator<Item = &'a Json>) -> Hash {
    let mut hash = Sha256::new();
    for block in blocks {
        hash.update(canonical(block));
        hash.update([0]);
    }
    hash.finalize().into()
}

impl Fingerprint {
    /// The fingerprint of a request.
    #[must_use]
    pub fn of(body: &Json, prompt: &Prompt, salts: &Salts, tokens: u64) -> Self {
        Self {
            root: salts.root.clone(),
            speed: body.get("speed").is_some_and(|speed| speed.is("fast")),
            tools: hash(prompt.tools.iter().filter(|tool| !prompt::deferred(tool))),
            system: hash(prompt::system(prompt)),
            blocks: prompt
                .messages
                .iter()
                .flat_map(|message| &message.blocks)
                .map(|block| hash(std::iter::once(block)))
                .collect(),
            // Speed is told apart before; the rest of both levels is one answer.
            parameters: format!("{}\n{}", salts.system, salts.messages),
            tokens,
        }
    }
}

/// All fingerprints, by message id.
#[derive(Debug, Default)]
pub struct Fingerprints {
    known: HashMap<String, (String, Fingerprint)>,
    order: VecDeque<String>,
}

impl Fingerprints {
    /// Remembers a request under the id of its answer. `scope` is the credential.
    pub fn store(&mut self, id: String, scope: String, fingerprint: Fingerprint) {
        self.order.push_back(id.clone());
        self.known.insert(id, (scope, fingerprint));
        if self.order.len() > MAX_FINGERPRINTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The `diagnostics` member of an answer, as JSON; `None` where there is nothing to say.
    #[must_use]
    pub fn explain(
        &self,
        previous: &str,
        scope: &str,
        now: &Fingerprint,
        tokens: Tokens,
    ) -> Option<String> {
        let known = self.known.get(previous).filter(|(owner, _)| owner == scope);
        let Some((_, before)) = known else {
            return Some(reason(r#""type":"previous_message_not_found""#));
        };
        let kept = before.blocks.len() <= now.blocks.len()
            && before.blocks.iter().zip(&now.blocks).all(|(a, b)| a == b);
        let kind = if before.root != now.root || before.speed != now.speed {
            "model_changed"
        } else if before.tools != now.tools {
            "tools_changed"
        } else if before.system != now.system {
            "system_changed"
        } else if !kept {
            "messages_changed"
        } else if before.parameters != now.parameters {
            return Some(reason(r#""type":"unavailable""#));
        } else {
            return None;
        };
        let missed = before.tokens.saturating_sub(tokens.read);
        Some(reason(&format!(
            r#""type":"{kind}","cache_missed_input_tokens":{missed}"#
        )))
    }
}

fn reason(members: &str) -> String {
    format!(r#"{{"cache_miss_reason":{{{members}}}}}"#)
}
