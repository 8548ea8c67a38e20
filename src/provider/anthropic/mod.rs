//! The Anthropic Messages wire format.

pub mod answer;
pub mod assembled;
pub mod diagnosis;
pub mod error;
pub mod media;
pub mod request;
pub(super) mod stream;
pub mod thinking;
pub mod tools;
mod usage;
mod wire;

use http::HeaderMap;

use crate::usage::{Metered, Usage};

/// The usage of the step that answers the request itself, where the provider lists its steps: the
/// others (compaction, advisors, further sampling) have prompts of their own.
#[must_use]
pub fn first_step(metered: &Metered) -> Option<Usage> {
    let first = metered
        .iterations
        .iter()
        .find(|step| step.kind == "message");
    first.map(|step| step.usage)
}

/// The set of beta features that a request asks for: a hash of it, whatever its order, and whether
/// the fast mode is among them, whose header is part of the cache's keys (code.claude.com, Nov 2026).
#[must_use]
pub fn betas(headers: &HeaderMap) -> (u64, bool) {
    let values = headers.get_all("anthropic-beta");
    let mut names: Vec<&str> = values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    names.dedup();
    let fast = names.iter().any(|name| name.starts_with("fast-mode"));
    (xxhash_rust::xxh3::xxh3_64(names.join(",").as_bytes()), fast)
}

#[cfg(test)]
mod tests {
    use super::betas;
    use http::HeaderMap;

    #[test]
    fn a_set_of_betas_has_no_order() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("anthropic-beta", value.parse().unwrap());
            }
            betas(&headers)
        };
        assert_eq!(of(&["a,b"]), of(&["b", "a ,b"]));
        assert_ne!(of(&["a"]), of(&["a,b"]));
        assert!(of(&["x, fast-mode-2026-02-01"]).1);
        assert!(!of(&[]).1);
    }
}
