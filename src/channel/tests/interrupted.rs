//! Signals that come all the time, as under a sampling profiler.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::os::unix::fs::MetadataExt;

use common::channel_dir;
use gpumem_channel::{Options, Publisher};

const MOST: u32 = 1 << 20;

/// Has this thread's `fallocate(2)` of more than [`MOST`] bytes interrupted, as if a signal came before it is done: older kernels give all of it
/// back then.
#[allow(unsafe_code, reason = "seccomp has no safe interface")]
fn interrupt_long_ones() {
    let step = |code: u32, value: u32, else_skip: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: else_skip,
        k: value,
    };
    // Where the kernel has a filter find the call's number, and the lower half of the fourth argument.
    let (number, length) = (0, if cfg!(target_endian = "little") { 40 } else { 44 });
    let load = |from: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, from, 0);
    let leave = |with: u32| step(libc::BPF_RET | libc::BPF_K, with, 0);
    let mut filter = [
        load(number),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_fallocate as u32,
            3,
        ),
        load(length),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, MOST, 1),
        leave(libc::SECCOMP_RET_ERRNO | libc::EINTR as u32),
        leave(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no memory is passed to the first; the kernel copies the filter, which lives until then.
    let filtered = unsafe {
        (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
            && (libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0)
    };
    assert!(filtered, "no filter: {}", std::io::Error::last_os_error());
}

#[test]
fn room_is_made_for_a_channel_between_signals() {
    let dir = channel_dir();
    let options = Options {
        dir: Some(dir.path().to_owned()),
        ..Options::default()
    };
    assert!(options.file_len() > 8 * u64::from(MOST));
    let publisher = std::thread::scope(|scope| {
        let create = || {
            interrupt_long_ones();
            Publisher::create(&options)
        };
        scope.spawn(create).join().unwrap().unwrap()
    });
    let file = publisher.path().metadata().unwrap();
    assert_eq!(file.len(), options.file_len());
    assert!(file.blocks() * 512 >= file.len(), "all of it is there");
}
