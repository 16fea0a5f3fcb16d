//! The recovery of a view store and of a partition's checkpoints from any bytes, by the real
//! machines on the disk of their own tests: it ends, it panics never, and a second recovery says
//! what the first said.
//!
//! The first byte says how many edits are made to a store that the machine wrote; with none, the
//! rest of the input is the file.

#![no_main]
#![allow(dead_code, reason = "the tests of storage use the rest")]

#[path = "../../crates/storage/tests/storage/disk.rs"]
mod disk;

use base::{Bytes, GroupId, Op, ReplicaIndex, ShardIndex, View, checksum::xxh3_128};
use libfuzzer_sys::fuzz_target;
use platform::{Outbox, Path};
use storage::{
    Checkpoint, Checkpoints, CheckpointsConfig, CheckpointsEvent, FileIds, ViewStore,
    ViewStoreConfig, ViewStoreEvent, Views, ViewsIdentity, checkpoint_name,
};
use wire::replica::{CheckpointMark, Trust};

use disk::Disk;

const CLUSTER: u128 = 0xc1a5;
const GROUP: GroupId = GroupId(7 << 10 | 3);
const SHARD: &str = "shard-1";
const DIRECTORY: &str = "partitions/0000000000001c03";
/// More completions than any recovery of a few kilobytes takes.
const STEPS_MAX: usize = 100_000;

struct Run<E> {
    disk: Disk,
    files: FileIds,
    out: Outbox,
    events: Vec<E>,
}

impl<E> Run<E> {
    fn new(disk: Disk) -> Self {
        Self {
            disk,
            files: FileIds::default(),
            out: Outbox::new(),
            events: Vec::new(),
        }
    }
}

/// Lets a machine work until it waits for nobody; a macro, for the two machines share no trait.
macro_rules! settle {
    ($run:expr, $machine:expr) => {
        let mut steps = 0;
        loop {
            $run.disk.submit(&mut $run.out);
            let Some(done) = $run.disk.step() else { break };
            $machine.on_disk(done, &mut $run.files, &mut $run.out, &mut $run.events);
            steps += 1;
            assert!(steps < STEPS_MAX, "recovery does not end");
        }
    };
}

fn views(disk: Disk) -> (ViewStore, Run<ViewStoreEvent>) {
    let mut run = Run::new(disk);
    let config = ViewStoreConfig {
        directory: Path::from(SHARD),
        owner: 3,
        identity: ViewsIdentity {
            cluster: CLUSTER,
            replica: ReplicaIndex(1),
            replica_count: 3,
            shard: ShardIndex(1),
            shard_count: 2,
        },
        boot_id: 1,
        compaction_size_min: 64 << 10,
    };
    let mut store = ViewStore::open(config, &mut run.out);
    settle!(run, store);
    (store, run)
}

fn checkpoints(disk: Disk) -> (Checkpoints, Run<CheckpointsEvent>) {
    let mut run = Run::new(disk);
    let config = CheckpointsConfig {
        cluster: CLUSTER,
        group: GROUP,
        directory: Path::from(DIRECTORY),
        owner: 5,
    };
    let mut machine = Checkpoints::open(config, &mut run.out);
    settle!(run, machine);
    (machine, run)
}

/// Replaces bytes, each edit a place (two bytes) and a value, and appends what is left.
fn edit(mut content: Vec<u8>, count: u8, data: &[u8]) -> Vec<u8> {
    let (edits, tail) = data.split_at(data.len().min(3 * usize::from(count)));
    for &[low, high, value] in edits.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([low, high])) % content.len().max(1);
        if let Some(byte) = content.get_mut(at) {
            *byte = value;
        }
    }
    content.extend_from_slice(tail);
    content
}

fn check_views(count: u8, data: &[u8]) {
    let path = format!("{SHARD}/views.log");
    let mut disk = Disk::new(1);
    let content = if count == 0 {
        data.to_vec()
    } else {
        let (mut store, mut run) = views(disk);
        for number in 1..=3 {
            let known = Views {
                view: View(number),
                log_view: View(number),
                trust: Trust::Trusted,
            };
            store.put(GroupId::partition(Op(u64::from(number)), 0), known);
            store.submit(&mut run.out);
            settle!(run, store);
        }
        disk = Disk::new(1);
        edit(run.disk.content(&path), count, data)
    };
    disk.make(SHARD);
    disk.put(&path, &content);
    let (_, first) = views(disk);
    assert!(!first.events.is_empty(), "recovery says how it ended");
    let mut disk = Disk::new(1);
    disk.make(SHARD);
    if first
        .disk
        .names(SHARD)
        .iter()
        .any(|name| name == "views.log")
    {
        disk.put(&path, &first.disk.content(&path));
    }
    let (_, second) = views(disk);
    assert_eq!(second.events.first(), first.events.first());
}

fn check_checkpoints(count: u8, data: &[u8]) {
    let mut disk = Disk::new(1);
    disk.make(DIRECTORY);
    let path = format!("{DIRECTORY}/{}", checkpoint_name(Op(9)));
    let content = if count == 0 {
        data.to_vec()
    } else {
        let body = vec![7; 700];
        let mark = CheckpointMark {
            op: Op(9),
            identity: 5,
            base: Op(4),
            base_identity: 9,
            size: 700,
            digest: xxh3_128(&body),
        };
        let (mut machine, mut run) = checkpoints(disk);
        let checkpoint = Checkpoint {
            mark,
            body: Bytes::copy_of(&body),
            replaces: None,
        };
        machine.save(checkpoint, &mut run.files, &mut run.out);
        settle!(run, machine);
        disk = Disk::new(1);
        disk.make(DIRECTORY);
        edit(run.disk.content(&path), count, data)
    };
    disk.put(&path, &content);
    let (first, mut run) = checkpoints(disk);
    let newest = first.newest();
    run.disk.crash();
    let (second, _) = checkpoints(run.disk);
    assert_eq!(second.newest(), newest);
}

fuzz_target!(|data: &[u8]| {
    if let Some((&count, data)) = data.split_first() {
        check_views(count, data);
        check_checkpoints(count, data);
    }
});
