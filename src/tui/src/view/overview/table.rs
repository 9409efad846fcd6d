//! The process table. The least important columns are dropped first where they do not all fit.

mod columns;
mod heading;
mod row;

use std::borrow::Cow;
use std::ops::Range;

use gpumem_probe::NvmlState;
use gpumem_text::units::plural;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, HighlightSpacing, Padding, Paragraph, Row, Table, TableState};

use super::first_in_view;
use crate::model::{Model, Process, Target};
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{MemoryBar, Part};
use crate::wrap::{width, wrap};
use columns::{GAP, Shown, fit};

/// Returns the lines of a table with all of its rows: heading, rows, frame.
pub(super) fn wanted_lines(rows: usize) -> u16 {
    needed_lines(rows, true)
}

/// Returns the lines of a table that shows all of its rows.
pub(super) fn needed_lines(rows: usize, framed: bool) -> u16 {
    let rows = u16::try_from(rows.max(1)).unwrap_or(u16::MAX);
    rows.saturating_add(if framed { 3 } else { 1 })
}

/// Returns how many lines the table leaves empty below its last row. A framed table keeps its frame.
pub(super) fn spare(model: &Model, area: Rect) -> u16 {
    let rows = match model.rows.len() {
        // The text in place of rows.
        0 => 4,
        rows => rows,
    };
    let used = match framed(model, area) {
        true => wanted_lines(rows).max(FRAMED),
        false => needed_lines(rows, false),
    };
    area.height.saturating_sub(used)
}

/// The least height of a table with a frame.
const FRAMED: u16 = 7;

fn framed(model: &Model, area: Rect) -> bool {
    area.height >= FRAMED && may_be_framed(model, area)
}

/// Checks whether a table of this width has a frame if it is tall enough.
pub(super) fn may_be_framed(model: &Model, area: Rect) -> bool {
    area.width >= 60 && model.ui.term.height >= 30
}

/// Draws the table.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let (model, theme) = (screen.model, screen.theme);
    let framed = framed(model, area);
    // The lines below the heading.
    let lines = area.height.saturating_sub(if framed { 3 } else { 1 });
    let in_view = in_view(model, lines);
    let inside = match framed {
        true => frame(screen, area, &title(model), &note(model, in_view.clone())),
        false => area,
    };
    let [heading, rows] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(inside);
    let columns = fit(model, inside.width, framed);
    let titles = heading::titles(model, &columns);
    let places = places(heading, &columns);
    for (&(shown, _), &place) in columns.iter().zip(places.iter()) {
        if let Shown::Of(column) = shown {
            screen.hit(place, Target::Column(column));
        }
    }
    let listed: Vec<&Process> = model.listed().skip(in_view.start).take(in_view.len()).collect();
    let selected = model.selected_row().filter(|row| in_view.contains(row));
    let mut state = TableState::new().with_selected(selected.map(|row| row - in_view.start));
    let table = process_table(screen, &columns, &listed)
        .header(heading::row(model, theme, &columns, &titles))
        .row_highlight_style(theme.selected());
    screen.render_stateful(table, inside, &mut state);
    if !framed {
        let room = heading
            .right()
            .saturating_sub(heading::end(&columns, &titles, &places) + 2);
        if let Some(text) = rows_in_view(model, in_view.clone(), room) {
            let text = Span::styled(text, theme.ink(Ink::Dim));
            screen.render(Line::from_iter([text, Span::raw(" ")]).right_aligned(), heading);
        }
    }
    screen.hits.page = rows.height;
    if model.rows.is_empty() {
        screen.render(placeholder(theme, &why_no_row(model), rows), rows);
        return;
    }
    screen.hits.first[0] = in_view.start;
    let bar = columns.iter().position(|c| c.0 == Shown::Bar).map(|i| places[i]);
    for (process, line) in listed.into_iter().zip(rows.rows()) {
        // Drawn after the selection, so that the bar keeps its colours.
        if let (Some(Rect { x, width, .. }), Some(parts)) = (bar, bar_parts(model, process)) {
            let bar = MemoryBar { theme, parts: &parts };
            screen.render(bar, Rect { x, width, ..line });
        }
        // The blank column before the first one has a mark at a rank that is unlike the others of its job.
        if model.world().jobs.outlier(process.id).is_some() {
            let width = line.width.min(1);
            let mark = Span::styled("!", theme.ink(Ink::Warning));
            screen.render(mark, Rect { width, ..line });
        }
        screen.hit(line, Target::Process(process.id));
    }
}

/// Draws a frame and returns the area inside. The area includes the blank columns at the sides, which the selection covers.
fn frame(screen: &mut Screen<'_>, area: Rect, title: &str, note: &str) -> Rect {
    let inside = screen.panel(area, title, note);
    Rect {
        x: inside.x - 1,
        width: inside.width + 2,
        ..inside
    }
}

/// Returns the widths of columns as constraints.
fn widths(columns: &[(Shown, u16)]) -> impl Iterator<Item = Constraint> {
    columns.iter().map(|&(_, wide)| Constraint::Length(wide))
}

/// Returns the areas of columns on a line, which begin behind one blank column as in the table.
fn places(line: Rect, columns: &[(Shown, u16)]) -> Vec<Rect> {
    let mut x = line.x + 1;
    let place = |&(_, width): &(Shown, u16)| {
        let place = Rect { x, width, ..line };
        x += width + GAP;
        place
    };
    columns.iter().map(place).collect()
}

/// Returns a table of processes with a blank column before the first one.
fn process_table(screen: &Screen<'_>, columns: &[(Shown, u16)], listed: &[&Process]) -> Table<'static> {
    let (theme, jobs) = (screen.theme, &screen.model.world().jobs);
    let row = |process: &&Process| {
        let unusual = jobs.outlier(process.id).map(|outlier| Shown::of_figure(outlier.figure));
        let cells = columns.iter().map(|&column| {
            let (text, ink) = row::text(process, column, columns);
            let ink = if unusual == Some(column.0) { Ink::Warning } else { ink };
            cell(column.0, text, theme.ink(ink))
        });
        Row::new(cells)
    };
    Table::new(listed.iter().map(row), widths(columns))
        .column_spacing(GAP)
        // The selection covers the blank column.
        .highlight_symbol(" ")
        .highlight_spacing(HighlightSpacing::Always)
}

/// Returns a cell with text aligned at the left, or a figure at the right.
fn cell(shown: Shown, text: String, style: Style) -> Cell<'static> {
    let line = Line::from(Span::styled(text, style));
    Cell::from(if shown.is_text() { line } else { line.right_aligned() })
}

/// Returns the rows that `lines` lines show, the selected one among them.
fn in_view(model: &Model, lines: u16) -> Range<usize> {
    let (all, lines) = (model.rows.len(), usize::from(lines));
    let first = first_in_view(model.ui.hits.first[0], model.selected_row(), lines, all);
    first..all.min(first + lines)
}

/// Returns which rows are in view, if not all are: `3-7 of 22`.
fn some(model: &Model, in_view: Range<usize>) -> Option<String> {
    let all = model.rows.len();
    (in_view.len() < all).then(|| match in_view.len() {
        0 | 1 => format!("{} of {all}", in_view.end),
        _ => format!("{}-{} of {all}", in_view.start + 1, in_view.end),
    })
}

/// Returns the same in `room` columns: if they are few, the number of rows above and below.
fn rows_in_view(model: &Model, in_view: Range<usize>, room: u16) -> Option<String> {
    let some = some(model, in_view.clone())?;
    let all = model.rows.len();
    let beyond = [("↑", in_view.start), ("↓", all - in_view.end)];
    let beyond = beyond.iter().filter(|(_, n)| *n > 0).map(|(to, n)| format!("{to}{n}"));
    let beyond = beyond.collect::<Vec<_>>().join(" ");
    // The longest text decides, so that the form does not change while the user scrolls.
    let longest = format!("{all}-{all} of {all}");
    let texts = [
        (format!("{longest} rows"), format!("{some} rows")),
        (longest, some),
        (beyond.clone(), beyond),
    ];
    let text = texts.into_iter().find(|(most, _)| width(most) <= room);
    text.map(|(_, text)| text)
}

/// Returns the frame's title. It names the device that the list is restricted to.
fn title(model: &Model) -> String {
    match model.only_device() {
        Some(device) => format!("Processes on {}", device.label),
        None => "Processes".to_owned(),
    }
}

/// Returns the note beside the frame's title.
fn note(model: &Model, in_view: Range<usize>) -> String {
    let some = some(model, in_view);
    if !model.ui.filter.text.is_empty() {
        let some = some.map(|some| format!(", {some} shown")).unwrap_or_default();
        let why = model
            .filter()
            .problem()
            .map(|why| format!(", {why}"))
            .unwrap_or_default();
        return format!("{} {:?}{why}{some}", model.matches(), model.ui.filter.text);
    }
    let rows = match some {
        Some(some) => format!("{some} rows"),
        None => plural(model.rows.len() as u64, "row"),
    };
    let rows = match model.only_device() {
        Some(_) => format!("{rows}, d lists all {}", model.listable()),
        None => rows,
    };
    match (model.listable_past() as u64, model.ui.black_boxes) {
        (0, _) => rows,
        (n, false) => format!("{rows}, b shows {n} that ended"),
        (n, true) => format!("{rows}, b hides {n} that ended"),
    }
}

/// Returns the parts of a process's bar: allocated and cached, or NVML's figure; `None` where neither is known.
fn bar_parts(model: &Model, process: &Process) -> Option<[Part; 4]> {
    let device = model.world().devices.iter().find(|d| d.key == process.id.device)?;
    let total = device.memory.value().map(|m| m.total).filter(|&total| total > 0)?;
    if process.figures.is_none() && process.nvml.value().is_none() {
        // An empty bar would claim that the process holds nothing.
        return None;
    }
    let (allocated, cached) = process.figures.as_ref().map_or((0, 0), |f| (f.allocated, f.cached));
    let other = process.nvml.value().map_or(0, |n| n.saturating_sub(allocated + cached));
    let free = total
        .saturating_sub(allocated)
        .saturating_sub(cached)
        .saturating_sub(other);
    Some([
        (Ink::Allocated, allocated),
        (Ink::Cached, cached),
        (Ink::Other, other),
        (Ink::Free, free),
    ])
}

/// Returns why there is no row, and what to do.
fn why_no_row(model: &Model) -> Cow<'static, str> {
    if let Some(why) = model.filter().problem() {
        return format!("No process matches the filter, since {why}. Esc clears it.").into();
    }
    if !model.ui.filter.text.is_empty() {
        return "No process matches the filter. Esc clears it.".into();
    }
    if let Some(device) = model.only_device().filter(|_| model.listable() > 0) {
        return format!(
            "No process is listed on {}. d lists those on all devices.",
            device.label
        )
        .into();
    }
    let why = match (&model.world().nvml, model.world().devices.is_empty()) {
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
    };
    why.into()
}

/// Returns a text in place of rows.
fn placeholder(theme: Theme, text: &str, area: Rect) -> Paragraph<'static> {
    let lines = wrap(text, area.width.saturating_sub(3).min(90));
    let lines = lines
        .into_iter()
        .map(|l| Line::from(Span::styled(l, theme.ink(Ink::Dim))));
    let top = u16::from(area.height > 3);
    Paragraph::new(Text::from_iter(lines)).block(Block::new().padding(Padding::new(2, 0, top, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::fixture;

    #[test]
    fn note_on_hidden_rows_fits_the_space() {
        let mut model = fixture::h100();
        model.rows = [0, 1, 2, 3].repeat(6);
        let shown_text = |in_view, room| rows_in_view(&model, in_view, room).unwrap_or_default();
        assert_eq!(shown_text(2..9, 40), "3-9 of 24 rows");
        assert_eq!(shown_text(2..9, 13), "3-9 of 24");
        assert_eq!(shown_text(2..9, 7), "↑2 ↓15");
        assert_eq!(shown_text(0..9, 7), "↓15");
        assert_eq!(shown_text(2..9, 3), "");
        assert_eq!(shown_text(0..24, 40), "", "all are in view");
    }

    #[test]
    fn selected_row_is_always_in_view() {
        let mut model = fixture::h100();
        for lines in 0..6 {
            assert_eq!(in_view(&model, lines), 0..usize::from(lines.min(4)));
        }
        model.ui.process = Some(model.live.processes[3].id);
        assert_eq!(in_view(&model, 2), 2..4);
    }
}
