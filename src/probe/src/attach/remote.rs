//! Has CPython 3.14 or newer execute a text through its own interface for debuggers (PEP 768), without stopping it.
//!
//! The interpreter executes a file as soon as its main thread is between two instructions of Python, so this is for a thread that runs. The
//! file is in memory of this process, and the text connects to a socket of this process: both have to be within reach of the other one.
//!
//! # What is written into the process
//! In the state of its main thread, at places that its interpreter tells (`_Py_DebugOffsets`), in this order:
//! ```text
//! debugger_script_path      the path of the file, ended by a zero byte
//! debugger_pending_call     1, in 4 bytes; the interpreter makes it 0 again
//! eval_breaker              bit 5 of its first byte; the interpreter takes it back
//! ```
//! The protocol is documented in CPython's "Remote debugging attachment protocol".

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;

use super::inject::image;
use super::x86_64::read_word;
use crate::Root;
use crate::stat::Status;

/// How long the main thread may take to come to the end of an instruction. One that does not is probably in a long call.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a text that has begun takes to connect.
const AT_THIS_MOMENT: Duration = Duration::from_millis(100);
const COOKIE: [u8; 8] = *b"xdebugpy";
/// More interpreters than any program has. The main one is the last of the list.
const MOST_INTERPRETERS: usize = 1000;
/// More than an offset in a structure of CPython can be.
const MOST_OFFSET: u64 = 1 << 20;
const LONGEST_PATH: usize = 512;
const STOP: u8 = 1 << 5;

/// Where the words of `_Py_DebugOffsets` are that are needed, counted in words. The first ones are where they are in each version.
const INTERPRETERS: u64 = 5;
const ID: u64 = 7;
const NEXT: u64 = 8;
const MAIN_THREAD: u64 = 10;
/// Version of CPython, and where the six words of `debugger_support` begin.
const SUPPORT: [((u8, u8), u64); 2] = [((3, 14), 89), ((3, 15), 105)];

/// The state of the main thread, and where in it is what has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    eval_breaker: u64,
    pending: u64,
    path: u64,
    longest_path: usize,
    enabled: bool,
}

/// Finds the places. `None`: it is another version, one before its release, or not what is expected.
fn places(memory: &File, runtime: u64, version: u64) -> Option<Places> {
    let known = ((version >> 24) as u8, (version >> 16) as u8);
    let (_, support) = SUPPORT.iter().find(|(version, _)| *version == known)?;
    let word = |at: u64| read_word(memory, runtime.checked_add(at.checked_mul(8)?)?);
    let offset = |at: u64| word(at).filter(|offset| *offset < MOST_OFFSET);
    let is_released = version & 0xf0 == 0xf0;
    if word(0)?.to_le_bytes() != COOKIE || word(1)? != version || !is_released {
        return None;
    }
    let at = |base: u64, offset: u64| read_word(memory, base.checked_add(offset)?);
    let (id, next) = (offset(ID)?, offset(NEXT)?);
    let pointer = |base: u64, offset: u64| at(base, offset).filter(|address| *address != 0);
    let mut interpreter = pointer(runtime, offset(INTERPRETERS)?)?;
    for _ in 0..MOST_INTERPRETERS {
        if at(interpreter, id)? == 0 {
            break;
        }
        interpreter = pointer(interpreter, next)?;
    }
    if at(interpreter, id)? != 0 {
        return None;
    }
    let thread = pointer(interpreter, offset(MAIN_THREAD)?)?;
    let debugger = thread.checked_add(offset(support + 1)?)?;
    let enabled = at(interpreter, offset(support + 2)?)? as u32;
    Some(Places {
        eval_breaker: thread.checked_add(offset(*support)?)?,
        pending: debugger.checked_add(offset(support + 3)?)?,
        path: debugger.checked_add(offset(support + 4)?)?,
        longest_path: usize::try_from(offset(support + 5)?).ok()?,
        enabled: enabled != 0,
    })
}

/// A CPython that has the interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    runtime: u64,
    version: u64,
}

impl Remote {
    /// Looks for the interface. `None`: it is not known in this version.
    ///
    /// # Errors
    /// A sentence: who started the process has switched the interface off, and would not want another way in, either.
    pub(super) fn examine(memory: &File, runtime: Option<u64>, version: Option<u64>) -> Result<Option<Remote>, String> {
        let (Some(runtime), Some(version)) = (runtime, version) else {
            return Ok(None);
        };
        match places(memory, runtime, version) {
            Some(places) if !places.enabled => Err(
                "its Python was started without remote debugging (PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug)".to_owned(),
            ),
            Some(_) => Ok(Some(Remote { runtime, version })),
            None => Ok(None),
        }
    }

    /// Has it execute the text, and returns this end of its connection. `None`: its main thread waits or computes in one long call, or the
    /// process does not see what this one offers it. Then nothing is going to be executed.
    pub(super) fn execute(self, process: (u32, &[u8]), text: [&str; 2]) -> Option<OwnedFd> {
        let (pid, known) = process;
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .ok()?;
        // This memory stays that of the program that was looked at, also if it is replaced from here on.
        if image(pid).ok()? != known || !runs(pid) {
            return None;
        }
        let places = places(&memory, self.runtime, self.version)?;
        let listener = Listener::open(pid)?;
        let file = script(pid, &listener.name, text)?;
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), file.as_raw_fd());
        if path.len() > places.longest_path.min(LONGEST_PATH) || !reaches(pid, &file, &path[..path.len() - 1]) {
            return None;
        }
        if pending(&memory, &places)? {
            // Another debugger was faster.
            return None;
        }
        memory.write_all_at(path.as_bytes(), places.path).ok()?;
        memory.write_all_at(&1u32.to_le_bytes(), places.pending).ok()?;
        let mut breaker = [0];
        memory.read_exact_at(&mut breaker, places.eval_breaker).ok()?;
        memory.write_all_at(&[breaker[0] | STOP], places.eval_breaker).ok()?;
        if let Some(socket) = listener.accept(PATIENCE) {
            return Some(socket);
        }
        // It is taken back, unless the interpreter has begun. It may also begin at this moment.
        if !pending(&memory, &places)? {
            return listener.accept(PATIENCE);
        }
        let _ = memory.write_all_at(&0u32.to_le_bytes(), places.pending);
        listener.accept(AT_THIS_MOMENT)
    }
}

fn pending(memory: &File, places: &Places) -> Option<bool> {
    let mut word = [0; 4];
    memory.read_exact_at(&mut word, places.pending).ok()?;
    Some(u32::from_le_bytes(word) != 0)
}

/// Checks whether the main thread of a process runs.
fn runs(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/task/{pid}/syscall")).is_ok_and(|call| call.starts_with(b"running"))
}

/// Returns a file in memory with what the interpreter is to execute. A process that was forked meanwhile executes it, too, and has to
/// leave it at that. Nothing is printed if the connection fails, and nobody who fills the socket's queue makes the main thread wait.
fn script(pid: u32, name: &str, [before, after]: [&str; 2]) -> Option<File> {
    let mut file = File::from(rustix::fs::memfd_create("gpumem", MemfdFlags::CLOEXEC).ok()?);
    write!(
        file,
        "try:
    import posix, socket
    FD = -1
    if posix.getpid() == {pid}:
        CONNECTION = socket.socket(socket.AF_UNIX)
        CONNECTION.setblocking(False)
        CONNECTION.connect(\"\\0{name}\")
        CONNECTION.setblocking(True)
        FD = CONNECTION.detach()
except OSError:
    pass
else:
    {before}FD{after}"
    )
    .ok()?;
    Some(file)
}

/// Checks whether a process may open a file of this one by its path: it has the same user and no fewer rights, sees the same processes, and
/// has the same abstract sockets.
fn reaches(pid: u32, file: &File, path: &str) -> bool {
    let about = |path: String| std::fs::metadata(path).ok();
    let (Some(there), Ok(here)) = (about(format!("/proc/{pid}/root{path}")), file.metadata()) else {
        return false;
    };
    let root = Root::default();
    let same = |name: &str| {
        let namespace = |pid: &str| root.namespace(format!("proc/{pid}/ns/{name}")).ok();
        namespace("self").is_some_and(|own| Some(own) == namespace(&pid.to_string()))
    };
    let status = (Status::read(&root, "self"), Status::read(&root, pid));
    let (Ok(own), Ok(its)) = status else { return false };
    // The kernel's rule for opening what is below `/proc/PID/fd` of another process.
    let rights = own
        .permitted
        .zip(its.capabilities)
        .is_some_and(|(own, its)| own & !its == 0);
    (there.dev(), there.ino()) == (here.dev(), here.ino())
        && ["user", "pid", "net"].into_iter().all(same)
        && own.uids.is_some()
        && own.uids == its.uids
        && rights
}

/// A socket without a file, to which only one process may connect.
struct Listener {
    socket: UnixListener,
    name: String,
    pid: u32,
}

impl Listener {
    fn open(pid: u32) -> Option<Listener> {
        let name = format!("gpumem-attach-{}-{pid}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).ok()?;
        let socket = UnixListener::bind_addr(&address).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(Listener { socket, name, pid })
    }

    /// Waits for the process. Anybody else may connect, too, and is turned away.
    fn accept(&self, patience: Duration) -> Option<OwnedFd> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait)).ok()?;
            if let Ok((stream, _)) = self.socket.accept() {
                let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
                if u32::try_from(peer.pid.as_raw_nonzero().get()) == Ok(self.pid) {
                    stream.set_nonblocking(false).ok()?;
                    return Some(stream.into());
                }
            }
            if left.is_zero() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::net::UnixStream;

    use super::*;

    const RUNTIME: u64 = 4096;
    const V3_14: u64 = 0x030e_0af0;
    const V3_15: u64 = 0x030f_02f0;

    /// A memory in which the words at some addresses are not 0.
    fn memory(words: &[(u64, u64)]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        for (at, word) in words {
            file.write_all_at(&word.to_le_bytes(), *at).unwrap();
        }
        file
    }

    /// What CPython has in its memory: the table, two interpreters, and the main thread's state. The offsets of 3.14 and 3.15 are those
    /// of its header `pycore_debug_offsets.h`.
    fn cpython(version: u64, support: u64) -> Vec<(u64, u64)> {
        let table = [
            (0, u64::from_le_bytes(COOKIE)),
            (1, version),
            (5, 800),
            (7, 16),
            (8, 24),
            (10, 40),
            (support, 8),
            (support + 1, 400),
            (support + 2, 48),
            (support + 3, 4),
            (support + 4, 8),
            (support + 5, 512),
        ];
        let mut words: Vec<_> = table.iter().map(|(word, value)| (RUNTIME + word * 8, *value)).collect();
        let (second, main, thread) = (0x10000, 0x20000, 0x30000);
        words.extend([(RUNTIME + 800, second), (second + 16, 1), (second + 24, main)]);
        words.extend([(main + 40, thread), (main + 48, 1)]);
        words
    }

    #[test]
    fn places_are_those_of_the_main_thread() {
        let expected = Places {
            eval_breaker: 0x30008,
            pending: 0x30000 + 404,
            path: 0x30000 + 408,
            longest_path: 512,
            enabled: true,
        };
        for (version, support) in [(V3_14, 89), (V3_15, 105)] {
            let words = cpython(version, support);
            assert_eq!(places(&memory(&words), RUNTIME, version), Some(expected));
        }
    }

    #[test]
    fn what_is_not_expected_is_left_alone() {
        let good = cpython(V3_14, 89);
        let other = |at: u64, word: u64| {
            let mut words = good.clone();
            words.push((at, word));
            places(&memory(&words), RUNTIME, V3_14)
        };
        assert_eq!(other(RUNTIME, 0), None, "no table");
        assert_eq!(other(RUNTIME + 8, V3_15), None, "a table of another version");
        assert_eq!(
            other(RUNTIME + 89 * 8, u64::MAX - 4096),
            None,
            "an offset out of all reason"
        );
        assert_eq!(other(0x20000 + 16, 7), None, "no main interpreter");
        assert_eq!(other(0x10000 + 24, 0x10000), None, "a list without an end");
        assert_eq!(other(RUNTIME + 800, u64::MAX - 3), None, "outside of memory");
        let before_release = 0x030e_00b2;
        assert_eq!(
            places(&memory(&cpython(before_release, 89)), RUNTIME, before_release),
            None
        );
        let newer = 0x0310_00f0;
        assert_eq!(places(&memory(&cpython(newer, 105)), RUNTIME, newer), None);
    }

    #[test]
    fn interface_that_is_switched_off_is_a_refusal() {
        let mut words = cpython(V3_14, 89);
        words.push((0x20000 + 48, 0));
        let refused = Remote::examine(&memory(&words), Some(RUNTIME), Some(V3_14)).unwrap_err();
        assert!(refused.contains("without remote debugging"), "{refused}");
        assert!(
            Remote::examine(&memory(&[]), Some(RUNTIME), Some(V3_14))
                .unwrap()
                .is_none()
        );
        assert!(Remote::examine(&memory(&[]), None, Some(V3_14)).unwrap().is_none());
    }
    /// Another process connects again and again: it is not taken for the wanted one, and the wait ends all the same.
    #[test]
    fn only_the_process_itself_is_accepted() {
        let own = Listener::open(std::process::id()).unwrap();
        let connect = |name: &str| UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap());
        let _connected = connect(&own.name).unwrap();
        assert!(own.accept(Duration::from_secs(10)).is_some());
        // Process 1 is not this one.
        let other = Listener::open(1).unwrap();
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = connect(&other.name);
                }
            });
            let accepted = other.accept(Duration::from_millis(50));
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(accepted.is_none());
            // The last connection may wait for room in the queue.
            while other.socket.accept().is_ok() {}
        });
    }

    #[test]
    fn own_file_is_within_reach() {
        let file = script(1, "a", ["", ""]).unwrap();
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        assert!(reaches(std::process::id(), &file, &path));
        let other = script(1, "a", ["", ""]).unwrap();
        assert!(!reaches(std::process::id(), &other, &path), "another file");
        assert!(!reaches(u32::MAX, &file, &path), "no process");
    }
}
