//! A running hash over everything delivered: two runs are the same if it is. Every so many events
//! its value is kept, so that of two runs that differ the place can be found.

use base::checksum::xxh3_64;
use platform::{DiskDone, DiskResult, Event, Letter, NetworkEvent, Outcome};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Digest {
    value: u64,
    events: u64,
    checkpoints: Vec<u64>,
}

/// Events between two checkpoints.
pub(crate) const CHECKPOINT: u64 = 1 << 10;

impl Digest {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            value: seed ^ 0x5eed_5eed_5eed_5eed,
            events: 0,
            checkpoints: Vec::new(),
        }
    }

    pub(crate) const fn value(&self) -> u64 {
        self.value
    }

    /// Events appended so far.
    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// The values after every [`CHECKPOINT`] events.
    pub(crate) fn checkpoints(&self) -> &[u64] {
        &self.checkpoints
    }

    /// Appends a number.
    pub(crate) const fn add(&mut self, value: u64) {
        let mixed = (self.value ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.value = (mixed ^ (mixed >> 29)).rotate_left(23);
    }

    /// Appends an event delivered to a shard or client at `time`.
    pub(crate) fn add_event(&mut self, time: u64, target: u64, event: &Event) {
        self.add(time);
        self.add(target);
        let (kind, payload) = summary(event);
        self.add(kind);
        self.add(payload);
        self.events += 1;
        if self.events.is_multiple_of(CHECKPOINT) {
            self.checkpoints.push(self.value);
        }
    }
}

/// A kind and a hash of what an event carries.
fn summary(event: &Event) -> (u64, u64) {
    match event {
        Event::Network(event) => match event {
            NetworkEvent::Listening { listener, .. } => (1, u64::from(listener.0)),
            NetworkEvent::Accepted { connection, .. } => (2, connection.0),
            NetworkEvent::Adopted {
                connection,
                received,
                ..
            } => (3, connection.0 ^ xxh3_64(received)),
            NetworkEvent::Connected { connection } => (4, connection.0),
            NetworkEvent::Received { connection, buffer } => {
                (5, connection.0 ^ xxh3_64(buffer.as_slice()))
            }
            NetworkEvent::Sent { connection, size } => (6, connection.0 ^ (*size as u64) << 20),
            NetworkEvent::Closed { connection } => (7, connection.0),
        },
        Event::Disk(DiskDone { token, result }) => {
            let token = token.owner ^ token.request.rotate_left(32);
            let payload = match result {
                Ok(DiskResult::Read { buffer }) => xxh3_64(buffer.as_slice()),
                Ok(DiskResult::Opened { size }) => *size,
                Ok(DiskResult::Names(names)) => xxh3_64(names.join("/").as_bytes()),
                Ok(DiskResult::Done | DiskResult::Written) => 1,
                Err(error) => *error as u64 + 2,
            };
            (8, token ^ payload)
        }
        Event::Letter { from, letter } => (9 + u64::from(from.0) * 256, letter_hash(letter)),
        Event::Computed { token, outcome } => {
            let outcome = match outcome {
                Outcome::PasswordVerified(matches) => u64::from(*matches),
                Outcome::Measured(facts) => xxh3_64(facts.hostname.as_bytes()),
                Outcome::Archived(archive) => {
                    xxh3_64(archive.as_deref().unwrap_or_default()).rotate_left(8)
                }
                Outcome::PasswordHashed(hash) => {
                    let hash = hash.as_ref().map_or("", |hash| &hash.0);
                    xxh3_64(hash.as_bytes()).rotate_left(16)
                }
                Outcome::TokenMinted(minted) => {
                    let digest = minted.as_ref().map(|(_, digest)| *digest);
                    xxh3_64(&digest.unwrap_or_default()).rotate_left(24)
                }
                Outcome::TokenDigested(digest) => xxh3_64(digest).rotate_left(32),
            };
            (10, token.owner ^ token.request.rotate_left(32) ^ outcome)
        }
        Event::Stop => (11, 0),
    }
}

fn letter_hash(letter: &Letter) -> u64 {
    match letter {
        Letter::Request { ticket, frame, .. } => ticket.number ^ xxh3_64(frame),
        Letter::Reply { ticket, frame, .. } => frame.iter().fold(ticket.number, |hash, piece| {
            hash.rotate_left(7) ^ xxh3_64(piece)
        }),
        Letter::MetadataCommitted { prepare } => xxh3_64(prepare),
        Letter::MetadataSnapshot { snapshot } => xxh3_64(snapshot),
        Letter::MetadataView { view } => u64::from(view.0),
        Letter::Founded { op } => op.0,
        Letter::ClientPort(port) => u64::from(*port),
        Letter::StatsRequest { number, groups } => groups
            .iter()
            .fold(*number, |hash, group| hash.rotate_left(7) ^ group.0),
        Letter::StatsReply { number, stats } => stats.iter().fold(*number, |hash, (group, of)| {
            hash.rotate_left(7) ^ group.0 ^ of.size_bytes << 32 ^ of.messages_count
        }),
        Letter::PurgeWatch { number, groups } => {
            groups.iter().fold(*number, |hash, (group, purges)| {
                hash.rotate_left(7) ^ group.0 ^ purges << 32
            })
        }
        Letter::PurgeDone { number } => *number,
        Letter::ClientsRequest { number } => *number,
        Letter::ClientsReply { number, clients } => clients.iter().fold(*number, |hash, client| {
            hash.rotate_left(7) ^ client.connection.0
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_time_and_content_count() {
        let of = |values: &[u64]| {
            let mut digest = Digest::new(1);
            values.iter().for_each(|value| digest.add(*value));
            digest.value()
        };
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        let mut one = Digest::new(1);
        let mut other = Digest::new(1);
        one.add_event(5, 0, &Event::Stop);
        other.add_event(6, 0, &Event::Stop);
        assert_ne!(one.value(), other.value());
    }
}
