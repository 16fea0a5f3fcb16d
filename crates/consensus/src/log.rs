//! What consensus keeps of a group's log: the newest headers, and the bodies of what is not
//! applied yet.
//!
//! ```text
//!   headers:  [ op - window ............ commit .......... op ]   some may be unknown
//!   suffix:                                    [commit+1 .. op ]   frames; some may be missing
//! ```
//!
//! A disk may have damaged the body of an op that the log holds. The op is then *missing*, not
//! gone: its place is taken, and the chain names its identity if its successor is known.

use alloc::{collections::VecDeque, vec::Vec};

use base::{Bytes, Op};
use wire::replica::PrepareHeader;

/// What a log has of an op.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The whole frame.
    Frame(Bytes),
    /// Its place only: the disk has lost the body.
    Missing,
}

impl Entry {
    const fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// The in-memory end of a log.
#[derive(Debug)]
pub(crate) struct Log {
    /// The newest headers, one place per op, ending at the head; at least those from `commit`
    /// on, so that the head keeps its identity when all after `commit` is cut. Ops whose header
    /// nobody has told have an empty place.
    headers: VecDeque<Option<PrepareHeader>>,
    /// The entries after `commit`.
    suffix: VecDeque<Entry>,
    /// How many entries are missing.
    missing: usize,
    /// How many headers to keep.
    window: usize,
    /// Last op handed out to be applied.
    commit: Op,
    /// Last op known to be committed, in this log; a missing body may hold `commit` back.
    committed: Op,
    op: Op,
    checksum: u128,
}

/// What a log begins as.
#[derive(Debug)]
pub(crate) struct Start {
    /// Last op applied.
    pub(crate) commit: Op,
    /// Last op known to be committed.
    pub(crate) committed: Op,
    /// The head and its identity.
    pub(crate) head: (Op, u128),
    /// The newest headers, ascending; some may be left out.
    pub(crate) headers: Vec<PrepareHeader>,
    /// The entries after `commit`.
    pub(crate) suffix: Vec<Entry>,
    /// How many headers to keep.
    pub(crate) window: usize,
}

impl Log {
    /// A log as recovered.
    pub(crate) fn new(start: Start) -> Self {
        let (op, checksum) = start.head;
        base::invariant!(start.commit <= start.committed && start.committed <= op);
        base::invariant_eq!(start.suffix.len() as u64, op.0 - start.commit.0);
        let after_commit = start.commit.next();
        let first = start
            .headers
            .first()
            .map_or(after_commit, |header| header.op.min(after_commit));
        let places = usize::try_from(op.0 + 1 - first.0).expect("headers that are in memory");
        let mut log = Self {
            headers: core::iter::repeat_n(None, places).collect(),
            missing: start
                .suffix
                .iter()
                .filter(|entry| entry.is_missing())
                .count(),
            suffix: start.suffix.into(),
            window: start.window,
            commit: start.commit,
            committed: start.committed,
            op,
            checksum,
        };
        for header in start.headers {
            log.note(header);
        }
        for index in 0..log.suffix.len() {
            if let Entry::Frame(frame) = &log.suffix[index] {
                let header = PrepareHeader::decode(frame).expect("the journal verifies records");
                log.note(header);
            }
        }
        log.trim();
        log
    }

    pub(crate) const fn op(&self) -> Op {
        self.op
    }

    pub(crate) const fn commit(&self) -> Op {
        self.commit
    }

    /// Last op known to be committed.
    pub(crate) const fn committed(&self) -> Op {
        self.committed
    }

    /// Identity of the head, 0 for an empty log.
    pub(crate) const fn checksum(&self) -> u128 {
        self.checksum
    }

    pub(crate) fn uncommitted(&self) -> usize {
        self.suffix.len()
    }

    /// The header of `op`, if it is among the newest and known.
    pub(crate) fn header(&self, op: Op) -> Option<&PrepareHeader> {
        self.headers.get(self.place(op)?)?.as_ref()
    }

    /// The place of a header, if it is among the newest.
    fn place(&self, op: Op) -> Option<usize> {
        let first = self.op.0 + 1 - self.headers.len() as u64;
        let place = usize::try_from(op.0.checked_sub(first)?).ok()?;
        (place < self.headers.len()).then_some(place)
    }

    /// The identity of the op at `op`, as far as its header or its successor's is known.
    pub(crate) fn identity(&self, op: Op) -> Option<u128> {
        if op == self.op {
            return Some(self.checksum);
        }
        if op == Op(0) {
            return Some(0);
        }
        match self.header(op) {
            Some(header) => Some(header.checksum),
            None => Some(self.header(op.next())?.parent),
        }
    }

    /// The newest known headers, at most the window, ascending.
    pub(crate) fn newest(&self) -> Vec<PrepareHeader> {
        let skip = self.headers.len().saturating_sub(self.keep());
        self.headers.iter().skip(skip).flatten().copied().collect()
    }

    /// Whether the body of `op`, which is not applied, is missing.
    pub(crate) fn is_missing(&self, op: Op) -> bool {
        self.missing > 0 && self.entry(op).is_some_and(Entry::is_missing)
    }

    fn entry(&self, op: Op) -> Option<&Entry> {
        let index = op.0.checked_sub(self.commit.0 + 1)?;
        self.suffix.get(usize::try_from(index).ok()?)
    }

    /// The ops whose bodies are missing, ascending.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Op> {
        let wanted = if self.missing == 0 {
            0
        } else {
            self.suffix.len()
        };
        let ops = (self.commit.0 + 1..).map(Op);
        let entries = ops.zip(self.suffix.iter().take(wanted));
        entries
            .filter(|(_, entry)| entry.is_missing())
            .map(|(op, _)| op)
    }

    /// The last op before which, and at which, nothing is missing.
    pub(crate) fn complete(&self) -> Op {
        self.missing().next().map_or(self.op, |op| Op(op.0 - 1))
    }

    pub(crate) fn append(&mut self, header: PrepareHeader, frame: Bytes) {
        base::invariant_eq!(header.op, self.op.next());
        base::invariant_eq!(header.parent, self.checksum);
        self.op = header.op;
        self.checksum = header.checksum;
        self.headers.push_back(Some(header));
        self.suffix.push_back(Entry::Frame(frame));
        self.trim();
    }

    /// The header of an op of this log has become known.
    pub(crate) fn note(&mut self, header: PrepareHeader) {
        if let Some(place) = self.place(header.op) {
            self.headers[place] = Some(header);
        }
    }

    /// The body of a missing op is back. Whether it was missing, and this is it.
    pub(crate) fn repair(&mut self, header: PrepareHeader, frame: Bytes) -> bool {
        let same = self
            .identity(header.op)
            .is_none_or(|identity| identity == header.checksum);
        if !self.is_missing(header.op) || !same {
            return false;
        }
        let index = usize::try_from(header.op.0 - self.commit.0 - 1).expect("in the suffix");
        self.suffix[index] = Entry::Frame(frame);
        self.missing -= 1;
        self.note(header);
        true
    }

    /// Drops everything after `op`, whose identity must be known. Of what is known to be
    /// committed only places go whose bodies are missing.
    pub(crate) fn truncate_after(&mut self, op: Op) {
        let mut committed = (op.0 + 1..=self.committed.0).map(Op);
        let missing = committed.all(|op| self.is_missing(op));
        base::invariant!(missing, "a committed op is never cut");
        self.committed = self.committed.min(op);
        let identity = self.identity(op);
        while self.op > op {
            let cut = self
                .suffix
                .pop_back()
                .expect("uncommitted ops have entries");
            self.missing -= usize::from(cut.is_missing());
            self.headers.pop_back();
            self.op = Op(self.op.0 - 1);
        }
        self.checksum = identity.expect("a log is cut where its identity is known");
    }

    /// What is known to be committed has grown.
    pub(crate) fn commit_up_to(&mut self, op: Op) {
        base::invariant!(op <= self.op);
        self.committed = self.committed.max(op);
    }

    /// The next frame to apply, if it is known to be committed and not missing.
    pub(crate) fn commit_next(&mut self) -> Option<Bytes> {
        if self.commit == self.committed || self.suffix.front().is_some_and(Entry::is_missing) {
            return None;
        }
        let Some(Entry::Frame(frame)) = self.suffix.pop_front() else {
            unreachable!("committed up to the head at most")
        };
        self.commit = self.commit.next();
        self.trim();
        Some(frame)
    }

    /// The log is now what a checkpoint that ends with `header` stands for, and nothing more.
    pub(crate) fn reset(&mut self, header: &PrepareHeader) {
        base::invariant!(
            header.op >= self.committed,
            "a checkpoint takes nothing back"
        );
        self.headers = [Some(*header)].into();
        self.suffix.clear();
        self.missing = 0;
        self.commit = header.op;
        self.committed = header.op;
        self.op = header.op;
        self.checksum = header.checksum;
    }

    /// The log is empty after an op that is committed, whose identity is `checksum`.
    pub(crate) fn rewind(&mut self, op: Op, checksum: u128) {
        self.headers.clear();
        self.suffix.clear();
        self.missing = 0;
        self.commit = op;
        self.committed = op;
        self.op = op;
        self.checksum = checksum;
    }

    /// Everything up to the op of `header`, which this log holds, is applied by other means.
    pub(crate) fn skip_to(&mut self, header: &PrepareHeader) {
        base::invariant!(header.op <= self.op);
        while self.commit < header.op {
            let entry = self
                .suffix
                .pop_front()
                .expect("one for each op up to the head");
            self.missing -= usize::from(entry.is_missing());
            self.commit = self.commit.next();
        }
        self.committed = self.committed.max(header.op);
        self.note(*header);
        self.trim();
    }

    /// The frames that are not applied, in order; missing ones are left out.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Bytes> {
        self.suffix.iter().filter_map(|entry| match entry {
            Entry::Frame(frame) => Some(frame),
            Entry::Missing => None,
        })
    }

    fn trim(&mut self) {
        while self.headers.len() > self.keep() {
            self.headers.pop_front();
        }
    }

    fn keep(&self) -> usize {
        self.window.max(self.suffix.len() + 1)
    }

    /// What always holds:
    ///
    /// ```text
    /// commit <= committed <= op      one entry per op after commit
    /// headers of all those ops, but for the missing
    /// ```
    pub(crate) fn invariants(&self) {
        base::invariant!(self.commit <= self.committed);
        base::invariant!(self.committed <= self.op);
        base::invariant_eq!(self.suffix.len() as u64, self.op.0 - self.commit.0);
        base::invariant!(self.headers.len() >= self.suffix.len());
        base::invariant!(self.missing <= self.suffix.len());
        if let Some(Some(head)) = self.headers.back() {
            base::invariant_eq!(head.op, self.op);
            base::invariant_eq!(head.checksum, self.checksum);
        }
    }
}
