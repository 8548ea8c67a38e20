//! The bundled price data: the `genai-prices` crate, asked for unit prices.
//!
//! The crate answers "what does this call cost" in floats and hides its tables. So it is asked for the
//! cost of a round number of tokens of one kind, once per model and minute, and the answer is rounded to
//! whole picodollars per token; that undoes the float noise exactly for every price with up to six
//! decimal places per million tokens. Money is integer from there on.
//!
//! Its data is a copy in this tree, of which a provider is decoded when it is first asked for: most
//! gateways meet one or two of them, and all are 6 MB.
//!
//! The crate matches many names by prefix or substring. Such a match is only believed when both names
//! are the same by the rules of [`super::names`]; see [`model`].

use std::collections::HashSet;
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use genai_prices::{Calculator, PriceCalculation, PriceRequest, Usage, UsageKey};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::names;
use super::sheet::{Prices, Sheet, Tier};

/// Version of the bundled data, kept equal to the lock file by a test.
pub(super) const VERSION: &str = "genai-0.2.1";

/// Tokens asked for to learn a unit price.
const PROBE: u64 = 1_000_000;
/// A prompt longer than any tier border.
const LONG: u64 = 1 << 32;
/// More tiers than any model has.
const MAX_TIERS: usize = 4;
/// What no model's name contains; shows whether a name is matched as a whole.
const FOREIGN: &str = "zq9x";

/// The facts of the crate's data, a provider a line. Written by `tests/setup/genai-prices`.
static DATA: &str = include_str!("../../config/genai-prices.json");

static SOURCES: LazyLock<Result<Vec<Source>, String>> = LazyLock::new(|| {
    let lines: Vec<&'static RawValue> =
        serde_json::from_str(DATA).map_err(|error| error.to_string())?;
    let source = |line: &'static RawValue| {
        let head: Head = serde_json::from_str(line.get()).map_err(|error| error.to_string())?;
        Ok(Source {
            head,
            line,
            decoded: OnceLock::new(),
        })
    };
    lines.into_iter().map(source).collect()
});

/// A provider that may never be asked for.
struct Source {
    head: Head,
    line: &'static RawValue,
    decoded: OnceLock<Option<Calculator>>,
}

/// What is known of a provider without decoding it.
#[derive(Deserialize)]
struct Head {
    id: &'static str,
    /// The rule for other names of it.
    provider_match: Option<&'static RawValue>,
    /// Providers whose models it has as well.
    #[serde(default)]
    fallback_model_providers: Vec<&'static str>,
}

/// A provider by which only its other names are found.
#[derive(Serialize)]
struct Nameplate {
    id: &'static str,
    name: &'static str,
    api_pattern: &'static str,
    provider_match: Option<&'static RawValue>,
}

/// Looks through the data.
///
/// # Errors
/// It is broken, which is a fault of this build.
pub(super) fn load() -> Result<(), String> {
    SOURCES.as_ref().map(drop).map_err(Clone::clone)
}

fn sources() -> &'static [Source] {
    SOURCES.as_deref().unwrap_or_default()
}

fn source(id: &str) -> Option<&'static Source> {
    sources().iter().find(|source| source.head.id == id)
}

/// The provider's id in the data, for an id or an alias of it.
pub(super) fn provider(name: &str) -> Option<&'static str> {
    if let Some(source) = source(&name.trim().to_lowercase()) {
        return Some(source.head.id);
    }
    let found = NAMES.as_ref()?.find_provider(Some(name), None);
    found.ok().flatten().map(|provider| provider.id())
}

/// All providers, without anything but their names.
static NAMES: LazyLock<Option<Calculator>> = LazyLock::new(|| {
    let plate = |source: &Source| Nameplate {
        id: source.head.id,
        name: source.head.id,
        api_pattern: "-",
        provider_match: source.head.provider_match,
    };
    let plates: Vec<Nameplate> = sources().iter().map(plate).collect();
    Calculator::from_json(serde_json::to_vec(&plates).ok()?).ok()
});

/// The data of a provider, with those whose models it has as well.
fn decoded(id: &str) -> Option<&'static Calculator> {
    let source = source(id)?;
    let decode = || {
        let fallbacks: HashSet<&str> = (source.head.fallback_model_providers.iter().copied())
            .filter(|fallback| *fallback != id)
            .collect();
        let beside = sources()
            .iter()
            .filter(|source| fallbacks.contains(source.head.id));
        let mut json = format!("[{}", source.line);
        for source in beside {
            json.push(',');
            json.push_str(source.line.get());
        }
        json.push(']');
        let decoded = Calculator::from_json(json);
        decoded
            .inspect_err(|error| {
                tracing::error!(provider = id, %error, "prices cannot be read: a fault of this build");
            })
            .ok()
    };
    source.decoded.get_or_init(decode).as_ref()
}

/// The id of the model that goes by `spelling`, if the data knows it under exactly that name or under
/// another spelling of the same name.
pub(super) fn model(provider: &str, spelling: &str, at_ms: i64) -> Option<String> {
    let id = matched(provider, spelling, at_ms)?;
    if names::base(&id) == names::base(spelling) {
        return Some(id);
    }
    // A rule that also accepts a longer name is a prefix or a substring: that is another model.
    let whole = [
        format!("{spelling}-{FOREIGN}"),
        format!("{FOREIGN}-{spelling}"),
    ]
    .iter()
    .all(|longer| matched(provider, longer, at_ms).is_none_or(|other| other != id));
    whole.then_some(id)
}

fn matched(provider: &str, name: &str, at_ms: i64) -> Option<String> {
    ask(provider, name, at_ms, &Usage::new()).map(|found| found.model_id)
}

/// The prices at `at_ms`. `None` when the model is unknown or has a price that tokens do not express
/// (a fee per request, an own price for reasoning).
pub(super) fn sheet(provider: &str, spelling: &str, at_ms: i64) -> Option<Sheet> {
    let asked = Probe {
        provider,
        spelling,
        at_ms,
    };
    if asked.has_other_prices()? {
        return None;
    }
    let base = asked.prices(1)?;
    let last = asked.prices(LONG)?;
    let mut tiers = Vec::new();
    let mut current = base;
    let mut from = 1;
    while current != last && tiers.len() < MAX_TIERS {
        let (over, prices) = asked.next_change(from, &current)?;
        tiers.push(Tier { over, prices });
        (from, current) = (over + 1, prices);
    }
    Some(Sheet {
        base,
        tiers,
        web_search: asked.web_search(),
    })
}

struct Probe<'a> {
    provider: &'a str,
    spelling: &'a str,
    at_ms: i64,
}

impl Probe<'_> {
    fn ask<const N: usize>(&self, usage: [(UsageKey, u64); N]) -> Option<PriceCalculation> {
        #[expect(clippy::cast_precision_loss, reason = "probes are far below 2^53")]
        let usage = usage.map(|(key, tokens)| (key, tokens as f64));
        ask(
            self.provider,
            self.spelling,
            self.at_ms,
            &Usage::from(usage),
        )
    }

    fn has_other_prices(&self) -> Option<bool> {
        let nothing = self.ask([])?;
        let out = [
            (UsageKey::INPUT_TOKENS, 1),
            (UsageKey::OUTPUT_TOKENS, PROBE),
        ];
        let plain = self.ask(out.clone())?;
        let [input, output] = out;
        let reasoned = self.ask([input, output, (UsageKey::OUTPUT_REASONING_TOKENS, PROBE)])?;
        Some(
            nothing.total_price > 0.0
                || pico(plain.output_price, PROBE) != pico(reasoned.output_price, PROBE),
        )
    }

    /// Prices of a request whose prompt has `prompt` tokens.
    fn prices(&self, prompt: u64) -> Option<Prices> {
        let whole = (UsageKey::INPUT_TOKENS, prompt);
        let input = |kind: [(UsageKey, u64); 2]| {
            let [a, b] = kind;
            let cost = self.ask([whole.clone(), a, b])?.input_price;
            pico(cost, prompt)
        };
        let none = |key| (key, 0);
        let (read, written, hour) = (
            UsageKey::CACHE_READ_TOKENS,
            UsageKey::CACHE_WRITE_TOKENS,
            UsageKey::CACHE_WRITE_1H_TOKENS,
        );
        let uncached = pico(self.ask([whole.clone()])?.input_price, prompt)?;
        let write = input([(written.clone(), prompt), none(hour.clone())])?;
        let write_long = input([(written.clone(), prompt), (hour, prompt)])?;
        let output = self.ask([whole.clone(), (UsageKey::OUTPUT_TOKENS, PROBE)])?;
        Some(Prices {
            input: uncached,
            output: pico(output.output_price, PROBE)?,
            read: input([(read, prompt), none(written)])?,
            write,
            // Without a price of its own the crate takes the general write price. That is only right
            // where writing costs no more than reading the input.
            write_long: (write_long != write || write == uncached).then_some(write_long),
        })
    }

    /// The first prompt length after `from` whose prices differ from `current`, as the border before it.
    fn next_change(&self, from: u64, current: &Prices) -> Option<(u64, Prices)> {
        let (mut same, mut other) = (from, LONG);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if self.prices(middle)? == *current {
                same = middle;
            } else {
                other = middle;
            }
        }
        Some((same, self.prices(other)?))
    }

    fn web_search(&self) -> Option<u64> {
        let cost = self.ask([(UsageKey::WEB_SEARCHES, PROBE)])?.total_price;
        pico(cost, PROBE).filter(|fee| *fee > 0)
    }
}

fn ask(provider: &str, name: &str, at_ms: i64, usage: &Usage) -> Option<PriceCalculation> {
    let at = match u64::try_from(at_ms) {
        Ok(after) => UNIX_EPOCH.checked_add(Duration::from_millis(after)),
        Err(_) => UNIX_EPOCH.checked_sub(Duration::from_millis(at_ms.unsigned_abs())),
    };
    let request = PriceRequest::new(name, usage)
        .with_provider_id(provider)
        .with_timestamp(at?);
    decoded(provider)?.calculate(&request).ok()
}

/// The price of `count` tokens as whole picodollars per token, to the nearest.
fn pico(usd: f64, count: u64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "probes are far below 2^53")]
    let per_token = (usd * 1e12 / count as f64).round();
    // 2^53 picodollars are 9,007 USD per token: beyond it a float is no longer a whole number.
    let exact = (0.0..9_007_199_254_740_992.0).contains(&per_token);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number in range"
    )]
    exact.then_some(per_token as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_910_400_000; // 2026-11-29

    #[test]
    fn the_version_is_the_one_in_the_lock_file() {
        let lock = include_str!("../../Cargo.lock");
        let entry = lock
            .split("[[package]]")
            .find(|p| p.contains("name = \"genai-prices\""))
            .unwrap();
        let version = VERSION.strip_prefix("genai-").unwrap();
        assert!(
            entry.contains(&format!("version = \"{version}\"")),
            "{entry}"
        );
    }

    /// The copy says what the crate's own data says, for every model and alias of every provider.
    /// After an update of the crate: `tests/setup/genai-prices`.
    #[test]
    fn the_copy_is_that_of_the_crate() {
        let all = Calculator::bundled();
        let ids: Vec<_> = all.providers().map(|provider| provider.id()).collect();
        let ours: Vec<_> = sources().iter().map(|source| source.head.id).collect();
        assert_eq!(ours, ids);
        let usage = |long| {
            Usage::from([
                (UsageKey::INPUT_TOKENS, long),
                (UsageKey::CACHE_READ_TOKENS, 1000.0),
                (UsageKey::CACHE_WRITE_TOKENS, 100.0),
                (UsageKey::CACHE_WRITE_1H_TOKENS, 10.0),
                (UsageKey::OUTPUT_TOKENS, 10_000.0),
                (UsageKey::WEB_SEARCHES, 3.0),
            ])
        };
        let own_ids = all.providers().flat_map(|provider| {
            let models = provider.models();
            models.map(move |model| (provider.id(), model.id()))
        });
        // Azure has the models of others as well.
        let borrowed = [
            ("azure", "claude-opus-4-5"),
            ("google", "claude-sonnet-4-5"),
        ];
        let mut compared = 0;
        for (provider, model) in own_ids.chain(borrowed) {
            for at_ms in [NOW, NOW - 200 * 86_400_000, NOW + 11 * 3_600_000] {
                for usage in [usage(10_000.0), usage(2_000_000.0)] {
                    let at = UNIX_EPOCH + Duration::from_millis(at_ms.unsigned_abs());
                    let request = PriceRequest::new(model, &usage)
                        .with_provider_id(provider)
                        .with_timestamp(at);
                    let said = |found: PriceCalculation| {
                        (
                            found.model_id,
                            found.input_price,
                            found.output_price,
                            found.total_price,
                        )
                    };
                    let theirs = all.calculate(&request).ok().map(said);
                    let ours = ask(provider, model, at_ms, &usage).map(said);
                    assert_eq!(ours, theirs, "{provider} {model} {at_ms}");
                    compared += usize::from(theirs.is_some());
                }
            }
        }
        assert!(compared > 10_000, "{compared}");
        for name in [
            "Anthropic",
            "vertex_ai",
            "amazon-bedrock",
            "litellm",
            "nobody",
            " openai ",
        ] {
            let theirs = all.find_provider(Some(name), None).unwrap();
            assert_eq!(provider(name), theirs.map(|found| found.id()), "{name}");
        }
    }

    #[test]
    fn unit_prices_and_tiers_are_found() {
        let sheet = sheet("anthropic", "claude-haiku-5-5", NOW).unwrap();
        let cheap = Prices {
            input: 100_000,
            output: 500_000,
            read: 10_000,
            write: 125_000,
            write_long: Some(200_000),
        };
        let dear = Prices {
            input: 500_000,
            output: 2_500_000,
            read: 50_000,
            write: 625_000,
            write_long: Some(1_000_000),
        };
        assert_eq!(sheet.base, cheap);
        assert_eq!(
            sheet.tiers,
            [Tier {
                over: 100_000,
                prices: dear
            }]
        );
        assert_eq!(sheet.web_search, Some(10_000_000_000));
    }

    #[test]
    fn names_that_only_share_a_part_are_refused() {
        let model = |provider, name| model(provider, name, NOW);
        assert_eq!(
            model("anthropic", "claude-haiku-4-5"),
            Some("claude-haiku-4-5".into())
        );
        assert_eq!(model("anthropic", "claude-haiku-4-5-mini"), None);
        assert_eq!(
            model("google", "claude-fable-5-2"),
            None,
            "contains claude-fable-5, but is another model"
        );
        assert_eq!(
            model("openai", "gpt-4-1106-preview"),
            Some("gpt-4-turbo".into()),
            "an exact alias is fine"
        );
        assert_eq!(model("openai", "test-unlisted-9"), None);
        let bedrock = model("aws", "us.anthropic.claude-haiku-4-5-20251001-v1:0").unwrap();
        assert!(bedrock.starts_with("regional."), "{bedrock}");
    }

    #[test]
    fn prices_that_tokens_do_not_express_are_not_prices() {
        assert_eq!(sheet("perplexity", "sonar", NOW), None);
        assert_eq!(sheet("perplexity", "sonar-deep-research", NOW), None);
    }

    #[test]
    fn a_missing_hour_price_stays_unknown() {
        let old = sheet("aws", "us.anthropic.claude-sonnet-4-20250514-v1:0", NOW).unwrap();
        assert_eq!(old.base.write_long, None);
        let free_writes = sheet("openai", "gpt-5.4", NOW).unwrap();
        assert_eq!(free_writes.base.write_long, Some(free_writes.base.input));
    }
}
