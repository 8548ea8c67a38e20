//! What the integration tests stand on: the real binary, a scripted upstream, a raw client.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod clickhouse;
pub mod client;
pub mod gateway;
pub mod prometheus;
pub mod redis;
pub mod secure;
pub mod server;
pub mod upstream;
pub mod world;

pub use clickhouse::ClickHouse;
pub use client::Wire;
pub use gateway::Gateway;
pub use redis::Redis;
pub use upstream::{Step, Upstream};

/// Waits until `check` gives a value; fails the test after ten seconds. For what another process
/// does in its own time (a record that is being written), never for what should be there already.
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// A Messages request body with one short user text.
pub fn ask(model: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"{model}","max_tokens":64,"stream":{stream},"messages":[{{"role":"user","content":"hello"}}]}}"#
    )
}

/// The price table T of the cases: `test-sonnet`, USD per million tokens.
pub const PRICES: &str = r#"
[[price]]
model = "test-sonnet"
input = "3.00"
output = "15.00"
read = "0.30"
write_5m = "3.75"
write_1h = "6.00"
min_cache_tokens = 1024
"#;
