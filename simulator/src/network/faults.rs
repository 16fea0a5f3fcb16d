//! What goes wrong on a network: processes and machines die, connections are reset, directions
//! are cut and heal.

use super::{
    Connection, Damage, Host, HostState, Network, NetworkTimer, Output, Piece, Side, SideState,
    Slowness, path::Path,
};

/// In microseconds: by then what a slow way has held up has passed once the way is mended.
const BACKLOG_MAX: u64 = 2_000_000;

/// In microseconds: by then a kernel has found out that nobody is left at the other end.
const KEEPALIVE: u64 = 45_000_000;

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
    /// The kernels of the peers find out in their own time.
    pub(crate) fn power_off(&mut self, now: u64, host: Host, out: &mut Vec<Output>) {
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
                base::sometimes!("fault: a machine leaves its peers half-open");
                out.push(keepalive(now, connection, 1 - side));
                self.collect(connection);
            }
        }
    }

    /// The machine has power again.
    pub(crate) fn power_on(&mut self, host: Host) {
        self.hosts[usize::from(host)] = HostState::Up;
    }

    /// Resets the `pick`-th open connection, anywhere in its streams: each side still reads some
    /// of what was on its way, up to any byte of a frame.
    pub(crate) fn reset_one(&mut self, now: u64, pick: u64, out: &mut Vec<Output>) {
        let Some(connection) = self.some_open(pick) else {
            return;
        };
        self.resets += 1;
        for side in 0..2 {
            let lost = self.prng.next_u64();
            let delay = self.delay();
            let entry = self.connections.get_mut(&connection).expect("open");
            let broken = &mut entry.sides[usize::from(side)];
            broken.queued.clear();
            broken.break_off(lost);
            let last = broken.in_flight.back().map_or(now, |&(at, _)| at);
            let timer = NetworkTimer::Gone {
                connection,
                side: 1 - side,
            };
            out.push(Output::Timer {
                at: last.max(now) + delay,
                timer,
            });
        }
    }

    /// One side of the `pick`-th open connection is told that it is gone; the other is not, still
    /// reads what is on its way, and sends into the void.
    pub(crate) fn forget_one(&mut self, now: u64, pick: u64, out: &mut Vec<Output>) {
        let Some(connection) = self.some_open(pick) else {
            return;
        };
        base::sometimes!("fault: one side forgets a connection");
        let entry = self.connections.get_mut(&connection).expect("open");
        entry.forgotten = true;
        let side = u8::try_from(pick >> 63).expect("one bit");
        out.push(keepalive(now, connection, 1 - side));
        self.gone(connection, side, out);
    }

    fn some_open(&self, pick: u64) -> Option<u32> {
        let is_open = |connection: &Connection| {
            let mut sides = connection.sides.iter();
            sides.all(|side| side.state == SideState::Open) && !connection.forgotten
        };
        let open = self.connections.iter();
        let open: Vec<u32> = open
            .filter(|(_, connection)| is_open(connection))
            .map(|(id, _)| *id)
            .collect();
        let count = u64::try_from(open.len()).expect("few");
        let chosen = (pick >> 1).checked_rem(count)?;
        Some(open[usize::try_from(chosen).expect("an index")])
    }

    /// Stops bytes from the hosts in mask `from` to those in mask `to`.
    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        self.each_path(from, to, |path| path.cut = true);
    }

    /// Slows bytes down from the hosts in mask `from` to those in mask `to`.
    pub(crate) fn slow_down(&mut self, now: u64, (from, to): (u64, u64), slowness: Slowness) {
        self.each_path(from, to, |path| path.slow_down(now, slowness));
    }

    /// Damages the next bytes from the hosts in mask `from` to those in mask `to`.
    pub(crate) fn damage(&mut self, (from, to): (u64, u64), damage: Damage, pick: u64) {
        self.each_path(from, to, |path| path.damage_next(damage, pick));
    }

    /// Who hears a host, as bits.
    pub(crate) fn heard_by(&self, host: Host) -> u64 {
        let hosts = self.hosts.len();
        let ways = self.paths.iter().enumerate();
        let open = ways.filter(|(way, path)| way / hosts == usize::from(host) && !path.cut);
        open.fold(0, |bits, (way, _)| bits | 1 << (way % hosts))
    }

    /// Whether every way is as it should be.
    pub(crate) fn is_sound(&self) -> bool {
        self.paths.iter().all(Path::is_sound)
    }

    fn each_path(&mut self, from: u64, to: u64, mut act: impl FnMut(&mut Path)) {
        let hosts = self.hosts.len();
        for (index, path) in self.paths.iter_mut().enumerate() {
            let (source, target) = (index / hosts, index % hosts);
            if from >> source & 1 == 1 && to >> target & 1 == 1 && source != target {
                act(path);
            }
        }
    }

    /// Ends every cut between the hosts of the two masks, and all else that is wrong with their
    /// paths; what stood still moves on.
    pub(crate) fn heal(&mut self, now: u64, (from, to): (u64, u64), out: &mut Vec<Output>) {
        self.each_path(from, to, Path::mend);
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
                let (hosts, out_of) = (self.hosts.len(), usize::from(sender.host));
                let into = usize::from(receiver.host);
                let is_back_cut = self.paths[into * hosts + out_of].cut;
                if receiver.state == SideState::Open && !is_back_cut {
                    receiver.unacknowledged = 0;
                }
                let is_cut = self.paths[out_of * hosts + into].cut;
                if !is_cut && sender.hurry(now + BACKLOG_MAX) {
                    sender.arrival_scheduled = false;
                }
                if let (Some(&(at, _)), false) =
                    (sender.in_flight.front(), sender.arrival_scheduled || is_cut)
                {
                    base::sometimes!("fault: bytes arrive after a cut has healed");
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

const fn keepalive(now: u64, connection: u32, side: u8) -> Output {
    let timer = NetworkTimer::Gone { connection, side };
    let at = now + KEEPALIVE;
    Output::Timer { at, timer }
}

impl Side {
    /// What is in flight arrives by `latest`; whether anything would have been later.
    fn hurry(&mut self, latest: u64) -> bool {
        self.arrival_last = self.arrival_last.min(latest);
        let late = self.in_flight.iter_mut().filter(|(at, _)| *at > latest);
        late.map(|(at, _)| *at = latest).count() > 0
    }

    /// Loses the end of what is in flight, from any byte on.
    fn break_off(&mut self, pick: u64) {
        let mut kept = usize::try_from(pick % (self.in_flight_size as u64 + 1)).expect("a size");
        base::sometimes!(
            kept > 0 && kept < self.in_flight_size,
            "fault: a connection is reset in the middle of its bytes"
        );
        self.in_flight_size = kept;
        let mut whole = 0;
        for (_, piece) in &mut self.in_flight {
            let Piece::Data(bytes) = piece else { break };
            if kept == 0 {
                break;
            }
            let take = kept.min(bytes.len());
            *bytes = bytes.slice(0, take);
            kept -= take;
            whole += 1;
        }
        self.in_flight.truncate(whole);
    }
}
