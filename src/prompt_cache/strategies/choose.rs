//! Where the policies put their breakpoints that look at nothing but the request.

use super::Request;
use crate::prompt_cache::trail::Mark;
use crate::provider::view::{Section, Ttl};

/// The client's own.
pub(super) fn client(request: &Request) -> Vec<Mark> {
    let marks = request.recorded.trail.marks.iter();
    marks.filter(|mark| !mark.ours).copied().collect()
}

/// One on the last block that may carry one.
pub(super) fn automatic(request: &Request) -> Vec<Mark> {
    let blocks = request.recorded.trail.steps.len();
    let last = (0..blocks).rfind(|block| request.markable(*block));
    last.map(short).into_iter().collect()
}

/// One at the end of what comes before the conversation, one on its newest block.
pub(super) fn system_tail(request: &Request) -> Vec<Mark> {
    let steps = &request.recorded.trail.steps;
    let last = |section| {
        (0..steps.len()).rfind(|at| steps[*at].section == section && request.markable(*at))
    };
    let head = last(Section::System).or_else(|| last(Section::Tools));
    let tail = last(Section::Messages);
    head.into_iter().chain(tail).map(short).collect()
}

pub(super) fn short(block: usize) -> Mark {
    Mark {
        at: u32::try_from(block).unwrap_or(u32::MAX),
        ttl: Some(Ttl::M5),
        ours: true,
    }
}
