//! Stored trails: any bytes are an error or a trail that is written and read back alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::prompt_cache::trail::code::{decode, encode};

fuzz_target!(|input: (&[u8], &[u8])| {
    let before = decode(input.0, None).ok();
    let Ok(now) = decode(input.1, before.as_ref()) else {
        return;
    };
    assert_eq!(decode(&encode(&now, before.as_ref()), before.as_ref()), Ok(now.clone()));
    assert_eq!(decode(&encode(&now, None), None), Ok(now));
});
