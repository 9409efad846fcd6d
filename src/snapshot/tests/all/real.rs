//! A real snapshot: ten steps of a GPT on an H100, PyTorch 2.11.

use gpumem_snapshot::{Action, RequestKind, Snapshot, Value};

use crate::common::{json, pickle, real_path};

fn real() -> Snapshot {
    Snapshot::read(real_path()).unwrap()
}

#[test]
fn real_snapshot_is_read_as_by_python() {
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

#[test]
fn real_snapshot_has_no_problems() {
    assert_eq!(real().check(), []);
}

#[test]
fn written_snapshot_reads_back_the_same() {
    let snapshot = real();
    let pickled = pickle(&snapshot);
    let from_pickle = Snapshot::from_bytes(&pickled).unwrap();
    assert_eq!(from_pickle.segments, snapshot.segments);
    assert_eq!(from_pickle.device_traces, snapshot.device_traces);
    assert_eq!(pickle(&from_pickle), pickled);
    let text = json(&snapshot);
    assert_eq!(json(&from_pickle), text);
    // JSON has no tuples. PyTorch uses them for the pool's ids only, for which lists are accepted.
    let from_json = Snapshot::from_bytes(text.to_string().as_bytes()).unwrap();
    assert_eq!(json(&from_json), text);
    assert_eq!(from_json.segments.len(), 90);
}

#[test]
fn requests_of_the_real_snapshot_are_consistent() {
    let snapshot = real();
    let requests: Vec<_> = snapshot.requests(0).collect();
    let count = |kind, recorded| {
        requests
            .iter()
            .filter(|r| (r.kind, r.recorded) == (kind, recorded))
            .count()
    };
    assert_eq!(count(RequestKind::Alloc, true), 7497);
    assert_eq!(count(RequestKind::Free, true), 7197);
    assert_eq!(
        (count(RequestKind::Alloc, false), count(RequestKind::Free, false)),
        (3, 0)
    );
    // The live blocks after the last request are those of the segments.
    let mut live = std::collections::BTreeMap::new();
    for request in requests {
        match request.kind {
            RequestKind::Alloc => assert_eq!(live.insert(request.addr, request.size), None),
            RequestKind::Free => assert_eq!(live.remove(&request.addr), Some(request.size)),
        }
    }
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let active = blocks.filter(|block| block.state.active());
    assert!(
        live.into_iter().eq(active
            .map(|b| (b.address, b.requested_size))
            .collect::<std::collections::BTreeMap<_, _>>())
    );
}
