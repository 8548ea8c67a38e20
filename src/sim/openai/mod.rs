//! The simulated provider's second voice: OpenAI's Chat Completions and Responses, the WebSocket
//! mode included.
//!
//! Written from the SDK types of Nov 2026, without a line of the engine. The words of
//! [`script`](super::script) drive it as they drive the Messages side; their failures map thus:
//!
//! - a status is that status, 529 is 503; `429quota` is an exhausted quota
//! - `sse_overloaded`, `sse_rate_limit`, `sse_invalid`: `response.failed`; Chat: an error chunk
//! - `sse_api_error`, `sse_permission`: an `error` event; Chat: an error chunk
//! - `cut`, `drop`, `stall` and their `_tool` forms: as they say, inside the stream
//!
//! Where the documents leave a choice, it takes the one that promises a client less: an entry of
//! gpt-5.6 and later lives from its write on and no read extends it; a request's implicit breakpoint
//! is the end of its input.
//!
//! Not simulated: hosted tools, steering, audio, `prompt` templates, `context_management`, the removal
//! of earlier reasoning from the prompt.

mod answer;
mod cache;
mod chat;
mod completion;
mod diagnostics;
mod error;
mod events;
mod held;
mod http;
mod items;
mod models;
mod prompt;
mod provider;
mod request;
mod responses;
mod seal;
mod side;
mod socket;
#[cfg(test)]
mod tests;
mod told;
mod tools;
mod validate;

pub use cache::Tokens;
pub use error::OpenAiError;
pub use http::speaks;
pub use socket::wants_upgrade;

/// What the provider remembers of its OpenAI side.
#[derive(Debug, Default)]
pub struct State {
    /// The prompt cache.
    pub cache: cache::Cache,
    /// Stored responses and conversations.
    pub held: held::Held,
    /// Fingerprints for diagnostics.
    pub fingerprints: diagnostics::Fingerprints,
}
