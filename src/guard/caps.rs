//! Caps: what a run or a key may use, and the books that say what it has used.
//!
//! A request asks before it goes upstream, with the most it can cost; what it then cost takes the
//! place of that. So however many requests run at once, together they stay below the cap.
//!
//! [`books`] decide for all scopes of a request; a book of one scope knows its sums, its agents and
//! the rate of its requests. [`show`](show::show) writes amounts for people.

mod agents;
mod book;
pub mod books;
mod rate;
pub mod show;
#[cfg(test)]
mod tests;

/// What a cap limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cap {
    /// Answered turns.
    Turns,
    /// Input tokens of all kinds.
    InputTokens,
    /// Output tokens.
    OutputTokens,
    /// Input and output tokens together.
    Tokens,
    /// Money.
    Usd,
    /// Time since the first request.
    WallTime,
    /// How deep sub-agents may be nested; the agent that began the run is at 0.
    Depth,
    /// Agents at work at the same time, the first included.
    Agents,
    /// Requests within a minute.
    RequestsPerMinute,
    /// Requests under way at the same time.
    Concurrency,
}

impl Cap {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Turns,
        Self::InputTokens,
        Self::OutputTokens,
        Self::Tokens,
        Self::Usd,
        Self::WallTime,
        Self::Depth,
        Self::Agents,
        Self::RequestsPerMinute,
        Self::Concurrency,
    ];

    /// The stable word: the key of its setting, and for records and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Tokens => "tokens",
            Self::Usd => "usd",
            Self::WallTime => "wall_time",
            Self::Depth => "depth",
            Self::Agents => "agents",
            Self::RequestsPerMinute => "requests_per_minute",
            Self::Concurrency => "concurrency",
        }
    }

    /// Whether the same request can pass later without anybody doing anything.
    #[must_use]
    pub const fn passes_later(self) -> bool {
        matches!(self, Self::RequestsPerMinute | Self::Concurrency)
    }
}

/// Limits of one scope; `None` does not limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Answered turns.
    pub turns: Option<u64>,
    /// Input tokens.
    pub input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Input and output tokens.
    pub tokens: Option<u64>,
    /// Pico-USD.
    pub usd_pico: Option<u64>,
    /// Milliseconds since the first request.
    pub wall_ms: Option<u64>,
    /// Depth of sub-agents.
    pub depth: Option<u32>,
    /// Live agents.
    pub agents: Option<u32>,
    /// Requests a minute.
    pub requests_per_minute: Option<u32>,
    /// Requests at a time.
    pub concurrency: Option<u32>,
}

impl Limits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The lower one of each limit.
    #[must_use]
    pub fn lowered(&self, by: &Self) -> Self {
        fn lower<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        }
        Self {
            turns: lower(self.turns, by.turns),
            input_tokens: lower(self.input_tokens, by.input_tokens),
            output_tokens: lower(self.output_tokens, by.output_tokens),
            tokens: lower(self.tokens, by.tokens),
            usd_pico: lower(self.usd_pico, by.usd_pico),
            wall_ms: lower(self.wall_ms, by.wall_ms),
            depth: lower(self.depth, by.depth),
            agents: lower(self.agents, by.agents),
            requests_per_minute: lower(self.requests_per_minute, by.requests_per_minute),
            concurrency: lower(self.concurrency, by.concurrency),
        }
    }

    /// Takes the limit of a cap away.
    pub fn lift(&mut self, cap: Cap) {
        match cap {
            Cap::Turns => self.turns = None,
            Cap::InputTokens => self.input_tokens = None,
            Cap::OutputTokens => self.output_tokens = None,
            Cap::Tokens => self.tokens = None,
            Cap::Usd => self.usd_pico = None,
            Cap::WallTime => self.wall_ms = None,
            Cap::Depth => self.depth = None,
            Cap::Agents => self.agents = None,
            Cap::RequestsPerMinute => self.requests_per_minute = None,
            Cap::Concurrency => self.concurrency = None,
        }
    }

    /// The limit of a cap, in the cap's own unit (pico-USD, milliseconds, counts).
    #[must_use]
    pub fn of(&self, cap: Cap) -> Option<u64> {
        match cap {
            Cap::Turns => self.turns,
            Cap::InputTokens => self.input_tokens,
            Cap::OutputTokens => self.output_tokens,
            Cap::Tokens => self.tokens,
            Cap::Usd => self.usd_pico,
            Cap::WallTime => self.wall_ms,
            Cap::Depth => self.depth.map(u64::from),
            Cap::Agents => self.agents.map(u64::from),
            Cap::RequestsPerMinute => self.requests_per_minute.map(u64::from),
            Cap::Concurrency => self.concurrency.map(u64::from),
        }
    }
}

/// Whose books.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// A run, by its id.
    Run(String),
    /// What a key sends in a day without naming a run: the credential's hash, and the day
    /// (`YYYY-MM-DD`, in the zone of the settings).
    Unnamed(String, String),
    /// All that a key sends in a day: as [`Scope::Unnamed`].
    Key(String, String),
}

/// What a request may use at most, or has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Answered turns: 1, or 0 for what was not answered.
    pub turns: u64,
    /// Input tokens of all kinds.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Pico-USD.
    pub pico: u64,
}

/// A request that wants to go upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Every scope that it counts in, with the limits that hold for it. All grant it, or none.
    pub scopes: Vec<(Scope, Limits)>,
    /// The most it can use; nothing where only what has been spent decides.
    pub most: Amounts,
    /// Who asks inside the run: its thread.
    pub agent: String,
    /// How deep that agent is nested.
    pub depth: u32,
    /// UTC milliseconds.
    pub now_ms: i64,
}

impl Ask {
    /// The same without the limit that did not let it pass.
    #[must_use]
    pub fn beyond(mut self, denied: &Denied) -> Self {
        for (scope, limits) in &mut self.scopes {
            if *scope == denied.scope {
                limits.lift(denied.cap);
            }
        }
        self
    }
}

/// A cap that does not let a request pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// In which scope.
    pub scope: Scope,
    /// Which cap.
    pub cap: Cap,
    /// What has been used, in the cap's unit.
    pub spent: u64,
    /// What requests under way may still use.
    pub held: u64,
    /// What this request might have used at most.
    pub asked: u64,
    /// The limit.
    pub limit: u64,
    /// Milliseconds after which it can pass, for caps that pass later.
    pub after_ms: Option<u64>,
}

/// What is left in a scope: the limit less what is spent and held; `None` where nothing limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    /// Turns.
    pub turns: Option<u64>,
    /// Tokens: the least of what the limits on tokens leave.
    pub tokens: Option<u64>,
    /// Pico-USD.
    pub usd_pico: Option<u64>,
    /// Milliseconds.
    pub wall_ms: Option<u64>,
}

/// A scope has used a share of a limit for the first time. Several levels at once are several of
/// these, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// In which scope.
    pub scope: Scope,
    /// Which cap.
    pub cap: Cap,
    /// The level reached, in percent.
    pub level: u32,
    /// What has been used, in the cap's unit.
    pub value: u64,
    /// The limit.
    pub limit: u64,
}
