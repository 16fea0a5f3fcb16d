//! A peer that may write any bytes: frames built by hand from the protocol's description.
//!
//! Offsets of the 256-byte header: 48 size, 60 command, 128 client, 168 request, 176 operation,
//! 184 session, 196 code in requests; 160 client, 200 request, 208 operation, 216 status in
//! replies; 255 reason in evictions. All integers are little-endian.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{PASSWORD, USERNAME, wait};

/// Bytes before the body.
pub const HEADER_SIZE: usize = 256;
/// The largest frame that a server takes with its defaults.
pub const FRAME_SIZE_MAX: u32 = 64 * 1024 * 1024;

/// Commands.
pub const REPLY: u8 = 8;
/// Commands.
pub const EVICTION: u8 = 13;

/// Operations.
pub const REGISTER: u8 = 1;
/// Operations.
pub const NON_REPLICATED: u8 = 2;

/// Codes of non-replicated requests.
pub const PING: u32 = 1;
/// Codes of non-replicated requests.
pub const POLL: u32 = 100;

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const CLIENT: u128 = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;

/// A frame as it came.
#[derive(Clone, Debug)]
pub struct Frame {
    header: [u8; HEADER_SIZE],
    /// What follows the header.
    pub body: Vec<u8>,
}

impl Frame {
    /// The kind of frame.
    #[must_use]
    pub fn command(&self) -> u8 {
        self.header[60]
    }

    /// The request number that a reply echoes.
    #[must_use]
    pub fn request(&self) -> u64 {
        u64::from_le_bytes(self.header[200..208].try_into().expect("eight bytes"))
    }

    /// The operation of a reply.
    #[must_use]
    pub fn operation(&self) -> u8 {
        self.header[208]
    }

    /// The status of a reply.
    #[must_use]
    pub fn status(&self) -> u32 {
        u32::from_le_bytes(self.header[216..220].try_into().expect("four bytes"))
    }

    /// The reason of an eviction.
    #[must_use]
    pub fn reason(&self) -> u8 {
        self.header[255]
    }
}

/// What is to be in a request's header.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// The operation.
    pub operation: u8,
    /// The command code, for operation 2.
    pub code: u32,
    /// The request number.
    pub request: u64,
    /// The session.
    pub session: u64,
}

impl Request {
    /// The frame with this body.
    ///
    /// # Panics
    /// If the body does not fit a frame.
    #[must_use]
    pub fn frame(self, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; HEADER_SIZE];
        let size = u32::try_from(HEADER_SIZE + body.len()).expect("fits a frame");
        frame[48..52].copy_from_slice(&size.to_le_bytes());
        frame[60] = 5;
        frame[128..144].copy_from_slice(&CLIENT.to_le_bytes());
        frame[168..176].copy_from_slice(&self.request.to_le_bytes());
        frame[176] = self.operation;
        frame[184..192].copy_from_slice(&self.session.to_le_bytes());
        frame[196..200].copy_from_slice(&self.code.to_le_bytes());
        frame.extend_from_slice(body);
        frame
    }
}

/// A ping, which needs no login.
#[must_use]
pub fn ping() -> Vec<u8> {
    Request {
        operation: NON_REPLICATED,
        code: PING,
        request: 1,
        ..Request::default()
    }
    .frame(&[])
}

/// A login frame.
#[must_use]
pub fn login(username: &str, password: &str) -> Vec<u8> {
    let mut body = 11264_u32.to_le_bytes().to_vec();
    for text in ["by-hand", "0.11.0", username, password] {
        body.push(u8::try_from(text.len()).expect("a short text"));
        body.extend_from_slice(text.as_bytes());
    }
    body.extend_from_slice(&0_u32.to_le_bytes());
    Request {
        operation: REGISTER,
        ..Request::default()
    }
    .frame(&body)
}

/// The body of a poll of partition 0 of a topic, from offset 0.
#[must_use]
pub fn poll_body(stream: u32, topic: u32, count: u32) -> Vec<u8> {
    let mut body = vec![1]; // a single consumer
    for id in [9, stream, topic] {
        body.extend_from_slice(&[1, 4]);
        body.extend_from_slice(&id.to_le_bytes());
    }
    body.extend_from_slice(&[1, 0, 0, 0, 0]); // partition 0
    body.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0]); // from offset 0
    body.extend_from_slice(&count.to_le_bytes());
    body.push(0); // no auto-commit
    body
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket, for tests that write part of a frame.
    pub socket: TcpStream,
    session: u64,
}

impl Connection {
    /// Connects.
    ///
    /// # Panics
    /// If the server does not accept.
    pub async fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address)
            .await
            .expect("the server accepts");
        Self { socket, session: 0 }
    }

    /// Connects and logs in as root.
    ///
    /// # Panics
    /// If the login is refused.
    pub async fn open_bound(address: SocketAddr) -> Self {
        let mut connection = Self::open(address).await;
        connection.write(&login(USERNAME, PASSWORD)).await;
        let frame = connection.read().await.expect("a login gets an answer");
        assert_eq!((frame.command(), frame.status()), (REPLY, 0));
        // Result section (4), user id (4), session (8).
        let session = frame.body[8..16].try_into().expect("eight bytes");
        connection.session = u64::from_le_bytes(session);
        assert_ne!(connection.session, 0);
        connection
    }

    /// A non-replicated request of this connection's session.
    #[must_use]
    pub fn request(&self, code: u32, request: u64) -> Request {
        Request {
            operation: NON_REPLICATED,
            code,
            request,
            session: self.session,
        }
    }

    /// Writes all of `bytes`; that the peer has closed meanwhile is no error, since the answer to
    /// what came before tells.
    pub async fn write(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes).await;
    }

    /// The next frame, or none if the server has closed the connection.
    ///
    /// # Panics
    /// If neither happens in time, or the connection ends within a frame.
    pub async fn read(&mut self) -> Option<Frame> {
        wait::within(
            "the server answers or closes",
            ANSWER_LIMIT,
            self.read_frame(),
        )
        .await
    }

    async fn read_frame(&mut self) -> Option<Frame> {
        let mut header = [0; HEADER_SIZE];
        match self.socket.read(&mut header[..1]).await {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("the connection fails otherwise than by closing: {error}"),
        }
        self.socket
            .read_exact(&mut header[1..])
            .await
            .expect("a whole header");
        let size = u32::from_le_bytes(header[48..52].try_into().expect("four bytes"));
        assert!(
            size as usize >= HEADER_SIZE,
            "a frame has at least its header"
        );
        let mut body = vec![0; size as usize - HEADER_SIZE];
        self.socket
            .read_exact(&mut body)
            .await
            .expect("a whole body");
        Some(Frame { header, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_the_worked_example_of_the_protocol() {
        let frame = ping();
        assert_eq!(frame.len(), 256);
        assert_eq!(frame[48..52], [0, 1, 0, 0]);
        assert_eq!(frame[60], 5);
        assert_eq!(frame[128..132], [0x10, 0x32, 0x54, 0x76]);
        assert_eq!((frame[168], frame[176], frame[196]), (1, 2, 1));
    }

    #[test]
    fn a_login_is_the_worked_example_of_the_protocol() {
        let frame = login("iggy", "iggy");
        let body = &frame[HEADER_SIZE..];
        assert_eq!(body[..4], [0, 0x2c, 0, 0]);
        assert!(body.ends_with(b"\x060.11.0\x04iggy\x04iggy\0\0\0\0"));
    }
}
