//! The root user's credential: made at the first start, kept as a hash, never changed by later
//! starts.

use std::{fs, io};

use server::RootCredential;
use uring::{hash_password, verify_password};

use crate::{
    data::{self, Data},
    exit::Failure,
};

/// Where it is kept.
const FILE: &str = "root.credential";
/// The user's name if nobody names one.
const USERNAME: &str = "iggy";
const USERNAME_LENGTH: std::ops::RangeInclusive<usize> = 3..=50;
const PASSWORD_LENGTH: std::ops::RangeInclusive<usize> = 3..=100;
/// Characters of a made-up password, of 62 each: 142 bits.
const RANDOM_LENGTH: usize = 24;

/// Name and password as the operator gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) username: String,
    pub(crate) password: String,
}

/// What the environment and flags give; the environment wins.
///
/// # Errors
/// If only half of the pair is given, or its length is out of bounds; told at every start.
pub(crate) fn given(
    username: Option<String>,
    password: Option<String>,
    defaults: bool,
) -> Result<Option<Given>, String> {
    let given = match (username, password) {
        (Some(username), Some(password)) => Given { username, password },
        (None, None) if defaults => Given {
            username: USERNAME.into(),
            password: "iggy".into(),
        },
        (None, None) => return Ok(None),
        _ => {
            return Err(
                "IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD are given together or not at \
                        all"
                .into(),
            );
        }
    };
    let within = |name: &str, text: &str, bounds: std::ops::RangeInclusive<usize>| {
        if bounds.contains(&text.len()) {
            return Ok(());
        }
        Err(format!(
            "{name} is not within {} and {} bytes",
            bounds.start(),
            bounds.end()
        ))
    };
    within("IGGY_ROOT_USERNAME", &given.username, USERNAME_LENGTH)?;
    within("IGGY_ROOT_PASSWORD", &given.password, PASSWORD_LENGTH)?;
    Ok(Some(given))
}

/// The credential, and a warning for the operator.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) credential: RootCredential,
    pub(crate) warning: Option<String>,
}

/// The credential of this data directory, made if there is none.
///
/// # Errors
/// If the file cannot be read or written, or a cluster's first start has no explicit credential.
pub(crate) fn load_or_make(
    data: &Data,
    given: Option<Given>,
    clustered: bool,
) -> Result<Root, Failure> {
    let path = data.path().join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let credential = parse(&text).ok_or_else(|| {
                Failure::Data(format!(
                    "{} is damaged: restore or remove it",
                    path.display()
                ))
            })?;
            let same = given.as_ref().is_none_or(|given| {
                given.username == credential.username
                    && verify_password(&given.password, &credential.hash)
            });
            let warning = (!same).then(|| {
                format!(
                    "the root credential given is ignored: {} was made with another one at the \
                     first start",
                    data.path().display()
                )
            });
            Ok(Root {
                credential,
                warning,
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if clustered && given.is_none() {
                let problem = "the first start of a cluster's node needs IGGY_ROOT_USERNAME and \
                               IGGY_ROOT_PASSWORD, the same on all nodes";
                return Err(Failure::Config(vec![problem.into()]));
            }
            make(data, given).map_err(|error| Failure::Data(format!("{}: {error}", path.display())))
        }
        Err(error) => Err(Failure::Data(format!("{}: {error}", path.display()))),
    }
}

fn make(data: &Data, given: Option<Given>) -> io::Result<Root> {
    let made_up = given.is_none();
    let Given { username, password } = match given {
        Some(given) => given,
        None => Given {
            username: USERNAME.into(),
            password: random_password()?,
        },
    };
    let hash = hash_password(&password)?;
    let credential = RootCredential { username, hash };
    data.replace(FILE, &render(&credential))?;
    let warning = made_up.then(|| {
        format!(
            "the root user {USERNAME} was made with the password {password}; it is not shown again"
        )
    });
    Ok(Root {
        credential,
        warning,
    })
}

fn random_password() -> io::Result<String> {
    const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut password = String::new();
    while password.len() < RANDOM_LENGTH {
        for byte in data::random::<64>()? {
            // 248 is 4 × 62: a remainder of all 256 values would prefer the first letters.
            if byte < 248 && password.len() < RANDOM_LENGTH {
                password.push(char::from(LETTERS[usize::from(byte) % LETTERS.len()]));
            }
        }
    }
    Ok(password)
}

fn render(credential: &RootCredential) -> String {
    let mut table = toml::Table::new();
    table.insert("username".into(), credential.username.clone().into());
    table.insert("hash".into(), credential.hash.clone().into());
    table.to_string()
}

fn parse(text: &str) -> Option<RootCredential> {
    let table: toml::Table = text.parse().ok()?;
    let field = |name| Some(table.get(name)?.as_str()?.to_owned());
    let credential = RootCredential {
        username: field("username")?,
        hash: field("hash")?,
    };
    credential
        .hash
        .starts_with("$argon2id$")
        .then_some(credential)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::Directory;

    fn pair(username: &str, password: &str) -> Option<Given> {
        given(Some(username.into()), Some(password.into()), false).unwrap()
    }

    #[test]
    fn half_a_pair_and_bad_lengths_are_refused() {
        assert!(given(Some("iggy".into()), None, true).is_err());
        assert!(given(None, Some("secret".into()), false).is_err());
        for (username, password) in [("ab", "secret"), ("iggy", "ab"), ("iggy", &"x".repeat(101))] {
            assert!(given(Some(username.into()), Some(password.into()), false).is_err());
        }
        assert_eq!(given(None, None, false), Ok(None));
        assert_eq!(given(None, None, true).unwrap(), pair("iggy", "iggy"));
        let both = given(Some("root".into()), Some("secret".into()), true).unwrap();
        assert_eq!(
            both,
            pair("root", "secret"),
            "the environment wins over the flag"
        );
    }

    #[test]
    fn the_first_start_decides_and_later_ones_only_warn() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        let made = load_or_make(&data, pair("admin", "first"), true).unwrap();
        assert!(made.warning.is_none());
        let text = fs::read_to_string(directory.0.join(FILE)).unwrap();
        assert!(text.contains("$argon2id$") && !text.contains("first"));
        for (given, warns) in [
            (None, false),
            (pair("admin", "first"), false),
            (pair("admin", "other"), true),
            (pair("other", "first"), true),
        ] {
            let later = load_or_make(&data, given, true).unwrap();
            assert_eq!(later.credential.username, "admin");
            assert_eq!(later.credential.hash, made.credential.hash);
            assert_eq!(later.warning.is_some(), warns);
        }
    }

    #[test]
    fn a_made_up_password_is_told_once_and_works() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        let made = load_or_make(&data, None, false).unwrap();
        let warning = made.warning.unwrap();
        let words = warning.split([' ', ';']);
        let password = words
            .into_iter()
            .find(|word| word.len() == RANDOM_LENGTH)
            .unwrap();
        assert!(verify_password(password, &made.credential.hash));
        assert!(load_or_make(&data, None, false).unwrap().warning.is_none());
    }

    #[test]
    fn a_cluster_makes_no_password_up() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        assert_eq!(load_or_make(&data, None, true).unwrap_err().code(), 3);
        assert!(!directory.0.join(FILE).exists());
    }

    #[test]
    fn a_damaged_file_is_not_replaced() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        for text in ["", "username = 3", "username = \"iggy\"\nhash = \"plain\""] {
            data.replace(FILE, text).unwrap();
            assert_eq!(
                load_or_make(&data, None, false).unwrap_err().code(),
                5,
                "{text}"
            );
        }
    }
}
