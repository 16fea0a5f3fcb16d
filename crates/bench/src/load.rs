//! Makes the load: topics first, then one thread per connection, each on its own schedule.
//!
//! A thread waits for the time of its next request with the kernel's timer, not with the
//! runtime's, whose whole milliseconds would end up in every latency.

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use base::{Domain, Prng};
use client::Polled;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use wire::{
    BatchBuilder, Consumer, ConsumerKind, Identifier, OptionalPartition, Partitioning,
    PollingStrategy, Request,
    batch::Message,
    request::{PollMessages, SendMessages, SendTarget},
};

use crate::{
    Options, Role,
    pace::Pace,
    report::{Cost, Report, Sides, Tally, cpu_time, memory_peak_kib, micros},
    topics::{Lane, Session, prepare, remove},
};

/// After so many errors in a row a connection gives up.
const ERRORS_MAX: u32 = 10;
/// Pause of a consumer that has read all there is in all its partitions.
const EMPTY_PAUSE: Duration = Duration::from_millis(1);

/// What all threads of a run share.
struct Run<'a> {
    options: &'a Options,
    role: Role,
    lanes: &'a [Lane],
    started: Instant,
    /// The same moment in microseconds since the epoch.
    started_at: u64,
    warm_up: Duration,
    /// When it ends, since the start, if time ends it.
    end: Option<Duration>,
    /// Connections that still send.
    producing: AtomicU64,
    sent: AtomicU64,
    read: AtomicU64,
}

/// Runs the load from the first topic to the last answer.
///
/// # Errors
/// If it could not even start.
pub(crate) fn run(role: Role, options: &Options) -> Result<Report, String> {
    // A wrong process id must not come to light at the end.
    cpu_time(&options.server_pid)?;
    let mut admin = Session::open(options)?;
    let lanes = prepare(&mut admin, role, options)?;
    let open = |_| Session::open(options);
    let sessions = |count: u32| (0..count).map(open).collect::<Result<Vec<_>, _>>();
    let is_read = role != Role::Produce;
    let is_sent = role != Role::Consume;
    let producers = sessions(if is_sent { options.connections } else { 0 })?;
    let consumers = sessions(if is_read { options.connections } else { 0 })?;
    let warm_up = options.warm_up(role);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let run = Run {
        options,
        role,
        lanes: &lanes,
        started: Instant::now(),
        started_at: micros(since_epoch.unwrap_or_default()),
        warm_up,
        end: options.measured(role).map(|measured| warm_up + measured),
        producing: AtomicU64::new(producers.len() as u64),
        sent: AtomicU64::new(0),
        read: AtomicU64::new(0),
    };
    let (sides, cost) = run.load(producers, consumers)?;
    if options.clean {
        remove(&mut admin, options)?;
    }
    Ok(Report {
        setting: setting(role, options),
        title: title(role, options),
        warm_up,
        sides,
        cost,
    })
}

impl Run<'_> {
    /// All threads, from start to end; meanwhile the CPU times and the progress bar.
    fn load(
        &self,
        producers: Vec<Session>,
        consumers: Vec<Session>,
    ) -> Result<(Sides, Cost), String> {
        let bar = self.progress_bar();
        let own = [std::process::id()];
        let server = &self.options.server_pid;
        thread::scope(|scope| {
            let (mut sending, mut reading) = (Vec::new(), Vec::new());
            for (index, session) in (0_u64..).zip(producers) {
                sending.push(scope.spawn(move || self.produce(index, session)));
            }
            for (index, session) in (0_u64..).zip(consumers) {
                reading.push(scope.spawn(move || self.consume(index, session)));
            }
            thread::sleep(self.warm_up.saturating_sub(self.started.elapsed()));
            let before = (cpu_time(&own)?, cpu_time(server)?);
            while sending
                .iter()
                .chain(&reading)
                .any(|thread| !thread.is_finished())
            {
                thread::sleep(Duration::from_millis(20));
                self.show(&bar);
            }
            bar.finish_and_clear();
            let cost = Cost {
                client_cpu: cpu_time(&own)?.saturating_sub(before.0),
                server_cpu: match server.is_empty() {
                    true => None,
                    false => Some(cpu_time(server)?.saturating_sub(before.1)),
                },
                server_memory_peak_kib: memory_peak_kib(server),
            };
            let mut sides = Sides::new();
            for (name, threads) in [("produce", sending), ("consume", reading)] {
                let tallies = threads.into_iter().map(|thread| thread.join());
                let tallies = tallies.map(|tally| tally.expect("a thread's panic is ours"));
                let merged = tallies.reduce(|mut all, tally| {
                    all.merge(tally);
                    all
                });
                sides.extend(merged.map(|tally| (name, tally)));
            }
            Ok((sides, cost))
        })
    }

    fn progress_bar(&self) -> ProgressBar {
        if !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = match (self.end, self.options.messages) {
            (Some(end), _) => ProgressBar::new(micros(end)),
            (None, Some(messages)) => ProgressBar::new(messages),
            (None, None) => ProgressBar::new_spinner(),
        };
        let style = ProgressStyle::with_template("[{elapsed}] {wide_bar} {msg}");
        bar.with_style(style.expect("a constant, valid template"))
    }

    fn show(&self, bar: &ProgressBar) {
        let (sent, read) = (self.sent.load(Relaxed), self.read.load(Relaxed));
        bar.set_position(match (self.end, self.role) {
            (Some(_), _) => micros(self.started.elapsed()),
            (None, Role::Consume) => read,
            (None, _) => sent,
        });
        bar.set_message(format!("{sent} sent, {read} read"));
    }

    /// The partitions of one connection: every so-many-th, or one that is shared.
    fn lanes_of(&self, connection: u64) -> Vec<Lane> {
        let connection = usize::try_from(connection).expect("at most 1000");
        let step = self.options.connections as usize;
        let own: Vec<Lane> = self
            .lanes
            .iter()
            .skip(connection)
            .step_by(step)
            .copied()
            .collect();
        if own.is_empty() {
            return vec![self.lanes[connection % self.lanes.len()]];
        }
        own
    }

    fn pace(&self, connection: u64) -> Pace {
        Pace {
            rate: self.options.rate,
            batch: u64::from(self.options.batch),
            connections: u64::from(self.options.connections),
            connection,
        }
    }

    fn is_over(&self, due: Option<Duration>) -> bool {
        self.end
            .is_some_and(|end| due.unwrap_or_default().max(self.started.elapsed()) >= end)
    }

    /// One connection that sends.
    fn produce(&self, index: u64, mut session: Session) -> Tally {
        let mut tally = Tally::new();
        let (pace, lanes) = (self.pace(index), self.lanes_of(index));
        let mut batches = Batches::new(self.options.message_size, index);
        let mut errors = 0;
        for (request, lane) in (0..).zip(lanes.iter().cycle()) {
            let due = pace.due(request);
            let total = self.options.messages.unwrap_or(u64::MAX);
            let count = pace.share(request, total);
            if count == 0 || errors == ERRORS_MAX || self.is_over(due) {
                let end = self.end.unwrap_or_default();
                tally.unsent = pace.count_before(request, end) * pace.batch;
                break;
            }
            let origin = self.started_at + micros(due.unwrap_or_else(|| self.started.elapsed()));
            let batch = batches.next(count, origin);
            // Closed loop: making the batch is not the server's time.
            let due = due.unwrap_or_else(|| self.started.elapsed());
            self.wait_until(due);
            let send = SendMessages {
                target: SendTarget {
                    stream: Identifier::Numeric(lane.target.stream),
                    topic: Identifier::Numeric(lane.target.topic),
                    partitioning: Partitioning::PartitionId(lane.target.partition),
                    messages_count: u32::try_from(count).expect("at most a batch"),
                },
                batch: &batch,
            };
            match session.request(&Request::SendMessages(send)) {
                Ok(_) => {
                    errors = 0;
                    self.sent.fetch_add(count, Relaxed);
                    self.answered(
                        &mut tally,
                        due,
                        count,
                        count * u64::from(self.options.message_size),
                    );
                }
                Err(error) => {
                    errors += 1;
                    tally.on_error(error.to_string());
                }
            }
        }
        self.producing.fetch_sub(1, Relaxed);
        tally
    }

    /// One connection that reads its partitions in turn.
    fn consume(&self, index: u64, mut session: Session) -> Tally {
        let mut tally = Tally::new();
        let (pace, mut lanes) = (self.pace(index), self.lanes_of(index));
        let (mut errors, mut empty, mut request) = (0, 0, 0);
        while !lanes.is_empty() && errors < ERRORS_MAX {
            // Beside producers, a consumer has no schedule but theirs, and reads to their end.
            let due = (self.role == Role::Consume)
                .then(|| pace.due(request))
                .flatten();
            let total = self.options.messages.unwrap_or(u64::MAX);
            let is_enough = self.is_over(due) || self.read.load(Relaxed) >= total;
            if self.role == Role::Consume && is_enough {
                break;
            }
            let due = due.unwrap_or_else(|| self.started.elapsed());
            self.wait_until(due);
            let at = usize::try_from(request).expect("64 bits") % lanes.len();
            request += 1;
            // Read before the poll: what was sent before, the poll would have shown.
            let is_last = self.producing.load(Relaxed) == 0;
            match self.poll(&mut session, &mut lanes[at], &mut tally, due) {
                Ok(0) if is_last => drop(lanes.swap_remove(at)),
                Ok(0) => {
                    empty += 1;
                    if empty >= lanes.len() {
                        thread::sleep(EMPTY_PAUSE);
                        empty = 0;
                    }
                }
                Ok(_) => (errors, empty) = (0, 0),
                Err(error) => {
                    errors += 1;
                    tally.on_error(error);
                }
            }
        }
        tally
    }

    /// One poll; how many messages it brought.
    fn poll(
        &self,
        session: &mut Session,
        lane: &mut Lane,
        tally: &mut Tally,
        due: Duration,
    ) -> Result<u64, String> {
        let poll = PollMessages {
            consumer: Consumer {
                kind: ConsumerKind::Single,
                id: Identifier::Numeric(0),
            },
            stream: Identifier::Numeric(lane.target.stream),
            topic: Identifier::Numeric(lane.target.topic),
            partition: OptionalPartition(Some(lane.target.partition)),
            strategy: lane
                .next
                .map_or(PollingStrategy::First, PollingStrategy::Offset),
            count: self.options.batch,
            auto_commit: false,
        };
        let reply = session.request(&Request::PollMessages(poll));
        let reply = reply.map_err(|error| error.to_string())?;
        let polled = Polled::read(&reply).map_err(|error| error.to_string())?;
        let (Some(first), Some(last)) = (polled.messages.first(), polled.messages.last()) else {
            return Ok(0);
        };
        let expected = lane.next.unwrap_or(first.offset.0);
        lane.next = Some(last.offset.0 + 1);
        if first.offset.0 != expected {
            return Err("the poll starts at another offset than was asked for".into());
        }
        let count = polled.messages.len() as u64;
        let sizes = polled
            .messages
            .iter()
            .map(|message| message.frame.payload().len() as u64);
        self.read.fetch_add(count, Relaxed);
        self.answered(tally, due, count, sizes.sum());
        if self.role == Role::Both && due >= self.warm_up {
            let now = self.started_at + micros(self.started.elapsed());
            for message in &polled.messages {
                let age = now.saturating_sub(message.origin_timestamp.0);
                tally.delivery.saturating_record(age);
            }
        }
        Ok(count)
    }

    fn answered(&self, tally: &mut Tally, due: Duration, messages: u64, bytes: u64) {
        if due >= self.warm_up {
            let now = self.started.elapsed();
            tally.on_answer(now - due, now, messages, bytes);
        }
    }

    fn wait_until(&self, due: Duration) {
        let left = due.saturating_sub(self.started.elapsed());
        if !left.is_zero() {
            thread::sleep(left);
        }
    }
}

/// Makes batches of messages with random payloads.
struct Batches {
    payload: Vec<u8>,
    /// The id of the next message.
    id: u128,
}

impl Batches {
    fn new(message_size: u32, connection: u64) -> Self {
        let mut prng = Prng::new(0, Domain::Workload, connection);
        let words = std::iter::repeat_with(|| prng.next_u64().to_le_bytes());
        let payload = words.flatten().take(message_size as usize).collect();
        let id = prng.next_u128() >> 1;
        Self { payload, id }
    }

    fn next(&mut self, count: u64, origin_timestamp: u64) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            self.id += 1;
            let message = Message {
                id: self.id,
                origin_timestamp,
                payload: &self.payload,
                user_headers: &[],
            };
            builder
                .push(message)
                .expect("sizes were checked with the options");
        }
        builder.finish().expect("there is a message")
    }
}

fn title(role: Role, options: &Options) -> String {
    let load = match options.rate {
        0 => "closed loop".to_owned(),
        rate => format!("{rate} messages/s"),
    };
    format!(
        "{role:?}: {} connections, {} x {} x {} partitions, {}-byte messages, {} a batch, {load}",
        options.connections,
        options.streams,
        options.topics,
        options.partitions,
        options.message_size,
        options.batch,
    )
}

fn setting(role: Role, options: &Options) -> serde_json::Value {
    json!({
        "command": format!("{role:?}").to_lowercase(),
        "connections": options.connections,
        "streams": options.streams,
        "topics": options.topics,
        "partitions": options.partitions,
        "durability": options.durability.map(|durability| durability.as_str()),
        "message_size": options.message_size,
        "batch": options.batch,
        "rate": options.rate,
        "warm_up_ms": options.warm_up(role).as_millis(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_what_servers_take() {
        let mut batches = Batches::new(1000, 1);
        let (first, second) = (batches.next(250, 7), batches.next(1, 8));
        assert_eq!(first.len(), 256 + 250 * 1048);
        assert!(wire::batch::verify(&first).is_ok() && wire::batch::verify(&second).is_ok());
        assert_ne!(
            first[256 + 8..][..16],
            second[256 + 8..][..16],
            "ids differ"
        );
    }
}
