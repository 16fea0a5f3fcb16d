//! What clients read of the metadata, and the records in replies: all of it as it was at one op.

use base::ClientId;
use client::Reply;
use wire::{
    Code, Codec, CompressionAlgorithm, Counted, ErrorCode, Options, OptionsScope, Prefixed,
    Request,
    reply::{
        ClientDetails, ClusterMetadata, OptionDescription, PartitionRecord, Stats, StreamDetails,
        StreamRecord, TokenRecord, TopicDetails, TopicRecord, UserDetails, UserRecord,
    },
};

use super::{
    Auditor, Verdict,
    options::TopicOptions,
    rights,
    state::{State, Stream, Told, Topic, User},
};

/// A read, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) code: Code,
    pub(crate) body: Vec<u8>,
    /// The newest op that anybody had been told of when it was.
    pub(crate) floor: u64,
}

/// How it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered<'a> {
    Done(&'a Reply),
    Refused(ErrorCode),
}

/// Whether a record is as it must be.
type Fit = Result<(), String>;

fn fit(fits: bool, record: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug) -> Fit {
    if fits {
        return Ok(());
    }
    Err(format!("told {record:?}, and it is {expected:?}"))
}

fn whole<'a, T: Codec<'a>>(payload: &'a [u8]) -> Result<T, String> {
    T::decode(payload).map_err(|error| format!("the record is none: {error:?}"))
}

fn optional<'a, T: Codec<'a>>(payload: &'a [u8]) -> Result<Option<T>, String> {
    if payload.is_empty() {
        return Ok(None);
    }
    whole(payload).map(Some)
}

impl Auditor {
    /// A client's read has been answered.
    pub(crate) fn on_read(
        &self,
        time: u64,
        client: ClientId,
        read: &Read,
        answered: Answered<'_>,
    ) -> Verdict {
        let operation = read.code.operation();
        let request = Request::decode(operation, read.code.number(), &read.body);
        let (Ok(request), Some(user), false) = (request, self.sessions.user_of(client), self.ended)
        else {
            return Ok(());
        };
        let fit = match answered {
            Answered::Refused(code) => self.check_refused(user, read, &request, code),
            Answered::Done(reply) => self.check_read(client, user, read, &request, reply),
        };
        let text = |message| format!("{} of user {user}: {message}", read.code);
        fit.or_else(|message| self.fail(time, text(message)))
    }

    /// Rights are those of some moment of the call.
    fn check_refused(&self, user: u32, read: &Read, request: &Request<'_>, code: ErrorCode) -> Fit {
        if ![ErrorCode::UNAUTHORIZED, ErrorCode::UNAUTHENTICATED].contains(&code) {
            return Ok(());
        }
        let mut versions = self.versions_since(read.floor);
        if versions.any(|state| rights::permit(state, user, request) == Err(code)) {
            base::sometimes!("audit: a read is refused for want of a right");
            return Ok(());
        }
        Err(format!("refused with {code}, and was permitted all along"))
    }

    fn check_read(
        &self,
        client: ClientId,
        user: u32,
        read: &Read,
        request: &Request<'_>,
        reply: &Reply,
    ) -> Fit {
        let payload = reply.payload();
        match request {
            Request::DescribeOptions(scope) => return self.check_options(*scope, payload),
            Request::GetClusterMetadata => return self.check_nodes(payload),
            Request::GetMe => {
                let told: ClientDetails<'_> = whole(payload)?;
                return fit(told.client.user_id == user, &told, &user);
            }
            Request::GetStats
            | Request::GetStream(_)
            | Request::GetStreams
            | Request::GetTopic(_)
            | Request::GetTopics(_)
            | Request::GetUser(_)
            | Request::GetUsers
            | Request::GetPersonalAccessTokens => {}
            _ => return Ok(()),
        }
        let op = reply.header().op;
        if op < read.floor || op > self.op {
            let (floor, last) = (read.floor, self.op);
            return Err(format!("shows op {op}, not one of {floor} to {last}"));
        }
        let mut versions = self.versions_since(read.floor);
        if !versions.any(|state| rights::permit(state, user, request).is_ok()) {
            return Err(format!("answered for {client:?} without a right to it"));
        }
        base::sometimes!("audit: a read is held against its op");
        let fit = self.version(op).check_read(user, request, payload);
        fit.map_err(|message| format!("at op {op}, {message}"))
    }

    fn check_options(&self, scope: OptionsScope, payload: &[u8]) -> Fit {
        let told: Counted<OptionDescription<'_>> = whole(payload)?;
        let known = self.state.usual_options();
        let wanted = match scope {
            OptionsScope::Topic => known.len(),
            OptionsScope::Stream | OptionsScope::User => 0,
        };
        let described =
            |it: &OptionDescription<'_>| known.is_described(it.key.as_str(), it.kind, it.default.0);
        let fits = told.0.len() == wanted && told.0.iter().all(described);
        fit(fits, &told, &known)
    }

    fn check_nodes(&self, payload: &[u8]) -> Fit {
        let told: ClusterMetadata<'_> = whole(payload)?;
        let leads = |node: &&wire::reply::NodeRecord<'_>| node.role == wire::NodeRole::Leader;
        let nodes = &told.nodes.0;
        let fits = nodes.len() == self.setting.nodes && nodes.iter().filter(leads).count() == 1;
        fit(fits, &told, &self.setting.nodes)
    }
}

impl State {
    /// The payload of a reply to an op that has just been done.
    pub(super) fn check_payload(&self, told: &Told, payload: &[u8]) -> Fit {
        match *told {
            Told::Nothing | Told::Token => fit(payload.is_empty(), &payload, &""),
            Told::Stream(id) => {
                let record: StreamRecord<'_> = whole(payload)?;
                let empty = record.size_bytes == 0 && record.messages_count == 0;
                fit_stream(&record, id, &self.streams[&id])?;
                fit(empty, &record, &"empty")
            }
            Told::Topic(stream, id) => {
                let details: TopicDetails<'_> = whole(payload)?;
                fit_topic_details(&details, id, &self.streams[&stream].topics[&id])?;
                let fresh = |it: &PartitionRecord| {
                    let numbers = (it.current_offset, it.size_bytes, it.messages_count);
                    it.segments_count == 1 && numbers == (0, 0, 0)
                };
                let empty = details.topic.size_bytes == 0 && details.topic.messages_count == 0;
                let all = details.partitions.iter().all(fresh);
                fit(empty && all, &details, &"empty")
            }
            Told::User(id) => fit_user_details(&whole(payload)?, id, &self.users[&id]),
        }
    }

    /// The payload of a reply to a read.
    fn check_read(&self, user: u32, request: &Request<'_>, payload: &[u8]) -> Fit {
        match request {
            Request::GetStream(stream) => {
                let told: Option<StreamDetails<'_>> = optional(payload)?;
                let known = self.find_stream(*stream);
                let (Some(told), Some(id)) = (&told, known) else {
                    return fit(told.is_none() && known.is_none(), &told, &known);
                };
                let stream = &self.streams[&id];
                fit_stream(&told.stream, id, stream)?;
                fit_topics(&told.topics, stream)
            }
            Request::GetStreams => {
                let told: Vec<StreamRecord<'_>> = whole(payload)?;
                fit(told.len() == self.streams.len(), &told, &self.streams)?;
                let mut both = told.iter().zip(&self.streams);
                both.try_for_each(|(told, (id, stream))| fit_stream(told, *id, stream))
            }
            Request::GetTopic(of) => {
                let told: Option<TopicDetails<'_>> = optional(payload)?;
                let known = self.find_topic(of.stream, of.topic).ok();
                let (Some(told), Some((stream, id))) = (&told, known) else {
                    return fit(told.is_none() && known.is_none(), &told, &known);
                };
                fit_topic_details(told, id, &self.streams[&stream].topics[&id])
            }
            Request::GetTopics(stream) => {
                let told: Option<Counted<TopicRecord<'_>>> = optional(payload)?;
                let known = self.find_stream(*stream);
                let (Some(told), Some(id)) = (&told, known) else {
                    return fit(told.is_none() && known.is_none(), &told, &known);
                };
                fit_topics(&told.0, &self.streams[&id])
            }
            Request::GetUser(of) => {
                let told: Option<UserDetails<'_>> = optional(payload)?;
                let known = self.find_user(*of);
                let (Some(told), Some(id)) = (&told, known) else {
                    return fit(told.is_none() && known.is_none(), &told, &known);
                };
                fit_user_details(told, id, &self.users[&id])
            }
            Request::GetUsers => {
                let told: Vec<UserRecord<'_>> = whole(payload)?;
                fit(told.len() == self.users.len(), &told, &self.users)?;
                let mut both = told.iter().zip(&self.users);
                both.try_for_each(|(told, (id, user))| fit_user(told, *id, user))
            }
            Request::GetPersonalAccessTokens => {
                let told: Vec<TokenRecord<'_>> = whole(payload)?;
                let tokens = self.users.get(&user).map(|user| &user.tokens);
                let tokens = tokens.into_iter().flatten();
                let known: Vec<_> = tokens
                    .map(|(name, (_, end))| (name.as_str(), end.unwrap_or(0)))
                    .collect();
                let told: Vec<_> = told
                    .iter()
                    .map(|it| (it.name.as_str(), it.expiry_at))
                    .collect();
                fit(told == known, &told, &known)
            }
            _ => {
                let told: Stats<'_> = whole(payload)?;
                let topics = self.streams.values().flat_map(|it| it.topics.values());
                let partitions: usize = topics.clone().map(|it| it.partitions.len()).sum();
                let known = [self.streams.len(), topics.count(), partitions];
                let counts = [told.streams_count, told.topics_count, told.partitions_count];
                let counts = counts.map(|count| count as usize);
                fit(counts == known, &counts, &known)
            }
        }
    }
}

fn fit_stream(told: &StreamRecord<'_>, id: u32, stream: &Stream) -> Fit {
    let fits = told.id == id
        && told.created_at == stream.created_at
        && told.topics_count as usize == stream.topics.len()
        && told.name.as_str() == stream.name
        && told.options == Prefixed(Options::default());
    fit(fits, told, stream)
}

fn fit_topics(told: &[TopicRecord<'_>], stream: &Stream) -> Fit {
    fit(told.len() == stream.topics.len(), &told, stream)?;
    let mut both = told.iter().zip(&stream.topics);
    both.try_for_each(|(told, (id, topic))| fit_topic(told, *id, topic))
}

fn fit_topic(told: &TopicRecord<'_>, id: u32, topic: &Topic) -> Fit {
    let options: &TopicOptions = &topic.options;
    let compressed = told.compression_algorithm == CompressionAlgorithm::Gzip;
    let fits = told.id == id
        && told.created_at == topic.created_at
        && told.partitions_count as usize == topic.partitions.len()
        && told.message_expiry == options.number("message_expiry")
        && told.max_topic_size == options.number("max_topic_size")
        && compressed == options.is_compressed()
        && told.name.as_str() == topic.name
        && options.fit(told.options.0, told.derived_options.0);
    fit(fits, told, topic)
}

fn fit_topic_details(told: &TopicDetails<'_>, id: u32, topic: &Topic) -> Fit {
    fit_topic(&told.topic, id, topic)?;
    let records = told.partitions.iter().map(|it| (it.id, it.created_at));
    let known = (0..).zip(topic.partitions.iter().copied());
    fit(records.eq(known), told, topic)?;
    let sums = told.partitions.iter().fold((0, 0), |(bytes, count), it| {
        (bytes + it.size_bytes, count + it.messages_count)
    });
    let whole = (told.topic.size_bytes, told.topic.messages_count);
    fit(sums == whole, &whole, &sums)
}

fn fit_user(told: &UserRecord<'_>, id: u32, user: &User) -> Fit {
    let fits = told.id == id
        && told.created_at == user.created_at
        && told.status == user.status
        && told.username.as_str() == user.name
        && told.options == Prefixed(Options::default());
    fit(fits, told, user)
}

fn fit_user_details(told: &UserDetails<'_>, id: u32, user: &User) -> Fit {
    fit_user(&told.user, id, user)?;
    // What root may do is not stored.
    let fits = id == 0 || told.permissions == user.permissions;
    fit(fits, told, user)
}
