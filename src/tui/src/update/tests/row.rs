//! Rows of the process table.

use gpumem_channel::BlockState::Allocated;
use gpumem_channel::{DeviceKind as Published, Life};
use gpumem_probe::{NvmlState, Reading};

use super::sample::*;
use crate::event::Event;
use crate::model::{Ended, SECOND};

#[test]
fn who_is_not_in_the_drivers_list_has_no_figure_and_no_failure() {
    let mut model = model();
    let list = || channels(SECOND, vec![channel(5, &[&[(GIB, Allocated)]])]);
    let mut told = |event| {
        feed(&mut model, [event, list()]);
        let process = model.world().processes.iter().find(|p| p.pid == 5).unwrap();
        let report = crate::report::text(&model, u16::MAX);
        (process.may_be_counted(), report.contains("failed"))
    };
    assert_eq!(told(nvml(SECOND, GIB, &[])), (false, false), "not the process");
    assert_eq!(
        told(nvml_state(SECOND, NvmlState::Ready)),
        (false, false),
        "not the device"
    );
    let Event::Nvml { mut sample, .. } = nvml(SECOND, GIB, &[]) else {
        panic!()
    };
    sample.gpus[0].processes = Reading::Failed("Unknown Error".into());
    assert_eq!(told(Event::Nvml { at: SECOND, sample }), (true, true));
}

/// To the minute: it is not drawn more often for that.
#[test]
fn a_black_box_tells_how_long_ago_its_program_ended() {
    let mut ended = channel_on(5, &[&[(GIB, Allocated)]], Published::Cuda, Life::Died);
    ended.last_sign = Some(30 * SECOND);
    let mut model = model();
    let mut told = |at, last_sign| {
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
    assert_eq!(told(89 * SECOND, Some(30 * SECOND)), minutes(0));
    assert_eq!(told(211 * SECOND, Some(30 * SECOND)), minutes(3));
    assert_eq!(told(SECOND, Some(30 * SECOND)), minutes(0), "clocks may differ");
    assert_eq!(told(89 * SECOND, None), None);
}
