//! Help: every key, and a glossary.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::model::HelpGroup;
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::wrap::wrap;

/// A line of help.
enum HelpLine<'a> {
    /// A heading.
    Head(&'a str),
    /// A key and what it does.
    Key(&'a str, &'a str),
    /// A sentence.
    Text(&'a str),
    /// A blank line.
    Blank,
}

use HelpLine::{Blank, Head, Key, Text};

/// Returns the keys, grouped by where they work.
fn keys(groups: &[HelpGroup]) -> Vec<HelpLine<'_>> {
    let mut lines = Vec::new();
    for group in groups {
        if !lines.is_empty() {
            lines.push(Blank);
        }
        lines.push(Head(group.title));
        lines.extend(group.keys.iter().map(|(keys, text)| Key(keys, text)));
    }
    lines
}

/// The mouse and the glossary.
const WORDS: &[HelpLine<'_>] = &[
    Head("The mouse"),
    Text(
        "selects what is clicked: tab, device, process (twice: its blocks), heading, block; starts a demo. The wheel moves, zooms.",
    ),
    Blank,
    Head("The words"),
    Key("allocated", "held by the program"),
    Key(
        "cached",
        "taken from the driver, not in use by the program: ready for reuse, or pending",
    ),
    Key("reserved", "allocated and cached"),
    Key("pending", "freed by the program, still used by queued GPU work"),
    Key("stopped", "halted by a signal or a debugger until it is resumed"),
    Key("unmapped", "addresses of a segment with no memory behind them"),
    Key(
        "piece",
        "part of a block stitched from several; the first has the requested size",
    ),
    Key("other", "used by programs that do not publish, and by CUDA itself"),
    Key(
        "driver",
        "used by driver and firmware; part of other where not reported separately",
    ),
    Key(
        "frag",
        "external fragmentation: 1 - largest free block / all free memory of the process",
    ),
    Key(
        "largest free",
        "a larger request is stitched, takes new memory, or fails",
    ),
    Key(
        "black box",
        "the program is gone; its last published state is kept, its memory is not",
    ),
    Key("- ?", "not reported by the program or the driver"),
    Key("n/s", "the driver does not offer this figure"),
    Key("≥", "before a figure: at least"),
    Key("▐", "where a block begins"),
    Key("▒", "in a graph: between the least and the most of a column's time"),
];

/// From this width on the glossary stands beside the keys.
const TWO_COLUMNS: u16 = 118;
/// Columns of the keys then, and of the gap behind them.
const LEFT: u16 = 66;
const COLUMN_GAP: u16 = 3;

/// Columns of the longest key, with its indent and the gap behind it.
const KEY: u16 = 17;
/// Below this width a key and its description take a line each.
const NARROW: u16 = KEY + 14;

/// Draws help, scrolled by `scroll` lines if it does not fit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, scroll: u16) {
    let beside = area.width >= TWO_COLUMNS;
    let wide = if beside {
        TWO_COLUMNS.max(area.width.min(140))
    } else {
        area.width.min(84)
    };
    let room = wide.saturating_sub(4);
    let (left, right) = if beside {
        (LEFT, room - LEFT - COLUMN_GAP)
    } else {
        (room, room)
    };
    let theme = screen.theme;
    let groups = crate::model::help();
    let mut keys = lines(&keys(&groups), left, &theme);
    let mut words = lines(WORDS, right, &theme);
    if !beside {
        keys.push(Line::default());
        keys.append(&mut words);
    }
    let all = keys.len().max(words.len()) as u16;
    let (inside, scroll) = super::page(screen, area, wide, all, "Help", scroll);
    let columns = match beside {
        true => Layout::horizontal([Constraint::Length(LEFT), Constraint::Fill(1)]).spacing(COLUMN_GAP),
        false => Layout::horizontal([Constraint::Fill(1), Constraint::Length(0)]),
    };
    let [left, right] = columns.areas(inside);
    for (lines, area) in [(keys, left), (words, right)] {
        screen.render(Paragraph::new(lines).scroll((scroll, 0)), area);
    }
}

fn lines(help: &[HelpLine<'_>], room: u16, theme: &Theme) -> Vec<Line<'static>> {
    let accent = theme.ink(Ink::Accent);
    let mut lines = vec![];
    for line in help {
        match line {
            Blank => lines.push(Line::default()),
            Head(text) => lines.push(Line::styled((*text).to_owned(), theme.ink(Ink::Strong))),
            Key(key, text) if room < NARROW => {
                lines.push(Line::styled(format!("  {key}"), accent));
                let wrapped = wrap(text, room.saturating_sub(4));
                lines.extend(wrapped.into_iter().map(|part| Line::raw(format!("    {part}"))));
            }
            Key(key, text) => {
                for (i, part) in wrap(text, room.saturating_sub(KEY)).into_iter().enumerate() {
                    let key = if i == 0 { key } else { "" };
                    let key = format!("  {key:<0$}", usize::from(KEY) - 2);
                    lines.push(Line::from_iter([Span::styled(key, accent), Span::raw(part)]));
                }
            }
            Text(text) => {
                let wrapped = wrap(text, room.saturating_sub(2));
                lines.extend(wrapped.into_iter().map(|part| Line::raw(format!("  {part}"))));
            }
        }
    }
    lines
}
