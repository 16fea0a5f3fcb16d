//! Writes the golden vectors as seeds for the fuzz targets; `ci/fuzz-short` runs it.
//!
//! `seed_corpus DIR` fills `DIR/wire_request`, `DIR/wire_reply` and `DIR/wire_frame`.

use std::{env, error::Error, fs, path::Path};

use base::{ClientId, GroupId, Op, ReplicaIndex, Timestamp, View};
use serde_json::Value;
use wire::{HEADER_SIZE, Operation, RequestHeader, replica::PrepareHeader};

fn bytes_of_hex(hex: &str) -> Result<Vec<u8>, std::num::ParseIntError> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
        .collect()
}

fn prepare_of(body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADER_SIZE];
    frame.extend_from_slice(body);
    let header = PrepareHeader {
        checksum: 0,
        checksum_body: 0,
        cluster: 7,
        size: 0,
        view: View(2),
        replica: ReplicaIndex(1),
        parent: 3,
        client: ClientId(9),
        group: GroupId(1 << 10),
        op: Op(5),
        commit: Op(4),
        timestamp: Timestamp(1_700_000_000_000_000),
        request: 1,
        session: 2,
        request_checksum: 0,
        user: 0,
        operation: Operation::SendMessages,
        encryption: None,
    };
    header.seal_into(&mut frame);
    frame
}

fn write_seeds(vectors: &[Value], directory: &Path) -> Result<(), Box<dyn Error>> {
    let save = |target: &str, name: &str, bytes: &[u8]| {
        let directory = directory.join(target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(name), bytes)
    };
    for vector in vectors {
        let text = |key: &str| vector[key].as_str().ok_or("a vector lacks a field");
        let (name, kind) = (text("name")?, text("kind")?);
        let bytes = bytes_of_hex(text("hex")?)?;
        match kind {
            "request" => {
                save("wire_request", name, &bytes)?;
                if let Ok(header) = RequestHeader::decode(&bytes) {
                    let head = [&[header.operation as u8][..], &header.code.to_le_bytes()];
                    let body = [&head.concat(), &bytes[HEADER_SIZE..]].concat();
                    save("wire_request", &format!("{name}.body"), &body)?;
                }
            }
            "reply" => {
                save("wire_reply", name, &bytes)?;
                save("wire_reply", &format!("{name}.body"), &bytes[HEADER_SIZE..])?;
            }
            "header" => {
                save("wire_reply", name, &bytes)?;
                save("wire_frame", name, &bytes)?;
            }
            _ if name.starts_with("batch_") => {
                save("wire_frame", name, &bytes)?;
                save(
                    "wire_frame",
                    &format!("{name}.prepare"),
                    &prepare_of(&bytes),
                )?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::args_os().nth(1).ok_or("usage: seed_corpus DIR")?;
    let file: Value = serde_json::from_str(include_str!("../vectors/iggy-0.11.0.json"))?;
    let vectors = file["vectors"].as_array().ok_or("no vectors in the file")?;
    write_seeds(vectors, Path::new(&directory))
}
