//! Words this project does not use, each with what to use instead.
//!
//! A word of the code is looked for in code only, so that a comment may explain why it is absent;
//! a word of prose is looked for everywhere. Matches are whole words, so `headmaster` is fine.
//! The rare right use says so on the line before: `// tidy: allow — reason`.

use crate::{File, Finding, Tree, edges, scan};

/// Where a word is not wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Every Rust file.
    Rust,
    /// Core crates.
    Core,
    /// Core crates but the client, whose driver is async and std.
    CoreWithoutDriver,
    /// Tests: files under `tests/` and all of the core crates.
    Tests,
    /// The crates that speak the paper's language only. The client protocol has a leader and
    /// followers, so the crates that encode and answer it may say so.
    Replication,
    /// Rust files, scripts and pages.
    Everywhere,
}

/// What part of a Rust file is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Code,
    /// Code, comments and literals, in any case of letters.
    Text,
}

struct Ban {
    word: &'static str,
    scope: Scope,
    place: Place,
    instead: &'static str,
}

const fn ban(word: &'static str, scope: Scope, place: Place, instead: &'static str) -> Ban {
    Ban {
        word,
        scope,
        place,
        instead,
    }
}

#[rustfmt::skip]
const BANS: &[Ban] = &[
    ban("todo!", Scope::Rust, Place::Code, "write it, or return a typed error"),
    ban("unimplemented!", Scope::Rust, Place::Code, "write it, or return a typed error"),
    ban("dbg!", Scope::Rust, Place::Code, "an effect `Log`, or an assertion"),
    ban("#[ignore", Scope::Rust, Place::Code, "a test that runs, or no test"),
    ban("FIXME", Scope::Rust, Place::Text, "mend it now, or open an issue"),
    ban("TODO", Scope::Rust, Place::Text, "do it now, or open an issue"),
    ban("mod utils", Scope::Rust, Place::Code, "a module named after what it holds"),
    ban("mod helpers", Scope::Rust, Place::Code, "a module named after what it holds"),
    ban("mod common", Scope::Rust, Place::Code, "a module named after what it holds"),
    ban("HashMap", Scope::Core, Place::Code, "BTreeMap: iteration order is part of the history"),
    ban("HashSet", Scope::Core, Place::Code, "BTreeSet: iteration order is part of the history"),
    ban("std::time", Scope::CoreWithoutDriver, Place::Code, "base::Instant, handed in as `now`"),
    ban("Instant::now", Scope::CoreWithoutDriver, Place::Code, "the `now` of the turn"),
    ban("SystemTime", Scope::CoreWithoutDriver, Place::Code, "the `now` of the turn"),
    ban("thread_rng", Scope::Rust, Place::Code, "base::Prng, from a seed"),
    ban("async fn", Scope::CoreWithoutDriver, Place::Code, "a stage and the event that ends it"),
    ban(".await", Scope::CoreWithoutDriver, Place::Code, "a stage and the event that ends it"),
    ban("thread::sleep", Scope::Tests, Place::Code, "wait for the condition (interop::wait)"),
    ban("time::sleep", Scope::Tests, Place::Code, "wait for the condition (interop::wait)"),
    ban("master", Scope::Everywhere, Place::Text, "primary"),
    ban("slave", Scope::Everywhere, Place::Text, "backup"),
    ban("whitelist", Scope::Everywhere, Place::Text, "allowed"),
    ban("blacklist", Scope::Everywhere, Place::Text, "refused"),
    ban("leader", Scope::Replication, Place::Text, "primary"),
    ban("follower", Scope::Replication, Place::Text, "backup"),
];

/// The crates of [`Scope::Replication`].
const REPLICATION: [&str; 3] = ["consensus", "storage", "partition"];

/// This file names every banned word.
const SELF: &str = "crates/xtask/src/words.rs";

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| file.path != SELF) {
        let bans: Vec<&Ban> = BANS.iter().filter(|ban| ban.scope.covers(file)).collect();
        if bans.is_empty() {
            continue;
        }
        let code = if file.is_rust() {
            scan::code_only(&file.text)
        } else {
            Vec::new()
        };
        let text = file.text.to_ascii_lowercase().into_bytes();
        for ban in bans {
            let hits = match ban.place {
                Place::Code => find(&code, ban.word),
                Place::Text if ban.word.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                    find(file.text.as_bytes(), ban.word)
                }
                Place::Text => find(&text, ban.word),
            };
            for at in hits {
                let line = scan::line_of(file.text.as_bytes(), at);
                if is_excused(&file.text, line) {
                    continue;
                }
                let message = format!("`{}` is not used here; use {}", ban.word, ban.instead);
                findings.push(Finding::failure(&file.path, line, message));
            }
        }
        check_glob(file, &code, findings);
        check_allow(file, findings);
    }
}

/// Whether the line before says why: `// tidy: allow — the reader is to be slow`.
fn is_excused(text: &str, line: usize) -> bool {
    let before = line
        .checked_sub(2)
        .and_then(|index| text.lines().nth(index));
    let reason = before.and_then(|line| line.trim_start().strip_prefix("// tidy: allow"));
    reason.is_some_and(|reason| reason.chars().any(char::is_alphanumeric))
}

/// `pub use x::*` promises whatever x holds tomorrow.
fn check_glob(file: &File, code: &[u8], findings: &mut Vec<Finding>) {
    for (index, line) in code.split(|&byte| byte == b'\n').enumerate() {
        let line = String::from_utf8_lossy(line);
        if line.trim_start().starts_with("pub use ") && line.contains("::*") {
            let message = "`pub use …::*` is not used here; name what is promised";
            findings.push(Finding::failure(&file.path, index + 1, message));
        }
    }
}

/// A lint may be off for a whole file if the file says why.
fn check_allow(file: &File, findings: &mut Vec<Finding>) {
    for (at, _) in file.text.match_indices("\n#![allow(") {
        let attribute = file.text[at + 1..].split(")]").next().unwrap_or_default();
        if !attribute.contains("reason = ") {
            let line = scan::line_of(file.text.as_bytes(), at + 1);
            let message = "`#![allow]` without `reason = \"…\"`; say why, or mend it";
            findings.push(Finding::failure(&file.path, line, message));
        }
    }
}

impl Scope {
    fn covers(self, file: &File) -> bool {
        let name = file.crate_name().unwrap_or_default();
        let is_core = edges::row(name).is_some_and(|row| row.kind == edges::Kind::Core);
        match self {
            Self::Rust => file.is_rust(),
            Self::Core => file.is_rust() && is_core,
            Self::CoreWithoutDriver => file.is_rust() && is_core && name != "client",
            Self::Tests => {
                let in_core = is_core && name != "client";
                file.is_rust() && (in_core || file.path.contains("/tests/"))
            }
            Self::Replication => file.is_rust() && REPLICATION.contains(&name),
            Self::Everywhere => {
                let in_scripts = file.path.starts_with("ci/") || file.path.starts_with(".ci/");
                file.is_rust() || in_scripts || file.path.ends_with(".md")
            }
        }
    }
}

/// Every place where `word` stands as a whole word.
fn find(text: &[u8], word: &str) -> Vec<usize> {
    let word = word.as_bytes();
    let whole = |at: usize| {
        let end = at + word.len();
        let left = !scan::is_word(word[0]) || at == 0 || !scan::is_word(text[at - 1]);
        let right = !scan::is_word(word[word.len() - 1])
            || text.get(end).is_none_or(|&byte| !scan::is_word(byte));
        left && right
    };
    let windows = text.windows(word.len()).enumerate();
    windows
        .filter(|&(at, window)| window == word && whole(at))
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&Tree::of(&[(path, text)]), &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.to_string())
            .collect()
    }

    #[test]
    fn a_banned_word_fails_with_its_line_and_replacement() {
        let found = messages(
            "crates/wire/src/x.rs",
            "//! X.\nfn f() {\n    todo!();\n}\n",
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("failure: crates/wire/src/x.rs:3: `todo!` is not used"));
        assert!(found[0].ends_with("use write it, or return a typed error"));
    }

    #[test]
    fn a_comment_may_explain_the_absence_of_a_word_of_the_code() {
        let text = "//! No HashMap: its order differs between runs.\nlet x = \"todo!\";\n";
        assert!(messages("crates/wire/src/x.rs", text).is_empty());
    }

    #[test]
    fn core_words_are_free_elsewhere() {
        let text = "use std::collections::HashMap;\nlet t = Instant::now();\n";
        assert_eq!(messages("crates/metadata/src/x.rs", text).len(), 2);
        assert!(messages("crates/viewstamp/src/x.rs", text).is_empty());
        let driver = "async fn f() {\n    g().await;\n}\n";
        assert_eq!(messages("crates/server/src/x.rs", driver).len(), 2);
        assert!(messages("crates/client/src/driver.rs", driver).is_empty());
    }

    #[test]
    fn tests_wait_for_a_condition() {
        let text = "    tokio::time::sleep(d);\n    std::thread::sleep(d);\n";
        assert_eq!(messages("crates/interop/tests/x.rs", text).len(), 2);
        assert!(messages("crates/interop/src/wait.rs", text).is_empty());
        let excused = "    // tidy: allow — the reader is to be slow\n    thread::sleep(d);\n";
        assert!(messages("crates/uring/tests/x.rs", excused).is_empty());
        let unexcused = "    // tidy: allow —\n    thread::sleep(d);\n";
        assert_eq!(messages("crates/uring/tests/x.rs", unexcused).len(), 1);
    }

    #[test]
    fn prose_words_fail_in_any_case_and_place_but_only_as_whole_words() {
        assert_eq!(
            messages("docs/x.md", "The Master and the SLAVE.\n").len(),
            2
        );
        assert!(messages("docs/x.md", "A headmaster, a masterpiece.\n").is_empty());
        assert_eq!(
            messages("crates/consensus/src/x.rs", "// The leader sends.\n").len(),
            1
        );
        assert!(messages("crates/wire/src/x.rs", "// The leader sends.\n").is_empty());
    }

    #[test]
    fn a_lint_is_switched_off_with_a_reason_only() {
        let text = "//! X.\n\n#![allow(unsafe_code, reason = \"the kernel\")]\n";
        assert!(messages("crates/uring/src/x.rs", text).is_empty());
        assert_eq!(
            messages("crates/uring/src/x.rs", "//! X.\n#![allow(dead_code)]\n").len(),
            1
        );
    }

    #[test]
    fn a_glob_is_not_promised() {
        assert_eq!(
            messages("crates/wire/src/lib.rs", "pub use header::*;\n").len(),
            1
        );
        assert!(messages("crates/wire/src/lib.rs", "pub use header::{A, B};\n").is_empty());
        assert!(messages("crates/wire/src/lib.rs", "    use super::*;\n").is_empty());
    }
}
