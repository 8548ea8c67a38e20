//! Whatever happens in whatever order, the machine keeps its promises.

use prefixgate::agent::machine::{AgentRun, Event, Limits, Outcome, Spent, Step, Stop, cut};
use prefixgate::agent::talk::{CallResult, Entry};
use prefixgate::provider::wire::Wire;
use proptest::prelude::*;

use super::legal::assert_legal;
use super::play::{Play, answer, bill, call, setup, text};

/// A source of decisions.
struct Dice<'a>(std::slice::Iter<'a, u8>);

impl Dice<'_> {
    fn roll(&mut self, sides: u8) -> Option<u8> {
        self.0.next().map(|byte| byte % sides)
    }
}

fn stop(side: u8) -> Stop {
    match side {
        0..=5 => Stop::ToolUse,
        6 => Stop::EndTurn,
        7 => Stop::MaxTokens,
        8 => Stop::Pause,
        9 => Stop::Refusal(None),
        10 => Stop::ContextWindow,
        _ => Stop::Unknown("new".into()),
    }
}

/// Does one thing that a driver or the world could do; nothing when the dice are used up.
fn act(play: &mut Play, dice: &mut Dice<'_>, ids: &mut u32) -> Option<()> {
    play.now += i64::from(dice.roll(7)?);
    let from_outside = match dice.roll(20)? {
        0 => {
            play.say("something else");
            return Some(());
        }
        1 => {
            let limits = (dice.roll(2)? == 0).then(Limits::default);
            Some(Event::Resumed { limits })
        }
        2 => Some(Event::Ended(Outcome::Cancelled)),
        3 => Some(Event::Delegated {
            call: "x".into(),
            spent: Spent {
                calls: 1,
                ..Spent::default()
            },
        }),
        4 => {
            let (wire, model) = match dice.roll(2)? {
                0 => (Wire::Chat, "gpt-5.6"),
                _ => (Wire::Messages, "claude-sonnet-5"),
            };
            let model = model.into();
            Some(Event::Switched { wire, model })
        }
        _ => None,
    };
    if let Some(event) = from_outside {
        play.put(event);
        return Some(());
    }
    match play.next() {
        Step::CallModel { .. } => {
            let entries = play.run.entries();
            assert_legal(entries);
            let paused = matches!(entries.last(), Some(Entry::Assistant(_)));
            assert!(!paused || play.run.open_calls().next().is_none());
            model(play, dice, ids)?;
        }
        Step::Compact { from } => {
            assert_legal(play.run.entries());
            let before = play.written()["entries"].clone();
            assert!(!play.run.to_sum_up(from).is_empty());
            assert!(matches!(
                play.run.to_sum_up(from).last(),
                Some(Entry::User { .. })
            ));
            if dice.roll(3)? == 0 {
                play.put(Event::CompactionFailed {
                    reason: "no".into(),
                    bill: bill(5, 5, 5),
                });
                assert_eq!(play.written()["entries"], before);
            } else {
                play.put(Event::Compacted {
                    summary: "all of it".into(),
                    from,
                    bill: bill(5, 5, 5),
                });
                assert_legal(play.run.entries());
            }
        }
        Step::CallTools(todo) => {
            let todo = &todo[dice.roll(todo.len() as u8)? as usize];
            if !todo.begun {
                play.put(Event::CallBegan {
                    call: todo.call.clone(),
                    key: todo.key.clone(),
                });
            }
            if dice.roll(4)? > 0 {
                let result = ["same", "", "other"][dice.roll(3)? as usize];
                let failed = dice.roll(2)? == 0;
                play.put(Event::CallEnded {
                    result: CallResult::new(&todo.call.id, result.into(), failed),
                });
            }
        }
        Step::Done(outcome) => {
            if play.run.outcome().is_none() {
                play.put(Event::Ended(outcome.clone()));
            }
            assert_eq!(play.next(), Step::Done(outcome));
        }
    }
    Some(())
}

/// The model answers, or does not.
fn model(play: &mut Play, dice: &mut Dice<'_>, ids: &mut u32) -> Option<()> {
    let mut blocks = Vec::new();
    for _ in 0..dice.roll(4)? {
        if dice.roll(2)? == 0 {
            blocks.push(text(
                ["word", "a longer word, and another"][dice.roll(2)? as usize],
            ));
        } else {
            *ids += 1;
            let input = format!("{{\"n\":{}}}", dice.roll(2)?);
            blocks.push(call(&format!("c{ids}"), "work", &input));
        }
    }
    let whole = answer(blocks);
    if dice.roll(4)? == 0 {
        // A tool starts while the answer is still coming in.
        let calls: Vec<_> = whole.calls().cloned().collect();
        for call in calls.into_iter().take(dice.roll(3)? as usize) {
            let key = play.run.coming_key(&call.id);
            let id = call.id.clone();
            play.put(Event::CallBegan { call, key });
            if dice.roll(2)? == 0 {
                play.put(Event::CallEnded {
                    result: CallResult::new(&id, "early".into(), false),
                });
            }
        }
    }
    match dice.roll(12)? {
        0 => play.put(Event::Abandoned {
            reason: "cut".into(),
            bill: bill(3, 3, 3),
        }),
        1 => play.put(Event::TooLong),
        _ => {
            let stop = stop(dice.roll(12)?);
            let prompt = u64::from(dice.roll(200)?);
            play.put(Event::Answered {
                answer: whole,
                stop,
                open_call: dice.roll(6)? == 0,
                bill: bill(prompt, 3, 3),
            });
        }
    }
    Some(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn f01_no_order_of_events_breaks_a_conversation_or_the_fold(
        rolls in proptest::collection::vec(any::<u8>(), 0..400),
        compact_at in 20u64..400,
        keep in 0usize..40,
    ) {
        let mut setup = setup();
        setup.compact_at = compact_at;
        setup.limits.turns = 30;
        let mut play = Play::told(setup);
        let mut dice = Dice(rolls.iter());
        let mut ids = 0;
        let mut checkpoint: Option<(usize, serde_json::Value)> = None;
        while act(&mut play, &mut dice, &mut ids).is_some() {
            let again: AgentRun = serde_json::from_value(play.written()).unwrap();
            let situation = prefixgate::agent::machine::Situation {
                now_ms: play.now,
                whole_run: None,
            };
            prop_assert_eq!(again.next(situation), play.next());
            if play.events.len() > keep && checkpoint.is_none() {
                checkpoint = Some((play.events.len(), play.written()));
            }
        }
        let folded = AgentRun::fold(&play.events).unwrap();
        prop_assert_eq!(serde_json::to_value(&folded).unwrap(), play.written());
        if let Some((at, state)) = checkpoint {
            let mut resumed: AgentRun = serde_json::from_value(state).unwrap();
            for happened in &play.events[at..] {
                resumed.apply(happened);
            }
            prop_assert_eq!(serde_json::to_value(&resumed).unwrap(), play.written());
        }
        // The user can always go on, and every answer has been booked.
        play.say("the end");
        play.put(Event::Resumed { limits: Some(Limits { turns: 1000, ..Limits::default() }) });
        while let Step::CallTools(todo) = play.next() {
            let id = todo[0].call.id.clone();
            play.put(Event::CallEnded { result: CallResult::failed(&id, "interrupted") });
        }
        prop_assert!(!matches!(play.next(), Step::CallTools(_)));
        assert_legal(play.run.entries());
    }

    #[test]
    fn f03_a_cut_is_always_before_an_answer_or_at_the_end(
        sizes in proptest::collection::vec(1usize..400, 1..40),
        compact_at in 0u64..6000,
    ) {
        let entries: Vec<Entry> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| match at % 2 {
                0 => Entry::User { results: Vec::new(), texts: vec!["x".repeat(*size)] },
                _ => Entry::Assistant(answer(vec![text(&"y".repeat(*size))])),
            })
            .collect();
        let from = cut(&entries, compact_at);
        prop_assert!(from <= entries.len() && from > 0);
        prop_assert!(from == entries.len() || matches!(entries[from], Entry::Assistant(_)));
    }
}
