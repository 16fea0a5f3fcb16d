//! Encryption at rest: messages are encrypted once, by the primary, before their prepare is
//! sealed; what is in a log, on a disk or between two nodes is the same ciphertext everywhere, so
//! replicas stay comparable byte by byte. A poll decrypts a copy.
//!
//! ```text
//!   key of the body = BLAKE3 keyed with the operator's key, of
//!                     "viewstamp batch", cluster, group, view, op, salt
//!   ciphertext, tag = AES-256-GCM(key of the body, nonce 0, the frames,
//!                     associated data: the batch header)
//! ```
//!
//! Every body has a key of its own, used once, so the nonce may be constant. It is new even where
//! a log is cut and goes on with the same numbers, or a directory is wiped: the salt is drawn
//! afresh for every body.
//!
//! All frames of the batch are encrypted, ids and lengths too; sizes stay as they are, so nothing
//! that counts bytes knows of it. The batch header stays readable: storage finds offsets and
//! times in it. Its checksum of the plain messages is set to 0 and comes back with them.
//!
//! **Invariant:** no key and no plain message is in any log line; `Debug` shows neither.

use core::fmt;

use aes_gcm::{
    Aes256Gcm, KeyInit,
    aead::{AeadInOut, Nonce, Tag},
};
use base::{Buffer, Bytes, Prng};
use wire::{
    HEADER_SIZE, Operation,
    batch::{self, BATCH_HEADER_SIZE},
    replica::{Encryption, PrepareHeader},
};

/// Where the batch's checksum stands in it.
const BATCH_CHECKSUM: core::ops::Range<usize> = 40..48;

/// The operator's key; the same on all nodes of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptionKey([u8; 32]);

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey(..)")
    }
}

/// A body that this key does not open: another key, or not the bytes that were encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotDecrypt;

impl EncryptionKey {
    /// A key of 32 random bytes.
    #[must_use]
    pub const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Tells keys apart, and tells nothing about them.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 16] {
        let hash = blake3::keyed_hash(&self.0, b"viewstamp key fingerprint");
        *hash.as_bytes().first_chunk().expect("16 of 32 bytes")
    }

    fn cipher(&self, header: &PrepareHeader, salt: [u8; 10]) -> Aes256Gcm {
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        hash.update(b"viewstamp batch");
        hash.update(&header.cluster.to_le_bytes());
        hash.update(&header.group.0.to_le_bytes());
        hash.update(&header.view.0.to_le_bytes());
        hash.update(&header.op.0.to_le_bytes());
        hash.update(&salt);
        Aes256Gcm::new(hash.finalize().as_bytes().into())
    }

    /// Encrypts the stamped batch in place that `frame` has after the room for its header;
    /// `header` says which op it is, and is told how to open it.
    pub(crate) fn encrypt(&self, header: &mut PrepareHeader, frame: &mut [u8], salts: &mut Prng) {
        base::invariant!(header.operation == Operation::SendMessages);
        base::invariant!(frame.len() >= HEADER_SIZE + BATCH_HEADER_SIZE);
        let mut salt = [0; 10];
        let [low, high] = [salts.next_u64(), salts.next_u64()].map(u64::to_le_bytes);
        if !base::planted::bug(54) {
            salt[..8].copy_from_slice(&low);
            salt[8..].copy_from_slice(&high[..2]);
        }
        let (batch_header, frames) = frame[HEADER_SIZE..].split_at_mut(BATCH_HEADER_SIZE);
        batch_header[BATCH_CHECKSUM].fill(0);
        let sealed = self.cipher(header, salt).encrypt_inout_detached(
            &Nonce::<Aes256Gcm>::default(),
            batch_header,
            frames.into(),
        );
        let tag = sealed
            .expect("a frame is far below the 64 GiB of one key")
            .into();
        header.encryption = Some(Encryption { salt, tag });
    }

    /// The prepare with its messages as they were sent: a copy. One that is not encrypted is
    /// given back. The checksums in its header stay those of what is in the log.
    ///
    /// # Errors
    /// [`CannotDecrypt`] if another key encrypted it.
    pub fn open(&self, prepare: &Bytes) -> Result<Bytes, CannotDecrypt> {
        let header = PrepareHeader::decode(prepare).map_err(|_| CannotDecrypt)?;
        let Some(Encryption { salt, tag }) = header.encryption else {
            return Ok(prepare.clone());
        };
        if prepare.len() < HEADER_SIZE + BATCH_HEADER_SIZE {
            return Err(CannotDecrypt);
        }
        let mut buffer = Buffer::with_capacity(prepare.len());
        buffer.extend(prepare);
        let body = &mut buffer.as_mut_slice()[HEADER_SIZE..];
        let (batch_header, frames) = body.split_at_mut(BATCH_HEADER_SIZE);
        let tag: Tag<Aes256Gcm> = tag.into();
        self.cipher(&header, salt)
            .decrypt_inout_detached(
                &Nonce::<Aes256Gcm>::default(),
                batch_header,
                frames.into(),
                &tag,
            )
            .map_err(|_| CannotDecrypt)?;
        batch::restore_checksum(body).map_err(|_| CannotDecrypt)?;
        Ok(buffer.freeze())
    }
}

#[cfg(test)]
mod tests {
    use base::{ClientId, Domain, GroupId, Op, ReplicaIndex, Timestamp, View};
    use wire::batch::{BatchBuilder, Message};

    use super::*;

    fn header() -> PrepareHeader {
        PrepareHeader {
            checksum: 0,
            checksum_body: 0,
            size: 0,
            cluster: 9,
            view: View(2),
            replica: ReplicaIndex(0),
            parent: 0,
            client: ClientId(1),
            group: GroupId(5),
            op: Op(7),
            commit: Op(6),
            timestamp: Timestamp(1_000),
            request: 1,
            session: 1,
            request_checksum: 0,
            user: 0,
            operation: Operation::SendMessages,
            encryption: None,
        }
    }

    /// A prepare with a stamped batch, not sealed yet.
    fn frame() -> alloc::vec::Vec<u8> {
        let mut builder = BatchBuilder::new();
        for id in 1..=3 {
            let message = Message {
                id,
                origin_timestamp: 5,
                payload: b"a secret payload",
                user_headers: &[2, 1, 0, 0, 0, b'k', 2, 1, 0, 0, 0, b'v'],
            };
            builder.push(message).expect("valid");
        }
        let mut frame = alloc::vec![0; HEADER_SIZE];
        frame.extend(builder.finish().expect("a batch"));
        batch::stamp(&mut frame[HEADER_SIZE..], 3, 40, 1_000).expect("a batch");
        frame
    }

    fn encrypted(key: &EncryptionKey, salts: &mut Prng) -> (PrepareHeader, Bytes) {
        let (mut header, mut frame) = (header(), frame());
        key.encrypt(&mut header, &mut frame, salts);
        header.seal_into(&mut frame);
        (header, Bytes::copy_of(&frame))
    }

    #[test]
    fn what_is_encrypted_is_opened_again_and_no_payload_is_seen() {
        let key = EncryptionKey::new([7; 32]);
        let mut salts = Prng::new(1, Domain::Replica, 0);
        let (_, sealed) = encrypted(&key, &mut salts);
        assert_eq!(sealed.len(), frame().len(), "sizes stay as they are");
        PrepareHeader::verify(&sealed).expect("checksums are of what is in the log");
        let contains = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|w| w == what);
        assert!(!contains(&sealed, b"secret"));
        let opened = key.open(&sealed).expect("the right key");
        assert_eq!(&opened[HEADER_SIZE..], &frame()[HEADER_SIZE..]);
        batch::verify(&opened[HEADER_SIZE..]).expect("a batch as it was sent");
        let plain = Bytes::copy_of(&{
            let mut frame = frame();
            header().seal_into(&mut frame);
            frame
        });
        assert_eq!(key.open(&plain).as_ref(), Ok(&plain), "older than the key");
    }

    #[test]
    fn another_key_another_place_or_another_byte_does_not_open_it() {
        let key = EncryptionKey::new([7; 32]);
        let mut salts = Prng::new(1, Domain::Replica, 0);
        let (header, sealed) = encrypted(&key, &mut salts);
        let other = EncryptionKey::new([8; 32]);
        assert_eq!(other.open(&sealed), Err(CannotDecrypt));
        assert_ne!(other.fingerprint(), key.fingerprint());
        let moved = |header: PrepareHeader| {
            let mut frame = sealed.to_vec();
            header.seal_into(&mut frame);
            key.open(&Bytes::copy_of(&frame))
        };
        assert!(moved(header).is_ok());
        let (op, view, group) = (Op(8), View(3), GroupId(6));
        assert!(moved(PrepareHeader { op, ..header }).is_err());
        assert!(moved(PrepareHeader { view, ..header }).is_err());
        assert!(moved(PrepareHeader { group, ..header }).is_err());
        for at in [HEADER_SIZE, HEADER_SIZE + 8, sealed.len() - 1] {
            let mut frame = sealed.to_vec();
            frame[at] ^= 1;
            assert_eq!(key.open(&Bytes::copy_of(&frame)), Err(CannotDecrypt));
        }
    }

    #[test]
    fn the_same_op_is_never_encrypted_alike() {
        let key = EncryptionKey::new([7; 32]);
        let mut salts = Prng::new(1, Domain::Replica, 0);
        let (first, second) = (encrypted(&key, &mut salts).1, encrypted(&key, &mut salts).1);
        let frames = HEADER_SIZE + BATCH_HEADER_SIZE;
        assert_ne!(first[frames..], second[frames..]);
        assert!(
            alloc::format!("{key:?}").len() < 24,
            "no key in a debug line"
        );
    }
}
