//! Planted bugs 48 to 50 do what they are planted for: each breaks a promise to the members of a
//! consumer group, and the promise is checked without the bug first.
#![cfg(feature = "planted-bugs")]

// The other test binaries use the rest.
#[allow(dead_code)]
#[path = "metadata/support.rs"]
mod support;

use base::ClientId;
use metadata::{Home, Join, Limits};
use support::{Log, create_stream, create_topic, id, named};
use wire::{
    Codec, Name, Operation,
    request::{CreateConsumerGroup, GroupTarget},
};

fn target() -> GroupTarget<'static> {
    GroupTarget {
        stream: id(0),
        topic: id(0),
        group: named("readers"),
    }
}

/// Clients 1 to 3 have sessions; the group has a topic of two partitions.
fn log() -> Log {
    let mut log = Log::new(Limits::default());
    let create = CreateConsumerGroup {
        stream: id(0),
        topic: id(0),
        name: Name::new("readers").expect("a name"),
    };
    for (operation, body) in [
        (Operation::CreateStream, create_stream("a")),
        (Operation::CreateTopic, create_topic(id(0), "x", 2)),
        (Operation::CreateConsumerGroup, create.encode()),
    ] {
        log.result(operation, &body).expect("created");
    }
    for client in 1..=3 {
        log.register(ClientId(client), 0);
    }
    log
}

fn ask(log: &mut Log, client: u128, operation: Operation, body: &[u8]) {
    let applied = log.ask_as(ClientId(client), operation, body);
    applied.reply.result.expect("done");
}

/// A join while everything may be in flight.
fn join(log: &mut Log, client: u128) {
    let home = Home {
        replica: 0,
        shard: 0,
        life: 1,
    };
    let body = Join::new(target(), home).encode();
    ask(log, client, Operation::JoinConsumerGroup, &body);
}

fn leave(log: &mut Log, client: u128) {
    let body = target().encode();
    ask(log, client, Operation::LeaveConsumerGroup, &body);
}

fn may_poll(log: &Log, client: u128, partition: u32) -> bool {
    let info = log.metadata.resolve_group(&target()).expect("there");
    info.group.may_poll(ClientId(client), partition)
}

/// What is in flight is not another's to poll.
fn withholds() -> bool {
    let mut log = log();
    join(&mut log, 1);
    join(&mut log, 2);
    !may_poll(&log, 2, 0) && !may_poll(&log, 2, 1)
}

/// Who has left may poll nothing, and those who stay may poll everything.
fn lets_go() -> bool {
    let mut log = log();
    join(&mut log, 1);
    join(&mut log, 2);
    leave(&mut log, 1);
    let left = (0..2).any(|partition| may_poll(&log, 1, partition));
    !left && (0..2).all(|partition| may_poll(&log, 2, partition))
}

/// Nothing waits for a member that has left: not for its slot either.
fn forgets_targets() -> bool {
    let mut log = log();
    join(&mut log, 1);
    join(&mut log, 2);
    leave(&mut log, 2);
    !log.metadata.is_revoking() && (0..2).all(|partition| may_poll(&log, 1, partition))
}

#[test]
fn each_breaks_the_promise_it_is_planted_against() {
    for (bug, promise) in [
        (48, withholds as fn() -> bool),
        (49, lets_go),
        (50, forgets_targets),
    ] {
        assert!(promise(), "without bug {bug}");
        base::planted::activate(bug);
        assert!(!promise(), "bug {bug} does nothing");
        base::planted::activate(0);
    }
}
