//! Message batches: small, but real enough for a client that creates, polls and reads one.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::Answer;
use super::clock::rfc3339;
use super::error::ApiError;
use super::head::Head;
use super::json::{Json, quote};
use super::provider::Provider;
use super::validate::Purpose;

/// Batches kept.
const MAX_BATCHES: usize = 1_000;

/// Requests in one batch. Source: provider docs, Aug 2026.
const MAX_REQUESTS: usize = 100_000;

const DAY_MS: u64 = 86_400_000;

#[derive(Debug)]
struct Batch {
    scope: String,
    created_ms: u64,
    succeeded: usize,
    errored: usize,
    /// Results as JSON lines.
    results: String,
    /// A batch has ended from the first poll on.
    polled: bool,
}

/// All batches by id.
#[derive(Debug, Default)]
pub struct Batches {
    known: HashMap<String, Batch>,
}

impl Batches {
    fn owned(&mut self, id: &str, scope: &str) -> Result<&mut Batch, ApiError> {
        self.known
            .get_mut(id)
            .filter(|batch| batch.scope == scope)
            .ok_or_else(|| ApiError::new(404, format!("Message batch {id} not found")))
    }
}

/// Creates a batch and answers all of it at once; clients see it end at their first poll.
///
/// # Errors
/// 400 for a body that is no batch. A refused request inside becomes an errored result.
pub fn create(provider: &Arc<Provider>, head: &Head, body: &Json) -> Result<String, ApiError> {
    let requests = body
        .given("requests")
        .ok_or_else(|| ApiError::invalid("requests: Field required"))?
        .items();
    if requests.is_empty() || requests.len() > MAX_REQUESTS {
        return Err(ApiError::invalid(
            "requests: List should have between 1 and 100000 items",
        ));
    }
    let now_ms = provider.options.clock.now_ms();
    let mut batch = Batch {
        scope: head.scope.clone(),
        created_ms: now_ms,
        succeeded: 0,
        errored: 0,
        results: String::new(),
        polled: false,
    };
    let mut names: Vec<String> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let name = request.text_of("custom_id").ok_or_else(|| {
            ApiError::invalid(format!("requests.{index}.custom_id: Field required"))
        })?;
        if names.contains(&name) {
            return Err(ApiError::invalid("requests: custom_id must be unique"));
        }
        let params = request
            .given("params")
            .ok_or_else(|| ApiError::invalid(format!("requests.{index}.params: Field required")))?;
        let result = match provider.answer(head, params, Purpose::Batch, None, now_ms) {
            Ok(mut ready) => {
                provider.begin(&mut ready);
                batch.succeeded += 1;
                format!(
                    r#"{{"type":"succeeded","message":{}}}"#,
                    Answer::json(&ready.answer)
                )
            }
            Err(error) => {
                batch.errored += 1;
                format!(
                    r#"{{"type":"errored","error":{}}}"#,
                    error.body(&provider.id("req_"))
                )
            }
        };
        batch.results.push_str(&format!(
            r#"{{"custom_id":{},"result":{result}}}"#,
            quote(&name)
        ));
        batch.results.push('\n');
        names.push(name);
    }
    let id = provider.id("msgbatch_");
    let document = document(&id, &batch, "");
    let mut state = provider.state();
    if state.batches.known.len() >= MAX_BATCHES {
        state.batches.known.clear();
    }
    state.batches.known.insert(id, batch);
    Ok(document)
}

/// The state of a batch.
///
/// # Errors
/// 404 for an unknown one.
pub fn poll(provider: &Provider, head: &Head, id: &str, base: &str) -> Result<String, ApiError> {
    let mut state = provider.state();
    let batch = state.batches.owned(id, &head.scope)?;
    batch.polled = true;
    Ok(document(id, batch, base))
}

/// The results of a batch, as JSON lines.
///
/// # Errors
/// 404 for an unknown one.
pub fn results(provider: &Provider, head: &Head, id: &str) -> Result<String, ApiError> {
    let mut state = provider.state();
    Ok(state.batches.owned(id, &head.scope)?.results.clone())
}

fn document(id: &str, batch: &Batch, base: &str) -> String {
    let (succeeded, errored) = (batch.succeeded, batch.errored);
    let counts = |processing, succeeded, errored| {
        format!(
            r#"{{"processing":{processing},"succeeded":{succeeded},"errored":{errored},"canceled":0,"expired":0}}"#
        )
    };
    let created = quote(&rfc3339(batch.created_ms));
    let (status, counts, ended, url) = if batch.polled {
        let url = quote(&format!("{base}/v1/messages/batches/{id}/results"));
        ("ended", counts(0, succeeded, errored), created.clone(), url)
    } else {
        let null = || "null".to_owned();
        (
            "in_progress",
            counts(succeeded + errored, 0, 0),
            null(),
            null(),
        )
    };
    format!(
        concat!(
            r#"{{"id":"{id}","type":"message_batch","processing_status":"{status}","request_counts":{counts},"#,
            r#""created_at":{created},"expires_at":{expires},"ended_at":{ended},"archived_at":null,"#,
            r#""cancel_initiated_at":null,"results_url":{url}}}"#
        ),
        id = id,
        status = status,
        counts = counts,
        created = created,
        expires = quote(&rfc3339(batch.created_ms + DAY_MS)),
        ended = ended,
        url = url,
    )
}
