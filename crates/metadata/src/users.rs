//! Users, what they may do, and their personal access tokens.
//!
//! Neither a password nor a token is here or in any log: a hash is all that is replicated. Root
//! is user 0 and always there; its name and password are those of the nodes' configuration until
//! a command changes them. Numbers of users are given once: a number that a log entry, a session
//! or a login under way speaks of never comes to mean somebody else.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};

use base::{Digest, Op, Timestamp};
use wire::{
    Blob, Codec, ErrorCode, Identifier, Name, Permissions, Prefixed, Reader, ShortText,
    SnapshotError, UserStatus,
};

use crate::{
    Limits,
    permissions::{ROOT, Right, Scope, grants, normalized},
    register::Credential,
    snapshot::count,
};

/// Bytes of a user's name.
const USERNAME: core::ops::RangeInclusive<usize> = 3..=50;
/// Bytes of a token's name.
const TOKEN_NAME: core::ops::RangeInclusive<usize> = 3..=30;

/// The digest of a token's secret.
pub type TokenHash = [u8; 32];

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// None is the configured one; root's only.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) created_at: Timestamp,
    pub(crate) status: UserStatus,
    /// None is the configured one; root's only.
    pub(crate) password: Option<Password>,
    /// None is nothing.
    pub(crate) permissions: Option<Permissions>,
    /// By name.
    pub(crate) tokens: BTreeMap<Arc<str>, Token>,
}

/// A password, as far as it is known.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password {
    /// Argon2id, as a PHC string.
    pub(crate) hash: Arc<str>,
    /// The op that set it.
    pub(crate) since: Op,
}

/// The hash does not show in logs.
impl core::fmt::Debug for Password {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Password(since {})", self.since.0)
    }
}

/// A personal access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Digest of the secret.
    pub hash: TokenHash,
    /// When it ends; none is never.
    pub expires_at: Option<Timestamp>,
}

impl Token {
    fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// What a new user is made of.
pub(crate) struct NewUser<'a> {
    pub(crate) name: Name<'a>,
    pub(crate) password: Password,
    pub(crate) status: UserStatus,
    pub(crate) permissions: Option<Permissions>,
}

/// All users, root among them.
///
/// **Invariant:** `names` holds exactly the names that are not configured; `owners` exactly the
/// tokens, by digest; `ends` those of them that end.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    users: BTreeMap<u32, User>,
    names: BTreeMap<Arc<str>, u32>,
    /// The highest number ever given.
    newest: u32,
    owners: BTreeMap<TokenHash, (u32, Arc<str>)>,
    ends: BTreeSet<(Timestamp, TokenHash)>,
}

impl Default for Users {
    fn default() -> Self {
        let root = User {
            name: None,
            created_at: Timestamp(0),
            status: UserStatus::Active,
            password: None,
            permissions: None,
            tokens: BTreeMap::new(),
        };
        Self {
            users: BTreeMap::from([(ROOT, root)]),
            names: BTreeMap::new(),
            newest: ROOT,
            owners: BTreeMap::new(),
            ends: BTreeSet::new(),
        }
    }
}

impl Users {
    /// Root is as old as the log.
    pub(crate) fn found(&mut self, now: Timestamp) {
        self.user_mut(ROOT).created_at = now;
    }

    pub(crate) fn get(&self, user: u32) -> Option<&User> {
        self.users.get(&user)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &User)> {
        self.users.iter().map(|(&id, user)| (id, user))
    }

    /// The number of a user that is there. Root is not found by a name that it has from the
    /// configuration, for that may differ between nodes.
    pub(crate) fn find(&self, user: Identifier<'_>) -> Option<u32> {
        match user {
            Identifier::Numeric(id) => self.users.contains_key(&id).then_some(id),
            Identifier::Named(name) => self.names.get(name.as_str()).copied(),
        }
    }

    fn resolve(&self, user: Identifier<'_>) -> Result<u32, ErrorCode> {
        self.find(user).ok_or(ErrorCode::RESOURCE_NOT_FOUND)
    }

    fn user_mut(&mut self, user: u32) -> &mut User {
        self.users.get_mut(&user).expect("the number was found")
    }

    /// Whether a user may do anything at all.
    pub(crate) fn check_active(&self, user: u32) -> Result<(), ErrorCode> {
        match self.get(user).map(|user| user.status) {
            Some(UserStatus::Active) => Ok(()),
            _ => Err(ErrorCode::UNAUTHENTICATED),
        }
    }

    /// Whether a user may do this there.
    pub(crate) fn authorize(&self, user: u32, right: Right, scope: Scope) -> Result<(), ErrorCode> {
        if user == ROOT {
            return Ok(());
        }
        self.check_active(user)?;
        let permissions = self.get(user).and_then(|user| user.permissions.as_ref());
        if permissions.is_some_and(|permissions| grants(permissions, right, scope)) {
            return Ok(());
        }
        Err(ErrorCode::UNAUTHORIZED)
    }

    pub(crate) fn create(
        &mut self,
        user: NewUser<'_>,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<u32, ErrorCode> {
        check_username(user.name)?;
        if self.names.contains_key(user.name.as_str()) {
            return Err(ErrorCode::USER_ALREADY_EXISTS);
        }
        if self.users.len() > limits.users_max || self.newest == u32::MAX - 1 {
            return Err(ErrorCode::USERS_LIMIT_REACHED);
        }
        let permissions = within(user.permissions, limits)?;
        if base::planted::bug(70) {
            self.newest = *self.users.last_key_value().expect("root is there").0;
        }
        self.newest += 1;
        let name: Arc<str> = user.name.as_str().into();
        self.names.insert(name.clone(), self.newest);
        let user = User {
            name: Some(name),
            created_at: now,
            status: user.status,
            password: Some(user.password),
            permissions,
            tokens: BTreeMap::new(),
        };
        self.users.insert(self.newest, user);
        Ok(self.newest)
    }

    /// Changes name and status; the number of the user.
    pub(crate) fn update(
        &mut self,
        user: Identifier<'_>,
        name: Option<Name<'_>>,
        status: Option<UserStatus>,
    ) -> Result<u32, ErrorCode> {
        let id = self.resolve(user)?;
        if id == ROOT && status == Some(UserStatus::Inactive) {
            return Err(ErrorCode::INVALID_USER_STATUS);
        }
        if let Some(name) = name {
            check_username(name)?;
            let owner = self.names.get(name.as_str());
            if owner.is_some_and(|&owner| owner != id) {
                return Err(ErrorCode::USER_ALREADY_EXISTS);
            }
            let name: Arc<str> = name.as_str().into();
            if let Some(old) = self.user_mut(id).name.replace(name.clone()) {
                self.names.remove(&old);
            }
            self.names.insert(name, id);
        }
        if let Some(status) = status {
            self.user_mut(id).status = status;
        }
        Ok(id)
    }

    /// Removes a user and its tokens; its number.
    pub(crate) fn delete(&mut self, user: Identifier<'_>) -> Result<u32, ErrorCode> {
        let id = self.resolve(user)?;
        if id == ROOT {
            return Err(ErrorCode::CANNOT_DELETE_USER);
        }
        let user = self.users.remove(&id).expect("the number was found");
        if let Some(name) = &user.name {
            self.names.remove(name);
        }
        for token in user.tokens.values() {
            self.forget(token);
        }
        Ok(id)
    }

    pub(crate) fn set_permissions(
        &mut self,
        user: Identifier<'_>,
        permissions: Option<Permissions>,
        limits: &Limits,
    ) -> Result<(), ErrorCode> {
        let id = self.resolve(user)?;
        if id == ROOT {
            return Err(ErrorCode::CANNOT_CHANGE_PERMISSIONS);
        }
        if permissions.is_none() && base::planted::bug(57) {
            return Ok(());
        }
        self.user_mut(id).permissions = within(permissions, limits)?;
        Ok(())
    }

    /// Sets a password, if the one so far is `current`: what the new one was allowed by. Empty
    /// is the configured one.
    pub(crate) fn set_password(
        &mut self,
        user: Identifier<'_>,
        current: &str,
        password: Password,
    ) -> Result<(), ErrorCode> {
        let id = self.resolve(user)?;
        let user = self.user_mut(id);
        let hash = user.password.as_ref().map(|password| &*password.hash);
        if hash.unwrap_or("") != current && !base::planted::bug(47) {
            base::sometimes!("users: a password has changed since it was verified");
            return Err(ErrorCode::INVALID_CREDENTIALS);
        }
        user.password = Some(password);
        Ok(())
    }

    /// Whether a login that was let in by `credential` may have a session, as things are now.
    pub(crate) fn admit(
        &self,
        user: u32,
        credential: Credential,
        now: Timestamp,
    ) -> Result<(), ErrorCode> {
        let entry = self.get(user).ok_or(ErrorCode::INVALID_CREDENTIALS)?;
        match credential {
            Credential::Password { since } => {
                let password = entry.password.as_ref();
                if password.map_or(Op(0), |password| password.since) != since {
                    return Err(ErrorCode::INVALID_CREDENTIALS);
                }
            }
            Credential::Token(hash) => {
                if self.owner_of(&hash, now)? != user {
                    return Err(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN);
                }
            }
        }
        if entry.status != UserStatus::Active {
            return Err(ErrorCode::USER_INACTIVE);
        }
        Ok(())
    }

    /// The rights that users have on a stream, or on a topic of it, go with it: whatever gets
    /// its number is another.
    pub(crate) fn forget_scope(&mut self, stream: u32, topic: Option<u32>) {
        if base::planted::bug(45) {
            return;
        }
        for user in self.users.values_mut() {
            let Some(permissions) = &mut user.permissions else {
                continue;
            };
            match topic {
                None => permissions.streams.retain(|entry| entry.id != stream),
                Some(topic) => {
                    let of = |entry: &&mut wire::StreamPermissions| entry.id == stream;
                    if let Some(entry) = permissions.streams.iter_mut().find(of) {
                        entry.topics.retain(|entry| entry.id != topic);
                    }
                }
            }
        }
    }

    pub(crate) fn create_token(
        &mut self,
        user: u32,
        name: Name<'_>,
        token: Token,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<(), ErrorCode> {
        if !TOKEN_NAME.contains(&name.as_str().len()) {
            return Err(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN_NAME);
        }
        if token.is_over(now) {
            return Err(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN_EXPIRY);
        }
        if self.owners.contains_key(&token.hash) {
            return Err(ErrorCode::PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS);
        }
        let entry = self.users.get_mut(&user);
        let tokens = &mut entry.ok_or(ErrorCode::UNAUTHENTICATED)?.tokens;
        if tokens.contains_key(name.as_str()) {
            return Err(ErrorCode::PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS);
        }
        if tokens.len() >= limits.tokens_max {
            return Err(ErrorCode::PERSONAL_ACCESS_TOKENS_LIMIT_REACHED);
        }
        let name: Arc<str> = name.as_str().into();
        tokens.insert(name.clone(), token);
        self.owners.insert(token.hash, (user, name));
        self.ends
            .extend(token.expires_at.map(|end| (end, token.hash)));
        Ok(())
    }

    pub(crate) fn delete_token(&mut self, user: u32, name: Name<'_>) -> Result<(), ErrorCode> {
        let entry = self.users.get_mut(&user);
        let tokens = &mut entry.ok_or(ErrorCode::UNAUTHENTICATED)?.tokens;
        let token = tokens.remove(name.as_str());
        let token = token.ok_or(ErrorCode::RESOURCE_NOT_FOUND)?;
        self.forget(&token);
        Ok(())
    }

    /// A token has gone from its user.
    fn forget(&mut self, token: &Token) {
        self.owners.remove(&token.hash);
        if let Some(end) = token.expires_at {
            self.ends.remove(&(end, token.hash));
        }
    }

    /// When the first token ends.
    pub(crate) fn first_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Removes the tokens that have ended.
    pub(crate) fn remove_expired(&mut self, now: Timestamp) {
        while let Some((end, hash)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&(end, hash));
            let (user, name) = self.owners.remove(&hash).expect("what ends is owned");
            self.user_mut(user).tokens.remove(&name);
        }
    }

    /// Whose token this is, if it still opens anything.
    pub(crate) fn owner_of(&self, hash: &TokenHash, now: Timestamp) -> Result<u32, ErrorCode> {
        let owner = self.owners.get(hash);
        let (user, name) = owner.ok_or(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN)?;
        let owner = self.get(*user).expect("tokens have owners");
        if owner.tokens[name].is_over(now) && !base::planted::bug(46) {
            return Err(ErrorCode::PERSONAL_ACCESS_TOKEN_EXPIRED);
        }
        Ok(*user)
    }

    pub(crate) fn digest_into(&self, digest: &mut Digest) {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        digest.bytes(&bytes);
    }

    /// Appends all users to a snapshot.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.newest.write(out);
        count(self.users.len()).write(out);
        for (id, user) in &self.users {
            id.write(out);
            ShortText(user.name.as_deref().unwrap_or("")).write(out);
            user.created_at.0.write(out);
            user.status.write(out);
            let password = user.password.as_ref();
            ShortText(password.map_or("", |password| &password.hash)).write(out);
            password.map_or(0, |password| password.since.0).write(out);
            user.permissions.clone().map(Prefixed).write(out);
            count(user.tokens.len()).write(out);
            for (name, token) in &user.tokens {
                ShortText(name).write(out);
                Blob(&token.hash).write(out);
                token.expires_at.map_or(0, |end| end.0).write(out);
            }
        }
    }

    /// Reads what [`Self::write`] wrote after op `op`.
    pub(crate) fn read(reader: &mut Reader<'_>, op: Op) -> Result<Self, SnapshotError> {
        let mut section = reader.clone();
        let mut users = Self {
            users: BTreeMap::new(),
            newest: reader.read()?,
            ..Self::default()
        };
        for _ in 0..reader.read::<u32>()? {
            let (id, user) = read_user(reader, op)?;
            let last = users.users.last_key_value().map(|(&id, _)| id);
            let configured = user.name.is_none() || user.password.is_none();
            let in_order = last.is_none_or(|last| last < id) && id <= users.newest;
            let named = user.name.as_ref();
            let is_new = named.is_none_or(|name| users.names.insert(name.clone(), id).is_none());
            if !in_order || !is_new || (configured && id != ROOT) {
                return Err(SnapshotError::Contradiction);
            }
            for (name, token) in &user.tokens {
                let owner = (id, name.clone());
                if users.owners.insert(token.hash, owner).is_some() {
                    return Err(SnapshotError::Contradiction);
                }
                let end = token.expires_at.map(|end| (end, token.hash));
                users.ends.extend(end);
            }
            users.users.insert(id, user);
        }
        // There is one way to write a state: flags have more than one byte that means true.
        let section = section.take(section.left() - reader.left())?;
        let mut written = Vec::new();
        users.write(&mut written);
        if !users.users.contains_key(&ROOT) || written != section {
            return Err(SnapshotError::Contradiction);
        }
        Ok(users)
    }
}

fn read_user(reader: &mut Reader<'_>, op: Op) -> Result<(u32, User), SnapshotError> {
    let id = reader.read()?;
    let text = |ShortText(text): ShortText<'_>| (!text.is_empty()).then(|| Arc::<str>::from(text));
    let name = text(reader.read()?);
    let (created_at, status) = (Timestamp(reader.read()?), reader.read()?);
    let (hash, since) = (text(reader.read()?), Op(reader.read()?));
    if hash.is_some() == (since == Op(0)) || since > op {
        return Err(SnapshotError::Contradiction);
    }
    let permissions: Option<Prefixed<Permissions>> = reader.read()?;
    let mut tokens = BTreeMap::new();
    for _ in 0..reader.read::<u32>()? {
        let name: Name<'_> = reader.read()?;
        let Blob(hash) = reader.read()?;
        let hash = TokenHash::try_from(hash).map_err(|_| SnapshotError::Contradiction)?;
        let expires_at = Some(Timestamp(reader.read()?)).filter(|end| end.0 != 0);
        let token = Token { hash, expires_at };
        if tokens.insert(name.as_str().into(), token).is_some() {
            return Err(SnapshotError::Contradiction);
        }
    }
    let user = User {
        name,
        created_at,
        status,
        password: hash.map(|hash| Password { hash, since }),
        permissions: permissions.map(|Prefixed(permissions)| permissions),
        tokens,
    };
    Ok((id, user))
}

fn check_username(name: Name<'_>) -> Result<(), ErrorCode> {
    if USERNAME.contains(&name.as_str().len()) {
        return Ok(());
    }
    Err(ErrorCode::INVALID_USERNAME)
}

/// Permissions as they are kept; replicated state is bounded.
fn within(
    permissions: Option<Permissions>,
    limits: &Limits,
) -> Result<Option<Permissions>, ErrorCode> {
    let Some(permissions) = permissions.map(normalized) else {
        return Ok(None);
    };
    let topics = permissions.streams.iter().map(|stream| stream.topics.len());
    if permissions.streams.len() + topics.sum::<usize>() > limits.grants_max {
        return Err(ErrorCode::INVALID_COMMAND);
    }
    Ok(Some(permissions))
}
