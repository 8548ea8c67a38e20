//! The last 75 minutes, and thresholds that do not chatter.

/// Milliseconds of a minute.
pub(super) const MINUTE_MS: i64 = 60_000;
/// Minutes of a cost rate.
const HOUR: i64 = 60;
/// Minutes of the hit ratio that is compared with that of the hour before them.
const RECENT: i64 = 15;
/// Minutes that are kept.
pub(super) const KEPT: i64 = HOUR + RECENT;
/// Minutes for which a value must have been low before it is told again.
pub(super) const CALM_MINUTES: i64 = 10;

/// What happened in one minute.
#[derive(Debug, Clone, Copy, Default)]
struct Minute {
    number: i64,
    pico: u64,
    prompts: Prompts,
}

/// Input tokens of requests whose usage is wholly known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Prompts {
    /// Read from the cache.
    pub read: u64,
    /// All of them.
    pub all: u64,
}

impl Prompts {
    fn add(&mut self, other: Self) {
        self.read = self.read.saturating_add(other.read);
        self.all = self.all.saturating_add(other.all);
    }

    /// The hit ratio in hundredths of a percent; 0 for no tokens at all.
    pub(super) fn read_of_ten_thousand(self) -> u64 {
        let ratio = (u128::from(self.read) * 10_000).checked_div(u128::from(self.all));
        ratio
            .and_then(|ratio| u64::try_from(ratio).ok())
            .unwrap_or(0)
    }
}

/// A ring of the last minutes, by the number of the minute since 1970.
#[derive(Debug, Default)]
pub(super) struct Minutes {
    ring: Vec<Minute>,
}

impl Minutes {
    /// Adds a request that ended in this minute; `prompt` is all of its input tokens and those of
    /// them that were read.
    pub(super) fn add(&mut self, number: i64, pico: u64, prompt: Option<(u64, u64)>) {
        let size = usize::try_from(KEPT).unwrap_or(0);
        self.ring.resize(size, Minute::default());
        let place = usize::try_from(number.rem_euclid(KEPT)).unwrap_or(0);
        let Some(minute) = self.ring.get_mut(place) else {
            return;
        };
        if minute.number != number {
            *minute = Minute {
                number,
                ..Minute::default()
            };
        }
        minute.pico = minute.pico.saturating_add(pico);
        if let Some((all, read)) = prompt {
            minute.prompts.add(Prompts { read, all });
        }
    }

    /// Pico-USD of the 60 minutes that end with this one.
    pub(super) fn cost_of_hour(&self, now: i64) -> u64 {
        self.within(now - HOUR, now)
            .fold(0, |sum, minute| sum.saturating_add(minute.pico))
    }

    /// The prompts of the 15 minutes that end with this one, and those of the hour before them.
    pub(super) fn recent_and_before(&self, now: i64) -> (Prompts, Prompts) {
        let sum = |after, until| {
            let mut sum = Prompts::default();
            self.within(after, until)
                .for_each(|minute| sum.add(minute.prompts));
            sum
        };
        (sum(now - RECENT, now), sum(now - KEPT, now - RECENT))
    }

    /// The minutes behind `after`, up to and with `until`.
    fn within(&self, after: i64, until: i64) -> impl Iterator<Item = &Minute> {
        self.ring
            .iter()
            .filter(move |minute| minute.number > after && minute.number <= until)
    }
}

/// How a value stands to its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// At or above it.
    Reached,
    /// Not far below.
    Between,
    /// Well below.
    Calm,
}

/// Tells when a threshold is reached, and again only after the value was calm for a while.
#[derive(Debug, Default)]
pub(super) struct Latch {
    told: bool,
    calm_since: Option<i64>,
}

impl Latch {
    /// Whether it has told and is not armed again.
    pub(super) fn is_told(&self) -> bool {
        self.told
    }

    /// Takes the reading of a minute; whether it is to be told.
    pub(super) fn step(&mut self, reading: Reading, minute: i64) -> bool {
        if !self.told {
            self.told = reading == Reading::Reached;
            self.calm_since = None;
            return self.told;
        }
        if reading != Reading::Calm {
            self.calm_since = None;
            return false;
        }
        let since = *self.calm_since.get_or_insert(minute);
        self.told = minute - since < CALM_MINUTES;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_forgets_what_is_older_than_its_windows() {
        let mut minutes = Minutes::default();
        let start = 30_000_000;
        for number in start..start + 200 {
            minutes.add(number, 1, Some((10, 4)));
        }
        let now = start + 199;
        assert_eq!(minutes.cost_of_hour(now), 60);
        let (recent, before) = minutes.recent_and_before(now);
        assert_eq!((recent.all, recent.read), (150, 60));
        assert_eq!((before.all, before.read), (600, 240));
        assert_eq!(minutes.cost_of_hour(now + 59), 1);
        assert_eq!(minutes.cost_of_hour(now + 60), 0);
        assert_eq!(minutes.ring.len(), 75);
    }

    #[test]
    fn a_latch_wants_ten_calm_minutes_in_a_row() {
        let mut latch = Latch::default();
        assert!(!latch.step(Reading::Between, 0));
        assert!(latch.step(Reading::Reached, 1));
        assert!(!latch.step(Reading::Reached, 2));
        assert!(!latch.step(Reading::Calm, 3));
        assert!(
            !latch.step(Reading::Between, 12),
            "not calm for long enough"
        );
        assert!(!latch.step(Reading::Calm, 13));
        assert!(!latch.step(Reading::Reached, 22));
        assert!(!latch.step(Reading::Calm, 23));
        assert!(!latch.step(Reading::Calm, 33));
        assert!(!latch.is_told());
        assert!(latch.step(Reading::Reached, 34));
    }
}
