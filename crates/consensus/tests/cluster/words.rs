//! A cluster in words, for transcripts.

use consensus::Trust;
use wire::replica::{Message, PrepareHeader, StatusRole};

use super::{Cluster, Letter, Record};

impl Cluster {
    /// Where all replicas stand, one line each.
    pub(crate) fn state(&self) -> String {
        let mut lines = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let disk: Vec<String> = node.log.iter().map(name_of_record).collect();
            let disk = disk.join(" ");
            lines.push(match &node.group {
                None => format!("  {index} down, disk [{disk}]"),
                Some(group) => {
                    let role = match (group.is_normal(), group.is_primary()) {
                        (false, _) => "view change",
                        (true, true) if group.is_serving() => "primary",
                        (true, true) => "primary, not serving",
                        (true, false) => "backup",
                    };
                    let doubt = match group.status().map(|status| status.role) {
                        Some(StatusRole::Doubt) => " blank",
                        Some(StatusRole::Rejoining) => " rejoining",
                        _ if group.is_trusted() => "",
                        _ => " untrusted",
                    };
                    format!(
                        "  {index} view {} log_view {} op {} commit {} {role}{doubt}, \
                         disk [{disk}]",
                        group.view().0,
                        group.log_view().0,
                        group.op().0,
                        group.commit().0
                    )
                }
            });
        }
        lines.join("\n")
    }
}

/// An op and the view it was first prepared in.
pub(super) fn name(header: &PrepareHeader) -> String {
    format!("{}v{}", header.op.0, header.view.0)
}

fn name_of_record(record: &Record) -> String {
    let name = name(&record.header);
    if record.damaged {
        format!("({name})")
    } else {
        name
    }
}

pub(super) fn describe(letter: &Letter) -> String {
    let frame = match letter {
        Letter::Status(status) => return format!("status {:?}", status.role),
        Letter::Repair { view, prepare } => {
            let header = PrepareHeader::decode(prepare).expect("ours");
            return format!("repair {} in view {}", name(&header), view.0);
        }
        Letter::Frame(frame) => frame,
    };
    if let Ok(header) = PrepareHeader::verify(frame) {
        return format!("prepare {} commit {}", name(&header), header.commit.0);
    }
    let (envelope, message) = Message::decode(frame).expect("ours");
    let view = envelope.view.0;
    match message {
        Message::PrepareOk { op, .. } => format!("prepare_ok {} view {view}", op.0),
        Message::StartViewChange { .. } => format!("start_view_change {view}"),
        Message::DoViewChange {
            op,
            commit,
            log_view,
            trust,
            faulty,
            ..
        } => {
            let doubt = match trust {
                Trust::Trusted => "",
                Trust::Doubt => " untrusted",
                Trust::Blank => " blank",
            };
            let faulty = faulty.iter().map(|op| format!(" faulty {}", op.0));
            let faulty: String = faulty.collect();
            format!(
                "do_view_change {view} log_view {} op {} commit {}{doubt}{faulty}",
                log_view.0, op.0, commit.0
            )
        }
        Message::StartView {
            op, commit, nonce, ..
        } => {
            let founds = if nonce == 0 { "" } else { " founds the group" };
            format!("start_view {view} op {} commit {}{founds}", op.0, commit.0)
        }
        Message::RequestBody { op, .. } => format!("request_body {}", op.0),
        Message::RequestPrepares { from, to, .. } => format!("request {}..={}", from.0, to.0),
        Message::RepairPrepare { .. }
        | Message::Heartbeat { .. }
        | Message::RequestCheckpoint { .. }
        | Message::CheckpointChunk { .. } => unreachable!("letters"),
    }
}
