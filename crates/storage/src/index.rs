//! The sparse index of one segment, in memory only: where to start reading for an op, an offset
//! or a timestamp. It is rebuilt by recovery, which reads every record anyway.
//!
//! An entry stands for a record and carries the first messages *at or after* it, in this segment
//! or a later one. Timestamps never step back along the log, and offsets only where all messages
//! before are purged, which no read asks for; so from the first op that a read looks at, entries
//! are sorted by each of their fields. A record is 256 bytes or more; with an interval of 64 KiB a
//! segment of 1 GiB costs 16,384 entries of 40 bytes.

use alloc::vec::Vec;

use base::{Offset, Op, Timestamp};

use crate::record::Messages;

/// Where a read of messages starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the record with this offset, or else the first one after it.
    Offset(Offset),
    /// At the first record appended at or after this time.
    Timestamp(Timestamp),
}

impl Start {
    /// Whether a read may begin at these messages: none before them is asked for, given that the
    /// messages before them were not accepted.
    pub(crate) const fn accepts(self, messages: &Messages) -> bool {
        match self {
            Self::Offset(offset) => messages.end > offset.0,
            Self::Timestamp(timestamp) => messages.timestamp >= timestamp.0,
        }
    }

    /// Whether what is asked for lies at or after these messages.
    pub(crate) const fn is_at_or_after(self, messages: &Messages) -> bool {
        match self {
            Self::Offset(offset) => messages.offset <= offset.0,
            Self::Timestamp(timestamp) => messages.timestamp < timestamp.0,
        }
    }
}

/// A record where reading may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    op: Op,
    position: u64,
    /// The op that brings `messages`.
    messages_op: Op,
    messages: Option<Messages>,
}

impl Entry {
    /// Whether nothing that is asked for comes before the messages it leads to, given that only
    /// ops from `from` on are looked at.
    fn is_at_or_before(&self, start: Start, from: Op) -> bool {
        self.messages
            .is_some_and(|messages| self.messages_op < from || start.is_at_or_after(&messages))
    }
}

/// Index of one segment.
#[derive(Debug, Default)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    /// Entries whose messages are known; all others follow them.
    filled: usize,
}

impl Index {
    /// Notes the record of `op` at `position`, if the last entry is `interval` bytes behind; with
    /// interval 0 in any case.
    pub(crate) fn note(&mut self, op: Op, position: u64, interval: u64) {
        if let Some(last) = self.entries.last() {
            base::invariant!(op > last.op);
            base::invariant!(position > last.position);
            if position - last.position < interval {
                return;
            }
        }
        self.entries.push(Entry {
            op,
            position,
            messages_op: Op(0),
            messages: None,
        });
    }

    /// Notes the record of `op` at `position` between others; `messages` are its own. Whatever
    /// follows it may be told in place of messages that are not known: reading begins earlier
    /// then, never later.
    pub(crate) fn insert(&mut self, op: Op, position: u64, messages: Option<Messages>) {
        let at = self.entries.partition_point(|entry| entry.op < op);
        let next = self.entries.get(at).copied();
        if next.is_some_and(|next| next.op == op) {
            return;
        }
        let (messages_op, messages) = match (messages, next) {
            _ if self.filled < at => (Op(0), None),
            (Some(messages), _) => (op, Some(messages)),
            (None, Some(next)) => (next.messages_op, next.messages),
            (None, None) => (Op(0), None),
        };
        self.filled += usize::from(messages.is_some());
        self.entries.insert(
            at,
            Entry {
                op,
                position,
                messages_op,
                messages,
            },
        );
    }

    /// Tells all entries that still wait for messages of the first after them. Answers whether
    /// no entry knew messages before, so that earlier segments may wait too.
    pub(crate) fn fill(&mut self, op: Op, messages: Messages) -> bool {
        let all_waited = self.filled == 0;
        for entry in &mut self.entries[self.filled..] {
            base::invariant!(entry.messages.is_none());
            entry.messages_op = op;
            entry.messages = Some(messages);
        }
        self.filled = self.entries.len();
        all_waited
    }

    /// Forgets where the records from `from` on and below `until` are.
    pub(crate) fn forget(&mut self, from: Op, until: Op) {
        let first = self.entries.partition_point(|entry| entry.op < from);
        let end = self.entries.partition_point(|entry| entry.op < until);
        self.filled -= self.filled.clamp(first, end) - first;
        self.entries.drain(first..end);
    }

    /// Forgets everything above `op`.
    pub(crate) fn cut(&mut self, op: Op) {
        let keep = self.entries.partition_point(|entry| entry.op <= op);
        self.entries.truncate(keep);
        let known = self
            .entries
            .partition_point(|entry| entry.messages.is_some() && entry.messages_op <= op);
        for entry in &mut self.entries[known..] {
            entry.messages = None;
            entry.messages_op = Op(0);
        }
        self.filled = known;
    }

    /// The last entry at or before `op`: its op and position.
    pub(crate) fn find_op(&self, op: Op) -> Option<(Op, u64)> {
        let after = self.entries.partition_point(|entry| entry.op <= op);
        let entry = self.entries[..after].last()?;
        Some((entry.op, entry.position))
    }

    /// Whether what `start` asks for, from op `from` on, lies at or after the first messages this
    /// segment leads to.
    pub(crate) fn begins_at_or_before(&self, start: Start, from: Op) -> bool {
        self.entries
            .first()
            .is_some_and(|entry| entry.is_at_or_before(start, from))
    }

    /// Where to start reading for `start` from op `from` on, an op and its position; `None` is the
    /// beginning of the segment, given that nothing before this segment is asked for.
    pub(crate) fn find_start(&self, start: Start, from: Op) -> Option<(Op, u64)> {
        let after = self
            .entries
            .partition_point(|entry| entry.is_at_or_before(start, from));
        let entry = self.entries.get(after.checked_sub(1)?)?;
        Some((entry.op, entry.position))
    }

    /// Where the records end that may hold what `last` asks for from op `from` on; nothing if this
    /// is the end of the segment or not known.
    pub(crate) fn find_end(&self, last: Start, from: Op) -> Option<u64> {
        let after = self
            .entries
            .partition_point(|entry| entry.is_at_or_before(last, from));
        Some(self.entries.get(after)?.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn messages(offset: u64, timestamp: u64) -> Messages {
        Messages {
            offset,
            end: offset + 10,
            timestamp,
        }
    }

    fn sample() -> Index {
        let mut index = Index::default();
        for op in 1..=6 {
            index.note(Op(op), op * 100, 200); // entries at ops 1, 3, 5
            if op % 2 == 0 {
                index.fill(Op(op), messages(op * 10, op * 1000));
            }
        }
        index
    }

    #[test]
    fn entries_lead_to_the_first_messages_after_them() {
        let index = sample();
        assert_eq!(index.find_op(Op(2)), Some((Op(1), 100)));
        assert_eq!(index.find_op(Op(9)), Some((Op(5), 500)));
        // Offset 40 is the first of op 4, which entry 3 leads to.
        assert_eq!(
            index.find_start(Start::Offset(Offset(39)), Op(1)),
            Some((Op(1), 100))
        );
        assert_eq!(
            index.find_start(Start::Offset(Offset(40)), Op(1)),
            Some((Op(3), 300))
        );
        // Equal timestamps may stand before an entry, so only an older entry will do.
        assert_eq!(
            index.find_start(Start::Timestamp(Timestamp(4000)), Op(1)),
            Some((Op(1), 100))
        );
        assert_eq!(
            index.find_start(Start::Timestamp(Timestamp(4001)), Op(1)),
            Some((Op(3), 300))
        );
        assert_eq!(
            index.find_start(Start::Timestamp(Timestamp(0)), Op(1)),
            None
        );
    }

    #[test]
    fn a_cut_makes_entries_wait_again() {
        let mut index = sample();
        index.cut(Op(3));
        assert_eq!(
            index.find_start(Start::Offset(Offset(1000)), Op(1)),
            Some((Op(1), 100))
        );
        index.fill(Op(4), messages(30, 9));
        assert_eq!(
            index.find_start(Start::Offset(Offset(1000)), Op(1)),
            Some((Op(3), 300))
        );
    }
}
