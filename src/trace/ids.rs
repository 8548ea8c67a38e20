//! Ids of traces and spans. All of them follow from ids in the records, so that replicas and
//! restarts agree, and a span that is sent twice is the same span.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::run::UNPLACED;

/// Id of a trace; never all zeros.
pub type TraceId = [u8; 16];
/// Id of a span; never all zeros.
pub type SpanId = [u8; 8];

/// The thread whose span is that of the run itself.
pub const MAIN: &str = "main";
/// The bit of the trace flags that says "recorded".
const SAMPLED: u8 = 1;

/// Where a span belongs, and whether it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: TraceId,
    /// The client's span, when the trace is the client's.
    pub client: Option<SpanId>,
    /// Whether spans of it are sent.
    pub sampled: bool,
}

impl Context {
    /// That of a request: the client's trace where it sent one, and its decision about sampling;
    /// else the trace of the run, of which the given share (in millionths) is sampled.
    #[must_use]
    pub fn of(traceparent: Option<&str>, run: &str, record: Uuid, sample_ppm: u32) -> Self {
        traceparent
            .and_then(Self::read)
            .unwrap_or_else(|| Self::derived(run, record, sample_ppm))
    }

    /// That of a run without the client's. What belongs to no run is a trace of its own.
    #[must_use]
    pub fn derived(run: &str, record: Uuid, sample_ppm: u32) -> Self {
        let trace = if is_placed(run) {
            trace_of_run(run)
        } else {
            first(&digest("lone", &[record.as_bytes()]))
        };
        Self {
            trace,
            client: None,
            sampled: is_sampled(trace, sample_ppm),
        }
    }

    /// Reads a `traceparent` as records have it.
    fn read(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-').skip(1);
        let trace = hex(parts.next()?)?;
        let client = hex(parts.next()?)?;
        let [flags] = hex(parts.next()?)?;
        (trace != [0; 16] && client != [0; 8]).then_some(Self {
            trace,
            client: Some(client),
            sampled: flags & SAMPLED != 0,
        })
    }
}

/// The `traceparent` that tells the upstream our span of this request as its parent. `client` is
/// what the client sent, where it is valid.
#[must_use]
pub fn traceparent(record: Uuid, run: &str, client: Option<&str>, sample_ppm: u32) -> String {
    let context = Context::of(client, run, record, sample_ppm);
    let trace = u128::from_be_bytes(context.trace);
    let span = u64::from_be_bytes(span_of_turn(record));
    let flags = if context.sampled { SAMPLED } else { 0 };
    format!("00-{trace:032x}-{span:016x}-{flags:02x}")
}

/// Whether there is a run that a request belongs to.
#[must_use]
pub fn is_placed(run: &str) -> bool {
    !run.is_empty() && run != UNPLACED
}

fn trace_of_run(run: &str) -> TraceId {
    first(&digest("trace", &[run.as_bytes()]))
}

/// The span of a thread; that of the main thread stands for the run.
#[must_use]
pub fn span_of_thread(run: &str, thread: &str) -> SpanId {
    first(&digest("thread", &[run.as_bytes(), thread.as_bytes()]))
}

/// The span of a turn's first attempt.
#[must_use]
pub fn span_of_turn(record: Uuid) -> SpanId {
    first(&digest("turn", &[record.as_bytes()]))
}

/// The span of a tool call.
#[must_use]
pub fn span_of_call(turn: Uuid, call: &str) -> SpanId {
    first(&digest("call", &[turn.as_bytes(), call.as_bytes()]))
}

/// The span of an event.
#[must_use]
pub fn span_of_event(event: Uuid) -> SpanId {
    first(&digest("event", &[event.as_bytes()]))
}

/// The rule of OpenTelemetry's consistent probability sampling: the last 56 bits of the trace id
/// against a threshold. So gateways agree with each other, and with samplers behind them.
fn is_sampled(trace: TraceId, ppm: u32) -> bool {
    const ALL: u128 = 1 << 56;
    let left_out = 1_000_000_u128.saturating_sub(u128::from(ppm));
    u128::from_be_bytes(trace) % ALL >= ALL * left_out / 1_000_000
}

/// Ids are no secrets and go out beside what they are made from, so the hash has no key.
fn digest(what: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"prefixgate otlp 1 ");
    hash.update(what);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn first<const N: usize>(digest: &[u8; 32]) -> [u8; N] {
    let mut id = [0; N];
    id.copy_from_slice(&digest[..N]);
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let digit = |d: u8| {
        char::from(d)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn ids_are_fixed_for_ever() {
        // A change here would tear runs apart that go on over an upgrade.
        let record = Uuid::from_u128(7);
        assert_eq!(
            traceparent(record, "run-1", None, 1_000_000),
            "00-fd119a13126e94516483f5996e5d5748-85b4ea0b655eb36f-01"
        );
        assert_ne!(trace_of_run("run-1"), trace_of_run("run-2"));
        assert_ne!(span_of_thread("a", "bc"), span_of_thread("ab", "c"));
    }

    #[test]
    fn the_clients_trace_and_decision_are_kept() {
        let record = Uuid::from_u128(7);
        let out = traceparent(record, "run-1", Some(CLIENT), 0);
        let span = u64::from_be_bytes(span_of_turn(record));
        assert_eq!(
            out,
            format!("00-0af7651916cd43dd8448eb211c80319c-{span:016x}-01")
        );
        let unsampled = CLIENT.replace("-01", "-00");
        let context = Context::of(Some(&unsampled), "run-1", record, 1_000_000);
        assert!(!context.sampled && context.client.is_some());
        assert!(traceparent(record, "run-1", Some(&unsampled), 1_000_000).ends_with("-00"));
        for damaged in ["", "00", "00-0-0-0", &CLIENT.replace('0', "g")] {
            let context = Context::of(Some(damaged), "run-1", record, 1_000_000);
            assert_eq!(context.trace, trace_of_run("run-1"), "{damaged}");
        }
    }

    #[test]
    fn what_belongs_to_no_run_is_a_trace_of_its_own() {
        let of = |id| Context::derived(UNPLACED, Uuid::from_u128(id), 1_000_000).trace;
        assert_ne!(of(1), of(2));
        assert_eq!(of(1), of(1));
    }

    #[test]
    fn the_share_of_runs_is_kept_and_a_larger_one_holds_the_smaller() {
        let sampled = |ppm| -> Vec<bool> {
            (0..20_000)
                .map(|n| Context::derived(&format!("run-{n}"), Uuid::nil(), ppm).sampled)
                .collect()
        };
        let count = |of: &[bool]| of.iter().filter(|s| **s).count();
        let (none, tenth, half, all) = (
            sampled(0),
            sampled(100_000),
            sampled(500_000),
            sampled(1_000_000),
        );
        assert_eq!((count(&none), count(&all)), (0, 20_000));
        assert!((1_800..2_200).contains(&count(&tenth)), "{}", count(&tenth));
        assert!((9_600..10_400).contains(&count(&half)), "{}", count(&half));
        assert!(tenth.iter().zip(&half).all(|(tenth, half)| !tenth || *half));
    }
}
