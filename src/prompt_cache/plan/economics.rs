//! What the planner makes of what apps have shown.

use serde_json::{Value, json};

use super::*;
use crate::prompt_cache::chain::Hash;
use crate::prompt_cache::habits::{Arrival, Habits, Question, Stable, Stop, Transition, Within};
use crate::provider::anthropic::request::view;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

/// Apps over time.
struct World {
    habits: Habits,
    now: i64,
}

/// One request.
struct Ask<'a> {
    request: &'a Value,
    root: u8,
    thread: u64,
    turn: u32,
    shared: Option<Transition>,
    ttl: Option<Ttl>,
    read_at: Option<usize>,
}

impl<'a> Ask<'a> {
    fn first(request: &'a Value, root: u8, thread: u64) -> Self {
        Self {
            request,
            root,
            thread,
            turn: 1,
            shared: None,
            ttl: None,
            read_at: None,
        }
    }
}

impl World {
    fn new() -> Self {
        Self {
            habits: Habits::new(),
            now: 1_800_000_000_000,
        }
    }

    /// Asks, and gives the plan with the places in words.
    fn ask(&mut self, ask: &Ask) -> (Vec<String>, Plan) {
        let body = ask.request.to_string();
        let view = view(body.as_bytes()).unwrap();
        let root: Hash = [ask.root; 16];
        self.habits.arrived(Arrival {
            app: 1,
            root,
            thread: ask.thread,
            turn: ask.turn,
            bytes: body.len() as u64,
            shared: ask.shared,
            now_ms: self.now,
        });
        let outlook = self.habits.outlook(&Question {
            app: 1,
            root,
            thread: ask.thread,
            turn: ask.turn,
            kind: Kind::of(&view),
            forced: false,
            root_seen: false,
            now_ms: self.now,
        });
        let plan = plan(&Situation {
            outlook,
            min_tokens: Some(10),
            read_at: ask.read_at.map(|at| u32::try_from(at).unwrap()),
            ttl: ask.ttl,
            ..Situation::new(body.as_bytes(), &view)
        });
        (places(&view, &plan), plan)
    }

    fn answer(&mut self, ask: &Ask, stop: Stop) {
        self.now += 2 * SECOND;
        self.habits.ended(1, ask.thread, stop, self.now);
    }

    /// A request that nothing follows.
    fn once(&mut self, request: &Value, root: u8, thread: u64, stop: Stop) -> Vec<String> {
        let ask = Ask::first(request, root, thread);
        let (places, _) = self.ask(&ask);
        self.answer(&ask, stop);
        places
    }

    /// A thread of turns, a pause after each, with what becomes of the request before; the places of
    /// each turn and the lifetime.
    fn thread(
        &mut self,
        thread: u64,
        turns: u32,
        pause: i64,
        stop: Stop,
        request: impl Fn(u32) -> (Value, u8),
        change: impl Fn(&RequestView) -> Option<usize>,
    ) -> (Vec<Vec<String>>, Option<Ttl>) {
        let (mut all, mut ttl) = (Vec::new(), None);
        let mut before: Option<RequestView> = None;
        for turn in 1..=turns {
            let (request, root) = request(turn);
            let shared = before.as_ref().map(|view| {
                let at = change(view);
                Transition {
                    prev_len: view.blocks.len() as u32,
                    shared: at.unwrap_or(view.blocks.len()) as u32,
                    tools_len: view.tools,
                    head_len: view.head_len() as u32,
                    volatile: at.is_some(),
                }
            });
            let mut ask = Ask::first(&request, root, thread);
            (ask.turn, ask.ttl, ask.shared) = (turn, ttl, shared);
            ask.read_at = before
                .as_ref()
                .filter(|view| change(view).is_none())
                .map(|view| view.blocks.len() - 1);
            let (places, plan) = self.ask(&ask);
            assert!(ttl.is_none() || plan.ttl == ttl, "never another lifetime");
            ttl = plan.ttl;
            all.push(places);
            self.answer(&ask, stop);
            self.now += pause;
            before = Some(view(request.to_string().as_bytes()).unwrap());
        }
        (all, ttl)
    }
}

fn places(view: &RequestView, plan: &Plan) -> Vec<String> {
    let name = |(at, ttl): &(usize, Ttl)| match ttl {
        Ttl::M5 => view.path(&view.blocks[*at]),
        ttl => format!("{} {}", view.path(&view.blocks[*at]), ttl.word()),
    };
    plan.placed.iter().map(name).collect()
}

fn words(name: &str) -> String {
    format!("{name} {}", "word ".repeat(400))
}

/// An agent's request in some turn.
fn agent(system: &str, turn: u32) -> Value {
    let mut messages = vec![json!({"role": "user", "content": words("task")})];
    for i in 1..turn {
        messages.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": format!("t{i}"), "name": "a", "input": {}}]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("t{i}"), "content": "small"}]}));
    }
    json!({"tools": [{"name": "a", "description": words("a")}, {"name": "b"}],
        "system": words(system), "messages": messages})
}

/// A conversation between a person and a model.
fn chat(turn: u32) -> (Value, u8) {
    let mut messages = vec![json!({"role": "user", "content": words("hello")})];
    for _ in 1..turn {
        messages.push(json!({"role": "assistant", "content": "well"}));
        messages.push(json!({"role": "user", "content": "and then?"}));
    }
    (json!({"system": words("you are"), "messages": messages}), 0)
}

/// Calls of which each has its own system prompt: nothing is ever read again but the tools.
#[test]
fn a13_an_app_of_single_calls_pays_no_premium_for_long() {
    for (stop, pause, most) in [
        (Stop::Other, MINUTE, 3),
        (Stop::ToolUse, MINUTE, 3),
        (Stop::Other, 20 * MINUTE, 3),
        (Stop::Other, SECOND, 8),
        (Stop::ToolUse, SECOND, 6),
    ] {
        let mut world = World::new();
        let mut paid = 0;
        for call in 0..20 {
            let places = world.once(&agent(&format!("{call}"), 1), call, call.into(), stop);
            if places.iter().any(|place| !place.starts_with("tools")) {
                paid = call + 1;
            }
            world.now += pause;
        }
        assert!(paid <= most, "{stop:?} {pause}: {paid}");
    }
}

/// What single calls share is kept for them, the rest is not.
#[test]
fn single_calls_with_one_root_keep_the_root() {
    let mut world = World::new();
    let mut last = Vec::new();
    for call in 0..6 {
        last = world.once(&agent("same", 1), 0, call, Stop::Other);
        world.now += MINUTE;
    }
    assert_eq!(last, ["tools[1]", "system"]);
    // Calls a quarter of an hour apart are worth the dearer writes.
    let mut world = World::new();
    for call in 0..6 {
        last = world.once(&agent("same", 1), 0, call, Stop::Other);
        world.now += 15 * MINUTE;
    }
    assert_eq!(last, ["tools[1] 1h", "system 1h"]);
}

/// A question without tools pays nothing, until the app has shown that people go on.
#[test]
fn a_first_question_is_kept_where_people_go_on() {
    let mut world = World::new();
    for thread in 0..5 {
        let (first, _) = world.thread(thread, 4, 20 * SECOND, Stop::Other, chat, |_| None);
        let marked = first[0].iter().any(|place| place.starts_with("messages"));
        assert_eq!(marked, thread > 0, "{first:?}");
        assert_eq!(first[3].last().unwrap(), "messages[6].content");
    }
}

#[test]
fn a01_behind_a_clock_only_the_tools_are_kept() {
    let mut world = World::new();
    let clocked = |turn| (agent(&format!("12:00:{turn}"), turn), turn as u8);
    let (places, _) = world.thread(1, 5, SECOND, Stop::ToolUse, clocked, |view| {
        Some(view.tools as usize)
    });
    assert_eq!(places[0], ["tools[1]", "system", "messages[0].content"]);
    for turn in &places[1..] {
        assert_eq!(*turn, ["tools[1]"]);
    }
    // The app's next thread knows from its first turn on.
    let next = Ask::first(&clocked(1).0, 99, 2).request.clone();
    assert_eq!(world.ask(&Ask::first(&next, 99, 2)).0, ["tools[1]"]);
    // And without the clock it is as before, though nothing was marked meanwhile.
    let steady = |turn| (agent("you are", turn), 100);
    let (places, _) = world.thread(3, 12, SECOND, Stop::ToolUse, steady, |_| None);
    assert!(
        places[11].contains(&"messages[22].content[0]".to_owned()),
        "{places:?}"
    );
}

#[test]
fn a_long_loop_keeps_its_newest_block_each_turn() {
    let mut world = World::new();
    let looped = |turn| (agent("you are", turn), 0);
    let (places, ttl) = world.thread(1, 60, 3 * SECOND, Stop::ToolUse, looped, |_| None);
    for (turn, places) in places.iter().enumerate().skip(1) {
        let (newest, before) = (2 * turn, 2 * turn - 2);
        assert_eq!(places[..2], ["tools[1]", "system"]);
        assert!(
            places[2].starts_with(&format!("messages[{before}]")),
            "{places:?}"
        );
        assert!(
            places[3].starts_with(&format!("messages[{newest}]")),
            "{places:?}"
        );
    }
    assert_eq!(ttl, Some(Ttl::M5));
}

#[test]
fn pauses_of_an_app_choose_the_lifetime_of_its_next_thread() {
    // A chat's second turn is the first one that is marked, and it knows of one pause already.
    for (pause, next) in [
        (2 * MINUTE, Ttl::M5),
        (7 * MINUTE, Ttl::H1),
        (40 * MINUTE, Ttl::H1),
    ] {
        let mut world = World::new();
        world.thread(1, 8, pause, Stop::Other, chat, |_| None);
        let (places, ttl) = world.thread(2, 8, pause, Stop::Other, chat, |_| None);
        assert_eq!(ttl, Some(next), "{pause}: {places:?}");
    }
    // An agent whose user thinks for long after each task of a few calls.
    let mut world = World::new();
    for thread in 0..3 {
        let mut ttl = None;
        let mut before: Option<RequestView> = None;
        for turn in 1..=16 {
            let request = agent("you are", turn);
            let seen = view(request.to_string().as_bytes()).unwrap();
            let mut ask = Ask::first(&request, 0, thread);
            (ask.turn, ask.ttl) = (turn, ttl);
            ask.shared = before
                .as_ref()
                .map(|view| kept(view, view.blocks.len(), false));
            // The pause outlasts the shorter lifetime only.
            let paused = turn % 4 == 1;
            let living = before.as_ref().filter(|_| !paused || ttl == Some(Ttl::H1));
            ask.read_at = living.map(|view| view.blocks.len() - 1);
            let (_, plan) = world.ask(&ask);
            ttl = plan.ttl;
            assert!(thread > 0 || turn > 4 || ttl == Some(Ttl::M5), "{turn}");
            assert!(thread == 0 || ttl == Some(Ttl::H1), "{thread} {turn}");
            let done = turn % 4 == 0;
            world.answer(&ask, if done { Stop::Other } else { Stop::ToolUse });
            world.now += if done { 8 * MINUTE } else { 5 * SECOND };
            before = Some(seen);
        }
        // A thread that a pause has killed may learn from it itself.
        assert_eq!(ttl, Some(Ttl::H1));
    }
}

fn kept(view: &RequestView, shared: usize, volatile: bool) -> Transition {
    Transition {
        prev_len: view.blocks.len() as u32,
        shared: shared as u32,
        tools_len: view.tools,
        head_len: view.head_len() as u32,
        volatile,
    }
}

/// A summary in place of the conversation happens once; a text that is written anew at the end of
/// each request happens each time, and what stands before it is kept.
#[test]
fn one_change_is_forgiven_and_a_repeated_one_is_stepped_around() {
    let mut world = World::new();
    let looped = |turn| (agent("you are", turn), 0);
    world.thread(1, 10, 3 * SECOND, Stop::ToolUse, looped, |_| None);
    let request = agent("you are", 3);
    let seen = view(request.to_string().as_bytes()).unwrap();
    let mut ask = Ask::first(&request, 0, 1);
    ask.turn = 11;
    ask.shared = Some(kept(&seen, seen.head_len(), false));
    let (places, _) = world.ask(&ask);
    assert!(
        places.contains(&"messages[4].content[0]".to_owned()),
        "{places:?}"
    );

    let mut world = World::new();
    let reminded = |turn: u32| {
        let mut request = agent("you are", turn);
        let last = request["messages"]
            .as_array_mut()
            .unwrap()
            .last_mut()
            .unwrap();
        let own = last["content"].take();
        last["content"] = match own {
            Value::Array(mut blocks) => {
                blocks.push(json!({"type": "text", "text": words("reminder")}));
                blocks.into()
            }
            own => {
                json!([{"type": "text", "text": own}, {"type": "text", "text": words("reminder")}])
            }
        };
        (request, 0)
    };
    let (places, _) = world.thread(1, 8, 3 * SECOND, Stop::ToolUse, reminded, |view| {
        Some(view.blocks.len() - 1)
    });
    for (turn, places) in places.iter().enumerate().skip(3) {
        let newest = format!("messages[{}].content[0]", 2 * turn);
        assert_eq!(places.last(), Some(&newest), "{places:?}");
    }
}

fn sure(chance: f64) -> Outlook {
    let within = Within {
        m5: chance,
        h1: chance,
    };
    let never = Within { m5: 0.0, h1: 0.0 };
    Outlook {
        next: within,
        thread: within,
        root: never,
        app: never,
        tools: 1.0,
        head: 1.0,
        all: 1.0,
        stable: None,
        growth: 0.1,
        root_seen: true,
    }
}

/// The bound follows from the model's own prices.
#[test]
fn the_break_even_is_that_of_the_prices() {
    let request = agent("you are", 1);
    let body = request.to_string();
    let view = view(body.as_bytes()).unwrap();
    for (read, write_5m, bound) in [
        (100, 1250, 0.25 / 1.15),
        (25, 1250, 0.25 / 1.225),
        (500, 1000, 0.0),
        (100, 1100, 0.1),
    ] {
        let marks = |chance| {
            let plan = plan(&Situation {
                outlook: sure(chance),
                rates: Some(Rates {
                    input_pico: 1000,
                    output_pico: 1,
                    read_pico: read,
                    write_5m_pico: write_5m,
                    write_1h_pico: write_5m,
                }),
                min_tokens: Some(10),
                ..Situation::new(body.as_bytes(), &view)
            });
            assert_eq!(plan.value > 0, plan.skipped.is_none());
            assert!(plan.value >= 0 && plan.skipped.is_none_or(|word| word == "not_worth_it"));
            !plan.placed.is_empty()
        };
        assert!(marks(bound + 0.01), "{read} {write_5m}");
        assert!(bound == 0.0 || !marks(bound - 0.01), "{read} {write_5m}");
    }
}

#[test]
fn lifetimes_that_live_are_not_changed() {
    let request = agent("you are", 3);
    let body = request.to_string();
    let view = view(body.as_bytes()).unwrap();
    let with = |ttl, head_ttl| {
        let plan = plan(&Situation {
            outlook: sure(0.9),
            min_tokens: Some(10),
            ttl,
            head_ttl,
            // What lives is read: the head, or the previous turn too.
            read_at: if ttl.is_some() {
                Some(5)
            } else {
                head_ttl.map(|_| 2)
            },
            ..Situation::new(body.as_bytes(), &view)
        });
        assert_eq!(plan.ttl, ttl.or(Some(Ttl::M5)));
        places(&view, &plan)
    };
    let (m5, h1) = (Some(Ttl::M5), Some(Ttl::H1));
    let tail = ["messages[2].content[0]", "messages[4].content[0]"];
    let lasting = ["messages[2].content[0] 1h", "messages[4].content[0] 1h"];
    let both = |head: [&'static str; 2], tail: [&'static str; 2]| [head, tail].concat();
    let head = ["tools[1]", "system"];
    let lasting_head = ["tools[1] 1h", "system 1h"];
    assert_eq!(with(None, None), both(head, tail));
    assert_eq!(with(m5, h1), both(lasting_head, tail));
    assert_eq!(with(h1, None), both(lasting_head, lasting));
    assert_eq!(with(h1, h1), both(lasting_head, lasting));
    // A lasting marker may not follow one of the head, which must not change its lifetime.
    let without_head = with(h1, m5);
    assert!(
        without_head
            .iter()
            .all(|place| place.ends_with("1h") && place.starts_with("messages")),
        "{without_head:?}"
    );
    assert_eq!(without_head.last().unwrap(), lasting[1]);
    // Nothing of the conversation lives: the lifetime is chosen anew.
    let dead = plan(&Situation {
        outlook: sure(0.9),
        min_tokens: Some(10),
        ttl: h1,
        read_at: Some(2),
        ..Situation::new(body.as_bytes(), &view)
    });
    assert_eq!(dead.ttl, m5);
}

#[test]
fn replace_takes_the_place_of_the_clients_markers() {
    let mut request = agent("you are", 3);
    let marker = json!({"type": "ephemeral"});
    request["tools"][0]["cache_control"] = marker.clone();
    request["messages"][4]["content"][0]["cache_control"] = marker.clone();
    request["cache_control"] = marker;
    let body = request.to_string();
    let view = view(body.as_bytes()).unwrap();
    let with = |chance, ttl| {
        plan(&Situation {
            policy: Policy::Replace,
            outlook: sure(chance),
            min_tokens: Some(10),
            ttl,
            read_at: ttl.map(|_| 5),
            ..Situation::new(body.as_bytes(), &view)
        })
    };
    // What stands where we would put it stays; what does not goes.
    let plan = with(0.9, None);
    assert_eq!(
        places(&view, &plan),
        ["tools[1]", "system", "messages[2].content[0]"]
    );
    assert_eq!((plan.removed, plan.removed_top), (vec![0], true));
    // Another lifetime is written over it.
    let plan = with(0.9, Some(Ttl::H1));
    assert_eq!(
        places(&view, &plan).last().unwrap(),
        "messages[4].content[0] 1h"
    );
    assert_eq!(plan.removed, [0, 7]);
    // A call that nothing follows loses them all, and saves their premium.
    let plan = with(0.0, None);
    assert_eq!(
        (plan.skipped, plan.placed.len(), plan.removed),
        (Some("not_worth_it"), 0, vec![0, 7])
    );
    assert!(plan.value > 0 && plan.splices.len() == 3, "{}", plan.value);
}

/// Siblings of a fan-out: the first one under way writes what they share, and they only pay for
/// their own part, which is too short here to be worth a premium on all of it.
#[test]
fn what_another_request_is_just_writing_is_not_written_twice() {
    let mut request = agent("you are", 1);
    request["messages"][0]["content"] = "a short task".into();
    let body = request.to_string();
    let view = view(body.as_bytes()).unwrap();
    let with = |pending_at| {
        plan(&Situation {
            outlook: sure(0.9),
            min_tokens: Some(10),
            pending_at,
            ..Situation::new(body.as_bytes(), &view)
        })
    };
    assert_eq!(places(&view, &with(None)).len(), 3);
    let sibling = with(Some(2));
    assert_eq!(
        (sibling.placed, sibling.skipped),
        (vec![], Some("not_worth_it"))
    );
    // A place that is not in this request says nothing.
    assert_eq!(with(Some(99)), with(None));
}

/// Known to the digit: all is read at a tenth, the new block costs a quarter more and is read once.
#[test]
fn the_value_is_what_is_saved() {
    let request = json!({"tools": [{"name": "a"}], "messages": [
        {"role": "user", "content": "x".repeat(39_999 - 14)}, {"role": "assistant", "content": "y".repeat(98)},
        {"role": "user", "content": "z".repeat(3900 - 2)}]});
    let body = request.to_string();
    let view = view(body.as_bytes()).unwrap();
    let sizes: Vec<u32> = view.blocks.iter().map(|block| block.span.len()).collect();
    assert_eq!(sizes, [12, 39_987, 100, 3900]);
    let plan = plan(&Situation {
        outlook: sure(1.0),
        min_tokens: Some(1000),
        read_at: Some(1),
        ..Situation::new(body.as_bytes(), &view)
    });
    let (read, new) = (39_999.0 / 4.0, 4000.0 / 4.0);
    let saved = read * 0.9 - new * 0.25 + (read + new) * 1.15;
    assert_eq!(plan.value, (saved * 1000.0_f64).round() as i64);
}

/// The next turn keeps the leading part: a marker goes to its end.
#[test]
fn the_end_of_what_is_kept_is_a_place() {
    let request = agent("you are", 6);
    let body = request.to_string();
    let view = view(body.as_bytes()).unwrap();
    let outlook = Outlook {
        all: 0.0,
        stable: Some((Stable::Blocks(7), 0.9)),
        ..sure(0.9)
    };
    let plan = plan(&Situation {
        outlook,
        min_tokens: Some(10),
        ..Situation::new(body.as_bytes(), &view)
    });
    assert_eq!(plan.placed.last(), Some(&(6, Ttl::M5)));
}
