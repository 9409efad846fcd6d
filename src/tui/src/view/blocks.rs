//! Blocks: the map of the selected process, the block under the cursor, and the sizes of what is free.

mod detail;

use gpumem_text::units::{self, count, plural, round_size};
use ratatui::layout::Rect;

use super::Screen;
use super::pen::{CUT, clip, split_bottom, split_left, split_right, split_top, width, wrap};
use super::theme::Ink;
use super::{badge, strips};
use crate::model::{BlockMap, MapGeometry, Process, ProcessState, Target};

/// Columns of the panels at the right.
const SIDE: u16 = 38;

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let process = model.selected_process();
    let Some(map) = model.map.as_ref().filter(|m| !m.segments.is_empty()) else {
        let inside = framed(screen, area, process, "");
        nothing(screen, inside, process);
        return;
    };
    let side = if area.width >= 110 { SIDE } else { 0 };
    let (left, right) = split_right(area, side);
    let below = match left.height {
        _ if side > 0 => 0,
        ..12 => 0,
        // Two lines hold what there mostly is to say.
        12..21 => 2,
        _ => 3,
    };
    let (top, bottom) = split_bottom(left, below);
    draw_map(screen, top, map, process);
    if side > 0 {
        detail::panels(screen, right, map, process);
    } else {
        detail::lines(screen, bottom, map);
    }
}

fn draw_map(screen: &mut Screen<'_>, area: Rect, map: &BlockMap, process: Option<&Process>) {
    let note = format!(
        "{} in {}",
        plural(map.blocks as u64, "block"),
        plural(map.published() as u64, "segment")
    );
    let inside = framed(screen, area, process, &note);
    let (cells, foot) = split_bottom(inside, u16::from(inside.height >= 4));
    let blocks = &screen.model.ui.blocks;
    let cursor = blocks.cursor.or_else(|| map.first().map(|(_, b)| b.addr));
    let drawn = strips::draw(&mut screen.pen, cells, map, cursor, blocks.zoom);
    for &(area, addr) in &drawn.strips {
        screen.hit(
            area,
            Target::Bytes {
                addr,
                bytes_per_cell: drawn.layout.bytes_per_cell,
            },
        );
    }
    screen.hits.map = MapGeometry {
        layout: drawn.layout,
        whole: drawn.whole,
        lines: cells.height,
    };
    legend(screen, foot, &drawn, map);
}

/// A frame that says whose map this is. Low screens get a line instead.
fn framed(screen: &mut Screen<'_>, area: Rect, process: Option<&Process>, note: &str) -> Rect {
    let who = process.map_or_else(String::new, |p| {
        let ended = p.halt_text().map(|word| format!(" {word}")).unwrap_or_default();
        format!("{}{ended}", p.pid)
    });
    let title = |room: u16| {
        let Some(p) = process else {
            return "Blocks".to_owned();
        };
        let whose = format!("{who} on {}: ", p.device_label);
        let left = room.saturating_sub(width(&whose));
        clip(&format!("{whose}{}", p.name_in(left.into(), CUT)), room)
    };
    let simulated = process.is_some_and(|p| p.simulated);
    let badge_room = if simulated { 12 } else { 0 };
    if area.height < 8 {
        let title = title(area.width.saturating_sub(2 + badge_room));
        let style = screen.pen.theme.ink(Ink::Strong);
        let x = screen.pen.text(area, 1, 0, &title, style);
        if simulated {
            badge::draw(&mut screen.pen, area, x + 1, area.width);
        }
        return split_top(area, 1).1;
    }
    let beside = area.width.saturating_sub(width(note) + 10 + badge_room);
    // Whose map it is comes before how many blocks it has.
    let (note, room) = if beside <= width(&who) {
        let badge_room = if simulated { badge::LEAST + 2 } else { 0 };
        ("", area.width.saturating_sub(6 + badge_room))
    } else {
        (note, beside)
    };
    let title = title(room);
    let inside = screen.pen.panel(area, &title, note);
    if simulated {
        let x = width(&title) + 4;
        let end = badge::draw(&mut screen.pen, area, x, area.width.saturating_sub(x + 2));
        screen.pen.cell(area, end, 0, ' ', ratatui::style::Style::new());
    }
    inside
}

/// What the cells mean and how many bytes one is.
fn legend(screen: &mut Screen<'_>, area: Rect, drawn: &strips::Drawn, map: &BlockMap) {
    let theme = screen.pen.theme;
    let dim = theme.ink(Ink::Dim);
    let cell = format!("1 cell = {}", round_size(drawn.layout.bytes_per_cell));
    let mut x = screen.pen.text(area, 0, 0, &cell, theme.ink(Ink::Plain)) + 3;
    // What is not in view is said first; words that do not fit beside it are in the help.
    let note = unseen(drawn, map, screen.hits.map.lines);
    let left = if x + width(&note) + 2 <= area.width {
        screen.pen.text_end(area, area.width, 0, &note, dim).saturating_sub(2)
    } else {
        area.width
    };
    let (area, _) = split_left(area, left);
    for (look, label) in named(&drawn.seen, area.width.saturating_sub(x)) {
        strips::sign(&mut screen.pen, area, x, 0, look);
        x = screen.pen.text(area, x + 2, 0, label, dim) + 2;
    }
}

/// The looks that are named in so many columns: what is drawn most comes in first, what is not drawn last, and each has its
/// place whatever else is named.
fn named(seen: &strips::Seen, room: u16) -> impl Iterator<Item = (Option<Ink>, &'static str)> {
    let mut order: Vec<usize> = (0..strips::LOOKS.len()).collect();
    // A state that this program does not know is worth a word only where there is one.
    order.retain(|&i| seen[i] > 0 || strips::LOOKS[i].0 != Some(Ink::Other));
    order.sort_by_key(|&i| std::cmp::Reverse(seen[i]));
    let mut left = room;
    order.retain(|&i| {
        let wide = 2 + width(strips::LOOKS[i].1);
        let fits = wide <= left;
        left = left.saturating_sub(if fits { wide + 2 } else { 0 });
        fits
    });
    order.sort_unstable();
    order.into_iter().map(|i| strips::LOOKS[i])
}

/// What the map does not show: blocks that the channel has no room for, else lines above and below, else long holes.
fn unseen(drawn: &strips::Drawn, map: &BlockMap, shown: u16) -> String {
    let (lines, top) = drawn.lines;
    let shown = u64::from(shown);
    if map.untracked.0 > 0 {
        let blocks = plural(map.untracked.0, "block");
        format!("{blocks} not shown ({})", units::bytes(map.untracked.1))
    } else if lines > shown {
        format!(
            "lines {}-{} of {}",
            count(top + 1),
            count((top + shown).min(lines)),
            count(lines)
        )
    } else if map.left_out > 0 {
        format!("{} unmapped left out", units::bytes(map.left_out))
    } else {
        String::new()
    }
}

/// Why there is no map and what to do about it.
fn nothing(screen: &mut Screen<'_>, area: Rect, process: Option<&Process>) {
    let (what, then) = match process {
        None if screen.model.rows.is_empty() => (
            "No process publishes GPU memory.".to_owned(),
            "A program publishes when it allocates through gpumem-alloc. Try it: key 7 starts a demo.",
        ),
        None => (
            "No process is selected.".to_owned(),
            "Choose one in the Overview (key 1) and press Enter.",
        ),
        Some(p) => match &p.state {
            ProcessState::Publishing if p.stopped == Some(true) => (
                format!("{} is stopped, and holds no memory.", p.pid),
                "Its segments appear here when it goes on and allocates.",
            ),
            ProcessState::Publishing => (
                format!("{} publishes, and holds no memory now.", p.pid),
                "Its segments appear here when it allocates.",
            ),
            ProcessState::NotPublishing => (
                match p.nvml.value() {
                    Some(&bytes) => format!(
                        "{} does not publish: the driver counts {}, no more is known.",
                        p.pid,
                        units::bytes(bytes)
                    ),
                    None => format!("{} does not publish: nothing of its memory is known.", p.pid),
                },
                "Programs that allocate through gpumem-alloc show their blocks. n and N go to other processes.",
            ),
            ProcessState::OtherUser => (
                format!("{} belongs to {}: its channel is closed to you.", p.pid, p.user),
                "Run gpumem-tui as that user or as root to see its blocks.",
            ),
            ProcessState::Exited | ProcessState::Died if p.has_unread_blocks(screen.model.map.as_ref()) => (
                format!("{} {}: its map is being read.", p.pid, p.state.text()),
                match screen.model.paused() {
                    true => "It appears here when p resumes what is shown.",
                    false => "It appears here with the next look at the channels.",
                },
            ),
            ProcessState::Exited | ProcessState::Died => (
                format!("{} {}; its last map held no memory.", p.pid, p.state.text()),
                "n and N go to other processes.",
            ),
            ProcessState::Disputed(claim) => (
                format!("{}: {claim}.", p.pid),
                "It holds no memory, as far as it says. n and N go to other processes.",
            ),
            ProcessState::Inconsistent(why) => (
                format!("{} cannot be read consistently: {why}", p.pid),
                "Nothing is guessed; the next pass tries again.",
            ),
        },
    };
    let theme = screen.pen.theme;
    let room = area.width.saturating_sub(2);
    let what = wrap(&what, room).into_iter().map(|line| (line, Ink::Strong));
    let then = wrap(then, room).into_iter().map(|line| (line, Ink::Dim));
    for (y, (line, ink)) in what.chain(then).enumerate() {
        screen
            .pen
            .text(area, 1, area.height / 3 + y as u16, &line, theme.ink(ink));
    }
}
