//! Triage: which memory ran out, why, and what helps. Of the selected process, or of a pasted log.

use gpumem_triage::Verdict;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};
use ratatui::widgets::Paragraph;

use super::Screen;
use super::theme::Ink;
use crate::triage::{Line as Said, Part, lines, of_process};
use crate::view::layout::clip;
use crate::words;
use crate::wrap::width;

/// Columns from which on a part of the command line is shown.
const LEAST_COMMAND: u16 = 16;

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let room = area.width.saturating_sub(4);
    let count = model.failed().len();
    let note = match count {
        0 => String::new(),
        1 => "1 process ran out of memory".to_owned(),
        n => format!("{n} processes ran out of memory"),
    };
    let (title, said) = match (&model.ui.triage.pasted, model.triaged()) {
        (Some(report), _) => ("Triage: pasted text".to_owned(), lines(report, room)),
        (None, Some(process)) => {
            let name = model.world().name_of(process);
            let left = room.saturating_sub(width(&note) + width(&name) + 18);
            let command = words::command_in(&process.command, left.into());
            let title = match left >= LEAST_COMMAND {
                true => format!("Triage: {name} {}", clip(&command, left)),
                false => format!("Triage: {name}"),
            };
            let report = of_process(model, process.pid);
            let mut said = report.as_ref().map_or_else(Vec::new, |report| lines(report, room));
            if report.is_some_and(|report| !report.verdict.is_failure() || report.verdict == Verdict::Incomplete) {
                said.extend(how_to(room));
            }
            (title, said)
        }
        (None, None) => ("Triage".to_owned(), how_to(room)),
    };
    let inside = screen.panel(area, &title, &note);
    let text: Vec<Line<'static>> = said.into_iter().map(|line| ink(screen, line)).collect();
    let most = (text.len() as u16).saturating_sub(inside.height);
    screen.hits.triage_lines = most + 1;
    let scroll = model.ui.triage.scroll.min(most);
    screen.render(Paragraph::new(Text::from(text)).scroll((scroll, 0)), inside);
}

fn ink(screen: &Screen<'_>, line: Said) -> Line<'static> {
    let ink = match line.part {
        Part::Verdict => Ink::Warning,
        Part::Heading => Ink::Strong,
        Part::Typed => Ink::Accent,
        Part::Quote => Ink::Dim,
        Part::Text | Part::Empty => Ink::Plain,
    };
    Line::styled(line.text, screen.theme.ink(ink))
}

/// Says what else can be judged.
fn how_to(room: u16) -> Vec<Said> {
    let mut said = vec![Said::empty(), Said::heading("A log or a message")];
    for text in [
        "Paste it here with your terminal's key (Ctrl-Shift-V, or Cmd-V): a traceback, or the end of a log of all ranks.",
        "On a command line: gpumem-tui triage FILE, or pipe it into gpumem-tui triage. Without a file it checks this machine.",
    ] {
        said.extend(Said::text(text, room));
    }
    said
}
