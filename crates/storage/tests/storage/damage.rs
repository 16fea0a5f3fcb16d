//! Claims about damage: what is lost is known for lost, what is left is kept, and everything
//! comes back from a whole copy.

use base::{Bytes, Op, View};
use platform::{DiskError, DiskRequest};
use storage::{JournalConfig, segment_name};

use crate::harness::{DIRECTORY, Harness, Sketch, checksum, config, prepare};

fn segment(first: u64) -> String {
    format!("{DIRECTORY}/{}", segment_name(Op(first)))
}

/// Three segments: ops 1 to 4, 5 to 8, and 9 to 11 in the last.
fn log() -> (Harness, Vec<Bytes>) {
    let mut harness = Harness::new(config());
    let appended = (0..11).map(|_| harness.write(1000)).collect();
    assert_eq!(harness.disk.names(DIRECTORY).len(), 3);
    (harness, appended)
}

/// The content of all files.
fn contents(harness: &Harness) -> Vec<(String, Vec<u8>)> {
    let names = harness.disk.names(DIRECTORY);
    let content = |name: &String| harness.disk.content(&format!("{DIRECTORY}/{name}"));
    names
        .iter()
        .map(|name| (name.clone(), content(name)))
        .collect()
}

/// What recovery brought, by op: all of it stood in the log.
fn recovered(harness: &Harness, log: &[Bytes]) -> Vec<u64> {
    let op = |prepare: &Bytes| {
        let op = log.iter().position(|frame| frame == prepare);
        op.expect("a record of the log") as u64 + 1
    };
    harness.recovered().iter().map(op).collect()
}

fn ops(from: u64, to: u64, log: &[Bytes]) -> storage::Gap {
    storage::Gap {
        from: Op(from),
        to: Op(to),
        checksum: checksum(&log[usize::try_from(to).expect("small") - 1]),
    }
}

#[test]
fn a_flipped_bit_anywhere_costs_one_op_which_comes_back() {
    let mut small = Harness::new(JournalConfig {
        segment_size: 1000,
        ..config()
    });
    let appended: Vec<_> = (0..6).map(|n| small.write(256 + n * 41)).collect();
    let whole = contents(&small);
    assert!(whole.len() > 1);
    for (name, content) in &whole {
        for at in 0..content.len() {
            let mut harness = Harness::new(small.config.clone());
            for (name, content) in &whole {
                harness.disk.put(&format!("{DIRECTORY}/{name}"), content);
            }
            let mask = 1 << (at % 8);
            harness.disk.flip(&format!("{DIRECTORY}/{name}"), at, mask);
            let mut harness = harness.reopen();
            let where_ = format!("byte {at} of {name}");
            let kept = recovered(&harness, &appended);
            if let Some(after) = harness.tail_damaged() {
                assert_eq!(after, 5, "{where_}");
                assert_eq!(kept, [1, 2, 3, 4, 5], "{where_}");
                harness.cut_damaged();
                harness.journal.append(appended[5].clone());
                harness.submit();
                harness.run();
            } else {
                let gaps = harness.gaps();
                let lost: Vec<u64> = (1..=6).filter(|op| !kept.contains(op)).collect();
                let told: Vec<u64> = gaps.iter().flat_map(|gap| gap.from.0..=gap.to.0).collect();
                assert_eq!(lost, told, "{where_}");
                assert!(lost.len() <= 1, "{where_}");
            }
            harness.mend(&appended);
            assert_eq!(contents(&harness), whole, "{where_}");
            assert_eq!(harness.reopen().recovered(), appended, "{where_}");
        }
    }
}

#[test]
fn any_lost_sector_costs_the_records_in_it() {
    let (whole, appended) = log();
    for (name, content) in contents(&whole) {
        for sector in 0..content.len().div_ceil(512) {
            let (mut harness, _) = log();
            harness.disk.spoil(&format!("{DIRECTORY}/{name}"), sector);
            let mut harness = harness.reopen();
            let kept = recovered(&harness, &appended);
            assert!(kept.len() >= 9, "sector {sector} of {name}");
            assert!(harness.failures().is_empty());
            if let Some(after) = harness.tail_damaged() {
                assert!(after >= 9, "sector {sector} of {name}");
                harness.cut_damaged();
                let lost = usize::try_from(after).unwrap();
                for prepare in &appended[lost..] {
                    harness.journal.append(prepare.clone());
                }
                harness.submit();
                harness.run();
            }
            harness.mend(&appended);
            assert_eq!(contents(&harness), contents(&whole));
            assert_eq!(harness.reopen().recovered(), appended);
        }
    }
}

#[test]
fn damage_amid_the_log_is_a_gap_and_the_log_goes_on_behind_it() {
    let (mut harness, appended) = log();
    harness.disk.flip(&segment(1), 256 + 1000 + 300, 1);
    harness.disk.flip(&segment(5), 256 + 1000 + 20, 1);
    harness.disk.flip(&segment(5), 256 + 2000 + 20, 1);
    let mut harness = harness.reopen();
    assert_eq!(recovered(&harness, &appended), [1, 3, 4, 5, 8, 9, 10, 11]);
    assert_eq!(harness.gaps(), [ops(2, 2, &appended), ops(6, 7, &appended)]);
    assert!(harness.journal.is_missing(Op(6)) && !harness.journal.is_missing(Op(8)));
    assert_eq!(harness.journal.synced_op(), Op(11));
    // It is appended to as if nothing was missing, and reads go up to what is.
    let mut appended = appended;
    appended.push(harness.write(700));
    assert_eq!(harness.read(3, 12, usize::MAX), appended[2..5]);
    assert_eq!(harness.read(8, 12, usize::MAX), appended[7..]);
    harness.start_read(1, 6, 12, usize::MAX);
    harness.start_read(2, 7, 12, usize::MAX);
    harness.run();
    let damages: Vec<_> = harness.damages().iter().map(|d| (d.read, d.op.0)).collect();
    assert_eq!(damages, [(Some(1), 6), (Some(2), 7)]);
    harness.told();
    harness.mend(&appended);
    let told = harness.told();
    assert_eq!(told, ["repaired 2", "repaired 6", "repaired 7"]);
    assert_eq!(harness.read(1, 12, usize::MAX), appended);
    assert_eq!(harness.reopen().recovered(), appended);
}

#[test]
fn a_gap_across_segments_is_known_by_the_first_record_behind_it() {
    let (mut harness, appended) = log();
    // The ends of ops 4 and 5, and the header of the segment between them.
    harness.disk.flip(&segment(1), 256 + 3000 + 10, 1);
    harness.disk.flip(&segment(5), 7, 1);
    harness.disk.flip(&segment(5), 256 + 10, 1);
    let whole = contents(&log().0);
    let mut harness = harness.reopen();
    assert_eq!(
        recovered(&harness, &appended),
        [1, 2, 3, 6, 7, 8, 9, 10, 11]
    );
    assert_eq!(harness.gaps(), [ops(4, 5, &appended)]);
    harness.mend(&appended);
    assert_eq!(contents(&harness), whole);
}

#[test]
fn damage_at_the_end_waits_until_the_owner_knows() {
    let (mut harness, appended) = log();
    harness.disk.flip(&segment(9), 256 + 2000 + 600, 1);
    let harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), Some(10));
    assert_eq!(recovered(&harness, &appended).len(), 10);
    // Until then nothing is changed.
    let mut harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), Some(10));
    harness.told();
    harness.cut_damaged();
    assert_eq!(harness.told(), ["recovered 10"]);
    let harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), None);
    assert_eq!(harness.recovered(), appended[..10]);
}

#[test]
fn a_log_that_waits_for_its_owner_can_be_removed() {
    let (mut harness, _) = log();
    harness.disk.flip(&segment(9), 256 + 2000 + 600, 1);
    let mut harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), Some(10));
    harness.told();
    harness.journal.remove(&mut harness.out);
    harness.run();
    assert_eq!(harness.told(), ["removed"]);
    // So can one that is still reading what it would wait for.
    let (mut harness, _) = log();
    harness.disk.flip(&segment(9), 256 + 2000 + 600, 1);
    harness.disk.power_loss();
    let mut harness = Harness::opening(harness.disk, config());
    harness.journal.remove(&mut harness.out);
    harness.run();
    assert_eq!(harness.told().last().map(String::as_str), Some("removed"));
}

#[test]
fn segments_go_although_the_header_that_follows_them_is_damaged() {
    let (mut harness, appended) = log();
    // The header of the second segment and its first records.
    for at in [7, 256 + 10, 256 + 2000] {
        harness.disk.flip(&segment(5), at, 1);
    }
    let mut harness = harness.reopen();
    assert!(harness.gaps()[0].from == Op(5));
    harness.told();
    harness.drop_before(9);
    harness.run();
    assert_eq!(harness.journal.first_op(), Op(9));
    assert_eq!(harness.reopen().recovered(), appended[8..]);
}

#[test]
fn a_zero_sector_at_the_end_is_torn_unless_a_record_says_otherwise() {
    for (commit, missing) in [(0, false), (2, true)] {
        let mut harness = Harness::new(config());
        harness.write(400);
        harness.write(1300);
        let (head, parent) = harness.journal.head();
        let last = prepare(Sketch {
            op: head.next(),
            parent,
            size: 400,
            messages: None,
            view: View(1),
            commit: Op(commit),
        });
        harness.journal.append(last);
        harness.submit();
        harness.run();
        let mut content = harness.disk.content(&segment(1));
        content[1024..1536].fill(0);
        harness.disk.put(&segment(1), &content);
        let harness = harness.reopen();
        assert_eq!(harness.tail_damaged(), None);
        let gaps: Vec<_> = harness
            .gaps()
            .iter()
            .map(|gap| (gap.from.0, gap.to.0))
            .collect();
        if missing {
            assert_eq!(gaps, [(2, 2)]);
            assert_eq!(harness.journal.head().0, Op(3));
        } else {
            assert_eq!(gaps, []);
            assert_eq!(harness.journal.head().0, Op(1));
        }
    }
}

#[test]
fn a_misplaced_record_tells_that_the_log_was_longer() {
    // Op 11 was written over op 2; in its own place there is nothing.
    let (mut harness, appended) = log();
    let mut first = harness.disk.content(&segment(1));
    first[1256..2256].copy_from_slice(&appended[10]);
    harness.disk.put(&segment(1), &first);
    let last = harness.disk.content(&segment(9));
    harness.disk.put(&segment(9), &last[..256 + 2000]);
    let mut harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), Some(10));
    harness.cut_damaged();
    assert_eq!(harness.gaps(), [ops(2, 2, &appended)]);
    harness.mend(&appended);
    assert_eq!(harness.read(1, 11, usize::MAX), appended[..10]);
}

#[test]
fn a_segment_that_is_missing_empty_or_short_comes_back() {
    let whole = contents(&log().0);
    for size in [
        None,
        Some(0),
        Some(100),
        Some(256),
        Some(1256),
        Some(2700),
        Some(4255),
    ] {
        let (mut harness, appended) = log();
        let content = harness.disk.content(&segment(5));
        harness.disk.lose(&segment(5));
        if let Some(size) = size {
            harness.disk.put(&segment(5), &content[..size]);
        }
        let mut harness = harness.reopen();
        let kept = size.map_or(0, |size| size.saturating_sub(256) / 1000) as u64;
        assert_eq!(harness.gaps(), [ops(5 + kept, 8, &appended)], "{size:?}");
        harness.mend(&appended);
        assert_eq!(contents(&harness), whole, "{size:?}");
        assert_eq!(harness.reopen().recovered(), appended);
    }
}

#[test]
fn a_crash_amid_a_repair_leaves_the_same_gap_or_none() {
    for steps in 0..40 {
        for power in [false, true] {
            let (mut harness, appended) = log();
            harness.disk.flip(&segment(1), 256 + 1000 + 300, 1);
            harness.disk.flip(&segment(1), 256 + 2000 + 20, 1);
            harness.disk.lose(&segment(5));
            let mut harness = harness.reopen();
            assert_eq!(harness.gaps(), [ops(2, 3, &appended), ops(5, 8, &appended)]);
            for op in [3, 8, 2, 7, 6, 5] {
                let (files, out) = (&mut harness.files, &mut harness.out);
                assert!(harness.journal.repair(appended[op - 1].clone(), files, out));
            }
            for _ in 0..steps {
                harness.step();
            }
            harness.disk.submit(&mut harness.out);
            if power {
                harness.disk.power_loss();
            }
            let mut harness = harness.reopen();
            let known = [
                ops(2, 3, &appended),
                ops(2, 2, &appended),
                ops(3, 3, &appended),
            ];
            for gap in harness.gaps() {
                assert!(known.contains(&gap) || gap.from >= Op(5) && gap.to <= Op(8));
            }
            harness.mend(&appended);
            assert_eq!(harness.reopen().recovered(), appended, "{steps} steps");
        }
    }
}

#[test]
fn damage_in_a_running_log_is_told_by_whoever_meets_it() {
    for scrubs in [false, true] {
        let mut harness = Harness::new(JournalConfig {
            tail_cache: 0,
            ..config()
        });
        let appended: Vec<_> = (0..11).map(|_| harness.write(1000)).collect();
        harness.disk.flip(&segment(5), 256 + 1000 + 20, 1);
        harness.disk.flip(&segment(5), 256 + 3000 + 700, 1);
        harness.disk.spoil(&segment(1), 1);
        if scrubs {
            for _ in 0..40 {
                harness.scrub();
            }
        } else {
            harness.start_read(1, 5, 11, usize::MAX);
            harness.start_read(2, 1, 3, usize::MAX);
            harness.run();
            assert_eq!(harness.damages().len(), 2);
        }
        let mut gaps = harness.gaps();
        gaps.sort_unstable_by_key(|gap| gap.from);
        let known = [
            ops(1, 1, &appended),
            ops(6, 6, &appended),
            ops(8, 8, &appended),
        ];
        assert_eq!(gaps, known);
        assert_eq!(harness.read(2, 8, usize::MAX), appended[1..5]);
        assert_eq!(harness.read(9, 11, usize::MAX), appended[8..]);
        harness.mend(&appended);
        assert_eq!(harness.read(1, 11, usize::MAX), appended);
        assert_eq!(harness.reopen().recovered(), appended);
    }
}

#[test]
fn a_zero_sector_that_no_power_loss_explains_is_damage() {
    // A failed sync has taken pages away; the file is as long as it was.
    let mut harness = Harness::new(JournalConfig {
        loses_pages: false,
        ..config()
    });
    let appended = [harness.write(400), harness.write(1300)];
    let mut content = harness.disk.content(&segment(1));
    content[1024..1536].fill(0);
    harness.disk.put(&segment(1), &content);
    let harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), Some(1));
    assert_eq!(harness.recovered(), appended[..1]);
    // Where the file ends early, its process died as it wrote.
    let mut harness = Harness::new(JournalConfig {
        loses_pages: false,
        ..config()
    });
    let appended = [harness.write(400), harness.write(1300)];
    let mut content = harness.disk.content(&segment(1));
    content.truncate(content.len() - 1);
    harness.disk.put(&segment(1), &content);
    let harness = harness.reopen();
    assert_eq!(harness.tail_damaged(), None);
    assert_eq!(harness.recovered(), appended[..1]);
}

#[test]
fn what_is_still_in_memory_needs_no_peer() {
    let mut harness = Harness::new(JournalConfig {
        tail_cache: 1 << 20,
        ..config()
    });
    let appended: Vec<_> = (0..11).map(|_| harness.write(1000)).collect();
    harness.disk.flip(&segment(5), 256 + 3000 + 700, 1);
    harness.told();
    for _ in 0..20 {
        harness.scrub();
    }
    assert_eq!(harness.told(), ["gap 8 to 8", "repaired 8"]);
    assert_eq!(harness.reopen().recovered(), appended);
}

#[test]
fn a_log_is_cut_after_an_op_that_is_missing() {
    let (mut harness, appended) = log();
    harness.disk.flip(&segment(5), 256 + 1000 + 20, 1);
    harness.disk.flip(&segment(1), 256 + 3000 + 20, 1);
    for op in [6_u64, 4] {
        let mut harness = Harness::on(
            {
                let mut disk = crate::disk::Disk::new(3);
                for (name, content) in contents(&harness) {
                    disk.put(&format!("{DIRECTORY}/{name}"), &content);
                }
                disk.make(DIRECTORY);
                disk
            },
            config(),
        );
        harness.truncate_after(op);
        let new = harness.append_with(777, None, View(2));
        harness.submit();
        harness.run();
        assert_eq!(harness.journal.synced_op(), Op(op + 1));
        let mut harness = harness.reopen();
        let mut expected = appended[..usize::try_from(op).unwrap()].to_vec();
        expected.push(new);
        assert_eq!(harness.journal.head().0, Op(op + 1));
        harness.mend(&expected);
        assert_eq!(harness.reopen().recovered(), expected, "after {op}");
    }
}

#[test]
fn a_truncation_amid_what_is_missing_waits_for_its_repair() {
    let (mut harness, mut appended) = log();
    harness.disk.flip(&segment(5), 256 + 20, 1);
    harness.disk.flip(&segment(5), 256 + 1000 + 20, 1);
    let mut harness = harness.reopen();
    harness.told();
    harness.truncate_after(5);
    let parent = checksum(&appended[4]);
    let new = prepare(Sketch {
        op: Op(6),
        parent,
        size: 500,
        messages: None,
        view: View(2),
        commit: Op(0),
    });
    harness.journal.append(new.clone());
    harness.submit();
    harness.run();
    assert_eq!(harness.told(), [""; 0]);
    harness.mend(&appended);
    let told = harness.told();
    assert_eq!(told[..2], ["repaired 5", "repaired 6"]);
    assert!(told.contains(&"truncated 5".to_owned()));
    appended.truncate(5);
    appended.push(new);
    assert_eq!(harness.reopen().recovered(), appended);
}

#[test]
fn a_log_begins_after_any_base() {
    let (mut harness, appended) = log();
    harness.told();
    harness.reset(100, 4711);
    let (parent, op) = (4711, Op(101));
    let first = prepare(Sketch {
        op,
        parent,
        size: 300,
        messages: None,
        view: View(1),
        commit: Op(0),
    });
    harness.journal.append(first.clone());
    harness.submit();
    harness.run();
    assert_eq!(harness.told(), ["reset", "written 101", "synced 101"]);
    assert_eq!(harness.journal.first_op(), op);
    assert_eq!(harness.disk.names(DIRECTORY), [segment_name(op)]);
    harness.disk.power_loss();
    let mut harness = harness.reopen();
    assert_eq!(harness.recovered(), [first]);
    assert_eq!(harness.journal.base(), (Op(100), 4711));
    harness.truncate_after(100);
    harness.run();
    let mut harness = harness.reopen();
    assert_eq!(harness.journal.head(), (Op(100), 4711));
    assert_eq!(harness.journal.base(), (Op(100), 4711));
    assert_eq!(harness.recovered(), [] as [Bytes; 0]);
    harness.reset(0, 0);
    for prepare in &appended {
        harness.journal.append(prepare.clone());
    }
    harness.submit();
    harness.run();
    assert_eq!(harness.reopen().recovered(), appended);
}

#[test]
fn a_crash_amid_a_reset_leaves_the_old_log_or_nothing_or_the_new_one() {
    for steps in 0..20 {
        for power in [false, true] {
            let (mut harness, appended) = log();
            harness.reset(6, checksum(&appended[5]));
            for prepare in &appended[6..] {
                harness.journal.append(prepare.clone());
            }
            harness.submit();
            for _ in 0..steps {
                harness.step();
            }
            harness.disk.submit(&mut harness.out);
            if power {
                harness.disk.power_loss();
            }
            let harness = harness.reopen();
            let kept = recovered(&harness, &appended);
            let first = harness.journal.base().0.0 + 1;
            assert!(first == 1 || first == 7, "{first}");
            let expected: Vec<u64> = (first..first + kept.len() as u64).collect();
            assert_eq!(kept, expected);
            assert_eq!(harness.tail_damaged(), None);
            assert_eq!(harness.gaps(), []);
        }
    }
}

#[test]
fn the_oldest_segments_are_dropped_whole() {
    for steps in [0, 1, 2, 3, 100] {
        let (mut harness, appended) = log();
        harness.drop_before(8);
        assert_eq!(harness.journal.first_op(), Op(5));
        for _ in 0..steps {
            harness.step();
        }
        harness.disk.submit(&mut harness.out);
        harness.disk.power_loss();
        let mut harness = harness.reopen();
        let (base, identity) = harness.journal.base();
        assert!(base == Op(4) || base == Op(0) && steps < 100);
        if base == Op(4) {
            assert_eq!(identity, checksum(&appended[3]));
        }
        assert_eq!(
            harness.recovered(),
            appended[usize::try_from(base.0).unwrap()..]
        );
        harness.drop_before(100);
        harness.run();
        assert_eq!(harness.journal.first_op(), Op(9), "the active one stays");
        assert_eq!(harness.read(1, 100, usize::MAX), appended[8..]);
        assert_eq!(harness.reopen().recovered(), appended[8..]);
    }
}

#[test]
fn a_disk_that_fills_up_at_any_request_costs_nothing() {
    let fits: [crate::disk::Matches; 4] = [
        |request| matches!(request, DiskRequest::Write { .. }),
        |request| matches!(request, DiskRequest::Open { .. }),
        |request| matches!(request, DiskRequest::CreateDir { .. }),
        |request| matches!(request, DiskRequest::Truncate { .. }),
    ];
    for fails in fits {
        for steps in 0..30 {
            let mut harness = Harness::opening(crate::disk::Disk::new(steps), config());
            let mut appended = Vec::new();
            for step in 0..200 {
                if step == steps {
                    harness.disk.fails = Some((fails, DiskError::Full));
                }
                if step == steps + 20 {
                    harness.disk.fails = None;
                    harness.journal.retry(&mut harness.files, &mut harness.out);
                }
                let told = harness.step();
                if harness
                    .told()
                    .iter()
                    .any(|word| word.starts_with("recovered"))
                    || step > 60
                {
                    if appended.len() < 9 {
                        appended.push(harness.append(1000));
                        harness.submit();
                    } else if !told && step > 100 {
                        break;
                    }
                }
                if step % 7 == 0 {
                    harness.journal.retry(&mut harness.files, &mut harness.out);
                }
            }
            harness.retry();
            harness.run();
            assert!(harness.failures().is_empty());
            assert_eq!(harness.journal.synced_op(), Op(9), "full after {steps}");
            assert_eq!(harness.reopen().recovered(), appended);
        }
    }
}

/// Goal: a record that a misdirected write has left in a wrong place, with all that would tell
/// damaged, is found out, whatever comes first. Method: op 6 stands where op 8 was, and its own
/// place is damaged; ops 7 and 8 are there before op 5, or after it.
#[test]
fn a_misdirected_record_that_was_believed_is_found_out_by_the_repair() {
    let (mut harness, appended) = log();
    let whole = contents(&harness);
    let mut bytes = whole[1].1.clone();
    let place = |op: usize| 256 + (op - 5) * 1000;
    bytes.copy_within(place(6)..place(7), place(8));
    for op in 5..=7 {
        bytes[place(op) + 20] ^= 1;
    }
    for first in [&[5][..], &[8, 7, 5]] {
        harness.disk.put(&segment(5), &bytes);
        harness = harness.reopen();
        assert_eq!(recovered(&harness, &appended), [1, 2, 3, 4, 6, 9, 10, 11]);
        assert_eq!(harness.gaps(), [ops(5, 5, &appended), ops(7, 8, &appended)]);
        // The right op 5 does not fit between the beginning and what was taken for op 6.
        for op in first {
            let record = appended[op - 1].clone();
            let Harness {
                journal,
                files,
                out,
                ..
            } = &mut harness;
            assert!(journal.repair(record, files, out));
            harness.run();
        }
        harness.mend(&appended);
        assert!(harness.failures().is_empty());
        assert_eq!(contents(&harness), whole);
        assert_eq!(harness.read(1, 11, usize::MAX), appended);
        harness = harness.reopen();
        assert_eq!(harness.recovered(), appended);
    }
}
