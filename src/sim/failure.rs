//! Failures that a script asks for by name.

use super::answer::INJECTED;
use super::clock::rfc3339;
use super::error::{ApiError, kind_of};

/// What a named failure does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// A refusal.
    Refuse(ApiError),
    /// The connection breaks before the head.
    Drop,
    /// No head ever comes.
    Stall,
    /// `502` with a page that is not the API's.
    Html,
    /// The answer comes compressed, whatever the client accepts; broken if the flag is set.
    Gzip(bool),
    /// A complete answer that only says that it failed, with this stop reason.
    Synthetic(&'static str),
    /// Something inside the body.
    Inside,
}

/// Reads a failure's name; `None` for an unknown one.
#[must_use]
pub fn named(kind: &str, now_ms: u64) -> Option<Failure> {
    Some(match kind {
        "drop0" => Failure::Drop,
        "stall0" => Failure::Stall,
        "html502" => Failure::Html,
        "gzip" => Failure::Gzip(false),
        "gzip_bad" => Failure::Gzip(true),
        "synth" => Failure::Synthetic("end_turn"),
        "synth_refusal" => Failure::Synthetic("refusal"),
        "synth_max" => Failure::Synthetic("max_tokens"),
        "drop" | "drop_tool" | "cut" | "cut_tool" | "stall" | "sse_overloaded"
        | "sse_api_error" | "sse_rate_limit" | "sse_invalid" | "sse_permission" => Failure::Inside,
        _ => Failure::Refuse(refusal(kind, now_ms)?),
    })
}

/// A status with an optional word: `429ra`, `400bill`, `529ns` ...
fn refusal(kind: &str, now_ms: u64) -> Option<ApiError> {
    let (digits, word) = kind.split_at_checked(3)?;
    let status = digits
        .parse()
        .ok()
        .filter(|status| (400..600).contains(status))?;
    let message = if status == 529 {
        "Overloaded"
    } else {
        INJECTED
    };
    let mut error = ApiError::new(status, message);
    let mut header = |name: &'static str, value: &str| error.headers.push((name, value.to_owned()));
    match word {
        "" | "quota" => {}
        "ra" => header("retry-after", "2"),
        "ralong" => header("retry-after", "3600"),
        "ns" => header("x-should-retry", "false"),
        "rans" => {
            header("retry-after", "2");
            header("x-should-retry", "false");
        }
        "reset" => {
            header("retry-after", "5");
            header("anthropic-ratelimit-requests-remaining", "0");
            header(
                "anthropic-ratelimit-requests-reset",
                &rfc3339(now_ms + 5_000),
            );
        }
        "bill" => error.kind = kind_of(402),
        "cap" => error.kind = "gateway_cap_error",
        _ => return None,
    }
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_the_script_says() {
        let refused = |kind: &str| match named(kind, 0) {
            Some(Failure::Refuse(error)) => error,
            other => panic!("{kind}: {other:?}"),
        };
        assert_eq!(
            (refused("429").status, refused("429").headers.len()),
            (429, 0)
        );
        assert_eq!(refused("429ra").headers, [("retry-after", "2".to_owned())]);
        assert_eq!(refused("529").kind, "overloaded_error");
        assert_eq!(refused("400bill").kind, "billing_error");
        assert_eq!(refused("503rans").headers.len(), 2);
        assert_eq!(named("cut_tool", 0), Some(Failure::Inside));
        for unknown in ["", "200", "429xx", "99", "nonsense", "é9"] {
            assert_eq!(named(unknown, 0), None, "{unknown}");
        }
    }
}
