//! What a request and an answer look like to everything above the wire formats.
//!
//! Nothing here owns text of the conversation: a view points into the request body by byte spans,
//! and an answer keeps identifiers, sizes and counts.

use std::ops::Range;

use super::wire::Wire;
use crate::usage::Metered;

/// A half-open byte range of the (decoded) request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The bytes this span covers in `body`; empty when it does not fit.
    #[must_use]
    pub fn of<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it covers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }
}

/// The three levels of the prompt, in provider order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Tool definitions.
    Tools,
    /// The system prompt.
    System,
    /// The conversation.
    Messages,
}

/// What a block is, as far as anything above the wire format cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// A tool definition.
    Tool,
    /// Text.
    Text,
    /// An image.
    Image,
    /// A document or search result.
    Document,
    /// The model calls a tool.
    ToolUse,
    /// The result of a tool call.
    ToolResult,
    /// A tool call that the provider runs itself, or its result; among the tool definitions: a
    /// search that the provider runs, which it renders into the system prompt.
    ServerTool,
    /// Reasoning, plain or redacted.
    Thinking,
    /// Anything this version has no word for. Passed on, never marked.
    Other,
}

/// Lifetime of a cache entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Ttl {
    /// Five minutes.
    M5,
    /// Thirty minutes.
    M30,
    /// One hour.
    H1,
    /// Twelve hours.
    H12,
}

impl Ttl {
    /// All of them, the shortest first.
    pub const ALL: [Self; 4] = [Self::M5, Self::M30, Self::H1, Self::H12];

    /// Length in milliseconds.
    #[must_use]
    pub const fn ms(self) -> i64 {
        match self {
            Self::M5 => 5 * 60_000,
            Self::M30 => 30 * 60_000,
            Self::H1 => 60 * 60_000,
            Self::H12 => 12 * 60 * 60_000,
        }
    }

    /// The longer of the two that its provider has, which costs more to write.
    #[must_use]
    pub const fn is_long(self) -> bool {
        matches!(self, Self::H1 | Self::H12)
    }

    /// As providers and records write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::M5 => "5m",
            Self::M30 => "30m",
            Self::H1 => "1h",
            Self::H12 => "12h",
        }
    }

    /// The lifetime of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ttl| ttl.word() == word)
    }
}

/// How a provider decides what of a prompt it caches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caching {
    /// Up to each breakpoint, and found again from the breakpoints of a later request.
    #[default]
    Marked,
    /// Every prompt as a whole, and found again from whatever continues it.
    Automatic(Automatic),
}

impl Caching {
    /// The rules of a provider that caches of itself.
    #[must_use]
    pub const fn automatic(self) -> Option<Automatic> {
        match self {
            Self::Marked => None,
            Self::Automatic(rules) => Some(rules),
        }
    }
}

/// The rules of a cache that needs no breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Automatic {
    /// What is read is told in multiples of so many tokens, at least 1.
    pub step: u32,
    /// The smallest prompt that is cached, in tokens.
    pub min_tokens: u32,
    /// How long it lives; `None` where the provider promises no time.
    pub ttl: Option<Ttl>,
    /// It is looked for at breakpoints only, those of the request and those that the provider sets
    /// itself at the ends of turns, and lives from when it was written. Otherwise whatever the
    /// prompt begins with is found, and lives on when it is read.
    pub at_breakpoints: bool,
}

impl Automatic {
    /// How long an unused entry lives at most where no time is promised, in milliseconds, and the
    /// same in words (OpenAI's guide to prompt caching, 2025).
    pub const UNPROMISED: (i64, &'static str) = (10 * 60_000, "5 to 10 minutes without use");
}

/// A cache breakpoint that the client set itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The whole member, key and value, without the comma that joins it to its neighbours.
    pub span: Span,
    /// Its lifetime; `None` for one this version does not know.
    pub ttl: Option<Ttl>,
}

/// Why a block must not carry a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unmarkable {
    /// Text that is empty or only white space.
    Empty,
    /// Reasoning.
    Thinking,
    /// A tool outside the prefix (loaded on demand).
    Deferred,
    /// Part of a programmatic tool call (or its result) run by the provider's code execution.
    CodeExecution,
    /// The client's attribution text, which must be neither moved nor marked.
    Attribution,
    /// A kind of block this version does not know, or one whose shape was not understood.
    Unknown,
    /// A text in a place where a marker cannot be written.
    Placeless,
}

/// How a block stands in the body, which decides how a marker can be spliced in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A JSON object: a member is added before its closing brace.
    Object,
    /// A bare JSON string that stands for one text block: it is wrapped.
    BareString,
}

/// One unit of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Level.
    pub section: Section,
    /// Kind.
    pub kind: BlockKind,
    /// How it stands in the body.
    pub form: Form,
    /// Index of its tool, of its system block, or of its message among [`RequestView::messages`].
    pub outer: u32,
    /// Index inside the element of the body that it stands in; 0 where it is that element.
    pub inner: u32,
    /// Index of that element in its array of the body. It is `outer` where a message is one element.
    pub place: u32,
    /// Its bytes, marker included.
    pub span: Span,
    /// The client's own marker on it.
    pub marker: Option<Marker>,
    /// Why it must not be marked, if so.
    pub unmarkable: Option<Unmarkable>,
    /// The raw JSON string (quotes included) of the call id: of a tool call, or that a result answers.
    pub call_id: Option<Span>,
    /// The raw JSON string (quotes included) of the tool's name.
    pub name: Option<Span>,
    /// Whether the client flagged this tool result as failed; `None` when it said nothing.
    pub is_error: Option<bool>,
    /// The value that holds the content proper: `text` of a text block, `input` of a call,
    /// `content` of a result. `None` where there is none. The input of a call may be a raw JSON string
    /// (quotes included) in which the input itself is written.
    pub content: Option<Span>,
    /// The raw JSON string (quotes included) that says all of the content proper, where other
    /// spellings mean the same: of a text block without further members it stands for the whole
    /// block, of a tool result for its `content` (a string, or an array of one such text block).
    pub plain: Option<Span>,
    /// The member that is no content: the client's marker, or the marker's key with an explicit null.
    pub marker_member: Option<Span>,
    /// No white space stands outside its strings.
    pub compact: bool,
}

impl Block {
    /// Whether the block is part of the prefix that the provider caches.
    #[must_use]
    pub fn in_prefix(&self) -> bool {
        self.unmarkable != Some(Unmarkable::Deferred)
    }
}

/// How a wire format spells the breakpoints that are spliced into a body.
#[derive(Debug, PartialEq, Eq)]
pub struct MarkerSpelling {
    /// With the short lifetime.
    pub m5: Spelling,
    /// With the long lifetime.
    pub h1: Spelling,
    /// The breakpoint of a tool's result stands on its text, not on the result.
    pub results_inside: bool,
}

/// The pieces of one breakpoint; they fit around any block that may carry one.
#[derive(Debug, PartialEq, Eq)]
pub struct Spelling {
    /// For an object with members: what goes before its closing brace.
    pub member: &'static [u8],
    /// For a bare string: what goes before it ...
    pub wrap_open: &'static [u8],
    /// ... and after it.
    pub wrap_close: &'static [u8],
}

impl MarkerSpelling {
    /// The pieces for a lifetime.
    #[must_use]
    pub fn of(&self, ttl: Ttl) -> &Spelling {
        match ttl {
            Ttl::M5 | Ttl::M30 => &self.m5,
            Ttl::H1 | Ttl::H12 => &self.h1,
        }
    }
}

/// How a wire format spells the question why the provider's cache missed: the first member of a
/// request that has further members.
#[derive(Debug, PartialEq, Eq)]
pub struct QuestionSpelling {
    /// What goes before the id of the answer to compare with, up to where its quotes would open.
    pub before: &'static [u8],
    /// What stands for the id where there is no earlier answer; `None` where nothing is asked then.
    pub nothing: Option<&'static [u8]>,
    /// What goes behind it, the comma to the next member included.
    pub after: &'static [u8],
}

/// How a wire format says how long all that a request writes to the cache is to live.
#[derive(Debug, PartialEq, Eq)]
pub struct LifetimeSpelling {
    /// The lifetime.
    pub ttl: Ttl,
    /// The first member of a request that has further ones, the comma to the next one included.
    pub member: &'static str,
    /// The question why the cache missed, which then says the lifetime as well; `None` where it
    /// cannot be asked.
    pub question: Option<&'static QuestionSpelling>,
}

/// An edit by which a stream is asked for its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageQuestion {
    /// What it replaces; empty where it is only put in.
    pub at: Span,
    /// What goes there.
    pub text: &'static str,
}

/// How a wire format spells a text that goes behind what a message has so far.
#[derive(Debug, PartialEq, Eq)]
pub struct TextSpelling {
    /// What goes before the text, as a JSON string with its quotes; it begins with the comma.
    pub before: &'static [u8],
    /// What goes behind it.
    pub after: &'static [u8],
    /// It is an element of its own, behind those of the message; else a block behind its last one.
    pub own_element: bool,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The human or the harness.
    User,
    /// The model.
    Assistant,
    /// Instructions in the middle of the conversation.
    System,
    /// A role this version does not know.
    Other,
}

/// One message: a run of blocks of one speaker. In formats that have an element for each call and
/// each result, those that follow each other are one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The whole message object, or from the first to the last of its elements.
    pub span: Span,
    /// Its blocks, as indices into [`RequestView::blocks`].
    pub blocks: Range<u32>,
}

/// Whether the history of a request is held by the provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum History {
    /// The request carries all of it.
    #[default]
    Whole,
    /// The request carries all of it and asks the provider to keep it.
    Opened,
    /// The request carries only what is new after the answer with this id, or what is new in the
    /// conversation of this name.
    Continues(String),
}

impl History {
    /// What stands before the id of a conversation that the provider holds, where that of an answer
    /// is expected.
    pub const CONVERSATION: &'static str = "conv:";

    /// The conversation that it names, if it goes on from one and not from an answer.
    #[must_use]
    pub fn conversation(&self) -> Option<&str> {
        match self {
            Self::Continues(id) if id.starts_with(Self::CONVERSATION) => Some(id),
            _ => None,
        }
    }
}

/// Identifiers of the conversation that clients put into the body. Values are as sent, unescaped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyIds {
    /// The client's structured user id (may itself be JSON that holds a session id).
    pub user_id: Option<String>,
    /// Session ids in the order in which they are to be believed.
    pub sessions: Vec<String>,
    /// A message id of an earlier answer that the client names (for chaining).
    pub previous_message: Option<String>,
}

/// A setting beside the blocks that decides which prefixes the provider takes for equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its JSON path in the request, or a plain word for a fact without a place of its own
    /// (`images`: there is one somewhere).
    pub name: &'static str,
    /// The first level of the prompt whose entries are lost when it changes.
    pub from: Section,
    /// Its value; `None` for a fact that is just true.
    pub value: Option<Span>,
}

/// A request body, looked at without changing it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestView {
    /// The format that it came in.
    pub wire: Wire,
    /// How its provider caches prompts.
    pub caching: Caching,
    /// The cache is Anthropic's: four breakpoints, each of which costs what it writes.
    pub anthropic_rules: bool,
    /// The model asked for.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The output limit asked for.
    pub max_tokens: Option<u64>,
    /// Whether the fast mode was asked for.
    pub fast: bool,
    /// Number of tool definitions, deferred ones included.
    pub tools: u32,
    /// Blocks in provider order: tools, system, messages.
    pub blocks: Vec<Block>,
    /// Messages in order.
    pub messages: Vec<Message>,
    /// The marker at the top level (automatic placement); takes one of the slots.
    pub auto_marker: Option<Marker>,
    /// Markers at places where the provider does not allow any. They are counted, never repaired.
    pub misplaced_markers: u32,
    /// Settings that are part of the cache's keys, in a fixed order. What stands at its documented
    /// default is left out: to the provider it is the same as saying nothing.
    pub parameters: Vec<Parameter>,
    /// The model is made to call a tool.
    pub forced_call: bool,
    /// The client asks the provider itself why its cache missed.
    pub diagnostics: bool,
    /// How to ask the provider why its cache missed; `None` where the wire format cannot, or the
    /// body already has that member, whatever it says.
    pub question: Option<&'static QuestionSpelling>,
    /// The client says itself how its prompt is to be cached, beside any breakpoints.
    pub tells_caching: bool,
    /// How a lifetime can be asked for; empty where the wire format or the model knows none, or the
    /// client says anything about its caching itself.
    pub lifetimes: &'static [LifetimeSpelling],
    /// How the provider is asked to keep the prompt for a day, where lifetimes are not known: the
    /// first member of a request that has further ones. `None` where that is not known either, or
    /// the client says something itself.
    pub retention: Option<&'static str>,
    /// How a key is written by which requests are routed to one cache: what goes before it, as the
    /// first member of a request that has further ones, and behind it. `None` where the format has
    /// none, or the request has one.
    pub routing_key: Option<(&'static str, &'static str)>,
    /// How to ask a stream for its tokens; `None` where it tells them anyway, or was asked.
    pub ask_usage: Option<UsageQuestion>,
    /// Why the provider would refuse this request with an output limit of nothing, which is how a
    /// prefix is kept in its cache; a stable word. Asking for a stream is no reason here.
    pub no_prewarm: Option<&'static str>,
    /// Offset behind the opening brace of the body.
    pub object_start: u32,
    /// The value of the output limit.
    pub max_tokens_at: Option<Span>,
    /// The value that says whether a stream is wanted.
    pub stream_at: Option<Span>,
    /// Who holds the history.
    pub history: History,
    /// Conversation ids.
    pub ids: BodyIds,
    /// How a text is appended to a message of this body; `None` where the wire format cannot.
    pub text_block: Option<&'static TextSpelling>,
    /// How a marker is written into this body; `None` where the wire format has none.
    pub spelling: Option<&'static MarkerSpelling>,
    /// Why this body must never be edited even though it could be read (a key that stands twice ...).
    pub uneditable: Option<&'static str>,
}

impl RequestView {
    /// All markers of the client, wherever they stand.
    #[must_use]
    pub fn client_markers(&self) -> u32 {
        let on_blocks = self.blocks.iter().filter(|b| b.marker.is_some()).count();
        u32::try_from(on_blocks).unwrap_or(u32::MAX)
            + u32::from(self.auto_marker.is_some())
            + self.misplaced_markers
    }

    /// The JSON path of a block, for people and records.
    #[must_use]
    pub fn path(&self, block: &Block) -> String {
        self.wire.path(block)
    }

    /// Number of blocks before the first message: the end of tools and system.
    #[must_use]
    pub fn head_len(&self) -> usize {
        self.blocks
            .iter()
            .take_while(|b| b.section != Section::Messages)
            .count()
    }
}

/// A tool that a request declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeclaredTool {
    /// The raw JSON string (quotes included) of its name.
    pub name: Span,
    /// The JSON schema of its input; `None` for a tool that the provider defines.
    pub schema: Option<Span>,
}

/// The tools that a request declares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredTools {
    /// Those with a name, in their order.
    pub tools: Vec<DeclaredTool>,
    /// There may be more: a set of tools that a server brings, a search for tools, declarations
    /// that stand elsewhere or were not understood.
    pub open: bool,
}

/// A tool call in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnsweredCall {
    /// The provider's id of the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The input as JSON text, cut at the reader's limit (see `input_bytes` for the true size).
    pub input: Vec<u8>,
    /// True size of the input in bytes.
    pub input_bytes: u64,
    /// Whether the block was closed; a half-delivered call is not a call.
    pub complete: bool,
}

/// An error in the provider's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiError {
    /// The provider's error type.
    pub kind: String,
    /// Its message, cut on a character border.
    pub message: String,
}

/// The provider's diagnosis says nothing: it found no difference, or was not asked.
pub const DIAGNOSIS_NONE: &str = "none";
/// The provider's diagnosis was not ready when the answer was written.
pub const DIAGNOSIS_PENDING: &str = "pending";

/// The provider's own explanation of a cache miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Diagnosis {
    /// It compared and found no difference.
    NoDifference,
    /// The model or its speed is another one.
    Model,
    /// The tools differ first.
    Tools,
    /// The system prompt differs first.
    System,
    /// The conversation differs first.
    Messages,
    /// The system prompt or the conversation differs first.
    Input,
    /// A setting beside the prompt is another one.
    Setting,
    /// It cannot say; what differs may be a setting beside the prompt.
    Unavailable,
    /// It compared nothing: the answer to compare with is not known, or it was not ready, or the
    /// word is one that this version does not know.
    Nothing,
}

/// What has been read of an answer so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The provider's id of the answer.
    pub id: Option<String>,
    /// Model, tokens and modifiers.
    pub metered: Metered,
    /// Tokens of the whole prompt, where the provider gives them as one count. It may be known where
    /// the kinds in `metered` are not.
    pub prompt_tokens: Option<u64>,
    /// What the provider says that the answer cost, in pico-USD.
    pub cost_pico: Option<u64>,
    /// Why the model stopped, in the provider's word.
    pub stop_reason: Option<String>,
    /// For a refusal: its category in the provider's word (some categories are billed, some are not).
    pub refusal_category: Option<String>,
    /// The error the answer carried, as a body or inside a stream.
    pub error: Option<ApiError>,
    /// Tool calls in order.
    pub calls: Vec<AnsweredCall>,
    /// The final usage was seen.
    pub usage_complete: bool,
    /// The answer is whole: the terminal event, or a complete JSON body.
    pub finished: bool,
    /// Content of any kind has begun to arrive.
    pub content_begun: bool,
    /// Bytes of text, reasoning and tool input delivered so far (for estimates of cut streams).
    pub delivered_bytes: u64,
    /// Facts worth a warning, each once, as stable words (`no_event_names`, `event_too_large` ...).
    pub warnings: Vec<&'static str>,
    /// The provider's own explanation of a cache miss: its type word, [`DIAGNOSIS_PENDING`], or
    /// [`DIAGNOSIS_NONE`] where it says that there is none (also where nobody had asked).
    pub native_diagnosis: Option<String>,
}
