//! How processes end: by exit with memory still held, and as forked children.

use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use gpumem_channel::{Life, Reader};
use gpumem_tests::{World, said};

use super::abi::{Abi, PoolId, stream};
use super::{inner, library, passes};

const MIB: usize = 1 << 20;

/// What another library's destructor frees after the exit handlers of this one.
static LEFT: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(null_mut());
static ABI: OnceLock<Abi> = OnceLock::new();

#[test]
fn exiting_with_memory_held_is_silent_and_no_black_box() {
    let world = World::without_gpu();
    exits_with_42(&world, "ends::inner_exits_with_memory_held", &[]);
    let files = world.channel_files();
    let life = |file| Reader::open(file).unwrap().refresh().unwrap().life;
    assert_eq!(files.iter().map(|file| life(file)).collect::<Vec<_>>(), [Life::Closed]);
}

/// As [`tell_failures`] does where none has failed, and without a word.
fn exits_with_42(world: &World, test: &str, environment: &[(&str, &str)]) {
    let output = inner(world, test, environment);
    let stderr = said(&output.stderr);
    assert_eq!(
        (output.status.code(), stderr.as_str()),
        (Some(42), ""),
        "{}",
        said(&output.stdout)
    );
}

/// Ends the process at once, with 42 where no call has failed.
fn tell_failures() {
    let failed = ABI.get().map_or(1, Abi::error_count);
    // SAFETY: nothing is left to do.
    unsafe { libc::_exit(if failed == 0 { 42 } else { 43 }) };
}

extern "C" fn free_late() {
    if let Some(abi) = ABI.get() {
        let left = LEFT.load(Ordering::Relaxed);
        abi.free(left, MIB, 0, null_mut());
        abi.free(left, MIB, 0, null_mut());
        abi.record_stream(left, null_mut());
        abi.reset();
        tell_failures();
    }
}

#[test]
fn inner_exits_with_memory_held() {
    let Some(abi) = library() else { return };
    // Asked for first, called last.
    // SAFETY: the function lives as long as the program.
    unsafe { libc::atexit(free_late) };
    let abi = ABI.get_or_init(|| abi);
    LEFT.store(abi.alloc(MIB, 0, null_mut()), Ordering::Relaxed);
    assert!(!abi.alloc(MIB, 0, null_mut()).is_null());
    std::process::exit(1);
}

/// The library's own handler has run by then.
#[test]
fn a_device_first_used_during_exit_leaves_no_black_box() {
    let world = World::without_gpu();
    let output = inner(
        &world,
        "ends::inner_opens_while_it_exits",
        &[("FAKE_CUDA_DEVICES", "2")],
    );
    assert_eq!(output.status.code(), Some(42), "{}", said(&output.stderr));
    let files = world.channel_files();
    let life = |file| Reader::open(file).unwrap().refresh().unwrap().life;
    assert_eq!(
        files.iter().map(|file| life(file)).collect::<Vec<_>>(),
        [Life::Closed; 2]
    );
}

extern "C" fn open_late() {
    let opened = ABI.get().is_some_and(|abi| !abi.alloc(MIB, 1, null_mut()).is_null());
    // SAFETY: nothing is left to do.
    unsafe { libc::_exit(if opened { 42 } else { 43 }) };
}

#[test]
fn inner_opens_while_it_exits() {
    let Some(abi) = library() else { return };
    // Asked for first, called last.
    // SAFETY: the function lives as long as the program.
    unsafe { libc::atexit(open_late) };
    ABI.get_or_init(|| abi).alloc(MIB, 0, null_mut());
    std::process::exit(1);
}

/// A pool of threads, say, whose destructor has them do what is left to do: what they free would soon be all that the device has.
#[test]
fn threads_at_work_during_exit_do_not_run_out_of_memory() {
    let little = [("FAKE_CUDA_TOTAL", "67108864")];
    exits_with_42(&World::without_gpu(), "ends::inner_works_while_it_exits", &little);
}

/// Turns of a thread that works on, once the process exits.
static TURNS: AtomicU32 = AtomicU32::new(0);
static EXITS: AtomicBool = AtomicBool::new(false);

extern "C" fn await_the_work() {
    EXITS.store(true, Ordering::Relaxed);
    while TURNS.load(Ordering::Relaxed) < 100 {
        std::thread::yield_now();
    }
    tell_failures();
}

#[test]
fn inner_works_while_it_exits() {
    let Some(abi) = library() else { return };
    // As that of a static object would be: asked for first, called last.
    // SAFETY: the function lives as long as the program.
    unsafe { libc::atexit(await_the_work) };
    let abi = ABI.get_or_init(|| abi);
    abi.free(abi.alloc(MIB, 0, null_mut()), MIB, 0, null_mut());
    std::thread::spawn(|| {
        loop {
            let held = abi.alloc(4 * MIB, 0, null_mut());
            abi.free(held, 4 * MIB, 0, null_mut());
            TURNS.fetch_add(u32::from(EXITS.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
    });
    std::process::exit(1);
}

#[test]
fn a_forked_child_is_refused_and_frees_are_free_of_effect() {
    assert_eq!(passes("ends::inner_forks", &[]), "");
}

#[test]
fn inner_forks() {
    let Some(abi) = library() else { return };
    let held = abi.alloc(MIB, 0, null_mut());
    abi.begin_allocate_to_pool(0, PoolId(3, 1), null_mut());
    abi.end_allocate_to_pool(0, PoolId(3, 1));
    let before = abi.figures(0);
    // SAFETY: the child calls nothing but the library and _exit, and this process has one thread that allocates.
    refused_in_child(&abi, held, unsafe { libc::fork() });
    // SAFETY: as above. The C library does not know that it is one.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    refused_in_child(&abi, held, child as libc::pid_t);
    assert_eq!(abi.figures(0), before);
    abi.release_pool(0, PoolId(3, 1));
    abi.free(held, MIB, 0, null_mut());
    assert_eq!((abi.figures(0)["all.allocation.current"], abi.error_count()), (0, 0));
}

/// `child` is what the fork said.
fn refused_in_child(abi: &Abi, held: *mut std::ffi::c_void, child: libc::pid_t) {
    if child == 0 {
        abi.free(held, MIB, 0, null_mut());
        let refused = abi.alloc(MIB, 0, null_mut()).is_null() && abi.alloc(MIB, 1, null_mut()).is_null();
        let told = abi.error().is_some_and(|error| error.contains("spawn"));
        // Of another kind, which was not told of yet, and nobody reads of it: the test is that this process has written nothing.
        abi.scope_pop();
        let scope = abi.error().is_some_and(|error| error.contains("no scope"));
        let mut text = [0; 100];
        let others = [
            abi.compact(-1),
            abi.empty_cache(0),
            abi.peak_report(0, text.as_mut_ptr(), 100),
            abi.leak_report(0, 1, text.as_mut_ptr(), 100),
            abi.record_history(0, 0, 10).into(),
            abi.step().into(),
            abi.reset_peaks(0).into(),
            abi.mark(c"here".as_ptr()).into(),
            abi.snapshot(0, c"/dev/null/here".as_ptr()).into(),
            abi.stats(0, [16u64, 0].as_mut_ptr()).into(),
        ];
        let failed = others == [-1; 10] && abi.error().is_some_and(|error| error.contains("spawn"));
        let pool = PoolId(3, 1);
        let silent: [&dyn Fn(); 9] = [
            &|| abi.begin_allocate_to_pool(0, pool, null_mut()),
            &|| abi.end_allocate_to_pool(0, pool),
            &|| abi.release_pool(0, pool),
            &|| abi.memory_fraction(0.5, 0),
            &|| abi.memory_fraction(0.5, 1),
            &|| assert!(abi.base_alloc(held, null_mut()).is_null()),
            &|| abi.free(held, MIB, 1, null_mut()),
            &|| abi.record_stream(held, null_mut()),
            &|| assert_eq!(abi.retire_stream(stream(77)), -1),
        ];
        for (n, call) in silent.iter().enumerate() {
            call();
            if !abi.error().is_some_and(|error| error.contains("spawn")) {
                // SAFETY: as below.
                unsafe { libc::_exit(100 + n as i32) };
            }
        }
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(if refused && told && scope && failed { 7 } else { 8 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
}

#[test]
fn a_child_of_who_only_tried_to_allocate_is_refused_too() {
    let told = passes("ends::inner_forks_after_a_failure", &[]);
    assert!(
        told.starts_with("gpumem: gpumem_alloc: ") && told.lines().count() == 2,
        "{told}"
    );
}

#[test]
fn inner_forks_after_a_failure() {
    let Some(abi) = library() else { return };
    assert!(abi.alloc(MIB, 5, null_mut()).is_null());
    abi.error().unwrap();
    // SAFETY: the child calls nothing but the library and _exit, and this process has one thread that allocates.
    let refused = in_child(unsafe { libc::fork() }, || {
        let refused = || abi.error().is_some_and(|error| error.contains("spawn"));
        let retired = abi.retire_stream(stream(77)) == -1 && refused();
        abi.record_stream(stream(0x5000), stream(77));
        retired && refused()
    });
    assert!(refused);
}

/// Does something in a child, given what the fork said, that is ended after three seconds. Whether it came to its end there, and was true.
fn in_child(child: libc::pid_t, work: impl FnOnce() -> bool) -> bool {
    if child == 0 {
        // SAFETY: takes a number of seconds.
        unsafe { libc::alarm(3) };
        let done = work();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status == 0
}

/// What other threads of the parent hold when it forks is held in the child for ever.
#[test]
fn a_forked_child_never_hangs() {
    assert_eq!(
        passes("ends::inner_forks_in_the_middle", &[("FAKE_CUDA_DEVICES", "2")]),
        ""
    );
}

#[test]
fn inner_forks_in_the_middle() {
    let Some(abi) = library() else { return };
    let held = abi.alloc(MIB, 0, null_mut());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (abi, done) = (&abi, &done);
            scope.spawn(move || {
                let pool = PoolId(100 + number, 1);
                while !done.load(Ordering::Relaxed) {
                    abi.begin_allocate_to_pool(0, pool, null_mut());
                    abi.end_allocate_to_pool(0, pool);
                    abi.release_pool(0, pool);
                }
            });
        }
        let mut hung = 0;
        for _ in 0..200 {
            // SAFETY: the child calls nothing but the library, alarm and _exit; the alarm ends it if it hangs.
            let child = unsafe { libc::fork() };
            let fine = in_child(child, || {
                abi.begin_allocate_to_pool(0, PoolId(100, 1), null_mut());
                abi.end_allocate_to_pool(0, PoolId(100, 1));
                abi.release_pool(0, PoolId(100, 1));
                abi.memory_fraction(0.5, 1);
                abi.base_alloc(held, null_mut());
                abi.free(held, MIB, 0, null_mut());
                true
            });
            hung += i32::from(!fine);
            if hung > 0 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(hung, 0, "a child that hung or crashed");
    });
}

/// The C library sees to it that its own children can allocate; others wait for ever for who allocates in their parent.
#[test]
fn a_child_that_the_c_library_does_not_know_of_never_hangs() {
    assert_eq!(
        passes("ends::inner_clones_in_the_middle", &[("MALLOC_ARENA_MAX", "1")]),
        ""
    );
}

#[test]
fn inner_clones_in_the_middle() {
    let Some(abi) = library() else { return };
    let held = abi.alloc(MIB, 0, null_mut());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(std::hint::black_box(vec![0u8; 10_000]));
                }
            });
        }
        let mut failed = 0;
        for _ in 0..100 {
            // SAFETY: the child calls nothing but the library, alarm and _exit; the alarm ends it if it hangs.
            let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as libc::pid_t;
            let fine = in_child(child, || {
                abi.free(held, MIB, 0, null_mut());
                let refused = [null_mut(), stream(2)].map(|stream| abi.alloc(MIB, 0, stream).is_null());
                abi.record_stream(held, stream(77));
                refused == [true; 2]
                    && abi.compact(-1) == -1
                    && abi.retire_stream(stream(77)) == -1
                    && !abi.last_error().is_null()
            });
            failed += i32::from(!fine);
            if failed > 0 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "a child that hung, crashed or was served");
    });
}

/// Before anything was allocated a process may fork, whatever other threads do.
#[test]
fn a_child_of_a_process_that_only_set_a_fraction_never_hangs() {
    let said = passes("ends::inner_forks_in_a_fraction", &[]);
    assert!(
        said.contains("budget 8.2 MiB"),
        "a thousandth, as was said last: {said}"
    );
}

#[test]
fn inner_forks_in_a_fraction() {
    let Some(abi) = library() else { return };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    abi.memory_fraction(0.5, 0);
                }
            });
        }
        let mut failed = 0;
        for _ in 0..1000 {
            // SAFETY: the child calls nothing but the library, alarm and _exit; the alarm ends it if it hangs.
            let child = unsafe { libc::fork() };
            let fine = in_child(child, || {
                abi.memory_fraction(0.25, 0);
                abi.error_count() == 0
            });
            failed += i32::from(!fine);
            if failed > 0 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "a child that hung or was refused");
    });
    abi.memory_fraction(1e-3, 0);
    assert!(abi.alloc(2 << 30, 0, null_mut()).is_null());
}

/// Destructors of a thread's own data allocate and free, when the standard library's data of that thread is gone already.
#[test]
fn a_thread_that_ends_may_do_what_others_may() {
    assert_eq!(passes("ends::inner_ends_a_thread", &[]), "");
}

/// The last that a thread calls, three times over.
extern "C" fn last_words(left: *mut std::ffi::c_void) {
    let (abi, key) = (ABI.get().unwrap(), KEY.load(Ordering::Relaxed));
    if left.addr() > 1 {
        // SAFETY: the key is there; the C library calls this again for a value that is not null.
        unsafe { libc::pthread_setspecific(key, stream(left.addr() - 1)) };
    }
    // A thread that goes on has sent what it allocates to a pool.
    let other = abi.alloc(4 * MIB, 0, stream(2));
    let own = PoolId(1000, 1);
    abi.begin_allocate_to_pool(0, own, null_mut());
    let pooled = abi.alloc(MIB, 0, null_mut());
    abi.end_allocate_to_pool(0, own);
    abi.free(pooled, MIB, 0, null_mut());
    abi.release_pool(0, own);
    abi.free(other, 4 * MIB, 0, stream(2));
    let done = !other.is_null() && !pooled.is_null() && abi.error_count() == 0;
    WORDS.fetch_add(u32::from(done), Ordering::Relaxed);
}

static KEY: AtomicU32 = AtomicU32::new(0);
static WORDS: AtomicU32 = AtomicU32::new(0);

#[test]
fn inner_ends_a_thread() {
    let Some(abi) = library() else { return };
    let abi = ABI.get_or_init(|| abi);
    let mut key = 0;
    // SAFETY: writes a key; the function lives as long as the program.
    assert_eq!(unsafe { libc::pthread_key_create(&mut key, Some(last_words)) }, 0);
    KEY.store(key, Ordering::Relaxed);
    let pool = PoolId(1, 1);
    abi.begin_allocate_to_pool(0, pool, null_mut());
    std::thread::spawn(move || {
        abi.free(abi.alloc(MIB, 0, null_mut()), MIB, 0, null_mut());
        // SAFETY: the key was made above.
        assert_eq!(unsafe { libc::pthread_setspecific(key, stream(3)) }, 0);
    })
    .join()
    .unwrap();
    assert_eq!(WORDS.load(Ordering::Relaxed), 3, "{} errors", abi.error_count());
    abi.end_allocate_to_pool(0, pool);
    abi.release_pool(0, pool);
    assert!(abi.empty_cache(0) > 0, "no graph is captured any more");
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 0);
    assert_eq!(abi.error_count(), 0);
}
