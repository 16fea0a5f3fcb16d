//! Who has written what: the answers to the newest requests of each client, so that a retry is
//! answered and never appended again.
//!
//! The table is part of replicated state and changes at commit only. What the log holds beyond
//! the commit is tracked beside it, per replica, and rebuilt from the log.

use alloc::{collections::BTreeMap, vec::Vec};

use base::{ClientId, Offset, Op};
use wire::{
    Codec, DecodeError, ErrorCode, Reader, SnapshotError,
    snapshot::{read_outcome, write_outcome},
};

use base::Digest;

use crate::snapshot::count;

/// How outcomes are told apart in a snapshot.
const SENT: u8 = 1;
const DONE: u8 = 2;

/// What became of a committed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Messages were appended.
    Sent { base_offset: Offset, count: u32 },
    /// An offset was stored or deleted, segments were trimmed, or that was refused.
    Done(Result<(), ErrorCode>),
}

/// What the table says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it is new.
    Not,
    /// It is in the log and not committed.
    InFlight,
    /// It is committed, as this op.
    Committed(Op, Outcome),
    /// A later request of the client is committed.
    Superseded,
}

#[derive(Clone, Copy, Debug)]
struct Producer {
    request: u64,
    op: Op,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    newest: u64,
    count: u32,
}

/// The newest committed request of each client, bounded, and what is in flight.
///
/// **Invariant:** `by_age` holds exactly the clients of `producers`, each under its op.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    producers: BTreeMap<ClientId, Producer>,
    by_age: BTreeMap<Op, ClientId>,
    in_flight: BTreeMap<ClientId, InFlight>,
}

impl Producers {
    pub(crate) fn check(&self, client: ClientId, request: u64) -> Known {
        match self.producers.get(&client) {
            Some(known) if known.request == request => {
                return Known::Committed(known.op, known.outcome);
            }
            Some(known) if known.request > request => return Known::Superseded,
            _ => {}
        }
        match self.in_flight.get(&client) {
            Some(in_flight) if in_flight.newest >= request => Known::InFlight,
            _ => Known::Not,
        }
    }

    pub(crate) fn on_append(&mut self, client: ClientId, request: u64) {
        let entry = InFlight {
            newest: 0,
            count: 0,
        };
        let entry = self.in_flight.entry(client).or_insert(entry);
        entry.newest = entry.newest.max(request);
        entry.count += 1;
    }

    pub(crate) fn on_commit(&mut self, client: ClientId) {
        let entry = self
            .in_flight
            .get_mut(&client)
            .expect("committed requests were appended");
        entry.count -= 1;
        if entry.count == 0 {
            self.in_flight.remove(&client);
        }
    }

    pub(crate) fn forget_in_flight(&mut self) {
        self.in_flight.clear();
    }

    /// Notes a committed request; makes room by forgetting the client whose newest request is
    /// the oldest op.
    pub(crate) fn record(
        &mut self,
        (client, request): (ClientId, u64),
        op: Op,
        outcome: Outcome,
        producers_max: usize,
    ) {
        if let Some(known) = self.producers.remove(&client) {
            base::invariant!(known.request < request, "a request is recorded once");
            base::invariant!(known.op < op);
            self.by_age.remove(&known.op);
        } else if self.producers.len() >= producers_max {
            let (_, oldest) = self.by_age.pop_first().expect("a full table is not empty");
            self.producers.remove(&oldest);
        }
        self.producers.insert(
            client,
            Producer {
                request,
                op,
                outcome,
            },
        );
        self.by_age.insert(op, client);
        base::invariant!(self.producers.len() == self.by_age.len());
    }

    /// Appends the table, as far as it is committed, to a snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        count(self.producers.len()).write(out);
        for (client, producer) in &self.producers {
            client.0.write(out);
            producer.request.write(out);
            producer.op.0.write(out);
            match producer.outcome {
                Outcome::Sent { base_offset, count } => {
                    SENT.write(out);
                    base_offset.0.write(out);
                    count.write(out);
                }
                Outcome::Done(result) => {
                    DONE.write(out);
                    write_outcome(result, out);
                }
            }
        }
    }

    /// Reads what [`Self::write`] wrote after op `committed`.
    pub(crate) fn read(reader: &mut Reader<'_>, committed: Op) -> Result<Self, SnapshotError> {
        let mut table = Self::default();
        for _ in 0..reader.read::<u32>()? {
            let client = ClientId(reader.read()?);
            let (request, op) = (reader.read()?, Op(reader.read()?));
            let outcome = match reader.read::<u8>()? {
                SENT => Outcome::Sent {
                    base_offset: Offset(reader.read()?),
                    count: reader.read()?,
                },
                DONE => Outcome::Done(read_outcome(reader)?),
                _ => return Err(DecodeError::Kind.into()),
            };
            let last = table.producers.last_key_value();
            let in_order = last.is_none_or(|(last, _)| *last < client);
            let is_new = table.by_age.insert(op, client).is_none();
            if !in_order || !is_new || op > committed {
                return Err(SnapshotError::Contradiction);
            }
            table.producers.insert(
                client,
                Producer {
                    request,
                    op,
                    outcome,
                },
            );
        }
        Ok(table)
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        digest.u64(self.producers.len() as u64);
        for (client, producer) in &self.producers {
            digest.u128(client.0);
            digest.u64(producer.request);
            digest.u64(producer.op.0);
            match producer.outcome {
                Outcome::Sent { base_offset, count } => {
                    digest.u32(1);
                    digest.u64(base_offset.0);
                    digest.u32(count);
                }
                Outcome::Done(result) => {
                    digest.u32(2);
                    digest.u32(result.err().map_or(0, |code| code.0));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Outcome = Outcome::Sent {
        base_offset: Offset(0),
        count: 1,
    };

    #[test]
    fn at_the_limit_all_are_kept_one_beyond_forgets_the_oldest_op() {
        let mut producers = Producers::default();
        for op in 1..=3 {
            producers.record((ClientId(u128::from(op)), 1), Op(op), SENT, 3);
        }
        assert_eq!(
            producers.check(ClientId(1), 1),
            Known::Committed(Op(1), SENT)
        );
        // Client 1 writes again: now client 2 is the oldest.
        producers.record((ClientId(1), 2), Op(4), SENT, 3);
        producers.record((ClientId(4), 1), Op(5), SENT, 3);
        assert_eq!(producers.check(ClientId(2), 1), Known::Not);
        assert_eq!(producers.check(ClientId(1), 1), Known::Superseded);
        assert_eq!(
            producers.check(ClientId(1), 2),
            Known::Committed(Op(4), SENT)
        );
        assert_eq!(
            producers.check(ClientId(3), 1),
            Known::Committed(Op(3), SENT)
        );
    }

    #[test]
    fn in_flight_until_all_of_a_client_are_committed() {
        let mut producers = Producers::default();
        let client = ClientId(9);
        producers.on_append(client, 4);
        producers.on_append(client, 6);
        assert_eq!(producers.check(client, 5), Known::InFlight);
        assert_eq!(producers.check(client, 7), Known::Not);
        producers.on_commit(client);
        assert_eq!(producers.check(client, 6), Known::InFlight);
        producers.on_commit(client);
        assert_eq!(producers.check(client, 6), Known::Not);
    }

    #[test]
    #[should_panic(expected = "recorded once")]
    fn recording_a_request_twice_is_a_bug() {
        let mut producers = Producers::default();
        producers.record((ClientId(1), 1), Op(1), SENT, 3);
        producers.record((ClientId(1), 1), Op(2), SENT, 3);
    }
}
