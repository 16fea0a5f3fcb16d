//! A door to a server that writes down which commands went through it and how they were answered.
//!
//! A published client connects here instead of to the server. Frames pass unchanged; their headers
//! are read on the way, so that what a suite has exercised is a fact and not a claim. Of each
//! command code the record keeps the better of two outcomes: answered at least once, or only ever
//! refused. That depends on what a suite asks and not on timing, so a suite compares its record
//! with the file of its name in `records/` ([`Recorder::check`]).
//!
//! ```text
//!   client ──frames──▶ door ──frames──▶ server        one queue of codes per connection:
//!          ◀─────────       ◀─────────                an answer belongs to the oldest request
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    fmt::Write as _,
    fs, io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
};

use iggy_binary_protocol::{COMMAND_TABLE, Operation, codes};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
};

use crate::raw::{HEADER_SIZE, NON_REPLICATED, REGISTER, REPLY};

/// How a command was answered, the better last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Never but with an error.
    Refused,
    /// At least once with what was asked for.
    Answered,
}

/// What went through all doors of one suite.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    seen: Arc<Mutex<BTreeMap<u32, Outcome>>>,
}

impl Recorder {
    /// Opens a door to `server` on a port of the kernel's choice and returns its address.
    ///
    /// # Panics
    /// If no port can be bound.
    pub async fn door(&self, server: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound listener");
        self.open(listener, server);
        address
    }

    /// Opens a door to `server` behind a port that is bound already.
    pub fn open(&self, listener: TcpListener, server: SocketAddr) {
        let recorder = self.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let recorder = recorder.clone();
                tokio::spawn(async move { recorder.pass(client, server).await });
            }
        });
    }

    /// The outcome of each command so far.
    ///
    /// # Panics
    /// If a door has panicked.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<u32, Outcome> {
        self.seen.lock().expect("no door panics").clone()
    }

    /// Compares the record with `records/<suite>.txt`; with `UPDATE=1` writes it there instead.
    ///
    /// # Panics
    /// If they differ: the suite has lost a command or gained one.
    pub fn check(&self, suite: &str) {
        let text = render(suite, &self.outcomes());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("records");
        let path = path.join(format!("{suite}.txt"));
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).expect("the record can be written");
            return;
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == expected,
            "the record of {suite} differs from {}; UPDATE=1 rewrites it. It is now:\n{text}",
            path.display()
        );
    }

    async fn pass(&self, client: TcpStream, server: SocketAddr) {
        // A server that is down refuses its clients, and so does its door.
        let Ok(server) = TcpStream::connect(server).await else {
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let queue = Mutex::new(VecDeque::new());
        // Once one side has closed, so does the other.
        tokio::select! {
            _ = forward(from_client, to_server, |header, body| {
                queue.lock().expect("no door panics").push_back(code(header, body));
            }) => {}
            _ = forward(from_server, to_client, |header, body| {
                let code = queue.lock().expect("no door panics").pop_front();
                if let Some(code) = code {
                    self.note(code, outcome(header, body));
                }
            }) => {}
        }
    }

    fn note(&self, code: u32, outcome: Outcome) {
        let mut seen = self.seen.lock().expect("no door panics");
        let best = seen.entry(code).or_insert(outcome);
        *best = outcome.max(*best);
    }
}

/// Passes frames on until one side closes.
async fn forward(
    mut source: tcp::OwnedReadHalf,
    mut target: tcp::OwnedWriteHalf,
    mut note: impl FnMut(&[u8], &[u8]),
) -> io::Result<()> {
    loop {
        let mut frame = vec![0; HEADER_SIZE];
        source.read_exact(&mut frame).await?;
        let size = u32::from_le_bytes(frame[48..52].try_into().expect("four bytes"));
        frame.resize(HEADER_SIZE.max(size as usize), 0);
        source.read_exact(&mut frame[HEADER_SIZE..]).await?;
        let (header, body) = frame.split_at(HEADER_SIZE);
        note(header, body);
        target.write_all(&frame).await?;
    }
}

/// The command of a request: the header says it, but for the two logins, which differ in shape.
fn code(header: &[u8], body: &[u8]) -> u32 {
    let operation = header[176];
    if operation == NON_REPLICATED {
        return u32::from_le_bytes(header[196..200].try_into().expect("four bytes"));
    }
    if operation == REGISTER {
        return if is_user_login(body) {
            codes::LOGIN_REGISTER_CODE
        } else {
            codes::LOGIN_REGISTER_WITH_PAT_CODE
        };
    }
    if operation == Operation::Logout as u8 {
        return codes::LOGOUT_USER_CODE;
    }
    COMMAND_TABLE
        .iter()
        .find(|command| command.operation.map(|it| it as u8) == Some(operation))
        .map_or(0, |command| command.code)
}

/// Version, two short texts about the client, then user name, password and a context, to the end.
fn is_user_login(body: &[u8]) -> bool {
    let mut rest = body.get(4..).unwrap_or_default();
    for _ in 0..4 {
        let Some((&length, text)) = rest.split_first() else {
            return false;
        };
        let Some(after) = text.get(usize::from(length)..) else {
            return false;
        };
        rest = after;
    }
    let Some((length, context)) = rest.split_first_chunk::<4>() else {
        return false;
    };
    u32::from_le_bytes(*length) as usize == context.len()
}

/// An answer is a reply of status 0 whose result section, if its operation has one, starts with
/// 0 rejections.
fn outcome(header: &[u8], body: &[u8]) -> Outcome {
    let status = &header[216..220];
    let operation = header[208];
    let has_results = (operation == REGISTER && !body.is_empty())
        || (operation >= 64
            && operation != Operation::DeleteSegments as u8
            && operation != Operation::SendMessages as u8);
    let is_rejected = has_results && !body.starts_with(&[0; 4]);
    if header[60] == REPLY && status == [0; 4] && !is_rejected {
        Outcome::Answered
    } else {
        Outcome::Refused
    }
}

fn render(suite: &str, outcomes: &BTreeMap<u32, Outcome>) -> String {
    let mut text = format!(
        "# Commands that the suite `{suite}` exercises, written by the suite itself (UPDATE=1).\n"
    );
    for (code, outcome) in outcomes {
        let word = match outcome {
            Outcome::Refused => "refused",
            Outcome::Answered => "answered",
        };
        writeln!(text, "{code} {word}").expect("a string takes any text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw;

    #[test]
    fn logins_are_told_apart_by_their_shape() {
        let user = raw::login("iggy", "iggy");
        let (header, body) = user.split_at(HEADER_SIZE);
        assert_eq!(code(header, body), 40);

        let mut token = body[..4].to_vec();
        token.extend_from_slice(b"\x08rust-sdk\x060.11.0\x05token\0\0\0\0");
        assert_eq!(code(header, &token), 45);
    }

    #[test]
    fn codes_are_read_from_the_header() {
        let ping = raw::ping();
        let (header, body) = ping.split_at(HEADER_SIZE);
        assert_eq!(code(header, body), 1);

        let mut header = header.to_vec();
        header[176] = Operation::DeleteSegments as u8;
        assert_eq!(code(&header, body), 503);
        header[176] = 3;
        assert_eq!(code(&header, body), 39);
    }

    #[test]
    fn a_rejection_in_the_results_is_a_refusal() {
        let mut header = vec![0; HEADER_SIZE];
        header[60] = REPLY;
        header[208] = Operation::CreateStream as u8;
        assert_eq!(outcome(&header, &[0; 12]), Outcome::Answered);
        assert_eq!(outcome(&header, &[1, 0, 0, 0]), Outcome::Refused);
        header[208] = NON_REPLICATED;
        assert_eq!(outcome(&header, &[1, 0, 0, 0]), Outcome::Answered);
        header[216] = 5;
        assert_eq!(outcome(&header, &[]), Outcome::Refused);
    }
}
