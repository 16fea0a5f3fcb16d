//! The handshake on a link between two replicas: one frame each way, before anything else.
//!
//! ```text
//!   lower replica                              higher replica
//!       │ ── dials ─────────────────────────────▶ │
//!       │ ── ReplicaHello ──────────────────────▶ │ refuses, or hands the link to the shard
//!       │ ◀───────────────── ReplicaWelcome ───── │
//! ```
//!
//! Both frames are sealed, and equal but for the status:
//!
//! ```text
//! 128 boot u64   136 version u16   138 shard u16   140 shard_count u16
//! 142 replica_count u8   143 status u8 (hello: 0)   144 zero
//! ```
//!
//! A refusal is answered before the link is closed, so that the log of either side says why.

use base::{Buffer, Bytes, ReplicaIndex, ShardIndex, View};
use wire::{
    Command, HEADER_SIZE, array, put,
    replica::{Envelope, Invalid, seal, verify},
};

/// Version of all frames between replicas; both sides must speak the same.
pub const REPLICA_PROTOCOL: u16 = 2;

const BOOT: usize = 128;
const VERSION: usize = 136;
const SHARD: usize = 138;
const SHARD_COUNT: usize = 140;
const REPLICA_COUNT: usize = 142;
const STATUS: usize = 143;
const ZERO: usize = 144;

/// Who stands at one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster, from the hash of its name.
    pub cluster: u128,
    /// The replica.
    pub replica: ReplicaIndex,
    /// Replicas in its roster.
    pub replica_count: u8,
    /// The shard that speaks; a link joins shards of one number.
    pub shard: ShardIndex,
    /// Shards of its node.
    pub shard_count: u16,
    /// New with every start of the process.
    pub boot: u64,
    /// Of the frames it speaks.
    pub version: u16,
}

/// Why a link was refused; the numbers stand in the welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Another version of the frames: upgrade one side.
    Version = 1,
    /// Another cluster: an address in the roster is wrong.
    Cluster = 2,
    /// The rosters differ in size.
    ReplicaCount = 3,
    /// The replica is not in the roster, or not the one that was dialed.
    Replica = 4,
    /// The lower replica dials, and this was not it.
    Direction = 5,
    /// The nodes have different numbers of shards.
    ShardCount = 6,
    /// No such shard, or not the one that was dialed.
    Shard = 7,
}

impl Refusal {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Version,
            2 => Self::Cluster,
            3 => Self::ReplicaCount,
            4 => Self::Replica,
            5 => Self::Direction,
            6 => Self::ShardCount,
            7 => Self::Shard,
            _ => return None,
        })
    }
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Who answers.
    pub identity: Identity,
    /// Whether the link stands.
    pub status: Result<(), Refusal>,
}

impl Identity {
    /// The frame that opens a link.
    #[must_use]
    pub fn hello(&self) -> Bytes {
        self.frame(Command::ReplicaHello, 0)
    }

    /// The frame that answers a hello.
    #[must_use]
    pub fn welcome(&self, status: Result<(), Refusal>) -> Bytes {
        let status = match status {
            Ok(()) => 0,
            Err(refusal) => refusal as u8,
        };
        self.frame(Command::ReplicaWelcome, status)
    }

    fn frame(&self, command: Command, status: u8) -> Bytes {
        let mut frame = Buffer::zeroed(HEADER_SIZE);
        let header = frame.as_mut_slice();
        let envelope = Envelope {
            cluster: self.cluster,
            view: View(0),
            command,
            replica: self.replica,
        };
        envelope.encode(header);
        put(header, BOOT, self.boot.to_le_bytes());
        put(header, VERSION, self.version.to_le_bytes());
        put(header, SHARD, self.shard.0.to_le_bytes());
        put(header, SHARD_COUNT, self.shard_count.to_le_bytes());
        put(header, REPLICA_COUNT, [self.replica_count]);
        put(header, STATUS, [status]);
        seal(header);
        frame.freeze()
    }

    /// Reads the hello of a peer; whether it may stay says [`Self::check_hello`].
    ///
    /// # Errors
    /// [`Invalid`] if it is damaged or something else.
    pub fn decode_hello(frame: &[u8]) -> Result<Self, Invalid> {
        let (identity, status) = Self::decode(frame, Command::ReplicaHello)?;
        if status != 0 {
            return Err(Invalid::Field);
        }
        Ok(identity)
    }

    /// Reads the welcome of a peer; whether it is the right one says [`Self::check_welcome`].
    ///
    /// # Errors
    /// [`Invalid`] if it is damaged or something else.
    pub fn decode_welcome(frame: &[u8]) -> Result<Welcome, Invalid> {
        let (identity, status) = Self::decode(frame, Command::ReplicaWelcome)?;
        let status = match status {
            0 => Ok(()),
            byte => Err(Refusal::from_byte(byte).ok_or(Invalid::Field)?),
        };
        Ok(Welcome { identity, status })
    }

    fn decode(frame: &[u8], command: Command) -> Result<(Self, u8), Invalid> {
        verify(frame)?;
        let envelope = Envelope::decode(frame)?;
        if envelope.command != command {
            return Err(Invalid::Command);
        }
        if frame.len() != HEADER_SIZE {
            return Err(Invalid::Size);
        }
        let u16_at = |at| array(frame, at).map(u16::from_le_bytes);
        let version = u16_at(VERSION)?;
        if version == REPLICA_PROTOCOL && frame[ZERO..].iter().any(|&byte| byte != 0) {
            return Err(Invalid::Field);
        }
        let identity = Self {
            cluster: envelope.cluster,
            replica: envelope.replica,
            replica_count: frame[REPLICA_COUNT],
            shard: ShardIndex(u16_at(SHARD)?),
            shard_count: u16_at(SHARD_COUNT)?,
            boot: u64::from_le_bytes(array(frame, BOOT)?),
            version,
        };
        Ok((identity, frame[STATUS]))
    }

    /// Whether the replica that dialed may have a link; any shard of this node may ask.
    ///
    /// # Errors
    /// [`Refusal`], for the welcome and the log.
    pub fn check_hello(&self, peer: &Self) -> Result<(), Refusal> {
        self.check_cluster(peer)?;
        if peer.replica >= self.replica {
            return Err(Refusal::Direction);
        }
        if peer.shard.0 >= self.shard_count {
            return Err(Refusal::Shard);
        }
        Ok(())
    }

    /// Whether this shard, which dialed `replica`, has reached it and is welcome.
    ///
    /// # Errors
    /// The peer's [`Refusal`], or our own.
    pub fn check_welcome(&self, welcome: &Welcome, replica: ReplicaIndex) -> Result<(), Refusal> {
        welcome.status?;
        let peer = &welcome.identity;
        self.check_cluster(peer)?;
        if peer.replica != replica {
            return Err(Refusal::Replica);
        }
        if peer.replica <= self.replica {
            return Err(Refusal::Direction);
        }
        if peer.shard != self.shard {
            return Err(Refusal::Shard);
        }
        Ok(())
    }

    fn check_cluster(&self, peer: &Self) -> Result<(), Refusal> {
        if peer.version != self.version {
            return Err(Refusal::Version);
        }
        if peer.cluster != self.cluster {
            return Err(Refusal::Cluster);
        }
        if peer.replica_count != self.replica_count {
            return Err(Refusal::ReplicaCount);
        }
        if peer.replica.0 >= self.replica_count {
            return Err(Refusal::Replica);
        }
        if peer.shard_count != self.shard_count {
            return Err(Refusal::ShardCount);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn identity(replica: u8) -> Identity {
        Identity {
            cluster: 7 << 70 | 9,
            replica: ReplicaIndex(replica),
            replica_count: 3,
            shard: ShardIndex(1),
            shard_count: 2,
            boot: 0xfeed_0000_1234,
            version: REPLICA_PROTOCOL,
        }
    }

    #[test]
    fn lower_replica_is_welcomed_by_the_higher() {
        let (lower, higher) = (identity(0), identity(2));
        let peer = Identity::decode_hello(&lower.hello()).unwrap();
        assert_eq!(peer, lower);
        let status = higher.check_hello(&peer);
        assert_eq!(status, Ok(()));
        let welcome = Identity::decode_welcome(&higher.welcome(status)).unwrap();
        assert_eq!(
            welcome,
            Welcome {
                identity: higher,
                status
            }
        );
        assert_eq!(lower.check_welcome(&welcome, ReplicaIndex(2)), Ok(()));
    }

    /// Each field that must agree is changed alone; its own reason comes back, and survives the
    /// way to the dialer.
    #[test]
    fn every_mismatch_has_its_own_refusal() {
        let change = |change: fn(&mut Identity)| {
            let mut peer = identity(1);
            change(&mut peer);
            peer
        };
        let cases = [
            (change(|peer| peer.version += 1), Refusal::Version),
            (change(|peer| peer.cluster ^= 1), Refusal::Cluster),
            (change(|peer| peer.replica_count = 5), Refusal::ReplicaCount),
            (
                change(|peer| peer.replica = ReplicaIndex(3)),
                Refusal::Replica,
            ),
            (
                change(|peer| peer.replica = ReplicaIndex(2)),
                Refusal::Direction,
            ),
            (change(|peer| peer.shard_count = 4), Refusal::ShardCount),
            (change(|peer| peer.shard = ShardIndex(2)), Refusal::Shard),
        ];
        let own = identity(2);
        for (peer, refusal) in cases {
            let read = Identity::decode_hello(&peer.hello()).unwrap();
            let status = own.check_hello(&read);
            assert_eq!(status, Err(refusal));
            let welcome = Identity::decode_welcome(&own.welcome(status)).unwrap();
            assert_eq!(welcome.status, status);
        }
    }

    #[test]
    fn dialer_refuses_whom_it_did_not_dial() {
        let own = identity(0);
        let welcome = |replica| Welcome {
            identity: identity(replica),
            status: Ok(()),
        };
        assert_eq!(
            own.check_welcome(&welcome(1), ReplicaIndex(2)),
            Err(Refusal::Replica)
        );
        assert_eq!(
            own.check_welcome(&welcome(0), ReplicaIndex(0)),
            Err(Refusal::Direction)
        );
        let mut other = welcome(1);
        other.identity.shard = ShardIndex(0);
        assert_eq!(
            own.check_welcome(&other, ReplicaIndex(1)),
            Err(Refusal::Shard)
        );
        let refused = Welcome {
            status: Err(Refusal::Cluster),
            ..welcome(1)
        };
        assert_eq!(
            own.check_welcome(&refused, ReplicaIndex(1)),
            Err(Refusal::Cluster)
        );
    }

    #[test]
    fn any_damaged_byte_is_noticed() {
        let hello: Vec<u8> = identity(0).hello().to_vec();
        for at in 0..hello.len() {
            let mut damaged = hello.clone();
            damaged[at] ^= 0x40;
            assert!(Identity::decode_hello(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(Identity::decode_hello(&hello[..255]), Err(Invalid::Size));
        assert_eq!(Identity::decode_welcome(&hello), Err(Invalid::Command));
    }
}
