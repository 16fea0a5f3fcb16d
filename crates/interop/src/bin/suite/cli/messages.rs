//! Messages and stored offsets: what is sent comes back, headers and all, until it is purged.

use super::{Cli, Rows, column, property};

const TOPIC: [&str; 2] = ["orders", "placed"];

pub(super) fn run(cli: &Cli) {
    send(cli, &["--partition-id", "0", "one", "two", "three"]);
    let header = "kind:string:big,weight:uint8:7";
    send(cli, &["--partition-id", "0", "--headers", header, "four"]);
    let all = poll(cli, "0", &["--first", "--message-count", "10"]);
    assert_eq!(column(&all, 0)[1..], ["0", "1", "2", "3"]);
    assert_eq!(column(&all, 4)[1..], ["one", "two", "three", "four"]);
    strategies(cli);
    keys(cli);
    offsets(cli);
    refusals(cli);
    purges(cli);
}

fn send(cli: &Cli, what: &[&str]) {
    cli.ok(&[&["message", "send"], &TOPIC[..], what].concat());
}

fn poll(cli: &Cli, partition: &str, how: &[&str]) -> Rows {
    let command = [&["message", "poll"], &TOPIC[..], &[partition], how].concat();
    cli.rows(&command)
}

fn strategies(cli: &Cli) {
    let some = poll(cli, "0", &["--offset", "1", "--message-count", "2"]);
    assert_eq!(column(&some, 4)[1..], ["two", "three"]);
    let last = poll(cli, "0", &["--last", "--show-headers"]);
    assert_eq!(last[2][4], "four");
    // The client shows headers in no order of its own.
    let mut headers: Vec<[&str; 3]> = (5..last[0].len())
        .map(|index| [0, 1, 2].map(|row| last[row][index].as_str()))
        .collect();
    headers.sort_unstable();
    let sent = [
        ["Header: kind", "string", "big"],
        ["Header: weight", "uint8", "7"],
    ];
    assert_eq!(headers, sent);
    let empty = poll(cli, "1", &["--first", "--message-count", "10"]);
    assert!(empty.len() < 2, "{empty:?}");
}

/// One key, one partition.
fn keys(cli: &Cli) {
    for text in ["five", "six"] {
        send(cli, &["--message-key", "customer-9", text]);
    }
    let found: Vec<String> = ["0", "1", "2", "3"]
        .iter()
        .map(|partition| {
            let all = poll(cli, partition, &["--first", "--message-count", "10"]);
            column(&all, 4).join(" ")
        })
        .collect();
    let together = found.iter().filter(|texts| texts.ends_with("five six"));
    assert_eq!(together.count(), 1, "{found:?}");

    let topic = cli.rows(&["topic", "get", "orders", "placed"]);
    assert_eq!(property(&topic, "Topic message count"), "6");
    let stream = cli.rows(&["stream", "get", "orders"]);
    assert_eq!(property(&stream, "Stream message count"), "6");
}

fn offsets(cli: &Cli) {
    let stored = || {
        let command = ["consumer-offset", "get", "reader", "orders", "placed", "0"];
        property(&cli.rows(&command), "Stored offset")
    };
    let next = ["--next", "--consumer", "reader", "--auto-commit"];
    let polled = poll(cli, "0", &[&next[..], &["--message-count", "2"]].concat());
    assert_eq!(column(&polled, 4)[1..], ["one", "two"]);
    assert_eq!(stored(), "1");
    let polled = poll(cli, "0", &next);
    assert_eq!(column(&polled, 4)[1..], ["three"]);
    assert_eq!(stored(), "2");

    let set = ["consumer-offset", "set", "reader", "orders", "placed", "0"];
    cli.ok(&[&set[..], &["0"]].concat());
    assert_eq!(stored(), "0");
    let polled = poll(cli, "0", &next);
    assert_eq!(column(&polled, 4)[1..], ["two"]);
    cli.refused(&[&set[..], &["1000000"]].concat(), "offset");

    let get = ["consumer-offset", "get", "nobody", "orders", "placed", "0"];
    assert!(cli.ok(&get).contains("not found"));
}

fn refusals(cli: &Cli) {
    let nowhere = ["message", "send", "orders", "nowhere", "lost"];
    cli.refused(&nowhere, "not found");
    let beyond = ["message", "send", "orders", "placed", "-p", "99", "lost"];
    cli.refused(&beyond, "not found");
    // Messages are durable as their topic says; the protocol keeps the command and denies it.
    let flush = ["message", "flush", "orders", "placed", "0"];
    cli.refused(&flush, "Feature is unavailable");
    cli.refused(
        &[&flush[..], &["--fsync"]].concat(),
        "Feature is unavailable",
    );
    cli.refused(
        &["segment", "delete", "orders", "placed", "99", "1"],
        "not found",
    );
}

/// Segment by segment, by topic and by stream; what follows goes on with the offsets.
fn purges(cli: &Cli) {
    cli.ok(&["segment", "delete", "orders", "placed", "0", "1"]);
    let kept = poll(cli, "0", &["--first"]);
    assert_eq!(column(&kept, 4)[1..], ["one"], "the active segment stays");

    cli.ok(&["topic", "purge", "orders", "placed"]);
    let topic = cli.rows(&["topic", "get", "orders", "placed"]);
    assert_eq!(property(&topic, "Topic message count"), "0");
    send(cli, &["--partition-id", "0", "after"]);
    let all = poll(cli, "0", &["--first", "--message-count", "10"]);
    assert_eq!(column(&all, 4)[1..], ["after"]);

    cli.ok(&["stream", "purge", "orders"]);
    let stream = cli.rows(&["stream", "get", "orders"]);
    assert_eq!(property(&stream, "Stream message count"), "0");
    assert_eq!(property(&stream, "Stream topics count"), "1");
}
