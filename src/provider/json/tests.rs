use super::*;
use proptest::prelude::*;

fn skip_all(body: &[u8]) -> Result<Span, Fault> {
    let mut walker = Walker::new(body)?;
    let span = walker.skip()?;
    walker.finish()?;
    Ok(span)
}

#[test]
fn walks_what_strict_parsers_refuse() {
    let deep = [vec![b'['; 300_000], vec![b']'; 300_000]].concat();
    for body in [
        br#"{"a":"\ud800 lone","b":12345678901234567890,"b":-1.5e+30}"#.as_slice(),
        b"[\"\xff\xfe\",\"tab\there\"]",
        b" \n\t\r[ ] ",
        br#""\\""#,
        &deep,
    ] {
        let span = skip_all(body).unwrap();
        assert_eq!(span.of(body), body.trim_ascii());
    }
}

#[test]
fn refuses_structural_nonsense() {
    for body in [
        "",
        " ",
        "{",
        "[",
        "\"",
        "\"\\",
        "{]",
        "[}",
        "[[}]",
        "nul",
        "NaN",
        "tru e",
        "1 2",
        "[] ]",
        "\u{feff}{}",
        ":",
        ",",
        "-x",
        "\"a\"b",
    ] {
        assert!(skip_all(body.as_bytes()).is_err(), "{body}");
    }
    for object in [
        r#"{"a" 1}"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a":1,}"#,
        r#"{,}"#,
        r#"{a:1}"#,
        r#"{"a":}"#,
    ] {
        let mut walker = Walker::new(object.as_bytes()).unwrap();
        assert!(walker.enter(b'{').unwrap());
        let mut first = true;
        let outcome = loop {
            match walker.key(&mut first) {
                Ok(Some(_)) => {
                    if let Err(fault) = walker.skip() {
                        break Err(fault);
                    }
                }
                Ok(None) => break Ok(()),
                Err(fault) => break Err(fault),
            }
        };
        assert!(outcome.is_err(), "{object}");
    }
}

#[test]
fn keys_are_compared_after_unescaping() {
    let body = br#"{"mess\u0061ges":1,"\ud83d\ude42":2}"#;
    let mut walker = Walker::new(body).unwrap();
    walker.enter(b'{').unwrap();
    let mut first = true;
    assert_eq!(
        walker.key(&mut first).unwrap().unwrap().as_ref(),
        b"messages"
    );
    walker.skip().unwrap();
    assert_eq!(
        walker.key(&mut first).unwrap().unwrap().as_ref(),
        "🙂".as_bytes()
    );
    walker.skip().unwrap();
    assert!(walker.key(&mut first).unwrap().is_none());
}

#[test]
fn blank_sees_through_escapes() {
    for raw in [
        r#""""#,
        r#"" ""#,
        r#""\n\t\u0020 \u00a0""#,
        "\"\u{2003}\u{feff}\"",
        r#""\u001f""#,
    ] {
        assert!(blank(raw.as_bytes()), "{raw}");
    }
    for raw in [
        r#""\n.""#,
        r#""\\""#,
        r#""\ud800""#,
        "\"\u{2003}é\"",
        r#""\u200b""#,
    ] {
        assert!(!blank(raw.as_bytes()), "{raw}");
    }
    assert!(!blank(b"\"\xe2\""));
    assert!(says(br#""te\u0078t""#, "text") && !says(br#""text2""#, "text"));
}

proptest! {
    /// Whatever serde_json reads is walked to its end, and strings come out alike.
    #[test]
    fn agrees_with_serde(text in any::<String>(), pad in "[ \n\t]{0,3}", ascii in any::<bool>()) {
        let mut quoted = serde_json::to_string(&text).unwrap();
        if ascii {
            let escaped = |c: char| {
                c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect::<String>()
            };
            quoted = quoted.chars().map(|c| if c.is_ascii() { c.to_string() } else { escaped(c) }).collect();
        }
        prop_assert_eq!(unescape(quoted.as_bytes()), text.as_str());
        prop_assert!(says(quoted.as_bytes(), &text));
        prop_assert_eq!(blank(quoted.as_bytes()),
            text.chars().all(|c| c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}' | '\u{feff}')));
        let body = format!("{pad}[{quoted},{{{quoted}{pad}:{pad}[1e5,{quoted}]}}]{pad}");
        let span = skip_all(body.as_bytes()).unwrap();
        prop_assert_eq!(span.of(body.as_bytes()), body.trim().as_bytes());
    }

    /// However many backslashes and quotes, at whatever distance of each other: as by the rule that a
    /// backslash takes the byte behind it with it.
    #[test]
    fn the_end_of_a_string_is_where_the_rule_says(
        parts in prop::collection::vec(("[a-z]{0,40}", prop::sample::select(vec!["\\", "\"", "\\\\", "\\\"", ""])), 0..12),
        from in 0..4_usize,
    ) {
        let text: String = parts.into_iter().map(|(plain, special)| plain + special).collect();
        let body = text.as_bytes();
        let mut at = from;
        let expected = loop {
            match body.get(at) {
                None => break None,
                Some(b'"') => break Some(at + 1),
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        };
        prop_assert_eq!(string_end(body, from), expected);
    }

    #[test]
    fn never_panics(body in prop::collection::vec(prop::sample::select(
        b"{}[]\",:\\u0d8 \n1-tfn\xff\xe2".to_vec()), 0..200)) {
        let _ = skip_all(&body);
        let text = unescape(&body);
        prop_assert!(text.len() <= body.len() * 3);
        let _ = blank(&body);
    }
}
