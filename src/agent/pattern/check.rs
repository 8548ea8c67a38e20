//! The check of an attempt: a command of the user's, whose exit code decides.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// Bytes of each stream that are read at most, and those at the end that are told.
const MAX_READ: u64 = 8 << 20;
const TOLD: usize = 4 << 10;

/// A command that tells by its exit code whether the task is done.
#[derive(Debug, Clone)]
pub struct Check {
    /// What the shell is given.
    pub command: String,
    /// Where it runs.
    pub dir: PathBuf,
    /// How long it may take.
    pub limit: Duration,
}

/// What a check has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its exit code was 0.
    pub passed: bool,
    /// How it ended, and the end of what it wrote.
    pub told: String,
}

impl Check {
    /// Runs it.
    pub async fn run(&self) -> Checked {
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(&self.command)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => return self.failed(&format!("cannot be run: {error}"), ""),
        };
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (out, err) = tokio::join!(read(out), read(err));
            (child.wait().await, out + &err)
        };
        match tokio::time::timeout(self.limit, work).await {
            Ok((Ok(status), written)) if status.success() => Checked {
                passed: true,
                told: self.told("succeeded", &written),
            },
            Ok((Ok(status), written)) => self.failed(&format!("ended with {status}"), &written),
            Ok((Err(error), _)) => self.failed(&format!("cannot be waited for: {error}"), ""),
            Err(_) => {
                let seconds = self.limit.as_secs();
                self.failed(&format!("did not end within {seconds} s"), "")
            }
        }
    }

    fn failed(&self, how: &str, written: &str) -> Checked {
        Checked {
            passed: false,
            told: self.told(how, written),
        }
    }

    fn told(&self, how: &str, written: &str) -> String {
        let written = written.trim();
        let from = written.ceil_char_boundary(written.len().saturating_sub(TOLD));
        format!("`{}` {how}\n{}", self.command, &written[from..])
            .trim_end()
            .to_owned()
    }
}

/// What comes, as far as it is looked at. The rest is left in the pipe's hands: a command that
/// writes without end meets its time limit.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before a fault is what there is to tell.
        let _ = stream.take(MAX_READ).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
