//! Reading a history message by message.

use xxhash_rust::xxh3::xxh3_64;

use super::carried::{History, Talk};
use super::stretch::{Fact, Found};
use super::user::speaks;
use super::{Action, Finding, Hint, Policy, Seen, hint};
use crate::guard::calls::{Call, content, id, said};
use crate::guard::failure::{Memory, Outcome};
use crate::provider::view::{self, Block, BlockKind, Message, RequestView, Role};

/// Findings that are told.
const TOLD: usize = 4;

struct Fold<'a> {
    body: &'a [u8],
    view: &'a RequestView,
    policy: &'a Policy,
    memory: &'a Memory,
    talk: Talk,
    /// Calls of one message, kept for its memory.
    facts: Vec<Fact>,
    /// Loops that one message brings, in order.
    found: Vec<Found>,
    /// Loops of the newest turn, as they will be told.
    newest: Vec<(Found, u32)>,
    hints: Vec<Hint>,
}

/// See [`super::look`].
pub(super) fn fold(
    body: &[u8],
    view: &RequestView,
    policy: &Policy,
    memory: &Memory,
    from: Option<&History>,
) -> Seen {
    let mut fold = Fold {
        body,
        view,
        policy,
        memory,
        talk: from.and_then(History::talk).cloned().unwrap_or_default(),
        facts: Vec::new(),
        found: Vec::new(),
        newest: Vec::new(),
        hints: Vec::new(),
    };
    let whole = from.is_none();
    // Without hints, what was before the user last spoke matters to nobody.
    if whole && !policy.hints() {
        let begin = fold.last_word();
        fold.messages(begin, false);
    } else {
        fold.messages(0, true);
    }
    fold.seen()
}

impl Fold<'_> {
    fn blocks(&self, message: &Message) -> &[Block] {
        let range = message.blocks.start as usize..message.blocks.end as usize;
        self.view.blocks.get(range).unwrap_or_default()
    }

    /// Index behind the message in which the user last spoke.
    fn last_word(&mut self) -> usize {
        let mut behind = 0;
        for (at, message) in self.view.messages.iter().enumerate() {
            let user = message.role == Role::User;
            if user && speaks(self.body, self.view, message, &mut self.talk.beside) {
                behind = at + 1;
            }
        }
        behind
    }

    fn messages(&mut self, begin: usize, listen: bool) {
        let view = self.view;
        let last = view.messages.len().saturating_sub(1);
        for (at, message) in view.messages.iter().enumerate().skip(begin) {
            match message.role {
                // An answer at the very end only begins the next one.
                Role::Assistant if at != last => self.answer(message),
                Role::User => self.user(at, message, listen),
                _ => {}
            }
        }
    }

    fn answer(&mut self, message: &Message) {
        self.newest.clear();
        self.talk.answer();
        let range = message.blocks.start as usize..message.blocks.end as usize;
        let view = self.view;
        for block in view.blocks.get(range).unwrap_or_default() {
            if block.kind != BlockKind::ToolUse {
                continue;
            }
            let (Some(id), Some(call)) = (id(self.body, block), Call::of(self.body, block)) else {
                continue;
            };
            let raw = block
                .name
                .map(|name| name.of(self.body))
                .unwrap_or_default();
            let name = self.talk.name(call.tool, || {
                String::from_utf8_lossy(&said(&raw[..raw.len().min(8 * hint::MAX_NAME)]))
                    .into_owned()
                    .into()
            });
            self.talk.asks(id, None, call, name);
        }
    }

    fn user(&mut self, at: usize, message: &Message, listen: bool) {
        self.gather(message);
        if listen && speaks(self.body, self.view, message, &mut self.talk.beside) {
            self.talk.stretch = Default::default();
            self.talk.pending.clear();
            self.newest.clear();
            return;
        }
        if self.facts.is_empty() {
            return;
        }
        self.found.clear();
        let (facts, found) = (&self.facts, &mut self.found);
        self.talk.stretch.step(facts, self.body, self.policy, found);
        if self.found.is_empty() {
            return;
        }
        let policy = self.policy;
        let action = |found: &Found| policy.rule(found.detector).at(found.count);
        self.found.sort_by_key(|found| {
            let order = super::Detector::ALL
                .iter()
                .position(|one| *one == found.detector);
            (std::cmp::Reverse((action(found), found.count)), order)
        });
        if let Some(found) = self
            .found
            .iter()
            .find(|found| action(found) == Some(Action::Hint))
        {
            self.hints.push(Hint {
                message: at as u32,
                text: hint::text(found.detector, &self.tools(found), found.count),
            });
        }
        for found in &self.found {
            self.newest
                .retain(|(old, _)| old.detector != found.detector || old.id != found.id);
            self.newest.push((*found, self.talk.turn));
        }
    }

    /// The calls whose results a message brings, in the order of the calls.
    fn gather(&mut self, message: &Message) {
        self.facts.clear();
        let range = message.blocks.start as usize..message.blocks.end as usize;
        let view = self.view;
        for block in view.blocks.get(range).unwrap_or_default() {
            if block.kind != BlockKind::ToolResult {
                continue;
            }
            let Some(pending) = id(self.body, block).and_then(|id| self.talk.take(id)) else {
                continue;
            };
            self.facts.push(Fact {
                call: pending.call,
                outcome: content(self.body, block).outcome(self.memory),
                name: pending.name,
                turn: pending.turn,
                order: pending.order,
            });
        }
        if self.facts.len() > 1 {
            self.facts.sort_unstable_by_key(|fact| fact.order);
        }
        let talk = &mut self.talk;
        self.facts.retain(|fact| {
            let key = fact.call.key;
            talk.row(key, matches!(fact.outcome, Outcome::Failed(_)));
            if fact.turn != talk.turn {
                return true;
            }
            let again = talk.counted.contains(&key);
            if !again {
                talk.counted.push(key);
            }
            !again
        });
    }

    fn tools(&self, found: &Found) -> Vec<String> {
        let names = &found.names[..usize::from(found.period).min(4)];
        names.iter().map(|name| self.talk.name_of(*name)).collect()
    }

    fn seen(mut self) -> Seen {
        let policy = self.policy;
        let mut findings: Vec<(Action, Finding)> = Vec::new();
        for (found, turn) in &self.newest {
            let rule = policy.rule(found.detector);
            let Some(action) = rule.at(found.count) else {
                continue;
            };
            let finding = Finding {
                detector: found.detector.as_str().into(),
                tools: self.tools(found),
                count: found.count,
                period: u32::from(found.period),
                turns: turn.saturating_sub(found.since).saturating_add(1),
                action: action.as_str().into(),
                fresh: rule.at(found.before) != Some(action),
            };
            findings.push((action, finding));
        }
        // Stable: what several messages of one turn bring keeps the order of its detectors.
        findings.sort_by_key(|(action, finding)| std::cmp::Reverse((*action, finding.count)));
        findings.truncate(TOLD);
        let held = self.view.history != view::History::Whole;
        let history = if held {
            let talk = std::mem::take(&mut self.talk);
            talk.carried(self.body, |hash| self.id_of(hash))
        } else {
            History::default()
        };
        Seen {
            findings: findings.into_iter().map(|(_, finding)| finding).collect(),
            hints: self.hints,
            history,
        }
    }

    /// The id of a call in the newest answer of the body, by its hash.
    fn id_of(&self, hash: u64) -> Option<String> {
        let answers = self.view.messages.iter().rev();
        let answer = answers
            .into_iter()
            .find(|message| message.role == Role::Assistant)?;
        let ids = self.blocks(answer).iter().filter_map(|block| block.call_id);
        let mut ids = ids.map(|span| said(span.of(self.body)));
        let id = ids.find(|id| xxh3_64(id) == hash)?;
        Some(String::from_utf8_lossy(&id).into_owned())
    }
}
