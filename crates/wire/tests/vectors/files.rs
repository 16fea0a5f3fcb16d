//! Reads the file of golden vectors.

use serde_json::Value;

/// One golden vector.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) decoded: Value,
}

impl Vector {
    /// Whether it belongs to a later protocol version.
    pub(crate) fn is_of_another_version(&self) -> bool {
        self.name.starts_with("edge_")
    }

    /// A decoded number, given as such or as hexadecimal text.
    pub(crate) fn number(&self, key: &str) -> u128 {
        number(&self.decoded[key])
    }
}

/// A number, given as such or as hexadecimal text.
pub(crate) fn number(value: &Value) -> u128 {
    match value {
        Value::String(text) => {
            let digits = text.strip_prefix("0x").expect("hexadecimal");
            u128::from_str_radix(digits, 16).expect("hexadecimal")
        }
        other => u128::from(other.as_u64().expect("a number")),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// All vectors of the file.
pub(crate) fn all() -> Vec<Vector> {
    let file = include_str!("../../vectors/iggy-0.11.0.json");
    let file: Value = serde_json::from_str(file).expect("JSON");
    let vectors = file["vectors"].as_array().expect("a list");
    let vector = |value: &Value| Vector {
        name: text(&value["name"]),
        kind: text(&value["kind"]),
        bytes: bytes_of_hex(&text(&value["hex"])),
        decoded: value["decoded"].clone(),
    };
    vectors.iter().map(vector).collect()
}
