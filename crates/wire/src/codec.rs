//! Reading and writing fields: [`Reader`] walks a borrowed body, [`Sink`] is what bodies are
//! written to, [`Codec`] is a value with one layout.
//!
//! All integers are little-endian. A decoder refuses what is cut and what goes on too long; it
//! never panics on input. Encoders assert, for what they write is ours.

use alloc::vec::Vec;
use core::fmt;

use base::Buffer;

use crate::{Cut, ErrorCode};

/// Why a body could not be decoded; always the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The body ends before its last field.
    Truncated,
    /// Bytes are left after the last field.
    Trailing,
    /// A length field has a value its field does not allow.
    Length,
    /// Text is not UTF-8.
    Utf8,
    /// A kind, flag or code byte has no meaning.
    Kind,
    /// An options block has a bad key, a key twice, or too many keys.
    Options,
    /// An options block is larger than 100,000 bytes.
    OptionsTooLarge,
    /// The command code is unknown, or does not travel this way.
    Code,
    /// The operation never comes from a client.
    Operation,
}

impl DecodeError {
    /// The code a client is told.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::OptionsTooLarge => ErrorCode::OPTIONS_BLOCK_TOO_LARGE,
            _ => ErrorCode::INVALID_COMMAND,
        }
    }
}

impl From<Cut> for DecodeError {
    fn from(_: Cut) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the body ends too early",
            Self::Trailing => "the body goes on after its last field",
            Self::Length => "a length is out of range",
            Self::Utf8 => "text is not UTF-8",
            Self::Kind => "a kind or flag is unknown",
            Self::Options => "the options block is invalid",
            Self::OptionsTooLarge => "the options block is too large",
            Self::Code => "the command code is unknown here",
            Self::Operation => "the operation is internal",
        })
    }
}

impl core::error::Error for DecodeError {}

/// Walks over a body, field by field.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if there are fewer.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if there are fewer.
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// All bytes that are left.
    pub const fn take_rest(&mut self) -> &'a [u8] {
        let rest = self.rest;
        self.rest = &[];
        rest
    }

    /// How many bytes are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Reads one value.
    ///
    /// # Errors
    /// What the value's decoder finds wrong.
    pub fn read<T: Codec<'a>>(&mut self) -> Result<T, DecodeError> {
        T::read(self)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] if something is.
    pub const fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing)
        }
    }
}

/// What bodies are written to.
pub trait Sink {
    /// Appends `bytes`.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Sink for Buffer {
    fn put(&mut self, bytes: &[u8]) {
        self.extend(bytes);
    }
}

/// A value with one layout on the wire.
pub trait Codec<'a>: Sized {
    /// Reads it from where the reader stands.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes there are not such a value.
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Writes it to the end of `out`.
    fn write(&self, out: &mut impl Sink);

    /// Reads it from `bytes`, which must end with it.
    ///
    /// # Errors
    /// [`DecodeError`] if `bytes` is not exactly one such value.
    fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }

    /// Writes it into fresh memory.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl<'a> Codec<'a> for $type {
            fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
                reader.take_array().map(Self::from_le_bytes)
            }

            fn write(&self, out: &mut impl Sink) {
                out.put(&self.to_le_bytes());
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, u128);

impl<'a> Codec<'a> for bool {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(reader.read::<u8>()? != 0)
    }

    fn write(&self, out: &mut impl Sink) {
        out.put(&[u8::from(*self)]);
    }
}

/// A flag byte, then the value if the flag is 1.
impl<'a, T: Codec<'a>> Codec<'a> for Option<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.read::<u8>()? {
            0 => Ok(None),
            1 => reader.read().map(Some),
            _ => Err(DecodeError::Kind),
        }
    }

    fn write(&self, out: &mut impl Sink) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }
}

/// Values back to back up to the end of the body.
impl<'a, T: Codec<'a>> Codec<'a> for Vec<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut values = Self::new();
        while reader.left() > 0 {
            values.push(reader.read()?);
        }
        Ok(values)
    }

    fn write(&self, out: &mut impl Sink) {
        for value in self {
            value.write(out);
        }
    }
}

/// A `u32` count, then that many values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted<T>(pub Vec<T>);

impl<'a, T: Codec<'a>> Codec<'a> for Counted<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count: u32 = reader.read()?;
        // The count is the sender's claim: memory grows with what is there, not with it.
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(reader.read()?);
        }
        Ok(Self(values))
    }

    fn write(&self, out: &mut impl Sink) {
        length_u32(self.0.len()).write(out);
        self.0.write(out);
    }
}

/// A `u32` byte length, then a value of exactly that length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefixed<T>(pub T);

impl<'a, T: Codec<'a>> Codec<'a> for Prefixed<T> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let length: u32 = reader.read()?;
        T::decode(reader.take(length as usize)?).map(Self)
    }

    fn write(&self, out: &mut impl Sink) {
        let value = self.0.encode();
        length_u32(value.len()).write(out);
        out.put(&value);
    }
}

/// A length or count as the wire carries it.
pub(crate) fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("frames are limited far below 4 GiB")
}

/// Defines a struct whose fields stand on the wire in the order written.
macro_rules! layout {
    ($(#[$doc:meta])* $name:ident<'a> { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> $crate::Codec<'a> for $name<'a> {
            fn read(reader: &mut $crate::Reader<'a>) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: reader.read()?,)* })
            }

            fn write(&self, out: &mut impl $crate::Sink) {
                $(self.$field.write(out);)*
            }
        }
    };
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> $crate::Codec<'a> for $name {
            fn read(reader: &mut $crate::Reader<'a>) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: reader.read()?,)* })
            }

            fn write(&self, out: &mut impl $crate::Sink) {
                $(self.$field.write(out);)*
            }
        }
    };
}

/// Defines an enum that is one byte on the wire; other bytes are refused.
macro_rules! byte_enum {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $value:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $value,)*
        }

        impl $name {
            /// The value with this byte, if there is one.
            #[must_use]
            pub const fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($value => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl<'a> $crate::Codec<'a> for $name {
            fn read(reader: &mut $crate::Reader<'a>) -> Result<Self, $crate::DecodeError> {
                Self::from_byte(reader.read()?).ok_or($crate::DecodeError::Kind)
            }

            fn write(&self, out: &mut impl $crate::Sink) {
                out.put(&[*self as u8]);
            }
        }
    };
}

pub(crate) use {byte_enum, layout};
