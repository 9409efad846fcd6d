//! Timeline: what a device's memory was used for, with the events that changed it.

mod events;
mod phases;
mod tags;
#[cfg(test)]
mod tests;

use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Screen;
use super::pen::{split_bottom, split_left, split_top, width};
use super::theme::Ink;
use super::{badge, graph, history, legend};
use crate::model::{Basis, Device, DeviceKind, Nanos, Partition, SECOND};
use gpumem_text::units;

/// Columns of the axis: `79.6G` and a tick.
const AXIS: u16 = 8;
/// The stack, from the foot up.
const LAYERS: [Ink; 3] = [Ink::Allocated, Ink::Cached, Ink::Other];

/// The span that is shown, cut into one bucket of time per column. Buckets lie at multiples of their width, so that
/// a sample never changes its column because another one arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Nanoseconds per column.
    bucket: Nanos,
    /// Number of the first column's bucket since the clock's zero.
    first: u64,
    /// Columns.
    columns: u16,
}

impl Window {
    fn new(span: Nanos, end: Nanos, columns: u16) -> Window {
        let bucket = (span / u64::from(columns.max(1))).max(1);
        let last = end / bucket;
        Window {
            bucket,
            first: last.saturating_add(1).saturating_sub(u64::from(columns)),
            columns,
        }
    }

    /// The column of a moment; `None` outside the window.
    fn column(&self, at: Nanos) -> Option<u16> {
        let column = (at / self.bucket).checked_sub(self.first)?;
        u16::try_from(column).ok().filter(|&c| c < self.columns)
    }

    /// The first moment of a column.
    fn start(&self, column: u16) -> Nanos {
        self.first.saturating_add(u64::from(column)).saturating_mul(self.bucket)
    }
}

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let Some(device) = screen.model.selected_device() else {
        let inside = screen.pen.panel(area, "Timeline", "");
        let style = screen.pen.theme.ink(Ink::Dim);
        screen.pen.clipped(
            inside,
            1,
            inside.height / 3,
            "No device is known yet.",
            inside.width,
            style,
        );
        return;
    };
    let inside = frame(screen, area, device);
    let list = match inside.height {
        34.. => 8,
        24.. => 5,
        _ => 0,
    };
    let (inside, list) = split_bottom(inside, list);
    let lanes = u16::from(inside.height >= 7) + u16::from(inside.height >= 9);
    let legends = match inside.height {
        // Tags have names and take two lines, events one.
        14.. if screen.model.ui.timeline.by_tag => 3,
        12.. => 2,
        _ => 1,
    };
    let (chart, foot) = split_bottom(inside, (1 + lanes + legends).min(inside.height.saturating_sub(2)));
    let (axis, plot) = split_left(chart, if chart.width >= 40 { AXIS } else { 0 });
    let ui = &screen.model.ui.timeline;
    let newest = device.history.long.back().map_or(screen.model.now, |p| p.at);
    let window = Window::new(ui.span, newest.saturating_sub(ui.back), plot.width);
    let patience = (3 * screen.model.setup.interval).max(2 * SECOND);
    let past = tags::past(screen.model, device).filter(|_| ui.by_tag);
    let by_tag = past.map(|past| tags::Stack::new(past, window, patience, ui.back == 0));
    match &by_tag {
        Some(stack) => {
            let total = device.memory.value().map_or(0, |m| m.total);
            let top = top_of(stack.most(), total);
            grid(screen, axis, plot, top);
            stack.draw(screen, plot, top);
        }
        None => stack(screen, axis, plot, device, window, patience),
    }
    let (_, foot) = split_left(foot, axis.width);
    let (line, rest) = split_top(foot, 1);
    time_axis(screen, line, ui.span, ui.back, &history::newest(screen.model, device));
    let mut rest = rest;
    if lanes > 0 {
        let (lane, below) = split_top(rest, 1);
        events::lane(screen, lane, plot, device, window);
        rest = below;
    }
    if lanes > 1 {
        let (lane, below) = split_top(rest, 1);
        phases::lane(screen, lane, device, window);
        rest = below;
    }
    let lines = match &by_tag {
        Some(stack) => stack.legend(screen, rest),
        None => {
            legend(screen, rest, device);
            1
        }
    };
    let (_, rest) = split_top(rest, lines);
    let (x, end) = events::legend(screen, rest, device, window);
    phases::legend(screen, split_left(rest, end).0, x, device);
    events::list(screen, list, device, window);
}

fn frame(screen: &mut Screen<'_>, area: Rect, device: &Device) -> Rect {
    let ui = &screen.model.ui.timeline;
    let mut note = format!("last {}", units::span(ui.span));
    if ui.back > 0 {
        note = format!("{} up to {} ago", units::span(ui.span), units::span(ui.back));
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
    let several = screen.model.world().devices.len() > 1;
    let title = if several {
        format!("{}  ↑↓", device.label)
    } else {
        device.label.clone()
    };
    let mut x = 3 + width(&title) + 1;
    let simulated = device.kind == DeviceKind::Simulated;
    let room = area.width.saturating_sub(x + width(&note) + 5);
    if simulated && room < badge::LEAST {
        note.clear();
    }
    let inside = screen.pen.panel(area, &title, &note);
    // Where there is no frame, there is no line for it either.
    if simulated && inside != area {
        let room = if note.is_empty() {
            area.width.saturating_sub(x + 2)
        } else {
            room
        };
        x = badge::draw(&mut screen.pen, area, x, room);
        screen.pen.cell(area, x, 0, ' ', Style::new());
    }
    let room = area.width.saturating_sub(x + width(&note) + 8);
    if room > 10 && !device.name.is_empty() {
        let dim = screen.pen.theme.ink(Ink::Dim);
        screen.pen.cell(area, x, 0, ' ', dim);
        let end = screen.pen.clipped(area, x + 1, 0, &device.name, room, dim);
        screen.pen.cell(area, end, 0, ' ', dim);
    }
    inside
}

/// One moment per column: the highest of its bucket, else the one before while that is no older than samples may be.
/// Points come oldest first.
fn fill<'a, T, K: PartialOrd>(
    points: impl Iterator<Item = (Nanos, &'a T)>,
    window: Window,
    patience: Nanos,
    height: impl Fn(&T) -> K,
) -> Vec<Option<&'a T>> {
    let mut columns: Vec<Option<&T>> = vec![None; usize::from(window.columns)];
    let mut before: Option<(Nanos, &T)> = None;
    let mut newest = None;
    for (at, point) in points {
        newest = Some(at);
        match window.column(at) {
            Some(column) => {
                let here = &mut columns[usize::from(column)];
                if here.is_none_or(|known| height(known) <= height(point)) {
                    *here = Some(point);
                }
            }
            None if at < window.start(0) => before = Some((at, point)),
            None => {}
        }
    }
    for column in 0..window.columns {
        let start = window.start(column);
        match columns[usize::from(column)] {
            Some(point) => before = Some((start, point)),
            None => {
                let fresh = before.filter(|(at, _)| start.saturating_sub(*at) <= patience);
                columns[usize::from(column)] = fresh.map(|(_, point)| point);
            }
        }
    }
    // Nothing is known of the time after the newest sample.
    if let Some(newest) = newest.and_then(|at| window.column(at)) {
        columns[usize::from(newest) + 1..].fill(None);
    }
    columns
}

/// The fullest partition of each column.
fn columns(device: &Device, window: Window, patience: Nanos) -> Vec<Option<&Partition>> {
    let points = device.history.points().map(|p| (p.at, &p.memory));
    fill(points, window, patience, Partition::fullness)
}

/// By state: the device's memory, of everyone or of the programs that publish.
fn stack(screen: &mut Screen<'_>, axis: Rect, plot: Rect, device: &Device, window: Window, patience: Nanos) {
    let own = screen.model.ui.timeline.own;
    let columns = columns(device, window, patience);
    let total = device.memory.value().map_or(0, |m| m.total);
    let height = |m: &Partition| if own { m.reserved() } else { m.used() };
    let most = columns.iter().flatten().map(|m| height(m)).max().unwrap_or(0);
    let top = top_of(most, total);
    grid(screen, axis, plot, top);
    let layers = if own { &LAYERS[..2] } else { &LAYERS[..] };
    for (x, memory) in columns.into_iter().enumerate() {
        let Some(memory) = memory else { continue };
        let share = |bytes: u64| bytes as f64 / top as f64;
        let tops = [share(memory.allocated), share(memory.reserved()), share(memory.used())];
        graph::stacked_column(&mut screen.pen, plot, x as u16, layers, &tops[..layers.len()]);
    }
}

/// The figure at the top of the axis.
fn top_of(most: u64, total: u64) -> u64 {
    if most == 0 {
        return total.max(1);
    }
    graph::ceiling(most.saturating_add(most / 16)).min(total.max(1)).max(1)
}

/// Into how many steps an axis is divided, so that each is a round figure: a quarter of 3 GiB is none.
fn memory_steps(top: u64, height: u16) -> u64 {
    match (height >= 12, top.is_multiple_of(3) && (top / 3).is_power_of_two()) {
        (true, true) => 3,
        (true, false) => 4,
        _ => 2,
    }
}

/// Lines and labels at quarters (or thirds, or halves) of the height.
fn grid(screen: &mut Screen<'_>, axis: Rect, plot: Rect, top: u64) {
    let dim = screen.pen.theme.ink(Ink::Dim);
    let steps = memory_steps(top, plot.height);
    for step in 0..=steps {
        // The line of a label is the one whose upper edge is the figure; the foot has the last line.
        let y = (u64::from(plot.height) * (steps - step) / steps).min(u64::from(plot.height.saturating_sub(1))) as u16;
        let label = if step == 0 {
            "0".to_owned()
        } else {
            units::bytes_short(top / steps * step)
        };
        screen.pen.text_end(axis, AXIS - 2, y, &label, dim);
        screen.pen.cell(axis, AXIS - 1, y, '┤', dim);
        if step > 0 {
            for x in 0..plot.width {
                screen.pen.cell(plot, x, y, '┈', dim);
            }
        }
    }
}

/// Into how many steps a span is divided, so that each is a round time.
fn time_steps(span: Nanos, columns: u16) -> u64 {
    const ROUND: [u64; 9] = [1, 2, 3, 5, 10, 15, 30, 60, 120];
    if columns < 60 {
        return 2;
    }
    let round = |&steps: &u64| ROUND.iter().any(|seconds| seconds * steps * SECOND == span);
    [4, 5].into_iter().find(round).unwrap_or(4)
}

fn time_axis(screen: &mut Screen<'_>, area: Rect, span: Nanos, back: Nanos, newest: &str) {
    let dim = screen.pen.theme.ink(Ink::Dim);
    let columns = area.width;
    if columns < 20 {
        return;
    }
    let end = if back == 0 {
        newest.to_owned()
    } else {
        format!("-{}", units::span(back))
    };
    let room = screen.pen.text_end(area, columns, 0, &end, dim);
    let steps = time_steps(span, columns);
    for step in 0..steps {
        let ago = back + span / steps * (steps - step);
        let text = format!("-{}", units::span(ago));
        let x = (u64::from(columns) * step / steps) as u16;
        // Two labels that run into each other are none.
        if x + width(&text) < room {
            screen.pen.text(area, x, 0, &text, dim);
        }
    }
}

/// What the colours mean, with the newest figures.
fn legend(screen: &mut Screen<'_>, area: Rect, device: &Device) {
    let Some(memory) = device.memory.value() else {
        return;
    };
    let mut parts: Vec<legend::Entry> = vec![
        (Ink::Allocated, "allocated", memory.allocated, 1),
        (Ink::Cached, "cached", memory.cached, 2),
    ];
    let own = screen.model.ui.timeline.own;
    if memory.basis == Basis::Driver && !own {
        parts.push((Ink::Other, "other", memory.other, 3));
    }
    let x = legend::draw(&mut screen.pen, area, parts, memory.total, (units::bytes_short, ""));
    let used = match own && memory.other > 0 {
        true => format!("o shows {} of others", units::bytes(memory.other)),
        false => {
            let when = history::newest(screen.model, device);
            format!(
                "{} of {} {when}",
                units::bytes(memory.used()),
                units::bytes(memory.total)
            )
        }
    };
    if x + width(&used) <= area.width {
        let dim = screen.pen.theme.ink(Ink::Dim);
        screen.pen.text_end(area, area.width, 0, &used, dim);
    }
}
