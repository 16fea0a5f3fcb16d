//! The other nodes' shards of the same number: frames, liveness, and where all groups stand.

use alloc::vec::Vec;

use base::{Bytes, GroupId, ReplicaIndex, View};
use platform::Level;
use wire::{
    Command,
    replica::{Beat, Envelope, GroupStatus, Message},
};

use super::Shard;
use crate::{
    Observation,
    ask::{Answer, Ask},
    clock::Standing,
    hosted::Hosted,
    links::LinkEvent,
};

/// Statuses in one heartbeat frame.
const STATUSES_MAX: usize = 1024;

impl Shard {
    pub(super) fn on_link_events(&mut self, events: Vec<LinkEvent>) {
        for event in events {
            match event {
                LinkEvent::Up(peer) => self.on_link_up(peer),
                LinkEvent::Silent(peer) => self.on_silent(peer),
                LinkEvent::Frame { from, frame } => self.on_frame(from, frame),
            }
        }
    }

    /// A new link: both sides tell where all their groups stand.
    fn on_link_up(&mut self, peer: ReplicaIndex) {
        let line = alloc::format!("replica {peer} is connected");
        self.core.log(Level::Info, line);
        let statuses: Vec<GroupStatus> = self.groups.values().filter_map(Hosted::status).collect();
        self.send_statuses(peer, &statuses);
        for group in ::core::mem::take(&mut self.core.awaited) {
            self.unpark(group);
        }
    }

    fn on_silent(&mut self, peer: ReplicaIndex) {
        let line = alloc::format!("replica {peer} is silent");
        self.core.log(Level::Warn, line);
        for hosted in self.groups.values_mut() {
            hosted.on_silent(peer, &mut self.core);
        }
    }

    fn on_frame(&mut self, from: ReplicaIndex, frame: Bytes) {
        let Ok(envelope) = Envelope::decode(&frame) else {
            return;
        };
        match envelope.command {
            Command::Heartbeat => self.on_heartbeat(from, &frame),
            Command::Forward => {
                if let Ok(ask) = Ask::decode_forward(frame) {
                    self.take_forwarded(ask);
                }
            }
            Command::ForwardReply => {
                if let Ok(answer) = Answer::decode_forward(&frame)
                    && answer.ticket.replica == self.core.config.replica
                    && answer.ticket.shard.0 < self.core.config.shard_count
                {
                    self.on_passed_answer(answer);
                }
            }
            command => {
                let Some(group) = group_of(command, &frame) else {
                    return;
                };
                if let Some(hosted) = self.groups.get_mut(&group) {
                    hosted.on_frame(from, &envelope, frame, &mut self.core);
                }
            }
        }
    }

    /// A request passed on by another node; its group is hosted by this very shard, since all
    /// nodes place groups alike.
    fn take_forwarded(&mut self, ask: Ask) {
        let count = self.core.config.shard_count;
        let here = ask.group.shard(count) == self.core.config.shard;
        if here && ask.ticket.shard.0 < count {
            self.ask_local_group(ask);
        }
    }

    fn on_heartbeat(&mut self, from: ReplicaIndex, frame: &Bytes) {
        let Ok((_, Message::Heartbeat { beat, statuses })) = Message::decode(frame) else {
            return;
        };
        for status in &statuses {
            if let Some(hosted) = self.groups.get_mut(&status.group) {
                hosted.on_status(from, status, &mut self.core);
            }
        }
        // The echo counts after the statuses: it promises nothing to a primary of a view that
        // the peer has told to be over.
        self.on_beat(from, &beat);
    }

    fn on_beat(&mut self, from: ReplicaIndex, beat: &Beat) {
        let now = self.core.now;
        self.core.links.on_beat(from, now.monotonic, beat);
        if let Some(standing) = self.core.clock.on_beat(now, from, beat) {
            self.on_clock(standing);
        }
        let Some(echo) = beat.echo else { return };
        let held = self.core.lease.holds(now.monotonic);
        self.core.lease.on_echo(now.monotonic, from, echo.sent);
        if !held && self.core.lease.holds(now.monotonic) {
            base::sometimes!(
                !self.core.awaited.is_empty(),
                "server: reads waited for a lease"
            );
            for group in ::core::mem::take(&mut self.core.awaited) {
                self.unpark(group);
            }
        }
    }

    /// This node's clock has left the window that the cluster agrees on, or is back.
    fn on_clock(&mut self, standing: Standing) {
        let (level, line, ahead) = match standing {
            Standing::Outside(ahead) => {
                base::sometimes!("clock: this node's clock is outside the window");
                let line = alloc::format!(
                    "the clock of this node is {ahead} microseconds ahead of what the others \
                     agree on; stamps keep to theirs"
                );
                (Level::Warn, line, ahead)
            }
            Standing::Inside => {
                base::sometimes!("clock: this node's clock is back in the window");
                let line = "the clock of this node agrees with the others".into();
                (Level::Info, line, 0)
            }
        };
        if self.core.config.shard.0 == 0 {
            self.core.log(level, line);
        }
        self.core.observe(|| Observation::Clock { ahead });
    }

    /// The statuses that may have changed since they were last told.
    fn news(&mut self) -> Vec<GroupStatus> {
        let untold = ::core::mem::take(&mut self.core.untold);
        let mut active = ::core::mem::take(&mut self.core.active);
        active.extend(&untold);
        let mut statuses = Vec::new();
        for id in active {
            let Some(hosted) = self.groups.get_mut(&id) else {
                continue;
            };
            if let Some(status) = hosted.take_status() {
                statuses.push(status);
                self.core.active.insert(id);
            } else if untold.contains(&id) {
                statuses.extend(hosted.status());
            }
        }
        statuses
    }

    /// A heartbeat to every peer, with what is new.
    pub(super) fn send_heartbeats(&mut self) {
        let statuses = self.news();
        for peer in self.core.links.up() {
            self.send_statuses(peer, &statuses);
        }
    }

    /// What is new, without waiting for the next heartbeat.
    pub(super) fn send_news(&mut self) {
        let statuses = self.news();
        if !statuses.is_empty() {
            for peer in self.core.links.up() {
                self.send_statuses(peer, &statuses);
            }
        }
    }

    fn send_statuses(&mut self, peer: ReplicaIndex, statuses: &[GroupStatus]) {
        let (cluster, replica) = (self.core.config.cluster, self.core.config.replica);
        let mut rest = statuses;
        let mut all_told = true;
        loop {
            let (chunk, tail) = rest.split_at(rest.len().min(STATUSES_MAX));
            // Our word goes with the last of it, if the peer then knows of all views left here.
            let word = tail.is_empty() && all_told && self.core.leaving.is_empty();
            base::sometimes!(
                tail.is_empty() && !self.core.leaving.is_empty(),
                "links: a heartbeat echoes nothing while a view change is not durable"
            );
            let beat = self.core.links.beat(peer, self.core.now, word);
            let message = Message::Heartbeat {
                beat,
                statuses: chunk.to_vec(),
            };
            let frame = message.encode(cluster, View(0), replica);
            if !self.core.links.send(peer, frame, &mut self.core.out) {
                all_told = false;
                self.core
                    .untold
                    .extend(chunk.iter().map(|status| status.group));
            }
            if tail.is_empty() {
                return;
            }
            rest = tail;
        }
    }
}

/// The group a frame is about.
fn group_of(command: Command, frame: &[u8]) -> Option<GroupId> {
    let at = if command == Command::Prepare {
        160
    } else {
        128
    };
    Some(GroupId(u64::from_le_bytes(wire::array(frame, at).ok()?)))
}
