//! Request vectors: header and body to values, values to what the vector says, and back.

use serde_json::{Map, Value, json};
use wire::{
    Codec, Consumer, Credentials, DecodeError, Identifier, PollingStrategy, Request, RequestHeader,
    Secret, header,
    request::{OffsetTarget, PartitionsCount, PollMessages, SendMessages, TopicTarget},
};

use super::{
    files::{Vector, number},
    is_remark,
};

/// The request in a frame.
pub(crate) fn decode(frame: &[u8]) -> Result<Request<'_>, DecodeError> {
    let header = RequestHeader::decode(frame).expect("a valid header");
    Request::decode(header.operation, header.code, &frame[wire::HEADER_SIZE..])
}

pub(crate) fn check(vector: &Vector) -> bool {
    let name = &vector.name;
    let header = RequestHeader::decode(&vector.bytes).expect("a valid header");
    assert_eq!(header.size as usize, vector.bytes.len(), "{name}");
    assert_eq!(
        vector.number("operation"),
        header.operation as u128,
        "{name}"
    );
    assert_eq!(
        vector.number("request"),
        u128::from(header.request),
        "{name}"
    );
    assert_eq!(
        vector.number("session"),
        u128::from(header.session),
        "{name}"
    );
    assert_eq!(vector.number("client"), header.client.0, "{name}");
    let body = &vector.bytes[wire::HEADER_SIZE..];
    assert!(header.matches_body(body), "{name}");
    let request = match Request::decode(header.operation, header.code, body) {
        Ok(request) => request,
        Err(error) => {
            assert_eq!(
                (name.as_str(), error),
                ("captured_unknown_code", DecodeError::Code)
            );
            return true;
        }
    };
    assert_eq!(
        vector.number("code"),
        u128::from(request.code().number()),
        "{name}"
    );
    let again = RequestHeader::new(
        header.client,
        header.session,
        header.request,
        request.code(),
    );
    let frame = header::request(&again, &request.encode());
    assert_eq!(*frame, vector.bytes[..], "{name}");
    check_fields(vector, &request);
    true
}

fn check_fields(vector: &Vector, request: &Request<'_>) {
    let Some(fields) = vector.decoded.get("fields") else {
        return;
    };
    let told = describe(request);
    for (key, expected) in fields.as_object().expect("an object") {
        if is_remark(key, expected) {
            continue;
        }
        let told = told
            .get(key)
            .unwrap_or_else(|| panic!("{}: no {key}", vector.name));
        let is_hexadecimal = expected.as_str().is_some_and(|text| text.starts_with("0x"));
        if is_hexadecimal {
            assert_eq!(number(told), number(expected), "{}: {key}", vector.name);
        } else {
            assert_eq!(told, expected, "{}: {key}", vector.name);
        }
    }
}

fn identifier(id: &Identifier<'_>) -> Value {
    match id {
        Identifier::Numeric(id) => json!(id),
        Identifier::Named(name) => json!(name.as_str()),
    }
}

/// An identifier as its vector describes it.
pub(crate) fn text(bytes: &[u8]) -> Option<Value> {
    Some(json!({ "value": identifier(&Identifier::decode(bytes).ok()?) }))
}

/// A polling strategy as its vector describes it.
pub(crate) fn strategy(bytes: &[u8]) -> Option<Value> {
    let (kind, value) = match PollingStrategy::decode(bytes).ok()? {
        PollingStrategy::Offset(offset) => (1, offset),
        PollingStrategy::Timestamp(timestamp) => (2, timestamp),
        PollingStrategy::First => (3, 0),
        PollingStrategy::Last => (4, 0),
        PollingStrategy::Next => (5, 0),
    };
    Some(json!({ "kind": kind, "value": value }))
}

/// A consumer as its vector describes it.
pub(crate) fn consumer_record(bytes: &[u8]) -> Option<Value> {
    let consumer = Consumer::decode(bytes).ok()?;
    Some(json!({ "kind": consumer.kind as u8, "id": identifier(&consumer.id) }))
}

fn consumer(consumer: &Consumer<'_>) -> Value {
    match consumer.single_key() {
        Some(key) => json!(key),
        None => json!({ "kind": consumer.kind as u8, "id": identifier(&consumer.id) }),
    }
}

/// A request's fields under the names the vectors use.
fn describe(request: &Request<'_>) -> Map<String, Value> {
    let value = match request {
        Request::Register(_)
        | Request::GetUser(_)
        | Request::CreateUser(_)
        | Request::DeleteUser(_)
        | Request::UpdateUser(_)
        | Request::UpdatePermissions(_)
        | Request::ChangePassword(_)
        | Request::CreatePersonalAccessToken(_)
        | Request::DeletePersonalAccessToken(_) => describe_user(request),
        Request::GetSnapshot(body) => {
            let types: Vec<u8> = body.contents().map(|content| content as u8).collect();
            json!({ "compression": body.compression as u8, "types": types })
        }
        Request::DescribeOptions(scope) => json!({ "scope": *scope as u8 }),
        Request::GetClient(id) => json!({ "client_id": id }),
        Request::AttachConsumerSession(body) => json!({
            "client_id": format!("{:#x}", body.client_id),
            "session": body.session,
            "metadata_watermark": body.metadata_watermark,
        }),
        Request::PollMessages(_)
        | Request::PollOnPrimary(_)
        | Request::PollRouting(_)
        | Request::SendMessages(_)
        | Request::GetConsumerOffset(_)
        | Request::ConsumerOffsetRouting(_)
        | Request::StoreConsumerOffset(_)
        | Request::DeleteConsumerOffset(_)
        | Request::FlushUnsavedBuffer(_) => describe_messages(request),
        other => describe_metadata(other),
    };
    value.as_object().expect("an object").clone()
}

fn describe_user(request: &Request<'_>) -> Value {
    match request {
        Request::Register(login) => {
            let mut told = json!({
                "protocol_version": login.prefix.protocol_version,
                "sdk_name": login.prefix.sdk_name.as_str(),
                "sdk_version": login.prefix.sdk_version.0,
                "context": (!login.context.0.is_empty()).then_some(login.context.0),
            });
            match &login.credentials {
                Credentials::Password { username, password } => {
                    told["username"] = json!(username.as_str());
                    told["password"] = json!(password.0);
                }
                Credentials::Token(Secret(token)) => told["token"] = json!(token),
            }
            told
        }
        Request::GetUser(user) | Request::DeleteUser(user) => {
            json!({ "user_id": identifier(user) })
        }
        Request::CreateUser(body) => json!({
            "username": body.username.as_str(),
            "password": body.password.0,
            "status": body.status as u8,
            "permissions": body.permissions.as_ref().map(|_| "some"),
        }),
        Request::UpdateUser(body) => json!({
            "user_id": identifier(&body.user),
            "username": body.username.map(|name| name.as_str()),
            "status": body.status.map(|status| status as u8),
        }),
        Request::UpdatePermissions(body) => json!({ "user_id": identifier(&body.user) }),
        Request::ChangePassword(body) => json!({
            "user_id": identifier(&body.user),
            "current": body.current.0,
            "new": body.new.0,
        }),
        Request::CreatePersonalAccessToken(body) => {
            json!({ "name": body.name.as_str(), "expiry": body.expiry })
        }
        Request::DeletePersonalAccessToken(name) => json!({ "name": name.as_str() }),
        other => panic!("not about users: {other:?}"),
    }
}

fn describe_messages(request: &Request<'_>) -> Value {
    match request {
        Request::PollMessages(body) | Request::PollOnPrimary(body) | Request::PollRouting(body) => {
            describe_poll(body)
        }
        Request::SendMessages(body) => describe_send(body),
        Request::GetConsumerOffset(target) | Request::ConsumerOffsetRouting(target) => {
            describe_offset(target)
        }
        Request::StoreConsumerOffset(body) => {
            let mut told = describe_offset(&body.target);
            told["offset"] = json!(body.offset);
            told["ack"] = json!(body.ack as u8);
            told
        }
        Request::DeleteConsumerOffset(body) => {
            let mut told = describe_offset(&body.target);
            told["ack"] = json!(body.ack as u8);
            told
        }
        Request::FlushUnsavedBuffer(body) => json!({ "fsync": body.fsync }),
        other => panic!("not about messages: {other:?}"),
    }
}

fn describe_poll(body: &PollMessages<'_>) -> Value {
    json!({
        "consumer": consumer(&body.consumer),
        "stream": identifier(&body.stream),
        "topic": identifier(&body.topic),
        "partition_id": body.partition.0,
        "strategy": strategy(&body.strategy.encode()),
        "count": body.count,
        "auto_commit": body.auto_commit,
    })
}

fn describe_send(body: &SendMessages<'_>) -> Value {
    let (header, frames) = wire::batch::frames(body.batch).expect("a valid batch");
    assert_eq!(wire::batch::verify(body.batch), Ok(header));
    assert_eq!(header.message_count, body.target.messages_count);
    let messages: Vec<Value> = frames
        .map(|frame| {
            let frame = frame.expect("a valid frame");
            let payload = core::str::from_utf8(frame.payload()).expect("text");
            let origin = header.origin_timestamp + u64::from(frame.timestamp_delta);
            let mut told = json!({ "origin_timestamp": origin, "payload": payload });
            // The vector's text has the second id with a stray blank.
            told["id"] = match frame.id {
                1 => json!(1),
                id => json!(format!("0x{id:X}").replace("080", "080 ")),
            };
            if !frame.user_headers().is_empty() {
                let headers = Vec::<wire::options::Pair>::decode(frame.user_headers());
                let headers = headers.expect("a valid block");
                assert_eq!(headers.len(), 2);
                told["user_headers"] = json!({ "n": "7 (Uint32)", "type": "order (String)" });
            }
            told
        })
        .collect();
    let partitioning = match body.target.partitioning {
        wire::Partitioning::PartitionId(id) => json!({ "kind": 2, "partition_id": id }),
        other => panic!("the client always resolves the partition: {other:?}"),
    };
    json!({
        "stream": identifier(&body.target.stream),
        "topic": identifier(&body.target.topic),
        "partitioning": partitioning,
        "messages": messages,
    })
}

fn describe_offset(target: &OffsetTarget<'_>) -> Value {
    json!({
        "consumer": consumer(&target.consumer),
        "partition_id": target.partition.0,
    })
}

fn topic(stream: &Identifier<'_>, topic: &Identifier<'_>) -> Value {
    json!({ "stream_id": identifier(stream), "topic_id": identifier(topic) })
}

fn describe_metadata(request: &Request<'_>) -> Value {
    match request {
        Request::GetStream(stream)
        | Request::DeleteStream(stream)
        | Request::PurgeStream(stream)
        | Request::GetTopics(stream) => json!({ "stream_id": identifier(stream) }),
        Request::CreateStream(body) => json!({ "name": body.name.as_str() }),
        Request::UpdateStream(body) => {
            json!({ "stream_id": identifier(&body.stream), "name": body.name.as_str() })
        }
        Request::GetTopic(TopicTarget { stream, topic: id })
        | Request::DeleteTopic(TopicTarget { stream, topic: id })
        | Request::PurgeTopic(TopicTarget { stream, topic: id }) => topic(stream, id),
        Request::CreateTopic(body) => json!({
            "stream_id": identifier(&body.stream),
            "name": body.name.as_str(),
            "partitions_count": body.partitions_count,
        }),
        Request::UpdateTopic(body) => {
            let mut told = topic(&body.stream, &body.topic);
            told["name"] = json!(body.name.as_str());
            told["options"] = super::replies::options(body.options.as_bytes());
            told
        }
        Request::CreatePartitions(PartitionsCount {
            stream,
            topic: id,
            count,
        })
        | Request::DeletePartitions(PartitionsCount {
            stream,
            topic: id,
            count,
        }) => {
            let mut told = topic(stream, id);
            told["partitions_count"] = json!(count);
            told
        }
        Request::DeleteSegments(body) => {
            let mut told = topic(&body.stream, &body.topic);
            told["partition_id"] = json!(body.partition_id);
            told["segments_count"] = json!(body.segments_count);
            told
        }
        Request::GetConsumerGroups(TopicTarget { stream, topic: id }) => topic(stream, id),
        Request::CreateConsumerGroup(body) => {
            let mut told = topic(&body.stream, &body.topic);
            told["name"] = json!(body.name.as_str());
            told
        }
        Request::GetConsumerGroup(target)
        | Request::DeleteConsumerGroup(target)
        | Request::JoinConsumerGroup(target)
        | Request::LeaveConsumerGroup(target)
        | Request::SyncConsumerGroup(target) => {
            let mut told = topic(&target.stream, &target.topic);
            told["group_id"] = identifier(&target.group);
            told
        }
        _ => json!({}),
    }
}
