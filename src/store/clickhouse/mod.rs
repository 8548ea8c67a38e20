//! ClickHouse: the trace store that several gateways share.
//!
//! A record may be delivered more than once: an answer is lost, a process dies between two steps,
//! records are moved over from SQLite. Three things make it count once. An insert carries the
//! token of its batch, which the server remembers for a while, for the tables and for the sums made
//! of them. Rows have ids fixed at creation and stand at a place that follows from them, and the
//! views `turns`, `tool_calls` and `events` show each id once, before any merge. And the sums by
//! hour are kept a row for each batch, which a batch that comes again replaces.
//!
//! Money and counts are integers throughout; nothing of the content goes to a log or an error.

use std::sync::Arc;
use std::time::Duration;

use clickhouse::{Client, RowOwned, RowWrite};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::ClickHouse;
use crate::trace::Entry;

mod ask;
mod failure;
mod import;
mod look;
mod migrate;
mod present;
mod read;
mod row;
mod schema;

pub use ask::ClickHouseAnswers;
pub use failure::{Error, Failure};
pub use import::{Imported, Moved, import};
pub use look::{Look, SCHEMA, Schema, Unseen};
pub use present::{MAX_IDS, Range};
pub use schema::{MAX_RETENTION_DAYS, statements};

use failure::{Class, Judged, judge};
use row::{CallRow, EventRow, TurnRow};
use schema::Dialect;

/// How long an insert may take, with all that the server makes of it.
const INSERT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long any other statement may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Keep-alive of connections, and how long one is kept that nothing uses: the server closes those
/// after three seconds.
const KEEPALIVE: Duration = Duration::from_secs(60);
const POOL_IDLE: Duration = Duration::from_secs(2);
/// Rows of one insert. More than any batch that a spool gives, and few enough for the server to
/// take them as one block, which is what makes an insert all or nothing.
const MAX_INSERT_ROWS: usize = 100_000;
/// How often a batch may meet an error that is not known here before it is given up.
const CHANCES: u32 = 5;

/// Delivers records. Makes the tables with the first delivery, so that a gateway starts while the
/// server is away.
pub struct ClickHouseSink {
    client: Client,
    dialect: Dialect,
    async_insert: bool,
    /// The schema was looked at, and nothing has happened since that casts a doubt on it.
    ready: bool,
    /// The batch that met unknown errors, and how often.
    doubted: Option<(String, u32)>,
}

impl ClickHouseSink {
    /// A sink for a server. Nothing is sent yet.
    #[must_use]
    pub fn new(settings: &ClickHouse) -> Self {
        Self {
            client: client(settings),
            dialect: Dialect::of(settings),
            async_insert: settings.async_insert,
            ready: false,
            doubted: None,
        }
    }

    /// Makes the tables, or brings them up to date. [`ClickHouseSink::insert`] does it by itself.
    ///
    /// # Errors
    /// The server cannot be reached or refuses; or a newer prefixgate has made the tables.
    pub async fn prepare(&mut self) -> Result<(), Failure> {
        if !self.ready {
            migrate::migrate(&self.client, &self.dialect).await?;
            self.ready = true;
        }
        Ok(())
    }

    /// Writes `entries` under `token`, which is the same whenever these entries come again. One
    /// insert a table that has rows. An [`Entry::Result`] is passed over: without its call it says
    /// nothing.
    ///
    /// # Errors
    /// See [`Failure`]. Turns come last, since sums are made of them: when a batch is refused for
    /// its calls or events, its turns have not been counted.
    pub async fn insert(&mut self, token: &str, entries: &[Entry]) -> Result<(), Failure> {
        self.prepare().await?;
        match self.insert_all(token, entries).await {
            Ok(()) => {
                self.doubted = None;
                Ok(())
            }
            Err(judged) => Err(self.failed(token, judged)),
        }
    }

    async fn insert_all(&self, token: &str, entries: &[Entry]) -> Result<(), Judged> {
        let (mut events, mut calls) = (Vec::new(), Vec::new());
        let mut turns = Vec::new();
        for entry in entries {
            match entry {
                Entry::Event(event) => events.push(EventRow::from(&**event)),
                Entry::Call(call) => calls.push(CallRow::from(&**call)),
                Entry::Turn(turn) => turns.push(&**turn),
                Entry::Result(_) => {}
            }
        }
        for (token, rows) in chunks(token, &events) {
            self.insert_rows("events", &token, rows).await?;
        }
        for (token, rows) in chunks(token, &calls) {
            self.insert_rows("tool_calls", &token, rows).await?;
        }
        for (token, turns) in chunks(token, &turns) {
            let batch = xxh3_64(token.as_bytes());
            let rows: Result<Vec<_>, _> =
                turns.iter().map(|turn| TurnRow::new(turn, batch)).collect();
            let rows = rows.map_err(|_| Judged {
                class: Class::Data,
                why: "a turn cannot be written as a row".to_owned(),
            })?;
            self.insert_rows("turns", &token, &rows).await?;
        }
        Ok(())
    }

    async fn insert_rows<T>(&self, view: &str, token: &str, rows: &[T]) -> Result<(), Judged>
    where
        T: RowOwned + RowWrite,
    {
        let told = async {
            let table = self.dialect.written(view);
            let mut insert = self.client.insert_unescaped::<T>(&table).await?;
            for (name, value) in self.insert_settings(token) {
                insert = insert.with_setting(name, value);
            }
            for row in rows {
                insert.write(row).await?;
            }
            insert.end().await
        };
        let told = match tokio::time::timeout(INSERT_TIMEOUT, told).await {
            Ok(told) => told,
            Err(_) => Err(clickhouse::error::Error::TimedOut),
        };
        told.map_err(|error| {
            let mut judged = judge(&error);
            judged.why = format!("{view}: {}", judged.why);
            judged
        })
    }

    fn insert_settings<'a>(&self, token: &'a str) -> Vec<(&'static str, &'a str)> {
        let mut settings = vec![
            ("insert_deduplicate", "1"),
            ("insert_deduplication_token", token),
            // What is known of a table is not known of the sums that are made of it.
            ("deduplicate_blocks_in_dependent_materialized_views", "1"),
            ("materialized_views_ignore_errors", "0"),
            ("async_insert", if self.async_insert { "1" } else { "0" }),
            // Answered when it is stored, not when it is queued.
            ("wait_for_async_insert", "1"),
            // A move of years of records touches many months.
            ("max_partitions_per_insert_block", "0"),
        ];
        if self.dialect.is_cluster() {
            settings.push(("insert_distributed_sync", "1"));
        }
        settings
    }

    /// What the batch is told, and what is remembered of it.
    fn failed(&mut self, token: &str, judged: Judged) -> Failure {
        if judged.class == Class::Schema {
            self.ready = false;
        }
        let mut worn_out = false;
        if matches!(judged.class, Class::Schema | Class::Unknown) {
            let times = match &self.doubted {
                Some((doubted, times)) if doubted == token => times + 1,
                _ => 1,
            };
            worn_out = times >= CHANCES;
            self.doubted = (!worn_out).then(|| (token.to_owned(), times));
        }
        judged.failure(worn_out)
    }
}

impl std::fmt::Debug for ClickHouseSink {
    /// Without the client, which holds the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClickHouseSink")
            .field("dialect", &self.dialect)
            .field("ready", &self.ready)
            .finish_non_exhaustive()
    }
}

/// A client of a server. Nothing is sent yet.
fn client(settings: &ClickHouse) -> Client {
    let mut client = trusting(&settings.extra_ca)
        .with_url(&settings.url)
        .with_product_info("prefixgate", env!("CARGO_PKG_VERSION"));
    if let Some(user) = &settings.user {
        client = client.with_user(user);
    }
    if let Some(password) = &settings.password {
        client = client.with_password(password);
    }
    client
}

/// A client that trusts the compiled-in roots and these.
fn trusting(extra_ca: &[CertificateDer<'static>]) -> Client {
    if extra_ca.is_empty() {
        return Client::default();
    }
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    // Those that cannot be used the configuration has refused.
    roots.add_parsable_certificates(extra_ca.iter().cloned());
    // The provider is named: a process-wide default would panic if two were linked in.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let Ok(tls) =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
    else {
        // Not with this provider. The roots that are left refuse what they do not know.
        return Client::default();
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls.with_root_certificates(roots).with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(POOL_IDLE)
        .build(connector);
    Client::with_http_client(http)
}

/// Rows in pieces for an insert each, with the token of each.
fn chunks<'a, T>(token: &'a str, rows: &'a [T]) -> impl Iterator<Item = (String, &'a [T])> {
    rows.chunks(MAX_INSERT_ROWS)
        .enumerate()
        .map(move |(n, rows)| {
            let token = match n {
                0 => token.to_owned(),
                n => format!("{token}/{n}"),
            };
            (token, rows)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_by_the_one_provider_and_needs_no_server_to_begin() {
        let mut settings = ClickHouse::at("https://clickhouse.example:8443".into());
        settings.user = Some("gate".into());
        settings.password = Some("open sesame".into());
        let sink = ClickHouseSink::new(&settings);
        assert!(!format!("{sink:?} {settings:?}").contains("sesame"));
    }

    #[test]
    fn a_token_stays_the_same_and_differs_for_each_piece() {
        let rows = vec![0_u8; MAX_INSERT_ROWS + 1];
        let pieces: Vec<_> = chunks("t", &rows)
            .map(|(t, rows)| (t, rows.len()))
            .collect();
        assert_eq!(pieces, [("t".into(), MAX_INSERT_ROWS), ("t/1".into(), 1)]);
        assert_eq!(chunks("t", &rows[..0]).count(), 0);
    }

    #[test]
    fn a_batch_is_given_up_after_its_chances_and_another_has_its_own() {
        let mut sink = ClickHouseSink::new(&ClickHouse::at("http://localhost:8123".into()));
        let unknown = || Judged {
            class: Class::Unknown,
            why: "?".into(),
        };
        for _ in 1..CHANCES {
            let failure = sink.failed("a", unknown());
            assert!(matches!(failure, Failure::Later { .. }));
        }
        assert!(matches!(
            sink.failed("a", unknown()),
            Failure::Refused { .. }
        ));
        assert!(matches!(sink.failed("b", unknown()), Failure::Later { .. }));
    }

    #[test]
    fn a_missing_table_makes_the_schema_be_looked_at_again() {
        let mut sink = ClickHouseSink::new(&ClickHouse::at("http://localhost:8123".into()));
        sink.ready = true;
        let error = clickhouse::error::Error::BadResponse("Code: 60. (UNKNOWN_TABLE)".into());
        let failure = sink.failed("a", judge(&error));
        assert!(matches!(failure, Failure::Later { .. }), "{failure}");
        assert!(!sink.ready);
    }
}
