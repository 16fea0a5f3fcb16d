//! `viewstamp-bench`: load against a running server, and what it cost.
//!
//! The load is *open-loop*: every request has its time on a schedule made beforehand, and its
//! latency counts from that time, whether or not the client got round to sending it. A server that
//! stalls is thus charged for all who would have come meanwhile (no "coordinated omission").
//!
//! One thread and one session per connection, one request out at a time on each. It must never be
//! part of a test: what it says depends on the machine.

mod load;
mod pace;
mod report;
mod topics;

use std::{
    net::{SocketAddr, ToSocketAddrs},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};

const EXAMPLES: &str = "\
Examples:
  # As fast as two connections can, for ten seconds, one stream each:
  viewstamp-bench produce --connections 2 --streams 2

  # What latency is at a fixed load. Late requests count from when they were due:
  viewstamp-bench produce --connections 4 --rate 100000 --duration 30s

  # Read it all back, then remove what was made:
  viewstamp-bench consume --connections 2 --streams 2 --clean

  # From send to delivery, and what the server spends on it:
  viewstamp-bench both --rate 20000 --server-pid $(pidof viewstamp-server)

  # Synced before each acknowledgement; figures for a script:
  viewstamp-bench produce --durability persisted --json figures.json --clean

MB and GB are powers of ten and count payloads only. \
Exit: 0 all went well, 1 errors were seen, 2 usage.";

/// Puts load on a running server and reports throughput, latency and CPU time.
#[derive(Debug, Parser)]
#[command(name = "viewstamp-bench", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send batches of messages.
    #[command(after_help = EXAMPLES)]
    Produce(Options),
    /// Read what is there, from the first message of each partition on.
    #[command(after_help = EXAMPLES)]
    Consume(Options),
    /// Send, and read it at the same time over as many connections again; also reports the time
    /// from when a message was due to be sent until it was delivered.
    #[command(after_help = EXAMPLES)]
    Both(Options),
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Produce,
    Consume,
    Both,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// Written on a quorum.
    Replicated,
    /// Synced on a quorum.
    Persisted,
}

impl Durability {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Persisted => "persisted",
        }
    }
}

#[derive(Args, Clone, Debug)]
struct Options {
    /// Nodes of the server, HOST:PORT, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = resolve, default_value = "127.0.0.1:8090")]
    address: Vec<SocketAddr>,
    /// Who logs in.
    #[arg(long, default_value = "iggy")]
    username: String,
    /// The password.
    #[arg(
        long,
        env = "VIEWSTAMP_BENCH_PASSWORD",
        default_value = "iggy",
        hide_env_values = true
    )]
    password: String,
    /// Connections, each with a thread of its own.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// Streams, PREFIX-1 and so on. Connections take the partitions of all streams in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    streams: u32,
    /// Topics of each stream.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    topics: u32,
    /// Partitions of each topic.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    partitions: u32,
    /// What the streams' names start with. What is missing is created.
    #[arg(long, default_value = "bench")]
    prefix: String,
    /// Durability of the topics; the server's default if absent.
    #[arg(long)]
    durability: Option<Durability>,
    /// Remove the streams at the end.
    #[arg(long)]
    clean: bool,
    /// Bytes of a message's payload.
    #[arg(long, default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=64_000_000))]
    message_size: u32,
    /// Messages of a batch, or asked for by a poll.
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Messages per second over all connections; 0 sends the next batch when the last is answered
    /// ("closed loop": latency then hides the server's stalls).
    #[arg(long, default_value_t = 0)]
    rate: u64,
    /// How long to measure, as in 500ms, 10s, 2m [default: 10s; `consume` reads all there is].
    #[arg(long, value_parser = duration, conflicts_with = "messages")]
    duration: Option<Duration>,
    /// Stop after so many messages, those of the warm-up included.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// How long to run before measuring [default: 1s, or 0s if no duration ends the run].
    #[arg(long, value_parser = duration)]
    warm_up: Option<Duration>,
    /// Processes of the server on this machine, for the CPU time and memory they take.
    #[arg(long, value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Write the figures to this file, as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Options {
    /// How long the measured part lasts, if time ends it.
    fn measured(&self, role: Role) -> Option<Duration> {
        let is_bounded = self.messages.is_some() || role == Role::Consume;
        let default = (!is_bounded).then_some(Duration::from_secs(10));
        self.duration.or(default)
    }

    fn warm_up(&self, role: Role) -> Duration {
        let default = Duration::from_secs(u64::from(self.measured(role).is_some()));
        self.warm_up.unwrap_or(default)
    }

    /// What no server would take, said before anything is created.
    fn check(&self) -> Result<(), String> {
        const FRAME_SIZE_MAX: u64 = 64 << 20;
        let message = u64::from(self.message_size) + 48;
        let frame = message * u64::from(self.batch) + 1024;
        if frame > FRAME_SIZE_MAX {
            return Err(format!(
                "a batch of {} messages of {} bytes is above the {} MiB of a frame: \
                 make --batch or --message-size smaller",
                self.batch,
                self.message_size,
                FRAME_SIZE_MAX >> 20
            ));
        }
        if !(1..=200).contains(&self.prefix.len()) {
            return Err("--prefix must be 1 to 200 bytes long".into());
        }
        Ok(())
    }
}

fn resolve(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "no such host".into())
}

/// A whole number with `ms`, `s` or `m`; seconds if there is no unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let count: u64 = digits
        .parse()
        .map_err(|_| "a whole number with ms, s or m, as in 10s".to_owned())?;
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        unit => return Err(format!("unit {unit:?} is not ms, s or m")),
    };
    let millis = count.checked_mul(unit_ms).filter(|&ms| ms <= 86_400_000);
    millis
        .map(Duration::from_millis)
        .ok_or_else(|| "at most a day".into())
}

fn main() -> ExitCode {
    let (role, options) = match Cli::parse().command {
        Command::Produce(options) => (Role::Produce, options),
        Command::Consume(options) => (Role::Consume, options),
        Command::Both(options) => (Role::Both, options),
    };
    if let Err(message) = options.check() {
        Cli::command()
            .error(ErrorKind::ValueValidation, message)
            .exit();
    }
    match measure(role, &options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("viewstamp-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the load and reports; whether it went without errors.
fn measure(role: Role, options: &Options) -> Result<bool, String> {
    let report = load::run(role, options)?;
    print!("{}", report.table());
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(report.errors_count() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> (Role, Options) {
        let arguments = ["viewstamp-bench"].iter().chain(arguments);
        match Cli::try_parse_from(arguments).expect("valid").command {
            Command::Produce(options) => (Role::Produce, options),
            Command::Consume(options) => (Role::Consume, options),
            Command::Both(options) => (Role::Both, options),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_whole_numbers_with_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "1.5s", "-1s", "1h", "2000m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_run_that_time_ends_warms_up_by_default() {
        let second = Duration::from_secs(1);
        let (role, produce) = options(&["produce"]);
        assert_eq!(produce.measured(role), Some(10 * second));
        assert_eq!(produce.warm_up(role), second);
        let (role, counted) = options(&["produce", "--messages", "5"]);
        assert_eq!(counted.measured(role), None);
        assert_eq!(counted.warm_up(role), Duration::ZERO);
        let (role, consume) = options(&["consume"]);
        assert_eq!(consume.measured(role), None);
    }

    #[test]
    fn a_batch_above_a_frame_is_a_usage_error() {
        let (_, fits) = options(&["produce", "--message-size", "1000000", "--batch", "60"]);
        assert_eq!(fits.check(), Ok(()));
        let (_, large) = options(&["produce", "--message-size", "1000000", "--batch", "70"]);
        assert!(large.check().expect_err("too large").contains("--batch"));
    }
}
