//! Three processes, load from the unmodified client, SIGKILL of the node that leads: writes are
//! acknowledged again within 5 s, nothing acknowledged is lost, and the killed node comes back
//! and catches up.
//!
//! A writer repeats a batch until it is acknowledged, so a batch whose first attempt failed may
//! be in the log twice; what was acknowledged must be where the acknowledgement said.
//! That the restarted node has caught up is shown by killing a second node: from then on no
//! write is acknowledged without it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use iggy::prelude::{
    ClusterClient, ClusterNodeRole, Identifier, IggyError, IggyMessage, MessageClient,
    Partitioning, StreamClient, TopicClient, TopicCreateOptions,
};
use interop::{Cluster, Node, Scratch, client, load, until, within};
use tokio::task::JoinHandle;

const PARTITIONS: u32 = 3;
const BATCH: u64 = 10;
/// The promise: from the loss of the leader to the next acknowledgement.
const FAILOVER_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait before giving up on anything, so that a broken promise shows its figure.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_on_without_the_leader_and_nothing_acknowledged_is_lost() {
    let scratch = Scratch::new("cluster");
    let mut cluster = Cluster::up(scratch.path());
    let client = client::connect(cluster.nodes()[0].address).await;
    create(&client).await;
    let writers: Vec<Writer> = (0..PARTITIONS)
        .map(|partition| Writer::start(cluster.nodes()[partition as usize], partition))
        .collect();
    all_acknowledge(&writers, 30).await;

    let first = leader(&cluster).await;
    let gap = lose(&cluster, first, &writers).await;
    println!("node {first} killed: acknowledged again after {gap:?}");
    assert!(
        gap <= FAILOVER_LIMIT,
        "acknowledged again only after {gap:?}"
    );
    all_acknowledge(&writers, 30).await;

    cluster.start(first);
    all_acknowledge(&writers, 30).await;
    shows_everything(&cluster.nodes()[usize::from(first)], &writers).await;

    // The leader again, or whoever else is not the restarted node.
    let second = match leader(&cluster).await {
        id if id != first => id,
        _ => (first + 1) % 3,
    };
    let gap = lose(&cluster, second, &writers).await;
    println!("node {second} killed: acknowledged again after {gap:?}");
    all_acknowledge(&writers, 30).await;

    for writer in &writers {
        writer.stop.store(true, Ordering::Relaxed);
    }
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.push(within("a writer stops", PATIENCE, writer.finish()).await);
    }
    cluster.start(second);
    for node in cluster.nodes() {
        for log in &acknowledged {
            holds(node, log).await;
        }
    }
}

async fn create(client: &(impl StreamClient + TopicClient)) {
    client
        .create_stream("load")
        .await
        .expect("creates the stream");
    let options = TopicCreateOptions {
        partitions_count: Some(PARTITIONS),
        ..TopicCreateOptions::default()
    };
    client
        .create_topic(&stream(), "topic", &options)
        .await
        .expect("creates the topic");
}

fn stream() -> Identifier {
    client::named("load")
}

fn topic() -> Identifier {
    client::named("topic")
}

/// A batch that was acknowledged.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    /// The number of its first message.
    first: u64,
    base_offset: u64,
    /// When the attempt that succeeded was begun, and when it was acknowledged.
    begun: Instant,
    ended: Instant,
}

/// One client that fills one partition.
struct Writer {
    partition: u32,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<Acknowledged>>>,
    task: JoinHandle<()>,
}

/// All that one writer was promised.
struct Log {
    partition: u32,
    acknowledged: Vec<Acknowledged>,
}

impl Writer {
    fn start(node: Node, partition: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn({
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            async move {
                let client = client::connect(node.address).await;
                let mut batch = 0;
                while !stop.load(Ordering::Relaxed) {
                    // The partition is in the number, so that a message astray is noticed.
                    let first = u64::from(partition) << 32 | (batch * BATCH);
                    let begun = Instant::now();
                    let Ok(base_offset) = send(&client, partition, first).await else {
                        continue;
                    };
                    let ended = Instant::now();
                    let entry = Acknowledged {
                        first,
                        base_offset,
                        begun,
                        ended,
                    };
                    acknowledged.lock().expect("no writer panics").push(entry);
                    batch += 1;
                }
            }
        });
        Self {
            partition,
            stop,
            acknowledged,
            task,
        }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("no writer panics").len()
    }

    fn log(&self) -> Log {
        let acknowledged = self.acknowledged.lock().expect("no writer panics").clone();
        Log {
            partition: self.partition,
            acknowledged,
        }
    }

    async fn finish(self) -> Log {
        let log = Arc::clone(&self.acknowledged);
        self.task.await.expect("no writer panics");
        let acknowledged = log.lock().expect("no writer panics").clone();
        Log {
            partition: self.partition,
            acknowledged,
        }
    }
}

/// One attempt; the offset of the batch if it was acknowledged.
async fn send(client: &impl MessageClient, partition: u32, first: u64) -> Result<u64, IggyError> {
    let mut messages: Vec<IggyMessage> = (first..first + BATCH).map(load::message).collect();
    let partitioning = Partitioning::partition_id(partition);
    let answer = client
        .send_messages(&stream(), &topic(), &partitioning, &mut messages)
        .await?;
    let [confirmation] = &answer.confirmations[..] else {
        panic!("one partition was written: {answer:?}");
    };
    assert_eq!(confirmation.partition_id, partition);
    Ok(confirmation.base_offset)
}

/// Waits until every writer has `count` more batches acknowledged.
async fn all_acknowledge(writers: &[Writer], count: usize) {
    let targets: Vec<usize> = writers
        .iter()
        .map(|writer| writer.count() + count)
        .collect();
    until("all writers go on", PATIENCE, async || {
        let done = |(writer, &target): (&Writer, &usize)| writer.count() >= target;
        writers.iter().zip(&targets).all(done).then_some(())
    })
    .await;
}

/// The replica id of the node that leads, as the published client sees it.
async fn leader(cluster: &Cluster) -> u8 {
    until("some node leads", PATIENCE, async || {
        for node in cluster.nodes() {
            let Ok(client) = client::connect_pinned(node.address).await else {
                continue;
            };
            let Ok(metadata) = client.get_cluster_metadata().await else {
                continue;
            };
            assert_eq!(metadata.nodes.len(), cluster.nodes().len());
            let leads = |port: u16| {
                let leader = metadata
                    .nodes
                    .iter()
                    .find(|n| n.role == ClusterNodeRole::Leader);
                leader.is_some_and(|leader| leader.endpoints.tcp == port)
            };
            let leader = cluster
                .nodes()
                .iter()
                .find(|node| leads(node.address.port()));
            if let Some(leader) = leader {
                return Some(leader.id);
            }
        }
        None
    })
    .await
}

/// Kills a node; how long it took until every writer had an attempt acknowledged that it began
/// afterwards.
async fn lose(cluster: &Cluster, id: u8, writers: &[Writer]) -> Duration {
    cluster.kill(id);
    let killed = Instant::now();
    let mut slowest = Duration::ZERO;
    for writer in writers {
        let ended = until("a writer is acknowledged again", PATIENCE, async || {
            let acknowledged = writer.acknowledged.lock().expect("no writer panics");
            acknowledged
                .iter()
                .find(|entry| entry.begun >= killed)
                .map(|entry| entry.ended)
        })
        .await;
        slowest = slowest.max(ended - killed);
    }
    slowest
}

/// All that is acknowledged by now can be read through `node`.
async fn shows_everything(node: &Node, writers: &[Writer]) {
    for writer in writers {
        holds(node, &writer.log()).await;
    }
}

/// A node serves every acknowledged batch at the acknowledged offsets. It may need time: a
/// follower that has just started answers, or refuses for the moment, until it knows the leader.
async fn holds(node: &Node, log: &Log) {
    let messages = until("the node serves the partition", PATIENCE, async || {
        let client = client::connect_pinned(node.address).await.ok()?;
        let read = load::read_partition(&client, &stream(), &topic(), log.partition, 500).await;
        let messages = read.ok()?;
        let promised = log
            .acknowledged
            .iter()
            .map(|entry| entry.base_offset + BATCH)
            .max();
        (messages.len() as u64 >= promised.unwrap_or(0)).then_some(messages)
    })
    .await;
    for entry in &log.acknowledged {
        let from = usize::try_from(entry.base_offset).expect("an offset in memory");
        for (at, n) in (entry.first..entry.first + BATCH).enumerate() {
            load::assert_message(&messages[from + at], n);
        }
    }
    // Whatever else is there is a repetition of what this writer sent, in its order.
    assert!(
        messages
            .iter()
            .all(|m| load::number(m) >> 32 == u64::from(log.partition))
    );
    let batch_of = |message| (load::number(message) & u64::from(u32::MAX)) / BATCH;
    assert!(messages.is_sorted_by_key(batch_of));
}
