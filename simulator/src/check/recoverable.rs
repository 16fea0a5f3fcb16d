//! What a cluster must be able to do: a pure function of which nodes are up, whom they reach and
//! what they hold. Liveness is demanded by it, and nothing else excuses a cluster that stands
//! still.
//!
//! A cluster must serve as soon as it has a *core*: nodes enough for a view change that run, reach
//! each other both ways, trust their logs and have between them every record, while nobody else
//! speaks to only some of them. What else may serve too is luck, and not demanded.
//!
//! Source: VR Revisited §4 and §8 (quorums); `design.md` §5 and §8; the liveness phase of
//! TigerBeetle's simulator and its core.

/// A node as far as the question goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its process runs and is not stopped.
    pub(crate) runs: bool,
    /// Nodes that hear it, as bits; its own does not matter.
    pub(crate) heard_by: u64,
    /// Its logs may lack what it has acknowledged.
    pub(crate) in_doubt: bool,
    /// Records that others may have to repair it from are damaged.
    pub(crate) damaged: bool,
    /// Its disk has no room.
    pub(crate) full: bool,
}

/// What must work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Must {
    /// Nothing need work: no set of nodes is a core.
    Nothing,
    /// Reads.
    Read,
    /// Reads and writes.
    Write,
}

/// Nodes that a view change needs, of so many.
pub(crate) const fn view_change_quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What a cluster of these nodes must be able to do.
pub(crate) fn must(nodes: &[Node]) -> Must {
    assert!(nodes.len() <= 16, "every set is tried");
    let sets = 1_u64..1 << nodes.len();
    sets.map(|set| of_core(nodes, set))
        .max()
        .unwrap_or(Must::Nothing)
}

/// What `set` must be able to do, if it is a core.
fn of_core(nodes: &[Node], set: u64) -> Must {
    let has = |node: usize| set >> node & 1 == 1;
    let members = || nodes.iter().enumerate().filter(|(node, _)| has(*node));
    let enough = members().count() >= view_change_quorum(nodes.len());
    let able = |(index, node): (usize, &Node)| {
        let others = set & !(1 << index);
        node.runs && !node.in_doubt && node.heard_by & others == others
    };
    // Damage is repaired from whole copies; where nobody is sure to be whole, nothing is certain.
    let whole = members().any(|(_, node)| !node.damaged);
    let one_core = nodes.iter().enumerate().all(|(index, node)| {
        let heard = members().filter(|(member, _)| node.heard_by >> member & 1 == 1);
        let hears = members().filter(|(_, member)| member.heard_by >> index & 1 == 1);
        let (heard, hears) = (heard.count(), hears.count());
        let all = members().count();
        has(index) || !node.runs || heard + hears == 0 || (heard == all && hears == all)
    });
    if !(enough && whole && one_core && members().all(able)) {
        return Must::Nothing;
    }
    // Any member may lead, and a leader without room refuses writes.
    if members().any(|(_, node)| node.full) {
        return Must::Read;
    }
    Must::Write
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Node = Node {
        runs: true,
        heard_by: u64::MAX,
        in_doubt: false,
        damaged: false,
        full: false,
    };
    const DOWN: Node = Node {
        runs: false,
        ..FINE
    };
    const DOUBT: Node = Node {
        in_doubt: true,
        ..FINE
    };
    const FULL: Node = Node { full: true, ..FINE };
    const DAMAGED: Node = Node {
        damaged: true,
        ..FINE
    };

    const fn heard(heard_by: u64) -> Node {
        Node { heard_by, ..FINE }
    }

    /// One line per case: the nodes, and what they must do.
    #[test]
    fn a_table_of_clusters() {
        let table: &[(&[Node], Must)] = &[
            (&[FINE], Must::Write),
            (&[DOWN], Must::Nothing),
            (&[FULL], Must::Read),
            (&[DAMAGED], Must::Nothing),
            (&[FINE, FINE], Must::Write),
            (&[FINE, DOWN], Must::Nothing),
            (&[FINE, FINE, FINE], Must::Write),
            (&[FINE, FINE, DOWN], Must::Write),
            (&[FINE, DOWN, DOWN], Must::Nothing),
            (&[FINE, FINE, DOUBT], Must::Write),
            (&[FINE, DOUBT, DOUBT], Must::Nothing),
            (&[FINE, FULL, FINE], Must::Write),
            (&[FINE, FULL, DOWN], Must::Read),
            (&[FINE, DAMAGED, DOWN], Must::Write),
            (&[DAMAGED, DAMAGED, DOWN], Must::Nothing),
            (&[FINE, FINE, DOWN, DOWN], Must::Nothing),
            (&[FINE, FINE, FINE, DOWN], Must::Write),
            (&[FINE, FINE, FINE, DOWN, DOUBT], Must::Write),
            // Node 2 is cut off, both ways.
            (&[heard(0b011), heard(0b011), heard(0b100)], Must::Write),
            // It is heard and hears nobody; it hears and is not heard.
            (&[heard(0b011), heard(0b011), heard(0b111)], Must::Nothing),
            (&[heard(0b111), heard(0b111), heard(0b100)], Must::Nothing),
            // A line: 0 and 2 do not hear each other.
            (&[heard(0b011), heard(0b111), heard(0b110)], Must::Nothing),
            // Everyone is alone.
            (&[heard(0b001), heard(0b010), heard(0b100)], Must::Nothing),
        ];
        for (nodes, expected) in table {
            assert_eq!(must(nodes), *expected, "{nodes:?}");
        }
    }

    #[test]
    fn a_core_of_what_a_view_change_needs_is_enough() {
        for nodes in 1..=7 {
            let quorum = view_change_quorum(nodes);
            let cluster = |up: usize| -> Vec<Node> {
                let node = |index| if index < up { FINE } else { DOWN };
                (0..nodes).map(node).collect()
            };
            assert_eq!(must(&cluster(quorum)), Must::Write);
            assert_eq!(must(&cluster(quorum - 1)), Must::Nothing);
        }
    }
}
