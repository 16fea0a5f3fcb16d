//! Passwords and tokens on their way to the log: what enters it is a hash, made off the turn at
//! the node that the client is connected to, so that no secret crosses a link either.

use alloc::vec::Vec;

use base::Bytes;
use metadata::{CreateToken, ROOT};
use platform::{ConnectionId, SecretText, Work};
use wire::{
    Codec, ErrorCode, HEADER_SIZE, Identifier, Name, Operation, ReplyHeader, Request,
    RequestHeader, Secret, ShortText,
    header::reply,
    request::{ChangePassword, CreateUser, UpdateUser},
    result::{decode_result, encode_result},
};

use super::{
    Shard,
    answers::Waiting,
    pending::{Knowledge, Minted, Pending, Stage, secret},
};
use crate::{ask::Ask, connections::Bound};

/// Bytes of a password.
const PASSWORD: ::core::ops::RangeInclusive<usize> = 3..=100;
/// What every hash of a password begins with.
const HASH_PREFIX: &str = "$argon2id$";

impl Shard {
    /// A request with a secret in it, or one that makes a secret.
    pub(super) fn on_secret_write(
        &mut self,
        connection: ConnectionId,
        header: RequestHeader,
        frame: Bytes,
        bound: Bound,
        knowledge: Knowledge,
    ) {
        let ask = self.ask(connection, header, frame, bound.user);
        if let Some(answer) = self.judge(&ask) {
            // It has been done; or it will not be, whatever it asks for.
            return self.core.answers.push(answer);
        }
        let request = match Request::decode(header.operation, header.code, ask.body()) {
            Ok(request) => request,
            Err(error) => return self.core.answers.push(ask.refuse(error.code())),
        };
        let allowed = self.metadata.authorize_request(bound.user, &request);
        let next = allowed.and_then(|()| self.work_of(connection, (header.request, &request)));
        drop(request);
        let (stage, work) = match next {
            Ok(Some(next)) => next,
            Ok(None) => return self.propose_minted(ask, connection),
            Err(ErrorCode::INVALID_PASSWORD) => {
                let refusal = ask.refuse(ErrorCode::INVALID_PASSWORD);
                return self.core.answers.push(refusal);
            }
            Err(code) if self.knows(knowledge) => {
                return self.core.answers.push(ask.refuse(code));
            }
            Err(_) => return self.refresh(ask),
        };
        let pending = Pending {
            ask,
            knowledge,
            stage,
        };
        self.compute(pending, work);
    }

    /// What must be computed first; nothing, if it is there from the first time that the client
    /// asked for it.
    fn work_of(
        &mut self,
        connection: ConnectionId,
        (number, decoded): (u64, &Request<'_>),
    ) -> Result<Option<(Stage, Work)>, ErrorCode> {
        match decoded {
            Request::CreateUser(CreateUser { password, .. }) => {
                check_password(*password)?;
                let work = Work::HashPassword(secret(password.0));
                Ok(Some((Stage::Hashing(None), work)))
            }
            Request::ChangePassword(ChangePassword { user, current, new }) => {
                let user = self.metadata.find_user(*user);
                let login = user.and_then(|user| self.metadata.login(user));
                let login = login.ok_or(ErrorCode::RESOURCE_NOT_FOUND)?;
                check_password(*new)?;
                let work = Work::VerifyPassword {
                    password: secret(current.0),
                    hash: self.hash_of(Some(&login)),
                };
                Ok(Some((Stage::Current(login), work)))
            }
            _ => {
                let minted = self.connections.get_mut(connection);
                let minted = minted.and_then(|connection| connection.minted.as_ref());
                if minted.is_some_and(|minted| minted.request == number) {
                    return Ok(None);
                }
                Ok(Some((Stage::Minting, Work::MintToken)))
            }
        }
    }

    pub(super) fn on_current_verified(
        &mut self,
        ask: Ask,
        knowledge: Knowledge,
        login: metadata::Login,
        matches: bool,
    ) {
        if !matches && self.knows(knowledge) {
            let refusal = ask.refuse(ErrorCode::INVALID_CREDENTIALS);
            return self.core.answers.push(refusal);
        }
        if !matches {
            return self.refresh(ask);
        }
        let Request::ChangePassword(ChangePassword { new, .. }) = Self::decoded(&ask) else {
            unreachable!("only a change of password asks for the current one");
        };
        let work = Work::HashPassword(secret(new.0));
        let pending = Pending {
            ask,
            knowledge,
            stage: Stage::Hashing(Some(login)),
        };
        self.compute(pending, work);
    }

    pub(super) fn on_password_hashed(
        &mut self,
        ask: Ask,
        login: Option<metadata::Login>,
        hash: Option<SecretText>,
    ) {
        let Some(hash) = hash else {
            return self.core.answers.push(ask.refuse(ErrorCode::ERROR));
        };
        let body = match (Self::decoded(&ask), &login) {
            (Request::CreateUser(request), None) => {
                let password = Secret(&hash.0);
                CreateUser {
                    password,
                    ..request
                }
                .encode()
            }
            (Request::ChangePassword(_), Some(login)) => {
                // Compared when it is applied: the current password must still be the one that
                // was verified.
                ChangePassword {
                    user: Identifier::Numeric(login.user),
                    current: Secret(login.hash.as_deref().unwrap_or("")),
                    new: Secret(&hash.0),
                }
                .encode()
            }
            _ => unreachable!("nothing else has a password"),
        };
        self.route(Self::with_body(ask, &body, 0));
    }

    pub(super) fn on_token_minted(
        &mut self,
        ask: Ask,
        minted: Option<(SecretText, metadata::TokenHash)>,
    ) {
        let Some((token, digest)) = minted else {
            return self.core.answers.push(ask.refuse(ErrorCode::ERROR));
        };
        let Some(id) = self.tickets.connection(ask.ticket.number) else {
            return;
        };
        if let Some(connection) = self.connections.get_mut(id) {
            connection.minted = Some(Minted {
                request: ask.header.request,
                token,
                digest,
            });
        }
        self.propose_minted(ask, id);
    }

    /// The token is there: its digest goes to the log.
    fn propose_minted(&mut self, ask: Ask, connection: ConnectionId) {
        let connection = self.connections.get_mut(connection);
        let Some(minted) = connection.and_then(|connection| connection.minted.as_ref()) else {
            return;
        };
        let Request::CreatePersonalAccessToken(request) = Self::decoded(&ask) else {
            unreachable!("nothing else makes a token");
        };
        let body = CreateToken {
            name: request.name,
            expiry: request.expiry,
            hash: minted.digest,
        }
        .encode();
        self.route(Self::with_body(ask, &body, 0));
    }

    /// The log has a token: if it is the one made for this request, the client is given it. It
    /// is told to nobody else, and never again.
    pub(super) fn finish_token(&mut self, waiting: &Waiting, frame: Vec<Bytes>) -> Vec<Bytes> {
        let [whole] = frame.as_slice() else {
            return frame;
        };
        let Ok(header) = ReplyHeader::decode(whole) else {
            return frame;
        };
        if header.status != ErrorCode::OK {
            return frame;
        }
        let Ok(Ok(digest)) = decode_result(&whole[HEADER_SIZE..]) else {
            return frame;
        };
        let connection = self.connections.get_mut(waiting.connection);
        let minted = connection.and_then(|connection| connection.minted.take());
        let of_this = |minted: &Minted| {
            minted.request == waiting.header.request && minted.digest.as_slice() == digest
        };
        let body = match minted.filter(of_this) {
            Some(minted) => encode_result(Ok(&ShortText(&minted.token.0).encode())),
            None => encode_result(Err(ErrorCode::REQUEST_ALREADY_APPLIED)),
        };
        alloc::vec![reply(&header, &body)]
    }

    /// On the primary, before a request about users enters the log: root is named by its number,
    /// for nodes may be configured with different names; its name is not given away; and a
    /// password is a hash, whoever passed the request on.
    /// The body to propose in the place of what came, if it is another.
    pub(super) fn settle_user_request(&self, ask: &Ask) -> Result<Option<Vec<u8>>, ErrorCode> {
        let operation = ask.header.operation;
        let concerned = matches!(
            operation,
            Operation::CreateUser
                | Operation::UpdateUser
                | Operation::DeleteUser
                | Operation::UpdatePermissions
                | Operation::ChangePassword
        );
        if !concerned {
            return Ok(None);
        }
        let request = Request::decode(operation, 0, ask.body()).map_err(|error| error.code())?;
        self.settled_body(&request)
    }

    fn settled_body(&self, request: &Request<'_>) -> Result<Option<Vec<u8>>, ErrorCode> {
        let is_root = |user: Identifier<'_>| match user {
            Identifier::Named(name) => self.metadata.is_configured_root(name.as_str()),
            Identifier::Numeric(_) => false,
        };
        let taken = |name: Name<'_>| self.metadata.is_configured_root(name.as_str());
        let root = Identifier::Numeric(ROOT);
        match request {
            Request::CreateUser(of) if !of.password.0.starts_with(HASH_PREFIX) => {
                Err(ErrorCode::INVALID_COMMAND)
            }
            Request::ChangePassword(of) if !of.new.0.starts_with(HASH_PREFIX) => {
                Err(ErrorCode::INVALID_COMMAND)
            }
            Request::CreateUser(of) if taken(of.username) => Err(ErrorCode::USER_ALREADY_EXISTS),
            Request::UpdateUser(of) => {
                let of_root = self.metadata.find_user(of.user) == Some(ROOT);
                if of.username.is_some_and(taken) && !of_root {
                    return Err(ErrorCode::USER_ALREADY_EXISTS);
                }
                let settled = UpdateUser { user: root, ..*of };
                Ok(is_root(of.user).then(|| settled.encode()))
            }
            Request::DeleteUser(user) if is_root(*user) => Ok(Some(root.encode())),
            Request::UpdatePermissions(of) if is_root(of.user) => {
                let of = wire::request::UpdatePermissions {
                    user: root,
                    ..of.clone()
                };
                Ok(Some(of.encode()))
            }
            _ => Ok(None),
        }
    }
}

fn check_password(password: Secret<'_>) -> Result<(), ErrorCode> {
    if PASSWORD.contains(&password.0.len()) {
        return Ok(());
    }
    Err(ErrorCode::INVALID_PASSWORD)
}
