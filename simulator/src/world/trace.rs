//! One readable line per event, frames decoded; printed as it happens.

use client::Completion;
use platform::{DiskRequest, DiskResult, Event, Letter, NetworkEvent, Token};
use server::Observation;
use wire::{
    Command, EvictionHeader, HEADER_SIZE, ReplyHeader, Request, RequestHeader,
    replica::{Message, PrepareHeader},
};

use crate::{cli::say, workload::Call};

fn token(Token { owner, request }: Token) -> String {
    format!("{owner:x}.{request}")
}

fn stamp(time: u64) -> String {
    format!("{:>6}.{:06}", time / 1_000_000, time % 1_000_000)
}

/// Something done to the world.
pub(super) fn world(time: u64, what: &str) {
    say(&format!("{} world      {what}", stamp(time)));
}

/// A line of a shard's log.
pub(super) fn line(time: u64, node: u8, shard: u16, line: &str) {
    say(&format!(
        "{} node {node}.{shard}   log: {line}",
        stamp(time)
    ));
}

/// An event delivered to a shard.
pub(super) fn event(time: u64, node: u8, shard: u16, event: &Event) -> String {
    format!("{} node {node}.{shard}   {}", stamp(time), describe(event))
}

/// An event delivered to a client.
pub(super) fn client_event(time: u64, client: u8, event: &Event) -> String {
    format!("{} client {client}   {}", stamp(time), describe(event))
}

/// A call that a client makes.
pub(super) fn call(time: u64, client: u8, call: Option<&Call>) {
    say(&format!("{} client {client}   calls {call:?}", stamp(time)));
}

/// The end of a call.
pub(super) fn completion(time: u64, client: u8, call: &str, completion: &Completion) {
    let outcome = match &completion.outcome {
        Ok(reply) => format!("done, op {}", reply.header().op),
        Err(error) => error.to_string(),
    };
    say(&format!(
        "{} client {client}   {call} request {}: {outcome}",
        stamp(time),
        completion.request
    ));
}

/// What a replica tells of itself.
pub(super) fn observation(time: u64, node: u8, observation: &Observation) {
    let what = match observation {
        Observation::Committed { group, prepare, .. } => {
            format!("committed {group}: {}", describe_frame(prepare))
        }
        other => format!("{other:?}"),
    };
    say(&format!("{} node {node}     {what}", stamp(time)));
}

/// What a shard asks of its disk.
pub(super) fn disk_request(time: u64, node: u8, shard: u16, token: Token, request: &DiskRequest) {
    let what = match request {
        DiskRequest::Write { file, offset, data } => {
            let size: usize = data.iter().map(|piece| piece.len()).sum();
            format!("write {size} bytes at {offset} of {file:?}")
        }
        other => format!("{other:?}"),
    };
    let token = self::token(token);
    say(&format!(
        "{} node {node}.{shard}   asks disk {token}: {what}",
        stamp(time)
    ));
}

/// A frame that a node sends to another.
pub(super) fn frame(time: u64, node: u8, frame: &[u8]) {
    say(&format!(
        "{} node {node}     sends {}",
        stamp(time),
        describe_frame(frame)
    ));
}

fn describe(event: &Event) -> String {
    match event {
        Event::Network(event) => match event {
            NetworkEvent::Received { connection, buffer } => {
                let start = describe_frame(buffer.as_slice());
                format!(
                    "received on {:x}: {} bytes, {start}",
                    connection.0,
                    buffer.len()
                )
            }
            other => format!("{other:?}"),
        },
        Event::Disk(done) => match &done.result {
            Ok(DiskResult::Read { buffer }) => {
                format!("disk {}: read {} bytes", token(done.token), buffer.len())
            }
            other => format!("disk {}: {other:?}", token(done.token)),
        },
        Event::Letter { from, letter } => match letter {
            Letter::Request { group, frame, .. } => {
                format!(
                    "letter from {from}: request for {group}, {}",
                    describe_frame(frame)
                )
            }
            Letter::Reply { frame, .. } => {
                let first = frame.first().map(|piece| describe_frame(piece));
                format!("letter from {from}: reply, {}", first.unwrap_or_default())
            }
            Letter::MetadataCommitted { prepare } => {
                format!("letter from {from}: metadata {}", describe_frame(prepare))
            }
            other => format!("letter from {from}: {other:?}"),
        },
        other => format!("{other:?}"),
    }
}

/// A frame in words; as much as is there.
pub(super) fn describe_frame(frame: &[u8]) -> String {
    if frame.len() < HEADER_SIZE {
        return "part of a frame".into();
    }
    match Command::from_byte(frame[60]) {
        Some(Command::Request) => describe_request(frame),
        Some(Command::Reply) => match ReplyHeader::decode(frame) {
            Ok(header) => format!(
                "reply to {:?} request {} status {} op {}",
                header.operation, header.request, header.status, header.op
            ),
            Err(error) => format!("reply, {error:?}"),
        },
        Some(Command::Eviction) => match EvictionHeader::decode(frame) {
            Ok(header) => format!("eviction {:?}", header.reason),
            Err(error) => format!("eviction, {error:?}"),
        },
        Some(Command::Prepare) => match PrepareHeader::decode(frame) {
            Ok(header) => format!(
                "prepare {} op {} view {} {:?} commit {} client {:x} request {}",
                header.group,
                header.op,
                header.view,
                header.operation,
                header.commit,
                header.client.0 >> 96,
                header.request
            ),
            Err(error) => format!("prepare, {error:?}"),
        },
        Some(command) => describe_replica(command, frame),
        None => "bytes".into(),
    }
}

fn describe_request(frame: &[u8]) -> String {
    let Ok(header) = RequestHeader::decode(frame) else {
        return "request, malformed".into();
    };
    let body = frame.get(HEADER_SIZE..header.size as usize);
    let what = match body.map(|body| Request::decode(header.operation, header.code, body)) {
        Some(Ok(Request::SendMessages(send))) => format!("SendMessages({:?})", send.target),
        Some(Ok(Request::Register(_))) => "Register".into(),
        Some(Ok(request)) => format!("{request:?}"),
        Some(Err(error)) => format!("{:?}, {error:?}", header.operation),
        None => format!("{:?}, in pieces", header.operation),
    };
    format!(
        "request {} of {:x}: {what}",
        header.request,
        header.client.0 >> 96
    )
}

fn describe_replica(command: Command, frame: &[u8]) -> String {
    match Message::decode(frame) {
        Ok((envelope, message)) => {
            let text = match &message {
                Message::DoViewChange {
                    group,
                    op,
                    commit,
                    log_view,
                    trust,
                    faulty,
                    ..
                } => format!(
                    "DoViewChange {group} op {op} commit {commit} \
                     log_view {log_view} {trust:?} faulty {faulty:?}"
                ),
                Message::StartView {
                    group, op, commit, ..
                } => {
                    format!("StartView {group} op {op} commit {commit}")
                }
                Message::Heartbeat { statuses, .. } => format!("Heartbeat {statuses:?}"),
                other => format!("{other:?}"),
            };
            format!("{text} view {} from {}", envelope.view, envelope.replica)
        }
        Err(_) => format!("{command:?}"),
    }
}
