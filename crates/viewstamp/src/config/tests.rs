//! Precedence, names and rules of the configuration.

use std::{path::PathBuf, sync::atomic::AtomicU32};

use super::*;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Loads a file's text and an environment.
fn load_text(
    text: &str,
    variables: &[(&str, &str)],
    overrides: &Overrides,
) -> Result<Loaded, Vec<String>> {
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("viewstamp-config-{}-{number}.toml", std::process::id());
    let path: PathBuf = std::env::temp_dir().join(name);
    fs::write(&path, text).unwrap();
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    let loaded = load(Some(&path), variables, overrides);
    fs::remove_file(path).unwrap();
    loaded
}

fn environment(variables: &[(&str, &str)]) -> Result<Loaded, Vec<String>> {
    load_text("", variables, &Overrides::default())
}

fn problem(loaded: Result<Loaded, Vec<String>>) -> String {
    loaded.unwrap_err().join("\n")
}

#[test]
fn without_anything_the_defaults_hold() {
    let Loaded { config, warnings } =
        load(None, std::iter::empty(), &Overrides::default()).unwrap();
    assert_eq!(config.path, PathBuf::from("local_data"));
    assert_eq!(config.client_listen, "127.0.0.1:8090".parse().unwrap());
    assert_eq!((config.replica, config.nodes.len()), (ReplicaIndex(0), 1));
    assert_eq!(config.nodes[0].client_host, "127.0.0.1");
    assert_eq!(config.cluster_name, "single-node");
    assert!(config.shards >= 1 && config.replica_listen.is_none());
    assert!(warnings.is_empty());
}

#[test]
fn the_environment_wins_over_the_file_and_flags_over_both() {
    let text = "path = \"from-file\"\n[tcp]\naddress = \"127.0.0.1:1\"\n\
                [sharding]\ncpu_allocation = \"3\"\n";
    let variables = [
        ("IGGY_TCP_ADDRESS", "127.0.0.1:2"),
        ("IGGY_SHARDING_CPU_ALLOCATION", "4"),
    ];
    let overrides = Overrides {
        shards: Some(5),
        ..Overrides::default()
    };
    let config = load_text(text, &variables, &overrides).unwrap().config;
    assert_eq!(config.path, PathBuf::from("from-file"));
    assert_eq!(config.client_listen.port(), 2);
    assert_eq!(config.shards, 5);
    let config = load_text(text, &variables, &Overrides::default())
        .unwrap()
        .config;
    assert_eq!(config.shards, 4);
    assert_eq!(
        load_text(text, &[], &Overrides::default())
            .unwrap()
            .config
            .shards,
        3
    );
}

#[test]
fn an_unknown_name_refuses_to_start_and_suggests_the_nearest() {
    let typo = problem(environment(&[("IGGY_TCP_ADRESS", "x")]));
    assert_eq!(
        typo,
        "unknown setting IGGY_TCP_ADRESS; did you mean IGGY_TCP_ADDRESS?"
    );
    let far = problem(environment(&[("IGGY_XXXXXXXXXXXXXXXX", "x")]));
    assert_eq!(far, "unknown setting IGGY_XXXXXXXXXXXXXXXX");
    let file = problem(load_text(
        "[tcp]\nadress = \"x\"\n",
        &[],
        &Overrides::default(),
    ));
    assert!(file.contains("tcp.adress in /"), "{file}");
    assert!(file.ends_with("; did you mean tcp.address?"), "{file}");
    assert!(problem(load_text("= 3", &[], &Overrides::default())).contains("is no TOML"));
}

#[test]
fn all_problems_are_told_at_once() {
    let problems = environment(&[("IGGY_QUIC_ENABLED", "true"), ("IGGY_TCP_ADDRESS", "here")]);
    assert_eq!(problems.unwrap_err().len(), 2);
}

#[test]
fn what_only_tunes_or_switches_off_is_one_warning_each() {
    let given = [
        ("IGGY_QUIC_ENABLED", "false"),
        ("IGGY_HTTP_ADDRESS", "127.0.0.1:0"),
        ("IGGY_SYSTEM_LOGGING_FILE_ENABLED", "true"),
        ("IGGY_MEMORY_POOL_SIZE", "512 MiB"),
        ("IGGY_METADATA_PARTITIONS_MAX", "0"),
        ("IGGY_HTTP_JWT_ENCODING_SECRET", "a-secret"),
    ];
    let Loaded { config, warnings } = environment(&given).unwrap();
    assert_eq!(warnings.len(), given.len(), "{warnings:?}");
    for (name, _) in given {
        assert!(
            warnings.iter().any(|warning| warning.contains(name)),
            "{name}"
        );
    }
    assert!(!warnings.iter().any(|warning| warning.contains("a-secret")));
    assert!(
        config
            .other_addresses
            .contains(&("http", "127.0.0.1:0".into()))
    );
}

#[test]
fn what_asks_for_more_than_we_can_do_is_refused() {
    for (name, value) in [
        ("IGGY_QUIC_ENABLED", "true"),
        ("IGGY_HTTP_ENABLED", "TRUE"),
        ("IGGY_WEBSOCKET_ENABLED", "true"),
        ("IGGY_TCP_TLS_ENABLED", "true"),
        ("IGGY_CLUSTER_AUTH_ENABLED", "true"),
        ("IGGY_METADATA_PARTITIONS_MAX", "10"),
        (
            "IGGY_CLUSTER_NODES_0_ADVERTISED_ADDRESSES_0_CLIENT_CIDR",
            "10.0.0.0/8",
        ),
        ("IGGY_TCP_ENABLED", "false"),
    ] {
        let problem = problem(environment(&[(name, value)]));
        assert!(!problem.contains('\n'), "{name}: {problem}");
    }
}

#[test]
fn a_file_that_asks_too_much_can_be_put_right_by_the_environment() {
    let text = "[quic]\nenabled = true\n";
    assert!(load_text(text, &[], &Overrides::default()).is_err());
    let variables = [("IGGY_QUIC_ENABLED", "false")];
    assert!(load_text(text, &variables, &Overrides::default()).is_ok());
}

#[test]
fn names_that_are_no_settings_pass() {
    let given = [
        ("IGGY_CONFIG_PATH", "x"),
        ("IGGY_CI_BUILD", "true"),
        ("IGGY_TEST_VERBOSE", "1"),
        ("IGGY_ROOT_USERNAME", "iggy"),
        ("PATH", "/bin"),
        ("iggy_tcp_address", "x"),
    ];
    assert!(environment(&given).unwrap().warnings.is_empty());
}

#[test]
fn older_and_newer_names_mean_the_same_and_must_agree() {
    let path = |given: &[(&str, &str)]| environment(given).map(|loaded| loaded.config.path);
    assert_eq!(path(&[("IGGY_SYSTEM_PATH", "a")]), Ok("a".into()));
    assert_eq!(path(&[("IGGY_PATH", "a")]), Ok("a".into()));
    assert_eq!(
        path(&[("IGGY_PATH", "a"), ("IGGY_SYSTEM_PATH", "a")]),
        Ok("a".into())
    );
    let two = path(&[("IGGY_PATH", "a"), ("IGGY_SYSTEM_PATH", "b")]);
    assert!(two.unwrap_err()[0].contains("contradict"));
}

#[test]
fn shard_counts_are_read_in_all_forms() {
    let shards = |text| environment(&[("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", text)]);
    assert_eq!(shards("6").unwrap().config.shards, 6);
    let range = shards("5..8").unwrap();
    assert_eq!((range.config.shards, range.warnings.len()), (3, 1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(usize::from(shards("all").unwrap().config.shards), cores);
    assert_eq!(shards("numa:auto").unwrap().warnings.len(), 1);
    for text in ["0", "8..5", "many", "5000"] {
        assert!(shards(text).is_err(), "{text}");
    }
}

/// Three nodes, as the environment has them.
fn roster(change: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut given = vec![("IGGY_CLUSTER_ENABLED".to_owned(), "true".to_owned())];
    for node in 0..3 {
        let mut add = |field: &str, value: String| {
            given.push((format!("IGGY_CLUSTER_NODES_{node}_{field}"), value));
        };
        add("NAME", format!("node-{node}"));
        add("IP", "10.0.0.1".into());
        add("REPLICA_ID", (2 - node).to_string());
        add("PORTS_TCP", (100 + node).to_string());
        add("PORTS_TCP_REPLICA", (200 + node).to_string());
    }
    for (name, value) in change {
        given.retain(|(known, _)| known != name);
        given.push(((*name).into(), (*value).into()));
    }
    given
}

fn cluster(change: &[(&str, &str)], replica_id: Option<u8>) -> Result<Loaded, Vec<String>> {
    let overrides = Overrides {
        replica_id,
        ..Overrides::default()
    };
    load(None, roster(change).into_iter(), &overrides)
}

#[test]
fn a_roster_from_the_environment_is_ordered_by_replica_id() {
    let change = [
        ("IGGY_TCP_ADDRESS", "0.0.0.0:8090"),
        (
            "IGGY_CLUSTER_NODES_0_ADVERTISED_ADDRESS",
            "broker.example.com",
        ),
    ];
    let config = cluster(&change, Some(2)).unwrap().config;
    assert_eq!(config.replica, ReplicaIndex(2));
    let names: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["node-2", "node-1", "node-0"]);
    assert_eq!(
        config.client_listen,
        "0.0.0.0:100".parse().unwrap(),
        "host and roster's port"
    );
    assert_eq!(config.replica_listen, Some("10.0.0.1:200".parse().unwrap()));
    assert_eq!(config.nodes[2].client_host, "broker.example.com");
    assert_eq!(config.nodes[1].client_host, "10.0.0.1");
}

#[test]
fn a_roster_in_the_file_means_the_same() {
    let text = r#"
        [cluster]
        enabled = true
        name = "pair"
        [[cluster.nodes]]
        name = "a"
        ip = "127.0.0.1"
        replica_id = 0
        ports = { tcp = 1, quic = 2, tcp_replica = 3 }
        [[cluster.nodes]]
        name = "b"
        ip = "127.0.0.1"
        replica_id = 1
        ports = { tcp = 4, tcp_replica = 5 }
    "#;
    let overrides = Overrides {
        replica_id: Some(1),
        ..Overrides::default()
    };
    let variables = [("IGGY_CLUSTER_NODES_1_PORTS_TCP", "40")];
    let config = load_text(text, &variables, &overrides).unwrap().config;
    assert_eq!(config.cluster_name, "pair");
    assert_eq!(config.client_listen.port(), 40);
    assert_eq!(config.nodes[1].replica, "127.0.0.1:5".parse().unwrap());
}

#[test]
fn a_roster_that_breaks_a_rule_is_refused() {
    for (name, value, part) in [
        ("IGGY_CLUSTER_NODES_1_NAME", "node-0", "taken"),
        ("IGGY_CLUSTER_NODES_1_NAME", " ", "blank"),
        ("IGGY_CLUSTER_NODES_1_REPLICA_ID", "0", "each once"),
        ("IGGY_CLUSTER_NODES_1_REPLICA_ID", "3", "each once"),
        ("IGGY_CLUSTER_NODES_1_PORTS_TCP", "0", "within 1 and"),
        ("IGGY_CLUSTER_NODES_1_PORTS_TCP", "200", "used twice"),
        ("IGGY_CLUSTER_NODES_1_IP", "db.example.com", "literal IP"),
        ("IGGY_CLUSTER_NODES_1_IP", "0.0.0.0", "wildcard"),
        ("IGGY_CLUSTER_NODES_1_ADVERTISED_ADDRESS", "::", "wildcard"),
        (
            "IGGY_CLUSTER_NODES_1_ADVERTISED_ADDRESS",
            "host:80",
            "without port",
        ),
        ("IGGY_CLUSTER_NODES_4_NAME", "node-4", "missing"),
        ("IGGY_CLUSTER_NODES_9_NAME", "node-9", "1 to 7"),
        ("IGGY_CLUSTER_NAME", " ", "blank"),
        (
            "IGGY_CLUSTER_HEARTBEAT_TIMEOUT",
            "300ms",
            "at least 4 times",
        ),
        ("IGGY_CLUSTER_HEARTBEAT_TIMEOUT", "0", "switched off"),
        ("IGGY_CLUSTER_REPAIR_CHUNK_MAX", "1025", "within 1 and 1024"),
    ] {
        let problem = problem(cluster(&[(name, value)], Some(0)));
        assert!(problem.contains(part), "{name}={value}: {problem}");
    }
    assert!(problem(cluster(&[], None)).contains("--replica-id"));
    assert!(problem(cluster(&[], Some(3))).contains("not in cluster.nodes"));
    let alone = Overrides {
        replica_id: Some(1),
        ..Overrides::default()
    };
    assert!(problem(load_text("", &[], &alone)).contains("IGGY_CLUSTER_ENABLED"));
}

#[test]
fn timings_are_rounded_down_to_the_grid() {
    let given = [
        ("IGGY_CLUSTER_COMMIT_BROADCAST_INTERVAL", "19ms"),
        ("IGGY_CLUSTER_REPAIR_RETRY_INTERVAL", "1us"),
    ];
    let timing = environment(&given).unwrap().config.timing;
    assert_eq!(timing.heartbeat, Duration::from_millis(10));
    assert_eq!(timing.repair_retry, Duration::from_millis(10));
}

#[test]
fn consumer_groups_have_their_times() {
    let given = [
        ("IGGY_CONSUMER_GROUP_REBALANCING_TIMEOUT", "3s"),
        ("IGGY_HEARTBEAT_INTERVAL", "7s"),
    ];
    let timing = environment(&given).unwrap().config.timing;
    assert_eq!(timing.rebalancing, Duration::from_secs(3));
    assert_eq!(timing.client_heartbeat, Duration::from_secs(7));
    let off = [("IGGY_HEARTBEAT_ENABLED", "false")];
    let timing = environment(&off).unwrap().config.timing;
    assert_eq!(timing.rebalancing, Duration::from_secs(30));
    assert_eq!(timing.client_heartbeat, Duration::ZERO);
    let never = [("IGGY_CONSUMER_GROUP_REBALANCING_TIMEOUT", "0")];
    assert!(problem(environment(&never)).contains("switched off"));
}

#[test]
fn retention_has_its_interval_and_its_patience() {
    let timing = |variables: &[_]| environment(variables).unwrap().config.timing;
    assert_eq!(timing(&[]).retention, Duration::from_secs(60));
    let often = [
        ("IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED", "true"),
        ("IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL", "100ms"),
        ("IGGY_DATA_MAINTENANCE_MESSAGES_PATIENCE", "2 h"),
    ];
    assert_eq!(timing(&often).retention, Duration::from_millis(100));
    assert_eq!(timing(&often).patience, Duration::from_secs(7200));
    let never = [("IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED", "false")];
    assert_eq!(timing(&never).retention, Duration::ZERO);
    for (text, factor) in [("0", 0), ("1000000", 1_000_000)] {
        let variables = [("IGGY_DATA_MAINTENANCE_MESSAGES_PATIENCE_FACTOR", text)];
        let limits = environment(&variables).unwrap().config.limits;
        assert_eq!(limits.patience_factor, factor);
    }
    let beyond = [("IGGY_DATA_MAINTENANCE_MESSAGES_PATIENCE_FACTOR", "1000001")];
    assert!(problem(environment(&beyond)).contains("PATIENCE_FACTOR"));
}

#[test]
fn the_names_that_test_suites_of_the_protocol_set_pass() {
    let given = [
        ("IGGY_PATH", "/tmp/x"),
        ("IGGY_ROOT_USERNAME", "iggy"),
        ("IGGY_ROOT_PASSWORD", "iggy"),
        ("IGGY_TCP_ADDRESS", "127.0.0.1:0"),
        ("IGGY_HTTP_ADDRESS", "127.0.0.1:0"),
        ("IGGY_QUIC_ADDRESS", "127.0.0.1:0"),
        ("IGGY_WEBSOCKET_ADDRESS", "127.0.0.1:0"),
        ("IGGY_SHARDING_CPU_ALLOCATION", "0..4"),
        ("IGGY_SHARDING_PIN_CORES", "false"),
        ("IGGY_SHARD_RUNTIME_CAPACITY", "256"),
        ("IGGY_HEARTBEAT_ENABLED", "true"),
        ("IGGY_HEARTBEAT_INTERVAL", "2s"),
        ("IGGY_DATA_MAINTENANCE_MESSAGES_CLEANER_ENABLED", "true"),
        ("IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL", "100ms"),
        ("IGGY_TEST_VERBOSE", "1"),
        ("IGGY_TEST_CLUSTER_NODES", "3"),
    ];
    environment(&given).unwrap();
}

#[test]
fn the_scrubber_is_slowed_down_or_switched_off() {
    for (given, expected) in [("250ms", 250), ("19ms", 10), ("0", 0)] {
        let given = [("IGGY_PARTITION_SCRUB_INTERVAL", given)];
        let timing = environment(&given).unwrap().config.timing;
        assert_eq!(timing.scrub, Duration::from_millis(expected));
    }
}

#[test]
fn a_wildcard_listener_is_never_told_to_clients() {
    let Loaded { config, warnings } = environment(&[("IGGY_TCP_ADDRESS", "0.0.0.0:0")]).unwrap();
    assert_eq!(config.nodes[0].client_host, "127.0.0.1");
    assert_eq!(warnings.len(), 1);
    let told = [
        ("IGGY_TCP_ADDRESS", "[::]:0"),
        ("IGGY_NODE_ADVERTISED_ADDRESS", "a.example"),
    ];
    let Loaded { config, warnings } = environment(&told).unwrap();
    assert_eq!(config.nodes[0].client_host, "a.example");
    assert!(warnings.is_empty());
}

#[test]
fn log_levels_come_from_rust_log_then_the_setting() {
    let log = |given: &[(&str, &str)]| environment(given).map(|l| l.config.log.to_string());
    assert_eq!(log(&[]).unwrap(), "info");
    assert_eq!(log(&[("IGGY_LOGGING_LEVEL", "none")]).unwrap(), "off");
    assert_eq!(
        log(&[("IGGY_LOGGING_LEVEL", "warn"), ("RUST_LOG", "debug")]).unwrap(),
        "debug"
    );
    assert!(log(&[("IGGY_SYSTEM_LOGGING_LEVEL", "a=b=c")]).is_err());
}

#[test]
fn encryption_needs_a_key_and_no_problem_shows_one() {
    let key = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    for section in ["IGGY_ENCRYPTION", "IGGY_SYSTEM_ENCRYPTION"] {
        let (enabled, name) = (format!("{section}_ENABLED"), format!("{section}_KEY"));
        let config = |given: &[(&str, &str)]| environment(given).map(|loaded| loaded.config);
        let on = config(&[(&enabled, "true"), (&name, key)]).unwrap();
        assert_eq!(on.encryption, Some(EncryptionKey::new([7; 32])));
        for off in [
            config(&[]),
            config(&[(&enabled, "false"), (&name, key)]),
            config(&[(&name, key)]),
            config(&[(&name, "")]),
        ] {
            assert_eq!(off.unwrap().encryption, None);
        }
        assert!(problem(environment(&[(&enabled, "true")])).contains("encryption.key"));
        let short = problem(environment(&[(&enabled, "true"), (&name, &key[4..])]));
        assert!(short.contains("32 bytes") && !short.contains(&key[4..]));
    }
}
