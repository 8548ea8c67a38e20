use super::*;
use crate::prompt_cache::trail::Setting;
use crate::provider::view::Role;

pub(crate) const RATES: Rates = Rates {
    input_pico: 1_000,
    output_pico: 5_000,
    read_pico: 100,
    write_5m_pico: 1_250,
    write_1h_pico: 2_000,
};

/// A request of a thread at a time, in blocks of (hash, tokens); the first is the system prompt,
/// then user and assistant take turns.
pub(crate) fn request(at_ms: i64, thread: u32, blocks: &[(u64, u32)]) -> Recorded {
    let step = |(index, (hash, len)): (usize, &(u64, u32))| Step {
        hash: *hash,
        len: *len,
        section: if index == 0 {
            Section::System
        } else {
            Section::Messages
        },
        kind: BlockKind::Text,
        role: match index {
            0 => None,
            _ if index % 2 == 1 => Some(Role::User),
            _ => Some(Role::Assistant),
        },
        counts: true,
    };
    Recorded {
        at_ms,
        begins_ms: None,
        scope: 1,
        run: 0,
        thread,
        trail: Trail {
            steps: blocks.iter().enumerate().map(step).collect(),
            marks: Vec::new(),
            settings: Vec::new(),
            model: "m".into(),
            betas: 0,
            fast_beta: false,
            head: 1,
            messages: u32::try_from(blocks.len()).unwrap() - 1,
        },
        unmarkable: None,
        forced: false,
        prompt_tokens: None,
        bytes_per_token_milli: 1_000,
        min_tokens: Some(1),
        rates: Some(RATES),
    }
}

pub(crate) fn mark(at: u32, ttl: Ttl) -> Mark {
    Mark {
        at,
        ttl: Some(ttl),
        ours: false,
    }
}

/// A thread that grows by an answer and a result with each turn.
fn growing(turns: u64, gap_ms: i64, tools: u32) -> Vec<Recorded> {
    let turn = |turn: u64| {
        let mut blocks = vec![(1, 7_900), (2, 100)];
        blocks.extend((0..2 * turn).map(|n| (100 + n, 400)));
        let mut recorded = request(turn as i64 * gap_ms, 0, &blocks);
        let tool = Step {
            section: Section::Tools,
            kind: BlockKind::Tool,
            role: None,
            hash: 77,
            len: 50,
            counts: true,
        };
        let mut steps = vec![tool; tools as usize];
        steps.extend(recorded.trail.steps.iter().copied());
        recorded.trail.steps = steps.into();
        recorded.trail.head += tools;
        recorded
    };
    (0..turns).map(turn).collect()
}

fn sum(traffic: &Traffic, policy: Policy) -> Tally {
    replay(traffic, policy).into_iter().sum()
}

#[test]
fn a_long_loop_by_policy() {
    let traffic = Traffic::new(growing(60, 20_000, 2));
    let of = |policy| sum(&traffic, policy);
    let none = of(Policy::None);
    assert_eq!((none.read, none.written()), (0, 0));
    assert_eq!(none.cost_pico, u128::from(none.prompt()) * 1_000);
    // By hand: the first writes all, each later one reads what was there and writes 800.
    let automatic = of(Policy::Automatic);
    assert_eq!(automatic.write_5m, 8_100 + 59 * 800);
    assert_eq!(automatic.uncached, 0);
    let (fill, best) = (of(Policy::Fill), of(Policy::Optimum));
    assert_eq!(fill.write_5m, 8_100 + 59 * 800);
    // The newest blocks of the last turn are read by nobody, and better not written.
    assert_eq!(best.uncached, 800);
    assert_eq!(best.read, fill.read);
    assert!(best.cost_pico < fill.cost_pico);
    for policy in Policy::ALL {
        assert_eq!(of(policy).prompt(), none.prompt(), "{policy:?}");
        assert!(best.cost_pico <= of(policy).cost_pico, "{policy:?}");
    }
    assert!(fill.read * 100 >= fill.prompt() * 97);
}

#[test]
fn entries_end_with_their_lifetime_and_are_renewed_by_reads() {
    let at = |times: &[i64], ttl| {
        let requests = times.iter().map(|at| request(*at, 0, &[(1, 1_000)]));
        let traffic = Traffic::new(requests.collect());
        let tallies = simulate(&traffic, |_, _| vec![mark(0, ttl)]);
        tallies.iter().map(|t| t.read).collect::<Vec<_>>()
    };
    let minute = 60_000;
    assert_eq!(at(&[0, 4 * minute, 8 * minute], Ttl::M5), [0, 1_000, 1_000]);
    assert_eq!(at(&[0, 5 * minute], Ttl::M5), [0, 0]);
    assert_eq!(at(&[0, 5 * minute - 1], Ttl::M5), [0, 1_000]);
    assert_eq!(
        at(&[0, 59 * minute, 118 * minute], Ttl::H1),
        [0, 1_000, 1_000]
    );
    assert_eq!(at(&[0, 60 * minute], Ttl::H1), [0, 0]);
}

#[test]
fn a_marker_looks_back_over_twenty_blocks() {
    let with = |new: u64| {
        let first: Vec<_> = vec![(1, 1_000), (2, 10)];
        let mut second = first.clone();
        second.extend((0..new).map(|n| (10 + n, 10)));
        let traffic = Traffic::new(vec![request(0, 0, &first), request(2_000, 0, &second)]);
        replay(&traffic, Policy::Automatic)[1].read
    };
    assert_eq!(with(19), 1_010);
    assert_eq!(with(20), 0);
}

#[test]
fn an_entry_is_read_once_its_answer_has_begun() {
    let blocks = [(1, 1_000), (2, 10)];
    let siblings = |at: i64, begins_ms| {
        let first = Recorded {
            begins_ms,
            ..request(0, 0, &blocks)
        };
        let traffic = Traffic::new(vec![first, request(at, 1, &blocks)]);
        let marked = replay(&traffic, Policy::Automatic)[1];
        let best = replay(&traffic, Policy::Optimum)[1];
        (marked.read, best.read)
    };
    assert_eq!(siblings(999, None), (0, 0));
    assert_eq!(siblings(1_000, None), (1_010, 1_010));
    assert_eq!(siblings(2_999, Some(3_000)), (0, 0));
    // Whoever goes on with the conversation has seen the answer.
    let grown = request(50, 0, &[(1, 1_000), (2, 10), (3, 5), (4, 5)]);
    let traffic = Traffic::new(vec![request(0, 0, &blocks), grown]);
    assert_eq!(replay(&traffic, Policy::Automatic)[1].read, 1_010);
}

#[test]
fn a_setting_parts_the_level_it_belongs_to() {
    let blocks = [(1, 1_000), (2, 10)];
    let with = |from, value| {
        let mut other = request(2_000, 1, &blocks);
        other.trail.settings.push(Setting {
            name: "speed",
            from,
            value,
        });
        other
    };
    let read = |second: Recorded| {
        let traffic = Traffic::new(vec![request(0, 0, &blocks), second]);
        replay(&traffic, Policy::SystemTail)[1].read
    };
    assert_eq!(read(request(2_000, 1, &blocks)), 1_010);
    assert_eq!(read(with(Section::Messages, 5)), 1_000);
    assert_eq!(read(with(Section::System, 5)), 0);
    let mut model = request(2_000, 1, &blocks);
    model.trail.model = "other".into();
    assert_eq!(read(model), 0);
    let mut scope = request(2_000, 1, &blocks);
    scope.scope = 2;
    assert_eq!(read(scope), 0);
}

#[test]
fn mixed_lifetimes_are_billed_by_span() {
    let blocks = [(1, 1_000), (2, 100), (3, 10), (4, 1)];
    let traffic = Traffic::new(vec![request(0, 0, &blocks)]);
    let marks = vec![mark(0, Ttl::H1), mark(1, Ttl::H1), mark(2, Ttl::M5)];
    let tally = simulate(&traffic, |_, _| marks.clone())[0];
    let expected = Tally {
        read: 0,
        write_1h: 1_100,
        write_5m: 10,
        uncached: 1,
        cost_pico: 1_100 * 2_000 + 10 * 1_250 + 1_000,
    };
    assert_eq!(tally, expected);
}

#[test]
fn what_may_not_be_marked_and_what_is_too_short() {
    let mut short = request(0, 0, &[(1, 400), (2, 99)]);
    short.min_tokens = Some(500);
    let traffic = Traffic::new(vec![short]);
    for policy in Policy::ALL {
        assert_eq!(sum(&traffic, policy).uncached, 499, "{policy:?}");
    }
    let mut thinking = request(0, 0, &[(1, 400), (2, 99), (3, 50)]);
    thinking.trail.steps[2].kind = BlockKind::Thinking;
    let again = Recorded {
        at_ms: 3_000,
        ..thinking.clone()
    };
    let traffic = Traffic::new(vec![thinking, again]);
    let automatic = replay(&traffic, Policy::Automatic);
    assert_eq!((automatic[0].write_5m, automatic[0].uncached), (499, 50));
    assert_eq!(replay(&traffic, Policy::Optimum)[1].read, 499);
}

#[test]
fn counted_prompts_scale_the_blocks() {
    let mut counted = request(0, 0, &[(1, 400), (2, 100)]);
    counted.prompt_tokens = Some(250);
    let traffic = Traffic::new(vec![counted]);
    let tally = simulate(&traffic, |_, _| vec![mark(0, Ttl::M5)])[0];
    assert_eq!((tally.write_5m, tally.uncached), (200, 50));
}

#[test]
fn searches_of_the_provider_stand_behind_the_tools() {
    let mut with = growing(1, 0, 2).remove(0);
    with.trail.steps[0].kind = BlockKind::ServerTool;
    let mut without = growing(1, 0, 1).remove(0);
    without.at_ms = 2_000;
    let traffic = Traffic::new(vec![with, without]);
    // In the second the end of the tools is the block before.
    let mut turn = 0;
    let tallies = simulate(&traffic, |_, _| {
        turn += 1;
        vec![mark(2 - turn, Ttl::M5)]
    });
    assert_eq!((tallies[0].write_5m, tallies[1].read), (50, 50));
}

#[test]
fn fill_leaves_the_clients_markers_and_one_shots_alone() {
    let mut requests = growing(3, 20_000, 1);
    for recorded in &mut requests {
        recorded.trail.marks = vec![mark(0, Ttl::M5)];
        let ours = Mark {
            ours: true,
            ..mark(1, Ttl::M5)
        };
        recorded.trail.marks.push(ours);
    }
    let traffic = Traffic::new(requests);
    assert_eq!(sum(&traffic, Policy::Client).written(), 50);
    assert!(sum(&traffic, Policy::AsSent).written() > 5_000);
    assert!(sum(&traffic, Policy::Fill).read > sum(&traffic, Policy::AsSent).read);
    let alone = Traffic::new(vec![request(0, 0, &[(1, 9_000), (2, 100)])]);
    assert_eq!(sum(&alone, Policy::Fill).written(), 0);
}

#[test]
fn unknown_prices_are_no_money() {
    let mut requests = growing(3, 20_000, 0);
    requests[1].rates = None;
    let traffic = Traffic::new(requests);
    let tallies = replay(&traffic, Policy::Automatic);
    assert_eq!(tallies[1].cost_pico, 0);
    assert!(tallies[1].read > 0 && tallies[2].cost_pico > 0);
}

#[test]
fn words_of_policies() {
    for policy in Policy::ALL {
        assert_eq!(policy.as_str().parse(), Ok(policy));
    }
    assert!("best".parse::<Policy>().unwrap_err().contains("as_sent"));
}

#[test]
fn a_policy_sees_what_lives() {
    let traffic = Traffic::new(growing(3, 20_000, 2));
    let mut all = Vec::new();
    let tallies = simulate(&traffic, |_, seen| {
        all.push((seen.read_at, seen.head_ttl));
        vec![mark(2, Ttl::H1), mark(3, Ttl::M5)]
    });
    let living = (Some(3), Some(Ttl::H1));
    assert_eq!(all, [(None, None), living, living]);
    assert_eq!(tallies.len(), 3);
}
