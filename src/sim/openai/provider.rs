//! The OpenAI side without its sockets: a request that was read in, an answer or a refusal out.

use std::sync::Arc;

use super::answer::{Answer, Output, THINKING_TOKENS};
use super::cache::{Pending, Tokens};
use super::diagnostics::Fingerprint;
use super::error::OpenAiError;
use super::prompt;
use super::request::{Asked, Wire};
use super::seal::Seal;
use super::tools::{Form, code_input, custom_input};
use crate::sim::answer::INJECTED;
use crate::sim::failure::Failure;
use crate::sim::prompt::of_bytes;
use crate::sim::provider::Provider;
use crate::sim::script::{self, Setting};
use crate::sim::tools::Call;

/// An answer that is ready to be written.
#[derive(Debug)]
pub struct Ready {
    /// The request.
    pub asked: Asked,
    /// The answer.
    pub answer: Answer,
    /// Milliseconds to wait before the head.
    pub delay_ms: u64,
    /// A failure at or after the head, with its name.
    pub failure: Option<(Failure, String)>,
    pending: Pending,
    fingerprint: Option<Fingerprint>,
}

impl Ready {
    /// The name of the failure inside the body, if one is due.
    #[must_use]
    pub fn inside(&self) -> Option<&str> {
        match &self.failure {
            Some((Failure::Inside, name)) => Some(name),
            _ => None,
        }
    }
}

impl Provider {
    /// Answers a request of the OpenAI side that started at `now_ms`.
    ///
    /// # Errors
    /// The API's refusal.
    pub fn openai(
        self: &Arc<Self>,
        asked: Asked,
        inject: Option<&str>,
        now_ms: u64,
    ) -> Result<Ready, OpenAiError> {
        let walked = prompt::walk(&asked.key, &asked.pieces);
        if walked.total > asked.model.context {
            return Err(too_long(&asked, walked.total));
        }
        let setting = Setting {
            body: &asked.script,
            workdir: &self.options.workdir,
            inject_any: self.options.inject_any,
        };
        let decision = script::decide(&asked.for_script(), setting);
        let failure = self.failure(inject, &decision.injections, now_ms);
        if let Some((Failure::Refuse(error), name)) = failure {
            return Err(OpenAiError::scripted(error, &name));
        }
        let mut state = self.state();
        let (mut tokens, pending) = state.openai.cache.look(&walked, asked.caching, now_ms);
        if let Some(fixed) = decision.usage {
            tokens.total = fixed.max(tokens.read + tokens.written());
        }
        let fingerprint = (asked.wire == Wire::Responses && asked.model.breakpoints)
            .then(|| Fingerprint::of(&asked.key, &asked.pieces, tokens));
        let diagnostics = match (&asked.comparison, &fingerprint) {
            (Some(_), _) if self.options.diagnostics_pending => {
                Some(r#"{"type":"unavailable"}"#.to_owned())
            }
            (Some(id), Some(now)) => Some(state.openai.fingerprints.explain(
                id,
                &asked.scope,
                now,
                tokens,
            )),
            _ => None,
        };
        drop(state);
        let mut answer = Answer {
            id: self.id(match asked.wire {
                Wire::Chat => "chatcmpl-",
                Wire::Responses => "resp_",
            }),
            created: now_ms / 1000,
            model: asked.model.id,
            tier: asked.tier,
            outputs: Vec::new(),
            tokens,
            bills_writes: asked.model.breakpoints,
            thinking: 0,
            output: 0,
            cut: false,
            diagnostics,
        };
        if asked.generate {
            let synthetic = match &failure {
                Some((Failure::Synthetic(stop), _)) => Some(*stop),
                _ => None,
            };
            self.speak(
                &mut answer,
                &asked,
                decision.text,
                decision.calls,
                synthetic,
            );
        }
        Ok(Ready {
            asked,
            answer,
            delay_ms: decision.delay_ms,
            failure,
            pending,
            fingerprint,
        })
    }

    /// Puts content into an answer, within its output limit. `synthetic` is the scripted way to end.
    fn speak(
        &self,
        answer: &mut Answer,
        asked: &Asked,
        mut text: String,
        mut calls: Vec<Call>,
        synthetic: Option<&str>,
    ) {
        match synthetic {
            Some("max_tokens") => answer.cut = true,
            Some(_) => {
                text = INJECTED.to_owned();
                calls.clear();
            }
            None => {}
        }
        if asked.thinks {
            answer.thinking = THINKING_TOKENS.min(asked.max_output);
            let id = self.id("rs_");
            let name = id.trim_start_matches("rs_").to_owned();
            answer.outputs.push(Output::Thinking {
                sealed: Seal {
                    seed: self.options.seed,
                }
                .close(&name),
                name,
                summary: asked
                    .summarises
                    .then(|| "Thinking about the next step.".to_owned()),
            });
        }
        if !text.is_empty() {
            let id = self.id("msg_");
            answer.outputs.push(if synthetic == Some("refusal") {
                Output::Refusal { id, text }
            } else {
                Output::Text { id, text }
            });
        }
        for call in calls {
            answer.outputs.push(self.call(call, asked));
        }
        let bytes: usize = answer.outputs.iter().map(Output::bytes).sum();
        answer.output = answer.thinking + of_bytes(bytes).max(1);
        if answer.output <= asked.max_output {
            return;
        }
        answer.output = asked.max_output;
        answer.cut = true;
        let room = usize::try_from(asked.max_output - answer.thinking)
            .unwrap_or(usize::MAX)
            .saturating_mul(4);
        answer
            .outputs
            .retain(|output| !matches!(output, Output::Call { .. }));
        for output in &mut answer.outputs {
            if let Output::Text { text, .. } | Output::Refusal { text, .. } = output {
                let cut = (0..=room.min(text.len()))
                    .rev()
                    .find(|at| text.is_char_boundary(*at));
                text.truncate(cut.unwrap_or(0));
            }
        }
        answer.outputs.retain(|output| {
            !matches!(output, Output::Text { text, .. } | Output::Refusal { text, .. } if text.is_empty())
        });
    }

    fn call(&self, call: Call, asked: &Asked) -> Output {
        let tool = asked.tools.iter().find(|tool| tool.known_as == call.name);
        let form = tool.map_or(Form::Function(None), |tool| tool.form.clone());
        let prefix = match form {
            Form::Function(_) => "fc_",
            Form::Custom(_) | Form::Code(_) => "ctc_",
            Form::LocalShell => "lsh_",
            Form::Shell => "sh_",
        };
        Output::Call {
            id: self.id(prefix),
            call_id: self.id("call_"),
            name: tool.map_or(call.name, |tool| tool.name.clone()),
            input: match form {
                Form::Custom(_) => custom_input(&call.input),
                Form::Code(_) => code_input(&call.input),
                _ => call.input,
            },
            form,
        }
    }

    /// The head goes out: entries become readable, and the response can be compared with.
    pub fn begin_openai(&self, ready: &mut Ready) -> Tokens {
        let mut state = self.state();
        state.openai.cache.commit(&ready.pending);
        if let Some(fingerprint) = ready.fingerprint.take() {
            state.openai.fingerprints.store(
                ready.answer.id.clone(),
                ready.asked.scope.clone(),
                fingerprint,
            );
        }
        ready.answer.tokens
    }
}

fn too_long(asked: &Asked, total: u64) -> OpenAiError {
    let (message, param) = match asked.wire {
        Wire::Chat => (
            format!(
                "This model's maximum context length is {} tokens, and the messages resulted in {total} tokens.",
                asked.model.context
            ),
            "messages",
        ),
        Wire::Responses => (
            "The input exceeds the context window of this model.".to_owned(),
            "input",
        ),
    };
    OpenAiError::invalid(message)
        .code("context_length_exceeded")
        .param(param)
}
