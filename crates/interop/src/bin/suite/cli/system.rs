//! The server itself: ping, me, statistics, clients, the cluster, options, archives; and contexts,
//! which the client keeps on its own.

use std::fs;

use super::{Cli, column, property, rows};

pub(super) fn run(cli: &Cli) {
    let ping = cli.ok(&["ping", "--count", "3"]);
    assert_eq!(ping.matches("sequence id").count(), 3, "{ping}");
    assert!(ping.contains("statistics for 3 ping commands"), "{ping}");

    let me = cli.rows(&["me"]);
    assert_eq!(property(&me, "User ID"), "0");
    assert_eq!(property(&me, "Transport"), "TCP");
    assert!(property(&me, "Address").starts_with("127.0.0.1:"));
    assert_ne!(property(&me, "Client ID"), "0");

    statistics(cli);
    clients(cli);

    let cluster = cli.rows(&["cluster", "metadata", "--list-mode", "list"]);
    assert_eq!(cluster.len(), 1, "{cluster:?}");
    assert_eq!(cluster[0][1], "127.0.0.1");
    assert_eq!(cluster[0][6..], ["leader", "healthy"], "{cluster:?}");

    options(cli);
    cli.refused_as("iggy", "wrong", &["me"], "Invalid credentials");
    cli.refused_as("nobody", "wrong", &["me"], "Invalid credentials");
}

fn statistics(cli: &Cli) {
    let stats = cli.rows(&["stats", "--output", "list"]);
    for (name, value) in [
        ("Streams Count", "0"),
        ("Topics Count", "0"),
        ("Partitions Count", "0"),
        ("Segments Count", "0"),
        ("Message Count", "0"),
        ("Consumer Groups Count", "0"),
        ("Clients Count", "1"),
    ] {
        assert_eq!(property(&stats, name), value, "{name}");
    }
    for name in ["Iggy Server PID", "Iggy Server Memory Usage"] {
        let value: u64 = property(&stats, name).parse().expect("a number");
        assert!(value > 0, "{name}");
    }
    let json = cli.ok(&["stats", "--output", "json"]);
    assert!(
        json.contains(r#""iggy_server_version": "0.11.0""#),
        "{json}"
    );
    let toml = cli.ok(&["stats", "--output", "toml"]);
    assert!(toml.contains("streams_count = 0"), "{toml}");
    let table = cli.rows(&["stats"]);
    assert_eq!(property(&table, "Streams Count"), "0");
}

/// Nobody is connected but who asks.
fn clients(cli: &Cli) {
    let clients = cli.rows(&["client", "list", "--list-mode", "list"]);
    assert_eq!(clients.len(), 1, "{clients:?}");
    assert_eq!(clients[0][1], "0", "the user is root");
    assert_eq!(clients[0][3..], ["TCP", "0"], "{clients:?}");
    let gone = cli.ok(&["client", "get", &clients[0][0]]);
    assert!(gone.contains("was not found"), "{gone}");
}

fn options(cli: &Cli) {
    let topic = cli.rows(&["options", "topic"]);
    let keys = column(&topic, 0);
    for key in [
        "compression_algorithm",
        "consumer_offset_durability",
        "durability",
        "max_topic_size",
        "message_expiry",
        "segment_size",
    ] {
        assert!(keys.contains(&key), "{key} is missing of {keys:?}");
    }
    let durability = &topic[keys
        .iter()
        .position(|&key| key == "durability")
        .expect("seen")];
    assert_eq!(durability[1..3], ["string", "replicated"]);
    for scope in ["stream", "user"] {
        let none = cli.ok(&["options", scope]);
        assert!(none.contains("accept no options"), "{none}");
    }
}

/// Archives of both kinds of compression that the client offers first.
pub(super) fn archive(cli: &Cli) {
    for compression in ["stored", "deflated"] {
        let directory = cli.home.join(compression);
        fs::create_dir(&directory).expect("the home is writable");
        let out = directory.to_str().expect("the path is text");
        let types = "test server_config server_logs";
        let said = cli.rows(&[
            "snapshot",
            "--compression",
            compression,
            "--snapshot-types",
            types,
            "--out-dir",
            out,
        ]);
        let archive = fs::read(property(&said, "File Path")).expect("the archive is there");
        let size: usize = property(&said, "File Size (bytes)")
            .parse()
            .expect("a number");
        assert_eq!(archive.len(), size);
        assert!(archive.starts_with(b"PK\x03\x04"), "a ZIP archive");
        let names = [&b"test.txt"[..], b"server_config.toml"];
        for name in names {
            assert!(archive.windows(name.len()).any(|it| it == name), "{types}");
        }
    }
}

/// Contexts live in the client's home; one of them leads to the server without its address.
pub(super) fn contexts(cli: &Cli) {
    let address = cli.address.to_string();
    let create = ["context", "create", "here", "--transport", "tcp"];
    cli.ok(&[&create[..], &["--tcp-server-address", &address]].concat());
    let shown = rows(&cli.ok(&["context", "show", "here"]));
    assert_eq!(property(&shown, "Name"), "here");
    assert_eq!(property(&shown, "TCP Server Address"), address);

    cli.ok(&["context", "use", "here"]);
    let listed = cli.rows(&["context", "list"]);
    assert!(column(&listed, 0).contains(&"here*"), "{listed:?}");
    cli.ok(&["ping"]);

    cli.ok(&["context", "use", "default"]);
    cli.ok(&["context", "delete", "here"]);
    let listed = cli.rows(&["context", "list"]);
    assert!(!column(&listed, 0).contains(&"here"), "{listed:?}");
    cli.refused(&["context", "use", "here"], "here");
}
