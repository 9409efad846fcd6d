//! Shapes of snapshots: those of old and new versions, and files that are not snapshots.

use gpumem_snapshot::{Action, BlockState, SegmentType, Snapshot};
use serde_json::{Value, json as literal};

use crate::common::{json, pickle, repr};

fn read(value: &Value) -> Result<Snapshot, String> {
    Snapshot::from_bytes(value.to_string().as_bytes()).map_err(|error| error.to_string())
}

/// Returns the minimal snapshot of old versions and `torch.profiler`.
fn least() -> Value {
    literal!({
        "segments": [{"address": 4096, "total_size": 2048, "blocks": [
            {"size": 512, "state": "active_allocated", "history": [
                {"addr": 4096, "real_size": 400, "frames": [{"name": "f", "filename": "a.py", "line": 3}]},
                {"addr": 4096, "real_size": 300},
            ]},
            {"size": 512, "state": "active_awaiting_free"},
            {"size": 1024, "state": "inactive"},
        ]}],
        "device_traces": [[{"action": "alloc", "addr": 4096, "size": 400}, {"action": "oom", "size": 9}, {"action": "snapshot"}]],
    })
}

#[test]
fn missing_keys_of_old_files_get_defaults() {
    let snapshot = read(&least()).unwrap();
    let segment = &snapshot.segments[0];
    assert_eq!(
        (segment.device, segment.stream, segment.segment_pool_id),
        (0, 0, (0, 0))
    );
    assert_eq!(
        (segment.segment_type, segment.is_expandable),
        (SegmentType::Small, false)
    );
    assert_eq!(
        (segment.allocated_size, segment.active_size, segment.requested_size),
        (512, 1024, 912)
    );
    let blocks: Vec<_> = segment
        .blocks
        .iter()
        .map(|b| (b.address, b.requested_size, b.state))
        .collect();
    let expected = [
        (4096, 400, BlockState::ActiveAllocated),
        (4608, 512, BlockState::ActivePendingFree),
        (5120, 1024, BlockState::Inactive),
    ];
    assert_eq!(blocks, expected);
    assert_eq!(snapshot.tables.get_stack(segment.blocks[0].frames).len(), 1);
    let entry = &snapshot.device_traces[0][0];
    assert_eq!(
        (entry.time_us, entry.frames, entry.compile_context, entry.user_metadata),
        (0, None, None, None)
    );
    assert_eq!(
        (snapshot.allocator_settings, snapshot.external_annotations.len()),
        (None, 0)
    );
    assert_eq!(snapshot.check(), []);
    // The history is kept, and no time is added to the event.
    let written = json(&snapshot);
    assert_eq!(
        written["segments"][0]["blocks"][0]["history"],
        least()["segments"][0]["blocks"][0]["history"]
    );
    assert_eq!(
        written["device_traces"][0][0],
        literal!({"action": "alloc", "addr": 4096, "size": 400, "stream": 0})
    );
    let mut large = least();
    large["segments"][0]["total_size"] = literal!((2 << 20) + 512);
    assert_eq!(read(&large).unwrap().segments[0].segment_type, SegmentType::Large);
}

#[test]
fn list_of_segments_is_read_as_a_snapshot() {
    let snapshot = read(&least()["segments"]).unwrap();
    assert_eq!((snapshot.segments.len(), snapshot.device_traces.len()), (1, 0));
    let pickled = b"\x80\x02].";
    assert_eq!(Snapshot::from_bytes(pickled).unwrap().segments, []);
}

#[test]
fn unknown_keys_are_counted_kept_and_written() {
    let mut value = least();
    value["host_segments"] = literal!([{"a": [1, 2.5, null]}]);
    value["segments"][0]["new"] = literal!("x");
    value["segments"][0]["blocks"][1]["new"] = literal!({"b": []});
    value["device_traces"][0][0]["forward_frames"] = literal!(["a\n"]);
    value["segments"][0]["frames"] = literal!([{"name": "f", "filename": "a.py", "line": 3, "fx_node_op": "call"}]);
    value["device_traces"][0][1]["action"] = literal!("renamed");
    value["device_traces"][0][1]["user_metadata"] = literal!("note");
    let snapshot = read(&value).unwrap();
    let unknown = snapshot.unknown_keys();
    let unknown: Vec<_> = unknown
        .iter()
        .map(|((on, key), count)| (*on, key.as_str(), *count))
        .collect();
    let expected = [
        ("block", "history", 1),
        ("block", "new", 1),
        ("frame", "fx_node_op", 1),
        ("segment", "new", 1),
        ("snapshot", "host_segments", 1),
        ("trace entry", "forward_frames", 1),
    ];
    assert_eq!(unknown, expected);
    let action = snapshot.device_traces[0][1].action;
    assert_eq!(snapshot.tables.get_text(action.name()), "renamed");
    assert!(matches!(action, Action::Other(_)));
    let note = snapshot.device_traces[0][1].user_metadata.unwrap();
    assert_eq!(repr(&snapshot, note), "'note'");
    let written = json(&snapshot);
    assert_eq!(written["host_segments"], value["host_segments"]);
    assert_eq!(written["segments"][0]["new"], "x");
    assert_eq!(written["segments"][0]["frames"], value["segments"][0]["frames"]);
    assert_eq!(written["device_traces"][0][0]["forward_frames"], literal!(["a\n"]));
    let problems: Vec<_> = snapshot.check().iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["1 times the action \"renamed\", which is not known"]);
}

/// From PyTorch 2.14 on, metadata may be attached to a block after its allocation.
#[test]
fn annotate_events_are_read() {
    let mut value = least();
    let note = literal!({"action": "annotate", "addr": 4096, "size": 0, "stream": 0, "user_metadata": "note"});
    value["device_traces"][0].as_array_mut().unwrap().push(note);
    let snapshot = read(&value).unwrap();
    let entry = snapshot.device_traces[0].last().unwrap();
    assert_eq!((entry.action, entry.addr), (Action::Annotate, 4096));
    assert_eq!(repr(&snapshot, entry.user_metadata.unwrap()), "'note'");
    assert_eq!(snapshot.check(), []);
    assert_eq!(json(&snapshot)["device_traces"][0][3], value["device_traces"][0][3]);
}

#[test]
fn shape_errors_name_the_position() {
    let cases = [
        (
            "",
            literal!({}),
            "the snapshot: expected the keys segments and device_traces, found a dict without either",
        ),
        (
            "/segments",
            literal!(3),
            "JSON: invalid type: integer `3`, expected a list of segments or events at line 1 column",
        ),
        (
            "/segments/0",
            literal!(null),
            "segments[0]: expected a dict, found None",
        ),
        (
            "/segments/0/address",
            literal!("x"),
            "segments[0].address: expected an integer, found a text",
        ),
        (
            "/segments/0/total_size",
            literal!(-1),
            "segments[0].total_size: expected a number of bytes or microseconds, found -1",
        ),
        (
            "/segments/0/blocks",
            literal!({}),
            "segments[0].blocks: expected a list, found a dict",
        ),
        (
            "/segments/0/blocks/2/size",
            literal!(1.5),
            "segments[0].blocks[2].size: expected a number of bytes or microseconds, found the float 1.5",
        ),
        (
            "/segments/0/blocks/1/state",
            literal!(true),
            "segments[0].blocks[1].state: expected a text, found the bool true",
        ),
        (
            "/segments/0/blocks/0/history/0/frames/0/line",
            literal!([]),
            "segments[0].blocks[0].history.frames[0].line: expected an integer of 64 bits, found a list",
        ),
        (
            "/device_traces/0/1/action",
            literal!(1),
            "device_traces[0][1].action: expected a text, found 1",
        ),
        (
            "/device_traces/0/2",
            literal!({}),
            "device_traces[0][2].action: expected this key, which every snapshot has, found nothing",
        ),
        (
            "/device_traces/0/0",
            literal!({"action": "alloc", "addr": 1}),
            "device_traces[0][0].size: expected this key, which every snapshot has, found nothing",
        ),
    ];
    for (place, value, expected) in cases {
        let mut whole = least();
        *whole.pointer_mut(place).unwrap() = value;
        let error = read(&whole).unwrap_err();
        assert!(error.starts_with(expected), "{place}: {error}");
    }
    let added = [
        (
            "device",
            literal!(1u64 << 40),
            "segments[0].device: expected a device's number, found 1099511627776",
        ),
        (
            "segment_pool_id",
            literal!([1]),
            "segments[0].segment_pool_id: expected two integers, found a list",
        ),
        (
            "is_expandable",
            literal!(0),
            "segments[0].is_expandable: expected a bool, found 0",
        ),
        (
            "frames",
            literal!([{"name": "f", "line": 1}]),
            "segments[0].frames[0].filename: expected this key",
        ),
    ];
    for (key, value, expected) in added {
        let mut whole = least();
        whole["segments"][0][key] = value;
        let error = read(&whole).unwrap_err();
        assert!(error.starts_with(expected), "{key}: {error}");
    }
    for (bytes, expected) in [
        (
            b"PK\x03\x04...".as_slice(),
            "not a snapshot: a zip archive, as torch.save makes them",
        ),
        (b"op,id", "not a snapshot: unknown content"),
        (b"{\"segments\": []} x", "JSON: trailing characters"),
        (b"\x80\x04N.", "the snapshot: expected a dict, found None"),
        (b"\x80\x04}.", "the snapshot: expected the keys"),
        (
            b"\x80\x04}(\x8c\x08segments]K\x01Nu.",
            "the snapshot: expected keys that are texts, found an integer",
        ),
    ] {
        let error = Snapshot::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// The position is the end of the wrong value.
#[test]
fn json_errors_name_line_and_column() {
    for (text, said) in [
        (
            "{\"segments\": [\n  {}\n]}",
            "segments[0].address: expected this key, which every snapshot has, found nothing, before line 3, column 1",
        ),
        (
            "{\"segments\": [],\n \"allocator_settings\": 5}",
            "allocator_settings: expected a dict, found 5, before line 2, column 25",
        ),
        ("{\n\n", "JSON: EOF while parsing an object at line 3 column 0"),
    ] {
        assert_eq!(Snapshot::from_bytes(text.as_bytes()).unwrap_err().to_string(), said);
    }
}

/// A key may be as long as the file, and contain control characters.
#[test]
fn unknown_key_is_shown_shortened_and_escaped() {
    let mut deep = literal!(1);
    for _ in 0..40 {
        deep = literal!([deep]);
    }
    let mut value = least();
    value[format!("\u{1b}[31m\u{202e}{}", "x".repeat(10_000))] = deep;
    let said = read(&value).unwrap_err();
    let shown = format!("\"\\u{{1b}}[31m\\u{{202e}}{}\"", "x".repeat(54));
    assert!(said.contains(&shown) && said.len() < 300, "{said}");
}

#[test]
fn high_addresses_may_be_negative() {
    // PyTorch's own pickler has no unsigned integers.
    let mut value = least();
    value["segments"][0]["address"] = literal!(-4096);
    let snapshot = read(&value).unwrap();
    assert_eq!(snapshot.segments[0].address, 0u64.wrapping_sub(4096));
    assert_eq!(snapshot.segments[0].blocks[2].address, 0u64.wrapping_sub(3072));
}

/// Python has no line for some instructions: PyTorch writes its -1 as an unsigned number.
#[test]
fn frame_may_have_no_line() {
    let mut value = least();
    value["segments"][0]["frames"] = literal!([{"name": "f", "filename": "a.py", "line": u64::MAX}]);
    let snapshot = read(&value).unwrap();
    let frames = snapshot.tables.get_stack(snapshot.segments[0].frames);
    assert_eq!(snapshot.tables.get_frame(frames[0]).unwrap().line, -1);
    let again = Snapshot::from_bytes(&pickle(&snapshot)).unwrap();
    assert_eq!(json(&again), json(&snapshot));
}

#[test]
fn inconsistencies_are_reported() {
    let mut value = least();
    value["segments"][0]["allocated_size"] = literal!(1);
    value["segments"][0]["blocks"][1]["address"] = literal!(4700);
    value["segments"][0]["blocks"][1]["requested_size"] = literal!(513);
    value["segments"][0]["blocks"][2] = literal!({"size": 0, "state": "lost"});
    let other = literal!({"address": 5000, "total_size": u64::MAX, "blocks": [], "segment_type": "huge"});
    value["segments"].as_array_mut().unwrap().push(other);
    let snapshot = read(&value).unwrap();
    let problems: Vec<_> = snapshot.check().iter().map(ToString::to_string).collect();
    let expected = [
        "segment 0, block 1: begins at 0x125c, the one before ends at 0x1200",
        "segment 0, block 1: 513 bytes requested in a block of 512",
        "segment 0, block 2: 0 bytes requested in a block of 0",
        "segment 0: total_size is 2048, its blocks have 1024",
        "segment 0: allocated_size is 1, its blocks have 512",
        "segment 1: 18446744073709551615 bytes from 0x1388 on is more than there are addresses",
        "segment 1: total_size is 18446744073709551615, its blocks have 0",
        "segments 1 and 0 overlap",
        "1 times the block state \"lost\", which is not known",
        "1 times the segment type \"huge\", which is not known",
    ];
    assert_eq!(problems, expected);
}

#[test]
fn byte_order_mark_before_json_is_skipped() {
    let text = least().to_string();
    let marked = Snapshot::from_bytes(format!("\u{feff}\n{text}").as_bytes()).unwrap();
    assert_eq!(marked.segments, read(&least()).unwrap().segments);
    assert!(
        Snapshot::from_bytes(b"\xef\xbb\xbf\x80\x04}.").is_err(),
        "but not before a pickle"
    );
}

/// Python writes lone surrogates for a file name that is not UTF-8.
#[test]
fn lone_surrogate_is_read_as_text() {
    let text = least().to_string().replace("a.py", r"\udc80.py\ud83d\ude00");
    let snapshot = Snapshot::from_bytes(text.as_bytes()).unwrap();
    let frame = snapshot.tables.all_frames().next().unwrap();
    assert_eq!(snapshot.tables.get_text(frame.filename), "\u{fffd}.py\u{1f600}");
}

/// Tables convert a column with gaps to floats.
#[test]
fn whole_numbers_may_be_floats() {
    let mut value = least();
    value["segments"][0]["address"] = literal!(4096.0);
    value["segments"][0]["stream"] = literal!(-1.0);
    value["device_traces"][0][0]["size"] = literal!(400.0);
    let snapshot = read(&value).unwrap();
    let (segment, entry) = (&snapshot.segments[0], &snapshot.device_traces[0][0]);
    assert_eq!((segment.address, segment.stream, entry.size), (4096, -1, 400));
    for wrong in [literal!(1e16), literal!(-1.0), literal!(0.5)] {
        value["device_traces"][0][0]["size"] = wrong;
        assert!(read(&value).is_err(), "{value}");
    }
}

/// Users save a snapshot together with other data.
#[test]
fn only_a_single_snapshot_in_a_dict_is_read() {
    let whole = read(&least()).unwrap();
    let (one, two) = (
        literal!({"step": 3, "snapshot": least(), "more": [1]}),
        literal!({"before": least(), "after": least()}),
    );
    assert_eq!(json(&read(&one).unwrap()), json(&whole));
    let several = "the snapshot: expected one snapshot, found a dict of 2 snapshots: save one to a file of its own";
    let said = read(&two).unwrap_err();
    assert!(said.starts_with(several), "{said}");
    let listed = read(&literal!([least(), least()])).unwrap_err();
    assert!(
        listed.starts_with("[0]: expected a segment, found a whole snapshot"),
        "{listed}"
    );
    // The same as a pickle: {"a": {"segments": []}}, and one with two such dicts.
    let pickled = Snapshot::from_bytes(b"\x80\x04}\x8c\x01a}\x8c\x08segments]ss.").unwrap();
    assert_eq!(pickled.segments, []);
    let twice = b"\x80\x04}(\x8c\x01a}\x8c\x08segments]s\x8c\x01b}\x8c\x08segments]su.";
    assert_eq!(Snapshot::from_bytes(twice).unwrap_err().to_string(), several);
}

/// Python's JSON has `NaN` and `Infinity`.
#[test]
fn non_finite_numbers_are_accepted_in_other_keys() {
    let text = least().to_string();
    let more = format!("{}, \"x\": [NaN, -Infinity]}}", &text[..text.len() - 1]);
    assert_eq!(
        Snapshot::from_bytes(more.as_bytes()).unwrap().segments,
        read(&least()).unwrap().segments
    );
    let needed = text.replace("\"size\":400", "\"size\":NaN");
    let said = Snapshot::from_bytes(needed.as_bytes()).unwrap_err().to_string();
    assert!(
        said.contains("expected a number of bytes or microseconds, found a text"),
        "{said}"
    );
}
