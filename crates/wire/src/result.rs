//! The result section at the start of the bodies of result-framed replies (`wire.md` 2.2):
//! `count:u32`, then for a rejection `index:u32, code:u32`, else the payload.

use alloc::vec::Vec;

use crate::{DecodeError, ErrorCode, Reader, Sink};

/// The section before the payload of a success.
pub const RESULT_SUCCESS: [u8; 4] = [0; 4];

/// The body of a committed rejection, or of a transient one.
#[must_use]
pub fn rejection(code: ErrorCode) -> [u8; 12] {
    assert!(code != ErrorCode::OK);
    let mut body = [0; 12];
    body[0] = 1;
    body[8..].copy_from_slice(&code.0.to_le_bytes());
    body
}

/// Writes the body of a result-framed reply.
pub fn write_result(result: Result<&[u8], ErrorCode>, out: &mut impl Sink) {
    match result {
        Ok(payload) => {
            out.put(&RESULT_SUCCESS);
            out.put(payload);
        }
        Err(code) => out.put(&rejection(code)),
    }
}

/// The body of a result-framed reply.
#[must_use]
pub fn encode_result(result: Result<&[u8], ErrorCode>) -> Vec<u8> {
    let mut body = Vec::new();
    write_result(result, &mut body);
    body
}

/// Takes the result section off a body: the payload, or the code of the rejection.
///
/// # Errors
/// [`DecodeError`] if the section is malformed.
pub fn decode_result(body: &[u8]) -> Result<Result<&[u8], ErrorCode>, DecodeError> {
    let mut reader = Reader::new(body);
    let count: u32 = reader.read()?;
    if count == 0 {
        return Ok(Ok(reader.take_rest()));
    }
    if (reader.left() as u64) < 8 * u64::from(count) {
        return Err(DecodeError::Truncated);
    }
    let _index: u32 = reader.read()?;
    match reader.read::<u32>()? {
        0 => Err(DecodeError::Kind),
        code => Ok(Err(ErrorCode(code))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_and_rejection_come_back() {
        let body = encode_result(Ok(b"payload"));
        assert_eq!(decode_result(&body), Ok(Ok(b"payload".as_slice())));
        let body = encode_result(Err(ErrorCode::STREAM_ID_NOT_FOUND));
        assert_eq!(
            decode_result(&body),
            Ok(Err(ErrorCode::STREAM_ID_NOT_FOUND))
        );
        assert_eq!(decode_result(&body[..11]), Err(DecodeError::Truncated));
        assert_eq!(decode_result(&[]), Err(DecodeError::Truncated));
    }
}
