//! Refusals. One is an answer too: only some codes may be given to a well-formed request.

use client::ClientError;
use wire::ErrorCode;

use super::{Call, Sampler, groups::is_group};
use crate::check::{Failure, history::Answer};

/// Codes for what is not there.
const NOT_FOUND: [ErrorCode; 7] = [
    ErrorCode::RESOURCE_NOT_FOUND,
    ErrorCode::STREAM_ID_NOT_FOUND,
    ErrorCode::STREAM_NAME_NOT_FOUND,
    ErrorCode::TOPIC_ID_NOT_FOUND,
    ErrorCode::TOPIC_NAME_NOT_FOUND,
    ErrorCode::PARTITION_NOT_FOUND,
    ErrorCode::CONSUMER_GROUP_ID_NOT_FOUND,
];

/// Codes for what is there already.
const EXISTS: [ErrorCode; 5] = [
    ErrorCode::STREAM_NAME_ALREADY_EXISTS,
    ErrorCode::TOPIC_NAME_ALREADY_EXISTS,
    ErrorCode::USER_ALREADY_EXISTS,
    ErrorCode::PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS,
    ErrorCode::CONSUMER_GROUP_NAME_ALREADY_EXISTS,
];

/// Codes of a disk that takes no more.
const FULL: [ErrorCode; 2] = [
    ErrorCode::CANNOT_APPEND_MESSAGE,
    ErrorCode::CANNOT_WRITE_TO_FILE,
];

impl Sampler<'_> {
    /// True if the refusal says that the call has been done before.
    pub(super) fn refused(&mut self, call: &Call, error: ClientError) -> Result<bool, Failure> {
        self.answered(if error.maybe_applied() {
            Answer::Unknown
        } else {
            let code = ErrorCode::CONSUMER_OFFSET_NOT_FOUND;
            let nothing_stored = matches!(error, ClientError::Refused { code: c, .. } if c == code);
            Answer::Refused { nothing_stored }
        });
        let code = match error {
            ClientError::Refused { code, .. } => code,
            ClientError::AlreadyApplied | ClientError::Timeout { .. } => {
                self.workload.unknown += 1;
                return Ok(false);
            }
            ClientError::Stopped { maybe_applied, .. }
                if self.workload.logins.is_guest(self.client) =>
            {
                self.workload.unknown += 1;
                if !maybe_applied {
                    self.settle_doubt(call);
                }
                return Ok(false);
            }
            ClientError::Stopped { reason, .. } => {
                let client = self.client;
                self.fail(format!("client {client} was stopped: {reason}"))?;
                return Ok(false);
            }
        };
        self.workload.refused += 1;
        if !error.maybe_applied() {
            self.settle_doubt(call);
        }
        self.on_group_refused(call);
        let did_it = self.is_done_before(call, code, error.maybe_applied());
        let audited = matches!(call, Call::Spare { .. });
        let allowed = did_it
            || audited
            || is_answer(call, code)
            || self.is_shut_out(code)
            || self.is_disk_to_blame(call, code);
        if !allowed {
            let client = self.client;
            self.fail(format!("client {client} was refused {call:?} with {code}"))?;
        }
        Ok(did_it)
    }

    /// An earlier attempt, in a session that was lost to another client, has done it.
    fn is_done_before(&self, call: &Call, code: ErrorCode, maybe_applied: bool) -> bool {
        let creates = matches!(
            call,
            Call::CreateStream { .. }
                | Call::CreateTopic { .. }
                | Call::CreateUser { .. }
                | Call::CreateToken { .. }
                | Call::CreateGroup { .. }
        );
        let done = self.workload.sessions_end && maybe_applied && EXISTS.contains(&code) && creates;
        base::sometimes!(done, "fault: a session is lost between two attempts");
        done
    }

    /// A guest may lack a right, or not be there any more.
    fn is_shut_out(&self, code: ErrorCode) -> bool {
        let codes = [ErrorCode::UNAUTHORIZED, ErrorCode::UNAUTHENTICATED];
        self.workload.logins.is_guest(self.client) && codes.contains(&code)
    }

    /// A full disk takes no writes; a damaged one does not show what it holds, rather than to
    /// show that there is nothing.
    fn is_disk_to_blame(&self, call: &Call, code: ErrorCode) -> bool {
        let classes = self.workload.classes;
        let commits = matches!(call, Call::Poll { commits: true, .. });
        if call.is_write() || commits && FULL.contains(&code) {
            let refused = classes.disk_full && FULL.contains(&code);
            base::sometimes!(refused, "fault: a write is refused for want of space");
            return refused;
        }
        let unreadable = (classes.damage || classes.disk_errors)
            && code == ErrorCode::CANNOT_READ_MESSAGE
            && matches!(call, Call::Poll { .. });
        base::sometimes!(unreadable, "fault: a poll is refused for what is damaged");
        unreadable
    }
}

/// Codes for who does not own what it asks for: a membership ends with its connection.
const NOT_A_MEMBER: [ErrorCode; 2] = [
    ErrorCode::CONSUMER_GROUP_MEMBER_NOT_FOUND,
    ErrorCode::CONSUMER_GROUP_PARTITION_NOT_OWNED,
];

/// Whether only a member of a group may do this.
const fn is_of_group(call: &Call) -> bool {
    match call {
        Call::Poll { consumer, .. }
        | Call::StoreOffset { consumer, .. }
        | Call::DeleteOffset { consumer, .. } => is_group(*consumer),
        Call::LeaveGroup { .. } => true,
        _ => false,
    }
}

/// Whether a code is one that a call may always be refused with, since others change things too.
fn is_answer(call: &Call, code: ErrorCode) -> bool {
    let names_something = !matches!(
        call,
        Call::CreateStream { .. }
            | Call::GetStreams
            | Call::CreateUser { .. }
            | Call::GetUsers
            | Call::CreateToken { .. }
            | Call::GetTokens
            | Call::Ping
            | Call::Metadata
    );
    if names_something && NOT_FOUND.contains(&code) {
        return true;
    }
    if is_of_group(call) && NOT_A_MEMBER.contains(&code) {
        return true;
    }
    match call {
        Call::DeleteOffset { .. } | Call::GetOffset { .. } => {
            code == ErrorCode::CONSUMER_OFFSET_NOT_FOUND
        }
        Call::StoreOffset { .. } => code == ErrorCode::INVALID_OFFSET,
        Call::DeletePartitions { .. } | Call::CreatePartitions { .. } => [
            ErrorCode::TOO_MANY_PARTITIONS,
            ErrorCode::INVALID_PARTITIONS_COUNT,
        ]
        .contains(&code),
        // Somebody else has changed it since, or an earlier attempt has.
        Call::ChangePassword { .. } => code == ErrorCode::INVALID_CREDENTIALS,
        _ => false,
    }
}
