//! Reads of the metadata and of the server itself: names from this shard's own copy, once that is
//! as new as the primary's was when the read came (ADR 10); sizes, counts and clients from the
//! shards that hold them.

use ::core::cell::RefCell;
use alloc::{collections::BTreeSet, vec::Vec};

use base::GroupId;
use metadata::{EMPTY_PARTITION, PartitionStats};
use wire::{ErrorCode, Operation, Request, request::TopicTarget};

use super::{Shard, gather::Gather};
use crate::ask::Ask;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Streams and topics: every part counts, for their sums are told as the truth.
    Metadata,
    /// One client.
    Client(u32),
    /// All clients.
    Clients,
    /// The numbers of the server.
    Stats,
}

impl Question {
    pub(super) const fn needs_clients(self) -> bool {
        !matches!(self, Self::Metadata)
    }

    pub(super) const fn needs_facts(self) -> bool {
        matches!(self, Self::Stats)
    }

    pub(super) const fn may_be_partial(self) -> bool {
        !matches!(self, Self::Metadata)
    }
}

impl Shard {
    /// Answers a read of the metadata, which is as new here as it was at the primary when the read
    /// came.
    pub(super) fn on_metadata_read(&mut self, ask: Ask) {
        let wanted = RefCell::new(BTreeSet::new());
        let body = self.read_body(&ask, &|group| {
            wanted.borrow_mut().insert(group);
            EMPTY_PARTITION
        });
        match body {
            Ok(_) => self.gather(ask, Question::Metadata, wanted.into_inner()),
            Err(code) => self.core.answers.push(ask.refuse(code)),
        }
    }

    fn read_body(
        &self,
        ask: &Ask,
        stats: &dyn Fn(GroupId) -> PartitionStats,
    ) -> Result<Vec<u8>, ErrorCode> {
        let request = Request::decode(ask.header.operation, ask.header.code, ask.body())
            .map_err(|error| error.code())?;
        match request {
            Request::GetStream(stream) => Ok(self.metadata.get_stream(stream, stats)),
            Request::GetStreams => Ok(self.metadata.get_streams(stats)),
            Request::GetTopic(TopicTarget { stream, topic }) => Ok(self
                .metadata
                .get_topic(&TopicTarget { stream, topic }, stats)),
            Request::GetTopics(stream) => Ok(self.metadata.get_topics(stream, stats)),
            Request::GetUser(user) => Ok(self.metadata.get_user(user)),
            Request::GetUsers => Ok(self.metadata.get_users()),
            Request::GetPersonalAccessTokens => Ok(self.metadata.get_tokens(ask.user)),
            Request::GetConsumerGroup(group) => Ok(self.metadata.get_consumer_group(&group)),
            Request::GetConsumerGroups(topic) => Ok(self.metadata.get_consumer_groups(&topic)),
            Request::SyncConsumerGroup(group) => {
                Ok(self.metadata.sync_consumer_group(&group, ask.consumer))
            }
            _ => Err(ErrorCode::INVALID_COMMAND),
        }
    }

    /// Everything that can be known is.
    pub(super) fn answer_gathered(&mut self, gather: &Gather) {
        let ask = &gather.ask;
        let body = match gather.question {
            Question::Metadata => self.read_body(ask, &|group| gather.stats(group)),
            Question::Client(id) => Ok(self.client_body(id, &gather.clients)),
            Question::Clients => Ok(self.clients_body(&gather.clients)),
            Question::Stats => Ok(self.stats_body(gather)),
        };
        let answer = match body {
            Ok(body) => ask.reply(self.metadata.op(), Operation::NonReplicated, &body),
            Err(code) => ask.refuse(code),
        };
        self.core.answers.push(answer);
    }
}
