//! Which store is asked.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;

use crate::config::{Config, Options};
use crate::store::{ClickHouseAnswers, Questions, Sqlite};

/// A store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The trace database in the data directory
    Sqlite,
    /// The ClickHouse of `[clickhouse]`, PREFIXGATE_CLICKHOUSE or --clickhouse
    Clickhouse,
}

/// The flags that say which.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// Directory of the trace database
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Store to ask [default: sqlite, or clickhouse with --clickhouse]
    #[arg(long, value_enum, value_name = "STORE")]
    store: Option<Kind>,
    /// Ask this ClickHouse instead of the trace database: URL as `prefixgate serve` takes it; the password may come from PREFIXGATE_CLICKHOUSE_PASSWORD
    #[arg(long, value_name = "URL")]
    clickhouse: Option<String>,
    /// Configuration file whose [clickhouse] is meant (or PREFIXGATE_CONFIG; else the usual one)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Asked {
    /// The data directory.
    pub(in crate::cli) fn data_dir(&self) -> PathBuf {
        self.data_dir
            .clone()
            .unwrap_or_else(crate::config::default_data_dir)
    }

    fn kind(&self) -> Kind {
        self.store.unwrap_or(match self.clickhouse {
            Some(_) => Kind::Clickhouse,
            None => Kind::Sqlite,
        })
    }

    /// Flags that do not go together.
    pub(in crate::cli) fn misuse(&self) -> Option<&'static str> {
        if self.kind() == Kind::Clickhouse {
            return None;
        }
        if self.clickhouse.is_some() {
            return Some("--clickhouse goes with --store clickhouse");
        }
        (self.config.is_some()).then_some("--config goes with --store clickhouse")
    }

    /// Opens it for questions.
    ///
    /// # Errors
    /// It is not configured, there is none, or it cannot be read.
    pub(in crate::cli) fn open(&self) -> anyhow::Result<Box<dyn Questions>> {
        if self.kind() == Kind::Sqlite {
            return Ok(Box::new(Sqlite::open_read(&self.data_dir())?));
        }
        let config = Config::load(&Options {
            config: self.config.clone(),
            clickhouse: self.clickhouse.clone(),
            ..Options::default()
        })?;
        let settings = config
            .clickhouse
            .as_ref()
            .context("no ClickHouse is configured: --clickhouse URL, or `url` in [clickhouse]")?;
        Ok(Box::new(ClickHouseAnswers::open(settings)?))
    }
}
