//! The key that messages are encrypted with: where it comes from, and that it is the one the data
//! directory was written with.

use std::{fs, io};

use base64ct::{Base64, Encoding};
use server::EncryptionKey;

use crate::{data::Data, exit::Failure};

/// Tells which key the directory needs, and nothing else about it.
pub(crate) const FILE: &str = "encryption.fingerprint";

/// Reads a key as the configuration holds it: 32 bytes in base64. An error does not repeat it.
///
/// # Errors
/// If it is not that.
pub(crate) fn parse(text: &str) -> Result<EncryptionKey, String> {
    let mut key = [0; 32];
    // One byte too many would not fit, one too few leaves another length.
    let size = Base64::decode(text.trim(), &mut key).map(<[u8]>::len);
    if size == Ok(key.len()) {
        return Ok(EncryptionKey::new(key));
    }
    Err("is no key of 32 bytes in base64".into())
}

/// Compares the key with the one that this directory was first used with, or remembers it.
///
/// # Errors
/// If it is another one, or missing, or the directory cannot be used.
pub(crate) fn check(data: &Data, key: Option<&EncryptionKey>) -> Result<(), Failure> {
    let path = data.path().join(FILE);
    let cannot = |error: io::Error| Failure::Data(format!("{}: {error}", path.display()));
    let known = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot(error)),
    };
    let given = key.map(|key| format!("{:032x}\n", u128::from_be_bytes(key.fingerprint())));
    let place = data.path().display();
    match (known, given) {
        (None, None) => Ok(()),
        (None, Some(given)) => data.replace(FILE, &given).map_err(cannot),
        (Some(known), Some(given)) if known.trim() == given.trim() => Ok(()),
        (Some(_), Some(_)) => Err(Failure::Config(vec![format!(
            "encryption.key is not the key that the messages in {place} were encrypted with"
        )])),
        (Some(_), None) => Err(Failure::Config(vec![format!(
            "the messages in {place} are encrypted: set encryption.enabled and encryption.key"
        )])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::Directory;

    #[test]
    fn a_key_is_32_bytes_in_base64_and_an_error_does_not_repeat_it() {
        let text = Base64::encode_string(&[7; 32]);
        assert_eq!(parse(&text), Ok(EncryptionKey::new([7; 32])));
        assert_eq!(
            parse(&format!(" {text}\n")),
            Ok(EncryptionKey::new([7; 32]))
        );
        let short = Base64::encode_string(&[7; 31]);
        let long = Base64::encode_string(&[7; 33]);
        for text in ["", "secret", &short, &long, &text[1..]] {
            let problem = parse(text).unwrap_err();
            assert!(text.is_empty() || !problem.contains(text), "{problem}");
        }
    }

    #[test]
    fn a_directory_wants_the_key_it_was_first_used_with() {
        let directory = Directory::new();
        let data = Data::open(&directory.0).unwrap();
        let (key, other) = (EncryptionKey::new([1; 32]), EncryptionKey::new([2; 32]));
        assert!(check(&data, None).is_ok());
        assert!(check(&data, Some(&key)).is_ok());
        assert!(check(&data, Some(&key)).is_ok());
        assert_eq!(check(&data, Some(&other)).unwrap_err().code(), 3);
        assert_eq!(check(&data, None).unwrap_err().code(), 3);
        assert!(check(&data, Some(&key)).is_ok());
    }
}
