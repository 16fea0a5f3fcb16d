//! Consumer groups against a node and against a cluster: who may poll what, and what becomes of
//! what was polled (`features.md` 4.4, G1 to G13).

use core::time::Duration;

use wire::{
    AckLevel, Codec, Consumer, ConsumerKind, ErrorCode, EvictionReason, Identifier,
    OptionalPartition, Partitioning, PollingStrategy, Request,
    reply::{
        Assignment, ClientDetails, ConsumerOffset, GroupDetails, GroupRecord,
        POLL_PARTITION_RESYNC, Route,
    },
    request::{
        CreateConsumerGroup, DeleteConsumerOffset, GroupTarget, PartitionsCount, PollMessages,
        StoreConsumerOffset, TopicTarget,
    },
};

use crate::{
    client::{Answer, Client, Polled, batch_of, name, offset_of, poll, send, topic},
    cluster::Cluster,
    node::{Node, Options},
};

const GROUP: &str = "readers";

const NOT_A_MEMBER: Option<ErrorCode> = Some(ErrorCode::CONSUMER_GROUP_MEMBER_NOT_FOUND);
const NOT_OWNED: Option<ErrorCode> = Some(ErrorCode::CONSUMER_GROUP_PARTITION_NOT_OWNED);
const NO_GROUP: Option<ErrorCode> = Some(ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND);

fn group() -> GroupTarget<'static> {
    let TopicTarget { stream, topic } = topic();
    GroupTarget {
        stream,
        topic,
        group: Identifier::Named(name(GROUP)),
    }
}

fn readers() -> Consumer<'static> {
    Consumer {
        kind: ConsumerKind::Group,
        id: Identifier::Named(name(GROUP)),
    }
}

fn create() -> Request<'static> {
    let TopicTarget { stream, topic } = topic();
    Request::CreateConsumerGroup(CreateConsumerGroup {
        stream,
        topic,
        name: name(GROUP),
    })
}

const fn join() -> Request<'static> {
    Request::JoinConsumerGroup(GROUP_TARGET)
}

const GROUP_TARGET: GroupTarget<'static> = GroupTarget {
    stream: Identifier::Numeric(0),
    topic: Identifier::Numeric(0),
    group: Identifier::Numeric(0),
};

fn poll_of(partition: Option<u32>, count: u32, auto_commit: bool) -> PollMessages<'static> {
    PollMessages {
        consumer: readers(),
        partition: OptionalPartition(partition),
        ..poll(0, PollingStrategy::Next, count, auto_commit)
    }
}

fn store_of(partition: u32, offset: u64) -> Request<'static> {
    Request::StoreConsumerOffset(StoreConsumerOffset {
        target: offset_of(readers(), partition),
        offset,
        ack: AckLevel::Quorum,
    })
}

fn delete_of(partition: u32) -> Request<'static> {
    Request::DeleteConsumerOffset(DeleteConsumerOffset {
        target: offset_of(readers(), partition),
        ack: AckLevel::Quorum,
    })
}

/// What a member is told to poll; `None` if it is none.
fn assigned(answer: &Answer) -> Option<Vec<u32>> {
    let body = answer.result().expect("a sync");
    (!body.is_empty()).then(|| {
        Assignment::decode(&body)
            .expect("an assignment")
            .partitions
            .0
    })
}

fn stored_in(answer: &Answer) -> Option<u64> {
    let body = answer.result().expect("reads do not fail");
    let offset = |body: &[u8]| {
        ConsumerOffset::decode(body)
            .expect("an offset")
            .stored_offset
    };
    (!body.is_empty()).then(|| offset(&body))
}

impl Client {
    fn join(&mut self, node: &mut Node) {
        self.ask(node, &join()).result().expect("joined");
    }

    fn sync(&mut self, node: &mut Node) -> Option<Vec<u32>> {
        assigned(&self.ask(node, &Request::SyncConsumerGroup(group())))
    }

    /// What a poll of the group brings; `None` if the member must sync first.
    fn read(&mut self, node: &mut Node, partition: u32, count: u32) -> Option<Vec<u64>> {
        let request = Request::PollMessages(poll_of(Some(partition), count, false));
        let body = self.ask(node, &request).result().expect("a poll");
        let polled = Polled::decode(&body);
        (polled.partition != POLL_PARTITION_RESYNC).then(|| polled.offsets())
    }

    fn commit(&mut self, node: &mut Node, partition: u32, offset: u64) {
        self.ask(node, &store_of(partition, offset))
            .result()
            .expect("stored");
    }

    fn stored(&mut self, node: &mut Node, partition: u32) -> Option<u64> {
        let target = offset_of(readers(), partition);
        stored_in(&self.ask(node, &Request::GetConsumerOffset(target)))
    }
}

/// A topic of `partitions` with five messages in each, a group, and so many clients.
fn node_with(shards: usize, partitions: u32, clients: u128) -> (Node, Vec<Client>) {
    let mut node = Node::new(shards);
    let mut all: Vec<Client> = (1..=clients)
        .map(|id| Client::log_in(&mut node, id))
        .collect();
    all[0].create_topic(&mut node, partitions);
    for partition in 0..partitions {
        all[0].produce(&mut node, partition, &["a", "b", "c", "d", "e"]);
    }
    all[0].ask(&mut node, &create()).result().expect("created");
    (node, all)
}

fn on_one_and_two_shards(partitions: u32, clients: u128, test: impl Fn(&mut Node, &mut [Client])) {
    for shards in [1, 2] {
        let (mut node, mut clients) = node_with(shards, partitions, clients);
        test(&mut node, &mut clients);
    }
}

#[test]
fn a_group_is_created_read_listed_and_deleted() {
    on_one_and_two_shards(2, 1, |node, clients| {
        let client = &mut clients[0];
        let taken = client.ask(node, &create()).code();
        assert_eq!(taken, Some(ErrorCode::CONSUMER_GROUP_NAME_ALREADY_EXISTS));
        client.join(node);
        let body = client.ask(node, &Request::GetConsumerGroup(group()));
        let body = body.result().expect("read");
        let details = GroupDetails::decode(&body).expect("a group");
        assert_eq!(details.group.name, name(GROUP));
        assert_eq!((details.group.id, details.group.partitions_count), (0, 2));
        assert_eq!(details.group.members_count, 1);
        assert_eq!(details.members[0].partitions.0, [0, 1]);
        let list = client.ask(node, &Request::GetConsumerGroups(topic()));
        let list = list.result().expect("read");
        let list = Vec::<GroupRecord<'_>>::decode(&list).expect("groups");
        assert_eq!(list, [details.group]);
        // The client's own record lists it.
        let me = client.ask(node, &Request::GetMe).result().expect("read");
        let me = ClientDetails::decode(&me).expect("a client");
        assert_eq!((me.client.groups_count, me.groups[0].group_id), (1, 0));
        let delete = Request::DeleteConsumerGroup(group());
        assert_eq!(client.ask(node, &delete).result(), Ok(Vec::new()));
        assert_eq!(client.ask(node, &delete).code(), NO_GROUP);
        let read = client.ask(node, &Request::GetConsumerGroup(group()));
        assert_eq!(read.result(), Ok(Vec::new()));
        // Whoever was in it is told, and does not hang.
        let polled = Request::PollMessages(poll_of(Some(0), 1, false));
        assert_eq!(client.ask(node, &polled).code(), NO_GROUP);
        assert_eq!(client.sync(node), None);
        let leave = Request::LeaveConsumerGroup(group());
        assert_eq!(client.ask(node, &leave).code(), NO_GROUP);
        assert_eq!(client.ask(node, &join()).code(), NO_GROUP);
    });
}

#[test]
fn a_stranger_may_look_and_not_touch() {
    on_one_and_two_shards(2, 2, |node, clients| {
        let [member, stranger] = clients else {
            panic!("two clients")
        };
        member.join(node);
        member.commit(node, 1, 2);
        assert_eq!(stranger.sync(node), None);
        let polled = Request::PollMessages(poll_of(Some(1), 1, false));
        assert_eq!(stranger.ask(node, &polled).code(), NOT_A_MEMBER);
        assert_eq!(stranger.ask(node, &store_of(1, 0)).code(), NOT_OWNED);
        assert_eq!(stranger.ask(node, &delete_of(1)).code(), NOT_OWNED);
        assert_eq!(stranger.stored(node, 1), Some(2));
        let leave = Request::LeaveConsumerGroup(group());
        assert_eq!(stranger.ask(node, &leave).code(), NOT_A_MEMBER);
        // A group names its partition.
        let anywhere = Request::PollMessages(poll_of(None, 1, false));
        let missing = Some(ErrorCode::PARTITION_NOT_FOUND);
        assert_eq!(member.ask(node, &anywhere).code(), missing);
        let beyond = Request::PollMessages(poll_of(Some(2), 1, false));
        assert_eq!(member.ask(node, &beyond).code(), missing);
        assert_eq!(member.ask(node, &delete_of(1)).result(), Ok(Vec::new()));
        assert_eq!(member.stored(node, 1), None);
    });
}

#[test]
fn what_was_never_polled_moves_at_once() {
    on_one_and_two_shards(4, 3, |node, clients| {
        clients[0].join(node);
        assert_eq!(clients[0].sync(node), Some(vec![0, 1, 2, 3]));
        // Idempotent.
        clients[0].join(node);
        clients[1].join(node);
        assert_eq!(clients[0].sync(node), Some(vec![0, 1]));
        assert_eq!(clients[1].sync(node), Some(vec![3, 2]));
        assert_eq!(clients[0].read(node, 3, 5), None, "it has moved");
        assert_eq!(clients[1].read(node, 3, 5), Some(vec![0, 1, 2, 3, 4]));
        clients[2].join(node);
        assert_eq!(clients[2].sync(node), Some(vec![2]));
        let leave = Request::LeaveConsumerGroup(group());
        clients[0].ask(node, &leave).result().expect("left");
        assert_eq!(clients[1].sync(node), Some(vec![0, 2]));
        assert_eq!(clients[2].sync(node), Some(vec![1, 3]));
        let polled = Request::PollMessages(poll_of(Some(0), 1, false));
        assert_eq!(clients[0].ask(node, &polled).code(), NOT_A_MEMBER);
    });
}

#[test]
fn what_was_polled_is_withheld_until_it_is_committed() {
    for auto_commit in [false, true] {
        on_one_and_two_shards(2, 2, |node, clients| {
            let [old, new] = clients else {
                panic!("two clients")
            };
            old.join(node);
            assert_eq!(old.read(node, 1, 3), Some(vec![0, 1, 2]));
            if auto_commit {
                let request = Request::PollMessages(poll_of(Some(1), 3, true));
                let body = old.ask(node, &request).result().expect("a poll");
                assert_eq!(Polled::decode(&body).offsets(), [0, 1, 2]);
                new.join(node);
                assert_eq!(new.sync(node), Some(vec![1]), "committed, so it moves");
                assert_eq!(new.read(node, 1, 5), Some(vec![3, 4]));
                return;
            }
            new.join(node);
            node.pass(Duration::from_secs(2));
            assert_eq!(old.sync(node), Some(vec![0]));
            assert_eq!(new.sync(node), Some(vec![]));
            assert_eq!(old.read(node, 1, 5), None, "fenced");
            assert_eq!(new.read(node, 1, 5), None, "not yet");
            old.commit(node, 1, 1);
            node.pass(Duration::from_secs(2));
            assert_eq!(new.sync(node), Some(vec![]), "one is still in flight");
            old.commit(node, 1, 2);
            node.pass(Duration::from_secs(2));
            assert_eq!(new.sync(node), Some(vec![1]));
            assert_eq!(new.read(node, 1, 5), Some(vec![3, 4]));
            assert_eq!(old.ask(node, &store_of(1, 2)).code(), NOT_OWNED);
        });
    }
}

#[test]
fn a_revocation_ends_after_the_timeout() {
    let (mut node, mut clients) = node_with(1, 2, 2);
    let node = &mut node;
    clients[0].join(node);
    assert_eq!(clients[0].read(node, 1, 3), Some(vec![0, 1, 2]));
    clients[1].join(node);
    for _ in 0..6 {
        node.pass(Duration::from_millis(4_800));
        assert_eq!(clients[1].sync(node), Some(vec![]));
        clients[0].sync(node);
    }
    node.pass(Duration::from_secs(3));
    assert_eq!(clients[1].sync(node), Some(vec![1]));
    assert_eq!(clients[1].read(node, 1, 5), Some(vec![0, 1, 2, 3, 4]));
}

#[test]
fn a_target_that_leaves_takes_nothing_along() {
    on_one_and_two_shards(2, 3, |node, clients| {
        clients[0].join(node);
        assert_eq!(clients[0].read(node, 1, 3), Some(vec![0, 1, 2]));
        clients[1].join(node);
        let leave = Request::LeaveConsumerGroup(group());
        clients[1].ask(node, &leave).result().expect("left");
        assert_eq!(clients[0].sync(node), Some(vec![0, 1]));
        // Whoever takes the free slot waits as long.
        clients[2].join(node);
        node.pass(Duration::from_secs(2));
        assert_eq!(clients[2].sync(node), Some(vec![]));
        assert_eq!(clients[2].read(node, 1, 5), None);
        clients[0].commit(node, 1, 2);
        node.pass(Duration::from_secs(2));
        assert_eq!(clients[2].read(node, 1, 5), Some(vec![3, 4]));
    });
}

#[test]
fn a_member_that_loses_its_connection_is_none_and_its_progress_stays() {
    on_one_and_two_shards(2, 2, |node, clients| {
        clients[0].join(node);
        clients[1].join(node);
        let request = Request::PollMessages(poll_of(Some(0), 2, true));
        let body = clients[0].ask(node, &request).result().expect("a poll");
        assert_eq!(Polled::decode(&body).offsets(), [0, 1]);
        node.disconnect(clients[0].connection);
        node.pass(Duration::from_millis(500));
        assert_eq!(clients[1].sync(node), Some(vec![0, 1]));
        assert_eq!(clients[1].read(node, 0, 5), Some(vec![2, 3, 4]));
        // It comes back as somebody else.
        let mut again = Client::log_in(node, 9);
        again.join(node);
        node.pass(Duration::from_millis(500));
        let details = again.ask(node, &Request::GetConsumerGroup(group()));
        let body = details.result().expect("read");
        let details = GroupDetails::decode(&body).expect("a group");
        assert_eq!(details.members.len(), 2);
    });
}

#[test]
fn a_member_that_is_silent_is_evicted_and_others_are_not() {
    on_one_and_two_shards(2, 3, |node, clients| {
        clients[0].join(node);
        clients[1].join(node);
        for _ in 0..12 {
            node.pass(Duration::from_secs(5));
            clients[1].ask(node, &Request::Ping).result().expect("pong");
        }
        assert_eq!(clients[1].sync(node), Some(vec![0, 1]));
        let told = clients[0].ask(node, &Request::Ping);
        assert_eq!(told, Answer::Eviction(EvictionReason::StaleClient));
        // Told once; it logs in again on the same connection.
        clients[0].log_in_again(node);
        clients[0].join(node);
        assert_eq!(clients[0].sync(node), Some(vec![1]));
        // The third is no member: nobody minds its silence.
        assert!(clients[2].ask(node, &Request::GetStreams).result().is_ok());
    });
}

#[test]
fn partitions_come_and_go_under_members() {
    on_one_and_two_shards(2, 2, |node, clients| {
        clients[0].join(node);
        clients[1].join(node);
        let TopicTarget { stream, topic } = topic();
        let count = |count| PartitionsCount {
            stream,
            topic,
            count,
        };
        let request = Request::CreatePartitions(count(3));
        clients[0].ask(node, &request).result().expect("created");
        assert_eq!(clients[0].sync(node), Some(vec![0, 2, 4]));
        assert_eq!(clients[1].sync(node), Some(vec![1, 3]));
        clients[0].produce(node, 4, &["x"]);
        assert_eq!(clients[0].read(node, 4, 1), Some(vec![0]));
        let request = Request::DeletePartitions(count(4));
        clients[0].ask(node, &request).result().expect("deleted");
        assert_eq!(clients[0].sync(node), Some(vec![0]));
        assert_eq!(clients[1].sync(node), Some(vec![]));
        let gone = Request::PollMessages(poll_of(Some(4), 1, false));
        let missing = Some(ErrorCode::PARTITION_NOT_FOUND);
        assert_eq!(clients[0].ask(node, &gone).code(), missing);
    });
}

#[test]
fn a_new_group_inherits_nothing_and_what_a_dead_one_stored_makes_room() {
    for shards in [1, 2] {
        let mut options = Options {
            shards,
            ..Options::default()
        };
        options.limits.consumers_max = 1;
        let node = &mut Node::with(options);
        let mut client = Client::log_in(node, 1);
        client.create_topic(node, 1);
        client.produce(node, 0, &["a", "b"]);
        for round in 0..3 {
            client.ask(node, &create()).result().expect("created");
            let target = GroupTarget {
                group: Identifier::Numeric(round),
                ..GROUP_TARGET
            };
            let join = Request::JoinConsumerGroup(target);
            client.ask(node, &join).result().expect("joined");
            assert_eq!(client.stored(node, 0), None);
            client.commit(node, 0, 1);
            let delete = Request::DeleteConsumerGroup(group());
            client.ask(node, &delete).result().expect("deleted");
            node.pass(Duration::from_secs(1));
        }
    }
}

#[test]
fn a_group_too_many_on_a_partition_is_told_so_by_its_poll() {
    let mut options = Options {
        shards: 1,
        ..Options::default()
    };
    options.limits.consumers_max = 1;
    let node = &mut Node::with(options);
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 1);
    client.produce(node, 0, &["a", "b"]);
    let full = Some(ErrorCode::TOO_MANY_CONSUMER_OFFSETS);
    for (id, text) in [(0, GROUP), (1, "late")] {
        let TopicTarget { stream, topic } = topic();
        let create = CreateConsumerGroup {
            stream,
            topic,
            name: name(text),
        };
        let create = Request::CreateConsumerGroup(create);
        client.ask(node, &create).result().expect("created");
        let target = GroupTarget {
            group: Identifier::Numeric(id),
            ..GROUP_TARGET
        };
        let join = Request::JoinConsumerGroup(target);
        client.ask(node, &join).result().expect("joined");
        let consumer = Consumer {
            kind: ConsumerKind::Group,
            id: Identifier::Numeric(id),
        };
        let request = Request::PollMessages(PollMessages {
            consumer,
            ..poll_of(Some(0), 1, true)
        });
        let expected = full.filter(|_| id == 1);
        assert_eq!(client.ask(node, &request).result().err(), expected);
    }
}

#[test]
fn a_data_connection_acts_for_the_session_it_is_attached_to() {
    on_one_and_two_shards(1, 2, |node, clients| {
        let [coordinator, data] = clients else {
            panic!("two clients")
        };
        coordinator.join(node);
        let routing = Request::PollRouting(poll_of(Some(0), 1, true));
        let body = coordinator.ask(node, &routing).result().expect("a route");
        let route = Route::decode(&body).expect("a route");
        let request = Request::PollOnPrimary(poll_of(Some(0), 2, true));
        assert_eq!(data.ask(node, &request).code(), NOT_A_MEMBER);
        let attach = Request::AttachConsumerSession(route.attach);
        data.ask(node, &attach).result().expect("attached");
        let body = data.ask(node, &request).result().expect("a poll");
        assert_eq!(Polled::decode(&body).offsets(), [0, 1]);
        data.commit(node, 0, 3);
        assert_eq!(coordinator.read(node, 0, 5), Some(vec![4]));
        // It is over with the session.
        node.disconnect(coordinator.connection);
        node.pass(Duration::from_millis(500));
        assert_eq!(data.ask(node, &request).code(), NOT_A_MEMBER);
    });
}

#[test]
fn members_of_an_earlier_life_are_none() {
    on_one_and_two_shards(2, 2, |node, clients| {
        clients[0].join(node);
        clients[1].join(node);
        node.crash();
        node.pass(Duration::from_secs(2));
        let mut client = Client::log_in(node, 7);
        client.join(node);
        node.pass(Duration::from_secs(1));
        assert_eq!(client.sync(node), Some(vec![0, 1]));
    });
}

#[test]
fn nothing_is_due_while_no_group_has_anything_to_do() {
    let (mut node, mut clients) = node_with(1, 2, 1);
    node.settle();
    let quiet = node.deadline();
    clients[0].join(&mut node);
    node.settle();
    assert_eq!(quiet, None, "no timer without members");
    clients[0].log_in_again(&mut node);
    node.settle();
    assert_eq!(node.deadline(), None, "nor after them");
}

fn in_cluster(
    cluster: &mut Cluster,
    node: usize,
    client: &mut Client,
    what: &Request<'_>,
) -> Answer {
    cluster.ask(node, client, what).expect("answered")
}

fn polled(answer: &Answer) -> Option<Vec<u64>> {
    let polled = Polled::decode(&answer.result().expect("a poll"));
    (polled.partition != POLL_PARTITION_RESYNC).then(|| polled.offsets())
}

#[test]
fn what_was_polled_and_not_committed_is_withheld_across_a_failover() {
    let cluster = &mut Cluster::new(3);
    cluster.pass_millis(3_000);
    let admin = &mut cluster.log_in(2, 1);
    cluster.create_topic(2, admin, 2);
    in_cluster(cluster, 2, admin, &create())
        .result()
        .expect("created");
    for _ in 0..4 {
        cluster.produce(2, admin, "x").expect("sent");
    }
    let sync = Request::SyncConsumerGroup(group());
    let read = Request::PollMessages(poll_of(Some(0), 2, false));
    let old = &mut cluster.log_in(2, 2);
    in_cluster(cluster, 2, old, &join())
        .result()
        .expect("joined");
    let answer = in_cluster(cluster, 2, old, &read);
    assert_eq!(polled(&answer), Some(vec![0, 1]));
    // The node that has served it dies; the member is connected to another.
    let primary = cluster.nodes[2]
        .observations
        .iter()
        .rev()
        .find_map(|seen| match seen {
            server::Observation::View { group, view, .. } if *group != base::GroupId::METADATA => {
                Some(view.primary(3).0)
            }
            _ => None,
        });
    let primary = usize::from(primary.expect("a partition"));
    assert_ne!(primary, 2, "clients are on a backup");
    cluster.kill(primary);
    cluster.pass_millis(8_000);
    let new = &mut cluster.log_in(2, 3);
    in_cluster(cluster, 2, new, &join())
        .result()
        .expect("joined");
    let leave = Request::LeaveConsumerGroup(group());
    in_cluster(cluster, 2, new, &leave).result().expect("left");
    // What moves is the end of the list: both have been the old member's, 1 goes.
    in_cluster(cluster, 2, new, &join())
        .result()
        .expect("joined");
    cluster.pass_millis(2_000);
    let third = &mut cluster.log_in(2, 4);
    in_cluster(cluster, 2, third, &join())
        .result()
        .expect("joined");
    let answer = in_cluster(cluster, 2, old, &sync);
    assert_eq!(assigned(&answer), Some(vec![0]));
    // Nobody but the old member gets 0 while it has not committed; once it leaves, anybody may.
    assert_eq!(
        assigned(&in_cluster(cluster, 2, third, &sync)),
        Some(vec![])
    );
    let answer = in_cluster(cluster, 2, old, &read);
    assert_eq!(
        polled(&answer),
        Some(vec![0, 1]),
        "the next ones are not skipped"
    );
    in_cluster(cluster, 2, old, &store_of(0, 1))
        .result()
        .expect("stored");
    let answer = in_cluster(cluster, 2, old, &read);
    assert_eq!(polled(&answer), Some(vec![2, 3]));
}

/// As the one above, for the partition that is to move.
#[test]
fn a_partition_on_the_move_is_withheld_across_a_failover_and_moves_once_committed() {
    let cluster = &mut Cluster::new(3);
    cluster.pass_millis(3_000);
    let admin = &mut cluster.log_in(2, 1);
    cluster.create_topic(2, admin, 2);
    let batch = batch_of(&["a", "b", "c"]);
    let write = send(Partitioning::PartitionId(1), &batch, 3);
    for request in [&create(), &write] {
        let answer = in_cluster(cluster, 2, admin, request);
        answer.result().expect("done");
    }
    let sync = Request::SyncConsumerGroup(group());
    let read = Request::PollMessages(poll_of(Some(1), 2, false));
    let [old, new] = &mut [cluster.log_in(2, 2), cluster.log_in(2, 3)];
    let answer = in_cluster(cluster, 2, old, &join());
    answer.result().expect("joined");
    let answer = in_cluster(cluster, 2, old, &read);
    assert_eq!(polled(&answer), Some(vec![0, 1]));
    let groups = cluster.nodes[2].observations.iter();
    let groups = groups.filter_map(|seen| match seen {
        server::Observation::View { group, .. } if *group != base::GroupId::METADATA => {
            Some(*group)
        }
        _ => None,
    });
    let last = groups.max().expect("the group of partition 1");
    let primary = cluster.primary(last).expect("it has one");
    assert_ne!(primary, 2, "clients are on a backup");
    cluster.kill(primary);
    cluster.pass_millis(8_000);
    let answer = in_cluster(cluster, 2, new, &join());
    answer.result().expect("joined");
    cluster.pass_millis(2_000);
    let shares = |cluster: &mut Cluster, old: &mut Client, new: &mut Client| {
        [old, new].map(|member| assigned(&in_cluster(cluster, 2, member, &sync)))
    };
    assert_eq!(
        shares(cluster, old, new),
        [Some(vec![0]), Some(vec![])],
        "it is in flight"
    );
    for member in [&mut *old, &mut *new] {
        assert_eq!(polled(&in_cluster(cluster, 2, member, &read)), None);
    }
    // The next primary takes all that was there for polled: 2 may have been.
    for (offset, moved) in [(1, vec![]), (2, vec![1])] {
        let answer = in_cluster(cluster, 2, old, &store_of(1, offset));
        answer.result().expect("stored");
        cluster.pass_millis(2_000);
        let expected = [Some(vec![0]), Some(moved)];
        assert_eq!(shares(cluster, old, new), expected, "committed {offset}");
    }
    let answer = in_cluster(cluster, 2, admin, &write);
    answer.result().expect("sent");
    let answer = in_cluster(cluster, 2, new, &read);
    assert_eq!(polled(&answer), Some(vec![3, 4]), "nothing twice");
}

#[test]
fn members_of_a_node_that_died_are_removed_in_time() {
    let cluster = &mut Cluster::new(3);
    cluster.pass_millis(3_000);
    let admin = &mut cluster.log_in(0, 1);
    cluster.create_topic(0, admin, 2);
    in_cluster(cluster, 0, admin, &create())
        .result()
        .expect("created");
    let gone = &mut cluster.log_in(2, 2);
    in_cluster(cluster, 2, gone, &join())
        .result()
        .expect("joined");
    let stays = &mut cluster.log_in(1, 3);
    in_cluster(cluster, 1, stays, &join())
        .result()
        .expect("joined");
    cluster.kill(2);
    let sync = Request::SyncConsumerGroup(group());
    for _ in 0..10 {
        cluster.pass_millis(5_000);
        in_cluster(cluster, 1, stays, &sync)
            .result()
            .expect("a member");
    }
    let answer = in_cluster(cluster, 1, stays, &sync);
    assert_eq!(assigned(&answer), Some(vec![0, 1]));
}
