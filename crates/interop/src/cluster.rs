//! Three server processes, driven through `ci/cluster` as a person would.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::process;

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
}

impl Cluster {
    /// Starts three nodes with their data below `directory`.
    ///
    /// # Panics
    /// If they do not serve.
    #[must_use]
    pub fn up(directory: &Path) -> Self {
        let mut cluster = Self {
            directory: directory.into(),
            nodes: Vec::new(),
        };
        let output = cluster.run(&["up"], None);
        cluster.nodes = output.lines().map(parse_node).collect();
        assert_eq!(cluster.nodes.len(), 3, "three nodes are up: {output}");
        cluster
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
