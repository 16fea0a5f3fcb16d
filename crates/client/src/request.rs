//! One request on its way: the frame, and what is known of its fate.

use base::{Buffer, Bytes, ClientId, Instant};
use transport::Backoff;
use wire::{Code, HEADER_SIZE, Plane, Request, RequestHeader, header::request_checksum, put};

/// What is asked: a command and its body, laid out behind room for the header.
#[derive(Clone, Debug)]
pub struct RequestFrame {
    code: Code,
    frame: Buffer,
}

impl RequestFrame {
    /// Lays out a request.
    #[must_use]
    pub fn new(request: &Request<'_>) -> Self {
        let batch = match request {
            Request::SendMessages(send) => send.batch.len(),
            _ => 0,
        };
        let mut frame = Buffer::with_capacity(2 * HEADER_SIZE + batch);
        frame.extend(&[0; HEADER_SIZE]);
        request.write(&mut frame);
        Self {
            code: request.code(),
            frame,
        }
    }

    /// The command.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Header and body, in bytes.
    #[must_use]
    pub const fn frame_size(&self) -> usize {
        self.frame.len()
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.frame.as_slice()[HEADER_SIZE..]
    }

    /// Whether it is numbered by itself: it enters a log, so a repetition must be recognised.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.code.operation().plane() != Plane::NonReplicated
    }

    /// Puts the header before the body.
    pub(crate) fn into_frame(self, client: ClientId, session: u64, number: u64) -> Bytes {
        let mut frame = self.frame;
        let header = RequestHeader::new(client, session, number, self.code);
        let header = RequestHeader {
            size: u32::try_from(frame.len()).expect("frames are limited far below 4 GiB"),
            request_checksum: match header.operation.is_stamped() {
                true => request_checksum(&frame.as_slice()[HEADER_SIZE..]),
                false => 0,
            },
            ..header
        };
        header.encode_into(frame.as_mut_slice());
        frame.freeze()
    }
}

/// A request's name to whoever submitted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A request that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) ticket: Ticket,
    pub(crate) deadline: Instant,
    pub(crate) request: RequestFrame,
}

/// The request whose turn it is. Its frame stays as it is over all attempts, but for the session.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pub(crate) ticket: Ticket,
    pub(crate) deadline: Instant,
    pub(crate) number: u64,
    pub(crate) is_write: bool,
    pub(crate) frame: Bytes,
    pub(crate) retry: Backoff,
    /// An attempt was sent and not answered yet.
    pub(crate) in_flight: bool,
    /// An attempt was sent whose outcome will never be known.
    pub(crate) uncertain: bool,
}

impl Outstanding {
    /// Where a request header has the session.
    const SESSION_AT: usize = 184;

    /// The frame under the present session.
    pub(crate) fn stamp(&mut self, session: u64) -> Bytes {
        let stamp = session.to_le_bytes();
        if self.frame[Self::SESSION_AT..Self::SESSION_AT + 8] != stamp {
            if self.frame.get_mut().is_none() {
                // The body still holds the frame of an earlier attempt.
                self.frame = Bytes::copy_of(&self.frame);
            }
            let frame = self.frame.get_mut().expect("nobody else has the copy");
            put(frame, Self::SESSION_AT, stamp);
        }
        self.frame.clone()
    }

    /// Whether it may have had, or may still have, its effect.
    pub(crate) const fn maybe_applied(&self) -> bool {
        self.is_write && (self.uncertain || self.in_flight)
    }
}
