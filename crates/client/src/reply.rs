//! What came back: a reply frame, read once.

use base::{Bytes, ClientId};
use wire::{
    Codec, Command, DecodeError, ErrorCode, EvictionHeader, HEADER_SIZE, Operation, ReplyHeader,
    result::decode_result,
};

/// A successful reply: its frame, and where the payload starts in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    header: ReplyHeader,
    frame: Bytes,
    payload_at: usize,
}

impl Reply {
    /// Reads a successful reply; nothing if it is another frame. For whoever keeps frames.
    #[must_use]
    pub fn read(frame: Bytes) -> Option<Self> {
        match Answer::read(frame) {
            Answer::Done(reply) => Some(reply),
            Answer::Refused { .. } | Answer::Evicted(_) | Answer::Malformed => None,
        }
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &ReplyHeader {
        &self.header
    }

    /// The whole frame, as it came.
    #[must_use]
    pub const fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// The body behind the result section.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.frame[self.payload_at..]
    }

    /// The payload as the record that the command answers with.
    ///
    /// # Errors
    /// [`DecodeError`] if it is another.
    pub fn decode<'a, T: Codec<'a>>(&'a self) -> Result<T, DecodeError> {
        T::decode(self.payload())
    }

    /// Like [`Self::decode`], for commands that answer "there is none" with nothing.
    ///
    /// # Errors
    /// [`DecodeError`] if it is another record.
    pub fn decode_optional<'a, T: Codec<'a>>(&'a self) -> Result<Option<T>, DecodeError> {
        if self.payload().is_empty() {
            Ok(None)
        } else {
            self.decode().map(Some)
        }
    }
}

/// What a frame from the server says about the request that is out.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It went well.
    Done(Reply),
    /// It did not, and the server says why.
    Refused {
        header: ReplyHeader,
        code: ErrorCode,
    },
    /// The session is over.
    Evicted(EvictionHeader),
    /// Not a frame that a server sends.
    Malformed,
}

impl Answer {
    /// Whether it answers the request `number` of `client`. An eviction carries no number.
    pub(crate) fn belongs_to(&self, client: ClientId, number: u64) -> bool {
        match self {
            Self::Done(Reply { header, .. }) | Self::Refused { header, .. } => {
                header.client == client && header.request == number
            }
            Self::Evicted(header) => header.client == client,
            Self::Malformed => false,
        }
    }

    /// Whether it is a refusal with `code`.
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Refused { code: refused, .. } if *refused == code)
    }

    pub(crate) fn read(frame: Bytes) -> Self {
        match frame.get(60).copied().and_then(Command::from_byte) {
            Some(Command::Reply) => Self::read_reply(frame).unwrap_or(Self::Malformed),
            Some(Command::Eviction) => {
                EvictionHeader::decode(&frame).map_or(Self::Malformed, Self::Evicted)
            }
            _ => Self::Malformed,
        }
    }

    fn read_reply(frame: Bytes) -> Option<Self> {
        let header = ReplyHeader::decode(&frame).ok()?;
        if header.status != ErrorCode::OK {
            return Some(Self::Refused {
                header,
                code: header.status,
            });
        }
        let body = &frame[HEADER_SIZE..];
        let is_empty_register = header.operation == Operation::Register && body.is_empty();
        let mut payload_at = HEADER_SIZE;
        if header.operation.is_result_framed() && !is_empty_register {
            match decode_result(body).ok()? {
                Ok(payload) => payload_at = frame.len() - payload.len(),
                Err(code) => return Some(Self::Refused { header, code }),
            }
        }
        Some(Self::Done(Reply {
            header,
            frame,
            payload_at,
        }))
    }
}
