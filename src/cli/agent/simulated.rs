//! `--sim`: a simulated provider, and a gateway before it, in this process. It needs no account and
//! costs nothing; what it shows is real: the loop, the wire, the cache and the gateway's books.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::summary::grouped;
use crate::config::{Config, Format, Otlp, Upstream};
use crate::provider::dialect::Dialect;
use crate::server::Gateway;
use crate::sim::{Options, Sim};
use crate::store::{Filter, Questions as _, Sqlite};
use crate::usage::usd_short;

/// What is done where no task is given. The words in brackets are the script of the simulated
/// model, which has no mind of its own.
pub const TASK: &str = "Look around in this directory, read hello.txt and say what it is about. \
[[plan:tool=list_files,read,read_missing,tool=search_files,read,read,end]]";

/// The file that scripted reads name.
const HELLO: &str = "hello.txt";

/// Both, until [`Simulated::end`].
pub struct Simulated {
    sim: Sim,
    gateway: Gateway,
    /// Records of the gateway, and a working directory where the user has named none.
    scratch: PathBuf,
    /// Base URL for the agent.
    pub base: String,
}

impl Simulated {
    /// Starts both. The tools see `root`.
    ///
    /// # Errors
    /// One of them does not start.
    pub async fn start(scratch: PathBuf, otlp: Option<Otlp>) -> anyhow::Result<Self> {
        let seed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |passed| u64::try_from(passed.as_nanos()).unwrap_or(1));
        let sim = Sim::start(Options {
            seed,
            record_requests: 0,
            // Paths are told as the tools want them: below the directory that they see.
            workdir: ".".to_owned(),
            ..Options::default()
        })
        .context("cannot start the simulated provider")?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::embedded(scratch.join("records"));
        config.listen = any;
        config.admin = any;
        config.otlp = otlp;
        let upstream = |name: &str, format, price_provider: &str| {
            anyhow::Ok(Upstream {
                name: name.to_owned(),
                base: sim
                    .base_url()
                    .parse()
                    .context("the simulated provider has no valid URL")?,
                format,
                price_provider: price_provider.to_owned(),
                dialect: Dialect::default(),
            })
        };
        config.upstreams = vec![
            upstream("anthropic", Format::Anthropic, "anthropic")?,
            upstream("openai", Format::OpenAi, "openai")?,
        ];
        let gateway = Gateway::start(config)
            .await
            .context("cannot start the gateway")?;
        let base = format!("http://{}", gateway.proxy_addr());
        Ok(Self {
            sim,
            gateway,
            scratch,
            base,
        })
    }

    /// Ends both, and says what the gateway has seen.
    pub async fn end(self) -> Option<String> {
        self.gateway.shutdown().await;
        self.sim.shutdown().await;
        let told = told(&self.scratch.join("records"));
        // A leftover in the temporary directory is not worth failing for.
        let _ = std::fs::remove_dir_all(&self.scratch);
        told
    }
}

/// What the books of the gateway say.
fn told(records: &Path) -> Option<String> {
    let runs = Sqlite::open_read(records)
        .ok()?
        .runs(&Filter::all(1))
        .ok()?;
    let totals = runs.first()?.totals;
    let paid = totals.known_cost()?;
    let without = totals.cost_no_cache_pico?;
    Some(format!(
        "the gateway saw {} requests, {} broken prefixes: {} with the prompt cache, {} without",
        grouped(totals.requests),
        totals.breaks,
        usd_short(paid),
        usd_short(without),
    ))
}

/// A directory of its own for one run, that nobody else can read.
///
/// # Errors
/// It cannot be made.
pub fn scratch(run: &str) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let dir = std::env::temp_dir().join(format!("prefixgate-agent-{run}"));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

/// A small directory for the tools to look at.
///
/// # Errors
/// It cannot be made.
pub fn playground(scratch: &Path) -> anyhow::Result<PathBuf> {
    let root = scratch.join("work");
    let place = || root.display().to_string();
    std::fs::create_dir(&root).with_context(place)?;
    let mut hello = String::from(
        "Every turn of an agent sends its whole conversation again. Providers keep the beginning\n\
         of a prompt in a cache for a while, and what is read from there costs a tenth. So what\n\
         comes first must stay the same, byte for byte, from turn to turn:\n\n",
    );
    for turn in 1..=60 {
        hello.push_str(&format!(
            "turn {turn:2}: everything that turn {:2} sent, and then what is new\n",
            turn - 1
        ));
    }
    std::fs::write(root.join(HELLO), hello).with_context(place)?;
    std::fs::write(
        root.join("notes.md"),
        "# Notes\n\n- prefix: what stays\n- suffix: what is new\n",
    )
    .with_context(place)?;
    Ok(root)
}
