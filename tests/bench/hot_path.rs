//! What a request costs on its way through the prompt-cache engine: `cargo bench --bench hot_path`.
//!
//! Agent bodies of several sizes, rich in escapes, take the way that the gateway takes: view, chain,
//! the hashes by which a place is found, the engine, splice, and the engine again. Once a body is
//! all new, once it is the next turn of a conversation that is known, once it is that with a clock
//! at the start of the system prompt. Each run is another conversation, or another turn, with the
//! engine as full as it is in service. Prints medians of the
//! time on the core, and fails when the budget is exceeded.
//!
//! Then what it costs to look for loops in histories of 300 and 3,000 calls, and how that grows.
//!
//! Then the memory of the process (Linux) with 10,000 conversations, each in a process of its own.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prefixgate::guard::loops::{Action, Memo, Policy as LoopPolicy, look};
use prefixgate::prompt_cache::chain::Hasher;
use prefixgate::prompt_cache::engine::{Engine, Prepared, Request, marks_after};
use prefixgate::prompt_cache::habits::Stop;
use prefixgate::prompt_cache::plan::Policy;
use prefixgate::prompt_cache::splice::apply;
use prefixgate::prompt_cache::trail::{Betas, Past, Trail, code, short};
use prefixgate::provider::anthropic::request::view;
use prefixgate::provider::view::RequestView;
use prefixgate::usage::Usage;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

/// The budget of DESIGN 6 for a body of 1 MB on one core.
const GROWN_BUDGET: Duration = Duration::from_millis(1);
const NEW_BUDGET: Duration = Duration::from_millis(2);
/// Eight times the bytes at most so many times the time.
const LINEAR_FACTOR: f64 = 10.0;

/// To look for loops in 1 MB with [`FEW_CALLS`] calls, their results known.
const LOOPS_BUDGET: Duration = Duration::from_micros(150);
const FEW_CALLS: usize = 300;
const MANY_CALLS: usize = 3_000;
/// Ten times the calls at most so many times the time, measured with short results. What grew with
/// the square of the calls would take a hundred times; the rest above ten is for what the caches of
/// the core do not hold any more.
const CALLS_FACTOR: f64 = 20.0;

const MB: usize = 1_000_000;
/// Sizes of bodies in bytes.
const SIZES: [usize; 6] = [10_000, 100_000, MB, 2 * MB, 4 * MB, 8 * MB];
/// Bytes of conversations that each measurement goes through, at least [`FEWEST`] of them.
const BYTES: usize = 60 * MB;
const FEWEST: usize = 15;
const MOST: usize = 200;
/// The memory of the engine, as the gateway has it when nothing is set.
const MEMORY: usize = 64 << 20;
/// Other conversations that the engine knows.
const OTHERS: usize = 200;
/// Settings under which the memory of the process is measured, in MiB, and by how much it may grow
/// beyond them: what is bounded by counts (hashes of known blocks, habits), and what the allocator
/// holds back.
const SETTINGS_MIB: [usize; 2] = [16, 64];
const BESIDE_MIB: usize = 24;
/// Conversations that live meanwhile, and requests under way.
const LIVE: usize = 10_000;
const UNDER_WAY: usize = 1_000;
/// About what a turn adds.
const TURN_BYTES: usize = 9_000;
/// Time between two turns.
const TURN_MS: i64 = 20_000;

const PROSE: &str = r#"Keep to the \"rules\":\n- read before you write\n- paths like C:\\src\n\tand be brief ✓ naïve\n"#;
const CODE: &str = r#"fn main() {\n    let name = \"world\\n\";\n    print!(\"hello {}\", name);\n\t// done, é\n}\n"#;

/// So many repetitions of [`CODE`] make a usual result.
const LINES: usize = 38;

/// A conversation with a tool loop; no block of it is in another one.
struct Talk {
    number: usize,
    turns: usize,
    /// Lines of a tool's result.
    lines: usize,
    /// Instead of the first bytes of the system prompt.
    clock: usize,
    head: String,
    messages: String,
}

impl Talk {
    /// Of about so many bytes. Small ones have few tools and short instructions.
    fn new(number: usize, bytes: usize) -> Self {
        let tools: Vec<String> = (0..(bytes / 5_000).clamp(2, 20))
            .map(|tool| {
                format!(
                    r#"{{"name":"tool_{tool}","description":"{number} {}","input_schema":{{"type":"object","required":["path"],"properties":{{"path":{{"type":"string","description":"{PROSE}"}},"limit":{{"type":"integer","minimum":0}}}}}}}}"#,
                    PROSE.repeat(8)
                )
            })
            .collect();
        let mut talk = Self {
            number,
            turns: 0,
            lines: LINES,
            clock: 0,
            head: format!(
                r#"{{"model":"claude-opus-5","max_tokens":8192,"stream":true,"tools":[{}],"system":[{{"type":"text","text":""#,
                tools.join(",")
            ),
            messages: format!(
                r#"{number} {}"}}],"messages":[{{"role":"user","content":"start {number}"}}"#,
                PROSE.repeat((bytes / 500).clamp(10, 200))
            ),
        };
        while talk.head.len() + talk.messages.len() + 4_000 < bytes {
            talk.grow();
        }
        talk
    }

    /// One turn more: an answer with two calls, and their results.
    fn grow(&mut self) {
        let (number, turn) = (self.number, self.turns);
        let id = |call| format!("toolu_{number:012}{:012}", 2 * turn + call);
        let (one, two) = (id(0), id(1));
        let (thought, code) = (PROSE.repeat(3), CODE.repeat(self.lines));
        let signature = "EqQBCkYIBxgCKkDa".repeat(12);
        let _ = write!(
            self.messages,
            r#",{{"role":"assistant","content":[{{"type":"thinking","thinking":"{number} {turn} {thought}","signature":"{signature}"}},{{"type":"text","text":"{number} {turn} {PROSE}{PROSE}"}},{{"type":"tool_use","id":"{one}","name":"tool_1","input":{{"path":"/a/b/c.rs","limit":{turn}}}}},{{"type":"tool_use","id":"{two}","name":"tool_0","input":{{"path":"/a/b/d.rs","limit":{turn}}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{one}","content":[{{"type":"text","text":"{number} {turn} {code}"}}]}},{{"type":"tool_result","tool_use_id":"{two}","is_error":{},"content":"{number} {turn} {code}"}}]}}"#,
            turn % 3 == 0
        );
        self.turns += 1;
    }

    fn body(&self) -> Bytes {
        let mut body = String::with_capacity(self.head.len() + self.messages.len() + 64);
        let _ = write!(
            body,
            "{}Now: 2026-08-01T10:{:02}:{:02}Z. ",
            self.head,
            self.clock / 60,
            self.clock % 60
        );
        body.push_str(&self.messages);
        body.push_str("]}");
        body.into()
    }
}

/// Times of one request by step, in the order of [`STEPS`].
type Times = [Duration; STEPS.len()];
const STEPS: [&str; 9] = [
    "view", "chain", "place", "engine", "splice", "sent", "learn", "close", "all",
];
/// Of those, so many are the request's own.
const OWN: usize = 6;
const LEARN: usize = 6;
const CLOSE: usize = 7;
const ALL: usize = 8;

/// Measures time on the core: without the time in which others had it, where the system tells.
struct Watch {
    since: Instant,
    waited: Duration,
}

impl Watch {
    fn start() -> Self {
        let waited = waited();
        Self {
            since: Instant::now(),
            waited,
        }
    }

    /// Time since the start or the last lap.
    fn lap(&mut self) -> Duration {
        let passed = self.since.elapsed();
        let waited = waited();
        let lap = passed.saturating_sub(waited - self.waited);
        self.waited = waited;
        self.since = Instant::now();
        lap
    }
}

/// For how long this thread has waited for a core.
fn waited() -> Duration {
    let all = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field = all.split(' ').nth(1).and_then(|field| field.parse().ok());
    Duration::from_nanos(field.unwrap_or(0))
}

/// The gateway, as far as this bench needs one.
struct Gate {
    hasher: Hasher,
    engine: Engine,
    now_ms: i64,
}

impl Gate {
    fn new() -> Self {
        Self {
            hasher: Hasher::new([1; 32]),
            engine: Engine::new(MEMORY, false),
            now_ms: 1_785_000_000_000,
        }
    }

    /// A body on its way, and its answer.
    fn turn(&mut self, talk: &Talk, body: &Bytes) -> Result<Times, &'static str> {
        self.now_ms += TURN_MS;
        let mut times = Times::default();
        let mut watch = Watch::start();
        let mut step = 0;
        let mut lap = || {
            times[step] = watch.lap();
            step += 1;
        };
        let view = view(body)?;
        lap();
        let chain = self.hasher.chain(body, &view, b"scope");
        lap();
        let of = |message: &prefixgate::provider::view::Message| {
            let blocks = message.blocks.start as usize..message.blocks.end as usize;
            self.hasher
                .keyed("message", chain.blocks[blocks].as_flattened())
        };
        let borders: Vec<usize> = view
            .messages
            .iter()
            .map(|m| m.blocks.end as usize)
            .collect();
        black_box((
            view.messages.first().map(of),
            view.messages.last().map(of),
            borders,
            xxh3_128(body),
        ));
        lap();
        let thread = short(&self.hasher.keyed("thread", &talk.number.to_le_bytes()));
        let request = self.request(body, &view, thread, talk);
        let mut prepared = self.engine.prepare(&request, chain);
        lap();
        let plan = prepared.plan.take().unwrap_or_default();
        let pieces = apply(body, &plan.splices);
        lap();
        let turn = Uuid::from_u128(self.now_ms as u128);
        prepared.trail.marks = marks_after(&view, &plan);
        black_box(self.engine.sent(turn, &prepared.look(&request)));
        lap();
        times[ALL] = times[..OWN].iter().sum();
        black_box(pieces);
        let now_ms = request.now_ms;
        // Its texts are learnt when it is on its way.
        let mut watch = Watch::start();
        self.engine.learn(body, &std::mem::take(&mut prepared.news));
        times[LEARN] = watch.lap();
        times[CLOSE] = self.close(&prepared, turn, thread, now_ms);
        Ok(times)
    }

    fn request<'a>(
        &'a self,
        body: &'a [u8],
        view: &'a RequestView,
        thread: u64,
        talk: &Talk,
    ) -> Request<'a> {
        Request {
            hasher: &self.hasher,
            body,
            view,
            betas: Betas::default(),
            left_out: &[],
            thread,
            turn: talk.turns as u32 + 1,
            app: 1,
            root_seen: false,
            previous_blocks: None,
            insertion_off: false,
            policy: Some(Policy::Fill),
            rates: None,
            min_tokens: Some(512),
            bytes_per_token_milli: 3_500,
            now_ms: self.now_ms,
        }
    }

    /// The answer, which is as the engine expected it to be.
    fn close(&self, prepared: &Prepared, turn: Uuid, thread: u64, now_ms: i64) -> Duration {
        let tokens = |at: usize| -> u64 {
            let steps = prepared.trail.steps.iter().take(at);
            steps.map(|s| u64::from(s.len) * 10 / 35).sum()
        };
        let last = prepared
            .trail
            .last_mark()
            .map_or(0, |mark| mark.at as usize + 1);
        let past = prepared.compared.past.as_deref();
        let read = past
            .filter(|_| prepared.compared.change.is_none())
            .and_then(Past::readable)
            .unwrap_or(0);
        let usage = Usage {
            uncached: Some(tokens(prepared.trail.steps.len()) - tokens(last)),
            read: Some(read),
            write_5m: Some(tokens(last).saturating_sub(read)),
            write_1h: Some(0),
            ..Usage::default()
        };
        let mut watch = Watch::start();
        self.engine.began(turn);
        self.engine.ended(1, thread, Stop::ToolUse, now_ms + 5_000);
        black_box(self.engine.settled(turn, &usage));
        self.engine.remember(
            thread,
            Arc::new(Past {
                trail: Arc::new(prepared.trail.clone()),
                turn_id: turn,
                started_ms: now_ms,
                ended_ms: now_ms + 5_000,
                usage,
                response_id: Some("msg_0123456789".into()),
                model_served: Some("claude-opus-5".into()),
                stop_reason: Some("tool_use".into()),
                client_order: None,
            }),
        );
        let before: Option<&Trail> = past.map(|past| &*past.trail);
        black_box(code::encode(&prepared.trail, before));
        watch.lap()
    }
}

impl Gate {
    /// A request that is under way, as the gateway holds it once the answer has begun.
    fn send(&mut self, talk: &Talk, body: &Bytes) -> Result<Prepared, &'static str> {
        self.now_ms += TURN_MS;
        let view = view(body)?;
        let chain = self.hasher.chain(body, &view, b"scope");
        let thread = short(&self.hasher.keyed("thread", &talk.number.to_le_bytes()));
        let request = self.request(body, &view, thread, talk);
        let mut prepared = self.engine.prepare(&request, chain);
        drop(std::mem::take(&mut prepared.news));
        let plan = prepared.plan.take().unwrap_or_default();
        prepared.trail.marks = marks_after(&view, &plan);
        let turn = Uuid::from_u128(self.now_ms as u128);
        self.engine.sent(turn, &prepared.look(&request));
        self.engine.began(turn);
        prepared.at = Vec::new();
        Ok(prepared)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Case {
    New,
    Grown,
    Clock,
}

/// Medians of a case, and the bytes of a body.
fn measure(
    gate: &mut Gate,
    next: &mut usize,
    case: Case,
    size: usize,
) -> Result<(usize, Times), &'static str> {
    let runs = (BYTES / size).clamp(FEWEST, MOST);
    let mut all: Vec<Times> = Vec::with_capacity(runs);
    let mut talk = Talk::new(*next, size);
    let mut bytes = 0;
    if case != Case::New {
        gate.turn(&talk, &talk.body())?;
    }
    while all.len() < runs {
        // A conversation must not outgrow the size that it is measured for.
        let outgrown = case != Case::New && bytes > size + (size / 10).max(4 * TURN_BYTES);
        if case == Case::New || outgrown {
            *next += 1;
            talk = Talk::new(*next, size);
            if case != Case::New {
                gate.turn(&talk, &talk.body())?;
            }
        }
        match case {
            Case::New => {}
            Case::Grown => talk.grow(),
            Case::Clock => {
                talk.grow();
                talk.clock += 1;
            }
        }
        let body = talk.body();
        bytes = body.len();
        all.push(gate.turn(&talk, &body)?);
    }
    *next += 1;
    let median = |step: usize| {
        let mut times: Vec<Duration> = all.iter().map(|times| times[step]).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok((bytes, std::array::from_fn(median)))
}

/// A history of calls without a loop: results with and without a flag, one in five of them failed.
fn calls(calls: usize, lines: usize) -> String {
    let code = CODE.repeat(lines);
    let mut body = String::from(r#"{"model":"m","messages":[{"role":"user","content":"go"}"#);
    for call in 0..calls {
        let tool = ["Bash", "Read", "Edit", "Grep"][call % 4];
        let (flag, text) = match call % 10 {
            0 => (r#","is_error":true"#, r"Exit code 1\n"),
            5 => ("", "Error: there is no part "),
            2 | 7 => (r#","is_error":false"#, ""),
            _ => ("", ""),
        };
        let _ = write!(
            body,
            r#",{{"role":"assistant","content":[{{"type":"tool_use","id":"toolu_{call:024}","name":"{tool}","input":{{"file_path":"/w/src/file_{call}.rs","limit":200}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{call:024}"{flag},"content":"{text}{call} {code}"}}]}}"#
        );
    }
    body + "]}"
}

/// Median time of looking for loops once all results are known, and the bytes of the body.
fn loops(number: usize, lines: usize, action: Action) -> Result<(usize, Duration), &'static str> {
    let (body, memo, policy) = (
        calls(number, lines),
        Memo::default(),
        LoopPolicy::of(action),
    );
    let body = body.as_bytes();
    let mut times = Vec::with_capacity(MOST);
    for run in 0..=MOST {
        // As in service, the body has just been looked at.
        let view = view(body)?;
        let mut watch = Watch::start();
        black_box(look(body, &view, &policy, &memo, None));
        if run > 0 {
            times.push(watch.lap());
        }
    }
    times.sort_unstable();
    Ok((body.len(), times[times.len() / 2]))
}

/// Prints what looking for loops costs; the word says which budget is exceeded.
fn loops_within_budget() -> Result<Option<&'static str>, &'static str> {
    let mut broken = None;
    for action in [Action::Warn, Action::Hint] {
        for (lines, what) in [(LINES, "usual"), (1, "short")] {
            let (bytes, few) = loops(FEW_CALLS, lines, action)?;
            let (_, many) = loops(MANY_CALLS, lines, action)?;
            let factor = many.as_secs_f64() / few.as_secs_f64();
            println!(
                "loops, {}, {what} results: {FEW_CALLS} calls ({bytes} bytes) {:.1}, {MANY_CALLS} calls {:.1} microseconds, {factor:.1} times",
                action.as_str(),
                few.as_secs_f64() * 1e6,
                many.as_secs_f64() * 1e6,
            );
            if lines == LINES && few.mul_f64(MB as f64 / bytes as f64) > LOOPS_BUDGET {
                broken = Some("looking for loops takes longer than its budget");
            }
            if lines != LINES && factor > CALLS_FACTOR {
                broken = Some("looking for loops grows faster than the calls");
            }
        }
    }
    Ok(broken)
}

/// Resident memory of this process in bytes; `None` where the system does not tell.
fn resident() -> Option<usize> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(pages.split(' ').nth(1)?.parse::<usize>().ok()? * 4096)
}

/// What the engine occupies with many live conversations, and what a request under way does.
fn memory(setting_mib: usize) -> Result<(), &'static str> {
    let mut gate = Gate::new();
    gate.engine = Engine::new(setting_mib << 20, false);
    let talk = |number: usize, turns: usize| {
        let mut talk = Talk::new(number, 0);
        talk.lines = 3;
        (0..turns).for_each(|_| talk.grow());
        talk
    };
    // What the first request takes is not the engine's.
    gate.turn(&talk(LIVE, 120), &talk(LIVE, 120).body())?;
    let Some(before) = resident() else {
        return Ok(());
    };
    for number in 0..LIVE {
        // 60 to 700 blocks, six in a turn.
        let talk = talk(number, 9 + number % 107);
        gate.turn(&talk, &talk.body())?;
    }
    let full = resident().unwrap_or(0).saturating_sub(before);
    let mut under_way = Vec::with_capacity(UNDER_WAY);
    for number in 0..UNDER_WAY {
        let talk = talk(2 * LIVE + number, 115);
        under_way.push(gate.send(&talk, &talk.body())?);
    }
    let open = resident().unwrap_or(0).saturating_sub(before + full);
    let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
    println!(
        "setting {setting_mib} MiB, {LIVE} conversations: the process grew by {:.1} MiB, the engine counts {:?}; \
         a request under way with 700 blocks takes {:.1} kB",
        mib(full),
        gate.engine.bytes(),
        open as f64 / 1e3 / under_way.len() as f64,
    );
    if full > (setting_mib + BESIDE_MIB) << 20 {
        return Err("the engine takes more memory than its setting");
    }
    Ok(())
}

/// Measures memory in a process that has done nothing else.
fn memory_apart(setting_mib: usize) -> Result<(), &'static str> {
    let this = std::env::current_exe().map_err(|_| "no way to run this again")?;
    let mut command = std::process::Command::new(this);
    let done = command.args(["memory", &setting_mib.to_string()]).status();
    match done {
        Ok(status) if status.success() => Ok(()),
        _ => Err("the measurement of memory failed"),
    }
}

fn main() -> Result<(), &'static str> {
    let mut words = std::env::args().skip_while(|word| word != "memory");
    if let Some(mib) = words.nth(1) {
        return memory(mib.parse().map_err(|_| "not a number")?);
    }
    let mut gate = Gate::new();
    let mut next = 0;
    while next < OTHERS {
        let mut talk = Talk::new(next, 60_000);
        gate.turn(&talk, &talk.body())?;
        talk.grow();
        gate.turn(&talk, &talk.body())?;
        next += 1;
    }
    print!("{:>6} {:>9}", "case", "bytes");
    for step in STEPS {
        print!(" {step:>8}");
    }
    println!("  microseconds, medians; MB/s");
    let mut broken = None;
    for (case, name, budget) in [
        (Case::New, "new", NEW_BUDGET),
        (Case::Grown, "grown", GROWN_BUDGET),
        (Case::Clock, "clock", NEW_BUDGET),
    ] {
        let mut per_mb = Duration::ZERO;
        for size in SIZES {
            if case == Case::Clock && size != MB {
                continue;
            }
            let (bytes, times) = measure(&mut gate, &mut next, case, size)?;
            print!("{name:>6} {bytes:>9}");
            for time in times {
                print!(" {:8.1}", time.as_secs_f64() * 1e6);
            }
            println!("  {:.0}", bytes as f64 / times[ALL].as_secs_f64() / 1e6);
            // A conversation grows past the size it is measured for.
            let scaled = times[ALL].mul_f64(size as f64 / bytes as f64);
            if size == MB {
                per_mb = scaled;
                if scaled > budget {
                    broken = Some("1 MB takes longer than its budget");
                }
            }
            if size == 8 * MB && scaled > per_mb.mul_f64(LINEAR_FACTOR) {
                broken = Some("8 MB take more than ten times as long as 1 MB");
            }
        }
    }
    println!("engine: {:?} bytes of {MEMORY}", gate.engine.bytes());
    broken = loops_within_budget()?.or(broken);
    for setting in SETTINGS_MIB {
        if let Err(why) = memory_apart(setting) {
            broken = Some(why);
        }
    }
    broken.map_or(Ok(()), Err)
}
