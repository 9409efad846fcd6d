//! The popups over a view: help, the findings in full, the ranks of a job, questions, the sort menu, the fix menu.

mod attach;
mod explain;
mod findings;
mod help;
mod measure;
mod ranks;

use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Row, Table, TableState};

use super::Screen;
use super::theme::Ink;
use crate::model::{Column, Popup, Target};
use crate::view::layout::clip;
use crate::wrap::width;

/// Draws the popup over the whole screen.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, popup: &Popup) {
    match popup {
        Popup::Help { scroll } => help::draw(screen, area, *scroll),
        Popup::Findings { chosen, scroll } => findings::draw(screen, area, chosen.as_ref(), *scroll),
        Popup::Sort { selected } => {
            let model = screen.model;
            let entries: Vec<(String, String)> = Column::ALL
                .iter()
                .map(|&c| {
                    let now = if c == model.order() {
                        if model.ui.sort.descending { "▾ now" } else { "▴ now" }
                    } else {
                        ""
                    };
                    (c.title().to_lowercase(), now.to_owned())
                })
                .collect();
            menu(screen, area, "Sort by", &entries, *selected);
        }
        Popup::Ranks => ranks::draw(screen, area),
        Popup::Explain { scroll } => explain::draw(screen, area, *scroll),
        Popup::Measure => measure::draw(screen, area),
        Popup::Attach { pid } => attach::draw(screen, area, *pid),
        Popup::Fix { selected } => {
            let choices = screen.model.demo.as_ref().map_or(&[][..], |d| &d.choices);
            let entries: Vec<(String, String)> = choices.iter().map(|c| (c.name.clone(), c.text())).collect();
            menu(screen, area, "Choose a fix", &entries, *selected);
        }
    }
}

/// Returns the last lines of a question: what Enter does, and that Esc does not.
fn choice(screen: &Screen<'_>, enter: &'static str) -> [Line<'static>; 2] {
    let key = |name: &'static str| Span::styled(name, screen.theme.ink(Ink::Accent));
    let choices = [
        key("Enter"),
        Span::raw(format!(" {enter}   ")),
        key("Esc"),
        Span::raw(" does not"),
    ];
    [Line::default(), Line::from_iter(choices)]
}

/// Draws a cleared, framed area in the middle of the screen and returns the area inside.
fn window(screen: &mut Screen<'_>, area: Rect, width: u16, height: u16, title: &str, note: &str) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let window = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    // A blank column at each side separates it from the view below.
    let cleared = Rect {
        x: window.x.saturating_sub(1),
        width: window.width.saturating_add(2),
        ..window
    };
    screen.render(Clear, cleared.intersection(area));
    screen.panel(window, title, note)
}

/// Draws a window for `lines` lines of text, scrolled to line `scroll` if they do not all fit. Returns the area inside and
/// the first line shown.
fn page(screen: &mut Screen<'_>, area: Rect, width: u16, lines: u16, title: &str, scroll: u16) -> (Rect, u16) {
    let tall = lines.saturating_add(2).min(area.height);
    let fits = tall.saturating_sub(2);
    let most = lines.saturating_sub(fits);
    screen.hits.popup_lines = most + 1;
    let scroll = scroll.min(most);
    let note = if most > 0 {
        format!("↑↓ {}-{} of {lines}", scroll + 1, scroll + fits)
    } else {
        "Esc".to_owned()
    };
    (window(screen, area, width, tall, title, &note), scroll)
}

fn menu(screen: &mut Screen<'_>, area: Rect, title: &str, entries: &[(String, String)], selected: usize) {
    let names = entries.iter().map(|e| width(&e.0)).max().unwrap_or(0);
    let texts = entries.iter().map(|e| width(&e.1)).max().unwrap_or(0);
    let wide = (names + texts + 14).max(30);
    let tall = (entries.len() as u16).saturating_add(2);
    let inside = window(screen, area, wide, tall, title, "Enter");
    let theme = screen.theme;
    let rows = entries.iter().enumerate().map(|(i, (name, text))| {
        // Keys 1 to 9 choose directly.
        let number = if i < 9 { (i + 1).to_string() } else { String::new() };
        let text = clip(text, inside.width.saturating_sub(names + 6));
        Row::new([
            Span::styled(format!(" {number}"), theme.ink(Ink::Accent)),
            Span::styled(name.as_str(), theme.ink(Ink::Plain)),
            Span::styled(text, theme.ink(Ink::Dim)),
        ])
    });
    let widths = [
        Constraint::Length(3),
        Constraint::Length(names + 1),
        Constraint::Fill(1),
    ];
    // If the entries do not all fit, the selected one is the last in view.
    let first = (selected + 1).saturating_sub(inside.height.into());
    let table = Table::new(rows, widths).row_highlight_style(theme.selected());
    let mut state = TableState::new().with_offset(first).with_selected(selected);
    screen.render_stateful(table.column_spacing(1), inside, &mut state);
    let shown = entries.len().min(first + usize::from(inside.height));
    for (line, entry) in inside.rows().zip(first..shown) {
        screen.hit(line, Target::Entry(entry));
    }
}
