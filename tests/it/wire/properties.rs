//! Bodies of any kind: with the planner off they arrive byte for byte, with it on they do so once
//! the splices that the report lists are taken out.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::upstream::json;
use crate::support::{PRICES, Upstream, Wire};

/// A gateway inside this process.
struct Inside {
    runtime: Runtime,
    upstream: Upstream,
    gateway: Option<prefixgate::server::Gateway>,
    dir: tempfile::TempDir,
}

impl Inside {
    fn start(policy: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let upstream = runtime.block_on(Upstream::answering(json(200, "{}")));
        let file = dir.path().join("prefixgate.toml");
        std::fs::write(&file, PRICES).unwrap();
        let config = prefixgate::config::Config::load(&prefixgate::config::Options {
            config: Some(file),
            listen: Some("127.0.0.1:0".into()),
            admin: Some("127.0.0.1:0".into()),
            upstream: Some(upstream.url()),
            data_dir: Some(dir.path().join("data")),
            cache: Some(policy.into()),
            ..prefixgate::config::Options::default()
        })
        .unwrap();
        let gateway = runtime
            .block_on(prefixgate::server::Gateway::start(config))
            .unwrap();
        Self {
            runtime,
            upstream,
            gateway: Some(gateway),
            dir,
        }
    }

    /// What the upstream gets of this body.
    fn pass(&self, run: &str, body: &[u8]) -> Vec<u8> {
        let to = self.gateway.as_ref().unwrap().proxy_addr();
        let run = format!("x-prefixgate-run: {run}");
        let before = self.upstream.seen().len();
        let reply = self
            .runtime
            .block_on(Wire::exchange(to, "/v1/messages", &[&run], body));
        assert_eq!(reply.status, 200);
        let seen = self.upstream.seen();
        assert_eq!(seen.len(), before + 1);
        seen.last().unwrap().body.clone()
    }

    fn record(&self, run: &str) -> Value {
        let data = self.dir.path().join("data");
        self.runtime
            .block_on(crate::support::eventually("a record", async || {
                crate::support::gateway::turns_of(&data, run).pop()
            }))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            self.runtime.block_on(gateway.shutdown());
        }
    }
}

const MEMBER: [&str; 3] = [
    r#","cache_control":{"type":"ephemeral"}"#,
    r#","cache_control":{"type":"ephemeral","ttl":"5m"}"#,
    r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
];
const OPEN: &[u8] = br#"[{"type":"text","text":"#;

/// Takes out of `sent` what the report says was put in: a marker ends each listed block.
fn taken_out(sent: &[u8], placed: &Value) -> Option<Vec<u8>> {
    let mut places: Vec<(usize, &str)> = placed
        .as_array()?
        .iter()
        .map(|p| {
            (
                p["offset"].as_u64().unwrap() as usize,
                p["ttl"].as_str().unwrap(),
            )
        })
        .collect();
    places.sort_unstable();
    let mut out = sent.to_vec();
    // From the last to the first, so that offsets before it hold; `lead` is what stands before it.
    let mut at_each = Vec::new();
    let mut lead = 0;
    for (offset, ttl) in &places {
        let object = MEMBER.iter().find(|m| {
            m.contains(*ttl) == (*ttl == "1h")
                && sent[offset + lead - 1..].starts_with(m.as_bytes())
        });
        if let Some(member) = object {
            at_each.push((offset + lead - 1, member.len(), None));
            lead += member.len();
            continue;
        }
        // A bare string that was made a block.
        let end = offset + lead + OPEN.len();
        let member = MEMBER.iter().find(|m| {
            sent.get(end..)
                .is_some_and(|rest| rest.starts_with(m.as_bytes()))
        })?;
        if !sent[end + member.len()..].starts_with(b"}]") {
            return None;
        }
        let open = sent[..end].windows(OPEN.len()).rposition(|w| w == OPEN)?;
        at_each.push((end, member.len() + 2, Some(open)));
        lead += OPEN.len() + member.len() + 2;
    }
    for (at, length, open) in at_each.into_iter().rev() {
        out.drain(at..at + length);
        if let Some(open) = open {
            out.drain(open..open + OPEN.len());
        }
    }
    Some(out)
}

/// Bodies that break readers.
fn adversarial() -> Vec<Vec<u8>> {
    let deep = |open: &str, close: &str| {
        format!(
            "{{\"messages\":{}1{}}}",
            open.repeat(10_000),
            close.repeat(10_000)
        )
    };
    let wrapped = |content: &str| {
        format!(
            r#"{{"model":"test-sonnet","max_tokens":1,"tools":[{{"name":"a","description":"{}","input_schema":{{}}}}],"messages":[{{"role":"user","content":{content}}}]}}"#,
            "pad ".repeat(3000)
        )
    };
    let mut all: Vec<Vec<u8>> = [
        "", " ", "{", "{}", "[]", "null", "\"", "{\"a\":}", "{\"messages\":[", "\u{feff}{\"model\":\"m\"}",
        "{\"model\":\"a\",\"model\":\"b\",\"messages\":[],\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
        "{\"model\":12345678901234567890,\"max_tokens\":99999999999999999999,\"x\":1e999,\"y\":-0.0}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800 \\udfff \\u0000\"}]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{\"type\":\"ephemeral\"},\"cache_control\":null}]}]} trailing",
    ]
    .iter()
    .map(|s| s.as_bytes().to_vec())
    .collect();
    all.extend([deep("[", "]"), deep("{\"a\":", "}")].map(String::into_bytes));
    all.extend(
        [
            r#""\ud800\udc00 \ud800 x""#,
            r#"[{"type":"text","text":"a\ud83d"},{"type":"text","text":""},{"type":"unknown","n":12345678901234567890123}]"#,
            r#"[ {"text" : "b" ,"type":"text","type":"text"} , {"type":"tool_result","tool_use_id":"t","content":"[{\"type\":\"text\",\"text\":"} ]"#,
            r#"[{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#,
            r#"[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]"#,
            &format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)),
            &format!("[{{\"type\":\"text\",\"text\":\"x\",\"deep\":{}1{}}}]", "{\"k\":[".repeat(5_000), "]}".repeat(5_000)),
        ]
        .map(|content| wrapped(content).into_bytes()),
    );
    all.push((0..=255).collect());
    all.push(b"{\"model\":\"m\xff\xfe\",\"messages\":[]}".to_vec());
    all
}

/// JSON text with odd spacing, escapes, numbers and repeated keys, often in the shape of a request.
fn texts() -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", " ", "\n", "\t ", "\r\n"]);
    let string = prop_oneof![
        "[ -~]{0,12}".prop_map(|s| serde_json::to_string(&s).unwrap()),
        "\\PC{0,6}".prop_map(|s| serde_json::to_string(&s).unwrap()),
        Just(r#""\ud83d""#.to_owned()),
        Just(r#""\u00e9\/\b""#.to_owned()),
    ];
    let number = prop::sample::select(vec![
        "0",
        "-0",
        "1e5",
        "1E+30",
        "123456789012345678901234567890",
        "0.10",
        "-1.5e-7",
    ]);
    let leaf = prop_oneof![
        string.clone(),
        number.prop_map(str::to_owned),
        Just("true".into()),
        Just("null".into())
    ];
    let value = leaf.prop_recursive(4, 24, 5, move |inner| {
        let key = prop_oneof![
            string.clone(),
            prop::sample::select(vec!["type", "text", "content", "cache_control", "role"])
                .prop_map(|k| format!("\"{k}\""))
        ];
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), space.clone())
                .prop_map(|(v, s)| format!("[{s}{}{s}]", v.join(&format!("{s},{s}")))),
            (prop::collection::vec((key, inner), 0..5), space.clone()).prop_map(|(v, s)| format!(
                "{{{s}{}{s}}}",
                v.iter()
                    .map(|(k, v)| format!("{k}{s}:{s}{v}"))
                    .collect::<Vec<_>>()
                    .join(",")
            )),
        ]
    });
    let block = prop_oneof![
        value.clone(),
        "[a-z \\\\\"é]{0,40}".prop_map(|t| format!(
            r#"{{"type":"text","text":{}}}"#,
            serde_json::to_string(&t).unwrap()
        )),
    ];
    let content = prop_oneof![
        3 => prop::collection::vec(block, 0..4).prop_map(|b| format!("[{}]", b.join(", "))),
        1 => "[a-z é\"]{0,30}".prop_map(|t| serde_json::to_string(&t).unwrap()),
    ];
    let request = (prop::collection::vec(content, 1..4), value.clone(), any::<bool>()).prop_map(|(contents, extra, system)| {
        let messages: Vec<String> = contents
            .iter()
            .enumerate()
            .map(|(i, c)| format!(r#"{{"role":"{}","content":{c}}}"#, if i % 2 == 0 { "user" } else { "assistant" }))
            .collect();
        let system = if system { format!(r#""system":"{}","#, "long text ".repeat(900)) } else { String::new() };
        let tool = format!(r#"{{"name":"t","description":"{}","input_schema":{{}}}}"#, "words ".repeat(1200));
        format!(r#"{{"model":"test-sonnet","x":{extra},{system}"tools":[{tool}],"messages":[{}],"max_tokens":5}}"#, messages.join(","))
    });
    prop_oneof![1 => value, 4 => request]
}

/// A body that a failed test can print.
#[derive(Clone)]
struct Body(Vec<u8>);

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The padding is the same words over and over.
        let text = String::from_utf8_lossy(&self.0).replace(&"words ".repeat(100), "");
        f.write_str(&text.replace(&"long text ".repeat(100), ""))
    }
}

fn bodies() -> impl Strategy<Value = Body> {
    let text = texts().prop_map(String::into_bytes);
    let broken =
        (texts(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(text, at, byte)| {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        });
    let cut = (texts(), any::<prop::sample::Index>())
        .prop_map(|(text, at)| text.as_bytes()[..at.index(text.len())].to_vec());
    let binary = prop::collection::vec(any::<u8>(), 0..300);
    prop_oneof![6 => text, 2 => broken, 1 => cut, 1 => binary].prop_map(Body)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    })
}

#[test]
fn with_the_planner_off_every_body_arrives_as_it_was_sent() {
    let inside = Inside::start("off");
    for (i, body) in adversarial().iter().enumerate() {
        assert!(inside.pass("off", body) == *body, "adversarial body {i}");
    }
    runner(200)
        .run(&bodies(), |body| {
            prop_assert!(inside.pass("off", &body.0) == body.0);
            Ok(())
        })
        .unwrap();
}

#[test]
fn with_the_planner_on_the_listed_splices_are_the_only_difference() {
    let inside = Inside::start("fill");
    let edited = std::cell::Cell::new(0);
    let count = std::cell::Cell::new(0);
    let check = |body: &[u8]| {
        let run = format!("run-{}", count.get());
        count.set(count.get() + 1);
        let sent = inside.pass(&run, body);
        if sent == body {
            return true;
        }
        edited.set(edited.get() + 1);
        let record = inside.record(&run);
        assert_eq!(record["sent_bytes"], sent.len());
        assert_eq!(
            record["markers"]["placed"].as_array().unwrap().len() as u64,
            record["markers"]["added"]
        );
        taken_out(&sent, &record["markers"]["placed"]).as_deref() == Some(body)
    };
    for (i, body) in adversarial().iter().enumerate() {
        assert!(check(body), "adversarial body {i}");
    }
    runner(150)
        .run(&bodies(), |body| {
            prop_assert!(check(&body.0));
            Ok(())
        })
        .unwrap();
    assert!(
        edited.get() > 50,
        "only {} bodies were edited",
        edited.get()
    );
}
