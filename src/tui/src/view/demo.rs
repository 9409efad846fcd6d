//! Demo: the steps of a running demo beside a picture of its memory, a step with its map, or the list of demos.

mod holes;
mod lesson;
mod map_strip;
mod places;
mod steps;

use gpumem_channel::BlockState;
use gpumem_text::units;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};

use crate::model::{DISCOVER, Demo, DemoPhase, Model, Process, Target};
use crate::view::layout::{clip, split_bottom, split_left, split_top};
use crate::view::panel::Panel;
use crate::view::theme::Ink;
use crate::view::unified;
use crate::view::widgets::{BlockMapState, BlockMapWidget, HistoryGraph, LOOKS, LookCounts, ink_of, sign};
use crate::view::{Screen, badge, history};
use crate::wrap::{width, wrap, wrap_to};

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    match &screen.model.demo {
        Some(demo) if !screen.model.ui.demo_list => running(screen, area, demo),
        _ => list(screen, area),
    }
}

/// Returns all that is known of the shown step.
pub(super) fn explanation(screen: &Screen<'_>, width: u16) -> Vec<Line<'static>> {
    let demo = screen.model.demo.as_ref();
    demo.map_or_else(Vec::new, |demo| steps::whole(screen, demo, width))
}

fn running(screen: &mut Screen<'_>, area: Rect, demo: &Demo) {
    let list_lines = if demo.running() || demo.over() {
        0
    } else {
        (screen.model.setup.demos.len() as u16 + 3).min(area.height / 3)
    };
    let (area, below) = split_bottom(area, list_lines);
    if demo.map_bytes.is_some() {
        let inside = steps_frame(screen, area, demo);
        lesson::draw(screen, inside, demo);
    } else if area.width >= 76 {
        let (left, right) = split_left(area, (area.width * 11 / 20).min(84));
        memory_panel(screen, right, demo);
        steps_panel(screen, left, demo);
    } else {
        let (top, bottom) = split_bottom(area, if area.height >= 16 { 6 } else { 0 });
        memory_panel(screen, bottom, demo);
        steps_panel(screen, top, demo);
    }
    if list_lines >= 3 {
        list(screen, below);
    }
}

/// Draws the panel with the demo's steps.
fn steps_panel(screen: &mut Screen<'_>, area: Rect, demo: &Demo) {
    let inside = steps_frame(screen, area, demo);
    steps::draw(screen, inside, demo);
    if inside != area {
        scroll_hint(screen, area);
    }
}

/// Draws a frame with the demo's name and status; returns the area inside.
fn steps_frame(screen: &mut Screen<'_>, area: Rect, demo: &Demo) -> Rect {
    let child = |p: &&Process| Some(p.pid) == demo.pid && p.state.alive();
    let suspended = screen
        .model
        .world()
        .processes
        .iter()
        .find(child)
        .and_then(|p| p.stopped)
        == Some(true);
    let (status, ink) = status(demo, suspended);
    // If nothing else on the screen is labelled simulated, the label takes precedence over the status and the end of the title.
    let unsaid = demo.simulated && !screen.labelled;
    let badge_room = if unsaid { badge::MIN_WIDTH + 1 } else { 0 };
    let title = format!("Demo: {}", demo.name);
    let title = match unsaid {
        true => clip(&title, area.width.saturating_sub(6 + badge_room)),
        false => title,
    };
    let theme = screen.theme;
    let room = area.width.saturating_sub(width(&title) + 8 + badge_room);
    let status = Some(Span::styled(status, theme.ink(ink))).filter(|status| status.width() <= room.into());
    let left = status.as_ref().map_or(area.width, |status| {
        area.width.saturating_sub(3 + status.width() as u16)
    });
    let x = Panel::behind(&title);
    // Without a frame there is no line for the label.
    let label = match demo.simulated && Panel::fits(area) {
        true => badge::label(screen, area, x, left.saturating_sub(x + 2)),
        false => None,
    };
    let panel = Panel::new(theme)
        .title(clip(&title, area.width.saturating_sub(6)))
        .label(label)
        .note(status);
    let inside = panel.inner(area);
    screen.render(panel, area);
    inside
}

/// Draws the keys that scroll the steps on the frame's last line.
fn scroll_hint(screen: &mut Screen<'_>, area: Rect) {
    let geometry = screen.hits.told;
    let key = match (screen.model.ui.demo_scroll, geometry.below) {
        (0, 0) => return,
        (0, _) => "PgDn",
        _ => "PgUp PgDn",
    };
    let [accent, dim] = [Ink::Accent, Ink::Dim].map(|ink| screen.theme.ink(ink));
    let spans = [(" ", dim), (key, accent), (" more ", dim)].map(|(text, style)| Span::styled(text, style));
    let line = Rect {
        width: area.width.saturating_sub(3),
        ..split_bottom(area, 1).1
    };
    screen.render(Line::from_iter(spans).right_aligned(), line);
}

/// Returns the demo's status. `suspended` is a child stopped by a signal, which cannot report it; `stopped` is a demo that
/// the user ended.
fn status(demo: &Demo, suspended: bool) -> (String, Ink) {
    match &demo.phase {
        _ if suspended && demo.running() => ("suspended".into(), Ink::Warning),
        DemoPhase::Starting => ("starting".into(), Ink::Dim),
        DemoPhase::Running if demo.current().is_some_and(|step| step.halted) => ("paused".into(), Ink::Accent),
        DemoPhase::Running => ("running".into(), Ink::Good),
        DemoPhase::Waiting => ("waits for you".into(), Ink::Accent),
        DemoPhase::Done { ok: true } => ("✓ done".into(), Ink::Good),
        DemoPhase::Done { ok: false } => ("✗ unexpected result".into(), Ink::Warning),
        DemoPhase::Stopped => ("stopped".into(), Ink::Dim),
        DemoPhase::Failed(_) => ("✗ failed".into(), Ink::Warning),
    }
}

/// Draws the panel with the demo's memory as it is now.
fn memory_panel(screen: &mut Screen<'_>, area: Rect, demo: &Demo) {
    let model = screen.model;
    let process = model
        .world()
        .processes
        .iter()
        .find(|p| Some(p.pid) == demo.pid && p.figures.is_some());
    // Pausing freezes this panel only: the steps beside it go on.
    let note = match (demo.simulated, model.paused()) {
        (true, true) if area.width >= 36 => "SIMULATED, paused",
        (true, _) => "SIMULATED",
        (false, true) => "paused",
        (false, false) => "",
    };
    let inside = screen.panel(area, "Its memory", note);
    screen.labelled |= demo.simulated && inside != area && area.width >= 28;
    if let Some(target) = model.managed_demo() {
        return unified::pages(screen, inside, target);
    }
    let dim = screen.theme.ink(Ink::Dim);
    let map = model
        .map
        .as_ref()
        .filter(|m| process.is_some_and(|p| p.id == m.process) && !m.segments.is_empty());
    let (top, bottom) = match map {
        Some(map) => {
            // At most eight lines per segment: a map of one segment should not fill the screen.
            let more = map.segments.iter().flat_map(|s| s.blocks.iter());
            let more = more.filter(|block| !matches!(ink_of(block.state), Ink::Allocated | Ink::Cached));
            let least = match (inside.height, more.count()) {
                (24.., _) => 15,
                (_, 0) => 5,
                // Two more states are in the legend.
                _ => 7,
            };
            let least = least + u16::from(map.left_out > 0);
            let lines = (map.segments.len() as u16)
                .saturating_mul(8)
                .min(inside.height.saturating_sub(least))
                .max(1);
            split_top(inside, lines)
        }
        None => {
            let lines = wrap(&why_no_map(model, demo, process), inside.width).len() as u16;
            split_top(inside, lines.max(3))
        }
    };
    let mut drawn = BlockMapState::default();
    let theme = screen.theme;
    match map {
        Some(map) => {
            let widget = BlockMapWidget {
                theme,
                map,
                cursor: None,
                zoom: 0,
            };
            screen.render_stateful(widget, top, &mut drawn);
            screen.hit(top, Target::View(crate::model::View::Blocks));
        }
        None => {
            let lines = wrap_to(&why_no_map(model, demo, process), inside.width, top.height.into());
            let lines = lines.iter().map(|line| Line::styled(clip(line, top.width), dim));
            screen.render(Text::from_iter(lines), top);
        }
    }
    let Some(process) = process else { return };
    let lines = figures(screen, bottom, process, &drawn.counts);
    let (_, below) = split_top(bottom, lines + 2);
    if let Some(device) = model.world().devices.iter().find(|d| d.key == process.id.device) {
        let newest = history::newest(model, device);
        let graph = HistoryGraph {
            theme,
            device,
            newest: &newest,
            zoomed: true,
        };
        screen.render(graph, split_top(below, 12).0);
    }
}

/// Returns why there is no map of the demo's memory.
fn why_no_map(model: &Model, demo: &Demo, process: Option<&Process>) -> String {
    let has_memory = demo.current().is_some_and(|step| step.stats.reserved > 0);
    let sampled = model.world().channels_at();
    let every = model.setup.interval.max(DISCOVER);
    let looked = demo.has_memory_since.is_none_or(|since| sampled > Some(since + every));
    let text = match (process, demo.running()) {
        (Some(p), _) if p.state.alive() => "Select it in the Overview (key 1) to see its blocks here.",
        (_, true) if let Some(why) = &demo.unpublished => return format!("It does not publish: {why}"),
        (_, true) if has_memory && !looked => {
            let every = units::age(every);
            return format!("It has memory. Its channel is looked for every {every}.");
        }
        (_, true) if has_memory => {
            "It has memory, but its channel is not seen here (yet): gpumem-tui doctor says where programs can publish."
        }
        (_, true) => "Its blocks appear here when it allocates.",
        // The device is the first thing that a demo reports.
        (_, false) if demo.device.is_empty() => "It never started: it had no memory.",
        (_, false) => "It has ended, and its memory is returned.",
    };
    text.to_owned()
}

/// Draws the demo's figures with the glyphs of the map, and the other states in the map as far as they fit; returns the
/// number of lines.
fn figures(screen: &mut Screen<'_>, area: Rect, process: &Process, counts: &LookCounts) -> u16 {
    let Some(f) = &process.figures else { return 0 };
    let theme = screen.theme;
    let dim = theme.ink(Ink::Dim);
    let blocks = screen
        .model
        .map
        .iter()
        .flat_map(|m| &m.segments)
        .flat_map(|s| s.blocks.iter());
    let unmapped = blocks
        .filter(|block| block.state == BlockState::Unmapped)
        .map(|block| block.size);
    let unmapped = unmapped.fold(0, u64::saturating_add);
    // Holes that are most of a segment are left out of its map, but still exist.
    let left_out = screen.model.map.as_ref().map_or(0, |m| m.left_out);
    let mut rows = vec![];
    let mut rest: Vec<(u32, Option<Ink>, &str)> = vec![];
    for (&cells, (look, label)) in counts.iter().zip(LOOKS) {
        match look {
            Some(Ink::Allocated) => rows.push((Some(look), label, units::bytes(f.allocated))),
            Some(Ink::Cached) => rows.push((Some(look), label, units::bytes(f.cached))),
            _ if cells > 0 => rest.push((cells, look, label)),
            _ => {}
        }
    }
    // The figures below matter more than the rarest glyph.
    while rest.len() > usize::from(area.height.saturating_sub(5 + u16::from(left_out > 0))) {
        let rarest = (0..rest.len()).min_by_key(|&i| rest[i].0);
        rest.remove(rarest.unwrap_or(0));
    }
    rows.extend(rest.into_iter().map(|(_, look, label)| {
        let text = match look {
            Some(Ink::Pending) => units::bytes(f.pending),
            Some(Ink::Unmapped) => units::bytes(unmapped),
            _ => String::new(),
        };
        (Some(look), label, text)
    }));
    rows.extend((left_out > 0).then(|| (None, "unmapped, not drawn", units::bytes(left_out))));
    rows.extend([
        (None, "largest free block", units::bytes(f.largest_free)),
        (
            None,
            "fragmentation",
            f.fragmentation().map_or("-".into(), units::percent),
        ),
    ]);
    let lines = rows.len() as u16;
    for (y, (look, label, text)) in (1..).zip(rows) {
        let sign = look.map_or_else(|| Span::raw(" "), |look| sign(&theme, look));
        let end = area.width.min(36);
        let room = end.saturating_sub(3 + width(&text));
        let label = clip(label, room);
        let blank = " ".repeat(usize::from(end.saturating_sub(2 + width(&label) + width(&text))));
        let spans = [
            sign,
            Span::raw(" "),
            Span::styled(label, dim),
            Span::raw(blank),
            Span::raw(text),
        ];
        let line = Rect::new(area.x, area.y + y, end, 1);
        screen.render(Line::from_iter(spans), line.intersection(area));
    }
    lines
}

/// Draws the list of demos.
fn list(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let inside = screen.panel(
        area,
        "Demos",
        "each runs as a child process and publishes like any program",
    );
    let theme = screen.theme;
    if model.setup.demos.is_empty() {
        let text = "No demo is built into this program.";
        return screen.render(Line::styled(text, theme.ink(Ink::Dim)), inside);
    }
    let names = model.setup.demos.iter().map(|d| width(&d.name)).max().unwrap_or(0);
    let room = inside.width.saturating_sub(names + 4);
    let summaries: Vec<Vec<String>> = model.setup.demos.iter().map(|demo| wrap(&demo.summary, room)).collect();
    let lines: usize = summaries.iter().map(|lines| lines.len().max(1) + 1).sum();
    // Full summaries with blank lines between them where there is room, else one line each.
    let spaced = usize::from(inside.height) > lines;
    let (_, mut rest) = split_top(inside, spaced.into());
    for (i, (demo, summary)) in model.setup.demos.iter().zip(summaries).enumerate() {
        let parts = match spaced {
            true if !summary.is_empty() => summary,
            _ => vec![clip(&demo.summary, room)],
        };
        let (entry, below) = split_top(rest, parts.len() as u16);
        (_, rest) = split_top(below, spaced.into());
        let chosen = i == model.ui.demo_entry;
        let lines = parts.into_iter().enumerate().map(|(n, part)| {
            let (mark, name) = match n {
                0 => (if chosen { "▸" } else { " " }, demo.name.as_str()),
                _ => (" ", ""),
            };
            Line::from_iter([
                Span::styled(mark, theme.ink(Ink::Accent)),
                Span::raw(" "),
                Span::styled(name, theme.ink(Ink::Strong)),
                Span::raw(" ".repeat(usize::from(names + 2 - width(name)))),
                Span::styled(part, theme.ink(Ink::Dim)),
            ])
        });
        screen.render(Text::from_iter(lines), entry);
        if chosen {
            screen.buffer.set_style(entry, theme.selected());
        }
        screen.hit(entry, Target::Entry(i));
    }
}
