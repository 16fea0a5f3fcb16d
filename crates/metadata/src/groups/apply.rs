//! The ops on groups as the log has them.

use alloc::vec::Vec;

use wire::{
    ErrorCode, Operation, Request,
    replica::PrepareHeader,
    request::{CreateConsumerGroup, GroupTarget},
};

use super::{CompleteRevocation, Join, RemoveMember};
use crate::{Metadata, Session, machine::decode, state::Change};

impl Metadata {
    pub(crate) fn execute_on_groups(
        &mut self,
        prepare: &PrepareHeader,
        body: &[u8],
        changes: &mut Vec<Change>,
    ) -> Result<Vec<u8>, ErrorCode> {
        let (client, at) = (prepare.client, prepare.into());
        match prepare.operation {
            Operation::CreateConsumerGroup => {
                self.permit(prepare, body)?;
                let request: CreateConsumerGroup<'_> = decode(body)?;
                let ids = self.state.create_group(&request, &self.limits, at)?;
                return Ok(self.created_group(ids));
            }
            Operation::DeleteConsumerGroup => {
                self.permit(prepare, body)?;
                let target: GroupTarget<'_> = decode(body)?;
                self.state.delete_group(&target, changes)?;
            }
            Operation::JoinConsumerGroup => {
                let join: Join<'_> = decode(body)?;
                let request = Request::JoinConsumerGroup(join.target);
                self.authorize_request(prepare.user, &request)?;
                self.state.join_group(&join, client, at)?;
            }
            Operation::LeaveConsumerGroup => {
                self.permit(prepare, body)?;
                let target: GroupTarget<'_> = decode(body)?;
                self.state.leave_group(&target, client, at)?;
            }
            Operation::RemoveConsumerGroupMember => {
                let RemoveMember { client, session } = decode(body)?;
                let lives = |live: Session| live.session == session;
                if self.session(client).is_some_and(lives) {
                    self.state.leave_all(client, at);
                }
            }
            _ => {
                let revocation: CompleteRevocation = decode(body)?;
                self.state.complete_revocation(&revocation, at);
            }
        }
        Ok(Vec::new())
    }
}
