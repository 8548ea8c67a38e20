//! Calls that another model made, told anew: their ids and names must suit the provider that reads
//! them now.

use std::collections::HashSet;

use crate::agent::talk::Answer;

/// Longest id that every provider takes back.
const MAX_ID: usize = 40;
/// Longest name of a tool.
const MAX_NAME: usize = 64;

/// The ids of a conversation as they are told, from its beginning on.
#[derive(Debug, Default)]
pub struct Ids {
    /// All that were told.
    seen: HashSet<String>,
    /// Those of the newest answer that were changed: before and after.
    changed: Vec<(String, String)>,
}

impl Ids {
    /// Goes on to the answer at this place. One that goes back as it came keeps its ids; of one that
    /// is told anew those are changed that are not plain, too long, or known from another answer.
    /// The same conversation always gives the same ids.
    pub fn take(&mut self, at: usize, answer: &Answer, as_it_came: bool) {
        self.changed.clear();
        for (number, call) in answer.calls().enumerate() {
            let id = &call.id;
            let fits = plain(id) && id.len() <= MAX_ID && !self.seen.contains(id);
            if as_it_came || fits {
                self.seen.insert(id.clone());
            } else {
                let other = format!("call_{at}_{number}");
                self.seen.insert(other.clone());
                self.changed.push((id.clone(), other));
            }
        }
    }

    /// How the id of a call of the newest answer is told.
    pub fn of<'a>(&'a self, id: &'a str) -> &'a str {
        let mut changed = self.changed.iter();
        changed
            .find(|(before, _)| before == id)
            .map_or(id, |(_, after)| after)
    }
}

/// How the name of a tool is told. Models invent names that no provider takes back.
pub fn name(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if is_plain(c) { c } else { '_' })
        .take(MAX_NAME)
        .collect();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

fn plain(id: &str) -> bool {
    !id.is_empty() && id.chars().all(is_plain)
}

const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
