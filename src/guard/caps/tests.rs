//! Caps as a whole: books of several scopes, over many requests.

use super::books::{Answer, Books};
use super::*;

mod cases;
mod random;
mod rules;

const LEVELS: [u32; 3] = [50, 80, 100];
/// One US dollar.
const USD: u64 = 1_000_000_000_000;
/// One minute.
const MINUTE: i64 = 60_000;

fn run(id: &str) -> Scope {
    Scope::Run(id.into())
}

fn usd(pico: u64) -> Amounts {
    Amounts {
        turns: 1,
        pico,
        ..Amounts::default()
    }
}

/// Books, and ids that count up.
struct Gate {
    books: Books,
    id: u128,
}

impl Gate {
    fn new() -> Self {
        Self {
            books: Books::new(100),
            id: 0,
        }
    }

    /// Asks, after opening the books that are missing.
    fn ask(&mut self, ask: &Ask) -> (u128, Answer) {
        self.id += 1;
        let scopes = match self.books.ask(ask, self.id, &LEVELS) {
            Answer::Unknown(scopes) => scopes,
            answer => return (self.id, answer),
        };
        for scope in scopes {
            self.books
                .open(scope, &Amounts::default(), None, ask.now_ms)
                .unwrap();
        }
        (self.id, self.books.ask(ask, self.id, &LEVELS))
    }

    fn grant(&mut self, ask: &Ask) -> u128 {
        match self.ask(ask) {
            (id, Answer::Granted { .. }) => id,
            (_, other) => panic!("{other:?}"),
        }
    }

    fn deny(&mut self, ask: &Ask) -> Denied {
        match self.ask(ask) {
            (_, Answer::Denied { denied, .. }) => *denied,
            (_, other) => panic!("{other:?}"),
        }
    }

    fn settle(&mut self, ask: &Ask, id: u128, used: &Amounts) -> Vec<Crossing> {
        self.books.settle(ask, id, used, false, ask.now_ms, &LEVELS)
    }

    /// A request from beginning to end.
    fn turn(&mut self, ask: &Ask, used: &Amounts) {
        let id = self.grant(ask);
        self.settle(ask, id, used);
    }

    fn figures(&self, ask: &Ask, cap: Cap) -> (u64, u64) {
        self.books.figures(&ask.scopes[0].0, cap).unwrap()
    }
}

/// An ask of the run `r`, in the middle of a day.
fn ask(limits: Limits, most: Amounts) -> Ask {
    Ask {
        scopes: vec![(run("r"), limits)],
        most,
        agent: "main".into(),
        depth: 0,
        now_ms: 1_796_083_200_000,
    }
}

/// Cap and level of each crossing.
fn told(crossings: &[Crossing]) -> Vec<(Cap, u32)> {
    crossings.iter().map(|c| (c.cap, c.level)).collect()
}
