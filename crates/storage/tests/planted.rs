//! The planted bugs of this crate are real: each loses what it promised, on a disk that is
//! honest, within a few power losses.

#![cfg(feature = "planted-bugs")]
#![allow(dead_code, reason = "the disk and the harness serve other tests too")]

#[path = "storage/disk.rs"]
mod disk;
#[path = "storage/harness.rs"]
mod harness;

use base::{GroupId, Op, ReplicaIndex, ShardIndex, View, planted};
use platform::{Outbox, Path};
use storage::{FileIds, ViewStore, ViewStoreConfig, ViewsIdentity};

use disk::Disk;
use harness::{Harness, config};

/// Whether a journal loses a synced op, for any of some seeds.
fn journal_loses() -> bool {
    (0..20).any(|seed| {
        let mut harness = Harness::on(Disk::new(seed), config());
        for _ in 0..3 {
            harness.write(700);
        }
        assert_eq!(harness.journal.synced_op(), Op(3));
        harness.disk.power_loss();
        harness.reopen().recovered().len() < 3
    })
}

/// Whether a view store loses a durable view by its compaction, for any of some seeds.
fn view_store_loses() -> bool {
    let group = GroupId::partition(Op(1), 0);
    (0..20).any(|seed| {
        let mut disk = Disk::new(seed);
        let put = |disk: &mut Disk, views: core::ops::Range<u32>| {
            let (mut out, mut files) = (Outbox::new(), FileIds::default());
            let mut events = Vec::new();
            let mut store = ViewStore::open(views_config(), &mut out);
            let mut run = |store: &mut ViewStore, out: &mut Outbox| {
                disk.submit(out);
                while let Some(done) = disk.step() {
                    store.on_disk(done, &mut files, out, &mut events);
                    disk.submit(out);
                }
            };
            run(&mut store, &mut out);
            for view in views {
                store.put(group, View(view), View(view));
                if view % 64 == 0 {
                    store.submit(&mut out);
                    run(&mut store, &mut out);
                }
            }
            store.get(group)
        };
        let before = put(&mut disk, 1..1025);
        assert!(
            disk.content("shard-0/views.log").len() < 4096,
            "it has been compacted"
        );
        disk.power_loss();
        put(&mut disk, 0..0) < before
    })
}

fn views_config() -> ViewStoreConfig {
    let identity = ViewsIdentity {
        cluster: 1,
        replica: ReplicaIndex(0),
        replica_count: 1,
        shard: ShardIndex(0),
        shard_count: 1,
    };
    ViewStoreConfig {
        directory: Path::from("shard-0"),
        owner: 1,
        identity,
        boot_id: 1,
        compaction_size_min: 64 << 10,
    }
}

/// One test: the active bug is one for the whole process.
#[test]
fn each_planted_bug_loses_what_was_promised() {
    assert!(!journal_loses());
    assert!(!view_store_loses());
    planted::activate(2);
    assert!(journal_loses());
    planted::activate(27);
    assert!(view_store_loses());
    planted::activate(0);
}
