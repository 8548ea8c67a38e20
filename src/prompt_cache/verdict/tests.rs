use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::prompt_cache::shadow::Known;
use crate::prompt_cache::trail::{Mark, Setting, Step};
use crate::provider::view::{Automatic, BlockKind, Role};

/// Prices of CASES' test-sonnet in pico-USD per token: 3 / 15 / 0.30 / 3.75 / 6 USD per million.
fn price(usage: &Usage) -> Option<u64> {
    Some(
        usage.uncached? * 3_000_000
            + usage.read? * 300_000
            + usage.write_5m? * 3_750_000
            + usage.write_1h? * 6_000_000
            + usage.output? * 15_000_000,
    )
}

fn usage(uncached: u64, read: u64, write_5m: u64, write_1h: u64) -> Usage {
    Usage {
        uncached: Some(uncached),
        read: Some(read),
        write_5m: Some(write_5m),
        write_1h: Some(write_1h),
        output: Some(5),
        ..Usage::default()
    }
}

/// Two head blocks and `messages` blocks behind them, a breakpoint on the last.
fn trail(messages: u32) -> Trail {
    let step = |index: u32| Step {
        hash: u64::from(index),
        len: 4000,
        section: match index {
            0 => Section::Tools,
            1 => Section::System,
            _ => Section::Messages,
        },
        kind: BlockKind::Text,
        role: (index > 1).then_some(Role::User),
        counts: true,
    };
    Trail {
        steps: (0..messages + 2).map(step).collect(),
        marks: vec![Mark {
            at: messages + 1,
            ttl: Some(Ttl::M5),
            ours: false,
        }],
        settings: Vec::new(),
        model: "m".into(),
        betas: 0,
        fast_beta: false,
        head: 2,
        messages,
    }
}

fn past(trail: Trail, usage: Usage) -> Past {
    Past {
        trail: Arc::new(trail),
        turn_id: Uuid::nil(),
        started_ms: 0,
        ended_ms: 1_000,
        usage,
        response_id: None,
        model_served: Some("m-1".into()),
        stop_reason: None,
        client_order: None,
    }
}

fn known(at: u32, tokens: Option<u64>) -> Option<Known> {
    Some(Known {
        at,
        tokens,
        turn: Uuid::nil(),
        expires_ms: 1,
    })
}

fn change(section: Section, before: u32, what: What) -> Change {
    Change {
        section,
        index: before,
        before,
        path: "messages[2].content[1]".to_owned(),
        offset: Some(7),
        what,
        detail: "what happened".to_owned(),
        excerpt: None,
    }
}

/// A turn after one that left 121,000 tokens, ten seconds later.
struct Turn {
    usage: Usage,
    now: Trail,
    past: Option<Past>,
    change: Option<Change>,
    expected: Expected,
    started_ms: i64,
    min_tokens: Option<u32>,
    automatic: Option<Automatic>,
    beside: bool,
}

impl Turn {
    fn after_121k(usage: Usage) -> Self {
        let before = past(trail(4), super::tests::usage(50, 120_000, 1_000, 0));
        Self {
            now: trail(6),
            past: Some(before),
            ..Self::alone(usage)
        }
    }

    fn alone(usage: Usage) -> Self {
        Self {
            usage,
            now: trail(4),
            past: None,
            change: None,
            expected: Expected::default(),
            started_ms: 10_000,
            min_tokens: Some(1024),
            automatic: None,
            beside: false,
        }
    }

    fn judged(&self) -> Verdict {
        judge(&Facts {
            automatic: self.automatic,
            usage: &self.usage,
            now: &self.now,
            started_ms: self.started_ms,
            served: Some("m-1"),
            past: self.past.as_ref(),
            change: self.change.as_ref(),
            expected: &self.expected,
            min_tokens: self.min_tokens,
            beside: self.beside,
            price: &price,
        })
        .unwrap()
    }

    fn reason(&self) -> (Status, Option<Reason>, Option<Whose>) {
        let verdict = self.judged();
        (verdict.status, verdict.reason, verdict.whose)
    }
}

#[test]
fn a11_growth_is_no_break_and_an_edit_costs_what_was_readable() {
    let grown = Turn::after_121k(usage(50, 121_000, 500, 0)).judged();
    assert_eq!(grown.status, Status::Extended);
    assert_eq!((grown.lost_tokens, grown.lost_pico), (Some(0), Some(0)));
    assert_eq!(grown.reason, None);

    let mut turn = Turn::after_121k(usage(60, 18_000, 103_500, 0));
    turn.change = Some(change(Section::Messages, 3, What::ImageReplaced));
    let verdict = turn.judged();
    assert_eq!(verdict.status, Status::Partial);
    assert_eq!(verdict.reason, Some(Reason::Messages));
    assert_eq!(
        verdict.first_changed.as_deref(),
        Some("messages[2].content[1]")
    );
    assert_eq!(
        (verdict.offset, verdict.what),
        (Some(7), Some(What::ImageReplaced))
    );
    assert_eq!(verdict.lost_tokens, Some(103_000));
    assert_eq!(verdict.lost_pico, Some(355_350_000_000), "0.35535 USD");
    assert_eq!(verdict.whose, Some(Whose::Client));
}

#[test]
fn lost_money_goes_by_how_the_gap_was_billed() {
    // One-hour writes come first, then five-minute writes, then plain input.
    let verdict = Turn::after_121k(usage(100_000, 0, 15_000, 10_000)).judged();
    let expected = 10_000 * 5_700_000 + 15_000 * 3_450_000 + 96_000 * 2_700_000;
    assert_eq!(verdict.lost_tokens, Some(121_000));
    assert_eq!(verdict.lost_pico, Some(expected));
}

#[test]
fn what_is_not_sent_any_more_is_not_lost() {
    let mut turn = Turn::after_121k(usage(100, 18_000, 2_000, 0));
    turn.change = Some(change(Section::Messages, 2, What::Compaction));
    assert_eq!(turn.judged().lost_tokens, Some(2_100));
    turn.usage = usage(0, 20_000, 0, 0);
    assert_eq!(turn.judged().status, Status::Hit);
    // Taken back to an earlier point: all that still stands was read.
    turn.usage = usage(0, 90_000, 400, 0);
    turn.change = Some(change(Section::Messages, 4, What::Rewound));
    turn.expected.alive = known(4, Some(90_000));
    assert_eq!(turn.judged().status, Status::Extended);
}

#[test]
fn time_and_models_come_before_content() {
    let mut turn = Turn::after_121k(usage(50, 0, 122_000, 0));
    turn.change = Some(change(Section::System, 1, What::Clock));
    turn.started_ms = 300_000;
    let verdict = turn.judged();
    assert_eq!(verdict.reason, Some(Reason::Expired));
    assert_eq!(verdict.whose, Some(Whose::Time));
    assert_eq!(
        (verdict.first_changed, verdict.offset, verdict.what),
        (None, None, None)
    );

    // Somebody else has renewed the entry meanwhile: then the provider gave it up.
    turn.change = None;
    turn.expected.alive = known(5, Some(121_000));
    turn.expected.read = turn.expected.alive;
    assert_eq!(
        turn.reason(),
        (Status::Miss, Some(Reason::Evicted), Some(Whose::Provider))
    );

    turn.started_ms = 10_000;
    turn.change = Some(change(Section::System, 1, What::Clock));
    turn.now.model = "n".into();
    assert_eq!(turn.reason().1, Some(Reason::Model));
    assert_eq!(turn.judged().first_changed, None);
}

/// C15: the same name was asked for, and another model answered.
#[test]
fn c15_a_model_that_only_the_provider_changed() {
    let mut turn = Turn::after_121k(usage(121_500, 0, 0, 0));
    turn.past.as_mut().unwrap().model_served = Some("m-0".into());
    assert_eq!(
        turn.reason(),
        (Status::Miss, Some(Reason::Model), Some(Whose::Provider))
    );
}

#[test]
fn levels_decide_between_a_setting_and_a_change() {
    let mut turn = Turn::after_121k(usage(50, 18_000, 103_000, 0));
    turn.now.settings.push(Setting {
        name: "tool_choice",
        from: Section::Messages,
        value: 1,
    });
    let verdict = turn.judged();
    assert_eq!(verdict.reason, Some(Reason::Parameter));
    assert_eq!(verdict.first_changed.as_deref(), Some("tool_choice"));
    assert_eq!(verdict.detail, "tool_choice was added");
    turn.change = Some(change(Section::Messages, 3, What::Text));
    assert_eq!(turn.reason().1, Some(Reason::Parameter));
    turn.change = Some(change(Section::System, 1, What::Text));
    assert_eq!(turn.reason().1, Some(Reason::System));
    turn.change = Some(change(Section::Tools, 0, What::ToolAdded));
    assert_eq!(turn.reason().1, Some(Reason::Tools));
    turn.change = None;
    turn.now.settings[0].name = "speed";
    assert_eq!(turn.reason().1, Some(Reason::Speed));
    turn.now.settings.clear();
    turn.now.fast_beta = true;
    assert_eq!(turn.reason().1, Some(Reason::Beta));
}

#[test]
fn a_change_behind_the_last_breakpoint_has_cost_nothing() {
    let mut turn = Turn::after_121k(usage(50, 0, 121_500, 0));
    turn.change = Some(change(Section::Messages, 6, What::Text));
    turn.expected.alive = known(5, Some(121_000));
    assert_eq!(turn.reason().1, Some(Reason::Lookback));
    turn.expected.read = turn.expected.alive;
    assert_eq!(turn.reason().1, Some(Reason::Evicted));
    turn.expected.read = None;
    turn.expected.alive = None;
    turn.expected.pending = known(5, None);
    assert_eq!(turn.reason().1, Some(Reason::Concurrent));
    turn.now.marks.clear();
    assert_eq!(turn.reason().1, Some(Reason::NoMarker));
    assert_eq!(turn.reason().2, Some(Whose::Client));
    let mut before = turn.past.clone().unwrap();
    let mut marked = (*before.trail).clone();
    marked.marks[0].ours = true;
    before.trail = Arc::new(marked);
    turn.past = Some(before);
    assert_eq!(turn.reason().2, Some(Whose::Gateway));
}

#[test]
fn a15_what_is_too_short_is_no_miss() {
    let mut turn = Turn::alone(usage(3010, 0, 0, 0));
    turn.min_tokens = Some(4096);
    let verdict = turn.judged();
    assert_eq!(verdict.status, Status::NotCacheable);
    assert_eq!(verdict.reason, Some(Reason::BelowMinimum));
    assert!(verdict.detail.contains("below minimum of 4096"));
    assert_eq!(verdict.first_changed, None);
    turn.min_tokens = None;
    let verdict = turn.judged();
    assert_eq!(verdict.reason, Some(Reason::NotWritten));
    assert_eq!(verdict.detail, "no entry was written");
    turn.now.marks.clear();
    assert_eq!(turn.judged().reason, Some(Reason::NoMarker));

    turn = Turn::alone(usage(10, 0, 3_000, 0));
    assert_eq!(turn.judged().status, Status::Cold);
    turn.usage = usage(10, 3_000, 0, 0);
    assert_eq!(turn.judged().status, Status::Hit);
}

#[test]
fn a_breakpoint_on_a_short_prefix_of_a_long_prompt_is_below_the_minimum() {
    let mut turn = Turn::alone(usage(5_000, 0, 0, 0));
    turn.now.marks[0].at = 0;
    assert_eq!(turn.judged().reason, Some(Reason::BelowMinimum));
}

#[test]
fn a16_a_side_call_is_cold_and_says_so() {
    let mut turn = Turn::alone(usage(10, 0, 90_000, 0));
    turn.beside = true;
    let verdict = turn.judged();
    assert_eq!(verdict.status, Status::Cold);
    assert!(verdict.detail.contains("shares no prefix"));
    assert_eq!(verdict.lost_tokens, Some(0));
}

#[test]
fn first_turns_of_threads_that_share_a_prefix() {
    let mut turn = Turn::alone(usage(10, 0, 20_000, 0));
    turn.expected.pending = known(1, None);
    assert_eq!(
        turn.reason(),
        (Status::Cold, Some(Reason::Concurrent), Some(Whose::Time))
    );
    assert_eq!(turn.judged().lost_tokens, None, "never guessed");
    turn.expected.pending = None;
    turn.expected.alive = known(1, Some(15_000));
    turn.expected.read = turn.expected.alive;
    let verdict = turn.judged();
    assert_eq!(verdict.status, Status::Miss);
    assert_eq!(verdict.lost_tokens, Some(15_000));
    turn.expected.alive = known(1, None);
    assert_eq!(turn.judged().status, Status::Miss);
    assert_eq!(turn.judged().lost_tokens, None);
}

/// A cache that needs no breakpoints: less than a step is not told and so not lost, and where no
/// time is promised an unused entry may be gone after ten minutes.
#[test]
fn a_cache_without_breakpoints_is_judged_by_its_steps_and_its_time() {
    let after = |read: u64, seconds: i64| {
        let mut turn = Turn::after_121k(usage(0, read, 122_000 - read, 0));
        turn.automatic = Some(Automatic {
            at_breakpoints: false,
            step: 128,
            min_tokens: 1024,
            ttl: None,
        });
        if let Some(past) = &mut turn.past {
            let mut before = trail(4);
            before.marks.iter_mut().for_each(|mark| mark.ttl = None);
            past.trail = Arc::new(before);
        }
        turn.now.marks.iter_mut().for_each(|mark| mark.ttl = None);
        turn.started_ms = seconds * 1_000;
        turn
    };
    // 945 steps are 120,960 tokens.
    let told = after(120_960, 10).judged();
    assert_eq!((told.status, told.lost_tokens), (Status::Extended, Some(0)));
    let less = after(120_832, 10);
    let (status, reason, whose) = less.reason();
    assert_eq!((status, whose), (Status::Partial, Some(Whose::Provider)));
    assert_eq!(reason, Some(Reason::Evicted));
    assert_eq!(less.judged().lost_tokens, Some(128));
    for (seconds, reason) in [(599, Reason::Evicted), (600, Reason::Expired)] {
        assert_eq!(after(0, seconds).judged().reason, Some(reason), "{seconds}");
    }
    let detail = after(0, 600).judged().detail;
    assert!(detail.contains("5 to 10 minutes without use"), "{detail}");
}

#[test]
fn without_usage_there_is_no_verdict() {
    let turn = Turn::alone(Usage {
        read: None,
        ..usage(1, 0, 1, 0)
    });
    let facts = Facts {
        automatic: None,
        usage: &turn.usage,
        now: &turn.now,
        started_ms: 0,
        served: None,
        past: None,
        change: None,
        expected: &turn.expected,
        min_tokens: None,
        beside: false,
        price: &price,
    };
    assert_eq!(judge(&facts).unwrap_err(), "usage_unknown");
}

#[test]
fn a_model_without_a_price_leaves_the_tokens() {
    let turn = Turn::after_121k(usage(0, 0, 121_000, 0));
    let facts = Facts {
        automatic: None,
        usage: &turn.usage,
        now: &turn.now,
        started_ms: 10,
        served: None,
        past: turn.past.as_ref(),
        change: None,
        expected: &turn.expected,
        min_tokens: None,
        beside: false,
        price: &|_| None,
    };
    let verdict = judge(&facts).unwrap();
    assert_eq!(
        (verdict.lost_tokens, verdict.lost_pico),
        (Some(121_000), None)
    );
}

/// The provider holds the conversation: nothing is known of what was sent, so nobody is blamed.
#[test]
fn what_is_not_seen_is_not_judged() {
    let judged = |turn: &Turn| {
        judge(&Facts {
            automatic: None,
            usage: &turn.usage,
            now: &turn.now,
            started_ms: turn.started_ms,
            served: None,
            past: turn.past.as_ref(),
            change: None,
            expected: &turn.expected,
            min_tokens: turn.min_tokens,
            beside: false,
            price: &price,
        })
        .map(|verdict| verdict.status)
    };
    let held = |turn: &mut Turn| {
        turn.now.steps = Box::default();
        turn.now.marks.clear();
    };
    let mut turn = Turn::after_121k(usage(121_100, 0, 0, 0));
    held(&mut turn);
    assert_eq!(judged(&turn), Err("history_held"));
    turn.usage = usage(100, 121_000, 0, 0);
    assert_eq!(judged(&turn), Ok(Status::Hit), "what was read was read");
    // And the first whole request after it has nothing to be compared with.
    let mut turn = Turn::after_121k(usage(121_100, 0, 0, 0));
    let mut unseen = trail(4);
    unseen.steps = Box::default();
    turn.past.as_mut().unwrap().trail = Arc::new(unseen);
    assert_eq!(judged(&turn), Err("history_held"));
}

#[test]
fn a_fact_about_the_conversation_follows_from_its_blocks() {
    let images = Setting {
        name: "images",
        from: Section::Messages,
        value: 1,
    };
    let with_image_at = |trail: &mut Trail, at: usize| trail.steps[at].kind = BlockKind::Image;
    // The only image is gone: the block is named, not the setting.
    let mut turn = Turn::after_121k(usage(60, 18_000, 103_500, 0));
    let mut before = trail(4);
    before.settings.push(images);
    with_image_at(&mut before, 3);
    turn.past.as_mut().unwrap().trail = Arc::new(before);
    turn.change = Some(change(Section::Messages, 3, What::ImageReplaced));
    assert_eq!(turn.reason().1, Some(Reason::Messages));
    // The first image came in the tail, and something else changed: the image costs more.
    let mut turn = Turn::after_121k(usage(60, 18_000, 103_500, 0));
    turn.now.settings.push(images);
    turn.change = Some(change(Section::Messages, 4, What::Text));
    assert_eq!(turn.reason().1, Some(Reason::Parameter));
    // ... or it is the change.
    with_image_at(&mut turn.now, 4);
    assert_eq!(turn.reason().1, Some(Reason::Messages));
}

/// Runs of results may count as one position or not; what was not read because they do not is no
/// fault of the provider.
#[test]
fn lookback_counts_every_block_where_something_was_not_read() {
    let mut turn = Turn::after_121k(usage(50, 0, 122_000, 0));
    turn.expected.alive = known(5, Some(121_000));
    turn.expected.read = turn.expected.alive;
    turn.now = trail(24);
    turn.now.marks[0].at = 24;
    assert_eq!(turn.reason().1, Some(Reason::Evicted), "20 positions");
    turn.now.marks[0].at = 25;
    assert_eq!(turn.reason().1, Some(Reason::Lookback), "21 positions");
    turn.now.steps[10].counts = false;
    assert_eq!(turn.reason().1, Some(Reason::Evicted), "one is no position");
}

#[test]
fn what_outlives_the_tail_is_lost_by_a_change() {
    let mut turn = Turn::after_121k(usage(50, 0, 122_000, 0));
    let mut before = trail(4);
    let hourly = Mark {
        at: 1,
        ttl: Some(Ttl::H1),
        ours: false,
    };
    before.marks.insert(0, hourly);
    turn.past.as_mut().unwrap().trail = Arc::new(before);
    turn.started_ms = 600_000;
    turn.change = Some(change(Section::Messages, 3, What::Text));
    assert_eq!(turn.reason().1, Some(Reason::Expired));
    turn.change = Some(change(Section::System, 1, What::Clock));
    assert_eq!(turn.reason().1, Some(Reason::System));
    turn.started_ms = 3_600_000;
    assert_eq!(turn.reason().1, Some(Reason::Expired));
}

#[test]
fn a16_a_side_call_without_a_breakpoint_is_cold_too() {
    let mut turn = Turn::alone(usage(90_000, 0, 0, 0));
    turn.now.marks.clear();
    turn.beside = true;
    let verdict = turn.judged();
    assert_eq!(
        (verdict.status, verdict.reason),
        (Status::Cold, Some(Reason::NoMarker))
    );
    assert!(verdict.detail.contains("shares no prefix"));
    assert!(verdict.detail.contains("no cache breakpoint"));
}

#[test]
fn thinking_that_the_model_left_out_is_its_doing() {
    let mut turn = Turn::after_121k(usage(60, 18_000, 103_500, 0));
    let mut before = trail(4);
    before.steps[3].kind = BlockKind::Thinking;
    turn.past.as_mut().unwrap().trail = Arc::new(before);
    turn.change = Some(change(Section::Messages, 3, What::ThinkingDropped));
    turn.now.steps[3].counts = false;
    assert_eq!(
        turn.reason(),
        (
            Status::Partial,
            Some(Reason::Messages),
            Some(Whose::Provider)
        )
    );
    turn.now.steps[3].hash = 99;
    assert_eq!(turn.reason().2, Some(Whose::Client));
}

/// Two branches of one conversation take turns: each goes on from its own last request.
#[test]
fn a_branch_goes_on_from_its_own_last_request() {
    let mut turn = Turn::after_121k(usage(50, 90_000, 500, 0));
    turn.change = Some(change(Section::Messages, 3, What::Text));
    turn.expected.alive = known(5, Some(90_000));
    turn.expected.read = turn.expected.alive;
    assert_eq!(turn.reason(), (Status::Extended, None, None));
    // The entry of this branch was given up, and the change is not to blame.
    turn.usage = usage(50, 0, 121_500, 0);
    assert_eq!(turn.reason().1, Some(Reason::Evicted));
    assert_eq!(turn.judged().lost_tokens, Some(90_000));
    // An entry before the change explains nothing.
    turn.expected.alive = known(1, Some(18_000));
    turn.expected.read = turn.expected.alive;
    assert_eq!(turn.reason().1, Some(Reason::Messages));
}
