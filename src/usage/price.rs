//! What an answer cost.

use std::sync::Arc;

use super::book::{Card, Origin, PriceBook};
use super::money::{Amount, Ratio};
use super::sheet::Prices;
use super::tokens::{Iteration, Metered, ServiceTier, Speed, Usage};

/// No model name was known, or no price data knows it.
pub const UNKNOWN_MODEL: &str = "unknown_model";
/// A kind of token that decides the price was not reported.
pub const UNKNOWN_USAGE: &str = "unknown_usage";
/// The fast mode was used and has no known price for this model at this time.
pub const NO_FAST_PRICE: &str = "no_fast_price";
/// The service tier has no known price for this model.
pub const NO_TIER_PRICE: &str = "no_tier_price";
/// Writes of the longer lifetime were made and have no known price for this model.
pub const NO_WRITE_LONG_PRICE: &str = "no_write_long_price";
/// Web searches were made and have no known price.
pub const NO_WEB_SEARCH_PRICE: &str = "no_web_search_price";
/// The cost does not fit 64 bits of picodollars (18 million dollars).
pub const COST_OVERFLOW: &str = "cost_overflow";

/// A note: no answering model was named, so the price is that of the model asked for.
pub const REQUESTED_MODEL: &str = "requested_model_priced";
/// A note: the user's price for unknown models was used.
pub const FALLBACK_PRICE: &str = "fallback_price";
/// A note: inference ran in a named place that has no price of its own.
pub const GEO_AT_BASE: &str = "geo_at_base_price";

/// The cost of one answer, or why there is none. Unknown is never zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Priced {
    /// The cost is known exactly.
    Known {
        /// Cost in picodollars, rounded up once at the end.
        pico: u64,
        /// What the same tokens would have cost had all of the prompt been uncached input.
        no_cache_pico: u64,
        /// Version of the prices.
        version: Arc<str>,
        /// Stable words about how the price came about.
        notes: Vec<&'static str>,
    },
    /// There is no price.
    Unpriced {
        /// A stable word, one of the constants of this module.
        reason: &'static str,
        /// What the part that is known costs at least, in picodollars, where anything can be said.
        lower_bound_pico: Option<u64>,
    },
}

impl Priced {
    /// The cost, if it is known.
    #[must_use]
    pub fn pico(&self) -> Option<u64> {
        match self {
            Self::Known { pico, .. } => Some(*pico),
            Self::Unpriced { .. } => None,
        }
    }
}

/// The tokens of an answer: all of them, and of each billed step where there were several.
struct Steps<'a> {
    usage: &'a Usage,
    iterations: &'a [Iteration],
}

/// Running sums over the steps of an answer.
struct Bill {
    cost: Amount,
    /// `None` once it left 128 bits, which does not make the cost unknown.
    no_cache: Option<Amount>,
    /// Something of the answer has a known price.
    any: bool,
    reason: Option<&'static str>,
    user: bool,
    notes: Vec<&'static str>,
}

/// The sums left 128 bits.
struct Overflow;

impl PriceBook {
    /// Prices an answer of `provider` (an id of the price data) that was requested at `at_ms` (UTC).
    ///
    /// The model that served decides; `requested_model` only when the answer named none. With
    /// iterations, each is priced with its own model and prompt length and the cost is their sum.
    #[must_use]
    pub fn price(
        &self,
        provider: &str,
        metered: &Metered,
        requested_model: Option<&str>,
        at_ms: i64,
    ) -> Priced {
        let steps = Steps {
            usage: &metered.usage,
            iterations: &metered.iterations,
        };
        self.price_steps(provider, metered, &steps, requested_model, at_ms)
    }

    /// The same had the answer been one step with these tokens.
    #[must_use]
    pub fn price_as(
        &self,
        provider: &str,
        metered: &Metered,
        usage: &Usage,
        requested_model: Option<&str>,
        at_ms: i64,
    ) -> Priced {
        let steps = Steps {
            usage,
            iterations: &[],
        };
        self.price_steps(provider, metered, &steps, requested_model, at_ms)
    }

    fn price_steps(
        &self,
        provider: &str,
        metered: &Metered,
        steps: &Steps<'_>,
        requested_model: Option<&str>,
        at_ms: i64,
    ) -> Priced {
        let mut bill = Bill {
            cost: Amount::ZERO,
            no_cache: Some(Amount::ZERO),
            any: false,
            reason: None,
            user: false,
            notes: Vec::new(),
        };
        let served = metered
            .model
            .as_deref()
            .filter(|name| !name.trim().is_empty());
        if served.is_none() && requested_model.is_some() {
            bill.note(REQUESTED_MODEL);
        }
        let main = served.or(requested_model);
        match self.add_all(&mut bill, provider, metered, steps, main, at_ms) {
            Ok(()) => bill.priced(self),
            Err(Overflow) => overflow(),
        }
    }

    fn add_all(
        &self,
        bill: &mut Bill,
        provider: &str,
        metered: &Metered,
        steps: &Steps<'_>,
        main: Option<&str>,
        at_ms: i64,
    ) -> Result<(), Overflow> {
        let card = |model: Option<&str>| self.card(provider, model?);
        let main_card = card(main);
        if steps.iterations.is_empty() {
            bill.add_step(main_card.as_deref(), steps.usage, metered, at_ms)?;
        }
        for step in steps.iterations {
            let own = step.model.as_deref().filter(|name| !name.trim().is_empty());
            let own_card = own.and_then(|own| card(Some(own)));
            let card = if own.is_some() { &own_card } else { &main_card };
            bill.add_step(card.as_deref(), &step.usage, metered, at_ms)?;
        }
        bill.add_searches(main_card.as_deref(), steps.usage, at_ms)
    }
}

impl Bill {
    fn note(&mut self, note: &'static str) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn unpriced(&mut self, reason: &'static str) {
        self.reason.get_or_insert(reason);
    }

    fn add_step(
        &mut self,
        card: Option<&Card>,
        usage: &Usage,
        metered: &Metered,
        at_ms: i64,
    ) -> Result<(), Overflow> {
        let Some((card, sheet)) = card.and_then(|card| Some((card, card.sheet(at_ms)?))) else {
            self.unpriced(UNKNOWN_MODEL);
            return Ok(());
        };
        match card.origin() {
            Origin::Data => {}
            Origin::User => self.user = true,
            Origin::Fallback => {
                self.user = true;
                self.note(FALLBACK_PRICE);
            }
        }
        let known = usage.uncached.is_some() && usage.read.is_some() && usage.written().is_some();
        if !known || usage.output.is_none() {
            self.unpriced(UNKNOWN_USAGE);
        }
        let input = usage.inputs();
        if input.iter().all(Option::is_none) && usage.output.is_none() {
            return Ok(());
        }
        // Of an incomplete usage the known part is summed: a lower bound.
        let prompt = input.iter().flatten().map(|n| u128::from(*n)).sum();
        let prices = sheet.prices(prompt);
        let (cost, no_cache) = self.sums(prices, card, usage)?;
        let Some(factors) = self.factors(card, metered, at_ms) else {
            return Ok(());
        };
        let scaled = |amount: Amount| factors.iter().try_fold(amount, |sum, f| sum.times(*f));
        let added = |total: Amount, amount| scaled(amount).and_then(|amount| total.add(amount));
        self.cost = added(self.cost, cost).ok_or(Overflow)?;
        self.no_cache = self.no_cache.and_then(|total| added(total, no_cache?));
        self.any = true;
        Ok(())
    }

    /// The cost of the known tokens at plain prices, with and without a cache.
    fn sums(
        &mut self,
        prices: &Prices,
        card: &Card,
        usage: &Usage,
    ) -> Result<(Amount, Option<Amount>), Overflow> {
        let long = usage
            .write_1h
            .unwrap_or(0)
            .max(usage.write_12h.unwrap_or(0));
        let price = card.write_long(prices);
        if long > 0 && price.is_none() {
            self.unpriced(NO_WRITE_LONG_PRICE);
        }
        // Never cheaper than the short write, so this stays a lower bound where it is unknown.
        let write_long = price.unwrap_or(prices.write);
        let input = [
            (usage.uncached, prices.input),
            (usage.read, prices.read),
            (usage.write_5m, prices.write),
            (usage.write_1h, write_long),
            (usage.write_30m, prices.write),
            (usage.write_12h, write_long),
        ];
        let output = Amount::of(usage.output.unwrap_or(0), prices.output);
        let (mut cost, mut no_cache) = (output, Some(output));
        for (tokens, price) in input {
            let tokens = tokens.unwrap_or(0);
            cost = cost.add(Amount::of(tokens, price)).ok_or(Overflow)?;
            no_cache = no_cache.and_then(|sum| sum.add(Amount::of(tokens, prices.input)));
        }
        Ok((cost, no_cache))
    }

    /// The multipliers of all token prices. `None` when not even a lower bound can be named.
    fn factors(&mut self, card: &Card, metered: &Metered, at_ms: i64) -> Option<[Ratio; 3]> {
        let tier = match metered.tier {
            ServiceTier::Standard => Some(Ratio::ONE),
            ServiceTier::Priority => card.model.priority.or(card.rules.priority),
            ServiceTier::Batch => card.rules.batch,
            ServiceTier::Flex => card.rules.flex,
            ServiceTier::Ultrafast => card.rules.ultrafast,
        };
        let speed = match metered.speed {
            Speed::Standard => Some(Ratio::ONE),
            Speed::Fast => card.fast(at_ms),
        };
        let geo = metered.geo.as_deref().map(|place| card.geo(place));
        if let Some(None) = geo {
            self.note(GEO_AT_BASE);
        }
        if speed.is_none() {
            self.unpriced(NO_FAST_PRICE);
        }
        if tier.is_none() {
            self.unpriced(NO_TIER_PRICE);
        }
        // Fast is never cheaper than the ordinary speed; an unknown tier may be.
        Some([
            tier?,
            speed.unwrap_or(Ratio::ONE),
            geo.flatten().unwrap_or(Ratio::ONE),
        ])
    }

    /// Searches are billed per piece, outside all multipliers. A provider that reports none made none.
    fn add_searches(
        &mut self,
        card: Option<&Card>,
        usage: &Usage,
        at_ms: i64,
    ) -> Result<(), Overflow> {
        let searches = usage.web_searches.unwrap_or(0);
        let Some(card) = card.filter(|_| searches > 0) else {
            return Ok(());
        };
        let fee = card
            .rules
            .web_search
            .or_else(|| card.sheet(at_ms)?.web_search);
        let Some(fee) = fee else {
            self.unpriced(NO_WEB_SEARCH_PRICE);
            return Ok(());
        };
        let fee = Amount::of(searches, fee);
        self.cost = self.cost.add(fee).ok_or(Overflow)?;
        self.no_cache = self.no_cache.and_then(|total| total.add(fee));
        self.any = true;
        Ok(())
    }

    fn priced(self, book: &PriceBook) -> Priced {
        let Some(pico) = self.cost.ceil() else {
            return overflow();
        };
        match (self.reason, self.no_cache.and_then(Amount::ceil)) {
            (Some(reason), _) => Priced::Unpriced {
                reason,
                lower_bound_pico: self.any.then_some(pico),
            },
            (None, None) => Priced::Unpriced {
                reason: COST_OVERFLOW,
                lower_bound_pico: Some(pico),
            },
            (None, Some(no_cache_pico)) => Priced::Known {
                pico,
                no_cache_pico,
                version: book.version_of(self.user),
                notes: self.notes,
            },
        }
    }
}

/// More than any account holds; the largest number says so to every cap.
fn overflow() -> Priced {
    Priced::Unpriced {
        reason: COST_OVERFLOW,
        lower_bound_pico: Some(u64::MAX),
    }
}
