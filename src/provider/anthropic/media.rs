//! Images and documents inside a request, as far as they are left out where content is kept.

/// Shorter values are shown as they are.
const MIN_BYTES: usize = 64;
/// The member that holds where a block's bytes come from, and the one of the bytes themselves.
/// Source: provider docs, Nov 2026.
const PLACE: (&str, &str) = ("source", "data");

/// The member whose object may hold bytes.
#[must_use]
pub fn is_holder(member: &str) -> bool {
    member == PLACE.0
}

/// The member of such an object in which they stand.
#[must_use]
pub fn is_data(member: &str) -> bool {
    member == PLACE.1
}

/// How many bytes a value there stands for, if it is their encoding (Base64); `None` if it is text.
#[must_use]
pub fn encoded_bytes(value: &str) -> Option<u64> {
    if value.len() < MIN_BYTES {
        return None;
    }
    base64_bytes(value)
}

/// How many bytes a text stands for that is Base64 from its first letter to its last.
#[must_use]
pub fn base64_bytes(text: &str) -> Option<u64> {
    let mut letters = 0_u64;
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' | b'-' | b'_' => letters += 1,
            b'=' | b'\n' | b'\r' => {}
            _ => return None,
        }
    }
    Some(letters * 3 / 4)
}

#[cfg(test)]
mod tests {
    use super::{base64_bytes, encoded_bytes};

    #[test]
    fn bytes_are_told_from_text() {
        assert_eq!(base64_bytes("TWFu"), Some(3));
        assert_eq!(base64_bytes("TWE="), Some(2));
        assert_eq!(base64_bytes("not base64"), None);
        let long = "QUJD".repeat(32);
        assert_eq!(encoded_bytes(&long), Some(96));
        assert_eq!(encoded_bytes("QUJD"), None);
        let plain = "A plain document, which is text. ".repeat(8);
        assert_eq!(encoded_bytes(&plain), None);
    }
}
