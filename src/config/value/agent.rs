//! Kinds of value that only `[agent]` has.

use toml::de::DeValue;

use super::super::{Pattern, SyncEvents};
use super::{Value, Words};
use crate::provider::wire::Wire;

choice!(Pattern, "react" => Pattern::React, "reflexion" => Pattern::Reflexion, "plan-execute" => Pattern::PlanExecute);
choice!(SyncEvents, "always" => SyncEvents::Always, "turn" => SyncEvents::Turn, "never" => SyncEvents::Never);

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api(pub Wire);

impl Value for Api {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "messages" => Ok(Self(Wire::Messages)),
            "chat" => Ok(Self(Wire::Chat)),
            "responses" => Ok(Self(Wire::Responses)),
            _ => Err("must be one of \"messages\", \"chat\", \"responses\"".to_owned()),
        }
    }
}

/// True or false; in the environment as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch(pub bool);

impl Value for Switch {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err("must be true or false".to_owned()),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        bool::from_toml(value).map(Self)
    }
}

/// Strings: an array, or in the environment and in flags a list with commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List(pub Vec<String>);

impl Value for List {
    fn parse(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim).map(str::to_owned);
        let items: Vec<String> = items.collect();
        if items.iter().any(String::is_empty) {
            return Err("must be a list without empty entries, with commas between".to_owned());
        }
        Ok(Self(items))
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        Words::from_toml(value).map(|words| Self(words.0))
    }
}
