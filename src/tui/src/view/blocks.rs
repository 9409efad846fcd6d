//! Blocks: the map of the selected process, the block under the cursor, and the free blocks by size.

mod detail;

use gpumem_text::units::{self, count, plural, round_size};
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::{BlockMap, MapGeometry, Model, Process, ProcessState, Target, hint_text};
use crate::view::panel::Panel;
use crate::view::theme::Ink;
use crate::view::widgets::{BlockMapState, BlockMapWidget, LOOKS, LookCounts, sign};
use crate::view::{Screen, badge};
use crate::wrap::{cut, width};

/// Columns of the panels at the right.
const SIDE: u16 = 38;

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let process = model.selected_process();
    let Some(map) = model.map.as_ref().filter(|m| !m.segments.is_empty()) else {
        let inside = framed(screen, area, process, "");
        let third = Constraint::Length(inside.height / 3);
        let [_, rest] = Layout::vertical([third, Constraint::Min(0)]).areas(inside);
        let (what, then) = why_no_map(model, process);
        let theme = screen.theme;
        let hints = process.into_iter().flat_map(hints).map(Span::raw);
        let text = Text::from_iter(
            [Span::styled(what, theme.ink(Ink::Strong))]
                .into_iter()
                .chain(hints)
                .chain([Span::styled(then, theme.ink(Ink::Dim))]),
        );
        let text = Paragraph::new(text).wrap(Wrap { trim: true });
        screen.render(text, rest.inner(Margin::new(1, 0)));
        return;
    };
    let side = if area.width >= 110 { SIDE } else { 0 };
    let below = match area.height {
        _ if side > 0 => 0,
        ..12 => 0,
        // Two lines hold the details of most blocks.
        12..21 => 2,
        _ => 3,
    };
    let [left, right] = Layout::horizontal([Constraint::Min(0), Constraint::Length(side)]).areas(area);
    let [top, bottom] = Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(left);
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
    let foot = u16::from(inside.height >= 4);
    let [cells, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(foot)]).areas(inside);
    let blocks = &screen.model.ui.blocks;
    let theme = screen.theme;
    let widget = BlockMapWidget {
        theme,
        map,
        cursor: blocks.cursor.or_else(|| map.first().map(|(_, b)| b.addr)),
        zoom: blocks.zoom,
    };
    let mut drawn = BlockMapState::default();
    screen.render_stateful(widget, cells, &mut drawn);
    for &(area, addr) in &drawn.strips {
        let bytes_per_cell = drawn.layout.bytes_per_cell;
        screen.hit(area, Target::Bytes { addr, bytes_per_cell });
    }
    screen.hits.map = MapGeometry {
        layout: drawn.layout,
        whole: drawn.whole,
        lines: cells.height,
    };
    legend(screen, foot, &drawn, map);
}

/// Draws a frame that names the process of the map, or a line instead on low screens; returns the area inside.
fn framed(screen: &mut Screen<'_>, area: Rect, process: Option<&Process>, note: &str) -> Rect {
    let theme = screen.theme;
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
        cut(&format!("{whose}{}", p.name_in(left.into(), "…")), room, "…")
    };
    let simulated = process.is_some_and(|p| p.simulated);
    let badge_room = if simulated { 12 } else { 0 };
    if area.height < 8 {
        let [line, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
        let title = title(area.width.saturating_sub(2 + badge_room));
        let x = 1 + width(&title) + 1;
        let title = [
            Span::raw(" "),
            Span::styled(title, theme.ink(Ink::Strong)),
            Span::raw(" "),
        ];
        let label = match simulated {
            true => badge::label(screen, area, x, area.width),
            false => None,
        };
        screen.render(Line::from_iter(title.into_iter().chain(label)), line);
        return rest;
    }
    let beside = area.width.saturating_sub(width(note) + 10 + badge_room);
    // The process matters more than the number of its blocks.
    let (note, room) = if beside <= width(&who) {
        let badge_room = if simulated { badge::MIN_WIDTH + 2 } else { 0 };
        ("", area.width.saturating_sub(6 + badge_room))
    } else {
        (note, beside)
    };
    let title = title(room);
    let x = Panel::behind(&title);
    let label = match simulated && Panel::fits(area) {
        true => badge::label(screen, area, x, area.width.saturating_sub(x + 2)),
        false => None,
    };
    let note = Some(Span::styled(note, theme.ink(Ink::Dim))).filter(|note| note.width() > 0);
    let panel = Panel::new(theme).title(title).label(label).note(note);
    let inside = panel.inner(area);
    screen.render(panel, area);
    inside
}

/// Draws what the cells mean and how many bytes one stands for.
fn legend(screen: &mut Screen<'_>, area: Rect, drawn: &BlockMapState, map: &BlockMap) {
    let theme = screen.theme;
    let dim = theme.ink(Ink::Dim);
    let cell = format!("1 cell = {}   ", round_size(drawn.layout.bytes_per_cell));
    let taken = width(&cell);
    let mut room = area.width.saturating_sub(taken);
    // The note on what is not in view comes first; names that do not fit beside it are in the help.
    let note = unseen(drawn, map, screen.hits.map.lines);
    if width(&note) + 2 <= room {
        room -= width(&note) + 2;
        screen.render(Line::from(Span::styled(note, dim)).right_aligned(), area);
    }
    let mut line = Line::raw(cell);
    for (look, label) in named(&drawn.counts, room) {
        let label = Span::styled(label, dim);
        line.extend([sign(&theme, look), Span::raw(" "), label, Span::raw("  ")]);
    }
    screen.render(line, area);
}

/// Chooses the looks that a legend of `room` columns names. Those drawn most often are chosen first, but all keep the order
/// of [`LOOKS`].
fn named(counts: &LookCounts, room: u16) -> impl Iterator<Item = (Option<Ink>, &'static str)> {
    let mut order: Vec<usize> = (0..LOOKS.len()).collect();
    // States that this program does not know are named only where some are drawn.
    order.retain(|&i| counts[i] > 0 || LOOKS[i].0 != Some(Ink::Other));
    order.sort_by_key(|&i| std::cmp::Reverse(counts[i]));
    let mut left = room;
    order.retain(|&i| {
        let wide = 2 + width(LOOKS[i].1);
        let fits = wide <= left;
        left = left.saturating_sub(if fits { wide + 2 } else { 0 });
        fits
    });
    order.sort_unstable();
    order.into_iter().map(|i| LOOKS[i])
}

/// Returns a note on what the map does not show: blocks that the channel has no room for, else lines above and below, else
/// long unmapped holes.
fn unseen(drawn: &BlockMapState, map: &BlockMap, shown: u16) -> String {
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

/// Returns what explains the memory of a process without a map, one sentence for each hint.
fn hints(process: &Process) -> impl Iterator<Item = String> {
    let silent = matches!(process.state, ProcessState::NotPublishing | ProcessState::OtherUser);
    let hints = process.hints.iter().filter(move |_| silent);
    hints.map(|hint| hint_text(hint, process.pid))
}

/// Returns why there is no map, and what the user can do about it.
fn why_no_map(model: &Model, process: Option<&Process>) -> (String, &'static str) {
    match process {
        None if model.rows.is_empty() => (
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
            ProcessState::Publishing if let Some(why) = p.figures.as_ref().and_then(|f| f.map_skipped.as_deref()) => (
                format!("{} publishes its figures, and no block map: {why}.", p.pid),
                "Its figures are in the Overview (key 1).",
            ),
            ProcessState::Publishing if p.figures.as_ref().is_some_and(|f| !f.mapped && f.segments > 0) => (
                format!("The block map of {} is being sampled.", p.pid),
                "PyTorch is asked for it only while somebody looks. It appears here in a second or two.",
            ),
            ProcessState::Publishing => (
                format!("{} publishes, and holds no memory now.", p.pid),
                "Its segments appear here when it allocates.",
            ),
            ProcessState::NotPublishing if model.attaching.contains(&p.pid) => (
                format!("{} is being attached to.", p.pid),
                "It answers once its main thread is back in the interpreter.",
            ),
            ProcessState::NotPublishing if let Some(why) = model.not_attached.get(&p.pid) => (
                format!("{} cannot be attached to: {why}.", p.pid),
                "gpumem-tui run -- COMMAND starts a PyTorch program that publishes. n and N go to other processes.",
            ),
            ProcessState::NotPublishing => (
                match p.nvml.value() {
                    Some(&bytes) => format!(
                        "{} does not publish: the driver counts {}{}.",
                        p.pid,
                        units::bytes(bytes),
                        if p.hints.is_empty() { ", no more is known" } else { "" }
                    ),
                    None => format!("{} does not publish: nothing of its memory is known.", p.pid),
                },
                "a looks into it if it is a PyTorch program. n and N go to other processes.",
            ),
            ProcessState::OtherUser => (
                format!("{} belongs to {}: you may not read its channel.", p.pid, p.user),
                "Run gpumem-tui as that user or as root to see its blocks.",
            ),
            ProcessState::Exited | ProcessState::Died if p.has_unread_blocks(model.map.as_ref()) => (
                format!("{} {}: its map is being read.", p.pid, p.state.text()),
                match model.paused() {
                    true => "It appears here when p resumes what is shown.",
                    false => "It appears here once the channels are read again.",
                },
            ),
            ProcessState::Exited | ProcessState::Died => (
                format!("{} {}; its last map held no memory.", p.pid, p.state.text()),
                "n and N go to other processes.",
            ),
            ProcessState::Disputed(claim) => (
                format!("{}: {claim}.", p.pid),
                "It reports no memory. n and N go to other processes.",
            ),
            ProcessState::Inconsistent(why) => (
                format!("{} cannot be read consistently: {why}", p.pid),
                "Nothing is shown instead of it; the next pass tries again.",
            ),
        },
    }
}
