//! Helpers shared by the tests.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses some of it")]

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use gpumem_snapshot::{ReadError, Snapshot, Value, ValueId};

/// Returns the path of a real snapshot: ten steps of a GPT on an H100, PyTorch 2.11.
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

/// Returns the pickle of `{'segments': [], 'x': value}`, with the value given as opcodes.
pub(crate) fn with_value(opcodes: &[u8]) -> Vec<u8> {
    [b"\x80\x04}(\x8c\x08segments]\x8c\x01x", opcodes, b"u."].concat()
}

/// Where the value's opcodes begin in [`with_value`].
pub(crate) const VALUE_AT: u64 = 18;

/// Reads `x` of [`with_value`] and returns it as Python would print it.
pub(crate) fn read_value(opcodes: &[u8]) -> Result<String, ReadError> {
    let snapshot = Snapshot::from_bytes(&with_value(opcodes))?;
    Ok(repr(&snapshot, snapshot.extra[0].1))
}

/// Returns a value roughly as Python prints it.
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

/// A small snapshot with a frame, a call stack used twice, and a key of a future version.
pub(crate) const SMALL: &str = r#"{"segments": [{"device": 0, "address": 4096, "total_size": 1024, "allocated_size": 512,
    "active_size": 512, "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0],
    "is_expandable": false, "frames": [], "blocks": [{"address": 4096, "size": 512, "requested_size": 500,
    "state": "active_allocated", "frames": [{"name": "f", "filename": "a.py", "line": 3}]}, {"address": 4608,
    "size": 512, "requested_size": 0, "state": "inactive", "frames": []}]}], "device_traces": [[{"action": "alloc",
    "addr": 4096, "size": 500, "stream": 0, "time_us": 1795208136043549, "compile_context": "N/A",
    "user_metadata": {"step": 1.5}, "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]],
    "allocator_settings": {"a": null}, "external_annotations": [], "to_come": [[true]]}"#;

pub(crate) fn small() -> Snapshot {
    Snapshot::from_bytes(SMALL.as_bytes()).unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
