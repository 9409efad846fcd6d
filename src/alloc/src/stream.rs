//! Streams: queues of GPU work, told apart by their raw handle.

mod threads;

use std::sync::Arc;

use cudarc::driver::CudaStream;

/// A stream by its raw handle (`CUstream`). On the simulated device any number is a stream.
///
/// CUDA does not check handles: a number that is no stream's, or that of a stream which was destroyed, ends the program by SIGSEGV wherever an
/// allocator of a CUDA device asks about it: when memory is taken for it, when a block is dropped that was
/// [recorded](crate::Buffer::record_stream) for it, and with [`cross_stream_reuse`](crate::Config::cross_stream_reuse) at any time later.
/// Nothing here can tell. So a handle that is written as a number, and not [made from](Stream::from) a stream, is the program's
/// responsibility as a raw pointer is, and so is that the stream lives until [`retire_stream`](crate::Allocator::retire_stream).
///
/// CUDA's handle of the per-thread default streams (`CU_STREAM_PER_THREAD`, 2) is another stream in each thread, and so is refused as a number,
/// with [`Error::PerThreadStream`](crate::Error::PerThreadStream): [`Stream::per_thread`] names that of one thread. Those have the numbers from
/// 2^48 to 2^49, which are no handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u64);

impl Stream {
    /// The default stream.
    pub const DEFAULT: Stream = Stream(0);
    /// CUDA's other handle of it (`CU_STREAM_LEGACY`).
    pub(crate) const LEGACY: Stream = Stream(1);
    /// CUDA's handle of whatever thread's own (`CU_STREAM_PER_THREAD`).
    pub(crate) const PER_THREAD: Stream = Stream(2);

    /// The per-thread default stream of the calling thread, which is this one in other threads, too. It ends with the thread, and is retired
    /// then without anybody's saying so.
    ///
    /// Other threads can only ask the default stream about it, which is idle when all of them are: with
    /// [`cross_stream_reuse`](crate::Config::cross_stream_reuse) what its thread has freed is reused elsewhere then, and else once the device
    /// was waited for. Only what
    /// [`record_stream`](crate::Buffer::record_stream) names it for, and threads that end while the GPU is busy once there are 16 of them, have
    /// events recorded on the default stream, for which what other threads queue next has to wait. 4,096 threads at a time have one; those that
    /// come too late get a stream that is refused with [`Error::PerThreadStream`](crate::Error::PerThreadStream).
    ///
    /// In destructors that run after this library's, at the very end of a thread, it is another one each time, and each has ended already: who
    /// queues work there gives back what that uses by [`free_raw_after`](crate::Allocator::free_raw_after), as the C functions do.
    pub fn per_thread() -> Stream {
        Stream::of_this_thread()
    }

    /// Whether its handle means a stream at any time: those that CUDA makes by itself. That of a thread has the default stream asked once the
    /// thread has ended.
    pub(crate) fn never_ends(self) -> bool {
        self == Stream::DEFAULT || self.is_per_thread()
    }

    /// What CUDA calls it (`CUstream`), in the thread whose own it is if it is a [thread's own](Stream::per_thread).
    pub fn handle(self) -> u64 {
        match self.is_per_thread() {
            true => Stream::PER_THREAD.0,
            false => self.0,
        }
    }
}

/// CUDA's handle of the per-thread default streams is that of the calling thread's.
impl From<&CudaStream> for Stream {
    fn from(stream: &CudaStream) -> Stream {
        match Stream(stream.cu_stream() as u64) {
            Stream::LEGACY => Stream::DEFAULT,
            Stream::PER_THREAD => Stream::per_thread(),
            stream => stream,
        }
    }
}

impl From<&Arc<CudaStream>> for Stream {
    fn from(stream: &Arc<CudaStream>) -> Stream {
        Stream::from(&**stream)
    }
}
