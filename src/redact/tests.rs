use proptest::prelude::*;

use super::*;

fn clean(text: &str) -> String {
    built_in().clean(text)
}

#[test]
fn the_built_in_rules_compile_and_leave_plain_text_alone() {
    assert!(!built_in().blind);
    for text in [
        "",
        "prompt is too long: 210000 tokens > 200000",
        "max_tokens: 4096, budget_tokens=1024, next",
        "a task-management-configuration-file in risk-assessment-of-the-whole-project",
        "at 1796083200000 and 2026-11-30 08:24:32.123456 it took 0.4111111111111111 s",
        "550e8400-e29b-41d4-a716-446655440000 toolu_01A2b3C4d5E6f7G8h9J0k1L2",
        "@decorator foo@1.2.3 user@localhost x@",
        "use std::Secret::new(value); Password::from",
        "bearer of bad news; the Bearer scheme is described in a standard",
        "4111 1111 1111 1112 is no card, 9111111111111111 neither",
        "https://example.com:8080/path?q=1",
        "[redacted:mail] and [redacted:card]",
    ] {
        assert_eq!(clean(text), text);
    }
}

#[test]
fn e15_each_kind_of_secret_is_replaced_by_its_name() {
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6y";
    for (text, expected) in [
        ("my mail is jo@example.org.", "my mail is [redacted:mail]."),
        ("jörg.müller+x@münchen.example", "[redacted:mail]"),
        (
            "export K=AKIAABCDEFGHIJKLMNOP",
            "export K=[redacted:aws_key]",
        ),
        ("xAKIAABCDEFGHIJKLMNOPx", "x[redacted:aws_key]x"),
        ("password=hunter2 and", "password=[redacted:assignment] and"),
        ("Password: hunter2, x", "Password: [redacted:assignment], x"),
        (
            "DB_PASSWORD='two words';",
            "DB_PASSWORD='[redacted:assignment]';",
        ),
        (
            r#"{\"api_key\": \"abc def\"}"#,
            r#"{\"api_key\": \"[redacted:assignment]\"}"#,
        ),
        (
            r#"os.environ["API_KEY"] = "abc""#,
            r#"os.environ["API_KEY"] = "[redacted:assignment]""#,
        ),
        ("API_KEY_PROD=a1b2", "API_KEY_PROD=[redacted:assignment]"),
        (
            "GITHUB_TOKEN=abcdef123456",
            "GITHUB_TOKEN=[redacted:assignment]",
        ),
        (
            "curl --token abcd1234 x",
            "curl --token [redacted:assignment] x",
        ),
        (
            "Authorization: Basic dXNlcjpwYXNz",
            "Authorization: Basic [redacted:assignment]",
        ),
        ("send Bearer abcd1234efgh", "send Bearer [redacted:bearer]"),
        (
            "api_key=sk-ant-api03-abcdefgh",
            "api_key=[redacted:anthropic_key]",
        ),
        ("sk-proj-abcdefghijk", "[redacted:openai_key]"),
        (
            "sk-abcdefghijklmnopqrstuvwxyzABCDEF",
            "[redacted:openai_key]",
        ),
        ("use sk-or-test-0123456789", "use [redacted:openai_key]"),
        (
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "[redacted:github_token]",
        ),
        ("xoxb-123456789012-abcdef", "[redacted:slack_token]"),
        (
            "AIzaSyA0123456789abcdefghijklmnopqrstuv",
            "[redacted:google_key]",
        ),
        (jwt, "[redacted:jwt]"),
        (
            "postgres://u:s3cret@db/x",
            "postgres://u:[redacted:url_password]@db/x",
        ),
        ("4111 1111 1111 1111", "[redacted:card]"),
        ("4111-1111-1111-1111 12/27", "[redacted:card] 12/27"),
        ("3782 822463 10005", "[redacted:card]"),
        ("n4111111111111111n", "n[redacted:card]n"),
        (
            "4111 1111 1111 1111 5500005555555559",
            "[redacted:card] [redacted:card]",
        ),
        (
            "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b",
            "a [redacted:private_key] b",
        ),
        (
            r"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n",
            r"[redacted:private_key]\n",
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl",
            "[redacted:private_key]",
        ),
        (
            r"key \u005cu0073k-ant-api03-abcdefgh",
            "key [redacted:anthropic_key]",
        ),
        ("a@b.cd@aaa.example.org", "[redacted:mail]"),
        (
            r"key \\u0073k-ant-api03-abcdefgh",
            "key [redacted:anthropic_key]",
        ),
    ] {
        assert_eq!(clean(text), expected, "{text}");
    }
}

#[test]
fn own_rules_come_first_and_are_counted() {
    let own = [("ticket".to_owned(), "TICKET-([0-9]+)".to_owned())];
    let redactor = Redactor::new(&own).unwrap();
    let mut counts = Counts::default();
    let text = redactor.text(
        "TICKET-1 TICKET-22 jo@example.org password=TICKET-3",
        &mut counts,
    );
    assert_eq!(
        text,
        "[redacted:ticket] [redacted:ticket] [redacted:mail] password=[redacted:ticket]"
    );
    let counts: Vec<_> = counts.0.into_iter().collect();
    assert_eq!(counts, [("mail".to_owned(), 1), ("ticket".to_owned(), 3)]);
    assert!(Redactor::new(&[("x".to_owned(), "(".to_owned())]).is_err());
}

#[test]
fn without_rules_nothing_is_kept() {
    let blind = Redactor::blind();
    assert_eq!(blind.clean("anything"), "[redacted:all]");
    assert_eq!(blind.clean("[redacted:all]"), "[redacted:all]");
}

#[test]
fn places_that_overlap_become_one_and_replacements_stay() {
    let (all, none) = (
        Redactor::new(&[("all".into(), ".".into())]),
        Counts::default(),
    );
    let mut counts = none;
    // What touches is one place.
    assert_eq!(
        all.unwrap().text("abc\nde", &mut counts),
        "[redacted:all]\n[redacted:all]"
    );
    for text in [
        "password=foo@bar.com!hunter2",
        "password=[redacted:mail]hunter2",
        "[redacted:card]@example.org",
        "4111111111111111.4111111111111111",
    ] {
        let once = clean(text);
        assert!(!once.contains("hunter2"), "{once}");
        assert_eq!(clean(&once), once);
    }
}

#[test]
fn a_part_shows_no_piece_of_what_is_found_in_the_whole() {
    let text = "to sk-ant-api03-abcdefghijkl now";
    for from in 3..28 {
        let part = built_in().part(text, from..from + 2);
        assert!(
            part.starts_with("[redacted:anthropic_key]"),
            "{from}: {part}"
        );
    }
    assert_eq!(built_in().part(text, 0..2), "to");
    assert_eq!(built_in().part(text, 28..99), " now");
}

#[test]
fn names_tell_what_is_secret() {
    for name in [
        "password",
        "DB_PASSWORD",
        "apiKey",
        "clientSecret",
        "x-api-key",
        "Authorization",
        "accessToken",
        "credentials",
    ] {
        assert!(Redactor::names_secret(name), "{name}");
    }
    for name in [
        "max_tokens",
        "input_tokens",
        "name",
        "secretary",
        "key",
        "path",
        "",
        "author",
    ] {
        assert!(!Redactor::names_secret(name), "{name}");
    }
    assert!(Redactor::names_token("GITHUB_TOKEN") && !Redactor::names_token("tokens"));
    let mut counts = Counts::default();
    assert_eq!(
        built_in().value("hunter2", &mut counts),
        "[redacted:assignment]"
    );
    assert_eq!(
        built_in().value("jo@example.org", &mut counts),
        "[redacted:mail]"
    );
    assert_eq!(
        built_in().value("[redacted:mail]", &mut counts),
        "[redacted:mail]"
    );
}

/// What is long and full of beginnings must not take longer than its length says.
#[test]
fn hostile_texts_take_linear_time() {
    let started = std::time::Instant::now();
    for seed in [
        "-----BEGIN PRIVATE KEY-----",
        "password=\"",
        "password\\\\\\",
        "a@b.",
        "eyJaaaaaaaaa.",
        "--------",
        "4111 ",
        "://a:",
        "bearer ",
        "token: a",
        "[redacted:",
        "\\u0070",
    ] {
        let text = seed.repeat((256 << 10) / seed.len());
        let redacted = clean(&text);
        assert!(redacted.len() <= text.len() * 4, "{seed}");
    }
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
}

/// By hand, in release: `cargo test --release --lib redact -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn measure() {
    let words =
        "The function reads a file, and returns what stands in it; see src/lib.rs:42 for more. ";
    let text = format!("{}mail jo@example.org now. ", words.repeat(50)).repeat(250);
    let started = std::time::Instant::now();
    let redacted = clean(&text);
    let took = started.elapsed();
    assert!(redacted.contains("[redacted:mail]"));
    eprintln!("{} kB in {took:?}", text.len() / 1000);
}

fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "sk-ant-api03-[A-Za-z0-9_-]{20,90}",
        "sk-proj-[A-Za-z0-9_-]{20,60}",
        "sk-[A-Za-z0-9]{48}",
        "AKIA[A-Z0-9]{16}",
        "gh[pousr]_[A-Za-z0-9]{36}",
        "github_pat_[A-Za-z0-9_]{40}",
        "xox[bp]-[0-9]{10}-[A-Za-z0-9]{20}",
        "AIza[A-Za-z0-9_-]{35}",
        "eyJ[A-Za-z0-9_-]{20}\\.eyJ[A-Za-z0-9_-]{30}\\.[A-Za-z0-9_-]{30}",
        "[a-z]{3,9}\\.[a-z]{3,9}@[a-z]{3,9}\\.example\\.org",
        Just("4111-1111-1111-1111".to_owned()),
        Just("5500 0055 5555 5559".to_owned()),
        Just("378282246310005".to_owned()),
        "-----BEGIN PRIVATE KEY-----\nMII[A-Za-z0-9+/]{64}\n[A-Za-z0-9+/]{40}=\n-----END PRIVATE KEY-----",
    ]
}

proptest! {
    #[test]
    fn a_secret_is_never_left_wherever_it_stands(before in "\\PC{0,40}", secret in secret(), after in "\\PC{0,40}") {
        // Digits beside a card make another number of it.
        let card = secret.as_bytes()[0].is_ascii_digit();
        let joins = |c: char| c.is_ascii_digit() || matches!(c, ' ' | '-' | '.');
        prop_assume!(!card || !(before.ends_with(joins) || after.starts_with(joins)));
        let redacted = clean(&format!("{before}{secret}{after}"));
        prop_assert!(!redacted.contains(&secret), "{redacted}");
        let core = secret.get(12..24).unwrap_or(&secret);
        prop_assert!(before.contains(core) || after.contains(core) || !redacted.contains(core), "{redacted}");
    }

    #[test]
    fn what_is_assigned_to_a_secret_name_is_never_left(value in "[A-Za-z0-9!#$%*+./?@^_~-]{6,30}", name in "(password|API_KEY|client_secret|passwd)", sign in "( = |=|: |: \"|=')") {
        let redacted = clean(&format!("x {name}{sign}{value}"));
        prop_assert!(!redacted.contains(&value), "{redacted}");
    }

    #[test]
    fn redacting_twice_changes_nothing(parts in prop::collection::vec(prop_oneof![secret(), "\\PC{0,12}", "(password|token)[=: \"]{1,3}", Just("\\u0041".to_owned()), Just("[redacted:mail]".to_owned())], 0..8)) {
        let once = clean(&parts.concat());
        prop_assert_eq!(clean(&once), once);
    }

    #[test]
    fn any_text_is_taken_and_hardly_grows(text in "(?s).{0,200}", from in 0usize..200, length in 0usize..60) {
        let redacted = clean(&text);
        prop_assert!(redacted.len() <= text.len() * 12 + 24);
        let from = text.floor_char_boundary(from);
        let part = built_in().part(&text, from..text.floor_char_boundary(from + length).max(from));
        prop_assert!(part.len() <= 12 * length + 64);
    }
}
