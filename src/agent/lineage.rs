//! Other names for a gateway: a run that stands inside a larger one, an agent that is called
//! something else there. What is told without them is in [`crew::lineage`](super::crew::lineage).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::crew::lineage;
use super::journal::MAIN;
use super::machine::Setup;
use super::model::Headers;
use super::notice::{Listener, Notice};

/// Agents at work at the same time that are called otherwise. What comes beyond has its own names.
const MAX_AGENTS: usize = 1_024;

/// Gives the agents that it hears of their other names in the headers of their requests.
#[derive(Debug, Default)]
pub struct Renamed {
    run: Option<String>,
    main: Option<String>,
    agents: Mutex<HashMap<String, Headers>>,
}

impl Renamed {
    /// Other names of the run, and of its outermost agent; `None` leaves the name as it is.
    #[must_use]
    pub fn new(run: Option<String>, main: Option<String>) -> Self {
        Self {
            run,
            main,
            agents: Mutex::default(),
        }
    }

    fn of(&self, setup: &Setup) -> Headers {
        let mut setup = setup.clone();
        if let Some(run) = &self.run {
            setup.run.clone_from(run);
        }
        if let Some(main) = &self.main {
            for name in [Some(&mut setup.agent), setup.parent.as_mut()]
                .into_iter()
                .flatten()
            {
                if name == MAIN {
                    name.clone_from(main);
                }
            }
        }
        lineage(&Headers::new(), &setup)
    }
}

impl Listener for Renamed {
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
