//! Journals and view stores of a cluster: they do what is queued when told, and a crash keeps a
//! part.

use base::Op;
use consensus::{Group, Recovered};
use wire::replica::PrepareHeader;

use super::{Cluster, Crash, DiskOp, Letter, Mode};

impl Cluster {
    /// The journal does the first thing in its queue.
    pub(crate) fn write(&mut self, index: usize) -> bool {
        let Some(op) = self.nodes[index].queue.pop_front() else {
            return false;
        };
        let now = self.now;
        self.put(index, op.clone());
        match op {
            DiskOp::Append(header, _) => {
                if self.mode == Mode::Replicated {
                    self.act(index, |group, out| group.on_durable(now, header.op, out));
                }
            }
            DiskOp::Truncate(op) => self.act(index, |group, out| group.on_truncated(now, op, out)),
        }
        true
    }

    fn put(&mut self, index: usize, op: DiskOp) {
        let node = &mut self.nodes[index];
        match op {
            DiskOp::Append(header, frame) => {
                let parent = node.log.last().map_or(0, |(header, _)| header.checksum);
                assert_eq!(header.parent, parent, "the log on disk is a chain");
                assert_eq!(header.op.0, node.log.len() as u64 + 1);
                node.log.push((header, frame));
            }
            DiskOp::Truncate(op) => {
                node.log.truncate(usize::try_from(op.0).expect("small"));
                node.synced = node.synced.min(node.log.len());
            }
        }
    }

    /// What is written becomes safe from a power loss.
    pub(crate) fn sync(&mut self, index: usize) -> bool {
        let node = &mut self.nodes[index];
        if node.group.is_none() || node.synced == node.log.len() {
            return false;
        }
        // What a truncation in the queue is about to take away is not told.
        let limit = node
            .queue
            .iter()
            .fold(node.log.len(), |limit, op| match op {
                DiskOp::Truncate(op) => limit.min(usize::try_from(op.0).expect("small")),
                DiskOp::Append(..) => limit,
            });
        node.synced = node.log.len();
        let told = Op(node.synced.min(limit) as u64);
        let now = self.now;
        if self.mode == Mode::Persisted {
            self.act(index, |group, out| group.on_durable(now, told, out));
        }
        true
    }

    /// The view store does the first thing in its queue.
    pub(crate) fn store(&mut self, index: usize) -> bool {
        let node = &mut self.nodes[index];
        let Some((view, log_view)) = node.views.pop_front() else {
            return false;
        };
        node.stored = (view, log_view);
        let now = self.now;
        self.act(index, |group, out| {
            group.on_view_durable(now, view, log_view, out)
        });
        true
    }

    /// Answers the oldest request for prepares.
    pub(crate) fn serve(&mut self, index: usize) -> bool {
        let Some(read) = self.nodes[index].reads.pop_front() else {
            return false;
        };
        let node = &self.nodes[index];
        let vouches = |group: &Group| group.vouches(read.view);
        if !node.group.as_ref().is_some_and(vouches) {
            return true;
        }
        let mut log = node.log.clone();
        for op in &node.queue {
            match op {
                DiskOp::Append(header, frame) => log.push((*header, frame.clone())),
                DiskOp::Truncate(op) => log.truncate(usize::try_from(op.0).expect("small")),
            }
        }
        let range = read.from..=read.until;
        for (_, prepare) in log.iter().filter(|(header, _)| range.contains(&header.op)) {
            let prepare = prepare.clone();
            let view = read.view;
            self.post(index, read.to, Letter::Repair { view, prepare });
        }
        true
    }

    /// Ends a process. Of what the disks had not done yet a prefix may be done: `kept` entries.
    pub(crate) fn crash(&mut self, index: usize, crash: Crash, kept: usize) {
        self.nodes[index].group = None;
        self.nodes[index].reads.clear();
        for _ in 0..kept {
            if let Some(op) = self.nodes[index].queue.pop_front() {
                self.put(index, op);
            }
            let node = &mut self.nodes[index];
            if let Some(pair) = node.views.pop_front() {
                node.stored = pair;
            }
        }
        let node = &mut self.nodes[index];
        node.queue.clear();
        node.views.clear();
        if crash == Crash::Power {
            let extra = node.log.len() - node.synced;
            node.log.truncate(node.synced + kept.min(extra));
            node.trusted &= self.mode == Mode::Persisted;
            // Alone there is nobody to ask.
            self.loss |= self.mode == Mode::Replicated && self.nodes.len() == 1;
        }
        let node = &mut self.nodes[index];
        node.synced = node.synced.min(node.log.len());
        for other in 0..self.count() {
            if other != index {
                self.cut(other, index);
                // What it has sent may still arrive, until a new link takes the old one's place.
                self.up.insert((index, other), false);
            }
        }
    }

    /// Starts the process again, from its disk; its links come up.
    pub(crate) fn restart(&mut self, index: usize) {
        if self.nodes[index].group.is_some() {
            return;
        }
        let config = self.config(index);
        let prng = self.fork(index);
        let node = &mut self.nodes[index];
        // Recovery syncs what it has read, so that it stays true.
        node.synced = node.log.len();
        let headers: Vec<PrepareHeader> = node.log.iter().map(|(header, _)| *header).collect();
        let commit = headers.iter().map(|header| header.commit).max();
        let commit = commit.unwrap_or_default();
        let skip = usize::try_from(commit.0).expect("small");
        let suffix = node.log[skip..].iter().map(|(_, frame)| frame.clone());
        let (view, log_view) = node.stored;
        let recovered = Recovered {
            promised_until: base::Instant::ZERO,
            view,
            log_view,
            commit,
            headers,
            suffix: suffix.collect(),
            trusted: node.trusted,
        };
        node.applied = commit;
        let mut out = Vec::new();
        let group = Group::recover(config, recovered, self.now, prng, &mut out);
        self.nodes[index].group = Some(group);
        self.carry_out(index, out);
        for other in 0..self.count() {
            if other != index {
                self.connect(index, other);
            }
        }
    }
}
