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
    /// Its disk is new or was replaced, and it has not heard yet what the others are doing: it
    /// takes no part.
    Doubt = 3,
    /// As [`Self::Doubt`], but it has heard enough of them to know which view to wait for, and
    /// asks the primary of this one to make way for it.
    Rejoining = 4,
}

/// What a replica's log is worth as a witness of what the replica has acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Trust {
    /// The log may lack some of it; the views that the replica has promised are known.
    Doubt = 0,
    /// The log holds all of it.
    Trusted = 1,
    /// Nothing is known: the disk is new, or was replaced.
    Blank = 2,
}

impl Trust {
    /// The trust with this number, if there is one.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Doubt),
            1 => Some(Self::Trusted),
            2 => Some(Self::Blank),
            _ => None,
        }
    }
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
                3 => StatusRole::Doubt,
                4 => StatusRole::Rejoining,
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
        trust: Trust,
        /// Identity of `op`.
        checksum: u128,
        /// The newest headers, ascending; those of damaged ops are left out.
        headers: Vec<PrepareHeader>,
        /// The ops that the log holds and whose bodies are damaged, ascending: neither present
        /// nor certainly never held.
        faulty: Vec<Op>,
        /// Names the sender's process, if it is blank; else 0.
        nonce: u128,
    },
    /// The log of the view in the envelope, from its primary.
    StartView {
        /// Which group.
        group: GroupId,
        /// Last op.
        op: Op,
        /// What is known to be committed.
        commit: Op,
        /// Identity of `op`.
        checksum: u128,
        /// The newest headers, ascending; those of damaged ops are left out.
        headers: Vec<PrepareHeader>,
        /// If the view begins a group in which all were blank: the nonce that the receiver's
        /// vote carried; else 0.
        nonce: u128,
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
    /// Send me the prepare `op` with this identity; any replica may, in any view.
    RequestBody {
        /// Which group.
        group: GroupId,
        /// Which op.
        op: Op,
        /// Its identity.
        checksum: u128,
    },
    /// One prepare of the log of the view in the envelope, or one that was asked for by its
    /// identity; the frame follows as the body.
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
            Self::RequestBody { .. } => Command::RequestBody,
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
            | Self::RequestBody { group, .. }
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
                trust: Trust::from_byte(frame[156]).ok_or(Invalid::Field)?,
                checksum: u128::from_le_bytes(array(frame, 160)?),
                headers: decode_headers(headers_of(frame)?, frame, group, first)?,
                faulty: decode_ops(&body[headers_of(frame)?.len()..], first)?,
                nonce: u128::from_le_bytes(array(frame, 192)?),
            },
            Command::StartView => Self::StartView {
                group,
                op: first,
                commit: second,
                checksum: u128::from_le_bytes(array(frame, 160)?),
                headers: decode_headers(body, frame, group, first)?,
                nonce: u128::from_le_bytes(array(frame, 192)?),
            },
            Command::RequestPrepares => Self::RequestPrepares {
                group,
                from: first,
                to: second,
            },
            Command::RequestBody => Self::RequestBody {
                group,
                op: first,
                checksum: u128::from_le_bytes(array(frame, 144)?),
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
            Self::DoViewChange {
                headers, faulty, ..
            } => headers.len() * HEADER_SIZE + faulty.len() * size_of::<u64>(),
            Self::StartView { headers, .. } => headers.len() * HEADER_SIZE,
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
            Self::PrepareOk { op, checksum, .. } | Self::RequestBody { op, checksum, .. } => {
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, checksum.to_le_bytes());
            }
            Self::StartViewChange { .. } => {}
            Self::DoViewChange {
                op,
                commit,
                log_view,
                trust,
                checksum,
                headers,
                faulty,
                nonce,
                ..
            } => {
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, commit.0.to_le_bytes());
                put(frame, 152, log_view.0.to_le_bytes());
                put(frame, 156, [*trust as u8]);
                put(frame, 160, checksum.to_le_bytes());
                let count = u32::try_from(faulty.len()).expect("a window of ops");
                put(frame, 176, count.to_le_bytes());
                put(frame, 192, nonce.to_le_bytes());
                encode_headers(headers, frame);
                let places = frame[HEADER_SIZE + headers.len() * HEADER_SIZE..].as_chunks_mut();
                for (op, place) in faulty.iter().zip(places.0) {
                    *place = op.0.to_le_bytes();
                }
            }
            Self::StartView {
                op,
                commit,
                checksum,
                headers,
                nonce,
                ..
            } => {
                put(frame, 192, nonce.to_le_bytes());
                put(frame, 136, op.0.to_le_bytes());
                put(frame, 144, commit.0.to_le_bytes());
                put(frame, 160, checksum.to_le_bytes());
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

/// The part of a do_view_change's body before the faulty ops.
fn headers_of(frame: &[u8]) -> Result<&[u8], Invalid> {
    let count = u32::from_le_bytes(array(frame, 176)?) as usize;
    let faulty = count.checked_mul(size_of::<u64>()).ok_or(Invalid::Size)?;
    let body = &frame[HEADER_SIZE..];
    let size = body.len().checked_sub(faulty).ok_or(Invalid::Size)?;
    Ok(&body[..size])
}

/// Ops in ascending order, none after `last`.
fn decode_ops(bytes: &[u8], last: Op) -> Result<Vec<Op>, Invalid> {
    let (chunks, rest) = bytes.as_chunks();
    let ops = chunks.iter().map(|chunk| Op(u64::from_le_bytes(*chunk)));
    let ops: Vec<Op> = ops.collect();
    let ascending = ops.is_sorted_by(|a, b| a < b);
    let inside = ops.iter().all(|op| Op(0) < *op && *op <= last);
    if !rest.is_empty() || !ascending || !inside {
        return Err(Invalid::Field);
    }
    Ok(ops)
}

/// Headers in ascending order, chained where they are adjacent, none after the op `last`, whose
/// identity stands at 160; an empty log has none.
fn decode_headers(
    bytes: &[u8],
    frame: &[u8],
    group: GroupId,
    last: Op,
) -> Result<Vec<PrepareHeader>, Invalid> {
    let (chunks, rest) = bytes.as_chunks::<HEADER_SIZE>();
    if !rest.is_empty() {
        return Err(Invalid::Size);
    }
    let mut headers: Vec<PrepareHeader> = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        super::verify_header(chunk)?;
        headers.push(PrepareHeader::decode(chunk)?);
    }
    let chained = headers.windows(2).all(|pair| {
        let adjacent = pair[0].op.0.checked_add(1) == Some(pair[1].op.0);
        pair[0].op < pair[1].op && (!adjacent || pair[1].parent == pair[0].checksum)
    });
    let checksum = u128::from_le_bytes(array(frame, 160)?);
    let ends = headers.last().is_none_or(|header| {
        header.op < last || (header.op == last && header.checksum == checksum)
    });
    let stray = |header: &PrepareHeader| header.group != group || header.op == Op(0);
    let named = last > Op(0) || checksum == 0;
    if !chained || !ends || !named || headers.iter().any(stray) {
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

#[cfg(test)]
mod tests {
    use base::{ClientId, ReplicaIndex, Timestamp};

    use super::*;
    use crate::Operation;

    fn header(op: u64, parent: u128) -> PrepareHeader {
        let mut frame = Buffer::zeroed(HEADER_SIZE);
        let header = PrepareHeader {
            checksum: 0,
            checksum_body: 0,
            cluster: 7,
            size: 0,
            view: View(1),
            replica: ReplicaIndex(1),
            parent,
            client: ClientId(0),
            group: GroupId(5),
            op: Op(op),
            commit: Op(0),
            timestamp: Timestamp(0),
            request: 0,
            session: 0,
            request_checksum: 0,
            user: 0,
            operation: Operation::Noop,
            encryption: None,
        };
        header.seal_into(frame.as_mut_slice());
        PrepareHeader::verify(&frame.freeze()).expect("just sealed")
    }

    fn vote(headers: Vec<PrepareHeader>, faulty: Vec<Op>) -> Message {
        let last = headers.last().expect("some");
        Message::DoViewChange {
            group: GroupId(5),
            op: last.op,
            commit: Op(1),
            log_view: View(3),
            trust: Trust::Blank,
            checksum: last.checksum,
            headers,
            faulty,
            nonce: 1 << 99,
        }
    }

    fn passes(message: &Message) -> bool {
        let frame = message.encode(7, View(4), ReplicaIndex(2));
        super::super::verify(&frame).expect("sealed");
        match Message::decode(&frame) {
            Ok((_, decoded)) => {
                assert_eq!(decoded, *message);
                true
            }
            Err(_) => false,
        }
    }

    /// Goal: a vote tells of damage, and only what can be true of a log.
    #[test]
    fn a_vote_may_leave_headers_out_but_names_what_is_faulty_in_order() {
        let first = header(1, 0);
        let (third, other) = (header(3, 33), header(4, 44));
        let fourth = header(4, third.checksum);
        assert!(passes(&vote([first, third, fourth].into(), [Op(2)].into())));
        assert!(passes(&vote([fourth].into(), [Op(1), Op(3)].into())));
        assert!(!passes(&vote([first, third, other].into(), [].into())));
        assert!(!passes(&vote([third, first].into(), [].into())));
        assert!(!passes(&vote([first, third].into(), [Op(2), Op(2)].into())));
        assert!(!passes(&vote([first, third].into(), [Op(4)].into())));
        assert!(!passes(&vote([first, third].into(), [Op(0)].into())));
    }
}
