//! What a request of either format asks for, once it is read.

use super::cache::Caching;
use super::models::Model;
use super::prompt::{Key, Piece, Said};
use super::tools::Declared;
use crate::sim::json::{Json, quote};
use crate::sim::prompt::{Message, Prompt, Role};

/// The format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Chat Completions.
    Chat,
    /// Responses.
    Responses,
}

/// A request that was read and found right.
#[derive(Debug)]
pub struct Asked {
    /// Its format.
    pub wire: Wire,
    /// Who asks: the credential.
    pub scope: String,
    /// Its model.
    pub model: &'static Model,
    /// Whether a stream is wanted.
    pub stream: bool,
    /// Largest output in tokens.
    pub max_output: u64,
    /// The tier that serves it.
    pub tier: &'static str,
    /// The model thinks before it answers.
    pub thinks: bool,
    /// What the thinking is summed up for the client, if it asked.
    pub summarises: bool,
    /// What stands before the input in a prefix.
    pub key: Key,
    /// The input.
    pub pieces: Vec<Piece>,
    /// How it is cached.
    pub caching: Caching,
    /// Tools the model can call.
    pub tools: Vec<Declared>,
    /// Members that the script reads, in its own words.
    pub script: Json,
    /// Without, the request only prepares.
    pub generate: bool,
    /// The response to compare with in diagnostics.
    pub comparison: Option<String>,
    /// Deltas carry padding.
    pub obfuscate: bool,
}

impl Asked {
    /// The prompt as the script reads it.
    #[must_use]
    pub fn for_script(&self) -> Prompt {
        let mut messages: Vec<Message> = Vec::new();
        let mut last = None;
        for piece in &self.pieces {
            let (role, block, group) = match &piece.said {
                Said::System => (Role::System, text(""), 0),
                Said::User(said) => (Role::User, text(said), 1),
                Said::Media => (Role::User, text(""), 1),
                Said::Result => (Role::User, block("tool_result", "content", ""), 2),
                Said::Model => (Role::Assistant, text(""), 3),
            };
            match messages.last_mut() {
                // Results make a turn of their own: a text after them begins the next.
                Some(message) if last == Some(group) => message.blocks.push(block),
                _ => messages.push(Message {
                    role,
                    blocks: vec![block],
                    index: messages.len(),
                    held: false,
                }),
            }
            last = Some(group);
        }
        Prompt {
            tools: self.tools.iter().map(Declared::for_script).collect(),
            system: Vec::new(),
            messages,
        }
    }
}

fn text(content: &str) -> Json {
    block("text", "text", content)
}

fn block(kind: &str, member: &str, content: &str) -> Json {
    Json::Obj(vec![
        ("type".to_owned(), Json::string(kind)),
        (member.to_owned(), Json::string(content)),
    ])
}

/// The members that the script reads: the schema of the output, and a forced tool.
#[must_use]
pub fn script_members(schema: Option<&Json>, forced: Option<&str>) -> Json {
    let mut members = Vec::new();
    if let Some(schema) = schema {
        members.push(format!(
            r#""output_config":{{"format":{{"schema":{}}}}}"#,
            schema.compact()
        ));
    }
    if let Some(name) = forced {
        members.push(format!(
            r#""tool_choice":{{"type":"tool","name":{}}}"#,
            quote(name)
        ));
    }
    // All parts came out of JSON.
    Json::parse(format!("{{{}}}", members.join(",")).as_bytes()).unwrap_or(Json::Null)
}

/// The schema that an output format asks for. `inner` is where the format keeps it.
#[must_use]
pub fn schema_of(format: Option<&Json>, inner: Option<&Json>) -> Option<Json> {
    let kind = format?.text_of("type")?;
    match kind.as_str() {
        "json_schema" => inner?.given("schema").cloned(),
        "json_object" => Json::parse(br#"{"type":"object"}"#).ok(),
        _ => None,
    }
}
