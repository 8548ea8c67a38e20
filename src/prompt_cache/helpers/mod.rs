//! Helpers that change more than breakpoints. Off unless configured, each a pure function of what
//! it is given, each with its own saving.
//!
//! A saving is what reading cost less than writing the same tokens would have: tokens from reported
//! usage, prices from the book. It leaves out the premium of writes that were needed in any case.
//!
//! | helper | counts when | tokens |
//! |---|---|---|
//! | stable tool order | the client's order is another one than in the thread's previous turn | all that were read: tools stand first, so nothing before them could have been |
//! | warm-first | the awaited answer had begun | what was read beyond what was readable before the wait |
//! | keep-warm | the pause was longer than the lifetime | all that were read, less what the pings cost |

pub mod keep_warm;
pub mod tool_order;

use crate::provider::view::Ttl;
use crate::usage::Rates;

/// What a helper saved in one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saving {
    /// Tokens that were read thanks to it.
    pub tokens: u64,
    /// What that saved in pico-USD, negative where the helper cost more; `None` without a price.
    pub pico: Option<i64>,
}

/// What a write with this lifetime costs, in pico-USD per token.
#[must_use]
pub fn write_pico(rates: &Rates, ttl: Ttl) -> u64 {
    if ttl.is_long() {
        rates.write_1h_pico
    } else {
        rates.write_5m_pico
    }
}

/// Reading `tokens` instead of writing them, less what that cost beside.
fn saving(tokens: u64, rates: Option<&Rates>, ttl: Ttl, cost_pico: u64) -> Saving {
    let pico = rates.map(|rates| {
        let each = i128::from(write_pico(rates, ttl)) - i128::from(rates.read_pico);
        // A token count and a price of 64 bits each: the product fits 128.
        let sum = (i128::from(tokens).saturating_mul(each)).saturating_sub(i128::from(cost_pico));
        i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
    });
    Saving { tokens, pico }
}

/// What waiting for a sibling's answer to begin saved: the follower read `read` tokens, of which
/// `readable_before` could have been read without waiting. `None` where the awaited answer had not
/// begun, or nothing more was read than before.
#[must_use]
pub fn warm_first_saving(
    began: bool,
    read: u64,
    readable_before: u64,
    rates: Option<&Rates>,
    ttl: Ttl,
) -> Option<Saving> {
    let tokens = read.checked_sub(readable_before).filter(|n| *n > 0)?;
    began.then(|| saving(tokens, rates, ttl, 0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// USD 2 per million tokens in, 0.10 read, 2.50 and 4 written.
    pub(crate) const RATES: Rates = Rates {
        input_pico: 2_000_000,
        output_pico: 10_000_000,
        read_pico: 100_000,
        write_5m_pico: 2_500_000,
        write_1h_pico: 4_000_000,
    };

    #[test]
    fn reading_instead_of_writing() {
        let saved = |ttl, cost| saving(10_000, Some(&RATES), ttl, cost).pico;
        // 10,000 x (2.50 - 0.10) / 1e6 = USD 0.024.
        assert_eq!(saved(Ttl::M5, 0), Some(24_000_000_000));
        assert_eq!(saved(Ttl::H1, 0), Some(39_000_000_000));
        assert_eq!(saved(Ttl::M5, 25_000_000_000), Some(-1_000_000_000));
        assert_eq!(
            saving(u64::MAX, Some(&RATES), Ttl::H1, 0).pico,
            Some(i64::MAX)
        );
        assert_eq!(
            saving(0, Some(&RATES), Ttl::H1, u64::MAX).pico,
            Some(i64::MIN)
        );
        let unpriced = Saving {
            tokens: 7,
            pico: None,
        };
        assert_eq!(saving(7, None, Ttl::M5, 0), unpriced);
    }

    #[test]
    fn a_wait_saves_what_only_it_made_readable() {
        let saved = |began, read, before| {
            warm_first_saving(began, read, before, Some(&RATES), Ttl::M5)
                .map(|s| (s.tokens, s.pico))
        };
        assert_eq!(
            saved(true, 9_000, 1_000),
            Some((8_000, Some(19_200_000_000)))
        );
        assert_eq!(saved(false, 9_000, 1_000), None);
        assert_eq!(saved(true, 1_000, 1_000), None);
        assert_eq!(saved(true, 0, 1_000), None);
    }
}
