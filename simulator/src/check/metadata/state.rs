//! Streams, topics, partitions, users and tokens as a client may reckon them, and what each op of
//! the log does to them.
//!
//! An op is refused for any of the reasons that hold: the protocol names the codes of a command
//! and no order among them. Only a missing right comes before all others.
//!
//! Source: `wire.md` 3.3, 4.7 to 4.11, 5.2 to 5.6; `features.md` §1.1 and §1.6 (ids, reuse).

use std::collections::BTreeMap;

use wire::{
    ErrorCode, Identifier, Name, Operation, Options, Permissions, Prefixed, Reader, Request,
    UserStatus,
    request::{CreateTopic, CreateUser, PartitionsCount, UpdateTopic, UpdateUser},
};

use super::{
    options::{Segments, TopicOptions},
    rights,
};

const PARTITIONS_PER_REQUEST: u32 = 1000;
const TOKENS_MAX: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) options: TopicOptions,
    /// When each partition was created, by number.
    pub(super) partitions: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) topics: BTreeMap<u32, Topic>,
}

#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) status: UserStatus,
    pub(super) permissions: Option<Permissions>,
    /// The op that set its password; 0 for root's first.
    pub(super) password_since: u64,
    /// What the log has of its password.
    password: String,
    /// By name: digest, and when it ends.
    pub(super) tokens: BTreeMap<String, (Vec<u8>, Option<u64>)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) users: BTreeMap<u32, User>,
    users_given: u32,
    segments: Segments,
}

/// An op that is about to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    pub(crate) op: u64,
    pub(crate) operation: Operation,
    pub(crate) user: u32,
    pub(crate) timestamp: u64,
    pub(crate) body: &'a [u8],
}

/// What the reply to an op that was done is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    Stream(u32),
    Topic(u32, u32),
    User(u32),
    Token,
}

/// What an op comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done(Told),
    /// With any of these.
    Refused(Vec<ErrorCode>),
    /// Somebody else's to judge.
    Unjudged,
}

type Step = Result<Told, Vec<ErrorCode>>;

/// The lowest number that is free.
fn lowest<T>(taken: &BTreeMap<u32, T>) -> u32 {
    let mut ids = 0..;
    ids.find(|id| !taken.contains_key(id))
        .expect("few are taken")
}

fn refuse_if(reasons: Vec<ErrorCode>) -> Result<(), Vec<ErrorCode>> {
    if reasons.is_empty() {
        Ok(())
    } else {
        Err(reasons)
    }
}

/// The same reasons, and that options are not supported, if they are `unsupported` ones.
fn with(mut held: Vec<ErrorCode>, unsupported: bool) -> Vec<ErrorCode> {
    held.extend(unsupported.then_some(ErrorCode::UNSUPPORTED_OPTION_KEY));
    held
}

fn reasons(conditions: &[(bool, ErrorCode)]) -> Result<(), Vec<ErrorCode>> {
    let held = conditions.iter().filter(|(holds, _)| *holds);
    refuse_if(held.map(|(_, code)| *code).collect())
}

impl State {
    pub(super) fn new(root: &str, segments: Segments) -> Self {
        let root = User {
            name: root.into(),
            created_at: 0,
            status: UserStatus::Active,
            permissions: None,
            password_since: 0,
            password: String::new(),
            tokens: BTreeMap::new(),
        };
        Self {
            streams: BTreeMap::new(),
            users: BTreeMap::from([(0, root)]),
            users_given: 0,
            segments,
        }
    }

    /// Root is as old as the log.
    pub(super) fn begin(&mut self, timestamp: u64) {
        self.users.get_mut(&0).expect("root is there").created_at = timestamp;
    }

    pub(super) fn usual_options(&self) -> TopicOptions {
        TopicOptions::new(&self.segments)
    }

    pub(super) fn find_stream(&self, stream: Identifier<'_>) -> Option<u32> {
        match stream {
            Identifier::Numeric(id) => self.streams.contains_key(&id).then_some(id),
            Identifier::Named(name) => {
                let mut streams = self.streams.iter();
                let found = streams.find(|(_, it)| it.name == name.as_str());
                found.map(|(id, _)| *id)
            }
        }
    }

    pub(super) fn find_topic(
        &self,
        stream: Identifier<'_>,
        topic: Identifier<'_>,
    ) -> Result<(u32, u32), ErrorCode> {
        let stream = self.find_stream(stream);
        let stream = stream.ok_or(ErrorCode::STREAM_ID_NOT_FOUND)?;
        let topics = &self.streams[&stream].topics;
        let id = match topic {
            Identifier::Numeric(id) => topics.contains_key(&id).then_some(id),
            Identifier::Named(name) => {
                let found = topics.iter().find(|(_, it)| it.name == name.as_str());
                found.map(|(id, _)| *id)
            }
        };
        Ok((stream, id.ok_or(ErrorCode::TOPIC_ID_NOT_FOUND)?))
    }

    pub(super) fn find_user(&self, user: Identifier<'_>) -> Option<u32> {
        match user {
            Identifier::Numeric(id) => self.users.contains_key(&id).then_some(id),
            Identifier::Named(name) => {
                let found = self.users.iter().find(|(_, it)| it.name == name.as_str());
                found.map(|(id, _)| *id)
            }
        }
    }

    /// Does what an op asks for, or says why not.
    pub(super) fn apply(&mut self, at: At<'_>) -> Outcome {
        let step = match at.operation {
            Operation::CreatePersonalAccessToken => self.create_token(at),
            Operation::RemoveExpiredTokens => {
                for user in self.users.values_mut() {
                    let ended = |end: &Option<u64>| end.is_some_and(|end| end <= at.timestamp);
                    user.tokens.retain(|_, (_, end)| !ended(end));
                }
                Ok(Told::Nothing)
            }
            Operation::CreateConsumerGroup
            | Operation::DeleteConsumerGroup
            | Operation::JoinConsumerGroup
            | Operation::LeaveConsumerGroup
            | Operation::RemoveConsumerGroupMember
            | Operation::CompleteConsumerGroupRevocation => return Outcome::Unjudged,
            operation => match Request::decode(operation, 0, at.body) {
                Ok(request) => self.apply_request(at, &request),
                Err(error) => Err(vec![error.code()]),
            },
        };
        match step {
            Ok(told) => Outcome::Done(told),
            Err(reasons) => Outcome::Refused(reasons),
        }
    }

    fn apply_request(&mut self, at: At<'_>, request: &Request<'_>) -> Step {
        rights::permit(self, at.user, request).map_err(|code| vec![code])?;
        match request {
            Request::CreateStream(of) => self.create_stream(at, of.name, of.options),
            Request::UpdateStream(of) => self.update_stream(of.stream, of.name, of.options),
            Request::DeleteStream(stream) => self.delete_stream(*stream),
            Request::PurgeStream(stream) => {
                let found = self.find_stream(*stream);
                reasons(&[(found.is_none(), ErrorCode::STREAM_ID_NOT_FOUND)])?;
                Ok(Told::Nothing)
            }
            Request::CreateTopic(of) => self.create_topic(at, of),
            Request::UpdateTopic(of) => self.update_topic(of),
            Request::DeleteTopic(of) => {
                let found = self.find_topic(of.stream, of.topic);
                let (stream, topic) = found.map_err(|code| vec![code])?;
                self.stream(stream).topics.remove(&topic);
                self.forget_rights(stream, Some(topic));
                Ok(Told::Nothing)
            }
            Request::PurgeTopic(of) => {
                let found = self.find_topic(of.stream, of.topic);
                found.map(|_| Told::Nothing).map_err(|code| vec![code])
            }
            Request::CreatePartitions(of) => self.create_partitions(at, of),
            Request::DeletePartitions(of) => self.delete_partitions(of),
            Request::CreateUser(of) => self.create_user(at, of),
            Request::UpdateUser(of) => self.update_user(of),
            Request::DeleteUser(user) => {
                let id = self.user(*user)?;
                reasons(&[(id == 0, ErrorCode::CANNOT_DELETE_USER)])?;
                self.users.remove(&id);
                Ok(Told::Nothing)
            }
            Request::UpdatePermissions(of) => {
                let id = self.user(of.user)?;
                reasons(&[(id == 0, ErrorCode::CANNOT_CHANGE_PERMISSIONS)])?;
                let given = of.permissions.clone();
                let user = self.users.get_mut(&id).expect("found");
                user.permissions = given.map(|Prefixed(permissions)| permissions);
                Ok(Told::Nothing)
            }
            Request::ChangePassword(of) => {
                let id = self.user(of.user)?;
                let user = self.users.get_mut(&id).expect("found");
                let wrong = user.password != of.current.0;
                reasons(&[(wrong, ErrorCode::INVALID_CREDENTIALS)])?;
                user.password = of.new.0.into();
                user.password_since = at.op;
                Ok(Told::Nothing)
            }
            Request::DeletePersonalAccessToken(name) => {
                let user = self.users.get_mut(&at.user);
                let user = user.ok_or_else(|| vec![ErrorCode::UNAUTHENTICATED])?;
                let gone = user.tokens.remove(name.as_str());
                reasons(&[(gone.is_none(), ErrorCode::RESOURCE_NOT_FOUND)])?;
                Ok(Told::Nothing)
            }
            _ => Err(vec![ErrorCode::FEATURE_UNAVAILABLE]),
        }
    }

    fn stream(&mut self, id: u32) -> &mut Stream {
        self.streams.get_mut(&id).expect("found")
    }

    fn topic(&mut self, (stream, topic): (u32, u32)) -> &mut Topic {
        let topics = &mut self.stream(stream).topics;
        topics.get_mut(&topic).expect("found")
    }

    fn user(&self, user: Identifier<'_>) -> Result<u32, Vec<ErrorCode>> {
        let found = self.find_user(user);
        found.ok_or_else(|| vec![ErrorCode::RESOURCE_NOT_FOUND])
    }

    fn create_stream(&mut self, at: At<'_>, name: Name<'_>, options: Options<'_>) -> Step {
        let named = Identifier::Named(name);
        reasons(&[
            (!options.is_empty(), ErrorCode::UNSUPPORTED_OPTION_KEY),
            (
                self.find_stream(named).is_some(),
                ErrorCode::STREAM_NAME_ALREADY_EXISTS,
            ),
        ])?;
        let id = lowest(&self.streams);
        let stream = Stream {
            name: name.as_str().into(),
            created_at: at.timestamp,
            topics: BTreeMap::new(),
        };
        self.streams.insert(id, stream);
        Ok(Told::Stream(id))
    }

    fn update_stream(
        &mut self,
        stream: Identifier<'_>,
        name: Name<'_>,
        options: Options<'_>,
    ) -> Step {
        let unsupported = !options.is_empty();
        let id = self.find_stream(stream);
        let id = id.ok_or_else(|| with(vec![ErrorCode::STREAM_ID_NOT_FOUND], unsupported))?;
        let owner = self.find_stream(Identifier::Named(name));
        let taken = owner.is_some_and(|owner| owner != id);
        reasons(&[
            (unsupported, ErrorCode::UNSUPPORTED_OPTION_KEY),
            (taken, ErrorCode::STREAM_NAME_ALREADY_EXISTS),
        ])?;
        self.stream(id).name = name.as_str().into();
        Ok(Told::Nothing)
    }

    fn delete_stream(&mut self, stream: Identifier<'_>) -> Step {
        let id = self.find_stream(stream);
        let id = id.ok_or_else(|| vec![ErrorCode::STREAM_ID_NOT_FOUND])?;
        self.streams.remove(&id);
        self.forget_rights(id, None);
        Ok(Told::Nothing)
    }

    /// Rights on what is gone are not rights on what gets its number.
    fn forget_rights(&mut self, stream: u32, topic: Option<u32>) {
        let given = self.users.values_mut();
        for permissions in given.filter_map(|user| user.permissions.as_mut()) {
            match topic {
                None => permissions.streams.retain(|it| it.id != stream),
                Some(topic) => {
                    let streams = permissions.streams.iter_mut();
                    for it in streams.filter(|it| it.id == stream) {
                        it.topics.retain(|it| it.id != topic);
                    }
                }
            }
        }
    }

    fn create_topic(&mut self, at: At<'_>, of: &CreateTopic<'_>) -> Step {
        let stream = self.find_stream(of.stream);
        let stream = stream.ok_or_else(|| vec![ErrorCode::STREAM_ID_NOT_FOUND])?;
        let mut held = Vec::new();
        let options = self.usual_options();
        let options = options.with(of.options, false, &self.segments);
        let options = options.map_err(|reasons| held.extend(reasons));
        if of.partitions_count > PARTITIONS_PER_REQUEST {
            held.push(ErrorCode::TOO_MANY_PARTITIONS);
        }
        if self
            .find_topic(of.stream, Identifier::Named(of.name))
            .is_ok()
        {
            held.push(ErrorCode::TOPIC_NAME_ALREADY_EXISTS);
        }
        refuse_if(held)?;
        let topic = Topic {
            name: of.name.as_str().into(),
            created_at: at.timestamp,
            options: options.expect("no reason to refuse them"),
            partitions: vec![at.timestamp; of.partitions_count as usize],
        };
        let topics = &mut self.stream(stream).topics;
        let id = lowest(topics);
        topics.insert(id, topic);
        Ok(Told::Topic(stream, id))
    }

    fn update_topic(&mut self, of: &UpdateTopic<'_>) -> Step {
        let place = self.find_topic(of.stream, of.topic);
        let place = place.map_err(|code| vec![code])?;
        let segments = self.segments;
        let owner = self.find_topic(of.stream, Identifier::Named(of.name));
        let mut held = Vec::new();
        if owner.is_ok_and(|owner| owner != place) {
            held.push(ErrorCode::TOPIC_NAME_ALREADY_EXISTS);
        }
        let topic = self.topic(place);
        let options = topic.options.with(of.options, true, &segments);
        let options = options.map_err(|reasons| held.extend(reasons));
        refuse_if(held)?;
        topic.options = options.expect("no reason to refuse them");
        topic.name = of.name.as_str().into();
        Ok(Told::Nothing)
    }

    fn create_partitions(&mut self, at: At<'_>, of: &PartitionsCount<'_>) -> Step {
        let place = self.find_topic(of.stream, of.topic);
        let place = place.map_err(|code| vec![code])?;
        let wrong = !(1..=PARTITIONS_PER_REQUEST).contains(&of.count);
        reasons(&[(wrong, ErrorCode::TOO_MANY_PARTITIONS)])?;
        let partitions = &mut self.topic(place).partitions;
        partitions.extend(vec![at.timestamp; of.count as usize]);
        Ok(Told::Nothing)
    }

    fn delete_partitions(&mut self, of: &PartitionsCount<'_>) -> Step {
        let place = self.find_topic(of.stream, of.topic);
        let place = place.map_err(|code| vec![code])?;
        let wrong = !(1..=PARTITIONS_PER_REQUEST).contains(&of.count);
        let partitions = &mut self.topic(place).partitions;
        let left = partitions.len().checked_sub(of.count as usize);
        reasons(&[
            (wrong, ErrorCode::TOO_MANY_PARTITIONS),
            (left.is_none(), ErrorCode::INVALID_PARTITIONS_COUNT),
        ])?;
        partitions.truncate(left.expect("checked"));
        Ok(Told::Nothing)
    }

    fn create_user(&mut self, at: At<'_>, of: &CreateUser<'_>) -> Step {
        let taken = self.find_user(Identifier::Named(of.username)).is_some();
        let length = of.username.as_str().len();
        reasons(&[
            (!of.options.is_empty(), ErrorCode::UNSUPPORTED_OPTION_KEY),
            (!(3..=50).contains(&length), ErrorCode::INVALID_USERNAME),
            (taken, ErrorCode::USER_ALREADY_EXISTS),
        ])?;
        let given = of.permissions.clone();
        let user = User {
            name: of.username.as_str().into(),
            created_at: at.timestamp,
            status: of.status,
            permissions: given.map(|Prefixed(permissions)| permissions),
            password_since: at.op,
            password: of.password.0.into(),
            tokens: BTreeMap::new(),
        };
        // Numbers of users are given once.
        self.users_given += 1;
        self.users.insert(self.users_given, user);
        Ok(Told::User(self.users_given))
    }

    fn update_user(&mut self, of: &UpdateUser<'_>) -> Step {
        let found = self.user(of.user);
        let unsupported = !of.options.is_empty();
        let id = found.map_err(|held| with(held, unsupported))?;
        let named = of
            .username
            .and_then(|name| self.find_user(Identifier::Named(name)));
        let taken = named.is_some_and(|owner| owner != id);
        let length = of.username.map(|name| name.as_str().len());
        let wrong = length.is_some_and(|length| !(3..=50).contains(&length));
        let shut_out = id == 0 && of.status == Some(UserStatus::Inactive);
        reasons(&[
            (unsupported, ErrorCode::UNSUPPORTED_OPTION_KEY),
            (wrong, ErrorCode::INVALID_USERNAME),
            (taken, ErrorCode::USER_ALREADY_EXISTS),
            (shut_out, ErrorCode::INVALID_USER_STATUS),
        ])?;
        let user = self.users.get_mut(&id).expect("found");
        if let Some(name) = of.username {
            user.name = name.as_str().into();
        }
        user.status = of.status.unwrap_or(user.status);
        Ok(Told::Nothing)
    }

    /// The log has the digest of a token in the place of the token.
    fn create_token(&mut self, at: At<'_>) -> Step {
        let mut reader = Reader::new(at.body);
        let read = (|| -> Result<_, wire::DecodeError> {
            let name: Name<'_> = reader.read()?;
            let expiry: u64 = reader.read()?;
            Ok((name.as_str(), expiry, reader.take_rest().to_vec()))
        })();
        let (name, expiry, digest) = read.map_err(|error| vec![error.code()])?;
        let user = self.users.get_mut(&at.user);
        let user = user.filter(|user| user.status == UserStatus::Active);
        let user = user.ok_or_else(|| vec![ErrorCode::UNAUTHENTICATED])?;
        let ends = !matches!(expiry, 0 | u64::MAX);
        let end = ends.then(|| at.timestamp.checked_add(expiry));
        let wrong = !(3..=30).contains(&name.len());
        let taken = user.tokens.contains_key(name);
        reasons(&[
            (wrong, ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN_NAME),
            (
                end == Some(None),
                ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN_EXPIRY,
            ),
            (taken, ErrorCode::PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS),
            (
                user.tokens.len() >= TOKENS_MAX && !taken,
                ErrorCode::PERSONAL_ACCESS_TOKENS_LIMIT_REACHED,
            ),
        ])?;
        user.tokens.insert(name.into(), (digest, end.flatten()));
        Ok(Told::Token)
    }

    /// What the log has of a user's password, if it may log in.
    pub(super) fn password_of(&self, name: &str) -> Option<String> {
        let user = self.users.values().find(|user| user.name == name)?;
        (user.status == UserStatus::Active).then(|| user.password.clone())
    }

    /// When a token ends that may be logged in with.
    pub(super) fn end_of(&self, digest: &[u8]) -> Option<Option<u64>> {
        let users = self.users.values();
        let active = users.filter(|user| user.status == UserStatus::Active);
        let mut tokens = active.flat_map(|user| user.tokens.values());
        tokens.find(|(of, _)| of == digest).map(|(_, end)| *end)
    }

    /// Whether a login as this user is let in by what the log has of it, and else why not.
    pub(super) fn admit(
        &self,
        user: u32,
        credential: &Credential,
        now: u64,
    ) -> Result<(), ErrorCode> {
        let known = self
            .users
            .get(&user)
            .ok_or(ErrorCode::INVALID_CREDENTIALS)?;
        match credential {
            Credential::Password { since } if *since != known.password_since => {
                return Err(ErrorCode::INVALID_CREDENTIALS);
            }
            Credential::Token(digest) => {
                let mut tokens = known.tokens.values();
                let token = tokens.find(|(of, _)| of == digest);
                let (_, end) = token.ok_or(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN)?;
                if end.is_some_and(|end| end <= now) {
                    return Err(ErrorCode::PERSONAL_ACCESS_TOKEN_EXPIRED);
                }
            }
            Credential::Password { .. } => {}
        }
        match known.status {
            UserStatus::Active => Ok(()),
            UserStatus::Inactive => Err(ErrorCode::USER_INACTIVE),
        }
    }
}

/// What let a login in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credential {
    Password { since: u64 },
    Token(Vec<u8>),
}
