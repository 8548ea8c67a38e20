//! A run from its start, or from where it stopped, to its summary.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::compose::{self, Composed, Kept};
use super::settings::{self, Common};
use super::simulated::{self, Simulated};
use super::summary::Summary;
use super::{known, stop};
use crate::agent::driver::Agent;
use crate::agent::journal::MAIN;
use crate::agent::machine::{Event, Outcome};
use crate::clock::Clock;
use crate::config::Config;

/// How long the last spans may take.
const FLUSH: Duration = Duration::from_secs(5);

/// Arguments of `agent resume`.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// Id of the run
    #[arg(value_name = "RUN")]
    run: String,
    /// What the user says before it goes on
    #[arg(long, value_name = "TEXT")]
    say: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Begins a run.
///
/// # Errors
/// It cannot start, or the journal cannot be written.
pub async fn begin(task: Option<String>, common: Common) -> anyhow::Result<ExitCode> {
    let task = match settings::task(task)? {
        None if common.sim => simulated::TASK.to_owned(),
        None => anyhow::bail!("no task: prefixgate agent [OPTIONS] TASK (or --sim to try it)"),
        Some(task) => task,
    };
    let mut config = common.load()?;
    let run = uuid::Uuid::now_v7().to_string();
    let kept = compose::journals(&config)?;
    if kept.lasting {
        known::keep(&config.data_dir, &run, &common.clone().anchored())?;
    }
    let session = Session::open(&mut config, &common, &run, kept).await?;
    let work = async {
        let composed = &session.composed;
        let setup = composed.setup(&config, &run)?;
        let journal = session.kept.journals.create(&run, MAIN)?;
        let mut agent = Agent::begin(composed.parts(journal), setup, &task)?;
        let outcome = agent.go().await?;
        Ok((agent, outcome))
    };
    let ended = work.await;
    session.close(ended).await
}

/// Goes on with a run.
///
/// # Errors
/// There is no such run, it has nothing left to do, or it cannot be read or written.
pub async fn resume(args: Resume) -> anyhow::Result<ExitCode> {
    let Resume { run, say, common } = args;
    let begun = known::flags(&common.load()?.data_dir, &run)?;
    let (more_caps, model) = (common.options.has_caps(), common.options.model.is_some());
    let other_model = model || common.options.api.is_some();
    let common = common.or(begun);
    let mut config = common.load()?;
    let kept = compose::journals(&config)?;
    let summary = kept.journals.summary(&run)?;
    if summary.outcome == Some(Outcome::EndTurn) && say.is_none() {
        anyhow::bail!("run {run} has ended; say something to go on: --say TEXT");
    }
    let session = Session::open(&mut config, &common, &run, kept).await?;
    let work = async {
        let composed = &session.composed;
        let journal = session.kept.journals.open(&run, MAIN)?;
        let resumed = Event::Resumed {
            limits: more_caps.then(|| settings::limits(&config.agent)),
        };
        let agent = Agent::resume(composed.parts(journal), resumed)?;
        let mut agent = agent.with_context(|| format!("run {run} has never been told a task"))?;
        agent.settle(&session.kept.journals.spent(&run)?)?;
        if other_model {
            agent.switch(Arc::clone(&composed.endpoint), &composed.model)?;
        }
        if let Some(say) = &say {
            agent.say(say)?;
        }
        let outcome = agent.go().await?;
        Ok((agent, outcome))
    };
    let ended = work.await;
    session.close(ended).await
}

/// What stands around a run.
struct Session {
    composed: Composed,
    kept: Kept,
    simulated: Option<Simulated>,
    quiet: bool,
    json: bool,
}

impl Session {
    async fn open(
        config: &mut Config,
        common: &Common,
        run: &str,
        kept: Kept,
    ) -> anyhow::Result<Self> {
        let cancelled = stop::watch(common.quiet || common.json)?;
        let mut simulated = None;
        if common.sim {
            let scratch = simulated::scratch(run)?;
            if common.options.root.is_none() {
                config.agent.root = simulated::playground(&scratch)?;
            }
            simulated = Some(Simulated::start(scratch, config.otlp.clone()).await?);
        }
        let base = simulated.as_ref().map(|simulated| simulated.base.as_str());
        Ok(Self {
            composed: compose::compose(config, common, base, cancelled)?,
            kept,
            simulated,
            quiet: common.quiet,
            json: common.json,
        })
    }

    /// Ends everything around the run, and tells what it came to.
    async fn close(self, ended: anyhow::Result<(Agent, Outcome)>) -> anyhow::Result<ExitCode> {
        let Composed {
            exporter, terminal, ..
        } = self.composed;
        let summary = ended.map(|(agent, outcome)| {
            let now = Clock::Real.utc_ms();
            Summary::of(agent.run(), &outcome, now, self.kept.lasting)
        });
        if let Some(exporter) = exporter {
            let report = exporter.finish(FLUSH).await;
            if report.lost > 0 {
                let why = report.why.unwrap_or_else(|| "too many at once".to_owned());
                eprintln!("prefixgate: spans were not sent to the OTLP receiver: {why}");
            }
        }
        let seen = match self.simulated {
            Some(simulated) => simulated.end().await,
            None => None,
        };
        let summary = summary?;
        if self.json {
            super::super::print(&format!("{}\n", summary.json()))?;
            return Ok(ExitCode::from(summary.outcome.exit_code()));
        }
        // Both ends of one terminal: the answer has just been read there.
        let read = !self.quiet && std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        if let Some(answer) = summary.answer.as_ref().filter(|_| !read) {
            super::super::print(&format!("{}\n", answer.trim_end()))?;
        }
        if let Some(terminal) = terminal {
            terminal.line(summary.text().trim_end());
            if let Some(seen) = seen {
                terminal.line(&seen);
            }
        } else if summary.outcome != Outcome::EndTurn {
            // Quiet is about progress; that there is no answer has to be said.
            eprint!("{}", summary.text());
        }
        Ok(ExitCode::from(summary.outcome.exit_code()))
    }
}
