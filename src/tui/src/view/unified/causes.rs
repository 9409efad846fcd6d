//! Why managed memory of a process moves, as the driver's events say.

use gpumem_probe::{Cause, Direction, Moves};
use gpumem_text::units::{self, count, plural};
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};

use crate::model::{Causes, KnownCauses};
use crate::view::Screen;
use crate::view::theme::Ink;

/// Returns the height of the panel in a view of `view` lines.
pub(super) fn height(causes: &Causes, view: u16) -> u16 {
    match (causes.known(), view) {
        (_, ..14) => 0,
        (None, _) => 4,
        // A heading, a line for each cause that was seen, and the sums below.
        (Some(known), 14..26) => 4 + (listed(known).count() as u16).min(4),
        (Some(_), _) => 11,
    }
}

/// Draws the panel. A simulated device tells causes without being asked.
pub(super) fn draw(screen: &mut Screen<'_>, area: Rect, causes: &Causes, simulated: bool) {
    if area.is_empty() {
        return;
    }
    let note = match simulated {
        true => "modelled",
        false => "c ends them; until then page faults take up to 50 % longer",
    };
    let inside = screen.panel(area, "Causes", note);
    let text = match causes {
        Causes::Pending => Text::styled("The driver is asked for events.", screen.theme.ink(Ink::Dim)),
        Causes::Refused(why) => Text::styled(format!("no causes: {why}"), screen.theme.ink(Ink::Warning)),
        Causes::On(known) => Text::from(lines(screen, known, inside.height)),
    };
    screen.render(Paragraph::new(text).wrap(Wrap { trim: false }), inside);
}

/// The names of causes, as nsys has them.
const NAMES: [(Cause, &str); 6] = [
    (Cause::Fault, "fault (coherence)"),
    (Cause::Prefetch, "driver's prefetch"),
    (Cause::User, "user (prefetch call)"),
    (Cause::Eviction, "eviction"),
    (Cause::AccessCounters, "access counters"),
    (Cause::Other, "unknown"),
];

/// Returns the causes that were seen, and page faults in any case.
fn listed(known: &KnownCauses) -> impl Iterator<Item = (&'static str, [Moves; 2])> {
    let sums = &known.events.sums;
    let all = NAMES.into_iter().map(|(cause, name)| {
        let moves = [Direction::HostToDevice, Direction::DeviceToHost].map(|d| sums.moves(cause, d));
        (cause, name, moves)
    });
    let seen = all.filter(|(cause, _, moves)| *cause == Cause::Fault || moves.iter().any(|m| m.count > 0));
    seen.map(|(_, name, moves)| (name, moves))
}

fn lines(screen: &Screen<'_>, known: &KnownCauses, room: u16) -> Vec<Line<'static>> {
    let sums = &known.events.sums;
    let dim = screen.theme.ink(Ink::Dim);
    let mut lines = vec![Line::styled(
        format!(
            "{:<22} {:>10} {:>10}  {:>10} {:>10}",
            "", "H>D bytes", "migrations", "D>H bytes", "migrations"
        ),
        dim,
    )];
    for (name, [to_gpu, to_cpu]) in listed(known) {
        lines.push(Line::from(format!(
            "{name:<22} {:>10} {:>10}  {:>10} {:>10}",
            units::bytes_short(to_gpu.bytes),
            count(to_gpu.count),
            units::bytes_short(to_cpu.bytes),
            count(to_cpu.count)
        )));
    }
    let all = sums.migrations.iter().flatten();
    let (moves, bytes) = all.fold((0u64, 0u64), |(n, bytes), m| {
        (n + m.count, bytes.saturating_add(m.bytes))
    });
    let mean = bytes.checked_div(moves).map_or_else(|| "-".to_owned(), units::bytes);
    let mut rest = vec![Span::raw(format!(
        "mean migration {mean}   pages thrashing {}   throttled {}   remote {}",
        count(sums.thrashing),
        count(sums.throttled),
        count(sums.remote)
    ))];
    if sums.dropped > 0 {
        let text = format!("   {} dropped: figures are too low", plural(sums.dropped, "event"));
        rest.push(Span::styled(text, screen.theme.ink(Ink::Warning)));
    }
    lines.push(Line::from(rest));
    let mut blocks: Vec<_> = known.events.blocks.iter().collect();
    blocks.sort_by_key(|block| std::cmp::Reverse(block.to_gpu.saturating_add(block.to_cpu)));
    let left = usize::from(room).saturating_sub(lines.len() + 1);
    if left > 0 && !blocks.is_empty() {
        lines.push(Line::styled("Blocks of 2 MiB that move most", dim));
        lines.extend(blocks.iter().take(left).map(|block| {
            Line::from(format!(
                "{:<22x} {:>10} {:>10}  {:>10} {}",
                block.start,
                units::bytes_short(block.to_gpu),
                count(block.count.into()),
                units::bytes_short(block.to_cpu),
                if block.thrashed { " thrashing" } else { "" }
            ))
        }));
    }
    lines
}
