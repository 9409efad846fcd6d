//! Help: every key, and what the words mean.

use ratatui::layout::Rect;

use super::super::Screen;
use super::super::pen::{split_left, wrap};
use super::super::theme::Ink;

/// What a line of help is.
enum HelpLine {
    /// A heading.
    Head(&'static str),
    /// A key and what it does.
    Key(&'static str, &'static str),
    /// A sentence.
    Text(&'static str),
    /// Air.
    Blank,
}

use HelpLine::{Blank, Head, Key, Text};

/// The keys.
const KEYS: &[HelpLine] = &[
    Head("Everywhere"),
    Key("1 2 3 7", "Overview, Blocks, Timeline, Demo"),
    Key("Tab, Shift-Tab", "the next of them, the one before"),
    Key("h j k l, g G", "the same as the arrows, Home and End"),
    Key("Space, p", "pause, resume (in a stepped demo: next step)"),
    Key("/", "filter processes by pid, user, command, job, device or state"),
    Key("s", "sort processes"),
    Key("b", "list programs that ended, too (black boxes)"),
    Key("m", "more: every finding in full"),
    Key("f", "choose a fix, when a demo offers some"),
    Key("Esc", "close, clear the filter, back to the Overview"),
    Key("?, F1", "this help"),
    Key("q, Ctrl-C", "quit (Ctrl-Z: background, Ctrl-L: draw anew)"),
    Blank,
    Head("Overview"),
    Key("↑ ↓, PgUp PgDn", "select a process (Home End: the first, the last)"),
    Key("← →", "select a device"),
    Key("Enter", "its blocks"),
    Blank,
    Head("Blocks"),
    Key("← →", "the next block"),
    Key("↑ ↓, PgUp PgDn", "lines of the map (Home End: its ends)"),
    Key("+ -, 0", "zoom in, out, everything"),
    Key("n N", "next, previous process"),
    Blank,
    Head("Timeline"),
    Key("← →, Home End", "back and forth in time"),
    Key("+ -", "less, more time"),
    Key("↑ ↓, n N", "another device, another process"),
    Key("o", "hide what others use: the rest grows"),
    Key("t", "by tag: what a process allocated for"),
    Blank,
    Head("Demo"),
    Key("↑ ↓, Enter", "choose a demo, start it"),
    Key("Space, Enter", "next step; of a replay: Space halts, + - speed"),
    Key("x, PgUp PgDn", "stop it; scroll what it tells"),
];

/// The rest.
const WORDS: &[HelpLine] = &[
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
/// Columns of the keys then.
const LEFT: u16 = 66;

/// A line as it is drawn: left part, right part, look of the left.
type Line = (String, String, Ink);
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
    let (left, right) = if beside { (LEFT, room - LEFT - 3) } else { (room, room) };
    let mut keys = lines(KEYS, left);
    let mut words = lines(WORDS, right);
    if !beside {
        keys.push((String::new(), String::new(), Ink::Plain));
        keys.append(&mut words);
    }
    let all = keys.len().max(words.len()) as u16;
    let (inside, scroll) = super::page(screen, area, wide, all, "Help", scroll);
    column(screen, inside, keys, scroll);
    column(screen, split_left(inside, LEFT + 3).1, words, scroll);
}

fn column(screen: &mut Screen<'_>, area: Rect, lines: Vec<Line>, scroll: u16) {
    let theme = screen.pen.theme;
    let shown = lines
        .into_iter()
        .skip(usize::from(scroll))
        .take(usize::from(area.height));
    for (y, (left, right, ink)) in shown.enumerate() {
        screen.pen.text(area, 0, y as u16, &left, theme.ink(ink));
        screen.pen.text(area, KEY, y as u16, &right, theme.ink(Ink::Plain));
    }
}

fn lines(help: &[HelpLine], room: u16) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![];
    for line in help {
        match line {
            Blank => lines.push((String::new(), String::new(), Ink::Plain)),
            Head(text) => lines.push(((*text).to_owned(), String::new(), Ink::Strong)),
            Key(key, text) => {
                if room < NARROW {
                    lines.push((format!("  {key}"), String::new(), Ink::Accent));
                    let wrapped = wrap(text, room.saturating_sub(4)).into_iter();
                    lines.extend(wrapped.map(|part| (format!("    {part}"), String::new(), Ink::Plain)));
                    continue;
                }
                for (i, part) in wrap(text, room.saturating_sub(KEY)).into_iter().enumerate() {
                    let key = if i == 0 { format!("  {key}") } else { String::new() };
                    lines.push((key, part, Ink::Accent));
                }
            }
            Text(text) => {
                let wrapped = wrap(text, room.saturating_sub(2));
                lines.extend(
                    wrapped
                        .into_iter()
                        .map(|part| (format!("  {part}"), String::new(), Ink::Plain)),
                );
            }
        }
    }
    lines
}
