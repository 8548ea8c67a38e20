//! Kinds of value that only the guards have: counts with bounds, money, ladders, addresses.

use http::Uri;
use toml::de::DeValue;

use super::super::{CapAction, Form, RedisDown, Reserve, Unpriced};
use super::{Span, Value, decimal};
use crate::guard::loops::{Action, MAX_STEPS};

/// Most of anything that is counted without a tighter bound of its own.
const COUNT_MAX: u64 = 1_000_000_000_000_000;
/// Highest amount of money, in USD.
const USD_MAX: u64 = 1_000_000;
/// Longest list of alert levels.
const LEVELS_MAX: usize = 10;
/// Longest URL of a secret kind, in bytes.
const URL_MAX_BYTES: usize = 2_048;
/// Wall time, in milliseconds: one second to a year.
const WALL_MS: std::ops::RangeInclusive<u64> = 1_000..=8_760 * 3_600_000;

/// Whole numbers within bounds, in TOML without quotes, elsewhere as digits.
macro_rules! whole {
    ($($(#[$doc:meta])* $name:ident($kind:ty): $least:literal..=$most:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(pub $kind);

        impl Value for $name {
            fn parse(text: &str) -> Result<Self, String> {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let most: u64 = $most;
                text.parse::<u64>()
                    .ok()
                    .filter(|number| digits && ($least..=most).contains(number))
                    .and_then(|number| <$kind>::try_from(number).ok())
                    .map(Self)
                    .ok_or_else(|| format!("must be a whole number from {} to {most}", $least))
            }

            fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
                match value {
                    DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix())
                        .map_or_else(|_| Self::parse(""), |number| Self::parse(&number.to_string())),
                    _ => Self::parse("").map_err(|allowed| format!("{allowed}, without quotes or unit")),
                }
            }
        }
    )+};
}

whole! {
    /// A limit on something that is counted; never 0, which would be a gateway that is shut.
    Limit(u64): 1..=COUNT_MAX;
    /// How deep agents may be nested; the one that begins a run is at 0.
    Depth(u32): 0..=64;
    /// A limit on what is there or comes in at the same time.
    Heads(u32): 1..=1_000_000;
    /// From which count on it is a loop.
    Threshold(u32): 2..=1_000;
    /// The same, with 0 for never.
    Unbounded(u32): 0..=1_000;
    /// A limit on what an agent does or says at once.
    Tokens(u32): 1..=1_000_000_000;
    /// Attempts at a task.
    Tries(u32): 1..=100;
    /// Status of a refusal: the client's fault, whatever the number.
    Status(u16): 400..=499;
    /// Whole percent, or percentage points.
    Percent(u32): 1..=100;
}

/// A length of time that limits, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wall(pub u64);

impl Value for Wall {
    fn parse(text: &str) -> Result<Self, String> {
        let Span(millis) = Span::parse(text)?;
        if !WALL_MS.contains(&millis) {
            return Err("must be from 1s to 8760h".to_owned());
        }
        Ok(Self(millis))
    }
}

/// An amount of money above nothing, in pico-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money(pub u64);

impl Value for Money {
    fn parse(text: &str) -> Result<Self, String> {
        let most = USD_MAX * 1_000_000_000_000;
        crate::usage::pico_from_decimal_usd(text)
            .ok()
            .filter(|pico| (1..=most).contains(pico))
            .map(Self)
            .ok_or_else(|| {
                format!("must be USD as a plain decimal above 0 and up to {USD_MAX}, with at most 12 decimals, such as 2.50")
            })
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        Self::parse(decimal(value))
    }
}

/// What is done about a loop: one action, or a list that gets stricter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder(pub Vec<Action>);

impl Ladder {
    fn of<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let wrong = || {
            let words: Vec<String> = Action::ALL
                .iter()
                .map(|action| format!("{:?}", action.as_str()))
                .collect();
            format!(
                "must be one of {}, or a list of up to {MAX_STEPS} of them, each stricter than the one before and \"off\" only alone",
                words.join(", ")
            )
        };
        let actions: Option<Vec<Action>> =
            words.take(MAX_STEPS + 1).map(Action::from_word).collect();
        let sound = |ladder: &Vec<Action>| {
            (1..=MAX_STEPS).contains(&ladder.len())
                && ladder.is_sorted_by(|milder, stricter| milder < stricter)
                && (ladder.len() == 1 || ladder.first() != Some(&Action::Off))
        };
        actions.filter(sound).map(Self).ok_or_else(wrong)
    }
}

impl Value for Ladder {
    fn parse(text: &str) -> Result<Self, String> {
        Self::of(text.split(',').map(str::trim))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(word) => Self::of(std::iter::once(word.as_ref())),
            DeValue::Array(items) => Self::of(
                items
                    .iter()
                    .map(|item| item.get_ref().as_str().unwrap_or_default()),
            ),
            _ => Self::parse(""),
        }
    }
}

/// Shares of a cap at which it is told, ascending, in percent; none for never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levels(pub Vec<u32>);

impl Value for Levels {
    fn parse(_: &str) -> Result<Self, String> {
        Err(format!(
            "must be a list of at most {LEVELS_MAX} whole percentages from 1 to 100, ascending, such as [50, 80, 100]"
        ))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let DeValue::Array(items) = value else {
            return Self::parse("");
        };
        let levels: Option<Vec<u32>> = items
            .iter()
            .take(LEVELS_MAX + 1)
            .map(|item| Percent::from_toml(item.get_ref()).ok().map(|level| level.0))
            .collect();
        levels
            .filter(|levels| levels.len() <= LEVELS_MAX && levels.is_sorted_by(|a, b| a < b))
            .map_or_else(|| Self::parse(""), |levels| Ok(Self(levels)))
    }
}

/// Where alerts go. Whoever knows it can write there, so it is shown without its path.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(pub Uri);

impl Value for WebhookUrl {
    const SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        let allowed = || "must be a whole URL that starts with http:// or https://".to_owned();
        if text.len() > URL_MAX_BYTES {
            return Err(format!("must be at most {URL_MAX_BYTES} bytes long"));
        }
        let uri: Uri = text.parse().map_err(|_| allowed())?;
        let authority = uri.authority().ok_or_else(allowed)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(allowed());
        }
        if authority.as_str().contains('@') {
            return Err("must not hold a user or password".to_owned());
        }
        let port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || (port && authority.port_u16().is_none()) {
            return Err("must name a host, and a port up to 65535 if any".to_owned());
        }
        Ok(Self(uri))
    }
}

impl std::fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Self::masked(&self.0))
    }
}

impl WebhookUrl {
    /// The URL without what makes it a secret; itself a URL.
    #[must_use]
    pub fn masked(uri: &Uri) -> String {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        format!("{}://{authority}/***", uri.scheme_str().unwrap_or("http"))
    }
}

/// Where the books are that several gateways share. May hold a password, so it is shown without.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(pub String);

/// TLS to Redis is not built in: `rediss://` would be a promise that is not kept.
const REDIS_TLS: bool = false;

impl Value for RedisUrl {
    const SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        let allowed =
            "must be a URL such as \"redis://127.0.0.1:6379/0\" or \"unix:///run/redis.sock\"";
        if text.len() > URL_MAX_BYTES {
            return Err(format!("must be at most {URL_MAX_BYTES} bytes long"));
        }
        if text
            .bytes()
            .any(|byte| byte.is_ascii_control() || byte == b' ')
        {
            return Err(allowed.to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or(allowed)?;
        match scheme {
            "redis+unix" | "unix" if rest.len() > 1 && rest.starts_with('/') => {}
            "rediss" if !REDIS_TLS => {
                return Err(
                    "must start with redis:// or unix://, as TLS to Redis is not built in"
                        .to_owned(),
                );
            }
            "redis" | "rediss" => {
                let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
                let host = authority
                    .rsplit_once('@')
                    .map_or(authority, |(_, host)| host);
                let host: http::uri::Authority = host.parse().map_err(|_| allowed)?;
                let port = host.as_str().len() > host.host().len();
                if host.host().is_empty() || (port && host.port_u16().is_none()) {
                    return Err("must name a host, and a port up to 65535 if any".to_owned());
                }
            }
            _ => return Err(allowed.to_owned()),
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Self::masked(&self.0))
    }
}

impl RedisUrl {
    /// The URL without its password; itself a URL. Passwords stand before the host, and in the
    /// query of a socket's URL.
    #[must_use]
    pub fn masked(url: &str) -> String {
        let (url, query) = url
            .split_once('?')
            .map_or((url, None), |(url, query)| (url, Some(query)));
        let mut out = url.to_owned();
        if let (Some(start), Some(at)) = (url.find("://"), url.rfind('@'))
            && let Some(user) = url.get(start + 3..at)
        {
            let user = user.split(':').next().unwrap_or_default();
            let secret = if url[start + 3..at].contains(':') {
                ":***"
            } else {
                ""
            };
            out = format!("{}://{user}{secret}{}", &url[..start], &url[at..]);
        }
        if let Some(query) = query {
            let parts: Vec<String> = query
                .split('&')
                .map(|part| match part.split_once('=') {
                    Some((name, _)) if name.contains("pass") => format!("{name}=***"),
                    _ => part.to_owned(),
                })
                .collect();
            out.push('?');
            out.push_str(&parts.join("&"));
        }
        out
    }
}

choice!(Reserve, "worst" => Reserve::Worst, "nothing" => Reserve::Nothing);
choice!(Unpriced, "refuse" => Unpriced::Refuse, "flag" => Unpriced::Flag);
choice!(CapAction, "block" => CapAction::Block, "answer" => CapAction::Answer, "warn" => CapAction::Warn);
choice!(RedisDown, "refuse" => RedisDown::Refuse, "local" => RedisDown::Local);
choice!(Form, "json" => Form::Json, "slack" => Form::Slack);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_to_their_bounds() {
        assert_eq!(Limit::parse("1"), Ok(Limit(1)));
        assert_eq!(Limit::parse("1000000000000000"), Ok(Limit(COUNT_MAX)));
        for wrong in [
            "",
            "0",
            "+1",
            "-1",
            "1.0",
            "1k",
            " 1",
            "1000000000000001",
            "99999999999999999999",
        ] {
            assert!(Limit::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Depth::parse("0"), Ok(Depth(0)));
        assert!(Depth::parse("65").is_err());
        assert!(Status::parse("500").is_err() && Status::parse("399").is_err());
        assert!(Threshold::parse("1").is_err());
    }

    #[test]
    fn money_is_exact_to_a_pico_dollar() {
        for (text, pico) in [
            ("2.50", 2_500_000_000_000),
            ("0.000000000001", 1),
            ("1000000", 1_000_000_000_000_000_000),
        ] {
            assert_eq!(Money::parse(text), Ok(Money(pico)), "{text}");
        }
        for wrong in [
            "0",
            "0.0",
            "",
            "0.0000000000001",
            "1000000.01",
            "-1",
            "1e3",
            "$1",
            ".5",
        ] {
            assert!(Money::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ladders_get_stricter() {
        assert_eq!(Ladder::parse("off"), Ok(Ladder(vec![Action::Off])));
        assert_eq!(
            Ladder::parse("warn, hint,answer"),
            Ok(Ladder(vec![Action::Warn, Action::Hint, Action::Answer]))
        );
        for wrong in [
            "",
            "on",
            "hint,warn",
            "warn,warn",
            "off,warn",
            "warn,hint,block,answer",
            "warn,",
        ] {
            assert!(Ladder::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_of_redis_are_checked_and_shown_without_a_password() {
        for (text, shown) in [
            ("redis://h", "redis://h"),
            ("redis://h:6380/2", "redis://h:6380/2"),
            ("redis://:p@ss@h/0", "redis://:***@h/0"),
            ("redis://me:pw@h", "redis://me:***@h"),
            ("redis://me@[::1]:1", "redis://me@[::1]:1"),
            (
                "unix:///run/r.sock?db=1&pass=pw",
                "unix:///run/r.sock?db=1&pass=***",
            ),
            ("redis+unix:///run/r.sock", "redis+unix:///run/r.sock"),
        ] {
            let url = RedisUrl::parse(text).unwrap();
            assert_eq!(RedisUrl::masked(&url.0), shown, "{text}");
            assert_eq!(RedisUrl::masked(shown), shown);
            assert!(RedisUrl::parse(shown).is_ok());
            assert_eq!(format!("{url:?}"), shown);
        }
        for wrong in [
            "",
            "h:6379",
            "redis://",
            "redis://:99999",
            "redis://h:99999",
            "unix://",
            "unix://r",
            "http://h",
            "rediss://h",
            "redis://a b",
        ] {
            assert!(RedisUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_of_webhooks_are_shown_without_their_path() {
        let url = WebhookUrl::parse("https://hooks.example.com:8443/T0/secret?k=v").unwrap();
        assert_eq!(format!("{url:?}"), "https://hooks.example.com:8443/***");
        assert!(WebhookUrl::parse("https://hooks.example.com/***").is_ok());
        for wrong in [
            "",
            "hooks.example.com",
            "/x",
            "ftp://h",
            "http://",
            "http://me:pw@h",
            "http://h:99999",
        ] {
            assert!(WebhookUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
