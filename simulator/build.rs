//! Lists the marks and the planted bugs of all crates that a world runs, so that one that is
//! never reached is missed by name.

#[path = "src/marks/scan.rs"]
mod scan;

use std::{collections::BTreeSet, env, fmt::Write, fs, io, path::Path};

/// Where marks and planted bugs are, seen from this crate.
const SOURCES: [&str; 9] = [
    "../crates/wire/src",
    "../crates/consensus/src",
    "../crates/storage/src",
    "../crates/metadata/src",
    "../crates/partition/src",
    "../crates/transport/src",
    "../crates/server/src",
    "../crates/client/src",
    "src",
];

fn main() {
    let mut marks = BTreeSet::new();
    let mut planted = BTreeSet::new();
    for directory in SOURCES {
        println!("cargo::rerun-if-changed={directory}");
        let each = &mut |text: &str| {
            marks.extend(scan::marks(text));
            planted.extend(scan::planted(text));
        };
        read(Path::new(directory), each).unwrap_or_else(|error| panic!("{directory}: {error}"));
    }
    let mut text = String::from("/// All marks, sorted.\npub(crate) const MARKS: &[&str] = &[\n");
    for mark in &marks {
        let _ = writeln!(text, "    \"{mark}\",");
    }
    text.push_str("];\n\n/// The planted bugs that have a site, ascending.\n");
    let planted: Vec<u32> = planted.into_iter().collect();
    let _ = writeln!(text, "pub(crate) const PLANTED: &[u32] = &{planted:?};");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("marks.rs"), text).expect("a directory of our own");
}

/// Shows every Rust file below `directory` to `each`, but the scanner with its examples.
fn read(directory: &Path, each: &mut impl FnMut(&str)) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, each)?;
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path.file_name().is_some_and(|name| name != "scan.rs")
        {
            each(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}
