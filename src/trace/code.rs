//! Entries as bytes, for the spools: one JSON object each. A later version may read what an earlier
//! one has left, so fields are only ever added, with a default.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Entry, intern};

impl Entry {
    /// Appends the entry to `to`.
    ///
    /// # Errors
    /// It cannot be written as JSON: a fault of this program.
    pub fn encode(&self, to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(to, self)
    }

    /// Reads what [`Entry::encode`] has written.
    ///
    /// # Errors
    /// It is damaged, or of a version with words that this one does not know.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

pub(super) fn word<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    std::borrow::Cow::<str>::deserialize(from).map(|word| intern(&word))
}

pub(super) fn word_or_none<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<&'static str>, D::Error> {
    let word = Option::<std::borrow::Cow<'_, str>>::deserialize(from)?;
    Ok(word.map(|word| intern(&word)))
}

/// Bytes as hexadecimal digits.
pub(super) mod hex {
    use super::{Deserialize as _, Deserializer, Serialize as _};
    use serde::Serializer;

    const DIGITS: &[u8; 16] = b"0123456789abcdef";

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &[u8],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            text.push(DIGITS[usize::from(byte >> 4)].into());
            text.push(DIGITS[usize::from(byte & 15)].into());
        }
        text.serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        super::unhex(text.as_bytes()).ok_or_else(super::not_hex)
    }
}

fn not_hex<E: serde::de::Error>() -> E {
    E::custom("not pairs of hexadecimal digits")
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(value(*high)? << 4 | value(*low)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::prompt_cache::verdict::{Reason, Status, Verdict, What, Whose};
    use crate::provider::view::Ttl;
    use crate::trace::{
        CallResult, CallStatus, EventKind, EventRecord, Inspection, Placed, RequestKind,
        ToolCallRecord, TurnRecord,
    };

    fn encoded(entry: &Entry) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes).unwrap();
        bytes
    }

    fn turn() -> TurnRecord {
        let mut turn = TurnRecord::begin(Uuid::now_v7(), RequestKind::Turn, "anthropic", 1_772);
        turn.inspection = Inspection::NotInspected("not_json");
        turn.run_source = "header";
        turn.usage.read = Some(u64::MAX);
        turn.cost_pico = Some(u64::MAX);
        turn.markers_added = vec![Placed {
            path: "system[0]".into(),
            ttl: Ttl::H1,
            offset: 7,
        }];
        turn.cache.trail = (0..=255).collect();
        turn.cache.policy = Some("fill");
        turn.cache.helper_pico = Some(-5);
        turn.cache.verdict = Some(Verdict {
            status: Status::Miss,
            reason: Some(Reason::System),
            first_changed: Some("system[0].text".into()),
            offset: Some(3),
            what: Some(What::Clock),
            detail: "a clock \u{1F552}\n".into(),
            whose: Some(Whose::Client),
            lost_tokens: Some(9),
            lost_pico: None,
            excerpt: None,
        });
        turn.guard.cap = Some("usd".into());
        turn.warnings = vec!["one:\0".into()];
        turn
    }

    #[test]
    fn every_entry_comes_back_as_it_was() {
        let turn_id = Uuid::now_v7();
        let call = ToolCallRecord {
            turn_id,
            run_id: "run".into(),
            thread_id: "main".into(),
            call_id: "toolu_1".into(),
            name: "Bash".into(),
            input_hash: "ab".into(),
            input_bytes: 5,
            asked_ms: -1,
            status: CallStatus::Pending,
            latency_ms: None,
            result_bytes: Some(0),
            wrong: Some("undeclared"),
            retries: 2,
        };
        let result = CallResult {
            run_id: "run".into(),
            thread_id: "main".into(),
            call_id: "toolu_1".into(),
            status: CallStatus::Failed,
            latency_ms: Some(12),
            result_bytes: None,
            retries: 0,
        };
        let event = EventRecord {
            id: Uuid::now_v7(),
            at_ms: 5,
            kind: EventKind::CapRefused,
            name: "usd".into(),
            run_id: String::new(),
            thread_id: String::new(),
            turn_id: Some(turn_id),
            app: None,
            scope: "run".into(),
            action: "refused".into(),
            value: Some(1),
            limit: None,
            level: Some(100),
            pico: None,
            tools: vec!["Bash".into()],
        };
        for entry in [
            Entry::Turn(Box::new(turn())),
            Entry::Call(Box::new(call)),
            Entry::Result(Box::new(result)),
            Entry::Event(Box::new(event)),
        ] {
            assert_eq!(Entry::decode(&encoded(&entry)).unwrap(), entry);
        }
    }

    #[test]
    fn fields_of_later_versions_are_passed_over_and_missing_ones_are_unknown() {
        let bytes = encoded(&Entry::Turn(Box::new(turn())));
        let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        json["turn"]["colour"] = "blue".into();
        json["turn"].as_object_mut().unwrap().remove("response_id");
        let read = Entry::decode(json.to_string().as_bytes()).unwrap();
        assert_eq!(read, Entry::Turn(Box::new(turn_with_id_of(&read))));
    }

    fn turn_with_id_of(entry: &Entry) -> TurnRecord {
        let Entry::Turn(read) = entry else {
            panic!("{entry:?} is no turn")
        };
        TurnRecord {
            id: read.id,
            ..turn()
        }
    }

    #[test]
    fn words_that_are_not_known_and_damage_are_errors() {
        let text = String::from_utf8(encoded(&Entry::Turn(Box::new(turn())))).unwrap();
        let unknown = text.replace("\"outcome\":\"client_abort\"", "\"outcome\":\"dissolved\"");
        assert_ne!(text, unknown);
        let error = Entry::decode(unknown.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("dissolved"), "{error}");
        for cut in 0..text.len() {
            assert!(
                Entry::decode(&text.as_bytes()[..cut]).is_err(),
                "cut at {cut}"
            );
        }
    }
}
