//! The calls of one answer beside each other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use prefixgate::agent::tools::{
    Batch, CANCEL_GRACE, CallEnd, MAX_ABANDONED, Manners, Tool, ToolError, raw,
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{a_call, bad, ends, failure, good, toolbox};

const ANY: &str = r#"{"type": "object"}"#;
const SECOND: Duration = Duration::from_secs(1);

/// Returns after some time.
fn slow(name: &str, ms: u64) -> Arc<dyn Tool> {
    raw(name, "", ANY, Manners::READS, move |_, _| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(format!("after {ms} ms"))
    })
}

/// Never returns, and does not care about being cancelled.
fn hung() -> Arc<dyn Tool> {
    raw("b", "", ANY, Manners::READS.within(SECOND), |_, _| {
        std::future::pending()
    })
}

fn failing() -> Arc<dyn Tool> {
    raw("c", "", ANY, Manners::READS, |_, _| async {
        Err(ToolError::failed("not_found", "there is none"))
    })
}

fn three() -> Vec<prefixgate::agent::talk::ToolCall> {
    vec![
        a_call("1", "a", "{}"),
        a_call("2", "b", "{}"),
        a_call("3", "c", "{}"),
    ]
}

fn of<'a>(ends: &'a [CallEnd], id: &str) -> &'a CallEnd {
    ends.iter().find(|end| end.result.call == id).unwrap()
}

#[tokio::test(start_paused = true)]
async fn f08_a_hung_tool_times_out_and_its_siblings_keep_their_results() {
    let tools = toolbox([slow("a", 50), hung(), failing()]);
    let begun = Instant::now();
    let ends = ends(&tools, three()).await;
    assert_eq!(begun.elapsed(), SECOND);
    let a = of(&ends, "1");
    assert_eq!(
        (a.result.text.as_str(), a.result.is_error),
        ("after 50 ms", false)
    );
    assert_eq!(a.took, Duration::from_millis(50));
    let b = failure(&of(&ends, "2").result);
    assert_eq!(b["kind"], "timeout");
    assert_eq!(b["message"], "timed out after 1 s, outcome unknown");
    assert_eq!(failure(&of(&ends, "3").result)["kind"], "not_found");
}

#[tokio::test(start_paused = true)]
async fn f08_cancelled_after_300_ms_all_calls_are_over_within_200_ms() {
    let tools = toolbox([slow("a", 50), hung(), failing()]);
    let cancelled = CancellationToken::new();
    let mut batch = Batch::new(tools, cancelled.clone());
    for call in three() {
        batch.start(call, "key".to_owned());
    }
    let begun = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancelled.cancel();
    });
    let mut ends = Vec::new();
    while let Some(end) = batch.next().await {
        ends.push(end);
    }
    let took = begun.elapsed();
    assert_eq!(took, Duration::from_millis(300) + CANCEL_GRACE);
    assert!(took <= Duration::from_millis(500));
    assert!(!of(&ends, "1").result.is_error);
    let b = failure(&of(&ends, "2").result);
    assert_eq!(b["message"], "cancelled while it ran, outcome unknown");
}

/// Blocks a thread until something is sent, and says when it is back.
fn blocking(back: Arc<AtomicUsize>) -> (Arc<dyn Tool>, mpsc::Sender<()>) {
    let (send, receive) = mpsc::channel::<()>();
    let receive = Arc::new(Mutex::new(receive));
    let manners = Manners::READS.within(Duration::from_millis(20));
    let tool = raw("block", "", ANY, manners, move |_, context| {
        let receive = Arc::clone(&receive);
        let back = Arc::clone(&back);
        async move {
            let wait = move || {
                let _ = receive.lock().unwrap().recv();
                back.fetch_add(1, Ordering::SeqCst);
                Ok("late".to_owned())
            };
            context.blocking(wait).await
        }
    });
    (tool, send)
}

/// Keeps what is logged, by all threads.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logged {
    fn start() -> Self {
        let logged = Self::default();
        let writes = logged.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(move || writes.clone())
            .with_ansi(false)
            .init();
        logged
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn f08_hung_calls_that_cannot_be_ended_do_not_grow_without_bound() {
    let logged = Logged::start();
    let back = Arc::new(AtomicUsize::new(0));
    let (tool, send) = blocking(Arc::clone(&back));
    let tools = toolbox([tool, slow("a", 1)]);
    for _ in 0..MAX_ABANDONED {
        assert_eq!(bad(&tools, "block", json!({})).await["kind"], "timeout");
    }
    let refused = bad(&tools, "block", json!({})).await;
    assert_eq!(refused["kind"], "unavailable");
    assert_eq!(
        refused["message"],
        "8 earlier calls of block have not come back"
    );
    assert_eq!(refused["retryable"], true);
    good(&tools, "a", json!({})).await;

    // One comes back, late: its result goes nowhere, and the tool may be called once more.
    send.send(()).unwrap();
    while back.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut kind = bad(&tools, "block", json!({})).await["kind"].clone();
    for _ in 0..1000 {
        if kind == "timeout" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        kind = bad(&tools, "block", json!({})).await["kind"].clone();
    }
    assert_eq!(kind, "timeout", "one place was free again");
    let log = logged.text();
    let line = "a call that was given up has ended; what it gave is dropped tool=\"block\"";
    assert!(log.contains(line), "{log}");
    assert!(
        !log.contains("late"),
        "what it gave is nobody's business: {log}"
    );
    assert_eq!(bad(&tools, "block", json!({})).await["kind"], "unavailable");
    drop(send);
}

/// A tool that breaks the rule and blocks its own task harms its siblings no more than that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f08_a_tool_that_blocks_its_task_times_out_and_its_late_result_is_dropped() {
    let (send, receive) = mpsc::channel::<()>();
    let receive = Arc::new(Mutex::new(receive));
    let manners = Manners::READS.within(Duration::from_millis(50));
    let block = raw("b", "", ANY, manners, move |_, _| {
        let receive = Arc::clone(&receive);
        async move {
            let _ = receive.lock().unwrap().recv();
            Ok("late".to_owned())
        }
    });
    let tools = toolbox([slow("a", 5), block, failing()]);
    let mut batch = Batch::new(tools, CancellationToken::new());
    for call in three() {
        batch.start(call, "key".to_owned());
    }
    let mut ends = Vec::new();
    while let Some(end) = batch.next().await {
        ends.push(end);
    }
    assert_eq!(failure(&of(&ends, "2").result)["kind"], "timeout");
    send.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(batch.next().await.is_none(), "a late result goes nowhere");
    assert_eq!(ends.len(), 3);
}

#[tokio::test]
async fn f15_a_tool_that_panics_is_answered_and_the_others_live() {
    #[expect(unreachable_code, reason = "the type of what never comes")]
    let panics = raw("b", "", ANY, Manners::READS, |_, _| async {
        panic!("no");
        Ok(String::new())
    });
    let early = raw("early", "", ANY, Manners::READS, |_, _| {
        assert!(std::hint::black_box(false), "before there is a future");
        async { Ok(String::new()) }
    });
    let tools = toolbox([slow("a", 5), panics, failing(), early]);
    let ends = ends(&tools, three()).await;
    assert!(!of(&ends, "1").result.is_error);
    let told = failure(&of(&ends, "2").result);
    assert_eq!(told["kind"], "panic");
    assert!(
        !told.to_string().contains("no\""),
        "words of a panic are not for the model"
    );
    assert_eq!(bad(&tools, "early", json!({})).await["kind"], "panic");
    let blocking = raw("deep", "", ANY, Manners::READS, |_, context| async move {
        context.blocking(|| panic!("deep")).await
    });
    assert_eq!(
        bad(&toolbox([blocking]), "deep", json!({})).await["kind"],
        "panic"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_run_beside_each_other_but_a_serial_one_alone_in_the_order_of_the_calls() {
    type Log = Arc<Mutex<Vec<String>>>;
    let log = Log::default();
    let logged = |name: &str, ms: u64, manners: Manners| {
        let (log, name) = (Arc::clone(&log), name.to_owned());
        raw(&name.clone(), "", ANY, manners, move |_, _| {
            let (log, name) = (Arc::clone(&log), name.clone());
            async move {
                log.lock().unwrap().push(format!("{name}+"));
                tokio::time::sleep(Duration::from_millis(ms)).await;
                log.lock().unwrap().push(format!("{name}-"));
                Ok(String::new())
            }
        })
    };
    let tools = toolbox([
        logged("read_1", 30, Manners::READS),
        logged("read_2", 10, Manners::READS),
        logged("change", 10, Manners::CHANGES),
        logged("read_3", 10, Manners::READS),
        logged("read_4", 20, Manners::READS),
    ]);
    let names = ["read_1", "read_2", "change", "read_3", "read_4"];
    let calls = names.map(|name| a_call(name, name, "{}")).to_vec();
    let begun = Instant::now();
    ends(&tools, calls).await;
    assert_eq!(begun.elapsed(), Duration::from_millis(30 + 10 + 20));
    assert_eq!(
        log.lock().unwrap().join(" "),
        "read_1+ read_2+ read_2- read_1- change+ change- read_3+ read_4+ read_3- read_4-"
    );
}

/// Tells when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_dropped_ends_its_tools() {
    let dropped = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&dropped);
    let tool = raw("b", "", ANY, Manners::READS, move |_, context| {
        let flag = Flag(Arc::clone(&seen));
        async move {
            let _flag = flag;
            // Not even the cancellation is heard.
            let _context = context;
            std::future::pending().await
        }
    });
    let mut batch = Batch::new(toolbox([tool]), CancellationToken::new());
    batch.start(a_call("1", "b", "{}"), "key".to_owned());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!dropped.load(Ordering::SeqCst));
    drop(batch);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_listens_may_end_by_itself_when_it_is_cancelled() {
    let tool = raw("b", "", ANY, Manners::READS, |_, context| async move {
        context.cancelled.cancelled().await;
        Err(ToolError::Said("undone".to_owned()))
    });
    let cancelled = CancellationToken::new();
    let mut batch = Batch::new(toolbox([tool]), cancelled.clone());
    batch.start(a_call("1", "b", "{}"), "key".to_owned());
    tokio::time::sleep(Duration::from_millis(10)).await;
    cancelled.cancel();
    assert_eq!(batch.next().await.unwrap().result.text, "undone");
}

#[tokio::test]
async fn a_tool_is_told_its_key_and_the_id_of_its_call() {
    let tool = raw("who", "", ANY, Manners::READS, |_, context| async move {
        Ok(format!("{} {}", context.key, context.call))
    });
    let end = ends(&toolbox([tool]), vec![a_call("c7", "who", "{}")])
        .await
        .remove(0);
    assert_eq!(end.result.text, "run/main/1/c7 c7");
}

#[tokio::test]
async fn an_exception_is_told_apart_from_a_failure() {
    let tool = raw("pay", "", ANY, Manners::READS, |_, _| async {
        Err(ToolError::Exception(
            "the credential has expired".to_owned(),
        ))
    });
    let end = ends(&toolbox([tool]), vec![a_call("c1", "pay", "{}")])
        .await
        .remove(0);
    assert_eq!(end.exception.as_deref(), Some("the credential has expired"));
    assert_eq!(failure(&end.result)["kind"], "exception");
}
