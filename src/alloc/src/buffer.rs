//! A typed piece of device memory that frees itself.

use std::marker::PhantomData;

use cudarc::driver::{DeviceRepr, LaunchArgs, PushKernelArg};

use crate::allocator::Allocator;
use crate::error::Error;
use crate::lease::Lease;
use crate::stream::Stream;

/// A type whose values can be copied between host and device byte by byte.
///
/// # Safety
///
/// The type has no padding, no pointers, and every pattern of bits is a value of it.
pub unsafe trait Element: DeviceRepr + Copy + Send + Sync + 'static {}

macro_rules! elements {
    ($($t:ty)*) => {
        // SAFETY: plain numbers: no padding, and every pattern of bits is a value.
        $(unsafe impl Element for $t {})*
    };
}
elements!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array adds nothing to its elements, not even padding.
unsafe impl<T: Element, const N: usize> Element for [T; N] {}

fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: an Element has no padding, so all of its bytes are initialised; u8 has no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

fn bytes_of_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every pattern of bits written is a value of T.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), std::mem::size_of_val(values)) }
}

/// `len` values of `T` in device memory, given back to the allocator when dropped.
///
/// It keeps its allocator alive, cannot be copied, and cannot be freed twice. Pass `&buffer` to cudarc's
/// `launch_builder(..).arg(..)` as a pointer argument; a launch on another stream than the buffer's must be told with
/// [`record_stream`](Buffer::record_stream), so that the memory is not reused too early.
///
/// ```no_run
/// use cudarc::driver::{CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
/// use gpumem_alloc::Buffer;
///
/// fn scale(f: &CudaFunction, stream: &CudaStream, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<(), DriverError> {
///     let mut launch = stream.launch_builder(f);
///     launch.arg(x).arg(y);
///     // SAFETY: `f` takes two pointers to f32.
///     unsafe { launch.launch(LaunchConfig::for_num_elems(1024)) }.map(|_| ())
/// }
/// ```
///
/// Use after free does not compile:
///
/// ```compile_fail,E0382
/// # fn f(buffer: gpumem_alloc::Buffer<f32>) {
/// drop(buffer);
/// buffer.device_ptr();
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer<T: Element> {
    /// The pointer as kernels take it; kernel arguments point here.
    addr: u64,
    size: u64,
    len: usize,
    stream: Stream,
    lease: Lease,
    elements: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    #[inline]
    pub(crate) fn new(lease: Lease, addr: u64, size: u64, len: usize, stream: Stream) -> Buffer<T> {
        Buffer {
            addr,
            size,
            len,
            stream,
            lease,
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
        (self.len * std::mem::size_of::<T>()) as u64
    }

    /// Bytes taken from the cache: after rounding.
    pub fn allocated_bytes(&self) -> u64 {
        self.size
    }

    /// The device address; 0 for an empty buffer. Valid while the buffer lives.
    pub fn device_ptr(&self) -> u64 {
        self.addr
    }

    /// The stream it was allocated for.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// The allocator it came from.
    pub fn allocator(&self) -> Allocator {
        self.lease.allocator()
    }

    /// Notes that work on another stream uses the buffer: once dropped, its memory is not reused before that work is done.
    pub fn record_stream(&self, stream: impl Into<Stream>) -> Result<(), Error> {
        match self.lease.block() {
            Some(block) => self.lease.heap()?.record_use(block, stream.into()),
            None => Ok(()),
        }
    }

    /// Copies from the host and waits for the copy. The lengths must be equal.
    pub fn write(&mut self, values: &[T]) -> Result<(), Error> {
        self.check_len(values.len())?;
        if self.size == 0 {
            return Ok(());
        }
        Ok(self
            .lease
            .device
            .driver
            .write(self.addr, bytes_of(values), self.stream)?)
    }

    /// Copies to the host, after the work queued on the buffer's stream so far. The lengths must be equal.
    pub fn read(&self, values: &mut [T]) -> Result<(), Error> {
        self.check_len(values.len())?;
        if self.size == 0 {
            return Ok(());
        }
        Ok(self
            .lease
            .device
            .driver
            .read(self.addr, bytes_of_mut(values), self.stream)?)
    }

    /// Fills the buffer with a 32-bit word, in stream order; bytes after the last whole word keep what they were.
    pub fn fill_words(&mut self, word: u32) -> Result<(), Error> {
        if self.bytes() < 4 {
            return Ok(());
        }
        Ok(self
            .lease
            .device
            .driver
            .fill(self.addr, word, self.bytes() / 4, self.stream)?)
    }

    fn check_len(&self, host: usize) -> Result<(), Error> {
        if host != self.len {
            return Err(Error::LengthMismatch { host, buffer: self.len });
        }
        Ok(())
    }
}

// SAFETY: the argument is the device address, 8 bytes that live as long as the borrow of the buffer.
unsafe impl<'a, 'b: 'a, T: Element> PushKernelArg<&'b Buffer<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, buffer: &'b Buffer<T>) -> &mut Self {
        self.arg(&buffer.addr)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T: Element> PushKernelArg<&'b mut Buffer<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, buffer: &'b mut Buffer<T>) -> &mut Self {
        self.arg(&buffer.addr)
    }
}
