//! Sizes of quorums and what a set of acknowledgements commits.

use base::Op;

/// Quorum sizes of a group; any replication quorum meets any view-change quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorums {
    /// Replicas that must hold an op before it is committed.
    pub replication: u8,
    /// Replicas that must leave a view before the next begins.
    pub view_change: u8,
}

impl Quorums {
    /// The quorums of `replica_count` replicas: a majority both ways if odd; if even, half for
    /// replication and one more than half for view changes.
    ///
    /// # Panics
    /// Unless `replica_count` is 1 to 7.
    #[must_use]
    pub fn new(replica_count: u8) -> Self {
        base::invariant!((1..=7).contains(&replica_count));
        let view_change = replica_count / 2 + 1;
        let replication = replica_count - view_change + 1;
        let short = |quorum: u8| if quorum > 1 { quorum - 1 } else { quorum };
        Self {
            replication: if base::planted::bug(3) {
                short(replication)
            } else {
                replication
            },
            view_change: if base::planted::bug(4) {
                short(view_change)
            } else {
                view_change
            },
        }
    }

    /// The last op that a replication quorum holds, given how far each replica does.
    ///
    /// # Panics
    /// If there are fewer replicas than the quorum.
    #[must_use]
    pub fn committed(&self, acked: &[Op]) -> Op {
        let mut sorted = [Op(0); 8];
        let sorted = &mut sorted[..acked.len()];
        sorted.copy_from_slice(acked);
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        sorted[usize::from(self.replication) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_of_different_kind_meet() {
        for count in 1..=7u8 {
            let quorums = Quorums::new(count);
            assert!(quorums.replication + quorums.view_change > count);
            assert!(
                quorums.view_change * 2 > count,
                "two views never begin apart"
            );
            assert!(quorums.replication >= 1);
        }
    }

    #[test]
    fn committed_is_held_by_a_quorum_and_nothing_later_is() {
        // All acknowledgement vectors of up to five replicas with ops 0 to 3.
        for count in 1..=5u32 {
            let quorums = Quorums::new(u8::try_from(count).expect("small"));
            for code in 0..4u32.pow(count) {
                let mut acked = [Op(0); 5];
                let acked = &mut acked[..count as usize];
                for (place, op) in (0..count).zip(acked.iter_mut()) {
                    *op = Op(u64::from(code / 4u32.pow(place) % 4));
                }
                let committed = quorums.committed(acked);
                let holders = |op: Op| acked.iter().filter(|acked| **acked >= op).count();
                assert!(holders(committed) >= usize::from(quorums.replication));
                assert!(holders(committed.next()) < usize::from(quorums.replication));
            }
        }
    }
}
