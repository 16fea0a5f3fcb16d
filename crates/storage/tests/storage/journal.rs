//! Claims about the journal, one by one.

use base::{Offset, Op, Timestamp, View};
use platform::{DiskError, DiskRequest};
use storage::{ReadMessages, Start, segment_name};

use crate::disk::Disk;
use crate::harness::{DIRECTORY, Harness, config};

fn segment(first: u64) -> String {
    format!("{DIRECTORY}/{}", segment_name(Op(first)))
}

#[test]
fn what_is_appended_is_recovered() {
    let mut harness = Harness::new(config());
    let appended: Vec<_> = (0..40).map(|n| harness.write(256 + n * 37)).collect();
    assert_eq!(harness.journal.synced_op(), Op(40));
    let head = harness.journal.head();
    let harness = harness.reopen();
    assert_eq!(harness.recovered(), appended);
    assert_eq!(harness.journal.head(), head);
    assert_eq!(harness.cut_bytes(), 0);
    assert!(
        harness.journal.segments() > 5,
        "the test is about several segments"
    );
}

#[test]
fn a_segment_is_full_at_its_size_and_not_before() {
    // Header 256 and records: 4096 is full, 4095 takes one more.
    for (last, segments) in [(4096 - 256 - 1000, 2), (4095 - 256 - 1000, 1)] {
        let mut harness = Harness::new(config());
        harness.write(1000);
        harness.write(last);
        harness.write(5000);
        assert_eq!(harness.journal.segments(), segments);
        let whole = harness.disk.content(&segment(1)).len();
        assert_eq!(whole, if segments == 2 { 4096 } else { 4095 + 5000 });
    }
}

#[test]
fn one_batch_rolls_where_single_writes_roll() {
    let sizes = [300, 2000, 1900, 700, 9000, 256, 256, 4000, 3840, 256];
    let mut single = Harness::new(config());
    let mut batch = Harness::new(config());
    for size in sizes {
        single.write(size);
        batch.append(size);
    }
    batch.submit();
    batch.run();
    assert_eq!(batch.journal.synced_op(), Op(10));
    let names = single.disk.names(DIRECTORY);
    assert_eq!(batch.disk.names(DIRECTORY), names);
    for name in names {
        let path = format!("{DIRECTORY}/{name}");
        assert_eq!(single.disk.content(&path), batch.disk.content(&path));
    }
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let mut harness = Harness::new(config());
    let first = harness.write(700);
    harness.write(600);
    let whole = harness.disk.content(&segment(1));
    for end in 0..whole.len() {
        let mut harness = Harness::new(config());
        harness.disk.put(&segment(1), &whole[..end]);
        let mut harness = harness.reopen();
        let kept = usize::from(end >= 256 + 700);
        assert_eq!(
            harness.recovered(),
            vec![first.clone(); kept],
            "cut at {end}"
        );
        let clean = if kept == 1 { 956 } else { 0 };
        assert_eq!(harness.cut_bytes(), (end - clean) as u64);
        assert!(harness.damages().is_empty());
        // It goes on from there, and what was cut does not come back.
        harness.write(600);
        let harness = harness.reopen();
        assert_eq!(harness.recovered().len(), kept + 1);
    }
}

#[test]
fn foreign_files_are_left_alone_and_told_once() {
    let mut harness = Harness::new(config());
    harness.write(300);
    harness.disk.put(&format!("{DIRECTORY}/notes.txt"), b"mine");
    harness.disk.put(&format!("{DIRECTORY}/1.log"), b"mine too");
    // A checkpoint and its successor are the owner's.
    for name in ["00000000000000000007.checkpoint", "views.tmp"] {
        harness
            .disk
            .put(&format!("{DIRECTORY}/{name}"), b"the owner's");
    }
    let harness = harness.reopen();
    assert_eq!(harness.recovered().len(), 1);
    assert_eq!(harness.disk.log.len(), 1);
    assert_eq!(
        harness.disk.content(&format!("{DIRECTORY}/notes.txt")),
        b"mine"
    );
}

#[test]
fn a_large_record_is_recovered_and_read_in_small_chunks() {
    let mut harness = Harness::new(config());
    let mut appended = vec![
        harness.write(300),
        harness.write(50_000),
        harness.write(300),
    ];
    appended.push(harness.write(9_000));
    let mut harness = harness.reopen();
    assert_eq!(harness.recovered(), appended);
    assert_eq!(harness.read(1, 4, usize::MAX), appended);
}

#[test]
fn reads_return_what_was_appended_for_every_range() {
    let mut harness = Harness::new(config());
    let appended: Vec<_> = (0..30).map(|n| harness.write(256 + n * 53 % 900)).collect();
    for from in 1..=30_usize {
        for to in from..=30 {
            let read = harness.read(from as u64, to as u64, usize::MAX);
            assert_eq!(read, appended[from - 1..to], "{from}..={to}");
        }
    }
    assert_eq!(harness.read(3, 30, 0), appended[2..3], "at least one");
    let two = appended[4].len() + appended[5].len();
    assert_eq!(
        harness.read(5, 30, two),
        appended[4..6],
        "no more than asked for"
    );
    assert_eq!(harness.read(31, 40, 100), Vec::<base::Bytes>::new());
}

#[test]
fn unwritten_ops_are_read_from_memory() {
    let mut harness = Harness::new(config());
    harness.run();
    let appended: Vec<_> = (0..9).map(|_| harness.append(1000)).collect();
    harness.start_read(5, 1, 9, usize::MAX);
    assert_eq!(harness.told(), ["recovered 0", "read 5: 9"]);
    harness.submit();
    harness.run();
    assert_eq!(harness.read(1, 9, usize::MAX), appended);
}

#[test]
fn a_damaged_record_ends_the_read_that_meets_it() {
    let mut harness = Harness::new(config());
    for _ in 0..12 {
        harness.write(1000);
    }
    let mut content = harness.disk.content(&segment(1));
    content[256 + 2000 + 700] ^= 4;
    harness.disk.put(&segment(1), &content);
    harness.start_read(6, 1, 12, usize::MAX);
    harness.run();
    let damages = harness.damages();
    assert_eq!(damages.len(), 1);
    assert_eq!((damages[0].read, damages[0].op), (Some(6), Op(3)));
    assert_eq!(harness.read(1, 2, usize::MAX).len(), 2);
    assert_eq!(harness.read(4, 12, usize::MAX).len(), 9);
}

#[test]
fn at_most_four_sealed_segments_stay_open() {
    let mut harness = Harness::new(config());
    for _ in 0..60 {
        harness.write(1500);
    }
    assert_eq!(harness.journal.segments(), 20);
    assert!(harness.disk.open_files() <= 5);
    for op in 1..=60 {
        assert_eq!(harness.read(op, op, 0).len(), 1);
        assert!(harness.disk.open_files() <= 5);
    }
    harness.journal.close(&mut harness.out);
    harness.run();
    assert_eq!(harness.disk.open_files(), 0);
}

/// Ops 1, 3, 5, .. are consumer offsets; op 2k appends ten messages at time 100 * (k / 2).
fn with_messages(segment_size: u64, tail_cache: usize) -> Harness {
    let mut harness = Harness::new(storage::JournalConfig {
        segment_size,
        tail_cache,
        ..config()
    });
    for k in 1..=30 {
        harness.append(256);
        harness.append_messages(900, 10, k / 2 * 100);
        harness.submit();
        harness.run();
    }
    harness
}

#[test]
fn offsets_lead_to_the_record_that_contains_them() {
    for (segment_size, tail_cache) in [(4096, 0), (4096, 5000), (1 << 20, 0), (1 << 20, 1 << 20)] {
        let mut harness = with_messages(segment_size, tail_cache);
        for reopened in [false, true] {
            for offset in 0..300 {
                let found = harness.read_messages(Start::Offset(Offset(offset)), 60, 0);
                assert_eq!(
                    found,
                    [2 * (offset / 10 + 1)],
                    "offset {offset}, {reopened}"
                );
            }
            let beyond = harness.read_messages(Start::Offset(Offset(300)), 60, 0);
            assert_eq!(beyond, [0_u64; 0]);
            let uncommitted = harness.read_messages(Start::Offset(Offset(299)), 59, 0);
            assert_eq!(uncommitted, [0_u64; 0]);
            harness = harness.reopen();
        }
    }
}

#[test]
fn timestamps_lead_to_the_first_record_at_or_after_them() {
    for (segment_size, tail_cache) in [(4096, 0), (4096, 5000), (1 << 20, 1 << 20)] {
        let mut harness = with_messages(segment_size, tail_cache);
        for timestamp in (0..1600).step_by(50) {
            let found = harness.read_messages(Start::Timestamp(Timestamp(timestamp)), 60, 0);
            let first = (1..=30).find(|k| k / 2 * 100 >= timestamp).map(|k| 2 * k);
            assert_eq!(
                found,
                first.into_iter().collect::<Vec<_>>(),
                "at {timestamp}"
            );
        }
    }
}

#[test]
fn a_read_of_messages_goes_on_through_other_records_and_segments() {
    let mut harness = with_messages(4096, 3000);
    let found = harness.read_messages(Start::Offset(Offset(25)), 50, usize::MAX);
    assert_eq!(found, (6..=50).collect::<Vec<_>>());
}

#[test]
fn a_read_of_messages_ends_with_the_record_that_completes_the_count() {
    // Ten messages a record, one record without messages before each: offset `o` is in op
    // `2 * (o / 10 + 1)`.
    for (segment_size, tail_cache) in [(4096, 0), (4096, 5000), (1 << 20, 0), (1 << 20, 1 << 20)] {
        let mut harness = with_messages(segment_size, tail_cache);
        for (offset, count_max) in [(0, 1), (0, 10), (0, 11), (25, 5), (25, 6), (299, 1000)] {
            let found = harness.read_range(ReadMessages {
                from: Op(1),
                start: Start::Offset(Offset(offset)),
                up_to: Op(60),
                bytes_max: usize::MAX,
                count_max,
            });
            let op = |offset: u64| 2 * (offset / 10 + 1);
            let last = (offset + u64::from(count_max) - 1).min(299);
            let expected: Vec<u64> = (op(offset)..=op(last)).collect();
            assert_eq!(found, expected, "{count_max} from {offset}");
        }
    }
}

#[test]
fn truncation_to_any_op_is_durable_and_appending_goes_on() {
    for op in 0..=20 {
        let mut harness = Harness::new(config());
        let appended: Vec<_> = (0..20).map(|n| harness.write(300 + n * 71)).collect();
        harness.told();
        harness.truncate_after(op);
        let new = harness.append_with(777, None, View(2));
        harness.submit();
        harness.run();
        let told = harness.told();
        assert!(told.contains(&format!("truncated {op}")), "{told:?}");
        assert!(told.ends_with(&[format!("written {}", op + 1), format!("synced {}", op + 1)]));
        harness.disk.power_loss();
        let mut expected = appended[..usize::try_from(op).unwrap()].to_vec();
        expected.push(new);
        let harness = harness.reopen();
        assert_eq!(harness.recovered(), expected, "truncated to {op}");
        assert!(harness.damages().is_empty());
    }
}

#[test]
fn truncation_takes_back_what_is_queued_and_in_flight() {
    for steps in 0..12 {
        let mut harness = Harness::new(config());
        harness.write(1000);
        for _ in 0..10 {
            harness.append(1000);
        }
        harness.submit();
        for _ in 0..3 {
            harness.append(300);
        }
        for _ in 0..steps {
            harness.step();
        }
        harness.told();
        harness.truncate_after(3);
        harness.append_with(500, None, View(2));
        harness.submit();
        harness.run();
        let told = harness.told();
        assert!(told.contains(&"truncated 3".to_owned()), "{told:?}");
        assert_eq!(harness.journal.synced_op(), Op(4));
        let head = harness.journal.head();
        let harness = harness.reopen();
        assert_eq!(harness.recovered().len(), 4);
        assert_eq!(harness.journal.head(), head);
    }
}

#[test]
fn a_truncation_below_memory_brings_the_headers_back() {
    let mut harness = Harness::new(storage::JournalConfig {
        tail_cache: 0,
        ..config()
    });
    let appended: Vec<_> = (0..500).map(|_| harness.write(400)).collect();
    assert!(harness.journal.header(Op(500 - 127)).is_some());
    assert!(harness.journal.header(Op(200)).is_none());
    harness.truncate_after(200);
    harness.run();
    let head = (Op(200), crate::harness::checksum(&appended[199]));
    assert_eq!(harness.journal.head(), head);
    for op in 200 - 127..=200 {
        assert_eq!(
            harness.journal.header(Op(op)).map(|header| header.op),
            Some(Op(op))
        );
    }
    harness.write(300);
    assert_eq!(harness.read(150, 199, usize::MAX), appended[149..199]);
}

#[test]
fn a_deeper_truncation_overtakes_one_that_fetches_headers() {
    let config = storage::JournalConfig {
        tail_cache: 0,
        ..config()
    };
    for steps in 0..6 {
        let mut harness = Harness::new(config.clone());
        let mut appended: Vec<_> = (0..400).map(|_| harness.append(300)).collect();
        harness.submit();
        harness.run();
        harness.told();
        harness.truncate_after(200);
        for _ in 0..steps {
            harness.step();
        }
        harness.truncate_after(50);
        harness.run();
        assert_eq!(harness.told().last(), Some(&"truncated 50".to_owned()));
        appended.truncate(50);
        appended.push(harness.write(300));
        assert_eq!(
            harness.reopen().recovered(),
            appended,
            "after {steps} steps"
        );
    }
}

#[test]
fn a_deeper_truncation_overtakes_one_that_waits() {
    for steps in 0..10 {
        let mut harness = Harness::new(config());
        for _ in 0..20 {
            harness.write(1000);
        }
        harness.told();
        harness.truncate_after(15);
        harness.append_with(300, None, View(2));
        harness.submit();
        for _ in 0..steps {
            harness.step();
        }
        harness.truncate_after(7);
        harness.append_with(300, None, View(3));
        harness.submit();
        harness.run();
        let told = harness.told();
        assert_eq!(
            told.iter().filter(|word| *word == "truncated 7").count(),
            1,
            "{told:?}"
        );
        let head = harness.journal.head();
        assert_eq!(harness.journal.synced_op(), Op(8));
        let harness = harness.reopen();
        assert_eq!(harness.journal.head(), head);
    }
}

#[test]
fn reads_in_flight_survive_a_truncation() {
    for steps in 0..6 {
        let mut harness = Harness::new(storage::JournalConfig {
            tail_cache: 0,
            ..config()
        });
        let appended: Vec<_> = (0..20).map(|_| harness.write(1000)).collect();
        harness.told();
        harness.start_read(1, 1, 20, usize::MAX);
        harness.start_read(2, 15, 20, usize::MAX);
        for _ in 0..steps {
            harness.step();
        }
        harness.truncate_after(5);
        harness.append_with(1000, None, View(2));
        harness.submit();
        harness.run();
        let mut ended = 0;
        for event in std::mem::take(&mut harness.events) {
            if let storage::JournalEvent::Read { id, prepares } = event {
                let from = if id == 1 { 0 } else { 14 };
                assert_eq!(prepares, appended[from..from + prepares.len()]);
                ended += 1;
            }
        }
        assert_eq!(ended, 2, "after {steps} steps");
    }
}

#[test]
fn a_failed_sync_ends_the_journal_and_is_never_retried() {
    let mut harness = Harness::new(config());
    harness.write(300);
    harness.told();
    harness.disk.fails = Some((
        |request| matches!(request, DiskRequest::SyncData { .. }),
        DiskError::Io,
    ));
    harness.write(300);
    assert_eq!(harness.told(), ["written 2", "failed Io"]);
    harness.disk.fails = None;
    harness.disk.trace.clear();
    harness.write(300);
    harness.start_read(1, 1, 1, 0);
    harness.run();
    assert_eq!(harness.told(), [""; 0]);
    assert_eq!(harness.disk.trace, [""; 0]);
}

#[test]
fn a_full_disk_is_told_and_waited_for() {
    let mut harness = Harness::new(config());
    harness.disk.fails = Some((
        |request| matches!(request, DiskRequest::Write { .. }),
        DiskError::Full,
    ));
    harness.write(300);
    harness.start_read(1, 1, 1, 0);
    assert_eq!(harness.told(), ["recovered 0", "full", "read 1: 1"]);
    // Tried in vain, and then with success.
    harness.retry();
    assert_eq!(harness.told(), ["full"]);
    harness.disk.fails = None;
    harness.retry();
    assert_eq!(harness.told(), ["space", "written 1", "synced 1"]);
    assert_eq!(harness.reopen().recovered().len(), 1);
}

#[test]
fn a_removed_log_leaves_nothing() {
    let mut harness = Harness::new(config());
    for _ in 0..10 {
        harness.write(1000);
    }
    harness.start_read(1, 1, 3, usize::MAX);
    harness.journal.remove(&mut harness.out);
    harness.run();
    assert!(harness.told().ends_with(&["removed".to_owned()]));
    harness.disk.power_loss();
    assert_eq!(harness.disk.names(DIRECTORY), [""; 0]);
    assert_eq!(harness.disk.names("partitions"), [""; 0]);
    assert_eq!(harness.disk.open_files(), 0);
}

/// Goal: who is told that a log is removed may forget the journal. Method: a read is in flight,
/// and may end long after the names are gone; what completes after that word is told nobody.
#[test]
fn a_removed_log_waits_for_its_last_read() {
    for seed in 0..100 {
        let mut harness = Harness::on(Disk::new(seed), config());
        for _ in 0..10 {
            harness.write(1000);
        }
        harness.start_read(1, 1, 3, usize::MAX);
        harness.step();
        harness.journal.remove(&mut harness.out);
        while !harness.told().contains(&"removed".to_owned()) {
            assert!(harness.step(), "seed {seed}");
        }
        harness.disk.submit(&mut harness.out);
        while harness.disk.step().is_some() {}
        assert_eq!(harness.disk.open_files(), 0, "seed {seed}");
    }
}

#[test]
fn a_replicated_journal_syncs_when_asked_and_when_it_rolls() {
    let mut harness = Harness::new(storage::JournalConfig {
        persisted: false,
        ..config()
    });
    harness.write(1000);
    assert_eq!(harness.journal.written_op(), Op(1));
    assert_eq!(harness.journal.synced_op(), Op(0));
    harness.journal.sync(&mut harness.out);
    harness.run();
    assert_eq!(harness.told(), ["recovered 0", "written 1", "synced 1"]);
    harness.write(3000);
    harness.write(500);
    assert_eq!(harness.told(), ["written 2", "synced 2", "written 3"]);
}
