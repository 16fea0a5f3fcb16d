//! The verbs and what each takes.

/// What a word may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A number.
    Number,
    /// A number that may be below zero.
    Signed,
    /// A name: of a node, a topic, a client.
    Name,
    /// One of these.
    Of(&'static [&'static str]),
}

use Kind::{Name, Number, Of, Signed};

/// What replicas may have said.
pub(super) const SAYINGS: [&str; 9] = [
    "halt",
    "gap",
    "repaired",
    "doubt",
    "undecidable",
    "loss",
    "full",
    "room",
    "clock",
];

/// Directories of a node with one shard and one partition, sorted by name.
pub(super) const DIRECTORIES: [&str; 3] = ["metadata", "log", "views"];

const VERBS: &[(&str, &[Kind])] = &[
    ("topic", &[Number, Name, Number]),
    ("stream", &[Number]),
    ("send", &[Number, Name, Number]),
    ("sends", &[Number, Name, Number]),
    ("poll", &[Number, Name, Number, Number]),
    ("next", &[Number, Name, Number, Number]),
    ("store", &[Number, Name, Number, Number]),
    ("offset", &[Number, Name, Number]),
    ("delete", &[Number, Name, Number]),
    ("purge", &[Number, Name]),
    ("end", &[Number]),
    ("leave", &[Number]),
    ("return", &[Number, Of(&["same", "new"])]),
    (
        "let",
        &[Name, Of(&["primary", "metadata", "backup", "other"])],
    ),
    ("crash", &[Name]),
    ("power", &[Name]),
    ("restart", &[Name]),
    ("wipe", &[Name]),
    ("lose", &[Name, Of(&DIRECTORIES)]),
    ("pause", &[Name]),
    ("resume", &[Name]),
    (
        "die",
        &[
            Name,
            Of(&["submit", "complete", "sync", "rename"]),
            Number,
            Of(&["crash", "power"]),
            Number,
        ],
    ),
    ("cut", &[Name, Name]),
    ("block", &[Name, Name]),
    ("heal", &[]),
    ("lag", &[Name, Name, Number]),
    (
        "damage",
        &[
            Name,
            Name,
            Number,
            Of(&["bit", "astray", "zeros", "sectors"]),
        ],
    ),
    ("full", &[Name]),
    ("space", &[Name]),
    ("slow", &[Name, Number]),
    ("fail", &[Name, Of(&["read", "write", "sync"]), Number]),
    ("stuck", &[Name, Number]),
    ("clock", &[Name, Signed]),
    ("pass", &[Number]),
    ("elected", &[]),
    ("converged", &[]),
    ("repaired", &[]),
    ("until", &[Of(&SAYINGS)]),
    ("never", &[Of(&SAYINGS)]),
    ("down", &[Name]),
    ("leads", &[Name]),
    ("deposed", &[Name]),
    ("state", &[]),
];

/// Verbs that `begin` may stand before: the script goes on before they have ended.
const CALLS: [&str; 10] = [
    "topic", "stream", "send", "sends", "poll", "next", "store", "offset", "delete", "purge",
];

/// What is wrong with a line, if anything is.
pub(super) fn check(words: &[String]) -> Result<(), String> {
    let words = if words[0] == "begin" {
        let verb = words.get(1).map_or("", String::as_str);
        if !CALLS.contains(&verb) || verb == "sends" {
            return Err("only one call begins".into());
        }
        &words[1..]
    } else {
        words
    };
    let found = VERBS.iter().find(|(verb, _)| *verb == words[0]);
    let (_, kinds) = found.ok_or_else(|| format!("no verb `{}`", words[0]))?;
    if kinds.len() != words.len() - 1 {
        return Err("too few words, or too many".into());
    }
    let mut pairs = kinds.iter().zip(&words[1..]);
    let wrong = pairs.find(|(kind, word)| match kind {
        Number => word.parse::<u64>().is_err(),
        Signed => word.parse::<i64>().is_err(),
        Name => false,
        Of(words) => !words.contains(&word.as_str()),
    });
    wrong.map_or(Ok(()), |(_, word)| {
        Err(format!("`{word}` does not stand here"))
    })
}
