use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

use super::*;
use crate::config::Semconv;
use crate::export::otlp::naming::Provider;
use crate::prompt_cache::verdict::{Excerpt, Reason, Status, Verdict, What, Whose};
use crate::provider::view::Ttl;
use crate::trace::{CallResult, CallStatus, EventKind, Placed};

mod random;

const T: i64 = 1_796_083_200_000;
const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn naming() -> Naming {
    let provider = Provider {
        name: "anthropic".into(),
        address: "api.anthropic.com".into(),
        port: 443,
    };
    Naming {
        providers: vec![("anthropic".into(), provider)],
        semconv: Semconv::Latest,
        sample_ppm: 1_000_000,
    }
}

/// Turn `n` of a thread, which takes 900 ms and starts `s` seconds after T.
fn turn(run: &str, thread: &str, n: u32, s: i64) -> TurnRecord {
    let mut turn = TurnRecord::begin(
        Uuid::now_v7(),
        RequestKind::Turn,
        "anthropic",
        T + s * 1_000,
    );
    turn.run_id = run.into();
    turn.run_source = "header";
    turn.thread_id = thread.into();
    turn.parent_thread = (thread != MAIN).then(|| MAIN.into());
    turn.turn = n;
    turn.duration_us = 900_000;
    turn.status = Some(200);
    turn.outcome = Outcome::Ok;
    turn.model_requested = Some("claude-opus-5".into());
    turn.usage = Usage {
        uncached: Some(200),
        read: Some(900),
        write_5m: Some(100),
        write_1h: Some(0),
        output: Some(80),
        ..Usage::default()
    };
    turn.usage_complete = true;
    turn.cost_pico = Some(4_075_000_000);
    turn
}

fn failed(mut turn: TurnRecord, attempt: u32, status: u16) -> TurnRecord {
    turn.attempt = attempt;
    turn.status = Some(status);
    turn.outcome = Outcome::UpstreamError;
    turn.error_type = Some("overloaded_error".into());
    turn.usage = Usage::default();
    turn.cost_pico = None;
    turn
}

fn call(turn: &TurnRecord, id: &str, status: CallStatus) -> ToolCallRecord {
    ToolCallRecord {
        turn_id: turn.id,
        run_id: turn.run_id.clone(),
        thread_id: turn.thread_id.clone(),
        call_id: id.into(),
        name: "Bash".into(),
        input_hash: "5ec4e7".into(),
        input_bytes: 40,
        asked_ms: turn.started_ms + 900,
        status,
        latency_ms: (status != CallStatus::Pending).then_some(250),
        result_bytes: Some(7),
        wrong: None,
        retries: 1,
    }
}

fn event(turn: &TurnRecord) -> EventRecord {
    EventRecord {
        id: Uuid::now_v7(),
        at_ms: turn.started_ms + 5,
        kind: EventKind::Loop,
        name: "same_error".into(),
        run_id: turn.run_id.clone(),
        thread_id: turn.thread_id.clone(),
        turn_id: Some(turn.id),
        app: None,
        scope: String::new(),
        action: "warn".into(),
        value: Some(3),
        limit: Some(3),
        level: None,
        pico: None,
        tools: vec!["Bash".into()],
    }
}

fn of(turn: &TurnRecord) -> Entry {
    Entry::Turn(Box::new(turn.clone()))
}

fn of_call(call: ToolCallRecord) -> Entry {
    Entry::Call(Box::new(call))
}

fn of_event(event: EventRecord) -> Entry {
    Entry::Event(Box::new(event))
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.unwrap_or_else(|| panic!("no span {name} in {:?}", names(spans)))
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

fn value(span: &Span, key: &str) -> Option<Value> {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key);
    found.and_then(|attribute| attribute.value.clone()?.value)
}

fn int(span: &Span, key: &str) -> Option<i64> {
    match value(span, key)? {
        Value::IntValue(value) => Some(value),
        other => panic!("{key} is {other:?}"),
    }
}

fn text(span: &Span, key: &str) -> Option<String> {
    match value(span, key)? {
        Value::StringValue(value) => Some(value),
        other => panic!("{key} is {other:?}"),
    }
}

/// Delivers a batch, as an exporter does.
fn deliver(tree: &mut Tree, entries: &[Entry], now_ms: i64) -> Vec<Span> {
    let mut plan = tree.plan(entries, now_ms);
    let spans = std::mem::take(&mut plan.spans);
    tree.commit(plan);
    spans
}

/// Takes what is due, as an exporter does.
fn take_due(tree: &mut Tree, now_ms: i64, ending: bool) -> Vec<Span> {
    let (due, spans): (Vec<Due>, Vec<Span>) = tree.due(now_ms, 60_000, ending).into_iter().unzip();
    tree.settle(&due);
    spans
}

#[test]
fn a_run_with_a_sub_agent_is_a_tree() {
    let first = turn("run-1", MAIN, 1, 0);
    let mut sub = turn("run-1", "Explore", 1, 2);
    sub.agent = Some("Explore".into());
    let last = turn("run-1", MAIN, 2, 10);
    let mut task = call(&first, "toolu_1", CallStatus::Ok);
    task.name = "Task".into();
    task.latency_ms = Some(9_100);
    let grep = call(&sub, "toolu_2", CallStatus::Failed);
    let entries = [
        of(&first),
        of(&sub),
        of_call(grep),
        of_call(task),
        of(&last),
        of_event(event(&last)),
    ];
    let spans = spans(&entries, &naming());
    let run = named(&spans, "invoke_agent");
    let agent = named(&spans, "invoke_agent Explore");
    let task = named(&spans, "execute_tool Task");
    let bash = named(&spans, "execute_tool Bash");
    let of_turn = |turn: &TurnRecord| {
        let id = ids::span_of_turn(turn.id);
        spans.iter().find(|span| span.span_id == id).unwrap()
    };
    assert_eq!(spans.len(), 8);
    assert!(run.parent_span_id.is_empty());
    assert_eq!(agent.parent_span_id, run.span_id);
    for (child, parent) in [
        (of_turn(&first), run),
        (of_turn(&last), run),
        (of_turn(&sub), agent),
        (task, of_turn(&first)),
        (bash, of_turn(&sub)),
        (named(&spans, "loop same_error"), of_turn(&last)),
    ] {
        assert_eq!(child.parent_span_id, parent.span_id, "{}", child.name);
        assert_eq!(child.trace_id, run.trace_id);
    }
    assert_eq!(run.start_time_unix_nano, nanos(T));
    assert_eq!(run.end_time_unix_nano, nanos(T + 10_900));
    assert_eq!(agent.end_time_unix_nano, nanos(T + 2_900 + 250));
    let status = bash.status.clone().unwrap();
    assert_eq!(
        (status.code, text(bash, "error.type")),
        (2, Some("tool_failed".into()))
    );
    assert_eq!(text(agent, "gen_ai.agent.name"), Some("Explore".into()));
}

#[test]
fn a_turn_has_the_attributes_of_the_conventions() {
    let record = turn("run-1", MAIN, 1, 0);
    let all = spans(&[of(&record)], &naming());
    let span = named(&all, "chat claude-opus-5");
    assert_eq!(span.kind, 3);
    // The whole prompt: 200 + 900 + 100.
    assert_eq!(int(span, "gen_ai.usage.input_tokens"), Some(1_200));
    assert_eq!(int(span, "gen_ai.usage.output_tokens"), Some(80));
    assert_eq!(int(span, "gen_ai.usage.cache_read.input_tokens"), Some(900));
    assert_eq!(
        int(span, "gen_ai.usage.cache_write.input_tokens"),
        Some(100)
    );
    assert_eq!(text(span, "gen_ai.provider.name"), Some("anthropic".into()));
    assert_eq!(
        text(span, "server.address"),
        Some("api.anthropic.com".into())
    );
    assert_eq!(int(span, "prefixgate.cost_pico"), Some(4_075_000_000));
    assert_eq!(
        value(span, "prefixgate.cost_usd"),
        Some(Value::DoubleValue(0.004_075))
    );
    assert_eq!(
        value(span, "prefixgate.hit_ratio"),
        Some(Value::DoubleValue(0.75))
    );
    assert_eq!(span.status, None);
    assert_eq!(value(span, "gen_ai.system"), None, "an older name");

    let both = Naming {
        semconv: Semconv::Both,
        ..naming()
    };
    let all = spans(&[of(&record)], &both);
    let span = named(&all, "chat claude-opus-5");
    assert_eq!(text(span, "gen_ai.system"), Some("anthropic".into()));
    assert_eq!(int(span, "gen_ai.usage.prompt_tokens"), Some(1_200));
    assert_eq!(int(span, "gen_ai.usage.completion_tokens"), Some(80));
    assert_eq!(
        int(span, "gen_ai.usage.cache_creation.input_tokens"),
        Some(100)
    );
}

#[test]
fn unknown_counts_are_left_out() {
    let mut record = turn("run-1", MAIN, 1, 0);
    record.usage.write_1h = None;
    record.usage.output = None;
    record.cost_pico = None;
    let all = spans(&[of(&record)], &naming());
    let span = named(&all, "chat claude-opus-5");
    for key in [
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "prefixgate.cost_usd",
        "prefixgate.cost_pico",
        "prefixgate.hit_ratio",
    ] {
        assert_eq!(value(span, key), None, "{key}");
    }
    assert_eq!(int(span, "gen_ai.usage.cache_read.input_tokens"), Some(900));
}

#[test]
fn a_clients_trace_is_the_parent_and_stands_for_the_run() {
    let mut tree = Tree::new(naming());
    let mut record = turn("run-1", "Explore", 1, 0);
    record.traceparent = Some(CLIENT.into());
    let early = event(&record);
    let sent = deliver(&mut tree, &[of_event(early), of(&record)], T);
    let span = named(&sent, "chat claude-opus-5");
    assert_eq!(
        span.trace_id,
        0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes()
    );
    assert_eq!(span.parent_span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
    assert_eq!(text(span, "prefixgate.run"), Some("run-1".into()));
    let loops = named(&sent, "loop same_error");
    assert_eq!(
        (&loops.trace_id, &loops.parent_span_id),
        (&span.trace_id, &span.span_id)
    );
    // The result of its call comes with a later batch.
    let later = deliver(
        &mut tree,
        &[of_call(call(&record, "toolu_1", CallStatus::Ok))],
        T,
    );
    assert_eq!(later[0].trace_id, span.trace_id);
    assert_eq!(later[0].parent_span_id, span.span_id);
    assert!(
        take_due(&mut tree, T, true).is_empty(),
        "no span of a run or thread"
    );
}

#[test]
fn what_the_client_does_not_sample_is_not_sent_and_what_it_samples_is() {
    let mut tree = Tree::new(naming());
    let mut record = turn("run-1", MAIN, 1, 0);
    record.traceparent = Some(CLIENT.replace("-01", "-00"));
    let entries = [of(&record), of_event(event(&record))];
    assert!(deliver(&mut tree, &entries, T).is_empty());
    let result = call(&record, "toolu_1", CallStatus::Ok);
    assert!(deliver(&mut tree, &[of_call(result)], T).is_empty());
    assert!(take_due(&mut tree, T, true).is_empty());

    let mut tree = Tree::new(Naming {
        sample_ppm: 0,
        ..naming()
    });
    assert!(deliver(&mut tree, &[of(&turn("run-2", MAIN, 1, 0))], T).is_empty());
    assert!(take_due(&mut tree, T, true).is_empty());
    record.traceparent = Some(CLIENT.into());
    assert_eq!(deliver(&mut tree, &[of(&record)], T).len(), 1);
}

#[test]
fn one_span_covers_all_retries() {
    let mut tree = Tree::new(naming());
    let first = failed(turn("run-1", MAIN, 1, 0), 1, 529);
    let second = failed(turn("run-1", MAIN, 1, 2), 2, 529);
    let mut third = turn("run-1", MAIN, 1, 5);
    third.attempt = 3;
    assert!(deliver(&mut tree, &[of(&first)], T).is_empty());
    assert!(deliver(&mut tree, &[of(&second)], T).is_empty());
    let sent = deliver(&mut tree, &[of(&third)], T);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].span_id, ids::span_of_turn(third.id));
    assert_eq!(sent[0].start_time_unix_nano, nanos(T));
    assert_eq!(sent[0].end_time_unix_nano, nanos(T + 5_900));
    assert_eq!(sent[0].status, None);
    let tried: Vec<u64> = sent[0].events.iter().map(|e| e.time_unix_nano).collect();
    assert_eq!(tried, [nanos(T + 900), nanos(T + 2_900)]);
    assert_eq!(
        take_due(&mut tree, T, true).len(),
        1,
        "the run alone is left"
    );
}

#[test]
fn an_attempt_that_none_follows_is_a_span_of_its_own() {
    let mut tree = Tree::new(naming());
    let lost = failed(turn("run-1", MAIN, 1, 0), 1, 529);
    assert!(deliver(&mut tree, &[of(&lost)], T).is_empty());
    assert!(take_due(&mut tree, T + 59_999, false).is_empty());
    let due = take_due(&mut tree, T + 60_000, false);
    let span = named(&due, "chat claude-opus-5");
    assert_eq!(span.status.clone().unwrap().code, 2);
    assert_eq!(text(span, "error.type"), Some("overloaded_error".into()));
    // The thread goes on without trying again.
    deliver(
        &mut tree,
        &[of(&failed(turn("run-1", MAIN, 2, 0), 1, 529))],
        T,
    );
    assert_eq!(
        deliver(&mut tree, &[of(&turn("run-1", MAIN, 3, 9))], T).len(),
        2
    );
    // What no client repeats, and what has used tokens, is sent at once.
    let wrong = failed(turn("run-1", MAIN, 4, 0), 1, 400);
    assert_eq!(deliver(&mut tree, &[of(&wrong)], T).len(), 1);
    let mut cut = turn("run-1", MAIN, 5, 0);
    cut.outcome = Outcome::UpstreamCut;
    assert_eq!(deliver(&mut tree, &[of(&cut)], T).len(), 1);
}

#[test]
fn a_batch_that_did_not_arrive_gives_the_same_again() {
    let mut tree = Tree::new(naming());
    deliver(
        &mut tree,
        &[of(&failed(turn("run-1", MAIN, 1, 0), 1, 529))],
        T,
    );
    let mut again = turn("run-1", MAIN, 1, 3);
    again.attempt = 2;
    let batch = [of(&again), of(&turn("run-2", MAIN, 1, 0))];
    let (first, second) = (
        tree.plan(&batch, T).spans,
        tree.plan(&batch, T + 5_000).spans,
    );
    assert_eq!(first, second);
    assert_eq!(first[0].events.len(), 1);
    // It may also have arrived without anybody knowing.
    deliver(&mut tree, &batch, T);
    let third = deliver(&mut tree, &batch, T);
    assert_eq!(third.len(), 2);
    assert_eq!(third[1], first[1]);
}

#[test]
fn the_span_of_a_run_is_sent_when_it_is_silent_and_again_when_it_goes_on() {
    let mut tree = Tree::new(naming());
    deliver(&mut tree, &[of(&turn("run-1", MAIN, 1, 0))], T);
    assert!(take_due(&mut tree, T + 59_999, false).is_empty());
    let first = take_due(&mut tree, T + 60_000, false);
    assert_eq!(names(&first), ["invoke_agent"]);
    assert!(take_due(&mut tree, T + 90_000, false).is_empty(), "once");
    deliver(&mut tree, &[of(&turn("run-1", MAIN, 2, 300))], T + 300_000);
    let second = take_due(&mut tree, T + 300_000, true);
    assert_eq!(second[0].span_id, first[0].span_id);
    assert_eq!(second[0].start_time_unix_nano, nanos(T));
    assert_eq!(second[0].end_time_unix_nano, nanos(T + 300_900));
}

#[test]
fn after_a_restart_a_sub_agent_still_has_parents() {
    let mut sub = turn("run-1", "t7", 3, 5);
    sub.parent_thread = Some("Explore".into());
    let mut parent = turn("run-1", "Explore", 2, 9);
    parent.agent = Some("Explore".into());
    let all = spans(&[of(&sub), of(&parent)], &naming());
    let explore = named(&all, "invoke_agent Explore");
    let run = named(&all, "invoke_agent");
    assert_eq!(
        named(&all, "invoke_agent t7").parent_span_id,
        explore.span_id
    );
    assert_eq!(explore.parent_span_id, run.span_id);
    assert_eq!(explore.start_time_unix_nano, nanos(T + 5_000));
    assert_eq!(all.len(), 5);
}

#[test]
fn what_is_kept_is_bounded_and_what_has_to_go_is_sent() {
    let mut tree = Tree::new(naming());
    for n in 0..OPEN_SPANS + 3 {
        let record = turn(&format!("run-{n}"), MAIN, 1, 0);
        deliver(&mut tree, &[of(&record)], T);
    }
    assert_eq!(tree.open.len(), OPEN_SPANS);
    let due = take_due(&mut tree, T, false);
    assert_eq!(due.len(), 3);
    assert_eq!(text(&due[0], "prefixgate.run"), Some("run-0".into()));
    assert!(take_due(&mut tree, T, false).is_empty());

    for n in 0..HELD_ATTEMPTS + 2 {
        let record = failed(turn("run", &format!("t{n}"), 1, 0), 1, 529);
        deliver(&mut tree, &[of(&record)], T);
    }
    assert_eq!(tree.held.len(), HELD_ATTEMPTS);
    let due = take_due(&mut tree, T, false);
    assert_eq!(
        due.iter()
            .filter(|span| span.name.starts_with("chat"))
            .count(),
        2
    );
}

#[test]
fn a_call_is_sent_when_its_result_is_known() {
    let record = turn("run-1", MAIN, 1, 0);
    let result = CallResult {
        run_id: "run-1".into(),
        thread_id: MAIN.into(),
        call_id: "toolu_9".into(),
        status: CallStatus::Ok,
        latency_ms: Some(1),
        result_bytes: None,
        retries: 0,
    };
    let entries = [
        of_call(call(&record, "toolu_1", CallStatus::Pending)),
        of_call(call(&record, "toolu_1", CallStatus::Ok)),
        of_call(call(&record, "toolu_1", CallStatus::Failed)),
        of_call(call(&record, "toolu_2", CallStatus::Unanswered)),
        of_call(call(&record, "toolu_3", CallStatus::Incomplete)),
        Entry::Result(Box::new(result)),
    ];
    let tree = Tree::new(naming());
    let sent = tree.plan(&entries, T).spans;
    assert_eq!(names(&sent), ["execute_tool Bash"]);
    assert_eq!(
        sent[0].status.clone().unwrap().code,
        2,
        "the newest version"
    );
    let times = (sent[0].start_time_unix_nano, sent[0].end_time_unix_nano);
    assert_eq!(times, (nanos(T + 900), nanos(T + 1_150)));
}

#[test]
fn only_requests_to_a_model_are_sent() {
    for kind in RequestKind::ALL {
        let mut record = turn("run-1", MAIN, 1, 0);
        record.kind = *kind;
        let sent = Tree::new(naming()).plan(&[of(&record)], T).spans.len();
        let wanted = matches!(kind, RequestKind::Turn | RequestKind::KeepWarm);
        assert_eq!(sent, usize::from(wanted), "{kind:?}");
    }
}

#[test]
fn e15_no_text_of_prompts_or_tools_is_in_a_span() {
    const SECRET: &str = "hunter2";
    let mut record = failed(turn("run-1", MAIN, 1, 0), 1, 400);
    record.error_message = Some(format!("messages.0: {SECRET}"));
    record.credential = Some(SECRET.into());
    record.root = Some(SECRET.into());
    record.chain = Some(SECRET.into());
    record.warnings = vec![format!("unknown_block:{SECRET}")];
    record.path = format!("/v1/{SECRET}");
    record.cache.trail = SECRET.into();
    record.cache.verdict = Some(Verdict {
        status: Status::Miss,
        reason: Some(Reason::System),
        first_changed: Some("system[0].text".into()),
        offset: Some(3),
        what: Some(What::Clock),
        detail: SECRET.into(),
        whose: Some(Whose::Client),
        lost_tokens: Some(9),
        lost_pico: Some(1),
        excerpt: Some(Excerpt {
            before: SECRET.into(),
            after: SECRET.into(),
        }),
    });
    record.guard.policy = Some(SECRET.into());
    record.markers_added = vec![Placed {
        path: SECRET.into(),
        ttl: Ttl::H1,
        offset: 7,
    }];
    let mut tool = call(&record, "toolu_1", CallStatus::Ok);
    tool.input_hash = SECRET.into();
    let all = spans(
        &[of(&record), of_call(tool), of_event(event(&record))],
        &naming(),
    );
    assert_eq!(all.len(), 4);
    for span in &all {
        let bytes = span.encode_to_vec();
        let found = bytes
            .windows(SECRET.len())
            .any(|at| at == SECRET.as_bytes());
        assert!(!found, "{span:?}");
    }
    let span = named(&all, "chat claude-opus-5");
    assert_eq!(text(span, "prefixgate.verdict"), Some("miss".into()));
    assert_eq!(
        text(span, "prefixgate.verdict.first_changed"),
        Some("system[0].text".into())
    );
    assert_eq!(int(span, "prefixgate.lost_tokens"), Some(9));
}
