//! Reading Chat Completions requests.

use super::cache::Caching;
use super::error::OpenAiError;
use super::models::Model;
use super::prompt::{Key, Piece, Said, without};
use super::request::{Asked, Wire, schema_of, script_members};
use super::{tools, validate};
use crate::sim::json::Json;
use crate::sim::options::Options;

/// Members of the body. Source: SDK types, Nov 2026.
const MEMBERS: &[&str] = &[
    "messages",
    "model",
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

const ROLES: &[&str] = &[
    "system",
    "assistant",
    "user",
    "function",
    "tool",
    "developer",
];

const TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];

/// Most choices of one answer.
const MAX_CHOICES: u64 = 8;

/// What only Chat asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Number of choices.
    pub choices: u64,
    /// The stream ends with a chunk of usage.
    pub include_usage: bool,
}

/// Reads a request. `scope` is the credential.
///
/// # Errors
/// The API's refusals.
pub fn read(body: &Json, scope: &str, options: &Options) -> Result<(Asked, Wishes), OpenAiError> {
    let strict = options.strict;
    if !matches!(body, Json::Obj(_)) {
        return Err(OpenAiError::invalid("The request body must be an object."));
    }
    let model = validate::model(body, false)?;
    if strict {
        validate::members(body, "", MEMBERS)?;
    }
    let stream = validate::switch(body, "", "stream")?.unwrap_or(false);
    let (include_usage, obfuscate) = stream_options(body, stream)?;
    let choices = validate::count(body, "", "n", 1)?.unwrap_or(1);
    if choices > MAX_CHOICES {
        return Err(OpenAiError::invalid("Invalid 'n': too many choices.")
            .code("integer_above_max_value")
            .param("n"));
    }
    let tier = validate::tier(body, model, TIERS)?;
    let effort = validate::effort(body, "", "reasoning_effort", model)?;
    if strict {
        validate::sampling(body, model)?;
        validate::metadata(body)?;
    }
    let verbosity = validate::word(body, "", "verbosity", &["low", "medium", "high"])?;
    let max_output = max_output(body, model, strict)?;
    let declared = tools::of_chat(body, strict)?;
    let has_tools = !declared.is_empty() || body.given("functions").is_some();
    for member in ["tool_choice", "parallel_tool_calls"] {
        if strict && !has_tools && body.given(member).is_some() {
            return Err(OpenAiError::invalid(format!(
                "'{member}' is only allowed when 'tools' are specified."
            ))
            .param(member));
        }
    }
    let (forced, may_call) = tools::choice(body, &declared, has_tools)?;
    let format = body
        .given("response_format")
        .filter(|format| format.get("type").is_none_or(|kind| !kind.is("text")));
    let inner = format.and_then(|format| format.given("json_schema"));
    response_format(format, inner)?;
    let day = validate::retention(body, model)?;
    let (implicit, life) = validate::cache_options(body, model, &["30m"], &[])?;
    let pieces = pieces(body, model, strict)?;
    let key = Key {
        scope: format!("chat\n{scope}"),
        model: model.id,
        tier: tier.to_owned(),
        cache_key: validate::text(body, "", "prompt_cache_key")?.unwrap_or_default(),
        tools: body
            .given("tools")
            .map_or(&[][..], Json::items)
            .iter()
            .map(Json::compact)
            .collect(),
        format: format.map(Json::compact).unwrap_or_default(),
        effort: effort.clone(),
        verbosity: verbosity
            .filter(|word| word != "medium")
            .unwrap_or_default(),
    };
    let schema = schema_of(format, inner);
    let asked = Asked {
        wire: Wire::Chat,
        scope: scope.to_owned(),
        model,
        stream,
        max_output,
        tier,
        thinks: model.reasons() && effort != "none",
        summarises: false,
        key,
        pieces,
        caching: caching(model, implicit, life, day, options),
        tools: if may_call { declared } else { Vec::new() },
        script: script_members(schema.as_ref(), forced.as_deref()),
        generate: true,
        comparison: None,
        obfuscate,
    };
    Ok((
        asked,
        Wishes {
            choices,
            include_usage,
        },
    ))
}

/// How a model caches.
#[must_use]
pub fn caching(
    model: &Model,
    implicit: bool,
    life: super::cache::Life,
    day: bool,
    options: &Options,
) -> Caching {
    const DAY_MS: u64 = 86_400_000;
    if model.breakpoints {
        Caching::Breakpoints { implicit, life }
    } else {
        Caching::Steps {
            keep_ms: if day {
                DAY_MS
            } else {
                u64::try_from(options.openai_keep.as_millis()).unwrap_or(u64::MAX)
            },
        }
    }
}

/// Reads `stream_options`: usage at the end, padding in the deltas.
///
/// # Errors
/// 400 without `stream`.
pub fn stream_options(body: &Json, stream: bool) -> Result<(bool, bool), OpenAiError> {
    const AT: &str = "stream_options";
    let Some(options) = body.given(AT) else {
        return Ok((false, true));
    };
    if !stream {
        return Err(OpenAiError::invalid(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        )
        .param(AT));
    }
    validate::members(options, AT, &["include_usage", "include_obfuscation"])?;
    Ok((
        validate::switch(options, AT, "include_usage")?.unwrap_or(false),
        validate::switch(options, AT, "include_obfuscation")?.unwrap_or(true),
    ))
}

fn max_output(body: &Json, model: &Model, strict: bool) -> Result<u64, OpenAiError> {
    let newer = validate::count(body, "", "max_completion_tokens", 1)?;
    let older = validate::count(body, "", "max_tokens", 1)?;
    if strict && older.is_some() && model.reasons() {
        return Err(OpenAiError::unsupported(
            "max_tokens",
            "is not supported with this model; 'max_completion_tokens' takes its place",
        ));
    }
    if strict && older.is_some() && newer.is_some() {
        return Err(OpenAiError::invalid(
            "'max_tokens' and 'max_completion_tokens' cannot both be set.",
        )
        .code("invalid_parameter_combination"));
    }
    let asked = newer.or(older).unwrap_or(model.max_output);
    if asked > model.max_output {
        return Err(OpenAiError::invalid(format!(
            "max_tokens is too large: {asked}. This model supports at most {} completion tokens.",
            model.max_output
        ))
        .code("invalid_value")
        .param(if newer.is_some() {
            "max_completion_tokens"
        } else {
            "max_tokens"
        }));
    }
    Ok(asked)
}

fn response_format(format: Option<&Json>, inner: Option<&Json>) -> Result<(), OpenAiError> {
    const AT: &str = "response_format";
    let Some(format) = format else {
        return Ok(());
    };
    let kind = validate::word(format, AT, "type", &["text", "json_object", "json_schema"])?
        .ok_or_else(|| OpenAiError::missing("response_format.type"))?;
    if kind == "json_schema" {
        let at = "response_format.json_schema";
        let inner = inner.ok_or_else(|| OpenAiError::missing(at))?;
        validate::tool_name(inner, at)?;
        if inner.given("schema").is_none() {
            return Err(OpenAiError::missing(format!("{at}.schema")));
        }
    }
    Ok(())
}

/// The conversation as pieces.
fn pieces(body: &Json, model: &Model, strict: bool) -> Result<Vec<Piece>, OpenAiError> {
    let messages =
        validate::list(body, "", "messages")?.ok_or_else(|| OpenAiError::missing("messages"))?;
    if messages.is_empty() {
        return Err(OpenAiError::invalid(
            "Invalid 'messages': empty array. Expected an array with minimum length 1.",
        )
        .code("empty_array")
        .param("messages"));
    }
    let mut out = Vec::new();
    // Calls of the assistant message whose results may come now.
    let mut open: Vec<String> = Vec::new();
    let mut answered: Vec<String> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        if !matches!(message, Json::Obj(_)) {
            return Err(OpenAiError::kind_of_value(at, "an object"));
        }
        let role = validate::word(message, &at, "role", ROLES)?
            .ok_or_else(|| OpenAiError::missing(validate::path(&at, "role")))?;
        if role == "tool" {
            let id = validate::needed_text(message, &at, "tool_call_id")?;
            if let Some(place) = open.iter().position(|open| *open == id) {
                answered.push(open.remove(place));
            } else if strict && !answered.contains(&id) {
                return Err(OpenAiError::invalid(
                    "Invalid parameter: messages with role 'tool' must respond to a preceding message with 'tool_calls'.",
                )
                .param(validate::path(&at, "role")));
            }
        } else if strict {
            unanswered(&open, &at)?;
            open.clear();
            answered.clear();
        } else {
            open.clear();
        }
        one(message, &role, &at, model, strict, &mut out)?;
        if role == "assistant" {
            open = calls(message, &at, &mut out)?;
            answered.clear();
        }
    }
    if strict {
        unanswered(&open, &format!("messages[{}]", messages.len() - 1))?;
    }
    Ok(out)
}

fn unanswered(open: &[String], at: &str) -> Result<(), OpenAiError> {
    if open.is_empty() {
        return Ok(());
    }
    Err(OpenAiError::invalid(format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. Without a response: {}",
        open.join(", ")
    ))
    .param(validate::path(at, "role")))
}

/// The calls of an assistant message, as pieces and by their ids.
fn calls(message: &Json, at: &str, out: &mut Vec<Piece>) -> Result<Vec<String>, OpenAiError> {
    let mut ids = Vec::new();
    let calls = validate::list(message, at, "tool_calls")?.unwrap_or_default();
    for (index, call) in calls.iter().enumerate() {
        let at = format!("{at}.tool_calls[{index}]");
        ids.push(validate::needed_text(call, &at, "id")?);
        let kind = validate::word(call, &at, "type", &["function", "custom"])?
            .ok_or_else(|| OpenAiError::missing(validate::path(&at, "type")))?;
        let inner_at = validate::path(&at, &kind);
        let inner = call
            .given(&kind)
            .ok_or_else(|| OpenAiError::missing(inner_at.clone()))?;
        let member = if kind == "function" {
            "arguments"
        } else {
            "input"
        };
        validate::needed_text(inner, &inner_at, "name")?;
        validate::needed_text(inner, &inner_at, member)?;
        let parts: Vec<String> = [call.get("id"), inner.get("name"), inner.get(member)]
            .into_iter()
            .flatten()
            .map(Json::compact)
            .collect();
        out.push(Piece::new(
            Said::Model,
            format!("{kind} call"),
            format!("[{}]", parts.join(",")),
        ));
    }
    Ok(ids)
}

/// The content of one message.
fn one(
    message: &Json,
    role: &str,
    at: &str,
    model: &Model,
    strict: bool,
    out: &mut Vec<Piece>,
) -> Result<(), OpenAiError> {
    let said = |text: String| match role {
        "assistant" => Said::Model,
        "user" => Said::User(text),
        "tool" | "function" => Said::Result,
        _ => Said::System,
    };
    let name = validate::text(message, at, "name")?.unwrap_or_default();
    let id = message.text_of("tool_call_id").unwrap_or_default();
    // System is the older word for developer.
    let shown = if role == "system" { "developer" } else { role };
    let start = format!("{shown}^{name}{id}");
    let content_at = validate::path(at, "content");
    match message.given("content") {
        None => {
            let refusal = message.given("refusal").filter(|_| role == "assistant");
            if let Some(refusal) = refusal {
                out.push(Piece::new(Said::Model, start, refusal.compact()));
            } else if role != "assistant"
                || (strict
                    && ["tool_calls", "function_call", "audio"]
                        .iter()
                        .all(|member| message.given(member).is_none()))
            {
                return Err(OpenAiError::invalid(format!(
                    "Invalid value for '{content_at}': expected a string, got null."
                ))
                .param(content_at));
            }
        }
        Some(content @ Json::Str(_)) => {
            let text = content.text().unwrap_or_default();
            out.push(Piece::new(said(text), start, content.compact()));
        }
        Some(Json::Arr(parts)) => {
            if parts.is_empty() {
                return Err(
                    OpenAiError::invalid(format!("Invalid '{content_at}': empty array."))
                        .code("empty_array")
                        .param(content_at),
                );
            }
            for (index, part) in parts.iter().enumerate() {
                let at = format!("{content_at}[{index}]");
                let tag = if index == 0 { &start } else { shown };
                out.push(part_piece(part, &at, role, tag, &said, model, strict)?);
            }
        }
        Some(_) => {
            return Err(OpenAiError::kind_of_value(
                content_at,
                "a string or an array of objects",
            ));
        }
    }
    Ok(())
}

fn part_piece(
    part: &Json,
    at: &str,
    role: &str,
    tag: &str,
    said: &dyn Fn(String) -> Said,
    model: &Model,
    strict: bool,
) -> Result<Piece, OpenAiError> {
    let allowed: &[&str] = match role {
        "user" => &["text", "image_url", "input_audio", "file"],
        "assistant" => &["text", "refusal"],
        _ => &["text"],
    };
    let kind = validate::word(part, at, "type", allowed)?
        .ok_or_else(|| OpenAiError::missing(validate::path(at, "type")))?;
    let marker = validate::breakpoint(part, at, model)?;
    let needed = || {
        part.given(&kind)
            .ok_or_else(|| OpenAiError::missing(validate::path(at, &kind)))
    };
    let bare = || without(part, &["prompt_cache_breakpoint"]);
    let mut piece = match kind.as_str() {
        "text" | "refusal" => {
            if strict {
                validate::members(part, at, &["type", &kind, "prompt_cache_breakpoint"])?;
            }
            let text = validate::needed_text(part, at, &kind)?;
            Piece::new(said(text), tag, needed()?.compact())
        }
        "image_url" => {
            needed()?;
            Piece::image(Said::Media, tag, bare())
        }
        _ => {
            needed()?;
            Piece::document(Said::Media, tag, bare())
        }
    };
    piece.marker = marker;
    Ok(piece)
}

#[cfg(test)]
mod tests;
