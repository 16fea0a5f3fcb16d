//! Claims about checkpoints: one that was told to be saved is found, whatever else happens, and
//! a damaged one is never taken for whole.

use base::{Bytes, Domain, Op, Prng, checksum::xxh3_128};
use platform::{DiskError, DiskRequest, Outbox, Path};
use storage::{
    Checkpoint, Checkpoints, CheckpointsConfig, CheckpointsEvent, FileIds, ReadChunk,
    checkpoint_name,
};
use wire::replica::CheckpointMark;

use crate::{
    disk::Disk,
    harness::{CLUSTER, DIRECTORY, GROUP},
};

/// The checkpoint of an op, as every replica would take it.
fn checkpoint(op: u64) -> Checkpoint {
    let size = 700 + op * 37 % 900;
    let body: Vec<u8> = (0..size)
        .map(|at| (at * 7 + op * 13).to_le_bytes()[0])
        .collect();
    let mark = CheckpointMark {
        op: Op(op),
        identity: u128::from(op) << 64 | 5,
        base: Op(op / 2),
        base_identity: 9,
        size,
        digest: xxh3_128(&body),
    };
    Checkpoint {
        mark,
        body: Bytes::copy_of(&body),
        replaces: None,
    }
}

fn path(op: u64) -> String {
    format!("{DIRECTORY}/{}", checkpoint_name(Op(op)))
}

struct Harness {
    disk: Disk,
    checkpoints: Checkpoints,
    files: FileIds,
    out: Outbox,
    events: Vec<CheckpointsEvent>,
}

impl Harness {
    fn opening(disk: Disk) -> Self {
        let config = CheckpointsConfig {
            cluster: CLUSTER,
            group: GROUP,
            directory: Path::from(DIRECTORY),
            owner: 5,
        };
        let mut out = Outbox::new();
        let checkpoints = Checkpoints::open(config, &mut out);
        Self {
            disk,
            checkpoints,
            files: FileIds::default(),
            out,
            events: Vec::new(),
        }
    }

    fn on(disk: Disk) -> Self {
        let mut harness = Self::opening(disk);
        harness.run();
        harness
    }

    /// In a directory as the journal would have made it.
    fn new(seed: u64) -> Self {
        let mut disk = Disk::new(seed);
        disk.put_directory("partitions");
        disk.put_directory(DIRECTORY);
        Self::on(disk)
    }

    fn step(&mut self) -> bool {
        self.disk.submit(&mut self.out);
        let Some(done) = self.disk.step() else {
            return false;
        };
        self.checkpoints
            .on_disk(done, &mut self.files, &mut self.out, &mut self.events);
        true
    }

    fn run(&mut self) {
        while self.step() {}
    }

    fn save(&mut self, op: u64) {
        self.checkpoints
            .save(checkpoint(op), &mut self.files, &mut self.out);
    }

    fn saved(&mut self, op: u64) {
        self.save(op);
        self.run();
        let last = self.events.last();
        assert!(matches!(last, Some(CheckpointsEvent::Saved { op: saved }) if saved.0 == op));
    }

    fn newest_saved(&self) -> u64 {
        let op = |event: &CheckpointsEvent| match event {
            CheckpointsEvent::Saved { op } => Some(op.0),
            _ => None,
        };
        self.events.iter().filter_map(op).max().unwrap_or(0)
    }

    /// The op recovered, 0 if there was none; what it says is right.
    fn recovered(&self) -> u64 {
        let found = self.events.iter().find_map(|event| match event {
            CheckpointsEvent::Recovered(found) => Some(found.clone()),
            _ => None,
        });
        found.expect("recovery has ended").map_or(0, |found| {
            let expected = checkpoint(found.mark.op.0);
            assert_eq!(found.mark, expected.mark);
            assert_eq!(*found.body, *expected.body);
            found.mark.op.0
        })
    }

    fn crash(mut self) -> Disk {
        self.disk.submit(&mut self.out);
        self.disk.crash();
        self.disk
    }

    fn power_loss(mut self) -> Disk {
        self.disk.submit(&mut self.out);
        self.disk.power_loss();
        self.disk
    }
}

#[test]
fn the_newest_two_are_kept_and_the_newest_is_found() {
    let mut harness = Harness::new(1);
    assert_eq!(harness.recovered(), 0);
    for op in [8, 16, 24] {
        harness.saved(op);
    }
    let kept = [checkpoint_name(Op(16)), checkpoint_name(Op(24))];
    assert_eq!(harness.disk.names(DIRECTORY), kept);
    assert_eq!(harness.checkpoints.oldest_op(), Some(Op(16)));
    assert_eq!(harness.disk.open_files(), 0);
    let mut harness = Harness::on(harness.power_loss());
    assert_eq!(harness.recovered(), 24);
    assert_eq!(harness.checkpoints.oldest_op(), Some(Op(16)));
    harness.saved(32);
    let kept = [checkpoint_name(Op(24)), checkpoint_name(Op(32))];
    assert_eq!(harness.disk.names(DIRECTORY), kept);
    assert_eq!(harness.disk.open_files(), 0);
}

#[test]
fn a_group_that_was_never_here_has_none_and_touches_nothing() {
    let harness = Harness::on(Disk::new(1));
    assert_eq!(harness.recovered(), 0);
    assert_eq!(harness.disk.trace.len(), 1, "{:?}", harness.disk.trace);
}

/// Goal: a crash at every request leaves the newest that was told to be saved, or a newer one.
#[test]
fn a_crash_at_each_step_keeps_what_was_saved() {
    let mut ends = [0; 3];
    for seed in 0..40 {
        for steps in 0..12 {
            for power in [false, true] {
                let mut harness = Harness::new(seed);
                harness.saved(8);
                harness.saved(16);
                harness.save(24);
                for _ in 0..steps {
                    harness.step();
                }
                let saved = harness.newest_saved();
                let disk = if power {
                    harness.power_loss()
                } else {
                    harness.crash()
                };
                let mut harness = Harness::on(disk);
                let found = harness.recovered();
                assert!(
                    found >= saved && [16, 24].contains(&found),
                    "{found} of {saved}"
                );
                assert!(
                    harness
                        .events
                        .iter()
                        .all(|event| !matches!(event, CheckpointsEvent::Damaged { .. })),
                    "a name is there only once its content is durable"
                );
                ends[usize::try_from(found / 8 - 1).expect("small")] += 1;
                // A second start, after power is lost amid the first, says the same or more.
                let again = Harness::on(Harness::on(harness.crash()).power_loss());
                assert!(again.recovered() >= found);
                harness = again;
                harness.saved(32);
                assert_eq!(Harness::on(harness.power_loss()).recovered(), 32);
            }
        }
    }
    assert!(
        ends[1] > 50 && ends[2] > 50,
        "both sides of the rename: {ends:?}"
    );
}

/// Goal: no flipped bit passes. Method: each byte of the newest file, one bit; the older one is
/// found, and the damaged one goes with the next save.
#[test]
fn a_flipped_bit_anywhere_falls_back_to_the_older_one() {
    let mut harness = Harness::new(1);
    harness.saved(8);
    harness.saved(16);
    let (older, newest) = (
        harness.disk.content(&path(8)),
        harness.disk.content(&path(16)),
    );
    for at in 0..newest.len() {
        let mut disk = Disk::new(1);
        disk.put_directory("partitions");
        disk.put_directory(DIRECTORY);
        let mut damaged = newest.clone();
        damaged[at] ^= 1 << (at % 8);
        disk.put(&path(8), &older);
        disk.put(&path(16), &damaged);
        let mut harness = Harness::on(disk);
        assert_eq!(harness.recovered(), 8, "byte {at}");
        assert!(matches!(
            harness.events[0],
            CheckpointsEvent::Damaged { op: Op(16) }
        ));
        assert_eq!(harness.disk.open_files(), 0);
        if at % 100 == 0 {
            harness.saved(16);
            assert_eq!(harness.disk.content(&path(16)), newest);
            harness.saved(24);
            assert_eq!(harness.disk.names(DIRECTORY).len(), 2);
        }
    }
}

#[test]
fn a_file_cut_or_extended_anywhere_is_damaged() {
    let mut harness = Harness::new(1);
    harness.saved(8);
    let whole = harness.disk.content(&path(8));
    for size in (0..whole.len()).chain([whole.len() + 1]) {
        let mut disk = Disk::new(1);
        disk.put_directory("partitions");
        disk.put_directory(DIRECTORY);
        let mut content = whole.clone();
        content.resize(size, 0);
        disk.put(&path(8), &content);
        let harness = Harness::on(disk);
        assert_eq!(harness.recovered(), 0, "{size} bytes");
    }
}

#[test]
fn a_checkpoint_of_another_group_or_op_is_not_ours() {
    let mut harness = Harness::new(1);
    harness.saved(8);
    let whole = harness.disk.content(&path(8));
    // Under another op's name.
    let mut disk = Disk::new(1);
    disk.put_directory("partitions");
    disk.put_directory(DIRECTORY);
    disk.put(&path(16), &whole);
    assert_eq!(Harness::on(disk).recovered(), 0);
    // In another group's directory, or another cluster's.
    for (cluster, group) in [(CLUSTER, base::GroupId(GROUP.0 + 1)), (CLUSTER + 1, GROUP)] {
        let mark = checkpoint(8).mark;
        let header = storage::CheckpointHeader {
            cluster,
            group,
            mark,
            replaces: None,
        };
        let mut content = header.encode().to_vec();
        content.extend_from_slice(&checkpoint(8).body);
        let mut disk = Disk::new(1);
        disk.put_directory("partitions");
        disk.put_directory(DIRECTORY);
        disk.put(&path(8), &content);
        assert_eq!(Harness::on(disk).recovered(), 0);
    }
}

#[test]
fn an_unreadable_file_falls_back_and_leaks_nothing() {
    let mut harness = Harness::new(1);
    harness.saved(8);
    let mut harness = Harness::opening(harness.crash());
    harness.disk.fails = Some((
        |request| matches!(request, DiskRequest::Read { .. }),
        DiskError::Io,
    ));
    harness.run();
    assert_eq!(harness.recovered(), 0);
    assert_eq!(harness.disk.open_files(), 0);
}

#[test]
fn a_full_disk_leaves_the_older_ones_and_the_next_save_works() {
    for (index, full) in [
        (|request| matches!(request, DiskRequest::Open { .. })) as fn(&DiskRequest) -> bool,
        |request| matches!(request, DiskRequest::Write { .. }),
        |request| matches!(request, DiskRequest::SyncData { .. }),
        |request| matches!(request, DiskRequest::Rename { .. }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut harness = Harness::new(1);
        harness.saved(8);
        harness.disk.fails = Some((full, DiskError::Full));
        harness.save(16);
        harness.run();
        assert!(
            matches!(
                harness.events.last(),
                Some(CheckpointsEvent::Full { op: Op(16) })
            ),
            "request {index}"
        );
        assert_eq!(
            harness.checkpoints.newest().map(|mark| mark.op),
            Some(Op(8))
        );
        assert_eq!(harness.disk.open_files(), 0);
        harness.disk.fails = None;
        harness.saved(24);
        assert_eq!(Harness::on(harness.power_loss()).recovered(), 24);
    }
}

#[test]
fn a_failed_sync_ends_the_machine() {
    let mut harness = Harness::new(1);
    harness.saved(8);
    harness.disk.fails = Some((
        |request| matches!(request, DiskRequest::SyncData { .. }),
        DiskError::Io,
    ));
    harness.save(16);
    harness.run();
    assert!(matches!(
        harness.events.last(),
        Some(CheckpointsEvent::Failed(DiskError::Io))
    ));
    harness.disk.fails = None;
    harness.save(24);
    harness.run();
    assert_eq!(Harness::on(harness.crash()).recovered(), 8);
}

#[test]
fn parts_are_served_and_one_that_is_gone_is_answered_by_the_newest() {
    let mut harness = Harness::new(1);
    let read = |harness: &mut Harness, op, offset, bytes_max| {
        let chunk = ReadChunk {
            op: Op(op),
            offset,
            bytes_max,
        };
        harness.events.clear();
        let asked = harness
            .checkpoints
            .read(3, chunk, &mut harness.files, &mut harness.out);
        if !asked {
            return None;
        }
        harness.run();
        match harness.events.pop() {
            Some(CheckpointsEvent::Chunk {
                id: 3,
                mark,
                offset,
                bytes,
            }) => Some((mark, offset, bytes.to_vec())),
            event => panic!("{event:?}"),
        }
    };
    assert_eq!(read(&mut harness, 0, 0, 100), None);
    for op in [8, 16, 24] {
        harness.saved(op);
    }
    for op in [16, 24] {
        let expected = checkpoint(op);
        let mut body = Vec::new();
        while (body.len() as u64) < expected.mark.size {
            let offset = body.len() as u64;
            let (mark, at, bytes) = read(&mut harness, op, offset, 333).expect("it is there");
            assert_eq!((mark, at), (expected.mark, offset));
            body.extend(bytes);
        }
        assert_eq!(body, *expected.body);
    }
    let newest = checkpoint(24);
    let start = Some((newest.mark, 0, newest.body[..64].to_vec()));
    for (op, offset) in [(0, 0), (8, 100), (99, 0), (24, newest.mark.size + 1)] {
        assert_eq!(read(&mut harness, op, offset, 64), start);
    }
    assert_eq!(harness.disk.open_files(), 0);
}

#[test]
fn a_part_of_one_that_is_removed_meanwhile_is_not_answered_wrongly() {
    for seed in 0..30 {
        let mut harness = Harness::new(seed);
        harness.saved(8);
        harness.saved(16);
        harness.save(24);
        let (op, offset, bytes_max) = (Op(8), 0, 100);
        let chunk = ReadChunk {
            op,
            offset,
            bytes_max,
        };
        let mut files = FileIds(1 << 32);
        assert!(
            harness
                .checkpoints
                .read(7, chunk, &mut files, &mut harness.out)
        );
        harness.run();
        let answered = harness.events.iter().any(|event| match event {
            CheckpointsEvent::Chunk { mark, bytes, .. } => {
                assert_eq!(**bytes, checkpoint(mark.op.0).body[..100]);
                true
            }
            CheckpointsEvent::Unread { id } => *id == 7,
            _ => false,
        });
        assert!(answered);
        assert_eq!(harness.disk.open_files(), 0);
    }
}

#[test]
fn a_discarded_one_does_not_count_and_goes_with_the_next() {
    let mut harness = Harness::new(1);
    harness.saved(8);
    harness.saved(16);
    harness.checkpoints.discard(Op(16));
    assert_eq!(
        harness.checkpoints.newest().map(|mark| mark.op),
        Some(Op(8))
    );
    harness.saved(12);
    let kept = [checkpoint_name(Op(8)), checkpoint_name(Op(12))];
    assert_eq!(harness.disk.names(DIRECTORY), kept);
}

#[test]
fn once_all_are_discarded_they_are_made_anew_from_any_op() {
    for next in [8, 12, 16] {
        let mut harness = Harness::new(1);
        harness.saved(8);
        harness.saved(16);
        harness.checkpoints.discard_all();
        assert_eq!(harness.checkpoints.newest(), None);
        harness.saved(next);
        assert_eq!(harness.disk.names(DIRECTORY), [checkpoint_name(Op(next))]);
    }
}

#[test]
fn once_ended_it_comes_to_rest_with_no_file_open() {
    for steps in 0..8 {
        let mut harness = Harness::new(steps);
        harness.saved(8);
        harness.save(16);
        let (op, offset, bytes_max) = (Op(0), 0, 100);
        let chunk = ReadChunk {
            op,
            offset,
            bytes_max,
        };
        harness
            .checkpoints
            .read(1, chunk, &mut harness.files, &mut harness.out);
        for _ in 0..steps {
            harness.step();
        }
        harness.checkpoints.end();
        harness.run();
        assert!(harness.checkpoints.is_quiet());
        assert_eq!(harness.disk.open_files(), 0);
    }
}

/// Goal: whatever happens, what was told to be saved is found again. Method: random walks with
/// crashes and power losses, also amid recovery.
#[test]
fn random_walks_find_what_was_saved() {
    for seed in 0..200 {
        let mut prng = Prng::new(seed, Domain::Workload, 0);
        let mut harness = Harness::new(seed);
        let (mut op, mut saved) = (0, 0);
        for _ in 0..40 {
            match prng.below(5) {
                0 | 1 => {
                    op += prng.between(1, 9);
                    harness.save(op);
                }
                2 => {
                    saved = harness.newest_saved().max(saved);
                    let mut disk = if prng.chance(1, 2) {
                        harness.power_loss()
                    } else {
                        harness.crash()
                    };
                    while prng.chance(1, 3) {
                        let mut amid = Harness::opening(disk);
                        for _ in 0..prng.below(5) {
                            amid.step();
                        }
                        disk = amid.power_loss();
                    }
                    harness = Harness::on(disk);
                    let found = harness.recovered();
                    assert!(found >= saved && found <= op, "seed {seed}");
                    op = op.max(found);
                    saved = found;
                }
                _ => {
                    for _ in 0..prng.below(8) {
                        harness.step();
                    }
                }
            }
        }
    }
}
