//! Conversations that the provider holds (message threads). Source: provider docs and SDK, Nov 2026.

use std::collections::HashMap;

use super::error::ApiError;
use super::json::Json;
use super::prompt::{Message, Prompt, Role, canonical, is_kind};

/// How long a thread is held after its last request.
const HELD_MS: u64 = 300_000;

/// Threads held at most; the ones unused longest go first.
const MAX_THREADS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    Continued,
}

#[derive(Debug)]
struct Held {
    scope: String,
    model: &'static str,
    prompt: Prompt,
    used_ms: u64,
    state: State,
}

/// What a request asks of threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Hold this conversation.
    Create,
    /// Go on after the answer with this id.
    Continue(String),
}

/// Reads the `thread` member.
///
/// # Errors
/// 400 for another shape.
pub fn asked(body: &Json) -> Result<Option<Asked>, ApiError> {
    let Some(thread) = body.given("thread") else {
        return Ok(None);
    };
    if let Some(feature) = ["context_management", "fallbacks"]
        .iter()
        .find(|f| body.given(f).is_some())
    {
        return Err(ApiError {
            unsupported: Some(feature),
            ..ApiError::invalid(format!("thread: cannot be combined with {feature}"))
                .code("thread_unsupported_request")
        });
    }
    if is_kind(thread, "create") {
        return Ok(Some(Asked::Create));
    }
    if is_kind(thread, "continue") {
        let id = thread.text_of("previous_message_id").ok_or_else(|| {
            ApiError::invalid("thread.continue.previous_message_id: Field required")
        })?;
        return Ok(Some(Asked::Continue(id)));
    }
    Err(ApiError::invalid(
        "thread: Input tag does not match any of the expected tags: 'create', 'continue'",
    ))
}

/// All held conversations.
#[derive(Debug, Default)]
pub struct Threads {
    held: HashMap<String, Held>,
}

impl Threads {
    /// The whole prompt of a continuation: what is held, then what the request brings. The answer
    /// that is continued counts as in flight until [`Threads::release`] or [`Threads::store`].
    ///
    /// # Errors
    /// The documented refusals, each with its `error_code`.
    pub fn resume(
        &mut self,
        id: &str,
        (scope, model): (&str, &str),
        new: Prompt,
        now_ms: u64,
    ) -> Result<Prompt, ApiError> {
        let lost = || {
            ApiError::new(
                404,
                "No usable thread state was found for `previous_message_id`.",
            )
            .code("thread_not_found")
        };
        let held = self.held.get_mut(id).ok_or_else(lost)?;
        if held.scope != scope || now_ms > held.used_ms + HELD_MS {
            return Err(lost());
        }
        match held.state {
            State::Free => {}
            State::InFlight => {
                return Err(ApiError::invalid(
                    "thread: another request is still continuing from this `previous_message_id`.",
                )
                .code("thread_continue_in_flight"));
            }
            State::Continued => {
                return Err(
                    ApiError::invalid("thread: this response has already been continued.")
                        .code("thread_already_continued"),
                );
            }
        }
        let differs = |given: &[Json], own: &[Json]| {
            !given.is_empty()
                && (given.len() != own.len()
                    || given
                        .iter()
                        .zip(own)
                        .any(|(a, b)| canonical(a) != canonical(b)))
        };
        let changed: Vec<&str> = [
            ("model", held.model != model),
            ("system", differs(&new.system, &held.prompt.system)),
            ("tools", differs(&new.tools, &held.prompt.tools)),
        ]
        .iter()
        .filter_map(|(field, changed)| changed.then_some(*field))
        .collect();
        if !changed.is_empty() {
            return Err(ApiError::invalid(format!(
                "thread: must stay the same across a thread: {}",
                changed.join(", ")
            ))
            .code("thread_fingerprint_mismatch"));
        }
        held.state = State::InFlight;
        held.used_ms = now_ms;
        let mut prompt = held.prompt.clone();
        // Markers on messages belong to the request that brought them; those on tools and system stay.
        for message in &mut prompt.messages {
            message.held = true;
        }
        prompt.messages.extend(new.messages);
        Ok(prompt)
    }

    /// The continuation failed: the answer can be continued again.
    pub fn release(&mut self, id: &str) {
        if let Some(held) = self.held.get_mut(id) {
            held.state = State::Free;
        }
    }

    /// The answer `id` is complete: hold the conversation under it.
    pub fn store(
        &mut self,
        id: String,
        previous: Option<&str>,
        (scope, model): (String, &'static str),
        mut prompt: Prompt,
        answer: Vec<Json>,
        now_ms: u64,
    ) {
        if let Some(held) = previous.and_then(|previous| self.held.get_mut(previous)) {
            held.state = State::Continued;
            // Only the fact that it was continued is needed from now on.
            held.prompt = Prompt::default();
        }
        prompt.messages.push(Message {
            role: Role::Assistant,
            blocks: answer,
            index: prompt.messages.len(),
            held: true,
        });
        if self.held.len() >= MAX_THREADS {
            self.held.retain(|_, held| now_ms <= held.used_ms + HELD_MS);
        }
        if self.held.len() >= MAX_THREADS {
            let oldest = self
                .held
                .iter()
                .min_by_key(|(_, held)| held.used_ms)
                .map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                self.held.remove(&oldest);
            }
        }
        self.held.insert(
            id,
            Held {
                scope,
                model,
                prompt,
                used_ms: now_ms,
                state: State::Free,
            },
        );
    }

    /// Forgets all threads, as the provider may at any time.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}
