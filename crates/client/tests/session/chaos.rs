//! A server that does anything a server may do, and a network that cuts anywhere: what the client
//! says of each request must be true.

use std::{collections::BTreeMap, time::Duration};

use base::{Domain, Prng};
use client::Ticket;
use platform::Address;
use wire::{ErrorCode, EvictionReason, Operation, Request, RequestHeader, result};

use super::world::{World, config, create_stream, without_session};

/// Every request of one run: what the client was told, and what the server knows.
struct Run {
    world: World,
    prng: Prng,
    session: u64,
    /// By request number: the bytes it came with, and how often it had its effect.
    requests: BTreeMap<u64, (Vec<u8>, u32)>,
    /// Writes that a cut connection left on their way; they arrive when they like.
    late: Vec<u64>,
    writes: Vec<Ticket>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut config = config();
        config.timing.request_timeout = Duration::from_secs(8);
        Self {
            world: World::new(config),
            prng: Prng::new(seed, Domain::Network, 0),
            session: 0,
            requests: BTreeMap::new(),
            late: Vec::new(),
            writes: Vec::new(),
        }
    }

    fn apply(&mut self, number: u64) {
        let (_, effects) = self.requests.get_mut(&number).unwrap();
        // The server's tables recognise a repetition.
        *effects = 1;
    }

    fn is_applied(&self, number: u64) -> bool {
        self.requests[&number].1 > 0
    }

    /// One thing that can happen now.
    fn step(&mut self) {
        if self.prng.chance(1, 4) && !self.late.is_empty() {
            let number = self.late.swap_remove(0);
            self.apply(number);
        }
        if self.world.sent.is_empty() {
            self.idle();
            return;
        }
        let (header, frame) = self.world.take_sent();
        match header.operation {
            Operation::Register => self.on_login(&header),
            Operation::NonReplicated => self.on_read(&header),
            _ => self.on_write(&header, &frame),
        }
    }

    /// Nothing is out: the network's turn, or time's.
    fn idle(&mut self) {
        let is_dialing = self.world.is_dialing();
        match self.prng.below(10) {
            0 | 1 if is_dialing => self.world.lose(),
            _ if is_dialing => self.world.connect(),
            0 if self.world.receiving.is_some() => self.world.lose(),
            _ => self.world.wait(),
        }
    }

    fn on_login(&mut self, header: &RequestHeader) {
        match self.prng.below(10) {
            0 => self.world.lose(),
            1 => {
                let code = ErrorCode::TRANSIENT_NOT_ACCEPTED;
                self.world.reply(header, &result::rejection(code));
            }
            2 => self.world.evict(EvictionReason::StaleClient),
            3 => self.world.wait(),
            _ => {
                self.session += 1;
                self.world.accept(header, self.session);
            }
        }
    }

    fn on_read(&mut self, header: &RequestHeader) {
        match self.prng.below(6) {
            0 => self.world.lose(),
            1 => self.world.refuse(header, ErrorCode::TRANSIENT_NOT_ACCEPTED),
            2 => self.world.wait(),
            _ => self.world.reply(header, &[]),
        }
    }

    fn on_write(&mut self, header: &RequestHeader, frame: &[u8]) {
        let number = header.request;
        let bytes = without_session(frame);
        let known = self
            .requests
            .entry(number)
            .or_insert_with(|| (bytes.clone(), 0));
        assert_eq!(known.0, bytes, "request {number} changed");
        assert_eq!(header.session, self.session, "the newest session is in use");
        let is_applied = self.is_applied(number);
        match self.prng.below(14) {
            0 => self.world.lose(),
            1 => {
                self.apply(number);
                self.world.lose();
            }
            2 => {
                self.late.push(number);
                self.world.lose();
            }
            3 => self
                .world
                .refuse(header, ErrorCode::TRANSIENT_NOT_COMMITTED),
            4 => {
                self.apply(number);
                self.world
                    .refuse(header, ErrorCode::TRANSIENT_NOT_COMMITTED);
            }
            5 | 6 if !is_applied => {
                self.world.refuse(header, ErrorCode::TRANSIENT_NOT_ACCEPTED);
            }
            7 if !is_applied => self.world.refuse(header, ErrorCode::UNAUTHORIZED),
            8 => self.world.evict(EvictionReason::NoSession),
            9 if is_applied => self
                .world
                .refuse(header, ErrorCode::REQUEST_ALREADY_APPLIED),
            10 => {
                // Silence; it may yet arrive.
                self.late.push(number);
                self.world.wait();
            }
            11 => {
                let other = RequestHeader {
                    request: number + 7,
                    ..*header
                };
                self.world.reply(&other, &result::RESULT_SUCCESS);
            }
            _ => {
                self.apply(number);
                self.world.reply(header, &result::RESULT_SUCCESS);
            }
        }
    }

    fn submit(&mut self) {
        if self.prng.chance(1, 5) {
            self.world.submit(&Request::GetStreams);
        } else {
            let ticket = self.world.submit(&create_stream());
            self.writes.push(ticket);
        }
    }

    /// Every ticket has ended once, and what was said of it is true whatever still arrives.
    fn check(&mut self, submitted: usize) -> [usize; 3] {
        for number in core::mem::take(&mut self.late) {
            self.apply(number);
        }
        let completions = self.world.client.take_completions();
        assert_eq!(completions.len(), submitted);
        let mut tickets: Vec<Ticket> = completions.iter().map(|end| end.ticket).collect();
        tickets.sort();
        tickets.dedup();
        assert_eq!(tickets.len(), submitted, "a ticket ended twice");
        let mut counts = [0; 3];
        for end in completions
            .iter()
            .filter(|end| self.writes.contains(&end.ticket))
        {
            let effects = self
                .requests
                .get(&end.request)
                .map_or(0, |(_, effects)| *effects);
            match &end.outcome {
                Ok(_) => {
                    counts[0] += 1;
                    assert_eq!(effects, 1, "{end:?}");
                }
                Err(error) if error.maybe_applied() => counts[1] += 1,
                Err(_) => {
                    counts[2] += 1;
                    assert_eq!(effects, 0, "{end:?}");
                }
            }
        }
        counts
    }
}

/// The client never says "done" of a write that had no effect, nor "not applied" of one that had
/// or will have. Over all seeds each of the three answers must come up.
#[test]
fn what_the_client_says_of_a_write_is_true() {
    let mut totals = [0; 3];
    for seed in 0..300 {
        let mut run = Run::new(seed);
        let submitted = 30;
        for _ in 0..submitted {
            run.submit();
            for _ in 0..run.prng.below(12) {
                run.step();
            }
        }
        while run.world.client.pending() > 0 {
            run.step();
        }
        for (total, count) in totals.iter_mut().zip(run.check(submitted)) {
            *total += count;
        }
    }
    assert!(
        totals.iter().all(|&total| total > 100),
        "done, maybe, not applied: {totals:?}"
    );
}

/// However the nodes fail, all of them are tried.
#[test]
fn no_node_is_given_up() {
    let mut run = Run::new(1);
    for _ in 0..30 {
        run.submit();
    }
    while run.world.client.pending() > 0 {
        run.step();
    }
    let mut dialed: Vec<Address> = run
        .world
        .dialed
        .iter()
        .map(|(_, address)| *address)
        .collect();
    dialed.sort();
    dialed.dedup();
    assert_eq!(dialed.len(), 2);
}
