//! What goes wrong on a network: processes and machines die, connections are reset, directions
//! are cut and heal.

use super::{Connection, Host, HostState, Network, NetworkTimer, Output, Piece, SideState};

impl Network {
    /// The process on `host` dies; its kernel closes what it had, with reset where bytes were
    /// unread.
    pub(crate) fn crash(&mut self, now: u64, host: Host, out: &mut Vec<Output>) {
        self.listeners.retain(|_, listening| listening.host != host);
        for (connection, side) in self.sides_of(host) {
            let reset = self.prng.chance(1, 2);
            let delay = self.delay();
            self.by_id.retain(|_, at| *at != (connection, side));
            let entry = self.connections.get_mut(&connection).expect("listed");
            let [first, second] = &mut entry.sides;
            let (dead, other) = if side == 0 {
                (first, second)
            } else {
                (second, first)
            };
            let dialing = dead.state == SideState::Dialing;
            dead.end(SideState::Dead);
            dead.queued.clear();
            if dialing {
                self.connections.remove(&connection);
                continue;
            }
            if other.state == SideState::Open && reset {
                dead.in_flight.clear();
                dead.in_flight_size = 0;
                let timer = NetworkTimer::Gone {
                    connection,
                    side: 1 - side,
                };
                out.push(Output::Timer {
                    at: now + delay,
                    timer,
                });
            } else {
                dead.fin_queued = true;
                self.pump(now, connection, side, out);
            }
            self.collect(connection);
        }
    }

    /// The machine loses power: nothing is said, peers are left half-open.
    pub(crate) fn power_off(&mut self, host: Host) {
        self.hosts[usize::from(host)] = HostState::Off;
        self.listeners.retain(|_, listening| listening.host != host);
        for (connection, side) in self.sides_of(host) {
            self.by_id.retain(|_, at| *at != (connection, side));
            let entry = self.connections.get_mut(&connection).expect("listed");
            let dead = &mut entry.sides[usize::from(side)];
            let dialing = dead.state == SideState::Dialing;
            dead.end(SideState::Dead);
            dead.queued.clear();
            let kept = self.prng.index(dead.in_flight.len() + 1);
            for (_, piece) in dead.in_flight.drain(kept..) {
                if let Piece::Data(bytes) = piece {
                    dead.in_flight_size -= bytes.len();
                }
            }
            if dialing {
                self.connections.remove(&connection);
            } else {
                self.collect(connection);
            }
        }
    }

    /// The machine has power again.
    pub(crate) fn power_on(&mut self, host: Host) {
        self.hosts[usize::from(host)] = HostState::Up;
    }

    /// Resets the `pick`-th open connection, anywhere in its streams.
    pub(crate) fn reset_one(&mut self, now: u64, pick: u64, out: &mut Vec<Output>) {
        let open = |connection: &Connection| {
            connection
                .sides
                .iter()
                .all(|side| side.state == SideState::Open)
        };
        let open = self
            .connections
            .iter()
            .filter(|(_, connection)| open(connection));
        let open: Vec<u32> = open.map(|(id, _)| *id).collect();
        if open.is_empty() {
            return;
        }
        self.resets += 1;
        let pick = usize::try_from(pick % open.len() as u64).expect("an index");
        let connection = open[pick];
        for side in 0..2 {
            let entry = self.connections.get_mut(&connection).expect("open");
            let broken = &mut entry.sides[usize::from(side)];
            broken.in_flight.clear();
            broken.in_flight_size = 0;
            broken.queued.clear();
            let at = now + self.delay();
            out.push(Output::Timer {
                at,
                timer: NetworkTimer::Gone { connection, side },
            });
        }
    }

    /// Stops bytes from the hosts in mask `from` to those in mask `to`.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        for (host, cut) in self.cut.iter_mut().enumerate() {
            if from >> host & 1 == 1 {
                *cut |= to & !(1 << host);
            }
        }
    }

    /// Ends every cut; what stood still moves on.
    pub(crate) fn heal(&mut self, now: u64, out: &mut Vec<Output>) {
        if self.cut.iter().all(|&cut| cut == 0) {
            return;
        }
        self.cut.fill(0);
        let connections: Vec<u32> = self.connections.keys().copied().collect();
        for connection in connections {
            for side in 0..2 {
                let entry = self.connections.get_mut(&connection).expect("listed");
                let [first, second] = &mut entry.sides;
                let (sender, receiver) = if side == 0 {
                    (first, second)
                } else {
                    (second, first)
                };
                if receiver.state == SideState::Open {
                    receiver.unacknowledged = 0;
                }
                if let (Some(&(at, _)), false) =
                    (sender.in_flight.front(), sender.arrival_scheduled)
                {
                    sender.arrival_scheduled = true;
                    let at = at.max(now) + self.speed.delay_min + self.prng.below(200_000);
                    sender.arrival_last = sender.arrival_last.max(at);
                    let timer = NetworkTimer::Arrive {
                        connection,
                        side: 1 - side,
                    };
                    out.push(Output::Timer { at, timer });
                }
                self.pump(now, connection, side, out);
            }
        }
    }

    fn sides_of(&self, host: Host) -> Vec<(u32, u8)> {
        let mut found = Vec::new();
        for (&connection, entry) in &self.connections {
            for side in 0..2u8 {
                let candidate = &entry.sides[usize::from(side)];
                let alive = matches!(candidate.state, SideState::Open | SideState::Dialing);
                let lingering = candidate.state == SideState::Closed;
                if candidate.host == host && (alive || lingering) {
                    found.push((connection, side));
                }
            }
        }
        found
    }
}
