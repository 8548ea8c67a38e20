//! The life of a turn.
//!
//! [`serve()`] owns the control flow of a request from its head to the head of its answer; from
//! there the [`tee`] passes the answer on. The [`account`] travels along and is closed exactly
//! once, on every exit. Errors before the upstream's answer are [`refusal`]s.

pub mod account;
pub mod audit;
pub mod body;
mod downward;
mod ending;
pub mod guard;
pub mod headers;
pub mod intake;
pub mod keep_warm;
pub mod ledger;
mod line;
pub mod lower;
pub mod ping;
pub mod prepare;
pub mod refusal;
pub mod route;
mod serve;
mod shared;
pub mod socket;
pub mod tee;
mod tunnel;
pub mod upstream;
mod upward;
pub mod warm;

pub use self::line::TURN_TARGET;
pub use self::serve::serve;
pub use self::shared::Shared;
