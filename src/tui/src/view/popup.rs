//! What lies over a view: help, the sort menu, the fix menu.

use ratatui::layout::Rect;

use super::Screen;
use super::pen::{split_top, width, wrap};
use super::theme::Ink;
use crate::model::{Column, Popup, Target};

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

const HELP: &[HelpLine] = &[
    Head("Everywhere"),
    Key("1 2 3 7, Tab", "Overview, Blocks, Timeline, Demo; the next one"),
    Key(
        "Space, p",
        "pause and resume (in a stepped demo Space is the next step)",
    ),
    Key("/", "filter processes by pid, user, command, job, device or state"),
    Key("s", "sort processes"),
    Key("b", "list programs that ended before, too (their black boxes)"),
    Key("f", "choose a fix, when a demo offers some"),
    Key("Esc", "close, clear the filter, back to the Overview"),
    Key("?, F1", "this help"),
    Key("q, Ctrl-C", "quit"),
    Blank,
    Head("Overview"),
    Key("↑ ↓, PgUp PgDn", "select a process (also j k)"),
    Key("← →", "select a device"),
    Key("Enter", "its blocks"),
    Blank,
    Head("Blocks"),
    Key("← →", "the next block"),
    Key("↑ ↓, PgUp PgDn", "lines of the map"),
    Key("+ -, 0", "zoom in, out, everything"),
    Key("n N", "next, previous process"),
    Blank,
    Head("Timeline"),
    Key("← →, Home End", "back and forth in time"),
    Key("+ -", "less, more time"),
    Key("↑ ↓", "another device"),
    Blank,
    Head("Demo"),
    Key("Enter", "start the chosen demo"),
    Key("Space, Enter", "next step"),
    Key("x", "stop it"),
    Blank,
    Head("The mouse"),
    Text(
        "selects what is clicked: a tab, a device, a process (twice: its blocks), a heading, a block. The wheel moves or zooms.",
    ),
    Blank,
    Head("The words"),
    Text(
        "allocated: held by the program. cached: taken from the driver, held by nobody, ready for reuse. reserved: both together.",
    ),
    Text("other: used by programs that do not publish and by CUDA itself. driver: kept by driver and firmware."),
    Text(
        "FRAG: 1 - largest free block / all free memory of the process. A request larger than LARGEST FREE takes new memory from the driver, or fails.",
    ),
    Text(
        "- : not told by the program or the driver. n/s: the driver does not offer this figure. > before a figure: at least.",
    ),
    Text("died, exited (black box): the program is gone; what it published last is still here, its memory is not."),
];

/// Draws the popup over the whole screen.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, popup: &Popup) {
    match popup {
        Popup::Help { scroll } => help(screen, area, *scroll),
        Popup::Sort { selected } => {
            let model = screen.model;
            let entries: Vec<(String, String)> = Column::ALL
                .iter()
                .map(|&c| {
                    let now = if c == model.ui.sort.column {
                        if model.ui.sort.descending { "▾ now" } else { "▴ now" }
                    } else {
                        ""
                    };
                    (c.title().to_lowercase(), now.to_owned())
                })
                .collect();
            menu(screen, area, "Sort by", &entries, *selected);
        }
        Popup::Fix { selected } => {
            let choices = screen.model.demo.as_ref().map_or(&[][..], |d| &d.choices);
            let entries: Vec<(String, String)> = choices.iter().map(|c| (c.name.clone(), c.title.clone())).collect();
            menu(screen, area, "Choose a fix", &entries, *selected);
        }
    }
}

/// A cleared, framed area in the middle of the screen; returns its inside.
fn window(screen: &mut Screen<'_>, area: Rect, width: u16, height: u16, title: &str, note: &str) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let window = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    screen.pen.clear(window);
    screen.pen.panel(window, title, note)
}

fn menu(screen: &mut Screen<'_>, area: Rect, title: &str, entries: &[(String, String)], selected: usize) {
    let names = entries.iter().map(|e| width(&e.0)).max().unwrap_or(0);
    let texts = entries.iter().map(|e| width(&e.1)).max().unwrap_or(0);
    let wide = (names + texts + 14).max(30);
    let tall = (entries.len() as u16).saturating_add(2);
    let inside = window(screen, area, wide, tall, title, "Enter");
    let theme = screen.pen.theme;
    let shown = usize::from(inside.height);
    let first = (selected + 1).saturating_sub(shown);
    for (i, (name, text)) in entries.iter().enumerate().skip(first).take(shown) {
        let (line, _) = split_top(split_top(inside, (i - first) as u16).1, 1);
        // Keys 1 to 9 choose directly.
        let number = if i < 9 { (i + 1).to_string() } else { String::new() };
        screen.pen.text(line, 1, 0, &number, theme.ink(Ink::Accent));
        screen.pen.text(line, 4, 0, name, theme.ink(Ink::Plain));
        let x = names + 6;
        screen
            .pen
            .clipped(line, x, 0, text, line.width.saturating_sub(x), theme.ink(Ink::Dim));
        if i == selected {
            screen.pen.restyle(line, theme.selected());
        }
        screen.hit(line, Target::Entry(i));
    }
}

fn help(screen: &mut Screen<'_>, area: Rect, scroll: u16) {
    let wide = area.width.min(84);
    // One column of help: keys at the left, words at the right.
    let keys = HELP
        .iter()
        .map(|l| if let Key(k, _) = l { width(k) } else { 0 })
        .max()
        .unwrap_or(0)
        + 4;
    let room = wide.saturating_sub(4);
    let mut lines: Vec<(String, String, Ink)> = vec![];
    for line in HELP {
        match line {
            Blank => lines.push((String::new(), String::new(), Ink::Plain)),
            Head(text) => lines.push(((*text).to_owned(), String::new(), Ink::Strong)),
            Key(key, text) => {
                for (i, part) in wrap(text, room.saturating_sub(keys)).into_iter().enumerate() {
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
    let tall = (lines.len() as u16).saturating_add(2).min(area.height);
    let fits = tall.saturating_sub(2);
    let most = (lines.len() as u16).saturating_sub(fits);
    screen.hits.help_lines = most + 1;
    let scroll = scroll.min(most);
    let note = if most > 0 {
        format!("↑↓ {}-{} of {}", scroll + 1, scroll + fits, lines.len())
    } else {
        String::new()
    };
    let inside = window(screen, area, wide, tall, "Help", &note);
    let theme = screen.pen.theme;
    for (y, (left, right, ink)) in lines
        .into_iter()
        .skip(usize::from(scroll))
        .take(usize::from(inside.height))
        .enumerate()
    {
        screen.pen.text(inside, 0, y as u16, &left, theme.ink(ink));
        screen.pen.text(inside, keys, y as u16, &right, theme.ink(Ink::Plain));
    }
}
