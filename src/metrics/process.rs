//! The `process_*` family, read from `/proc` at each scrape.
//!
//! The `prometheus` crate's own collector counts CPU time in whole seconds and brings
//! another crate; what is read here are five small files. On a system without `/proc`
//! the family keeps its zeros.

use std::fs;

use prometheus::{
    Counter, Gauge, Opts,
    core::{Collector, Desc},
    proto::MetricFamily,
};

/// Clock ticks per second in `/proc`, a constant of Linux's interface to programs.
const TICKS: f64 = 100.0;

#[derive(Debug)]
pub struct ProcessCollector {
    cpu: Counter,
    open_fds: Gauge,
    max_fds: Gauge,
    virtual_memory: Gauge,
    resident_memory: Gauge,
    threads: Gauge,
    start_time: Gauge,
}

// === impl ProcessCollector ===

impl ProcessCollector {
    pub fn new() -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| Gauge::with_opts(Opts::new(name, help));
        let collector = Self {
            cpu: Counter::with_opts(Opts::new(
                "process_cpu_seconds_total",
                "User and system CPU time spent, in seconds.",
            ))?,
            open_fds: gauge("process_open_fds", "Open file descriptors.")?,
            max_fds: gauge("process_max_fds", "File descriptors that may be open.")?,
            virtual_memory: gauge("process_virtual_memory_bytes", "Virtual memory size.")?,
            resident_memory: gauge("process_resident_memory_bytes", "Resident memory size.")?,
            threads: gauge("process_threads", "Threads of the process.")?,
            start_time: gauge(
                "process_start_time_seconds",
                "When the process started, in seconds since 1970.",
            )?,
        };
        if let Some(start) = start_time() {
            collector.start_time.set(start);
        }
        Ok(collector)
    }

    fn collectors(&self) -> [&dyn Collector; 7] {
        [
            &self.cpu,
            &self.open_fds,
            &self.max_fds,
            &self.virtual_memory,
            &self.resident_memory,
            &self.threads,
            &self.start_time,
        ]
    }

    fn refresh(&self) {
        if let Some(seconds) = cpu_seconds() {
            self.cpu.reset();
            self.cpu.inc_by(seconds);
        }
        let status = read("status");
        let kibibytes = |key| field(&status, key).map(|kib| kib * 1024.0);
        set(&self.virtual_memory, kibibytes("VmSize:"));
        set(&self.resident_memory, kibibytes("VmRSS:"));
        set(&self.threads, field(&status, "Threads:"));
        set(&self.max_fds, field(&read("limits"), "Max open files"));
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        // One of them is the directory being read.
        set(
            &self.open_fds,
            u32::try_from(open)
                .ok()
                .map(|n| f64::from(n.saturating_sub(1))),
        );
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors()
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.collectors()
            .into_iter()
            .flat_map(Collector::collect)
            .collect()
    }
}

fn set(gauge: &Gauge, value: Option<f64>) {
    if let Some(value) = value {
        gauge.set(value);
    }
}

fn read(file: &str) -> String {
    fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default()
}

/// The first number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Fields of `/proc/self/stat` after the program's name, which may contain anything;
/// the first one here is number 3 of the manual page.
fn stat(n: usize) -> Option<f64> {
    let text = read("stat");
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(n - 3)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(14)? + stat(15)?) / TICKS)
}

fn start_time() -> Option<f64> {
    let boot = field(&fs::read_to_string("/proc/stat").ok()?, "btime ")?;
    Some(boot + stat(22)? / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_this_processs() {
        let collector = ProcessCollector::new().unwrap();
        // A tick of CPU time is ten milliseconds; reading /proc spends them.
        let begin = std::time::Instant::now();
        while collector.cpu.get() == 0.0 && begin.elapsed().as_secs() < 10 {
            collector.refresh();
        }
        assert!(collector.cpu.get() > 0.0);
        assert!(collector.open_fds.get() >= 3.0);
        assert!(collector.max_fds.get() >= collector.open_fds.get());
        assert!(collector.resident_memory.get() > 1_000_000.0);
        assert!(collector.virtual_memory.get() >= collector.resident_memory.get());
        assert!(collector.threads.get() >= 1.0);
        let now = std::time::SystemTime::now();
        let since_1970 = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = since_1970.as_secs_f64() - collector.start_time.get();
        assert!((0.0..3600.0).contains(&age), "{age}");
    }

    #[test]
    fn fields_are_found_at_the_start_of_a_line() {
        let text = "Name:\tVmRSS: 1\nVmRSS:\t   2048 kB\n";
        assert_eq!(field(text, "VmRSS:"), Some(2048.0));
        assert_eq!(field(text, "VmSwap:"), None);
    }
}
