//! The only `unsafe` of this crate: shared mappings as words, what happens to them in a forked child, hints to the cache, and a limit that
//! the system may refuse to tell.
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

/// A handle on a shared mapping of whole words, which lasts as long as any of its handles.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    ptr: NonNull<AtomicU64>,
    words: usize,
    /// In a child forked later the mapping is gone (MADV_DONTFORK) and the address may be another's.
    process: Process,
    /// The handle has the place itself, so that nobody who stores has to look it up here.
    mapping: Arc<Mapping>,
}

/// Unmaps the words when it goes.
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

    /// Maps the first `words` words of `file` for reading and writing. A forked child does not have it.
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

    /// The mapping, to be found again while it lasts.
    pub(crate) fn downgrade(&self) -> Weak<Mapping> {
        Arc::downgrade(&self.mapping)
    }

    pub(crate) fn upgrade(mapping: &Weak<Mapping>) -> Option<Map> {
        mapping.upgrade().map(Map::of)
    }

    /// Whether this is a copy of the handle in a forked child, where there is nothing to touch.
    #[inline(always)]
    pub(crate) fn inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// The words; `None` in a forked child.
    #[inline(always)]
    pub(crate) fn here(&self) -> Option<&[AtomicU64]> {
        if self.inherited() {
            return None;
        }
        // SAFETY: mapped for as long as `self` and with it the mapping lives, page-aligned, and `words` long. The file was that long when it was mapped and
        // its publisher never cuts it. All access, here and in other processes, is to aligned atomic 64-bit words; on read-only
        // mappings this crate only loads.
        Some(unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.words) })
    }
}

/// Has the memory of a value that is wanted soon brought near: of the one that lies so many `further` on, if there is one. Does nothing
/// where there is no safe name for that.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T, further: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint to the cache; it neither reads nor writes as far as the program can tell, and faults for no address.
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

/// Bytes that a file of this process may have, if that is limited. Not by rustix: it panics where a sandbox refuses to tell, and then there is
/// no limit that anybody knows of.
pub(crate) fn file_size_limit() -> Option<u64> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: writes one record, if it succeeds.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written just now.
    let soft = unsafe { limit.assume_init() }.rlim_cur;
    (soft != libc::RLIM_INFINITY).then_some(soft)
}

/// Channels that a process may have open: one for each device of a C program, and as many again.
pub(crate) const CHANNELS_MAX: usize = 256;

/// Descriptors of locked channel files. A forked child closes them, else it would hold its parent's lock, and a dead publisher
/// would look alive for as long as one of its workers runs.
static LOCKED: [Descriptor; CHANNELS_MAX] = [const {
    Descriptor {
        fd: AtomicI32::new(FREE),
        process: AtomicU64::new(0),
        file: [const { AtomicU64::new(0) }; 2],
    }
}; CHANNELS_MAX];

/// The device of a file and its number there. Async-signal-safe.
fn file_of(fd: RawFd) -> Option<[u64; 2]> {
    let mut about = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes one record, if it succeeds.
    if unsafe { libc::fstat(fd, about.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written just now.
    let about = unsafe { about.assume_init() };
    Some([about.st_dev, about.st_ino])
}

/// Runs in the child, between fork and whatever it does next: only atomics, fstat(2) and close(2), all async-signal-safe. Handlers that
/// were registered earlier have run: what they made is the child's own.
extern "C" fn in_forked_child() {
    if !WIPED.load(Ordering::Relaxed) {
        HERE.forget();
    }
    for place in &LOCKED {
        let inherited = place.inherited(HERE.number());
        let Some((fd, file)) = inherited.and_then(|fd| Some((fd, place.take(fd)?))) else {
            continue;
        };
        // One that was being opened has the lowest number that was free, which nobody knows.
        let numbers = if fd == OPENING { 0..OPEN_MAX } else { fd..fd + 1 };
        // The program may have closed it, as daemons close all there are: then it may be a file of the program's by now.
        for fd in numbers.filter(|fd| file_of(*fd) == Some(file)) {
            // SAFETY: `LockedFile` owns the descriptor and, in this process, will not close it again; nor will who was opening it, a thread
            // that is not here. What is being opened has no name yet that others look at.
            unsafe { libc::close(fd) };
        }
    }
}

/// Numbers among which a child that was forked while a channel was being opened looks for it: for a few milliseconds.
const OPEN_MAX: RawFd = 1 << 14;

/// Whether the kernel does the part of [`in_forked_child`] that matters most, also where that does not run: in children of `_Fork` and of
/// a bare `clone`, and while other libraries' handlers run.
static WIPED: AtomicBool = AtomicBool::new(false);

/// Has children find zeros in [`HERE`], and has [`in_forked_child`] run. Not behind a lock: a child that is forked while a thread is in here
/// would wait for that thread for ever. Who comes at the same time does it, too, and then it runs twice in each child, which is as good as
/// once.
fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.load(Ordering::Acquire) {
        WIPED.store(wipe_in_children(), Ordering::Relaxed);
        // SAFETY: registers a plain function that stays valid for the life of the program. If it fails (no memory) forked
        // children keep the lock for as long as they live, which is only misleading.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        WATCHED.store(true, Ordering::Release);
    }
}

/// Asks the kernel to (Linux 4.14). Not where pages are larger than we know of: others' statics would be wiped with ours.
fn wipe_in_children() -> bool {
    // Emulators that take any advice and heed none take one that does not exist.
    const NONE: i32 = -1;
    let bytes = size_of_val(&HERE);
    let advise = |advice| {
        // SAFETY: pages that are all `HERE`'s, and private to this process: the program's own memory, zero until it is stored to. In this
        // process nothing changes, and in children zeros are values like any other.
        unsafe { libc::madvise((&raw const HERE).cast_mut().cast(), bytes, advice) == 0 }
    };
    bytes.is_multiple_of(rustix::param::page_size()) && !advise(NONE) && advise(libc::MADV_WIPEONFORK)
}

/// An open file whose lock says "alive", registered so that forked children let go of it.
#[derive(Debug)]
pub(crate) struct LockedFile {
    place: &'static Descriptor,
    file: ManuallyDrop<File>,
    /// A forked child finds it closed.
    process: Process,
}

impl LockedFile {
    /// Opens `file` again, to be locked. `None` where [`CHANNELS_MAX`] are.
    ///
    /// A lock is of all that comes of one opening, in whatever process: descriptors and mappings. No child may have any. So this one is
    /// registered before it is there, which takes another opening to know the file by; and it is that one, which nobody locks, that is mapped,
    /// as a child can be forked before a mapping is kept from it.
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

    /// The file, for who has just opened it: later on the program may have closed it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // In a forked child it is closed already, and place and number may be another file's by now.
        if !self.process.is_current() {
            return;
        }
        let fd = self.file.as_raw_fd();
        // As above, the program may have closed it.
        let file = self.place.take(fd);
        if file.is_some() && file == file_of(fd) {
            // SAFETY: opened in `open`, and taking it out makes sure that only one side closes it. Unlocked first: a child that
            // is being forked right now still has the file open.
            unsafe {
                libc::flock(fd, libc::LOCK_UN);
                libc::close(fd);
            }
        }
    }
}
