//! Asks the model. The next answer of the conversation is told while it comes in, and its calls may
//! begin; what is asked beside the conversation comes in silence.

use std::sync::Arc;

use tokio::time::Instant;

use super::Agent;
use crate::agent::journal::JournalError;
use crate::agent::machine::Event;
use crate::agent::model::{Ask, Attempt, Piece, Reply};
use crate::agent::notice::Notice;

/// What is asked beside the conversation.
#[derive(Debug, Clone, Copy)]
pub struct Aside<'a> {
    pub text: &'a str,
    /// How many entries of the conversation stand before it.
    pub upto: usize,
}

impl Agent {
    /// An attempt at the next answer of the conversation.
    pub(super) async fn turn(&mut self, max_tokens: u32) -> Result<(), JournalError> {
        self.attempts += 1;
        self.tell(Notice::Asked {
            turn: self.run.turns() + 1,
            attempt: self.attempts,
        });
        let begun = Instant::now();
        let eager = self.parts.options.eager;
        let answer = self.ask(None, max_tokens, eager).await?;
        match answer {
            Ok(Reply { whole, bill }) => {
                self.attempts = 0;
                self.tell(Notice::Answered {
                    bill: &bill,
                    stop: &whole.stop,
                    took: begun.elapsed(),
                });
                self.record(Event::Answered {
                    answer: whole.answer,
                    stop: whole.stop,
                    open_call: whole.open_call,
                    bill,
                })?;
                let every = self.parts.options.checkpoint_every.max(1);
                if self.run.turns().is_multiple_of(every) {
                    self.checkpoint();
                }
                if self.run.open_calls().next().is_none() {
                    // What began of an answer that was not kept: nobody waits for it any more.
                    self.batch = None;
                    self.live.clear();
                }
                Ok(())
            }
            Err(attempt) => self.failed(attempt, max_tokens).await,
        }
    }

    /// One attempt. The outer error is the journal's.
    pub(super) async fn ask(
        &mut self,
        aside: Option<Aside<'_>>,
        max_tokens: u32,
        eager: bool,
    ) -> Result<Result<Reply, Attempt>, JournalError> {
        self.parts.journal.settle()?;
        let endpoint = Arc::clone(&self.parts.endpoint);
        let model = self.run.setup().model.clone();
        let entries = self.run.entries();
        let upto = aside.map_or(entries.len(), |aside| aside.upto);
        let body = endpoint.format.request(&Ask {
            setup: self.run.setup(),
            entries: entries.get(..upto).unwrap_or(entries),
            aside: aside.map(|aside| aside.text),
            max_tokens,
        });
        let newest = self.parts.listener.headers(&self.run.setup().agent);
        let mut headers = self.parts.options.headers.clone();
        headers.retain(|(name, _)| newest.iter().all(|(newer, _)| newer != name));
        headers.extend(newest);
        let cancelled = self.parts.cancelled.clone();
        let mut trouble = Ok(());
        let silent = aside.is_some();
        let mut on_piece = |piece: Piece| {
            if trouble.is_ok() && !silent {
                trouble = self.piece(piece, eager);
            }
        };
        let reply = endpoint
            .ask_until(&model, body, &headers, &cancelled, &mut on_piece)
            .await;
        trouble.map(|()| reply)
    }

    fn piece(&mut self, piece: Piece, eager: bool) -> Result<(), JournalError> {
        match piece {
            Piece::Text(text) => self.tell(Notice::Text(&text)),
            Piece::Thinking => self.tell(Notice::Thinking),
            Piece::CallOpened(name) => self.tell(Notice::CallOpened(&name)),
            Piece::Call(call) if eager && self.may_begin(&call) => {
                let key = self.run.coming_key(&call.id);
                self.book_call(&call, &key)?;
                self.parts.journal.settle()?;
                self.start(call, key);
            }
            Piece::Call(_) => {}
        }
        Ok(())
    }
}
