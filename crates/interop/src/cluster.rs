//! Three server processes, driven through `ci/cluster` as a person would.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use tokio::net::TcpListener;

use crate::{Recorder, process};

/// The doors have the ports of the nodes, at another address of this machine.
const DOORS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// One node, as `ci/cluster` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its replica id.
    pub id: u8,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Its process.
    pub process: u32,
}

/// A running cluster; stopped when dropped.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    nodes: Vec<Node>,
    /// Where clients are told to connect to, if not to the nodes.
    advertised: Option<IpAddr>,
}

impl Cluster {
    /// Starts three nodes with their data below `directory`.
    ///
    /// # Panics
    /// If they do not serve.
    #[must_use]
    pub fn up(directory: &Path) -> Self {
        let mut cluster = Self::new(directory);
        cluster.launch();
        cluster
    }

    /// Starts three nodes whose clients are sent through doors of `recorder`, and returns the
    /// addresses of these too.
    ///
    /// # Panics
    /// If they do not serve.
    pub async fn up_behind_doors(directory: &Path, recorder: &Recorder) -> (Self, Vec<SocketAddr>) {
        let mut cluster = Self::new(directory);
        cluster.advertised = Some(DOORS);
        let cluster = tokio::task::spawn_blocking(move || {
            cluster.launch();
            cluster
        });
        let cluster = cluster.await.expect("the cluster is up");
        let mut doors = Vec::new();
        for node in &cluster.nodes {
            let address = SocketAddr::new(DOORS, node.address.port());
            let door = TcpListener::bind(address).await.expect("a free address");
            recorder.open(door, node.address);
            doors.push(address);
        }
        (cluster, doors)
    }

    fn new(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            nodes: Vec::new(),
            advertised: None,
        }
    }

    fn launch(&mut self) {
        let output = self.run(&["up"], None);
        self.nodes = output.lines().map(parse_node).collect();
        assert_eq!(self.nodes.len(), 3, "three nodes are up: {output}");
    }

    /// The nodes by replica id.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// SIGKILL.
    pub fn kill(&self, id: u8) {
        self.run(&["kill"], Some(id));
    }

    /// Starts a killed node again on its data.
    pub fn start(&mut self, id: u8) {
        let output = self.run(&["start"], Some(id));
        self.nodes[usize::from(id)] = parse_node(output.trim());
    }

    fn run(&self, verb: &[&str], id: Option<u8>) -> String {
        let mut command = Command::new(process::root().join("ci").join("cluster"));
        command.args(verb).arg(&self.directory);
        command.args(id.map(|id| id.to_string()));
        command.env("VIEWSTAMP_SERVER", process::server_binary());
        if let Some(address) = self.advertised {
            command.env("VIEWSTAMP_ADVERTISED", address.to_string());
        }
        let output = command.output().expect("ci/cluster runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "ci/cluster {verb:?} {id:?}: {errors}"
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let script = process::root().join("ci").join("cluster");
        let _ = Command::new(script)
            .arg("down")
            .arg(&self.directory)
            .status();
    }
}

/// `node 0 client 127.0.0.1:21000 pid 4711`
fn parse_node(line: &str) -> Node {
    let words: Vec<&str> = line.split(' ').collect();
    let ["node", id, "client", address, "pid", process] = words[..] else {
        panic!("not a node: {line}");
    };
    Node {
        id: id.parse().expect("a replica id"),
        address: address.parse().expect("an address"),
        process: process.parse().expect("a process id"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_from_its_line() {
        let node = parse_node("node 2 client 127.0.0.1:21000 pid 4711");
        let address = SocketAddr::from(([127, 0, 0, 1], 21000));
        assert_eq!(
            node,
            Node {
                id: 2,
                address,
                process: 4711
            }
        );
    }
}
