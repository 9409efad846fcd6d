//! Free chunks on their way to another address.

use gpumem_channel::{EventKind, StringId};

use crate::device::Driver;
use crate::error::DeviceError;
use crate::heap::Heap;
use crate::heap::grow::place::Place;
use crate::heap::release::going::{Going, span};
use crate::heap::segment::Chunk;

/// What moves where. All of it is set apart meanwhile.
#[derive(Debug)]
pub(in crate::heap) struct Shift {
    place: Place,
    moving: Vec<Going>,
    /// The free block that they are to lie beside.
    beside: Option<u32>,
    /// Driver calls made.
    pub(in crate::heap) calls: u64,
    /// Where something could not be unmapped, and why.
    stale: Vec<(u32, u64, u64)>,
    pub(in crate::heap) refused: Option<DeviceError>,
}

impl Shift {
    pub(in crate::heap) fn new(place: Place, moving: Vec<Going>, beside: Option<u32>) -> Shift {
        Shift {
            place,
            moving,
            beside,
            calls: 0,
            stale: Vec::new(),
            refused: None,
        }
    }

    /// What moves, with the segment and the block that each run is in.
    fn runs(&self) -> impl Iterator<Item = (u32, u32, &[(u64, Chunk)])> {
        self.moving.iter().filter_map(|going| match going {
            Going::Chunks { slot, block, run } => Some((*slot, *block, run.as_slice())),
            _ => None,
        })
    }

    pub(in crate::heap) fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.runs().flat_map(|(.., run)| run).map(|(_, chunk)| *chunk)
    }

    pub(in crate::heap) fn bytes(&self) -> u64 {
        self.chunks().map(|chunk| chunk.size).sum()
    }

    /// The chunks at their new addresses.
    fn moved(&self) -> Vec<(u64, Chunk)> {
        let mut at = self.place.addr;
        let mut moved = Vec::new();
        for chunk in self.chunks() {
            moved.push((at, chunk));
            at += chunk.size;
        }
        moved
    }

    /// Maps all of it at its new place, and then unmaps it from the old one. When it fails it is where it was.
    pub(in crate::heap) fn run(&mut self, driver: &dyn Driver) -> Result<(), DeviceError> {
        let moved = self.moved();
        let mut mapped = 0;
        let mapping = moved.iter().try_for_each(|(at, chunk)| {
            self.calls += 1;
            driver.map(*at, chunk.size, chunk.handle)?;
            mapped += 1;
            Ok(())
        });
        self.calls += 1;
        let outcome = mapping.and_then(|()| driver.set_access(self.place.addr, self.bytes()));
        let old: Vec<(u32, u64, u64)> = match &outcome {
            Ok(()) => {
                let runs = self.runs().map(|(slot, _, run)| (slot, span(run)));
                runs.map(|(slot, (from, to))| (slot, from, to - from)).collect()
            }
            Err(_) => {
                let new = moved.iter().take(mapped);
                new.map(|(at, chunk)| (self.place.segment, *at, chunk.size)).collect()
            }
        };
        self.calls += old.len() as u64;
        for (slot, addr, bytes) in old {
            if let Err(error) = driver.unmap(addr, bytes) {
                self.stale.push((slot, addr, bytes));
                self.refused.get_or_insert(error);
            }
        }
        outcome
    }
}

impl Heap {
    /// What moved is where it was to go, or else where it was; free again in either case.
    pub(in crate::heap) fn end_shift(&mut self, shift: Shift, moved: bool) {
        for (slot, addr, bytes) in &shift.stale {
            if let Some(segment) = self.segments.get_mut(*slot) {
                segment.stale.push((*addr, *bytes));
            }
        }
        if let Some(b) = shift.beside {
            self.put_back(b);
        }
        let (place, bytes) = (shift.place, shift.bytes());
        if !moved {
            for (_, block, _) in shift.runs() {
                self.put_back(block);
            }
            return;
        }
        self.tell_segment(EventKind::Remap, place.segment, place.addr, bytes, StringId(0));
        for (slot, block, run) in shift.runs() {
            let (from, to) = span(run);
            self.record_moved(slot, from, to - from);
            self.hollow_out(slot, block, run);
            self.show_segment(slot);
        }
        for (slot, ..) in shift.runs().filter(|(slot, ..)| *slot != place.segment) {
            self.trim(slot);
        }
        self.attach(&Heap::nobodys(bytes, bytes), place, bytes, shift.moved());
    }
}
