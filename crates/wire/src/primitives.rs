//! The encodings that many commands share: names, text, identifiers, consumers, partitions and
//! polling strategies (`wire.md` 4.1 to 4.6).

use core::fmt;

use base::checksum::xxh32;

use crate::{
    Codec, DecodeError, Reader, Sink,
    codec::{byte_enum, layout, length_u32},
};

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    core::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
}

fn put_short(out: &mut impl Sink, bytes: &[u8]) {
    let length = u8::try_from(bytes.len()).expect("short text is at most 255 bytes");
    out.put(&[length]);
    out.put(bytes);
}

/// A name of 1 to 255 bytes: `len:u8`, then UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    /// The name, if it is 1 to 255 bytes long.
    #[must_use]
    pub const fn new(name: &'a str) -> Option<Self> {
        if name.is_empty() || name.len() > 255 {
            None
        } else {
            Some(Self(name))
        }
    }

    /// The text.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl<'a> Codec<'a> for Name<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let length: u8 = reader.read()?;
        let name = text(reader.take(usize::from(length))?)?;
        Self::new(name).ok_or(DecodeError::Length)
    }

    fn write(&self, out: &mut impl Sink) {
        put_short(out, self.0.as_bytes());
    }
}

/// Text of 0 to 255 bytes: `len:u8`, then UTF-8. Writing longer text panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortText<'a>(pub &'a str);

impl<'a> Codec<'a> for ShortText<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let length: u8 = reader.read()?;
        text(reader.take(usize::from(length))?).map(Self)
    }

    fn write(&self, out: &mut impl Sink) {
        put_short(out, self.0.as_bytes());
    }
}

/// A password or token: a [`ShortText`] that does not show in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret<'a>(pub &'a str);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl<'a> Codec<'a> for Secret<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.read().map(|ShortText(secret)| Self(secret))
    }

    fn write(&self, out: &mut impl Sink) {
        ShortText(self.0).write(out);
    }
}

/// Text with a `u32` length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub &'a str);

impl<'a> Codec<'a> for Text<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let Blob(bytes) = reader.read()?;
        text(bytes).map(Self)
    }

    fn write(&self, out: &mut impl Sink) {
        Blob(self.0.as_bytes()).write(out);
    }
}

/// Bytes with a `u32` length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob<'a>(pub &'a [u8]);

impl<'a> Codec<'a> for Blob<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let length: u32 = reader.read()?;
        reader.take(length as usize).map(Self)
    }

    fn write(&self, out: &mut impl Sink) {
        length_u32(self.0.len()).write(out);
        out.put(self.0);
    }
}

/// A stream, topic, consumer group, consumer or user, by number or by name: `kind:u8, len:u8,
/// value`; kind 1 is a `u32`, kind 2 a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifier<'a> {
    /// By number; 0 is valid.
    Numeric(u32),
    /// By name.
    Named(Name<'a>),
}

impl<'a> Codec<'a> for Identifier<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.read::<u8>()? {
            1 => match reader.read::<u8>()? {
                4 => reader.read().map(Self::Numeric),
                _ => Err(DecodeError::Length),
            },
            2 => reader.read().map(Self::Named),
            _ => Err(DecodeError::Kind),
        }
    }

    fn write(&self, out: &mut impl Sink) {
        match self {
            Self::Numeric(id) => {
                out.put(&[1, 4]);
                id.write(out);
            }
            Self::Named(name) => {
                out.put(&[2]);
                name.write(out);
            }
        }
    }
}

byte_enum! {
    /// Who consumes.
    ConsumerKind {
        /// One consumer, with offsets of its own.
        Single = 1,
        /// The members of a consumer group.
        Group = 2,
    }
}

layout! {
    /// A consumer, or the group it is a member of.
    #[derive(Copy)]
    Consumer<'a> {
        /// Which of the two.
        kind: ConsumerKind,
        /// Its name or number.
        id: Identifier<'a>,
    }
}

impl Consumer<'_> {
    /// The number under which a single consumer's offsets are kept: its numeric id, or XXH32 of
    /// its name. `None` for a group, whose number comes from the metadata.
    #[must_use]
    pub fn single_key(&self) -> Option<u32> {
        match (self.kind, self.id) {
            (ConsumerKind::Group, _) => None,
            (ConsumerKind::Single, Identifier::Numeric(id)) => Some(id),
            (ConsumerKind::Single, Identifier::Named(name)) => {
                Some(xxh32(name.as_str().as_bytes()))
            }
        }
    }
}

/// A partition or none: a flag byte, 1 if present, then a `u32` in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionalPartition(pub Option<u32>);

impl<'a> Codec<'a> for OptionalPartition {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let flag: u8 = reader.read()?;
        let partition: u32 = reader.read()?;
        Ok(Self((flag == 1).then_some(partition)))
    }

    fn write(&self, out: &mut impl Sink) {
        self.0.is_some().write(out);
        self.0.unwrap_or(0).write(out);
    }
}

/// Where a poll starts: `kind:u8, value:u64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollingStrategy {
    /// At this offset.
    Offset(u64),
    /// At the first message appended at or after this time, in microseconds since the epoch.
    Timestamp(u64),
    /// At the first message.
    First,
    /// So that the newest messages come, as many as asked for.
    Last,
    /// After the consumer's stored offset.
    Next,
}

impl<'a> Codec<'a> for PollingStrategy {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind: u8 = reader.read()?;
        let value: u64 = reader.read()?;
        match kind {
            1 => Ok(Self::Offset(value)),
            2 => Ok(Self::Timestamp(value)),
            3 => Ok(Self::First),
            4 => Ok(Self::Last),
            5 => Ok(Self::Next),
            _ => Err(DecodeError::Kind),
        }
    }

    fn write(&self, out: &mut impl Sink) {
        let (kind, value) = match *self {
            Self::Offset(offset) => (1, offset),
            Self::Timestamp(timestamp) => (2, timestamp),
            Self::First => (3, 0),
            Self::Last => (4, 0),
            Self::Next => (5, 0),
        };
        out.put(&[kind]);
        u64::write(&value, out);
    }
}

/// Which partition a batch goes to: `kind:u8, len:u8, value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning<'a> {
    /// The server chooses, evenly.
    Balanced,
    /// This one.
    PartitionId(u32),
    /// The one this key hashes to; 1 to 255 bytes. Writing any other length panics.
    MessagesKey(&'a [u8]),
}

impl Partitioning<'_> {
    /// The partition a key belongs to, of `partitions_count`.
    ///
    /// # Panics
    /// If `partitions_count` is 0.
    #[must_use]
    pub fn partition_of_key(key: &[u8], partitions_count: u32) -> u32 {
        assert!(partitions_count > 0);
        xxh32(key) % partitions_count
    }
}

impl<'a> Codec<'a> for Partitioning<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind: u8 = reader.read()?;
        let length: u8 = reader.read()?;
        match (kind, length) {
            (1, 0) => Ok(Self::Balanced),
            (2, 4) => reader.read().map(Self::PartitionId),
            (3, 1..) => reader.take(usize::from(length)).map(Self::MessagesKey),
            (1..=3, _) => Err(DecodeError::Length),
            _ => Err(DecodeError::Kind),
        }
    }

    fn write(&self, out: &mut impl Sink) {
        match self {
            Self::Balanced => out.put(&[1, 0]),
            Self::PartitionId(id) => {
                out.put(&[2, 4]);
                id.write(out);
            }
            Self::MessagesKey(key) => {
                assert!(!key.is_empty());
                out.put(&[3]);
                put_short(out, key);
            }
        }
    }
}

byte_enum! {
    /// How a topic's payloads are compressed, as far as the server knows.
    CompressionAlgorithm {
        /// Not at all.
        None = 1,
        /// With gzip.
        Gzip = 2,
    }
}

byte_enum! {
    /// Whether a user may log in.
    UserStatus {
        /// May.
        Active = 1,
        /// May not.
        Inactive = 2,
    }
}

byte_enum! {
    /// What an offset write waits for.
    AckLevel {
        /// Nothing.
        None = 0,
        /// A quorum.
        Quorum = 1,
    }
}

byte_enum! {
    /// How a client is connected.
    TransportKind {
        /// Plain or with TLS.
        Tcp = 1,
        /// QUIC.
        Quic = 2,
        /// HTTP.
        Http = 3,
        /// WebSocket.
        WebSocket = 4,
    }
}

byte_enum! {
    /// What options are described.
    OptionsScope {
        /// A topic's.
        Topic = 1,
        /// A stream's.
        Stream = 2,
        /// A user's.
        User = 3,
    }
}

byte_enum! {
    /// How the files of a diagnostic archive are compressed.
    ArchiveCompression {
        /// Not at all.
        Stored = 1,
        /// Deflate.
        Deflated = 2,
        /// Bzip2.
        Bzip2 = 3,
        /// Zstandard.
        Zstd = 4,
        /// LZMA.
        Lzma = 5,
        /// XZ.
        Xz = 6,
    }
}

byte_enum! {
    /// What a diagnostic archive may hold.
    ArchiveContent {
        /// Files of the data directory and their sizes.
        FilesystemOverview = 1,
        /// Processes of the machine.
        ProcessList = 2,
        /// What the process uses.
        ResourceUsage = 3,
        /// A line that shows that archives work.
        Test = 4,
        /// The newest lines of the log.
        ServerLogs = 5,
        /// The effective configuration.
        ServerConfig = 6,
        /// Everything above.
        All = 100,
    }
}

byte_enum! {
    /// A node's part in the metadata group.
    NodeRole {
        /// Its primary.
        Leader = 0,
        /// Another member.
        Follower = 1,
    }
}

byte_enum! {
    /// What is known of a node.
    NodeStatus {
        /// Serves.
        Healthy = 0,
        /// Comes up.
        Starting = 1,
        /// Goes down.
        Stopping = 2,
        /// Does not answer.
        Unreachable = 3,
        /// Taken out on purpose.
        Maintenance = 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_and_numeric_consumers_share_one_key_space() {
        let named = Consumer {
            kind: ConsumerKind::Single,
            id: Identifier::Named(Name::new("billing").expect("1 to 255 bytes")),
        };
        let key = named.single_key().expect("a single consumer");
        let numeric = Consumer {
            id: Identifier::Numeric(key),
            ..named
        };
        assert_eq!(numeric.single_key(), Some(key));
        assert_eq!(
            Consumer {
                kind: ConsumerKind::Group,
                ..named
            }
            .single_key(),
            None
        );
    }

    #[test]
    fn bad_identifiers_are_told_apart() {
        let error = |bytes| Identifier::decode(bytes).expect_err("bad");
        assert_eq!(error(&[1, 3, 0, 0, 0]), DecodeError::Length);
        assert_eq!(error(&[2, 0]), DecodeError::Length);
        assert_eq!(error(&[3, 1, 0]), DecodeError::Kind);
        assert_eq!(error(&[2, 2, b'a']), DecodeError::Truncated);
        assert_eq!(error(&[2, 1, 0xFF]), DecodeError::Utf8);
        assert_eq!(error(&[1, 4, 0, 0, 0, 0, 0]), DecodeError::Trailing);
    }
}
