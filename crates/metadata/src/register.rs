//! Bodies in the log that are not what the client sent: of a login only who logged in and what
//! let it in, of a token only its digest. Passwords and tokens never enter a log.

use base::Op;
use wire::{Codec, DecodeError, Name, Reader, ShortText, Sink};

use crate::users::TokenHash;

/// What let a login in. It is checked again when the session is opened: a node that has not heard
/// of the latest changes may have let in what no longer opens anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The password that this op set; 0 for the configured one of root.
    Password {
        /// The op.
        since: Op,
    },
    /// The token with this digest.
    Token(TokenHash),
}

/// Body of a Register.
///
/// ```text
/// 0 user u32   4 len u8, sdk name   .. len u8, sdk version
/// .. kind u8: 0, then the op that set the password u64; or 1, then the digest of the token, 32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<'a> {
    /// Who logged in; already authenticated.
    pub user: u32,
    /// Name of the client library.
    pub sdk_name: Name<'a>,
    /// Version of the client library.
    pub sdk_version: ShortText<'a>,
    /// What let it in.
    pub credential: Credential,
}

impl<'a> Codec<'a> for Credential {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        match reader.read::<u8>()? {
            0 => Ok(Self::Password {
                since: Op(reader.read()?),
            }),
            1 => reader.take_array().map(Self::Token),
            _ => Err(DecodeError::Kind),
        }
    }

    fn write(&self, out: &mut impl Sink) {
        match self {
            Self::Password { since } => {
                out.put(&[0]);
                since.0.write(out);
            }
            Self::Token(hash) => {
                out.put(&[1]);
                out.put(hash);
            }
        }
    }
}

impl<'a> Codec<'a> for Register<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            user: reader.read()?,
            sdk_name: reader.read()?,
            sdk_version: reader.read()?,
            credential: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.user.write(out);
        self.sdk_name.write(out);
        self.sdk_version.write(out);
        self.credential.write(out);
    }
}

/// Body of a CreatePersonalAccessToken.
///
/// ```text
/// 0 len u8, name   .. expiry in microseconds u64   .. digest of the token, 32
/// ```
///
/// The payload of its reply is the digest: by it the node that made the token knows whether the
/// answer is about this one, and then gives the token in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateToken<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// How long it is good for; 0 and `u64::MAX` for ever.
    pub expiry: u64,
    /// Its digest.
    pub hash: TokenHash,
}

impl<'a> Codec<'a> for CreateToken<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            name: reader.read()?,
            expiry: reader.read()?,
            hash: reader.take_array()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.name.write(out);
        self.expiry.write(out);
        out.put(&self.hash);
    }
}

/// Payload of the reply to a Register: what the log decides. The server appends the versions it
/// speaks before a client sees it.
///
/// ```text
/// 0 user u32   4 session u64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Who logged in.
    pub user: u32,
    /// The session's number: the op of the Register.
    pub session: u64,
}

impl<'a> Codec<'a> for Registration {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            user: reader.read()?,
            session: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.user.write(out);
        self.session.write(out);
    }
}
