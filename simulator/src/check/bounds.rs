//! Queues are bounded: no shard holds more than its limits say, whatever clients and peers do.
//!
//! Source: `design.md` §9 and `faults.md` §4 (bounded queues and buffers); TigerBeetle allocates
//! statically and so cannot break this.

use server::{Gauges, Limits};

use super::{Verdict, ensure};

const CHECK: &str = "bounds";

/// Holds a shard's queues against the limits; `links` is how many other nodes there are.
pub(crate) fn check(time: u64, node: u8, gauges: Gauges, limits: &Limits, links: usize) -> Verdict {
    // A queue that is empty takes one frame of any size.
    let client_queue = limits.client_queue_bytes_max.max(limits.frame_size_max);
    let replica_queue = limits.replica_queue_bytes_max.max(limits.frame_size_max);
    // A connection has one request at a time; what peers pass on is one of theirs.
    let tickets = limits.connections_max * (links + 1);
    for (what, value, most) in [
        ("parked requests", gauges.parked, limits.parked_max),
        ("tickets", gauges.tickets, tickets),
        ("connections", gauges.connections, limits.connections_max),
        (
            "bytes queued for a client",
            gauges.client_queue_bytes_max,
            client_queue,
        ),
        (
            "bytes queued for a replica",
            gauges.replica_queue_bytes_max,
            replica_queue,
        ),
    ] {
        ensure(value <= most, CHECK, time, || {
            format!("a shard of node {node} has {value} {what}, at most {most} are allowed")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_passes_and_fuller_fails() {
        let limits = Limits {
            parked_max: 4,
            connections_max: 3,
            client_queue_bytes_max: 100,
            replica_queue_bytes_max: 100,
            frame_size_max: 50,
            ..Limits::default()
        };
        let full = Gauges {
            parked: 4,
            tickets: 9,
            connections: 3,
            client_queue_bytes_max: 100,
            replica_queue_bytes_max: 100,
        };
        let fails = |gauges| check(0, 0, gauges, &limits, 2).is_err();
        assert_eq!(check(0, 0, full, &limits, 2), Ok(()));
        assert!(fails(Gauges { parked: 5, ..full }));
        assert!(fails(Gauges {
            tickets: 10,
            ..full
        }));
        assert!(fails(Gauges {
            connections: 4,
            ..full
        }));
        assert!(fails(Gauges {
            client_queue_bytes_max: 101,
            ..full
        }));
        assert!(fails(Gauges {
            replica_queue_bytes_max: 101,
            ..full
        }));
    }
}
