//! A failure as PyTorch's own exception.
//!
//! PyTorch does not look whether a pluggable allocator returns null: it makes a tensor at address 0, and the first kernel that
//! writes to it ends the CUDA context. The one way to tell it is the C++ exception that it throws itself.

mod out_of_memory;

use std::ffi::{CStr, c_char};

use crate::failure::{self, Failure, Kind};
use crate::library::Library;

/// `c10::detail::torchCheckFail(const char* function, const char* file, uint32_t line, const char* message)`, declared in
/// `c10/util/Exception.h`: throws `c10::Error`, in Python a `RuntimeError`.
type TorchCheckFail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char);

const LIBRARY: &CStr = c"libc10.so";
const CHECK_FAIL: &CStr = c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_";

/// Where it is thrown, as PyTorch tells with `TORCH_SHOW_CPP_STACKTRACES=1`.
const FUNCTION: &CStr = c"gpumem_torch_alloc";
const FILE: &CStr = c"gpumem";

/// Throws a failure, if this process has PyTorch; returns otherwise. The failure is handed over: a thread that ends has no last message.
pub(crate) fn as_pytorch(call: &str, failure: &Failure) {
    // Nothing unwinds through code that was built to abort.
    if !cfg!(panic = "unwind") {
        return;
    }
    let message = failure::message(call, failure);
    if failure.kind == Kind::OutOfMemory {
        out_of_memory::throw(&message);
    }
    // SAFETY: the function with that mangled name, which spells its arguments.
    let check_fail =
        Library::loaded(LIBRARY).and_then(|pytorch| unsafe { pytorch.function::<TorchCheckFail>(CHECK_FAIL) });
    let Some(check_fail) = check_fail else { return };
    // SAFETY: the type is the function's. It copies the texts, and then unwinds through frames that may be unwound by an exception of
    // another language: their ABIs are Rust's and "C-unwind", and what they own is dropped on the way.
    unsafe { check_fail(FUNCTION.as_ptr(), FILE.as_ptr(), 0, message.as_ptr()) };
}
