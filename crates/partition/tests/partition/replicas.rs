//! Two replicas of one log: a backup verifies what the primary stamped, and both agree at equal
//! commits, whatever is in flight.

use base::{Bytes, ClientId, GroupId, Offset, Op, Timestamp};
use partition::{Divergence, Limits, PartitionIds, PartitionState};
use proptest::prelude::*;
use wire::{BatchError, HEADER_SIZE, Operation, batch::stamp, replica::PrepareHeader};

use crate::support::{
    IDS, Log, SERVER, batch, delete, group, group_consumer, header_of, single, store,
};

/// Verifies a batch stamped like this against a log that ends at offset 2, time 1,000.
fn verdict(
    partition: u32,
    base_offset: u64,
    base_timestamp: u64,
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Divergence> {
    let mut log = Log::new(Limits::default());
    log.send(&[b"a", b"b"]);
    let mut body = batch(&[b"c"]);
    stamp(&mut body, partition, base_offset, base_timestamp).expect("a batch");
    change(&mut body);
    let like = header_of(&log.prepares[0]);
    let header = PrepareHeader {
        op: Op(2),
        timestamp: Timestamp(base_timestamp),
        ..like
    };
    log.state.verify(&header, &body)
}

#[test]
fn a_backup_refuses_what_it_would_not_have_stamped() {
    assert_eq!(verdict(3, 2, 1_000, |_| {}), Ok(()));
    assert_eq!(verdict(3, 2, 5_000, |_| {}), Ok(()));
    assert_eq!(verdict(4, 2, 1_000, |_| {}), Err(Divergence::Partition(4)));
    let offsets = |found| Divergence::BaseOffset {
        expected: Offset(2),
        found: Offset(found),
    };
    assert_eq!(verdict(3, 1, 1_000, |_| {}), Err(offsets(1)));
    assert_eq!(verdict(3, 3, 1_000, |_| {}), Err(offsets(3)));
    assert_eq!(
        verdict(3, 2, 999, |_| {}),
        Err(Divergence::Timestamp(Timestamp(999)))
    );
    let cut = Divergence::Batch(BatchError::Truncated);
    assert_eq!(verdict(3, 2, 1_000, |body| body.truncate(255)), Err(cut));
    let long = Divergence::Batch(BatchError::Length);
    assert_eq!(verdict(3, 2, 1_000, |body| body.push(0)), Err(long));
    // The append time is the prepare's.
    let mut log = Log::new(Limits::default());
    let header = log.append((SERVER, 0), Operation::SendMessages, &batch(&[b"a"]));
    let other = PrepareHeader {
        timestamp: Timestamp(1_001),
        ..header
    };
    let fresh = PartitionState::new(group(), IDS, Limits::default());
    let body = &log.prepares[0][HEADER_SIZE..];
    assert_eq!(
        fresh.verify(&other, body),
        Err(Divergence::Timestamp(Timestamp(1_000)))
    );
    assert_eq!(fresh.verify(&header, body), Ok(()));
}

#[test]
fn append_times_never_step_back() {
    let mut log = Log::new(Limits::default());
    log.send(&[b"a"]);
    log.realtime = Timestamp(10);
    let header = log.append((SERVER, 0), Operation::SendMessages, &batch(&[b"b"]));
    assert_eq!(header.timestamp, Timestamp(1_000));
    log.realtime = Timestamp(2_000);
    let header = log.append((SERVER, 0), Operation::SendMessages, &batch(&[b"c"]));
    assert_eq!(header.timestamp, Timestamp(2_000));
}

#[test]
fn frontiers_and_counts_follow_the_log() {
    let mut log = Log::new(Limits::default());
    assert_eq!(
        (log.state.current_offset(), log.state.messages_count()),
        (Offset(0), 0)
    );
    log.append((SERVER, 0), Operation::Noop, &[]);
    let body = batch(&[b"a", b"b"]);
    log.append((SERVER, 0), Operation::SendMessages, &body);
    assert_eq!(log.state.appended().next_offset, Offset(2));
    assert_eq!((log.state.messages_count(), log.state.size_bytes()), (0, 0));
    assert_eq!(log.commit().result, Ok(vec![]));
    log.commit();
    assert_eq!(log.state.committed(), log.state.appended());
    assert_eq!(
        (log.state.current_offset(), log.state.messages_count()),
        (Offset(1), 2)
    );
    assert_eq!(log.state.size_bytes(), body.len() as u64);
    let other = log.run((SERVER, 0), Operation::DeleteSegments, &[]);
    assert_eq!(other.result.map_err(|code| code.0), Err(5));
}

#[test]
#[should_panic(expected = "only what is in the log can commit")]
fn applying_what_was_never_appended_is_a_bug() {
    let mut log = Log::new(Limits::default());
    let header = log.append((SERVER, 0), Operation::Noop, &[]);
    let mut fresh = PartitionState::new(group(), IDS, Limits::default());
    let _ = fresh.apply(&header, &[]);
}

#[test]
#[should_panic(expected = "no gaps")]
fn appending_with_a_gap_is_a_bug() {
    let mut log = Log::new(Limits::default());
    let header = log.append((SERVER, 0), Operation::Noop, &[]);
    log.state.on_append(
        &PrepareHeader {
            op: Op(3),
            ..header
        },
        &[],
    );
}

#[test]
fn the_group_is_part_of_the_digest() {
    let state = |position| {
        let group = GroupId::partition(Op(5), position);
        let ids = PartitionIds {
            partition: 0,
            ..IDS
        };
        PartitionState::new(group, ids, Limits::default()).digest()
    };
    assert_ne!(state(0), state(1));
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(u8, u8),
    Store(u8, u8, u64),
    AutoCommit(u8, u64),
    Delete(u8, u8),
    Trim(u32, bool),
    Purge(u64),
    Noop,
    Commit,
    Truncate,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, 1..4_u8).prop_map(|(client, count)| Step::Send(client, count)),
        2 => (0..4_u8, 0..4_u8, 0..12_u64).prop_map(|(c, key, at)| Step::Store(c, key, at)),
        1 => (0..4_u8, 0..12_u64).prop_map(|(key, at)| Step::AutoCommit(key, at)),
        1 => (0..4_u8, 0..4_u8).prop_map(|(client, key)| Step::Delete(client, key)),
        1 => (0..4_u32, proptest::bool::ANY).prop_map(|(count, past)| Step::Trim(count, past)),
        1 => (0..4_u64).prop_map(Step::Purge),
        1 => Just(Step::Noop),
        6 => Just(Step::Commit),
        1 => Just(Step::Truncate),
    ]
}

/// Plays a step on the primary; requests that are not new are left out, as a primary does.
pub(crate) fn play(log: &mut Log, step: &Step, next_request: &mut u64) {
    let key = |key: u8| match key {
        0 | 1 => single(u32::from(key)),
        _ => group_consumer(u32::from(key)),
    };
    let body = match *step {
        Step::Send(_, count) => batch(&vec![b"payload".as_slice(); usize::from(count)]),
        Step::Store(_, consumer, offset) => store(key(consumer), offset),
        Step::AutoCommit(consumer, offset) => {
            log.state.auto_commit_body(key(consumer), Offset(offset))
        }
        Step::Delete(_, consumer) => delete(key(consumer)),
        Step::Trim(count, past_consumers) => match log.state.oldest_segments(count) {
            Some(trim) => partition::Trim {
                past_consumers,
                ..trim
            }
            .body(),
            None => return,
        },
        Step::Purge(generation) => partition::purge_body(generation),
        Step::Noop | Step::Commit | Step::Truncate => Vec::new(),
    };
    let (client, operation) = match *step {
        Step::Send(client, _) => (client, Operation::SendMessages),
        Step::Store(client, ..) => (client, Operation::StoreConsumerOffset),
        Step::AutoCommit(..) => (0, Operation::StoreConsumerOffset),
        Step::Delete(client, _) => (client, Operation::DeleteConsumerOffset),
        Step::Trim(..) => (0, Operation::TrimLog),
        Step::Purge(_) => (0, Operation::PurgePartition),
        Step::Noop => (0, Operation::Noop),
        Step::Commit => {
            if log.state.committed().op < log.state.appended().op {
                log.commit();
            }
            return;
        }
        Step::Truncate => return truncate(log),
    };
    *next_request += 1;
    log.append(
        (ClientId(u128::from(client)), *next_request),
        operation,
        &body,
    );
}

/// Cuts off the second half of what is not committed.
fn truncate(log: &mut Log) {
    let committed = usize::try_from(log.state.committed().op.0).expect("small");
    let kept = committed + (log.prepares.len() - committed) / 2;
    log.prepares.truncate(kept);
    let uncommitted: Vec<Bytes> = log.prepares[committed..].to_vec();
    let uncommitted = uncommitted
        .iter()
        .map(|prepare| (header_of(prepare), &prepare[HEADER_SIZE..]));
    log.state.reset_appended(uncommitted);
}

proptest! {
    #[test]
    fn replicas_agree_at_equal_commits(steps in proptest::collection::vec(step(), 0..60)) {
        let limits = Limits { producers_max: 2, consumers_max: 2, segment_size: 2_000 };
        let mut log = Log::new(limits);
        let mut next_request = 0;
        let mut replies = Vec::new();
        for step in &steps {
            play(&mut log, step, &mut next_request);
        }
        // A backup that never saw what was cut off, and commits at once.
        let mut backup = PartitionState::new(group(), IDS, limits);
        let committed = usize::try_from(log.state.committed().op.0).expect("small");
        for prepare in &log.prepares[..committed] {
            let (header, body) = (header_of(prepare), &prepare[HEADER_SIZE..]);
            prop_assert_eq!(backup.verify(&header, body), Ok(()));
            backup.on_append(&header, body);
            replies.push(backup.apply(&header, body));
        }
        prop_assert_eq!(backup.digest(), log.state.digest());
        prop_assert_eq!(backup.committed(), log.state.committed());
        // One that has appended everything before it commits anything answers the same.
        let mut late = PartitionState::new(group(), IDS, limits);
        let all = log.prepares.iter().map(|p| (header_of(p), &p[HEADER_SIZE..]));
        late.reset_appended(all);
        prop_assert_eq!(late.appended(), log.state.appended());
        for (prepare, reply) in log.prepares[..committed].iter().zip(replies) {
            prop_assert_eq!(late.apply(&header_of(prepare), &prepare[HEADER_SIZE..]), reply);
        }
        prop_assert_eq!(late.digest(), log.state.digest());
    }
}
