//! Limits that a request asks for itself: `x-prefixgate-max-usd: 0.5`, or `max-usd=0.5` among the
//! labels of the URL. They are below those of the configuration or mean nothing.

use http::HeaderMap;

use super::headers::OWN_PREFIX;
use crate::config::{Depth, Heads, Limit, Money, Value, Wall};
use crate::guard::caps::Limits;

/// What the names of all limits begin with.
const LIMIT_PREFIX: &str = "max-";

/// Puts the text of a limit into its place.
///
/// # Errors
/// What is allowed, as the end of a sentence.
pub type Set = fn(&mut Limits, &str) -> Result<(), String>;

const LIMITS: [(&str, Set); 8] = [
    ("max-turns", |to, text| {
        once(&mut to.turns, Limit::parse(text)?.0)
    }),
    ("max-input-tokens", |to, text| {
        once(&mut to.input_tokens, Limit::parse(text)?.0)
    }),
    ("max-output-tokens", |to, text| {
        once(&mut to.output_tokens, Limit::parse(text)?.0)
    }),
    ("max-tokens", |to, text| {
        once(&mut to.tokens, Limit::parse(text)?.0)
    }),
    ("max-usd", |to, text| {
        once(&mut to.usd_pico, Money::parse(text)?.0)
    }),
    ("max-wall-time", |to, text| {
        once(&mut to.wall_ms, Wall::parse(text)?.0)
    }),
    ("max-depth", |to, text| {
        once(&mut to.depth, Depth::parse(text)?.0)
    }),
    ("max-agents", |to, text| {
        once(&mut to.agents, Heads::parse(text)?.0)
    }),
];

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.is_some() {
        return Err("must be given once".to_owned());
    }
    *place = Some(value);
    Ok(())
}

/// The limit of a name; `None` for what is none.
#[must_use]
pub fn limit(name: &str) -> Option<(&'static str, Set)> {
    LIMITS.into_iter().find(|(known, _)| *known == name)
}

/// The names of all limits, for messages.
#[must_use]
pub fn known() -> String {
    LIMITS.map(|(name, _)| name).join(", ")
}

/// What a request's headers leave of `limits`: the lower one of each.
///
/// A header that looks like a limit and is none is an error: whoever sent it counts on it.
///
/// # Errors
/// For the client: which header is wrong, and what is allowed there.
pub fn lowered(headers: &HeaderMap, limits: &Limits) -> Result<Limits, String> {
    let mut asked = Limits::default();
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(OWN_PREFIX) else {
            continue;
        };
        if !name.starts_with(LIMIT_PREFIX) {
            continue;
        }
        let read = match limit(name) {
            None => Err(format!("is not known; the limits are: {}", known())),
            Some((_, set)) => {
                // What is no text is no value either.
                set(&mut asked, value.to_str().unwrap_or_default().trim())
            }
        };
        read.map_err(|why| {
            let header = crate::text::prefix(header.as_str(), 64);
            format!("header {header}: {why}")
        })?;
    }
    Ok(limits.lowered(&asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &[(&'static str, &str)]) -> Result<Limits, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        lowered(&headers, &Limits::default())
    }

    #[test]
    fn every_limit_of_a_run_can_be_asked_for() {
        let limits = of(&[
            ("x-prefixgate-max-turns", "1"),
            ("x-prefixgate-max-input-tokens", "2"),
            ("x-prefixgate-max-output-tokens", "3"),
            ("x-prefixgate-max-tokens", "4"),
            ("x-prefixgate-max-usd", " 0.000000000005 "),
            ("x-prefixgate-max-wall-time", "6s"),
            ("x-prefixgate-max-depth", "0"),
            ("x-prefixgate-max-agents", "8"),
            ("x-max-turns", "no business of ours"),
        ]);
        let expected = Limits {
            turns: Some(1),
            input_tokens: Some(2),
            output_tokens: Some(3),
            tokens: Some(4),
            usd_pico: Some(5),
            wall_ms: Some(6_000),
            depth: Some(0),
            agents: Some(8),
            requests_per_minute: None,
            concurrency: None,
        };
        assert_eq!(limits, Ok(expected));
    }

    #[test]
    fn a_wrong_limit_says_which_header_and_what_is_allowed() {
        let error = |list: &[(&'static str, &str)]| of(list).unwrap_err();
        assert_eq!(
            error(&[("x-prefixgate-max-turns", "0")]),
            "header x-prefixgate-max-turns: must be a whole number from 1 to 1000000000000000"
        );
        assert_eq!(
            error(&[("x-prefixgate-max-wall-time", "30")]),
            "header x-prefixgate-max-wall-time: must be a whole number with a unit, such as \"10s\" or \"15m\" (units: ms, \
             s, m, h)"
        );
        assert_eq!(
            error(&[("x-prefixgate-max-usd", "1"), ("x-prefixgate-max-usd", "2")]),
            "header x-prefixgate-max-usd: must be given once"
        );
        assert_eq!(
            error(&[("x-prefixgate-max-cost", "1")]),
            "header x-prefixgate-max-cost: is not known; the limits are: max-turns, max-input-tokens, max-output-tokens, \
             max-tokens, max-usd, max-wall-time, max-depth, max-agents"
        );
        for (name, value) in [
            ("x-prefixgate-max-usd", "$1"),
            ("x-prefixgate-max-usd", "-1"),
            ("x-prefixgate-max-usd", ""),
            ("x-prefixgate-max-usd", "ö"),
            ("x-prefixgate-max-depth", "65"),
            ("x-prefixgate-max-agents", "1,2"),
        ] {
            assert!(of(&[(name, value)]).is_err(), "{name}: {value}");
        }
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let mut headers = HeaderMap::new();
        headers.append("x-prefixgate-max-turns", "9".parse().unwrap());
        headers.append("x-prefixgate-max-agents", "2".parse().unwrap());
        let set = Limits {
            turns: Some(5),
            agents: Some(4),
            depth: Some(1),
            ..Limits::default()
        };
        let expected = Limits {
            agents: Some(2),
            ..set
        };
        assert_eq!(lowered(&headers, &set), Ok(expected));
    }
}
