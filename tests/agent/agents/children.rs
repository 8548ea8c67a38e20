//! Sub-agents.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use prefixgate::agent::journal::Journals as _;
use prefixgate::agent::machine::{Event, Limits, Outcome, Spent};
use prefixgate::agent::subagent::Spawning;
use prefixgate::agent::tools::{Manners, Tool};
use prefixgate::sim::{Options, Recorded, Sim};
use serde_json::{Value, json};

use super::play::setup;
use super::scripted::{Asked, Model, Says};
use super::site::{Fun, Site, cached, shell};

fn tools_of(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn json_of(request: &Recorded) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

#[tokio::test]
async fn two_at_once_each_with_its_own_context_journal_and_name() {
    let sim = Sim::start(Options::default()).unwrap();
    let site = Site::new(&sim.base_url(), [shell()]);
    let crew = site.crew();
    let post = site.post(&crew, cached(), "Ask both. [[plan:paragent,end]]");
    let agent = crew.work(post).await.unwrap();
    assert_eq!(
        agent.run().outcome(),
        Some(&Outcome::EndTurn),
        "{:?}",
        site.heard.all()
    );

    let agents = site.journals.agents("r").unwrap();
    assert_eq!((agents.len(), agents[0].as_str()), (3, "main"));
    for child in &agents[1..] {
        let events = site.journals.events("r", child).unwrap();
        let Event::Began(setup) = &events[0].event else {
            panic!()
        };
        assert_eq!((setup.parent.as_deref(), setup.depth), (Some("main"), 1));
        assert!(
            site.heard
                .all()
                .iter()
                .any(|(who, what)| who == child && what == "ended end_turn")
        );
    }

    // The gateway is told who asks, and from whom.
    let requests = sim.requests();
    for request in &requests {
        assert_eq!(request.status, Some(200), "{:?}", request.error);
        assert_eq!(request.header("x-prefixgate-run"), Some("r"));
        let agent = request.header("x-prefixgate-agent").unwrap();
        let parent = request.header("x-prefixgate-parent");
        assert_eq!(parent, (agent != "main").then_some("main"));
        let messages = json_of(request)["messages"].to_string();
        assert_eq!(
            messages.contains("Ask both"),
            agent == "main",
            "contexts are apart"
        );
    }

    // Sisters have one prefix: the second one to ask reads what the first one wrote.
    let first: Vec<&Recorded> = agents[1..]
        .iter()
        .map(|child| {
            let own = |request: &&Recorded| request.header("x-prefixgate-agent") == Some(child);
            requests.iter().find(own).unwrap()
        })
        .collect();
    let [one, other] = [json_of(first[0]), json_of(first[1])];
    assert_eq!(
        (&one["system"], &one["tools"]),
        (&other["system"], &other["tools"])
    );

    // One book, on which everything is, and the parent has told it to its journal.
    let paid: u64 = requests
        .iter()
        .map(|request| request.tokens.unwrap().total())
        .sum();
    let whole = crew.budget.spent();
    assert_eq!(whole.tokens() - whole.output, paid);
    assert_eq!(*agent.run().spent(), whole);
    assert_eq!(site.journals.spent("r").unwrap(), whole);
    assert_eq!(whole.calls, 4, "two sub-agents, and a command of each");
}

#[tokio::test]
async fn depth_is_two_because_nobody_there_can_start_one() {
    let sim = Sim::start(Options::default()).unwrap();
    let site = Site::new(&sim.base_url(), [shell()]);
    let crew = site.crew();
    let post = site.post(&crew, cached(), "Delegate. [[plan:nest,end]]");
    let agent = crew.work(post).await.unwrap();
    assert_eq!(agent.run().outcome(), Some(&Outcome::EndTurn));
    let mut depths = Vec::new();
    for name in site.journals.agents("r").unwrap() {
        let events = site.journals.events("r", &name).unwrap();
        let Event::Began(setup) = &events[0].event else {
            panic!()
        };
        let spawns = setup.tools.iter().any(|tool| tool.name == "spawn_agent");
        assert_eq!(spawns, setup.depth < 2);
        depths.push(setup.depth);
    }
    depths.sort_unstable();
    assert_eq!(depths, [0, 1, 2]);
    assert_eq!(
        *agent.run().spent(),
        crew.budget.spent(),
        "also of the grandchild"
    );
}

/// A model whose `main` makes one call of `spawn_agent` with this input, and then repeats what came
/// of it; sub-agents are answered by `child`.
async fn parent_of(
    input: Value,
    child: impl Fn(&Asked<'_>) -> Says + Send + Sync + 'static,
) -> Model {
    Model::start(move |asked| match (asked.agent, asked.turn) {
        ("main", 0) => Says::call("spawn_agent", input.clone()),
        ("main", _) => Says::text(asked.last()),
        _ => child(asked),
    })
    .await
}

fn input() -> Value {
    json!({"description": "look", "task": "Look around."})
}

async fn parents_answer(site: &Site) -> String {
    let crew = site.crew();
    let post = site.post(&crew, setup(), "Ask somebody.");
    let agent = crew.work(post).await.unwrap();
    agent.run().answer().unwrap()
}

#[tokio::test]
async fn a_capped_one_tells_how_it_ended_and_has_not_failed() {
    let model = parent_of(input(), |_| Says::call("bash", json!({"command": "ls"}))).await;
    let mut site = Site::new(&model.upstream.url(), [shell()]);
    site.spawning = Some(Spawning {
        turns: Some(2),
        ..Spawning::default()
    });
    let answer = parents_answer(&site).await;
    assert!(
        answer.contains("stopped before its end by the cap max_turns"),
        "{answer}"
    );
    let result = &model.bodies("main")[1]["messages"][2]["content"][0];
    assert_eq!(result["is_error"], Value::Null);
    model.check(false);
}

#[tokio::test]
async fn one_that_failed_is_an_error() {
    let sim = Sim::start(Options::default()).unwrap();
    let site = Site::new(&sim.base_url(), [shell()]);
    let crew = site.crew();
    let post = site.post(&crew, cached(), "Delegate. [[plan:agent_cap,end]]");
    let agent = crew.work(post).await.unwrap();
    assert_eq!(agent.run().outcome(), Some(&Outcome::EndTurn));
    let told = site.heard.of("result ").concat();
    assert!(told.contains("provider_error"), "{told}");
    let last = json_of(sim.requests().last().unwrap());
    assert_eq!(last["messages"][2]["content"][0]["is_error"], true);
}

#[tokio::test]
async fn it_gets_the_tools_that_it_is_given_and_no_others() {
    let look: Arc<dyn Tool> = Arc::new(Fun {
        name: "look",
        schema: r#"{"type":"object"}"#,
        manners: Manners::READS,
        does: |_, _| async { Ok("a view".to_owned()) }.boxed(),
    });
    let model = parent_of(
        json!({"description": "look", "task": "Look.", "tools": ["look", "spawn_agent"], "name": "Looker 1!"}),
        |asked| match asked.agent.starts_with("looker-1-") && asked.turn == 0 {
            true => Says::call("spawn_agent", json!({"description": "d", "task": "t", "tools": ["look"]})),
            false => Says::text("seen"),
        },
    )
    .await;
    let site = Site::new(&model.upstream.url(), [shell(), look]);
    parents_answer(&site).await;
    let agents = model.agents();
    assert_eq!(agents.len(), 3, "{agents:?}");
    assert!(agents[1].starts_with("looker-1-"), "{agents:?}");
    assert_eq!(
        tools_of(&model.bodies("main")[0]),
        ["bash", "look", "spawn_agent"]
    );
    assert_eq!(
        tools_of(&model.bodies(&agents[1])[0]),
        ["look", "spawn_agent"]
    );
    assert_eq!(tools_of(&model.bodies(&agents[2])[0]), ["look"]);
    model.check(false);
}

#[tokio::test]
async fn its_model_is_chosen_among_those_that_are_allowed_and_priced() {
    let mut given = input();
    given["model"] = "claude-haiku-4-5".into();
    let model = parent_of(given.clone(), |_| Says::text("small")).await;
    let mut site = Site::new(&model.upstream.url(), [shell()]);
    site.spawning = Some(Spawning {
        models: vec!["claude-haiku-4-5".into(), "nobody-knows-it".into()],
        ..Spawning::default()
    });
    assert!(parents_answer(&site).await.contains("small"));
    let child = model.agents()[1].clone();
    assert_eq!(model.bodies(&child)[0]["model"], "claude-haiku-4-5");

    given["model"] = "nobody-knows-it".into();
    let model = parent_of(given, |_| Says::text("small")).await;
    site.base = model.upstream.url();
    site.journals = Default::default();
    let crew = site.crew();
    let mut setup = setup();
    setup.limits.pico = Some(1 << 50);
    let post = site.post(&crew, setup, "Ask somebody.");
    let answer = crew.work(post).await.unwrap().run().answer().unwrap();
    assert!(answer.contains("no price is known"), "{answer}");
    assert_eq!(model.agents(), ["main"]);
}

#[tokio::test]
async fn the_caps_of_the_run_hold_for_all_of_its_agents_together() {
    let model = parent_of(input(), |_| Says::call("bash", json!({"command": "ls"}))).await;
    let site = Site::new(&model.upstream.url(), [shell()]);
    let crew = site.crew();
    let mut setup = setup();
    setup.loop_threshold = 0;
    setup.limits = Limits {
        calls: Some(6),
        ..Limits::default()
    };
    let post = site.post(&crew, setup, "Ask somebody.");
    let agent = crew.work(post).await.unwrap();
    assert_eq!(crew.budget.spent().calls, 6);
    assert_eq!(agent.run().spent().calls, 6);
    assert!(agent.run().answer().unwrap().contains("max_tool_calls"));
}

#[tokio::test]
async fn it_is_cancelled_with_its_parent_and_what_it_used_is_told() {
    let model = parent_of(input(), |asked| match asked.turn {
        0 => Says::call("bash", json!({"command": "ls"})),
        _ => Says::Nothing,
    })
    .await;
    let site = Site::new(&model.upstream.url(), [shell()]);
    let crew = site.crew();
    let post = site.post(&crew, setup(), "Ask somebody.");
    let work = crew.work(post);
    let cancel = async {
        while model.upstream.seen().len() < 3 {
            tokio::task::yield_now().await;
        }
        site.cancelled.cancel();
    };
    let (agent, ()) = tokio::join!(work, cancel);
    let agent = agent.unwrap();
    assert_eq!(agent.run().outcome(), Some(&Outcome::Cancelled));
    let child = &model.agents()[1];
    let ended = (child.clone(), "ended cancelled".to_owned());
    assert!(site.heard.all().contains(&ended), "{:?}", site.heard.all());
    assert_eq!(*agent.run().spent(), crew.budget.spent());
    super::legal::assert_legal(agent.run().entries());
}

/// The first process is killed while the sub-agent waits for a tool; the second one goes on.
#[test]
fn a_parent_that_was_killed_finds_its_sub_agent_where_it_stood() {
    let outer = runtime();
    let model = outer.block_on(parent_of(input(), |asked| match asked.turn {
        0 => Says::call("bash", json!({"command": "first"})),
        1 => Says::call("slow", json!({})),
        _ => Says::text("found it"),
    }));
    let slow = |hangs: bool| -> Arc<dyn Tool> {
        Arc::new(Fun {
            name: "slow",
            schema: r#"{"type":"object"}"#,
            manners: Manners::READS,
            does: move |_, _| match hangs {
                true => std::future::pending().boxed(),
                false => async { Ok("at last".to_owned()) }.boxed(),
            },
        })
    };
    let mut site = Site::new(&model.upstream.url(), [shell(), slow(true)]);
    let first = runtime();
    first.block_on(async {
        let crew = site.crew();
        let post = site.post(&crew, setup(), "Ask somebody.");
        let slow = async {
            while !site.heard.all().iter().any(|(_, what)| what == "call slow") {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::select! {
            _ = crew.work(post) => panic!("it ended"),
            () = slow => {}
        }
    });
    drop(first);
    let child = site.journals.agents("r").unwrap()[1].clone();
    let asked = model.bodies(&child).len();
    assert_eq!(asked, 2);

    site.tools.add(slow(false));
    let second = runtime();
    second.block_on(async {
        let crew = site.crew();
        crew.recall("r").unwrap();
        let post = site.post(&crew, setup(), "Ask somebody.");
        let agent = crew.work(post).await.unwrap();
        assert_eq!(agent.run().answer().as_deref(), Some("found it"));
        assert_eq!(
            site.journals.agents("r").unwrap().len(),
            2,
            "nobody was started twice"
        );
        let whole = site.journals.spent("r").unwrap();
        assert_eq!(crew.budget.spent(), whole, "nothing is booked twice");
    });
    let bodies = model.bodies(&child);
    assert_eq!(bodies.len(), 3, "what it had asked is not asked again");
    model.check(false);
    let commands = site.heard.all();
    let first = commands
        .iter()
        .filter(|(_, what)| what == "call bash")
        .count();
    assert_eq!(first, 1, "nor done again");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// The second kill comes when the sub-agent has ended and the parent has not heard of it.
#[tokio::test]
async fn a_sub_agent_that_has_ended_is_not_run_again() {
    let model = parent_of(input(), |_| Says::text("found it")).await;
    let site = Site::new(&model.upstream.url(), [shell()]);
    assert_eq!(parents_answer(&site).await, "found it");
    let before = model.upstream.seen().len();
    // Only the parent's journal is cut back to the moment before the end of its call.
    let events = site.journals.events("r", "main").unwrap();
    let cut = events
        .iter()
        .position(|h| matches!(h.event, Event::Delegated { .. }))
        .unwrap();
    let journals = prefixgate::agent::journal::Scratch::default();
    for agent in site.journals.agents("r").unwrap() {
        let events = site.journals.events("r", &agent).unwrap();
        let until = if agent == "main" { cut } else { events.len() };
        let mut journal = journals.create("r", &agent).unwrap();
        for happened in &events[..until] {
            journal.append(happened).unwrap();
        }
    }
    let again = Site {
        journals,
        ..Site::new(&model.upstream.url(), [shell()])
    };
    let crew = again.crew();
    crew.recall("r").unwrap();
    let post = again.post(&crew, setup(), "Ask somebody.");
    let agent = crew.work(post).await.unwrap();
    assert_eq!(agent.run().answer().as_deref(), Some("found it"));
    let seen = model.upstream.seen();
    assert_eq!(
        seen.len(),
        before + 1,
        "only the parent asks its last question again"
    );
    assert_eq!(
        seen.last().unwrap().header("x-prefixgate-agent"),
        Some("main")
    );
    assert_ne!(crew.budget.spent(), Spent::default());
    assert_eq!(crew.budget.spent(), again.journals.spent("r").unwrap());
}
