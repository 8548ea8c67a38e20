//! The price engine as a whole: the provider's table, the cases, and properties over any usage.

mod book;
mod cases;
mod properties;
mod rules;
mod table;

use super::*;

/// Midnights UTC.
const SEPT_30: i64 = 1_790_726_400_000;
const OCT_07: i64 = 1_791_331_200_000;
const NOV_29: i64 = 1_795_910_400_000;
const NOV_30: i64 = 1_795_996_800_000;

const P: &str = "anthropic";

fn per_mtok(text: &str) -> u64 {
    pico_from_decimal_usd_per_mtok(text).unwrap()
}

/// The model of the cases' price table.
fn test_sonnet() -> PriceOverride {
    PriceOverride {
        model: "test-sonnet".into(),
        input_pico: per_mtok("3.00"),
        output_pico: per_mtok("15.00"),
        read_pico: per_mtok("0.30"),
        write_5m_pico: per_mtok("3.75"),
        write_1h_pico: per_mtok("6.00"),
        min_cache_tokens: Some(1024),
    }
}

fn book() -> PriceBook {
    PriceBook::new(&[test_sonnet()]).unwrap()
}

fn usage(uncached: u64, read: u64, write_5m: u64, write_1h: u64, output: u64) -> Usage {
    Usage {
        uncached: Some(uncached),
        read: Some(read),
        write_5m: Some(write_5m),
        write_1h: Some(write_1h),
        output: Some(output),
        ..Usage::default()
    }
}

fn answer(model: &str, usage: Usage) -> Metered {
    Metered {
        model: Some(model.into()),
        usage,
        ..Metered::default()
    }
}

fn cost(book: &PriceBook, metered: &Metered) -> String {
    match book.price(P, metered, None, NOV_29) {
        Priced::Known { pico, .. } => usd(pico),
        unpriced @ Priced::Unpriced { .. } => format!("{unpriced:?}"),
    }
}

fn reason(priced: &Priced) -> (&'static str, Option<u64>) {
    match priced {
        Priced::Unpriced {
            reason,
            lower_bound_pico,
        } => (reason, *lower_bound_pico),
        Priced::Known { .. } => ("known", None),
    }
}

fn notes(priced: &Priced) -> Vec<&'static str> {
    match priced {
        Priced::Known { notes, .. } => notes.clone(),
        Priced::Unpriced { .. } => vec!["unpriced"],
    }
}
