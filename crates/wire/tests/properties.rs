//! Decoders never panic, whatever the bytes; what they accept, they encode to bytes that mean
//! the same; and what we encode, they accept.

use proptest::{collection::vec, prelude::*};
use wire::{
    AckLevel, BatchBuilder, Codec, Consumer, ConsumerKind, Credentials, EvictionHeader, Identifier,
    Login, LoginPrefix, Name, Operation, OptionalPartition, OptionsBlock, Partitioning,
    PollingStrategy, Reader, ReplyHeader, Request, RequestHeader, Secret, ShortText, Text, Value,
    batch, header, reply,
    request::{
        CreateTopic, GroupTarget, OffsetTarget, PollMessages, SendMessages, SendTarget,
        StoreConsumerOffset,
    },
    result::decode_result,
};

/// Decodes as each type, and if that works encodes and decodes again: the value must be the
/// same, and the bytes as many.
macro_rules! assert_settled {
    ($bytes:expr, $($type:ty),* $(,)?) => {$(
        if let Ok(value) = <$type>::decode($bytes) {
            let again = value.encode();
            assert_eq!(again.len(), $bytes.len());
            assert_eq!(<$type>::decode(&again), Ok(value));
        }
    )*};
}

fn request_settles(operation: Operation, code: u32, body: &[u8]) {
    let Ok(request) = Request::decode(operation, code, body) else {
        return;
    };
    assert_eq!(request.operation(), operation);
    let again = request.encode();
    assert_eq!(again.len(), body.len());
    assert_eq!(Request::decode(operation, code, &again), Ok(request));
}

fn any_operation() -> impl Strategy<Value = Operation> {
    any::<u8>().prop_filter_map("an operation", Operation::from_byte)
}

/// Codes that exist, mostly.
fn any_code() -> impl Strategy<Value = u32> {
    prop_oneof![
        9 => (0..wire::Code::ALL.len()).prop_map(|at| wire::Code::ALL[at].number()),
        1 => any::<u32>(),
    ]
}

/// Bytes that get far into a decoder: small numbers, kinds, lengths.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![6 => 0_u8..5, 2 => 97_u8..123, 1 => any::<u8>()];
    vec(byte, 0..200)
}

proptest! {
    #[test]
    fn no_body_panics_a_request_decoder(
        operation in any_operation(), code in any_code(), body in body(),
    ) {
        request_settles(operation, code, &body);
    }

    #[test]
    fn no_frame_panics_a_header_decoder(
        mut frame in vec(any::<u8>(), 0..600),
        command in 0_u8..20,
        operation in any::<u8>(),
    ) {
        if frame.len() > 176 {
            frame[60] = command;
            frame[176] = operation;
        }
        if let Ok(header) = RequestHeader::decode(&frame) {
            let mut again = [0; wire::HEADER_SIZE];
            header.encode_into(&mut again);
            prop_assert_eq!(RequestHeader::decode(&again), Ok(header));
        }
        if let Ok(header) = ReplyHeader::decode(&frame) {
            let mut again = [0; wire::HEADER_SIZE];
            header.encode_into(&mut again);
            prop_assert_eq!(ReplyHeader::decode(&again), Ok(header));
        }
        if let Ok(header) = EvictionHeader::decode(&frame) {
            prop_assert_eq!(EvictionHeader::decode(&header::eviction(&header)), Ok(header));
        }
    }

    #[test]
    fn no_body_panics_a_reply_decoder(body in body()) {
        assert_settled!(
            &body,
            reply::LoginRecord,
            reply::StreamDetails,
            Vec<reply::StreamRecord>,
            reply::TopicDetails,
            wire::Counted<reply::TopicRecord>,
            wire::Counted<reply::Confirmation>,
            reply::PollHead,
            reply::ConsumerOffset,
            reply::ClusterMetadata,
            reply::Route,
            reply::ClientDetails,
            reply::Stats,
            wire::Counted<reply::OptionDescription>,
            reply::GroupDetails,
            reply::Assignment,
            reply::UserDetails,
            Vec<reply::TokenRecord>,
            Vec<wire::options::Pair>,
        );
        let _ = decode_result(&body);
    }

    #[test]
    fn no_bytes_panic_the_batch_functions(
        payloads in vec(vec(any::<u8>(), 1..20), 1..5),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        from in 0_u64..6,
        count in 0_u32..6,
    ) {
        let mut bytes = build(&payloads);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let _ = batch::verify(&bytes);
        prop_assert!(batch::split(&bytes).count() <= bytes.len());
        if let Ok(Some(slice)) = batch::slice(&bytes, from, count) {
            prop_assert!(slice.start < slice.end && slice.end <= bytes.len());
            prop_assert!(slice.header.message_count <= count);
        }
        let before = bytes.clone();
        if batch::stamp(&mut bytes, 1, 2, 3).is_err() {
            prop_assert_eq!(before, bytes);
        }
    }

    #[test]
    fn every_slice_serves_the_messages_asked_for(
        payloads in vec(vec(any::<u8>(), 1..20), 1..9),
        base_offset in 0_u64..100,
        skip in 0_u64..10,
        count in 1_u32..10,
    ) {
        let mut bytes = build(&payloads);
        batch::stamp(&mut bytes, 1, base_offset, 7).expect("a valid batch");
        prop_assert!(batch::verify(&bytes).is_ok());
        let expected: Vec<(u64, &[u8])> = payloads
            .iter()
            .enumerate()
            .map(|(index, payload)| (base_offset + index as u64, payload.as_slice()))
            .skip(usize::try_from(skip).expect("small"))
            .take(count as usize)
            .collect();
        let slice = batch::slice(&bytes, base_offset + skip, count).expect("a valid batch");
        prop_assert_eq!(slice.is_none(), expected.is_empty());
        if let Some(slice) = slice {
            let served = [&slice.header_bytes(), &bytes[slice.start..slice.end]].concat();
            let (header, frames) = batch::frames(&served).expect("a valid batch");
            let frames: Vec<_> = frames.map(|frame| frame.expect("a valid frame")).collect();
            let messages: Vec<(u64, &[u8])> = frames
                .iter()
                .map(|frame| (header.base_offset + u64::from(frame.offset_delta), frame.payload()))
                .collect();
            prop_assert_eq!(&messages, &expected);
            prop_assert_eq!(header.message_count as usize, expected.len());
            prop_assert_eq!(slice.last_offset, expected[expected.len() - 1].0);
        }
    }

    #[test]
    fn every_damaged_batch_is_refused(
        payloads in vec(vec(any::<u8>(), 1..50), 1..9),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..=255,
    ) {
        let mut bytes = build(&payloads);
        prop_assert!(batch::verify(&bytes).is_ok());
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(batch::verify(&bytes).is_err());
    }
}

fn build(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (index, payload) in payloads.iter().enumerate() {
        let id = index as u128 + 1;
        let message = batch::Message {
            id,
            origin_timestamp: 1000,
            payload,
            user_headers: &payload[1..],
        };
        builder.push(message).expect("a valid message");
    }
    builder.finish().expect("at least one message")
}

/// What the requests below are made of.
#[derive(Clone, Debug)]
struct Parts {
    texts: [String; 3],
    number: u32,
    is_named: bool,
    strategy: PollingStrategy,
    batch: Vec<u8>,
}

impl Parts {
    fn name(&self, at: usize) -> Name<'_> {
        Name::new(&self.texts[at]).expect("1 to 255 bytes")
    }

    fn id(&self, at: usize) -> Identifier<'_> {
        if self.is_named {
            Identifier::Named(self.name(at))
        } else {
            Identifier::Numeric(self.number)
        }
    }

    fn offset_target(&self) -> OffsetTarget<'_> {
        let kind = if self.is_named {
            ConsumerKind::Group
        } else {
            ConsumerKind::Single
        };
        OffsetTarget {
            consumer: Consumer {
                kind,
                id: self.id(0),
            },
            stream: self.id(1),
            topic: self.id(2),
            partition: OptionalPartition(self.is_named.then_some(self.number)),
        }
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let text = || "[a-z0-9é]{1,100}";
    let strategy = prop_oneof![
        any::<u64>().prop_map(PollingStrategy::Offset),
        any::<u64>().prop_map(PollingStrategy::Timestamp),
        Just(PollingStrategy::First),
        Just(PollingStrategy::Last),
        Just(PollingStrategy::Next),
    ];
    (
        text(),
        text(),
        text(),
        any::<u32>(),
        any::<bool>(),
        strategy,
        vec(any::<u8>(), 0..99),
    )
        .prop_map(|(a, b, c, number, is_named, strategy, batch)| Parts {
            texts: [a, b, c],
            number,
            is_named,
            strategy,
            batch,
        })
}

fn comes_back(request: &Request<'_>) {
    let header = RequestHeader::new(base::ClientId(1), 2, 3, request.code());
    let is_register = header.operation == Operation::Register;
    let (session, number) = if is_register { (0, 0) } else { (2, 3) };
    let header = RequestHeader {
        session,
        request: number,
        ..header
    };
    let frame = header::request(&header, &request.encode());
    let decoded = RequestHeader::decode(&frame).expect("a valid header");
    let body = &frame[wire::HEADER_SIZE..];
    assert!(decoded.matches_body(body));
    assert_eq!(decoded.size as usize, frame.len());
    assert_eq!(
        Request::decode(decoded.operation, decoded.code, body).as_ref(),
        Ok(request)
    );
    for len in 0..body.len() {
        let cut = Request::decode(decoded.operation, decoded.code, &body[..len]);
        assert_ne!(cut.as_ref(), Ok(request), "cut to {len}");
    }
}

proptest! {
    #[test]
    fn what_is_encoded_comes_back(parts in parts()) {
        let mut options = OptionsBlock::new();
        options.push("durability", Value::text(&parts.texts[0]));
        comes_back(&Request::CreateTopic(CreateTopic {
            stream: parts.id(0),
            partitions_count: parts.number,
            name: parts.name(1),
            options: options.as_options(),
        }));
        comes_back(&Request::PollMessages(PollMessages {
            consumer: parts.offset_target().consumer,
            stream: parts.id(1),
            topic: parts.id(2),
            partition: parts.offset_target().partition,
            strategy: parts.strategy,
            count: parts.number,
            auto_commit: parts.is_named,
        }));
        comes_back(&Request::SendMessages(SendMessages {
            target: SendTarget {
                stream: parts.id(0),
                topic: parts.id(1),
                partitioning: Partitioning::MessagesKey(parts.texts[2].as_bytes()),
                messages_count: parts.number,
            },
            batch: &parts.batch,
        }));
        comes_back(&Request::StoreConsumerOffset(StoreConsumerOffset {
            target: parts.offset_target(),
            offset: u64::from(parts.number),
            ack: AckLevel::Quorum,
        }));
        comes_back(&Request::JoinConsumerGroup(GroupTarget {
            stream: parts.id(0),
            topic: parts.id(1),
            group: parts.id(2),
        }));
    }

    #[test]
    fn both_logins_are_told_apart(parts in parts()) {
        let prefix = LoginPrefix {
            protocol_version: parts.number,
            sdk_name: parts.name(0),
            sdk_version: ShortText(&parts.texts[1]),
        };
        let context = Text("");
        let username = parts.name(1);
        let password = Secret(&parts.texts[2]);
        let credentials = Credentials::Password { username, password };
        comes_back(&Request::Register(Login { prefix, credentials, context }));
        let credentials = Credentials::Token(Secret(&parts.texts[2]));
        let login = Login { prefix, credentials, context };
        let body = login.encode();
        let read: LoginPrefix = Reader::new(&body).read().expect("a prefix");
        prop_assert_eq!(read, prefix);
        comes_back(&Request::Register(login));
    }
}
