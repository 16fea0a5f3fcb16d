//! Clients that change their user, and what becomes of their logins.

use client::StopReason;
use wire::Code;

use super::{World, nodes::digest_token};
use crate::{marks, schedule::Identity, workload::Login};

impl World {
    /// A client that waits for nothing goes on as somebody else.
    pub(super) fn log_in_as(&mut self, client: u8, login: Login) {
        self.crash_client(client, false);
        self.workload.on_login(usize::from(client), login);
        self.return_client(client, Identity::New);
    }

    /// A client that was not let in goes on as root.
    pub(super) fn mind_login(&mut self, client: u8) {
        let slot = usize::from(client);
        let refused = matches!(
            self.clients[slot].stopped(),
            Some(StopReason::Evicted(_) | StopReason::Refused(_))
        );
        let is_guest = *self.workload.login(slot) != Login::Root;
        if !refused || !is_guest || !self.workload.is_idle(slot) {
            return;
        }
        base::sometimes!("workload: a login is refused");
        self.audit_login(client, false);
        self.log_in_as(client, Login::Root);
    }

    /// It is known whether a client was let in: it may have been so.
    pub(super) fn audit_login(&mut self, client: u8, let_in: bool) {
        let slot = usize::from(client);
        let Some(floor) = self.clients[slot].login_floor.take() else {
            return;
        };
        let login = self.workload.login(slot).clone();
        let (right, wrong) = match &login {
            Login::Root => (true, false),
            Login::User { name, password } => {
                let known = self.auditor.passwords_since(floor, name);
                let mut opens = known.iter().map(|hash| {
                    hash.as_ref()
                        .is_some_and(|it| self.verify_password(password, it))
                });
                let opens: Vec<bool> = opens.by_ref().collect();
                (opens.contains(&true), opens.contains(&false))
            }
            Login::Token { token } => self.auditor.token_since(floor, &digest_token(token)),
        };
        marks::reach_command(match login {
            Login::Token { .. } => Code::LoginRegisterWithPersonalAccessToken,
            _ => Code::LoginRegister,
        });
        if self.auditor.has_ended() || (if let_in { right } else { wrong }) {
            return;
        }
        let what = if let_in { "let in" } else { "turned away" };
        self.fail(
            "metadata",
            format!("client {client} is {what} as {login:?}"),
        );
    }
}
