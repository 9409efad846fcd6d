//! The demo: events of its child process, and commands of the user to it.

use gpumem_probe::NvmlState;

use crate::event::{DemoEvent, Effect};
use crate::model::{Action, Demo, DemoPhase, DemoStep, Model, Move, Popup, Severity};

use super::{hierarchy, toast};

/// Exit code of a demo that failed without one of its own.
const FAILED: u8 = 1;
/// The answer to a step while what is shown is frozen.
const PAUSED: &str = "paused: Space resumes, then the demo can go on";

/// Handles an event of the child.
pub(super) fn handle(model: &mut Model, event: DemoEvent) -> Vec<Effect> {
    if model.hierarchies.measuring.is_some() {
        return hierarchy::handle(model, event);
    }
    let Some(demo) = &mut model.demo else { return Vec::new() };
    match event {
        DemoEvent::Spawned { pid } => {
            demo.pid = Some(pid);
            // The list selects it, so that it can be started again once it has ended.
            let entry = model.setup.demos.iter().position(|info| info.name == demo.name);
            model.ui.demo_entry = entry.unwrap_or(model.ui.demo_entry);
        }
        DemoEvent::Start(start) => {
            demo.device = start.device;
            demo.simulated = start.simulated;
            demo.budget = start.budget;
            demo.total_steps = start.total_steps;
            demo.map_bytes = start.map_bytes;
            demo.kind = start.kind;
            demo.unpublished = demo.unpublished.take().or(start.unpublished);
            demo.phase = between_steps(demo);
        }
        DemoEvent::Step(step, choices) => {
            if demo.stepped() {
                model.ui.demo_scroll = 0;
                model.ui.demo_back = 0;
            }
            demo.phase = between_steps(demo);
            demo.choices = choices;
            demo.notice = None;
            if step.stats.reserved > 0 {
                demo.has_memory_since.get_or_insert(model.now);
            }
            push_step(&mut demo.steps, *step);
        }
        DemoEvent::Unpublished(why) => {
            demo.unpublished = Some(why.clone());
            if demo.automatic {
                // A message said that it is shown.
                return toast(
                    model,
                    Severity::Warning,
                    format!("the simulated training run cannot be seen: {why}"),
                );
            }
        }
        DemoEvent::Notice(text) => {
            demo.phase = between_steps(demo);
            demo.notice = Some(text);
        }
        DemoEvent::Result { ok, outcome } => {
            model.ui.demo_scroll = 0;
            model.ui.demo_back = 0;
            demo.phase = DemoPhase::Done { ok };
            demo.outcome = Some(outcome);
            demo.choices.clear();
        }
        // One that was stopped: its last words may still come.
        DemoEvent::Bench(_) => return Vec::new(),
        DemoEvent::Failed(text) => return fail(model, text, FAILED),
        DemoEvent::GaveUp { text, exit_code } => return fail(model, text, exit_code),
        DemoEvent::Exited(how) => {
            demo.pid = None;
            demo.choices.clear();
            if demo.running() {
                return fail(model, how, FAILED);
            }
        }
    }
    close_stale_popup(model);
    vec![Effect::Draw]
}

/// Returns the phase of a demo that has just reported something.
fn between_steps(demo: &Demo) -> DemoPhase {
    if demo.stepped() {
        DemoPhase::Waiting
    } else {
        DemoPhase::Running
    }
}

/// Scrolls its text, not beyond the ends.
fn scroll(model: &mut Model, by: i32) {
    let text = model.ui.hits.told;
    let ends = (-i32::from(text.above), i32::from(text.below));
    model.ui.demo_scroll = model.ui.demo_scroll.saturating_add(by).clamp(ends.0, ends.1);
}

/// Adds a step and drops the oldest one if there are too many. A step with the number of the last one, as in a pass of a
/// replay, replaces it, except that a failed request is kept.
fn push_step(steps: &mut Vec<DemoStep>, step: DemoStep) {
    match steps.last_mut().filter(|last| last.number == step.number) {
        Some(last) => {
            let oom = step.oom.or(last.oom.take());
            *last = DemoStep { oom, ..step };
        }
        None => {
            if steps.len() == Demo::MAX_STEPS {
                steps.remove(0);
            }
            steps.push(step);
        }
    }
}

fn fail(model: &mut Model, text: String, exit_code: u8) -> Vec<Effect> {
    if let Some(demo) = &mut model.demo {
        demo.exit_code = exit_code;
        demo.phase = DemoPhase::Failed(text.clone());
        demo.choices.clear();
    }
    close_stale_popup(model);
    toast(model, Severity::Error, format!("demo: {text}"))
}

/// Closes the menu of fixes if none can be chosen any more.
fn close_stale_popup(model: &mut Model) {
    let none = model.demo.as_ref().is_none_or(|d| d.choices.is_empty());
    if none && matches!(model.ui.popup, Some(Popup::Fix { .. })) {
        model.ui.popup = None;
    }
}

/// Starts the next step, or shows the one after an earlier step that is shown.
pub(super) fn next(model: &mut Model) -> Vec<Effect> {
    if model.ui.demo_back > 0 {
        return look(model, model.ui.demo_back - 1);
    }
    if model.paused() {
        return toast(model, Severity::Info, PAUSED);
    }
    match &mut model.demo {
        Some(demo) if demo.stepped() && demo.phase == DemoPhase::Waiting => {
            demo.phase = DemoPhase::Running;
            vec![Effect::SendToDemo("next".into()), Effect::Draw]
        }
        Some(demo) if demo.running() => toast(model, Severity::Info, "the demo is still working on this step"),
        Some(demo) if demo.over() => toast(model, Severity::Info, "this demo is over: x lists the demos"),
        _ => toast(model, Severity::Info, "no demo runs: 7 lists them"),
    }
}

/// Shows the step that is `back` steps before the current one. The GPU's state stays as it is.
fn look(model: &mut Model, back: usize) -> Vec<Effect> {
    let steps = model.demo.as_ref().map_or(0, |demo| demo.steps.len());
    model.ui.demo_back = back.min(steps.saturating_sub(1));
    model.ui.demo_scroll = 0;
    vec![Effect::Draw]
}

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let running = model.demo.as_ref().is_some_and(Demo::running);
    let over = model.demo.as_ref().is_some_and(Demo::over);
    // A stepped demo takes the keys until it was stopped or the list is opened.
    let stepping = model.demo.as_ref().is_some_and(Demo::stepped) || (over && !model.ui.demo_list);
    let has_steps = model.demo.as_ref().is_some_and(Demo::has_steps);
    let last = model.setup.demos.len().saturating_sub(1);
    let page = i32::from(model.ui.hits.told.page);
    match action {
        Action::StopDemo if running => return Some(stop(model)),
        Action::StopDemo if over => model.ui.demo_list = !model.ui.demo_list,
        Action::Explain if has_steps => model.ui.popup = Some(Popup::Explain { scroll: 0 }),
        Action::Enter | Action::Move(Move::Right | Move::Down) if stepping => return Some(next(model)),
        Action::Move(Move::Left | Move::Up) if stepping => return Some(look(model, model.ui.demo_back + 1)),
        Action::Move(Move::First) if stepping => return Some(look(model, usize::MAX)),
        Action::Move(Move::Last) if stepping => return Some(look(model, 0)),
        Action::Space if model.paused() => return None,
        Action::Space | Action::Zoom(_) => {
            return pace(model, action).map(|line| vec![Effect::SendToDemo(line.into())]);
        }
        Action::Move(Move::Up) => model.ui.demo_entry = model.ui.demo_entry.saturating_sub(1),
        Action::Move(Move::Down) => model.ui.demo_entry = (model.ui.demo_entry + 1).min(last),
        Action::Move(Move::PageUp) => scroll(model, -page),
        Action::Move(Move::PageDown) => scroll(model, page),
        Action::Move(Move::First) => model.ui.demo_entry = 0,
        Action::Move(Move::Last) => model.ui.demo_entry = last,
        Action::Scroll(by) => scroll(model, by.into()),
        Action::Enter => return Some(start_entry(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Returns the command to a demo whose pace the user sets.
fn pace(model: &Model, action: Action) -> Option<&'static str> {
    model.demo.as_ref().filter(|demo| demo.paced())?;
    match action {
        Action::Zoom(1..) => Some("faster"),
        Action::Zoom(_) => Some("slower"),
        _ => Some("pause"),
    }
}

/// Opens the menu of fixes.
pub(super) fn choose_fix(model: &mut Model) -> Vec<Effect> {
    match &model.demo {
        Some(demo) if demo.running() && !demo.choices.is_empty() && model.paused() => {
            toast(model, Severity::Info, PAUSED)
        }
        Some(demo) if demo.running() && !demo.choices.is_empty() => {
            let default = demo.choices.iter().position(|choice| choice.default);
            model.ui.popup = Some(Popup::Fix {
                selected: default.unwrap_or(0),
            });
            vec![Effect::Draw]
        }
        Some(demo) if demo.running() => toast(model, Severity::Info, "there is nothing to fix at this step"),
        _ => Vec::new(),
    }
}

/// Applies fix `n` of the menu.
pub(super) fn fix(model: &mut Model, n: usize) -> Vec<Effect> {
    if model.paused() {
        return toast(model, Severity::Info, PAUSED);
    }
    let Some(demo) = &mut model.demo else {
        return vec![Effect::Draw];
    };
    let Some(choice) = demo.choices.get(n) else {
        return vec![Effect::Draw];
    };
    let line = format!("fix {}", choice.name);
    demo.phase = DemoPhase::Running;
    demo.choices.clear();
    vec![Effect::SendToDemo(line), Effect::Draw]
}

/// Stops the demo.
pub(super) fn stop(model: &mut Model) -> Vec<Effect> {
    if let Some(demo) = &mut model.demo {
        demo.phase = DemoPhase::Stopped;
        demo.choices.clear();
        // Its end is not reported any more. Until then it is a process like any other.
        demo.pid = None;
    }
    close_stale_popup(model);
    vec![Effect::StopDemo, Effect::Draw]
}

/// Starts the selected demo of the list.
pub(super) fn start_entry(model: &mut Model) -> Vec<Effect> {
    match model.setup.demos.get(model.ui.demo_entry) {
        Some(info) => {
            let name = info.name.clone();
            let simulated = info.simulated.unwrap_or(!has_gpu(model));
            start(model, name, simulated, false)
        }
        None => Vec::new(),
    }
}

/// Starts a demo, which ends the running one.
fn start(model: &mut Model, name: String, simulated: bool, automatic: bool) -> Vec<Effect> {
    model.ui.follow_demo = true;
    model.ui.demo_scroll = 0;
    model.ui.demo_back = 0;
    model.ui.demo_list = false;
    // It ends: there is one child.
    model.hierarchies.measuring = None;
    model.demo = Some(Demo {
        name: name.clone(),
        simulated,
        automatic,
        ..Demo::default()
    });
    vec![Effect::StartDemo { name, simulated }, Effect::Draw]
}

fn has_gpu(model: &Model) -> bool {
    model.live.nvml == NvmlState::Ready && !model.inputs.nvml.gpus.is_empty()
}

/// Starts a simulated training run when there is no GPU and no program publishes, so that the dashboard has something to
/// show. Does not start one when NVML is installed but fails: then there is a GPU with a problem.
pub(super) fn start_without_gpu(model: &mut Model) -> Vec<Effect> {
    let looked = model.inputs.looked();
    // A user who watched a real program wants to see how it ended, not a simulation.
    let published = !model.inputs.seen_alive.is_empty();
    let idle = model.demo.is_none() && !model.setup.no_demo;
    if !(looked && idle && !published && model.live.nvml == NvmlState::Missing) {
        return Vec::new();
    }
    let text = "no NVIDIA driver here: showing a simulated training run. gpumem-tui doctor says what is missing";
    let name = model.setup.without_gpu.clone();
    let mut effects = start(model, name, true, true);
    // A message that is there already answers a key that was pressed before the devices were known.
    if model.ui.toast.is_none() {
        effects.extend(toast(model, Severity::Info, text));
    }
    effects
}
