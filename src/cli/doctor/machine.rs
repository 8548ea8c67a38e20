//! The gateway's own machine: its directory and its ports.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Finding;
use crate::cli::reach::Found;
use crate::config::Config;

/// Below this the trace database may soon be unable to grow.
const FREE_ADVISED_BYTES: u64 = 1 << 30;

/// Can records be written, and is there room?
pub(super) fn data_dir(path: &Path) -> Finding {
    const CHECK: &str = "data directory";
    let existing = existing(path);
    let shown = path.display();
    if !existing.is_dir() {
        let detail = format!("{shown}: {} is not a directory", existing.display());
        return Finding::fail(
            CHECK,
            detail,
            "choose another with --data-dir or [store] data_dir",
        );
    }
    if let Err(error) = try_write(&existing) {
        let detail = format!("{shown}: cannot write to {}: {error}", existing.display());
        return Finding::fail(
            CHECK,
            detail,
            "give this user the right to write there, or choose another with --data-dir",
        );
    }
    let state = if existing == path {
        "writable"
    } else {
        "can be created"
    };
    match free_bytes(&existing) {
        Some(free) if free < FREE_ADVISED_BYTES => {
            let detail = format!("{shown}: {state}, only {} MiB free", free >> 20);
            Finding::warn(CHECK, detail, "make room, or lower [store] retention_size")
        }
        Some(free) => Finding::ok(CHECK, format!("{shown}: {state}, {} GiB free", free >> 30)),
        None => Finding::ok(CHECK, format!("{shown}: {state}")),
    }
}

/// The path itself or its nearest parent that is there.
fn existing(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(&absolute)
        .to_owned()
}

/// Permissions say little (read-only mounts, quotas, access lists): a file is written and removed.
fn try_write(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".prefixgate-doctor-{}", std::process::id()));
    let written = std::fs::File::create_new(&probe).and_then(|mut file| file.write_all(b"probe"));
    let removed = std::fs::remove_file(&probe);
    written.and(removed)
}

/// By `df`, as the standard library cannot tell. `None` when it cannot either.
fn free_bytes(directory: &Path) -> Option<u64> {
    let out = Command::new("df").arg("-Pk").arg(directory).output().ok()?;
    free_of_df(std::str::from_utf8(&out.stdout).ok()?)
}

/// The fourth column of POSIX `df -Pk`, counted from the percentage, as device names hold spaces.
fn free_of_df(text: &str) -> Option<u64> {
    let columns: Vec<&str> = text.lines().nth(1)?.split_whitespace().collect();
    let percent = columns.iter().position(|column| column.ends_with('%'))?;
    let kib: u64 = columns.get(percent.checked_sub(1)?)?.parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Are both ports free, or held by a prefixgate?
pub(super) fn ports(config: &Config, found: &Found) -> [Finding; 2] {
    let admin = match found {
        Found::Prefixgate { .. } => Finding::ok(
            "admin port",
            format!("{}: a prefixgate is running", config.admin),
        ),
        _ => port("admin port", "--admin", config.admin),
    };
    let proxy = match found {
        Found::Prefixgate { proxy, .. } => Finding::ok(
            "proxy port",
            format!("{proxy}: held by the running prefixgate"),
        ),
        _ => port("proxy port", "--listen", config.listen),
    };
    [proxy, admin]
}

fn port(check: &str, flag: &str, address: SocketAddr) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(check, format!("{address}: free")),
        Err(error) => {
            let advice = match error.kind() {
                ErrorKind::AddrInUse => {
                    format!("another program holds it: end that, or choose another with {flag}")
                }
                ErrorKind::PermissionDenied => {
                    format!("ports below 1024 need rights: choose a higher one with {flag}")
                }
                ErrorKind::AddrNotAvailable => {
                    format!("this machine has no such address: choose one with {flag}")
                }
                _ => format!("choose another with {flag}"),
            };
            Finding::fail(check, format!("{address}: {error}"), advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn free_space_is_read_from_df() {
        let text =
            "Filesystem 1024-blocks Used Available Capacity Mounted on\nmy disk 100 40 60 40% /\n";
        assert_eq!(free_of_df(text), Some(60 << 10));
        assert_eq!(free_of_df("nothing"), None);
        assert_eq!(free_of_df("a\n40%"), None);
    }

    #[test]
    fn the_data_directory_is_tried_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("a/b");
        assert_eq!(data_dir(&missing).status, Status::Ok);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(data_dir(&file.join("b")).status, Status::Fail);
    }

    #[test]
    fn a_held_port_is_a_failure_unless_it_is_ours() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = Config::embedded("/nowhere".into());
        config.listen = held.local_addr().unwrap();
        config.admin = "127.0.0.1:0".parse().unwrap();
        let [proxy, admin] = ports(&config, &Found::Nobody);
        assert_eq!((proxy.status, admin.status), (Status::Fail, Status::Ok));
        let found = Found::Prefixgate {
            proxy: format!("http://{}", config.listen),
            data_dir: None,
        };
        assert!(
            ports(&config, &found)
                .iter()
                .all(|finding| finding.status == Status::Ok)
        );
    }
}
