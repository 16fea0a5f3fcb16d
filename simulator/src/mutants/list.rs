//! All planted bugs: the 36 of the table of mutations that the project started from, and those
//! that were real here once.
//!
//! Number, class and budget are the table's; the profile is where the bug shows soonest. A bug
//! whose literal form cannot exist in this design says what stands for it and why.

use super::Mutant;

const fn bug(
    number: u32,
    class: char,
    budget: u64,
    profile: &'static str,
    what: &'static str,
) -> Mutant {
    Mutant {
        number,
        what,
        class,
        budget,
        profile,
        adapted: None,
    }
}

const fn adapted(mutant: Mutant, why: &'static str) -> Mutant {
    Mutant {
        adapted: Some(why),
        ..mutant
    }
}

/// The table's, in its order.
#[rustfmt::skip]
pub(crate) const TABLE: [Mutant; 36] = [
    bug(1, 'S', 500, "succession", "prepare_ok before the write completes"),
    bug(2, 'S', 500, "crash", "prepare_ok of a persisted topic without a sync"),
    bug(3, 'S', 200, "swarm", "replication quorum one short"),
    bug(4, 'S', 500, "partition", "view-change quorum one short"),
    bug(5, 'S', 500, "partition", "own votes counted twice"),
    adapted(
        bug(6, 'S', 500, "succession", "what a vote holds counts as acknowledged in its view"),
        "A prepare_ok of another view does not arrive here: it would have to be late by as many \
         views as there are replicas, on a link that silence closes. Counting what the votes of \
         the view change hold as acknowledged in the new view is the same mistake.",
    ),
    bug(7, 'S', 1_000, "crash", "view not durable before do_view_change"),
    bug(8, 'S', 5_000, "crash", "log_view not durable before prepare_ok"),
    bug(9, 'S', 1_000, "swarm", "do_view_change carries the latest view as log_view"),
    bug(10, 'S', 1_000, "succession", "new log picked by highest op only"),
    bug(11, 'S', 2_000, "succession", "a damaged entry counts as a nack"),
    bug(12, 'S', 500, "succession", "one nack suffices"),
    bug(13, 'L', 500, "succession", "nothing is ever cut: no nack counts"),
    bug(14, 'L', 2_000, "disk", "a known header counts as a present body"),
    bug(15, 'S', 100, "succession", "commit without a quorum, on the word of a heartbeat"),
    bug(16, 'S', 100, "swarm", "reply before the commit"),
    bug(17, 'S', 300, "partition", "reads without a lease and without a check of the view"),
    adapted(
        bug(18, 'S', 500, "succession", "a backup that has promised a later view takes a prepare"),
        "A prepare of an older view does not reach a replica that is normal in a later one: \
         links deliver in order and the link of a silent primary is closed. Taking and \
         acknowledging one after the promise of a later view breaks the same promise.",
    ),
    bug(19, 'S', 2_000, "partition", "a later view truncates to the commit"),
    bug(20, 'R', 5_000, "swarm", "a checkpoint counts before its data is durable"),
    bug(21, 'S', 500, "swarm", "the client table is missing from the snapshot"),
    bug(22, 'S', 1_000, "swarm", "the producer table changes at the append, not at the commit"),
    bug(23, 'S', 200, "swarm", "a repeated request in the pipeline is executed again"),
    bug(24, 'S', 200, "disk", "checksum of a body not verified"),
    bug(25, 'S', 2_000, "disk", "op and group of a record not compared on read"),
    bug(26, 'S', 1_000, "disk", "damage in the middle ends the log"),
    bug(27, 'R', 1_000, "crash", "view store compacted without syncs"),
    adapted(
        bug(28, 'R', 5_000, "swarm", "log cut off before the checkpoint is durable"),
        "There is no ring to wrap round: the log is a list of segment files. What a ring would \
         overwrite is here removed.",
    ),
    bug(29, 'L', 300, "succession", "a primary that hears nobody never abdicates"),
    bug(30, 'L', 500, "succession", "repair always asks the same peer"),
    bug(31, 'L', 1_000, "succession", "view-change timer without backoff and jitter"),
    bug(32, 'S', 1_000, "disk", "a replica in doubt votes at once"),
    bug(33, 'D', 50, "swarm", "the state machine uses the local clock"),
    bug(34, 'S', 300, "partition", "consumer offset applied out of the log"),
    adapted(
        bug(35, 'S', 500, "swarm", "log cut off beyond what the checkpoint covers"),
        "It is the metadata log that is cut; bug 53 is the same of a partition's.",
    ),
    bug(36, 'S', 500, "disk", "a failed sync is taken for good and acknowledged"),
];

/// Bugs of our own: each was in the product for some hours, until a test or a seed found it.
#[rustfmt::skip]
pub(crate) const OWN: [Mutant; 23] = [
    bug(37, 'S', 500, "succession", "log_view stored before the log that belongs to it is durable"),
    bug(38, 'S', 1_000, "succession", "a log in doubt wins over a trusted quorum"),
    bug(39, 'S', 1_000, "succession", "a new primary repairs its log from any voter"),
    bug(40, 'L', 1_000, "succession", "a heartbeat withdraws its sender's wish for a view"),
    bug(41, 'R', 1_000, "swarm", "a deleted group is founded anew after a restart"),
    bug(42, 'S', 1_000, "swarm", "a request is judged before all commits of the turn are applied"),
    bug(43, 'S', 2_000, "succession", "a log in doubt is trusted before what it lacked is durable"),
    bug(44, 'L', 1_000, "succession", "the end of an install withdraws a wish for a view"),
    bug(45, 'S', 500, "swarm", "rights on a deleted stream are left to the next with its number"),
    bug(46, 'S', 500, "swarm", "a personal access token opens after its end"),
    bug(47, 'S', 500, "swarm", "a password verified against an old one replaces the new one"),
    bug(48, 'S', 500, "swarm", "a partition that was polled and not committed moves at once"),
    bug(49, 'S', 500, "swarm", "a member that leaves keeps its partitions"),
    bug(50, 'S', 500, "swarm", "a partition on its way goes to whoever takes the slot of its heir"),
    bug(51, 'S', 500, "swarm", "a trim passes the slowest consumer"),
    bug(52, 'S', 500, "swarm", "a purge that has been is done again after a change of primaries"),
    bug(53, 'R', 1_000, "solo", "files of a trimmed log go before a checkpoint covers it"),
    bug(54, 'S', 100, "swarm", "every encrypted body has the same salt"),
    bug(57, 'S', 500, "swarm", "taking all rights from a user leaves them"),
    bug(58, 'S', 500, "client", "the session that makes room is the one heard of last"),
    bug(69, 'S', 500, "swarm", "an update of a topic forgets the expiry that it does not name"),
    bug(70, 'S', 500, "swarm", "the number of a deleted user is given again"),
    bug(71, 'S', 500, "partition", "metadata are read without asking the primary how new they are"),
];

/// Those that die within some ten seconds of a processor: CI hunts them on every run.
pub(crate) const FAST: [u32; 22] = [
    1, 2, 3, 4, 5, 8, 9, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 33, 34, 48, 49,
];

/// Every bug.
pub(crate) fn all() -> impl Iterator<Item = &'static Mutant> {
    TABLE.iter().chain(&OWN)
}
