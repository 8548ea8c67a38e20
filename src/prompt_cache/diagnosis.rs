//! The provider's own diagnosis of a cache miss: asking for it, and comparing it with the verdict.
//!
//! It compares two requests, whatever became of the cache; a verdict explains a loss. So the two
//! can be held against each other only where the verdict says something about the requests.

use bytes::Bytes;

use super::splice::Splice;
use super::verdict::{Reason, Status, Verdict, Whose};
use crate::provider::view::{DIAGNOSIS_NONE, Diagnosis, History, RequestView};
use crate::provider::wire::Wire;

/// Longest id of an answer that is put into a question, in bytes.
const MAX_ID_BYTES: usize = 128;

/// The question why the cache missed, as an insertion into the client's body. `previous` is the id
/// of the answer before this request in its thread; without one the question still has to be asked,
/// since only a request that carries it can be compared with later.
///
/// `None` where it cannot be asked: the client did so itself, the wire format has no such question,
/// the body must not be edited, the provider holds the history, or the id is no plain word.
#[must_use]
pub fn ask(view: &RequestView, previous: Option<&str>) -> Option<Splice> {
    let spelling = view.question?;
    // A request names its model, so a member follows, and the comma behind the question is right.
    view.model.as_ref()?;
    let held = match view.history {
        History::Whole => false,
        // A Messages thread shows nothing of it later; any answer of Responses may be gone on from.
        History::Opened => view.wire == Wire::Messages,
        History::Continues(_) => true,
    };
    if view.uneditable.is_some() || held {
        return None;
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let insert = match previous {
        None => [spelling.before, spelling.nothing?, spelling.after].concat(),
        Some(id) if (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(plain) => {
            [spelling.before, b"\"", id.as_bytes(), b"\"", spelling.after].concat()
        }
        Some(_) => return None,
    };
    Some(Splice {
        at: view.object_start,
        remove: 0,
        insert: Bytes::from(insert),
    })
}

/// The word of an answer as it is recorded. Saying nothing means "no difference" where the question
/// was asked (by the client or by us) and the answer is there, and means nothing elsewhere.
#[must_use]
pub fn recorded(said: Option<&str>, asked: bool, answered: bool) -> Option<&str> {
    match said {
        None | Some(DIAGNOSIS_NONE) => (asked && answered).then_some(DIAGNOSIS_NONE),
        said => said,
    }
}

/// Whether the provider's diagnosis says the same as the verdict; `None` where they cannot be
/// compared. `compared` is whether the request named an earlier answer: without one the provider
/// compares nothing, and its silence says nothing. `changed`: the prompts differ, which need not
/// have cost anything.
#[must_use]
pub fn agrees(native: Diagnosis, compared: bool, changed: bool, verdict: &Verdict) -> Option<bool> {
    if !compared || native == Diagnosis::Nothing {
        return None;
    }
    let Some(reason) = verdict.reason else {
        return match (verdict.status, native) {
            // Nothing is known of an earlier turn, or nothing was there to be lost.
            (Status::Cold | Status::NotCacheable, _) | (_, Diagnosis::Unavailable) => None,
            (_, native) if changed && native != Diagnosis::NoDifference => None,
            (_, native) => Some(native == Diagnosis::NoDifference),
        };
    };
    let by_provider = verdict.whose == Some(Whose::Provider);
    match reason {
        // It compares what was sent: what the provider brought about needs no difference there.
        Reason::Model | Reason::Messages if by_provider && native == Diagnosis::NoDifference => {
            Some(true)
        }
        Reason::Model | Reason::Speed => same(native, Diagnosis::Model),
        Reason::Tools => same(native, Diagnosis::Tools),
        Reason::System => same(native, Diagnosis::System),
        Reason::Messages => same(native, Diagnosis::Messages),
        Reason::Parameter => Some(matches!(
            native,
            Diagnosis::Unavailable | Diagnosis::Setting
        )),
        // "Model" stands for all that separates whole caches, the speed among it.
        Reason::Beta => Some(matches!(native, Diagnosis::Unavailable | Diagnosis::Model)),
        // "It was all there": a difference that the provider names contradicts that.
        Reason::Evicted if native == Diagnosis::Unavailable => None,
        Reason::Evicted => Some(native == Diagnosis::NoDifference),
        // Reasons of time, size and place leave open whether the prompt has changed as well.
        Reason::Expired
        | Reason::Concurrent
        | Reason::Lookback
        | Reason::BelowMinimum
        | Reason::NoMarker
        | Reason::NotWritten => None,
    }
}

/// "Unavailable" beside a verdict that names a level is no contradiction: it may mean just that.
fn same(native: Diagnosis, ours: Diagnosis) -> Option<bool> {
    let in_input = matches!(ours, Diagnosis::System | Diagnosis::Messages);
    let equal = native == ours || (native == Diagnosis::Input && in_input);
    (native != Diagnosis::Unavailable).then_some(equal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt_cache::splice;
    use crate::provider::anthropic::diagnosis::meaning;
    use crate::provider::anthropic::request::view;

    fn asked(body: &str, previous: Option<&str>) -> Option<String> {
        let seen = view(body.as_bytes()).unwrap();
        let splice = ask(&seen, previous)?;
        let pieces = splice::apply(&Bytes::copy_from_slice(body.as_bytes()), &[splice]);
        Some(String::from_utf8(pieces.concat()).unwrap())
    }

    #[test]
    fn the_question_is_a_first_member() {
        assert_eq!(
            asked(r#" { "model":"m"}"#, Some("msg_01-A")).unwrap(),
            r#" {"diagnostics":{"previous_message_id":"msg_01-A"}, "model":"m"}"#
        );
        let first = asked(r#"{"model":"m","messages":[]}"#, None).unwrap();
        let seen = view(first.as_bytes()).unwrap();
        assert!(seen.diagnostics && seen.uneditable.is_none());
        assert_eq!(seen.ids.previous_message, None);
        let later = asked(r#"{"model":"m","messages":[]}"#, Some("msg_9")).unwrap();
        let seen = view(later.as_bytes()).unwrap();
        assert_eq!(seen.ids.previous_message.as_deref(), Some("msg_9"));
        assert!(serde_json::from_str::<serde_json::Value>(&later).is_ok());
    }

    #[test]
    fn it_is_not_asked_twice_nor_where_nothing_may_be_edited() {
        for body in [
            r#"{"model":"m","diagnostics":null}"#,
            r#"{"model":"m","diagnostics":{"previous_message_id":"msg_1"}}"#,
            r#"{"model":"m","model":"m"}"#,
            r#"{"model":"m","thread":{"type":"create"}}"#,
            r#"{"model":"m","thread":{"type":"continue","previous_message_id":"msg_1"}}"#,
            "{}",
        ] {
            assert_eq!(asked(body, None), None, "{body}");
        }
        let long = "m".repeat(129);
        for id in ["", "msg 1", "msg_\"", "msg_é", &long] {
            assert_eq!(asked(r#"{"model":"m"}"#, Some(id)), None, "{id}");
        }
        assert!(asked(r#"{"model":"m"}"#, Some(&long[1..])).is_some());
    }

    #[test]
    fn silence_means_something_only_after_a_question() {
        for (said, asked, answered, expected) in [
            (None, true, true, Some("none")),
            (Some("none"), true, true, Some("none")),
            (None, true, false, None),
            (None, false, true, None),
            (Some("none"), false, true, None),
            (Some("pending"), true, true, Some("pending")),
            (Some("tools_changed"), false, true, Some("tools_changed")),
        ] {
            assert_eq!(recorded(said, asked, answered), expected, "{said:?}");
        }
    }

    fn verdict(status: Status, reason: Option<Reason>) -> Verdict {
        Verdict {
            status,
            reason,
            first_changed: None,
            offset: None,
            what: None,
            detail: String::new(),
            whose: None,
            lost_tokens: None,
            lost_pico: None,
            excerpt: None,
        }
    }

    const WORDS: [&str; 8] = [
        "model_changed",
        "tools_changed",
        "system_changed",
        "messages_changed",
        "unavailable",
        "none",
        "pending",
        "previous_message_not_found",
    ];

    /// One row a reason, one column a word.
    #[test]
    fn every_word_against_every_reason() {
        const Y: Option<bool> = Some(true);
        const N: Option<bool> = Some(false);
        const O: Option<bool> = None;
        let table = [
            (Reason::Model, [Y, N, N, N, O, N, O, O]),
            (Reason::Speed, [Y, N, N, N, O, N, O, O]),
            (Reason::Beta, [Y, N, N, N, Y, N, O, O]),
            (Reason::Tools, [N, Y, N, N, O, N, O, O]),
            (Reason::System, [N, N, Y, N, O, N, O, O]),
            (Reason::Messages, [N, N, N, Y, O, N, O, O]),
            (Reason::Parameter, [N, N, N, N, Y, N, O, O]),
            (Reason::Evicted, [N, N, N, N, O, Y, O, O]),
            (Reason::Expired, [O; 8]),
            (Reason::Concurrent, [O; 8]),
            (Reason::Lookback, [O; 8]),
            (Reason::BelowMinimum, [O; 8]),
            (Reason::NoMarker, [O; 8]),
            (Reason::NotWritten, [O; 8]),
        ];
        for (reason, row) in table {
            let verdict = verdict(Status::Miss, Some(reason));
            for (word, expected) in WORDS.iter().zip(row) {
                let said = agrees(meaning(word), true, true, &verdict);
                assert_eq!(said, expected, "{word} and {reason:?}");
                assert_eq!(agrees(meaning(word), false, true, &verdict), None);
            }
        }
        for status in [Status::Hit, Status::Extended] {
            let all = |changed| {
                WORDS.map(|word| agrees(meaning(word), true, changed, &verdict(status, None)))
            };
            assert_eq!(all(false), [N, N, N, N, O, Y, O, O]);
            // A difference behind everything that was cached costs nothing.
            assert_eq!(all(true), [O, O, O, O, O, Y, O, O]);
        }
        let cold = verdict(Status::Cold, None);
        assert!(
            WORDS
                .iter()
                .all(|w| agrees(meaning(w), true, false, &cold).is_none())
        );
        // What the provider brought about needs no difference in what was sent.
        for reason in [Reason::Messages, Reason::Model] {
            let mut by_provider = verdict(Status::Partial, Some(reason));
            by_provider.whose = Some(Whose::Provider);
            let said = |word| agrees(meaning(word), true, true, &by_provider);
            assert_eq!(
                (said("none"), said("tools_changed")),
                (Some(true), Some(false))
            );
        }
        assert_eq!(meaning("a_word_of_tomorrow"), Diagnosis::Nothing);
    }
}
