//! What replicas of one group say to each other, apart from prepares.

use alloc::vec::Vec;
use core::time::Duration;

use base::{Buffer, Bytes, GroupId, Instant, Op, Timestamp, View};

use super::{CheckpointMark, Envelope, Invalid, PrepareHeader, seal};
use crate::{Command, HEADER_SIZE, array, put};

/// Part of a replica in a group, as it tells its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StatusRole {
    /// Normal operation: its log belongs to its view.
    Normal = 0,
    /// Between two views, or catching up with the log of its view.
    ViewChange = 1,
    /// In normal operation, but it wishes for another view: a primary that has restarted or hears
    /// no quorum and does not serve, or a backup that suspects the primary.
    Abdicated = 2,
}

/// Where one replica of a group stands; what heartbeats and new links carry.
///
/// ```text
/// 0 group u64  8 view u32  12 log_view u32  16 op u64  24 commit u64  32 checksum u128
/// 48 role u8   49 zero  ..64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Which group.
    pub group: GroupId,
    /// The view it is in.
    pub view: View,
    /// The view its log belongs to.
    pub log_view: View,
    /// Last op of its log.
    pub op: Op,
    /// What it knows to be committed.
    pub commit: Op,
    /// Identity of `op`.
    pub checksum: u128,
    /// Its part.
    pub role: StatusRole,
}

impl GroupStatus {
    const SIZE: usize = 64;

    fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let u32_at = |at| array(bytes, at).map(u32::from_le_bytes);
        let u64_at = |at| array(bytes, at).map(u64::from_le_bytes);
        Ok(Self {
            group: GroupId(u64_at(0)?),
            view: View(u32_at(8)?),
            log_view: View(u32_at(12)?),
            op: Op(u64_at(16)?),
            commit: Op(u64_at(24)?),
            checksum: u128::from_le_bytes(array(bytes, 32)?),
            role: match bytes[48] {
                0 => StatusRole::Normal,
                1 => StatusRole::ViewChange,
                2 => StatusRole::Abdicated,
                _ => return Err(Invalid::Field),
            },
        })
    }

    fn encode(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.group.0.to_le_bytes());
        put(bytes, 8, self.view.0.to_le_bytes());
        put(bytes, 12, self.log_view.0.to_le_bytes());
        put(bytes, 16, self.op.0.to_le_bytes());
        put(bytes, 24, self.commit.0.to_le_bytes());
        put(bytes, 32, self.checksum.to_le_bytes());
        put(bytes, 48, [self.role as u8]);
    }
}

/// The clocks in a heartbeat.
///
/// ```text
/// 136 sent u64   144 realtime u64   152 echo u64   160 held u64   168 echoes u8
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// The sender's monotonic clock, which means nothing to anybody else.
    pub sent: Instant,
    /// The sender's realtime clock.
    pub realtime: Timestamp,
    /// The newest heartbeat of the receiver that the sender has heard. By it the sender says
    /// too that it has told all views that it has left.
    pub echo: Option<Echo>,
}

/// A heartbeat, back where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Its `sent`.
    pub sent: Instant,
    /// How long ago it was heard.
    pub held: Duration,
}

impl Beat {
    fn decode(frame: &[u8]) -> Result<Self, Invalid> {
        let u64_at = |at| array(frame, at).map(u64::from_le_bytes);
        let echo = Echo {
            sent: Instant(u64_at(152)?),
            held: Duration::from_micros(u64_at(160)?),
        };
        Ok(Self {
            sent: Instant(u64_at(136)?),
            realtime: Timestamp(u64_at(144)?),
            echo: match array::<1>(frame, 168)? {
                [0] => None,
                [1] => Some(echo),
                _ => return Err(Invalid::Field),
            },
        })
    }

    fn encode(&self, frame: &mut [u8]) {
        put(frame, 136, self.sent.0.to_le_bytes());
        put(frame, 144, self.realtime.0.to_le_bytes());
        if let Some(Echo { sent, held }) = self.echo {
            let held = u64::try_from(held.as_micros()).unwrap_or(u64::MAX);
            put(frame, 152, sent.0.to_le_bytes());
            put(frame, 160, held.to_le_bytes());
            put(frame, 168, [1]);
        }
    }
}

/// A frame between replicas, decoded. Fields stand at 128 of the header in the order given here,
/// `group` first; lists are the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender's log is durable up to `op`, whose identity is `checksum`.
    PrepareOk {
        /// Which group.
        group: GroupId,
        /// Up to where.
        op: Op,
        /// Identity of `op`.
        checksum: u128,
    },
    /// The sender wants the view in the envelope.
    StartViewChange {
        /// Which group.
        group: GroupId,
    },
    /// The sender has left all views before the one in the envelope; this is its log.
    DoViewChange {
        /// Which group.
        group: GroupId,
        /// Last op.
        op: Op,
        /// What it knows to be committed.
        commit: Op,
        /// View the log belongs to.
        log_view: View,
        /// Whether the log holds all that the sender may have acknowledged.
        trusted: bool,
        /// The newest headers, ascending, up to `op`.
        headers: Vec<PrepareHeader>,
    },
    /// The log of the view in the envelope, from its primary.
    StartView {
        /// Which group.
        group: GroupId,
        /// Last op.
        op: Op,
        /// What is known to be committed.
        commit: Op,
        /// The newest headers, ascending, up to `op`.
        headers: Vec<PrepareHeader>,
    },
    /// Send me prepares `from ..= to` of the log of the view in the envelope.
    RequestPrepares {
        /// Which group.
        group: GroupId,
        /// First.
        from: Op,
        /// Last.
        to: Op,
    },
    /// One prepare of the log of the view in the envelope; the frame follows as the body.
    RepairPrepare {
        /// Which group.
        group: GroupId,
    },
    /// Send me a part of a checkpoint.
    RequestCheckpoint {
        /// Which group.
        group: GroupId,
        /// Which checkpoint: its op, or 0 for the newest.
        op: Op,
        /// Where in its body.
        offset: u64,
    },
    /// A part of a checkpoint; the bytes follow as the body.
    CheckpointChunk {
        /// Which group.
        group: GroupId,
        /// Which checkpoint.
        mark: CheckpointMark,
        /// Where in its body.
        offset: u64,
    },
    /// The sender is alive; these of its groups have changed.
    Heartbeat {
        /// What time it is.
        beat: Beat,
        /// Where they stand.
        statuses: Vec<GroupStatus>,
    },
}

impl Message {
    /// The command this travels as.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::PrepareOk { .. } => Command::PrepareOk,
            Self::StartViewChange { .. } => Command::StartViewChange,
            Self::DoViewChange { .. } => Command::DoViewChange,
            Self::StartView { .. } => Command::StartView,
            Self::RequestPrepares { .. } => Command::RequestPrepares,
            Self::RepairPrepare { .. } => Command::RepairPrepare,
            Self::RequestCheckpoint { .. } => Command::RequestCheckpoint,
            Self::CheckpointChunk { .. } => Command::CheckpointChunk,
            Self::Heartbeat { .. } => Command::Heartbeat,
        }
    }

    /// The group this is about; none for a heartbeat.
    #[must_use]
    pub const fn group(&self) -> Option<GroupId> {
        match self {
            Self::PrepareOk { group, .. }
            | Self::StartViewChange { group }
            | Self::DoViewChange { group, .. }
            | Self::StartView { group, .. }
            | Self::RequestPrepares { group, .. }
            | Self::RepairPrepare { group }
            | Self::RequestCheckpoint { group, .. }
            | Self::CheckpointChunk { group, .. } => Some(*group),
            Self::Heartbeat { .. } => None,
        }
    }

    /// Decodes a verified frame.
    ///
    /// # Errors
    /// [`Invalid`] if the command is not one of these or a field is out of range.
    pub fn decode(frame: &[u8]) -> Result<(Envelope, Self), Invalid> {
        let envelope = Envelope::decode(frame)?;
        let group = GroupId(u64::from_le_bytes(array(frame, 128)?));
        let first = Op(u64::from_le_bytes(array(frame, 136)?));
        let second = Op(u64::from_le_bytes(array(frame, 144)?));
        let body = &frame[HEADER_SIZE..];
        let message = match envelope.command {
            Command::PrepareOk => Self::PrepareOk {
                group,
                op: first,
                checksum: u128::from_le_bytes(array(frame, 144)?),
            },
            Command::StartViewChange => Self::StartViewChange { group },
            Command::DoViewChange => Self::DoViewChange {
                group,
                op: first,
                commit: second,
                log_view: View(u32::from_le_bytes(array(frame, 152)?)),
                trusted: frame[156] == 1,
                headers: decode_headers(body, group, first)?,
            },
            Command::StartView => Self::StartView {
                group,
                op: first,
                commit: second,
                headers: decode_headers(body, group, first)?,
            },
            Command::RequestPrepares => Self::RequestPrepares {
                group,
                from: first,
                to: second,
            },
            Command::RepairPrepare => Self::RepairPrepare { group },
            Command::RequestCheckpoint => Self::RequestCheckpoint {
                group,
                op: first,
                offset: second.0,
            },
            Command::CheckpointChunk => Self::CheckpointChunk {
                group,
                mark: CheckpointMark::decode(frame)?,
                offset: u64::from_le_bytes(array(frame, 208)?),
            },
            Command::Heartbeat => Self::Heartbeat {
                beat: Beat::decode(frame)?,
                statuses: decode_statuses(body)?,
            },
            _ => return Err(Invalid::Command),
        };
        Ok((envelope, message))
    }

    /// The sealed frame. [`Message::RepairPrepare`] is built by [`envelope_repair`] instead, and
    /// [`Message::CheckpointChunk`] by [`chunk_header`](super::chunk_header).
    ///
    /// # Panics
    /// If called for one of these.
    #[must_use]
    pub fn encode(&self, cluster: u128, view: View, replica: base::ReplicaIndex) -> Bytes {
        let body_size = match self {
            Self::DoViewChange { headers, .. } | Self::StartView { headers, .. } => {
                headers.len() * HEADER_SIZE
            }
            Self::Heartbeat { statuses, .. } => statuses.len() * GroupStatus::SIZE,
            _ => 0,
        };
        let mut buffer = Buffer::zeroed(HEADER_SIZE + body_size);
        let frame = buffer.as_mut_slice();
        Envelope {
            cluster,
            view,
            command: self.command(),
            replica,
        }
        .encode(frame);
        if let Some(group) = self.group() {
            put(frame, 128, group.0.to_le_bytes());
        }
        match self {
            Self::PrepareOk { op, checksum, .. } => {
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, checksum.to_le_bytes());
            }
            Self::StartViewChange { .. } => {}
            Self::DoViewChange {
                op,
                commit,
                log_view,
                trusted,
                headers,
                ..
            } => {
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, commit.0.to_le_bytes());
                put(frame, 152, log_view.0.to_le_bytes());
                put(frame, 156, [u8::from(*trusted)]);
                encode_headers(headers, frame);
            }
            Self::StartView {
                op,
                commit,
                headers,
                ..
            } => {
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, commit.0.to_le_bytes());
                encode_headers(headers, frame);
            }
            Self::RequestPrepares { from, to, .. } => {
                put(frame, 136, from.0.to_le_bytes());
                put(frame, 144, to.0.to_le_bytes());
            }
            Self::RequestCheckpoint { op, offset, .. } => {
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, offset.to_le_bytes());
            }
            Self::RepairPrepare { .. } | Self::CheckpointChunk { .. } => {
                unreachable!("their bodies are not copied")
            }
            Self::Heartbeat { beat, statuses } => {
                beat.encode(frame);
                let entries = frame[HEADER_SIZE..].chunks_exact_mut(GroupStatus::SIZE);
                for (status, entry) in statuses.iter().zip(entries) {
                    status.encode(entry);
                }
            }
        }
        seal(frame);
        buffer.freeze()
    }
}

/// The header of a [`Message::RepairPrepare`] whose body is `prepare`, to be sent right before
/// it: the prepare itself is not copied.
///
/// # Panics
/// If both together exceed 4 GiB.
#[must_use]
pub fn envelope_repair(
    cluster: u128,
    view: View,
    replica: base::ReplicaIndex,
    group: GroupId,
    prepare: &[u8],
) -> Bytes {
    let mut buffer = Buffer::zeroed(HEADER_SIZE);
    let frame = buffer.as_mut_slice();
    Envelope {
        cluster,
        view,
        command: Command::RepairPrepare,
        replica,
    }
    .encode(frame);
    put(frame, 128, group.0.to_le_bytes());
    let size = u32::try_from(HEADER_SIZE + prepare.len()).expect("frames are far below 4 GiB");
    put(frame, super::SIZE, size.to_le_bytes());
    // The prepare is sealed itself; its header's checksum covers its body's.
    let body = base::checksum::xxh3_128(&prepare[..HEADER_SIZE]);
    put(frame, super::CHECKSUM_BODY, body.to_le_bytes());
    let header = base::checksum::xxh3_128(&frame[super::CHECKSUM_BODY..]);
    put(frame, super::CHECKSUM, header.to_le_bytes());
    buffer.freeze()
}

fn decode_headers(body: &[u8], group: GroupId, last: Op) -> Result<Vec<PrepareHeader>, Invalid> {
    let (chunks, rest) = body.as_chunks::<HEADER_SIZE>();
    if !rest.is_empty() {
        return Err(Invalid::Size);
    }
    let mut headers = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        super::verify_header(chunk)?;
        headers.push(PrepareHeader::decode(chunk)?);
    }
    let chained = headers
        .windows(2)
        .all(|pair| pair[1].op == pair[0].op.next() && pair[1].parent == pair[0].checksum);
    let ends = headers.last().is_none_or(|header| header.op == last);
    if !chained || !ends || headers.iter().any(|header| header.group != group) {
        return Err(Invalid::Field);
    }
    // A log with ops always names its head.
    if last.0 > 0 && headers.is_empty() {
        return Err(Invalid::Field);
    }
    Ok(headers)
}

fn encode_headers(headers: &[PrepareHeader], frame: &mut [u8]) {
    let entries = frame[HEADER_SIZE..].chunks_exact_mut(HEADER_SIZE);
    for (header, entry) in headers.iter().zip(entries) {
        header.encode_sealed(entry);
    }
}

fn decode_statuses(body: &[u8]) -> Result<Vec<GroupStatus>, Invalid> {
    let (chunks, rest) = body.as_chunks::<{ GroupStatus::SIZE }>();
    if !rest.is_empty() {
        return Err(Invalid::Size);
    }
    chunks
        .iter()
        .map(|chunk| GroupStatus::decode(chunk))
        .collect()
}
