//! Who may do what (`wire.md` 4.7): a right is granted if any flag that implies it is set, on
//! everything, on the stream or on the topic.

use alloc::vec::Vec;

use wire::{
    GlobalPermissions, Permissions, StreamPermissions, StreamRights, TopicPermissions, TopicRights,
};

/// The root user: always there, always allowed.
pub const ROOT: u32 = 0;

/// A right, named after what it lets a user do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// See statistics, clients and snapshots.
    ReadServers,
    /// See users.
    ReadUsers,
    /// Create, change and delete users, their permissions and passwords.
    ManageUsers,
    /// See all streams.
    ReadStreams,
    /// See a stream.
    ReadStream,
    /// Create streams.
    CreateStream,
    /// Change, empty and delete a stream.
    ManageStream,
    /// See all topics of a stream.
    ReadTopics,
    /// See a topic, and all about its consumer groups.
    ReadTopic,
    /// Create topics in a stream.
    CreateTopic,
    /// Change, empty and delete a topic, its partitions and segments.
    ManageTopic,
    /// Poll messages; get, store and delete offsets.
    Poll,
    /// Send messages.
    Send,
}

/// Where a right is exercised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The stream, if it is about one that is there.
    pub stream: Option<u32>,
    /// The topic of that stream, if it is about one that is there.
    pub topic: Option<u32>,
}

impl Scope {
    /// Everything.
    pub const GLOBAL: Self = Self {
        stream: None,
        topic: None,
    };

    /// One stream.
    #[must_use]
    pub const fn stream(stream: u32) -> Self {
        Self {
            stream: Some(stream),
            topic: None,
        }
    }

    /// One topic.
    #[must_use]
    pub const fn topic(stream: u32, topic: u32) -> Self {
        Self {
            stream: Some(stream),
            topic: Some(topic),
        }
    }
}

/// Whether `permissions` grant `right` in `scope`.
#[must_use]
pub fn grants(permissions: &Permissions, right: Right, scope: Scope) -> bool {
    if global_grants(&permissions.global, right) {
        return true;
    }
    let of = |id: u32| move |stream: &&StreamPermissions| stream.id == id;
    let stream = scope
        .stream
        .and_then(|id| permissions.streams.iter().find(of(id)));
    let Some(stream) = stream else { return false };
    if stream_grants(&stream.rights, right) {
        return true;
    }
    let topic = scope
        .topic
        .and_then(|id| stream.topics.iter().find(|topic| topic.id == id));
    topic.is_some_and(|topic| topic_grants(&topic.rights, right))
}

const fn global_grants(flags: &GlobalPermissions, right: Right) -> bool {
    let reads_streams = flags.manage_streams || flags.read_streams;
    let manages_topics = flags.manage_streams || flags.manage_topics;
    let reads_topics = reads_streams || flags.manage_topics || flags.read_topics;
    match right {
        Right::ReadServers => flags.manage_servers || flags.read_servers,
        Right::ReadUsers => flags.manage_users || flags.read_users,
        Right::ManageUsers => flags.manage_users,
        Right::ReadStreams | Right::ReadStream => reads_streams,
        Right::CreateStream | Right::ManageStream => flags.manage_streams,
        Right::ReadTopics | Right::ReadTopic => reads_topics,
        Right::CreateTopic | Right::ManageTopic => manages_topics,
        Right::Poll => reads_topics || flags.poll_messages,
        Right::Send => manages_topics || flags.send_messages,
    }
}

const fn stream_grants(flags: &StreamRights, right: Right) -> bool {
    let reads_stream = flags.manage_stream || flags.read_stream;
    let manages_topics = flags.manage_stream || flags.manage_topics;
    let reads_topics = reads_stream || flags.manage_topics || flags.read_topics;
    match right {
        Right::ReadStream => reads_stream,
        Right::ManageStream => flags.manage_stream,
        Right::ReadTopics | Right::ReadTopic => reads_topics,
        Right::CreateTopic | Right::ManageTopic => manages_topics,
        Right::Poll => reads_topics || flags.poll_messages,
        Right::Send => manages_topics || flags.send_messages,
        Right::ReadServers
        | Right::ReadUsers
        | Right::ManageUsers
        | Right::ReadStreams
        | Right::CreateStream => false,
    }
}

const fn topic_grants(flags: &TopicRights, right: Right) -> bool {
    let reads = flags.manage_topic || flags.read_topic;
    match right {
        Right::ReadTopic => reads,
        Right::ManageTopic => flags.manage_topic,
        Right::Poll => reads || flags.poll_messages,
        Right::Send => flags.manage_topic || flags.send_messages,
        _ => false,
    }
}

/// What root may do.
pub(crate) fn everything() -> Permissions {
    Permissions {
        global: GlobalPermissions {
            manage_servers: true,
            read_servers: true,
            manage_users: true,
            read_users: true,
            manage_streams: true,
            read_streams: true,
            manage_topics: true,
            read_topics: true,
            poll_messages: true,
            send_messages: true,
        },
        streams: Vec::new(),
    }
}

/// The same permissions, each stream and topic once, by ascending id: what is said twice of one
/// is added up.
pub(crate) fn normalized(permissions: Permissions) -> Permissions {
    let mut streams: Vec<StreamPermissions> = Vec::new();
    let mut given = permissions.streams;
    given.sort_by_key(|stream| stream.id);
    for stream in given {
        match streams.last_mut().filter(|last| last.id == stream.id) {
            Some(last) => {
                last.rights = add_stream_rights(last.rights, stream.rights);
                last.topics.extend(stream.topics);
            }
            None => streams.push(stream),
        }
    }
    for stream in &mut streams {
        let mut topics: Vec<TopicPermissions> = Vec::new();
        stream.topics.sort_by_key(|topic| topic.id);
        for topic in &stream.topics {
            match topics.last_mut().filter(|last| last.id == topic.id) {
                Some(last) => last.rights = add_topic_rights(last.rights, topic.rights),
                None => topics.push(*topic),
            }
        }
        stream.topics = topics;
    }
    Permissions {
        global: permissions.global,
        streams,
    }
}

const fn add_stream_rights(a: StreamRights, b: StreamRights) -> StreamRights {
    StreamRights {
        manage_stream: a.manage_stream || b.manage_stream,
        read_stream: a.read_stream || b.read_stream,
        manage_topics: a.manage_topics || b.manage_topics,
        read_topics: a.read_topics || b.read_topics,
        poll_messages: a.poll_messages || b.poll_messages,
        send_messages: a.send_messages || b.send_messages,
    }
}

const fn add_topic_rights(a: TopicRights, b: TopicRights) -> TopicRights {
    TopicRights {
        manage_topic: a.manage_topic || b.manage_topic,
        read_topic: a.read_topic || b.read_topic,
        poll_messages: a.poll_messages || b.poll_messages,
        send_messages: a.send_messages || b.send_messages,
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use wire::{StreamPermissions, TopicPermissions};

    use super::*;

    const TOPIC: Scope = Scope::topic(1, 2);

    fn global(set: impl FnOnce(&mut GlobalPermissions)) -> Permissions {
        let mut permissions = Permissions::default();
        set(&mut permissions.global);
        permissions
    }

    fn on_stream(set: impl FnOnce(&mut StreamRights)) -> Permissions {
        let mut rights = StreamRights::default();
        set(&mut rights);
        let stream = StreamPermissions {
            id: 1,
            rights,
            topics: vec![],
        };
        Permissions {
            streams: vec![stream],
            ..Permissions::default()
        }
    }

    fn on_topic(set: impl FnOnce(&mut TopicRights)) -> Permissions {
        let mut permissions = on_stream(|_| {});
        let mut rights = TopicRights::default();
        set(&mut rights);
        permissions.streams[0].topics = vec![TopicPermissions { id: 2, rights }];
        permissions
    }

    #[test]
    fn reading_never_grants_sending() {
        let all = [
            global(|flags| (flags.read_streams, flags.read_topics) = (true, true)),
            on_stream(|flags| (flags.read_stream, flags.read_topics) = (true, true)),
            on_topic(|flags| flags.read_topic = true),
        ];
        for permissions in &all {
            assert!(grants(permissions, Right::Poll, TOPIC));
            assert!(grants(permissions, Right::ReadTopic, TOPIC));
            assert!(!grants(permissions, Right::Send, TOPIC));
            assert!(!grants(permissions, Right::ManageTopic, TOPIC));
        }
    }

    #[test]
    fn managing_grants_all_below_it() {
        let all = [
            global(|flags| flags.manage_streams = true),
            on_stream(|flags| flags.manage_stream = true),
        ];
        for permissions in &all {
            for right in [
                Right::ReadStream,
                Right::ManageStream,
                Right::CreateTopic,
                Right::ReadTopics,
                Right::ManageTopic,
                Right::Poll,
                Right::Send,
            ] {
                assert!(grants(permissions, right, TOPIC), "{right:?}");
            }
        }
        assert!(grants(&all[0], Right::CreateStream, Scope::GLOBAL));
        assert!(!grants(&all[1], Right::CreateStream, Scope::GLOBAL));
    }

    #[test]
    fn a_right_on_one_topic_says_nothing_of_another_or_of_the_list() {
        let permissions = on_topic(|flags| flags.manage_topic = true);
        assert!(grants(&permissions, Right::Send, TOPIC));
        for elsewhere in [Scope::topic(1, 3), Scope::topic(2, 2), Scope::stream(1)] {
            assert!(!grants(&permissions, Right::Send, elsewhere));
        }
        assert!(!grants(&permissions, Right::ReadTopics, Scope::stream(1)));
        assert!(!grants(&permissions, Right::ReadStream, Scope::stream(1)));
    }

    #[test]
    fn three_levels_add_up() {
        let mut permissions = on_topic(|flags| flags.send_messages = true);
        permissions.global.read_servers = true;
        permissions.streams[0].rights.poll_messages = true;
        assert!(grants(&permissions, Right::ReadServers, Scope::GLOBAL));
        assert!(grants(&permissions, Right::Poll, Scope::topic(1, 9)));
        assert!(grants(&permissions, Right::Send, TOPIC));
        assert!(!grants(&permissions, Right::Send, Scope::topic(1, 9)));
        assert!(!grants(&permissions, Right::ReadUsers, Scope::GLOBAL));
    }

    #[test]
    fn what_is_said_twice_adds_up() {
        let mut permissions = on_stream(|flags| flags.poll_messages = true);
        let more = on_topic(|flags| flags.send_messages = true);
        let other = StreamPermissions {
            id: 0,
            ..more.streams[0].clone()
        };
        permissions.streams.extend(more.streams.clone());
        permissions.streams.extend(more.streams);
        permissions.streams.push(other);
        let permissions = normalized(permissions);
        let ids: Vec<_> = permissions.streams.iter().map(|stream| stream.id).collect();
        assert_eq!(ids, [0, 1]);
        assert_eq!(permissions.streams[1].topics.len(), 1);
        assert!(grants(&permissions, Right::Send, TOPIC));
        assert!(grants(&permissions, Right::Poll, Scope::topic(1, 9)));
        assert_eq!(normalized(permissions.clone()), permissions);
    }

    #[test]
    fn nothing_grants_nothing() {
        let none = Permissions::default();
        for right in [
            Right::ReadServers,
            Right::ReadUsers,
            Right::ManageUsers,
            Right::ReadStreams,
            Right::ReadStream,
            Right::CreateStream,
            Right::ManageStream,
            Right::ReadTopics,
            Right::ReadTopic,
            Right::CreateTopic,
            Right::ManageTopic,
            Right::Poll,
            Right::Send,
        ] {
            assert!(!grants(&none, right, TOPIC), "{right:?}");
        }
    }
}
