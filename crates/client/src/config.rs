//! What a client is told when it starts, and what can become of a request.

use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};

use base::ClientId;
use platform::Address;
use wire::{ErrorCode, EvictionReason};

/// Start-up parameters.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The client's identity, random and not 0. It is kept over reconnects; two clients that run
    /// at one time must not share it.
    pub id: ClientId,
    /// The last request number that this identity has used: 0 for a new one. Whoever starts a
    /// client again under an old identity must go on from there, or the server will take new
    /// requests for repetitions of old ones.
    pub last_request: u64,
    /// Nodes to try, in this order and round again.
    pub nodes: Vec<Address>,
    /// Who logs in; 1 to 255 bytes.
    pub username: String,
    /// At most 255 bytes.
    pub password: String,
    /// A personal access token to log in with, in the place of name and password; 1 to 255 bytes.
    pub token: Option<String>,
    /// Bounds.
    pub limits: ClientLimits,
    /// Timeouts.
    pub timing: ClientTiming,
}

impl ClientConfig {
    /// A client with the usual bounds and timeouts.
    #[must_use]
    pub fn new(id: ClientId, nodes: Vec<Address>, credentials: (&str, &str)) -> Self {
        Self {
            id,
            last_request: 0,
            nodes,
            username: credentials.0.into(),
            password: credentials.1.into(),
            token: None,
            limits: ClientLimits::default(),
            timing: ClientTiming::default(),
        }
    }
}

/// Bounds of everything that could grow.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Requests that wait behind the one that is out.
    pub queue_max: usize,
    /// Bytes of one frame, header included, either way.
    pub frame_size_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            queue_max: 1024,
            frame_size_max: 64 << 20,
        }
    }
}

/// Timeouts.
#[derive(Clone, Debug)]
pub struct ClientTiming {
    /// From `submit` to giving up, over all attempts.
    pub request_timeout: Duration,
    /// Waiting for a connection to stand.
    pub connect_timeout: Duration,
    /// Waiting for one answer before the connection is taken for dead.
    pub reply_timeout: Duration,
    /// First and longest pause before a request is sent again on the same connection.
    pub retry_pause: (Duration, Duration),
    /// First and longest pause before the next node is dialed.
    pub redial_pause: (Duration, Duration),
    /// How long a node may answer "not accepted" before the next one is tried.
    pub rotate_after: Duration,
    /// Silence after which an idle connection is pinged.
    pub ping_interval: Duration,
}

impl Default for ClientTiming {
    fn default() -> Self {
        let millis = Duration::from_millis;
        Self {
            request_timeout: millis(30_000),
            connect_timeout: millis(2_000),
            reply_timeout: millis(5_000),
            retry_pause: (millis(20), millis(500)),
            redial_pause: (millis(50), millis(2_000)),
            rotate_after: millis(2_000),
            ping_interval: millis(5_000),
        }
    }
}

/// Why a client gave up for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The login was refused: wrong credentials, most likely.
    Refused(ErrorCode),
    /// The login was answered with an eviction that trying again will not mend.
    Evicted(EvictionReason),
    /// The server speaks other versions of the protocol, packed.
    Incompatible {
        /// Lowest.
        min: u32,
        /// Highest.
        max: u32,
    },
    /// The application closed the client.
    Closed,
}

/// Why a request has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// The server refused it.
    Refused {
        /// Why.
        code: ErrorCode,
        /// Whether an earlier attempt, whose answer was lost, may have had its effect.
        maybe_applied: bool,
    },
    /// An earlier attempt had its effect, but the reply to it is no longer known.
    AlreadyApplied,
    /// No answer in time.
    Timeout {
        /// Whether it may have had, or may still have, its effect.
        maybe_applied: bool,
    },
    /// The client gave up for good.
    Stopped {
        /// Why.
        reason: StopReason,
        /// Whether it may have had, or may still have, its effect.
        maybe_applied: bool,
    },
}

impl ClientError {
    /// Whether the request may have had, or may still have, its effect all the same.
    #[must_use]
    pub const fn maybe_applied(self) -> bool {
        match self {
            Self::AlreadyApplied => true,
            Self::Refused { maybe_applied, .. }
            | Self::Timeout { maybe_applied }
            | Self::Stopped { maybe_applied, .. } => maybe_applied,
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "login refused: {code}"),
            Self::Evicted(reason) => write!(f, "login refused: {reason:?}"),
            Self::Incompatible { min, max } => {
                write!(f, "the server speaks protocols {min} to {max}, packed")
            }
            Self::Closed => f.write_str("client closed"),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, .. } => write!(f, "refused: {code}")?,
            Self::AlreadyApplied => return f.write_str("applied before; the reply is gone"),
            Self::Timeout { .. } => f.write_str("no answer in time")?,
            Self::Stopped { reason, .. } => write!(f, "{reason}")?,
        }
        f.write_str(if self.maybe_applied() {
            "; maybe applied"
        } else {
            "; not applied"
        })
    }
}

impl core::error::Error for ClientError {}
