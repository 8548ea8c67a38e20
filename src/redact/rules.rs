//! The built-in rules. Shapes of keys as their issuers document them (Nov 2026), with shorter
//! lower bounds: a key that was cut is not printed either. None of the prefixed ones asks for a
//! border before it, since keys are glued to whatever stands there.

use std::sync::LazyLock;

use regex::Regex;

/// How a rule finds its places.
#[derive(Debug, Clone, Copy)]
pub(super) enum Search {
    /// All that the expression matches.
    Whole,
    /// The first group that takes part, if it is accepted.
    Value(fn(&str) -> bool),
    /// The expression only says that there may be some.
    Cards,
}

/// Names whose values are secret. Any case; what stands before is free.
macro_rules! names {
    () => {
        r"(?:pass(?:word|wd|phrase)|pwd|secret|(?:api|access|signing|encryption|private|account)[_-]?key|auth[_-]?token|(?:access|refresh|session|bearer)[_-]?token|authorization|credential|connection[_-]?string)s?(?:[_-][a-z0-9_-]{0,32})?"
    };
}

/// Between a name and its value: what closes the name, the sign, and a scheme of authorization.
macro_rules! sign {
    () => {
        r#"["'`\\\]]{0,6}[ \t]{0,8}(?::=|=>|={1,3}|:)[ \t]{0,8}(?:(?:basic|bearer|digest|token)[ \t]+)?"#
    };
}

/// A value: quoted, quoted inside of a quoted text, or bare.
macro_rules! value {
    () => {
        r#"(?:"((?:[^"\\\n]|\\[^\n])+)|'((?:[^'\\\n]|\\[^\n])+)|`([^`\n]+)|\\{1,4}["']((?:[^"'\\\n]|\\{1,4}[^"'\\\n])+)|([^\s"'`,;&<>\\(){}:=][^\s"'`,;&<>]*))"#
    };
}

pub(super) const BUILT_IN: &[(&str, &str, Search)] = &[
    (
        "private_key",
        r"(?s)-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\z)",
        Search::Whole,
    ),
    ("anthropic_key", "sk-ant-[A-Za-z0-9_-]{8,}", Search::Whole),
    (
        "openai_key",
        "sk-(?:proj|svcacct|admin|None|or-v1)-[A-Za-z0-9_-]{8,}|sk-[A-Za-z0-9]{32,}",
        Search::Whole,
    ),
    (
        "openai_key",
        // Words end in `sk` too, so this one needs a border and a digit.
        r"\bsk-[A-Za-z0-9_-]{16,}",
        Search::Value(has_digit),
    ),
    (
        "aws_key",
        "(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}",
        Search::Whole,
    ),
    (
        "github_token",
        "gh[opsur]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}",
        Search::Whole,
    ),
    (
        "slack_token",
        r"xox[abceoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}|xapp-[0-9]-[A-Za-z0-9-]{8,}|hooks\.slack\.com/[a-z]+/[A-Za-z0-9/_-]+",
        Search::Whole,
    ),
    (
        "google_key",
        r"AIza[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}",
        Search::Whole,
    ),
    (
        "token",
        r"glpat-[A-Za-z0-9_-]{16,}|[prs]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{16,}|hf_[A-Za-z0-9]{24,}|npm_[A-Za-z0-9]{24,}|pypi-[A-Za-z0-9_-]{32,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        Search::Whole,
    ),
    (
        "jwt",
        r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}",
        Search::Whole,
    ),
    (
        "bearer",
        r"(?i)\bbearer[ \t]+([a-z0-9._~+/-]{8,}=*)",
        Search::Value(looks_random),
    ),
    (
        "url_password",
        r#"://[^\s/:@"'<>]*:([^\s/@"'<>]+)@"#,
        Search::Value(any),
    ),
    (
        "mail",
        r"[\w.%+-]+(?:@(?:[\w-]+\.)+\p{L}{2,})+",
        Search::Whole,
    ),
    ("card", "[0-9](?:[ -]?[0-9]){12}", Search::Cards),
    (
        super::ASSIGNMENT,
        concat!("(?i)", names!(), sign!(), value!()),
        Search::Value(any),
    ),
    (
        super::ASSIGNMENT,
        concat!("(?i)token", sign!(), value!()),
        Search::Value(looks_random),
    ),
    (
        super::ASSIGNMENT,
        concat!(
            "(?i)--[a-z0-9-]*(?:password|passwd|passphrase|secret|token|(?:api|access|secret|private)-key)[ \t=]+",
            value!()
        ),
        Search::Value(not_flag),
    ),
];

fn any(_: &str) -> bool {
    true
}

fn has_digit(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_digit())
}

/// See [`super::Redactor::looks_random`]. Words of a sentence are shorter, and have no digits.
pub(super) fn looks_random(value: &str) -> bool {
    (value.len() >= 8 && has_digit(value)) || value.len() >= 24
}

fn not_flag(value: &str) -> bool {
    !value.starts_with('-')
}

/// See [`super::Redactor::names_secret`].
pub(super) fn names_secret(name: &str) -> bool {
    static NAMES: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(concat!("(?i)", names!(), "$")).ok());
    match &*NAMES {
        Some(names) => names.is_match(name),
        None => true,
    }
}

/// See [`super::Redactor::names_token`].
pub(super) fn names_token(name: &str) -> bool {
    let end = name.len().saturating_sub("token".len());
    name.get(end..)
        .is_some_and(|end| end.eq_ignore_ascii_case("token"))
}
