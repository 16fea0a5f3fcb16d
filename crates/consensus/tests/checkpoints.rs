//! What a checkpoint does to a log: nothing, if the log has it all; else it takes the log's place,
//! or the place of what is damaged of it.

use core::time::Duration;

use base::{Bytes, ClientId, GroupId, Instant, Op, Prng, ReplicaIndex, Timestamp, View};
use consensus::{Effect, Entry, Group, GroupConfig, Held, Recovered, Timing, Trust};
use wire::{Operation, replica::PrepareHeader};

fn prepare(op: u64, parent: u128, session: u64) -> (PrepareHeader, Bytes) {
    let mut frame = vec![0; wire::HEADER_SIZE + 8];
    let header = PrepareHeader {
        checksum: 0,
        checksum_body: 0,
        cluster: 1,
        size: 0,
        view: View(0),
        replica: ReplicaIndex(0),
        parent,
        client: ClientId(7),
        group: GroupId::METADATA,
        op: Op(op),
        commit: Op(0),
        timestamp: Timestamp(op),
        request: op,
        session,
        request_checksum: 0,
        user: 0,
        operation: Operation::CreateStream,
        encryption: None,
    };
    header.seal_into(&mut frame);
    let header = PrepareHeader::decode(&frame).expect("just sealed");
    (header, Bytes::copy_of(&frame))
}

/// Ops 1 to `count`, chained.
fn chain(count: u64, session: u64) -> Vec<(PrepareHeader, Bytes)> {
    let mut parent = 0;
    let ops = (1..=count).map(|op| {
        let made = prepare(op, parent, session);
        parent = made.0.checksum;
        made
    });
    ops.collect()
}

/// A backup whose log ends with the chain, of which the first `commit` are applied and `missing`
/// are damaged.
fn backup(chain: &[(PrepareHeader, Bytes)], commit: u64, missing: &[u64]) -> Group {
    let whole = |header: &PrepareHeader| !missing.contains(&header.op.0);
    let head = chain.last().expect("some ops").0;
    let after = chain.iter().filter(|(header, _)| header.op.0 > commit);
    let entry = |(header, frame): &(PrepareHeader, Bytes)| {
        if whole(header) {
            Entry::Frame(frame.clone())
        } else {
            Entry::Missing
        }
    };
    let recovered = Recovered {
        view: View(0),
        log_view: View(0),
        commit: Op(commit),
        committed: Op(commit),
        head: (head.op, head.checksum),
        headers: chain.iter().map(|(it, _)| *it).filter(whole).collect(),
        suffix: after.map(entry).collect(),
        trust: Trust::Trusted,
        promised_until: Instant(0),
    };
    let config = GroupConfig {
        group: GroupId::METADATA,
        cluster: 1,
        replica: ReplicaIndex(1),
        replica_count: 3,
        pipeline_max: 16,
        repair_max: 16,
        timing: Timing {
            view_change_retry: Duration::from_millis(200),
            view_change: Duration::from_millis(800),
            repair_retry: Duration::from_millis(100),
        },
    };
    let prng = Prng::new(1, base::Domain::Replica, 1);
    Group::recover(config, recovered, Instant(0), prng, &mut Vec::new())
}

fn commits(effects: &[Effect]) -> Vec<u64> {
    let op = |effect: &Effect| match effect {
        Effect::Commit { prepare } => Some(PrepareHeader::decode(prepare).expect("one").op.0),
        _ => None,
    };
    effects.iter().filter_map(op).collect()
}

#[test]
fn what_a_log_has_of_a_checkpoint() {
    let (own, other) = (chain(9, 1), chain(12, 2));
    let group = backup(&own, 2, &[4, 6, 7]);
    let holds = |of: &[(PrepareHeader, Bytes)], op: usize| {
        let header = &of[op - 1].0;
        group.holds(header.op, header.checksum)
    };
    assert_eq!(holds(&own, 2), Held::Applied);
    assert_eq!(holds(&own, 3), Held::Appended);
    assert_eq!(holds(&own, 4), Held::Damaged, "named by the one after it");
    assert_eq!(holds(&own, 5), Held::Damaged);
    assert_eq!(holds(&own, 6), Held::Unknown, "named by nobody");
    assert_eq!(holds(&own, 7), Held::Damaged);
    assert_eq!(holds(&own, 9), Held::Damaged);
    assert_eq!(holds(&other, 5), Held::Not);
    assert_eq!(holds(&other, 12), Held::Not);
}

#[test]
fn a_log_that_has_it_all_learns_that_it_is_committed() {
    let own = chain(9, 1);
    let mut group = backup(&own, 2, &[]);
    let mut effects = Vec::new();
    let header = &own[6].0;
    group.on_certified(Instant(1), header.op, header.checksum, &mut effects);
    assert_eq!(commits(&effects), [3, 4, 5, 6, 7]);
    assert_eq!((group.commit(), group.op()), (Op(7), Op(9)));
}

#[test]
fn a_checkpoint_in_place_of_damage_keeps_what_comes_after() {
    let own = chain(9, 1);
    let mut group = backup(&own, 2, &[4, 6]);
    let mut effects = Vec::new();
    group.install_checkpoint(Instant(1), &own[6].0, &mut effects);
    assert_eq!((group.commit(), group.op()), (Op(7), Op(9)));
    assert_eq!(group.uncommitted().count(), 2);
    assert!(commits(&effects).is_empty(), "they are in the state");
    group.on_certified(Instant(1), Op(9), own[8].0.checksum, &mut effects);
    assert_eq!(commits(&effects), [8, 9]);
}

#[test]
fn a_checkpoint_takes_the_place_of_a_log_that_ends_before_it_or_is_another() {
    let (own, other) = (chain(9, 1), chain(12, 2));
    for at in [5, 12] {
        let mut group = backup(&own, 2, &[4]);
        group.install_checkpoint(Instant(1), &other[at - 1].0, &mut Vec::new());
        let header = &other[at - 1].0;
        assert_eq!((group.commit(), group.op()), (header.op, header.op));
        assert_eq!(group.checksum(), header.checksum);
        assert_eq!(group.uncommitted().count(), 0);
    }
}
