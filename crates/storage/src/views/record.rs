//! A record of the view store, 64 bytes, eight to a sector.
//!
//! ```text
//!   0 checksum u128 (of bytes 16 to 64)   16 version u8 (1)   17 kind u8   18 zero to 20
//!  20 sequence u32   24 durable u32       28 zero to 32       32 kind-specific, to 64
//!
//!  kind 1 identity  32 cluster u128  48 replica u8  49 replica_count u8  50 shard u16
//!                   52 shard_count u16
//!  kind 2 boot      32 boot_id u128
//!  kind 3 view      32 group u64     40 view u32    44 log_view u32   48 doubt u8
//!                   doubt: 0 trusted, 1 in doubt, 2 blank
//!  kind 4 forget    32 group u64
//!  kind 5 clean     32 boot_id u128
//!  kind 6 founded   32 op u64
//! ```
//!
//! `sequence` is the record's place in the file, from 0. `durable` is how many records were known
//! durable when this one was written: a record that is not whole although a later one says it was
//! durable is damage, not a torn tail.

use base::{GroupId, Op, ReplicaIndex, ShardIndex, View, checksum::xxh3_128};
use wire::{Cut, array, put, replica::Trust};

/// Size of every record.
pub(crate) const RECORD_SIZE: usize = 64;

/// What is written; version 1 knew neither doubt nor founding and is read as well.
const VERSION: u8 = 2;

/// Whose views these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewsIdentity {
    /// The cluster.
    pub cluster: u128,
    /// This node's number in the roster.
    pub replica: ReplicaIndex,
    /// Nodes in the roster.
    pub replica_count: u8,
    /// The shard.
    pub shard: ShardIndex,
    /// Shards of each node.
    pub shard_count: u16,
}

/// The views of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Views {
    /// It has left all views before this one.
    pub view: View,
    /// The view its log belongs to.
    pub log_view: View,
    /// What the log is worth as a witness of what the replica has acknowledged.
    pub trust: Trust,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Identity(ViewsIdentity),
    /// Logs are trusted since this boot of the machine.
    Boot(u128),
    View(GroupId, Views),
    Forget(GroupId),
    /// Everything was durable when the process stopped, in this boot of the machine; void if it
    /// is not the boot in which the logs are trusted.
    Clean(u128),
    /// This shard has been part of the cluster: a group that it does not know is a new one. With
    /// the op of the metadata at which that was so.
    Founded(Op),
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) version: u8,
    pub(crate) sequence: u32,
    pub(crate) durable: u32,
    pub(crate) entry: Entry,
}

impl Record {
    pub(crate) const fn new(sequence: u32, durable: u32, entry: Entry) -> Self {
        Self {
            version: VERSION,
            sequence,
            durable,
            entry,
        }
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut bytes = [0; RECORD_SIZE];
        let kind = match self.entry {
            Entry::Identity(identity) => {
                put(&mut bytes, 32, identity.cluster.to_le_bytes());
                put(&mut bytes, 48, [identity.replica.0, identity.replica_count]);
                put(&mut bytes, 50, identity.shard.0.to_le_bytes());
                put(&mut bytes, 52, identity.shard_count.to_le_bytes());
                1
            }
            Entry::Boot(boot_id) => {
                put(&mut bytes, 32, boot_id.to_le_bytes());
                2
            }
            Entry::View(group, views) => {
                put(&mut bytes, 32, group.0.to_le_bytes());
                put(&mut bytes, 40, views.view.0.to_le_bytes());
                put(&mut bytes, 44, views.log_view.0.to_le_bytes());
                let doubt = match views.trust {
                    Trust::Trusted => 0,
                    Trust::Doubt => 1,
                    Trust::Blank => 2,
                };
                put(&mut bytes, 48, [doubt]);
                3
            }
            Entry::Forget(group) => {
                put(&mut bytes, 32, group.0.to_le_bytes());
                4
            }
            Entry::Clean(boot_id) => {
                put(&mut bytes, 32, boot_id.to_le_bytes());
                5
            }
            Entry::Founded(op) => {
                put(&mut bytes, 32, op.0.to_le_bytes());
                6
            }
        };
        put(&mut bytes, 16, [self.version, kind]);
        put(&mut bytes, 20, self.sequence.to_le_bytes());
        put(&mut bytes, 24, self.durable.to_le_bytes());
        let checksum = xxh3_128(&bytes[16..]);
        put(&mut bytes, 0, checksum.to_le_bytes());
        bytes
    }

    /// Reads a record; `None` if it is cut, damaged or of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..RECORD_SIZE)?;
        let [version, kind] = array(bytes, 16).ok()?;
        let known = (1..=VERSION).contains(&version);
        if xxh3_128(&bytes[16..]).to_le_bytes() != bytes[..16] || !known {
            return None;
        }
        let u32_at = |at| array(bytes, at).map(u32::from_le_bytes);
        Some(Self {
            version,
            sequence: u32_at(20).ok()?,
            durable: u32_at(24).ok()?,
            entry: decode_entry(kind, bytes).ok()??,
        })
    }
}

fn decode_entry(kind: u8, bytes: &[u8]) -> Result<Option<Entry>, Cut> {
    let u16_at = |at| array(bytes, at).map(u16::from_le_bytes);
    let view_at = |at| array(bytes, at).map(u32::from_le_bytes).map(View);
    let group = GroupId(u64::from_le_bytes(array(bytes, 32)?));
    let wide = u128::from_le_bytes(array(bytes, 32)?);
    Ok(Some(match kind {
        1 => {
            let [replica, replica_count] = array(bytes, 48)?;
            Entry::Identity(ViewsIdentity {
                cluster: wide,
                replica: ReplicaIndex(replica),
                replica_count,
                shard: ShardIndex(u16_at(50)?),
                shard_count: u16_at(52)?,
            })
        }
        2 => Entry::Boot(wide),
        3 => Entry::View(
            group,
            Views {
                view: view_at(40)?,
                log_view: view_at(44)?,
                trust: match array::<1>(bytes, 48)? {
                    [0] => Trust::Trusted,
                    [2] => Trust::Blank,
                    [_] => Trust::Doubt,
                },
            },
        ),
        4 => Entry::Forget(group),
        5 => Entry::Clean(wide),
        6 => Entry::Founded(Op(group.0)),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_only_whole() {
        let views = Views {
            view: View(9),
            log_view: View(7),
            trust: Trust::Blank,
        };
        for entry in [
            Entry::Identity(ViewsIdentity {
                cluster: 1 << 100,
                replica: ReplicaIndex(2),
                replica_count: 3,
                shard: ShardIndex(4),
                shard_count: 5,
            }),
            Entry::Boot(6),
            Entry::View(GroupId(8 << 10), views),
            Entry::Forget(GroupId(9 << 10)),
            Entry::Clean(10),
            Entry::Founded(Op(13)),
        ] {
            let record = Record::new(11, 12, entry);
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes), Some(record));
            for at in 0..RECORD_SIZE {
                let mut damaged = bytes;
                damaged[at] ^= 1;
                assert_eq!(Record::decode(&damaged), None, "byte {at} of {entry:?}");
            }
        }
    }
}
