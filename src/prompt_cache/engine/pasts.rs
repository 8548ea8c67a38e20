//! The newest answered request of each thread, within a bound of memory.

use std::sync::Arc;

use crate::bounded::Bounded;
use crate::prompt_cache::trail::Past;

/// Threads whose newest request is kept, however small it is.
const MAX_THREADS: usize = 65_536;

/// What a thread takes beside its request: places in the map and its queue, heads of allocations.
const ENTRY_BYTES: usize = 256;

/// By the hash of the thread. What was not touched longest is forgotten first.
#[derive(Debug)]
pub(super) struct Pasts {
    entries: Bounded<u64, Arc<Past>>,
    bytes: usize,
    limit: usize,
}

impl Pasts {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: Bounded::new(MAX_THREADS),
            bytes: 0,
            limit,
        }
    }

    pub(super) fn get(&mut self, thread: u64) -> Option<Arc<Past>> {
        self.entries.touch(&thread).map(|past| Arc::clone(past))
    }

    /// Takes the place of the thread's earlier request. Gives what had to go, to be dropped
    /// outside of a lock.
    pub(super) fn put(&mut self, thread: u64, past: Arc<Past>) -> Vec<Arc<Past>> {
        let mut gone: Vec<_> = self.entries.remove(&thread).into_iter().collect();
        self.bytes += size(&past);
        let pushed_out = self.entries.insert(thread, past);
        gone.extend(pushed_out.map(|(_, past)| past));
        self.bytes = self
            .bytes
            .saturating_sub(gone.iter().map(|past| size(past)).sum());
        while self.bytes > self.limit
            && let Some((_, oldest)) = self.entries.pop_oldest()
        {
            self.bytes = self.bytes.saturating_sub(size(&oldest));
            gone.push(oldest);
        }
        gone
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Arc<Past>)> {
        self.entries.iter().map(|(thread, past)| (*thread, past))
    }
}

fn size(past: &Past) -> usize {
    past.bytes() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt_cache::trail::Trail;
    use crate::usage::Usage;
    use uuid::Uuid;

    fn past(started_ms: i64) -> Arc<Past> {
        Arc::new(Past {
            trail: Arc::new(Trail {
                steps: Box::default(),
                marks: Vec::new(),
                settings: Vec::new(),
                model: "m".into(),
                betas: 0,
                fast_beta: false,
                head: 0,
                messages: 0,
            }),
            turn_id: Uuid::nil(),
            started_ms,
            ended_ms: 0,
            usage: Usage::default(),
            response_id: None,
            model_served: None,
            stop_reason: None,
            client_order: None,
        })
    }

    #[test]
    fn holds_no_more_than_it_may_and_keeps_what_is_used() {
        let size = size(&past(0));
        let mut pasts = Pasts::new(10 * size);
        for thread in 0..100_u64 {
            pasts.put(thread, past(1));
            assert!(pasts.bytes() <= 10 * size);
            assert!(pasts.get(0).is_some(), "touched each time");
        }
        assert_eq!(pasts.iter().count(), 10);
        assert_eq!(pasts.bytes(), 10 * size);
        pasts.put(0, past(7));
        assert_eq!(pasts.get(0).unwrap().started_ms, 7);
        assert_eq!(pasts.bytes(), 10 * size, "replaced, not added");
    }
}
