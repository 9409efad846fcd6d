//! What keys do. `k` means up, here and in every popup; no key kills anything but the demo.

use crate::event::{Effect, Key};
use crate::model::{BlocksUi, Demo, DemoPhase, Model, Nanos, Popup, Severity, TimelineUi, View};

use super::map::{self, Step};
use super::{demo, popup, relist, tell_who_is_gone, toast};

/// Most characters a filter holds.
const FILTER_MAX: usize = 64;

/// A key was pressed. The innermost thing that takes keys takes it: filter line, popup, view, dashboard.
pub(super) fn press(model: &mut Model, key: Key) -> Vec<Effect> {
    match key {
        Key::Ctrl('c') => return quit(model),
        Key::Ctrl('z') => return vec![Effect::Suspend],
        Key::Ctrl('l') => return vec![Effect::Repaint],
        _ => {}
    }
    if model.ui.filter.editing {
        return type_filter(model, key);
    }
    if model.ui.popup.is_some() {
        return popup::press(model, key);
    }
    let used = match model.ui.view {
        View::Overview => overview(model, key),
        View::Blocks => blocks(model, key),
        View::Timeline => timeline(model, key),
        View::Demo => demo_view(model, key),
    };
    used.unwrap_or_else(|| everywhere(model, key))
}

/// Pasted text goes into the filter when it is being typed, and nowhere else: pasted lines must not act as keys.
pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    if !model.ui.filter.editing {
        return Vec::new();
    }
    for c in text.chars().filter(|c| !c.is_control()) {
        push_filter(model, c);
    }
    relist(model);
    vec![Effect::Draw]
}

/// The user leaves. All is well, unless what the dashboard was started for failed.
fn quit(model: &Model) -> Vec<Effect> {
    let failure = model.demo.as_ref().and_then(Demo::failure);
    vec![Effect::Quit(failure.map_or(0, |(code, _)| code))]
}

fn everywhere(model: &mut Model, key: Key) -> Vec<Effect> {
    match key {
        Key::Char('q') => return quit(model),
        Key::Char('?') | Key::F(1) => model.ui.popup = Some(Popup::Help { scroll: 0 }),
        Key::Char('m') => model.ui.popup = Some(Popup::Findings { scroll: 0 }),
        Key::Char('/') => {
            model.ui.filter.editing = true;
            model.ui.view = View::Overview;
        }
        Key::Char('s') => {
            let selected = crate::model::Column::ALL
                .iter()
                .position(|c| *c == model.order())
                .unwrap_or(0);
            model.ui.popup = Some(Popup::Sort { selected });
        }
        // What goes on unseen would be a surprise.
        Key::Char(' ') if model.paused() => return pause(model),
        Key::Char(' ') if model.demo.as_ref().is_some_and(|d| d.stepped()) => return demo::next(model),
        Key::Char(' ' | 'p') => return pause(model),
        Key::Char('b') => return black_boxes(model),
        Key::Char('f') => return demo::choose_fix(model),
        Key::Tab => turn(model, 1),
        Key::BackTab => turn(model, -1),
        Key::Esc => return escape(model),
        Key::Char(c) => {
            let Some(view) = View::ALL.into_iter().find(|v| v.key() == c) else {
                return Vec::new();
            };
            model.ui.view = view;
        }
        _ => return Vec::new(),
    }
    vec![Effect::Draw]
}

/// Lists programs that ended, too, or no more. Where there are none that were not listed, nothing would be seen to happen.
fn black_boxes(model: &mut Model) -> Vec<Effect> {
    model.ui.black_boxes = !model.ui.black_boxes;
    relist(model);
    // The message that told of this key is answered.
    if model.ui.toast.as_ref().is_some_and(|t| t.severity == Severity::Info) {
        model.ui.toast = None;
    }
    let world = model.world();
    if model.ui.black_boxes && world.past.is_empty() && world.channels_at().is_some() {
        let chosen = model.setup.only.as_ref().map_or("", |_| " on the chosen device");
        let text = match world.processes.iter().all(|p| p.state.alive()) {
            true => format!("no program that ended left a black box{chosen}"),
            false => format!("no program left a black box{chosen} but those that are listed"),
        };
        return toast(model, Severity::Info, text);
    }
    vec![Effect::Draw]
}

/// Escape undoes the outermost thing: the filter, then the view.
fn escape(model: &mut Model) -> Vec<Effect> {
    if !model.ui.filter.text.is_empty() {
        model.ui.filter.text.clear();
        relist(model);
    } else if model.ui.view != View::Overview {
        model.ui.view = View::Overview;
    } else {
        return Vec::new();
    }
    vec![Effect::Draw]
}

/// Freezes what is shown, or shows the newest again. Samplers go on either way.
fn pause(model: &mut Model) -> Vec<Effect> {
    let (before, selected) = (model.frozen.take(), model.ui.process);
    if before.is_none() {
        model.frozen = Some(Box::new(model.live.clone()));
    }
    relist(model);
    if let Some(before) = before {
        tell_who_is_gone(model, &before, selected);
    }
    vec![Effect::Draw]
}

fn turn(model: &mut Model, by: isize) {
    let at = View::ALL.iter().position(|v| *v == model.ui.view).unwrap_or(0);
    model.ui.view = View::ALL[(at as isize + by).rem_euclid(View::ALL.len() as isize) as usize];
}

fn overview(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let page = isize::from(model.ui.hits.page.max(2) as i16 - 1);
    match key {
        Key::Up | Key::Char('k') => select_row(model, -1),
        Key::Down | Key::Char('j') => select_row(model, 1),
        Key::PageUp => select_row(model, -page),
        Key::PageDown => select_row(model, page),
        Key::Home | Key::Char('g') => select_row(model, isize::MIN),
        Key::End | Key::Char('G') => select_row(model, isize::MAX),
        Key::Left | Key::Char('h') => select_device(model, -1),
        Key::Right | Key::Char('l') => select_device(model, 1),
        // What is selected is not seen.
        Key::Enter if model.rows.is_empty() => {}
        Key::Enter if has_blocks(model) => model.ui.view = View::Blocks,
        Key::Enter => return Some(why_no_map(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Whether the selected process has a map, read or not.
pub(super) fn has_blocks(model: &Model) -> bool {
    let unread = |p: &crate::model::Process| p.has_unread_blocks(model.map.as_ref());
    model.map.is_some() || model.selected_process().is_some_and(unread)
}

fn why_no_map(model: &mut Model) -> Vec<Effect> {
    match model.selected_process() {
        Some(process) => {
            let name = model.world().name_of(process);
            let text = format!("{name} has no block map: {}", process.state.text());
            toast(model, Severity::Info, text)
        }
        None => Vec::new(),
    }
}

/// Moves the selection by rows. Also when the selected process is filtered out: then to an end of the list.
pub(super) fn select_row(model: &mut Model, by: isize) {
    let count = model.rows.len();
    let Some(last) = count.checked_sub(1) else { return };
    let target = match model.selected_row() {
        Some(row) => row.saturating_add_signed(by).min(last),
        None if by < 0 => last,
        None => 0,
    };
    let id = model.listed().nth(target).map(|p| p.id);
    select_process(model, id);
}

/// Selects a process and the device it uses.
pub(super) fn select_process(model: &mut Model, id: Option<crate::model::ProcessId>) {
    model.ui.filter.before = None;
    if model.ui.process != id {
        model.ui.process = id;
        model.ui.blocks = BlocksUi::default();
    }
    if let Some(id) = id
        && model.world().devices.iter().any(|d| d.key == id.device)
    {
        model.ui.device = Some(id.device);
    }
    map::refresh(model);
    super::tags::refresh(model);
}

fn select_device(model: &mut Model, by: isize) {
    let devices = &model.world().devices;
    let Some(last) = devices.len().checked_sub(1) else {
        return;
    };
    let at = model
        .selected_device()
        .and_then(|d| devices.iter().position(|e| e.key == d.key))
        .unwrap_or(0);
    model.ui.device = Some(devices[at.saturating_add_signed(by).min(last)].key);
}

fn blocks(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let step = match key {
        Key::Char('+' | '=') => return zoom(model, 1),
        Key::Char('-' | '_') => return zoom(model, -1),
        Key::Char('0') => {
            model.ui.blocks.zoom = 0;
            return Some(vec![Effect::Draw]);
        }
        Key::Char('n') => return another_process(model, 1),
        Key::Char('N') => return another_process(model, -1),
        Key::Left | Key::Char('h') => Step::Left,
        Key::Right | Key::Char('l') => Step::Right,
        Key::Up | Key::Char('k') => Step::Up,
        Key::Down | Key::Char('j') => Step::Down,
        Key::PageUp => Step::PageUp,
        Key::PageDown => Step::PageDown,
        Key::Home | Key::Char('g') => Step::First,
        Key::End | Key::Char('G') => Step::Last,
        _ => return None,
    };
    map::step(model, step);
    Some(vec![Effect::Draw])
}

pub(super) fn zoom(model: &mut Model, by: i8) -> Option<Vec<Effect>> {
    let deepest = model.ui.hits.map.whole.deepest();
    let zoom = model.ui.blocks.zoom.min(deepest);
    model.ui.blocks.zoom = zoom.saturating_add_signed(by).min(deepest);
    Some(vec![Effect::Draw])
}

fn another_process(model: &mut Model, by: isize) -> Option<Vec<Effect>> {
    select_row(model, by);
    Some(vec![Effect::Draw])
}

fn timeline(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let quarter = model.ui.timeline.span / 4;
    match key {
        Key::Char('+' | '=') => change_span(model, -1),
        Key::Char('-' | '_') => change_span(model, 1),
        Key::Left | Key::Char('h') => pan(model, |back| back.saturating_add(quarter)),
        Key::Right | Key::Char('l') => pan(model, |back| back.saturating_sub(quarter)),
        Key::Home | Key::Char('g') => pan(model, |_| Nanos::MAX),
        Key::End | Key::Char('G') => pan(model, |_| 0),
        Key::Up | Key::Char('k') => timeline_device(model, -1),
        Key::Down | Key::Char('j') => timeline_device(model, 1),
        Key::Char('n') => select_row(model, 1),
        Key::Char('N') => select_row(model, -1),
        Key::Char('o') => model.ui.timeline.own = !model.ui.timeline.own,
        Key::Char('t') => return Some(by_tag(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Looks at another device, by tag at whoever publishes there.
fn timeline_device(model: &mut Model, by: isize) {
    select_device(model, by);
    if model.ui.timeline.by_tag {
        let _ = select_publisher(model);
    }
}

/// Selects the first process listed that publishes on the device that is looked at, if the selected one is not on it. Whether
/// there is one.
fn select_publisher(model: &mut Model) -> bool {
    let Some(device) = model.selected_device().map(|d| d.key) else {
        return true;
    };
    if model.selected_process().is_none_or(|p| p.id.device == device) {
        return true;
    }
    let publishes = |p: &&crate::model::Process| p.id.device == device && p.figures.is_some();
    let there = model.listed().find(publishes).map(|p| p.id);
    if there.is_some() {
        select_process(model, there);
    }
    there.is_some()
}

/// Stacks by tag, or by state again.
fn by_tag(model: &mut Model) -> Vec<Effect> {
    model.ui.timeline.by_tag = !model.ui.timeline.by_tag;
    if !model.ui.timeline.by_tag {
        return vec![Effect::Draw];
    }
    if !select_publisher(model) {
        model.ui.timeline.by_tag = false;
        let label = model.selected_device().map(|d| d.label.clone()).unwrap_or_default();
        let text = format!("{label}: nobody who publishes there is listed");
        return toast(model, Severity::Info, text);
    }
    // Of many blocks tags are summed up only now that they are asked for.
    select_process(model, model.ui.process);
    let any = model
        .tags
        .as_ref()
        .is_some_and(|t| Some(t.process) == model.ui.process && t.any());
    // What a black box tells of them is read once it is selected.
    let unread = |p: &crate::model::Process| p.has_unread_blocks(model.map.as_ref());
    if !any && !model.selected_process().is_some_and(unread) {
        let text = match model.selected_process() {
            Some(process) => {
                let next = if model.rows.len() > 1 {
                    " (n: the next process)"
                } else {
                    ""
                };
                let name = model.world().name_of(process);
                format!("{name} gives its memory no tags (scopes in Rust and C){next}")
            }
            None => "no process is selected: 1 lists them".to_owned(),
        };
        model.ui.timeline.by_tag = false;
        return toast(model, Severity::Info, text);
    }
    vec![Effect::Draw]
}

pub(super) fn change_span(model: &mut Model, by: isize) {
    let spans = TimelineUi::SPANS;
    let at = spans
        .iter()
        .position(|s| *s >= model.ui.timeline.span)
        .unwrap_or(spans.len() - 1);
    model.ui.timeline.span = spans[at.saturating_add_signed(by).min(spans.len() - 1)];
    pan(model, |back| back);
}

/// Moves the right edge, never beyond the oldest sample.
fn pan(model: &mut Model, to: impl Fn(Nanos) -> Nanos) {
    let span = model.ui.timeline.span;
    let known = model.selected_device().map_or(0, |d| d.history.reach());
    model.ui.timeline.back = to(model.ui.timeline.back).min(known.saturating_sub(span));
}

fn demo_view(model: &mut Model, key: Key) -> Option<Vec<Effect>> {
    let running = model.demo.as_ref().is_some_and(|d| d.running());
    let last = model.setup.demos.len().saturating_sub(1);
    match key {
        Key::Char('x') if running => return Some(demo::stop(model)),
        Key::Char(' ') if model.paused() => return None,
        Key::Char(' ') if model.demo.as_ref().is_some_and(Demo::over) => return Some(demo::next(model)),
        Key::Char(c) if let Some(line) = demo::pace(model, c) => return Some(vec![Effect::TellDemo(line.into())]),
        Key::Up | Key::Char('k') => model.ui.demo_entry = model.ui.demo_entry.saturating_sub(1),
        Key::Down | Key::Char('j') => model.ui.demo_entry = (model.ui.demo_entry + 1).min(last),
        Key::PageUp => demo::scroll(model, -i32::from(model.ui.hits.told.page)),
        Key::PageDown => demo::scroll(model, i32::from(model.ui.hits.told.page)),
        Key::Home | Key::Char('g') => model.ui.demo_entry = 0,
        Key::End | Key::Char('G') => model.ui.demo_entry = last,
        Key::Enter if waiting_for_user(model) => return Some(demo::next(model)),
        Key::Enter => return Some(demo::start_entry(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

fn waiting_for_user(model: &Model) -> bool {
    model
        .demo
        .as_ref()
        .is_some_and(|d| d.stepped() && d.phase == DemoPhase::Waiting)
}

fn type_filter(model: &mut Model, key: Key) -> Vec<Effect> {
    match key {
        Key::Enter => model.ui.filter.editing = false,
        Key::Esc => {
            model.ui.filter.editing = false;
            model.ui.filter.text.clear();
        }
        Key::Backspace if model.ui.filter.text.is_empty() => model.ui.filter.editing = false,
        Key::Backspace => drop(model.ui.filter.text.pop()),
        Key::Ctrl('u') => model.ui.filter.text.clear(),
        Key::Up => select_row(model, -1),
        Key::Down => select_row(model, 1),
        Key::Char(c) => push_filter(model, c),
        _ => return Vec::new(),
    }
    relist(model);
    vec![Effect::Draw]
}

fn push_filter(model: &mut Model, c: char) {
    if model.ui.filter.text.chars().count() < FILTER_MAX {
        model.ui.filter.text.push(c);
    }
}
