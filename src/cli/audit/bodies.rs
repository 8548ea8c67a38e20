//! Request bodies in files, judged as the gateway would have judged them.
//!
//! Nobody answered them here, so what was read and written is what the provider's rules give for
//! the bodies as they are, with tokens estimated from sizes. Every number of such an audit is an
//! estimate, and its records say so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use uuid::Uuid;

use crate::cli::replay::files;
use crate::cli::replay::seats::{Eyes, Looked, Place, Seats, hasher};
use crate::prompt_cache::chain::Hasher;
use crate::prompt_cache::engine::{Engine, Prepared, Request};
use crate::prompt_cache::shadow::Expected;
use crate::prompt_cache::strategies::{self, Policy, Recorded, Tally, Traffic};
use crate::prompt_cache::trail::{Past, short};
use crate::prompt_cache::verdict::{Facts, judge, unread_pico};
use crate::store::Sqlite;
use crate::trace::{Entry, Inspection, Outcome, RequestKind, Sink as _, TurnRecord};
use crate::usage::{Metered, PriceBook, Usage};

/// Whose prices are taken.
const PROVIDER: &str = "anthropic";
/// Memory of the engine for one audit.
const ENGINE_BYTES: usize = 512 << 20;
/// Nobody knows when an answer began: as in a replay, one second after the request.
const ANSWER_AFTER_MS: i64 = 1_000;
/// Records written at a time.
const BATCH: usize = 1_000;

/// Judges the requests of some files, and writes their records into a store of its own. Gives what
/// a reader should know.
///
/// # Errors
/// A file cannot be read, nothing in them is usable, or the store cannot be written.
pub(super) fn judged(files: &[PathBuf], data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let (looked, gathered) = files::look(files, Eyes::keeping())?;
    let (skipped, bad) = gathered.sources.iter().fold((0, 0), |(s, b), source| {
        (s + source.skipped, b + source.bad)
    });
    if looked.is_empty() {
        anyhow::bail!("nothing to audit: no usable request ({skipped} skipped, {bad} bad)");
    }
    let mut notes = gathered.notes;
    if skipped + bad > 0 {
        notes.push(format!("{skipped} requests skipped, {bad} bad"));
    }
    let book = PriceBook::new(&[]).context("the price data")?;
    let mut seats = Seats::default();
    let places: Vec<Place> = looked.iter().map(|looked| seats.seat(looked)).collect();
    let requests = looked.iter().zip(&places);
    let traffic = Traffic::new(
        requests
            .map(|(l, place)| recorded(l, place, &book))
            .collect(),
    );
    let tallies = strategies::replay(&traffic, Policy::AsSent);

    let mut audit = Audit {
        hasher: hasher(),
        engine: Engine::new(ENGINE_BYTES, false),
        book,
        waiting: Vec::new(),
    };
    let mut store = Sqlite::open(data_dir)?;
    let mut batch = Vec::new();
    for (number, ((looked, place), tally)) in
        looked.into_iter().zip(&places).zip(&tallies).enumerate()
    {
        let record = audit.record(number, looked, place, tally);
        batch.push(Entry::Turn(Box::new(record)));
        if batch.len() == BATCH {
            store.write(&batch)?;
            batch.clear();
        }
    }
    store.write(&batch)?;
    Ok(notes)
}

fn recorded(looked: &Looked, place: &Place, book: &PriceBook) -> Recorded {
    let facts = book.model(PROVIDER, &looked.trail.model, looked.at_ms);
    let ratio = facts.bytes_per_token_milli;
    let tokens = strategies::tokens_of(&looked.trail, looked.prompt_tokens, ratio);
    Recorded {
        at_ms: looked.at_ms,
        begins_ms: None,
        scope: looked.scope,
        run: 0,
        thread: place.thread,
        trail: looked.trail.clone(),
        unmarkable: Some(looked.unmarkable.clone()),
        forced: looked.forced,
        prompt_tokens: looked.prompt_tokens,
        bytes_per_token_milli: ratio,
        min_tokens: facts.min_cache_tokens,
        rates: book.rates_for(PROVIDER, &looked.trail.model, tokens, looked.at_ms),
    }
}

/// The engine over a series of requests.
struct Audit {
    hasher: Hasher,
    engine: Engine,
    book: PriceBook,
    /// Requests whose answer has not begun yet: when it does, their thread, and what was used.
    waiting: Vec<Waiting>,
}

struct Waiting {
    begins_ms: i64,
    thread: u64,
    usage: Usage,
    past: Arc<Past>,
}

impl Audit {
    fn record(
        &mut self,
        number: usize,
        looked: Looked,
        place: &Place,
        tally: &Tally,
    ) -> TurnRecord {
        let now_ms = looked.at_ms;
        let id = Uuid::from_u64_pair(now_ms.cast_unsigned(), number as u64);
        let mut record = TurnRecord::begin(id, RequestKind::Turn, "recorded", now_ms);
        record.run_id = place.run.to_string();
        record.run_source = "recorded";
        record.thread_id = place.name.to_string();
        record.turn = place.turn;
        record.model_requested = Some(looked.trail.model.to_string());
        record.status = Some(200);
        record.outcome = Outcome::Ok;
        record.inspection = Inspection::Inspected;
        record.usage = Usage {
            uncached: Some(tally.uncached),
            read: Some(tally.read),
            write_5m: Some(tally.write_5m),
            write_1h: Some(tally.write_1h),
            output: Some(0),
            ..Usage::default()
        };
        record.usage_complete = true;
        record.usage_estimated = true;
        record.cache.policy = Some("recorded");
        let Some(seen) = looked.seen else {
            return record;
        };
        let thread = short(&self.hasher.keyed(
            "thread",
            format!("{}\0{}", place.run, place.name).as_bytes(),
        ));
        self.settle(now_ms, thread);
        let facts = self.book.model(PROVIDER, &looked.trail.model, now_ms);
        let request = Request {
            hasher: &self.hasher,
            body: &seen.body,
            view: &seen.view,
            betas: seen.betas,
            left_out: &[],
            thread,
            turn: place.turn,
            app: 0,
            root_seen: false,
            previous_blocks: None,
            insertion_off: false,
            policy: None,
            rates: facts.rates,
            min_tokens: facts.min_cache_tokens,
            bytes_per_token_milli: facts.bytes_per_token_milli,
            now_ms,
        };
        let prepared = self.engine.prepare(&request, seen.chain.clone());
        self.engine.learn(&seen.body, &prepared.news);
        let expected = self.engine.sent(id, &prepared.look(&request));
        self.judge(&mut record, &prepared, &expected, &facts);
        let past = Past {
            trail: Arc::new(prepared.trail),
            turn_id: id,
            started_ms: now_ms,
            ended_ms: now_ms + ANSWER_AFTER_MS,
            usage: record.usage,
            response_id: None,
            model_served: None,
            stop_reason: None,
            client_order: None,
        };
        self.waiting.push(Waiting {
            begins_ms: now_ms + ANSWER_AFTER_MS,
            thread,
            usage: record.usage,
            past: Arc::new(past),
        });
        record
    }

    /// What has been answered until then; a thread goes on only after its answer.
    fn settle(&mut self, now_ms: i64, thread: u64) {
        let (ended, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|w| w.begins_ms <= now_ms || w.thread == thread);
        self.waiting = waiting;
        for ended in ended {
            let _ = self.engine.settled(ended.past.turn_id, &ended.usage);
            self.engine.remember(ended.thread, ended.past);
        }
    }

    fn judge(
        &self,
        record: &mut TurnRecord,
        prepared: &Prepared,
        expected: &Expected,
        facts: &crate::usage::ModelFacts,
    ) {
        let at_ms = record.started_ms;
        let model = record.model_requested.as_deref();
        let price = |usage: &Usage| {
            let metered = Metered {
                usage: *usage,
                ..Metered::default()
            };
            self.book.price(PROVIDER, &metered, model, at_ms).pico()
        };
        let usage = record.usage;
        let prompt = usage.prompt().unwrap_or(0);
        let plain = Usage {
            uncached: Some(prompt),
            read: Some(0),
            write_5m: Some(0),
            write_1h: Some(0),
            ..usage
        };
        record.cost_pico = price(&usage);
        record.cost_no_cache_pico = price(&plain);
        let verdict = judge(&Facts {
            usage: &usage,
            now: &prepared.trail,
            started_ms: at_ms,
            served: None,
            past: prepared.compared.past.as_deref(),
            change: prepared.compared.change.as_ref(),
            expected,
            min_tokens: facts.min_cache_tokens,
            automatic: None,
            beside: record.turn == 1 && record.thread_id != "main",
            price: &price,
        });
        if let (Some(twice), Some(written)) = (expected.pending, usage.written())
            && written > 0
        {
            record.cache.duplicate_of = Some(twice.turn);
            record.cache.duplicate_tokens = twice.tokens;
            let lost = twice.tokens.map(|tokens| tokens.min(written));
            record.cache.duplicate_pico = lost.and_then(|lost| unread_pico(&usage, lost, &price));
        }
        record.cache.read_of = expected.read.map(|known| known.turn);
        match verdict {
            Ok(verdict) => record.cache.verdict = Some(verdict),
            Err(why) => record.cache.unjudged = Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::judged;
    use crate::prompt_cache::verdict::{Reason, Status, What};
    use crate::store::{Filter, Questions as _, Sqlite};

    /// A conversation whose system prompt tells the time.
    fn clock(turns: usize) -> String {
        let say = |role: &str, text: String| json!({"role": role, "content": [{"type": "text", "text": text}]});
        let mut messages = vec![say("user", "first question".to_owned())];
        let mut lines = String::new();
        for turn in 0..turns {
            let mut marked = messages.clone();
            marked.last_mut().unwrap()["content"][0]["cache_control"] =
                json!({"type": "ephemeral"});
            let body = json!({"model": "claude-sonnet-4-6", "max_tokens": 10, "messages": marked,
                "system": [{"type": "text", "text": format!("Now: 10:00:{:02}. {}", 10 + turn, "rule ".repeat(4000))}]});
            let line = json!({"ts": turn * 20, "path": "/v1/messages", "body": body.to_string()});
            lines.push_str(&format!("{line}\n"));
            messages.push(say("assistant", format!("answer {turn}")));
            messages.push(say("user", format!("question {turn}")));
        }
        lines
    }

    #[test]
    fn a01_bodies_alone_tell_who_broke_the_cache() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bodies.jsonl");
        std::fs::write(&file, clock(10)).unwrap();
        let store = dir.path().join("store");
        assert!(judged(&[file], &store).unwrap().is_empty());
        let store = Sqlite::open_read(&store).unwrap();
        let runs = store.runs(&Filter::all(10)).unwrap();
        assert_eq!(runs.len(), 1);
        let turns = store.turns(&runs[0].id, &Filter::all(100), false).unwrap();
        assert_eq!(turns.len(), 10);
        for turn in &turns[1..] {
            let verdict = turn.cache.verdict.as_ref().unwrap();
            assert_eq!(verdict.status, Status::Miss);
            assert_eq!(verdict.reason, Some(Reason::System));
            assert_eq!(verdict.what, Some(What::Clock));
            assert_eq!(verdict.first_changed.as_deref(), Some("system[0].text"));
            assert!(verdict.lost_pico.unwrap() > 0);
            assert!(turn.usage_estimated);
        }
    }

    #[test]
    fn files_without_a_request_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("empty.jsonl");
        std::fs::write(&file, "nonsense\n").unwrap();
        let error = judged(&[file], &dir.path().join("store")).unwrap_err();
        assert!(error.to_string().contains("1 bad"), "{error}");
    }
}
