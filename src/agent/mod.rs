//! The reference loop client: a small, complete agent.
//!
//! | room | what is there |
//! |---|---|
//! | [`talk`] | the words of a conversation |
//! | [`machine`] | the loop without I/O: what comes next, caps, outcomes, compaction, repetition |
//! | [`model`] | wire formats and the endpoint |
//! | [`tools`] | tools, their checks, and the calls of an answer |
//! | [`journal`] | what has happened, on disk |
//! | [`driver`] | does what the machine asks for |
//! | [`notice`] | what a run tells while it is under way |
//! | [`trace`] | spans of a run |
//! | [`lineage`] | other names of a run and its agents for a gateway |
//! | [`budget`] | what all agents of a run have used |
//! | [`crew`] | the agents of one run, each with its own journal |
//! | [`subagent`] | the tool that starts sub-agents |
//! | [`memory`] | notes that outlive a run |
//! | [`pattern`] | ways to work: react, reflexion, plan and execute |
//! | `restate` | the loop on a workflow engine (feature `restate`) |
//!
//! # As a library
//!
//! A tool of one's own and limits of one's own; the simulated provider stands for a real one.
//!
//! ```
//! use std::sync::Arc;
//!
//! use prefixgate::agent::crew::Crew;
//! use prefixgate::agent::machine::{Limits, Outcome, Setup};
//! use prefixgate::agent::model::Endpoint;
//! use prefixgate::agent::pattern::Pattern;
//! use prefixgate::agent::tools::{Manners, Toolbox, typed};
//! use prefixgate::provider::wire::Wire;
//! use prefixgate::sim::{Options, Sim};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Weather {
//!     /// Where, for example \"Oslo\"
//!     city: String,
//! }
//!
//! #[tokio::main]
//! async fn main() -> anyhow::Result<()> {
//!     let sim = Sim::start(Options::default())?;
//!     let mut tools = Toolbox::new();
//!     tools.add(typed(
//!         "weather",
//!         "Tells the weather of a city in one line. Use it once for each city.",
//!         Manners::READS,
//!         |input: Weather, _| async move { Ok(format!("{}: sunny", input.city)) },
//!     ));
//!     let mut crew = Crew::new(Endpoint::new(Wire::Messages, &sim.base_url(), "key")?, tools);
//!     crew.options.eager = true;
//!     let mut setup = Setup::new(Wire::Messages, "claude-sonnet-5", "Answer briefly.");
//!     setup.limits = Limits { turns: 10, calls: Some(5), ..Limits::default() };
//!     // The words in brackets are the script of the simulated model.
//!     let task = "How is the weather? [[plan:tool=weather,end]]";
//!     let report = Pattern::React.work(&Arc::new(crew), &setup, task, &Default::default()).await?;
//!     assert_eq!(report.outcome, Outcome::EndTurn);
//!     println!("{}", report.answer.unwrap_or_default());
//!     Ok(())
//! }
//! ```
//!
//! A real provider is another base URL, `crew.listener` is told what happens, `crew.journals` keeps
//! it, and `crew.spawning` gives the agent others to hand work to.

pub mod budget;
mod causes;
pub mod crew;
pub mod driver;
pub mod journal;
pub mod lineage;
pub mod machine;
pub mod memory;
pub mod model;
pub mod notice;
pub mod pattern;
#[cfg(feature = "restate")]
pub mod restate;
pub mod subagent;
pub mod talk;
pub mod text;
pub mod tools;
pub mod trace;
