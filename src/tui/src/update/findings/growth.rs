//! Findings about processes that hold more and more.

use gpumem_text::units;

use super::{Ranked, finding_about};
use crate::model::{About, Basis, PERIOD, Process, Severity, Stage, World};

/// Returns a finding for each process that holds more and more. The bytes at stake are what it holds. The text changes with each
/// [`PERIOD`], not with each sample.
pub(super) fn about_growth(world: &World) -> Vec<Ranked> {
    let alive = world.processes.iter().filter(|process| process.state.alive());
    alive.filter_map(|process| about(world, process)).collect()
}

fn about(world: &World, process: &Process) -> Option<Ranked> {
    let rise = world.growth.get(&process.id)?.rise()?;
    let name = world.name_of(process);
    let what = match process.figures {
        Some(_) => "the least that it has allocated",
        None => "what NVML counts for it",
    };
    let risen = format!(
        "{what} has risen for {}, from {} to {}",
        units::span(rise.time - rise.time % PERIOD),
        units::bytes(rise.from),
        units::bytes(rise.to)
    );
    let (severity, text) = match rise.stage {
        Stage::Rising => (Severity::Info, format!("{name}: {risen}")),
        Stage::Confirmed => {
            let rate = rise.per_minute();
            let full = full_in(world, process, rate).map_or(String::new(), |minutes| {
                let when = match minutes {
                    0 => "in less than a minute".to_owned(),
                    minutes => format!("in about {}", units::age(minutes * 60 * 1_000_000_000)),
                };
                format!("; {} is full {when}", process.device_label)
            });
            let rate = units::bytes(rate);
            (
                Severity::Warning,
                format!("{name}: a leak, or a cache without a limit: {risen}, {rate} a minute{full}"),
            )
        }
    };
    Some((rise.to, finding_about(About::Growth, severity, Some(process.id), text)))
}

/// Returns the minutes until the device is full, if that is less than a day.
fn full_in(world: &World, process: &Process, per_minute: u64) -> Option<u64> {
    let device = world.devices.iter().find(|device| device.key == process.id.device)?;
    let memory = device
        .memory
        .value()
        .filter(|memory| memory.basis == Basis::Driver || process.simulated)?;
    let minutes = memory.free.checked_div(per_minute)?;
    (minutes < 24 * 60).then_some(minutes)
}
