//! Tools of MCP servers (Model Context Protocol), by the official crate.
//!
//! Servers are named in a file of the usual form ([`Config`]), started or connected to when the
//! agent begins, and asked once what tools they have. That list holds for the whole run: a server
//! that says it has changed is not asked again, since the tools stand at the beginning of the
//! prompt and everything behind them would have to be paid anew.
//!
//! A tool is called `mcp__server__tool`. Its hints decide how it is handled: one that only reads
//! runs beside others, one that may be repeated is repeated after a crash. Hints are a server's own
//! words; servers are as trustworthy as programs that one installs.
//!
//! A server that goes away while it works makes that call fail; the next call connects to it again,
//! once. A server that does not come back fails its calls from then on and leaves the rest alone.

mod config;
mod connection;
mod http;
mod result;

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all, try_join_all};
use rmcp::model::{CallToolRequestParams, ToolAnnotations};
use serde_json::Value;

pub use config::{Config, ConfigError, How, ServerConfig};

use self::connection::Connection;
use super::{CallContext, Manners, Tool, ToolError, ToolResult, schema};
use crate::agent::machine::ToolSpec;
use crate::proxy::upstream::UpstreamClient;

/// Longest name of a tool that providers take, in bytes.
const MAX_NAME: usize = 64;
/// How much of a description is told, in bytes.
const MAX_DESCRIPTION: usize = 8 << 10;
/// Tools of one server that are used.
const MAX_TOOLS: usize = 256;

/// A server that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("MCP server {server}: {reason}")]
pub struct ServerError {
    /// Its name in the file.
    pub server: String,
    /// Why, for people.
    pub reason: String,
}

/// The servers of a run. Dropping it ends those that were started.
pub struct Servers {
    connections: Vec<Arc<Connection>>,
    tools: Vec<Arc<dyn Tool>>,
    left_out: Vec<String>,
}

impl Servers {
    /// Connects to all servers at the same time, and asks for their tools.
    ///
    /// # Errors
    /// The first server that cannot be started, reached, or asked.
    pub async fn connect(config: Config, client: UpstreamClient) -> Result<Self, ServerError> {
        let found = try_join_all(config.servers.into_iter().map(|server| {
            let client = client.clone();
            async move {
                let name = server.name.clone();
                let connection = Arc::new(Connection::new(server, client));
                let tools = connection.tools().await.map_err(|reason| ServerError {
                    server: name,
                    reason,
                })?;
                Ok((connection, tools))
            }
        }));
        let mut all = Self {
            connections: Vec::new(),
            tools: Vec::new(),
            left_out: Vec::new(),
        };
        let mut names = HashSet::new();
        for (connection, tools) in found.await? {
            for (at, tool) in tools.iter().enumerate() {
                let name = tool_name(connection.name(), &tool.name);
                match RemoteTool::new(name.clone(), tool, &connection) {
                    _ if at >= MAX_TOOLS => all.leave_out(&name, "the server has too many tools"),
                    Err(reason) => all.leave_out(&name, &reason),
                    Ok(_) if !names.insert(name.clone()) => {
                        all.leave_out(&name, "another tool has this name");
                    }
                    Ok(tool) => all.tools.push(Arc::new(tool)),
                }
            }
            all.connections.push(connection);
        }
        Ok(all)
    }

    /// Their tools, in the order of the file and of each server's own list.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    /// Tools that are not used, each with the reason.
    #[must_use]
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Says goodbye to all servers and ends those that were started.
    pub async fn shutdown(&self) {
        join_all(self.connections.iter().map(|connection| connection.close())).await;
    }

    fn leave_out(&mut self, name: &str, reason: &str) {
        tracing::warn!(tool = name, reason, "an MCP tool is left out");
        self.left_out.push(format!("{name}: {reason}"));
    }
}

/// A tool of a server.
struct RemoteTool {
    spec: ToolSpec,
    /// Its name at the server.
    name: String,
    manners: Manners,
    connection: Arc<Connection>,
}

impl RemoteTool {
    fn new(
        name: String,
        tool: &rmcp::model::Tool,
        connection: &Arc<Connection>,
    ) -> Result<Self, String> {
        let schema = tool.schema_as_json_value().to_string();
        // A schema that cannot be used would end the run at the first call.
        schema::compile(&schema).map_err(|error| format!("its schema cannot be used: {error}"))?;
        let described = tool.description.as_deref().or(tool.title.as_deref());
        let described = described.unwrap_or(&tool.name);
        Ok(Self {
            spec: ToolSpec {
                name,
                description: crate::text::prefix(described, MAX_DESCRIPTION).to_owned(),
                schema,
            },
            name: tool.name.to_string(),
            manners: manners(tool.annotations.as_ref()),
            connection: Arc::clone(connection),
        })
    }
}

impl Tool for RemoteTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn manners(&self) -> Manners {
        self.manners
    }

    fn call(&self, input: Value, _: CallContext) -> BoxFuture<'static, ToolResult> {
        let mut params = CallToolRequestParams::new(self.name.clone());
        params.arguments = match input {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        };
        let connection = Arc::clone(&self.connection);
        // Dropped before its end, the request is cancelled at the server too.
        Box::pin(async move {
            let result = connection.call(params).await?;
            let failed = result.is_error == Some(true);
            let text = result::text(result);
            if failed {
                Err(ToolError::Said(text))
            } else {
                Ok(text)
            }
        })
    }
}

/// What hints of a server come to; without any a tool may do anything.
fn manners(hints: Option<&ToolAnnotations>) -> Manners {
    let said = |hint: fn(&ToolAnnotations) -> Option<bool>| hints.and_then(hint) == Some(true);
    let reads = said(|hints| hints.read_only_hint);
    Manners {
        serial: !reads,
        idempotent: reads || said(|hints| hints.idempotent_hint),
        ..Manners::CHANGES
    }
}

/// The name of a tool as providers take it. One that is too long ends in a digest of the whole.
fn tool_name(server: &str, tool: &str) -> String {
    let full = format!("mcp__{server}__{tool}");
    let fits = |next: char| next.is_ascii_alphanumeric() || next == '_' || next == '-';
    let plain: String = full
        .chars()
        .map(|next| if fits(next) { next } else { '_' })
        .collect();
    if plain.len() <= MAX_NAME {
        return plain;
    }
    let digest = format!("_{:08x}", xxhash_rust::xxh3::xxh3_64(full.as_bytes()) >> 32);
    format!("{}{digest}", &plain[..MAX_NAME - digest.len()])
}
