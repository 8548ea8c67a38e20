//! Saved entries of the prompt cache: any bytes are refused or read, never a panic, and what was
//! read is saved and read again alike. The first byte chooses between raw bytes and ones whose
//! length and checksum are right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::prompt_cache::shadow::Shadow;
use xxhash_rust::xxh3::xxh3_64;

const LIMIT: usize = 64 << 10;
const NOW_MS: i64 = 1_800_000_000_000;
const ENTRY: usize = 45;

fuzz_target!(|input: &[u8]| {
    let [which, rest @ ..] = input else { return };
    let bytes = if which % 2 == 0 {
        rest.to_vec()
    } else {
        let count = rest.len() / ENTRY;
        let mut bytes = b"pgshadow\x01\0\0\0".to_vec();
        bytes.extend_from_slice(&(count as u64).to_le_bytes());
        bytes.extend_from_slice(&rest[..count * ENTRY]);
        let check = xxh3_64(&bytes);
        bytes.extend_from_slice(&check.to_le_bytes());
        bytes
    };
    let Ok(shadow) = Shadow::decode(&bytes, LIMIT, NOW_MS) else {
        return;
    };
    assert!(shadow.bytes() <= LIMIT);
    let saved = shadow.encode();
    let again = Shadow::decode(&saved, LIMIT, NOW_MS).expect("what was saved is read");
    assert_eq!(again.len(), shadow.len());
});
