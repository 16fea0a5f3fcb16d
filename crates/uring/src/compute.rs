//! Computations too long for a turn, on two threads of the process: password hashes, tokens,
//! and a look at the process.
//!
//! One thread for passwords: an Argon2id verification takes 19 MiB and some 20 ms, so a flood of
//! logins costs neither memory nor the cores that shards run on. One for whoever looks at the
//! process from outside: an archive may take seconds, and logins must not wait for it.

use std::{
    fs::File,
    io::{self, Read},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
};

use argon2::{
    Argon2,
    password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString},
};
use base::ShardIndex;
use platform::{Facts, Outcome, SecretText, Token, Work};
use wire::{ArchiveCompression, ArchiveContent};

use crate::mail::Hub;

/// Work, and who gets the outcome.
pub(crate) struct Job {
    pub(crate) shard: ShardIndex,
    pub(crate) token: Token,
    pub(crate) work: Work,
}

/// Looks at the process and its machine, for people. Runs on a thread of its own and may block.
pub trait Inspector: Send + 'static {
    /// What the process uses, and what machine it is on.
    fn measure(&mut self) -> Facts;
    /// A ZIP archive with `contents`; none if it cannot be made.
    fn archive(
        &mut self,
        compression: ArchiveCompression,
        contents: &[ArchiveContent],
    ) -> Option<Vec<u8>>;
}

/// Sees nothing; for bodies without a process worth looking at.
impl Inspector for () {
    fn measure(&mut self) -> Facts {
        Facts::default()
    }

    fn archive(&mut self, _: ArchiveCompression, _: &[ArchiveContent]) -> Option<Vec<u8>> {
        None
    }
}

/// Starts the threads; they end when the last sender is gone.
pub(crate) fn start(hub: Arc<Hub>, mut inspector: impl Inspector) -> io::Result<Sender<Job>> {
    let (sender, jobs) = channel::<Job>();
    let (inspect, inspections) = channel::<Job>();
    let outcomes = hub.clone();
    thread::Builder::new()
        .name("inspect".into())
        .spawn(move || {
            for Job { shard, token, work } in inspections {
                let outcome = match work {
                    Work::Archive {
                        compression,
                        contents,
                    } => Outcome::Archived(inspector.archive(compression, &contents)),
                    _ => Outcome::Measured(Box::new(inspector.measure())),
                };
                outcomes.computed(shard, token, outcome);
            }
        })?;
    thread::Builder::new()
        .name("compute".into())
        .spawn(move || {
            for Job { shard, token, work } in jobs {
                match work {
                    work @ (Work::Measure | Work::Archive { .. }) => {
                        let job = Job { shard, token, work };
                        if inspect.send(job).is_err() {
                            return;
                        }
                    }
                    work => hub.computed(shard, token, compute(work)),
                }
            }
        })?;
    Ok(sender)
}

fn compute(work: Work) -> Outcome {
    match work {
        Work::VerifyPassword { password, hash } => {
            Outcome::PasswordVerified(verify_password(&password.0, &hash.0))
        }
        Work::HashPassword(password) => {
            Outcome::PasswordHashed(hash_password(&password.0).ok().map(SecretText))
        }
        Work::MintToken => Outcome::TokenMinted(mint_token().ok()),
        Work::DigestToken(token) => Outcome::TokenDigested(digest_token(&token.0)),
        Work::Measure | Work::Archive { .. } => unreachable!("for the other thread"),
    }
}

/// Bytes of randomness in a token.
const TOKEN_BYTES: usize = 32;

/// A token of 64 hexadecimal digits, and its digest.
fn mint_token() -> io::Result<(SecretText, [u8; 32])> {
    let mut bytes = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = digest_token(&token);
    Ok((SecretText(token), digest))
}

/// The digest of a token. A token has as much randomness as the digest has bits: there is nothing
/// for a slow hash to protect.
fn digest_token(token: &str) -> [u8; 32] {
    blake3::hash(token.as_bytes()).into()
}

/// Whether `password` matches an Argon2id hash; false if `hash` is no PHC string.
#[must_use]
pub fn verify_password(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| {
        Argon2::default()
            .verify_password(password.as_bytes(), &hash)
            .is_ok()
    })
}

/// The Argon2id hash of `password` with a fresh salt, as a PHC string.
///
/// # Errors
/// If the operating system gives no randomness.
pub fn hash_password(password: &str) -> io::Result<String> {
    let mut salt = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut salt)?;
    let salt = SaltString::encode_b64(&salt).expect("16 bytes are a recommended salt");
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    Ok(hash.expect("default parameters are valid").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_matches_its_own_hash_only() {
        let hash = hash_password("secret").unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert_ne!(hash, hash_password("secret").unwrap(), "salted");
        assert!(verify_password("secret", &hash));
        assert!(!verify_password("Secret", &hash));
        assert!(!verify_password("secret", "no hash"));
    }

    #[test]
    fn tokens_are_printable_and_never_the_same() {
        let (token, digest) = mint_token().unwrap();
        assert_eq!(token.0.len(), 64);
        assert!(token.0.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(digest_token(&token.0), digest);
        assert_ne!(mint_token().unwrap().1, digest);
    }

    #[test]
    fn the_work_does_not_show() {
        let hashed = compute(Work::HashPassword(SecretText("hunter2".into())));
        let minted = compute(Work::MintToken);
        let Outcome::TokenMinted(Some((token, _))) = &minted else {
            panic!("there is randomness")
        };
        assert!(!format!("{minted:?}").contains(&token.0));
        assert!(!format!("{hashed:?}").contains("argon2id"));
        let Outcome::PasswordHashed(Some(hash)) = hashed else {
            panic!("there is salt")
        };
        assert!(hash.0.len() <= 255, "it stands where a password would");
        assert!(verify_password("hunter2", &hash.0));
    }
}
