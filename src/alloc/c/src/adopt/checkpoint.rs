//! Checkpoints of private pools, which PyTorch's trees of CUDA graphs take (`torch.compile` with `mode="reduce-overhead"`): what is held
//! when a graph was captured, so that the next one can be captured around that, whatever was replayed meanwhile.
//!
//! They go to PyTorch and come back as a `std::shared_ptr` of a class with virtual functions, and what was restored as two `std::vector`s.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpumem::{Pool, PoolBlock, Uncancelled};

use crate::boundary::attempt;
use crate::cxx::{BEFORE, Cxx, SharedPtr, TypeInfo, Vector};
use crate::failure::Failure;
use crate::library::Library;
use crate::pools::{self, PoolId};
use crate::throw;

/// `CUDAPluggableAllocator::getCheckpointState(c10::DeviceIndex, at::cuda::MempoolId_t)`
pub(super) const GET: &CStr =
    c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator18getCheckpointStateEaSt4pairIyyE";

/// `CUDAPluggableAllocator::setCheckpointPoolState(c10::DeviceIndex, std::shared_ptr<AllocatorState>)`
pub(super) const SET: &CStr = c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator22setCheckpointPoolStateEaSt10shared_ptrIN3c104cuda20CUDACachingAllocator14AllocatorStateEE";

/// What takes [`GET`]'s place: its result, the object, a device, a pool.
pub(super) type Get = extern "C-unwind" fn(*mut SharedPtr<State>, *mut c_void, i8, PoolId) -> *mut SharedPtr<State>;
/// What takes [`SET`]'s place. A class that is destroyed by who calls is passed by its address.
pub(super) type Set = extern "C-unwind" fn(*mut Delta, *mut c_void, i8, *const SharedPtr<State>) -> *mut Delta;

type Malloc = unsafe extern "C-unwind" fn(*mut c_void, usize, i8, *mut c_void) -> *mut c_void;
type RawDelete = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type Deleter = unsafe extern "C-unwind" fn(*mut c_void);
type RawDeleter = unsafe extern "C-unwind" fn(*const c_void) -> Deleter;

/// PyTorch's own that it takes: who allocates and frees behind its back has it know less than there is.
struct Pytorch {
    /// `CUDAPluggableAllocator::malloc(size_t, c10::DeviceIndex, cudaStream_t)`
    malloc: Malloc,
    /// `CUDAPluggableAllocator::raw_delete(void*)`
    raw_delete: RawDelete,
    /// `CUDAPluggableAllocator::raw_deleter() const`
    raw_deleter: RawDeleter,
    cxx: Cxx,
    state_functions: StateFunctions,
}

static PYTORCH: OnceLock<Pytorch> = OnceLock::new();

/// What takes the places of [`GET`] and [`SET`], if there is all that it takes.
pub(super) fn replacements(pytorch: &Library) -> Option<(Get, Set)> {
    if PYTORCH.get().is_none() {
        let found = Pytorch::find(pytorch)?;
        PYTORCH.get_or_init(|| found);
    }
    Some((get, set))
}

impl Pytorch {
    fn find(pytorch: &Library) -> Option<Pytorch> {
        // SAFETY: what has such a name is a function of the type that its field has.
        unsafe {
            Some(Pytorch {
                malloc: pytorch.function(
                    c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator6mallocEmaP11CUstream_st",
                )?,
                raw_delete: pytorch
                    .function(c"_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator10raw_deleteEPv")?,
                raw_deleter: pytorch
                    .function(c"_ZNK5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator11raw_deleterEv")?,
                cxx: Cxx::find(pytorch)?,
                state_functions: StateFunctions::find(pytorch)?,
            })
        }
    }
}

/// A class derived from `AllocatorState`, which has nothing but a virtual destructor.
#[repr(C)]
pub(super) struct State {
    functions: *const [extern "C" fn(*mut State); 2],
    device: c_int,
    id: PoolId,
    held: Vec<PoolBlock>,
}

/// Its table: how far an object is from its beginning, its type, and its destructors, of which there are two in the ABI.
#[repr(C)]
struct StateFunctions {
    to_top: isize,
    type_info: usize,
    destructors: [extern "C" fn(*mut State); 2],
}

const TYPE_NAME: &CStr = c"N6gpumem10CheckpointE";

impl StateFunctions {
    /// PyTorch's Python asks of what type the object is. No class that it knows.
    fn find(pytorch: &Library) -> Option<StateFunctions> {
        static TYPE: OnceLock<TypeInfo> = OnceLock::new();
        // `vtable for __cxxabiv1::__class_type_info`
        let functions = pytorch.find(c"_ZTVN10__cxxabiv117__class_type_infoE")?;
        let type_info = TYPE.get_or_init(|| TypeInfo {
            functions: functions.addr().get() + BEFORE * size_of::<usize>(),
            name: TYPE_NAME.as_ptr().expose_provenance(),
        });
        Some(StateFunctions {
            to_top: 0,
            type_info: std::ptr::from_ref(type_info).expose_provenance(),
            destructors: [none_to_destroy; 2],
        })
    }
}

/// It goes with what counts its users.
extern "C" fn none_to_destroy(_state: *mut State) {}

/// `c10::DataPtr`: an address, a `std::unique_ptr` with its deleter, and a device.
#[repr(C)]
struct DataPtr {
    data: *mut c_void,
    deleter: Deleter,
    context: *mut c_void,
    device_type: i8,
    device: i8,
}

/// `c10::DeviceType::CUDA`
const CUDA: i8 = 1;

/// `c10::cuda::CUDACachingAllocator::CheckpointDelta`: what was held before, and what is now.
#[repr(C)]
pub(super) struct Delta {
    freed: Vector<*mut c_void>,
    allocated: Vector<DataPtr>,
}

fn pointer(addr: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(addr as usize)
}

extern "C-unwind" fn get(
    result: *mut SharedPtr<State>,
    _object: *mut c_void,
    device: i8,
    id: PoolId,
) -> *mut SharedPtr<State> {
    let call = "getCheckpointState";
    let got = attempt(call, || {
        let _undisturbed = Uncancelled::begin();
        let pytorch = PYTORCH.get().ok_or_else(|| Failure::misuse("PyTorch is gone"))?;
        let device = c_int::from(device);
        let state = State {
            functions: &raw const pytorch.state_functions.destructors,
            device,
            id,
            held: pools::pool(device, id)?.held(),
        };
        Ok(SharedPtr::new(state, std::ptr::from_ref))
    });
    let got = got.unwrap_or_else(|failure| {
        throw::as_pytorch(call, &failure);
        SharedPtr::NULL
    });
    // SAFETY: room for one, of who calls.
    unsafe { result.write(got) };
    result
}

extern "C-unwind" fn set(
    result: *mut Delta,
    object: *mut c_void,
    device: i8,
    state: *const SharedPtr<State>,
) -> *mut Delta {
    let call = "setCheckpointPoolState";
    let set = attempt(call, || {
        let _undisturbed = Uncancelled::begin();
        let pytorch = PYTORCH.get().ok_or_else(|| Failure::misuse("PyTorch is gone"))?;
        // SAFETY: a shared pointer of who calls; what it points to lives as long.
        let state = unsafe { state.as_ref().and_then(|shared| shared.object.as_ref()) };
        let ours = &raw const pytorch.state_functions.destructors;
        let state = state.filter(|state| std::ptr::eq(state.functions, ours));
        let state = state.ok_or_else(|| Failure::misuse("the state is no checkpoint of this allocator's"))?;
        if state.device != c_int::from(device) {
            let text = format!("the checkpoint is one of device {}, not of {device}", state.device);
            return Err(Failure::misuse(text));
        }
        let pool = pools::pool(state.device, state.id)?;
        let held = pool.held();
        let change = Change::between(&held, state);
        change.prepare(&pool)?;
        Ok((pytorch, state, pool, held, change))
    });
    // Not within an attempt: PyTorch's functions may throw, and this is unwound then.
    let set = set.and_then(|(pytorch, state, pool, held, change)| {
        let done = change.carry_out(pytorch, object, &pool, state);
        attempt(call, || done)?;
        Ok((pytorch, state, held))
    });
    let set = match set {
        Ok((pytorch, state, held)) => {
            // SAFETY: its function, which looks at the object alone.
            let deleter = unsafe { (pytorch.raw_deleter)(object) };
            let data = |block: &PoolBlock| DataPtr {
                data: pointer(block.addr),
                deleter,
                context: pointer(block.addr),
                device_type: CUDA,
                device,
            };
            Delta {
                freed: Vector::of(&pytorch.cxx, held.iter().map(|block| pointer(block.addr))),
                allocated: Vector::of(&pytorch.cxx, state.held.iter().map(data)),
            }
        }
        Err(failure) => {
            throw::as_pytorch(call, &failure);
            Delta {
                freed: Vector::NONE,
                allocated: Vector::NONE,
            }
        }
    };
    // SAFETY: room for one, of who calls.
    unsafe { result.write(set) };
    result
}

/// What is to be given back, and what to be taken, for a pool to hold what a state says.
struct Change<'a> {
    gives: Vec<PoolBlock>,
    takes: Vec<&'a PoolBlock>,
}

impl Change<'_> {
    fn between<'a>(held: &[PoolBlock], state: &'a State) -> Change<'a> {
        let stays = |block: &PoolBlock, among: &[PoolBlock]| {
            let at = among.binary_search_by_key(&block.addr, |other| other.addr);
            at.is_ok_and(|at| (among[at].bytes, among[at].stream) == (block.bytes, block.stream))
        };
        Change {
            gives: held
                .iter()
                .filter(|block| !stays(block, &state.held))
                .copied()
                .collect(),
            takes: state.held.iter().filter(|block| !stays(block, held)).collect(),
        }
    }

    /// Takes what can be taken before anything is given back, so that where something cannot be had nothing has changed.
    fn prepare(&self, pool: &Pool) -> Result<(), Failure> {
        let mut taken: Vec<u64> = Vec::new();
        for block in &self.takes {
            let done = match self.is_in_the_way(block) {
                // What is given back there is free at once then.
                true => pool.allocator().settle(),
                false => pool.alloc_raw_at(block).inspect(|()| taken.push(block.addr)),
            };
            if let Err(error) = done {
                for addr in taken {
                    pool.allocator().free_raw(addr)?;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Whether what is to be given back is where a block is to be.
    fn is_in_the_way(&self, block: &PoolBlock) -> bool {
        let overlaps =
            |other: &PoolBlock| other.addr < block.addr + block.bytes && block.addr < other.addr + other.bytes;
        self.gives.iter().any(overlaps)
    }

    /// Has PyTorch give back and take, which may throw.
    fn carry_out(&self, pytorch: &Pytorch, object: *mut c_void, pool: &Pool, state: &State) -> Result<(), Failure> {
        for block in &self.gives {
            // SAFETY: the object, and what it handed out.
            unsafe { (pytorch.raw_delete)(object, pointer(block.addr)) };
        }
        let mut takes = self.takes.iter();
        while let Some(block) = takes.next() {
            let is_taken = !self.is_in_the_way(block);
            let placing = Placing::begin(state.device, state.id, **block, is_taken);
            let stream = std::ptr::with_exposed_provenance_mut(block.stream.handle() as usize);
            // SAFETY: the object, which asks `gpumem_torch_alloc`.
            let got = unsafe { (pytorch.malloc)(object, block.requested as usize, state.device as i8, stream) };
            drop(placing);
            if got.addr() as u64 != block.addr {
                // SAFETY: the object, and what it handed out.
                unsafe { (pytorch.raw_delete)(object, got) };
                let prepared = std::iter::once(block).chain(takes);
                for block in prepared.filter(|block| !self.is_in_the_way(block)) {
                    pool.allocator().free_raw(block.addr)?;
                }
                return Err(Failure::misuse(
                    "PyTorch's allocator is to be made with gpumem_torch_alloc",
                ));
            }
        }
        Ok(())
    }
}

/// Threads that [place](placed) something.
static PLACING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Where the next block of this thread is to be, and whether it is taken already.
    static PLACE: Cell<Option<(c_int, PoolId, PoolBlock, bool)>> = const { Cell::new(None) };
}

/// The calling thread's next allocation is a certain block of a pool.
struct Placing;

impl Placing {
    fn begin(device: c_int, id: PoolId, block: PoolBlock, is_taken: bool) -> Placing {
        PLACE.set(Some((device, id, block, is_taken)));
        PLACING.fetch_add(1, Ordering::Relaxed);
        Placing
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        PLACING.fetch_sub(1, Ordering::Relaxed);
        PLACE.set(None);
    }
}

/// What the calling thread is given for whatever it asks, if that is a certain block.
#[inline]
pub(crate) fn placed() -> Option<Result<*mut c_void, Failure>> {
    match PLACING.load(Ordering::Relaxed) {
        0 => None,
        _ => placed_now(),
    }
}

#[cold]
fn placed_now() -> Option<Result<*mut c_void, Failure>> {
    let (device, id, block, is_taken) = PLACE.take()?;
    let _undisturbed = Uncancelled::begin();
    if is_taken {
        return Some(Ok(pointer(block.addr)));
    }
    Some(pools::pool(device, id).and_then(|pool| {
        pool.alloc_raw_at(&block)?;
        Ok(pointer(block.addr))
    }))
}
