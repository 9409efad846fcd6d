use gpumem_probe::Reading;

use super::*;
use crate::model::{DeviceKey, DeviceKind, DeviceState, History, Partition, Point, SECOND, Sensors, Step};

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
        host: None,
        part_of: None,
        publishers: 1,
        history,
    }
}

/// Returns the least and the most allocated bytes of each column.
fn allocated(device: &Device, window: Window, max_gap: Nanos) -> Vec<Option<(u64, u64)>> {
    let columns = columns(device, window, max_gap).into_iter();
    columns
        .map(|tops| tops.map(|tops| (tops.least[0], tops.most[0])))
        .collect()
}

#[test]
fn columns_show_the_least_and_the_most_and_bridge_short_gaps() {
    let device = device(&[(10, 1), (12, 9), (19, 3), (30, 5), (70, 7)]);
    let window = Window::new(70, 79, 7);
    assert_eq!(window.start(0), 10);
    let (first, one) = (Some((1, 9)), |n| Some((n, n)));
    // A gap has what was held last.
    assert_eq!(
        allocated(&device, window, 10),
        [first, one(3), one(5), one(5), None, None, one(7)]
    );
    assert_eq!(
        allocated(&device, window, 0),
        [first, None, one(5), None, None, None, one(7)]
    );
}

#[test]
fn memory_held_before_the_window_is_shown_at_its_start() {
    let device = device(&[(5, 4), (35, 6)]);
    assert_eq!(
        allocated(&device, Window::new(40, 49, 4), 100),
        [Some((4, 4)), Some((4, 4)), Some((6, 6)), None]
    );
}

/// The fullest sample of each column would rise and fall with the distance between the period and the columns.
#[test]
fn saw_of_any_period_has_no_trend() {
    for period in [3, 7, 9, 10, 11, 13] {
        let samples: Vec<(Nanos, u64)> = (0..600).map(|n| (n * SECOND, 20 + n % period)).collect();
        let device = device(&samples);
        let columns = allocated(&device, Window::new(600 * SECOND, 600 * SECOND - 1, 30), 0);
        let all = Some((20, 20 + period - 1));
        assert_eq!(columns, [all; 30], "{period}");
    }
}

#[test]
fn sample_keeps_its_bucket_as_time_passes() {
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
fn windows_of_any_size_are_sound() {
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

/// A column that a step only touches is its own, and what was sampled has precedence.
#[test]
fn what_publishers_held_fills_the_columns_before_the_first_sample() {
    let mut device = device(&[(50, 7)]);
    let step = |at, until, allocated| Step {
        at,
        until,
        allocated,
        reserved: allocated,
    };
    let steps = [step(3, 12, 4), step(12, 20, 9), step(30, 31, 2), step(45, 60, 90)];
    device.history.add_past(&steps, 0);
    device.memory = Reading::Value(Partition {
        total: 100,
        ..Partition::default()
    });
    let window = Window::new(60, 59, 6);
    assert_eq!(
        allocated(&device, window, 0),
        [
            Some((4, 4)),
            Some((4, 9)),
            None,
            Some((2, 2)),
            Some((90, 90)),
            Some((7, 7))
        ]
    );
    assert_eq!(device.history.reach(), 47);
    let told = |from, to| device.history.told_until(from, to);
    assert_eq!((told(0, 60), told(20, 30), told(51, 60)), (Some(50), None, None));
}

/// The span is longer than the machine is up.
#[test]
fn newest_figures_are_at_the_right_edge_also_shortly_after_the_start_of_the_clock() {
    let mut device = device(&[(25, 7)]);
    device.history.add_past(
        &[Step {
            at: 4,
            until: 20,
            allocated: 3,
            reserved: 3,
        }],
        0,
    );
    let window = Window::new(100, 29, 10);
    assert_eq!(
        (window.first, window.lead, window.column(25), window.start(9)),
        (0, 7, Some(9), 20)
    );
    let mut expected = vec![None; 7];
    expected.extend([Some((3, 3)), Some((3, 3)), Some((7, 7))]);
    assert_eq!(allocated(&device, window, 0), expected);
}
