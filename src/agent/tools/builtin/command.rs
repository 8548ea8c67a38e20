//! Running programs.

use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::process::{Child, Command};

use super::Root;
use super::output::Output;
use super::pattern::Pattern;
use crate::agent::tools::process::{Group, environment};
use crate::agent::tools::{CallContext, Manners, Tool, ToolError, ToolResult, typed};

/// The variable that tells a program the idempotency key of the call that started it.
pub const CALL_KEY: &str = "PREFIXGATE_CALL_KEY";

/// What is kept of the two outputs of a program, in bytes.
const MAX_STDOUT: usize = 18 << 10;
const MAX_STDERR: usize = 9 << 10;
/// How long outputs may stay open after a program has ended: what it has left running holds them.
const AFTERWARDS: Duration = Duration::from_millis(200);
/// The tool ends its programs itself; the limit of the call lies this much behind.
const MARGIN: Duration = Duration::from_secs(10);

/// Which programs may run, and for how long.
#[derive(Debug, Clone)]
pub struct Commands {
    /// Names of programs, or patterns of names (`cargo`, `python3*`). Programs are then found by
    /// `PATH` only, and there is no shell, which could start anything, unless `sh` is among them.
    /// A single `*` allows everything.
    pub allow: Vec<String>,
    /// How long a program may run when the call says nothing.
    pub limit: Duration,
    /// The longest time that a call may ask for.
    pub longest: Duration,
}

impl Commands {
    /// These programs, for two minutes, or ten where a call asks for it.
    pub fn allowing<Name: Into<String>>(names: impl IntoIterator<Item = Name>) -> Self {
        Self {
            allow: names.into_iter().map(Into::into).collect(),
            limit: Duration::from_secs(120),
            longest: Duration::from_secs(600),
        }
    }

    fn all(&self) -> bool {
        self.allow.iter().any(|name| name == "*")
    }

    fn allows(&self, program: &str) -> bool {
        let fits = |name: &String| Pattern::new(name).is_ok_and(|pattern| pattern.fits(program));
        self.all() || !program.contains('/') && self.allow.iter().any(fits)
    }
}

/// The tool `run_command`.
///
/// A program runs in the directory of `root`, as the leader of a group of processes that is killed
/// when its time is up, when the call is cancelled, and when it has ended and left something
/// running. It has no standard input, and an environment without what looks like a secret, but with
/// [`CALL_KEY`]. It is no sandbox: what a program does with files and networks is its own affair.
#[must_use]
pub fn run_command(root: &Root, commands: Commands) -> Arc<dyn Tool> {
    let manners = Manners::CHANGES.within(commands.longest + MARGIN);
    let description = description(&commands);
    let shell = commands.allows("sh");
    let shared = Arc::new((root.clone(), commands));
    if shell {
        typed(
            "run_command",
            &description,
            manners,
            move |input: WithShell, context| run(Arc::clone(&shared), input, context),
        )
    } else {
        typed(
            "run_command",
            &description,
            manners,
            move |input: WithoutShell, context| run(Arc::clone(&shared), input.into(), context),
        )
    }
}

fn description(commands: &Commands) -> String {
    let (what, example) = match commands.allows("sh") {
        true => (
            "Runs a command: `command` is given to sh, `argv` is a program with its arguments, \
             without a shell"
                .to_owned(),
            r#"{"command": "cargo test 2>&1 | tail -40"}"#,
        ),
        false => (
            "Runs a program with its arguments, without a shell".to_owned(),
            r#"{"argv": ["cargo", "test"], "timeout_s": 300}"#,
        ),
    };
    let allowed = match commands.all() {
        true => String::new(),
        false => format!(" Allowed programs: {}.", commands.allow.join(", ")),
    };
    format!(
        "{what}. Use it to build, test and look around; for files the file tools are better, since \
         they say more. It has no input, so nothing that asks questions works, and what it leaves \
         running is ended with it. Example: {example}. Gives what it wrote, the middle left out \
         where that is long; a failure begins with the exit code. It is ended after {} s unless \
         timeout_s says otherwise ({} at most).{allowed}",
        commands.limit.as_secs(),
        commands.longest.as_secs()
    )
}

#[derive(Deserialize, JsonSchema)]
struct WithShell {
    /// A command line for sh; either this or argv
    #[serde(default)]
    command: Option<String>,
    /// A program and its arguments; either this or command
    #[serde(default)]
    argv: Option<Vec<String>>,
    /// Directory to run in, relative to the working directory; that itself when left out
    #[serde(default)]
    cwd: Option<String>,
    /// Seconds after which it is ended
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_s: Option<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct WithoutShell {
    /// The program and its arguments
    #[schemars(length(min = 1))]
    argv: Vec<String>,
    /// Directory to run in, relative to the working directory; that itself when left out
    #[serde(default)]
    cwd: Option<String>,
    /// Seconds after which it is ended
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_s: Option<u64>,
}

impl From<WithoutShell> for WithShell {
    fn from(input: WithoutShell) -> Self {
        Self {
            command: None,
            argv: Some(input.argv),
            cwd: input.cwd,
            timeout_s: input.timeout_s,
        }
    }
}

async fn run(shared: Arc<(Root, Commands)>, input: WithShell, context: CallContext) -> ToolResult {
    let (root, commands) = &*shared;
    let argv = match (input.command, input.argv) {
        (Some(line), None) => vec!["sh".to_owned(), "-c".to_owned(), line],
        (None, Some(argv)) if !argv.is_empty() => argv,
        _ => {
            return Err(ToolError::failed(
                "invalid_input",
                "either command or argv is wanted",
            ));
        }
    };
    if !commands.allows(&argv[0]) {
        let message = format!("{} is not among the allowed programs", argv[0]);
        return Err(ToolError::failed("not_allowed", message)
            .hint(format!("allowed are: {}", commands.allow.join(", "))));
    }
    let cwd = directory(root, input.cwd.as_deref().unwrap_or("."))?;
    let limit = input.timeout_s.map_or(commands.limit, Duration::from_secs);
    let limit = limit.min(commands.longest);
    let mut child = spawn(&argv, cwd, &context)?;
    let mut group = Group::led_by(child.id());
    let mut stdout = Output::new(MAX_STDOUT);
    let mut stderr = Output::new(MAX_STDERR);
    let end = follow(&mut child, &mut stdout, &mut stderr, limit, &context).await;
    group.kill();
    told(end, limit, stdout.text(), stderr.text())
}

fn directory(root: &Root, path: &str) -> Result<PathBuf, ToolError> {
    let full = root.resolve(path)?;
    match full.metadata() {
        Ok(about) if about.is_dir() => Ok(full),
        Ok(_) => Err(ToolError::failed(
            "not_found",
            format!("{path} is no directory"),
        )),
        Err(error) => Err(root.trouble(path, &error)),
    }
}

fn spawn(argv: &[String], cwd: PathBuf, context: &CallContext) -> Result<Child, ToolError> {
    Command::new(&argv[0])
        .args(&argv[1..])
        .current_dir(cwd)
        .env_clear()
        .envs(environment())
        .env(CALL_KEY, &context.key)
        // Nobody is there to turn pages or to be asked.
        .env("PAGER", "cat")
        .env("GIT_PAGER", "cat")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("TERM", "dumb")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                ToolError::failed("not_found", format!("there is no program {}", argv[0]))
            }
            _ => ToolError::failed("io", format!("{} cannot be started: {error}", argv[0])),
        })
}

/// How a program ended.
enum End {
    Exited(std::io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
}

async fn follow(
    child: &mut Child,
    stdout: &mut Output,
    stderr: &mut Output,
    limit: Duration,
    context: &CallContext,
) -> End {
    let out = child.stdout.take();
    let err = child.stderr.take();
    let mut reading = pin!(futures_util::future::join(
        stdout.read(out),
        stderr.read(err)
    ));
    let mut deadline = pin!(tokio::time::sleep(limit));
    let mut read = false;
    loop {
        tokio::select! {
            biased;
            () = context.cancelled.cancelled() => return End::Cancelled,
            _ = &mut reading, if !read => read = true,
            status = child.wait() => {
                if !read {
                    // What stays open longer is held by something left running.
                    let _ = tokio::time::timeout(AFTERWARDS, &mut reading).await;
                }
                return End::Exited(status);
            }
            () = &mut deadline => return End::TimedOut,
        }
    }
}

fn told(end: End, limit: Duration, stdout: String, stderr: String) -> ToolResult {
    let wrote = match (stdout.is_empty(), stderr.is_empty()) {
        (_, true) => stdout,
        (true, false) => format!("[stderr]\n{stderr}"),
        (false, false) => format!("{stdout}\n[stderr]\n{stderr}"),
    };
    let why = match end {
        End::Cancelled => {
            let message = "cancelled while it ran; it was killed, outcome unknown";
            return Err(ToolError::failed("cancelled", message));
        }
        End::TimedOut => format!(
            "timed out after {} s; it was killed with what it had started, outcome unknown",
            limit.as_secs()
        ),
        End::Exited(Ok(status)) if status.success() => return Ok(wrote),
        End::Exited(Ok(status)) => match status.code() {
            Some(code) => format!("exit code {code}"),
            None => status.to_string(),
        },
        End::Exited(Err(error)) => format!("how it ended is not known: {error}"),
    };
    Err(ToolError::Said(format!("{why}\n{wrote}")))
}
