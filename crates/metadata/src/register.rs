//! The body of a Register in the log. Not what the client sent: passwords and tokens are checked
//! before, and only who logged in is replicated.

use wire::{Codec, DecodeError, Name, Reader, ShortText, Sink};

/// Body of a Register.
///
/// ```text
/// 0 user u32   4 len u8, sdk name   .. len u8, sdk version
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<'a> {
    /// Who logged in; already authenticated.
    pub user: u32,
    /// Name of the client library.
    pub sdk_name: Name<'a>,
    /// Version of the client library.
    pub sdk_version: ShortText<'a>,
}

impl<'a> Codec<'a> for Register<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            user: reader.read()?,
            sdk_name: reader.read()?,
            sdk_version: reader.read()?,
        })
    }

    fn write(&self, out: &mut impl Sink) {
        self.user.write(out);
        self.sdk_name.write(out);
        self.sdk_version.write(out);
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
