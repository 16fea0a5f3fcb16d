//! Settings as given: the file, then the environment, flattened to one value per name; and the
//! judgement of each name.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use super::catalog::{self, Meaning};

/// Where a value was given, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A key of the configuration file.
    File { path: PathBuf, key: String },
    /// An environment variable.
    Environment { name: String },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, key } => write!(f, "{key} in {}", path.display()),
            Self::Environment { name } => f.write_str(name),
        }
    }
}

/// A value and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// All values that were given, by canonical name, with what is to be said about them.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    values: BTreeMap<String, (Setting, Meaning)>,
    /// Accepted without effect.
    pub(crate) warnings: Vec<String>,
    /// Reasons not to start.
    pub(crate) problems: Vec<String>,
}

impl Settings {
    /// The value of a canonical name.
    pub(crate) fn get(&self, name: &str) -> Option<&Setting> {
        self.values.get(name).map(|(setting, _)| setting)
    }

    /// Adds what a configuration file says.
    pub(crate) fn add_file(&mut self, path: &Path, text: &str) {
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                self.problems
                    .push(format!("{} is no TOML: {error}", path.display()));
                return;
            }
        };
        let mut flat = vec![];
        flatten("", &toml::Value::Table(table), &mut flat);
        for (key, value) in flat {
            let source = Source::File {
                path: path.to_path_buf(),
                key: key.clone(),
            };
            match catalog::by_path(&key) {
                Some((name, meaning)) => self.add(name, meaning, Setting { value, source }),
                None => self.unknown(&source, catalog::nearest(&key, str::to_owned)),
            }
        }
    }

    /// Adds what the environment says; it wins over the file.
    pub(crate) fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut variables: Vec<_> = variables
            .filter(|(name, _)| name.starts_with("IGGY_") && !catalog::is_other(name))
            .collect();
        variables.sort();
        for (variable, value) in variables {
            let source = Source::Environment {
                name: variable.clone(),
            };
            match catalog::by_environment(&variable) {
                Some((name, meaning)) => self.add(name, meaning, Setting { value, source }),
                None => {
                    self.unknown(
                        &source,
                        catalog::nearest(&variable, catalog::environment_name),
                    );
                }
            }
        }
    }

    fn unknown(&mut self, source: &Source, nearest: Option<String>) {
        let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"));
        self.problems
            .push(format!("unknown setting {source}{hint}"));
    }

    fn add(&mut self, name: String, meaning: Meaning, setting: Setting) {
        let same_kind =
            |a: &Source, b: &Source| std::mem::discriminant(a) == std::mem::discriminant(b);
        if let Some((other, _)) = self.values.get(&name)
            && other.value != setting.value
            && same_kind(&other.source, &setting.source)
        {
            let both = format!(
                "{} and {} contradict each other",
                other.source, setting.source
            );
            self.problems.push(both);
        }
        self.values.insert(name, (setting, meaning));
    }

    /// Judges what holds after all sources were added: what has no effect is a warning, what asks
    /// for more than we can do is a problem.
    pub(crate) fn judge(&mut self) {
        for (setting, meaning) in self.values.values() {
            let source = &setting.source;
            let cannot = format!("{source} asks for something that this server cannot do yet");
            match meaning {
                Meaning::Used => {}
                Meaning::Tunes => {
                    self.warnings
                        .push(format!("{source} is accepted and has no effect here"));
                }
                Meaning::Asks(fine)
                    if fine.contains(&setting.value.trim().to_ascii_lowercase().as_str()) =>
                {
                    self.warnings
                        .push(format!("{source} is accepted: it holds anyway"));
                }
                Meaning::Asks(fine) => {
                    self.problems
                        .push(format!("{cannot}: leave it out or set it to {}", fine[0]));
                }
                Meaning::Refused => self.problems.push(format!("{cannot}: leave it out")),
            }
        }
    }

    /// The parsed value of a setting; a value that does not parse is a problem.
    pub(crate) fn parse<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (setting, _) = self.values.get(name)?;
        match parse(&setting.value) {
            Ok(value) => Some(value),
            Err(what) => {
                self.problems.push(format!("{} {what}", setting.source));
                None
            }
        }
    }

    /// One more than the largest index that an array has a value for.
    pub(crate) fn count(&self, array: &str) -> usize {
        let prefix = format!("{array}.");
        let index = |name: &String| -> Option<usize> {
            name.strip_prefix(&prefix)?.split('.').next()?.parse().ok()
        };
        self.values
            .keys()
            .filter_map(index)
            .max()
            .map_or(0, |index| index + 1)
    }
}

/// One line per value: tables and arrays of tables by path, arrays of values in one.
fn flatten(path: &str, value: &toml::Value, flat: &mut Vec<(String, String)>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                flatten(&below(name), value, flat);
            }
        }
        toml::Value::Array(values) if values.iter().any(toml::Value::is_table) => {
            for (index, value) in values.iter().enumerate() {
                flatten(&below(&index.to_string()), value, flat);
            }
        }
        toml::Value::String(text) => flat.push((path.to_owned(), text.clone())),
        other => flat.push((path.to_owned(), other.to_string())),
    }
}
