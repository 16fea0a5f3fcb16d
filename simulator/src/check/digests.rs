//! The state machine has one state per op: every replica's digest after an op is the same.
//!
//! Source: VR Revisited §2 (deterministic service code).

use std::collections::BTreeMap;

use base::{GroupId, Op};

use super::{Verdict, ensure};

const CHECK: &str = "digests";

/// See the module.
#[derive(Default)]
pub(crate) struct Digests {
    known: BTreeMap<(GroupId, Op), (u8, u128)>,
}

impl Digests {
    /// `node` has this state after `op`; 0 is "not told".
    pub(crate) fn on_digest(
        &mut self,
        time: u64,
        node: u8,
        (group, op): (GroupId, Op),
        digest: u128,
    ) -> Verdict {
        if digest == 0 {
            return Ok(());
        }
        let &mut (first, known) = self.known.entry((group, op)).or_insert((node, digest));
        ensure(known == digest, CHECK, time, || {
            format!(
                "after {group} op {op} replica {node} has state {digest:032x}, \
                 replica {first} {known:032x}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_states_pass_and_others_fail() {
        let mut checker = Digests::default();
        let at = |op| (GroupId::METADATA, Op(op));
        assert_eq!(checker.on_digest(0, 0, at(1), 5), Ok(()));
        assert_eq!(checker.on_digest(0, 1, at(1), 5), Ok(()));
        assert_eq!(checker.on_digest(0, 1, at(2), 6), Ok(()));
        assert_eq!(checker.on_digest(0, 2, at(2), 0), Ok(()));
        assert!(checker.on_digest(0, 2, at(2), 7).is_err());
    }
}
