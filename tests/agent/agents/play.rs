//! A machine in the hand: events go in, steps come out.

use prefixgate::agent::machine::{
    AgentRun, Bill, Event, Happened, Limits, Outcome, Setup, Situation, Step, Stop, ToDo, ToolSpec,
};
use prefixgate::agent::talk::{Answer, Block, CallResult, Entry, Kind, ToolCall};
use prefixgate::provider::wire::Wire;
use prefixgate::usage::Usage;
use serde_json::json;

pub fn setup() -> Setup {
    Setup {
        run: "r".into(),
        agent: "main".into(),
        parent: None,
        depth: 0,
        wire: Wire::Messages,
        model: "claude-sonnet-5".into(),
        system: "You are careful.".into(),
        tools: vec![ToolSpec {
            name: "work".into(),
            description: "Works.".into(),
            schema: r#"{"type":"object"}"#.into(),
        }],
        max_tokens: 1000,
        effort: None,
        window: 200_000,
        compact_at: 150_000,
        limits: Limits::default(),
        loop_threshold: 3,
    }
}

pub fn bill(prompt: u64, output: u64, pico: u64) -> Bill {
    Bill {
        usage: Usage {
            uncached: Some(prompt),
            read: Some(0),
            write_5m: Some(0),
            write_1h: Some(0),
            output: Some(output),
            ..Usage::default()
        },
        pico: Some(pico),
    }
}

pub fn text(text: &str) -> Block {
    Block {
        kind: Kind::Text(text.into()),
        raw: json!({"type": "text", "text": text}).to_string(),
    }
}

pub fn call(id: &str, name: &str, input: &str) -> Block {
    let parsed: serde_json::Value = serde_json::from_str(input).unwrap();
    Block {
        kind: Kind::Call(ToolCall {
            id: id.into(),
            name: name.into(),
            input: input.into(),
        }),
        raw: json!({"type": "tool_use", "id": id, "name": name, "input": parsed}).to_string(),
    }
}

pub fn answer(blocks: Vec<Block>) -> Answer {
    Answer {
        wire: Wire::Messages,
        model: "claude-sonnet-5".into(),
        blocks,
    }
}

pub fn answered(blocks: Vec<Block>, stop: Stop) -> Event {
    Event::Answered {
        answer: answer(blocks),
        stop,
        open_call: false,
        bill: bill(100, 10, 7),
    }
}

/// A run with its journal, and the time.
#[derive(Clone)]
pub struct Play {
    pub run: AgentRun,
    pub events: Vec<Happened>,
    pub now: i64,
}

impl Play {
    pub fn new(setup: Setup) -> Self {
        let began = Happened {
            at_ms: 0,
            event: Event::Began(Box::new(setup.clone())),
        };
        Self {
            run: AgentRun::new(setup, 0),
            events: vec![began],
            now: 0,
        }
    }

    /// A run that was told to do something.
    pub fn told(setup: Setup) -> Self {
        let mut play = Self::new(setup);
        play.say("do it");
        play
    }

    pub fn put(&mut self, event: Event) {
        let happened = Happened {
            at_ms: self.now,
            event,
        };
        self.run.apply(&happened);
        self.events.push(happened);
    }

    pub fn say(&mut self, text: &str) {
        self.put(Event::Said { text: text.into() });
    }

    pub fn next(&self) -> Step {
        self.run.next(Situation {
            now_ms: self.now,
            whole_run: None,
        })
    }

    pub fn outcome(&self) -> Outcome {
        match self.next() {
            Step::Done(outcome) => outcome,
            other => panic!("not at an end: {other:?}"),
        }
    }

    /// The calls that are to be made.
    pub fn todo(&self) -> Vec<ToDo> {
        match self.next() {
            Step::CallTools(todo) => todo,
            other => panic!("no calls: {other:?}"),
        }
    }

    pub fn asks_model(&self) -> bool {
        matches!(self.next(), Step::CallModel { .. })
    }

    /// Makes all calls that are to be made; `result` gives text and whether it is an error.
    pub fn make(&mut self, result: impl Fn(&ToolCall) -> (String, bool)) {
        for todo in self.todo() {
            self.put(Event::CallBegan {
                call: todo.call.clone(),
                key: todo.key,
            });
            let (text, is_error) = result(&todo.call);
            self.put(Event::CallEnded {
                result: CallResult::new(&todo.call.id, text, is_error),
            });
        }
    }

    /// The results of the newest turn of the user.
    pub fn results(&self) -> &[CallResult] {
        match self.run.entries().last() {
            Some(Entry::User { results, .. }) => results,
            other => panic!("no turn of the user: {other:?}"),
        }
    }

    /// The state as a checkpoint has it.
    pub fn written(&self) -> serde_json::Value {
        serde_json::to_value(&self.run).unwrap()
    }
}
