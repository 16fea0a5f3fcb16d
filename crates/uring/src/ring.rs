//! One shard's body: executes effects and yields events.
//!
//! A turn costs one entry into the kernel: requests of all effects gather in the submission
//! queue, sends gather per connection, and [`Ring::wait`] hands all of it over and waits in the
//! same call.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    path::Path,
    rc::Rc,
    sync::mpsc::Sender,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base::{Instant, ShardIndex, Timestamp};
use platform::{
    Address, ConnectionId, Effect, Event, Fatal, Level, ListenerId, NetworkEvent, Now, Token,
};

use crate::{
    Report,
    compute::Job,
    disk::{Disk, Step},
    kernel::{Completion, Kernel, Request},
    mail::{Mail, Parcel, Port},
    network::Network,
};

/// What a request in flight is for.
pub(crate) enum Purpose {
    Wake,
    Accept(ListenerId),
    Connect(ConnectionId),
    Receive(ConnectionId),
    Send(ConnectionId),
    Disk(Token, Step),
}

/// How a ring works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Room for requests that one turn submits; more cost a second entry into the kernel.
    pub entries: u32,
    /// How long a closed connection may take to send what was queued and to close its side.
    pub close_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            entries: 1024,
            close_grace: Duration::from_secs(2),
        }
    }
}

/// Why a shard's loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// In good order, after [`Event::Stop`].
    Stopped,
    /// The node cannot go on.
    Halted(Fatal),
}

/// The body of one shard, for one thread.
pub struct Ring {
    // First, so that it is dropped first: it waits for everything in flight.
    kernel: Kernel<Purpose>,
    shard: ShardIndex,
    network: Network,
    disk: Disk,
    mail: Mail,
    bell: Rc<File>,
    inbox: VecDeque<Event>,
    reports: Sender<Report>,
    work: Sender<Job>,
    exit: Option<Exit>,
}

impl Ring {
    /// The body of the port's shard, for the calling thread, with files under `data`.
    ///
    /// # Errors
    /// If the kernel gives no ring or the directory cannot be opened.
    pub fn new(port: Port, data: &Path, options: &Options) -> io::Result<Self> {
        let shard = port.shard();
        let (mail, reports, work) = port.open();
        let mut ring = Self {
            kernel: Kernel::new(options.entries)?,
            shard,
            network: Network::new(shard, options.close_grace),
            disk: Disk::new(data.to_path_buf())?,
            bell: Rc::new(mail.bell()?),
            mail,
            inbox: VecDeque::new(),
            reports,
            work,
            exit: None,
        };
        ring.listen_for_bell()?;
        Ok(ring)
    }

    fn listen_for_bell(&mut self) -> io::Result<()> {
        let request = Request::Wake {
            eventfd: self.bell.clone(),
            value: vec![0],
        };
        self.kernel.submit(request, Purpose::Wake)?;
        Ok(())
    }

    /// The time, for a turn.
    #[must_use]
    pub fn now(&self) -> Now {
        let micros = |elapsed: Duration| u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let realtime = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            monotonic: Instant(micros(self.mail.epoch().elapsed())),
            realtime: Timestamp(micros(realtime)),
        }
    }

    /// Submits everything and waits until there is an event or `deadline` has come.
    ///
    /// # Errors
    /// If the ring itself fails.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        loop {
            self.mail.flush();
            if !self.mail.congested() {
                self.network.resume(&mut self.kernel)?;
            }
            self.network.flush(&mut self.kernel, &mut self.inbox)?;
            self.collect();
            let now = self.now().monotonic;
            let due = deadline.is_some_and(|deadline| deadline <= now);
            let timeout = if due || !self.inbox.is_empty() {
                Some(Duration::ZERO)
            } else {
                let next = deadline.into_iter().chain(self.network.deadline()).min();
                // One more, because the clock's microseconds are cut.
                next.map(|next| next.since(now) + Duration::from_micros(1))
            };
            self.kernel.wait(timeout)?;
            let now = self.now().monotonic;
            while let Some(completion) = self.kernel.completed() {
                self.on_completion(now, completion)?;
            }
            self.network.on_timers(&mut self.kernel, now)?;
            if due || !self.inbox.is_empty() {
                return Ok(());
            }
        }
    }

    fn on_completion(&mut self, now: Instant, completion: Completion) -> io::Result<()> {
        let Self {
            kernel,
            network,
            disk,
            inbox,
            ..
        } = self;
        if completion.more {
            let Purpose::Accept(listener) = *kernel.purpose(completion.key) else {
                unreachable!("only accepts go on");
            };
            return network.on_accept(kernel, now, listener, completion, inbox);
        }
        let (request, purpose) = kernel.take(&completion);
        let result = completion.result;
        match (purpose, request) {
            (Purpose::Wake, _) => self.listen_for_bell(),
            (Purpose::Accept(listener), _) => {
                network.on_accept(kernel, now, listener, completion, inbox)
            }
            (Purpose::Connect(id), _) => network.on_connect(kernel, id, result, inbox),
            (Purpose::Receive(id), Request::Receive { buffer, .. }) => {
                network.on_receive(kernel, now, id, buffer, result, inbox)
            }
            (Purpose::Send(id), Request::Send { bytes, skip, .. }) => {
                network.on_send(kernel, id, bytes, skip, result, inbox)
            }
            (Purpose::Disk(token, step), request) => {
                let outcome = (result, completion.opened);
                disk.on_completion(kernel, request, (token, step), outcome, inbox)
            }
            (Purpose::Receive(_) | Purpose::Send(_), _) => unreachable!("submitted as such"),
        }
    }

    /// Takes what other threads have left.
    fn collect(&mut self) {
        let Self {
            mail,
            network,
            inbox,
            ..
        } = self;
        mail.collect(|from, parcel| {
            inbox.push_back(match parcel {
                Parcel::Letter(letter) => Event::Letter { from, letter },
                Parcel::Connection(passage) => network.adopt(passage),
            });
        });
        for (token, outcome) in mail.computed() {
            inbox.push_back(Event::Computed { token, outcome });
        }
        if mail.stop_asked() {
            inbox.push_back(Event::Stop);
        }
    }

    /// How many events there are now.
    #[must_use]
    pub fn events(&self) -> usize {
        self.inbox.len()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let event = self.inbox.pop_front()?;
            match &event {
                Event::Network(event) if !self.network.may_tell(event) => {}
                _ => return Some(event),
            }
        }
    }

    /// Does what an effect asks, or starts to.
    ///
    /// # Errors
    /// If the ring itself fails.
    pub fn execute(&mut self, effect: Effect) -> io::Result<()> {
        let Self {
            kernel,
            network,
            disk,
            inbox,
            ..
        } = self;
        match effect {
            Effect::Listen { listener, address } => self.listen(listener, address),
            Effect::Connect {
                connection,
                address,
            } => {
                network.connect(kernel, connection, address, inbox)?;
            }
            Effect::Receive { connection, buffer } => {
                let congested = self.mail.congested();
                network.receive(kernel, connection, buffer, congested)?;
            }
            Effect::Send { connection, bytes } => network.send(connection, bytes),
            Effect::Close { connection } => {
                let now = self.now().monotonic;
                self.network.close(&mut self.kernel, now, connection)?;
            }
            Effect::HandOver {
                connection,
                to,
                received,
                listener,
            } => {
                if let Some(passage) = network.hand_over(connection, listener, received) {
                    self.mail.post(to, Parcel::Connection(passage));
                }
            }
            Effect::Disk { token, request } => disk.execute(kernel, token, request, inbox)?,
            Effect::Post { to, letter } => self.mail.post(to, Parcel::Letter(letter)),
            Effect::Compute { token, work } => {
                let job = Job {
                    shard: self.shard,
                    token,
                    work,
                };
                self.work
                    .send(job)
                    .expect("the compute thread lives as long as its senders");
            }
            Effect::Ready => self.report(Report::Ready { shard: self.shard }),
            Effect::Stopped => self.exit = Some(Exit::Stopped),
            Effect::Halt { fatal } => self.exit = Some(Exit::Halted(fatal)),
            Effect::Log { level, line } => self.log(level, &line),
        }
        Ok(())
    }

    fn listen(&mut self, listener: ListenerId, address: Address) {
        match self.network.listen(&mut self.kernel, listener, address) {
            Ok(address) => {
                let event = NetworkEvent::Listening { listener, address };
                self.inbox.push_back(Event::Network(event));
                let shard = self.shard;
                self.report(Report::Listening {
                    shard,
                    listener,
                    address,
                });
            }
            Err(error) => {
                tracing::error!("cannot listen on {address}: {error}");
                self.exit = Some(Exit::Halted(Fatal::Bind));
            }
        }
    }

    fn log(&self, level: Level, line: &str) {
        match level {
            Level::Info => tracing::info!(shard = self.shard.0, "{line}"),
            Level::Warn => tracing::warn!(shard = self.shard.0, "{line}"),
            Level::Error => tracing::error!(shard = self.shard.0, "{line}"),
        }
    }

    fn report(&self, report: Report) {
        // Nobody listens when the process ends.
        let _ = self.reports.send(report);
    }

    /// Whether the shard has ended, by its own word or because it could not listen.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// Gives what was queued on connections a chance to leave, within the grace period.
    ///
    /// # Errors
    /// If the ring itself fails.
    pub fn drain(&mut self, grace: Duration) -> io::Result<()> {
        let until = self.now().monotonic + grace;
        while self.network.sending() && self.now().monotonic < until {
            let step = self.now().monotonic + Duration::from_millis(10);
            self.wait(Some(step.min(until)))?;
            self.inbox.clear();
        }
        self.mail.flush();
        Ok(())
    }
}
