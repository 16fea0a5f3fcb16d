//! Which crate may depend on which: the architecture, as a table.
//!
//! Every `Cargo.toml` is checked against [`CRATES`]: normal and build dependencies against its
//! row, development dependencies against the row plus what tests may use. The forbidden edges are
//! checked apart from the table, so that a careless change of a row cannot let one in.

use toml::{Table, Value};

use crate::{Finding, Tree};

/// Whether a crate decides (and so must run in the simulator) or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Core,
    Std,
}

/// What one crate may depend on.
pub(crate) struct Crate {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    local: &'static [&'static str],
    external: &'static [&'static str],
}

const fn core(
    name: &'static str,
    local: &'static [&'static str],
    external: &'static [&'static str],
) -> Crate {
    Crate {
        name,
        kind: Kind::Core,
        local,
        external,
    }
}

const fn std(
    name: &'static str,
    local: &'static [&'static str],
    external: &'static [&'static str],
) -> Crate {
    Crate {
        name,
        kind: Kind::Std,
        local,
        external,
    }
}

/// All of the server's logic.
const LOGIC: &[&str] = &[
    "base",
    "wire",
    "platform",
    "consensus",
    "storage",
    "metadata",
    "partition",
    "transport",
    "server",
];

/// One row per crate; a new crate or edge is added here, with its reason in the commit.
#[rustfmt::skip]
pub(crate) const CRATES: &[Crate] = &[
    core("base", &[], &["rand_chacha", "twox-hash", "zerocopy"]),
    core("wire", &["base"], &["thiserror", "twox-hash"]),
    core("platform", &["base", "wire"], &[]),
    core("consensus", &["base", "wire"], &[]),
    core("storage", &["base", "wire", "platform"], &["thiserror"]),
    core("metadata", &["base", "wire"], &["thiserror"]),
    core("partition", &["base", "wire", "platform", "storage"], &["thiserror"]),
    core("transport", &["base", "wire", "platform"], &["thiserror"]),
    core("server", LOGIC, &["aes-gcm", "blake3", "thiserror"]),
    core("client", &["base", "wire", "platform", "transport"], &["thiserror", "tokio"]),
    std("uring", &["base", "wire", "platform", "transport", "server"],
        &["argon2", "blake3", "io-uring", "libc", "rtrb", "tracing"]),
    std("viewstamp", &["uring", "base", "wire", "platform", "transport", "server", "metadata"],
        &["argon2", "base64ct", "blake3", "clap", "libc", "serde", "signal-hook", "toml", "tracing",
          "tracing-subscriber", "zip"]),
    std("bench", &["client", "wire", "base"],
        &["clap", "hdrhistogram", "indicatif", "serde_json", "tokio"]),
    std("xtask", &[], &["serde_json", "toml"]),
    std("interop", &[],
        &["bytes", "futures-util", "iggy", "iggy_binary_protocol", "tokio", "toml"]),
    std("simulator", &["base", "wire", "platform", "consensus", "storage", "metadata",
        "partition", "transport", "server", "client"],
        &["argon2", "clap", "indicatif", "libc", "serde", "serde_json"]),
    std("conformance", &["simulator", "uring", "platform", "base"], &[]),
];

/// What tests may use beyond their crate's row.
const TEST_EXTERNAL: &[&str] = &[
    "allocation-counter",
    "expect-test",
    "proptest",
    "serde_json",
    "tempfile",
    "tokio",
    "toml",
];

/// Edges that must never exist, of whatever kind of dependency.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    (
        "simulator",
        "uring",
        "the simulator replaces the ring; it must not link it",
    ),
    (
        "simulator",
        "viewstamp",
        "the simulator drives the logic, not the binary",
    ),
    (
        "consensus",
        "platform",
        "consensus knows no disk and no network, only effects of its own",
    ),
    (
        "consensus",
        "storage",
        "consensus knows no disk; the server stands between the two",
    ),
];

/// The row of a crate.
pub(crate) fn row(name: &str) -> Option<&'static Crate> {
    CRATES.iter().find(|row| row.name == name)
}

/// The rule.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| is_manifest(&file.path)) {
        let manifest: Table = match file.text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(Finding::failure(&file.path, 0, format!("no TOML: {error}")));
                continue;
            }
        };
        let Some(name) = package_name(&manifest) else {
            continue;
        };
        for (kind, dependency) in dependencies(&manifest) {
            if let Some(reason) = refusal(name, kind, &dependency) {
                let message = format!("{name} → {dependency}: {reason}");
                findings.push(Finding::failure(&file.path, 0, message));
            }
        }
        if row(name).is_none() {
            let message = format!("crate {name} has no row in crates/xtask/src/edges.rs: add one");
            findings.push(Finding::failure(&file.path, 0, message));
        }
    }
}

/// The fuzz crate stands outside the workspace: it may link all logic and is never linked.
fn is_manifest(path: &str) -> bool {
    (path == "Cargo.toml" || path.ends_with("/Cargo.toml")) && !path.starts_with("fuzz/")
}

fn package_name(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Product,
    Test,
}

/// Every dependency by its package name, those under `[target.…]` included.
fn dependencies(manifest: &Table) -> Vec<(Use, String)> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        tables.extend(targets.values().filter_map(Value::as_table));
    }
    let sections = [
        ("dependencies", Use::Product),
        ("build-dependencies", Use::Product),
        ("dev-dependencies", Use::Test),
    ];
    let mut found = Vec::new();
    for table in tables {
        for (section, kind) in sections {
            let Some(entries) = table.get(section).and_then(Value::as_table) else {
                continue;
            };
            for (key, value) in entries {
                let renamed = value.get("package").and_then(Value::as_str);
                found.push((kind, renamed.unwrap_or(key).to_owned()));
            }
        }
    }
    found
}

/// Why this edge must not be, if so.
fn refusal(from: &str, kind: Use, to: &str) -> Option<String> {
    if let Some((_, _, why)) = FORBIDDEN.iter().find(|(a, b, _)| *a == from && *b == to) {
        return Some(format!("this edge must never exist: {why}"));
    }
    let from_row = row(from)?;
    if let Some(to_row) = row(to) {
        if from_row.kind == Kind::Core && to_row.kind == Kind::Std {
            return Some("a core crate must not know a std crate: move the logic down".into());
        }
        // Tests of a std crate may link any other: the two-armed conformance test needs both.
        let allowed = from_row.local.contains(&to)
            || (kind == Use::Test && (from_row.kind == Kind::Std || from == to));
        let why = "not in the crate's row (crates/xtask/src/edges.rs); see ARCHITECTURE.md";
        return (!allowed).then(|| why.into());
    }
    let allowed =
        from_row.external.contains(&to) || (kind == Use::Test && TEST_EXTERNAL.contains(&to));
    let why = "an external crate not in the row: a new dependency needs a reason (an ADR)";
    (!allowed).then(|| why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_manifest(name: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        let mut findings = Vec::new();
        check(&Tree::of(&[("crates/x/Cargo.toml", &text)]), &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn an_edge_of_the_table_passes() {
        let text = "[dependencies]\nbase.workspace = true\nwire = { workspace = true }\n";
        assert!(check_manifest("consensus", text).is_empty());
        let text = "[dev-dependencies]\nexpect-test.workspace = true\n";
        assert!(check_manifest("wire", text).is_empty());
        let text = "[dev-dependencies]\nsimulator.workspace = true\n";
        assert!(check_manifest("uring", text).is_empty());
    }

    #[test]
    fn a_forbidden_edge_fails_as_any_kind_of_dependency() {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let text = format!("[{section}]\nuring.workspace = true\n");
            let messages = check_manifest("simulator", &text);
            assert!(messages[0].contains("must never exist"), "{messages:?}");
        }
        let text = "[target.'cfg(unix)'.dependencies]\ndisk = { package = \"storage\" }\n";
        assert!(check_manifest("consensus", text)[0].contains("must never exist"));
    }

    #[test]
    fn core_does_not_know_std() {
        let text = "[dev-dependencies]\nsimulator.workspace = true\n";
        assert!(check_manifest("server", text)[0].contains("core crate"));
    }

    #[test]
    fn an_edge_or_crate_outside_the_table_fails() {
        let text = "[dependencies]\nserver.workspace = true\n";
        assert!(check_manifest("storage", text)[0].contains("crate's row"));
        let text = "[dependencies]\nserde = \"1\"\n";
        assert!(check_manifest("wire", text)[0].contains("external crate"));
        assert!(check_manifest("novelty", "")[0].contains("has no row"));
    }

    #[test]
    fn the_table_itself_breaks_no_rule() {
        for from in CRATES {
            for to in from.local {
                assert_eq!(
                    refusal(from.name, Use::Product, to),
                    None,
                    "{} → {to}",
                    from.name
                );
            }
        }
    }
}
