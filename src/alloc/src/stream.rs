//! Streams: queues of GPU work, told apart by their raw handle.

use std::sync::Arc;

use cudarc::driver::CudaStream;

/// A stream by its raw handle (`CUstream`). On the simulated device any number is a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(pub u64);

impl Stream {
    /// The default stream.
    pub const DEFAULT: Stream = Stream(0);
}

impl From<&CudaStream> for Stream {
    fn from(stream: &CudaStream) -> Stream {
        Stream(stream.cu_stream() as u64)
    }
}

impl From<&Arc<CudaStream>> for Stream {
    fn from(stream: &Arc<CudaStream>) -> Stream {
        Stream::from(&**stream)
    }
}
