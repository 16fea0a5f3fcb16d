//! Reads about the system: ping, the nodes.

use client::{Reply, RequestFrame};
use wire::{Request, reply};

use super::{Call, Sampler, Verdict};

impl Sampler<'_> {
    pub(super) fn sample_system(&mut self) -> (Call, RequestFrame) {
        if self.prng().chance(1, 2) {
            return (Call::Ping, RequestFrame::new(&Request::Ping));
        }
        (
            Call::Metadata,
            RequestFrame::new(&Request::GetClusterMetadata),
        )
    }

    pub(super) fn judge_system(&mut self, call: &Call, start: u64, reply: &Reply) -> Verdict {
        if matches!(call, Call::Ping) {
            if reply.payload().is_empty() {
                return Ok(());
            }
            return self.fail(format!("a ping of {start} was answered with a body"));
        }
        match reply.decode::<reply::ClusterMetadata<'_>>() {
            Ok(metadata) if !metadata.nodes.0.is_empty() => Ok(()),
            other => self.fail(format!("cluster metadata were read as {other:?}")),
        }
    }
}
