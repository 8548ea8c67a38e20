use super::script::{Spelling, body, messages};
use crate::guard::loops::{Action, Detector, Finding, Hint, Memo, Policy, Rule, Seen, look};
use crate::provider::anthropic::request::view;

fn seen(script: &str, policy: &Policy) -> Seen {
    let body = body(&messages(script), Spelling::default());
    look(&body, &view(&body).unwrap(), policy, &Memo::default(), None)
}

fn warned(script: &str) -> Vec<Finding> {
    seen(script, &Policy::default()).findings
}

/// Detector and count of each finding, and whether it is fresh.
fn short(script: &str) -> Vec<(String, u32, bool)> {
    let found = warned(script).into_iter();
    found
        .map(|found| (found.detector, found.count, found.fresh))
        .collect()
}

fn one(detector: Detector, count: u32, fresh: bool) -> Vec<(String, u32, bool)> {
    vec![(detector.as_str().into(), count, fresh)]
}

const NOPE: &str = "> read_file {\"path\":\"/nope\"}\n! ENOENT: /nope\n";

#[test]
fn d01_the_third_identical_failure_is_a_loop() {
    let after = |times: usize| format!("user: read it\n{}", NOPE.repeat(times));
    assert_eq!(warned(&after(2)), []);
    assert_eq!(
        warned(&after(3)),
        [Finding {
            detector: "same_call".into(),
            tools: vec!["read_file".into()],
            count: 3,
            period: 1,
            turns: 3,
            action: "warn".into(),
            fresh: true,
        }]
    );
    assert_eq!(short(&after(4)), one(Detector::SameCall, 4, false));
    assert_eq!(seen(&after(9), &Policy::of(Action::Off)), Seen::default());
}

#[test]
fn d01_a_user_text_starts_the_count_again_and_a_harness_does_not() {
    for (between, goes_on) in [
        ("user: try again", false),
        (
            "user: <system-reminder>mind the time</system-reminder> and go on",
            false,
        ),
        ("user: <b>go</b>", false),
        (
            "user: <system-reminder>mind the time</system-reminder>",
            true,
        ),
        ("sys: <total_tokens>1000 tokens left</total_tokens>", true),
        ("sys: You may use ten more calls.", true),
        ("said: Let me see.", true),
    ] {
        let script = format!("user: go\n{NOPE}{NOPE}said: hm\n{between}\n{NOPE}");
        assert_eq!(!warned(&script).is_empty(), goes_on, "{between}");
        let again = format!("{script}{NOPE}{NOPE}");
        assert!(!warned(&again).is_empty(), "{between}");
    }
}

#[test]
fn d01_texts_beside_results_are_the_users_unless_wrapped_or_repeated() {
    let with = |texts: [&str; 3]| {
        let steps: String = texts.iter().map(|text| format!("{NOPE}{text}\n")).collect();
        warned(&format!("user: go\n{steps}")).len()
    };
    assert_eq!(with(["+ <anything at=\"all\">x</anything>"; 3]), 1);
    assert_eq!(with(["+ no, use the other file", "", ""]), 0);
    assert_eq!(with(["", "", "+ stop"]), 0);
    // The first time nobody can know.
    let nag = "+ Remember to use the todo tool.";
    assert_eq!(with([nag; 3]), 0);
    let script = format!("user: go\n{}", format!("{NOPE}{nag}\n").repeat(4));
    assert_eq!(short(&script), one(Detector::SameCall, 3, true));
}

#[test]
fn d01_words_of_a_harness_behind_a_result_do_not_make_it_another_one() {
    let nag = |words: &str| format!(r"\n<system-reminder>{words}</system-reminder>");
    let failed = |text: &str| format!("> read_file {{\"path\":\"/nope\"}}\n! {text}\n");
    let told = |last: &str| {
        let third = failed(&format!("{last}{}", nag("the third time")));
        short(&format!("user: go\n{NOPE}{NOPE}{third}{NOPE}"))
    };
    assert_eq!(told("ENOENT: /nope"), one(Detector::SameCall, 4, false));
    assert_eq!(told("EACCES: /nope"), []);
    // What is not at the end may be the tool's.
    assert_eq!(told(&format!("ENOENT: /nope{} and more", nag("x"))), []);

    let polled = |words: &str| format!("> read_output {{}}\n= exited (code 0){words}\n");
    let polls = ["", &nag("again"), "", &nag("and again"), ""].map(polled);
    let found = short(&format!("user: go\n{}", polls.concat()));
    assert_eq!(found, one(Detector::NoProgress, 5, true));
}

#[test]
fn d01_only_what_is_new_ends_a_row_of_failures() {
    for (between, goes_on) in [
        ("> list {\"path\":\"/\"}\n= a b c\n", false),
        ("> list {\"path\":\"/\"}\n! EACCES: /\n", true),
        ("> read_file {\"path\":\"/nope\"}\n! EACCES: /nope\n", false),
        ("> read_file {\"path\":\"/nope\"}\n= text\n", false),
    ] {
        let script = format!("user: go\n{NOPE}{NOPE}{between}{NOPE}");
        assert_eq!(!warned(&script).is_empty(), goes_on, "{between}");
    }
    // The same success for the second time is nothing new.
    let list = "> list {\"path\":\"/\"}\n= a b c\n";
    assert_eq!(
        short(&format!("user: go\n{list}{NOPE}{list}{NOPE}{list}{NOPE}"))[0].0,
        "same_call"
    );
}

#[test]
fn d03_polling_whose_output_changes_is_fine_until_it_has_ended() {
    let poll = "repeat 12\n> read_output {\"handle\":\"h1\"}\n= {k}0%\nend\n> read_output {\"handle\":\"h1\"}\n= exited (code 0)\n";
    let more = "> read_output {\"handle\":\"h1\"}\n= exited (code 0)\n";
    assert_eq!(warned(&format!("user: go\n{poll}{}", more.repeat(3))), []);
    assert_eq!(
        short(&format!("user: go\n{poll}{}", more.repeat(4))),
        one(Detector::NoProgress, 5, true)
    );
    let slept =
        "repeat 12\n> read_output {\"handle\":\"h1\"}\n= {k}0%\n> sleep {\"seconds\":5}\n= \nend";
    assert_eq!(warned(&format!("user: go\n{slept}")), []);
}

#[test]
fn d05_cycles_are_told_with_their_members_and_period() {
    let pair = "> search {\"q\":\"k\"}\n= 0 hits\n> get {\"id\":7}\n= not found\n";
    assert_eq!(warned(&format!("user: go\n{}", pair.repeat(2))), []);
    let found = warned(&format!("user: go\n{}", pair.repeat(3)));
    let told = (
        found[0].detector.as_str(),
        &found[0].tools[..],
        found[0].count,
        found[0].period,
        found[0].turns,
    );
    assert_eq!(
        told,
        (
            "cycle",
            &["search".to_owned(), "get".to_owned()][..],
            3,
            2,
            6
        )
    );
    assert!(found[0].fresh && found.len() == 1);
    let half = format!(
        "user: go\n{}> search {{\"q\":\"k\"}}\n= 0 hits\n",
        pair.repeat(3)
    );
    assert_eq!(short(&half), one(Detector::Cycle, 3, false));
    assert_eq!(warned(&half)[0].tools, found[0].tools);

    let three = "> read {\"p\":1}\n= x\n> edit {\"p\":1}\n! no match\n> test\n= 3 failed\n";
    assert_eq!(warned(&format!("user: go\n{}", three.repeat(2))), []);
    let found = warned(&format!("user: go\n{}", three.repeat(3)));
    assert_eq!(
        (found[0].detector.as_str(), found[0].count, found[0].period),
        ("cycle", 3, 3)
    );
    assert_eq!(found[0].tools, ["read", "edit", "test"]);
    let changing = "repeat 8\n> read {\"p\":1}\n= x\n> edit {\"p\":1,\"k\":{k}}\n= done\n> test\n= {k} failed\nend";
    assert_eq!(warned(&format!("user: go\n{changing}")), []);
}

#[test]
fn d06_the_same_error_with_other_arguments() {
    let round = "> edit {\"file\":\"a.rs\",\"old\":\"variant {k}\"}\n! search block not found in a.rs\n> read {\"file\":\"a.rs\"}\n= fn main() {}\n";
    let rounds = |times: u32| format!("user: go\nrepeat {times}\n{round}end\n");
    let edit = "> edit {\"file\":\"a.rs\",\"old\":\"x\"}\n! search block not found in a.rs\n";
    assert_eq!(warned(&format!("{}{edit}", rounds(3))), []);
    let found = warned(&format!("{}{edit}", rounds(4)));
    assert_eq!(
        (found[0].detector.as_str(), found[0].count, found[0].turns),
        ("same_error", 5, 9)
    );
    // A success on the same file ends it; on another one it does not.
    let done = |file: &str| format!("> edit {{\"file\":\"{file}\",\"old\":\"z\"}}\n= done\n");
    assert_eq!(warned(&format!("{}{}{edit}", rounds(4), done("a.rs"))), []);
    assert_eq!(
        short(&format!("{}{}{edit}", rounds(4), done("b.rs"))),
        one(Detector::SameError, 5, true)
    );
}

#[test]
fn d06_other_tools_and_other_errors_are_counted_apart() {
    for script in [
        "repeat 5\n> edit{k} {\"file\":\"a\",\"n\":{k}}\n! not found\nend",
        "repeat 5\n> edit {\"file\":\"a\",\"n\":{k}}\n! {a|b|c|d|e} is missing\nend",
        // Numbers tell errors apart here.
        "repeat 5\n> get {\"url\":\"a\",\"n\":{k}}\n! row {k} of 9 is bad\nend",
        // They say nothing.
        "repeat 5\n> Bash {\"command\":\"grep {k} x\"}\n! Exit code 1\nend",
        // Asked for at once.
        "> r {\"path\":\"1\"}\n> r {\"path\":\"2\"}\n> r {\"path\":\"3\"}\n> r {\"path\":\"4\"}\n> r {\"path\":\"5\"}\n! no such file\n! no such file\n! no such file\n! no such file\n! no such file",
    ] {
        assert_eq!(warned(&format!("user: go\n{script}")), [], "{script}");
    }
    let script = "repeat 5\n> get {\"n\":{k}}\n! no such host\nend";
    assert_eq!(
        short(&format!("user: go\n{script}")),
        one(Detector::SameError, 5, true)
    );
}

#[test]
fn d11_a_failing_service_behind_a_tool_is_a_failing_tool() {
    let call = "> fetch {\"url\":\"https://api.example/x\"}\n= HTTP 503 from api.example\n";
    assert_eq!(
        short(&format!("user: go\n{}", call.repeat(3))),
        one(Detector::SameCall, 3, true)
    );
    let other = call.replace("503", "404");
    assert_eq!(warned(&format!("user: go\n{call}{call}{other}")), []);
}

#[test]
fn what_is_volatile_in_an_error_does_not_hide_a_loop() {
    let call = "repeat 3\n> run {\"c\":\"x\"}\n! [2026-11-30T10:0{k}:00Z] job 7c1f9a0{k}ff failed in /tmp/tmp.{aX|bY|cZ}/x after 0.{k}3s, pid 12{k}4, 1{k} tries\nend";
    assert_eq!(
        short(&format!("user: go\n{call}")),
        one(Detector::SameCall, 3, true)
    );
}

#[test]
fn a_loop_is_told_only_while_the_newest_step_belongs_to_it() {
    let base = format!("user: go\n{}", NOPE.repeat(3));
    assert_eq!(warned(&format!("{base}> list\n! EACCES: /\n")), []);
    assert_eq!(warned(&format!("{base}> list\n= a\n")), []);
    assert_eq!(
        warned(&format!(
            "{base}said: I give up.\nuser: <system-reminder>x</system-reminder>\n"
        )),
        []
    );
    assert_eq!(warned(&format!("{base}sys: note\n")).len(), 1);
    // Words put into the mouth of the next answer are not that answer.
    assert_eq!(warned(&format!("{base}said: {{\n")).len(), 1);
}

#[test]
fn a_ladder_tells_when_its_next_step_is_reached() {
    let policy = Policy {
        same_call: Rule {
            threshold: 2,
            ladder: vec![Action::Warn, Action::Hint, Action::Block],
        },
        ..Policy::default()
    };
    let told = |times| {
        let found = seen(&format!("user: go\n{}", NOPE.repeat(times)), &policy).findings;
        found
            .first()
            .map(|found| (found.action.clone(), found.fresh))
    };
    for (times, expected) in [
        (1, None),
        (2, Some(("warn", true))),
        (3, Some(("warn", false))),
        (4, Some(("hint", true))),
        (5, Some(("hint", false))),
        (6, Some(("block", true))),
        (9, Some(("block", false))),
    ] {
        assert_eq!(
            told(times),
            expected.map(|(action, fresh)| (action.into(), fresh)),
            "{times}"
        );
    }
}

#[test]
fn the_strictest_comes_first_and_one_call_is_told_once() {
    let mut policy = Policy::default();
    let five = format!("user: go\n{}", NOPE.repeat(5));
    let words = |policy: &Policy| -> Vec<String> {
        let found = seen(&five, policy).findings;
        found
            .into_iter()
            .map(|found| found.detector + "=" + &found.action)
            .collect()
    };
    assert_eq!(words(&policy), ["same_call=warn"]);
    policy.same_error.ladder = vec![Action::Block];
    assert_eq!(words(&policy), ["same_error=block", "same_call=warn"]);
}

#[test]
fn equal_calls_of_one_answer_count_once() {
    let twice = "> r {\"path\":\"x\"}\n> r { \"path\" : \"x\" }\n! ENOENT\n! ENOENT\n";
    assert_eq!(warned(&format!("user: go\n{}", twice.repeat(2))), []);
    assert_eq!(
        short(&format!("user: go\n{}", twice.repeat(3))),
        one(Detector::SameCall, 3, true)
    );
}

#[test]
fn hints_stand_at_every_message_from_the_threshold_on() {
    let policy = Policy::of(Action::Hint);
    let script = format!(
        "user: go\n{}said: hm\nuser: well?\n{}",
        NOPE.repeat(4),
        NOPE.repeat(3)
    );
    let found = seen(&script, &policy);
    let at: Vec<u32> = found.hints.iter().map(|hint| hint.message).collect();
    // Messages: the user's, four pairs, the answer, the user's, three pairs.
    assert_eq!(at, [6, 8, 16]);
    assert!(
        found.hints[0].text.contains("failed 3 times"),
        "{:?}",
        found.hints
    );
    assert!(found.hints[1].text.contains("failed 4 times"));
    assert_eq!(found.hints[0].text, found.hints[2].text);
    assert_eq!(
        seen(&script, &policy.without_hints()).hints,
        Vec::<Hint>::new()
    );
    assert_eq!(seen(&script, &policy.without_hints()).findings[0].count, 3);
}

#[test]
fn policies_with_and_without_hints_find_the_same() {
    let hints = Policy::of(Action::Hint);
    for script in [
        format!("user: a\n{NOPE}{NOPE}user: b\n{}", NOPE.repeat(3)),
        format!("user: a\n{NOPE}{NOPE}+ odd\n{}+ odd\n", NOPE.repeat(3)),
        format!("user: a\n{NOPE}+ odd\n{NOPE}{NOPE}{NOPE}+ odd\n"),
        "user: a\n> x\nuser: b\n= late\n> x\n= late\n".into(),
    ] {
        let strip = |seen: Seen| -> Vec<_> {
            seen.findings
                .into_iter()
                .map(|found| (found.detector, found.count, found.turns, found.fresh))
                .collect()
        };
        assert_eq!(
            strip(seen(&script, &hints)),
            strip(seen(&script, &Policy::default())),
            "{script}"
        );
    }
}

#[test]
fn ids_that_stand_for_several_calls_are_paired_with_the_nearest() {
    let step = |path: &str, text: &str| {
        format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"c0","name":"r","input":{{"path":"{path}"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"c0","is_error":true,"content":"{text}"}}]}}"#
        )
    };
    let steps = vec![step("a", "ENOENT"); 3].join(",");
    let body = format!(r#"{{"messages":[{{"role":"user","content":"go"}},{steps}]}}"#);
    let found = look(
        body.as_bytes(),
        &view(body.as_bytes()).unwrap(),
        &Policy::default(),
        &Memo::default(),
        None,
    );
    assert_eq!(found.findings[0].count, 3);
}
