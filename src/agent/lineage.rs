//! What a gateway is told about a run, so that it need not guess: headers that providers ignore
//! and that the gateway takes out.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use http::header::{HeaderName, HeaderValue};

use super::journal::MAIN;
use super::machine::Setup;
use super::model::Headers;
use super::notice::{Listener, Notice};

/// Agents at work at the same time whose headers are kept. What comes beyond sends none.
const MAX_AGENTS: usize = 1_024;

/// Names run, application, agent and the agent above it in the requests of every agent that it
/// hears of.
#[derive(Debug, Default)]
pub struct Lineage {
    /// The run as the gateway shall have it, where that is another name than the agent's own.
    pub run: Option<String>,
    /// The application.
    pub app: Option<String>,
    /// The outermost agent, where it has another name there.
    pub main: Option<String>,
    /// Of the agents that are at work.
    agents: Mutex<HashMap<String, Headers>>,
}

impl Lineage {
    /// With these names.
    #[must_use]
    pub fn new(run: Option<String>, app: Option<String>, main: Option<String>) -> Self {
        Self {
            run,
            app,
            main,
            agents: Mutex::default(),
        }
    }

    fn of(&self, setup: &Setup) -> Headers {
        let name = |agent| match &self.main {
            Some(main) if agent == MAIN => main,
            _ => agent,
        };
        let told = [
            ("x-prefixgate-run", Some(self.run.as_ref().unwrap_or(&setup.run))),
            ("x-prefixgate-app", self.app.as_ref()),
            ("x-prefixgate-agent", Some(name(&setup.agent))),
            ("x-prefixgate-parent", setup.parent.as_ref().map(name)),
        ];
        let headers = told.into_iter().filter_map(|(name, value)| {
            // A name that cannot be sent is left out: the gateway then finds one of its own.
            let value = HeaderValue::from_str(value?).ok()?;
            Some((HeaderName::from_static(name), value))
        });
        headers.collect()
    }
}

impl Listener for Lineage {
    fn notice(&self, agent: &str, notice: Notice<'_>) {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        match notice {
            Notice::Began(run) if agents.len() < MAX_AGENTS => {
                agents.insert(agent.to_owned(), self.of(run.setup()));
            }
            Notice::Ended { .. } => {
                agents.remove(agent);
            }
            _ => {}
        }
    }

    fn headers(&self, agent: &str) -> Headers {
        let agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        agents.get(agent).cloned().unwrap_or_default()
    }
}
