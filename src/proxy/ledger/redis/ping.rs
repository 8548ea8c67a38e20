//! Whether a Redis will do for the books: for a person who asks.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, ErrorKind};

/// What was seen of a Redis that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its version; `None` where it does not tell.
    pub version: Option<String>,
    /// By which policy it gives up keys when its memory is full; `None` where it gives up none.
    pub evicts: Option<String>,
    /// It is a node of a cluster, which the books cannot be kept in.
    pub cluster: bool,
}

/// Why it was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// In one line, without the URL.
    pub why: String,
    /// User or password are wrong, or may not do this; else the server or the way there is at fault.
    pub login: bool,
}

/// Sends a PING, and asks for what the books depend on.
///
/// # Errors
/// It does not answer within `patience`, or refuses.
pub async fn ping(url: &str, patience: Duration) -> Result<Seen, Unseen> {
    let asked = tokio::time::timeout(patience, ask(url, patience)).await;
    asked.unwrap_or_else(|_| {
        Err(Unseen {
            why: format!("no answer within {patience:?}"),
            login: false,
        })
    })
}

async fn ask(url: &str, patience: Duration) -> Result<Seen, Unseen> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(patience))
        .set_response_timeout(Some(patience));
    let client = Client::open(url).map_err(|error| unseen(&error))?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| unseen(&error))?;
    let ping: Result<String, _> = redis::cmd("PING").query_async(&mut connection).await;
    ping.map_err(|error| unseen(&error))?;
    // A user may be denied this one and still keep the books.
    let info: Result<String, _> = redis::cmd("INFO").query_async(&mut connection).await;
    let info = info.unwrap_or_default();
    let of = |key: &str| {
        let values = info.lines().filter_map(|line| line.split_once(':'));
        let mut values = values.filter(|(name, _)| *name == key);
        values.next().map(|(_, value)| value.trim())
    };
    let bounded = of("maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = of("maxmemory_policy").filter(|policy| bounded && *policy != "noeviction");
    Ok(Seen {
        version: of("redis_version").map(str::to_owned),
        evicts: policy.map(str::to_owned),
        cluster: of("cluster_enabled") == Some("1"),
    })
}

fn unseen(error: &redis::RedisError) -> Unseen {
    let login = error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    let text = error.to_string();
    Unseen {
        why: text.lines().next().unwrap_or_default().to_owned(),
        login,
    }
}
