//! The project's text files, read once.
//!
//! Build output, corpora and data directories are not part of the project and are skipped by
//! name; so are files that are not UTF-8.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Directories that hold no source.
const SKIPPED: [&str; 6] = [
    "target",
    ".git",
    "corpus",
    "artifacts",
    "local_data",
    "node_modules",
];

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the root, with `/` between names.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl File {
    /// The crate's directory for a path inside `crates/<name>/`, `simulator/` or `fuzz/`.
    #[must_use]
    pub fn crate_name(&self) -> Option<&str> {
        let mut names = self.path.split('/');
        match names.next()? {
            "crates" => names.next(),
            top @ ("simulator" | "fuzz") => Some(top),
            _ => None,
        }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Every text file of the project, sorted by path.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Sorted by path.
    pub files: Vec<File>,
    /// Directories and files that are not text, so that links to them resolve.
    pub others: Vec<String>,
}

impl Tree {
    /// Reads everything below `root`.
    ///
    /// # Errors
    /// A directory or file that cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_directory(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        tree.others.sort();
        Ok(tree)
    }

    fn read_directory(&mut self, root: &Path, directory: &str) -> io::Result<()> {
        for entry in fs::read_dir(root.join(directory))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = if directory.is_empty() {
                name.clone()
            } else {
                format!("{directory}/{name}")
            };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    self.read_directory(root, &path)?;
                    self.others.push(path);
                }
            } else if kind.is_file() {
                match String::from_utf8(fs::read(entry.path())?) {
                    Ok(text) => self.files.push(File { path, text }),
                    Err(_) => self.others.push(path),
                }
            }
        }
        Ok(())
    }

    /// Whether a file or directory of this path is part of the project.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
            || self.others.iter().any(|other| other == path)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| File {
                path: (*path).into(),
                text: (*text).into(),
            })
            .collect();
        Self {
            files,
            others: Vec::new(),
        }
    }
}

/// The project's root, two levels above this crate's manifest.
#[must_use]
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("crates/xtask is two levels below the root")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_of_a_file_is_its_directory() {
        let of = |path: &str| {
            let file = File {
                path: path.into(),
                text: String::new(),
            };
            file.crate_name().map(str::to_owned)
        };
        assert_eq!(of("crates/wire/src/lib.rs").as_deref(), Some("wire"));
        assert_eq!(of("simulator/src/main.rs").as_deref(), Some("simulator"));
        assert_eq!(of("docs/durability.md"), None);
    }

    #[test]
    fn the_root_holds_this_crate_and_no_build_output() {
        let tree = Tree::read(&root()).expect("the project is readable");
        assert!(tree.contains("crates/xtask/src/tree.rs"));
        assert!(tree.contains("crates/xtask"));
        assert!(
            tree.files
                .iter()
                .all(|file| !file.path.starts_with("target/"))
        );
    }
}
