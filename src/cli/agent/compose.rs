//! Puts the agents of a run together: model, tools, memory, journals, listeners.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http::header::{HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use super::line::Lines;
use super::servers::Servers;
use super::settings::{self, Common, Whom};
use super::terminal::Terminal;
use crate::agent::budget::{Budget, check_price};
use crate::agent::crew::Crew;
use crate::agent::driver::Options;
use crate::agent::journal::{Database, Directory, Fsync, Journals, MAIN, Scratch};
use crate::agent::lineage::Renamed;
use crate::agent::machine::Setup;
use crate::agent::memory::{self, Files, Memory, Redis, Sqlite};
use crate::agent::model::{Endpoint, format_of};
use crate::agent::notice::{Listener, Several};
use crate::agent::pattern::{Check, Pattern, PlanExecute, Reflexion};
use crate::agent::subagent::Spawning;
use crate::agent::tools::{Commands, Fetch, Root, Toolbox, builtin, fetch_url, run_command};
use crate::agent::trace::Tracer;
use crate::clock::Clock;
use crate::config::{self, Config, ConfigError, Environment, Problem, SyncEvents, Upstream};
use crate::export::otlp::{AgentExporter, Provider};
use crate::proxy::upstream::{self, UpstreamClient};
use crate::usage::PriceBook;

/// What a simulated provider takes for a key.
const SIM_KEY: &str = "simulated";
/// The key of notes in Redis.
const REDIS_KEY: &str = "prefixgate:agent:memory";
/// How long a check of an attempt may take.
const CHECK_LIMIT: Duration = Duration::from_secs(30 * 60);

const APP: HeaderName = HeaderName::from_static("x-prefixgate-app");

/// Where runs are kept.
pub struct Kept {
    pub journals: Arc<dyn Journals>,
    /// They outlive the process.
    pub lasting: bool,
}

/// The journals that the configuration names.
///
/// # Errors
/// The database cannot be opened.
pub fn journals(config: &Config) -> anyhow::Result<Kept> {
    let fsync = match config.agent.fsync {
        SyncEvents::Always => Fsync::Always,
        SyncEvents::Turn => Fsync::Turn,
        SyncEvents::Never => Fsync::Never,
    };
    let (journals, lasting): (Arc<dyn Journals>, bool) = match config.agent.journal.as_deref() {
        None => (Arc::new(Directory::new(&config.data_dir, fsync)), true),
        Some("none") => (Arc::new(Scratch::default()), false),
        Some(place) => match place.strip_prefix("sqlite:") {
            Some(file) => (Arc::new(Database::open(Path::new(file), fsync)?), true),
            None => (Arc::new(Directory::new(Path::new(place), fsync)), true),
        },
    };
    Ok(Kept { journals, lasting })
}

/// The agents of a run, and what stands around them.
pub struct Composed {
    pub crew: Arc<Crew>,
    pub pattern: Pattern,
    pub model: String,
    pub terminal: Option<Arc<Terminal>>,
    pub exporter: Option<AgentExporter>,
    pub servers: Option<Servers>,
}

/// Puts them together. `base` is the base URL of a simulated provider.
///
/// # Errors
/// There is no key, no price for a cap on money, or something that the settings name.
pub async fn compose(
    config: &Config,
    common: &Common,
    journals: Arc<dyn Journals>,
    base: Option<&str>,
) -> anyhow::Result<Composed> {
    let settings = &config.agent;
    let environment = Environment::process();
    let mut whom = Whom::of(settings, &environment);
    if let Some(base) = base {
        base.clone_into(&mut whom.base);
        SIM_KEY.clone_into(&mut whom.key);
    }
    let prices = PriceBook::new(&config.prices).context("the price data is not usable")?;
    checked(config, &whom, &prices)?;
    let client = upstream::clients(config)?.pooled;
    let memory = memory_of(config)?;
    let (tools, servers) = toolbox(config, &client, memory.clone()).await?;

    let mut listeners: Vec<Arc<dyn Listener>> = Vec::new();
    let run = settings.run.clone().or_else(|| {
        let named = environment.get("PREFIXGATE_RUN")?;
        named.to_str().map(str::to_owned)
    });
    if run.is_some() || settings.agent.is_some() {
        listeners.push(Arc::new(Renamed::new(run, settings.agent.clone())));
    }
    let (exporter, tracer) = trace(config, &environment, &whom, &client)?.unzip();
    listeners.extend(tracer);
    let terminal = (!common.quiet && !common.json).then(|| Arc::new(Terminal::new()));
    if let Some(terminal) = &terminal {
        listeners.push(Arc::clone(terminal) as Arc<dyn Listener>);
    }
    if common.json {
        listeners.push(Arc::new(Lines));
    }

    let mut options = Options {
        eager: settings.eager_tools,
        ..Options::default()
    };
    if let Some(app) = &settings.app {
        let value = HeaderValue::from_str(app).with_context(|| format!("--app {app:?}"))?;
        options.headers.push((APP, value));
    }
    let crew = Crew {
        endpoint: Arc::new(Endpoint {
            format: format_of(settings.api),
            base: whom.base,
            key: whom.key,
            client,
            prices: Arc::new(prices),
            provider: whom.provider.to_owned(),
            silence: config.idle_timeout,
        }),
        tools,
        spawning: Some(Spawning::default()),
        journals,
        listener: Arc::new(Several(listeners)),
        budget: Budget::default(),
        clock: Clock::Real,
        options,
    };
    Ok(Composed {
        crew: Arc::new(crew),
        pattern: pattern(config, memory)?,
        model: whom.model,
        terminal,
        exporter,
        servers,
    })
}

/// What would only fail later.
fn checked(config: &Config, whom: &Whom, prices: &PriceBook) -> anyhow::Result<()> {
    let limits = settings::limits(&config.agent);
    let now = Clock::Real.utc_ms();
    if check_price(prices, whom.provider, &whom.model, &limits, now).is_err() {
        let message = format!(
            "the price of {} is not known, so a cap on money cannot be kept: add a [[price]] \
             section for it to the configuration file, or cap tokens with --max-tokens-total",
            whom.model
        );
        let place = config.origin("agent.max_usd").to_string();
        let problems = vec![Problem { place, message }];
        return Err(ConfigError { problems }.into());
    }
    if whom.is_own() && whom.key.is_empty() {
        anyhow::bail!(
            "no key for {}: set {}, name another variable with --key-env, or try it without an \
             account: prefixgate agent --sim",
            whom.base,
            whom.key_env
        );
    }
    Ok(())
}

/// Traces, where the configuration says where to.
fn trace(
    config: &Config,
    environment: &Environment,
    whom: &Whom,
    client: &UpstreamClient,
) -> anyhow::Result<Option<(AgentExporter, Arc<dyn Listener>)>> {
    let Some(otlp) = &config.otlp else {
        return Ok(None);
    };
    let parent = environment.get("TRACEPARENT");
    let parent = parent.and_then(|value| value.to_str()).map(str::to_owned);
    let app = config.agent.app.clone();
    let (tracer, spans) = Tracer::new(Clock::Real, parent, app, otlp.sample_ppm);
    let provider = Provider::of(&Upstream {
        name: whom.provider.to_owned(),
        base: (whom.base.parse()).with_context(|| format!("base URL {}", whom.base))?,
        format: config::Format::Opaque,
        price_provider: whom.provider.to_owned(),
        dialect: crate::provider::dialect::Dialect::default(),
    });
    let exporter = AgentExporter::start(otlp, provider, client.clone(), spans);
    Ok(Some((exporter, Arc::new(tracer))))
}

async fn toolbox(
    config: &Config,
    client: &UpstreamClient,
    memory: Option<Arc<dyn Memory>>,
) -> anyhow::Result<(Toolbox, Option<Servers>)> {
    let settings = &config.agent;
    let root =
        Root::new(&settings.root).with_context(|| format!("--root {}", settings.root.display()))?;
    let mut toolbox = Toolbox::new();
    for tool in builtin(&root) {
        toolbox.add(tool);
    }
    if !settings.allow.is_empty() {
        toolbox.add(run_command(
            &root,
            Commands::allowing(settings.allow.clone()),
        ));
    }
    if settings.fetch {
        toolbox.add(fetch_url(&Fetch {
            extra_ca: config.extra_ca.clone(),
            ..Fetch::default()
        })?);
    }
    if let Some(memory) = memory {
        toolbox.add(memory::tool(memory));
    }
    let Some(path) = &settings.mcp else {
        return Ok((toolbox, None));
    };
    let servers = Servers::connect(path, client).await?;
    for tool in servers.tools() {
        toolbox.add(tool);
    }
    Ok((toolbox, Some(servers)))
}

/// What outlives a run; by default the notes of the directory that is worked in.
fn memory_of(config: &Config) -> anyhow::Result<Option<Arc<dyn Memory>>> {
    let memory: Arc<dyn Memory> = match config.agent.memory.as_deref() {
        Some("none") => return Ok(None),
        None => Arc::new(Files::open(&notes_of(config))?),
        Some(place) if place.starts_with("redis") => Arc::new(Redis::new(place, REDIS_KEY)?),
        Some(place) => match place.strip_prefix("sqlite:") {
            Some(file) => Arc::new(Sqlite::open(Path::new(file))?),
            None => Arc::new(Files::open(Path::new(place))?),
        },
    };
    Ok(Some(memory))
}

/// Where the notes of a directory are: a place of its own for each, as they are about what is in it.
fn notes_of(config: &Config) -> PathBuf {
    let root = &config.agent.root;
    let root = root.canonicalize().unwrap_or_else(|_| root.clone());
    let hash = Sha256::digest(root.as_os_str().as_encoded_bytes());
    let hash: String = hash
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    config.data_dir.join("agent-memory").join(hash)
}

fn pattern(config: &Config, memory: Option<Arc<dyn Memory>>) -> anyhow::Result<Pattern> {
    let settings = &config.agent;
    Ok(match settings.pattern {
        config::Pattern::React => Pattern::React,
        config::Pattern::PlanExecute => Pattern::PlanExecute(PlanExecute::default()),
        config::Pattern::Reflexion => Pattern::Reflexion(Reflexion {
            attempts: settings.attempts,
            check: settings.check.clone().map(|command| Check {
                command,
                dir: settings.root.clone(),
                limit: CHECK_LIMIT,
            }),
            memory: match memory {
                Some(memory) => memory,
                None => Arc::new(Files::open(&notes_of(config))?),
            },
        }),
    })
}

impl Composed {
    /// What the first agent begins with.
    ///
    /// # Errors
    /// The system prompt cannot be read.
    pub fn setup(&self, config: &Config, run: &str) -> anyhow::Result<Setup> {
        let settings = &config.agent;
        Ok(Setup {
            run: run.to_owned(),
            agent: MAIN.to_owned(),
            parent: None,
            depth: 0,
            wire: settings.api,
            model: self.model.clone(),
            system: settings::system(settings)?,
            tools: Vec::new(),
            max_tokens: settings.max_tokens,
            effort: settings.effort.clone(),
            window: settings.window,
            compact_at: settings.compact_at.unwrap_or(settings.window / 5 * 4),
            limits: settings::limits(settings),
            loop_threshold: settings.loop_threshold,
        })
    }
}
