//! What would end or stop a C program that embeds the library: signals of its writes, readers that read nothing, threads that are ended in the
//! middle. The programs here treat signals as C programs do; Rust's ignore SIGPIPE.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::process::Stdio;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpumem_channel::{Life, Reader};
use gpumem_tests::{World, said};

use super::abi::{Abi, PoolId};
use super::{inner, inner_with_stderr, library, passes};

const MIB: usize = 1 << 20;

static ABI: OnceLock<Abi> = OnceLock::new();

/// The library, in an inner test that treats a signal as C programs do, and that is ended if it hangs.
fn in_c(signal: c_int) -> Option<&'static Abi> {
    let abi = library()?;
    // SAFETY: sets what happens by default, and takes a number of seconds.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::alarm(60);
    }
    Some(ABI.get_or_init(|| abi))
}

/// Signals that are blocked, and that are pending, on this thread.
fn masks() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    ["SigBlk:", "SigPnd:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    })
}

#[track_caller]
fn complains_to(stderr: Stdio) {
    let world = World::without_gpu();
    let told = [
        ("GPUMEM_DIR", "/proc/no/such/place"),
        ("GPUMEM_ALLOC_CONF", "nonsense:1"),
    ];
    let output = inner_with_stderr(&world, "signals::inner_complains", &told, stderr);
    let stdout = said(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{:?} {stdout}",
        output.status
    );
}

#[test]
fn a_stderr_that_nobody_reads_ends_no_program() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    complains_to(writer.into());
    let (reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(reader);
    complains_to(std::os::fd::OwnedFd::from(writer).into());
}

#[test]
fn a_stderr_whose_reader_has_stopped_stops_no_program() {
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // All that a pipe has room for.
    writer.write_all(&[b'x'; 65536]).unwrap();
    complains_to(writer.into());
}

#[test]
fn inner_complains() {
    let Some(abi) = in_c(libc::SIGPIPE) else { return };
    let before = masks();
    let began = Instant::now();
    assert!(abi.alloc(usize::MAX, 0, null_mut()).is_null());
    abi.refused("larger than any device");
    abi.free(null_mut::<u8>().wrapping_add(512).cast(), 1, 0, null_mut());
    abi.refused("not a live allocation");
    let held = abi.alloc(MIB, 0, null_mut());
    assert!(!held.is_null());
    abi.free(held, MIB, 0, null_mut());
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(masks(), before);
    // SAFETY: sets what happens by default, and tells what happened before.
    let action = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_eq!(action, libc::SIG_DFL);
}

#[test]
fn a_snapshot_beyond_the_limit_of_files_is_an_error_only() {
    assert!(passes("signals::inner_may_not_write", &[]).contains("File too large"));
}

#[test]
fn inner_may_not_write() {
    let Some(abi) = in_c(libc::SIGXFSZ) else { return };
    let held = abi.alloc(MIB, 0, null_mut());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let limit = libc::rlimit {
        rlim_cur: 100,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: reads one limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let before = masks();
    assert_eq!(abi.snapshot(0, path.as_ptr()), -1);
    abi.refused("File too large");
    assert_eq!(masks(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    abi.free(held, MIB, 0, null_mut());
}

/// Handlers of `exit` wait for nobody: who has the allocator's lock may be the thread that the signal interrupted.
#[test]
fn a_program_exits_from_a_signal_handler() {
    for micros in [2000, 2100, 2200, 2300, 2400] {
        let world = World::without_gpu();
        let after = micros.to_string();
        let output = inner(&world, "signals::inner_exits_when_told", &[("AFTER", &after)]);
        assert_eq!(output.status.code(), Some(42), "{}", said(&output.stderr));
        let files = world.channel_files();
        let life = |file| Reader::open(file).unwrap().refresh().unwrap().life;
        assert_eq!(files.iter().map(|file| life(file)).collect::<Vec<_>>(), [Life::Closed]);
    }
}

#[test]
fn inner_exits_when_told() {
    extern "C" fn exit(_: c_int) {
        // SAFETY: what C programs do here, although it is not allowed.
        unsafe { libc::exit(42) };
    }
    let Some(abi) = in_c(libc::SIGPIPE) else { return };
    abi.alloc(MIB, 0, null_mut());
    let after = std::env::var("AFTER").unwrap().parse().unwrap();
    // SAFETY: the handler lives as long as the program; it is this thread that is told, and that goes on until then.
    let me = unsafe {
        libc::signal(libc::SIGTERM, exit as *const () as libc::sighandler_t);
        libc::pthread_self()
    };
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(after));
        // SAFETY: as above.
        unsafe { libc::pthread_kill(me, libc::SIGTERM) };
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        for size in 1..1000 {
            abi.free(abi.alloc(size * 5000, 0, null_mut()), 0, 0, null_mut());
        }
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// A `std::function<bool(cudaStream_t)>` of libstdc++.
#[repr(C)]
struct Function {
    data: [usize; 2],
    manager: unsafe extern "C-unwind" fn(*mut usize, *const usize, c_int) -> bool,
    invoker: unsafe extern "C-unwind" fn(*const usize, *const *mut c_void) -> bool,
}

/// The manager of one without anything to copy.
unsafe extern "C-unwind" fn copied(_: *mut usize, _: *const usize, _: c_int) -> bool {
    true
}

/// A pool's filter that waits in the C library.
unsafe extern "C-unwind" fn waits(_: *const usize, _: *const *mut c_void) -> bool {
    // SAFETY: it sleeps.
    unsafe { libc::usleep(1) };
    true
}

#[test]
fn threads_that_are_to_be_ended_leave_first() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.pickle");
    let told = [
        ("FAKE_CUDA_DEVICES", "2"),
        ("GPUMEM_ALLOC_CONF", "history:on"),
        ("GPUMEM_SNAPSHOT_ON_OOM", state.to_str().unwrap()),
    ];
    passes("signals::inner_threads_are_to_be_ended", &told);
    assert!(state.exists());
}

#[test]
fn inner_threads_are_to_be_ended() {
    static READY: AtomicU32 = AtomicU32::new(0);
    extern "C" fn work(_: *mut c_void) -> *mut c_void {
        let abi = ABI.get().unwrap();
        READY.store(1, Ordering::Release);
        while READY.load(Ordering::Acquire) == 1 {
            std::hint::spin_loop();
        }
        // From here on it is ended where the C library waits, if it may be.
        let folder = c"/proc/no/such/place";
        for device in [0, 1] {
            for size in [1, 300, 7] {
                abi.free(abi.alloc(size * MIB, device, null_mut()), 0, device, null_mut());
            }
        }
        abi.alloc(usize::MAX, 0, null_mut());
        abi.alloc(1 << 40, 0, null_mut());
        abi.free(abi.cupy_malloc(null_mut(), MIB, 0), MIB, 0, super::abi::stream(0x500));
        let filter = Function {
            data: [0; 2],
            manager: copied,
            invoker: waits,
        };
        abi.begin_allocate_to_pool(0, PoolId(1, 1), (&raw const filter).cast_mut().cast());
        for _ in 0..3 {
            abi.free(abi.alloc(MIB, 0, null_mut()), 0, 0, null_mut());
        }
        abi.end_allocate_to_pool(0, PoolId(1, 1));
        abi.release_pool(0, PoolId(1, 1));
        abi.record_history(-1, 2, 100);
        abi.snapshot(0, folder.as_ptr());
        abi.compact(-1);
        abi.empty_cache(-1);
        abi.reset();
        // SAFETY: sets a number of this thread's: it ends by itself now.
        unsafe { pthread_setcancelstate(1, &mut 0) };
        READY.store(3, Ordering::Release);
        null_mut()
    }
    let Some(_) = in_c(libc::SIGPIPE) else { return };
    // SAFETY: a thread that touches statics only, and that is waited for.
    unsafe {
        let mut thread = 0;
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), work, null_mut()), 0);
        while READY.load(Ordering::Acquire) != 1 {
            std::thread::yield_now();
        }
        assert_eq!(libc::pthread_cancel(thread), 0);
        READY.store(2, Ordering::Release);
        assert_eq!(libc::pthread_join(thread, null_mut()), 0);
    }
    assert_eq!(READY.load(Ordering::Acquire), 3);
}
