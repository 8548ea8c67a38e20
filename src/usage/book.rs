//! The price book: which prices and facts hold for a model name, found once and remembered.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::bundled;
use super::money::Ratio;
use super::names;
use super::overlay::{self, Model, Overlay, Rules};
use super::sheet::{Prices, Sheet};
use super::tokens::PriceOverride;
use crate::bounded::Map;

/// Spellings that are remembered at most; when more are seen, all are forgotten and found again.
const MAX_REMEMBERED: usize = 2048;
/// Name of a user's price that stands for every model without a price of its own.
const FALLBACK: &str = "*";
/// How long bundled prices are taken as constant. They change on UTC days and half hours.
const WINDOW_MS: i64 = 60_000;
/// Start value of size estimates for tokenizers up to the 4.6 generation and for unknown models, in
/// thousandths of a byte per token. An assumption; never used for money.
const BYTES_PER_TOKEN_MILLI: u32 = 3_500;

/// Why no price book could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// A user's price names no model.
    #[error("a price in the configuration has an empty or overlong model name")]
    BadModel,
    /// Two of the user's prices are for one model.
    #[error("the configuration has two prices for model {0}; keep one")]
    Duplicate(String),
    /// The compiled-in price data is broken, which is a fault of this build.
    #[error("the built-in price data is broken, please report this: {0}")]
    Bundled(String),
    /// The compiled-in overlay is broken, which is a fault of this build.
    #[error("the built-in price overlay is broken, please report this: {0}")]
    Overlay(String),
}

/// Prices per token at the base tier, ordinary speed and tier, in picodollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Uncached input.
    pub input_pico: u64,
    /// Output.
    pub output_pico: u64,
    /// Cache read.
    pub read_pico: u64,
    /// Write with the shorter lifetime: five minutes, or thirty.
    pub write_5m_pico: u64,
    /// Write with the longer lifetime, one hour or twelve; the price of the shorter one where the data
    /// has no other.
    pub write_1h_pico: u64,
}

/// What is known about a model besides what a call costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFacts {
    /// The name in the price data. `None` for models without a price, so labels stay a bounded set.
    pub label: Option<Arc<str>>,
    /// Smallest prefix that the provider caches, in tokens.
    pub min_cache_tokens: Option<u32>,
    /// Base prices at the asked moment.
    pub rates: Option<Rates>,
    /// Start value of size estimates in thousandths of a byte per token: an assumption, to be replaced
    /// by what exact usage teaches, and never used for money.
    pub bytes_per_token_milli: u32,
}

/// Prices and facts of all known models: the bundled data, the overlay, and the user's own prices, the
/// later one winning. Sharing is cheap behind an `Arc`; all methods take `&self`.
pub struct PriceBook {
    overlay: Overlay,
    user: HashMap<String, PriceOverride>,
    fallback: Option<PriceOverride>,
    version: Arc<str>,
    user_version: Arc<str>,
    cards: RwLock<Cards>,
}

#[derive(Default)]
struct Cards {
    by_provider: Map<Box<str>, Map<Box<str>, Arc<Card>>>,
    count: usize,
}

/// What was found out about one spelling.
pub(super) struct Card {
    pub(super) label: Option<Arc<str>>,
    pub(super) rules: Rules,
    /// Multipliers and facts of the overlay.
    pub(super) model: Model,
    min_cache_tokens: Option<u32>,
    source: Source,
    window: RwLock<Option<Window>>,
}

enum Source {
    /// The user's own price.
    User(Arc<Sheet>),
    /// The user's price for models that nobody knows.
    Fallback(Arc<Sheet>),
    /// Dated overlay prices, and the bundled data before the first of them.
    Data {
        periods: Vec<(i64, Arc<Sheet>)>,
        bundled: Option<Bundled>,
    },
}

/// Where the bundled data has the model.
struct Bundled {
    provider: &'static str,
    spelling: String,
}

/// A sheet and the time for which it holds.
struct Window {
    number: i64,
    sheet: Option<Arc<Sheet>>,
}

/// Where a price came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Data,
    User,
    Fallback,
}

impl std::fmt::Debug for PriceBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PriceBook")
            .field("version", &self.version)
            .field("overrides", &self.user.len())
            .finish_non_exhaustive()
    }
}

impl PriceBook {
    /// Looks through the bundled data (a few milliseconds, once per process) and puts the overlay and the
    /// user's prices over it; what the data says of a provider is read when that is first asked for. A price for the model `*` is used for every model without any other.
    ///
    /// # Errors
    /// When a user's price names no model or a model twice, or this build's own data or overlay is broken.
    pub fn new(overrides: &[PriceOverride]) -> Result<Self, PriceError> {
        bundled::load().map_err(PriceError::Bundled)?;
        let overlay =
            Overlay::parse(overlay::BUNDLED).map_err(|e| PriceError::Overlay(e.to_string()))?;
        let mut user = HashMap::with_capacity(overrides.len());
        for price in overrides {
            let name = price.model.trim().to_ascii_lowercase();
            if name.is_empty() || name.len() > names::MAX_NAME {
                return Err(PriceError::BadModel);
            }
            if user.insert(name, price.clone()).is_some() {
                return Err(PriceError::Duplicate(price.model.clone()));
            }
        }
        let version = format!("{}+overlay-{}", bundled::VERSION, overlay.version);
        Ok(Self {
            user_version: format!("{version}+user").into(),
            version: version.into(),
            overlay,
            fallback: user.remove(FALLBACK),
            user,
            cards: RwLock::default(),
        })
    }

    /// Version of the price data, such as `genai-0.2.1+overlay-2026-11-29`. A price that used one of the
    /// user's own says so itself with `+user`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn version_of(&self, user: bool) -> Arc<str> {
        Arc::clone(if user {
            &self.user_version
        } else {
            &self.version
        })
    }

    /// What is known about `model` of `provider` (an id of the price data) at `at_ms` (UTC). Allocates
    /// nothing for a spelling that was asked for before.
    #[must_use]
    pub fn model(&self, provider: &str, model: &str, at_ms: i64) -> ModelFacts {
        let Some(card) = self.card(provider, model) else {
            return ModelFacts {
                label: None,
                min_cache_tokens: None,
                rates: None,
                bytes_per_token_milli: BYTES_PER_TOKEN_MILLI,
            };
        };
        ModelFacts {
            label: card.label.clone(),
            min_cache_tokens: card.min_cache_tokens,
            rates: (card.sheet(at_ms))
                .map(|sheet| rates(&sheet.base, card.write_long(&sheet.base))),
            bytes_per_token_milli: card
                .model
                .bytes_per_token_milli
                .unwrap_or(BYTES_PER_TOKEN_MILLI),
        }
    }

    /// What `model` of `provider` costs per token at `at_ms` (UTC) when its prompt is so many tokens
    /// long; some models have dearer tiers for long prompts. `None` without a known price.
    #[must_use]
    pub fn rates_for(&self, provider: &str, model: &str, prompt: u64, at_ms: i64) -> Option<Rates> {
        let card = self.card(provider, model)?;
        let sheet = card.sheet(at_ms)?;
        let prices = sheet.prices(prompt.into());
        Some(rates(prices, card.write_long(prices)))
    }

    /// The card of a spelling. `None` only for what cannot be a model's name.
    pub(super) fn card(&self, provider: &str, model: &str) -> Option<Arc<Card>> {
        if model.trim().is_empty()
            || model.len() > names::MAX_NAME
            || provider.len() > names::MAX_NAME
        {
            return None;
        }
        {
            let cards = self.cards.read().unwrap_or_else(PoisonError::into_inner);
            let known = cards.by_provider.get(provider).and_then(|m| m.get(model));
            if let Some(card) = known {
                return Some(Arc::clone(card));
            }
        }
        // Found outside the lock: it takes up to a millisecond, and finding it twice does no harm.
        let card = Arc::new(self.find(provider, model));
        let mut cards = self.cards.write().unwrap_or_else(PoisonError::into_inner);
        if cards.count >= MAX_REMEMBERED {
            *cards = Cards::default();
        }
        let of_provider = cards.by_provider.entry(provider.into()).or_default();
        if of_provider
            .insert(model.into(), Arc::clone(&card))
            .is_none()
        {
            cards.count += 1;
        }
        Some(card)
    }

    fn find(&self, provider: &str, name: &str) -> Card {
        let spellings = names::spellings(name);
        let bundled_provider = bundled::provider(provider);
        let provider = bundled_provider.unwrap_or(provider);
        let found = spellings
            .iter()
            .find_map(|s| self.overlay.find(provider, s));
        let (model, rules) =
            found.unwrap_or_else(|| (Model::default(), self.overlay.rules(provider)));

        let user = spellings.iter().find_map(|s| self.user.get(s));
        if let Some(price) = user {
            return Card {
                label: Some(price.model.trim().into()),
                min_cache_tokens: price.min_cache_tokens.or(model.min_cache_tokens),
                source: Source::User(Arc::new(user_sheet(price))),
                window: RwLock::default(),
                rules,
                model,
            };
        }
        let in_bundled = bundled_provider.and_then(|provider| {
            spellings
                .into_iter()
                .find_map(|s| Some((bundled::model(provider, &s, 0)?, s)))
                .map(|(id, spelling)| (id, Bundled { provider, spelling }))
        });
        let periods: Vec<_> = model
            .periods
            .iter()
            .map(|period| (period.from_ms, Arc::new(period.sheet.clone())))
            .collect();
        let id = match &in_bundled {
            Some((id, _)) => Some(id.as_str()),
            None if !periods.is_empty() => Some(model.id.as_str()),
            None => None,
        };
        let label = id.map(Arc::from);
        let fallback = self.fallback.as_ref().filter(|_| label.is_none());
        let source = match fallback {
            Some(price) => Source::Fallback(Arc::new(user_sheet(price))),
            None => Source::Data {
                periods,
                bundled: in_bundled.map(|(_, bundled)| bundled),
            },
        };
        Card {
            label,
            min_cache_tokens: model.min_cache_tokens,
            source,
            window: RwLock::default(),
            rules,
            model,
        }
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.cards.read().unwrap().count
    }

    /// Every model id that the bundled data has for `provider`.
    #[cfg(test)]
    pub(super) fn known_ids(provider: &str) -> Vec<String> {
        let found = genai_prices::Calculator::bundled().find_provider(Some(provider), None);
        found
            .unwrap()
            .unwrap()
            .models()
            .map(|m| m.id().to_owned())
            .collect()
    }
}

impl Card {
    pub(super) fn origin(&self) -> Origin {
        match self.source {
            Source::User(_) => Origin::User,
            Source::Fallback(_) => Origin::Fallback,
            Source::Data { .. } => Origin::Data,
        }
    }

    /// The prices that hold at `at_ms`, if any are known.
    pub(super) fn sheet(&self, at_ms: i64) -> Option<Arc<Sheet>> {
        let (periods, bundled) = match &self.source {
            Source::User(sheet) | Source::Fallback(sheet) => return Some(Arc::clone(sheet)),
            Source::Data { periods, bundled } => (periods, bundled.as_ref()),
        };
        let started = periods.iter().rev().find(|(from, _)| *from <= at_ms);
        if let Some((_, sheet)) = started {
            return Some(Arc::clone(sheet));
        }
        let Bundled { provider, spelling } = bundled?;
        let number = at_ms.div_euclid(WINDOW_MS);
        {
            let window = self.window.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(window) = window.as_ref().filter(|w| w.number == number) {
                return window.sheet.clone();
            }
        }
        let sheet = bundled::sheet(provider, spelling, number.saturating_mul(WINDOW_MS));
        let sheet = sheet.map(Arc::new);
        *self.window.write().unwrap_or_else(PoisonError::into_inner) = Some(Window {
            number,
            sheet: sheet.clone(),
        });
        sheet
    }

    /// The multiplier of the fast mode at `at_ms`.
    pub(super) fn fast(&self, at_ms: i64) -> Option<Ratio> {
        let offered = self.model.fast_until_ms.is_none_or(|until| at_ms < until);
        self.model.fast.filter(|_| offered)
    }

    /// What a write of the longer lifetime costs under these prices: by a price of its own, or by the
    /// provider's rule. A free write is free for any time.
    pub(super) fn write_long(&self, prices: &Prices) -> Option<u64> {
        let by_rule = || prices.write.checked_mul(self.rules.write_long?);
        prices.write_long.or_else(by_rule)
    }

    /// The multiplier of the place where inference ran.
    pub(super) fn geo(&self, place: &str) -> Option<Ratio> {
        let found = self
            .model
            .geo
            .iter()
            .chain(&self.rules.geo)
            .find(|(known, _)| known.eq_ignore_ascii_case(place));
        found.map(|(_, ratio)| *ratio)
    }
}

fn user_sheet(price: &PriceOverride) -> Sheet {
    Sheet {
        base: Prices {
            input: price.input_pico,
            output: price.output_pico,
            read: price.read_pico,
            write: price.write_5m_pico,
            write_long: Some(price.write_1h_pico),
        },
        tiers: Vec::new(),
        web_search: None,
    }
}

fn rates(prices: &Prices, write_long: Option<u64>) -> Rates {
    Rates {
        input_pico: prices.input,
        output_pico: prices.output,
        read_pico: prices.read,
        write_5m_pico: prices.write,
        write_1h_pico: write_long.unwrap_or(prices.write),
    }
}
