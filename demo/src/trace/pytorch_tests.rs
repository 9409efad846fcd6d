//! Histories of snapshots: a made-up one with gaps, and a real one.
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

/// Blocks that were live before the recording come first, and gaps do no harm.
#[test]
fn history_of_a_snapshot_is_read() {
    for bytes in [SNAPSHOT.as_bytes().to_vec(), gzip(SNAPSHOT.as_bytes())] {
        let trace = read(&bytes).unwrap();
        let expected = [
            alloc(0, 0, 1000),
            alloc(1, 1, 300),
            alloc(2, 0, 20),
            free(1),
            alloc(1, 0, 50),
            free(1),
            alloc(1, 0, 100),
            free(2),
        ];
        assert_eq!(trace.ops, expected);
        assert_eq!((trace.format, &trace.streams[..]), (Format::PyTorch, &[0, 7][..]));
        assert_eq!((trace.assumed, trace.recorded_failures, trace.other_devices), (4, 1, 0));
        assert_eq!(
            (trace.peak_requested, trace.live_blocks, trace.live_bytes),
            (1320, 2, 1100)
        );
    }
    let one_more = r#""device_traces": [[], [{"action": "alloc", "addr": 9, "size": 7, "stream": 0}], ["#;
    let two = read(SNAPSHOT.replace("\"device_traces\": [[", one_more)).unwrap();
    assert_eq!(
        (two.other_devices, two.ops.len()),
        (1, 7),
        "that of the longest history"
    );
    let large = SNAPSHOT.replace(
        r#""addr": 5120, "size": 100"#,
        r#""addr": 1, "size": 18446744073709551615"#,
    );
    let said = read(&large).unwrap_err().to_string();
    let sum = "request 6 of the history: the sum of all live blocks does not fit into 64 bits; expected a smaller size";
    assert_eq!(said, sum);
    let none = SNAPSHOT.split("\"device_traces\"").next().unwrap().to_owned() + "\"device_traces\": [[]]}";
    assert!(matches!(read(none), Err(Problem::NoHistory { entries: 0 })));
    // A pickle that would import something.
    assert!(matches!(read(b"\x80\x02cos\nsystem\n."), Err(Problem::Snapshot(_))));
}

/// It is read up to its last complete entry. Blocks live at its end may have been allocated in the missing part, so they are
/// not assumed.
#[test]
fn truncated_snapshot_is_read_up_to_its_end() {
    for cut in [2, 100] {
        let said = read(&SNAPSHOT[..cut]).unwrap_err().to_string();
        assert!(
            said.starts_with("is a snapshot that is cut off before its history (JSON: EOF"),
            "{said}"
        );
    }
    let trace = read(&SNAPSHOT[..SNAPSHOT.len() - 1]).unwrap();
    assert_eq!((trace.ops.len(), trace.assumed), (7, 3), "all but the block at 4096");
    assert!(
        trace
            .odd
            .cut
            .is_some_and(|why| why.starts_with("JSON: EOF while parsing an object"))
    );
    let within = SNAPSHOT.find(r#"100, "stream": 0}"#).unwrap();
    let trace = read(&SNAPSHOT[..within]).unwrap();
    assert_eq!((trace.ops.len(), trace.odd.rows), (3, 0));
}

/// Other formats report the line for these.
#[test]
fn contradictions_in_the_history_are_counted_and_reported() {
    let event = |action: &str, size: u64| format!(r#"{{"action": "{action}", "addr": 512, "size": {size}}}"#);
    let odd = |events: &[String]| {
        let history = format!(r#"{{"device_traces": [[], [{}]]}}"#, events.join(","));
        read(history).map(|trace| (trace.ops.len(), trace.odd))
    };
    let whole = [
        event("alloc", 7),
        event("free_requested", 7),
        event("free_completed", 7),
    ];
    let twice = "device 1, entry 3: frees 0x200, which entry 2 freed; nothing was allocated there since";
    let (ops, found) = odd(&[&whole[..], &[event("free_requested", 7)]].concat()).unwrap();
    assert_eq!((ops, found.rows, &*found.first), (2, 1, twice));
    let other = "device 1, entry 1: frees 8 bytes at 0x200, where entry 0 allocated 7";
    let (ops, found) = odd(&[event("alloc", 7), event("free_requested", 8)]).unwrap();
    assert_eq!((ops, found.sizes, &*found.first_size, found.rows), (2, 1, other, 0));
    // An unknown size is not a different one.
    let (ops, found) = odd(&[event("alloc", 7), event("free_requested", 0)]).unwrap();
    assert_eq!((ops, found), (2, Default::default()));
    let (ops, _) = odd(&[event("free_requested", 0), event("alloc", 7)]).unwrap();
    assert_eq!(ops, 1);
    let again = vec![event("free_requested", 7); 5];
    let said = odd(&[&whole[..], &again].concat()).unwrap_err().to_string();
    let most = "; 5 of 8 entries are invalid, too many to replay the rest";
    assert_eq!(said, format!("{twice}{most}"));
}

/// One entry is kept by default, and it is the snapshot's own.
#[test]
fn history_of_one_entry_recorded_nothing() {
    let entry = |action: &str| format!(r#"{{"action": "{action}", "addr": 512, "size": 7}}"#);
    let history = |entries: &str| read(format!(r#"{{"device_traces": [[{entries}]]}}"#));
    for action in ["snapshot", "alloc", "free_completed"] {
        assert!(matches!(
            history(&entry(action)),
            Err(Problem::NoHistory { entries: 1 })
        ));
    }
    let two = format!("{0}, {0}", entry("segment_alloc"));
    let said = history(&two).unwrap_err().to_string();
    let expected =
        "is a snapshot whose history has 2 entries and no request among them: call torch.cuda.memory._record";
    assert!(said.starts_with(expected), "{said}");
}

/// The free between them is not recorded. Blocks of 0 bytes are not operations, so no operation is missing.
#[test]
fn repeated_block_of_0_bytes_misses_no_free() {
    let entry = r#"{"action": "alloc", "addr": 512, "size": 0}"#;
    let trace = read(format!(r#"{{"device_traces": [[{entry}, {entry}]]}}"#)).unwrap();
    assert_eq!((trace.ops.len(), trace.zero_sized, trace.assumed), (0, 2, 0));
}

/// They may be misspelt requests, so they are not counted as irrelevant entries.
#[test]
fn unknown_actions_are_counted_and_named() {
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
    let trace = read_all(&[&known[..], &["oom"]].concat());
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

/// `{"device_traces": [[{"action": ..., "addr": 5, "size": 7}, the same]]}` with an action that is not UTF-8.
#[test]
fn action_that_is_not_text_is_unknown() {
    let pickle = b"\x80\x02}X\x0d\0\0\0device_traces]](}(X\x06\0\0\0actionX\x05\0\0\0fr\xffeeX\x04\0\0\0addrK\x05X\x04\0\0\0sizeK\x07u2eas.";
    let trace = read(pickle).unwrap();
    assert_eq!(
        (trace.unknown_actions, trace.unknown_names.join(", ")),
        (2, "fr\u{fffd}ee".to_owned())
    );
}

#[test]
fn byte_order_mark_and_blanks_before_json_are_skipped() {
    let plain = read(SNAPSHOT).unwrap();
    for before in ["\n", " \t\r\n", "\u{feff}", "\u{feff}\r\n"] {
        let text = format!("{before}{SNAPSHOT}");
        assert_eq!(read(&text).unwrap(), plain, "{before:?}");
        let parts = [gzip(b""), gzip(text.as_bytes())].concat();
        assert_eq!(read(parts).unwrap().ops, plain.ops, "{before:?}");
    }
}

#[test]
fn real_snapshot_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/snapshot/tests/data/torch211_gpt_fixed.pickle.gz");
    let trace = Trace::open(&path).unwrap();
    // 7,497 allocations and 7,197 frees were recorded, and three held blocks are older than the recording.
    assert_eq!(
        (trace.ops.len(), trace.assumed, trace.live_blocks),
        (7_497 + 7_197 + 3, 3, 303)
    );
}
