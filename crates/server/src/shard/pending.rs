//! Requests that wait, before they go anywhere, for a computation or for newer metadata.
//!
//! ```text
//!  request ──▶ may it? ──no, as far as is known here──▶ Refresh ──▶ looked at again, and then
//!                │ yes                                               refused or not for good
//!                ├─ login ──▶ Password or TokenDigest ──▶ Register goes to the log
//!                ├─ CreateUser ──────────────▶ Hashing ──▶ goes to the log with the hash
//!                ├─ ChangePassword ─▶ Current ─▶ Hashing ──▶     "
//!                └─ CreatePersonalAccessToken ─▶ Minting ──▶ goes to the log with the digest
//! ```
//!
//! This shard's copy of the metadata may be behind: what it allows was allowed a moment ago, and
//! the log judges what enters it again; but a refusal is told only by a copy that is as new as the
//! primary's was when it was asked.

use alloc::string::String;

use base::{Buffer, Bytes, GroupId};
use platform::{Effect, Outcome, SecretText, Token, Work};
use wire::{
    Code, ErrorCode, EvictionHeader, EvictionReason, HEADER_SIZE, Operation, ReplyHeader, Request,
    RequestHeader,
    header::{denial, eviction, request},
};

use super::{OWNER_SHARD, Shard, answers::Waiting};
use crate::ask::{Answer, Ask};

/// Whether this shard's copy of the metadata may be behind for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// As it happens to be.
    Local,
    /// At least as new as the primary's when the request came.
    Fresh,
}

/// A request that waits, and for what.
pub(super) struct Pending {
    /// As the client sent it.
    pub(super) ask: Ask,
    pub(super) knowledge: Knowledge,
    pub(super) stage: Stage,
}

/// What a request waits for.
pub(super) enum Stage {
    /// Newer metadata.
    Refresh,
    /// A login: whether its password matches. None is an unknown user.
    Password(Option<metadata::Login>),
    /// A login: the digest of its token.
    TokenDigest,
    /// A change of password: whether the current one matches.
    Current(metadata::Login),
    /// The hash of a new password; whose it is, if the user is there already.
    Hashing(Option<metadata::Login>),
    /// A new token.
    Minting,
}

/// A token that has been made for a request whose answer the client does not have yet.
pub(crate) struct Minted {
    /// The number of the request.
    pub(super) request: u64,
    pub(super) token: SecretText,
    pub(super) digest: metadata::TokenHash,
}

impl Shard {
    /// Whether a refusal may be told.
    pub(super) fn knows(&self, knowledge: Knowledge) -> bool {
        knowledge == Knowledge::Fresh || self.serves_metadata()
    }

    /// Sends a request's computation off the turn, unless too many are on their way: a client that
    /// was told that it took too long may ask again while the first one still goes on.
    pub(super) fn compute(&mut self, pending: Pending, work: Work) {
        let others = self.pending.values();
        let computing = others.filter(|pending| !matches!(pending.stage, Stage::Refresh));
        if computing.count() >= self.core.config.limits.parked_max {
            let refusal = pending.ask.refuse(ErrorCode::TRANSIENT_NOT_ACCEPTED);
            return self.core.answers.push(refusal);
        }
        let number = pending.ask.ticket.number;
        let token = Token {
            owner: OWNER_SHARD,
            request: number,
        };
        self.pending.insert(number, pending);
        self.core.out.push(Effect::Compute { token, work });
    }

    /// A computation has ended; the client may be gone, or have been told that it took too long.
    pub(super) fn on_request_computed(&mut self, number: u64, outcome: Outcome) {
        let Some(Pending {
            ask,
            knowledge,
            stage,
        }) = self.pending.remove(&number)
        else {
            return;
        };
        match (stage, outcome) {
            (Stage::Password(login), Outcome::PasswordVerified(matches)) => {
                self.on_login_verified(ask, knowledge, login, matches);
            }
            (Stage::TokenDigest, Outcome::TokenDigested(digest)) => {
                self.on_login_digested(ask, knowledge, digest);
            }
            (Stage::Current(login), Outcome::PasswordVerified(matches)) => {
                self.on_current_verified(ask, knowledge, login, matches);
            }
            (Stage::Hashing(login), Outcome::PasswordHashed(hash)) => {
                self.on_password_hashed(ask, login, hash);
            }
            (Stage::Minting, Outcome::TokenMinted(minted)) => self.on_token_minted(ask, minted),
            _ => unreachable!("a computation comes back as what it was asked for"),
        }
    }

    /// Asks the primary of the metadata how far it is, and waits until the copy here is as far.
    pub(super) fn refresh(&mut self, ask: Ask) {
        let header = RequestHeader::new(ask.header.client, 0, 0, Code::Ping);
        let question = Ask {
            ticket: ask.ticket,
            group: GroupId::METADATA,
            user: ask.user,
            consumer: ask.consumer,
            floor: base::Op(0),
            hops: 0,
            patience: None,
            header,
            frame: request(&header, &[]),
        };
        let pending = Pending {
            ask,
            knowledge: Knowledge::Local,
            stage: Stage::Refresh,
        };
        self.pending.insert(question.ticket.number, pending);
        self.ask_group(question);
    }

    /// On the primary: how far the metadata is.
    pub(super) fn on_refresh_ask(&mut self, ask: &Ask) {
        let op = self.metadata.op();
        let mut answer = ask.reply(op, Operation::NonReplicated, &[]);
        answer.metadata_op = op;
        self.core.answers.push(answer);
    }

    /// The metadata here is as new as the primary's was, or there is no primary to be found.
    pub(super) fn on_refreshed(&mut self, waiting: &Waiting, frame: &Bytes, answer: &[Bytes]) {
        let header = answer.first().map(|frame| ReplyHeader::decode(frame));
        match header.map(|header| header.map(|header| header.status)) {
            Some(Ok(ErrorCode::OK)) => {
                if let Some(connection) = self.connections.get_mut(waiting.connection) {
                    connection.busy = None;
                    self.on_request(waiting.connection, frame.clone(), Knowledge::Fresh);
                    self.serve(waiting.connection);
                }
            }
            Some(Ok(code)) => {
                let frame = alloc::vec![denial(&waiting.header, code)];
                let frame = match waiting.header.operation {
                    Operation::Register => self.finish_login(waiting, frame),
                    _ => frame,
                };
                self.tell(waiting, frame);
            }
            Some(Err(_)) | None => {}
        }
    }

    /// Puts another body in the place of what the client sent. The client's checksum goes with
    /// its body: that of a body with a password in it would help to guess the password.
    pub(super) fn with_body(ask: Ask, body: &[u8], request_checksum: u128) -> Ask {
        let size = HEADER_SIZE + body.len();
        let header = RequestHeader {
            size: u32::try_from(size).expect("names, numbers and hashes"),
            request_checksum,
            ..ask.header
        };
        let mut frame = Buffer::zeroed(HEADER_SIZE);
        header.encode_into(frame.as_mut_slice());
        frame.extend(body);
        Ask {
            header,
            frame: frame.freeze(),
            ..ask
        }
    }

    pub(super) fn evicted(ask: &Ask, reason: EvictionReason) -> Answer {
        let header = EvictionHeader::new(ask.header.client, reason);
        ask.answer(alloc::vec![eviction(&header)])
    }

    /// The request in an ask that was decoded before.
    pub(super) fn decoded(ask: &Ask) -> Request<'_> {
        let header = &ask.header;
        Request::decode(header.operation, header.code, ask.body()).expect("decoded before")
    }

    /// The hash that a password of this user is checked against.
    pub(super) fn hash_of(&self, login: Option<&metadata::Login>) -> SecretText {
        let hash = login.and_then(|login| login.hash.clone());
        // Root's until it is changed by a command. An unknown user costs as much time as a wrong
        // password.
        SecretText(hash.unwrap_or_else(|| self.core.config.root.hash.clone()))
    }
}

/// A secret out of a request.
pub(super) fn secret(text: &str) -> SecretText {
    SecretText(String::from(text))
}
