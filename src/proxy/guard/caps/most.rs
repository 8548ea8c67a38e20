//! The most that a request can use, and what it has used in the end.

use super::Asking;
use crate::guard::caps::Amounts;
use crate::provider::view::{BlockKind, History};
use crate::proxy::Shared;
use crate::run::Seat;
use crate::trace::{Outcome, RequestKind, TurnRecord};
use crate::usage::{Metered, Priced, Speed, Usage};

/// There is no price because the body could not be read.
pub(super) const UNREAD: &str = "unread_body";
/// The least bytes that stand for a token, in thousandths, where a thread has not shown its own:
/// dense code and foreign scripts come close to it.
const DENSE_MILLI: u64 = 2_000;
/// How much denser than its own average a thread's new text may be, as a fraction of the average.
const DENSER: (u64, u64) = (4, 5);
/// A picture or document that is only named may be this small in the body ...
const NAMED_BYTES: u32 = 2_048;
/// ... and is taken to have this many tokens: the most that a picture has (provider docs, Nov 2026).
const NAMED_TOKENS: u64 = 5_000;

/// Tokens that a request can have at most.
pub(super) fn bounds(shared: &Shared, seat: &Seat, asking: &Asking<'_>) -> (u64, u64) {
    let bytes = asking.bytes as u64;
    let milli = seat.bytes_per_token_milli.map(u64::from);
    let milli = milli
        .map_or(DENSE_MILLI, |milli| milli * DENSER.0 / DENSER.1)
        .max(1);
    let mut input = bytes.saturating_mul(1_000).div_ceil(milli);
    let blocks = asking.view.map_or(&[][..], |view| &view.blocks);
    let named = |kind| matches!(kind, BlockKind::Image | BlockKind::Document);
    let pictures = blocks
        .iter()
        .filter(|block| named(block.kind) && block.span.len() <= NAMED_BYTES);
    input = input.saturating_add(NAMED_TOKENS.saturating_mul(pictures.count() as u64));
    if let Some(History::Continues(_)) = asking.view.map(|view| &view.history) {
        input = input.saturating_add(seat.last_tokens.unwrap_or(0));
    }
    let limit = asking.view.and_then(|view| view.max_tokens);
    (
        input,
        limit.unwrap_or(shared.config.caps.default_max_tokens),
    )
}

/// The most that so many tokens can cost, in pico-USD, or why that is unknown.
pub(super) fn price(
    shared: &Shared,
    asking: &Asking<'_>,
    input: u64,
    output: u64,
    now_ms: i64,
) -> Result<u64, &'static str> {
    let view = asking.view.ok_or(UNREAD)?;
    let zero = Some(0);
    let (uncached, write_5m, write_1h) = match asking.writes {
        None => (Some(input), zero, zero),
        Some(ttl) if ttl.is_long() => (zero, zero, Some(input)),
        Some(_) => (zero, Some(input), zero),
    };
    let metered = Metered {
        usage: Usage {
            uncached,
            read: zero,
            write_5m,
            write_1h,
            output: Some(output),
            web_searches: zero,
            ..Usage::default()
        },
        speed: if view.fast {
            Speed::Fast
        } else {
            Speed::Standard
        },
        ..Metered::default()
    };
    let model = view.model.as_deref();
    match shared
        .prices
        .price(asking.price_provider, &metered, model, now_ms)
    {
        Priced::Known { pico, .. } => Ok(pico),
        Priced::Unpriced { reason, .. } => Err(reason),
    }
}

/// What an ended request has used, and what was booked in place of an unknown cost.
pub(in crate::proxy) fn used(
    record: &TurnRecord,
    finished: bool,
    most: &Amounts,
) -> (Amounts, Option<u64>) {
    let answered = record.status.is_some_and(|s| (200..300).contains(&s))
        && record.outcome != Outcome::Refused;
    if !answered {
        // Nothing was generated, or nothing is known of it that could be booked.
        return (Amounts::default(), None);
    }
    let usage = &record.usage;
    let known = usage.inputs();
    let input = known
        .iter()
        .flatten()
        .fold(0_u64, |sum, n| sum.saturating_add(*n));
    let input_known = known.iter().any(Option::is_some);
    // A whole answer that does not say what it used is taken at the most it could have used.
    let or_most = |told: Option<u64>, most: u64| told.unwrap_or(if finished { most } else { 0 });
    let pico = or_most(record.cost_pico, most.pico);
    let booked = (record.cost_pico.is_none() && pico > 0).then_some(pico);
    let amounts = Amounts {
        turns: u64::from(record.kind == RequestKind::Turn),
        input: or_most(input_known.then_some(input), most.input),
        output: or_most(usage.output, most.output),
        pico,
    };
    (amounts, booked)
}
