//! Runs a script, line by line.

use std::{collections::BTreeMap, fmt::Write};

use base::{GroupId, Op, View};
use server::Role;

use super::{Step, verbs::SAYINGS};
use crate::{
    check::linear::Target,
    disk::{Crash, Operation, Point},
    network::Slowness,
    profile::{Durability, Shape},
    schedule::{DiskFault, Fault, Identity, Schedule},
    workload::Order,
    world::{Damaged, Wait, World},
};

/// Within so much virtual time what a script waits for must come, in microseconds.
const PATIENCE: u64 = 60_000_000;
const MILLISECOND: u64 = 1_000;
const STREAM: u64 = 1;

/// See the module.
pub(super) struct Runner {
    world: World,
    shape: Shape,
    text: String,
    topics: BTreeMap<String, u64>,
    nodes: BTreeMap<String, u8>,
    /// The topic that `primary` and `state` are about: the last one named.
    topic: Option<u64>,
    /// The view of that group when a node was last given a name.
    view: View,
    has_stream: bool,
}

type Done = Result<(), String>;

/// The words of a step after its verb; [`super::verbs`] has checked them.
struct Words<'a>(&'a [String]);

impl Words<'_> {
    fn text(&self, at: usize) -> &str {
        &self.0[at]
    }

    fn number(&self, at: usize) -> u64 {
        self.0[at].parse().expect("checked before")
    }

    fn small<T: TryFrom<u64>>(&self, at: usize) -> Result<T, String> {
        let number = self.number(at);
        T::try_from(number).map_err(|_| format!("{number} is too many"))
    }
}

impl Runner {
    pub(super) fn new(shape: Shape, trace: bool) -> Self {
        Self {
            world: World::with(shape.clone(), Schedule::default(), trace),
            shape,
            text: String::new(),
            topics: BTreeMap::new(),
            nodes: BTreeMap::new(),
            topic: None,
            view: View(0),
            has_stream: false,
        }
    }

    pub(super) fn run(mut self, steps: &[Step]) -> Result<String, String> {
        self.world.begin_scripted();
        for step in steps {
            let _ = writeln!(self.text, "{}", step.words.join(" "));
            let done = self.step(&step.words);
            self.take_lines();
            let failed = self.world.failed().map_or(done, Err);
            failed.map_err(|error| format!("{}\n{}", step.error(&error), self.text))?;
        }
        let outcome = self.world.finish_scripted();
        let _ = writeln!(self.text, "all heals");
        if let Some(failure) = outcome.failure {
            self.take_lines();
            return Err(format!(
                "at the end: {}: {}\n{}",
                failure.check, failure.message, self.text
            ));
        }
        let end = if self.world.is_excused() {
            "what was lost was told"
        } else {
            "every replica holds what was acknowledged, in the same bytes"
        };
        let _ = writeln!(self.text, "  {end}");
        Ok(self.text)
    }

    fn take_lines(&mut self) {
        for line in self.world.take_lines() {
            let _ = writeln!(self.text, "  {line}");
        }
    }

    fn say(&mut self, line: &str) {
        self.take_lines();
        let _ = writeln!(self.text, "  {line}");
    }

    fn step(&mut self, words: &[String]) -> Done {
        if words[0] == "begin" {
            return self.call(&words[1], &Words(&words[2..])).map(|_| ());
        }
        let rest = Words(&words[1..]);
        match words[0].as_str() {
            "topic" | "stream" | "send" | "poll" | "next" | "store" | "offset" | "delete"
            | "purge" => {
                let client = self.call(&words[0], &rest)?;
                self.end(client)
            }
            "sends" => self.sends(&rest),
            "end" => self.end(rest.small(0)?),
            "cut" | "block" | "heal" | "lag" => self.network(&words[0], &rest),
            "full" | "space" | "slow" | "fail" | "stuck" => self.disk(&words[0], &rest),
            "pass" | "elected" | "converged" | "repaired" | "until" => self.wait(&words[0], &rest),
            "never" | "leads" | "deposed" | "down" | "state" => self.look(&words[0], &rest),
            _ => self.node(&words[0], &rest),
        }
    }

    /// Begins a call; whose it is.
    fn call(&mut self, verb: &str, words: &Words<'_>) -> Result<u8, String> {
        let client: u8 = words.small(0)?;
        if client >= self.shape.clients {
            return Err(format!("no client {client}"));
        }
        if verb == "topic" {
            self.create_topic(client, words)?;
            return Ok(client);
        }
        let target = if verb == "stream" {
            self.has_stream = true;
            None
        } else {
            Some(self.target(words.text(1))?)
        };
        let order = match (verb, target) {
            ("send", Some(target)) => Order::Send {
                target,
                count: words.number(2),
            },
            ("poll", Some(target)) => Order::Poll {
                target,
                offset: words.number(2),
                count: words.small(3)?,
            },
            ("next", Some(target)) => Order::Next {
                target,
                consumer: words.small(2)?,
                count: words.small(3)?,
            },
            ("store", Some(target)) => Order::Store {
                target,
                consumer: words.small(2)?,
                offset: words.number(3),
            },
            ("offset", Some(target)) => Order::Offset {
                target,
                consumer: words.small(2)?,
            },
            ("delete", Some(target)) => Order::Delete {
                target,
                count: words.small(2)?,
            },
            ("purge", Some(target)) => Order::Purge {
                topic: target.topic,
            },
            _ => Order::Stream,
        };
        self.world.order(client, order)?;
        Ok(client)
    }

    /// The first topic brings the stream that all are in.
    fn create_topic(&mut self, client: u8, words: &Words<'_>) -> Done {
        if !std::mem::replace(&mut self.has_stream, true) {
            assert_eq!(self.world.name_next(), STREAM, "nothing was created before");
            self.world.order(client, Order::Stream)?;
            self.end(client)?;
        }
        let topic = self.world.name_next();
        let order = Order::Topic {
            stream: STREAM,
            partitions: words.small(2)?,
            persisted: self.shape.durability == Durability::AllPersisted,
        };
        self.topics.insert(words.text(1).into(), topic);
        self.world.order(client, order)
    }

    /// `name` is partition 0 of a topic, `name/1` its next.
    fn target(&mut self, name: &str) -> Result<Target, String> {
        let (name, partition) = name.split_once('/').unwrap_or((name, "0"));
        let topic = *self
            .topics
            .get(name)
            .ok_or_else(|| format!("no topic {name}"))?;
        let partition = partition.parse();
        let partition = partition.map_err(|_| format!("no partition of {name}"))?;
        self.topic = Some(topic);
        Ok(Target { topic, partition })
    }

    /// The group that the script is about.
    fn group(&self) -> GroupId {
        let target = self.topic.map(|topic| Target {
            topic,
            partition: 0,
        });
        let group = target.and_then(|target| self.world.group_of(target));
        group.unwrap_or(GroupId::METADATA)
    }

    fn end(&mut self, client: u8) -> Done {
        if self.world.wait(Wait::Idle { client }, PATIENCE) {
            return Ok(());
        }
        Err(format!("client {client} still waits"))
    }

    /// Many sends, of which only the last is told.
    fn sends(&mut self, words: &Words<'_>) -> Done {
        let client: u8 = words.small(0)?;
        let target = self.target(words.text(1))?;
        for left in (0..words.number(2)).rev() {
            self.world.order(client, Order::Send { target, count: 2 })?;
            self.end(client)?;
            if left > 0 {
                let mine = format!("client {client}: sent");
                let lines = self.world.take_lines();
                for line in lines.iter().filter(|line| !line.starts_with(&mine)) {
                    let _ = writeln!(self.text, "  {line}");
                }
            }
        }
        Ok(())
    }

    fn node(&mut self, verb: &str, words: &Words<'_>) -> Done {
        match verb {
            "let" => return self.name_node(words.text(0), words.text(1)),
            "leave" | "return" => return self.client(verb, words),
            _ => {}
        }
        let nodes = self.hosts(words.text(0))?;
        let node = self.first(words.text(0))?;
        let fault = match verb {
            "crash" => Fault::Crash {
                nodes,
                crash: Crash::Process,
            },
            "power" => Fault::Crash {
                nodes,
                crash: Crash::Power,
            },
            "restart" => Fault::Restart { nodes },
            "wipe" => Fault::Wipe { node },
            "lose" => {
                let names = super::verbs::DIRECTORIES;
                let place = names.iter().position(|name| *name == words.text(1));
                let pick = place.expect("checked before") as u64;
                Fault::WipeDirectory { node, pick }
            }
            "pause" => Fault::Pause { node },
            "resume" => Fault::Resume { node },
            "die" => death(node, words),
            "clock" => Fault::StepClock {
                node,
                micros: words.text(1).parse::<i64>().expect("checked before") * 1_000,
            },
            "damage" => return self.damage(node, words),
            _ => unreachable!("`{verb}` is in no list"),
        };
        self.world.suffer(fault)
    }

    fn client(&mut self, verb: &str, words: &Words<'_>) -> Done {
        let clients = 1 << words.small::<u8>(0)?;
        let fault = if verb == "leave" {
            Fault::ClientCrash {
                clients,
                machine: false,
            }
        } else {
            let identity = match words.text(1) {
                "same" => Identity::Same,
                _ => Identity::New,
            };
            Fault::ClientReturn { clients, identity }
        };
        self.world.suffer(fault)
    }

    /// Nodes get names by the part they have now.
    fn name_node(&mut self, name: &str, part: &str) -> Done {
        let group = if part == "metadata" {
            GroupId::METADATA
        } else {
            self.group()
        };
        let from = View(0);
        if !self.world.wait(Wait::Primary { group, from }, PATIENCE) {
            return Err("nobody leads".into());
        }
        let (primary, view) = self.world.primary_of(group).expect("waited for");
        self.view = view;
        let mut backups = (0..self.shape.replicas)
            .filter(|&node| node != primary && self.world.standing_of(node, group).is_some());
        let node = match part {
            "backup" => backups.next(),
            "other" => backups.next_back(),
            _ => Some(primary),
        };
        let node = node.ok_or("there is none")?;
        self.nodes.insert(name.into(), node);
        self.say(&format!("{name} is {node}"));
        Ok(())
    }

    /// A mask of hosts: a node by name or number, `all` nodes, a client (`client0`), `clients`.
    fn hosts(&self, word: &str) -> Result<u64, String> {
        let replicas = self.shape.replicas;
        let all = (1 << replicas) - 1;
        if word == "all" {
            return Ok(all);
        }
        if word == "clients" {
            return Ok(((1 << self.shape.clients) - 1) << replicas);
        }
        if let Some(client) = word.strip_prefix("client") {
            let client = client.parse::<u8>().ok();
            let client = client.filter(|client| *client < self.shape.clients);
            return client
                .map(|client| 1 << (replicas + client))
                .ok_or_else(|| format!("no {word}"));
        }
        let node = self.nodes.get(word).copied();
        let node = node.or_else(|| word.parse().ok().filter(|node| *node < replicas));
        node.map(|node| 1 << node)
            .ok_or_else(|| format!("no node {word}"))
    }

    fn first(&self, word: &str) -> Result<u8, String> {
        let first = self.hosts(word)?.trailing_zeros();
        Ok(u8::try_from(first).expect("few hosts"))
    }

    fn damage(&mut self, node: u8, words: &Words<'_>) -> Done {
        let group = if words.text(1) == "metadata" {
            GroupId::METADATA
        } else {
            let target = self.target(words.text(1))?;
            let group = self.world.group_of(target);
            group.ok_or("nothing was sent there")?
        };
        let how = match words.text(3) {
            "bit" => Damaged::Bit,
            "astray" => Damaged::Astray,
            "zeros" => Damaged::Zeros,
            _ => Damaged::Sectors,
        };
        // Op 0 is the last.
        let op = match words.number(2) {
            0 => self.world.head_of(group),
            op => Op(op),
        };
        self.world.suffer_damage(node, (group, op), how)
    }

    fn network(&mut self, verb: &str, words: &Words<'_>) -> Done {
        if verb == "heal" {
            return self.world.suffer(Fault::Heal);
        }
        let (from, to) = (self.hosts(words.text(0))?, self.hosts(words.text(1))?);
        let fault = |from, to| {
            if verb == "lag" {
                let slowness = Slowness {
                    delay: words.number(2) * MILLISECOND,
                    ..Slowness::default()
                };
                return Fault::Slow { from, to, slowness };
            }
            Fault::Cut { from, to }
        };
        self.world.suffer(fault(from, to))?;
        if verb == "block" {
            return Ok(());
        }
        self.world.suffer(fault(to, from))
    }

    fn disk(&mut self, verb: &str, words: &Words<'_>) -> Done {
        let fault = match verb {
            "full" => DiskFault::Space { free: Some(0) },
            "space" => DiskFault::Space { free: None },
            "slow" => DiskFault::Slow {
                slowness: words.number(1),
            },
            "stuck" => DiskFault::Stuck {
                micros: words.number(1) * MILLISECOND,
            },
            _ => {
                let operation = match words.text(1) {
                    "read" => Operation::Read,
                    "write" => Operation::Write,
                    _ => Operation::Sync,
                };
                let nth = words.number(2);
                DiskFault::Error { operation, nth }
            }
        };
        let nodes = self.hosts(words.text(0))?;
        for node in (0..self.shape.replicas).filter(|node| nodes >> node & 1 == 1) {
            self.world.suffer(Fault::Disk { node, fault })?;
        }
        Ok(())
    }

    fn wait(&mut self, verb: &str, words: &Words<'_>) -> Done {
        let wait = match verb {
            "pass" => {
                self.world.pass(words.number(0) * MILLISECOND);
                return Ok(());
            }
            "elected" => {
                let group = self.group();
                let from = View(self.view.0 + 1);
                Wait::Primary { group, from }
            }
            "converged" => Wait::Converged,
            "repaired" => Wait::Repaired,
            _ => Wait::Said {
                word: saying(words.text(0)),
            },
        };
        if !self.world.wait(wait, PATIENCE) {
            return Err("that does not come".into());
        }
        if let Wait::Primary { group, .. } = wait {
            let (primary, view) = self.world.primary_of(group).expect("waited for");
            self.view = view;
            self.say(&format!("{primary} leads in view {view}"));
        }
        Ok(())
    }

    fn look(&mut self, verb: &str, words: &Words<'_>) -> Done {
        let group = self.group();
        let primary = self.world.primary_of(group).map(|(node, _)| node);
        let holds = match verb {
            "never" => {
                let word = saying(words.text(0));
                !self.world.wait(Wait::Said { word }, 0)
            }
            "leads" => primary == Some(self.first(words.text(0))?),
            "deposed" => primary != Some(self.first(words.text(0))?),
            "down" => {
                let node = self.first(words.text(0))?;
                self.world.wait(Wait::Down { node }, 0)
            }
            _ => {
                self.state(group);
                true
            }
        };
        holds.then_some(()).ok_or_else(|| "it is not so".into())
    }

    fn state(&mut self, group: GroupId) {
        for node in 0..self.shape.replicas {
            let line = match self.world.standing_of(node, group) {
                Some((view, role, commit)) => {
                    let part = match role {
                        Role::Primary => "primary",
                        Role::Backup => "backup",
                        Role::ViewChange => "between two views,",
                    };
                    format!("{node} {part} in view {view}, commit {commit}")
                }
                None if self.world.wait(Wait::Down { node }, 0) => format!("{node} is down"),
                None => format!("{node} does not have it"),
            };
            self.say(&line);
        }
    }
}

fn death(node: u8, words: &Words<'_>) -> Fault {
    let point = match words.text(1) {
        "submit" => Point::Submit,
        "complete" => Point::Complete,
        "sync" => Point::Sync,
        _ => Point::Rename,
    };
    let crash = match words.text(3) {
        "crash" => Crash::Process,
        _ => Crash::Power,
    };
    Fault::CrashAtDisk {
        node,
        point,
        nth: words.number(2),
        crash,
        downtime: words.number(4) * MILLISECOND,
    }
}

fn saying(word: &str) -> &'static str {
    let known = SAYINGS.iter().find(|known| **known == word);
    known.expect("checked before")
}
