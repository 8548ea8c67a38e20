//! A connection to one server, made again when it breaks.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex as Cell, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation, Tool,
};
use rmcp::service::{Peer, RoleClient, RunningService, ServiceError, ServiceExt as _};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::config::{How, ServerConfig};
use super::http::HttpClient;
use crate::agent::tools::ToolError;
use crate::agent::tools::process::{Group, environment};
use crate::proxy::upstream::UpstreamClient;

/// How long a server may take to be ready, and to say what tools it has.
const READY: Duration = Duration::from_secs(60);
/// How long a goodbye may take; then a server that was started is killed.
const GOODBYE: Duration = Duration::from_secs(4);
/// Times that a server is connected to again in one run.
const MAX_AGAIN: u32 = 5;
/// How long the last words of a server that cannot be used are waited for.
const LISTEN: Duration = Duration::from_millis(300);
/// How much of what a server wrote last is shown when it cannot be used, in bytes.
const MAX_LAST_WORDS: usize = 2 << 10;

type Service = RunningService<RoleClient, ClientConfig>;

/// A server.
pub(super) struct Connection {
    config: ServerConfig,
    client: UpstreamClient,
    /// Held while a connection is made, so that two calls do not start two servers. Calls
    /// themselves do not hold it.
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    up: Option<Up>,
    /// Times that a connection was made.
    made: u32,
    /// No further one is made.
    closed: bool,
}

/// A connection that stands.
struct Up {
    service: Service,
    /// Killed after the connection was closed.
    _process: Option<Group>,
}

impl Connection {
    pub fn new(config: ServerConfig, client: UpstreamClient) -> Self {
        Self {
            config,
            client,
            live: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Connects, and asks for the tools.
    pub async fn tools(&self) -> Result<Vec<Tool>, String> {
        let asked = async {
            let peer = self.peer().await?;
            peer.list_all_tools()
                .await
                .map_err(|error| error.to_string())
        };
        tokio::time::timeout(READY, asked)
            .await
            .unwrap_or_else(|_| Err(format!("it was not ready after {} s", READY.as_secs())))
    }

    /// Calls a tool.
    pub async fn call(&self, params: CallToolRequestParams) -> Result<CallToolResult, ToolError> {
        let peer = self.peer().await.map_err(|reason| self.gone(&reason))?;
        peer.call_tool(params).await.map_err(|error| match error {
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => self
                .gone("it went away during the call, outcome unknown")
                .retryable(),
            // The server's own refusal: a wrong argument, an unknown tool.
            ServiceError::McpError(error) => ToolError::Said(error.message.into_owned()),
            other => ToolError::failed("mcp", format!("{}: {other}", self.config.name)),
        })
    }

    /// Ends it for good.
    pub async fn close(&self) {
        let up = {
            let mut live = self.live.lock().await;
            live.closed = true;
            live.up.take()
        };
        if let Some(mut up) = up {
            // What does not end in time is killed when it is dropped.
            let _ = up.service.close_with_timeout(GOODBYE).await;
        }
    }

    fn gone(&self, reason: &str) -> ToolError {
        let message = format!(
            "the MCP server {} cannot be used: {reason}",
            self.config.name
        );
        ToolError::failed("server_gone", message)
    }

    /// The other end, connected to if it is not.
    async fn peer(&self) -> Result<Peer<RoleClient>, String> {
        let mut live = self.live.lock().await;
        if let Some(up) = &live.up {
            if !up.service.is_transport_closed() && !up.service.is_closed() {
                return Ok(up.service.peer().clone());
            }
            live.up = None;
        }
        if live.closed {
            return Err("it was closed".to_owned());
        }
        if live.made > MAX_AGAIN {
            live.closed = true;
            return Err(format!("it went away {} times", live.made));
        }
        if live.made > 0 {
            tracing::warn!(
                server = self.config.name,
                "an MCP server went away; connecting again"
            );
        }
        live.made += 1;
        let made = tokio::time::timeout(READY, self.connect()).await;
        let made = made.unwrap_or_else(|_| Err("it is not ready in time".to_owned()));
        match made {
            Ok(up) => Ok(live.up.insert(up).service.peer().clone()),
            Err(reason) => {
                live.closed = true;
                Err(reason)
            }
        }
    }

    async fn connect(&self) -> Result<Up, String> {
        let who = Implementation::new("prefixgate-agent", env!("CARGO_PKG_VERSION"));
        let who = ClientConfig::new(ClientCapabilities::default(), who);
        match &self.config.how {
            How::Http { url, headers } => {
                let headers: HashMap<_, _> = headers.iter().cloned().collect();
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(headers);
                let client = HttpClient(self.client.clone());
                let transport = StreamableHttpClientTransport::with_client(client, config);
                let service = who
                    .serve(transport)
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(Up {
                    service,
                    _process: None,
                })
            }
            How::Stdio {
                command,
                args,
                env,
                cwd,
            } => {
                let mut program = Command::new(command);
                program
                    .args(args)
                    .env_clear()
                    .envs(environment())
                    .envs(env)
                    .process_group(0)
                    .kill_on_drop(true);
                if let Some(cwd) = cwd {
                    program.current_dir(cwd);
                }
                let (transport, stderr) = TokioChildProcess::builder(program)
                    .stderr(Stdio::piped())
                    .spawn()
                    .map_err(|error| format!("{command} cannot be started: {error}"))?;
                let process = Group::led_by(transport.id());
                let words = LastWords::of(stderr);
                match who.serve(transport).await {
                    Ok(service) => Ok(Up {
                        service,
                        _process: Some(process),
                    }),
                    Err(error) => Err(format!("{error}{}", words.said().await)),
                }
            }
        }
    }
}

/// What a server wrote last: when it cannot be used it has often said why.
struct LastWords {
    kept: Arc<Cell<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl LastWords {
    /// Reads on for as long as the server lives, so that it never waits for a reader.
    fn of(stderr: Option<ChildStderr>) -> Self {
        let kept = Arc::new(Cell::new(Vec::new()));
        let keeps = Arc::clone(&kept);
        let reading = tokio::spawn(async move {
            let Some(mut stderr) = stderr else { return };
            let mut buffer = [0; 1 << 10];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                let mut kept = keeps.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..count]);
                let over = kept.len().saturating_sub(MAX_LAST_WORDS);
                kept.drain(..over);
            }
        });
        Self { kept, reading }
    }

    /// They may still be on their way when the server is gone already.
    async fn said(self) -> String {
        let _ = tokio::time::timeout(LISTEN, self.reading).await;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&kept);
        match words.trim() {
            "" => String::new(),
            words => format!("; it wrote: {words}"),
        }
    }
}
