//! `prefixgate export`: moves what the trace database has to another store.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use super::report::when::When;
use super::report::{now_ms, print};
use crate::config::{Config, Options};
use crate::server::remotes::{CLICKHOUSE, spool_dir};
use crate::spool;
use crate::store::Sqlite;
use crate::store::clickhouse::{ClickHouseSink, Imported, Moved, import};

/// Where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// The ClickHouse of `[clickhouse]` or --clickhouse
    Clickhouse,
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to
    #[arg(long, value_enum)]
    to: Target,
    /// Only requests that started before then: 24h, 7d, a date or an RFC 3339 time. While a gateway writes there: when it began to
    #[arg(long, value_name = "WHEN")]
    until: Option<When>,
    #[command(flatten)]
    options: Options,
}

/// Runs it. What the server has already is left out, so that it can be repeated.
///
/// # Errors
/// No ClickHouse is configured, it cannot be reached, or the trace database cannot be read.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let Target::Clickhouse = args.to;
    let config = Config::load(&args.options)?;
    let Some(settings) = &config.clickhouse else {
        bail!("no ClickHouse is configured: --clickhouse URL, or `url` in [clickhouse]");
    };
    let _log = super::log::log_to_stderr();
    let now_ms = now_ms();
    let until_ms = match &args.until {
        Some(when) => when.at_ms(now_ms, &jiff::tz::TimeZone::UTC)?,
        None => {
            undelivered(&config)?;
            now_ms
        }
    };
    let mut store = Sqlite::open_read(&config.data_dir)?;
    let mut sink = ClickHouseSink::new(settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let moved = runtime
        .block_on(import(&mut sink, &mut store, until_ms, now_ms))
        .context("not everything was moved; it is safe to begin again")?;
    print(&summary(&moved))?;
    let refused = moved.turns.refused + moved.calls.refused + moved.events.refused;
    Ok(if refused > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Records that are on their way would be counted twice in the sums by hour: once with their batch
/// from the spool, once with the one from here.
fn undelivered(config: &Config) -> anyhow::Result<()> {
    let dir = spool_dir(&config.data_dir, CLICKHOUSE);
    if !dir.exists() {
        return Ok(());
    }
    let status = spool::status(&dir).with_context(|| format!("the spool {}", dir.display()))?;
    if status.in_use {
        bail!(
            "a running gateway writes to ClickHouse: say with --until when it began to, or stop it first"
        );
    }
    if status.waiting.records > 0 {
        bail!(
            "{} records wait for ClickHouse in the spool: let a gateway deliver them first (`prefixgate spool status`)",
            status.waiting.records
        );
    }
    Ok(())
}

fn summary(moved: &Imported) -> String {
    let line = |name: &str, of: &Moved| {
        let mut text = format!("{name}: {} sent, {} there already", of.sent, of.present);
        if of.outside > 0 {
            text += &format!(
                ", {} outside of the time that is kept or asked for",
                of.outside
            );
        }
        if of.refused > 0 {
            text += &format!(", {} refused by the server", of.refused);
        }
        text + "\n"
    };
    [
        line("turns and other requests", &moved.turns),
        line("tool calls", &moved.calls),
        line("events", &moved.events),
    ]
    .concat()
}
