//! A simulated provider without sockets, for tests that send it many requests.

use std::sync::Arc;

use super::clock::{Clock, ManualClock};
use super::head::{Head, VERSION_2023};
use super::json::Json;
use super::options::Options;
use super::provider::Provider;
use super::validate::Purpose;
use super::{Counting, Tokens};

/// One credential's desk at a provider of its own.
pub struct Desk {
    provider: Arc<Provider>,
    clock: ManualClock,
    head: Head,
}

impl Desk {
    /// With an empty cache. `strict` also checks fields and conversations, not only markers.
    pub fn new(counting: Counting, strict: bool) -> Self {
        let (clock, hand) = Clock::manual();
        let options = Options {
            clock,
            counting,
            strict,
            record_requests: 0,
            ..Options::default()
        };
        Self {
            provider: Provider::new(options),
            clock: hand,
            head: Head {
                scope: "key".into(),
                version: VERSION_2023.into(),
                betas: Vec::new(),
            },
        }
    }

    /// Sends a request whose answer begins and ends at once: its input tokens, or the refusal.
    pub fn send(&self, body: &[u8]) -> Result<Tokens, String> {
        let body = Json::parse(body).map_err(|error| error.to_string())?;
        let now = self.provider.options.clock.now_ms();
        let ready = self
            .provider
            .answer(&self.head, &body, Purpose::Answer, None, now);
        let mut ready = ready.map_err(|error| error.message)?;
        self.provider.begin(&mut ready);
        Ok(ready.answer.tokens)
    }

    /// Time passes.
    pub fn wait(&self, ms: u64) {
        self.clock.advance(ms);
    }
}
