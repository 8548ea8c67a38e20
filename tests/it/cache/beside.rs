//! OpenAI's cache from gpt-5.6 on, which sets breakpoints itself: what is added to requests, and
//! what it brings.

use prefixgate::config::{
    CacheKey, CacheLifetime, CachePolicy, CacheRetention, Config, Format, NativeDiagnostics,
};
use prefixgate::prompt_cache::verdict::{Reason, Status};
use prefixgate::provider::dialect::CacheOptions;
use prefixgate::provider::view::Ttl;
use prefixgate::sim::Options;
use prefixgate::trace::TurnRecord;
use serde_json::{Value, json};

use super::{text, told};
use crate::support::client::Wire;
use crate::support::world::{MINUTE, World};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const NEW: &str = "gpt-6-sol";

async fn world(change: impl FnOnce(&mut Config)) -> World {
    World::with(Options::default(), |config| {
        let upstream = &mut config.upstreams[0];
        upstream.name = "openai".to_owned();
        upstream.format = Format::OpenAi;
        upstream.price_provider = "openai".to_owned();
        upstream.dialect.cache_options = CacheOptions::All;
        change(config);
    })
    .await
}

/// Asks; what has arrived at the provider, and the record.
async fn ask(
    world: &World,
    run: &str,
    path: &str,
    body: &Value,
    more: &[&str],
) -> (String, TurnRecord) {
    let before = world.turns(run).len();
    let run_header = format!("x-prefixgate-run: {run}");
    let mut headers = vec!["authorization: Bearer k", &run_header];
    headers.extend(more);
    let body = body.to_string();
    let reply = Wire::exchange(world.proxy(), path, &headers, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let arrived = world.sim.requests().pop().unwrap().body;
    let turn = world.recorded(run, before + 1).await.remove(before);
    (String::from_utf8(arrived.to_vec()).unwrap(), turn)
}

fn list(path: &str) -> &'static str {
    match path {
        CHAT => "messages",
        _ => "input",
    }
}

/// A system prompt of some 2,000 tokens, and a question.
fn body(path: &str, model: &str, question: &str) -> Value {
    let talk = json!([
        {"role": "system", "content": text(2000, "rules")},
        {"role": "user", "content": format!("{question} {}", text(400, question))},
    ]);
    json!({"model": model, list(path): talk})
}

fn grow(body: &mut Value, path: &str, question: &str) {
    let talk = body[list(path)].as_array_mut().unwrap();
    talk.push(json!({"role": "assistant", "content": "yes"}));
    talk.push(json!({"role": "user", "content": question}));
}

#[tokio::test]
async fn threads_with_one_system_prompt_share_it() {
    for path in [CHAT, RESPONSES] {
        let kind = if path == CHAT { "text" } else { "input_text" };
        let open = format!(r#"[{{"type":"{kind}","text":"#);
        let close = r#","prompt_cache_breakpoint":{"mode":"explicit"}}]"#;
        let world = world(|_| {}).await;
        let mut one = body(path, NEW, "one");
        let two = body(path, NEW, "two");
        let (arrived, first) = ask(&world, "a", path, &one, &[]).await;
        assert_eq!(
            arrived.replace(&open, "").replace(close, ""),
            one.to_string()
        );
        let placed = &first.markers_added;
        assert_eq!(placed.len(), 1, "{first:#?}");
        assert_eq!(placed[0].path, format!("{}[0].content", list(path)));
        assert_eq!(placed[0].ttl, Ttl::M30);
        assert_eq!(first.usage.read, Some(0));
        let (_, second) = ask(&world, "b", path, &two, &[]).await;
        let head = second.usage.read.unwrap();
        assert!((1_900..2_100).contains(&head), "{:?}", second.usage);
        assert_eq!(told(&second).1, None, "{second:#?}");
        // The provider's own breakpoint is still where the thread goes on.
        grow(&mut one, path, "go on");
        let (_, third) = ask(&world, "a", path, &one, &[]).await;
        assert!(third.usage.read > Some(head + 300), "{:?}", third.usage);
        assert_eq!(told(&third), (Status::Extended, None), "{third:#?}");
    }
}

#[tokio::test]
async fn without_the_policy_they_do_not_and_nothing_is_changed() {
    for path in [CHAT, RESPONSES] {
        for policy in [CachePolicy::Off, CachePolicy::DryRun] {
            let world = world(|config| config.cache = policy).await;
            for (run, question) in [("a", "one"), ("b", "two")] {
                let asked = body(path, NEW, question);
                let (arrived, record) = ask(&world, run, path, &asked, &[]).await;
                assert_eq!(arrived, asked.to_string());
                assert_eq!(record.usage.read, Some(0), "{run}");
                let dry = policy == CachePolicy::DryRun;
                assert_eq!(
                    (record.dry_run, record.markers_added.len()),
                    (dry, dry.into())
                );
            }
        }
    }
}

#[tokio::test]
async fn what_the_client_says_and_what_is_not_known_there_stays_as_it_is() {
    let all = |config: &mut Config| {
        config.cache_lifetime = CacheLifetime::HalfDay;
        config.cache_retention = CacheRetention::Day;
        config.native_diagnostics = NativeDiagnostics::Request;
    };
    let known = world(all).await;
    let unknown = world(|config| {
        all(config);
        config.upstreams[0].dialect.cache_options = CacheOptions::None;
    })
    .await;
    let with = |model: &str, path, key: &str, value: Value| {
        let mut body = body(path, model, "q");
        body[key] = value;
        body
    };
    let mut marked = body(CHAT, NEW, "q");
    marked["messages"][1]["content"] = json!([{"type": "text", "text": "q",
        "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"}}]);
    let chatgpt = ["chatgpt-account-id: x"];
    for path in [CHAT, RESPONSES] {
        let options = json!({"mode": "implicit"});
        for (world, asked, headers) in [
            (
                &known,
                with(NEW, path, "prompt_cache_options", options),
                &[][..],
            ),
            (&known, body(path, "gpt-4o", "q"), &[]),
            (
                &known,
                with(
                    "gpt-5.4",
                    path,
                    "prompt_cache_retention",
                    json!("in_memory"),
                ),
                &[],
            ),
            (&known, body(path, NEW, "q"), &chatgpt[..]),
            (&unknown, body(path, NEW, "q"), &[]),
            (&unknown, body(path, "gpt-5.4", "q"), &[]),
        ] {
            for _ in 0..2 {
                let (arrived, record) = ask(world, "r", path, &asked, headers).await;
                assert_eq!(arrived, asked.to_string());
                assert!(record.markers_added.is_empty());
                assert!(record.warnings.is_empty(), "{:?}", record.warnings);
            }
        }
    }
    let (arrived, _) = ask(&known, "m", CHAT, &marked, &[]).await;
    assert_eq!(arrived, marked.to_string());
}

#[tokio::test]
async fn a_lifetime_and_the_question_stand_in_one_member() {
    let world = world(|config| {
        config.cache = CachePolicy::Off;
        config.cache_lifetime = CacheLifetime::HalfDay;
        config.native_diagnostics = NativeDiagnostics::Request;
    })
    .await;
    let mut talk = body(RESPONSES, NEW, "q");
    let (arrived, first) = ask(&world, "r", RESPONSES, &talk, &[]).await;
    let seen: Value = serde_json::from_str(&arrived).unwrap();
    assert_eq!(seen["prompt_cache_options"], json!({"ttl": "12h"}));
    assert!(first.usage.write_12h > Some(2_000), "{:?}", first.usage);
    assert!(
        arrived.ends_with(&talk.to_string()[1..]),
        "the rest is the client's"
    );
    grow(&mut talk, RESPONSES, "go on");
    world.pass(100 * MINUTE);
    let (arrived, second) = ask(&world, "r", RESPONSES, &talk, &[]).await;
    let seen: Value = serde_json::from_str(&arrived).unwrap();
    let id = first.response_id.as_deref().unwrap();
    assert_eq!(
        seen["prompt_cache_options"],
        json!({"comparison_response_id": id, "ttl": "12h"})
    );
    assert!(arrived.ends_with(&talk.to_string()[1..]));
    assert!(second.usage.read > Some(2_000), "{:?}", second.usage);
    assert_eq!(told(&second), (Status::Extended, None));
    assert_eq!(second.cache.native_agrees, Some(true), "{second:#?}");
    // A change is named by both.
    talk["input"][0]["content"] = json!(text(2000, "other"));
    let (_, third) = ask(&world, "r", RESPONSES, &talk, &[]).await;
    assert_eq!(third.native_diagnosis.as_deref(), Some("input_changed"));
    assert_eq!(third.cache.native_agrees, Some(true), "{third:#?}");
}

#[tokio::test]
async fn all_that_is_added_to_a_chat_stream_stands_together() {
    let world = world(|config| {
        config.cache_lifetime = CacheLifetime::HalfHour;
        config.cache_key = CacheKey::Add;
    })
    .await;
    let mut asked = body(CHAT, NEW, "q");
    asked["stream"] = json!(true);
    let (arrived, record) = ask(&world, "r", CHAT, &asked, &[]).await;
    let mut seen: Value = serde_json::from_str(&arrived).unwrap();
    let members = seen.as_object_mut().unwrap();
    assert_eq!(
        members.remove("prompt_cache_options"),
        Some(json!({"ttl": "30m"}))
    );
    assert!(members.remove("prompt_cache_key").is_some());
    assert_eq!(
        members.remove("stream_options"),
        Some(json!({"include_usage": true}))
    );
    assert_eq!(record.markers_added.len(), 1);
    assert!(record.usage.written() > Some(2_000), "{:?}", record.usage);
    // No request-level lifetime of twelve hours is known in Chat Completions.
    let world = self::world(|config| {
        config.cache = CachePolicy::Off;
        config.cache_lifetime = CacheLifetime::HalfDay;
        config.cache_retention = CacheRetention::Day;
    })
    .await;
    let asked = body(CHAT, NEW, "q");
    assert_eq!(
        ask(&world, "r", CHAT, &asked, &[]).await.0,
        asked.to_string()
    );
    // Older models are asked in their own word.
    let asked = body(CHAT, "gpt-5.4", "q");
    let (arrived, _) = ask(&world, "s", CHAT, &asked, &[]).await;
    let member = r#""prompt_cache_retention":"24h","#;
    assert_eq!(arrived.replacen(member, "", 1), asked.to_string());
    assert!(arrived.starts_with(&format!("{{{member}")));
}

/// The facts give a lifetime from the write on; the simulated provider keeps to that, and so do the
/// verdicts.
#[tokio::test]
async fn a_read_does_not_renew_what_was_written() {
    let world = world(|config| config.cache = CachePolicy::Off).await;
    let asked = body(CHAT, NEW, "q");
    let mut told_last = None;
    for (at, read) in [(0, false), (20, true), (40, false)] {
        if at > 0 {
            world.pass(20 * MINUTE);
        }
        let (_, record) = ask(&world, "r", CHAT, &asked, &[]).await;
        assert_eq!(record.usage.read > Some(0), read, "{at}: {record:#?}");
        told_last = Some(told(&record));
    }
    assert_eq!(told_last, Some((Status::Miss, Some(Reason::Expired))));
}

/// Entries are found at breakpoints only: what goes on from the middle of what was written misses,
/// and the provider has not forgotten anything.
#[tokio::test]
async fn what_no_breakpoint_finds_was_not_evicted() {
    let world = world(|config| config.cache = CachePolicy::Off).await;
    let asked = body(CHAT, NEW, "q");
    ask(&world, "a", CHAT, &asked, &[]).await;
    let mut longer = asked.clone();
    let talk = longer["messages"].as_array_mut().unwrap();
    talk.push(json!({"role": "user", "content": "and this"}));
    let (_, record) = ask(&world, "b", CHAT, &longer, &[]).await;
    assert_eq!(record.usage.read, Some(0));
    let told = told(&record);
    assert_eq!(told, (Status::Miss, Some(Reason::NoMarker)), "{record:#?}");
}
