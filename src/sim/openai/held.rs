//! What the provider stores of Responses: responses, their items, conversations.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::error::OpenAiError;
use super::told::Told;
use crate::sim::json::Json;

/// Responses stored at most; the oldest go first.
const MAX_RESPONSES: usize = 10_000;

/// Bytes of items stored at most; the oldest go first.
const MAX_BYTES: usize = 256 << 20;

/// Conversations at most; beyond it the list starts anew.
const MAX_CONVERSATIONS: usize = 10_000;

/// A stored response.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The credential it belongs to.
    pub scope: String,
    /// All items up to and including its output.
    pub items: Vec<Arc<Json>>,
    /// How it is told.
    pub told: Arc<Told>,
    /// Asked for so often while it ran in the background; `None` once it was not, or was cancelled.
    pub polls: Option<u32>,
    /// Taken back while it ran.
    pub cancelled: bool,
    /// Ids of the items that it brought.
    own: Vec<String>,
    bytes: usize,
}

/// Everything stored.
#[derive(Debug, Default)]
pub struct Held {
    responses: HashMap<String, Stored>,
    order: VecDeque<String>,
    bytes: usize,
    items: HashMap<String, (String, Arc<Json>)>,
    conversations: HashMap<String, (String, Vec<Arc<Json>>)>,
}

impl Held {
    /// A stored response of this credential.
    #[must_use]
    pub fn response(&self, id: &str, scope: &str) -> Option<&Stored> {
        self.responses.get(id).filter(|held| held.scope == scope)
    }

    /// The same, to change it.
    pub fn response_mut(&mut self, id: &str, scope: &str) -> Option<&mut Stored> {
        self.responses
            .get_mut(id)
            .filter(|held| held.scope == scope)
    }

    /// A stored item of this credential.
    #[must_use]
    pub fn item(&self, id: &str, scope: &str) -> Option<Arc<Json>> {
        let (owner, item) = self.items.get(id)?;
        (owner == scope).then(|| Arc::clone(item))
    }

    /// The items of a conversation.
    ///
    /// # Errors
    /// 404 for an unknown one.
    pub fn conversation(&self, id: &str, scope: &str) -> Result<&[Arc<Json>], OpenAiError> {
        self.conversations
            .get(id)
            .filter(|(owner, _)| owner == scope)
            .map(|(_, items)| items.as_slice())
            .ok_or_else(|| OpenAiError::new(404, format!("Conversation with id '{id}' not found.")))
    }

    /// Opens a conversation.
    pub fn open(&mut self, id: String, scope: String, items: Vec<Arc<Json>>) {
        if self.conversations.len() >= MAX_CONVERSATIONS {
            self.conversations.clear();
        }
        self.conversations.insert(id, (scope, items));
    }

    /// Adds the items of a turn to a conversation.
    pub fn extend(&mut self, id: &str, items: &[Arc<Json>]) {
        if let Some((_, held)) = self.conversations.get_mut(id) {
            held.extend_from_slice(items);
        }
    }

    /// Stores a response. `new` counts its own items at the end of `items`.
    pub fn store(
        &mut self,
        scope: String,
        items: Vec<Arc<Json>>,
        new: usize,
        told: Arc<Told>,
        background: bool,
    ) {
        let id = told.answer.id.clone();
        let fresh = &items[items.len().saturating_sub(new)..];
        let mut own = Vec::new();
        let mut bytes = 0;
        for item in fresh {
            bytes += item.compact().len();
            if let Some(name) = item.text_of("id") {
                self.items
                    .insert(name.clone(), (scope.clone(), Arc::clone(item)));
                own.push(name);
            }
        }
        self.forget(&id);
        self.bytes += bytes;
        self.order.push_back(id.clone());
        self.responses.insert(
            id,
            Stored {
                scope,
                items,
                told,
                polls: background.then_some(0),
                cancelled: false,
                own,
                bytes,
            },
        );
        while (self.order.len() > MAX_RESPONSES || self.bytes > MAX_BYTES) && self.order.len() > 1 {
            let Some(oldest) = self.order.front().cloned() else {
                break;
            };
            self.forget(&oldest);
        }
    }

    /// Forgets one response; false if there was none.
    pub fn forget(&mut self, id: &str) -> bool {
        let Some(held) = self.responses.remove(id) else {
            return false;
        };
        self.bytes -= held.bytes;
        for name in &held.own {
            self.items.remove(name);
        }
        if self.order.front().is_some_and(|first| first == id) {
            self.order.pop_front();
        } else {
            self.order.retain(|other| other != id);
        }
        true
    }

    /// Forgets everything, as a provider may at any time.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
