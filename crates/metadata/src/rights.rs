//! Which right each command needs: one table, asked by the state machine for what enters the log
//! and by the server for all else.
//!
//! A user without the right is told 41 whether or not what it asked about exists: on what is not
//! there, only rights on what it would be in count.

use wire::{ErrorCode, Identifier, Request};

use crate::{
    Metadata,
    permissions::{ROOT, Right, Scope},
};

/// What a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// Not even a login.
    Nothing,
    /// A session, of whomever.
    Session,
    /// A right on everything.
    Global(Right),
    /// To be this user, or a right on everything.
    OneOf(Identifier<'a>, Right),
    /// A right on a stream.
    Stream(Right, Identifier<'a>),
    /// A right on a topic of a stream.
    Topic(Right, Identifier<'a>, Identifier<'a>),
}

/// What a request needs.
#[must_use]
pub const fn need<'a>(request: &Request<'a>) -> Need<'a> {
    use Need::{Global, Nothing, OneOf, Session, Stream, Topic};
    match request {
        Request::Ping | Request::Register(_) | Request::Logout => Nothing,
        Request::GetClusterMetadata
        | Request::GetMe
        | Request::DescribeOptions(_)
        | Request::AttachConsumerSession(_)
        | Request::PollRouting(_)
        | Request::ConsumerOffsetRouting(_)
        | Request::SyncConsumerGroup(_)
        | Request::FlushUnsavedBuffer(_)
        | Request::GetPersonalAccessTokens
        | Request::CreatePersonalAccessToken(_)
        | Request::DeletePersonalAccessToken(_) => Session,
        Request::GetStats
        | Request::GetSnapshot(_)
        | Request::GetClient(_)
        | Request::GetClients => Global(Right::ReadServers),
        Request::GetUsers => Global(Right::ReadUsers),
        Request::GetUser(user) => OneOf(*user, Right::ReadUsers),
        Request::ChangePassword(of) => OneOf(of.user, Right::ManageUsers),
        Request::CreateUser(_)
        | Request::UpdateUser(_)
        | Request::DeleteUser(_)
        | Request::UpdatePermissions(_) => Global(Right::ManageUsers),
        Request::GetStreams => Global(Right::ReadStreams),
        Request::CreateStream(_) => Global(Right::CreateStream),
        Request::GetStream(id) => Stream(Right::ReadStream, *id),
        Request::UpdateStream(of) => Stream(Right::ManageStream, of.stream),
        Request::DeleteStream(id) | Request::PurgeStream(id) => Stream(Right::ManageStream, *id),
        Request::GetTopics(id) => Stream(Right::ReadTopics, *id),
        Request::CreateTopic(of) => Stream(Right::CreateTopic, of.stream),
        Request::GetTopic(of) => Topic(Right::ReadTopic, of.stream, of.topic),
        Request::DeleteTopic(of) | Request::PurgeTopic(of) => {
            Topic(Right::ManageTopic, of.stream, of.topic)
        }
        Request::UpdateTopic(of) => Topic(Right::ManageTopic, of.stream, of.topic),
        Request::CreatePartitions(of) | Request::DeletePartitions(of) => {
            Topic(Right::ManageTopic, of.stream, of.topic)
        }
        Request::DeleteSegments(of) => Topic(Right::ManageTopic, of.stream, of.topic),
        Request::GetConsumerGroups(of) => Topic(Right::ReadTopic, of.stream, of.topic),
        Request::CreateConsumerGroup(of) => Topic(Right::ReadTopic, of.stream, of.topic),
        Request::GetConsumerGroup(of)
        | Request::DeleteConsumerGroup(of)
        | Request::JoinConsumerGroup(of)
        | Request::LeaveConsumerGroup(of) => Topic(Right::ReadTopic, of.stream, of.topic),
        Request::PollMessages(of) | Request::PollOnPrimary(of) => {
            Topic(Right::Poll, of.stream, of.topic)
        }
        Request::GetConsumerOffset(of) => Topic(Right::Poll, of.stream, of.topic),
        Request::StoreConsumerOffset(of) => Topic(Right::Poll, of.target.stream, of.target.topic),
        Request::DeleteConsumerOffset(of) => Topic(Right::Poll, of.target.stream, of.target.topic),
        Request::SendMessages(of) => Topic(Right::Send, of.target.stream, of.target.topic),
    }
}

impl Metadata {
    /// Whether a user may do this there, as things are now: a right taken away is gone at once.
    ///
    /// # Errors
    /// 40 if the user is gone or inactive, 41 if it lacks the right.
    pub fn authorize(&self, user: u32, right: Right, scope: Scope) -> Result<(), ErrorCode> {
        self.users.authorize(user, right, scope)
    }

    /// Whether a user may make this request, as things are now.
    ///
    /// # Errors
    /// 40 if the user is gone or inactive, 41 if it lacks the right.
    pub fn authorize_request(&self, user: u32, request: &Request<'_>) -> Result<(), ErrorCode> {
        if user == ROOT {
            return Ok(());
        }
        let (right, scope) = match need(request) {
            Need::Nothing => return Ok(()),
            Need::Session => return self.users.check_active(user),
            // The user is not root, so what root is called plays no part.
            Need::OneOf(target, _) if self.users.find(target) == Some(user) => {
                return self.users.check_active(user);
            }
            Need::Global(right) | Need::OneOf(_, right) => (right, Scope::GLOBAL),
            Need::Stream(right, stream) => {
                let stream = self.state.find_stream(stream).ok();
                (
                    right,
                    Scope {
                        stream,
                        topic: None,
                    },
                )
            }
            Need::Topic(right, stream, topic) => (right, self.scope_of(stream, topic)),
        };
        self.authorize(user, right, scope)
    }

    fn scope_of(&self, stream: Identifier<'_>, topic: Identifier<'_>) -> Scope {
        match self.state.find_topic(stream, topic) {
            Ok((stream, topic)) => Scope::topic(stream, topic),
            Err(_) => Scope {
                stream: self.state.find_stream(stream).ok(),
                topic: None,
            },
        }
    }
}
