//! What our own client makes of a server's bytes: no frame panics it, and a poll that it accepts
//! has dense offsets and whole messages.

#![no_main]

use base::Bytes;
use client::{Polled, Reply};
use libfuzzer_sys::fuzz_target;
use wire::{ErrorCode, HEADER_SIZE, ReplyHeader, header};

fn check(frame: &[u8]) {
    let Some(reply) = Reply::read(Bytes::copy_of(frame)) else {
        return;
    };
    assert!(frame.ends_with(reply.payload()));
    let _ = reply.confirmations();
    if let Ok(polled) = Polled::read(&reply) {
        assert_eq!(polled.messages.len(), polled.head.count as usize);
        for pair in polled.messages.windows(2) {
            assert_eq!(pair[0].offset.0 + 1, pair[1].offset.0);
        }
        assert!(
            polled
                .messages
                .iter()
                .all(|message| message.frame.is_intact())
        );
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    // A header that lies about its size hides the rest: once more with the right one.
    if let Ok(decoded) = ReplyHeader::decode(data)
        && decoded.status == ErrorCode::OK
        && let Some(body) = data.get(HEADER_SIZE..)
    {
        check(&header::reply(&decoded, body));
    }
});
