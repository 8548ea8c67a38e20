//! Calls that repeat, end to end: what the client does about them, and what the gateway behind it
//! sees of the same run.

use prefixgate::agent::machine::Outcome;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::scene::{Flag, Hands, Ran, Scene, flags};
use crate::it_support::eventually;

/// The client's threshold when nothing else is said.
const DEFAULT: u32 = 3;
const BLOCK: &str = "[loops]\naction = \"block\"\n";

const NOPE: &str = "read_file;path=/nope";
const ENOENT: &str = "ENOENT: /nope";
const POLL: &str = "read_output;handle=h1";
const PAIR: [&str; 2] = ["search;q=k", "get;id=7"];
const TRIPLE: [&str; 3] = ["read;file=a.rs", "edit;file=a.rs;to=x", "test"];
const MISS: &str = "search block not found in a.rs";

fn flag(results: usize, detector: &str, tools: &[&str], count: u64) -> Flag {
    Flag {
        results,
        detector: detector.to_owned(),
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        count,
        period: tools.len() as u64,
    }
}

/// Client and gateway have seen the same loop for the first time with the same result.
fn agree(ran: &Ran, at: usize, detector: &str, tools: &[&str], count: u64) {
    assert_eq!(ran.told().first(), Some(&at), "{:?}", ran.results);
    let text = &ran.results[at - 1].text;
    let told = format!("repetition {count} of {} ", tools.join(", "));
    assert!(text.contains(&told), "{told}: {text}");
    let flags = ran.flags();
    assert_eq!(
        flags.first(),
        Some(&flag(at, detector, tools, count)),
        "{flags:?}"
    );
}

/// Neither has seen one: all that the model asked for was done.
async fn silent(scene: &Scene, ran: &Ran, calls: usize) {
    assert_eq!(ran.outcome, Outcome::EndTurn);
    assert_eq!((ran.told(), ran.refused()), (vec![], vec![]));
    assert_eq!((ran.made.len(), ran.results.len()), (calls, calls));
    assert_eq!(ran.records.len(), calls + 1);
    assert_eq!(ran.flags(), []);
    assert_eq!(scene.loops(&[]).await, 0.0);
}

/// The gateway has refused the newest request, and the client has ended in its words and without
/// another attempt.
fn stopped(ran: &Ran, sent: usize, words: &[&str]) {
    let Outcome::ProviderError(reason) = &ran.outcome else {
        panic!("{:?}", ran.outcome)
    };
    for word in words {
        assert!(reason.contains(word), "{word}: {reason}");
    }
    assert_eq!(ran.outcome.exit_code(), 30);
    assert_eq!(ran.asked(), sent);
    let last = &ran.records[sent - 1];
    assert_eq!(
        (&last["outcome"], &last["guard"]["action"]),
        (&json!("refused"), &json!("block")),
        "{last}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_the_client_tells_refuses_and_ends_and_the_gateway_names_the_same_call_at_the_third() {
    let scene = Scene::start("");
    let hands = Hands::default().fails("read_file", ENOENT);
    let ran = scene.run(DEFAULT, &[NOPE; 30], hands).await;
    agree(&ran, 3, "same_call", &["read_file"], 3);
    // Told, then refused, then ended, each at the next multiple of the threshold.
    assert_eq!(ran.told(), [3, 6]);
    assert_eq!(ran.refused(), [7, 8, 9]);
    assert_eq!(ran.made, ["read_file"; 6]);
    assert_eq!(ran.results.len(), 9);
    assert_eq!(
        ran.outcome,
        Outcome::LoopDetected(vec!["read_file".to_owned()])
    );
    assert_eq!(ran.outcome.exit_code(), 23);

    // The ninth result went to nobody.
    assert_eq!((ran.asked(), scene.forwarded()), (9, 9));
    // The gateway warns from the third on, of every call that was made.
    let warned: Vec<Flag> = (3..=6)
        .map(|n| flag(n, "same_call", &["read_file"], n as u64))
        .collect();
    assert_eq!(ran.flags(), warned);
    let labels = ["detector=\"same_call\"", "action=\"warn\""];
    assert_eq!(scene.loops(&labels).await, 1.0);
    assert_eq!(scene.loops(&[]).await, 1.0);
    let event = eventually("the event at the sixth", async || {
        let mut loops = scene.gateway.report(&["loops"]);
        assert!(loops.len() <= 1, "one loop: {loops:?}");
        loops.pop().filter(|found| found["count"] == 6)
    })
    .await;
    assert_eq!(event["detector"], "same_call", "{event}");
    assert_eq!(event["tools"], json!(["read_file"]), "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_a_gateway_that_blocks_ends_the_command_at_the_third_failure_at_once() {
    // With the client's own ladder and without it.
    for threshold in ["3", "0"] {
        let scene = Scene::start(BLOCK);
        let dir = TempDir::new().unwrap();
        let task = format!("Go. [[plan:{}end]]", "read_missing,".repeat(30));
        let args = ["--json", "--loop-threshold", threshold, &task];
        let run = scene.command(dir.path(), &args).await;
        let summary = run.summary();
        assert_eq!(
            (run.code, &summary["outcome"]),
            (Some(30), &json!("provider_error")),
            "{run:?}"
        );
        let detail = summary["detail"].as_str().unwrap();
        for word in ["`read_file`", "3 times", "same_call", "loops.action"] {
            assert!(detail.contains(word), "{word}: {detail}");
        }
        let lines = run.lines();
        let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
        assert_eq!((of("answered"), of("call_began")), (3, 3));
        assert_eq!(scene.forwarded(), 3);

        // Three answers and the refusal: nothing was sent a second time.
        let id = summary["run"].as_str().unwrap();
        let records = scene.gateway.turns_of(id, 4).await;
        let outcomes: Vec<&Value> = records.iter().map(|record| &record["outcome"]).collect();
        assert_eq!(outcomes.len(), 4, "{outcomes:?}");
        assert_eq!(outcomes[3], "refused");
        assert_eq!(
            flags(&records),
            [flag(3, "same_call", &["read_file"], 3)],
            "threshold {threshold}"
        );
        assert_eq!(records[3]["guard"]["action"], "block");
        assert_eq!(scene.loops(&["action=\"block\""]).await, 1.0);
        let refused = ["outcome=\"refused\""];
        let refused = scene
            .gateway
            .metric("prefixgate_requests_total", &refused)
            .await;
        assert_eq!(refused, 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_off_is_silent_on_both_sides() {
    let scene = Scene::start("[loops]\naction = \"off\"\n");
    let hands = Hands::default().fails("read_file", ENOENT);
    let ran = scene.run(0, &[NOPE; 10], hands).await;
    silent(&scene, &ran, 10).await;
    assert_eq!(scene.forwarded(), 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_a_word_of_the_user_starts_both_counts_again() {
    let scene = Scene::start("");
    let dir = TempDir::new().unwrap();
    let twice = "Go. [[plan:read_missing,read_missing,end]]";
    let run = scene.command(dir.path(), &["--json", twice]).await;
    let id = run.summary()["run"].as_str().unwrap().to_owned();
    let say = async |text: &str| {
        let args = ["resume", &id, "--json", "--say", text];
        scene.command(dir.path(), &args).await
    };
    let again = say(twice).await;
    assert_eq!((run.code, again.code), (Some(0), Some(0)), "{again:?}");
    let records = scene.gateway.turns_of(&id, 6).await;
    assert_eq!((records.len(), flags(&records)), (6, vec![]));
    let newest = |scene: &Scene| {
        let body = scene.sim.requests().pop().unwrap().body;
        String::from_utf8(body.to_vec()).unwrap()
    };
    assert!(!newest(&scene).contains("repetition"), "four in all");

    // Both count on from there, and to the same end as in a run without such a word.
    let on = say(&format!("[[plan:{}end]]", "read_missing,".repeat(30))).await;
    assert_eq!(on.code, Some(23), "{on:?}");
    assert_eq!(on.summary()["outcome"], "loop_detected");
    assert!(newest(&scene).contains("repetition 3 of read_file"));
    let records = scene.gateway.turns_of(&id, 15).await;
    // Each word of the user came without a result.
    let warned: Vec<Flag> = (3..=6)
        .map(|n| flag(6 + n, "same_call", &["read_file"], n as u64))
        .collect();
    assert_eq!((records.len(), flags(&records)), (15, warned));
}

/// What is polled: it moves on eleven times and has ended then.
fn output(n: usize) -> Result<String, String> {
    Ok(match n {
        1..=11 => format!("{}%", n * 9),
        _ => "exited (code 0)".to_owned(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn d03_polling_with_growing_output_is_no_loop_to_either() {
    let scene = Scene::start("");
    let hands = Hands::default().with("read_output", output);
    let ran = scene.run(DEFAULT, &[POLL; 12], hands).await;
    silent(&scene, &ran, 12).await;
    assert_eq!(ran.results[11].text, "exited (code 0)");
}

#[tokio::test(flavor = "multi_thread")]
async fn d03_polling_and_sleeping_by_turns_is_no_loop_to_either() {
    let scene = Scene::start("");
    let hands = Hands::default()
        .with("read_output", output)
        .says("sleep", "");
    let calls = [POLL, "sleep;seconds=5"].repeat(12);
    let ran = scene.run(DEFAULT, &calls, hands).await;
    silent(&scene, &ran, 24).await;
    assert_eq!(ran.results[23].text, ran.results[1].text);
}

#[tokio::test(flavor = "multi_thread")]
async fn d03_polling_on_behind_the_end_is_a_loop_to_both() {
    let scene = Scene::start("");
    let hands = Hands::default().with("read_output", output);
    let ran = scene.run(DEFAULT, &[POLL; 12 + 5], hands).await;
    // The end itself is the first of five equal results.
    agree(&ran, 12 + 4, "no_progress", &["read_output"], 5);
    assert_eq!(ran.told(), [16]);
    // That the client has told it does not make it something new.
    let warned = [16, 17].map(|n| flag(n, "no_progress", &["read_output"], n as u64 - 11));
    assert_eq!(ran.flags(), warned);
    assert_eq!(ran.outcome, Outcome::EndTurn);
}

fn searching() -> Hands {
    Hands::default()
        .says("search", "0 hits")
        .says("get", "not found")
}

#[tokio::test(flavor = "multi_thread")]
async fn d05_two_calls_taking_turns_are_one_loop_to_both_by_the_third_pair() {
    let scene = Scene::start("");
    let ran = scene.run(DEFAULT, &PAIR.repeat(15), searching()).await;
    agree(&ran, 6, "cycle", &["search", "get"], 3);
    let cycles: Vec<usize> = (ran.flags().iter())
        .filter(|flag| flag.detector == "cycle" && flag.period == 2)
        .map(|flag| flag.results)
        .collect();
    assert_eq!(cycles, (6..=12).collect::<Vec<_>>(), "{:?}", ran.flags());
    // At twice the threshold both are refused, so that the partner is no way out.
    assert_eq!(ran.made, ["search", "get"].repeat(6));
    assert_eq!(ran.refused(), [13, 14, 15]);
    let Outcome::LoopDetected(tools) = &ran.outcome else {
        panic!("{:?}", ran.outcome)
    };
    let mut tools = tools.clone();
    tools.sort_unstable();
    assert_eq!(tools, ["get", "search"]);
    assert_eq!((ran.asked(), scene.forwarded()), (15, 15));
}

#[tokio::test(flavor = "multi_thread")]
async fn d05_a_gateway_that_blocks_stops_the_run_whichever_call_would_come_next() {
    for threshold in [DEFAULT, 0] {
        let scene = Scene::start(BLOCK);
        let mut ran = scene.run(threshold, &PAIR.repeat(15), searching()).await;
        stopped(&ran, 7, &["`search`", "`get`", "3 times", "cycle"]);
        assert_eq!(ran.flags(), [flag(6, "cycle", &["search", "get"], 3)]);
        assert_eq!((ran.made.len(), scene.forwarded()), (6, 6));
        // The model is not asked, so that it cannot go on with the partner.
        scene.go_on(&mut ran).await;
        stopped(&ran, 8, &["`search`", "`get`", "cycle"]);
        assert_eq!((ran.results.len(), scene.forwarded()), (6, 6));
        assert_eq!(scene.loops(&[]).await, 1.0);
    }
}

fn editing(test: impl Fn(usize) -> Result<String, String> + Send + Sync + 'static) -> Hands {
    Hands::default()
        .says("read", "fn main() {}")
        .says("edit", "done")
        .with("test", test)
}

#[tokio::test(flavor = "multi_thread")]
async fn d05_a_cycle_of_three_is_one_loop_to_both_by_its_third_round() {
    let scene = Scene::start("");
    let hands = editing(|_| Ok("1 failed".to_owned()));
    let ran = scene.run(DEFAULT, &TRIPLE.repeat(4), hands).await;
    let tools = ["read", "edit", "test"];
    agree(&ran, 9, "cycle", &tools, 3);
    assert_eq!(ran.told(), [9]);
    let rounds = [(9, 3), (10, 3), (11, 3), (12, 4)];
    assert_eq!(
        ran.flags(),
        rounds.map(|(n, count)| flag(n, "cycle", &tools, count))
    );
    assert_eq!(scene.loops(&["detector=\"cycle\""]).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn d05_a_round_whose_test_says_something_new_is_no_loop_to_either() {
    let scene = Scene::start("");
    let hands = editing(|n| Ok(format!("{} failed of 20", 20 - n)));
    let ran = scene.run(DEFAULT, &TRIPLE.repeat(10), hands).await;
    silent(&scene, &ran, 30).await;
}

fn edit(file: &str, variant: usize) -> String {
    format!("edit;file={file};old=variant {variant}")
}

#[tokio::test(flavor = "multi_thread")]
async fn d06_the_same_error_with_other_arguments_is_a_loop_to_both_at_the_fifth() {
    let scene = Scene::start("");
    let calls: Vec<String> = (1..=8)
        .flat_map(|variant| [edit("a.rs", variant), "read;file=a.rs".to_owned()])
        .collect();
    let hands = Hands::default()
        .fails("edit", MISS)
        .says("read", "fn main() {}");
    let ran = scene.run(DEFAULT, &calls, hands).await;
    // The fifth edit is the ninth call.
    agree(&ran, 9, "same_error", &["edit"], 5);
    assert_eq!(ran.told(), [9]);
    // The reads between neither end it nor are a loop themselves.
    let warned = [(9, 5), (11, 6), (13, 7), (15, 8)];
    assert_eq!(
        ran.flags(),
        warned.map(|(n, count)| flag(n, "same_error", &["edit"], count))
    );
    assert_eq!(scene.loops(&["detector=\"same_error\""]).await, 1.0);
    assert_eq!(ran.outcome, Outcome::EndTurn);
}

#[tokio::test(flavor = "multi_thread")]
async fn d06_a_success_on_the_same_file_starts_both_counts_again() {
    let scene = Scene::start("");
    let mended = || {
        Hands::default().with("edit", |n| match n {
            5 => Ok("edited".to_owned()),
            _ => Err(MISS.to_owned()),
        })
    };
    let calls: Vec<String> = (1..=9).map(|variant| edit("a.rs", variant)).collect();
    let ran = scene.run(DEFAULT, &calls, mended()).await;
    silent(&scene, &ran, 9).await;
    // A success on another file leaves this one where it was.
    let file = |variant| if variant == 5 { "b.rs" } else { "a.rs" };
    let calls: Vec<String> = (1..=6)
        .map(|variant| edit(file(variant), variant))
        .collect();
    let ran = scene.run(DEFAULT, &calls, mended()).await;
    agree(&ran, 6, "same_error", &["edit"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn d06_five_tools_or_five_errors_are_no_loop_to_either() {
    let scene = Scene::start("");
    let tools = ["edit", "read", "search", "get", "test"];
    let hands = (tools.into_iter()).fold(Hands::default(), |hands, tool| hands.fails(tool, MISS));
    let calls = tools.map(|tool| format!("{tool};file=a.rs"));
    let ran = scene.run(DEFAULT, &calls, hands).await;
    silent(&scene, &ran, 5).await;

    let errors = [
        "no such file",
        "no permission",
        "it is a directory",
        "not text",
        "too large",
    ];
    let hands = Hands::default().with("edit", move |n| Err(errors[n - 1].to_owned()));
    let calls: Vec<String> = (1..=5).map(|variant| edit("a.rs", variant)).collect();
    let ran = scene.run(DEFAULT, &calls, hands).await;
    silent(&scene, &ran, 5).await;
    assert!(ran.results.iter().all(|result| result.is_error));
}
