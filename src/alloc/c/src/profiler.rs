//! PyTorch's profiler: `torch.profiler.profile(profile_memory=True)` knows of a device's memory what allocators tell it.

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::OnceLock;

use gpumem::Uncancelled;

use crate::library::Library;
use crate::{devices, exit};

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

type Enabled = unsafe extern "C-unwind" fn() -> bool;
type Report = unsafe extern "C-unwind" fn(*mut c_void, i64, usize, usize, TheirDevice);
type ReportOutOfMemory = unsafe extern "C-unwind" fn(i64, usize, usize, TheirDevice);

/// What `c10/core/Allocator.h` declares.
struct Profiler {
    /// `bool memoryProfilingEnabled()`, of the calling thread: some nanoseconds.
    enabled: Enabled,
    /// `void reportMemoryUsageToProfiler(void* ptr, int64_t bytes, size_t allocated, size_t reserved, Device)`
    report: Report,
    /// `void reportOutOfMemoryToProfiler(int64_t bytes, size_t allocated, size_t reserved, Device)`
    report_out_of_memory: ReportOutOfMemory,
}

/// `None` where the process has no PyTorch, or one with other functions.
static PROFILER: OnceLock<Option<Profiler>> = OnceLock::new();

impl Profiler {
    fn find() -> Option<Profiler> {
        let pytorch = Library::loaded(LIBRARY)?;
        let enabled = pytorch.find(c"_ZN3c1022memoryProfilingEnabledEv")?;
        let report = pytorch.find(c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")?;
        let report_out_of_memory = pytorch.find(c"_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")?;
        // SAFETY: the functions with these mangled names, which spell their arguments.
        unsafe {
            Some(Profiler {
                enabled: transmute::<NonNull<c_void>, Enabled>(enabled),
                report: transmute::<NonNull<c_void>, Report>(report),
                report_out_of_memory: transmute::<NonNull<c_void>, ReportOutOfMemory>(report_out_of_memory),
            })
        }
    }

    /// Where the calling thread is looked at, with what the device's allocator has allocated and reserved.
    #[inline]
    fn tell(&self, device: c_int, by: impl FnOnce(&Profiler, usize, usize, TheirDevice)) {
        // SAFETY: it takes nothing.
        if unsafe { (self.enabled)() } {
            self.tell_now(device, by);
        }
    }

    #[cold]
    fn tell_now(&self, device: c_int, by: impl FnOnce(&Profiler, usize, usize, TheirDevice)) {
        let _undisturbed = Uncancelled::begin();
        // A child that was forked while the profiler looked at its parent has it still, and nothing to tell of.
        if devices::is_forked() {
            return;
        }
        let allocator = devices::place(device).ok().and_then(|place| place.allocator());
        let (Some(allocator), Ok(index)) = (allocator, i8::try_from(device)) else {
            return;
        };
        let figures = allocator.stats().all();
        let theirs = TheirDevice { kind: CUDA, index };
        let [allocated, reserved] = [figures.allocated_bytes, figures.reserved_bytes].map(|stat| stat.current as usize);
        by(self, allocated, reserved, theirs);
    }
}

/// `size` bytes were handed out.
#[inline]
pub(crate) fn took(ptr: *mut c_void, size: usize, device: c_int) {
    // Not looked for under a lock: the dynamic loader has one of its own, and who holds that may wait for us.
    let found = match PROFILER.get() {
        Some(found) => found,
        None => {
            let found = Profiler::find();
            PROFILER.get_or_init(|| found)
        }
    };
    if let Some(profiler) = found {
        // SAFETY: it notes numbers.
        profiler.tell(device, |profiler, allocated, reserved, theirs| unsafe {
            (profiler.report)(ptr, size as i64, allocated, reserved, theirs);
        });
    }
}

/// They are given back in a moment: later another thread may have told of who is there next.
#[inline]
pub(crate) fn gives(ptr: *mut c_void, size: usize, device: c_int) {
    if let Some(Some(profiler)) = PROFILER.get()
        && !exit::is_here()
    {
        // SAFETY: it notes numbers.
        profiler.tell(device, |profiler, allocated, reserved, theirs| unsafe {
            (profiler.report)(ptr, -(size as i64), allocated.saturating_sub(size), reserved, theirs);
        });
    }
}

/// There were none.
pub(crate) fn ran_out(size: usize, device: c_int) {
    if let Some(Some(profiler)) = PROFILER.get() {
        // SAFETY: it notes numbers.
        profiler.tell(device, |profiler, allocated, reserved, theirs| unsafe {
            (profiler.report_out_of_memory)(size as i64, allocated, reserved, theirs);
        });
    }
}
