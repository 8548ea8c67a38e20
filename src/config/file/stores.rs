//! The sections of the remote stores and of captured content, as typed.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::value::{
    ClickHouseUrl, Count, Headers, Name, OtlpUrl, Pairs, Rules, Secret, Share, Size, Span,
};
use super::super::{CaptureMode, Semconv, SpoolFull};
use super::{Key, Located, Reader, in_file_order};

section! {
    /// `[clickhouse]`
    ClickHouse {
        /// The HTTP interface.
        url: ClickHouseUrl,
        /// Database.
        database: Name,
        /// User.
        user: String,
        /// Password.
        password: Secret,
        /// Cluster whose nodes all have the tables.
        cluster: Name,
        /// Age of records that are removed.
        retention_days: Count,
        /// Most rows of an insert.
        batch_rows: Count,
        /// How long an insert waits for company.
        batch_wait: Span,
        /// The server gathers inserts.
        async_insert: bool,
    }
}

section! {
    /// `[otlp]`
    Otlp {
        /// Where to, without the path of the protocol.
        endpoint: OtlpUrl,
        /// Headers of each post.
        headers: Headers,
        /// Attributes of the resource.
        resource: Pairs,
        /// Posts are compressed.
        gzip: bool,
        /// How long a post may take.
        timeout: Span,
        /// Share of runs.
        sample: Share,
        /// Silence after which a run has ended.
        run_idle: Span,
        /// The upstream is told our span.
        propagate: bool,
        /// Names.
        semconv: Semconv,
        /// Metrics are posted as well.
        metrics: bool,
        /// How often.
        metrics_interval: Span,
    }
}

section! {
    /// `[spool]`
    Spool {
        /// Most bytes on disk for one store.
        max_size: Size,
        /// What is given up beyond that.
        full: SpoolFull,
    }
}

section! {
    /// `[capture]`
    Capture {
        /// How much.
        mode: CaptureMode,
        /// Most bytes of one body.
        max_body: Size,
        /// Age of bodies that are removed.
        retention_days: Count,
        /// Size beyond which the oldest are removed.
        retention_size: Size,
        /// What else is replaced.
        rules: Rules,
    }
}
