//! Each cap, its levels and what is left, over two gateways.

use super::*;

const MINUTE: i64 = 60_000;

fn at(now_ms: i64, agent: &str, limits: Limits) -> Ask {
    Ask {
        now_ms,
        agent: agent.into(),
        ..ask(limits, pico(0))
    }
}

fn tokens(input: u64, output: u64) -> Amounts {
    Amounts {
        turns: 1,
        input,
        output,
        pico: 0,
    }
}

fn levels(crossings: &[Crossing]) -> Vec<(Cap, u32, u64)> {
    crossings
        .iter()
        .map(|c| (c.cap, c.level, c.value))
        .collect()
}

#[tokio::test]
async fn amounts_are_looked_at_in_order_and_up_to_the_limit() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let limits = Limits {
        turns: Some(3),
        usd_pico: Some(100),
        tokens: Some(100),
        input_tokens: Some(60),
        output_tokens: Some(50),
        ..Limits::default()
    };
    let of = |turns, input, output, pico| Amounts {
        turns,
        input,
        output,
        pico,
    };
    for (most, cap, asked) in [
        (of(4, 61, 51, 101), Cap::Turns, 4),
        (of(3, 61, 51, 101), Cap::Usd, 101),
        (of(3, 61, 51, 100), Cap::Tokens, 112),
        (of(3, 61, 39, 100), Cap::InputTokens, 61),
        (of(3, 49, 51, 100), Cap::OutputTokens, 51),
    ] {
        let refused = denial(&books, ask(limits, most)).await;
        assert_eq!((refused.cap, refused.asked), (cap, asked));
        assert_eq!((refused.spent, refused.held), (0, 0));
    }
    let (all, left, _) = granted(books.reserve(ask(limits, of(3, 50, 50, 100))).await);
    let none = Left {
        turns: Some(0),
        tokens: Some(0),
        usd_pico: Some(0),
        wall_ms: None,
    };
    assert_eq!(left, [(run("r"), none)]);
    settle(&books, all, of(1, 50, 0, 1)).await;
    let (_, left, _) = granted(books.reserve(ask(limits, of(1, 10, 20, 0))).await);
    let some = Left {
        turns: Some(1),
        tokens: Some(0),
        usd_pico: Some(99),
        wall_ms: None,
    };
    assert_eq!(left, [(run("r"), some)], "the least of the tokens is input");
}

#[tokio::test]
async fn with_nothing_asked_only_what_has_been_spent_decides() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let nothing = || ask(usd(100), Amounts::default());
    let (one, two) = (hold(&books, nothing()).await, hold(&books, nothing()).await);
    settle(&books, one, pico(99)).await;
    let three = hold(&books, nothing()).await;
    settle(&books, two, pico(50)).await;
    assert_eq!(denial(&books, nothing()).await.spent, 149);
    settle(&books, three, pico(1)).await;
}

#[tokio::test]
async fn all_scopes_grant_it_or_nothing_is_held() {
    let redis = Redis::start();
    let books = books(&redis).await;
    let key = Scope::Key("k".into(), "2026-11-30".into());
    let both = |amount| Ask {
        scopes: vec![(run("r"), usd(100)), (key.clone(), usd(50))],
        ..ask(usd(0), pico(amount))
    };
    let refused = denial(&books, both(60)).await;
    assert_eq!((&refused.scope, refused.limit), (&key, 50));
    let refused = denial(&books, both(101)).await;
    assert_eq!(refused.scope, run("r"), "the first that denies");
    assert_eq!(holds(&redis, "r"), 0);
    let (held, left, _) = granted(books.reserve(both(50)).await);
    let left: Vec<_> = left.iter().map(|(s, l)| (s.clone(), l.usd_pico)).collect();
    assert_eq!(left, [(run("r"), Some(50)), (key.clone(), Some(0))]);
    settle(&books, held, pico(20)).await;
    let (_, left, _) = granted(books.reserve(both(30)).await);
    assert_eq!(
        (left[0].1.usd_pico, left[1].1.usd_pico),
        (Some(50), Some(0))
    );
}

#[tokio::test]
async fn wall_time_runs_from_the_first_ask_of_any_gateway() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let limits = Limits {
        wall_ms: Some(3_600_000),
        depth: Some(0),
        ..Limits::default()
    };
    // Refused, and yet the first.
    let deep = Ask {
        depth: 1,
        ..at(1_000, "a", limits)
    };
    assert_eq!(denial(&one, deep).await.cap, Cap::Depth);
    let (_, left, told) = granted(two.reserve(at(1_000 + 1_799_999, "a", limits)).await);
    assert_eq!((left[0].1.wall_ms, told), (Some(1_800_001), vec![]));
    let (_, _, told) = granted(one.reserve(at(1_000 + 1_800_000, "a", limits)).await);
    assert_eq!(levels(&told), [(Cap::WallTime, 50, 1_800_000)]);
    let (_, left, told) = granted(two.reserve(at(1_000 + 3_599_999, "a", limits)).await);
    assert_eq!(levels(&told), [(Cap::WallTime, 80, 3_599_999)]);
    assert_eq!(left[0].1.wall_ms, Some(1));
    let (refused, told) = denied(one.reserve(at(1_000 + 3_600_000, "a", limits)).await);
    assert_eq!((refused.cap, refused.spent), (Cap::WallTime, 3_600_000));
    assert_eq!(levels(&told), [(Cap::WallTime, 100, 3_600_000)]);
    let (_, told) = denied(two.reserve(at(1_000 + 3_600_001, "a", limits)).await);
    assert_eq!(told, []);
    // A clock that is behind.
    hold(&one, at(0, "a", limits)).await;
}

#[tokio::test]
async fn d10_depth_and_live_agents_count_over_gateways() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let limits = Limits {
        depth: Some(2),
        agents: Some(3),
        ..Limits::default()
    };
    let deep = |depth| Ask {
        depth,
        ..at(0, "root", limits)
    };
    let refused = denial(&one, deep(3)).await;
    assert_eq!(
        (refused.cap, refused.asked, refused.limit),
        (Cap::Depth, 3, 2)
    );
    let root = hold(&one, deep(2)).await;
    let a = hold(&two, at(0, "a", limits)).await;
    let b = hold(&one, at(0, "b\nodd 1 2 3", limits)).await;
    let refused = denial(&two, at(0, "c", limits)).await;
    assert_eq!((refused.cap, refused.spent), (Cap::Agents, 3));
    assert_eq!((refused.asked, refused.limit), (1, 3));
    // Those at work go on, also with two requests.
    let again = hold(&one, at(1, "a", limits)).await;
    settle_at(&two, a, pico(0), true, 2).await;
    assert_eq!(denial(&two, at(3, "c", limits)).await.cap, Cap::Agents);
    settle_at(&one, again, pico(0), true, 4).await;
    let c = hold(&two, at(5, "c", limits)).await;
    // Answered, not ended: live for ten minutes more.
    settle_at(&one, b, pico(0), false, 10).await;
    settle_at(&one, root, pico(0), false, 600_000).await;
    settle_at(&two, c, pico(0), false, 600_000).await;
    assert_eq!(denial(&one, at(600_010, "d", limits)).await.spent, 3);
    hold(&one, at(600_011, "d", limits)).await;
    assert_eq!(
        denial(&two, at(600_011, "b\nodd 1 2 3", limits))
            .await
            .spent,
        3
    );
}

#[tokio::test]
async fn requests_within_a_minute_are_counted_over_gateways() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let limits = Limits {
        requests_per_minute: Some(5),
        ..Limits::default()
    };
    let now = 100 * MINUTE + 30_000;
    for n in 0..5 {
        let books = if n % 2 == 0 { &one } else { &two };
        let held = hold(books, at(now, "a", limits)).await;
        settle(books, held, pico(0)).await;
    }
    for _ in 0..3 {
        // Denied ones do not count.
        let refused = denial(&one, at(now, "a", limits)).await;
        assert_eq!((refused.cap, refused.spent), (Cap::RequestsPerMinute, 5));
        assert_eq!((refused.asked, refused.after_ms), (1, Some(30_001)));
    }
    // A gateway whose clock is a little behind.
    hold(&two, at(101 * MINUTE + 1, "a", limits)).await;
    let refused = denial(&two, at(101 * MINUTE - 1, "a", limits)).await;
    assert_eq!(refused.spent, 6);
    let refused = denial(&one, at(101 * MINUTE + 2, "a", limits)).await;
    assert_eq!(refused.after_ms, Some(11_999));
    hold(&one, at(101 * MINUTE + 12_001, "a", limits)).await;
    // Two minutes later nothing is left of it.
    for _ in 0..5 {
        hold(&one, at(103 * MINUTE, "a", limits)).await;
    }
    denial(&two, at(103 * MINUTE, "a", limits)).await;
}

#[tokio::test]
async fn requests_under_way_are_counted_over_gateways() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let limits = Limits {
        concurrency: Some(2),
        ..Limits::default()
    };
    let first = hold(&one, at(0, "a", limits)).await;
    let _second = hold(&two, at(0, "a", limits)).await;
    let (refused, told) = denied(one.reserve(at(0, "a", limits)).await);
    assert_eq!((refused.cap, refused.spent), (Cap::Concurrency, 2));
    assert_eq!((refused.after_ms, told), (Some(1_000), vec![]));
    // A cap that denies for good comes first, whatever the scope.
    let mut spent_too = at(0, "a", limits);
    let key = Scope::Key("k".into(), "2026-11-30".into());
    spent_too.scopes.push((key, usd(0)));
    assert_eq!(denial(&one, spent_too).await.cap, Cap::Usd);
    settle(&one, first, pico(0)).await;
    hold(&two, at(0, "a", limits)).await;
}

#[tokio::test]
async fn d13_each_level_is_told_once_over_all_gateways_in_order() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let limits = Limits {
        tokens: Some(1_000),
        turns: Some(4),
        ..Limits::default()
    };
    let next = |books| hold(books, ask(limits, tokens(0, 0)));
    let (a, b, c) = (next(&one).await, next(&two).await, next(&one).await);
    let told = settle(&one, a, tokens(300, 199)).await;
    assert_eq!(told, [], "just below");
    let told = settle(&two, b, tokens(0, 1)).await;
    assert_eq!(levels(&told), [(Cap::Turns, 50, 2), (Cap::Tokens, 50, 500)]);
    assert_eq!((&told[1].scope, told[1].limit), (&run("r"), 1_000));
    let told = settle(&one, c, tokens(0, 600)).await;
    let both = [(Cap::Tokens, 80, 1_100), (Cap::Tokens, 100, 1_100)];
    assert_eq!(
        levels(&told),
        both,
        "both that were passed, the lower first"
    );
    let (refused, told) = denied(two.reserve(ask(limits, tokens(0, 0))).await);
    assert_eq!((refused.cap, refused.spent), (Cap::Tokens, 1_100));
    assert_eq!(told, [], "told already");
}

#[tokio::test]
async fn a_denial_is_no_level_and_uses_none_up() {
    let redis = Redis::start();
    let (one, two) = (books(&redis).await, books(&redis).await);
    let (_, told) = denied(one.reserve(ask(usd(100), pico(101))).await);
    assert_eq!(told, []);
    let depth = Limits {
        depth: Some(0),
        ..Limits::default()
    };
    let deep = Ask {
        depth: 1,
        ..ask(depth, pico(0))
    };
    let (_, told) = denied(two.reserve(deep).await);
    assert_eq!(told, []);
    let held = hold(&two, ask(usd(100), pico(100))).await;
    let told = settle(&two, held, pico(85)).await;
    assert_eq!(levels(&told), [(Cap::Usd, 50, 85), (Cap::Usd, 80, 85)]);
    let (_, told) = denied(one.reserve(ask(usd(100), pico(16))).await);
    assert_eq!(told, []);
}
