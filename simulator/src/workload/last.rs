//! The calls of the last phase, which must succeed once all faults are over.

use client::RequestFrame;

use super::{Sampler, Topic, Workload};
use crate::check::linear::Target;

/// A call of the last phase.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FinalCall {
    CreateStream,
    Send(Target),
}

impl Workload {
    /// Calls that must succeed once all faults are over: a write to every partition that surely
    /// exists, and one to the metadata.
    pub(crate) fn final_calls(&mut self) -> Vec<FinalCall> {
        let live = self
            .topics
            .iter()
            .filter(|(_, topic)| self.surely_live(topic));
        let targets = live.flat_map(|(&topic, known)| {
            (0..known.partitions).map(move |partition| Target { topic, partition })
        });
        let mut calls: Vec<_> = targets.map(FinalCall::Send).collect();
        calls.push(FinalCall::CreateStream);
        calls
    }

    fn surely_live(&self, topic: &Topic) -> bool {
        let stream = &self.streams[&topic.stream];
        topic.live && topic.doubts == 0 && stream.live && stream.doubts == 0
    }

    /// Makes one of the final calls.
    pub(crate) fn finally(&mut self, time: u64, client: usize, call: FinalCall) -> RequestFrame {
        let mut sampler = Sampler {
            workload: self,
            client,
            time,
        };
        let (call, frame) = match call {
            FinalCall::CreateStream => sampler.create_stream(),
            FinalCall::Send(target) => sampler.send(target),
        };
        self.begin(time, client, call);
        frame
    }
}
