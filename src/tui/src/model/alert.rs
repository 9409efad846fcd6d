//! Alerts: conditions of devices that the user wants to be told of. They are judged with each sample, from the world and the time alone.

use std::collections::BTreeMap;

use gpumem_text::units;

use super::device::{Device, DeviceKey, DeviceState};
use super::inputs::SourceId;
use super::only::Only;
use super::partition::{Basis, Partition};
use super::world::World;
use super::{Nanos, Process};

#[cfg(test)]
#[path = "alert_tests.rs"]
mod tests;

/// An alert as the user configured it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Alert {
    /// The device; `None` for each.
    pub device: Option<Only>,
    /// When it fires.
    pub condition: Condition,
    /// How long the condition has to hold before it fires, and how long it has to be gone before it may fire again.
    pub hold: Nanos,
    /// Whether the terminal's bell rings.
    pub bell: bool,
    /// A command to run with its arguments; empty for none.
    pub command: Vec<String>,
}

/// A condition of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Condition {
    /// More than this share of the memory is used, in percent.
    UsedPercent(f64),
    /// Less than this many bytes are free.
    FreeBelow(u64),
    /// A request of a program that publishes failed. It is an event, so the alert fires at once.
    OutOfMemory,
}

impl Condition {
    /// Returns its name, as in the configuration.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Condition::UsedPercent(_) => "used_percent",
            Condition::FreeBelow(_) => "free_below",
            Condition::OutOfMemory => "out_of_memory",
        }
    }
}

/// An alert that fires now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fired {
    /// Its place in the configuration.
    pub alert: usize,
    /// The label of the device.
    pub device: String,
    /// The UUID of the device, if it has one.
    pub uuid: Option<String>,
    /// The name of the condition.
    pub condition: &'static str,
    /// The device's memory, if it is known.
    pub memory: Option<Partition>,
    /// The process whose request failed.
    pub pid: Option<u32>,
    /// What happened, in a sentence.
    pub text: String,
}

/// Whether an alert may fire on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It may. The condition holds since then, if it does.
    Armed { since: Option<Nanos> },
    /// It has fired. The condition is gone since then, if it is.
    Fired { gone: Option<Nanos> },
}

impl State {
    /// Returns the state after a sample, and whether the alert fires. `holds` is `None` while the figures are not known: what is not seen
    /// neither holds nor is gone for a while.
    fn next(self, holds: Option<bool>, now: Nanos, before: Nanos, after: Nanos) -> (State, bool) {
        let passed = |since: Nanos, hold: Nanos| now.saturating_sub(since) >= hold;
        match (self, holds) {
            (State::Armed { since }, Some(true)) => {
                let since = since.unwrap_or(now);
                match passed(since, before) {
                    true => (State::Fired { gone: None }, true),
                    false => (State::Armed { since: Some(since) }, false),
                }
            }
            (State::Fired { gone }, Some(false)) => {
                let gone = gone.unwrap_or(now);
                match passed(gone, after) {
                    true => (State::Armed { since: None }, false),
                    false => (State::Fired { gone: Some(gone) }, false),
                }
            }
            (State::Armed { .. }, _) => (State::Armed { since: None }, false),
            (State::Fired { .. }, _) => (State::Fired { gone: None }, false),
        }
    }
}

/// The alerts with their states.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alerts {
    list: Vec<Alert>,
    /// By the alert's place and the device.
    states: BTreeMap<(usize, DeviceKey), State>,
    /// The time up to which failed requests were judged.
    judged: Nanos,
}

impl Alerts {
    /// Arms the alerts. Requests that failed before `now` do not count.
    pub(crate) fn new(list: Vec<Alert>, now: Nanos) -> Alerts {
        Alerts {
            list,
            states: BTreeMap::new(),
            judged: now,
        }
    }

    /// Returns an alert by its place.
    pub(crate) fn get(&self, place: usize) -> Option<&Alert> {
        self.list.get(place)
    }

    /// Judges every alert, and returns those that fire.
    pub(crate) fn judge(&mut self, world: &World, now: Nanos) -> Vec<Fired> {
        if self.list.is_empty() {
            return Vec::new();
        }
        let stale = world.stale(now);
        let mut fired = Vec::new();
        let mut newest = self.judged;
        for device in &world.devices {
            let failed = newest_failure(world, device.key, self.judged, now);
            newest = newest.max(failed.map_or(0, |(at, _)| at));
            let memory = known_memory(device, &stale);
            for (place, alert) in self.list.iter().enumerate() {
                if alert.device.as_ref().is_some_and(|only| !only.matches(device)) {
                    continue;
                }
                let holds = match alert.condition {
                    Condition::OutOfMemory => Some(failed.is_some()),
                    _ => memory.map(|memory| holds(alert.condition, &memory)),
                };
                // A failed request does not last.
                let before = if alert.condition == Condition::OutOfMemory {
                    0
                } else {
                    alert.hold
                };
                let state = self.states.entry((place, device.key));
                let state = state.or_insert(State::Armed { since: None });
                let (next, fires) = state.next(holds, now, before, alert.hold);
                *state = next;
                if fires {
                    let process = failed.map(|(_, process)| process);
                    fired.push(describe(place, alert, device, memory, process));
                }
            }
        }
        self.judged = newest;
        fired
    }
}

/// Checks a condition of a device's memory. Without the driver's figures others may use more, so what holds then holds all the more.
fn holds(condition: Condition, memory: &Partition) -> bool {
    match condition {
        Condition::UsedPercent(limit) => used_percent(memory) > limit,
        Condition::FreeBelow(limit) => memory.free < limit,
        Condition::OutOfMemory => false,
    }
}

fn used_percent(memory: &Partition) -> f64 {
    match memory.total {
        0 => 0.0,
        total => total.saturating_sub(memory.free) as f64 / total as f64 * 100.0,
    }
}

/// Returns the memory of a device, unless its figures are old.
fn known_memory(device: &Device, stale: &[SourceId]) -> Option<Partition> {
    let memory = device.memory.value().filter(|_| device.state == DeviceState::Present)?;
    let source = match memory.basis {
        Basis::Driver => SourceId::Nvml,
        Basis::Publishers => SourceId::Channels,
    };
    (!stale.contains(&source)).then_some(*memory)
}

/// Returns the newest request on a device that failed after `judged`. One of the future is of a program with another clock.
fn newest_failure(world: &World, device: DeviceKey, judged: Nanos, now: Nanos) -> Option<(Nanos, &Process)> {
    let its = world.processes.iter().filter(|process| process.id.device == device);
    its.filter_map(|process| Some((process.figures.as_ref()?.ran_out.as_ref()?.at, process)))
        .filter(|(at, _)| (judged + 1..=now).contains(at))
        .max_by_key(|(at, _)| *at)
}

fn describe(
    place: usize,
    alert: &Alert,
    device: &Device,
    memory: Option<Partition>,
    process: Option<&Process>,
) -> Fired {
    let label = &device.label;
    let hold = match alert.hold {
        0 => String::new(),
        hold => format!(" for {}", units::span(hold)),
    };
    let sizes = memory.unwrap_or_default();
    let [free, total] = [sizes.free, sizes.total].map(units::bytes);
    let used = units::bytes(sizes.total.saturating_sub(sizes.free));
    let text = match alert.condition {
        Condition::UsedPercent(limit) => {
            format!("{label}: more than {limit}% of the memory was used{hold}: {used} of {total} now")
        }
        Condition::FreeBelow(limit) => {
            let limit = units::round_size(limit);
            format!("{label}: less than {limit} was free{hold}: {free} of {total} now")
        }
        Condition::OutOfMemory => match process {
            Some(process) => {
                let asked = process.figures.as_ref().and_then(|figures| figures.ran_out.as_ref());
                let asked = asked.map_or(String::new(), |ran_out| {
                    format!(" of {}", units::bytes(ran_out.requested))
                });
                format!(
                    "{label}: a request{asked} of process {} failed for lack of memory",
                    process.pid
                )
            }
            None => format!("{label}: a request failed for lack of memory"),
        },
    };
    Fired {
        alert: place,
        device: label.clone(),
        uuid: device.uuid_text(),
        condition: alert.condition.name(),
        memory,
        pid: process
            .filter(|_| alert.condition == Condition::OutOfMemory)
            .map(|process| process.pid),
        text,
    }
}
