//! A long run: sixty turns with tools, a compaction in the middle, two sub-agents.

use serde_json::Value;

use super::world::World;

/// The first part reads much, so that the second begins with a conversation that is too large.
const READS: usize = 38;
/// What the conversation may grow to, in tokens.
const COMPACT_AT: &str = "36000";
/// Bytes of the file that is read: about four hundred tokens.
const FILE: usize = 1_600;
/// Bytes of the system prompt, as long as those of agents at work.
const SYSTEM: usize = 24_000;

/// A request of the Messages format without its breakpoints, which move.
struct Request {
    head: Value,
    messages: Vec<Value>,
}

impl Request {
    fn of(body: &[u8]) -> Self {
        let mut head: Value = serde_json::from_slice(body).unwrap();
        plain(&mut head);
        let messages = head["messages"].take();
        head["max_tokens"].take();
        Self {
            head,
            messages: serde_json::from_value(messages).unwrap(),
        }
    }

    /// Whether this one goes on where `before` ended.
    fn extends(&self, before: &Self) -> bool {
        self.head == before.head && self.messages.starts_with(&before.messages)
    }

    /// The user's first words.
    fn task(&self) -> String {
        self.messages[0].to_string()
    }
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("cache_control");
            members.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_reads_its_prompts_from_the_cache() {
    let world = World::start(None).await;
    world.file("hello.txt", &"0123456789abcde\n".repeat(FILE / 16));
    let system = world.file(
        "system.md",
        &"Look before you change anything. ".repeat(SYSTEM / 33),
    );
    let system = system.to_str().unwrap();
    let first = format!(
        "Part one. [[plan:{}paragent,{}end]]",
        "tool=list_files,".repeat(3),
        "read,".repeat(READS)
    );
    let args = [
        "--json",
        "--max-turns",
        "100",
        "--loop-threshold",
        "0",
        "--system",
        system,
    ];
    let sized = ["--window", "50000", "--compact-at", COMPACT_AT];
    let begun = world.run(&[&args[..], &sized, &[&first]].concat()).await;
    assert_eq!(begun.code, Some(0), "{begun:?}");
    let id = begun.summary()["run"].as_str().unwrap().to_owned();
    let more = format!(
        "Part two.{} [[plan:{}end]]",
        " Mind what was said.".repeat(1_500),
        "tool=list_files,".repeat(20)
    );
    let ended = world.run(&["resume", &id, "--json", "--say", &more]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let lines: Vec<Value> = begun.lines().into_iter().chain(ended.lines()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!((of("compacted"), of("compaction_failed")), (1, 0));
    let agents: std::collections::BTreeSet<&str> = (lines.iter())
        .filter(|line| line["type"] == "answered")
        .map(|line| line["agent"].as_str().unwrap())
        .collect();
    assert_eq!(agents.len(), 3, "two sub-agents: {agents:?}");
    let summary = ended.summary();
    assert!(summary["turns"].as_u64().unwrap() >= 60, "{summary}");
    let ratio = summary["hit_ratio"].as_f64().unwrap();
    assert!(ratio >= 0.95, "hit ratio {ratio}: {summary}");

    let seen = world.sim.requests();
    let refused: Vec<_> = seen
        .iter()
        .filter(|seen| seen.status != Some(200))
        .collect();
    assert!(refused.is_empty(), "{:?}", refused[0].error);
    let requests: Vec<Request> = seen.iter().map(|seen| Request::of(&seen.body)).collect();
    let (main, sub): (Vec<&Request>, Vec<&Request>) = requests
        .iter()
        .partition(|request| !request.task().contains("Sub task"));
    let breaks = |requests: &[&Request]| {
        let pairs = requests.windows(2);
        pairs.filter(|pair| !pair[1].extends(pair[0])).count()
    };
    // The request for the summary goes on from the one before; the next begins with the summary.
    assert_eq!(breaks(&main), 1, "only the compaction breaks the prefix");
    assert_eq!(sub.len(), 4);
    let heads = |requests: &[&Request]| -> std::collections::HashSet<String> {
        requests
            .iter()
            .map(|request| request.head.to_string())
            .collect()
    };
    assert_eq!(
        (heads(&main).len(), heads(&sub).len()),
        (1, 1),
        "tools and system stay"
    );
}
