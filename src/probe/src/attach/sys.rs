//! The requests of `ptrace(2)` that `nix` does not wrap.
#![allow(unsafe_code)]

use std::io;

use nix::unistd::Pid;

/// `elf.h`: the register set with all that `xsave` saves, the upper halves of vector registers included.
const NT_X86_XSTATE: usize = 0x202;
/// More than the register set of any processor: AMX alone takes 8 KiB.
const MOST_STATE: usize = 64 << 10;
/// Bytes of the kernel's signal sets.
const SIGSET: usize = 8;

/// Returns the floating-point and vector registers of a stopped thread.
pub(super) fn vector_registers(pid: Pid) -> io::Result<Vec<u8>> {
    let mut state = vec![0u8; MOST_STATE];
    let mut io = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to the buffer, and then how many those were to `iov_len`.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid.as_raw(), NT_X86_XSTATE, &raw mut io) };
    check(done)?;
    state.truncate(io.iov_len);
    Ok(state)
}

/// Sets the registers that [`vector_registers`] returned.
pub(super) fn set_vector_registers(pid: Pid, state: &mut [u8]) -> io::Result<()> {
    let mut io = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    // SAFETY: the kernel reads `iov_len` bytes of the buffer, and checks them.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, pid.as_raw(), NT_X86_XSTATE, &raw mut io) };
    check(done)
}

/// Returns the blocked signals of a stopped thread, signal 1 in the lowest bit.
pub(super) fn signal_mask(pid: Pid) -> io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes SIGSET bytes to `mask`, which has as many.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, pid.as_raw(), SIGSET, &raw mut mask) };
    check(done)?;
    Ok(mask)
}

/// Sets the blocked signals of a stopped thread.
pub(super) fn set_signal_mask(pid: Pid, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads SIGSET bytes of `mask`, which has as many.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, pid.as_raw(), SIGSET, &raw const mask) };
    check(done)
}

fn check(done: libc::c_long) -> io::Result<()> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
