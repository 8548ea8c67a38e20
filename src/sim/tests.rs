//! The caching and conversation rules, each as a conversation with a provider without sockets.

use std::sync::Arc;

use super::clock::{Clock, ManualClock};
use super::error::ApiError;
use super::head::Head;
use super::json::Json;
use super::options::Options;
use super::provider::{Provider, Ready, decode};
use super::validate::Purpose;
use super::{Counting, Tokens};

const M5: &str = r#","cache_control":{"type":"ephemeral"}"#;
const H1: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

struct Bench {
    provider: Arc<Provider>,
    clock: ManualClock,
    head: Head,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let (clock, hand) = Clock::manual();
        let mut options = Options {
            clock,
            ..Options::default()
        };
        change(&mut options);
        Self {
            provider: Provider::new(options),
            clock: hand,
            head: Head {
                scope: "key".into(),
                version: "2023-06-01".into(),
                betas: Vec::new(),
            },
        }
    }

    fn beta(mut self, beta: &str) -> Self {
        self.head.betas.push(beta.into());
        self
    }

    fn ready(&self, body: &str) -> Result<Ready, ApiError> {
        let body = Json::parse(body.as_bytes()).unwrap_or_else(|error| panic!("{error}: {body}"));
        let now = self.provider.options.clock.now_ms();
        self.provider
            .answer(&self.head, &body, Purpose::Answer, None, now)
    }

    /// A request whose answer begins and ends at once.
    fn send(&self, body: &str) -> Result<Ready, ApiError> {
        let mut ready = self.ready(body)?;
        self.provider.begin(&mut ready);
        Ok(ready)
    }

    fn tokens(&self, body: &str) -> Tokens {
        self.send(body)
            .unwrap_or_else(|error| panic!("{}: {body}", error.message))
            .answer
            .tokens
    }

    fn refused(&self, body: &str, text: &str) {
        match self.send(body) {
            Ok(_) => panic!("accepted, expected {text}: {body}"),
            Err(error) => assert!(
                error.message.contains(text),
                "{} has not {text}",
                error.message
            ),
        }
    }
}

/// A text block of exactly `tokens` tokens that starts with `name`.
fn text(name: &str, tokens: usize, marker: &str) -> String {
    let frame = r#"{"type":"text","text":""}"#.len();
    let fill = "x".repeat(tokens * 4 - frame - name.len());
    format!(r#"{{"type":"text","text":"{name}{fill}"{marker}}}"#)
}

fn tool(name: &str, marker: &str) -> String {
    format!(r#"{{"name":"{name}","input_schema":{{"type":"object"}}{marker}}}"#)
}

fn user(blocks: &[String]) -> String {
    format!(r#"{{"role":"user","content":[{}]}}"#, blocks.join(","))
}

fn request(extra: &str, system: &[String], messages: &[String]) -> String {
    format!(
        r#"{{"model":"test-sonnet","max_tokens":100{extra},"system":[{}],"messages":[{}]}}"#,
        system.join(","),
        messages.join(",")
    )
}

fn rwu(read: u64, write_5m: u64, write_1h: u64, uncached: u64) -> Tokens {
    Tokens {
        read,
        write_5m,
        write_1h,
        uncached,
    }
}

fn hello() -> String {
    user(&[text("hello", 10, "")])
}

#[test]
fn nothing_is_cached_without_a_marker() {
    let bench = Bench::new();
    let body = request("", &[text("s", 2000, "")], &[hello()]);
    assert_eq!(bench.tokens(&body), rwu(0, 0, 0, 2010));
    assert_eq!(bench.tokens(&body), rwu(0, 0, 0, 2010));
}

#[test]
fn a_marker_writes_once_and_then_reads() {
    let bench = Bench::new();
    let body = request("", &[text("s", 2000, M5)], &[hello()]);
    assert_eq!(bench.tokens(&body), rwu(0, 2000, 0, 10));
    assert_eq!(bench.tokens(&body), rwu(2000, 0, 0, 10));
    let longer = request(
        "",
        &[text("s", 2000, M5)],
        &[user(&[text("other", 50, "")])],
    );
    assert_eq!(bench.tokens(&longer), rwu(2000, 0, 0, 50));
}

#[test]
fn a_growing_conversation_reads_its_past_and_writes_its_tail() {
    let bench = Bench::new();
    let turn = |n: usize| {
        let mut messages: Vec<String> = (0..n)
            .flat_map(|i| {
                [
                    user(&[text(&format!("q{i}"), 100, "")]),
                    format!(r#"{{"role":"assistant","content":"a{i}"}}"#),
                ]
            })
            .collect();
        messages.push(user(&[text(&format!("q{n}"), 100, M5)]));
        request("", &[text("s", 2000, "")], &messages)
    };
    assert_eq!(bench.tokens(&turn(0)), rwu(0, 2100, 0, 0));
    let second = bench.tokens(&turn(1));
    assert_eq!((second.read, second.uncached), (2100, 0));
    let third = bench.tokens(&turn(2));
    assert_eq!(third.read, second.total());
}

#[test]
fn below_the_minimum_nothing_happens_silently() {
    let bench = Bench::new();
    let at = |size: usize, model: &str| {
        request("", &[text("s", size, M5)], &[hello()]).replace("test-sonnet", model)
    };
    assert_eq!(bench.tokens(&at(1023, "test-sonnet")), rwu(0, 0, 0, 1033));
    assert_eq!(bench.tokens(&at(1024, "test-sonnet")), rwu(0, 1024, 0, 10));
    assert_eq!(bench.tokens(&at(4095, "test-small")), rwu(0, 0, 0, 4105));
    assert_eq!(bench.tokens(&at(4096, "test-small")), rwu(0, 4096, 0, 10));
}

#[test]
fn entries_live_from_the_start_of_the_request_and_reads_refresh() {
    let bench = Bench::new();
    let body = request("", &[text("s", 2000, M5)], &[hello()]);
    bench.tokens(&body);
    bench.clock.advance(299_999);
    assert_eq!(bench.tokens(&body).read, 2000);
    bench.clock.advance(299_999);
    assert_eq!(bench.tokens(&body).read, 2000);
    bench.clock.advance(300_000);
    assert_eq!(bench.tokens(&body), rwu(0, 2000, 0, 10));
    // A slow answer eats into the lifetime: the clock started with the request.
    let slow = request("", &[text("slow", 2000, M5)], &[hello()]);
    let mut ready = bench.ready(&slow).unwrap();
    bench.clock.advance(200_000);
    bench.provider.begin(&mut ready);
    bench.clock.advance(100_000);
    assert_eq!(bench.tokens(&slow).read, 0);
}

#[test]
fn one_hour_entries_outlive_five_minutes() {
    let bench = Bench::new();
    let body = request("", &[text("s", 2000, H1)], &[hello()]);
    assert_eq!(bench.tokens(&body), rwu(0, 0, 2000, 10));
    bench.clock.advance(3_599_999);
    assert_eq!(bench.tokens(&body).read, 2000);
    bench.clock.advance(3_600_000);
    assert_eq!(bench.tokens(&body).write_1h, 2000);
}

#[test]
fn mixed_lifetimes_are_billed_as_spans() {
    let bench = Bench::new();
    let body = |tail: &str| {
        let messages = user(&[
            text("a", 300, ""),
            text(tail, 200, M5),
            text("rest", 40, ""),
        ]);
        request(
            "",
            &[text("s1", 2000, H1), text("s2", 1000, H1)],
            &[messages],
        )
    };
    assert_eq!(bench.tokens(&body("b")), rwu(0, 500, 3000, 40));
    assert_eq!(bench.tokens(&body("c")), rwu(3000, 500, 0, 40));
    // Everything is read up to the highest hit; the 1h marker below it costs nothing.
    assert_eq!(bench.tokens(&body("c")), rwu(3500, 0, 0, 40));
}

#[test]
fn a_long_prefix_refreshes_the_shorter_ones_on_its_path() {
    let bench = Bench::new();
    let both = request("", &[text("s", 2000, M5)], &[user(&[text("m", 500, M5)])]);
    bench.tokens(&both);
    let tail_only = request("", &[text("s", 2000, "")], &[user(&[text("m", 500, M5)])]);
    bench.clock.advance(250_000);
    assert_eq!(bench.tokens(&tail_only).read, 2500);
    bench.clock.advance(250_000);
    let head_only = request("", &[text("s", 2000, M5)], &[hello()]);
    assert_eq!(bench.tokens(&head_only).read, 2000);
}

/// Two requests: the first writes at its last block, the second appends `more` blocks and marks only
/// its last one. Returns what the second reads.
fn after_appending(bench: &Bench, more: usize, pin: bool) -> u64 {
    let base = text("base", 2000, if pin { M5 } else { "" });
    let first = user(&[base.clone(), text("w", 100, M5)]);
    bench.tokens(&request("", &[], &[first]));
    let mut blocks = vec![base, text("w", 100, "")];
    blocks
        .extend((0..more).map(|i| text(&format!("n{i}"), 10, if i + 1 == more { M5 } else { "" })));
    bench.tokens(&request("", &[], &[user(&blocks)])).read
}

#[test]
fn the_lookback_sees_twenty_positions_the_marker_included() {
    assert_eq!(after_appending(&Bench::new(), 19, false), 2100);
    assert_eq!(after_appending(&Bench::new(), 20, false), 0);
    // The next earlier marker is tried next.
    assert_eq!(after_appending(&Bench::new(), 20, true), 2000);
}

#[test]
fn grouped_counting_takes_a_run_of_results_as_one() {
    let run = |bench: &Bench| {
        let base = user(&[text("base", 2000, M5)]);
        bench.tokens(&request("", &[], std::slice::from_ref(&base)));
        let calls: Vec<_> = (0..25)
            .map(|i| format!(r#"{{"type":"tool_use","id":"t{i}","name":"a","input":{{}}}}"#))
            .collect();
        let results: Vec<_> = (0..25)
            .map(|i| {
                format!(
                    r#"{{"type":"tool_result","tool_use_id":"t{i}","content":"r"{}}}"#,
                    if i == 24 { M5 } else { "" }
                )
            })
            .collect();
        let base = user(&[text("base", 2000, "")]);
        let assistant = format!(r#"{{"role":"assistant","content":[{}]}}"#, calls.join(","));
        bench
            .tokens(&request("", &[], &[base, assistant, user(&results)]))
            .read
    };
    assert_eq!(run(&Bench::new()), 0);
    assert_eq!(
        run(&Bench::with(|options| options.counting = Counting::Grouped)),
        2000
    );
}

#[test]
fn an_entry_can_be_read_only_when_its_writers_answer_has_begun() {
    let bench = Bench::new();
    let body = request("", &[text("s", 2000, M5)], &[hello()]);
    let mut first = bench.ready(&body).unwrap();
    let second = bench.ready(&body).unwrap();
    assert_eq!(second.answer.tokens, rwu(0, 2000, 0, 10));
    bench.provider.begin(&mut first);
    assert_eq!(bench.ready(&body).unwrap().answer.tokens.read, 2000);
}

#[test]
fn caches_are_apart_by_credential_and_model() {
    let mut bench = Bench::new();
    let body = request("", &[text("s", 5000, M5)], &[hello()]);
    bench.tokens(&body);
    assert_eq!(
        bench
            .tokens(&body.replace("test-sonnet", "test-small"))
            .read,
        0
    );
    bench.head.scope = "other key".into();
    assert_eq!(bench.tokens(&body).read, 0);
}

/// Warms tools, system and messages, then sends the changed request and says which levels still hit.
fn levels(extra: (&str, &str), system: (&str, &str), messages: (&str, &str)) -> (bool, bool, bool) {
    let bench = Bench::new();
    let body = |extra: &str, system: &str, message: &str| {
        let big = tool(&format!("t{}", "x".repeat(6000)), M5);
        let tools = if extra.contains("\"tools\"") {
            extra.replace("TOOL", &big)
        } else {
            format!(r#"{extra},"tools":[{big}]"#)
        };
        request(
            &tools,
            &[text(system, 1500, M5)],
            &[user(&[message.to_owned(), text("m", 1500, M5)])],
        )
    };
    let warm = bench.tokens(&body(extra.0, system.0, messages.0));
    let after = bench.tokens(&body(extra.1, system.1, messages.1));
    (
        after.read > 1400,
        after.read >= 3000,
        after.read == warm.total(),
    )
}

#[test]
fn changes_invalidate_their_level_and_those_behind() {
    let same = text("same", 20, "");
    let keep = |extra| levels(extra, ("s", "s"), (&same, &same));
    assert_eq!(keep(("", "")), (true, true, true));
    assert_eq!(
        levels(("", ""), ("s", "t"), (&same, &same)),
        (true, false, false)
    );
    assert_eq!(
        levels(("", ""), ("s", "s"), (&same, &text("other", 20, ""))),
        (true, true, false)
    );
    let image =
        r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}"#;
    assert_eq!(
        levels(("", ""), ("s", "s"), (&same, image)),
        (true, true, false)
    );
    for change in [
        r#","tool_choice":{"type":"any"}"#,
        r#","tool_choice":{"type":"auto","disable_parallel_tool_use":true}"#,
        r#","thinking":{"type":"adaptive"}"#,
        r#","output_config":{"effort":"low"}"#,
    ] {
        assert_eq!(keep(("", change)), (true, true, false), "{change}");
    }
    // Explicit defaults are no change.
    assert_eq!(
        keep(("", r#","tool_choice":{"type":"auto"}"#)),
        (true, true, true)
    );
    assert_eq!(
        keep(("", r#","output_config":{"effort":"high"}"#)),
        (true, true, true)
    );
    // Settings that are no part of the prompt.
    assert_eq!(keep(("", r#","temperature":0.5"#)), (true, true, true));
    assert_eq!(keep(("", r#","speed":"fast""#)), (true, false, false));
    let searched = r#","tools":[TOOL,{"type":"web_search_20260318","name":"web_search"}]"#;
    assert_eq!(keep(("", searched)), (true, false, false));
    let more = r#","tools":[TOOL,{"name":"late","input_schema":{}}]"#;
    // An added tool comes behind the marked one, so the tools before it still hit.
    assert_eq!(keep(("", more)), (true, false, false));
    let earlier = r#","tools":[{"name":"early","input_schema":{}},TOOL]"#;
    assert_eq!(keep(("", earlier)), (false, false, false));
    let deferred = r#","tools":[{"name":"d","input_schema":{},"defer_loading":true},TOOL]"#;
    assert_eq!(keep(("", deferred)), (true, true, true));
}

#[test]
fn spellings_that_mean_the_same_hit_and_bytes_that_differ_miss() {
    let bench = Bench::new();
    let call = |input: &str, result: &str| {
        let long = "y".repeat(8000);
        format!(
            r#"{{"model":"test-sonnet","max_tokens":9,"messages":[{{"role":"user","content":"{long}"}},
            {{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"a","input":{input}}}]}},
            {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":{result}{M5}}}]}}]}}"#
        )
    };
    let base = call(r#"{"a":1,"b":"é"}"#, r#""ok""#);
    let warm = bench.tokens(&base).total();
    let check = |body: &str, hit: bool| {
        bench.provider.state().cache.clear();
        bench.tokens(&base);
        let read = bench.tokens(body).read;
        assert_eq!(read == warm, hit, "{body}");
    };
    check(&base.replace(",\"", " , \""), true);
    check(
        &call(r#"{"a":1,"b":"é"}"#, r#"[{"type":"text","text":"ok"}]"#),
        true,
    );
    check(&base.replace(&"y".repeat(8000), "Z"), false);
    check(&call(r#"{"b":"é","a":1}"#, r#""ok""#), false);
    check(&call(r#"{"a":1.0,"b":"é"}"#, r#""ok""#), false);
    check(&call(r#"{"a":1,"b":"\u00e9"}"#, r#""ok""#), false);
    let reordered = base.replacen(r#""model":"test-sonnet","max_tokens":9,"#, "", 1);
    let reordered = format!(
        r#"{},"max_tokens":9,"model":"test-sonnet"}}"#,
        &reordered[..reordered.len() - 1]
    );
    check(&reordered, true);
}

#[test]
fn at_most_four_markers() {
    let bench = Bench::new();
    let blocks = |n: usize| {
        (0..n)
            .map(|i| text(&format!("{i}"), 10, M5))
            .collect::<Vec<_>>()
    };
    assert!(bench.send(&request("", &[], &[user(&blocks(4))])).is_ok());
    bench.refused(
        &request("", &[], &[user(&blocks(5))]),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    );
    bench.refused(
        &request(
            M5,
            &[],
            &[user(&[blocks(4), vec![text("l", 10, "")]].concat())],
        ),
        "Found 5.",
    );
    // The automatic marker on a block that has the same marker takes no slot.
    assert!(bench.send(&request(M5, &[], &[user(&blocks(4))])).is_ok());
}

#[test]
fn one_hour_stands_before_five_minutes() {
    let bench = Bench::new();
    bench.refused(
        &request("", &[text("s", 10, M5)], &[user(&[text("a", 10, H1)])]),
        "messages.0.content.0.cache_control.ttl: a ttl='1h' cache_control block must not come after a \
         ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.",
    );
    assert!(
        bench
            .send(&request(
                "",
                &[text("s", 10, H1)],
                &[user(&[text("a", 10, M5)])]
            ))
            .is_ok()
    );
    bench.refused(
        &request(H1, &[text("s", 10, M5)], &[hello()]),
        "must not come after",
    );
    bench.refused(
        &request(H1, &[], &[user(&[text("a", 10, M5)])]),
        "conflicts",
    );
}

#[test]
fn the_automatic_marker_goes_to_the_last_block_that_may_carry_one() {
    let bench = Bench::new();
    let body = request(M5, &[], &[user(&[text("a", 2000, "")])]);
    assert_eq!(bench.tokens(&body), rwu(0, 2000, 0, 0));
    let thinking = bench
        .send(&request(
            r#","thinking":{"type":"adaptive"}"#,
            &[],
            &[hello()],
        ))
        .unwrap();
    let blocks = thinking.answer.as_history()[0].compact();
    let ends_in_thinking = request(
        M5,
        &[],
        &[
            user(&[text("b", 2000, "")]),
            format!(r#"{{"role":"assistant","content":[{blocks}]}}"#),
        ],
    );
    let tokens = bench.tokens(&ends_in_thinking);
    assert_eq!((tokens.write_5m, tokens.uncached > 0), (2000, true));
}

#[test]
fn markers_at_forbidden_places_are_refused() {
    let bench = Bench::new();
    let marker = r#""cache_control":{"type":"ephemeral"}"#;
    let calls = |call: &str, result: &str| {
        request(
            "",
            &[],
            &[
                hello(),
                format!(
                    r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t","name":"a","input":{{}}{call}}}]}}"#
                ),
                user(&[format!(
                    r#"{{"type":"tool_result","tool_use_id":"t"{result}}}"#
                )]),
            ],
        )
    };
    bench.refused(
        &calls("", &format!(r#","content":[{{"type":"text","text":"x",{marker}}}]"#)),
        "messages.2.content.0.tool_result.content.0.cache_control: cache_control may not be specified within \
         `tool_result.content`. Instead, place it directly on `tool_result`",
    );
    assert!(
        bench
            .send(&calls("", &format!(r#","content":"x",{marker}"#)))
            .is_ok()
    );
    let programmatic = r#","caller":{"type":"code_execution_20260521","tool_id":"s"}"#;
    bench.refused(
        &calls(&format!("{programmatic},{marker}"), ""),
        "programmatic",
    );
    bench.refused(
        &calls(programmatic, &format!(r#",{marker}"#)),
        "programmatic",
    );
    bench.refused(
        &request(
            "",
            &[],
            &[user(&[
                format!(r#"{{"type":"text","text":" ",{marker}}}"#),
                text("a", 9, ""),
            ])],
        )
        .replace("\" \"", "\" \\n\""),
        "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
    );
    let deferred =
        format!(r#","tools":[{{"name":"d","input_schema":{{}},"defer_loading":true,{marker}}}]"#);
    bench.refused(&request(&deferred, &[], &[hello()]), "defer_loading");
    bench.refused(
        &request(
            "",
            &[],
            &[user(&[text(
                "a",
                9,
                r#","cache_control":{"type":"ephemeral","ttl":"2h"}"#,
            )])],
        ),
        "'5m' or '1h'",
    );
    bench.refused(
        &request(
            "",
            &[],
            &[user(&[text(
                "a",
                9,
                r#","cache_control":{"type":"durable"}"#,
            )])],
        ),
        "'ephemeral'",
    );
    let lenient = Bench::with(|options| options.strict = false);
    lenient.refused(
        &request(
            "",
            &[],
            &[user(&[format!(r#"{{"type":"text","text":"",{marker}}}"#)])],
        ),
        "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
    );
    let thinking = format!(
        r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"x","signature":"y",{marker}}}]}}"#
    );
    for bench in [&bench, &lenient] {
        bench.refused(
            &request("", &[], &[hello(), thinking.clone(), hello()]),
            "thinking.cache_control: Extra inputs are not permitted",
        );
    }
}

#[test]
fn old_thinking_leaves_the_prompt_of_old_models_only() {
    let run = |model: &str| {
        let bench = Bench::new();
        let ask = r#","thinking":{"type":"enabled","budget_tokens":1024}"#;
        let body = |messages: &[String]| {
            request(ask, &[], messages)
                .replace("test-sonnet", model)
                .replace(":100,", ":2000,")
        };
        let first = user(&[text("a", 5000, "")]);
        let answer = bench
            .send(&body(std::slice::from_ref(&first)))
            .unwrap()
            .answer
            .as_history();
        let content: Vec<_> = answer.iter().map(Json::compact).collect();
        let assistant = format!(
            r#"{{"role":"assistant","content":[{}]}}"#,
            content.join(",")
        );
        let with = bench
            .tokens(&body(&[first.clone(), assistant, hello()]))
            .total();
        let without = format!(r#"{{"role":"assistant","content":[{}]}}"#, content[1]);
        with == bench.tokens(&body(&[first, without, hello()])).total()
    };
    assert!(run("claude-haiku-4-5"));
    assert!(!run("claude-opus-4-5"));
}

#[test]
fn thinking_is_bound_to_the_conversation_before_it() {
    let bench = Bench::new();
    let check = |model: &str, edited: bool| {
        let body = |messages: &[String]| request("", &[], messages).replace("test-sonnet", model);
        let ask = |marker: &str| user(&[text("a", 600, marker)]);
        let thinking = r#","thinking":{"type":"adaptive"}"#;
        let body = |messages: &[String]| {
            body(messages).replace(
                r#""max_tokens":100"#,
                &format!(r#""max_tokens":100{thinking}"#),
            )
        };
        let answer = bench.send(&body(&[ask(M5)])).unwrap().answer.as_history();
        let content: Vec<_> = answer.iter().map(Json::compact).collect();
        let assistant = format!(
            r#"{{"role":"assistant","content":[{}]}}"#,
            content.join(",")
        );
        let first = if edited {
            user(&[text("b", 600, "")])
        } else {
            ask("")
        };
        bench
            .send(&body(&[first, assistant, hello()]))
            .err()
            .map(|error| error.message)
    };
    assert_eq!(
        check("claude-sonnet-5-5", false),
        None,
        "a moved marker is no content"
    );
    assert!(
        check("claude-sonnet-5-5", true)
            .unwrap()
            .contains("not valid for this conversation")
    );
    assert_eq!(
        check("claude-opus-4-8", true),
        None,
        "not bound before the 5.5 models"
    );
    let forged =
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"c2ln"}]}"#;
    bench.refused(
        &request("", &[], &[hello(), forged.into(), hello()]),
        "Invalid `signature`",
    );
}

#[test]
fn the_attribution_block_of_claude_code_is_outside_of_the_prompt() {
    let bench = Bench::new();
    let attribution = |n: u32| {
        format!(r#"{{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.{n};"}}"#)
    };
    let body = |n| request("", &[attribution(n), text("s", 2000, M5)], &[hello()]);
    assert_eq!(bench.tokens(&body(1)), rwu(0, 2000, 0, 10));
    assert_eq!(bench.tokens(&body(2)), rwu(2000, 0, 0, 10));
    let behind = |n| {
        request(
            "",
            &[text("front", 2000, ""), attribution(n), text("z", 10, M5)],
            &[hello()],
        )
    };
    bench.tokens(&behind(1));
    assert_eq!(bench.tokens(&behind(2)).read, 0, "only as the first block");
}

#[test]
fn the_order_of_roles_is_checked() {
    let bench = Bench::new();
    let assistant = |text: &str| format!(r#"{{"role":"assistant","content":"{text}"}}"#);
    let system = || r#"{"role":"system","content":"now this"}"#.to_owned();
    let check = |messages: &[String], text: &str| bench.refused(&request("", &[], messages), text);
    check(&[], "at least one message");
    check(
        &[assistant("a")],
        "first message must use the \"user\" role",
    );
    check(&[system(), hello()], "first message");
    check(
        &[hello(), assistant("a"), system(), hello()],
        "must follow a `user` message",
    );
    check(
        &[hello(), system(), hello()],
        "must be the last message or precede an `assistant`",
    );
    check(&[hello(), assistant("a ")], "trailing whitespace");
    check(&[user(&[]), hello()], "non-empty content");
    assert!(
        bench
            .send(&request("", &[], &[hello(), system(), system()]))
            .is_ok()
    );
    assert!(
        bench
            .send(&request(
                "",
                &[],
                &[hello(), system(), assistant("a"), hello(), hello()]
            ))
            .is_ok()
    );
    let old = |messages: &[String]| {
        request("", &[], messages).replace("test-sonnet", "claude-sonnet-4-6")
    };
    bench.refused(&old(&[hello(), system()]), "Unexpected role \"system\"");
    bench.refused(&old(&[hello(), assistant("prefill")]), "prefill");
}

#[test]
fn calls_and_results_stand_in_pairs() {
    let bench = Bench::new();
    let calls = |ids: &[&str]| {
        let calls: Vec<_> = ids
            .iter()
            .map(|id| format!(r#"{{"type":"tool_use","id":"{id}","name":"a","input":{{}}}}"#))
            .collect();
        format!(r#"{{"role":"assistant","content":[{}]}}"#, calls.join(","))
    };
    let result =
        |id: &str| format!(r#"{{"type":"tool_result","tool_use_id":"{id}","content":"r"}}"#);
    let check = |messages: &[String], text: &str| bench.refused(&request("", &[], messages), text);
    check(
        &[hello(), calls(&["a"])],
        "`tool_use` ids were found without `tool_result` blocks immediately after: a.",
    );
    check(
        &[hello(), calls(&["a", "b"]), user(&[result("a")])],
        "immediately after: b.",
    );
    check(
        &[
            hello(),
            calls(&["a"]),
            user(&[text("t", 9, ""), result("a")]),
        ],
        "immediately after: a.",
    );
    check(
        &[hello(), calls(&["a"]), user(&[result("x")])],
        "unexpected `tool_use_id` found in `tool_result` blocks: x.",
    );
    check(&[user(&[result("x")])], "unexpected `tool_use_id`");
    check(
        &[hello(), calls(&["a"]), user(&[result("a"), result("a")])],
        "multiple",
    );
    check(
        &[hello(), calls(&["a", "a"]), user(&[result("a")])],
        "must be unique",
    );
    check(
        &[
            hello(),
            calls(&["a"]),
            user(&[result("a")]),
            calls(&["a"]),
            user(&[result("a")]),
        ],
        "must be unique",
    );
    let split = [
        hello(),
        calls(&["a", "b"]),
        user(&[result("b")]),
        user(&[result("a"), text("t", 9, "")]),
    ];
    assert!(
        bench.send(&request("", &[], &split)).is_ok(),
        "neighbours of one role are one turn"
    );
}

#[test]
fn blocks_are_checked_by_kind() {
    let mut bench = Bench::new();
    let block = |json: &str| request("", &[], &[user(&[json.to_owned()])]);
    bench.refused(&block(r#"{"type":"video"}"#), "Input tag 'video'");
    bench.refused(&block(r#"{"text":"x"}"#), "type: Field required");
    bench.refused(
        &block(r#"{"type":"text","text":"x","id":"1"}"#),
        "text.id: Extra inputs are not permitted",
    );
    bench.refused(&block(r#"{"type":"text","text":""}"#), "must be non-empty");
    bench.refused(&block(r#"{"type":"text"}"#), "text.text: Field required");
    bench.refused(
        &block(r#"{"type":"tool_use","id":"a","name":"n","input":{}}"#),
        "only be specified in `assistant`",
    );
    bench.refused(&block(r#"{"type":"image"}"#), "source: Field required");
    let assistant = |json: &str| {
        request(
            "",
            &[],
            &[
                hello(),
                format!(r#"{{"role":"assistant","content":[{json}]}}"#),
                hello(),
            ],
        )
    };
    bench.refused(
        &assistant(r#"{"type":"tool_use","id":"a","name":"n","input":"x"}"#),
        "valid dictionary",
    );
    let document =
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"}}"#;
    let cited = r#"{"type":"text","text":"x","citations":[]}"#;
    assert!(bench.send(&assistant(document)).is_ok());
    assert!(bench.send(&block(cited)).is_ok());
    bench.head.version = "2026-10-21".into();
    bench.refused(&assistant(document), "`document` blocks");
    bench.refused(&block(cited), "citations");
}

#[test]
fn the_context_window_ends_somewhere() {
    let bench = Bench::new();
    let body = request("", &[text("s", 200_001, "")], &[hello()])
        .replace("test-sonnet", "claude-haiku-4-5");
    bench.refused(&body, "prompt is too long: 200011 tokens > 200000 maximum");
}

#[test]
fn warming_writes_and_says_nothing() {
    let bench = Bench::new();
    let body = request("", &[text("s", 2000, M5)], &[hello()]);
    let warm = bench.send(&body.replace(":100,", ":0,")).unwrap().answer;
    assert!(warm.blocks.is_empty());
    assert_eq!(
        (warm.stop_reason, warm.output, warm.tokens.write_5m),
        ("max_tokens", 0, 2000)
    );
    assert_eq!(bench.tokens(&body).read, 2000);
}

#[test]
fn output_ends_at_the_limit() {
    let bench = Bench::new();
    let answer = |max: u32| {
        let body = request(
            "",
            &[],
            &[user(&[r#"{"type":"text","text":"[[text:400]]"}"#.into()])],
        );
        bench
            .send(&body.replace(":100,", &format!(":{max},")))
            .unwrap()
            .answer
    };
    assert_eq!(
        (answer(20).stop_reason, answer(20).output),
        ("max_tokens", 20)
    );
    assert_eq!(answer(500).stop_reason, "end_turn");
}

#[test]
fn scripted_usage_is_reported() {
    let bench = Bench::new();
    let body = request(
        "",
        &[],
        &[user(&[
            r#"{"type":"text","text":"[[usage:190000@0]]"}"#.into()
        ])],
    );
    assert_eq!(bench.tokens(&body).total(), 190_000);
}

#[test]
fn failures_stop_after_their_number_of_attempts() {
    let bench = Bench::new();
    let body = request(
        "",
        &[],
        &[user(&[
            r#"{"type":"text","text":"[[inject:529 x2]] [[inject-any]]"}"#.into(),
        ])],
    );
    for _ in 0..2 {
        assert_eq!(bench.send(&body).unwrap_err().status, 529);
    }
    assert!(bench.send(&body).is_ok());
    let other = body.replace("inject-any]]", "inject-any]] another task");
    assert_eq!(bench.send(&other).unwrap_err().status, 529);
}

#[test]
fn threads_hold_the_conversation() {
    let bench = Bench::new().beta("message-threads-2026-08-12");
    let create = r#","thread":{"type":"create"}"#;
    let go_on =
        |id: &str| format!(r#","thread":{{"type":"continue","previous_message_id":"{id}"}}"#);
    let system = [text("s", 2000, M5)];
    let finish = |ready: Ready| {
        let answer = ready.answer;
        ready.claim.settle(&answer.id, &answer);
        answer
    };
    let code = |body: &str| bench.send(body).unwrap_err().code.unwrap_or_default();
    let first = finish(
        bench
            .send(&request(create, &system, &[user(&[text("a", 10, M5)])]))
            .unwrap(),
    );
    let delta = request(&go_on(&first.id), &[], &[user(&[text("b", 30, M5)])])
        .replace(r#","system":[]"#, "");
    let second = finish(bench.send(&delta).unwrap());
    assert_eq!(
        second.tokens.read, 2010,
        "what is held is part of the prompt"
    );
    assert_eq!(code(&delta), "thread_already_continued");
    let third = delta.replace(&first.id, &second.id).replace("\"b", "\"c");
    let running = bench.send(&third).unwrap();
    assert_eq!(code(&third), "thread_continue_in_flight");
    drop(running);
    let changed = request(&go_on(&second.id), &[text("t", 2000, "")], &[hello()]);
    assert_eq!(code(&changed), "thread_fingerprint_mismatch");
    assert_eq!(
        code(&third.replace("test-sonnet", "test-small")),
        "thread_fingerprint_mismatch"
    );
    assert!(
        bench.send(&third).is_ok(),
        "a failed continuation gives the thread back"
    );
    assert_eq!(
        code(&third.replace(&second.id, "msg_unknown")),
        "thread_not_found"
    );
    bench.clock.advance(300_001);
    assert_eq!(bench.send(&third).unwrap_err().status, 404);
    let stray = third.replace(r#","thread""#, r#","other""#);
    bench.refused(&stray, "other: Extra inputs");
}

#[test]
fn diagnostics_name_the_first_section_that_changed() {
    let bench = Bench::new();
    let ask = |previous: &str| format!(r#","diagnostics":{{"previous_message_id":{previous}}}"#);
    let tools = |name: &str| format!(r#","tools":[{}]"#, tool(name, ""));
    let body = |extra: &str, tool: &str, system: &str, message: &str| {
        let extra = format!("{extra}{}", tools(tool));
        request(
            &extra,
            &[text(system, 2000, M5)],
            &[user(&[text(message, 20, "")])],
        )
    };
    let first = bench
        .send(&body(&ask("null"), "t", "s", "m"))
        .unwrap()
        .answer;
    assert_eq!(first.diagnostics.as_deref(), Some("null"));
    let previous = ask(&format!("\"{}\"", first.id));
    let check = |body: &str, expected: &str| {
        let said = bench.send(body).unwrap().answer.diagnostics.unwrap();
        assert!(said.contains(expected), "{said} has not {expected}");
    };
    check(&body(&previous, "t", "s", "m"), "null");
    check(
        &body(&previous, "u", "x", "y"),
        r#""type":"tools_changed","cache_missed_input_tokens":"#,
    );
    check(&body(&previous, "t", "x", "y"), "system_changed");
    check(&body(&previous, "t", "s", "y"), "messages_changed");
    check(
        &body(&previous, "t", "s", "m").replace("test-sonnet", "test-small"),
        "model_changed",
    );
    let choice = format!(r#"{previous},"tool_choice":{{"type":"any"}}"#);
    check(&body(&choice, "t", "s", "m"), "unavailable");
    check(
        &body(&ask("\"msg_unknown\""), "t", "s", "m"),
        "previous_message_not_found",
    );
    let silent = bench.send(&body("", "t", "s", "m")).unwrap().answer;
    assert_eq!(silent.diagnostics, None);
    check(
        &body(&ask(&format!("\"{}\"", silent.id)), "t", "s", "m"),
        "previous_message_not_found",
    );
    let pending = Bench::with(|options| options.diagnostics_pending = true);
    let said = pending
        .send(&body(&previous, "t", "s", "m"))
        .unwrap()
        .answer
        .diagnostics;
    assert_eq!(said.as_deref(), Some(r#"{"cache_miss_reason":null}"#));
}

#[test]
fn content_encodings_are_undone_or_refused() {
    let plain = b"{\"a\":1}".repeat(50);
    let gzip = super::body::gzip(&plain);
    let zstd = zstd::stream::encode_all(&plain[..], 0).unwrap();
    assert_eq!(decode(&gzip, Some("gzip"), 1000).unwrap(), plain);
    assert_eq!(decode(&zstd, Some("zstd"), 1000).unwrap(), plain);
    let code = |body: &[u8], encoding: &str, limit: usize| {
        let error = decode(body, Some(encoding), limit).unwrap_err();
        (error.status, error.code.unwrap())
    };
    assert_eq!(
        code(&gzip[..20], "gzip", 1000),
        (400, "request_body_encoding_invalid")
    );
    assert_eq!(
        code(&plain, "zstd", 1000),
        (400, "request_body_encoding_invalid")
    );
    assert_eq!(
        code(&plain, "lzma", 1000),
        (400, "request_body_encoding_unsupported")
    );
    assert_eq!(
        code(&gzip, "gzip", 100),
        (413, "request_body_too_large_after_decoding")
    );
}
