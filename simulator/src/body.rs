//! The bodies of a few hosts without the servers: a disk each and the network between them, on
//! virtual time. It is what the conformance tests hold against the real ring.
//!
//! It executes effects as the world does, in order and without a delay of its own; what is timed
//! here is the disk's and the network's doing. Nothing fails unless it is asked for.
//!
//! **Invariant:** whatever a test learns here is learned of [`crate::disk`] and
//! [`crate::network`]; no promise of the platform is kept in this file but "nothing follows a
//! close", which the world keeps in the same way.

use std::collections::{BTreeMap, VecDeque};

use base::{Bytes, ShardIndex};
use platform::{Address, ConnectionId, Effect, Event, ListenerId, NetworkEvent};

use crate::{
    disk::{Disk, DiskSpeed},
    network::{Network, NetworkSpeed, NetworkTimer, Output, address_of, concerns},
};

enum Due {
    Network(NetworkTimer),
    Disk { host: u16, slot: usize },
}

/// See the module.
pub struct Bodies {
    time: u64,
    disks: Vec<Disk>,
    network: Network,
    /// By time, then by the order in which it was planned.
    due: BTreeMap<(u64, u64), Due>,
    planned: u64,
    inbox: VecDeque<(u16, ShardIndex, Event)>,
    out: Vec<Output>,
}

impl Bodies {
    /// `hosts` hosts with empty disks; every other delivery of the network comes in pieces.
    #[must_use]
    pub fn new(seed: u64, hosts: u16) -> Self {
        let speed = NetworkSpeed {
            fragment_one_in: 2,
            ..NetworkSpeed::default()
        };
        let disk = |host| Disk::new(seed, u64::from(host), DiskSpeed::default());
        Self {
            time: 0,
            disks: (0..hosts).map(disk).collect(),
            network: Network::new(seed, usize::from(hosts), speed),
            due: BTreeMap::new(),
            planned: 0,
            inbox: VecDeque::new(),
            out: Vec::new(),
        }
    }

    /// A port of a host.
    #[must_use]
    pub fn address(host: u16, port: u16) -> Address {
        address_of(host, port)
    }

    /// Executes an effect of a shard of a host.
    ///
    /// # Panics
    /// If the effect is about neither disk nor network.
    pub fn execute(&mut self, host: u16, shard: ShardIndex, effect: Effect) {
        let mut out = std::mem::take(&mut self.out);
        let (now, network) = (self.time, &mut self.network);
        match effect {
            Effect::Listen { listener, address } => {
                network.listen(host, shard.0, listener, address, &mut out);
            }
            Effect::Connect {
                connection,
                address,
            } => network.connect(now, host, shard.0, connection, address, &mut out),
            Effect::Receive { connection, buffer } => {
                network.receive(now, host, connection, buffer, &mut out);
            }
            Effect::Send { connection, bytes } => {
                network.send(now, host, connection, bytes, &mut out);
            }
            Effect::Close { connection } => {
                self.inbox
                    .retain(|(at, _, event)| *at != host || !concerns(event, connection));
                network.close(now, host, connection, &mut out);
            }
            Effect::HandOver {
                connection,
                to,
                received,
                listener,
            } => self.hand_over(host, to, connection, (received, listener)),
            Effect::Disk { token, request } => {
                let disk = &mut self.disks[usize::from(host)];
                let (slot, latency) = disk.submit(shard.0, token, request);
                self.plan(now + latency, Due::Disk { host, slot });
            }
            other => panic!("neither disk nor network: {other:?}"),
        }
        self.take(out);
    }

    fn hand_over(
        &mut self,
        host: u16,
        to: ShardIndex,
        connection: ConnectionId,
        (received, listener): (Bytes, ListenerId),
    ) {
        let Some(peer) = self.network.hand_over(host, connection, to.0) else {
            return;
        };
        let event = NetworkEvent::Adopted {
            listener,
            connection,
            peer,
            received,
        };
        self.inbox.push_back((host, to, Event::Network(event)));
    }

    /// The next event and whose it is, at its time; none if nothing will ever happen.
    pub fn next_event(&mut self) -> Option<(u16, ShardIndex, Event)> {
        loop {
            if let Some(event) = self.inbox.pop_front() {
                return Some(event);
            }
            let ((at, _), due) = self.due.pop_first()?;
            assert!(at >= self.time, "time does not go back");
            self.time = at;
            match due {
                Due::Network(timer) => {
                    let mut out = std::mem::take(&mut self.out);
                    self.network.on_timer(at, timer, &mut out);
                    self.take(out);
                }
                Due::Disk { host, slot } => {
                    let done = self.disks[usize::from(host)].complete(slot);
                    let (shard, done) = done.expect("no host crashes here");
                    let event = (host, ShardIndex(shard), Event::Disk(done));
                    self.inbox.push_back(event);
                }
            }
        }
    }

    fn plan(&mut self, at: u64, due: Due) {
        self.due.insert((at, self.planned), due);
        self.planned += 1;
    }

    fn take(&mut self, mut out: Vec<Output>) {
        for output in out.drain(..) {
            match output {
                Output::Timer { at, timer } => self.plan(at, Due::Network(timer)),
                Output::Event { host, shard, event } => {
                    let event = (host, ShardIndex(shard), Event::Network(event));
                    self.inbox.push_back(event);
                }
            }
        }
        self.out = out;
    }
}
