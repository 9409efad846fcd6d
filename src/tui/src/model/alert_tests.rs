#![allow(clippy::unwrap_used)]

use gpumem_probe::{Gpu, Memory, NvmlSample, NvmlState, Reading};
use proptest::prelude::*;

use super::*;
use crate::event::Event;
use crate::model::{Figures, Model, Owner, ProcessId, ProcessState, RanOut, SECOND, Sample};
use crate::update::update;

const GIB: u64 = 1 << 30;

fn alert(condition: Condition, hold: Nanos) -> Alert {
    Alert {
        device: None,
        condition,
        hold,
        bell: false,
        command: Vec::new(),
    }
}

/// The model of a machine whose card has this much free of 100 GiB at `at`; `None` if the driver does not tell.
fn sample(model: &mut Model, at: Nanos, free: Option<u64>) {
    let memory = free.map_or(Reading::NotSupported, |free| {
        Reading::Value(Memory {
            total: 100 * GIB,
            used: Some((100 - free) * GIB),
            free: Some(free * GIB),
            ..Memory::default()
        })
    });
    let sample = NvmlSample {
        state: NvmlState::Ready,
        gpus: vec![Gpu {
            uuid: Some([7; 16]),
            memory,
            ..Gpu::default()
        }],
        ..NvmlSample::default()
    };
    update(model, at, Event::sampled(at, Sample::Nvml(sample)));
}

/// Returns the seconds at which an alert fires, with a sample a second of what is free.
fn fires(alert: Alert, free: &[Option<u64>]) -> Vec<usize> {
    let (mut model, mut alerts) = (Model::default(), Alerts::new(vec![alert], 0));
    let mut fired = Vec::new();
    for (second, free) in free.iter().enumerate() {
        let at = (second as u64 + 1) * SECOND;
        sample(&mut model, at, *free);
        if !alerts.judge(&model.live, at).is_empty() {
            fired.push(second);
        }
    }
    fired
}

#[test]
fn conditions_have_sharp_limits() {
    let now = |condition, free| fires(alert(condition, 0), &[Some(free)]) == [0];
    assert!(now(Condition::UsedPercent(89.9), 10) && !now(Condition::UsedPercent(90.0), 10));
    assert!(now(Condition::FreeBelow(10 * GIB + 1), 10) && !now(Condition::FreeBelow(10 * GIB), 10));
}

#[test]
fn condition_has_to_hold_and_to_be_gone_for_a_while() {
    let alert = alert(Condition::FreeBelow(10 * GIB), 3 * SECOND);
    let (low, high) = (Some(5), Some(50));
    // Two seconds are too short; from second 3 on it holds until it fires at 6, and goes on.
    let free = [
        low, low, high, low, low, low, low, low, high, low, high, high, high, high, low, low, low, low,
    ];
    assert_eq!(fires(alert.clone(), &free), [6, 17]);
    // What is not known is neither.
    assert_eq!(fires(alert.clone(), &[low, low, None, low, low, low]), [0; 0]);
    let unknown = [low, low, low, low, high, high, None, high, high, low, low, low, low];
    assert_eq!(
        fires(alert, &unknown),
        [3],
        "not known at second 6, so not gone for three seconds"
    );
}

/// The driver hangs: the last figures stand still.
#[test]
fn old_figures_fire_nothing() {
    let hold = 5 * SECOND;
    let mut model = Model::default();
    let mut alerts = Alerts::new(vec![alert(Condition::FreeBelow(10 * GIB), hold)], 0);
    sample(&mut model, SECOND, Some(5));
    for second in 1..20 {
        assert!(alerts.judge(&model.live, second * SECOND).is_empty(), "{second}");
    }
}

#[test]
fn failed_requests_fire_at_once_and_a_series_of_them_fires_once() {
    let mut model = Model::default();
    let mut alerts = Alerts::new(vec![alert(Condition::OutOfMemory, 3 * SECOND)], SECOND);
    let mut fired = Vec::new();
    // Seconds of the last failed request: one before the dashboard began, a series, one later, and one of another clock.
    for (now, failed) in [
        (2, 1),
        (3, 3),
        (4, 4),
        (5, 4),
        (6, 6),
        (7, 6),
        (8, 6),
        (9, 6),
        (10, 6),
        (11, 11),
        (12, 99),
    ] {
        sample(&mut model, now * SECOND, Some(50));
        let process = Process {
            figures: Some(Figures {
                ran_out: Some(RanOut {
                    at: failed * SECOND,
                    requested: 2 * GIB,
                    ..RanOut::default()
                }),
                ..Figures::default()
            }),
            ..process(model.live.devices[0].key)
        };
        model.live.processes = vec![process];
        fired.extend(
            alerts
                .judge(&model.live, now * SECOND)
                .into_iter()
                .map(|fired| (now, fired)),
        );
    }
    assert_eq!(fired.iter().map(|(now, _)| *now).collect::<Vec<_>>(), [3, 11]);
    let (_, first) = &fired[0];
    assert_eq!(
        first.text,
        "GPU 0: a request of 2.0 GiB of process 4121 failed for lack of memory"
    );
    assert_eq!(first.pid, Some(4121));
}

fn process(device: DeviceKey) -> Process {
    Process {
        id: ProcessId {
            device,
            owner: Owner::Pid(4121, 1),
        },
        pid: 4121,
        device_label: "GPU 0".into(),
        user: String::new(),
        command: String::new(),
        label: String::new(),
        job: String::new(),
        rank: None,
        world_size: None,
        parent: None,
        nvml: Reading::NotSupported,
        figures: None,
        managed: Reading::NotSupported,
        state: ProcessState::Publishing,
        stopped: None,
        mps: false,
        simulated: false,
        failing: None,
        ended: None,
        hints: [].into(),
    }
}

#[test]
fn only_the_chosen_device_is_judged() {
    for (device, expected) in [
        (Only::Index(0), 1),
        (Only::Index(1), 0),
        (Only::Uuid("GPU-0707".into()), 1),
        (Only::Uuid("GPU-08".into()), 0),
    ] {
        let alert = Alert {
            device: Some(device.clone()),
            ..alert(Condition::UsedPercent(50.0), 0)
        };
        assert_eq!(fires(alert, &[Some(5)]).len(), expected, "{device:?}");
    }
}

#[test]
fn fired_alert_says_what_happened() {
    let (mut model, mut alerts) = (
        Model::default(),
        Alerts::new(
            vec![
                alert(Condition::UsedPercent(90.0), 0),
                alert(Condition::FreeBelow(8 * GIB), 0),
            ],
            0,
        ),
    );
    sample(&mut model, SECOND, Some(5));
    let fired = alerts.judge(&model.live, SECOND);
    let texts: Vec<&str> = fired.iter().map(|fired| fired.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "GPU 0: more than 90% of the memory was used: 95.0 GiB of 100.0 GiB now",
            "GPU 0: less than 8 GiB was free: 5.0 GiB of 100.0 GiB now",
        ]
    );
    assert_eq!(
        (fired[1].alert, fired[1].condition, fired[1].pid),
        (1, "free_below", None)
    );
    assert!(fired[0].uuid.as_deref().unwrap().starts_with("GPU-0707"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However the condition flaps: before an alert fires the condition held for the whole time, and between two times it was gone for the
    /// whole time. The samples come at any moments.
    #[test]
    fn alert_does_not_flap(
        steps in prop::collection::vec((1u64..5, prop::option::of(any::<bool>())), 1..200),
        before in 0u64..10,
        after in 0u64..10,
    ) {
        let mut state = State::Armed { since: None };
        let mut seen: Vec<(u64, Option<bool>)> = Vec::new();
        let (mut now, mut last_fired) = (0, None);
        for (step, holds) in steps {
            now += step;
            seen.push((now, holds));
            let (next, fires) = state.next(holds, now, before, after);
            state = next;
            // The longest run of this value that ends at a sample, as a naive model would find it.
            let run = |value: bool, until: usize| {
                let first = seen[..=until].iter().rposition(|(_, holds)| *holds != Some(value)).map_or(0, |n| n + 1);
                (first <= until).then(|| seen[until].0 - seen[first].0)
            };
            if fires {
                prop_assert!(run(true, seen.len() - 1).is_some_and(|long| long >= before));
                if let Some(last) = last_fired {
                    let gone = (last..seen.len()).any(|n| run(false, n).is_some_and(|long| long >= after));
                    prop_assert!(gone, "it was not gone for {} since {}", after, seen[last].0);
                }
                last_fired = Some(seen.len() - 1);
            }
            // It does fire, if it is armed and the condition holds for long enough.
            if last_fired.is_none() {
                prop_assert!(run(true, seen.len() - 1).is_none_or(|long| long < before));
            }
        }
    }
}
