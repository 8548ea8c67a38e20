//! Calls that repeat without getting anywhere, by the gateway's detectors.

use prefixgate::agent::machine::{Outcome, Step, Stop};

use super::legal::assert_legal;
use super::play::{Play, answered, call, setup};

struct Loop {
    play: Play,
    rounds: usize,
}

impl Loop {
    fn new() -> Self {
        let mut setup = setup();
        setup.limits.turns = 200;
        Self {
            play: Play::told(setup),
            rounds: 0,
        }
    }

    /// One answer with one call; gives the result as the model reads it, and whether it was run.
    fn round(&mut self, name: &str, input: &str, result: &str, is_error: bool) -> (String, bool) {
        self.rounds += 1;
        let id = format!("c{}", self.rounds);
        assert!(self.play.asks_model(), "{:?}", self.play.next());
        self.play
            .put(answered(vec![call(&id, name, input)], Stop::ToolUse));
        let run = matches!(self.play.next(), Step::CallTools(_));
        if run {
            self.play.make(|_| (result.to_owned(), is_error));
        }
        assert_legal(self.play.run.entries());
        (self.play.results()[0].text.to_string(), run)
    }

    fn ended(&self) -> Option<Vec<String>> {
        match self.play.next() {
            Step::Done(Outcome::LoopDetected(tools)) => Some(tools),
            _ => None,
        }
    }
}

fn told(text: &str) -> bool {
    text.contains("repetition") || text.contains("repeated")
}

#[test]
fn d01_the_same_failing_call_is_told_then_refused_then_ends_the_run() {
    let mut it = Loop::new();
    let mut seen = Vec::new();
    while it.ended().is_none() {
        let (text, run) = it.round("read_file", r#"{"path":"/nope"}"#, "ENOENT: /nope", true);
        seen.push((told(&text), run));
    }
    let plain = (false, true);
    let notice = (true, true);
    let refused = (false, false);
    assert_eq!(
        seen,
        [
            plain, plain, notice, plain, plain, notice, refused, refused, refused
        ]
    );
    assert_eq!(it.ended(), Some(vec!["read_file".to_owned()]));
}

#[test]
fn d01_counting_starts_again_when_the_user_speaks() {
    let mut it = Loop::new();
    for _ in 0..3 {
        for _ in 0..2 {
            let (text, run) = it.round("read_file", "{}", "ENOENT", true);
            assert!(run && !told(&text));
        }
        it.play.say("try again");
    }
}

#[test]
fn d01_a_refused_call_is_made_again_once_something_new_has_come() {
    let mut it = Loop::new();
    for _ in 0..6 {
        it.round("test", "{}", "1 failed: parse", true);
    }
    assert!(!it.round("test", "{}", "", false).1);
    it.round("edit", r#"{"line":7}"#, "edited", false);
    let (text, run) = it.round("test", "{}", "3 passed", false);
    assert!(run, "{text}");
    // What was known already is nothing new.
    let mut it = Loop::new();
    it.round("look", "{}", "the same", false);
    for _ in 0..6 {
        it.round("test", "{}", "1 failed: parse", true);
    }
    it.round("look", "{}", "the same", false);
    assert!(!it.round("test", "{}", "", false).1);
}

#[test]
fn d03_polling_with_growing_output_is_no_loop() {
    let mut it = Loop::new();
    for step in 1..=12 {
        let (text, run) = it.round(
            "read_output",
            r#"{"handle":"h1"}"#,
            &format!("{step}0%"),
            false,
        );
        assert!(run && !told(&text), "{text}");
    }
    let mut it = Loop::new();
    for step in 1..=12 {
        let (text, _) = it.round(
            "read_output",
            r#"{"handle":"h1"}"#,
            &format!("{step}0%"),
            false,
        );
        assert!(!told(&text), "{text}");
        let (text, _) = it.round("sleep", r#"{"s":5}"#, "", false);
        assert!(!told(&text), "{text}");
    }
}

#[test]
fn d03_polling_on_behind_the_end_is_told() {
    let mut it = Loop::new();
    it.round("read_output", "{}", "50%", false);
    let seen: Vec<bool> = (0..6)
        .map(|_| told(&it.round("read_output", "{}", "exited (code 0)", false).0))
        .collect();
    assert!(!seen[..4].contains(&true), "{seen:?}");
    assert!(seen[4..].contains(&true), "{seen:?}");
}

#[test]
fn d05_two_calls_taking_turns_are_told_by_the_third_pair_and_refused_as_one() {
    let mut it = Loop::new();
    let mut first_told = None;
    let mut refused = Vec::new();
    for pair in 1.. {
        let calls = [
            ("search", r#"{"q":"k"}"#, "0 hits"),
            ("get", r#"{"id":7}"#, "not found"),
        ];
        for (name, input, result) in calls {
            if it.ended().is_some() {
                break;
            }
            let (text, run) = it.round(name, input, result, false);
            if told(&text) {
                first_told.get_or_insert(pair);
            }
            if !run {
                refused.push(name);
            }
        }
        if it.ended().is_some() {
            break;
        }
        assert!(pair < 12, "it never ends");
    }
    assert!(first_told.unwrap() <= 3, "{first_told:?}");
    let tools = it.ended().unwrap();
    assert!(
        tools.contains(&"search".to_owned()) && tools.contains(&"get".to_owned()),
        "{tools:?}"
    );
    assert!(
        refused.contains(&"search") && refused.contains(&"get"),
        "{refused:?}"
    );
}

#[test]
fn d05_a_cycle_of_three_is_told_by_its_third_round() {
    let mut it = Loop::new();
    let mut seen = Vec::new();
    for round in 1..=4 {
        let calls = [("read", "text"), ("edit", "done"), ("test", "1 failed")];
        for (name, result) in calls {
            if told(&it.round(name, r#"{"f":"a"}"#, result, false).0) {
                seen.push(round);
            }
        }
    }
    assert!(seen.first().is_some_and(|round| *round <= 3), "{seen:?}");
}

#[test]
fn d05_a_round_whose_outcome_changes_is_no_loop() {
    let mut it = Loop::new();
    for round in 1..=10 {
        it.round("read", r#"{"f":"a"}"#, "text", false);
        it.round("edit", r#"{"f":"a"}"#, "done", false);
        let (text, run) = it.round("test", "{}", &format!("{} failed of 20", 20 - round), false);
        assert!(run && !told(&text), "round {round}: {text}");
    }
}

#[test]
fn d06_the_same_error_with_other_arguments_is_told_at_the_fifth() {
    let mut it = Loop::new();
    let mut seen = Vec::new();
    for variant in 1..=8 {
        let input = format!(r#"{{"file":"a.rs","old":"variant {variant}"}}"#);
        let error = "search block not found in a.rs";
        if told(&it.round("edit", &input, error, true).0) {
            seen.push(variant);
        }
        it.round("read", r#"{"file":"a.rs"}"#, "fn main() {}", false);
    }
    assert_eq!(seen.first(), Some(&5), "{seen:?}");
}

#[test]
fn d06_a_success_on_the_same_file_starts_the_count_again() {
    let mut it = Loop::new();
    for variant in 1..=8 {
        let input = format!(r#"{{"file":"a.rs","old":"variant {variant}"}}"#);
        let fails = variant % 4 != 0;
        let result = if fails {
            "search block not found in a.rs"
        } else {
            "edited"
        };
        let (text, _) = it.round("edit", &input, result, fails);
        assert!(!told(&text), "{variant}: {text}");
    }
}

#[test]
fn a_threshold_of_nothing_looks_for_nothing() {
    let mut it = Loop::new();
    it.play = {
        let mut setup = setup();
        setup.loop_threshold = 0;
        Play::told(setup)
    };
    for _ in 0..20 {
        let (text, run) = it.round("read_file", "{}", "ENOENT", true);
        assert!(run && !told(&text));
    }
}

#[test]
fn the_count_outlives_a_checkpoint() {
    let mut it = Loop::new();
    for round in 1..=3 {
        let written = it.play.written();
        it.play.run = serde_json::from_value(written).unwrap();
        let (text, _) = it.round("read_file", "{}", "ENOENT", true);
        assert_eq!(told(&text), round == 3);
    }
}
