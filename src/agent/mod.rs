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
//! | [`budget`] | what all agents of a run have used |

pub mod budget;
pub mod driver;
pub mod journal;
pub mod machine;
pub mod model;
pub mod notice;
#[cfg(feature = "restate")]
pub mod restate;
pub mod talk;
pub mod tools;
