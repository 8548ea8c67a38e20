//! Where to place breakpoints.
use super::splice::Splice;
use crate::provider::view::{RequestView, Ttl};
/// x
pub struct Situation<'a> {
    /// x
    pub view: &'a RequestView,
    /// x
    pub min_tokens: Option<u32>,
    /// x
    pub bytes_per_token_milli: u32,
    /// x
    pub previous_end: Option<usize>,
    /// x
    pub root_seen: bool,
    /// x
    pub insertion_off: bool,
}
/// x
pub struct Plan {
    /// x
    pub placed: Vec<(usize, Ttl)>,
    /// x
    pub splices: Vec<Splice>,
    /// x
    pub skipped: Option<&'static str>,
    /// x
    pub warnings: Vec<&'static str>,
}
/// x
pub fn plan(_s: &Situation<'_>) -> Plan {
    Plan {
        placed: vec![],
        splices: vec![],
        skipped: None,
        warnings: vec![],
    }
}
