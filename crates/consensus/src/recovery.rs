//! How a group begins: empty, or from what its disk holds.

use alloc::vec::Vec;

use base::{Bytes, Instant, Op, Prng, View};
use wire::replica::PrepareHeader;

use crate::{
    group::{Effect, Group, GroupConfig, Status},
    log::Log,
};

/// What recovery found on disk.
#[derive(Debug)]
pub struct Recovered {
    /// The durable view; the group's first view if there is none.
    pub view: View,
    /// The durable view of the log.
    pub log_view: View,
    /// What is known to be committed: the highest commit that any record carries.
    pub commit: Op,
    /// The newest headers, ascending, ending at the head.
    pub headers: Vec<PrepareHeader>,
    /// The frames after `commit`.
    pub suffix: Vec<Bytes>,
    /// Whether the log holds all that this replica may have acknowledged.
    pub trusted: bool,
    /// Until when read leases may hold that rest on what was said before the restart.
    pub promised_until: Instant,
}

impl Group {
    /// A group with an empty log whose first view is `view`: all replicas derive it from the
    /// committed op that created the group, so nothing needs to be durable.
    #[must_use]
    pub fn create(
        config: GroupConfig,
        view: View,
        now: Instant,
        prng: Prng,
        out: &mut Vec<Effect>,
    ) -> Self {
        let recovered = Recovered {
            view,
            log_view: view,
            commit: Op(0),
            headers: Vec::new(),
            suffix: Vec::new(),
            trusted: true,
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
        let log = Log::new(
            recovered.commit,
            recovered.headers,
            recovered.suffix,
            window,
        );
        let mut group = Self::new(config, log, prng);
        group.view = recovered.view;
        group.log_view = recovered.log_view;
        group.view_durable = recovered.view;
        group.log_view_durable = recovered.log_view;
        group.promise_all(recovered.promised_until);
        group.trusted = recovered.trusted || config.replica_count == 1;
        out.push(Effect::RoleChanged);
        if group.log_view < group.view {
            group.status = Status::ViewChange;
            group.arm_view_change(now);
            group.speak(now, out);
        } else if group.is_primary() {
            group.barrier = group.log.op();
            group.acked[usize::from(config.replica.0)] = group.durable;
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
