//! The simulated provider: Anthropic Messages with its real caching rules, strict, on a real socket;
//! and OpenAI's formats beside it (see `openai`).
//!
//! Used by the demo, the tests and the benches. It is written from the provider's documentation and
//! shares no code with the engine, so that it can contradict it. What the model says is driven by
//! words in the user's text (see [`script`]), which works the same through a proxy.
//!
//! Not simulated on the Messages side: server-side tools, context editing, compaction, fallbacks, files; rate limits are
//! shown in headers and never enforced.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub mod agents;
mod answer;
#[cfg(test)]
pub(crate) mod ask;
mod batches;
mod body;
mod cache;
mod clock;
mod conversation;
#[cfg(test)]
pub(crate) mod desk;
mod diagnostics;
mod error;
mod failure;
mod head;
mod json;
mod markers;
mod models;
mod openai;
mod options;
mod prompt;
mod provider;
mod record;
pub mod script;
#[cfg(test)]
mod tests;
mod threads;
mod tools;
mod validate;
mod wire;
#[cfg(test)]
mod wire_tests;

pub use cache::{Counting, Tokens};
pub use clock::{Clock, ManualClock};
pub use openai::Tokens as OpenAiTokens;
pub use options::{Fault, Options};
pub use record::{End, Recorded};

/// A running simulated provider. Dropping it stops it.
#[derive(Debug)]
pub struct Sim {
    shared: Arc<wire::Shared>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Sim {
    /// Binds and starts serving on the current tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be bound, or outside of a runtime.
    pub fn start(options: Options) -> io::Result<Self> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let listener = std::net::TcpListener::bind(options.listen)?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(wire::Shared {
            stopped: stopped.clone(),
            recorder: record::Recorder::new(options.record_requests, options.record_bytes),
            fault: RwLock::new(options.fault.clone()),
            addr: listener.local_addr()?,
            provider: provider::Provider::new(options),
        });
        let task = runtime.spawn(wire::serve(listener, Arc::clone(&shared), stopped));
        Ok(Self { shared, stop, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.shared.addr
    }

    /// Its base URL, without a trailing slash.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.shared.addr)
    }

    /// What it recorded, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.recorder.all()
    }

    /// How many requests ever arrived.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.shared.recorder.seen()
    }

    /// Waits until `condition` holds for what it recorded. It waits for ever if it never does.
    pub async fn wait_for(&self, condition: impl FnMut(&[Recorded]) -> bool) -> Vec<Recorded> {
        self.shared.recorder.wait_for(condition).await
    }

    /// Forgets what it recorded.
    pub fn forget_requests(&self) {
        self.shared.recorder.clear();
    }

    /// Forgets the whole prompt cache of both sides, as a provider may at any time.
    pub fn evict_cache(&self) {
        let mut state = self.shared.provider.state();
        state.cache.clear();
        state.openai.cache.clear();
    }

    /// Forgets all held conversations and stored responses, as a provider may at any time.
    pub fn evict_threads(&self) {
        let mut state = self.shared.provider.state();
        state.threads.clear();
        state.openai.held.clear();
        state.openai.fingerprints.clear();
    }

    /// Changes the fault of all later answers.
    pub fn set_fault(&self, fault: Fault) {
        *self
            .shared
            .fault
            .write()
            .unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Stops accepting, ends all connections, and waits until that is done.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        // A panic of the accept loop has been reported already; there is nothing left to wait for.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
