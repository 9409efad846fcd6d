//! Histories of snapshots: a made one with gaps, and a real one.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::tests::{alloc, free, gzip, read};
use super::{Format, Problem, Trace};

const SNAPSHOT: &str = r#"{"segments": [{"device": 0, "address": 4096, "total_size": 8192, "allocated_size": 2048, "active_size": 2048,
  "requested_size": 1100, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": false, "frames": [],
  "blocks": [{"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": []},
             {"address": 5120, "size": 1024, "requested_size": 100, "state": "active_allocated", "frames": []},
             {"address": 6144, "size": 6144, "requested_size": 0, "state": "inactive", "frames": []}]}],
 "device_traces": [[
   {"action": "free_requested", "addr": 7000, "size": 300, "stream": 7},
   {"action": "free_completed", "addr": 7000, "size": 300, "stream": 7},
   {"action": "alloc", "addr": 5120, "size": 50, "stream": 0},
   {"action": "oom", "device_free": 5, "size": 99999, "stream": 0},
   {"action": "alloc", "addr": 5120, "size": 100, "stream": 0},
   {"action": "free_completed", "addr": 8000, "size": 20, "stream": 0}
 ]]}"#;

/// What was live before the recording comes first, and gaps in it do no harm.
#[test]
fn the_history_of_a_snapshot_is_read() {
    for bytes in [SNAPSHOT.as_bytes().to_vec(), gzip(SNAPSHOT.as_bytes())] {
        let trace = read(&bytes).unwrap();
        let expected = [
            alloc(0, 0, 1000),
            alloc(1, 1, 300),
            free(1),
            alloc(1, 0, 50),
            free(1),
            alloc(1, 0, 100),
        ];
        assert_eq!(trace.ops, expected);
        assert_eq!((trace.format, &trace.streams[..]), (Format::PyTorch, &[0, 7][..]));
        assert_eq!((trace.assumed, trace.recorded_failures, trace.other_devices), (3, 1, 0));
        assert_eq!(
            (trace.peak_requested, trace.live_blocks, trace.live_bytes),
            (1300, 2, 1100)
        );
    }
    let one_more = r#""device_traces": [[], [{"action": "alloc", "addr": 9, "size": 7, "stream": 0}], ["#;
    let two = read(SNAPSHOT.replace("\"device_traces\": [[", one_more)).unwrap();
    assert_eq!(
        (two.other_devices, two.ops.len()),
        (1, 5),
        "that of the longest history"
    );
    let large = SNAPSHOT.replace(
        r#""addr": 5120, "size": 100"#,
        r#""addr": 1, "size": 18446744073709551615"#,
    );
    let said = read(&large).unwrap_err().to_string();
    let sum = "request 5 of the history: the sum of all live blocks does not fit into 64 bits; expected a smaller size";
    assert_eq!(said, sum);
    let none = SNAPSHOT.split("\"device_traces\"").next().unwrap().to_owned() + "\"device_traces\": [[]]}";
    assert!(matches!(read(none), Err(Problem::NoHistory)));
    for cut in [2, 100, SNAPSHOT.len() - 1] {
        assert!(matches!(read(&SNAPSHOT[..cut]), Err(Problem::Snapshot(_))), "{cut}");
    }
    // A pickle that would import something.
    assert!(matches!(read(b"\x80\x02cos\nsystem\n."), Err(Problem::Snapshot(_))));
}

/// As in other formats, where it has a line.
#[test]
fn what_the_history_itself_contradicts_is_an_error_that_says_where() {
    let event = |action: &str, size: u64| format!(r#"{{"action": "{action}", "addr": 512, "size": {size}}}"#);
    let said = |events: &[String]| {
        let history = format!(r#"{{"device_traces": [[], [{}]]}}"#, events.join(","));
        read(history).unwrap_err().to_string()
    };
    let whole = [
        event("alloc", 7),
        event("free_requested", 7),
        event("free_completed", 7),
    ];
    assert_eq!(
        said(&[&whole[..], &[event("free_requested", 7)]].concat()),
        "the history contradicts itself: device 1, entry 3: frees 0x200, which entry 2 freed; nothing was allocated there since"
    );
    assert_eq!(
        said(&[event("alloc", 7), event("free_requested", 8)]),
        "the history contradicts itself: device 1, entry 1: frees 8 bytes at 0x200, where entry 0 allocated 7"
    );
}

/// The free between them is not recorded, but of what is no operation none is lacking.
#[test]
fn a_block_of_0_bytes_that_is_allocated_twice_lacks_no_operation() {
    let entry = r#"{"action": "alloc", "addr": 512, "size": 0}"#;
    let trace = read(format!(r#"{{"device_traces": [[{entry}, {entry}]]}}"#)).unwrap();
    assert_eq!((trace.ops.len(), trace.zero_sized, trace.assumed), (0, 2, 0));
}

/// They may be requests that are misspelt, so that they are told apart from what means nothing to a replay.
#[test]
fn actions_that_are_not_known_are_counted_and_named() {
    let read_all = |actions: &[&str]| {
        let entry = |action: &&str| format!(r#"{{"action": "{action}", "addr": 512, "size": 7}}"#);
        let entries: Vec<String> = actions.iter().map(entry).collect();
        read(format!(r#"{{"device_traces": [[{}]]}}"#, entries.join(","))).unwrap()
    };
    let known = [
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "snapshot",
        "user_defined",
        "annotate",
    ];
    let trace = read_all(&known);
    assert_eq!(
        (trace.others, trace.unknown_actions, trace.unknown_names.len()),
        (7, 0, 0)
    );
    let long = "x".repeat(33);
    let trace = read_all(&["alloc", "free_requestd", "oom", "\\u001b[31m", "free_requestd", &long]);
    assert_eq!((trace.ops.len(), trace.recorded_failures), (1, 1));
    assert_eq!((trace.others, trace.unknown_actions), (0, 4));
    assert_eq!(
        trace.unknown_names,
        ["free_requestd", "\u{fffd}[31m", &format!("{}...", &long[1..])]
    );
    let trace = read_all(&["a", "b", "c", "d", "e"]);
    assert_eq!(
        (trace.unknown_actions, trace.unknown_names.join(", ")),
        (5, "a, b, c, ...".to_owned())
    );
}

/// {"device_traces": [[{"action": ..., "addr": 5, "size": 7}]]} with an action that is no UTF-8.
#[test]
fn an_action_that_is_no_text_is_one_that_is_not_known() {
    let pickle = b"\x80\x02}X\x0d\0\0\0device_traces]]}(X\x06\0\0\0actionX\x05\0\0\0fr\xffeeX\x04\0\0\0addrK\x05X\x04\0\0\0sizeK\x07uaas.";
    let trace = read(pickle).unwrap();
    assert_eq!(
        (trace.unknown_actions, trace.unknown_names.join(", ")),
        (1, "fr\u{fffd}ee".to_owned())
    );
}

#[test]
fn what_editors_leave_before_json_is_skipped() {
    let plain = read(SNAPSHOT).unwrap();
    for before in ["\n", " \t\r\n", "\u{feff}", "\u{feff}\r\n"] {
        let text = format!("{before}{SNAPSHOT}");
        assert_eq!(read(&text).unwrap(), plain, "{before:?}");
        let parts = [gzip(b""), gzip(text.as_bytes())].concat();
        assert_eq!(read(parts).unwrap().ops, plain.ops, "{before:?}");
    }
}

#[test]
fn a_real_snapshot_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/snapshot/tests/data/torch211_gpt_fixed.pickle.gz");
    let trace = Trace::open(&path).unwrap();
    // 7,497 allocations and 7,197 frees were recorded, and three held blocks are older than the recording.
    assert_eq!(
        (trace.ops.len(), trace.assumed, trace.live_blocks),
        (7_497 + 7_197 + 3, 3, 303)
    );
}
