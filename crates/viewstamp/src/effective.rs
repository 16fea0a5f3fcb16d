//! The configuration in force, with the ports that were really bound, for people and tools.

use std::net::SocketAddr;

use toml::{Table, Value};

use crate::config::Config;

/// Where it is written, in the data directory.
pub(crate) const FILE: &str = "runtime/current_config.toml";

/// The file's text. `clients` is the bound address.
pub(crate) fn render(config: &Config, clients: SocketAddr) -> String {
    let mut table = Table::new();
    let path = config.path.display().to_string();
    table.insert("path".into(), path.into());
    let shards = Value::from(i64::from(config.shards));
    section(&mut table, "sharding", [("cpu_allocation", shards)]);
    let address = Value::from(clients.to_string());
    section(
        &mut table,
        "tcp",
        [("enabled", true.into()), ("address", address)],
    );
    for (name, address) in &config.other_addresses {
        let address = Value::from(address.as_str());
        section(
            &mut table,
            name,
            [("enabled", false.into()), ("address", address)],
        );
    }
    section(
        &mut table,
        "message_bus",
        [
            ("max_message_size", bytes(config.limits.frame_size_max)),
            ("connections_max", count(config.limits.connections_max)),
            ("reconnect_period", millis(config.timing.redial)),
            ("close_grace", millis(config.close_grace)),
        ],
    );
    table.insert("cluster".into(), cluster(config, clients).into());
    format!(
        "# Written at every start, once all ports are bound; changes here have no effect.\n{table}"
    )
}

fn cluster(config: &Config, clients: SocketAddr) -> Table {
    let nodes: Vec<Value> = (0..)
        .zip(&config.nodes)
        .map(|(id, node)| {
            let own = id == config.replica.0;
            let port = if own {
                clients.port()
            } else {
                node.client_port
            };
            let mut ports = Table::new();
            ports.insert("tcp".into(), i64::from(port).into());
            ports.insert("tcp_replica".into(), i64::from(node.replica.port()).into());
            let mut entry = Table::new();
            entry.insert("name".into(), node.name.as_str().into());
            entry.insert("ip".into(), node.replica.ip().to_string().into());
            entry.insert(
                "advertised_address".into(),
                node.client_host.as_str().into(),
            );
            entry.insert("replica_id".into(), i64::from(id).into());
            entry.insert("ports".into(), ports.into());
            entry.into()
        })
        .collect();
    let mut table = Table::new();
    table.insert("enabled".into(), config.clustered.into());
    table.insert("name".into(), config.cluster_name.as_str().into());
    for (name, time) in [
        ("heartbeat_timeout", config.timing.suspect),
        ("commit_broadcast_interval", config.timing.heartbeat),
        (
            "view_change_retransmit_interval",
            config.timing.view_change_retry,
        ),
        ("view_change_status_timeout", config.timing.view_change),
        ("repair_retry_interval", config.timing.repair_retry),
    ] {
        table.insert(name.into(), millis(time));
    }
    table.insert("repair_chunk_max".into(), count(config.limits.repair_max));
    table.insert("nodes".into(), nodes.into());
    table
}

fn section<const N: usize>(table: &mut Table, name: &str, fields: [(&str, Value); N]) {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    table.insert(name.into(), fields.collect::<Table>().into());
}

fn millis(time: std::time::Duration) -> Value {
    format!("{}ms", time.as_millis()).into()
}

fn bytes(size: usize) -> Value {
    format!("{size} B").into()
}

fn count(count: usize) -> Value {
    i64::try_from(count).expect("counts are bounded").into()
}

#[cfg(test)]
mod tests {
    use std::{fs, iter};

    use super::*;
    use crate::config::{self, Overrides};

    #[test]
    fn it_tells_the_bound_port_and_can_be_read_back_as_a_configuration() {
        let config = config::load(None, iter::empty(), &Overrides::default())
            .unwrap()
            .config;
        let text = render(&config, "127.0.0.1:4711".parse().unwrap());
        let table: Table = text.parse().unwrap();
        assert_eq!(table["tcp"]["address"].as_str(), Some("127.0.0.1:4711"));
        for section in ["http", "quic", "websocket"] {
            assert_eq!(table[section]["enabled"].as_bool(), Some(false));
        }
        assert_eq!(
            table["cluster"]["nodes"][0]["ports"]["tcp"].as_integer(),
            Some(4711)
        );
        let path = std::env::temp_dir().join(format!("viewstamp-{}.toml", std::process::id()));
        fs::write(&path, text).unwrap();
        let again = config::load(Some(&path), iter::empty(), &Overrides::default()).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(again.config.client_listen.port(), 4711);
        assert_eq!(
            again.config.limits.frame_size_max,
            config.limits.frame_size_max
        );
        assert_eq!(again.config.timing.suspect, config.timing.suspect);
    }
}
