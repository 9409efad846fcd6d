//! The counted memory of a file is the memory that is allocated.
#![allow(clippy::unwrap_used)]

use super::document::Document;
use super::limits::{Limits, Meter};
use super::values::Converter;
use super::{json, pickle};
use crate::tables::Tables;

fn meter() -> Meter {
    Limits::default().meter(0, 0)
}

/// `{'x': [...]}`, the list's items given as opcodes.
fn list_of(items: &[u8]) -> Vec<u8> {
    [b"\x80\x04}\x8c\x01x](", items, b"es."].concat()
}

/// Small objects of every kind, each 20,000 times, which take many times their size in the file.
#[test]
fn memory_of_pickled_objects_is_counted() {
    for item in [
        b"]".as_slice(),
        b"}",
        b")",
        b"]Na",
        b"]NaNa(NNNNe",
        b"}NNs",
        b"}(NNNNNNu",
        b"NN\x86",
        b"(NNNt",
        b"(NNl",
        b"(NNd",
        b"C\x00",
        b"C\x05abcde",
        b"G\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\x8a\x05\x00\x00\x00\x00\x01",
    ] {
        let (mut document, mut tables, mut meter) = (Document::default(), Tables::default(), meter());
        let text = String::from_utf8_lossy(item);
        pickle::load(
            &list_of(&item.repeat(20_000)),
            &mut document,
            &mut tables,
            &mut meter,
            None,
        )
        .unwrap();
        let (lives, counted) = (document.room() as u64, meter.used());
        assert!(lives > 100_000, "{text}: {lives}");
        // The stack is counted too, at the capacity that it grew to.
        let stack = 3 * 8 * 32_768;
        assert!((lives..=lives + stack).contains(&counted), "{text}: {lives} {counted}");
    }
}

/// A memo entry takes one byte of the file, and more of the memory.
#[test]
fn memory_of_the_memo_is_counted() {
    const ITEMS: usize = 20_000;
    let counted = |item: &[u8]| {
        let (mut document, mut tables, mut meter) = (Document::default(), Tables::default(), meter());
        pickle::load(
            &list_of(&item.repeat(ITEMS)),
            &mut document,
            &mut tables,
            &mut meter,
            None,
        )
        .unwrap();
        meter.used()
    };
    let memo = counted(b"N\x94") - counted(b"N");
    assert!(
        memo >= (ITEMS * size_of::<Option<super::document::Node>>()) as u64,
        "{memo}"
    );
}

/// Each event is a document of its own, which is freed before the next one.
#[test]
fn memory_of_finished_json_events_is_released() {
    let event = r#"{"action": "snapshot", "time_us": 1795208136043549, "user_metadata": {"a": [1, 2, 3]}, "frames": [], "x": 1}"#;
    let read = |events: usize| {
        let text = format!("{{\"device_traces\": [[{}]]}}", vec![event; events].join(", "));
        let (mut tables, mut meter) = (Tables::default(), meter());
        let (snapshot, _) = json::load(text.as_bytes(), Converter::new(&mut tables, &mut meter, None)).unwrap();
        assert_eq!(snapshot.device_traces[0].len(), events);
        meter.used() as usize
    };
    let (few, many) = (read(10), read(1000));
    assert!(
        many - few < 1100 * size_of::<crate::TraceEntry>(),
        "{few} bytes for 10 events, {many} for 1000"
    );
}
