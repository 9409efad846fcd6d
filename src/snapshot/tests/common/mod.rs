//! What several tests need.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses some of it")]

use std::path::Path;

use gpumem_snapshot::{ReadError, Snapshot, Value, ValueId};

/// Ten steps of a GPT on an H100, PyTorch 2.11.
pub(crate) fn real_path() -> &'static Path {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/torch211_gpt_fixed.pickle.gz"
    ))
}

pub(crate) fn pickle(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot.write_pickle(&mut bytes).unwrap();
    bytes
}

pub(crate) fn json(snapshot: &Snapshot) -> serde_json::Value {
    let mut bytes = Vec::new();
    snapshot.write_json(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The pickle of `{'segments': [], 'x': value}`, the value given as its opcodes.
pub(crate) fn with_value(opcodes: &[u8]) -> Vec<u8> {
    [b"\x80\x04}(\x8c\x08segments]\x8c\x01x", opcodes, b"u."].concat()
}

/// Where the value's opcodes begin in [`with_value`].
pub(crate) const VALUE_AT: u64 = 18;

/// What the reader makes of `x` in [`with_value`], as Python would print it.
pub(crate) fn read_value(opcodes: &[u8]) -> Result<String, ReadError> {
    let snapshot = Snapshot::from_bytes(&with_value(opcodes))?;
    Ok(repr(&snapshot, snapshot.extra[0].1))
}

/// As Python prints it, nearly.
pub(crate) fn repr(snapshot: &Snapshot, value: ValueId) -> String {
    let list = |items: &[ValueId]| {
        items
            .iter()
            .map(|item| repr(snapshot, *item))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match snapshot.tables.get_value(value) {
        Value::None => "None".to_owned(),
        Value::Bool(value) => if *value { "True" } else { "False" }.to_owned(),
        Value::Int(value) => value.to_string(),
        Value::Unsigned(value) => value.to_string(),
        Value::Float(bits) => format!("{:?}", f64::from_bits(*bits)),
        Value::Text(text) => format!("'{}'", snapshot.tables.get_text(*text)),
        Value::Bytes(bytes) => format!("b{:?}", &bytes[..]),
        Value::List(items) => format!("[{}]", list(items)),
        Value::Tuple(items) => format!("({})", list(items)),
        Value::Dict(pairs) => {
            let pair =
                |(key, value): &(ValueId, ValueId)| format!("{}: {}", repr(snapshot, *key), repr(snapshot, *value));
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}
