use crate::provider::reader::{self, Limits};
use crate::provider::view::{Answer, Ttl};
use crate::sse::Event;

/// An answer in the making.
#[derive(Debug)]
pub(in crate::provider) struct Progress {
    pub(in crate::provider) answer: Answer,
}

impl Progress {
    pub(in crate::provider) fn new(_limits: &Limits) -> Self {
        Self {
            answer: Answer::default(),
        }
    }
}

impl reader::Progress for Progress {
    fn event(&mut self, _event: Event<'_>) {}

    fn body(&mut self, _json: &[u8]) -> bool {
        false
    }

    fn settle(&mut self, _ttl: Option<Ttl>) {}

    fn answer(&mut self) -> &mut Answer {
        &mut self.answer
    }
}
