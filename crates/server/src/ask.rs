//! A client request on its way to whoever can answer it, and the answer on its way back.
//!
//! The shard that holds the connection makes a ticket; the ask may pass to another shard of the
//! node, and from there to the same shard of another node. The answer finds its way by the
//! ticket. Between nodes both travel as sealed frames:
//!
//! ```text
//! Forward       128 group u64   136 ticket u64   144 ticket shard u16   146 ticket replica u8
//!               147 hops u8     148 user u32     152 floor u64   160 consumer u128
//!               then the request frame
//! ForwardReply  128 metadata op u64   136 ticket u64   144 ticket shard u16
//!               146 ticket replica u8              then the reply frame
//! ```

use alloc::{vec, vec::Vec};

use base::{Buffer, Bytes, ClientId, GroupId, Instant, Op, ReplicaIndex, ShardIndex, View};
use platform::Ticket;
use wire::{
    Command, ErrorCode, HEADER_SIZE, Operation, ReplyHeader, RequestHeader, array,
    header::{denial, reply},
    put,
    replica::{Envelope, Invalid, seal},
};

/// A request that has been authenticated and is to be answered for a ticket.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Where the answer goes.
    pub(crate) ticket: Ticket,
    /// The group it is for; the metadata group also answers what no group is known for.
    pub(crate) group: GroupId,
    /// The acting user.
    pub(crate) user: u32,
    /// Whose memberships count: the session that asks, or the one it is attached to.
    pub(crate) consumer: ClientId,
    /// The metadata op that whoever answers must have applied.
    pub(crate) floor: Op,
    /// How often it has been passed between nodes.
    pub(crate) hops: u8,
    /// When this shard gives up waiting for the group, once it has begun to wait.
    pub(crate) patience: Option<Instant>,
    /// The header of `frame`.
    pub(crate) header: RequestHeader,
    /// The request frame.
    pub(crate) frame: Bytes,
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whose.
    pub(crate) ticket: Ticket,
    /// The metadata op it must not overtake where it is told.
    pub(crate) metadata_op: Op,
    /// The reply frame, in pieces.
    pub(crate) frame: Vec<Bytes>,
}

impl Ask {
    /// The body of the request.
    pub(crate) fn body(&self) -> &[u8] {
        &self.frame[HEADER_SIZE..]
    }

    /// A refusal, with the code in the status of the reply.
    pub(crate) fn refuse(&self, code: ErrorCode) -> Answer {
        self.answer(vec![denial(&self.header, code)])
    }

    /// A reply at `op` with this body.
    pub(crate) fn reply(&self, op: Op, operation: Operation, body: &[u8]) -> Answer {
        let header = ReplyHeader {
            op: op.0,
            commit: op.0,
            operation,
            ..ReplyHeader::to(&self.header)
        };
        self.answer(vec![reply(&header, body)])
    }

    pub(crate) const fn answer(&self, frame: Vec<Bytes>) -> Answer {
        Answer {
            ticket: self.ticket,
            metadata_op: Op(0),
            frame,
        }
    }

    /// The frame that passes this on to another node.
    pub(crate) fn forward(&self, cluster: u128, replica: ReplicaIndex) -> Bytes {
        let mut buffer = Buffer::zeroed(HEADER_SIZE + self.frame.len());
        let frame = buffer.as_mut_slice();
        Envelope {
            cluster,
            view: View(0),
            command: Command::Forward,
            replica,
        }
        .encode(frame);
        put(frame, 128, self.group.0.to_le_bytes());
        put_ticket(frame, self.ticket);
        put(frame, 147, [self.hops + 1]);
        put(frame, 148, self.user.to_le_bytes());
        put(frame, 152, self.floor.0.to_le_bytes());
        put(frame, 160, self.consumer.0.to_le_bytes());
        frame[HEADER_SIZE..].copy_from_slice(&self.frame);
        seal(frame);
        buffer.freeze()
    }

    /// Reads a verified Forward frame.
    pub(crate) fn decode_forward(frame: Bytes) -> Result<Self, Invalid> {
        let ticket = take_ticket(&frame)?;
        let group = GroupId(u64::from_le_bytes(array(&frame, 128)?));
        let hops = frame[147];
        let user = u32::from_le_bytes(array(&frame, 148)?);
        let floor = Op(u64::from_le_bytes(array(&frame, 152)?));
        let consumer = ClientId(u128::from_le_bytes(array(&frame, 160)?));
        let inner = frame.slice(HEADER_SIZE, frame.len());
        drop(frame);
        let header = RequestHeader::decode(&inner).map_err(|_| Invalid::Field)?;
        Ok(Self {
            ticket,
            group,
            user,
            consumer,
            floor,
            hops,
            patience: None,
            header,
            frame: inner,
        })
    }
}

impl Answer {
    /// The frame that takes this back to the node it came from.
    pub(crate) fn forward(&self, cluster: u128, replica: ReplicaIndex) -> Bytes {
        let size: usize = self.frame.iter().map(|piece| piece.len()).sum();
        let mut buffer = Buffer::zeroed(HEADER_SIZE + size);
        let frame = buffer.as_mut_slice();
        let command = Command::ForwardReply;
        Envelope {
            cluster,
            view: View(0),
            command,
            replica,
        }
        .encode(frame);
        put(frame, 128, self.metadata_op.0.to_le_bytes());
        put_ticket(frame, self.ticket);
        let mut at = HEADER_SIZE;
        for piece in &self.frame {
            frame[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        seal(frame);
        buffer.freeze()
    }

    /// Reads a verified ForwardReply frame.
    pub(crate) fn decode_forward(frame: &Bytes) -> Result<Self, Invalid> {
        Ok(Self {
            ticket: take_ticket(frame)?,
            metadata_op: Op(u64::from_le_bytes(array(frame, 128)?)),
            frame: vec![frame.slice(HEADER_SIZE, frame.len())],
        })
    }
}

fn put_ticket(frame: &mut [u8], ticket: Ticket) {
    put(frame, 136, ticket.number.to_le_bytes());
    put(frame, 144, ticket.shard.0.to_le_bytes());
    put(frame, 146, [ticket.replica.0]);
}

fn take_ticket(frame: &[u8]) -> Result<Ticket, Invalid> {
    Ok(Ticket {
        number: u64::from_le_bytes(array(frame, 136)?),
        shard: ShardIndex(u16::from_le_bytes(array(frame, 144)?)),
        replica: ReplicaIndex(array::<1>(frame, 146)?[0]),
    })
}

/// An identity that no client has: the server's own ops carry it.
pub(crate) const NOBODY: ClientId = ClientId(0);
