//! A primary turns requests into prepares; writes of partitions in place, in the buffer the
//! request came in.

use alloc::vec::Vec;

use base::{Buffer, Bytes, ClientId, Timestamp};
use consensus::PrepareSlot;
use partition::Decision;
use wire::{
    Codec, ErrorCode, HEADER_SIZE, Operation, Partitioning, ReplyHeader, RequestHeader,
    batch::{self, BATCH_HEADER_SIZE},
    header::reply_with,
    replica::PrepareHeader,
    request::SendMessages,
    result::encode_result,
};

use super::{Hosted, State, Waiter};
use crate::{
    ask::{Answer, Ask, NOBODY},
    core::{Core, Notice},
};

impl Hosted {
    /// Handles a request for this group: on the primary it enters the log, elsewhere it is
    /// deferred to whoever can take it.
    pub(crate) fn on_ask(&mut self, ask: Ask, core: &mut Core) {
        if matches!(self.state, State::Closed) {
            return Self::refuse_closed(&ask, core);
        }
        let State::Running(group) = &self.state else {
            return core.notices.push(Notice::Deferred(ask));
        };
        let reads = ask.header.operation == Operation::NonReplicated;
        let anywhere = reads && base::planted::bug(17);
        if !group.is_serving() && !anywhere {
            return core.notices.push(Notice::Deferred(ask));
        }
        match ask.header.operation {
            Operation::NonReplicated if !core.has_lease() => {
                base::sometimes!("server: a read finds no lease");
                core.notices.push(Notice::Deferred(ask));
            }
            Operation::NonReplicated => self.on_read_request(ask, core),
            operation if core.is_full() => {
                base::sometimes!("server: a write is refused for want of space");
                core.answers.push(ask.refuse(full(operation)));
            }
            _ if !group.can_prepare() => core.notices.push(Notice::Deferred(ask)),
            _ if self.partition.is_some() => self.propose_to_partition(ask, core),
            _ => self.propose_metadata(ask, core),
        }
    }

    /// A metadata request; judged by the shard before, since the state machine is there.
    fn propose_metadata(&mut self, ask: Ask, core: &mut Core) {
        let fresh = ask.header.operation != Operation::Register;
        if fresh && let Some(waiter) = self.find_waiter(ask.header.client, ask.header.request) {
            // The same request again: whoever asked last gets the answer.
            let (Waiter::Client(last) | Waiter::Poll(last, _)) =
                ::core::mem::replace(waiter, Waiter::Client(ask));
            let refusal = last.refuse(ErrorCode::TRANSIENT_NOT_COMMITTED);
            return core.answers.push(refusal);
        }
        let mut buffer = Buffer::with_capacity(ask.frame.len());
        buffer.extend(&ask.frame);
        let frame = buffer.freeze();
        self.prepare(
            frame,
            &ask.header,
            ask.user,
            core.stamp(),
            Some(Waiter::Client(ask.clone())),
            core,
        );
    }

    fn find_waiter(&mut self, client: ClientId, request: u64) -> Option<&mut Waiter> {
        self.waiters.values_mut().find(|waiter| match waiter {
            Waiter::Client(ask) | Waiter::Poll(ask, _) => {
                ask.header.client == client && ask.header.request == request
            }
        })
    }

    fn propose_to_partition(&mut self, ask: Ask, core: &mut Core) {
        let partition = self.partition.as_ref().expect("a partition");
        match partition.check_request(ask.header.client, ask.header.request) {
            Decision::New => {}
            Decision::InFlight if base::planted::bug(23) => {}
            Decision::InFlight => {
                // It may have lost its waiter with a connection or a view; the client asks again.
                let refusal = ask.refuse(ErrorCode::TRANSIENT_NOT_COMMITTED);
                return core.answers.push(refusal);
            }
            Decision::Replay(reply) => return core.answers.push(frame_reply(&ask, &reply)),
            Decision::AlreadyApplied => {
                return core
                    .answers
                    .push(ask.refuse(ErrorCode::REQUEST_ALREADY_APPLIED));
            }
        }
        if ask.header.operation == Operation::SendMessages {
            self.propose_send(ask, core);
        } else if ask.header.operation == Operation::DeleteSegments {
            self.propose_delete(ask, core);
        } else {
            let frame = ask.frame.clone();
            let (header, user) = (ask.header, ask.user);
            self.prepare(
                frame,
                &header,
                user,
                core.stamp(),
                Some(Waiter::Client(ask)),
                core,
            );
        }
    }

    /// Messages: the batch keeps its place in the buffer; its header is stamped, and the 256
    /// bytes before it become the prepare's header.
    fn propose_send(&mut self, mut ask: Ask, core: &mut Core) {
        if self.is_topic_full() {
            return core.answers.push(ask.refuse(ErrorCode::TOPIC_FULL));
        }
        let verified = SendMessages::decode(ask.body())
            .map_err(|error| error.code())
            .and_then(|send| {
                let header = batch::verify(send.batch).map_err(batch::BatchError::code)?;
                if header.message_count != send.target.messages_count {
                    return Err(ErrorCode::INVALID_MESSAGES_COUNT);
                }
                Ok(ask.frame.len() - send.batch.len())
            });
        let start = match verified {
            Ok(start) => start,
            Err(code) => return core.answers.push(ask.refuse(code)),
        };
        base::invariant!(
            start >= HEADER_SIZE,
            "the request's own header stands before the batch"
        );
        let end = ask.frame.len();
        // Nobody else may hold the buffer, or the body is copied.
        let mut frame = ::core::mem::take(&mut ask.frame).slice(start - HEADER_SIZE, end);
        if frame.get_mut().is_none() {
            frame = Bytes::copy_of(&frame);
        }
        let partition = self.partition.as_ref().expect("a partition");
        let realtime = core.stamp().max(self.timestamp);
        let bytes = frame.get_mut().expect("a copy is not shared");
        let stamped = partition.stamp(&mut bytes[HEADER_SIZE..], realtime);
        let stamped = stamped.expect("verified above");
        base::invariant!(frame.len() >= HEADER_SIZE + BATCH_HEADER_SIZE);
        let header = ask.header;
        let user = ask.user;
        self.prepare(
            frame,
            &header,
            user,
            stamped.timestamp,
            Some(Waiter::Client(ask)),
            core,
        );
    }

    /// On the primary of the metadata: the server's own op that removes the tokens which have
    /// ended. If it cannot be now, it will be later.
    pub(crate) fn propose_token_sweep(&mut self, core: &mut Core) {
        let ready = self.group().is_some_and(consensus::Group::can_prepare) && !core.is_full();
        if !self.is_serving() || !ready {
            return;
        }
        let header = RequestHeader {
            operation: Operation::RemoveExpiredTokens,
            ..RequestHeader::new(NOBODY, 0, 0, wire::Code::Ping)
        };
        let frame = Buffer::zeroed(HEADER_SIZE).freeze();
        let stamp = core.stamp();
        self.prepare(frame, &header, 0, stamp, None, core);
    }

    /// The server's own op that stores what a poll has read.
    pub(super) fn propose_auto_commit(
        &mut self,
        ask: Ask,
        body: &[u8],
        pieces: Vec<Bytes>,
        core: &mut Core,
    ) {
        let header = RequestHeader {
            client: NOBODY,
            request: 0,
            session: 0,
            request_checksum: 0,
            operation: Operation::StoreConsumerOffset,
            ..ask.header
        };
        let mut buffer = Buffer::zeroed(HEADER_SIZE);
        buffer.extend(body);
        let frame = buffer.freeze();
        let user = ask.user;
        self.prepare(
            frame,
            &header,
            user,
            core.stamp(),
            Some(Waiter::Poll(ask, pieces)),
            core,
        );
    }

    /// The server's own op that forgets what is stored for a consumer group that is gone; false
    /// if it must wait.
    pub(crate) fn propose_forget(&mut self, group: u32, core: &mut Core) -> bool {
        let ready = self.group().is_some_and(consensus::Group::can_prepare) && !core.is_full();
        let Some(partition) = self.partition.as_ref().filter(|_| ready) else {
            return false;
        };
        let consumer = partition::ConsumerKey {
            kind: wire::ConsumerKind::Group,
            id: group,
        };
        let body = partition.forget_body(consumer);
        let header = RequestHeader {
            client: NOBODY,
            ..RequestHeader::new(NOBODY, 0, 0, wire::Code::DeleteConsumerOffset)
        };
        let mut buffer = Buffer::zeroed(HEADER_SIZE);
        buffer.extend(&body);
        let stamp = core.stamp();
        self.prepare(buffer.freeze(), &header, 0, stamp, None, core);
        true
    }

    /// Seals `frame`, whose body stands, as the next prepare, and lets the group have it.
    pub(super) fn prepare(
        &mut self,
        mut frame: Bytes,
        request: &RequestHeader,
        user: u32,
        timestamp: Timestamp,
        waiter: Option<Waiter>,
        core: &mut Core,
    ) {
        let State::Running(group) = &self.state else {
            unreachable!("asked before")
        };
        let PrepareSlot {
            view,
            op,
            parent,
            commit,
        } = group.next_slot();
        let mut header = PrepareHeader {
            checksum: 0,
            checksum_body: 0,
            size: 0,
            cluster: core.config.cluster,
            view,
            replica: core.config.replica,
            parent,
            client: request.client,
            group: self.id,
            op,
            commit,
            timestamp: timestamp.max(self.timestamp),
            request: request.request,
            session: request.session,
            request_checksum: request.request_checksum,
            user,
            operation: request.operation,
            encryption: None,
        };
        if frame.get_mut().is_none() {
            frame = Bytes::copy_of(&frame);
        }
        let bytes = frame.get_mut().expect("a copy is not shared");
        if header.operation == Operation::SendMessages
            && let Some(key) = &core.config.encryption
        {
            key.encrypt(&mut header, bytes, &mut core.salts);
        }
        header.seal_into(bytes);
        let header = PrepareHeader::decode(&frame).expect("sealed above");
        if base::planted::bug(16) {
            self.acknowledge_early(waiter.as_ref(), &header, core);
        } else if let Some(waiter) = waiter {
            self.waiters.insert(op, waiter);
        }
        self.drive(core, |group, out| group.prepare(header, frame, out));
    }

    /// Planted bug 16: the reply leaves before the op has committed.
    fn acknowledge_early(&self, waiter: Option<&Waiter>, header: &PrepareHeader, core: &mut Core) {
        let Some(Waiter::Client(ask)) = waiter else {
            return;
        };
        let (group, op) = (self.id, header.op);
        let (client, request) = (header.client, header.request);
        core.observe(|| crate::Observation::Acknowledged {
            group,
            client,
            request,
            op,
        });
        let body = match ask.header.operation {
            Operation::SendMessages => 0u32.to_le_bytes().to_vec(),
            _ => encode_result(Ok(&[])),
        };
        core.answers
            .push(ask.reply(op, ask.header.operation, &body));
    }
}

/// What a write is told while the disk is full; it has not entered the log.
pub(super) const fn full(operation: Operation) -> ErrorCode {
    match operation {
        Operation::SendMessages => ErrorCode::CANNOT_APPEND_MESSAGE,
        _ => ErrorCode::CANNOT_WRITE_TO_FILE,
    }
}

/// The reply frame of a partition's answer: a send's failure stands in the status, all else in
/// the result section.
pub(super) fn frame_reply(ask: &Ask, reply: &partition::Reply) -> Answer {
    // A deletion of segments is answered as the op it has become; its refusals stand in the status.
    let deletes = ask.header.operation == Operation::DeleteSegments;
    let operation = match ask.header.operation {
        Operation::DeleteSegments => Operation::TrimLog,
        operation => operation,
    };
    let header = ReplyHeader {
        op: reply.op.0,
        commit: reply.op.0,
        operation,
        ..ReplyHeader::to(&ask.header)
    };
    let result = reply.result.as_deref().map_err(|&code| code);
    if operation.is_result_framed() && !(deletes && result.is_err()) {
        let body = encode_result(result);
        return ask.answer(alloc::vec![wire::header::reply(&header, &body)]);
    }
    match result {
        Ok(payload) => ask.answer(alloc::vec![
            reply_with(&header, |frame| frame.extend(payload))
        ]),
        Err(code) => ask.refuse(code),
    }
}

/// The partition a send goes to: as named, by key, or the next in turn.
pub(crate) fn choose_partition(
    partitioning: Partitioning<'_>,
    partitions_count: u32,
    turn: &mut u32,
) -> Result<u32, ErrorCode> {
    match partitioning {
        Partitioning::PartitionId(id) => Ok(id),
        _ if partitions_count == 0 => Err(ErrorCode::NO_PARTITIONS),
        Partitioning::Balanced => {
            *turn = turn.wrapping_add(1);
            Ok(*turn % partitions_count)
        }
        Partitioning::MessagesKey(key) => Ok(base::checksum::xxh32(key) % partitions_count),
    }
}
