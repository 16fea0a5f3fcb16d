//! Who a client is: root, a spare user with the right password or a wrong one, or whoever a token
//! opens for.
//!
//! A client changes its user between two calls, under a new identity. Whether a login may be let
//! in, and whether it may be refused, only the auditor knows (`check::metadata`).

use base::Prng;

use super::{
    Workload,
    spare::{PASSWORDS, password_of, user_of},
};

/// With what a client logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Root,
    User { name: String, password: String },
    Token { token: String },
}

/// So many tokens that were told are kept, to be tried long after their end.
const TOKENS_MAX: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Logins {
    /// Who each client is, if it is not root.
    guests: std::collections::BTreeMap<usize, Login>,
    tokens: Vec<String>,
}

impl Logins {
    pub(super) fn is_guest(&self, client: usize) -> bool {
        self.guests.contains_key(&client)
    }

    /// A token was told.
    pub(super) fn on_token(&mut self, token: &str) {
        if self.tokens.len() == TOKENS_MAX {
            self.tokens.remove(0);
        }
        self.tokens.push(token.into());
    }

    fn some(&self, prng: &mut Prng) -> Login {
        if !self.tokens.is_empty() && prng.chance(1, 3) {
            let token = self.tokens[prng.index(self.tokens.len())].clone();
            return Login::Token { token };
        }
        Login::User {
            name: user_of(prng.below(3)),
            password: password_of(prng.below(PASSWORDS)),
        }
    }
}

impl Workload {
    /// Who a client is to be from now on, if it is to be somebody else. The first stays what it
    /// is, so that somebody may always do everything.
    pub(crate) fn next_login(&mut self, client: usize) -> Option<Login> {
        let is_guest = self.logins.is_guest(client);
        let prng = &mut self.callers[client].prng;
        if client == 0 || !prng.chance(1, if is_guest { 12 } else { 40 }) {
            return None;
        }
        if is_guest && prng.chance(1, 2) {
            return Some(Login::Root);
        }
        Some(self.logins.some(prng))
    }

    /// A client goes on as this user.
    pub(crate) fn on_login(&mut self, client: usize, login: Login) {
        match login {
            Login::Root => self.logins.guests.remove(&client),
            login => self.logins.guests.insert(client, login),
        };
    }

    /// Who a client is.
    pub(crate) fn login(&self, client: usize) -> &Login {
        self.logins.guests.get(&client).unwrap_or(&Login::Root)
    }
}
