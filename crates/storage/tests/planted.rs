//! The planted bugs of this crate are real: each loses what it promised, on a disk that is
//! honest, within a few power losses.

#![cfg(feature = "planted-bugs")]
#![allow(dead_code, reason = "the disk and the harness serve other tests too")]

#[path = "storage/disk.rs"]
mod disk;
#[path = "storage/harness.rs"]
mod harness;

use base::{GroupId, Op, ReplicaIndex, ShardIndex, View, planted};
use platform::{DiskError, DiskRequest, Outbox, Path};
use storage::{
    FileIds, JournalConfig, JournalEvent, ViewStore, ViewStoreConfig, Views, ViewsIdentity,
    segment_name,
};
use wire::replica::{PrepareHeader, Trust};

use disk::Disk;
use harness::{DIRECTORY, Harness, config};

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
                store.put(
                    group,
                    Views {
                        view: View(view),
                        log_view: View(view),
                        trust: Trust::Trusted,
                    },
                );
                if view % 64 == 0 {
                    store.submit(&mut out);
                    run(&mut store, &mut out);
                }
            }
            store.get(group).map(|views| views.view)
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

/// The path of the first segment.
fn first_segment() -> String {
    format!("{DIRECTORY}/{}", segment_name(Op(1)))
}

/// Whether a read answers with another op than was asked for, after a misdirected write.
fn read_is_misdirected() -> bool {
    let config = JournalConfig {
        tail_cache: 0,
        index_interval: 1,
        ..config()
    };
    let mut harness = Harness::on(Disk::new(1), config);
    for _ in 0..5 {
        harness.write(700);
    }
    let mut content = harness.disk.content(&first_segment());
    content.copy_within(256 + 1400..256 + 2100, 256 + 700);
    harness.disk.put(&first_segment(), &content);
    harness.start_read(1, 2, 2, 0);
    // The reader itself would notice.
    planted::silence_invariants(true);
    harness.run();
    planted::silence_invariants(false);
    harness.events.iter().any(|event| match event {
        JournalEvent::Read { prepares, .. } => prepares
            .iter()
            .any(|prepare| PrepareHeader::decode(prepare).expect("a prepare").op != Op(2)),
        _ => false,
    })
}

/// Whether a log forgets, without a word, what stands behind a damaged record.
fn damage_ends_the_log() -> bool {
    let mut harness = Harness::on(Disk::new(1), config());
    for _ in 0..9 {
        harness.write(700);
    }
    harness.disk.flip(&first_segment(), 256 + 700 + 20, 1);
    let harness = harness.reopen();
    harness.tail_damaged().is_none() && harness.journal.head().0 < Op(9)
}

/// Whether a failed sync is taken for a promise kept.
fn failed_sync_is_acknowledged() -> bool {
    let mut harness = Harness::on(Disk::new(1), config());
    harness.disk.fails = Some((
        |request| matches!(request, DiskRequest::SyncData { .. }),
        DiskError::Io,
    ));
    harness.write(700);
    harness.journal.synced_op() == Op(1)
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
    let more: [(u32, fn() -> bool); 3] = [
        (25, read_is_misdirected),
        (26, damage_ends_the_log),
        (36, failed_sync_is_acknowledged),
    ];
    for (bug, loses) in more {
        planted::activate(0);
        assert!(!loses(), "without bug {bug}");
        planted::activate(bug);
        assert!(loses(), "with bug {bug}");
    }
    planted::activate(0);
}
