//! Frames between replicas, and the prepare, which is also the record on disk.
//!
//! Every header is sealed: `checksum` is XXH3-128 of header bytes 16 to 256, `checksum_body`
//! XXH3-128 of the body. Offsets 0 to 128 are common to all; the rest depends on the command.
//!
//! ```text
//!   0 checksum u128      16 checksum_body u128   32 cluster u128
//!  48 size u32   52 view u32   56 release u32   60 command u8   61 replica u8   62 zero
//! 128 command-specific, drawn at each type
//! ```

mod checkpoint;
mod message;

pub use checkpoint::{CheckpointMark, chunk_header};
pub use message::{Beat, Echo, GroupStatus, Message, StatusRole, Trust, envelope_repair};

use base::{ClientId, GroupId, Op, ReplicaIndex, Timestamp, View, checksum::xxh3_128};

use crate::{Command, HEADER_SIZE, Operation, array, put};

const CHECKSUM: usize = 0;
const CHECKSUM_BODY: usize = 16;
const CLUSTER: usize = 32;
const SIZE: usize = 48;
const VIEW: usize = 52;
const COMMAND: usize = 60;
const REPLICA: usize = 61;

/// Why a frame between replicas, or a record on disk, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Shorter than its header, or than the size in its header.
    Size,
    /// The header's checksum does not match.
    Checksum,
    /// The body's checksum does not match.
    ChecksumBody,
    /// Not a command, or not the expected one.
    Command,
    /// A field has a value outside its range.
    Field,
}

impl From<crate::Cut> for Invalid {
    fn from(_: crate::Cut) -> Self {
        Self::Size
    }
}

/// What all frames between replicas have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The cluster, from the hash of its name.
    pub cluster: u128,
    /// View of the sender's group; of the prepare, for a prepare.
    pub view: View,
    /// Kind.
    pub command: Command,
    /// The sender; of a prepare, the primary that made it.
    pub replica: ReplicaIndex,
}

impl Envelope {
    /// Reads what a verified header has in common with all others.
    ///
    /// # Errors
    /// [`Invalid`] if the header is cut or the command unknown.
    pub fn decode(header: &[u8]) -> Result<Self, Invalid> {
        Ok(Self {
            cluster: u128::from_le_bytes(array(header, CLUSTER)?),
            view: View(u32::from_le_bytes(array(header, VIEW)?)),
            command: Command::from_byte(array::<1>(header, COMMAND)?[0]).ok_or(Invalid::Command)?,
            replica: ReplicaIndex(array::<1>(header, REPLICA)?[0]),
        })
    }

    /// Writes these fields into a header.
    ///
    /// # Panics
    /// If `header` is shorter than one.
    pub fn encode(&self, header: &mut [u8]) {
        put(header, CLUSTER, self.cluster.to_le_bytes());
        put(header, VIEW, self.view.0.to_le_bytes());
        put(header, COMMAND, [self.command as u8]);
        put(header, REPLICA, [self.replica.0]);
    }
}

/// Writes size and both checksums into a frame whose other bytes stand.
///
/// # Panics
/// If the frame is shorter than a header or longer than 4 GiB.
pub fn seal(frame: &mut [u8]) {
    let size = u32::try_from(frame.len()).expect("frames are limited far below 4 GiB");
    put(frame, SIZE, size.to_le_bytes());
    let body = xxh3_128(&frame[HEADER_SIZE..]);
    put(frame, CHECKSUM_BODY, body.to_le_bytes());
    let header = xxh3_128(&frame[CHECKSUM_BODY..HEADER_SIZE]);
    put(frame, CHECKSUM, header.to_le_bytes());
}

/// Whether the header is whole: its checksum matches. The body may not have arrived yet.
///
/// # Errors
/// [`Invalid`] if it is cut or damaged.
pub fn verify_header(header: &[u8]) -> Result<(), Invalid> {
    let header = header.get(..HEADER_SIZE).ok_or(Invalid::Size)?;
    let expected = u128::from_le_bytes(array(header, CHECKSUM)?);
    if xxh3_128(&header[CHECKSUM_BODY..]) != expected {
        return Err(Invalid::Checksum);
    }
    Ok(())
}

/// Whether the frame is whole: size and both checksums match. A repaired prepare inside its
/// envelope is verified too.
///
/// # Errors
/// [`Invalid`] if it is cut or damaged.
pub fn verify(frame: &[u8]) -> Result<(), Invalid> {
    verify_header(frame)?;
    let size = u32::from_le_bytes(array(frame, SIZE)?);
    if size as usize != frame.len() {
        return Err(Invalid::Size);
    }
    let expected = u128::from_le_bytes(array(frame, CHECKSUM_BODY)?);
    let body = &frame[HEADER_SIZE..];
    if frame[COMMAND] == Command::RepairPrepare as u8 {
        // The body is a sealed prepare; the envelope covers its header, which covers the rest.
        let header = body.get(..HEADER_SIZE).ok_or(Invalid::Size)?;
        if xxh3_128(header) != expected {
            return Err(Invalid::ChecksumBody);
        }
        // One level only: envelopes do not nest.
        if header[COMMAND] != Command::Prepare as u8 {
            return Err(Invalid::Command);
        }
        return verify(body);
    }
    if xxh3_128(body) != expected && !base::planted::bug(24) {
        return Err(Invalid::ChecksumBody);
    }
    Ok(())
}

/// Size of a frame, from its header.
///
/// # Errors
/// [`Invalid`] if the header is cut or the size smaller than a header.
pub fn frame_size(header: &[u8]) -> Result<usize, Invalid> {
    let size = u32::from_le_bytes(array(header, SIZE)?) as usize;
    if size < HEADER_SIZE {
        return Err(Invalid::Size);
    }
    Ok(size)
}

/// An op of a group's log, as it travels and as it stands on disk.
///
/// ```text
/// 128 parent u128   144 client u128   160 group u64   168 op u64   176 commit u64
/// 184 timestamp u64 192 request u64   200 session u64 208 request_checksum u128
/// 224 user u32      228 operation u8  229 encryption u8, 0 for none, 1 for AES-256-GCM:
///                                     230 salt [10]   240 tag [16]
/// ```
///
/// Its `checksum` is its identity: `parent` is the checksum of the op before (0 for op 1), so
/// two logs with one checksum at an op are equal up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareHeader {
    /// Identity of this op.
    pub checksum: u128,
    /// Of the body.
    pub checksum_body: u128,
    /// The cluster.
    pub cluster: u128,
    /// Header and body, in bytes.
    pub size: u32,
    /// The view in which it was first prepared.
    pub view: View,
    /// The primary of that view.
    pub replica: ReplicaIndex,
    /// Identity of the op before.
    pub parent: u128,
    /// Who asked; 0 if the server itself did.
    pub client: ClientId,
    /// The group.
    pub group: GroupId,
    /// Position in the group's log.
    pub op: Op,
    /// The primary's commit when it prepared this.
    pub commit: Op,
    /// When the primary prepared this; never steps back along the log.
    pub timestamp: Timestamp,
    /// The client's request number.
    pub request: u64,
    /// The client's session.
    pub session: u64,
    /// The client's own checksum of the request body, 0 if it gave none.
    pub request_checksum: u128,
    /// The acting user.
    pub user: u32,
    /// What to do.
    pub operation: Operation,
    /// How the messages in the body are encrypted, if they are.
    pub encryption: Option<Encryption>,
}

/// What stands in a header about an encrypted body; the rest of what it takes is the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Makes the body's own key; never the same twice.
    pub salt: [u8; 10],
    /// Shows that the body is what was encrypted, and the key the right one.
    pub tag: [u8; 16],
}

impl Encryption {
    const AT: usize = 229;
    const AES_256_GCM: u8 = 1;

    fn decode(header: &[u8]) -> Result<Option<Self>, Invalid> {
        match array::<1>(header, Self::AT)? {
            [0] => Ok(None),
            [Self::AES_256_GCM] => Ok(Some(Self {
                salt: array(header, Self::AT + 1)?,
                tag: array(header, Self::AT + 11)?,
            })),
            _ => Err(Invalid::Field),
        }
    }

    fn encode(&self, header: &mut [u8]) {
        put(header, Self::AT, [Self::AES_256_GCM]);
        put(header, Self::AT + 1, self.salt);
        put(header, Self::AT + 11, self.tag);
    }
}

impl PrepareHeader {
    /// Reads the header of a verified prepare.
    ///
    /// # Errors
    /// [`Invalid`] if it is not a prepare.
    pub fn decode(frame: &[u8]) -> Result<Self, Invalid> {
        let envelope = Envelope::decode(frame)?;
        if envelope.command != Command::Prepare {
            return Err(Invalid::Command);
        }
        let u64_at = |at| array(frame, at).map(u64::from_le_bytes);
        let u128_at = |at| array(frame, at).map(u128::from_le_bytes);
        Ok(Self {
            checksum: u128_at(CHECKSUM)?,
            checksum_body: u128_at(CHECKSUM_BODY)?,
            cluster: envelope.cluster,
            size: u32::from_le_bytes(array(frame, SIZE)?),
            view: envelope.view,
            replica: envelope.replica,
            parent: u128_at(128)?,
            client: ClientId(u128_at(144)?),
            group: GroupId(u64_at(160)?),
            op: Op(u64_at(168)?),
            commit: Op(u64_at(176)?),
            timestamp: Timestamp(u64_at(184)?),
            request: u64_at(192)?,
            session: u64_at(200)?,
            request_checksum: u128_at(208)?,
            user: u32::from_le_bytes(array(frame, 224)?),
            operation: Operation::from_byte(array::<1>(frame, 228)?[0]).ok_or(Invalid::Field)?,
            encryption: Encryption::decode(frame)?,
        })
    }

    /// Writes this header over the first 256 bytes of `frame`, whose body stands, and seals it.
    /// `checksum`, `checksum_body` and `size` are computed, not taken from `self`.
    ///
    /// # Panics
    /// If `frame` is shorter than a header.
    pub fn seal_into(&self, frame: &mut [u8]) {
        self.encode_fields(frame);
        seal(frame);
    }

    /// Writes this header as it was sealed: checksums and size are taken from `self`.
    ///
    /// # Panics
    /// If `header` is shorter than a header.
    pub fn encode_sealed(&self, header: &mut [u8]) {
        self.encode_fields(header);
        put(header, SIZE, self.size.to_le_bytes());
        put(header, CHECKSUM_BODY, self.checksum_body.to_le_bytes());
        put(header, CHECKSUM, self.checksum.to_le_bytes());
    }

    fn encode_fields(&self, frame: &mut [u8]) {
        frame[..HEADER_SIZE].fill(0);
        let envelope = Envelope {
            cluster: self.cluster,
            view: self.view,
            command: Command::Prepare,
            replica: self.replica,
        };
        envelope.encode(frame);
        put(frame, 128, self.parent.to_le_bytes());
        put(frame, 144, self.client.0.to_le_bytes());
        put(frame, 160, self.group.0.to_le_bytes());
        put(frame, 168, self.op.0.to_le_bytes());
        put(frame, 176, self.commit.0.to_le_bytes());
        put(frame, 184, self.timestamp.0.to_le_bytes());
        put(frame, 192, self.request.to_le_bytes());
        put(frame, 200, self.session.to_le_bytes());
        put(frame, 208, self.request_checksum.to_le_bytes());
        put(frame, 224, self.user.to_le_bytes());
        put(frame, 228, [self.operation as u8]);
        if let Some(encryption) = &self.encryption {
            encryption.encode(frame);
        }
    }

    /// Verifies a whole prepare frame and reads its header.
    ///
    /// # Errors
    /// [`Invalid`] if it is cut, damaged or not a prepare.
    pub fn verify(frame: &[u8]) -> Result<Self, Invalid> {
        verify(frame)?;
        Self::decode(frame)
    }
}
