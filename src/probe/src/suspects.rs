//! What else may hold a GPU's memory, or fail as if it ran out: processes with an open device, the kernel's log, the host's memory,
//! `/dev/shm` and limits. Read once, when somebody asks.

use std::fs::{self, File};
use std::io::Read;

use gpumem_text::clean_line;
use rustix::fs::{Mode, OFlags, statvfs};
use rustix::process::{Resource, getrlimit};

use crate::stat::Stat;
use crate::{HostMemory, Reading, Root, host_memory};

/// Processes that are looked at, and open files of each.
const PROCESSES: usize = 65_536;
const FILES: usize = 4096;
/// Lines of the kernel's log that are kept, and bytes of each.
const LINES: usize = 40;
const RECORDS: usize = 100_000;

/// A process that has a GPU's device file open. It may hold memory of it, whether or not the driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryHolder {
    /// Its pid here.
    pub pid: u32,
    /// The name of its program, cleaned.
    pub name: String,
    /// The kernel's letter for its state.
    pub state: char,
}

impl MemoryHolder {
    /// Whether it cannot go on by itself: a zombie, or a wait in the kernel that no signal ends.
    pub fn is_stuck(&self) -> bool {
        matches!(self.state, 'Z' | 'D' | 'X')
    }
}

/// `/dev/shm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// Its size in bytes.
    pub total: u64,
    /// What is free of it.
    pub free: u64,
    /// Files in it that NCCL and PyTorch make.
    pub leftovers: u64,
    /// Their size in bytes.
    pub leftover_bytes: u64,
}

/// The state of the host.
#[derive(Clone, Debug)]
pub struct HostState {
    /// Processes with an open GPU. Those of other users are missing unless this process is root's.
    pub holders: Vec<MemoryHolder>,
    /// The last lines of the kernel's log about GPUs and about lack of memory, cleaned.
    pub kernel: Reading<Vec<String>>,
    /// The host's memory.
    pub memory: Option<HostMemory>,
    /// How many processes the kernel ended for lack of memory: in this cgroup, or on the machine.
    pub oom_kills: Option<u64>,
    /// `/dev/shm`, if it can be looked at.
    pub shared_memory: Option<SharedMemory>,
    /// How much memory a process of this user may lock (`ulimit -l`), in bytes; `None` if that is not limited.
    pub locked: Option<u64>,
    /// How much address space a process of this user may have (`ulimit -v`), in bytes; `None` if that is not limited.
    pub address_space: Option<u64>,
}

impl Default for HostState {
    fn default() -> Self {
        HostState {
            holders: Vec::new(),
            kernel: Reading::Pending,
            memory: None,
            oom_kills: None,
            shared_memory: None,
            locked: None,
            address_space: None,
        }
    }
}

impl HostState {
    /// Looks at everything.
    pub fn gather(root: &Root) -> HostState {
        HostState {
            holders: holders(root),
            kernel: kernel_log(root),
            memory: host_memory().value().copied(),
            oom_kills: oom_kills(root),
            shared_memory: shared_memory(root),
            locked: getrlimit(Resource::Memlock).current,
            address_space: getrlimit(Resource::As).current,
        }
    }

    /// Returns the kernel's lines that tell of a faulty GPU or of a process that was ended for lack of memory.
    pub fn faults(&self) -> Vec<&str> {
        let lines = self.kernel.value().map(Vec::as_slice).unwrap_or_default();
        lines.iter().map(String::as_str).filter(|line| is_fault(line)).collect()
    }
}

fn is_fault(line: &str) -> bool {
    [
        "NVRM: Xid",
        "NVRM: GPU",
        "Killed process",
        "oom-kill:",
        "Out of memory:",
        "NV_ERR_NO_MEMORY",
        "fallen off the bus",
    ]
    .iter()
    .any(|words| line.contains(words))
}

fn holders(root: &Root) -> Vec<MemoryHolder> {
    let Ok(entries) = fs::read_dir(root.path("proc")) else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holding = pids.take(PROCESSES).filter(|pid| has_device_open(root, *pid));
    holding
        .filter_map(|pid| {
            let stat = Stat::read(root, pid).ok()?;
            Some(MemoryHolder {
                pid,
                name: stat.comm,
                state: stat.state,
            })
        })
        .collect()
}

/// Whether a process has a GPU open, and not only the file that every tool opens.
fn has_device_open(root: &Root, pid: u32) -> bool {
    let Ok(files) = fs::read_dir(root.path(format!("proc/{pid}/fd"))) else {
        return false;
    };
    files.flatten().take(FILES).any(|file| {
        let Ok(target) = fs::read_link(file.path()) else {
            return false;
        };
        let target = target.to_string_lossy();
        let number = target.strip_prefix("/dev/nvidia");
        number.is_some_and(|number| {
            number == "-uvm" || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        })
    })
}

/// Reads the kernel's log without waiting for more of it.
fn kernel_log(root: &Root) -> Reading<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(root.path("dev/kmsg"), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => return Reading::NoPermission,
        Err(_) => return Reading::NotSupported,
    };
    Reading::Value(records(file))
}

/// One read returns one record: `priority,number,time,flags;text`, and lines with details.
fn records(mut file: File) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut buffer = vec![0; 8192];
    for _ in 0..RECORDS {
        let length = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            // The record was overwritten before it was read.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => continue,
            Err(_) => break,
        };
        for record in buffer[..length].split(|&b| b == b'\n') {
            let text = record
                .iter()
                .position(|&b| b == b';')
                .map_or(record, |at| &record[at + 1..]);
            let line = clean_line(text, 240);
            if is_fault(&line) {
                lines.push(line);
            }
        }
        if lines.len() > 2 * LINES {
            lines.drain(..LINES);
        }
    }
    let first = lines.len().saturating_sub(LINES);
    lines.split_off(first)
}

/// Reads how many processes were ended: of this cgroup, or else of the whole machine.
fn oom_kills(root: &Root) -> Option<u64> {
    let value = |text: &[u8], key: &str| {
        let text = String::from_utf8_lossy(text).into_owned();
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
    };
    let own = root.read("proc/self/cgroup", 4096).ok().and_then(|groups| {
        let groups = String::from_utf8_lossy(&groups).into_owned();
        let path = groups
            .lines()
            .find_map(|line| line.strip_prefix("0::"))?
            .trim_start_matches('/')
            .to_owned();
        // A hostile name must not lead elsewhere.
        if path.split('/').any(|part| part == "..") {
            return None;
        }
        let events = root.read(format!("sys/fs/cgroup/{path}/memory.events"), 4096).ok()?;
        value(&events, "oom_kill ")
    });
    own.or_else(|| value(&root.read("proc/vmstat", 64 << 10).ok()?, "oom_kill "))
}

fn shared_memory(root: &Root) -> Option<SharedMemory> {
    let path = root.path("dev/shm");
    let sizes = statvfs(&path).ok()?;
    let (mut leftovers, mut leftover_bytes) = (0, 0u64);
    for entry in fs::read_dir(&path).ok()?.flatten().take(100_000) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if ["nccl-", "torch_", "psm_"].iter().any(|begin| name.starts_with(begin)) {
            leftovers += 1;
            leftover_bytes = leftover_bytes.saturating_add(entry.metadata().map_or(0, |data| data.len()));
        }
    }
    Some(SharedMemory {
        total: sizes.f_blocks.saturating_mul(sizes.f_frsize),
        free: sizes.f_bavail.saturating_mul(sizes.f_frsize),
        leftovers,
        leftover_bytes,
    })
}
