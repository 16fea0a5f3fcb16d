//! What a replica's peer or a disk may hold: frames back to back, each with a header, checksums
//! and a body. No bytes panic their decoders, and a checksum hides no bug behind it: each frame
//! is tried as it is, and once more with its checksums made right.

#![no_main]

use base::{GroupId, ReplicaIndex, View};
use libfuzzer_sys::fuzz_target;
use wire::{
    BatchError, Command, HEADER_SIZE, batch,
    replica::{self, Envelope, Invalid, Message, PrepareHeader, envelope_repair},
};

const FRAME_SIZE_MAX: usize = 1 << 20;

/// Cuts the next frame off a stream, as a reader does.
fn next_frame<'a>(stream: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = replica::frame_size(stream).ok()?;
    assert!(size >= HEADER_SIZE);
    if size > FRAME_SIZE_MAX {
        return None;
    }
    let (frame, rest) = stream.split_at_checked(size)?;
    *stream = rest;
    Some(frame)
}

fn check_frame(frame: &[u8]) {
    let verified = replica::verify(frame);
    if verified.is_ok() {
        assert_eq!(replica::verify_header(frame), Ok(()));
    }
    let envelope = Envelope::decode(frame);
    let prepare = PrepareHeader::verify(frame);
    assert!(prepare.is_err() || (verified.is_ok() && envelope.is_ok()));
    if let Ok(header) = prepare {
        let mut again = frame.to_vec();
        header.seal_into(&mut again);
        let sealed = PrepareHeader::verify(&again).expect("what we seal");
        // The checksum may differ: bytes that must be zero are, after sealing.
        assert_eq!(
            PrepareHeader {
                checksum: header.checksum,
                ..sealed
            },
            header
        );
    }
    if let Ok((envelope, message)) = Message::decode(frame)
        && !matches!(
            message,
            Message::RepairPrepare { .. } | Message::CheckpointChunk { .. }
        )
    {
        assert_eq!(message.command(), envelope.command);
        let again = message.encode(envelope.cluster, envelope.view, envelope.replica);
        assert_eq!(Message::decode(&again), Ok((envelope, message)));
    }
}

/// The frame with right checksums, alone and in the envelope of a repair.
fn check_sealed(frame: &[u8]) {
    let mut sealed = frame.to_vec();
    if sealed[60] == Command::RepairPrepare as u8 {
        sealed[60] = Command::Prepare as u8;
    }
    replica::seal(&mut sealed);
    assert_eq!(replica::verify(&sealed), Ok(()));
    check_frame(&sealed);
    let head = envelope_repair(1, View(2), ReplicaIndex(0), GroupId(3), &sealed);
    let mut repair = [&head[..], &sealed].concat();
    let is_prepare = sealed[60] == Command::Prepare as u8;
    assert_eq!(replica::verify(&repair).is_ok(), is_prepare);
    check_frame(&repair);
    repair[HEADER_SIZE] ^= 1;
    assert!(replica::verify(&repair).is_err());
    sealed[0] ^= 1;
    assert_eq!(replica::verify(&sealed), Err(Invalid::Checksum));
}

/// Makes the checksums of all frames and of the batch right, as far as the layout allows.
fn mend(bytes: &mut [u8]) {
    let Ok((_, frames)) = batch::frames(bytes) else {
        return;
    };
    let sizes: Vec<usize> = frames
        .map_while(Result::ok)
        .map(|frame| frame.as_bytes().len())
        .collect();
    let mut at = batch::BATCH_HEADER_SIZE;
    for size in sizes {
        let checksum = base::checksum::xxh3_64(&bytes[at + 8..at + size]);
        bytes[at..at + 8].copy_from_slice(&checksum.to_le_bytes());
        at += size;
    }
    let _ = batch::stamp(bytes, 1, 2, 3);
}

fn check_batch(bytes: &[u8]) {
    let verified = batch::verify(bytes);
    for (from, count) in [(0, u32::MAX), (1, 1), (u64::MAX, 1)] {
        if let Ok(Some(slice)) = batch::slice(bytes, from, count) {
            assert!(slice.start < slice.end && slice.end <= bytes.len());
            assert!(slice.last_offset >= from && slice.header.message_count <= count);
            let served = [&slice.header_bytes(), &bytes[slice.start..slice.end]].concat();
            let (_, frames) = batch::frames(&served).expect("a slice is a batch");
            assert_eq!(frames.count(), slice.header.message_count as usize);
        }
    }
    if let Ok(header) = verified {
        let mut again = bytes.to_vec();
        header.encode_into(&mut again);
        assert_eq!(again, bytes);
        let whole = batch::slice(bytes, 0, u32::MAX).expect("verified");
        assert!(whole.expect("at least one message").is_whole(bytes));
    }
}

fuzz_target!(|data: &[u8]| {
    let mut stream = data;
    while let Some(frame) = next_frame(&mut stream) {
        check_frame(frame);
        check_sealed(frame);
        check_batch(&frame[HEADER_SIZE..]);
    }
    check_batch(data);
    let mut mended = data.to_vec();
    mend(&mut mended);
    let refused = batch::verify(&mended);
    assert_ne!(refused, Err(BatchError::FrameChecksum));
    assert_ne!(refused, Err(BatchError::Checksum));
    check_batch(&mended);
});
