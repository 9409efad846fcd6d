//! What else may hold a GPU's memory, or fail as if it ran out: processes with an open device, the kernel's log, the host's memory,
//! `/dev/shm` and limits. Read once, when somebody asks.

use std::fs;

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};

use crate::kernel_log::kernel_log;
use crate::stat::Stat;
use crate::{Fact, HostMemory, Root, host_memory};

/// Processes that are looked at, and open files of each.
const PROCESSES: usize = 65_536;
const FILES: usize = 4096;

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
    /// The last lines of the kernel's log that tell of a faulty GPU, or of a process that was ended for lack of memory; cleaned.
    pub kernel: Fact<Vec<String>>,
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
            kernel: Ok(Vec::new()),
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
            kernel: kernel_log(root, is_fault),
            memory: host_memory().value().copied(),
            oom_kills: oom_kills(root),
            shared_memory: shared_memory(root),
            locked: getrlimit(Resource::Memlock).current,
            address_space: getrlimit(Resource::As).current,
        }
    }
}

/// Whether a line of the kernel tells of a faulty GPU, or of a process that was ended for lack of memory.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn processes_with_an_open_gpu_are_found_with_their_state() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, state, target) in [
            (7, 'S', "/dev/nvidia0"),
            (8, 'Z', "/dev/nvidia-uvm"),
            (9, 'S', "/dev/nvidiactl"),
            (10, 'S', "/dev/null"),
        ] {
            let folder = dir.path().join(format!("proc/{pid}/fd"));
            fs::create_dir_all(&folder).unwrap();
            symlink(target, folder.join("3")).unwrap();
            let stat = format!("{pid} (python) {state} 1 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0");
            fs::write(dir.path().join(format!("proc/{pid}/stat")), stat).unwrap();
        }
        let mut found = holders(&Root::at(dir.path()));
        found.sort_by_key(|holder| holder.pid);
        let found: Vec<_> = found.iter().map(|holder| (holder.pid, holder.is_stuck())).collect();
        assert_eq!(found, [(7, false), (8, true)]);
    }

    #[test]
    fn processes_that_were_ended_are_counted_in_the_own_group() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let count = || oom_kills(&Root::at(dir.path()));
        assert_eq!(count(), None);
        put("proc/vmstat", "nr_free_pages 1\noom_kill 3\n");
        assert_eq!(count(), Some(3));
        put("proc/self/cgroup", "0::/pod/job\n");
        put("sys/fs/cgroup/pod/job/memory.events", "low 0\noom 2\noom_kill 1\n");
        assert_eq!(count(), Some(1));
        put("proc/self/cgroup", "0::/../../etc\n");
        assert_eq!(count(), Some(3), "a path that leads elsewhere");
    }

    #[test]
    fn lines_of_the_kernel_that_matter() {
        for (line, expected) in [
            (
                "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.",
                true,
            ),
            ("Out of memory: Killed process 4242 (python3) total-vm:1kB", true),
            ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", false),
            ("usb 1-1: new device", false),
        ] {
            assert_eq!(is_fault(line), expected, "{line}");
        }
    }
}
