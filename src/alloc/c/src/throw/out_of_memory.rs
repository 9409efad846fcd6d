//! `c10::OutOfMemoryError`, in Python `torch.OutOfMemoryError`: what programs catch that try again with less, and PyTorch itself where
//! cuDNN may do with less workspace. It is a `c10::Error` by another type.
//!
//! PyTorch has no function that throws one, so it is made and thrown here as a C++ compiler does that: by the Itanium C++ ABI, which
//! GCC and Clang follow on Linux, and with the strings of GNU's libstdc++, which PyTorch's Linux builds use. Where one of the names is not
//! found, as in builds with the strings from before GCC 5, where its class is another one than is known, or the version was not
//! [tried](crate::trust), nothing is done.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::{FILE, FUNCTION};
use crate::cxx::{BEFORE, Cxx, CxxString, OneBase, type_name};
use crate::library::Library;
use crate::trust;

/// Its type is where it is thrown, and not in the library that declares it: no function of that is out of line.
const LIBRARIES: [&CStr; 2] = [c"libc10_cuda.so", c"libc10.so"];

/// More than a `c10::Error` is in any version (128 bytes in 2.11). Nothing looks at what is beyond it.
const ROOM: usize = 4096;

/// `c10::SourceLocation`
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

type Construct = unsafe extern "C-unwind" fn(*mut *const c_void, SourceLocation, *mut CxxString);
type Allocate = unsafe extern "C-unwind" fn(usize) -> *mut *const c_void;
type Throw = unsafe extern "C-unwind" fn(*mut *const c_void, *mut c_void, *const c_void) -> !;

/// What all of it takes.
struct Makings {
    cxx: Cxx,
    /// `c10::Error::Error(c10::SourceLocation, std::string)`. The ABI has the caller make and destroy such a string, and pass its address.
    construct: Construct,
    /// `typeinfo for c10::OutOfMemoryError`
    type_info: NonNull<c_void>,
    /// `vtable for c10::OutOfMemoryError`: how far an object of it is from its beginning, its type, and its functions, of which the first
    /// destroys it.
    vtable: NonNull<*const c_void>,
    /// `void* __cxa_allocate_exception(size_t)`
    allocate: Allocate,
    /// `void __cxa_throw(void* object, std::type_info*, void (*destructor)(void*))`
    throw: Throw,
}

impl Makings {
    fn find() -> Option<Makings> {
        LIBRARIES
            .iter()
            .find_map(|name| Makings::find_in(&Library::loaded(name)?))
    }

    fn find_in(library: &Library) -> Option<Makings> {
        // SAFETY: what has such a name is a function of the type that its field has.
        unsafe {
            Some(Makings {
                cxx: Cxx::find(library)?,
                construct: library.function(
                    c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
                )?,
                type_info: library.find(c"_ZTIN3c1016OutOfMemoryErrorE")?,
                vtable: library.find(c"_ZTVN3c1016OutOfMemoryErrorE")?.cast(),
                allocate: library.function(c"__cxa_allocate_exception")?,
                throw: library.function(c"__cxa_throw")?,
            })
            .filter(|with| with.is_as_known(library) == Some(true))
        }
    }

    /// Whether the class is an `Error` that nothing was added to, as far as its type and its table tell.
    fn is_as_known(&self, library: &Library) -> Option<bool> {
        // `vtable for __cxxabiv1::__si_class_type_info`
        let one_base =
            library.find(c"_ZTVN10__cxxabiv120__si_class_type_infoE")?.addr().get() + BEFORE * size_of::<usize>();
        let base_table = library.find(c"_ZTVN3c105ErrorE")?;
        let bytes = library.size_of(self.vtable.cast())?;
        if bytes <= size_of::<[usize; BEFORE]>()
            || bytes != library.size_of(base_table)?
            || library.size_of(self.type_info)? != size_of::<OneBase>()
        {
            return Some(false);
        }
        // SAFETY: there is so much by their sizes, which nobody writes to once the library is loaded.
        let (type_info, [to_top, of]) = unsafe {
            (
                self.type_info.cast::<OneBase>().as_ref(),
                self.vtable.cast::<[usize; BEFORE]>().read(),
            )
        };
        if type_info.class.functions != one_base {
            return Some(false);
        }
        // SAFETY: the types of a class with one base, and of a table.
        let names = unsafe { [type_name(type_info.base), type_name(of)] };
        Some(to_top == 0 && names == [Some(c"N3c105ErrorE"), Some(c"N3c1016OutOfMemoryErrorE")])
    }
}

/// Throws one that says `message`, if this process has all that it takes; returns otherwise.
pub(super) fn throw(message: &CStr) {
    let Some(with) = trust::torch().ok().and_then(|()| Makings::find()) else {
        return;
    };
    let mut text = MaybeUninit::<CxxString>::uninit();
    let text = text.as_mut_ptr();
    let place = SourceLocation {
        function: FUNCTION.as_ptr(),
        file: FILE.as_ptr(),
        line: 0,
    };
    // SAFETY: `text` is room for a string, which is made, used and ended where it is. The object has room and the alignment of any; it is a whole
    // `c10::Error` and, as that has no bases but one without data and the other type adds nothing to it, once its first word is the other
    // type's table, a whole `c10::OutOfMemoryError`. `__cxa_throw` unwinds through frames that may be unwound by an exception of another
    // language, as in `as_pytorch`.
    unsafe {
        CxxString::write(&with.cxx, text, message.to_bytes());
        let object = (with.allocate)(ROOM);
        // Should a later version's type add something, that is zeros.
        object.cast::<u8>().write_bytes(0, ROOM);
        (with.construct)(object, place, text);
        CxxString::end(&with.cxx, text);
        let functions = with.vtable.add(BEFORE);
        object.write(functions.as_ptr().cast());
        (with.throw)(object, with.type_info.as_ptr(), functions.read())
    }
}
