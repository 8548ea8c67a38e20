//! Conversations that grow, as the bytes of their requests.

use std::fmt::Write as _;
use std::sync::Arc;

/// A model with prices of reads at a tenth of the input, the usual ratio.
pub const MODEL: &str = "claude-sonnet-4-6";

/// How a request is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// Not at all.
    None,
    /// The provider's automatic marker at the top level.
    Automatic,
    /// One at the end of the system prompt, one on the newest block.
    SystemTail,
    /// As the workload's client does it.
    Own,
}

/// The breakpoints of a workload's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// So many of: the newest block, the system prompt, the tools, the block before the newest
    /// answer; in this order.
    Best(usize),
}

/// Blocks of one speaker, each as JSON.
#[derive(Debug)]
struct Message {
    role: &'static str,
    blocks: Vec<Arc<str>>,
}

/// A request, before it is marked.
#[derive(Debug, Clone)]
pub struct Ask {
    model: &'static str,
    tools: Vec<Arc<str>>,
    system: Vec<Arc<str>>,
    messages: Vec<Arc<Message>>,
    /// Further members of the body, each with a comma before it.
    extra: String,
    own: Own,
    /// What names the client.
    pub agent: &'static str,
    /// Number of the conversation.
    pub thread: u32,
}

/// A conversation that can be asked for its next answer at any time.
pub type Talk = Ask;

/// Text of so many tokens (the simulated provider counts four bytes for one), the same for the
/// same seed.
pub fn text(tokens: usize, seed: &str) -> String {
    const WORDS: [&str; 16] = [
        "parse", "the", "module", "returns", "value", "of", "error", "when", "config", "is",
        "missing", "and", "test", "fails", "line", "found",
    ];
    let mut state = seed.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut out = format!("{seed}: ");
    while out.len() < tokens * 4 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        out.push_str(WORDS[(state >> 60) as usize]);
        out.push(' ');
    }
    out
}

fn text_block(text: &str) -> Arc<str> {
    format!(r#"{{"type":"text","text":"{text}"}}"#).into()
}

/// A tool definition of about so many tokens.
pub fn tool(name: &str, tokens: usize) -> Arc<str> {
    let description = text(tokens.saturating_sub(40), name);
    format!(
        r#"{{"name":"{name}","description":"{description}","input_schema":{{"type":"object","properties":{{"command":{{"type":"string"}}}},"required":["command"]}}}}"#
    )
    .into()
}

impl Ask {
    /// An agent with `tools` tools of 400 tokens each, the first of which the simulated provider
    /// knows how to call, and a system prompt.
    pub fn agent(name: &str, thread: u32, tools: usize, system: usize) -> Self {
        let others = (1..tools).map(|n| tool(&format!("{name}_{n}"), 400));
        Self {
            model: MODEL,
            tools: (tools > 0)
                .then(|| tool("Bash", 400))
                .into_iter()
                .chain(others)
                .collect(),
            system: vec![text_block(&text(system, name))],
            messages: Vec::new(),
            extra: String::new(),
            own: Own::Best(0),
            agent: "policies/1.0",
            thread,
        }
    }

    pub fn own(mut self, markers: usize) -> Self {
        self.own = Own::Best(markers);
        self
    }

    pub fn from(mut self, agent: &'static str) -> Self {
        self.agent = agent;
        self
    }

    pub fn extra(mut self, members: &str) -> Self {
        self.extra = members.to_owned();
        self
    }

    pub fn model(&mut self, model: &'static str) {
        self.model = model;
    }

    pub fn system(&mut self, at: usize, text: &str) {
        let block = text_block(text);
        match self.system.get_mut(at) {
            Some(known) => *known = block,
            None => self.system.push(block),
        }
    }

    pub fn add_tool(&mut self, name: &str, tokens: usize) {
        self.tools.push(tool(name, tokens));
    }

    /// The tools in another order.
    pub fn rotate_tools(&mut self, by: usize) {
        let by = by % self.tools.len();
        self.tools.rotate_left(by);
        self.tools.swap(0, 1);
    }

    /// The conversation so far goes, and this comes instead.
    pub fn rewrite(&mut self, text: &str) {
        self.messages.clear();
        self.user(text);
    }

    pub fn user(&mut self, text: &str) {
        self.say("user", vec![text_block(text)]);
    }

    pub fn answer(&mut self, text: &str) {
        self.say("assistant", vec![text_block(text)]);
    }

    /// The answer calls tools, whose results have so many tokens each.
    pub fn calls(&mut self, results: &[usize]) {
        let turn = self.messages.len();
        let thread = self.thread;
        let seed = format!("step {thread} {turn}");
        let mut asked = vec![text_block(&text(40, &seed))];
        let mut results_of = Vec::new();
        for (number, tokens) in results.iter().enumerate() {
            let id = format!("toolu_{thread}_{turn}_{number}");
            asked.push(
                format!(
                    r#"{{"type":"tool_use","id":"{id}","name":"Bash","input":{{"command":"{}"}}}}"#,
                    text(20, &id)
                )
                .into(),
            );
            let content = text(*tokens, &id);
            results_of.push(
                format!(
                    r#"{{"type":"tool_result","tool_use_id":"{id}","content":[{{"type":"text","text":"{content}"}}]}}"#
                )
                .into(),
            );
        }
        self.say("assistant", asked);
        self.say("user", results_of);
    }

    fn say(&mut self, role: &'static str, blocks: Vec<Arc<str>>) {
        self.messages.push(Arc::new(Message { role, blocks }));
    }

    /// The body of the request.
    pub fn body(&self, marks: Marks) -> String {
        let last = self.messages.len().wrapping_sub(1);
        // Where the previous request ended.
        let before = self.messages.len().wrapping_sub(3);
        let (tools, system, messages) = match (marks, self.own) {
            (Marks::None | Marks::Automatic, _) => (false, false, vec![]),
            (Marks::SystemTail, _) => (false, true, vec![last]),
            (Marks::Own, Own::Best(number)) => {
                let places = [
                    vec![],
                    vec![last],
                    vec![last],
                    vec![last],
                    vec![before, last],
                ];
                (number >= 3, number >= 2, places[number].clone())
            }
        };
        let mut body = format!(
            r#"{{"model":"{}","max_tokens":1024{}"#,
            self.model, self.extra
        );
        if marks == Marks::Automatic {
            body.push_str(r#","cache_control":{"type":"ephemeral"}"#);
        }
        if !self.tools.is_empty() {
            body.push_str(r#","tools":["#);
            list(&mut body, &self.tools, tools);
            body.push(']');
        }
        body.push_str(r#","system":["#);
        list(&mut body, &self.system, system);
        body.push_str(r#"],"messages":["#);
        for (index, message) in self.messages.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(body, r#"{comma}{{"role":"{}","content":["#, message.role);
            list(&mut body, &message.blocks, messages.contains(&index));
            body.push_str("]}");
        }
        body.push_str("]}");
        body
    }
}

/// Blocks with commas between them, the last one marked or not.
fn list(body: &mut String, blocks: &[Arc<str>], marked: bool) {
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        if marked && index + 1 == blocks.len() {
            body.push_str(&block[..block.len() - 1]);
            body.push_str(r#","cache_control":{"type":"ephemeral"}}"#);
        } else {
            body.push_str(block);
        }
    }
}
