//! How a group begins: empty, or from what its disk holds.

use alloc::vec::Vec;

use base::{Instant, Op, Prng, View};
use wire::replica::{PrepareHeader, Trust};

use crate::{
    group::{Effect, Group, GroupConfig, Status},
    log::{Entry, Log, Start},
};

/// What recovery found on disk.
#[derive(Debug)]
pub struct Recovered {
    /// The durable view; the group's first view if there is none.
    pub view: View,
    /// The durable view of the log.
    pub log_view: View,
    /// The last op applied: by a checkpoint, or from the records before the first missing one.
    pub commit: Op,
    /// What is known to be committed, at least `commit`: the highest commit that any record
    /// carries.
    pub committed: Op,
    /// The head and its identity.
    pub head: (Op, u128),
    /// The newest headers, ascending; those of damaged ops are left out.
    pub headers: Vec<PrepareHeader>,
    /// One entry for each op after `commit`.
    pub suffix: Vec<Entry>,
    /// What the log is worth as a witness of what this replica has acknowledged.
    pub trust: Trust,
    /// Until when read leases may hold that rest on what was said before the restart.
    pub promised_until: Instant,
}

impl Group {
    /// A group with an empty log whose first view is `view`: all replicas derive it from the
    /// committed op that created the group, so nothing needs to be durable. It is trusted if
    /// this replica has certainly never had the group, blank if its disk would not know.
    #[must_use]
    pub fn create(
        config: GroupConfig,
        view: View,
        trust: Trust,
        now: Instant,
        prng: Prng,
        out: &mut Vec<Effect>,
    ) -> Self {
        let recovered = Recovered {
            view,
            log_view: view,
            commit: Op(0),
            committed: Op(0),
            head: (Op(0), 0),
            headers: Vec::new(),
            suffix: Vec::new(),
            trust,
            promised_until: Instant::ZERO,
        };
        Self::start(config, recovered, false, now, prng, out)
    }

    /// A group as its disk holds it. A backup goes on where it was; a primary of more than one
    /// replica gives its view up, since it cannot know what happened meanwhile; a replica that
    /// stopped between two views votes again.
    #[must_use]
    pub fn recover(
        config: GroupConfig,
        recovered: Recovered,
        now: Instant,
        prng: Prng,
        out: &mut Vec<Effect>,
    ) -> Self {
        Self::start(config, recovered, true, now, prng, out)
    }

    fn start(
        config: GroupConfig,
        recovered: Recovered,
        restarted: bool,
        now: Instant,
        prng: Prng,
        out: &mut Vec<Effect>,
    ) -> Self {
        base::invariant!(recovered.log_view <= recovered.view);
        let window = config
            .pipeline_max
            .max(usize::try_from(config.repair_max).unwrap_or(64));
        let log = Log::new(Start {
            commit: recovered.commit,
            committed: recovered.committed,
            head: recovered.head,
            headers: recovered.headers,
            suffix: recovered.suffix,
            window,
        });
        let mut group = Self::new(config, log, prng);
        group.view = recovered.view;
        group.log_view = recovered.log_view;
        group.view_durable = recovered.view;
        group.log_view_durable = recovered.log_view;
        group.promise_all(recovered.promised_until);
        group.trust = match config.replica_count {
            // Alone there is nobody to ask.
            1 => Trust::Trusted,
            _ => recovered.trust,
        };
        if base::planted::bug(32) {
            // Planted: a log in doubt counts like any other.
            group.trust = Trust::Trusted;
        }
        group.trust_durable = group.trust;
        if group.is_blank() {
            group.rejoin.nonce = u128::from(group.prng.next_u64()) << 64 | 1;
        }
        out.push(Effect::RoleChanged);
        if group.log_view < group.view || group.is_blank() {
            group.status = Status::ViewChange;
            group.arm_view_change(now);
            group.speak(now, out);
        } else if group.is_primary() {
            group.barrier = group.log.op();
            group.acked[usize::from(config.replica.0)] = group.durable();
            if restarted && config.replica_count > 1 {
                group.abdicate(now, out);
            } else {
                group.try_commit(out);
            }
        }
        group.invariants();
        group
    }
}
