//! The disk alone: what survives a crash of the process and of the machine.

mod trouble;

use std::collections::BTreeSet;

use super::*;

struct Harness(Disk);

impl Harness {
    fn new(seed: u64) -> Self {
        let mut harness = Self(Disk::new(seed, 0, DiskSpeed::default()));
        harness.run(DiskRequest::CreateDir { path: "d".into() });
        harness.run(DiskRequest::SyncDir { path: "".into() });
        harness
    }

    fn run(&mut self, request: DiskRequest) -> DiskResult {
        let (slot, _) = self.0.submit(0, Token::default(), request);
        self.0
            .complete(slot)
            .expect("no crash")
            .1
            .result
            .expect("works")
    }

    fn open(&mut self, file: u64, path: &str) -> DiskResult {
        let (file, path) = (FileId(file), path.into());
        self.run(DiskRequest::Open {
            file,
            path,
            mode: OpenMode::CreateIfMissing,
        })
    }

    fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) {
        let data = vec![Bytes::copy_of(bytes)];
        self.run(DiskRequest::Write {
            file: FileId(file),
            offset,
            data,
        });
    }

    fn content(&self, name: &str) -> Option<Vec<u8>> {
        let files = self.0.files_below("d");
        files
            .iter()
            .find(|(path, _)| *path == name)
            .map(|(_, bytes)| bytes.to_vec())
    }
}

fn with_file(seed: u64) -> Harness {
    let mut disk = Harness::new(seed);
    disk.open(1, "d/a");
    disk.run(DiskRequest::SyncDir { path: "d".into() });
    disk
}

#[test]
fn completed_writes_survive_a_process_crash() {
    let mut disk = Harness::new(1);
    disk.open(1, "d/a");
    disk.write(1, 0, &[7; 3000]);
    disk.0.crash(Crash::Process);
    assert_eq!(disk.content("d/a"), Some(vec![7; 3000]));
}

#[test]
fn power_loss_keeps_the_synced_and_any_part_of_the_rest() {
    let (mut none, mut all, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let mut disk = with_file(seed);
        disk.write(1, 0, &[1; 1024]);
        disk.run(DiskRequest::SyncData { file: FileId(1) });
        disk.write(1, 1024, &[2; 4096]);
        disk.0.crash(Crash::Power);
        let content = disk.content("d/a").expect("its name is durable");
        assert_eq!(content[..1024], [1; 1024]);
        let kept = content[1024..].iter().filter(|&&byte| byte == 2).count();
        assert_eq!(kept % 512, 0);
        match kept {
            0 => none += 1,
            4096 => all += 1,
            _ => torn += 1,
        }
    }
    assert!(none > 20 && all > 20 && torn > 20, "{none} {all} {torn}");
}

#[test]
fn sync_covers_only_what_completed_before_it_was_submitted() {
    let lost = (0..50).any(|seed| {
        let mut disk = with_file(seed);
        let sync = DiskRequest::SyncData { file: FileId(1) };
        let (slot, _) = disk.0.submit(0, Token::default(), sync);
        disk.write(1, 0, &[1; 512]);
        disk.0.complete(slot);
        disk.0.crash(Crash::Power);
        disk.content("d/a") != Some(vec![1; 512])
    });
    assert!(lost);
}

#[test]
fn a_name_needs_a_sync_of_its_directory() {
    let kept = (0..100).filter(|&seed| {
        let mut disk = Harness::new(seed);
        disk.open(1, "d/a");
        disk.write(1, 0, &[1; 512]);
        disk.run(DiskRequest::SyncData { file: FileId(1) });
        disk.0.crash(Crash::Power);
        disk.content("d/a").is_some()
    });
    let kept = kept.count();
    assert!(kept > 20 && kept < 80, "{kept}");
    let mut disk = with_file(1);
    disk.0.crash(Crash::Power);
    assert_eq!(disk.content("d/a"), Some(vec![]));
}

#[test]
fn rename_is_atomic_and_replaces() {
    for seed in 0..50 {
        let mut disk = with_file(seed);
        disk.write(1, 0, b"old");
        disk.open(2, "d/b");
        disk.write(2, 0, b"new");
        disk.run(DiskRequest::SyncData { file: FileId(1) });
        disk.run(DiskRequest::SyncData { file: FileId(2) });
        disk.run(DiskRequest::SyncDir { path: "d".into() });
        disk.run(DiskRequest::Rename {
            from: "d/b".into(),
            to: "d/a".into(),
        });
        assert_eq!(disk.content("d/a"), Some(b"new".to_vec()));
        disk.0.crash(Crash::Power);
        let (a, b) = (disk.content("d/a"), disk.content("d/b"));
        let before = a == Some(b"old".to_vec()) && b == Some(b"new".to_vec());
        let after = a == Some(b"new".to_vec()) && b.is_none();
        assert!(before || after);
    }
}

#[test]
fn a_write_in_flight_at_a_crash_happens_wholly_partly_or_not() {
    let mut sizes = BTreeSet::new();
    for seed in 0..60 {
        let mut disk = with_file(seed);
        let data = vec![Bytes::copy_of(&[3; 700]), Bytes::copy_of(&[3; 700])];
        let write = DiskRequest::Write {
            file: FileId(1),
            offset: 0,
            data,
        };
        let (slot, _) = disk.0.submit(0, Token::default(), write);
        disk.0.crash(Crash::Process);
        assert!(disk.0.in_flight.get(slot).is_none());
        sizes.insert(disk.content("d/a").expect("there").len());
    }
    assert!(sizes.contains(&0) && sizes.contains(&1400) && sizes.len() > 4);
}

#[test]
fn listing_and_reading_see_what_is_there() {
    let mut disk = with_file(1);
    disk.write(1, 0, b"hello");
    let DiskResult::Names(names) = disk.run(DiskRequest::List { path: "d".into() }) else {
        panic!("names");
    };
    assert_eq!(names, ["a"]);
    let buffer = base::Buffer::with_capacity(256);
    let read = DiskRequest::Read {
        file: FileId(1),
        offset: 1,
        buffer,
    };
    let DiskResult::Read { buffer } = disk.run(read) else {
        panic!("read")
    };
    assert_eq!(buffer.as_slice(), b"ello");
}
