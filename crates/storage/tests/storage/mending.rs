//! A journal on a disk that loses bits, sectors, files and power, mended from a whole copy.
//!
//! A run draws appends, truncations, reads, scrubs, damage anywhere, crashes and power losses at
//! any request from its seed, and ends with everything repaired.
//!
//! - A record that is told stood in the log at that op; what is not told is told as missing, under
//!   its right identity.
//! - What was synced is there or known to be missing, unless the end of the log was damaged, and
//!   then that was said before anything was cut.
//! - At the end the log is the copy.

use std::collections::BTreeMap;

use base::{Bytes, Domain, Op, Prng, View};
use storage::{JournalConfig, JournalEvent};
use wire::{
    HEADER_SIZE,
    replica::{PrepareHeader, verify_header},
};

use crate::{
    disk::Disk,
    harness::{DIRECTORY, Harness, Sketch, checksum, config, prepare},
};

struct World {
    harness: Harness,
    prng: Prng,
    /// The whole copy: op 1 first. What is appended and not written may be lost from its end.
    log: Vec<Bytes>,
    /// Logs that a truncation has not surely cut yet.
    before: Vec<Vec<Bytes>>,
    synced: usize,
    written: usize,
    /// Records of a recovery that has not ended.
    recovering: Option<BTreeMap<Op, Bytes>>,
    tail_damaged: bool,
    /// The lowest op that damage may have hit since the log was last whole.
    damaged_from: usize,
    view: u32,
    /// What they may answer a beginning of.
    reads: BTreeMap<u64, Vec<Bytes>>,
    read_count: u64,
}

fn index(op: Op) -> usize {
    usize::try_from(op.0).expect("small")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed, Domain::Process, 1);
        let config = JournalConfig {
            persisted: prng.chance(2, 3),
            segment_size: 600 + prng.below(3000),
            read_chunk: 256 + prng.index(1500),
            tail_cache: prng.index(4000),
            index_interval: 1 + prng.below(2000),
            ..config()
        };
        Self {
            harness: Harness::opening(Disk::new(seed), config),
            prng,
            log: Vec::new(),
            before: Vec::new(),
            synced: 0,
            written: 0,
            recovering: Some(BTreeMap::new()),
            tail_damaged: false,
            damaged_from: usize::MAX,
            view: 1,
            reads: BTreeMap::new(),
            read_count: 0,
        }
    }

    fn step(&mut self) -> bool {
        let moved = self.harness.step();
        self.observe();
        moved
    }

    fn observe(&mut self) {
        for event in std::mem::take(&mut self.harness.events) {
            match event {
                JournalEvent::Record { prepare } => {
                    let header = PrepareHeader::verify(&prepare).expect("a whole record");
                    let records = self.recovering.as_mut().expect("recovery");
                    assert!(records.insert(header.op, prepare).is_none(), "told once");
                }
                JournalEvent::TailDamaged { after } => {
                    assert!(index(after) + 1 >= self.damaged_from, "nothing was damaged");
                    self.tail_damaged = true;
                    // From now on the owner knows.
                    self.written = index(after);
                    self.synced = index(after);
                    let harness = &mut self.harness;
                    harness
                        .journal
                        .cut_damaged(&mut harness.files, &mut harness.out);
                }
                JournalEvent::Recovered { head, gaps, .. } => self.on_recovered(head, &gaps),
                JournalEvent::Written { op } => self.written = index(op),
                JournalEvent::Synced { op } => self.synced = index(op),
                JournalEvent::Truncated { .. } => self.before.clear(),
                JournalEvent::Gap(gap) => {
                    let copy = |log: &Vec<Bytes>| log.get(index(gap.to) - 1).cloned();
                    let logs = [&self.log].into_iter().chain(&self.before);
                    let mut copies = logs.filter_map(copy);
                    assert!(copies.any(|copy| checksum(&copy) == gap.checksum));
                }
                JournalEvent::Repaired { op } => assert!(!self.harness.journal.is_missing(op)),
                JournalEvent::Read { id, prepares } => {
                    let expected = self.reads.remove(&id).expect("a read ends once");
                    assert!(expected.starts_with(&prepares));
                }
                JournalEvent::Damaged(damage) => {
                    let id = damage.read.expect("a log that can be mended");
                    self.reads.remove(&id).expect("a read ends once");
                }
                event => panic!("{event:?}"),
            }
        }
    }

    fn on_recovered(&mut self, head: Op, gaps: &[storage::Gap]) {
        let records = self.recovering.take().expect("recovery ends once");
        let missing = |op: u64| {
            let gap = |gap: &&storage::Gap| gap.from.0 <= op && op <= gap.to.0;
            gaps.iter().find(gap).is_some()
        };
        for op in 1..=head.0 {
            assert!(records.contains_key(&Op(op)) != missing(op), "op {op}");
        }
        assert!(records.keys().all(|op| *op <= head));
        let fits = |log: &&Vec<Bytes>| {
            log.len() >= index(head)
                && records
                    .iter()
                    .all(|(op, record)| log[index(*op) - 1] == *record)
                && gaps
                    .iter()
                    .all(|gap| checksum(&log[index(gap.to) - 1]) == gap.checksum)
        };
        let logs: Vec<_> = [&self.log].into_iter().chain(&self.before).collect();
        let log = logs.into_iter().find(fits).expect("a mixture").clone();
        if !self.tail_damaged {
            assert!(index(head) >= self.written, "{head} of {}", self.written);
        }
        let lost = log[index(head)..].to_vec();
        let may_go_on = log == self.log;
        self.log = log;
        self.log.truncate(index(head));
        self.before.clear();
        self.written = index(head);
        self.synced = index(head);
        if self.tail_damaged && may_go_on {
            // The owner fetches what was there from a peer.
            for prepare in lost {
                self.log.push(prepare.clone());
                self.harness.journal.append(prepare);
            }
        }
        self.tail_damaged = false;
    }

    fn recover(&mut self) {
        for _ in 0..100_000 {
            if self.recovering.is_none() {
                return;
            }
            assert!(self.step(), "recovery hangs");
        }
        panic!("no end of recovery");
    }

    /// Everything written is durable, and nothing is in flight.
    fn rest(&mut self) {
        self.recover();
        self.harness.submit();
        while self.step() {}
        self.harness.journal.sync(&mut self.harness.out);
        while self.step() {}
    }

    fn append(&mut self) {
        let size = HEADER_SIZE + self.prng.index(1200);
        let messages = (size >= 2 * HEADER_SIZE && self.prng.chance(1, 2)).then(|| {
            let offset = self.log.len() as u64 * 3;
            (offset, 3, offset)
        });
        let sketch = Sketch {
            op: Op(self.log.len() as u64 + 1),
            parent: self.log.last().map_or(0, |last| checksum(last)),
            size,
            messages,
            view: View(self.view),
            commit: Op(0),
        };
        let prepare = prepare(sketch);
        self.log.push(prepare.clone());
        self.harness.journal.append(prepare);
    }

    fn truncate(&mut self) {
        let len = self.log.len();
        let op = len - self.prng.index(len.min(6) + 1);
        let gaps = self.harness.journal.gaps();
        let amid = |gap: &storage::Gap| index(gap.from) <= op && op < index(gap.to);
        if gaps.iter().any(amid) {
            return; // a claim of its own
        }
        self.before.push(self.log.clone());
        self.log.truncate(op);
        self.written = self.written.min(op);
        self.synced = self.synced.min(op);
        self.view += 1;
        self.harness.truncate_after(op as u64);
    }

    /// Something on the disk is not what it was, while everything is durable.
    fn damage(&mut self) {
        self.rest();
        let names = self.harness.disk.names(DIRECTORY);
        if names.is_empty() {
            return;
        }
        let file = self.prng.index(names.len());
        let path = format!("{DIRECTORY}/{}", names[file]);
        let content = self.harness.disk.content(&path);
        if content.is_empty() {
            return;
        }
        let is_last = file + 1 == names.len();
        let at = self.prng.index(content.len());
        let mut low = at;
        match self.prng.below(8) {
            0..=3 => {
                let mask = 1 << self.prng.below(8);
                self.harness.disk.flip(&path, at, mask);
            }
            4 | 5 => {
                low = at / 512 * 512;
                self.harness.disk.spoil(&path, at / 512);
            }
            6 if !is_last => {
                low = 0;
                self.harness.disk.lose(&path);
                if file == 0 {
                    // A log without its beginning is another log.
                    self.harness.disk.put(&path, &[]);
                }
                self.crash(false);
            }
            6 | 7 if !is_last => {
                // Not found before the log is cut there, it would look like torn.
                self.harness.disk.put(&path, &content[..at]);
                self.crash(false);
            }
            _ => return,
        }
        let first: usize = names[file][..20].parse().expect("a segment");
        let op = op_at(&content, first, low);
        self.damaged_from = self.damaged_from.min(op);
    }

    fn read(&mut self) {
        if self.log.is_empty() {
            return;
        }
        let from = 1 + self.prng.index(self.log.len());
        let to = (from + self.prng.index(10)).min(self.log.len());
        self.read_count += 1;
        let expected = self.log[from - 1..to].to_vec();
        self.reads.insert(self.read_count, expected);
        let bytes_max = self.prng.index(8000);
        let id = self.read_count;
        self.harness
            .start_read(id, from as u64, to as u64, bytes_max);
    }

    /// Some of what is wanted comes from a peer.
    fn repair(&mut self, all: bool) {
        let wanted: Vec<_> = self.harness.journal.wanted().collect();
        for (op, identity) in wanted {
            if !all && self.prng.chance(1, 2) {
                continue;
            }
            let logs = [&self.log].into_iter().chain(&self.before);
            let frame = |log: &Vec<Bytes>| log.get(index(op) - 1).cloned();
            let same = |frame: &Bytes| checksum(frame) == identity;
            let frame = logs
                .filter_map(frame)
                .find(same)
                .expect("the identity is right");
            let harness = &mut self.harness;
            let (files, out) = (&mut harness.files, &mut harness.out);
            assert!(harness.journal.repair(frame, files, out));
        }
    }

    fn crash(&mut self, power: bool) {
        if power {
            self.written = self.synced;
        }
        let harness = &mut self.harness;
        harness.disk.submit(&mut harness.out);
        let mut disk = std::mem::replace(&mut harness.disk, Disk::new(0));
        if power {
            disk.power_loss();
        } else {
            disk.crash();
        }
        *harness = Harness::opening(disk, harness.config.clone());
        self.reads.clear();
        self.recovering = Some(BTreeMap::new());
        self.tail_damaged = false;
    }

    fn act(&mut self) {
        let choice = self.prng.below(100);
        if !(40..70).contains(&choice) && choice < 96 {
            self.recover();
        }
        match choice {
            0..30 => self.append(),
            30..40 => self.harness.submit(),
            40..70 => {
                for _ in 0..self.prng.below(8) {
                    self.step();
                }
            }
            70..73 => self.truncate(),
            73..80 => self.damage(),
            80..86 => self.read(),
            86..90 => {
                let harness = &mut self.harness;
                harness.journal.scrub(&mut harness.files, &mut harness.out);
            }
            90..94 => self.repair(false),
            94..96 => self.harness.journal.sync(&mut self.harness.out),
            96..98 => self.crash(false),
            _ => self.crash(true),
        }
        self.observe();
    }

    fn finish(&mut self) {
        for restart in [false, true, true] {
            if restart {
                self.crash(false);
            }
            self.rest();
            for _ in 0..10_000 {
                if self.harness.journal.wanted().next().is_none() {
                    break;
                }
                self.repair(true);
                while self.step() {}
            }
            self.rest();
            assert_eq!(self.harness.journal.gaps(), [], "everything comes back");
            assert_eq!(self.harness.journal.synced_op().0, self.log.len() as u64);
        }
        assert!(self.reads.is_empty(), "every read ends");
        let count = self.log.len() as u64;
        self.harness.start_read(0, 1, count, usize::MAX);
        self.reads.insert(0, self.log.clone());
        while self.step() {}
        assert!(self.reads.is_empty());
        let mut disk = std::mem::replace(&mut self.harness.disk, Disk::new(0));
        disk.crash();
        let last = Harness::on(disk, self.harness.config.clone());
        assert_eq!(last.recovered(), self.log);
    }
}

/// The op whose record is at `at` of a segment.
fn op_at(content: &[u8], first: usize, at: usize) -> usize {
    let (mut op, mut position) = (first, HEADER_SIZE);
    while position + HEADER_SIZE <= content.len() && position <= at {
        if verify_header(&content[position..]).is_err() {
            return op.min(first); // damaged before
        }
        let header = PrepareHeader::decode(&content[position..]).expect("a record");
        position += header.size as usize;
        op += 1;
    }
    op.saturating_sub(1).max(first)
}

#[test]
fn whatever_is_damaged_comes_back() {
    let seeds = std::env::var("MENDING_SEEDS").ok();
    let count = seeds
        .and_then(|count| count.parse().ok())
        .unwrap_or(1000_u64);
    let only = std::env::var("MENDING_SEED").ok();
    let only = only.and_then(|seed| seed.parse::<u64>().ok());
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        let told = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..150 {
                world.act();
            }
            world.finish();
        });
        assert!(told.is_ok(), "seed {seed}");
    }
}
