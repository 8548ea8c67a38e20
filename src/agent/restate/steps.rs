//! What is done in a step. What it gives is recorded, and is what happened from then on.

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Worker;
use crate::agent::driver::{INTERRUPTED, SUM_UP, backoff};
use crate::agent::machine::{AgentRun, Event, Happened, Outcome, Stop, ToDo};
use crate::agent::model::{Ask, Attempt, Failure, Reply};
use crate::agent::talk::CallResult;
use crate::agent::tools::Batch;

/// A call begins: by whom, and when.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Begun {
    pub by: Uuid,
    pub at_ms: i64,
}

impl Begun {
    pub fn event(&self, todo: &ToDo) -> Happened {
        Happened {
            at_ms: self.at_ms,
            event: Event::CallBegan {
                call: todo.call.clone(),
                key: todo.key.clone(),
            },
        }
    }
}

/// A call has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ended {
    pub at_ms: i64,
    pub result: CallResult,
    /// The run cannot go on; why.
    pub exception: Option<String>,
}

impl Ended {
    pub fn event(self) -> Happened {
        Happened {
            at_ms: self.at_ms,
            event: Event::CallEnded {
                result: self.result,
            },
        }
    }
}

impl Worker {
    fn now(&self, event: Event) -> Happened {
        Happened {
            at_ms: self.clock.utc_ms(),
            event,
        }
    }

    /// Asks the model until it has answered, or there is no use in asking.
    pub(super) async fn answer(&self, run: &AgentRun, max_tokens: u32) -> Vec<Happened> {
        let mut happened = Vec::new();
        for attempt in 1.. {
            let failed = match self.ask(run, None, run.entries().len(), max_tokens).await {
                Ok(Reply { whole, bill }) => {
                    happened.push(self.now(Event::Answered {
                        answer: whole.answer,
                        stop: whole.stop,
                        open_call: whole.open_call,
                        bill,
                    }));
                    break;
                }
                Err(failed) => failed,
            };
            happened.push(self.now(Event::Abandoned {
                reason: failed.reason.clone(),
                bill: *failed.bill,
            }));
            match failed.failure {
                Failure::Again(after) if attempt < self.attempts => {
                    tokio::time::sleep(after.unwrap_or_else(|| backoff(attempt))).await;
                    continue;
                }
                Failure::TooLong => happened.push(self.now(Event::TooLong)),
                _ => {
                    let outcome = Outcome::ProviderError(failed.reason);
                    happened.push(self.now(Event::Ended(outcome)));
                }
            }
            break;
        }
        happened
    }

    /// Asks for a summary, once: a compaction that failed is tried again some turns later.
    pub(super) async fn compact(&self, run: &AgentRun, from: usize) -> Happened {
        let upto = run.to_sum_up(from).len();
        let answer = self
            .ask(run, Some(SUM_UP), upto, run.setup().max_tokens)
            .await;
        let (reason, bill) = match answer {
            Ok(Reply { whole, bill }) => {
                let summary = whole.answer.text();
                let said = !summary.trim().is_empty() && whole.answer.calls().next().is_none();
                if said && whole.stop == Stop::EndTurn {
                    return self.now(Event::Compacted {
                        summary,
                        from,
                        bill,
                    });
                }
                ("the model gave no whole summary".to_owned(), bill)
            }
            Err(failed) => (failed.reason, *failed.bill),
        };
        self.now(Event::CompactionFailed { reason, bill })
    }

    async fn ask(
        &self,
        run: &AgentRun,
        aside: Option<&str>,
        upto: usize,
        max_tokens: u32,
    ) -> Result<Reply, Attempt> {
        let entries = run.entries();
        let body = self.endpoint.format.request(&Ask {
            setup: run.setup(),
            entries: entries.get(..upto).unwrap_or(entries),
            aside,
            max_tokens,
        });
        let model = &run.setup().model;
        self.endpoint
            .ask(model, body, &self.headers, &mut |_| {})
            .await
    }

    /// Makes a call; `here` says that it was begun here and now, and not by one who has died since.
    pub(super) async fn make(&self, todo: ToDo, here: bool) -> Ended {
        let ToDo { call, key, .. } = todo;
        let tool = self.toolbox.get(&call.name);
        let again = tool.is_some_and(|tool| tool.manners().idempotent);
        let interrupted = CallResult::failed(&call.id, INTERRUPTED);
        let mut batch = Batch::new(self.toolbox.clone(), CancellationToken::new());
        let end = if here || again {
            batch.start(call, key);
            batch.next().await
        } else {
            None
        };
        let (result, exception) =
            end.map_or((interrupted, None), |end| (end.result, end.exception));
        Ended {
            at_ms: self.clock.utc_ms(),
            result,
            exception,
        }
    }
}
