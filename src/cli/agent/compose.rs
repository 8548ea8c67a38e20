//! Puts an agent together: model, tools, journal, listeners.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

use super::line::Lines;
use super::settings::{self, Common, Whom};
use super::terminal::Terminal;
use crate::agent::budget::Budget;
use crate::agent::driver::{Delegated, Options, Parts};
use crate::agent::journal::{Database, Directory, Fsync, Journals, MAIN, Scratch};
use crate::agent::lineage::Lineage;
use crate::agent::machine::Setup;
use crate::agent::model::{Endpoint, format_of};
use crate::agent::notice::{Listener, Several};
use crate::agent::tools::{Commands, Fetch, Root, Toolbox, builtin, fetch_url, run_command};
use crate::agent::trace::Tracer;
use crate::clock::Clock;
use crate::config::{Config, ConfigError, Environment, Problem, SyncEvents, Upstream};
use crate::export::otlp::{AgentExporter, Provider};
use crate::proxy::upstream;
use crate::usage::PriceBook;

/// What a simulated provider takes for a key.
const SIM_KEY: &str = "simulated";

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

/// An agent that only lacks its journal.
pub struct Composed {
    pub endpoint: Arc<Endpoint>,
    pub toolbox: Toolbox,
    pub listener: Arc<dyn Listener>,
    pub terminal: Option<Arc<Terminal>>,
    pub exporter: Option<AgentExporter>,
    pub budget: Budget,
    pub delegated: Delegated,
    pub cancelled: CancellationToken,
    pub options: Options,
    pub model: String,
}

/// Puts one together. `base` is the base URL of a simulated provider.
///
/// # Errors
/// There is no key, no price for a cap on money, or something that the settings name.
pub fn compose(
    config: &Config,
    common: &Common,
    base: Option<&str>,
    cancelled: CancellationToken,
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
    let format = format_of(settings.api);
    let endpoint = Endpoint {
        format,
        base: whom.base.clone(),
        key: whom.key,
        client: client.clone(),
        prices: Arc::new(prices),
        provider: whom.provider.to_owned(),
        silence: config.idle_timeout,
    };

    let mut listeners: Vec<Arc<dyn Listener>> = Vec::new();
    let run = settings.run.clone().or_else(|| {
        let named = environment.get("PREFIXGATE_RUN")?;
        named.to_str().map(str::to_owned)
    });
    listeners.push(Arc::new(Lineage::new(
        run,
        settings.app.clone(),
        settings.agent.clone(),
    )));
    let mut exporter = None;
    if let Some(otlp) = &config.otlp {
        let parent = environment.get("TRACEPARENT");
        let parent = parent.and_then(|value| value.to_str()).map(str::to_owned);
        let (tracer, spans) =
            Tracer::new(Clock::Real, parent, settings.app.clone(), otlp.sample_ppm);
        let provider = Provider::of(&Upstream {
            name: whom.provider.to_owned(),
            base: whom.base.parse().with_context(|| format!("base URL {}", whom.base))?,
            format: crate::config::Format::Opaque,
            price_provider: whom.provider.to_owned(),
            dialect: crate::provider::dialect::Dialect::default(),
        });
        exporter = Some(AgentExporter::start(otlp, provider, client.clone(), spans));
        listeners.push(Arc::new(tracer));
    }
    let terminal = (!common.quiet && !common.json).then(|| Arc::new(Terminal::new()));
    if let Some(terminal) = &terminal {
        listeners.push(Arc::clone(terminal) as Arc<dyn Listener>);
    }
    if common.json {
        listeners.push(Arc::new(Lines));
    }

    Ok(Composed {
        endpoint: Arc::new(endpoint),
        toolbox: toolbox(config, client)?,
        listener: Arc::new(Several(listeners)),
        terminal,
        exporter,
        budget: Budget::default(),
        delegated: Delegated::default(),
        cancelled,
        options: Options {
            eager: settings.eager_tools,
            ..Options::default()
        },
        model: whom.model,
    })
}

/// What would only fail later.
fn checked(config: &Config, whom: &Whom, prices: &PriceBook) -> anyhow::Result<()> {
    let settings = &config.agent;
    let own = whom.base.starts_with("https://api.anthropic.com")
        || whom.base.starts_with("https://api.openai.com");
    if own && whom.key.is_empty() {
        anyhow::bail!(
            "no key for {}: set {}, name another variable with --key-env, or try it without an \
             account: prefixgate agent --sim",
            whom.base,
            whom.key_env
        );
    }
    let priced = || {
        let now = Clock::Real.utc_ms();
        prices.rates_for(whom.provider, &whom.model, 0, now).is_some()
    };
    if settings.max_pico.is_some() && !priced() {
        let message = format!(
            "the price of {} is not known, so a cap on money cannot be kept: add a [[price]] \
             section for it to the configuration file, or cap tokens with --max-tokens-total",
            whom.model
        );
        let place = config.origin("agent.max_usd").to_string();
        return Err(ConfigError {
            problems: vec![Problem { place, message }],
        }
        .into());
    }
    Ok(())
}

fn toolbox(config: &Config, client: upstream::UpstreamClient) -> anyhow::Result<Toolbox> {
    let settings = &config.agent;
    let root = Root::new(&settings.root)
        .with_context(|| format!("--root {}", settings.root.display()))?;
    let mut toolbox = Toolbox::new();
    for tool in builtin(&root) {
        toolbox.add(tool);
    }
    if !settings.allow.is_empty() {
        toolbox.add(run_command(&root, Commands::allow(&settings.allow)));
    }
    if settings.fetch {
        toolbox.add(fetch_url(Fetch::new(client)));
    }
    Ok(toolbox)
}

impl Composed {
    /// What a new run begins with.
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
            tools: self.toolbox.specs(),
            max_tokens: settings.max_tokens,
            effort: settings.effort.clone(),
            window: settings.window,
            compact_at: settings.compact_at.unwrap_or(settings.window / 5 * 4),
            limits: settings::limits(settings),
            loop_threshold: settings.loop_threshold,
        })
    }

    /// The parts of the outermost agent.
    pub fn parts(&self, journal: Box<dyn crate::agent::journal::Journal>) -> Parts {
        Parts {
            endpoint: Arc::clone(&self.endpoint),
            toolbox: Arc::new(self.toolbox.clone()),
            journal,
            listener: Arc::clone(&self.listener),
            budget: self.budget.clone(),
            delegated: Delegated::clone(&self.delegated),
            cancelled: self.cancelled.clone(),
            clock: Clock::Real,
            options: self.options.clone(),
        }
    }
}
