//! Libraries that the process has beside this one.

use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, transmute_copy};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// A library that the process has.
pub(crate) struct Library(NonNull<c_void>);

impl Library {
    pub(crate) fn loaded(name: &CStr) -> Option<Library> {
        // SAFETY: looks for a library that is loaded already; nothing of it runs. The reference that it counts keeps it loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        NonNull::new(handle).map(Library)
    }

    /// The library of a handle.
    ///
    /// # Safety
    ///
    /// dlopen returned it, and it stays loaded.
    pub(crate) unsafe fn of_handle(handle: NonNull<c_void>) -> Library {
        Library(handle)
    }

    /// A function of it, as [`find`](Library::find) finds it.
    ///
    /// # Safety
    ///
    /// What has that name is a function of type `F`.
    pub(crate) unsafe fn function<F: Copy>(&self, symbol: &CStr) -> Option<F> {
        const {
            assert!(
                size_of::<F>() == size_of::<NonNull<c_void>>(),
                "a pointer to a function"
            )
        };
        // SAFETY: of that size, and by the caller's contract such a pointer.
        self.find(symbol).map(|found| unsafe { transmute_copy(&found) })
    }

    /// A function as its own code would find it: the program's before all, then as [`function`](Library::function) does.
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn function_as_bound<F: Copy>(&self, symbol: &CStr) -> Option<F> {
        // SAFETY: a name ends in a zero byte.
        let found = NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) });
        match found {
            // SAFETY: a pointer to such a function by the caller's contract; of the same size, or the other way does not compile.
            Some(found) => Some(unsafe { transmute_copy(&found) }),
            // SAFETY: the caller's contract.
            None => unsafe { self.function(symbol) },
        }
    }

    /// A function or object of it, or of a library that it needs.
    pub(crate) fn find(&self, symbol: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the library is loaded; a name ends in a zero byte.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), symbol.as_ptr()) })
    }

    /// How many bytes what [`find`](Library::find) found has.
    pub(crate) fn size_of(&self, found: NonNull<c_void>) -> Option<usize> {
        /// `RTLD_DL_SYMENT` of `dlfcn.h`.
        const ENTRY: c_int = 1;
        let mut library = MaybeUninit::<libc::Dl_info>::zeroed();
        let mut entry: *mut c_void = null_mut();
        // SAFETY: looks up which symbol an address is of, and writes what it found.
        let known = unsafe { libc::dladdr1(found.as_ptr(), library.as_mut_ptr(), &raw mut entry, ENTRY) } != 0;
        // SAFETY: zeros are one, too.
        let begins = known && unsafe { library.assume_init() }.dli_saddr.addr() == found.addr().get();
        let entry = NonNull::new(entry.cast::<libc::Elf64_Sym>()).filter(|_| begins)?;
        // SAFETY: an entry in the table of a library that stays loaded.
        usize::try_from(unsafe { entry.read() }.st_size).ok()
    }
}

/// Where the process has code of libraries that are loaded, and of the program.
pub(crate) fn code() -> Vec<Range<usize>> {
    unsafe extern "C" fn note(library: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
        // SAFETY: what the loader passes, and what is passed below.
        let (library, found) = unsafe { (&*library, &mut *found.cast::<Vec<Range<usize>>>()) };
        let count = usize::from(library.dlpi_phnum);
        if count > 0 {
            // SAFETY: so many are there.
            let headers = unsafe { std::slice::from_raw_parts(library.dlpi_phdr, count) };
            let code = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
            found.extend(headers.iter().filter(code).map(|header| {
                let begin = (library.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
                begin..begin.wrapping_add(header.p_memsz as usize)
            }));
        }
        0
    }
    let mut found = Vec::new();
    // SAFETY: calls that, here and now.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast()) };
    found
}

/// Whether two addresses are of the same library, or both of the program.
pub(crate) fn are_of_one_library(one: *const c_void, other: *const c_void) -> bool {
    let base = |addr: *const c_void| {
        let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: looks up which library an address is in, whatever it is, and writes what it found.
        let known = unsafe { libc::dladdr(addr, found.as_mut_ptr()) } != 0;
        // SAFETY: zeros are one, too.
        known.then(|| unsafe { found.assume_init() }.dli_fbase.addr())
    };
    base(one).is_some_and(|base_of_one| base(other) == Some(base_of_one))
}
