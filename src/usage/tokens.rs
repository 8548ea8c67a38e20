//! Tokens in disjoint kinds.

/// Tokens of one model call, in kinds that never overlap. `None` is "unknown", never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to the provider's cache.
    pub uncached: Option<u64>,
    /// Input tokens read from the provider's cache.
    pub read: Option<u64>,
    /// Input tokens written with the five-minute lifetime.
    pub write_5m: Option<u64>,
    /// Input tokens written with the one-hour lifetime.
    pub write_1h: Option<u64>,
    /// Input tokens written with the thirty-minute lifetime. A provider has this pair of lifetimes
    /// or the one above.
    pub write_30m: Option<u64>,
    /// Input tokens written with the twelve-hour lifetime.
    pub write_12h: Option<u64>,
    /// Output tokens, reasoning included.
    pub output: Option<u64>,
    /// The part of `output` that was reasoning, where the provider tells.
    pub reasoning: Option<u64>,
    /// Server-side web searches, billed per request.
    pub web_searches: Option<u64>,
    /// The provider gave only the sum of the writes; the lifetime was taken from the request's markers.
    pub split_inferred: bool,
}

impl Usage {
    /// Tokens of the whole prompt: uncached + read + written. `None` unless every kind is known.
    #[must_use]
    pub fn prompt(&self) -> Option<u64> {
        self.uncached?
            .checked_add(self.read?)?
            .checked_add(self.written()?)
    }

    /// Tokens written, of all lifetimes. `None` unless those of a provider are known: five minutes
    /// and one hour, or thirty minutes and twelve hours.
    #[must_use]
    pub fn written(&self) -> Option<u64> {
        let minutes = sum(self.write_5m, self.write_1h);
        let hours = sum(self.write_30m, self.write_12h);
        match (minutes, hours) {
            (Some(one), Some(other)) => one.checked_add(other),
            (one, other) => one.or(other),
        }
    }

    /// Every kind of input, an unknown one as `None`.
    #[must_use]
    pub fn inputs(&self) -> [Option<u64>; 6] {
        [
            self.uncached,
            self.read,
            self.write_5m,
            self.write_1h,
            self.write_30m,
            self.write_12h,
        ]
    }

    /// `read / (read + write + uncached)`, `None` for an unknown or empty prompt.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let prompt = self.prompt()?;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people, not money")]
        (prompt > 0).then(|| self.read.unwrap_or(0) as f64 / prompt as f64)
    }
}

/// The sum of two kinds that are both known.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one?.checked_add(other?)
}

/// The provider's processing tier of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServiceTier {
    /// The ordinary tier, also when the provider says nothing.
    #[default]
    Standard,
    /// Committed capacity.
    Priority,
    /// Asynchronous batch: half of every rate.
    Batch,
    /// Slower and cheaper, where a provider has that.
    Flex,
    /// Faster than priority, where a provider has that.
    Ultrafast,
}

/// The provider's speed of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speed {
    /// The ordinary speed, also when the provider says nothing.
    #[default]
    Standard,
    /// The premium fast mode.
    Fast,
}

/// One internal step of an answer that is billed with its own model and tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Iteration {
    /// The provider's name of the step (`message`, `compaction`, ...).
    pub kind: String,
    /// The model of the step where it differs from the answer's.
    pub model: Option<String>,
    /// Its tokens.
    pub usage: Usage,
}

/// Everything in an answer that decides what it cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metered {
    /// The model that served the answer, as the provider named it.
    pub model: Option<String>,
    /// Tokens. Where `iterations` is not empty these are the sums over all of them.
    pub usage: Usage,
    /// Billed steps; empty when the answer was one step.
    pub iterations: Vec<Iteration>,
    /// Processing tier.
    pub tier: ServiceTier,
    /// Speed.
    pub speed: Speed,
    /// Where inference ran, as the provider named it (`us`, ...).
    pub geo: Option<String>,
}

/// A user's own price for a model; replaces what the price data says. Picodollars (1e-12 USD) per token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceOverride {
    /// The model id as the provider names it.
    pub model: String,
    /// Uncached input.
    pub input_pico: u64,
    /// Output.
    pub output_pico: u64,
    /// Cache read.
    pub read_pico: u64,
    /// Five-minute write.
    pub write_5m_pico: u64,
    /// One-hour write.
    pub write_1h_pico: u64,
    /// Smallest cacheable prefix in tokens, if the user knows it.
    pub min_cache_tokens: Option<u32>,
}
