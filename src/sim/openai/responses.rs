//! Reading Responses requests.

use std::sync::Arc;

use super::cache::Life;
use super::chat::{caching, stream_options};
use super::error::OpenAiError;
use super::held::Held;
use super::items::{Checker, Item, kind_of};
use super::models::Model;
use super::prompt::{Key, Piece, Said};
use super::request::{Asked, Wire, schema_of, script_members};
use super::seal::Seal;
use super::{tools, validate};
use crate::sim::json::{Json, quote};
use crate::sim::options::Options;

/// Members of the body. Source: SDK types, Nov 2026; `client_metadata` is what Codex sends.
const MEMBERS: &[&str] = &[
    "access_programs",
    "background",
    "background_options",
    "client_metadata",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Members of the client event of a WebSocket beside those.
const SOCKET_MEMBERS: &[&str] = &["type", "generate", "stream_id"];

const TIERS: &[&str] = &["auto", "default", "flex", "priority", "fast", "ultrafast"];

/// Smallest output limit. Source: the API's refusals, 2026.
const MIN_OUTPUT: u64 = 16;

/// How a request came.
#[derive(Debug, Clone, Copy)]
pub enum Over<'a> {
    /// As a body.
    Http,
    /// As an event of a WebSocket, with what that connection remembers of its own.
    Socket(&'a [Own]),
}

/// A response that a connection remembers, stored or not.
#[derive(Debug, Clone)]
pub struct Own {
    /// Its lane.
    pub lane: Option<String>,
    /// Its id.
    pub id: String,
    /// All items up to and including its output.
    pub items: Vec<Arc<Json>>,
}

/// What only Responses asks for.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// All items of the prompt, those that were held first; instructions are not among them.
    pub items: Vec<Arc<Json>>,
    /// How many of them the request brought.
    pub new: usize,
    /// The conversation that grows by this turn.
    pub conversation: Option<String>,
    /// Keep the response.
    pub store: bool,
    /// Run it in the background.
    pub background: bool,
    /// Members of the response that repeat the request.
    pub echo: Arc<str>,
}

/// What a request is read with.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// Who asks: the credential.
    pub scope: &'a str,
    /// The provider's settings.
    pub options: &'a Options,
    /// What it holds.
    pub held: &'a Held,
    /// How the request came.
    pub over: Over<'a>,
}

impl Reader<'_> {
    /// Reads a request.
    ///
    /// # Errors
    /// The API's refusals.
    pub fn read(&self, body: &Json) -> Result<(Asked, Wishes), OpenAiError> {
        let strict = self.options.strict;
        if !matches!(body, Json::Obj(_)) {
            return Err(OpenAiError::invalid("The request body must be an object."));
        }
        let model = validate::model(body, false)?;
        let socket = matches!(self.over, Over::Socket(_));
        if strict {
            let more = if socket { SOCKET_MEMBERS } else { &[] };
            let known: Vec<&str> = MEMBERS.iter().chain(more).copied().collect();
            validate::members(body, "", &known)?;
        }
        let stream = validate::switch(body, "", "stream")?.unwrap_or(false);
        let (_, obfuscate) = stream_options(body, stream || socket)?;
        let store = validate::switch(body, "", "store")?.unwrap_or(true);
        let background = validate::switch(body, "", "background")?.unwrap_or(false);
        if background && socket {
            return Err(OpenAiError::unsupported(
                "background",
                "is not supported over WebSocket",
            ));
        }
        if background && !store {
            return Err(
                OpenAiError::invalid("Background mode requires 'store' to be true.")
                    .param("background"),
            );
        }
        let tier = validate::tier(body, model, TIERS)?;
        let reasoning = body.given("reasoning");
        let effort = validate::effort(
            reasoning.unwrap_or(&Json::Null),
            "reasoning",
            "effort",
            model,
        )?;
        let summary = reasoning
            .map(|reasoning| {
                validate::word(
                    reasoning,
                    "reasoning",
                    "summary",
                    &["auto", "concise", "detailed"],
                )
            })
            .transpose()?
            .flatten();
        if strict {
            validate::sampling(body, model)?;
            validate::metadata(body)?;
            validate::switch(body, "", "parallel_tool_calls")?;
            validate::list(body, "", "include")?;
            validate::word(body, "", "truncation", &["auto", "disabled"])?;
        }
        let max_output = validate::count(body, "", "max_output_tokens", MIN_OUTPUT)?
            .unwrap_or(model.max_output)
            .min(model.max_output);
        let (items, conversation) = self.items(body)?;
        let mut declared = tools::of_responses(body, strict)?;
        for item in &items {
            if matches!(
                kind_of(&item.json).as_str(),
                "additional_tools" | "tool_search_output"
            ) {
                let at = item.at.as_deref().unwrap_or_default();
                tools::within(&item.json, at, strict, &mut declared)?;
            }
        }
        let has_tools =
            !declared.is_empty() || !body.given("tools").map_or(&[][..], Json::items).is_empty();
        let (forced, may_call) = tools::choice(body, &declared, has_tools)?;
        let text = body.given("text").unwrap_or(&Json::Null);
        let format = text
            .given("format")
            .filter(|format| format.get("type").is_none_or(|kind| !kind.is("text")));
        text_format(format)?;
        let verbosity = validate::word(text, "text", "verbosity", &["low", "medium", "high"])?;
        let day = validate::retention(body, model)?;
        let (implicit, life) = validate::cache_options(
            body,
            model,
            &["30m", "12h"],
            &["prewarm", "comparison_response_id"],
        )?;
        let caches = body.given("prompt_cache_options").unwrap_or(&Json::Null);
        let prewarm = validate::switch(caches, "prompt_cache_options", "prewarm")?.unwrap_or(false);
        let generate = !prewarm && validate::switch(body, "", "generate")?.unwrap_or(true);
        let comparison = validate::text(caches, "prompt_cache_options", "comparison_response_id")?;
        let pieces = self.pieces(body, model, &items)?;
        let key = Key {
            scope: format!("responses\n{}", self.scope),
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
        let schema = schema_of(format, format);
        let asked = Asked {
            wire: Wire::Responses,
            scope: self.scope.to_owned(),
            model,
            stream,
            max_output,
            tier,
            thinks: model.reasons() && effort != "none",
            summarises: summary.is_some(),
            key,
            pieces,
            caching: caching(model, implicit, life, day, self.options),
            tools: if may_call { declared } else { Vec::new() },
            script: script_members(schema.as_ref(), forced.as_deref()),
            generate,
            comparison: comparison.filter(|_| model.breakpoints),
            obfuscate,
        };
        let new = items.iter().filter(|item| item.at.is_some()).count();
        let wishes = Wishes {
            items: items.into_iter().map(|item| item.json).collect(),
            new,
            echo: echo(
                body,
                model,
                &effort,
                (implicit, life),
                conversation.as_deref(),
            )
            .into(),
            conversation,
            store,
            background,
        };
        Ok((asked, wishes))
    }

    /// All items of the prompt, and the conversation they belong to.
    fn items(&self, body: &Json) -> Result<(Vec<Item>, Option<String>), OpenAiError> {
        let previous = validate::text(body, "", "previous_response_id")?;
        let conversation = match body.given("conversation") {
            None => None,
            Some(id @ Json::Str(_)) => id.text(),
            Some(object) => Some(validate::needed_text(object, "conversation", "id")?),
        };
        if previous.is_some() && conversation.is_some() {
            return Err(OpenAiError::invalid(
                "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
            )
            .code("mutually_exclusive_parameters"));
        }
        let before: Vec<Arc<Json>> = match (&previous, &conversation) {
            (Some(id), _) => self.before(id)?,
            (None, Some(id)) => self.held.conversation(id, self.scope)?.to_vec(),
            (None, None) => Vec::new(),
        };
        let mut items: Vec<Item> = before
            .into_iter()
            .map(|json| Item { json, at: None })
            .collect();
        match body.given("input") {
            Some(input @ Json::Str(_)) => items.push(Item {
                json: Arc::new(Json::Obj(vec![
                    ("type".to_owned(), Json::string("message")),
                    ("role".to_owned(), Json::string("user")),
                    ("content".to_owned(), input.clone()),
                ])),
                at: Some("input".to_owned()),
            }),
            Some(Json::Arr(list)) => {
                for (index, json) in list.iter().enumerate() {
                    items.push(self.item(json, format!("input[{index}]"))?);
                }
            }
            Some(_) => {
                return Err(OpenAiError::kind_of_value(
                    "input",
                    "a string or an array of items",
                ));
            }
            None if previous.is_none()
                && conversation.is_none()
                && body.given("prompt").is_none() =>
            {
                return Err(OpenAiError::missing("input"));
            }
            None => {}
        }
        Ok((items, conversation))
    }

    fn item(&self, json: &Json, at: String) -> Result<Item, OpenAiError> {
        if kind_of(json) != "item_reference" {
            return Ok(Item {
                json: Arc::new(json.clone()),
                at: Some(at),
            });
        }
        let id = validate::needed_text(json, &at, "id")?;
        let found = self.held.item(&id, self.scope).ok_or_else(|| {
            OpenAiError::new(404, format!("Item with id '{id}' not found.")).param(at)
        })?;
        Ok(Item {
            json: found,
            at: None,
        })
    }

    /// The items up to and including the output of an earlier response.
    fn before(&self, id: &str) -> Result<Vec<Arc<Json>>, OpenAiError> {
        if let Over::Socket(own) = self.over
            && let Some(own) = own.iter().find(|own| own.id == id)
        {
            return Ok(own.items.clone());
        }
        let stored = self.held.response(id, self.scope).ok_or_else(|| {
            OpenAiError::invalid(format!("Previous response with id '{id}' not found."))
                .code("previous_response_not_found")
                .param("previous_response_id")
        })?;
        Ok(stored.items.clone())
    }

    fn pieces(
        &self,
        body: &Json,
        model: &'static Model,
        items: &[Item],
    ) -> Result<Vec<Piece>, OpenAiError> {
        let mut pieces = Vec::new();
        if let Some(instructions) = validate::text(body, "", "instructions")? {
            pieces.push(Piece::new(
                Said::System,
                "instructions",
                quote(&instructions),
            ));
        }
        let stored = |id: &str| self.held.item(id, self.scope).is_some();
        let checker = Checker {
            model,
            strict: self.options.strict,
            seal: self.options.check_signatures.then_some(Seal {
                seed: self.options.seed,
            }),
            stored: &stored,
        };
        pieces.extend(checker.pieces(items)?);
        Ok(pieces)
    }
}

fn text_format(format: Option<&Json>) -> Result<(), OpenAiError> {
    const AT: &str = "text.format";
    let Some(format) = format else {
        return Ok(());
    };
    let kind = validate::word(format, AT, "type", &["text", "json_object", "json_schema"])?
        .ok_or_else(|| OpenAiError::missing("text.format.type"))?;
    if kind == "json_schema" {
        validate::tool_name(format, AT)?;
        if format.given("schema").is_none() {
            return Err(OpenAiError::missing("text.format.schema"));
        }
    }
    Ok(())
}

/// Members of the response that repeat the request, defaults filled in.
fn echo(
    body: &Json,
    model: &Model,
    effort: &str,
    (implicit, life): (bool, Life),
    conversation: Option<&str>,
) -> String {
    let member = |name: &str, default: &str| {
        let value = body
            .given(name)
            .map_or_else(|| default.to_owned(), Json::compact);
        format!(r#""{name}":{value}"#)
    };
    let mut members: Vec<String> = [
        ("instructions", "null"),
        ("max_output_tokens", "null"),
        ("max_tool_calls", "null"),
        ("metadata", "{}"),
        ("parallel_tool_calls", "true"),
        ("previous_response_id", "null"),
        ("prompt_cache_key", "null"),
        ("prompt_cache_retention", "null"),
        ("safety_identifier", "null"),
        ("store", "true"),
        ("temperature", "1.0"),
        ("tool_choice", r#""auto""#),
        ("tools", "[]"),
        ("top_logprobs", "0"),
        ("top_p", "1.0"),
        ("truncation", r#""disabled""#),
        ("user", "null"),
    ]
    .iter()
    .map(|(name, default)| member(name, default))
    .collect();
    let text = body.given("text").unwrap_or(&Json::Null);
    let inner = |value: &Json, name: &str, default: &str| {
        value
            .given(name)
            .map_or_else(|| default.to_owned(), Json::compact)
    };
    members.push(format!(
        r#""text":{{"format":{},"verbosity":{}}}"#,
        inner(text, "format", r#"{"type":"text"}"#),
        inner(text, "verbosity", r#""medium""#)
    ));
    let reasoning = body.given("reasoning").unwrap_or(&Json::Null);
    let effort = if model.reasons() {
        quote(effort)
    } else {
        "null".to_owned()
    };
    members.push(format!(
        r#""reasoning":{{"effort":{effort},"summary":{}}}"#,
        inner(reasoning, "summary", "null")
    ));
    if model.breakpoints {
        let caches = body.given("prompt_cache_options").unwrap_or(&Json::Null);
        members.push(format!(
            r#""prompt_cache_options":{{"mode":"{}","ttl":"{}","comparison_response_id":{}}}"#,
            if implicit { "implicit" } else { "explicit" },
            life.word(),
            inner(caches, "comparison_response_id", "null")
        ));
    }
    if let Some(id) = conversation {
        members.push(format!(r#""conversation":{{"id":{}}}"#, quote(id)));
    }
    members.join(",")
}
