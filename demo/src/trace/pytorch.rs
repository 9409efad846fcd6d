//! PyTorch's snapshots with a history: the events of one device.
//!
//! A block ends when the program frees it (`free_requested`), as a caching allocator sees it; when the GPU has done with it
//! (`free_completed`) is not replayed. The history is a ring, and may have been switched on late. What was live when it began is
//! known from its frees, and from the blocks that are held at the end without having been allocated: such blocks come first.

use std::cmp::Reverse;
use std::collections::HashSet;

use gpumem_snapshot::{Action, BlockState, Snapshot, TraceEntry};

use super::builder::{Builder, Wrong};
use super::error::Problem;
use super::{Format, Trace};

/// The trace of the device with the longest history.
pub(super) fn trace(snapshot: &Snapshot) -> Result<Trace, Problem> {
    let histories = (0..).zip(&snapshot.device_traces);
    let longest = histories.max_by_key(|(device, entries)| (entries.len(), Reverse(*device)));
    let Some((device, entries)) = longest.filter(|(_, entries)| !entries.is_empty()) else {
        return Err(Problem::NoHistory);
    };
    let mut builder = Builder::default();
    let wrong = |event: usize| {
        move |wrong: Wrong| Problem::Event {
            event: event as u64,
            what: wrong.what("the block"),
        }
    };
    for (addr, bytes, stream) in live_before(snapshot, device, entries) {
        builder.alloc(addr, bytes, stream as u64).map_err(wrong(0))?;
        builder.assumed();
    }
    for (event, entry) in (1..).zip(entries) {
        let live = builder.is_live(entry.addr);
        match entry.action {
            Action::Alloc => {
                if live {
                    // The history was switched off when it was freed.
                    builder.free(entry.addr).map_err(wrong(event))?;
                    builder.assumed();
                }
                let allocated = builder.alloc(entry.addr, entry.size, entry.stream as u64);
                allocated.map_err(wrong(event))?;
            }
            Action::FreeRequested if live => builder.free(entry.addr).map_err(wrong(event))?,
            // It was off when this was allocated.
            Action::FreeRequested => builder.assumed(),
            Action::Oom => builder.recorded_failure(),
            _ => {}
        }
    }
    Ok(builder.finish(Format::PyTorch))
}

/// Address, bytes and stream of what was live when the history began, in the order of addresses.
fn live_before(snapshot: &Snapshot, device: i32, entries: &[TraceEntry]) -> Vec<(u64, u64, i64)> {
    let mut known = HashSet::new();
    let mut found = Vec::new();
    for entry in entries {
        let new = match entry.action {
            Action::Alloc | Action::FreeRequested => known.insert(entry.addr),
            _ => false,
        };
        if new && entry.action == Action::FreeRequested {
            found.push((entry.addr, entry.size, entry.stream));
        }
    }
    for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
        let held = segment
            .blocks
            .iter()
            .filter(|block| block.state == BlockState::ActiveAllocated);
        let held = held.filter(|block| known.insert(block.address));
        found.extend(held.map(|block| (block.address, block.requested_size, segment.stream)));
    }
    found.sort_unstable();
    found
}
