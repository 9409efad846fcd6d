//! Streams: queues of GPU work, told apart by their raw handle.

use std::sync::Arc;

use cudarc::driver::CudaStream;

/// A stream by its raw handle (`CUstream`). On the simulated device any number is a stream.
///
/// CUDA does not check handles: a number that is no stream's, or that of a stream which was destroyed, ends the program by SIGSEGV wherever an
/// allocator of a CUDA device asks about it, which may be when memory is taken for it and at any time later. Nothing here can tell. So a
/// handle that is written as a number, and not [made from](Stream::from) a stream, is the program's responsibility as a raw pointer is, and so
/// is that the stream lives until [`retire_stream`](crate::Allocator::retire_stream).
///
/// CUDA's per-thread default stream (`CU_STREAM_PER_THREAD`, handle 2) is refused with
/// [`Error::PerThreadStream`](crate::Error::PerThreadStream) wherever a stream is named: what one thread gives back there another thread
/// would be given while the first one's work still uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u64);

impl Stream {
    /// The default stream.
    pub const DEFAULT: Stream = Stream(0);
    /// CUDA's other handle of it (`CU_STREAM_LEGACY`).
    pub(crate) const LEGACY: Stream = Stream(1);
    /// CUDA's handle of whatever thread's own (`CU_STREAM_PER_THREAD`).
    pub(crate) const PER_THREAD: Stream = Stream(2);
}

impl From<&CudaStream> for Stream {
    fn from(stream: &CudaStream) -> Stream {
        match Stream(stream.cu_stream() as u64) {
            Stream::LEGACY => Stream::DEFAULT,
            stream => stream,
        }
    }
}

impl From<&Arc<CudaStream>> for Stream {
    fn from(stream: &Arc<CudaStream>) -> Stream {
        Stream::from(&**stream)
    }
}
