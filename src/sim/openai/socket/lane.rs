//! One lane of a connection: its requests, one after another.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{Ask, Line, Out, error_event, on_lane};
use crate::sim::answer::Step;
use crate::sim::failure::Failure;
use crate::sim::json::Json;
use crate::sim::openai::error::OpenAiError;
use crate::sim::openai::events::{Event, Sent};
use crate::sim::openai::http::{keep, told};
use crate::sim::openai::responses::{Over, Own, Reader};
use crate::sim::options::Fault;
use crate::sim::record::{End, Recorded};

/// How long a connection may serve requests. Source: OpenAI docs, 2026.
const LIFE_MS: u64 = 3_600_000;

/// The connection has ended.
struct Gone;

impl Line {
    /// Answers the requests of a lane until the connection ends.
    pub async fn lane(
        self: Arc<Self>,
        lane: Option<String>,
        mut asks: mpsc::Receiver<Ask>,
        out: mpsc::Sender<Out>,
    ) {
        while let Some(ask) = asks.recv().await {
            let seq = self.record(&ask.bytes);
            let mut open = Open {
                line: &self,
                seq,
                end: End::ClientGone,
            };
            let told = self.answer(&ask.body, seq, lane.as_deref(), &out).await;
            match told {
                Ok(end) => open.end = end,
                Err(Gone) => return,
            }
        }
    }

    fn record(&self, bytes: &Bytes) -> u64 {
        self.shared.recorder.begin(Recorded {
            version: "HTTP/1.1".to_owned(),
            method: "WEBSOCKET".to_owned(),
            target: "/v1/responses".to_owned(),
            headers: self.headers.clone(),
            body: bytes.clone(),
            at_ms: self.shared.provider.options.clock.now_ms(),
            ..Recorded::default()
        })
    }

    /// Answers one request; gives how the answer ended.
    async fn answer(
        &self,
        body: &Json,
        seq: u64,
        lane: Option<&str>,
        out: &mpsc::Sender<Out>,
    ) -> Result<End, Gone> {
        let previous = body.text_of("previous_response_id");
        let error = match self.say(body, seq, lane, out).await? {
            Ok(end) => {
                if end != End::Whole {
                    self.lose(previous.as_deref());
                }
                return Ok(end);
            }
            Err(error) => error,
        };
        self.lose(previous.as_deref());
        self.shared.recorder.update(seq, |request| {
            request.status = Some(error.status);
            request.error = Some(error.message.clone());
        });
        let full = error.code == Some("websocket_connection_limit_reached");
        send(out, Out::Text(error_event(&error, lane))).await?;
        if full {
            send(out, Out::Close).await?;
        }
        Ok(End::Whole)
    }

    /// Forgets a response that a failed turn wanted to continue.
    fn lose(&self, id: Option<&str>) {
        if let Some(id) = id {
            self.own().retain(|own| own.id != id);
        }
    }

    async fn say(
        &self,
        body: &Json,
        seq: u64,
        lane: Option<&str>,
        out: &mpsc::Sender<Out>,
    ) -> Result<Result<End, OpenAiError>, Gone> {
        let provider = &self.shared.provider;
        let options = &provider.options;
        let now_ms = options.clock.now_ms();
        if now_ms.saturating_sub(self.opened_ms) > LIFE_MS {
            return Ok(Err(OpenAiError::invalid(
                "This connection has served for an hour; open a new one.",
            )
            .code("websocket_connection_limit_reached")));
        }
        let read = {
            let state = provider.state();
            let own = self.own();
            Reader {
                scope: &self.scope,
                options,
                held: &state.openai.held,
                over: Over::Socket(&own),
            }
            .read(body)
        };
        let (asked, wishes) = match read {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let fault = self
            .shared
            .fault
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut ready = match provider.openai(asked, fault.inject.as_deref(), now_ms) {
            Ok(ready) => ready,
            Err(error) => return Ok(Err(error)),
        };
        let delay = Duration::from_millis(ready.delay_ms) + options.head_delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match ready.failure.as_ref().map(|(failure, _)| failure) {
            Some(Failure::Drop) => {
                self.shared
                    .recorder
                    .update(seq, |request| request.end = End::Fault);
                send(out, Out::Break).await?;
                return Ok(Ok(End::Fault));
            }
            Some(Failure::Stall) => std::future::pending().await,
            Some(Failure::Html) => {
                return Ok(Err(OpenAiError::new(502, "Bad gateway")));
            }
            _ => {}
        }
        let tokens = provider.begin_openai(&mut ready);
        self.shared.recorder.update(seq, |request| {
            request.status = Some(200);
            request.openai = Some(tokens);
            request.message_id = Some(ready.answer.id.clone());
        });
        let told = Arc::new(told(&ready, &wishes));
        let items: Vec<Arc<Json>> = wishes
            .items
            .iter()
            .cloned()
            .chain(told.as_history())
            .collect();
        let stored = wishes.store;
        {
            let mut own = self.own();
            own.retain(|own| own.lane.as_deref() != lane);
            own.push(Own {
                lane: lane.map(str::to_owned),
                id: told.answer.id.clone(),
                items,
            });
        }
        keep(
            &mut provider.state().openai.held,
            &self.scope,
            &told,
            wishes,
        );
        let events = told.events(ready.inside(), ready.asked.obfuscate);
        let end = self.write(events, lane, &fault, out).await?;
        if end != End::Whole {
            self.lose(Some(&told.answer.id));
            if stored {
                provider.state().openai.held.forget(&told.answer.id);
            }
        }
        Ok(Ok(end))
    }

    /// Writes the events of an answer; gives how it ended.
    async fn write(
        &self,
        events: Vec<Sent>,
        lane: Option<&str>,
        fault: &Fault,
        out: &mpsc::Sender<Out>,
    ) -> Result<End, Gone> {
        let delay = self.shared.provider.options.event_delay + fault.write_delay;
        let mut bytes = 0;
        let mut failed = false;
        for sent in events {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let reached = |limit: Option<u64>| limit.is_some_and(|limit| bytes >= limit);
            let step = match sent {
                Sent::Fault(step) => Some(step),
                Sent::Event(_) if reached(fault.stall_at) => Some(Step::Stall),
                Sent::Event(_) if reached(fault.cut_at) => Some(Step::Break),
                Sent::Event(_) if reached(fault.end_at) => Some(Step::End),
                Sent::Event(Event { name, data }) => {
                    failed = matches!(name, "response.failed" | "error");
                    let text = on_lane(data, lane);
                    bytes += text.len() as u64;
                    send(out, Out::Text(text)).await?;
                    None
                }
            };
            match step {
                None => {}
                Some(Step::Stall) => std::future::pending().await,
                Some(Step::End) => {
                    send(out, Out::Close).await?;
                    return Ok(End::Fault);
                }
                Some(_) => {
                    send(out, Out::Break).await?;
                    return Ok(End::Fault);
                }
            }
        }
        Ok(if failed { End::Fault } else { End::Whole })
    }
}

/// Notes how a message's answer ended, also when its lane is cut off.
struct Open<'a> {
    line: &'a Line,
    seq: u64,
    end: End,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let end = self.end;
        self.line
            .shared
            .recorder
            .update(self.seq, |request| request.end = end);
    }
}

async fn send(out: &mpsc::Sender<Out>, what: Out) -> Result<(), Gone> {
    out.send(what).await.map_err(|_| Gone)
}
