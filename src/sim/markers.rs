//! The rules about markers: where they may stand, how many, in which order, and the automatic one.
//!
//! Exact texts of refusals are those the API was seen to give; where none was captured, the text is
//! ours and says so.

use super::error::ApiError;
use super::json::Json;
use super::prompt::{Life, Prompt, deferred, is_kind};

/// Reads the marker of a block or of the top level.
///
/// # Errors
/// On a value that the API refuses; `path` names the place.
pub fn read(holder: &Json, path: &str) -> Result<Option<Life>, ApiError> {
    let Some(value) = holder.given("cache_control") else {
        return Ok(None);
    };
    let at = if path.is_empty() {
        "cache_control".to_owned()
    } else {
        format!("{path}.cache_control")
    };
    if !is_kind(value, "ephemeral") {
        return Err(ApiError::invalid(format!(
            "{at}.type: Input should be 'ephemeral'"
        )));
    }
    for (key, _) in value.members() {
        if !matches!(key.as_str(), "type" | "ttl" | "scope" | "evict_on_complete") {
            return Err(ApiError::invalid(format!(
                "{at}.{key}: Extra inputs are not permitted"
            )));
        }
    }
    match value.given("ttl") {
        None => Ok(Some(Life::FiveMinutes)),
        Some(ttl) if ttl.is("5m") => Ok(Some(Life::FiveMinutes)),
        Some(ttl) if ttl.is("1h") => Ok(Some(Life::OneHour)),
        Some(_) => Err(ApiError::invalid(format!(
            "{at}.ttl: Input should be '5m' or '1h'"
        ))),
    }
}

/// A marker with its place in words, for the rules about markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// JSON path of the block.
    pub path: String,
    /// The lifetime asked for.
    pub life: Life,
}

/// Checks every rule about markers and applies the automatic one.
///
/// # Errors
/// The 400 of the first rule that is broken.
pub fn check(prompt: &mut Prompt, auto: Option<Life>) -> Result<(), ApiError> {
    let mut placed = Vec::new();
    for (index, tool) in prompt.tools.iter().enumerate() {
        let path = format!("tools.{index}");
        if let Some(life) = read(tool, &path)? {
            if deferred(tool) {
                return Err(ApiError::invalid(format!(
                    "{path}.cache_control: cache_control cannot be set on a tool with defer_loading"
                )));
            }
            placed.push(Placed { path, life });
        }
    }
    for (index, block) in prompt.system.iter().enumerate() {
        check_block(block, &format!("system.{index}"), &mut placed)?;
    }
    for message in &prompt.messages {
        if message.held {
            continue;
        }
        for (index, block) in message.blocks.iter().enumerate() {
            let path = format!("messages.{}.content.{index}", message.index);
            check_block(block, &path, &mut placed)?;
        }
    }
    check_code_execution(prompt)?;
    if let Some(life) = auto {
        place_automatic(prompt, life, &mut placed)?;
    }
    if placed.len() > 4 {
        return Err(ApiError::invalid(format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {}.",
            placed.len()
        )));
    }
    let mut short_seen = false;
    for Placed { path, life } in &placed {
        if *life == Life::OneHour && short_seen {
            let at = if path.is_empty() {
                String::new()
            } else {
                format!("{path}.")
            };
            return Err(ApiError::invalid(format!(
                "{at}cache_control.ttl: a ttl='1h' cache_control block must not come after a \
                 ttl='5m' cache_control block. Note that blocks are processed in the following \
                 order: `tools`, `system`, `messages`."
            )));
        }
        short_seen |= *life == Life::FiveMinutes;
    }
    Ok(())
}

fn check_block(block: &Json, path: &str, placed: &mut Vec<Placed>) -> Result<(), ApiError> {
    let kind = block.text_of("type").unwrap_or_default();
    if kind == "tool_result" {
        for (index, inner) in block
            .get("content")
            .map_or(&[][..], Json::items)
            .iter()
            .enumerate()
        {
            if inner.given("cache_control").is_some() {
                return Err(ApiError::invalid(format!(
                    "{path}.tool_result.content.{index}.cache_control: cache_control may not be \
                     specified within `tool_result.content`. Instead, place it directly on \
                     `tool_result`"
                )));
            }
        }
    }
    let typed = format!("{path}.{kind}");
    if block.get("cache_control").is_some() && kind.ends_with("thinking") {
        return Err(ApiError::invalid(format!(
            "{typed}.cache_control: Extra inputs are not permitted"
        )));
    }
    if let Some(life) = read(block, &typed)? {
        if kind == "text" && block.text_of("text").unwrap_or_default().trim().is_empty() {
            return Err(ApiError::invalid(format!(
                "{typed}: cache_control cannot be set for empty text blocks"
            )));
        }
        placed.push(Placed {
            path: path.to_owned(),
            life,
        });
    }
    Ok(())
}

fn by_code_execution(block: &Json) -> bool {
    block
        .given("caller")
        .and_then(|caller| caller.text_of("type"))
        .is_some_and(|kind| kind.starts_with("code_execution"))
}

/// Calls made from code execution, and their results, take no marker. The text of this refusal was
/// not captured anywhere; the status and the rule were.
fn check_code_execution(prompt: &Prompt) -> Result<(), ApiError> {
    let all = || {
        prompt
            .messages
            .iter()
            .flat_map(|m| m.blocks.iter().map(move |b| (m, b)))
    };
    let ids: Vec<String> = all()
        .filter(|(_, block)| is_kind(block, "tool_use") && by_code_execution(block))
        .filter_map(|(_, block)| block.text_of("id"))
        .collect();
    for (message, block) in all() {
        let ours = (is_kind(block, "tool_use") && by_code_execution(block))
            || (is_kind(block, "tool_result")
                && block
                    .text_of("tool_use_id")
                    .is_some_and(|id| ids.contains(&id)));
        if ours && !message.held && block.given("cache_control").is_some() {
            return Err(ApiError::invalid(format!(
                "messages.{}: cache_control cannot be set on blocks of a programmatic tool call",
                message.index
            )));
        }
    }
    Ok(())
}

/// The automatic marker goes to the last block that may carry one.
fn place_automatic(
    prompt: &mut Prompt,
    life: Life,
    placed: &mut Vec<Placed>,
) -> Result<(), ApiError> {
    let eligible = |block: &Json| {
        let kind = block.text_of("type").unwrap_or_default();
        let blank = kind == "text" && block.text_of("text").unwrap_or_default().trim().is_empty();
        !(blank || kind.ends_with("thinking") || by_code_execution(block))
    };
    let messages = prompt
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.blocks);
    let tools = prompt.tools.iter_mut().filter(|tool| !deferred(tool));
    let last = tools
        .chain(&mut prompt.system)
        .chain(messages)
        .filter(|block| eligible(block))
        .last();
    let Some(block) = last else { return Ok(()) };
    match read(block, "")? {
        Some(own) if own == life => return Ok(()),
        Some(own) => {
            return Err(ApiError::invalid(format!(
                "cache_control: the top-level ttl='{}' conflicts with ttl='{}' on the last block",
                life.word(),
                own.word()
            )));
        }
        None => {}
    }
    if let Json::Obj(members) = block {
        members.retain(|(key, _)| key != "cache_control");
        let value = Json::Obj(vec![
            ("type".to_owned(), Json::Str("ephemeral".into())),
            ("ttl".to_owned(), Json::Str(life.word().into())),
        ]);
        members.push(("cache_control".to_owned(), value));
    }
    placed.push(Placed {
        path: String::new(),
        life,
    });
    Ok(())
}
