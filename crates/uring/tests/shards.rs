//! What passes between shards, and the loop that runs them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod harness;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc::channel,
    time::Duration,
};

use base::{Bytes, Instant, ShardIndex, View};
use harness::{Directory, bodies};
use platform::{
    Effect, Event, Fatal, Letter, ListenerId, NetworkEvent, Now, Outbox, Outcome, SecretText,
    Token, Work,
};
use uring::{Exit, Logic, Options, Report, mesh, spawn};

fn view(number: u32) -> Letter {
    Letter::MetadataView { view: View(number) }
}

fn view_of(event: &Event) -> Option<u32> {
    match event {
        Event::Letter {
            letter: Letter::MetadataView { view },
            ..
        } => Some(view.0),
        _ => None,
    }
}

#[test]
fn a_connection_moves_to_another_ring_with_its_unread_bytes() {
    let mut all = bodies(2, 16, &Options::default());
    let [first, second] = &mut all.bodies[..] else {
        panic!()
    };
    let address = first.listen(ListenerId::CLIENT);
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"login").unwrap();
    let connection = first.accepted();
    first.receive(connection, 256);
    let received = first.received(connection);

    let received = Bytes::copy_of(&received);
    let (to, listener) = (ShardIndex(1), ListenerId::CLIENT);
    first.execute(Effect::HandOver {
        connection,
        to,
        received,
        listener,
    });
    first.turn(Duration::ZERO);
    let adopted = second.network(|event| match event {
        NetworkEvent::Adopted {
            connection,
            peer,
            received,
            listener: ListenerId::CLIENT,
        } => {
            assert_eq!(*peer, client.local_addr().unwrap());
            assert_eq!(**received, *b"login");
            Some(*connection)
        }
        _ => None,
    });
    assert_eq!(adopted, connection, "it keeps its name");
    // The first ring has forgotten it, the second serves it.
    first.send(connection, b"wrong");
    first.turn(Duration::ZERO);
    second.send(connection, b"right");
    second.sent(connection, 1);
    let mut bytes = [0; 5];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"right");
    client.write_all(b"more").unwrap();
    second.receive(connection, 256);
    assert_eq!(second.received(connection), b"more");
}

#[test]
fn letters_arrive_in_order_whatever_the_queue_holds() {
    let mut all = bodies(2, 4, &Options::default());
    let [first, second] = &mut all.bodies[..] else {
        panic!()
    };
    for number in 0..100 {
        first.execute(Effect::Post {
            to: ShardIndex(1),
            letter: view(number),
        });
    }
    let mut arrived = vec![];
    while arrived.len() < 100 {
        first.turn(Duration::ZERO);
        second.turn(Duration::ZERO);
        for event in second.seen.drain(..) {
            assert!(matches!(
                event,
                Event::Letter {
                    from: ShardIndex(0),
                    ..
                }
            ));
            arrived.extend(view_of(&event));
        }
    }
    assert_eq!(arrived, (0..100).collect::<Vec<u32>>());
    assert!(first.seen.is_empty());
}

#[test]
fn clients_wait_while_a_queue_is_full_and_replicas_do_not() {
    let mut all = bodies(2, 2, &Options::default());
    let [first, second] = &mut all.bodies[..] else {
        panic!()
    };
    let mut connect = |listener| {
        let mut peer = TcpStream::connect(first.listen(listener)).unwrap();
        peer.write_all(b"x").unwrap();
        (first.accepted(), peer)
    };
    let (client, _client) = connect(ListenerId::CLIENT);
    let (replica, _replica) = connect(ListenerId::REPLICA);
    for number in 0..3 {
        first.execute(Effect::Post {
            to: ShardIndex(1),
            letter: view(number),
        });
    }
    first.receive(client, 256);
    first.receive(replica, 256);
    assert_eq!(first.received(replica), b"x");
    first.turn(Duration::from_millis(30));
    assert!(
        first.seen.is_empty(),
        "the client's bytes stay in its socket: {:?}",
        first.seen
    );
    // Room is made: the sleeping sender is woken and reads on.
    second.turn(Duration::ZERO);
    assert_eq!(first.received(client), b"x");
}

#[test]
fn a_deadline_never_comes_early() {
    let mut all = bodies(1, 2, &Options::default());
    let ring = &mut all.bodies[0].ring;
    for micros in [0, 1, 150, 999, 5_000, 20_001] {
        let deadline = ring.now().monotonic + Duration::from_micros(micros);
        ring.wait(Some(deadline)).unwrap();
        assert!(ring.now().monotonic >= deadline);
        assert!(ring.next_event().is_none());
    }
}

#[test]
fn a_password_is_verified_off_the_turn() {
    let mut all = bodies(1, 2, &Options::default());
    let body = &mut all.bodies[0];
    let hash = uring::hash_password("secret").unwrap();
    for (request, password) in [(1, "secret"), (2, "wrong")] {
        let token = Token { owner: 3, request };
        let work = Work::VerifyPassword {
            password: SecretText(password.into()),
            hash: SecretText(hash.clone()),
        };
        body.execute(Effect::Compute { token, work });
    }
    let is_computed = |event: &Event| matches!(event, Event::Computed { .. });
    for (request, verified) in [(1, true), (2, false)] {
        let (token, outcome) = body.until(is_computed, |event| match event {
            Event::Computed { token, outcome } => (token, outcome),
            _ => unreachable!(),
        });
        assert_eq!(token, Token { owner: 3, request });
        assert_eq!(outcome, Outcome::PasswordVerified(verified));
    }
}

/// Counts letters around a ring of shards; shard 0 starts and stops it.
struct Relay {
    shard: u16,
    shards: u16,
    stops: u32,
    timer: Option<Instant>,
}

const HOPS: u32 = 2_000;

impl Relay {
    fn start(shard: u16, shards: u16, now: Now, out: &mut Outbox) -> Self {
        if shard == 0 {
            out.push(Effect::Post {
                to: ShardIndex(1 % shards),
                letter: view(1),
            });
        }
        Self {
            shard,
            shards,
            stops: 0,
            timer: Some(now.monotonic + Duration::from_millis(1)),
        }
    }
}

impl Logic for Relay {
    fn on_event(&mut self, _now: Now, event: Event, out: &mut Outbox) {
        match view_of(&event) {
            Some(HOPS) => out.push(Effect::Ready),
            Some(number) => {
                let to = ShardIndex((self.shard + 1) % self.shards);
                out.push(Effect::Post {
                    to,
                    letter: view(number + 1),
                });
            }
            None => {}
        }
        if matches!(event, Event::Stop) {
            self.stops += 1;
            assert_eq!(self.stops, 1);
            out.push(Effect::Stopped);
        }
    }

    fn on_timers(&mut self, now: Now, _out: &mut Outbox) {
        self.timer.take_if(|timer| *timer <= now.monotonic);
    }

    fn deadline(&self) -> Option<Instant> {
        self.timer
    }
}

#[test]
fn shards_on_threads_wake_each_other_and_stop() {
    let directory = Directory::new();
    let (sender, reports) = channel();
    let (ports, stopper) = mesh(3, 8, &sender, ()).unwrap();
    let threads: Vec<_> = (0..)
        .zip(ports)
        .map(|(shard, port)| {
            let start = move |now, out: &mut Outbox| Relay::start(shard, 3, now, out);
            spawn(port, directory.0.clone(), Options::default(), start).unwrap()
        })
        .collect();
    assert!(matches!(reports.recv().unwrap(), Report::Ready { .. }));
    stopper.stop();
    let mut ended: Vec<u16> = (0..3)
        .map(|_| match reports.recv().unwrap() {
            Report::Ended {
                shard,
                exit: Exit::Stopped,
            } => shard.0,
            other => panic!("{other:?}"),
        })
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2]);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Ends in the way it is told to at once.
struct Doomed;

impl Logic for Doomed {
    fn on_event(&mut self, _now: Now, _event: Event, _out: &mut Outbox) {}
    fn on_timers(&mut self, _now: Now, _out: &mut Outbox) {
        panic!("a bug, for the test");
    }
    fn deadline(&self) -> Option<Instant> {
        Some(Instant::ZERO)
    }
}

#[test]
fn a_halt_and_a_panic_are_reported() {
    let directory = Directory::new();
    let (sender, reports) = channel();
    let (mut ports, _stopper) = mesh(2, 8, &sender, ()).unwrap();
    let data = directory.0.clone();
    let panics = |_: Now, _: &mut Outbox| Doomed;
    spawn(
        ports.pop().unwrap(),
        data.clone(),
        Options::default(),
        panics,
    )
    .unwrap();
    assert!(matches!(
        reports.recv().unwrap(),
        Report::Panicked {
            shard: ShardIndex(1)
        }
    ));
    let halts = |_: Now, out: &mut Outbox| {
        out.push(Effect::Halt {
            fatal: Fatal::Damage,
        });
        Doomed
    };
    spawn(ports.pop().unwrap(), data, Options::default(), halts).unwrap();
    match reports.recv().unwrap() {
        Report::Ended {
            shard: ShardIndex(0),
            exit,
        } => {
            assert_eq!(exit, Exit::Halted(Fatal::Damage));
        }
        other => panic!("{other:?}"),
    }
}
