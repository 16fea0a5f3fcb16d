//! A node: its shards' threads, from the first to the last.

use std::{
    net::SocketAddr,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use base::ShardIndex;
use platform::{ListenerId, Now, Outbox};
use server::{RootCredential, ShardConfig};
use uring::{Exit, Logic, Options, Port, Report, Stopper, mesh, spawn};

use crate::{
    config::Config,
    data::{self, Data},
    effective,
    exit::Failure,
    inspect::{Inspection, LogTail},
};

/// What the main thread hears.
pub(crate) enum Notice {
    /// From a shard.
    Shard(Report),
    /// The operator asks to stop.
    Stop,
}

/// Makes a shard's logic and its first effects; called on the shard's thread.
pub(crate) trait Start<L>:
    FnOnce(ShardConfig, u64, Now, &mut Outbox) -> L + Clone + Send + 'static
{
}

impl<L, F> Start<L> for F where
    F: FnOnce(ShardConfig, u64, Now, &mut Outbox) -> L + Clone + Send + 'static
{
}

/// What a node is made of.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) data: Data,
    pub(crate) root: RootCredential,
    /// The end of the log, for diagnostic archives.
    pub(crate) log: LogTail,
}

impl Node {
    /// Runs until it is stopped or cannot go on.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub(crate) fn run<L: Logic>(
        self,
        start: impl Start<L>,
        notices: (Sender<Notice>, Receiver<Notice>),
    ) -> Result<(), Failure> {
        let (sender, notices) = notices;
        let (reports, shard_reports) = channel();
        // One queue for the main thread: shards know nothing of signals.
        std::thread::spawn(move || {
            for report in shard_reports {
                if sender.send(Notice::Shard(report)).is_err() {
                    break;
                }
            }
        });
        // That of an earlier run tells ports that are not bound now.
        let cannot = |error: std::io::Error| Failure::Data(error.to_string());
        self.data.remove(effective::FILE).map_err(cannot)?;
        let ring = |error: std::io::Error| Failure::Ring(error.to_string());
        let inspection = Inspection::new(self.data.path().to_path_buf(), self.log.clone());
        let Config {
            shards,
            letters_max,
            ..
        } = self.config;
        let (ports, stopper) = mesh(shards, letters_max, &reports, inspection).map_err(ring)?;
        let boot_id = data::boot_id().map_err(cannot)?;
        for port in ports {
            self.spawn(port, boot_id, start.clone()).map_err(ring)?;
        }
        let mut watch = Watch {
            node: &self,
            clients: None,
            replicas: false,
            ready: false,
            up: false,
        };
        watch.serve(&notices)?;
        tracing::info!("stopping");
        watch.stop(&stopper, &notices)
    }

    fn spawn<L: Logic>(
        &self,
        port: Port,
        boot_id: u128,
        start: impl Start<L>,
    ) -> std::io::Result<()> {
        let config = self.shard_config(port.shard(), boot_id);
        let seed = u64::from_le_bytes(data::random()?);
        let options = Options {
            close_grace: self.config.close_grace,
            ..Options::default()
        };
        let start = move |now: Now, out: &mut Outbox| start(config, seed, now, out);
        spawn(port, self.data.path().to_path_buf(), options, start).map(drop)
    }

    fn shard_config(&self, shard: ShardIndex, boot_id: u128) -> ShardConfig {
        ShardConfig {
            cluster: cluster_id(&self.config.cluster_name),
            cluster_name: self.config.cluster_name.clone(),
            replica: self.config.replica,
            shard,
            shard_count: self.config.shards,
            nodes: self.config.nodes.clone(),
            client_listen: self.config.client_listen,
            replica_listen: self.config.replica_listen,
            boot_id,
            root: self.root.clone(),
            encryption: self.config.encryption.clone(),
            limits: self.config.limits.clone(),
            timing: self.config.timing.clone(),
            observe: false,
        }
    }
}

/// The cluster's identity: the first 16 bytes of the BLAKE3 hash of its name.
fn cluster_id(name: &str) -> u128 {
    let hash = blake3::hash(name.as_bytes());
    u128::from_le_bytes(hash.as_bytes()[..16].try_into().expect("16 of 32 bytes"))
}

/// The main thread's view of the shards.
struct Watch<'a> {
    node: &'a Node,
    clients: Option<SocketAddr>,
    replicas: bool,
    ready: bool,
    /// The effective configuration is written.
    up: bool,
}

impl Watch<'_> {
    /// Until the operator asks to stop.
    fn serve(&mut self, notices: &Receiver<Notice>) -> Result<(), Failure> {
        loop {
            let notice = notices.recv().expect("shards and signals hold senders");
            let Notice::Shard(report) = notice else {
                return Ok(());
            };
            match report {
                Report::Listening {
                    listener: ListenerId::CLIENT,
                    address,
                    ..
                } => {
                    self.clients = Some(address);
                }
                Report::Listening { .. } => self.replicas = true,
                Report::Ready {
                    shard: ShardIndex(0),
                } => self.ready = true,
                Report::Ready { .. } => {}
                report => return Err(end(&report)),
            }
            self.announce()?;
        }
    }

    /// Once all listeners are bound and shard 0 serves: tells the world.
    fn announce(&mut self) -> Result<(), Failure> {
        let Node { config, data, .. } = self.node;
        let bound = self.replicas || config.replica_listen.is_none();
        let Some(clients) = self.clients.filter(|_| bound && self.ready && !self.up) else {
            return Ok(());
        };
        self.up = true;
        data.replace(effective::FILE, &effective::render(config, clients))
            .map_err(|error| Failure::Data(format!("{}: {error}", effective::FILE)))?;
        let (replica, shards) = (config.replica.0, config.shards);
        let path = data.path().display();
        tracing::info!(%clients, replica, shards, data = %path, "listening");
        Ok(())
    }

    /// Asks all shards to stop and waits for them.
    fn stop(&self, stopper: &Stopper, notices: &Receiver<Notice>) -> Result<(), Failure> {
        stopper.stop();
        let until = Instant::now() + self.node.config.stop_timeout;
        let mut running = self.node.config.shards;
        while running > 0 {
            let patience = until.saturating_duration_since(Instant::now());
            match notices.recv_timeout(patience.max(Duration::from_millis(1))) {
                Ok(Notice::Shard(Report::Ended {
                    exit: Exit::Stopped,
                    ..
                })) => running -= 1,
                Ok(Notice::Shard(Report::Ready { .. } | Report::Listening { .. })) => {}
                Ok(Notice::Shard(report)) => return Err(end(&report)),
                Ok(Notice::Stop) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(_) => return Err(Failure::Stuck),
            }
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// The failure in a report that a running node must not get.
fn end(report: &Report) -> Failure {
    match report {
        Report::Ended {
            exit: Exit::Halted(fatal),
            ..
        } => Failure::Fatal(*fatal),
        Report::Failed { error, .. } => Failure::Ring(error.to_string()),
        // A shard that stops without being asked has lost its mind as much as one that panics.
        Report::Panicked { shard }
        | Report::Ended { shard, .. }
        | Report::Ready { shard }
        | Report::Listening { shard, .. } => Failure::Panicked(shard.0),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        net::TcpStream,
        thread,
    };

    use base::Buffer;
    use platform::{Effect, Event, Fatal, NetworkEvent};

    use super::*;
    use crate::{
        config::{self, Overrides},
        data::tests::Directory,
        root,
    };

    /// Shard 0 echoes what clients send; a byte 0 makes it halt, a byte 1 panic.
    struct Echo;

    impl Echo {
        fn start(config: ShardConfig, _seed: u64, _now: Now, out: &mut Outbox) -> Self {
            if config.shard == ShardIndex(0) {
                let (listener, address) = (ListenerId::CLIENT, config.client_listen);
                out.push(Effect::Listen { listener, address });
            }
            out.push(Effect::Ready);
            Self
        }
    }

    impl Logic for Echo {
        fn on_event(&mut self, _now: Now, event: Event, out: &mut Outbox) {
            let receive = |connection| Effect::Receive {
                connection,
                buffer: Buffer::with_capacity(256),
            };
            match event {
                Event::Network(NetworkEvent::Accepted { connection, .. }) => {
                    out.push(receive(connection));
                }
                Event::Network(NetworkEvent::Received { connection, buffer }) => {
                    match buffer.as_slice()[0] {
                        0 => out.push(Effect::Halt {
                            fatal: Fatal::Damage,
                        }),
                        1 => panic!("for the test"),
                        _ => {
                            out.push(Effect::Send {
                                connection,
                                bytes: buffer.freeze(),
                            });
                            out.push(receive(connection));
                        }
                    }
                }
                Event::Stop => out.push(Effect::Stopped),
                _ => {}
            }
        }

        fn on_timers(&mut self, _now: Now, _out: &mut Outbox) {}

        fn deadline(&self) -> Option<base::Instant> {
            None
        }
    }

    /// A running node, a client on it, and what makes it stop.
    struct Running {
        node: thread::JoinHandle<Result<(), Failure>>,
        stop: Sender<Notice>,
        client: TcpStream,
        _directory: Directory,
    }

    fn running() -> Running {
        let directory = Directory::new();
        let variables = [("IGGY_TCP_ADDRESS".into(), "127.0.0.1:0".into())].into_iter();
        let overrides = Overrides {
            shards: Some(2),
            ..Overrides::default()
        };
        let mut config = config::load(None, variables, &overrides).unwrap().config;
        config.path = directory.0.clone();
        let data = Data::open(&directory.0).unwrap();
        let given = root::given(None, None, true).unwrap();
        let root = root::load_or_make(&data, given, false).unwrap().credential;
        let (stop, notices) = channel();
        let log = LogTail::default();
        let node = Node {
            config,
            data,
            root,
            log,
        };
        let sender = stop.clone();
        let node = thread::spawn(move || node.run(Echo::start, (sender, notices)));
        let file = directory.0.join(effective::FILE);
        while !file.exists() {
            assert!(!node.is_finished());
            thread::yield_now();
        }
        let table: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        let address: SocketAddr = table["tcp"]["address"].as_str().unwrap().parse().unwrap();
        assert_ne!(address.port(), 0);
        let client = TcpStream::connect(address).unwrap();
        Running {
            node,
            stop,
            client,
            _directory: directory,
        }
    }

    #[test]
    fn a_node_serves_on_the_port_it_tells_and_stops_when_asked() {
        let mut running = running();
        running.client.write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        running.client.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        running.stop.send(Notice::Stop).unwrap();
        running.node.join().unwrap().unwrap();
    }

    #[test]
    fn a_shard_that_halts_or_panics_ends_the_node_with_its_cause() {
        for (byte, code) in [(0, Fatal::Damage.exit_code()), (1, 20)] {
            let mut running = running();
            running.client.write_all(&[byte]).unwrap();
            assert_eq!(running.node.join().unwrap().unwrap_err().code(), code);
        }
    }

    #[test]
    fn the_cluster_id_is_that_of_published_servers() {
        // BLAKE3 of the empty string begins af1349b9f5f9a1a6a0404dea36dcc949.
        let expected =
            u128::from_be_bytes(0xaf13_49b9_f5f9_a1a6_a040_4dea_36dc_c949_u128.to_le_bytes());
        assert_eq!(cluster_id(""), expected);
    }
}
