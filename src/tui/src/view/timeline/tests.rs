#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::{DeviceKey, DeviceState, History, Point, Sensors};
use gpumem_probe::Reading;

fn device(samples: &[(Nanos, u64)]) -> Device {
    let mut history = History::default();
    for &(at, allocated) in samples {
        let memory = Partition {
            total: 100,
            allocated,
            free: 100 - allocated,
            ..Partition::default()
        };
        history.push(Point { at, memory });
    }
    Device {
        key: DeviceKey::NvmlIndex(0),
        kind: DeviceKind::Nvml,
        label: "GPU 0".into(),
        name: String::new(),
        uuid: None,
        pci: String::new(),
        state: DeviceState::Present,
        memory: Reading::Pending,
        shared_with_host: false,
        sensors: Sensors::default(),
        mig: vec![],
        publishers: 1,
        history,
    }
}

fn allocated(device: &Device, window: Window, patience: Nanos) -> Vec<Option<u64>> {
    columns(device, window, patience)
        .into_iter()
        .map(|m| m.map(|m| m.allocated))
        .collect()
}

#[test]
fn a_column_shows_the_fullest_of_its_samples_and_gaps_are_bridged_only_while_short() {
    let device = device(&[(10, 1), (12, 9), (19, 3), (30, 5), (70, 7)]);
    let window = Window::new(70, 79, 7);
    assert_eq!(window.start(0), 10);
    let some = |n| Some(n);
    assert_eq!(
        allocated(&device, window, 10),
        [some(9), some(9), some(5), some(5), None, None, some(7)]
    );
    assert_eq!(
        allocated(&device, window, 0),
        [some(9), None, some(5), None, None, None, some(7)]
    );
}

#[test]
fn memory_held_before_the_window_is_still_held_at_its_left_edge() {
    let device = device(&[(5, 4), (35, 6)]);
    assert_eq!(
        allocated(&device, Window::new(40, 49, 4), 100),
        [Some(4), Some(4), Some(6), None]
    );
}

#[test]
fn a_sample_keeps_its_bucket_when_time_goes_on() {
    let (a, b) = (Window::new(60, 1000, 20), Window::new(60, 1004, 20));
    assert_eq!(a.bucket, b.bucket);
    for at in 950..1000 {
        if let (Some(x), Some(y)) = (a.column(at), b.column(at)) {
            assert_eq!(u64::from(x) + a.first, u64::from(y) + b.first);
        }
    }
    assert_eq!(a.column(0), None);
    assert_eq!(a.column(u64::MAX), None);
}

#[test]
fn windows_of_any_shape_are_sound() {
    for (span, end, columns) in [
        (0, 0, 0),
        (1, 0, 300),
        (u64::MAX, u64::MAX, 1),
        (60, 3, 20),
        (5, u64::MAX, 65_535),
    ] {
        let window = Window::new(span, end, columns);
        if columns > 0 && end < u64::MAX {
            assert!(window.column(end).is_some(), "{window:?}");
        }
        assert!((0..columns.min(300)).all(|c| window.start(c) >= window.first));
    }
}

#[test]
fn every_span_is_divided_into_round_times() {
    use crate::model::TimelineUi;
    let steps: Vec<u64> = TimelineUi::SPANS
        .iter()
        .map(|&span| span / time_steps(span, 100) / SECOND)
        .collect();
    assert_eq!(steps, [3, 15, 30, 60, 120]);
}

#[test]
fn an_unused_device_has_all_of_its_memory_as_its_axis() {
    assert_eq!(top_of(0, 80 << 30), 80 << 30);
    assert_eq!(top_of(3 << 30, 80 << 30), 4 << 30);
    assert_eq!(top_of(80 << 30, 80 << 30), 80 << 30);
}

/// What an axis says of a line is where the line is.
#[test]
fn a_memory_axis_has_round_steps() {
    for power in 10..40 {
        for top in [1u64 << power, 3 << (power - 1)] {
            let steps = memory_steps(top, 20);
            let exact = |step: u64| {
                let label = units::bytes_short(top / steps * step);
                let (figure, unit) = label.split_at(label.len() - 1);
                let shift = "KMGT".find(unit).map_or(0, |at| 10 * (at as u32 + 1));
                let figure: f64 = if shift == 0 { label.parse() } else { figure.parse() }.unwrap();
                (figure * (1u64 << shift) as f64) as u64 == top / steps * step
            };
            assert!((1..=steps).all(exact), "{top}");
        }
    }
}

#[test]
fn what_was_not_kept_is_not_said_to_be_lost() {
    use super::events::missing;
    assert!(missing(0, 0).is_empty());
    assert_eq!(missing(0, 1200), ["1,200 events not kept"]);
    assert_eq!(missing(5, 0), ["5 events lost"]);
    assert_eq!(missing(1, 7), ["1 event lost, 7 not kept", "1 event lost"]);
}

/// A run of the same program is told by the same colours, whichever tag is large at the moment.
#[test]
fn tags_keep_their_looks_and_end_with_the_newest_figures() {
    use crate::model::{ChannelKey, Owner, ProcessId, TagPast, TagPoint};
    let mut past = TagPast::new(ProcessId {
        device: DeviceKey::NvmlIndex(0),
        owner: Owner::Channel(ChannelKey(1, 1)),
    });
    let mut add = |at, tags: [(&str, u64); 2]| {
        past.points.push_back(TagPoint {
            at,
            tags: tags.map(|(name, bytes)| (name.into(), bytes)).into(),
            rest: 0,
        });
    };
    add(10, [("weights", 9), ("activations", 1)]);
    add(20, [("activations", 12), ("weights", 9)]);
    // Read after the device's last sample.
    add(90, [("weights", 8), ("activations", 0)]);
    let layers = |ends: bool| -> Vec<(String, Ink, u64)> {
        let stack = tags::Stack::new(&past, Window::new(20, 29, 2), 10, ends);
        stack.layers()
    };
    let layer = |name: &str, ink, bytes| (name.to_owned(), ink, bytes);
    let [activations, weights] = [Ink::Tag(0), Ink::Tag(1)];
    assert_eq!(
        layers(true),
        [layer("weights", weights, 8), layer("activations", activations, 0)]
    );
    assert_eq!(
        layers(false),
        [layer("weights", weights, 9), layer("activations", activations, 12)]
    );
}
