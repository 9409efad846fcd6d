//! A thread of another process that is stopped, has functions called in its name, and goes on as if nothing had been.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libc::user_regs_struct as Registers;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::sys;

/// The longest time for the thread to stop. It does not in an uninterruptible wait, as for a disk.
const STOP: Duration = Duration::from_secs(1);
/// The longest time for a function to return.
const RETURN: Duration = Duration::from_secs(2);
/// Between two looks at whether it has.
const LOOK: Duration = Duration::from_micros(50);
/// Bytes below the stack pointer that belong to the function that was interrupted (System V ABI).
const RED_ZONE: u64 = 128;
/// Results of system calls that the kernel repeats when the thread goes on (`ERESTARTSYS` and its kin, which no program sees).
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// Bytes of the instruction `syscall`.
const SYSTEM_CALL_BYTES: u64 = 2;
/// A function returns to this address, where nothing is: the thread faults there, and stops.
const NOWHERE: u64 = 0;

/// Why something was not done.
#[derive(Debug)]
pub(super) enum Failed {
    /// A request of the kernel's.
    Os(&'static str, io::Error),
    /// The thread did not stop in time.
    NotStopped,
    /// The thread ended.
    Ended,
    /// A function did not return in time.
    NotReturned,
    /// The thread stopped where it should not have, by this signal.
    Stopped(Signal),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Os(what, error) => write!(f, "{what}: {error}"),
            Failed::NotStopped => write!(f, "its main thread does not stop: it waits in the kernel"),
            Failed::Ended => write!(f, "it has ended meanwhile"),
            Failed::NotReturned => write!(f, "a function that was called in it did not return in time"),
            Failed::Stopped(signal) => write!(f, "a function that was called in it ended by {signal}"),
        }
    }
}

fn os(what: &'static str) -> impl Fn(Errno) -> Failed {
    move |errno| match errno {
        Errno::ESRCH => Failed::Ended,
        errno => Failed::Os(what, errno.into()),
    }
}

fn io_of(what: &'static str) -> impl Fn(io::Error) -> Failed {
    move |error| match error.raw_os_error() {
        Some(libc::ESRCH) => Failed::Ended,
        _ => Failed::Os(what, error),
    }
}

/// A stopped thread. When this is dropped, the thread has its registers and its blocked signals as before, and goes on.
///
/// If this process is killed while a function is called, the kernel lets the thread go on there: the function returns to nowhere, and the
/// traced process dies.
pub(super) struct Tracee {
    pid: Pid,
    memory: File,
    registers: Registers,
    vectors: Vec<u8>,
    mask: u64,
    /// Whether it waited in a system call.
    blocked: bool,
    /// Whether registers were changed.
    changed: bool,
}

impl Tracee {
    /// Stops a process's main thread. The calling thread has to make all calls.
    pub(super) fn stop(pid: u32) -> Result<Tracee, Failed> {
        let pid = Pid::from_raw(i32::try_from(pid).map_err(|_| Failed::Ended)?);
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
        let memory = memory.map_err(io_of("cannot open its memory"))?;
        ptrace::seize(pid, ptrace::Options::empty()).map_err(os("cannot trace it"))?;
        let stopped = ptrace::interrupt(pid)
            .map_err(os("cannot stop it"))
            .and_then(|()| Self::wait_for_stop(pid));
        let read = stopped.and_then(|()| {
            let registers = ptrace::getregs(pid).map_err(os("cannot read its registers"))?;
            let vectors = sys::vector_registers(pid).map_err(io_of("cannot read its vector registers"))?;
            let mask = sys::signal_mask(pid).map_err(io_of("cannot read its blocked signals"))?;
            Ok((registers, vectors, mask))
        });
        match read {
            Ok((registers, vectors, mask)) => {
                let (blocked, registers) = goes_on(registers);
                Ok(Tracee {
                    pid,
                    memory,
                    registers,
                    vectors,
                    mask,
                    blocked,
                    // The thread may have to wait again.
                    changed: blocked,
                })
            }
            Err(failed) => {
                // One that is not stopped cannot be let go; it is when this thread ends.
                let _ = ptrace::detach(pid, None);
                Err(failed)
            }
        }
    }

    fn wait_for_stop(pid: Pid) -> Result<(), Failed> {
        match wait(pid, STOP)? {
            None => Err(Failed::NotStopped),
            Some(WaitStatus::PtraceEvent(_, Signal::SIGTRAP, _)) => Ok(()),
            // It was stopped by a signal before: it stays so, and nothing would run in it.
            Some(WaitStatus::PtraceEvent(_, signal, _)) => Err(Failed::Stopped(signal)),
            Some(WaitStatus::Stopped(_, signal)) => {
                // A signal is about to be delivered: it is, and the thread stops after that.
                ptrace::cont(pid, signal).map_err(os("cannot deliver a signal"))?;
                Self::wait_for_stop(pid)
            }
            Some(_) => Err(Failed::Ended),
        }
    }

    /// Checks whether the thread waits in a system call. It goes on waiting later.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Returns the system call that it waits in, with its arguments.
    pub(super) fn call(&self) -> (u64, [u64; 3]) {
        let registers = &self.registers;
        let number = match registers.orig_rax {
            u64::MAX => registers.rax,
            number => number,
        };
        (number, [registers.rdi, registers.rsi, registers.rdx])
    }

    /// Blocks all signals but those of faults, which the kernel would deliver all the same.
    pub(super) fn block_signals(&mut self) -> Result<(), Failed> {
        let faults = [libc::SIGSEGV, libc::SIGTRAP, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
        let mask = faults.iter().fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)));
        self.changed = true;
        sys::set_signal_mask(self.pid, mask).map_err(io_of("cannot block its signals"))
    }

    /// Reads its memory.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Failed> {
        self.memory
            .read_exact_at(bytes, at)
            .map_err(io_of("cannot read its memory"))
    }

    /// Writes its memory, whatever its protection.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Failed> {
        self.memory
            .write_all_at(bytes, at)
            .map_err(io_of("cannot write its memory"))
    }

    /// Makes a system call. `instruction` is the address of a `syscall` instruction. Returns its result, which is an error from -4095 to -1.
    pub(super) fn system_call(&mut self, instruction: u64, number: i64, arguments: [u64; 6]) -> Result<i64, Failed> {
        let mut registers = self.registers;
        registers.rip = instruction;
        registers.rax = number as u64;
        // It is in no system call that would be repeated.
        registers.orig_rax = u64::MAX;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        self.set(&registers)?;
        ptrace::step(self.pid, None).map_err(os("cannot make it step"))?;
        match self.wait_for_return()? {
            (Signal::SIGTRAP, after) => Ok(after.rax as i64),
            (signal, _) => Err(Failed::Stopped(signal)),
        }
    }

    /// Calls a function with integer arguments, on the thread's stack. Returns what is in `rax` then.
    pub(super) fn function(&mut self, address: u64, arguments: [u64; 4]) -> Result<u64, Failed> {
        let mut registers = self.registers;
        registers.rip = address;
        registers.orig_rax = u64::MAX;
        // A function expects the return address 8 bytes below a multiple of 16.
        registers.rsp = (registers.rsp.wrapping_sub(RED_ZONE) & !15).wrapping_sub(8);
        registers.rax = 0;
        [registers.rdi, registers.rsi, registers.rdx, registers.rcx] = arguments;
        // The ABI has the direction flag clear at a call.
        registers.eflags &= !0x400;
        self.write(registers.rsp, &NOWHERE.to_le_bytes())?;
        self.set(&registers)?;
        ptrace::cont(self.pid, None).map_err(os("cannot make it go on"))?;
        match self.wait_for_return()? {
            (Signal::SIGSEGV, after) if after.rip == NOWHERE => Ok(after.rax),
            (signal, _) => Err(Failed::Stopped(signal)),
        }
    }

    fn set(&mut self, registers: &Registers) -> Result<(), Failed> {
        self.changed = true;
        ptrace::setregs(self.pid, *registers).map_err(os("cannot set its registers"))
    }

    /// Waits until the thread stops. A thread that does not is stopped.
    fn wait_for_return(&mut self) -> Result<(Signal, Registers), Failed> {
        let status = match wait(self.pid, RETURN)? {
            Some(status) => status,
            None => {
                ptrace::interrupt(self.pid).map_err(os("cannot stop it"))?;
                match wait(self.pid, STOP)? {
                    Some(WaitStatus::PtraceEvent(..)) => return Err(Failed::NotReturned),
                    Some(status) => status,
                    None => return Err(Failed::NotStopped),
                }
            }
        };
        match status {
            WaitStatus::Stopped(_, signal) => {
                let registers = ptrace::getregs(self.pid).map_err(os("cannot read its registers"))?;
                Ok((signal, registers))
            }
            // Another process stops it, or resumes it.
            WaitStatus::PtraceEvent(_, signal, _) => Err(Failed::Stopped(signal)),
            _ => Err(Failed::Ended),
        }
    }

    fn restore(&mut self) -> Result<(), Failed> {
        if self.changed {
            ptrace::setregs(self.pid, self.registers).map_err(os("cannot restore its registers"))?;
            sys::set_vector_registers(self.pid, &mut self.vectors)
                .map_err(io_of("cannot restore its vector registers"))?;
            sys::set_signal_mask(self.pid, self.mask).map_err(io_of("cannot restore its blocked signals"))?;
        }
        ptrace::detach(self.pid, None).map_err(os("cannot let it go"))
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // It may have been killed meanwhile, and then there is nothing to restore.
        let _ = self.restore();
    }
}

/// Returns whether a stopped thread waited in a system call, and the registers with which it goes on.
///
/// The kernel repeats most of these calls. `epoll_wait` it does not: the program would see that it was interrupted (`EINTR`), as after any
/// signal. Without a time limit it is repeated here.
fn goes_on(registers: Registers) -> (bool, Registers) {
    let (number, result) = (registers.orig_rax as i64, registers.rax as i64);
    let interrupted = result == -i64::from(libc::EINTR);
    if number < 0 || !(interrupted || RESTARTS.contains(&result)) {
        return (false, registers);
    }
    let polls = matches!(number, libc::SYS_epoll_wait | libc::SYS_epoll_pwait);
    let for_ever = registers.r10 as i32 == -1;
    if !(interrupted && polls && for_ever) {
        return (true, registers);
    }
    let again = Registers {
        rip: registers.rip.wrapping_sub(SYSTEM_CALL_BYTES),
        rax: registers.orig_rax,
        orig_rax: u64::MAX,
        ..registers
    };
    (true, again)
}

/// Waits until a thread stops or ends. `None`: it does not in time.
fn wait(pid: Pid, most: Duration) -> Result<Option<WaitStatus>, Failed> {
    let flags = WaitPidFlag::__WALL | WaitPidFlag::WNOHANG;
    let until = Instant::now() + most;
    loop {
        match waitpid(pid, Some(flags)).map_err(os("cannot wait for it"))? {
            WaitStatus::StillAlive if Instant::now() >= until => return Ok(None),
            WaitStatus::StillAlive => sleep(LOOK),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Err(Failed::Ended),
            status => return Ok(Some(status)),
        }
    }
}
