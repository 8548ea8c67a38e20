//! The agents of a scope that are at work.

use std::collections::HashMap;

/// How long an agent that has not ended its work stays live after its newest answer, in
/// milliseconds: its tools run meanwhile.
pub const LIVE_MS: i64 = 600_000;
/// Agents that a book remembers beyond those with a request under way.
const MAX_AGENTS: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agents {
    known: HashMap<String, Agent>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Agent {
    under_way: u32,
    /// Its newest answer was its last.
    ended: bool,
    /// When it last asked or was answered, UTC milliseconds.
    seen_ms: i64,
}

impl Agent {
    fn is_live(&self, now_ms: i64) -> bool {
        self.under_way > 0 || (!self.ended && now_ms.saturating_sub(self.seen_ms) <= LIVE_MS)
    }
}

impl Agents {
    pub(super) fn is_live(&self, name: &str, now_ms: i64) -> bool {
        self.known
            .get(name)
            .is_some_and(|agent| agent.is_live(now_ms))
    }

    /// How many are live.
    pub(super) fn live(&self, now_ms: i64) -> usize {
        self.known
            .values()
            .filter(|agent| agent.is_live(now_ms))
            .count()
    }

    /// A request of it is under way.
    pub(super) fn begin(&mut self, name: &str, now_ms: i64) {
        if let Some(agent) = self.known.get_mut(name) {
            agent.under_way = agent.under_way.saturating_add(1);
            agent.seen_ms = now_ms;
            return;
        }
        if self.known.len() >= MAX_AGENTS {
            self.make_room(now_ms);
        }
        let agent = Agent {
            under_way: 1,
            ended: false,
            seen_ms: now_ms,
        };
        self.known.insert(name.to_owned(), agent);
    }

    /// A request of it has ended; `ended`: so has its work.
    pub(super) fn end(&mut self, name: &str, ended: bool, now_ms: i64) {
        if let Some(agent) = self.known.get_mut(name) {
            agent.under_way = agent.under_way.saturating_sub(1);
            agent.ended = ended;
            agent.seen_ms = now_ms;
        }
    }

    /// Forgets who is not live, else the one that was silent longest. An agent with a request under
    /// way stays: there are no more of these than requests.
    fn make_room(&mut self, now_ms: i64) {
        self.known.retain(|_, agent| agent.is_live(now_ms));
        if self.known.len() < MAX_AGENTS {
            return;
        }
        let stalest = self
            .known
            .iter()
            .filter(|(_, agent)| agent.under_way == 0)
            .min_by_key(|(_, agent)| agent.seen_ms)
            .map(|(name, _)| name.clone());
        if let Some(name) = stalest {
            self.known.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_live_until_it_ends_or_is_silent_for_ten_minutes() {
        let mut agents = Agents::default();
        agents.begin("a", 0);
        assert!(agents.is_live("a", 10 * LIVE_MS), "a request is under way");
        agents.end("a", false, 1_000);
        assert!(agents.is_live("a", 1_000 + LIVE_MS));
        assert!(!agents.is_live("a", 1_001 + LIVE_MS));
        agents.begin("a", 2_000);
        agents.begin("a", 2_000);
        agents.end("a", true, 3_000);
        assert!(agents.is_live("a", 3_000), "another one is under way");
        agents.end("a", true, 4_000);
        assert!(!agents.is_live("a", 4_000));
        assert_eq!(agents.live(4_000), 0);
    }

    #[test]
    fn a_clock_that_goes_back_does_not_end_an_agent() {
        let mut agents = Agents::default();
        agents.begin("a", i64::MAX);
        agents.end("a", false, i64::MAX);
        assert!(agents.is_live("a", i64::MIN));
    }

    #[test]
    fn the_stalest_agents_are_forgotten_and_none_with_a_request_under_way() {
        let mut agents = Agents::default();
        agents.begin("busy", 0);
        for n in 0..5_000 {
            let name = n.to_string();
            agents.begin(&name, n);
            agents.end(&name, false, n);
        }
        assert_eq!(agents.known.len(), MAX_AGENTS);
        assert!(agents.is_live("busy", 5_000) && agents.is_live("4999", 5_000));
        assert!(!agents.is_live("0", 5_000));
    }

    #[test]
    fn agents_that_are_done_make_room_first() {
        let mut agents = Agents::default();
        for n in 0..1_024 {
            let name = n.to_string();
            agents.begin(&name, n);
            agents.end(&name, n != 0, n);
        }
        agents.begin("new", 2_000);
        assert!(agents.is_live("0", 2_000) && agents.is_live("new", 2_000));
        assert_eq!(agents.known.len(), 2);
    }
}
