//! The routes of the OpenAI side.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Response};

use super::chat;
use super::completion;
use super::error::OpenAiError;
use super::events::sse;
use super::provider::Ready;
use super::responses::{Over, Reader, Wishes};
use super::told::{Status, Told};
use super::{side, validate};
use crate::sim::body::SimBody;
use crate::sim::cache;
use crate::sim::json::{Json, quote};
use crate::sim::provider::{MAX_BODY, decode};
use crate::sim::record::End;
use crate::sim::wire::{Exchange, Outgoing, Shape};

/// Limits that the rate-limit headers show: requests and tokens per minute.
const LIMITS: [u64; 2] = [10_000, 2_000_000];

/// Whether a request is one of the OpenAI side. The list of models exists on both sides: it is asked
/// for here by a bearer token without any header of the other side.
#[must_use]
pub fn speaks(path: &str, headers: &HeaderMap) -> bool {
    let mut parts = path.trim_start_matches('/').split('/');
    if parts.next() != Some("v1") {
        return false;
    }
    match parts.next() {
        Some("chat" | "responses" | "embeddings" | "conversations") => true,
        Some("models") => {
            headers.contains_key("authorization")
                && !headers.contains_key("anthropic-version")
                && !headers.contains_key("x-api-key")
        }
        _ => false,
    }
}

/// The credential, which is the cache scope too.
///
/// # Errors
/// 401 without a bearer token, or with `invalid`.
pub fn credential(headers: &HeaderMap) -> Result<String, OpenAiError> {
    let token = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty());
    match token {
        None => Err(OpenAiError::new(
            401,
            "No API key was given in the Authorization header.",
        )),
        Some("invalid") => {
            Err(OpenAiError::new(401, "Incorrect API key provided.").code("invalid_api_key"))
        }
        Some(token) => Ok(token.to_owned()),
    }
}

/// Tells an error in which the connection may break without an answer.
type Outcome = Result<Option<Response<SimBody>>, OpenAiError>;

impl Exchange<'_> {
    /// Answers a request of the OpenAI side; `None` breaks the connection.
    pub async fn openai(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Bytes,
    ) -> Option<Response<SimBody>> {
        match self.openai_route(method, path, query, body).await {
            Ok(response) => response,
            Err(error) => Some(self.refuse_openai(&error)),
        }
    }

    async fn openai_route(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &Bytes,
    ) -> Outcome {
        let scope = credential(self.headers)?;
        let provider = &self.shared.provider;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').skip(1).collect();
        let document = match (method.as_str(), parts.as_slice()) {
            ("POST", ["chat", "completions"]) => return self.chat(&scope, body).await,
            ("POST", ["responses"]) => return self.responses(&scope, body).await,
            ("POST", ["responses", "compact"]) => {
                let body = self.openai_body(body)?;
                let told = side::compact(provider, &scope, &body, self.at_ms)?;
                self.record_openai(&told.id, told.tokens);
                told.document
            }
            ("POST", ["responses", "input_tokens"]) => {
                side::input_tokens(provider, &scope, &self.openai_body(body)?)?
            }
            ("GET", ["responses", id]) => return self.poll(&scope, id, query),
            ("DELETE", ["responses", id]) => {
                let mut state = provider.state();
                let held = &mut state.openai.held;
                if held.response(id, &scope).is_none() || !held.forget(id) {
                    return Err(unknown(id));
                }
                format!(
                    r#"{{"id":{},"object":"response.deleted","deleted":true}}"#,
                    quote(id)
                )
            }
            ("POST", ["responses", id, "cancel"]) => self.cancel(&scope, id)?,
            ("POST", ["embeddings"]) => side::embeddings(&self.openai_body(body)?)?,
            ("POST", ["conversations"]) => side::conversation(provider, &scope, body, self.at_ms)?,
            ("GET", ["models"]) => side::models(),
            ("GET", ["models", id]) => side::model(id)?,
            _ => {
                return Err(OpenAiError::new(
                    404,
                    format!("Invalid URL ({method} {path})"),
                ));
            }
        };
        Ok(Some(self.json(document)))
    }

    fn openai_body(&self, body: &Bytes) -> Result<Json, OpenAiError> {
        let encoding = self
            .headers
            .get("content-encoding")
            .and_then(|value| value.to_str().ok());
        let body = decode(body, encoding, MAX_BODY).map_err(OpenAiError::of_body)?;
        Json::parse(&body).map_err(|error| {
            OpenAiError::invalid(format!("The body of the request is no JSON: {error}"))
        })
    }

    async fn chat(&self, scope: &str, body: &Bytes) -> Outcome {
        let provider = &self.shared.provider;
        let (asked, wishes) = chat::read(&self.openai_body(body)?, scope, &provider.options)?;
        let fault = self.fault();
        let mut ready = provider.openai(asked, fault.inject.as_deref(), self.at_ms)?;
        ready.answer.output *= wishes.choices;
        ready.answer.thinking *= wishes.choices;
        if let Some(end) = self.hold_back(ready.delay_ms, &ready.failure).await {
            return Ok(end);
        }
        self.begin(&mut ready);
        let answer = &ready.answer;
        let shape = if ready.asked.stream {
            Shape::Stream(completion::stream(
                answer,
                wishes,
                ready.asked.obfuscate,
                ready.inside(),
            ))
        } else {
            Shape::Document(completion::document(answer, wishes))
        };
        let outgoing = Outgoing {
            shape,
            failure: ready.failure,
            fault,
        };
        let mut response = self.send(outgoing, |_| {});
        self.openai_limits(response.headers_mut(), scope);
        Ok(Some(response))
    }

    async fn responses(&self, scope: &str, body: &Bytes) -> Outcome {
        let provider = &self.shared.provider;
        let body = self.openai_body(body)?;
        let (asked, wishes) = {
            let state = provider.state();
            Reader {
                scope,
                options: &provider.options,
                held: &state.openai.held,
                over: Over::Http,
            }
            .read(&body)?
        };
        drop(body);
        let fault = self.fault();
        let mut ready = provider.openai(asked, fault.inject.as_deref(), self.at_ms)?;
        if let Some(end) = self.hold_back(ready.delay_ms, &ready.failure).await {
            return Ok(end);
        }
        self.begin(&mut ready);
        let told = Arc::new(told(&ready, &wishes));
        let (stream, background) = (ready.asked.stream, wishes.background);
        let stored = wishes.store;
        keep(&mut provider.state().openai.held, scope, &told, wishes);
        let shape = if stream {
            Shape::Stream(sse(told.events(ready.inside(), ready.asked.obfuscate)))
        } else if background {
            Shape::Document(told.document(Status::Queued))
        } else {
            Shape::Document(told.document(Status::Ended))
        };
        let outgoing = Outgoing {
            shape,
            // In the background a failure shows when the response is asked for.
            failure: ready.failure.filter(|_| stream || !background),
            fault,
        };
        let shared = Arc::clone(self.shared);
        let id = told.answer.id.clone();
        let mut response = self.send(outgoing, move |end| {
            // What broke off is lost; a client that left may have read to the end.
            if stored && end == End::Fault {
                shared.provider.state().openai.held.forget(&id);
            }
        });
        self.openai_limits(response.headers_mut(), scope);
        Ok(Some(response))
    }

    /// `GET /v1/responses/{id}`: a response in the background has begun at the first look and ended at
    /// the second.
    fn poll(&self, scope: &str, id: &str, query: &str) -> Outcome {
        let mut state = self.shared.provider.state();
        let stored = state
            .openai
            .held
            .response_mut(id, scope)
            .ok_or_else(|| unknown(id))?;
        let told = Arc::clone(&stored.told);
        let option = |name: &str| {
            query
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .find_map(|(key, value)| (key == name).then_some(value))
        };
        if option("stream") == Some("true") {
            drop(state);
            if !(told.background && told.streamed) {
                return Err(OpenAiError::invalid(
                    "Only a background response that was created with stream=true can be streamed.",
                )
                .param("stream"));
            }
            let after = option("starting_after").and_then(|number| number.parse::<usize>().ok());
            let events = told.events(None, true);
            let rest = events
                .into_iter()
                .skip(after.map_or(0, |number| number.saturating_add(1)));
            let outgoing = Outgoing {
                shape: Shape::Stream(sse(rest.collect())),
                failure: None,
                fault: self.fault(),
            };
            self.recorded(200);
            return Ok(Some(self.send(outgoing, |_| {})));
        }
        let status = match (stored.cancelled, stored.polls) {
            (true, _) => Status::Cancelled,
            (false, Some(0)) => {
                stored.polls = Some(1);
                Status::InProgress
            }
            (false, _) => {
                stored.polls = None;
                told.background_failure
                    .map_or(Status::Ended, Status::Failed)
            }
        };
        drop(state);
        Ok(Some(self.json(told.document(status))))
    }

    fn cancel(&self, scope: &str, id: &str) -> Result<String, OpenAiError> {
        let mut state = self.shared.provider.state();
        let stored = state
            .openai
            .held
            .response_mut(id, scope)
            .ok_or_else(|| unknown(id))?;
        if !stored.told.background {
            return Err(OpenAiError::invalid(
                "Only responses in the background can be cancelled.",
            ));
        }
        if stored.polls.take().is_some() {
            stored.cancelled = true;
        }
        let status = if stored.cancelled {
            Status::Cancelled
        } else {
            Status::Ended
        };
        Ok(stored.told.document(status))
    }

    fn begin(&self, ready: &mut Ready) {
        let tokens = self.shared.provider.begin_openai(ready);
        self.record_openai(&ready.answer.id, tokens);
        self.recorded(200);
        let _ = self.shared.provider.used(
            &ready.asked.scope,
            Some(cache::Tokens {
                uncached: tokens.total,
                ..cache::Tokens::default()
            }),
            ready.answer.output,
        );
    }

    /// A refusal of the OpenAI side.
    pub fn refuse_openai(&self, error: &OpenAiError) -> Response<SimBody> {
        self.refused(error.status, &error.message, error.body(), &error.headers)
    }

    /// The headers that show a credential's limits. Nothing is refused for them.
    fn openai_limits(&self, headers: &mut HeaderMap, scope: &str) {
        let window = self.shared.provider.window(scope);
        let used = [
            ("requests", LIMITS[0], window.requests),
            ("tokens", LIMITS[1], window.input + window.output),
        ];
        for (kind, limit, used) in used {
            for (what, value) in [
                ("limit", limit.to_string()),
                ("remaining", limit.saturating_sub(used).to_string()),
                ("reset", "1s".to_owned()),
            ] {
                let name = HeaderName::try_from(format!("x-ratelimit-{what}-{kind}"));
                if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
        }
    }

    fn record_openai(&self, id: &str, tokens: super::Tokens) {
        self.shared.recorder.update(self.seq, |request| {
            request.openai = Some(tokens);
            request.message_id = Some(id.to_owned());
        });
    }

    fn recorded(&self, status: u16) {
        self.shared
            .recorder
            .update(self.seq, |request| request.status = Some(status));
    }
}

fn unknown(id: &str) -> OpenAiError {
    OpenAiError::new(404, format!("Response with id '{id}' not found."))
}

/// A response as it will be told.
#[must_use]
pub fn told(ready: &Ready, wishes: &Wishes) -> Told {
    Told {
        answer: ready.answer.clone(),
        echo: Arc::clone(&wishes.echo),
        background: wishes.background,
        background_failure: ready
            .inside()
            .filter(|_| wishes.background)
            .and_then(Told::failure_code),
        streamed: ready.asked.stream,
        generate: ready.asked.generate,
    }
}

/// Keeps a response, if that is wanted, and what it adds to its conversation. It is kept before the
/// client can read its end, so that the next request finds it.
pub fn keep(held: &mut super::held::Held, scope: &str, told: &Arc<Told>, wishes: Wishes) {
    let output = told.as_history();
    if let Some(id) = &wishes.conversation {
        let fresh = &wishes.items[wishes.items.len() - wishes.new..];
        held.extend(id, fresh);
        held.extend(id, &output);
    }
    if wishes.store {
        let new = wishes.new + output.len();
        let mut items = wishes.items;
        items.extend(output);
        held.store(
            scope.to_owned(),
            items,
            new,
            Arc::clone(told),
            wishes.background,
        );
    }
}

/// The items of the `items` member of a new conversation.
///
/// # Errors
/// 400 for another shape.
pub fn items_of(body: &Json) -> Result<Vec<Arc<Json>>, OpenAiError> {
    let items = validate::list(body, "", "items")?.unwrap_or_default();
    Ok(items.iter().cloned().map(Arc::new).collect())
}
