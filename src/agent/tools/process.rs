//! Processes that tools start: groups that end together, and an environment without secrets.

use std::ffi::{OsStr, OsString};

use rustix::process::{Pid, Signal, kill_process_group};

/// Parts of the names of variables that hold secrets.
const SECRET: &[&str] = &[
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSW",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
];
/// Beginnings of the names of variables that are the agent's own affair.
const OWN: &[&str] = &["ANTHROPIC_", "OPENAI_", "PREFIXGATE_"];

/// A process with everything that it has started, unless that has left the group on purpose. It is
/// killed when this is dropped.
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group that a child leads; it must have been started with `process_group(0)`.
    pub fn led_by(child: Option<u32>) -> Self {
        let id = child.and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Kills what is left of it.
    pub fn kill(&mut self) {
        if let Some(leader) = self.0.take() {
            // An error says that nothing of it is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The environment of this process without what looks like a secret: by its name (`..._KEY`,
/// `..._TOKEN` and the like), or a URL with a password in it.
pub(super) fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, value)| !is_secret(name, value))
}

fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let named = SECRET.iter().any(|part| name.contains(part));
    named || OWN.iter().any(|start| name.starts_with(start)) || has_password(value)
}

/// Whether a value has the form `scheme://user:password@host`.
fn has_password(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    let Some((_, rest)) = value.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'))
}
