//! The library as a program sees it: loaded by path, its functions found by name.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::os::unix::Library;

use super::header;

pub(crate) type Ptr = *mut c_void;

/// `struct gpumem_pool_id`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PoolId(pub(crate) u64, pub(crate) u64);

macro_rules! abi {
    ($($name:ident($($arg:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the header.
        pub(crate) struct Abi {
            $($name: unsafe extern "C" fn($($kind),*) $(-> $result)?,)*
        }

        impl Abi {
            /// Loads the library from the path that `LIBRARY` names. It is never unloaded.
            pub(crate) fn load(path: &std::path::Path) -> Abi {
                // SAFETY: nothing of ours runs when it is loaded.
                let library = unsafe { Library::open(Some(path), libc::RTLD_NOW | libc::RTLD_LOCAL) }.unwrap();
                let abi = Abi {
                    // SAFETY: the type is the one in the header.
                    $($name: *unsafe { library.get(concat!("gpumem_", stringify!($name), "\0").as_bytes()) }.unwrap(),)*
                };
                drop(library);
                abi
            }

            /// Their names.
            pub(crate) const NAMES: &[&str] = &[$(concat!("gpumem_", stringify!($name)),)*];

            $(pub(crate) fn $name(&self, $($arg: $kind),*) $(-> $result)? {
                // SAFETY: the pointers of these tests are what the header asks for.
                unsafe { (self.$name)($($arg),*) }
            })*
        }
    };
}

abi! {
    alloc(size: usize, device: c_int, stream: Ptr) -> Ptr;
    free(ptr: Ptr, size: usize, device: c_int, stream: Ptr);
    record_stream(ptr: Ptr, stream: Ptr);
    retire_stream(stream: Ptr) -> c_int;
    empty_cache(device: c_int) -> i64;
    compact(device: c_int) -> i64;
    torch_alloc(size: usize, device: c_int, stream: Ptr) -> Ptr;
    python_stacks(python: Ptr, native: c_int) -> c_int;
    torch_free(ptr: Ptr, size: usize, device: c_int, stream: Ptr);
    set_torch_version(version: *const c_char) -> c_int;
    adopt_torch() -> c_int;
    set_oom_fn(function: Option<unsafe extern "C" fn(c_int, usize)>);
    init(devices: c_int);
    reset();
    memory_fraction(fraction: f64, device: c_int);
    base_alloc(ptr: Ptr, size: *mut usize) -> Ptr;
    begin_allocate_to_pool(device: c_int, id: PoolId, filter: Ptr);
    end_allocate_to_pool(device: c_int, id: PoolId);
    release_pool(device: c_int, id: PoolId);
    pool_held(device: c_int, id: PoolId, addrs: *mut u64, room: usize) -> i64;
    pool_uses(device: c_int, id: PoolId) -> i64;
    cupy_malloc(stream: Ptr, size: usize, device: c_int) -> Ptr;
    cupy_free(stream: Ptr, ptr: Ptr, device: c_int);
    stats(device: c_int, stats: *mut u64) -> c_int;
    reset_peaks(device: c_int) -> c_int;
    mark(name: *const c_char) -> c_int;
    scope_push(name: *const c_char) -> c_int;
    scope_pop() -> c_int;
    scope_set(name: *const c_char) -> c_int;
    record_history(device: c_int, stacks: c_int, max_events: u64) -> c_int;
    has_history(device: c_int) -> c_int;
    stop_history(device: c_int) -> c_int;
    name_frame(function: *const c_char, file: *const c_char, line: c_int) -> u64;
    set_stack_fn(function: Option<unsafe extern "C" fn(*mut u64, c_int) -> c_int>);
    step() -> c_int;
    peak_report(device: c_int, text: *mut c_char, room: usize) -> i64;
    leak_report(device: c_int, min_steps: u64, text: *mut c_char, room: usize) -> i64;
    snapshot(device: c_int, path: *const c_char) -> c_int;
    conf_error(text: *mut c_char, room: usize) -> i64;
    last_error() -> *const c_char;
    error_count() -> u64;
}

impl Abi {
    /// The calling thread's last message.
    pub(crate) fn error(&self) -> Option<String> {
        let text = self.last_error();
        // SAFETY: not null, so a C string that lives until the next call.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
    }

    /// Checks that the last call on this thread failed and said so in these words.
    #[track_caller]
    pub(crate) fn refused(&self, words: &str) {
        let error = self
            .error()
            .unwrap_or_else(|| panic!("nothing was refused; expected: {words}"));
        assert!(error.starts_with("gpumem_") && error.contains(words), "{error}");
        assert_eq!(self.error(), None, "a message is told once");
    }

    /// The figures of a device, by the names of the fields in the header.
    pub(crate) fn figures(&self, device: c_int) -> BTreeMap<String, u64> {
        let fields = header::fields("gpumem_device_stats");
        let mut words = vec![u64::MAX; fields.len()];
        words[0] = words.len() as u64 * 8;
        assert_eq!(self.stats(device, words.as_mut_ptr()), 0);
        assert_eq!(
            words[0],
            fields.len() as u64 * 8,
            "the header has as many fields as the library"
        );
        fields.into_iter().zip(words).collect()
    }
}

/// A stream handle.
pub(crate) fn stream(handle: usize) -> Ptr {
    std::ptr::without_provenance_mut(handle)
}
