//! The kinds of value a setting can have, each with one strict reading.
//!
//! The same reading serves the file, the environment and the flags. An error is the end of the
//! sentence "VALUE: ..." and says what is allowed. [`guards`] has the kinds of the guards.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use toml::de::DeValue;

use super::{
    CacheKey, CacheLifetime, CachePolicy, CacheRetention, Format, NativeDiagnostics, Threads,
    WebSockets,
};
use crate::provider::dialect::{CacheControl, CacheOptions};
use crate::provider::view::Ttl;

/// A kind of value.
pub trait Value: Sized {
    /// The value is not repeated in messages.
    const SECRET: bool = false;

    /// Reads the text of a flag, a variable or a TOML string.
    ///
    /// # Errors
    /// What is allowed, as the end of a sentence.
    fn parse(text: &str) -> Result<Self, String>;

    /// Reads a TOML value; a string goes to [`Value::parse`].
    ///
    /// # Errors
    /// What is allowed, as the end of a sentence.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::parse(text),
            // The reading of an impossible string names what is allowed; a plain "must be a
            // string" would make the user guess again.
            other => Err(match Self::parse("") {
                Err(allowed) => format!("{allowed} (in quotes, not {})", a_kind(other)),
                Ok(_) => format!("must be a string, not {}", a_kind(other)),
            }),
        }
    }
}

fn a_kind(value: &DeValue<'_>) -> String {
    let kind = value.type_str();
    let article = if kind.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {kind}")
}

impl Value for String {
    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("must not be empty".to_owned());
        }
        Ok(text.to_owned())
    }
}

impl Value for bool {
    fn parse(_: &str) -> Result<Self, String> {
        Err("must be true or false, without quotes".to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().map_or_else(|| Self::parse(""), Ok)
    }
}

impl Value for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| {
            "must be IP:PORT, such as \"127.0.0.1:8787\" or \"[::1]:8787\" (port 0: the system chooses)".to_owned()
        })
    }
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("must be a path".to_owned());
        }
        Ok(Self::from(text))
    }
}

/// A whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u64);

impl Value for Count {
    fn parse(_: &str) -> Result<Self, String> {
        Err("must be a whole number, without quotes or unit".to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix())
                .map(Self)
                .or_else(|_| Self::parse("")),
            _ => Self::parse(""),
        }
    }
}

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

const SIZE_UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

impl Value for Size {
    fn parse(text: &str) -> Result<Self, String> {
        with_unit(text, &SIZE_UNITS).map(Self).ok_or_else(|| {
            "must be a whole number with a unit, such as \"32MiB\" (units: B, KiB, MiB, GiB, kB, MB, GB)".to_owned()
        })
    }
}

impl Size {
    /// The shortest exact spelling.
    #[must_use]
    pub fn spelled(bytes: u64) -> String {
        spell(
            bytes,
            &[SIZE_UNITS[2], SIZE_UNITS[1], SIZE_UNITS[0], SIZE_UNITS[6]],
        )
    }
}

/// A length of time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub u64);

const SPAN_UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

impl Value for Span {
    fn parse(text: &str) -> Result<Self, String> {
        with_unit(text, &SPAN_UNITS).map(Self).ok_or_else(|| {
            "must be a whole number with a unit, such as \"10s\" or \"15m\" (units: ms, s, m, h)".to_owned()
        })
    }
}

impl Span {
    /// The shortest exact spelling.
    #[must_use]
    pub fn spelled(span: Duration) -> String {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        spell(
            millis,
            &[SPAN_UNITS[3], SPAN_UNITS[2], SPAN_UNITS[1], SPAN_UNITS[0]],
        )
    }

    /// The span itself.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

/// `12unit` or `12 unit` as a number of the smallest unit.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let number: u64 = number.parse().ok()?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// `units` from the largest to the smallest, the last with factor 1.
fn spell(amount: u64, units: &[(&str, u64)]) -> String {
    let fitting = |(_, factor): &&(&str, u64)| amount.is_multiple_of(*factor) && amount >= *factor;
    match units.iter().find(fitting).or(units.last()) {
        Some((name, factor)) => format!("{}{name}", amount / factor),
        None => amount.to_string(),
    }
}

/// Settings that are one of a few words.
macro_rules! choice {
    ($kind:ty, $($word:literal => $variant:path),+) => {
        impl Value for $kind {
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($variant),)+
                    _ => Err(format!("must be one of {}", [$(concat!("\"", $word, "\"")),+].join(", "))),
                }
            }
        }

        impl $kind {
            /// The word of the configuration.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($variant => $word,)+ }
            }
        }
    };
}

choice!(CachePolicy, "off" => CachePolicy::Off, "dry-run" => CachePolicy::DryRun, "fill" => CachePolicy::Fill, "replace" => CachePolicy::Replace);
choice!(NativeDiagnostics, "pass" => NativeDiagnostics::Pass, "request" => NativeDiagnostics::Request);
choice!(CacheKey, "pass" => CacheKey::Pass, "add" => CacheKey::Add);
choice!(CacheLifetime, "pass" => CacheLifetime::Pass, "30m" => CacheLifetime::HalfHour, "12h" => CacheLifetime::HalfDay);
choice!(CacheRetention, "pass" => CacheRetention::Pass, "24h" => CacheRetention::Day);
choice!(CacheControl, "none" => CacheControl::None, "texts" => CacheControl::Texts, "results" => CacheControl::Results);
choice!(CacheOptions, "none" => CacheOptions::None, "ttl" => CacheOptions::Lifetime, "all" => CacheOptions::All);
choice!(WebSockets, "pass" => WebSockets::Pass, "refuse" => WebSockets::Refuse);
choice!(Threads, "pass" => Threads::Pass, "replay" => Threads::Replay);
choice!(Format, "anthropic" => Format::Anthropic, "openai" => Format::OpenAi, "opaque" => Format::Opaque);

choice!(AbsentCached, "unknown" => AbsentCached::Unknown, "none" => AbsentCached::None);
choice!(CostBy, "own" => CostBy::Own, "provider" => CostBy::Provider);

/// What a usage that says nothing of cached tokens means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentCached {
    /// Nobody knows.
    Unknown,
    /// There were none.
    None,
}

/// Whose word counts for the cost of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CostBy {
    /// Ours, by the price data.
    Own,
    /// The provider's, where it tells one.
    Provider,
}

impl Value for Ttl {
    fn parse(text: &str) -> Result<Self, String> {
        Self::from_word(text).ok_or_else(|| {
            format!(
                "must be one of {}",
                Self::ALL
                    .map(|ttl| format!("\"{}\"", ttl.word()))
                    .join(", ")
            )
        })
    }
}

mod agent;
mod guards;
mod stores;
pub use agent::{Api, List, Switch};
pub use guards::{
    Depth, Heads, Ladder, Levels, Limit, Money, Percent, RedisUrl, Status, Threshold, Tokens,
    Tries, Unbounded, Wall, WebhookUrl,
};
pub use stores::{ClickHouseUrl, Headers, Name, OtlpUrl, Pairs, Rules, Secret, Share};

/// One string or an array of strings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words(pub Vec<String>);

impl Value for Words {
    fn parse(text: &str) -> Result<Self, String> {
        String::parse(text)
            .map(|word| Self(vec![word]))
            .map_err(|_| "must be a string or an array of strings, none of them empty".to_owned())
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::parse(text),
            DeValue::Array(items) => items
                .iter()
                .map(|item| {
                    item.get_ref()
                        .as_str()
                        .filter(|text| !text.trim().is_empty())
                })
                .map(|text| text.map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .map(Self)
                .map_or_else(|| Self::parse(""), Ok),
            _ => Self::parse(""),
        }
    }
}

/// A decimal as it is spelled, so that 0.1 is exactly a tenth; nothing of what is no decimal.
fn decimal<'a>(value: &'a DeValue<'_>) -> &'a str {
    match value {
        DeValue::String(text) => text,
        DeValue::Float(number) => number.as_str(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
        _ => "",
    }
}

/// A price: pico-USD per token, from USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price(pub u64);

/// Highest price that is taken for one, in USD per million tokens.
const PRICE_MAX_USD_PER_MTOK: u64 = 1_000_000;

impl Value for Price {
    fn parse(text: &str) -> Result<Self, String> {
        pico_from_usd_per_mtok(text).map(Self).ok_or_else(|| {
            "must be USD per million tokens as a plain decimal from 0 to 1000000 with at most 6 decimals, such as 0.30".to_owned()
        })
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        Self::parse(decimal(value))
    }
}

impl Price {
    /// USD per million tokens, exact.
    #[must_use]
    pub fn spelled(pico: u64) -> String {
        let (whole, rest) = (pico / 1_000_000, pico % 1_000_000);
        if rest == 0 {
            return whole.to_string();
        }
        format!("{whole}.{rest:06}")
            .trim_end_matches('0')
            .to_owned()
    }
}

/// An amount of money, in millionths of a USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usd(pub u64);

impl Value for Usd {
    fn parse(text: &str) -> Result<Self, String> {
        pico_from_usd_per_mtok(text).map(Self).ok_or_else(|| {
            "must be USD as a plain decimal from 0 to 1000000 with at most 6 decimals, such as 0.25"
                .to_owned()
        })
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        Self::parse(decimal(value))
    }
}

/// One USD per million tokens is 1,000,000 pico-USD per token.
fn pico_from_usd_per_mtok(text: &str) -> Option<u64> {
    let pico = crate::usage::pico_from_decimal_usd_per_mtok(text).ok()?;
    (pico <= PRICE_MAX_USD_PER_MTOK * 1_000_000).then_some(pico)
}

/// The base URL of an upstream, normalised: no trailing slash, no query, no user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(pub Uri);

impl Value for BaseUrl {
    fn parse(text: &str) -> Result<Self, String> {
        let uri: Uri = text
            .parse()
            .map_err(|_| "must be a URL such as \"https://api.example.com\"".to_owned())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("must be a whole URL that starts with http:// or https://".to_owned());
        };
        if !matches!(scheme, "http" | "https") {
            return Err("must start with http:// or https://".to_owned());
        }
        if authority.as_str().contains('@') {
            return Err(
                "must not hold a user or password: the client's own credentials are passed on"
                    .to_owned(),
            );
        }
        let port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || (port && authority.port_u16().is_none()) {
            return Err("must name a host, and a port up to 65535 if any".to_owned());
        }
        // `Uri` drops a fragment without a word.
        if uri.query().is_some() || text.contains(['?', '#']) {
            return Err("must have no ? or #: query strings come from the client".to_owned());
        }
        let prefix = uri.path().trim_end_matches('/');
        if prefix.split('/').any(|part| part == "." || part == "..") {
            return Err("must not have . or .. in its path".to_owned());
        }
        format!("{scheme}://{authority}{prefix}")
            .parse()
            .map(Self)
            .map_err(|_| "must be a URL such as \"https://api.example.com\"".to_owned())
    }
}

impl BaseUrl {
    /// The URL as a user writes it (`Uri` shows an empty path as `/`).
    #[must_use]
    pub fn spelled(uri: &Uri) -> String {
        uri.to_string().trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("32MiB", 32 << 20),
            ("32 MiB", 32 << 20),
            ("1GB", 1_000_000_000),
            ("0B", 0),
            ("7kB", 7_000),
        ] {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
        for wrong in [
            "",
            "32",
            "MiB",
            "32M",
            "1.5GiB",
            "-1MiB",
            "32mib",
            "32  MiB",
            "99999999999GiB",
            "+1B",
        ] {
            assert!(Size::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans() {
        for (text, millis) in [
            ("10s", 10_000),
            ("15m", 900_000),
            ("250ms", 250),
            ("1h", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(Span::parse(text), Ok(Span(millis)), "{text}");
        }
        for wrong in ["", "10", "s", "1m30s", "10 sec", "1.5s", "-1s", "10S", "1d"] {
            assert!(Span::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spelling_is_exact_and_short() {
        for (bytes, text) in [
            (32 << 20, "32MiB"),
            (1 << 30, "1GiB"),
            (1_000, "1000B"),
            (0, "0B"),
        ] {
            assert_eq!(Size::spelled(bytes), text);
            assert_eq!(Size::parse(text), Ok(Size(bytes)));
        }
        for (millis, text) in [
            (900_000, "15m"),
            (10_000, "10s"),
            (90_000, "90s"),
            (1, "1ms"),
            (0, "0ms"),
        ] {
            assert_eq!(Span::spelled(Duration::from_millis(millis)), text);
            assert_eq!(Span::parse(text), Ok(Span(millis)));
        }
    }

    #[test]
    fn prices_are_exact() {
        for (text, pico) in [
            ("3", 3_000_000),
            ("0.1", 100_000),
            ("0.30", 300_000),
            ("18.75", 18_750_000),
            ("0.000001", 1),
            ("0.0000010", 1),
            ("1000000", 1_000_000_000_000),
        ] {
            assert_eq!(Price::parse(text), Ok(Price(pico)), "{text}");
            assert_eq!(
                Price::parse(&Price::spelled(pico)),
                Ok(Price(pico)),
                "{text}"
            );
        }
        for wrong in [
            "",
            ".5",
            "5.",
            "1e3",
            "-1",
            "+1",
            "0.0000001",
            "1000000.1",
            "1,5",
            "$3",
            "nan",
            "1 ",
        ] {
            assert!(Price::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn base_urls_are_normalised() {
        for (text, spelled) in [
            ("http://u", "http://u"),
            ("http://u/", "http://u"),
            ("HTTP://u/prefix/", "http://u/prefix"),
            ("https://u:8443/a/b//", "https://u:8443/a/b"),
            ("http://[::1]:9", "http://[::1]:9"),
        ] {
            let url = BaseUrl::parse(text).map(|url| BaseUrl::spelled(&url.0));
            assert_eq!(url.as_deref(), Ok(spelled), "{text}");
        }
        for wrong in [
            "",
            "u",
            "u:80",
            "/x",
            "ftp://u",
            "http://",
            "http://a b",
            "http://u?x=1",
            "http://u/?",
            "http://u#f",
            "http://me:pw@u",
            "http://@u",
            "http://u:99999",
            "http://u/../x",
        ] {
            assert!(BaseUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
