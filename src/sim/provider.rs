//! The provider without its sockets: a request in, an answer or a refusal out.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::answer::{Answer, Block, INJECTED};
use super::batches::Batches;
use super::cache::{Cache, Pending, Tokens};
use super::conversation::{self, Signer, hex};
use super::diagnostics::{Fingerprint, Fingerprints};
use super::error::ApiError;
use super::failure::{self, Failure};
use super::head::Head;
use super::json::Json;
use super::markers;
use super::options::Options;
use super::prompt::{self, Prompt, Salts};
use super::script::{self, Injection, Setting};
use super::threads::{self, Asked, Threads};
use super::validate::{self, Purpose, Settings};

/// Largest body after decoding. Source: provider docs, Aug 2026.
pub const MAX_BODY: usize = 32 << 20;

/// Attempts of scripted failures that are counted; beyond it counting starts anew.
const MAX_ATTEMPTS: usize = 100_000;

/// Credentials whose usage per minute is counted.
const MAX_WINDOWS: usize = 10_000;

/// Shared state of one simulated provider.
#[derive(Debug)]
pub struct Provider {
    /// Its settings.
    pub options: Options,
    state: Mutex<State>,
    counter: AtomicU64,
}

/// What the provider remembers between requests.
#[derive(Debug, Default)]
pub struct State {
    /// The prompt cache.
    pub cache: Cache,
    /// Held conversations.
    pub threads: Threads,
    /// Fingerprints for diagnostics.
    pub fingerprints: Fingerprints,
    /// Batches.
    pub batches: Batches,
    /// What the OpenAI side remembers.
    pub openai: super::openai::State,
    attempts: HashMap<String, u32>,
    windows: HashMap<String, Window>,
    minute: u64,
}

/// Use of a credential in the running minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests.
    pub requests: u64,
    /// Input tokens; cache reads do not count. Source: provider docs, Aug 2026.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
}

/// An answer that is ready to be written.
#[derive(Debug)]
pub struct Ready {
    /// The answer.
    pub answer: Answer,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// Milliseconds to wait before the head.
    pub delay_ms: u64,
    /// A failure at or after the head, with its name.
    pub failure: Option<(Failure, String)>,
    /// What to write to the cache when the head goes out.
    pub pending: Pending,
    /// What to hold when the answer is complete.
    pub claim: Claim,
    fingerprint: Option<Fingerprint>,
    scope: String,
}

/// The right to continue a thread; given back when the request fails.
#[derive(Debug)]
pub struct Claim {
    provider: Arc<Provider>,
    previous: Option<String>,
    hold: Option<(String, &'static str, Prompt)>,
    settled: bool,
}

impl Claim {
    /// The answer is complete: hold the conversation, if that was asked for.
    pub fn settle(mut self, id: &str, answer: &Answer) {
        self.settled = true;
        let Some((scope, model, prompt)) = self.hold.take() else {
            return;
        };
        let now_ms = self.provider.options.clock.now_ms();
        self.provider.state().threads.store(
            id.to_owned(),
            self.previous.as_deref(),
            (scope, model),
            prompt,
            answer.as_history(),
            now_ms,
        );
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let (false, Some(previous)) = (self.settled, &self.previous) {
            self.provider.state().threads.release(previous);
        }
    }
}

/// Undoes a request's content encoding.
///
/// # Errors
/// The documented 400s and the 413.
pub fn decode(body: &[u8], encoding: Option<&str>, limit: usize) -> Result<Vec<u8>, ApiError> {
    let broken = || {
        ApiError::invalid("The request body could not be decoded with its content-encoding.")
            .code("request_body_encoding_invalid")
    };
    let mut out = Vec::new();
    let read = match encoding.map(str::trim) {
        None | Some("" | "identity") => return Ok(body.to_vec()),
        Some("gzip") => flate2::read::MultiGzDecoder::new(body)
            .take(limit as u64 + 1)
            .read_to_end(&mut out),
        Some("zstd") => {
            let decoder = zstd::stream::read::Decoder::new(body).map_err(|_| broken())?;
            decoder.take(limit as u64 + 1).read_to_end(&mut out)
        }
        Some(other) => {
            return Err(
                ApiError::invalid(format!("content-encoding: '{other}' is not supported"))
                    .code("request_body_encoding_unsupported"),
            );
        }
    };
    read.map_err(|_| broken())?;
    if out.len() > limit {
        return Err(
            ApiError::new(413, "Request exceeds the maximum size after decoding")
                .code("request_body_too_large_after_decoding"),
        );
    }
    Ok(out)
}

/// Reads a body as JSON.
///
/// # Errors
/// 400 for anything else.
pub fn json(body: &[u8]) -> Result<Json, ApiError> {
    Json::parse(body)
        .map_err(|error| ApiError::invalid(format!("The request body is not valid JSON: {error}")))
}

impl Provider {
    /// A provider with nothing cached.
    #[must_use]
    pub fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            options,
            state: Mutex::default(),
            counter: AtomicU64::new(0),
        })
    }

    /// The state; never held across an await.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fresh id that no other provider with another seed gives.
    #[must_use]
    pub fn id(&self, prefix: &str) -> String {
        use sha2::{Digest, Sha256};
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let hash = Sha256::new()
            .chain_update(self.options.seed.to_le_bytes())
            .chain_update(number.to_le_bytes())
            .finalize();
        format!("{prefix}01{}", hex(&hash[..11]))
    }

    /// Counts tokens of a request.
    ///
    /// # Errors
    /// What [`Provider::answer`] would refuse, too.
    pub fn count(self: &Arc<Self>, head: &Head, body: &Json) -> Result<u64, ApiError> {
        let settings = self.settings(body, head, Purpose::Count)?;
        let (prompt, _claim) = self.prompt(body, head, &settings, 0)?;
        let salts = Salts::of(body, &prompt, settings.model, &head.scope, &head.betas);
        let positions = prompt::positions(&prompt, settings.model, &salts);
        Ok(positions.last().map_or(0, |last| last.tokens))
    }

    fn settings(&self, body: &Json, head: &Head, purpose: Purpose) -> Result<Settings, ApiError> {
        validate::settings(body, head, purpose, self.options.strict)
    }

    /// The whole prompt, checked, with the automatic marker placed.
    fn prompt(
        self: &Arc<Self>,
        body: &Json,
        head: &Head,
        settings: &Settings,
        now_ms: u64,
    ) -> Result<(Prompt, Claim), ApiError> {
        let mut prompt = validate::prompt(body)?;
        let asked = threads::asked(body)?;
        let mut claim = Claim {
            provider: Arc::clone(self),
            previous: None,
            hold: None,
            settled: false,
        };
        if let Some(Asked::Continue(id)) = &asked {
            let owner = (head.scope.as_str(), settings.model.id);
            prompt = self.state().threads.resume(id, owner, prompt, now_ms)?;
            claim.previous = Some(id.clone());
        }
        markers::check(&mut prompt, settings.auto)?;
        if self.options.strict {
            conversation::check(&prompt, settings.model, head)?;
            if self.options.check_signatures {
                self.signer().check(&prompt, settings.model)?;
            }
        }
        if asked.is_some() {
            claim.hold = Some((head.scope.clone(), settings.model.id, prompt.clone()));
        }
        Ok((prompt, claim))
    }

    fn signer(&self) -> Signer {
        Signer {
            seed: self.options.seed,
        }
    }

    /// Answers a request that started at `now_ms`.
    ///
    /// # Errors
    /// The API's refusal.
    pub fn answer(
        self: &Arc<Self>,
        head: &Head,
        body: &Json,
        purpose: Purpose,
        inject: Option<&str>,
        now_ms: u64,
    ) -> Result<Ready, ApiError> {
        let settings = self.settings(body, head, purpose)?;
        let model = settings.model;
        let (prompt, claim) = self.prompt(body, head, &settings, now_ms)?;
        let setting = Setting {
            body,
            workdir: &self.options.workdir,
            inject_any: self.options.inject_any,
        };
        let decision = script::decide(&prompt, setting);
        let salts = Salts::of(body, &prompt, model, &head.scope, &head.betas);
        let positions = prompt::positions(&prompt, model, &salts);
        let total = positions.last().map_or(0, |last| last.tokens);
        if total > model.context {
            return Err(ApiError::invalid(format!(
                "prompt is too long: {total} tokens > {} maximum",
                model.context
            )));
        }
        let failure = self.failure(inject, &decision.injections, now_ms);
        if let Some((Failure::Refuse(error), _)) = failure {
            return Err(error);
        }
        let mut state = self.state();
        let (mut tokens, pending) =
            state
                .cache
                .look(&positions, model, self.options.counting, now_ms);
        let id = self.id("msg_");
        let mut fingerprint = None;
        let mut diagnostics = None;
        if let Some(asked) = body.given("diagnostics") {
            let now = Fingerprint::of(body, &prompt, &salts, total);
            diagnostics = asked
                .given("previous_message_id")
                .and_then(Json::text)
                .and_then(|previous| {
                    if self.options.diagnostics_pending {
                        return Some(r#"{"cache_miss_reason":null}"#.to_owned());
                    }
                    state
                        .fingerprints
                        .explain(&previous, &head.scope, &now, tokens)
                });
            diagnostics.get_or_insert_with(|| "null".to_owned());
            fingerprint = Some(now);
        }
        drop(state);
        if let Some(fixed) = decision.usage {
            tokens.uncached = fixed.saturating_sub(tokens.read + tokens.written());
        }
        let mut answer = Answer {
            id,
            model: model.id,
            blocks: Vec::new(),
            stop_reason: "end_turn",
            tokens,
            tier: if purpose == Purpose::Batch {
                "batch"
            } else {
                "standard"
            },
            fast: body.get("speed").is_some_and(|speed| speed.is("fast")),
            diagnostics,
            output: 0,
        };
        self.fill(
            &mut answer,
            decision.text,
            decision.calls,
            &settings,
            &prompt,
            &failure,
        );
        Ok(Ready {
            answer,
            stream: settings.stream,
            delay_ms: decision.delay_ms,
            failure,
            pending,
            claim,
            fingerprint,
            scope: head.scope.clone(),
        })
    }

    /// Puts content into an answer, within its output limit.
    fn fill(
        &self,
        answer: &mut Answer,
        text: String,
        calls: Vec<super::tools::Call>,
        settings: &Settings,
        prompt: &Prompt,
        failure: &Option<(Failure, String)>,
    ) {
        if settings.max_tokens == 0 {
            answer.stop_reason = "max_tokens";
            return;
        }
        let (mut text, mut calls) = (text, calls);
        if let Some((Failure::Synthetic(stop), _)) = failure {
            answer.stop_reason = stop;
            if *stop == "end_turn" {
                text = INJECTED.to_owned();
                calls.clear();
            }
        } else if !calls.is_empty() {
            answer.stop_reason = "tool_use";
        }
        if settings.thinks {
            let thinking = "Thinking about the next step.".to_owned();
            let signature = self
                .signer()
                .sign(&thinking, settings.model, &prompt.messages);
            answer.blocks.push(Block::Thinking(thinking, signature));
        }
        if !text.is_empty() {
            answer.blocks.push(Block::Text(text));
        }
        answer
            .blocks
            .extend(calls.into_iter().map(|call| Block::Call {
                id: self.id("toolu_"),
                name: call.name,
                input: call.input,
            }));
        answer.output = Answer::count(&answer.blocks).max(1);
        if answer.output > settings.max_tokens {
            answer.output = settings.max_tokens;
            answer.stop_reason = "max_tokens";
            answer
                .blocks
                .retain(|block| !matches!(block, Block::Call { .. }));
            let room = usize::try_from(settings.max_tokens)
                .unwrap_or(usize::MAX)
                .saturating_mul(4);
            for block in &mut answer.blocks {
                if let Block::Text(text) = block {
                    let cut = (1..=room.min(text.len()))
                        .rev()
                        .find(|at| text.is_char_boundary(*at));
                    text.truncate(cut.unwrap_or(text.len()));
                }
            }
        }
    }

    /// The failure of this attempt, if one is left to happen.
    pub fn failure(
        &self,
        always: Option<&str>,
        scripted: &[(Injection, String)],
        now_ms: u64,
    ) -> Option<(Failure, String)> {
        if let Some(kind) = always {
            return failure::named(kind, now_ms).map(|failure| (failure, kind.to_owned()));
        }
        let mut state = self.state();
        if state.attempts.len() > MAX_ATTEMPTS {
            state.attempts.clear();
        }
        let mut due = None;
        for (injection, key) in scripted {
            let attempts = state.attempts.entry(key.clone()).or_default();
            *attempts += 1;
            if *attempts <= injection.times {
                due = Some(&injection.kind);
            }
        }
        let kind = due?;
        failure::named(kind, now_ms).map(|failure| (failure, kind.clone()))
    }

    /// The head goes out: entries become readable, and the fingerprint can be named.
    pub fn begin(&self, ready: &mut Ready) {
        let mut state = self.state();
        state.cache.commit(&ready.pending);
        if let Some(fingerprint) = ready.fingerprint.take() {
            let id = ready.answer.id.clone();
            state
                .fingerprints
                .store(id, ready.scope.clone(), fingerprint);
        }
    }

    /// A credential's use in the running minute, as far as it is counted.
    pub fn window(&self, scope: &str) -> Window {
        self.state().windows.get(scope).copied().unwrap_or_default()
    }

    /// Counts a request against its credential's minute.
    pub fn used(&self, scope: &str, tokens: Option<Tokens>, output: u64) -> Window {
        let minute = self.options.clock.now_ms() / 60_000;
        let mut state = self.state();
        if state.minute != minute || state.windows.len() > MAX_WINDOWS {
            state.minute = minute;
            state.windows.clear();
        }
        let window = state.windows.entry(scope.to_owned()).or_default();
        window.requests += 1;
        window.input += tokens.map_or(0, |tokens| tokens.uncached + tokens.written());
        window.output += output;
        *window
    }
}
