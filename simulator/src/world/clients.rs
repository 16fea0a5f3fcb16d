//! Clients: the real client machine, driven by the workload.

use std::{collections::VecDeque, time::Duration};

use base::{Domain, Instant, Prng, Timestamp};
use client::{
    Client, ClientConfig, ClientError, ClientLimits, ClientTiming, Completion, RequestFrame,
    StopReason,
};
use platform::{Effect, Event, NetworkEvent, Now};

use wire::Operation;

use super::{
    Due, EPOCH, Phase, World,
    nodes::{CLIENT_PORT, PASSWORD, USERNAME},
};
use crate::{
    check::metadata::{Answered, Read},
    marks,
    network::address_of,
    schedule::Identity,
    workload::Login,
};

pub(super) struct SimulatedClient {
    pub(super) client: Client,
    /// Its process runs.
    alive: bool,
    inbox: VecDeque<Event>,
    turn_at: Option<u64>,
    deadline_at: Option<u64>,
    prng: Prng,
    /// Waits for [`Due::Think`].
    thinking: bool,
    /// So many of the next calls follow without a pause.
    hurried: u32,
    /// What it waits for; the body only if it is a read.
    asked: Option<Read>,
    /// What anybody had been told of when it began to log in as somebody else, until it is known
    /// what became of that.
    pub(super) login_floor: Option<u64>,
}

impl SimulatedClient {
    /// Why it gave up for good, if it did and still runs.
    pub(super) fn stopped(&self) -> Option<StopReason> {
        self.client.stopped().filter(|_| self.alive)
    }
}

const fn now(time: u64) -> Now {
    Now {
        monotonic: Instant(time),
        realtime: Timestamp(EPOCH + time),
    }
}

/// Usual timeouts; idle connections are left alone for long.
fn patience() -> ClientTiming {
    ClientTiming {
        ping_interval: Duration::from_secs(40),
        ..ClientTiming::default()
    }
}

/// Timeouts of one that gives every attempt up at once and storms the next node.
fn impatience() -> ClientTiming {
    let millis = Duration::from_millis;
    ClientTiming {
        connect_timeout: millis(200),
        reply_timeout: millis(150),
        retry_pause: (millis(1), millis(20)),
        redial_pause: (millis(1), millis(50)),
        rotate_after: millis(100),
        ..patience()
    }
}

impl World {
    pub(super) fn start_clients(&mut self) {
        for index in 0..self.shape.clients {
            let entity = 1_000 + u64::from(index);
            let mut prng = Prng::new(self.shape.seed, Domain::Client, entity);
            let mut out = std::mem::take(&mut self.outbox);
            let client = self.make_client(index, 0, &mut prng, &mut out);
            self.clients.push(SimulatedClient {
                client,
                alive: true,
                inbox: VecDeque::new(),
                turn_at: None,
                deadline_at: None,
                prng,
                thinking: false,
                hurried: 0,
                asked: None,
                login_floor: None,
            });
            self.execute_client(index, &mut out);
            self.outbox = out;
            self.plan_client_deadline(index);
            self.think(index);
        }
    }

    fn make_client(
        &self,
        index: u8,
        last_request: u64,
        prng: &mut Prng,
        out: &mut Vec<Effect>,
    ) -> Client {
        let mut nodes: Vec<_> = (0..self.shape.replicas)
            .map(|node| address_of(u16::from(node), CLIENT_PORT))
            .collect();
        let first = prng.index(nodes.len());
        nodes.rotate_left(first);
        let (mut username, mut password) = (USERNAME.into(), PASSWORD.into());
        let mut token = None;
        match self.workload.login(usize::from(index)).clone() {
            Login::Root => {}
            Login::User {
                name,
                password: word,
            } => (username, password) = (name, word),
            Login::Token { token: secret } => token = Some(secret),
        }
        let impatient = self.shape.impatient && self.phase == Phase::Faults;
        let config = ClientConfig {
            id: self.workload.id(usize::from(index)),
            last_request,
            nodes,
            username,
            password,
            token,
            limits: ClientLimits {
                queue_max: 4,
                frame_size_max: 1 << 20,
            },
            timing: if impatient { impatience() } else { patience() },
        };
        Client::new(config, prng.next_u64(), now(self.time), out)
    }

    /// The process of a client ends, and its machine with it if `machine` says so.
    pub(super) fn crash_client(&mut self, index: u8, machine: bool) {
        let slot = usize::from(index);
        let host = u16::from(self.shape.replicas) + u16::from(index);
        let target = &mut self.clients[slot];
        if !std::mem::take(&mut target.alive) {
            return;
        }
        base::sometimes!(
            self.workload.pending(slot).is_some(),
            "fault: a client dies in the middle of a call"
        );
        target.inbox.clear();
        target.hurried = 0;
        self.workload.on_crash(slot, target.client.last_request());
        self.with_network(|network, now, out| {
            if machine {
                network.power_off(now, host, out);
            } else {
                network.crash(now, host, out);
            }
        });
    }

    /// A client that is down starts again, and goes on where it was or as somebody else.
    pub(super) fn return_client(&mut self, index: u8, identity: Identity) {
        let slot = usize::from(index);
        if self.clients[slot].alive {
            return;
        }
        self.network
            .power_on(u16::from(self.shape.replicas) + u16::from(index));
        let last_request = match identity {
            Identity::Same => {
                base::sometimes!("fault: a client comes back under its identity");
                self.workload.last_request(slot)
            }
            Identity::New => {
                base::sometimes!("fault: a client comes back as somebody else");
                self.workload.rename(slot);
                0
            }
        };
        let mut out = std::mem::take(&mut self.outbox);
        let mut prng = self.clients[slot].prng.clone();
        let client = self.make_client(index, last_request, &mut prng, &mut out);
        let target = &mut self.clients[slot];
        target.client = client;
        target.prng = prng;
        target.alive = true;
        target.login_floor = Some(self.auditor.told());
        self.execute_client(index, &mut out);
        self.outbox = out;
        self.plan_client_deadline(index);
        self.think(index);
    }

    /// A client calls without a pause for a while.
    pub(super) fn burst(&mut self, index: u8, calls: u32) {
        let target = &mut self.clients[usize::from(index)];
        if target.alive {
            base::sometimes!("fault: a burst of calls");
            target.hurried = calls;
            self.push(self.time, Due::Think { client: index });
        }
    }

    pub(super) fn tell_client(&mut self, client: u8, event: NetworkEvent) {
        let time = self.time;
        let target = &mut self.clients[usize::from(client)];
        if !target.alive {
            return;
        }
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
    pub(super) fn client_turn(&mut self, index: u8, request: Option<RequestFrame>) {
        let time = self.time;
        let now = now(time);
        let place = 1 << 32 | u64::from(index);
        let mut out = std::mem::take(&mut self.outbox);
        let target = &mut self.clients[usize::from(index)];
        if !target.alive {
            self.outbox = out;
            return;
        }
        while let Some(event) = target.inbox.pop_front() {
            self.digest.add_event(time, place, &event);
            if self.trace || self.watch.is_on(&self.digest) {
                let line = super::trace::client_event(time, index, &event);
                self.watch.take(&self.digest, self.trace, line);
            }
            target.client.on_event(now, event, &mut out);
        }
        target.client.on_timers(now, &mut out);
        let completions = target.client.take_completions();
        if let Some(request) = request {
            let body = if request.is_write() {
                &[]
            } else {
                request.body()
            };
            target.asked = Some(Read {
                code: request.code(),
                body: body.to_vec(),
                floor: self.auditor.told(),
            });
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
            let repetitions = self.clients[slot].client.counters().repetitions;
            self.workload.history.on_repetitions(slot, repetitions);
            let excused = self.is_call_excused(self.workload.pending(slot));
            self.tell_completion(index, &completion);
            self.audit(index, &completion, excused);
            let linear = &mut self.checkers.linear;
            let verdict = self.workload.on_completion(time, slot, &completion, linear);
            if let Some(call) = call {
                super::trace::completion(time, index, &call, &completion);
            }
            match verdict {
                Ok(done) => self.on_call_done(index, done),
                Err(_) if excused => self.on_call_done(index, false),
                Err(failure) => self.check(Err(failure)),
            }
        }
        self.execute_client(index, &mut out);
        self.outbox = out;
        self.plan_client_deadline(index);
        self.mind_login(index);
    }

    /// What a client was told is what it should have been.
    fn audit(&mut self, index: u8, completion: &Completion, excused: bool) {
        let slot = usize::from(index);
        let Some(read) = self.clients[slot].asked.take() else {
            return;
        };
        let answered = match &completion.outcome {
            Ok(reply) => Answered::Done(reply),
            Err(ClientError::Refused { code, .. }) => Answered::Refused(*code),
            Err(_) => return,
        };
        marks::reach_command(read.code);
        self.audit_login(index, true);
        let is_read = read.code.operation() == Operation::NonReplicated;
        if is_read && !excused {
            let client = self.workload.id(slot);
            let verdict = self.auditor.on_read(self.time, client, &read, answered);
            self.check(verdict);
        }
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
        if target.thinking || !target.alive {
            return;
        }
        let pause = if target.hurried > 0 {
            target.hurried -= 1;
            0
        } else {
            let pause = target.prng.exponential(mean);
            u64::try_from(pause.as_micros()).expect("pauses are short")
        };
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
        if !self.clients[slot].alive {
            return;
        }
        if self.phase != Phase::Faults || !self.workload.is_idle(slot) {
            return;
        }
        if let Some(login) = self.workload.next_login(slot) {
            self.log_in_as(client, login);
            return;
        }
        let session = self.auditor.sessions.session_of(self.workload.id(slot));
        self.workload.on_session(slot, session);
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
            Phase::LastCalls | Phase::CoreCalls => {
                if !done && self.excuses.is_empty() {
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
        if !self.workload.is_idle(slot) || !self.clients[slot].alive {
            return;
        }
        if *self.workload.login(slot) != Login::Root {
            self.log_in_as(client, Login::Root);
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
