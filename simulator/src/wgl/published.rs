//! Histories with published verdicts: the search is trusted as far as it agrees with them.
//!
//! `etcd_*.log` are compare-and-set registers recorded with Jepsen, `kv_*.txt` maps of strings;
//! `verdicts.json` says which are linearizable. Nothing of them is kept in this project.
//!
//! Source: the test data of porcupine (Athalye), the etcd ones from Horn's linearizability
//! checker.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    rc::Rc,
};

use serde_json::Value;

use super::{Model, Operation, Verdict, search, search_each};

/// Far more than any of them needs.
const CONFIGURATIONS_MAX: usize = 20_000_000;

/// A history, how it was judged, and how it is published.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) file: String,
    pub(crate) found: Verdict,
    pub(crate) published: bool,
}

impl Judged {
    /// Whether both agree.
    pub(crate) fn agrees(&self) -> bool {
        if self.published {
            self.found == Verdict::Linearizable
        } else {
            matches!(self.found, Verdict::Violation { .. })
        }
    }
}

/// Judges every history that `verdicts.json` of `directory` names.
pub(crate) fn judge_all(directory: &Path) -> io::Result<Vec<Judged>> {
    let path = directory.join("verdicts.json");
    let verdicts: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let Some(verdicts) = verdicts.as_object() else {
        return Err(invalid(&path, "no object"));
    };
    verdicts
        .iter()
        .map(|(file, published)| {
            let path = directory.join(file);
            let published = published
                .as_bool()
                .ok_or_else(|| invalid(&path, "published without a verdict"))?;
            let text = fs::read_to_string(&path)?;
            let found = if file.starts_with("etcd") {
                judge_register(&text)
            } else {
                judge_map(&text)
            };
            let found = found.ok_or_else(|| invalid(&path, "a line that is no event"))?;
            Ok(Judged {
                file: file.clone(),
                found,
                published,
            })
        })
        .collect()
}

fn invalid(path: &Path, what: &str) -> io::Error {
    let path: PathBuf = path.into();
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{}: {what}", path.display()),
    )
}

/// A register that is absent at first.
struct Register;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RegisterCall {
    Read(Option<i64>),
    Write(i64),
    /// It has changed the register.
    Set {
        from: i64,
        to: i64,
    },
    /// It has found another value.
    NotSet {
        from: i64,
    },
}

impl Model for Register {
    type State = Option<i64>;
    type Call = RegisterCall;

    fn initial(&self) -> Option<i64> {
        None
    }

    fn step(&self, state: &Option<i64>, call: &RegisterCall) -> Option<Option<i64>> {
        match *call {
            RegisterCall::Read(value) => (*state == value).then_some(value),
            RegisterCall::Write(value) => Some(Some(value)),
            RegisterCall::Set { from, to } => (*state == Some(from)).then_some(Some(to)),
            RegisterCall::NotSet { from } => (*state != Some(from)).then_some(*state),
        }
    }

    fn is_read(&self, call: &RegisterCall) -> bool {
        matches!(call, RegisterCall::Read(_) | RegisterCall::NotSet { .. })
    }
}

/// Judges a log of Jepsen's; none if it cannot be read.
fn judge_register(log: &str) -> Option<Verdict> {
    let mut calls: Vec<Operation<RegisterCall>> = Vec::new();
    // By process; a process that has timed out is never heard of again.
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for (time, line) in (0..).zip(log.lines()) {
        let mut fields = line.strip_prefix("INFO  jepsen.util - ")?.split('\t');
        let (process, kind, function, value) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        if kind == ":invoke" {
            open.insert(process, calls.len());
            calls.push(Operation {
                call: invoked(function, value)?,
                start: time,
                end: None,
            });
            continue;
        }
        let call = &mut calls[open.remove(process)?];
        if kind == ":info" {
            continue;
        }
        call.end = Some(time);
        match (&mut call.call, kind) {
            (RegisterCall::Read(read), ":ok") => *read = number(value)?,
            (&mut RegisterCall::Set { from, .. }, ":fail") => {
                call.call = RegisterCall::NotSet { from };
            }
            (_, ":ok") => {}
            _ => return None,
        }
    }
    calls.retain(|call| call.end.is_some() || !matches!(call.call, RegisterCall::Read(_)));
    Some(search(&Register, &calls, CONFIGURATIONS_MAX))
}

fn invoked(function: &str, value: &str) -> Option<RegisterCall> {
    Some(match function {
        ":read" => RegisterCall::Read(None),
        ":write" => RegisterCall::Write(number(value)??),
        ":cas" => {
            let (from, to) = value
                .strip_prefix('[')?
                .strip_suffix(']')?
                .split_once(' ')?;
            RegisterCall::Set {
                from: from.parse().ok()?,
                to: to.parse().ok()?,
            }
        }
        _ => return None,
    })
}

/// A number or nil; none if it is neither.
fn number(text: &str) -> Option<Option<i64>> {
    match text {
        "nil" => Some(None),
        _ => text.parse().ok().map(Some),
    }
}

/// A text that is empty at first: one key of a map.
struct Text;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TextCall {
    Get(Rc<str>),
    Put(Rc<str>),
    Append(Rc<str>),
}

impl Model for Text {
    type State = Rc<str>;
    type Call = TextCall;

    fn initial(&self) -> Rc<str> {
        "".into()
    }

    fn step(&self, state: &Rc<str>, call: &TextCall) -> Option<Rc<str>> {
        match call {
            TextCall::Get(text) => (state == text).then(|| state.clone()),
            TextCall::Put(text) => Some(text.clone()),
            TextCall::Append(text) => Some([&**state, text].concat().into()),
        }
    }

    fn is_read(&self, call: &TextCall) -> bool {
        matches!(call, TextCall::Get(_))
    }
}

/// Judges a history of a map, key by key; none if it cannot be read.
fn judge_map(log: &str) -> Option<Verdict> {
    let mut keys: BTreeMap<&str, Vec<Operation<TextCall>>> = BTreeMap::new();
    let mut open: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for (time, line) in (0..).zip(log.lines()) {
        let process = field(line, ":process ")?;
        let (kind, function) = (field(line, ":type ")?, field(line, ":f ")?);
        let (key, value) = (field(line, ":key ")?, field(line, ":value ")?);
        if kind == ":invoke" {
            let value = value.into();
            let call = match function {
                ":get" => TextCall::Get(value),
                ":put" => TextCall::Put(value),
                ":append" => TextCall::Append(value),
                _ => return None,
            };
            let calls = keys.entry(key).or_default();
            open.insert(process, (key, calls.len()));
            calls.push(Operation {
                call,
                start: time,
                end: None,
            });
            continue;
        }
        let (key, index) = open.remove(process)?;
        let call = &mut keys.get_mut(key)?[index];
        call.end = Some(time);
        if let TextCall::Get(text) = &mut call.call {
            *text = value.into();
        }
    }
    for calls in keys.values_mut() {
        calls.retain(|call| call.end.is_some() || !matches!(call.call, TextCall::Get(_)));
    }
    let keys: Vec<_> = keys.into_values().collect();
    Some(search_each(&Text, &keys, CONFIGURATIONS_MAX))
}

/// What follows `name` in a map of Clojure's: a text without its quotes, or a word.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = &line[line.find(name)? + name.len()..];
    match rest.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => rest.split([',', '}']).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEARIZABLE: &str = "\
INFO  jepsen.util - 0\t:invoke\t:read\tnil
INFO  jepsen.util - 1\t:invoke\t:write\t4
INFO  jepsen.util - 0\t:ok\t:read\tnil
INFO  jepsen.util - 2\t:invoke\t:cas\t[4 2]
INFO  jepsen.util - 3\t:invoke\t:cas\t[9 1]
INFO  jepsen.util - 1\t:info\t:write\t:timed-out
INFO  jepsen.util - 2\t:ok\t:cas\t[4 2]
INFO  jepsen.util - 3\t:fail\t:cas\t[9 1]
";

    #[test]
    fn logs_of_a_register_are_read() {
        assert_eq!(judge_register(LINEARIZABLE), Some(Verdict::Linearizable));
        // Nobody has written 9, and only one can have taken 4 away.
        let wrong = LINEARIZABLE.replace("3\t:fail\t:cas\t[9 1]", "3\t:ok\t:cas\t[9 1]");
        let verdict = judge_register(&wrong);
        assert!(matches!(verdict, Some(Verdict::Violation { .. })));
        let wrong = LINEARIZABLE.replace("[9 1]", "[4 1]");
        assert_eq!(judge_register(&wrong), Some(Verdict::Linearizable));
        let both = wrong.replace("3\t:fail", "3\t:ok");
        assert!(matches!(
            judge_register(&both),
            Some(Verdict::Violation { .. })
        ));
        assert_eq!(judge_register("nonsense"), None);
    }

    #[test]
    fn maps_are_judged_key_by_key() {
        let line = |process: u32, kind: &str, function: &str, key: &str, value: &str| {
            format!(
                "{{:process {process}, :type :{kind}, :f :{function}, :key \"{key}\", \
                 :value {value}}}\n"
            )
        };
        let writes = [
            line(0, "invoke", "append", "1", "\"x 0, y\""),
            line(1, "invoke", "append", "1", "\"x 1, y\""),
            line(0, "ok", "append", "1", "\"x 0, y\""),
            line(1, "ok", "append", "1", "\"x 1, y\""),
            line(0, "invoke", "get", "2", "nil"),
            line(0, "ok", "get", "2", "\"\""),
            line(0, "invoke", "get", "1", "nil"),
        ]
        .concat();
        for (value, linearizable) in [
            ("\"x 0, yx 1, y\"", true),
            ("\"x 1, yx 0, y\"", true),
            ("\"x 1, y\"", false),
        ] {
            let log = writes.clone() + &line(0, "ok", "get", "1", value);
            let verdict = judge_map(&log).expect("well-formed");
            assert_eq!(verdict == Verdict::Linearizable, linearizable, "{value}");
        }
    }
}
