//! The network alone: order, pieces, pressure, cuts, resets and silence.

use super::*;

/// Two hosts, one connection, and the timers of the network.
struct Harness {
    network: Network,
    now: u64,
    timers: Vec<(u64, NetworkTimer)>,
    events: Vec<(Host, NetworkEvent)>,
    server: ConnectionId,
}

const EVERYWHERE: (u64, u64) = (u64::MAX, u64::MAX);

const DIALED: ConnectionId = ConnectionId(ConnectionId::DIALED);

impl Harness {
    fn new(seed: u64, speed: NetworkSpeed) -> Self {
        let network = Network::new(seed, 2, speed);
        let server = ConnectionId(0);
        let mut harness = Self {
            network,
            now: 0,
            timers: Vec::new(),
            events: Vec::new(),
            server,
        };
        let mut out = Vec::new();
        let address = address_of(1, 90);
        harness
            .network
            .listen(1, 0, ListenerId::REPLICA, address, &mut out);
        harness.network.connect(0, 0, 0, DIALED, address, &mut out);
        harness.take(out);
        harness
    }

    fn connected(seed: u64, speed: NetworkSpeed) -> Self {
        let mut harness = Self::new(seed, speed);
        harness.run(1_000_000);
        for (_, event) in &harness.events {
            if let NetworkEvent::Accepted { connection, .. } = event {
                harness.server = *connection;
            }
        }
        harness.events.clear();
        harness
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Timer { at, timer } => self.timers.push((at, timer)),
                Output::Event { host, event, .. } => self.events.push((host, event)),
            }
        }
    }

    fn run(&mut self, micros: u64) {
        let end = self.now + micros;
        loop {
            let next = self
                .timers
                .iter()
                .enumerate()
                .min_by_key(|(index, (at, _))| (*at, *index));
            let Some((index, &(at, timer))) = next else {
                break;
            };
            if at > end {
                break;
            }
            self.timers.remove(index);
            self.now = self.now.max(at);
            let mut out = Vec::new();
            self.network.on_timer(self.now, timer, &mut out);
            self.take(out);
        }
        self.now = end;
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut out = Vec::new();
        self.network
            .send(self.now, 0, DIALED, Bytes::copy_of(bytes), &mut out);
        self.take(out);
    }

    fn receive(&mut self) {
        let mut out = Vec::new();
        let buffer = Buffer::with_capacity(256);
        self.network
            .receive(self.now, 1, self.server, buffer, &mut out);
        self.take(out);
    }

    /// Bytes received by the server until nothing comes any more.
    fn drain(&mut self) -> (Vec<u8>, usize) {
        let (mut all, mut pieces) = (Vec::new(), 0);
        self.receive();
        loop {
            self.run(1_000_000);
            let mut more = false;
            for (_, event) in std::mem::take(&mut self.events) {
                if let NetworkEvent::Received { buffer, .. } = event {
                    all.extend_from_slice(buffer.as_slice());
                    pieces += 1;
                    more = true;
                }
            }
            if !more {
                return (all, pieces);
            }
            self.receive();
        }
    }

    fn closed(&self, host: Host) -> bool {
        let closed = |event: &NetworkEvent| matches!(event, NetworkEvent::Closed { .. });
        self.events
            .iter()
            .any(|(at, event)| *at == host && closed(event))
    }

    fn sent(&self) -> usize {
        let sent = |event: &NetworkEvent| matches!(event, NetworkEvent::Sent { .. });
        self.events.iter().filter(|(_, event)| sent(event)).count()
    }
}

#[test]
fn bytes_arrive_in_order_whatever_the_pieces() {
    let speed = NetworkSpeed {
        fragment_one_in: 2,
        ..NetworkSpeed::default()
    };
    let mut harness = Harness::connected(1, speed);
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    for chunk in bytes.chunks(700) {
        harness.send(chunk);
    }
    let (all, pieces) = harness.drain();
    assert_eq!(all, bytes);
    assert!(pieces > 20, "{pieces}");
}

#[test]
fn sent_is_withheld_from_one_whose_peer_does_not_read() {
    let speed = NetworkSpeed {
        window: 1000,
        ..NetworkSpeed::default()
    };
    let mut harness = Harness::connected(1, speed);
    for _ in 0..20 {
        harness.send(&[1; 200]);
    }
    harness.run(10_000_000);
    assert_eq!(harness.sent(), 5);
    let (all, _) = harness.drain();
    assert_eq!(all.len(), 4000);
}

#[test]
fn a_cut_stalls_one_direction_and_healing_moves_it_on() {
    let speed = NetworkSpeed {
        fragment_one_in: 0,
        ..NetworkSpeed::default()
    };
    let mut harness = Harness::connected(1, speed);
    harness.network.cut(1 << 0, 1 << 1);
    harness.send(b"late");
    let (all, _) = harness.drain();
    assert!(all.is_empty());
    let mut out = Vec::new();
    harness.network.heal(harness.now, EVERYWHERE, &mut out);
    harness.take(out);
    harness.run(1_000_000);
    let late = |event: &NetworkEvent| match event {
        NetworkEvent::Received { buffer, .. } => buffer.as_slice() == b"late",
        _ => false,
    };
    assert!(
        harness
            .events
            .iter()
            .any(|(host, event)| *host == 1 && late(event))
    );
}

#[test]
fn a_dial_into_a_cut_is_given_up_and_into_nothing_is_refused() {
    let mut harness = Harness::new(1, NetworkSpeed::default());
    harness.network.cut(1 << 1, 1 << 0);
    harness.run(2_000_000);
    assert!(!harness.closed(0));
    harness.run(20_000_000);
    assert!(harness.closed(0));

    let mut harness = Harness::new(2, NetworkSpeed::default());
    let mut out = Vec::new();
    harness.network.crash(0, 1, &mut out);
    harness.run(100_000);
    assert!(harness.closed(0));
}

#[test]
fn a_reset_loses_what_is_in_flight_and_tells_both() {
    let mut harness = Harness::connected(1, NetworkSpeed::default());
    harness.send(&[1; 100]);
    let mut out = Vec::new();
    harness.network.reset_one(harness.now, 7, &mut out);
    harness.take(out);
    harness.run(1_000_000);
    assert!(harness.closed(0) && harness.closed(1));
}

#[test]
fn a_crashed_process_is_noticed_and_a_dead_machine_is_not() {
    for seed in 0..20 {
        let mut harness = Harness::connected(seed, NetworkSpeed::default());
        let mut out = Vec::new();
        harness
            .network
            .receive(harness.now, 0, DIALED, Buffer::with_capacity(256), &mut out);
        harness.network.crash(harness.now, 1, &mut out);
        harness.take(out);
        harness.run(1_000_000);
        assert!(harness.closed(0));

        let mut harness = Harness::connected(seed, NetworkSpeed::default());
        let mut out = Vec::new();
        harness.network.power_off(harness.now, 1, &mut out);
        harness.take(out);
        harness.send(b"into the void");
        harness.run(30_000_000);
        assert!(!harness.closed(0));
        assert_eq!(harness.sent(), 1);
        harness.network.power_on(1);
        harness.send(b"anybody?");
        harness.run(1_000_000);
        assert!(harness.closed(0), "a rebooted kernel answers with reset");
    }
}

#[test]
fn closing_delivers_what_was_sent_before() {
    let mut harness = Harness::connected(1, NetworkSpeed::default());
    harness.send(b"last words");
    let mut out = Vec::new();
    harness.network.close(harness.now, 0, DIALED, &mut out);
    harness.take(out);
    harness.receive();
    harness.run(1_000_000);
    let last = harness.events.iter().any(
        |(_, event)| matches!(event, NetworkEvent::Received { buffer, .. } if !buffer.is_empty()),
    );
    assert!(last);
    harness.drain();
    harness.receive();
    harness.run(1_000_000);
    assert!(harness.network.connections.is_empty() || harness.closed(1));
}

#[test]
fn a_reset_leaves_a_piece_of_what_was_on_its_way() {
    let mut cut_short = 0;
    for seed in 0..40 {
        let mut harness = Harness::connected(seed, NetworkSpeed::default());
        harness.receive();
        harness.send(&[1; 100]);
        let mut out = Vec::new();
        harness.network.reset_one(harness.now, seed, &mut out);
        harness.take(out);
        harness.run(1_000_000);
        assert!(harness.closed(0) && harness.closed(1));
        let received = harness.events.iter().find_map(|(_, event)| match event {
            NetworkEvent::Received { buffer, .. } => Some(buffer.len()),
            _ => None,
        });
        cut_short += u32::from(received.is_some_and(|size| size < 100));
    }
    assert!(cut_short > 10, "{cut_short}");
}

#[test]
fn who_is_left_of_a_forgotten_connection_reads_on_and_hears_nothing_more() {
    let mut harness = Harness::connected(1, NetworkSpeed::default());
    harness.send(b"still on its way");
    let mut out = Vec::new();
    harness.network.forget_one(harness.now, 0, &mut out);
    harness.take(out);
    assert!(harness.closed(0), "the dialer is told");
    let (all, _) = harness.drain();
    assert_eq!(all, b"still on its way");
    let mut out = Vec::new();
    let bytes = Bytes::copy_of(b"into the void");
    harness
        .network
        .send(harness.now, 1, harness.server, bytes, &mut out);
    harness.take(out);
    harness.run(20_000_000);
    assert!(!harness.closed(1), "nobody tells it");
    harness.run(60_000_000);
    assert!(harness.closed(1), "its kernel has asked in vain");
}

#[test]
fn damaged_bytes_arrive_and_are_remembered() {
    let mut harness = Harness::connected(1, NetworkSpeed::default());
    harness.network.damage((1 << 0, 1 << 1), Damage::Flip, 77);
    harness.send(&[1; 100]);
    let (all, _) = harness.drain();
    assert!(all.len() == 100 && all != [1; 100]);
    assert_eq!(harness.network.damaged_and_open(), 1);
    let mut out = Vec::new();
    harness.network.close(harness.now, 0, DIALED, &mut out);
    assert_eq!(harness.network.damaged_and_open(), 0);
}

#[test]
fn a_slow_way_delivers_in_its_own_time() {
    let mut harness = Harness::connected(1, NetworkSpeed::default());
    let slowness = Slowness {
        bytes_per_second: 1000,
        ..Slowness::default()
    };
    harness
        .network
        .slow_down(harness.now, (1 << 0, 1 << 1), slowness);
    for _ in 0..5 {
        harness.send(&[1; 1000]);
    }
    harness.receive();
    harness.run(900_000);
    let received = |harness: &Harness| {
        let received = |event: &NetworkEvent| matches!(event, NetworkEvent::Received { .. });
        let mut events = harness.events.iter();
        events.any(|(_, event)| received(event))
    };
    assert!(!received(&harness));
    harness.run(200_000);
    assert!(received(&harness));
}
