//! What is known of a history besides its texts; and what of it is carried along from answer to
//! answer where the provider holds the history.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::hint;
use super::stretch::{Stretch, keep};
use super::user::Beside;
use crate::bounded::Map;
use crate::guard::calls::{Call, Target};
use crate::provider::view::AnsweredCall;

/// Calls without a result that are remembered.
const PENDING: usize = 256;
/// Names of tools that are told apart in findings.
const NAMES: usize = 64;
/// Rows of failures that are remembered.
const ROWS: usize = 8192;
/// Of a carried history: entries of each kind, calls without a result, texts beside results.
const CARRIED: usize = 64;
const CARRIED_PENDING: usize = 32;
const CARRIED_TEXTS: usize = 16;
/// Longest id of a call that is carried, in bytes.
const MAX_ID: usize = 256;

/// A call that has no result yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    pub id: u64,
    /// The id itself, where it cannot be read from the body any more.
    pub text: Option<Box<str>>,
    pub call: Call,
    pub name: u8,
    pub turn: u32,
    pub order: u32,
}

/// All that is known of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Talk {
    pub stretch: Stretch,
    /// Number of the newest answer.
    pub turn: u32,
    /// Calls so far.
    order: u32,
    pub pending: VecDeque<Pending>,
    /// Calls of the newest answer that have their results.
    pub counted: Vec<u64>,
    pub beside: Beside,
    /// How often calls have failed in a row, and their place among all calls.
    rows: Map<u64, (u32, u32)>,
    names: Vec<(u64, Box<str>)>,
}

impl Talk {
    /// A new answer of the model.
    pub(super) fn answer(&mut self) {
        self.turn = self.turn.saturating_add(1);
        self.counted.clear();
    }

    /// A call of the newest answer.
    pub(super) fn asks(&mut self, id: u64, text: Option<Box<str>>, call: Call, name: u8) {
        if self.pending.len() == PENDING {
            self.pending.pop_front();
        }
        self.order = self.order.saturating_add(1);
        self.pending.push_back(Pending {
            id,
            text,
            call,
            name,
            turn: self.turn,
            order: self.order,
        });
    }

    /// Takes out the call that a result with this id belongs to.
    pub(super) fn take(&mut self, id: u64) -> Option<Pending> {
        let mut found: Option<(usize, u32)> = None;
        for (at, call) in self.pending.iter().enumerate().rev() {
            if found.is_some_and(|(_, turn)| turn != call.turn) {
                break;
            }
            if call.id == id {
                found = Some((at, call.turn));
            }
        }
        self.pending.remove(found?.0)
    }

    /// Keeps count of failures in a row.
    pub(super) fn row(&mut self, key: u64, failed: bool) {
        if !failed {
            self.rows.remove(&key);
            return;
        }
        if self.rows.len() >= ROWS {
            keep(&mut self.rows, ROWS / 2, |(_, last)| *last);
        }
        let row = self.rows.entry(key).or_default();
        *row = (row.0.saturating_add(1), self.order);
    }

    /// The number of a tool's name; those past the last number share it.
    pub(super) fn name<'a>(
        &mut self,
        hash: u64,
        name: impl FnOnce() -> std::borrow::Cow<'a, str>,
    ) -> u8 {
        if let Some(at) = self.names.iter().position(|(known, _)| *known == hash) {
            return at as u8;
        }
        if self.names.len() < NAMES - 1 {
            self.names.push((hash, hint::name(&name()).into()));
            return self.names.len() as u8 - 1;
        }
        NAMES as u8 - 1
    }

    pub(super) fn name_of(&self, number: u8) -> String {
        let known = self.names.get(usize::from(number));
        known.map_or_else(|| "another".into(), |(_, name)| name.to_string())
    }

    /// What of it is carried along, without any reference to the body.
    pub(super) fn carried(mut self, body: &[u8], id_of: impl Fn(u64) -> Option<String>) -> History {
        self.stretch.keep(CARRIED);
        self.beside.keep(CARRIED_TEXTS);
        keep(&mut self.rows, CARRIED_PENDING, |(_, last)| *last);
        // Calls that were left behind will not be answered any more.
        let turn = self.turn;
        self.pending.retain(|pending| pending.turn == turn);
        while self.pending.len() > CARRIED_PENDING {
            self.pending.pop_front();
        }
        for pending in &mut self.pending {
            pending.call.target = Target::Is(pending.call.acts_on(body));
            if pending.text.is_none() {
                pending.text =
                    id_of(pending.id).map(|text| crate::text::prefix(&text, MAX_ID).into());
            }
        }
        self.pending.shrink_to_fit();
        self.counted.truncate(CARRIED_PENDING);
        self.counted.shrink_to_fit();
        self.names.shrink_to_fit();
        History(Some(Box::new(self)))
    }
}

/// What a history has shown so far, without its texts. At most some 15 kB, usually below 2 kB. It
/// can be written down and goes on in another process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History(Option<Box<Talk>>);

impl History {
    /// Adds an answer of the model and the calls it asks for, to be paired with the results in the
    /// next request. Calls that were not delivered whole are left out.
    pub fn answered(&mut self, calls: &[AnsweredCall]) {
        let talk = self.0.get_or_insert_default();
        talk.answer();
        talk.pending.clear();
        let newest = calls.len().saturating_sub(CARRIED_PENDING);
        for answered in &calls[newest..] {
            let Some(call) = Call::answered(answered) else {
                continue;
            };
            let name = talk.name(call.tool, || answered.name.as_str().into());
            let text = crate::text::prefix(&answered.id, MAX_ID).into();
            talk.asks(xxh3_64(answered.id.as_bytes()), Some(text), call, name);
        }
    }

    pub(super) fn talk(&self) -> Option<&Talk> {
        self.0.as_deref()
    }

    /// The calls of the newest answer that have no result yet: hash of the id, the id, the call.
    pub(in crate::guard) fn asked(&self) -> impl Iterator<Item = (u64, &str, u64)> {
        let talk = self.0.as_deref();
        let pending = talk.into_iter().flat_map(|talk| {
            let turn = talk.turn;
            talk.pending
                .iter()
                .filter(move |pending| pending.turn == turn)
        });
        pending.map(|pending| {
            let text = pending.text.as_deref().unwrap_or_default();
            (pending.id, text, pending.call.key)
        })
    }

    /// How often a call has failed in a row.
    pub(in crate::guard) fn failures(&self, key: u64) -> u32 {
        let rows = self.0.as_deref().map(|talk| &talk.rows);
        rows.and_then(|rows| rows.get(&key))
            .map_or(0, |(failures, _)| *failures)
    }
}
