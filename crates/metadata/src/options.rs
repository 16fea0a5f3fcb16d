//! Topic options: the catalogue of `wire.md` 4.9, how values are read, and how they are reported.
//!
//! A value may come in more than one kind; it is kept once, in its canonical form. What a client
//! set is reported as *explicit*, what the server filled in as *derived*. Streams have no options.

use alloc::vec::Vec;

use wire::{
    Blob, Codec, CompressionAlgorithm, ErrorCode, Name, Options, OptionsBlock, Reader, Sink,
    SnapshotError, Text, Value, options::kind, reply::OptionDescription,
};

use crate::{Limits, text};

/// The value of `message_expiry` and `max_topic_size` that means "never" and "unlimited".
pub const UNLIMITED: u64 = u64::MAX;

/// When a replica may say that it holds an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Written to the operating system.
    Replicated,
    /// Synced to the disk.
    Persisted,
}

impl Durability {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Replicated => "replicated",
            Self::Persisted => "persisted",
        }
    }
}

/// Every option of a topic, with defaults filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOptions {
    /// `compression_algorithm`
    pub compression: CompressionAlgorithm,
    /// `message_expiry`: microseconds, or [`UNLIMITED`].
    pub message_expiry: u64,
    /// `max_topic_size`: bytes, or [`UNLIMITED`].
    pub topic_size_max: u64,
    /// `segment_size`: bytes.
    pub segment_size: u64,
    /// `durability` of messages.
    pub durability: Durability,
    /// `consumer_offset_durability`
    pub consumer_offset_durability: Durability,
    /// `messages_required_to_save`: kept and reported; every message is written at once.
    pub messages_required_to_save: u32,
    /// `size_of_messages_required_to_save`: kept and reported; every message is written at once.
    pub size_of_messages_required_to_save: u64,
    /// `preallocate_segments`: kept, bounded and reported; segments grow as they are written.
    pub preallocate_segments: bool,
    /// `enforce_fsync`, the older name of a `persisted` durability.
    pub enforce_fsync: bool,
    explicit: Explicit,
}

/// Which options a client has set, one bit per entry of [`CATALOGUE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Explicit(u16);

impl Explicit {
    const fn contains(self, key: Key) -> bool {
        self.0 >> key as u16 & 1 == 1
    }

    const fn with(self, key: Key) -> Self {
        Self(self.0 | 1 << key as u16)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    CompressionAlgorithm,
    ConsumerOffsetDurability,
    Durability,
    EnforceFsync,
    MaxTopicSize,
    MessageExpiry,
    MessagesRequiredToSave,
    PreallocateSegments,
    SegmentSize,
    SizeOfMessagesRequiredToSave,
}

/// One option as clients may discover it.
struct Entry {
    key: Key,
    name: &'static str,
    updatable: bool,
    description: &'static str,
}

const fn entry(key: Key, name: &'static str, updatable: bool, description: &'static str) -> Entry {
    Entry {
        key,
        name,
        updatable,
        description,
    }
}

/// In the order in which blocks and descriptions list them: by name.
const CATALOGUE: [Entry; 10] = [
    entry(
        Key::CompressionAlgorithm,
        "compression_algorithm",
        true,
        "how payloads are compressed by clients: none or gzip",
    ),
    entry(
        Key::ConsumerOffsetDurability,
        "consumer_offset_durability",
        false,
        "the same for stored offsets",
    ),
    entry(
        Key::Durability,
        "durability",
        false,
        "what an acknowledged message has survived: replicated (written) or persisted (synced)",
    ),
    entry(
        Key::EnforceFsync,
        "enforce_fsync",
        false,
        "older name: true asks for a persisted durability",
    ),
    entry(
        Key::MaxTopicSize,
        "max_topic_size",
        true,
        "bytes beyond which the oldest sealed segments may go; 0 is the server's default",
    ),
    entry(
        Key::MessageExpiry,
        "message_expiry",
        true,
        "age in microseconds at which sealed segments may go; 0 is the server's default",
    ),
    entry(
        Key::MessagesRequiredToSave,
        "messages_required_to_save",
        false,
        "kept for compatibility: messages are written as they come",
    ),
    entry(
        Key::PreallocateSegments,
        "preallocate_segments",
        false,
        "kept for compatibility, and bounded: segments grow as they are written",
    ),
    entry(
        Key::SegmentSize,
        "segment_size",
        false,
        "bytes of a segment, a multiple of 512; 0 is the server's default",
    ),
    entry(
        Key::SizeOfMessagesRequiredToSave,
        "size_of_messages_required_to_save",
        false,
        "kept for compatibility: messages are written as they come",
    ),
];

/// No log has smaller segments, whatever the limits.
const SEGMENT_SIZE_LEAST: u64 = 512;

const SIZE_TO_SAVE_MAX: u64 = 1 << 30;
const MESSAGES_TO_SAVE_MAX: u32 = 1 << 24;

impl TopicOptions {
    /// What a topic has whose creator set nothing.
    #[must_use]
    pub const fn defaults(limits: &Limits) -> Self {
        Self {
            compression: CompressionAlgorithm::None,
            message_expiry: UNLIMITED,
            topic_size_max: UNLIMITED,
            segment_size: limits.segment_size,
            durability: Durability::Replicated,
            consumer_offset_durability: Durability::Replicated,
            messages_required_to_save: 1024,
            size_of_messages_required_to_save: 1 << 20,
            preallocate_segments: false,
            enforce_fsync: false,
            explicit: Explicit(0),
        }
    }

    /// The options of a new topic with `partitions_count` partitions.
    ///
    /// # Errors
    /// 4041 for an unknown key, 4042 for a bad kind or value, 1019 for a topic smaller than one
    /// of its segments.
    pub fn create(
        options: Options<'_>,
        partitions_count: u32,
        limits: &Limits,
    ) -> Result<Self, ErrorCode> {
        let mut created = Self::defaults(limits);
        for (name, value) in options.iter() {
            let entry = find(name).ok_or(ErrorCode::UNSUPPORTED_OPTION_KEY)?;
            created
                .set(entry.key, value, limits)
                .ok_or(ErrorCode::INVALID_OPTION_VALUE)?;
        }
        if created.enforce_fsync {
            let contradicts = created.durability == Durability::Replicated;
            if contradicts && created.explicit.contains(Key::Durability) {
                return Err(ErrorCode::INVALID_OPTION_VALUE);
            }
            created.durability = Durability::Persisted;
        }
        let preallocated = u128::from(created.segment_size) * u128::from(partitions_count);
        if created.preallocate_segments && preallocated > u128::from(limits.preallocate_max) {
            return Err(ErrorCode::INVALID_OPTION_VALUE);
        }
        created.check_topic_size()?;
        Ok(created)
    }

    /// These options after an update; keys that are absent stay as they are.
    ///
    /// # Errors
    /// 4041 for a key that is unknown or may not be updated, 4042 for a bad kind or value, 1019
    /// for a topic smaller than one of its segments.
    pub fn update(self, options: Options<'_>, limits: &Limits) -> Result<Self, ErrorCode> {
        let mut updated = self;
        if base::planted::bug(69) {
            updated.message_expiry = UNLIMITED;
        }
        for (name, value) in options.iter() {
            let entry = find(name).filter(|entry| entry.updatable);
            let entry = entry.ok_or(ErrorCode::UNSUPPORTED_OPTION_KEY)?;
            updated
                .set(entry.key, value, limits)
                .ok_or(ErrorCode::INVALID_OPTION_VALUE)?;
        }
        updated.check_topic_size()?;
        Ok(updated)
    }

    /// Sets one option from a client's value; `None` if the value is bad.
    fn set(&mut self, key: Key, value: Value<'_>, limits: &Limits) -> Option<()> {
        let or_default = |number: u64, default: u64| if number == 0 { default } else { number };
        match key {
            Key::CompressionAlgorithm => self.compression = compression(value)?,
            Key::MessageExpiry => {
                self.message_expiry = or_default(expiry(value)?, UNLIMITED);
            }
            Key::MaxTopicSize => self.topic_size_max = or_default(size(value)?, UNLIMITED),
            Key::SegmentSize => {
                let size = or_default(size(value)?, limits.segment_size);
                let range = limits.segment_size_min..=limits.segment_size_max;
                self.segment_size = Some(size).filter(|s| s % 512 == 0 && range.contains(s))?;
            }
            Key::Durability => self.durability = durability(value)?,
            Key::ConsumerOffsetDurability => self.consumer_offset_durability = durability(value)?,
            Key::MessagesRequiredToSave => {
                let range = 1..=MESSAGES_TO_SAVE_MAX;
                self.messages_required_to_save = count(value).filter(|n| range.contains(n))?;
            }
            Key::SizeOfMessagesRequiredToSave => {
                let default = Self::defaults(limits).size_of_messages_required_to_save;
                let size = or_default(size(value)?, default);
                self.size_of_messages_required_to_save =
                    Some(size).filter(|&size| size <= SIZE_TO_SAVE_MAX)?;
            }
            Key::PreallocateSegments => self.preallocate_segments = truth(value)?,
            Key::EnforceFsync => self.enforce_fsync = truth(value)?,
        }
        self.explicit = self.explicit.with(key);
        Some(())
    }

    fn check_topic_size(&self) -> Result<(), ErrorCode> {
        if self.topic_size_max < self.segment_size {
            return Err(ErrorCode::INVALID_TOPIC_SIZE);
        }
        Ok(())
    }

    /// What clients have set, as records report it.
    #[must_use]
    pub fn explicit(&self) -> OptionsBlock {
        self.block(|key| self.explicit.contains(key))
    }

    /// What the server has filled in, as records report it.
    #[must_use]
    pub fn derived(&self) -> OptionsBlock {
        self.block(|key| !self.explicit.contains(key) && key != Key::EnforceFsync)
    }

    fn block(&self, included: impl Fn(Key) -> bool) -> OptionsBlock {
        let mut block = OptionsBlock::new();
        for entry in CATALOGUE.iter().filter(|entry| included(entry.key)) {
            block.push(entry.name, self.value(entry.key).as_value());
        }
        block
    }

    /// The canonical value of one option.
    fn value(&self, key: Key) -> Canonical {
        let number = |number: u64| Canonical::Number(number.to_le_bytes());
        match key {
            Key::CompressionAlgorithm => Canonical::Text(compression_text(self.compression)),
            Key::MessageExpiry => number(self.message_expiry),
            Key::MaxTopicSize => number(self.topic_size_max),
            Key::SegmentSize => number(self.segment_size),
            Key::Durability => Canonical::Text(self.durability.as_str()),
            Key::ConsumerOffsetDurability => {
                Canonical::Text(self.consumer_offset_durability.as_str())
            }
            Key::MessagesRequiredToSave => {
                Canonical::Count(self.messages_required_to_save.to_le_bytes())
            }
            Key::SizeOfMessagesRequiredToSave => number(self.size_of_messages_required_to_save),
            Key::PreallocateSegments => Canonical::Truth([u8::from(self.preallocate_segments)]),
            Key::EnforceFsync => Canonical::Truth([u8::from(self.enforce_fsync)]),
        }
    }

    /// Appends all options, and which of them a client has set, to a snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.compression.write(out);
        self.message_expiry.write(out);
        self.topic_size_max.write(out);
        self.segment_size.write(out);
        (self.durability == Durability::Persisted).write(out);
        (self.consumer_offset_durability == Durability::Persisted).write(out);
        self.messages_required_to_save.write(out);
        self.size_of_messages_required_to_save.write(out);
        self.preallocate_segments.write(out);
        self.enforce_fsync.write(out);
        self.explicit.0.write(out);
    }

    /// Reads what [`Self::write`] wrote.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        let durability = |persisted| {
            if persisted {
                Durability::Persisted
            } else {
                Durability::Replicated
            }
        };
        let options = Self {
            compression: reader.read()?,
            message_expiry: reader.read()?,
            topic_size_max: reader.read()?,
            segment_size: reader.read()?,
            durability: durability(flag(reader)?),
            consumer_offset_durability: durability(flag(reader)?),
            messages_required_to_save: reader.read()?,
            size_of_messages_required_to_save: reader.read()?,
            preallocate_segments: flag(reader)?,
            enforce_fsync: flag(reader)?,
            explicit: Explicit(reader.read()?),
        };
        let known = (1 << CATALOGUE.len()) - 1;
        let journals = options.segment_size >= SEGMENT_SIZE_LEAST;
        let asked = !options.enforce_fsync || options.explicit.contains(Key::EnforceFsync);
        if options.explicit.0 & !known != 0 || !journals || !asked {
            return Err(SnapshotError::Contradiction);
        }
        Ok(options)
    }

    pub(crate) fn digest_into(&self, digest: &mut base::Digest) {
        digest.bytes(self.explicit().as_options().as_bytes());
        digest.bytes(self.derived().as_options().as_bytes());
    }
}

/// A byte of a snapshot that is 0 or 1.
fn flag(reader: &mut Reader<'_>) -> Result<bool, SnapshotError> {
    match reader.read::<u8>()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(SnapshotError::Contradiction),
    }
}

/// Writes the body that describes the options a topic may have. The older name of an option is
/// accepted and not advertised.
pub(crate) fn describe_topic_options(defaults: &TopicOptions, out: &mut impl Sink) {
    let described = CATALOGUE
        .iter()
        .filter(|entry| entry.key != Key::EnforceFsync);
    let count = u32::try_from(described.clone().count()).expect("a short catalogue");
    count.write(out);
    for entry in described {
        let default = defaults.value(entry.key);
        let Value { kind, data } = default.as_value();
        let description = OptionDescription {
            key: Name::new(entry.name).expect("a name of the catalogue"),
            kind,
            default: Blob(data),
            description: Text(entry.description),
        };
        description.write(out);
    }
}

/// A value in the one kind it is kept in.
enum Canonical {
    Text(&'static str),
    Count([u8; 4]),
    Number([u8; 8]),
    Truth([u8; 1]),
}

impl Canonical {
    fn as_value(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::text(text),
            Self::Count(data) => Value {
                kind: kind::UINT32,
                data,
            },
            Self::Number(data) => Value {
                kind: kind::UINT64,
                data,
            },
            Self::Truth(data) => Value {
                kind: kind::BOOL,
                data,
            },
        }
    }
}

fn find(name: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

const fn compression_text(compression: CompressionAlgorithm) -> &'static str {
    match compression {
        CompressionAlgorithm::None => "none",
        CompressionAlgorithm::Gzip => "gzip",
    }
}

fn compression(value: Value<'_>) -> Option<CompressionAlgorithm> {
    if value.kind == kind::UINT8 {
        return CompressionAlgorithm::decode(value.data).ok();
    }
    let text = value.as_text()?;
    [CompressionAlgorithm::None, CompressionAlgorithm::Gzip]
        .into_iter()
        .find(|&compression| text.eq_ignore_ascii_case(compression_text(compression)))
}

fn durability(value: Value<'_>) -> Option<Durability> {
    let text = value.as_text()?;
    [Durability::Replicated, Durability::Persisted]
        .into_iter()
        .find(|durability| text.eq_ignore_ascii_case(durability.as_str()))
}

/// Microseconds; 0 asks for the default.
fn expiry(value: Value<'_>) -> Option<u64> {
    match value.kind {
        kind::UINT64 => value.as_number(),
        _ => match value.as_text()? {
            "never_expire" | "none" | "unlimited" => Some(UNLIMITED),
            "server_default" => Some(0),
            text => text::duration_micros(text),
        },
    }
}

/// Bytes; 0 asks for the default.
fn size(value: Value<'_>) -> Option<u64> {
    match value.kind {
        kind::UINT64 => value.as_number(),
        _ => match value.as_text()? {
            "unlimited" => Some(UNLIMITED),
            "server_default" => Some(0),
            text => text::size_bytes(text),
        },
    }
}

fn count(value: Value<'_>) -> Option<u32> {
    match value.kind {
        kind::UINT32 => u32::decode(value.data).ok(),
        _ => value.as_text()?.parse().ok(),
    }
}

fn truth(value: Value<'_>) -> Option<bool> {
    match value.kind {
        kind::BOOL => value.as_bool(),
        _ => value.as_text()?.parse().ok(),
    }
}
