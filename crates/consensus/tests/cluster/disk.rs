//! Journals and view stores of a cluster: they do what is queued when told, and a crash keeps a
//! part. Records may be damaged, and whole disks replaced.

use base::{Bytes, GroupId, Op};
use consensus::{Entry, Group, Recovered, Stand, Trust};
use wire::replica::{Message, PrepareHeader};

use super::{
    BLANK, CLUSTER, Cluster, Crash, DiskOp, Letter, Mode, Read, Record, index_of, replica,
};

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
                let parent = node.log.last().map_or(0, |record| record.header.checksum);
                assert_eq!(header.parent, parent, "the log on disk is a chain");
                assert_eq!(header.op.0, node.log.len() as u64 + 1);
                node.log.push(Record {
                    header: *header,
                    frame,
                    damaged: false,
                });
            }
            DiskOp::Truncate(op) => {
                node.log.truncate(usize::try_from(op.0).expect("small"));
                node.fetched.retain(|fetched, _| *fetched <= op);
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
        let Some(stand) = node.views.pop_front() else {
            return false;
        };
        node.stored = stand;
        let now = self.now;
        self.act(index, |group, out| group.on_view_durable(now, stand, out));
        true
    }

    /// Answers the oldest request for prepares; damage is not served.
    pub(crate) fn serve(&mut self, index: usize) -> bool {
        let Some(read) = self.nodes[index].reads.pop_front() else {
            return false;
        };
        let node = &self.nodes[index];
        let mut log = node.log.clone();
        for op in &node.queue {
            match op {
                DiskOp::Append(header, frame) => log.push(Record {
                    header: **header,
                    frame: frame.clone(),
                    damaged: false,
                }),
                DiskOp::Truncate(op) => log.truncate(usize::try_from(op.0).expect("small")),
            }
        }
        let (to, view, range, checksum) = match read {
            Read::Prepares {
                to,
                view,
                from,
                until,
            } => {
                let vouches = |group: &Group| group.vouches(view);
                if !node.group.as_ref().is_some_and(vouches) {
                    return true;
                }
                (to, view, from..=until, None)
            }
            Read::Body { to, op, checksum } => {
                let view = node.group.as_ref().map(Group::view).unwrap_or_default();
                (to, view, op..=op, Some(checksum))
            }
        };
        let wanted = |record: &&Record| {
            let asked = checksum.is_none_or(|checksum| checksum == record.header.checksum);
            range.contains(&record.header.op) && asked
        };
        for record in log
            .iter()
            .filter(wanted)
            .take_while(|record| !record.damaged)
        {
            let prepare = record.frame.clone();
            self.post(index, to, Letter::Repair { view, prepare });
        }
        true
    }

    /// The disk loses a record that is written.
    pub(crate) fn damage(&mut self, index: usize, op: Op) -> bool {
        let record = self.nodes[index].log.get_mut(index_of(op));
        let Some(record) = record.filter(|record| !record.damaged) else {
            return false;
        };
        record.damaged = true;
        self.say(|| format!("{index} loses the body of {}", op.0));
        true
    }

    /// The damaged ops of which the journal knows the identity, and misses the body.
    fn wanted(&self, index: usize) -> Vec<(Op, u128)> {
        let node = &self.nodes[index];
        let lost =
            |record: &Record| record.damaged && !node.fetched.contains_key(&record.header.op);
        // A damaged record is named by the next one, if that is whole; a journal that runs knows
        // the name of its head.
        let named = |place: usize| match node.log.get(place + 1) {
            Some(next) => (!lost(next)).then_some(next.header.parent),
            None => Some(node.log[place].header.checksum),
        };
        let places = (0..node.log.len()).filter(|place| lost(&node.log[*place]));
        places
            .filter_map(|place| Some((node.log[place].header.op, named(place)?)))
            .collect()
    }

    /// The journal of `index` asks `other` for what it misses.
    pub(crate) fn mend(&mut self, index: usize, other: usize) {
        let Some(group) = &self.nodes[index].group else {
            return;
        };
        let view = group.view();
        for (op, checksum) in self.wanted(index) {
            let held = self.held(index, op, checksum);
            if let Some((header, frame)) = held {
                // The process still has it in memory.
                self.fetch(index, &header, &frame);
                continue;
            }
            let message = Message::RequestBody {
                group: GroupId(1024),
                op,
                checksum,
            };
            let frame = message.encode(CLUSTER, view, replica(index));
            self.post(index, other, Letter::Frame(frame));
        }
    }

    /// What the group has of an op that it has not applied.
    fn held(&self, index: usize, op: Op, checksum: u128) -> Option<(PrepareHeader, Bytes)> {
        let group = self.nodes[index].group.as_ref()?;
        let frames = group.uncommitted().map(|frame| {
            let header = PrepareHeader::decode(frame).expect("ours");
            (header, frame.clone())
        });
        let mut same = frames.filter(|(header, _)| (header.op, header.checksum) == (op, checksum));
        same.next()
    }

    /// Takes a body that the journal wants; once a gap is whole, all of it is written.
    pub(super) fn fetch(&mut self, index: usize, header: &PrepareHeader, frame: &Bytes) -> bool {
        if !self.wanted(index).contains(&(header.op, header.checksum)) {
            return false;
        }
        let node = &mut self.nodes[index];
        node.fetched.insert(header.op, frame.clone());
        // The gap from its lowest record on.
        let mut first = index_of(header.op);
        while first > 0 && node.log[first - 1].damaged {
            first -= 1;
        }
        let gap = || node.log[first..].iter().take_while(|record| record.damaged);
        if !gap().all(|record| node.fetched.contains_key(&record.header.op)) {
            return true;
        }
        let mut repaired = Vec::new();
        for record in &mut node.log[first..] {
            if !record.damaged {
                break;
            }
            let frame = node.fetched.remove(&record.header.op);
            record.frame = frame.expect("all of the gap is fetched");
            record.damaged = false;
            repaired.push((record.header, record.frame.clone()));
        }
        let now = self.now;
        for (header, frame) in repaired {
            self.say(|| format!("{index} has {} again", header.op.0));
            self.act(index, |group, out| {
                group.on_repaired(now, header, frame, out)
            });
        }
        true
    }

    /// The disk is replaced by an empty one, while the process is down.
    pub(crate) fn wipe(&mut self, index: usize) {
        self.say(|| format!("{index} gets a new disk"));
        self.crash(index, Crash::Process, 0);
        let node = &mut self.nodes[index];
        node.log.clear();
        node.synced = 0;
        node.stored = BLANK;
    }

    /// Ends a process. Of what the disks had not done yet a prefix may be done: `kept` entries.
    pub(crate) fn crash(&mut self, index: usize, crash: Crash, kept: usize) {
        self.nodes[index].group = None;
        self.nodes[index].reads.clear();
        self.nodes[index].fetched.clear();
        for _ in 0..kept {
            if let Some(op) = self.nodes[index].queue.pop_front() {
                self.put(index, op);
            }
            let node = &mut self.nodes[index];
            if let Some(stand) = node.views.pop_front() {
                node.stored = stand;
            }
        }
        let alone = self.count() == 1;
        let node = &mut self.nodes[index];
        node.queue.clear();
        node.views.clear();
        if crash == Crash::Power {
            let extra = node.log.len() - node.synced;
            node.log.truncate(node.synced + kept.min(extra));
            if self.mode == Mode::Replicated {
                node.put_in_doubt();
                // Alone there is nobody to ask.
                self.loss |= alone;
            }
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
        node.cut_damaged_tail();
        // Recovery syncs what it has read, so that it stays true.
        node.synced = node.log.len();
        let recovered = node.recovered();
        node.applied = recovered.commit;
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

impl super::Node {
    fn put_in_doubt(&mut self) {
        if self.stored.trust == Trust::Trusted {
            self.stored.trust = Trust::Doubt;
        }
    }

    /// Damage at the end may have held more: it is cut, and the log is in doubt.
    fn cut_damaged_tail(&mut self) {
        while self.log.last().is_some_and(|record| record.damaged) {
            self.log.pop();
            self.put_in_doubt();
        }
    }

    /// What recovery finds.
    fn recovered(&self) -> Recovered {
        let whole = || self.log.iter().filter(|record| !record.damaged);
        let headers: Vec<PrepareHeader> = whole().map(|record| record.header).collect();
        let committed = headers.iter().map(|header| header.commit).max();
        let committed = committed.unwrap_or_default();
        let hole = self.log.iter().position(|record| record.damaged);
        let applied = index_after(committed).min(hole.unwrap_or(usize::MAX));
        let suffix = self.log[applied..]
            .iter()
            .map(|record| match record.damaged {
                true => Entry::Missing,
                false => Entry::Frame(record.frame.clone()),
            });
        let head = self.log.last().map(|record| record.header);
        let Stand {
            view,
            log_view,
            trust,
        } = self.stored;
        Recovered {
            view,
            log_view,
            commit: Op(applied as u64),
            committed,
            head: head.map_or((Op(0), 0), |head| (head.op, head.checksum)),
            headers,
            suffix: suffix.collect(),
            trust,
            promised_until: base::Instant::ZERO,
        }
    }
}

fn index_after(op: Op) -> usize {
    usize::try_from(op.0).expect("small")
}
