//! Reads of users: the bodies of the get commands, and what logins are checked against.

use alloc::{string::String, vec::Vec};

use base::{Op, Timestamp};
use wire::{
    Codec, ErrorCode, Identifier, Name, Options, Permissions, Prefixed, Sink, UserStatus,
    reply::{TokenRecord, UserDetails, UserRecord},
};

use crate::{
    Metadata,
    permissions::{ROOT, everything},
    register::Credential,
    users::{TokenHash, User},
};

/// What a password is checked against.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// Whose.
    pub user: u32,
    /// Argon2id, as a PHC string; none is the configured one of root.
    pub hash: Option<String>,
    /// The op that set it, 0 for the configured one.
    pub since: Op,
    /// Whether the user may log in.
    pub active: bool,
}

/// The hash does not show in logs.
impl core::fmt::Debug for Login {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Login(user {}, since {})", self.user, self.since.0)
    }
}

impl Metadata {
    /// Whether root still has the name that the node is configured with, and it is this one.
    #[must_use]
    pub fn is_configured_root(&self, name: &str) -> bool {
        let root = self.users.get(ROOT).expect("root is always there");
        root.name.is_none() && name == self.root_username
    }

    /// The number of a user that is there.
    #[must_use]
    pub fn find_user(&self, user: Identifier<'_>) -> Option<u32> {
        match user {
            Identifier::Named(name) if self.is_configured_root(name.as_str()) => Some(ROOT),
            user => self.users.find(user),
        }
    }

    /// The name of a user that is there.
    #[must_use]
    pub fn username(&self, user: u32) -> Option<&str> {
        let entry = self.users.get(user)?;
        Some(entry.name.as_deref().unwrap_or(&self.root_username))
    }

    /// All users, by number: name and whether it may log in.
    pub fn users(&self) -> impl Iterator<Item = (u32, &str, UserStatus)> + '_ {
        self.users.iter().map(|(id, user)| {
            let name = user.name.as_deref().unwrap_or(&self.root_username);
            (id, name, user.status)
        })
    }

    /// What a user may do; none is nothing, and root needs none.
    #[must_use]
    pub fn permissions(&self, user: u32) -> Option<&Permissions> {
        self.users.get(user)?.permissions.as_ref()
    }

    /// The tokens of a user, by name, with their ends.
    pub fn tokens(&self, user: u32) -> impl Iterator<Item = (&str, Option<Timestamp>)> + '_ {
        let tokens = self.users.get(user).map(|user| user.tokens.iter());
        let tokens = tokens.into_iter().flatten();
        tokens.map(|(name, token)| (&**name, token.expires_at))
    }

    /// When the first token ends: from then on it may be removed.
    #[must_use]
    pub fn first_token_end(&self) -> Option<Timestamp> {
        self.users.first_end()
    }

    /// What the password of a user is checked against.
    #[must_use]
    pub fn login(&self, user: u32) -> Option<Login> {
        let entry = self.users.get(user)?;
        let password = entry.password.as_ref();
        Some(Login {
            user,
            hash: password.map(|password| String::from(&*password.hash)),
            since: password.map_or(Op(0), |password| password.since),
            active: entry.status == UserStatus::Active,
        })
    }

    /// Whom a token lets in; checked again when the session is opened.
    ///
    /// # Errors
    /// 53 or 54 if it opens nothing, 47 if its user may not log in.
    pub fn login_by_token(&self, hash: &TokenHash, now: Timestamp) -> Result<u32, ErrorCode> {
        let user = self.users.owner_of(hash, now)?;
        self.users.admit(user, Credential::Token(*hash), now)?;
        Ok(user)
    }

    /// Body of get_user (31): the user and its permissions, or nothing.
    #[must_use]
    pub fn get_user(&self, user: Identifier<'_>) -> Vec<u8> {
        let id = self.find_user(user);
        let details = id.and_then(|id| self.user_details(id));
        details.map(|details| details.encode()).unwrap_or_default()
    }

    /// Body of get_users (32).
    #[must_use]
    pub fn get_users(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (id, user) in self.users.iter() {
            self.user_record(id, user).write(&mut body);
        }
        body
    }

    /// Body of get_personal_access_tokens (41).
    #[must_use]
    pub fn get_tokens(&self, user: u32) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, end) in self.tokens(user) {
            write_token(name, end, &mut body);
        }
        body
    }

    pub(crate) fn user_details(&self, id: u32) -> Option<UserDetails<'_>> {
        let user = self.users.get(id)?;
        let permissions = match id {
            ROOT => Some(everything()),
            _ => user.permissions.clone(),
        };
        Some(UserDetails {
            user: self.user_record(id, user),
            permissions,
        })
    }

    fn user_record<'a>(&'a self, id: u32, user: &'a User) -> UserRecord<'a> {
        let name = user.name.as_deref().unwrap_or(&self.root_username);
        UserRecord {
            id,
            created_at: user.created_at.0,
            status: user.status,
            username: Name::new(name).expect("names are checked when they are given"),
            options: Prefixed(Options::default()),
        }
    }
}

fn write_token(name: &str, end: Option<Timestamp>, out: &mut impl Sink) {
    let record = TokenRecord {
        name: Name::new(name).expect("names are checked when they are given"),
        expiry_at: end.map_or(0, |end| end.0),
    };
    record.write(out);
}
