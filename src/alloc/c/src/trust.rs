//! Which versions of PyTorch are known from inside.
//!
//! A mangled C++ name spells a function's arguments. A function whose name is not found is not called. No name spells a class's layout or a
//! function's return type. These are known for the versions that were [tried](TRIED) and assumed for no other.
//!
//! | what is taken for granted | where | checked beside the version |
//! |---|---|---|
//! | the table of `CUDAPluggableAllocator`, and that an object begins with its address | `adopt` | its symbol's size, its first two words (the class by its name), that all others are code, that what is replaced is there once; places are found by address, not counted |
//! | the variable of the current allocator | `adopt` | its symbol's size |
//! | `DataPtr`, `CheckpointDelta`, the table of `AllocatorState` | `adopt::checkpoint` | the names of all that it takes; `DeviceIndex` is spelled in them |
//! | `ShareableHandle`, what `current_device` returns | `adopt::sharing` | the names of all that it takes |
//! | `CUDAStream`, and what its number says | `adopt::streams` | the functions' names; that the one which is replaced is in the table once |
//! | `std::function`, and that filters are of this type | `filter` | the name of what passes them on, which spells it |
//! | `SourceLocation`, the table of `OutOfMemoryError` | `throw::out_of_memory` | the sizes of both tables, and that the type has one base at its beginning |
//! | `Device` in a register | `profiler` | the functions' names |
//!
//! `std::string`, `std::vector`, `std::shared_ptr` and `std::function` are those of GNU libstdc++, which has kept one layout of each since GCC 5.
//! Names with `St` and `__cxx11` belong to no other library. Functions that pass only numbers and pointers, and have C names or spell all their
//! arguments, need no layout: `torchCheckFail`, `CudaIPCCollect`, `aoti_torch_get_current_cuda_stream`, and what CPython declares.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gpumem::Uncancelled;

use crate::boundary::enter;
use crate::failure::{Failure, Kind};
use crate::library::Library;

/// If it is 1, an untried version is treated as a tried one.
const VARIABLE: &str = "GPUMEM_TRUST_TORCH";

/// Major and minor version.
type Release = (u64, u64);

/// 2.11 and 2.14 ran on GPUs. The others were tried without one: every function to be replaced is found there.
const TRIED: [Release; 6] = [(2, 6), (2, 11), (2, 12), (2, 13), (2, 14), (2, 15)];

/// A process that has loaded either one has PyTorch. The first, or a library it depends on, also exports the version.
const LIBRARIES: [&CStr; 2] = [c"libtorch_cuda.so", c"libc10.so"];

/// `uint64_t aoti_torch_abi_version()`, of PyTorch's stable C ABI from 2.8 on (`torch/csrc/inductor/aoti_torch/c/shim.h`).
type AbiVersion = unsafe extern "C-unwind" fn() -> u64;
const ABI_VERSION: &CStr = c"aoti_torch_abi_version";

/// What PyTorch's Python says that its version is.
static TOLD: OnceLock<Box<str>> = OnceLock::new();

/// Longest version that is looked at.
const LONGEST: usize = 64;

/// # Safety
///
/// `version` is null or points to a string that ends in a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpumem_set_torch_version(version: *const c_char) -> c_int {
    enter("gpumem_set_torch_version", -1, || {
        if version.is_null() {
            return Err(Failure::misuse("no version was given"));
        }
        // SAFETY: not null, so a C string by this function's contract.
        let text = unsafe { CStr::from_ptr(version) }.to_string_lossy();
        let printable = |text: &str| text.chars().filter(|c| c.is_ascii_graphic()).take(LONGEST).collect();
        TOLD.get_or_init(|| printable(&text));
        Ok(0)
    })
}

/// Whether PyTorch may be called through its classes' layouts. If not, what is left out is reported once.
pub(crate) fn torch() -> Result<(), Failure> {
    let libraries = LIBRARIES.map(Library::loaded);
    // Whoever calls in a process without PyTorch is not PyTorch.
    if is_overridden() || libraries.iter().all(Option::is_none) {
        return Ok(());
    }
    let [cuda, _] = libraries;
    let exported = cuda.as_ref().and_then(exported);
    version(TOLD.get().map(|told| &**told), exported).map_err(|version| left_out(&version))
}

fn is_overridden() -> bool {
    static OVERRIDDEN: OnceLock<bool> = OnceLock::new();
    *OVERRIDDEN.get_or_init(|| std::env::var_os(VARIABLE).is_some_and(|value| value == "1"))
}

fn exported(library: &Library) -> Option<Release> {
    // SAFETY: the function of that name, which is C's.
    let abi_version = unsafe { library.function::<AbiVersion>(ABI_VERSION) }?;
    // SAFETY: it takes nothing, and returns a constant: a byte of each of major, minor and patch, and five more.
    let version = unsafe { abi_version() };
    Some((version >> 56, version >> 48 & 0xff))
}

/// Whether a version was tried, by what Python says and by what the libraries do; else its name.
fn version(told: Option<&str>, exported: Option<Release>) -> Result<(), String> {
    let (known, name) = match (told, exported) {
        (None, None) => (None, "of an unknown version".to_owned()),
        (None, Some((major, minor))) => (exported, format!("{major}.{minor}")),
        (Some(told), None) => (release(told), told.to_owned()),
        (Some(told), Some((major, minor))) => match release(told) {
            Some(release) if release != (major, minor) => {
                (None, format!("{told}, whose libraries are of {major}.{minor},"))
            }
            found => (found, told.to_owned()),
        },
    };
    match known {
        Some(known) if TRIED.contains(&known) => Ok(()),
        _ => Err(name),
    }
}

/// What a version is a release of: `2.11.1+cu130` one of 2.11. What came before one (`2.16.0.dev20261101`, `2.11.0a0+git`, `2.11.0rc1`) is
/// none, and nobody knows what it is like.
fn release(version: &str) -> Option<Release> {
    let public = version.split('+').next()?;
    let mut numbers = public.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, _patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some((major, minor))
}

/// Says so, once for the process.
fn left_out(version: &str) -> Failure {
    static SAID: AtomicBool = AtomicBool::new(false);
    let _undisturbed = Uncancelled::begin();
    let text = format!(
        "PyTorch {version} was not tried, and what needs the layout of its classes is off: CUDA graphs, torch.cuda.use_mem_pool, sharing \
         memory with processes, cuDNN's search, the profiler's view of memory, and torch.OutOfMemoryError (a RuntimeError instead). \
         {VARIABLE}=1 turns it on"
    );
    if !SAID.swap(true, Ordering::Relaxed) {
        gpumem::say(&format!("gpumem: {text}"));
    }
    Failure {
        kind: Kind::Untried,
        text: text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_tried_versions_are_known() {
        for told in ["2.11.0", "2.11.1", "2.14.0+cu130", "2.6.0+cu124.with.more", "2.15.12"] {
            assert_eq!(version(Some(told), None), Ok(()), "{told}");
        }
        assert_eq!(version(None, Some((2, 11))), Ok(()));
        assert_eq!(version(Some("2.11.3+cu130"), Some((2, 11))), Ok(()));
    }

    #[test]
    fn others_are_not() {
        let others = [
            "2.16.0.dev20261101+cu130",
            "2.11.0.dev20260101",
            "2.11.0a0+git0123abc",
            "2.11.0rc1",
            "2.16.0",
            "2.7.1",
            "3.11.0",
            "2.1.1",
            "2.11",
            "2",
            "-2.11.0",
            "two",
            "",
        ];
        for told in others {
            assert_eq!(version(Some(told), None), Err(told.to_owned()));
            // Not even where the libraries' number is that of a release, which it has before.
            assert!(version(Some(told), Some((2, 11))).is_err(), "{told}");
        }
        assert_eq!(version(None, Some((2, 16))), Err("2.16".to_owned()));
        assert_eq!(version(None, None), Err("of an unknown version".to_owned()));
        let both = version(Some("2.11.0"), Some((2, 14)));
        assert_eq!(both, Err("2.11.0, whose libraries are of 2.14,".to_owned()));
    }
}
