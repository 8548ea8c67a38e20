//! ClickHouse's real engine behind its HTTP interface (tests/setup/clickhouse.py), and a proxy that
//! breaks what goes through it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use prefixgate::config;
use prefixgate::store::ClickHouseSink;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream as Stream};

use super::server::Server;

/// A server with a data directory of its own; stopped when dropped.
#[derive(Debug)]
pub struct ClickHouse {
    dir: TempDir,
    server: Option<Server>,
    port: u16,
    login: Option<(String, String)>,
}

impl ClickHouse {
    /// One that answers.
    pub fn start() -> Self {
        Self::launch(None)
    }

    /// ... to one user only.
    pub fn with_login(user: &str, password: &str) -> Self {
        Self::launch(Some((user.to_owned(), password.to_owned())))
    }

    fn launch(login: Option<(String, String)>) -> Self {
        let mut clickhouse = Self {
            dir: tempfile::tempdir().expect("a directory"),
            server: None,
            port: 0,
            login,
        };
        clickhouse.run();
        clickhouse
    }

    /// Starts it on what it has stored, at the same address as before.
    pub fn run(&mut self) {
        assert!(self.server.is_none(), "it runs already");
        let python = cache().join("clickhouse/bin/python");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/setup/clickhouse.py");
        let mut command = Command::new(&python);
        command
            .arg(script)
            .args(["--until-eof", "--port", &self.port.to_string(), "--path"])
            .arg(self.dir.path().join("data"));
        if let Some((user, password)) = &self.login {
            command.args(["--user", user, "--password", password]);
        }
        let mut server = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ClickHouse's engine is needed: run tests/setup/install");
        let mut line = String::new();
        BufReader::new(server.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        let address: SocketAddr = line
            .strip_prefix("ready ")
            .and_then(|rest| rest.split(' ').next())
            .unwrap_or_else(|| panic!("it does not start: {line:?}"))
            .parse()
            .expect("an address");
        self.port = address.port();
        self.server = Some(Server::new(server));
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

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Settings for a database on it.
    pub fn settings(&self, database: &str) -> config::ClickHouse {
        let mut settings = config::ClickHouse::at(self.url());
        database.clone_into(&mut settings.database);
        settings
    }

    /// A sink for a database on it.
    pub fn sink(&self, database: &str) -> ClickHouseSink {
        ClickHouseSink::new(&self.settings(database))
    }

    /// The answer to a statement, tab-separated, without the last line feed.
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// ... or what the server says against it.
    pub fn try_query(&self, sql: &str) -> Result<String, String> {
        let mut stream = TcpStream::connect(self.address()).expect("it runs");
        let login = self.login.as_ref().map_or_else(String::new, |(u, p)| {
            format!("X-ClickHouse-User: {u}\r\nX-ClickHouse-Key: {p}\r\n")
        });
        let head = format!(
            "POST / HTTP/1.1\r\nHost: c\r\nConnection: close\r\n{login}Content-Length: {}\r\n\r\n",
            sql.len()
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        stream.write_all(sql.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let body = body.trim_end_matches('\n').to_owned();
        if head.starts_with("HTTP/1.1 200") {
            Ok(body)
        } else {
            Err(body)
        }
    }
}

fn cache() -> PathBuf {
    let named = std::env::var_os("PREFIXGATE_TEST_CACHE").map(PathBuf::from);
    named.unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("HOME is set");
        PathBuf::from(home).join(".cache/prefixgate-tests")
    })
}

/// What happens to the next insert into a table whose name ends as told.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The server does it, and the client never hears of it.
    LoseAnswer(&'static str),
    /// The connection breaks after so many bytes of the request.
    CutBody(&'static str, usize),
    /// The server is not asked; the client gets this status and text.
    Answer(&'static str, u16, String),
}

impl Fault {
    fn table(&self) -> &'static str {
        match self {
            Self::LoseAnswer(table) | Self::CutBody(table, _) | Self::Answer(table, ..) => table,
        }
    }
}

#[derive(Debug, Default)]
struct Seen {
    inserts: Vec<String>,
    fault: Option<Fault>,
}

/// A proxy in front of a server. It counts the inserts of the `clickhouse` crate and breaks one when
/// it is told to.
#[derive(Debug, Clone)]
pub struct Proxy {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Proxy {
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let proxy = Self {
            address: listener.local_addr().expect("an address"),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&proxy.seen);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    if let Ok(server) = Stream::connect(server).await {
                        let _ = pass(client, server, &seen).await;
                    }
                });
            }
        });
        proxy
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks the next insert it is for.
    pub fn arm(&self, fault: Fault) {
        self.seen.lock().unwrap().fault = Some(fault);
    }

    /// Whether the fault has happened.
    pub fn is_spent(&self) -> bool {
        self.seen.lock().unwrap().fault.is_none()
    }

    /// Tables of the inserts so far, without their database; then none.
    pub fn take_inserts(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap().inserts)
    }
}

async fn pass(mut client: Stream, mut server: Stream, seen: &Mutex<Seen>) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    // The fault of the request that is under way, and its bytes so far.
    let mut fault = None;
    let mut sent = 0;
    loop {
        tokio::select! {
            n = from_client.read(&mut asked) => {
                let n = n?;
                let part = &asked[..n];
                if n == 0 {
                    return Ok(());
                }
                if let Some(table) = insert_into(part) {
                    let mut seen = seen.lock().unwrap();
                    fault = seen.fault.take_if(|fault| table.ends_with(fault.table()));
                    seen.inserts.push(table);
                    sent = 0;
                }
                sent += n;
                match &fault {
                    Some(Fault::CutBody(_, most)) if sent >= *most => {
                        to_server.write_all(&part[..n - (sent - most)]).await?;
                        return Ok(());
                    }
                    Some(Fault::Answer(_, status, text)) => {
                        if part.ends_with(b"0\r\n\r\n") {
                            let head = format!(
                                "HTTP/1.1 {status} -\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
                                text.len()
                            );
                            return to_client.write_all(head.as_bytes()).await;
                        }
                    }
                    _ => to_server.write_all(part).await?,
                }
            }
            n = from_server.read(&mut answered) => {
                let n = n?;
                if n == 0 || matches!(fault, Some(Fault::LoseAnswer(_))) {
                    return Ok(());
                }
                to_client.write_all(&answered[..n]).await?;
            }
        }
    }
}

/// The table of an insert, when a request for one begins here.
fn insert_into(part: &[u8]) -> Option<String> {
    let line = part.split(|b| *b == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?.strip_prefix("POST ")?;
    let line = line.replace("%60", "").replace("%20", "+");
    let (_, rest) = line.split_once("INSERT+INTO+")?;
    let name = rest.split("%28").next()?;
    Some(name.rsplit('.').next()?.to_owned())
}
