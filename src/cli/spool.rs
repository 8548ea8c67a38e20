//! `prefixgate spool`: what waits on disk for the remote stores.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::json;

use super::report::json::time as utc;
use super::report::show::many;
use super::report::table::{Align, Table};
use crate::config::{Config, Options};
use crate::server::remotes::{CLICKHOUSE, OTLP, limits, spool_dir};
use crate::spool::{self, Reason, Status};

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// What waits, what was sent, what was lost; also beside a running gateway
    Status,
    /// Queue what the store has refused once more: it goes out when the gateway runs
    Replay,
    /// Give up what waits. It is counted as lost
    Drop,
}

/// A remote store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    Clickhouse,
    Otlp,
}

impl Store {
    const fn name(self) -> &'static str {
        match self {
            Self::Clickhouse => CLICKHOUSE,
            Self::Otlp => OTLP,
        }
    }
}

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do
    #[arg(value_enum, default_value_t = Action::Status)]
    action: Action,
    /// Only this store
    #[arg(long, value_enum)]
    store: Option<Store>,
    /// Print JSON: one array
    #[arg(long)]
    json: bool,
    /// With `drop`: do it without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    options: Options,
}

/// Runs it.
///
/// # Errors
/// The configuration is wrong, a spool cannot be read, or a running gateway holds what is to be
/// changed.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.options)?;
    let stores: Vec<&str> = match args.store {
        Some(store) => vec![store.name()],
        None => vec![CLICKHOUSE, OTLP],
    };
    let found: Vec<(&str, PathBuf)> = (stores.into_iter())
        .map(|store| (store, spool_dir(&config.data_dir, store)))
        .filter(|(_, dir)| dir.exists())
        .collect();
    let mut out = std::io::stdout().lock();
    if found.is_empty() {
        if args.json {
            writeln!(out, "[]")?;
        } else {
            writeln!(
                out,
                "no spool in {}: no remote store has been used with this data directory",
                config.data_dir.display()
            )?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    match args.action {
        Action::Status => {
            let all = (found.iter())
                .map(|(store, dir)| Ok((*store, look(dir)?)))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let text = if args.json {
                as_json(&all)?
            } else {
                table(&all)
            };
            out.write_all(text.as_bytes())?;
        }
        Action::Replay => {
            for (store, dir) in &found {
                free(store, dir)?;
                let again = spool::requeue(dir, limits(&config))
                    .with_context(|| format!("the records set aside in {}", dir.display()))?;
                writeln!(
                    out,
                    "{store}: {} queued again, {} stay set aside; the gateway sends them when it runs",
                    many(again.appended, "record"),
                    again.left
                )?;
            }
        }
        Action::Drop => {
            for (store, dir) in &found {
                free(store, dir)?;
                let waiting = look(dir)?.waiting.records;
                if !args.yes && waiting > 0 {
                    bail!(
                        "{store}: {} would be lost; say --yes to give them up",
                        many(waiting, "record")
                    );
                }
                let gone =
                    spool::discard(dir).with_context(|| format!("the spool {}", dir.display()))?;
                writeln!(out, "{store}: {} given up", many(gone, "record"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn look(dir: &Path) -> anyhow::Result<Status> {
    spool::status(dir).with_context(|| format!("cannot read the spool {}", dir.display()))
}

/// Refuses what a running gateway holds.
fn free(store: &str, dir: &Path) -> anyhow::Result<()> {
    if look(dir)?.in_use {
        bail!(
            "a running gateway uses the spool for {store} ({}): stop it first",
            dir.display()
        );
    }
    Ok(())
}

fn table(all: &[(&str, Status)]) -> String {
    let mut table = Table::new(&[
        ("STORE", Align::Left),
        ("WAITING", Align::Right),
        ("BYTES", Align::Right),
        ("OLDEST", Align::Left),
        ("DELIVERED", Align::Right),
        ("DROPPED", Align::Right),
        ("SET ASIDE", Align::Right),
        ("GATEWAY", Align::Left),
    ]);
    let mut notes = String::new();
    for (store, status) in all {
        let counted = &status.counted;
        table.row(vec![
            (*store).to_owned(),
            status.waiting.records.to_string(),
            status.segments.1.to_string(),
            status.waiting.oldest_ms.and_then(utc).unwrap_or_default(),
            counted.delivered.to_string(),
            counted.dropped_total().to_string(),
            status.set_aside.0.to_string(),
            if status.in_use { "running" } else { "" }.to_owned(),
        ]);
        let lost: Vec<String> = (Reason::ALL.into_iter())
            .map(|why| (why, counted.dropped_for(why)))
            .filter(|(_, n)| *n > 0)
            .map(|(why, n)| format!("{n} {}", why.as_str()))
            .collect();
        if !lost.is_empty() {
            notes += &format!("{store}: dropped {}\n", lost.join(", "));
        }
        if status.set_aside.0 > 0 {
            notes += &format!(
                "{store}: the store refused {}; `prefixgate spool replay` queues them again\n",
                many(status.set_aside.0, "record")
            );
        }
        if status.unreadable > 0 {
            notes += &format!(
                "{store}: {} cannot be read\n",
                many(status.unreadable as u64, "segment")
            );
        }
    }
    table.render() + &notes
}

fn as_json(all: &[(&str, Status)]) -> anyhow::Result<String> {
    let rows: Vec<_> = (all.iter())
        .map(|(store, status)| {
            let counted = &status.counted;
            let dropped: serde_json::Map<_, _> = (Reason::ALL.into_iter())
                .map(|why| (why.as_str().to_owned(), counted.dropped_for(why).into()))
                .collect();
            json!({
                "store": store,
                "in_use": status.in_use,
                "waiting_records": status.waiting.records,
                "waiting_bytes": status.waiting.bytes,
                "disk_bytes": status.segments.1,
                "oldest": status.waiting.oldest_ms.and_then(utc),
                "claimed": status.claimed,
                "accepted": counted.accepted(),
                "delivered": counted.delivered,
                "dropped": dropped,
                "set_aside": status.set_aside.0,
                "unreadable_segments": status.unreadable,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}
