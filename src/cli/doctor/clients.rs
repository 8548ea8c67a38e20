//! The clients on this machine: do they send their requests to the gateway?

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::{Finding, Status, without_password};
use crate::cli::reach;
use crate::config::Environment;

/// How long a client may take to tell its version.
const VERSION_PATIENCE: Duration = Duration::from_secs(10);
/// A settings file larger than this is not read.
const SETTINGS_MAX_BYTES: u64 = 1 << 20;
/// Variables that send Claude Code to a cloud provider past any base URL.
const CLOUD_SWITCHES: [&str; 2] = ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"];

/// Claude Code's settings files that lead it past the gateway at `base`, and what to do.
pub(super) fn claude_overrides(around: &Surroundings, base: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for path in around.claude_settings() {
        claude_settings(&path, base, &mut findings);
    }
    findings.retain(|finding| finding.status != Status::Ok);
    findings
        .into_iter()
        .map(|finding| {
            let advice = finding.advice.unwrap_or_default();
            format!("{}: {}", finding.detail, advice)
        })
        .collect()
}

/// Where clients are looked for.
pub(super) struct Surroundings {
    environment: Environment,
    directory: PathBuf,
    /// Settings that an administrator of the machine gave Claude Code.
    managed: PathBuf,
}

impl Surroundings {
    /// Of this process.
    pub(super) fn process() -> Self {
        Self {
            environment: Environment::process(),
            directory: std::env::current_dir().unwrap_or_default(),
            managed: PathBuf::from("/etc/claude-code/managed-settings.json"),
        }
    }

    fn var(&self, name: &str) -> Option<String> {
        self.environment
            .get(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    fn under_home(&self, variable: &str, usual: &str) -> Option<PathBuf> {
        let set = self.var(variable).map(PathBuf::from);
        set.or_else(|| Some(PathBuf::from(self.var("HOME")?).join(usual)))
    }

    /// Claude Code's settings files, with what they are called here.
    fn claude_settings(&self) -> Vec<PathBuf> {
        let user = self
            .under_home("CLAUDE_CONFIG_DIR", ".claude")
            .map(|home| home.join("settings.json"));
        let project = self.directory.join(".claude");
        let mut files: Vec<PathBuf> = [self.managed.clone()].into_iter().chain(user).collect();
        files.extend([
            project.join("settings.json"),
            project.join("settings.local.json"),
        ]);
        // In the home directory the user's and the project's file are the same.
        files.dedup();
        files
    }
}

/// Looks at variables, settings files, programs and proxies. `base` is where clients should point.
pub(super) async fn examine(around: &Surroundings, base: &str, findings: &mut Vec<Finding>) {
    let before = findings.len();
    variables(around, base, findings);
    for path in around.claude_settings() {
        claude_settings(&path, base, findings);
    }
    let codex = around
        .under_home("CODEX_HOME", ".codex")
        .map(|home| home.join("config.toml"));
    findings.extend(codex.and_then(|path| codex_config(&path, base)));
    if findings.len() == before {
        findings.push(Finding::warn(
            "clients",
            "nothing tells a client to use the gateway",
            format!("export ANTHROPIC_BASE_URL={base}, or run a command through it: `prefixgate run -- COMMAND`"),
        ));
    }
    for program in ["claude", "codex"] {
        findings.push(version(around, program).await);
    }
    if let Some((variable, no_proxy)) = reach::proxy_between(&around.environment, base) {
        let detail =
            format!("{variable} sends clients through a proxy, the gateway is not excepted");
        findings.push(Finding::warn(
            "proxy",
            detail,
            format!("export NO_PROXY={no_proxy}"),
        ));
    }
}

fn variables(around: &Surroundings, base: &str, findings: &mut Vec<Finding>) {
    // Anthropic's clients add /v1 themselves, OpenAI's do not.
    for (name, wants_v1) in [("ANTHROPIC_BASE_URL", false), ("OPENAI_BASE_URL", true)] {
        let Some(url) = around.var(name) else {
            continue;
        };
        let right = if wants_v1 {
            format!("{base}/v1")
        } else {
            base.to_owned()
        };
        let has_v1 = url.trim_end_matches('/').ends_with("/v1");
        let advice = format!("export {name}={right}");
        findings.push(if !reach::points_to(&url, base) {
            Finding::warn(
                name,
                format!("{} is not the gateway", without_password(&url)),
                advice,
            )
        } else if has_v1 != wants_v1 {
            let what = if wants_v1 {
                "lacks /v1 at its end"
            } else {
                "must not end in /v1, as clients add it"
            };
            Finding::warn(name, format!("{url} {what}"), advice)
        } else {
            Finding::ok(name, url)
        });
    }
    for name in CLOUD_SWITCHES {
        if around.var(name).is_some_and(|value| is_on(&value)) {
            findings.push(Finding::warn(
                name,
                "is set: Claude Code goes to that cloud and not through the gateway",
                format!("unset {name}"),
            ));
        }
    }
}

fn is_on(value: &str) -> bool {
    !matches!(
        value.to_ascii_lowercase().as_str(),
        "" | "0" | "false" | "no" | "off"
    )
}

/// The text of a settings file; `None` when there is none.
fn read(path: &Path) -> Option<Result<String, String>> {
    let size = std::fs::metadata(path).ok()?.len();
    if size > SETTINGS_MAX_BYTES {
        return Some(Err("too large to be a settings file".to_owned()));
    }
    Some(std::fs::read_to_string(path).map_err(|error| error.to_string()))
}

/// What a settings file says goes before the environment.
fn claude_settings(path: &Path, base: &str, findings: &mut Vec<Finding>) {
    const CHECK: &str = "claude settings";
    let shown = path.display();
    let Some(text) = read(path) else { return };
    let parsed = text.and_then(|text| {
        serde_json::from_str::<serde_json::Value>(&text).map_err(|error| error.to_string())
    });
    let env = match &parsed {
        Ok(settings) => settings.get("env"),
        Err(error) => {
            findings.push(Finding::warn(
                CHECK,
                format!("{shown}: {error}"),
                "correct it; Claude Code may ignore it",
            ));
            return;
        }
    };
    let set = |name: &str| {
        env.and_then(|env| env.get(name))
            .and_then(|value| value.as_str())
    };
    match set("ANTHROPIC_BASE_URL") {
        Some(url) if reach::points_to(url, base) => {
            findings.push(Finding::ok(CHECK, format!("{shown}: {url}")))
        }
        Some(url) => {
            let detail = format!(
                "{shown}: env.ANTHROPIC_BASE_URL = {}",
                without_password(url)
            );
            let advice = format!("it goes before the environment: set it to {base} or remove it");
            findings.push(Finding::warn(CHECK, detail, advice));
        }
        None => {}
    }
    for name in CLOUD_SWITCHES {
        if set(name).is_some_and(is_on) {
            let detail = format!("{shown}: env.{name}: Claude Code goes past the gateway");
            findings.push(Finding::warn(CHECK, detail, "remove it"));
        }
    }
}

/// Codex takes its base URL from its configuration file.
fn codex_config(path: &Path, base: &str) -> Option<Finding> {
    const CHECK: &str = "codex config";
    let shown = path.display();
    let text = read(path)?;
    let parsed = text.and_then(|text| {
        text.parse::<toml::Table>()
            .map_err(|error| error.message().to_owned())
    });
    let config = match parsed {
        Ok(config) => config,
        Err(error) => {
            return Some(Finding::warn(
                CHECK,
                format!("{shown}: {error}"),
                "correct it",
            ));
        }
    };
    let provider = config.get("model_provider").and_then(toml::Value::as_str);
    let of_provider = provider
        .and_then(|name| config.get("model_providers")?.get(name)?.get("base_url"))
        .and_then(toml::Value::as_str);
    Some(match of_provider {
        Some(url) if reach::points_to(url, base) => Finding::ok(CHECK, format!("{shown}: {url}")),
        _ => {
            let detail = match (provider, of_provider) {
                (Some(name), Some(url)) => {
                    format!("{shown}: provider {name} is at {}", without_password(url))
                }
                (Some(name), None) => format!("{shown}: provider {name} has no base_url"),
                (None, _) => format!("{shown}: names no model_provider"),
            };
            let advice = format!(
                "give the provider base_url = \"{base}/v1\" and select it with model_provider"
            );
            Finding::warn(CHECK, detail, advice)
        }
    })
}

/// Whether a client is installed, and which version.
async fn version(around: &Surroundings, program: &str) -> Finding {
    let path = around.environment.get("PATH").cloned().unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file());
    let Some(found) = found else {
        return Finding::ok(program, "not on PATH (not needed for other clients)");
    };
    let child = tokio::process::Command::new(&found)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let shown = found.display();
    match tokio::time::timeout(VERSION_PATIENCE, child).await {
        Ok(Ok(out)) if out.status.success() => {
            let text = String::from_utf8_lossy(&out.stdout);
            let line: String = text
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(80)
                .collect();
            Finding::ok(program, format!("{line} ({shown})"))
        }
        Ok(Ok(out)) => Finding::warn(
            program,
            format!("{shown} --version: {}", out.status),
            "does it start by hand?",
        ),
        Ok(Err(error)) => Finding::warn(
            program,
            format!("{shown}: {error}"),
            "does it start by hand?",
        ),
        Err(_) => Finding::warn(
            program,
            format!("{shown} --version: no answer"),
            "does it start by hand?",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "http://127.0.0.1:8787";

    struct Place {
        home: tempfile::TempDir,
        around: Surroundings,
    }

    /// A home directory with the given files, as the working directory a project inside it.
    fn place(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Place {
        let home = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let base = [("HOME", home.path().to_str().unwrap()), ("PATH", "")];
        let around = Surroundings {
            environment: base.into_iter().chain(variables.iter().copied()).collect(),
            directory: home.path().join("project"),
            managed: home.path().join("managed.json"),
        };
        Place { home, around }
    }

    /// Check, status and detail (the home directory left out) of all but the programs.
    async fn findings(place: &Place) -> Vec<(String, Status, String)> {
        let mut findings = Vec::new();
        examine(&place.around, BASE, &mut findings).await;
        let home = format!("{}/", place.home.path().display());
        findings.retain(|finding| !matches!(finding.check.as_str(), "claude" | "codex"));
        findings
            .into_iter()
            .map(|f| (f.check, f.status, f.detail.replace(&home, "")))
            .collect()
    }

    fn is(check: &str, status: Status, detail: &str) -> (String, Status, String) {
        (check.to_owned(), status, detail.to_owned())
    }

    #[tokio::test]
    async fn variables_must_point_to_the_gateway() {
        use Status::{Ok, Warn};
        let none = findings(&place(&[], &[])).await;
        assert_eq!(
            none,
            [is(
                "clients",
                Warn,
                "nothing tells a client to use the gateway"
            )]
        );
        for (name, url, status, detail) in [
            (
                "ANTHROPIC_BASE_URL",
                "http://localhost:8787/-/app=x",
                Ok,
                "http://localhost:8787/-/app=x",
            ),
            (
                "ANTHROPIC_BASE_URL",
                "http://127.0.0.1:8787/v1",
                Warn,
                "http://127.0.0.1:8787/v1 must not end in /v1, as clients add it",
            ),
            (
                "ANTHROPIC_BASE_URL",
                "https://me:pw@x.example",
                Warn,
                "https://***@x.example is not the gateway",
            ),
            (
                "OPENAI_BASE_URL",
                "http://127.0.0.1:8787/v1/",
                Ok,
                "http://127.0.0.1:8787/v1/",
            ),
            (
                "OPENAI_BASE_URL",
                "http://127.0.0.1:8787",
                Warn,
                "http://127.0.0.1:8787 lacks /v1 at its end",
            ),
            (
                "CLAUDE_CODE_USE_BEDROCK",
                "1",
                Warn,
                "is set: Claude Code goes to that cloud and not through the gateway",
            ),
        ] {
            assert_eq!(
                findings(&place(&[(name, url)], &[])).await,
                [is(name, status, detail)]
            );
        }
    }

    #[tokio::test]
    async fn settings_files_go_before_the_environment() {
        use Status::{Ok, Warn};
        let found = findings(&place(
            &[("ANTHROPIC_BASE_URL", BASE)],
            &[
                ("managed.json", r#"{"env":{"CLAUDE_CODE_USE_VERTEX":"1"}}"#),
                (
                    ".claude/settings.json",
                    r#"{"env":{"ANTHROPIC_BASE_URL":"https://other.example"}}"#,
                ),
                (
                    "project/.claude/settings.json",
                    r#"{"env":{"ANTHROPIC_BASE_URL":"http://127.0.0.1:8787"}}"#,
                ),
                ("project/.claude/settings.local.json", "{"),
            ],
        ))
        .await;
        assert_eq!(
            found,
            [
                is("ANTHROPIC_BASE_URL", Ok, BASE),
                is(
                    "claude settings",
                    Warn,
                    "managed.json: env.CLAUDE_CODE_USE_VERTEX: Claude Code goes past the gateway"
                ),
                is(
                    "claude settings",
                    Warn,
                    ".claude/settings.json: env.ANTHROPIC_BASE_URL = https://other.example"
                ),
                is(
                    "claude settings",
                    Ok,
                    "project/.claude/settings.json: http://127.0.0.1:8787"
                ),
                is(
                    "claude settings",
                    Warn,
                    "project/.claude/settings.local.json: EOF while parsing an object at line 1 column 1"
                ),
            ]
        );
    }

    #[tokio::test]
    async fn codex_needs_its_own_configuration() {
        use Status::{Ok, Warn};
        for (config, status, detail) in [
            ("", Warn, ".codex/config.toml: names no model_provider"),
            (
                "model_provider = \"p\"",
                Warn,
                ".codex/config.toml: provider p has no base_url",
            ),
            (
                "model_provider = \"p\"\n[model_providers.p]\nbase_url = \"http://127.0.0.1:8787/v1\"",
                Ok,
                ".codex/config.toml: http://127.0.0.1:8787/v1",
            ),
            (
                "model_provider = \"p\"\n[model_providers.p]\nbase_url = \"http://o/v1\"",
                Warn,
                ".codex/config.toml: provider p is at http://o/v1",
            ),
        ] {
            let found = findings(&place(&[], &[(".codex/config.toml", config)])).await;
            assert_eq!(found, [is("codex config", status, detail)]);
        }
    }

    #[tokio::test]
    async fn a_proxy_between_is_found() {
        let found = findings(&place(
            &[("ANTHROPIC_BASE_URL", BASE), ("HTTPS_PROXY", "http://p:1")],
            &[],
        ))
        .await;
        let detail = "HTTPS_PROXY sends clients through a proxy, the gateway is not excepted";
        assert_eq!(found[1..], [is("proxy", Status::Warn, detail)]);
    }
}
