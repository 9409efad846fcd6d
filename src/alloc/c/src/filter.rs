//! A `std::function<bool(cudaStream_t)>` of the program's, by which PyTorch says which streams a pool is for.
//!
//! Its layout is that of GNU's libstdc++, part of its ABI since GCC 4: room for what is called, then `_M_manager`, which copies and
//! destroys that, then `_M_invoker`, which calls it (`bits/std_function.h`). PyTorch's Linux builds use no other library.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

use gpumem::{Route, Stream};
use std::sync::Arc;

use crate::failure::Failure;
use crate::graphs::{self, Capturing};
use crate::{adopt, trust};

/// `std::_Any_data`
type Data = [usize; 2];
// What they throw ends the process where the call from C ends, which is no undefined behaviour.
type Manager = unsafe extern "C-unwind" fn(*mut Data, *const Data, c_int) -> bool;
type Invoker = unsafe extern "C-unwind" fn(*const Data, *mut *mut c_void) -> bool;

const CLONE: c_int = 2;
const DESTROY: c_int = 3;

/// `std::function<bool(cudaStream_t)>`
#[repr(C)]
struct Function {
    data: Data,
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

/// A copy of one: the program's own goes when the call returns.
struct Filter {
    data: Data,
    manager: Manager,
    invoker: Invoker,
}

// SAFETY: PyTorch's filters look at the thread or ask CUDA about the stream; PyTorch calls them from any thread itself.
unsafe impl Send for Filter {}
// SAFETY: as above.
unsafe impl Sync for Filter {}

impl Filter {
    fn accepts(&self, stream: Stream) -> bool {
        let mut handle: *mut c_void = std::ptr::with_exposed_provenance_mut(stream.handle() as usize);
        // SAFETY: a copy made by its own manager, called as libstdc++ calls it.
        unsafe { (self.invoker)(&raw const self.data, &raw mut handle) }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: the copy is destroyed once, by its own manager.
        unsafe { (self.manager)(&raw mut self.data, &raw const self.data, DESTROY) };
    }
}

/// `CUDAPluggableAllocator::set_begin_allocate_to_pool(std::function<void(int, MempoolId_t, std::function<bool(cudaStream_t)>)>)`, which sets
/// what passes filters on.
const PASSES_FILTERS: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator26set_begin_allocate_to_poolESt8functionIFviSt4pairIyyES3_IFbP11CUstream_stEEEE";

/// Whether filters are what they are taken for, if they are PyTorch's.
pub(crate) fn is_known() -> Result<(), Failure> {
    trust::torch()?;
    match adopt::class() {
        Some((pytorch, _)) if pytorch.find(PASSES_FILTERS).is_none() => Err(Failure::misuse(
            "this PyTorch passes other filters on than a std::function<bool(cudaStream_t)> of libstdc++",
        )),
        _ => Ok(()),
    }
}

/// Which requests a filter says yes to; all of the calling thread if there is none. On a device where the thread may begin a capture of
/// PyTorch's, it is that capture's filter if it refuses its stream now: else it does not depend on captures.
///
/// # Safety
///
/// `filter` is null or points to a `std::function<bool(cudaStream_t)>` of libstdc++.
pub(crate) unsafe fn route(device: c_int, filter: *const c_void) -> Result<Route, Failure> {
    let filter = filter.cast::<Function>();
    if filter.is_null() {
        return Ok(Route::ThisThread);
    }
    if !filter.is_aligned() {
        return Err(Failure::misuse("the filter is no std::function"));
    }
    // SAFETY: not null and aligned, so a function by this function's contract.
    let function = unsafe { &*filter };
    let (Some(manager), Some(invoker)) = (function.manager, function.invoker) else {
        return Err(Failure::misuse("the filter is an empty std::function"));
    };
    let mut data = MaybeUninit::<Data>::zeroed();
    // SAFETY: copies what is called into room for it.
    unsafe { manager(data.as_mut_ptr(), &raw const function.data, CLONE) };
    let filter = Filter {
        // SAFETY: zeroed, and then written by the manager as far as it needs.
        data: unsafe { data.assume_init() },
        manager,
        invoker,
    };
    let captured = graphs::stream(device, invoker as *const c_void).filter(|begins| !filter.accepts(begins.stream));
    let filter = Arc::new(move |stream| filter.accepts(stream));
    Ok(match captured {
        Some(Capturing { stream, lasts }) => Route::Capture { stream, lasts, filter },
        None => Route::Filter(filter),
    })
}
