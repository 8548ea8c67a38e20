//! Patterns of names: `*`, `?`, `**`, `[a-z]`, `{one,other}`.

use regex::{Regex, RegexBuilder};

use crate::agent::tools::ToolError;

/// Longest pattern, in bytes.
const MAX_PATTERN: usize = 1_000;
/// Memory of a compiled expression, in bytes.
pub(super) const MAX_COMPILED: usize = 1 << 20;

/// A pattern of paths. `*` and `?` stay inside a name, `**` goes through directories.
pub(super) struct Pattern {
    regex: Regex,
    /// It has a slash, and so is about whole paths; else it is about names.
    pub paths: bool,
}

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, ToolError> {
        let wrong = |why: &str| {
            ToolError::failed(
                "invalid_pattern",
                format!("{pattern:?} is no pattern of names: {why}"),
            )
            .hint("examples: *.rs, src/**/*.rs, {a,b}.txt, [0-9]*.md")
        };
        if pattern.len() > MAX_PATTERN {
            return Err(wrong("too long"));
        }
        let expression = expression(pattern.trim_start_matches("./")).map_err(wrong)?;
        let regex = RegexBuilder::new(&expression)
            .size_limit(MAX_COMPILED)
            .build()
            .map_err(|_| wrong("its brackets do not fit together"))?;
        Ok(Self {
            regex,
            paths: pattern.contains('/'),
        })
    }

    /// Whether it fits a path: its last part alone where the pattern is about names.
    pub fn fits(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(if self.paths { path } else { name })
    }
}

fn expression(pattern: &str) -> Result<String, &'static str> {
    let mut out = String::from(r"\A(?s:");
    let mut braces = 0u32;
    let mut rest = pattern;
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        match next {
            '*' if rest.starts_with("**/") => {
                out.push_str("(?:.*/)?");
                taken = 3;
            }
            '*' if rest.starts_with("**") => {
                out.push_str(".*");
                taken = 2;
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '{' => {
                braces += 1;
                out.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                out.push(')');
            }
            ',' if braces > 0 => out.push('|'),
            '[' => {
                let end = rest[1..].find(']').ok_or("a [ is not closed")?;
                let inside = &rest[1..=end];
                let (not, set) = match inside.strip_prefix(['!', '^']) {
                    Some(set) => ("^/", set),
                    None => ("", inside),
                };
                out.push_str(&format!(
                    "[{not}{}]",
                    set.replace('\\', r"\\").replace('[', r"\[")
                ));
                taken = end + 2;
            }
            other => out.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
        rest = &rest[taken..];
    }
    if braces > 0 {
        return Err("a { is not closed");
    }
    out.push_str(r")\z");
    Ok(out)
}
