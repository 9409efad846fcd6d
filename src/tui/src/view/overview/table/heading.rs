//! The headings of the table. A click on one sorts the rows by it.

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::widgets::Row;

use super::cell;
use super::columns::{Shown, has_jobs};
use crate::model::{Column, JOB_OR_COMMAND, Model};
use crate::view::theme::{Ink, Theme};
use crate::wrap::width;

/// Returns the heading of each column, with an arrow on the one that rows are sorted by.
pub(super) fn titles(model: &Model, columns: &[(Shown, u16)]) -> Vec<String> {
    let jobs_within = !has_jobs(columns) && model.listed().any(|p| !p.job.is_empty());
    let title = |&(shown, wide): &(Shown, u16)| {
        let title = match shown {
            Shown::Of(Column::Command) if jobs_within && wide > width(JOB_OR_COMMAND) => JOB_OR_COMMAND,
            _ => shown.title(),
        };
        let arrow = match (is_order(model, shown), model.ui.sort.descending) {
            (false, _) => "",
            (true, true) => "▾",
            (true, false) => "▴",
        };
        format!("{title}{arrow}")
    };
    columns.iter().map(title).collect()
}

/// Checks whether rows are sorted by a column.
fn is_order(model: &Model, shown: Shown) -> bool {
    shown == Shown::Of(model.order())
}

/// Returns the terminal column behind the last heading.
pub(super) fn end(columns: &[(Shown, u16)], titles: &[String], places: &[Rect]) -> u16 {
    match (columns.last(), titles.last(), places.last()) {
        (Some((shown, _)), Some(title), Some(place)) if shown.is_text() => place.x + width(title).min(place.width),
        // Headings of figures are aligned at the right.
        (_, _, place) => place.map_or(0, |place| place.right()),
    }
}

/// Returns the headings as a row of the table.
pub(super) fn row(model: &Model, theme: Theme, columns: &[(Shown, u16)], titles: &[String]) -> Row<'static> {
    let cells = columns.iter().zip(titles).map(|(&(shown, wide), title)| {
        let style = match is_order(model, shown) {
            true => theme.ink(Ink::Accent).add_modifier(Modifier::BOLD),
            false => theme.ink(Ink::Dim),
        };
        // Headings of text are cut without an ellipsis: a cut heading cannot be mistaken for another one.
        let title = match shown.is_text() {
            true => title.clone(),
            false => shown.fitted(title.clone(), wide),
        };
        cell(shown, title, style)
    });
    Row::new(cells)
}
