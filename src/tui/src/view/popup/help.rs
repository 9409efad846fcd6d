//! Help: every key, and what the words mean.

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::model::HelpGroup;
use crate::view::Screen;
use crate::view::theme::{Ink, Theme};
use crate::wrap::wrap;

/// What a line of help is.
enum HelpLine<'a> {
    /// A heading.
    Head(&'a str),
    /// A key and what it does.
    Key(&'a str, &'a str),
    /// A sentence.
    Text(&'a str),
    /// Air.
    Blank,
}

use HelpLine::{Blank, Head, Key, Text};

/// The keys, by where they work.
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

/// The rest.
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
        "taken from the driver, held by nobody: ready for reuse, or pending",
    ),
    Key("reserved", "allocated and cached"),
    Key("pending", "freed by the program, still used by queued GPU work"),
    Key("stopped", "halted by a signal or a debugger until it may go on"),
    Key("unmapped", "addresses of a segment with no memory behind them"),
    Key(
        "piece",
        "of a block that is stitched from several; the first has what was requested",
    ),
    Key("other", "used by programs that do not publish, and by CUDA itself"),
    Key(
        "driver",
        "kept by driver and firmware; where nobody tells it apart it is part of other",
    ),
    Key(
        "fragmentation",
        "1 - largest free block / all free memory of the process",
    ),
    Key(
        "largest free",
        "a larger request is stitched, takes new memory, or fails",
    ),
    Key(
        "black box",
        "the program is gone; what it published last is kept, its memory is not",
    ),
    Key("- ?", "not told by the program or the driver"),
    Key("n/s", "the driver does not offer this figure"),
    Key(">", "before a figure: at least"),
    Key("▐", "where a block begins"),
];

/// From this width on the words stand beside the keys.
const TWO_COLUMNS: u16 = 118;
/// Columns of the keys then, and of the air behind them.
const LEFT: u16 = 66;
const AIR: u16 = 3;

/// Columns of the longest key, with indent and air.
const KEY: u16 = 17;
/// Below so many columns a key and what it does take a line each.
const NARROW: u16 = KEY + 14;

/// Draws help, scrolled by some lines when it does not fit.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, scroll: u16) {
    let beside = area.width >= TWO_COLUMNS;
    let wide = if beside {
        TWO_COLUMNS.max(area.width.min(140))
    } else {
        area.width.min(84)
    };
    let room = wide.saturating_sub(4);
    let (left, right) = if beside {
        (LEFT, room - LEFT - AIR)
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
        true => Layout::horizontal([Constraint::Length(LEFT), Constraint::Fill(1)]).spacing(AIR),
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
