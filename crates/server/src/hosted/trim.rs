//! How a partition's log gets shorter at its beginning: which trims and purges its primary puts
//! into the log, and when the files go, on every replica.
//!
//! ```text
//!   DeleteSegments, or a segment is older or the log larger than the topic retains
//!     ─▶ TrimLog in the log ─▶ applied: no poll sees the messages any more
//!     ─▶ checkpoint ─▶ durable ─▶ the files are removed
//!   PurgeTopic in the metadata ─▶ PurgePartition in the log, if it is not there yet ─▶ the same
//! ```
//!
//! **Invariant:** no file goes before a durable checkpoint knows that its messages are gone: a
//! state that is built anew from the log would miss them.

use base::{Buffer, Op, Timestamp};
use metadata::{PartitionInfo, UNLIMITED};
use partition::{Patience, Retention, Trim, purge_body};
use wire::{ErrorCode, HEADER_SIZE, Operation, Request, RequestHeader, replica::PrepareHeader};

use super::{Hosted, State, Waiter, propose};
use crate::{
    ask::{Ask, NOBODY},
    core::{Core, Notice},
};

/// What a partition owes its log, and how far its files have followed.
#[derive(Debug, Default)]
pub(super) struct Trimming {
    /// How often the metadata says that it is to have been purged.
    pub(super) purges: u64,
    /// For each checkpoint that may be durable: the first op whose messages are served after it.
    firsts: alloc::collections::BTreeMap<Op, Op>,
    /// Of the last op applied.
    pub(super) applied: Option<PrepareHeader>,
    /// Consumers that are waited for without end have filled it.
    is_full: bool,
    /// A consumer that reads on may let something go.
    pub(super) is_held: bool,
    /// Planted bug 52: a new primary purges again.
    pub(super) repeats: bool,
}

impl Trimming {
    pub(super) fn new(info: Option<&PartitionInfo>) -> Self {
        Self {
            purges: info.map_or(0, |info| info.purges),
            ..Self::default()
        }
    }
}

/// What a topic lets one of its partitions retain.
fn retention_of(info: &PartitionInfo, core: &Core) -> Retention {
    let cleans = !core.config.timing.retention.is_zero();
    let bound = |value: u64| (cleans && value != UNLIMITED).then_some(value);
    let options = &info.options;
    let share = |size: u64| {
        let share = size / u64::from(info.partitions_count.max(1));
        share.max(options.segment_size)
    };
    let factor = core.config.limits.patience_factor;
    let age_min = core.config.timing.patience.as_micros();
    Retention {
        age_max: bound(options.message_expiry),
        size_max: bound(options.topic_size_max).map(share),
        patience: match factor {
            0 => Patience::Endless,
            factor => Patience::Limited {
                age_min: u64::try_from(age_min).unwrap_or(u64::MAX),
                factor,
            },
        },
    }
}

impl Hosted {
    /// Whether the state, which a checkpoint brought, is ahead of the log: the ops up to it are in
    /// it, whatever the log says.
    pub(super) fn is_in_state(&self, op: Op) -> bool {
        let partition = self.partition.as_ref();
        partition.is_some_and(|partition| op <= partition.committed().op)
    }

    /// The metadata says how often this partition is to have been purged.
    pub(crate) fn want_purges(&mut self, info: &PartitionInfo, core: &mut Core) {
        self.trimming.purges = self.trimming.purges.max(info.purges);
        core.notices.push(Notice::Upkeep(self.id));
    }

    /// This replica leads from now on.
    pub(super) fn trim_as_primary(&mut self, core: &mut Core) {
        self.trimming.repeats = base::planted::bug(52) && self.trimming.purges > 0;
        core.notices.push(Notice::Upkeep(self.id));
    }

    /// Whether it has been purged so often.
    pub(crate) fn has_purged(&self, purges: u64) -> bool {
        let partition = self.partition.as_ref();
        partition.is_some_and(|partition| partition.committed().purges >= purges)
    }

    /// Whether the log lacks a purge that the metadata asks for.
    pub(super) fn owes_purge(&self) -> bool {
        let partition = self.partition.as_ref();
        partition.is_some_and(|partition| {
            let lacks = partition.appended().purges < self.trimming.purges;
            (lacks || self.trimming.repeats) && self.group().is_some()
        })
    }

    /// Whether the disk holds files of which nothing is served any more.
    fn owes_drop(&self) -> bool {
        let partition = self.partition.as_ref();
        partition.is_some_and(|partition| self.journal.holds_whole_before(partition.first_op()))
    }

    /// Puts into the log what it owes: a purge, or a trim of what the topic no longer retains.
    pub(crate) fn upkeep(&mut self, info: &PartitionInfo, core: &mut Core) {
        let Some(group) = self.group() else { return };
        if !group.is_serving() {
            core.aging.remove(&self.id);
            core.owing.remove(&self.id);
            return;
        }
        let may = group.can_prepare() && !core.is_full();
        if self.owes_purge() {
            if may {
                base::sometimes!("trim: a purge enters a partition's log");
                self.trimming.repeats = false;
                let body = purge_body(self.trimming.purges);
                self.propose_own(Operation::PurgePartition, &body, core);
            }
            if self.owes_purge() {
                core.owing.insert(self.id);
            }
            return;
        }
        core.owing.remove(&self.id);
        let Some(partition) = &self.partition else {
            return;
        };
        let retention = retention_of(info, core);
        let now = core.stamp();
        self.trimming.is_full = partition.is_full(&retention);
        let ages = retention.age_max.is_some() && partition.sealed_segments().next().is_some();
        let trim = partition.expired(&retention, now);
        let over = retention
            .size_max
            .is_some_and(|max| partition.size_bytes() > max);
        self.trimming.is_held = over && trim.is_none();
        if ages {
            core.aging.insert(self.id);
        } else {
            core.aging.remove(&self.id);
        }
        if let Some(trim) = trim
            && may
        {
            base::sometimes!("trim: retention trims a partition");
            base::sometimes!(
                trim.past_consumers,
                "trim: retention passes a slow consumer"
            );
            self.propose_own(Operation::TrimLog, &trim.body(), core);
        }
    }

    /// Whether a send is refused, for consumers hold up what retention would take.
    pub(super) const fn is_topic_full(&self) -> bool {
        self.trimming.is_full
    }

    /// DeleteSegments: the oldest sealed segments, as far as all consumers have read them.
    pub(super) fn propose_delete(&mut self, ask: Ask, core: &mut Core) {
        let partition = self.partition.as_ref().expect("a partition");
        let header = &ask.header;
        let count = match Request::decode(header.operation, header.code, ask.body()) {
            Ok(Request::DeleteSegments(request)) => request.segments_count,
            Ok(_) => return core.answers.push(ask.refuse(ErrorCode::INVALID_COMMAND)),
            Err(error) => return core.answers.push(ask.refuse(error.code())),
        };
        let Some(trim) = partition.oldest_segments(count) else {
            base::sometimes!("trim: no segment may be deleted");
            let reply = partition::Reply {
                op: partition.committed().op,
                result: Ok(alloc::vec::Vec::new()),
            };
            return core.answers.push(propose::frame_reply(&ask, &reply));
        };
        base::sometimes!("trim: segments are deleted on demand");
        let header = RequestHeader {
            operation: Operation::TrimLog,
            ..ask.header
        };
        self.propose_trim(trim, &header, Some(ask), core);
    }

    fn propose_trim(
        &mut self,
        trim: Trim,
        header: &RequestHeader,
        ask: Option<Ask>,
        core: &mut Core,
    ) {
        let user = ask.as_ref().map_or(0, |ask| ask.user);
        let waiter = ask.map(Waiter::Client);
        let mut buffer = Buffer::zeroed(HEADER_SIZE);
        buffer.extend(&trim.body());
        let timestamp = core.stamp();
        self.prepare(buffer.freeze(), header, user, timestamp, waiter, core);
    }

    /// An op that nobody has asked for.
    fn propose_own(&mut self, operation: Operation, body: &[u8], core: &mut Core) {
        let header = RequestHeader {
            size: 0,
            cluster: core.config.cluster,
            client: NOBODY,
            request_checksum: 0,
            timestamp: 0,
            request: 0,
            operation,
            session: 0,
            user: 0,
            code: 0,
        };
        let mut buffer = Buffer::zeroed(HEADER_SIZE);
        buffer.extend(body);
        let timestamp: Timestamp = core.stamp();
        self.prepare(buffer.freeze(), &header, 0, timestamp, None, core);
    }

    /// Whether the op just applied is one after which a checkpoint is to be taken at once, so that
    /// files can go.
    pub(super) fn calls_for_checkpoint(&mut self, operation: Operation, core: &mut Core) -> bool {
        if ![Operation::TrimLog, Operation::PurgePartition].contains(&operation) {
            return false;
        }
        if base::planted::bug(53) {
            // Planted: the files go at once.
            let first = self
                .partition()
                .map_or(Op(0), partition::PartitionState::first_op);
            self.journal
                .drop_before(first, &mut core.files, &mut core.out);
            return false;
        }
        // Whether there is a whole segment to drop may only show once more of the log is written.
        let partition = self.partition.as_ref();
        partition.is_some_and(|partition| self.journal.first_op() < partition.first_op())
    }

    /// A checkpoint of this op has been taken, or taken over.
    pub(super) fn note_first(&mut self, op: Op) {
        if let Some(partition) = &self.partition {
            self.trimming.firsts.insert(op, partition.first_op());
        }
    }

    /// A checkpoint is durable: what it says is gone may go from the disk. Alone, both that are
    /// kept must say so, for nobody else could bring back what the older one needs.
    pub(super) fn drop_trimmed(&mut self, core: &mut Core) {
        if self.partition.is_none() || !matches!(self.state, State::Running(_)) {
            return;
        }
        let alone = core.config.nodes.len() == 1;
        let covering = if alone {
            self.keeping.oldest_op()
        } else {
            self.keeping.newest_op()
        };
        let oldest = self.keeping.oldest_op();
        self.trimming.firsts.retain(|op, _| *op >= oldest);
        if let Some(first) = self.trimming.firsts.get(&covering).copied() {
            self.journal
                .drop_before(first, &mut core.files, &mut core.out);
        }
        if !self.owes_drop() {
            return;
        }
        let newest = self.trimming.firsts.get(&self.keeping.newest_op());
        if self.trimming.firsts.get(&covering) >= newest {
            // It is on its way, or damage holds it up.
            return;
        }
        let known = newest.is_some_and(|first| self.journal.holds_whole_before(*first));
        let can = self
            .group()
            .is_some_and(|group| group.is_serving() && group.can_prepare());
        if alone && known && can && !core.is_full() {
            // Another op, so that there can be another checkpoint.
            base::sometimes!("trim: a second checkpoint is taken before files go");
            let first = self
                .partition()
                .map_or(Op(0), partition::PartitionState::first_op);
            let trim = Trim {
                before: first,
                past_consumers: false,
            };
            self.propose_own(Operation::TrimLog, &trim.body(), core);
        }
    }

    /// The group runs: files go that a crash has left, or a checkpoint is taken first.
    pub(super) fn drop_leftover(&mut self, core: &mut Core) {
        if !self.owes_drop() {
            return;
        }
        base::sometimes!("trim: a start finds files of which nothing is served");
        self.drop_trimmed(core);
        let covered = self.trimming.firsts.get(&self.keeping.newest_op());
        let first = self.partition().map(partition::PartitionState::first_op);
        if covered.copied() >= first {
            return;
        }
        if let (Some(header), Some(partition)) = (self.trimming.applied, &self.partition)
            && header.op == partition.committed().op
            && !self.trimming.firsts.contains_key(&header.op)
        {
            let snapshot = partition.snapshot();
            let mut head = [0; HEADER_SIZE];
            header.encode_sealed(&mut head);
            self.take_checkpoint(&head, &snapshot, core);
        }
    }
}
