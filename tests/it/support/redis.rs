//! A real Redis on a socket in a directory of its own, so that it needs no port.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::Server;

/// See the module. It keeps nothing when it is stopped, and is stopped when dropped.
#[derive(Debug)]
pub struct Redis {
    dir: TempDir,
    server: Option<Server>,
}

impl Redis {
    /// One that is not running yet.
    pub fn stopped() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            server: None,
        }
    }

    /// One that answers.
    pub fn start() -> Self {
        let mut redis = Self::stopped();
        redis.run();
        redis
    }

    /// Starts it, empty, and waits until it answers.
    pub fn run(&mut self) {
        assert!(self.server.is_none(), "it runs already");
        let _ = std::fs::remove_file(self.socket());
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--loglevel", "warning", "--unixsocket"])
            .arg(self.socket())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is needed: run tests/setup/install");
        self.server = Some(Server::new(server));
        let deadline = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < deadline, "redis-server never answers");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Makes it hang: connections are taken and nothing is answered.
    pub fn freeze(&self) {
        self.server.as_ref().expect("it runs").freeze();
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.server.as_ref().expect("it runs").thaw();
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Sends one command on a connection of its own.
    pub fn command<T: ::redis::FromRedisValue>(&self, parts: &[&str]) -> T {
        let client = ::redis::Client::open(self.url()).expect("a URL");
        let mut connection = client.get_connection().expect("it runs");
        let mut cmd = ::redis::cmd(parts[0]);
        for part in &parts[1..] {
            cmd.arg(*part);
        }
        cmd.query(&mut connection).expect("it answers")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }
}
