//! Memory on its way back to the driver, in three steps, of which the long one needs no lock.
//!
//! What is to go is first [set apart](crate::heap::Heap::set_apart): it is in no index, so nobody gets it, and it is counted as reserved, which it
//! is. Then the driver [takes it](give_back), or does not. At last the heap [forgets](crate::heap::Heap::account_for) what the driver took, and what
//! it did not take is free again. Only who has the turn sets anything apart.

use std::collections::{BTreeSet, HashSet};

use crate::device::Driver;
use crate::error::DeviceError;
use crate::heap::segment::Chunk;
use crate::heap::stitch::view::{Part, Stale};

/// Something that goes.
#[derive(Debug)]
pub(in crate::heap) enum Going {
    /// A view, or what is left of one.
    View { view: Option<u32>, left: Stale },
    /// A part of a view.
    Part { view: u32, part: Part, left: Stale },
    /// What could not be unmapped when its memory moved elsewhere, or when mapping more failed.
    Stale { slot: u32, addr: u64, bytes: u64 },
    /// A plain segment.
    Plain { slot: u32, addr: u64 },
    /// Chunks side by side in a block, which is set apart with them.
    Chunks {
        slot: u32,
        block: u32,
        run: Vec<(u64, Chunk)>,
    },
    /// The address space of a virtual segment, once it has no memory.
    Range { slot: u32, addr: u64, bytes: u64 },
    /// A chunk of no segment.
    Orphan(Chunk),
}

/// What became of it.
#[derive(Debug, Default)]
pub(in crate::heap) struct Went {
    pub(in crate::heap) taken: Vec<Going>,
    pub(in crate::heap) refused: Vec<Going>,
    /// Chunks that were unmapped and not taken.
    pub(in crate::heap) orphans: Vec<Chunk>,
    /// The first failure that keeps memory from the device.
    pub(in crate::heap) error: Option<DeviceError>,
}

impl Going {
    /// What is left of a view.
    pub(in crate::heap) fn left(left: Stale) -> Going {
        Going::View { view: None, left }
    }

    /// What it is known by while it is tried.
    pub(in crate::heap) fn key(&self) -> (u8, u64) {
        match self {
            Going::View { left, .. } if left.bytes > 0 => (0, left.range),
            Going::Stale { addr, .. } => (1, *addr),
            Going::Plain { addr, .. } => (2, *addr),
            Going::Chunks { run, .. } => (3, span(run).0),
            Going::Range { addr, .. } => (4, *addr),
            Going::Orphan(chunk) => (5, chunk.handle.0),
            // Its view may begin where it does.
            Going::View { left, .. } | Going::Part { left, .. } => (6, left.range),
        }
    }

    /// The virtual segment it is of.
    pub(in crate::heap) fn slot(&self) -> Option<u32> {
        match self {
            Going::Stale { slot, .. } | Going::Chunks { slot, .. } | Going::Range { slot, .. } => Some(*slot),
            Going::View { .. } | Going::Part { .. } | Going::Plain { .. } | Going::Orphan(_) => None,
        }
    }

    /// Whether the driver takes it.
    fn go(&mut self, driver: &dyn Driver, orphans: &mut Vec<Chunk>) -> Result<bool, DeviceError> {
        match self {
            Going::View { left, .. } | Going::Part { left, .. } => left.go(driver),
            Going::Stale { addr, bytes, .. } => driver.unmap(*addr, *bytes).map(|()| true),
            Going::Plain { addr, .. } => driver.free(*addr).map(|()| true),
            Going::Chunks { run, .. } => {
                let (from, to) = span(run);
                driver.unmap(from, to - from)?;
                let kept = |chunk: &Chunk| driver.release(chunk.handle).is_err();
                orphans.extend(run.iter().map(|(_, chunk)| *chunk).filter(kept));
                Ok(true)
            }
            Going::Range { addr, bytes, .. } => Ok(driver.unreserve(*addr, *bytes).is_ok()),
            Going::Orphan(chunk) => driver.release(chunk.handle).map(|()| true),
        }
    }
}

/// What stays of all that was to go, as far as it keeps others: where a driver takes nothing there may be very many of both.
#[derive(Debug, Default)]
pub(in crate::heap) struct Staying {
    /// Whether a view is mapped, or a part of one, and whether a chunk may be where it moved from.
    views: bool,
    stale: bool,
    /// Where the parts of views begin that are mapped.
    parts: BTreeSet<u64>,
    /// The virtual segments that have something mapped.
    segments: HashSet<u32>,
}

impl Staying {
    pub(in crate::heap) fn add(&mut self, stays: &Going) {
        match stays {
            Going::View { left, .. } | Going::Part { left, .. } if left.mapped > 0 => {
                self.views = true;
                if left.bytes == 0 {
                    self.parts.insert(left.range);
                }
            }
            Going::Stale { slot, .. } => {
                self.stale = true;
                self.segments.insert(*slot);
            }
            Going::Chunks { slot, .. } => {
                self.segments.insert(*slot);
            }
            _ => {}
        }
    }

    /// Whether something cannot go where this is still there: memory that is mapped anywhere is not free for the device, and a range goes when
    /// nothing is mapped in it.
    pub(in crate::heap) fn keeps(&self, going: &Going) -> bool {
        match going {
            // What was moved may still be mapped where it was, and what could not be unmapped when more could not be mapped.
            Going::Chunks { .. } => self.views || self.stale,
            Going::Orphan(_) => self.stale,
            Going::View { left, .. } => self.parts.range(left.range..left.range + left.bytes).next().is_some(),
            Going::Range { slot, .. } => self.segments.contains(slot),
            Going::Part { .. } | Going::Stale { .. } | Going::Plain { .. } => false,
        }
    }
}

/// Where chunks that lie side by side begin and end.
pub(in crate::heap) fn span(run: &[(u64, Chunk)]) -> (u64, u64) {
    let from = run.first().map_or(0, |(addr, _)| *addr);
    let to = run.last().map_or(0, |(addr, chunk)| addr + chunk.size);
    (from, to)
}

/// Gives memory back to the driver; what fails does not keep the rest. To be called by who has the turn.
pub(in crate::heap) fn give_back(mut going: Vec<Going>, driver: &dyn Driver) -> Went {
    let mut went = Went::default();
    // What others need gone comes first: also what is left of a part before what is left of its view.
    going.sort_by_key(|going| match going {
        Going::View { left, .. } => left.bytes > 0,
        Going::Stale { .. } | Going::Part { .. } => false,
        _ => true,
    });
    let mut staying = Staying::default();
    for mut going in going {
        let taken = match staying.keeps(&going) {
            true => Ok(false),
            false => going.go(driver, &mut went.orphans),
        };
        if let Ok(true) = taken {
            went.taken.push(going);
            continue;
        }
        if let Err(error) = taken {
            went.error.get_or_insert(error);
        }
        staying.add(&going);
        went.refused.push(going);
    }
    // They are in no segment any more: once more.
    went.orphans.retain(|chunk| match driver.release(chunk.handle) {
        Ok(()) => false,
        Err(error) => {
            went.error.get_or_insert(error);
            true
        }
    });
    went
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::device::{Call, Handle, Sim, SimConfig};

    impl Going {
        /// Whether it cannot go where that stays.
        fn needs(&self, other: &Going) -> bool {
            match (self, other) {
                (Going::Chunks { .. }, Going::View { left, .. } | Going::Part { left, .. }) => left.mapped > 0,
                (Going::View { left, .. }, Going::View { left: part, .. } | Going::Part { left: part, .. }) => {
                    let range = left.range..left.range + left.bytes;
                    part.bytes == 0 && part.mapped > 0 && range.contains(&part.range)
                }
                (Going::Chunks { .. } | Going::Orphan(_), Going::Stale { .. }) => true,
                (Going::Range { slot, .. }, Going::Stale { slot: its, .. } | Going::Chunks { slot: its, .. }) => {
                    slot == its
                }
                _ => false,
            }
        }
    }

    #[test]
    fn what_stays_keeps_what_any_of_it_does() {
        let (handle, size) = (Handle(1), 8);
        let left = |range, bytes, mapped| Stale { range, bytes, mapped };
        let lefts =
            [(0, 16), (8, 8), (8, 0), (16, 0), (24, 8)].map(|(range, bytes)| [(range, bytes, 0), (range, bytes, 8)]);
        let lefts = lefts
            .into_iter()
            .flatten()
            .map(|(range, bytes, mapped)| left(range, bytes, mapped));
        let part = |left: Stale| Going::Part {
            view: 0,
            part: Part {
                offset: 0,
                bytes: 8,
                first: 0,
                count: 1,
            },
            left,
        };
        let mut all: Vec<Going> = lefts.clone().map(Going::left).collect();
        all.extend(lefts.filter(|left| left.bytes == 0).map(part));
        for slot in 0..2 {
            let (addr, bytes, block) = (u64::from(slot), 8, 0);
            let run = vec![(addr, Chunk { handle, size })];
            all.push(Going::Stale { slot, addr, bytes });
            all.push(Going::Plain { slot, addr });
            all.push(Going::Chunks { slot, block, run });
            all.push(Going::Range { slot, addr, bytes });
        }
        all.push(Going::Orphan(Chunk { handle, size }));
        let pairs = || {
            all.iter()
                .flat_map(|first| all.iter().map(move |second| (first, second)))
        };
        for (going, (first, second)) in all.iter().flat_map(|going| pairs().map(move |pair| (going, pair))) {
            let mut staying = Staying::default();
            [first, second].into_iter().for_each(|stays| staying.add(stays));
            let needs = going.needs(first) || going.needs(second);
            assert_eq!(staying.keeps(going), needs, "{going:?} beside {first:?} and {second:?}");
        }
    }

    /// The chunk was moved, and could not be unmapped where it was: not then, and not now.
    #[test]
    fn a_chunk_that_may_be_mapped_elsewhere_does_not_go() {
        let sim = Sim::new(SimConfig::default());
        let driver = sim.device().driver;
        let size = 2 << 20;
        let addr = driver.reserve(2 * size).unwrap();
        let handle = driver.create(size, false).unwrap();
        driver.map(addr, size, handle).unwrap();
        driver.map(addr + size, size, handle).unwrap();
        let going = || {
            let run = vec![(addr, Chunk { handle, size })];
            let (slot, block) = (0, 0);
            let stale = Going::Stale {
                slot,
                addr: addr + size,
                bytes: size,
            };
            vec![Going::Chunks { slot, block, run }, stale]
        };
        sim.fail_after(0, false);
        let went = give_back(going(), &*driver);
        assert_eq!((went.taken.len(), went.refused.len()), (0, 2));
        assert_eq!(
            went.error.unwrap().call,
            "cuMemUnmap",
            "it keeps memory from the device"
        );
        assert_eq!(sim.live().bytes, size);
        let went = give_back(going(), &*driver);
        assert_eq!((went.taken.len(), went.refused.len()), (2, 0));
        assert_eq!(sim.live().bytes, 0);
    }

    #[test]
    fn what_fails_does_not_keep_the_rest() {
        let sim = Sim::new(SimConfig::default());
        let driver = sim.device().driver;
        let plain = |slot| Going::Plain {
            slot,
            addr: driver.alloc(2 << 20).unwrap(),
        };
        let going = vec![plain(0), plain(1), plain(2)];
        sim.fail_next(Call::Free, 1);
        let went = give_back(going, &*driver);
        assert_eq!((went.taken.len(), went.refused.len()), (2, 1));
        assert_eq!(sim.live().bytes, 2 << 20);
    }
}
