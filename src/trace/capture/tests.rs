use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::body::{Keeping, Passed};
use super::json::rewritten;
use super::*;
use crate::clock::Clock;
use crate::config::{self, CaptureMode};
use crate::redact::{Counts, Redactor, built_in};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn redacted(text: &str) -> String {
    rewritten(text, Some(built_in()), &mut Counts::default()).unwrap()
}

#[test]
fn json_keeps_its_form_and_loses_its_secrets() {
    let text = r#" { "z" : 1.50, "a": [true, null, "jo@example.org"], "z": 1e400,
        "\u0070assword": "hunter2", "jo@example.org": {}, "n": 4111111111111111, "m": 0.4111111111111111,
        "k": "\u0073k-ant-api03-abcdefgh", "inner": "{\"k\":\"\\u0073k-ant-api03-abcdefgh\"}",
        "half": "\ud83d", "e": "\u00e9\/" } "#;
    let expected = concat!(
        r#"{"z":1.50,"a":[true,null,"[redacted:mail]"],"z":1e400,"#,
        r#""\u0070assword":"[redacted:assignment]","[redacted:mail]":{},"n":"[redacted:card]","m":0.4111111111111111,"#,
        r#""k":"[redacted:anthropic_key]","inner":"{\"k\":\"[redacted:anthropic_key]\"}","#,
        "\"half\":\"\u{fffd}\",\"e\":\"\\u00e9\\/\"}"
    );
    assert_eq!(redacted(text), expected);
    assert_eq!(redacted(expected), expected);
    assert_eq!(
        rewritten("{\"a\":", Some(built_in()), &mut Counts::default()),
        None
    );
    let plain = rewritten(text, None, &mut Counts::default()).unwrap();
    assert!(plain.contains("hunter2") && plain.contains("4111111111111111"));
}

#[test]
fn members_with_secret_names_go_whole_and_schemas_stay() {
    let text = json!({
        "env": {"API_KEY": "abc", "PIN_PASSWORD": 1234, "TOKEN": "abcd1234", "EMPTY_SECRET": ""},
        "header": {"name": "x-api-key", "value": "abc"},
        "passwords": ["one", "two"],
        "schema": {"properties": {"password": {"type": "string"}, "name": {"type": "string"}}},
        "logprobs": {"token": "Hello"},
        "max_tokens": 64,
    });
    let got: Value = serde_json::from_str(&redacted(&text.to_string())).unwrap();
    let gone = "[redacted:assignment]";
    assert_eq!(
        got["env"],
        json!({"API_KEY": gone, "PIN_PASSWORD": gone, "TOKEN": gone, "EMPTY_SECRET": ""})
    );
    assert_eq!(got["header"]["value"], gone);
    assert_eq!(got["passwords"], json!([gone, gone]));
    for same in ["schema", "logprobs", "max_tokens"] {
        assert_eq!(got[same], text[same]);
    }
}

#[test]
fn images_become_their_size_in_both_modes() {
    let image = "iVBORw0KGgo".repeat(20);
    let text = json!({"content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}},
        {"type": "document", "source": {"type": "text", "data": "mail jo@example.org ".repeat(9)}},
        {"image_url": {"url": format!("data:image/png;base64,{image}")}},
    ]});
    for redactor in [None, Some(built_in())] {
        let got = rewritten(&text.to_string(), redactor, &mut Counts::default()).unwrap();
        let got: Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got["content"][0]["source"]["data"], "[165 bytes]");
        assert_eq!(
            got["content"][2]["image_url"]["url"],
            "data:image/png;base64,[165 bytes]"
        );
        let document = got["content"][1]["source"]["data"].as_str().unwrap();
        assert_eq!(document.contains("jo@example.org"), redactor.is_none());
    }
}

fn keeping(mode: CaptureMode, max_bytes: usize) -> Keeping<'static> {
    Keeping {
        mode,
        max_bytes,
        redactor: built_in(),
    }
}

fn plain(bytes: &[u8]) -> Passed<'_> {
    Passed {
        bytes,
        total: bytes.len() as u64,
        encoding: "",
        stream: false,
    }
}

fn body_of(keeping: &Keeping<'_>, passed: &Passed<'_>) -> Body {
    keeping.body(passed, &mut Counts::default()).0
}

#[test]
fn what_is_no_json_is_kept_as_text_and_what_is_no_text_is_not() {
    let keep = keeping(CaptureMode::Redacted, 1 << 20);
    let page = body_of(&keep, &plain(b"<p>password=hunter2</p>"));
    assert_eq!(page.text.unwrap(), "<p>password=[redacted:assignment]</p>");
    let cut = body_of(&keep, &plain(br#"{"k":"\u0073k-ant-api03-abcdefgh"#));
    assert_eq!(cut.text.unwrap(), r#"{"k":"[redacted:anthropic_key]"#);
    let bytes = b"\xFF\xFEpassword=hunter2";
    let opaque = body_of(&keep, &plain(bytes));
    assert_eq!(
        (opaque.text.is_none(), opaque.bytes),
        (true, bytes.len() as u64)
    );
    assert!(opaque.note.unwrap().contains("no text"));
    let full = body_of(&keeping(CaptureMode::Full, 1 << 20), &plain(bytes));
    assert!(full.text.unwrap().ends_with("password=hunter2"));
    assert!(full.note.is_some());
}

#[test]
fn encoded_bodies_are_decoded_and_broken_ones_say_so() {
    let text = format!(r#"{{"text":"{}"}}"#, "mail jo@example.org ".repeat(200));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let keep = keeping(CaptureMode::Redacted, 1 << 20);
    let gzip = |bytes| Passed {
        encoding: "gzip",
        ..plain(bytes)
    };
    let whole = body_of(&keep, &gzip(&packed));
    assert_eq!(
        (whole.bytes, whole.cut, whole.note),
        (text.len() as u64, false, None)
    );
    assert!(!whole.json.unwrap().get().contains("example.org"));
    let broken = body_of(&keep, &gzip(&packed[..packed.len() - 9]));
    assert!(broken.note.unwrap().contains("encoding_broken"));
    assert!(!broken.text.unwrap_or_default().contains("example.org"));
    let unknown = Passed {
        encoding: "x-secret",
        ..plain(&packed)
    };
    let unknown = body_of(&keep, &unknown);
    assert!(unknown.text.is_none() && unknown.json.is_none() && unknown.note.is_some());
}

#[test]
fn a_stream_of_a_format_that_is_not_known_is_kept_in_full_mode_only() {
    let stream = Passed {
        stream: true,
        ..plain(b"data: {\"candidates\":[{\"text\":\"sk-ant-\"}]}\n\ndata: {\"candidates\":[{\"text\":\"api03-abcdefgh\"}]}\n\n")
    };
    let redacted = body_of(&keeping(CaptureMode::Redacted, 1 << 20), &stream);
    assert!(redacted.text.is_none() && redacted.json.is_none());
    assert!(redacted.note.unwrap().contains("stream"));
    let full = body_of(&keeping(CaptureMode::Full, 1 << 20), &stream);
    assert!(full.text.unwrap().contains("api03-abcdefgh"));
}

/// A secret that is cut into pieces by the stream is whole when it is looked for.
#[test]
fn streams_of_openais_formats_are_put_together_and_redacted() {
    let key = ["sk-ant-", "api03-abcdefgh"];
    let chunk = |piece: &str| json!({"choices": [{"index": 0, "delta": {"content": piece, "tool_calls": [{"index": 0, "function": {"arguments": piece}}]}, "logprobs": {"content": [{"token": piece}]}}]});
    let delta = |piece: &str, kind: &str| json!({"type": format!("response.{kind}.delta"), "item_id": kind, "delta": piece, "logprobs": [{"token": piece}]});
    let chat: Vec<Value> = key.iter().map(|piece| chunk(piece)).collect();
    let kinds = [
        "output_text",
        "function_call_arguments",
        "reasoning_summary_text",
    ];
    let pieces = key
        .iter()
        .flat_map(|piece| kinds.map(|kind| delta(piece, kind)));
    let responses: Vec<Value> = pieces.collect();
    for (events, places) in [(chat, 2), (responses, 3)] {
        let stream: String = events
            .iter()
            .map(|event| format!("data: {event}\n\n"))
            .collect();
        let passed = Passed {
            stream: true,
            ..plain(stream.as_bytes())
        };
        let mut counts = Counts::default();
        let (body, ended) = keeping(CaptureMode::Redacted, 1 << 20).body(&passed, &mut counts);
        assert_eq!((ended, body.bytes), (Some(false), stream.len() as u64));
        let kept = body.json.unwrap();
        assert!(
            !kept.get().contains("abcdefgh") && !kept.get().contains("sk-ant"),
            "{kept}"
        );
        assert_eq!(
            kept.get().matches("[redacted:anthropic_key]").count(),
            places,
            "{kept}"
        );
        let full = body_of(&keeping(CaptureMode::Full, 1 << 20), &passed);
        assert_eq!(
            full.json.unwrap().get().matches(&key.concat()).count(),
            places
        );
        let short = body_of(&keeping(CaptureMode::Redacted, 40), &passed);
        assert!(short.cut && short.text.unwrap().len() <= 40);
    }
}

#[test]
fn a_body_of_which_only_the_beginning_was_held_says_how_long_it_was() {
    let keep = keeping(CaptureMode::Redacted, 1 << 20);
    let passed = Passed {
        total: 5_000_000,
        ..plain("{\"a\":\"caf\u{e9}".as_bytes().split_last().unwrap().1)
    };
    let body = body_of(&keep, &passed);
    assert_eq!((body.bytes, body.cut), (5_000_000, true));
    assert_eq!(body.text.unwrap(), "{\"a\":\"caf");
}

fn start(dir: &Path, settings: &config::Capture, clock: &Clock) -> (Capture, CaptureHandle) {
    let redactor = Arc::new(Redactor::new(&settings.rules).unwrap());
    Capture::start(dir, settings, redactor, clock.clone()).unwrap()
}

fn about(clock: &Clock) -> About {
    let started_ms = clock.utc_ms();
    About {
        turn: Uuid::now_v7(),
        run: "run".to_owned(),
        thread: "thread".to_owned(),
        app: None,
        started_ms,
        complete: true,
    }
}

fn keep_one(capture: &Capture, about: &About, request: &[u8], answer: &[u8]) {
    let request = Bytes::copy_from_slice(request);
    let mut held = capture.hold(CaptureMode::Redacted, &request, "").unwrap();
    held.answered(200, "application/json", "");
    for piece in answer.chunks(7) {
        held.passed(piece);
    }
    held.hand_over(about.clone());
}

#[test]
fn what_is_kept_can_be_read_by_nobody_else_and_is_read_back() {
    let dir = TempDir::new().unwrap();
    let (clock, _) = Clock::manual();
    let (capture, handle) = start(dir.path(), &config::Capture::default(), &clock);
    let room = capture.room_left();
    let about = about(&clock);
    keep_one(
        &capture,
        &about,
        br#"{"q":"jo@example.org"}"#,
        br#"{"a":"hello"}"#,
    );
    handle.close();
    assert_eq!((capture.captured(), capture.room_left()), (1, room));
    let path = dir
        .path()
        .join("bodies/2026-12-01")
        .join(format!("{}.json.gz", about.turn));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(&dir.path().join("bodies")), 0o700);
    let back = content(dir.path(), about.started_ms, about.turn)
        .unwrap()
        .unwrap();
    assert_eq!(
        back.request.json.unwrap().get(),
        r#"{"q":"[redacted:mail]"}"#
    );
    let response = back.response.unwrap();
    assert_eq!(response.body.json.unwrap().get(), r#"{"a":"hello"}"#);
    assert!(response.complete && response.status == 200);
    assert_eq!(back.replaced.0["mail"], 1);
    assert!(
        content(dir.path(), about.started_ms, Uuid::nil())
            .unwrap()
            .is_none()
    );
    // After the end nothing is kept, and that is counted.
    keep_one(&capture, &about, b"{}", b"{}");
    assert_eq!(capture.lost(Loss::Closed), 1);
    assert_eq!(capture.room_left(), room);
}

#[test]
fn beyond_the_room_nothing_is_held_and_the_loss_is_counted() {
    let dir = TempDir::new().unwrap();
    let (clock, _) = Clock::manual();
    let settings = config::Capture {
        max_bytes: 1024,
        ..config::Capture::default()
    };
    let (capture, handle) = start(dir.path(), &settings, &clock);
    let room = capture.room_left();
    let large = Bytes::from(vec![b' '; room / 2]);
    let first = capture.hold(CaptureMode::Full, &large, "").unwrap();
    assert!(capture.hold(CaptureMode::Full, &large, "").is_none());
    assert_eq!(capture.lost(Loss::Room), 1);
    assert!(capture.hold(CaptureMode::None, &large, "").is_none());
    drop(first);
    assert_eq!((capture.room_left(), capture.lost(Loss::Room)), (room, 1));
    // An answer is held up to its limit, and counted beyond it.
    let about = about(&clock);
    let mut held = capture.hold(CaptureMode::Full, &Bytes::new(), "").unwrap();
    held.answered(200, "text/plain", "");
    for _ in 0..100 {
        held.passed(&[b'x'; 1000]);
    }
    held.hand_over(about.clone());
    handle.close();
    let kept = content(dir.path(), about.started_ms, about.turn)
        .unwrap()
        .unwrap();
    let body = kept.response.unwrap().body;
    assert_eq!((body.bytes, body.cut), (100_000, true));
    assert_eq!(body.text.unwrap().len(), 1024);
}

#[test]
fn a_disk_that_takes_nothing_costs_counted_drops_and_no_more() {
    let dir = TempDir::new().unwrap();
    // A file stands where the directory should be.
    std::fs::write(dir.path().join("bodies"), b"").unwrap();
    let (clock, _) = Clock::manual();
    let (capture, handle) = start(dir.path(), &config::Capture::default(), &clock);
    for _ in 0..3 {
        keep_one(&capture, &about(&clock), b"{}", b"{}");
    }
    handle.close();
    assert_eq!((capture.captured(), capture.lost(Loss::Failed)), (0, 3));
}

fn days(dir: &Path) -> Vec<String> {
    // It is made with the first file.
    let found = std::fs::read_dir(dir.join("bodies"));
    let mut days: Vec<String> = (found.into_iter().flatten())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    days.sort();
    days
}

#[test]
fn old_days_go_and_what_is_none_of_ours_stays() {
    let dir = TempDir::new().unwrap();
    let (clock, hand) = Clock::manual();
    let settings = config::Capture {
        retention_days: 2,
        ..config::Capture::default()
    };
    let (capture, handle) = start(dir.path(), &settings, &clock);
    let all = [
        "2026-12-01",
        "2026-12-02",
        "2026-12-03",
        "2026-12-04",
        "2026-12-05",
    ];
    for n in 0..all.len() {
        if n > 0 {
            hand.advance(DAY_MS);
        }
        keep_one(&capture, &about(&clock), b"{}", b"{}");
        // The thread writes and removes in its own time, and at its end it removes nothing more.
        while days(dir.path()) != all[n.saturating_sub(2)..=n] {
            std::thread::yield_now();
        }
    }
    handle.close();
    assert_eq!(days(dir.path()), ["2026-12-03", "2026-12-04", "2026-12-05"]);
    std::fs::write(dir.path().join("bodies/notes.txt"), b"mine").unwrap();
    std::fs::write(dir.path().join("bodies/2026-12-03/x.json.part"), b"left").unwrap();
    hand.advance(2 * DAY_MS);
    // At the start, without any turn.
    let (_, handle) = start(dir.path(), &settings, &clock);
    handle.close();
    let (_, handle) = start(dir.path(), &settings, &clock);
    while days(dir.path()).len() > 2 {
        std::thread::yield_now();
    }
    handle.close();
    assert_eq!(days(dir.path()), ["2026-12-05", "notes.txt"]);
}

#[test]
fn beyond_its_size_the_oldest_goes_first() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("bodies");
    for day in ["2026-12-01", "2026-12-02"] {
        std::fs::create_dir_all(root.join(day)).unwrap();
        for n in 0..4 {
            std::fs::write(root.join(day).join(format!("{n}.json.gz")), [0; 100]).unwrap();
        }
    }
    let keep = |bytes| super::retain::Keep {
        since: "2026-12-01".to_owned(),
        bytes,
    };
    assert_eq!(super::retain::sweep(&root, &keep(800)).unwrap(), 800);
    assert_eq!(super::retain::sweep(&root, &keep(650)).unwrap(), 600);
    assert!(
        !root.join("2026-12-01/1.json.gz").exists() && root.join("2026-12-01/2.json.gz").exists()
    );
    assert_eq!(super::retain::sweep(&root, &keep(320)).unwrap(), 300);
    assert_eq!(days(dir.path()), ["2026-12-02"]);
    assert!(!root.join("2026-12-02/0.json.gz").exists());
}

fn escaped(text: &str, how: &[u8]) -> String {
    let mut raw = String::new();
    for (at, c) in text.chars().enumerate() {
        match how.get(at % how.len().max(1)).copied().unwrap_or(0) % 3 {
            0 if c.is_ascii() => raw.push_str(&format!("\\u{:04x}", u32::from(c))),
            1 if c.is_ascii() => raw.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ => {
                let quoted = serde_json::to_string(&c).unwrap();
                raw.push_str(&quoted[1..quoted.len() - 1]);
            }
        }
    }
    raw
}

proptest! {
    #[test]
    fn a_secret_in_a_string_is_gone_however_it_is_written(
        key in "sk-ant-api03-[A-Za-z0-9_-]{20,40}|AKIA[A-Z0-9]{16}|ghp_[A-Za-z0-9]{36}",
        before in "\\PC{0,20}", after in "\\PC{0,20}",
        how in prop::collection::vec(any::<u8>(), 1..8), place in 0..5,
    ) {
        let text = escaped(&format!("{before}{key}{after}"), &how);
        let nested = serde_json::to_string(&format!("{{\"k\":\"{text}\"}}")).unwrap();
        let body = match place {
            0 => format!("{{\"a\":\"{text}\"}}"),
            1 => format!("{{\"{text}\":1}}"),
            2 => format!("[[\"x\", \"{text}\"]]"),
            3 => format!("{{\"a\":{nested}}}"),
            _ => format!("\"{text}\""),
        };
        let got = redacted(&body);
        prop_assert!(serde_json::from_str::<Value>(&got).is_ok(), "{}", got);
        prop_assert!(!got.contains(&key), "{}", got);
        prop_assert!(got.contains("[redacted:"), "{}", got);
        let value = serde_json::from_str::<Value>(&got).unwrap();
        prop_assert!(!value.to_string().contains(&key));
        prop_assert_eq!(redacted(&got), got);
        // Cut anywhere it is no JSON any more, and the whole key is not there either.
        let keep = keeping(CaptureMode::Redacted, 1 << 20);
        let cut = body_of(&keep, &plain(body.strip_suffix(['}', ']', '"']).unwrap().as_bytes()));
        prop_assert!(!cut.text.unwrap_or_default().contains(&key));
    }

    #[test]
    fn e08_what_is_kept_is_cut_between_characters_and_says_so(text in "(?s)[a-z→🙂é\u{301}\n\"]{0,60}", max in 0usize..80, quoted in any::<bool>()) {
        // Text that is JSON by chance would lose its white space.
        let body = if quoted { json!({"t": text}).to_string() } else { format!("x{text}") };
        let keep = keeping(CaptureMode::Full, max);
        let kept = body_of(&keep, &plain(body.as_bytes()));
        prop_assert_eq!(kept.bytes, body.len() as u64);
        prop_assert_eq!(kept.cut, body.len() > max);
        match (kept.json, kept.text) {
            (Some(json), None) => prop_assert_eq!(json.get(), body.as_str()),
            (None, Some(text)) => {
                prop_assert!(text.len() <= max && body.starts_with(&text));
                prop_assert!(!kept.cut || text.len() + 4 > max);
            }
            _ => prop_assert!(false, "neither"),
        }
    }

    #[test]
    fn any_body_is_taken(bytes in prop::collection::vec(any::<u8>(), 0..300), encoding in "(|gzip|br|zstd|deflate|x)", stream in any::<bool>()) {
        for mode in [CaptureMode::Redacted, CaptureMode::Full] {
            let passed = Passed { bytes: &bytes, total: bytes.len() as u64, encoding: &encoding, stream };
            let kept = body_of(&keeping(mode, 100), &passed);
            prop_assert!(kept.text.is_none_or(|text| text.len() <= 100));
        }
    }
}
