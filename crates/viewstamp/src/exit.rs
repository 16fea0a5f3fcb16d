//! How the process ends: one code per cause, listed in `--help`.

use std::fmt;

use platform::Fatal;

/// Why the process ends; its text is the operator's message.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The configuration contradicts itself, names unknown things, or asks for too much.
    Config(Vec<String>),
    /// Another process uses the data directory.
    Locked(String),
    /// The data directory cannot be used.
    Data(String),
    /// The node cannot go on.
    Fatal(Fatal),
    /// A bug: a shard has panicked.
    Panicked(u16),
    /// The kernel's ring cannot be had or has failed.
    Ring(String),
    /// The shards did not stop in time.
    Stuck,
}

impl Failure {
    /// The process exit code. 1 is left to the shell's and 2 to command lines that make no sense.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Config(_) => 3,
            Self::Locked(_) => 4,
            Self::Data(_) => 5,
            Self::Fatal(fatal) => fatal.exit_code(),
            Self::Panicked(_) => 20,
            Self::Ring(_) => 21,
            Self::Stuck => 22,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problems) => {
                f.write_str("the configuration is refused:")?;
                problems
                    .iter()
                    .try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
            Self::Locked(what) | Self::Data(what) => f.write_str(what),
            Self::Fatal(Fatal::Disk) => f.write_str(
                "the disk failed where going on could lose data; look at the device, then start \
                 again",
            ),
            Self::Fatal(Fatal::Identity) => f.write_str(
                "the data directory belongs to another cluster, replica or number of shards; \
                 start with the roster, --replica-id and --shards that it was made with",
            ),
            Self::Fatal(Fatal::Damage) => f.write_str(
                "a file that must be whole is damaged; restore it, or wipe this node (--fresh) \
                 and let it rejoin its cluster",
            ),
            Self::Fatal(Fatal::Bind) => {
                f.write_str("an address could not be bound; free it or choose another")
            }
            Self::Panicked(shard) => write!(f, "shard {shard} has panicked; this is a bug"),
            Self::Ring(what) => write!(f, "io_uring: {what}"),
            Self::Stuck => f.write_str("the shards did not stop in time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cause_has_a_code_of_its_own_that_the_help_lists() {
        let all = [
            Failure::Config(vec![]),
            Failure::Locked(String::new()),
            Failure::Data(String::new()),
            Failure::Fatal(Fatal::Disk),
            Failure::Fatal(Fatal::Identity),
            Failure::Fatal(Fatal::Damage),
            Failure::Fatal(Fatal::Bind),
            Failure::Panicked(0),
            Failure::Ring(String::new()),
            Failure::Stuck,
        ];
        let codes: BTreeSet<u8> = all.iter().map(Failure::code).collect();
        assert_eq!(codes.len(), all.len());
        assert!(!codes.contains(&0) && !codes.contains(&1) && !codes.contains(&2));
        for code in codes {
            let listed = format!("\n  {code:<4}");
            assert!(
                crate::flags::HELP.contains(&listed),
                "{code} is not in the help"
            );
        }
    }
}
