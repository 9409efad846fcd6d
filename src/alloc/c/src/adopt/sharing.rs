//! Memory that PyTorch's processes share, as `torch.multiprocessing` passes tensors on: by CUDA's handle where it is one piece of the
//! driver's, written as PyTorch's own allocator writes it, and else chunk by chunk ([`share`](crate::share)).

use std::ffi::{CStr, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use gpumem::{Imported, IpcHandle, Uncancelled, set_free_memory_callback};

use crate::boundary::attempt;
use crate::cxx::{Cxx, CxxString, SharedPtr};
use crate::failure::Failure;
use crate::library::Library;
use crate::{devices, exit, share, throw};

/// `CUDAPluggableAllocator::shareIpcHandle(void*)`
pub(super) const SHARE: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator14shareIpcHandleEPv";

/// `CUDAPluggableAllocator::getIpcDevPtr(std::string)`
pub(super) const OPEN: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator12getIpcDevPtrENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

/// What takes [`SHARE`]'s place: its result, the object, a block.
pub(super) type Share = extern "C-unwind" fn(*mut ShareableHandle, *mut c_void, *mut c_void) -> *mut ShareableHandle;
/// What takes [`OPEN`]'s place. A class that is destroyed by who calls is passed by its address.
pub(super) type Open =
    extern "C-unwind" fn(*mut SharedPtr<c_void>, *mut c_void, *const CxxString) -> *mut SharedPtr<c_void>;

/// `c10::cuda::CUDACachingAllocator::ShareableHandle`
#[repr(C)]
pub(super) struct ShareableHandle {
    offset: isize,
    handle: CxxString,
}

/// `c10::DeviceIndex c10::cuda::current_device()`
type CurrentDevice = unsafe extern "C-unwind" fn() -> i8;

/// `bool torch::CudaIPCCollect()`
type Collect = unsafe extern "C-unwind" fn() -> bool;

struct Pytorch {
    cxx: Cxx,
    current_device: CurrentDevice,
}

static PYTORCH: OnceLock<Pytorch> = OnceLock::new();

static COLLECT: OnceLock<Collect> = OnceLock::new();

/// Has PyTorch look, before more memory is taken, which of the tensors that it gave back are not used by other processes any more: their
/// memory stays for as long as they are, and it looks only when another one that was shared is given back. It asks its own allocator to
/// have it do so at such times, which pluggable ones are not.
pub(super) fn collect_in_time(pytorch: &Library) {
    // SAFETY: the function of that name.
    if let Some(found) = unsafe { pytorch.function::<Collect>(c"_ZN5torch14CudaIPCCollectEv") } {
        COLLECT.get_or_init(|| found);
        set_free_memory_callback(Some(collect));
    }
}

fn collect() {
    // At the end there is ever less of PyTorch.
    if exit::has_begun() || devices::is_forked() {
        return;
    }
    if let Some(collect) = COLLECT.get() {
        // SAFETY: its function. It gives blocks back, by ours, and does not throw.
        unsafe { collect() };
    }
}

/// What takes the places of [`SHARE`] and [`OPEN`], if there is all that it takes.
pub(super) fn replacements(pytorch: &Library) -> Option<(Share, Open)> {
    if PYTORCH.get().is_none() {
        let found = Pytorch {
            cxx: Cxx::find(pytorch)?,
            // SAFETY: the function of that name.
            current_device: unsafe { pytorch.function(c"_ZN3c104cuda14current_deviceEv") }?,
        };
        PYTORCH.get_or_init(|| found);
    }
    Some((share, open))
}

/// A handle begins as PyTorch's do (seen of 2.11): with the version of how it is written, and what it is of. The next one has the same for
/// what is in one piece.
const VERSION: u8 = 2;
const NEXT_VERSION: u8 = 3;
/// Memory of the driver's in one piece: an [`IpcHandle`] follows.
const WHOLE: u8 = b'c';
/// Chunks of this allocator's: a [`share::Handle`] follows.
const CHUNKS: u8 = b'g';

/// Where a block begins in what is shared, and the handle of that.
fn handle_of(ptr: *mut c_void) -> Result<(u64, Vec<u8>), Failure> {
    let _undisturbed = Uncancelled::begin();
    devices::not_forked()?;
    let addr = ptr.addr() as u64;
    let owner = devices::owner(addr);
    let (device, allocator) = owner.ok_or_else(|| Failure::misuse(format!("{ptr:p} is not a live allocation")))?;
    let shared = allocator.share_raw(addr)?;
    let handle = match shared.ipc_handle() {
        Some(whole) => [&[VERSION, WHOLE], &whole.map_err(gpumem::Error::from)?[..]].concat(),
        None => {
            let handle = share::handle(device as u32, addr, &shared)?;
            [&[VERSION, CHUNKS], &handle.to_bytes()[..]].concat()
        }
    };
    Ok((shared.offset(), handle))
}

extern "C-unwind" fn share(
    result: *mut ShareableHandle,
    _object: *mut c_void,
    ptr: *mut c_void,
) -> *mut ShareableHandle {
    let call = "shareIpcHandle";
    let Some(Pytorch { cxx, .. }) = PYTORCH.get() else {
        return result;
    };
    let (offset, handle) = attempt(call, || handle_of(ptr)).unwrap_or_else(|failure| {
        throw::as_pytorch(call, &failure);
        (0, Vec::new())
    });
    // SAFETY: room for one, of who calls.
    unsafe {
        (&raw mut (*result).offset).write(offset as isize);
        CxxString::write(cxx, &raw mut (*result).handle, &handle);
    }
    result
}

/// Memory of another process, until nobody has it here.
struct Opened(ManuallyDrop<Imported>);

impl Drop for Opened {
    fn drop(&mut self) {
        // Whatever is left of CUDA, it goes with the process.
        if exit::is_here() || devices::is_forked() {
            return;
        }
        // SAFETY: once.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

/// What is shared by a handle, on the current device.
fn opened(handle: &[u8], device: c_int) -> Result<Imported, Failure> {
    let allocator = devices::place(device)?.open(device)?;
    match handle {
        [VERSION | NEXT_VERSION, WHOLE, whole @ ..] => {
            let odd = || Failure::misuse(format!("a handle of {} bytes is none", handle.len()));
            let whole: &IpcHandle = whole.try_into().map_err(|_| odd())?;
            Ok(allocator.open_ipc(whole).map_err(gpumem::Error::from)?)
        }
        [VERSION, CHUNKS, chunks @ ..] => {
            let handle = share::Handle::from_bytes(chunks);
            let handle = handle.ok_or_else(|| Failure::misuse("the handle of another version's chunks"))?;
            share::fetch(allocator, &handle)
        }
        _ => Err(Failure::misuse(
            "the memory is in expandable segments of PyTorch's allocator, or of another version's: have the process that shares it \
             use this allocator, too, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False",
        )),
    }
}

extern "C-unwind" fn open(
    result: *mut SharedPtr<c_void>,
    _object: *mut c_void,
    handle: *const CxxString,
) -> *mut SharedPtr<c_void> {
    let call = "getIpcDevPtr";
    // SAFETY: its function. It may throw, and this is unwound then.
    let device = PYTORCH.get().map(|pytorch| unsafe { (pytorch.current_device)() });
    let opened = attempt(call, || {
        let _undisturbed = Uncancelled::begin();
        let device = device.ok_or_else(|| Failure::misuse("PyTorch is gone"))?;
        // SAFETY: a string of who calls.
        let handle = unsafe { handle.as_ref() }.ok_or_else(|| Failure::misuse("no handle was given"))?;
        opened(handle.bytes(), c_int::from(device))
    });
    let opened = opened.map(|imported| {
        let opened = Opened(ManuallyDrop::new(imported));
        SharedPtr::new(opened, |opened| std::ptr::without_provenance(opened.0.addr() as usize))
    });
    let opened = opened.unwrap_or_else(|failure| {
        throw::as_pytorch(call, &failure);
        SharedPtr::NULL
    });
    // SAFETY: room for one, of who calls.
    unsafe { result.write(opened) };
    result
}
