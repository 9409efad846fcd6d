//! A program that shuts itself off from system calls. After it began to allocate: the barrier that one thread has the kernel make for all
//! is not to be had any more, and a thread may be in a lane by then without an atomic operation. Before: what is asked of the system is
//! not told.
#![allow(unsafe_code, reason = "seccomp has no safe interface")]
#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Config, Stream};

/// Has these system calls of this thread refused from now on, each with its error.
fn refuse(calls: &[(libc::c_long, i32)]) {
    let step = |code: u32, value: u32, unequal: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: unequal,
        k: value,
    };
    let refused = |&(call, why): &(libc::c_long, i32)| {
        [
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | why as u32, 0),
        ]
    };
    // The number of the call, which comes first in what a filter sees.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    filter.extend(calls.iter().flat_map(refused));
    filter.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no memory is passed.
    let private = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(private, 0);
    // SAFETY: the kernel copies the filter, which lives until then.
    let filtered = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(filtered, 0, "no filter: {}", std::io::Error::last_os_error());
}

/// Has this thread's `membarrier(2)` refused from now on, and its sleeps, as if a signal came each time.
fn refuse_barriers() {
    refuse(&[
        (libc::SYS_membarrier, libc::EPERM),
        (libc::SYS_nanosleep, libc::EINTR),
        (libc::SYS_clock_nanosleep, libc::EINTR),
    ]);
    // SAFETY: no memory is passed.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0) };
    assert_eq!(refused, -1);
}

#[test]
fn threads_share_a_stream_where_the_kernels_barrier_is_refused_later() {
    let alloc = Allocator::new(device::sim(SimConfig::default()), Config::default()).unwrap();
    let (begin, done) = (Barrier::new(2), AtomicBool::new(false));
    let pair = || drop(alloc.alloc::<u8>(4096, Stream::DEFAULT).unwrap());
    let (pairs, waited): (u64, Duration) = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            // By now it is the one that takes the lane again and again.
            (0..10_000).for_each(|_| pair());
            begin.wait();
            let mut pairs = 10_000;
            while !done.load(Ordering::Relaxed) {
                pair();
                pairs += 1;
            }
            pairs
        });
        let second = scope.spawn(|| {
            begin.wait();
            refuse_barriers();
            let began = Instant::now();
            pair();
            let first_pair = began.elapsed();
            (1..1000).for_each(|_| pair());
            first_pair
        });
        let second = second.join();
        done.store(true, Ordering::Relaxed);
        (first.join().unwrap() + 1000, second.unwrap())
    });
    // The first one had the right to enter, which was taken away without a barrier: only time tells that it has seen that.
    assert!(waited >= Duration::from_millis(1), "only {waited:?}");
    let all = alloc.stats().all();
    assert_eq!((all.allocation.allocated, all.allocation.current), (pairs, 0));
    assert_eq!(all.allocated_bytes.current, 0);
    assert!(all.allocation.peak <= 2, "{} blocks at once", all.allocation.peak);
}

/// What a limit is may be refused as what it is to be: it is one system call.
#[test]
fn a_program_that_may_not_ask_for_its_limits_publishes() {
    let channel = std::thread::spawn(|| {
        refuse(&[(libc::SYS_prlimit64, libc::EPERM)]);
        let alloc = Allocator::new(device::sim(SimConfig::default()), Config::default()).unwrap();
        drop(alloc.alloc::<u8>(4096, Stream::DEFAULT).unwrap());
        alloc.channel()
    });
    channel.join().unwrap().unwrap();
}
