//! State of one group and the dispatch of what it is told; the phases of the protocol live in
//! the files named after them.

use alloc::vec::Vec;
use core::time::Duration;

use base::{Bytes, GroupId, Instant, Op, Prng, ReplicaIndex, View};
use wire::replica::{Envelope, GroupStatus, Message, PrepareHeader, StatusRole, Trust};

use crate::{
    ignore::{Ignore, Ignored},
    install::Install,
    log::Log,
    log_merge::Candidate,
    promises::Promises,
    quorum::Quorums,
    rejoin::Rejoin,
    timeouts::{Timeout, Timeouts},
    view_change::Begun,
};

/// Replicas of the largest group.
pub const REPLICAS_MAX: usize = 7;

/// Timeouts of a group; all on a 10 ms grid, with jitter where replicas could resonate.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two votes while a view change goes on.
    pub view_change_retry: Duration,
    /// After which a view change that got nowhere moves to the next view.
    pub view_change: Duration,
    /// Between two requests for missing prepares.
    pub repair_retry: Duration,
}

/// What a group is and how it behaves.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// Which group.
    pub group: GroupId,
    /// The cluster.
    pub cluster: u128,
    /// This replica.
    pub replica: ReplicaIndex,
    /// All replicas, 1 to 7.
    pub replica_count: u8,
    /// Uncommitted ops that a primary keeps in flight.
    pub pipeline_max: usize,
    /// Prepares asked for and served at once.
    pub repair_max: u64,
    /// Timeouts.
    pub timing: Timing,
}

/// What a replica must not forget about a group: what it has promised, and what its log is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stand {
    /// It has left all views before this one.
    pub view: View,
    /// The view its log belongs to.
    pub log_view: View,
    /// What its log is worth as a witness.
    pub trust: Trust,
}

/// What a group asks for, in order.
#[derive(Debug)]
pub enum Effect {
    /// Send a frame to another replica of this group.
    Send {
        /// To whom.
        to: ReplicaIndex,
        /// What.
        frame: Bytes,
    },
    /// Append a prepare to the journal; `on_durable` tells when it is as durable as the group's
    /// mode asks.
    Append {
        /// The whole frame.
        prepare: Bytes,
    },
    /// Cut the journal after `op`; `on_truncated` tells when that is durable.
    TruncateAfter {
        /// The last op to keep.
        op: Op,
    },
    /// Make this durable; `on_view_durable` tells when it is.
    PersistView(Stand),
    /// This prepare is committed; in op order, each once.
    Commit {
        /// The whole frame.
        prepare: Bytes,
    },
    /// Read prepares from the journal and send them to `to`, each in an envelope of `view`, if
    /// [`Group::vouches`] for that view still holds when they have been read.
    ServePrepares {
        /// To whom.
        to: ReplicaIndex,
        /// The view that vouches.
        view: View,
        /// First op.
        from: Op,
        /// Last op.
        until: Op,
    },
    /// Read `op` from the journal; if it has this identity, send it to `to` in an envelope of any
    /// view.
    ServeBody {
        /// To whom.
        to: ReplicaIndex,
        /// Which op.
        op: Op,
        /// Its identity.
        checksum: u128,
    },
    /// View, role or status have changed.
    RoleChanged,
    /// The log is trusted again, durably.
    Trusted,
    /// A view begins with all replicas heard but no quorum of trusted logs among them: what was
    /// acknowledged may be gone.
    LossPossible,
    /// All replicas are heard, and still nobody can tell whether `op` was committed: no log has
    /// its body, and too few never held it. The group stops rather than guess, until a replica
    /// finds the body.
    Undecidable {
        /// The first such op.
        op: Op,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The log belongs to the view.
    Normal,
    /// This replica has left all earlier views and its log does not belong to this one yet.
    ViewChange,
}

/// One replica of one group.
pub struct Group {
    pub(crate) config: GroupConfig,
    pub(crate) quorums: Quorums,
    pub(crate) prng: Prng,
    pub(crate) status: Status,
    pub(crate) view: View,
    pub(crate) log_view: View,
    pub(crate) view_durable: View,
    pub(crate) log_view_durable: View,
    pub(crate) log: Log,
    /// Highest op known to be committed in the group.
    pub(crate) commit_max: Op,
    /// Highest op of this log that the journal says is as durable as the mode asks; bodies
    /// before it may be missing.
    pub(crate) written: Op,
    /// The truncation under way; a view's log is not complete before it is durable.
    pub(crate) truncating: Option<Op>,
    /// What the log is worth as a witness of what this replica has acknowledged.
    pub(crate) trust: Trust,
    pub(crate) trust_durable: Trust,
    /// From where on a log in doubt holds all that again: the primary's head, once heard.
    pub(crate) trusted_from: Option<Op>,
    /// Primary: up to where each replica has acknowledged, in this view.
    pub(crate) acked: [Op; REPLICAS_MAX],
    /// Primary: the head when the view began; it serves once all up to it is committed.
    pub(crate) barrier: Op,
    /// Primary that restarted or hears no quorum: it prepares and serves nothing.
    pub(crate) abdicated: bool,
    /// Highest op known to be in the view's log.
    pub(crate) target: Op,
    /// Last op asked of a peer; the answer ends there.
    pub(crate) requested: Op,
    pub(crate) install: Option<Install>,
    /// View changes in a row that came to nothing.
    pub(crate) fruitless: u32,
    /// The op that was last said to be undecidable.
    pub(crate) undecidable: Option<Op>,
    pub(crate) rejoin: Rejoin,
    /// Whether this replica wishes for the next view.
    pub(crate) suspicious: bool,
    /// The view each replica wishes for.
    pub(crate) wishes: [View; REPLICAS_MAX],
    /// New primary: the logs it has been told.
    pub(crate) votes: [Option<Candidate>; REPLICAS_MAX],
    /// Read leases that rest on this replica's word.
    pub(crate) promises: Promises,
    pub(crate) timeouts: Timeouts,
    pub(crate) ignored: Ignored,
    status_changed: bool,
}

/// What a caller fills a new prepare's header with.
#[derive(Clone, Copy, Debug)]
pub struct PrepareSlot {
    /// The view.
    pub view: View,
    /// The op.
    pub op: Op,
    /// Identity of the op before.
    pub parent: u128,
    /// The commit to carry.
    pub commit: Op,
}

impl Group {
    pub(crate) fn new(config: GroupConfig, log: Log, prng: Prng) -> Self {
        base::invariant!(usize::from(config.replica_count) <= REPLICAS_MAX);
        base::invariant!(config.replica.0 < config.replica_count);
        base::invariant!(config.pipeline_max > 0);
        Self {
            config,
            quorums: Quorums::new(config.replica_count),
            prng,
            status: Status::Normal,
            view: View(0),
            log_view: View(0),
            view_durable: View(0),
            log_view_durable: View(0),
            commit_max: log.committed(),
            written: log.op(),
            log,
            truncating: None,
            trust: Trust::Trusted,
            trust_durable: Trust::Trusted,
            trusted_from: None,
            acked: [Op(0); REPLICAS_MAX],
            barrier: Op(0),
            abdicated: false,
            target: Op(0),
            requested: Op(0),
            install: None,
            fruitless: 0,
            undecidable: None,
            rejoin: Rejoin::default(),
            suspicious: false,
            wishes: [View(0); REPLICAS_MAX],
            votes: [const { None }; REPLICAS_MAX],
            promises: Promises::default(),
            timeouts: Timeouts::default(),
            ignored: Ignored::default(),
            status_changed: true,
        }
    }

    /// Handles a frame of this group from `from`; `frame` is verified, `message` decoded from
    /// it.
    pub fn on_message(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        let from = envelope.replica;
        if from == self.config.replica || from.0 >= self.config.replica_count {
            return self.ignore(Ignore::Stranger);
        }
        let view = envelope.view;
        match message {
            Message::PrepareOk { op, checksum, .. } => {
                self.on_prepare_ok(from, view, op, checksum, out);
            }
            Message::StartViewChange { .. } => self.on_start_view_change(now, from, view, out),
            Message::DoViewChange {
                op,
                commit,
                log_view,
                trust,
                checksum,
                headers,
                faulty,
                nonce,
                ..
            } => {
                let vote = Candidate {
                    op,
                    checksum,
                    commit,
                    log_view,
                    trust,
                    headers,
                    faulty,
                    nonce,
                };
                self.on_do_view_change(now, from, view, vote, out);
            }
            Message::StartView {
                op,
                commit,
                checksum,
                headers,
                nonce,
                ..
            } => {
                let begun = Begun {
                    op,
                    checksum,
                    commit,
                    headers,
                    nonce,
                };
                self.on_start_view(now, from, view, &begun, out);
            }
            Message::RequestPrepares {
                from: first, to, ..
            } => {
                self.on_request_prepares(from, view, first, to, out);
            }
            Message::RequestBody { op, checksum, .. } => {
                self.on_request_body(from, op, checksum, out);
            }
            Message::RepairPrepare { .. }
            | Message::Heartbeat { .. }
            | Message::RequestCheckpoint { .. }
            | Message::CheckpointChunk { .. } => {
                unreachable!("told through on_repair and on_status, or not consensus' business")
            }
        }
        self.invariants();
    }

    /// `stand` is durable.
    pub fn on_view_durable(&mut self, now: Instant, stand: Stand, out: &mut Vec<Effect>) {
        base::invariant!(stand.view <= self.view && stand.log_view <= self.log_view);
        let blank = |group: &Self| group.trust_durable == Trust::Blank;
        let before = (self.view_durable, self.log_view_durable, blank(self));
        self.view_durable = self.view_durable.max(stand.view);
        self.log_view_durable = self.log_view_durable.max(stand.log_view);
        let regained = self.trust_durable != Trust::Trusted && self.trust == Trust::Trusted;
        self.trust_durable = stand.trust;
        if regained && stand.trust == Trust::Trusted {
            out.push(Effect::Trusted);
        }
        // While it was not durable nothing could be told.
        self.touch();
        self.cut_in_doubt(now, out);
        if before != (self.view_durable, self.log_view_durable, blank(self)) {
            self.speak(now, out);
        }
        self.invariants();
    }

    /// Says what waited for `(view, log_view)` to be durable.
    pub(crate) fn speak(&mut self, now: Instant, out: &mut Vec<Effect>) {
        if self.suspicious && !self.timeouts.is_set(Timeout::StartViewChange) {
            self.wish(now, out);
        }
        match self.status {
            Status::ViewChange if self.view_durable == self.view => {
                self.send_do_view_change(now, out);
            }
            Status::Normal if self.is_settled() => {
                if self.is_primary() {
                    self.announce_view(out);
                } else {
                    self.send_prepare_ok(out);
                }
            }
            _ => {}
        }
    }

    /// Lets due timers fire; call when [`Self::deadline`] has passed.
    pub fn on_timers(&mut self, now: Instant, out: &mut Vec<Effect>) {
        for timeout in Timeout::ALL {
            if !self.timeouts.fire(timeout, now) {
                continue;
            }
            match timeout {
                Timeout::StartViewChange => self.on_wish_timeout(now, out),
                Timeout::DoViewChange => self.send_do_view_change(now, out),
                Timeout::ViewChange => self.on_view_change_timeout(now, out),
                Timeout::Repair => self.on_repair_timeout(now, out),
            }
        }
        self.invariants();
    }

    /// When [`Self::on_timers`] must be called; none in normal operation without gaps.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.timeouts.next()
    }

    /// Where this replica stands, for its peers; nothing while its view is not durable.
    #[must_use]
    pub fn status(&self) -> Option<GroupStatus> {
        if self.view_durable < self.view {
            return None;
        }
        let wishes = self.suspicious && !base::planted::bug(40);
        Some(GroupStatus {
            group: self.config.group,
            view: self.view,
            log_view: self.log_view,
            op: self.log.op(),
            commit: self.log.committed(),
            checksum: self.log.checksum(),
            role: match self.status {
                _ if self.is_blank() => self.blank_role(),
                Status::Normal if self.abdicated || wishes => StatusRole::Abdicated,
                Status::Normal if self.is_settled() => StatusRole::Normal,
                _ => StatusRole::ViewChange,
            },
        })
    }

    /// Whether the status has changed, or needs an answer, since the last call.
    pub fn take_status_changed(&mut self) -> bool {
        let outstanding = self.log.uncommitted() > 0 && self.is_primary();
        let unsettled = self.status == Status::ViewChange || self.suspicious || self.abdicated;
        core::mem::take(&mut self.status_changed) || outstanding || unsettled
    }

    pub(crate) const fn touch(&mut self) {
        self.status_changed = true;
    }

    pub(crate) fn send(&self, to: ReplicaIndex, message: &Message, out: &mut Vec<Effect>) {
        base::invariant!(to != self.config.replica);
        let frame = message.encode(self.config.cluster, self.view, self.config.replica);
        out.push(Effect::Send { to, frame });
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = ReplicaIndex> + use<> {
        let own = self.config.replica;
        (0..self.config.replica_count)
            .map(ReplicaIndex)
            .filter(move |replica| *replica != own)
    }

    pub(crate) fn persist(&self, out: &mut Vec<Effect>) {
        out.push(Effect::PersistView(Stand {
            view: self.view,
            log_view: self.log_view,
            trust: self.trust,
        }));
    }

    pub(crate) const fn ignore(&mut self, reason: Ignore) {
        self.ignored.add(reason);
    }

    /// This group.
    #[must_use]
    pub const fn id(&self) -> GroupId {
        self.config.group
    }

    /// The view it is in.
    #[must_use]
    pub const fn view(&self) -> View {
        self.view
    }

    /// The view its log belongs to.
    #[must_use]
    pub const fn log_view(&self) -> View {
        self.log_view
    }

    /// Last op of its log.
    #[must_use]
    pub const fn op(&self) -> Op {
        self.log.op()
    }

    /// Identity of the head, 0 for an empty log.
    #[must_use]
    pub const fn checksum(&self) -> u128 {
        self.log.checksum()
    }

    /// Last op applied.
    #[must_use]
    pub const fn commit(&self) -> Op {
        self.log.commit()
    }

    /// Whether the log holds all this replica may have acknowledged.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        matches!(self.trust, Trust::Trusted)
    }

    /// The primary of the view it is in.
    #[must_use]
    pub fn primary(&self) -> ReplicaIndex {
        self.view.primary(self.config.replica_count)
    }

    /// Whether this replica is the primary of the view it is in; it may not serve yet.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.primary() == self.config.replica
    }

    /// Whether the log belongs to the view.
    #[must_use]
    pub fn is_normal(&self) -> bool {
        self.status == Status::Normal
    }

    /// Whether this is a primary that may answer from its state: its view stands, and all that
    /// earlier views acknowledged has been applied.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.leads() && !self.is_being_founded() && self.log.commit() >= self.barrier
    }

    /// Whether this is a primary that may append another op now.
    #[must_use]
    pub fn can_prepare(&self) -> bool {
        let room = self.log.uncommitted() < self.config.pipeline_max;
        self.leads() && room && !self.is_being_founded() && self.log.complete() == self.log.op()
    }

    /// Up to where the log is as durable as the mode asks, without a hole.
    pub(crate) fn durable(&self) -> Op {
        self.written.min(self.log.complete())
    }

    pub(crate) fn leads(&self) -> bool {
        self.status == Status::Normal && self.is_primary() && !self.abdicated && self.is_settled()
    }

    /// Whether it is durable that the log belongs to the view, and that this replica is not blank.
    pub(crate) fn is_settled(&self) -> bool {
        self.log_view_durable == self.view && self.trust_durable != Trust::Blank
    }

    /// Whether this replica's log may still be served as that of `view`.
    #[must_use]
    pub fn vouches(&self, view: View) -> bool {
        self.view == view && self.install.is_none()
    }

    /// The frames after the commit, in order.
    pub fn uncommitted(&self) -> impl Iterator<Item = &Bytes> {
        self.log.frames()
    }

    /// Whether no body after the commit is missing.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.log.missing().next().is_none()
    }

    /// The header of `op`, if it is among the newest.
    #[must_use]
    pub fn header(&self, op: Op) -> Option<&PrepareHeader> {
        self.log.header(op)
    }

    /// How often each reason to ignore a message came up.
    #[must_use]
    pub const fn ignored(&self) -> &Ignored {
        &self.ignored
    }

    /// What always holds:
    ///
    /// ```text
    /// committed <= commit_max    written <= op    log_view <= view
    /// view_durable <= view             log_view_durable <= log_view
    /// normal <=> log_view = view       install only between views
    /// blank => not normal
    /// ```
    ///
    /// # Panics
    /// If one of them does not.
    pub fn invariants(&self) {
        self.log.invariants();
        base::invariant!(self.log.committed() <= self.commit_max);
        base::invariant!(self.written <= self.log.op());
        base::invariant!(self.log_view <= self.view);
        base::invariant!(self.view_durable <= self.view);
        base::invariant!(self.log_view_durable <= self.log_view);
        match self.status {
            Status::Normal => {
                base::invariant_eq!(self.log_view, self.view);
                base::invariant!(self.install.is_none());
                base::invariant!(!self.is_blank());
            }
            Status::ViewChange => {
                base::invariant!(self.log_view < self.view || self.is_blank());
            }
        }
        if let Some(install) = &self.install {
            let cut = install.only_plans_a_cut();
            base::invariant!(cut || install.vetted >= self.log.committed());
            base::invariant!(install.vetted <= self.log.op());
        }
    }
}
