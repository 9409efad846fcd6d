//! The block map of the selected process, and the cursor on it.

use gpumem_channel::{Block, Life};

use crate::model::{BlockMap, DeviceKey, MapGeometry, MapLayout, Model, Move, Owner, mapped};

/// Builds the map of the selected process from the world that is shown, frozen or live.
pub(super) fn refresh(model: &mut Model) {
    if !current(model) {
        model.map = build(model);
    }
}

/// Checks whether the map is up to date. It may have thousands of segments, so it is not rebuilt for other sources' samples.
fn current(model: &Model) -> bool {
    let (Some(map), Some(id)) = (&model.map, model.ui.process) else {
        return false;
    };
    let published = &model.world().published;
    map.process == id
        && published
            .iter()
            .any(|c| id.owner == Owner::Channel(c.key) && c.read_at == map.read_at)
}

fn build(model: &Model) -> Option<BlockMap> {
    let id = model.ui.process?;
    let Owner::Channel(key) = id.owner else { return None };
    let channel = model.world().published.iter().find(|c| c.key == key)?;
    let snapshot = &channel.snapshot;
    let index =
        (0..snapshot.devices.len()).find(|&i| DeviceKey::of(key, i, &snapshot.devices[i].device) == id.device)?;
    let segments = &snapshot.devices[index].segments;
    let figures = channel.figures.get(index).and_then(Option::as_ref);
    if segments.is_empty() && snapshot.life != Life::Alive && figures.is_some_and(|f| f.segments > 0) {
        // The blocks of a black box are read once it is selected, and come with the next sample.
        return None;
    }
    let blocks = segments.iter().map(|s| s.blocks.len()).sum();
    let (segments, left_out) = mapped(segments);
    Some(BlockMap {
        process: id,
        bytes: segments
            .iter()
            .fold(0, |sum: u64, s| sum.saturating_add(s.segment.size)),
        blocks,
        segments,
        left_out,
        strings: snapshot.strings.clone(),
        untracked: (snapshot.untracked_blocks, snapshot.untracked_bytes),
        read_at: channel.read_at,
        until: match snapshot.life {
            Life::Alive => Some(channel.read_at),
            _ => channel.last_sign,
        },
    })
}

/// Moves the cursor as drawn on the screen. It always ends on a block, if there is one.
pub(super) fn step(model: &mut Model, step: Move) {
    let Some(map) = &model.map else { return };
    let Some((segment, block)) = model.cursor_block() else {
        return;
    };
    let here = model.ui.blocks.cursor.map_or(block.addr, |c| c.max(block.addr));
    let MapGeometry { layout, lines, .. } = model.ui.hits.map;
    let page = u64::from(lines.max(2) - 1);
    let target = match step {
        Move::Up => up_or_down(map, layout, (segment, here), |line, _| line.saturating_sub(1)),
        Move::Down => up_or_down(map, layout, (segment, here), |line, last| (line + 1).min(last)),
        Move::PageUp => up_or_down(map, layout, (segment, here), |line, _| line.saturating_sub(page)),
        Move::PageDown => up_or_down(map, layout, (segment, here), |line, last| (line + page).min(last)),
        Move::Left => sideways(map, segment, block, here, layout.bytes_per_cell, false),
        Move::Right => sideways(map, segment, block, here, layout.bytes_per_cell, true),
        Move::First => map.first().map(|(_, first)| first.addr),
        Move::Last => map
            .last()
            .map(|(_, last)| last.addr.saturating_add(last.size.saturating_sub(1))),
    };
    if let Some(addr) = target {
        model.ui.blocks.cursor = Some(addr);
    }
}

/// Returns the address in the same column of another line, or in that line's nearest column. `to` returns the line, given the
/// cursor's and the last. `None` if the cursor is on that line already.
fn up_or_down(
    map: &BlockMap,
    layout: MapLayout,
    (segment, here): (usize, u64),
    to: impl Fn(u64, u64) -> u64,
) -> Option<u64> {
    let last = layout.lines(map).checked_sub(1)?;
    let (line, column) = layout.place(map, segment, here);
    let target = Some(to(line, last)).filter(|&target| target != line)?;
    let addr = layout.address(map, target, column)?;
    // The cursor keeps its column, so it may be inside a block and not on its first byte.
    map.nearest(addr).map(|(_, block)| addr.max(block.addr))
}

/// Returns the first byte of the next or previous block. Where blocks are smaller than cells, it moves by a cell at least.
fn sideways(map: &BlockMap, segment: usize, block: &Block, here: u64, cell: u64, right: bool) -> Option<u64> {
    let cell = cell.max(1);
    let position = position_of(map, segment, here);
    let last = map.bytes.saturating_sub(1);
    let start = position_of(map, segment, block.addr);
    let end = start.saturating_add(block.size);
    let target = match right {
        true if end <= last => end.max(position.saturating_add(cell)),
        true => start,
        false => start.saturating_sub(1).min(position.saturating_sub(cell)),
    };
    let addr = address_of(map, target.min(last))?;
    map.nearest(addr).map(|(_, block)| block.addr)
}

/// Moves the cursor to an address that was clicked, if there is a block.
pub(super) fn point_at(model: &mut Model, addr: u64) {
    if model.map.as_ref().is_some_and(|map| map.at(addr).is_some()) {
        model.ui.blocks.cursor = Some(addr);
    }
}

/// Returns the position of an address when all segments are laid end to end.
fn position_of(map: &BlockMap, segment: usize, addr: u64) -> u64 {
    let before = map.segments[..segment]
        .iter()
        .fold(0u64, |sum, s| sum.saturating_add(s.segment.size));
    before.saturating_add(addr.saturating_sub(map.segments[segment].segment.addr))
}

/// Returns the address at such a position.
fn address_of(map: &BlockMap, position: u64) -> Option<u64> {
    let mut rest = position;
    for segment in &map.segments {
        if rest < segment.segment.size {
            return Some(segment.segment.addr.saturating_add(rest));
        }
        rest -= segment.segment.size;
    }
    None
}
