//! Buffers as arguments of cudarc's kernel launches.

use cudarc::driver::{LaunchArgs, PushKernelArg};

use crate::buffer::{Buffer, Element};

/// The buffer's address as a pointer argument.
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
