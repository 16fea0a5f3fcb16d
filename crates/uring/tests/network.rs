//! What `platform::network` says of connections, against plain sockets of the standard library.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use harness::{Body, body, noise};
use platform::{ConnectionId, Effect, Event, ListenerId, NetworkEvent};

/// A body that has accepted one plain client.
fn pair() -> (Body, harness::Directory, ConnectionId, TcpStream) {
    let (mut body, directory) = body();
    let address = body.listen(ListenerId::CLIENT);
    let client = TcpStream::connect(address).unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let connection = body.accepted();
    (body, directory, connection, client)
}

/// Reads until the end while the body goes on turning.
fn read_to_end(body: &mut Body, client: TcpStream) -> Vec<u8> {
    let reader = thread::spawn(move || {
        let (mut client, mut bytes) = (client, vec![]);
        client.read_to_end(&mut bytes).unwrap();
        bytes
    });
    while !reader.is_finished() {
        body.turn(Duration::from_millis(5));
    }
    reader.join().unwrap()
}

#[test]
fn fragments_are_echoed_in_order() {
    let (mut body, _directory, connection, mut client) = pair();
    let bytes = noise(5_000, 1);
    let writer = {
        let (mut client, bytes) = (client.try_clone().unwrap(), bytes.clone());
        thread::spawn(move || {
            bytes
                .chunks(97)
                .for_each(|part| client.write_all(part).unwrap())
        })
    };
    let mut echoed = 0;
    while echoed < bytes.len() {
        body.receive(connection, 256);
        let part = body.received(connection);
        assert!(!part.is_empty());
        echoed += part.len();
        body.send(connection, &part);
        assert_eq!(body.sent(connection, 1), [part.len()]);
    }
    writer.join().unwrap();
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(back, bytes);
}

#[test]
fn a_silent_peer_is_asked_for_signs_of_life() {
    let (_body, _directory, _connection, client) = pair();
    let client_port = format!(":{:04X}", client.local_addr().unwrap().port());
    let server_port = format!(":{:04X}", client.peer_addr().unwrap().port());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let accepted = sockets.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields[1].ends_with(&server_port) && fields[2].ends_with(&client_port);
        is_ours.then(|| fields[5].to_owned())
    });
    // Timer 2 is the one of keepalive.
    assert!(accepted.unwrap().starts_with("02:"));
}

#[test]
fn accepted_connections_get_ids_of_their_shard_and_keep_coming() {
    let (mut body, _directory) = body();
    let address = body.listen(ListenerId::REPLICA);
    let clients: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    for count in 1..=20 {
        assert_eq!(body.accepted(), ConnectionId(count));
    }
    assert!(
        clients
            .iter()
            .all(|client| client.peer_addr().unwrap() == address)
    );
}

#[test]
fn queued_sends_leave_in_order_and_each_is_told() {
    let (mut body, _directory, connection, client) = pair();
    let parts: Vec<Vec<u8>> = (0..3_000)
        .map(|seed| noise(seed % 50, seed as u64))
        .collect();
    for part in &parts {
        body.send(connection, part);
    }
    let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
    assert_eq!(body.sent(connection, parts.len()), sizes);
    body.execute(Effect::Close { connection });
    assert_eq!(read_to_end(&mut body, client), parts.concat());
}

#[test]
fn a_frame_of_8_mib_passes_a_slow_reader_whole() {
    let (mut body, _directory, connection, client) = pair();
    let frame = noise(8 << 20, 4);
    body.send(connection, &frame);
    body.send(connection, b"end");
    let reader = thread::spawn(move || {
        let (mut client, mut bytes) = (client, vec![0; (8 << 20) + 3]);
        for part in bytes.chunks_mut(1 << 20) {
            // tidy: allow — the reader is slow on purpose; nothing waits for this.
            // tidy: allow — the reader is to be slow
            thread::sleep(Duration::from_millis(2));
            client.read_exact(part).unwrap();
        }
        bytes
    });
    assert_eq!(body.sent(connection, 2), [8 << 20, 3]);
    let bytes = reader.join().unwrap();
    assert!(bytes[..8 << 20] == frame && &bytes[8 << 20..] == b"end");
}

#[test]
fn a_frame_of_8_mib_is_received_into_one_buffer() {
    let (mut body, _directory, connection, mut client) = pair();
    let frame = noise(8 << 20, 5);
    let writer = {
        let frame = frame.clone();
        thread::spawn(move || client.write_all(&frame).map(|()| client).unwrap())
    };
    let mut buffer = base::Buffer::with_capacity(8 << 20);
    while buffer.len() < 8 << 20 {
        body.execute(Effect::Receive { connection, buffer });
        let pick = |event: &Event| matches!(event, Event::Network(NetworkEvent::Received { .. }));
        buffer = body.until(pick, |event| match event {
            Event::Network(NetworkEvent::Received { buffer, .. }) => buffer,
            _ => unreachable!(),
        });
    }
    assert!(buffer.as_slice() == frame);
    drop(writer.join().unwrap());
}

#[test]
fn a_peer_that_shuts_its_side_still_gets_what_was_queued() {
    let (mut body, _directory, connection, client) = pair();
    let reply = noise(1 << 20, 6);
    body.receive(connection, 256);
    body.send(connection, &reply);
    client.shutdown(Shutdown::Write).unwrap();
    body.closed(connection);
    // The shard must not be told more, nor be heard.
    body.send(connection, b"too late");
    assert_eq!(read_to_end(&mut body, client), reply);
    let about = |event: &Event| matches!(event, Event::Network(_));
    body.turn(Duration::ZERO);
    assert!(
        !body.seen.iter().any(
            |event| about(event) && !matches!(event, Event::Network(NetworkEvent::Sent { .. }))
        )
    );
}

#[test]
fn a_close_sends_the_last_reply_though_the_peer_has_unread_bytes_on_the_way() {
    let (mut body, _directory, connection, mut client) = pair();
    client.write_all(&noise(300_000, 7)).unwrap();
    body.receive(connection, 256);
    body.received(connection);
    body.receive(connection, 256);
    body.send(connection, b"goodbye");
    body.execute(Effect::Close { connection });
    body.seen.clear();
    assert_eq!(
        read_to_end(&mut body, client),
        b"goodbye",
        "no reset before the reply"
    );
    assert!(
        body.seen.is_empty(),
        "nothing follows a close: {:?}",
        body.seen
    );
}

#[test]
fn a_close_does_not_wait_longer_than_the_grace_for_a_peer_that_does_not_read() {
    let grace = Duration::from_millis(50);
    let options = uring::Options {
        close_grace: grace,
        ..uring::Options::default()
    };
    let mut all = harness::bodies(1, 16, &options);
    let mut body = all.bodies.remove(0);
    let address = body.listen(ListenerId::CLIENT);
    let mut client = TcpStream::connect(address).unwrap();
    let connection = body.accepted();
    body.send(connection, &noise(64 << 20, 8));
    body.execute(Effect::Close { connection });
    // Turn until the grace is over; then the socket is gone and the peer finds the stream cut.
    let end = body.ring.now().monotonic + grace * 4;
    while body.ring.now().monotonic < end {
        body.turn(Duration::from_millis(10));
    }
    let mut bytes = vec![];
    let cut = client.read_to_end(&mut bytes);
    assert!(
        cut.is_err() || bytes.len() < 64 << 20,
        "{cut:?} after {}",
        bytes.len()
    );
}

#[test]
fn a_reset_is_told_once() {
    let (mut body, _directory, connection, client) = pair();
    body.receive(connection, 256);
    // Bytes that the client leaves unread make its close a reset.
    body.send(connection, b"unread");
    body.sent(connection, 1);
    drop(client);
    body.closed(connection);
    body.send(connection, b"ignored");
    body.receive(connection, 256);
    body.execute(Effect::Close { connection });
    body.turn(Duration::from_millis(20));
    assert!(body.seen.is_empty(), "{:?}", body.seen);
}

#[test]
fn a_dial_connects_or_is_told_closed() {
    let (mut body, _directory) = body();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connection = ConnectionId::dialed(base::ShardIndex(0), 1);
    body.execute(Effect::Connect {
        connection,
        address,
    });
    body.send(connection, b"hello");
    body.network(|event| match event {
        NetworkEvent::Connected { connection } => Some(*connection),
        _ => None,
    });
    let (mut peer, _) = listener.accept().unwrap();
    body.sent(connection, 1);
    let mut bytes = [0; 5];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");

    drop(listener);
    let refused = ConnectionId::dialed(base::ShardIndex(0), 2);
    body.execute(Effect::Connect {
        connection: refused,
        address,
    });
    body.closed(refused);
}

#[test]
fn a_close_while_dialing_is_silent() {
    let (mut body, _directory) = body();
    // A network that answers nothing: TEST-NET-1.
    let address = "192.0.2.1:9".parse().unwrap();
    let connection = ConnectionId::dialed(base::ShardIndex(0), 1);
    body.execute(Effect::Connect {
        connection,
        address,
    });
    body.turn(Duration::from_millis(1));
    body.seen.clear();
    body.execute(Effect::Close { connection });
    body.turn(Duration::from_millis(20));
    assert!(body.seen.is_empty(), "{:?}", body.seen);
}

#[test]
fn an_address_in_use_halts_the_shard() {
    let (mut body, _directory) = body();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    body.execute(Effect::Listen {
        listener: ListenerId::CLIENT,
        address,
    });
    assert_eq!(
        body.ring.exit(),
        Some(uring::Exit::Halted(platform::Fatal::Bind))
    );
}

#[test]
fn effects_for_unknown_connections_are_ignored() {
    let (mut body, _directory) = body();
    let connection = ConnectionId(99);
    body.receive(connection, 256);
    body.send(connection, b"x");
    body.execute(Effect::Close { connection });
    body.turn(Duration::ZERO);
    assert!(body.seen.is_empty());
    assert!(TcpStream::connect("127.0.0.1:1").is_err_and(|e| e.kind() != ErrorKind::TimedOut));
}
