//! Unified: managed memory of a process, how it moves and where its pages are; or the list of all processes that have some.

mod causes;
mod list;
mod policy;
mod traffic;

use gpumem_probe::Target as ManagedTarget;
use gpumem_text::units::{self, plural, round_size};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::{
    Causes, Counting, ManagedProcess, ManagedSums, Places, PublishedRange, SourceId, Target, Tracking, View,
};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::view::widgets::{PLACES, ResidencyMap, ResidencyState, place_sign};

/// Shown until a process's pages were looked at for the first time.
const BEING_READ: &str = "Its pages are being read.";

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let managed = &model.world().managed;
    let shown = model.managed_selected();
    let found = shown.and_then(|target| Some((target, managed.process(target)?)));
    match found {
        Some((target, process)) => {
            if let Ok(sums) = process.sums {
                one(screen, area, target, process, sums);
            }
        }
        None => list::draw(screen, area),
    }
}

/// Draws one process: its traffic, its map, why it moves, and the policy in force.
fn one(screen: &mut Screen<'_>, area: Rect, target: ManagedTarget, process: &ManagedProcess, sums: ManagedSums) {
    let managed = &screen.model.world().managed;
    let (causes, simulated) = (managed.causes_of(target), managed.is_simulated(target));
    let cause_lines = causes.map_or(0, |causes| causes::height(causes, area.height));
    let counted = matches!(process.counting, Counting::On(_));
    let traffic_lines = match area.height {
        ..12 => 2,
        _ if !counted => 4,
        // If only one of them fits, causes are more useful than the graph.
        12..26 if cause_lines > 0 => 5,
        12..20 => 5,
        20..30 => 8,
        _ => 11,
    };
    let policy_lines = u16::from(area.height >= 16);
    let [traffic, map, why, policy] = Layout::vertical([
        Constraint::Length(traffic_lines),
        Constraint::Min(3),
        Constraint::Length(cause_lines),
        Constraint::Length(policy_lines),
    ])
    .areas(area);
    traffic::draw(screen, traffic, target, process);
    draw_map(screen, map, target, process, sums);
    if let Some(causes) = causes {
        causes::draw(screen, why, causes, simulated);
    }
    policy::draw(screen, policy, simulated);
}

fn draw_map(screen: &mut Screen<'_>, area: Rect, target: ManagedTarget, process: &ManagedProcess, sums: ManagedSums) {
    let model = screen.model;
    let title = format!(
        "{} managed in {}",
        units::bytes(sums.bytes),
        plural(sums.ranges as u64, "range")
    );
    let simulated = model.world().managed.is_simulated(target);
    if let Some(why) = model.world().managed.sample.coherent.as_ref().filter(|_| !simulated) {
        let inside = screen.panel(area, &title, "");
        let text = Text::raw(format!("No map: {why}."));
        screen.render(Paragraph::new(text).wrap(Wrap { trim: true }), inside);
        return;
    }
    let Some(pages) = &process.pages else {
        let inside = screen.panel(area, &title, "");
        screen.render(Span::styled(BEING_READ, screen.theme.ink(Ink::Dim)), inside);
        return;
    };
    // The newest sample may say again what an earlier one saw.
    let source = match simulated {
        true => SourceId::Channels,
        false => SourceId::Managed,
    };
    let sampled = model.world().times.of(source).unwrap_or(pages.at);
    let age = sampled.saturating_sub(pages.at);
    let note = format!("sample {:.1} s old", age as f64 / 1e9);
    let inside = screen.panel(area, &title, &note);
    let foot = inside.height.min(2).min(inside.height.saturating_sub(2));
    let [cells, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(foot)]).areas(inside);
    let causes = model.world().managed.causes_of(target);
    let widget = ResidencyMap {
        theme: screen.theme,
        pages,
        causes,
        cursor: model.ui.unified.cursor,
        shows_cursor: true,
        zoom: model.ui.unified.zoom,
    };
    let mut drawn = ResidencyState::default();
    screen.render_stateful(widget, cells, &mut drawn);
    for &(area, addr) in &drawn.strips {
        let bytes_per_cell = drawn.geometry.layout.bytes_per_cell;
        screen.hit(area, Target::Bytes { addr, bytes_per_cell });
    }
    screen.hits.pages = drawn.geometry;
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(foot);
    legend(screen, first, process.places, causes, &drawn);
    if let Some(under) = drawn.under {
        let published = model.world().managed.published_range(target.pid, under.0);
        under_cursor(
            screen,
            second,
            drawn.geometry.layout.bytes_per_cell,
            under,
            (causes, published),
        );
    }
}

/// Draws where the pages of a process are without a cursor, with one place a line below, for another view.
pub(super) fn pages(screen: &mut Screen<'_>, area: Rect, target: ManagedTarget) {
    let model = screen.model;
    let managed = &model.world().managed;
    let Some(process) = managed.process(target) else { return };
    let theme = screen.theme;
    let Some(pages) = &process.pages else {
        return screen.render(Span::styled(BEING_READ, theme.ink(Ink::Dim)), area);
    };
    let causes = managed.causes_of(target);
    let entries = legend_entries(process.places, causes);
    let lines = (entries.len() as u16 + 2).min(area.height / 2);
    let widget = ResidencyMap {
        theme,
        pages,
        causes,
        cursor: None,
        shows_cursor: false,
        zoom: 0,
    };
    let most = area.height.saturating_sub(lines);
    // Square enough that a line is a few blocks of 2 MiB.
    let [map, below] = Layout::vertical([Constraint::Length(most.min(16)), Constraint::Min(0)]).areas(area);
    let mut drawn = ResidencyState::default();
    screen.render_stateful(widget, map, &mut drawn);
    screen.hit(map, Target::View(View::Unified));
    let dim = theme.ink(Ink::Dim);
    let end = below.width.min(40);
    let cell = format!("1 cell = {}", round_size(drawn.geometry.layout.bytes_per_cell));
    let mut y = below.y + 1;
    for (ink, long, _, bytes) in entries {
        let blank = " ".repeat(usize::from(end).saturating_sub(2 + long.len() + bytes.len()));
        let line = Line::from_iter([
            place_sign(&theme, ink),
            Span::styled(format!(" {long}"), dim),
            Span::raw(blank),
            Span::raw(bytes),
        ]);
        screen.render(line, Rect::new(below.x, y, end, 1).intersection(below));
        y += 1;
    }
    let line = Rect::new(below.x, y, end, 1).intersection(below);
    screen.render(Line::styled(cell, dim), line);
    let [_, rest] = Layout::vertical([Constraint::Length(y + 2 - below.y), Constraint::Max(12)]).areas(below);
    if rest.height >= 3 {
        traffic::figures(screen, rest, target, process);
    }
}

/// Draws what the colours mean, with the bytes of each place.
fn legend(screen: &mut Screen<'_>, area: Rect, sums: Places, causes: Option<&Causes>, drawn: &ResidencyState) {
    let theme = screen.theme;
    let dim = theme.ink(Ink::Dim);
    let cell = format!("1 cell = {}", round_size(drawn.geometry.layout.bytes_per_cell));
    let entries = legend_entries(sums, causes);
    let draw = |gap: &str, name: &dyn Fn(&'static str, &'static str) -> &'static str| {
        let mut line = Line::raw(cell.clone());
        for (ink, long, short, bytes) in &entries {
            line.push_span(Span::raw(gap.to_owned()));
            line.push_span(place_sign(&theme, *ink));
            line.push_span(Span::styled(format!(" {}", name(long, short)), dim));
            line.push_span(Span::raw(format!(" {bytes}")));
        }
        line
    };
    let line = draw("   ", &|long, _| long);
    let line = match line.width() > area.width.into() {
        true => draw("  ", &|_, short| short),
        false => line,
    };
    screen.render(line, area);
}

/// Returns the places of the legend: colour, long and short name, and bytes.
fn legend_entries(sums: Places, causes: Option<&Causes>) -> Vec<(Ink, &'static str, &'static str, String)> {
    let known = causes.is_some_and(|causes| causes.known().is_some());
    let figures = [sums.cpu, sums.gpu, sums.evicted, sums.prefetched, sums.elsewhere];
    // Before any event no page is known to be on a GPU, and evictions are rare.
    let is_shown = |ink: Ink, bytes: u64| match ink {
        Ink::Allocated => known,
        Ink::Pending | Ink::Driver => known && bytes > 0,
        _ => true,
    };
    let entries = PLACES.into_iter().zip(figures);
    let shown = entries.filter(|((ink, _), bytes)| is_shown(*ink, *bytes));
    let named = shown.map(|((ink, name), bytes)| {
        let [long, short] = match (ink, known) {
            (Ink::Other, true) => ["unknown or never touched", "unknown"],
            (Ink::Other, false) => [name, name],
            (Ink::Cached, _) => [name, "CPU"],
            (Ink::Allocated, _) => [name, "GPU"],
            (Ink::Driver, _) => [name, "prefetched"],
            _ => [name, "evicted"],
        };
        (ink, long, short, units::bytes_short(bytes))
    });
    named.collect()
}

/// Draws what the cell under the cursor holds.
fn under_cursor(
    screen: &mut Screen<'_>,
    area: Rect,
    cell: u64,
    (start, places): (u64, Places),
    (causes, published): (Option<&Causes>, Option<&PublishedRange>),
) {
    let mut parts = vec![format!("{start:x}")];
    parts.extend(published.and_then(PublishedRange::words));
    for (name, bytes) in [
        ("on the CPU", places.cpu),
        ("on the GPU", places.gpu),
        ("evicted", places.evicted),
        ("prefetched to the host", places.prefetched),
        ("not on the CPU", places.elsewhere),
    ] {
        if bytes > 0 {
            parts.push(format!("{} {name}", units::bytes_short(bytes)));
        }
    }
    let block = causes.and_then(Causes::known).filter(|_| cell <= gpumem_probe::BLOCK);
    if let Some(block) = block.and_then(|known| known.block(start - start % gpumem_probe::BLOCK)) {
        let moved = format!(
            "its block: H>D {}, D>H {}, {}{}",
            units::bytes_short(block.to_gpu),
            units::bytes_short(block.to_cpu),
            plural(block.count.into(), "migration"),
            if block.thrashed { ", thrashing" } else { "" }
        );
        parts.push(moved);
    }
    let marker = if screen.theme.ascii { "@ " } else { "◆ " };
    let line = Line::from(vec![
        Span::styled(marker, screen.theme.ink(Ink::Accent)),
        Span::raw(clip(&parts.join("  "), area.width.saturating_sub(2))),
    ]);
    screen.render(line, area);
}

/// Returns the state of counters that are not attached.
fn counting_text(counting: &Counting, tracking: Tracking) -> Option<String> {
    match counting {
        Counting::On(_) => None,
        Counting::Off if tracking == Tracking::Never => Some("counters are off (--uvm off)".into()),
        // The request for them is on its way.
        Counting::Off | Counting::Pending => Some("counters are being attached".into()),
        Counting::Refused(why) => Some(format!("no counters: {why}")),
    }
}
