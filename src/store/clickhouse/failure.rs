//! What an error of the server means for a batch: to be sent again, or never to be taken.
//!
//! What the server says of data may quote it, so that only its code and the code's name are told.

use std::time::Duration;

use clickhouse::error::Error as Told;

pub use crate::spool::Failure;
use crate::store::StoreError;

/// Why records could not be read from the server or moved to it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A record cannot be read: SQLite fails, or a store holds a word that is not known here.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server does not do it.
    #[error("ClickHouse: {0}")]
    Server(#[from] Failure),
}

/// Pause before a batch is sent again that was not taken for a reason which a person has to remove.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The same for a server that is told to be spared.
const RELIEF: Duration = Duration::from_secs(5);
/// Longest name of an error that is passed on.
const MAX_NAME: usize = 64;

/// What follows from an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// It passes by itself.
    Passing,
    /// The server has too much to do.
    Pressure,
    /// Somebody has to change something.
    Setting,
    /// A table is not there, or not as it should be.
    Schema,
    /// The rows are at fault.
    Data,
    /// Nothing that is known here.
    Unknown,
}

/// Codes of the server, what follows from them, and what they mean.
const CODES: &[(u32, Class, &str)] = &[
    // Back-pressure.
    (252, Class::Pressure, "too many parts wait to be merged"),
    (241, Class::Pressure, "the server's memory limit is reached"),
    (202, Class::Pressure, "too many queries run at once"),
    (745, Class::Pressure, "the server is overloaded"),
    (439, Class::Pressure, "the server has no thread to spare"),
    (
        203,
        Class::Pressure,
        "the server has no connection to spare",
    ),
    (201, Class::Pressure, "a quota is used up"),
    (692, Class::Pressure, "too many mutations wait"),
    // Outages of the server or behind it.
    (159, Class::Passing, "the server ran out of time"),
    (209, Class::Passing, "a node did not answer in time"),
    (210, Class::Passing, "a node could not be reached"),
    (198, Class::Passing, "the name of a node is not resolved"),
    (279, Class::Passing, "no node of the cluster answers"),
    (225, Class::Passing, "Keeper is not there"),
    (999, Class::Passing, "Keeper gave an error"),
    (
        242,
        Class::Passing,
        "a replica is read-only, most likely without Keeper",
    ),
    (
        319,
        Class::Passing,
        "it is not known whether the insert was stored",
    ),
    (285, Class::Passing, "too few replicas live"),
    (
        286,
        Class::Passing,
        "an earlier insert waits for its quorum",
    ),
    (289, Class::Passing, "the replica is behind its quorum"),
    (254, Class::Passing, "no replica is active"),
    (236, Class::Passing, "the server stopped the insert"),
    (394, Class::Passing, "the insert was cancelled"),
    (735, Class::Passing, "the insert was cancelled"),
    (473, Class::Passing, "a lock was not given"),
    (341, Class::Passing, "a replica has not finished"),
    (733, Class::Passing, "the table is being restarted"),
    (173, Class::Passing, "the server has no memory"),
    (425, Class::Passing, "the system gave an error"),
    (499, Class::Passing, "the object store gave an error"),
    (
        1000,
        Class::Passing,
        "the server met an input or output error",
    ),
    (
        1001,
        Class::Passing,
        "the server met an error of its library",
    ),
    // Two gateways make the same table.
    (57, Class::Passing, "a table is being made by somebody else"),
    (
        82,
        Class::Passing,
        "the database is being made by somebody else",
    ),
    (
        253,
        Class::Passing,
        "a replica is being made by somebody else",
    ),
    (
        517,
        Class::Passing,
        "the definition of a table is being changed by somebody else",
    ),
    // Settings.
    (243, Class::Setting, "the server's disk is full"),
    (74, Class::Setting, "the server cannot read its disk"),
    (75, Class::Setting, "the server cannot write to its disk"),
    (76, Class::Setting, "the server cannot open a file"),
    (
        516,
        Class::Setting,
        "user or password are wrong: check [clickhouse] user and password",
    ),
    (
        193,
        Class::Setting,
        "the password is wrong: check [clickhouse] password",
    ),
    (
        194,
        Class::Setting,
        "a password is needed: set [clickhouse] password",
    ),
    (
        192,
        Class::Setting,
        "there is no such user: check [clickhouse] user",
    ),
    (
        497,
        Class::Setting,
        "the user lacks a right: grant CREATE, ALTER, INSERT and SELECT on the database",
    ),
    (291, Class::Setting, "the user may not use the database"),
    (164, Class::Setting, "the user may only read"),
    (
        701,
        Class::Setting,
        "there is no such cluster: check [clickhouse] cluster",
    ),
    (
        139,
        Class::Setting,
        "the server's configuration lacks something, most likely the macros shard and replica",
    ),
    (
        115,
        Class::Setting,
        "the server is too old: it does not know a setting",
    ),
    // The schema.
    (60, Class::Schema, "a table is missing"),
    (81, Class::Schema, "the database is missing"),
    (218, Class::Schema, "a table is being dropped"),
    (8, Class::Schema, "a column is missing"),
    (16, Class::Schema, "a column is missing"),
    (47, Class::Schema, "a column is missing"),
    (20, Class::Schema, "the number of columns differs"),
    // Rows.
    (6, Class::Data, "a value cannot be read"),
    (26, Class::Data, "a text cannot be read"),
    (27, Class::Data, "a value cannot be read"),
    (32, Class::Data, "the rows end too early"),
    (33, Class::Data, "the rows end too early"),
    (38, Class::Data, "a date cannot be read"),
    (41, Class::Data, "a time cannot be read"),
    (53, Class::Data, "a value has the wrong type"),
    (69, Class::Data, "a value is out of bounds"),
    (70, Class::Data, "a value has the wrong type"),
    (72, Class::Data, "a number cannot be read"),
    (117, Class::Data, "the rows are malformed"),
    (128, Class::Data, "a list is too long"),
    (131, Class::Data, "a text is too long"),
    (321, Class::Data, "a value is out of range"),
    (349, Class::Data, "a value is missing"),
    (469, Class::Data, "a constraint of the table is violated"),
    (395, Class::Data, "the table refuses a value"),
];

/// An error, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) class: Class,
    pub(super) why: String,
}

impl Judged {
    /// What a batch is told, once the schema was looked at again and unknown errors have had their
    /// chances (`worn_out`).
    pub(super) fn failure(self, worn_out: bool) -> Failure {
        let Self { class, why } = self;
        let after = match class {
            Class::Data => return Failure::Refused { why },
            Class::Unknown | Class::Schema if worn_out => return Failure::Refused { why },
            Class::Setting => Some(PATIENCE),
            Class::Pressure => Some(RELIEF),
            Class::Passing | Class::Schema | Class::Unknown => None,
        };
        Failure::Later { why, after }
    }
}

pub(super) fn judge(error: &Told) -> Judged {
    let (class, why) = match error {
        Told::Network(_) => (Class::Passing, "the server cannot be reached".to_owned()),
        Told::TimedOut => (Class::Passing, "the server does not answer".to_owned()),
        Told::BadResponse(text) => return answered(text),
        Told::SchemaMismatch(_) => (
            Class::Schema,
            "a table has other columns than prefixgate gave it".to_owned(),
        ),
        Told::InvalidParams(_) | Told::Unsupported(_) => (
            Class::Setting,
            "the URL cannot be used: check [clickhouse] url".to_owned(),
        ),
        Told::Custom(_) | Told::SequenceMustHaveLength => {
            (Class::Data, "a row cannot be written".to_owned())
        }
        _ => (
            Class::Unknown,
            "the server's answer is not understood".to_owned(),
        ),
    };
    Judged { class, why }
}

/// Reads `Code: 252. DB::Exception: ... (TOO_MANY_PARTS) (version ...)`.
fn answered(text: &str) -> Judged {
    let Some(code) = code(text) else {
        // Something between: a proxy, a load balancer.
        let status = text
            .get(..3)
            .filter(|s| s.bytes().all(|b| b.is_ascii_digit()));
        return Judged {
            class: Class::Passing,
            why: match status {
                Some(status) => format!("status {status} without an error of ClickHouse"),
                None => "an answer that is not ClickHouse's".to_owned(),
            },
        };
    };
    let known = CODES.iter().find(|(known, ..)| *known == code);
    let (class, reason) = known.map_or((Class::Unknown, "an error that is not known here"), |k| {
        (k.1, k.2)
    });
    let why = match name(text) {
        Some(name) => format!("{reason} (ClickHouse error {code}, {name})"),
        None => format!("{reason} (ClickHouse error {code})"),
    };
    Judged { class, why }
}

/// The code of the server's error, if it is one.
pub(super) fn code(text: &str) -> Option<u32> {
    let rest = text.trim_start().strip_prefix("Code: ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit());
    rest[..digits.unwrap_or(rest.len())].parse().ok()
}

/// The last word in brackets that is made like the name of an error.
fn name(text: &str) -> Option<&str> {
    text.rsplit('(')
        .filter_map(|part| part.split_once(')'))
        .map(|(name, _)| name)
        .find(|name| {
            let made_so = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
            name.len() > 2
                && name.len() <= MAX_NAME
                && name.contains('_')
                && name.bytes().all(made_so)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(text: &str) -> Judged {
        judge(&Told::BadResponse(text.into()))
    }

    #[test]
    fn e05_back_pressure_is_no_poison() {
        let judged = bad(
            "Code: 252. DB::Exception: Too many parts (300) in table d.turns_raw. (TOO_MANY_PARTS) (version 26.9.2.1 (official build))",
        );
        assert_eq!(judged.class, Class::Pressure);
        assert_eq!(
            judged.why,
            "too many parts wait to be merged (ClickHouse error 252, TOO_MANY_PARTS)"
        );
        for code in [252, 159, 241, 202, 209, 210, 242, 319, 999] {
            let failure = bad(&format!("Code: {code}")).failure(true);
            assert!(matches!(failure, Failure::Later { .. }), "{code}");
        }
    }

    #[test]
    fn what_the_server_quotes_is_not_told() {
        let judged = bad(
            "Code: 27. DB::Exception: Cannot parse input: expected '\\t' before: 'SECRET prompt (SECRET)': (CANNOT_PARSE_INPUT_ASSERTION_FAILED) (version 26.9.2.1 (official build))",
        );
        assert_eq!(judged.class, Class::Data);
        assert!(!judged.why.contains("SECRET"), "{}", judged.why);
        assert!(
            judged
                .why
                .contains("27, CANNOT_PARSE_INPUT_ASSERTION_FAILED")
        );
    }

    #[test]
    fn answers_of_somebody_between_pass() {
        for text in ["503 Service Unavailable", "<html>SECRET</html>", "", "502"] {
            let judged = bad(text);
            assert_eq!(judged.class, Class::Passing, "{text}");
            assert!(!judged.why.contains("SECRET"));
        }
    }

    #[test]
    fn an_unknown_error_is_refused_only_after_its_chances() {
        let judged = || bad("Code: 99999. DB::Exception: ?");
        assert!(matches!(judged().failure(false), Failure::Later { .. }));
        assert!(matches!(judged().failure(true), Failure::Refused { .. }));
    }

    #[test]
    fn a_code_stands_once() {
        for (place, (code, ..)) in CODES.iter().enumerate() {
            let before = CODES[..place].iter().any(|(other, ..)| other == code);
            assert!(!before, "{code}");
        }
    }
}
