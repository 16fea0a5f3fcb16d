//! Logging in and out, and what a connection may ask before and after (`wire.md` 3.1, 3.2, 3.9).

use wire::{
    Code, Codec, Credentials, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, Login,
    LoginPrefix, Operation, PROTOCOL_VERSION, Partitioning, Request, RequestHeader, Secret,
    ShortText, Text, header,
    reply::{ClusterMetadata, LoginRecord},
    request::FlushUnsavedBuffer,
};

use crate::{
    client::{Answer, Client, batch_of, create_stream, login, name, send, store, stream},
    node::{CLIENT_PORT, Node, PASSWORD, USERNAME},
};

fn on_one_and_two_shards(test: impl Fn(&mut Node)) {
    for shards in [1, 2] {
        test(&mut Node::new(shards));
    }
}

/// Connections go round the shards: two of them reach both.
fn on_every_connection(test: impl Fn(&mut Node, u128)) {
    on_one_and_two_shards(|node| {
        for id in 1..=2 {
            test(node, id);
        }
    });
}

#[test]
fn a_ping_is_answered_before_login() {
    on_every_connection(|node, id| {
        let mut client = Client::connect(node, id);
        let answer = client.ask(node, &Request::Ping);
        assert_eq!(answer.result(), Ok(Vec::new()));
        let Answer::Reply(header, _) = answer else {
            unreachable!("it had a result")
        };
        assert_eq!(header.operation, Operation::NonReplicated);
        assert_eq!(header.request, 1);
        assert_eq!(header.client, client.id);
    });
}

#[test]
fn an_unbound_read_is_denied_with_40_whatever_it_asks() {
    on_every_connection(|node, id| {
        let mut client = Client::connect(node, id);
        for request in [
            Request::GetClusterMetadata,
            Request::GetStreams,
            Request::GetStream(stream()),
            Request::GetStats,
        ] {
            let answer = client.ask(node, &request);
            assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED));
        }
        let unknown = client.command(60_000, b"?");
        let answer = client.exchange(node, &unknown);
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED));
    });
}

#[test]
fn a_legacy_login_is_evicted_as_malformed() {
    on_every_connection(|node, id| {
        let client = Client::connect(node, id);
        for code in [38, 44] {
            let frame = client.command(code, b"\x04iggy\x06secret");
            let answer = client.exchange(node, &frame);
            assert_eq!(answer, Answer::Eviction(EvictionReason::MalformedLogin));
        }
        assert!(!node.is_closed(client.connection));
    });
}

#[test]
fn an_unbound_logout_is_acknowledged() {
    on_every_connection(|node, id| {
        let client = Client::connect(node, id);
        let frame = client.numbered(&Request::Logout, 3, 1);
        assert_eq!(client.exchange(node, &frame).result(), Ok(Vec::new()));
    });
}

#[test]
fn an_unbound_write_is_evicted_and_never_acknowledged() {
    on_every_connection(|node, id| {
        let client = Client::connect(node, id);
        let batch = batch_of(&["a"]);
        for request in [
            create_stream("orders"),
            send(Partitioning::PartitionId(0), &batch, 1),
            store(0, 0),
        ] {
            let frame = client.numbered(&request, 3, 1);
            let answer = client.exchange(node, &frame);
            assert_eq!(answer, Answer::Eviction(EvictionReason::NoSession));
        }
        assert!(!node.is_closed(client.connection));
    });
}

#[test]
fn a_login_opens_a_session_and_tells_the_versions() {
    on_every_connection(|node, id| {
        let mut client = Client::connect(node, id);
        let answer = client.ask(node, &login(USERNAME, PASSWORD));
        let payload = answer.result().expect("a login");
        let record = LoginRecord::decode(&payload).expect("a login record");
        assert_eq!(record.user_id, 0);
        assert_eq!(record.session, answer.op());
        assert_eq!(record.server_protocol_version, PROTOCOL_VERSION);
        assert_eq!(record.server_version.as_str(), "0.11.0");
        client.session = record.session;
        let answer = client.ask(node, &Request::GetStreams);
        assert_eq!(answer.result(), Ok(Vec::new()));
    });
}

#[test]
fn wrong_credentials_are_evicted_and_may_be_mended_on_the_same_connection() {
    on_every_connection(|node, id| {
        let mut client = Client::connect(node, id);
        for (username, password) in [(USERNAME, "wrong"), ("nobody", PASSWORD), ("nobody", "x")] {
            let answer = client.ask(node, &login(username, password));
            assert_eq!(answer, Answer::Eviction(EvictionReason::InvalidCredentials));
        }
        let answer = client.ask(node, &Request::GetStreams);
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED));
        client.log_in_again(node);
    });
}

#[test]
fn a_token_that_nobody_has_is_evicted_as_invalid() {
    on_every_connection(|node, id| {
        let mut client = Client::connect(node, id);
        let Request::Register(password) = login(USERNAME, PASSWORD) else {
            unreachable!("a login")
        };
        let token = Request::Register(Login {
            credentials: Credentials::Token(Secret("a-token-of-nobody")),
            ..password
        });
        let answer = client.ask(node, &token);
        assert_eq!(answer, Answer::Eviction(EvictionReason::InvalidToken));
    });
}

#[test]
fn another_protocol_version_is_evicted_with_the_bounds() {
    on_every_connection(|node, id| {
        let client = Client::connect(node, id);
        for version in [10 << 10, 12 << 10, 1 << 20 | 11 << 10] {
            let prefix = LoginPrefix {
                protocol_version: version,
                sdk_name: name("rust-sdk"),
                sdk_version: ShortText("9"),
            };
            // What follows the prefix is another version's business.
            let mut body = prefix.encode();
            body.extend_from_slice(b"whatever");
            let header = RequestHeader::new(client.id, 0, 0, Code::LoginRegister);
            node.send(client.connection, &header::request(&header, &body));
            let frames = node.frames(client.connection);
            assert_eq!(frames.len(), 1);
            let evicted = EvictionHeader::decode(&frames[0]).expect("an eviction");
            assert_eq!(evicted.reason, EvictionReason::IncompatibleProtocol);
            assert_eq!(evicted.protocol_version_min, PROTOCOL_VERSION);
            assert_eq!(evicted.protocol_version_max, PROTOCOL_VERSION);
            assert_eq!(evicted.client, client.id);
        }
    });
}

#[test]
fn a_patch_version_of_the_same_minor_logs_in() {
    let mut node = Node::new(1);
    let mut client = Client::connect(&mut node, 1);
    let request = Request::Register(Login {
        prefix: LoginPrefix {
            protocol_version: PROTOCOL_VERSION + 7,
            sdk_name: name("rust-sdk"),
            sdk_version: ShortText("0.11.7"),
        },
        credentials: Credentials::Password {
            username: name(USERNAME),
            password: Secret(PASSWORD),
        },
        context: Text("hello"),
    });
    assert!(client.ask(&mut node, &request).result().is_ok());
}

#[test]
fn an_undecodable_login_is_evicted_as_malformed() {
    on_every_connection(|node, id| {
        let client = Client::connect(node, id);
        let whole = login(USERNAME, PASSWORD).encode();
        for body in [&[][..], &[1, 2, 3], &[0, 0x2c, 0, 0, 0], &whole[..9]] {
            let header = RequestHeader::new(client.id, 0, 0, Code::LoginRegister);
            let answer = client.exchange(node, &header::request(&header, body));
            assert_eq!(answer, Answer::Eviction(EvictionReason::MalformedLogin));
        }
    });
}

#[test]
fn a_login_may_arrive_byte_by_byte() {
    on_every_connection(|node, id| {
        let mut client = Client::connect(node, id);
        let frame = client.frame(&login(USERNAME, PASSWORD));
        for byte in &frame[..frame.len() - 1] {
            node.send(client.connection, &[*byte]);
            assert!(node.frames(client.connection).is_empty());
        }
        let answer = client.exchange(node, &frame[frame.len() - 1..]);
        assert!(answer.result().is_ok());
    });
}

#[test]
fn a_body_that_is_not_what_its_checksum_says_is_denied_with_4() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        let mut frame = client.frame(&create_stream("orders")).to_vec();
        let last = frame.len() - 1;
        frame[last] ^= 1;
        let answer = client.exchange(node, &frame);
        assert_eq!(answer.code(), Some(ErrorCode::INVALID_FORMAT));
        let streams = client.ask(node, &Request::GetStreams);
        assert_eq!(streams.result(), Ok(Vec::new()));
    });
}

#[test]
fn an_unknown_code_is_denied_with_3_and_a_known_one_that_is_not_served_with_5() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        for code in [0, 2, 999, 60_000, u32::MAX] {
            let frame = client.command(code, b"");
            let answer = client.exchange(node, &frame);
            assert_eq!(answer.code(), Some(ErrorCode::INVALID_COMMAND), "{code}");
        }
        let flush = Request::FlushUnsavedBuffer(FlushUnsavedBuffer {
            stream: stream(),
            topic: stream(),
            partition_id: 0,
            fsync: true,
        });
        let answer = client.ask(node, &flush);
        assert_eq!(answer.code(), Some(ErrorCode::FEATURE_UNAVAILABLE));
        // A body that is no body of its command.
        let frame = client.command(Code::GetStream.number(), &[9, 9]);
        let answer = client.exchange(node, &frame);
        assert_eq!(answer.code(), Some(ErrorCode::INVALID_COMMAND));
    });
}

#[test]
fn a_write_of_another_session_or_client_is_fenced() {
    on_every_connection(|node, id| {
        let client = Client::log_in(node, id);
        let request = create_stream("orders");
        for session in [client.session + 1, client.session + 100] {
            let frame = client.numbered(&request, session, 1);
            let answer = client.exchange(node, &frame);
            assert_eq!(answer, Answer::Eviction(EvictionReason::SessionTooLow));
        }
        let other = Client {
            id: base::ClientId(99),
            ..client
        };
        let frame = other.numbered(&request, client.session, 1);
        let answer = client.exchange(node, &frame);
        assert_eq!(answer, Answer::Eviction(EvictionReason::SessionTooLow));
        // The connection's own session still stands.
        let frame = client.numbered(&request, client.session, 1);
        assert!(client.exchange(node, &frame).result().is_ok() || id == 2);
    });
}

#[test]
fn a_second_login_on_a_bound_connection_gives_the_same_session() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        let session = client.session;
        client.log_in_again(node);
        assert_eq!(client.session, session);
        let wrong = client.ask(node, &login(USERNAME, "wrong"));
        assert_eq!(wrong, Answer::Eviction(EvictionReason::InvalidCredentials));
        let answer = client.ask(node, &create_stream(&format!("stream-{id}")));
        assert!(answer.result().is_ok());
    });
}

#[test]
fn another_client_may_log_in_on_a_bound_connection() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        client.id = base::ClientId(id + 50);
        let session = client.session;
        client.log_in_again(node);
        assert_ne!(client.session, session);
        client.request = 0;
        let answer = client.ask(node, &create_stream(&format!("stream-{id}")));
        assert!(answer.result().is_ok());
    });
}

#[test]
fn a_logout_unbinds_the_connection() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        let answer = client.ask(node, &Request::Logout);
        assert_eq!(answer.result(), Ok(Vec::new()));
        let answer = client.ask(node, &Request::GetStreams);
        assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED));
        let answer = client.ask(node, &create_stream("orders"));
        assert_eq!(answer, Answer::Eviction(EvictionReason::NoSession));
        assert!(client.ask(node, &Request::Ping).result().is_ok());
        client.log_in_again(node);
        assert!(client.ask(node, &Request::GetStreams).result().is_ok());
    });
}

#[test]
fn a_client_that_logs_in_elsewhere_fences_its_old_connection() {
    on_one_and_two_shards(|node| {
        let mut old = Client::log_in(node, 1);
        let mut new = Client::log_in(node, 1);
        assert!(new.session > old.session);
        let answer = old.ask(node, &create_stream("orders"));
        assert_eq!(answer, Answer::Eviction(EvictionReason::NoSession));
        assert!(new.ask(node, &create_stream("orders")).result().is_ok());
    });
}

#[test]
fn a_login_overtaken_by_another_of_the_same_client_binds_nothing() {
    let node = &mut Node::new(1);
    let mut slow = Client::connect(node, 1);
    node.hold_logins = true;
    let frame = slow.frame(&login(USERNAME, PASSWORD));
    node.send(slow.connection, &frame);
    let mut fast = Client::connect(node, 1);
    let frame = fast.frame(&login(USERNAME, PASSWORD));
    node.send(fast.connection, &frame);
    // Both are verified in one turn, and their registers are committed by one write.
    node.let_go();
    let mut fenced = 0;
    for client in [&mut slow, &mut fast] {
        match client.take(node) {
            Answer::Eviction(reason) => {
                assert_eq!(reason, EvictionReason::SessionTooLow);
                let answer = client.ask(node, &Request::GetStreams);
                assert_eq!(answer.code(), Some(ErrorCode::UNAUTHENTICATED));
                fenced += 1;
            }
            answer => {
                let payload = answer.result().expect("a login");
                client.session = LoginRecord::decode(&payload).expect("a record").session;
                assert!(client.ask(node, &create_stream("orders")).result().is_ok());
            }
        }
    }
    assert_eq!(fenced, 1);
}

#[test]
fn cluster_metadata_names_this_node_as_the_leader_where_it_is_bound() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        let answer = client.ask(node, &Request::GetClusterMetadata);
        let body = answer.result().expect("served");
        let cluster = ClusterMetadata::decode(&body).expect("a roster");
        let [record] = cluster.nodes.0.as_slice() else {
            panic!("one node")
        };
        assert_eq!(record.ip, Text("127.0.0.1"));
        assert_eq!(record.tcp, CLIENT_PORT);
        assert_eq!(record.role, wire::NodeRole::Leader);
        assert_eq!(record.status, wire::NodeStatus::Healthy);
    });
}

#[test]
fn a_reply_echoes_what_the_client_may_look_at() {
    on_every_connection(|node, id| {
        let mut client = Client::log_in(node, id);
        let frame = client.frame(&create_stream(&format!("stream-{id}")));
        let asked = RequestHeader::decode(&frame).expect("a request");
        let Answer::Reply(header, _) = client.exchange(node, &frame) else {
            panic!("no eviction")
        };
        assert_eq!(header.operation, Operation::CreateStream);
        assert_eq!(header.request, asked.request);
        assert_eq!(header.request_checksum, asked.request_checksum);
        assert_eq!(header.commit, header.op);
        assert_eq!(frame.len() - HEADER_SIZE, asked.size as usize - HEADER_SIZE);
    });
}
