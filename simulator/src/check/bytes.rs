//! Replicas are byte-equal where committed: the same segment files with the same records, and
//! each record is the op of the one history.
//!
//! Source: `design.md` §6 (a partition's segments are its journal, and roll deterministically);
//! TigerBeetle's storage checker.

use base::{GroupId, Op};
use wire::{HEADER_SIZE, replica::PrepareHeader};

use super::{Failure, Verdict, committed::Committed, ensure};

const CHECK: &str = "bytes";

/// A file's name and what it holds.
pub(crate) type File<'a> = (&'a str, &'a [u8]);

/// The segment files of one group at one replica, sorted by name.
pub(crate) struct Segments<'a> {
    pub(crate) node: u8,
    pub(crate) files: Vec<File<'a>>,
}

/// Compares the replicas of `group` up to `commit`.
pub(crate) fn check(
    time: u64,
    group: GroupId,
    commit: Op,
    committed: &Committed,
    replicas: &[Segments<'_>],
) -> Verdict {
    let mut first: Option<(u8, Vec<File<'_>>)> = None;
    for segments in replicas {
        let kept = committed_part(time, group, commit, committed, segments)?;
        let Some((other, expected)) = &first else {
            first = Some((segments.node, kept));
            continue;
        };
        ensure(*expected == kept, CHECK, time, || {
            let sizes = |files: &[(&str, &[u8])]| -> Vec<(String, usize)> {
                files
                    .iter()
                    .map(|(name, bytes)| ((*name).into(), bytes.len()))
                    .collect()
            };
            format!(
                "replicas {other} and {} differ in {group} up to op {commit}: {:?} and {:?}",
                segments.node,
                sizes(expected),
                sizes(&kept)
            )
        })?;
    }
    Ok(())
}

/// The files cut after the record of op `commit`; every record is checked against the history.
fn committed_part<'a>(
    time: u64,
    group: GroupId,
    commit: Op,
    committed: &Committed,
    segments: &Segments<'a>,
) -> Result<Vec<File<'a>>, Failure> {
    let node = segments.node;
    let fail = |message| Failure {
        check: CHECK,
        time,
        message,
    };
    let mut next = Op(1);
    let mut kept = Vec::new();
    for &(name, bytes) in &segments.files {
        if next > commit {
            break;
        }
        let mut at = HEADER_SIZE;
        while next <= commit && at < bytes.len() {
            let damaged = || {
                fail(format!(
                    "replica {node}: {group} op {next} in {name} is damaged"
                ))
            };
            let size = wire::replica::frame_size(&bytes[at..]).map_err(|_| damaged())?;
            let frame = bytes.get(at..at + size).ok_or_else(damaged)?;
            let header = PrepareHeader::verify(frame).map_err(|_| damaged())?;
            let expected = committed
                .get(group, next)
                .map(|canonical| canonical.checksum);
            ensure(
                header.op == next && Some(header.checksum) == expected,
                CHECK,
                time,
                || format!("replica {node}: {name} has another op where {group} op {next} must be"),
            )?;
            at += size;
            next = next.next();
        }
        kept.push((name, &bytes[..at.min(bytes.len())]));
    }
    if next <= commit {
        return Err(fail(format!(
            "replica {node} has no {group} op {next} on disk"
        )));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::{super::committed::tests::prepare, *};

    const GROUP: GroupId = GroupId(1 << 10);

    fn history() -> (Committed, Vec<u8>) {
        let mut committed = Committed::default();
        let mut segment = vec![0; HEADER_SIZE];
        let mut parent = 0;
        for op in 1..=3 {
            let frame = prepare(op, parent, 7, op);
            let header = PrepareHeader::decode(&frame).expect("valid");
            parent = header.checksum;
            committed
                .on_committed(0, 0, &header, &frame)
                .expect("chained");
            segment.extend_from_slice(&frame);
        }
        (committed, segment)
    }

    fn run(committed: &Committed, commit: u64, files: &[&[u8]]) -> Verdict {
        let segments = |(node, bytes): (usize, &&'static [u8])| Segments {
            node: u8::try_from(node).expect("few"),
            files: vec![("a", bytes)],
        };
        let files: Vec<&'static [u8]> = files.iter().map(|bytes| &*bytes.to_vec().leak()).collect();
        let replicas: Vec<_> = files.iter().enumerate().map(segments).collect();
        check(0, GROUP, Op(commit), committed, &replicas)
    }

    #[test]
    fn equal_up_to_the_commit_passes() {
        let (committed, segment) = history();
        let mut longer = segment.clone();
        longer.extend_from_slice(b"not committed");
        assert_eq!(run(&committed, 3, &[&segment, &longer]), Ok(()));
    }

    #[test]
    fn a_flipped_bit_a_missing_op_and_another_history_fail() {
        let (committed, segment) = history();
        let mut flipped = segment.clone();
        *flipped.last_mut().expect("bytes") ^= 1;
        assert!(run(&committed, 3, &[&segment, &flipped]).is_err());
        let cut = &segment[..segment.len() - 264];
        assert!(run(&committed, 3, &[&segment, cut]).is_err());
        let other = [&segment[..HEADER_SIZE], &prepare(1, 0, 8, 1)].concat();
        assert!(run(&committed, 1, &[&segment, &other]).is_err());
    }
}
