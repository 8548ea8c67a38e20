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
use crate::guard::calls::{Newest, results};
use crate::guard::loops::{History, Memo};
use crate::guard::schema::{Declared, Schemas};
use crate::prompt_cache::chain::Chain;
use crate::provider::view::{self, Block, BlockKind, RequestView, Section};
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
    schemas: Schemas,
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
            schemas: Schemas::new(),
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

    /// What the newest turn of a conversation brings.
    pub(in crate::proxy) fn newest(&self, body: &[u8], view: &RequestView) -> Newest {
        let before = self.before(view);
        results(body, view, &self.memo, before.as_deref())
    }

    /// The tools that a request declares; `None` where it declares none.
    pub(in crate::proxy) fn declared(
        &self,
        body: &[u8],
        view: &RequestView,
        chain: &Chain,
    ) -> Option<Arc<Declared>> {
        let tools = |block: &&Block| block.section == Section::Tools;
        let last = view
            .blocks
            .iter()
            .take_while(tools)
            .count()
            .checked_sub(1)?;
        // What may bring further tools stands among the messages as well.
        let unknown = view
            .blocks
            .iter()
            .any(|block| block.section == Section::Messages && block.kind == BlockKind::Other);
        let key = u128::from_le_bytes(*chain.at.get(last)?) ^ u128::from(unknown);
        let read = || Declared::read(body, &view.wire.declared(body, view));
        Some(self.schemas.get_or_read(key, read))
    }

    /// What the part of a conversation that the provider holds has shown.
    fn before(&self, view: &RequestView) -> Option<Arc<History>> {
        match &view.history {
            view::History::Continues(answer) => self.history(answer),
            view::History::Whole | view::History::Opened => None,
        }
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
