//! What a server may send: no bytes panic a client's decoders, and what is accepted encodes to
//! bytes that mean the same.
//!
//! The input is read twice: as a whole frame, and as a kind of body and a body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{
    Codec, Counted, ErrorCode, EvictionHeader, HEADER_SIZE, ReplyHeader, batch, header, reply,
    result::{decode_result, encode_result},
};

/// Decodes a body as each type, and what decodes must encode to the same value.
macro_rules! check_as {
    ($body:expr, $($type:ty),* $(,)?) => {$(
        if let Ok(value) = <$type>::decode($body) {
            let again = value.encode();
            assert_eq!(again.len(), $body.len());
            assert_eq!(<$type>::decode(&again), Ok(value));
        }
    )*};
}

fn check_body(body: &[u8]) {
    check_as!(
        body,
        reply::LoginRecord,
        reply::StreamDetails,
        Vec<reply::StreamRecord>,
        reply::TopicDetails,
        Counted<reply::TopicRecord>,
        Counted<reply::Confirmation>,
        reply::ConsumerOffset,
        reply::ClusterMetadata,
        reply::Route,
        reply::ClientDetails,
        Vec<reply::ClientRecord>,
        reply::Stats,
        Counted<reply::OptionDescription>,
        reply::GroupDetails,
        Vec<reply::GroupRecord>,
        reply::Assignment,
        reply::UserDetails,
        Vec<reply::UserRecord>,
        Vec<reply::TokenRecord>,
        Vec<wire::options::Pair>,
    );
    if let Some((head, batches)) = body.split_first_chunk::<{ reply::PollHead::SIZE }>() {
        check_as!(head, reply::PollHead);
        for part in batch::split(batches) {
            let Ok(part) = part else { break };
            let (_, frames) = batch::frames(part).expect("a part has a header");
            for frame in frames.flatten() {
                assert!(frame.payload().len() + frame.user_headers().len() < part.len());
            }
        }
    }
}

fn check_framed(body: &[u8]) {
    match decode_result(body) {
        Ok(Ok(payload)) => {
            assert_eq!(encode_result(Ok(payload)), body);
            check_body(payload);
        }
        Ok(Err(code)) => assert_ne!(code, ErrorCode::OK),
        Err(_) => {}
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(decoded) = ReplyHeader::decode(data) {
        let mut again = [0; HEADER_SIZE];
        decoded.encode_into(&mut again);
        assert_eq!(ReplyHeader::decode(&again), Ok(decoded));
        if let Some(body) = data.get(HEADER_SIZE..decoded.size as usize) {
            if decoded.operation.is_result_framed() {
                check_framed(body);
            } else {
                check_body(body);
            }
        }
    } else if let Ok(decoded) = EvictionHeader::decode(data) {
        assert_eq!(
            EvictionHeader::decode(&header::eviction(&decoded)),
            Ok(decoded)
        );
    } else {
        check_framed(data);
        check_body(data);
    }
});
