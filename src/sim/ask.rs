//! The provider without its sockets, for tests of the engine.

use std::sync::Arc;

use super::Tokens;
use super::clock::ManualClock;
use super::head::Head;
use super::options::Options;
use super::provider::{Provider, Ready, json};
use super::validate::Purpose;
use super::{Clock, Counting};

/// A provider with a manual clock, asked with one credential.
pub(crate) struct Asked {
    provider: Arc<Provider>,
    /// Its clock.
    pub clock: ManualClock,
    head: Head,
}

/// A request that the provider has read and not yet begun to answer.
pub(crate) struct Under {
    ready: Ready,
}

impl Under {
    /// What its usage will say.
    pub(crate) fn tokens(&self) -> Tokens {
        self.ready.answer.tokens
    }
}

impl Asked {
    pub(crate) fn new(counting: Counting) -> Self {
        let (clock, hand) = Clock::manual();
        Self {
            provider: Provider::new(Options {
                clock,
                counting,
                strict: false,
                ..Options::default()
            }),
            clock: hand,
            head: Head {
                scope: "key".into(),
                version: super::head::VERSION_2023.into(),
                betas: Vec::new(),
            },
        }
    }

    /// Now, in Unix milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        self.provider.options.clock.now_ms()
    }

    /// Sends a request; the cache is read now.
    pub(crate) fn ask(&self, body: &[u8]) -> Result<Under, String> {
        let body = json(body).map_err(|error| error.message)?;
        let ready = self
            .provider
            .answer(&self.head, &body, Purpose::Answer, None, self.now_ms());
        Ok(Under {
            ready: ready.map_err(|error| error.message)?,
        })
    }

    /// The answer begins; what was written can be read from now on.
    pub(crate) fn begin(&self, under: &mut Under) {
        self.provider.begin(&mut under.ready);
    }

    /// Forgets the whole cache.
    pub(crate) fn evict(&self) {
        self.provider.state().cache.clear();
    }
}
