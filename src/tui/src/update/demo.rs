//! The demo's child: what it says, and what the user tells it.

use gpumem_probe::NvmlState;

use crate::event::{DemoEvent, Effect};
use crate::model::{Action, Demo, DemoPhase, DemoStep, Model, Move, Popup, Severity};

use super::toast;

/// Exit code of what failed without saying another.
const FAILED: u8 = 1;

/// News of the child.
pub(super) fn hear(model: &mut Model, news: DemoEvent) -> Vec<Effect> {
    let Some(demo) = &mut model.demo else { return Vec::new() };
    match news {
        DemoEvent::Spawned { pid } => {
            demo.pid = Some(pid);
            // It is what may be wanted again once it has ended.
            let entry = model.setup.demos.iter().position(|info| info.name == demo.name);
            model.ui.demo_entry = entry.unwrap_or(model.ui.demo_entry);
        }
        DemoEvent::Start(start) => {
            demo.device = start.device;
            demo.simulated = start.simulated;
            demo.budget = start.budget;
            demo.total_steps = start.total_steps;
            demo.kind = start.kind;
            demo.unpublished = demo.unpublished.take().or(start.unpublished);
            demo.phase = between_steps(demo);
        }
        DemoEvent::Step(step, choices) => {
            if demo.stepped() {
                model.ui.demo_scroll = 0;
            }
            demo.phase = between_steps(demo);
            demo.choices = choices;
            demo.notice = None;
            if step.stats.reserved > 0 {
                demo.has_memory_since.get_or_insert(model.now);
            }
            keep(&mut demo.steps, *step);
        }
        DemoEvent::Unpublished(why) => {
            demo.unpublished = Some(why.clone());
            if demo.automatic {
                // It was said to be shown.
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
            demo.phase = DemoPhase::Done { ok };
            demo.outcome = Some(outcome);
            demo.choices.clear();
        }
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

/// Where a demo is that has just spoken.
fn between_steps(demo: &Demo) -> DemoPhase {
    if demo.stepped() {
        DemoPhase::Waiting
    } else {
        DemoPhase::Running
    }
}

/// Scrolls what it tells, as far as there is more.
fn scroll(model: &mut Model, by: i32) {
    let told = model.ui.hits.told;
    let ends = (-i32::from(told.above), i32::from(told.below));
    model.ui.demo_scroll = model.ui.demo_scroll.saturating_add(by).clamp(ends.0, ends.1);
}

/// Keeps the newest steps; of one that is told several times, as the passes of a replay are, what was told last and that memory ran out.
fn keep(steps: &mut Vec<DemoStep>, step: DemoStep) {
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

/// A menu of fixes that can no longer be chosen closes.
fn close_stale_popup(model: &mut Model) {
    let none = model.demo.as_ref().is_none_or(|d| d.choices.is_empty());
    if none && matches!(model.ui.popup, Some(Popup::Fix { .. })) {
        model.ui.popup = None;
    }
}

/// The next step.
pub(super) fn next(model: &mut Model) -> Vec<Effect> {
    match &mut model.demo {
        Some(demo) if demo.stepped() && demo.phase == DemoPhase::Waiting => {
            demo.phase = DemoPhase::Running;
            vec![Effect::TellDemo("next".into()), Effect::Draw]
        }
        Some(demo) if demo.running() => toast(model, Severity::Info, "the demo is at work on this step"),
        Some(demo) if demo.over() => toast(model, Severity::Info, "this demo is over: p pauses what is shown"),
        _ => toast(model, Severity::Info, "no demo runs: 7 lists them"),
    }
}

/// Does what was asked for in the Demo view, if it is of use here.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let running = model.demo.as_ref().is_some_and(Demo::running);
    let last = model.setup.demos.len().saturating_sub(1);
    let page = i32::from(model.ui.hits.told.page);
    match action {
        Action::StopDemo if running => return Some(stop(model)),
        Action::Space if model.paused() => return None,
        Action::Space if model.demo.as_ref().is_some_and(Demo::over) => return Some(next(model)),
        Action::Space | Action::Zoom(_) => return pace(model, action).map(|line| vec![Effect::TellDemo(line.into())]),
        Action::Move(Move::Up) => model.ui.demo_entry = model.ui.demo_entry.saturating_sub(1),
        Action::Move(Move::Down) => model.ui.demo_entry = (model.ui.demo_entry + 1).min(last),
        Action::Move(Move::PageUp) => scroll(model, -page),
        Action::Move(Move::PageDown) => scroll(model, page),
        Action::Move(Move::First) => model.ui.demo_entry = 0,
        Action::Move(Move::Last) => model.ui.demo_entry = last,
        Action::Scroll(by) => scroll(model, by.into()),
        Action::Enter if waits_for_user(model) => return Some(next(model)),
        Action::Enter => return Some(start_entry(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

fn waits_for_user(model: &Model) -> bool {
    let demo = model.demo.as_ref().filter(|demo| demo.stepped());
    demo.is_some_and(|demo| demo.phase == DemoPhase::Waiting)
}

/// What is said to a demo whose pace the user sets.
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
    let Some(demo) = &mut model.demo else {
        return vec![Effect::Draw];
    };
    let Some(choice) = demo.choices.get(n) else {
        return vec![Effect::Draw];
    };
    let line = format!("fix {}", choice.name);
    demo.phase = DemoPhase::Running;
    demo.choices.clear();
    vec![Effect::TellDemo(line), Effect::Draw]
}

/// Ends the demo at the user's wish.
pub(super) fn stop(model: &mut Model) -> Vec<Effect> {
    if let Some(demo) = &mut model.demo {
        demo.phase = DemoPhase::Stopped;
        demo.choices.clear();
        // Nobody hears of its end any more: what is left of it is a process like others.
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

/// Starts a demo; the one that runs ends.
fn start(model: &mut Model, name: String, simulated: bool, automatic: bool) -> Vec<Effect> {
    model.ui.follow_demo = true;
    model.ui.demo_scroll = 0;
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

/// With no GPU and nothing published, something must live on the screen: a simulated training run, labelled. Only when
/// NVML's library is absent: a library that fails means a GPU that needs help, not a show.
pub(super) fn start_without_gpu(model: &mut Model) -> Vec<Effect> {
    let looked = model.inputs.looked();
    // Whoever watched a real program wants to see how it ended, not a simulation in its place.
    let published = !model.inputs.seen_alive.is_empty();
    let idle = model.demo.is_none() && !model.setup.no_demo;
    if !(looked && idle && !published && model.live.nvml == NvmlState::Missing) {
        return Vec::new();
    }
    let text = "no NVIDIA driver here: showing a simulated training run. gpumem-tui doctor says what is missing";
    let name = model.setup.without_gpu.clone();
    let mut effects = start(model, name, true, true);
    effects.extend(toast(model, Severity::Info, text));
    effects
}
