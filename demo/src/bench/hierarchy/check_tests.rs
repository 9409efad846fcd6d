#![allow(clippy::unwrap_used)]

use gpumem_text::is_harmful;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::bench::hierarchy::example;
use crate::bench::hierarchy::kept::{keep_in, kept_in};

/// Returns the example as JSON, with one value replaced.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = serde_json::to_value(example()).unwrap();
    *document
        .pointer_mut(pointer)
        .unwrap_or_else(|| unreachable!("{pointer}")) = value;
    document
}

fn checked(document: Value) -> Result<Report, String> {
    let report: Report = serde_json::from_value(document).map_err(|error| error.to_string())?;
    report.checked().map_err(|error| error.to_string())
}

#[test]
fn values_that_cannot_be_true_are_refused() {
    let level = serde_json::to_value(&example().levels[4]).unwrap();
    let cases = [
        ("/schema", json!("gpumem-hierarchy/2")),
        ("/card/uuid", json!("")),
        ("/card/uuid", json!("../x")),
        ("/card/driver", json!("")),
        ("/card/sms", json!(0)),
        ("/card/sms", json!(-1)),
        ("/card/memory_bytes", json!(u64::MAX)),
        ("/date", json!(u64::MAX)),
        ("/duration_ms", json!(u64::MAX)),
        ("/sm_mhz", json!(-1.0)),
        ("/sm_mhz", json!(1e300)),
        ("/levels/4/latency/ns", json!(0.0)),
        ("/levels/4/latency/ns", json!(1e9)),
        ("/levels/4/latency/least_ns", json!(1e9)),
        ("/levels/4/latency/bytes", json!(1u64 << 51)),
        ("/levels/4/rung", json!("l2-near")),
        ("/levels/4/rung", json!("tape")),
        ("/levels/4/rung", json!("peer")),
        ("/levels/4/peer", json!(1)),
        ("/levels/4/bandwidths/0/gb_per_s", json!(1.0)),
        ("/levels/4/published/0/ns", json!([300.0, 200.0])),
        ("/levels/4/published/0/ns", json!([300.0])),
        ("/levels", Value::from(vec![level; 2])),
        ("/curve/3/bytes", json!(1)),
        ("/curve/3/ns", json!(null)),
        ("/spread/by_sm/3", json!([0, 140.0])),
        ("/spread/median_ns", json!(1.0)),
        ("/spread/by_sm", (0..1000).map(|sm| json!([sm, 140.0])).collect()),
    ];
    assert!(checked(serde_json::to_value(example()).unwrap()).is_ok());
    for (pointer, value) in cases {
        assert!(checked(with(pointer, value.clone())).is_err(), "{pointer} {value}");
    }
    assert!(
        serde_json::from_str::<Report>("{\"sm_mhz\":1e999}").is_err(),
        "infinity"
    );
}

#[test]
fn texts_are_cleaned_and_cut() {
    let hostile = format!("\x1b[2J\u{202e}H200{}", "x".repeat(1000));
    for pointer in [
        "/card/name",
        "/card/driver",
        "/levels/4/note",
        "/levels/4/latency/load",
        "/levels/4/published/0/card",
    ] {
        let report = checked(with(pointer, json!(hostile))).unwrap();
        let text = report.text();
        assert!(text.chars().all(|c| c == '\n' || !is_harmful(c)), "{pointer}");
        let written = serde_json::to_value(&report).unwrap();
        let length = written.pointer(pointer).unwrap().as_str().unwrap().chars().count();
        assert!(length <= LONG, "{pointer} {length}");
    }
}

/// Values to put in place of others.
fn hostile_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!("\x1b]0;title\x07".repeat(100))),
        Just(json!([])),
        Just(json!({})),
        proptest::collection::vec(any::<f64>().prop_map(Value::from), 0..4).prop_map(Value::from),
    ]
}

/// Returns the pointers to all values of a document.
fn pointers(document: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match document {
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), found)),
        Value::Array(list) => list
            .iter()
            .zip(0..)
            .for_each(|(value, index)| pointers(value, &format!("{at}/{index}"), found)),
        _ => {}
    }
}

/// Whatever passes the checks can be shown, and passes them again unchanged.
fn holds(report: &Report) {
    assert!(report.text().chars().all(|c| c == '\n' || !is_harmful(c)));
    assert_eq!(report.clone().checked().as_ref(), Ok(report));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn document_with_any_values_is_refused_or_sound(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), hostile_value()), 1..4),
    ) {
        let mut document = serde_json::to_value(example()).unwrap();
        for (index, value) in changes {
            let mut all = Vec::new();
            pointers(&document, "", &mut all);
            *document.pointer_mut(&all[index.index(all.len())]).unwrap() = value;
        }
        if let Ok(report) = checked(document) {
            holds(&report);
        }
    }

    #[test]
    fn damaged_file_is_refused_or_sound(
        cut in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        whole: bool,
    ) {
        let mut bytes = serde_json::to_vec(&example()).unwrap();
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(report) = serde_json::from_slice::<Report>(&bytes)
            && let Ok(report) = report.checked()
        {
            holds(&report);
        }
    }

    #[test]
    fn kept_report_is_read_back_unchanged(
        factor in 0.01f64..100.0,
        date in 0u64..MOST_SECONDS,
        load_ms in proptest::option::of(0f64..1e6),
        name in any::<String>(),
    ) {
        let mut report = example();
        (report.date, report.load_ms, report.card.name) = (date, load_ms, name);
        for level in &mut report.levels {
            for latency in level.latency.iter_mut().chain(&mut level.other_latencies) {
                for figure in [&mut latency.cycles, &mut latency.ns, &mut latency.least_ns, &mut latency.most_ns] {
                    *figure *= factor;
                }
            }
        }
        let report = report.checked().unwrap();
        let home = tempfile::tempdir().unwrap();
        keep_in(home.path(), &report).unwrap();
        let found = kept_in(home.path());
        prop_assert!(found.errors.is_empty(), "{:?}", found.errors);
        prop_assert_eq!(&found.reports[0].report, &report);
    }
}
