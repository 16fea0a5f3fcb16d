//! TLV blocks: pairs of a key and a value, each `kind:u8, len:u32, data` (`wire.md` 4.8).
//! A message's user headers are such a block; an options block has text keys, each once.

use alloc::{collections::BTreeSet, vec::Vec};

use crate::{
    Codec, DecodeError, Reader, Sink,
    codec::{layout, length_u32},
};

/// Most pairs in an options block.
pub const OPTIONS_COUNT_MAX: usize = 1024;
/// Most bytes in an options block.
pub const OPTIONS_SIZE_MAX: usize = 100_000;

/// The kinds of values.
pub mod kind {
    /// Bytes.
    pub const RAW: u8 = 1;
    /// UTF-8.
    pub const STRING: u8 = 2;
    /// One byte, 0 or 1.
    pub const BOOL: u8 = 3;
    /// One byte.
    pub const UINT8: u8 = 9;
    /// Four bytes.
    pub const UINT32: u8 = 11;
    /// Eight bytes.
    pub const UINT64: u8 = 12;
}

/// Size of the data of a kind, if the kind fixes it.
const fn size_of_kind(kind: u8) -> Option<usize> {
    match kind {
        3 | 4 | 9 => Some(1),
        5 | 10 => Some(2),
        6 | 11 | 14 => Some(4),
        7 | 12 | 15 => Some(8),
        8 | 13 => Some(16),
        _ => None,
    }
}

/// A key or a value: its kind and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a> {
    /// One of [`kind`], or one this version does not know.
    pub kind: u8,
    /// 1 to 255 bytes. Writing any other length panics.
    pub data: &'a [u8],
}

impl<'a> Value<'a> {
    /// A text value of 1 to 255 bytes.
    #[must_use]
    pub const fn text(text: &'a str) -> Self {
        Self {
            kind: kind::STRING,
            data: text.as_bytes(),
        }
    }

    /// The text, if it is a text value.
    #[must_use]
    pub fn as_text(&self) -> Option<&'a str> {
        if self.kind != kind::STRING {
            return None;
        }
        core::str::from_utf8(self.data).ok()
    }

    /// The number, if it is an unsigned integer of 8, 32 or 64 bits.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match self.kind {
            kind::UINT8 => u8::decode(self.data).ok().map(u64::from),
            kind::UINT32 => u32::decode(self.data).ok().map(u64::from),
            kind::UINT64 => u64::decode(self.data).ok(),
            _ => None,
        }
    }

    /// The truth value, if it is a bool of exactly 0 or 1.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        match (self.kind, self.data) {
            (kind::BOOL, [0]) => Some(false),
            (kind::BOOL, [1]) => Some(true),
            _ => None,
        }
    }
}

impl<'a> Codec<'a> for Value<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let kind: u8 = reader.read()?;
        if kind == 0 {
            return Err(DecodeError::Kind);
        }
        let length: u32 = reader.read()?;
        let length = length as usize;
        if !(1..=255).contains(&length) || size_of_kind(kind).is_some_and(|size| size != length) {
            return Err(DecodeError::Length);
        }
        let data = reader.take(length)?;
        if kind == kind::STRING && core::str::from_utf8(data).is_err() {
            return Err(DecodeError::Utf8);
        }
        Ok(Self { kind, data })
    }

    fn write(&self, out: &mut impl Sink) {
        assert!((1..=255).contains(&self.data.len()));
        self.kind.write(out);
        length_u32(self.data.len()).write(out);
        out.put(self.data);
    }
}

layout! {
    /// A pair of a TLV block, as in a message's user headers. `Vec<Pair>` is a whole block.
    #[derive(Copy)]
    Pair<'a> {
        /// Of any kind; options have text keys only.
        key: Value<'a>,
        /// Of any kind.
        value: Value<'a>,
    }
}

/// A checked options block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// The block's bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Whether there is no option.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The options in the order given.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let mut reader = Reader::new(self.0);
        core::iter::from_fn(move || {
            if reader.left() == 0 {
                return None;
            }
            let pair: Pair<'a> = reader
                .read()
                .expect("the block was checked when it was made");
            let key = pair
                .key
                .as_text()
                .expect("the block was checked when it was made");
            Some((key, pair.value))
        })
    }

    /// The value of an option.
    #[must_use]
    pub fn get(self, key: &str) -> Option<Value<'a>> {
        self.iter()
            .find(|(candidate, _)| *candidate == key)
            .map(|(_, value)| value)
    }
}

/// Checks all that is left of the body.
impl<'a> Codec<'a> for Options<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.take_rest();
        if bytes.len() > OPTIONS_SIZE_MAX {
            return Err(DecodeError::OptionsTooLarge);
        }
        let mut keys = BTreeSet::new();
        let mut pairs = Reader::new(bytes);
        while pairs.left() > 0 {
            let pair: Pair<'a> = pairs.read()?;
            let key = pair.key.as_text().ok_or(DecodeError::Options)?;
            if !keys.insert(key) || keys.len() > OPTIONS_COUNT_MAX {
                return Err(DecodeError::Options);
            }
        }
        Ok(Self(bytes))
    }

    fn write(&self, out: &mut impl Sink) {
        out.put(self.0);
    }
}

/// An options block of one's own, always a valid one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionsBlock(Vec<u8>);

impl OptionsBlock {
    /// An empty block.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends an option.
    ///
    /// # Panics
    /// If the key is there already, or if key or value are not 1 to 255 bytes, or if the block
    /// gets too large: callers write options they know.
    pub fn push(&mut self, key: &str, value: Value<'_>) {
        assert!(self.as_options().get(key).is_none());
        Pair {
            key: Value::text(key),
            value,
        }
        .write(&mut self.0);
        assert!(self.0.len() <= OPTIONS_SIZE_MAX);
        assert!(self.as_options().iter().count() <= OPTIONS_COUNT_MAX);
    }

    /// The block, borrowed.
    #[must_use]
    pub fn as_options(&self) -> Options<'_> {
        Options(&self.0)
    }
}

impl From<Options<'_>> for OptionsBlock {
    fn from(options: Options<'_>) -> Self {
        Self(options.0.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_round_trips_and_finds_its_values() {
        let mut block = OptionsBlock::new();
        block.push("durability", Value::text("persisted"));
        block.push(
            "segment_size",
            Value {
                kind: kind::UINT64,
                data: &7_u64.to_le_bytes(),
            },
        );
        let bytes = block.as_options().encode();
        let options = Options::decode(&bytes).expect("a valid block");
        assert_eq!(
            options.get("durability").and_then(|v| v.as_text()),
            Some("persisted")
        );
        assert_eq!(
            options.get("segment_size").and_then(|v| v.as_number()),
            Some(7)
        );
        assert_eq!(options.get("durabilit"), None);
    }

    #[test]
    fn bad_blocks_are_refused() {
        let pair = Pair {
            key: Value::text("k"),
            value: Value::text("v"),
        };
        let twice = [pair.encode(), pair.encode()].concat();
        assert_eq!(Options::decode(&twice), Err(DecodeError::Options));
        assert!(
            Vec::<Pair>::decode(&twice).is_ok(),
            "user headers may repeat a key"
        );
        let raw_key = Pair {
            key: Value {
                kind: kind::RAW,
                data: b"k",
            },
            ..pair
        }
        .encode();
        assert_eq!(Options::decode(&raw_key), Err(DecodeError::Options));
        let mut wrong_size = pair.encode();
        wrong_size[6] = kind::UINT64;
        assert_eq!(Options::decode(&wrong_size), Err(DecodeError::Length));
        let large = alloc::vec![0; OPTIONS_SIZE_MAX + 1];
        assert_eq!(Options::decode(&large), Err(DecodeError::OptionsTooLarge));
    }

    #[test]
    fn options_at_their_count_and_size_and_one_beyond() {
        let block = |count: usize, value: usize| {
            let value = alloc::vec![b'v'; value];
            let value = core::str::from_utf8(&value).expect("ASCII");
            let pairs = (0..count).map(|index| {
                let key = alloc::format!("{index:04}");
                let (key, value) = (Value::text(&key), Value::text(value));
                Pair { key, value }.encode()
            });
            pairs.collect::<Vec<_>>().concat()
        };
        let count = |bytes: &[u8]| Options::decode(bytes).map(|options| options.iter().count());
        assert_eq!(count(&block(OPTIONS_COUNT_MAX, 1)), Ok(OPTIONS_COUNT_MAX));
        assert_eq!(
            count(&block(OPTIONS_COUNT_MAX + 1, 1)),
            Err(DecodeError::Options)
        );
        // 500 pairs of 200 bytes each.
        let full = block(500, 186);
        assert_eq!(full.len(), OPTIONS_SIZE_MAX);
        assert_eq!(count(&full), Ok(500));
        assert_eq!(count(&block(500, 187)), Err(DecodeError::OptionsTooLarge));
    }
}
