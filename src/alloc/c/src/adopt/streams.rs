//! Which streams last as long as the process. PyTorch never destroys its own streams (`torch.cuda.Stream()`). Others
//! (`torch.cuda.ExternalStream`) may be destroyed at any time. A handle does not tell the two apart; the id of a `c10::Stream` does, so
//! `recordStream`, which gets that id, is replaced.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::library::Library;
use crate::trust;

/// `CUDAPluggableAllocator::recordStream(const c10::DataPtr&, c10::cuda::CUDAStream)`
pub(super) const RECORD: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator12recordStreamERKN3c107DataPtrENS3_4cuda10CUDAStreamE";

/// [`RECORD`], and what takes its place: the object, a block, a stream.
pub(super) type Record = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, CudaStream);

/// `c10::cuda::CUDAStream`, which is a `c10::Stream`. It is passed in registers.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CudaStream {
    device_type: i8,
    device: i8,
    id: i64,
}

impl CudaStream {
    /// The id of PyTorch's own streams is odd, and 0 for the default stream. Any other id is the handle of an external stream, an address
    /// ("StreamId assignment" in `c10/cuda/CUDAStream.cpp`, from 2.1 on).
    fn lasts(self) -> bool {
        self.id & 1 == 1 || self.id == 0
    }
}

/// `c10::cuda::getCurrentCUDAStream(c10::DeviceIndex)`
const CURRENT_STREAM: &CStr = c"_ZN3c104cuda20getCurrentCUDAStreamEa";

/// What that is: 16 bytes that are returned in registers.
type CurrentStream = unsafe extern "C-unwind" fn(i8) -> CudaStream;

/// Whether the calling thread's current stream lasts as long as the process. `false` also where it is not known.
pub(crate) fn current_lasts(pytorch: &Library, device: c_int) -> bool {
    if !cfg!(target_arch = "x86_64") || trust::torch().is_err() {
        return false;
    }
    // SAFETY: the function of that name; what it returns has this layout in the versions that were tried.
    let current_stream = unsafe { pytorch.function::<CurrentStream>(CURRENT_STREAM) };
    let device = i8::try_from(device).ok();
    // SAFETY: PyTorch's own function for a device of its.
    device
        .zip(current_stream)
        .is_some_and(|(device, current_stream)| unsafe { current_stream(device) }.lasts())
}

static THEIRS: OnceLock<Record> = OnceLock::new();

thread_local! {
    static LASTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether the stream that the calling thread records now lasts as long as the process. Not known of others than PyTorch's.
pub(crate) fn stream_lasts() -> bool {
    LASTS.get()
}

/// What takes the place of [`RECORD`], if there is that.
pub(super) fn replacement(pytorch: &Library) -> Option<Record> {
    // SAFETY: the function of that name.
    let theirs = unsafe { pytorch.function::<Record>(RECORD) }?;
    THEIRS.get_or_init(|| theirs);
    Some(record)
}

/// While it is there, a stream is recorded. PyTorch's function may throw.
struct Recording {
    before: bool,
}

impl Recording {
    fn begin(stream: CudaStream) -> Recording {
        Recording {
            before: LASTS.replace(stream.lasts()),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        LASTS.set(self.before);
    }
}

extern "C-unwind" fn record(object: *mut c_void, data: *const c_void, stream: CudaStream) {
    let Some(theirs) = THEIRS.get() else { return };
    let _recording = Recording::begin(stream);
    // SAFETY: what it was called with, by who called the function of that name.
    unsafe { theirs(object, data, stream) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use std::panic::catch_unwind;

    use super::*;

    /// Numbers as PyTorch gives them: five bits of an index, four of a priority, and one that is set.
    const OWN: [i64; 3] = [0b11, 0b101, 31 << 5 | 0b11];
    const DEFAULT: i64 = 0;
    /// Handles of others: addresses, and CUDA's for a thread's own, which is one in each thread.
    const EXTERNAL: [i64; 3] = [0x5555_0000_1230, -0x1000, 2];

    fn stream(id: i64) -> CudaStream {
        CudaStream {
            device_type: 1,
            device: 3,
            id,
        }
    }

    thread_local! {
        static SEEN: Cell<Option<bool>> = const { Cell::new(None) };
    }

    /// As PyTorch's; it throws where there is no block.
    extern "C-unwind" fn theirs(_object: *mut c_void, data: *const c_void, stream: CudaStream) {
        assert_eq!((stream.device_type, stream.device), (1, 3));
        SEEN.set(Some(stream_lasts()));
        if data.is_null() {
            panic!("no block");
        }
    }

    fn seen(id: i64, data: *const c_void) -> Option<bool> {
        THEIRS.get_or_init(|| theirs);
        SEEN.set(None);
        let done = catch_unwind(|| record(std::ptr::null_mut(), data, stream(id)));
        assert_eq!(done.is_err(), data.is_null());
        assert!(!stream_lasts(), "it is over");
        SEEN.get()
    }

    #[test]
    fn streams_of_pytorch_last_and_those_of_others_may_not() {
        let block = std::ptr::without_provenance(0x1000);
        for id in OWN.into_iter().chain([DEFAULT]) {
            assert_eq!(seen(id, block), Some(true), "{id}");
        }
        for id in EXTERNAL {
            assert_eq!(seen(id, block), Some(false), "{id}");
        }
        assert!(!stream_lasts(), "nothing is recorded");
    }

    #[test]
    fn what_is_thrown_ends_it() {
        assert_eq!(seen(OWN[0], std::ptr::null()), Some(true));
    }

    #[test]
    fn what_records_within_has_its_own() {
        let outer = Recording::begin(stream(OWN[0]));
        assert!(stream_lasts());
        drop(Recording::begin(stream(EXTERNAL[0])));
        assert!(stream_lasts(), "the outer one goes on");
        drop(outer);
        assert!(!stream_lasts());
    }
}
