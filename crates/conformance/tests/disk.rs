//! What `platform::disk` promises of files, once for both arms.

use std::collections::BTreeSet;

use base::Buffer;
use conformance::{Subject, both, noise, write_request};
use platform::{DiskError, DiskRequest, DiskResult, FileId, OpenMode, Path};

both! {
    open_modes_keep_empty_or_refuse,
    a_directory_is_no_file,
    a_read_is_short_only_at_the_end_and_appends,
    a_write_beyond_the_end_leaves_zeros,
    an_overwrite_changes_nothing_else,
    pieces_are_written_one_after_the_other,
    a_write_of_nothing_is_written_and_changes_nothing,
    many_in_flight_end_once_each,
    reads_in_flight_outlive_the_close,
    truncate_cuts_and_extends_with_zeros,
    two_ids_of_one_file_see_the_same,
    a_rename_replaces_and_open_files_follow,
    a_rename_of_nothing_or_to_nowhere_is_refused,
    a_removed_file_stays_readable_while_open,
    removing_what_is_missing_is_done,
    creating_a_directory_twice_is_done,
    a_list_is_sorted_and_direct_and_says_what_is_missing,
    files_and_directories_are_synced,
    an_evicted_file_reads_the_same,
}

fn path(path: &str) -> Path {
    path.into()
}

fn close(subject: &mut Subject, file: u64) {
    subject.done(DiskRequest::Close { file: FileId(file) });
}

fn truncate(subject: &mut Subject, file: u64, size: u64) {
    let file = FileId(file);
    subject.done(DiskRequest::Truncate { file, size });
}

fn make_directory(subject: &mut Subject, directory: &str) {
    let path = path(directory);
    subject.done(DiskRequest::CreateDir { path });
}

fn rename(subject: &mut Subject, from: &str, to: &str) -> Result<DiskResult, DiskError> {
    let (from, to) = (path(from), path(to));
    subject.disk(DiskRequest::Rename { from, to })
}

fn open_modes_keep_empty_or_refuse(subject: &mut Subject) {
    let missing = Err(DiskError::NotFound);
    assert_eq!(subject.open(1, "log", OpenMode::Existing), missing);
    for mode in [OpenMode::CreateIfMissing, OpenMode::CreateEmpty] {
        assert_eq!(subject.open(1, "no/parent", mode), missing);
    }
    // An id whose open has failed is still unused.
    subject.create(1, "log", b"four");
    close(subject, 1);
    assert_eq!(subject.open(2, "log", OpenMode::Existing), Ok(4));
    assert_eq!(subject.open(3, "log", OpenMode::CreateIfMissing), Ok(4));
    assert_eq!(subject.read(3, 0, 256), b"four");
    assert_eq!(subject.open(4, "log", OpenMode::CreateEmpty), Ok(0));
    assert!(subject.read(2, 0, 256).is_empty(), "it is the same file");
    assert_eq!(subject.open(5, "new", OpenMode::CreateEmpty), Ok(0));
    assert_eq!(subject.names(""), ["log", "new"]);
}

fn a_directory_is_no_file(subject: &mut Subject) {
    make_directory(subject, "directory");
    for mode in [OpenMode::Existing, OpenMode::CreateIfMissing] {
        assert_eq!(subject.open(1, "directory", mode), Err(DiskError::Io));
    }
}

fn a_read_is_short_only_at_the_end_and_appends(subject: &mut Subject) {
    let content = noise(1_000, 1);
    subject.create(1, "log", &content);
    assert_eq!(subject.read(1, 0, 1_000), content);
    assert_eq!(subject.read(1, 0, 4_096), content);
    assert_eq!(subject.read(1, 100, 77), content[100..177]);
    assert_eq!(subject.read(1, 900, 300), content[900..]);
    for offset in [1_000, 1_001, 1 << 40] {
        assert!(subject.read(1, offset, 256).is_empty(), "{offset}");
    }
    assert!(subject.read(1, 0, 0).is_empty(), "no room, nothing read");
}

fn a_write_beyond_the_end_leaves_zeros(subject: &mut Subject) {
    subject.create(1, "log", b"ab");
    subject.write(1, 300, &[b"xyz"]);
    let content = [&b"ab"[..], &[0; 298], b"xyz"].concat();
    assert_eq!(subject.read(1, 0, 512), content);
    assert_eq!(subject.open(2, "log", OpenMode::Existing), Ok(303));
}

fn an_overwrite_changes_nothing_else(subject: &mut Subject) {
    let mut content = noise(5_000, 2);
    subject.create(1, "log", &content);
    for (offset, size) in [(0, 1), (511, 514), (4_990, 50), (2_000, 0)] {
        let bytes = noise(size, offset as u64);
        subject.write(1, offset as u64, &[&bytes]);
        let end = content.len().max(offset + size);
        content.resize(end, 0);
        content[offset..offset + size].copy_from_slice(&bytes);
        assert_eq!(subject.read(1, 0, 8_192), content);
    }
}

fn pieces_are_written_one_after_the_other(subject: &mut Subject) {
    // More than the kernel takes at once, some of them empty.
    let bytes = noise(3 * 1_100, 3);
    let pieces: Vec<&[u8]> = bytes.chunks(3).flat_map(|piece| [piece, &[][..]]).collect();
    assert!(pieces.len() > 1_024);
    subject.create(1, "log", b"");
    subject.write(1, 5, &pieces);
    assert_eq!(subject.read(1, 0, 5), [0; 5]);
    assert_eq!(subject.read(1, 5, 4_096), bytes);
}

fn a_write_of_nothing_is_written_and_changes_nothing(subject: &mut Subject) {
    subject.create(1, "log", b"abc");
    subject.write(1, 0, &[]);
    subject.write(1, 1, &[b""]);
    subject.write(1, 50, &[]);
    subject.write(1, 50, &[b"", b""]);
    assert_eq!(subject.read(1, 0, 256), b"abc");
}

fn many_in_flight_end_once_each(subject: &mut Subject) {
    // More than the ring's submission queue holds.
    subject.create(1, "log", b"");
    let bytes = noise(1_500 * 40, 4);
    let requests: Vec<u64> = (0..)
        .zip(bytes.chunks(40))
        .map(|(place, chunk)| subject.start(write_request(1, place * 40, &[chunk])))
        .collect();
    let sync = subject.start(DiskRequest::SyncData { file: FileId(1) });
    let distinct: BTreeSet<u64> = requests.iter().copied().collect();
    assert_eq!(distinct.len(), 1_500);
    assert!(matches!(subject.end(sync), Ok(DiskResult::Done)));
    for request in requests.into_iter().rev() {
        assert!(matches!(subject.end(request), Ok(DiskResult::Written)));
    }
    assert!(subject.read(1, 0, bytes.len()) == bytes);
    let rest = subject.rest();
    assert!(rest.is_empty(), "nothing ends twice: {rest:?}");
}

fn reads_in_flight_outlive_the_close(subject: &mut Subject) {
    let bytes = noise(64 * 128, 5);
    subject.create(1, "log", &bytes);
    let read = |place: u64| DiskRequest::Read {
        file: FileId(1),
        offset: place * 128,
        buffer: Buffer::with_capacity(256),
    };
    let reads: Vec<u64> = (0..64).map(|place| subject.start(read(place))).collect();
    let close = subject.start(DiskRequest::Close { file: FileId(1) });
    for (place, request) in reads.into_iter().enumerate() {
        let Ok(DiskResult::Read { buffer }) = subject.end(request) else {
            panic!("read {place}")
        };
        let end = (place * 128 + 256).min(bytes.len());
        assert_eq!(buffer.as_slice(), &bytes[place * 128..end]);
    }
    assert!(matches!(subject.end(close), Ok(DiskResult::Done)));
}

fn truncate_cuts_and_extends_with_zeros(subject: &mut Subject) {
    subject.create(1, "log", b"0123456789");
    truncate(subject, 1, 4);
    assert_eq!(subject.read(1, 0, 256), b"0123");
    truncate(subject, 1, 7);
    assert_eq!(
        subject.read(1, 0, 256),
        b"0123\0\0\0",
        "what was cut is gone"
    );
    truncate(subject, 1, 7);
    subject.write(1, 7, &[b"x"]);
    assert_eq!(subject.read(1, 4, 256), b"\0\0\0x");
    truncate(subject, 1, 0);
    assert_eq!(subject.open(2, "log", OpenMode::Existing), Ok(0));
}

fn two_ids_of_one_file_see_the_same(subject: &mut Subject) {
    subject.create(1, "log", b"one");
    assert_eq!(subject.open(2, "log", OpenMode::Existing), Ok(3));
    subject.write(2, 3, &[b"two"]);
    assert_eq!(subject.read(1, 0, 256), b"onetwo");
    close(subject, 2);
    subject.write(1, 0, &[b"ONE"]);
    assert_eq!(subject.read(1, 0, 256), b"ONEtwo");
}

fn a_rename_replaces_and_open_files_follow(subject: &mut Subject) {
    make_directory(subject, "a");
    make_directory(subject, "b");
    subject.create(1, "a/old", b"old");
    subject.create(2, "b/new", b"new");
    assert!(rename(subject, "b/new", "a/old").is_ok());
    assert_eq!(subject.names("a"), ["old"]);
    assert!(subject.names("b").is_empty());
    assert_eq!(subject.open(3, "a/old", OpenMode::Existing), Ok(3));
    assert_eq!(subject.read(3, 0, 256), b"new");
    // Ids stay with their files, not with names.
    subject.write(2, 3, &[b"er"]);
    assert_eq!(subject.read(3, 0, 256), b"newer");
    assert_eq!(subject.read(1, 0, 256), b"old");
    assert!(rename(subject, "a/old", "a/old").is_ok());
    assert_eq!(subject.names("a"), ["old"]);
}

fn a_rename_of_nothing_or_to_nowhere_is_refused(subject: &mut Subject) {
    subject.create(1, "log", b"kept");
    for (from, to) in [("missing", "log"), ("log", "no/parent"), ("no/log", "x")] {
        let result = rename(subject, from, to);
        let refused = matches!(result, Err(DiskError::NotFound));
        assert!(refused, "{from} to {to}: {result:?}");
    }
    assert_eq!(subject.names(""), ["log"]);
    assert_eq!(subject.open(2, "log", OpenMode::Existing), Ok(4));
}

fn a_removed_file_stays_readable_while_open(subject: &mut Subject) {
    subject.create(1, "log", b"old");
    let path = path("log");
    subject.done(DiskRequest::RemoveFile { path });
    assert!(subject.names("").is_empty());
    assert_eq!(subject.read(1, 0, 256), b"old");
    subject.create(2, "log", b"another");
    assert_eq!(subject.read(1, 0, 256), b"old");
    subject.done(DiskRequest::SyncData { file: FileId(1) });
    close(subject, 1);
}

fn removing_what_is_missing_is_done(subject: &mut Subject) {
    make_directory(subject, "directory");
    subject.create(1, "directory/log", b"");
    for _ in 0..2 {
        for name in ["directory/log", "directory/never", "no/parent"] {
            subject.done(DiskRequest::RemoveFile { path: path(name) });
        }
    }
    assert!(subject.names("directory").is_empty());
    for _ in 0..2 {
        for name in ["directory", "no/parent"] {
            subject.done(DiskRequest::RemoveDir { path: path(name) });
        }
    }
    assert!(subject.names("").is_empty());
}

fn creating_a_directory_twice_is_done(subject: &mut Subject) {
    make_directory(subject, "directory");
    subject.create(1, "directory/log", b"kept");
    make_directory(subject, "directory");
    assert_eq!(subject.names("directory"), ["log"]);
    make_directory(subject, "directory/below");
    let orphan = DiskRequest::CreateDir {
        path: path("no/parent"),
    };
    let result = subject.disk(orphan);
    assert!(matches!(result, Err(DiskError::NotFound)), "{result:?}");
}

fn a_list_is_sorted_and_direct_and_says_what_is_missing(subject: &mut Subject) {
    assert!(subject.names("").is_empty());
    for missing in ["missing", "missing/below"] {
        let listed = subject.disk(DiskRequest::List {
            path: path(missing),
        });
        assert_eq!(listed.err(), Some(DiskError::NotFound));
    }
    // `d.log` and `d0` sort around `d/`, but not in the directory.
    for directory in ["d", "d/below", "e"] {
        make_directory(subject, directory);
    }
    let names = ["d.log", "d0", "d/c", "d/B", "d/a10", "d/a9", "d/below/z"];
    for (file, name) in (1..).zip(names) {
        subject.create(file, name, b"");
    }
    assert_eq!(subject.names(""), ["d", "d.log", "d0", "e"]);
    assert_eq!(subject.names("d"), ["B", "a10", "a9", "below", "c"]);
    assert!(subject.names("e").is_empty());
}

fn files_and_directories_are_synced(subject: &mut Subject) {
    make_directory(subject, "directory");
    subject.create(1, "directory/log", b"content");
    subject.done(DiskRequest::SyncData { file: FileId(1) });
    subject.done(DiskRequest::SyncData { file: FileId(1) });
    for name in ["directory", ""] {
        subject.done(DiskRequest::SyncDir { path: path(name) });
    }
    assert_eq!(subject.read(1, 0, 256), b"content");
    let missing = DiskRequest::SyncDir {
        path: path("missing"),
    };
    let result = subject.disk(missing);
    assert!(matches!(result, Err(DiskError::NotFound)), "{result:?}");
}

fn an_evicted_file_reads_the_same(subject: &mut Subject) {
    let file = FileId(1);
    let content = noise(20_000, 7);
    subject.create(1, "log", &content);
    // What is not durable stays, too.
    subject.done(DiskRequest::Evict { file });
    assert_eq!(subject.read(1, 0, 32_768), content);
    subject.done(DiskRequest::SyncData { file });
    subject.done(DiskRequest::Evict { file });
    assert_eq!(subject.read(1, 0, 32_768), content);
    assert_eq!(subject.read(1, 9_999, 256), content[9_999..10_255]);
    close(subject, 1);
}
