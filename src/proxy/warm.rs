//! Siblings of a fan-out wait, bounded, for the first answer to begin.
//!
//! An entry of the provider's cache can be read once the answer to the request that writes it has
//! begun. Of many requests with one prefix that start together each would pay for writing it. So the
//! first leads, and the others follow: they wait until the leader's answer has begun, or until their
//! patience is over. When a leader fails, exactly one of those who wait leads next.
//!
//! Nothing here can hold a request up for longer than its own limit, whatever the others do: whoever
//! leaves (the future is dropped) gives up its place, also if it had just been told to lead.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Key of a position in the shadow cache.
pub type Key = [u8; 16];

/// Prefixes that may be awaited at the same time; requests for further ones do not wait.
const MAX_KEYS: usize = 4096;
/// Requests that may wait for one prefix; further ones do not wait.
const MAX_FOLLOWERS: usize = 1024;

/// Where requests with a common prefix meet.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// For each prefix that is being written: those who wait, in the order of their arrival.
    rooms: Arc<Mutex<HashMap<Key, VecDeque<oneshot::Sender<Word>>>>>,
}

/// What a follower is told.
#[derive(Debug)]
enum Word {
    /// The answer has begun.
    Began,
    /// The leader has failed: it is your turn.
    Lead(Lead),
}

/// What a request is to its prefix.
#[derive(Debug)]
pub enum Entry {
    /// The first: it goes on at once, and says when its answer begins.
    Lead(Lead),
    /// Another one is on its way: wait for it.
    Follow(Follow),
    /// Too many wait already: go on.
    Full,
}

impl Gate {
    /// Leads if nobody does, else follows.
    #[must_use]
    pub fn enter(&self, key: Key) -> Entry {
        let mut rooms = self.lock();
        let room_for_more = rooms.len() < MAX_KEYS;
        let Some(room) = rooms.get_mut(&key) else {
            if !room_for_more {
                return Entry::Full;
            }
            rooms.insert(key, VecDeque::new());
            return Entry::Lead(self.lead(key));
        };
        if room.len() >= MAX_FOLLOWERS {
            room.retain(|follower| !follower.is_closed());
            if room.len() >= MAX_FOLLOWERS {
                return Entry::Full;
            }
        }
        let (tell, told) = oneshot::channel();
        room.push_back(tell);
        Entry::Follow(Follow { told })
    }

    /// Prefixes that are awaited now.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.lock().len()
    }

    fn lead(&self, key: Key) -> Lead {
        Lead {
            gate: self.clone(),
            key,
            open: true,
        }
    }

    /// The next in the queue; the prefix is forgotten when nobody is left.
    fn next(&self, key: &Key) -> Option<oneshot::Sender<Word>> {
        let mut rooms = self.lock();
        let next = rooms.get_mut(key).and_then(VecDeque::pop_front);
        if next.is_none() {
            rooms.remove(key);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<oneshot::Sender<Word>>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The request that writes a prefix. Dropped without its answer having begun, it hands over.
#[derive(Debug)]
#[must_use = "dropping it says that the request has failed"]
pub struct Lead {
    gate: Gate,
    key: Key,
    open: bool,
}

impl Lead {
    /// The answer has begun: whoever waits goes on.
    pub fn began(mut self) {
        self.open = false;
        let room = self.gate.lock().remove(&self.key);
        // Told when the lock is free: a follower that has left is dropped here.
        for follower in room.into_iter().flatten() {
            let _gone = follower.send(Word::Began);
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        self.open = false;
        while let Some(follower) = self.gate.next(&self.key) {
            match follower.send(Word::Lead(self.gate.lead(self.key))) {
                Ok(()) => return,
                // It has left; the next one is asked by this loop, not by that guard.
                Err(Word::Lead(mut unused)) => unused.open = false,
                Err(Word::Began) => {}
            }
        }
    }
}

/// A place in the queue behind a leader.
#[derive(Debug)]
pub struct Follow {
    told: oneshot::Receiver<Word>,
}

/// How a wait ended.
#[derive(Debug)]
pub struct Waited {
    /// How long it was, in milliseconds.
    pub ms: u64,
    /// The awaited answer has begun: its prefix can be read.
    pub began: bool,
    /// The leader has failed and this request is the next one to lead.
    pub lead: Option<Lead>,
}

impl Follow {
    /// Waits for the leader's answer to begin, at most for `limit`.
    pub async fn wait(self, limit: Duration) -> Waited {
        let start = Instant::now();
        let (began, lead) = match tokio::time::timeout(limit, self.told).await {
            Ok(Ok(Word::Began)) => (true, None),
            Ok(Ok(Word::Lead(lead))) => (false, Some(lead)),
            // Patience is over, or the gate itself is gone.
            Ok(Err(_)) | Err(_) => (false, None),
        };
        Waited {
            ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            began,
            lead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    const KEY: Key = [7; 16];
    const PATIENCE: Duration = Duration::from_secs(5);

    fn lead(gate: &Gate) -> Lead {
        match gate.enter(KEY) {
            Entry::Lead(lead) => lead,
            other => panic!("{other:?}"),
        }
    }

    fn follow(gate: &Gate) -> Follow {
        match gate.enter(KEY) {
            Entry::Follow(follow) => follow,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn followers_go_on_when_the_answer_begins() {
        let gate = Gate::default();
        let first = lead(&gate);
        let mut waits = JoinSet::new();
        for _ in 0..8 {
            waits.spawn(follow(&gate).wait(PATIENCE));
        }
        sleep(Duration::from_millis(1200)).await;
        assert!(waits.try_join_next().is_none(), "nobody goes on before");
        first.began();
        let ended = waits.join_all().await;
        assert_eq!(ended.len(), 8);
        for waited in ended {
            assert!(waited.began && waited.lead.is_none());
            assert_eq!(waited.ms, 1200);
        }
        // Whoever comes now is the first again: the shadow cache knows better.
        assert_eq!(gate.keys(), 0);
        lead(&gate).began();
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_every_wait() {
        let gate = Gate::default();
        let _silent = lead(&gate);
        let waited = follow(&gate).wait(PATIENCE).await;
        assert!(!waited.began && waited.lead.is_none());
        assert_eq!(waited.ms, 5000);
        let waited = follow(&gate).wait(Duration::ZERO).await;
        assert_eq!((waited.ms, waited.began), (0, false));
    }

    /// Twenty follow, and three leaders fail one after the other: each time one and only one takes
    /// over, and all others go on when its answer begins.
    #[tokio::test(start_paused = true)]
    async fn of_many_exactly_one_takes_over() {
        let gate = Gate::default();
        let first = lead(&gate);
        let leaders = Arc::new(AtomicUsize::new(0));
        let began = Arc::new(AtomicUsize::new(0));
        let mut waits = JoinSet::new();
        for _ in 0..20 {
            let (leaders, began) = (leaders.clone(), began.clone());
            let follow = follow(&gate);
            waits.spawn(async move {
                let waited = follow.wait(PATIENCE).await;
                if let Some(lead) = waited.lead {
                    let number = leaders.fetch_add(1, Ordering::Relaxed) + 1;
                    sleep(Duration::from_millis(100)).await;
                    if number < 3 {
                        drop(lead);
                    } else {
                        lead.began();
                    }
                } else {
                    assert!(waited.began);
                    assert_eq!(waited.ms, 350);
                    began.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        sleep(Duration::from_millis(50)).await;
        drop(first);
        waits.join_all().await;
        assert_eq!(leaders.load(Ordering::Relaxed), 3);
        assert_eq!(began.load(Ordering::Relaxed), 17);
        assert_eq!(gate.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_leave_give_up_their_place() {
        let gate = Gate::default();
        let first = lead(&gate);
        let early = tokio::spawn(follow(&gate).wait(PATIENCE));
        let told = follow(&gate);
        let last = tokio::spawn(follow(&gate).wait(PATIENCE));
        sleep(Duration::from_millis(10)).await;
        early.abort();
        assert!(early.await.unwrap_err().is_cancelled());
        // The first in the queue has left; the second is told to lead, and leaves before it heard.
        drop(first);
        drop(told);
        let waited = last.await.unwrap();
        assert_eq!((waited.ms, waited.began), (10, false));
        waited.lead.unwrap().began();
        assert_eq!(gate.keys(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_without_followers_leaves_nothing_behind() {
        let gate = Gate::default();
        drop(lead(&gate));
        assert_eq!(gate.keys(), 0);
        let first = lead(&gate);
        drop(follow(&gate));
        drop(first);
        assert_eq!(gate.keys(), 0);
    }

    #[test]
    fn rooms_and_queues_are_bounded() {
        let gate = Gate::default();
        let first = lead(&gate);
        let mut waiting: Vec<Follow> = (0..MAX_FOLLOWERS).map(|_| follow(&gate)).collect();
        assert!(matches!(gate.enter(KEY), Entry::Full));
        // The places of those who left are given away.
        waiting.truncate(MAX_FOLLOWERS / 2);
        waiting.push(follow(&gate));
        drop(first);

        let gate = Gate::default();
        let key = |n: usize| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&n.to_le_bytes());
            key
        };
        let leads: Vec<Entry> = (0..MAX_KEYS).map(|n| gate.enter(key(n))).collect();
        assert!(matches!(gate.enter(key(MAX_KEYS)), Entry::Full));
        drop(leads);
        assert_eq!(gate.keys(), 0);
    }
}
