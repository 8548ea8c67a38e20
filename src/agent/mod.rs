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

pub mod budget;
pub mod crew;
pub mod driver;
pub mod journal;
pub mod lineage;
pub mod machine;
pub mod memory;
pub mod model;
pub mod notice;
pub mod pattern;
pub mod subagent;
pub mod talk;
pub mod tools;
pub mod trace;
