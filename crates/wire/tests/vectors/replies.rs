//! Reply vectors: header and body to values, values to what the vector says, and back.

use serde_json::{Value, json};
use wire::{
    Codec, Counted, Name, Options, Permissions, ReplyHeader, header,
    reply::{
        Assignment, ClientDetails, ClientRecord, ClusterMetadata, Confirmation, ConsumerOffset,
        GroupDetails, GroupRecord, LoginRecord, OptionDescription, PollHead, Route, Stats,
        StreamDetails, StreamRecord, TokenRecord, TopicDetails, TopicRecord, UserDetails,
        UserRecord,
    },
    result::{decode_result, encode_result},
};

use super::{again, files::Vector};

pub(crate) fn check(vector: &Vector) -> bool {
    let name = vector.name.as_str();
    let header = ReplyHeader::decode(&vector.bytes).expect("a valid header");
    assert_eq!(header.size as usize, vector.bytes.len(), "{name}");
    assert_eq!(
        vector.number("operation"),
        header.operation as u128,
        "{name}"
    );
    assert_eq!(vector.number("op"), u128::from(header.op), "{name}");
    assert_eq!(vector.number("commit"), u128::from(header.commit), "{name}");
    assert_eq!(
        vector.number("request"),
        u128::from(header.request),
        "{name}"
    );
    assert_eq!(
        vector.number("status"),
        u128::from(header.status.0),
        "{name}"
    );
    let body = &vector.bytes[wire::HEADER_SIZE..];
    let fields = &vector.decoded["fields"];
    let encoded = if header.operation.is_result_framed() && !body.is_empty() {
        match decode_result(body).expect("a valid section") {
            Ok(payload) => match payload_again(name, payload, fields) {
                Some(payload) => encode_result(Ok(&payload)),
                None => return false,
            },
            Err(code) => {
                assert_eq!(fields["result"], json!(code.0), "{name}");
                encode_result(Err(code))
            }
        }
    } else if body.is_empty() {
        Vec::new()
    } else {
        match payload_again(name, body, fields) {
            Some(body) => body,
            None => return false,
        }
    };
    assert_eq!(
        *header::reply(&header, &encoded),
        vector.bytes[..],
        "{name}"
    );
    true
}

fn is<T: Into<Value>>(fields: &Value, key: &str, value: T) {
    assert_eq!(fields[key], value.into(), "{key}");
}

/// Decodes a payload, looks at what the vector says, encodes it again.
fn payload_again(name: &str, bytes: &[u8], fields: &Value) -> Option<Vec<u8>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    messages_again(name, bytes, fields)
        .or_else(|| metadata_again(name, bytes, fields))
        .or_else(|| cluster_again(name, bytes, fields))
        .or_else(|| node_again(name, bytes, fields))
        .or_else(|| users_again(name, bytes, fields))
}

fn messages_again(name: &str, bytes: &[u8], fields: &Value) -> Option<Vec<u8>> {
    Some(match name {
        "reply_send_messages" => {
            let Counted(list) = Counted::<Confirmation>::decode(bytes).expect("valid");
            let told: Vec<Value> = list
                .iter()
                .map(|c| json!([c.stream_id, c.topic_id, c.partition_id, c.base_offset]))
                .collect();
            is(fields, "confirmations", told);
            Counted(list).encode()
        }
        "reply_poll_messages" => {
            let (head, batches) = bytes.split_at(PollHead::SIZE);
            let head = PollHead::decode(head).expect("valid");
            let batches: Vec<&[u8]> = wire::batch::split(batches)
                .map(|batch| batch.expect("valid"))
                .collect();
            let count = |batch: &&[u8]| wire::batch::verify(batch).expect("valid").message_count;
            assert_eq!(batches.iter().map(count).sum::<u32>(), head.count);
            [&head.to_bytes()[..], &batches.concat()].concat()
        }
        "reply_poll_messages_empty" | "reply_poll_resync_required" => {
            let head = PollHead::decode(bytes).expect("valid");
            is(fields, "partition_id", head.partition_id);
            assert_eq!(head.count, 0);
            head.encode()
        }
        "reply_get_consumer_offset" => {
            let offset = ConsumerOffset::decode(bytes).expect("valid");
            is(fields, "partition_id", offset.partition_id);
            is(fields, "current_offset", offset.current_offset);
            is(fields, "stored_offset", offset.stored_offset);
            offset.encode()
        }
        _ => return None,
    })
}

fn metadata_again(name: &str, bytes: &[u8], fields: &Value) -> Option<Vec<u8>> {
    Some(match name {
        "reply_create_stream" => {
            let record = StreamRecord::decode(bytes).expect("valid");
            is(fields, "id", record.id);
            is(fields, "name", record.name.as_str());
            is(fields, "topics_count", record.topics_count);
            record.encode()
        }
        "reply_get_stream" => again::<StreamDetails>(bytes),
        "reply_get_streams" => {
            let records = Vec::<StreamRecord>::decode(bytes).expect("valid");
            is(fields, "streams", records.len());
            records.encode()
        }
        "reply_create_topic" | "reply_get_topic" => {
            let details = TopicDetails::decode(bytes).expect("valid");
            let partitions = details.partitions.len();
            assert_eq!(details.topic.partitions_count as usize, partitions);
            if name == "reply_get_topic" {
                is(fields, "topic", details.topic.id);
                is(fields, "partitions", partitions);
            }
            details.encode()
        }
        "reply_get_topics" => again::<Counted<TopicRecord>>(bytes),
        "reply_create_consumer_group" => {
            let details = GroupDetails::decode(bytes).expect("valid");
            is(fields, "id", details.group.id);
            is(fields, "members", details.members.len());
            is(fields, "name", details.group.name.as_str());
            details.encode()
        }
        "reply_get_consumer_group" => {
            let details = GroupDetails::decode(bytes).expect("valid");
            let told: Vec<Value> = details
                .members
                .iter()
                .map(|member| json!({ "id": member.id, "partitions": member.partitions.0 }))
                .collect();
            is(fields, "members", told);
            details.encode()
        }
        "reply_get_consumer_groups" => again::<Vec<GroupRecord>>(bytes),
        "reply_sync_consumer_group" => {
            let assignment = Assignment::decode(bytes).expect("valid");
            is(fields, "generation", assignment.generation);
            is(fields, "partitions", assignment.partitions.0.clone());
            assignment.encode()
        }
        _ => return None,
    })
}

fn cluster_again(name: &str, bytes: &[u8], fields: &Value) -> Option<Vec<u8>> {
    Some(match name {
        "reply_login_register" => {
            let record = LoginRecord::decode(bytes).expect("valid");
            is(fields, "user_id", record.user_id);
            is(fields, "session", record.session);
            is(
                fields,
                "server_protocol_version",
                record.server_protocol_version,
            );
            is(fields, "server_version", record.server_version.as_str());
            record.encode()
        }
        "reply_cluster_metadata_single" => {
            let metadata = ClusterMetadata::decode(bytes).expect("valid");
            is(fields, "name", metadata.name.0);
            assert_eq!(metadata.nodes.0[0].role, wire::NodeRole::Leader);
            assert_eq!(
                fields["nodes"][0]["name"],
                json!(metadata.nodes.0[0].name.0)
            );
            metadata.encode()
        }
        "reply_cluster_metadata_two" => {
            let metadata = ClusterMetadata::decode(bytes).expect("valid");
            is(fields, "nodes", metadata.nodes.0.len());
            metadata.encode()
        }
        "reply_poll_routing" => {
            let route = Route::decode(bytes).expect("valid");
            is(&fields["attach"], "session", route.attach.session);
            is(
                &fields["attach"],
                "metadata_watermark",
                route.attach.metadata_watermark,
            );
            is(
                fields,
                "primary",
                format!("{}:{}", route.node.ip.0, route.node.tcp),
            );
            route.encode()
        }
        _ => return None,
    })
}

fn node_again(name: &str, bytes: &[u8], fields: &Value) -> Option<Vec<u8>> {
    Some(match name {
        "reply_get_me" => {
            let details = ClientDetails::decode(bytes).expect("valid");
            is(fields, "client_id", details.client.client_id);
            is(fields, "address", details.client.address.0);
            is(fields, "transport", details.client.transport as u8);
            is(fields, "user_id", details.client.user_id);
            assert_eq!(details.client.groups_count as usize, details.groups.len());
            details.encode()
        }
        "reply_get_clients" => {
            let clients = Vec::<ClientRecord>::decode(bytes).expect("valid");
            assert_eq!(clients[0].user_id, wire::reply::NO_USER);
            clients.encode()
        }
        "reply_get_stats" => {
            let stats = Stats::decode(bytes).expect("valid");
            let percent = |bits| f64::from(f32::from_bits(bits));
            is(fields, "cpu_usage", percent(stats.cpu_usage_bits));
            is(
                fields,
                "total_cpu_usage",
                percent(stats.total_cpu_usage_bits),
            );
            is(fields, "process_id", stats.process_id);
            is(fields, "hostname", stats.hostname.0);
            is(fields, "semver", stats.server_semver);
            is(fields, "cache_metrics", stats.caches.0.len());
            is(fields, "threads", stats.threads_count);
            is(fields, "free_disk", stats.free_disk_space);
            is(fields, "total_disk", stats.total_disk_space);
            stats.encode()
        }
        "reply_describe_options" => {
            let entries = Counted::<OptionDescription>::decode(bytes).expect("valid");
            let told: Vec<Value> = entries.0.iter().map(describe_option).collect();
            is(fields, "entries", told);
            entries.encode()
        }
        _ => return None,
    })
}

fn users_again(name: &str, bytes: &[u8], fields: &Value) -> Option<Vec<u8>> {
    Some(match name {
        "reply_create_user" | "reply_get_user_no_permissions" => {
            let details = UserDetails::decode(bytes).expect("valid");
            is(fields, "id", details.user.id);
            assert_eq!(details.permissions.is_some(), name == "reply_create_user");
            details.encode()
        }
        "reply_get_users" => {
            let users = Vec::<UserRecord>::decode(bytes).expect("valid");
            is(fields, "users", users.len());
            users.encode()
        }
        "reply_create_pat" => {
            let token = Name::decode(bytes).expect("valid");
            is(fields, "token", token.as_str());
            token.encode()
        }
        "reply_get_pats" => {
            let tokens = Vec::<TokenRecord>::decode(bytes).expect("valid");
            let told: Vec<Value> = tokens
                .iter()
                .map(|token| json!({ "name": token.name.as_str(), "expiry_at": token.expiry_at }))
                .collect();
            is(fields, "tokens", told);
            tokens.encode()
        }
        _ => return None,
    })
}

fn describe_option(entry: &OptionDescription<'_>) -> Value {
    let default = wire::Value {
        kind: entry.kind,
        data: entry.default.0,
    };
    json!({ "key": entry.key.as_str(), "kind": entry.kind, "default": default.as_number() })
}

/// An options block as the vectors describe it.
pub(crate) fn options(bytes: &[u8]) -> Value {
    let options = Options::decode(bytes).expect("a valid block");
    let mut told = json!({});
    for (key, value) in options.iter() {
        told[key] = value
            .as_text()
            .map_or_else(|| json!(value.as_number()), |text| json!(text));
    }
    told
}

/// Permissions as the vector describes them.
pub(crate) fn permissions(bytes: &[u8]) -> Value {
    let permissions = Permissions::decode(bytes).expect("valid permissions");
    let streams: Vec<Value> = permissions
        .streams
        .iter()
        .map(|stream| {
            let topics: Vec<Value> = stream
                .topics
                .iter()
                .map(|topic| json!({ "id": topic.id, "p": topic.rights.encode() }))
                .collect();
            json!({ "id": stream.id, "p": stream.rights.encode(), "topics": topics })
        })
        .collect();
    json!({ "global": permissions.global.encode(), "streams": streams })
}
