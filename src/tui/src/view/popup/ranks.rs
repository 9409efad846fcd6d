//! The ranks of a job side by side: a line each, the median of all, and what is unusual.

mod columns;
mod notes;

use gpumem_text::units::bytes_short;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, HighlightSpacing, Paragraph, Row, Table, TableState};

use crate::model::{DeviceKey, Holdings, Job, Rank, Target};
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::{MemoryBar, swatch};
use columns::{Columns, GAP, Shown};

/// The widest popup, with the frame.
const WIDE: u16 = 150;
/// The narrowest one where there is room, for the notes below the ranks.
const NARROW: u16 = 80;

/// Draws the job of the selected process.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let Some((job, selected)) = screen.model.selected_job() else {
        let text = "The selected process is no rank of a job that runs here.";
        let inside = super::window(screen, area, 64, 3, "Ranks", "Esc");
        return screen.render(Paragraph::new(text), inside);
    };
    let columns = Columns::fit(job, area.width.min(WIDE).saturating_sub(4));
    let wide = (columns.needed() + 4).clamp(area.width.min(NARROW), area.width);
    let all = u16::try_from(job.ranks.len()).unwrap_or(u16::MAX);
    // Small screens have room for ranks only.
    let middle = u16::from(area.height >= 6);
    let whole = all.saturating_add(3 + middle) <= area.height;
    let notes = notes::below(job, columns.has_notes() && whole, area.height.saturating_sub(8) / 4);
    let below = u16::try_from(notes.len()).unwrap_or(u16::MAX);
    // The heading, the median, and a blank line before the notes.
    let others = 1 + middle + below + u16::from(below > 0);
    let tall = all.saturating_add(others).saturating_add(2);
    let lines = tall.min(area.height).saturating_sub(others + 2).max(1);
    let selected = job.place(selected);
    let first = first_shown(job.ranks.len(), selected, lines.into());
    let shown = &job.ranks[first..job.ranks.len().min(first + usize::from(lines))];
    let title = format!("Ranks of {}", job.name);
    let note = format!("{}   ↑↓ Enter Esc", extent(job, first, shown.len()));
    let inside = super::window(screen, area, wide, tall, &title, &note);
    let [table, median, _, below] = Layout::vertical([
        Constraint::Length(1 + lines),
        Constraint::Length(middle),
        Constraint::Length(u16::from(below > 0)),
        Constraint::Length(below),
    ])
    .areas(inside);
    let theme = screen.theme;
    let scale = largest(job);
    let rows = shown.iter().map(|rank| columns.cells(theme, rank));
    let mut state = TableState::new().with_selected(selected.checked_sub(first));
    let ranks = table_of(&columns, rows.map(Row::new))
        .header(Row::new(columns.titles(theme)))
        .row_highlight_style(theme.selected());
    screen.render_stateful(ranks, table, &mut state);
    for (line, (n, rank)) in table.rows().skip(1).zip((first..).zip(shown)) {
        bar(screen, &columns, line, &rank.holds, scale);
        screen.hit(line, Target::Entry(n));
    }
    let cells = columns.median(theme, &job.median);
    screen.render_stateful(table_of(&columns, [Row::new(cells)]), median, &mut TableState::new());
    bar(screen, &columns, median, &job.median, scale);
    let notes: Vec<Line<'_>> = notes.into_iter().map(|note| note.line(theme, below.width)).collect();
    screen.render(Paragraph::new(notes), below);
}

/// Returns the first rank in view, so that the selected one stands in the middle where that is possible.
fn first_shown(all: usize, selected: usize, lines: usize) -> usize {
    selected.saturating_sub(lines / 2).min(all.saturating_sub(lines))
}

/// Returns the number of ranks here, of all ranks, and which are in view.
fn extent(job: &Job, first: usize, shown: usize) -> String {
    let all = job.ranks.len();
    let here = job.extent();
    let simulated = |rank: &Rank| matches!(rank.id.device, DeviceKey::Simulated(..));
    let label = if job.ranks.iter().any(simulated) {
        "SIMULATED, "
    } else {
        ""
    };
    match shown < all {
        true => format!("{label}{here}, {}-{} shown", first + 1, first + shown),
        false => format!("{label}{here}"),
    }
}

/// Returns the bytes that a whole bar stands for: the most that a rank reserves.
fn largest(job: &Job) -> u64 {
    let reserved = job.ranks.iter().filter_map(|rank| rank.holds.reserved);
    reserved.max().unwrap_or(0)
}

fn table_of<'a>(columns: &Columns, rows: impl IntoIterator<Item = Row<'a>>) -> Table<'a> {
    Table::new(rows, columns.widths())
        .column_spacing(GAP)
        .highlight_spacing(HighlightSpacing::Never)
}

/// Draws the bar of what a rank reserves on its line. It is drawn after the selection, so that it keeps its colours.
fn bar(screen: &mut Screen<'_>, columns: &Columns, line: Rect, holds: &Holdings, scale: u64) {
    let (Some(place), Some(reserved), Some(cached)) = (columns.bar(line), holds.reserved, holds.cached()) else {
        return;
    };
    let parts = [
        (Ink::Allocated, reserved.saturating_sub(cached)),
        (Ink::Cached, cached),
        (Ink::Free, scale.saturating_sub(reserved)),
    ];
    let bar = MemoryBar {
        theme: screen.theme,
        parts: &parts,
    };
    screen.render(bar, place);
}

impl Columns {
    /// Returns the headings.
    fn titles(&self, theme: Theme) -> Vec<Cell<'static>> {
        let cell = |shown: Shown| match shown {
            Shown::Bar => Cell::from(legend(theme, self.width(Shown::Bar))),
            shown => cell(shown, self.title(shown).to_owned(), theme.ink(Ink::Dim)),
        };
        self.shown().map(cell).collect()
    }

    /// Returns the cells of a rank. The unusual figure and its note have the colour of a warning.
    fn cells(&self, theme: Theme, rank: &Rank) -> Vec<Cell<'static>> {
        let outlier = rank.outlier;
        let cell = |shown: Shown| match shown {
            Shown::Mark => cell(
                shown,
                if outlier.is_some() { "!" } else { "" }.to_owned(),
                theme.ink(Ink::Warning),
            ),
            Shown::Rank => cell(shown, rank.rank.to_string(), theme.ink(Ink::Strong)),
            Shown::Device => cell(shown, self.device(&rank.device_label), theme.ink(Ink::Dim)),
            Shown::Note => cell(
                shown,
                notes::beside(rank, self.width(Shown::Note)),
                theme.ink(notes::ink(rank)),
            ),
            Shown::Figure(figure) if outlier.is_some_and(|outlier| outlier.figure == figure) => {
                cell(shown, bytes(rank.holds.figure(figure)), theme.ink(Ink::Warning))
            }
            shown => self.figure(theme, shown, &rank.holds, Ink::Plain),
        };
        self.shown().map(cell).collect()
    }

    /// Returns the cells of the median.
    fn median(&self, theme: Theme, median: &Holdings) -> Vec<Cell<'static>> {
        let cell = |shown: Shown| match shown {
            Shown::Rank => cell(shown, "median".to_owned(), theme.ink(Ink::Dim)),
            shown => self.figure(theme, shown, median, Ink::Dim),
        };
        self.shown().map(cell).collect()
    }

    fn figure(&self, theme: Theme, shown: Shown, holds: &Holdings, ink: Ink) -> Cell<'static> {
        let figure = match shown {
            Shown::Figure(figure) => holds.figure(figure),
            Shown::LargestFree => holds.largest_free,
            Shown::Mark | Shown::Rank | Shown::Device | Shown::Bar | Shown::Note => return Cell::from(""),
        };
        let ink = if figure.is_none() { Ink::Dim } else { ink };
        cell(shown, bytes(figure), theme.ink(ink))
    }
}

/// Returns what the parts of the bars stand for, if that fits into `room` columns.
fn legend(theme: Theme, room: u16) -> Line<'static> {
    let part = |ink, name| [swatch(&theme, ink), Span::styled(name, theme.ink(Ink::Dim))];
    let parts = [part(Ink::Allocated, " alloc  "), part(Ink::Cached, " cached")];
    let legend = Line::from_iter(parts.into_iter().flatten());
    if legend.width() <= room.into() {
        legend
    } else {
        Line::default()
    }
}

/// Formats bytes for a column; `-` stands for an unknown figure.
fn bytes(figure: Option<u64>) -> String {
    figure.map_or_else(|| "-".to_owned(), bytes_short)
}

fn cell(shown: Shown, text: String, style: Style) -> Cell<'static> {
    let line = Line::from(Span::styled(text, style));
    Cell::from(if shown.is_text() { line } else { line.right_aligned() })
}
