//! Attributes. What is unknown is left out: a zero would be read as a fact.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};

use crate::text;

/// Longest text of an attribute, in bytes; the rest is cut on a character border.
const MAX_TEXT: usize = 512;
/// Most members of a list.
const MAX_LIST: usize = 32;

/// Attributes as they are gathered.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<KeyValue>);

impl Attributes {
    pub(super) fn text<'a>(&mut self, key: &str, value: impl Into<Option<&'a str>>) {
        if let Some(value) = value.into().filter(|value| !value.is_empty()) {
            self.put(key, string(value));
        }
    }

    /// A number that does not fit (it would take more than 9 million USD) is left out.
    pub(super) fn int(&mut self, key: &str, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into().and_then(|value| i64::try_from(value).ok()) {
            self.put(key, Value::IntValue(value));
        }
    }

    pub(super) fn double(&mut self, key: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.put(key, Value::DoubleValue(value));
        }
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.put(key, Value::BoolValue(value));
    }

    pub(super) fn list<'a>(&mut self, key: &str, values: impl Iterator<Item = &'a str>) {
        let values: Vec<AnyValue> = values
            .take(MAX_LIST)
            .map(|value| AnyValue {
                value: Some(string(value)),
            })
            .collect();
        if !values.is_empty() {
            self.put(key, Value::ArrayValue(ArrayValue { values }));
        }
    }

    /// Money twice: for people and sums as a double in USD, exact as an integer in pico-USD.
    pub(super) fn money(&mut self, key: &str, pico: Option<u64>) {
        self.double(&format!("{key}_usd"), pico.map(usd));
        self.int(&format!("{key}_pico"), pico);
    }

    pub(super) fn done(self) -> Vec<KeyValue> {
        self.0
    }

    fn put(&mut self, key: &str, value: Value) {
        self.0.push(KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        });
    }
}

fn string(value: &str) -> Value {
    Value::StringValue(text::prefix(value, MAX_TEXT).to_owned())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for display; the exact number goes beside it"
)]
pub(super) fn usd(pico: u64) -> f64 {
    pico as f64 / 1e12
}

#[expect(clippy::cast_precision_loss, reason = "a duration for display")]
pub(super) fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Nanoseconds since 1970; what lies before it is not known to the protocol.
pub(super) fn nanos(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_empty_are_left_out() {
        let mut attributes = Attributes::default();
        attributes.text("a", None);
        attributes.text("b", "");
        attributes.int("c", None);
        attributes.int("d", u64::MAX);
        attributes.double("e", None);
        attributes.list("f", [].into_iter());
        attributes.money("g", None);
        assert!(attributes.done().is_empty());
    }

    #[test]
    fn e08_a_long_text_is_cut_on_a_character_border() {
        for text in ["\u{1F642}", "\u{2192}", "e\u{301}"] {
            for shift in 0..4 {
                let long = "x".repeat(shift) + &text.repeat(600);
                let mut attributes = Attributes::default();
                attributes.text("a", long.as_str());
                let done = attributes.done();
                let Some(Value::StringValue(cut)) = done[0].value.clone().unwrap().value else {
                    panic!("{done:?}")
                };
                assert!(
                    long.starts_with(&cut) && cut.len() > MAX_TEXT - 4 && cut.len() <= MAX_TEXT
                );
            }
        }
    }

    #[test]
    fn money_is_exact_beside_the_double() {
        let mut attributes = Attributes::default();
        attributes.money("cost", Some(4_075_000_000_001));
        let done = attributes.done();
        assert_eq!(
            done[1].value.clone().unwrap().value,
            Some(Value::IntValue(4_075_000_000_001))
        );
        assert_eq!(nanos(-5), 0);
        assert_eq!(nanos(i64::MAX), u64::MAX);
    }
}
