//! What came of a run: counted while it runs, turned into figures once, at the end.
//!
//! Floats are here and nowhere else in the crate: they are for people to read.

#![allow(
    clippy::float_arithmetic,
    reason = "figures for people; nothing is decided on them"
)]

use std::{collections::BTreeMap, fmt::Write, fs, time::Duration};

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// What one connection, or one side of a run, did in the measured part.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Microseconds from when a request was due until its answer.
    pub(crate) latency: Histogram<u64>,
    /// Microseconds from when a message was due to be sent until it was delivered.
    pub(crate) delivery: Histogram<u64>,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Messages that were due before the end and for which there was no time.
    pub(crate) unsent: u64,
    /// The last answer, since the start of the run.
    pub(crate) last: Duration,
    /// Of the whole run, warm-up included.
    pub(crate) errors: BTreeMap<String, u64>,
}

/// A latency above this counts as this.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

impl Tally {
    pub(crate) fn new() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, micros(LATENCY_MAX), 3).expect("constant, valid bounds")
        };
        Self {
            latency: histogram(),
            delivery: histogram(),
            messages: 0,
            bytes: 0,
            unsent: 0,
            last: Duration::ZERO,
            errors: BTreeMap::new(),
        }
    }

    pub(crate) fn on_answer(&mut self, latency: Duration, at: Duration, messages: u64, bytes: u64) {
        self.latency.saturating_record(micros(latency));
        self.last = self.last.max(at);
        self.messages += messages;
        self.bytes += bytes;
    }

    pub(crate) fn on_error(&mut self, error: String) {
        *self.errors.entry(error).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        let same = "both have the same bounds";
        self.latency.add(&other.latency).expect(same);
        self.delivery.add(&other.delivery).expect(same);
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.unsent += other.unsent;
        self.last = self.last.max(other.last);
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
    }
}

/// Whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// CPU time that processes have used so far, user and system.
///
/// # Errors
/// If a process cannot be seen.
pub(crate) fn cpu_time(processes: &[u32]) -> Result<Duration, String> {
    let mut total = Duration::ZERO;
    for process in processes {
        let file = format!("/proc/{process}/stat");
        let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        total += parse_cpu_time(&text).ok_or_else(|| format!("{file}: not as expected"))?;
    }
    Ok(total)
}

/// The 14th and 15th field of `/proc/PID/stat`. The kernel tells them in hundredths of a second
/// whatever its own tick is; the second field, the name, may hold spaces and brackets.
fn parse_cpu_time(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis(10 * (user + system)))
}

/// Most memory that processes have held, in KiB, added up; 0 for those that are gone.
pub(crate) fn memory_peak_kib(processes: &[u32]) -> u64 {
    let peak = |process: &u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    processes.iter().filter_map(peak).sum()
}

/// What the measured part cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) client_cpu: Duration,
    /// Nothing if no process of the server was named.
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) server_memory_peak_kib: u64,
}

/// `produce`, `consume` or both, each with what its connections did.
pub(crate) type Sides = Vec<(&'static str, Tally)>;

/// Everything about a run.
#[derive(Debug)]
pub(crate) struct Report {
    /// How it was asked for, for the JSON object.
    pub(crate) setting: Value,
    /// The same in a few words.
    pub(crate) title: String,
    pub(crate) warm_up: Duration,
    pub(crate) sides: Sides,
    pub(crate) cost: Cost,
}

impl Report {
    pub(crate) fn errors_count(&self) -> u64 {
        let counts = |tally: &Tally| tally.errors.values().sum::<u64>();
        self.sides.iter().map(|(_, tally)| counts(tally)).sum()
    }

    /// A count per second of the measured part; 0 if nothing was measured.
    fn per_second(&self, tally: &Tally, count: u64) -> f64 {
        let seconds = tally.last.saturating_sub(self.warm_up).as_secs_f64();
        if seconds > 0.0 {
            count as f64 / seconds
        } else {
            0.0
        }
    }

    fn seconds_per_gb(&self, cpu: Duration) -> f64 {
        let bytes: u64 = self.sides.iter().map(|(_, tally)| tally.bytes).sum();
        if bytes == 0 {
            return 0.0;
        }
        cpu.as_secs_f64() * 1e9 / bytes as f64
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut out = format!("{}\n\n", self.title);
        out += "             MB/s  messages/s   p50 ms   p99 ms p99.9 ms   max ms  errors\n";
        for (name, tally) in &self.sides {
            let speed = self.per_second(tally, tally.bytes) / 1e6;
            let messages = self.per_second(tally, tally.messages);
            let errors: u64 = tally.errors.values().sum();
            let latency = columns(&tally.latency);
            line(
                &mut out,
                format_args!("{name:<9}{speed:>8.1}{messages:>12.0}{latency}{errors:>8}"),
            );
            if !tally.delivery.is_empty() {
                let name = "delivery";
                let latency = columns(&tally.delivery);
                line(&mut out, format_args!("{name:<29}{latency}"));
            }
        }
        self.put_cost(&mut out);
        for (name, tally) in &self.sides {
            if tally.unsent > 0 {
                let count = tally.unsent;
                let text = "messages were due and not sent: there was no time";
                line(&mut out, format_args!("{name}: {count} {text}"));
            }
            for (error, count) in &tally.errors {
                line(&mut out, format_args!("{name}: {count} x {error}"));
            }
        }
        out
    }

    fn put_cost(&self, out: &mut String) {
        out.push_str("\nCPU s per GB");
        if let Some(server) = self.cost.server_cpu {
            let cost = self.seconds_per_gb(server);
            let peak = self.cost.server_memory_peak_kib as f64 * 1024.0 / 1e6;
            let spent = server.as_secs_f64();
            let text = format!("   server {cost:.2} ({spent:.2} s; peak memory {peak:.0} MB)");
            out.push_str(&text);
        }
        let client = self.cost.client_cpu;
        let (cost, spent) = (self.seconds_per_gb(client), client.as_secs_f64());
        line(out, format_args!("   client {cost:.2} ({spent:.2} s)"));
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let mut object = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "setting": self.setting,
            "client_cpu_s": self.cost.client_cpu.as_secs_f64(),
            "client_cpu_s_per_gb": self.seconds_per_gb(self.cost.client_cpu),
        });
        if let Some(server) = self.cost.server_cpu {
            object["server_cpu_s"] = json!(server.as_secs_f64());
            object["server_cpu_s_per_gb"] = json!(self.seconds_per_gb(server));
            object["server_memory_peak_kib"] = json!(self.cost.server_memory_peak_kib);
        }
        for (name, tally) in &self.sides {
            let mut side = json!({
                "mb_per_s": self.per_second(tally, tally.bytes) / 1e6,
                "messages_per_s": self.per_second(tally, tally.messages),
                "messages": tally.messages,
                "requests": tally.latency.len(),
                "seconds": tally.last.saturating_sub(self.warm_up).as_secs_f64(),
                "latency_ms": quantiles(&tally.latency),
                "unsent_messages": tally.unsent,
                "errors": tally.errors,
            });
            if !tally.delivery.is_empty() {
                side["delivery_ms"] = quantiles(&tally.delivery);
            }
            object[*name] = side;
        }
        object
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all");
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1e3
}

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999), ("max", 1.0)];

fn columns(histogram: &Histogram<u64>) -> String {
    let column = |(_, quantile)| format!("{:>9.2}", millis(histogram.value_at_quantile(quantile)));
    QUANTILES.map(column).concat()
}

fn quantiles(histogram: &Histogram<u64>) -> Value {
    let pairs = QUANTILES.map(|(name, quantile)| {
        let value = millis(histogram.value_at_quantile(quantile));
        (name.to_owned(), json!(value))
    });
    Value::Object(pairs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(latencies_ms: &[u64]) -> Tally {
        let mut tally = Tally::new();
        for (index, &ms) in latencies_ms.iter().enumerate() {
            let at = Duration::from_millis(1_000 + 500 * (index as u64 + 1));
            tally.on_answer(Duration::from_millis(ms), at, 250, 250_000);
        }
        tally
    }

    fn report(tally: Tally) -> Report {
        Report {
            setting: json!({}),
            title: "produce".into(),
            warm_up: Duration::from_secs(1),
            sides: vec![("produce", tally)],
            cost: Cost {
                client_cpu: Duration::from_millis(10),
                server_cpu: Some(Duration::from_millis(20)),
                server_memory_peak_kib: 1000,
            },
        }
    }

    #[test]
    fn speed_counts_from_the_end_of_the_warm_up_to_the_last_answer() {
        // Four batches of 250,000 bytes in the two seconds after the first: 0.5 MB/s.
        let report = report(tally(&[1, 1, 1, 1]));
        let json = report.json();
        assert_eq!(json["produce"]["mb_per_s"], json!(0.5));
        assert_eq!(json["produce"]["messages_per_s"], json!(500.0));
        assert_eq!(json["produce"]["seconds"], json!(2.0));
    }

    #[test]
    fn cost_is_per_gigabyte_of_payload() {
        // A megabyte took 20 ms: 20 s per GB.
        let json = report(tally(&[1, 1, 1, 1])).json();
        assert_eq!(json["server_cpu_s_per_gb"], json!(20.0));
        assert_eq!(json["client_cpu_s_per_gb"], json!(10.0));
    }

    #[test]
    fn merged_tallies_keep_the_slowest_and_every_error() {
        let (mut fast, mut slow) = (tally(&[1; 99]), tally(&[100]));
        fast.on_error("no answer".into());
        slow.on_error("no answer".into());
        fast.merge(slow);
        assert_eq!(fast.messages, 25_000);
        assert_eq!(fast.errors, BTreeMap::from([("no answer".into(), 2)]));
        assert!(fast.latency.value_at_quantile(0.99) < 1_010);
        assert!(fast.latency.max() >= 100_000);
        let report = report(fast);
        assert_eq!(report.errors_count(), 2);
        assert!(report.table().ends_with("produce: 2 x no answer\n"));
    }

    #[test]
    fn a_run_without_answers_reports_zeroes() {
        let json = report(Tally::new()).json();
        assert_eq!(json["produce"]["mb_per_s"], json!(0.0));
        assert_eq!(json["server_cpu_s_per_gb"], json!(0.0));
    }

    #[test]
    fn the_columns_stand_under_their_titles() {
        let table = report(tally(&[1, 2, 3, 4])).table();
        let lines: Vec<&str> = table.lines().skip(2).take(2).collect();
        assert_eq!(lines[0].len(), lines[1].len());
        assert!(lines[0].ends_with("errors") && lines[1].ends_with('0'));
    }

    #[test]
    fn the_processor_time_is_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 99 1 2";
        assert_eq!(parse_cpu_time(stat), Some(Duration::from_secs(3)));
        assert_eq!(parse_cpu_time("7 (a) S 1"), None);
        let own = cpu_time(&[std::process::id()]).expect("this process");
        assert!(own < Duration::from_secs(86_400));
    }
}
