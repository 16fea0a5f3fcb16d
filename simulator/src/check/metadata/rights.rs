//! Who may do what: the table of the protocol, row by row.
//!
//! Flags are the bytes in which permissions travel, so a row is three lists of their places.
//!
//! Source: `wire.md` 4.7.

use wire::{Codec, ErrorCode, Identifier, Permissions, Request, UserStatus};

use super::state::State;

/// Places of the global flags.
mod global {
    pub(super) const MANAGE_SERVERS: usize = 0;
    pub(super) const READ_SERVERS: usize = 1;
    pub(super) const MANAGE_USERS: usize = 2;
    pub(super) const READ_USERS: usize = 3;
    pub(super) const MANAGE_STREAMS: usize = 4;
    pub(super) const READ_STREAMS: usize = 5;
    pub(super) const MANAGE_TOPICS: usize = 6;
    pub(super) const READ_TOPICS: usize = 7;
    pub(super) const POLL: usize = 8;
    pub(super) const SEND: usize = 9;
}

/// Places of a stream's flags.
mod stream {
    pub(super) const MANAGE: usize = 0;
    pub(super) const READ: usize = 1;
    pub(super) const MANAGE_TOPICS: usize = 2;
    pub(super) const READ_TOPICS: usize = 3;
    pub(super) const POLL: usize = 4;
    pub(super) const SEND: usize = 5;
}

/// Places of a topic's flags.
mod topic {
    pub(super) const MANAGE: usize = 0;
    pub(super) const READ: usize = 1;
    pub(super) const POLL: usize = 2;
    pub(super) const SEND: usize = 3;
}

/// A row: any of these flags allows it.
#[derive(Clone, Copy)]
struct Row {
    global: &'static [usize],
    stream: &'static [usize],
    topic: &'static [usize],
}

const fn row(global: &'static [usize], stream: &'static [usize], topic: &'static [usize]) -> Row {
    Row {
        global,
        stream,
        topic,
    }
}

const SERVERS: Row = row(&[global::MANAGE_SERVERS, global::READ_SERVERS], &[], &[]);
const SEE_USERS: Row = row(&[global::MANAGE_USERS, global::READ_USERS], &[], &[]);
const USERS: Row = row(&[global::MANAGE_USERS], &[], &[]);
const SEE_STREAM: Row = row(
    &[global::MANAGE_STREAMS, global::READ_STREAMS],
    &[stream::MANAGE, stream::READ],
    &[],
);
const SEE_STREAMS: Row = row(&[global::MANAGE_STREAMS, global::READ_STREAMS], &[], &[]);
const NEW_STREAM: Row = row(&[global::MANAGE_STREAMS], &[], &[]);
const STREAM: Row = row(&[global::MANAGE_STREAMS], &[stream::MANAGE], &[]);
const SEE_TOPICS: Row = row(
    &[
        global::READ_STREAMS,
        global::MANAGE_STREAMS,
        global::MANAGE_TOPICS,
        global::READ_TOPICS,
    ],
    &[
        stream::MANAGE,
        stream::READ,
        stream::MANAGE_TOPICS,
        stream::READ_TOPICS,
    ],
    &[],
);
const SEE_TOPIC: Row = row(
    SEE_TOPICS.global,
    SEE_TOPICS.stream,
    &[topic::MANAGE, topic::READ],
);
const NEW_TOPIC: Row = row(
    &[global::MANAGE_STREAMS, global::MANAGE_TOPICS],
    &[stream::MANAGE, stream::MANAGE_TOPICS],
    &[],
);
const TOPIC: Row = row(NEW_TOPIC.global, NEW_TOPIC.stream, &[topic::MANAGE]);
const POLL: Row = row(
    &[
        global::POLL,
        global::READ_TOPICS,
        global::MANAGE_TOPICS,
        global::READ_STREAMS,
        global::MANAGE_STREAMS,
    ],
    &[
        stream::MANAGE,
        stream::READ,
        stream::MANAGE_TOPICS,
        stream::READ_TOPICS,
        stream::POLL,
    ],
    &[topic::MANAGE, topic::READ, topic::POLL],
);
const SEND: Row = row(
    &[global::SEND, global::MANAGE_STREAMS, global::MANAGE_TOPICS],
    &[stream::MANAGE, stream::MANAGE_TOPICS, stream::SEND],
    &[topic::MANAGE, topic::SEND],
);

/// What a request is about.
enum About<'a> {
    Nothing,
    Stream(Identifier<'a>),
    Topic(Identifier<'a>, Identifier<'a>),
}

/// The row of a request and what it is about; none if every session may make it.
#[rustfmt::skip]
fn row_of<'a>(state: &State, user: u32, request: &Request<'a>) -> Option<(Row, About<'a>)> {
    use About::{Nothing, Stream, Topic};
    let own = |target| state.find_user(target) == Some(user);
    Some(match request {
        Request::GetStats | Request::GetSnapshot(_) | Request::GetClient(_)
        | Request::GetClients => (SERVERS, Nothing),
        Request::GetUser(target) if own(*target) => return None,
        Request::ChangePassword(of) if own(of.user) => return None,
        Request::GetUser(_) | Request::GetUsers => (SEE_USERS, Nothing),
        Request::CreateUser(_) | Request::UpdateUser(_) | Request::DeleteUser(_)
        | Request::UpdatePermissions(_) | Request::ChangePassword(_) => (USERS, Nothing),
        Request::GetStream(stream) => (SEE_STREAM, Stream(*stream)),
        Request::GetStreams => (SEE_STREAMS, Nothing),
        Request::CreateStream(_) => (NEW_STREAM, Nothing),
        Request::UpdateStream(of) => (STREAM, Stream(of.stream)),
        Request::DeleteStream(stream) | Request::PurgeStream(stream) => (STREAM, Stream(*stream)),
        Request::GetTopics(stream) => (SEE_TOPICS, Stream(*stream)),
        Request::GetTopic(of) => (SEE_TOPIC, Topic(of.stream, of.topic)),
        Request::CreateTopic(of) => (NEW_TOPIC, Stream(of.stream)),
        Request::UpdateTopic(of) => (TOPIC, Topic(of.stream, of.topic)),
        Request::DeleteTopic(of) | Request::PurgeTopic(of) => (TOPIC, Topic(of.stream, of.topic)),
        Request::CreatePartitions(of) | Request::DeletePartitions(of) => {
            (TOPIC, Topic(of.stream, of.topic))
        }
        Request::DeleteSegments(of) => (TOPIC, Topic(of.stream, of.topic)),
        Request::GetConsumerGroups(of) => (SEE_TOPIC, Topic(of.stream, of.topic)),
        Request::CreateConsumerGroup(of) => (SEE_TOPIC, Topic(of.stream, of.topic)),
        Request::GetConsumerGroup(of) | Request::DeleteConsumerGroup(of)
        | Request::JoinConsumerGroup(of) | Request::LeaveConsumerGroup(of) => {
            (SEE_TOPIC, Topic(of.stream, of.topic))
        }
        Request::PollMessages(of) | Request::PollOnPrimary(of) => {
            (POLL, Topic(of.stream, of.topic))
        }
        Request::GetConsumerOffset(of) => (POLL, Topic(of.stream, of.topic)),
        Request::StoreConsumerOffset(of) => (POLL, Topic(of.target.stream, of.target.topic)),
        Request::DeleteConsumerOffset(of) => (POLL, Topic(of.target.stream, of.target.topic)),
        Request::SendMessages(of) => (SEND, Topic(of.target.stream, of.target.topic)),
        _ => return None,
    })
}

/// Whether a user may make this request as things are: else 40 or 41. It is told 41 whether or
/// not there is what it asks for.
pub(super) fn permit(state: &State, user: u32, request: &Request<'_>) -> Result<(), ErrorCode> {
    if user == 0 {
        return Ok(());
    }
    let known = state.users.get(&user);
    let known = known.filter(|known| known.status == UserStatus::Active);
    let known = known.ok_or(ErrorCode::UNAUTHENTICATED)?;
    let Some((row, about)) = row_of(state, user, request) else {
        return Ok(());
    };
    let (stream, topic) = match about {
        About::Nothing => (None, None),
        About::Stream(stream) => (state.find_stream(stream), None),
        About::Topic(stream, topic) => (
            state.find_stream(stream),
            state.find_topic(stream, topic).ok().map(|(_, topic)| topic),
        ),
    };
    let permissions = known.permissions.as_ref();
    let granted = permissions.is_some_and(|given| grants(given, row, (stream, topic)));
    if granted {
        base::sometimes!("audit: a user with limited rights is let through");
        return Ok(());
    }
    Err(ErrorCode::UNAUTHORIZED)
}

fn grants(given: &Permissions, row: Row, (stream, topic): (Option<u32>, Option<u32>)) -> bool {
    let any = |flags: &[u8], places: &[usize]| places.iter().any(|place| flags[*place] != 0);
    if any(&given.global.encode(), row.global) {
        return true;
    }
    // What is said twice of one stream or topic counts together.
    let streams = given.streams.iter();
    streams.filter(|it| Some(it.id) == stream).any(|it| {
        let topics = it.topics.iter();
        any(&it.rights.encode(), row.stream)
            || topics
                .filter(|it| Some(it.id) == topic)
                .any(|it| any(&it.rights.encode(), row.topic))
    })
}

#[cfg(test)]
mod tests {
    use wire::{GlobalPermissions, StreamPermissions, StreamRights, TopicPermissions, TopicRights};

    use super::*;

    #[test]
    fn any_of_three_levels_is_enough_and_reading_never_grants_sending() {
        let mut given = Permissions::default();
        let place = (Some(3), Some(5));
        assert!(!grants(&given, POLL, place));
        let topic = TopicPermissions {
            id: 5,
            rights: TopicRights {
                poll_messages: true,
                ..TopicRights::default()
            },
        };
        given.streams.push(StreamPermissions {
            id: 3,
            rights: StreamRights::default(),
            topics: vec![topic],
        });
        assert!(grants(&given, POLL, place));
        assert!(!grants(&given, POLL, (Some(3), Some(6))));
        assert!(!grants(&given, POLL, (Some(4), Some(5))));
        assert!(!grants(&given, SEE_TOPIC, place));
        given.streams[0].rights.read_topics = true;
        assert!(grants(&given, SEE_TOPIC, place) && !grants(&given, SEND, place));
        given.global = GlobalPermissions {
            manage_topics: true,
            ..GlobalPermissions::default()
        };
        assert!(grants(&given, SEND, place) && !grants(&given, NEW_STREAM, place));
    }
}
