//! Rows of the process table.

use gpumem_channel::BlockState::Allocated;
use gpumem_probe::{NvmlState, Reading};

use super::sample::*;
use crate::event::Event;
use crate::model::SECOND;

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
