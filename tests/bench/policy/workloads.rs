//! What agents and programs send, in the sizes and at the pace of real ones.

use super::talk::{Ask, Talk, text};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// From the start of a request to the end of its answer.
pub const ANSWER_MS: u64 = 4 * SECOND;

/// Requests that are sent at the same time, so long after the answers before them.
#[derive(Debug)]
pub struct Step {
    pub wait_ms: u64,
    pub asks: Vec<Ask>,
}

/// One kind of traffic.
#[derive(Debug)]
pub struct Workload {
    pub name: &'static str,
    pub about: &'static str,
    /// A loop that goes on for long, of which nearly all must be read.
    pub long_loop: bool,
    pub steps: Vec<Step>,
}

impl Workload {
    fn new(name: &'static str, about: &'static str) -> Self {
        Self {
            name,
            about,
            long_loop: false,
            steps: Vec::new(),
        }
    }

    fn ask(&mut self, wait_ms: u64, talk: &Talk) {
        self.steps.push(Step {
            wait_ms,
            asks: vec![talk.clone()],
        });
    }

    /// A task of so many turns: a message, calls of tools, an answer. `each` may change the request
    /// before a turn is sent.
    fn task(
        &mut self,
        talk: &mut Talk,
        wait_ms: u64,
        turns: usize,
        results: impl Fn(usize) -> Vec<usize>,
        mut each: impl FnMut(usize, &mut Talk),
    ) {
        talk.user(&task_text(talk, turns));
        for turn in 0..turns {
            each(turn, talk);
            self.ask(if turn == 0 { wait_ms } else { pace(turn) }, talk);
            if turn + 1 < turns {
                talk.calls(&results(turn));
            }
        }
        talk.answer(&text(150, "done"));
    }
}

/// A person's message that makes the simulated model call tools until the last turn.
fn task_text(talk: &Talk, turns: usize) -> String {
    let plan = vec!["shell_ok"; turns.saturating_sub(1)].join(",");
    let seed = format!("task {} {turns}", talk.thread);
    format!("{} [[plan:{plan},end]]", text(200, &seed))
}

/// Time that tools take.
fn pace(turn: usize) -> u64 {
    SECOND * (1 + (turn as u64 * 7) % 11)
}

/// Tokens of one result: mostly short, at times a file.
fn result(turn: usize) -> Vec<usize> {
    vec![[320, 900, 400, 2_600, 500, 700, 350, 1_500][turn % 8]]
}

fn nothing(_: usize, _: &mut Talk) {}

/// All of them; in short form for a test.
pub fn all(short: bool) -> Vec<Workload> {
    let n = |full: usize, quick: usize| if short { quick } else { full };
    vec![
        long_loop(60),
        parallel(n(12, 5)),
        pauses(
            "pauses_2m",
            "a person answers after 2 minutes",
            2,
            n(2, 1),
            n(8, 4),
        ),
        pauses(
            "pauses_7m",
            "a person answers after 7 minutes",
            7,
            n(2, 1),
            n(8, 4),
        ),
        pauses(
            "pauses_40m",
            "a person answers after 40 minutes",
            40,
            n(2, 1),
            n(8, 4),
        ),
        fan_out(n(3, 1), n(5, 3)),
        summaries(n(40, 12)),
        extraction(n(40, 12)),
        clock(n(30, 12)),
        reordered(n(30, 24)),
        late_mcp(n(30, 12)),
        compaction(n(24, 8)),
        next_day(n(12, 6)),
        model_switch(n(10, 5)),
        small(n(30, 8)),
        two_apps(n(8, 3)),
        own_markers(n(12, 6)),
    ]
}

fn long_loop(turns: usize) -> Workload {
    let mut work = Workload::new(
        "long_loop",
        "one task of an agent in a long loop of tool calls",
    );
    work.long_loop = true;
    let mut talk = Ask::agent("coder", 1, 24, 6_000);
    work.task(&mut talk, 0, turns, result, nothing);
    work
}

fn parallel(turns: usize) -> Workload {
    let mut work = Workload::new("parallel_30", "30 tool results in each turn");
    let mut talk = Ask::agent("searcher", 1, 16, 4_000);
    let results = |turn: usize| (0..30).map(|n| 60 + (turn * 31 + n * 17) % 120).collect();
    work.task(&mut talk, 0, turns, results, nothing);
    work
}

fn pauses(
    name: &'static str,
    about: &'static str,
    minutes: u64,
    sessions: usize,
    tasks: usize,
) -> Workload {
    let mut work = Workload::new(name, about);
    for session in 0..sessions {
        let mut talk = Ask::agent("pair", session as u32 + 1, 20, 5_000);
        for task in 0..tasks {
            let wait = match (session, task) {
                (_, 1..) => minutes * MINUTE,
                (0, _) => 0,
                _ => 3 * HOUR,
            };
            work.task(&mut talk, wait, 4 + task % 3, result, nothing);
        }
    }
    work
}

fn fan_out(rounds: usize, turns: usize) -> Workload {
    let mut work = Workload::new("fan_out_8", "an agent that starts 8 sub-agents at once");
    let mut main = Ask::agent("lead", 1, 20, 5_000);
    for round in 0..rounds {
        work.task(&mut main, 20 * SECOND, 3, result, nothing);
        let mut subs: Vec<Talk> = (0..8)
            .map(|n| Ask::agent("worker", 2 + (round * 8 + n) as u32, 12, 3_000))
            .collect();
        for sub in &mut subs {
            // So long that all are under way before the first is answered.
            sub.user(&format!("{} [[delay:400]]", task_text(sub, turns)));
        }
        for turn in 0..turns {
            work.steps.push(Step {
                wait_ms: pace(turn),
                asks: subs.clone(),
            });
            for sub in &mut subs {
                sub.calls(&result(turn + sub.thread as usize));
            }
        }
    }
    work.task(&mut main, 20 * SECOND, 3, result, nothing);
    work
}

fn summaries(calls: usize) -> Workload {
    let mut work = Workload::new(
        "summaries",
        "calls without tools, each with a text of its own",
    );
    for call in 0..calls {
        let mut talk = Ask::agent("summarizer", call as u32, 0, 400);
        talk.user(&text(
            4_000 + (call * 977) % 4_000,
            &format!("document {call}"),
        ));
        work.ask(8 * SECOND, &talk);
    }
    work
}

fn extraction(calls: usize) -> Workload {
    let mut work = Workload::new("extraction", "calls for structured output by a forced tool");
    for call in 0..calls {
        let mut talk = Ask::agent("extractor", call as u32, 2, 2_000)
            .extra(r#","tool_choice":{"type":"tool","name":"Bash"}"#);
        talk.user(&text(
            1_500 + (call * 577) % 2_500,
            &format!("record {call}"),
        ));
        work.ask(8 * SECOND, &talk);
    }
    work
}

fn clock(turns: usize) -> Workload {
    let mut work = Workload::new("clock", "the time of day stands in the system prompt");
    let mut talk = Ask::agent("clocked", 1, 20, 200);
    talk.system(1, "");
    talk.system(2, &text(4_000, "rules"));
    work.task(&mut talk, 0, turns, result, |turn, talk| {
        let time = format!("Time: {:02}:{:02}:{:02}", 9, turn / 4, 13 * (turn % 4));
        talk.system(1, &time);
    });
    work
}

fn reordered(turns: usize) -> Workload {
    let mut work = Workload::new("reordered", "tools in another order on every turn");
    for session in 0..2 {
        let mut talk = Ask::agent("shuffled", session + 1, 16, 3_000);
        work.task(&mut talk, 30 * SECOND, turns, result, |turn, talk| {
            talk.rotate_tools(3 + (turn * 2) % 7);
        });
    }
    work
}

fn late_mcp(turns: usize) -> Workload {
    let mut work = Workload::new(
        "late_mcp",
        "tools of slow servers come after the first turns",
    );
    for session in 0..2 {
        let mut talk = Ask::agent("mcp", session + 1, 14, 4_000);
        work.task(&mut talk, MINUTE, turns, result, |turn, talk| {
            if matches!(turn, 2 | 4) {
                for n in 0..6 {
                    talk.add_tool(&format!("server{turn}_{n}"), 350);
                }
            }
        });
    }
    work
}

fn compaction(turns: usize) -> Workload {
    let mut work = Workload::new(
        "compaction",
        "a summary takes the place of the conversation",
    );
    let mut talk = Ask::agent("compacting", 1, 20, 5_000);
    for part in 0..3 {
        work.task(&mut talk, 30 * SECOND, turns, result, nothing);
        talk.user("Please create a detailed summary of the conversation.");
        work.ask(5 * SECOND, &talk);
        talk.rewrite(&text(1_500, &format!("the work so far {part}")));
        talk.answer("Good, I go on from there.");
    }
    work
}

fn next_day(turns: usize) -> Workload {
    let mut work = Workload::new("next_day", "a session is resumed the next day");
    let mut talk = Ask::agent("resumed", 1, 20, 5_000);
    for day in 0..3 {
        let night = if day == 0 { 0 } else { 15 * HOUR };
        work.task(&mut talk, night, turns, result, nothing);
        work.task(&mut talk, 2 * MINUTE, turns / 2, result, nothing);
    }
    work
}

fn model_switch(turns: usize) -> Workload {
    let mut work = Workload::new("model_switch", "another model for a part of the session");
    let mut talk = Ask::agent("switching", 1, 20, 5_000);
    for model in [super::talk::MODEL, "claude-opus-4-6", super::talk::MODEL] {
        talk.model(model);
        work.task(&mut talk, 30 * SECOND, turns, result, nothing);
    }
    work
}

fn small(chats: usize) -> Workload {
    let mut work = Workload::new("small", "short chats below what is cached");
    for chat in 0..chats {
        let mut talk = Ask::agent("chat", chat as u32, 0, 150);
        for turn in 0..4 {
            talk.user(&text(60, &format!("question {chat} {turn}")));
            work.ask(20 * SECOND, &talk);
            talk.answer(&text(80, "an answer"));
        }
    }
    work
}

fn two_apps(rounds: usize) -> Workload {
    let mut work = Workload::new("two_apps", "a loop and single calls with the same root");
    for round in 0..rounds {
        let thread = 10 * round as u32;
        let mut agent = Ask::agent("shared", thread, 20, 5_000).from("looping/1.0");
        work.task(&mut agent, 40 * SECOND, 6, result, nothing);
        for call in 1..4 {
            let mut single = Ask::agent("shared", thread + call, 20, 5_000).from("asking/2.0");
            single.user(&text(800, &format!("question {round} {call}")));
            work.ask(15 * SECOND, &single);
        }
    }
    work
}

fn own_markers(turns: usize) -> Workload {
    let mut work = Workload::new("own_markers", "sessions of clients with 0 to 4 own markers");
    for markers in 0..=4 {
        let mut talk = Ask::agent("marking", markers as u32, 20, 5_000).own(markers);
        work.task(&mut talk, MINUTE, turns, result, nothing);
    }
    work
}
