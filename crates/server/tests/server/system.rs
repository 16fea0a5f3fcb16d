//! What the server says of itself and of its clients: codes 10, 11, 20, 21, 22 (`wire.md` 5.1).

use core::time::Duration;

use wire::{
    ArchiveCompression, Code, Codec, ErrorCode, Reader, Request,
    reply::{ClientDetails, ClientRecord, NO_USER, Stats},
    request::Snapshot,
};

use crate::{
    client::{Client, batch_of, create_topic, send, topic},
    node::Node,
};

fn stats(node: &mut Node, client: &mut Client) -> Vec<u8> {
    let body = client.ask(node, &Request::GetStats).result();
    body.expect("told to whoever may ask")
}

#[test]
fn stats_are_the_sums_of_what_all_shards_hold() {
    for shards in [1, 3] {
        let mut node = Node::new(shards);
        let mut client = Client::log_in(&mut node, 1);
        let empty = stats(&mut node, &mut client);
        let empty = Stats::decode(&empty).expect("a record");
        assert_eq!((empty.streams_count, empty.messages_count), (0, 0));
        assert_eq!(empty.clients_count, 1);
        assert_eq!((empty.process_id, empty.hostname.0), (77, "here"));
        assert_eq!(empty.server_semver, 11_000);

        client.create_topic(&mut node, 5);
        assert!(
            client
                .ask(&mut node, &create_topic("other", 2))
                .result()
                .is_ok()
        );
        let mut size = 0;
        for partition in 0..5 {
            let batch = batch_of(&["one", "two"]);
            size += batch.len() as u64;
            let to = wire::Partitioning::PartitionId(partition);
            assert!(client.ask(&mut node, &send(to, &batch, 2)).result().is_ok());
        }
        let _unbound = Client::connect(&mut node, 2);
        node.pass(Duration::from_millis(20));
        let body = stats(&mut node, &mut client);
        let full = Stats::decode(&body).expect("a record");
        assert_eq!((full.streams_count, full.topics_count), (1, 2));
        assert_eq!((full.partitions_count, full.segments_count), (7, 7));
        assert_eq!((full.messages_count, full.messages_size_bytes), (10, size));
        assert_eq!(full.clients_count, 2);
        assert!(full.start_time > 0 && full.run_time > empty.run_time);
    }
}

#[test]
fn a_client_finds_itself_and_the_others() {
    for shards in [1, 3] {
        let mut node = Node::new(shards);
        let mut clients: Vec<Client> = (1..=4).map(|id| Client::log_in(&mut node, id)).collect();
        let _unbound = Client::connect(&mut node, 9);
        let mut ids = Vec::new();
        for client in &mut clients {
            let body = client.ask(&mut node, &Request::GetMe).result().expect("me");
            let me = ClientDetails::decode(&body).expect("a record");
            assert_eq!((me.client.user_id, me.client.groups_count), (0, 0));
            assert!(!me.client.address.0.is_empty());
            ids.push(me.client.client_id);
            let same = Request::GetClient(me.client.client_id);
            assert_eq!(client.ask(&mut node, &same).result(), Ok(body));
        }
        let body = clients[1].ask(&mut node, &Request::GetClients).result();
        let body = body.expect("all of them");
        let mut reader = Reader::new(&body);
        let mut listed = Vec::new();
        while reader.left() > 0 {
            let record: ClientRecord<'_> = reader.read().expect("a record");
            listed.push((record.client_id, record.user_id));
        }
        assert_eq!(listed.len(), 5);
        assert!(listed.is_sorted());
        let bound = |id: &u32| listed.contains(&(*id, 0));
        assert!(ids.iter().all(bound));
        let unbound = listed.iter().filter(|(_, user)| *user == NO_USER);
        assert_eq!(unbound.count(), 1);
        let nobody = Request::GetClient(4_000_000);
        assert_eq!(clients[0].ask(&mut node, &nobody).result(), Ok(Vec::new()));
    }
}

#[test]
fn a_client_that_has_gone_is_not_listed() {
    let mut node = Node::new(2);
    let mut client = Client::log_in(&mut node, 1);
    let other = Client::log_in(&mut node, 2);
    node.disconnect(other.connection);
    let body = client.ask(&mut node, &Request::GetClients).result();
    let clients = Vec::<ClientRecord<'_>>::decode(&body.expect("a list")).map(|all| all.len());
    assert_eq!(clients, Ok(1));
}

#[test]
fn an_archive_comes_from_the_body_and_a_failure_has_its_code() {
    let mut node = Node::new(2);
    for id in 1..=2 {
        let mut client = Client::log_in(&mut node, id);
        let mut ask = |compression, types: &[u8]| {
            let snapshot = Snapshot::new(compression, types).expect("known types");
            client
                .ask(&mut node, &Request::GetSnapshot(snapshot))
                .result()
        };
        assert_eq!(ask(ArchiveCompression::Zstd, &[4]), Ok(vec![4]));
        let failed = Err(ErrorCode::SNAPSHOT_FILE_COMPLETION_FAILED);
        assert_eq!(ask(ArchiveCompression::Stored, &[100]), failed);
        assert_eq!(ask(ArchiveCompression::Stored, &[]), failed);
        let unavailable = Err(ErrorCode::FEATURE_UNAVAILABLE);
        assert_eq!(ask(ArchiveCompression::Lzma, &[4]), unavailable);
        for body in [&[0, 1, 4][..], &[7, 0], &[1, 1, 7], &[1, 2, 4], &[1, 0, 4]] {
            let frame = client.command(Code::GetSnapshot.number(), body);
            let answer = client.exchange(&mut node, &frame);
            assert_eq!(answer.code(), Some(ErrorCode::INVALID_COMMAND), "{body:?}");
        }
    }
}

#[test]
fn codes_nobody_knows_and_codes_not_served_are_told_apart() {
    let mut node = Node::new(1);
    let client = Client::log_in(&mut node, 1);
    for (code, expected) in [
        (60_000, ErrorCode::INVALID_COMMAND),
        (38, ErrorCode::INVALID_COMMAND),
        (44, ErrorCode::INVALID_COMMAND),
        (40, ErrorCode::INVALID_COMMAND),
        (202, ErrorCode::INVALID_COMMAND),
        (0, ErrorCode::INVALID_COMMAND),
    ] {
        let answer = client.exchange(&mut node, &client.command(code, &[]));
        assert_eq!(answer.code(), Some(expected), "{code}");
    }
    let flush = [1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let answer = client.exchange(&mut node, &client.command(102, &flush));
    assert_eq!(answer.code(), Some(ErrorCode::FEATURE_UNAVAILABLE));
}

#[test]
fn nobody_is_told_that_a_partition_is_empty_which_is_being_recovered() {
    for shards in [1, 3] {
        let mut node = Node::new(shards);
        let mut client = Client::log_in(&mut node, 1);
        client.create_topic(&mut node, 5);
        for partition in 0..5 {
            client.produce(&mut node, partition, &["one", "two"]);
        }
        let topic = Request::GetTopic(topic());
        let told = client.ask(&mut node, &topic).result().expect("told");
        node.kill();
        node.hold = Some(|request| {
            matches!(request, platform::DiskRequest::Open { path, .. }
                if path.0.starts_with("partitions/"))
        });
        node.start();
        assert!(node.held_count() > 0);
        let mut clients: Vec<Client> = (2..=3).map(|id| Client::log_in(&mut node, id)).collect();
        let [reader, counter] = clients.as_mut_slice() else {
            unreachable!("two")
        };
        let frame = reader.frame(&topic);
        node.send(reader.connection, &frame);
        assert!(node.frames(reader.connection).is_empty(), "it waits");
        let frame = counter.frame(&Request::GetStats);
        node.send(counter.connection, &frame);
        node.let_go();
        assert_eq!(reader.take(&mut node).result(), Ok(told));
        let stats = counter.take(&mut node).result().expect("told");
        let stats = Stats::decode(&stats).expect("a record");
        assert_eq!(stats.messages_count, 10);
    }
}

#[test]
fn a_read_that_waits_too_long_is_refused_and_numbers_are_told_in_part() {
    let mut node = Node::new(1);
    let mut client = Client::log_in(&mut node, 1);
    client.create_topic(&mut node, 2);
    client.produce(&mut node, 0, &["one"]);
    node.kill();
    node.hold = Some(|request| {
        matches!(request, platform::DiskRequest::Open { path, .. }
            if path.0.starts_with("partitions/"))
    });
    node.start();
    let mut reader = Client::log_in(&mut node, 2);
    let mut counter = Client::log_in(&mut node, 3);
    let frame = reader.frame(&Request::GetTopic(topic()));
    node.send(reader.connection, &frame);
    let frame = counter.frame(&Request::GetStats);
    node.send(counter.connection, &frame);
    node.pass(Duration::from_millis(2_900));
    assert!(node.frames(reader.connection).is_empty());
    node.pass(Duration::from_millis(200));
    let refused = reader.take(&mut node).code();
    assert_eq!(refused, Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    let stats = counter.take(&mut node).result().expect("told");
    let stats = Stats::decode(&stats).expect("a record");
    assert_eq!((stats.partitions_count, stats.clients_count), (2, 2));
    node.let_go();
    assert!(
        reader
            .ask(&mut node, &Request::GetTopic(topic()))
            .result()
            .is_ok()
    );
}

#[test]
fn archives_at_the_limit_and_one_beyond() {
    let mut node = Node::new(1);
    node.hold_archives = true;
    let snapshot = Snapshot::new(ArchiveCompression::Stored, &[4]).expect("known");
    let request = Request::GetSnapshot(snapshot);
    let mut clients: Vec<Client> = (1..=5).map(|id| Client::log_in(&mut node, id)).collect();
    let (last, first) = clients.split_last_mut().expect("five");
    for client in first.iter_mut() {
        let frame = client.frame(&request);
        node.send(client.connection, &frame);
        assert!(
            node.frames(client.connection).is_empty(),
            "it is being made"
        );
    }
    let refused = last.ask(&mut node, &request).code();
    assert_eq!(refused, Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
    node.let_go();
    for client in first.iter() {
        assert_eq!(client.take(&mut node).result(), Ok(vec![1]));
    }
    assert_eq!(last.ask(&mut node, &request).result(), Ok(vec![1]));
}
