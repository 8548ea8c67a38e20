//! The search for the thread of a request.

use std::sync::Arc;

use super::memory::{State, Thread};
use super::{Arrival, Search};
use crate::prompt_cache::chain::Hash;
use crate::provider::view::History;

/// A rewritten history is attributed to a thread with the same root only while that is this young.
const REWRITE_WINDOW_MS: i64 = 60 * 60 * 1000;
/// The run of what names none and cannot be read.
pub const UNPLACED: &str = "unplaced";

/// A thread, and what the search showed on the way.
pub(super) struct Found {
    pub(super) key: u64,
    pub(super) source: &'static str,
    /// Blocks shared with the thread's earlier request.
    pub(super) previous_end: Option<usize>,
    pub(super) base: Option<Hash>,
    pub(super) history_seen: bool,
    /// It names a parent that nobody knows.
    pub(super) unknown_parent: bool,
}

impl State {
    pub(super) fn find<S: Search>(&mut self, a: &Arrival<'_>, search: &S) -> Found {
        let mut found = Found {
            key: 0,
            source: "content",
            previous_end: None,
            base: None,
            history_seen: true,
            unknown_parent: false,
        };

        if let History::Continues(answer) = a.history {
            if let Some(&(key, end)) = self.answers.get(answer.as_str())
                && self.threads.get(&key).is_some()
            {
                let named = a.identity.run.as_ref().map(|(_, source)| *source);
                return Found {
                    key,
                    source: named.unwrap_or("chain"),
                    base: end,
                    ..found
                };
            }
            found.history_seen = false;
        }

        if let Some((run, source)) = &a.identity.run {
            found.source = source;
            self.find_in_run(&Arc::from(run.as_str()), a, Some(search), &mut found);
            return found;
        }

        if let Some((key, blocks, whole)) = self.longest(a, |_| true) {
            let retries = a.identity.retries;
            let retry = self
                .threads
                .get(&key)
                .is_some_and(|t| t.earlier(a.body, retries).is_some());
            if !whole || retry {
                found.key = key;
                found.previous_end = (!whole).then_some(blocks);
                return found;
            }
            // The same opening once more after an answer: another run of the same script.
        } else if let Some(parent) = self.parent_by_prompt(Some(search)) {
            let run = self
                .threads
                .get(&parent)
                .map(|t| (t.run.clone(), t.id.clone()));
            if let Some((run, id)) = run {
                found.key = self.open(run, a.identity.agent.clone(), Some(id), None);
                return found;
            }
        } else if a.has_history
            && let Some(key) = self
                .rewritten(a)
                .or_else(|| self.by_message(search, |t| t.agent == a.identity.agent))
        {
            found.key = key;
            return found;
        }

        if let Some(trace) = &a.trace {
            found.source = "trace";
            self.find_in_run(&Arc::from(trace.as_str()), a, None::<&S>, &mut found);
            return found;
        }
        let run = self.content_run(a);
        found.key = self.open(run, a.identity.agent.clone(), None, None);
        found
    }

    fn find_in_run(
        &mut self,
        run: &Arc<str>,
        a: &Arrival<'_>,
        search: Option<&impl Search>,
        found: &mut Found,
    ) {
        let members = self.runs.get(run).cloned().unwrap_or_default().members;
        let agent = &a.identity.agent;
        let mine = |t: &Thread| t.run == *run && t.agent == *agent;

        let by_content = self.longest(a, mine);
        if let Some((key, blocks, whole)) = by_content {
            found.key = key;
            found.previous_end = (!whole).then_some(blocks);
            return;
        }
        let candidates: Vec<u64> = members
            .iter()
            .copied()
            .filter(|key| self.threads.get(key).is_some_and(mine))
            .collect();
        let thread_where = |is: &dyn Fn(&Thread) -> bool| {
            candidates
                .iter()
                .copied()
                .rfind(|key| self.threads.get(key).is_some_and(is))
        };
        let same_opening = thread_where(&|t| a.first.is_some() && t.first == a.first);
        let same_root = || {
            let rewritten = a.root.is_some() && a.has_history;
            thread_where(&|t| rewritten && t.root == a.root)
        };
        // An agent that names itself is one thread, whatever its prompt; so is a body that could
        // not be read.
        let any = (agent.is_some() || a.root.is_none())
            .then(|| candidates.last().copied())
            .flatten();
        // A client that says so has summed up its conversation, which begins anew.
        let compacted = || thread_where(&|t| t.compacting && !a.has_history && t.root == a.root);
        // Of a thread of an earlier process only the end is known. If the run had no other, a
        // conversation that has gone on is its.
        let restored = || {
            let mut known = candidates.iter().filter_map(|key| self.threads.get(key));
            let only = known.next().is_some_and(|t| t.restored) && known.next().is_none();
            (only && a.has_history).then(|| candidates.first().copied())?
        };
        let by_message = || self.by_message(search.filter(|_| a.has_history)?, mine);
        let known = same_opening
            .or_else(by_message)
            .or_else(same_root)
            .or_else(compacted)
            .or_else(restored);
        if let Some(key) = known.or(any) {
            found.key = key;
            return;
        }

        let parent = match &a.identity.parent_agent {
            // A parent that never gave its own name is the one the run began with.
            Some(name) => {
                let known = members.iter().copied().find(|key| {
                    let thread = self.threads.get(key);
                    thread.is_some_and(|t| t.agent.as_ref() == Some(name))
                });
                // Codex names the first agent as it names the session.
                found.unknown_parent = known.is_none() && **name != **run;
                known.or_else(|| members.first().copied())
            }
            None => self
                .parent_by_prompt(search)
                .or_else(|| agent.is_some().then(|| members.first().copied()).flatten()),
        };
        let parent = parent
            .and_then(|key| self.threads.get(&key))
            .map(|t| t.id.clone());
        found.key = self.open(run.clone(), agent.clone(), parent, None);
    }

    /// The thread with the longest prefix of this request, the number of blocks of that prefix, and
    /// whether it is the whole request.
    fn longest(
        &self,
        a: &Arrival<'_>,
        fits: impl Fn(&Thread) -> bool,
    ) -> Option<(u64, usize, bool)> {
        let last = a.borders.len().checked_sub(1)?;
        a.borders
            .iter()
            .enumerate()
            .rev()
            .find_map(|(index, &blocks)| {
                let hash = a.chain.get(blocks.checked_sub(1)?)?;
                let key = *self.ends.get(hash)?;
                fits(self.threads.get(&key)?).then_some((key, blocks, index == last))
            })
    }

    fn parent_by_prompt(&self, search: Option<&impl Search>) -> Option<u64> {
        search?.opening_texts().iter().find_map(|hash| {
            let key = *self.prompts.get(hash)?;
            self.threads.get(&key).map(|_| key)
        })
    }

    /// The thread whose newest message stands in this request, though something before it is
    /// another: an edited history.
    fn by_message(&self, search: &impl Search, fits: impl Fn(&Thread) -> bool) -> Option<u64> {
        search.messages().iter().find_map(|hash| {
            let key = *self.newest.get(hash)?;
            fits(self.threads.get(&key)?).then_some(key)
        })
    }

    /// A thread with the same first message whose history or system this request has rewritten.
    fn rewritten(&self, a: &Arrival<'_>) -> Option<u64> {
        let key = *self.firsts.get(&a.first?)?;
        let thread = self.threads.get(&key)?;
        (a.now_ms - thread.last_ms <= REWRITE_WINDOW_MS).then_some(key)
    }

    /// A run named after the conversation's opening, so that a restarted gateway names it alike;
    /// numbered when the same opening has begun another run before.
    fn content_run(&mut self, a: &Arrival<'_>) -> Arc<str> {
        let Some(first) = a.first else {
            return UNPLACED.into();
        };
        let name = content_name(first);
        // Counted, because thousands may begin alike and a search would take longer for each.
        let begun = self.openings.get(&first).copied().unwrap_or(0);
        let free = (begun.saturating_add(1)..=u32::MAX)
            .map(|n| match n {
                1 => (n, name.clone()),
                _ => (n, format!("{name}-{n}")),
            })
            .find(|(_, name)| self.runs.get(name.as_str()).is_none());
        let (n, name) = free.unwrap_or((u32::MAX, name));
        self.openings.insert(first, n);
        name.into()
    }
}

fn content_name(first: Hash) -> String {
    let hex: String = first.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("c-{hex}")
}
