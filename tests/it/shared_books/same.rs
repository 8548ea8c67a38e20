//! The books in Redis decide as those of one process do, whatever comes.

use prefixgate::guard::caps::books::{Answer, Books};

use super::*;

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn maybe(&mut self, of: u64, below: u64) -> Option<u64> {
        (self.below(of) == 0).then(|| self.below(below))
    }

    fn small(&mut self, of: u64, below: u64) -> Option<u32> {
        self.maybe(of, below).map(|n| n as u32)
    }

    fn limits(&mut self) -> Limits {
        let limits = Limits {
            turns: self.maybe(3, 8),
            input_tokens: self.maybe(3, 4_000),
            output_tokens: self.maybe(3, 4_000),
            tokens: self.maybe(3, 6_000),
            usd_pico: self.maybe(3, 60).map(|n| n * 1_000_000_007_000_003),
            wall_ms: self.maybe(3, 400_000),
            depth: self.small(3, 4),
            agents: self.small(3, 5),
            requests_per_minute: self.small(3, 40),
            concurrency: self.small(3, 6),
        };
        if limits.is_empty() {
            usd(u64::MAX)
        } else {
            limits
        }
    }

    fn amounts(&mut self) -> Amounts {
        Amounts {
            turns: self.below(2),
            input: self.below(150),
            output: self.below(150),
            pico: self.below(3_000_000) * 1_000_000_009,
        }
    }
}

#[tokio::test]
async fn both_kinds_of_books_decide_the_same() {
    let redis = Redis::start();
    let gateways = [books(&redis).await, books(&redis).await];
    let (mut grants, mut denials, mut levels) = (0, Vec::new(), 0);
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let mut one = Books::new(16);
        let scopes = [
            (run(&format!("run {seed}")), dice.limits()),
            (
                Scope::Key(format!("key {seed}"), "day".into()),
                dice.limits(),
            ),
            (
                Scope::Unnamed(format!("key {seed}"), "day".into()),
                dice.limits(),
            ),
        ];
        let mut now_ms = 1_000_000_000;
        for (scope, _) in &scopes {
            one.open(scope.clone(), &Amounts::default(), None, now_ms)
                .unwrap();
        }
        let mut under_way = Vec::new();
        for step in 0..150 {
            now_ms += match dice.below(40) {
                0 => dice.below(700_000) as i64,
                1 => -(dice.below(2_000) as i64),
                _ => dice.below(3_000) as i64,
            };
            let books = &gateways[dice.below(2) as usize];
            if dice.below(3) == 0 && !under_way.is_empty() {
                let n = dice.below(under_way.len() as u64) as usize;
                let (hold, id): (Hold, u128) = under_way.swap_remove(n);
                let (used, ended) = (dice.amounts(), dice.below(2) == 0);
                let asked = Arc::clone(&hold.ask);
                let expected = one.settle(&asked, id, &used, ended, now_ms, &LEVELS);
                let told = settle_at(books, hold, used, ended, now_ms).await;
                assert_eq!(told, expected, "seed {seed} step {step}");
                levels += told.len();
                continue;
            }
            let mut of = scopes.to_vec();
            if dice.below(2) == 0 {
                of.truncate(1 + dice.below(2) as usize);
            }
            let asking = Ask {
                scopes: of,
                most: dice.amounts(),
                agent: format!("agent {}", dice.below(6)),
                depth: dice.below(4) as u32,
                now_ms,
            };
            let id = (u128::from(seed) << 64) + step;
            let expected = one.ask(&asking, id, &LEVELS);
            match books.reserve(asking).await {
                Reserved::Granted {
                    hold,
                    left,
                    crossings,
                } => {
                    levels += crossings.len();
                    let same = Answer::Granted { left, crossings };
                    assert_eq!(same, expected, "seed {seed} step {step}");
                    under_way.push((hold, id));
                    grants += 1;
                }
                Reserved::Denied { denied, crossings } => {
                    levels += crossings.len();
                    if !denials.contains(&denied.cap) {
                        denials.push(denied.cap);
                    }
                    let same = Answer::Denied { denied, crossings };
                    assert_eq!(same, expected, "seed {seed} step {step}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    // All of it was seen.
    assert_eq!(denials.len(), Cap::ALL.len(), "{denials:?}");
    assert!(grants > 500 && levels > 100, "{grants} {levels}");
}
