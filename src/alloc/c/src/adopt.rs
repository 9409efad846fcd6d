//! What PyTorch's object for pluggable allocators refuses in C++, and there is nothing to set for it: how large a block may be, which
//! cuDNN's search for the fastest convolution asks (`torch.backends.cudnn.benchmark`), which part of a device's memory may be used,
//! [checkpoints](checkpoint) of private pools, which trees of CUDA graphs take, and [memory that processes share](sharing). And what it does not
//! pass on: whether a [stream](streams) that uses a block lasts.
//!
//! The object's functions are in a table of its class. It gets a copy of that, with ours in the place of those that refuse. They are found by
//! their names, wherever a version of PyTorch has them; where one is not found once, that one stays. Versions that were not
//! [tried](crate::trust) stay as they are.

mod checkpoint;
mod sharing;
pub(crate) mod streams;

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use gpumem::Allocator;

use crate::boundary::enter;
use crate::cxx::{self, BEFORE};
use crate::devices;
use crate::failure::Failure;
use crate::library::{self, Library};
use crate::trust;
pub(crate) use checkpoint::placed;

/// Where the class is, and where it was until 2.5.
const LIBRARIES: [&CStr; 2] = [c"libtorch_cuda.so", c"libtorch_python.so"];

/// `std::atomic<CUDAAllocator*> c10::cuda::CUDACachingAllocator::allocator`, of a library that it needs
const CURRENT: &CStr = c"_ZN3c104cuda20CUDACachingAllocator9allocatorE";

/// `vtable for torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator`
const TABLE: &CStr = c"_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE";

/// The class's name.
const NAME: &CStr = c"N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE";

/// `CUDAPluggableAllocator::cacheInfo(c10::DeviceIndex, size_t*)`
const CACHE_INFO: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator9cacheInfoEaPm";

/// `CUDAPluggableAllocator::getMemoryFraction(c10::DeviceIndex)`
const MEMORY_FRACTION: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator17getMemoryFractionEa";

/// What is replaced.
const REPLACED: [&CStr; 7] = [
    CACHE_INFO,
    MEMORY_FRACTION,
    streams::RECORD,
    checkpoint::GET,
    checkpoint::SET,
    sharing::SHARE,
    sharing::OPEN,
];

/// The table with ours in it.
static OURS: OnceLock<&'static [usize]> = OnceLock::new();

/// The library that has PyTorch's class for pluggable allocators, and that class's table.
pub(crate) fn class() -> Option<(Library, NonNull<c_void>)> {
    LIBRARIES.iter().find_map(|name| {
        let pytorch = Library::loaded(name)?;
        let table = pytorch.find(TABLE)?;
        Some((pytorch, table))
    })
}

/// A copy of the table that begins there; `None` where it is not the table of one class, all of it, and nothing else.
fn copied(pytorch: &Library, table: NonNull<c_void>) -> Option<Vec<usize>> {
    let bytes = pytorch.size_of(table)?;
    if bytes % size_of::<usize>() != 0 {
        return None;
    }
    // SAFETY: a table of that many words, which nothing writes to once the library is loaded.
    let table = unsafe { std::slice::from_raw_parts(table.cast::<usize>().as_ptr(), bytes / size_of::<usize>()) };
    let (before, functions) = table.split_at_checked(BEFORE)?;
    let code = library::code();
    let is_code = |function: &usize| code.iter().any(|code| code.contains(function));
    // What the class has is in its table.
    let has = |name: &&CStr| {
        pytorch
            .find(name)
            .is_none_or(|function| functions.contains(&function.addr().get()))
    };
    let [to_top, type_info] = *before else { return None };
    // SAFETY: a table has its class's there.
    let name = unsafe { cxx::type_name(type_info) };
    let whole = (to_top, name) == (0, Some(NAME)) && functions.iter().all(is_code) && REPLACED.iter().all(has);
    whole.then(|| table.to_vec())
}

/// The table that begins there, with ours in it; `None` where they have no place.
fn adopted(pytorch: &Library, table: NonNull<c_void>) -> Option<Vec<usize>> {
    let mut table = copied(pytorch, table)?;
    let place = |table: &[usize], name: &CStr| {
        let refuses = pytorch.find(name)?.addr().get();
        let mut places = (BEFORE..table.len()).filter(|at| table[*at] == refuses);
        let place = places.next()?;
        places.next().is_none().then_some(place)
    };
    let cache_info: extern "C-unwind" fn(*mut c_void, i8, *mut usize) = cache_info;
    let memory_fraction: extern "C-unwind" fn(*mut c_void, i8) -> f64 = memory_fraction;
    let mut ours = vec![
        (place(&table, CACHE_INFO), cache_info as usize),
        // Older versions have none.
        (place(&table, MEMORY_FRACTION), memory_fraction as usize),
    ];
    if let Some(record) = streams::replacement(pytorch) {
        ours.push((place(&table, streams::RECORD), record as usize));
    }
    // Of these one is nothing without the other. What they return is returned in memory: an x86-64 passes the address of that before all
    // else, and a 64-bit ARM where Rust cannot name it.
    let mut pair = |names: (&CStr, &CStr), functions: Option<(usize, usize)>| {
        if let (Some(first), Some(second)) = (place(&table, names.0), place(&table, names.1))
            && let Some(functions) = functions
        {
            ours.extend([(Some(first), functions.0), (Some(second), functions.1)]);
        }
    };
    if cfg!(target_arch = "x86_64") {
        let checkpoints = checkpoint::replacements(pytorch).map(|(get, set)| (get as usize, set as usize));
        pair((checkpoint::GET, checkpoint::SET), checkpoints);
        let sharing = sharing::replacements(pytorch).map(|(share, open)| (share as usize, open as usize));
        pair((sharing::SHARE, sharing::OPEN), sharing);
    }
    let mut any = false;
    for (place, function) in ours {
        if let Some(place) = place {
            (table[place], any) = (function, true);
        }
    }
    any.then_some(table)
}

#[unsafe(no_mangle)]
extern "C" fn gpumem_adopt_torch() -> c_int {
    enter("gpumem_adopt_torch", -1, || {
        let missing = || Failure::misuse("this process has no PyTorch whose class for pluggable allocators is known");
        let (pytorch, table) = class().ok_or_else(missing)?;
        trust::torch()?;
        let current = pytorch
            .find(CURRENT)
            .filter(|current| pytorch.size_of(*current) == Some(size_of::<AtomicPtr<AtomicPtr<usize>>>()))
            .ok_or_else(missing)?
            .cast::<AtomicPtr<AtomicPtr<usize>>>();
        // SAFETY: the variable of that name. What it points to is an object, which begins with the address of its functions, and lives as
        // long as it is the current one.
        let object = unsafe { current.as_ref().load(Ordering::Acquire).as_ref() }.ok_or_else(missing)?;
        let functions = object.load(Ordering::Relaxed);
        if OURS
            .get()
            .is_some_and(|ours| functions.addr() == ours[BEFORE..].as_ptr().addr())
        {
            return Ok(0);
        }
        let theirs = table.cast::<usize>().as_ptr().wrapping_add(BEFORE);
        if functions.addr() != theirs.addr() {
            return Err(Failure::misuse(
                "PyTorch's current allocator is not a pluggable one: call it after change_current_allocator()",
            ));
        }
        let ours = match OURS.get() {
            Some(ours) => *ours,
            None => {
                let made = adopted(&pytorch, table).ok_or_else(missing)?;
                // For the process's life, as the object may live so long.
                OURS.get_or_init(|| made.leak())
            }
        };
        object.store(ours[BEFORE..].as_ptr().cast_mut(), Ordering::Release);
        sharing::collect_in_time(&pytorch);
        Ok(0)
    })
}

fn opened(device: i8) -> Result<&'static Allocator, Failure> {
    devices::not_forked()?;
    let device = c_int::from(device);
    devices::place(device)?.open(device)
}

/// As PyTorch's own allocator: the largest block that is free in the cache, or what the driver has where nothing larger is asked about.
extern "C-unwind" fn cache_info(_object: *mut c_void, device: i8, largest: *mut usize) {
    enter("cacheInfo", (), || {
        let allocator = opened(device)?;
        // SAFETY: PyTorch passes one that it reads afterwards.
        let Some(largest) = (unsafe { largest.as_mut() }) else {
            return Ok(());
        };
        if *largest == 0 {
            let taken = allocator.stats().all().reserved_bytes.current;
            let room = allocator
                .budget()
                .map_or(u64::MAX, |budget| budget.saturating_sub(taken));
            *largest = allocator.device().memory().map_err(gpumem::Error::from)?.free.min(room) as usize;
        }
        *largest = (*largest).max(allocator.free_blocks().largest as usize);
        Ok(())
    });
}

extern "C-unwind" fn memory_fraction(_object: *mut c_void, device: i8) -> f64 {
    enter("getMemoryFraction", 1.0, || {
        let allocator = opened(device)?;
        let total = allocator.device().info().total;
        Ok(allocator.budget().map_or(1.0, |budget| budget as f64 / total as f64))
    })
}
