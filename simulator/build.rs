//! Lists the marks and the planted bugs of all crates that a world runs, so that one that is
//! never reached is missed by name.

#[path = "src/marks/scan.rs"]
mod scan;

use std::{
    collections::BTreeSet,
    env,
    fmt::{Display, Write},
    fs, io,
    path::Path,
};

use wire::{Code, ErrorCode};

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
    let mut codes = BTreeSet::new();
    let mut checkers = BTreeSet::new();
    let mut planted = BTreeSet::new();
    for directory in SOURCES {
        println!("cargo::rerun-if-changed={directory}");
        let is_product = directory.starts_with("..");
        let each = &mut |text: &str| {
            marks.extend(scan::marks(text));
            planted.extend(scan::planted(text));
            if is_product {
                codes.extend(scan::codes(text));
            } else {
                checkers.extend(scan::checkers(text));
            }
        };
        read(Path::new(directory), each).unwrap_or_else(|error| panic!("{directory}: {error}"));
    }
    let (commands, codes) = (commands(), named(&codes));
    let checkers: Vec<_> = checkers.iter().map(|name| judged(name)).collect();
    marks.extend(checkers.iter().map(|(_, mark)| mark.clone()));
    let tables = commands.iter().chain(&codes);
    marks.extend(tables.map(|(_, mark)| mark.clone()));
    let mut text = String::from("/// All marks, sorted.\npub(crate) const MARKS: &[&str] = &[\n");
    for mark in &marks {
        let _ = writeln!(text, "    \"{mark}\",");
    }
    text.push_str("];\n\n/// The planted bugs that have a site, ascending.\n");
    let planted: Vec<u32> = planted.into_iter().collect();
    let _ = writeln!(text, "pub(crate) const PLANTED: &[u32] = &{planted:?};");
    text.push_str(&sites("COMMANDS", "command", &commands));
    text.push_str(&sites("CODES", "error code that the product names", &codes));
    text.push_str(&sites("CHECKERS", "checker", &checkers));
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("marks.rs"), text).expect("a directory of our own");
}

/// The commands of the protocol.
fn commands() -> Vec<(u32, String)> {
    let all = Code::ALL.iter();
    all.map(|code| (code.number(), format!("command: {}", code.name())))
        .collect()
}

/// The error codes whose constants have these names.
fn named(constants: &BTreeSet<String>) -> Vec<(u32, String)> {
    let all = ErrorCode::ALL.iter();
    let all = all.filter_map(|code| Some((code.0, code.name()?)));
    all.filter(|(_, name)| constants.contains(&name.to_uppercase()))
        .map(|(number, name)| (number, format!("code: {number} {name}")))
        .collect()
}

/// The mark of a checker that has judged anything at all, by its name.
fn judged(name: &str) -> (String, String) {
    (format!("{name:?}"), format!("checker: {name} has judged"))
}

/// A table of marks by what they are known by.
fn sites<K: Display>(name: &str, what: &str, marks: &[(K, String)]) -> String {
    let count = marks.len();
    let key = if name == "CHECKERS" { "&str" } else { "u32" };
    let mut text = format!("\n/// A mark for each {what}, by what it is known by.\n");
    let _ = writeln!(
        text,
        "static {name}: [({key}, base::marks::Site); {count}] = ["
    );
    for (number, mark) in marks {
        let _ = writeln!(text, "    ({number}, base::marks::Site::new(\"{mark}\")),");
    }
    text.push_str("];\n");
    text
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
