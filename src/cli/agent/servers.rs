//! MCP servers, in builds that have them.

use std::path::Path;
use std::sync::Arc;

use crate::agent::tools::Tool;
use crate::proxy::upstream::UpstreamClient;

/// The servers of a run.
pub struct Servers(#[cfg(feature = "mcp")] crate::agent::tools::mcp::Servers);

#[cfg(feature = "mcp")]
impl Servers {
    /// Connects to those that a file names.
    ///
    /// # Errors
    /// The file is wrong, or a server cannot be reached.
    pub async fn connect(file: &Path, client: &UpstreamClient) -> anyhow::Result<Self> {
        use crate::agent::tools::mcp::{Config, Servers};
        let servers = Servers::connect(Config::read(file)?, client.clone()).await?;
        for left_out in servers.left_out() {
            eprintln!("prefixgate: {left_out}");
        }
        Ok(Self(servers))
    }

    /// Their tools.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.tools()
    }

    /// Ends those that were started.
    pub async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

#[cfg(not(feature = "mcp"))]
impl Servers {
    /// There are none.
    ///
    /// # Errors
    /// Always: it was built without them.
    pub async fn connect(_file: &Path, _client: &UpstreamClient) -> anyhow::Result<Self> {
        anyhow::bail!("--mcp: this program was built without MCP (feature `mcp`)")
    }

    /// None.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    /// Nothing is there to end.
    pub async fn shutdown(self) {}
}
