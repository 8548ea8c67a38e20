//! What the system says of this process, under the names that Prometheus clients share. Beside the
//! start time all of it is read from `/proc`; where there is none, it is left out.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge};

/// Ticks of a second in `/proc/self/stat`, the same on all platforms that Rust knows under Linux.
const TICKS: f64 = 100.0;

/// Read at each scrape.
#[derive(Debug)]
pub(super) struct Process {
    start: Gauge,
    cpu: Counter,
    resident: IntGauge,
    open_files: IntGauge,
    max_files: IntGauge,
    reading: Mutex<()>,
}

impl Process {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let start = Gauge::new(
            "process_start_time_seconds",
            "Start of the process, in seconds since 1970",
        )?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        start.set(now.unwrap_or_default().as_secs_f64());
        Ok(Self {
            start,
            cpu: Counter::new(
                "process_cpu_seconds_total",
                "CPU time of the process, in seconds",
            )?,
            resident: IntGauge::new(
                "process_resident_memory_bytes",
                "Memory of the process that is in RAM",
            )?,
            open_files: IntGauge::new("process_open_fds", "Open file descriptors")?,
            max_files: IntGauge::new("process_max_fds", "File descriptors that may be open")?,
            reading: Mutex::new(()),
        })
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        let mut all = self.start.desc();
        all.extend(self.cpu.desc());
        all.extend(self.resident.desc());
        all.extend(self.open_files.desc());
        all.extend(self.max_files.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _alone = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.start.collect();
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).ok();
        if let Some(seconds) = read("stat").and_then(|stat| cpu_seconds(&stat)) {
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
            all.extend(self.cpu.collect());
        }
        if let Some(bytes) = read("status").and_then(|status| resident_bytes(&status)) {
            self.resident.set(bytes);
            all.extend(self.resident.collect());
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // The one that reads the directory is among them.
            let open = files.count().saturating_sub(1);
            self.open_files.set(i64::try_from(open).unwrap_or(i64::MAX));
            all.extend(self.open_files.collect());
        }
        if let Some(files) = read("limits").and_then(|limits| max_files(&limits)) {
            self.max_files.set(files);
            all.extend(self.max_files.collect());
        }
        all
    }
}

/// User and system time. The name of the program, in brackets, may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

fn resident_bytes(status: &str) -> Option<i64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The soft limit; `None` without one.
fn max_files(limits: &str) -> Option<i64> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c)) R 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 8 0 12345 1 2";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (short) R"), None);
        let status = "Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t    2048 kB\n";
        assert_eq!(resident_bytes(status), Some(2 << 20));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(max_files(limits), Some(1024));
        assert_eq!(
            max_files("Max open files   unlimited  unlimited  files"),
            None
        );
    }
}
