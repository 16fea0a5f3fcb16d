//! DiskDamage to what is durable in the logs, and what has become of it.
//!
//! A fault says which node and what kind; where it happens is worked out here from what the
//! node's disk holds, and the atlas is asked whether that many copies may be damaged.

use std::{collections::BTreeMap, ops::Range};

use base::{Domain, GroupId, Op, Prng};
use wire::HEADER_SIZE;

use super::{World, nodes::Life};
use crate::{
    atlas::Part,
    schedule::DiskDamage,
    segments::{Record, SECTOR, directory, looks_torn, records, segment_of},
};

/// DiskDamage that was done.
#[derive(Debug)]
pub(super) struct Wound {
    node: u8,
    group: GroupId,
    /// The records it touched, by op and identity.
    records: Vec<(Op, u128)>,
    /// It was done to the last segment.
    last: bool,
}

/// DiskDamage that could be done.
struct Plan {
    path: String,
    wound: Wound,
    part: Part,
    /// Bytes that the file then holds.
    edits: Vec<(usize, Vec<u8>)>,
    /// Bytes in sectors that can then not be read.
    unreadable: Option<Range<usize>>,
}

/// Places looked at before a fault is given up.
const ATTEMPTS: u32 = 6;

impl World {
    /// Damages something on the disk of `node`, if there is anything that may be damaged.
    pub(super) fn damage(&mut self, node: u8, damage: DiskDamage, pick: u64) {
        self.tend_wounds();
        let mut prng = Prng::new(pick, Domain::Disk, u64::MAX);
        for _ in 0..ATTEMPTS {
            let Some(plan) = self.plan_damage(node, damage, &mut prng) else {
                continue;
            };
            if self.atlas.admit_damage(self.time, node, plan.part) {
                self.execute_damage(damage, plan);
                return;
            }
            base::sometimes!("fault: the atlas refused damage");
        }
    }

    fn execute_damage(&mut self, damage: DiskDamage, plan: Plan) {
        match damage {
            DiskDamage::Rot => base::sometimes!("fault: bits of a record changed"),
            DiskDamage::Unreadable => base::sometimes!("fault: sectors became unreadable"),
            DiskDamage::LostWrite => base::sometimes!("fault: a write was lost"),
            DiskDamage::MisdirectedWrite => base::sometimes!("fault: a write went astray"),
            DiskDamage::Fresh => base::sometimes!("fault: what others lack was damaged"),
        }
        let wound = plan.wound;
        base::sometimes!(wound.last, "fault: damage to a last segment");
        base::sometimes!(!wound.last, "fault: damage to a sealed segment");
        if self.trace {
            let what = format!("{damage:?} of {}: {wound:?}", plan.path);
            super::trace::world(self.time, &what);
        }
        self.statistics.damages += 1;
        let disk = &mut self.nodes[usize::from(wound.node)].disk;
        for (at, bytes) in plan.edits {
            disk.damage(&plan.path, at as u64, &bytes);
        }
        if let Some(range) = plan.unreadable {
            disk.spoil(&plan.path, range.start as u64, range.len() as u64);
        }
        self.wounds.push(wound);
    }

    fn plan_damage(&self, node: u8, damage: DiskDamage, prng: &mut Prng) -> Option<Plan> {
        let fresh = damage == DiskDamage::Fresh;
        let (path, last) = self.draw_segment(node, fresh, prng)?;
        let disk = &self.nodes[usize::from(node)].disk;
        let bytes = disk.durable(&path)?;
        let mut found = records(bytes);
        // The end of the last one may not be on the disk yet.
        found.retain(|record| record.range.end <= bytes.len());
        // A running process has no use for a segment's header; who starts mends it.
        let running = self.nodes[usize::from(node)].life == Life::Running;
        let from = if running { HEADER_SIZE } else { 0 };
        let mut drawn = found.clone();
        if fresh {
            // The ones before stay, and the last, which tells that there are others.
            drawn.pop()?;
            let (group, _) = segment_of(&path)?;
            drawn.retain(|record| self.is_lacked(node, group, record));
        }
        let (edits, unreadable) = draw_damage(damage, (bytes, from), &drawn, prng)?;
        let edited = edits.iter().map(|(at, bytes)| *at..at + bytes.len());
        let ranges: Vec<Range<usize>> = edited.chain(unreadable.clone()).collect();
        let touched = touched(&found, &ranges)?;
        let clean =
            |range: &Range<usize>| disk.is_clean(&path, range.start as u64, range.len() as u64);
        if !ranges.iter().all(clean) {
            return None;
        }
        let (group, _) = segment_of(&path)?;
        let identities = touched.iter().map(|record| (record.op, record.checksum));
        let wound = Wound {
            node,
            group,
            records: identities.collect(),
            last,
        };
        let part = if last {
            let after = edited_copy(bytes, &edits, unreadable.as_ref());
            let hidden = touched.iter().any(|record| {
                looks_torn(&after, &record.range) && !vouched_for(&found, record, &ranges)
            });
            // Nobody could tell it from a write that a power loss tore before it was
            // acknowledged; or somebody may need it.
            if hidden || self.is_damaged_beside(node) {
                return None;
            }
            Part::Last
        } else {
            let copies = self.copies_beside(&wound);
            Part::Sealed { copies }
        };
        Some(Plan {
            path,
            wound,
            part,
            edits,
            unreadable,
        })
    }

    /// Whether some other node has not got a record.
    fn is_lacked(&self, node: u8, group: GroupId, record: &Record) -> bool {
        let lacks = |other: u8| {
            let record = (record.op, record.checksum);
            other != node && self.holds(other, group, record) != Some(true)
        };
        (0..self.shape.replicas).any(lacks)
    }

    /// Whether a segment's last records but one are on some disks only.
    fn is_fresh(&self, node: u8, path: &str) -> bool {
        let disk = &self.nodes[usize::from(node)].disk;
        let (Some(bytes), Some((group, _))) = (disk.durable(path), segment_of(path)) else {
            return false;
        };
        let found = records(bytes);
        let before = found.len().checked_sub(2).and_then(|at| found.get(at));
        before.is_some_and(|record| self.is_lacked(node, group, record))
    }

    /// Some segment of a node, and whether it is the last of its log. What a running process
    /// appends to is not drawn; of `fresh` ones only those.
    fn draw_segment(&self, node: u8, fresh: bool, prng: &mut Prng) -> Option<(String, bool)> {
        let mut paths = self.segments_of(node);
        let running = self.nodes[usize::from(node)].life == Life::Running;
        let group = |path: &String| segment_of(path).map(|(group, _)| group);
        let is_last =
            |index: usize| paths.get(index + 1).and_then(group) != paths.get(index).and_then(group);
        let open = (0..paths.len()).filter(|&index| match fresh {
            false => !running || !is_last(index),
            true => !running && is_last(index) && self.is_fresh(node, &paths[index]),
        });
        let open: Vec<usize> = open.collect();
        if open.is_empty() {
            return None;
        }
        let index = open[prng.index(open.len())];
        let last = is_last(index);
        Some((paths.swap_remove(index), last))
    }

    /// The segment files of a node, by group and first op.
    fn segments_of(&self, node: u8) -> Vec<String> {
        let disk = &self.nodes[usize::from(node)].disk;
        let all = ["metadata", "partitions"].map(|directory| disk.files_below(directory));
        let paths = all.iter().flatten().map(|(path, _)| *path);
        paths
            .filter(|path| segment_of(path).is_some())
            .map(String::from)
            .collect()
    }

    /// Within what time every scrubber has read all that is sealed: one chunk of one group at a
    /// time, the groups of a shard in turn, however few chunks another has.
    pub(super) fn scrub_round(&self) -> u64 {
        let period = u64::try_from(self.shape.timing.scrub.as_micros()).expect("short");
        let chunk = self.shape.limits.read_chunk;
        let rounds = (0..self.shape.replicas).map(|node| {
            let disk = &self.nodes[usize::from(node)].disk;
            let mut chunks: BTreeMap<GroupId, usize> = BTreeMap::new();
            for path in self.segments_of(node) {
                let (group, _) = segment_of(&path).expect("it is a segment");
                let size = disk.durable(&path).map_or(0, <[u8]>::len);
                *chunks.entry(group).or_default() += 1 + size.div_ceil(chunk);
            }
            let most = chunks.values().copied().max().unwrap_or(0);
            (most * chunks.len()) as u64
        });
        period * rounds.max().unwrap_or(0)
    }

    /// How many other nodes hold all these records whole and durable.
    fn copies_beside(&self, wound: &Wound) -> u8 {
        let holds = |node: u8| {
            node != wound.node
                && wound
                    .records
                    .iter()
                    .all(|&record| self.holds(node, wound.group, record) == Some(true))
        };
        let holders = (0..self.shape.replicas).filter(|&node| holds(node)).count();
        u8::try_from(holders).expect("few nodes")
    }

    /// Damages every copy of some record; the promise is broken.
    pub(super) fn damage_everywhere(&mut self, pick: u64) {
        let mut prng = Prng::new(pick, Domain::Disk, u64::MAX);
        let node = u8::try_from(prng.below(u64::from(self.shape.replicas))).expect("a node");
        let Some((path, _)) = self.draw_segment(node, false, &mut prng) else {
            return;
        };
        let disk = &self.nodes[usize::from(node)].disk;
        let found = records(disk.durable(&path).unwrap_or_default());
        let (Some((group, _)), false) = (segment_of(&path), found.is_empty()) else {
            return;
        };
        let op = found[prng.index(found.len())].op;
        base::sometimes!("broken promise: every copy of a record is damaged");
        self.excuses.everywhere = true;
        if self.trace {
            super::trace::world(
                self.time,
                &format!("every copy of {group} op {op} is damaged"),
            );
        }
        for node in 0..self.shape.replicas {
            let Some((path, Some(record))) = self.durable_record(node, group, op) else {
                continue;
            };
            let at = record.range.start + prng.index(record.range.len());
            let disk = &mut self.nodes[usize::from(node)].disk;
            if disk.is_clean(&path, at as u64, 1) {
                let byte = disk.durable(&path).expect("it is clean")[at];
                disk.damage(&path, at as u64, &[!byte]);
                self.statistics.damages += 1;
            }
        }
    }

    /// Damages the record of one op on a node; why not, if it may not be.
    pub(super) fn damage_record(
        &mut self,
        node: u8,
        (group, op): (GroupId, Op),
        how: super::Damaged,
    ) -> Result<(), String> {
        self.tend_wounds();
        let found = self.durable_record(node, group, op);
        let Some((path, Some(record))) = found else {
            return Err(format!("replica {node} does not hold {group} op {op}"));
        };
        let segments = self.segments_of(node);
        let of_group = |path: &&String| segment_of(path).is_some_and(|(of, _)| of == group);
        let last = segments.iter().rfind(of_group) == Some(&path);
        let wound = Wound {
            node,
            group,
            records: vec![(op, record.checksum)],
            last,
        };
        let part = if last {
            Part::Last
        } else {
            let copies = self.copies_beside(&wound);
            Part::Sealed { copies }
        };
        if !self.atlas.admit_damage(self.time, node, part) {
            return Err("more than a cluster is to survive: say `broken`".into());
        }
        let disk = &mut self.nodes[usize::from(node)].disk;
        let (start, size) = (record.range.start, record.range.len());
        if !disk.is_clean(&path, start as u64, size as u64) {
            return Err("it is just being written".into());
        }
        match how {
            super::Damaged::Bit => {
                let at = start + size / 2;
                let byte = disk.durable(&path).expect("it is clean")[at];
                disk.damage(&path, at as u64, &[byte ^ 4]);
            }
            super::Damaged::Astray => {
                let bytes = disk.durable(&path).expect("it is clean");
                let fits = |other: &Record| other.op != op && other.range.len() <= size;
                let other = records(bytes).into_iter().find(fits);
                let other = other.ok_or("no other record fits there")?;
                let copy = bytes[other.range].to_vec();
                disk.damage(&path, start as u64, &copy);
            }
            super::Damaged::Zeros => disk.damage(&path, start as u64, &vec![0; size]),
            super::Damaged::Sectors => disk.spoil(&path, start as u64, size as u64),
        }
        self.statistics.damages += 1;
        self.wounds.push(wound);
        Ok(())
    }

    /// The segment of a node in which an op stands, and its record there if it is durable and
    /// whole; none at all if the log begins after it.
    fn durable_record(&self, node: u8, group: GroupId, op: Op) -> Option<(String, Option<Record>)> {
        let disk = &self.nodes[usize::from(node)].disk;
        let files = disk.files_below(&directory(group));
        let begins_before = |path: &str| segment_of(path).is_some_and(|(_, first)| first <= op);
        let (path, _) = files.iter().rfind(|(path, _)| begins_before(path))?;
        let found = records(disk.durable(path).unwrap_or_default());
        let record = found
            .into_iter()
            .find(|record| record.op == op && record.whole);
        Some((String::from(*path), record))
    }

    /// Whether a node holds a record durable and whole; none if its log begins after it.
    fn holds(&self, node: u8, group: GroupId, (op, checksum): (Op, u128)) -> Option<bool> {
        let (_, record) = self.durable_record(node, group, op)?;
        Some(record.is_some_and(|record| record.checksum == checksum))
    }

    /// Forgets wounds that have healed or no longer matter.
    fn tend_wounds(&mut self) {
        let mut wounds = std::mem::take(&mut self.wounds);
        wounds.retain(|wound| self.is_open(wound));
        self.wounds = wounds;
        for node in 0..self.shape.replicas {
            if !self
                .wounds
                .iter()
                .any(|wound| wound.node == node && wound.last)
            {
                self.atlas.on_repaired(node);
            }
        }
    }

    fn is_open(&self, wound: &Wound) -> bool {
        wound.records.iter().any(|&(op, checksum)| {
            let canonical = self.checkers.committed.get(wound.group, op);
            let matters = canonical.is_none_or(|canonical| canonical.checksum == checksum);
            matters && self.holds(wound.node, wound.group, (op, checksum)) == Some(false)
        })
    }

    /// Whether a node other than this one has damage that is not repaired.
    pub(super) fn is_damaged_beside(&self, node: u8) -> bool {
        let mut wounds = self.wounds.iter();
        wounds.any(|wound| wound.node != node && self.is_open(wound))
    }

    /// Whether a node has damage that is not repaired.
    pub(super) fn is_wounded(&self, node: u8) -> bool {
        let mut wounds = self.wounds.iter();
        wounds.any(|wound| wound.node == node && self.is_open(wound))
    }

    /// The node has lost its disk, and its damage with it.
    pub(super) fn forget_damage(&mut self, node: u8) {
        self.wounds.retain(|wound| wound.node != node);
    }

    /// Committed ops whose damaged copies are not repaired, if any are left.
    pub(super) fn damage_left(&self) -> Option<String> {
        if self.shape.broken {
            return None; // There may be nothing left to repair it from.
        }
        let committed = |wound: &&Wound| {
            let head = self.checkers.committed.head(wound.group);
            wound.records.iter().all(|(op, _)| *op <= head)
        };
        let mut wounds = self.wounds.iter().filter(committed);
        let wound = wounds.find(|wound| self.is_open(wound))?;
        let ops: Vec<u64> = wound.records.iter().map(|(op, _)| op.0).collect();
        let Wound { node, group, .. } = wound;
        Some(format!(
            "replica {node} has not repaired {group} ops {ops:?}"
        ))
    }
}

/// What a file holds after damage, with nothing where it cannot be read.
fn edited_copy(bytes: &[u8], edits: &Edits, unreadable: Option<&Range<usize>>) -> Vec<u8> {
    let mut after = bytes.to_vec();
    for (at, bytes) in edits {
        after[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    if let Some(range) = unreadable {
        after[range.clone()].fill(0);
    }
    after
}

type Edits = Vec<(usize, Vec<u8>)>;

/// What the file holds after the damage, and what of it cannot be read.
fn draw_damage(
    damage: DiskDamage,
    (bytes, from): (&[u8], usize),
    found: &[Record],
    prng: &mut Prng,
) -> Option<(Edits, Option<Range<usize>>)> {
    let last = found.last()?;
    match damage {
        DiskDamage::Fresh => {
            let record = &found[prng.index(found.len())].range;
            let at = record.start + prng.index(record.len());
            Some((vec![(at, vec![bytes[at] ^ (1 << prng.below(8))])], None))
        }
        DiskDamage::Rot => {
            let at = from + prng.index(last.range.end - from);
            let flipped = |at: usize, prng: &mut Prng| vec![bytes[at] ^ (1 << prng.below(8))];
            let mut edits = vec![(at, flipped(at, prng))];
            for _ in 0..prng.below(3) {
                let other = at / SECTOR * SECTOR + prng.index(SECTOR);
                if (from..last.range.end).contains(&other)
                    && edits.iter().all(|(known, _)| *known != other)
                {
                    edits.push((other, flipped(other, prng)));
                }
            }
            Some((edits, None))
        }
        DiskDamage::Unreadable => {
            let first = prng.index(last.range.end.div_ceil(SECTOR));
            let end = (first + 1 + prng.index(3)) * SECTOR;
            Some((Vec::new(), Some(first * SECTOR..end.min(bytes.len()))))
        }
        DiskDamage::LostWrite => {
            let followed = found.len() - 1;
            let first = (followed > 0).then(|| prng.index(followed))?;
            let end = (first + 1 + prng.index(3)).min(followed);
            let range = found[first].range.start..found[end - 1].range.end;
            Some((vec![(range.start, vec![0; range.len()])], None))
        }
        DiskDamage::MisdirectedWrite => {
            let followed = found.len() - 1;
            let (from, to) =
                (followed > 0).then(|| (prng.index(followed), prng.index(followed)))?;
            let (from, to) = (&found[from], &found[to]);
            let target = to.range.start..to.range.start + from.range.len();
            let apart = target.end <= from.range.start || from.range.end <= target.start;
            if !apart || target.end > last.range.start {
                return None;
            }
            let mut edits = vec![(target.start, bytes[from.range.clone()].to_vec())];
            if prng.chance(1, 2) {
                edits.push((from.range.start, vec![0; from.range.len()]));
            }
            Some((edits, None))
        }
    }
}

/// The records in these ranges, all of them whole so far; a segment's header counts for the
/// first. None if there is none.
fn touched<'a>(found: &'a [Record], ranges: &[Range<usize>]) -> Option<Vec<&'a Record>> {
    let first = found.first()?;
    let overlap = |record: &&Record| {
        ranges.iter().any(|range| {
            let start = if record.op == first.op {
                0
            } else {
                record.range.start
            };
            range.start < record.range.end && start < range.end
        })
    };
    let touched: Vec<&Record> = found.iter().filter(overlap).collect();
    let whole = touched.iter().all(|record| record.whole);
    (whole && !touched.is_empty()).then_some(touched)
}

/// Whether a later record that stays whole says that this one is committed, so that nobody can
/// take it for one that was never acknowledged.
fn vouched_for(found: &[Record], record: &Record, ranges: &[Range<usize>]) -> bool {
    let untouched = |other: &&Record| {
        ranges
            .iter()
            .all(|range| range.end <= other.range.start || other.range.end <= range.start)
    };
    let mut later = found.iter().filter(|other| other.op > record.op);
    later.any(|other| other.whole && other.commit >= record.op && untouched(&other))
}
