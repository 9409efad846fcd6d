//! One cell of the map: the states of its bytes, and its glyph and style.

use gpumem_channel::{BlockState, SegmentMap};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::model::Colors;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::bar::{boundary, swatch};

/// The states of a block. One that this program does not know is shown as other.
const STATES: [Ink; 5] = [Ink::Allocated, Ink::Cached, Ink::Pending, Ink::Unmapped, Ink::Other];

/// Returns the meaning of a block's state. Free blocks of an allocator are cached memory.
pub(in crate::view) fn ink_of(state: BlockState) -> Ink {
    STATES[index(state)]
}

fn index(state: BlockState) -> usize {
    match state {
        BlockState::Allocated | BlockState::Part => 0,
        BlockState::Free | BlockState::Quick => 1,
        BlockState::PendingFree => 2,
        BlockState::Unmapped => 3,
        BlockState::Unknown(_) => 4,
    }
}

/// The looks of a cell in the order of legends: one state, or several at once (`None`).
pub(in crate::view) const LOOKS: [(Option<Ink>, &str); STATES.len() + 1] = [
    (Some(Ink::Allocated), "allocated"),
    (Some(Ink::Cached), "cached"),
    (Some(Ink::Pending), "pending"),
    (Some(Ink::Unmapped), "unmapped"),
    (Some(Ink::Other), "unknown"),
    (None, "mixed"),
];

/// The number of cells drawn with each of [`LOOKS`].
pub(in crate::view) type LookCounts = [u32; LOOKS.len()];

/// Counts a cell by its look. One of two states that is drawn in two colours counts for both.
pub(super) fn note(counts: &mut LookCounts, theme: &Theme, mix: &Mix) {
    match mix.runs {
        0 => {}
        1 => counts[mix.last] += 1,
        2 if theme.has_eighths() => {
            counts[mix.first.0] += 1;
            counts[mix.last] += 1;
        }
        _ => counts[STATES.len()] += 1,
    }
}

/// The states of the bytes of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mix {
    /// Bytes per state.
    bytes: [u64; STATES.len()],
    /// Runs of equal state, counted up to 3.
    runs: u8,
    /// State of the newest run.
    last: usize,
    /// State of the first run, and where it ended, in eighths of a cell.
    first: (usize, u64),
    /// A block that reaches into the next cell begins here.
    begins: bool,
}

/// Sums the blocks of a segment into cells from address `begin` on.
pub(super) fn aggregate(cells: &mut Vec<Mix>, segment: &SegmentMap, begin: u64, count: u16, bytes_per_cell: u64) {
    cells.clear();
    cells.resize(usize::from(count), Mix::default());
    let end = begin.saturating_add(bytes_per_cell.saturating_mul(u64::from(count)));
    let blocks = &segment.blocks;
    let first = blocks.partition_point(|b| b.addr.saturating_add(b.size) <= begin);
    // The cell in which the last block ended, and where that cell begins. Most blocks end in the cell in which they begin, and a
    // division would be most of their cost.
    let (mut n, mut start) = (0, 0);
    for block in &blocks[first..] {
        if block.addr >= end {
            break;
        }
        let from = block.addr.max(begin) - begin;
        let to = block.addr.saturating_add(block.size).min(end) - begin;
        if to <= from {
            continue;
        }
        let state = index(block.state);
        if from - start >= bytes_per_cell {
            n = (from / bytes_per_cell) as usize;
            start = n as u64 * bytes_per_cell;
        }
        let head = n;
        // The first block of a row of cells needs no seam.
        let long = block.size / 2 >= bytes_per_cell && block.addr > begin;
        while let Some(cell) = cells.get_mut(n) {
            if cell.runs == 0 {
                (cell.runs, cell.last) = (1, state);
                cell.first = (state, 8);
            } else if cell.last != state {
                if cell.runs == 1 {
                    cell.first.1 = (u128::from(from.saturating_sub(start)) * 8 / u128::from(bytes_per_cell)) as u64;
                }
                cell.runs = (cell.runs + 1).min(3);
                cell.last = state;
            }
            cell.bytes[state] += to.min(start.saturating_add(bytes_per_cell)) - from.max(start);
            cell.begins |= long && n == head;
            if to - start <= bytes_per_cell {
                break;
            }
            n += 1;
            start += bytes_per_cell;
        }
    }
}

/// Returns the glyph and style of a cell.
pub(super) fn look(theme: &Theme, mix: &Mix) -> (char, Style) {
    match mix.runs {
        // No block is known for this part of the segment.
        0 => ('?', theme.ink(Ink::Dim)),
        1 => {
            let ink = STATES[mix.last];
            let tile = theme.tile(ink);
            match (mix.begins, theme.seam(ink), theme.ground(ink)) {
                (true, Some(seam), Some(ground)) if !theme.ascii => ('▏', Style::new().fg(seam).bg(ground)),
                (true, ..) if theme.ascii && ink == Ink::Allocated => ('[', tile.style),
                (true, ..) if theme.depth == Colors::Mono && ink == Ink::Allocated => ('▐', tile.style),
                _ => (tile.glyph, tile.style),
            }
        }
        2 if theme.has_eighths() => boundary(theme, STATES[mix.first.0], STATES[mix.last], mix.first.1.max(1)),
        _ => mixed(theme, mix),
    }
}

/// Returns the look of a cell with several states.
fn mixed(theme: &Theme, mix: &Mix) -> (char, Style) {
    let mut order = [0, 1, 2, 3, 4];
    order.sort_by_key(|&i: &usize| std::cmp::Reverse(mix.bytes[i]));
    let second = Some(order[1]).filter(|&i| mix.bytes[i] > 0).map(|i| STATES[i]);
    mixed_look(theme, STATES[order[0]], second)
}

/// Returns the sample of one of [`LOOKS`] in a legend.
pub(in crate::view) fn sign(theme: &Theme, look: Option<Ink>) -> Span<'static> {
    match look {
        Some(ink) => swatch(theme, ink),
        None => {
            let (glyph, style) = mixed_look(theme, Ink::Allocated, Some(Ink::Cached));
            Span::styled(glyph.to_string(), style)
        }
    }
}

/// Returns the look of two states in one cell: the most frequent in front of the second.
fn mixed_look(theme: &Theme, most: Ink, second: Option<Ink>) -> (char, Style) {
    let glyph = if theme.ascii { '*' } else { '▚' };
    let style = match (theme.ground(most), second.and_then(|s| theme.ground(s))) {
        (Some(front), Some(back)) if theme.has_eighths() => Style::new().fg(front).bg(back),
        _ => theme.tile(most).style,
    };
    (glyph, style)
}

/// Returns the style of a cell of the block under the cursor.
pub(super) fn highlight(theme: &Theme, mix: &Mix, style: Style) -> Style {
    let ink = STATES[mix.last];
    match (theme.depth, theme.bright(ink)) {
        (Colors::True, Some(bright)) if mix.runs == 1 => Style::new().fg(bright).bg(bright),
        _ => style.add_modifier(Modifier::BOLD),
    }
}
