//! What is kept of prompts: short windows where that is asked for, else nothing; and the engine's
//! memory over restarts of the real program.

use std::path::Path;

use prefixgate::sim::{Options, Sim};
use serde_json::{Value, json};

use super::Talk;
use crate::support::{Gateway, PRICES, Wire, eventually};

const OFF: &[&str] = &["--cache", "off"];
const STATE: &str = "prompt-cache.state";

/// Texts that stand in the prompt and may stand nowhere else.
const NEEDLES: [&str; 5] = [
    "needlesys",
    "needledesc",
    "needleuser",
    "needleresult",
    "needleinput",
];

fn secretive(second: u32) -> Talk {
    let mut talk = Talk::rich("s");
    talk.model = "test-sonnet";
    talk.tools[0]["description"] = json!(format!("needledesc {}", super::text(100, "d")));
    talk.system[0]["text"] = json!(format!(
        "needlesys at 2026-01-05 10:00:{second:02} needlesys {}",
        super::text(3000, "x")
    ));
    talk.block(0, 1)["text"] = json!(format!("needleuser {}", super::text(100, "u")));
    talk.block(1, 1)["input"] = json!({"path": "needleinput"});
    talk.block(2, 0)["content"] = json!(format!("needleresult {}", super::text(100, "r")));
    talk
}

async fn ask(gateway: &Gateway, body: &Value) {
    let body = body.to_string();
    let headers = ["x-claude-code-session-id: s1"];
    let reply = Wire::exchange(gateway.proxy, "/v1/messages", &headers, body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// All files of a directory that hold one of the needles.
fn found(data: &Path) -> Vec<String> {
    let files = std::fs::read_dir(data).unwrap();
    let mut hits = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        for needle in NEEDLES {
            if memchr::memmem::find(&bytes, needle.as_bytes()).is_some() {
                hits.push(format!("{needle} in {}", path.display()));
            }
        }
    }
    hits
}

async fn stop(gateway: &mut Gateway) {
    gateway.signal("TERM");
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn excerpts_are_short_and_only_where_they_are_asked_for() {
    for excerpts in [false, true] {
        let sim = Sim::start(Options::default()).unwrap();
        let config = format!("{PRICES}\n[cache]\nexcerpts = {excerpts}\n");
        let mut gateway = Gateway::with(&sim.base_url(), &config, OFF);
        for second in 0..3 {
            ask(&gateway, &secretive(second).body()).await;
            gateway.turns(second as usize + 1).await;
        }
        // A result is cut, so that its text would be the one to show.
        let mut pruned = secretive(2);
        pruned.block(2, 0)["content"] = json!("[pruned]");
        ask(&gateway, &pruned.body()).await;
        let turns = gateway.turns(4).await;
        for (second, turn) in turns.iter().enumerate().take(3).skip(1) {
            let verdict = &turn["verdict"];
            assert_eq!(verdict["first_changed"], "system[0].text", "{verdict}");
            if !excerpts {
                assert_eq!(verdict["excerpt"], Value::Null);
                continue;
            }
            for (side, second) in [("before", second - 1), ("after", second)] {
                let shown = verdict["excerpt"][side].as_str().unwrap();
                assert!(shown.len() <= 40, "{shown}");
                assert!(shown.contains(&format!("10:00:{second:02}")), "{shown}");
            }
        }
        assert_eq!(turns[3]["verdict"]["what"], "result_pruned", "{}", turns[3]);
        stop(&mut gateway).await;
        assert!(gateway.data().join(STATE).exists());
        let hits = found(&gateway.data());
        if excerpts {
            assert!(hits.iter().all(|hit| !hit.contains(STATE)), "{hits:?}");
        } else {
            assert_eq!(hits, [""; 0]);
        }
        let log = gateway.log();
        assert!(NEEDLES.iter().all(|needle| !log.contains(needle)), "{log}");
    }
}

/// What was written at the end of one process serves the next.
#[tokio::test]
async fn the_memory_is_written_on_sigterm_and_read_again() {
    let sim = Sim::start(Options::default()).unwrap();
    let mut gateway = Gateway::with(&sim.base_url(), PRICES, OFF);
    let mut talk = secretive(0);
    ask(&gateway, &talk.body()).await;
    gateway.turns(1).await;
    stop(&mut gateway).await;
    let kept = std::fs::read(gateway.data().join(STATE)).unwrap();
    assert!(kept.len() > 200, "{}", kept.len());
    let gateway = gateway.restart(&sim.base_url(), PRICES, OFF);
    assert!(!gateway.log().contains("starts anew"), "{}", gateway.log());
    talk.grow("next");
    ask(&gateway, &talk.body()).await;
    let turns = gateway.turns(2).await;
    assert_eq!(turns[1]["verdict"]["status"], "extended", "{}", turns[1]);
    assert!(turns[1]["cache"]["expected_read"].as_u64().unwrap() > 3000);
    assert_eq!(turns[1]["cache"]["read_of"], turns[0]["id"]);
    // Killed before the next writing: the file of the last good end is still there and whole.
    let gateway = gateway.restart(&sim.base_url(), PRICES, OFF);
    assert!(!gateway.log().contains("starts anew"), "{}", gateway.log());
    assert_eq!(std::fs::read(gateway.data().join(STATE)).unwrap(), kept);
    talk.system[0]["text"] = json!(super::text(3000, "other"));
    ask(&gateway, &talk.body()).await;
    let turns = gateway.turns(3).await;
    assert_eq!(turns[2]["verdict"]["reason"], "system", "{}", turns[2]);
}

#[tokio::test]
async fn a_damaged_memory_is_set_aside() {
    let sim = Sim::start(Options::default()).unwrap();
    let mut gateway = Gateway::with(&sim.base_url(), PRICES, OFF);
    let talk = secretive(0);
    ask(&gateway, &talk.body()).await;
    gateway.turns(1).await;
    stop(&mut gateway).await;
    let file = gateway.data().join(STATE);
    let good = std::fs::read(&file).unwrap();
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let mut newer = good.clone();
    newer[7] = b'9';
    let damages: [(&str, Vec<u8>); 6] = [
        ("flipped", flipped),
        ("cut", good[..good.len() / 2].to_vec()),
        ("cut by one", good[..good.len() - 1].to_vec()),
        ("foreign", b"hello, world. This is something else.".to_vec()),
        ("newer", newer),
        ("empty", Vec::new()),
    ];
    for (number, (name, bytes)) in damages.into_iter().enumerate() {
        std::fs::write(&file, &bytes).unwrap();
        gateway = gateway.restart(&sim.base_url(), PRICES, OFF);
        let log = gateway.log();
        assert!(
            log.contains("WARN") && log.contains("starts anew"),
            "{name}: {log}"
        );
        let aside = gateway.data().join("prompt-cache.state.corrupt");
        assert_eq!(std::fs::read(aside).unwrap(), bytes, "{name}");
        // It serves, and says nothing false: the provider still has the prompt.
        ask(&gateway, &talk.body()).await;
        let turns = gateway.turns(number + 2).await;
        let last = &turns[number + 1];
        assert_eq!(last["verdict"]["status"], "hit", "{name}: {last}");
        assert_eq!(
            last["cache"]["expected_read"],
            Value::Null,
            "{name}: {last}"
        );
        stop(&mut gateway).await;
        eventually("a fresh file", async || file.exists().then_some(())).await;
        assert!(
            std::fs::read(&file).unwrap().starts_with(b"pgcache1"),
            "{name}"
        );
    }
}
