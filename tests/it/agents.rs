//! Real agents through the real gateway to the simulated provider: Claude Code and the Anthropic
//! SDKs for Python and TypeScript, pinned by tests/setup. What is asked of each run:
//!
//! - the client's outcome (exit code, answers, errors) equals that of a run without the gateway;
//! - what reached the provider is the client's bytes plus markers, and what reached the client is
//!   the provider's bytes: written down by relays on both sides, compared without trusting either;
//! - the records have a turn for each answer, priced, with the markers that the wire shows.

mod clients;
mod guards;
mod http1;
mod local_model;
mod openai;
mod relay;
pub mod splice;
mod world;

use serde_json::Value;

use clients::{Desk, KEY, Outcome, Sdk, claude_code, claude_code_at};
use http1::Message;
use relay::{Exchange, Relay};
use world::{Direct, Finished, Gateway};

const PLAN: &str = "Please do the test steps. [[plan:shell_ok,shell_fail,read,end]]";
const SDK_PLAN: &str = "Please do the test steps. [[plan:shell_ok,shell_fail,end]]";
/// Headers that belong to one connection or one body framing.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "content-length",
    "date",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
];

/// A request as both sides saw it.
struct Pair {
    front: Exchange,
    back: Exchange,
    added: usize,
}

impl Pair {
    fn is_turn(&self) -> bool {
        let target = path(&self.back.request);
        self.back.request.method() == "POST" && target == "/v1/messages"
    }
}

/// The path without query and without the labels that prefixgate takes off.
fn path(request: &Message) -> &str {
    let target = unlabelled(request.target());
    target.split('?').next().unwrap_or(target)
}

fn unlabelled(target: &str) -> &str {
    match target.strip_prefix("/-/").map(|rest| rest.find('/')) {
        Some(Some(at)) => &target[3 + at..],
        _ => target,
    }
}

/// Compares the two sides of a finished gateway request by request. `answered_here` says which of
/// the client's requests the gateway may answer itself; all others must have reached the provider.
fn compare(finished: &Finished, answered_here: impl Fn(&Exchange) -> bool) -> Vec<Pair> {
    let mut backs = finished.back().exchanges();
    let mut pairs = Vec::new();
    for front in finished.front().exchanges() {
        if answered_here(&front) {
            continue;
        }
        let target = unlabelled(front.request.target());
        let same_place = |back: &Exchange| {
            back.request.target() == target && back.request.method() == front.request.method()
        };
        // Requests at the same time may arrive in another order than they were sent. Where none fits,
        // the first one is compared, so that the difference is told.
        let at = backs
            .iter()
            .position(|back| same_place(back) && fits(&front.request, &back.request))
            .or_else(|| backs.iter().position(same_place))
            .unwrap_or_else(|| panic!("`{}` did not reach the provider", front.request.start));
        let back = backs.remove(at);
        same_headers(&front.request, &back.request, |name| {
            name.starts_with("x-prefixgate-")
        });
        let added = splice::added_markers(&front.request.body, &back.request.body);
        same_answer(&front, &back);
        pairs.push(Pair { front, back, added });
    }
    assert!(
        backs.is_empty(),
        "requests of the gateway's own: {:?}",
        backs.iter().map(|b| &b.request.start).collect::<Vec<_>>()
    );
    pairs
}

/// Whether one can have become the other: the same agent, and nothing but insertions in the body.
fn fits(from: &Message, to: &Message) -> bool {
    let agent = |message: &Message| {
        let named = |name: &str| name.starts_with("x-claude-code-");
        let mut all: Vec<_> = (message.headers.iter())
            .filter(|(name, _)| named(name))
            .cloned()
            .collect();
        all.sort();
        all
    };
    let mut sent = to.body.iter();
    agent(from) == agent(to) && from.body.iter().all(|byte| sent.any(|other| other == byte))
}

fn same_headers(from: &Message, to: &Message, may_be_dropped: impl Fn(&str) -> bool) {
    let kept = |message: &Message| {
        let mut all: Vec<(String, String)> = message
            .headers
            .iter()
            .filter(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()) && !may_be_dropped(name))
            .cloned()
            .collect();
        all.sort();
        all
    };
    assert_eq!(kept(from), kept(to), "headers of `{}`", from.start);
}

/// The answer went through whole or broke off at the client's side as well.
fn same_answer(front: &Exchange, back: &Exchange) {
    let (Some(given), Some(got)) = (&front.response, &back.response) else {
        assert!(
            back.response.is_none(),
            "the answer to `{}` was lost",
            front.request.start
        );
        // Nothing came back; the gateway says so with a status of its own, or breaks off as well.
        let status = front.response.as_ref().map_or(502, Message::status);
        assert!(status >= 500, "`{}` got {status}", front.request.start);
        return;
    };
    assert_eq!(given.status(), got.status());
    same_headers(got, given, |name| name.starts_with("x-prefixgate-"));
    if got.complete {
        assert_eq!(given.body, got.body, "body of the answer");
        assert!(given.complete, "a whole answer was cut");
    } else {
        // What arrived goes on, then the stream breaks or an error event says so; it never ends as
        // if it were whole.
        assert!(given.body.starts_with(&got.body), "bytes before the cut");
        let rest = String::from_utf8_lossy(&given.body[got.body.len()..]).into_owned();
        let told = rest.contains("event: error");
        assert!(
            !given.complete || told,
            "a cut answer ended in order: {rest}"
        );
        assert!(rest.is_empty() || told, "bytes of our own: {rest}");
    }
}

/// Checks the records of a run against what the relays saw.
async fn check_records(finished: &Finished, run: &str, pairs: &[Pair]) -> (Value, Vec<Value>) {
    let wire: Vec<&Pair> = pairs.iter().filter(|pair| pair.is_turn()).collect();
    let turns = finished.turns(run).await;
    let log = finished.log();
    assert_eq!(turns.len(), wire.len(), "records: {turns:#?}\nlog: {log}");
    for (turn, pair) in turns.iter().zip(&wire) {
        let status = pair.front.response.as_ref().map(Message::status);
        assert_eq!(turn["status"].as_u64(), status.map(u64::from), "{turn:#}");
        let added = number(&turn["markers"]["added"]);
        assert_eq!(added, Some(pair.added), "markers added: {turn:#}");
        let body: Value = serde_json::from_slice(&pair.front.request.body).unwrap();
        let own = splice::markers_in(&body);
        assert_eq!(number(&turn["markers"]["client"]), Some(own), "{turn:#}");
        if turn["outcome"] == "ok" {
            check_priced(turn);
            check_unbroken(turn);
        }
    }
    let run = finished.run(run).await;
    assert!(
        !finished.stored_anywhere(KEY),
        "the key was stored or logged"
    );
    (run, turns)
}

/// A count, or the length of a list of what is counted.
fn number(value: &Value) -> Option<usize> {
    let listed = value.as_array().map(Vec::len);
    listed.or_else(|| usize::try_from(value.as_u64()?).ok())
}

fn check_priced(turn: &Value) {
    assert_eq!(turn["usage_complete"], true, "{turn:#}");
    assert!(turn["tokens"]["output"].as_u64() > Some(0), "{turn:#}");
    assert!(cost(turn) > 0.0, "{turn:#}");
    assert!(turn["stop_reason"].is_string(), "{turn:#}");
    assert!(turn["model_served"].is_string(), "{turn:#}");
}

/// A well-behaved client breaks nothing: whatever it moves, marks or spells otherwise is no change.
fn check_unbroken(turn: &Value) {
    let verdict = &turn["verdict"];
    if turn["unjudged"] == "history_held" {
        return;
    }
    let status = verdict["status"].as_str();
    let fine = ["cold", "hit", "extended", "not_cacheable"];
    assert!(status.is_some_and(|s| fine.contains(&s)), "{turn:#}");
    assert_eq!(verdict["first_changed"], Value::Null, "{turn:#}");
    assert_eq!(verdict["lost_tokens"], 0, "{turn:#}");
}

fn cost(of: &Value) -> f64 {
    let text = of["cost_usd"].as_str();
    let text = text.unwrap_or_else(|| panic!("no cost in {of:#}"));
    text.parse().unwrap()
}

fn ratio(of: &Value) -> f64 {
    let ratio = &of["hit_ratio"];
    let text = ratio.as_str().and_then(|t| t.parse().ok());
    text.or(ratio.as_f64())
        .unwrap_or_else(|| panic!("no hit ratio in {of:#}"))
}

/// How often the client asked, by path: it must not ask more or less because of the gateway.
fn asked(relay: &Relay) -> Vec<String> {
    let exchanges = relay.exchanges();
    let mut all: Vec<String> = exchanges
        .iter()
        .map(|e| format!("{} {}", e.request.method(), path(&e.request)))
        .collect();
    all.sort();
    all
}

/// Claude Code with and without a gateway.
async fn claude(policy: &str, session: &str, prompt: &str) -> (Finished, Outcome) {
    let (direct, gateway) = tokio::join!(Direct::start(), Gateway::start(policy, None));
    let (direct_url, gateway_url) = (direct.relay.url(), gateway.front.url());
    let (expected, got) = tokio::join!(
        claude_code(&direct_url, session, prompt),
        claude_code(&gateway_url, session, prompt),
    );
    let finished = gateway.finish().await;
    if breaks(prompt) {
        assert_eq!(got.code, expected.code, "{}", finished.story());
        assert_eq!(got.said["result"], expected.said["result"]);
    } else {
        assert_eq!(got, expected, "{}", finished.story());
    }
    assert_eq!(asked(finished.front()), asked(&direct.relay));
    (finished, got)
}

/// Whether a connection is broken on purpose. How much of what came before the break a client has
/// read by then, and so the name of its error or its own count of turns, is chance.
fn breaks(prompt: &str) -> bool {
    prompt.contains("[[inject:drop")
}

fn nothing(_: &Exchange) -> bool {
    false
}

#[tokio::test]
async fn claude_code_works_and_its_session_is_the_run() {
    let session = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a0001";
    let (finished, outcome) = claude("fill", session, PLAN).await;
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.said["is_error"], false);
    let pairs = compare(&finished, nothing);
    let (run, turns) = check_records(&finished, session, &pairs).await;
    assert_eq!(turns.len(), 4);
    assert_eq!(run["turns"], 4);
    assert!(cost(&run) > 0.0);
    assert!(ratio(&run) > 0.5, "{run:#}");
    for later in &turns[1..] {
        assert!(ratio(later) > 0.9, "{later:#}");
    }
}

/// A dozen turns with a sub-agent, then the session goes on in another process.
#[tokio::test]
async fn claude_code_over_many_turns_a_sub_agent_and_a_resume() {
    let session = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a0009";
    let gateway = Gateway::start("fill", None).await;
    let url = gateway.front.url();
    let plan = "Please do the test steps. [[plan:shell_ok,read,shell_fail,agent,shell_ok,read,shell_ok,\
                shell_ok,read,shell_ok,end]]";
    let desk = Desk::new();
    let first = claude_code_at(&desk, &url, &["--session-id", session], plan).await;
    assert_eq!(first.code, Some(0), "{first:#?}");
    let again = "And now these. [[plan:shell_ok,read,end]]";
    let second = claude_code_at(&desk, &url, &["--resume", session], again).await;
    assert_eq!(second.code, Some(0), "{second:#?}");
    let finished = gateway.finish().await;
    let pairs = compare(&finished, nothing);
    assert!(pairs.iter().all(|pair| {
        let status = pair.front.response.as_ref().map(Message::status);
        status == Some(200) || !pair.is_turn()
    }));
    let (run, turns) = check_records(&finished, session, &pairs).await;
    let threads: std::collections::HashSet<_> = turns
        .iter()
        .filter_map(|turn| turn["thread"].as_str())
        .collect();
    assert!(
        threads.len() >= 2,
        "the sub-agent has a thread of its own: {threads:?}"
    );
    assert!(turns.len() >= 14, "{}", turns.len());
    assert!(ratio(&run) > 0.8, "{run:#}");
}

#[tokio::test]
async fn claude_code_is_byte_identical_with_the_cache_policy_off() {
    let session = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a0002";
    let (finished, _) = claude("off", session, PLAN).await;
    let pairs = compare(&finished, nothing);
    for pair in &pairs {
        assert_eq!(pair.front.request.body, pair.back.request.body);
    }
    check_records(&finished, session, &pairs).await;
}

#[tokio::test]
async fn claude_code_gets_over_an_overload_and_a_rate_limit() {
    let session = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a0003";
    let prompt = format!("{PLAN} [[inject:529 x1 @1]] [[inject:429 x1 @2]]");
    let (finished, outcome) = claude("fill", session, &prompt).await;
    assert_eq!(outcome.code, Some(0));
    let pairs = compare(&finished, nothing);
    let (_, turns) = check_records(&finished, session, &pairs).await;
    for status in [429, 529] {
        let failed: Vec<&Value> = turns.iter().filter(|t| t["status"] == status).collect();
        assert_eq!(failed.len(), 1, "{turns:#?}");
        assert_eq!(failed[0]["outcome"], "upstream_error");
    }
}

#[tokio::test]
async fn claude_code_is_told_of_a_refusal() {
    let session = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a0004";
    let prompt = format!("{PLAN} [[inject:400bill x99 @1]]");
    let (finished, outcome) = claude("off", session, &prompt).await;
    assert_eq!(outcome.code, Some(1));
    let pairs = compare(&finished, nothing);
    let (_, turns) = check_records(&finished, session, &pairs).await;
    assert_eq!(turns.last().unwrap()["status"], 400);
}

#[tokio::test]
async fn claude_code_notices_a_cut_answer() {
    let session = "5e0f2f0a-6d5d-4b7e-9d35-0c6c1e0a0005";
    let prompt = format!("{PLAN} [[inject:drop x1 @1]]");
    let (finished, _) = claude("fill", session, &prompt).await;
    let pairs = compare(&finished, nothing);
    let (_, turns) = check_records(&finished, session, &pairs).await;
    let cut: Vec<&Value> = turns
        .iter()
        .filter(|t| t["outcome"] == "upstream_cut")
        .collect();
    assert_eq!(cut.len(), 1, "{turns:#?}");
}

/// An SDK with and without a gateway, in a run named by a label in the base URL.
async fn sdk(
    sdk: Sdk,
    mode: &str,
    prompt: &str,
    policy: &str,
    config: Option<&str>,
) -> (Finished, Outcome) {
    let (direct, gateway) = tokio::join!(Direct::start(), Gateway::start(policy, config));
    let direct_url = direct.relay.url();
    let gateway_url = format!("{}/-/run=r1,app=sdk.test", gateway.front.url());
    let (expected, got) = tokio::join!(
        sdk.run(&direct_url, mode, prompt),
        sdk.run(&gateway_url, mode, prompt),
    );
    let finished = gateway.finish().await;
    if breaks(prompt) {
        assert_eq!(got.code, expected.code, "{}", finished.story());
        assert_eq!(got.said["answers"], expected.said["answers"]);
    } else {
        assert_eq!(got, expected, "{}", finished.story());
    }
    if config.is_none() {
        assert_eq!(asked(finished.front()), asked(&direct.relay));
    }
    (finished, got)
}

/// Three turns with a working and a failing tool call.
async fn sdk_works(kind: Sdk, mode: &str) {
    let (finished, outcome) = sdk(kind, mode, SDK_PLAN, "fill", None).await;
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    assert_eq!(outcome.said["answers"].as_array().unwrap().len(), 3);
    assert_eq!(outcome.said["results"].as_array().unwrap().len(), 2);
    let pairs = compare(&finished, nothing);
    let (run, turns) = check_records(&finished, "r1", &pairs).await;
    assert_eq!(run["turns"], 3, "{run:#}");
    if !mode.starts_with("tools") {
        // Threads do not cache by markers of ours; whole histories do.
        assert!(pairs.iter().any(|pair| pair.added > 0));
        for later in &turns[1..] {
            assert!(ratio(later) > 0.9, "{later:#}");
        }
    }
}

/// Refusals, limits and broken answers, whole and streamed: the client ends as it would have.
async fn sdk_fails_alike(kind: Sdk, mode: &str) {
    for (fault, policy) in [
        ("400 x9 @1", "off"),
        ("429 x1 @1", "fill"),
        ("529 x1 @0", "fill"),
        ("529 x9 @1", "fill"),
        ("drop x1 @1", "fill"),
    ] {
        let prompt = format!("{SDK_PLAN} [[inject:{fault}]]");
        let (finished, _) = sdk(kind, mode, &prompt, policy, None).await;
        let pairs = compare(&finished, nothing);
        check_records(&finished, "r1", &pairs).await;
    }
}

/// With `threads = "replay"` each continuation is refused; the SDK replays the whole history, and
/// after two refusals in a row it gives threads up. From then on its requests can be marked.
async fn sdk_replays(kind: Sdk) {
    let config = "[anthropic]\nthreads = \"replay\"\n";
    let plan = "Please do the test steps. [[plan:shell_ok,shell_ok,shell_ok,shell_fail,shell_ok,shell_ok,\
                shell_ok,shell_ok,shell_ok,shell_ok,shell_ok,end]]";
    const TURNS: usize = 12;
    let (finished, outcome) = sdk(kind, "tools", plan, "fill", Some(config)).await;
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let here = |e: &Exchange| e.response.as_ref().is_some_and(|r| r.status() == 404);
    let fronts = finished.front().exchanges();
    assert_eq!(fronts.iter().filter(|e| here(e)).count(), 2);
    let pairs = compare(&finished, here);
    assert_eq!(pairs.iter().filter(|pair| pair.is_turn()).count(), TURNS);
    for pair in &pairs {
        let body: Value = serde_json::from_slice(&pair.back.request.body).unwrap();
        assert!(body["system"].is_string() || body["system"].is_array());
        assert!(body["tools"].is_array());
        // Which markers the provider takes in a thread is not known, so there are none of ours.
        assert_eq!(pair.added > 0, body.get("thread").is_none(), "{body}");
    }
    let run = finished.run("r1").await;
    assert_eq!(run["turns"], TURNS, "{run:#}");
    let turns = finished.turns("r1").await;
    assert!(ratio(turns.last().unwrap()) > 0.9, "{turns:#?}");
    for turn in turns.iter().filter(|turn| turn["outcome"] == "ok") {
        check_unbroken(turn);
    }
}

/// Counting tokens and listing models are passed on and are not turns.
async fn sdk_counts(kind: Sdk) {
    let (finished, outcome) = sdk(kind, "count", SDK_PLAN, "fill", None).await;
    assert_eq!(outcome.code, Some(0), "{outcome:#?}");
    let pairs = compare(&finished, nothing);
    assert!(pairs.len() >= 2);
    assert!(pairs.iter().all(|pair| pair.added == 0));
}

#[tokio::test]
async fn python_create() {
    sdk_works(Sdk::Python, "create").await;
}

#[tokio::test]
async fn python_stream() {
    sdk_works(Sdk::Python, "stream").await;
}

#[tokio::test]
async fn python_tool_runner_with_threads() {
    sdk_works(Sdk::Python, "tools").await;
}

#[tokio::test]
async fn python_tool_runner_streamed() {
    sdk_works(Sdk::Python, "tools_stream").await;
}

#[tokio::test]
async fn python_tool_runner_replayed() {
    sdk_replays(Sdk::Python).await;
}

#[tokio::test]
async fn python_count_and_models() {
    sdk_counts(Sdk::Python).await;
}

#[tokio::test]
async fn python_failures_whole() {
    sdk_fails_alike(Sdk::Python, "create").await;
}

#[tokio::test]
async fn python_failures_streamed() {
    sdk_fails_alike(Sdk::Python, "stream").await;
}

#[tokio::test]
async fn typescript_create() {
    sdk_works(Sdk::TypeScript, "create").await;
}

#[tokio::test]
async fn typescript_stream() {
    sdk_works(Sdk::TypeScript, "stream").await;
}

#[tokio::test]
async fn typescript_tool_runner_with_threads() {
    sdk_works(Sdk::TypeScript, "tools").await;
}

#[tokio::test]
async fn typescript_tool_runner_streamed() {
    sdk_works(Sdk::TypeScript, "tools_stream").await;
}

#[tokio::test]
async fn typescript_tool_runner_replayed() {
    sdk_replays(Sdk::TypeScript).await;
}

#[tokio::test]
async fn typescript_count_and_models() {
    sdk_counts(Sdk::TypeScript).await;
}

#[tokio::test]
async fn typescript_failures_whole() {
    sdk_fails_alike(Sdk::TypeScript, "create").await;
}

#[tokio::test]
async fn typescript_failures_streamed() {
    sdk_fails_alike(Sdk::TypeScript, "stream").await;
}
