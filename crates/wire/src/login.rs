//! The login bodies (`wire.md` 3.2) and the protocol versions that may log in.

use crate::{Codec, DecodeError, Name, Reader, Secret, Sink, Text, codec::layout};

/// The protocol spoken here, 0.11.0, packed as major, minor and patch of 10 bits each.
pub const PROTOCOL_VERSION: u32 = 11 << 10;
/// The lowest protocol version that may log in.
pub const PROTOCOL_VERSION_MIN: u32 = PROTOCOL_VERSION;

/// Whether a client of this version may log in: any patch of the minor version spoken here.
#[must_use]
pub const fn accepts_protocol_version(version: u32) -> bool {
    version >= PROTOCOL_VERSION_MIN && version >> 10 <= PROTOCOL_VERSION >> 10
}

layout! {
    /// What every login starts with, whatever the version. Look at the version before the rest
    /// is decoded: other versions go on differently.
    #[derive(Copy)]
    LoginPrefix<'a> {
        /// Packed; see [`accepts_protocol_version`].
        protocol_version: u32,
        /// Name of the client library.
        sdk_name: Name<'a>,
        /// Version of the client library.
        sdk_version: crate::ShortText<'a>,
    }
}

impl<'a> LoginPrefix<'a> {
    /// Reads the prefix of a login body and leaves the rest alone.
    ///
    /// # Errors
    /// [`DecodeError`] if the body does not start with one.
    pub fn decode_prefix(body: &'a [u8]) -> Result<Self, DecodeError> {
        Self::read(&mut Reader::new(body))
    }
}

/// How a client proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials<'a> {
    /// Code 40.
    Password {
        /// The user.
        username: Name<'a>,
        /// The password.
        password: Secret<'a>,
    },
    /// Code 45.
    Token(Secret<'a>),
}

/// A login; opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login<'a> {
    /// Version and library.
    pub prefix: LoginPrefix<'a>,
    /// Who it is.
    pub credentials: Credentials<'a>,
    /// Free text; empty is the same as absent.
    pub context: Text<'a>,
}

fn read_password_form<'a>(bytes: &'a [u8]) -> Result<(Credentials<'a>, Text<'a>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let username = reader.read()?;
    let password = reader.read()?;
    let context = reader.read()?;
    reader.finish()?;
    Ok((Credentials::Password { username, password }, context))
}

fn read_token_form<'a>(bytes: &'a [u8]) -> Result<(Credentials<'a>, Text<'a>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let token: Secret<'a> = reader.read()?;
    if token.0.is_empty() {
        return Err(DecodeError::Length);
    }
    let context = reader.read()?;
    reader.finish()?;
    Ok((Credentials::Token(token), context))
}

/// The two forms are told apart by shape: what parses as a user name and a password up to the
/// last byte is one, all else is a token.
impl<'a> Codec<'a> for Login<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let prefix = reader.read()?;
        let rest = reader.take_rest();
        let (credentials, context) = read_password_form(rest).or_else(|_| read_token_form(rest))?;
        Ok(Self {
            prefix,
            credentials,
            context,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.prefix.write(out);
        match &self.credentials {
            Credentials::Password { username, password } => {
                username.write(out);
                password.write(out);
            }
            Credentials::Token(token) => token.write(out),
        }
        self.context.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_minor_version_logs_in() {
        let packed = |major: u32, minor: u32, patch: u32| major << 20 | minor << 10 | patch;
        assert_eq!(PROTOCOL_VERSION, packed(0, 11, 0));
        assert!(accepts_protocol_version(packed(0, 11, 0)));
        assert!(accepts_protocol_version(packed(0, 11, 1023)));
        assert!(!accepts_protocol_version(packed(0, 10, 9)));
        assert!(!accepts_protocol_version(packed(0, 12, 0)));
        assert!(!accepts_protocol_version(packed(1, 0, 0)));
    }

    #[test]
    fn secrets_do_not_show() {
        let login = Login {
            prefix: LoginPrefix {
                protocol_version: PROTOCOL_VERSION,
                sdk_name: Name::new("sdk").expect("short"),
                sdk_version: crate::ShortText("1"),
            },
            credentials: Credentials::Token(Secret("hunter2")),
            context: Text(""),
        };
        assert!(!alloc::format!("{login:?}").contains("hunter2"));
        assert_eq!(Login::decode(&login.encode()), Ok(login));
    }
}
