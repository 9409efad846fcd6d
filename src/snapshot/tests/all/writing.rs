//! The written bytes, and snapshots that a program builds itself.

use gpumem_snapshot::{
    Action, Annotation, Block, BlockState, Frame, Segment, SegmentType, Snapshot, TraceEntry, Value, WriteError,
};

use crate::common::{json, pickle};

/// Returns a snapshot of one segment, and two events with one call stack.
fn small() -> Snapshot {
    let mut snapshot = Snapshot::default();
    let tables = &mut snapshot.tables;
    let frame = Frame {
        name: tables.text("forward"),
        filename: tables.text("model.py"),
        line: 300,
        extra: None,
    };
    let frame = tables.frame(frame);
    let stack = tables.stack(&[frame, frame]);
    let context = tables.text("N/A");
    let metadata = tables.dict([("step", Value::Int(3))]);
    snapshot.allocator_settings = Some(tables.dict([("expandable_segments", Value::Bool(true))]));
    let marked = tables.text("x");
    snapshot.external_annotations.push(Annotation {
        device: 0,
        time_us: 9,
        metadata: Some(tables.dict([("name", Value::Text(marked))])),
    });
    let block = Block {
        address: 1 << 40,
        size: 512,
        requested_size: 500,
        state: BlockState::ActiveAllocated,
        frames: stack,
        extra: None,
    };
    snapshot.segments.push(Segment {
        device: 0,
        address: 1 << 40,
        total_size: 512,
        allocated_size: 512,
        active_size: 512,
        requested_size: 500,
        stream: -1,
        segment_type: SegmentType::Small,
        segment_pool_id: (0, 1),
        is_expandable: true,
        frames: stack,
        blocks: vec![block],
        extra: None,
    });
    let entry = |action, addr| TraceEntry {
        action,
        addr,
        size: 500,
        stream: 0,
        time_us: 7,
        frames: Some(stack),
        compile_context: Some(context),
        user_metadata: Some(metadata),
        extra: None,
    };
    let entries = vec![entry(Action::Alloc, 1 << 40), entry(Action::Oom, u64::MAX)];
    snapshot.device_traces.push(entries);
    snapshot
}

/// `pickle.loads` of Python 3.11 reads it as the value of the JSON test, with a tuple as the pool's id.
#[test]
fn pickle_bytes_are_exact() {
    let expected: &[u8] =
        b"\x80\x04}(\x8c\x08segments\x94](}(\x8c\x06device\x94K\x00\x8c\x07address\x94\x8a\x06\x00\x00\x00\x00\x00\
        \x01\x8c\ntotal_size\x94M\x00\x02\x8c\x0eallocated_size\x94M\x00\x02\x8c\x0bactive_size\x94M\x00\x02\x8c\
        \x0erequested_size\x94M\xf4\x01\x8c\x06stream\x94J\xff\xff\xff\xff\x8c\x0csegment_type\x94\x8c\x05small\
        \x94\x8c\x0fsegment_pool_id\x94K\x00K\x01\x86\x8c\ris_expandable\x94\x88\x8c\x06frames\x94](}(\x8c\x04na\
        me\x94\x8c\x07forward\x94\x8c\x08filename\x94\x8c\x08model.py\x94\x8c\x04line\x94M,\x01u\x94h\x12e\x94\
        \x8c\x06blocks\x94](}(h\x02\x8a\x06\x00\x00\x00\x00\x00\x01\x8c\x04size\x94M\x00\x02h\x06M\xf4\x01\x8c\
        \x05state\x94\x8c\x10active_allocated\x94h\x0ch\x13ueue\x8c\rdevice_traces\x94](](}(\x8c\x06action\x94\
        \x8c\x05alloc\x94\x8c\x04addr\x94\x8a\x06\x00\x00\x00\x00\x00\x01h\x15M\xf4\x01h\x07K\x00\x8c\x07time_us\
        \x94K\x07\x8c\x0fcompile_context\x94\x8c\x03N/A\x94\x8c\ruser_metadata\x94}(\x8c\x04step\x94K\x03u\x94h\
        \x0ch\x13u}(h\x19\x8c\x03oom\x94\x8c\x0bdevice_free\x94\x8a\t\xff\xff\xff\xff\xff\xff\xff\xff\x00h\x15M\
        \xf4\x01h\x07K\x00h\x1cK\x07h\x1dh\x1eh\x1fh!h\x0ch\x13uee\x8c\x12allocator_settings\x94}(\x8c\x13expand\
        able_segments\x94\x88u\x94\x8c\x14external_annotations\x94](}(h\r\x8c\x01x\x94h\x01K\x00h\x1cK\tueu.";
    assert_eq!(
        pickle(&small()).escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}

#[test]
fn json_keys_and_values_are_exact() {
    let frame = serde_json::json!({"name": "forward", "filename": "model.py", "line": 300});
    let frames = serde_json::json!([frame, frame]);
    let entry = |action: &str, addr: &str, value: u64| {
        serde_json::json!({
            "action": action, addr: value, "size": 500, "stream": 0, "time_us": 7, "compile_context": "N/A",
            "user_metadata": {"step": 3}, "frames": frames,
        })
    };
    let expected = serde_json::json!({
        "segments": [{
            "device": 0, "address": 1u64 << 40, "total_size": 512, "allocated_size": 512, "active_size": 512,
            "requested_size": 500, "stream": -1, "segment_type": "small", "segment_pool_id": [0, 1],
            "is_expandable": true, "frames": frames, "blocks": [{
                "address": 1u64 << 40, "size": 512, "requested_size": 500, "state": "active_allocated",
                "frames": frames,
            }],
        }],
        "device_traces": [[entry("alloc", "addr", 1 << 40), entry("oom", "device_free", u64::MAX)]],
        "allocator_settings": {"expandable_segments": true},
        "external_annotations": [{"name": "x", "device": 0, "time_us": 9}],
    });
    assert_eq!(json(&small()), expected);
}

#[test]
fn both_formats_read_back_the_same() {
    let snapshot = small();
    assert_eq!(snapshot.check(), []);
    let read = Snapshot::from_bytes(&pickle(&snapshot)).unwrap();
    assert_eq!(pickle(&read), pickle(&snapshot));
    let read = Snapshot::from_bytes(json(&snapshot).to_string().as_bytes()).unwrap();
    assert_eq!(pickle(&read), pickle(&snapshot));
}

/// The web viewer passes a batch as arguments of one call, which may have some ten thousand.
#[test]
fn long_lists_and_dicts_are_written_in_batches() {
    let mut snapshot = small();
    let entry = snapshot.device_traces[0][0].clone();
    snapshot.device_traces[0] = vec![entry; 2500];
    let pairs: Vec<_> = (0..2001).map(|i| (format!("k{i}"), Value::None)).collect();
    snapshot.allocator_settings = Some(snapshot.tables.dict(pairs));
    let bytes = pickle(&snapshot);
    let read = Snapshot::from_bytes(&bytes).unwrap();
    assert_eq!(json(&read), json(&snapshot));
    // The end of one batch of events and the mark of the next: `u` ends an event.
    let count = |pattern: &[u8]| bytes.windows(pattern.len()).filter(|bytes| *bytes == pattern).count();
    assert_eq!(count(b"ue(}("), 2);
    assert_eq!(count(b"Nu(\x8c"), 2);
}

#[test]
fn values_that_json_lacks_are_errors() {
    let refused = |value: Value| {
        let mut snapshot = Snapshot::default();
        let value = snapshot.tables.value(value);
        let key = snapshot.tables.text("k");
        snapshot.extra.push((key, value));
        let read = Snapshot::from_bytes(&pickle(&snapshot)).unwrap();
        assert_eq!(read.tables.get_value(read.extra[0].1), snapshot.tables.get_value(value));
        match snapshot.write_json(std::io::sink()) {
            Err(WriteError::Json(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(Value::Bytes(b"x".as_slice().into())), "bytes");
    assert_eq!(
        refused(Value::Float(f64::NAN.to_bits())),
        "float that is infinite or not a number"
    );
}

#[test]
fn keys_become_texts_in_json() {
    let mut snapshot = Snapshot::default();
    let tables = &mut snapshot.tables;
    let keys = [
        Value::Int(-1),
        Value::Bool(true),
        Value::None,
        Value::Unsigned(u64::MAX),
    ];
    let pairs = keys.map(|key| (tables.value(key), tables.value(Value::None)));
    snapshot.allocator_settings = Some(tables.value(Value::Dict(pairs.as_slice().into())));
    let expected = serde_json::json!({"-1": null, "true": null, "null": null, "18446744073709551615": null});
    assert_eq!(json(&snapshot)["allocator_settings"], expected);
}

#[test]
fn failing_writer_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    assert!(matches!(small().write_pickle(Full), Err(WriteError::Io(_))));
    assert!(matches!(small().write_json(Full), Err(WriteError::Io(_))));
}
