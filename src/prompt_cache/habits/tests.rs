use super::*;
use proptest::prelude::*;

const START: i64 = 1_800_000_000_000;

fn arrival(thread: u64, turn: u32, now_ms: i64) -> Arrival {
    Arrival {
        app: 1,
        root: [0; 16],
        thread,
        turn,
        bytes: 10_000 + u64::from(turn),
        shared: None,
        now_ms,
    }
}

fn question(turn: u32, now_ms: i64) -> Question {
    Question {
        app: 1,
        root: [0; 16],
        thread: 1 << 40,
        turn,
        kind: Kind::Agent,
        forced: false,
        root_seen: false,
        now_ms,
    }
}

#[test]
fn a_request_with_tools_is_followed_and_a_lone_one_is_not() {
    let of = |kind| Outlook::prior(kind, false).next.m5;
    assert!(of(Kind::Agent) > 0.8 && of(Kind::Chat) > 0.4 && of(Kind::Lone) < 0.1);
    let forced = Question {
        forced: true,
        ..question(1, START)
    };
    assert!(Habits::new().outlook(&forced).next.m5 < 0.2);
    let root = |seen| Outlook::prior(Kind::Lone, seen).root.m5;
    assert!(root(true) > 0.6 && root(false) < 0.1);
}

/// Stop reasons part the gaps, and what is waited for is counted once its time is up.
#[test]
fn never_is_known_when_the_hour_is_over() {
    let mut habits = Habits::new();
    for thread in 0..4 {
        habits.arrived(arrival(thread, 1, START));
        habits.ended(1, thread, Stop::Other, START + 1000);
    }
    let at = |habits: &Habits, ms| habits.outlook(&question(1, START + ms)).next;
    let (early, later) = (at(&habits, 2000), at(&habits, M5_MS + 1));
    assert!(
        later.m5 < early.m5 && later.h1 < early.h1,
        "{early:?} {later:?}"
    );
    assert!(later.h1 > later.m5, "the hour is not over");
    assert_eq!(habits.apps.get(&1).unwrap().waiting.len(), 4);
    // One comes back within the hour, the others do not.
    habits.arrived(arrival(0, 2, START + 10 * 60_000));
    habits.arrived(arrival(9, 1, START + H1_MS + 1));
    let app = habits.apps.get(&1).unwrap();
    let gaps = app.gaps[0].of(Stop::Other);
    assert_eq!((gaps.soon, gaps.hour, gaps.later), (0, 1, 3));
    assert_eq!(app.waiting.len(), 0);
    assert_eq!(app.gaps[0].of(Stop::ToolUse).total(), 0.0);
}

#[test]
fn failures_and_retries_teach_nothing() {
    let mut habits = Habits::new();
    habits.arrived(arrival(1, 1, START));
    let fresh = habits.outlook(&question(1, START));
    habits.ended(1, 1, Stop::Failed, START + 10);
    habits.arrived(arrival(1, 1, START + 20));
    assert_eq!(habits.outlook(&question(1, START)), fresh);
    habits.ended(7, 99, Stop::Other, START);
    assert_eq!(
        habits.outlook(&question(1, START)),
        fresh,
        "a thread nobody knows"
    );
}

/// The set of tools is part of an app's key; a thread whose tools change is not abandoned.
#[test]
fn a_thread_that_changes_its_tools_is_followed() {
    let mut habits = Habits::new();
    habits.arrived(arrival(1, 1, START));
    habits.ended(1, 1, Stop::ToolUse, START + 1000);
    habits.arrived(Arrival {
        app: 2,
        ..arrival(1, 2, START + 2000)
    });
    let gaps = habits.apps.get(&1).unwrap().gaps[0].of(Stop::ToolUse);
    assert_eq!((gaps.soon, gaps.later), (1, 0));
}

#[test]
fn it_stays_bounded_and_keeps_who_comes_often() {
    let mut habits = Habits::new();
    let mut regular = 0;
    for index in 0..200_000_u64 {
        let mut root = Hash::default();
        root[..8].copy_from_slice(&index.to_le_bytes());
        habits.arrived(Arrival {
            app: index,
            root,
            ..arrival(index, 1, START)
        });
        habits.ended(index, index, Stop::Other, START);
        if index % 300 == 0 {
            regular += 1;
            habits.arrived(Arrival {
                app: u64::MAX,
                ..arrival(u64::MAX, regular, START)
            });
        }
    }
    assert!(habits.apps.len() <= 2 * APPS);
    assert!(habits.roots.len() <= 2 * ROOTS);
    assert!(habits.threads.len() <= 2 * THREADS);
    assert_eq!(habits.threads.get(&u64::MAX).unwrap().turn, regular);
    for thread in 0..1000 {
        habits.arrived(arrival(thread, 1, START));
        habits.ended(1, thread, Stop::Other, START);
    }
    assert_eq!(habits.apps.get(&1).unwrap().waiting.len(), WAITING);
}

#[derive(Debug, Clone)]
enum Event {
    Arrived(Arrival),
    Ended(u64, u64, Stop),
}

fn events() -> impl Strategy<Value = Vec<(i64, Event)>> {
    let transition = (0..9_u32, 0..12_u32, 0..4_u32, 0..4_u32, any::<bool>()).prop_map(
        |(prev_len, shared, tools_len, more, volatile)| Transition {
            prev_len,
            shared,
            tools_len,
            head_len: tools_len + more,
            volatile,
        },
    );
    let arrived = (
        0..3_u64,
        0..3_u8,
        0..5_u64,
        0..12_u32,
        any::<u64>(),
        prop::option::of(transition),
    )
        .prop_map(|(app, root, thread, turn, bytes, shared)| {
            Event::Arrived(Arrival {
                app,
                root: [root; 16],
                thread,
                turn,
                bytes,
                shared,
                now_ms: 0,
            })
        });
    let stop = prop::sample::select(vec![Stop::ToolUse, Stop::Other, Stop::Failed]);
    let ended = (0..3_u64, 0..5_u64, stop).prop_map(|(a, t, s)| Event::Ended(a, t, s));
    let gap = prop::sample::select(vec![-1000, 0, 1000, 100_000, 400_000, 5_000_000]);
    prop::collection::vec((gap, prop_oneof![2 => arrived, 1 => ended]), 0..300)
}

proptest! {
    /// Whatever happens, also clocks that go back: chances are chances, and the same events give the
    /// same ones.
    #[test]
    fn chances_stay_chances(events in events(), turn in 0..12_u32) {
        let run = || {
            let (mut habits, mut now) = (Habits::new(), START);
            for (gap, event) in &events {
                now += gap;
                match event.clone() {
                    Event::Arrived(arrival) => habits.arrived(Arrival { now_ms: now, ..arrival }),
                    Event::Ended(app, thread, stop) => habits.ended(app, thread, stop, now),
                }
            }
            let of = |kind, thread| habits.outlook(&Question { kind, thread, ..question(turn, now) });
            [Kind::Lone, Kind::Chat, Kind::Agent].map(|kind| [of(kind, 0), of(kind, 77)])
        };
        let outlooks = run();
        prop_assert_eq!(outlooks, run());
        for outlook in outlooks.as_flattened() {
            for within in [outlook.next, outlook.thread, outlook.root, outlook.app] {
                prop_assert!(0.0 <= within.m5 && within.m5 <= within.h1 && within.h1 <= 1.0, "{:?}", outlook);
            }
            prop_assert!(0.0 <= outlook.all && outlook.all <= outlook.head);
            prop_assert!(outlook.head <= outlook.tools && outlook.tools <= 1.0);
            prop_assert!(outlook.stable.is_none_or(|(_, held)| (0.0..=1.0).contains(&held)));
            prop_assert!(outlook.growth.is_finite() && outlook.growth >= 0.0);
        }
    }
}
