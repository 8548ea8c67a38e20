//! The tables, as text for one node or for a cluster.
//!
//! The templates stand in `migrations/`. A released one is never edited; a change is a new one at
//! the end. Every statement can run twice, and on several gateways at once.

use std::fmt::Write as _;

use crate::config::ClickHouse;

/// Longest retention in days.
pub const MAX_RETENTION_DAYS: u32 = ClickHouse::MAX_RETENTION_DAYS;
/// Inserts of a table that the server remembers, to recognise one that comes again.
const WINDOW: u32 = 10_000;
/// How long a replicated table remembers them, in seconds.
const WINDOW_SECONDS: u32 = 7 * 86_400;
/// What the names of tables that hold rows end with.
const WRITTEN: &str = "_raw";
/// The same on the nodes of a cluster.
const LOCAL: &str = "_local";
/// Marks a statement that only a cluster needs.
const CLUSTER_ONLY: &str = "-- cluster\n";

/// One step of the schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    pub(super) version: u32,
    pub(super) name: &'static str,
    template: &'static str,
}

/// The steps from nothing to the current schema, in order.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "records",
        template: include_str!("migrations/0001_records.sql"),
    },
    Migration {
        version: 2,
        name: "hours",
        template: include_str!("migrations/0002_hours.sql"),
    },
    Migration {
        version: 3,
        name: "lifetimes",
        template: include_str!("migrations/0003_lifetimes.sql"),
    },
];

/// The schema of this version.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Tables with a TTL, by the name of their view, and the column that it counts from.
pub(super) const AGEING: &[(&str, &str)] = &[
    ("turns", "started"),
    ("tool_calls", "asked"),
    ("events", "at"),
    ("turns_by_hour", HOUR),
];
/// The time of sums.
const HOUR: &str = "hour";

/// What the templates are filled with.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    database: String,
    cluster: Option<String>,
    retention_days: u32,
}

impl Dialect {
    pub(super) fn of(settings: &ClickHouse) -> Self {
        Self {
            database: settings.database.clone(),
            cluster: settings.cluster.clone(),
            retention_days: settings.retention_days.clamp(1, MAX_RETENTION_DAYS),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// A table or view with its database, quoted.
    pub(super) fn name(&self, table: &str) -> String {
        format!("{}.{}", quoted(&self.database), quoted(table))
    }

    /// The table that rows are written to.
    pub(super) fn written(&self, view: &str) -> String {
        self.name(&format!("{view}{WRITTEN}"))
    }

    /// The plain name of the table that holds the rows of a node.
    pub(super) fn local(&self, view: &str) -> String {
        let ending = if self.is_cluster() { LOCAL } else { WRITTEN };
        format!("{view}{ending}")
    }

    pub(super) fn create_database(&self) -> String {
        format!(
            "CREATE DATABASE IF NOT EXISTS {} {}",
            quoted(&self.database),
            self.on_cluster()
        )
    }

    /// The table that says which migrations were done. In a cluster all nodes share one.
    pub(super) fn create_migrations(&self) -> String {
        let engine = if self.is_cluster() {
            format!(
                "ReplicatedReplacingMergeTree({}, '{{shard}}-{{replica}}')",
                literal(&format!(
                    "/clickhouse/tables/all/{}/schema_migrations",
                    self.database
                ))
            )
        } else {
            "ReplacingMergeTree".to_owned()
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {} {}\n\
            (\n    \
                version UInt32 COMMENT 'Number of the migration',\n    \
                name    String COMMENT 'What it is about',\n    \
                done    DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC') COMMENT 'When it was done',\n    \
                by      String COMMENT 'The version of prefixgate that did it'\n\
            )\n\
            ENGINE = {engine}\n\
            ORDER BY version\n\
            COMMENT 'Migrations that were done; of several rows of a version any counts'",
            self.name("schema_migrations"),
            self.on_cluster()
        )
    }

    /// The statements of a migration.
    pub(super) fn statements(&self, migration: &Migration) -> Vec<String> {
        migration
            .template
            .split(";\n")
            .map(str::trim)
            .filter(|statement| !statement.is_empty())
            .filter(|statement| self.is_cluster() || !statement.contains(CLUSTER_ONLY))
            .map(|statement| self.fill(&without_remarks(statement)))
            .collect()
    }

    /// Notes that a migration was done.
    pub(super) fn note(&self, migration: &Migration) -> String {
        format!(
            "INSERT INTO {} (version, name, by) VALUES ({}, {}, {})",
            self.name("schema_migrations"),
            migration.version,
            literal(migration.name),
            literal(env!("CARGO_PKG_VERSION"))
        )
    }

    /// Names of all tables and views that the migrations make.
    pub(super) fn objects(&self) -> Vec<String> {
        let mut names = vec!["turns_into_hours".to_owned()];
        for (view, _) in AGEING {
            names.push((*view).to_owned());
            names.push(format!("{view}{WRITTEN}"));
            if self.is_cluster() {
                names.push(format!("{view}{LOCAL}"));
            }
        }
        names
    }

    /// When rows go, as it stands in a table's definition.
    pub(super) fn ttl(&self, column: &str) -> String {
        // The sums of an hour stay until its last record is gone.
        let longer = u32::from(column == HOUR);
        format!(
            "toDateTime({column}) + toIntervalDay({})",
            self.retention_days + longer
        )
    }

    pub(super) fn change_ttl(&self, view: &str, column: &str) -> String {
        format!(
            "ALTER TABLE {} {} MODIFY TTL {}",
            self.name(&self.local(view)),
            self.on_cluster(),
            self.ttl(column)
        )
    }

    /// Records from before are removed as soon as they are written.
    pub(super) fn oldest_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(i64::from(self.retention_days) * 86_400_000)
    }

    fn on_cluster(&self) -> String {
        let cluster = self.cluster.as_deref();
        cluster.map_or_else(String::new, |name| format!("ON CLUSTER {}", quoted(name)))
    }

    fn engine(&self, of: &str) -> String {
        let (table, version) = of.split_once(',').unwrap_or((of, ""));
        if !self.is_cluster() {
            let arguments = match version {
                "" => String::new(),
                version => format!("({version})"),
            };
            return format!("ReplacingMergeTree{arguments}");
        }
        let path = format!(
            "/clickhouse/tables/{{shard}}/{}/{table}{LOCAL}",
            self.database
        );
        let more = match version {
            "" => String::new(),
            version => format!(", {version}"),
        };
        format!(
            "ReplicatedReplacingMergeTree({}, '{{replica}}'{more})",
            literal(&path)
        )
    }

    fn distributed(&self, of: &str) -> String {
        let (table, key) = of.split_once(',').unwrap_or((of, "rand()"));
        format!(
            "Distributed({}, {}, {}, {key})",
            literal(self.cluster.as_deref().unwrap_or_default()),
            literal(&self.database),
            literal(table)
        )
    }

    fn dedup(&self) -> String {
        if self.is_cluster() {
            format!(
                "replicated_deduplication_window = {WINDOW}, \
                replicated_deduplication_window_seconds = {WINDOW_SECONDS}"
            )
        } else {
            format!("non_replicated_deduplication_window = {WINDOW}")
        }
    }

    /// Replaces `{name}` and `{name:argument}`. What is no place of ours stays.
    fn fill(&self, template: &str) -> String {
        let mut text = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            text.push_str(&rest[..open]);
            let Some(close) = rest[open..].find('}') else {
                break;
            };
            let place = &rest[open + 1..open + close];
            match place.split_once(':').unwrap_or((place, "")) {
                ("db", _) => text.push_str(&quoted(&self.database)),
                ("on_cluster", _) => text.push_str(&self.on_cluster()),
                ("local", view) => text.push_str(&self.local(view)),
                ("engine", of) => text.push_str(&self.engine(of)),
                ("distributed", of) => text.push_str(&self.distributed(of)),
                ("ttl", column) => text.push_str(&self.ttl(column)),
                ("dedup", _) => text.push_str(&self.dedup()),
                _ => {
                    // Infallible into a string.
                    let _ = write!(text, "{{{place}}}");
                }
            }
            rest = &rest[open + close + 1..];
        }
        text.push_str(rest);
        text
    }
}

/// A statement without the lines that are for readers of the templates.
fn without_remarks(statement: &str) -> String {
    let lines: Vec<_> = statement
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    lines.join("\n").trim().to_owned()
}

/// Every statement that makes the schema from nothing, in order: for people whose gateways may not
/// make tables, and for tests.
#[must_use]
pub fn statements(settings: &ClickHouse) -> Vec<String> {
    let dialect = Dialect::of(settings);
    let mut statements = vec![dialect.create_database(), dialect.create_migrations()];
    for migration in MIGRATIONS {
        statements.extend(dialect.statements(migration));
        statements.push(dialect.note(migration));
    }
    statements
}

/// An identifier.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"))
}

/// A string in SQL.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(cluster: Option<&str>) -> Dialect {
        let mut settings = ClickHouse::at("http://localhost:8123".into());
        settings.cluster = cluster.map(Into::into);
        Dialect::of(&settings)
    }

    fn all(dialect: &Dialect) -> Vec<String> {
        let mut statements = vec![dialect.create_database(), dialect.create_migrations()];
        for migration in MIGRATIONS {
            statements.extend(dialect.statements(migration));
        }
        statements
    }

    #[test]
    fn a_single_node_needs_neither_keeper_nor_cluster() {
        let statements = all(&dialect(None));
        for statement in &statements {
            for word in ["Replicated", "Distributed", "ON CLUSTER", "_local", "{"] {
                assert!(!statement.contains(word), "{word} in {statement}");
            }
        }
        let tables = |s: &&String| s.contains("CREATE TABLE") && s.contains("_raw");
        let tables: Vec<_> = statements.iter().filter(tables).collect();
        assert_eq!(tables.len(), AGEING.len());
        for table in tables {
            let window = "non_replicated_deduplication_window = 10000";
            assert!(table.contains(window), "{table}");
            let of_hours = table.lines().next().unwrap().contains("turns_by_hour");
            let days = if of_hours { 366 } else { 365 };
            let ages = format!("toIntervalDay({days})");
            assert!(table.contains(&ages), "{table}");
        }
    }

    #[test]
    fn a_cluster_is_named_in_every_statement_and_replicates_every_table_of_rows() {
        let dialect = dialect(Some("main"));
        let statements = all(&dialect);
        for statement in &statements {
            assert!(statement.contains("ON CLUSTER `main`"), "{statement}");
        }
        let text = statements.join("\n");
        for (view, _) in AGEING {
            let replicated = format!(
                "MergeTree('/clickhouse/tables/{{shard}}/prefixgate/{view}_local', '{{replica}}'"
            );
            assert!(text.contains(&replicated), "{replicated}");
            let front = format!("Distributed('main', 'prefixgate', '{view}_local', ");
            assert!(text.contains(&front), "{front}");
        }
        // A run stays together; the sums are made where the turns lie.
        assert_eq!(text.matches("cityHash64(run_id)").count(), 3);
        assert!(text.contains("TO `prefixgate`.turns_by_hour_local AS"));
        assert!(text.contains("FROM `prefixgate`.turns_local AS t"));
        assert_eq!(dialect.objects().len(), 3 * AGEING.len() + 1);
    }

    #[test]
    fn every_column_says_what_it_is() {
        for migration in MIGRATIONS {
            for statement in dialect(None).statements(migration) {
                let Some((_, columns)) = statement.split_once("\n(\n") else {
                    continue;
                };
                let (columns, _) = columns.split_once("\n)\n").unwrap();
                for column in columns.lines() {
                    let index = column.trim_start().starts_with("INDEX ");
                    assert!(index || column.contains(" COMMENT '"), "{column}");
                }
            }
        }
    }

    #[test]
    fn retention_stays_within_the_dates_of_the_server() {
        let mut settings = ClickHouse::at("http://localhost:8123".into());
        for (days, kept) in [(0, 1), (30, 30), (u32::MAX, MAX_RETENTION_DAYS)] {
            settings.retention_days = days;
            let ttl = Dialect::of(&settings).ttl("at");
            assert_eq!(ttl, format!("toDateTime(at) + toIntervalDay({kept})"));
        }
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let mut settings = ClickHouse::at("http://localhost:8123".into());
        settings.database = "a`b".into();
        settings.cluster = Some("c'd".into());
        let dialect = Dialect::of(&settings);
        assert_eq!(dialect.name("turns"), "`a\\`b`.`turns`");
        assert!(
            all(&dialect)
                .join("\n")
                .contains("Distributed('c\\'d', 'a`b', ")
        );
    }

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (place, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version as usize, place + 1);
        }
    }
}
