//! Every golden vector of protocol 0.11.0, both ways: what the published client encodes decodes
//! here to what it says, and encodes again to the same bytes. A vector that nothing here handles
//! fails the test.

mod files;
mod replies;
mod requests;

use serde_json::Value;
use wire::{Codec, DecodeError, EvictionHeader, HeaderError, LoginPrefix, batch, header};

use files::{Vector, all};

/// Decodes a value and gives it back encoded again.
fn again<'a, T: Codec<'a>>(bytes: &'a [u8]) -> Vec<u8> {
    T::decode(bytes).expect("a valid value").encode()
}

#[test]
fn every_vector_is_handled() {
    let mut counts = [0; 4];
    for vector in all() {
        let handled = if vector.is_of_another_version() {
            check_edge(&vector)
        } else {
            match vector.kind.as_str() {
                "request" => requests::check(&vector),
                "reply" => replies::check(&vector),
                "message" => check_message(&vector),
                "header" => check_header(&vector),
                _ => false,
            }
        };
        assert!(handled, "nothing handles {}", vector.name);
        let kinds = ["request", "reply", "message", "header"];
        counts[kinds
            .iter()
            .position(|kind| *kind == vector.kind)
            .expect("a known kind")] += 1;
    }
    assert_eq!(counts.iter().sum::<usize>(), 185);
}

fn check_message(vector: &Vector) -> bool {
    let bytes = &vector.bytes;
    let name = vector.name.as_str();
    let (encoded, text) = if name.starts_with("identifier_") {
        (again::<wire::Identifier>(bytes), requests::text(&bytes[..]))
    } else if name.starts_with("partitioning_") {
        (again::<wire::Partitioning>(bytes), None)
    } else if name.starts_with("polling_strategy_") {
        (
            again::<wire::PollingStrategy>(bytes),
            requests::strategy(bytes),
        )
    } else if name.starts_with("consumer_") {
        (
            again::<wire::Consumer>(bytes),
            requests::consumer_record(bytes),
        )
    } else if name == "options_block_topic" {
        (again::<wire::Options>(bytes), Some(replies::options(bytes)))
    } else if name.starts_with("permissions_") {
        (
            again::<wire::Permissions>(bytes),
            Some(replies::permissions(bytes)),
        )
    } else if name.starts_with("batch_") {
        return check_batch(vector);
    } else {
        return false;
    };
    assert_eq!(&encoded, bytes, "{name}");
    if let Some(text) = text {
        for (key, value) in text.as_object().expect("an object") {
            assert_eq!(&vector.decoded[key], value, "{name}: {key}");
        }
    }
    true
}

fn check_batch(vector: &Vector) -> bool {
    let header = batch::verify(&vector.bytes).expect("a valid batch");
    let is = |key: &str, value: u64| assert_eq!(vector.number(key), u128::from(value), "{key}");
    is("partition_id", header.partition_id);
    is("base_offset", header.base_offset);
    is("base_timestamp", header.base_timestamp);
    is("origin_timestamp", header.origin_timestamp);
    is("batch_length", header.batch_length);
    is("batch_checksum", header.batch_checksum);
    is("message_count", u64::from(header.message_count));
    let mut encoded = vector.bytes.clone();
    encoded[..batch::BATCH_HEADER_SIZE].fill(0xFF);
    header.encode_into(&mut encoded);
    assert_eq!(encoded, vector.bytes);
    true
}

#[test]
fn a_stamped_batch_is_the_stored_one() {
    let vectors = all();
    let find = |name: &str| {
        vectors
            .iter()
            .find(|v| v.name == name)
            .expect("it is there")
    };
    let mut bytes = find("batch_as_sent").bytes.clone();
    batch::stamp(&mut bytes, 2, 40, 1_700_000_001_000_000).expect("a valid batch");
    assert_eq!(bytes, find("batch_as_stored").bytes);
}

#[test]
fn the_builder_makes_the_batch_the_published_client_makes() {
    let user_headers = [
        wire::options::Pair {
            key: wire::Value::text("type"),
            value: wire::Value::text("order"),
        },
        wire::options::Pair {
            key: wire::Value::text("n"),
            value: wire::Value {
                kind: wire::options::kind::UINT32,
                data: &[7, 0, 0, 0],
            },
        },
    ];
    let user_headers: Vec<u8> = user_headers.iter().flat_map(Codec::encode).collect();
    let origin: u64 = 1_700_000_000_000_000;
    let mut builder = wire::BatchBuilder::new();
    let mut push = |id, delta, payload, user_headers| {
        let message = batch::Message {
            id,
            origin_timestamp: origin + delta,
            payload,
            user_headers,
        };
        builder.push(message).expect("a valid message");
    };
    push(1, 0, b"hello".as_slice(), [].as_slice());
    push(
        0xA0B0_C0D0_E0F0_0102_0304_0506_0708_090A,
        250,
        b"world!",
        &user_headers,
    );
    let built = builder.finish().expect("two messages");
    let vectors = all();
    let sent = vectors
        .iter()
        .find(|v| v.name == "batch_as_sent")
        .expect("it is there");
    assert_eq!(built, sent.bytes);
}

fn check_header(vector: &Vector) -> bool {
    match vector.name.as_str() {
        // Headers between Iggy's own replicas; ours differ, see `wire::replica`.
        "replica_prepare_identity" | "replica_prepare_ok_sealed" => true,
        name if name.starts_with("eviction_") => {
            let eviction = EvictionHeader::decode(&vector.bytes).expect("an eviction");
            assert_eq!(vector.number("reason"), eviction.reason as u128);
            if vector.decoded.get("view").is_some() {
                assert_eq!(vector.number("view"), u128::from(eviction.view.0));
                assert_eq!(vector.number("replica"), u128::from(eviction.replica.0));
            } else {
                let ours = EvictionHeader::new(eviction.client, eviction.reason);
                assert_eq!(ours.protocol_version_max, eviction.protocol_version_max);
                assert_eq!(ours.protocol_version_min, eviction.protocol_version_min);
            }
            assert_eq!(*header::eviction(&eviction), vector.bytes[..], "{name}");
            true
        }
        _ => false,
    }
}

/// Vectors of protocol 0.12.2: refused, or why they need not be.
fn check_edge(vector: &Vector) -> bool {
    let bytes = &vector.bytes;
    match vector.name.as_str() {
        "edge_login_register" => {
            let prefix = LoginPrefix::decode_prefix(&bytes[256..]).expect("the same prefix");
            assert!(!wire::accepts_protocol_version(prefix.protocol_version));
        }
        // The checksum field holds a random number in that version: denied with code 4.
        "edge_create_stream" => {
            let header = wire::RequestHeader::decode(bytes).expect("the same header");
            assert!(!header.matches_body(&bytes[256..]));
        }
        // Bodies without the new parts are the same; no client of that version logs in.
        "edge_send_messages" | "edge_poll_messages" => {
            requests::decode(bytes).expect("the same body");
        }
        "edge_get_partition_route" => {
            assert_eq!(requests::decode(bytes), Err(DecodeError::Code));
        }
        "edge_stream_body" => {
            let refused = wire::reply::StreamRecord::decode(bytes);
            assert_eq!(
                refused.expect_err("two option blocks"),
                DecodeError::Trailing
            );
        }
        "edge_poll_reply_head" => {
            let refused = wire::reply::PollHead::decode(bytes);
            assert_eq!(refused.expect_err("40 bytes"), DecodeError::Trailing);
        }
        "edge_cluster_metadata" => {
            assert!(wire::reply::ClusterMetadata::decode(bytes).is_err());
        }
        // The header of an eviction is the same, with that version's bounds.
        "edge_eviction_incompatible_protocol" => {
            let eviction = EvictionHeader::decode(bytes).expect("the same header");
            assert_eq!(eviction.protocol_version_max, 12_290);
            assert_eq!(*header::eviction(&eviction), bytes[..]);
        }
        _ => return false,
    }
    true
}

#[test]
fn a_frame_of_the_wrong_kind_is_refused() {
    for vector in all() {
        let is_request = vector.kind == "request";
        if is_request || vector.kind == "reply" {
            let refused = EvictionHeader::decode(&vector.bytes);
            assert_eq!(refused, Err(HeaderError::Command), "{}", vector.name);
            let is_reply = wire::ReplyHeader::decode(&vector.bytes).is_ok();
            assert_ne!(is_reply, is_request, "{}", vector.name);
        }
    }
}

/// A field that says "see elsewhere" or "same as".
fn is_remark(key: &str, value: &Value) -> bool {
    key.contains(' ') || value.as_str().is_some_and(|text| text.starts_with("see "))
}
