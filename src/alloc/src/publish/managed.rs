//! Managed memory in the channel: which slot each range and block has.

use std::collections::BTreeMap;

use gpumem_channel::{MANAGED_BLOCK, ManagedBlock, ManagedCounters, ManagedFigures, ManagedRange, Publisher};

use super::Outlet;

/// The slots in use.
#[derive(Debug, Default)]
pub(super) struct ManagedSlots {
    /// Whether each slot of the table of ranges is taken.
    ranges: Vec<bool>,
    /// The slot of each block, by its address.
    blocks: BTreeMap<u64, u32>,
    /// Slots of blocks that are free again.
    vacant: Vec<u32>,
    figures: ManagedFigures,
}

/// The slot of a published range, if there was one for it.
#[derive(Debug, Default)]
pub(crate) struct ManagedSlot(Option<u32>);

impl Outlet {
    /// Publishes a new managed range.
    pub(crate) fn managed_begin(&mut self, range: &ManagedRange) -> ManagedSlot {
        let (slots, publisher) = self.managed();
        let Some(publisher) = publisher else {
            return ManagedSlot(None);
        };
        let free = slots.ranges.iter().position(|taken| !taken);
        let slot = free.unwrap_or(slots.ranges.len());
        if !publisher.managed_range(slot as u32, Some(range)) {
            slots.figures.ranges_left_out += 1;
            slots.figures.bytes_left_out += range.size;
            publisher.managed_figures(&slots.figures);
            return ManagedSlot(None);
        }
        match slots.ranges.get_mut(slot) {
            Some(taken) => *taken = true,
            None => slots.ranges.push(true),
        }
        ManagedSlot(Some(slot as u32))
    }

    /// Publishes a managed range anew.
    pub(crate) fn managed_change(&mut self, slot: &ManagedSlot, range: &ManagedRange) {
        if let (Some(slot), Some(publisher)) = (slot.0, self.managed().1) {
            publisher.managed_range(slot, Some(range));
        }
    }

    /// Publishes that a managed range is gone, and with it its blocks.
    pub(crate) fn managed_end(&mut self, slot: &ManagedSlot, range: &ManagedRange) {
        let (slots, publisher) = self.managed();
        let Some(publisher) = publisher else { return };
        match slot.0 {
            Some(slot) => {
                publisher.managed_range(slot, None);
                if let Some(taken) = slots.ranges.get_mut(slot as usize) {
                    *taken = false;
                }
            }
            // A range that began without a channel never was counted.
            None if slots.figures.ranges_left_out > 0 => {
                slots.figures.ranges_left_out -= 1;
                slots.figures.bytes_left_out = slots.figures.bytes_left_out.saturating_sub(range.size);
                publisher.managed_figures(&slots.figures);
            }
            None => {}
        }
        let end = range.addr.saturating_add(range.size);
        while let Some((&addr, &slot)) = slots.blocks.range(range.addr..end).next() {
            publisher.managed_block(slot, None);
            slots.blocks.remove(&addr);
            slots.vacant.push(slot);
        }
    }

    /// Publishes where pages are, and what happened so far. A block that has no slot is left out.
    pub(crate) fn managed_pages(&mut self, blocks: &[ManagedBlock], counters: &ManagedCounters) {
        let (slots, publisher) = self.managed();
        let Some(publisher) = publisher else { return };
        for block in blocks {
            debug_assert!(block.addr.is_multiple_of(MANAGED_BLOCK));
            let known = slots.blocks.get(&block.addr).copied();
            let slot = known
                .or_else(|| slots.vacant.last().copied())
                .unwrap_or(slots.blocks.len() as u32);
            if publisher.managed_block(slot, Some(block)) && known.is_none() {
                slots.vacant.pop();
                slots.blocks.insert(block.addr, slot);
            }
        }
        slots.figures.counters = Some(*counters);
        publisher.managed_figures(&slots.figures);
    }

    fn managed(&mut self) -> (&mut ManagedSlots, Option<&mut Publisher>) {
        (&mut self.managed, self.channel.as_deref_mut())
    }
}
