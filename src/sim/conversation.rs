//! The rules of a conversation: roles, pairs of calls and results, known blocks, bound thinking.

use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::head::{Head, VERSION_2026};
use super::json::Json;
use super::models::Model;
use super::prompt::{Message, Prompt, Role, canonical, is_kind};

/// Members of the blocks whose shape is checked. Source: SDK types, Nov 2026.
const SHAPES: &[(&str, &[&str])] = &[
    ("text", &["type", "text", "cache_control", "citations"]),
    (
        "image",
        &["type", "source", "cache_control", "transformations"],
    ),
    (
        "document",
        &[
            "type",
            "source",
            "cache_control",
            "citations",
            "context",
            "title",
        ],
    ),
    (
        "tool_use",
        &[
            "type",
            "id",
            "name",
            "input",
            "cache_control",
            "caller",
            "toolset_name",
        ],
    ),
    (
        "tool_result",
        &[
            "type",
            "tool_use_id",
            "content",
            "is_error",
            "cache_control",
            "toolset_name",
        ],
    ),
    ("thinking", &["type", "thinking", "signature"]),
    ("redacted_thinking", &["type", "data"]),
];

/// Blocks that are known and not looked into. Source: SDK types, Nov 2026.
const OTHER_KINDS: &[&str] = &[
    "search_result",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "advisor_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "container_upload",
    "compaction",
    "tool_addition",
    "tool_removal",
    "mcp_tool_listing",
    "fallback",
    "tool_reference",
    "browser_state",
];

/// Checks a whole conversation (what the server held included).
///
/// # Errors
/// The API's refusal of the first part that is wrong.
pub fn check(prompt: &Prompt, model: &Model, head: &Head) -> Result<(), ApiError> {
    let messages = &prompt.messages;
    let Some(first) = messages.first() else {
        return Err(ApiError::invalid(
            "messages: at least one message is required",
        ));
    };
    if first.role != Role::User && !first.has("compaction") {
        return Err(ApiError::invalid(
            "messages: first message must use the \"user\" role",
        ));
    }
    for (at, message) in messages.iter().enumerate() {
        content(message, at + 1 == messages.len(), head)?;
    }
    system_messages(messages, model)?;
    pairs(messages)?;
    prefill(messages, model)
}

fn content(message: &Message, last: bool, head: &Head) -> Result<(), ApiError> {
    let place = format!("messages.{}", message.index);
    if message.blocks.is_empty() && !(last && message.role == Role::Assistant) {
        return Err(ApiError::invalid(format!(
            "{place}: all messages must have non-empty content except for the optional final assistant message"
        )));
    }
    for (at, block) in message.blocks.iter().enumerate() {
        let path = format!("{place}.content.{at}");
        let kind = block
            .text_of("type")
            .ok_or_else(|| ApiError::invalid(format!("{path}.type: Field required")))?;
        match SHAPES.iter().find(|(name, _)| *name == kind) {
            Some((_, members)) => {
                let extra = block
                    .members()
                    .iter()
                    .find(|(key, _)| !members.contains(&key.as_str()));
                if let Some((key, _)) = extra {
                    return Err(ApiError::invalid(format!(
                        "{path}.{kind}.{key}: Extra inputs are not permitted"
                    )));
                }
            }
            None if OTHER_KINDS.contains(&kind.as_str()) => {}
            None => {
                return Err(ApiError::invalid(format!(
                    "{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
                )));
            }
        }
        known_block(block, &kind, &path, message.role, head)?;
    }
    Ok(())
}

fn known_block(
    block: &Json,
    kind: &str,
    path: &str,
    role: Role,
    head: &Head,
) -> Result<(), ApiError> {
    let required = |key: &str| {
        block
            .given(key)
            .ok_or_else(|| ApiError::invalid(format!("{path}.{kind}.{key}: Field required")))
    };
    let only = |wanted: Role, word: &str| {
        if role == wanted {
            Ok(())
        } else {
            Err(ApiError::invalid(format!(
                "{path}: `{kind}` blocks can only be specified in `{word}` messages"
            )))
        }
    };
    match kind {
        "text" => {
            let text = required("text")?.text().ok_or_else(|| {
                ApiError::invalid(format!("{path}.text.text: Input should be a valid string"))
            })?;
            if text.is_empty() {
                return Err(ApiError::invalid(
                    "messages: text content blocks must be non-empty",
                ));
            }
            if text.trim().is_empty() {
                return Err(ApiError::invalid(
                    "messages: text content blocks must contain non-whitespace text",
                ));
            }
            if role == Role::User
                && head.version == VERSION_2026
                && block.given("citations").is_some()
            {
                return Err(ApiError::invalid(format!(
                    "{path}.text.citations: Extra inputs are not permitted"
                )));
            }
        }
        "image" => {
            required("source")?;
            only(Role::User, "user")?;
        }
        "document" => {
            required("source")?;
            if role == Role::Assistant && head.version == VERSION_2026 {
                only(Role::User, "user")?;
            }
        }
        "tool_use" => {
            required("id")?;
            required("name")?;
            if !matches!(required("input")?, Json::Obj(_)) {
                return Err(ApiError::invalid(format!(
                    "{path}.tool_use.input: Input should be a valid dictionary"
                )));
            }
            only(Role::Assistant, "assistant")?;
        }
        "tool_result" => {
            required("tool_use_id")?;
            only(Role::User, "user")?;
            match block.given("content") {
                None | Some(Json::Str(_) | Json::Arr(_)) => {}
                Some(_) => {
                    return Err(ApiError::invalid(format!(
                        "{path}.tool_result.content: Input should be a valid string or a valid list"
                    )));
                }
            }
        }
        "thinking" => {
            required("thinking")?;
            required("signature")?;
            only(Role::Assistant, "assistant")?;
        }
        "redacted_thinking" => {
            required("data")?;
            only(Role::Assistant, "assistant")?;
        }
        _ => {}
    }
    Ok(())
}

/// `role: "system"` inside the conversation. Source: provider docs, Aug 2026.
fn system_messages(messages: &[Message], model: &Model) -> Result<(), ApiError> {
    for (at, message) in messages.iter().enumerate() {
        if message.role != Role::System {
            continue;
        }
        let place = format!("messages.{}", message.index);
        if !model.mid_system {
            return Err(ApiError::invalid(
                "messages: Unexpected role \"system\". The Messages API accepts a top-level `system` parameter, \
                 not \"system\" as an input message role.",
            ));
        }
        let before = messages[..at].iter().rev().find(|m| m.role != Role::System);
        let after = messages[at..].iter().find(|m| m.role != Role::System);
        let follows = before.is_some_and(|m| {
            m.role == Role::User
                || m.blocks
                    .last()
                    .and_then(|b| b.text_of("type"))
                    .is_some_and(|kind| kind.ends_with("_tool_result"))
        });
        if !follows {
            return Err(ApiError::invalid(format!(
                "{place}: a `system` message must follow a `user` message"
            )));
        }
        if after.is_some_and(|m| m.role != Role::Assistant) {
            return Err(ApiError::invalid(format!(
                "{place}: a `system` message must be the last message or precede an `assistant` message"
            )));
        }
    }
    Ok(())
}

/// Neighbouring messages of one role are one turn to the API.
fn turns(messages: &[Message]) -> Vec<(Role, usize, Vec<&Json>)> {
    let mut out: Vec<(Role, usize, Vec<&Json>)> = Vec::new();
    for message in messages {
        match out.last_mut() {
            Some((role, _, blocks)) if *role == message.role => blocks.extend(&message.blocks),
            _ => out.push((message.role, message.index, message.blocks.iter().collect())),
        }
    }
    out
}

/// Every call is answered at once, and nothing else is answered.
fn pairs(messages: &[Message]) -> Result<(), ApiError> {
    let ids = |blocks: &[&Json], kind: &str, key: &str| -> Vec<String> {
        blocks
            .iter()
            .filter(|block| is_kind(block, kind))
            .filter_map(|block| block.text_of(key))
            .collect()
    };
    let turns = turns(messages);
    let mut seen: Vec<String> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    let mut open_at = 0;
    for (role, index, blocks) in &turns {
        // Calls are answered by the very next user turn, before anything else in it.
        let results = match role {
            Role::User => ids(blocks, "tool_result", "tool_use_id"),
            _ => Vec::new(),
        };
        if let Some(stray) = results.iter().find(|id| !open.contains(id)) {
            return Err(ApiError::invalid(format!(
                "messages.{index}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {stray}. \
                 Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )));
        }
        let late = blocks
            .first()
            .is_some_and(|first| !is_kind(first, "tool_result"));
        let unanswered: Vec<String> = open
            .iter()
            .filter(|id| late || !results.contains(id))
            .cloned()
            .collect();
        if !unanswered.is_empty() {
            return Err(unanswered_calls(open_at, &unanswered));
        }
        for (at, id) in results.iter().enumerate() {
            if results[..at].contains(id) {
                return Err(ApiError::invalid(format!(
                    "messages.{index}.content: each tool_use must have a single result. Found multiple \
                     `tool_result` blocks with id: {id}"
                )));
            }
        }
        open = match role {
            Role::Assistant => ids(blocks, "tool_use", "id"),
            _ => Vec::new(),
        };
        open_at = *index;
        for id in &open {
            if seen.contains(id) {
                return Err(ApiError::invalid(format!(
                    "messages.{index}.content: `tool_use` ids must be unique"
                )));
            }
            seen.push(id.clone());
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(unanswered_calls(open_at, &open))
    }
}

fn unanswered_calls(index: usize, ids: &[String]) -> ApiError {
    ApiError::invalid(format!(
        "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. \
         Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        ids.join(", ")
    ))
}

fn prefill(messages: &[Message], model: &Model) -> Result<(), ApiError> {
    let Some(last) = messages.last().filter(|m| m.role == Role::Assistant) else {
        return Ok(());
    };
    let Some(text) = last.blocks.last().filter(|b| is_kind(b, "text")) else {
        return Ok(());
    };
    if !model.prefill {
        return Err(ApiError::invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ));
    }
    if text
        .text_of("text")
        .is_some_and(|text| text.ends_with(char::is_whitespace))
    {
        return Err(ApiError::invalid(
            "messages: final assistant content cannot end with trailing whitespace",
        ));
    }
    Ok(())
}

/// Signs thinking and checks what comes back.
///
/// A signature holds for its text; on binding models also for the model and for the conversation
/// before it. Conversation means the messages: markers are no content, and system and tools may be
/// rendered anew (the documentation speaks of "the same preceding conversation").
#[derive(Debug, Clone, Copy)]
pub struct Signer {
    /// Makes signatures of different simulated providers differ.
    pub seed: u64,
}

impl Signer {
    /// The signature of a thinking text written after `before`.
    #[must_use]
    pub fn sign(&self, thinking: &str, model: &Model, before: &[Message]) -> String {
        let mut conversation = Sha256::new();
        for message in before {
            mix(&mut conversation, message);
        }
        self.signature(thinking, model, conversation)
    }

    fn signature(&self, thinking: &str, model: &Model, conversation: Sha256) -> String {
        let text: [u8; 32] = Sha256::new()
            .chain_update(self.seed.to_le_bytes())
            .chain_update(thinking)
            .finalize()
            .into();
        let bound: [u8; 32] = conversation.chain_update(model.id).finalize().into();
        format!("sim{}{}==", hex(&text[..16]), hex(&bound[..16]))
    }

    /// Checks all thinking of a conversation.
    ///
    /// # Errors
    /// 400 for a signature this provider did not make, and on binding models for thinking whose
    /// preceding conversation or model changed.
    pub fn check(&self, prompt: &Prompt, model: &Model) -> Result<(), ApiError> {
        let mut conversation = Sha256::new();
        for message in &prompt.messages {
            for (inner, block) in message.blocks.iter().enumerate() {
                if !is_kind(block, "thinking") {
                    continue;
                }
                let text = block.text_of("thinking").unwrap_or_default();
                let given = block.text_of("signature").unwrap_or_default();
                let path = format!("messages.{}.content.{inner}", message.index);
                let expected = self.signature(&text, model, conversation.clone());
                if given.get(..OWN_PART) != expected.get(..OWN_PART)
                    || given.len() != expected.len()
                {
                    return Err(ApiError::invalid(format!(
                        "{path}: Invalid `signature` in `thinking` block"
                    )));
                }
                if model.binds_thinking && given != expected {
                    return Err(ApiError::invalid(format!(
                        "{path}: `thinking` block is not valid for this conversation: the model or the \
                         messages before it changed"
                    )));
                }
            }
            mix(&mut conversation, message);
        }
        Ok(())
    }
}

/// Length of the part of a signature that stands for the text alone.
const OWN_PART: usize = 35;

/// The role, not the border of messages: neighbours of one role are one turn.
fn mix(conversation: &mut Sha256, message: &Message) {
    for block in &message.blocks {
        conversation.update([message.role as u8]);
        conversation.update(canonical(block));
        conversation.update([0]);
    }
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
