//! PyTorch's profiler: `torch.profiler.profile(profile_memory=True)` knows of a device's memory what allocators tell it.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use gpumem::{Allocator, Uncancelled};

use crate::library::Library;
use crate::{devices, exit, trust};

const LIBRARY: &CStr = c"libc10.so";

/// `c10::Device`, which is passed in a register.
#[repr(C)]
#[derive(Clone, Copy)]
struct TheirDevice {
    kind: i8,
    index: i8,
}

/// `c10::DeviceType::CUDA`
const CUDA: i8 = 1;

/// What `c10/core/Allocator.h` declares.
struct Profiler {
    /// `bool memoryProfilingEnabled()`, of the calling thread: some nanoseconds.
    enabled: unsafe extern "C-unwind" fn() -> bool,
    /// `void reportMemoryUsageToProfiler(void* ptr, int64_t bytes, size_t allocated, size_t reserved, Device)`
    report: unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, TheirDevice),
    /// `void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device)`
    report_out_of_memory: unsafe extern "C-unwind" fn(i64, usize, usize, TheirDevice),
}

/// `None` where the process has no PyTorch, or one with other functions or of a version that was not tried.
static PROFILER: OnceLock<Option<Profiler>> = OnceLock::new();

impl Profiler {
    fn find() -> Option<Profiler> {
        let pytorch = Library::loaded(LIBRARY)?;
        trust::torch().ok()?;
        // SAFETY: the functions with these mangled names, which spell their arguments.
        unsafe {
            Some(Profiler {
                enabled: pytorch.function(c"_ZN3c1022memoryProfilingEnabledEv")?,
                report: pytorch.function(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")?,
                report_out_of_memory: pytorch.function(c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")?,
            })
        }
    }

    /// Where the calling thread is looked at.
    #[inline]
    fn looks(&self) -> bool {
        // SAFETY: it takes nothing.
        unsafe { (self.enabled)() }
    }
}

/// Not looked for under a lock: the dynamic loader has one of its own, and who holds that may wait for us.
#[inline]
fn profiler() -> Option<&'static Profiler> {
    let found = match PROFILER.get() {
        Some(found) => found,
        None => {
            let found = Profiler::find();
            PROFILER.get_or_init(|| found)
        }
    };
    found.as_ref()
}

/// What the profiler is told beside a block.
struct Now {
    allocator: &'static Allocator,
    allocated: u64,
    reserved: u64,
    theirs: TheirDevice,
}

/// `None` where there is nothing to tell of: in a forked child, which has its parent's profiler still, too.
fn now(device: c_int) -> Option<Now> {
    devices::not_forked().ok()?;
    let allocator = devices::place(device).ok()?.allocator()?;
    let figures = allocator.stats().all();
    Some(Now {
        allocator,
        allocated: figures.allocated_bytes.current,
        reserved: figures.reserved_bytes.current,
        theirs: TheirDevice {
            kind: CUDA,
            index: i8::try_from(device).ok()?,
        },
    })
}

/// A block was handed out.
#[inline]
pub(crate) fn took(ptr: *mut c_void, device: c_int) {
    if let Some(profiler) = profiler()
        && profiler.looks()
    {
        tell(profiler, ptr, device, true);
    }
}

/// It is given back in a moment: later another thread may have told of who is there next.
#[inline]
pub(crate) fn gives(ptr: *mut c_void, device: c_int) {
    // Who gives back has taken, and has looked for it.
    if let Some(Some(profiler)) = PROFILER.get()
        && !exit::is_here()
        && profiler.looks()
    {
        tell(profiler, ptr, device, false);
    }
}

#[cold]
fn tell(profiler: &Profiler, ptr: *mut c_void, device: c_int, taken: bool) {
    let _undisturbed = Uncancelled::begin();
    let Some(now) = now(device) else { return };
    // What is not of this allocator is no block.
    let Ok(bytes) = now.allocator.bytes_of_raw(ptr.addr() as u64) else {
        return;
    };
    let (change, allocated) = match taken {
        true => (bytes as i64, now.allocated),
        false => (-(bytes as i64), now.allocated.saturating_sub(bytes)),
    };
    // SAFETY: it notes numbers.
    unsafe { (profiler.report)(ptr, change, allocated as usize, now.reserved as usize, now.theirs) };
}

/// There were no `size` bytes.
pub(crate) fn ran_out(size: usize, device: c_int) {
    let _undisturbed = Uncancelled::begin();
    if let Some(profiler) = profiler()
        && profiler.looks()
        && let Some(now) = now(device)
    {
        // SAFETY: it notes numbers.
        unsafe {
            (profiler.report_out_of_memory)(size as i64, now.allocated as usize, now.reserved as usize, now.theirs);
        }
    }
}
