//! The driver calls of requests, and what they give.

use crate::device::{Driver, Handle, MemoryInfo};
use crate::error::{DeviceError, Error};
use crate::heap::ask::{poll, probe};
use crate::heap::release::end::give_back_remains;
use crate::heap::release::going::{Going, Went, give_back};
use crate::heap::segment::Chunk;
use crate::heap::stitch::map::{map_at, places};
use crate::heap::stitch::view::Stale;
use crate::heap::turn::access::Access;

/// What a request may want to know of the driver.
#[derive(Debug)]
pub(in crate::heap) enum Ask {
    /// Which pending blocks are free by now.
    Poll,
    /// How far streams are, by their lines.
    Probe(Vec<u16>),
}

impl Ask {
    pub(in crate::heap) fn ask(&self, on: &mut impl Access) -> Result<(), Error> {
        match self {
            Ask::Poll => poll(on),
            Ask::Probe(lines) => probe(on, |_| lines.clone()),
        }
    }
}

/// A driver call, or several that make one.
#[derive(Debug)]
pub(in crate::heap) enum Call {
    /// Memory for a plain segment.
    Alloc { bytes: u64 },
    /// Address space.
    Reserve { bytes: u64 },
    /// New chunks of these sizes side by side, some of which are there already.
    Map {
        segment: u32,
        addr: u64,
        sizes: Vec<u64>,
        spare: Vec<Chunk>,
        rdma: bool,
    },
    /// Chunks mapped once more, side by side, in a new view that has so many bytes of address space.
    View { chunks: Vec<(u64, Chunk)>, room: u64 },
    /// The same behind what a view has.
    Extend {
        view: u32,
        addr: u64,
        chunks: Vec<(u64, Chunk)>,
    },
    /// A wait for all that was freed until the heap's free counter was this.
    Synchronize { frees: u64 },
    /// Memory goes back.
    GiveBack(Vec<Going>),
    /// How much memory the device has.
    Memory,
    /// A question to the driver for which the turn is not needed.
    Ask(Ask),
    /// None: who asks for it waits for the turn.
    Nothing,
}

/// What a call gave, or what is left of one that failed.
#[derive(Debug)]
pub(in crate::heap) enum Gave {
    Addr(u64),
    /// Chunks with their addresses; those that came to be of no segment; ranges that something is mapped in which is nobody's.
    Chunks {
        mapped: Vec<(u64, Chunk)>,
        loose: Vec<Chunk>,
        stale: Vec<(u64, u64)>,
    },
    /// A range of so many bytes, and how many of them are mapped; none: it could not be reserved.
    Range(Option<Stale>),
    /// Bytes that are mapped.
    Mapped(u64),
    Frees(u64),
    Went(Went),
    Memory(MemoryInfo),
    Nothing,
}

impl Call {
    /// What it gives: all, or, if it fails, what of it could not be undone.
    pub(in crate::heap) fn run(&mut self, driver: &dyn Driver) -> (Gave, Result<(), DeviceError>) {
        match self {
            Call::Alloc { bytes } => addr(driver.alloc(*bytes)),
            Call::Reserve { bytes } => addr(driver.reserve(*bytes)),
            Call::Map {
                addr,
                sizes,
                spare,
                rdma,
                ..
            } => map(driver, *addr, sizes, (std::mem::take(spare), *rdma)),
            Call::View { chunks, room } => view(driver, chunks, *room),
            Call::Extend { addr, chunks, .. } => {
                let (mapped, result) = map_at(driver, *addr, chunks);
                let undone = result.is_err() && mapped > 0 && driver.unmap(*addr, mapped).is_ok();
                (Gave::Mapped(if undone { 0 } else { mapped }), result)
            }
            Call::Synchronize { frees } => {
                let waited = driver.synchronize();
                // The request that waits has found no memory.
                give_back_remains();
                (Gave::Frees(*frees), waited)
            }
            Call::GiveBack(going) => (Gave::Went(give_back(std::mem::take(going), driver)), Ok(())),
            Call::Memory => match driver.memory() {
                Ok(memory) => (Gave::Memory(memory), Ok(())),
                Err(error) => (Gave::Nothing, Err(error)),
            },
            // That is asked by way of the heap.
            Call::Ask(_) | Call::Nothing => (Gave::Nothing, Ok(())),
        }
    }

    /// Whether it is to be made by who has the turn.
    pub(in crate::heap) fn needs_turn(&self) -> bool {
        !matches!(self, Call::Memory | Call::Ask(_))
    }

    /// Whether a call does what another one would.
    pub(in crate::heap) fn is_like(&self, other: &Call) -> bool {
        match (self, other) {
            (Call::Alloc { bytes }, Call::Alloc { bytes: its })
            | (Call::Reserve { bytes }, Call::Reserve { bytes: its }) => bytes == its,
            (
                Call::Map {
                    segment, addr, sizes, ..
                },
                Call::Map {
                    segment: its_segment,
                    addr: its_addr,
                    sizes: its_sizes,
                    ..
                },
            ) => (segment, addr, sizes) == (its_segment, its_addr, its_sizes),
            (Call::View { chunks, .. }, Call::View { chunks: its, .. }) => places(chunks) == places(its),
            (
                Call::Extend { addr, chunks, .. },
                Call::Extend {
                    addr: its, chunks: it, ..
                },
            ) => addr == its && places(chunks) == places(it),
            (Call::Synchronize { .. }, Call::Synchronize { .. }) | (Call::Memory, Call::Memory) => true,
            _ => false,
        }
    }
}

fn addr(result: Result<u64, DeviceError>) -> (Gave, Result<(), DeviceError>) {
    let given = result.as_ref().map_or(0, |addr| *addr);
    (Gave::Addr(given), result.map(drop))
}

fn map(
    driver: &dyn Driver,
    from: u64,
    sizes: &[u64],
    (mut spare, rdma): (Vec<Chunk>, bool),
) -> (Gave, Result<(), DeviceError>) {
    let (mut mapped, mut loose, mut at) = (Vec::with_capacity(sizes.len()), Vec::new(), from);
    // Those may still be mapped where they could not be unmapped before.
    let known: Vec<Handle> = spare.iter().map(|chunk| chunk.handle).collect();
    let result = sizes.iter().try_for_each(|&size| {
        let chunk = match spare.iter().position(|chunk| chunk.size == size) {
            Some(known) => spare.swap_remove(known),
            None => Chunk {
                handle: driver.create(size, rdma)?,
                size,
            },
        };
        if let Err(error) = driver.map(at, size, chunk.handle) {
            loose.push(chunk);
            return Err(error);
        }
        mapped.push((at, chunk));
        at += size;
        Ok(())
    });
    let result = result.and_then(|()| driver.set_access(from, at - from));
    loose.extend(spare);
    let mut stale = Vec::new();
    if result.is_err() {
        let mut kept = Vec::new();
        for (at, chunk) in std::mem::take(&mut mapped) {
            match driver.unmap(at, chunk.size) {
                Ok(()) => loose.push(chunk),
                // To release it now would not free it, and nobody would count it any more.
                Err(_) => {
                    stale.push((at, chunk.size));
                    kept.push(chunk);
                }
            }
        }
        loose.retain(|chunk: &Chunk| known.contains(&chunk.handle) || driver.release(chunk.handle).is_err());
        loose.extend(kept);
    }
    (Gave::Chunks { mapped, loose, stale }, result)
}

fn view(driver: &dyn Driver, chunks: &[(u64, Chunk)], room: u64) -> (Gave, Result<(), DeviceError>) {
    match driver.reserve(room) {
        Ok(range) => {
            let (mapped, result) = map_at(driver, range, chunks);
            let bytes = room;
            let mut view = Stale { range, bytes, mapped };
            let undone = result.is_err() && view.go(driver) == Ok(true);
            (Gave::Range((!undone).then_some(view)), result)
        }
        Err(error) => (Gave::Range(None), Err(error)),
    }
}

impl Gave {
    /// The address, where it is one.
    pub(in crate::heap) fn addr(self) -> u64 {
        match self {
            Gave::Addr(addr) => addr,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::device::{Call as Made, Sim, SimConfig};

    /// What was mapped behind a view before the driver refused more stays there only if it is not to be unmapped, either.
    #[test]
    fn a_view_that_could_not_be_extended_keeps_what_could_not_be_undone() {
        let sim = Sim::new(SimConfig::default());
        let driver = sim.device().driver;
        let size = 2 << 20;
        let addr = driver.reserve(2 * size).unwrap();
        let extend = || {
            let chunks = [0, size].map(|home| {
                let handle = driver.create(size, false).unwrap();
                (home, Chunk { handle, size })
            });
            // The first is mapped.
            sim.fail_after(1, true);
            let mut call = Call::Extend {
                view: 0,
                addr,
                chunks: chunks.into(),
            };
            call.run(&*driver)
        };
        let (gave, result) = extend();
        assert!(result.is_err() && matches!(gave, Gave::Mapped(0)), "{gave:?}");
        sim.fail_next(Made::Unmap, 1);
        let (gave, result) = extend();
        assert!(
            result.is_err() && matches!(gave, Gave::Mapped(mapped) if mapped == size),
            "{gave:?}"
        );
        driver.unmap(addr, size).unwrap();
    }
}
