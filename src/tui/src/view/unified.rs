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

use crate::model::{Causes, Counting, ManagedProcess, ManagedSums, Places, SourceId, Target, Tracking};
use crate::view::Screen;
use crate::view::layout::clip;
use crate::view::theme::Ink;
use crate::view::widgets::{PLACES, ResidencyMap, ResidencyState, place_sign};

/// Draws the view.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect) {
    let model = screen.model;
    let managed = &model.world().managed;
    let shown = model.managed_selected();
    let found = shown.and_then(|target| Some((target, managed.sample.processes.get(&target)?)));
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
    let causes = screen.model.world().managed.causes_of(target);
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
        causes::draw(screen, why, causes);
    }
    policy::draw(screen, policy);
}

fn draw_map(screen: &mut Screen<'_>, area: Rect, target: ManagedTarget, process: &ManagedProcess, sums: ManagedSums) {
    let model = screen.model;
    let title = format!(
        "{} managed in {}",
        units::bytes(sums.bytes),
        plural(sums.ranges as u64, "range")
    );
    if let Some(why) = &model.world().managed.sample.coherent {
        let inside = screen.panel(area, &title, "");
        let text = Text::raw(format!("No map: {why}."));
        screen.render(Paragraph::new(text).wrap(Wrap { trim: true }), inside);
        return;
    }
    let Some(pages) = &process.pages else {
        let inside = screen.panel(area, &title, "");
        let text = Span::styled("Its pages are being read.", screen.theme.ink(Ink::Dim));
        screen.render(text, inside);
        return;
    };
    // The newest sample may say again what an earlier one saw.
    let sampled = model.world().times.of(SourceId::Managed).unwrap_or(pages.at);
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
        under_cursor(screen, second, drawn.geometry.layout.bytes_per_cell, under, causes);
    }
}

/// Draws what the colours mean, with the bytes of each place.
fn legend(screen: &mut Screen<'_>, area: Rect, sums: Places, causes: Option<&Causes>, drawn: &ResidencyState) {
    let theme = screen.theme;
    let dim = theme.ink(Ink::Dim);
    let known = causes.is_some_and(|causes| causes.known().is_some());
    let cell = format!("1 cell = {}", round_size(drawn.geometry.layout.bytes_per_cell));
    let figures = [sums.cpu, sums.gpu, sums.evicted, sums.prefetched, sums.elsewhere];
    // Before any event no page is known to be on a GPU, and evictions are rare.
    let is_shown = |ink: Ink, bytes: u64| match ink {
        Ink::Allocated => known,
        Ink::Pending | Ink::Driver => known && bytes > 0,
        _ => true,
    };
    let entries: Vec<_> = PLACES
        .into_iter()
        .zip(figures)
        .filter(|((ink, _), bytes)| is_shown(*ink, *bytes))
        .map(|((ink, name), bytes)| {
            let [long, short] = match (ink, known) {
                (Ink::Other, true) => ["unknown or never touched", "unknown"],
                (Ink::Other, false) => [name, name],
                (Ink::Cached, _) => [name, "CPU"],
                (Ink::Allocated, _) => [name, "GPU"],
                (Ink::Driver, _) => [name, "prefetched"],
                _ => [name, "evicted"],
            };
            (ink, long, short, units::bytes_short(bytes))
        })
        .collect();
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

/// Draws what the cell under the cursor holds.
fn under_cursor(
    screen: &mut Screen<'_>,
    area: Rect,
    cell: u64,
    (start, places): (u64, Places),
    causes: Option<&Causes>,
) {
    let mut parts = vec![format!("{start:x}")];
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
