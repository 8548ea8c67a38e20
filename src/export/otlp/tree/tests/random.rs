//! Whatever the records are, the spans are valid.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// A record; what cannot change when it comes again follows from its id.
fn record() -> impl Strategy<Value = TurnRecord> {
    const THREADS: [&str; 4] = ["main", "a", "b", "c"];
    const RUNS: [&str; 4] = ["", crate::run::UNPLACED, "run-1", "run-2"];
    let place = (
        0..64_usize,
        prop::option::of(0..4_usize),
        0..4_u32,
        1..4_u32,
    );
    let status = prop::option::of(100..600_u16);
    let outcome = (0..Outcome::ALL.len(), status, any::<bool>());
    let numbers = (
        prop_oneof![-5..50_000_i64, any::<i64>()],
        prop_oneof![0..5_000_000_u64, any::<u64>()],
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u64>()),
    );
    (place, outcome, numbers, ".{0,4}").prop_map(|(place, outcome, numbers, model)| {
        let (id, parent, n, attempt) = place;
        let (index, status, used) = outcome;
        let (start, duration, tokens, cost) = numbers;
        let mut turn = turn("", MAIN, n, 0);
        turn.id = Uuid::from_u128(id as u128);
        turn.run_id = RUNS[id % 4].into();
        turn.thread_id = THREADS[id / 4 % 4].into();
        turn.traceparent = (id / 16 == 0).then(|| CLIENT.into());
        turn.parent_thread = parent.map(|parent| THREADS[parent].into());
        turn.attempt = attempt;
        turn.outcome = Outcome::ALL[index];
        turn.status = status;
        turn.started_ms = start;
        turn.duration_us = duration;
        turn.usage = Usage::default();
        turn.usage.read = tokens.filter(|_| used);
        turn.cost_pico = cost;
        turn.model_requested = Some(model);
        turn
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        3 => record().prop_map(|turn| of(&turn)),
        1 => (record(), 0..CallStatus::ALL.len(), any::<i64>(), any::<u64>()).prop_map(
            |(turn, status, asked, latency)| {
                let mut call = call(&turn, "toolu", CallStatus::ALL[status]);
                call.asked_ms = asked;
                call.latency_ms = Some(latency);
                of_call(call)
            }
        ),
        1 => (record(), any::<bool>(), any::<i64>(), any::<u128>()).prop_map(
            |(turn, of_turn, at, id)| {
                let mut event = event(&turn);
                event.id = Uuid::from_u128(id);
                event.at_ms = at;
                event.turn_id = event.turn_id.filter(|_| of_turn);
                of_event(event)
            }
        ),
    ]
}

proptest! {
    #[test]
    fn any_records_give_valid_spans(entries in prop::collection::vec(entry(), 0..24), cut in 0..24_usize) {
        let mut tree = Tree::new(naming());
        let (early, late) = entries.split_at(cut.min(entries.len()));
        for batch in [early, late] {
            let spans = deliver(&mut tree, batch, T);
            valid(&spans);
        }
        valid(&take_due(&mut tree, T, true));
        prop_assert!(take_due(&mut tree, T, true).is_empty());
        // All at once: what hangs under what is seen as well.
        let all = super::spans(&entries, &naming());
        valid(&all);
        let by_id: HashMap<&[u8], &Span> = all.iter().map(|s| (s.span_id.as_slice(), s)).collect();
        for span in &all {
            if let Some(parent) = by_id.get(span.parent_span_id.as_slice()) {
                prop_assert!(parent.start_time_unix_nano <= span.start_time_unix_nano,
                    "{parent:?} begins after {span:?}");
            }
        }
        // Another process makes the same of it, in whatever order its maps are.
        let key = |spans: &[Span]| {
            let mut bytes: Vec<Vec<u8>> = spans.iter().map(prost::Message::encode_to_vec).collect();
            bytes.sort();
            bytes
        };
        prop_assert_eq!(key(&all), key(&super::spans(&entries, &naming())));
    }
}

fn valid(spans: &[Span]) {
    let mut seen = std::collections::HashSet::new();
    for span in spans {
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
        assert!(span.trace_id.iter().any(|b| *b != 0) && span.span_id.iter().any(|b| *b != 0));
        assert!(matches!(span.parent_span_id.len(), 0 | 8));
        assert_ne!(span.parent_span_id, span.span_id);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(!span.name.is_empty());
        assert!(seen.insert(&span.span_id), "twice in a batch: {span:?}");
    }
}
