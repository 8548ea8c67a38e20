//! Ways to work: what is put around the loop of one agent.
//!
//! All of them use the same machine, the same system prompt and tools (so that each agent reads the
//! cache of those before it), the same books and the same caps. Each attempt, plan and step is an
//! agent with a journal of its own whose name follows from its number, the first one being `main`;
//! what the model judges or reflects is kept in the journal of the agent that it is about. A run
//! that is killed therefore resumes by being done once more from its beginning: what has ended is
//! read and not run, what was stopped goes on, and the rest begins.
//!
//! | pattern | what is done |
//! |---|---|
//! | [`Pattern::React`] | one agent, until it ends |
//! | [`Pattern::Reflexion`] | attempts; after a failed one the model writes what went wrong, the next one reads it |
//! | [`Pattern::PlanExecute`] | a plan, an agent for each step, a review after each, another plan when one fails |

mod check;
mod form;
mod plan;
mod reflexion;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

pub use check::{Check, Checked};
pub use plan::PlanExecute;
pub use reflexion::Reflexion;

use super::crew::{Crew, Post};
use super::driver::Agent;
use super::journal::{JournalError, MAIN};
use super::machine::{Outcome, Setup};
use super::memory::{Memory, MemoryError};
use super::notice::Notice;

/// A way to work.
#[derive(Clone)]
pub enum Pattern {
    /// One agent that reasons and acts by turns.
    React,
    /// See [`Reflexion`].
    Reflexion(Reflexion),
    /// See [`PlanExecute`].
    PlanExecute(PlanExecute),
}

/// How a run by a pattern ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// How the last agent ended.
    pub outcome: Outcome,
    /// The task is done, as far as anyone has looked: the model has ended by itself, and the check
    /// or the reviews were passed.
    pub passed: bool,
    /// The last answer.
    pub answer: Option<String>,
    /// Why it has not passed, for people.
    pub why: Option<String>,
}

/// Why a pattern could not go on.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// A journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Pattern {
    /// Works on a task until it is done, given up or stopped. `setup` is that of the first agent;
    /// the others are told from it by their names.
    ///
    /// # Errors
    /// A journal or the memory cannot be read or written. What was done stands in the journals.
    pub async fn work(
        &self,
        crew: &Arc<Crew>,
        setup: &Setup,
        task: &str,
        cancelled: &CancellationToken,
    ) -> Result<Report, PatternError> {
        let mut site = Site {
            crew,
            setup,
            cancelled,
            worked_ms: 0,
        };
        match self {
            Self::React => {
                let agent = site.agent(MAIN, task.to_owned()).await?;
                let outcome = ended(&agent);
                Ok(Report {
                    passed: outcome == Outcome::EndTurn,
                    outcome,
                    answer: agent.run().answer(),
                    why: None,
                })
            }
            Self::Reflexion(reflexion) => reflexion.work(&mut site, task).await,
            Self::PlanExecute(plan) => plan.work(&mut site, task).await,
        }
    }
}

/// Where the agents of a pattern work.
struct Site<'a> {
    crew: &'a Arc<Crew>,
    setup: &'a Setup,
    cancelled: &'a CancellationToken,
    /// Time at work of those that have ended.
    worked_ms: u64,
}

impl Site<'_> {
    /// Has an agent of this name work until it ends, in what is left of the time.
    async fn agent(&mut self, name: &str, task: String) -> Result<Agent, JournalError> {
        let mut setup = self.setup.clone();
        if name != MAIN {
            setup.agent = name.to_owned();
            setup.parent = Some(self.setup.agent.clone());
        }
        let wall = &mut setup.limits.wall_ms;
        *wall = wall.map(|wall| wall.saturating_sub(self.worked_ms));
        let post = Post {
            setup,
            task,
            allowed: None,
            budget: self.crew.budget.clone(),
            cancelled: self.cancelled.clone(),
        };
        let agent = self.crew.work(post).await?;
        self.worked_ms += agent.run().worked_ms(self.crew.clock.utc_ms());
        Ok(agent)
    }

    /// The cap that leaves no room for anything more.
    fn used_up(&self) -> Option<Outcome> {
        let spent = self.crew.budget.spent();
        if self.cancelled.is_cancelled() {
            return Some(Outcome::Cancelled);
        }
        self.setup.limits.before_model(0, &spent, self.worked_ms)
    }

    fn tell(&self, agent: &Agent, notice: Notice<'_>) {
        self.crew
            .listener
            .notice(&agent.run().setup().agent, notice);
    }
}

fn ended(agent: &Agent) -> Outcome {
    let outcome = agent.run().outcome().cloned();
    outcome.unwrap_or(Outcome::Cancelled)
}

/// An end that no other attempt or plan would change: the user, the provider, a tool that cannot
/// work, a refusal, or a cap that all agents share.
fn is_final(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Cancelled
        | Outcome::ProviderError(_)
        | Outcome::ToolException(_)
        | Outcome::Refusal(_) => true,
        // Turns are counted for each agent.
        outcome => outcome.is_cap() && *outcome != Outcome::MaxTurns,
    }
}

/// Whether an agent has ended in a state in which it can be asked about its work.
fn can_be_asked(outcome: &Outcome) -> bool {
    !matches!(outcome, Outcome::ContextWindow) && !is_final(outcome)
}

/// The memory that a pattern keeps its lessons in.
type Lessons = Arc<dyn Memory>;
