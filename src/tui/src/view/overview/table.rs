//! The process table: as many columns as fit, the least important ones leave first.

mod columns;
mod row;

use std::ops::Range;

use gpumem_probe::NvmlState;
use gpumem_text::units::plural;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::super::Screen;
use super::super::bar;
use super::super::pen::{CUT, split_left, split_top, width, wrap};
use super::super::theme::Ink;
use super::first_in_view;
use crate::model::{Column, Device, JOB_OR_COMMAND, Model, Process, Target};
use columns::{GAP, Shown, fit};

/// Lines the table would like for so many rows: heading, rows, frame.
pub(super) fn wanted_lines(rows: usize) -> u16 {
    u16::try_from(rows.max(1)).unwrap_or(u16::MAX).saturating_add(3)
}

/// How many lines of an area the table leaves empty below its last row. It keeps its frame if it has one.
pub(super) fn spare(model: &Model, area: Rect) -> u16 {
    let rows = match model.rows.len() {
        // What is said instead.
        0 => 4,
        rows => rows,
    };
    let used = match framed(model, area) {
        true => wanted_lines(rows).max(FRAMED),
        false => wanted_lines(rows) - 2,
    };
    area.height.saturating_sub(used)
}

/// The lowest table with a frame.
const FRAMED: u16 = 7;

fn framed(model: &Model, area: Rect) -> bool {
    area.height >= FRAMED && area.width >= 60 && model.ui.term.height >= 30
}

/// The line that says how many devices did not fit, if there is one, and the table below it.
pub(super) fn below_note(area: Rect, hidden_devices: usize) -> (Rect, Rect) {
    split_top(area, u16::from(hidden_devices > 0 && area.height >= 4))
}

/// Draws the table, with a line that says how many devices did not fit.
pub(super) fn draw_below(screen: &mut Screen<'_>, area: Rect, hidden_devices: usize) {
    let (line, rest) = below_note(area, hidden_devices);
    if line.is_empty() {
        return draw(screen, rest);
    }
    let text = format!(
        "{} more: ← → or a click on a device selects the next",
        plural(hidden_devices as u64, "device")
    );
    let style = screen.pen.theme.ink(Ink::Dim);
    screen
        .pen
        .clipped(line, 1, 0, &text, line.width.saturating_sub(1), style);
    draw(screen, rest);
}

/// Draws the table.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let framed = framed(screen.model, area);
    // What is below the heading.
    let lines = area.height.saturating_sub(if framed { 3 } else { 1 });
    let in_view = in_view(screen.model, lines);
    let inside = if framed {
        let note = note(screen, in_view.clone());
        let inside = screen.pen.panel(area, "Processes", &note);
        // The selection reaches from frame to frame.
        Rect {
            x: inside.x - 1,
            width: inside.width + 2,
            ..inside
        }
    } else {
        area
    };
    let (heading, rows) = split_top(inside, 1);
    let columns = fit(screen, inside.width, framed);
    let end = draw_heading(screen, heading, &columns);
    if !framed {
        draw_in_view(screen, heading, end, in_view.clone());
    }
    screen.hits.page = rows.height;
    if screen.model.rows.is_empty() {
        empty(screen, rows);
        return;
    }
    let model = screen.model;
    let shown = in_view.len();
    let selected = model.selected_row();
    let first = in_view.start;
    screen.hits.first[0] = first;
    for (i, process) in model.listed().enumerate().skip(first).take(shown) {
        let (_, line) = split_top(rows, (i - first) as u16);
        let (line, _) = split_top(line, 1);
        draw_row(screen, line, &columns, process);
        if selected == Some(i) {
            let style = screen.pen.theme.selected();
            screen.pen.restyle(line, style);
        }
        draw_bar(screen, line, &columns, process);
        screen.hit(line, Target::Process(process.id));
    }
}

/// Which rows so many lines show: the selected one is among them.
fn in_view(model: &Model, lines: u16) -> Range<usize> {
    let (all, lines) = (model.rows.len(), usize::from(lines));
    let first = first_in_view(model.ui.hits.first[0], model.selected_row(), lines, all);
    first..all.min(first + lines)
}

/// Where rows lie above or below those in view, which these are: `3-7 of 22`.
fn some(model: &Model, in_view: Range<usize>) -> Option<String> {
    let all = model.rows.len();
    (in_view.len() < all).then(|| match in_view.len() {
        0 | 1 => format!("{} of {all}", in_view.end),
        _ => format!("{}-{} of {all}", in_view.start + 1, in_view.end),
    })
}

/// The same in a table without a frame, in what its heading leaves from a column on: where that is little, how many lie above and below.
fn draw_in_view(screen: &mut Screen<'_>, heading: Rect, end: u16, in_view: Range<usize>) {
    let Some(some) = some(screen.model, in_view.clone()) else {
        return;
    };
    let all = screen.model.rows.len();
    let beyond = [("↑", in_view.start), ("↓", all - in_view.end)];
    let beyond = beyond.iter().filter(|(_, n)| *n > 0).map(|(to, n)| format!("{to}{n}"));
    let beyond = beyond.collect::<Vec<_>>().join(" ");
    let room = heading.width.saturating_sub(1);
    let dim = screen.pen.theme.ink(Ink::Dim);
    // Whoever scrolls sees one form all the way.
    let longest = format!("{all}-{all} of {all}");
    let texts = [
        (format!("{longest} rows"), format!("{some} rows")),
        (longest, some),
        (beyond.clone(), beyond),
    ];
    if let Some((_, text)) = texts.iter().find(|(most, _)| end + 1 + width(most) <= room) {
        screen.pen.text_end(heading, room, 0, text, dim);
    }
}

fn note(screen: &Screen<'_>, in_view: Range<usize>) -> String {
    let model = screen.model;
    let some = some(model, in_view);
    if !model.ui.filter.text.is_empty() {
        let some = some.map(|some| format!(", {some} shown")).unwrap_or_default();
        return format!("{} {:?}{some}", model.matches(), model.ui.filter.text);
    }
    let rows = match some {
        Some(some) => format!("{some} rows"),
        None => plural(model.rows.len() as u64, "row"),
    };
    match (model.world().past.len() as u64, model.ui.black_boxes) {
        (0, _) => rows,
        (n, false) => format!("{rows}, b shows {n} that ended"),
        (n, true) => format!("{rows}, b hides {n} that ended"),
    }
}

/// Whether jobs have a column of their own.
fn has_jobs(columns: &[(Shown, u16)]) -> bool {
    columns.iter().any(|c| c.0 == Shown::Job)
}

/// Draws the headings; returns the column after the last of them.
fn draw_heading(screen: &mut Screen<'_>, area: Rect, columns: &[(Shown, u16)]) -> u16 {
    let model = screen.model;
    let jobs_within = !has_jobs(columns) && model.listed().any(|p| !p.job.is_empty());
    let (mut x, mut end) = (1, 0);
    for &(shown, wide) in columns {
        let sorted = shown == Shown::Of(model.order());
        let style = if sorted {
            screen.pen.theme.ink(Ink::Accent).add_modifier(Modifier::BOLD)
        } else {
            screen.pen.theme.ink(Ink::Dim)
        };
        let cell = Rect {
            x: area.x.saturating_add(x),
            width: wide.min(area.width.saturating_sub(x)),
            ..area
        };
        let arrow = match (sorted, model.ui.sort.descending) {
            (false, _) => "",
            (true, true) => "▾",
            (true, false) => "▴",
        };
        let title = match shown {
            Shown::Of(Column::Command) if jobs_within && cell.width > width(JOB_OR_COMMAND) => JOB_OR_COMMAND,
            _ => shown.title(),
        };
        let title = format!("{title}{arrow}");
        if shown.is_text() {
            end = x.saturating_add(screen.pen.text(cell, 0, 0, &title, style));
        } else {
            end = x.saturating_add(wide);
            screen.pen.text_end(cell, wide, 0, &title, style);
        }
        if let Shown::Of(column) = shown {
            screen.hit(cell, Target::Column(column));
        }
        x = x.saturating_add(wide + GAP);
    }
    end
}

fn draw_row(screen: &mut Screen<'_>, line: Rect, columns: &[(Shown, u16)], process: &Process) {
    let unsaid = row::unsaid(process, columns);
    let job_shown = has_jobs(columns);
    let mut x = 1;
    for &(shown, wide) in columns {
        let room = wide.min(line.width.saturating_sub(x));
        let (_, cell) = split_left(line, x);
        let (cell, _) = split_left(cell, room);
        if shown != Shown::Bar {
            let (mut text, ink) = row::value(process, shown);
            if shown == Shown::Of(Column::State) {
                text = row::state_in(process, room);
            } else if shown == Shown::Of(Column::Command) {
                text = row::name_in(process, room, job_shown, &unsaid);
            } else if shown == Shown::Job {
                text = process.job_in(room.into(), CUT);
            }
            let style = screen.pen.theme.ink(ink);
            if shown.is_text() {
                screen.pen.clipped(cell, 0, 0, &text, room, style);
            } else {
                screen.pen.text_end(cell, room, 0, &text, style);
            }
        }
        x = x.saturating_add(wide + GAP);
    }
}

/// The bar of a row; drawn after the selection, so that its colours keep their meaning.
fn draw_bar(screen: &mut Screen<'_>, line: Rect, columns: &[(Shown, u16)], process: &Process) {
    let before = columns.iter().take_while(|c| c.0 != Shown::Bar);
    let x = before.fold(1u16, |x, c| x.saturating_add(c.1 + GAP));
    if let Some(&(_, wide)) = columns.iter().find(|c| c.0 == Shown::Bar) {
        let (_, cell) = split_left(line, x);
        reserved_bar(screen, split_left(cell, wide).0, process);
    }
}

/// Allocated and cached (or NVML's figure) as a share of the device.
fn reserved_bar(screen: &mut Screen<'_>, cell: Rect, process: &Process) {
    let device: Option<&Device> = screen.model.world().devices.iter().find(|d| d.key == process.id.device);
    let Some(total) = device
        .and_then(|d| d.memory.value())
        .map(|m| m.total)
        .filter(|&t| t > 0)
    else {
        return;
    };
    if process.figures.is_none() && process.nvml.value().is_none() {
        // Nobody knows how much it has: an empty bar would say that it has nothing.
        return;
    }
    let (allocated, cached) = process.figures.as_ref().map_or((0, 0), |f| (f.allocated, f.cached));
    let other = process.nvml.value().map_or(0, |n| n.saturating_sub(allocated + cached));
    let free = total
        .saturating_sub(allocated)
        .saturating_sub(cached)
        .saturating_sub(other);
    let parts = [
        (Ink::Allocated, allocated),
        (Ink::Cached, cached),
        (Ink::Other, other),
        (Ink::Free, free),
    ];
    bar::stacked(&mut screen.pen, cell, &parts);
}

/// What to do when there is no row.
fn empty(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let text = if !model.ui.filter.text.is_empty() {
        "No process matches the filter. Esc clears it."
    } else {
        match (&model.world().nvml, model.world().devices.is_empty()) {
            (NvmlState::Starting, true) => "",
            (NvmlState::Failed { .. }, _) => {
                "While NVML fails, only programs that publish can be listed, and none does. A program publishes when it \
                 allocates through gpumem-alloc."
            }
            (NvmlState::Ready, _) => {
                "NVML lists no process, and none publishes. A program publishes when it allocates through gpumem-alloc. \
                 Try it: key 7 starts a demo."
            }
            _ => {
                "No process publishes now. A program publishes when it allocates through gpumem-alloc. \
                 Try it: key 7 starts a demo."
            }
        }
    };
    let style = screen.pen.theme.ink(Ink::Dim);
    let top = u16::from(area.height > 3);
    for (y, line) in wrap(text, area.width.saturating_sub(3).min(90)).iter().enumerate() {
        screen.pen.text(area, 2, y as u16 + top, line, style);
    }
}
