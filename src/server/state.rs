//! What the prompt-cache engine keeps over a restart: one file in the data directory.
//!
//! It is written beside the old one and put in its place, so that a crash leaves one of the two.
//! A file that cannot be read is set aside, and the engine starts with an empty memory: what was
//! cached is then not expected, which costs explanations, never requests.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::prompt_cache::engine::Engine;
use crate::proxy::Shared;

/// Its name.
const FILE: &str = "prompt-cache.state";
/// How often it is written while requests come. So much is forgotten at most when the process is
/// killed.
const PERIOD: Duration = Duration::from_secs(30);
/// Largest file that is read: a bound against a file that is none of ours.
const MAX_BYTES: u64 = 1 << 30;

/// The engine with what the last process left.
pub(super) fn load(config: &Config, now_ms: i64) -> Engine {
    let path = config.data_dir.join(FILE);
    let empty = || Engine::new(config.cache_bytes, config.excerpts);
    let bytes = match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return empty(),
        Ok(found) if found.len() > MAX_BYTES => Err("it is too large".to_owned()),
        _ => std::fs::read(&path).map_err(|error| error.to_string()),
    };
    let read = bytes.and_then(|bytes| {
        Engine::decode(&bytes, config.cache_bytes, config.excerpts, now_ms)
            .map_err(|error| error.to_string())
    });
    read.unwrap_or_else(|why| {
        let aside = set_aside(&path);
        tracing::warn!(
            file = %path.display(),
            %why,
            set_aside_as = %aside.display(),
            "what the prompt-cache engine had kept cannot be read; it starts anew"
        );
        empty()
    })
}

fn set_aside(path: &Path) -> PathBuf {
    let aside = path.with_extension("state.corrupt");
    // If even that fails, the next write takes its place.
    let _ = std::fs::rename(path, &aside);
    aside
}

/// Writes the file.
///
/// # Errors
/// The data directory cannot be written.
pub(super) fn save(engine: &Engine, data_dir: &Path) -> std::io::Result<()> {
    let next = data_dir.join(format!("{FILE}.next"));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(&engine.encode())?;
    file.sync_all()?;
    std::fs::rename(next, data_dir.join(FILE))
}

/// Keeps the file current until it is dropped.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut written = shared.engine.changes();
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = shared.engine.changes();
        if now == written {
            continue;
        }
        written = now;
        let shared = Arc::clone(&shared);
        let saved =
            tokio::task::spawn_blocking(move || save(&shared.engine, &shared.config.data_dir));
        match saved.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the prompt-cache engine's state was not kept")
            }
            Err(error) => tracing::error!(%error, "keeping the prompt-cache engine's state broke"),
        }
    }
}
