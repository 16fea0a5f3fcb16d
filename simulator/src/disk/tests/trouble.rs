//! Devices that fail: what the owner of a file is told, and what is left of it.

use super::*;

impl Harness {
    fn attempt(&mut self, request: DiskRequest) -> Result<DiskResult, DiskError> {
        let (slot, _) = self.0.submit(0, Token::default(), request);
        self.0.complete(slot).expect("no crash").1.result
    }

    fn sync(&mut self) -> Result<DiskResult, DiskError> {
        self.attempt(DiskRequest::SyncData { file: FileId(1) })
    }

    fn read(&mut self, offset: u64, size: usize) -> Result<Vec<u8>, DiskError> {
        let buffer = base::Buffer::with_capacity(size);
        let request = DiskRequest::Read {
            file: FileId(1),
            offset,
            buffer,
        };
        match self.attempt(request)? {
            // A buffer may have more room than was asked for.
            DiskResult::Read { buffer } => {
                Ok(buffer.as_slice().iter().copied().take(size).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    fn try_write(&mut self, offset: u64, bytes: &[u8]) -> Result<DiskResult, DiskError> {
        let data = vec![Bytes::copy_of(bytes)];
        self.attempt(DiskRequest::Write {
            file: FileId(1),
            offset,
            data,
        })
    }
}

fn synced(bytes: &[u8]) -> Harness {
    let mut disk = with_file(1);
    disk.write(1, 0, bytes);
    disk.sync().expect("works");
    disk
}

#[test]
fn the_nth_request_of_a_kind_fails_and_only_that() {
    let mut disk = synced(&[1; 512]);
    disk.0.fail(Operation::Read, 2);
    let outcomes: Vec<bool> = (0..4).map(|_| disk.read(0, 512).is_ok()).collect();
    assert_eq!(outcomes, [true, false, true, true]);
    assert!(disk.0.has_failed());
    disk.0.crash(Crash::Process);
    assert!(!disk.0.has_failed());
}

#[test]
fn a_failed_write_has_happened_in_part() {
    let mut sizes = BTreeSet::new();
    for seed in 0..40 {
        let mut disk = with_file(seed);
        disk.0.fail(Operation::Write, 1);
        assert_eq!(disk.try_write(0, &[9; 300]).err(), Some(DiskError::Io));
        sizes.insert(disk.content("d/a").expect("there").len());
    }
    assert!(sizes.len() > 10, "{sizes:?}");
}

#[test]
fn what_a_failed_sync_lost_is_shown_until_the_page_is_evicted_or_the_power_lost() {
    let mut lost_by = [0; 3];
    for seed in 0..40 {
        for (how, lost) in lost_by.iter_mut().enumerate() {
            let mut disk = with_file(seed);
            disk.write(1, 0, &[1; 2048]);
            disk.0.fail(Operation::Sync, 1);
            assert_eq!(disk.sync().err(), Some(DiskError::Io));
            assert_eq!(disk.content("d/a"), Some(vec![1; 2048]));
            // A later sync has nothing to write and says that all is well.
            disk.sync().expect("the kernel lies");
            assert_eq!(disk.content("d/a"), Some(vec![1; 2048]));
            if how == 0 {
                disk.0.drop_caches();
            } else if how == 1 {
                disk.run(DiskRequest::Evict { file: FileId(1) });
            } else {
                disk.0.crash(Crash::Power);
            }
            *lost += usize::from(disk.content("d/a") != Some(vec![1; 2048]));
        }
    }
    assert!(lost_by.iter().all(|&lost| lost > 10), "{lost_by:?}");
}

#[test]
fn evicting_clean_and_dirty_pages_changes_nothing() {
    let mut disk = synced(&[1; 700]);
    disk.write(1, 600, &[2; 300]);
    disk.0.drop_caches();
    let mut expected = vec![1; 600];
    expected.extend([2; 300]);
    assert_eq!(disk.content("d/a"), Some(expected));
}

#[test]
fn a_full_disk_takes_part_of_a_write_overwrites_and_takes_all_when_there_is_room() {
    let mut disk = synced(&[1; 1000]);
    disk.0.limit_space(Some(100));
    disk.try_write(500, &[2; 500]).expect("it grows nothing");
    disk.try_write(1000, &[3; 100]).expect("there is just room");
    assert_eq!(disk.try_write(1100, &[4; 1]).err(), Some(DiskError::Full));
    let create = DiskRequest::Open {
        file: FileId(2),
        path: "d/b".into(),
        mode: OpenMode::CreateIfMissing,
    };
    assert_eq!(disk.attempt(create).err(), Some(DiskError::Full));
    let create = DiskRequest::CreateDir { path: "e".into() };
    assert_eq!(disk.attempt(create).err(), Some(DiskError::Full));
    disk.0.limit_space(Some(50));
    assert_eq!(disk.try_write(1100, &[5; 400]).err(), Some(DiskError::Full));
    assert!(disk.content("d/a").expect("there").len() <= 1150);
    assert!(!disk.0.has_failed(), "no process may stop for it");
    disk.0.heal();
    disk.try_write(1100, &[5; 400]).expect("there is room");
}

#[test]
fn removing_a_file_makes_room() {
    let mut disk = synced(&[1; 1000]);
    disk.0.limit_space(Some(0));
    assert_eq!(disk.try_write(1000, &[1; 10]).err(), Some(DiskError::Full));
    disk.run(DiskRequest::RemoveFile { path: "d/a".into() });
    disk.open(2, "d/b");
    disk.write(2, 0, &[1; 900]);
}

#[test]
fn an_unreadable_sector_stays_so_until_it_is_written_over() {
    let mut disk = synced(&[1; 2048]);
    disk.0.spoil("d/a", 512, 512);
    assert_eq!(disk.read(0, 512), Ok(vec![1; 512]));
    assert_eq!(disk.read(0, 513), Err(DiskError::Io));
    assert_eq!(disk.read(1023, 512), Err(DiskError::Io));
    assert_eq!(disk.read(1024, 512), Ok(vec![1; 512]));
    disk.0.crash(Crash::Power);
    disk.open(1, "d/a");
    assert_eq!(disk.read(600, 10), Err(DiskError::Io));
    disk.write(1, 600, &[7; 10]);
    assert_eq!(disk.read(600, 10), Ok(vec![7; 10]));
    assert_eq!(disk.read(512, 1), Ok(vec![0]), "the rest of it is gone");
}

#[test]
fn a_cut_file_has_no_unreadable_sectors_behind_its_end() {
    let mut disk = synced(&[1; 2048]);
    disk.0.spoil("d/a", 1024, 1024);
    let size = 1024;
    disk.run(DiskRequest::Truncate {
        file: FileId(1),
        size,
    });
    disk.write(1, 1024, &[2; 8]);
    assert_eq!(disk.read(1024, 100), Ok(vec![2; 8]));
}

#[test]
fn damage_outlives_a_power_loss_and_only_what_is_clean_is_damaged() {
    let mut disk = synced(&[1; 1000]);
    disk.write(1, 900, &[2; 200]);
    assert!(disk.0.is_clean("d/a", 0, 900));
    assert!(!disk.0.is_clean("d/a", 0, 901));
    assert!(!disk.0.is_clean("d/a", 1000, 10));
    assert!(!disk.0.is_clean("d/none", 0, 1));
    disk.0.damage("d/a", 10, &[5, 6]);
    disk.sync().expect("works");
    disk.0.crash(Crash::Power);
    assert_eq!(disk.content("d/a").expect("there")[8..13], [1, 1, 5, 6, 1]);
    assert_eq!(disk.0.durable("d/a").map(<[u8]>::len), Some(1100));
}

#[test]
fn a_wiped_disk_is_empty_and_works() {
    let mut disk = synced(&[1; 1000]);
    disk.0.crash(Crash::Power);
    disk.0.wipe();
    assert_eq!(disk.content("d/a"), None);
    disk.run(DiskRequest::CreateDir { path: "d".into() });
    disk.open(1, "d/a");
    assert_eq!(disk.read(0, 10), Ok(vec![]));
}

#[test]
fn a_slow_disk_takes_so_many_times_as_long() {
    let total = |slowness: u64| -> u64 {
        let mut disk = with_file(3);
        disk.0.slow_down(slowness);
        let sync = || DiskRequest::SyncData { file: FileId(1) };
        (0..100)
            .map(|_| {
                let (slot, latency) = disk.0.submit(0, Token::default(), sync());
                disk.0.complete(slot);
                latency
            })
            .sum()
    };
    let (usual, slow) = (total(1), total(100));
    assert!((usual * 90..usual * 110).contains(&slow), "{usual} {slow}");
}

#[test]
fn points_are_counted_as_they_are_passed() {
    let mut disk = with_file(1);
    let before = [Point::Submit, Point::Complete, Point::Sync, Point::Rename]
        .map(|point| disk.0.passed(point));
    disk.write(1, 0, &[1; 8]);
    disk.sync().expect("works");
    let (from, to) = ("d/a".into(), "d/b".into());
    disk.run(DiskRequest::Rename { from, to });
    disk.run(DiskRequest::SyncDir { path: "d".into() });
    let sync = DiskRequest::SyncData { file: FileId(1) };
    disk.0.submit(0, Token::default(), sync);
    let after = [Point::Submit, Point::Complete, Point::Sync, Point::Rename]
        .map(|point| disk.0.passed(point));
    let passed: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    assert_eq!(passed, [5, 4, 2, 1]);
}
