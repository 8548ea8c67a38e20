//! The items that a response puts out.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::shared::parse;
use crate::provider::lenient::{Maybe, Word};

/// An item.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(rename = "type")]
    kind: Word,
    pub(super) id: Word,
    call_id: Word,
    name: Word,
    status: Word,
    execution: Word,
    environment: Maybe<Environment>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    action: Option<&'a RawValue>,
    #[serde(borrow)]
    actions: Option<&'a RawValue>,
    #[serde(borrow)]
    operation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) summary: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Environment {
    #[serde(rename = "type")]
    kind: Word,
}

/// A call that the client has to run.
pub(super) struct ItemCall<'a> {
    pub(super) id: String,
    pub(super) name: String,
    /// A JSON string in which the input is written, or the input itself.
    pub(super) input: Option<&'a RawValue>,
    /// The input is no JSON.
    pub(super) free_text: bool,
}

impl<'a> Item<'a> {
    /// The call, if the item is one that the client has to run.
    pub(super) fn call(&self) -> Option<ItemCall<'a>> {
        let kind = self.kind.as_deref()?;
        let (name, input) = match kind {
            "function_call" => (None, self.arguments),
            "custom_tool_call" => (None, self.input),
            // Their tools have no names but their types.
            "local_shell_call" => (Some(kind), self.action),
            "shell_call" if !self.runs_in_container() => (Some(kind), self.action),
            "computer_call" => (Some(kind), self.action.or(self.actions)),
            "apply_patch_call" => (Some(kind), self.operation),
            "tool_search_call" if self.execution.as_deref() == Some("client") => {
                (Some(kind), self.arguments)
            }
            _ => return None,
        };
        let id = self.call_id.as_deref().or(self.id.as_deref());
        let name = name.or(self.name.as_deref());
        Some(ItemCall {
            id: id.unwrap_or_default().to_owned(),
            name: name.unwrap_or_default().to_owned(),
            input,
            free_text: kind == "custom_tool_call",
        })
    }

    /// Whether a shell call runs in a container of the provider.
    fn runs_in_container(&self) -> bool {
        let environment = self.environment.0.as_ref();
        let kind = environment.and_then(|environment| environment.kind.as_deref());
        kind.is_some_and(|kind| kind.starts_with("container"))
    }

    /// Whether it was not cut off.
    pub(super) fn is_done(&self) -> bool {
        !matches!(self.status.as_deref(), Some("incomplete" | "in_progress"))
    }

    /// Whether it is a web search that is billed: opening a page found, or looking at it, is not.
    pub(super) fn searched(&self) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Action {
            #[serde(rename = "type")]
            kind: Word,
        }
        let action = || self.action.and_then(|action| parse::<Action>(action.get()));
        self.kind.as_deref() == Some("web_search_call")
            && self
                .status
                .as_deref()
                .is_none_or(|status| status == "completed")
            && action().is_none_or(|action| action.kind.as_deref().is_none_or(|k| k == "search"))
    }
}

/// Reads the items of an output one by one, so that none is kept.
pub(super) struct Items<F>(F);

impl<F: FnMut(Item<'_>)> Items<F> {
    /// Hands every item to `sink`; fails where the output is not an array of objects.
    pub(super) fn read(output: &RawValue, sink: F) -> Result<(), serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(output.get());
        Self(sink).deserialize(&mut deserializer)
    }
}

impl<'de, F: FnMut(Item<'_>)> DeserializeSeed<'de> for Items<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Item<'_>)> Visitor<'de> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of items")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element::<Item<'de>>()? {
            self.0(item);
        }
        Ok(())
    }
}
