//! Any text around a key, plain, escaped or in JSON in JSON: no panic, the key is never left, and
//! what has been redacted stays as it is. The first byte chooses how, the second where it stands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prefixgate::redact::{Counts, built_in};

/// Keys that the rules know, none of which a random text holds.
const KEYS: [&str; 4] = [
    "sk-ant-api03-Zq8xW5vB2nM7kL4jH1gF9dS6aP3oI0uY",
    "AKIAQZ7WX3VB9NM5KL1J",
    "ghp_Zq8xW5vB2nM7kL4jH1gF9dS6aP3oI0uYtR2e",
    "xoxb-482910375516-Zq8xW5vB2nM7kL4jH1gF",
];

fn escaped(text: &str, how: u8) -> String {
    let unit = |(at, c): (usize, char)| {
        if c.is_ascii() && how.rotate_left((at % 8) as u32) & 1 == 1 {
            format!("\\u{:04x}", u32::from(c))
        } else {
            c.to_string()
        }
    };
    text.chars().enumerate().map(unit).collect()
}

fuzz_target!(|input: &[u8]| {
    let [how, place, rest @ ..] = input else {
        return;
    };
    let text = String::from_utf8_lossy(rest);
    let at = text.floor_char_boundary(usize::from(*place));
    let key = KEYS[usize::from(*how) % KEYS.len()];
    let (before, after) = text.split_at(at);
    let spelled = match how >> 6 {
        0 => key.to_owned(),
        _ => escaped(key, *how),
    };
    let whole = format!("{before}{spelled}{after}");
    let mut counts = Counts::default();
    let redacted = built_in().text(&whole, &mut counts).into_owned();
    assert!(!redacted.contains(key), "{redacted}");
    assert_eq!(built_in().clean(&redacted), redacted);
    assert!(redacted.len() <= whole.len() * 12 + 64);
    for from in [0, at, at + key.len() / 2] {
        let from = whole.floor_char_boundary(from);
        let to = whole.floor_char_boundary(from + 40).max(from);
        let part = built_in().part(&whole, from..to);
        assert!(!part.contains(&key[..20.min(key.len())]), "{part}");
    }
    // As a tool input that lies in a string of a body.
    let inner = serde_json::json!({ "k": &*whole, "password": before }).to_string();
    let body = serde_json::json!({ "inner": inner, &*whole: [1, &*whole] }).to_string();
    let kept = prefixgate::trace::capture::redacted_json(&body, built_in(), &mut counts);
    let kept = kept.unwrap_or_else(|| panic!("no JSON: {body}"));
    let value: serde_json::Value = match serde_json::from_str(&kept) {
        Ok(value) => value,
        Err(error) => panic!("{error}: {kept}"),
    };
    assert!(!kept.contains(key) && !value.to_string().contains(key), "{kept}");
});
