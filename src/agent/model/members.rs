//! A JSON object as its members in order, so that what is not understood stays as it came.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::agent::text::quote;

/// The members of an object; values are JSON text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(Vec<(String, String)>);

impl Members {
    /// Reads an object; `None` where it is none.
    pub fn read(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Name and value of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The JSON text of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value)
    }

    /// A member that is a string.
    pub fn text(&self, name: &str) -> Option<String> {
        said(self.get(name)?).map(Cow::into_owned)
    }

    /// Gives a member another value, at its place, or at the end where it is new.
    pub fn set(&mut self, name: &str, json: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) => *value = json,
            None => self.0.push((name.to_owned(), json)),
        }
    }

    /// Takes a member out.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The object as JSON text.
    pub fn write(&self) -> String {
        let mut out = String::from("{");
        for (at, (name, value)) in self.0.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&quote(name));
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }
}

/// What a JSON string says; `None` where it is none.
pub fn said(json: &str) -> Option<Cow<'_, str>> {
    #[derive(serde::Deserialize)]
    #[serde(transparent)]
    struct Said<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Said<'_>>(json)
        .ok()
        .map(|said| said.0)
}

/// Whether a text is JSON.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// The input of a call as an object. Providers take nothing else back, so what is none goes back as
/// a member of one.
pub fn object(input: &str) -> String {
    let input = input.trim();
    if input.is_empty() {
        "{}".to_owned()
    } else if input.starts_with('{') && is_json(input) {
        input.to_owned()
    } else {
        format!("{{\"unparsed\":{}}}", quote(input))
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.0.push((name, value.get().to_owned()));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Object)
    }
}
