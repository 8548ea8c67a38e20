//! What usage corrects.

use super::*;

/// A tool, a system prompt and three texts with breakpoints behind the system prompt and at the
/// end, written by turn 1 and settled: 500 tokens.
fn settled() -> Shadow {
    let mut shadow = shadow();
    shadow.announce(1, &Prompt::of(3).m5(1).m5(4));
    let outcome = shadow.begin_and_settle(1, &usage(0, 500, 0, 7));
    let written = outcome.written.unwrap();
    assert_eq!(
        (written.at, written.tokens, written.turn),
        (4, Some(500), turn(1))
    );
    assert_eq!(
        (outcome.read, outcome.gone, outcome.twice),
        (None, None, None)
    );
    shadow
}

#[test]
fn what_was_read_and_written_are_the_tokens_at_the_last_breakpoint() {
    let mut shadow = settled();
    let prompt = Prompt::of(3);
    assert_eq!(shadow.tokens(&prompt, 4), Some(500));
    assert_eq!(shadow.tokens(&prompt, 1), None, "nobody has told");
    let next = Prompt::of(6).m5(1).m5(7).later(MINUTE);
    assert_eq!(shadow.announce(2, &next).read.unwrap().tokens, Some(500));
    let outcome = shadow.begin_and_settle(2, &usage(500, 310, 0, 0));
    let read = outcome.read.unwrap();
    assert_eq!((read.at, read.tokens, read.turn), (4, Some(500), turn(1)));
    assert_eq!(read.expires_ms, START + 6 * MINUTE);
    assert_eq!(outcome.written.unwrap().tokens, Some(810));
    assert_eq!(shadow.tokens(&next, 7), Some(810));
}

#[test]
fn an_entry_that_is_read_gets_its_tokens() {
    let mut shadow = settled();
    let branch = Prompt::of(1).other(1).m5(1).last();
    let expected = shadow.announce(2, &branch).read.unwrap();
    assert_eq!((expected.at, expected.tokens), (1, None));
    let outcome = shadow.begin_and_settle(2, &usage(230, 190, 0, 0));
    let read = outcome.read.unwrap();
    assert_eq!((read.at, read.tokens, read.turn), (1, Some(230), turn(1)));
    assert_eq!(shadow.tokens(&branch, 1), Some(230));
    // Now it is exact, and stays so though the sizes would say something else.
    shadow.announce(3, &branch.clone().later(1));
    let outcome = shadow.begin_and_settle(3, &usage(420, 0, 0, 0));
    assert_eq!(outcome.read.unwrap().at, 3);
}

#[test]
fn reading_nothing_removes_what_the_breakpoints_saw_and_nothing_else() {
    let mut shadow = settled();
    let far = Prompt::of(3).texts(30).m5(1).last();
    let expected = shadow.announce(2, &far);
    assert_eq!(
        (expected.read.unwrap().at, expected.alive.unwrap().at),
        (1, 4)
    );
    let outcome = shadow.begin_and_settle(2, &usage(0, 0, 0, 3500));
    assert_eq!(
        (outcome.removed, outcome.read, outcome.written),
        (1, None, None)
    );
    let gone = outcome.gone.unwrap();
    assert_eq!((gone.at, gone.turn), (1, turn(1)));
    assert_eq!(shadow.alive(&far), Some(4), "nothing was said about it");
    assert_eq!(shadow.reads(&Prompt::of(3).m5(1)), None);
    assert_eq!(shadow.len(), 1);
}

#[test]
fn reading_less_removes_the_longer_entries() {
    let mut shadow = settled();
    shadow.announce(2, &Prompt::of(1).other(1).m5(1).last());
    shadow.begin_and_settle(2, &usage(200, 200, 0, 0));
    let next = Prompt::of(5).m5(1).last().later(MINUTE);
    assert_eq!(shadow.announce(3, &next).read.unwrap().at, 4);
    let outcome = shadow.begin_and_settle(3, &usage(200, 500, 0, 0));
    assert_eq!(outcome.read.unwrap().at, 1);
    let gone = outcome.gone.unwrap();
    assert_eq!((gone.at, gone.tokens, outcome.removed), (4, Some(500), 1));
    assert_eq!(shadow.reads(&Prompt::of(3).last()), Some(1));
    assert_eq!(shadow.reads(&next), Some(6));
    assert_eq!(shadow.tokens(&next, 6), Some(700));
}

#[test]
fn what_is_gone_and_written_again_belongs_to_the_one_who_wrote_it() {
    let mut shadow = settled();
    let again = Prompt::of(3).m5(1).m5(4).later(MINUTE);
    shadow.announce(2, &again);
    let outcome = shadow.begin_and_settle(2, &usage(0, 500, 0, 0));
    assert_eq!((outcome.removed, outcome.gone.unwrap().at), (2, 4));
    assert_eq!(outcome.twice, None, "one after the other");
    let read = shadow.ask(&again).read.unwrap();
    assert_eq!((read.turn, read.tokens), (turn(2), Some(500)));
    assert_eq!(read.expires_ms, START + 6 * MINUTE);
}

#[test]
fn what_another_turn_has_written_anew_is_not_removed_by_a_late_answer() {
    let mut shadow = settled();
    shadow.announce(2, &Prompt::of(3).other(2).last());
    shadow.announce(3, &Prompt::of(3).last());
    shadow.begin_and_settle(3, &usage(0, 500, 0, 0));
    let outcome = shadow.begin_and_settle(2, &usage(0, 600, 0, 0));
    assert_eq!(outcome.gone.unwrap().at, 4, "at its start it was gone");
    let read = shadow.ask(&Prompt::of(3).last()).read.unwrap();
    assert_eq!(read.turn, turn(3));
}

#[test]
fn a_read_of_something_unknown_removes_only_what_is_too_long() {
    let mut shadow = settled();
    let next = Prompt::of(5).m5(1).last();
    shadow.announce(2, &next);
    // Neither of the two: 420 is no estimate of 200, and less than 500.
    let outcome = shadow.begin_and_settle(2, &usage(420, 280, 0, 0));
    assert_eq!((outcome.read, outcome.removed), (None, 1));
    assert_eq!(outcome.gone.unwrap().at, 4);
    assert_eq!(shadow.reads(&Prompt::of(3).m5(4)), Some(1));
    assert_eq!(shadow.tokens(&next, 6), Some(700));
}

#[test]
fn nothing_written_takes_back_what_was_assumed() {
    let mut shadow = shadow();
    shadow.announce(1, &Prompt::of(3).m5(1).m5(4));
    shadow.began(turn(1));
    assert_eq!(shadow.len(), 2);
    let outcome = shadow.settled(turn(1), &usage(0, 0, 0, 500));
    assert_eq!(outcome, Outcome::default());
    assert!(shadow.is_empty());
    shadow.announce(2, &Prompt::of(3).last());
    let no_read = Usage {
        read: None,
        ..usage(0, 0, 0, 500)
    };
    shadow.begin_and_settle(2, &no_read);
    assert!(shadow.is_empty());
}

#[test]
fn something_read_and_nothing_written_was_there_up_to_the_last_breakpoint() {
    let mut shadow = settled();
    let next = Prompt::of(5).m5(1).last();
    assert_eq!(shadow.announce(2, &next).read.unwrap().at, 4);
    // Somebody whom we do not see has written it.
    let outcome = shadow.begin_and_settle(2, &usage(705, 0, 0, 3));
    assert_eq!((outcome.read, outcome.removed), (None, 0));
    assert_eq!(shadow.reads(&next), Some(6));
    assert_eq!(shadow.tokens(&next, 6), Some(705));
    assert_eq!(shadow.reads(&Prompt::of(3).last()), Some(4));
}

#[test]
fn usage_shows_what_was_long_enough_after_all() {
    let mut shadow = shadow();
    let mut prompt = Prompt::of(8).m5(1).m5(9);
    prompt.min_tokens = Some(1024);
    shadow.announce(1, &prompt);
    shadow.began(turn(1));
    assert!(shadow.is_empty(), "1000 tokens by the estimate");
    let outcome = shadow.settled(turn(1), &usage(0, 1100, 0, 0));
    assert_eq!(outcome.written.unwrap().tokens, Some(1100));
    assert_eq!((shadow.reads(&prompt), shadow.len()), (Some(9), 1));
    // And the other way round: with the ratio of its usage the first prefix is too short.
    let mut prompt = Prompt::of(18).other(1).m5(3).last();
    (prompt.min_tokens, prompt.ratio) = (Some(1024), 1000);
    let mut shadow = self::shadow();
    shadow.announce(1, &prompt);
    shadow.began(turn(1));
    assert_eq!(shadow.len(), 2);
    shadow.settled(turn(1), &usage(0, 2100, 0, 0));
    assert_eq!((shadow.reads(&prompt), shadow.len()), (Some(20), 1));
}

#[test]
fn an_entry_that_was_taken_for_expired_and_is_read_lives() {
    let mut shadow = settled();
    let next = Prompt::of(5).last().later(7 * MINUTE);
    let expected = shadow.announce(2, &next);
    assert_eq!((expected.read, expected.expired.unwrap().at), (None, 4));
    let outcome = shadow.begin_and_settle(2, &usage(500, 200, 0, 0));
    let read = outcome.read.unwrap();
    assert_eq!((read.at, read.turn), (4, turn(1)));
    assert_eq!(read.expires_ms, START + 12 * MINUTE);
}

#[test]
fn lifetimes_follow_the_split_of_the_usage() {
    let lives = |marks: [Option<Ttl>; 3], write_5m, write_1h, inferred| {
        let mut shadow = shadow();
        let [a, b, c] = marks;
        let prompt = Prompt::of(3).marked(1, a).marked(2, b).marked(4, c);
        shadow.announce(1, &prompt);
        let usage = Usage {
            split_inferred: inferred,
            ..usage(0, write_5m, write_1h, 0)
        };
        shadow.begin_and_settle(1, &usage);
        [1, 2, 4].map(|at| {
            let known = shadow.ask(&Prompt::of(3).m5(at)).read.unwrap();
            assert_eq!(known.at, at);
            ((known.expires_ms - START) / MINUTE, known.tokens)
        })
    };
    let (m5, h1) = (Some(Ttl::M5), Some(Ttl::H1));
    let whole = Some(500);
    let asked = [(60, None), (60, Some(300)), (5, whole)];
    assert_eq!(
        lives([h1, h1, m5], 200, 300, false),
        asked,
        "and 300 is where the hour ends"
    );
    let inferred = [(60, None), (60, None), (5, whole)];
    assert_eq!(lives([h1, h1, m5], 200, 300, true), inferred);
    let short = [(5, None), (5, None), (5, whole)];
    assert_eq!(lives([h1, h1, h1], 500, 0, false), short);
    let long = [(60, None), (60, None), (60, whole)];
    assert_eq!(lives([None, None, None], 0, 500, false), long);
    let unknown = [(60, None), (60, None), (5, whole)];
    assert_eq!(lives([None, None, None], 200, 300, false), unknown);
    let between = [(60, None), (5, None), (5, whole)];
    assert_eq!(lives([h1, None, m5], 200, 300, false), between);
}

#[test]
fn the_same_prefix_written_at_the_same_time_is_told() {
    let mut shadow = shadow();
    let one = Prompt::of(3).m5(1).last();
    let two = Prompt::of(2).other(1).m5(1).last();
    shadow.announce(1, &one);
    shadow.announce(2, &one);
    shadow.announce(3, &two);
    assert_eq!(shadow.begin_and_settle(1, &usage(0, 500, 0, 0)).twice, None);
    let twice = shadow
        .begin_and_settle(2, &usage(0, 500, 0, 0))
        .twice
        .unwrap();
    assert_eq!(
        (twice.at, twice.turn, twice.tokens),
        (4, turn(1), Some(500))
    );
    let twice = shadow
        .begin_and_settle(3, &usage(0, 500, 0, 0))
        .twice
        .unwrap();
    assert_eq!((twice.at, twice.turn, twice.tokens), (1, turn(1), None));
    assert_eq!(shadow.ask(&one).read.unwrap().turn, turn(1));
    // One who read instead has written nothing twice.
    shadow.announce(4, &one);
    let outcome = shadow.begin_and_settle(4, &usage(500, 0, 0, 0));
    assert_eq!((outcome.twice, outcome.read.unwrap().at), (None, 4));
}

#[test]
fn unknown_usage_changes_nothing() {
    let mut shadow = settled();
    let next = Prompt::of(5).m5(1).last();
    let before = shadow.announce(2, &next);
    shadow.began(turn(2));
    let written = shadow.len();
    assert_eq!(
        shadow.settled(turn(2), &Usage::default()),
        Outcome::default()
    );
    assert_eq!(shadow.len(), written);
    assert_eq!(shadow.reads(&next), Some(6));
    assert_eq!(
        shadow.reads(&Prompt::of(3).last()),
        before.read.map(|known| known.at)
    );
    let only_output = Usage {
        output: Some(5),
        write_5m: Some(200),
        write_1h: Some(0),
        ..Usage::default()
    };
    shadow.announce(3, &Prompt::of(5).other(1).last());
    assert_eq!(shadow.begin_and_settle(3, &only_output), Outcome::default());
    assert_eq!(
        shadow.settled(turn(99), &usage(1, 1, 1, 1)),
        Outcome::default()
    );
}

#[test]
fn an_answer_that_settles_without_having_begun_has_begun() {
    let mut shadow = shadow();
    let prompt = Prompt::of(3).last();
    shadow.announce(1, &prompt);
    shadow.settled(turn(1), &usage(0, 500, 0, 0));
    assert_eq!(shadow.reads(&prompt), Some(4));
    assert_eq!(shadow.ask(&prompt).pending, None);
}

#[test]
fn the_provider_s_own_breakpoints_are_not_taken_for_ours() {
    let mut shadow = settled();
    // Behind our last breakpoint, the provider sets one of its own.
    let next = Prompt::of(5).m5(6).kinds(BlockKind::ServerTool, 2);
    shadow.announce(2, &next);
    shadow.begin_and_settle(2, &usage(500, 400, 0, 0));
    assert_eq!(shadow.reads(&next), Some(6));
    assert_eq!(shadow.tokens(&next, 6), None);
    // Later it is read; nobody knows where it ended.
    let later = next.clone().texts(1).last();
    shadow.announce(3, &later);
    let outcome = shadow.begin_and_settle(3, &usage(900, 100, 0, 0));
    assert_eq!((outcome.read, outcome.removed), (None, 0));
    assert_eq!(shadow.tokens(&later, 6), None);
    assert_eq!(shadow.tokens(&later, 9), Some(1000));
}

#[test]
fn entries_that_were_not_read_do_not_live_longer_for_it() {
    let mut shadow = settled();
    shadow.write(5, &Prompt::of(3).texts(30).m5(20));
    // The entry at 4 is out of sight; it would have been refreshed by the read at 20.
    let next = Prompt::of(3).texts(30).m5(20).later(MINUTE);
    assert_eq!(shadow.announce(6, &next).read.unwrap().at, 20);
    let outcome = shadow.begin_and_settle(6, &usage(0, 2100, 0, 0));
    assert_eq!(outcome.gone.unwrap().at, 20);
    let known = shadow.ask(&Prompt::of(3).m5(4).later(MINUTE)).alive;
    assert!(known.is_none_or(|known| known.expires_ms == START + 5 * MINUTE));
}

#[test]
fn what_has_happened_to_an_entry_before_its_writer_is_settled_is_not_undone() {
    let prompt = || Prompt::of(3).m5(4);
    let end = |shadow: &Shadow| shadow.ask(&prompt()).read.unwrap().expires_ms - START;
    // Somebody reads it.
    let mut shadow = shadow();
    shadow.announce(1, &prompt());
    shadow.began(turn(1));
    shadow.announce(2, &Prompt::of(5).last().later(MINUTE));
    shadow.settled(turn(1), &usage(0, 500, 0, 0));
    assert_eq!(end(&shadow), 6 * MINUTE);
    // The same, and then the lifetime turns out to be another one.
    let mut shadow = self::shadow();
    shadow.announce(1, &prompt());
    shadow.began(turn(1));
    shadow.announce(2, &Prompt::of(5).last().later(MINUTE));
    shadow.settled(turn(1), &usage(0, 0, 500, 0));
    assert_eq!(end(&shadow), 61 * MINUTE);
    // A sibling writes it for an hour.
    let mut shadow = self::shadow();
    shadow.announce(1, &prompt());
    shadow.announce(2, &Prompt::of(3).mark(4, Ttl::H1));
    shadow.began(turn(1));
    shadow.began(turn(2));
    shadow.settled(turn(1), &usage(0, 500, 0, 0));
    assert_eq!(end(&shadow), 60 * MINUTE);
}
