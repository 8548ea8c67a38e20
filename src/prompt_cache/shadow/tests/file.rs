//! Saved entries.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::table::Key;
use super::*;

const LIMIT: usize = 1 << 20;

fn entries(shadow: &Shadow) -> BTreeMap<Key, Entry> {
    shadow
        .table
        .iter()
        .map(|(key, entry)| (*key, *entry))
        .collect()
}

/// A cache with some entries of all kinds, and a turn under way.
fn filled(count: u64) -> Shadow {
    let mut shadow = shadow();
    for number in 0..count {
        let ttl = if number % 2 == 0 { Ttl::M5 } else { Ttl::H1 };
        let prompt = Prompt::of(2).other(number).mark(4, ttl);
        let number = u128::from(number);
        shadow.announce(number, &prompt);
        match number % 3 {
            0 => shadow.begin_and_settle(number, &Usage::default()),
            _ => shadow.begin_and_settle(number, &usage(0, 0, 5 + number as u64, 0)),
        };
    }
    shadow.announce(1 << 64, &Prompt::of(9).last());
    shadow
}

#[test]
fn what_is_saved_is_there_again_but_for_turns_under_way() {
    let shadow = filled(50);
    assert_eq!(shadow.len(), 50);
    let again = Shadow::decode(&shadow.encode(), LIMIT, START + 1).unwrap();
    assert_eq!(entries(&again), entries(&shadow));
    assert_eq!(again.under_way(), 0);
    let prompt = Prompt::of(2).other(7).last();
    assert_eq!(again.ask(&prompt).read, shadow.ask(&prompt).read);
    assert!(
        Shadow::decode(&self::shadow().encode(), LIMIT, START)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn what_is_not_worth_knowing_any_more_is_left_out() {
    let bytes = filled(50).encode();
    let of = |ms: i64| Shadow::decode(&bytes, LIMIT, START + ms).unwrap();
    assert_eq!(of(6 * MINUTE).len(), 50, "expired, and told so");
    assert_eq!(
        of(KEEP_EXPIRED_MS + 6 * MINUTE).len(),
        41,
        "only the long ones"
    );
    assert_eq!(of(KEEP_EXPIRED_MS + 61 * MINUTE).len(), 0);
    // After the clock was set back by a day nothing lives longer than its lifetime.
    let back = of(-KEEP_EXPIRED_MS);
    let latest = START - KEEP_EXPIRED_MS + 60 * MINUTE;
    assert!(
        entries(&back)
            .values()
            .all(|entry| entry.expires_ms <= latest)
    );
    assert_eq!(back.len(), 50);
    let small = Shadow::decode(&filled(900).encode(), 8 << 10, START).unwrap();
    assert!(small.bytes() <= 8 << 10 && !small.is_empty());
}

#[test]
fn each_fault_has_its_reason() {
    let bytes = filled(5).encode();
    let of = |bytes: &[u8]| Shadow::decode(bytes, LIMIT, START).unwrap_err();
    assert_eq!(of(b""), Corrupt::Foreign);
    assert_eq!(of(b"SQLite format 3\0"), Corrupt::Foreign);
    let (expected, found) = (bytes.len() as u64, bytes.len() as u64 - 1);
    assert_eq!(
        of(&bytes[..bytes.len() - 1]),
        Corrupt::Length { expected, found }
    );
    let more = [bytes.clone(), vec![0]].concat();
    assert_eq!(
        of(&more),
        Corrupt::Length {
            expected,
            found: expected + 1
        }
    );
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    assert_eq!(of(&with(8, 2)), Corrupt::Version(2));
    assert_eq!(of(&with(30, bytes[30] ^ 1)), Corrupt::Checksum);
    // Written so by something that knows how to make a checksum.
    let mut forged = with(20 + 44, 9);
    let end = forged.len() - 8;
    let check = xxhash_rust::xxh3::xxh3_64(&forged[..end]);
    forged[end..].copy_from_slice(&check.to_le_bytes());
    assert_eq!(of(&forged), Corrupt::Entry(0));
    assert_eq!(
        of(&with(8, 2)).to_string(),
        "it has format 2, and this version of prefixgate reads format 1"
    );
}

#[test]
fn every_cut_and_every_flipped_bit_is_refused() {
    let bytes = filled(3).encode();
    for end in 0..bytes.len() {
        assert!(
            Shadow::decode(&bytes[..end], LIMIT, START).is_err(),
            "{end}"
        );
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Shadow::decode(&bytes, LIMIT, START).is_err(), "{bit}");
    }
}

proptest! {
    #[test]
    fn damage_is_refused_or_changes_nothing(
        count in 0..40_u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
        more in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let shadow = filled(count);
        let mut bytes = shadow.encode();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        bytes.extend(more);
        if let Ok(again) = Shadow::decode(&bytes, LIMIT, START) {
            prop_assert_eq!(entries(&again), entries(&shadow));
        }
    }

    #[test]
    fn any_bytes_are_no_trouble(bytes in prop::collection::vec(any::<u8>(), 0..200), now in any::<i64>()) {
        let whole = [b"pgshadow\x01\0\0\0".as_slice(), &bytes].concat();
        prop_assert!(Shadow::decode(&bytes, LIMIT, now).is_err());
        prop_assert!(Shadow::decode(&whole, LIMIT, now).is_err());
    }
}
