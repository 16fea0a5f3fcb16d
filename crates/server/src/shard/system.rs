//! What the server says of itself and of its clients (`wire.md` 5.1): codes 10, 11, 20, 21, 22.
//!
//! Clients are those of this node. Everything about the process and its machine comes from the
//! body as [`platform::Facts`], and goes to people only.

use alloc::{collections::BTreeMap, string::ToString, vec::Vec};

use platform::{ClientFacts, ConnectionId, Effect, Token, Work};
use wire::{
    ArchiveCompression, ArchiveContent, Codec, Counted, ErrorCode, Operation, RequestHeader, Text,
    TransportKind,
    reply::{ClientGroup, ClientRecord, NO_USER, Stats, decimal_version},
    request::Snapshot,
};

use super::{OWNER_SHARD, Shard, client::SERVER_VERSION, gather::Gather, reads::Question};
use crate::{ask::Ask, connections::Bound};

/// Archives that one shard may have in the making.
const ARCHIVES_MAX: usize = 4;

/// Requests for archives that are being made, by ticket.
pub(super) type Archives = BTreeMap<u64, Ask>;

/// The number of a client on the wire: that of its connection, of which no node has as many.
const fn client_id(connection: ConnectionId) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let id = connection.0 as u32;
    id
}

impl Shard {
    /// Body of the answer to code 20.
    pub(super) fn me(&mut self, connection: ConnectionId) -> Vec<u8> {
        let mut facts = self.connections.facts();
        let own = facts.find(|facts| facts.connection == connection);
        own.map_or_else(Vec::new, |own| self.client_details(&own))
    }

    /// Codes 10, 21 and 22.
    pub(super) fn on_system_read(&mut self, ask: Ask, question: Question) {
        let wanted = match question {
            Question::Stats => self.metadata.partitions().map(|info| info.group).collect(),
            _ => alloc::collections::BTreeSet::new(),
        };
        self.gather(ask, question, wanted);
    }

    pub(super) fn client_body(&self, id: u32, clients: &[ClientFacts]) -> Vec<u8> {
        let wanted = clients
            .iter()
            .find(|facts| client_id(facts.connection) == id);
        wanted.map_or_else(Vec::new, |facts| self.client_details(facts))
    }

    pub(super) fn clients_body(&self, clients: &[ClientFacts]) -> Vec<u8> {
        let mut clients: Vec<&ClientFacts> = clients.iter().collect();
        clients.sort_by_key(|facts| client_id(facts.connection));
        let mut body = Vec::new();
        for facts in clients {
            self.write_client(facts, &mut body);
        }
        body
    }

    /// A client's record and the groups it is in.
    fn client_details(&self, facts: &ClientFacts) -> Vec<u8> {
        let mut body = Vec::new();
        self.write_client(facts, &mut body);
        for group in self.groups_of(facts) {
            group.write(&mut body);
        }
        body
    }

    fn groups_of(&self, facts: &ClientFacts) -> Vec<ClientGroup> {
        let groups = facts
            .session
            .map(|(client, _)| self.metadata.memberships(client));
        groups.into_iter().flatten().collect()
    }

    fn write_client(&self, facts: &ClientFacts, body: &mut Vec<u8>) {
        let record = ClientRecord {
            client_id: client_id(facts.connection),
            user_id: facts.session.map_or(NO_USER, |(_, user)| user),
            transport: TransportKind::Tcp,
            address: Text(&facts.address.to_string()),
            groups_count: u32::try_from(self.groups_of(facts).len()).unwrap_or(u32::MAX),
        };
        record.write(body);
    }

    pub(super) fn stats_body(&self, gather: &Gather) -> Vec<u8> {
        let counts = self.metadata.counts();
        let (mut size, mut messages, mut segments) = (0, 0, 0);
        for info in self.metadata.partitions() {
            let stats = gather.stats(info.group);
            size += stats.size_bytes;
            messages += stats.messages_count;
            segments += stats.segments_count;
        }
        let now = self.core.now;
        let facts = &gather.facts;
        Stats {
            process_id: facts.process_id,
            cpu_usage_bits: facts.cpu_usage_bits,
            total_cpu_usage_bits: facts.cpu_usage_total_bits,
            memory_usage: facts.memory_usage,
            total_memory: facts.memory_total,
            available_memory: facts.memory_available,
            run_time: now.realtime.0.saturating_sub(self.started.0),
            start_time: self.started.0,
            read_bytes: facts.bytes_read,
            written_bytes: facts.bytes_written,
            messages_size_bytes: size,
            streams_count: counts.streams,
            topics_count: counts.topics,
            partitions_count: counts.partitions,
            segments_count: segments,
            messages_count: messages,
            clients_count: u32::try_from(gather.clients.len()).unwrap_or(u32::MAX),
            consumer_groups_count: u32::try_from(self.metadata.consumer_groups_count())
                .unwrap_or(u32::MAX),
            hostname: Text(&facts.hostname),
            os_name: Text(&facts.os_name),
            os_version: Text(&facts.os_version),
            kernel_version: Text(&facts.kernel_version),
            server_version: Text(SERVER_VERSION),
            server_semver: decimal_version(0, 11, 0),
            // There is no cache to speak of: the newest batches are served from where they were
            // appended, all else by the operating system.
            caches: Counted(Vec::new()),
            threads_count: facts.threads_count,
            free_disk_space: facts.disk_free,
            total_disk_space: facts.disk_total,
        }
        .encode()
    }

    /// Code 11: the body makes the archive, off the turn.
    pub(super) fn on_snapshot(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        snapshot: Snapshot<'_>,
        bound: &Bound,
    ) {
        if self.archives.len() >= ARCHIVES_MAX {
            return self.deny(connection, &header, ErrorCode::TRANSIENT_NOT_ACCEPTED);
        }
        if snapshot.compression == ArchiveCompression::Lzma {
            // No body can write it; XZ is the same compression.
            return self.deny(connection, &header, ErrorCode::FEATURE_UNAVAILABLE);
        }
        let mut contents: Vec<ArchiveContent> = snapshot.contents().collect();
        if contents.is_empty() {
            contents.push(ArchiveContent::All);
        }
        let compression = snapshot.compression;
        let ask = self.ask(connection, header, base::Bytes::default(), bound.user);
        let token = Token {
            owner: OWNER_SHARD,
            request: ask.ticket.number,
        };
        self.archives.insert(ask.ticket.number, ask);
        let work = Work::Archive {
            compression,
            contents,
        };
        self.core.out.push(Effect::Compute { token, work });
    }

    pub(super) fn on_archived(&mut self, number: u64, archive: Option<&[u8]>) {
        let Some(ask) = self.archives.remove(&number) else {
            return;
        };
        let answer = match archive {
            Some(bytes) => ask.reply(self.metadata.op(), Operation::NonReplicated, bytes),
            None => ask.refuse(ErrorCode::SNAPSHOT_FILE_COMPLETION_FAILED),
        };
        self.core.answers.push(answer);
    }
}
