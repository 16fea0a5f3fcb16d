//! The ops on users and their tokens.

use alloc::vec::Vec;

use base::Timestamp;
use wire::{
    Codec, ErrorCode, Identifier, Name, Operation, Prefixed, UserStatus,
    replica::PrepareHeader,
    request::{ChangePassword, CreateUser, UpdatePermissions, UpdateUser},
};

use crate::{
    Metadata,
    groups::At,
    machine::decode,
    register::CreateToken,
    state::{Change, refuse_options},
    users::{NewUser, Password, Token},
};

impl Metadata {
    pub(crate) fn execute_on_users(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u8>, ErrorCode> {
        match prepare.operation {
            Operation::CreatePersonalAccessToken => {
                let request: CreateToken<'_> = decode(body)?;
                self.users.check_active(prepare.user)?;
                return self.create_token(&request, prepare);
            }
            _ => self.permit(prepare, body)?,
        }
        match prepare.operation {
            Operation::CreateUser => return self.create_user(decode(body)?, prepare),
            Operation::UpdateUser => {
                let request: UpdateUser<'_> = decode(body)?;
                refuse_options(request.options)?;
                let UpdateUser {
                    user,
                    username,
                    status,
                    ..
                } = request;
                let id = self.users.update(user, username, status)?;
                if status == Some(UserStatus::Inactive) {
                    self.close_sessions(id, changes, prepare.into());
                }
            }
            Operation::DeleteUser => {
                let user: Identifier<'_> = decode(body)?;
                let id = self.users.delete(user)?;
                self.close_sessions(id, changes, prepare.into());
            }
            Operation::UpdatePermissions => {
                let UpdatePermissions { user, permissions } = decode(body)?;
                let permissions = permissions.map(|Prefixed(permissions)| permissions);
                self.users
                    .set_permissions(user, permissions, &self.limits)?;
            }
            Operation::ChangePassword => {
                let ChangePassword { user, current, new } = decode(body)?;
                let password = Password {
                    hash: new.0.into(),
                    since: prepare.op,
                };
                self.users.set_password(user, current.0, password)?;
            }
            _ => {
                let name: Name<'_> = decode(body)?;
                self.users.delete_token(prepare.user, name)?;
            }
        }
        Ok(Vec::new())
    }

    fn create_user(
        &mut self,
        request: CreateUser<'_>,
        prepare: &PrepareHeader,
    ) -> Result<Vec<u8>, ErrorCode> {
        refuse_options(request.options)?;
        let user = NewUser {
            name: request.username,
            password: Password {
                hash: request.password.0.into(),
                since: prepare.op,
            },
            status: request.status,
            permissions: request.permissions.map(|Prefixed(permissions)| permissions),
        };
        let id = self.users.create(user, prepare.timestamp, &self.limits)?;
        Ok(self.user_details(id).expect("just created").encode())
    }

    /// Whoever may no longer be here goes at once.
    fn close_sessions(&mut self, user: u32, changes: &mut Vec<Change>, at: At) {
        for (client, session) in self.clients.close_user(user) {
            self.state.leave_all(client, at);
            changes.push(Change::SessionClosed { client, session });
        }
    }

    fn create_token(
        &mut self,
        request: &CreateToken<'_>,
        prepare: &PrepareHeader,
    ) -> Result<Vec<u8>, ErrorCode> {
        let expires_at = match request.expiry {
            0 | u64::MAX => None,
            expiry => {
                let end = prepare.timestamp.0.checked_add(expiry);
                let end = end.ok_or(ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN_EXPIRY)?;
                Some(Timestamp(end))
            }
        };
        let token = Token {
            hash: request.hash,
            expires_at,
        };
        let (user, now) = (prepare.user, prepare.timestamp);
        self.users
            .create_token(user, request.name, token, now, &self.limits)?;
        Ok(request.hash.to_vec())
    }
}
