//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// What `--help` says after the flags.
pub(crate) const HELP: &str = r#"Examples:
  viewstamp-server
      One node on 127.0.0.1:8090 with its data in ./local_data. The first start makes the user
      "iggy" with a random password and prints it once.
  IGGY_ROOT_USERNAME=iggy IGGY_ROOT_PASSWORD=secret viewstamp-server
      The same, with a password of your choice.
  IGGY_TCP_ADDRESS=127.0.0.1:0 IGGY_PATH=/tmp/data viewstamp-server
      Any free port; read it from /tmp/data/runtime/current_config.toml.
  viewstamp-server --config cluster.toml --replica-id 1
      One node of a cluster; every node has the same file and its own --replica-id.

Configuration, the later wins:
  1. defaults
  2. the TOML file of --config or IGGY_CONFIG_PATH
  3. the environment: IGGY_ and the path in the file in capitals, with _ for . and the index for
     an array: tcp.address is IGGY_TCP_ADDRESS, cluster.nodes[0].ports.tcp is
     IGGY_CLUSTER_NODES_0_PORTS_TCP
  4. flags
  Settings of published Iggy servers are known. One that only tunes, or switches off what is off
  anyway, is accepted with a warning; one that asks for what this server cannot do yet, or that
  nobody knows, refuses to start.

Settings that matter most:
  path (IGGY_PATH, IGGY_SYSTEM_PATH)      data directory                     local_data
  tcp.address (IGGY_TCP_ADDRESS)          where clients connect              127.0.0.1:8090
  cluster.enabled, .name, .nodes[]        the roster; a node has name, ip, replica_id,
                                          ports.tcp, ports.tcp_replica, advertised_address
  sharding.cpu_allocation                 shards: all, a number or a range   all
                                          (the same on all nodes of a cluster)
  encryption.enabled, encryption.key      messages encrypted at rest with    false
                                          AES-256-GCM; 32 bytes in base64,
                                          the same on all nodes
  logging.level (or RUST_LOG)             what is logged                     info
  IGGY_ROOT_USERNAME, IGGY_ROOT_PASSWORD  the root user, at the first start  environment only

Exit codes:
  0    stopped in good order (SIGTERM, SIGINT; a second signal ends at once with 130)
  2    the command line makes no sense
  3    the configuration is refused
  4    another process uses the data directory
  5    the data directory cannot be used
  10   the disk failed where going on could lose data
  11   the data directory belongs to another cluster, replica or number of shards
  12   a file that must be whole is damaged
  13   an address could not be bound
  20   a shard has panicked: a bug
  21   io_uring is not available, or has failed
  22   the shards did not stop in time"#;

/// A replicated message streaming server that speaks the Iggy protocol.
#[derive(Debug, Parser)]
#[command(name = "viewstamp-server", version, after_help = HELP)]
pub(crate) struct Flags {
    /// Read this TOML file [default: that of IGGY_CONFIG_PATH].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// This node's replica_id in cluster.nodes; needed in a cluster.
    #[arg(long, value_name = "N")]
    pub(crate) replica_id: Option<u8>,
    /// Wipe this node's data first.
    #[arg(short, long)]
    pub(crate) fresh: bool,
    /// The first start makes root user iggy, password iggy
    #[arg(long)]
    pub(crate) with_default_root_credentials: bool,
    /// Shards of this node, one thread each [default: one per core].
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u16>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn help_teaches_within_100_columns() {
        let help = Flags::command().render_help().to_string();
        for part in [
            "Examples:",
            "Exit codes:",
            "--with-default-root-credentials",
            "-f, --fresh",
        ] {
            assert!(help.contains(part), "{part}");
        }
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
    }
}
