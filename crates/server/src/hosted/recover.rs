//! How a group comes up: its records are read back, what is known to be committed is applied, and
//! it speaks once its view is durable.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use base::{Bytes, Op, View};
use consensus::{Group, GroupConfig, Recovered};
use platform::Level;
use wire::{HEADER_SIZE, replica::PrepareHeader};

use super::{Hosted, State};
use crate::{
    Observation,
    core::{Core, Notice},
};

/// Headers kept while records go by.
const HEADERS_KEPT: usize = 256;

/// What recovery has found so far.
pub(super) struct Recovery {
    /// The view of a group that has never been here before.
    first_view: View,
    /// Highest commit that any record carries: committed for certain.
    commit: Op,
    /// The newest headers.
    headers: VecDeque<PrepareHeader>,
    /// Frames after what has been applied.
    suffix: VecDeque<Bytes>,
    cut_bytes: u64,
}

impl Recovery {
    pub(super) const fn new(first_view: View) -> Self {
        Self {
            first_view,
            commit: Op(0),
            headers: VecDeque::new(),
            suffix: VecDeque::new(),
            cut_bytes: 0,
        }
    }
}

impl Hosted {
    pub(super) fn on_record(&mut self, prepare: Bytes, core: &mut Core) {
        let header = PrepareHeader::decode(&prepare).expect("the journal verifies records");
        let State::Recovering(recovery) = &mut self.state else {
            unreachable!("records come during recovery only")
        };
        self.timestamp = self.timestamp.max(header.timestamp);
        recovery.headers.push_back(header);
        if recovery.headers.len() > HEADERS_KEPT {
            recovery.headers.pop_front();
        }
        recovery.commit = recovery.commit.max(header.commit);
        recovery.suffix.push_back(prepare.clone());
        if let Some(partition) = &mut self.partition {
            partition.on_append(&header, &prepare[HEADER_SIZE..]);
        }
        self.pending.push_back(prepare);
        self.apply_recovered(core);
    }

    /// Applies what is known to be committed.
    fn apply_recovered(&mut self, core: &mut Core) {
        loop {
            let State::Recovering(recovery) = &mut self.state else {
                return;
            };
            let commit = recovery.commit;
            let committed = |frame: &Bytes| {
                PrepareHeader::decode(frame).is_ok_and(|header| header.op <= commit)
            };
            if !recovery.suffix.front().is_some_and(committed) {
                return;
            }
            let prepare = recovery.suffix.pop_front().expect("looked at");
            self.commit(prepare, core);
        }
    }

    pub(super) fn on_recovered(&mut self, head: Op, cut_bytes: u64, core: &mut Core) {
        let State::Recovering(mut recovery) =
            ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("recovery ends once")
        };
        recovery.cut_bytes = cut_bytes;
        base::invariant_eq!(
            recovery.headers.back().map_or(Op(0), |header| header.op),
            head
        );
        let known = core.durable_views.contains_key(&self.id);
        let first_view = recovery.first_view;
        self.state = State::Founding(recovery);
        if known {
            self.start(true, core);
        } else {
            // Durable before the group speaks for the first time, so that after a restart it
            // is known that it may have spoken.
            core.views.put(self.id, first_view, first_view);
        }
    }

    /// The first view of a new group is durable.
    pub(super) fn found(&mut self, core: &mut Core) {
        self.start(false, core);
    }

    fn start(&mut self, restarted: bool, core: &mut Core) {
        let State::Founding(recovery) = ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("a group starts once")
        };
        let (view, log_view) = core.durable_views[&self.id];
        // Persisted logs lose nothing that was acknowledged; others may, if the power failed.
        let trusted = self.persisted || !core.power_lost || !restarted;
        if recovery.cut_bytes > 0 {
            let (id, bytes) = (self.id, recovery.cut_bytes);
            let line = alloc::format!("group {id}: cut a torn tail of {bytes} bytes");
            core.log(Level::Warn, line);
        }
        let limits = &core.config.limits;
        let timing = &core.config.timing;
        let config = GroupConfig {
            group: self.id,
            cluster: core.config.cluster,
            replica: core.config.replica,
            replica_count: u8::try_from(core.config.nodes.len()).expect("at most seven nodes"),
            pipeline_max: limits.pipeline_max,
            repair_max: limits.repair_max as u64,
            timing: consensus::Timing {
                view_change_retry: timing.view_change_retry,
                view_change: timing.view_change,
                repair_retry: timing.repair_retry,
            },
        };
        let commit = recovery
            .headers
            .back()
            .map_or(Op(0), |head| Op(head.op.0 - recovery.suffix.len() as u64));
        let recovered = Recovered {
            view,
            log_view,
            commit,
            headers: recovery.headers.into_iter().collect(),
            suffix: recovery.suffix.into_iter().collect(),
            trusted,
            promised_until: core.links.promised().into_iter().max().unwrap_or_default(),
        };
        let now = core.now.monotonic;
        let prng = core.fork(self.id.0);
        let mut effects = Vec::new();
        let group = if restarted {
            Group::recover(config, recovered, now, prng, &mut effects)
        } else {
            Group::create(config, view, now, prng, &mut effects)
        };
        let (group_id, op, checksum) = (self.id, group.op(), group.checksum());
        let commit = group.commit();
        core.observe(|| Observation::Recovered {
            group: group_id,
            op,
            checksum,
            commit,
            trusted,
        });
        self.state = State::Running(Box::new(group));
        core.leaving.remove(&self.id);
        core.active.insert(self.id);
        core.timed.insert(self.id);
        core.urgent = true;
        self.carry_out(effects, core);
        for peer in core.links.silent() {
            self.on_silent(peer, core);
        }
        core.notices.push(Notice::Settled(self.id));
    }
}
