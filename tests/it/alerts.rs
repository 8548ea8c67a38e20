//! `prefixgate alert --test` through the real program.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use serde_json::Value;

/// Answers one request with this status, and gives its first line and body.
fn webhook(status: &'static str) -> (SocketAddr, JoinHandle<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).unwrap();
        let first = first.trim_end().to_owned();
        (first, serde_json::from_slice(&body).unwrap())
    });
    (address, seen)
}

fn alert(home: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefixgate"));
    command.env_clear().env("HOME", home).current_dir(home);
    command.stdin(Stdio::null()).arg("alert").args(args);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_test_alert_goes_to_every_webhook_of_the_file() {
    let home = tempfile::tempdir().unwrap();
    let (good, seen) = webhook("200 OK");
    let (gone, _) = webhook("410 Gone");
    let ops = format!("[webhook.ops]\nurl = \"http://{good}/hook\"\nform = \"json\"\n");
    std::fs::write(home.path().join("good.toml"), &ops).unwrap();
    let (code, out, err) = alert(home.path(), &["--test", "--config", "good.toml"]);
    assert_eq!(
        (code, out.as_str(), err.as_str()),
        (0, "ops: sent (200)\n", "")
    );
    let (line, body) = seen.join().unwrap();
    assert_eq!(line, "POST /hook HTTP/1.1");
    assert_eq!(
        (&body["kind"], &body["severity"]),
        (&"test".into(), &"info".into())
    );

    let old = format!("[webhook.old]\nurl = \"http://{gone}/s3cret\"\nform = \"slack\"\n");
    std::fs::write(home.path().join("old.toml"), old).unwrap();
    let (code, out, _) = alert(home.path(), &["--test", "--config", "old.toml"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("old: not sent: answered 410 ("), "{out}");
    assert!(!out.contains("s3cret"), "the URL is a secret: {out}");
}

#[test]
fn without_a_webhook_it_says_how_to_name_one() {
    let home = tempfile::tempdir().unwrap();
    let (code, out, err) = alert(home.path(), &["--test"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("[webhook.ops]\nurl = "), "{err}");
    // There is nothing but the test.
    let (code, _, err) = alert(home.path(), &[]);
    assert_eq!(code, 2);
    assert!(err.contains("--test"), "{err}");
}
