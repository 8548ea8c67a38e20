//! Sub-agents: a tool with which an agent hands a task to another one, with a context of its own.
//!
//! A sub-agent works on the same books, and is told of under its own name. Its id follows from the
//! idempotency key of the call, so that a parent that is killed and goes on finds the journal of its
//! sub-agent where it stood; therefore the call may be made again. Depth is limited by construction:
//! agents at the greatest one have no such tool. A sub-agent is ended with its parent.

mod told;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

use super::budget::{Budget, check_price};
use super::crew::{Crew, Post};
use super::driver::Delegated;
use super::machine::{Setup, ToolSpec};
use super::tools::{CallContext, Manners, Tool, ToolError, ToolResult};

/// The tool's name.
pub const NAME: &str = "spawn_agent";

/// How many agents may stand above one.
pub const MAX_DEPTH: u8 = 2;

/// Longest part of an agent's id that comes from its name, in bytes.
const MAX_STEM: usize = 32;

/// What a sub-agent's system prompt has more than that of the agent it comes from, where it has no
/// own. It is the same for all of them, so that they read each other's cache.
const BESIDE: &str = "You work for another agent, on one task that is told in full. You cannot ask \
back. Your last answer is all that is handed on: put every finding into it, with the places where \
you found it, and say what you could not do.";

const DESCRIPTION: &str = "Hands a task to a sub-agent that works on its own, with a fresh context, \
and gives its final answer. Use it for work that needs many steps and of which only the outcome \
matters (searching, reading much, a separable change); several calls in one answer work at the same \
time. Do not use it for what one or two calls of your own would do, or where steps depend on each \
other. The sub-agent knows nothing of this conversation: tell it everything it needs, and what to \
give back. Example: {\"description\": \"find callers\", \"task\": \"List every call of `parse` \
below src/, as file:line, with the argument that is passed.\"}. The answer comes as text; if the \
sub-agent was stopped by a cap, that is told behind it.";

/// How sub-agents are started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spawning {
    /// Their system prompt; `None` for the parent's with a few words behind it.
    pub system: Option<String>,
    /// Their model; `None` for the parent's.
    pub model: Option<String>,
    /// Models that the parent may choose for one of them.
    pub models: Vec<String>,
    /// Answers that each may take; `None` for as many as the parent.
    pub turns: Option<u32>,
}

/// The tool, as one agent has it.
pub(super) struct Spawn {
    pub(super) crew: Arc<Crew>,
    pub(super) spawning: Spawning,
    pub(super) parent: Setup,
    /// The only tools that the parent has; `None` for all.
    pub(super) allowed: Option<Vec<String>>,
    pub(super) budget: Budget,
    pub(super) delegated: Delegated,
    /// Time that the parent was at work before `since_ms`.
    pub(super) worked_ms: u64,
    pub(super) since_ms: i64,
}

#[derive(Deserialize)]
struct Input {
    task: String,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    model: Option<String>,
}

/// Hands over to the parent what a sub-agent has used, however it ends.
struct Booking {
    call: String,
    budget: Budget,
    delegated: Delegated,
}

impl Drop for Booking {
    fn drop(&mut self) {
        let mut delegated = self
            .delegated
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        delegated.push((self.call.clone(), self.budget.own()));
    }
}

impl Tool for Spawn {
    fn spec(&self) -> ToolSpec {
        let mut properties = json!({
            "description": {"type": "string", "description": "Three to five words for the log"},
            "task": {"type": "string", "minLength": 1, "description": "All that it has to know and to do"},
            "tools": {"type": "array", "items": {"enum": self.for_children()},
                      "description": "The only tools it gets; left out, all of these"},
            "name": {"type": "string", "description": "A short name, for example \"tests\""},
        });
        if !self.spawning.models.is_empty() {
            properties["model"] = json!({"enum": self.spawning.models,
                "description": "Another model for it"});
        }
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": ["description", "task"],
            "additionalProperties": false,
        });
        ToolSpec {
            name: NAME.to_owned(),
            description: DESCRIPTION.to_owned(),
            schema: schema.to_string(),
        }
    }

    fn manners(&self) -> Manners {
        // Its own caps limit it, and its own journal keeps it from doing anything twice.
        Manners {
            serial: false,
            idempotent: true,
            limit: None,
        }
    }

    fn call(&self, input: Value, context: CallContext) -> BoxFuture<'static, ToolResult> {
        let post = self.post(input, &context);
        let crew = Arc::clone(&self.crew);
        let delegated = Arc::clone(&self.delegated);
        Box::pin(async move {
            let post = post?;
            let _booking = Booking {
                call: context.call,
                budget: post.budget.clone(),
                delegated,
            };
            let agent = crew.work(post).await;
            let agent = agent.map_err(|error| ToolError::failed("journal", error.to_string()))?;
            told::told(agent.run())
        })
    }
}

impl Spawn {
    /// The tools that a sub-agent may have, in their order.
    fn for_children(&self) -> Vec<String> {
        let mut names: Vec<String> = self.crew.tools.names().map(str::to_owned).collect();
        if self.parent.depth + 1 < MAX_DEPTH {
            names.push(NAME.to_owned());
        }
        names.retain(|name| {
            self.allowed
                .as_ref()
                .is_none_or(|allowed| allowed.contains(name))
        });
        names
    }

    fn post(&self, input: Value, context: &CallContext) -> Result<Post, ToolError> {
        let input: Input = serde_json::from_value(input)
            .map_err(|error| ToolError::failed("invalid_input", error.to_string()))?;
        let parent = &self.parent;
        let mut setup = parent.clone();
        setup.agent = id(input.name.as_deref(), &context.key);
        setup.parent = Some(parent.agent.clone());
        setup.depth = parent.depth + 1;
        setup.system = match &self.spawning.system {
            Some(system) => system.clone(),
            // The parent of the second generation has these words already.
            None if parent.depth > 0 => parent.system.clone(),
            None => format!("{}\n\n{BESIDE}", parent.system),
        };
        if let Some(model) = input.model.or_else(|| self.spawning.model.clone()) {
            setup.model = model;
        }
        let now_ms = self.crew.clock.utc_ms();
        let endpoint = &self.crew.endpoint;
        let limits = &mut setup.limits;
        limits.turns = self.spawning.turns.unwrap_or(limits.turns);
        let passed = u64::try_from(now_ms.saturating_sub(self.since_ms)).unwrap_or(0);
        let passed = passed.saturating_add(self.worked_ms);
        limits.wall_ms = limits.wall_ms.map(|wall| wall.saturating_sub(passed));
        check_price(
            &endpoint.prices,
            &endpoint.provider,
            &setup.model,
            limits,
            now_ms,
        )
        .map_err(|error| ToolError::failed("unpriced", error.to_string()))?;
        let names = self.for_children();
        let allowed = input.tools.map(|mut tools| {
            tools.retain(|tool| names.contains(tool));
            tools
        });
        Ok(Post {
            setup,
            task: input.task,
            allowed: allowed.or_else(|| self.allowed.clone()),
            budget: self.budget.share(),
            cancelled: context.cancelled.clone(),
        })
    }
}

/// An id that is the same for the same call, and starts with the name it was given.
fn id(name: Option<&str>, key: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let stem: String = name.unwrap_or_default().chars().map(plain).collect();
    let stem = crate::text::prefix(&stem, MAX_STEM).trim_matches('-');
    let stem = if stem.is_empty() { "sub" } else { stem };
    let hash = Sha256::digest(key.as_bytes());
    let hash: String = hash
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{stem}-{hash}")
}
