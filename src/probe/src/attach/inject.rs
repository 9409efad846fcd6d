//! What is done while the thread stands still.
//!
//! A thread that runs is given a *pending call* (`Py_AddPendingCall`): the interpreter makes it in its main thread as soon as that is
//! between two instructions of Python. Nothing else of Python may be called, because the thread can be anywhere, in the middle of malloc
//! too. A thread that waits in a system call will not get there for a while, but holds no lock of malloc's, so it can start another
//! thread (`pthread_create`) that takes the GIL and runs the text.
//!
//! # What is written into the process
//! All of it is in memory that the thread maps for this (`mmap`), and unmaps again once the text has run:
//! ```text
//! data, readable and writable      0   two descriptors of a socket pair (socketpair)
//!                                  8   thread id of the thread that was started
//!                                 16   its pthread_t
//!                                 64   the text, ended by a zero byte
//! code, readable and executable    0   the function of that thread, see `code`; only if it was started
//! ```
//! Below the stack pointer of the thread, beyond the 128 bytes that belong to what it was doing, one word is written for each function
//! that is called: the return address 0. Registers, vector registers and blocked signals are as before when it goes on.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::Route;
use super::tracee::{Failed, Tracee};

const SOCKETS: u64 = 0;
const THREAD_ID: u64 = 8;
const THREAD: u64 = 16;
const TEXT: u64 = 64;
const PAGE: u64 = 4096;
/// Bytes of the kernel's list of addresses for a program: some twenty pairs of words.
const MOST_IMAGE: u64 = 4096;
/// More than the text can have: it is ours.
const MOST_TEXT: u64 = 8 << 20;
/// Digits of a `u32`.
const LONGEST_NUMBER: u64 = 10;

/// Addresses in the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) system_call: u64,
    pub(super) add_pending_call: u64,
    pub(super) run_string: u64,
    pub(super) ensure: u64,
    pub(super) release: u64,
    pub(super) create: u64,
    pub(super) detach: u64,
    pub(super) this_thread: u64,
}

/// What was done, and what it left in the process.
#[derive(Debug)]
pub struct Injected {
    /// How the text got to run.
    pub route: Route,
    /// How long the main thread stood still, at most: at the first stop.
    pub stopped: Duration,
    /// This end of the connection, whose other end the text has.
    pub socket: OwnedFd,
    /// Start and size of each mapping.
    mappings: Vec<(u64, u64)>,
}

impl Injected {
    /// What a process did by itself, in which nothing is left.
    pub(super) fn without_stop(socket: OwnedFd) -> Injected {
        Injected {
            route: Route::Remote,
            stopped: Duration::ZERO,
            socket,
            mappings: Vec::new(),
        }
    }

    /// Where the id of the started thread is, if one was started.
    pub(super) fn thread_id_at(&self) -> Option<u64> {
        let data = self.mappings.first()?.0;
        (self.route == Route::Thread).then_some(data + THREAD_ID)
    }
}

/// Returns what tells the program that a process runs from any other: the addresses at which the kernel put it, which are random.
pub(super) fn image(pid: u32) -> std::io::Result<Vec<u8>> {
    crate::Root::default().read(format!("proc/{pid}/auxv"), MOST_IMAGE)
}

/// Stops a process, unless it has replaced its program (`exec`) since it was looked at: then nothing is where it was.
fn stop((pid, known): (u32, &[u8])) -> Result<Tracee, String> {
    let tracee = Tracee::stop(pid).map_err(|failed| failed.to_string())?;
    match image(pid) {
        Ok(now) if now == known => Ok(tracee),
        _ => Err("it has started another program meanwhile".to_owned()),
    }
}

/// Has a process run a text of Python: the two parts with the number of the descriptor of its end of a socket pair between them.
pub(super) fn inject(process: (u32, &[u8]), at: &Addresses, text: [&str; 2]) -> Result<Injected, String> {
    let begun = Instant::now();
    let mut tracee = stop(process)?;
    let mut session = Session {
        tracee: &mut tracee,
        at,
        mappings: Vec::new(),
        descriptors: Vec::new(),
    };
    let done = session.run(process.0, text);
    if done.is_err() {
        session.undo();
    }
    let mappings = session.mappings;
    drop(tracee);
    let stopped = begun.elapsed();
    done.map(|(route, socket)| Injected {
        route,
        stopped,
        socket,
        mappings,
    })
}

/// Takes back what was left. The text must have run, and a thread that was started must have ended.
pub(super) fn take_back(process: (u32, &[u8]), at: &Addresses, injected: &Injected) -> Result<(), String> {
    let mut tracee = stop(process)?;
    let mut session = Session {
        tracee: &mut tracee,
        at,
        mappings: injected.mappings.clone(),
        descriptors: Vec::new(),
    };
    session.tracee.block_signals().map_err(|failed| failed.to_string())?;
    session.undo();
    Ok(())
}

/// A stopped thread, and what was made in its process.
struct Session<'a> {
    tracee: &'a mut Tracee,
    at: &'a Addresses,
    mappings: Vec<(u64, u64)>,
    descriptors: Vec<u32>,
}

impl Session<'_> {
    fn run(&mut self, pid: u32, [before, after]: [&str; 2]) -> Result<(Route, OwnedFd), String> {
        let waits = self.tracee.is_blocked();
        if waits && !may_start_a_thread(self.tracee.call()) {
            return Err("its main thread waits in a system call in which it may hold a lock: try again".into());
        }
        let failed = |failed: Failed| failed.to_string();
        self.tracee.block_signals().map_err(failed)?;
        let room = (before.len() + after.len()) as u64 + LONGEST_NUMBER + 1;
        if room > MOST_TEXT {
            return Err("the text is too long".into());
        }
        let data = self.map(TEXT + room, libc::PROT_READ | libc::PROT_WRITE)?;
        let (theirs, ours) = self.socket_pair(data + SOCKETS, pid)?;
        let mut end = data + TEXT;
        for part in [before, &theirs.to_string(), after] {
            self.tracee.write(end, part.as_bytes()).map_err(failed)?;
            end += part.len() as u64;
        }
        let result = match waits {
            false => {
                let arguments = [self.at.run_string, data + TEXT, 0, 0];
                self.tracee.function(self.at.add_pending_call, arguments)
            }
            true => {
                let code = self.map(PAGE, libc::PROT_READ | libc::PROT_EXEC)?;
                self.tracee.write(code, &self.code(data)).map_err(failed)?;
                self.tracee
                    .function(self.at.create, [data + THREAD, 0, code, data + TEXT])
            }
        };
        let result = result.map_err(|failed| {
            // Nobody knows whether the text is going to run: it stays.
            self.mappings.clear();
            self.descriptors.clear();
            failed.to_string()
        })?;
        // Both return an int, which is 0 if all went well.
        match result as u32 {
            0 if waits => Ok((Route::Thread, ours)),
            0 => Ok((Route::PendingCall, ours)),
            _ if !waits => Err("its interpreter has too many pending calls: try again".into()),
            error => Err(format!("it cannot start a thread: error {error}")),
        }
    }

    fn map(&mut self, bytes: u64, protection: i32) -> Result<u64, String> {
        let bytes = bytes.next_multiple_of(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let arguments = [0, bytes, protection as u64, flags as u64, u64::MAX, 0];
        let address = self.system_call("map memory", libc::SYS_mmap, arguments)?;
        self.mappings.push((address, bytes));
        Ok(address)
    }

    /// Makes a socket pair, and takes one of its ends over. Returns the number of the other one, and that end.
    fn socket_pair(&mut self, room: u64, pid: u32) -> Result<(u32, OwnedFd), String> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let arguments = [libc::AF_UNIX as u64, kind as u64, 0, room, 0, 0];
        self.system_call("make a socket", libc::SYS_socketpair, arguments)?;
        let mut pair = [0; 8];
        self.tracee.read(room, &mut pair).map_err(|failed| failed.to_string())?;
        let (theirs, ours) = pair.split_at(4);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
        let (theirs, ours) = (number(theirs), number(ours));
        self.descriptors.extend([theirs, ours]);
        let taken = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .and_then(|process| pidfd_getfd(&process, ours as i32, PidfdGetfdFlags::empty()))
            .map_err(|error| format!("cannot take over a socket of it: {error}"))?;
        self.system_call("close a socket", libc::SYS_close, [ours.into(), 0, 0, 0, 0, 0])?;
        self.descriptors.pop();
        Ok((theirs, taken))
    }

    fn system_call(&mut self, what: &str, number: i64, arguments: [u64; 6]) -> Result<u64, String> {
        let result = self.tracee.system_call(self.at.system_call, number, arguments);
        match result.map_err(|failed| failed.to_string())? {
            error @ -4095..=-1 => {
                let error = std::io::Error::from_raw_os_error(-error as i32);
                Err(format!("it cannot {what}: {error}"))
            }
            value => Ok(value as u64),
        }
    }

    /// Unmaps what was mapped, and closes what was opened. What fails here stays.
    fn undo(&mut self) {
        for (start, bytes) in std::mem::take(&mut self.mappings) {
            let _ = self.system_call("unmap memory", libc::SYS_munmap, [start, bytes, 0, 0, 0, 0]);
        }
        for descriptor in std::mem::take(&mut self.descriptors) {
            let _ = self.system_call("close a socket", libc::SYS_close, [descriptor.into(), 0, 0, 0, 0, 0]);
        }
    }

    /// Returns the function of the thread that is started, whose argument is the text:
    /// ```text
    /// push rbx; push r12; sub rsp, 8         the stack is aligned again
    /// mov rbx, rdi                           the text
    /// mov eax, 186; syscall                  gettid
    /// mov r12, data + 8; mov [r12], eax      its id, for who cleans up
    /// call pthread_self; mov rdi, rax; call pthread_detach
    /// call PyGILState_Ensure; mov r12d, eax
    /// mov rdi, rbx; call PyRun_SimpleString
    /// mov edi, r12d; call PyGILState_Release
    /// xor eax, eax; add rsp, 8; pop r12; pop rbx; ret
    /// ```
    /// Each call is `mov rax, ADDRESS; call rax`.
    fn code(&self, data: u64) -> Vec<u8> {
        let mut code = vec![0x53, 0x41, 0x54, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xfb];
        code.extend([0xb8, 186, 0, 0, 0, 0x0f, 0x05]);
        code.extend([0x49, 0xbc]);
        code.extend((data + THREAD_ID).to_le_bytes());
        code.extend([0x41, 0x89, 0x04, 0x24]);
        let mut call = |before: &[u8], address: u64| {
            code.extend(before);
            code.extend([0x48, 0xb8]);
            code.extend(address.to_le_bytes());
            code.extend([0xff, 0xd0]);
        };
        call(&[], self.at.this_thread);
        call(&[0x48, 0x89, 0xc7], self.at.detach);
        call(&[], self.at.ensure);
        call(&[0x41, 0x89, 0xc4, 0x48, 0x89, 0xdf], self.at.run_string);
        call(&[0x44, 0x89, 0xe7], self.at.release);
        code.extend([0x31, 0xc0, 0x48, 0x83, 0xc4, 0x08, 0x41, 0x5c, 0x5b, 0xc3]);
        code
    }
}

/// Checks whether a thread that waits in this system call can start another one: it holds no lock of malloc's, which is taken for that.
/// None of these calls is made with it but that for a lock.
fn may_start_a_thread((number, arguments): (u64, [u64; 3])) -> bool {
    /// `FUTEX_WAIT_BITSET` without its flags: condition variables and semaphores, with which Python waits. glibc's own locks, malloc's
    /// among them, wait with `FUTEX_WAIT`.
    const WAIT_BITSET: u64 = 9;
    const FLAGS: u64 = 128 | 256;
    match number as i64 {
        libc::SYS_futex => arguments[1] & !FLAGS == WAIT_BITSET,
        libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_pause
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_restart_syscall => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_started_only_where_malloc_is_not_locked() {
        let futex = |operation| (libc::SYS_futex as u64, [0, operation, 0]);
        assert!(may_start_a_thread(futex(9 | 128)));
        assert!(may_start_a_thread(futex(9 | 128 | 256)));
        assert!(!may_start_a_thread(futex(128)), "a lock of glibc's");
        assert!(!may_start_a_thread(futex(0)));
        assert!(may_start_a_thread((libc::SYS_epoll_wait as u64, [0; 3])));
        assert!(!may_start_a_thread((libc::SYS_mmap as u64, [0; 3])));
        assert!(!may_start_a_thread((libc::SYS_madvise as u64, [0; 3])));
        assert!(!may_start_a_thread((u64::MAX, [0; 3])));
    }
}
