//! What clients ask for, and what they may be told.
//!
//! One file per operation family. Each has `sample` (what to ask next, from the client's own
//! stream of randomness) and `judge` (whether the answer is one that may be given). Names of
//! streams and topics and payloads of messages are never used twice, so that whatever comes back
//! says where it came from.

mod consumer_offsets;
mod given;
mod poll;
mod produce;
mod segments;
mod streams;
mod system;
mod topics;
mod users;

use std::collections::BTreeMap;

use base::{ClientId, Domain, Prng};
use client::{ClientError, Completion, Reply, RequestFrame};
use wire::{ErrorCode, Identifier, Name, PollingStrategy};

use crate::{
    check::{
        Failure, Verdict, ensure,
        history::{Answer, History},
        linear::{Linear, Target, Window},
    },
    profile::{Classes, Durability, Shape},
};

pub(crate) use given::Order;
pub(crate) use produce::payload_target;

const CHECK: &str = "answers";

/// A call, with what is needed to judge its answer.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    CreateStream {
        stream: u64,
    },
    DeleteStream {
        stream: u64,
    },
    GetStream {
        stream: u64,
    },
    GetStreams,
    CreateTopic {
        topic: u64,
        /// Its oldest segments may go.
        trims: bool,
    },
    DeleteTopic {
        topic: u64,
    },
    CreatePartitions {
        topic: u64,
        count: u32,
    },
    DeletePartitions {
        topic: u64,
        count: u32,
    },
    GetTopic {
        topic: u64,
    },
    Send {
        target: Target,
        payloads: Vec<u64>,
    },
    Poll {
        target: Target,
        strategy: PollingStrategy,
        count: u32,
        consumer: u32,
        /// It stores what it reads as the consumer's offset.
        commits: bool,
    },
    StoreOffset {
        target: Target,
        consumer: u32,
        offset: u64,
    },
    DeleteOffset {
        target: Target,
        consumer: u32,
    },
    GetOffset {
        target: Target,
        consumer: u32,
    },
    DeleteSegments {
        target: Target,
    },
    PurgeTopic {
        topic: u64,
    },
    CreateUser {
        user: u64,
    },
    DeleteUser {
        user: u64,
    },
    GetUser {
        user: u64,
    },
    GetUsers,
    /// Passwords are numbers here.
    ChangePassword {
        user: u64,
        current: u64,
        new: u64,
    },
    CreateToken {
        token: u64,
    },
    GetTokens,
    Ping,
    Metadata,
}

impl Call {
    const fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::GetStream { .. }
                | Self::GetStreams
                | Self::GetTopic { .. }
                | Self::Poll { .. }
                | Self::GetOffset { .. }
                | Self::GetUser { .. }
                | Self::GetUsers
                | Self::GetTokens
                | Self::Ping
                | Self::Metadata
        )
    }

    /// The partition it writes to.
    pub(crate) const fn target(&self) -> Option<Target> {
        match self {
            Self::Send { target, .. }
            | Self::StoreOffset { target, .. }
            | Self::DeleteOffset { target, .. }
            | Self::DeleteSegments { target, .. } => Some(*target),
            _ => None,
        }
    }
}

impl Call {
    /// The partition it is about.
    pub(crate) const fn partition(&self) -> Option<Target> {
        match self {
            Self::Poll { target, .. } | Self::GetOffset { target, .. } => Some(*target),
            _ => self.target(),
        }
    }
}

/// A call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) call: Call,
    pub(crate) window: Window,
}

/// What clients know of a stream.
#[derive(Clone, Debug)]
struct Stream {
    live: bool,
    /// Its number, once it is created.
    id: u32,
    /// Changes that somebody has asked for and nobody knows the outcome of.
    doubts: u32,
}

/// What clients know of a topic.
#[derive(Clone, Debug)]
struct Topic {
    stream: u64,
    partitions: u32,
    live: bool,
    /// As in a stream.
    doubts: u32,
    /// Its oldest segments may go.
    trims: bool,
}

struct Caller {
    id: ClientId,
    prng: Prng,
    /// Numbers used up by writes, as the client counts them.
    numbers: u64,
    pending: Option<(Call, u64)>,
    sequence: u64,
}

/// See the module.
pub(crate) struct Workload {
    callers: Vec<Caller>,
    streams: BTreeMap<u64, Stream>,
    topics: BTreeMap<u64, Topic>,
    users: users::Users,
    names: u64,
    durability: Durability,
    segment_size: u64,
    /// Sessions may be lost to others: a repeated request may then be new to the server.
    sessions_end: bool,
    classes: Classes,
    /// The last offset that a send to a partition was told of.
    heads: BTreeMap<Target, u64>,
    /// Writes by client and number.
    pub(crate) made: BTreeMap<(ClientId, u64), Made>,
    /// What clients asked of partitions and were told.
    pub(crate) history: History,
    pub(crate) calls: u64,
    pub(crate) done: u64,
    pub(crate) unknown: u64,
    pub(crate) refused: u64,
}

/// Where a sample comes from.
struct Sampler<'a> {
    workload: &'a mut Workload,
    client: usize,
    time: u64,
}

impl Workload {
    pub(crate) fn new(shape: &Shape) -> Self {
        let seed = shape.seed;
        let caller = |index: u8| {
            let mut prng = Prng::new(seed, Domain::Workload, u64::from(index));
            let id = ClientId(prng.next_u128() | 1);
            Caller {
                id,
                prng,
                numbers: 0,
                pending: None,
                sequence: 0,
            }
        };
        Self {
            callers: (0..shape.clients).map(caller).collect(),
            streams: BTreeMap::new(),
            topics: BTreeMap::new(),
            users: users::Users::default(),
            names: 0,
            durability: shape.durability,
            segment_size: shape.limits.segment_size,
            sessions_end: shape.classes.evictions,
            classes: shape.classes,
            heads: BTreeMap::new(),
            made: BTreeMap::new(),
            history: History::default(),
            calls: 0,
            done: 0,
            unknown: 0,
            refused: 0,
        }
    }

    pub(crate) fn id(&self, client: usize) -> ClientId {
        self.callers[client].id
    }

    /// The next call of a client that has none outstanding.
    pub(crate) fn next(&mut self, time: u64, client: usize) -> RequestFrame {
        let mut sampler = Sampler {
            workload: self,
            client,
            time,
        };
        let (call, frame) = sampler.sample();
        sampler.raise_doubt(&call);
        self.begin(time, client, call);
        frame
    }

    fn begin(&mut self, time: u64, client: usize, call: Call) {
        let caller = &mut self.callers[client];
        assert!(caller.pending.is_none());
        self.calls += 1;
        self.history.on_call(time, client, &call);
        if call.is_write() {
            let window = Window {
                start: time,
                end: u64::MAX,
            };
            let made = Made {
                call: call.clone(),
                window,
            };
            self.made.insert((caller.id, caller.numbers + 1), made);
        }
        caller.pending = Some((call, time));
    }

    pub(crate) fn is_idle(&self, client: usize) -> bool {
        self.callers[client].pending.is_none()
    }

    /// What the client waits for.
    pub(crate) fn pending(&self, client: usize) -> Option<&Call> {
        self.callers[client].pending.as_ref().map(|(call, _)| call)
    }

    /// The last number that a client has given to a write.
    pub(crate) fn last_request(&self, client: usize) -> u64 {
        self.callers[client].numbers
    }

    /// A client has died: nobody will ever know what became of its call. `last_request` is what
    /// the application had written down of its numbers.
    pub(crate) fn on_crash(&mut self, client: usize, last_request: u64) {
        let caller = &mut self.callers[client];
        let Some((call, _)) = caller.pending.take() else {
            return;
        };
        self.unknown += 1;
        if !call.is_write() {
            return;
        }
        self.users.doubt(&call);
        if last_request > caller.numbers {
            caller.numbers = last_request;
        } else {
            // It never had its turn.
            self.made.remove(&(caller.id, caller.numbers + 1));
        }
    }

    /// A client comes back as somebody else.
    pub(crate) fn rename(&mut self, client: usize) {
        let caller = &mut self.callers[client];
        caller.id = ClientId(caller.prng.next_u128() | 1);
        caller.numbers = 0;
    }

    /// A call has come to its end. True if it has certainly been done.
    pub(crate) fn on_completion(
        &mut self,
        time: u64,
        client: usize,
        completion: &Completion,
        linear: &mut Linear,
    ) -> Result<bool, Failure> {
        let caller = &mut self.callers[client];
        let (call, start) = caller.pending.take().expect("one call at a time");
        if call.is_write() {
            let key = (caller.id, caller.numbers + 1);
            if completion.request == 0 {
                self.made.remove(&key);
            } else {
                ensure(completion.request == key.1, CHECK, time, || {
                    format!(
                        "client {client} numbered a write {}, not {}",
                        completion.request, key.1
                    )
                })?;
                caller.numbers = key.1;
            }
            let known = match &completion.outcome {
                Ok(_) => true,
                Err(error) => !error.maybe_applied() || *error == ClientError::AlreadyApplied,
            };
            if known && let Some(made) = self.made.get_mut(&key) {
                made.window.end = time;
            }
        }
        let mut sampler = Sampler {
            workload: self,
            client,
            time,
        };
        match &completion.outcome {
            Ok(reply) => {
                sampler.workload.done += 1;
                sampler.settle_doubt(&call);
                sampler.judge(&call, start, reply, linear)?;
                sampler.answered(Answer::Done);
                Ok(true)
            }
            Err(error) => {
                if error.maybe_applied() {
                    sampler.workload.users.doubt(&call);
                }
                sampler.refused(&call, *error)
            }
        }
    }

    /// Calls that must succeed once all faults are over: a write to every partition that surely
    /// exists, and one to the metadata.
    pub(crate) fn final_calls(&mut self) -> Vec<FinalCall> {
        let live = self
            .topics
            .iter()
            .filter(|(_, topic)| self.surely_live(topic));
        let targets = live.flat_map(|(&topic, known)| {
            (0..known.partitions).map(move |partition| Target { topic, partition })
        });
        let mut calls: Vec<_> = targets.map(FinalCall::Send).collect();
        calls.push(FinalCall::CreateStream);
        calls
    }

    fn surely_live(&self, topic: &Topic) -> bool {
        let stream = &self.streams[&topic.stream];
        topic.live && topic.doubts == 0 && stream.live && stream.doubts == 0
    }

    /// Makes one of the final calls.
    pub(crate) fn finally(&mut self, time: u64, client: usize, call: FinalCall) -> RequestFrame {
        let mut sampler = Sampler {
            workload: self,
            client,
            time,
        };
        let (call, frame) = match call {
            FinalCall::CreateStream => sampler.create_stream(),
            FinalCall::Send(target) => sampler.send(target),
        };
        self.begin(time, client, call);
        frame
    }
}

/// A call of the last phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FinalCall {
    CreateStream,
    Send(Target),
}

impl Sampler<'_> {
    fn prng(&mut self) -> &mut Prng {
        &mut self.workload.callers[self.client].prng
    }

    fn sample(&mut self) -> (Call, RequestFrame) {
        if self.some_target().is_none() {
            return self.sample_set_up();
        }
        match self.prng().below(100) {
            0..55 => self.sample_send(),
            55..75 => self.sample_poll(),
            75..86 => self.sample_consumer_offset(),
            86..88 => self.sample_trim(),
            88..91 => self.sample_stream(),
            91..95 => self.sample_topic(),
            95..98 => self.sample_user(),
            _ => self.sample_system(),
        }
    }

    /// Somewhere to write to comes first.
    fn sample_set_up(&mut self) -> (Call, RequestFrame) {
        match self.some_stream() {
            Some(stream) => self.create_topic(stream),
            None => self.create_stream(),
        }
    }

    fn judge(&mut self, call: &Call, start: u64, reply: &Reply, linear: &mut Linear) -> Verdict {
        match call {
            Call::CreateStream { .. }
            | Call::DeleteStream { .. }
            | Call::GetStream { .. }
            | Call::GetStreams => {
                if let Call::DeleteStream { stream } = *call {
                    let op = reply.header().op;
                    self.workload.users.on_stream_deleted(stream, start, op);
                }
                self.judge_stream(call, reply)
            }
            Call::CreateTopic { .. }
            | Call::DeleteTopic { .. }
            | Call::CreatePartitions { .. }
            | Call::DeletePartitions { .. }
            | Call::GetTopic { .. } => self.judge_topic(call, reply),
            Call::Send { target, payloads } => self.judge_send((*target, payloads), reply, linear),
            Call::Poll {
                target,
                strategy,
                count,
                consumer,
                commits,
            } => {
                let consumer = commits.then_some(*consumer);
                self.judge_poll(
                    (*target, *strategy, *count),
                    (consumer, start),
                    reply,
                    linear,
                )
            }
            Call::StoreOffset { .. } | Call::DeleteOffset { .. } => Ok(()),
            Call::DeleteSegments { .. } | Call::PurgeTopic { .. } => self.judge_trim(call, reply),
            Call::GetOffset { target, consumer } => {
                self.judge_offset(*target, *consumer, reply, linear)
            }
            Call::CreateUser { .. }
            | Call::DeleteUser { .. }
            | Call::GetUser { .. }
            | Call::GetUsers
            | Call::ChangePassword { .. }
            | Call::CreateToken { .. }
            | Call::GetTokens => self.judge_user(call, start, reply),
            Call::Ping | Call::Metadata => self.judge_system(call, start, reply),
        }
    }

    /// The history hears how the present call ended.
    fn answered(&mut self, answer: Answer<'_>) {
        let history = &mut self.workload.history;
        history.on_answer(self.time, self.client, answer);
    }

    /// A refusal is an answer too: only some codes may be given to a well-formed request. True if
    /// it says that the call has been done before.
    fn refused(&mut self, call: &Call, error: ClientError) -> Result<bool, Failure> {
        self.answered(if error.maybe_applied() {
            Answer::Unknown
        } else {
            let code = ErrorCode::CONSUMER_OFFSET_NOT_FOUND;
            let nothing_stored = matches!(error, ClientError::Refused { code: c, .. } if c == code);
            Answer::Refused { nothing_stored }
        });
        let code = match error {
            ClientError::Refused { code, .. } => code,
            ClientError::AlreadyApplied | ClientError::Timeout { .. } => {
                self.workload.unknown += 1;
                return Ok(false);
            }
            ClientError::Stopped { reason, .. } => {
                let client = self.client;
                self.fail(format!("client {client} was stopped: {reason}"))?;
                return Ok(false);
            }
        };
        self.workload.refused += 1;
        if !error.maybe_applied() {
            self.settle_doubt(call);
        }
        const NOT_FOUND: [ErrorCode; 6] = [
            ErrorCode::RESOURCE_NOT_FOUND,
            ErrorCode::STREAM_ID_NOT_FOUND,
            ErrorCode::STREAM_NAME_NOT_FOUND,
            ErrorCode::TOPIC_ID_NOT_FOUND,
            ErrorCode::TOPIC_NAME_NOT_FOUND,
            ErrorCode::PARTITION_NOT_FOUND,
        ];
        let names_something = !matches!(
            call,
            Call::CreateStream { .. }
                | Call::GetStreams
                | Call::CreateUser { .. }
                | Call::GetUsers
                | Call::CreateToken { .. }
                | Call::GetTokens
                | Call::Ping
                | Call::Metadata
        );
        let may_be_gone = NOT_FOUND.contains(&code) && names_something;
        let no_offset = code == ErrorCode::CONSUMER_OFFSET_NOT_FOUND
            && matches!(call, Call::DeleteOffset { .. } | Call::GetOffset { .. });
        let beyond = code == ErrorCode::INVALID_OFFSET && matches!(call, Call::StoreOffset { .. });
        let too_few = [
            ErrorCode::TOO_MANY_PARTITIONS,
            ErrorCode::INVALID_PARTITIONS_COUNT,
        ]
        .contains(&code)
            && matches!(
                call,
                Call::DeletePartitions { .. } | Call::CreatePartitions { .. }
            );
        // An earlier attempt, in a session that was lost to another client, has done it.
        let did_it = self.workload.sessions_end
            && error.maybe_applied()
            && [
                ErrorCode::STREAM_NAME_ALREADY_EXISTS,
                ErrorCode::TOPIC_NAME_ALREADY_EXISTS,
                ErrorCode::USER_ALREADY_EXISTS,
                ErrorCode::PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS,
            ]
            .contains(&code)
            && matches!(
                call,
                Call::CreateStream { .. }
                    | Call::CreateTopic { .. }
                    | Call::CreateUser { .. }
                    | Call::CreateToken { .. }
            );
        // Somebody else has changed it since, or an earlier attempt has.
        let changed =
            code == ErrorCode::INVALID_CREDENTIALS && matches!(call, Call::ChangePassword { .. });
        base::sometimes!(did_it, "fault: a session is lost between two attempts");
        let disk = self.is_disk_to_blame(call, code);
        if !(may_be_gone || no_offset || beyond || too_few || did_it || changed || disk) {
            let client = self.client;
            self.fail(format!("client {client} was refused {call:?} with {code}"))?;
        }
        Ok(did_it)
    }

    /// A full disk takes no writes; a damaged one does not show what it holds, rather than to
    /// show that there is nothing.
    fn is_disk_to_blame(&self, call: &Call, code: ErrorCode) -> bool {
        let full = [
            ErrorCode::CANNOT_APPEND_MESSAGE,
            ErrorCode::CANNOT_WRITE_TO_FILE,
        ];
        let classes = self.workload.classes;
        if call.is_write()
            || matches!(call, Call::Poll { commits: true, .. }) && full.contains(&code)
        {
            let refused = classes.disk_full && full.contains(&code);
            base::sometimes!(refused, "fault: a write is refused for want of space");
            return refused;
        }
        let unreadable = (classes.damage || classes.disk_errors)
            && code == ErrorCode::CANNOT_READ_MESSAGE
            && matches!(call, Call::Poll { .. });
        base::sometimes!(unreadable, "fault: a poll is refused for what is damaged");
        unreadable
    }

    /// Somebody asks for a change of what others count on.
    fn raise_doubt(&mut self, call: &Call) {
        if let Some(doubts) = self.doubts(call) {
            *doubts += 1;
        }
    }

    /// The outcome of a change is known.
    fn settle_doubt(&mut self, call: &Call) {
        if let Some(doubts) = self.doubts(call) {
            *doubts -= 1;
        }
    }

    fn doubts(&mut self, call: &Call) -> Option<&mut u32> {
        match call {
            Call::DeleteStream { stream } => self
                .workload
                .streams
                .get_mut(stream)
                .map(|stream| &mut stream.doubts),
            Call::DeleteTopic { topic }
            | Call::DeletePartitions { topic, .. }
            | Call::CreatePartitions { topic, .. } => self
                .workload
                .topics
                .get_mut(topic)
                .map(|topic| &mut topic.doubts),
            _ => None,
        }
    }

    fn fail(&self, message: String) -> Verdict {
        Err(Failure {
            check: CHECK,
            time: self.time,
            message,
        })
    }

    fn new_name(&mut self) -> u64 {
        self.workload.names += 1;
        self.workload.names
    }

    fn some_stream(&mut self) -> Option<u64> {
        let streams = self.workload.streams.iter();
        let live: Vec<u64> = streams
            .filter(|(_, stream)| stream.live)
            .map(|(&stream, _)| stream)
            .collect();
        (!live.is_empty()).then(|| live[self.prng().index(live.len())])
    }

    fn some_topic(&mut self) -> Option<u64> {
        let topics = self.workload.topics.iter();
        let live: Vec<u64> = topics
            .filter(|(_, topic)| topic.live && self.workload.streams[&topic.stream].live)
            .map(|(&topic, _)| topic)
            .collect();
        (!live.is_empty()).then(|| live[self.prng().index(live.len())])
    }

    fn some_target(&mut self) -> Option<Target> {
        let topic = self.some_topic()?;
        let partitions = self.workload.topics[&topic].partitions;
        let partition = self.prng().below(u64::from(partitions.max(1)));
        Some(Target {
            topic,
            partition: u32::try_from(partition).expect("few"),
        })
    }

    /// Names of the stream and the topic, for identifiers.
    fn names_of(&self, topic: u64) -> (String, String) {
        let stream = self.workload.topics[&topic].stream;
        (stream_name(stream), topic_name(topic))
    }
}

fn stream_name(stream: u64) -> String {
    format!("stream-{stream}")
}

fn topic_name(topic: u64) -> String {
    format!("topic-{topic}")
}

fn named(name: &str) -> Identifier<'_> {
    Identifier::Named(Name::new(name).expect("a short name"))
}
