//! Timeline: the use of a device's memory over time, with the events that changed it.

mod axis;
mod events;
mod phases;
mod tags;
mod window;

use gpumem_text::units::{self, Form};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};

use crate::model::{Basis, Device, DeviceKind, Nanos, SECOND, Spread};
use crate::view::panel::Panel;
use crate::view::theme::Ink;
use crate::view::widgets::{Entry, Legend, Says, StackedGraph, at_times};
use crate::view::{Screen, badge, history};
use crate::wrap::{cut, width};
use axis::{MemoryAxis, TimeAxis, top_above};
use window::{Window, columns, fill};

/// The layers of the stack, from the bottom up.
const LAYERS: [Ink; 3] = [Ink::Allocated, Ink::Cached, Ink::Other];

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let theme = screen.theme;
    let Some(device) = screen.model.selected_device() else {
        let panel = Panel::new(theme).title("Timeline");
        let inside = panel.inner(area);
        screen.render(panel, area);
        let third = Constraint::Length(inside.height / 3);
        let [_, line] = Layout::vertical([third, Constraint::Min(0)]).areas(inside);
        let text = Span::styled("No device is known yet.", theme.ink(Ink::Dim));
        screen.render(Line::from_iter([Span::raw(" "), text]), line);
        return;
    };
    let inside = frame(screen, area, device);
    let list = match inside.height {
        34.. => 8,
        24.. => 5,
        _ => 0,
    };
    let [inside, list] = Layout::vertical([Constraint::Min(0), Constraint::Length(list)]).areas(inside);
    let lanes = [u16::from(inside.height >= 7), u16::from(inside.height >= 9)];
    let ui = &screen.model.ui.timeline;
    let legends = match inside.height {
        // Tags take two lines, events one.
        14.. if ui.by_tag => 3,
        12.. => 2,
        _ => 1,
    };
    let foot = (1 + lanes[0] + lanes[1] + legends).min(inside.height.saturating_sub(2));
    let [chart, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(foot)]).areas(inside);
    let [axis, plot] = axis::split(chart);
    let [_, foot] = Layout::horizontal([Constraint::Length(axis.width), Constraint::Min(0)]).areas(foot);
    let lines = [1, lanes[0], lanes[1]].map(Constraint::Length);
    let [times, marks, phases, legends] = Layout::vertical(lines.into_iter().chain([Constraint::Min(0)])).areas(foot);

    let newest = device.history.long.back().map_or(screen.model.now, |p| p.at);
    let window = Window::new(ui.span, ui.until.unwrap_or(newest), plot.width);
    let max_gap = (3 * screen.model.setup.interval).max(2 * SECOND);
    let past = tags::past(screen.model, device).filter(|_| ui.by_tag);
    let by_tag = past.map(|past| tags::Stack::new(past, &screen.model.looks, window, max_gap, ui.until.is_none()));
    let mut varies = by_tag.as_ref().is_some_and(tags::Stack::varies);
    match &by_tag {
        Some(stack) => {
            let top = top_above(stack.most(), device.memory.value().map_or(0, |m| m.total));
            screen.render(MemoryAxis { theme, top }, chart);
            stack.draw(screen, plot, top);
        }
        None => varies = by_state(screen, chart, plot, device, window, max_gap),
    }
    let axis = TimeAxis {
        theme,
        span: ui.span,
        back: ui.back(newest),
        newest: &history::newest(screen.model, device),
    };
    screen.render(axis, times);
    if lanes[0] > 0 {
        events::draw(screen, marks, plot, device, window);
    }
    if lanes[1] > 0 {
        phases::draw(screen, phases, device, window);
    }
    let lines = match &by_tag {
        Some(stack) => {
            let lines = stack.legend(&theme, legends.width);
            let taken = lines.len() as u16;
            screen.render(Text::from(lines), legends);
            taken
        }
        None => {
            legend(screen, legends, device);
            1
        }
    };
    let [_, signs] = Layout::vertical([Constraint::Length(lines), Constraint::Min(0)]).areas(legends);
    sign_legend(screen, signs, device, window, varies);
    events::list(screen, list, device, window);
}

/// Draws a frame with the name of the device and the span of time, and returns the area inside.
fn frame(screen: &mut Screen<'_>, area: Rect, device: &Device) -> Rect {
    let theme = screen.theme;
    let ui = &screen.model.ui.timeline;
    let newest = device.history.long.back().map_or(screen.model.now, |p| p.at);
    let mut note = format!("last {}", units::span(ui.span));
    if ui.until.is_some() {
        note = format!("{} up to {} ago", units::span(ui.span), units::span(ui.back(newest)));
    }
    if ui.by_tag {
        let process = screen.model.selected_process();
        let pid = process.map_or(0, |p| p.pid);
        let halted = process.and_then(|p| p.halt_text());
        let who = halted.map_or_else(|| pid.to_string(), |word| format!("{pid} {word},"));
        note = match tags::past(screen.model, device) {
            Some(_) => format!("{who} by tag, {note}"),
            None => format!("{who} has no tags here, {note}"),
        };
    } else if ui.own {
        note = format!("publishers only, {note}");
    }
    let end = ui.until.unwrap_or(newest);
    // Where only publishers are known, that is so at any time.
    let with_others = device
        .memory
        .value()
        .is_some_and(|memory| memory.basis == Basis::Driver);
    if let Some(first) = device
        .history
        .told_until(end.saturating_sub(ui.span), end)
        .filter(|_| !ui.own && !ui.by_tag && with_others)
    {
        let ago = units::span(newest.saturating_sub(first).max(SECOND));
        note = format!("{note}, publishers only until {ago} ago");
    }
    let several = screen.model.world().devices.len() > 1;
    let title = if several {
        format!("{}  ↑↓", device.label)
    } else {
        device.label.clone()
    };
    let mut x = Panel::behind(&title);
    let simulated = device.kind == DeviceKind::Simulated;
    let room = area.width.saturating_sub(x + width(&note) + 5);
    if simulated && room < badge::MIN_WIDTH {
        note.clear();
    }
    // Without a frame there is no line for the label.
    let label = if simulated && Panel::fits(area) {
        let room = match note.is_empty() {
            true => area.width.saturating_sub(x + 2),
            false => room,
        };
        badge::label(screen, area, x, room)
    } else {
        None
    };
    x += label.as_ref().map_or(0, |label| label.width() as u16);
    let shown = Some(Span::styled(note.as_str(), theme.ink(Ink::Dim))).filter(|_| !note.is_empty());
    let panel = Panel::new(theme)
        .title(cut(&title, area.width.saturating_sub(6), "…"))
        .label(label)
        .note(shown);
    let inside = panel.inner(area);
    screen.render(panel, area);
    let room = area.width.saturating_sub(x + width(&note) + 8);
    if room > 10 && !device.name.is_empty() {
        let name = format!(" {} ", cut(&device.name, room, "…"));
        let [_, line] = Layout::horizontal([Constraint::Length(x), Constraint::Min(0)]).areas(area);
        screen.render(Span::styled(name, theme.ink(Ink::Dim)), line);
    }
    inside
}

/// Draws the device's memory by state: that of all programs, or only of those that publish. Returns whether a column has a
/// half-tone.
fn by_state(screen: &mut Screen<'_>, chart: Rect, plot: Rect, device: &Device, window: Window, max_gap: Nanos) -> bool {
    let theme = screen.theme;
    let own = screen.model.ui.timeline.own;
    let columns = columns(device, window, max_gap);
    let total = device.memory.value().map_or(0, |m| m.total);
    // The tops are those of the layers, of which the last one may be left out.
    let layers = if own { &LAYERS[..2] } else { &LAYERS[..] };
    let highest = layers.len() - 1;
    let most = columns.iter().flatten().map(|tops| tops.most[highest]).max();
    let top = match own {
        true => top_above(most.unwrap_or(0), total),
        false => total.max(1),
    };
    screen.render(MemoryAxis { theme, top }, chart);
    let shares = |tops: &[u64; 3]| tops.map(|bytes| bytes as f64 / top as f64);
    let columns: Vec<_> = columns.iter().map(|tops| tops.map(|tops| tops.map(shares))).collect();
    let columns = &columns[..];
    screen.render(StackedGraph { theme, layers, columns }, plot);
    let varies = |tops: &Spread<[f64; 3]>| tops.least[..=highest] != tops.most[..=highest];
    columns.iter().flatten().any(varies)
}

/// Draws what the colours mean, with the newest figures.
fn legend(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    let Some(memory) = device.memory.value() else {
        return;
    };
    let mut entries: Vec<Entry> = vec![
        (Ink::Allocated, "allocated", memory.allocated, 1),
        (Ink::Cached, "cached", memory.cached, 2),
    ];
    let own = screen.model.ui.timeline.own;
    if memory.basis == Basis::Driver && !own {
        entries.push((Ink::Other, "other", memory.others(), 3));
    }
    let others = own && memory.others() > 0;
    let sizes = entries.iter().map(|entry| entry.2);
    let form = match others {
        true => Form::of(sizes.chain([memory.others()])),
        false => Form::of(sizes.chain([memory.used(), memory.total])),
    };
    let legend = Legend {
        theme: screen.theme,
        entries,
        total: memory.total,
        form,
        says: Says::Both,
    }
    .fitted(area.width);
    let form = legend.form;
    let legend = legend.line(area.width);
    let size = |bytes| form.size(bytes) + form.unit();
    let used = match others {
        true => format!("o shows {} of others", size(memory.others())),
        false => {
            let when = history::newest(screen.model, device);
            format!("{} of {} {when}", form.size(memory.used()), size(memory.total))
        }
    };
    if legend.width() + usize::from(width(&used)) <= area.width.into() {
        let used = Span::styled(used, screen.theme.ink(Ink::Dim));
        screen.render(Line::from(used).right_aligned(), area);
    }
    screen.render(legend, area);
}

/// Draws what the glyphs of events, the bands of phases and the half-tone mean, and at the right the number of missing events.
fn sign_legend(screen: &mut Screen<'_>, area: Rect, device: &Device, window: Window, varies: bool) {
    let theme = screen.theme;
    let mut line = events::legend(&theme, device, window, area.width);
    let taken = line.width() as u16;
    let mut room = area.width;
    let missing = events::missing(device.history.marks_lost, device.history.marks_dropped);
    if let Some(text) = missing.into_iter().find(|text| taken + width(text) <= room) {
        room = room.saturating_sub(width(&text) + 2);
        let text = Span::styled(text, theme.ink(Ink::Dim));
        screen.render(Line::from(text).right_aligned(), area);
    }
    let looks = &screen.model.looks;
    line.extend(phases::legend(&theme, device, looks, room.saturating_sub(taken)));
    let entry = Span::styled(" at times", theme.ink(Ink::Dim));
    if varies && line.width() + 1 + entry.width() <= usize::from(room) {
        line.extend([at_times(&theme, Ink::Allocated), entry]);
    }
    screen.render(line, area);
}
