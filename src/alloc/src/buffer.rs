//! A typed piece of device memory that frees itself.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::heap::{self, Named};
use crate::home::Home;
use crate::lane::{Held, Lent};
use crate::stream::Stream;

/// A type whose values can be copied between host and device byte by byte: every [`Pod`] type that may go to another thread,
/// so numbers, arrays of them, and structs that derive `bytemuck::Pod`.
pub trait Element: Pod + Send + Sync {}

impl<T: Pod + Send + Sync> Element for T {}

/// `len` values of `T` in device memory, given back to the allocator when dropped.
///
/// It keeps its allocator alive, cannot be copied, and cannot be freed twice. Pass `&buffer` to cudarc's
/// `launch_builder(..).arg(..)` as a pointer argument; a launch on another stream than the buffer's must be told with
/// [`record_stream`](Buffer::record_stream), so that the memory is not reused too early. Its implementation of
/// `PushKernelArg`, below, has an example.
///
/// Use after free does not compile:
///
/// ```compile_fail,E0382
/// # fn f(buffer: gpumem_alloc::Buffer<f32>) {
/// drop(buffer);
/// buffer.device_ptr();
/// # }
/// ```
#[must_use = "the memory goes back when this is dropped"]
pub struct Buffer<T: Element> {
    /// The pointer as kernels take it; kernel arguments point here.
    pub(crate) addr: u64,
    len: usize,
    stream: Stream,
    held: Held,
    home: &'static Home,
    elements: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// A buffer over a block that was just handed out, which it frees.
    #[inline(always)]
    pub(crate) fn new(home: &'static Home, Lent { addr, held }: Lent, len: usize, stream: Stream) -> Buffer<T> {
        Buffer {
            addr,
            len,
            stream,
            held,
            home,
            elements: PhantomData,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes asked for.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// Bytes taken from the cache: after rounding. Looked up under a lock. In a forked child, which has no blocks: of rounding alone.
    pub fn allocated_bytes(&self) -> u64 {
        match self.held {
            Held::NOTHING => 0,
            held => self
                .home
                .bytes_of(held)
                .unwrap_or_else(|_| self.home.size_of(self.bytes())),
        }
    }

    /// The device address; 0 for an empty buffer. Valid while the buffer lives.
    pub fn device_ptr(&self) -> u64 {
        self.addr
    }

    /// The stream it was allocated for.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The allocator it came from. [`Error::Forked`] in a forked child.
    pub fn allocator(&self) -> Result<Allocator, Error> {
        self.home.handle().map(Allocator)
    }

    /// Notes that work on another stream uses the buffer: once dropped, its memory is not reused before that work is done.
    ///
    /// ```
    /// use gpumem_alloc::{Allocator, Stream};
    ///
    /// # fn f(alloc: &Allocator, launch_on: impl Fn(Stream, u64), other: Stream) -> Result<(), gpumem_alloc::Error> {
    /// let buffer = alloc.alloc::<f32>(1 << 20, Stream::DEFAULT)?;
    /// launch_on(other, buffer.device_ptr());
    /// buffer.record_stream(other)?;
    /// drop(buffer); // waits for nothing; the memory is somebody else's once `other` is done with it
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the stream cannot be kept apart, and then nothing is noted: [`Error::TooManyStreams`], [`Error::PerThreadStream`]. Keep the buffer
    /// until that work is done.
    pub fn record_stream(&self, stream: impl Into<Stream>) -> Result<(), Error> {
        if self.held == Held::NOTHING {
            return Ok(());
        }
        let block = self.home.block_of(self.held)?;
        let stream = stream.into();
        self.home.name(|heap| heap.record_use(block, stream, Named::default()))
    }

    /// Copies from the host and waits for the copy. The lengths must be equal.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`]; [`Error::Capturing`] when the buffer's stream has ended, it is not known whether its work is done, and that is
    /// not to be waited for while a graph is captured; [`Error::Device`] when the driver fails, and while a graph is captured from the stream,
    /// which goes on; [`Error::Forked`] in a forked child.
    pub fn write(&mut self, values: &[T]) -> Result<(), Error> {
        self.check_len(values.len())?;
        self.write_at(0, values)
    }

    /// Copies from the host over the elements from `offset` on, and waits for the copy. The part must lie within the buffer.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], and as [`write`](Buffer::write).
    pub fn write_at(&mut self, offset: usize, values: &[T]) -> Result<(), Error> {
        let addr = self.part(offset, values.len())?;
        match bytemuck::cast_slice(values) {
            [] => Ok(()),
            bytes => Ok(self.home.device()?.driver.write(addr, bytes, self.queue()?)?),
        }
    }

    /// Copies to the host, after the work queued on the buffer's stream so far. The lengths must be equal.
    ///
    /// # Errors
    /// As [`write`](Buffer::write).
    pub fn read(&self, values: &mut [T]) -> Result<(), Error> {
        self.check_len(values.len())?;
        self.read_at(0, values)
    }

    /// Copies the elements from `offset` on to the host, after the work queued on the buffer's stream so far. The part must
    /// lie within the buffer.
    ///
    /// # Errors
    /// As [`write_at`](Buffer::write_at).
    pub fn read_at(&self, offset: usize, values: &mut [T]) -> Result<(), Error> {
        let addr = self.part(offset, values.len())?;
        match bytemuck::cast_slice_mut(values) {
            [] => Ok(()),
            bytes => Ok(self.home.device()?.driver.read(addr, bytes, self.queue()?)?),
        }
    }

    /// Fills the buffer with a 32-bit word, in stream order; bytes after the last whole word keep what they were. Waits for it only if the
    /// buffer's stream has ended, or is another thread's [own](Stream::per_thread).
    ///
    /// # Errors
    /// As [`write`](Buffer::write), but for the length; and a graph that is captured from the stream has the fill.
    pub fn fill_words(&mut self, word: u32) -> Result<(), Error> {
        if self.bytes() < 4 {
            return Ok(());
        }
        let (device, stream) = (self.home.device()?, self.queue()?);
        device.driver.fill(self.addr, word, self.bytes() / 4, stream)?;
        // Whose stream has ended gives its memory to whoever comes first, who would not wait for the default one; nor does it a thread that asks
        // how far its own is.
        if stream != self.stream || stream.is_of_another_thread() {
            device.driver.read(self.addr, &mut [0; 4], stream)?;
        }
        Ok(())
    }

    /// The stream that orders what is done with a buffer that is not empty: its own, or if that has ended the default one, after all that it
    /// did.
    fn queue(&self) -> Result<Stream, Error> {
        let block = self.home.block_of(self.held)?;
        match self.home.has_ended(block)? {
            None => return Ok(self.stream),
            Some(true) => {}
            Some(false) => heap::wait_for_device(&mut self.home.turn()?)?,
        }
        Ok(Stream::DEFAULT)
    }

    /// The address of a part of the buffer, if it is one.
    fn part(&self, offset: usize, host: usize) -> Result<u64, Error> {
        let end = offset.checked_add(host);
        if end.is_none_or(|end| end > self.len) {
            return Err(Error::OutOfBounds {
                offset,
                host,
                buffer: self.len,
            });
        }
        Ok(self.addr + (offset * size_of::<T>()) as u64)
    }

    fn check_len(&self, host: usize) -> Result<(), Error> {
        if host != self.len {
            return Err(Error::LengthMismatch { host, buffer: self.len });
        }
        Ok(())
    }
}

impl<T: Element> Drop for Buffer<T> {
    #[inline]
    fn drop(&mut self) {
        // A forked child gives nothing back: the block is its parent's.
        self.home.take_back(self.held);
    }
}

impl<T: Element> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("addr", &format_args!("{:#x}", self.addr))
            .field("len", &self.len)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
