//! What `platform::network` promises of connections, once for both arms.

use conformance::{Place, Subject, both, noise};
use platform::{ConnectionId, Event, ListenerId, NetworkEvent};

both! {
    a_listener_without_a_port_is_told_one,
    every_dial_is_accepted_by_its_listener_under_a_fresh_id,
    bytes_arrive_in_order_whatever_the_room,
    both_directions_are_independent,
    every_send_is_told_once_with_its_size_in_order,
    bytes_sent_before_the_dial_is_answered_leave_after_it,
    one_that_does_not_read_withholds_sent,
    a_connection_that_stands_still_stops_no_other,
    a_close_delivers_what_was_queued_and_then_closes,
    the_end_is_told_only_to_one_who_asks,
    a_refused_dial_is_closed,
    nothing_follows_a_close,
    nothing_follows_a_close_of_a_dial,
    nothing_follows_closed,
    an_accepted_connection_is_not_read_before_it_is_asked,
    a_hand_over_keeps_every_byte_in_order,
    a_connection_handed_over_after_its_peer_closed_yields_its_bytes,
}

const NODE: Place = Place::First;
const PEER: Place = Place::Peer;

fn a_listener_without_a_port_is_told_one(subject: &mut Subject) {
    let client = subject.listen(NODE, ListenerId::CLIENT);
    let replica = subject.listen(NODE, ListenerId::REPLICA);
    assert!(client.port() != 0 && replica.port() != 0);
    assert!(client != replica);
    assert_eq!(client.ip(), replica.ip());
}

fn every_dial_is_accepted_by_its_listener_under_a_fresh_id(subject: &mut Subject) {
    let mut ids: Vec<ConnectionId> = vec![];
    for listener in [ListenerId::CLIENT, ListenerId::REPLICA] {
        let address = subject.listen(NODE, listener);
        let dials: Vec<ConnectionId> = (0..10).map(|_| subject.dial(address)).collect();
        for dialed in dials {
            subject.connected(dialed);
        }
        for _ in 0..10 {
            let (through, accepted, _) = subject.accepted();
            assert_eq!(through, listener);
            assert_eq!(accepted.0 & ConnectionId::DIALED, 0);
            assert!(!ids.contains(&accepted), "{accepted:?} is not fresh");
            ids.push(accepted);
        }
    }
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}

fn bytes_arrive_in_order_whatever_the_room(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    let bytes = noise(20_000, 1);
    for part in bytes.chunks(997) {
        subject.send(PEER, dialed, part);
    }
    let mut arrived = vec![];
    for room in [1, 2, 3, 255, 256, 257, 1_000].into_iter().cycle() {
        let size = room.min(bytes.len() - arrived.len());
        if size == 0 {
            break;
        }
        subject.ask(NODE, accepted, room);
        let more = subject.answer(NODE, accepted, room).expect("still open");
        assert!(more.len() <= room);
        arrived.extend(more);
    }
    assert!(arrived == bytes);
}

fn both_directions_are_independent(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    let (there, back) = (noise(9_000, 2), noise(7_000, 3));
    for (one, other) in there.chunks(900).zip(back.chunks(700)) {
        subject.send(PEER, dialed, one);
        subject.send(NODE, accepted, other);
    }
    // The node reads only after the peer has read everything.
    assert!(subject.receive(PEER, dialed, (7_000, 512)) == back);
    assert!(subject.receive(NODE, accepted, (9_000, 512)) == there);
}

fn every_send_is_told_once_with_its_size_in_order(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    // More than the kernel takes at once, and some of nothing.
    let parts: Vec<Vec<u8>> = (0..1_500).map(|seed| noise(seed % 40, 4)).collect();
    for part in &parts {
        subject.send(NODE, accepted, part);
    }
    let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
    assert_eq!(subject.sent(NODE, accepted, parts.len()), sizes);
    let all = parts.concat();
    assert!(subject.receive(PEER, dialed, (all.len(), 4_096)) == all);
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}

fn bytes_sent_before_the_dial_is_answered_leave_after_it(subject: &mut Subject) {
    let address = subject.listen(NODE, ListenerId::REPLICA);
    let dialed = subject.dial(address);
    subject.send(PEER, dialed, b"hel");
    subject.send(PEER, dialed, b"lo");
    subject.connected(dialed);
    assert_eq!(subject.sent(PEER, dialed, 2), [3, 2]);
    let (_, accepted, _) = subject.accepted();
    assert_eq!(subject.receive(NODE, accepted, (5, 256)), b"hello");
}

fn sent(events: &[(Place, Event)]) -> usize {
    let told = |event: &Event| matches!(event, Event::Network(NetworkEvent::Sent { .. }));
    events.iter().filter(|(_, event)| told(event)).count()
}

fn one_that_does_not_read_withholds_sent(subject: &mut Subject) {
    // More than any kernel buffers.
    const COUNT: usize = 64;
    const SIZE: usize = 1 << 20;
    let (dialed, accepted) = subject.pair();
    let mut part = noise(SIZE, 5);
    for number in 0..COUNT {
        part[..8].copy_from_slice(&number.to_be_bytes());
        subject.send(PEER, dialed, &part);
    }
    let early = sent(&subject.rest());
    assert!(early < COUNT, "nobody has read, all are told sent");
    for number in 0..COUNT {
        part[..8].copy_from_slice(&number.to_be_bytes());
        assert!(subject.receive(NODE, accepted, (SIZE, SIZE)) == part);
    }
    let late = subject.sent(PEER, dialed, COUNT - early);
    assert!(late.iter().all(|&size| size == SIZE));
}

fn a_connection_that_stands_still_stops_no_other(subject: &mut Subject) {
    let address = subject.listen(NODE, ListenerId::CLIENT);
    let still = subject.another(address);
    let lively = subject.another(address);
    for _ in 0..64 {
        subject.send(PEER, still.0, &[1; 1 << 20]);
    }
    subject.ask(PEER, still.0, 256);
    for round in 0..20 {
        let (there, back) = (noise(600, round), noise(300, round));
        subject.send(PEER, lively.0, &there);
        assert!(subject.receive(NODE, lively.1, (600, 256)) == there);
        subject.send(NODE, lively.1, &back);
        assert!(subject.receive(PEER, lively.0, (300, 256)) == back);
    }
    // One closes, the other goes on.
    subject.close(NODE, lively.1);
    assert!(subject.receive_all(PEER, lively.0, 256).is_empty());
    subject.send(NODE, still.1, b"still here");
    let answer = subject.answer(PEER, still.0, 256).expect("open");
    assert!(b"still here".starts_with(&answer));
}

fn a_close_delivers_what_was_queued_and_then_closes(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    // What the node has not read must not cost it what it says last.
    subject.send(PEER, dialed, &noise(3_000, 6));
    subject.receive(NODE, accepted, (100, 100));
    let parts: Vec<Vec<u8>> = (0..50).map(|seed| noise(20_000, seed)).collect();
    for part in &parts {
        subject.send(NODE, accepted, part);
    }
    subject.close(NODE, accepted);
    assert!(subject.receive_all(PEER, dialed, 50_000) == parts.concat());
}

fn the_end_is_told_only_to_one_who_asks(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    subject.close(PEER, dialed);
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
    subject.ask(NODE, accepted, 256);
    assert_eq!(subject.answer(NODE, accepted, 256), None);
}

fn a_refused_dial_is_closed(subject: &mut Subject) {
    let dialed = subject.dial(subject.nowhere());
    subject.until(PEER, |event| match event {
        NetworkEvent::Closed { connection } => (*connection == dialed).then_some(()),
        other => panic!("{other:?}"),
    });
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}

fn nothing_follows_a_close(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    subject.ask(NODE, accepted, 256);
    subject.send(NODE, accepted, b"last");
    subject.send(PEER, dialed, b"on its way");
    assert!(subject.sent(PEER, dialed, 1) == [10]);
    // What has happened and was not told yet is not told any more.
    subject.send(NODE, accepted, b" words");
    subject.close(NODE, accepted);
    let before = subject.seen();
    // Bytes that reach a closed side may end the other early: the end of the stream may be lost.
    let told = subject.receive_all(PEER, dialed, 256);
    assert!(b"last words".starts_with(&told), "{told:?}");
    let rest = subject.rest();
    let about_it = rest.iter().filter(|(place, _)| *place == NODE).count();
    assert_eq!(about_it, before, "{rest:?}");
    // Effects that cross the end are ignored.
    subject.send(NODE, accepted, b"ignored");
    subject.close(NODE, accepted);
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}

fn nothing_follows_a_close_of_a_dial(subject: &mut Subject) {
    let address = subject.listen(NODE, ListenerId::CLIENT);
    for address in [address, subject.nowhere()] {
        let dialed = subject.dial(address);
        subject.send(PEER, dialed, b"never told");
        subject.close(PEER, dialed);
        let rest = subject.rest();
        let at_peer = rest.iter().any(|(place, _)| *place == PEER);
        assert!(!at_peer, "{rest:?}");
    }
}

fn nothing_follows_closed(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    subject.close(PEER, dialed);
    assert!(subject.receive_all(NODE, accepted, 256).is_empty());
    // The shard cannot have known yet when it said these.
    subject.send(NODE, accepted, b"too late");
    subject.ask(NODE, accepted, 256);
    subject.close(NODE, accepted);
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}

fn an_accepted_connection_is_not_read_before_it_is_asked(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    subject.send(PEER, dialed, b"one");
    assert_eq!(subject.sent(PEER, dialed, 1), [3]);
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(subject.receive(NODE, accepted, (3, 256)), b"one");
    // One answer per ask.
    subject.send(PEER, dialed, b"two");
    assert_eq!(subject.sent(PEER, dialed, 1), [3]);
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}

fn a_hand_over_keeps_every_byte_in_order(subject: &mut Subject) {
    let address = subject.listen(NODE, ListenerId::CLIENT);
    let dialed = subject.dial(address);
    subject.connected(dialed);
    let (_, accepted, peer) = subject.accepted();
    let bytes = noise(5_000, 7);
    subject.send(PEER, dialed, &bytes[..3_000]);
    let read = subject.receive(NODE, accepted, (700, 256));
    // The first 500 are consumed; the rest goes along, and more is on its way.
    assert!(read == bytes[..700]);
    subject.hand_over(accepted, &read[500..]);
    subject.send(PEER, dialed, &bytes[3_000..]);
    let (told, mut arrived) = subject.adopted(accepted);
    assert_eq!(told, peer);
    assert!(arrived == bytes[500..700]);
    arrived.extend(subject.receive(Place::Second, accepted, (4_300, 256)));
    assert!(arrived == bytes[500..]);
    // It answers as before, under the same name.
    subject.send(Place::Second, accepted, b"answer");
    assert_eq!(subject.sent(Place::Second, accepted, 1), [6]);
    assert_eq!(subject.receive(PEER, dialed, (6, 256)), b"answer");
    subject.close(Place::Second, accepted);
    assert!(subject.receive_all(PEER, dialed, 256).is_empty());
    let rest = subject.rest();
    assert!(rest.iter().all(|(place, _)| *place == PEER), "{rest:?}");
}

fn a_connection_handed_over_after_its_peer_closed_yields_its_bytes(subject: &mut Subject) {
    let (dialed, accepted) = subject.pair();
    subject.send(PEER, dialed, b"login and go");
    subject.close(PEER, dialed);
    let read = subject.receive(NODE, accepted, (5, 5));
    assert_eq!(read, b"login");
    subject.hand_over(accepted, &read);
    assert_eq!(subject.adopted(accepted).1, b"login");
    assert_eq!(
        subject.receive_all(Place::Second, accepted, 256),
        b" and go"
    );
    let rest = subject.rest();
    assert!(rest.is_empty(), "{rest:?}");
}
