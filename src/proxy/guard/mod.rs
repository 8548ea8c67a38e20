//! The guards at work: what they say of a request becomes a text in it, a refusal, an answer, a
//! header, a record, an event.

pub(in crate::proxy) mod caps;
mod events;
pub(in crate::proxy) mod hint;
pub(in crate::proxy) mod loops;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

pub(in crate::proxy) use self::events::digest;
use http::StatusCode;

use super::Shared;
use super::account::Account;
use super::ledger::Ledger;
use crate::bounded::Bounded;
use crate::guard::loops::{History, Memo};
use crate::trace::AlertSender;

/// The status of refusals for a request's application.
pub(in crate::proxy) fn status(shared: &Shared, account: &mut Account) -> StatusCode {
    let app = account.record().and_then(|record| record.app.as_deref());
    let status = shared.config.refusal_status(app);
    StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST)
}

/// Answers of conversations that the provider holds, whose history is remembered.
const MAX_HISTORIES: usize = 16_384;
/// Runs with a model whose price is unknown that have been told of.
const MAX_UNENFORCED: usize = 4_096;

/// What the guards remember from request to request.
#[derive(Debug)]
pub struct Guards {
    /// The books of caps.
    pub ledger: Ledger,
    /// Where alerts go.
    pub alerts: AlertSender,
    memo: Memo,
    histories: Mutex<Bounded<String, Arc<History>>>,
    unenforced: Mutex<HashSet<(String, String)>>,
}

impl Guards {
    /// Guards over these books.
    #[must_use]
    pub fn new(ledger: Ledger, alerts: AlertSender) -> Self {
        Self {
            ledger,
            alerts,
            memo: Memo::default(),
            histories: Mutex::new(Bounded::new(MAX_HISTORIES)),
            unenforced: Mutex::default(),
        }
    }

    /// What the conversation up to an answer has shown.
    fn history(&self, answer: &str) -> Option<Arc<History>> {
        let histories = self
            .histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        histories.get(answer).cloned()
    }

    /// Remembers what a conversation has shown up to an answer.
    pub(in crate::proxy) fn remember(&self, answer: String, history: History) {
        let mut histories = self
            .histories
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        histories.insert(answer, Arc::new(history));
    }

    /// Whether this is the first time that a run's cap cannot be enforced because of a model.
    fn first_unenforced(&self, run: &str, model: &str) -> bool {
        let mut told = self
            .unenforced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_UNENFORCED {
            told.clear();
        }
        told.insert((run.to_owned(), model.to_owned()))
    }
}
