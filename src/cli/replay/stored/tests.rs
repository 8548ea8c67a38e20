use super::*;
use crate::prompt_cache::strategies::tests::request;
use crate::store::{test_store, test_turn};
use crate::trace::{Entry, Sink as _};

fn trail(turns: u64) -> Trail {
    let blocks: Vec<_> = (0..=turns * 2 + 1).map(|n| (n, 100)).collect();
    request(0, 0, &blocks).trail
}

#[test]
fn records_are_read_after_the_one_they_build_on() {
    let (first, second, third) = (trail(0), trail(1), trail(2));
    let mut kept = VecDeque::new();
    let mut next =
        |now: &Trail, before: Option<&Trail>| read(&code::encode(now, before), &mut kept);
    assert_eq!(next(&first, None), Ok(first.clone()));
    assert_eq!(next(&second, Some(&first)), Ok(second.clone()));
    // Overlapped: it builds on the one before the last.
    assert_eq!(next(&third, Some(&first)), Ok(third.clone()));
    assert_eq!(next(&first, Some(&trail(9))), Err(Reason::Base));
    assert_eq!(read(&[], &mut VecDeque::new()), Err(Reason::Empty));
}

#[test]
fn only_full_counts_are_exact() {
    let mut turn = test_turn("r", 1);
    turn.usage_complete = true;
    turn.usage_estimated = false;
    let exact = taken(&turn, trail(1), 0, 0).prompt_tokens;
    assert_eq!(exact, turn.usage.prompt());
    turn.usage_estimated = true;
    assert_eq!(taken(&turn, trail(1), 0, 0).prompt_tokens, None);
}

#[test]
fn turns_without_blocks_are_left_out_and_counted() {
    let (dir, mut store) = test_store();
    let turns = (1..=3).map(|n| Entry::Turn(Box::new(test_turn("r", n))));
    store.write(&turns.collect::<Vec<_>>()).unwrap();
    let gathered = gather(dir.path(), Some("r"), None).unwrap();
    assert!(gathered.requests.is_empty());
    assert_eq!(gathered.sources[0].bad, 3);
    assert_eq!(gathered.notes, ["3 turns left out: no blocks recorded"]);
    assert!(gather(dir.path(), Some("other"), None).is_err());
}
