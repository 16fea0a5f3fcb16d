//! Who belongs to the cluster, and the rules that the roster must keep.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use base::ReplicaIndex;
use server::NodeAddress;

use super::{Overrides, settings::Settings, value};

/// Nodes of one cluster.
const NODES_MAX: usize = 7;

/// This node and the others.
pub(super) struct Membership {
    pub(super) clustered: bool,
    pub(super) name: String,
    pub(super) replica: ReplicaIndex,
    pub(super) nodes: Vec<NodeAddress>,
    pub(super) client_listen: SocketAddr,
    pub(super) replica_listen: Option<SocketAddr>,
}

pub(super) fn membership(
    settings: &mut Settings,
    client_listen: SocketAddr,
    overrides: &Overrides,
) -> Membership {
    if settings.parse("cluster.enabled", value::boolean) == Some(true) {
        return cluster(settings, client_listen, overrides);
    }
    if overrides.replica_id.is_some_and(|id| id != 0) {
        let problem = "--replica-id is for clusters: set cluster.enabled (IGGY_CLUSTER_ENABLED)";
        settings.problems.push(problem.into());
    }
    single(settings, client_listen)
}

/// A node of its own.
fn single(settings: &mut Settings, client_listen: SocketAddr) -> Membership {
    let advertised = settings.parse("node.advertised_address", host);
    let client_host = advertised.unwrap_or_else(|| {
        if client_listen.ip().is_unspecified() {
            settings.warnings.push(format!(
                "clients connect to {client_listen}, but are told 127.0.0.1 as the node's \
                 address; set node.advertised_address (IGGY_NODE_ADVERTISED_ADDRESS)"
            ));
            return Ipv4Addr::LOCALHOST.to_string();
        }
        client_listen.ip().to_string()
    });
    let node = NodeAddress {
        name: "iggy-node".into(),
        client_host,
        client_port: client_listen.port(),
        // Nobody dials it.
        replica: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    };
    Membership {
        clustered: false,
        name: "single-node".into(),
        replica: ReplicaIndex(0),
        nodes: vec![node],
        client_listen,
        replica_listen: None,
    }
}

/// One of several nodes.
fn cluster(
    settings: &mut Settings,
    client_listen: SocketAddr,
    overrides: &Overrides,
) -> Membership {
    let name = settings
        .get("cluster.name")
        .map_or("iggy-cluster", |setting| &setting.value);
    let name = name.trim().to_owned();
    if name.is_empty() {
        settings.problems.push("cluster.name is blank".into());
    }
    let count = settings.count("cluster.nodes");
    if !(1..=NODES_MAX).contains(&count) {
        settings.problems.push(format!(
            "cluster.nodes has {count} entries; a cluster has 1 to {NODES_MAX} nodes"
        ));
    }
    let mut nodes: Vec<(u8, NodeAddress)> = (0..count.min(NODES_MAX))
        .filter_map(|entry| node(settings, entry))
        .collect();
    nodes.sort_by_key(|(id, _)| *id);
    check_roster(settings, &nodes, count);
    let own = own_entry(settings, &nodes, overrides);
    let (replica, own) = own.map_or((0, None), |(id, node)| (id, Some(node)));
    Membership {
        clustered: true,
        name,
        replica: ReplicaIndex(replica),
        client_listen: own.map_or(client_listen, |node| {
            SocketAddr::new(client_listen.ip(), node.client_port)
        }),
        replica_listen: own.map(|node| node.replica),
        nodes: nodes.iter().map(|(_, node)| node.clone()).collect(),
    }
}

/// One entry of the roster; none if something in it is missing or wrong, which is then a problem.
fn node(settings: &mut Settings, entry: usize) -> Option<(u8, NodeAddress)> {
    let key = |field: &str| format!("cluster.nodes.{entry}.{field}");
    let missing: Vec<String> = ["name", "ip", "replica_id", "ports.tcp", "ports.tcp_replica"]
        .map(key)
        .into_iter()
        .filter(|key| settings.get(key).is_none())
        .collect();
    for key in &missing {
        settings.problems.push(format!("{key} is missing"));
    }
    if !missing.is_empty() {
        return None;
    }
    let name = settings.parse(&key("name"), |text| match text.trim() {
        "" => Err("is blank".to_owned()),
        name => Ok(name.to_owned()),
    });
    let ip = settings.parse(&key("ip"), |text| {
        text.trim()
            .parse::<IpAddr>()
            .map_err(|_| format!("is no literal IP address: {text:?}"))
    });
    let id = settings.parse(&key("replica_id"), |text| {
        let id = super::bounded(text, 0..=NODES_MAX as u64 - 1)?;
        Ok(u8::try_from(id).expect("bounded"))
    });
    let port = |text: &str| {
        let port = super::bounded(text, 1..=u64::from(u16::MAX))?;
        Ok(u16::try_from(port).expect("bounded"))
    };
    let client_port = settings.parse(&key("ports.tcp"), port);
    let replica_port = settings.parse(&key("ports.tcp_replica"), port);
    let advertised = settings.parse(&key("advertised_address"), host);
    let (name, ip, id) = (name?, ip?, id?);
    if ip.is_unspecified() {
        let key = key("ip");
        settings.problems.push(format!(
            "{key} is {ip}: other nodes cannot connect to a wildcard"
        ));
        return None;
    }
    let node = NodeAddress {
        name,
        client_host: advertised.unwrap_or_else(|| ip.to_string()),
        client_port: client_port?,
        replica: SocketAddr::new(ip, replica_port?),
    };
    Some((id, node))
}

/// A host that clients can be told: an IP address or a name, never a wildcard.
fn host(text: &str) -> Result<String, String> {
    let text = text.trim();
    if let Ok(ip) = text.parse::<IpAddr>() {
        return if ip.is_unspecified() {
            Err(format!(
                "is a wildcard ({text}): clients cannot connect to it"
            ))
        } else {
            Ok(text.to_owned())
        };
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.len() <= 253 && text.split('.').all(label) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "is neither an IP address nor a host name (without port): {text:?}"
    ))
}

fn check_roster(settings: &mut Settings, nodes: &[(u8, NodeAddress)], count: usize) {
    let mut names = BTreeSet::new();
    let mut addresses = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for (id, node) in nodes {
        if usize::from(*id) >= count || !ids.insert(*id) {
            settings.problems.push(format!(
                "cluster.nodes: replica_id {id} of {}; {count} nodes have the ids 0 to {}, each \
                 once",
                node.name,
                count - 1
            ));
        }
        if !names.insert(&node.name) {
            settings
                .problems
                .push(format!("cluster.nodes: the name {} is taken", node.name));
        }
        let client = SocketAddr::new(node.replica.ip(), node.client_port);
        for address in [client, node.replica] {
            if !addresses.insert(address) {
                settings
                    .problems
                    .push(format!("cluster.nodes: {address} is used twice"));
            }
        }
    }
}

fn own_entry<'a>(
    settings: &mut Settings,
    nodes: &'a [(u8, NodeAddress)],
    overrides: &Overrides,
) -> Option<(u8, &'a NodeAddress)> {
    let Some(id) = overrides.replica_id else {
        let problem = "a node of a cluster needs --replica-id N: its replica_id in cluster.nodes";
        settings.problems.push(problem.into());
        return None;
    };
    let own = nodes.iter().find(|(candidate, _)| *candidate == id);
    if own.is_none() {
        settings
            .problems
            .push(format!("--replica-id {id} is not in cluster.nodes"));
    }
    own.map(|(id, node)| (*id, node))
}
