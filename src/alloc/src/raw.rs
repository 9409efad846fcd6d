//! Memory by address, for callers that keep raw pointers: C, PyTorch.

mod pointers;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::heap::{COMMON, Named};
use crate::lane::{Held, Lent};
use crate::pool::PoolBlock;
use crate::stream::Stream;
use crate::tag;

pub(crate) use pointers::Pointers;

/// Memory that the driver gave out in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Base {
    /// Its first address.
    pub addr: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Allocator {
    /// Takes at least `bytes` for use on a stream, for callers that keep raw addresses (C, PyTorch); to be given back
    /// with [`free_raw`](Allocator::free_raw). 0 bytes give address 0, others a multiple of 256.
    ///
    /// Unlike a [`Buffer`](crate::Buffer) it does not keep the allocator: with the last handle, pool and buffer of that all memory goes back to the
    /// driver, this too.
    ///
    /// # Errors
    /// As [`alloc`](Allocator::alloc).
    pub fn alloc_raw(&self, bytes: u64, stream: Stream) -> Result<u64, Error> {
        let pool = self.0.pool(stream);
        self.alloc_raw_in(pool.as_deref().map_or(COMMON, |pool| pool.arena), bytes, stream)
    }

    /// The same from an arena.
    #[inline]
    pub(crate) fn alloc_raw_in(&self, arena: u16, bytes: u64, stream: Stream) -> Result<u64, Error> {
        if bytes == 0 {
            return self.heap(|_| 0);
        }
        let home = self.0.home;
        let lent = match arena {
            COMMON => home.lend_quick((bytes, home.size_of(bytes)), stream, false),
            _ => None,
        };
        let Lent { addr, held } = match lent {
            Some(lent) => lent,
            None => self.alloc_raw_slow(arena, bytes, stream)?,
        };
        home.pointers()?.put(addr, held);
        Ok(addr)
    }

    #[inline(never)]
    fn alloc_raw_slow(&self, arena: u16, bytes: u64, stream: Stream) -> Result<Lent, Error> {
        let home = self.0.home;
        let short = match arena {
            COMMON => home.lend_short(bytes, stream, false, &self.0.device.driver),
            pool => home.lend_short_in(pool, bytes, stream, false),
        };
        match short {
            Some(lent) => Ok(lent),
            None => Ok(self.told_if_short(home.allocate(arena, bytes, stream, false))?.lent()),
        }
    }

    /// A certain block of a pool.
    pub(crate) fn alloc_raw_at(&self, arena: u16, block: &PoolBlock) -> Result<(), Error> {
        let home = self.0.home;
        let take = || home.name(|heap| heap.allocate_at(arena, block, tag::current()));
        let grant = match take() {
            Err(Error::NotFree { .. }) => {
                self.settle()?;
                take()?
            }
            taken => taken?,
        };
        home.pointers()?.put(grant.addr, grant.held);
        Ok(())
    }

    /// Gives back what [`alloc_raw`](Allocator::alloc_raw) handed out. Address 0 is nothing, and fine.
    ///
    /// An address that is not a live raw allocation of this allocator is an error and changes nothing: foreign pointers,
    /// double frees, addresses inside blocks, addresses of buffers.
    pub fn free_raw(&self, addr: u64) -> Result<(), Error> {
        if addr == 0 {
            return self.heap(|_| ());
        }
        let home = self.0.home;
        home.give_back(home.pointers()?.take(addr)?)
    }

    /// [`free_raw`](Allocator::free_raw) for callers that name the device too: another device than this allocator's is an
    /// error and changes nothing.
    pub fn free_raw_on(&self, addr: u64, ordinal: u32) -> Result<(), Error> {
        let expected = self.0.device.info().ordinal;
        if ordinal != expected {
            return Err(Error::WrongDevice {
                expected,
                given: ordinal,
            });
        }
        self.free_raw(addr)
    }

    /// [`free_raw_on`](Allocator::free_raw_on) for callers that name a stream too: work queued on it so far may still use the
    /// memory. That costs nothing more when it is the stream the memory was taken for, also if that was
    /// [retired](Allocator::retire_stream) since and no other stream of its name is known: who uses such memory on a new stream of that name
    /// says so first ([`record_stream_raw`](Allocator::record_stream_raw)).
    pub fn free_raw_after(&self, addr: u64, ordinal: u32, stream: Stream) -> Result<(), Error> {
        if ordinal == self.0.device.info().ordinal && addr != 0 {
            let home = self.0.home;
            let held = home.pointers()?.take(addr)?;
            if home.give_back_quick(held, stream) {
                return Ok(());
            }
            if let Err(error) = self.note_last_use(held, stream) {
                home.pointers()?.put(addr, held);
                return Err(error);
            }
            return home.give_back(held);
        }
        self.free_raw_on(addr, ordinal)
    }

    /// Notes that work on another stream uses a raw allocation: its memory is not reused before that work is done. Address 0 is nothing,
    /// and fine.
    pub fn record_stream_raw(&self, addr: u64, stream: Stream) -> Result<(), Error> {
        if addr == 0 {
            return self.heap(|_| ());
        }
        self.record_stream_raw_as(addr, stream, false)
    }

    /// The same for a stream of which it may be known that it lives as long as the process.
    #[doc(hidden)]
    pub fn record_stream_raw_as(&self, addr: u64, stream: Stream, lasts: bool) -> Result<(), Error> {
        let home = self.0.home;
        let block = home.block_of(home.pointers()?.find(addr)?)?;
        let id = self.0.device.id_of(stream);
        home.name(|heap| heap.record_use(block, stream, Named { id, lasts }))
    }

    fn note_last_use(&self, held: Held, stream: Stream) -> Result<(), Error> {
        let block = self.0.home.block_of(held)?;
        self.0.home.name(|heap| heap.record_last_use(block, stream))
    }

    /// The driver's allocation that a raw allocation lies in.
    ///
    /// Errors when the address is not a live raw allocation, and when there is no such thing: memory that is mapped in chunks.
    pub fn base_of_raw(&self, addr: u64) -> Result<Base, Error> {
        let block = self.block_of_raw(addr)?;
        self.heap(|heap| heap.base_of(block))?.ok_or(Error::NoBase { addr })
    }

    /// The heap's number of a raw allocation's block.
    pub(crate) fn block_of_raw(&self, addr: u64) -> Result<u32, Error> {
        self.0.home.block_of(self.0.home.pointers()?.find(addr)?)
    }

    /// The bytes of a raw allocation's block, as figures count it: what was asked for, rounded up.
    ///
    /// Errors when the address is not a live raw allocation.
    pub fn bytes_of_raw(&self, addr: u64) -> Result<u64, Error> {
        let home = self.0.home;
        home.bytes_of(home.pointers()?.find(addr)?)
    }

    /// Whether an address is a live raw allocation of this allocator.
    pub fn owns_raw(&self, addr: u64) -> bool {
        self.0.home.pointers().is_ok_and(|pointers| pointers.find(addr).is_ok())
    }
}
