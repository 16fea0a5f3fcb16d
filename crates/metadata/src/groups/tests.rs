//! The rules of rebalancing, one by one and against a model.

use alloc::{collections::BTreeSet, vec::Vec};

use base::{ClientId, Timestamp};
use proptest::prelude::*;
use wire::{ErrorCode, Identifier, Name};

use super::{At, ConsumerGroup, ConsumerGroups, Home};

const HOME: Home = Home {
    replica: 0,
    shard: 0,
    life: 1,
};

fn at(op: u64) -> At {
    At {
        op,
        time: Timestamp(op * 10),
    }
}

fn group() -> ConsumerGroup {
    ConsumerGroup::new(Name::new("readers").expect("a name"), at(1))
}

fn next(group: &ConsumerGroup) -> At {
    at(group.generation + 1)
}

fn join(group: &mut ConsumerGroup, client: u128, count: u32, in_flight: &[u32]) {
    let drained = (0..count).filter(|one| !in_flight.contains(one)).collect();
    group.join((ClientId(client), HOME), count, &drained, next(group));
}

fn complete(group: &mut ConsumerGroup, source: u128, partition: u32, count: u32) -> bool {
    let source = ClientId(source);
    let pending = group.member(source).map(|member| member.pending.clone());
    let mut pending = pending.unwrap_or_default().into_iter();
    let began = pending
        .find(|one| one.partition == partition)
        .map_or(0, |one| one.began);
    group.complete(source, (partition, began), count, next(group))
}

fn leave(group: &mut ConsumerGroup, client: u128, count: u32) -> Result<(), ErrorCode> {
    group.leave(ClientId(client), count, next(group))
}

fn sizes(group: &ConsumerGroup) -> Vec<usize> {
    let members = group.members.values();
    members.map(|member| member.partitions.len()).collect()
}

#[test]
fn joins_one_by_one_end_within_one_of_each_other() {
    for partitions in 0..=24 {
        let mut group = group();
        for client in 0..24 {
            let before = group.clone();
            join(&mut group, client, partitions, &[]);
            let sizes = sizes(&group);
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            let spread = most.expect("members") - least.expect("members");
            assert!(spread <= 1, "{partitions} partitions: {sizes:?}");
            assert_eq!(sizes.iter().sum::<usize>(), partitions as usize);
            for (slot, member) in &before.members {
                // Nobody gains, and what stays is what was there.
                let after = &group.members[slot].partitions;
                assert!(member.partitions.starts_with(after));
            }
        }
    }
    let mut group = group();
    (0..4).for_each(|client| join(&mut group, client, 10, &[]));
    assert_eq!(sizes(&group), [3, 3, 2, 2]);
}

#[test]
fn a_partition_in_flight_is_fenced_and_moves_once_drained() {
    let mut group = group();
    join(&mut group, 1, 2, &[]);
    assert_eq!(group.moved_by_join(2), [1]);
    join(&mut group, 2, 2, &[1]);
    let (old, new) = (ClientId(1), ClientId(2));
    assert!(!group.may_poll(old, 1) && group.may_commit(old, 1));
    assert!(!group.may_poll(new, 1) && !group.may_commit(new, 1));
    let generation = group.generation;
    assert!(!group.complete(old, (1, generation + 7), 2, next(&group)));
    assert!(complete(&mut group, 1, 1, 2));
    assert!(group.may_poll(new, 1) && !group.may_commit(old, 1));
    assert!(group.generation > generation);
    assert!(!complete(&mut group, 1, 1, 2), "once");
}

#[test]
fn who_waits_for_a_revocation_is_not_idle() {
    let mut group = group();
    join(&mut group, 1, 2, &[]);
    join(&mut group, 2, 2, &[0, 1]);
    join(&mut group, 3, 2, &[0, 1]);
    let pending = group.revocations().count();
    assert_eq!(pending, 1, "one is kept, one is on its way");
}

#[test]
fn a_revocation_whose_target_has_left_deals_anew() {
    let mut group = group();
    join(&mut group, 1, 4, &[]);
    join(&mut group, 2, 4, &[2, 3]);
    assert_eq!(group.revocations().count(), 2);
    // The target goes without the group noticing: as a removal by hand would.
    group.members.remove(&1);
    assert!(complete(&mut group, 1, 3, 4));
    assert_eq!(sizes(&group), [4]);
    assert!(!group.is_revoking());
}

#[test]
fn leaving_deals_everything_round_and_forgets_revocations() {
    let mut group = group();
    (1..=3).for_each(|client| join(&mut group, client, 6, &[0, 1, 2, 3, 4, 5]));
    leave(&mut group, 2, 6).expect("a member");
    assert_eq!(group.members[&0].partitions, [0, 2, 4]);
    assert_eq!(group.members[&2].partitions, [1, 3, 5]);
    assert!(!group.is_revoking());
    let stranger = leave(&mut group, 2, 6);
    assert_eq!(stranger, Err(ErrorCode::CONSUMER_GROUP_MEMBER_NOT_FOUND));
    // The free slot is taken again, and what it gets is its own.
    join(&mut group, 9, 6, &[]);
    assert_eq!(group.slot_of(ClientId(9)), Some(1));
    assert_eq!(sizes(&group), [2, 2, 2]);
}

#[test]
fn the_slot_of_a_target_that_left_brings_nothing_to_who_takes_it() {
    let mut group = group();
    join(&mut group, 1, 2, &[]);
    join(&mut group, 2, 2, &[0, 1]);
    leave(&mut group, 2, 2).expect("a member");
    assert!(!group.is_revoking(), "what was on its way stays");
    assert_eq!(sizes(&group), [2]);
    assert!(!complete(&mut group, 1, 1, 2));
}

#[test]
fn joining_twice_changes_nothing() {
    let mut group = group();
    join(&mut group, 1, 3, &[]);
    let before = group.clone();
    join(&mut group, 1, 3, &[]);
    assert_eq!(group, before);
}

#[test]
fn members_beyond_the_partitions_wait_their_turn() {
    let mut group = group();
    (0..10).for_each(|client| join(&mut group, client, 3, &[]));
    assert_eq!(sizes(&group).iter().filter(|size| **size == 0).count(), 7);
    leave(&mut group, 0, 3).expect("a member");
    assert_eq!(sizes(&group).iter().sum::<usize>(), 3);
}

#[test]
fn ids_are_never_used_again() {
    let mut groups = ConsumerGroups::default();
    let name = Name::new("one").expect("a name");
    assert_eq!(groups.create(name, 2, at(1)), Ok(0));
    let taken = groups.create(name, 2, at(2));
    assert_eq!(taken, Err(ErrorCode::CONSUMER_GROUP_NAME_ALREADY_EXISTS));
    groups.remove(0);
    assert_eq!(groups.find(Identifier::Named(name)), None);
    assert_eq!(groups.create(name, 2, at(3)), Ok(1));
    let other = Name::new("two").expect("a name");
    assert_eq!(groups.create(other, 2, at(4)), Ok(2));
    let third = Name::new("three").expect("a name");
    let full = Err(ErrorCode::CANNOT_CREATE_CONSUMER_GROUP_INFO);
    assert_eq!(groups.create(third, 2, at(5)), full);
}

#[derive(Clone, Debug)]
enum Step {
    Join(u128, Vec<u32>),
    Leave(u128),
    Complete(usize),
    Partitions(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..9_u128, prop::collection::vec(0..12_u32, 0..12))
            .prop_map(|(client, in_flight)| Step::Join(client, in_flight)),
        2 => (1..9_u128).prop_map(Step::Leave),
        3 => (0..8_usize).prop_map(Step::Complete),
        1 => (0..12_u32).prop_map(Step::Partitions),
    ]
}

fn first_revocation(group: &ConsumerGroup) -> Option<(u32, super::Revocation)> {
    group.revocations().next()
}

proptest! {
    /// Whatever happens: one owner for each partition, nobody may poll what another may commit,
    /// and once all revocations have ended no share exceeds another by more than one, counting
    /// only what joins have changed.
    #[test]
    fn assignments_keep_their_invariants(steps in prop::collection::vec(step(), 1..60)) {
        let mut group = group();
        let mut count = 6;
        let mut members = BTreeSet::new();
        for step in steps {
            let before = group.clone();
            match step {
                Step::Join(client, in_flight) => {
                    let moved: BTreeSet<u32> = group.moved_by_join(count).into_iter().collect();
                    join(&mut group, client, count, &in_flight);
                    if members.insert(client) {
                        // Only what was foreseen has moved or is on its way.
                        for partition in 0..count {
                            let owner = |group: &ConsumerGroup| {
                                let mut all = group.members.values();
                                all.find(|one| one.partitions.contains(&partition))
                                    .map(|one| one.client)
                            };
                            let gone = owner(&before).is_some() && owner(&before) != owner(&group);
                            let in_flight = in_flight.contains(&partition);
                            prop_assert!(!gone || (moved.contains(&partition) && !in_flight));
                        }
                    } else {
                        prop_assert_eq!(&group, &before);
                    }
                }
                Step::Leave(client) => {
                    let left = leave(&mut group, client, count);
                    prop_assert_eq!(left.is_ok(), members.remove(&client));
                }
                Step::Complete(index) => {
                    let pending: Vec<_> = group.revocations().collect();
                    if let Some((slot, one)) = pending.get(index) {
                        let source = group.members[slot].client;
                        let target = group.members[&one.target].client;
                        prop_assert!(complete(&mut group, source.0, one.partition, count));
                        prop_assert!(group.may_poll(target, one.partition));
                    }
                }
                Step::Partitions(now) => {
                    count = now;
                    let at = next(&group);
                    group.deal_anew(count, at);
                }
            }
            prop_assert!(group.is_consistent(count));
            prop_assert_eq!(group.members.len(), members.len());
            prop_assert!(group == before || group.generation > before.generation);
            for partition in 0..count {
                let may = |client: &u128| group.may_commit(ClientId(*client), partition);
                prop_assert!(members.iter().filter(|client| may(client)).count() <= 1);
            }
        }
        // Fair once it is quiet: one more rebalance of any kind, and nothing under way.
        while let Some((slot, one)) = first_revocation(&group) {
            let source = group.members[&slot].client;
            prop_assert!(complete(&mut group, source.0, one.partition, count));
        }
        let at = next(&group);
        group.deal_anew(count, at);
        let sizes = sizes(&group);
        let spread = sizes.iter().max().zip(sizes.iter().min());
        prop_assert!(spread.is_none_or(|(most, least)| most - least <= 1));
    }

    /// Joins alone leave the shares fair, whatever was in flight, once it has been drained.
    #[test]
    fn joins_are_fair_once_drained(
        count in 0..20_u32,
        joins in prop::collection::vec(prop::collection::vec(0..20_u32, 0..20), 1..10),
    ) {
        let mut group = group();
        for (client, in_flight) in (1..).zip(joins) {
            join(&mut group, client, count, &in_flight);
            while let Some((slot, one)) = first_revocation(&group) {
                let source = group.members[&slot].client;
                prop_assert!(complete(&mut group, source.0, one.partition, count));
            }
        }
        let sizes = sizes(&group);
        let spread = sizes.iter().max().zip(sizes.iter().min());
        prop_assert!(spread.is_none_or(|(most, least)| most - least <= 1), "{:?}", sizes);
    }
}
