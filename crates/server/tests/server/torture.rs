//! Everything at once: writers with pipelines, polls, topics that come and go, a disk that takes
//! its time, connections and processes that die. What was acknowledged stays where it was
//! acknowledged, and every request has one answer, in order.

use std::{collections::BTreeMap, time::Duration};

use base::{Bytes, Domain, Prng};
use wire::{
    ErrorCode, Operation, Partitioning, PollingStrategy, Request, RequestHeader,
    request::TopicTarget,
};

use crate::{
    client::{
        Answer, Client, Polled, batch_of, confirmed, create_stream, create_topic, name, poll, send,
        store, topic,
    },
    node::{Node, Options},
};

const PARTITIONS: u32 = 3;

/// A client, and what it waits for.
struct Writer {
    client: Client,
    waiting: Vec<Bytes>,
    /// Of each send on its way, by number: partition and payload.
    sends: BTreeMap<u64, (u32, String)>,
}

struct Torture {
    node: Node,
    prng: Prng,
    writers: Vec<Writer>,
    identities: u128,
    payloads: u64,
    acknowledged: BTreeMap<(u32, u64), String>,
}

impl Torture {
    fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed, Domain::Workload, 1);
        let mut options = Options {
            shards: 1 + prng.index(3),
            ..Options::default()
        };
        // In the end no timer must be left.
        options.timing.scrub = Duration::ZERO;
        options.limits.segment_size = 8 << 10;
        options.limits.segment_size_min = 512;
        options.limits.metadata_segment_size = 4 << 10;
        options.limits.pipeline_max = 1 + prng.index(4);
        options.limits.tail_cache = 2 << 10;
        options.limits.read_chunk = 1 << 10;
        let mut node = Node::with(options);
        let mut first = Client::log_in(&mut node, 1);
        first.create_topic(&mut node, PARTITIONS);
        let mut torture = Self {
            node,
            prng,
            writers: Vec::new(),
            identities: 1,
            payloads: 0,
            acknowledged: BTreeMap::new(),
        };
        torture.connect();
        torture
    }

    fn connect(&mut self) {
        while self.writers.len() < 4 {
            self.identities += 1;
            let client = Client::log_in(&mut self.node, self.identities);
            self.writers.push(Writer {
                client,
                waiting: Vec::new(),
                sends: BTreeMap::new(),
            });
        }
    }

    fn step(&mut self) {
        match self.prng.index(20) {
            0 => self.node.hold = Some(|_| true),
            1 => {
                self.node.hold =
                    Some(|request| matches!(request, platform::DiskRequest::SyncData { .. }))
            }
            2..=4 => self.node.let_go(),
            5 => self.node.pass(Duration::from_millis(40)),
            6 => {
                let index = self.prng.index(self.writers.len());
                let gone = self.writers.swap_remove(index);
                self.node.disconnect(gone.client.connection);
                self.node.let_go();
                self.connect();
            }
            7 if self.prng.index(4) == 0 => {
                self.node.hold = None;
                self.node.crash();
                self.writers.clear();
                self.connect();
            }
            _ => self.ask(),
        }
        self.hear();
    }

    /// One writer asks one thing, whether or not it has been answered the last one.
    fn ask(&mut self) {
        let index = self.prng.index(self.writers.len());
        let partition = u32::try_from(self.prng.index(PARTITIONS as usize)).expect("few");
        self.payloads += 1;
        let payload = format!("payload {}", self.payloads);
        let batch = batch_of(&[&payload]);
        let other = format!("other-{}", self.prng.index(3));
        let other_topic = TopicTarget {
            topic: wire::Identifier::Named(name(&other)),
            ..topic()
        };
        let request = match self.prng.index(9) {
            0..=2 => send(Partitioning::PartitionId(partition), &batch, 1),
            3 => Request::PollMessages(poll(partition, PollingStrategy::Next, 5, true)),
            4 => Request::PollMessages(poll(partition, PollingStrategy::First, 9, false)),
            5 => store(partition, 0),
            6 => create_topic(&other, 2),
            7 => Request::DeleteTopic(other_topic),
            _ => create_stream(&other),
        };
        let writer = &mut self.writers[index];
        let frame = writer.client.frame(&request);
        if request.operation() == Operation::SendMessages {
            writer
                .sends
                .insert(writer.client.request, (partition, payload));
        }
        writer.waiting.push(frame.clone());
        self.node.send(writer.client.connection, &frame);
    }

    /// Every answer must be that of the oldest request that waits.
    fn hear(&mut self) {
        for writer in &mut self.writers {
            assert!(!self.node.is_closed(writer.client.connection));
            for frame in self.node.frames(writer.client.connection) {
                let asked = RequestHeader::decode(&writer.waiting.remove(0)).expect("a request");
                let answer = Answer::of(&frame);
                let Answer::Reply(header, _) = &answer else {
                    panic!("{answer:?} for {asked:?}");
                };
                assert_eq!(header.operation, asked.operation);
                assert_eq!(header.request, asked.request);
                if asked.operation != Operation::SendMessages {
                    continue;
                }
                let (partition, payload) = writer.sends.remove(&asked.request).expect("sent");
                match answer.result() {
                    Ok(_) => {
                        let place = (partition, confirmed(&answer).base_offset);
                        let taken = self.acknowledged.insert(place, payload);
                        assert_eq!(taken, None, "one offset, two messages");
                    }
                    Err(code) => assert!(
                        [
                            ErrorCode::TRANSIENT_NOT_ACCEPTED,
                            ErrorCode::TRANSIENT_NOT_COMMITTED
                        ]
                        .contains(&code)
                    ),
                }
            }
        }
    }

    fn finish(&mut self) {
        self.node.let_go();
        self.hear();
        for writer in &self.writers {
            assert!(writer.waiting.is_empty(), "requests without an answer");
        }
        for life in 0..2 {
            let mut reader = Client::log_in(&mut self.node, 1_000_000 + life);
            for partition in 0..PARTITIONS {
                let strategy = PollingStrategy::First;
                let request = Request::PollMessages(poll(partition, strategy, 10_000, false));
                let body = reader.ask(&mut self.node, &request).result();
                let polled = Polled::decode(&body.expect("served"));
                let offsets = polled.offsets();
                assert!(offsets.iter().copied().eq(0..offsets.len() as u64));
                let found: BTreeMap<u64, Vec<u8>> = polled.messages.into_iter().collect();
                for ((_, offset), payload) in self
                    .acknowledged
                    .range((partition, 0)..=(partition, u64::MAX))
                {
                    let stored = found.get(offset).expect("acknowledged, so there");
                    assert_eq!(stored, payload.as_bytes());
                }
            }
            self.node.crash();
        }
        self.node.settle();
        assert_eq!((self.node.deadline(), self.node.halted), (None, None));
        self.node.stop();
        assert_eq!(self.node.stopped, self.node.shards.len());
        assert!(self.node.disk.unsynced().is_empty());
    }
}

#[test]
fn whatever_happens_every_request_has_one_answer_and_what_was_acknowledged_stays() {
    for seed in 0..40 {
        let mut torture = Torture::new(seed);
        for _ in 0..250 {
            torture.step();
        }
        torture.finish();
        assert!(torture.acknowledged.len() > 10, "seed {seed} did nothing");
    }
}
