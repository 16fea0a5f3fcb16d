//! The newest ops in memory: headers of at least the last [`HEADERS_MIN`], records up to a bound
//! of bytes, and always every record that is not written yet.

use alloc::{collections::VecDeque, vec::Vec};

use base::{Bytes, Op};
use wire::{Operation, replica::PrepareHeader};

use crate::{index::Start, record::Messages};

/// Headers kept however small the cache is, and fetched again after a truncation.
pub(crate) const HEADERS_MIN: usize = 128;

/// Headers kept without their records; the room above the minimum spares most truncations the
/// fetching.
const HEADERS_MAX: usize = HEADERS_MIN + 32;

/// One op of the tail.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) header: PrepareHeader,
    /// The segment it is in, by first op, and where; unknown before it is written.
    pub(crate) place: Option<(Op, u64)>,
    pub(crate) messages: Option<Messages>,
    /// The newest messages at or before this op, as far as known.
    latest: Option<Messages>,
    /// Dropped from the oldest on.
    pub(crate) record: Option<Bytes>,
}

impl Item {
    pub(crate) fn new(header: PrepareHeader, record: Bytes, place: Option<(Op, u64)>) -> Self {
        let messages = Messages::of(&header, &record);
        Self {
            header,
            place,
            messages,
            latest: None,
            record: Some(record),
        }
    }
}

/// Where messages are, as far as the tail can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// They start with this op, whose record is in memory.
    At(Op),
    /// There are none yet.
    Beyond,
    /// Possibly in the files.
    Unknown,
}

/// A contiguous run of ops that ends at the head.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    items: VecDeque<Item>,
    /// Items at the front whose record has been dropped.
    bare: usize,
    bytes: usize,
}

impl Tail {
    /// Appends an op.
    pub(crate) fn push(&mut self, mut item: Item) {
        let record = item
            .record
            .as_ref()
            .expect("a new op comes with its record");
        self.bytes += record.len();
        if let Some(last) = self.items.back() {
            base::invariant!(item.header.op == last.header.op.next());
        }
        // Where all messages are purged, offsets begin anew.
        let purged = item.header.operation == Operation::PurgePartition;
        let before = self.items.back().filter(|_| !purged);
        item.latest = item
            .messages
            .or_else(|| before.and_then(|last| last.latest));
        self.items.push_back(item);
    }

    fn position(&self, op: Op) -> Option<usize> {
        let first = self.items.front()?.header.op;
        let position = usize::try_from(op.0.checked_sub(first.0)?).ok()?;
        (position < self.items.len()).then_some(position)
    }

    /// An op, if it is here.
    pub(crate) fn get(&self, op: Op) -> Option<&Item> {
        self.items.get(self.position(op)?)
    }

    /// An op, if it is here.
    pub(crate) fn get_mut(&mut self, op: Op) -> Option<&mut Item> {
        let position = self.position(op)?;
        self.items.get_mut(position)
    }

    /// The oldest op whose record is here; `None` if there is no record.
    pub(crate) fn first_record(&self) -> Option<Op> {
        self.items.get(self.bare).map(|item| item.header.op)
    }

    /// Ops here.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Drops the oldest records beyond `bytes_max`, but none above `written`, then the oldest
    /// headers beyond the bound, but not that of `written`.
    pub(crate) fn evict(&mut self, bytes_max: usize, written: Op) {
        while self.bytes > bytes_max {
            let Some(item) = self.items.get_mut(self.bare) else {
                break;
            };
            if item.header.op > written {
                break;
            }
            let record = item
                .record
                .take()
                .expect("records are dropped from the oldest on");
            self.bytes -= record.len();
            self.bare += 1;
        }
        while self.bare > 0 && self.items.len() > HEADERS_MAX {
            if self
                .items
                .pop_front_if(|item| item.header.op < written)
                .is_none()
            {
                break;
            }
            self.bare -= 1;
        }
    }

    /// The last op here.
    pub(crate) fn last(&self) -> Option<Op> {
        self.items.back().map(|item| item.header.op)
    }

    /// Drops all ops above `op`.
    pub(crate) fn truncate(&mut self, op: Op) {
        while let Some(item) = self.items.pop_back_if(|item| item.header.op > op) {
            self.bytes -= item.record.map_or(0, |record| record.len());
        }
        self.bare = self.bare.min(self.items.len());
    }

    /// Replaces all ops up to the last of `older` by `older`.
    pub(crate) fn replace_older(&mut self, older: Vec<Item>) {
        let last = older.last().expect("a refill has at least one op").header;
        let mut newer = core::mem::take(self).items;
        while newer
            .pop_front_if(|item| item.header.op <= last.op)
            .is_some()
        {}
        if let Some(next) = newer.front() {
            base::invariant!(
                next.header.parent == last.checksum,
                "appended to another log than was kept"
            );
        }
        for item in older.into_iter().chain(newer) {
            self.push(item);
        }
    }

    /// Finds the record where a read of messages from op `from` on starts. `complete` says that the
    /// tail holds the whole log.
    pub(crate) fn find(&self, start: Start, from: Op, complete: bool) -> Found {
        let before = |item: &Item| {
            item.header.op < from || item.latest.is_none_or(|messages| !start.accepts(&messages))
        };
        let records = self.items.len() - self.bare;
        let at =
            self.bare + partition_point(records, |index| before(&self.items[self.bare + index]));
        // The ops before `at` were not accepted; are the ones before the tail all older still?
        let certain = complete
            || at > self.bare && self.items[at - 1].latest.is_some()
            || self
                .items
                .get(at)
                .and_then(|item| item.messages)
                .is_some_and(|messages| {
                    matches!(start, Start::Offset(_)) && start.is_at_or_after(&messages)
                });
        match self.items.get(at) {
            _ if !certain => Found::Unknown,
            Some(item) => Found::At(item.header.op),
            None => Found::Beyond,
        }
    }
}

/// The first index below `len` for which `before` no longer holds.
fn partition_point(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
