//! What `platform::disk` says of files, on real ones.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::fs;

use base::{Buffer, Bytes};
use harness::{Body, body, noise};
use platform::{DiskError, DiskRequest, DiskResult, FileId, OpenMode, Path};

fn open(body: &mut Body, file: u64, path: &str, mode: OpenMode) -> Result<u64, DiskError> {
    let request = DiskRequest::Open {
        file: FileId(file),
        path: path.into(),
        mode,
    };
    body.disk(request).map(|result| match result {
        DiskResult::Opened { size } => size,
        other => panic!("{other:?}"),
    })
}

fn create(body: &mut Body, file: u64, path: &str) {
    assert_eq!(open(body, file, path, OpenMode::CreateIfMissing), Ok(0));
}

fn write(file: u64, offset: u64, data: &[&[u8]]) -> DiskRequest {
    let data = data.iter().map(|bytes| Bytes::copy_of(bytes)).collect();
    DiskRequest::Write {
        file: FileId(file),
        offset,
        data,
    }
}

fn read(body: &mut Body, file: u64, offset: u64, buffer: Buffer) -> Buffer {
    match body.disk(DiskRequest::Read {
        file: FileId(file),
        offset,
        buffer,
    }) {
        Ok(DiskResult::Read { buffer }) => buffer,
        other => panic!("{other:?}"),
    }
}

fn done(result: Result<DiskResult, DiskError>) {
    assert!(matches!(result, Ok(DiskResult::Done)), "{result:?}");
}

fn names(body: &mut Body, path: &str) -> Vec<String> {
    match body.disk(DiskRequest::List { path: path.into() }) {
        Ok(DiskResult::Names(names)) => names,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_in_pieces_is_read_back_in_one() {
    let (mut body, _directory) = body();
    create(&mut body, 1, "log");
    let bytes = noise(10_000, 1);
    let pieces: Vec<&[u8]> = bytes.chunks(777).collect();
    assert!(matches!(
        body.disk(write(1, 0, &pieces)),
        Ok(DiskResult::Written)
    ));
    assert_eq!(
        read(&mut body, 1, 0, Buffer::with_capacity(10_000)).as_slice(),
        bytes
    );
}

#[test]
fn a_write_of_more_slices_than_the_kernel_takes_is_whole() {
    let (mut body, _directory) = body();
    create(&mut body, 1, "log");
    let bytes = noise(3 * 2_500, 2);
    let pieces: Vec<&[u8]> = bytes.chunks(3).flat_map(|piece| [piece, &[][..]]).collect();
    assert!(matches!(
        body.disk(write(1, 5, &pieces)),
        Ok(DiskResult::Written)
    ));
    assert_eq!(
        read(&mut body, 1, 5, Buffer::with_capacity(7_680)).as_slice(),
        bytes
    );
    assert!(matches!(
        body.disk(write(1, 0, &[])),
        Ok(DiskResult::Written)
    ));
}

#[test]
fn a_read_is_short_only_at_the_end_and_appends_to_the_buffer() {
    let (mut body, _directory) = body();
    create(&mut body, 1, "log");
    assert!(matches!(
        body.disk(write(1, 0, &[&[9; 1_000]])),
        Ok(DiskResult::Written)
    ));
    let buffer = read(&mut body, 1, 900, Buffer::copy_of(b"kept"));
    assert_eq!(buffer.as_slice(), [&b"kept"[..], &[9; 100]].concat());
    assert!(read(&mut body, 1, 1_000, Buffer::with_capacity(256)).is_empty());
    assert!(read(&mut body, 1, 1 << 40, Buffer::with_capacity(256)).is_empty());
    let full = read(&mut body, 1, 0, Buffer::zeroed(256));
    assert_eq!(full.as_slice(), [0; 256], "no room, nothing read");
}

#[test]
fn a_write_beyond_the_end_leaves_zeros() {
    let (mut body, _directory) = body();
    create(&mut body, 1, "log");
    assert!(matches!(
        body.disk(write(1, 300, &[b"x"])),
        Ok(DiskResult::Written)
    ));
    let buffer = read(&mut body, 1, 0, Buffer::with_capacity(512));
    assert_eq!(buffer.as_slice(), [vec![0; 300], vec![b'x']].concat());
}

#[test]
fn open_modes_keep_empty_or_refuse() {
    let (mut body, _directory) = body();
    assert_eq!(
        open(&mut body, 1, "log", OpenMode::Existing),
        Err(DiskError::NotFound)
    );
    assert_eq!(
        open(&mut body, 2, "missing/log", OpenMode::CreateIfMissing),
        Err(DiskError::NotFound)
    );
    create(&mut body, 3, "log");
    assert!(matches!(
        body.disk(write(3, 0, &[b"four"])),
        Ok(DiskResult::Written)
    ));
    done(body.disk(DiskRequest::Close { file: FileId(3) }));
    assert_eq!(open(&mut body, 4, "log", OpenMode::CreateIfMissing), Ok(4));
    assert_eq!(open(&mut body, 5, "log", OpenMode::Existing), Ok(4));
    assert_eq!(open(&mut body, 6, "log", OpenMode::CreateEmpty), Ok(0));
}

#[test]
fn truncate_cuts_and_extends() {
    let (mut body, directory) = body();
    create(&mut body, 1, "log");
    assert!(matches!(
        body.disk(write(1, 0, &[b"0123456789"])),
        Ok(DiskResult::Written)
    ));
    done(body.disk(DiskRequest::Truncate {
        file: FileId(1),
        size: 4,
    }));
    done(body.disk(DiskRequest::SyncData { file: FileId(1) }));
    assert_eq!(fs::read(directory.0.join("log")).unwrap(), b"0123");
    done(body.disk(DiskRequest::Truncate {
        file: FileId(1),
        size: 6,
    }));
    assert_eq!(
        read(&mut body, 1, 0, Buffer::with_capacity(256)).as_slice(),
        b"0123\0\0"
    );
}

#[test]
fn names_are_made_renamed_listed_and_removed() {
    let (mut body, directory) = body();
    let path = |path: &str| Path::from(path);
    done(body.disk(DiskRequest::CreateDir {
        path: path("partitions"),
    }));
    done(body.disk(DiskRequest::CreateDir {
        path: path("partitions"),
    }));
    let orphan = DiskRequest::CreateDir {
        path: path("no/parent"),
    };
    assert!(matches!(body.disk(orphan), Err(DiskError::NotFound)));
    for (file, name) in [
        (1, "partitions/b"),
        (2, "partitions/c"),
        (3, "partitions/a"),
    ] {
        create(&mut body, file, name);
    }
    assert_eq!(names(&mut body, "partitions"), ["a", "b", "c"]);
    assert_eq!(names(&mut body, ""), ["partitions"]);
    let nowhere = body.disk(DiskRequest::List {
        path: "nowhere".into(),
    });
    assert_eq!(nowhere.err(), Some(DiskError::NotFound));

    assert!(matches!(
        body.disk(write(2, 0, &[b"new"])),
        Ok(DiskResult::Written)
    ));
    let (from, to) = (path("partitions/c"), path("partitions/a"));
    done(body.disk(DiskRequest::Rename {
        from: from.clone(),
        to: to.clone(),
    }));
    done(body.disk(DiskRequest::SyncDir {
        path: path("partitions"),
    }));
    done(body.disk(DiskRequest::SyncDir { path: path("") }));
    assert_eq!(fs::read(directory.0.join("partitions/a")).unwrap(), b"new");
    let again = DiskRequest::Rename { from, to };
    assert!(matches!(body.disk(again), Err(DiskError::NotFound)));

    let full = DiskRequest::RemoveDir {
        path: path("partitions"),
    };
    assert!(matches!(body.disk(full), Err(DiskError::Io)));
    for name in ["partitions/a", "partitions/b", "partitions/b"] {
        done(body.disk(DiskRequest::RemoveFile { path: path(name) }));
    }
    done(body.disk(DiskRequest::RemoveDir {
        path: path("partitions"),
    }));
    done(body.disk(DiskRequest::RemoveDir {
        path: path("partitions"),
    }));
    let gone = DiskRequest::SyncDir {
        path: path("partitions"),
    };
    assert!(matches!(body.disk(gone), Err(DiskError::NotFound)));
}

#[test]
fn more_requests_than_the_ring_has_room_for_all_complete() {
    let options = uring::Options {
        entries: 8,
        ..uring::Options::default()
    };
    let mut all = harness::bodies(1, 16, &options);
    let mut body = all.bodies.remove(0);
    create(&mut body, 1, "log");
    let bytes = noise(1_000 * 64, 3);
    let writes: Vec<u64> = (0..)
        .zip(bytes.chunks(64))
        .map(|(place, chunk)| body.start(write(1, place * 64, &[chunk])))
        .collect();
    assert_eq!(writes.len(), 1_000);
    for request in writes {
        assert!(matches!(body.done(request), Ok(DiskResult::Written)));
    }
    let reads: Vec<u64> = (0..500)
        .map(|place| {
            let buffer = Buffer::with_capacity(256);
            body.start(DiskRequest::Read {
                file: FileId(1),
                offset: place * 128,
                buffer,
            })
        })
        .collect();
    // Closed while the reads are in flight: they still hold the file.
    done(body.disk(DiskRequest::Close { file: FileId(1) }));
    for (place, request) in reads.into_iter().enumerate() {
        let Ok(DiskResult::Read { buffer }) = body.done(request) else {
            panic!()
        };
        let end = (place * 128 + 256).min(bytes.len());
        assert_eq!(buffer.as_slice(), &bytes[place * 128..end]);
    }
}

#[test]
fn a_ring_that_ends_with_requests_in_flight_lets_them_end_first() {
    let (mut body, directory) = body();
    create(&mut body, 1, "log");
    for place in 0..64 {
        body.start(write(1, place * 4_096, &[&noise(4_096, place)]));
        body.start(DiskRequest::SyncData { file: FileId(1) });
    }
    drop(body);
    // What was submitted by the drop was executed or cancelled as a whole.
    let size = fs::metadata(directory.0.join("log")).unwrap().len();
    assert_eq!(size % 4_096, 0);
}

#[test]
fn a_full_device_is_told_as_full() {
    let (mut body, directory) = body();
    std::os::unix::fs::symlink("/dev/full", directory.0.join("log")).unwrap();
    assert_eq!(open(&mut body, 1, "log", OpenMode::Existing), Ok(0));
    let result = body.disk(write(1, 0, &[b"x"]));
    assert!(matches!(result, Err(DiskError::Full)), "{result:?}");
}
