//! The books of many scopes: all scopes of a request let it pass, or nothing is held.
//!
//! Pure and bounded. A book with nothing under way that was not used for a while may be forgotten
//! when room is needed, since what its scope has spent can be looked up again; one that holds
//! something is never forgotten.

use std::collections::HashMap;

use super::book::{AMOUNTS, Book};
use super::{Amounts, Ask, Cap, Crossing, Denied, Left, Limits, Scope};

/// How long a book must have been idle before it may be forgotten, in milliseconds. Its last
/// minutes do not count for its rate any more by then, and its turns have been recorded.
const IDLE_MS: u64 = 120_000;
/// One in so many books is forgotten at a time, so that looking for them is seldom.
const FORGET_SHARE: usize = 16;
/// After a search for idle books that found none, the next one waits so many milliseconds.
const SEARCH_MS: u64 = 1_000;

/// See the module.
#[derive(Debug)]
pub struct Books {
    most: usize,
    books: HashMap<Scope, Book>,
    /// When no idle book was found, UTC milliseconds.
    searched_ms: Option<i64>,
}

/// The answer to a request that asks.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It may go upstream, and holds what it asked for in each scope.
    Granted {
        /// What is left with it under way, in each scope that has limits.
        left: Vec<(Scope, Left)>,
        /// Levels that were reached by the passing of time.
        crossings: Vec<Crossing>,
    },
    /// A cap does not let it.
    Denied {
        /// Which one.
        denied: Box<Denied>,
        /// As above. A denial is no level: what was asked has not been used.
        crossings: Vec<Crossing>,
    },
    /// These scopes have limits and no book yet: [`Books::open`] them, and ask again.
    Unknown(Vec<Scope>),
}

/// There are as many books as may be, and all are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Books {
    /// At most `most` books, 1 at least.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            books: HashMap::new(),
            searched_ms: None,
        }
    }

    /// Whether a scope has a book.
    #[must_use]
    pub fn has(&self, scope: &Scope) -> bool {
        self.books.contains_key(scope)
    }

    /// How many scopes have one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.books.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.books.is_empty()
    }

    /// What a scope has spent and holds as far as a cap on amounts counts it, in the cap's unit.
    #[must_use]
    pub fn figures(&self, scope: &Scope, cap: Cap) -> Option<(u64, u64)> {
        self.books.get(scope).map(|book| book.figures(cap))
    }

    /// Opens the book of a scope with what it has spent so far, unless it has one.
    ///
    /// # Errors
    /// There is no room.
    pub fn open(
        &mut self,
        scope: Scope,
        spent: &Amounts,
        first_ms: Option<i64>,
        now_ms: i64,
    ) -> Result<(), Full> {
        if self.has(&scope) {
            return Ok(());
        }
        if self.books.len() >= self.most {
            self.forget(now_ms)?;
        }
        self.books.insert(scope, Book::new(spent, first_ms, now_ms));
        Ok(())
    }

    /// Asks for a request, which holds under `id` what it asks for if it is granted. `levels` are
    /// shares in percent, ascending.
    ///
    /// Caps that will not let it pass however often it is tried come before those that let it pass
    /// later, whatever the scope. A scope without limits has no say; what it spends is booked if it
    /// has a book.
    pub fn ask(&mut self, ask: &Ask, id: u128, levels: &[u32]) -> Answer {
        let limited = || ask.scopes.iter().filter(|(_, limits)| !limits.is_empty());
        let unknown: Vec<Scope> = limited()
            .filter(|(scope, _)| !self.has(scope))
            .map(|(scope, _)| scope.clone())
            .collect();
        if !unknown.is_empty() {
            return Answer::Unknown(unknown);
        }
        let mut crossings = Vec::new();
        for (scope, limits) in limited() {
            if let Some(book) = self.books.get_mut(scope) {
                book.open(limits, levels, ask.now_ms);
                let of = (scope, limits);
                book.cross(of, Cap::WallTime, ask.now_ms, levels, &mut crossings);
            }
        }
        let hard = self.first(ask, |book, scope, limits| book.hard(scope, limits, ask));
        if let Some(denied) = hard {
            let denied = Box::new(denied);
            return Answer::Denied { denied, crossings };
        }
        let soft = self.first(ask, |book, scope, limits| {
            book.soft(scope, limits, ask.now_ms)
        });
        if let Some(denied) = soft {
            let denied = Box::new(denied);
            return Answer::Denied { denied, crossings };
        }
        for (scope, _) in &ask.scopes {
            if let Some(book) = self.books.get_mut(scope) {
                book.hold(ask, id);
            }
        }
        let left = limited()
            .filter_map(|(scope, limits)| {
                let book = self.books.get(scope)?;
                Some((scope.clone(), book.left(limits, ask.now_ms)))
            })
            .collect();
        Answer::Granted { left, crossings }
    }

    /// Puts what a granted request has used in the place of what it held, and returns the levels
    /// that were reached by that. To be called once for each `id`.
    pub fn settle(
        &mut self,
        ask: &Ask,
        id: u128,
        used: &Amounts,
        agent_ended: bool,
        now_ms: i64,
        levels: &[u32],
    ) -> Vec<Crossing> {
        let mut crossings = Vec::new();
        for (n, (scope, limits)) in ask.scopes.iter().enumerate() {
            let again = ask
                .scopes
                .iter()
                .take(n)
                .any(|(earlier, _)| earlier == scope);
            if let Some(book) = self.books.get_mut(scope) {
                if !again {
                    book.settle(ask, id, used, agent_ended, now_ms);
                }
                for cap in AMOUNTS {
                    book.cross((scope, limits), cap, now_ms, levels, &mut crossings);
                }
            }
        }
        crossings
    }

    fn first(
        &self,
        ask: &Ask,
        denied: impl Fn(&Book, &Scope, &Limits) -> Option<Denied>,
    ) -> Option<Denied> {
        ask.scopes.iter().find_map(|(scope, limits)| {
            let book = self.books.get(scope)?;
            denied(book, scope, limits)
        })
    }

    /// Forgets the books that have been idle longest; those of runs first, since most of them will
    /// never be used again.
    fn forget(&mut self, now_ms: i64) -> Result<(), Full> {
        if self
            .searched_ms
            .is_some_and(|at| at.abs_diff(now_ms) < SEARCH_MS)
        {
            return Err(Full);
        }
        let idle = |book: &Book| {
            let since = now_ms.saturating_sub(book.touched_ms());
            !book.is_held() && u64::try_from(since).is_ok_and(|since| since > IDLE_MS)
        };
        let mut oldest: Vec<_> = self
            .books
            .iter()
            .filter(|(_, book)| idle(book))
            .map(|(scope, book)| {
                let of_key = !matches!(scope, Scope::Run(_));
                (of_key, book.touched_ms(), scope)
            })
            .collect();
        oldest.sort_unstable();
        let go: Vec<Scope> = oldest
            .into_iter()
            .take((self.most / FORGET_SHARE).max(1))
            .map(|(_, _, scope)| scope.clone())
            .collect();
        if go.is_empty() {
            self.searched_ms = Some(now_ms);
            return Err(Full);
        }
        for scope in go {
            self.books.remove(&scope);
        }
        Ok(())
    }
}
