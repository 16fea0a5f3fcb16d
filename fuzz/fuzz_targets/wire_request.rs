//! What a client may send: no bytes panic the header or a body decoder, and what is accepted
//! encodes to bytes that mean the same.
//!
//! The input is read twice: as a whole frame, and as an operation, a command code and a body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{HEADER_SIZE, Operation, Request, RequestHeader, batch, header};

fn check_body(operation: Operation, code: u32, body: &[u8]) {
    let Ok(request) = Request::decode(operation, code, body) else {
        return;
    };
    assert_eq!(request.operation(), operation);
    if operation == Operation::NonReplicated {
        assert_eq!(request.code().number(), code);
    }
    let again = request.encode();
    // Flags have several bytes for one meaning, so only the size must be the same at once.
    assert_eq!(again.len(), body.len());
    let second = Request::decode(operation, code, &again).expect("what we encode");
    assert_eq!(second, request);
    assert_eq!(second.encode(), again);
    if let Request::Register(login) = &request {
        let prefix = wire::LoginPrefix::decode_prefix(body).expect("a login has a prefix");
        assert_eq!(prefix, login.prefix);
    }
    if let Request::SendMessages(send) = &request {
        assert!(body.ends_with(send.batch));
        let _ = batch::verify(send.batch);
    }
}

fn check_frame(frame: &[u8]) {
    let Ok(decoded) = RequestHeader::decode(frame) else {
        return;
    };
    let mut again = [0; HEADER_SIZE];
    decoded.encode_into(&mut again);
    assert_eq!(RequestHeader::decode(&again), Ok(decoded));
    let Some(body) = frame.get(HEADER_SIZE..decoded.size as usize) else {
        return;
    };
    let _ = decoded.matches_body(body);
    check_body(decoded.operation, decoded.code, body);
    let rebuilt = header::request(&decoded, body);
    let rebuilt = RequestHeader::decode(&rebuilt).expect("what we encode");
    assert_eq!(rebuilt.size, decoded.size);
    assert!(rebuilt.matches_body(body));
}

fuzz_target!(|data: &[u8]| {
    check_frame(data);
    if let Some((&[operation, a, b, c, d], body)) = data.split_first_chunk()
        && let Some(operation) = Operation::from_byte(operation)
    {
        check_body(operation, u32::from_le_bytes([a, b, c, d]), body);
    }
});
