//! Codex and the OpenAI SDKs through the real gateway to the simulated provider. What is asked of
//! each run is what `agents` asks of the others; the edits here are the question for the tokens in
//! Chat streams, and none in Responses.

use std::path::PathBuf;

use prefixgate::sim::{Options, Sim};
use serde_json::Value;
use tokio::process::Command;

use super::clients::{Desk, Outcome, bounded, clean, installed, steady};
use super::world::{Direct, Finished, Gateway};
use super::{Exchange, path};

const STEPS: &str = "Please do the test steps. [[plan:shell_ok,shell_fail,end]]";
const TEN: &str = "Please do the test steps. [[plan:shell_ok,shell_fail,read,shell_ok,shell_ok,shell_ok,\
                   shell_ok,shell_ok,shell_ok,end]]";
/// A model that does not learn.
const STUCK: &str = "Please do the test steps. \
                     [[plan:same_fail,same_fail,same_fail,same_fail,same_fail,same_fail,end]]";
/// What goes behind the opening brace of a Chat stream whose client does not ask for the tokens.
const QUESTION: &[u8] = br#""stream_options":{"include_usage":true},"#;
const PYTHON: [&str; 6] = [
    "chat",
    "chat_stream",
    "chat_usage",
    "responses",
    "responses_stream",
    "responses_held",
];
const TYPESCRIPT: [&str; 4] = ["chat", "chat_stream", "responses", "responses_stream"];

/// A provider that speaks OpenAI's formats where the relay is; everything goes there.
const CONFIG: &str = "";

fn scripts() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

async fn said(mut command: Command, base_url: &str, mode: &str, prompt: &str) -> Outcome {
    command
        .env("BASE_URL", format!("{base_url}/v1"))
        .env("MODE", mode)
        .env("PROMPT", prompt);
    let (code, stdout, stderr) = bounded(command, &Desk::new()).await;
    let said = serde_json::from_str(stdout.trim())
        .unwrap_or_else(|e| panic!("{e}: the client said `{stdout}` and `{stderr}`"));
    Outcome {
        code,
        said: steady(said),
    }
}

async fn python(base_url: &str, mode: &str, prompt: &str) -> Outcome {
    let mut command = clean(installed("py/bin/python"));
    command.arg(scripts().join("openai_agent.py"));
    said(command, base_url, mode, prompt).await
}

async fn typescript(base_url: &str, mode: &str, prompt: &str) -> Outcome {
    let mut command = clean(PathBuf::from("node"));
    command
        .arg(scripts().join("openai_agent.mjs"))
        .env("NODE_MODULES", installed("npm/node_modules"));
    said(command, base_url, mode, prompt).await
}

/// Runs Codex headless; gives its exit code and all that it said.
async fn codex(base_url: &str, prompt: &str) -> (Option<i32>, String) {
    codex_with(base_url, "", prompt).await
}

/// The same with further settings of its provider.
async fn codex_with(base_url: &str, settings: &str, prompt: &str) -> (Option<i32>, String) {
    let program =
        "npm/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex";
    let desk = Desk::new();
    let config = desk.home().join(".codex");
    std::fs::create_dir(&config).unwrap();
    let text = format!(
        "model = \"gpt-6-sol\"\nmodel_provider = \"gate\"\n[model_providers.gate]\nname = \"gate\"\n\
         base_url = \"{base_url}/v1\"\nwire_api = \"responses\"\nenv_key = \"GATE_KEY\"\n\
         {settings}"
    );
    std::fs::write(config.join("config.toml"), text).unwrap();
    let mut command = clean(installed(program));
    command
        .args(["exec", "--skip-git-repo-check"])
        .args(["--dangerously-bypass-approvals-and-sandbox", prompt])
        .env("GATE_KEY", "sk-test-key-not-a-secret");
    let (code, stdout, stderr) = bounded(command, &desk).await;
    (code, stdout + &stderr)
}

fn turns(exchanges: &[Exchange]) -> Vec<&Exchange> {
    let ends = ["/chat/completions", "/responses"];
    exchanges
        .iter()
        .filter(|e| e.request.method() == "POST")
        .filter(|e| ends.iter().any(|end| path(&e.request).ends_with(end)))
        .collect()
}

/// Holds what the two relays saw against each other: requests equal but for the question, answers
/// but for the chunk that it brings. Gives the number of questions.
fn compared(finished: &Finished) -> usize {
    let (front, back) = (finished.front().exchanges(), finished.back().exchanges());
    let (front, back) = (turns(&front), turns(&back));
    assert_eq!(front.len(), back.len(), "{}", finished.story());
    let mut questions = 0;
    for (front, back) in front.iter().zip(back) {
        let (from, to) = (&front.request.body, &back.request.body);
        let asked = from != to;
        if asked {
            let mut expected = from.clone();
            expected.splice(1..1, QUESTION.iter().copied());
            assert!(expected == *to, "{}", finished.story());
        }
        questions += usize::from(asked);
        let (given, got) = (front.response.as_ref(), back.response.as_ref());
        let (given, got) = (given.unwrap(), got.unwrap());
        assert_eq!(given.status(), got.status());
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        let (given, got) = (text(&given.body), text(&got.body));
        if !asked {
            assert_eq!(given, got);
            continue;
        }
        let extra = |event: &&str| event.contains(r#""choices":[]"#);
        let kept: Vec<&str> = got.split_inclusive("\n\n").filter(|e| !extra(e)).collect();
        assert_eq!(got.split_inclusive("\n\n").count(), kept.len() + 1);
        assert_eq!(given, kept.concat());
    }
    questions
}

/// What is asked of the turns of an agent's run in which nothing went wrong.
fn well_recorded(turns: &[Value], of: &str) {
    for (at, turn) in turns.iter().enumerate() {
        assert_eq!(turn["turn"], at + 1, "{of}: {turn}");
        assert_eq!(turn["outcome"], "ok", "{of}: {turn}");
        assert!(
            turn["tokens"]["output"].as_u64().unwrap() > 0,
            "{of}: {turn}"
        );
        assert!(turn["tokens"]["write_30m"].is_u64(), "{of}: {turn}");
        assert!(turn["cost_usd"].is_string(), "{of}: {turn}");
        let status = turn["verdict"]["status"].as_str();
        match at {
            // Another run may have left the same prefix behind; over a socket Codex has the first
            // request prepared, and goes on from that.
            0 => assert!(
                matches!(status, None | Some("cold" | "extended" | "hit")),
                "{of}: {turn}"
            ),
            _ => assert_eq!(status, Some("extended"), "{of}: {turn}"),
        }
    }
}

#[tokio::test]
async fn openai_sdks_do_with_the_gateway_what_they_do_without() {
    let direct = Direct::start().await;
    let gateway = Gateway::start("fill", Some(CONFIG)).await;
    let mut runs = Vec::new();
    for (sdk, modes) in [("python", &PYTHON[..]), ("typescript", &TYPESCRIPT[..])] {
        for mode in modes {
            let run = format!("{sdk}-{mode}");
            let labelled = format!("{}/-/run={run}", gateway.front.url());
            let plain = direct.relay.url();
            let (without, with) = if sdk == "python" {
                tokio::join!(python(&plain, mode, STEPS), python(&labelled, mode, STEPS))
            } else {
                tokio::join!(
                    typescript(&plain, mode, STEPS),
                    typescript(&labelled, mode, STEPS)
                )
            };
            assert_eq!(with, without, "{run}");
            assert_eq!(with.code, Some(0), "{run}: {with:#?}");
            runs.push((run, with.said["answers"].as_array().unwrap().len()));
        }
    }
    let finished = gateway.finish().await;
    // Two streams of three turns did not ask for their tokens.
    assert_eq!(compared(&finished), 6, "{}", finished.story());
    for (run, answers) in runs {
        let turns = finished.turns(&run).await;
        assert_eq!(turns.len(), answers, "{run}");
        well_recorded(&turns, &run);
        assert_eq!(finished.run(&run).await["threads"], 1, "{run}");
    }
    assert!(!finished.stored_anywhere("sk-test-key-not-a-secret"));
}

#[tokio::test]
async fn c10_openai_sdks_stop_at_a_cap_after_one_refusal() {
    let gateway = Gateway::start("fill", Some("[caps.run]\nturns = 2\n")).await;
    let url = |run: &str| format!("{}/-/run={run}", gateway.front.url());
    let mut runs = 0;
    for mode in ["chat", "chat_stream", "responses", "responses_stream"] {
        for sdk in ["python", "typescript"] {
            let run = format!("{sdk}-{mode}");
            let outcome = match sdk {
                "python" => python(&url(&run), mode, STEPS).await,
                _ => typescript(&url(&run), mode, STEPS).await,
            };
            assert_eq!(outcome.code, Some(1), "{run}: {outcome:#?}");
            assert_eq!(
                outcome.said["answers"].as_array().unwrap().len(),
                2,
                "{run}"
            );
            let error = &outcome.said["error"];
            assert_eq!(error["status"], 400, "{run}: {outcome:#?}");
            assert_eq!(error["body"]["type"], "billing_error");
            assert_eq!(error["body"]["code"], "cap_reached");
            let text = error["body"]["message"].as_str().unwrap();
            assert!(
                text.contains(&run) && text.contains("caps.run.turns"),
                "{text}"
            );
            runs += 1;
        }
    }
    let finished = gateway.finish().await;
    let front = finished.front().exchanges();
    let back = finished.back().exchanges();
    assert_eq!(turns(&front).len(), 3 * runs, "{}", finished.story());
    assert_eq!(turns(&back).len(), 2 * runs);
}

#[tokio::test]
async fn an_answer_in_the_models_place_is_a_whole_answer_to_openai_sdks() {
    let config = "[caps]\naction = \"answer\"\n[caps.run]\nturns = 1\n";
    let gateway = Gateway::start("fill", Some(config)).await;
    for mode in ["chat", "chat_stream", "responses", "responses_stream"] {
        for sdk in ["python", "typescript"] {
            let url = format!("{}/-/run={sdk}-{mode}", gateway.front.url());
            let outcome = match sdk {
                "python" => python(&url, mode, STEPS).await,
                _ => typescript(&url, mode, STEPS).await,
            };
            assert_eq!(outcome.code, Some(0), "{mode}: {outcome:#?}");
            let answers = outcome.said["answers"].as_array().unwrap();
            assert_eq!(answers.len(), 2, "{mode}");
            let text = answers[1]["text"].as_str().unwrap();
            assert!(
                text.starts_with("[prefixgate]") && text.contains("cap reached"),
                "{text}"
            );
        }
    }
    let finished = gateway.finish().await;
    assert_eq!(turns(&finished.back().exchanges()).len(), 8);
}

#[tokio::test]
async fn b05_faults_of_the_provider_reach_openai_sdks_as_they_are() {
    let direct = Direct::start().await;
    let gateway = Gateway::start("fill", Some(CONFIG)).await;
    let (plain, gated) = (direct.relay.url(), gateway.front.url());
    for prompt in ["fail [[inject:400 x99]]", "fail [[inject:drop x99]]"] {
        for mode in ["chat_stream", "responses_stream"] {
            let (without, with) =
                tokio::join!(python(&plain, mode, prompt), python(&gated, mode, prompt));
            assert_eq!(with, without, "{mode} {prompt}");
        }
    }
}

#[tokio::test]
async fn codex_does_ten_turns_with_tools() {
    let direct = Direct::start().await;
    let gateway = Gateway::start("fill", Some(CONFIG)).await;
    let (plain, gated) = (direct.relay.url(), gateway.front.url());
    let (without, with) = tokio::join!(codex(&plain, TEN), codex(&gated, TEN));
    for (code, said) in [&without, &with] {
        assert_eq!(*code, Some(0), "{said}");
        assert!(said.contains("DONE after 9 tool turns."), "{said}");
    }
    let finished = gateway.finish().await;
    assert_eq!(compared(&finished), 0, "Responses are not edited");
    let runs = finished.runs().await;
    assert_eq!(runs.len(), 1, "{runs:?}");
    let id = runs[0]["id"].as_str().unwrap();
    assert_eq!(runs[0]["id_source"], "client");
    let turns = finished.turns(id).await;
    assert_eq!(turns.len(), 10, "{}", finished.story());
    well_recorded(&turns, "codex");
    // It closes its connection right after the last event.
    assert_eq!(runs[0]["errors"], 0);
    assert!(runs[0]["hit_ratio"].as_f64().unwrap() > 0.8, "{runs:?}");
}

#[tokio::test]
async fn c10_codex_stops_at_a_cap_after_one_refusal_and_shows_why() {
    let gateway = Gateway::start("fill", Some("[caps.run]\nturns = 3\n")).await;
    let (code, said) = codex(&gateway.front.url(), TEN).await;
    assert_eq!(code, Some(1), "{said}");
    for part in ["cap reached: turns of run", "3 of 3", "caps.run.turns"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let finished = gateway.finish().await;
    let front = finished.front().exchanges();
    let back = finished.back().exchanges();
    assert_eq!(
        (turns(&front).len(), turns(&back).len()),
        (4, 3),
        "{}",
        finished.story()
    );
}

#[tokio::test]
async fn d03_codex_in_a_loop_is_stopped() {
    let config = "[loops]\naction = \"answer\"\n";
    let gateway = Gateway::start("fill", Some(config)).await;
    let (code, said) = codex(&gateway.front.url(), STUCK).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("[prefixgate]"), "{said}");
    let finished = gateway.finish().await;
    let back = finished.back().exchanges();
    assert_eq!(turns(&back).len(), 3, "{}", finished.story());
}

/// Codex over a WebSocket, and where the gateway refuses that; gives what it said, the methods by
/// which the provider was asked, and the turns on record.
async fn codex_over_socket(config: &str) -> (String, Vec<String>, Vec<Value>) {
    let sim = Sim::start(Options::default()).unwrap();
    let upstream = sim.base_url();
    let config = format!("{config}\n[upstream.openai]\nurl = \"{upstream}\"\n");
    let gateway = crate::support::Gateway::with(&upstream, &config, &[]);
    let base = format!("http://{}/-/run=socket", gateway.proxy);
    let (code, said) = codex_with(&base, "supports_websockets = true\n", TEN).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("DONE after 9 tool turns."), "{said}");
    let asked = sim.requests().into_iter();
    let asked = asked.filter(|request| ["POST", "WEBSOCKET"].contains(&request.method.as_str()));
    let methods = asked.map(|request| request.method).collect();
    // Over a socket the first request is prepared beforehand, which is no turn.
    let turns = crate::support::eventually("ten turns on record", async || {
        let mut all = gateway.turns_of("socket", 10).await;
        all.retain(|record| record["kind"] == "turn");
        (all.len() == 10).then_some(all)
    })
    .await;
    (said, methods, turns)
}

#[tokio::test]
async fn codex_does_ten_turns_over_a_websocket_or_without_where_it_is_refused() {
    for (config, method) in [
        ("", "WEBSOCKET"),
        ("[openai]\nwebsocket = \"refuse\"\n", "POST"),
    ] {
        let (said, methods, turns) = codex_over_socket(config).await;
        let of_turns = methods.iter().filter(|m| *m == method).count();
        assert!(of_turns >= 10, "{methods:?}: {said}");
        assert!(methods.iter().all(|m| m == method), "{methods:?}: {said}");
        well_recorded(&turns, method);
    }
}

#[tokio::test]
async fn frameworks_on_openai_models_do_with_the_gateway_what_they_do_without() {
    let direct = Direct::start().await;
    let gateway = Gateway::start("fill", Some(CONFIG)).await;
    let command = |framework| match framework {
        "langchain" => {
            let mut command = clean(installed("py/bin/python"));
            command.arg(scripts().join("langchain_agent.py"));
            command
        }
        _ => {
            let mut command = clean(PathBuf::from("node"));
            command
                .arg(scripts().join("ai_sdk_agent.mjs"))
                .env("NODE_MODULES", installed("npm/node_modules"));
            command
        }
    };
    let plain = direct.relay.url();
    for framework in ["langchain", "ai-sdk"] {
        for mode in ["chat", "responses"] {
            let run = format!("{framework}-{mode}");
            let labelled = format!("{}/-/run={run}", gateway.front.url());
            let (without, with) = tokio::join!(
                said(command(framework), &plain, mode, STEPS),
                said(command(framework), &labelled, mode, STEPS)
            );
            assert_eq!(with, without, "{run}");
            assert_eq!(with.code, Some(0), "{run}: {with:#?}");
            assert_eq!(with.said["answers"].as_array().unwrap().len(), 3, "{run}");
        }
    }
    let finished = gateway.finish().await;
    compared(&finished);
    for run in [
        "langchain-chat",
        "langchain-responses",
        "ai-sdk-chat",
        "ai-sdk-responses",
    ] {
        let turns = finished.turns(run).await;
        assert_eq!(turns.len(), 3, "{run}");
        well_recorded(&turns, run);
    }
}
