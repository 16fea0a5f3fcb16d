//! The client: one session, one request out at a time, over whatever connection there is.
//!
//! ```text
//!            dial          stands           registered
//!  Pausing ───────▶ Dialing ─────▶ Linked ─────────────▶ Linked, serves requests
//!     ▲               │              │ ▲─── evicted: register again ───┘
//!     └───────────────┴──────────────┘ closed, silent, refused too long: the next node
//! ```
//!
//! A request keeps its number and its bytes over all attempts, and the client keeps its identity
//! and its counter over all connections, so the server's tables recognise a repetition.
//!
//! **Invariant:** a new request gets a number only after the one before has left: answered, or
//! given up together with its connection.

mod answers;

use alloc::{collections::VecDeque, vec::Vec};

use base::{Bytes, Domain, Instant, Prng};
use platform::{ConnectionId, Effect, Event, NetworkEvent, Now, Outbox};
use transport::{Backoff, FrameReader};
use wire::Request;

use crate::{
    ClientConfig, ClientError, Reply, RequestFrame, StopReason, Ticket,
    link::{Flight, Link, Purpose, Stage},
    login,
    request::{Outstanding, Queued},
};

/// A request has come to its end.
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub ticket: Ticket,
    /// Its number in the session; 0 if it never had its turn.
    pub request: u64,
    /// The frame of the last answer, if one ended it.
    pub frame: Option<Bytes>,
    /// How it ended.
    pub outcome: Result<Reply, ClientError>,
}

/// A request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// Too many wait already.
    QueueFull,
    /// The frame is above the limit.
    TooLarge,
    /// The client has given up for good.
    Stopped(StopReason),
}

/// What has happened so far, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections dialed.
    pub dials: u64,
    /// Sessions opened.
    pub logins: u64,
    /// Attempts beyond the first.
    pub repetitions: u64,
    /// Frames a server must not send; the connection was closed each time.
    pub violations: u64,
}

/// The client machine.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    prng: Prng,
    stage: Stage,
    /// Index of the node in use.
    node: usize,
    session: u64,
    /// The last number given to a write.
    counter: u64,
    outstanding: Option<Outstanding>,
    queue: VecDeque<Queued>,
    completions: Vec<Completion>,
    redial: Backoff,
    tickets: u64,
    counters: Counters,
}

impl Client {
    /// A client that dials at once.
    ///
    /// # Panics
    /// If the configuration names no node, or the identity is 0.
    #[must_use]
    pub fn new(config: ClientConfig, seed: u64, now: Now, out: &mut Outbox) -> Self {
        assert!(!config.nodes.is_empty());
        assert!(config.id.0 != 0);
        let entity = u64::try_from(config.id.0 & u128::from(u64::MAX)).expect("masked");
        let (first, last) = config.timing.redial_pause;
        let mut client = Self {
            prng: Prng::new(seed, Domain::Client, entity),
            stage: Stage::Pausing {
                until: now.monotonic,
            },
            node: 0,
            session: 0,
            counter: config.last_request,
            outstanding: None,
            queue: VecDeque::new(),
            completions: Vec::new(),
            redial: Backoff::new(first, last),
            tickets: 0,
            counters: Counters::default(),
            config,
        };
        client.advance(now.monotonic, out);
        client
    }

    /// Queues a request; its end comes through [`Self::take_completions`].
    ///
    /// # Errors
    /// [`SubmitError`] if it was not taken.
    ///
    /// # Panics
    /// If it is a login or a logout: those are the client's own.
    pub fn submit(
        &mut self,
        now: Now,
        request: &Request<'_>,
        out: &mut Outbox,
    ) -> Result<Ticket, SubmitError> {
        self.submit_frame(now, RequestFrame::new(request), out)
    }

    /// Queues a request that is laid out already.
    ///
    /// # Errors
    /// [`SubmitError`] if it was not taken.
    ///
    /// # Panics
    /// If it is a login or a logout: those are the client's own.
    pub fn submit_frame(
        &mut self,
        now: Now,
        request: RequestFrame,
        out: &mut Outbox,
    ) -> Result<Ticket, SubmitError> {
        let plane = request.code().operation().plane();
        assert!(
            plane != wire::Plane::Session,
            "the session is the client's own"
        );
        if let Stage::Stopped(reason) = self.stage {
            return Err(SubmitError::Stopped(reason));
        }
        if request.frame_size() > self.config.limits.frame_size_max {
            return Err(SubmitError::TooLarge);
        }
        if self.queue.len() >= self.config.limits.queue_max {
            return Err(SubmitError::QueueFull);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let deadline = now.monotonic + self.config.timing.request_timeout;
        self.queue.push_back(Queued {
            ticket,
            deadline,
            request,
        });
        self.advance(now.monotonic, out);
        Ok(ticket)
    }

    /// Something happened on the network; events of connections already given up are ignored.
    pub fn on_event(&mut self, now: Now, event: Event, out: &mut Outbox) {
        let Event::Network(event) = event else { return };
        let now = now.monotonic;
        match (event, &self.stage) {
            (NetworkEvent::Connected { connection: event }, Stage::Dialing { connection, .. })
                if event == *connection =>
            {
                self.on_connected(now, event, out);
            }
            (NetworkEvent::Received { connection, buffer }, Stage::Linked(link))
                if connection == link.connection =>
            {
                self.on_received(now, buffer, out);
            }
            (NetworkEvent::Closed { connection: event }, Stage::Dialing { connection, .. })
                if event == *connection =>
            {
                self.on_lost(now);
            }
            (NetworkEvent::Closed { connection }, Stage::Linked(link))
                if connection == link.connection =>
            {
                self.on_lost(now);
            }
            _ => {}
        }
        self.advance(now, out);
    }

    /// Time has passed.
    pub fn on_timers(&mut self, now: Now, out: &mut Outbox) {
        self.expire(now.monotonic, out);
        self.advance(now.monotonic, out);
    }

    /// When [`Self::on_timers`] must be called next.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let stage = match &self.stage {
            Stage::Pausing { until } | Stage::Dialing { until, .. } => Some(*until),
            Stage::Linked(link) => Some(self.link_deadline(link)),
            Stage::Stopped(_) => None,
        };
        let outstanding = self
            .outstanding
            .as_ref()
            .map(|outstanding| outstanding.deadline);
        let queued = self.queue.front().map(|queued| queued.deadline);
        [stage, outstanding, queued].into_iter().flatten().min()
    }

    fn link_deadline(&self, link: &Link) -> Instant {
        match link.flight {
            Some(flight) => flight.until,
            None if self.has_work(link) => link.resume_at,
            None => link
                .resume_at
                .max(link.heard_at + self.config.timing.ping_interval),
        }
    }

    fn has_work(&self, link: &Link) -> bool {
        !link.is_registered || self.outstanding.is_some() || !self.queue.is_empty()
    }

    /// The requests that have ended since the last call, in the order they ended.
    #[must_use]
    pub fn take_completions(&mut self) -> Vec<Completion> {
        core::mem::take(&mut self.completions)
    }

    /// Whether a session is open.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(&self.stage, Stage::Linked(link) if link.is_registered)
    }

    /// Why the client gave up, if it did.
    #[must_use]
    pub const fn stopped(&self) -> Option<StopReason> {
        if let Stage::Stopped(reason) = self.stage {
            Some(reason)
        } else {
            None
        }
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.queue.len() + usize::from(self.outstanding.is_some())
    }

    /// The last number given to a write, for a successor under the same identity.
    #[must_use]
    pub const fn last_request(&self) -> u64 {
        self.counter
    }

    /// What has happened so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The configuration it was made with.
    #[must_use]
    pub const fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Ends the client; the server ends the session when it sees the connection close.
    pub fn close(&mut self, out: &mut Outbox) {
        if self.stopped().is_none() {
            self.stop(StopReason::Closed, out);
        }
    }

    /// Ends what has waited too long. A connection on which the answer may still come is of no
    /// more use: the next request's answer could not be told from it.
    fn expire(&mut self, now: Instant, out: &mut Outbox) {
        if self
            .outstanding
            .as_ref()
            .is_some_and(|outstanding| outstanding.deadline <= now)
        {
            let outstanding = self.outstanding.take().expect("just seen");
            let maybe_applied = outstanding.maybe_applied();
            if outstanding.in_flight {
                self.drop_link(now, out);
            }
            let outcome = Err(ClientError::Timeout { maybe_applied });
            self.completions.push(Completion {
                ticket: outstanding.ticket,
                request: outstanding.number,
                frame: None,
                outcome,
            });
        }
        while self
            .queue
            .front()
            .is_some_and(|queued| queued.deadline <= now)
        {
            let queued = self.queue.pop_front().expect("just seen");
            let outcome = Err(ClientError::Timeout {
                maybe_applied: false,
            });
            self.complete_queued(queued, outcome);
        }
    }

    fn complete_queued(&mut self, queued: Queued, outcome: Result<Reply, ClientError>) {
        let ticket = queued.ticket;
        self.completions.push(Completion {
            ticket,
            request: 0,
            frame: None,
            outcome,
        });
    }

    /// Walks the stages: does what can be done now.
    fn advance(&mut self, now: Instant, out: &mut Outbox) {
        match &self.stage {
            Stage::Pausing { until } if *until <= now => self.dial(now, out),
            Stage::Dialing { until, .. } if *until <= now => self.drop_link(now, out),
            Stage::Linked(link) => match link.flight {
                Some(flight) if flight.until <= now => self.drop_link(now, out),
                Some(_) => {}
                None if link.resume_at > now => {}
                None if !link.is_registered => self.send_login(now, out),
                None if self.has_work(link) => self.send_request(now, out),
                None if link.heard_at + self.config.timing.ping_interval <= now => {
                    self.send_ping(now, out);
                }
                None => {}
            },
            Stage::Pausing { .. } | Stage::Dialing { .. } | Stage::Stopped(_) => {}
        }
    }

    fn dial(&mut self, now: Instant, out: &mut Outbox) {
        self.counters.dials += 1;
        let connection = ConnectionId(ConnectionId::DIALED | self.counters.dials);
        let until = now + self.config.timing.connect_timeout;
        out.push(Effect::Connect {
            connection,
            address: self.config.nodes[self.node],
        });
        self.stage = Stage::Dialing { connection, until };
    }

    fn on_connected(&mut self, now: Instant, connection: ConnectionId, out: &mut Outbox) {
        let mut reader = FrameReader::new(self.config.limits.frame_size_max);
        out.push(Effect::Receive {
            connection,
            buffer: reader.buffer_to_receive(),
        });
        let (first, last) = self.config.timing.retry_pause;
        self.stage = Stage::Linked(Link {
            connection,
            reader,
            is_registered: false,
            flight: None,
            resume_at: now,
            heard_at: now,
            not_accepted_since: None,
            login_retry: Backoff::new(first, last),
        });
    }

    /// The connection is gone: the next node's turn.
    fn on_lost(&mut self, now: Instant) {
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.uncertain |= outstanding.in_flight;
            outstanding.in_flight = false;
        }
        self.node = (self.node + 1) % self.config.nodes.len();
        let until = now + self.redial.pause(&mut self.prng);
        self.stage = Stage::Pausing { until };
    }

    /// Closes the connection and goes on as if it were lost.
    fn drop_link(&mut self, now: Instant, out: &mut Outbox) {
        match &self.stage {
            Stage::Dialing { connection, .. } | Stage::Linked(Link { connection, .. }) => {
                out.push(Effect::Close {
                    connection: *connection,
                });
                self.on_lost(now);
            }
            Stage::Pausing { .. } | Stage::Stopped(_) => {}
        }
    }

    /// Closes a connection whose server does not keep to the protocol.
    fn drop_violator(&mut self, now: Instant, out: &mut Outbox) {
        self.counters.violations += 1;
        self.drop_link(now, out);
    }

    fn send_login(&mut self, now: Instant, out: &mut Outbox) {
        let frame = login::request(&self.config).into_frame(self.config.id, 0, 0);
        self.send(now, Purpose::Login, 0, frame, out);
    }

    fn send_ping(&mut self, now: Instant, out: &mut Outbox) {
        // A ping shows the next number and does not use it up, as all reads do.
        let number = self.counter + 1;
        let ping = RequestFrame::new(&Request::Ping);
        let frame = ping.into_frame(self.config.id, self.session, number);
        self.send(now, Purpose::Ping, number, frame, out);
    }

    fn send_request(&mut self, now: Instant, out: &mut Outbox) {
        if self.outstanding.is_some() {
            self.counters.repetitions += 1;
        } else if let Some(queued) = self.queue.pop_front() {
            self.outstanding = Some(self.numbered(queued));
        }
        let outstanding = self.outstanding.as_mut().expect("there is work");
        outstanding.in_flight = true;
        let number = outstanding.number;
        let frame = outstanding.stamp(self.session);
        self.send(now, Purpose::Request, number, frame, out);
    }

    fn numbered(&mut self, queued: Queued) -> Outstanding {
        let Queued {
            ticket,
            deadline,
            request,
        } = queued;
        let number = self.counter + 1;
        let is_write = request.is_write();
        if is_write {
            self.counter = number;
        }
        let (first, last) = self.config.timing.retry_pause;
        Outstanding {
            ticket,
            deadline,
            number,
            is_write,
            frame: request.into_frame(self.config.id, self.session, number),
            retry: Backoff::new(first, last),
            in_flight: false,
            uncertain: false,
        }
    }

    fn send(
        &mut self,
        now: Instant,
        purpose: Purpose,
        number: u64,
        frame: Bytes,
        out: &mut Outbox,
    ) {
        let until = now + self.config.timing.reply_timeout;
        let Stage::Linked(link) = &mut self.stage else {
            panic!("frames need a connection")
        };
        assert!(link.flight.is_none(), "one frame at a time");
        link.flight = Some(Flight {
            purpose,
            number,
            until,
        });
        out.push(Effect::Send {
            connection: link.connection,
            bytes: frame,
        });
    }

    /// Gives up for good; everything ends now.
    fn stop(&mut self, reason: StopReason, out: &mut Outbox) {
        match &self.stage {
            Stage::Dialing { connection, .. } | Stage::Linked(Link { connection, .. }) => {
                out.push(Effect::Close {
                    connection: *connection,
                });
            }
            Stage::Pausing { .. } | Stage::Stopped(_) => {}
        }
        self.stage = Stage::Stopped(reason);
        if let Some(outstanding) = &self.outstanding {
            let maybe_applied = outstanding.maybe_applied();
            self.complete(
                None,
                Err(ClientError::Stopped {
                    reason,
                    maybe_applied,
                }),
            );
        }
        while let Some(queued) = self.queue.pop_front() {
            let outcome = Err(ClientError::Stopped {
                reason,
                maybe_applied: false,
            });
            self.complete_queued(queued, outcome);
        }
    }
}
