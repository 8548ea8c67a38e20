//! The machine: stop reasons, caps, time, what the books say.

use prefixgate::agent::budget::{Budget, check_price};
use prefixgate::agent::machine::{Event, Limits, Outcome, Situation, Spent, Step, Stop};
use prefixgate::agent::talk::{CallResult, Entry, NO_OUTPUT};
use prefixgate::provider::wire::Wire;
use prefixgate::usage::PriceBook;

use super::legal::assert_legal;
use super::play::{Play, answer, answered, bill, call, setup, text};

fn after(event: Event) -> Play {
    let mut play = Play::told(setup());
    play.put(event);
    play
}

#[test]
fn an_end_of_turn_ends_the_run_and_its_calls_are_answered_all_the_same() {
    let play = after(answered(vec![text("done")], Stop::EndTurn));
    assert_eq!(play.outcome(), Outcome::EndTurn);
    assert_eq!(play.run.answer().as_deref(), Some("done"));

    let mut play = after(answered(vec![call("a", "work", "{}")], Stop::EndTurn));
    play.make(|_| ("fine".into(), false));
    assert!(play.asks_model());
    assert_legal(play.run.entries());
}

#[test]
fn tool_use_makes_the_calls_and_without_any_ends_the_run() {
    let play = after(answered(
        vec![text("so"), call("a", "work", "{}")],
        Stop::ToolUse,
    ));
    assert_eq!(play.todo()[0].key, "r/main/1/a");
    let play = after(answered(vec![text("so")], Stop::ToolUse));
    assert_eq!(play.outcome(), Outcome::EndTurn);
}

#[test]
fn an_output_limit_in_a_call_is_doubled_once_and_then_ends_the_run() {
    let cut = |blocks, open_call| Event::Answered {
        answer: answer(blocks),
        stop: Stop::MaxTokens,
        open_call,
        bill: bill(1, 1, 1),
    };
    for (blocks, open) in [
        (vec![text("here")], true),
        (vec![], false),
        (vec![call("a", "work", "{}")], false),
    ] {
        let mut play = after(cut(blocks.clone(), open));
        assert_eq!(play.next(), Step::CallModel { max_tokens: 2000 });
        assert_eq!(play.run.entries().len(), 1, "the answer is dropped");
        play.put(cut(blocks, open));
        assert_eq!(play.outcome(), Outcome::Truncated);
        assert_eq!(play.run.spent().answers, 2, "both are paid");
        play.say("shorter");
        play.put(answered(vec![text("ok")], Stop::EndTurn));
        assert_eq!(play.outcome(), Outcome::EndTurn);
    }
    // A whole answer in between: the limit is raised anew.
    let mut play = after(cut(vec![], false));
    play.put(answered(vec![call("a", "work", "{}")], Stop::ToolUse));
    play.make(|_| ("x".into(), false));
    assert_eq!(play.next(), Step::CallModel { max_tokens: 1000 });
    play.put(cut(vec![], false));
    assert_eq!(play.next(), Step::CallModel { max_tokens: 2000 });
}

#[test]
fn an_output_limit_behind_text_keeps_the_text_and_makes_no_call() {
    let play = after(answered(
        vec![text("part"), call("a", "work", "{}")],
        Stop::MaxTokens,
    ));
    assert_eq!(play.outcome(), Outcome::Truncated);
    assert_eq!(play.run.answer().as_deref(), Some("part"));
    assert!(play.results()[0].is_error);
    assert_legal(play.run.entries());
}

#[test]
fn f10_a_pause_sends_the_answer_back_as_it_is_and_joins_what_follows() {
    let mut play = after(answered(vec![text("first ")], Stop::Pause));
    assert!(play.asks_model());
    assert_eq!(play.run.entries().len(), 2, "nothing is said by the user");
    play.put(answered(vec![text("second")], Stop::EndTurn));
    assert_eq!(play.run.entries().len(), 2);
    assert_eq!(play.run.answer().as_deref(), Some("first second"));
    assert_eq!(play.run.turns(), 2, "each part is a turn");
    assert_eq!(play.outcome(), Outcome::EndTurn);
}

#[test]
fn f10_a_pause_for_ever_meets_the_cap_on_turns() {
    for turns in [3, Limits::default().turns] {
        let mut setup = setup();
        setup.limits.turns = turns;
        let mut play = Play::told(setup);
        let mut asked = 0;
        while play.asks_model() {
            play.put(answered(vec![text("more")], Stop::Pause));
            asked += 1;
        }
        assert_eq!((asked, play.outcome()), (turns, Outcome::MaxTurns));
    }
}

#[test]
fn a_paused_answer_is_not_continued_by_another_model() {
    let mut play = after(answered(vec![text("first")], Stop::Pause));
    play.put(Event::Switched {
        wire: Wire::Chat,
        model: "gpt-5.6".into(),
    });
    assert!(play.asks_model());
    assert_legal(play.run.entries());
    play.put(answered(vec![text("second")], Stop::EndTurn));
    assert_eq!(play.run.entries().len(), 4);
}

#[test]
fn a_refusal_ends_the_run_and_none_of_its_calls_is_made() {
    let refused = Stop::Refusal(Some("cyber".into()));
    let mut play = after(answered(vec![text("no"), call("a", "work", "{}")], refused));
    assert_eq!(play.outcome(), Outcome::Refusal(Some("cyber".into())));
    assert_eq!(play.run.entries().len(), 1);
    play.say("something else");
    assert!(play.asks_model());
    assert_legal(play.run.entries());
}

#[test]
fn f15_an_unknown_word_is_tool_use_with_calls_and_an_end_without() {
    let word = || Stop::Unknown("new_reason".into());
    let play = after(answered(vec![call("a", "work", "{}")], word()));
    assert_eq!(play.todo().len(), 1);
    for blocks in [vec![text("hm")], vec![]] {
        let play = after(answered(blocks, word()));
        assert_eq!(play.outcome(), Outcome::UnknownStop("new_reason".into()));
    }
}

#[test]
fn f05_an_empty_answer_ends_the_run_and_is_left_out() {
    let mut play = after(answered(vec![], Stop::EndTurn));
    assert_eq!(play.outcome(), Outcome::EndTurn);
    assert_eq!(play.run.entries().len(), 1);
    play.say("and?");
    let Entry::User { texts, .. } = &play.run.entries()[0] else {
        panic!()
    };
    assert_eq!(texts, &["do it", "and?"], "it joins the turn before");
    assert_legal(play.run.entries());
}

#[test]
fn f05_a_tool_that_prints_nothing_has_a_result() {
    let mut play = after(answered(vec![call("a", "work", "{}")], Stop::ToolUse));
    play.make(|_| (" \n".into(), false));
    assert_eq!(play.results()[0].text, NO_OUTPUT);
}

#[test]
fn each_cap_is_looked_at_before_the_model_and_before_the_calls() {
    type Set = fn(&mut Limits);
    let caps: [(Set, Outcome); 3] = [
        (|l| l.tokens = Some(110), Outcome::MaxTokensTotal),
        (|l| l.pico = Some(7), Outcome::MaxUsd),
        (|l| l.wall_ms = Some(50), Outcome::MaxWallTime),
    ];
    for (cap, outcome) in caps {
        let mut setup = setup();
        cap(&mut setup.limits);
        let mut play = Play::told(setup);
        assert!(play.asks_model());
        play.now = 60;
        play.put(answered(vec![call("a", "work", "{}")], Stop::ToolUse));
        assert_eq!(play.outcome(), outcome, "before the calls");
        // With a higher cap it goes on where it stopped.
        play.put(Event::Ended(outcome.clone()));
        let limits = Some(Limits::default());
        play.put(Event::Resumed { limits });
        play.make(|_| ("x".into(), false));
        assert!(play.asks_model());
        let mut limits = Limits::default();
        cap(&mut limits);
        let limits = Some(limits);
        play.put(Event::Resumed { limits });
        assert_eq!(play.outcome(), outcome, "before the model");
    }
}

#[test]
fn turns_are_capped_also_while_tools_are_called() {
    let mut setup = setup();
    setup.limits.turns = 2;
    let mut play = Play::told(setup);
    for id in ["a", "b"] {
        play.put(answered(
            vec![call(id, "work", &format!("{{\"n\":\"{id}\"}}"))],
            Stop::ToolUse,
        ));
        play.make(|call| (call.id.clone(), false));
    }
    assert_eq!(play.outcome(), Outcome::MaxTurns);
    assert_legal(play.run.entries());
}

#[test]
fn a_batch_of_calls_is_made_whole_or_not_at_all() {
    let mut setup = setup();
    setup.limits.calls = Some(3);
    let mut play = Play::told(setup);
    play.put(answered(
        vec![call("a", "work", "1"), call("b", "work", "2")],
        Stop::ToolUse,
    ));
    play.make(|call| (call.id.clone(), false));
    assert_eq!(play.run.spent().calls, 2);
    play.put(answered(
        vec![call("c", "work", "3"), call("d", "work", "4")],
        Stop::ToolUse,
    ));
    assert_eq!(play.outcome(), Outcome::MaxToolCalls);
}

#[test]
fn what_sub_agents_have_used_counts_for_the_caps_of_all() {
    let mut setup = setup();
    setup.limits.pico = Some(1000);
    let play = Play::told(setup);
    let whole = Spent {
        pico: 1000,
        ..Spent::default()
    };
    let situation = Situation {
        now_ms: 0,
        whole_run: Some(&whole),
    };
    assert_eq!(play.run.next(situation), Step::Done(Outcome::MaxUsd));
    assert!(play.asks_model());
}

#[test]
fn a_call_of_an_answer_that_is_coming_in_may_begin_only_within_the_caps() {
    let mut play = Play::told(setup());
    let wanted = answer(vec![call("a", "work", "{}")])
        .calls()
        .next()
        .unwrap()
        .clone();
    let may = |play: &Play| {
        let situation = Situation {
            now_ms: play.now,
            whole_run: None,
        };
        play.run.may_begin(&wanted, situation)
    };
    assert!(may(&play));
    for cap in [
        (|l: &mut Limits| l.calls = Some(9)) as fn(&mut Limits),
        |l| l.wall_ms = Some(0),
        |l| l.tokens = Some(0),
    ] {
        let mut limits = Limits::default();
        cap(&mut limits);
        play.put(Event::Resumed {
            limits: Some(limits),
        });
        assert!(!may(&play));
    }
}

#[test]
fn time_at_work_is_neither_waiting_for_the_user_nor_a_crash() {
    let mut play = Play::told(setup());
    play.now = 100;
    play.put(answered(vec![text("done")], Stop::EndTurn));
    play.put(Event::Ended(Outcome::EndTurn));
    play.now = 5_000;
    assert_eq!(play.run.worked_ms(play.now), 100);
    play.say("more");
    play.now = 5_030;
    assert_eq!(play.run.worked_ms(play.now), 130);
    // A refusal ends the run without an event of its own, and its time counts.
    play.put(answered(vec![], Stop::Refusal(None)));
    assert_eq!(play.run.worked_ms(9_999), 130);
    play.now = 20_000;
    play.say("again");
    play.now = 20_010;
    play.put(Event::Abandoned {
        reason: "cut".into(),
        bill: bill(0, 0, 0),
    });
    // Then the process dies.
    play.now = 90_000;
    play.put(Event::Resumed { limits: None });
    assert_eq!(play.run.worked_ms(90_005), 145);
}

#[test]
fn a_call_that_the_user_cancelled_before_it_began_is_not_made_later() {
    let mut play = after(answered(
        vec![call("a", "work", "1"), call("b", "work", "2")],
        Stop::ToolUse,
    ));
    let begun = play.todo()[0].clone();
    play.put(Event::CallBegan {
        call: begun.call,
        key: begun.key,
    });
    play.put(Event::Ended(Outcome::Cancelled));
    play.say("stop that");
    let todo = play.todo();
    assert_eq!(todo.len(), 1, "only what had begun is open");
    assert!(todo[0].begun);
    play.put(Event::CallEnded {
        result: CallResult::failed("a", "unknown"),
    });
    assert!(play.asks_model());
    assert!(play.results().iter().all(|result| result.is_error));
    assert_legal(play.run.entries());
}

#[test]
fn what_was_asked_beside_the_conversation_is_booked_and_no_part_of_it() {
    let mut play = after(answered(vec![text("done")], Stop::EndTurn));
    let before = play.run.entries().to_vec();
    play.put(Event::Aside {
        answer: "it went well".into(),
        bill: bill(10, 1, 5),
    });
    assert_eq!(play.run.entries(), before);
    assert_eq!(play.run.aside(), Some("it went well"));
    assert_eq!((play.run.spent().answers, play.run.turns()), (2, 1));
    assert_eq!(play.run.spent().pico, 12);
}

#[test]
fn a_cap_on_money_needs_a_price() {
    let prices = PriceBook::new(&[]).unwrap();
    let capped = Limits {
        pico: Some(1),
        ..Limits::default()
    };
    let check = |model: &str, limits: &Limits| {
        check_price(&prices, "anthropic", model, limits, 1_796_083_200_000)
    };
    assert!(check("claude-sonnet-5", &capped).is_ok());
    assert!(check("nobody-knows-it", &Limits::default()).is_ok());
    let error = check("nobody-knows-it", &capped).unwrap_err();
    assert!(error.to_string().contains("nobody-knows-it"), "{error}");
}

#[test]
fn shared_books_are_one_sum_with_a_page_for_each() {
    let main = Budget::default();
    let child = main.share();
    let grandchild = child.share();
    let calls = |calls| Spent {
        calls,
        ..Spent::default()
    };
    main.add(&calls(1));
    child.add(&calls(10));
    grandchild.add(&calls(100));
    let seen = [&main, &child, &grandchild].map(|books| (books.spent().calls, books.own().calls));
    assert_eq!(seen, [(111, 111), (111, 110), (111, 100)]);
}
