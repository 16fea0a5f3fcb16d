//! How a group comes up: its records are read back, what is known to be committed is applied, and
//! it speaks once its view is durable.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use base::{Bytes, Op, View};
use consensus::{Entry, Group, GroupConfig, Recovered, Trust};
use platform::{Fatal, Level};
use storage::Views;
use wire::{HEADER_SIZE, replica::PrepareHeader};

use super::{
    Hosted, State,
    checkpoint::{Origin, Restored},
};
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
    /// The state that the records continue.
    origin: Origin,
    /// Whether the log has another prepare at the op of the origin.
    differs: bool,
    /// The next record after the origin, if none is missing.
    next: Option<Op>,
    /// Whether the records do not continue the origin: none is applied.
    detached: bool,
    /// The op before the log's first, and its identity; 0 if unknown.
    base: (Op, u128),
    /// Whether the state is ahead of the log, which is to be filled from the others'.
    behind: bool,
    /// Highest commit that any record carries: committed for certain.
    commit: Op,
    /// The newest headers.
    headers: VecDeque<PrepareHeader>,
    /// What comes after what has been applied.
    suffix: VecDeque<Entry>,
    cut_bytes: u64,
    /// The last op, once all has been read.
    ended: Option<Op>,
}

impl Recovery {
    pub(super) fn new(first_view: View) -> Self {
        Self {
            first_view,
            origin: Origin::default(),
            differs: false,
            next: None,
            detached: false,
            base: (Op(0), 0),
            behind: false,
            commit: Op(0),
            headers: VecDeque::new(),
            suffix: VecDeque::new(),
            cut_bytes: 0,
            ended: None,
        }
    }

    /// The records to come continue this state.
    pub(super) const fn begin_from(&mut self, origin: Origin) {
        self.origin = origin;
    }

    /// The op before the log's first.
    pub(super) const fn base(&self) -> Op {
        self.base.0
    }

    /// The op before the first record that is not applied.
    fn before_suffix(&self) -> Op {
        let empty = if self.behind {
            self.base.0
        } else {
            self.origin.op
        };
        let head = self.headers.back().map_or(empty, |head| head.op);
        Op(head.0 - self.suffix.len() as u64)
    }

    /// The log is empty, after the origin.
    fn forget_records(&mut self) {
        self.headers = self.origin.header.into_iter().collect();
        self.suffix.clear();
        self.commit = self.origin.op;
        self.detached = false;
    }

    /// The state has all that the log holds, and more: nothing of it is to be applied.
    fn fall_behind(&mut self) {
        self.behind = true;
        self.suffix.clear();
        self.detached = false;
        self.commit = self.commit.min(self.before_suffix());
    }

    /// The log is empty, after its base, and the state is ahead of it.
    fn restart_after(&mut self, base: (Op, u128)) {
        self.base = base;
        self.headers.clear();
        self.commit = base.0;
        self.fall_behind();
    }
}

const fn is_missing(entry: &Entry) -> bool {
    matches!(entry, Entry::Missing)
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
        let origin = recovery.origin;
        if header.op <= origin.op {
            // The state has it.
            recovery.differs |= header.op == origin.op && header.checksum != origin.identity();
            return;
        }
        let begun = recovery.next.is_some();
        let next = recovery.next.unwrap_or(origin.op.next());
        if !begun && self.journal.base().0 > origin.op {
            recovery.detached = true;
        } else {
            for _ in next.0..header.op.0 {
                recovery.suffix.push_back(Entry::Missing);
                self.behind_gap = true;
            }
        }
        recovery.next = Some(header.op.next());
        recovery.suffix.push_back(Entry::Frame(prepare.clone()));
        if recovery.detached || self.behind_gap {
            return;
        }
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
            if recovery.detached || recovery.differs {
                return;
            }
            let commit = recovery.commit;
            let committed = |entry: &mut Entry| match entry {
                Entry::Frame(frame) => {
                    PrepareHeader::decode(frame).is_ok_and(|header| header.op <= commit)
                }
                Entry::Missing => false,
            };
            let Some(Entry::Frame(prepare)) = recovery.suffix.pop_front_if(committed) else {
                return;
            };
            self.commit(prepare, core);
        }
    }

    pub(super) fn on_recovered(
        &mut self,
        (head, base): (Op, (Op, u128)),
        cut_bytes: u64,
        core: &mut Core,
    ) {
        let State::Recovering(mut recovery) =
            ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("recovery ends once")
        };
        recovery.cut_bytes = cut_bytes;
        recovery.base = base;
        let origin = recovery.origin;
        let known_base = base.0 == origin.op && base.1 != 0;
        recovery.differs |= known_base && base.1 != origin.identity();
        recovery.ended = Some(head);
        self.state = State::Recovering(recovery);
        if self.lacks_what_it_had(head, core) {
            return self.doubt_log(head, core);
        }
        self.end_recovery(core);
    }

    /// Whether the disk has lost, without a trace in what is left, what was durable on it: the
    /// whole log of a group that is on record, or the end of one that a checkpoint goes beyond.
    fn lacks_what_it_had(&self, head: Op, core: &Core) -> bool {
        let State::Recovering(recovery) = &self.state else {
            return false;
        };
        let trusted =
            |views: &Views| *views != crate::core::DELETED && views.trust == Trust::Trusted;
        if !core.durable_views.get(&self.id).is_some_and(trusted) {
            // Nobody counts on it, or it was never here.
            return false;
        }
        let origin = recovery.origin;
        let short = head < origin.op || recovery.differs;
        // A checkpoint that came from a peer stands before the log is begun anew or filled. That
        // of the metadata is begun where all that was acknowledged is behind it.
        let is_explained = if self.partition.is_some() {
            self.keeping.explains(head)
        } else {
            self.keeping.is_from_peer()
        };
        base::sometimes!(
            short && is_explained,
            "transfer: a start finds the checkpoint before its log"
        );
        (self.journal.was_absent() && origin.op == Op(0)) || (short && !is_explained)
    }

    /// It is made durable that this log may have held more, before anything is made of it.
    fn doubt_log(&mut self, head: Op, core: &mut Core) {
        base::sometimes!("server: a log has less than was durable in it, and is in doubt");
        let id = self.id;
        let line = alloc::format!(
            "group {id}: the log ends with op {head}, before what this disk had made durable"
        );
        core.log(Level::Error, line);
        core.observe(|| Observation::Doubt {
            group: id,
            op: head,
        });
        core.doubtful = true;
        let trust = Trust::Doubt;
        let views = Views {
            trust,
            ..core.durable_views[&id]
        };
        core.views.put(id, views);
    }

    /// All has been read, and what is to be thought of it is durable; or it waits for something
    /// else to be durable.
    pub(super) fn on_recovering_durable(&mut self, core: &mut Core) {
        match &self.state {
            State::Recovering(recovery) if recovery.ended.is_some() => self.end_recovery(core),
            _ => self.cut_damaged(core),
        }
    }

    fn end_recovery(&mut self, core: &mut Core) {
        let State::Recovering(recovery) = ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("recovery ends once")
        };
        let head = recovery.ended.expect("all has been read");
        let origin = recovery.origin;
        if recovery.base.0 > origin.op {
            return self.strand(recovery, core);
        }
        if head < origin.op || recovery.differs {
            return self.part_from_log(recovery, None, core);
        }
        self.begin_founding(recovery, head, core);
    }

    /// The log ends before the checkpoint, or is another one: they do not belong together. A peer
    /// whose checkpoint it is may have told after which op its own log begins.
    fn part_from_log(&mut self, mut recovery: Recovery, told: Option<(Op, u128)>, core: &mut Core) {
        let (id, origin) = (self.id, recovery.origin);
        if self.partition.is_some() && (told.is_some() || recovery.base() > Op(0)) {
            return self.part_from_trimmed_log(recovery, told, core);
        }
        if let Some(partition) = &mut self.partition {
            // Its log is what consumers are served from: the state follows from it.
            base::sometimes!("checkpoint: a partition's log does not reach it, and is read anew");
            let line = alloc::format!(
                "group {id}: the log does not reach the checkpoint of op {}",
                origin.op
            );
            core.log(Level::Error, line);
            self.keeping.forsake();
            **partition = partition.emptied();
            let digest = partition.digest();
            core.observe(|| Observation::Restored {
                group: id,
                op: Op(0),
                identity: 0,
                digest,
            });
            self.pending.clear();
            self.behind_gap = false;
            self.state = State::Recovering(Recovery::new(recovery.first_view));
            return self.journal.reopen(&mut core.out);
        }
        base::sometimes!("checkpoint: the log does not reach it, and begins after it");
        self.pending.clear();
        self.behind_gap = false;
        recovery.forget_records();
        let (op, identity) = (origin.op, origin.identity());
        self.journal
            .reset(op, identity, &mut core.files, &mut core.out);
        self.state = State::Resetting(recovery);
    }

    /// The same for a partition whose log does not begin at op 1: its state cannot be built anew.
    /// The checkpoint stays, and the log is filled from the others' up to there: from its end, or,
    /// if it is another one, from its beginning.
    fn part_from_trimmed_log(
        &mut self,
        mut recovery: Recovery,
        told: Option<(Op, u128)>,
        core: &mut Core,
    ) {
        let (id, origin) = (self.id, recovery.origin);
        let head = recovery
            .headers
            .back()
            .map_or(recovery.base(), |head| head.op);
        if core.config.nodes.len() == 1 {
            return self.close_damaged(head.next(), core);
        }
        let line = alloc::format!("group {id}: the log is filled up to op {}", origin.op);
        core.log(Level::Error, line);
        self.pending.clear();
        self.behind_gap = false;
        let whole = recovery.base.1 != 0 || !recovery.headers.is_empty();
        if head < origin.op && whole && head >= told.unwrap_or_default().0 {
            base::sometimes!("transfer: a trimmed log ends before its checkpoint");
            recovery.fall_behind();
            return self.begin_founding(recovery, head, core);
        }
        let base = told.unwrap_or(recovery.base);
        if base.1 == 0 {
            // Not even its beginning is known: as if there were no checkpoint.
            self.keeping.forsake();
            if let Some(partition) = &mut self.partition {
                **partition = partition.emptied();
            }
            recovery.origin = Origin::default();
            return self.strand(recovery, core);
        }
        base::sometimes!("transfer: a trimmed log is given up and filled anew");
        recovery.restart_after(base);
        self.journal
            .reset(base.0, base.1, &mut core.files, &mut core.out);
        self.state = State::Resetting(recovery);
    }

    /// The log is empty after the checkpoint, durably.
    pub(super) fn on_reset(&mut self, core: &mut Core) {
        if !matches!(self.state, State::Resetting(_)) {
            return; // A group that runs has gone on already.
        }
        let State::Resetting(recovery) = ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("just looked at")
        };
        let head = recovery.before_suffix();
        self.begin_founding(recovery, head, core);
    }

    /// What the log begins after is in no checkpoint here.
    fn strand(&mut self, recovery: Recovery, core: &mut Core) {
        let (id, base) = (self.id, recovery.base());
        let line = alloc::format!("group {id}: no checkpoint for a log that begins after {base}");
        if core.config.nodes.len() == 1 {
            return core.halt(Fatal::Damage, line);
        }
        base::sometimes!("transfer: a log whose checkpoints are lost asks for another");
        core.log(Level::Error, line);
        self.state = State::Stranded(recovery);
        self.seek_checkpoint(core);
        // The shard goes on without this group.
        core.notices.push(Notice::Settled(id));
    }

    /// A stranded log has a state again.
    pub(super) fn rescue(
        &mut self,
        (header, restored): (PrepareHeader, Restored),
        told: (Op, u128),
        core: &mut Core,
    ) {
        let State::Stranded(recovery) = ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("only a stranded group is rescued")
        };
        let op = header.op;
        let head = recovery
            .headers
            .back()
            .map_or(recovery.base(), |head| head.op);
        self.state = State::Recovering(recovery);
        self.begin_from(header, restored, core);
        let State::Recovering(recovery) = &mut self.state else {
            unreachable!("just put there")
        };
        let header_of = |index: usize| match recovery.suffix.get(index) {
            Some(Entry::Frame(frame)) => PrepareHeader::decode(frame).ok(),
            _ => None,
        };
        let covered = op.0.saturating_sub(recovery.before_suffix().0);
        let covered = usize::try_from(covered).unwrap_or(usize::MAX);
        let own = match covered.checked_sub(1) {
            None => Some(recovery.base.1),
            // What is missing is known by what comes after it.
            Some(index) => header_of(index)
                .map(|own| own.checksum)
                .or_else(|| header_of(index + 1).map(|next| next.parent)),
        };
        if own != Some(header.checksum) {
            let State::Recovering(recovery) =
                ::core::mem::replace(&mut self.state, State::Removing)
            else {
                unreachable!("just put there")
            };
            let told = Some(told).filter(|_| self.partition.is_some());
            return self.part_from_log(recovery, told, core);
        }
        base::sometimes!("transfer: a stranded log goes on from a checkpoint");
        recovery.suffix.drain(..covered);
        recovery.detached = false;
        let whole = recovery.suffix.iter().map_while(|entry| match entry {
            Entry::Frame(frame) => Some(frame.clone()),
            Entry::Missing => None,
        });
        self.pending = whole.collect();
        self.behind_gap = self.pending.len() < recovery.suffix.len();
        self.reset_appended();
        self.apply_recovered(core);
        let State::Recovering(recovery) = ::core::mem::replace(&mut self.state, State::Removing)
        else {
            unreachable!("applying changes no state")
        };
        self.begin_founding(recovery, head, core);
    }

    fn begin_founding(&mut self, mut recovery: Recovery, head: Op, core: &mut Core) {
        let origin = recovery.origin;
        let begins_after = |first: &PrepareHeader| {
            let missing = recovery.suffix.front().is_some_and(is_missing);
            first.op == origin.op.next() || (first.op > origin.op && missing)
        };
        if !recovery.behind && recovery.headers.front().is_none_or(begins_after) {
            // The log begins after the checkpoint: its header comes from there.
            if let Some(header) = origin.header {
                recovery.headers.push_front(header);
            }
        }
        let empty = if recovery.behind {
            recovery.base()
        } else {
            Op(0)
        };
        base::invariant_eq!(
            recovery.headers.back().map_or(empty, |header| header.op),
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
            let trust = core.trust_of_new(self.id);
            core.doubtful |= trust != Trust::Trusted;
            let views = Views {
                view: first_view,
                log_view: first_view,
                trust,
            };
            core.views.put(self.id, views);
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
        let Views {
            view,
            log_view,
            trust: recorded,
        } = core.durable_views[&self.id];
        // Persisted logs lose nothing that was acknowledged; others may, if the power failed.
        let whole = self.persisted || !core.power_lost || !restarted;
        let ends = recovery.before_suffix();
        let whole = whole && (!recovery.behind || self.keeping.explains(ends));
        let trust = match recorded {
            Trust::Trusted if !whole => Trust::Doubt,
            recorded => recorded,
        };
        core.doubtful |= trust != Trust::Trusted;
        if core.config.nodes.len() == 1 && recorded == Trust::Doubt {
            // Nobody can tell what it has lost.
            return self.close_damaged(recovery.before_suffix().next(), core);
        }
        if core.config.nodes.len() == 1
            && let Some(index) = recovery.suffix.iter().position(is_missing)
        {
            let missing = Op(recovery.before_suffix().0 + 1 + index as u64);
            return self.close_damaged(missing, core);
        }
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
        let commit = recovery.before_suffix();
        let head = recovery.headers.back();
        let empty = if recovery.behind {
            recovery.base
        } else {
            (Op(0), 0)
        };
        let head = head.map_or(empty, |head| (head.op, head.checksum));
        let recovered = Recovered {
            view,
            log_view,
            commit,
            committed: recovery.commit.max(commit),
            head,
            headers: recovery.headers.into_iter().collect(),
            suffix: recovery.suffix.into_iter().collect(),
            trust,
            promised_until: core.links.promised().into_iter().max().unwrap_or_default(),
        };
        let now = core.now.monotonic;
        let prng = core.fork(self.id.0);
        let mut effects = Vec::new();
        // A log without its view store may hold something.
        let begins = !restarted && head.0 == Op(0);
        let group = if !begins {
            Group::recover(config, recovered, now, prng, &mut effects)
        } else {
            Group::create(config, view, trust, now, prng, &mut effects)
        };
        let (group_id, op, checksum) = (self.id, group.op(), group.checksum());
        let commit = group.commit();
        core.observe(|| Observation::Recovered {
            group: group_id,
            op,
            checksum,
            commit,
            trusted: trust == Trust::Trusted,
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
        self.drop_leftover(core);
    }
}
