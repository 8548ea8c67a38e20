//! Takes the listed kinds of splices out of a forwarded body again. It knows what may be inserted,
//! not where the planner wants it, so that it can contradict the planner.

use std::collections::HashSet;

use serde_json::Value;

/// What prefixgate may put in front of a bare string to make it a block.
const OPEN: &str = r#"[{"type":"text","text":"#;
/// And behind it, after the marker.
const CLOSE: &str = "}]";
/// The markers, with and without their lifetime. Written out, so that any other spelling is caught.
const MARKERS: [&str; 3] = [
    r#""cache_control":{"type":"ephemeral"}"#,
    r#""cache_control":{"type":"ephemeral","ttl":"5m"}"#,
    r#""cache_control":{"type":"ephemeral","ttl":"1h"}"#,
];
/// The provider refuses more.
const MOST_MARKERS: usize = 4;

/// Bytes that are in the forwarded body and not in the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insert {
    /// Offset in the client's body.
    pub at: usize,
    pub text: String,
}

impl Insert {
    /// Whether it carries a marker (opening a block does not).
    pub fn is_marker(&self) -> bool {
        self.text.contains("cache_control")
    }
}

/// The splices that turn `client` into `forwarded`; `None` when there is any other difference.
pub fn difference(client: &[u8], forwarded: &[u8]) -> Option<Vec<Insert>> {
    let candidates = candidates();
    let mut seen = HashSet::new();
    // Depth first over (offset in client, offset in forwarded, what was taken out so far).
    let mut open = vec![(0, 0, Vec::new())];
    while let Some((mut i, mut j, inserts)) = open.pop() {
        if !seen.insert((i, j)) {
            continue;
        }
        loop {
            if j == forwarded.len() {
                if i == client.len() {
                    return Some(inserts);
                }
                break;
            }
            let here = candidates
                .iter()
                .filter(|c| forwarded[j..].starts_with(c.as_bytes()));
            for text in here {
                let mut inserts: Vec<Insert> = inserts.clone();
                inserts.push(Insert {
                    at: i,
                    text: text.clone(),
                });
                open.push((i, j + text.len(), inserts));
            }
            if client.get(i) != Some(&forwarded[j]) {
                break;
            }
            i += 1;
            j += 1;
        }
    }
    None
}

fn candidates() -> Vec<String> {
    let mut all = vec![OPEN.to_owned()];
    for marker in MARKERS {
        all.push(format!(",{marker}"));
        all.push(format!("{marker},"));
        all.push(format!(",{marker}{CLOSE}"));
    }
    all
}

/// Checks one forwarded body against the client's and returns how many markers were added.
pub fn added_markers(client: &[u8], forwarded: &[u8]) -> usize {
    if client == forwarded {
        return 0;
    }
    let inserts = difference(client, forwarded).unwrap_or_else(|| {
        let at = client.iter().zip(forwarded).take_while(|(a, b)| a == b);
        let at = at.count();
        let show = |bytes: &[u8]| {
            let end = (at + 120).min(bytes.len());
            String::from_utf8_lossy(&bytes[at.saturating_sub(40).min(end)..end]).into_owned()
        };
        panic!(
            "the forwarded body differs by more than markers; first difference at byte {at}\n\
             client:    ...{}\nforwarded: ...{}",
            show(client),
            show(forwarded)
        )
    });
    let body: Value = serde_json::from_slice(forwarded).expect("a spliced body is still JSON");
    let markers = markers_in(&body);
    assert!(
        markers <= MOST_MARKERS,
        "{markers} markers in a forwarded body"
    );
    inserts.iter().filter(|insert| insert.is_marker()).count()
}

/// Markers in all the places where the provider counts them.
pub fn markers_in(body: &Value) -> usize {
    let own = usize::from(body.get("cache_control").is_some_and(|m| !m.is_null()));
    let lists = ["tools", "system"].map(|name| marked(&body[name]));
    let messages = body["messages"].as_array();
    let messages = messages.map_or(0, |all| all.iter().map(|m| marked(&m["content"])).sum());
    own + lists.iter().sum::<usize>() + messages
}

fn marked(blocks: &Value) -> usize {
    let Some(blocks) = blocks.as_array() else {
        return 0;
    };
    let one = |block: &Value| {
        usize::from(block.get("cache_control").is_some_and(|m| !m.is_null()))
            + marked(&block["content"])
    };
    blocks.iter().map(one).sum()
}

#[test]
fn splices_are_found_and_nothing_else_is_forgiven() {
    let client =
        br#"{"system":"s","tools":[{"name":"a","cache_control":{"type":"ephemeral"}}],"x":1}"#;
    let forwarded = br#"{"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"a","cache_control":{"type":"ephemeral"}}],"x":1}"#;
    let found = difference(client, forwarded).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].at, found[0].is_marker()), (10, false));
    assert_eq!((found[1].at, found[1].is_marker()), (13, true));
    assert_eq!(added_markers(client, forwarded), 1);
    assert_eq!(added_markers(client, client), 0);

    // A comma that both have in common must not lead astray.
    let client = br#"[{"a":1,"b":2}]"#;
    let forwarded = br#"[{"a":1,"cache_control":{"type":"ephemeral","ttl":"1h"},"b":2}]"#;
    assert_eq!(difference(client, forwarded).unwrap().len(), 1);

    for wrong in [
        br#"[{"a":1,"cache_control":{"type":"ephemeral","ttl":"2h"},"b":2}]"#.as_slice(),
        br#"[{"a":1,"b":2 }]"#,
        br#"[{"a":1,"b":3}]"#,
        br#"[{"a":1}]"#,
        br#"[{"a":1,"b":2}"#,
    ] {
        assert_eq!(difference(client, wrong), None);
    }
}
