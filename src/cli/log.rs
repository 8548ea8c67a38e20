//! The log on stderr.
//!
//! Under load there are thousands of lines of turns a second, and one system call each would be dear.
//! So they leave together, some milliseconds later, and are formatted without a detour. Everything
//! else is written at once, after what waits.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::proxy::TURN_TARGET;

/// How long the first of the lines that leave together waits.
const LINGER: Duration = Duration::from_millis(5);
/// With more than so many bytes nothing waits any longer.
const MAX_WAITING_BYTES: usize = 32 << 10;

/// Writes what waits when it is dropped.
#[derive(Debug)]
pub struct LogHandle(Arc<Lines<io::Stderr>>);

impl Drop for LogHandle {
    fn drop(&mut self) {
        self.0.lock().flush();
    }
}

/// Logs go to stderr; `PREFIXGATE_LOG` chooses what (like `info,prefixgate::turn=off`). The handle is
/// to be kept until the end.
pub fn log_to_stderr() -> LogHandle {
    let filter =
        EnvFilter::try_from_env("PREFIXGATE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = Lines::start(io::stderr());
    // Fails only when a log is set up already, which is then as good.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .event_format(LineFormat::default())
        .with_writer(Outlet(lines.clone()))
        .try_init();
    LogHandle(lines)
}

/// Lines on their way.
#[derive(Debug)]
struct Lines<W> {
    out: Mutex<Out<W>>,
    /// Told when a first line waits. Without it none does.
    flusher: OnceLock<Thread>,
}

#[derive(Debug)]
struct Out<W> {
    to: W,
    waiting: Vec<u8>,
}

impl<W: Write> Out<W> {
    /// Nobody is left to be told of a log that cannot be written.
    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            let _ = self.to.write_all(&self.waiting);
            self.waiting.clear();
        }
    }
}

impl<W: Write + Send + 'static> Lines<W> {
    /// Starts the thread that lets lines go. It ends when nobody else is left.
    fn start(to: W) -> Arc<Self> {
        let lines = Arc::new(Self {
            out: Mutex::new(Out {
                to,
                waiting: Vec::new(),
            }),
            flusher: OnceLock::new(),
        });
        let weak = Arc::downgrade(&lines);
        let flusher = move || {
            loop {
                std::thread::park();
                std::thread::sleep(LINGER);
                let Some(lines) = weak.upgrade() else { return };
                lines.lock().flush();
            }
        };
        let thread = std::thread::Builder::new().name("log".into());
        if let Ok(handle) = thread.spawn(flusher) {
            // Empty until here.
            let _ = lines.flusher.set(handle.thread().clone());
        }
        lines
    }
}

impl<W> Lines<W> {
    fn lock(&self) -> MutexGuard<'_, Out<W>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> Drop for Lines<W> {
    fn drop(&mut self) {
        if let Some(flusher) = self.flusher.get() {
            flusher.unpark();
        }
    }
}

/// Gives each event its way out.
struct Outlet<W>(Arc<Lines<W>>);

impl<'a, W: Write + 'a> MakeWriter<'a> for Outlet<W> {
    type Writer = Way<'a, W>;

    fn make_writer(&'a self) -> Way<'a, W> {
        Way {
            lines: &self.0,
            may_wait: false,
        }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Way<'a, W> {
        Way {
            lines: &self.0,
            may_wait: meta.target() == TURN_TARGET,
        }
    }
}

/// The way of one event.
struct Way<'a, W> {
    lines: &'a Lines<W>,
    may_wait: bool,
}

impl<W: Write> Write for Way<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let flusher = self.lines.flusher.get().filter(|_| self.may_wait);
        let mut out = self.lines.lock();
        let first = out.waiting.is_empty();
        out.waiting.extend_from_slice(line);
        match flusher {
            Some(flusher) if out.waiting.len() <= MAX_WAITING_BYTES => {
                drop(out);
                if first {
                    flusher.unpark();
                }
            }
            _ => out.flush(),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.lock().flush();
        Ok(())
    }
}

/// The usual form, and a short way to it for the lines of turns.
#[derive(Default)]
struct LineFormat(Format);

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let meta = event.metadata();
        let plain = meta.target() == TURN_TARGET && *meta.level() == Level::INFO;
        if !plain || writer.has_ansi_escapes() {
            return self.0.format_event(context, writer, event);
        }
        SystemTime.format_time(&mut writer)?;
        write!(writer, "  INFO {TURN_TARGET}: ")?;
        let mut message = Message(&mut writer, Ok(()));
        event.record(&mut message);
        message.1?;
        writeln!(writer)
    }
}

/// Writes the message of an event; that of a turn has no control characters.
struct Message<'a, 'w>(&'a mut Writer<'w>, fmt::Result);

impl Visit for Message<'_, '_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.1 = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a test looks.
    #[derive(Debug, Clone, Default)]
    struct Seen(Arc<Mutex<Vec<u8>>>);

    impl Seen {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Lines that nobody lets go.
    fn held(seen: &Seen) -> Arc<Lines<Seen>> {
        let lines = Lines {
            out: Mutex::new(Out {
                to: seen.clone(),
                waiting: Vec::new(),
            }),
            flusher: OnceLock::new(),
        };
        lines.flusher.set(std::thread::current()).unwrap();
        Arc::new(lines)
    }

    #[test]
    fn the_short_way_leads_to_the_same_form() {
        let said = |short: bool| {
            let seen = Seen::default();
            let builder = tracing_subscriber::fmt()
                .with_ansi(false)
                .with_writer(Outlet(held(&seen)));
            let log = || {
                tracing::info!(target: TURN_TARGET, "{}", "run main#1 | 3.2k in");
                tracing::warn!(target: TURN_TARGET, number = 1, "{}", "other");
                tracing::info!("one more");
            };
            if short {
                let subscriber = builder.event_format(LineFormat::default()).finish();
                tracing::subscriber::with_default(subscriber, log);
            } else {
                tracing::subscriber::with_default(builder.finish(), log);
            }
            let text = seen.text();
            let lines = text.lines().map(|line| {
                let (time, rest) = line.split_once(' ').unwrap();
                assert!(time.len() == 27 && time.ends_with('Z'), "{line}");
                rest.to_owned()
            });
            lines.collect::<Vec<_>>()
        };
        let lines = said(true);
        assert_eq!(lines, said(false));
        assert_eq!(lines[0], " INFO prefixgate::turn: run main#1 | 3.2k in");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn lines_of_turns_wait_for_each_other_and_go_before_everything_else() {
        let seen = Seen::default();
        let lines = held(&seen);
        let way = |may_wait| Way {
            lines: &lines,
            may_wait,
        };
        way(true).write_all(b"one\n").unwrap();
        way(true).write_all(b"two\n").unwrap();
        assert_eq!(seen.text(), "");
        way(false).write_all(b"three\n").unwrap();
        assert_eq!(seen.text(), "one\ntwo\nthree\n");
        way(true).write_all(&vec![b'x'; MAX_WAITING_BYTES]).unwrap();
        assert_eq!(seen.text().len(), 14);
        way(true).write_all(b"y").unwrap();
        assert_eq!(seen.text().len(), 14 + MAX_WAITING_BYTES + 1);
    }

    #[test]
    fn a_line_that_waits_leaves_by_itself() {
        let seen = Seen::default();
        let lines = Lines::start(seen.clone());
        let mut way = Way {
            lines: &lines,
            may_wait: true,
        };
        way.write_all(b"one\n").unwrap();
        while seen.text().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(seen.text(), "one\n");
    }
}
