//! The connection that stands, and what is out on it.

use base::Instant;
use platform::ConnectionId;
use transport::{Backoff, FrameReader};

/// Where the client stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Waits before it dials the next node.
    Pausing { until: Instant },
    /// Has dialed.
    Dialing {
        connection: ConnectionId,
        until: Instant,
    },
    /// Has a connection.
    Linked(Link),
    /// Has given up for good.
    Stopped(crate::StopReason),
}

/// A connection. One request at a time is out on it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: ConnectionId,
    pub(crate) reader: FrameReader,
    /// The session was opened on this connection.
    pub(crate) is_registered: bool,
    pub(crate) flight: Option<Flight>,
    /// Nothing is sent before.
    pub(crate) resume_at: Instant,
    /// When the last answer came, or the connection was made.
    pub(crate) heard_at: Instant,
    /// Since when this node has answered nothing but "not accepted".
    pub(crate) not_accepted_since: Option<Instant>,
    pub(crate) login_retry: Backoff,
}

/// A frame that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    /// As in its header.
    pub(crate) number: u64,
    /// When the connection is taken for dead.
    pub(crate) until: Instant,
}

/// What a frame was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To open the session.
    Login,
    /// To be heard.
    Ping,
    /// For the outstanding request.
    Request,
}
