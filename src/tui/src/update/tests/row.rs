//! Rows of the process table.

use gpumem_channel::BlockState::{Allocated, Free};
use gpumem_channel::{DeviceKind as Published, Life};
use gpumem_probe::{NvmlState, Reading};

use super::sample::*;
use crate::model::{COUNTED_ABOVE, ChannelKey, Ended, Process, SECOND};

#[test]
fn unlisted_process_has_no_figure_and_no_failure() {
    let mut model = model();
    let list = || channels(SECOND, vec![channel(5, &[&[(GIB, Allocated)]])]);
    let mut reported = |event| {
        feed(&mut model, [event, list()]);
        let process = model.world().processes.iter().find(|p| p.pid == 5).unwrap();
        let report = crate::report::text(&model, u16::MAX);
        (process.may_be_counted(), report.contains("failed"))
    };
    assert_eq!(reported(nvml(SECOND, GIB, &[])), (false, false), "not the process");
    assert_eq!(
        reported(nvml_state(SECOND, NvmlState::Ready)),
        (false, false),
        "not the device"
    );
    let unlisted = nvml_but(SECOND, GIB, &[], |gpu| {
        gpu.processes = Reading::Failed("Unknown Error".into());
    });
    assert_eq!(reported(unlisted), (true, true));
}

/// The age is in whole minutes, so that the screen is not drawn more often for it.
#[test]
fn black_box_says_how_long_ago_its_program_ended() {
    let mut ended = channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died);
    ended.last_sign = Some(30 * SECOND);
    let mut model = model();
    let mut reported = |at, last_sign| {
        ended.last_sign = last_sign;
        feed(&mut model, [channels(at, vec![ended.clone()])]);
        model.world().processes[0].ended
    };
    let minutes = |minutes| {
        Some(Ended {
            at: 30 * SECOND,
            minutes,
        })
    };
    assert_eq!(reported(89 * SECOND, Some(30 * SECOND)), minutes(0));
    assert_eq!(reported(211 * SECOND, Some(30 * SECOND)), minutes(3));
    assert_eq!(reported(SECOND, Some(30 * SECOND)), minutes(0), "clocks may differ");
    assert_eq!(reported(89 * SECOND, None), None);
}

/// Otherwise the sum of the column would count it twice, and less memory would seem to have no owner.
#[test]
fn process_with_two_channels_is_counted_once() {
    let mut model = model();
    let first = channel(11, &[&[(9 * GIB, Allocated), (GIB, Free)]]);
    let mut second = channel(11, &[&[(20 * GIB, Allocated)]]);
    second.key = ChannelKey(2, 11);
    let listed = nvml(SECOND, 60 * GIB, &[(11, 31 * GIB)]);
    feed(&mut model, [channels(SECOND, vec![first, second]), listed]);
    let rows: Vec<&Process> = model.world().processes.iter().collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].nvml, Reading::Value(31 * GIB));
    assert_eq!(rows[1].nvml, Reading::Failed(COUNTED_ABOVE.into()));
    assert!(!rows[1].may_be_counted(), "nothing has failed");
    let memory = model.world().devices[0].memory.value().unwrap();
    assert_eq!((memory.allocated, memory.cached), (29 * GIB, GIB));
    // 60 GiB less the process and what the driver keeps.
    let findings = &model.world().findings;
    let is_unowned = |text: &str| text.contains("29.0 GiB are in use, but by no process NVML lists");
    assert!(findings.iter().any(|f| is_unowned(&f.text)), "{findings:?}");
    let uncounted = nvml_but(2 * SECOND, 60 * GIB, &[(11, 0)], |gpu| {
        if let Reading::Value(list) = &mut gpu.processes {
            list[0].used = Reading::NotSupported;
        }
    });
    feed(&mut model, [uncounted]);
    let mut rows = model.world().processes.iter();
    assert!(rows.all(|row| row.nvml == Reading::NotSupported), "in neither row");
}
