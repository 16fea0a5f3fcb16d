//! A journal on a test disk, and prepares to put into it.

use base::{Buffer, Bytes, ClientId, GroupId, Op, ReplicaIndex, Timestamp, View};
use platform::{DiskError, Outbox, Path};
use storage::{
    Damage, FileIds, Gap, Journal, JournalConfig, JournalEvent, ReadMessages, ReadOps, Start,
};
use wire::{HEADER_SIZE, Operation, put, replica::PrepareHeader};

use crate::disk::Disk;

pub(crate) const CLUSTER: u128 = 0xc1a5;
pub(crate) const GROUP: GroupId = GroupId(7 << 10 | 3);
pub(crate) const DIRECTORY: &str = "partitions/0000000000001c03";

/// A prepare of `size` bytes; with `messages`, it appends some from an offset on, at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketch {
    pub(crate) op: Op,
    pub(crate) parent: u128,
    pub(crate) size: usize,
    pub(crate) messages: Option<(u64, u32, u64)>,
    /// Distinguishes two prepares of one op.
    pub(crate) view: View,
    pub(crate) commit: Op,
}

pub(crate) fn prepare(sketch: Sketch) -> Bytes {
    assert!(sketch.size >= HEADER_SIZE);
    let mut frame = Buffer::zeroed(sketch.size);
    for (index, byte) in frame
        .as_mut_slice()
        .iter_mut()
        .enumerate()
        .skip(HEADER_SIZE)
    {
        *byte = u8::try_from((index as u64 * 31 + sketch.op.0) % 251).expect("below 251");
    }
    let mut operation = Operation::StoreConsumerOffset;
    if let Some((offset, count, timestamp)) = sketch.messages {
        assert!(
            sketch.size >= 2 * HEADER_SIZE,
            "a batch header stands in the body"
        );
        put(frame.as_mut_slice(), HEADER_SIZE + 8, offset.to_le_bytes());
        put(
            frame.as_mut_slice(),
            HEADER_SIZE + 16,
            timestamp.to_le_bytes(),
        );
        put(frame.as_mut_slice(), HEADER_SIZE + 48, count.to_le_bytes());
        operation = Operation::SendMessages;
    }
    let header = PrepareHeader {
        checksum: 0,
        checksum_body: 0,
        cluster: CLUSTER,
        size: 0,
        view: sketch.view,
        replica: ReplicaIndex(0),
        parent: sketch.parent,
        client: ClientId(1),
        group: GROUP,
        op: sketch.op,
        commit: sketch.commit,
        timestamp: Timestamp(sketch.op.0),
        request: sketch.op.0,
        session: 1,
        request_checksum: 0,
        user: 1,
        operation,
        encryption: None,
    };
    header.seal_into(frame.as_mut_slice());
    frame.freeze()
}

pub(crate) fn checksum(prepare: &[u8]) -> u128 {
    PrepareHeader::decode(prepare).expect("a prepare").checksum
}

pub(crate) fn config() -> JournalConfig {
    JournalConfig {
        group: GROUP,
        cluster: CLUSTER,
        directory: Path::from(DIRECTORY),
        segment_size: 4096,
        persisted: true,
        loses_pages: true,
        owner: 9,
        read_chunk: 1024,
        index_interval: 700,
        tail_cache: 1500,
    }
}

/// A journal and what it said.
pub(crate) struct Harness {
    pub(crate) config: JournalConfig,
    pub(crate) disk: Disk,
    pub(crate) journal: Journal,
    pub(crate) files: FileIds,
    pub(crate) out: Outbox,
    pub(crate) events: Vec<JournalEvent>,
    /// The newest messages appended: next offset and timestamp.
    pub(crate) next_offset: u64,
}

impl Harness {
    /// An empty log.
    pub(crate) fn new(config: JournalConfig) -> Self {
        Self::on(Disk::new(1), config)
    }

    /// The log on a disk; recovered.
    pub(crate) fn on(disk: Disk, config: JournalConfig) -> Self {
        let mut harness = Self::opening(disk, config);
        harness.run();
        harness
    }

    /// The log on a disk; recovery has begun.
    pub(crate) fn opening(disk: Disk, config: JournalConfig) -> Self {
        let mut out = Outbox::new();
        let journal = Journal::open(config.clone(), &mut out);
        let files = FileIds::default();
        Self {
            config,
            disk,
            journal,
            files,
            out,
            events: Vec::new(),
            next_offset: 0,
        }
    }

    /// The same disk with a new process.
    pub(crate) fn reopen(mut self) -> Self {
        self.disk.crash();
        Self::on(self.disk, self.config)
    }

    /// One completion. Answers whether there was one.
    pub(crate) fn step(&mut self) -> bool {
        self.disk.submit(&mut self.out);
        let Some(done) = self.disk.step() else {
            return false;
        };
        self.journal
            .on_disk(done, &mut self.files, &mut self.out, &mut self.events);
        true
    }

    /// All completions.
    pub(crate) fn run(&mut self) {
        while self.step() {}
    }

    pub(crate) fn submit(&mut self) {
        self.journal.submit(&mut self.files, &mut self.out);
    }

    /// Gives the journal what it lacks, from a whole copy of its log that begins with op 1, and
    /// lets it be written.
    pub(crate) fn mend(&mut self, reference: &[Bytes]) {
        loop {
            let wanted: Vec<_> = self.journal.wanted().collect();
            if wanted.is_empty() {
                break;
            }
            for (op, identity) in wanted {
                let frame = &reference[usize::try_from(op.0).expect("small") - 1];
                assert_eq!(checksum(frame), identity, "op {op} is another one");
                let (files, out) = (&mut self.files, &mut self.out);
                assert!(self.journal.repair(frame.clone(), files, out));
                assert!(!self.journal.repair(frame.clone(), files, out), "once");
            }
        }
        self.run();
        assert_eq!(self.journal.gaps(), []);
    }

    /// The owner has noted that the log may lack ops.
    pub(crate) fn cut_damaged(&mut self) {
        self.journal.cut_damaged(&mut self.files, &mut self.out);
        self.run();
    }

    /// What recovery has told, and the journal since.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let gaps = |event: &JournalEvent| match event {
            JournalEvent::Recovered { gaps, .. } => gaps.clone(),
            JournalEvent::Gap(gap) => vec![*gap],
            _ => Vec::new(),
        };
        self.events.iter().flat_map(gaps).collect()
    }

    /// After which op the end is damaged, if it is.
    pub(crate) fn tail_damaged(&self) -> Option<u64> {
        self.events.iter().find_map(|event| match event {
            JournalEvent::TailDamaged { after } => Some(after.0),
            _ => None,
        })
    }

    pub(crate) fn reset(&mut self, base: u64, checksum: u128) {
        self.journal
            .reset(Op(base), checksum, &mut self.files, &mut self.out);
    }

    pub(crate) fn drop_before(&mut self, op: u64) {
        self.journal
            .drop_before(Op(op), &mut self.files, &mut self.out);
    }

    pub(crate) fn retry(&mut self) {
        self.journal.retry(&mut self.files, &mut self.out);
        self.run();
    }

    pub(crate) fn scrub(&mut self) {
        self.journal.scrub(&mut self.files, &mut self.out);
        self.run();
    }

    pub(crate) fn truncate_after(&mut self, op: u64) {
        self.journal
            .truncate_after(Op(op), &mut self.files, &mut self.out);
    }

    /// Appends the next op.
    pub(crate) fn append(&mut self, size: usize) -> Bytes {
        self.append_with(size, None, View(1))
    }

    /// Appends the next op with `count` messages.
    pub(crate) fn append_messages(&mut self, size: usize, count: u32, timestamp: u64) -> Bytes {
        let messages = Some((self.next_offset, count, timestamp));
        self.next_offset += u64::from(count);
        self.append_with(size, messages, View(1))
    }

    pub(crate) fn append_with(
        &mut self,
        size: usize,
        messages: Option<(u64, u32, u64)>,
        view: View,
    ) -> Bytes {
        let (head, parent) = self.journal.head();
        let prepare = prepare(Sketch {
            op: head.next(),
            parent,
            size,
            messages,
            view,
            commit: Op(0),
        });
        self.journal.append(prepare.clone());
        prepare
    }

    /// Appends, writes and waits.
    pub(crate) fn write(&mut self, size: usize) -> Bytes {
        let prepare = self.append(size);
        self.submit();
        self.run();
        prepare
    }

    /// Starts a read.
    pub(crate) fn start_read(&mut self, id: u64, from: u64, to: u64, bytes_max: usize) {
        let range = ReadOps {
            from: Op(from),
            to: Op(to),
            bytes_max,
        };
        self.journal
            .read(id, range, &mut self.files, &mut self.out, &mut self.events);
    }

    /// Reads a range and waits.
    pub(crate) fn read(&mut self, from: u64, to: u64, bytes_max: usize) -> Vec<Bytes> {
        self.start_read(77, from, to, bytes_max);
        self.run();
        self.take_read(77)
    }

    /// Reads messages and waits: the ops found.
    pub(crate) fn read_messages(&mut self, start: Start, up_to: u64, bytes_max: usize) -> Vec<u64> {
        self.read_range(ReadMessages {
            from: Op(1),
            start,
            up_to: Op(up_to),
            bytes_max,
            count_max: u32::MAX,
        })
    }

    /// The same with all bounds given.
    pub(crate) fn read_range(&mut self, range: ReadMessages) -> Vec<u64> {
        self.journal
            .read_messages(78, range, &mut self.files, &mut self.out, &mut self.events);
        self.run();
        let op = |prepare: &Bytes| {
            PrepareHeader::verify(prepare)
                .expect("a whole prepare")
                .op
                .0
        };
        self.take_read(78).iter().map(op).collect()
    }

    fn take_read(&mut self, expected: u64) -> Vec<Bytes> {
        for event in self.events.drain(..) {
            match event {
                JournalEvent::Read { id, prepares } if id == expected => return prepares,
                _ => {}
            }
        }
        panic!("read {expected} has not ended");
    }

    /// What recovery brought.
    pub(crate) fn recovered(&self) -> Vec<Bytes> {
        let record = |event: &JournalEvent| match event {
            JournalEvent::Record { prepare } => Some(prepare.clone()),
            _ => None,
        };
        self.events.iter().filter_map(record).collect()
    }

    /// Bytes that recovery cut.
    pub(crate) fn cut_bytes(&self) -> u64 {
        let cut = |event: &JournalEvent| match event {
            JournalEvent::Recovered { cut_bytes, .. } => Some(*cut_bytes),
            _ => None,
        };
        self.events
            .iter()
            .find_map(cut)
            .expect("recovery has ended")
    }

    pub(crate) fn damages(&self) -> Vec<Damage> {
        let damage = |event: &JournalEvent| match event {
            JournalEvent::Damaged(damage) => Some(*damage),
            _ => None,
        };
        self.events.iter().filter_map(damage).collect()
    }

    pub(crate) fn failures(&self) -> Vec<DiskError> {
        let failure = |event: &JournalEvent| match event {
            JournalEvent::Failed(error) => Some(*error),
            _ => None,
        };
        self.events.iter().filter_map(failure).collect()
    }

    /// The events but for records and prepares, one word each.
    pub(crate) fn told(&mut self) -> Vec<String> {
        let word = |event: JournalEvent| match event {
            JournalEvent::Record { .. } => None,
            JournalEvent::Recovered { head, .. } => Some(format!("recovered {head}")),
            JournalEvent::Written { op } => Some(format!("written {op}")),
            JournalEvent::Synced { op } => Some(format!("synced {op}")),
            JournalEvent::Truncated { op } => Some(format!("truncated {op}")),
            JournalEvent::Read { id, prepares } => Some(format!("read {id}: {}", prepares.len())),
            JournalEvent::TailDamaged { after } => Some(format!("tail damaged after {after}")),
            JournalEvent::Gap(gap) => Some(format!("gap {} to {}", gap.from, gap.to)),
            JournalEvent::Repaired { op } => Some(format!("repaired {op}")),
            JournalEvent::Reset => Some("reset".to_owned()),
            JournalEvent::Full => Some("full".to_owned()),
            JournalEvent::Space => Some("space".to_owned()),
            JournalEvent::Removed => Some("removed".to_owned()),
            JournalEvent::Failed(error) => Some(format!("failed {error:?}")),
            JournalEvent::Damaged(damage) => Some(format!("damaged {}", damage.op)),
        };
        self.events.drain(..).filter_map(word).collect()
    }
}
