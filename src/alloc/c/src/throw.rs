//! A failure as PyTorch's own exception.
//!
//! PyTorch does not look whether a pluggable allocator returns null: it makes a tensor at address 0, and the first kernel that
//! writes to it ends the CUDA context. The one way to tell it is the C++ exception that it throws itself.

use std::ffi::{CStr, c_char};

use crate::failure::{self, Failure};

/// `c10::detail::torchCheckFail(const char* function, const char* file, uint32_t line, const char* message)`, declared in
/// `c10/util/Exception.h`: throws `c10::Error`, in Python a `RuntimeError`.
type TorchCheckFail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char);

const LIBRARY: &CStr = c"libc10.so";
const FUNCTION: &CStr = c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_";

/// Throws a failure, if this process has PyTorch; returns otherwise. The failure is handed over: a thread that ends has no last message.
pub(crate) fn as_pytorch(call: &str, failure: &Failure) {
    // Nothing unwinds through code that was built to abort.
    let Some(throw) = find().filter(|_| cfg!(panic = "unwind")) else {
        return;
    };
    let message = failure::message(call, failure);
    // SAFETY: the type is the function's. It copies the texts, and then unwinds through frames that may be unwound by an exception of
    // another language: their ABIs are Rust's and "C-unwind", and what they own is dropped on the way.
    unsafe { throw(c"gpumem_torch_alloc".as_ptr(), c"gpumem".as_ptr(), 0, message.as_ptr()) };
}

fn find() -> Option<TorchCheckFail> {
    // SAFETY: looks for a library that is loaded already; nothing of it runs. The reference that it counts keeps it loaded.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is loaded; a name ends in a zero byte.
    let function = unsafe { libc::dlsym(library, FUNCTION.as_ptr()) };
    // SAFETY: null, or the function with that mangled name, which spells its arguments.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<TorchCheckFail>>(function) }
}
