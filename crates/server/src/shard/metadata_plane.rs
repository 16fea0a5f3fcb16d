//! The metadata plane: requests judged and proposed on shard 0 of the primary, commits applied on
//! every shard, groups built and removed as they say.

use alloc::vec::Vec;

use base::{Bytes, GroupId, Op, View};
use metadata::{Change, Decision, PartitionInfo, RequestKey};
use platform::{Fatal, Letter};
use wire::{
    Code, Codec, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, NodeRole, NodeStatus,
    Plane, Text,
    header::eviction,
    replica::PrepareHeader,
    reply::{ClusterMetadata, NodeRecord, Route},
};

use super::{
    Shard,
    groups::{PROPOSE, is_unprepared_join},
};
use crate::{
    Observation,
    ask::{Answer, Ask},
    connections::Bound,
    core::{DELETED, Notice},
    hosted::Hosted,
};

impl Shard {
    /// Whether this shard hosts the metadata group, its replica is the serving primary, and
    /// certainly no other is.
    pub(super) fn serves_metadata(&self) -> bool {
        let hosted = self.groups.get(&GroupId::METADATA);
        self.core.has_lease() && hosted.is_some_and(Hosted::is_serving)
    }

    /// A request for the metadata group (shard 0), or one that only its primary can place.
    pub(super) fn on_metadata_ask(&mut self, ask: Ask) {
        if !self.serves_metadata() {
            return self.on_deferred(ask);
        }
        let group = self.groups.get(&GroupId::METADATA).and_then(Hosted::group);
        let behind = group.is_some_and(|group| group.commit() != self.metadata.op());
        if behind && !base::planted::bug(42) {
            // Word of the newest commits is still on its way through this turn.
            return self.core.notices.push(Notice::Judge(ask));
        }
        match ask.header.operation.plane() {
            Plane::Partition => self.route(ask),
            Plane::NonReplicated if ask.header.code == Code::Ping.number() => {
                self.on_refresh_ask(&ask);
            }
            Plane::NonReplicated if ask.header.code == PROPOSE => self.propose_own(ask),
            Plane::NonReplicated => self.route(ask),
            Plane::Session => self.propose_metadata(ask),
            Plane::Metadata => match self.judge(&ask) {
                None if is_unprepared_join(&ask) => self.begin_join(ask),
                None => match self.settle_user_request(&ask) {
                    Ok(None) => self.propose_metadata(ask),
                    Ok(Some(body)) => {
                        let request_checksum = ask.header.request_checksum;
                        self.propose_metadata(Self::with_body(ask, &body, request_checksum));
                    }
                    Err(code) => self.core.answers.push(ask.refuse(code)),
                },
                Some(answer) => {
                    // The first answer may have been lost while it waited.
                    let purged = self.metadata.purged_by(ask.header.operation, ask.body());
                    self.answer_when_purged(answer, &purged);
                }
            },
            Plane::Internal => self
                .core
                .answers
                .push(ask.refuse(ErrorCode::INVALID_COMMAND)),
        }
    }

    pub(super) fn propose_metadata(&mut self, ask: Ask) {
        let hosted = self
            .groups
            .get_mut(&GroupId::METADATA)
            .expect("serving, so hosted");
        hosted.on_ask(ask, &mut self.core);
    }

    /// The answer of the client table, unless the request is new.
    pub(super) fn judge(&self, ask: &Ask) -> Option<Answer> {
        let key = RequestKey {
            client: ask.header.client,
            session: ask.header.session,
            request: ask.header.request,
            request_checksum: ask.header.request_checksum,
        };
        let evict = |reason| {
            let header = EvictionHeader::new(ask.header.client, reason);
            Some(ask.answer(alloc::vec![eviction(&header)]))
        };
        match self.metadata.check_request(&key) {
            Decision::New => None,
            Decision::Replay(reply) => Some(ask.reply(reply.op, reply.operation, &reply.body())),
            Decision::AlreadyApplied => Some(ask.refuse(ErrorCode::REQUEST_ALREADY_APPLIED)),
            Decision::NoSession => evict(EvictionReason::NoSession),
            Decision::Fenced => evict(EvictionReason::SessionTooLow),
            Decision::Mismatch => Some(ask.refuse(ErrorCode::INVALID_COMMAND)),
        }
    }

    /// A metadata prepare has committed.
    pub(super) fn apply_metadata(&mut self, prepare: Bytes, asker: Option<Ask>) {
        let header = PrepareHeader::decode(&prepare).expect("committed prepares are whole");
        let applied = self.metadata.apply(&header, &prepare[HEADER_SIZE..]);
        if self.core.config.shard.0 == 0 {
            self.take_metadata_checkpoint(header.op, &prepare);
        }
        if self.core.config.shard.0 == 0 && self.core.config.observe {
            let digest = self.metadata.digest();
            let group = GroupId::METADATA;
            self.core.observe(|| Observation::Committed {
                group,
                prepare,
                digest,
            });
        }
        self.group_work.on_metadata_op(header.operation);
        for change in applied.changes {
            self.on_change(change);
        }
        if let Some(ask) = asker {
            if applied.reply.result.is_ok() {
                let (client, request, op) = (header.client, header.request, header.op);
                let group = GroupId::METADATA;
                self.core.observe(|| Observation::Acknowledged {
                    group,
                    client,
                    request,
                    op,
                });
            }
            let body = applied.reply.body();
            let mut answer = ask.reply(header.op, header.operation, &body);
            answer.metadata_op = header.op;
            let purged = self.metadata.purged_by(header.operation, ask.body());
            self.answer_when_purged(answer, &purged);
        }
        self.release_held();
        self.unpark_behind();
    }

    /// The metadata state is replaced by one that a checkpoint brings: what is gone from it goes,
    /// what is new in it is built.
    pub(super) fn install_metadata(&mut self, snapshot: &[u8]) {
        let Some(metadata) = self.core.restore_metadata(snapshot) else {
            let line = "a snapshot that one shard could read, another could not";
            return self.core.halt(Fatal::Damage, line.into());
        };
        let old = ::core::mem::replace(&mut self.metadata, metadata);
        let mut changes = Vec::new();
        for info in old.partitions() {
            if self.metadata.partition(info.group).is_none() {
                let PartitionInfo { group, ids, .. } = info;
                changes.push(Change::PartitionDeleted { group, ids });
            }
        }
        for (client, session) in old.sessions() {
            let session = session.session;
            let goes_on = |now: metadata::Session| now.session == session;
            if !self.metadata.session(client).is_some_and(goes_on) {
                changes.push(Change::SessionClosed { client, session });
            }
        }
        for info in self.metadata.partitions() {
            match old.partition(info.group) {
                None => changes.push(Change::PartitionCreated(info)),
                Some(known) if known != info => changes.push(Change::PartitionUpdated(info)),
                Some(_) => {}
            }
        }
        if old.op() > Op(0) {
            base::sometimes!(
                !changes.is_empty(),
                "transfer: partitions or sessions differ"
            );
        }
        for change in changes {
            self.on_change(change);
        }
        // Groups may have gone, or have members that are none here.
        let partitions = self
            .groups
            .iter()
            .filter(|(_, one)| one.partition().is_some());
        self.core.orphaned.extend(partitions.map(|(id, _)| *id));
        if self.swept {
            // If the metadata was lost here, it is only now that some are known to be gone.
            self.look_for_leftovers();
        }
        self.group_work.audit();
        self.release_held();
        self.unpark_behind();
    }

    /// Shard 0: takes a checkpoint of the metadata, if one is due after this op.
    fn take_metadata_checkpoint(&mut self, op: Op, prepare: &Bytes) {
        let regular = op.0.is_multiple_of(self.core.config.limits.checkpoint_ops);
        if let Some(hosted) = self.groups.get_mut(&GroupId::METADATA)
            && (regular || hosted.wants_own_checkpoint())
        {
            let snapshot = self.metadata.snapshot();
            hosted.take_checkpoint(prepare, &snapshot, &mut self.core);
        }
    }

    fn on_change(&mut self, change: Change) {
        let mine =
            |group: GroupId| group.shard(self.core.config.shard_count) == self.core.config.shard;
        match change {
            Change::PartitionCreated(info) if mine(info.group) => {
                if self.core.durable_views.get(&info.group) == Some(&DELETED) {
                    // The log says further on that it is deleted, and it has been here.
                    let hosted = Hosted::remove_leftover(info.group, &mut self.core);
                    self.groups.insert(info.group, hosted);
                    return;
                }
                let hosted = Hosted::open(info.group, Some(&info), &mut self.core);
                self.groups.insert(info.group, hosted);
            }
            Change::PartitionDeleted { group, .. } if mine(group) => {
                if let Some(hosted) = self.groups.get_mut(&group) {
                    hosted.remove(&mut self.core);
                }
                self.unpark(group);
                self.check_purges();
            }
            Change::PartitionUpdated(info) if mine(info.group) => {
                if let Some(hosted) = self.groups.get_mut(&info.group) {
                    hosted.want_purges(&info, &mut self.core);
                }
            }
            Change::SessionClosed { client, session } => {
                for connection in self.connections.iter_mut() {
                    let over = |bound: &Bound| bound.client == client && bound.session == session;
                    if connection.bound.as_ref().is_some_and(over) {
                        connection.bound = None;
                        connection.attached = None;
                    }
                }
            }
            Change::OffsetsOrphaned { group } if mine(group) => {
                self.core.orphaned.insert(group);
            }
            Change::PartitionCreated(_)
            | Change::PartitionUpdated(_)
            | Change::OffsetsOrphaned { .. }
            | Change::PartitionDeleted { .. }
            | Change::SessionOpened { .. } => {}
        }
    }

    /// Shard 0: the metadata group has a new view or role.
    pub(super) fn on_metadata_role(&mut self) {
        let Some(group) = self.groups.get(&GroupId::METADATA).and_then(Hosted::group) else {
            return;
        };
        let view = group.view();
        self.post_to_others(|| Letter::MetadataView { view });
        self.on_metadata_view(view);
    }

    pub(super) fn on_metadata_view(&mut self, view: View) {
        self.metadata_view = view;
        self.sweep();
    }

    /// Body of the answer to code 12.
    pub(super) fn cluster_metadata(&self) -> Vec<u8> {
        let indices = 0..self.core.config.nodes.len();
        let nodes = indices.map(|index| self.node_record(index)).collect();
        let name = Text(&self.core.config.cluster_name);
        ClusterMetadata {
            name,
            nodes: wire::Counted(nodes),
        }
        .encode()
    }

    fn node_record(&self, index: usize) -> NodeRecord<'_> {
        let node = &self.core.config.nodes[index];
        let replica = base::ReplicaIndex(u8::try_from(index).expect("at most seven nodes"));
        let own = replica == self.core.config.replica;
        let count = u8::try_from(self.core.config.nodes.len()).expect("at most seven nodes");
        let primary = self.metadata_view.primary(count) == replica;
        NodeRecord {
            name: Text(&node.name),
            ip: Text(&node.client_host),
            tcp: if own && self.client_port != 0 {
                self.client_port
            } else {
                node.client_port
            },
            quic: 0,
            http: 0,
            websocket: 0,
            role: if primary {
                NodeRole::Leader
            } else {
                NodeRole::Follower
            },
            status: if !own && self.core.links.is_silent(replica) {
                NodeStatus::Unreachable
            } else {
                NodeStatus::Healthy
            },
        }
    }

    /// Body of the answers to codes 103 and 123: this node serves every partition, by passing
    /// requests on where it must.
    pub(super) fn routing_reply(&self, bound: &Bound) -> Vec<u8> {
        let attach = wire::AttachSession {
            client_id: bound.client.0,
            session: bound.session,
            metadata_watermark: self.metadata.op().0,
        };
        let node = self.node_record(usize::from(self.core.config.replica.0));
        Route { attach, node }.encode()
    }
}
