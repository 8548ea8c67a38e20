//! The words by which records are known outside the program: in stores, JSON, labels and logs.
//!
//! A word, once released, never changes its meaning.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::{CallStatus, EventKind, Inspection, Outcome, RequestKind};
use crate::prompt_cache::verdict::{Reason, Status, What, Whose};

/// Distinct words that [`intern`] keeps. The program itself has far fewer.
const MAX_WORDS: usize = 512;
/// Longest word that [`intern`] keeps, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// Gives an enum its words, both ways.
macro_rules! words {
    ($name:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every value, in the order of its declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// The value of a word; `None` for one that this version does not know.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = std::borrow::Cow::<str>::deserialize(from)?;
                Self::from_word(&word).ok_or_else(|| {
                    serde::de::Error::custom(format_args!("no {} is '{word}'", stringify!($name)))
                })
            }
        }
    };
}

words!(RequestKind {
    Turn => "turn",
    CountTokens => "count_tokens",
    Models => "models",
    Batch => "batch",
    Probe => "probe",
    KeepWarm => "keep_warm",
    Other => "other",
});

words!(Outcome {
    Ok => "ok",
    UpstreamError => "upstream_error",
    UpstreamUnreachable => "upstream_unreachable",
    UpstreamCut => "upstream_cut",
    ClientAbort => "client_abort",
    ClientError => "client_error",
    Refused => "refused",
});

words!(CallStatus {
    Pending => "pending",
    Ok => "ok",
    Failed => "failed",
    Incomplete => "incomplete",
    Unanswered => "unanswered",
});

words!(EventKind {
    Loop => "loop",
    CapLevel => "cap_level",
    CapRefused => "cap_refused",
    CapUnenforced => "cap_unenforced",
    Alert => "alert",
});

words!(Status {
    Cold => "cold",
    Hit => "hit",
    Extended => "extended",
    Partial => "partial",
    Miss => "miss",
    NotCacheable => "not_cacheable",
});

words!(Reason {
    Model => "model",
    Speed => "speed",
    Beta => "beta",
    Tools => "tools",
    System => "system",
    Messages => "messages",
    Parameter => "parameter",
    Expired => "expired",
    Concurrent => "concurrent",
    Lookback => "lookback",
    BelowMinimum => "below_minimum",
    NoMarker => "no_marker",
    Evicted => "evicted",
    NotWritten => "not_written",
});

words!(Whose {
    Client => "client",
    Provider => "provider",
    Time => "time",
    Gateway => "gateway",
});

words!(What {
    Clock => "clock",
    Counter => "counter",
    Id => "id",
    Text => "text",
    Whitespace => "whitespace",
    Escapes => "escapes",
    KeyOrder => "key_order",
    ToolsReordered => "tools_reordered",
    ToolAdded => "tool_added",
    ToolRemoved => "tool_removed",
    ToolChanged => "tool_changed",
    Moved => "moved",
    Removed => "removed",
    Inserted => "inserted",
    Replaced => "replaced",
    ImageReplaced => "image_replaced",
    ResultPruned => "result_pruned",
    ThinkingDropped => "thinking_dropped",
    Compaction => "compaction",
    Rewound => "rewound",
    Reminder => "reminder",
    Unknown => "unknown",
});

impl Outcome {
    /// Whether the request was given on. One that was not has cost nothing and is no turn.
    #[must_use]
    pub const fn forwarded(self) -> bool {
        !matches!(self, Self::Refused | Self::ClientError)
    }

    /// Whether it went wrong; a client that leaves is not an error.
    #[must_use]
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Ok | Self::ClientAbort)
    }
}

impl Inspection {
    /// The stable word; the reason of [`Inspection::NotInspected`] is kept beside it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inspected => "inspected",
            Self::NotWanted => "not_wanted",
            Self::NotInspected(_) => "not_inspected",
        }
    }

    /// Why it was not inspected.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::NotInspected(reason) => Some(reason),
            _ => None,
        }
    }

    /// The value of a word and its reason; `None` for a word that this version does not know.
    #[must_use]
    pub fn from_words(word: &str, reason: Option<&str>) -> Option<Self> {
        match word {
            "inspected" => Some(Self::Inspected),
            "not_wanted" => Some(Self::NotWanted),
            "not_inspected" => Some(Self::NotInspected(intern(reason.unwrap_or("unknown")))),
            _ => None,
        }
    }
}

/// As `Inspection::as_str`, with the reason behind a colon.
impl serde::Serialize for Inspection {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.reason() {
            Some(reason) => to.collect_str(&format_args!("{}:{reason}", self.as_str())),
            None => to.serialize_str(self.as_str()),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Inspection {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        let (word, reason) = match text.split_once(':') {
            Some((word, reason)) => (word, Some(reason)),
            None => (&*text, None),
        };
        Self::from_words(word, reason)
            .ok_or_else(|| serde::de::Error::custom(format_args!("no inspection is '{word}'")))
    }
}

/// Turns a word that was read from a store back into a static one.
///
/// Records hold such words as `&'static str` because they come from the program's own vocabulary.
/// Another version may have written others, so they are remembered, up to a bound that no real
/// store reaches; beyond it they read as `other`.
#[must_use]
pub fn intern(word: &str) -> &'static str {
    static WORDS: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    let mut words = WORDS
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(word) {
        return known;
    }
    if words.len() >= MAX_WORDS || word.len() > MAX_WORD_BYTES {
        return "other";
    }
    let kept: &'static str = Box::leak(word.into());
    words.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_both_ways() {
        for kind in RequestKind::ALL {
            assert_eq!(RequestKind::from_word(kind.as_str()), Some(*kind));
        }
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_word(outcome.as_str()), Some(*outcome));
        }
        for status in CallStatus::ALL {
            assert_eq!(CallStatus::from_word(status.as_str()), Some(*status));
        }
        for inspection in [
            Inspection::Inspected,
            Inspection::NotWanted,
            Inspection::NotInspected("not_json"),
        ] {
            let (word, reason) = (inspection.as_str(), inspection.reason());
            assert_eq!(Inspection::from_words(word, reason), Some(inspection));
        }
        assert_eq!(Outcome::from_word("OK"), None);
    }

    #[test]
    fn a_word_is_kept_once_and_a_long_one_never() {
        let first = intern("not_json");
        assert!(std::ptr::eq(first, intern(&String::from("not_json"))));
        assert_eq!(intern(&"x".repeat(MAX_WORD_BYTES + 1)), "other");
    }
}
