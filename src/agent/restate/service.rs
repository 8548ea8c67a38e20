//! The workflow: what the machine asks for, a durable step each.

// The macro makes clients without documentation.
#![allow(missing_docs)]

use std::sync::Arc;

use restate_sdk::prelude::*;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::steps::Begun;
use super::{Order, Report, Worker};
use crate::agent::machine::{AgentRun, Event, Happened, Outcome, Situation, Step, ToDo};

/// Serves runs until the process is told to end.
pub async fn serve(worker: Worker, listener: TcpListener) {
    let endpoint = Endpoint::builder().bind(worker).build();
    HttpServer::new(endpoint).serve(listener).await;
}

// A call may take long without a word to the engine: each has its own limit.
#[restate_sdk::workflow(
    name = "Agent",
    client_visibility = "pub(crate)",
    inactivity_timeout = "1h",
    abort_timeout = "1h"
)]
impl Worker {
    #[handler]
    async fn run(
        &self,
        context: WorkflowContext<'_>,
        order: Json<Order>,
    ) -> HandlerResult<Json<Report>> {
        let Json(Order { mut setup, task }) = order;
        context.key().clone_into(&mut setup.run);
        let clock = self.clock.clone();
        let begin = context.run(move || async move { Ok(clock.utc_ms()) });
        let at_ms = begin.name("begin").await?;
        let mut run = Arc::new(AgentRun::new(setup, at_ms));
        let said = Event::Said { text: task };
        apply(&mut run, vec![Happened { at_ms, event: said }]);

        let mut now_ms = at_ms;
        loop {
            let whole_run = None;
            let happened = match run.next(Situation { now_ms, whole_run }) {
                Step::Done(outcome) => return Ok(Json(report(&run, outcome))),
                Step::CallModel { max_tokens } => {
                    let (worker, state) = (self.clone(), Arc::clone(&run));
                    let answer =
                        move || async move { Ok(Json(worker.answer(&state, max_tokens).await)) };
                    let turn = run.turns() + 1;
                    let step = context.run(answer).name(format!("turn {turn}"));
                    step.await?.into_inner()
                }
                Step::Compact { from } => {
                    let (worker, state) = (self.clone(), Arc::clone(&run));
                    let compact =
                        move || async move { Ok(Json(worker.compact(&state, from).await)) };
                    let step = context.run(compact).name("compaction");
                    vec![step.await?.into_inner()]
                }
                Step::CallTools(todo) => self.call(&context, todo).await?,
            };
            now_ms = happened
                .last()
                .map_or(now_ms, |last| last.at_ms.max(now_ms));
            apply(&mut run, happened);
        }
    }
}

impl Worker {
    /// Makes the calls of an answer, one after the other: the engine does not give back steps that
    /// were awaited together in the order of the first time (restate-sdk 0.13), and so refuses to go on.
    async fn call(
        &self,
        context: &WorkflowContext<'_>,
        todo: Vec<ToDo>,
    ) -> HandlerResult<Vec<Happened>> {
        let mut happened = Vec::new();
        let mut exception = None;
        for todo in todo {
            // Of this attempt of this worker: it is what is recorded only if the call begins here.
            let by = Uuid::new_v4();
            let clock = self.clock.clone();
            let begin = move || async move {
                let at_ms = clock.utc_ms();
                Ok(Json(Begun { by, at_ms }))
            };
            let name = format!("begin {}", todo.key);
            let begun = context.run(begin).name(name).await?.into_inner();
            happened.push(begun.event(&todo));

            let (worker, here, key) = (self.clone(), begun.by == by, todo.key.clone());
            let make = move || async move { Ok(Json(worker.make(todo, here).await)) };
            let mut end = context.run(make).name(key).await?.into_inner();
            exception = exception.or(end.exception.take().map(|words| (end.at_ms, words)));
            happened.push(end.event());
        }
        happened.extend(exception.map(|(at_ms, words)| Happened {
            at_ms,
            event: Event::Ended(Outcome::ToolException(words)),
        }));
        Ok(happened)
    }
}

fn apply(run: &mut Arc<AgentRun>, happened: Vec<Happened>) {
    let run = Arc::make_mut(run);
    happened.iter().for_each(|happened| run.apply(happened));
}

fn report(run: &AgentRun, outcome: Outcome) -> Report {
    Report {
        outcome,
        answer: run.answer(),
        turns: run.turns(),
        spent: run.spent().clone(),
    }
}
