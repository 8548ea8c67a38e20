//! Nothing follows from an event that a machine without power could still forget.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use prefixgate::agent::driver::Agent;
use prefixgate::agent::journal::{InMemory, Journal, JournalError};
use prefixgate::agent::machine::{AgentRun, Happened, Outcome, ToolSpec};
use prefixgate::agent::model::Headers;
use prefixgate::agent::notice::{Listener, Notice};
use prefixgate::agent::tools::{CallContext, Manners, Tool, ToolResult, Toolbox};
use serde_json::Value;

use super::world::World;

/// What has been seen, and how many events were not settled then.
#[derive(Clone, Default)]
struct Seen {
    open: Arc<AtomicUsize>,
    settled: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<(&'static str, usize)>>>,
}

impl Seen {
    fn note(&self, what: &'static str) {
        let open = self.open.load(Ordering::SeqCst);
        self.seen.lock().unwrap().push((what, open));
    }
}

struct Watched(InMemory, Seen);

impl Journal for Watched {
    fn append(&mut self, happened: &Happened) -> Result<(), JournalError> {
        self.1.open.fetch_add(1, Ordering::SeqCst);
        self.0.append(happened)
    }

    fn settle(&mut self) -> Result<(), JournalError> {
        if self.1.open.swap(0, Ordering::SeqCst) > 0 {
            self.1.settled.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn checkpoint(&mut self, run: &AgentRun) -> Result<(), JournalError> {
        self.0.checkpoint(run)
    }

    fn load(&mut self) -> Result<Option<AgentRun>, JournalError> {
        self.0.load()
    }

    fn events(&mut self) -> Result<Vec<Happened>, JournalError> {
        self.0.events()
    }
}

impl Listener for Seen {
    fn notice(&self, _agent: &str, notice: Notice<'_>) {
        if matches!(notice, Notice::Ended { .. }) {
            self.note("end");
        }
    }

    fn headers(&self, _agent: &str) -> Headers {
        self.note("request");
        Headers::new()
    }
}

struct Watching(Seen);

impl Tool for Watching {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "charge".to_owned(),
            description: "Charges something. For tests.".to_owned(),
            schema: r#"{"type":"object","properties":{}}"#.to_owned(),
        }
    }

    fn manners(&self) -> Manners {
        Manners::CHANGES
    }

    fn call(&self, _input: Value, _context: CallContext) -> BoxFuture<'static, ToolResult> {
        self.0.note("call");
        Box::pin(async { Ok("charged".to_owned()) })
    }
}

#[tokio::test]
async fn events_are_settled_before_anything_follows_from_them_and_once_for_all() {
    for eager in [false, true] {
        let world = World::start();
        let seen = Seen::default();
        let mut toolbox = Toolbox::new();
        toolbox.add(Arc::new(Watching(seen.clone())));
        let mut setup = world.setup("r");
        setup.tools = toolbox.specs();
        let mut parts = world.parts(Box::new(Watched(InMemory::default(), seen.clone())));
        parts.toolbox = Arc::new(toolbox);
        parts.listener = Arc::new(seen.clone());
        parts.options.eager = eager;
        let task = "Go. [[plan:tool=charge+tool=charge+tool=charge,tool=charge,end]]";
        let mut agent = Agent::begin(parts, setup, task).unwrap();
        assert_eq!(agent.go().await.unwrap(), Outcome::EndTurn);

        let all = seen.seen.lock().unwrap().clone();
        let of = |what| all.iter().filter(|(kind, _)| *kind == what).count();
        assert_eq!((of("request"), of("call"), of("end")), (3, 4, 1), "{all:?}");
        assert!(all.iter().all(|(_, open)| *open == 0), "{eager}: {all:?}");
        // Before each request, before the calls of an answer, at the end.
        if !eager {
            assert_eq!(seen.settled.load(Ordering::SeqCst), 3 + 2 + 1);
        }

        assert!(agent.aside("What was it?").await.unwrap().is_some());
        assert_eq!(seen.open.load(Ordering::SeqCst), 0);
    }
}
