//! A real snapshot: ten steps of a GPT on an H100, PyTorch 2.11.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use gpumem_snapshot::{Action, Snapshot, Value};

fn real() -> Snapshot {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch211_gpt_fixed.pickle.gz");
    Snapshot::read(&path).unwrap()
}

#[test]
fn what_python_sees_in_it_is_there() {
    let snapshot = real();
    assert_eq!(snapshot.segments.len(), 90);
    assert_eq!(snapshot.segments.iter().map(|s| s.blocks.len()).sum::<usize>(), 382);
    assert_eq!(snapshot.device_traces.len(), 1);
    let trace = &snapshot.device_traces[0];
    let count = |action| trace.iter().filter(|entry| entry.action == action).count();
    let counts = [
        Action::Alloc,
        Action::FreeRequested,
        Action::FreeCompleted,
        Action::SegmentAlloc,
    ]
    .map(count);
    assert_eq!(counts, [7497, 7197, 7197, 87]);
    assert_eq!(
        (trace[0].addr, trace[0].size, trace[0].time_us),
        (139677101195264, 25165824, 1795208136043549)
    );
    assert_eq!(snapshot.tables.get_text(trace[0].compile_context.unwrap()), "N/A");
    assert_eq!(snapshot.setting("expandable_segments"), Some(&Value::Bool(false)));
    assert_eq!(snapshot.setting("max_split_size"), Some(&Value::Int(-1)));
    assert_eq!(snapshot.external_annotations.len(), 40);
    let first = &snapshot.external_annotations[0];
    assert_eq!(first.time_us, 1795208136259612);
    let name = snapshot.lookup(first.metadata.unwrap(), "stage");
    assert_eq!(name, snapshot.tables.find_text("START").map(Value::Text).as_ref());
    assert!(snapshot.unknown_keys().is_empty(), "{:?}", snapshot.unknown_keys());
}
