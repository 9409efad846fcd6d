//! The only `unsafe` code of this crate: shared mappings as words, their handling in forked children, prefetching, and
//! `getrlimit`.
#![allow(
    unsafe_code,
    reason = "mmap, madvise, pthread_atfork and prefetching have no safe interface, getrlimit none that can fail; everything else in the crate goes through this module"
)]

use std::fs::File;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{self, AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use descriptor::{Descriptor, FREE, OPENING};
use process::HERE;

mod descriptor;
mod process;

pub use process::Process;

/// A handle on a shared mapping of words. The mapping exists as long as any of its handles.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    ptr: NonNull<AtomicU64>,
    words: usize,
    /// In a child forked later the mapping is gone (MADV_DONTFORK), and something else may be at its address.
    process: Process,
    /// Pointer and length are copied into the handle, so that stores need not look them up here.
    mapping: Arc<Mapping>,
}

/// A mapping, which is unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    ptr: NonNull<AtomicU64>,
    words: usize,
    process: Process,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is only reached as `&[AtomicU64]`.
unsafe impl Send for Map {}
// SAFETY: as above; atomics may be shared.
unsafe impl Sync for Map {}
// SAFETY: as above. Whichever thread drops it last may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared one gives access to nothing.
unsafe impl Sync for Mapping {}

impl Map {
    /// Maps the first `words` words of `file` for reading.
    pub(crate) fn read_only(file: &File, words: usize) -> io::Result<Map> {
        Map::new(file, words, ProtFlags::READ)
    }

    /// Maps the first `words` words of `file` for reading and writing. Forked children do not inherit the mapping.
    pub(crate) fn writable(file: &File, words: usize) -> io::Result<Map> {
        let map = Map::new(file, words, ProtFlags::READ | ProtFlags::WRITE)?;
        // SAFETY: exactly the range just mapped. DONTFORK changes nothing in this process; children are kept off the words by
        // `Map::inherited`.
        unsafe { rustix::mm::madvise(map.ptr.as_ptr().cast(), words * 8, Advice::LinuxDontFork)? };
        Ok(map)
    }

    fn new(file: &File, words: usize, protection: ProtFlags) -> io::Result<Map> {
        let process = Process::current();
        // SAFETY: a new mapping at an address the kernel chooses aliases nothing of ours. The length is not zero (checked by the
        // kernel), and both sides touch the memory as atomics only.
        let ptr = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                words * 8,
                protection,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )?
        };
        let ptr = NonNull::new(ptr.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Map::of(Arc::new(Mapping { ptr, words, process })))
    }

    fn of(mapping: Arc<Mapping>) -> Map {
        let Mapping { ptr, words, process } = *mapping;
        Map {
            ptr,
            words,
            process,
            mapping,
        }
    }

    /// Returns a weak reference to the mapping.
    pub(crate) fn downgrade(&self) -> Weak<Mapping> {
        Arc::downgrade(&self.mapping)
    }

    pub(crate) fn upgrade(mapping: &Weak<Mapping>) -> Option<Map> {
        mapping.upgrade().map(Map::of)
    }

    /// Whether this is a copy of the handle in a forked child, where the memory is not mapped.
    #[inline(always)]
    pub(crate) fn inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// Returns the words; `None` in a forked child.
    #[inline(always)]
    pub(crate) fn here(&self) -> Option<&[AtomicU64]> {
        if self.inherited() {
            return None;
        }
        // SAFETY: mapped for as long as `self` and with it the mapping lives, page-aligned, and `words` long. The file
        // was that long when it was mapped, and its publisher never truncates it. All access, here and in other
        // processes, is to aligned atomic 64-bit words; on read-only mappings this crate only loads.
        Some(unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.words) })
    }
}

/// Prefetches the memory of the value `further` values after this one, if there is one. Does nothing on architectures
/// without a stable prefetch intrinsic.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T, further: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither reads nor writes as far as the program can tell, and faults for no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).wrapping_add(further).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (value, further);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: mapped in `new`, nothing borrowed from it outlives the last handle. A failure would only leave it mapped.
            let _ = unsafe { rustix::mm::munmap(self.ptr.as_ptr().cast(), self.words * 8) };
        }
    }
}

/// Returns the limit on the size of this process's files in bytes, if there is one. Does not use rustix, which panics
/// if a sandbox denies the call; then no limit is known.
pub(crate) fn file_size_limit() -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the call writes one record if it succeeds.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and has written it.
    let soft = unsafe { limit.assume_init() }.rlim_cur;
    (soft != libc::RLIM_INFINITY).then_some(soft)
}

/// Most channels that a process may have open: one for each device of a C program, and as many again.
pub(crate) const CHANNELS_MAX: usize = 256;

/// Descriptors of locked channel files. A forked child closes them. Otherwise it would hold its parent's lock, and a
/// dead publisher would look alive as long as one of its workers runs.
static LOCKED: [Descriptor; CHANNELS_MAX] = [const {
    Descriptor {
        fd: AtomicI32::new(FREE),
        process: AtomicU64::new(0),
        file: [const { AtomicU64::new(0) }; 2],
    }
}; CHANNELS_MAX];

/// Returns the device and inode of an open file. Async-signal-safe.
fn file_of(fd: RawFd) -> Option<[u64; 2]> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call writes one record if it succeeds.
    if unsafe { libc::fstat(fd, about.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and has written it.
    let about = unsafe { about.assume_init() };
    Some([about.st_dev, about.st_ino])
}

/// Runs in the child right after fork. Uses only atomics, fstat(2) and close(2), which are async-signal-safe. Handlers
/// that were registered earlier have already run; what they made belongs to the child.
extern "C" fn in_forked_child() {
    if !WIPED.load(Ordering::Relaxed) {
        HERE.forget();
    }
    for place in &LOCKED {
        let inherited = place.inherited(HERE.number());
        let Some((fd, file)) = inherited.and_then(|fd| Some((fd, place.take(fd)?))) else {
            continue;
        };
        // A descriptor that was just being opened may have any number.
        let numbers = if fd == OPENING { 0..OPEN_MAX } else { fd..fd + 1 };
        // The program may have closed the descriptor, as daemons close all of theirs; then the number may be another
        // file's by now.
        for fd in numbers.filter(|fd| file_of(*fd) == Some(file)) {
            // SAFETY: `LockedFile` owns the descriptor and will not close it again in this process. Neither will the
            // thread that was opening it, which does not exist here. A file that is being opened has no name yet that
            // readers look at.
            unsafe { libc::close(fd) };
        }
    }
}

/// Descriptors that a child checks if it was forked while a channel was being opened. The search takes a few
/// milliseconds.
const OPEN_MAX: RawFd = 1 << 14;

/// Whether the kernel wipes [`HERE`] in children. That covers the most important part of [`in_forked_child`] even where
/// the handler does not run: in children of `_Fork` and of a bare `clone`, and while other libraries' handlers run.
static WIPED: AtomicBool = AtomicBool::new(false);

/// Makes children find zeros in [`HERE`], and registers [`in_forked_child`]. Takes no lock: a child forked while a
/// thread is in here would wait for that thread for ever. Two threads at the same time both register the handler; it is
/// idempotent.
fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Acquire) {
        WIPED.store(wipe_in_children(), Ordering::Relaxed);
        // SAFETY: registers a plain function that stays valid for the life of the program. If it fails (no memory),
        // forked children keep the lock as long as they live, which is misleading but harmless.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        WATCHED.store(true, Ordering::Release);
    }
}

/// Asks the kernel to wipe [`HERE`] in children (Linux 4.14). Does not if pages are larger than [`HERE`]: that would
/// wipe other statics too.
fn wipe_in_children() -> bool {
    // Some emulators accept any advice and ignore it. They are detected by an advice that does not exist.
    const NONE: i32 = -1;
    let bytes = size_of_val(&HERE);
    let advise = |advice| {
        // SAFETY: the pages belong to `HERE` alone, and are private to this process. In this process nothing changes,
        // and in children zeros are valid values.
        unsafe { libc::madvise((&raw const HERE).cast_mut().cast(), bytes, advice) == 0 }
    };
    bytes.is_multiple_of(rustix::param::page_size()) && !advise(NONE) && advise(libc::MADV_WIPEONFORK)
}

/// An open file whose lock marks the publisher as alive. It is registered so that forked children close it.
#[derive(Debug)]
pub(crate) struct LockedFile {
    place: &'static Descriptor,
    file: ManuallyDrop<File>,
    /// The process that opened the file; in a forked child it is closed.
    process: Process,
}

impl LockedFile {
    /// Opens `file` again, to be locked. Returns `None` if [`CHANNELS_MAX`] files are open.
    ///
    /// A `flock` lock belongs to an open file description, and lasts as long as any process has a descriptor or mapping
    /// of it. No child may keep one. So the descriptor is registered before it is opened, which needs a second open to
    /// identify the file. The second one, which is never locked, is the one that is mapped, because a child can be
    /// forked before the mapping is excluded from children.
    pub(crate) fn open(
        file: &File,
        process: Process,
        again: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Option<LockedFile>> {
        let numbers = file_of(file.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        let Some(place) = LOCKED.iter().find(|place| place.reserve(process.number(), numbers)) else {
            return Ok(None);
        };
        let file = again().inspect_err(|_| place.fill(FREE))?;
        place.fill(file.as_raw_fd());
        Ok(Some(LockedFile {
            place,
            file: ManuallyDrop::new(file),
            process,
        }))
    }

    /// Returns the file. Only valid right after opening: later the program may have closed it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // In a forked child it is already closed, and its entry and number may be another file's by now.
        if !self.process.is_current() {
            return;
        }
        let fd = self.file.as_raw_fd();
        // The program may have closed it, as above.
        let file = self.place.take(fd);
        if file.is_some() && file == file_of(fd) {
            // SAFETY: opened in `open`, and taking it out of the entry ensures that it is closed once. It is unlocked
            // first because a child that is being forked right now still has the file open.
            unsafe {
                libc::flock(fd, libc::LOCK_UN);
                libc::close(fd);
            }
        }
    }
}
