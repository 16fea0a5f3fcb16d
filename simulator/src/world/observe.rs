//! From what shards tell and say to the checkers.

use base::{Bytes, GroupId, Op};
use platform::ConnectionId;
use server::{Observation, Role};
use wire::{
    Codec, Command, EvictionHeader, HEADER_SIZE, Operation, ReplyHeader, Request, batch,
    replica::{Message as ReplicaMessage, PrepareHeader, Trust},
};

use super::{
    World,
    nodes::{Life, Node},
};
use crate::{
    check::{
        Failure, Verdict,
        clock::Window,
        durability::{Acknowledged, RecoveredLog},
        groups::GroupOp,
        linear::{Message, Target},
        liveness::Standing,
        offsets::Batch,
        quorum::Part,
        views::{Said, Speech},
    },
    segments::{directory, segment_of},
    workload::{Call, consumer_key, payload_target},
};

const fn failure(check: &'static str, time: u64, message: String) -> Failure {
    Failure {
        check,
        time,
        message,
    }
}

/// After so long in microseconds every node has heard of all clocks, and what was stamped in worse
/// times is committed.
const CALM: u64 = 20_000_000;

impl World {
    pub(super) fn observe(&mut self, node: u8, shard: u16, observation: Observation) {
        if self.trace {
            super::trace::observation(self.time, node, &observation);
        }
        self.tell_observation(node, &observation);
        if self.excuse(node, &observation) {
            return;
        }
        let time = self.time;
        let verdict = match observation {
            Observation::Recovered {
                group, op, trusted, ..
            } => {
                let log = RecoveredLog {
                    node,
                    group,
                    op,
                    trusted,
                };
                self.atlas.on_recovered(node, group, trusted);
                if op == Op(0) && !self.has_segments(node, group) {
                    // Its disk was replaced, or the group is deleted further on.
                    self.checkers.durability.on_emptied(node, group);
                }
                self.checkers.durability.on_recovered(time, log)
            }
            Observation::Restored {
                group, op: Op(0), ..
            } => {
                self.checkers.committed.on_emptied(node, group);
                Ok(())
            }
            Observation::Restored {
                group,
                op,
                identity,
                digest,
            } => self
                .checkers
                .committed
                .on_restored(time, node, (group, op), identity)
                .and_then(|()| {
                    self.checkers
                        .digests
                        .on_digest(time, node, (group, op), digest)
                }),
            Observation::View {
                group, view, role, ..
            } => {
                let standing = self.standings.entry((node, group)).or_insert(Standing {
                    view,
                    normal: false,
                    commit: Op(0),
                });
                standing.view = view;
                standing.normal = role != Role::ViewChange;
                let primary = role == Role::Primary;
                let part = standing.normal.then_some(Part { view, primary });
                self.checkers.quorum.on_part(node, group, part);
                Ok(())
            }
            Observation::Committed {
                prepare, digest, ..
            } => self.observe_committed(node, &prepare, digest),
            Observation::Acknowledged {
                group,
                client,
                request,
                op,
            } => {
                let acknowledged = Acknowledged {
                    group,
                    client,
                    request,
                    op,
                };
                let committed = &self.checkers.committed;
                self.checkers
                    .durability
                    .on_acknowledged(time, acknowledged, committed)
            }
            Observation::Truncated { group, op } => {
                self.checkers.durability.on_truncated(node, group, op);
                Ok(())
            }
            Observation::Trusted => {
                self.atlas.on_trusted(time, node, shard);
                Ok(())
            }
            Observation::Doubt { group, .. } => {
                self.atlas.on_doubt(node, group);
                Ok(())
            }
            // Damage and its repair show in what is served; the clocks and the space on disks are
            // known to whoever set them.
            Observation::Clock { .. }
            | Observation::DiskFull { .. }
            | Observation::Gap { .. }
            | Observation::Repaired { .. }
            | Observation::Undecidable { .. }
            | Observation::Closed { .. } => Ok(()),
            Observation::LossPossible { group, view } => {
                let message = format!("replica {node} may have lost {group} in view {view}");
                Err(failure("durability", time, message))
            }
        };
        self.check(verdict);
    }

    fn has_segments(&self, node: u8, group: GroupId) -> bool {
        let disk = &self.nodes[usize::from(node)].disk;
        let mut files = disk.files_below(&directory(group)).into_iter();
        files.any(|(path, _)| segment_of(path).is_some())
    }

    fn observe_committed(&mut self, node: u8, prepare: &Bytes, digest: u128) -> Verdict {
        let time = self.time;
        let fail = |message| Failure {
            check: "committed",
            time,
            message,
        };
        let header = PrepareHeader::decode(prepare)
            .map_err(|_| fail(format!("replica {node} committed what is not a prepare")))?;
        let (group, op) = (header.group, header.op);
        let first = self
            .checkers
            .committed
            .on_committed(time, node, &header, prepare)?;
        self.checkers
            .digests
            .on_digest(time, node, (group, op), digest)?;
        if first {
            self.checkers.quorum.on_committed(
                time,
                (node, self.shape.replicas),
                (group, op),
                header.view,
            )?;
            // What was stamped before all was disturbed may be committed any time later.
            let made = self.workload.made.get(&(header.client, header.request));
            let fresh = made.is_some_and(|made| made.window.start >= self.disturbed_at);
            let window = fresh.then(|| self.agreed_window()).flatten();
            self.checkers
                .clocks
                .on_committed(time, (group, op), header.timestamp, window)?;
            let opened = self.open(&header, prepare)?;
            self.observe_canonical(&header, &opened)?;
        }
        Ok(())
    }

    /// A prepare with its messages as they were sent. In an encrypted run no batch is in a log
    /// as it was sent, and no two have a salt in common.
    fn open(&mut self, header: &PrepareHeader, prepare: &Bytes) -> Result<Bytes, Failure> {
        let key = self.encryption();
        let wanted = key.is_some() && header.operation == Operation::SendMessages;
        let fresh = header
            .encryption
            .is_none_or(|encryption| self.salts.insert(encryption.salt));
        let opened = key.map_or_else(|| Ok(prepare.clone()), |key| key.open(prepare));
        match opened {
            Ok(opened) if wanted == header.encryption.is_some() && fresh => Ok(opened),
            _ => Err(Failure {
                check: "encryption",
                time: self.time,
                message: format!(
                    "{} op {} is not encrypted as it should be",
                    header.group, header.op
                ),
            }),
        }
    }

    /// What a majority of the clocks says, if nothing has happened to anybody for long.
    fn agreed_window(&self) -> Option<Window> {
        let is_calm = self.time - self.disturbed_at >= CALM && self.network.is_sound();
        let usual = |node: &Node| !node.paused && node.slowness == 1;
        if !is_calm || !self.nodes.iter().all(usual) {
            return None;
        }
        let running = self.nodes.iter().filter(|node| node.life == Life::Running);
        let clocks = running.map(|node| node.now(self.time).realtime.0).collect();
        Window::of(clocks, self.nodes.len())
    }

    /// An op has entered the one history of its group.
    fn observe_canonical(&mut self, header: &PrepareHeader, frame: &[u8]) -> Verdict {
        let time = self.time;
        let (group, op) = (header.group, header.op);
        let body = &frame[HEADER_SIZE..];
        let made = self.workload.made.get(&(header.client, header.request));
        // The metadata log may hold a request twice: its client table, not its log, is what
        // keeps it from being done twice.
        if group == GroupId::METADATA {
            self.auditor.on_committed(time, header, body)?;
            self.checkers.groups.on_op(GroupOp {
                op: op.0,
                operation: header.operation,
                client: header.client,
                session: header.session,
                request: header.request,
                body: body.to_vec(),
            });
            if header.operation == Operation::DeleteConsumerGroup {
                self.checkers.linear.trims.on_group_deleted();
            }
        }
        let numbered = header.client.0 != 0 && group != GroupId::METADATA;
        if numbered {
            self.checkers
                .offsets
                .on_request(time, group, op, header.client, header.request)?;
        }
        let target = made.and_then(|made| made.call.target());
        match header.operation {
            Operation::SendMessages => self.observe_batch(group, op, body),
            Operation::StoreConsumerOffset if header.client.0 == 0 => {
                self.observe_auto_commit(header, body)
            }
            Operation::StoreConsumerOffset => {
                let stored = made.and_then(|made| match made.call {
                    Call::StoreOffset {
                        consumer, offset, ..
                    } => Some((consumer, offset)),
                    _ => None,
                });
                match (target, stored, Request::decode(header.operation, 0, body)) {
                    (Some(target), Some(stored), Ok(Request::StoreConsumerOffset(request)))
                        if request.offset == stored.1 =>
                    {
                        // An offset beyond the log is refused when its turn comes.
                        if stored.1 >= self.checkers.offsets.next(group) {
                            return Ok(());
                        }
                        let (consumer, offset) = stored;
                        let trims = &mut self.checkers.linear.trims;
                        trims.on_store(group, consumer, offset, true);
                        self.checkers.linear.on_store(time, group, target, stored)
                    }
                    _ => Err(Failure {
                        check: "linear",
                        time,
                        message: format!("{group} op {op} stores an offset that nobody asked for"),
                    }),
                }
            }
            Operation::DeleteConsumerOffset => {
                let request = Request::decode(header.operation, 0, body);
                if let Ok(Request::DeleteConsumerOffset(request)) = request
                    && let Some(consumer) = consumer_key(&request.target.consumer)
                {
                    self.checkers.linear.trims.on_delete(group, consumer);
                }
                Ok(())
            }
            Operation::TrimLog => {
                if let Ok(trim) = wire::internal::TrimLog::decode(body) {
                    let trims = &mut self.checkers.linear.trims;
                    trims.on_trim(group, Op(trim.before), trim.past_consumers);
                }
                Ok(())
            }
            Operation::PurgePartition => {
                let Ok(purge) = wire::internal::PurgePartition::decode(body) else {
                    return Ok(());
                };
                if self.checkers.offsets.on_purge(group, purge.generation) {
                    base::sometimes!("workload: a partition is purged");
                    self.checkers.linear.on_purge(time, group);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The server's own op, for a poll that stores what it has read.
    fn observe_auto_commit(&mut self, header: &PrepareHeader, body: &[u8]) -> Verdict {
        let (time, group) = (self.time, header.group);
        let request = Request::decode(header.operation, 0, body);
        let target = self.checkers.linear.target_of(group);
        if let (Ok(Request::StoreConsumerOffset(request)), Some(target)) = (request, target)
            && let Some(consumer) = consumer_key(&request.target.consumer)
            && request.offset < self.checkers.offsets.next(group)
        {
            let stored = (consumer, request.offset);
            let trims = &mut self.checkers.linear.trims;
            trims.on_store(group, consumer, request.offset, false);
            return self.checkers.linear.on_store(time, group, target, stored);
        }
        let op = header.op;
        let message = format!("{group} op {op} stores for a poll what nobody can have read");
        Err(Failure {
            check: "linear",
            time,
            message,
        })
    }

    fn observe_batch(&mut self, group: GroupId, op: Op, body: &[u8]) -> Verdict {
        let time = self.time;
        let damaged = || Failure {
            check: "offsets",
            time,
            message: format!("{group} op {op} is no batch"),
        };
        let header = batch::verify(body).map_err(|_| damaged())?;
        let (_, frames) = batch::frames(body).map_err(|_| damaged())?;
        let count = u64::from(header.message_count);
        let base_offset = header.base_offset;
        let end = base_offset + count;
        self.checkers.linear.trims.on_batch(group, op, end);
        self.checkers.offsets.on_batch(
            time,
            Batch {
                group,
                op,
                base_offset,
                count,
            },
        )?;
        let mut target: Option<Target> = None;
        let mut messages = Vec::new();
        for frame in frames {
            let frame = frame.map_err(|_| damaged())?;
            target = payload_target(frame.payload());
            let offset = header.base_offset + u64::from(frame.offset_delta);
            let payload = base::checksum::xxh3_64(frame.payload());
            messages.push(Message { offset, payload });
        }
        let target = target.ok_or_else(damaged)?;
        self.checkers
            .linear
            .on_batch(time, group, target, &messages)
    }

    /// What a node says to another: frames of replicas, wherever the sends cut them.
    pub(super) fn observe_send(&mut self, node: u8, connection: ConnectionId, bytes: &Bytes) {
        let open_frames = &mut self.nodes[usize::from(node)].open_frames;
        let mut at = open_frames.remove(&connection).unwrap_or(0);
        while at + HEADER_SIZE <= bytes.len() {
            let Ok(size) = wire::replica::frame_size(&bytes[at..]) else {
                return;
            };
            let end = (at + size).min(bytes.len());
            let frame = &bytes[at..end];
            at += size;
            let command = Command::from_byte(frame[60]);
            if end < at {
                continue;
            }
            if command.is_none_or(Command::faces_clients) {
                self.observe_answer((node, connection), frame);
                continue;
            }
            if let Some(said) = self.said(node, frame) {
                if let Speech::PrepareOk { op } = said.speech {
                    let Said { group, view, .. } = said;
                    self.checkers.durability.on_prepare_ok(node, group, op);
                    self.checkers.quorum.on_prepare_ok(node, group, view, op);
                }
                let verdict = self.checkers.views.on_said(self.time, said);
                self.check(verdict);
            }
            if self.trace {
                super::trace::frame(self.time, node, frame);
            }
        }
        if at > bytes.len() {
            let open_frames = &mut self.nodes[usize::from(node)].open_frames;
            open_frames.insert(connection, at - bytes.len());
        }
    }

    /// What a node answers a client.
    fn observe_answer(&mut self, place: (u8, ConnectionId), frame: &[u8]) {
        let time = self.time;
        let verdict = if let Ok(header) = ReplyHeader::decode(frame) {
            let body = &frame[HEADER_SIZE..];
            self.auditor.on_reply(time, place, &header, body)
        } else if let Ok(header) = EvictionHeader::decode(frame) {
            crate::marks::reach_eviction(header.reason);
            let sessions = &mut self.auditor.sessions;
            sessions.on_eviction(time, place, header.reason)
        } else {
            Ok(())
        };
        self.check(verdict);
    }

    fn said(&self, node: u8, frame: &[u8]) -> Option<Said> {
        let speaks = [
            Command::PrepareOk,
            Command::DoViewChange,
            Command::StartView,
        ];
        if !speaks.contains(&Command::from_byte(frame[60])?) {
            return None;
        }
        let (envelope, message) = ReplicaMessage::decode(frame).ok()?;
        let speech = match message {
            ReplicaMessage::PrepareOk { op, .. } => Speech::PrepareOk { op },
            // A blank replica's vote counts for nothing but a founding.
            ReplicaMessage::DoViewChange {
                trust: Trust::Blank,
                ..
            } => return None,
            ReplicaMessage::DoViewChange { log_view, .. } => Speech::DoViewChange { log_view },
            ReplicaMessage::StartView { .. } => Speech::Primary,
            _ => return None,
        };
        Some(Said {
            node,
            group: message.group()?,
            view: envelope.view,
            speech,
        })
    }

    /// Nothing is known of a node that has stopped.
    pub(super) fn forget_standings(&mut self, node: u8) {
        self.standings.retain(|(at, _), _| *at != node);
        self.checkers.quorum.on_stopped(node);
        self.auditor.sessions.on_stopped(node);
        self.tell_silence(node);
    }

    /// Where every replica of every group stands, commits included.
    pub(super) fn standings_now(&self) -> std::collections::BTreeMap<(u8, GroupId), Standing> {
        let mut standings = self.standings.clone();
        for (&(node, group), standing) in &mut standings {
            standing.commit = self.checkers.committed.position(node, group);
        }
        standings
    }
}
