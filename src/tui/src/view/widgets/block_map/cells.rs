//! One cell of the map: which states its bytes are in, and what that looks like.

use gpumem_channel::{BlockState, SegmentMap};
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::model::Colors;
use crate::view::theme::{Ink, Theme};
use crate::view::widgets::bar::{boundary, swatch};

/// The states a block can be in; what a reader does not know is shown as other.
const STATES: [Ink; 5] = [Ink::Allocated, Ink::Cached, Ink::Pending, Ink::Unmapped, Ink::Other];

/// The look of a block's state. Free blocks of an allocator are cached memory.
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

/// What a cell can be drawn as, in the order of legends: a state, or several at once.
pub(in crate::view) const LOOKS: [(Option<Ink>, &str); STATES.len() + 1] = [
    (Some(Ink::Allocated), "allocated"),
    (Some(Ink::Cached), "cached"),
    (Some(Ink::Pending), "pending"),
    (Some(Ink::Unmapped), "unmapped"),
    (Some(Ink::Other), "unknown"),
    (None, "mixed"),
];

/// How many cells are drawn as each of [`LOOKS`].
pub(in crate::view) type Seen = [u32; LOOKS.len()];

/// Counts a cell as what it is drawn as; one of two states may be drawn as both.
pub(super) fn note(seen: &mut Seen, theme: &Theme, mix: &Mix) {
    match mix.runs {
        0 => {}
        1 => seen[mix.last] += 1,
        2 if theme.has_eighths() => {
            seen[mix.first.0] += 1;
            seen[mix.last] += 1;
        }
        _ => seen[STATES.len()] += 1,
    }
}

/// What the bytes of one cell are.
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
    // The cell that the last block ended in, and where it begins: most blocks end in the cell that they begin in, and a division
    // would be most of what they cost.
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
        // The first block of a line needs no seam.
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

/// Glyph and style of a cell.
pub(super) fn look(theme: &Theme, mix: &Mix) -> (char, Style) {
    match mix.runs {
        // Part of a segment of which no block is known.
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

/// Several states in one cell.
fn mixed(theme: &Theme, mix: &Mix) -> (char, Style) {
    let mut order = [0, 1, 2, 3, 4];
    order.sort_by_key(|&i: &usize| std::cmp::Reverse(mix.bytes[i]));
    let second = Some(order[1]).filter(|&i| mix.bytes[i] > 0).map(|i| STATES[i]);
    mixed_look(theme, STATES[order[0]], second)
}

/// The sign of one of [`LOOKS`] in a legend.
pub(in crate::view) fn sign(theme: &Theme, look: Option<Ink>) -> Span<'static> {
    match look {
        Some(ink) => swatch(theme, ink),
        None => {
            let (glyph, style) = mixed_look(theme, Ink::Allocated, Some(Ink::Cached));
            Span::styled(glyph.to_string(), style)
        }
    }
}

/// The most frequent state in front of the second.
fn mixed_look(theme: &Theme, most: Ink, second: Option<Ink>) -> (char, Style) {
    let glyph = if theme.ascii { '*' } else { '▚' };
    let style = match (theme.ground(most), second.and_then(|s| theme.ground(s))) {
        (Some(front), Some(back)) if theme.has_eighths() => Style::new().fg(front).bg(back),
        _ => theme.tile(most).style,
    };
    (glyph, style)
}

/// The style of a cell of the block under the cursor.
pub(super) fn highlight(theme: &Theme, mix: &Mix, style: Style) -> Style {
    let ink = STATES[mix.last];
    match (theme.depth, theme.bright(ink)) {
        (Colors::True, Some(bright)) if mix.runs == 1 => Style::new().fg(bright).bg(bright),
        _ => style.add_modifier(Modifier::BOLD),
    }
}
