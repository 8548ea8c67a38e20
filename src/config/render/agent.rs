//! The settings of the agent: those that somebody has set, as its defaults are the command's.

use super::super::Config;
use super::super::value::Span;
use super::guards::Add;
use super::{list, quoted};
use crate::provider::wire::Wire;

/// Adds them in the order of the documentation. A place with a password in it is shown as `***`.
pub(super) fn settings(config: &Config, add: Add<'_>) {
    let agent = &config.agent;
    let text = |value: &Option<String>| value.as_deref().map(quoted);
    let path = |value: &std::path::Path| Some(quoted(&value.to_string_lossy()));
    let api = match agent.api {
        Wire::Messages => "messages",
        Wire::Chat => "chat",
        Wire::Responses => "responses",
    };
    let place = agent
        .memory
        .as_deref()
        .map(|place| match place.contains('@') {
            true => quoted("***"),
            false => quoted(place),
        });
    let wall = |ms| quoted(&Span::spelled(std::time::Duration::from_millis(ms)));
    let all = [
        ("api", Some(quoted(api))),
        ("base_url", text(&agent.base_url)),
        ("key_env", text(&agent.key_env)),
        ("model", text(&agent.model)),
        ("effort", text(&agent.effort)),
        ("max_tokens", Some(agent.max_tokens.to_string())),
        ("window", Some(agent.window.to_string())),
        ("compact_at", agent.compact_at.map(|size| size.to_string())),
        ("max_turns", Some(agent.max_turns.to_string())),
        (
            "max_tokens_total",
            agent.max_tokens_total.map(|n| n.to_string()),
        ),
        ("max_usd", agent.max_pico.map(crate::usage::usd)),
        ("max_wall", agent.max_wall_ms.map(wall)),
        ("max_calls", agent.max_calls.map(|calls| calls.to_string())),
        ("loop_threshold", Some(agent.loop_threshold.to_string())),
        ("root", path(&agent.root)),
        ("allow", Some(list(&agent.allow))),
        ("fetch", Some(agent.fetch.to_string())),
        ("memory", place),
        ("mcp", agent.mcp.as_deref().and_then(path)),
        ("eager_tools", Some(agent.eager_tools.to_string())),
        ("system", agent.system.as_deref().and_then(path)),
        ("pattern", Some(quoted(agent.pattern.word()))),
        ("check", text(&agent.check)),
        ("attempts", Some(agent.attempts.to_string())),
        ("journal", text(&agent.journal)),
        ("fsync", Some(quoted(agent.fsync.word()))),
        ("app", text(&agent.app)),
        ("run", text(&agent.run)),
        ("agent", text(&agent.agent)),
    ];
    for (key, value) in all {
        let set = config.origins.contains_key(&format!("agent.{key}"));
        if let Some(value) = value.filter(|_| set) {
            add("agent", key, value);
        }
    }
}
