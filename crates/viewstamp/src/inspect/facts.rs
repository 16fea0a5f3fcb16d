//! The process and its machine in numbers, from the kernel's text files. What a file does not
//! say stays 0 or empty: these numbers are for people, and no reason to fail.

use std::{fs, path::Path};

use platform::Facts;

/// Measures, and remembers the clocks of the last time: a share of processor time is one of a
/// span.
#[derive(Debug, Default)]
pub(super) struct Meter {
    last: Ticks,
}

/// Processor time, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    process: u64,
    /// Of all processors, busy.
    busy: u64,
    /// Of all processors, busy or not.
    all: u64,
    processors: u64,
}

impl Meter {
    /// The numbers of this moment.
    pub(super) fn measure(&mut self, data: &Path) -> Facts {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let ticks = Ticks::parse(&read("/proc/self/stat"), &read("/proc/stat"));
        let (cpu_usage_bits, cpu_usage_total_bits) = ticks.usage_since(self.last);
        self.last = ticks;
        let (status, memory) = (read("/proc/self/status"), read("/proc/meminfo"));
        let (io, release) = (read("/proc/self/io"), read("/etc/os-release"));
        let (disk_free, disk_total) = uring::disk_space(data).unwrap_or_default();
        Facts {
            process_id: std::process::id(),
            cpu_usage_bits,
            cpu_usage_total_bits,
            memory_usage: number(&status, "VmRSS:") << 10,
            memory_total: number(&memory, "MemTotal:") << 10,
            memory_available: number(&memory, "MemAvailable:") << 10,
            bytes_read: number(&io, "read_bytes:"),
            bytes_written: number(&io, "write_bytes:"),
            hostname: read("/proc/sys/kernel/hostname").trim().into(),
            os_name: assigned(&release, "NAME").into(),
            os_version: assigned(&release, "VERSION_ID").into(),
            kernel_version: read("/proc/sys/kernel/osrelease").trim().into(),
            threads_count: u32::try_from(number(&status, "Threads:")).unwrap_or_default(),
            disk_free,
            disk_total,
        }
    }
}

impl Ticks {
    fn parse(process: &str, machine: &str) -> Self {
        // The name in the second field may hold anything, parentheses too.
        let fields = process.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = fields.split_whitespace().skip(11);
        let mut next = || fields.next().and_then(|field| field.parse().ok());
        let process = next().unwrap_or(0) + next().unwrap_or(0);
        let mut lines = machine.lines();
        let all: Vec<u64> = lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            // What guests use is in the first two already.
            .take(8)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let idle: u64 = all.iter().skip(3).take(2).sum();
        let sum: u64 = all.iter().sum();
        let processors = lines.take_while(|line| line.starts_with("cpu")).count();
        Self {
            process,
            busy: sum - idle,
            all: sum,
            processors: processors as u64,
        }
    }

    /// Shares of the span since `last`, in per cent, as bits: of one processor, and of all.
    fn usage_since(self, last: Self) -> (u32, u32) {
        let span = self.all.saturating_sub(last.all);
        let process = self.process.saturating_sub(last.process) * self.processors;
        let busy = self.busy.saturating_sub(last.busy);
        (share_bits(process, span), share_bits(busy, span))
    }
}

#[expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the protocol shows these two to people as floats"
)]
fn share_bits(part: u64, whole: u64) -> u32 {
    if whole == 0 {
        return 0;
    }
    let share = part as f64 * 100.0 / whole as f64;
    (share as f32).to_bits()
}

/// The first number of the line that begins with `key`.
fn number(text: &str, key: &str) -> u64 {
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(key));
    let number = found.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_default()
}

/// What is assigned to `key`, without quotes.
fn assigned<'a>(text: &'a str, key: &str) -> &'a str {
    let mut pairs = text.lines().filter_map(|line| line.split_once('='));
    let found = pairs.find(|(candidate, _)| *candidate == key);
    found.map_or("", |(_, value)| value.trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        let status = "Name:\tserver\nVmRSS:\t  2048 kB\nThreads:\t7\n";
        assert_eq!(number(status, "VmRSS:"), 2048);
        assert_eq!(number(status, "Threads:"), 7);
        assert_eq!(number(status, "VmSize:"), 0);
        let release = "NAME=\"Some Linux\"\nVERSION_ID=12\n";
        assert_eq!(assigned(release, "NAME"), "Some Linux");
        assert_eq!(assigned(release, "VERSION_ID"), "12");
    }

    #[test]
    fn shares_are_of_the_span_between_two_looks() {
        let machine = |user, idle| {
            format!("cpu  {user} 0 0 {idle} 0 0 0 0 9 9\ncpu0 1 1\ncpu1 1 1\nintr 5\n")
        };
        let process = |user, system| format!("1 (a b) c) S 1 2 3 4 5 6 7 8 9 10 {user} {system}");
        let before = Ticks::parse(&process(10, 5), &machine(100, 100));
        assert_eq!((before.process, before.busy, before.all), (15, 100, 200));
        assert_eq!(before.processors, 2);
        let after = Ticks::parse(&process(30, 10), &machine(150, 150));
        let (own, total) = after.usage_since(before);
        // 25 ticks of a span of 100 over two processors: half of one of them.
        assert_eq!(f32::from_bits(own).to_string(), "50");
        assert_eq!(f32::from_bits(total).to_string(), "50");
        assert_eq!(before.usage_since(before), (0, 0));
    }

    #[test]
    fn this_machine_has_numbers() {
        let facts = Meter::default().measure(Path::new("."));
        assert_eq!(facts.process_id, std::process::id());
        assert!(facts.memory_usage > 0 && facts.memory_usage < facts.memory_total);
        assert!(facts.threads_count > 0 && facts.disk_total >= facts.disk_free);
        assert!(facts.disk_total > 0 && !facts.hostname.is_empty());
        assert!(!facts.kernel_version.is_empty());
    }
}
