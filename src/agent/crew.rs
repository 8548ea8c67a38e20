//! The agents of one run: what they share, and how each is set to work.
//!
//! Every agent has a journal of its own by its name, and starting it means going on with that: an
//! agent that has ended is not run again, one that was stopped goes on where it stood, and only one
//! that nobody has heard of begins. So whoever starts agents by names that follow from its own
//! journal (sub-agents by the key of their call, attempts and steps by their number) can be killed
//! at any point, and simply does it all again.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use tokio_util::sync::CancellationToken;

use super::budget::Budget;
use super::driver::{Agent, Delegated, Options, Parts};
use super::journal::{Journal, JournalError, Journals, Scratch};
use super::machine::{AgentRun, Event, Outcome, Setup};
use super::model::{Endpoint, Headers};
use super::notice::{Listener, Silent};
use super::subagent::{MAX_DEPTH, Spawn, Spawning};
use super::tools::Toolbox;
use crate::clock::Clock;

const RUN: HeaderName = HeaderName::from_static("x-prefixgate-run");
const AGENT: HeaderName = HeaderName::from_static("x-prefixgate-agent");
const PARENT: HeaderName = HeaderName::from_static("x-prefixgate-parent");

/// What the agents of a run share.
pub struct Crew {
    /// The model.
    pub endpoint: Arc<Endpoint>,
    /// The tools, without the one that starts sub-agents.
    pub tools: Toolbox,
    /// How sub-agents are started; `None` where they are not.
    pub spawning: Option<Spawning>,
    /// Where events go.
    pub journals: Arc<dyn Journals>,
    /// Who is told.
    pub listener: Arc<dyn Listener>,
    /// The books of the run; see [`Crew::recall`].
    pub budget: Budget,
    /// The time of events.
    pub clock: Clock,
    /// How they work. Lineage is added to the headers.
    pub options: Options,
}

/// What an agent is to do.
pub struct Post {
    /// What it begins with. Its tools are filled in here.
    pub setup: Setup,
    /// The first text of the user.
    pub task: String,
    /// The only tools it gets; `None` for all.
    pub allowed: Option<Vec<String>>,
    /// Its page of the books.
    pub budget: Budget,
    /// Ends it.
    pub cancelled: CancellationToken,
}

impl Crew {
    /// Agents that keep nothing, tell nobody and start no others; all of it can be changed.
    #[must_use]
    pub fn new(endpoint: Endpoint, tools: Toolbox) -> Self {
        Self {
            endpoint: Arc::new(endpoint),
            tools,
            spawning: None,
            journals: Arc::new(Scratch::default()),
            listener: Arc::new(Silent),
            budget: Budget::default(),
            clock: Clock::Real,
            options: Options::default(),
        }
    }

    /// Puts on the books what the journals of a run have; once, before a run that was stopped goes
    /// on in this process.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub fn recall(&self, run: &str) -> Result<(), JournalError> {
        self.budget.add(&self.journals.spent(run)?);
        Ok(())
    }

    /// Sets an agent to work until it ends. One that has ended before is given as it stands.
    ///
    /// # Errors
    /// Its journal cannot be read or written.
    pub async fn work(self: &Arc<Self>, post: Post) -> Result<Agent, JournalError> {
        let mut agent = self.agent(post)?;
        if !has_ended(agent.run()) {
            agent.go().await?;
        }
        Ok(agent)
    }

    /// The agent of a post: new, reopened where its journal shows that it was stopped, or as it has
    /// ended.
    ///
    /// # Errors
    /// Its journal cannot be read or written.
    pub fn agent(self: &Arc<Self>, post: Post) -> Result<Agent, JournalError> {
        self.seat(post, None)
    }

    /// The same with a new word of the user, with which an agent that has ended goes on as well.
    ///
    /// # Errors
    /// Its journal cannot be read or written.
    pub fn told(self: &Arc<Self>, post: Post, say: &str) -> Result<Agent, JournalError> {
        let mut agent = self.seat(post, Some(say))?;
        agent.say(say)?;
        Ok(agent)
    }

    fn seat(self: &Arc<Self>, post: Post, say: Option<&str>) -> Result<Agent, JournalError> {
        let Post {
            mut setup,
            task,
            allowed,
            budget,
            cancelled,
        } = post;
        let mut journal = self.journal(&setup)?;
        let known = journal.load()?.filter(|run| !run.entries().is_empty());
        let now_ms = self.clock.utc_ms();
        let worked = known.as_ref().map_or(0, |run| run.worked_ms(now_ms));
        let delegated = Delegated::default();
        let spawn = self.spawn(&setup, &allowed, &budget, &delegated, worked);
        let toolbox = self.toolbox(allowed.as_deref(), spawn);
        setup.tools = toolbox.specs();
        let mut options = self.options.clone();
        options.headers = lineage(&self.options.headers, &setup);
        let parts = Parts {
            endpoint: Arc::clone(&self.endpoint),
            toolbox: Arc::new(toolbox),
            journal,
            listener: Arc::clone(&self.listener),
            budget,
            delegated,
            cancelled,
            clock: self.clock.clone(),
            options,
        };
        match known {
            None => Agent::begin(parts, setup, &task),
            Some(run) if has_ended(&run) && say.is_none() => Ok(Agent::held(parts, run)),
            Some(run) => {
                let limits = Some(setup.limits);
                Agent::reopen(parts, run, Event::Resumed { limits })
            }
        }
    }

    fn journal(&self, setup: &Setup) -> Result<Box<dyn Journal>, JournalError> {
        match self.journals.open(&setup.run, &setup.agent) {
            Err(JournalError::Missing(_)) => self.journals.create(&setup.run, &setup.agent),
            known => known,
        }
    }

    /// The tool that starts sub-agents, but not for those at the greatest depth.
    fn spawn(
        self: &Arc<Self>,
        setup: &Setup,
        allowed: &Option<Vec<String>>,
        budget: &Budget,
        delegated: &Delegated,
        worked_ms: u64,
    ) -> Option<Spawn> {
        let spawning = self.spawning.clone().filter(|_| setup.depth < MAX_DEPTH)?;
        Some(Spawn {
            crew: Arc::clone(self),
            spawning,
            parent: setup.clone(),
            allowed: allowed.clone(),
            budget: budget.clone(),
            delegated: Arc::clone(delegated),
            worked_ms,
            since_ms: self.clock.utc_ms(),
        })
    }

    fn toolbox(&self, allowed: Option<&[String]>, spawn: Option<Spawn>) -> Toolbox {
        let is_allowed = |name: &str| allowed.is_none_or(|names| names.iter().any(|n| n == name));
        let mut toolbox = Toolbox::new();
        for name in self.tools.names().filter(|name| is_allowed(name)) {
            if let Some(tool) = self.tools.get(name) {
                toolbox.add(Arc::clone(tool));
            }
        }
        if let Some(spawn) = spawn.filter(|_| is_allowed(super::subagent::NAME)) {
            toolbox.add(Arc::new(spawn));
        }
        toolbox
    }
}

/// Whether an agent's end is one that starting it again would not change: it has said its last, or
/// was asked about its work since.
fn has_ended(run: &AgentRun) -> bool {
    run.outcome()
        .is_some_and(|outcome| stands(outcome) || run.aside().is_some())
}

fn stands(outcome: &Outcome) -> bool {
    !outcome.is_cap() && !matches!(outcome, Outcome::Cancelled | Outcome::ProviderError(_))
}

/// The headers of an agent's requests: by them a gateway knows the run, the agent and who started
/// it. Names that cannot be sent are left out.
#[must_use]
pub fn lineage(others: &Headers, setup: &Setup) -> Headers {
    let mut headers = others.clone();
    headers.retain(|(name, _)| ![RUN, AGENT, PARENT].contains(name));
    let parent = setup.parent.as_deref();
    let own = [
        (RUN, Some(setup.run.as_str())),
        (AGENT, Some(setup.agent.as_str())),
        (PARENT, parent),
    ];
    for (name, value) in own {
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.push((name, value));
        }
    }
    headers
}
