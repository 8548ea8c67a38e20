//! Records of every shape, by chance from a seed, with times of the last days.

use prefixgate::guard::loops::Finding;
use prefixgate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict, What, Whose};
use prefixgate::provider::view::Ttl;
use prefixgate::trace::{
    CacheRecord, CallStatus, Entry, EventKind, EventRecord, GuardRecord, Inspection, Outcome,
    Placed, RequestKind, ToolCallRecord, TurnRecord, intern,
};
use prefixgate::usage::Usage;
use uuid::Uuid;

/// Texts that quoting, escaping, trimming or cutting would change.
const TEXTS: &[&str] = &[
    "",
    "plain",
    "it's `quoted` \"twice\"",
    "back\\slash\\n",
    "tab\tline\nfeed\r\n\n\nend ",
    "nul\0inside",
    "\\N",
    "NULL",
    "é → \u{1F642} e\u{301}",
    "{\"json\": [1, null]}",
    "'; DROP TABLE turns; --",
];
/// Numbers at the borders, up to SQLite's largest.
const NUMBERS: &[u64] = &[
    0,
    1,
    255,
    65_536,
    u32::MAX as u64 + 1,
    9_007_199_254_740_993,
    i64::MAX as u64 - 1,
    i64::MAX as u64,
];

/// Now, UTC milliseconds.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A source of chance.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    fn yes(&mut self) -> bool {
        self.below(2) == 1
    }

    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.yes().then(|| make(self))
    }

    fn text(&mut self) -> String {
        self.one(TEXTS).to_owned()
    }

    fn told(&mut self) -> Option<String> {
        self.maybe(Self::text)
    }

    fn number(&mut self) -> u64 {
        self.one(NUMBERS)
    }

    fn known(&mut self) -> Option<u64> {
        self.maybe(Self::number)
    }

    fn small(&mut self) -> u32 {
        self.one(&[0, 1, 77, u32::MAX])
    }

    fn id(&mut self) -> Uuid {
        let half = |dice: &mut Self| u64::try_from(dice.below(usize::MAX >> 31)).unwrap();
        Uuid::from_u64_pair(half(self), half(self))
    }

    fn several<T>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| make(self)).collect()
    }

    fn moment(&mut self) -> i64 {
        // Three days back, by the millisecond.
        now_ms() - i64::try_from(self.below(3 * 86_400_000)).unwrap()
    }

    fn word(&mut self, words: &[&'static str]) -> Option<&'static str> {
        self.maybe(|dice| intern(dice.one(words)))
    }

    fn verdict(&mut self) -> Verdict {
        Verdict {
            status: self.one(Status::ALL),
            reason: self.maybe(|d| d.one(Reason::ALL)),
            first_changed: self.told(),
            offset: self.maybe(Self::small),
            what: self.maybe(|d| d.one(What::ALL)),
            detail: self.text(),
            whose: self.maybe(|d| d.one(Whose::ALL)),
            lost_tokens: self.known(),
            lost_pico: self.known(),
            excerpt: self.maybe(|d| Excerpt {
                before: d.text(),
                after: d.text(),
            }),
        }
    }

    fn guard(&mut self) -> GuardRecord {
        GuardRecord {
            findings: self.several(|d| Finding {
                detector: d.text(),
                tools: d.several(Self::text),
                count: d.small(),
                period: d.small(),
                turns: d.small(),
                action: d.text(),
                fresh: d.yes(),
            }),
            action: self.told(),
            loop_pico: self.known(),
            cap: self.told(),
            cap_scope: self.told(),
            booked_pico: self.known(),
            policy: self.told(),
            hints: self.small(),
        }
    }

    fn cache(&mut self) -> CacheRecord {
        CacheRecord {
            verdict: self.maybe(Self::verdict),
            unjudged: self.word(&["not_json", "no_history"]),
            policy: self.word(&["off", "dry-run", "fill", "holdout"]),
            expected_read: self.known(),
            read_of: self.maybe(Self::id),
            premium_pico: self.known(),
            duplicate_of: self.maybe(Self::id),
            duplicate_tokens: self.known(),
            duplicate_pico: self.known(),
            native_agrees: self.maybe(Self::yes),
            helper: self.word(&["tool_order", "keep_warm"]),
            helper_tokens: self.known(),
            helper_pico: self.maybe(|d| d.one(&[i64::MIN, -1, 0, i64::MAX])),
            trail: (0..self.below(300)).map(|n| (n % 256) as u8).collect(),
        }
    }

    /// A turn of `run`.
    pub fn turn(&mut self, run: &str) -> TurnRecord {
        let mut turn = TurnRecord::begin(
            Uuid::now_v7(),
            self.one(RequestKind::ALL),
            self.one(&["anthropic", "openai"]),
            self.moment(),
        );
        run.clone_into(&mut turn.run_id);
        turn.run_source = intern(self.one(&["header", "chain", "none"]));
        turn.thread_id = self.text();
        turn.parent_thread = self.told();
        turn.agent = self.told();
        turn.parent_agent = self.told();
        turn.turn = self.small();
        turn.attempt = self.one(&[1, 1, 2, u32::MAX]);
        turn.app = self.told();
        turn.client = self.told();
        turn.credential = self.told();
        turn.method = self.text();
        turn.path = self.text();
        turn.model_requested = self.told();
        turn.model_served = self.told();
        turn.overhead_us = self.known();
        turn.head_us = self.known();
        turn.first_token_us = self.known();
        turn.duration_us = self.number();
        turn.status = self.maybe(|d| d.one(&[0, 200, 404, u16::MAX]));
        turn.outcome = self.one(Outcome::ALL);
        turn.stop_reason = self.told();
        turn.error_type = self.told();
        turn.error_message = self.told();
        turn.streamed = self.yes();
        turn.usage = Usage {
            uncached: self.known(),
            read: self.known(),
            write_5m: self.known(),
            write_1h: self.known(),
            write_30m: self.known(),
            write_12h: self.known(),
            output: self.known(),
            reasoning: self.known(),
            web_searches: self.known(),
            split_inferred: self.yes(),
        };
        turn.usage_complete = self.yes();
        turn.usage_estimated = self.yes();
        turn.cost_pico = self.known();
        turn.cost_no_cache_pico = self.known();
        turn.price_version = self.told();
        turn.inspection = self.one(&[
            Inspection::Inspected,
            Inspection::NotWanted,
            Inspection::NotInspected(intern("not_json")),
        ]);
        turn.request_bytes = self.number();
        turn.sent_bytes = self.number();
        turn.response_bytes = self.number();
        turn.blocks = self.small();
        turn.messages = self.small();
        turn.tools = self.small();
        turn.markers_client = self.small();
        turn.markers_added = self.several(|d| Placed {
            path: d.text(),
            ttl: d.one(&[Ttl::M5, Ttl::H1]),
            offset: d.small(),
        });
        turn.dry_run = self.yes();
        turn.root = self.told();
        turn.chain = self.told();
        turn.response_id = self.told();
        turn.request_id = self.told();
        turn.traceparent = self.told();
        turn.native_diagnosis = self.told();
        turn.cache = self.cache();
        turn.guard = if self.yes() {
            self.guard()
        } else {
            GuardRecord::default()
        };
        turn.warnings = self.several(Self::text);
        turn
    }

    /// A call of an answer.
    pub fn call(&mut self, turn: &TurnRecord) -> ToolCallRecord {
        ToolCallRecord {
            turn_id: turn.id,
            run_id: turn.run_id.clone(),
            thread_id: turn.thread_id.clone(),
            call_id: format!("{}{}", self.text(), Uuid::now_v7()),
            name: self.text(),
            input_hash: self.text(),
            input_bytes: self.number(),
            asked_ms: turn.started_ms + 5,
            status: self.one(CallStatus::ALL),
            latency_ms: self.known(),
            result_bytes: self.known(),
            wrong: self.word(&["undeclared", "invalid_input"]),
            retries: self.small(),
        }
    }

    /// An event of `run`.
    pub fn event(&mut self, run: &str) -> EventRecord {
        EventRecord {
            id: Uuid::now_v7(),
            at_ms: self.moment(),
            kind: self.one(EventKind::ALL),
            name: self.text(),
            run_id: run.to_owned(),
            thread_id: self.text(),
            turn_id: self.maybe(Self::id),
            app: self.told(),
            scope: self.text(),
            action: self.text(),
            value: self.known(),
            limit: self.known(),
            level: self.maybe(Self::small),
            pico: self.known(),
            tools: self.several(Self::text),
        }
    }

    /// `n` turns of `run`, most with a call, some with an event.
    pub fn entries(&mut self, run: &str, n: usize) -> Vec<Entry> {
        let mut entries = Vec::new();
        for n in 0..n {
            let turn = self.turn(run);
            if n % 3 != 0 {
                entries.push(Entry::Call(Box::new(self.call(&turn))));
            }
            if n % 5 == 0 {
                entries.push(Entry::Event(Box::new(self.event(run))));
            }
            entries.push(Entry::Turn(Box::new(turn)));
        }
        entries
    }
}
