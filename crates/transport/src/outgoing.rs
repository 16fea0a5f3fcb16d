//! How much one connection may have queued: a slow peer costs bounded memory.
//!
//! **Invariant:** `queued <= limit`, except for one message larger than the limit, which is let
//! through when nothing else is queued.

use alloc::vec::Vec;

use base::Bytes;
use platform::{ConnectionId, Effect, Outbox};

/// Nothing was sent: the peer must first read what is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The sending half of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    queued: usize,
    limit: usize,
}

impl Outgoing {
    /// Nothing queued, at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { queued: 0, limit }
    }

    /// Bytes handed to the body and not yet to the transport.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.queued
    }

    /// Whether `size` bytes would be taken now.
    #[must_use]
    pub const fn has_room(&self, size: usize) -> bool {
        self.queued == 0 || size <= self.limit.saturating_sub(self.queued)
    }

    /// Sends `bytes`, or nothing.
    ///
    /// # Errors
    /// [`Full`] if the limit would be passed.
    pub fn send(
        &mut self,
        connection: ConnectionId,
        bytes: Bytes,
        out: &mut Outbox,
    ) -> Result<(), Full> {
        if !self.has_room(bytes.len()) {
            return Err(Full);
        }
        self.queued += bytes.len();
        out.push(Effect::Send { connection, bytes });
        Ok(())
    }

    /// Sends one frame that lies in pieces, or nothing of it.
    ///
    /// # Errors
    /// [`Full`] if the limit would be passed.
    pub fn send_pieces(
        &mut self,
        connection: ConnectionId,
        pieces: Vec<Bytes>,
        out: &mut Outbox,
    ) -> Result<(), Full> {
        let size: usize = pieces.iter().map(|piece| piece.len()).sum();
        if !self.has_room(size) {
            return Err(Full);
        }
        self.queued += size;
        out.extend(
            pieces
                .into_iter()
                .map(|bytes| Effect::Send { connection, bytes }),
        );
        Ok(())
    }

    /// The body has handed `size` bytes to the transport.
    ///
    /// # Panics
    /// If fewer were queued.
    pub fn on_sent(&mut self, size: usize) {
        assert!(size <= self.queued, "more was sent than queued");
        self.queued -= size;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const CONNECTION: ConnectionId = ConnectionId(1);

    #[test]
    fn limit_is_taken_and_one_more_is_not() {
        let mut out = Outbox::new();
        let mut outgoing = Outgoing::new(1_000);
        let mut send = |outgoing: &mut Outgoing, size: usize| {
            outgoing.send(CONNECTION, Bytes::copy_of(&vec![0; size]), &mut out)
        };
        assert_eq!(send(&mut outgoing, 400), Ok(()));
        assert_eq!(send(&mut outgoing, 601), Err(Full));
        assert_eq!(send(&mut outgoing, 600), Ok(()));
        assert_eq!(send(&mut outgoing, 1), Err(Full));
        outgoing.on_sent(400);
        assert_eq!(send(&mut outgoing, 400), Ok(()));
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn oversized_message_passes_alone() {
        let mut out = Outbox::new();
        let mut outgoing = Outgoing::new(10);
        let pieces = || vec![Bytes::copy_of(&[1; 8]), Bytes::copy_of(&[2; 8])];
        assert_eq!(outgoing.send_pieces(CONNECTION, pieces(), &mut out), Ok(()));
        assert_eq!(outgoing.queued_bytes(), 16);
        assert_eq!(
            outgoing.send_pieces(CONNECTION, pieces(), &mut out),
            Err(Full)
        );
        assert_eq!(out.len(), 2);
    }
}
