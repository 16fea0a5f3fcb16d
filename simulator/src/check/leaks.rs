//! A node that has stopped leaves nothing behind: no request in flight, no connection, no timer,
//! and no open file but one handle for each that still has a name.
//!
//! The end of the process closes what is open; what this looks for are handles that nobody would
//! ever have closed.
//!
//! Source: the leak check of TigerBeetle's simulator; `faults.md` §4.

use std::collections::BTreeSet;

/// What is left of a node at the end of a clean stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    /// Disk requests in flight.
    pub(crate) requests: usize,
    /// Connections that it has not closed.
    pub(crate) connections: usize,
    /// Shards that ask to be woken.
    pub(crate) timers: usize,
    /// Shard and path of each open file; no path if nothing names it any more.
    pub(crate) files: Vec<(u16, Option<String>)>,
}

/// What is wrong with what is left; none if nothing is.
pub(crate) fn leaked(left: &Left) -> Option<String> {
    let Left {
        requests,
        connections,
        timers,
        ..
    } = *left;
    if requests + connections + timers > 0 {
        return Some(format!(
            "{requests} disk requests, {connections} connections, {timers} timers are left"
        ));
    }
    let mut seen = BTreeSet::new();
    left.files.iter().find_map(|file| match file {
        (shard, None) => Some(format!("shard {shard} keeps a removed file open")),
        (shard, Some(path)) if !seen.insert((*shard, path)) => {
            Some(format!("shard {shard} has {path} open twice"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(files: &[(u16, Option<&str>)]) -> Left {
        let owned = |&(shard, path): &(u16, Option<&str>)| (shard, path.map(String::from));
        Left {
            files: files.iter().map(owned).collect(),
            ..Left::default()
        }
    }

    #[test]
    fn files_that_exist_may_be_open_until_the_process_ends() {
        assert_eq!(leaked(&Left::default()), None);
        let files = [(0, Some("a")), (0, Some("b")), (1, Some("c"))];
        assert_eq!(leaked(&open(&files)), None);
    }

    #[test]
    fn a_second_handle_a_removed_file_and_anything_pending_are_leaks() {
        assert!(leaked(&open(&[(0, Some("a")), (0, Some("a"))])).is_some());
        assert!(leaked(&open(&[(0, None)])).is_some());
        for left in [
            Left {
                requests: 1,
                ..Left::default()
            },
            Left {
                connections: 1,
                ..Left::default()
            },
            Left {
                timers: 1,
                ..Left::default()
            },
        ] {
            assert!(leaked(&left).is_some());
        }
    }
}
