//! What OpenAI's prompt cache does of itself, and what a request can ask of it.
//!
//! Sources: the SDK's types and documentation, November 2026, unless another one is named.

use super::diagnosis::{QUESTION_12H, QUESTION_30M};
use crate::provider::view::{Automatic, LifetimeSpelling, MarkerSpelling, Spelling, Ttl};
use crate::provider::wire::Wire;

/// The first generation whose cache counts exactly, bills writes and takes `prompt_cache_options`.
const EXACT: (u32, u32) = (5, 6);

/// The first generation of which all but the small models take `prompt_cache_retention`, and a
/// model before it (OpenAI's guide to prompt caching, 2025).
const RETAINED: ((u32, u32), (u32, u32)) = ((5, 0), (4, 1));

/// A breakpoint on a part of a Chat message; it lives as long as the request says.
pub static CHAT_MARKERS: MarkerSpelling = markers(br#"[{"type":"text","text":"#);

/// The same for Responses.
pub static RESPONSES_MARKERS: MarkerSpelling = markers(br#"[{"type":"input_text","text":"#);

const fn markers(wrap_open: &'static [u8]) -> MarkerSpelling {
    const fn one(wrap_open: &'static [u8]) -> Spelling {
        Spelling {
            member: br#","prompt_cache_breakpoint":{"mode":"explicit"}"#,
            wrap_open,
            wrap_close: br#","prompt_cache_breakpoint":{"mode":"explicit"}}]"#,
        }
    }
    MarkerSpelling {
        m5: one(wrap_open),
        h1: one(wrap_open),
        results_inside: false,
    }
}

const HALF_HOUR: &str = r#""prompt_cache_options":{"ttl":"30m"},"#;

/// Chat Completions know no other lifetime of a request.
static CHAT_LIFETIMES: [LifetimeSpelling; 1] = [LifetimeSpelling {
    ttl: Ttl::M30,
    member: HALF_HOUR,
    question: None,
}];

static RESPONSES_LIFETIMES: [LifetimeSpelling; 2] = [
    LifetimeSpelling {
        ttl: Ttl::M30,
        member: HALF_HOUR,
        question: Some(&QUESTION_30M),
    },
    LifetimeSpelling {
        ttl: Ttl::H12,
        member: r#""prompt_cache_options":{"ttl":"12h"},"#,
        question: Some(&QUESTION_12H),
    },
];

/// What a model lets a request say about its caching.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Controls {
    /// Breakpoints, where it takes any.
    pub markers: Option<&'static MarkerSpelling>,
    /// Lifetimes.
    pub lifetimes: &'static [LifetimeSpelling],
    /// The member by which models before gpt-5.6 are asked to keep a prompt for a day.
    pub retention: Option<&'static str>,
}

/// What a model of this name takes in this format.
#[must_use]
pub fn controls(wire: Wire, model: &str) -> Controls {
    let (markers, lifetimes) = match wire {
        Wire::Responses => (&RESPONSES_MARKERS, &RESPONSES_LIFETIMES[..]),
        _ => (&CHAT_MARKERS, &CHAT_LIFETIMES[..]),
    };
    match generation(model) {
        Some(generation) if generation >= EXACT => Controls {
            markers: Some(markers),
            lifetimes,
            retention: None,
        },
        Some(generation) if generation >= RETAINED.0 || generation == RETAINED.1 => {
            let small = ["mini", "nano"].iter().any(|word| model.contains(word));
            Controls {
                retention: (!small).then_some(r#""prompt_cache_retention":"24h","#),
                ..Controls::default()
            }
        }
        _ => Controls::default(),
    }
}

/// What a model's cache does of itself: prompts of 1,024 tokens and more. From gpt-5.6 on it counts
/// exactly, keeps them for thirty minutes, or twelve hours where that is asked for, and looks for
/// them at breakpoints only; before, it counts in steps of 128 and promises no time.
#[must_use]
pub fn rules(model: &str, long: bool) -> Automatic {
    let exact = generation(model).is_some_and(|generation| generation >= EXACT);
    let ttl = if long { Ttl::H12 } else { Ttl::M30 };
    Automatic {
        step: if exact { 1 } else { 128 },
        min_tokens: 1024,
        ttl: exact.then_some(ttl),
        at_breakpoints: exact,
    }
}

/// The generation of a model, `(5, 6)` for `gpt-5.6-sol`; `None` for other names.
fn generation(model: &str) -> Option<(u32, u32)> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let digits = name.strip_prefix("gpt-")?;
    let digits = digits.split('-').next()?;
    let (major, minor) = digits.split_once('.').unwrap_or((digits, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_takes_follows_from_its_generation() {
        for (model, markers, lifetimes, retention) in [
            ("gpt-6.2-sol", true, 2, false),
            ("openai/gpt-5.6-luna", true, 2, false),
            ("gpt-5.5", false, 0, true),
            ("gpt-5-2025-08-07", false, 0, true),
            ("gpt-4.1-2025-04-14", false, 0, true),
            ("gpt-5.4-mini", false, 0, false),
            ("gpt-4o", false, 0, false),
            ("o3", false, 0, false),
            ("kimi-k3.1", false, 0, false),
            ("", false, 0, false),
        ] {
            let of = controls(Wire::Responses, model);
            let found = (
                of.markers.is_some(),
                of.lifetimes.len(),
                of.retention.is_some(),
            );
            assert_eq!(found, (markers, lifetimes, retention), "{model}");
            let chat = controls(Wire::Chat, model);
            let half_hour: &[Ttl] = if markers { &[Ttl::M30] } else { &[] };
            let lives: Vec<Ttl> = chat.lifetimes.iter().map(|one| one.ttl).collect();
            assert_eq!(lives, half_hour, "{model}");
        }
    }
}
