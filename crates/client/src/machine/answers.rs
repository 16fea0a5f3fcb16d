//! What the client does with what a server sends.

use base::{Buffer, Bytes, Instant};
use platform::{Effect, Outbox};
use wire::{ErrorCode, EvictionHeader, EvictionReason};

use super::{Client, Completion};
use crate::{
    ClientError, Reply, StopReason,
    link::{Purpose, Stage},
    login,
    reply::Answer,
    request::Outstanding,
};

impl Client {
    pub(super) fn on_received(&mut self, now: Instant, buffer: Buffer, out: &mut Outbox) {
        let Stage::Linked(link) = &mut self.stage else {
            return;
        };
        let connection = link.connection;
        link.reader.on_received(buffer);
        loop {
            let Stage::Linked(link) = &mut self.stage else {
                return;
            };
            if link.connection != connection {
                return;
            }
            match link.reader.next_frame() {
                Ok(Some(frame)) => self.on_frame(now, frame, out),
                Ok(None) => break,
                Err(_) => return self.drop_violator(now, out),
            }
        }
        let Stage::Linked(link) = &mut self.stage else {
            return;
        };
        out.push(Effect::Receive {
            connection,
            buffer: link.reader.buffer_to_receive(),
        });
    }

    fn on_frame(&mut self, now: Instant, frame: Bytes, out: &mut Outbox) {
        let Stage::Linked(link) = &mut self.stage else {
            return;
        };
        let answer = Answer::read(frame.clone());
        let Some(flight) = link.flight else {
            return self.on_unasked(now, &answer, out);
        };
        if !answer.belongs_to(self.config.id, flight.number) {
            return self.drop_violator(now, out);
        }
        link.flight = None;
        link.heard_at = now;
        if !answer.is(ErrorCode::TRANSIENT_NOT_ACCEPTED) {
            link.not_accepted_since = None;
        }
        if flight.purpose == Purpose::Request
            && let Some(outstanding) = &mut self.outstanding
        {
            outstanding.in_flight = false;
        }
        match (answer, flight.purpose) {
            (Answer::Evicted(header), purpose) => {
                self.on_evicted(now, &header, purpose, frame, out);
            }
            (answer, Purpose::Login) => self.on_login_answer(now, &answer, out),
            (answer, Purpose::Request) => self.on_request_answer(now, answer, frame, out),
            (_, Purpose::Ping) => {}
        }
    }

    /// A server speaks only when asked, except to say goodbye.
    fn on_unasked(&mut self, now: Instant, answer: &Answer, out: &mut Outbox) {
        match answer {
            Answer::Evicted(_) => self.drop_link(now, out),
            _ => self.drop_violator(now, out),
        }
    }

    fn on_login_answer(&mut self, now: Instant, answer: &Answer, out: &mut Outbox) {
        match answer {
            Answer::Done(reply) => {
                let Some(session) = login::session(reply) else {
                    return self.drop_violator(now, out);
                };
                let Stage::Linked(link) = &mut self.stage else {
                    return;
                };
                link.is_registered = true;
                self.session = session;
                self.counters.logins += 1;
                self.redial.reset();
            }
            // A full disk has no room for the session; there may be some soon.
            Answer::Refused { code, .. }
                if code.is_transient() || *code == ErrorCode::CANNOT_WRITE_TO_FILE =>
            {
                let Stage::Linked(link) = &mut self.stage else {
                    return;
                };
                link.resume_at = now + link.login_retry.pause(&mut self.prng);
                if *code == ErrorCode::TRANSIENT_NOT_ACCEPTED {
                    self.on_not_accepted(now, out);
                }
            }
            Answer::Refused { code, .. } => self.stop(StopReason::Refused(*code), out),
            Answer::Evicted(_) | Answer::Malformed => self.drop_violator(now, out),
        }
    }

    fn on_request_answer(&mut self, now: Instant, answer: Answer, frame: Bytes, out: &mut Outbox) {
        let Some(outstanding) = &mut self.outstanding else {
            return;
        };
        let code = match answer {
            Answer::Done(reply) => return self.complete(Some(frame), Ok(reply)),
            Answer::Refused { code, .. } => code,
            Answer::Evicted(_) | Answer::Malformed => return self.drop_violator(now, out),
        };
        match code {
            ErrorCode::TRANSIENT_NOT_COMMITTED => {
                outstanding.uncertain = true;
                self.pause_request(now);
            }
            ErrorCode::TRANSIENT_NOT_ACCEPTED => {
                self.pause_request(now);
                self.on_not_accepted(now, out);
            }
            ErrorCode::UNAUTHENTICATED | ErrorCode::STALE_CLIENT => self.register_again(now),
            ErrorCode::REQUEST_ALREADY_APPLIED => {
                self.complete(Some(frame), Err(ClientError::AlreadyApplied));
            }
            code => self.complete_refused(Some(frame), code),
        }
    }

    fn complete_refused(&mut self, frame: Option<Bytes>, code: ErrorCode) {
        let Some(outstanding) = &self.outstanding else {
            return;
        };
        let maybe_applied = outstanding.maybe_applied();
        self.complete(
            frame,
            Err(ClientError::Refused {
                code,
                maybe_applied,
            }),
        );
    }

    pub(super) fn complete(&mut self, frame: Option<Bytes>, outcome: Result<Reply, ClientError>) {
        let Some(outstanding) = self.outstanding.take() else {
            return;
        };
        let Outstanding {
            ticket,
            number: request,
            ..
        } = outstanding;
        self.completions.push(Completion {
            ticket,
            request,
            frame,
            outcome,
        });
    }

    /// The outstanding request goes out again, a little later.
    fn pause_request(&mut self, now: Instant) {
        let (Stage::Linked(link), Some(outstanding)) = (&mut self.stage, &mut self.outstanding)
        else {
            return;
        };
        link.resume_at = now + outstanding.retry.pause(&mut self.prng);
    }

    /// A node that has refused for long enough is left for the next one.
    fn on_not_accepted(&mut self, now: Instant, out: &mut Outbox) {
        let Stage::Linked(link) = &mut self.stage else {
            return;
        };
        let since = *link.not_accepted_since.get_or_insert(now);
        let is_elsewhere = self.config.nodes.len() > 1;
        if is_elsewhere && now.since(since) >= self.config.timing.rotate_after {
            self.drop_link(now, out);
        }
    }

    /// The session is gone, the connection is not.
    fn register_again(&mut self, now: Instant) {
        self.pause_request(now);
        if let Stage::Linked(link) = &mut self.stage {
            link.is_registered = false;
        }
    }

    fn on_evicted(
        &mut self,
        now: Instant,
        header: &EvictionHeader,
        purpose: Purpose,
        frame: Bytes,
        out: &mut Outbox,
    ) {
        use EvictionReason as R;
        match header.reason {
            R::NoSession | R::SessionTooLow | R::SessionReleaseMismatch
                if purpose != Purpose::Login =>
            {
                self.register_again(now);
            }
            R::NoSession | R::SessionTooLow | R::SessionReleaseMismatch | R::StaleClient => {
                self.drop_link(now, out);
            }
            R::SessionError if purpose != Purpose::Login => self.drop_link(now, out),
            R::InvalidRequestOperation | R::InvalidRequestBody | R::InvalidRequestBodySize
                if purpose == Purpose::Request =>
            {
                self.complete_refused(Some(frame), ErrorCode::INVALID_COMMAND);
                self.drop_link(now, out);
            }
            R::IncompatibleProtocol => {
                let (min, max) = (header.protocol_version_min, header.protocol_version_max);
                self.stop(StopReason::Incompatible { min, max }, out);
            }
            reason => self.stop(StopReason::Evicted(reason), out),
        }
    }
}
