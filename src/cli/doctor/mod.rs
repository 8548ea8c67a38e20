//! `prefixgate doctor`: does the set-up work, and if not, what to do.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use super::reach;
use crate::config::{Config, Options};

mod clients;
mod machine;
mod network;
mod stores;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Base URL that clients use for a gateway on another machine; checks the clients only
    #[arg(long, value_name = "URL")]
    gateway: Option<String>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Only ask whether this machine's gateway is ready: says nothing if so (for health checks)
    #[arg(long, conflicts_with_all = ["gateway", "json"])]
    ready: bool,
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// Works, or may work, but is probably not what is wanted.
    Warn,
    /// Does not work.
    Fail,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// What was looked at.
    check: String,
    /// How it ended.
    status: Status,
    /// What was found.
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            status: Status::Ok,
            detail: detail.into(),
            advice: None,
        }
    }

    fn warn(
        check: impl Into<String>,
        detail: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Warn,
            advice: Some(advice.into()),
            ..Self::ok(check, detail)
        }
    }

    fn fail(
        check: impl Into<String>,
        detail: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            status: Status::Fail,
            advice: Some(advice.into()),
            ..Self::ok(check, detail)
        }
    }
}

/// Runs all checks and prints them; the exit code is 1 if one of them failed.
///
/// # Errors
/// When `--gateway` is no URL, or no runtime or output can be had.
pub fn main(args: Args) -> anyhow::Result<ExitCode> {
    let gateway = args
        .gateway
        .as_deref()
        .map(network::parse_gateway)
        .transpose();
    let gateway = match gateway {
        Ok(gateway) => gateway,
        Err(message) => {
            eprintln!("--gateway: {message}");
            return Ok(ExitCode::from(super::EXIT_USAGE));
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    if args.ready {
        return runtime.block_on(ready(&args.options));
    }
    let findings = runtime.block_on(examine(&args.options, gateway));
    // A name lookup that hangs sits in a thread that nothing can end; do not wait for it.
    runtime.shutdown_background();
    let failed = findings
        .iter()
        .any(|finding| finding.status == Status::Fail);
    let text = if args.json {
        json(&findings, failed)?
    } else {
        table(&findings)
    };
    super::print(&text)?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Asks the admin listener of the configuration, so that a container needs no other program for it.
async fn ready(options: &Options) -> anyhow::Result<ExitCode> {
    let config = Config::load(options)?;
    match reach::ready(config.admin).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("not ready: {error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Claude Code's settings that lead it past the gateway at `base`, and what to do.
pub(super) fn claude_overrides(base: &str) -> Vec<String> {
    clients::claude_overrides(&clients::Surroundings::process(), base)
}

/// A URL without the password that it may hold.
pub(super) fn without_password(url: &str) -> String {
    match (url.find("//"), url.rfind('@')) {
        (Some(start), Some(end)) if start < end => {
            format!("{}//***{}", &url[..start], &url[end..])
        }
        _ => url.to_owned(),
    }
}

async fn examine(options: &Options, gateway: Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = match Config::load(options) {
        Ok(config) => config,
        Err(error) => {
            findings.extend(error.problems.iter().map(|problem| {
                let advice = "correct it; `prefixgate check` validates without starting anything";
                Finding::fail("configuration", problem.to_string(), advice)
            }));
            return findings;
        }
    };
    let file = config.file.as_ref().map(|path| path.display().to_string());
    findings.push(Finding::ok(
        "configuration",
        file.unwrap_or_else(|| "no file, defaults".to_owned()),
    ));
    for warning in &config.warnings {
        let (what, why) = warning.split_once(": ").unwrap_or((warning, "not used"));
        findings.push(Finding::warn("configuration", what, why));
    }
    let base = match gateway {
        Some(gateway) => {
            findings.push(network::round_trip(&gateway).await);
            gateway
        }
        None => here(&config, &mut findings).await,
    };
    clients::examine(&clients::Surroundings::process(), &base, &mut findings).await;
    findings
}

/// What belongs to the gateway's own machine. Gives the base URL that clients should have.
async fn here(config: &Config, findings: &mut Vec<Finding>) -> String {
    findings.push(machine::data_dir(&config.data_dir));
    let found = reach::ask(config.admin).await;
    findings.extend(machine::ports(config, &found));
    findings.extend(network::upstreams(config).await);
    stores::examine(config, findings).await;
    match found {
        reach::Found::Prefixgate { proxy, .. } => {
            findings.push(network::round_trip(&proxy).await);
            proxy
        }
        _ => {
            let advice = "start it with `prefixgate serve`, or run a command through one: `prefixgate run -- COMMAND`";
            let detail = match config.listen.port() {
                0 => {
                    "not running; its port is chosen anew at each start, so clients cannot be checked"
                }
                _ => "not running",
            };
            findings.push(Finding::warn("gateway", detail, advice));
            format!("http://{}", reach::from_here(config.listen))
        }
    }
}

fn json(findings: &[Finding], failed: bool) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Report<'a> {
        ok: bool,
        checks: &'a [Finding],
    }
    Ok(serde_json::to_string_pretty(&Report {
        ok: !failed,
        checks: findings,
    })? + "\n")
}

fn table(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.check.len())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for Finding {
        check,
        status,
        detail,
        advice,
    } in findings
    {
        let status = match status {
            Status::Ok => "ok  ",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{status}  {check:width$}  {detail}");
        if let Some(advice) = advice {
            let _ = writeln!(out, "{:indent$}-> {advice}", "", indent = width + 8);
        }
    }
    let count = |status| {
        findings
            .iter()
            .filter(|finding| finding.status == status)
            .count()
    };
    let _ = match (count(Status::Fail), count(Status::Warn)) {
        (0, 0) => writeln!(out, "\nall is well"),
        (0, warned) => writeln!(out, "\nworks, with {warned} to look at"),
        (failed, warned) => writeln!(out, "\n{failed} failed, {warned} to look at"),
    };
    out
}
