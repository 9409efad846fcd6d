//! A program that shuts itself off from system calls after it began to allocate: the barrier that one thread has the kernel make for all
//! is not to be had any more, and a thread may be in a lane by then without an atomic operation.
#![allow(clippy::unwrap_used)]

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use gpumem_alloc::device::{self, SimConfig};
use gpumem_alloc::{Allocator, Config, Stream};

/// Has this thread's `membarrier(2)` refused from now on.
fn refuse_barriers() {
    let step = |code: u32, value: u32, unequal: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: unequal,
        k: value,
    };
    let mut filter = [
        // The number of the call, which comes first in what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_membarrier as u32,
            1,
        ),
        step(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            0,
        ),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
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
    // SAFETY: no memory is passed.
    let refused = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0) };
    assert_eq!(refused, -1);
}

#[test]
fn threads_share_a_stream_where_the_kernels_barrier_is_refused_later() {
    let alloc = Allocator::new(device::sim(SimConfig::default()), Config::default()).unwrap();
    let (begin, done) = (Barrier::new(2), AtomicBool::new(false));
    let pair = || drop(alloc.alloc::<u8>(4096, Stream::DEFAULT).unwrap());
    let pairs: u64 = std::thread::scope(|scope| {
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
            (0..1000).for_each(|_| pair());
        });
        let outcome = second.join();
        done.store(true, Ordering::Relaxed);
        outcome.unwrap();
        first.join().unwrap() + 1000
    });
    let all = alloc.stats().all();
    assert_eq!((all.allocation.allocated, all.allocation.current), (pairs, 0));
    assert_eq!(all.allocated_bytes.current, 0);
    assert!(all.allocation.peak <= 2, "{} blocks at once", all.allocation.peak);
}
