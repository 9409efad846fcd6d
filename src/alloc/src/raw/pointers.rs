//! Blocks by address.

use crate::error::Error;
use crate::lane::Held;
use crate::lock::Lock;

/// Parts that the pointers are kept in, each under a lock of its own: threads seldom meet.
const PARTS: usize = 16;

/// Blocks that were handed out as raw pointers, by address.
#[derive(Debug, Default)]
pub(crate) struct Pointers {
    parts: [Lock<Table>; PARTS],
}

impl Pointers {
    #[inline(always)]
    fn part(&self, addr: u64) -> &Lock<Table> {
        // The part's own table uses other bits.
        &self.parts[(spread(addr) >> (u64::BITS - PARTS.ilog2())) as usize]
    }

    #[inline(always)]
    pub(super) fn put(&self, addr: u64, held: Held) {
        self.part(addr).lock().insert(addr, held);
    }

    /// Forgets a pointer; its block is still allocated.
    #[inline(always)]
    pub(super) fn take(&self, addr: u64) -> Result<Held, Error> {
        let held = self.part(addr).lock().remove(addr);
        held.ok_or_else(|| unknown(addr))
    }

    pub(super) fn find(&self, addr: u64) -> Result<Held, Error> {
        let held = self.part(addr).lock().find(addr);
        held.ok_or_else(|| unknown(addr))
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        for part in &self.parts {
            *part.lock() = Table::default();
        }
    }
}

#[cold]
fn unknown(addr: u64) -> Error {
    Error::UnknownPointer { addr }
}

/// Addresses are multiples of 512, mostly, and well spread above that; one multiplication is hash enough.
#[inline(always)]
fn spread(addr: u64) -> u64 {
    (addr >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// An address and its block; none at address 0.
#[derive(Clone, Copy, Debug)]
struct Slot {
    addr: u64,
    held: Held,
}

const EMPTY: Slot = Slot {
    addr: 0,
    held: Held::NOTHING,
};

/// A hash table that is never more than half full: what is not in the slot where it belongs is in one of those right behind.
#[derive(Debug, Default)]
struct Table {
    /// As many as a power of two, or none.
    slots: Box<[Slot]>,
    len: usize,
}

impl Table {
    /// Where an address belongs.
    #[inline(always)]
    fn place(&self, addr: u64) -> usize {
        (spread(addr) >> 32) as usize & self.mask()
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    /// The slot of an address, or the empty one where a search for it ends.
    #[inline(always)]
    fn slot_of(&self, addr: u64) -> usize {
        let mut at = self.place(addr);
        while let Some(slot) = self.slots.get(at)
            && slot.addr != addr
            && slot.addr != 0
        {
            at = (at + 1) & self.mask();
        }
        at
    }

    #[inline(always)]
    fn insert(&mut self, addr: u64, held: Held) {
        if 2 * self.len >= self.slots.len() {
            self.grow();
        }
        let at = self.slot_of(addr);
        if let Some(slot) = self.slots.get_mut(at) {
            self.len += usize::from(slot.addr == 0);
            *slot = Slot { addr, held };
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let len = (2 * self.slots.len()).max(16);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; len].into());
        for slot in old.into_iter().filter(|slot| slot.addr != 0) {
            let at = self.slot_of(slot.addr);
            self.slots[at] = slot;
        }
    }

    #[inline(always)]
    fn find(&self, addr: u64) -> Option<Held> {
        let slot = self.slots.get(self.slot_of(addr))?;
        (slot.addr != 0).then_some(slot.held)
    }

    #[inline(always)]
    fn remove(&mut self, addr: u64) -> Option<Held> {
        let mut hole = self.slot_of(addr);
        let slot = self.slots.get(hole).filter(|slot| slot.addr != 0)?;
        let held = slot.held;
        self.len -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask();
            let slot = self.slots[at];
            if slot.addr == 0 {
                self.slots[hole] = EMPTY;
                return Some(held);
            }
            // A search for it must not end at the hole: it moves there, unless it belongs behind it.
            let from = self.place(slot.addr);
            if at.wrapping_sub(from) & self.mask() >= at.wrapping_sub(hole) & self.mask() {
                self.slots[hole] = slot;
                hole = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Few addresses, so that they come again and share places, in a table that grows meanwhile.
    #[test]
    fn a_table_knows_what_was_put_and_not_taken() {
        let (mut table, mut model) = (Table::default(), HashMap::new());
        let mut random = 88_172_645_463_325_252_u64;
        let mut most = 0;
        for n in 0..200_000_u32 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let addr = (1 << 40) + (random % 900) * 512;
            let held = Held::by_heap(n);
            match random >> 62 {
                0 | 1 => {
                    table.insert(addr, held);
                    model.insert(addr, held);
                }
                2 => assert_eq!(table.remove(addr), model.remove(&addr)),
                _ => assert_eq!(table.find(addr), model.get(&addr).copied()),
            }
            assert_eq!(table.len, model.len());
            assert!(2 * table.len <= table.slots.len() + 2);
            most = most.max(table.len);
        }
        assert!(most > 400, "{most}");
        for (addr, held) in model {
            assert_eq!(table.remove(addr), Some(held));
        }
        assert!(table.slots.iter().all(|slot| slot.addr == 0));
    }
}
