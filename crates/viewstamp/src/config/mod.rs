//! What the server is asked to be: defaults, then the file, then the environment, then flags.

mod catalog;
mod cluster;
mod settings;
mod value;

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use base::ReplicaIndex;
use server::{EncryptionKey, Limits, NodeAddress, Timing};
use tracing_subscriber::filter::Targets;

use settings::Settings;

use crate::encryption;

/// Where clients are accepted if nobody says otherwise.
const CLIENT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8090);
/// Shards of one node; the placement of partitions is a remainder of it.
const SHARDS_MAX: u64 = 1024;

/// The configuration in force.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The data directory.
    pub(crate) path: PathBuf,
    pub(crate) client_listen: SocketAddr,
    pub(crate) replica_listen: Option<SocketAddr>,
    /// Whether the node is part of a configured cluster.
    pub(crate) clustered: bool,
    pub(crate) cluster_name: String,
    /// This node's place in `nodes`.
    pub(crate) replica: ReplicaIndex,
    pub(crate) nodes: Vec<NodeAddress>,
    pub(crate) shards: u16,
    pub(crate) limits: Limits,
    pub(crate) timing: Timing,
    /// Letters in one queue between two shards.
    pub(crate) letters_max: usize,
    /// How long a closed connection may take to send the rest.
    pub(crate) close_grace: Duration,
    /// How long shards may take to stop.
    pub(crate) stop_timeout: Duration,
    /// What messages are encrypted with at rest.
    pub(crate) encryption: Option<EncryptionKey>,
    /// What is logged.
    pub(crate) log: Targets,
    /// Addresses of transports that we do not have, repeated in the effective configuration.
    pub(crate) other_addresses: Vec<(&'static str, String)>,
}

/// What flags say about the configuration; they win over everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) replica_id: Option<u8>,
    pub(crate) shards: Option<u16>,
}

/// A configuration, and what the operator should know about it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) warnings: Vec<String>,
}

/// Merges all sources.
///
/// # Errors
/// All reasons not to start.
pub(crate) fn load(
    file: Option<&Path>,
    variables: impl Iterator<Item = (String, String)>,
    overrides: &Overrides,
) -> Result<Loaded, Vec<String>> {
    let mut settings = Settings::default();
    if let Some(path) = file {
        match fs::read_to_string(path) {
            Ok(text) => settings.add_file(path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                settings
                    .warnings
                    .push(format!("{} is not there", path.display()));
            }
            Err(error) => settings
                .problems
                .push(format!("{}: {error}", path.display())),
        }
    }
    let (mut log, mut env_file) = (None, false);
    settings.add_environment(variables.inspect(|(name, value)| match name.as_str() {
        "RUST_LOG" => log = Some(value.clone()),
        "IGGY_ENV_PATH" => env_file = true,
        _ => {}
    }));
    if env_file {
        let warning = "IGGY_ENV_PATH has no effect here: put its lines into the environment";
        settings.warnings.push(warning.into());
    }
    settings.judge();
    let config = build(&mut settings, log.as_deref(), overrides);
    if settings.problems.is_empty() {
        Ok(Loaded {
            config,
            warnings: settings.warnings,
        })
    } else {
        Err(settings.problems)
    }
}

fn build(settings: &mut Settings, log: Option<&str>, overrides: &Overrides) -> Config {
    let path = settings
        .get("path")
        .map_or("local_data", |setting| &setting.value)
        .into();
    if settings.parse("tcp.enabled", value::boolean) == Some(false) {
        settings
            .problems
            .push("tcp.enabled is false: clients could not reach this server".into());
    }
    let client_listen = settings
        .parse("tcp.address", address)
        .unwrap_or(CLIENT_LISTEN);
    let membership = cluster::membership(settings, client_listen, overrides);
    let close_grace = settings.parse("message_bus.close_grace", value::duration);
    let stop_timeout = settings.parse("sharding.shutdown_join_timeout", value::duration);
    let letters_max = settings.parse("sharding.inbox_capacity", |text| bounded(text, 1..=1 << 20));
    let other_addresses = [
        ("http", "127.0.0.1:3000"),
        ("quic", "127.0.0.1:8080"),
        ("websocket", "127.0.0.1:8092"),
    ]
    .map(|(section, default)| {
        let given = settings.get(&format!("{section}.address"));
        (
            section,
            given.map_or_else(|| default.to_owned(), |setting| setting.value.clone()),
        )
    });
    Config {
        path,
        client_listen: membership.client_listen,
        replica_listen: membership.replica_listen,
        clustered: membership.clustered,
        cluster_name: membership.name,
        replica: membership.replica,
        nodes: membership.nodes,
        shards: shards(settings, overrides),
        limits: limits(settings),
        timing: timing(settings),
        letters_max: letters_max.map_or(1024, |count| usize::try_from(count).expect("bounded")),
        close_grace: close_grace.unwrap_or(Duration::from_secs(2)),
        stop_timeout: stop_timeout.unwrap_or(Duration::from_secs(10)),
        encryption: encryption_key(settings),
        log: log_filter(settings, log),
        other_addresses: other_addresses.into(),
    }
}

/// The key of messages at rest, if they are to be encrypted.
fn encryption_key(settings: &mut Settings) -> Option<EncryptionKey> {
    let enabled = settings.parse("encryption.enabled", value::boolean) == Some(true);
    let key = settings.parse("encryption.key", |text| match text.trim() {
        // What published configurations have where nothing is encrypted.
        "" if !enabled => Ok(None),
        text => encryption::parse(text).map(Some),
    });
    if enabled && settings.get("encryption.key").is_none() {
        let problem = "encryption.enabled needs encryption.key: 32 bytes in base64";
        settings.problems.push(problem.into());
    }
    key.flatten().filter(|_| enabled)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim().replace("localhost:", "127.0.0.1:");
    text.parse()
        .map_err(|_| format!("is no address such as \"127.0.0.1:8090\": {text:?}"))
}

fn bounded(text: &str, bounds: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = value::number(text)?;
    if bounds.contains(&number) {
        return Ok(number);
    }
    Err(format!(
        "is not within {} and {}: {number}",
        bounds.start(),
        bounds.end()
    ))
}

/// The number of shards.
fn shards(settings: &mut Settings, overrides: &Overrides) -> u16 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut pinned = false;
    let count = settings.parse("sharding.cpu_allocation", |text| {
        let text = text.trim();
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (value::number(from)?, value::number(to)?);
            pinned = true;
            return to
                .checked_sub(from)
                .ok_or_else(|| "is no range of cores".into());
        }
        pinned = text.starts_with("numa:");
        if text == "all" || pinned {
            Ok(cores as u64)
        } else {
            value::number(text)
        }
    });
    if pinned {
        settings
            .warnings
            .push("sharding.cpu_allocation: shards are counted by it, not pinned to cores".into());
    }
    let count = overrides
        .shards
        .map(u64::from)
        .or(count)
        .unwrap_or(cores as u64);
    if !(1..=SHARDS_MAX).contains(&count) {
        settings
            .problems
            .push(format!("{count} shards are not within 1 and {SHARDS_MAX}"));
        return 1;
    }
    u16::try_from(count).expect("at most SHARDS_MAX")
}

fn limits(settings: &mut Settings) -> Limits {
    let mut limits = Limits::default();
    let mut set = |name: &str, limit: &mut usize, parse: &dyn Fn(&str) -> Result<u64, String>| {
        if let Some(value) = settings.parse(name, parse) {
            *limit = usize::try_from(value).expect("bounded below the address space");
        }
    };
    let frame = |text: &str| match value::size(text)? {
        size @ 4096..=0x1000_0000 => Ok(size),
        size => Err(format!("is not within 4 KiB and 256 MiB: {size} B")),
    };
    set(
        "message_bus.max_message_size",
        &mut limits.frame_size_max,
        &frame,
    );
    let connections = |text: &str| bounded(text, 1..=1_000_000);
    set(
        "message_bus.connections_max",
        &mut limits.connections_max,
        &connections,
    );
    set(
        "partition.prepare_queue_depth",
        &mut limits.pipeline_max,
        &|text| bounded(text, 1..=127),
    );
    set(
        "metadata.clients_table_max",
        &mut limits.clients_max,
        &|text| bounded(text, 2..=65_536),
    );
    set(
        "partition.dedup_clients_max",
        &mut limits.producers_max,
        &|text| bounded(text, 1..=65_536),
    );
    set(
        "partition.consumer_offsets_max",
        &mut limits.consumers_max,
        &|text| bounded(text, 1..=262_144),
    );
    set(
        "cluster.repair_chunk_max",
        &mut limits.repair_max,
        &|text| bounded(text, 1..=1024),
    );
    let segment = |text: &str| match value::size(text)? {
        size @ 0x10_0000..=0x4000_0000 => Ok(size),
        size => Err(format!("is not within 1 MiB and 1 GiB: {size} B")),
    };
    if let Some(size) = settings.parse("system.segment.size", segment) {
        limits.segment_size = size;
    }
    let factor = |text: &str| bounded(text, 0..=1_000_000);
    if let Some(factor) = settings.parse("data_maintenance.messages.patience_factor", factor) {
        limits.patience_factor = factor;
    }
    limits
}

/// A duration on the 10 ms grid of the timers.
fn on_grid(text: &str) -> Result<Duration, String> {
    const GRID: Duration = Duration::from_millis(10);
    let duration = value::duration(text)?;
    if duration.is_zero() {
        return Err("cannot be switched off".into());
    }
    let ticks = duration.as_millis() / GRID.as_millis();
    let ticks = u32::try_from(ticks).map_err(|_| "is too long".to_owned())?;
    Ok(GRID * ticks.max(1))
}

fn timing(settings: &mut Settings) -> Timing {
    let mut timing = Timing::default();
    let mut set = |name: &str, time: &mut Duration| {
        if let Some(duration) = settings.parse(name, on_grid) {
            *time = duration;
        }
    };
    set("cluster.commit_broadcast_interval", &mut timing.heartbeat);
    set("cluster.heartbeat_timeout", &mut timing.suspect);
    set(
        "cluster.view_change_retransmit_interval",
        &mut timing.view_change_retry,
    );
    set(
        "cluster.view_change_status_timeout",
        &mut timing.view_change,
    );
    set("cluster.repair_retry_interval", &mut timing.repair_retry);
    set("message_bus.reconnect_period", &mut timing.redial);
    set("message_saver.interval", &mut timing.flush);
    set(
        "consumer_group.rebalancing_timeout",
        &mut timing.rebalancing,
    );
    set("heartbeat.interval", &mut timing.client_heartbeat);
    set("data_maintenance.messages.interval", &mut timing.retention);
    set("data_maintenance.messages.patience", &mut timing.patience);
    let scrub = |text: &str| match value::duration(text)? {
        Duration::ZERO => Ok(Duration::ZERO),
        _ => on_grid(text),
    };
    if let Some(scrub) = settings.parse("partition.scrub_interval", scrub) {
        timing.scrub = scrub;
    }
    if settings.parse("heartbeat.enabled", value::boolean) == Some(false) {
        timing.client_heartbeat = Duration::ZERO;
    }
    let cleaner = "data_maintenance.messages.cleaner_enabled";
    if settings.parse(cleaner, value::boolean) == Some(false) {
        timing.retention = Duration::ZERO;
    }
    let mut four_times = |name: &str, long: Duration, other: &str, short: Duration| {
        if long < short * 4 {
            settings.problems.push(format!(
                "cluster.{name} ({long:?}) must be at least 4 times cluster.{other} ({short:?})"
            ));
        }
    };
    let (suspect, heartbeat) = (timing.suspect, timing.heartbeat);
    four_times(
        "heartbeat_timeout",
        suspect,
        "commit_broadcast_interval",
        heartbeat,
    );
    let (whole, retry) = (timing.view_change, timing.view_change_retry);
    four_times(
        "view_change_status_timeout",
        whole,
        "view_change_retransmit_interval",
        retry,
    );
    timing
}

/// `RUST_LOG` wins over the configured level.
fn log_filter(settings: &mut Settings, log: Option<&str>) -> Targets {
    let parse = |text: &str| {
        let text = if text.trim() == "none" {
            "off"
        } else {
            text.trim()
        };
        text.parse::<Targets>()
            .map_err(|_| "is no filter such as \"info\"".to_owned())
    };
    let configured = settings.parse("logging.level", parse);
    match log.filter(|log| !log.is_empty()).map(parse) {
        Some(Ok(filter)) => filter,
        Some(Err(what)) => {
            settings.problems.push(format!("RUST_LOG {what}"));
            Targets::default()
        }
        None => configured.unwrap_or_else(|| "info".parse().expect("a level")),
    }
}

#[cfg(test)]
mod tests;
