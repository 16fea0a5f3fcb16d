//! Several nodes that talk to each other: their connections are plumbed by hand, without loss or
//! delay, unless a test cuts them.

use std::{collections::BTreeMap, time::Duration};

use base::{Bytes, Instant};
use platform::{ConnectionId, ListenerId, NetworkEvent};
use server::Observation;
use wire::{Partitioning, PollingStrategy, Request};

use crate::{
    client::{
        Answer, Client, Polled, batch_of, confirmed, create_stream, create_topic, poll, send,
    },
    node::{Node, Options},
};

/// Where the replica ports begin; the next node has the next port.
const REPLICA_PORT: u16 = 9090;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(12);

/// One end of a connection.
type End = (usize, ConnectionId);

/// A cluster of nodes in one virtual time.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    time: u64,
    /// The other end of each end.
    ends: BTreeMap<End, End>,
    /// From where to where nothing passes; what is sent waits.
    cuts: Vec<(usize, usize)>,
    /// Nodes that get no turns.
    pub(crate) paused: Vec<usize>,
}

impl Cluster {
    pub(crate) fn new(count: u8) -> Self {
        Self::with(count, &Options::default())
    }

    pub(crate) fn with(count: u8, options: &Options) -> Self {
        let options = |replica| Options {
            shards: options.shards.max(1),
            peers: count - 1,
            replica: Some(replica),
            ..options.clone()
        };
        let mut cluster = Self {
            nodes: (0..count)
                .map(|replica| Node::with(options(replica)))
                .collect(),
            time: 0,
            ends: BTreeMap::new(),
            cuts: Vec::new(),
            paused: Vec::new(),
        };
        cluster.run();
        cluster
    }

    /// Whether a node runs and gets its turns.
    fn is_live(&self, node: usize) -> bool {
        !self.nodes[node].shards.is_empty() && !self.paused.contains(&node)
    }

    /// Turns of all nodes until nobody has anything to tell.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            for node in 0..self.nodes.len() {
                if self.is_live(node) {
                    self.nodes[node].run();
                }
            }
            self.connect();
            self.carry();
            let busy = |node: &usize| self.is_live(*node) && self.nodes[*node].is_busy();
            if !(0..self.nodes.len()).any(|node| busy(&node)) {
                return;
            }
        }
        panic!("the nodes do not come to rest");
    }

    /// Carries out what the nodes have dialed.
    fn connect(&mut self) {
        for node in 0..self.nodes.len() {
            for dial in std::mem::take(&mut self.nodes[node].dials) {
                let connection = dial.connection;
                let to = usize::from(dial.address.port() - REPLICA_PORT);
                if self.nodes[to].shards.is_empty() {
                    let closed = NetworkEvent::Closed { connection };
                    self.nodes[node].tell(connection, closed);
                    continue;
                }
                let accepted = self.nodes[to].accept(ListenerId::REPLICA);
                self.ends.insert((node, connection), (to, accepted));
                self.ends.insert((to, accepted), (node, connection));
                let connected = NetworkEvent::Connected { connection };
                self.nodes[node].tell(connection, connected);
            }
        }
    }

    /// Carries bytes, and the end of connections.
    fn carry(&mut self) {
        for (&(from, here), &(to, there)) in &self.ends.clone() {
            if self.cuts.contains(&(from, to)) {
                continue;
            }
            match self.nodes[from].take_sent(here) {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => self.nodes[to].arrive(there, &bytes),
                None => self.close(to, there),
            }
        }
    }

    fn close(&mut self, node: usize, connection: ConnectionId) {
        if let Some(other) = self.ends.remove(&(node, connection)) {
            self.ends.remove(&other);
            if self.nodes[node].take_sent(connection).is_some() {
                let closed = NetworkEvent::Closed { connection };
                self.nodes[node].tell(connection, closed);
            }
        }
    }

    /// Lets time pass, timer by timer.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let until = Instant(self.time) + duration;
        loop {
            let live = (0..self.nodes.len()).filter(|node| self.is_live(*node));
            let next = live.filter_map(|node| self.nodes[node].deadline()).min();
            let Some(at) = next.filter(|at| *at <= until) else {
                break;
            };
            self.set_time(self.time.max(at.0));
            self.run();
        }
        self.set_time(until.0);
        self.run();
    }

    fn set_time(&mut self, time: u64) {
        self.time = time;
        for node in &mut self.nodes {
            node.time = time;
        }
    }

    pub(crate) fn pass_millis(&mut self, millis: u64) {
        self.pass(Duration::from_millis(millis));
    }

    /// Nothing passes between two nodes any more.
    pub(crate) fn cut(&mut self, one: usize, other: usize) {
        self.cuts.extend([(one, other), (other, one)]);
    }

    /// Everything passes again, also what has waited.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.run();
    }

    /// A process dies.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].kill();
        let ends = self.ends.keys().filter(|end| end.0 == node);
        for end in ends.copied().collect::<Vec<_>>() {
            let (to, there) = self.ends.remove(&end).expect("listed");
            self.close(to, there);
        }
        self.run();
    }

    /// A dead process starts again.
    pub(crate) fn start(&mut self, node: usize) {
        self.nodes[node].start();
        self.run();
    }

    /// What the nodes have said so far.
    pub(crate) fn saw(&self, node: usize, what: impl Fn(&Observation) -> bool) -> bool {
        self.nodes[node].observations.iter().any(what)
    }

    /// A client of a node, logged in.
    pub(crate) fn log_in(&mut self, node: usize, id: u128) -> Client {
        let mut client = Client::connect(&mut self.nodes[node], id);
        self.run();
        let request = crate::client::login(crate::node::USERNAME, crate::node::PASSWORD);
        let payload = self.ask(node, &mut client, &request).expect("answered");
        let payload = payload.result().expect("a login");
        let record: wire::reply::LoginRecord =
            wire::Codec::decode(&payload).expect("a login record");
        client.session = record.session;
        client
    }

    /// What a client of `node` is answered; none if nothing comes.
    pub(crate) fn ask(
        &mut self,
        node: usize,
        client: &mut Client,
        request: &Request<'_>,
    ) -> Option<Answer> {
        let frame = client.frame(request);
        self.exchange(node, client, &frame)
    }

    pub(crate) fn exchange(
        &mut self,
        node: usize,
        client: &Client,
        frame: &Bytes,
    ) -> Option<Answer> {
        self.nodes[node].arrive(client.connection, frame);
        self.run();
        let until = Instant(self.time) + PATIENCE;
        loop {
            let frames = self.nodes[node].frames(client.connection);
            if let Some(frame) = frames.first() {
                assert_eq!(frames.len(), 1, "one answer for one request");
                return Some(Answer::of(frame));
            }
            if Instant(self.time) >= until {
                return None;
            }
            self.pass_millis(10);
        }
    }

    /// A stream, and a topic of `partitions`.
    pub(crate) fn create_topic(&mut self, node: usize, client: &mut Client, partitions: u32) {
        for request in [create_stream("orders"), create_topic("paid", partitions)] {
            let answer = self.ask(node, client, &request).expect("answered");
            answer.result().expect("created");
        }
    }

    /// A topic in a stream that is there.
    pub(crate) fn create_topic_in(&mut self, node: usize, client: &mut Client, stream: &str) {
        let request = Request::CreateTopic(wire::request::CreateTopic {
            stream: wire::Identifier::Named(crate::client::name(stream)),
            partitions_count: 1,
            name: crate::client::name("late"),
            options: crate::client::no_options(),
        });
        let answer = self.ask(node, client, &request).expect("answered");
        answer.result().expect("created");
    }

    /// Sends one message to partition 0; its offset.
    pub(crate) fn produce(
        &mut self,
        node: usize,
        client: &mut Client,
        payload: &str,
    ) -> Result<u64, wire::ErrorCode> {
        let batch = batch_of(&[payload]);
        let request = send(Partitioning::PartitionId(0), &batch, 1);
        let answer = self.ask(node, client, &request).expect("answered");
        answer.result()?;
        Ok(confirmed(&answer).base_offset)
    }

    /// Polls partition 0 from its beginning.
    pub(crate) fn poll(
        &mut self,
        node: usize,
        client: &mut Client,
    ) -> Result<Polled, wire::ErrorCode> {
        let request = Request::PollMessages(poll(0, PollingStrategy::First, 1_000, false));
        let answer = self.ask(node, client, &request).expect("answered");
        answer.result().map(|body| Polled::decode(&body))
    }

    /// The node that is the primary of the metadata, as far as it knows.
    pub(crate) fn primary(&self, group: base::GroupId) -> Option<usize> {
        let mut best = None;
        for (index, node) in self.nodes.iter().enumerate() {
            for observation in &node.observations {
                if let Observation::View {
                    group: it,
                    view,
                    role: server::Role::Primary,
                    ..
                } = observation
                    && *it == group
                    && best.is_none_or(|(newest, _)| *view >= newest)
                {
                    best = Some((*view, index));
                }
            }
        }
        best.map(|(_, index)| index)
    }
}
