//! What clients ask for, and what they may be told.
//!
//! One file per operation family. Each has `sample` (what to ask next, from the client's own
//! stream of randomness) and `judge` (whether the answer is one that may be given). Names of
//! streams and topics and payloads of messages are never used twice, so that whatever comes back
//! says where it came from.

mod call;
mod consumer_offsets;
mod given;
mod groups;
mod last;
mod logins;
mod poll;
mod produce;
mod refused;
mod segments;
mod spare;
mod streams;
mod system;
mod topics;
mod users;

use std::collections::BTreeMap;

use base::{ClientId, Domain, Prng};
use client::{ClientError, Completion, Reply, RequestFrame};
use wire::{Code, Identifier, Name, ShortText};

use crate::{
    check::{
        Failure, Verdict, ensure,
        history::{Answer, History},
        linear::{Linear, Target, Window},
    },
    profile::{Classes, Durability, Shape},
};

pub(crate) use call::{Call, Made};
pub(crate) use given::Order;
pub(crate) use groups::{consumer_key, is_group};
pub(crate) use last::FinalCall;
pub(crate) use logins::Login;
pub(crate) use produce::payload_target;

const CHECK: &str = "answers";

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
    /// The session it is in, as far as is known.
    session: Option<u64>,
}

/// See the module.
pub(crate) struct Workload {
    callers: Vec<Caller>,
    streams: BTreeMap<u64, Stream>,
    topics: BTreeMap<u64, Topic>,
    users: users::Users,
    groups: groups::Groups,
    logins: logins::Logins,
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
                session: None,
            }
        };
        Self {
            callers: (0..shape.clients).map(caller).collect(),
            streams: BTreeMap::new(),
            topics: BTreeMap::new(),
            users: users::Users::default(),
            groups: groups::Groups::default(),
            logins: logins::Logins::default(),
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

    /// A client is in this session.
    pub(crate) fn on_session(&mut self, client: usize, session: Option<u64>) {
        self.callers[client].session = session;
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
        self.groups.forget(client);
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
}

impl Sampler<'_> {
    fn prng(&mut self) -> &mut Prng {
        &mut self.workload.callers[self.client].prng
    }

    fn sample(&mut self) -> (Call, RequestFrame) {
        if self.some_target().is_none() {
            return self.sample_set_up();
        }
        if self.workload.logins.is_guest(self.client) {
            return self.sample_as_guest();
        }
        match self.prng().below(100) {
            0..43 => self.sample_send(),
            43..56 => self.sample_poll(),
            56..65 => self.sample_consumer_offset(),
            65..78 => self.sample_group(),
            78..86 => self.sample_spare(),
            86..88 => self.sample_trim(),
            88..91 => self.sample_stream(),
            91..95 => self.sample_topic(),
            95..98 => self.sample_user(),
            _ => self.sample_system(),
        }
    }

    /// A guest does not create what others count on, nor joins a group: it may be sent away.
    fn sample_as_guest(&mut self) -> (Call, RequestFrame) {
        match self.prng().below(100) {
            0..25 => self.sample_send(),
            25..45 => self.sample_poll(),
            45..58 => self.sample_consumer_offset(),
            58..62 => self.sample_trim(),
            _ => self.sample_spare(),
        }
    }

    /// A token was told, to whoever may read this.
    fn hear_token(&mut self, reply: &Reply) {
        if let Ok(ShortText(token)) = reply.decode::<ShortText<'_>>() {
            self.workload.logins.on_token(token);
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
                let polled = poll::Polled {
                    target: *target,
                    strategy: *strategy,
                    count: *count,
                    consumer: *consumer,
                    commits: *commits,
                    start,
                };
                self.judge_poll(polled, reply, linear)
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
            Call::CreateGroup { .. }
            | Call::DeleteGroup { .. }
            | Call::JoinGroup { .. }
            | Call::LeaveGroup { .. }
            | Call::SyncGroup { .. }
            | Call::GetGroup { .. }
            | Call::GetGroups { .. } => self.judge_group(call, reply),
            Call::Spare { code, .. } => {
                if *code == Code::CreatePersonalAccessToken {
                    self.hear_token(reply);
                }
                Ok(())
            }
            Call::Ping | Call::Metadata => self.judge_system(call, start, reply),
        }
    }

    /// The history hears how the present call ended.
    fn answered(&mut self, answer: Answer<'_>) {
        let history = &mut self.workload.history;
        history.on_answer(self.time, self.client, answer);
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
