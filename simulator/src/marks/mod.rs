//! Marks: which rare branches of the product and of the simulator a campaign has reached.
//!
//! The build script finds all `sometimes!("…")`; a run tells which it has reached. A campaign that
//! never reaches one proves nothing about it, so a large one fails.

#[cfg(test)]
mod scan;

use std::{collections::BTreeMap, fmt::Write};

use wire::{Code, ErrorCode, EvictionReason};

use crate::profile::{PROFILES, Profile};

include!(concat!(env!("OUT_DIR"), "/marks.rs"));

/// From so many seeds of the first profile on, every mark is required.
pub(crate) const REQUIRED_FROM: u64 = 2_000;

/// A mark that only one profile can reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) mark: &'static str,
    pub(crate) profile: &'static str,
    pub(crate) why: &'static str,
}

/// The marks that the first profile cannot reach, and who does.
pub(crate) const ELSEWHERE: &[Elsewhere] = &[];

/// Malformed requests come from the tests of bad input, which send every golden vector cut, longer
/// and with other lengths; our client makes none.
const MALFORMED: &str = "our client sends nothing malformed; the tests of bad input do";
const LIMIT: &str = "a run creates too little; the tests at limit and limit + 1 do";
const LEGACY: &str = "a login that nobody may make any more; our client cannot";

/// The marks that no run can reach, and why.
pub(crate) const UNREACHABLE: &[(&str, &str)] = &[
    (
        "code: 1 error",
        "told where a hash cannot be computed; here it can",
    ),
    (
        "code: 1010 stream_name_not_found",
        "a stream that is not there is 1009, by name too",
    ),
    ("code: 1020 too_many_streams", LIMIT),
    (
        "code: 2011 topic_name_not_found",
        "a topic that is not there is 2010, by name too",
    ),
    ("code: 2021 too_many_topics", LIMIT),
    ("code: 3 invalid_command", MALFORMED),
    (
        "code: 3008 no_partitions",
        "the workload names partitions and leaves none to be chosen",
    ),
    (
        "code: 3009 topic_full",
        "nothing is refused for size: the oldest goes",
    ),
    ("code: 3013 partition_id_space_exhausted", LIMIT),
    ("code: 3024 too_many_consumer_offsets", LIMIT),
    ("code: 4 invalid_format", MALFORMED),
    ("code: 4009 invalid_messages_count", MALFORMED),
    ("code: 4017 too_big_user_headers", MALFORMED),
    ("code: 4022 too_big_message_payload", LIMIT),
    ("code: 4024 empty_message_payload", MALFORMED),
    ("code: 4027 invalid_message_checksum", MALFORMED),
    ("code: 4036 invalid_messages_size", MALFORMED),
    ("code: 4038 invalid_message_timestamp_delta", MALFORMED),
    ("code: 4039 invalid_batch_checksum", MALFORMED),
    ("code: 4043 options_block_too_large", MALFORMED),
    ("code: 4101 invalid_reserved_field", MALFORMED),
    ("code: 5007 cannot_create_consumer_group_info", LIMIT),
    ("code: 52 personal_access_tokens_limit_reached", LIMIT),
    (
        "code: 54 personal_access_token_expired",
        "clients are told 53, as by Iggy",
    ),
    ("code: 55 users_limit_reached", LIMIT),
    (
        "code: 72 cannot_decrypt_data",
        "all nodes of a run have the same key",
    ),
    (
        "code: 9000 snapshot_file_completion_failed",
        "archives are always made here",
    ),
    ("command: login_user", LEGACY),
    ("command: login_with_personal_access_token", LEGACY),
    (
        "command: logout",
        "our client ends its connection instead; the interop suites log out",
    ),
];

/// A client was answered to this command, well or badly.
pub(crate) fn reach_command(code: Code) {
    reach(&COMMANDS, code.number());
}

/// A client was told this code.
pub(crate) fn reach_code(code: ErrorCode) {
    reach(&CODES, code.0);
}

/// A checker has judged something: one that nobody feeds passes everything.
pub(crate) fn reach_checker(check: &str) {
    if let Ok(index) = CHECKERS.binary_search_by_key(&check, |(name, _)| *name) {
        CHECKERS[index].1.reach();
    }
}

fn reach(table: &'static [(u32, base::marks::Site)], number: u32) {
    if let Ok(index) = table.binary_search_by_key(&number, |(number, _)| *number) {
        table[index].1.reach();
    }
}

/// A client was told that it has no session; the protocol has codes for some reasons.
pub(crate) fn reach_eviction(reason: EvictionReason) {
    reach_code(match reason {
        EvictionReason::StaleClient => ErrorCode::STALE_CLIENT,
        EvictionReason::InvalidCredentials => ErrorCode::INVALID_CREDENTIALS,
        EvictionReason::InvalidToken => ErrorCode::INVALID_PERSONAL_ACCESS_TOKEN,
        EvictionReason::UserInactive => ErrorCode::USER_INACTIVE,
        _ => return,
    });
}

/// How many seeds have reached each mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    seeds: BTreeMap<&'static str, u64>,
}

impl Marks {
    /// A run has reached these.
    pub(crate) fn add(&mut self, reached: &[&'static str]) {
        for mark in reached {
            *self.seeds.entry(mark).or_default() += 1;
        }
    }

    /// Every mark with the number of seeds that have reached it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let seeds = |mark: &&'static str| self.seeds.get(mark).copied().unwrap_or(0);
        MARKS.iter().map(move |mark| (*mark, seeds(mark)))
    }

    /// What a campaign of `profile` should have reached and has not: in the first profile all
    /// but the marks of others, in another profile its own.
    pub(crate) fn missed(&self, profile: &Profile) -> Vec<&'static str> {
        let all = self.all();
        let all = all.filter(|(mark, _)| !UNREACHABLE.iter().any(|(known, _)| known == mark));
        missed(profile.name, PROFILES[0].name, ELSEWHERE, all)
    }

    /// The table of `--marks`, the rarest first.
    pub(crate) fn table(&self) -> String {
        let mut rows: Vec<_> = self.all().collect();
        rows.sort_by_key(|(_, seeds)| *seeds);
        let mut text = String::from("  seeds  mark\n");
        for (mark, seeds) in rows {
            let _ = write!(text, "{seeds:>7}  {mark}");
            if let Some(Elsewhere { profile, why, .. }) = elsewhere(mark) {
                let _ = write!(text, " (only in {profile}: {why})");
            }
            if let Some((_, why)) = UNREACHABLE.iter().find(|(known, _)| *known == mark) {
                let _ = write!(text, " (not here: {why})");
            }
            text.push('\n');
        }
        text
    }
}

fn elsewhere(mark: &str) -> Option<&'static Elsewhere> {
    ELSEWHERE.iter().find(|row| row.mark == mark)
}

fn missed(
    profile: &str,
    first: &str,
    elsewhere: &[Elsewhere],
    all: impl Iterator<Item = (&'static str, u64)>,
) -> Vec<&'static str> {
    let home = |mark: &str| {
        let row = elsewhere.iter().find(|row| row.mark == mark);
        row.map_or(first, |row| row.profile)
    };
    all.filter(|(mark, seeds)| *seeds == 0 && home(mark) == profile)
        .map(|(mark, _)| mark)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_no_seed_reaches_is_missed_by_its_profile_only() {
        let elsewhere = [Elsewhere {
            mark: "area: full",
            profile: "disk",
            why: "only there are disks small",
        }];
        let reached = || [("area: full", 0), ("area: rare", 0), ("area: often", 9)].into_iter();
        assert_eq!(
            missed("swarm", "swarm", &elsewhere, reached()),
            ["area: rare"]
        );
        assert_eq!(
            missed("disk", "swarm", &elsewhere, reached()),
            ["area: full"]
        );
        assert!(missed("quiet", "swarm", &elsewhere, reached()).is_empty());
    }

    #[test]
    fn seeds_are_counted_and_the_rarest_come_first() {
        let mut marks = Marks::default();
        let Some(first) = MARKS.first() else { return };
        marks.add(&[first]);
        marks.add(&[first]);
        assert!(marks.all().any(|row| row == (*first, 2)));
        assert!(!marks.missed(&PROFILES[0]).contains(first));
        let table = marks.table();
        assert!(table.trim_end().ends_with(first), "{table}");
    }

    #[test]
    fn marks_have_an_area_and_those_of_other_profiles_exist() {
        for mark in MARKS {
            assert!(mark.contains(": "), "{mark}: an area first");
        }
        for row in ELSEWHERE {
            assert!(MARKS.contains(&row.mark), "{}: no such mark", row.mark);
            assert!(Profile::find(row.profile).is_some(), "{}", row.profile);
            assert!(row.why.len() > 10);
        }
        for (mark, why) in UNREACHABLE {
            assert!(MARKS.contains(mark), "{mark}: no such mark");
            assert!(why.len() > 10);
        }
    }
}
