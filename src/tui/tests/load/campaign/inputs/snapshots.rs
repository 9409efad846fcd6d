//! PyTorch's snapshots.

use std::path::Path;

use gpumem_snapshot::Snapshot;
use gpumem_tests::Random;

use super::{Tally, attempt, mutate};

/// A snapshot of PyTorch 2.11 on an H100.
const REAL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../snapshot/tests/data/torch211_gpt_fixed.pickle.gz"
);
/// How many of its segments and of its history's entries are kept, so that a mutation hits something that matters.
const LEFT: usize = 4;

/// A small snapshot.
pub(super) const SMALL: &str = r#"{"segments": [{"device": 0, "address": 4096, "total_size": 1024, "allocated_size": 512,
    "active_size": 512, "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0],
    "is_expandable": false, "frames": [], "blocks": [{"address": 4096, "size": 512, "requested_size": 500,
    "state": "active_allocated", "frames": [{"name": "f", "filename": "a.py", "line": 3}]}, {"address": 4608,
    "size": 512, "requested_size": 0, "state": "inactive", "frames": []}]}], "device_traces": [[{"action": "alloc",
    "addr": 4096, "size": 500, "stream": 0, "time_us": 1795208136043549, "compile_context": "N/A",
    "user_metadata": {"step": 1.5}, "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]],
    "allocator_settings": {"a": null}, "external_annotations": [], "to_come": [[true]]}"#;

const PIECES: [&[u8]; 24] = [
    b"(",
    b"}",
    b"]",
    b"u.",
    b"N",
    b"\x94",
    b"h\x00",
    b"h\xff",
    b"\x8c\x04size",
    b"\x8c\xff",
    b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00",
    b"K\xff",
    b"J\xff\xff\xff\xff",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"cos\nsystem\n",
    b"\x80\x05\x95",
    b"\"segments\"",
    b"[[[[[[[[",
    b"-1",
    b"1e400",
    b"18446744073709551616",
    b"null",
    b"\\ud800",
    b"\xff",
];

/// Returns the shortened real snapshot, as PyTorch would write it.
pub(super) fn pickle() -> Vec<u8> {
    let mut snapshot = Snapshot::read(Path::new(REAL)).unwrap();
    snapshot.segments.truncate(LEFT);
    for segment in &mut snapshot.segments {
        segment.blocks.truncate(LEFT);
    }
    for trace in &mut snapshot.device_traces {
        trace.truncate(LEFT);
    }
    let mut bytes = Vec::new();
    snapshot.write_pickle(&mut bytes).unwrap();
    bytes
}

/// Tries `count` mutated snapshots.
pub(crate) fn snapshots(random: &mut Random, count: u64) -> Tally {
    let mut small = Vec::new();
    Snapshot::from_bytes(SMALL.as_bytes())
        .unwrap()
        .write_pickle(&mut small)
        .unwrap();
    let files = [SMALL.as_bytes().to_vec(), small, pickle()];
    let mut tally = Tally::default();
    for _ in 0..count {
        let mut bytes = files[random.below(files.len() as u64) as usize].clone();
        mutate(random, &mut bytes, &PIECES);
        let read = attempt(&bytes, || {
            let snapshot = Snapshot::from_bytes(&bytes).map_err(|error| cleaned(&error.to_string()))?;
            use_it(&snapshot);
            Ok(())
        });
        tally.inputs += 1;
        tally.read += u64::from(read.is_some());
        tally.refused += u64::from(read.is_none());
    }
    tally
}

/// Uses a snapshot that was read, and checks that it stays the same when it is written and read again.
fn use_it(snapshot: &Snapshot) {
    snapshot.check();
    for device in 0..snapshot.device_traces.len() {
        snapshot.requests(device).count();
    }
    let written = |snapshot: &Snapshot| {
        let mut bytes = Vec::new();
        snapshot.write_pickle(&mut bytes).unwrap();
        bytes
    };
    let once = written(snapshot);
    assert!(
        once == written(&Snapshot::from_bytes(&once).unwrap()),
        "it changes when it is written and read again"
    );
    // JSON cannot represent everything, so an error is fine.
    drop(snapshot.write_json(std::io::sink()));
}

/// Cleans a text. The crate keeps texts as they are, as documented, and leaves the cleaning to the caller.
fn cleaned(text: &str) -> String {
    gpumem_text::clean(text)
}
