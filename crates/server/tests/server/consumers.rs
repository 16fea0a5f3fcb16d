//! Consumer offsets: stored, read, deleted, and committed by polls (`wire.md` 5.8, 5.9).

use wire::{
    AckLevel, Codec, Consumer, ConsumerKind, ErrorCode, Identifier, PollingStrategy, Request,
    reply::{ConsumerOffset, Route},
    request::{DeleteConsumerOffset, StoreConsumerOffset},
};

use crate::{
    client::{Client, Polled, consumer, name, offset_of, poll, store},
    node::{Node, Options},
};

/// Two partitions of five messages, on one shard and on two.
fn on_one_and_two_shards(test: impl Fn(&mut Node, &mut Client)) {
    for shards in [1, 2] {
        let mut node = Node::new(shards);
        let mut client = Client::log_in(&mut node, 1);
        client.create_topic(&mut node, 3);
        for partition in 0..2 {
            client.produce(&mut node, partition, &["a", "b", "c", "d", "e"]);
        }
        test(&mut node, &mut client);
    }
}

fn stored(client: &mut Client, node: &mut Node, partition: u32) -> Option<ConsumerOffset> {
    let target = offset_of(consumer(7), partition);
    let body = client.ask(node, &Request::GetConsumerOffset(target));
    let body = body.result().expect("reads do not fail");
    (!body.is_empty()).then(|| ConsumerOffset::decode(&body).expect("an offset"))
}

fn delete(partition: u32) -> Request<'static> {
    Request::DeleteConsumerOffset(DeleteConsumerOffset {
        target: offset_of(consumer(7), partition),
        ack: AckLevel::Quorum,
    })
}

#[test]
fn a_stored_offset_is_read_back_until_it_is_deleted() {
    on_one_and_two_shards(|node, client| {
        assert_eq!(stored(client, node, 1), None);
        assert_eq!(client.ask(node, &store(1, 3)).result(), Ok(Vec::new()));
        let expected = ConsumerOffset {
            partition_id: 1,
            current_offset: 4,
            stored_offset: 3,
        };
        assert_eq!(stored(client, node, 1), Some(expected));
        assert_eq!(stored(client, node, 0), None);
        let next = client.poll(node, 1, PollingStrategy::Next, 9);
        assert_eq!(next.offsets(), [4]);
        // An explicit store may step back.
        assert_eq!(client.ask(node, &store(1, 0)).result(), Ok(Vec::new()));
        let next = client.poll(node, 1, PollingStrategy::Next, 2);
        assert_eq!(next.offsets(), [1, 2]);
        assert_eq!(client.ask(node, &delete(1)).result(), Ok(Vec::new()));
        assert_eq!(stored(client, node, 1), None);
    });
}

#[test]
fn an_offset_that_no_message_has_is_not_stored() {
    on_one_and_two_shards(|node, client| {
        let beyond = client.ask(node, &store(1, 5));
        assert_eq!(beyond.code(), Some(ErrorCode::INVALID_OFFSET));
        let empty = client.ask(node, &store(2, 0));
        assert_eq!(empty.code(), Some(ErrorCode::INVALID_OFFSET));
        assert_eq!(stored(client, node, 1), None);
    });
}

#[test]
fn deleting_what_is_not_stored_is_an_error() {
    on_one_and_two_shards(|node, client| {
        let answer = client.ask(node, &delete(0));
        assert_eq!(answer.code(), Some(ErrorCode::CONSUMER_OFFSET_NOT_FOUND));
    });
}

#[test]
fn offsets_of_a_missing_partition_are_denied() {
    on_one_and_two_shards(|node, client| {
        let gone = Some(ErrorCode::PARTITION_NOT_FOUND);
        assert_eq!(client.ask(node, &store(3, 0)).code(), gone);
        assert_eq!(client.ask(node, &delete(3)).code(), gone);
        let get = Request::GetConsumerOffset(offset_of(consumer(7), 3));
        assert_eq!(client.ask(node, &get).code(), gone);
    });
}

#[test]
fn a_consumer_group_does_not_exist_for_any_command() {
    on_one_and_two_shards(|node, client| {
        let group = Consumer {
            kind: ConsumerKind::Group,
            id: Identifier::Numeric(1),
        };
        let request = Request::PollMessages(wire::request::PollMessages {
            consumer: group,
            ..poll(0, PollingStrategy::Next, 1, false)
        });
        let gone = Some(ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND);
        assert_eq!(client.ask(node, &request).code(), gone);
        let target = offset_of(group, 0);
        let store = Request::StoreConsumerOffset(StoreConsumerOffset {
            target,
            offset: 0,
            ack: AckLevel::Quorum,
        });
        assert_eq!(client.ask(node, &store).code(), gone);
        let get = Request::GetConsumerOffset(target);
        assert_eq!(client.ask(node, &get).code(), gone);
    });
}

#[test]
fn a_consumer_has_one_offset_under_its_name_and_the_hash_of_it() {
    on_one_and_two_shards(|node, client| {
        let named = Consumer {
            kind: ConsumerKind::Single,
            id: Identifier::Named(name("reader")),
        };
        let store = Request::StoreConsumerOffset(StoreConsumerOffset {
            target: offset_of(named, 0),
            offset: 2,
            ack: AckLevel::Quorum,
        });
        assert_eq!(client.ask(node, &store).result(), Ok(Vec::new()));
        let key = named.single_key().expect("a single consumer");
        let get = Request::GetConsumerOffset(offset_of(consumer(key), 0));
        let body = client.ask(node, &get).result().expect("read");
        let offset = ConsumerOffset::decode(&body).expect("an offset");
        assert_eq!(offset.stored_offset, 2);
    });
}

#[test]
fn auto_commit_lets_the_next_poll_go_on_where_the_last_ended() {
    on_one_and_two_shards(|node, client| {
        for make in [Request::PollMessages, Request::PollOnPrimary] {
            let mut seen = Vec::new();
            loop {
                let request = make(poll(1, PollingStrategy::Next, 2, true));
                let body = client.ask(node, &request).result().expect("served");
                let polled = Polled::decode(&body);
                if polled.messages.is_empty() {
                    break;
                }
                seen.extend(polled.offsets());
            }
            assert_eq!(seen, [0, 1, 2, 3, 4]);
            let offset = stored(client, node, 1).expect("committed");
            assert_eq!(offset.stored_offset, 4);
            assert_eq!(client.ask(node, &delete(1)).result(), Ok(Vec::new()));
        }
        // Nothing read, nothing stored.
        let request = Request::PollMessages(poll(2, PollingStrategy::Next, 2, true));
        let body = client.ask(node, &request).result().expect("served");
        assert!(Polled::decode(&body).messages.is_empty());
        assert_eq!(stored(client, node, 2), None);
    });
}

#[test]
fn an_auto_commit_never_moves_the_offset_back() {
    on_one_and_two_shards(|node, client| {
        assert!(client.ask(node, &store(0, 4)).result().is_ok());
        let request = Request::PollMessages(poll(0, PollingStrategy::First, 2, true));
        let body = client.ask(node, &request).result().expect("served");
        assert_eq!(Polled::decode(&body).offsets(), [0, 1]);
        let offset = stored(client, node, 0).expect("stored");
        assert_eq!(offset.stored_offset, 4);
    });
}

#[test]
fn a_consumer_too_many_is_refused_and_those_that_are_there_go_on() {
    let mut options = Options {
        shards: 1,
        ..Options::default()
    };
    options.limits.consumers_max = 2;
    let node = &mut Node::with(options);
    let mut client = Client::log_in(node, 1);
    client.create_topic(node, 1);
    client.produce(node, 0, &["a", "b"]);
    let store_for = |id, offset| {
        Request::StoreConsumerOffset(StoreConsumerOffset {
            target: offset_of(consumer(id), 0),
            offset,
            ack: AckLevel::Quorum,
        })
    };
    assert!(client.ask(node, &store_for(1, 0)).result().is_ok());
    assert!(client.ask(node, &store_for(2, 0)).result().is_ok());
    let third = client.ask(node, &store_for(3, 0));
    assert_eq!(third.code(), Some(ErrorCode::TOO_MANY_CONSUMER_OFFSETS));
    assert!(client.ask(node, &store_for(2, 1)).result().is_ok());
}

#[test]
fn routing_names_this_node_and_the_session_to_attach() {
    on_one_and_two_shards(|node, client| {
        for request in [
            Request::PollRouting(poll(0, PollingStrategy::Next, 1, true)),
            Request::ConsumerOffsetRouting(offset_of(consumer(7), 0)),
        ] {
            let body = client.ask(node, &request).result().expect("served");
            let route = Route::decode(&body).expect("a route");
            assert_eq!(route.attach.client_id, client.id.0);
            assert_eq!(route.attach.session, client.session);
            assert_eq!(route.node.tcp, crate::node::CLIENT_PORT);
            let mut data = Client::log_in(node, 2);
            let attach = Request::AttachConsumerSession(route.attach);
            assert_eq!(data.ask(node, &attach).result(), Ok(Vec::new()));
            let wrong = wire::AttachSession {
                session: route.attach.session + 1_000,
                ..route.attach
            };
            let answer = data.ask(node, &Request::AttachConsumerSession(wrong));
            assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED));
            let early = wire::AttachSession {
                metadata_watermark: u64::MAX,
                ..route.attach
            };
            let answer = data.ask(node, &Request::AttachConsumerSession(early));
            assert_eq!(answer.code(), Some(ErrorCode::TRANSIENT_NOT_ACCEPTED));
        }
    });
}
