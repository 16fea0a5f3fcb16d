//! Replicas are byte-equal where committed: the same segment files with the same records, and
//! each record is the op of the one history. A log whose beginning has been dropped is covered by a
//! checkpoint, and checkpoints of one op have one body.
//!
//! Source: `design.md` §6 (a partition's segments are its journal, and roll deterministically);
//! TigerBeetle's storage checker.

use std::collections::BTreeMap;

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

/// Bytes of a checkpoint before its body, and where the op before its log stands in them.
const CHECKPOINT_HEADER: usize = 256;

/// Compares the replicas of `group` up to `commit`.
pub(crate) fn check(
    time: u64,
    group: GroupId,
    commit: Op,
    committed: &Committed,
    replicas: &[Segments<'_>],
) -> Verdict {
    let mut first: Option<(u8, Vec<File<'_>>)> = None;
    let mut named: BTreeMap<Op, (u8, &[u8])> = BTreeMap::new();
    let mut bodies: BTreeMap<Op, (u8, &[u8])> = BTreeMap::new();
    for segments in replicas {
        let node = segments.node;
        for &(name, bytes) in &segments.files {
            let Some(op) = op_of(name, ".checkpoint") else {
                continue;
            };
            let body = bytes.get(CHECKPOINT_HEADER..).unwrap_or_default();
            let (other, known) = *bodies.entry(op).or_insert((node, body));
            ensure(known == body, CHECK, time, || {
                format!("replicas {other} and {node} have other checkpoints of {group} op {op}")
            })?;
        }
        let kept = committed_part(time, group, commit, committed, segments)?;
        for &(name, bytes) in &kept {
            // Logs may begin and end anywhere, but where one has a segment of a name, all do.
            let Some(op) = op_of(name, ".log") else {
                continue;
            };
            let (other, known) = *named.entry(op).or_insert((node, bytes));
            ensure(known == bytes, CHECK, time, || {
                let place = first_difference(&[(name, known)], &[(name, bytes)]);
                format!("replicas {other} and {node} differ in {group} up to op {commit}: {place}")
            })?;
        }
        // A log that was begun anew, or cut in front, is in other segments.
        if kept
            .first()
            .is_none_or(|(name, _)| op_of(name, ".log") != Some(Op(1)))
        {
            continue;
        }
        let Some((other, expected)) = &first else {
            first = Some((node, kept));
            continue;
        };
        ensure(*expected == kept, CHECK, time, || {
            let place = first_difference(expected, &kept);
            format!("replicas {other} and {node} differ in {group} up to op {commit}: {place}")
        })?;
    }
    Ok(())
}

/// Where two replicas' files begin to differ.
fn first_difference(one: &[File<'_>], other: &[File<'_>]) -> String {
    let differing = one.iter().zip(other).find(|(one, other)| one != other);
    let Some(((name, one), (other_name, other))) = differing else {
        return format!("{} and {} files", one.len(), other.len());
    };
    let equal = one
        .iter()
        .zip(*other)
        .take_while(|(one, other)| one == other);
    let at = equal.count();
    let bytes = |file: &[u8]| format!("{:02x?}", &file[at..(at + 16).min(file.len())]);
    let (sizes, bytes) = ((one.len(), other.len()), (bytes(one), bytes(other)));
    format!("at byte {at} of {name} and {other_name}, of {sizes:?} bytes: {bytes:?}")
}

/// The op in the name of a file of ours.
fn op_of(name: &str, suffix: &str) -> Option<Op> {
    let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
    name.strip_suffix(suffix)?.parse().ok().map(Op)
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
    let is_segment = |(name, _): &&File<'_>| op_of(name, ".log").is_some();
    let files = || segments.files.iter().filter(is_segment);
    let first = files().next().and_then(|(name, _)| op_of(name, ".log"));
    let mut next = first.unwrap_or(Op(1));
    let mut checkpoints = segments.files.iter();
    let covers =
        |(name, _): &File<'_>| op_of(name, ".checkpoint").is_some_and(|op| op.next() >= next);
    ensure(
        next == Op(1) || checkpoints.any(covers),
        CHECK,
        time,
        || format!("replica {node}: {group} begins with op {next}, which no checkpoint reaches"),
    )?;
    let mut kept = Vec::new();
    for &(name, bytes) in files() {
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
            files: vec![("g/00000000000000000001.log", bytes)],
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

    fn of<'a>(node: u8, files: &[File<'a>]) -> Segments<'a> {
        let files = files.to_vec();
        Segments { node, files }
    }

    #[test]
    fn a_log_cut_in_front_passes_with_a_checkpoint_only() {
        let (committed, segment) = history();
        let size = (segment.len() - HEADER_SIZE) / 3;
        let cut = [&segment[..HEADER_SIZE], &segment[HEADER_SIZE + size..]].concat();
        let (whole, cut) = (("g/1.log", &*segment), ("g/2.log", &*cut));
        let state = vec![7; CHECKPOINT_HEADER + 4];
        let other = vec![8; CHECKPOINT_HEADER + 4];
        let run = |replicas: &[Segments<'_>]| check(0, GROUP, Op(3), &committed, replicas);
        let one = ("g/1.checkpoint", &*state);
        assert_eq!(run(&[of(0, &[whole, one]), of(1, &[cut, one])]), Ok(()));
        assert!(
            run(&[of(0, &[whole, one]), of(1, &[cut])]).is_err(),
            "nothing covers op 1"
        );
        let differs = ("g/1.checkpoint", &*other);
        assert!(run(&[of(0, &[whole, one]), of(1, &[cut, differs])]).is_err());
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
