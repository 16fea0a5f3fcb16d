//! Consumer groups in the log: who is told what, and what becomes of members when anything they
//! stand on goes.

use base::{ClientId, PartitionIds};
use metadata::{
    Change, CompleteRevocation, GroupIds, GroupInfo, Home, Join, Limits, Metadata, RemoveMember,
};
use proptest::prelude::*;
use wire::{
    Codec, Counted, ErrorCode, Operation,
    reply::{Assignment, ClientGroup, GroupDetails, GroupRecord},
    request::{CreateConsumerGroup, GroupTarget, TopicTarget},
};

use crate::support::{
    Entry, Log, create_stream, create_topic, id, named, partitions, replay, topic,
};

const HOME: Home = Home {
    replica: 1,
    shard: 2,
    life: 9,
};

/// A group of the topic "x" of stream 1.
fn target(name: &str) -> GroupTarget<'_> {
    GroupTarget {
        stream: id(1),
        topic: named("x"),
        group: named(name),
    }
}

pub(crate) fn create(log: &mut Log, name: &str) -> u32 {
    let body = CreateConsumerGroup {
        stream: id(1),
        topic: named("x"),
        name: wire::Name::new(name).expect("a name"),
    };
    log.code(Operation::CreateConsumerGroup, &body.encode())
}

pub(crate) fn delete(log: &mut Log, name: &str) -> u32 {
    log.code(Operation::DeleteConsumerGroup, &target(name).encode())
}

fn generation(log: &Log, name: &str) -> u64 {
    let info = log.metadata.resolve_group(&target(name));
    info.map_or(0, |info| info.group.generation)
}

fn code_as(log: &mut Log, client: u128, operation: Operation, body: &[u8]) -> u32 {
    let applied = log.ask_as(ClientId(client), operation, body);
    applied.reply.result.map_or_else(|code| code.0, |_| 0)
}

pub(crate) fn join(log: &mut Log, client: u128, name: &str, drained: &[u32]) -> u32 {
    let body = Join {
        generation: generation(log, name),
        drained: Counted(drained.to_vec()),
        ..Join::new(target(name), HOME)
    };
    code_as(log, client, Operation::JoinConsumerGroup, &body.encode())
}

fn leave(log: &mut Log, client: u128, name: &str) -> u32 {
    let body = target(name).encode();
    code_as(log, client, Operation::LeaveConsumerGroup, &body)
}

/// The server's own op.
fn internal(log: &mut Log, operation: Operation, body: &[u8]) {
    let applied = log.append(&Entry {
        client: ClientId(0),
        session: 0,
        request: 0,
        request_checksum: 0,
        operation,
        body,
    });
    applied.reply.result.expect("never refused");
}

/// Two streams, the topic "x" of the second with partitions, the group "readers" and sessions of
/// clients 1 to 4.
fn log(count: u32) -> Log {
    let mut log = Log::new(Limits::default());
    for name in ["a", "b"] {
        assert_eq!(log.code(Operation::CreateStream, &create_stream(name)), 0);
    }
    let topic = create_topic(id(1), "x", count);
    assert_eq!(log.code(Operation::CreateTopic, &topic), 0);
    assert_eq!(create(&mut log, "readers"), 0);
    for client in 1..=4 {
        log.register(ClientId(client), 0);
    }
    log
}

fn readers(metadata: &Metadata) -> GroupInfo<'_> {
    metadata.resolve_group(&target("readers")).expect("there")
}

/// What each member owns, by client.
fn owned(metadata: &Metadata) -> Vec<(u128, Vec<u32>)> {
    let members = readers(metadata).group.members.values();
    members
        .map(|member| (member.client.0, member.partitions.clone()))
        .collect()
}

fn assignment(metadata: &Metadata, client: u128) -> Option<Assignment> {
    let body = metadata.sync_consumer_group(&target("readers"), ClientId(client));
    (!body.is_empty()).then(|| Assignment::decode(&body).expect("an assignment"))
}

#[test]
fn a_group_is_created_read_listed_and_deleted() {
    let mut log = log(2);
    let body = CreateConsumerGroup {
        stream: id(1),
        topic: id(0),
        name: wire::Name::new("others").expect("a name"),
    };
    let payload = log.result(Operation::CreateConsumerGroup, &body.encode());
    let payload = payload.expect("free");
    let details = GroupDetails::decode(&payload).expect("a group");
    assert_eq!((details.group.id, details.group.partitions_count), (1, 2));
    assert_eq!(details.members, []);
    assert_eq!(log.metadata.get_consumer_group(&target("others")), payload);
    let topic_target = TopicTarget {
        stream: id(1),
        topic: id(0),
    };
    let list = log.metadata.get_consumer_groups(&topic_target);
    let list = Vec::<GroupRecord<'_>>::decode(&list).expect("groups");
    assert_eq!(list.len(), 2);
    assert_eq!(log.metadata.consumer_groups_count(), 2);
    let taken = ErrorCode::CONSUMER_GROUP_NAME_ALREADY_EXISTS.0;
    assert_eq!(create(&mut log, "others"), taken);
    assert_eq!(join(&mut log, 1, "others", &[]), 0);
    assert_eq!(delete(&mut log, "others"), 0);
    assert_eq!(log.metadata.get_consumer_group(&target("others")), []);
    assert!(!log.metadata.is_member(ClientId(1)));
    // The next one is not the old one again.
    assert_eq!(create(&mut log, "others"), 0);
    let again = log.metadata.resolve_group(&target("others"));
    assert_eq!(again.expect("there").ids.group, 2);
    let partition = PartitionIds {
        stream: 1,
        topic: 0,
        partition: 0,
    };
    assert!(log.metadata.is_dead_group(partition, 1));
    assert!(!log.metadata.is_dead_group(partition, 2));
    assert!(!log.metadata.is_dead_group(partition, 3), "not known yet");
}

#[test]
fn what_is_missing_has_a_code_of_its_own() {
    let mut log = log(1);
    for (stream, topic, group, code) in [
        (9, "x", "readers", ErrorCode::STREAM_ID_NOT_FOUND),
        (1, "y", "readers", ErrorCode::TOPIC_ID_NOT_FOUND),
        (1, "x", "nobody", ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND),
    ] {
        let target = GroupTarget {
            stream: id(stream),
            topic: named(topic),
            group: named(group),
        };
        let join = Join::new(target, HOME).encode();
        for (operation, body) in [
            (Operation::DeleteConsumerGroup, target.encode()),
            (Operation::LeaveConsumerGroup, target.encode()),
            (Operation::JoinConsumerGroup, join),
        ] {
            assert_eq!(code_as(&mut log, 1, operation, &body), code.0);
        }
        let body = log.metadata.sync_consumer_group(&target, ClientId(1));
        assert_eq!(body, []);
    }
    let stranger = ErrorCode::CONSUMER_GROUP_MEMBER_NOT_FOUND.0;
    assert_eq!(leave(&mut log, 1, "readers"), stranger);
}

#[test]
fn a_deleted_group_orphans_what_every_partition_of_its_topic_has_stored() {
    let mut log = log(3);
    let body = target("readers").encode();
    let applied = log.ask(Operation::DeleteConsumerGroup, &body);
    let all = log.metadata.partitions().map(|info| info.group);
    let expected = all.map(|group| Change::OffsetsOrphaned { group });
    assert_eq!(applied.changes, expected.collect::<Vec<_>>());
}

#[test]
fn members_are_told_what_they_may_poll() {
    let mut log = log(4);
    assert_eq!(assignment(&log.metadata, 1), None);
    assert_eq!(join(&mut log, 1, "readers", &[]), 0);
    let first = assignment(&log.metadata, 1).expect("a member");
    assert_eq!(first.partitions.0, [0, 1, 2, 3]);
    // Two move: one has nothing in flight, the other is still to be drained.
    assert_eq!(join(&mut log, 2, "readers", &[3]), 0);
    let (one, two) = (assignment(&log.metadata, 1), assignment(&log.metadata, 2));
    let (one, two) = (one.expect("a member"), two.expect("a member"));
    assert_eq!((one.partitions.0, two.partitions.0), (vec![0, 1], vec![3]));
    assert_ne!(one.generation, first.generation);
    let pending: Vec<_> = log.metadata.pending_revocations().collect();
    assert_eq!(pending.len(), 1);
    let complete = CompleteRevocation {
        group: pending[0].ids,
        source: pending[0].source,
        partition: pending[0].revocation.partition,
        began: pending[0].revocation.began,
    };
    let operation = Operation::CompleteConsumerGroupRevocation;
    internal(&mut log, operation, &complete.encode());
    assert!(!log.metadata.is_revoking());
    let two = assignment(&log.metadata, 2).expect("a member");
    assert_eq!(two.partitions.0, [3, 2]);
    let before = log.metadata.get_consumer_group(&target("readers"));
    internal(&mut log, operation, &complete.encode());
    let elsewhere = CompleteRevocation {
        group: GroupIds {
            stream: 7,
            ..complete.group
        },
        ..complete
    };
    internal(&mut log, operation, &elsewhere.encode());
    assert_eq!(log.metadata.get_consumer_group(&target("readers")), before);
}

#[test]
fn what_was_found_drained_in_another_generation_is_in_flight() {
    let mut log = log(2);
    assert_eq!(join(&mut log, 1, "readers", &[]), 0);
    let body = Join {
        generation: generation(&log, "readers") - 1,
        drained: Counted(vec![0, 1]),
        ..Join::new(target("readers"), HOME)
    };
    let operation = Operation::JoinConsumerGroup;
    assert_eq!(code_as(&mut log, 2, operation, &body.encode()), 0);
    assert_eq!(log.metadata.pending_revocations().count(), 1);
}

#[test]
fn a_member_whose_session_ends_is_none() {
    let ends: [fn(&mut Log); 4] = [
        |log| drop(log.register(ClientId(2), 0)),
        |log| {
            let session = log.metadata.session(ClientId(2)).expect("live").session;
            log.append(&Entry {
                client: ClientId(2),
                session,
                request: 1,
                request_checksum: 0,
                operation: Operation::Logout,
                body: &[],
            });
        },
        |log| {
            let session = log.metadata.session(ClientId(2)).expect("live").session;
            let body = RemoveMember {
                client: ClientId(2),
                session,
            };
            let operation = Operation::RemoveConsumerGroupMember;
            internal(log, operation, &body.encode());
            assert!(log.metadata.session(ClientId(2)).is_some());
        },
        |log| assert_eq!(leave(log, 2, "readers"), 0),
    ];
    for end in ends {
        let mut log = log(4);
        assert_eq!(join(&mut log, 2, "readers", &[]), 0);
        assert_eq!(join(&mut log, 1, "readers", &[2, 3]), 0);
        let membership = ClientGroup {
            stream_id: 1,
            topic_id: 0,
            group_id: 0,
        };
        let of = |log: &Log| log.metadata.memberships(ClientId(2)).collect::<Vec<_>>();
        assert_eq!(of(&log), [membership]);
        end(&mut log);
        assert_eq!(of(&log), []);
        assert_eq!(owned(&log.metadata), [(1, vec![0, 1, 2, 3])]);
        assert_eq!(
            replay(&log.prepares, Limits::default()).0.digest(),
            log.metadata.digest()
        );
    }
}

#[test]
fn a_removal_of_a_session_that_is_over_leaves_the_next_one_alone() {
    let mut log = log(1);
    let session = log.metadata.session(ClientId(1)).expect("live").session;
    log.register(ClientId(1), 0);
    assert_eq!(join(&mut log, 1, "readers", &[]), 0);
    let body = RemoveMember {
        client: ClientId(1),
        session,
    };
    let operation = Operation::RemoveConsumerGroupMember;
    internal(&mut log, operation, &body.encode());
    assert!(log.metadata.is_member(ClientId(1)));
}

#[test]
fn a_session_evicted_for_want_of_room_leaves() {
    let limits = Limits {
        clients_max: 2,
        ..Limits::default()
    };
    let mut log = Log::new(limits);
    for name in ["a", "b"] {
        assert_eq!(log.code(Operation::CreateStream, &create_stream(name)), 0);
    }
    let topic = create_topic(id(1), "x", 2);
    assert_eq!(log.code(Operation::CreateTopic, &topic), 0);
    assert_eq!(create(&mut log, "readers"), 0);
    log.register(ClientId(1), 0);
    assert_eq!(join(&mut log, 1, "readers", &[]), 0);
    log.register(ClientId(2), 0);
    log.register(ClientId(3), 0);
    assert!(log.metadata.session(ClientId(1)).is_none());
    assert_eq!(owned(&log.metadata), []);
}

#[test]
fn more_partitions_or_fewer_are_dealt_anew() {
    let mut log = log(2);
    for client in 1..=3 {
        assert_eq!(join(&mut log, client, "readers", &[]), 0);
    }
    assert!(log.metadata.is_revoking());
    let more = partitions(id(1), id(0), 4);
    assert_eq!(log.code(Operation::CreatePartitions, &more), 0);
    assert!(!log.metadata.is_revoking());
    let dealt = [(1, vec![0, 3]), (2, vec![1, 4]), (3, vec![2, 5])];
    assert_eq!(owned(&log.metadata), dealt);
    let fewer = partitions(id(1), id(0), 5);
    assert_eq!(log.code(Operation::DeletePartitions, &fewer), 0);
    let dealt = [(1, vec![0]), (2, vec![]), (3, vec![])];
    assert_eq!(owned(&log.metadata), dealt);
    // Every member has an assignment, if only of nothing.
    let none = assignment(&log.metadata, 3).expect("a member");
    assert_eq!(none.partitions.0, []);
}

#[test]
fn groups_go_with_their_topic_and_with_their_stream() {
    for by_stream in [false, true] {
        let mut log = log(2);
        assert_eq!(join(&mut log, 1, "readers", &[]), 0);
        assert_eq!(join(&mut log, 2, "readers", &[]), 0);
        let (operation, body) = if by_stream {
            (Operation::DeleteStream, id(1).encode())
        } else {
            (Operation::DeleteTopic, topic(id(1), id(0)))
        };
        assert_eq!(log.code(operation, &body), 0);
        assert_eq!(log.metadata.consumer_groups().count(), 0);
        assert_eq!(log.metadata.consumer_groups_count(), 0);
        assert_eq!(log.metadata.members().count(), 0);
        assert!(!log.metadata.is_revoking());
    }
}

/// What may happen to three groups of four clients.
fn step() -> impl Strategy<Value = (u8, u128, usize, Vec<u32>)> {
    let drained = proptest::collection::vec(0..6_u32, 0..6);
    (0..10_u8, 1..5_u128, 0..3_usize, drained)
}

proptest! {
    /// The indexes say what the groups say, replicas agree, and a snapshot has it all.
    #[test]
    fn replicas_and_snapshots_agree(steps in proptest::collection::vec(step(), 0..60)) {
        const NAMES: [&str; 3] = ["readers", "b", "c"];
        let mut log = log(3);
        for (what, client, name, drained) in steps {
            let name = NAMES[name];
            match what {
                0 => drop(create(&mut log, name)),
                1 => drop(delete(&mut log, name)),
                2 => drop(log.register(ClientId(client), 0)),
                3 => drop(leave(&mut log, client, name)),
                4 => drop(log.code(Operation::CreatePartitions, &partitions(id(1), id(0), 1))),
                5 => drop(log.code(Operation::DeletePartitions, &partitions(id(1), id(0), 1))),
                6 => {
                    let first = log.metadata.pending_revocations().next();
                    if let Some(pending) = first {
                        let body = CompleteRevocation {
                            group: pending.ids,
                            source: pending.source,
                            partition: pending.revocation.partition,
                            began: pending.revocation.began,
                        };
                        let operation = Operation::CompleteConsumerGroupRevocation;
                        internal(&mut log, operation, &body.encode());
                    }
                }
                _ => drop(join(&mut log, client, name, &drained)),
            }
            let metadata = &log.metadata;
            let mut revoking = 0;
            for info in metadata.consumer_groups() {
                revoking += info.group.revocations().count();
                for member in info.group.members.values() {
                    let listed = metadata.memberships(member.client);
                    prop_assert!(listed.filter(|one| one.group_id == info.ids.group).count() == 1);
                }
            }
            prop_assert_eq!(metadata.pending_revocations().count(), revoking);
            let members: usize = metadata
                .consumer_groups()
                .map(|info| info.group.members.len())
                .sum();
            let listed = (1..5).map(|client| metadata.memberships(ClientId(client)).count());
            prop_assert_eq!(listed.sum::<usize>(), members);
        }
        let replayed = replay(&log.prepares, Limits::default()).0;
        prop_assert_eq!(replayed.digest(), log.metadata.digest());
        let snapshot = log.metadata.snapshot();
        let restored = Metadata::restore(Limits::default(), "iggy", &snapshot).expect("whole");
        prop_assert_eq!(restored.snapshot(), snapshot);
        prop_assert_eq!(
            restored.pending_revocations().count(),
            log.metadata.pending_revocations().count()
        );
    }
}
