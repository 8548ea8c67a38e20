//! `prefixgate run`: a command with its clients pointed at a gateway, and what it cost at the end.
//!
//! A gateway that already runs is used. Otherwise one is started in this process, on ports that
//! the system chooses: on the configured ones the next `prefixgate run` would take it for a
//! lasting gateway, and lose it in the middle of its work when this command ends.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::{Child, Command};

use super::doctor;
use super::reach::{self, Found};
use crate::config::{Config, Environment, GuardOptions, Options};
use crate::server;

/// Longest name of a run or an application; they are parts of a URL.
const NAME_MAX_CHARS: usize = 64;
/// How much of the program's name goes into a made-up run id.
const PROGRAM_MAX_CHARS: usize = 24;
/// A gateway of ours has no other client: what still runs when the command has ended is left over.
const OWN_DRAIN: Duration = Duration::from_secs(3);
/// Another process writes the records: asked this often, until two answers agree.
const SUMMARY_TRIES: u32 = 4;
const SUMMARY_PAUSE: Duration = Duration::from_millis(250);

/// As shells have it: not found, found but not startable.
const EXIT_NOT_FOUND: u8 = 127;
const EXIT_NOT_STARTED: u8 = 126;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    guards: GuardOptions,
    /// Name of the run; made up if not given
    #[arg(long, value_name = "NAME", value_parser = name)]
    run: Option<String>,
    /// Application that the run belongs to
    #[arg(long, value_name = "NAME", value_parser = name)]
    app: Option<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.is_empty() || text.len() > NAME_MAX_CHARS || !text.bytes().all(allowed) {
        return Err(format!(
            "must be 1 to {NAME_MAX_CHARS} letters, digits, `.`, `_` or `-`"
        ));
    }
    Ok(text.to_owned())
}

/// Runs the command and exits as it did.
///
/// # Errors
/// A wrong configuration, or that no gateway can be started.
pub fn main(mut args: Args) -> anyhow::Result<ExitCode> {
    args.options.guards = std::mem::take(&mut args.guards);
    let config = Config::load(&args.options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(run(&args, config));
    runtime.shutdown_background();
    code
}

async fn run(args: &Args, config: Config) -> anyhow::Result<ExitCode> {
    let [program, arguments @ ..] = args.command.as_slice() else {
        anyhow::bail!("no command given");
    };
    let id = args.run.clone().map_or_else(|| made_up(program), Ok)?;
    let gateway = Gateway::find_or_start(&args.options, config).await?;
    let base = labelled(&gateway.base, &id, args.app.as_deref());

    let environment = Environment::process();
    let whose = if gateway.own.is_some() {
        "its own gateway"
    } else {
        "the running gateway"
    };
    eprintln!("prefixgate: run {id} through {whose} at {}", gateway.base);
    for note in notes(&environment, &gateway.base, program) {
        eprintln!("prefixgate: {note}");
    }

    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(variables(&environment, &base, &id));
    // Listening starts first: a signal that arrives in between must not end us and leave the child.
    let signals = signals::Signals::listen()?;
    let code = match command.spawn() {
        Ok(child) => exit_code(attend(child, signals).await?),
        Err(error) => {
            eprintln!(
                "prefixgate: cannot start {}: {error}",
                Path::new(program).display()
            );
            gateway.end().await;
            let found = error.kind() != ErrorKind::NotFound;
            return Ok(ExitCode::from(if found {
                EXIT_NOT_STARTED
            } else {
                EXIT_NOT_FOUND
            }));
        }
    };
    let settled = gateway.own.is_some();
    let data_dir = gateway.data_dir.clone();
    gateway.end().await;
    if let Some(line) = summary(&data_dir, &id, settled).await {
        eprintln!("prefixgate: {line}");
    }
    Ok(ExitCode::from(code))
}

/// The gateway that the command uses.
struct Gateway {
    /// `http://HOST:PORT`.
    base: String,
    /// Where its records are.
    data_dir: PathBuf,
    /// Set when it runs in this process.
    own: Option<server::Gateway>,
}

impl Gateway {
    async fn find_or_start(options: &Options, mut config: Config) -> anyhow::Result<Self> {
        // What these flags ask for cannot be asked of a gateway that runs already.
        let guards = &options.guards;
        let special = [
            &options.cache,
            &options.upstream,
            &options.clickhouse,
            &options.otlp,
            &guards.max_turns,
            &guards.max_usd,
            &guards.max_tokens,
            &guards.loops,
        ];
        let special = special.into_iter().any(Option::is_some);
        let elsewhere = |running: &Option<PathBuf>| {
            options.data_dir.is_some() && running.as_ref() != Some(&config.data_dir)
        };
        if !special
            && let Found::Prefixgate { proxy, data_dir } = reach::ask(config.admin).await
            && !elsewhere(&data_dir)
        {
            let data_dir = data_dir.unwrap_or(config.data_dir);
            return Ok(Self {
                base: proxy,
                data_dir,
                own: None,
            });
        }
        if options.listen.is_none() {
            config.listen.set_port(0);
        }
        if options.admin.is_none() {
            config.admin.set_port(0);
        }
        config.drain = config.drain.min(OWN_DRAIN);
        for warning in &config.warnings {
            eprintln!("prefixgate: warning: {warning}");
        }
        let data_dir = config.data_dir.clone();
        let own = server::Gateway::start(config)
            .await
            .context("cannot start a gateway for this command")?;
        let base = format!("http://{}", reach::from_here(own.proxy_addr()));
        Ok(Self {
            base,
            data_dir,
            own: Some(own),
        })
    }

    async fn end(self) {
        if let Some(own) = self.own {
            own.shutdown().await;
        }
    }
}

/// The base URL that carries who is asking.
fn labelled(base: &str, id: &str, app: Option<&str>) -> String {
    let app = app.map(|app| format!(",app={app}")).unwrap_or_default();
    format!("{base}/-/run={id}{app}")
}

/// `PROGRAM-DATE-TIME-RANDOM`: readable in a list, and different for two runs in one second.
fn made_up(program: &OsStr) -> anyhow::Result<String> {
    let program = Path::new(program)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let plain = |char: char| {
        if char.is_ascii_alphanumeric() {
            char
        } else {
            '-'
        }
    };
    let program: String = program.chars().map(plain).take(PROGRAM_MAX_CHARS).collect();
    let program = program.trim_matches('-');
    let mut random = [0; 2];
    getrandom::fill(&mut random)
        .map_err(|error| anyhow::anyhow!("no random bytes from the system: {error}"))?;
    let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let program = if program.is_empty() { "run" } else { program };
    Ok(format!(
        "{program}-{now}-{:04x}",
        u16::from_be_bytes(random)
    ))
}

/// What points clients to the gateway. Gemini CLI and Codex are not among them: the one's API has
/// no upstream here, the other takes its base URL from its own configuration; a script can use
/// PREFIXGATE_URL for that.
fn variables(environment: &Environment, base: &str, id: &str) -> Vec<(&'static str, String)> {
    let openai = format!("{base}/v1");
    let mut all = vec![
        // Anthropic's SDKs and Claude Code; LiteLLM and what stands on it (aider, mini-swe-agent).
        ("ANTHROPIC_BASE_URL", base.to_owned()),
        ("ANTHROPIC_API_BASE", base.to_owned()),
        // OpenAI's SDKs; LiteLLM again.
        ("OPENAI_BASE_URL", openai.clone()),
        ("OPENAI_API_BASE", openai),
        ("PREFIXGATE_URL", base.to_owned()),
        ("PREFIXGATE_RUN", id.to_owned()),
    ];
    if let Some((_, no_proxy)) = reach::proxy_between(environment, base) {
        all.extend([("NO_PROXY", no_proxy.clone()), ("no_proxy", no_proxy)]);
    }
    all
}

/// What may surprise: settings of the user that are overridden, or that override ours.
fn notes(environment: &Environment, gateway: &str, program: &OsStr) -> Vec<String> {
    let mut notes = Vec::new();
    let set = environment
        .get("ANTHROPIC_BASE_URL")
        .map(|url| url.to_string_lossy());
    if let Some(url) = set.filter(|url| !reach::points_to(url, gateway)) {
        let url = doctor::without_password(&url);
        notes.push(format!(
            "ANTHROPIC_BASE_URL was {url} and is replaced; to go on there: --upstream URL"
        ));
    }
    if Path::new(program).file_stem() == Some(OsStr::new("claude")) {
        notes.extend(doctor::claude_overrides(gateway));
    }
    notes
}

/// Waits for the child and passes on what is meant for it.
///
/// Ctrl-C and Ctrl-\ reach it from the terminal, as it is in the same process group; here they are
/// only kept from ending us before it. SIGTERM and SIGHUP come to us alone and are passed on.
async fn attend(mut child: Child, mut signals: signals::Signals) -> anyhow::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status.context("cannot wait for the command"),
            name = signals.next() => {
                if let (Some(name), Some(pid)) = (name, child.id()) {
                    signals::send(name, pid).await;
                }
            }
        }
    }
}

#[cfg(unix)]
mod signals {
    use std::process::Stdio;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    /// The signals that would end this process.
    pub struct Signals {
        interrupt: Signal,
        quit: Signal,
        terminate: Signal,
        hangup: Signal,
    }

    impl Signals {
        pub fn listen() -> std::io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                quit: signal(SignalKind::quit())?,
                terminate: signal(SignalKind::terminate())?,
                hangup: signal(SignalKind::hangup())?,
            })
        }

        /// The next one; its name if it is to be passed on.
        pub async fn next(&mut self) -> Option<&'static str> {
            tokio::select! {
                _ = self.interrupt.recv() => None,
                _ = self.quit.recv() => None,
                _ = self.terminate.recv() => Some("TERM"),
                _ = self.hangup.recv() => Some("HUP"),
            }
        }
    }

    /// By the system's `kill`: the standard library only knows SIGKILL, and this crate has no
    /// unsafe code.
    pub async fn send(name: &str, pid: u32) {
        let kill = tokio::process::Command::new("kill")
            .args(["-s", name, &pid.to_string()])
            .stdin(Stdio::null())
            .status();
        if let Err(error) = kill.await {
            eprintln!("prefixgate: cannot pass SIG{name} on to the command: {error}");
        }
    }
}

#[cfg(not(unix))]
mod signals {
    /// Only Ctrl-C, which the console gives to the command as well.
    pub struct Signals;

    impl Signals {
        pub fn listen() -> std::io::Result<Self> {
            Ok(Self)
        }

        pub async fn next(&mut self) -> Option<&'static str> {
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
            None
        }
    }

    pub async fn send(_: &str, _: u32) {}
}

/// As shells have it: the code, or 128 and the signal.
fn exit_code(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let code = status
        .code()
        .or_else(|| signal.map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// One line on what the run did; nothing when it made no requests or they cannot be read.
///
/// A gateway of ours has written everything when it has ended (`settled`). Another one may still
/// be writing, and may use another directory.
async fn summary(data_dir: &Path, id: &str, settled: bool) -> Option<String> {
    let mut last = None;
    for _ in 0..SUMMARY_TRIES {
        let line = match super::report::run_line(data_dir, id) {
            Ok(line) => line,
            Err(error) if settled => return Some(format!("no summary of the run: {error:#}")),
            // The records of a gateway on another machine, or in a container, are out of reach.
            Err(_) => return None,
        };
        if settled || (line.is_some() && line == last) {
            return line;
        }
        last = line;
        tokio::time::sleep(SUMMARY_PAUSE).await;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_are_good_labels() {
        for program in [
            "claude",
            "/usr/bin/python3.12",
            "./läuft nicht!.sh",
            "",
            "--",
        ] {
            let made_up = made_up(OsStr::new(program)).unwrap();
            assert_eq!(name(&made_up), Ok(made_up.clone()), "{program}");
        }
        assert!(
            made_up(OsStr::new("/x/claude"))
                .unwrap()
                .starts_with("claude-")
        );
        assert_ne!(
            made_up(OsStr::new("a")).unwrap(),
            made_up(OsStr::new("a")).unwrap()
        );
    }

    #[test]
    fn names_are_checked() {
        for wrong in ["", "a b", "a,b", "a/b", "a=b", "a%b", &"x".repeat(65)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_proxy_is_kept_away_from_the_gateway() {
        let environment: Environment = [("HTTPS_PROXY", "http://p"), ("NO_PROXY", "a")]
            .into_iter()
            .collect();
        let all = variables(&environment, "http://127.0.0.1:1/-/run=r", "r");
        assert!(all.contains(&("NO_PROXY", "a,127.0.0.1".to_owned())));
        assert!(all.contains(&("no_proxy", "a,127.0.0.1".to_owned())));
        let none: Environment = std::iter::empty::<(&str, &str)>().collect();
        assert!(
            !variables(&none, "http://127.0.0.1:1", "r")
                .iter()
                .any(|(name, _)| name.contains("PROXY"))
        );
    }

    #[test]
    fn a_replaced_base_url_is_told() {
        let with = |url: &str| {
            let environment: Environment = [("ANTHROPIC_BASE_URL", url)].into_iter().collect();
            notes(&environment, "http://127.0.0.1:8787", OsStr::new("sh"))
        };
        assert_eq!(with("http://localhost:8787/-/app=x"), Vec::<String>::new());
        assert_eq!(
            with("https://me:pw@gw.example"),
            [
                "ANTHROPIC_BASE_URL was https://***@gw.example and is replaced; to go on there: --upstream URL"
            ]
        );
    }
}
