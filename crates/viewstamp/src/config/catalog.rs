//! Every setting that published servers of this protocol know, and what we do with it.
//!
//! A name that is not here is a typing error and refuses to start. `*` stands for the index of an
//! array. Names that older servers keep under `[system]` are known with and without it.

/// What a setting means to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// We do what it says.
    Used,
    /// It tunes something that we do in another way, or do not have: accepted with a warning.
    Tunes,
    /// It switches something on that we cannot do yet, unless its value is one of these.
    Asks(&'static [&'static str]),
    /// We cannot do it yet, whatever its value.
    Refused,
}

use Meaning::{Asks, Refused, Tunes, Used};

/// `false`, in the spellings that are read as such.
const OFF: Meaning = Asks(&["false", "0"]);
const UNLIMITED: Meaning = Asks(&["unlimited", "0", "none", "server_default"]);

/// Sections that older servers keep under `[system]`.
const UNDER_SYSTEM: [&str; 6] = [
    "path",
    "runtime.",
    "logging.",
    "encryption.",
    "memory_pool.",
    "sharding.",
];

/// All settings, by canonical name.
pub(crate) const SETTINGS: &[(&str, Meaning)] = &[
    ("path", Used),
    ("runtime.path", Asks(&["runtime"])),
    // Clients over TCP.
    ("tcp.enabled", Used),
    ("tcp.address", Used),
    ("tcp.ipv6", Tunes),
    ("tcp.socket_migration", Tunes),
    ("tcp.tls.enabled", OFF),
    ("tcp.tls.self_signed", Tunes),
    ("tcp.tls.cert_file", Tunes),
    ("tcp.tls.key_file", Tunes),
    ("tcp.socket.override_defaults", Tunes),
    ("tcp.socket.recv_buffer_size", Tunes),
    ("tcp.socket.send_buffer_size", Tunes),
    ("tcp.socket.keepalive", Tunes),
    ("tcp.socket.nodelay", Tunes),
    ("tcp.socket.linger", Tunes),
    ("node.advertised_address", Used),
    // The other transports.
    ("http.enabled", OFF),
    ("http.address", Tunes),
    ("http.max_request_size", Tunes),
    ("http.web_ui", OFF),
    ("http.cors.enabled", Tunes),
    ("http.cors.allowed_methods", Tunes),
    ("http.cors.allowed_origins", Tunes),
    ("http.cors.allowed_headers", Tunes),
    ("http.cors.exposed_headers", Tunes),
    ("http.cors.allow_credentials", Tunes),
    ("http.cors.allow_private_network", Tunes),
    ("http.jwt.algorithm", Tunes),
    ("http.jwt.issuer", Tunes),
    ("http.jwt.audience", Tunes),
    ("http.jwt.valid_issuers", Tunes),
    ("http.jwt.valid_audiences", Tunes),
    ("http.jwt.access_token_expiry", Tunes),
    ("http.jwt.clock_skew", Tunes),
    ("http.jwt.not_before", Tunes),
    ("http.jwt.encoding_secret", Tunes),
    ("http.jwt.decoding_secret", Tunes),
    ("http.jwt.use_base64_secret", Tunes),
    ("http.jwt.trusted_issuers.*.issuer", Tunes),
    ("http.jwt.trusted_issuers.*.jwks_url", Tunes),
    ("http.jwt.trusted_issuers.*.audience", Tunes),
    ("http.jwt.trusted_issuers.*.user_id", Tunes),
    ("http.metrics.enabled", Tunes),
    ("http.metrics.endpoint", Tunes),
    ("http.tls.enabled", OFF),
    ("http.tls.cert_file", Tunes),
    ("http.tls.key_file", Tunes),
    ("quic.enabled", OFF),
    ("quic.address", Tunes),
    ("quic.max_concurrent_bidi_streams", Tunes),
    ("quic.datagram_send_buffer_size", Tunes),
    ("quic.initial_mtu", Tunes),
    ("quic.send_window", Tunes),
    ("quic.receive_window", Tunes),
    ("quic.stream_receive_window", Tunes),
    ("quic.keep_alive_interval", Tunes),
    ("quic.max_idle_timeout", Tunes),
    ("quic.certificate.self_signed", Tunes),
    ("quic.certificate.cert_file", Tunes),
    ("quic.certificate.key_file", Tunes),
    ("quic.socket.override_defaults", Tunes),
    ("quic.socket.recv_buffer_size", Tunes),
    ("quic.socket.send_buffer_size", Tunes),
    ("quic.socket.keepalive", Tunes),
    ("websocket.enabled", OFF),
    ("websocket.address", Tunes),
    ("websocket.read_buffer_size", Tunes),
    ("websocket.write_buffer_size", Tunes),
    ("websocket.max_write_buffer_size", Tunes),
    ("websocket.max_message_size", Tunes),
    ("websocket.max_frame_size", Tunes),
    ("websocket.accept_unmasked_frames", Tunes),
    ("websocket.tls.enabled", OFF),
    ("websocket.tls.self_signed", Tunes),
    ("websocket.tls.cert_file", Tunes),
    ("websocket.tls.key_file", Tunes),
    // The cluster.
    ("cluster.enabled", Used),
    ("cluster.name", Used),
    ("cluster.heartbeat_timeout", Used),
    ("cluster.commit_broadcast_interval", Used),
    ("cluster.prepare_retransmit_interval", Tunes),
    ("cluster.view_change_retransmit_interval", Used),
    ("cluster.view_change_status_timeout", Used),
    ("cluster.request_start_view_retransmit_interval", Tunes),
    ("cluster.view_probe_attempts_max", Tunes),
    ("cluster.repair_retry_interval", Used),
    ("cluster.repair_gap_debounce_interval", Tunes),
    ("cluster.repair_chunk_max", Used),
    ("cluster.superblock_wedged_fatal_timeout", Tunes),
    ("cluster.default_replication_factor", Asks(&["all"])),
    ("cluster.auth.enabled", OFF),
    ("cluster.auth.shared_secret", Tunes),
    ("cluster.auth.previous_shared_secret", Tunes),
    ("cluster.tls.enabled", OFF),
    ("cluster.tls.self_signed", Tunes),
    ("cluster.tls.cert_file", Tunes),
    ("cluster.tls.key_file", Tunes),
    ("cluster.tls.ca_file", Tunes),
    ("cluster.coordinator.skip_shard_zero_for_replicas", Tunes),
    ("cluster.coordinator.skip_shard_zero_for_clients", Tunes),
    ("cluster.nodes.*.name", Used),
    ("cluster.nodes.*.ip", Used),
    ("cluster.nodes.*.replica_id", Used),
    ("cluster.nodes.*.advertised_address", Used),
    (
        "cluster.nodes.*.advertised_addresses.*.client_cidr",
        Refused,
    ),
    ("cluster.nodes.*.advertised_addresses.*.address", Refused),
    ("cluster.nodes.*.ports.tcp", Used),
    ("cluster.nodes.*.ports.tcp_replica", Used),
    ("cluster.nodes.*.ports.quic", Tunes),
    ("cluster.nodes.*.ports.http", Tunes),
    ("cluster.nodes.*.ports.websocket", Tunes),
    ("message_bus.max_batch", Tunes),
    ("message_bus.max_message_size", Used),
    ("message_bus.replica_read_buffer_size", Tunes),
    ("message_bus.replica_connections_per_peer", Tunes),
    ("message_bus.peer_queue_capacity", Tunes),
    ("message_bus.client_queue_capacity", Tunes),
    ("message_bus.reconnect_period", Used),
    ("message_bus.close_peer_timeout", Tunes),
    ("message_bus.close_grace", Used),
    ("message_bus.handshake_grace", Tunes),
    ("message_bus.connections_max", Used),
    // Shards.
    ("sharding.cpu_allocation", Used),
    ("sharding.pin_cores", Tunes),
    ("sharding.inbox_capacity", Used),
    ("sharding.reply_inbox_capacity", Tunes),
    ("sharding.poll_completion_capacity", Tunes),
    ("sharding.partition_io_capacity", Tunes),
    ("sharding.partition_io_bytes_max", Tunes),
    ("sharding.shutdown_drain_timeout", Tunes),
    ("sharding.shutdown_poll_interval", Tunes),
    ("sharding.shutdown_join_timeout", Used),
    ("sharding.reconcile_periodic_interval", Tunes),
    // The two planes.
    ("metadata.prepare_queue_depth", Tunes),
    ("metadata.journal_slots", Tunes),
    ("metadata.clients_table_max", Used),
    ("metadata.partitions_max", UNLIMITED),
    // Ours: between two pieces of sealed data read to find damage; 0 switches it off.
    ("partition.scrub_interval", Used),
    ("partition.prepare_queue_depth", Used),
    ("partition.dedup_clients_max", Used),
    ("partition.consumer_offsets_max", Used),
    ("partition.offset_reservation_lease", Tunes),
    ("partition.evicted_ring_capacity", Tunes),
    ("partition.evicted_ring_bytes_max", Tunes),
    ("partition.transfer_served_cache_bytes_max", Tunes),
    ("partition.transfer_artifact_bytes_max", Tunes),
    ("partition.wal_bytes_max", Tunes),
    ("partition.wal_group_commit_delay_micros", Tunes),
    ("partition.validate_checksum", Tunes),
    // Data.
    ("system.backup.path", Tunes),
    ("system.backup.compatibility.path", Tunes),
    ("system.state.enforce_fsync", Tunes),
    ("system.state.max_file_operation_retries", Tunes),
    ("system.state.retry_delay", Tunes),
    ("system.compression.allow_override", Tunes),
    ("system.compression.default_algorithm", Asks(&["none"])),
    ("system.stream.path", Tunes),
    ("system.topic.path", Tunes),
    ("system.topic.max_size", UNLIMITED),
    ("system.topic.message_expiry", UNLIMITED),
    ("system.topic.delete_oldest_segments", OFF),
    ("system.partition.path", Tunes),
    ("system.partition.enforce_fsync", OFF),
    ("system.partition.validate_checksum", Tunes),
    ("system.partition.messages_required_to_save", Tunes),
    ("system.partition.size_of_messages_required_to_save", Tunes),
    ("system.segment.size", Used),
    ("system.segment.cache_indexes", Tunes),
    ("system.segment.message_expiry", UNLIMITED),
    ("system.segment.archive_expired", OFF),
    ("system.segment.server_confirmation", Tunes),
    ("system.segment.preallocate", Tunes),
    ("system.message_deduplication.enabled", OFF),
    ("system.message_deduplication.max_entries", Tunes),
    ("system.message_deduplication.expiry", Tunes),
    ("system.recovery.recreate_missing_state", Tunes),
    ("encryption.enabled", Used),
    ("encryption.key", Used),
    ("memory_pool.enabled", Tunes),
    ("memory_pool.size", Tunes),
    ("memory_pool.bucket_capacity", Tunes),
    ("message_saver.enabled", Tunes),
    ("message_saver.enforce_fsync", Tunes),
    ("message_saver.interval", Used),
    ("data_maintenance.messages.cleaner_enabled", Used),
    ("data_maintenance.messages.archiver_enabled", OFF),
    ("data_maintenance.messages.interval", Used),
    ("data_maintenance.messages.patience_factor", Used),
    ("data_maintenance.messages.patience", Used),
    ("data_maintenance.archiver.enabled", OFF),
    ("data_maintenance.state.archiver_enabled", OFF),
    ("data_maintenance.state.overwrite", Tunes),
    ("data_maintenance.state.interval", Tunes),
    // People and clients.
    ("personal_access_token.max_tokens_per_user", Tunes),
    ("personal_access_token.cleaner.enabled", Tunes),
    ("personal_access_token.cleaner.interval", Tunes),
    ("heartbeat.enabled", Used),
    ("heartbeat.interval", Used),
    ("consumer_group.rebalancing_timeout", Used),
    ("consumer_group.rebalancing_check_interval", Tunes),
    ("consumer_group.session_timeout", Tunes),
    ("consumer_group.heartbeat_interval", Tunes),
    // Logs and telemetry.
    ("logging.path", Tunes),
    ("logging.level", Used),
    ("logging.file_enabled", Tunes),
    ("logging.max_size", Tunes),
    ("logging.max_file_size", Tunes),
    ("logging.max_total_size", Tunes),
    ("logging.rotation_check_interval", Tunes),
    ("logging.retention", Tunes),
    ("logging.sysinfo_print_interval", Tunes),
    ("telemetry.enabled", OFF),
    ("telemetry.service_name", Tunes),
    ("telemetry.logs.transport", Tunes),
    ("telemetry.logs.endpoint", Tunes),
    ("telemetry.traces.transport", Tunes),
    ("telemetry.traces.endpoint", Tunes),
];

/// Environment names that start with `IGGY_` and are no settings of a server: its own start-up
/// names, and those of the clients, tools and test suites around it.
const OTHER_NAMES: [&str; 7] = [
    "IGGY_CONFIG_PATH",
    "IGGY_CONFIG_PROVIDER",
    "IGGY_ENV_PATH",
    "IGGY_ROOT_USERNAME",
    "IGGY_ROOT_PASSWORD",
    "IGGY_CI_BUILD",
    "IGGY_WEB_UI",
];
const OTHER_PREFIXES: [&str; 7] = [
    "IGGY_TEST_",
    "IGGY_SHARD_RUNTIME_",
    "IGGY_CLI_",
    "IGGY_BENCH_",
    "IGGY_MCP_",
    "IGGY_CONNECTORS_",
    "IGGY_SDK_",
];

/// Whether an environment name is no setting of a server.
pub(crate) fn is_other(name: &str) -> bool {
    OTHER_NAMES.contains(&name) || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// All names that mean a setting: the canonical one, and the older one.
fn spellings(name: &'static str) -> impl Iterator<Item = String> {
    let older = UNDER_SYSTEM
        .iter()
        .any(|under| name == *under || name.starts_with(under));
    [
        Some(name.to_owned()),
        older.then(|| format!("system.{name}")),
    ]
    .into_iter()
    .flatten()
}

/// The canonical name, with its indices, and meaning of a TOML path.
pub(crate) fn by_path(path: &str) -> Option<(String, Meaning)> {
    find(
        path.split('.').collect(),
        |spelling| spelling.to_owned(),
        '.',
    )
}

/// The canonical name, with its indices, and meaning of an environment name.
pub(crate) fn by_environment(name: &str) -> Option<(String, Meaning)> {
    find(name.split('_').collect(), environment_name, '_')
}

fn find(
    parts: Vec<&str>,
    spell: impl Fn(&str) -> String,
    separator: char,
) -> Option<(String, Meaning)> {
    SETTINGS.iter().find_map(|(name, meaning)| {
        spellings(name).find_map(|spelling| {
            let indices = indices(&parts, &spell(&spelling), separator)?;
            Some((with_indices(name, &indices), *meaning))
        })
    })
}

/// The numbers that stand for `*`, if the parts spell this pattern.
fn indices(parts: &[&str], pattern: &str, separator: char) -> Option<Vec<usize>> {
    let pattern: Vec<&str> = pattern.split(separator).collect();
    if pattern.len() != parts.len() {
        return None;
    }
    let mut found = vec![];
    for (part, expected) in parts.iter().zip(pattern) {
        match expected {
            "*" => found.push(part.parse().ok()?),
            expected if *part == expected => {}
            _ => return None,
        }
    }
    Some(found)
}

fn with_indices(pattern: &str, indices: &[usize]) -> String {
    let mut name = pattern.to_owned();
    for index in indices {
        name = name.replacen('*', &index.to_string(), 1);
    }
    name
}

/// `tcp.address` as `IGGY_TCP_ADDRESS`.
pub(crate) fn environment_name(path: &str) -> String {
    format!("IGGY_{}", path.replace('.', "_").to_ascii_uppercase())
}

/// The known spelling nearest to an unknown one, if it is near enough to be meant.
pub(crate) fn nearest(unknown: &str, spell: impl Fn(&str) -> String) -> Option<String> {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let numbers: Vec<&str> = unknown.split(['.', '_']).filter(is_number).collect();
    SETTINGS
        .iter()
        .flat_map(|(name, _)| spellings(name))
        .map(|spelling| {
            let mut spelling = spell(&spelling);
            for number in &numbers {
                spelling = spelling.replacen('*', number, 1);
            }
            (super::value::distance(unknown, &spelling), spelling)
        })
        .min()
        .filter(|(distance, _)| *distance <= 2 + unknown.len() / 4)
        .map(|(_, spelling)| spelling)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_in_the_file_and_in_the_environment() {
        let all: Vec<String> = SETTINGS
            .iter()
            .flat_map(|(name, _)| spellings(name))
            .collect();
        let paths: BTreeSet<&String> = all.iter().collect();
        assert_eq!(paths.len(), all.len());
        let names: BTreeSet<String> = all.iter().map(|path| environment_name(path)).collect();
        assert_eq!(
            names.len(),
            all.len(),
            "no two settings share an environment name"
        );
    }

    #[test]
    fn environment_names_spell_paths_and_indices() {
        let canonical = |name| by_environment(name).map(|(name, _)| name);
        assert_eq!(
            canonical("IGGY_TCP_ADDRESS").as_deref(),
            Some("tcp.address")
        );
        assert_eq!(canonical("IGGY_PATH").as_deref(), Some("path"));
        assert_eq!(canonical("IGGY_SYSTEM_PATH").as_deref(), Some("path"));
        assert_eq!(
            canonical("IGGY_CLUSTER_NODES_2_PORTS_TCP_REPLICA").as_deref(),
            Some("cluster.nodes.2.ports.tcp_replica")
        );
        assert_eq!(
            canonical("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION").as_deref(),
            Some("sharding.cpu_allocation")
        );
        assert_eq!(canonical("IGGY_CLUSTER_NODES_X_IP"), None);
        assert_eq!(canonical("IGGY_TCP"), None);
    }

    #[test]
    fn the_nearest_name_is_suggested_if_it_is_near() {
        let environment = |name| nearest(name, environment_name);
        assert_eq!(
            environment("IGGY_TCP_ADRESS").as_deref(),
            Some("IGGY_TCP_ADDRESS")
        );
        assert_eq!(
            environment("IGGY_CLUSTER_NODES_3_PORT_TCP").as_deref(),
            Some("IGGY_CLUSTER_NODES_3_PORTS_TCP")
        );
        assert_eq!(
            nearest("tpc.address", str::to_owned).as_deref(),
            Some("tcp.address")
        );
        assert_eq!(nearest("zzzzzzzzzz", str::to_owned), None);
    }
}
