//! The overlay file: what is typed there, checked and turned into integers once.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use toml::Spanned;

use super::money::{self, DecimalError, Ratio};
use super::names;
use super::sheet::{Prices, Sheet, Tier};

/// The overlay compiled into this build.
pub(super) const BUNDLED: &str = include_str!("../../config/prices.toml");

/// Why an overlay was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum OverlayError {
    #[error("{0}")]
    Syntax(String),
    #[error("line {line}: {text} {error}")]
    Number {
        line: usize,
        text: String,
        error: DecimalError,
    },
    #[error("{0}")]
    Meaning(String),
}

/// A checked overlay.
#[derive(Debug)]
pub(super) struct Overlay {
    pub(super) version: String,
    providers: HashMap<String, Provider>,
}

/// What holds for all models of a provider.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    pub(super) batch: Option<Ratio>,
    pub(super) priority: Option<Ratio>,
    pub(super) flex: Option<Ratio>,
    pub(super) ultrafast: Option<Ratio>,
    /// What a write of the longer lifetime costs, as a multiple of the shorter one's, for models
    /// without a price of their own for it.
    pub(super) write_long: Option<u64>,
    /// Picodollars per web search.
    pub(super) web_search: Option<u64>,
    /// Multipliers by place, for models that do not say otherwise.
    pub(super) geo: Vec<(String, Ratio)>,
}

#[derive(Debug, Default)]
struct Provider {
    rules: Rules,
    inherits: Option<String>,
    inherit_prices: bool,
    models: Vec<Model>,
    /// By comparable name (see [`names::dashed`]), aliases included.
    by_name: HashMap<String, usize>,
}

/// What the overlay knows about one model.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) id: String,
    pub(super) min_cache_tokens: Option<u32>,
    pub(super) bytes_per_token_milli: Option<u32>,
    pub(super) fast: Option<Ratio>,
    /// First millisecond without the fast mode.
    pub(super) fast_until_ms: Option<i64>,
    pub(super) geo: Vec<(String, Ratio)>,
    pub(super) priority: Option<Ratio>,
    /// Oldest first.
    pub(super) periods: Vec<Period>,
}

/// Prices from some moment on.
#[derive(Debug, Clone)]
pub(super) struct Period {
    pub(super) from_ms: i64,
    pub(super) sheet: Sheet,
}

impl Overlay {
    pub(super) fn parse(text: &str) -> Result<Self, OverlayError> {
        let typed: TypedOverlay =
            toml::from_str(text).map_err(|e| OverlayError::Syntax(e.to_string()))?;
        let mut providers = HashMap::new();
        for (id, provider) in typed.provider {
            providers.insert(id, provider.checked(text)?);
        }
        for (id, provider) in &providers {
            // One step only, so that no circle can exist.
            let parent = provider.inherits.as_deref();
            let deep = |parent: &Provider| parent.inherits.is_some();
            if parent.is_some_and(|parent| providers.get(parent).is_none_or(deep)) {
                let what = format!(
                    "provider {id} inherits from a provider that is absent or inherits itself"
                );
                return Err(OverlayError::Meaning(what));
            }
        }
        Ok(Self {
            version: typed.version,
            providers,
        })
    }

    /// What holds for `provider` whatever the model.
    pub(super) fn rules(&self, provider: &str) -> Rules {
        let own = self.providers.get(provider);
        own.map(|own| own.rules.clone()).unwrap_or_default()
    }

    /// The model of `provider` that goes by `spelling`, with the rules that hold for it. A provider that
    /// inherits no prices inherits only what is not about money.
    pub(super) fn find(&self, provider: &str, spelling: &str) -> Option<(Model, Rules)> {
        let own = self.providers.get(provider)?;
        let name = names::dashed(spelling);
        let find = |p: &'_ Provider| {
            p.by_name
                .get(&name)
                .and_then(|at| p.models.get(*at).cloned())
        };
        if let Some(model) = find(own) {
            return Some((model, own.rules.clone()));
        }
        let parent = self.parent(own)?;
        let model = find(parent)?;
        if own.inherit_prices {
            let rules = Rules {
                batch: own.rules.batch.or(parent.rules.batch),
                priority: own.rules.priority.or(parent.rules.priority),
                flex: own.rules.flex.or(parent.rules.flex),
                ultrafast: own.rules.ultrafast.or(parent.rules.ultrafast),
                write_long: own.rules.write_long.or(parent.rules.write_long),
                web_search: own.rules.web_search.or(parent.rules.web_search),
                geo: [&own.rules.geo[..], &parent.rules.geo[..]].concat(),
            };
            return Some((model, rules));
        }
        let facts = Model {
            id: model.id,
            min_cache_tokens: model.min_cache_tokens,
            bytes_per_token_milli: model.bytes_per_token_milli,
            ..Model::default()
        };
        Some((facts, own.rules.clone()))
    }

    fn parent(&self, provider: &Provider) -> Option<&Provider> {
        self.providers.get(provider.inherits.as_deref()?)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedOverlay {
    version: String,
    provider: BTreeMap<String, TypedProvider>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedProvider {
    batch: Option<Number>,
    priority: Option<Number>,
    flex: Option<Number>,
    ultrafast: Option<Number>,
    write_long: Option<u64>,
    web_search: Option<Number>,
    #[serde(default)]
    geo: BTreeMap<String, Number>,
    inherits: Option<String>,
    #[serde(default = "yes")]
    inherit_prices: bool,
    #[serde(default)]
    model: Vec<TypedModel>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedModel {
    id: String,
    #[serde(default)]
    aliases: Vec<String>,
    min_cache_tokens: Option<u32>,
    bytes_per_token: Option<Number>,
    fast: Option<Number>,
    fast_until: Option<String>,
    #[serde(default)]
    geo: BTreeMap<String, Number>,
    priority: Option<Number>,
    #[serde(default)]
    price: Vec<TypedPrice>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedPrice {
    from: Option<String>,
    input: Number,
    output: Number,
    read: Number,
    #[serde(alias = "write_30m")]
    write_5m: Number,
    #[serde(alias = "write_12h")]
    write_1h: Option<Number>,
    #[serde(default)]
    tier: Vec<TypedTier>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypedTier {
    over: u64,
    input: Number,
    output: Number,
    read: Number,
    #[serde(alias = "write_30m")]
    write_5m: Number,
    #[serde(alias = "write_12h")]
    write_1h: Option<Number>,
}

/// A decimal whose text is read from the file itself, since a parsed float is no longer what was typed.
#[derive(Deserialize)]
#[serde(transparent)]
struct Number(Spanned<toml::Value>);

impl Number {
    fn read<T>(
        &self,
        file: &str,
        parse: impl FnOnce(&str) -> Result<T, DecimalError>,
    ) -> Result<T, OverlayError> {
        let span = self.0.span();
        let text = match self.0.get_ref() {
            toml::Value::String(text) => text.clone(),
            _ => file.get(span.clone()).unwrap_or_default().replace('_', ""),
        };
        parse(&text).map_err(|error| OverlayError::Number {
            line: file
                .bytes()
                .take(span.start)
                .filter(|b| *b == b'\n')
                .count()
                + 1,
            text,
            error,
        })
    }

    fn ratio(number: Option<&Self>, file: &str) -> Result<Option<Ratio>, OverlayError> {
        number.map(|n| n.read(file, Ratio::parse)).transpose()
    }

    fn pico(&self, file: &str) -> Result<u64, OverlayError> {
        self.read(file, money::pico_from_decimal_usd_per_mtok)
    }
}

impl TypedProvider {
    fn checked(self, file: &str) -> Result<Provider, OverlayError> {
        let mut provider = Provider {
            rules: Rules {
                batch: Number::ratio(self.batch.as_ref(), file)?,
                priority: Number::ratio(self.priority.as_ref(), file)?,
                flex: Number::ratio(self.flex.as_ref(), file)?,
                ultrafast: Number::ratio(self.ultrafast.as_ref(), file)?,
                write_long: self.write_long,
                web_search: self
                    .web_search
                    .map(|n| n.read(file, money::pico_from_decimal_usd_per_thousand))
                    .transpose()?,
                geo: places(self.geo, file)?,
            },
            inherits: self.inherits,
            inherit_prices: self.inherit_prices,
            ..Provider::default()
        };
        for typed in self.model {
            let names: Vec<String> = std::iter::once(&typed.id)
                .chain(&typed.aliases)
                .map(|name| names::dashed(&name.to_ascii_lowercase()))
                .collect();
            for name in names {
                if provider
                    .by_name
                    .insert(name, provider.models.len())
                    .is_some()
                {
                    let what = format!("model {} shares a name with another model", typed.id);
                    return Err(OverlayError::Meaning(what));
                }
            }
            provider.models.push(typed.checked(file)?);
        }
        Ok(provider)
    }
}

impl TypedModel {
    fn checked(self, file: &str) -> Result<Model, OverlayError> {
        let mut periods = Vec::with_capacity(self.price.len());
        for price in &self.price {
            periods.push(price.checked(file)?);
        }
        if !periods.is_sorted_by(|a: &Period, b| a.from_ms < b.from_ms) {
            let what = format!(
                "prices of model {} do not stand in the order of their dates",
                self.id
            );
            return Err(OverlayError::Meaning(what));
        }
        let milli = |text: &str| {
            // Thousandths are the scale of "USD per million" without its last three places.
            let scaled = money::pico_from_decimal_usd_per_mtok(text)? / 1000;
            u32::try_from(scaled).map_err(|_| DecimalError::TooLarge)
        };
        Ok(Model {
            fast: Number::ratio(self.fast.as_ref(), file)?,
            fast_until_ms: self.fast_until.as_deref().map(midnight_ms).transpose()?,
            priority: Number::ratio(self.priority.as_ref(), file)?,
            min_cache_tokens: self.min_cache_tokens,
            bytes_per_token_milli: self
                .bytes_per_token
                .map(|n| n.read(file, milli))
                .transpose()?,
            geo: places(self.geo, file)?,
            id: self.id,
            periods,
        })
    }
}

impl TypedPrice {
    fn checked(&self, file: &str) -> Result<Period, OverlayError> {
        let prices =
            |input: &Number, output: &Number, read: &Number, w5: &Number, w1: Option<&Number>| {
                Ok::<_, OverlayError>(Prices {
                    input: input.pico(file)?,
                    output: output.pico(file)?,
                    read: read.pico(file)?,
                    write: w5.pico(file)?,
                    write_long: w1.map(|n| n.pico(file)).transpose()?,
                })
            };
        let mut tiers = Vec::with_capacity(self.tier.len());
        for tier in &self.tier {
            tiers.push(Tier {
                over: tier.over,
                prices: prices(
                    &tier.input,
                    &tier.output,
                    &tier.read,
                    &tier.write_5m,
                    tier.write_1h.as_ref(),
                )?,
            });
        }
        tiers.sort_by_key(|tier| tier.over);
        Ok(Period {
            from_ms: self.from.as_deref().map_or(Ok(i64::MIN), midnight_ms)?,
            sheet: Sheet {
                base: prices(
                    &self.input,
                    &self.output,
                    &self.read,
                    &self.write_5m,
                    self.write_1h.as_ref(),
                )?,
                tiers,
                web_search: None,
            },
        })
    }
}

fn places(
    typed: BTreeMap<String, Number>,
    file: &str,
) -> Result<Vec<(String, Ratio)>, OverlayError> {
    let read = |(place, number): (String, Number)| Ok((place, number.read(file, Ratio::parse)?));
    typed.into_iter().map(read).collect()
}

/// The first millisecond (UTC) of a day written `YYYY-MM-DD`.
fn midnight_ms(day: &str) -> Result<i64, OverlayError> {
    let date: jiff::civil::Date = day
        .parse()
        .map_err(|e| OverlayError::Meaning(format!("{day} is not a day: {e}")))?;
    date.to_zoned(jiff::tz::TimeZone::UTC)
        .map(|zoned| zoned.timestamp().as_millisecond())
        .map_err(|e| OverlayError::Meaning(format!("{day} is out of range: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(price: &str) -> String {
        format!("version = \"t\"\n[[provider.p.model]]\nid = \"m\"\n{price}")
    }

    #[test]
    fn numbers_are_read_as_they_are_typed() {
        // 0.1 + 0.2 style values and 17-digit texts would not survive a float.
        let text = one(
            "[[provider.p.model.price]]\ninput = 1_000.000001\noutput = \"0.30\"\nread = 0.01\nwrite_5m = 3\n",
        );
        let overlay = Overlay::parse(&text).unwrap();
        let prices = &overlay.find("p", "m").unwrap().0.periods[0].sheet.base;
        assert_eq!(prices.input, 1_000_000_001);
        assert_eq!(
            (prices.output, prices.read, prices.write),
            (300_000, 10_000, 3_000_000)
        );
        assert_eq!(prices.write_long, None, "absent is unknown, not zero");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let too_fine = one(
            "[[provider.p.model.price]]\ninput = 0.0000001\noutput = 1\nread = 1\nwrite_5m = 1\n",
        );
        let error = Overlay::parse(&too_fine).unwrap_err().to_string();
        assert!(
            error.contains("line 5: 0.0000001 has more than 6"),
            "{error}"
        );
        for (text, part) in [
            (one("max_tokens = 1\n"), "max_tokens"),
            (one("fast = -2\n"), "line 4: -2 is not a plain decimal"),
            (
                one("fast_until = \"2026-13-01\"\n"),
                "2026-13-01 is not a day",
            ),
            (one("[[provider.p.model]]\nid = \"M\"\n"), "shares a name"),
            (
                "version = \"t\"\n[provider.p]\ninherits = \"q\"\n".into(),
                "absent",
            ),
        ] {
            let error = Overlay::parse(&text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn periods_stand_in_order() {
        let row = "input = 1\noutput = 1\nread = 1\nwrite_5m = 1\n";
        let text = one(&format!(
            "[[provider.p.model.price]]\nfrom = \"2026-02-01\"\n{row}[[provider.p.model.price]]\nfrom = \"2026-01-01\"\n{row}"
        ));
        assert!(Overlay::parse(&text).is_err());
        assert_eq!(midnight_ms("2026-01-01").unwrap(), 1_767_225_600_000);
    }
}
