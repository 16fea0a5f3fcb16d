//! What consensus keeps of a group's log: the newest headers, and the bodies of what is not
//! committed yet.
//!
//! ```text
//!   headers:  [ op - window ............ commit .......... op ]
//!   suffix:                                    [commit+1 .. op ]   whole frames
//! ```

use alloc::{collections::VecDeque, vec::Vec};

use base::{Bytes, Op};
use wire::replica::PrepareHeader;

/// The in-memory end of a log.
#[derive(Debug)]
pub(crate) struct Log {
    /// The newest headers, ascending, ending at the head; at least those from `commit` on, so that
    /// the head keeps its header when all after `commit` is cut.
    headers: VecDeque<PrepareHeader>,
    /// The frames after `commit`.
    suffix: VecDeque<Bytes>,
    /// How many headers to keep.
    window: usize,
    commit: Op,
    op: Op,
    checksum: u128,
}

impl Log {
    /// A log as recovered: `headers` end at its head, `suffix` are the frames after `commit`.
    pub(crate) fn new(
        commit: Op,
        headers: Vec<PrepareHeader>,
        suffix: Vec<Bytes>,
        window: usize,
    ) -> Self {
        let (op, checksum) = headers
            .last()
            .map_or((Op(0), 0), |head| (head.op, head.checksum));
        base::invariant!(commit <= op);
        base::invariant_eq!(suffix.len() as u64, op.0 - commit.0);
        let mut log = Self {
            headers: headers.into(),
            suffix: suffix.into(),
            window,
            commit,
            op,
            checksum,
        };
        log.trim();
        log
    }

    pub(crate) const fn op(&self) -> Op {
        self.op
    }

    pub(crate) const fn commit(&self) -> Op {
        self.commit
    }

    /// Identity of the head, 0 for an empty log.
    pub(crate) const fn checksum(&self) -> u128 {
        self.checksum
    }

    pub(crate) fn uncommitted(&self) -> usize {
        self.suffix.len()
    }

    /// The header of `op`, if it is among the newest.
    pub(crate) fn header(&self, op: Op) -> Option<&PrepareHeader> {
        let first = self.headers.front()?.op;
        let index = op.0.checked_sub(first.0)?;
        self.headers.get(usize::try_from(index).ok()?)
    }

    /// The newest headers, at most the window, ascending.
    pub(crate) fn newest(&self) -> Vec<PrepareHeader> {
        let skip = self.headers.len().saturating_sub(self.keep());
        self.headers.iter().skip(skip).copied().collect()
    }

    pub(crate) fn append(&mut self, header: PrepareHeader, frame: Bytes) {
        base::invariant_eq!(header.op, self.op.next());
        base::invariant_eq!(header.parent, self.checksum);
        self.op = header.op;
        self.checksum = header.checksum;
        self.headers.push_back(header);
        self.suffix.push_back(frame);
        self.trim();
    }

    /// Drops everything after `op`.
    pub(crate) fn truncate_after(&mut self, op: Op) {
        base::invariant!(op >= self.commit, "a committed op is never cut");
        while self.op > op {
            self.suffix.pop_back().expect("uncommitted ops have frames");
            let cut = self
                .headers
                .pop_back()
                .expect("uncommitted ops have headers");
            self.op = Op(cut.op.0 - 1);
            self.checksum = cut.parent;
        }
    }

    /// The next frame after `commit`, which is committed from now on.
    pub(crate) fn commit_next(&mut self) -> Bytes {
        let frame = self
            .suffix
            .pop_front()
            .expect("committed up to the head at most");
        self.commit = self.commit.next();
        self.trim();
        frame
    }

    /// The log is now what a checkpoint that ends with `header` stands for, and nothing more.
    pub(crate) fn reset(&mut self, header: &PrepareHeader) {
        base::invariant!(header.op >= self.commit, "a checkpoint takes nothing back");
        self.headers = [*header].into();
        self.suffix.clear();
        self.commit = header.op;
        self.op = header.op;
        self.checksum = header.checksum;
    }

    pub(crate) fn frames(&self) -> impl Iterator<Item = &Bytes> {
        self.suffix.iter()
    }

    fn trim(&mut self) {
        while self.headers.len() > self.keep() {
            self.headers.pop_front();
        }
    }

    fn keep(&self) -> usize {
        self.window.max(self.suffix.len() + 1)
    }

    pub(crate) fn invariants(&self) {
        base::invariant!(self.commit <= self.op);
        base::invariant_eq!(self.suffix.len() as u64, self.op.0 - self.commit.0);
        base::invariant!(self.headers.len() >= self.suffix.len());
        base::invariant!(self.op == Op(0) || !self.headers.is_empty());
        if let Some(head) = self.headers.back() {
            base::invariant_eq!(head.op, self.op);
            base::invariant_eq!(head.checksum, self.checksum);
        }
    }
}
