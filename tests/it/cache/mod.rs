//! The prompt-cache engine through the real path: client, gateway, simulated provider.

mod beside;
mod cases;
mod changes;
mod claude;
mod helpers;
mod kept;
mod lineages;
mod quiet;
mod reasons;
mod thinking;
mod verdicts;

use prefixgate::prompt_cache::verdict::{Reason, Status, Verdict};
use prefixgate::trace::TurnRecord;
use serde_json::{Value, json};

/// A text of about so many tokens (the simulated provider counts four bytes for one).
fn text(tokens: usize, seed: &str) -> String {
    let word = format!("{seed:.<16}");
    word.repeat(tokens / 4)
}

fn verdict(turn: &TurnRecord) -> &Verdict {
    let verdict = turn.cache.verdict.as_ref();
    verdict.unwrap_or_else(|| panic!("{turn:#?}"))
}

fn told(turn: &TurnRecord) -> (Status, Option<Reason>) {
    (verdict(turn).status, verdict(turn).reason)
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

    /// An agent at work: reminders, a call with its result, a picture.
    fn rich(seed: &str) -> Self {
        let mut talk = Self::new(seed);
        let t = |text: String| json!({"type": "text", "text": text});
        talk.messages = vec![
            json!({"role": "user", "content": [
                t(format!("<system-reminder>skills: {}</system-reminder>", text(300, "skill"))),
                t(format!("It is 2026-01-05 10:00:00. {}", text(200, "first"))),
                t(format!("{seed} also: {}", text(200, "also"))),
            ]}),
            json!({"role": "assistant", "content": [
                t("I look into it.".to_owned()),
                {"type": "tool_use", "id": "toolu_1", "name": "read",
                 "input": {"path": "src/a.rs", "from": 1}},
            ]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": text(400, "result")},
            ]}),
            json!({"role": "assistant", "content": [
                t(format!("Request 17 of session 5f0c7b6e-3d61-4a0e-9d1c-0a4b7c1d2e3f \u{e9}. {}", text(200, "seen"))),
            ]}),
            json!({"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}},
                t(format!("a picture {}", text(200, "pic"))),
            ]}),
            json!({"role": "assistant", "content": [t(format!("nice {}", text(200, "nice")))]}),
            json!({"role": "user", "content": [t(format!("go on {}", text(200, "on")))]}),
        ];
        talk
    }

    fn block(&mut self, message: usize, block: usize) -> &mut Value {
        &mut self.messages[message]["content"][block]
    }

    fn content(&mut self, message: usize) -> &mut Vec<Value> {
        self.messages[message]["content"].as_array_mut().unwrap()
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
