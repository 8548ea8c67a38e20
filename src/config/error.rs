//! What is wrong with a configuration, said so that the reader can repair it.

use std::fmt;

/// Longest excerpt of a wrong value that is repeated in a message.
const SHOWN_MAX_CHARS: usize = 80;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `FILE:LINE`, or the flag or environment variable at fault.
    pub place: String,
    /// What is wrong there and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Everything that was found wrong, in the order of the file, then of flags and environment.
///
/// The user is at fault: commands end with exit code 2. `Display` is one line a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A value as it is repeated in a message: one line, bounded, without the password of a URL.
#[must_use]
pub fn shown(source: &str) -> String {
    let line = source.lines().next().unwrap_or_default();
    let mut text: String = line.chars().take(SHOWN_MAX_CHARS).collect();
    if text.len() < source.trim_end().len() {
        text.push_str("...");
    }
    // A user:password before the host would otherwise end up in a terminal or a log. The last
    // `@` decides, as a password may hold another.
    if let (Some(start), Some(end)) = (text.find("//"), text.rfind('@'))
        && start + 2 < end
    {
        text.replace_range(start + 2..end, "***");
    }
    text
}

/// The nearest of `known` names to `typed`, if one is near enough to be meant.
#[must_use]
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace('-', "_");
    let typed = plain(typed);
    let limit = (typed.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(&typed, &plain(name)), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace, swap of neighbours) between two short names.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(SHOWN_MAX_CHARS).collect();
    let b: Vec<char> = b.chars().take(SHOWN_MAX_CHARS).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_edits_and_swaps() {
        for (a, b, expected) in [
            ("policy", "policy", 0),
            ("polcy", "policy", 1),
            ("ploicy", "policy", 1),
            ("", "abc", 3),
            ("listen", "max_body", 8),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn nearest_only_when_it_can_be_meant() {
        let known = ["listen", "admin", "max_body"];
        assert_eq!(nearest("Max-Body", known), Some("max_body"));
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("colour", known), None);
    }

    #[test]
    fn shown_is_short_and_without_passwords() {
        assert_eq!(
            shown("\"https://me:p@ss@host/x\""),
            "\"https://***@host/x\""
        );
        assert_eq!(shown("[\n1,\n2]"), "[...");
        assert_eq!(shown(&"x".repeat(200)).len(), SHOWN_MAX_CHARS + 3);
        assert_eq!(shown("\"plain\""), "\"plain\"");
    }
}
