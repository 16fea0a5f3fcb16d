//! Tickets: client requests that wait for their answers here, and how answers find them.

use alloc::{collections::BTreeMap, vec::Vec};

use base::{Instant, Op, ReplicaIndex};
use platform::{ConnectionId, Effect, Letter, Ticket};
use wire::{Code, ErrorCode, Operation, RequestHeader, header::denial};

use super::{
    Shard,
    pending::{Pending, Stage},
};
use crate::ask::{Answer, Ask};

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) connection: ConnectionId,
    pub(super) header: RequestHeader,
    until: Instant,
}

/// All requests that wait at this shard.
#[derive(Debug)]
pub(super) struct Tickets {
    waiting: BTreeMap<u64, Waiting>,
    newest: u64,
}

/// Answers by the metadata op that must be applied here before they are told.
pub(super) type Held = BTreeMap<Op, Vec<Answer>>;

/// Requests passed to another node, so that they can be given up when its link goes.
pub(super) type Passed = BTreeMap<Ticket, Owed>;

/// What another node owes an answer to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    by: ReplicaIndex,
    header: RequestHeader,
    /// After this, nobody waits for it.
    until: Instant,
}

impl Tickets {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Numbers begin at a random place: an answer that another node owes to this one's last life
    /// must not be taken for the answer to somebody else's request.
    pub(super) const fn new(random: u64) -> Self {
        Self {
            waiting: BTreeMap::new(),
            newest: random / 2,
        }
    }

    pub(super) fn issue(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        until: Instant,
    ) -> u64 {
        self.newest += 1;
        self.waiting.insert(
            self.newest,
            Waiting {
                connection,
                header,
                until,
            },
        );
        self.newest
    }

    /// A number for a request of the server's own: nobody waits for it here.
    pub(super) const fn own(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    fn take(&mut self, number: u64) -> Option<Waiting> {
        self.waiting.remove(&number)
    }

    /// The connection whose request has this ticket.
    pub(super) fn connection(&self, number: u64) -> Option<ConnectionId> {
        Some(self.waiting.get(&number)?.connection)
    }

    /// Tickets are issued with one patience, so the oldest ends first.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting
            .first_key_value()
            .map(|(_, waiting)| waiting.until)
    }
}

/// The code for a request whose outcome will not be known: a write may have entered the log, and
/// so may the offset that a poll commits; any other read certainly changed nothing.
const fn outcome_unknown(header: &RequestHeader) -> ErrorCode {
    const POLL: u32 = Code::PollMessages.number();
    const POLL_ON_PRIMARY: u32 = Code::PollOnPrimary.number();
    match (header.operation, header.code) {
        (Operation::NonReplicated, POLL | POLL_ON_PRIMARY) => ErrorCode::TRANSIENT_NOT_COMMITTED,
        (Operation::NonReplicated, _) => ErrorCode::TRANSIENT_NOT_ACCEPTED,
        _ => ErrorCode::TRANSIENT_NOT_COMMITTED,
    }
}

impl Shard {
    /// A client has gone: nobody waits for its answer any more.
    pub(super) fn on_client_closed(&mut self, id: ConnectionId) {
        self.on_member_closed(id);
        let number = self.connections.on_closed(id);
        let Some(number) = number else { return };
        self.tickets.take(number);
        self.pending.remove(&number);
        self.forget_passed(number);
    }

    /// Nobody waits here for the answer that another node owes.
    fn forget_passed(&mut self, number: u64) {
        let (replica, shard) = (self.core.config.replica, self.core.config.shard);
        self.passed.remove(&Ticket {
            replica,
            shard,
            number,
        });
    }

    /// Takes an answer a step nearer to its ticket.
    pub(super) fn on_answer(&mut self, answer: Answer) {
        let (replica, shard) = (self.core.config.replica, self.core.config.shard);
        let ticket = answer.ticket;
        if ticket.replica != replica {
            let frame = answer.forward(self.core.config.cluster, replica);
            self.core
                .links
                .send(ticket.replica, frame, &mut self.core.out);
            return;
        }
        if ticket.shard != shard {
            let Answer {
                metadata_op, frame, ..
            } = answer;
            let letter = Letter::Reply {
                ticket,
                metadata_op,
                frame,
            };
            return self.core.out.push(Effect::Post {
                to: ticket.shard,
                letter,
            });
        }
        if answer.metadata_op > self.metadata.op() {
            self.held
                .entry(answer.metadata_op)
                .or_default()
                .push(answer);
            return;
        }
        self.deliver(answer);
    }

    /// Answers that waited for the metadata to get here.
    pub(super) fn release_held(&mut self) {
        while let Some(entry) = self.held.first_entry() {
            if *entry.key() > self.metadata.op() {
                return;
            }
            self.core.answers.extend(entry.remove());
        }
    }

    /// Tells the client, or goes on with its request.
    fn deliver(&mut self, answer: Answer) {
        let number = answer.ticket.number;
        let pending = self.pending.remove(&number);
        let Some(waiting) = self.tickets.take(number) else {
            return self.on_own_answer(answer);
        };
        if let Some(Pending {
            ask,
            stage: Stage::Refresh,
            ..
        }) = pending
        {
            return self.on_refreshed(&waiting, &ask.frame, &answer.frame);
        }
        let frame = match waiting.header.operation {
            Operation::Register => self.finish_login(&waiting, answer.frame),
            Operation::Logout => self.finish_logout(&waiting, answer.frame),
            Operation::CreatePersonalAccessToken => self.finish_token(&waiting, answer.frame),
            _ => answer.frame,
        };
        self.tell(&waiting, frame);
    }

    pub(super) fn tell(&mut self, waiting: &Waiting, frame: Vec<base::Bytes>) {
        let Some(connection) = self.connections.get_mut(waiting.connection) else {
            return;
        };
        connection.busy = None;
        self.connections
            .send(waiting.connection, frame, &mut self.core.out);
        self.serve(waiting.connection);
    }

    /// An answer from another node, by way of this shard.
    pub(super) fn on_passed_answer(&mut self, answer: Answer) {
        self.passed.remove(&answer.ticket);
        self.core.answers.push(answer);
    }

    /// Remembers that `to` owes the answer.
    pub(super) fn note_passed(&mut self, to: ReplicaIndex, ask: &Ask) {
        if ask.ticket.replica == self.core.config.replica {
            let owed = Owed {
                by: to,
                header: ask.header,
                until: self.core.now.monotonic + self.core.config.timing.request,
            };
            self.passed.insert(ask.ticket, owed);
        }
    }

    /// Forgets what is owed to nobody any more: an answer may be lost with its link standing.
    pub(super) fn expire_passed(&mut self) {
        let now = self.core.now.monotonic;
        self.passed.retain(|_, owed| owed.until > now);
    }

    /// The link to `peer` has gone: what it owes will not come.
    pub(super) fn on_link_down(&mut self, peer: ReplicaIndex) {
        self.drop_parked_of(peer);
        let owed = self.passed.iter().filter(|(_, owed)| owed.by == peer);
        for ticket in owed.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let Owed { header, .. } = self.passed.remove(&ticket).expect("listed above");
            let frame = alloc::vec![denial(&header, outcome_unknown(&header))];
            self.core.answers.push(Answer {
                ticket,
                metadata_op: Op(0),
                frame,
            });
        }
    }

    pub(super) fn expire_tickets(&mut self) {
        let now = self.core.now.monotonic;
        while self.tickets.deadline().is_some_and(|until| until <= now) {
            let Some((number, waiting)) = self.tickets.waiting.pop_first() else {
                return;
            };
            self.forget_passed(number);
            self.pending.remove(&number);
            let frame = alloc::vec![denial(&waiting.header, outcome_unknown(&waiting.header))];
            self.tell(&waiting, frame);
        }
    }
}
