//! The recovery of a partition's log from any bytes, by the real journal on the disk of its own
//! tests: it ends, it panics never, and a second recovery brings what the first left.
//!
//! The first byte says how the files come to be: as they stand in the input, or written by the
//! journal and then damaged where the input says.

#![no_main]
#![allow(dead_code, reason = "the journal's tests use the rest")]

#[path = "../../crates/storage/tests/storage/disk.rs"]
mod disk;
#[path = "../../crates/storage/tests/storage/harness.rs"]
mod harness;

use base::{Bytes, Op};
use libfuzzer_sys::fuzz_target;
use storage::segment_name;

use disk::Disk;
use harness::{DIRECTORY, Harness, config};

/// More completions than any recovery of a few kilobytes takes.
const STEPS_MAX: usize = 100_000;

fn path(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

/// Files in the input: first op, size, content, back to back.
fn as_given(mut data: &[u8]) -> Disk {
    let mut disk = Disk::new(1);
    disk.make(DIRECTORY);
    while let Some((&[op, low, high], rest)) = data.split_first_chunk() {
        let size = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (content, rest) = rest.split_at(size);
        disk.put(&path(&segment_name(Op(u64::from(op)))), content);
        data = rest;
    }
    disk
}

/// A log of the journal's own; each edit is a file, a place, and a value or a cut.
fn damaged(data: &[u8]) -> Disk {
    let mut harness = Harness::new(config());
    let (sizes, edits) = data.split_at(data.len().min(12));
    for &size in sizes {
        harness.write(256 + usize::from(size) * 5);
    }
    let names = harness.disk.names(DIRECTORY);
    for &[which, low, high, value] in edits.as_chunks::<4>().0 {
        let Some(name) = names.get(usize::from(which & 0x7F) % names.len().max(1)) else {
            break;
        };
        let mut content = harness.disk.content(&path(name));
        let at = usize::from(u16::from_le_bytes([low, high])) % (content.len() + 1);
        if which & 0x80 != 0 {
            content.truncate(at);
        } else if let Some(byte) = content.get_mut(at) {
            *byte = value;
        }
        harness.disk.put(&path(name), &content);
    }
    reborn(&harness.disk)
}

/// The same files before a process that has opened none.
fn reborn(disk: &Disk) -> Disk {
    let mut next = Disk::new(1);
    next.make(DIRECTORY);
    for name in disk.names(DIRECTORY) {
        next.put(&path(&name), &disk.content(&path(&name)));
    }
    next
}

fn run(harness: &mut Harness) {
    for _ in 0..STEPS_MAX {
        if !harness.step() {
            return;
        }
    }
    panic!("recovery does not end");
}

/// Recovers; what a damaged end hides is given up. Answers what was told, if recovery ended well.
fn recover(disk: Disk) -> (Option<Vec<Bytes>>, Harness) {
    let mut harness = Harness::opening(disk, config());
    run(&mut harness);
    if harness.failures().is_empty() && harness.tail_damaged().is_some() {
        harness.cut_damaged();
        run(&mut harness);
    }
    let told = harness.failures().is_empty().then(|| harness.recovered());
    (told, harness)
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    let disk = if kind % 2 == 0 {
        as_given(data)
    } else {
        damaged(data)
    };
    let (first, harness) = recover(disk);
    let Some(first) = first else { return };
    let (second, _) = recover(reborn(&harness.disk));
    assert_eq!(second, Some(first), "a second recovery brings the same");
});
