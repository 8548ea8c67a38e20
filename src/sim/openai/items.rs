//! The input items of Responses: what is refused, and what the model reads of each.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::OpenAiError;
use super::models::Model;
use super::prompt::{Marker, Piece, Said, without};
use super::seal::{self, Seal};
use super::validate;
use crate::sim::json::{Json, quote};

/// Items that the model makes, and with which the client has nothing to do.
/// Source: SDK types, Nov 2026.
const MODEL_SIDE: &[&str] = &[
    "file_search_call",
    "web_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "tool_search_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "program",
    "program_output",
    "compaction",
    "compaction_summary",
    "context_compaction",
];

/// Items of the client's side that answer no call. Source: SDK types, Nov 2026.
const CLIENT_SIDE: &[&str] = &[
    "tool_search_output",
    "additional_tools",
    "configuration_update",
    "mcp_approval_response",
    "compaction_trigger",
];

/// Calls that the client must answer, and the items that answer them.
const CALLS: &[(&str, &str)] = &[
    ("function_call", "function_call_output"),
    ("custom_tool_call", "custom_tool_call_output"),
    ("local_shell_call", "local_shell_call_output"),
    ("shell_call", "shell_call_output"),
    ("apply_patch_call", "apply_patch_call_output"),
    ("computer_call", "computer_call_output"),
];

/// How ids of items begin that clients send back.
const IDS: &[(&str, &str)] = &[
    ("message", "msg"),
    ("function_call", "fc"),
    ("reasoning", "rs"),
    ("custom_tool_call", "ctc"),
];

/// One item of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The item.
    pub json: Arc<Json>,
    /// Where it stands in the request; `None` for items that the provider held.
    pub at: Option<String>,
}

/// What an item is: its `type`, which messages may leave out.
#[must_use]
pub fn kind_of(item: &Json) -> String {
    item.text_of("type").unwrap_or_else(|| "message".to_owned())
}

/// What is needed to check items.
#[derive(Clone, Copy)]
pub struct Checker<'a> {
    /// The model that reads them.
    pub model: &'static Model,
    /// Refuse what the API refuses in the conversation.
    pub strict: bool,
    /// Opens `encrypted_content`; `None` leaves it unchecked.
    pub seal: Option<Seal>,
    /// Whether an item of this id is stored.
    pub stored: &'a dyn Fn(&str) -> bool,
}

impl Checker<'_> {
    /// The pieces of all items.
    ///
    /// # Errors
    /// The API's refusals; those of the conversation only when strict.
    pub fn pieces(&self, items: &[Item]) -> Result<Vec<Piece>, OpenAiError> {
        let mut out = Vec::new();
        for (index, item) in items.iter().enumerate() {
            self.item(item, &mut out)?;
            let last_held =
                item.at.is_none() && items.get(index + 1).is_some_and(|next| next.at.is_some());
            if let Some(piece) = out.last_mut().filter(|_| last_held) {
                piece.ended = piece.said != Said::Model;
            }
        }
        if self.strict {
            calls(items)?;
            self.reasoning(items)?;
        }
        Ok(out)
    }

    fn item(&self, item: &Item, out: &mut Vec<Piece>) -> Result<(), OpenAiError> {
        let json = &*item.json;
        let at = item.at.as_deref().unwrap_or_default();
        let check = item.at.is_some();
        if check && !matches!(json, Json::Obj(_)) {
            return Err(OpenAiError::kind_of_value(at, "an object"));
        }
        let kind = kind_of(json);
        if check && self.strict {
            id_prefix(json, &kind, at)?;
        }
        match kind.as_str() {
            "message" => self.message(json, at, check, out),
            "reasoning" => {
                let name = json
                    .text_of("encrypted_content")
                    .and_then(|sealed| seal::name(&sealed).map(str::to_owned))
                    .or_else(|| Some(json.text_of("id")?.trim_start_matches("rs_").to_owned()));
                out.push(Piece::new(
                    Said::Model,
                    "reasoning",
                    quote(&name.unwrap_or_default()),
                ));
                Ok(())
            }
            kind if CALLS.iter().any(|(call, _)| *call == kind) => {
                if check {
                    needed(json, at, kind)?;
                }
                out.push(Piece::new(Said::Model, kind, call_text(json, kind)));
                Ok(())
            }
            kind if CALLS.iter().any(|(_, output)| *output == kind) => {
                self.output(json, kind, at, check, out)
            }
            kind if MODEL_SIDE.contains(&kind) => {
                if kind == "compaction" && check {
                    self.sealed(json, at)?;
                }
                let content = without(json, &["id", "status", "created_by"]);
                out.push(Piece::new(Said::Model, kind, content));
                Ok(())
            }
            kind if CLIENT_SIDE.contains(&kind) => {
                let content = without(json, &["id", "status"]);
                out.push(Piece::new(Said::System, kind, content));
                Ok(())
            }
            other => Err(OpenAiError::invalid(format!(
                "Invalid value: '{other}'. It is no type of an input item."
            ))
            .code("invalid_value")
            .param(validate::path(at, "type"))),
        }
    }

    fn message(
        &self,
        item: &Json,
        at: &str,
        check: bool,
        out: &mut Vec<Piece>,
    ) -> Result<(), OpenAiError> {
        const ROLES: &[&str] = &["assistant", "system", "developer", "user"];
        let role = validate::word(item, at, "role", ROLES)?
            .ok_or_else(|| OpenAiError::missing(validate::path(at, "role")))?;
        let content = item
            .given("content")
            .ok_or_else(|| OpenAiError::missing(validate::path(at, "content")))?;
        let own = role == "assistant";
        let said = |text: String| match role.as_str() {
            "assistant" => Said::Model,
            "user" => Said::User(text),
            _ => Said::System,
        };
        // System is the older word for developer.
        let role = if role == "system" { "developer" } else { &role };
        match content {
            Json::Str(_) => {
                let text = content.text().unwrap_or_default();
                out.push(Piece::new(
                    said(text),
                    format!("{role}^"),
                    content.compact(),
                ));
            }
            Json::Arr(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    let at = format!("{at}.content[{index}]");
                    let tag = if index == 0 {
                        format!("{role}^")
                    } else {
                        role.to_owned()
                    };
                    let allowed: &[&str] = if own {
                        &["output_text", "refusal"]
                    } else {
                        &["input_text", "input_image", "input_file", "input_audio"]
                    };
                    out.push(self.part(part, &at, check, tag, allowed, &said)?);
                }
            }
            _ => {
                return Err(OpenAiError::kind_of_value(
                    validate::path(at, "content"),
                    "a string or an array",
                ));
            }
        }
        Ok(())
    }

    fn part(
        &self,
        part: &Json,
        at: &str,
        check: bool,
        tag: String,
        allowed: &[&str],
        said: &dyn Fn(String) -> Said,
    ) -> Result<Piece, OpenAiError> {
        let kind = validate::word(part, at, "type", allowed)?
            .ok_or_else(|| OpenAiError::missing(validate::path(at, "type")))?;
        let marker = self.marker(part, at, check)?;
        let bare = || without(part, &["prompt_cache_breakpoint"]);
        let media = |piece: fn(Said, String, String) -> Piece| {
            let said = match said(String::new()) {
                Said::User(_) => Said::Media,
                other => other,
            };
            piece(said, tag.clone(), bare())
        };
        let mut piece = match kind.as_str() {
            "input_image" => media(Piece::image),
            "input_file" | "input_audio" => media(Piece::document),
            kind => {
                let member = if kind == "refusal" { "refusal" } else { "text" };
                if check && self.strict && kind == "input_text" {
                    validate::members(part, at, &["type", "text", "prompt_cache_breakpoint"])?;
                }
                let text = validate::needed_text(part, at, member)?;
                let content = part.get(member).map(Json::compact).unwrap_or_default();
                Piece::new(said(text), tag, content)
            }
        };
        piece.marker = marker;
        Ok(piece)
    }

    fn marker(&self, part: &Json, at: &str, check: bool) -> Result<Option<Marker>, OpenAiError> {
        match validate::breakpoint(part, at, self.model) {
            Err(error) if check => Err(error),
            // It was accepted when the item was stored, for another model.
            Err(_) => Ok(None),
            marker => marker,
        }
    }

    /// The result of a call: one piece, or one for each part of it.
    fn output(
        &self,
        item: &Json,
        kind: &str,
        at: &str,
        check: bool,
        out: &mut Vec<Piece>,
    ) -> Result<(), OpenAiError> {
        if check && answered(item).is_none() {
            return Err(OpenAiError::missing(validate::path(at, "call_id")));
        }
        let tag = format!("{kind} {}", answered(item).unwrap_or_default());
        let output = match item.given("output") {
            Some(output) => output.clone(),
            None if kind == "apply_patch_call_output" => Json::string(""),
            None => return Err(OpenAiError::missing(validate::path(at, "output"))),
        };
        let parts = match &output {
            Json::Arr(parts) if kind == "function_call_output" || kind.starts_with("custom") => {
                parts
            }
            output => {
                out.push(Piece::new(Said::Result, tag, output.compact()));
                return Ok(());
            }
        };
        for (index, part) in parts.iter().enumerate() {
            let at = format!("{at}.output[{index}]");
            let tag = if index == 0 {
                tag.clone()
            } else {
                kind.to_owned()
            };
            let allowed = &["input_text", "input_image", "input_file"];
            out.push(self.part(part, &at, check, tag, allowed, &|_| Said::Result)?);
        }
        Ok(())
    }

    fn sealed(&self, item: &Json, at: &str) -> Result<(), OpenAiError> {
        let content = validate::needed_text(item, at, "encrypted_content")?;
        match self.seal {
            Some(seal) if self.strict && seal.open(&content).is_none() => Err(
                OpenAiError::invalid("The encrypted content could not be verified.")
                    .code("invalid_encrypted_content")
                    .param(validate::path(at, "encrypted_content")),
            ),
            _ => Ok(()),
        }
    }

    /// Reasoning must be the provider's own and must not lose the item that followed it.
    fn reasoning(&self, items: &[Item]) -> Result<(), OpenAiError> {
        for (index, item) in items.iter().enumerate() {
            if kind_of(&item.json) != "reasoning" {
                continue;
            }
            let next = items
                .get(index + 1)
                .is_some_and(|next| model_side(&next.json));
            let id = item.json.text_of("id").unwrap_or_default();
            if !next {
                return Err(OpenAiError::invalid(format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                ))
                .param("input"));
            }
            let Some(at) = &item.at else { continue };
            if item.json.given("encrypted_content").is_some() {
                self.sealed(&item.json, at)?;
            } else if !(self.stored)(&id) {
                return Err(OpenAiError::new(
                    404,
                    format!(
                        "Item with id '{id}' not found. Items are not kept when 'store' is false."
                    ),
                )
                .param("input"));
            }
        }
        Ok(())
    }
}

fn model_side(item: &Json) -> bool {
    let kind = kind_of(item);
    let own = item.get("role").is_some_and(|role| role.is("assistant"));
    kind == "reasoning"
        || (kind == "message" && own)
        || MODEL_SIDE.contains(&kind.as_str())
        || CALLS.iter().any(|(call, _)| *call == kind)
}

/// The call an item answers. A local shell's answer may name it by `id`.
fn answered(item: &Json) -> Option<String> {
    item.text_of("call_id").or_else(|| {
        (kind_of(item) == "local_shell_call_output")
            .then(|| item.text_of("id"))
            .flatten()
    })
}

fn id_prefix(item: &Json, kind: &str, at: &str) -> Result<(), OpenAiError> {
    let Some((_, prefix)) = IDS.iter().find(|(name, _)| *name == kind) else {
        return Ok(());
    };
    match validate::text(item, at, "id")? {
        Some(id) if !id.starts_with(prefix) => {
            let param = validate::path(at, "id");
            Err(OpenAiError::invalid(format!(
                "Invalid '{param}': '{id}'. Expected an ID that begins with '{prefix}'."
            ))
            .code("invalid_value")
            .param(param))
        }
        _ => Ok(()),
    }
}

/// The members a call cannot be without.
fn needed(item: &Json, at: &str, kind: &str) -> Result<(), OpenAiError> {
    validate::needed_text(item, at, "call_id")?;
    let texts: &[&str] = match kind {
        "function_call" => &["name", "arguments"],
        "custom_tool_call" => &["name", "input"],
        _ => &[],
    };
    for member in texts {
        validate::needed_text(item, at, member)?;
    }
    Ok(())
}

/// What the model reads of its own call, whatever the order of the members.
fn call_text(item: &Json, kind: &str) -> String {
    let members: &[&str] = match kind {
        "function_call" => &["call_id", "namespace", "name", "arguments"],
        "custom_tool_call" => &["call_id", "namespace", "name", "input"],
        "apply_patch_call" => &["call_id", "operation"],
        _ => &["call_id", "action", "actions"],
    };
    let parts: Vec<String> = members
        .iter()
        .filter_map(|member| item.given(member))
        .map(Json::compact)
        .collect();
    format!("[{}]", parts.join(","))
}

/// Every answer needs its call before it, and every call its answer after it.
fn calls(items: &[Item]) -> Result<(), OpenAiError> {
    let mut open: HashMap<String, String> = HashMap::new();
    let mut order = Vec::new();
    let mut known: HashMap<String, String> = HashMap::new();
    for item in items {
        let kind = kind_of(&item.json);
        if CALLS.iter().any(|(call, _)| *call == kind) {
            let id = item.json.text_of("call_id").unwrap_or_default();
            order.push(id.clone());
            known.insert(id.clone(), kind.clone());
            open.insert(id, kind);
        } else if let Some((call, _)) = CALLS.iter().find(|(_, output)| *output == kind) {
            let id = answered(&item.json).unwrap_or_default();
            // A function's output may also answer a local shell.
            let fits = known.get(&id).is_some_and(|known| {
                known == call || (*call == "function_call" && known == "local_shell_call")
            });
            if !fits {
                return Err(OpenAiError::invalid(format!(
                    "No tool call found for {} with call_id {id}.",
                    kind.replace('_', " ")
                ))
                .param("input"));
            }
            open.remove(&id);
        }
    }
    match order.iter().find(|id| open.contains_key(*id)) {
        Some(id) => Err(OpenAiError::invalid(format!(
            "No tool output found for {} {id}.",
            open[id].replace('_', " ")
        ))
        .param("input")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
