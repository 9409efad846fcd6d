//! The only place where state changes: [`update`] takes an event, changes the model and returns what has to be done.
//!
//! Apart from the model it is pure: it reads no clock, since the time comes with the event, and it does no I/O, which is what
//! effects are for.

mod attach;
mod blocks;
mod chosen;
mod demo;
mod devices;
mod findings;
mod hierarchy;
mod join;
mod keys;
mod list;
mod look;
mod managed;
mod map;
mod mouse;
mod overview;
mod popup;
mod ranks;
mod row;
mod tags;
#[cfg(test)]
mod tests;
mod timeline;
mod triage;
mod unified;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gpumem_channel::Life;

use crate::event::{Effect, Ending, Event};
use crate::model::{
    Action, BlackBoxes, Channel, ChannelKey, ChannelSample, Device, DeviceKey, Glance, Inputs, MAX_MARKS, Mark,
    MarkKind, Model, Nanos, Owner, Past, Point, Process, ProcessId, SECOND, Sample, Sampled, Severity, SourceId, Toast,
    View, World,
};

use look::Look;

/// How long a message is shown.
const TOAST: Nanos = 5 * SECOND;

/// Exit code for a terminal that is gone: that of SIGHUP.
const TERMINAL_GONE: u8 = 128 + 1;

/// Applies an event that happened at `now`.
pub(crate) fn update(model: &mut Model, now: Nanos, event: Event) -> Vec<Effect> {
    // Ages must not become negative if the clock goes back.
    model.now = model.now.max(now);
    match event {
        Event::Key(key) => keys::press(model, key),
        Event::Paste(text) => keys::paste(model, &text),
        Event::Mouse(mouse) => mouse::act(model, mouse),
        Event::Resize { width, height } => {
            (model.ui.term.width, model.ui.term.height) = (width, height);
            vec![Effect::Draw]
        }
        Event::Sampled(sampled) => take_sample(model, *sampled),
        Event::Demo(event) => demo::handle(model, event),
        Event::Attached { pid, result } => attach::end(model, pid, result),
        Event::Alert(text) => toast(model, Severity::Warning, text),
        Event::Drawn(hits) => {
            model.ui.hits = *hits;
            Vec::new()
        }
        Event::Tick => tick(model),
        Event::Resumed => vec![Effect::Repaint],
        Event::CannotSuspend => toast(model, Severity::Info, "no shell to return to: q quits"),
        Event::End(Ending::Signal(signal)) => vec![Effect::Quit(128u8.saturating_add(signal))],
        Event::End(Ending::TerminalGone) => vec![Effect::Quit(TERMINAL_GONE)],
    }
}

/// Stores a sample, and adds its glances and marks to the histories of the devices.
fn take_sample(model: &mut Model, mut sampled: Sampled) -> Vec<Effect> {
    let look = Look::of(model);
    let (source, at) = (sampled.sample.source(), sampled.taken.at);
    let mut lost = None;
    if let Sample::Channels(sample) = &mut sampled.sample {
        lost = Some(std::mem::take(&mut sample.lost));
        model.inputs.unfiled_marks.append(&mut sample.marks);
        model.inputs.unfiled_past.append(&mut sample.past);
        file_glances(model, std::mem::take(&mut sample.glances));
        remember_living(&mut model.inputs, sample);
    }
    // Most look-ups find the same processes as before, and deriving everything again is slow when thousands publish.
    let same = matches!(&sampled.sample, Sample::Processes(found) if *found == model.inputs.processes);
    let mut managed = None;
    if let Sample::Managed(sample) = &mut sampled.sample {
        managed = Some(std::mem::take(sample));
    }
    let first = model.inputs.keep(sampled);
    if let Some(sample) = managed {
        return managed::take(model, &look, at, sample);
    }
    if same {
        model.live.times.clone_from(&model.inputs.times);
        return Vec::new();
    }
    // The first row among publishers need not be the first of all rows, and the user has not selected one yet.
    let chosen = model.ui.device.is_some() || model.ui.view != View::Overview || model.paused();
    if first && source == SourceId::Nvml && !chosen {
        model.ui.process = None;
    }
    let mut effects = derive(model, source, &look);
    if lost.is_some() || (first && source == SourceId::Nvml) {
        file_past(model, at);
        file_marks(model);
    }
    if let Some(lost) = lost {
        file_losses(model, at, lost);
        // In the Demo view the message would cover the keys of the demo.
        if first && model.ui.toast.is_none() && model.ui.view != View::Demo {
            effects.extend(mention_black_boxes(model));
        }
    }
    effects
}

/// Performs an action: in the open view, or as everywhere if the view does not use it.
fn perform(model: &mut Model, action: Action) -> Vec<Effect> {
    let used = match model.ui.view {
        View::Overview => overview::act(model, action),
        View::Blocks => blocks::act(model, action),
        View::Timeline => timeline::act(model, action),
        View::Hierarchy => hierarchy::act(model, action),
        View::Unified => unified::act(model, action),
        View::Triage => triage::act(model, action),
        View::Demo => demo::act(model, action),
    };
    used.unwrap_or_else(|| keys::everywhere(model, action))
}

/// Records which channels are alive, and forgets those that do not exist any more.
fn remember_living(inputs: &mut Inputs, sample: &ChannelSample) {
    let there: HashSet<ChannelKey> = sample.channels.iter().map(|c| c.key).collect();
    inputs.seen_alive.retain(|key| there.contains(key));
    let living = sample.channels.iter().filter(|c| c.snapshot.life == Life::Alive);
    inputs.seen_alive.extend(living.map(|c| c.key));
}

/// Shows a message that there are black boxes that are not listed.
fn mention_black_boxes(model: &mut Model) -> Vec<Effect> {
    let text = match model.live.past.len() {
        0 => return Vec::new(),
        // The user does not want to know.
        _ if model.setup.black_boxes != BlackBoxes::Recent => return Vec::new(),
        1 => "1 program that ended left its black box: b lists it".to_owned(),
        // A program leaves one for each device that it used.
        n => format!("programs that ended left {n} black boxes: b lists them"),
    };
    toast(model, Severity::Info, text)
}

/// Derives everything from a new sample, and draws if that changes what is shown.
fn derive(model: &mut Model, fresh: SourceId, look: &Look) -> Vec<Effect> {
    let selected = model.ui.process;
    let before = join::rebuild(model, fresh);
    let mut effects = demo::start_without_gpu(model);
    if !model.paused() {
        relist(model);
        effects.extend(report_lost_selection(model, &before, selected));
        if !look.holds(&before, model) || (fresh == SourceId::Channels && shows_model(model)) {
            effects.push(Effect::DrawSoon);
        }
    }
    effects
}

/// Checks whether the open view shows pages of a simulated device.
fn shows_model(model: &Model) -> bool {
    let target = match model.ui.view {
        View::Unified => model.managed_selected(),
        View::Demo => model.managed_demo(),
        _ => None,
    };
    target.is_some_and(|target| model.live.managed.is_simulated(target))
}

/// Shows a message if another process is selected because the selected one is gone.
fn report_lost_selection(model: &mut Model, before: &World, selected: Option<ProcessId>) -> Vec<Effect> {
    let same = |p: &&Process| Some(p.id) == selected;
    let Some(gone) = before.processes.iter().find(same) else {
        return Vec::new();
    };
    // A process that begins to publish has another row with the same pid.
    let now = model.selected_process().filter(|now| now.pid != gone.pid);
    let (Some(now), None) = (now, model.world().processes.iter().find(same)) else {
        return Vec::new();
    };
    let (gone, now) = (before.name_of(gone), model.world().name_of(now));
    let text = format!("{gone} is no longer known: {now} is selected");
    toast(model, Severity::Info, text)
}

/// Rebuilds everything that depends on what is shown and selected.
fn relist(model: &mut Model) {
    list::refresh(model);
    map::refresh(model);
    tags::refresh(model);
}

/// Adds glances to the histories of their devices.
fn file_glances(model: &mut Model, glances: Vec<Glance>) {
    let mut devices = by_key(model);
    for glance in glances {
        for held in glance.held {
            if let Some(device) = devices.get_mut(&held.device)
                && let Some(memory) = device.memory.value()
            {
                let memory = memory.holding(held.allocated, held.reserved);
                device.history.push(Point { at: glance.at, memory });
            }
        }
    }
}

/// Adds what publishers held before they were read for the first time to the histories of their devices.
fn file_past(model: &mut Model, now: Nanos) {
    let mut past = std::mem::take(&mut model.inputs.unfiled_past);
    past.retain(|(key, _)| may_tell(model, *key));
    let waits = !model.inputs.looked();
    let mut devices = by_key(model);
    past.retain(|(_, Past { device, steps })| match devices.get_mut(device) {
        Some(device) => {
            device.history.add_past(steps, now);
            false
        }
        None => waits,
    });
    model.inputs.unfiled_past = past;
}

/// Checks whether what a program left may be shown. Black boxes can be left out.
fn may_tell(model: &Model, key: ChannelKey) -> bool {
    model.setup.black_boxes == BlackBoxes::Recent || model.inputs.seen_alive.contains(&key)
}

/// Adds new marks to the histories of their devices.
fn file_marks(model: &mut Model) {
    let mut marks = std::mem::take(&mut model.inputs.unfiled_marks);
    marks.retain(|mark| match mark.process.owner {
        Owner::Channel(key) => may_tell(model, key),
        Owner::Pid(..) => true,
    });
    number_phases(model, &marks);
    let waits = !model.inputs.looked();
    let mut devices = by_key(model);
    let mut left = Vec::new();
    for mark in marks {
        match devices.get_mut(&mark.process.device) {
            Some(device) => device.history.mark(mark),
            None if waits => left.push(mark),
            None => {}
        }
    }
    let surplus = left.len().saturating_sub(4 * MAX_MARKS);
    left.drain(..surplus);
    model.inputs.unfiled_marks = left;
}

/// Adds the number of events that were lost before `now` to the histories of their devices.
fn file_losses(model: &mut Model, now: Nanos, lost: Vec<(ChannelKey, u64)>) {
    let published = std::mem::take(&mut model.live.published);
    let channels: HashMap<ChannelKey, &Channel> = published.iter().map(|c| (c.key, c)).collect();
    let mut devices = by_key(model);
    for (channel, count) in lost {
        let published = channels.get(&channel);
        for (index, published) in published.iter().flat_map(|c| &c.snapshot.devices).enumerate() {
            let key = DeviceKey::of(channel, index, &published.device);
            let Some(device) = devices.get_mut(&key) else {
                continue;
            };
            // They may belong to any of its devices. They are counted once.
            device.history.lost_until = now;
            if index == 0 {
                device.history.marks_lost = device.history.marks_lost.saturating_add(count);
            }
        }
    }
    model.live.published = published;
}

/// Gives new phases a look that differs from those of their device's other phases.
fn number_phases(model: &mut Model, marks: &[Mark]) {
    let looks = &mut model.looks;
    for mark in marks.iter().filter(|mark| mark.kind == MarkKind::Phase) {
        if !looks.phases.lacks(&mark.text) {
            continue;
        }
        let device = model
            .live
            .devices
            .iter()
            .find(|device| device.key == mark.process.device);
        let known = device.into_iter().flat_map(|device| &device.history.marks);
        let known = known
            .filter(|known| known.kind == MarkKind::Phase)
            .map(|known| known.text.clone());
        let names: Vec<Arc<str>> = known.chain([mark.text.clone()]).collect();
        looks.add_phases(&names);
    }
}

/// Returns the devices by their identity.
fn by_key(model: &mut Model) -> HashMap<DeviceKey, &mut Device> {
    model.live.devices.iter_mut().map(|d| (d.key, d)).collect()
}

/// Handles a tick. Draws if a message expires, if a source is late, or while paused.
fn tick(model: &mut Model) -> Vec<Effect> {
    let mut effects = Vec::new();
    if model.ui.toast.as_ref().is_some_and(|t| t.until <= model.now) {
        model.ui.toast = None;
        effects.push(Effect::Draw);
    }
    // The shown age of frozen figures grows.
    if model.paused() || !model.live.stale(model.now).is_empty() {
        effects.push(Effect::DrawSoon);
    }
    effects
}

/// Shows a message for a while.
fn toast(model: &mut Model, severity: Severity, text: impl Into<String>) -> Vec<Effect> {
    model.ui.toast = Some(Toast {
        text: text.into(),
        severity,
        until: model.now.saturating_add(TOAST),
    });
    vec![Effect::Draw]
}
