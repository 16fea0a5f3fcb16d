//! Clients: the real client machine, driven by the workload.

use std::{collections::VecDeque, time::Duration};

use base::{Domain, Instant, Prng, Timestamp};
use client::{Client, ClientConfig, ClientLimits, ClientTiming, RequestFrame};
use platform::{Effect, Event, NetworkEvent, Now};

use super::{
    Due, EPOCH, Phase, World,
    nodes::{CLIENT_PORT, PASSWORD, USERNAME},
};
use crate::network::address_of;

pub(super) struct SimulatedClient {
    pub(super) client: Client,
    inbox: VecDeque<Event>,
    turn_at: Option<u64>,
    deadline_at: Option<u64>,
    prng: Prng,
    /// Waits for [`Due::Think`].
    thinking: bool,
}

const fn now(time: u64) -> Now {
    Now {
        monotonic: Instant(time),
        realtime: Timestamp(EPOCH + time),
    }
}

impl World {
    pub(super) fn start_clients(&mut self) {
        for index in 0..self.shape.clients {
            let entity = 1_000 + u64::from(index);
            let mut prng = Prng::new(self.shape.seed, Domain::Client, entity);
            let mut nodes: Vec<_> = (0..self.shape.replicas)
                .map(|node| address_of(u16::from(node), CLIENT_PORT))
                .collect();
            let first = prng.index(nodes.len());
            nodes.rotate_left(first);
            let config = ClientConfig {
                id: self.workload.id(usize::from(index)),
                last_request: 0,
                nodes,
                username: USERNAME.into(),
                password: PASSWORD.into(),
                limits: ClientLimits {
                    queue_max: 4,
                    frame_size_max: 1 << 20,
                },
                timing: ClientTiming {
                    ping_interval: Duration::from_secs(40),
                    ..ClientTiming::default()
                },
            };
            let mut out = std::mem::take(&mut self.outbox);
            let client = Client::new(config, prng.next_u64(), now(self.time), &mut out);
            self.clients.push(SimulatedClient {
                client,
                inbox: VecDeque::new(),
                turn_at: None,
                deadline_at: None,
                prng,
                thinking: false,
            });
            self.execute_client(index, &mut out);
            self.outbox = out;
            self.plan_client_deadline(index);
            self.think(index);
        }
    }

    pub(super) fn tell_client(&mut self, client: u8, event: NetworkEvent) {
        let time = self.time;
        let target = &mut self.clients[usize::from(client)];
        target.inbox.push_back(Event::Network(event));
        if target.turn_at.is_none_or(|planned| planned > time) {
            target.turn_at = Some(time);
            self.push(time, Due::ClientTurn { client });
        }
    }

    pub(super) fn on_client_turn_due(&mut self, client: u8) {
        let target = &mut self.clients[usize::from(client)];
        if target.turn_at == Some(self.time) {
            target.turn_at = None;
            self.client_turn(client, None);
        }
    }

    pub(super) fn on_client_deadline_due(&mut self, client: u8) {
        let target = &mut self.clients[usize::from(client)];
        if target.deadline_at == Some(self.time) {
            target.deadline_at = None;
            self.client_turn(client, None);
        }
    }

    /// One turn of a client; submits `request` in it.
    fn client_turn(&mut self, index: u8, request: Option<RequestFrame>) {
        let time = self.time;
        let now = now(time);
        let place = 1 << 32 | u64::from(index);
        let mut out = std::mem::take(&mut self.outbox);
        let target = &mut self.clients[usize::from(index)];
        while let Some(event) = target.inbox.pop_front() {
            self.digest.add_event(time, place, &event);
            if self.trace {
                super::trace::client_event(time, index, &event);
            }
            target.client.on_event(now, event, &mut out);
        }
        target.client.on_timers(now, &mut out);
        let completions = target.client.take_completions();
        if let Some(request) = request {
            target
                .client
                .submit_frame(now, request, &mut out)
                .expect("one call at a time");
        }
        for completion in completions {
            let slot = usize::from(index);
            let call = self
                .trace
                .then(|| format!("{:?}", self.workload.pending(slot)));
            let linear = &mut self.checkers.linear;
            let verdict = self.workload.on_completion(time, slot, &completion, linear);
            if let Some(call) = call {
                super::trace::completion(time, index, &call, &completion);
            }
            match verdict {
                Ok(done) => self.on_call_done(index, done),
                Err(failure) => self.check(Err(failure)),
            }
        }
        self.execute_client(index, &mut out);
        self.outbox = out;
        self.plan_client_deadline(index);
    }

    fn execute_client(&mut self, index: u8, out: &mut Vec<Effect>) {
        let host = u16::from(self.shape.replicas) + u16::from(index);
        for effect in out.drain(..) {
            match effect {
                Effect::Connect {
                    connection,
                    address,
                } => {
                    self.with_network(|network, now, out| {
                        network.connect(now, host, 0, connection, address, out);
                    });
                }
                Effect::Receive { connection, buffer } => self.with_network(|network, now, out| {
                    network.receive(now, host, connection, buffer, out);
                }),
                Effect::Send { connection, bytes } => self.with_network(|network, now, out| {
                    network.send(now, host, connection, bytes, out);
                }),
                Effect::Close { connection } => self.with_network(|network, now, out| {
                    network.close(now, host, connection, out);
                }),
                other => panic!("a client asks for {other:?}"),
            }
        }
    }

    fn plan_client_deadline(&mut self, client: u8) {
        let time = self.time;
        let target = &mut self.clients[usize::from(client)];
        let Some(deadline) = target.client.deadline() else {
            return;
        };
        let at = deadline.0.max(time + 1);
        if target.deadline_at.is_none_or(|planned| planned > at) {
            target.deadline_at = Some(at);
            self.push(at, Due::ClientDeadline { client });
        }
    }

    /// Plans a client's next call: soon in a busy stretch, else in the next one.
    fn think(&mut self, client: u8) {
        let time = self.time;
        let mean = Duration::from_micros(self.shape.think);
        let target = &mut self.clients[usize::from(client)];
        if target.thinking {
            return;
        }
        let pause = target.prng.exponential(mean);
        let pause = u64::try_from(pause.as_micros()).expect("pauses are short");
        let stretch = self
            .shape
            .busy
            .iter()
            .find(|stretch| stretch.end > time + pause);
        let Some(stretch) = stretch else { return };
        let at = (time + pause).max(stretch.start + target.prng.below(500_000));
        target.thinking = true;
        self.push(at, Due::Think { client });
    }

    pub(super) fn on_think_due(&mut self, client: u8) {
        let slot = usize::from(client);
        self.clients[slot].thinking = false;
        if self.phase != Phase::Faults || !self.workload.is_idle(slot) {
            return;
        }
        let request = self.workload.next(self.time, slot);
        if self.trace {
            super::trace::call(self.time, client, self.workload.pending(slot));
        }
        self.client_turn(client, Some(request));
    }

    /// A client's call has ended; `done` if it certainly was done.
    fn on_call_done(&mut self, client: u8, done: bool) {
        match self.phase {
            Phase::Faults => self.think(client),
            Phase::LastCalls => {
                if !done {
                    self.fail("liveness", "a call after all faults has failed".into());
                    return;
                }
                self.next_last_call(client);
            }
            _ => {}
        }
    }

    pub(super) fn next_last_call(&mut self, client: u8) {
        let slot = usize::from(client);
        if !self.workload.is_idle(slot) {
            return;
        }
        if let Some(call) = self.last_calls.pop() {
            let request = self.workload.finally(self.time, slot, call);
            if self.trace {
                super::trace::call(self.time, client, self.workload.pending(slot));
            }
            self.client_turn(client, Some(request));
        }
    }
}
