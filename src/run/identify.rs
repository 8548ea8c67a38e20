//! What a client says about itself, in headers, labels and body.
//!
//! The order of belief is: our own header or label, session headers of gateways and clients,
//! ids in the body, an earlier answer's id, trace context. Content comes last and is the
//! registry's business. The names of headers are facts about clients, measured in November 2026.

use http::HeaderMap;
use serde::Deserialize;

use crate::guard::caps::Limits;
use crate::provider::view::BodyIds;

/// Longest id that is kept as the client wrote it; longer ones are named by their hash.
pub const MAX_ID_BYTES: usize = 128;

/// Labels a client put into its base URL (`/-/run=..,app=..`) or into `x-prefixgate-*` headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The run.
    pub run: Option<String>,
    /// The application.
    pub app: Option<String>,
    /// The agent inside the run.
    pub agent: Option<String>,
    /// The agent that started it.
    pub parent: Option<String>,
    /// Limits that the client asks for. They lower those of its run, and never raise them.
    pub limits: Limits,
}

/// What could be told without looking at the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The run's id and the word for where it came from.
    pub run: Option<(String, &'static str)>,
    /// The agent inside the run.
    pub agent: Option<String>,
    /// The agent that started it.
    pub parent_agent: Option<String>,
    /// The client says that this request sums up its conversation.
    pub compaction: bool,
    /// The client's own count of retries of this request.
    pub retries: u32,
}

/// Headers that say who is asking, each by its first value.
#[derive(Default)]
struct Said<'a> {
    /// Session headers of gateways, in the order in which they are believed before any client's own.
    gateways: [Option<&'a [u8]>; 3],
    /// Believed only from Codex, in this order: the names are too common to be taken from anyone.
    codex: [Option<&'a [u8]>; 4],
    originator: bool,
    codex_parent: Option<&'a [u8]>,
    claude_session: Option<&'a [u8]>,
    claude_agent: Option<&'a [u8]>,
    claude_parent: Option<&'a [u8]>,
    claude_class: Option<&'a [u8]>,
    affinity: Option<&'a [u8]>,
    /// The first header of an unknown client that looks like the id of a session.
    generic: Option<&'a [u8]>,
    agent: Option<&'a [u8]>,
    retries: Option<&'a [u8]>,
}

impl<'a> Said<'a> {
    /// One pass over the headers: a look-up for each of the names costs several times as much, since
    /// most requests have few of them.
    fn of(headers: &'a HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            let value = value.as_bytes();
            let place = match name.as_str() {
                "x-litellm-session-id" => &mut said.gateways[0],
                "helicone-session-id" => &mut said.gateways[1],
                "x-session-id" => &mut said.gateways[2],
                "session-id" => &mut said.codex[0],
                "session_id" => &mut said.codex[1],
                "conversation_id" => &mut said.codex[2],
                "thread-id" => &mut said.codex[3],
                "originator" => {
                    said.originator = true;
                    continue;
                }
                "x-codex-parent-thread-id" => &mut said.codex_parent,
                "x-claude-code-session-id" => &mut said.claude_session,
                "x-claude-code-agent-id" => &mut said.claude_agent,
                "x-claude-code-parent-agent-id" => &mut said.claude_parent,
                "x-claude-code-request-class" => &mut said.claude_class,
                "x-session-affinity" => &mut said.affinity,
                "user-agent" => &mut said.agent,
                "x-stainless-retry-count" => &mut said.retries,
                // A sub-agent's pointer to its parent is not its own session.
                "x-parent-session-id" => continue,
                other if is_generic(other, value) => &mut said.generic,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        said
    }

    fn is_codex(&self) -> bool {
        self.originator || self.agent.is_some_and(|agent| agent.starts_with(b"codex"))
    }
}

/// Whether a header that this version does not know names a session.
fn is_generic(name: &str, value: &[u8]) -> bool {
    name.starts_with("x-")
        && name.ends_with("-session-id")
        && value.len() >= 8
        && value
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b))
}

/// Resolves everything that needs no memory. `name_of` turns an id that cannot be kept as it is
/// (too long, control characters) into a stable short name, by a keyed hash.
#[must_use]
pub fn identify(
    headers: &HeaderMap,
    labels: &Labels,
    ids: &BodyIds,
    name_of: impl Fn(&[u8]) -> String,
) -> Identity {
    let clean = |value: &[u8]| clean_id(value, &name_of);
    let header = |value: Option<&[u8]>| clean(value?);
    let label = |value: &Option<String>| value.as_deref().and_then(|v| clean(v.as_bytes()));
    let said = Said::of(headers);

    let agent = label(&labels.agent)
        .or_else(|| header(said.claude_agent))
        .or_else(|| header(said.codex_parent).and_then(|_| header(said.codex[3])));
    let parent_agent = label(&labels.parent)
        .or_else(|| header(said.claude_parent))
        .or_else(|| header(said.codex_parent));

    let run = label(&labels.run)
        .map(|id| (id, "label"))
        .or_else(|| {
            let gateway = said.gateways.into_iter().find_map(header);
            gateway.map(|id| (id, "header"))
        })
        .or_else(|| client_session(&said, &clean).map(|id| (id, "client")))
        .or_else(|| body_session(ids, &clean).map(|id| (id, "body")));

    let retries = said
        .retries
        .and_then(|v| std::str::from_utf8(v).ok()?.parse().ok())
        .unwrap_or(0);

    Identity {
        run,
        agent,
        parent_agent,
        // What a request of Claude Code is for; its other classes are told apart by their prompts.
        compaction: said.claude_class == Some(b"compaction"),
        retries,
    }
}

/// The weakest hint: a trace may be one turn only, so it is asked after the registry has looked
/// for a lineage.
#[must_use]
pub fn trace_session(headers: &HeaderMap) -> Option<String> {
    let baggage = headers
        .get("baggage")
        .and_then(|v| v.to_str().ok())
        .and_then(|list| {
            let entry = list
                .split(',')
                .find_map(|e| e.trim().strip_prefix("session.id="))?;
            let id = entry.split(';').next().unwrap_or_default().trim();
            is_plain(id.as_bytes()).then(|| id.to_owned())
        });
    baggage.or_else(|| {
        let trace = traceparent(headers)?.split('-').nth(1)?.to_owned();
        Some(trace)
    })
}

/// The `traceparent` of a request, in lower case; `None` where there is none, or one that W3C Trace
/// Context says to pass over (all zeros, version `ff`, wrong lengths). What later versions append is
/// left out.
#[must_use]
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    const PARTS: [usize; 4] = [2, 32, 16, 2];
    let text = headers.get("traceparent")?.to_str().ok()?.trim();
    let parts: Vec<&str> = text.splitn(5, '-').take(PARTS.len()).collect();
    let hex = parts.len() == PARTS.len()
        && (parts.iter().zip(PARTS))
            .all(|(part, len)| part.len() == len && part.bytes().all(|b| b.is_ascii_hexdigit()));
    let none = |part: &str| part.bytes().all(|b| b == b'0');
    if !hex || parts[0].eq_ignore_ascii_case("ff") || none(parts[1]) || none(parts[2]) {
        return None;
    }
    Some(parts.join("-").to_ascii_lowercase())
}

fn client_session(said: &Said<'_>, clean: &impl Fn(&[u8]) -> Option<String>) -> Option<String> {
    let codex = said.codex.into_iter().flatten();
    let codex = codex.filter(|_| said.is_codex());
    let named = said.claude_session.into_iter().chain(codex);
    let others = said.affinity.into_iter().chain(said.generic);
    named.chain(others).find_map(clean)
}

fn body_session(ids: &BodyIds, clean: &impl Fn(&[u8]) -> Option<String>) -> Option<String> {
    let user = ids.user_id.as_deref().and_then(session_of_user_id);
    user.as_deref()
        .into_iter()
        .chain(ids.sessions.iter().map(String::as_str))
        .find_map(|id| clean(id.as_bytes()))
}

/// Claude Code's user id: JSON with a `session_id`, or in older versions
/// `user_<hash>_account_<uuid>_session_<uuid>`.
fn session_of_user_id(user_id: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct UserId {
        session_id: String,
    }
    if user_id.starts_with('{') {
        return serde_json::from_str::<UserId>(user_id)
            .ok()
            .map(|u| u.session_id);
    }
    let (before, session) = user_id.rsplit_once("_session_")?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let sound = before.starts_with("user_") && session.bytes().all(plain);
    sound.then(|| session.to_owned())
}

/// An id that is safe to show, store and log; `None` for an empty one.
fn clean_id(value: &[u8], name_of: &impl Fn(&[u8]) -> String) -> Option<String> {
    let value = value.trim_ascii();
    if value.is_empty() {
        return None;
    }
    if is_plain(value) {
        return String::from_utf8(value.to_vec()).ok();
    }
    Some(format!("h-{}", name_of(value)))
}

/// Short enough, and text without control characters.
fn is_plain(value: &[u8]) -> bool {
    (1..=MAX_ID_BYTES).contains(&value.len())
        && std::str::from_utf8(value).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// Program and version of a user agent (`claude-cli/2.1.332`), the rest of it cut off.
#[must_use]
pub fn client_name(headers: &HeaderMap) -> Option<String> {
    let agent = headers.get(http::header::USER_AGENT)?.to_str().ok()?;
    let first = agent.split_whitespace().next()?;
    is_plain(first.as_bytes()).then(|| crate::text::prefix(first, 64).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(headers: &[(&'static str, &str)], ids: BodyIds, run: Option<(&str, &str)>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let name_of = |b: &[u8]| format!("{}", b.len());
        let identity = identify(&map, &Labels::default(), &ids, name_of);
        let found = identity.run.as_ref().map(|(id, from)| (id.as_str(), *from));
        assert_eq!(found, run, "{headers:?}");
    }

    #[test]
    fn e10_explicit_ids_in_order_of_belief() {
        let none = BodyIds::default;
        check(
            &[("x-claude-code-session-id", "s1")],
            none(),
            Some(("s1", "client")),
        );
        let claude_in_litellm = [
            ("x-claude-code-session-id", "s1"),
            ("x-litellm-session-id", "l1"),
        ];
        check(&claude_in_litellm, none(), Some(("l1", "header")));
        check(
            &[("session-id", "c1"), ("originator", "codex_exec")],
            none(),
            Some(("c1", "client")),
        );
        check(&[("session-id", "c1")], none(), None);
        check(
            &[("x-acme-session-id", "abcdefgh")],
            none(),
            Some(("abcdefgh", "client")),
        );
        check(&[("x-acme-session-id", "short")], none(), None);
        check(&[("x-parent-session-id", "abcdefgh")], none(), None);
        let json = BodyIds {
            user_id: Some(r#"{"device_id":"d","session_id":"s9"}"#.into()),
            ..none()
        };
        check(&[], json, Some(("s9", "body")));
        let legacy = BodyIds {
            user_id: Some("user_ab_account_cd_session_ef".into()),
            ..none()
        };
        check(&[], legacy, Some(("ef", "body")));
        let others = [
            "just-a-user",
            "{not json",
            "a_session_b",
            "user_a_session_b c",
            "",
        ];
        for user in others {
            let ids = BodyIds {
                user_id: Some(user.into()),
                ..none()
            };
            check(&[], ids, None);
        }
        check(
            &[],
            BodyIds {
                sessions: vec![String::new(), "k".into()],
                ..none()
            },
            Some(("k", "body")),
        );
    }

    #[test]
    fn e10_unusable_ids_are_hashed() {
        let long = "x".repeat(10_000);
        check(
            &[("x-session-id", &long)],
            BodyIds::default(),
            Some(("h-10000", "header")),
        );
        check(
            &[("x-session-id", "a b")],
            BodyIds::default(),
            Some(("a b", "header")),
        );
        check(&[("x-session-id", "  ")], BodyIds::default(), None);
        let control = BodyIds {
            sessions: vec!["a\nb".into()],
            ..BodyIds::default()
        };
        check(&[], control, Some(("h-3", "body")));
    }

    #[test]
    fn trace_context_names_a_run_only_when_it_is_one() {
        let of = |name: &'static str, value: &str| {
            let mut map = HeaderMap::new();
            map.insert(name, value.parse().unwrap());
            trace_session(&map)
        };
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(
            of("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01")).unwrap(),
            trace
        );
        assert_eq!(
            of(
                "traceparent",
                &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32))
            ),
            None
        );
        assert_eq!(of("traceparent", "nonsense"), None);
        let whole = |value: &str| {
            let mut map = HeaderMap::new();
            map.insert("traceparent", value.parse().unwrap());
            traceparent(&map)
        };
        let plain = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(whole(&plain.to_uppercase()).as_deref(), Some(&*plain));
        // A later version may append what this one does not know.
        assert_eq!(
            whole(&format!("cc{}-more-of-it", &plain[2..])),
            Some(format!("cc{}", &plain[2..]))
        );
        for wrong in [
            format!("ff{}", &plain[2..]),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("00-{trace}-00f067aa0ba902b-01"),
        ] {
            assert_eq!(whole(&wrong), None, "{wrong}");
        }
        assert_eq!(of("baggage", "a=b, session.id=s-1;p=1").unwrap(), "s-1");
    }
}
