//! Reading truncated files and files with malformed entries.

use gpumem_snapshot::{Damage, Snapshot};
use serde_json::{Value, json as literal};

use crate::common::pickle;

/// A snapshot whose entries are all different.
fn whole(entries: usize) -> Value {
    let entry =
        |n: usize| literal!({"action": "alloc", "addr": 4096 * n, "size": n, "stream": 0, "time_us": n, "frames": []});
    let trace: Vec<Value> = (1..=entries).map(entry).collect();
    literal!({
        "segments": [{"address": 4096, "total_size": 512, "blocks": [{"size": 512, "state": "inactive"}]}],
        "device_traces": [[], trace, []],
        "allocator_settings": {"a": "b"},
    })
}

/// Returns the sizes of the second device's entries.
fn sizes(snapshot: &Snapshot) -> Vec<u64> {
    let trace = snapshot.device_traces.get(1).map_or(&[][..], Vec::as_slice);
    trace.iter().map(|entry| entry.size).collect()
}

/// Wherever a file is truncated, a prefix of its entries is read, and the truncation is reported.
#[test]
fn truncated_file_is_read_up_to_its_end() {
    let json = whole(9).to_string().into_bytes();
    let pickled = pickle(&Snapshot::from_bytes(&json).unwrap());
    let all: Vec<u64> = (1..=9).collect();
    for file in [json, pickled] {
        let (snapshot, damage) = Snapshot::from_damaged(&file).unwrap();
        assert_eq!(
            (sizes(&snapshot), damage, snapshot.segments.len()),
            (all.clone(), Damage::default(), 1)
        );
        let (mut longest, mut read) = (0, 0);
        for length in 0..file.len() {
            let Ok((snapshot, damage)) = Snapshot::from_damaged(&file[..length]) else {
                continue;
            };
            let sizes = sizes(&snapshot);
            assert!(damage.cut.is_some() && damage.odd_entries == 0, "{length}: {damage:?}");
            assert!(all.starts_with(&sizes) && sizes.len() >= longest, "{length}: {sizes:?}");
            assert_eq!(snapshot.segments, []);
            (longest, read) = (sizes.len(), read + 1);
        }
        assert!(
            longest == 9 && read > file.len() / 2,
            "{longest} {read} of {}",
            file.len()
        );
    }
}

#[test]
fn malformed_entries_are_left_out_and_reported() {
    let mut value = whole(4);
    let trace = &mut value["device_traces"][1];
    trace[1]["size"] = literal!(-1);
    trace[2] = literal!("x");
    let json = value.to_string().into_bytes();
    assert!(Snapshot::from_bytes(&json).is_err());
    let (snapshot, damage) = Snapshot::from_damaged(&json).unwrap();
    assert_eq!(
        (sizes(&snapshot), damage.odd_entries, damage.more),
        (vec![1, 4], 2, false)
    );
    let first = "device_traces[1][1].size: expected a number of bytes or microseconds, found -1";
    assert_eq!(damage.first_odd.as_deref(), Some(first));
    // {"device_traces": [[5, 6]]}
    let pickled = b"\x80\x04}\x8c\x0ddevice_traces]](K\x05K\x06eas.";
    let (snapshot, damage) = Snapshot::from_damaged(pickled).unwrap();
    assert_eq!((snapshot.device_traces.len(), damage.odd_entries), (1, 2));
    assert_eq!(
        damage.first_odd.as_deref(),
        Some("device_traces[0][0]: expected a dict, found 5")
    );
}

#[test]
fn data_after_a_snapshot_is_reported() {
    let json = whole(2).to_string();
    let pickled = pickle(&Snapshot::from_bytes(json.as_bytes()).unwrap());
    for file in [json.into_bytes(), pickled] {
        let twice = file.repeat(2);
        let (snapshot, damage) = Snapshot::from_damaged(&twice).unwrap();
        assert_eq!((sizes(&snapshot), damage.more, damage.cut), (vec![1, 2], true, None));
    }
}
