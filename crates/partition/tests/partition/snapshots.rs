//! A state restored from a snapshot is the committed one it was taken of, and goes on as the other
//! does; bytes that are no snapshot are refused with a reason.

use base::{ClientId, GroupId, Op};
use partition::{Decision, Limits, PartitionIds, PartitionState};
use proptest::prelude::*;
use wire::{HEADER_SIZE, Operation, SnapshotError};

use crate::{
    replicas::{play, step},
    support::{IDS, Log, batch, group, group_consumer, header_of, single, store},
};

const LIMITS: Limits = Limits {
    producers_max: 2,
    consumers_max: 2,
    segment_size: 1 << 30,
};

fn restore(bytes: &[u8]) -> Result<PartitionState, SnapshotError> {
    PartitionState::restore(group(), IDS, LIMITS, bytes)
}

fn rich() -> Log {
    let mut log = Log::new(LIMITS);
    for client in 1..3 {
        let messages = batch(&[b"a", b"b", b"c"]);
        log.run((ClientId(client), 1), Operation::SendMessages, &messages);
    }
    for consumer in [single(3), group_consumer(4)] {
        log.run(
            (ClientId(1), 2 + u64::from(consumer.id)),
            Operation::StoreConsumerOffset,
            &store(consumer, 1),
        );
    }
    // Refused, and remembered so.
    log.run(
        (ClientId(2), 9),
        Operation::StoreConsumerOffset,
        &store(single(3), 99),
    );
    log
}

#[test]
fn everything_committed_is_in_it_and_nothing_else() {
    let mut log = rich();
    let bytes = log.state.snapshot();
    log.append(
        (ClientId(7), 1),
        Operation::SendMessages,
        &batch(&[b"in flight"]),
    );
    assert_eq!(log.state.snapshot(), bytes);
    let restored = restore(&bytes).expect("just taken");
    assert_eq!(restored.digest(), log.state.digest());
    assert_eq!(restored.snapshot(), bytes);
    assert_eq!(restored.committed(), log.state.committed());
    assert_eq!(restored.appended(), log.state.committed());
    assert_eq!(restored.messages_count(), 6);
    assert_eq!(restored.size_bytes(), log.state.size_bytes());
    for consumer in [single(3), group_consumer(4), single(5)] {
        assert_eq!(
            restored.stored_offset(consumer),
            log.state.stored_offset(consumer)
        );
    }
}

#[test]
fn a_retry_after_a_restore_gets_its_first_answer() {
    let log = rich();
    let restored = restore(&log.state.snapshot()).expect("just taken");
    for (client, request) in [(1, 6), (2, 9), (1, 1), (3, 1)] {
        let of = |state: &PartitionState| state.check_request(ClientId(client), request);
        assert_eq!(of(&restored), of(&log.state));
    }
    let refused = restored.check_request(ClientId(2), 9);
    assert!(matches!(refused, Decision::Replay(reply) if reply.result.is_err()));
}

#[test]
fn no_damaged_byte_no_cut_and_no_other_partition_passes() {
    let bytes = rich().state.snapshot();
    for at in 0..bytes.len() {
        assert!(restore(&bytes[..at]).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(restore(&damaged).is_err(), "byte {at}");
    }
    // The largest numbers, wherever they stand; found by the fuzz target `snapshots`.
    for at in 0..bytes.len() - 8 {
        let mut damaged = bytes.clone();
        damaged[at..at + 8].fill(0xFF);
        assert!(restore(&damaged).is_err(), "bytes from {at}");
    }
    let of = |group, ids| PartitionState::restore(group, ids, LIMITS, &bytes).map(|_| ());
    let other = Err(SnapshotError::Contradiction);
    assert_eq!(of(GroupId::partition(Op(6), 0), IDS), other);
    let elsewhere = PartitionIds { topic: 9, ..IDS };
    assert_eq!(of(group(), elsewhere), other);
    assert_eq!(of(group(), IDS), Ok(()));
}

proptest! {
    #[test]
    fn a_restored_replica_goes_on_as_the_other(
        before in proptest::collection::vec(step(), 0..60),
        after in proptest::collection::vec(step(), 0..30),
    ) {
        let mut log = Log::new(LIMITS);
        let mut next_request = 0;
        for step in &before {
            play(&mut log, step, &mut next_request);
        }
        let mut restored = restore(&log.state.snapshot()).expect("just taken");
        prop_assert_eq!(restored.digest(), log.state.digest());
        for step in &after {
            play(&mut log, step, &mut next_request);
        }
        while log.state.committed().op < log.state.appended().op {
            log.commit();
        }
        let first = usize::try_from(restored.committed().op.0).expect("small");
        for prepare in &log.prepares[first..] {
            let (header, body) = (header_of(prepare), &prepare[HEADER_SIZE..]);
            prop_assert_eq!(restored.verify(&header, body), Ok(()));
            restored.on_append(&header, body);
            restored.apply(&header, body);
        }
        prop_assert_eq!(restored.digest(), log.state.digest());
        prop_assert_eq!(restored.snapshot(), log.state.snapshot());
    }

    #[test]
    fn arbitrary_bytes_are_refused_with_a_reason(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        prop_assert!(restore(&bytes).is_err());
        let mut headed = b"viewstamp part 1".to_vec();
        headed.extend(&bytes);
        prop_assert!(restore(&headed).is_err());
        let whole = rich().state.snapshot();
        let mut damaged = whole.clone();
        for (at, value) in damage {
            let at = at.index(damaged.len());
            damaged[at] = value;
        }
        prop_assert_eq!(restore(&damaged).is_ok(), damaged == whole);
    }
}
