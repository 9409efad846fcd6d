//! The block map of the selected process, and the cursor on it.

use gpumem_channel::Life;

use crate::model::{BlockMap, DeviceKey, Model, Owner};

/// Builds the map of the selected process from what is shown (frozen or live).
pub(super) fn refresh(model: &mut Model) {
    if !current(model) {
        model.map = build(model);
    }
}

/// Whether the map is the newest already: it is of thousands of segments, and NVML's samples do not change it.
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
    let segments = snapshot.devices[index].segments.clone();
    let figures = channel.figures.get(index).and_then(Option::as_ref);
    if segments.is_empty() && snapshot.life != Life::Alive && figures.is_some_and(|f| f.segments > 0) {
        // A black box whose blocks are read only once it is selected: they come with the next sample.
        return None;
    }
    Some(BlockMap {
        process: id,
        bytes: segments
            .iter()
            .fold(0, |sum: u64, s| sum.saturating_add(s.segment.size)),
        blocks: segments.iter().map(|s| s.blocks.len()).sum(),
        segments,
        strings: snapshot.strings.clone(),
        untracked: (snapshot.untracked_blocks, snapshot.untracked_bytes),
        read_at: channel.read_at,
    })
}

/// Where a key moves the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// One cell, or one block where blocks are larger than cells.
    Left,
    Right,
    /// One line of the map.
    Up,
    Down,
    /// Lines.
    PageUp,
    PageDown,
    First,
    Last,
}

/// Moves the cursor by what is seen on screen. Always ends on a block, if there is one.
pub(super) fn step(model: &mut Model, step: Step) {
    let Some(map) = &model.map else { return };
    let geometry = model.ui.hits.map;
    let line = geometry
        .bytes_per_cell
        .saturating_mul(u64::from(geometry.columns))
        .max(1);
    let cell = geometry.bytes_per_cell.max(1);
    let page = u64::from(geometry.lines.max(2) - 1);
    let Some((segment, block)) = model.cursor_block() else {
        return;
    };
    let position = position_of(
        map,
        segment,
        model.ui.blocks.cursor.map_or(block.addr, |c| c.max(block.addr)),
    );
    let last = map.bytes.saturating_sub(1);
    let start = position_of(map, segment, block.addr);
    let end = start.saturating_add(block.size);
    let target = match step {
        Step::Right if end <= last => end.max(position.saturating_add(cell)),
        Step::Right => start,
        Step::Left => start.saturating_sub(1).min(position.saturating_sub(cell)),
        Step::Down => position.saturating_add(line),
        Step::Up => position.saturating_sub(line),
        Step::PageDown => position.saturating_add(line.saturating_mul(page)),
        Step::PageUp => position.saturating_sub(line.saturating_mul(page)),
        Step::First => 0,
        Step::Last => last,
    };
    set(model, target.min(last), matches!(step, Step::Left | Step::Right));
}

/// Puts the cursor on the block at an address (a click); on no block it stays.
pub(super) fn point_at(model: &mut Model, addr: u64) {
    if model.map.as_ref().is_some_and(|map| map.at(addr).is_some()) {
        model.ui.blocks.cursor = Some(addr);
    }
}

/// Segments lie anywhere in the address space; the map shows them end to end. This is the place on that line.
fn position_of(map: &BlockMap, segment: usize, addr: u64) -> u64 {
    let before = map.segments[..segment]
        .iter()
        .fold(0u64, |sum, s| sum.saturating_add(s.segment.size));
    before.saturating_add(addr.saturating_sub(map.segments[segment].segment.addr))
}

fn set(model: &mut Model, position: u64, snap: bool) {
    let Some(map) = &model.map else { return };
    let mut rest = position;
    for segment in &map.segments {
        if rest < segment.segment.size {
            let addr = segment.segment.addr.saturating_add(rest);
            // Sideways the cursor goes from block to block, so it stands on a block's first byte; up and down it
            // keeps its column.
            let place = map
                .nearest(addr)
                .map(|(_, block)| if snap { block.addr } else { addr.max(block.addr) });
            model.ui.blocks.cursor = place;
            return;
        }
        rest -= segment.segment.size;
    }
}
