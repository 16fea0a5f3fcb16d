//! Streams, topics, partitions and consumer groups, from their creation to their end.

use super::{Cli, column, property};

const LIST: [&str; 2] = ["--list-mode", "list"];

pub(super) fn streams(cli: &Cli) {
    cli.ok(&["stream", "create", "orders"]);
    cli.ok(&["stream", "create", "bills"]);
    cli.refused(&["stream", "create", "orders"], "already exists");
    cli.refused(&["stream", "create", &"n".repeat(256)], "Invalid format");

    let listed = cli.rows(&[&["stream", "list"][..], &LIST].concat());
    assert_eq!(column(&listed, 0), ["0", "1"]);
    assert_eq!(column(&listed, 2), ["orders", "bills"]);
    assert_eq!(listed[0][3..], ["0 B", "0", "0"]);

    cli.ok(&["stream", "update", "bills", "invoices"]);
    cli.refused(
        &["stream", "update", "invoices", "orders"],
        "already exists",
    );
    let stream = cli.rows(&["stream", "get", "1"]);
    assert_eq!(property(&stream, "Stream name"), "invoices");
    assert_eq!(property(&stream, "Stream topics count"), "0");
    let renamed = cli.ok(&["stream", "get", "bills"]);
    assert!(renamed.contains("was not found"), "{renamed}");

    cli.ok(&["stream", "delete", "invoices"]);
    cli.refused(&["stream", "delete", "invoices"], "was not found");
    cli.refused(&["stream", "purge", "invoices"], "not found");
    let listed = cli.rows(&[&["stream", "list"][..], &LIST].concat());
    assert_eq!(column(&listed, 2), ["orders"]);
}

pub(super) fn topics(cli: &Cli) {
    let create = ["topic", "create", "orders", "placed", "3", "none"];
    cli.ok(&[&create[..], &["--durability", "persisted"]].concat());
    cli.refused(&create, "already exists");
    cli.refused(
        &["topic", "create", "orders", "wide", "1001", "none"],
        "Too many partitions",
    );
    let odd = ["topic", "create", "orders", "odd", "1", "none", "--set"];
    cli.refused(&[&odd[..], &["colour=blue"]].concat(), "option");
    cli.ok(&["topic", "create", "orders", "kept", "1", "gzip", "1day"]);

    let topic = cli.rows(&["topic", "get", "orders", "placed"]);
    assert_eq!(property(&topic, "Topic name"), "placed");
    assert_eq!(property(&topic, "Compression"), "none");
    assert_eq!(property(&topic, "Message expiry"), "unlimited");
    assert_eq!(property(&topic, "Partitions count"), "3");
    let topic = cli.rows(&["topic", "get", "orders", "kept"]);
    assert_eq!(property(&topic, "Compression"), "gzip");
    assert_eq!(property(&topic, "Message expiry"), "1day");

    cli.ok(&["topic", "update", "orders", "kept", "sold", "none", "1h"]);
    let listed = cli.rows(&[&["topic", "list", "orders"][..], &LIST].concat());
    assert_eq!(column(&listed, 2), ["placed", "sold"]);
    assert_eq!(listed[1][3..], ["0 B", "unlimited", "none", "1h", "0", "1"]);

    cli.ok(&["partition", "create", "orders", "placed", "2"]);
    assert_eq!(partitions(cli), "5");
    cli.ok(&["partition", "delete", "orders", "placed", "1"]);
    assert_eq!(partitions(cli), "4");
    cli.refused(
        &["partition", "delete", "orders", "placed", "5"],
        "partition",
    );
    cli.refused(&["partition", "create", "orders", "none", "1"], "not found");
    assert_eq!(partitions(cli), "4");

    cli.ok(&["topic", "delete", "orders", "sold"]);
    cli.refused(&["topic", "delete", "orders", "sold"], "not found");
    let gone = cli.ok(&["topic", "get", "orders", "sold"]);
    assert!(gone.contains("was not found"), "{gone}");
}

fn partitions(cli: &Cli) -> String {
    let topic = cli.rows(&["topic", "get", "orders", "placed"]);
    property(&topic, "Partitions count")
}

pub(super) fn groups(cli: &Cli) {
    let of = |verb: &str, group: &str| {
        let words = ["consumer-group", verb, "orders", "placed", group];
        words.map(str::to_owned)
    };
    let ok = |verb: &str, group: &str| {
        let words = of(verb, group);
        cli.ok(&words.each_ref().map(String::as_str))
    };
    ok("create", "readers");
    ok("create", "auditors");
    let again = of("create", "readers");
    cli.refused(&again.each_ref().map(String::as_str), "already exists");

    let list = ["consumer-group", "list", "orders", "placed"];
    let listed = cli.rows(&[&list[..], &LIST].concat());
    assert_eq!(column(&listed, 1), ["readers", "auditors"]);
    assert_eq!(listed[0][2..], ["4", "0"], "partitions, members");
    let group = super::rows(&ok("get", "readers"));
    assert_eq!(property(&group, "Consumer group name"), "readers");
    assert_eq!(property(&group, "Partitions count"), "4");
    assert_eq!(property(&group, "Members count"), "0");

    ok("delete", "auditors");
    let again = of("delete", "auditors");
    cli.refused(&again.each_ref().map(String::as_str), "not found");
    assert!(ok("get", "auditors").contains("was not found"));
    let listed = cli.rows(&[&list[..], &LIST].concat());
    assert_eq!(column(&listed, 1), ["readers"]);
}
