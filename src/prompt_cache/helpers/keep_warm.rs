//! Keeping a prefix in the provider's cache across a pause, while that is cheaper than a rewrite.
//!
//! Each read refreshes an entry. So the last request of a thread is sent once more, with an output
//! limit of nothing, shortly before its entries expire. It pays while
//!
//! ```text
//! spent so far + next ping  <=  P(the thread goes on) x prefix x (write - read)
//! ```
//!
//! and stays under the ceiling of one pause. Tokens are those that usage reported; probabilities
//! come from the caller, in thousandths, so that equal input always gives an equal decision.

use bytes::Bytes;

use super::{Saving, write_pico};
use crate::provider::view::{History, RequestView, Span, Ttl};
use crate::usage::Rates;

/// A ping is sent this long before the entries expire.
pub const MARGIN_MS: i64 = 20_000;
/// Pauses beyond the lifetime that are rarer than this, in thousandths, are not provided for: after
/// a tool call fewer than one gap in a hundred is that long, and holding the request costs memory.
pub const MIN_PAUSE_MILLI: u32 = 20;
/// Pico-USD in a micro-USD.
const PICO_PER_MICRO: u64 = 1_000_000;
/// Probabilities are in thousandths.
const WHOLE_MILLI: u64 = 1000;

/// What is known of a pause when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Prices of the model.
    pub rates: Rates,
    /// Lifetime of the entry at the tail.
    pub ttl: Ttl,
    /// Tokens of the cached prefix: what the turn read and wrote, from its usage.
    pub prefix_tokens: u64,
    /// Probability that the thread goes on at all, in thousandths.
    pub returns_milli: u32,
    /// Probability that this pause outlasts the lifetime, in thousandths: by what this app and stop
    /// reason have shown.
    pub outlasts_milli: u32,
    /// What one pause may cost, in micro-USD; 0 for nothing.
    pub ceiling_micro_usd: u64,
}

/// How keeping warm went so far in a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Start of the request that refreshed the entries last (lifetimes count from there), UTC
    /// milliseconds.
    pub refreshed_ms: i64,
    /// Pings that were answered.
    pub pings: u32,
    /// What they cost, in pico-USD.
    pub spent_pico: u64,
}

/// Why no ping follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// The ceiling is 0, or nothing is cached.
    Off,
    /// The app's pauses after such an answer are short.
    ShortPauses,
    /// A rewrite is cheaper by now.
    NotWorthIt,
    /// The ceiling of one pause would be passed.
    Ceiling,
    /// The entries have expired.
    Expired,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A ping at this time, UTC milliseconds; at once when that is past.
    At(i64),
    /// No further ping.
    Stop(Stop),
}

/// Decides about the next ping of a pause.
#[must_use]
pub fn next(pause: &Pause, so_far: &Progress, now_ms: i64) -> Next {
    let ping = pause.prefix_tokens.saturating_mul(pause.rates.read_pico);
    let ceiling = pause.ceiling_micro_usd.saturating_mul(PICO_PER_MICRO);
    if ceiling == 0 || pause.prefix_tokens == 0 {
        return Next::Stop(Stop::Off);
    }
    if pause.outlasts_milli < MIN_PAUSE_MILLI {
        return Next::Stop(Stop::ShortPauses);
    }
    let expires = so_far.refreshed_ms.saturating_add(pause.ttl.ms());
    if now_ms >= expires {
        return Next::Stop(Stop::Expired);
    }
    let cost = so_far.spent_pico.saturating_add(ping);
    if cost > worth_pico(pause) {
        return Next::Stop(Stop::NotWorthIt);
    }
    if cost > ceiling {
        return Next::Stop(Stop::Ceiling);
    }
    Next::At(expires - MARGIN_MS)
}

/// What having the prefix at hand is worth: what a rewrite costs more than reading, weighed with
/// the probability that anybody comes back for it. Pico-USD.
fn worth_pico(pause: &Pause) -> u64 {
    let more = write_pico(&pause.rates, pause.ttl).saturating_sub(pause.rates.read_pico);
    let returns = u64::from(pause.returns_milli).min(WHOLE_MILLI);
    // 64 bits times 64 bits times ten: only absurd prices leave 128 bits, and then it is worth all.
    let worth = u128::from(pause.prefix_tokens)
        .saturating_mul(u128::from(more))
        .saturating_mul(u128::from(returns));
    u64::try_from(worth / u128::from(WHOLE_MILLI)).unwrap_or(u64::MAX)
}

/// The request once more, as one that generates nothing: output limit 0, no stream. `body` is what
/// was sent and `view` what was seen in it; slices of it, with the two values replaced.
///
/// `None` where the provider would refuse that, where changing more would be needed (and would make
/// it another prefix), where the body must not be edited, the provider holds the history, or the
/// request generates nothing as it is.
#[must_use]
pub fn ping_body(body: &Bytes, view: &RequestView) -> Option<Vec<Bytes>> {
    if view.no_prewarm.is_some()
        || view.uneditable.is_some()
        || view.history != History::Whole
        || view.max_tokens.is_none_or(|limit| limit == 0)
    {
        return None;
    }
    let limit: (Span, &'static [u8]) = (view.max_tokens_at?, b"0");
    let stream = view.stream_at.filter(|_| view.stream);
    let mut edits = vec![limit];
    edits.extend(stream.map(|at| (at, &b"false"[..])));
    edits.sort_unstable_by_key(|(at, _)| at.start);
    let mut pieces = Vec::with_capacity(5);
    let mut done = 0;
    for (at, value) in edits {
        let (start, end) = (at.start as usize, at.end as usize);
        if start < done || end < start || end > body.len() {
            return None;
        }
        pieces.push(body.slice(done..start));
        pieces.push(Bytes::from_static(value));
        done = end;
    }
    pieces.push(body.slice(done..));
    Some(pieces)
}

/// What keeping warm saved in the turn that ended the pause: it read `read` tokens, `gap_ms` after
/// the start of the thread's previous turn. `None` where nothing was sent. A pause within the
/// lifetime needed no help: then the pings are only a cost. `cost_pico` is `None` where the cost of
/// one is not known, which leaves the sum unknown.
#[must_use]
pub fn saving(
    pings: u32,
    cost_pico: Option<u64>,
    gap_ms: i64,
    read: u64,
    rates: Option<&Rates>,
    ttl: Ttl,
) -> Option<Saving> {
    if pings == 0 {
        return None;
    }
    let tokens = if gap_ms > ttl.ms() { read } else { 0 };
    let known = cost_pico.and(rates);
    Some(super::saving(tokens, known, ttl, cost_pico.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::RATES;
    use super::*;
    use crate::provider::anthropic::request::view;
    use proptest::prelude::*;
    use serde_json::Value;

    const START: i64 = 1_796_083_200_000;

    fn pause() -> Pause {
        Pause {
            rates: RATES,
            ttl: Ttl::M5,
            prefix_tokens: 100_000,
            returns_milli: 1000,
            outlasts_milli: 370,
            ceiling_micro_usd: 1_000_000,
        }
    }

    fn fresh() -> Progress {
        Progress {
            refreshed_ms: START,
            pings: 0,
            spent_pico: 0,
        }
    }

    /// Pings until it ends: how many, what they cost, when the last was, and why it ended.
    fn run(pause: &Pause) -> (u32, u64, i64, Stop) {
        let (mut so_far, mut now) = (fresh(), START);
        loop {
            match next(pause, &so_far, now) {
                Next::Stop(why) => return (so_far.pings, so_far.spent_pico, now, why),
                Next::At(at) => {
                    assert!(at >= now, "time goes on");
                    now = at;
                    so_far = Progress {
                        refreshed_ms: now,
                        pings: so_far.pings + 1,
                        spent_pico: so_far.spent_pico + pause.prefix_tokens * pause.rates.read_pico,
                    };
                }
            }
        }
    }

    #[test]
    fn it_ends_before_it_costs_more_than_a_rewrite() {
        // A ping is 100,000 x 0.10 / 1e6 = USD 0.01, a rewrite costs 0.24 more than a read.
        let (pings, spent, at, why) = run(&pause());
        assert_eq!((pings, why), (24, Stop::NotWorthIt));
        assert_eq!(spent, 240_000_000_000);
        assert_eq!(at, START + 24 * 280_000);
        // Whoever comes back every fourth time is worth a quarter.
        let seldom = Pause {
            returns_milli: 250,
            ..pause()
        };
        assert_eq!(run(&seldom).0, 6);
        let never = Pause {
            returns_milli: 0,
            ..pause()
        };
        assert_eq!(run(&never), (0, 0, START, Stop::NotWorthIt));
        // An hour: 4.00 - 0.10 = 39 pings, each after 59 minutes and 40 seconds.
        let hour = Pause {
            ttl: Ttl::H1,
            ..pause()
        };
        let (pings, _, at, why) = run(&hour);
        assert_eq!((pings, why), (39, Stop::NotWorthIt));
        assert_eq!(at, START + 39 * 3_580_000);
    }

    #[test]
    fn the_ceiling_is_never_passed() {
        for (micro_usd, pings, why) in [
            (0, 0, Stop::Off),
            (9_999, 0, Stop::Ceiling),
            (10_000, 1, Stop::Ceiling),
            (35_000, 3, Stop::Ceiling),
            (u64::MAX, 24, Stop::NotWorthIt),
        ] {
            let capped = Pause {
                ceiling_micro_usd: micro_usd,
                ..pause()
            };
            let ended = run(&capped);
            assert_eq!((ended.0, ended.3), (pings, why), "{micro_usd}");
        }
    }

    #[test]
    fn a_ping_that_had_to_write_again_ends_it() {
        let dear = Progress {
            pings: 1,
            spent_pico: 250_000_000_000,
            ..fresh()
        };
        assert_eq!(next(&pause(), &dear, START), Next::Stop(Stop::NotWorthIt));
    }

    #[test]
    fn the_lifetime_counts_from_the_start_of_the_request() {
        // A generation that took 4:50 leaves ten seconds: at once.
        let late = next(&pause(), &fresh(), START + 290_000);
        assert_eq!(late, Next::At(START + 280_000));
        for now in [START + 300_000, START + 900_000] {
            assert_eq!(next(&pause(), &fresh(), now), Next::Stop(Stop::Expired));
        }
    }

    #[test]
    fn short_pauses_and_empty_prefixes_are_left_alone() {
        let after_a_tool_call = Pause {
            outlasts_milli: 7,
            ..pause()
        };
        assert_eq!(run(&after_a_tool_call).3, Stop::ShortPauses);
        let empty = Pause {
            prefix_tokens: 0,
            ..pause()
        };
        assert_eq!(run(&empty).3, Stop::Off);
    }

    fn pinged(body: &str) -> Option<String> {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let pieces = ping_body(&body, &view(&body).unwrap())?;
        Some(String::from_utf8(pieces.concat()).unwrap())
    }

    #[test]
    fn a_ping_is_the_request_that_generates_nothing() {
        assert_eq!(
            pinged(r#"{"stream": true ,"model":"m","max_tokens": 32000}"#).unwrap(),
            r#"{"stream": false ,"model":"m","max_tokens": 0}"#
        );
        assert_eq!(
            pinged(r#"{"max_tokens":1,"stream":false,"thinking":{"type":"disabled"}}"#).unwrap(),
            r#"{"max_tokens":0,"stream":false,"thinking":{"type":"disabled"}}"#
        );
        assert_eq!(
            pinged(r#"{"max_tokens":1}"#).unwrap(),
            r#"{"max_tokens":0}"#
        );
    }

    #[test]
    fn what_would_be_refused_or_another_prefix_is_not_sent() {
        for body in [
            "{}",
            r#"{"max_tokens":0}"#,
            r#"{"max_tokens":"many"}"#,
            r#"{"max_tokens":9,"max_tokens":9}"#,
            r#"{"max_tokens":9,"thinking":{"type":"adaptive"}}"#,
            r#"{"max_tokens":9,"tool_choice":{"type":"any"}}"#,
            r#"{"max_tokens":9,"output_config":{"format":{"type":"json_schema"}}}"#,
            r#"{"max_tokens":9,"thread":{"type":"create"}}"#,
        ] {
            assert_eq!(pinged(body), None, "{body}");
        }
    }

    #[test]
    fn the_saving_is_what_was_read_less_the_pings() {
        let saved = |pings, cost, gap, read| {
            saving(pings, cost, gap, read, Some(&RATES), Ttl::M5).map(|s| (s.tokens, s.pico))
        };
        let cost = Some(20_000_000_000);
        // 100,000 x (2.50 - 0.10) / 1e6 - 0.02 = USD 0.22.
        assert_eq!(
            saved(2, cost, 700_000, 100_000),
            Some((100_000, Some(220_000_000_000)))
        );
        assert_eq!(
            saved(1, cost, 300_000, 100_000),
            Some((0, Some(-20_000_000_000))),
            "within the lifetime it was only a cost"
        );
        assert_eq!(saved(2, None, 700_000, 9), Some((9, None)));
        assert_eq!(saved(0, Some(0), 700_000, 9), None);
    }

    proptest! {
        /// Whatever the numbers: never above the ceiling, never above what the prefix is worth,
        /// never after the entries expired, and it ends.
        #[test]
        fn every_pause_is_bounded(prefix in 0..2_000_000_u64, returns in 0..2000_u32, outlasts in 0..1001_u32,
            ceiling in 0..5_000_000_u64, hour in any::<bool>(), read in 1..2_000_000_u64) {
            let pause = Pause {
                rates: Rates { read_pico: read, ..RATES },
                ttl: if hour { Ttl::H1 } else { Ttl::M5 },
                prefix_tokens: prefix,
                returns_milli: returns,
                outlasts_milli: outlasts,
                ceiling_micro_usd: ceiling,
            };
            let (_, spent, _, _) = run(&pause);
            prop_assert!(u128::from(spent) <= u128::from(ceiling) * 1_000_000);
            prop_assert!(spent <= worth_pico(&pause));
        }

        /// Any text around them: only the two values differ.
        #[test]
        fn only_limit_and_stream_differ(text in any::<String>(), limit in 1..1_000_000_u32, stream in any::<bool>()) {
            let text = Value::from(text);
            let body = format!(r#"{{"system":{text},"stream":{stream},"max_tokens":{limit},"messages":[{{"role":"user","content":{text}}}]}}"#);
            let mut expected: Value = serde_json::from_str(&body).unwrap();
            expected["stream"] = false.into();
            expected["max_tokens"] = 0.into();
            let sent: Value = serde_json::from_str(&pinged(&body).unwrap()).unwrap();
            prop_assert_eq!(sent, expected);
        }
    }
}
