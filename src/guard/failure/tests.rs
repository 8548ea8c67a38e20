use super::*;
use crate::provider::json::inside;

fn says_failed(text: &str) -> bool {
    let raw = serde_json::to_string(text).unwrap();
    failed(inside(raw.as_bytes()))
}

fn error_of(text: &str) -> Error {
    let raw = serde_json::to_string(text).unwrap();
    error(inside(raw.as_bytes()))
}

#[test]
fn a_failure_without_a_flag_is_known_by_how_its_text_begins_or_what_it_states() {
    for text in [
        "Error: no such table",
        "  \n error: unknown option",
        "ERROR",
        "ERROR - could not connect",
        "error[E0308]: mismatched types",
        "Error (404): gone",
        "error TS2304: Cannot find name 'x'.",
        "\u{1b}[31merror\u{1b}[0m: expected `;`",
        "Error executing tool search: bad",
        "TypeError: x is not a function",
        "java.lang.NullPointerException: at",
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find",
        "Exception in thread \"main\" java",
        "Traceback (most recent call last):\n  File",
        "fatal: not a git repository",
        "panic: runtime error",
        "thread 'main' panicked at src/main.rs:1:1:\nx",
        "<tool_use_error>String to replace not found</tool_use_error>",
        "HTTP 503 from api.example",
        "HTTP/1.1 404 Not Found",
        "HTTP error 500",
        "ENOENT: no such file or directory, open 'x'",
        "cat: x: No such file or directory\n",
        "bash: foo: command not found",
        "Chunk ID: a1b2c3\nWall time: 0.2 seconds\nProcess exited with code 101\nOutput:\nfailed",
        "Output: x\nExit Code: 2\nProcess Group PGID: 77",
        "some output\nExit code 1",
        "Command exited with status 2.",
        "<returncode>1</returncode>\n<output></output>",
        r#"{"returncode": 1, "output": "x"}"#,
        r#"{"output":"ok\nExit Code: 3\n","pgid":1}"#,
        r#"{"output":"bash: make: not here\nx","metadata":{"exit_code":127,"duration_seconds":0.1}}"#,
        r#"{"metadata":{"duration_seconds":0.1,"exit_code": 2},"output":"Exit code: 0"}"#,
        "Exit code: 1\nWall time: 0.3 seconds\nOutput:\nx",
        "Exit code: 124\nWall time: 10 seconds\nTotal output lines: 900\nOutput:\ncommand timed out after 10000 milliseconds",
        "Chunk ID: a1b2c3\nWall time: 0.2 seconds\nProcess exited with code 2\nOriginal token count: 9\nOutput:\nmake: nothing",
        "Script completed\nWall time 0.0 seconds\nOutput:\n\n{\"chunk_id\":\"43294b\",\"wall_time_seconds\":0.000006089,\"exit_code\":1,\"output\":\"cat: x\"}",
        "apply_patch verification failed: Failed to find expected lines in a.rs:\nx",
        "failed to parse function arguments: missing field `cmd`",
        "unsupported call: mcp__x__y",
        "exec_command failed for `x`: y",
        r#"{"query":"x","success":false}"#,
        r#"[{"query":"x","result":"","error":"nope","success": false}]"#,
        r#"{"isError":true,"content":[]}"#,
        r#"{"status":"error","message":"x"}"#,
        r#"{"error":{"code":1}}"#,
    ] {
        assert!(says_failed(text), "{text}");
    }
    let long = format!(
        "{}\nProcess exited with code 0\n{}\nExit code: 1",
        "x\n".repeat(2000),
        "y\n".repeat(400)
    );
    assert!(says_failed(&long));
    let long = format!(r#"{{"output":"{}","returncode":1}}"#, "x ".repeat(2000));
    assert!(says_failed(&long));
}

#[test]
fn a_text_that_is_about_errors_is_no_failure() {
    for text in [
        "",
        "ok",
        "Error handling in this crate follows two rules.",
        "errors.rs\nerror.rs",
        "error.rs:12: pub enum Error {",
        "src/a.rs:3:// fatal: never",
        "0 errors, 0 warnings",
        "Exceptional weather",
        "Exceptions are listed below",
        "pub struct HttpError: the type",
        "HTTP 200 OK",
        "HTTP 4040 is our port",
        "httpd 404 handler",
        "ENOENTRY is not a word",
        "The process exited with code 0",
        "Process exited with code 0\nOutput:\ntest error ... ok",
        "exit code 1 means that nothing was found, exit code 2 a usage error",
        "main.c:4: printf(\"exited with code 1\");",
        "Exit code: 0",
        "Exit code: 1\nretrying\nExit code: 0",
        "exited (code 0)",
        r#"{"returncode": 0, "output": "error: x"}"#,
        r#"{"output":"Exit code: 1\nretrying","metadata":{"exit_code":0,"duration_seconds":0.1}}"#,
        r#"{"output":"fine","metadata":{"exit":1,"tags":{"exit_code":1}}}"#,
        "Chunk ID: a1b2c3\nWall time: 5.0 seconds\nProcess running with session ID 4711\nOutput:\n",
        "Exit code: 0\nWall time: 0 seconds\nOutput:\nerror: none",
        "Script completed\nWall time 0.0 seconds\nOutput:\n\n{\"chunk_id\":\"43294b\",\"exit_code\":0,\"output\":\"ok\"}",
        "an unsupported call: is told elsewhere",
        r#"{"error":null,"data":[1]}"#,
        r#"{"error":"","ok":true}"#,
        r#"{"success":true,"errors":[{"x":1}]}"#,
        r#"{"items":[{"error":"inner"}]}"#,
        r#"{"log":"\"success\": false"}"#,
        "a.txt: No such file or directory is what it prints\nwhen a file is missing",
        "12:01 ERROR in the log",
    ] {
        assert!(!says_failed(text), "{text}");
    }
}

#[test]
fn the_clients_word_counts_more_than_the_text() {
    let memory = Memory::default();
    let content = |raw: &'static str, flag| Content {
        raw: raw.as_bytes(),
        hash: xxh3_64(raw.as_bytes()),
        flag,
    };
    for _ in 0..2 {
        assert!(!content(r#""Error: x""#, Some(false)).failed(&memory));
        assert!(content(r#""fine""#, Some(true)).failed(&memory));
        assert!(matches!(
            content(r#""fine""#, Some(true)).outcome(&memory),
            Outcome::Failed(_)
        ));
        assert!(matches!(
            content(r#""fine""#, None).outcome(&memory),
            Outcome::Fine(_)
        ));
        assert!(matches!(
            content(r#""Error: x""#, None).outcome(&memory),
            Outcome::Failed(_)
        ));
        assert!(matches!(
            content(r#""Error: x""#, Some(false)).outcome(&memory),
            Outcome::Fine(_)
        ));
    }
    // A list of blocks is read as its texts.
    let list = r#"[{"type":"text","text":"Error: x"},{"type":"image","source":{}},{"text":"y","type":"text"}]"#;
    assert!(content(list, None).failed(&memory));
    let fine = r#"[{"type":"image","source":{"data":"Error: x"}},{"type":"text","text":"y"}]"#;
    assert!(!content(fine, None).failed(&memory));
}

/// What the shell of the Responses API gives back is a list of commands with their outcomes.
#[test]
fn the_output_of_a_shell_is_read_with_its_outcome() {
    let memory = Memory::default();
    let outcome = |raw: &str| {
        let content = Content {
            raw: raw.as_bytes(),
            hash: xxh3_64(raw.as_bytes()),
            flag: None,
        };
        (content.failed(&memory), content.outcome(&memory))
    };
    let ran = |stderr: &str, outcome: &str| {
        format!(r#"[{{"stdout":"a\nb","stderr":"{stderr}","outcome":{outcome}}}]"#)
    };
    let failed = |raw: &str| outcome(raw).0;
    assert!(failed(&ran("no", r#"{"type":"exit","exit_code":2}"#)));
    assert!(failed(&ran("", r#"{"type":"timeout"}"#)));
    assert!(!failed(&ran("warning", r#"{"exit_code":0,"type":"exit"}"#)));
    assert!(!failed(&ran("no", "null")));
    assert!(!failed(&ran("no", r#"{"exit_code":"#)));
    let first = outcome(&ran("no such table", r#"{"type":"exit","exit_code":2}"#)).1;
    let again = r#"[ {"outcome":{"exit_code":2},"stdout":"a\nb","stderr":"no such table"} ]"#;
    let other = ran("no such row", r#"{"type":"exit","exit_code":2}"#);
    assert_eq!(first, outcome(again).1);
    assert_ne!(first, outcome(&other).1);
}

#[test]
fn what_is_volatile_is_left_out_of_an_error() {
    for (one, other) in [
        (
            r#"{"output":"x","metadata":{"exit_code":1,"duration_seconds":0.1}}"#,
            r#"{"output":"x","metadata":{"exit_code":1,"duration_seconds":12.34}}"#,
        ),
        (
            "Exit code: 1\nWall time: 0.1 seconds\nOutput:\nx",
            "Exit code: 1\nWall time: 2 seconds\nOutput:\nx",
        ),
        (
            "failed at 2026-11-30T10:00:01.123Z",
            "failed at 2026-12-01T23:59:59Z",
        ),
        ("[10:00:01] x", "[10:00:02,5] x"),
        (
            "Mon Nov 30 03:55:21 UTC 2026: x",
            "Tue Dec 1 13:05:01 UTC 2026: x",
        ),
        ("Date: Mon, 30 Nov 2026", "Date: Tue, 1 Dec 2026"),
        ("took 0.53s", "took 12ms"),
        ("timed out after 3 seconds", "timed out after 30 seconds"),
        (
            "job 123e4567-e89b-42d3-a456-426614174000",
            "job 00000000-e89b-42d3-a456-4266141740ff",
        ),
        ("commit 4f2a9c1e", "commit 0badc0de99"),
        ("at 0x7ffd12 in f", "at 0x55aa in f"),
        (
            "req_011CSHoEeqs5C35K2UUqR7Fy",
            "req_011CSHoEeqs5C35K2UUqR7Fz",
        ),
        ("at 1732937000 x", "at 1732937999123 x"),
        (
            "no /tmp/tmp.aX12/out.txt here",
            "no /var/folders/zz/q/T/b/out.txt here",
        ),
        (
            r"no C:\Users\me\AppData\Local\Temp\a.txt here",
            r"no C:\Users\me\AppData\Local\Temp\b.txt here",
        ),
        ("Process Group PGID: 123", "Process Group PGID: 4567"),
        ("worker (pid 12) died", "worker (pid 13) died"),
        (
            "Chunk ID: a1\nWall time: 1.0 seconds\nx",
            "Chunk ID: zz\nWall time: 2.5 seconds\nx",
        ),
        (
            "Script completed\nWall time 0.0 seconds\nOutput:\n\n{\"chunk_id\":\"43294b\",\"wall_time_seconds\":0.000006089,\"exit_code\":1}",
            "Script completed\nWall time 2.1 seconds\nOutput:\n\n{\"chunk_id\":\"d893fb\",\"wall_time_seconds\":0.000004988,\"exit_code\":1}",
        ),
        ("\u{1b}[1;31mno\u{1b}[0m match", "no match"),
        ("a\n\n  b\t c", "a b c"),
    ] {
        assert_eq!(
            error_of(one).strict,
            error_of(other).strict,
            "{one} / {other}"
        );
    }
}

#[test]
fn what_tells_errors_apart_stays() {
    for (one, other) in [
        ("no a.rs", "no b.rs"),
        ("line 12", "line 13"),
        ("3 tests failed", "2 tests failed"),
        ("deadbeef", "feedface"),
        ("/etc/x", "/etc/y"),
        ("/home/me/tmp/x", "/home/me/tmp/y"),
        ("src/main.rs:10:5: x", "src/main.rs:11:5: x"),
        ("value 12345678", "value 87654321"),
        (
            r#"{"output":"x","metadata":{"exit_code":1}}"#,
            r#"{"output":"x","metadata":{"exit_code":2}}"#,
        ),
        (r#"{"duration_limit":1}"#, r#"{"duration_limit":2}"#),
    ] {
        assert_ne!(
            error_of(one).strict,
            error_of(other).strict,
            "{one} / {other}"
        );
    }
    for (one, other) in [
        ("line 12 of 30", "line 13 of 31"),
        ("3 tests failed", "2 tests failed"),
    ] {
        assert_eq!(
            error_of(one).loose,
            error_of(other).loose,
            "{one} / {other}"
        );
    }
    for (one, other) in [
        ("HTTP 503 x", "HTTP 404 x"),
        ("HTTP/1.1 503 x", "HTTP/1.1 404 x"),
        ("exit code: 1", "exit code: 2"),
        ("[Errno 2] x", "[Errno 13] x"),
        ("status 500", "status 502"),
        ("error[E0308]: x", "error[E0425]: x"),
    ] {
        assert_ne!(
            error_of(one).loose,
            error_of(other).loose,
            "{one} / {other}"
        );
    }
}

#[test]
fn long_errors_are_told_apart_by_their_ends_and_not_by_where_they_are_cut() {
    let long = |time: &str, middle: &str, end: &str| {
        format!(
            "took {time}\n{}{middle}{}{end}",
            "a line of the log\n".repeat(400),
            "more of it\n".repeat(300)
        )
    };
    let one = error_of(&long("9.9s", "x", "the end"));
    assert_eq!(
        one.strict,
        error_of(&long("1m10.25s", "y", "the end")).strict
    );
    assert_ne!(one.strict, error_of(&long("9.9s", "x", "another")).strict);
}

#[test]
fn an_error_that_says_nothing_is_bare() {
    for text in [
        "",
        "Exit code 1",
        "Error: command failed with exit code 127",
        "Process exited with code 1\nOutput:\n",
        "Chunk ID: x\nExit status 2 after 3s",
    ] {
        let raw = error_of(text);
        assert_eq!(raw.bare, !text.contains("after"), "{text}");
    }
    assert!(!error_of("Exit code 1\nno such table").bare);
}

proptest::proptest! {
    #[test]
    fn any_bytes_have_a_verdict(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000)) {
        failed(&bytes);
        error(&bytes);
        text(&bytes);
    }

    #[test]
    fn a_normal_form_is_its_own(text in "[a-z0-9:./ \\-TZ]{0,60}") {
        let once = normal::strict(text.as_bytes(), usize::MAX);
        let loose = normal::loose(&once);
        proptest::prop_assert_eq!(normal::loose(&loose), loose);
        proptest::prop_assert!(once.len() <= 6 * text.len().max(1));
    }
}
