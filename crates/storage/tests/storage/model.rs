//! The journal against a list of prepares, under any mix of appends, truncations, reads, crashes
//! and power losses, at any point of what it is doing.
//!
//! - Nothing told as synced is lost by a power loss, nothing told as written by a crash.
//! - What comes back is the log as it was at some moment since the last finished truncation, cut
//!   at some op: a chain, never a mixture.
//! - A read returns exactly what was appended.

use std::collections::BTreeMap;

use base::{Bytes, Offset, Op, View};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed},
};
use storage::{JournalConfig, JournalEvent, ReadMessages, Start};
use wire::{HEADER_SIZE, array};

use crate::{
    disk::Disk,
    harness::{Harness, Sketch, checksum, config, prepare},
};

#[derive(Clone, Debug)]
enum Command {
    Append {
        size: usize,
        messages: u32,
    },
    /// More ops than headers are kept.
    Burst,
    Submit,
    Sync,
    Steps(usize),
    Truncate {
        percent: usize,
    },
    Read {
        from: usize,
        to: usize,
        bytes_max: usize,
    },
    ReadMessages {
        percent: u64,
        up_to: usize,
    },
    Crash,
    PowerLoss,
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        10 => (HEADER_SIZE..1500, 0..4_u32)
            .prop_map(|(size, messages)| Command::Append { size, messages }),
        1 => Just(Command::Burst),
        4 => Just(Command::Submit),
        2 => Just(Command::Sync),
        8 => (1..8_usize).prop_map(Command::Steps),
        1 => (0..=100_usize).prop_map(|percent| Command::Truncate { percent }),
        3 => (0..=100_usize, 0..=100_usize, 0..6000_usize)
            .prop_map(|(from, to, bytes_max)| Command::Read { from, to, bytes_max }),
        2 => (0..=110_u64, 0..=100_usize)
            .prop_map(|(percent, up_to)| Command::ReadMessages { percent, up_to }),
        1 => Just(Command::Crash),
        1 => Just(Command::PowerLoss),
    ]
}

fn setup() -> impl Strategy<Value = (JournalConfig, u64)> {
    (
        any::<bool>(),
        600..4000_u64,
        256..2000_usize,
        0..4000_usize,
        any::<u64>(),
    )
        .prop_map(|(persisted, segment_size, read_chunk, tail_cache, seed)| {
            let config = JournalConfig {
                persisted,
                segment_size,
                read_chunk,
                tail_cache,
                ..config()
            };
            (config, seed)
        })
}

/// What a read may answer.
struct Expected {
    /// The prepares asked for, as they were when it began.
    prepares: Vec<Bytes>,
    bytes_max: usize,
    /// Whether a truncation may have taken some away since.
    may_be_cut: bool,
}

/// What must be true of a journal.
struct Model {
    log: Vec<Bytes>,
    /// Earlier logs that a crash may bring back in part.
    before: Vec<Vec<Bytes>>,
    truncations: Vec<Op>,
    written: usize,
    synced: usize,
    reads: BTreeMap<u64, Expected>,
    read_count: u64,
    /// Records of a recovery that has not ended.
    recovering: Option<Vec<Bytes>>,
    view: u32,
}

struct World {
    harness: Harness,
    model: Model,
}

fn offsets(prepare: &[u8]) -> Option<(u64, u64)> {
    if prepare.len() < 2 * HEADER_SIZE || prepare[228] != 160 {
        return None;
    }
    let base = u64::from_le_bytes(array(prepare, HEADER_SIZE + 8).expect("long enough"));
    let count = u32::from_le_bytes(array(prepare, HEADER_SIZE + 48).expect("long enough"));
    Some((base, base + u64::from(count)))
}

impl Model {
    fn next_offset(&self) -> u64 {
        self.log
            .iter()
            .rev()
            .find_map(|prepare| offsets(prepare))
            .map_or(0, |(_, end)| end)
    }

    fn expect_read(&mut self, prepares: Vec<Bytes>, bytes_max: usize) -> u64 {
        self.read_count += 1;
        let expected = Expected {
            prepares,
            bytes_max,
            may_be_cut: false,
        };
        self.reads.insert(self.read_count, expected);
        self.read_count
    }

    fn on_read(&mut self, id: u64, prepares: &[Bytes]) {
        let expected = self.reads.remove(&id).expect("a read ends once");
        let whole = &expected.prepares;
        assert!(prepares.len() <= whole.len());
        assert_eq!(*prepares, whole[..prepares.len()]);
        let size: usize = prepares.iter().map(|prepare| prepare.len()).sum();
        assert!(size <= expected.bytes_max || prepares.len() == 1);
        if !expected.may_be_cut {
            assert!(whole.is_empty() || !prepares.is_empty(), "at least one");
            let next = whole.get(prepares.len()).map(|next| size + next.len());
            assert!(
                next.is_none_or(|size| size > expected.bytes_max),
                "as much as was asked for"
            );
        }
    }

    fn on_recovered(&mut self, records: Vec<Bytes>, floor: usize) {
        assert!(
            records.len() >= floor,
            "{} of {floor} are left",
            records.len()
        );
        let is_prefix = |log: &Vec<Bytes>| log.starts_with(&records);
        assert!(
            self.before.iter().chain([&self.log]).any(is_prefix),
            "a mixture"
        );
        self.written = records.len();
        self.synced = records.len();
        self.log = records;
        self.before.clear();
        self.truncations.clear();
    }
}

impl World {
    fn new(config: JournalConfig, seed: u64) -> Self {
        let harness = Harness::opening(Disk::new(seed), config);
        let model = Model {
            log: Vec::new(),
            before: Vec::new(),
            truncations: Vec::new(),
            written: 0,
            synced: 0,
            reads: BTreeMap::new(),
            read_count: 0,
            recovering: Some(Vec::new()),
            view: 1,
        };
        Self { harness, model }
    }

    fn step(&mut self) -> bool {
        let moved = self.harness.step();
        self.observe();
        moved
    }

    fn observe(&mut self) {
        let model = &mut self.model;
        for event in std::mem::take(&mut self.harness.events) {
            match event {
                JournalEvent::Record { prepare } => {
                    model.recovering.as_mut().expect("recovery").push(prepare);
                }
                JournalEvent::Recovered { head, .. } => {
                    let records = model.recovering.take().expect("recovery ends once");
                    assert_eq!(head.0, records.len() as u64);
                    model.on_recovered(records, model.written);
                }
                JournalEvent::Written { op } => model.written = index(op),
                JournalEvent::Synced { op } => model.synced = index(op),
                JournalEvent::Truncated { op } => {
                    model.truncations.retain(|pending| *pending != op);
                    if model.truncations.is_empty() {
                        model.before.clear();
                    }
                }
                JournalEvent::Read { id, prepares } => model.on_read(id, &prepares),
                event => panic!("{event:?} on a disk without faults"),
            }
        }
        let journal = &self.harness.journal;
        if model.recovering.is_none() {
            assert_eq!(index(journal.written_op()), model.written);
            assert_eq!(index(journal.synced_op()), model.synced);
            assert_eq!(index(journal.appended_op()), model.log.len());
        }
    }

    fn recover(&mut self) {
        while self.model.recovering.is_some() {
            assert!(self.step(), "recovery hangs");
        }
    }

    fn percent(&self, percent: usize) -> u64 {
        (self.model.log.len() * percent / 100) as u64
    }

    fn apply(&mut self, command: &Command) {
        if !matches!(
            command,
            Command::Steps(_) | Command::Crash | Command::PowerLoss
        ) {
            self.recover();
        }
        match *command {
            Command::Append { size, messages } => self.append(size, messages),
            Command::Burst => {
                for _ in 0..200 {
                    self.append(HEADER_SIZE, 0);
                }
            }
            Command::Submit => self.harness.submit(),
            Command::Sync => self.harness.journal.sync(&mut self.harness.out),
            Command::Steps(count) => {
                for _ in 0..count {
                    self.step();
                }
            }
            Command::Truncate { percent } => self.truncate(percent),
            Command::Read {
                from,
                to,
                bytes_max,
            } => {
                let (from, to) = (self.percent(from).max(1), self.percent(to));
                let range = index(Op(from - 1))..index(Op(to)).max(index(Op(from - 1)));
                let expected = self.model.log[range].to_vec();
                let id = self.model.expect_read(expected, bytes_max);
                self.harness.start_read(id, from, to, bytes_max);
            }
            Command::ReadMessages { percent, up_to } => self.read_messages(percent, up_to),
            Command::Crash => self.restart(|disk| disk.crash()),
            Command::PowerLoss => {
                self.model.written = self.model.synced;
                self.restart(Disk::power_loss);
            }
        }
        self.observe();
    }

    fn append(&mut self, size: usize, messages: u32) {
        let offset = self.model.next_offset();
        let brings = messages > 0 && size >= 2 * HEADER_SIZE;
        let messages = brings.then_some((offset, messages, offset));
        let model = &mut self.model;
        // The journal itself may not know its head's checksum amid a deep truncation.
        let parent = model.log.last().map_or(0, |last| checksum(last));
        let op = Op(model.log.len() as u64 + 1);
        let view = View(model.view);
        let sketch = Sketch {
            op,
            parent,
            size,
            messages,
            view,
            commit: Op(0),
        };
        model.log.push(prepare(sketch));
        let appended = model.log.last().cloned().expect("just pushed");
        self.harness.journal.append(appended);
    }

    fn truncate(&mut self, percent: usize) {
        let op = self.percent(percent);
        let model = &mut self.model;
        let kept = index(Op(op));
        model.before.push(model.log.clone());
        model.log.truncate(kept);
        model.written = model.written.min(kept);
        model.synced = model.synced.min(kept);
        model.truncations.retain(|pending| pending.0 < op);
        model.truncations.push(Op(op));
        model.view += 1;
        for read in model.reads.values_mut() {
            read.may_be_cut = true;
        }
        self.harness.truncate_after(op);
    }

    fn read_messages(&mut self, percent: u64, up_to: usize) {
        let offset = self.model.next_offset() * percent / 100;
        let up_to = self.percent(up_to);
        let log = &self.model.log[..index(Op(up_to))];
        let contains = |prepare: &Bytes| offsets(prepare).is_some_and(|(_, end)| end > offset);
        let first = log.iter().position(contains).unwrap_or(log.len());
        let id = self.model.expect_read(log[first..].to_vec(), 2000);
        let start = Start::Offset(Offset(offset));
        let range = ReadMessages {
            from: Op(1),
            start,
            up_to: Op(up_to),
            bytes_max: 2000,
            count_max: u32::MAX,
        };
        let harness = &mut self.harness;
        let (files, out) = (&mut harness.files, &mut harness.out);
        harness
            .journal
            .read_messages(id, range, files, out, &mut harness.events);
    }

    fn restart(&mut self, end: impl Fn(&mut Disk)) {
        let harness = &mut self.harness;
        harness.disk.submit(&mut harness.out);
        let mut disk = std::mem::replace(&mut harness.disk, Disk::new(0));
        end(&mut disk);
        *harness = Harness::opening(disk, harness.config.clone());
        self.model.reads.clear();
        self.model.recovering = Some(Vec::new());
    }

    /// Everything ends, and all of it is there.
    fn finish(&mut self) {
        self.recover();
        self.harness.submit();
        while self.step() {}
        assert!(self.harness.journal.is_quiet());
        assert_eq!(self.model.written, self.model.log.len());
        assert!(self.model.reads.is_empty(), "every read ends");
        assert!(self.model.truncations.is_empty(), "every truncation ends");
        self.apply(&Command::Read {
            from: 0,
            to: 100,
            bytes_max: usize::MAX,
        });
        while self.step() {}
        self.apply(&Command::Crash);
        self.recover();
    }
}

fn index(op: Op) -> usize {
    usize::try_from(op.0).expect("small")
}

proptest! {
    #![proptest_config(Config {
        cases: 1000,
        rng_seed: RngSeed::Fixed(2),
        failure_persistence: None,
        ..Config::default()
    })]

    #[test]
    fn a_journal_is_a_list_that_survives(
        (config, seed) in setup(),
        commands in prop::collection::vec(command(), 1..120),
    ) {
        let mut world = World::new(config, seed);
        for command in &commands {
            world.apply(command);
        }
        world.finish();
    }
}
