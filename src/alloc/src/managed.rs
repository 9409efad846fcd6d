//! Managed (unified) memory: buffers that CPU and GPU access at the same address, and whose pages move to whoever does.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;

use gpumem_channel::{ManagedBlock, ManagedCounters, ManagedRange, Preferred};

use crate::allocator::Allocator;
use crate::buffer::Element;
use crate::device::Location;
use crate::device::managed::{ALIGNMENT, Advice, ManagedMemory};
use crate::error::{DeviceError, Error};
use crate::publish::{DEVICE, ManagedSlot};
use crate::size::bytes_of;
use crate::stream::Stream;
use crate::tag;

/// `len` values of `T` in managed memory (`cuMemAllocManaged`), given back to the driver when dropped.
///
/// Its pages take memory where they are touched first, and then move to the processor that touches them. It is not cached, and counts neither
/// in the allocator's figures nor against its budget, because how much of it is on the GPU is the driver's choice. The channel has each buffer
/// with its tag and advice, so that the dashboard's view of unified memory can name what it sees.
///
/// On the simulated device nothing moves.
///
/// ```
/// use gpumem_alloc::{Allocator, Config, Stream, device, device::Location};
///
/// # fn main() -> Result<(), gpumem_alloc::Error> {
/// # let config = Config { publish: gpumem_alloc::Publish::Off, ..Config::default() };
/// let alloc = Allocator::new(device::sim(Default::default()), config)?;
/// let _scope = gpumem_alloc::scope("embeddings");
/// let mut table = alloc.alloc_managed::<f32>(1 << 20)?;
/// table.host()?.fill(1.0); // on the CPU
/// table.set_read_mostly(true)?;
/// table.prefetch(Location::Device, Stream::DEFAULT)?; // before a kernel uses it
/// # Ok(())
/// # }
/// ```
#[must_use = "the memory goes back when this is dropped"]
pub struct ManagedBuffer<T: Element> {
    /// `None` for an empty buffer. Dropped by hand: a forked child leaves it alone.
    memory: ManuallyDrop<Option<Box<dyn ManagedMemory>>>,
    len: usize,
    range: ManagedRange,
    slot: ManagedSlot,
    allocator: Allocator,
    elements: PhantomData<T>,
}

impl Allocator {
    /// Allocates a buffer of `len` elements in managed memory. All bytes are zero.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Forked`] in a forked child; [`Error::Device`] if the driver refuses, if `T` has an alignment of more
    /// than 256 bytes, and on machines whose CPU and GPU cannot access managed memory at the same time (Windows, cards before Pascal).
    pub fn alloc_managed<T: Element>(&self, len: usize) -> Result<ManagedBuffer<T>, Error> {
        let bytes = bytes_of::<T>(len)?;
        self.0.home.not_forked()?;
        if align_of::<T>() > ALIGNMENT {
            return Err(DeviceError::not_here("managed memory of a type with such an alignment").into());
        }
        let driver = &self.0.device.driver;
        let memory = match bytes {
            0 => None,
            bytes => Some(driver.clone().managed(bytes)?),
        };
        let mut range = ManagedRange {
            addr: memory.as_ref().map_or(0, |memory| memory.addr()),
            size: bytes,
            device: DEVICE,
            ..ManagedRange::default()
        };
        let tag = tag::current();
        let slot = self.heap(|heap| heap.managed_begin(tag, &mut range))?;
        Ok(ManagedBuffer {
            memory: ManuallyDrop::new(memory),
            len,
            range,
            slot,
            allocator: self.clone(),
            elements: PhantomData,
        })
    }
}

impl<T: Element> ManagedBuffer<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Checks whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.range.size
    }

    /// Returns the address, which is the same for CPU and GPU; 0 for an empty buffer. Valid while the buffer lives.
    pub fn device_ptr(&self) -> u64 {
        self.range.addr
    }

    /// Returns the allocator that it came from.
    pub fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Waits for the device, and returns the elements for access by the CPU. Pages that are on the GPU move when they are touched.
    ///
    /// # Errors
    /// [`Error::Device`] if work on the device failed; [`Error::Forked`] in a forked child.
    pub fn host(&mut self) -> Result<&mut [T], Error> {
        self.allocator.0.home.not_forked()?;
        match &mut *self.memory {
            Some(memory) => Ok(bytemuck::cast_slice_mut(memory.host()?)),
            None => Ok(&mut []),
        }
    }

    /// Queues moving all of it to a place before it is used there.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver refuses; [`Error::Forked`] in a forked child.
    pub fn prefetch(&self, to: Location, stream: Stream) -> Result<(), Error> {
        self.prefetch_part(0..self.len, to, stream)
    }

    /// Queues moving the pages of some elements to a place before they are used there.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the part does not lie within the buffer, and as [`prefetch`](ManagedBuffer::prefetch).
    pub fn prefetch_part(&self, elements: Range<usize>, to: Location, stream: Stream) -> Result<(), Error> {
        let (offset, bytes) = self.part(elements)?;
        match &*self.memory {
            Some(memory) if bytes > 0 => Ok(memory.prefetch(offset, bytes, to, stream)?),
            _ => Ok(()),
        }
    }

    /// Advises the driver that it is mostly read, so that each reader gets a copy of its own, or takes that back.
    ///
    /// # Errors
    /// As [`prefetch`](ManagedBuffer::prefetch).
    pub fn set_read_mostly(&mut self, read_mostly: bool) -> Result<(), Error> {
        self.advise(Advice::ReadMostly(read_mostly))?;
        self.range.read_mostly = read_mostly;
        self.publish()
    }

    /// Advises the driver where to keep it, or takes that back. Others then access it there where their hardware can.
    ///
    /// # Errors
    /// As [`prefetch`](ManagedBuffer::prefetch).
    pub fn set_preferred(&mut self, place: Option<Location>) -> Result<(), Error> {
        self.advise(Advice::Prefer(place))?;
        self.range.preferred = match place {
            None => Preferred::Nowhere,
            Some(Location::Cpu) => Preferred::Cpu,
            Some(Location::Device) => Preferred::Device,
        };
        self.publish()
    }

    /// Advises the driver to keep it mapped for a processor wherever it is, so that this one does not fault, or takes that back.
    ///
    /// # Errors
    /// As [`prefetch`](ManagedBuffer::prefetch).
    pub fn set_accessed_by(&mut self, by: Location, accessed: bool) -> Result<(), Error> {
        self.advise(Advice::AccessedBy(by, accessed))
    }

    /// Queues telling the driver that the contents are not needed any more, so that it need not copy them when pages move. What is read
    /// before it is written again is undefined.
    ///
    /// # Errors
    /// [`Error::Device`] also if the driver has no such call: drivers have it from CUDA 13.0 on.
    pub fn discard(&mut self, stream: Stream) -> Result<(), Error> {
        self.allocator.0.home.not_forked()?;
        let bytes = self.bytes();
        match &mut *self.memory {
            Some(memory) => Ok(memory.discard(0, bytes, stream)?),
            None => Ok(()),
        }
    }

    /// Publishes where a model has the pages of a simulated device, and what happened to them so far. Blocks outside the buffer are left out. Does
    /// nothing on other devices, of which the driver knows more.
    #[doc(hidden)]
    pub fn publish_pages(&self, blocks: &[ManagedBlock], counters: &ManagedCounters) {
        let (first, end) = (self.range.addr, self.range.addr.saturating_add(self.range.size));
        if self.allocator.device().as_sim().is_none() || !blocks.iter().all(|block| (first..end).contains(&block.addr))
        {
            return;
        }
        // A forked child publishes nothing.
        let _ = self.allocator.heap(|heap| heap.managed_pages(blocks, counters));
    }

    fn advise(&self, advice: Advice) -> Result<(), Error> {
        self.allocator.0.home.not_forked()?;
        match &*self.memory {
            Some(memory) => Ok(memory.advise(advice)?),
            None => Ok(()),
        }
    }

    fn publish(&self) -> Result<(), Error> {
        self.allocator.heap(|heap| heap.managed_change(&self.slot, &self.range))
    }

    /// Returns the offset and bytes of some elements.
    fn part(&self, elements: Range<usize>) -> Result<(u64, u64), Error> {
        self.allocator.0.home.not_forked()?;
        if elements.start > elements.end || elements.end > self.len {
            return Err(Error::OutOfBounds {
                offset: elements.start,
                host: elements.end.saturating_sub(elements.start),
                buffer: self.len,
            });
        }
        let size = size_of::<T>();
        Ok(((elements.start * size) as u64, (elements.len() * size) as u64))
    }
}

impl<T: Element> Drop for ManagedBuffer<T> {
    fn drop(&mut self) {
        // The memory of a forked child is its parent's.
        if self.allocator.0.home.not_forked().is_err() {
            return;
        }
        let _ = self.allocator.heap(|heap| heap.managed_end(&self.slot, &self.range));
        drop(self.memory.take());
    }
}

impl<T: Element> fmt::Debug for ManagedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedBuffer")
            .field("addr", &format_args!("{:#x}", self.range.addr))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
