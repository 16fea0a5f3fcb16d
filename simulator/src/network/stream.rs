//! The two byte streams of a connection: what is queued goes into flight, arrives, is delivered.

use platform::NetworkEvent;

use super::{HostState, Network, NetworkTimer, Output, Piece, Side, SideState, micros};

impl Network {
    /// Moves queued bytes of a side into flight, as far as the window allows.
    pub(super) fn pump(&mut self, now: u64, connection: u32, side: u8, out: &mut Vec<Output>) {
        let entry = self.connections.get_mut(&connection).expect("known");
        let [first, second] = &mut entry.sides;
        let (sender, receiver) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let way = usize::from(sender.host) * self.hosts.len() + usize::from(receiver.host);
        let path = &mut self.paths[way];
        loop {
            let used = sender.in_flight_size + receiver.arrived_size + receiver.unacknowledged;
            let piece = if sender.queued.is_empty() {
                if !sender.fin_queued {
                    break;
                }
                sender.fin_queued = false;
                Piece::Fin
            } else {
                if used >= self.speed.window {
                    break;
                }
                Piece::Data(sender.queued.pop_front().expect("not empty"))
            };
            let mean = std::time::Duration::from_micros(self.speed.delay_mean);
            let extra = micros(self.prng.exponential(mean));
            let size = match &piece {
                Piece::Data(bytes) => bytes.len(),
                Piece::Fin => 0,
            };
            let detour = path.detour(now, size);
            let at = (now + self.speed.delay_min + extra + detour).max(sender.arrival_last);
            sender.arrival_last = at;
            let mut piece = piece;
            if let Piece::Data(bytes) = &mut piece {
                if let Some(damaged) = path.damaged(bytes) {
                    base::sometimes!("fault: bytes are damaged on their way");
                    entry.damaged = true;
                    *bytes = damaged;
                }
                sender.in_flight_size += bytes.len();
                if sender.state == SideState::Open {
                    let event = NetworkEvent::Sent {
                        connection: sender.id,
                        size,
                    };
                    out.push(Output::Event {
                        host: sender.host,
                        shard: sender.shard,
                        event,
                    });
                }
            }
            sender.in_flight.push_back((at, piece));
            if !sender.arrival_scheduled {
                sender.arrival_scheduled = true;
                let timer = NetworkTimer::Arrive {
                    connection,
                    side: 1 - side,
                };
                out.push(Output::Timer { at, timer });
            }
        }
    }

    /// Bytes reach the kernel of `side`.
    pub(super) fn arrive(&mut self, now: u64, connection: u32, side: u8, out: &mut Vec<Output>) {
        let Some(entry) = self.connections.get_mut(&connection) else {
            return;
        };
        let [first, second] = &mut entry.sides;
        let (receiver, sender) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        sender.arrival_scheduled = false;
        let way = usize::from(sender.host) * self.hosts.len() + usize::from(receiver.host);
        if self.paths[way].cut {
            base::sometimes!("fault: bytes stand still at a cut");
            return; // Until the cut heals.
        }
        let mut refused = false;
        while sender.in_flight.front().is_some_and(|&(at, _)| at <= now) {
            let (_, piece) = sender.in_flight.pop_front().expect("just seen");
            if receiver.state != SideState::Open {
                refused = true;
                if let Piece::Data(bytes) = piece {
                    // Nobody acknowledges: it still counts against the window.
                    receiver.unacknowledged += bytes.len();
                    sender.in_flight_size -= bytes.len();
                }
                continue;
            }
            match piece {
                Piece::Data(bytes) => {
                    sender.in_flight_size -= bytes.len();
                    receiver.arrived_size += bytes.len();
                    receiver.arrived.push_back(bytes);
                }
                Piece::Fin => receiver.fin_arrived = true,
            }
        }
        if let Some(&(at, _)) = sender.in_flight.front() {
            sender.arrival_scheduled = true;
            let timer = NetworkTimer::Arrive { connection, side };
            out.push(Output::Timer { at, timer });
        }
        if refused {
            let is_up = self.hosts[usize::from(receiver.host)] == HostState::Up;
            base::sometimes!(
                entry.forgotten,
                "fault: bytes go to a host that has forgotten the connection"
            );
            let answers = is_up && !entry.forgotten;
            if answers && sender.state == SideState::Open {
                let at = now + self.delay();
                let timer = NetworkTimer::Gone {
                    connection,
                    side: 1 - side,
                };
                out.push(Output::Timer { at, timer });
            }
            self.collect(connection);
            return;
        }
        self.deliver(now, connection, side, out);
    }

    /// Fills the buffer that waits at `side`, if there is something for it.
    pub(super) fn deliver(&mut self, now: u64, connection: u32, side: u8, out: &mut Vec<Output>) {
        let entry = self.connections.get_mut(&connection).expect("known");
        let [first, second] = &mut entry.sides;
        let (receiver, sender) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        if receiver.arrived_size == 0 {
            if receiver.fin_arrived && receiver.receive.is_some() {
                self.gone(connection, side, out);
            }
            return;
        }
        let Some(mut buffer) = receiver.receive.take() else {
            return;
        };
        let most = receiver.arrived_size.min(buffer.capacity() - buffer.len());
        let one_in = self.speed.fragment_one_in;
        let in_pieces = one_in > 0 && self.prng.chance(1, one_in);
        let mut count = if in_pieces {
            1 + self.prng.index(most)
        } else {
            most
        };
        receiver.arrived_size -= count;
        let way = usize::from(receiver.host) * self.hosts.len() + usize::from(sender.host);
        if self.paths[way].cut {
            receiver.unacknowledged += count;
        }
        while count > 0 {
            let piece = receiver.arrived.pop_front().expect("counted");
            let take = count.min(piece.len());
            buffer.extend(&piece[..take]);
            count -= take;
            if take < piece.len() {
                receiver.arrived.push_front(piece.slice(take, piece.len()));
            }
        }
        let event = NetworkEvent::Received {
            connection: receiver.id,
            buffer,
        };
        out.push(Output::Event {
            host: receiver.host,
            shard: receiver.shard,
            event,
        });
        self.pump(now, connection, 1 - side, out);
    }

    /// A side learns that the connection is gone.
    pub(super) fn gone(&mut self, connection: u32, side: u8, out: &mut Vec<Output>) {
        let Some(entry) = self.connections.get_mut(&connection) else {
            return;
        };
        let told = &mut entry.sides[usize::from(side)];
        if !matches!(told.state, SideState::Open | SideState::Dialing) {
            return;
        }
        told.end(SideState::Closed);
        told.queued.clear();
        self.by_id.remove(&(told.host, told.id));
        let event = NetworkEvent::Closed {
            connection: told.id,
        };
        out.push(Output::Event {
            host: told.host,
            shard: told.shard,
            event,
        });
        self.collect(connection);
    }

    /// Forgets a connection that neither side can hear of any more.
    pub(super) fn collect(&mut self, connection: u32) {
        let sides = &self.connections[&connection].sides;
        let over = |side: &Side| {
            matches!(
                side.state,
                SideState::Closed | SideState::Dead | SideState::Unborn
            )
        };
        let idle = |side: &Side| side.in_flight.is_empty() && side.queued.is_empty();
        if over(&sides[0]) && over(&sides[1]) && idle(&sides[0]) && idle(&sides[1]) {
            self.connections.remove(&connection);
        }
    }

    pub(super) fn delay(&mut self) -> u64 {
        let mean = std::time::Duration::from_micros(self.speed.delay_mean);
        self.speed.delay_min + micros(self.prng.exponential(mean))
    }
}
