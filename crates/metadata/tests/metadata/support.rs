//! A log to apply: builds sealed prepares the way a primary does, and reads them back.

use base::{ClientId, GroupId, Op, ReplicaIndex, Timestamp, View};
use metadata::{Applied, Credential, Limits, Metadata, Register};
use wire::{
    Codec, ErrorCode, HEADER_SIZE, Identifier, Name, Operation, Options, OptionsBlock, ShortText,
    Value,
    replica::PrepareHeader,
    request::{CreateStream, CreateTopic, PartitionsCount, TopicTarget, UpdateStream, UpdateTopic},
};

/// The client whose requests [`Log::ask`] makes.
pub(crate) const CLIENT: ClientId = ClientId(77);

/// A metadata group of one replica.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) metadata: Metadata,
    /// Every prepare so far, for another replica to apply.
    pub(crate) prepares: Vec<Vec<u8>>,
    pub(crate) view: View,
    pub(crate) user: u32,
    parent: u128,
    request: u64,
}

/// A prepare before it is sealed.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) request: u64,
    pub(crate) request_checksum: u128,
    pub(crate) operation: Operation,
    pub(crate) body: &'a [u8],
}

impl Log {
    /// An empty log, without a session.
    pub(crate) fn empty(limits: Limits) -> Self {
        Self {
            metadata: Metadata::new(limits, "iggy"),
            prepares: Vec::new(),
            view: View(3),
            user: 0,
            parent: 0,
            request: 0,
        }
    }

    /// A log whose first op has opened a session for [`CLIENT`].
    pub(crate) fn new(limits: Limits) -> Self {
        let mut log = Self::empty(limits);
        log.register(CLIENT, 0)
            .reply
            .result
            .expect("root may log in");
        log
    }

    /// Seals and applies the next prepare.
    pub(crate) fn append(&mut self, entry: &Entry<'_>) -> Applied {
        let op = self.metadata.op().next();
        let header = PrepareHeader {
            checksum: 0,
            checksum_body: 0,
            cluster: 1,
            size: 0,
            view: self.view,
            replica: ReplicaIndex(0),
            parent: self.parent,
            client: entry.client,
            group: GroupId::METADATA,
            op,
            commit: Op(op.0 - 1),
            timestamp: timestamp_of(op),
            request: entry.request,
            session: entry.session,
            request_checksum: entry.request_checksum,
            user: self.user,
            operation: entry.operation,
            encryption: None,
        };
        let mut frame = vec![0; HEADER_SIZE + entry.body.len()];
        frame[HEADER_SIZE..].copy_from_slice(entry.body);
        header.seal_into(&mut frame);
        let header = PrepareHeader::verify(&frame).expect("just sealed");
        self.parent = header.checksum;
        self.prepares.push(frame);
        self.metadata.apply(&header, entry.body)
    }

    /// The same, of this user.
    pub(crate) fn append_as(&mut self, user: u32, entry: &Entry<'_>) -> Applied {
        let before = std::mem::replace(&mut self.user, user);
        let applied = self.append(entry);
        self.user = before;
        applied
    }

    /// An op of the server's own.
    pub(crate) fn own(&mut self, operation: Operation, body: &[u8]) -> Applied {
        self.append(&Entry {
            client: ClientId(0),
            session: 0,
            request: 0,
            request_checksum: 0,
            operation,
            body,
        })
    }

    /// Opens or renews a session.
    pub(crate) fn register(&mut self, client: ClientId, user: u32) -> Applied {
        let login = self.metadata.login(user);
        let since = login.map_or(Op(0), |login| login.since);
        self.register_with(client, user, Credential::Password { since })
    }

    /// Opens or renews a session of whoever was let in by `credential`.
    pub(crate) fn register_with(
        &mut self,
        client: ClientId,
        user: u32,
        credential: Credential,
    ) -> Applied {
        let body = Register {
            user,
            sdk_name: Name::new("test").expect("a name"),
            sdk_version: ShortText("1"),
            credential,
        }
        .encode();
        let operation = Operation::Register;
        self.append(&Entry {
            client,
            session: 0,
            request: 0,
            request_checksum: 0,
            operation,
            body: &body,
        })
    }

    /// The next request of [`CLIENT`].
    pub(crate) fn ask(&mut self, operation: Operation, body: &[u8]) -> Applied {
        self.ask_as(CLIENT, operation, body)
    }

    /// The next request of a client in the session it has, or in none.
    pub(crate) fn ask_as(
        &mut self,
        client: ClientId,
        operation: Operation,
        body: &[u8],
    ) -> Applied {
        self.request += 1;
        let session = self
            .metadata
            .session(client)
            .map_or(1, |session| session.session);
        self.append(&Entry {
            client,
            session,
            request: self.request,
            request_checksum: 0,
            operation,
            body,
        })
    }

    /// The same, when only the outcome matters.
    pub(crate) fn result(
        &mut self,
        operation: Operation,
        body: &[u8],
    ) -> Result<Vec<u8>, ErrorCode> {
        self.ask(operation, body)
            .reply
            .result
            .map(|payload| payload.to_vec())
    }

    /// The same, when only the code matters; 0 for success.
    pub(crate) fn code(&mut self, operation: Operation, body: &[u8]) -> u32 {
        self.result(operation, body)
            .map_or_else(|code| code.0, |_| 0)
    }
}

/// When the helper prepares an op.
pub(crate) fn timestamp_of(op: Op) -> Timestamp {
    Timestamp(1_000_000 + op.0)
}

/// Applies a log to another replica.
pub(crate) fn replay(prepares: &[Vec<u8>], limits: Limits) -> (Metadata, Vec<Applied>) {
    let mut metadata = Metadata::new(limits, "iggy");
    let apply = |frame: &Vec<u8>| {
        let header = PrepareHeader::verify(frame).expect("sealed by the helper");
        metadata.apply(&header, &frame[HEADER_SIZE..])
    };
    let applied = prepares.iter().map(apply).collect();
    (metadata, applied)
}

pub(crate) fn named(name: &str) -> Identifier<'_> {
    Identifier::Named(Name::new(name).expect("1 to 255 bytes"))
}

pub(crate) fn id(id: u32) -> Identifier<'static> {
    Identifier::Numeric(id)
}

/// An options block of these options.
pub(crate) fn block(options: &[(&str, Value<'_>)]) -> OptionsBlock {
    let mut block = OptionsBlock::new();
    for (key, value) in options {
        block.push(key, *value);
    }
    block
}

pub(crate) fn create_stream(name: &str) -> Vec<u8> {
    create_stream_with(name, Options::default())
}

pub(crate) fn create_stream_with(name: &str, options: Options<'_>) -> Vec<u8> {
    CreateStream {
        name: Name::new(name).expect("a name"),
        options,
    }
    .encode()
}

pub(crate) fn update_stream(stream: Identifier<'_>, name: &str) -> Vec<u8> {
    let name = Name::new(name).expect("a name");
    UpdateStream {
        stream,
        name,
        options: Options::default(),
    }
    .encode()
}

pub(crate) fn create_topic(stream: Identifier<'_>, name: &str, partitions_count: u32) -> Vec<u8> {
    create_topic_with(stream, name, partitions_count, Options::default())
}

pub(crate) fn create_topic_with(
    stream: Identifier<'_>,
    name: &str,
    partitions_count: u32,
    options: Options<'_>,
) -> Vec<u8> {
    let name = Name::new(name).expect("a name");
    CreateTopic {
        stream,
        partitions_count,
        name,
        options,
    }
    .encode()
}

pub(crate) fn update_topic(
    (stream, topic): (Identifier<'_>, Identifier<'_>),
    name: &str,
    options: Options<'_>,
) -> Vec<u8> {
    UpdateTopic {
        stream,
        topic,
        name: Name::new(name).expect("a name"),
        options,
    }
    .encode()
}

pub(crate) fn topic(stream: Identifier<'_>, topic: Identifier<'_>) -> Vec<u8> {
    TopicTarget { stream, topic }.encode()
}

pub(crate) fn partitions(stream: Identifier<'_>, topic: Identifier<'_>, count: u32) -> Vec<u8> {
    PartitionsCount {
        stream,
        topic,
        count,
    }
    .encode()
}
