//! A request body as the prompt the model would see: blocks in provider order, with their markers.

use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::json::{Json, quote};
use super::markers;
use super::models::Model;

/// First words of the client attribution text that the API takes out of the prompt when it stands
/// first and untouched. Source: provider behaviour seen with Claude Code 2.1.
const ATTRIBUTION: &str = "x-anthropic-billing-header:";

/// What an image counts, whatever its size: one number keeps token counts predictable in tests.
pub const IMAGE_TOKENS: u64 = 1_600;

/// What a binary document counts.
pub const DOCUMENT_TOKENS: u64 = 3_000;

/// Bytes of canonical content per token.
const BYTES_PER_TOKEN: usize = 4;

/// Lifetime that a marker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// Five minutes.
    FiveMinutes,
    /// One hour.
    OneHour,
}

impl Life {
    /// Length in milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        match self {
            Self::FiveMinutes => 300_000,
            Self::OneHour => 3_600_000,
        }
    }

    /// As the API spells it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5m",
            Self::OneHour => "1h",
        }
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The human or the harness.
    User,
    /// The model.
    Assistant,
    /// Instructions inside the conversation.
    System,
}

/// One message, its content as an array of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The blocks; a bare string has become one text block.
    pub blocks: Vec<Json>,
    /// Its place in the request, for error paths.
    pub index: usize,
    /// The server held it (message threads): its markers belonged to an earlier request.
    pub held: bool,
}

impl Message {
    /// Whether a block of this type stands in it.
    #[must_use]
    pub fn has(&self, kind: &str) -> bool {
        self.blocks.iter().any(|block| is_kind(block, kind))
    }
}

/// The whole prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Tool definitions.
    pub tools: Vec<Json>,
    /// System blocks; a bare string has become one text block.
    pub system: Vec<Json>,
    /// The conversation.
    pub messages: Vec<Message>,
}

/// One cacheable place: everything up to and including one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// Identifies the prefix that ends here.
    pub chain: [u8; 32],
    /// Tokens of the prefix that ends here.
    pub tokens: u64,
    /// The marker that stands here.
    pub marker: Option<Life>,
    /// What stands here, for rules that group runs of one kind.
    pub run: Run,
}

/// Kinds of blocks whose runs may count as one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Calls of tools.
    Calls,
    /// Results of tools.
    Results,
    /// Anything else; never grouped.
    Single,
}

/// Whether `block` has this `type`.
#[must_use]
pub fn is_kind(block: &Json, kind: &str) -> bool {
    block.get("type").is_some_and(|value| value.is(kind))
}

/// The content of a message or of the system prompt as blocks.
pub fn blocks_of(content: &Json, path: &str) -> Result<Vec<Json>, ApiError> {
    match content {
        Json::Str(_) => Ok(vec![text_block(content.clone())]),
        Json::Arr(items) => Ok(items.clone()),
        _ => Err(ApiError::invalid(format!(
            "{path}: Input should be a valid string or a valid list"
        ))),
    }
}

fn text_block(text: Json) -> Json {
    Json::Obj(vec![
        ("type".to_owned(), Json::Str("text".into())),
        ("text".to_owned(), text),
    ])
}

/// What is compared and counted of a block: its content without its marker, with spellings that
/// mean the same to the API written alike.
#[must_use]
pub fn canonical(block: &Json) -> String {
    let mut out = String::new();
    write_canonical(block, &mut out);
    out
}

fn write_canonical(block: &Json, out: &mut String) {
    let Json::Obj(members) = block else {
        block.write(out);
        return;
    };
    let plain_text = is_kind(block, "text")
        && members
            .iter()
            .all(|(key, _)| matches!(key.as_str(), "type" | "text" | "cache_control"));
    if let (true, Some(text)) = (plain_text, block.get("text")) {
        write_text_block(text, out);
        return;
    }
    let result = is_kind(block, "tool_result");
    let mut separator = '{';
    for (key, value) in members.iter().filter(|(key, _)| key != "cache_control") {
        out.push(separator);
        separator = ',';
        out.push_str(&quote(key));
        out.push(':');
        match value {
            Json::Str(_) if result && key == "content" => {
                out.push('[');
                write_text_block(value, out);
                out.push(']');
            }
            Json::Arr(items) if result && key == "content" => {
                let mut separator = '[';
                for item in items {
                    out.push(separator);
                    separator = ',';
                    write_canonical(item, out);
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            other => other.write(out),
        }
    }
    out.push_str(if separator == '{' { "{}" } else { "}" });
}

fn write_text_block(text: &Json, out: &mut String) {
    out.push_str(r#"{"type":"text","text":"#);
    text.write(out);
    out.push('}');
}

/// Tokens of one block, from its bytes alone.
#[must_use]
pub fn tokens(block: &Json) -> u64 {
    fixed_tokens(block).unwrap_or_else(|| of_bytes(canonical(block).len()))
}

/// Tokens of what is not counted by its bytes.
fn fixed_tokens(block: &Json) -> Option<u64> {
    if is_kind(block, "image") {
        return Some(IMAGE_TOKENS);
    }
    if is_kind(block, "document")
        && block
            .get("source")
            .is_some_and(|source| !is_kind(source, "text") && !is_kind(source, "content"))
    {
        return Some(DOCUMENT_TOKENS);
    }
    if is_kind(block, "tool_result") {
        let inner = block.get("content").map_or(&[][..], Json::items);
        if inner
            .iter()
            .any(|item| is_kind(item, "image") || is_kind(item, "document"))
        {
            return Some(inner.iter().map(tokens).sum());
        }
    }
    None
}

/// Tokens of that many bytes of text.
#[must_use]
pub fn of_bytes(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// Whether this tool's definition stays outside the prompt until it is searched for.
#[must_use]
pub fn deferred(tool: &Json) -> bool {
    tool.get("defer_loading") == Some(&Json::Bool(true))
}

/// Server-side search tools change the system prompt, not the tool section.
/// Source: provider docs on what invalidates the cache, Aug 2026.
fn system_level_tool(tool: &Json) -> bool {
    tool.text_of("type")
        .is_some_and(|kind| kind.starts_with("web_search_") || kind.starts_with("web_fetch_"))
}

fn stripped(index: usize, block: &Json) -> bool {
    index == 0
        && block.given("cache_control").is_none()
        && block
            .text_of("text")
            .is_some_and(|text| text.starts_with(ATTRIBUTION))
}

/// The system blocks that are part of the prompt.
pub fn system(prompt: &Prompt) -> impl Iterator<Item = &Json> {
    let blocks = prompt.system.iter().enumerate();
    blocks
        .filter(|(index, block)| !stripped(*index, block))
        .map(|(_, block)| block)
}

/// Settings beside the blocks that decide which prefixes are equal, by level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salts {
    /// Root: credential scope, model, and headers that are part of the key.
    pub root: String,
    /// From the system prompt on: speed, server-side search, citations.
    pub system: String,
    /// From the first message on: tool choice, thinking, effort, images.
    pub messages: String,
}

impl Salts {
    /// The salts of a request. `root` is the credential scope.
    #[must_use]
    pub fn of(body: &Json, prompt: &Prompt, model: &Model, scope: &str, betas: &[String]) -> Self {
        let member = |key: &str| body.given(key).map(Json::compact).unwrap_or_default();
        let fast_header = betas.iter().any(|beta| beta.starts_with("fast-mode"));
        let fast = body.get("speed").is_some_and(|speed| speed.is("fast"));
        let searches: String = prompt
            .tools
            .iter()
            .filter(|tool| system_level_tool(tool))
            .map(canonical)
            .collect();
        let all = || prompt.messages.iter().flat_map(|message| &message.blocks);
        let citations = all().any(|block| {
            is_kind(block, "document")
                && block.given("citations").and_then(|c| c.get("enabled"))
                    == Some(&Json::Bool(true))
        });
        let images = all().any(|block| {
            is_kind(block, "image")
                || block
                    .get("content")
                    .is_some_and(|c| c.items().iter().any(|i| is_kind(i, "image")))
        });
        let output = body.given("output_config");
        // The explicit default counts as leaving it out.
        let effort = output
            .and_then(|config| config.text_of("effort"))
            .filter(|effort| effort != "high")
            .unwrap_or_default();
        // "auto" is what a request without the field gets.
        let choice = body.given("tool_choice").map(|choice| {
            let forced = choice.text_of("type").unwrap_or_default();
            let single = choice.get("disable_parallel_tool_use") == Some(&Json::Bool(true));
            format!(
                "{forced}/{}/{single}",
                choice.text_of("name").unwrap_or_default()
            )
        });
        let choice = choice
            .filter(|choice| choice != "auto//false")
            .unwrap_or_default();
        Self {
            root: format!("{scope}\n{}\n{fast_header}", model.id),
            system: format!("{fast}\n{searches}\n{citations}"),
            messages: format!("{choice}\n{}\n{effort}\n{images}", member("thinking")),
        }
    }
}

struct Walk {
    chain: [u8; 32],
    tokens: u64,
    out: Vec<Position>,
}

impl Walk {
    fn mix(&mut self, tag: &str, content: &str) {
        let mut hash = Sha256::new();
        hash.update(self.chain);
        hash.update((tag.len() as u64).to_le_bytes());
        hash.update(tag);
        hash.update(content);
        self.chain = hash.finalize().into();
    }

    fn push(&mut self, tag: &str, block: &Json, held: bool) {
        let content = canonical(block);
        self.mix(tag, &content);
        self.place(block, &content, held);
    }

    fn place(&mut self, block: &Json, content: &str, held: bool) {
        self.tokens += fixed_tokens(block).unwrap_or_else(|| of_bytes(content.len()));
        let marker = if held {
            None
        } else {
            markers::read(block, "").unwrap_or_default()
        };
        let run = match block.text_of("type").as_deref() {
            Some("tool_use") => Run::Calls,
            Some("tool_result") => Run::Results,
            _ => Run::Single,
        };
        self.out.push(Position {
            chain: self.chain,
            tokens: self.tokens,
            marker,
            run,
        });
    }
}

/// The prompt as a chain of positions, tools first, then system, then messages.
#[must_use]
pub fn positions(prompt: &Prompt, model: &Model, salts: &Salts) -> Vec<Position> {
    let mut walk = Walk {
        chain: [0; 32],
        tokens: 0,
        out: Vec::new(),
    };
    walk.mix("root", &salts.root);
    for tool in prompt.tools.iter().filter(|tool| !deferred(tool)) {
        if system_level_tool(tool) {
            walk.place(tool, &canonical(tool), false);
        } else {
            walk.push("tool", tool, false);
        }
    }
    walk.mix("system level", &salts.system);
    for block in system(prompt) {
        walk.push("system", block, false);
    }
    walk.mix("messages level", &salts.messages);
    let last_text = last_plain_user(&prompt.messages);
    for (index, message) in prompt.messages.iter().enumerate() {
        let tag = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => "mid system",
        };
        for block in &message.blocks {
            let thinking = is_kind(block, "thinking") || is_kind(block, "redacted_thinking");
            if thinking && !model.keeps_thinking && last_text.is_some_and(|last| index < last) {
                continue;
            }
            walk.push(tag, block, message.held);
        }
    }
    walk.out
}

/// The last user message that is not a batch of tool results.
fn last_plain_user(messages: &[Message]) -> Option<usize> {
    messages
        .iter()
        .rposition(|message| message.role == Role::User && !message.has("tool_result"))
}
