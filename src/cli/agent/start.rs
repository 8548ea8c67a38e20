//! A run from its start, or from where it stopped, to its summary.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::compose::{self, Composed, Kept};
use super::known::{self, Begun};
use super::settings::{self, Common};
use super::simulated::{self, Simulated};
use super::stop;
use super::summary::Summary;
use crate::agent::crew::Post;
use crate::agent::machine::{Outcome, Setup};
use crate::agent::pattern::{Pattern, Report};
use crate::config::{self, Config};

/// How long the last spans may take.
const FLUSH: Duration = Duration::from_secs(5);

/// Arguments of `agent resume`.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// Id of the run
    #[arg(id = "run_id", value_name = "RUN")]
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
    let begun = Begun {
        flags: common.clone().anchored(&config.agent),
        task,
    };
    let data_dir = kept.lasting.then(|| config.data_dir.clone());
    let session = Session::open(&mut config, &common, &run, kept).await?;
    let ended = async {
        let setup = session.composed.setup(&config, &run)?;
        if let Some(data_dir) = data_dir {
            known::keep(&data_dir, &run, &begun)?;
        }
        session.work(&setup, &begun.task).await
    };
    let ended = ended.await;
    session.close(&run, ended).await
}

/// Goes on with a run.
///
/// # Errors
/// There is no such run, it has nothing left to do, or it cannot be read or written.
pub async fn resume(args: Resume) -> anyhow::Result<ExitCode> {
    let Resume { run, say, common } = args;
    let Begun { flags, task } = known::begun(&common.load()?.data_dir, &run)?;
    let other_model = common.options.model.is_some() || common.options.api.is_some();
    let common = common.or(flags);
    let mut config = common.load()?;
    let kept = compose::journals(&config)?;
    let summary = kept.journals.summary(&run)?;
    let react = config.agent.pattern == config::Pattern::React;
    if react && summary.outcome == Some(Outcome::EndTurn) && say.is_none() {
        anyhow::bail!("run {run} has ended; say something to go on: --say TEXT");
    }
    if !react && (say.is_some() || other_model) {
        anyhow::bail!("--say and another model are for runs of the pattern react");
    }
    let session = Session::open(&mut config, &common, &run, kept).await?;
    let ended = async {
        let setup = session.composed.setup(&config, &run)?;
        session.composed.crew.recall(&run)?;
        if !react {
            return session.work(&setup, &task).await;
        }
        session.go_on(setup, say.as_deref(), other_model).await
    };
    let ended = ended.await;
    session.close(&run, ended).await
}

/// What stands around a run.
struct Session {
    composed: Composed,
    kept: Kept,
    simulated: Option<Simulated>,
    cancelled: CancellationToken,
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
                let notes = scratch.join("memory").to_string_lossy().into_owned();
                config.agent.memory.get_or_insert(notes);
            }
            simulated = Some(Simulated::start(scratch, config.otlp.clone()).await?);
        }
        let base = simulated.as_ref().map(|simulated| simulated.base.as_str());
        let journals = Arc::clone(&kept.journals);
        Ok(Self {
            composed: compose::compose(config, common, journals, base).await?,
            kept,
            simulated,
            cancelled,
            quiet: common.quiet,
            json: common.json,
        })
    }

    /// Works by the pattern, from the beginning or from where the journals stand.
    async fn work(&self, setup: &Setup, task: &str) -> anyhow::Result<Report> {
        let Composed { crew, pattern, .. } = &self.composed;
        Ok(pattern.work(crew, setup, task, &self.cancelled).await?)
    }

    /// Goes on with the only agent of a run, with what the user says now.
    async fn go_on(
        &self,
        setup: Setup,
        say: Option<&str>,
        other_model: bool,
    ) -> anyhow::Result<Report> {
        let crew = &self.composed.crew;
        let post = Post {
            setup,
            task: String::new(),
            allowed: None,
            budget: crew.budget.clone(),
            cancelled: self.cancelled.clone(),
        };
        let mut agent = match say {
            Some(say) => crew.told(post, say)?,
            None => crew.agent(post)?,
        };
        if other_model {
            agent.switch(Arc::clone(&crew.endpoint), &self.composed.model)?;
        }
        let outcome = agent.go().await?;
        Ok(Report {
            passed: outcome == Outcome::EndTurn,
            outcome,
            answer: agent.run().answer(),
            why: None,
        })
    }

    /// Ends everything around the run, and tells what it came to.
    async fn close(self, run: &str, ended: anyhow::Result<Report>) -> anyhow::Result<ExitCode> {
        let Composed {
            crew,
            pattern,
            terminal,
            exporter,
            servers,
            ..
        } = self.composed;
        let several = !matches!(pattern, Pattern::React);
        let summary = ended.and_then(|report| Summary::of(run, report, &crew, &self.kept, several));
        if let Some(servers) = servers {
            servers.shutdown().await;
        }
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
        let code = ExitCode::from(summary.exit_code());
        if self.json {
            super::super::print(&format!("{}\n", summary.json()))?;
            return Ok(code);
        }
        // Both ends of one terminal: the answer has just been read there.
        let read =
            !self.quiet && std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        if let Some(answer) = summary.answer.as_ref().filter(|_| !read) {
            super::super::print(&format!("{}\n", answer.trim_end()))?;
        }
        if let Some(terminal) = terminal {
            terminal.line(summary.text().trim_end());
            if let Some(seen) = seen {
                terminal.line(&seen);
            }
        } else if summary.exit_code() != 0 {
            // Quiet is about progress; that there is no answer has to be said.
            eprint!("{}", summary.text());
        }
        Ok(code)
    }
}
