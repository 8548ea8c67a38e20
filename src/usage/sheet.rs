//! A price sheet: what one model costs at one moment.

/// Picodollars per token of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prices {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) read: u64,
    /// With the shorter of the provider's lifetimes.
    pub(super) write: u64,
    /// With the longer one. `None` where no price of its own is known.
    pub(super) write_long: Option<u64>,
}

/// Prices of the whole request when its prompt is longer than `over` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tier {
    pub(super) over: u64,
    pub(super) prices: Prices,
}

/// Base prices, tiers (shortest first) and the fee of a web search in picodollars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sheet {
    pub(super) base: Prices,
    pub(super) tiers: Vec<Tier>,
    pub(super) web_search: Option<u64>,
}

impl Sheet {
    /// The prices of a request with `prompt` tokens in all.
    pub(super) fn prices(&self, prompt: u128) -> &Prices {
        self.tiers
            .iter()
            .rev()
            .find(|tier| prompt > u128::from(tier.over))
            .map_or(&self.base, |tier| &tier.prices)
    }
}
