//! How an alert is written.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Alert;
use crate::config::Form;
use crate::usage::usd;

/// Version of the JSON form.
const VERSION: u32 = 1;
/// Longest title in a Slack message, in bytes. Slack takes 3,000 characters in a section.
const MAX_SLACK_TITLE: usize = 700;
/// Longest details in a Slack message, in bytes.
const MAX_SLACK_DETAILS: usize = 2_200;

impl Alert {
    /// The body of a POST in this form.
    #[must_use]
    pub fn body(&self, form: Form) -> Bytes {
        let value = match form {
            Form::Json => Value::Object(self.json()),
            Form::Slack => self.slack(),
        };
        value.to_string().into()
    }

    fn json(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert("version".to_owned(), VERSION.into());
        all.insert("id".to_owned(), self.id.to_string().into());
        all.insert("kind".to_owned(), self.kind.as_str().into());
        all.insert("severity".to_owned(), self.severity.as_str().into());
        if let Ok(at) = jiff::Timestamp::from_millisecond(self.at_ms) {
            all.insert("at".to_owned(), at.to_string().into());
        }
        all.insert("at_ms".to_owned(), self.at_ms.into());
        all.insert("title".to_owned(), self.title.as_str().into());
        for (key, value) in self.details() {
            all.insert(key.to_owned(), value);
        }
        all
    }

    /// What is particular to this alert, in a fixed order.
    fn details(&self) -> Vec<(&'static str, Value)> {
        let mut details = Vec::new();
        let named = [
            ("run", &self.run),
            ("thread", &self.thread),
            ("app", &self.app),
        ];
        for (key, text) in named {
            if let Some(text) = text {
                details.push((key, text.as_str().into()));
            }
        }
        details.extend(self.facts.iter().cloned());
        if let Some(amount) = &self.amount {
            for (key, number) in [("value", amount.value), ("limit", amount.limit)] {
                if let Some(number) = number {
                    details.push((key, amount.unit.decimal(number).into()));
                }
            }
            details.push(("unit", amount.unit.as_str().into()));
        }
        if let Some(pico) = self.pico {
            details.push(("usd", usd(pico).into()));
        }
        details
    }

    fn slack(&self) -> Value {
        let title = escaped(&self.title, MAX_SLACK_TITLE);
        let details: Vec<String> = self
            .details()
            .iter()
            .map(|(key, value)| match value {
                Value::String(text) => format!("{key}: {text}"),
                Value::Array(items) => {
                    let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                    format!("{key}: {}", items.join(", "))
                }
                other => format!("{key}: {other}"),
            })
            .collect();
        let details = details.join(" · ");
        let details = escaped(&details, MAX_SLACK_DETAILS);
        let (kind, severity) = (self.kind.as_str(), self.severity.as_str());
        let text = format!("*{title}*\n{severity} · {kind}\n{details}");
        json!({
            "text": title,
            "blocks": [{
                "type": "section",
                "text": {"type": "mrkdwn", "text": text.trim_end()},
            }],
        })
    }
}

/// With the three characters escaped that mean something to Slack outside of its formatting; ends
/// before it is longer than `max_bytes`.
fn escaped(text: &str, max_bytes: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max_bytes));
    let mut buffer = [0; 4];
    for char in text.chars() {
        let piece = match char {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            plain => plain.encode_utf8(&mut buffer),
        };
        if out.len() + piece.len() > max_bytes {
            break;
        }
        out.push_str(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, Kind, Severity, Unit};
    use super::*;

    fn alert() -> Alert {
        let title = "Run <!channel> & co has used 80 % of its cap usd: 4 of 5 USD";
        let mut alert = Alert::own(Kind::CapLevel, Severity::Warning, 1_796_083_200_000, title);
        alert.run = Some("<!channel> & co".to_owned());
        alert.amount = Some(Amount {
            value: Some(4_000_000_000_000),
            limit: Some(5_000_000_000_000),
            unit: Unit::Usd,
        });
        alert.with("cap", "usd").with("level", 80)
    }

    #[test]
    fn the_json_form_is_flat_and_leaves_out_what_is_unknown() {
        let body: Value = serde_json::from_slice(&alert().body(Form::Json)).unwrap();
        let expected = json!({
            "version": 1, "id": body["id"], "kind": "cap_level", "severity": "warning",
            "at": "2026-12-01T00:00:00Z", "at_ms": 1_796_083_200_000_i64,
            "title": "Run <!channel> & co has used 80 % of its cap usd: 4 of 5 USD",
            "run": "<!channel> & co", "cap": "usd", "level": 80,
            "value": "4", "limit": "5", "unit": "usd",
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn nothing_in_a_slack_message_is_taken_for_a_mention() {
        let body: Value = serde_json::from_slice(&alert().body(Form::Slack)).unwrap();
        let title = "Run &lt;!channel&gt; &amp; co has used 80 % of its cap usd: 4 of 5 USD";
        assert_eq!(body["text"], title);
        let section = &body["blocks"][0];
        assert_eq!(
            (&section["type"], &section["text"]["type"]),
            (&json!("section"), &json!("mrkdwn"))
        );
        let text = section["text"]["text"].as_str().unwrap();
        assert!(
            text.starts_with(&format!("*{title}*\nwarning · cap_level\n")),
            "{text}"
        );
        assert!(text.contains("value: 4 · limit: 5 · unit: usd"), "{text}");
        assert!(!text.contains(['<', '>']), "{text}");
    }

    #[test]
    fn a_slack_message_stays_below_what_slack_takes_whatever_is_in_it() {
        let mut alert = Alert::own(Kind::Loop, Severity::Info, 0, &"&".repeat(10_000));
        alert.run = Some("&".repeat(10_000));
        let tools: Vec<&str> = vec!["<&>"; 3_000];
        let body = alert.with("tools", tools).body(Form::Slack);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let text = body["blocks"][0]["text"]["text"].as_str().unwrap();
        assert!(text.chars().count() <= 3_000, "{}", text.len());
    }
}
