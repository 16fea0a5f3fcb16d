//! The login: what this client says of itself, and what it needs of the answer.

use wire::{
    Credentials, Login, LoginPrefix, Name, PROTOCOL_VERSION, Request, Secret, ShortText, Text,
    reply::LoginRecord,
};

use crate::{ClientConfig, Reply, RequestFrame};

/// How this library calls itself.
const SDK_NAME: &str = "viewstamp";

/// The request that opens a session.
///
/// # Panics
/// If the credentials are longer than the protocol carries.
pub(crate) fn request(config: &ClientConfig) -> RequestFrame {
    let login = Request::Register(Login {
        prefix: LoginPrefix {
            protocol_version: PROTOCOL_VERSION,
            sdk_name: Name::new(SDK_NAME).expect("1 to 255 bytes"),
            sdk_version: ShortText(env!("CARGO_PKG_VERSION")),
        },
        credentials: match &config.token {
            Some(token) => Credentials::Token(Secret(token)),
            None => Credentials::Password {
                username: Name::new(&config.username).expect("user names are 1 to 255 bytes"),
                password: Secret(&config.password),
            },
        },
        context: Text(""),
    });
    RequestFrame::new(&login)
}

/// The session in the answer.
pub(crate) fn session(reply: &Reply) -> Option<u64> {
    let record: LoginRecord<'_> = reply.decode().ok()?;
    (record.session != 0).then_some(record.session)
}
