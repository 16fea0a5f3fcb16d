//! Before and after the load: sessions, and the topics that are made, checked and removed.

use client::{
    ClientConfig, PartitionTarget,
    driver::{Connection, Error, random_id},
};
use tokio::runtime::{Builder, Runtime};
use wire::{
    Identifier, Name, OptionsBlock, Request, Value,
    reply::{StreamDetails, TopicDetails},
    request::TopicTarget,
};

use crate::{Options, Role};

/// A session and the runtime that drives it.
pub(crate) struct Session {
    pub(crate) runtime: Runtime,
    pub(crate) connection: Connection,
}

impl Session {
    pub(crate) fn open(options: &Options) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let id = random_id().map_err(|error| error.to_string())?;
        let credentials = (&*options.username, &*options.password);
        let config = ClientConfig::new(id, options.address.clone(), credentials);
        let connection = runtime.block_on(Connection::connect(config));
        let connection = connection.map_err(|error| format!("cannot connect: {error}"))?;
        Ok(Self {
            runtime,
            connection,
        })
    }

    pub(crate) fn request(&mut self, request: &Request<'_>) -> Result<client::Reply, Error> {
        self.runtime.block_on(self.connection.request(request))
    }
}

/// A partition, and the offset of the message to read next, if not the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) target: PartitionTarget,
    pub(crate) next: Option<u64>,
}

fn named(name: &str) -> Identifier<'_> {
    Identifier::Named(Name::new(name).expect("1 to 255 bytes: checked with the options"))
}

/// Makes sure that all topics are there, and finds their partitions.
pub(crate) fn prepare(
    admin: &mut Session,
    role: Role,
    options: &Options,
) -> Result<Vec<Lane>, String> {
    let mut lanes = Vec::new();
    for stream in 1..=options.streams {
        let name = format!("{}-{stream}", options.prefix);
        let stream = find_or_create_stream(admin, &name)
            .map_err(|error| format!("cannot have stream {name}: {error}"))?;
        for topic in 1..=options.topics {
            let topic = format!("topic-{topic}");
            let path = format!("{name}/{topic}");
            let reply = find_or_create_topic(admin, stream, &topic, options)
                .map_err(|error| format!("cannot have topic {path}: {error}"))?;
            let details: TopicDetails<'_> = reply
                .decode()
                .map_err(|error| format!("the answer about topic {path}: {error}"))?;
            check_topic(&details, options).map_err(|error| format!("topic {path} {error}"))?;
            let wanted = options.partitions as usize;
            lanes.extend(details.partitions.iter().take(wanted).map(|partition| {
                let is_empty = partition.messages_count == 0 && partition.current_offset == 0;
                let behind = if is_empty {
                    0
                } else {
                    partition.current_offset + 1
                };
                Lane {
                    target: PartitionTarget {
                        stream,
                        topic: details.topic.id,
                        partition: partition.id,
                    },
                    next: (role == Role::Both).then_some(behind),
                }
            }));
        }
    }
    Ok(lanes)
}

/// Removes all streams of the run.
pub(crate) fn remove(admin: &mut Session, options: &Options) -> Result<(), String> {
    for stream in 1..=options.streams {
        let name = format!("{}-{stream}", options.prefix);
        let deleted = admin.request(&Request::DeleteStream(named(&name)));
        deleted.map_err(|error| format!("cannot remove stream {name}: {error}"))?;
    }
    Ok(())
}

/// A topic of an earlier run may be another than is asked for now.
fn check_topic(details: &TopicDetails<'_>, options: &Options) -> Result<(), String> {
    if details.partitions.len() < options.partitions as usize {
        return Err("has fewer partitions: remove it (--clean), or take another --prefix".into());
    }
    let [own, derived] = [&details.topic.options.0, &details.topic.derived_options.0];
    let durability = own.get("durability").or_else(|| derived.get("durability"));
    let present = durability.and_then(|value| value.as_text());
    match (options.durability, present) {
        (Some(wanted), Some(present)) if wanted.as_str() != present => Err(format!(
            "is {present}: remove it (--clean), or take another --prefix"
        )),
        _ => Ok(()),
    }
}

fn find_or_create_stream(admin: &mut Session, name: &str) -> Result<u32, Error> {
    let mut reply = admin.request(&Request::GetStream(named(name)))?;
    if reply.payload().is_empty() {
        reply = admin
            .runtime
            .block_on(admin.connection.create_stream(name))?;
    }
    let details: StreamDetails<'_> = reply.decode().map_err(client::PayloadError::from)?;
    Ok(details.stream.id)
}

fn find_or_create_topic(
    admin: &mut Session,
    stream: u32,
    name: &str,
    options: &Options,
) -> Result<client::Reply, Error> {
    let stream = Identifier::Numeric(stream);
    let topic = named(name);
    let found = admin.request(&Request::GetTopic(TopicTarget { stream, topic }))?;
    if !found.payload().is_empty() {
        return Ok(found);
    }
    let mut block = OptionsBlock::new();
    if let Some(durability) = options.durability {
        block.push("durability", Value::text(durability.as_str()));
    }
    let topic = (name, options.partitions, block.as_options());
    let created = admin
        .connection
        .create_topic(stream, topic.0, topic.1, topic.2);
    admin.runtime.block_on(created)
}
