//! What looking at a request costs: `cargo bench --bench hot_path`.
//!
//! An agent's body of about 1 MB and 700 blocks, rich in escapes. Prints the best time of each
//! step, with nothing known of the conversation (cold), with all of it known (warm), and for the
//! next turn of a known conversation.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prefixgate::prompt_cache::chain::Hasher;
use prefixgate::prompt_cache::plan::{Situation, plan};
use prefixgate::prompt_cache::splice::apply;
use prefixgate::provider::anthropic::request::view;
use prefixgate::provider::json::Walker;
use serde_json::{Value, json};

const MEASURE: Duration = Duration::from_millis(600);

fn body(turns: usize) -> Bytes {
    let prose = "Keep to the \"rules\":\n- read before you write\n- paths like C:\\src\n\tand be brief ✓ naïve\n";
    let code = "fn main() {\n    let name = \"world\\n\";\n    print!(\"hello {}\", name);\n\t// done, é\n}\n";
    let tools: Vec<Value> = (0..20)
        .map(|i| {
            json!({"name": format!("tool_{i}"), "description": prose.repeat(8), "input_schema": {
                "type": "object", "required": ["path"], "properties": {
                    "path": {"type": "string", "description": prose},
                    "limit": {"type": "integer", "minimum": 0}}}})
        })
        .collect();
    let mut messages = vec![json!({"role": "user", "content": "start"})];
    for turn in 0..turns {
        let (one, two) = (
            format!("toolu_{:024}", 2 * turn),
            format!("toolu_{:024}", 2 * turn + 1),
        );
        messages.push(json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": prose.repeat(3), "signature": "EqQBCkYIBxgCKkDa".repeat(12)},
            {"type": "text", "text": prose.repeat(2)},
            {"type": "tool_use", "id": one, "name": "tool_3", "input": {"path": "/a/b/c.rs", "limit": turn}},
            {"type": "tool_use", "id": two, "name": "tool_4", "input": {"path": "/a/b/d.rs", "limit": turn}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": one, "content": [{"type": "text", "text": code.repeat(43)}]},
            {"type": "tool_result", "tool_use_id": two, "is_error": turn % 3 == 0, "content": code.repeat(34)}]}));
    }
    let request = json!({"model": "claude-opus-5", "max_tokens": 8192, "stream": true, "tools": tools,
        "system": [{"type": "text", "text": prose.repeat(200)}], "messages": messages});
    Bytes::from(request.to_string())
}

/// The best time of one run of `step`, which is given a fresh `setup` each time.
fn best<S, R>(mut setup: impl FnMut() -> S, mut step: impl FnMut(S) -> R) -> Duration {
    let (begin, mut best) = (Instant::now(), Duration::MAX);
    while begin.elapsed() < MEASURE {
        let given = setup();
        let start = Instant::now();
        black_box(step(black_box(given)));
        best = best.min(start.elapsed());
    }
    best
}

fn main() -> Result<(), &'static str> {
    let (body, next) = (body(113), body(114));
    let seen = view(&body)?;
    println!("body {} bytes, {} blocks", body.len(), seen.blocks.len());
    let show = |name: &str, time: Duration| {
        let rate = body.len() as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{name:44} {:8.3} ms {rate:8.0} MB/s",
            time.as_secs_f64() * 1e3
        );
    };
    let hasher = || Hasher::new([1; 32]);
    let used = hasher();
    black_box(used.chain(&body, &seen, b"scope"));

    show(
        "skip the whole body",
        best(
            || (),
            |()| Walker::new(&body).and_then(|mut walk| walk.skip()),
        ),
    );
    show("view", best(|| (), |()| view(&body)));
    show(
        "chain, cold",
        best(hasher, |hasher| hasher.chain(&body, &seen, b"scope")),
    );
    show(
        "chain, warm",
        best(|| (), |()| used.chain(&body, &seen, b"scope")),
    );
    let whole = |hasher: &Hasher, body: &Bytes| {
        let seen = view(body).ok()?;
        let chain = hasher.chain(body, &seen, b"scope");
        let plan = plan(&Situation {
            min_tokens: Some(512),
            ..Situation::new(body, &seen)
        });
        Some((chain, apply(body, &plan.splices)))
    };
    show(
        "view, chain, plan, splice, cold",
        best(hasher, |hasher| whole(&hasher, &body)),
    );
    show(
        "view, chain, plan, splice, warm",
        best(|| (), |()| whole(&used, &body)),
    );
    let known = || {
        let hasher = hasher();
        black_box(hasher.chain(&body, &seen, b"scope"));
        hasher
    };
    show(
        "view, chain, plan, splice, next turn",
        best(known, |hasher| whole(&hasher, &next)),
    );
    Ok(())
}
