//! What the API refuses before it looks at the conversation: fields, numbers, shapes.

use super::error::ApiError;
use super::head::{Head, VERSION_2026};
use super::json::Json;
use super::markers;
use super::models::{self, Model};
use super::prompt::{self, Life, Message, Prompt, Role, is_kind};

/// Most messages in one request. Source: provider docs, Aug 2026.
const MAX_MESSAGES: usize = 100_000;

/// Smallest thinking budget. Source: provider docs, Aug 2026.
const MIN_THINKING_BUDGET: u64 = 1_024;

/// Top-level members that need no beta. Source: SDK types, Nov 2026.
const FIELDS: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "metadata",
    "stop_sequences",
    "thinking",
    "cache_control",
    "container",
    "diagnostics",
    "inference_geo",
    "output_config",
    "service_tier",
    "speed",
    "temperature",
    "top_p",
    "top_k",
    "user_profile_id",
    "workspace_id",
    "billing_policy",
    "output_format",
];

/// Top-level members that are unknown without one of these betas (by prefix).
const BETA_FIELDS: &[(&str, &[&str])] = &[
    ("thread", &["message-threads-"]),
    ("context_management", &["context-management-", "compact-"]),
    ("compaction", &["compact-"]),
    ("mcp_servers", &["mcp-client-"]),
    ("fallbacks", &["server-side-fallback-"]),
    ("fallback_credit_token", &["fallback-credit-"]),
];

/// What the numbers and switches of a request say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The model.
    pub model: &'static Model,
    /// Largest output; 0 warms the cache.
    pub max_tokens: u64,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// Whether the model may think.
    pub thinks: bool,
    /// The top-level marker.
    pub auto: Option<Life>,
}

/// What kind of request the fields belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `/v1/messages`.
    Answer,
    /// `/v1/messages/count_tokens`: no `max_tokens`.
    Count,
    /// One request of a batch.
    Batch,
}

/// Checks all members beside the conversation; without `strict`, unknown members pass.
///
/// # Errors
/// The API's refusal of the first that is wrong.
pub fn settings(
    body: &Json,
    head: &Head,
    purpose: Purpose,
    strict: bool,
) -> Result<Settings, ApiError> {
    if strict {
        known_fields(body, head)?;
    }
    let name = body
        .get("model")
        .ok_or_else(|| ApiError::invalid("model: Field required"))?
        .text()
        .ok_or_else(|| ApiError::invalid("model: Input should be a valid string"))?;
    let model = models::find(&name).ok_or_else(|| ApiError::new(404, format!("model: {name}")))?;
    let max_tokens = match (body.given("max_tokens"), purpose) {
        (None, Purpose::Count) => 1,
        (None, _) => return Err(ApiError::invalid("max_tokens: Field required")),
        (Some(value), _) => value
            .count()
            .ok_or_else(|| ApiError::invalid("max_tokens: Input should be a valid integer"))?,
    };
    if max_tokens > model.max_output {
        return Err(ApiError::invalid(format!(
            "max_tokens: {max_tokens} > {}, which is the maximum allowed number of output tokens for {name}",
            model.max_output
        )));
    }
    let stream = match body.given("stream") {
        None => false,
        Some(Json::Bool(stream)) => *stream,
        Some(_) => return Err(ApiError::invalid("stream: Input should be a valid boolean")),
    };
    sampling(body, head)?;
    let thinks = thinking(body, model, max_tokens)?;
    tool_choice(body, model, thinks)?;
    if body.get("speed").is_some_and(|speed| speed.is("fast")) && !model.fast {
        return Err(ApiError::invalid(format!(
            "speed: fast mode is not supported for {name}"
        )));
    }
    if max_tokens == 0 {
        prewarm(body, stream, thinks, purpose)?;
    }
    Ok(Settings {
        model,
        max_tokens,
        stream,
        thinks,
        auto: markers::read(body, "")?,
    })
}

fn known_fields(body: &Json, head: &Head) -> Result<(), ApiError> {
    let Json::Obj(members) = body else {
        return Err(ApiError::invalid("Input should be an object"));
    };
    for (key, _) in members {
        let beta = BETA_FIELDS.iter().find(|(name, _)| name == key);
        let known = FIELDS.contains(&key.as_str())
            || beta.is_some_and(|(_, betas)| betas.iter().any(|beta| head.beta(beta)));
        if !known {
            return Err(ApiError::invalid(format!(
                "{key}: Extra inputs are not permitted"
            )));
        }
    }
    Ok(())
}

fn sampling(body: &Json, head: &Head) -> Result<(), ApiError> {
    for key in ["temperature", "top_p", "top_k"] {
        let Some(value) = body.given(key) else {
            continue;
        };
        if head.version == VERSION_2026 {
            return Err(ApiError::invalid(format!(
                "{key}: Extra inputs are not permitted"
            )));
        }
        let number = match value {
            Json::Num(raw) => raw.parse::<f64>().ok(),
            _ => None,
        };
        let Some(number) = number else {
            return Err(ApiError::invalid(format!(
                "{key}: Input should be a valid number"
            )));
        };
        if key != "top_k" && !(0.0..=1.0).contains(&number) {
            return Err(ApiError::invalid(format!("{key}: range: 0..1")));
        }
    }
    Ok(())
}

fn thinking(body: &Json, model: &Model, max_tokens: u64) -> Result<bool, ApiError> {
    let Some(config) = body.given("thinking") else {
        return Ok(model.binds_thinking);
    };
    match config.text_of("type").as_deref() {
        Some("adaptive") => Ok(true),
        Some("between_tools") if model.binds_thinking => Ok(true),
        Some("disabled") if model.binds_thinking => Err(ApiError::invalid(format!(
            "thinking.type: thinking cannot be disabled for {}",
            model.id
        ))),
        Some("disabled") => Ok(false),
        Some("enabled") => {
            let budget = config
                .get("budget_tokens")
                .and_then(Json::count)
                .ok_or_else(|| {
                    ApiError::invalid("thinking.enabled.budget_tokens: Field required")
                })?;
            if budget < MIN_THINKING_BUDGET {
                return Err(ApiError::invalid(
                    "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
                ));
            }
            if budget >= max_tokens && max_tokens > 0 {
                return Err(ApiError::invalid(
                    "`max_tokens` must be greater than `thinking.budget_tokens`.",
                ));
            }
            Ok(true)
        }
        _ => Err(ApiError::invalid(
            "thinking: Input tag does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'",
        )),
    }
}

fn tool_choice(body: &Json, model: &Model, thinks: bool) -> Result<(), ApiError> {
    let Some(choice) = body.given("tool_choice") else {
        return Ok(());
    };
    let kind = choice.text_of("type").unwrap_or_default();
    let tools = body.given("tools").map_or(&[][..], Json::items);
    match kind.as_str() {
        "none" | "auto" if tools.is_empty() && kind == "none" => Ok(()),
        "auto" | "none" | "any" | "tool" if tools.is_empty() => Err(ApiError::invalid(
            "tool_choice: may only be specified while providing tools",
        )),
        "auto" | "none" => Ok(()),
        "any" | "tool" if model.binds_thinking => Err(ApiError::invalid(format!(
            "tool_choice: forced tool use is not supported for {}",
            model.id
        ))),
        "any" | "tool" if thinks && body.given("thinking").is_some() => Err(ApiError::invalid(
            "Thinking may not be enabled when tool_choice forces tool use.",
        )),
        "tool" => {
            let name = choice.text_of("name").unwrap_or_default();
            if tools
                .iter()
                .any(|tool| tool.get("name").is_some_and(|n| n.is(&name)))
            {
                Ok(())
            } else {
                Err(ApiError::invalid(format!(
                    "tool_choice: Tool '{name}' not found in provided tools"
                )))
            }
        }
        "any" => Ok(()),
        _ => Err(ApiError::invalid(
            "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'",
        )),
    }
}

/// A request with `max_tokens: 0` only warms the cache. Source: provider docs, Aug 2026.
fn prewarm(body: &Json, stream: bool, thinks: bool, purpose: Purpose) -> Result<(), ApiError> {
    let format = body
        .given("output_config")
        .and_then(|config| config.given("format"));
    let forced = body
        .given("tool_choice")
        .and_then(|choice| choice.text_of("type"))
        .is_some_and(|kind| kind == "any" || kind == "tool");
    let enabled = thinks
        && body
            .given("thinking")
            .is_some_and(|t| is_kind(t, "enabled"));
    let wrong = match () {
        () if purpose == Purpose::Batch => "a batch",
        () if stream => "stream",
        () if enabled => "enabled thinking",
        () if format.is_some() => "output_config.format",
        () if forced => "a tool_choice that forces tool use",
        () => return Ok(()),
    };
    Err(ApiError::invalid(format!(
        "max_tokens: 0 cannot be combined with {wrong}"
    )))
}

/// Reads the conversation of a body and checks the shape of each part.
///
/// # Errors
/// The API's refusal of the first part that is wrong.
pub fn prompt(body: &Json) -> Result<Prompt, ApiError> {
    let tools = match body.given("tools") {
        None => Vec::new(),
        Some(Json::Arr(tools)) => tools.clone(),
        Some(_) => return Err(ApiError::invalid("tools: Input should be a valid list")),
    };
    let mut names: Vec<String> = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let custom = tool.given("type").is_none_or(|kind| kind.is("custom"));
        if !matches!(tool, Json::Obj(_)) {
            return Err(ApiError::invalid(format!(
                "tools.{index}: Input should be an object"
            )));
        }
        if custom {
            for key in ["name", "input_schema"] {
                if tool.given(key).is_none() {
                    return Err(ApiError::invalid(format!(
                        "tools.{index}.custom.{key}: Field required"
                    )));
                }
            }
        }
        if let Some(name) = tool.text_of("name") {
            if names.contains(&name) {
                return Err(ApiError::invalid("tools: Tool names must be unique."));
            }
            names.push(name);
        }
    }
    let system = body.given("system").map_or(Ok(Vec::new()), |system| {
        // An empty string is the same as none.
        if system.is("") {
            Ok(Vec::new())
        } else {
            prompt::blocks_of(system, "system")
        }
    })?;
    for (index, block) in system.iter().enumerate() {
        if !is_kind(block, "text") {
            return Err(ApiError::invalid(format!(
                "system.{index}.type: Input should be 'text'"
            )));
        }
        if block.text_of("text").is_none_or(|text| text.is_empty()) {
            return Err(ApiError::invalid(
                "system: text content blocks must be non-empty",
            ));
        }
    }
    Ok(Prompt {
        tools,
        system,
        messages: messages(body)?,
    })
}

fn messages(body: &Json) -> Result<Vec<Message>, ApiError> {
    let Some(list) = body.given("messages") else {
        return Err(ApiError::invalid("messages: Field required"));
    };
    let Json::Arr(list) = list else {
        return Err(ApiError::invalid("messages: Input should be a valid list"));
    };
    if list.len() > MAX_MESSAGES {
        return Err(ApiError::invalid(
            "messages: at most 100000 messages are allowed",
        ));
    }
    let mut out = Vec::with_capacity(list.len());
    for (index, message) in list.iter().enumerate() {
        let role = match message.text_of("role").as_deref() {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            Some(other) => {
                return Err(ApiError::invalid(format!(
                    "messages: Unexpected role \"{other}\". Allowed roles are \"user\" or \"assistant\""
                )));
            }
            None => {
                return Err(ApiError::invalid(format!(
                    "messages.{index}.role: Field required"
                )));
            }
        };
        for (key, _) in message.members() {
            if !matches!(
                key.as_str(),
                "role" | "content" | "output_config" | "clear_at"
            ) {
                return Err(ApiError::invalid(format!(
                    "messages.{index}.{key}: Extra inputs are not permitted"
                )));
            }
        }
        let content = message.get("content").ok_or_else(|| {
            ApiError::invalid(format!("messages.{index}.content: Field required"))
        })?;
        out.push(Message {
            role,
            blocks: prompt::blocks_of(content, &format!("messages.{index}.content"))?,
            index,
            held: false,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::head::VERSION_2023;

    fn head(version: &str, betas: &[&str]) -> Head {
        Head {
            scope: "k".into(),
            version: version.into(),
            betas: betas.iter().map(|beta| (*beta).to_owned()).collect(),
        }
    }

    fn check(
        purpose: Purpose,
        version: &str,
        betas: &[&str],
        extra: &str,
    ) -> Result<Settings, ApiError> {
        let text = format!(r#"{{"model":"test-sonnet","messages":[]{extra}}}"#);
        settings(
            &Json::parse(text.as_bytes()).unwrap(),
            &head(version, betas),
            purpose,
            true,
        )
    }

    fn message(extra: &str) -> String {
        check(Purpose::Answer, VERSION_2023, &[], extra)
            .unwrap_err()
            .message
    }

    #[test]
    fn unknown_fields_are_refused_and_betas_open_fields() {
        assert_eq!(
            message(r#","max_tokens":9,"foo":1"#),
            "foo: Extra inputs are not permitted"
        );
        let thread = r#","max_tokens":9,"thread":{"type":"create"}"#;
        assert_eq!(message(thread), "thread: Extra inputs are not permitted");
        assert!(
            check(
                Purpose::Answer,
                VERSION_2023,
                &["message-threads-2026-08-12"],
                thread
            )
            .is_ok()
        );
    }

    #[test]
    fn max_tokens_is_required_and_bounded() {
        assert_eq!(message(""), "max_tokens: Field required");
        assert!(check(Purpose::Count, VERSION_2023, &[], "").is_ok());
        assert!(message(r#","max_tokens":-1"#).starts_with("max_tokens: Input"));
        assert!(message(r#","max_tokens":999999"#).starts_with("max_tokens: 999999 > 128000"));
    }

    #[test]
    fn the_new_version_refuses_sampling() {
        for key in ["temperature", "top_p", "top_k"] {
            let extra = format!(r#","max_tokens":9,"{key}":1"#);
            assert!(check(Purpose::Answer, VERSION_2023, &[], &extra).is_ok());
            assert_eq!(
                check(Purpose::Answer, VERSION_2026, &[], &extra)
                    .unwrap_err()
                    .status,
                400
            );
        }
        assert!(message(r#","max_tokens":9,"temperature":1.5"#).starts_with("temperature"));
    }

    #[test]
    fn an_unknown_model_is_404() {
        let body = Json::parse(br#"{"model":"gpt-5","messages":[],"max_tokens":1}"#).unwrap();
        let error = settings(&body, &head(VERSION_2023, &[]), Purpose::Answer, true).unwrap_err();
        assert_eq!(
            (error.status, error.message.as_str()),
            (404, "model: gpt-5")
        );
    }

    #[test]
    fn prewarming_excludes_what_would_need_an_answer() {
        let zero = |extra: &str| {
            check(
                Purpose::Answer,
                VERSION_2023,
                &[],
                &format!(r#","max_tokens":0{extra}"#),
            )
        };
        assert_eq!(zero("").unwrap().max_tokens, 0);
        for extra in [
            r#","stream":true"#,
            r#","thinking":{"type":"enabled","budget_tokens":2000}"#,
            r#","output_config":{"format":{"type":"json_schema"}}"#,
            r#","tools":[{"name":"a","input_schema":{}}],"tool_choice":{"type":"any"}"#,
        ] {
            assert!(
                zero(extra).unwrap_err().message.contains("max_tokens: 0"),
                "{extra}"
            );
        }
        assert!(check(Purpose::Batch, VERSION_2023, &[], r#","max_tokens":0"#).is_err());
    }

    #[test]
    fn thinking_rules() {
        assert!(
            message(r#","max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":10}"#)
                .contains("1024")
        );
        assert!(
            message(r#","max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":2000}"#)
                .contains("greater")
        );
        let forced = r#","max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":2000},"tools":[{"name":"a","input_schema":{}}],"tool_choice":{"type":"tool","name":"a"}"#;
        assert!(message(forced).contains("tool_choice forces"));
        let body = |thinking: &str| {
            let text = format!(
                r#"{{"model":"claude-sonnet-5-5","messages":[],"max_tokens":9,"thinking":{{"type":"{thinking}"}}}}"#
            );
            settings(
                &Json::parse(text.as_bytes()).unwrap(),
                &head(VERSION_2023, &[]),
                Purpose::Answer,
                true,
            )
        };
        assert!(body("disabled").is_err());
        assert!(body("between_tools").is_ok());
    }

    #[test]
    fn tool_choice_needs_its_tool() {
        let tools = r#","max_tokens":9,"tools":[{"name":"a","input_schema":{}}],"tool_choice":"#;
        assert!(
            message(&format!(r#"{tools}{{"type":"tool","name":"b"}}"#)).contains("'b' not found")
        );
        assert!(
            message(r#","max_tokens":9,"tool_choice":{"type":"auto"}"#).contains("providing tools")
        );
        assert!(message(&format!(r#"{tools}{{"type":"maybe"}}"#)).contains("Input tag"));
    }

    #[test]
    fn the_shape_of_prompts() {
        let check = |text: &str, expected: &str| {
            let error = prompt(&Json::parse(text.as_bytes()).unwrap()).unwrap_err();
            assert!(
                error.message.contains(expected),
                "{} has not {expected}",
                error.message
            );
        };
        check("{}", "messages: Field required");
        check(r#"{"messages":{}}"#, "valid list");
        check(
            r#"{"messages":[{"role":"tool","content":"x"}]}"#,
            "Unexpected role \"tool\"",
        );
        check(
            r#"{"messages":[{"role":"user","content":"x","name":"n"}]}"#,
            "messages.0.name: Extra inputs",
        );
        check(
            r#"{"messages":[{"role":"user"}]}"#,
            "messages.0.content: Field required",
        );
        check(
            r#"{"messages":[],"tools":[{"name":"a"}]}"#,
            "tools.0.custom.input_schema: Field required",
        );
        check(
            r#"{"messages":[],"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}]}"#,
            "unique",
        );
        check(
            r#"{"messages":[],"system":[{"type":"text","text":""}]}"#,
            "non-empty",
        );
        check(
            r#"{"messages":[],"system":[{"type":"image"}]}"#,
            "system.0.type",
        );
    }
}
