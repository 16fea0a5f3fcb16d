//! What a user may do (`wire.md` 4.7): flags for everything, for streams and for topics.

use alloc::vec::Vec;

use crate::{Codec, DecodeError, Reader, Sink, codec::layout};

layout! {
    /// Rights on everything.
    #[derive(Copy, Default)]
    GlobalPermissions {
        /// All about servers.
        manage_servers: bool,
        /// Statistics, clients.
        read_servers: bool,
        /// All about users.
        manage_users: bool,
        /// User records.
        read_users: bool,
        /// All about streams and what is in them.
        manage_streams: bool,
        /// Stream records and what is in them.
        read_streams: bool,
        /// All about topics.
        manage_topics: bool,
        /// Topic records and messages.
        read_topics: bool,
        /// Messages.
        poll_messages: bool,
        /// Sending.
        send_messages: bool,
    }
}

layout! {
    /// Rights on one stream.
    #[derive(Copy, Default)]
    StreamRights {
        /// The stream and what is in it.
        manage_stream: bool,
        /// Its record and what is in it.
        read_stream: bool,
        /// Its topics.
        manage_topics: bool,
        /// Its topics' records and messages.
        read_topics: bool,
        /// Its messages.
        poll_messages: bool,
        /// Sending to it.
        send_messages: bool,
    }
}

layout! {
    /// Rights on one topic.
    #[derive(Copy, Default)]
    TopicRights {
        /// The topic.
        manage_topic: bool,
        /// Its record and messages.
        read_topic: bool,
        /// Its messages.
        poll_messages: bool,
        /// Sending to it.
        send_messages: bool,
    }
}

layout! {
    /// A topic and the rights on it.
    #[derive(Copy)]
    TopicPermissions {
        /// The topic.
        id: u32,
        /// The rights.
        rights: TopicRights,
    }
}

/// A stream, the rights on it and on its topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPermissions {
    /// The stream.
    pub id: u32,
    /// The rights.
    pub rights: StreamRights,
    /// Rights on single topics, by ascending id when we write them.
    pub topics: Vec<TopicPermissions>,
}

/// All rights of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// On everything.
    pub global: GlobalPermissions,
    /// On single streams, by ascending id when we write them.
    pub streams: Vec<StreamPermissions>,
}

/// Entries, each preceded by a byte that says that it follows; a zero byte ends them.
fn read_chain<'a, T: Codec<'a>>(reader: &mut Reader<'a>) -> Result<Vec<T>, DecodeError> {
    let mut entries = Vec::new();
    while reader.read::<bool>()? {
        entries.push(reader.read()?);
    }
    Ok(entries)
}

fn write_chain<'a, T: Codec<'a>>(entries: &[T], out: &mut impl Sink) {
    for entry in entries {
        true.write(out);
        entry.write(out);
    }
    false.write(out);
}

impl<'a> Codec<'a> for StreamPermissions {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: reader.read()?,
            rights: reader.read()?,
            topics: read_chain(reader)?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.id.write(out);
        self.rights.write(out);
        write_chain(&self.topics, out);
    }
}

impl<'a> Codec<'a> for Permissions {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            global: reader.read()?,
            streams: read_chain(reader)?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.global.write(out);
        write_chain(&self.streams, out);
    }
}
