//! Spellings of model names: which names mean the same model, by rules and never by a shared prefix.
//!
//! A name is tried as it is first, then with one decoration after the other taken off, in this order:
//!
//! | decoration | example | rest |
//! |---|---|---|
//! | context-size tag | `test-sonnet[1m]` | `test-sonnet` |
//! | path or vendor before the last `/` | `vendor/test-sonnet` | `test-sonnet` |
//! | up to two leading labels of letters and dashes | `us.vendor.test-sonnet-v1:0` | `test-sonnet-v1:0` |
//! | deployment version | `test-sonnet-v1:0` | `test-sonnet` |
//! | release date | `test-sonnet-20261101`, `test-sonnet@20261101`, `test-sonnet-2026-11-01` | `test-sonnet` |
//!
//! Letters compare without case, and a dot between two digits compares like a dash (`5.5`, `5-5`).

/// Longest name that is looked at, in bytes; anything longer is no model's name.
pub(super) const MAX_NAME: usize = 256;
/// Leading labels that are taken off: a region and a vendor.
const MAX_LABELS: usize = 2;

/// The spellings of `name` to try, best first; never more than six, all lower-case.
pub(super) fn spellings(name: &str) -> Vec<String> {
    let lower = name.trim().to_ascii_lowercase();
    if lower.is_empty() || lower.len() > MAX_NAME {
        return Vec::new();
    }
    let mut all = Vec::with_capacity(6);
    let mut rest = lower.as_str();
    all.push(rest.to_owned());
    for rule in [
        without_size_tag,
        without_vendor_path,
        without_labels,
        without_version,
        without_date,
    ] {
        let shorter = rule(rest);
        if !shorter.is_empty() && shorter != rest {
            rest = shorter;
            all.push(rest.to_owned());
        }
    }
    all
}

/// The form in which two names are compared: every decoration off, dots between digits as dashes.
pub(super) fn base(name: &str) -> String {
    let bare = spellings(name).pop().unwrap_or_default();
    dashed(bare.strip_suffix("-latest").unwrap_or(&bare))
}

/// `name` with dots between digits as dashes.
pub(super) fn dashed(name: &str) -> String {
    let bytes = name.as_bytes();
    let digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    name.char_indices()
        .map(|(at, c)| match c {
            '.' if digit(at.checked_sub(1)) && digit(Some(at + 1)) => '-',
            c => c,
        })
        .collect()
}

/// `[1m]`: digits and one letter in brackets at the end.
fn without_size_tag(name: &str) -> &str {
    let tag = name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['));
    match tag {
        Some((rest, tag)) if is_size(tag) => rest,
        _ => name,
    }
}

fn is_size(tag: &str) -> bool {
    tag.strip_suffix(|c: char| c.is_ascii_alphabetic())
        .is_some_and(all_digits)
}

fn without_vendor_path(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, rest)| rest)
}

fn without_labels(name: &str) -> &str {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    };
    let mut rest = name;
    for _ in 0..MAX_LABELS {
        match rest.split_once('.') {
            Some((label, after)) if is_label(label) => rest = after,
            _ => break,
        }
    }
    rest
}

/// `-v1:0`.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("-v") {
        Some((rest, version)) => match version.split_once(':') {
            Some((major, minor)) if all_digits(major) && all_digits(minor) => rest,
            _ => name,
        },
        None => name,
    }
}

/// `-YYYYMMDD`, `@YYYYMMDD` or `-YYYY-MM-DD`.
fn without_date(name: &str) -> &str {
    if let Some((rest, date)) = name.rsplit_once(['-', '@'])
        && date.len() == 8
        && is_date(date.get(..4), date.get(4..6), date.get(6..))
    {
        return rest;
    }
    let Some((rest, date)) = name
        .len()
        .checked_sub(11)
        .and_then(|at| name.split_at_checked(at))
    else {
        return name;
    };
    let mut parts = date.strip_prefix('-').unwrap_or_default().split('-');
    if is_date(parts.next(), parts.next(), parts.next()) {
        rest
    } else {
        name
    }
}

fn is_date(year: Option<&str>, month: Option<&str>, day: Option<&str>) -> bool {
    let number = |part: Option<&str>, length: usize| {
        part.filter(|part| part.len() == length && all_digits(part))
            .and_then(|part| part.parse::<u16>().ok())
    };
    number(year, 4).is_some_and(|y| (2000..2100).contains(&y))
        && number(month, 2).is_some_and(|m| (1..=12).contains(&m))
        && number(day, 2).is_some_and(|d| (1..=31).contains(&d))
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decorations_come_off_in_order() {
        for (name, bare) in [
            ("test-sonnet", "test-sonnet"),
            ("Test-Sonnet", "test-sonnet"),
            ("vendor/test-sonnet", "test-sonnet"),
            ("a/b/c/test-sonnet", "test-sonnet"),
            ("test-sonnet[1m]", "test-sonnet"),
            ("test-sonnet-20261101", "test-sonnet"),
            ("test-sonnet@20261101", "test-sonnet"),
            ("test-sonnet-2026-11-01", "test-sonnet"),
            ("vendor/test-sonnet-20261101[1m]", "test-sonnet"),
            (
                "us.anthropic.claude-haiku-4-5-20251001-v1:0",
                "claude-haiku-4-5",
            ),
            ("us-gov.anthropic.claude-opus-5-5", "claude-opus-5-5"),
            ("anthropic.claude-opus-5-5", "claude-opus-5-5"),
            ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ] {
            assert_eq!(base(name), bare, "{name}");
        }
        assert_eq!(base("claude-opus-5.5"), base("claude-opus-5-5"));
        assert_eq!(
            base("claude-3-5-haiku-latest"),
            base("claude-3-5-haiku-20241022")
        );
    }

    #[test]
    fn what_is_not_a_decoration_stays() {
        for name in [
            "test-sonnet-mini",
            "test-sonnet[fast=true]",
            "test-sonnet-20269901",
            "test-sonnet-12345678",
            "test-sonnet-202611011",
            "test-sonnet-v1",
            "gpt-5.1",
            "test-sonnet-",
        ] {
            assert_eq!(spellings(name), [name]);
        }
        assert!(spellings("").is_empty());
        assert!(spellings(&"x".repeat(MAX_NAME + 1)).is_empty());
    }

    proptest! {
        #[test]
        fn any_name_is_survived(name in "\\PC{0,40}", tail in "([-@./\\[\\]:v0-9a-z]|é){0,24}") {
            let name = format!("{name}{tail}");
            let all = spellings(&name);
            prop_assert!(all.len() <= 6);
            prop_assert!(all.iter().all(|s| !s.is_empty()));
            let _ = base(&name);
        }
    }
}
