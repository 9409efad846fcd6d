//! The Timeline: scrolls through time, and chooses what is stacked.

use crate::event::Effect;
use crate::model::{Action, Model, Move, Nanos, Process, Severity, TimelineUi, View};

use super::{overview, toast};

/// Performs an action of this view. Returns `None` if the view does not use it.
pub(super) fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let quarter = model.ui.timeline.span / 4;
    match action {
        Action::Zoom(by) => change_span(model, -isize::from(by)),
        Action::Move(Move::Left) => pan(model, |back| back.saturating_add(quarter)),
        Action::Move(Move::Right) => pan(model, |back| back.saturating_sub(quarter)),
        Action::Move(Move::First) => pan(model, |_| Nanos::MAX),
        Action::Move(Move::Last) => pan(model, |_| 0),
        Action::Move(Move::Up) => show_device(model, -1),
        Action::Move(Move::Down) => show_device(model, 1),
        Action::Process(by) => overview::select_row(model, by.into()),
        Action::HideOther => model.ui.timeline.own = !model.ui.timeline.own,
        Action::ByTag => return Some(by_tag(model)),
        _ => return None,
    }
    Some(vec![Effect::Draw])
}

/// Selects another device. When stacked by tag, also selects a process that publishes on it.
fn show_device(model: &mut Model, by: isize) {
    overview::select_device(model, by);
    if model.ui.timeline.by_tag {
        let _ = select_publisher(model);
    }
}

/// Selects the first listed process that publishes on the selected device, if the selected process is not on it. Returns
/// `false` if there is none.
fn select_publisher(model: &mut Model) -> bool {
    let Some(device) = model.selected_device().map(|d| d.key) else {
        return true;
    };
    if model.selected_process().is_none_or(|p| p.id.device == device) {
        return true;
    }
    let publishes = |p: &&Process| p.id.device == device && p.figures.is_some();
    let there = model.listed().find(publishes).map(|p| p.id);
    if there.is_some() {
        overview::select_process(model, there);
    }
    there.is_some()
}

/// Toggles between stacking by tag and by state.
fn by_tag(model: &mut Model) -> Vec<Effect> {
    model.ui.timeline.by_tag = !model.ui.timeline.by_tag;
    if !model.ui.timeline.by_tag {
        return vec![Effect::Draw];
    }
    if !select_publisher(model) {
        model.ui.timeline.by_tag = false;
        let label = model.selected_device().map(|d| d.label.clone()).unwrap_or_default();
        let text = format!("{label}: no listed program publishes there");
        return toast(model, Severity::Info, text);
    }
    // The tags of many blocks are summed up only once they are shown.
    overview::select_process(model, model.ui.process);
    let any = model
        .tags
        .as_ref()
        .is_some_and(|t| Some(t.process) == model.ui.process && t.any());
    // The blocks of a black box are read once it is selected.
    let unread = |p: &Process| p.has_unread_blocks(model.map.as_ref());
    if !any && !model.selected_process().is_some_and(unread) {
        let text = match model.selected_process() {
            Some(process) => {
                let next = if model.rows.len() > 1 {
                    " (n: the next process)"
                } else {
                    ""
                };
                let name = model.world().name_of(process);
                let why = process
                    .figures
                    .as_ref()
                    .and_then(|figures| figures.events_skipped.as_deref());
                match why {
                    Some(why) => format!("{name}: no tags are known, since {why}{next}"),
                    None if process.figures.as_ref().is_some_and(|figures| figures.sampled) => {
                        format!("{name} records no history, which has tags and lines (GPUMEM_HISTORY=10000){next}")
                    }
                    None => format!("{name} does not tag its memory (with scopes in Rust or C){next}"),
                }
            }
            None => "no process is selected: 1 lists them".to_owned(),
        };
        model.ui.timeline.by_tag = false;
        return toast(model, Severity::Info, text);
    }
    vec![Effect::Draw]
}

fn change_span(model: &mut Model, by: isize) {
    let spans = TimelineUi::SPANS;
    let at = spans
        .iter()
        .position(|s| *s >= model.ui.timeline.span)
        .unwrap_or(spans.len() - 1);
    model.ui.timeline.span = spans[at.saturating_add_signed(by).min(spans.len() - 1)];
    pan(model, |back| back);
}

/// Moves the right edge, but not so far that the span begins before the oldest sample.
fn pan(model: &mut Model, to: impl Fn(Nanos) -> Nanos) {
    let ui = model.ui.timeline;
    let (newest, known) = model.selected_device().map_or((model.now, 0), |device| {
        let history = &device.history;
        (history.long.back().map_or(model.now, |point| point.at), history.reach())
    });
    let back = to(ui.back(newest)).min(known.saturating_sub(ui.span));
    model.ui.timeline.until = (back > 0).then(|| newest.saturating_sub(back));
}

/// Opens the view at a moment of a process, if it is known; the moment is then in the last quarter of what is shown.
pub(super) fn open_at(model: &mut Model, at: Option<Nanos>) {
    model.ui.view = View::Timeline;
    model.ui.timeline.by_tag = false;
    let after = model.ui.timeline.span / 4;
    let newest = model
        .selected_device()
        .and_then(|d| d.history.long.back().map(|point| point.at));
    let until = at.map(|at| at.saturating_add(after));
    model.ui.timeline.until = until.filter(|until| newest.is_some_and(|newest| *until < newest));
}
