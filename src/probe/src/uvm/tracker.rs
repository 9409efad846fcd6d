//! A tracker: the driver's object that counts what happens to one process's managed memory, or queues events about it.
//!
//! While a tracker is open, the driver keeps everything that the process holds on the GPU, even after it died. Only the helper
//! process makes trackers, and closes each the moment that its process ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::abi::{self, Layout, Queue, Refusal, control};
use super::causes::Aggregator;
use super::support::{AS_ROOT, open_tools};
use super::sys::{Aligned, Shared, request};
use super::{DEVICE, PAGE, TOOLS};
use crate::Root;
use crate::stat::Stat;

/// Events that the queue holds: 16 MiB. A process that faults without pause makes 180,000 a second, and it is emptied every 10 ms.
const QUEUE: u64 = 1 << 18;
/// The most descriptors of a process that are searched.
const MOST_DESCRIPTORS: usize = 64 << 10;

/// A process, identified by its pid and its start, because pids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its pid.
    pub pid: u32,
    /// Clock ticks from boot to its start.
    pub start_time: u64,
}

/// An open tracker.
#[derive(Debug)]
pub(super) struct Tracker {
    // The first field is dropped first. The mappings that the driver writes to are unmapped after it.
    _tools: OwnedFd,
    pidfd: OwnedFd,
    pid: u32,
    /// Where the process has the driver open.
    descriptor: String,
    device: std::path::PathBuf,
    /// Where the stack of its program begins.
    program: Option<u64>,
    control: Shared,
    queue: Option<Shared>,
    processors: Vec<u64>,
}

impl Tracker {
    /// Counts into `page`, from zero.
    ///
    /// # Errors
    /// A message that says why, and which permission is missing.
    pub(super) fn count(root: &Root, target: Target, page: Shared) -> Result<Tracker, String> {
        super::board::clear(page.words());
        Tracker::attach(root, target, page, None)
    }

    /// Queues events.
    ///
    /// # Errors
    /// As [`count`](Self::count).
    pub(super) fn listen(root: &Root, target: Target) -> Result<Tracker, String> {
        let memory = |bytes| Shared::anonymous(bytes).map_err(|e| format!("no memory for the events: {e}"));
        let queue = memory(QUEUE as usize * abi::ENTRY)?;
        Tracker::attach(root, target, memory(PAGE as usize)?, Some(queue))
    }

    fn attach(root: &Root, target: Target, control: Shared, queue: Option<Shared>) -> Result<Tracker, String> {
        let version = crate::facts::driver_module(root)?;
        let layout = Layout::of_driver(&version)?;
        let pidfd = open_process(target)?;
        let device = root.path(DEVICE);
        // Read before the search for the driver's descriptor. A descriptor that is found later is of this program, or the next check fails.
        let program = stack(target.pid);
        let names = descriptors(target.pid, &device)?;
        let mut refused = None;
        for name in &names {
            let own: OwnedFd = getfd(&pidfd, name)?;
            let tools = open_tools(root)?;
            let listed = queue.as_ref().map(|queue| Queue {
                address: queue.address(),
                entries: QUEUE,
            });
            let mut argument = abi::init_tracker(control.address(), listed, own.as_raw_fd() as u32);
            let sent = request(tools.as_fd(), abi::INIT_TRACKER, &mut argument);
            sent.map_err(|e| format!("{}: {e}", root.path(TOOLS).display()))?;
            match abi::init_status(&argument, layout) {
                Ok(()) => {}
                // Then the process's other descriptor is the right one.
                Err(Refusal::Status(abi::NOT_A_VA_SPACE)) => continue,
                Err(why) => {
                    refused = Some(why);
                    continue;
                }
            }
            let processors = if queue.is_some() {
                processors(own.as_fd(), layout)?
            } else {
                Vec::new()
            };
            // The copied descriptor would keep the process's address space.
            drop(own);
            let (number, flags) = match queue {
                Some(_) => (abi::ENABLE_EVENTS, abi::EVENT_FLAGS),
                None => (abi::ENABLE_COUNTERS, abi::COUNTER_FLAGS),
            };
            let mut argument = abi::enable(flags);
            request(tools.as_fd(), number, &mut argument).map_err(|e| e.to_string())?;
            abi::enable_status(&argument).map_err(|why| why.to_string())?;
            return Ok(Tracker {
                _tools: tools.into(),
                pidfd,
                pid: target.pid,
                descriptor: format!("/proc/{}/fd/{name}", target.pid),
                device,
                program,
                control,
                queue,
                processors,
            });
        }
        Err(refused.map_or_else(|| NO_UVM.to_owned(), |why| why.to_string()))
    }

    /// Returns a descriptor that is readable once the process has ended.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Whether the process still runs the same program and has the driver open where it had it. A program that replaces itself
    /// (`exec`) keeps its pid. The new one can have the driver open under the same number before the next check, but its stack begins
    /// elsewhere.
    pub(super) fn is_current(&self) -> bool {
        let same_program = stack(self.pid) == self.program;
        same_program && std::fs::read_link(&self.descriptor).is_ok_and(|path| path == self.device)
    }

    /// UUIDs of the processors, as pairs of words.
    pub(super) fn processors(&self) -> &[u64] {
        &self.processors
    }

    /// Takes what is queued. Returns whether there was anything.
    pub(super) fn drain(&self, events: &mut Aggregator) -> bool {
        let Some(queue) = &self.queue else { return false };
        let halves = self.control.halves();
        let mask = QUEUE as u32 - 1;
        let mut get = halves[control::GET_BEHIND].load(Ordering::Relaxed) & mask;
        let put = halves[control::PUT_BEHIND].load(Ordering::Acquire) & mask;
        let (words, any) = (queue.words(), get != put);
        while get != put {
            let mut entry = [0; abi::ENTRY];
            let first = get as usize * (abi::ENTRY / 8);
            for (bytes, word) in entry.chunks_exact_mut(8).zip(&words[first..]) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
            events.take(&entry);
            get = (get + 1) & mask;
        }
        halves[control::GET_AHEAD].store(get, Ordering::Relaxed);
        halves[control::GET_BEHIND].store(get, Ordering::Release);
        events.sums.dropped = (0..64).fold(0, |sum: u64, kind| {
            let dropped = self.control.words()[control::DROPPED + kind].load(Ordering::Relaxed);
            sum.saturating_add(dropped)
        });
        any
    }
}

/// Why there is nothing to watch.
const NO_UVM: &str = "it has no managed memory: it does not have the driver's unified memory open";

fn open_process(target: Target) -> Result<OwnedFd, String> {
    const GONE: &str = "the process has ended";
    let pid = i32::try_from(target.pid).ok().and_then(Pid::from_raw).ok_or(GONE)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| match e {
        Errno::SRCH => GONE.to_owned(),
        Errno::NOSYS => "Linux 5.6 or newer is needed (pidfd_open)".to_owned(),
        e => format!("pidfd_open: {e}"),
    })?;
    // The descriptor is of the process that has the pid now. The start tells whether that is the requested one.
    let stat = Stat::read(&Root::default(), target.pid).map_err(|_| GONE)?;
    match target.start_time == 0 || stat.start_time == target.start_time {
        true => Ok(pidfd),
        false => Err(GONE.to_owned()),
    }
}

/// Returns the address where the stack of a process's program begins, which the kernel chooses anew for each program. The kernel returns 0
/// to those who may not trace the process.
fn stack(pid: u32) -> Option<u64> {
    let bytes = Root::default().read(format!("proc/{pid}/stat"), PAGE).ok()?;
    // The name in parentheses can contain anything; the field behind it is the third of `proc(5)`, and the stack the 28th.
    let name_end = bytes.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(bytes.get(name_end + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(28 - 3)?.parse().ok()
}

/// Returns the numbers of a process's descriptors of the driver's device. There can be two.
fn descriptors(pid: u32, device: &std::path::Path) -> Result<Vec<String>, String> {
    let protected = || format!("it is another user's, or protected: {AS_ROOT}");
    let folder = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&folder).map_err(|e| match e.kind() {
        io::ErrorKind::PermissionDenied => protected(),
        io::ErrorKind::NotFound => "the process has ended".to_owned(),
        _ => format!("{folder}: {e}"),
    })?;
    let (mut found, mut hidden) = (Vec::new(), false);
    for entry in entries.take(MOST_DESCRIPTORS).flatten() {
        match std::fs::read_link(entry.path()) {
            Ok(path) if path == device => found.extend(entry.file_name().into_string()),
            // The folder of a protected process can be listed by its user, and no link in it be read.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => hidden = true,
            _ => {}
        }
    }
    match (found.is_empty(), hidden) {
        (false, _) => Ok(found),
        (true, true) => Err(protected()),
        (true, false) => Err(NO_UVM.to_owned()),
    }
}

fn getfd(pidfd: &OwnedFd, name: &str) -> Result<OwnedFd, String> {
    let number = name.parse().map_err(|_| NO_UVM)?;
    pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty()).map_err(|e| match e {
        Errno::PERM => format!("the kernel does not let this user look into it (Yama, or a container): {AS_ROOT}"),
        Errno::NOSYS => "Linux 5.6 or newer is needed (pidfd_getfd)".to_owned(),
        e => format!("pidfd_getfd: {e}"),
    })
}

fn processors(own: BorrowedFd<'_>, layout: Layout) -> Result<Vec<u64>, String> {
    let table = Shared::anonymous(PAGE as usize).map_err(|e| e.to_string())?;
    let mut argument: Aligned<24> = abi::processor_table(table.address(), layout);
    request(own, abi::PROCESSOR_TABLE, &mut argument).map_err(|e| e.to_string())?;
    abi::processor_status(&argument, layout).map_err(|why| why.to_string())?;
    let words = table.words()[..abi::PROCESSORS * 2].iter();
    Ok(words.map(|word| word.load(Ordering::Relaxed)).collect())
}

/// Makes the driver deliver events that wait for a copy to complete. That takes an address space of our own in the driver.
#[derive(Debug)]
pub(super) struct Flusher(File);

impl Flusher {
    /// Opens the device. Returns `None` if the driver refuses. Events may come late then.
    pub(super) fn open(root: &Root) -> Option<Flusher> {
        let file = File::options().read(true).write(true).open(root.path(DEVICE)).ok()?;
        let mut argument = abi::enable(0);
        request(file.as_fd(), abi::INITIALIZE, &mut argument).ok()?;
        abi::enable_status(&argument).ok()?;
        Some(Flusher(file))
    }

    pub(super) fn flush(&self) {
        // Events that come late are no error.
        let _ = request(self.0.as_fd(), abi::FLUSH_EVENTS, &mut Aligned([0xff; 8]));
    }
}
