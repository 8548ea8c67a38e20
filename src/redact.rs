//! What must not be kept of a text: keys, tokens, private keys, addresses, card numbers.
//!
//! Pure and in linear time, whatever the text: one quick look says which rules have anything to
//! find, and only those search. All rules search the text as it came, so that no replacement tears
//! apart what another rule would have found; places that overlap become one. What is found becomes
//! `[redacted:NAME]`, which nothing replaces again.
//!
//! A text is read as people read it: with its escapes undone. Where characters are hidden in
//! further escapes (`\u0073k-...` in JSON that lies in a string), the rules see them undone as well.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use self::rules::Search;

mod cards;
mod rules;
#[cfg(test)]
mod tests;

/// The name under which values are replaced because of the name they are given to.
pub const ASSIGNMENT: &str = "assignment";
/// Largest program that a rule may become, in bytes.
const RULE_BYTES: usize = 1 << 20;
/// What was replaced may bring a rule to find what it had not found before; so often it may.
const MAX_PASSES: usize = 4;
/// An escape may hide another one, so many deep.
const MAX_ESCAPES: usize = 8;
/// How a replacement begins.
const OPENING: &str = "[redacted:";

static BUILT_IN: LazyLock<Redactor> = LazyLock::new(|| {
    // That the rules compile is tested. If they did not, nothing of any text would be kept.
    Redactor::new(&[]).unwrap_or_else(|_| Redactor::blind())
});

/// The built-in rules alone.
#[must_use]
pub fn built_in() -> &'static Redactor {
    &BUILT_IN
}

/// How often something was replaced, by the name of the rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<String, u64>);

impl Counts {
    /// One more.
    pub fn add(&mut self, name: &str) {
        match self.0.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.0.insert(name.to_owned(), 1);
            }
        }
    }
}

/// A part of a text that is to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'r> {
    /// Where it stands, in bytes.
    pub at: Range<usize>,
    /// The rule.
    pub name: &'r str,
}

/// The rules, ready for use.
#[derive(Debug)]
pub struct Redactor {
    /// All patterns at once: which of the rules have anything to find.
    any: RegexSet,
    /// In the order in which they name a place that several of them find.
    rules: Vec<Rule>,
    /// How many of them, the first ones, are the user's own.
    own: usize,
    /// Nothing may be kept at all.
    blind: bool,
}

#[derive(Debug)]
struct Rule {
    name: String,
    regex: Regex,
    search: Search,
}

/// A place before those that touch it are joined.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    rule: usize,
}

impl Redactor {
    /// The built-in rules and the user's own, which are names and regular expressions. All of what
    /// an own rule matches is replaced.
    ///
    /// # Errors
    /// An expression is wrong, or too large.
    pub fn new(own: &[(String, String)]) -> Result<Self, regex::Error> {
        let own = own.iter().map(|(name, pattern)| {
            let search = Search::Whole;
            (name.as_str(), pattern.as_str(), search)
        });
        let count = own.len();
        let all: Vec<(&str, &str, Search)> = own.chain(rules::BUILT_IN.iter().copied()).collect();
        let any = RegexSetBuilder::new(all.iter().map(|(_, pattern, _)| pattern))
            .size_limit(RULE_BYTES * (all.len() + 1))
            .dfa_size_limit(8 * RULE_BYTES)
            .build()?;
        let rules = all.into_iter().map(|(name, pattern, search)| {
            Ok(Rule {
                name: name.to_owned(),
                regex: RegexBuilder::new(pattern).size_limit(RULE_BYTES).build()?,
                search,
            })
        });
        Ok(Self {
            any,
            rules: rules.collect::<Result<_, regex::Error>>()?,
            own: count,
            blind: false,
        })
    }

    /// Replaces every text as a whole.
    fn blind() -> Self {
        Self {
            any: RegexSet::empty(),
            rules: Vec::new(),
            own: 0,
            blind: true,
        }
    }

    /// Whether the user has rules of his own, which may be about anything.
    #[must_use]
    pub fn has_own(&self) -> bool {
        self.own > 0 || self.blind
    }

    /// The text with everything replaced that a rule finds, and counted.
    #[must_use]
    pub fn text<'t>(&self, text: &'t str, counts: &mut Counts) -> Cow<'t, str> {
        let mut text = match spelled_out(text) {
            // Kept so only where there is something to find.
            Some(undone) if !self.found(&undone).is_empty() => Cow::Owned(undone),
            _ => Cow::Borrowed(text),
        };
        for _ in 0..MAX_PASSES {
            let found = self.found(&text);
            if found.is_empty() {
                break;
            }
            text = Cow::Owned(replaced(&text, &found, counts));
        }
        text
    }

    /// The same, where nobody counts.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        self.text(text, &mut Counts::default()).into_owned()
    }

    /// A part of a text, as it is to be shown: what is found in all of the text is replaced, also
    /// where the part shows only a piece of it. The ends of `part` must be borders of characters.
    #[must_use]
    pub fn part(&self, text: &str, part: Range<usize>) -> String {
        let part = part.start.min(text.len())..part.end.min(text.len());
        if spelled_out(text).is_some_and(|undone| !self.found(&undone).is_empty()) {
            // Where it stands cannot be said.
            return marker("escaped");
        }
        let mut shown = String::new();
        let mut at = part.start;
        for found in self.found(text) {
            if found.at.end <= at || found.at.start >= part.end {
                continue;
            }
            shown.push_str(text.get(at..found.at.start.max(at)).unwrap_or_default());
            shown.push_str(&marker(found.name));
            at = found.at.end;
        }
        shown.push_str(text.get(at..part.end.max(at)).unwrap_or_default());
        // What a piece looks like may be something again.
        self.clean(&shown)
    }

    /// The value of something with this name: all of it is replaced, unless that has been done.
    #[must_use]
    pub fn value(&self, value: &str, counts: &mut Counts) -> String {
        if self.is_marker(value) {
            return value.to_owned();
        }
        let mut inner = Counts::default();
        let known = self.text(value, &mut inner);
        if self.is_marker(&known) {
            // The rule that knows what it is says more than its name.
            for name in inner.0.keys() {
                counts.add(name);
            }
            return known.into_owned();
        }
        counts.add(ASSIGNMENT);
        marker(ASSIGNMENT)
    }

    /// Whether something of this name is secret, whatever it is.
    #[must_use]
    pub fn names_secret(name: &str) -> bool {
        rules::names_secret(name)
    }

    /// Whether something of this name is secret if it looks so.
    #[must_use]
    pub fn names_token(name: &str) -> bool {
        rules::names_token(name)
    }

    /// Whether a value looks like a key rather than like a word.
    #[must_use]
    pub fn looks_random(value: &str) -> bool {
        rules::looks_random(value)
    }

    /// What is to be replaced, in order and apart from each other.
    #[must_use]
    pub fn found(&self, text: &str) -> Vec<Found<'_>> {
        if self.blind {
            let whole = Found {
                at: 0..text.len(),
                name: "all",
            };
            let done = text.is_empty() || text == marker("all");
            return if done { Vec::new() } else { vec![whole] };
        }
        let hits = self.any.matches(text);
        if !hits.matched_any() {
            return Vec::new();
        }
        let mut places = Vec::new();
        for rule in hits.iter() {
            self.places(rule, text, &mut places);
        }
        let done = self.markers(text);
        for place in &mut places {
            let first = done.partition_point(|marker| marker.end <= place.start);
            for marker in &done[first..] {
                if marker.start >= place.end {
                    break;
                }
                if marker.start <= place.start && place.end <= marker.end {
                    // Inside of what has been replaced.
                    place.end = place.start;
                    break;
                }
                place.start = place.start.min(marker.start);
                place.end = place.end.max(marker.end);
            }
        }
        places.retain(|place| place.start < place.end);
        places.sort_unstable_by_key(|place| (place.start, place.end));
        let mut joined: Vec<Place> = Vec::new();
        for place in places {
            match joined.last_mut() {
                Some(last) if place.start <= last.end => {
                    last.end = last.end.max(place.end);
                    last.rule = last.rule.min(place.rule);
                }
                _ => joined.push(place),
            }
        }
        let named = joined.into_iter().map(|place| Found {
            at: place.start..place.end,
            name: &self.rules[place.rule].name,
        });
        named.collect()
    }

    fn places(&self, index: usize, text: &str, places: &mut Vec<Place>) {
        let Some(rule) = self.rules.get(index) else {
            return;
        };
        let mut add = |start, end| {
            places.push(Place {
                start,
                end,
                rule: index,
            });
        };
        let accept = match rule.search {
            Search::Whole => {
                for found in rule.regex.find_iter(text) {
                    add(found.start(), found.end());
                }
                return;
            }
            Search::Cards => {
                for found in cards::find(text.as_bytes()) {
                    add(found.start, found.end);
                }
                return;
            }
            Search::Value(accept) => accept,
        };
        let mut at = 0;
        while let Some(found) = rule.regex.captures_at(text, at) {
            let Some(whole) = found.get(0) else { return };
            // The first group that takes part is the value.
            let value = found.iter().skip(1).flatten().next().unwrap_or(whole);
            if accept(value.as_str()) {
                add(value.start(), value.end());
                at = whole.end().max(at + 1);
            } else {
                // What was taken for a value may be the name of the next one.
                at = value
                    .start()
                    .max(text.ceil_char_boundary(whole.start() + 1));
            }
            at = text.ceil_char_boundary(at);
            if at >= text.len() {
                return;
            }
        }
    }

    /// Where something has been replaced.
    fn markers(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for (start, opening) in text.match_indices(OPENING) {
            let rest = &text[start + opening.len()..];
            let named = self.rules.iter().find_map(|rule| {
                let rest = rest.strip_prefix(rule.name.as_str())?;
                rest.starts_with(']').then_some(rule.name.len())
            });
            if let Some(name) = named {
                found.push(start..start + opening.len() + name + 1);
            }
        }
        found
    }

    fn is_marker(&self, text: &str) -> bool {
        let markers = self.markers(text);
        markers
            .first()
            .is_some_and(|found| *found == (0..text.len()))
    }
}

/// What takes the place of what a rule finds.
#[must_use]
pub fn marker(name: &str) -> String {
    format!("{OPENING}{name}]")
}

fn replaced(text: &str, found: &[Found<'_>], counts: &mut Counts) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for found in found {
        kept.push_str(&text[at..found.at.start]);
        kept.push_str(&marker(found.name));
        counts.add(found.name);
        at = found.at.end;
    }
    kept.push_str(&text[at..]);
    kept
}

/// The text with all escapes undone, also those that others hide; `None` without any.
fn spelled_out(text: &str) -> Option<String> {
    let mut plain = undone(text)?;
    for _ in 1..MAX_ESCAPES {
        match undone(&plain) {
            Some(next) => plain = next,
            None => break,
        }
    }
    Some(plain)
}

/// The text with its escapes of printable ASCII characters undone, however often they are escaped
/// themselves; `None` without any.
fn undone(text: &str) -> Option<String> {
    let mut undone: Option<String> = None;
    let mut copied = 0;
    let mut from = 0;
    while let Some(at) = text[from..].find("\\u00").map(|at| at + from) {
        from = at + 4;
        let digits = text.get(at + 4..at + 6).filter(|d| d.is_ascii());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(code) = code.filter(|code| (0x20..0x7F).contains(code)) else {
            continue;
        };
        let slashes = text[copied..at].bytes().rev().take_while(|b| *b == b'\\');
        let start = at - slashes.count();
        let kept = undone.get_or_insert_with(String::new);
        kept.push_str(&text[copied..start]);
        kept.push(char::from(code));
        copied = at + 6;
        from = copied;
    }
    let mut undone = undone?;
    undone.push_str(&text[copied..]);
    Some(undone)
}
