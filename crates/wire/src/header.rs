//! The headers of frames between clients and servers, and the frames made with them.
//!
//! These headers carry no checksum of their own. Of the common prefix only `size` and `command`
//! matter to clients; a server fills in cluster, view and replica for whoever reads a capture.
//!
//! ```text
//!   0 zero (checksums)   32 cluster u128   48 size u32   52 view u32   56 release u32
//!  60 command u8         61 replica u8     62 zero
//! 128 command-specific, drawn at each type
//! ```

use core::fmt;

use base::{Buffer, Bytes, ClientId, ReplicaIndex, View, checksum::xxh3_64};

use crate::{Code, Command, Cut, ErrorCode, HEADER_SIZE, Operation, Plane, array, put};

const CLUSTER: usize = 32;
const SIZE: usize = 48;
const VIEW: usize = 52;
const COMMAND: usize = 60;
const REPLICA: usize = 61;

/// Why a header was refused; always the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Shorter than 256 bytes.
    Cut,
    /// Not the expected kind of frame.
    Command,
    /// The size is smaller than a header, or an eviction has a body.
    Size,
    /// The client id is 0.
    Client,
    /// The operation is unknown or 0.
    Operation,
    /// The operation is internal: never from a client.
    InternalOperation,
    /// A register has a session or a request number.
    NumberedRegister,
    /// A logged operation has no session or no request number.
    Unnumbered,
}

impl From<Cut> for HeaderError {
    fn from(_: Cut) -> Self {
        Self::Cut
    }
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "the header is cut",
            Self::Command => "the frame is not of the expected kind",
            Self::Size => "the size is out of range",
            Self::Client => "the client id is zero",
            Self::Operation => "the operation is unknown",
            Self::InternalOperation => "the operation is internal",
            Self::NumberedRegister => "a register carries a session or a request number",
            Self::Unnumbered => "a logged operation carries no session or no request number",
        })
    }
}

impl core::error::Error for HeaderError {}

/// Checks command and size, and gives the size.
fn decode_prefix(bytes: &[u8], command: Command) -> Result<u32, HeaderError> {
    let header: &[u8; HEADER_SIZE] = bytes.first_chunk().ok_or(HeaderError::Cut)?;
    if header[COMMAND] != command as u8 {
        return Err(HeaderError::Command);
    }
    let size = u32::from_le_bytes(array(header, SIZE)?);
    if (size as usize) < HEADER_SIZE {
        return Err(HeaderError::Size);
    }
    Ok(size)
}

fn u8_at(bytes: &[u8], at: usize) -> Result<u8, Cut> {
    array::<1>(bytes, at).map(|[byte]| byte)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Cut> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Cut> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn u128_at(bytes: &[u8], at: usize) -> Result<u128, Cut> {
    array(bytes, at).map(u128::from_le_bytes)
}

/// What a client asks.
///
/// ```text
/// 128 client u128      144 request_checksum u128   160 timestamp u64   168 request u64
/// 176 operation u8     177 zero                    184 session u64     192 user u32
/// 196 code u32, of non-replicated requests         200 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Header and body, in bytes.
    pub size: u32,
    /// The cluster; clients send 0.
    pub cluster: u128,
    /// Who asks; never 0.
    pub client: ClientId,
    /// XXH3-64 of the body, or 0 for "not given".
    pub request_checksum: u128,
    /// Clients send 0.
    pub timestamp: u64,
    /// Number of the request in its session.
    pub request: u64,
    /// What is asked.
    pub operation: Operation,
    /// The session, 0 before login.
    pub session: u64,
    /// Clients send 0; never trusted.
    pub user: u32,
    /// The command code if the operation is [`Operation::NonReplicated`], else 0.
    pub code: u32,
}

impl RequestHeader {
    /// A header for a command; size and checksum are filled in by [`request`].
    #[must_use]
    pub const fn new(client: ClientId, session: u64, request: u64, code: Code) -> Self {
        let operation = code.operation();
        Self {
            size: 0,
            cluster: 0,
            client,
            request_checksum: 0,
            timestamp: 0,
            request,
            operation,
            session,
            user: 0,
            code: if matches!(operation, Operation::NonReplicated) {
                code.number()
            } else {
                0
            },
        }
    }

    /// Reads and checks the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`HeaderError`] if it is not a request a client may send.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let size = decode_prefix(bytes, Command::Request)?;
        let operation = Operation::from_byte(u8_at(bytes, 176)?).ok_or(HeaderError::Operation)?;
        let header = Self {
            size,
            cluster: u128_at(bytes, CLUSTER)?,
            client: ClientId(u128_at(bytes, 128)?),
            request_checksum: u128_at(bytes, 144)?,
            timestamp: u64_at(bytes, 160)?,
            request: u64_at(bytes, 168)?,
            operation,
            session: u64_at(bytes, 184)?,
            user: u32_at(bytes, 192)?,
            code: if operation == Operation::NonReplicated {
                u32_at(bytes, 196)?
            } else {
                0
            },
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), HeaderError> {
        if self.client.0 == 0 {
            return Err(HeaderError::Client);
        }
        match self.operation {
            Operation::NonReplicated => Ok(()),
            Operation::Register if self.session == 0 && self.request == 0 => Ok(()),
            Operation::Register => Err(HeaderError::NumberedRegister),
            other if other.plane() == Plane::Internal => Err(HeaderError::InternalOperation),
            _ if self.session == 0 || self.request == 0 => Err(HeaderError::Unnumbered),
            _ => Ok(()),
        }
    }

    /// Writes the header over the first 256 bytes of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let bytes = &mut bytes[..HEADER_SIZE];
        bytes.fill(0);
        put(bytes, CLUSTER, self.cluster.to_le_bytes());
        put(bytes, SIZE, self.size.to_le_bytes());
        put(bytes, COMMAND, [Command::Request as u8]);
        put(bytes, 128, self.client.0.to_le_bytes());
        put(bytes, 144, self.request_checksum.to_le_bytes());
        put(bytes, 160, self.timestamp.to_le_bytes());
        put(bytes, 168, self.request.to_le_bytes());
        put(bytes, 176, [self.operation as u8]);
        put(bytes, 184, self.session.to_le_bytes());
        put(bytes, 192, self.user.to_le_bytes());
        if self.operation == Operation::NonReplicated {
            put(bytes, 196, self.code.to_le_bytes());
        }
    }

    /// Whether the body is the one the client made its checksum of. No checksum is fine.
    #[must_use]
    pub fn matches_body(&self, body: &[u8]) -> bool {
        self.request_checksum == 0 || self.request_checksum == request_checksum(body)
    }
}

/// The checksum a client gives of its request's body.
#[must_use]
pub fn request_checksum(body: &[u8]) -> u128 {
    u128::from(xxh3_64(body))
}

/// The answer to one request.
///
/// ```text
/// 128 request_checksum u128   144 zero   160 client u128   176 op u64   184 commit u64
/// 192 timestamp u64           200 request u64   208 operation u8   209 zero
/// 216 status u32              220 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Header and body, in bytes; [`reply`] and [`reply_head`] fill it in.
    pub size: u32,
    /// The cluster.
    pub cluster: u128,
    /// The view of the group that answers.
    pub view: View,
    /// The node that answers.
    pub replica: ReplicaIndex,
    /// As in the request.
    pub request_checksum: u128,
    /// As in the request.
    pub client: ClientId,
    /// The op that was committed, 0 if none was.
    pub op: u64,
    /// How far the metadata log is committed here; clients keep the largest they see.
    pub commit: u64,
    /// When the op was prepared.
    pub timestamp: u64,
    /// As in the request.
    pub request: u64,
    /// As in the request, or its committed form. Decides how a client parses the body.
    pub operation: Operation,
    /// [`ErrorCode::OK`], or why the request was denied; the body is empty then.
    pub status: ErrorCode,
}

impl ReplyHeader {
    /// A header that answers `request` with success: the rest is zero.
    #[must_use]
    pub const fn to(request: &RequestHeader) -> Self {
        Self {
            size: 0,
            cluster: 0,
            view: View(0),
            replica: ReplicaIndex(0),
            request_checksum: request.request_checksum,
            client: request.client,
            op: 0,
            commit: 0,
            timestamp: 0,
            request: request.request,
            operation: request.operation,
            status: ErrorCode::OK,
        }
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`HeaderError`] if it is not a reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let size = decode_prefix(bytes, Command::Reply)?;
        Ok(Self {
            size,
            cluster: u128_at(bytes, CLUSTER)?,
            view: View(u32_at(bytes, VIEW)?),
            replica: ReplicaIndex(u8_at(bytes, REPLICA)?),
            request_checksum: u128_at(bytes, 128)?,
            client: ClientId(u128_at(bytes, 160)?),
            op: u64_at(bytes, 176)?,
            commit: u64_at(bytes, 184)?,
            timestamp: u64_at(bytes, 192)?,
            request: u64_at(bytes, 200)?,
            operation: Operation::from_byte(u8_at(bytes, 208)?).ok_or(HeaderError::Operation)?,
            status: ErrorCode(u32_at(bytes, 216)?),
        })
    }

    /// Writes the header over the first 256 bytes of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        let bytes = &mut bytes[..HEADER_SIZE];
        bytes.fill(0);
        put(bytes, CLUSTER, self.cluster.to_le_bytes());
        put(bytes, SIZE, self.size.to_le_bytes());
        put(bytes, VIEW, self.view.0.to_le_bytes());
        put(bytes, COMMAND, [Command::Reply as u8]);
        put(bytes, REPLICA, [self.replica.0]);
        put(bytes, 128, self.request_checksum.to_le_bytes());
        put(bytes, 160, self.client.0.to_le_bytes());
        put(bytes, 176, self.op.to_le_bytes());
        put(bytes, 184, self.commit.to_le_bytes());
        put(bytes, 192, self.timestamp.to_le_bytes());
        put(bytes, 200, self.request.to_le_bytes());
        put(bytes, 208, [self.operation as u8]);
        put(bytes, 216, self.status.0.to_le_bytes());
    }
}

crate::codec::byte_enum! {
    /// Why a session ended, or never began.
    EvictionReason {
        /// There is no such session.
        NoSession = 1,
        /// The client's release is too old.
        ClientReleaseTooLow = 2,
        /// The client's release is too new.
        ClientReleaseTooHigh = 3,
        /// The operation is not one for clients.
        InvalidRequestOperation = 4,
        /// The body is not what the operation asks for.
        InvalidRequestBody = 5,
        /// The body has the wrong size.
        InvalidRequestBodySize = 6,
        /// The session is older than the client's newest one.
        SessionTooLow = 7,
        /// The session was opened by another release.
        SessionReleaseMismatch = 8,
        /// Wrong user name or password.
        InvalidCredentials = 9,
        /// Wrong or expired token.
        InvalidToken = 10,
        /// The user may not log in.
        UserInactive = 11,
        /// The session cannot be opened.
        SessionError = 12,
        /// Nothing was heard from the client for too long.
        StaleClient = 13,
        /// The client speaks another version of the protocol.
        IncompatibleProtocol = 14,
        /// The login body cannot be decoded.
        MalformedLogin = 15,
    }
}

/// The end of a session; a frame without a body.
///
/// ```text
/// 128 client u128   144 protocol_version_max u32   148 protocol_version_min u32
/// 152 zero          255 reason u8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionHeader {
    /// The cluster.
    pub cluster: u128,
    /// The view.
    pub view: View,
    /// The node.
    pub replica: ReplicaIndex,
    /// The client, never 0.
    pub client: ClientId,
    /// Highest protocol version accepted here, 0 unless the reason is the version.
    pub protocol_version_max: u32,
    /// Lowest protocol version accepted here, 0 unless the reason is the version.
    pub protocol_version_min: u32,
    /// Why.
    pub reason: EvictionReason,
}

impl EvictionHeader {
    /// The eviction of `client` for `reason`, with the version bounds where they belong.
    #[must_use]
    pub const fn new(client: ClientId, reason: EvictionReason) -> Self {
        let incompatible = matches!(reason, EvictionReason::IncompatibleProtocol);
        Self {
            cluster: 0,
            view: View(0),
            replica: ReplicaIndex(0),
            client,
            protocol_version_max: if incompatible {
                crate::PROTOCOL_VERSION
            } else {
                0
            },
            protocol_version_min: if incompatible {
                crate::PROTOCOL_VERSION_MIN
            } else {
                0
            },
            reason,
        }
    }

    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`HeaderError`] if it is not an eviction.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        let size = decode_prefix(bytes, Command::Eviction)?;
        if size as usize != HEADER_SIZE {
            return Err(HeaderError::Size);
        }
        let client = ClientId(u128_at(bytes, 128)?);
        if client.0 == 0 {
            return Err(HeaderError::Client);
        }
        Ok(Self {
            cluster: u128_at(bytes, CLUSTER)?,
            view: View(u32_at(bytes, VIEW)?),
            replica: ReplicaIndex(u8_at(bytes, REPLICA)?),
            client,
            protocol_version_max: u32_at(bytes, 144)?,
            protocol_version_min: u32_at(bytes, 148)?,
            reason: EvictionReason::from_byte(u8_at(bytes, 255)?).ok_or(HeaderError::Operation)?,
        })
    }

    /// Writes the header over the first 256 bytes of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter, or the client is 0.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        assert!(self.client.0 != 0);
        let bytes = &mut bytes[..HEADER_SIZE];
        bytes.fill(0);
        put(bytes, CLUSTER, self.cluster.to_le_bytes());
        put(bytes, SIZE, size_of_frame(0).to_le_bytes());
        put(bytes, VIEW, self.view.0.to_le_bytes());
        put(bytes, COMMAND, [Command::Eviction as u8]);
        put(bytes, REPLICA, [self.replica.0]);
        put(bytes, 128, self.client.0.to_le_bytes());
        put(bytes, 144, self.protocol_version_max.to_le_bytes());
        put(bytes, 148, self.protocol_version_min.to_le_bytes());
        put(bytes, 255, [self.reason as u8]);
    }
}

fn size_of_frame(body: usize) -> u32 {
    u32::try_from(HEADER_SIZE + body).expect("frames are limited far below 4 GiB")
}

/// A whole reply; its size is computed.
#[must_use]
pub fn reply(header: &ReplyHeader, body: &[u8]) -> Bytes {
    let mut frame = Buffer::with_capacity(HEADER_SIZE + body.len());
    frame.extend(&[0; HEADER_SIZE]);
    frame.extend(body);
    finish_reply(header, frame)
}

/// A whole reply whose body `write` appends in place; its size is computed.
#[must_use]
pub fn reply_with(header: &ReplyHeader, write: impl FnOnce(&mut Buffer)) -> Bytes {
    let mut frame = Buffer::zeroed(HEADER_SIZE);
    write(&mut frame);
    finish_reply(header, frame)
}

fn finish_reply(header: &ReplyHeader, mut frame: Buffer) -> Bytes {
    let size = size_of_frame(frame.len() - HEADER_SIZE);
    assert!(header.status == ErrorCode::OK || frame.len() == HEADER_SIZE);
    ReplyHeader { size, ..*header }.encode_into(frame.as_mut_slice());
    frame.freeze()
}

/// The start of a reply, header and `head`, whose other `rest_size` bytes of body are sent after
/// it without being copied.
#[must_use]
pub fn reply_head(header: &ReplyHeader, head: &[u8], rest_size: usize) -> Bytes {
    let mut frame = Buffer::with_capacity(HEADER_SIZE + head.len());
    frame.extend(&[0; HEADER_SIZE]);
    frame.extend(head);
    let size = size_of_frame(head.len() + rest_size);
    ReplyHeader { size, ..*header }.encode_into(frame.as_mut_slice());
    frame.freeze()
}

/// The reply that denies `request` with a status.
#[must_use]
pub fn denial(request: &RequestHeader, status: ErrorCode) -> Bytes {
    assert!(status != ErrorCode::OK);
    reply(
        &ReplyHeader {
            status,
            ..ReplyHeader::to(request)
        },
        &[],
    )
}

/// A whole eviction.
#[must_use]
pub fn eviction(header: &EvictionHeader) -> Bytes {
    let mut frame = Buffer::zeroed(HEADER_SIZE);
    header.encode_into(frame.as_mut_slice());
    frame.freeze()
}

/// A whole request; size and checksum are computed. Partition operations and non-replicated
/// requests carry no checksum.
#[must_use]
pub fn request(header: &RequestHeader, body: &[u8]) -> Bytes {
    let header = RequestHeader {
        size: size_of_frame(body.len()),
        request_checksum: if header.operation.is_stamped() {
            request_checksum(body)
        } else {
            0
        },
        ..*header
    };
    let mut frame = Buffer::with_capacity(HEADER_SIZE + body.len());
    frame.extend(&[0; HEADER_SIZE]);
    frame.extend(body);
    header.encode_into(frame.as_mut_slice());
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(code: Code, session: u64, request: u64) -> RequestHeader {
        RequestHeader::new(ClientId(7), session, request, code)
    }

    fn round_trip(header: &RequestHeader) -> Result<RequestHeader, HeaderError> {
        RequestHeader::decode(&request(header, b"body"))
    }

    #[test]
    fn a_request_needs_a_client_and_a_register_no_number() {
        let ping = header(Code::Ping, 0, 0);
        assert_eq!(round_trip(&ping).map(|h| h.code), Ok(1));
        let nobody = RequestHeader {
            client: ClientId(0),
            ..ping
        };
        assert_eq!(round_trip(&nobody), Err(HeaderError::Client));
        assert!(round_trip(&header(Code::LoginRegister, 0, 0)).is_ok());
        let numbered = round_trip(&header(Code::LoginRegister, 0, 1));
        assert_eq!(numbered, Err(HeaderError::NumberedRegister));
    }

    #[test]
    fn a_logged_request_needs_a_session_and_a_number() {
        assert!(round_trip(&header(Code::SendMessages, 1, 1)).is_ok());
        for (session, number) in [(0, 1), (1, 0)] {
            let refused = round_trip(&header(Code::SendMessages, session, number));
            assert_eq!(refused, Err(HeaderError::Unnumbered));
        }
    }

    #[test]
    fn internal_operations_are_refused_from_clients() {
        let operations = (0..=255).filter_map(Operation::from_byte);
        for operation in operations.filter(|o| o.plane() == Plane::Internal) {
            let internal = RequestHeader {
                operation,
                ..header(Code::Ping, 1, 1)
            };
            assert_eq!(round_trip(&internal), Err(HeaderError::InternalOperation));
        }
    }

    #[test]
    fn a_body_must_match_the_checksum_if_one_is_given() {
        let create = round_trip(&header(Code::CreateStream, 1, 1)).expect("valid");
        assert!(create.matches_body(b"body"));
        assert!(!create.matches_body(b"bodz"));
        let send = round_trip(&header(Code::SendMessages, 1, 1)).expect("valid");
        assert!(send.request_checksum == 0 && send.matches_body(b"bodz"));
    }

    #[test]
    fn a_reply_head_counts_the_rest_of_the_body() {
        let reply = ReplyHeader::to(&header(Code::PollMessages, 1, 1));
        let head = reply_head(&reply, &[0; 16], 1000);
        assert_eq!(head.len(), HEADER_SIZE + 16);
        assert_eq!(
            ReplyHeader::decode(&head).map(|h| h.size),
            Ok(256 + 16 + 1000)
        );
    }
}
