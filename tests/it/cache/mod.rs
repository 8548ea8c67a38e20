//! The prompt-cache engine through the real path: client, gateway, simulated provider.

mod helpers;
mod verdicts;

use serde_json::{Value, json};

/// A text of about so many tokens (the simulated provider counts four bytes for one).
fn text(tokens: usize, seed: &str) -> String {
    let word = format!("{seed:.<16}");
    word.repeat(tokens / 4)
}

/// A request with a long system prompt, two tools and its own breakpoints on system and tail.
struct Talk {
    model: &'static str,
    tools: Vec<Value>,
    system: Vec<Value>,
    messages: Vec<Value>,
    extra: Vec<(&'static str, Value)>,
}

impl Talk {
    fn new(seed: &str) -> Self {
        let tool = |name: &str| {
            json!({"name": name, "description": text(200, name),
                   "input_schema": {"type": "object", "properties": {}}})
        };
        Self {
            model: "claude-sonnet-4-6",
            tools: vec![tool("read"), tool("edit"), tool("bash")],
            system: vec![json!({"type": "text", "text": text(3000, seed),
                                "cache_control": {"type": "ephemeral"}})],
            messages: vec![user(&format!("{seed}: {}", text(300, "first")))],
            extra: Vec::new(),
        }
    }

    /// The assistant's answer and the next question.
    fn grow(&mut self, question: &str) {
        let number = self.messages.len();
        self.messages
            .push(json!({"role": "assistant", "content": [{"type": "text", "text": format!("answer {number}")}]}));
        self.messages
            .push(user(&format!("{question} {}", text(200, question))));
    }

    /// With the client's breakpoint on the newest block.
    fn body(&self) -> Value {
        let mut messages = self.messages.clone();
        if let Some(block) = messages
            .last_mut()
            .and_then(|m| m["content"].as_array_mut()?.last_mut())
        {
            block["cache_control"] = json!({"type": "ephemeral"});
        }
        self.with(messages)
    }

    fn with(&self, messages: Vec<Value>) -> Value {
        let mut body = json!({
            "model": self.model, "max_tokens": 64, "tools": self.tools, "system": self.system,
            "messages": messages,
        });
        for (key, value) in &self.extra {
            body[*key] = value.clone();
        }
        body
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}
