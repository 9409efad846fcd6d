//! Pids of other pid namespaces: a container's publisher says "I am pid 7 of namespace N, started at tick T"; here it
//! has another number.
//!
//! `/proc/PID/status` lists a process's pid in each namespace (`NSpid`, since Linux 4.1), the last one its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::Root;
use crate::stat::{Stat, Status};

/// A process as it names itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForeignPid {
    /// Inode of its pid namespace (`/proc/self/ns/pid`).
    pub namespace: u64,
    /// Its pid in there.
    pub pid: u32,
    /// Its start in clock ticks since boot, the same in every pid namespace.
    pub start_time: u64,
}

/// Finds our pids for foreign ones. One pass over `/proc` serves all that are asked for, and one that was not found is
/// not looked for again for a while.
pub struct PidTranslator {
    root: Root,
    own: Option<u64>,
    found: HashMap<ForeignPid, u32>,
    missed: HashMap<ForeignPid, Instant>,
}

/// How long a miss stands: a pass over `/proc` costs about 10 microseconds a process.
const RETRY: Duration = Duration::from_secs(10);
/// Bounds of one pass and of what is remembered.
const MAX_PROCESSES: usize = 1 << 16;
const MAX_KNOWN: usize = 4096;

impl Default for PidTranslator {
    fn default() -> Self {
        Self::new(Root::default())
    }
}

impl PidTranslator {
    /// Looks below `root`.
    pub fn new(root: Root) -> Self {
        let own = root.namespace("proc/self/ns/pid").ok();
        PidTranslator {
            root,
            own,
            found: HashMap::new(),
            missed: HashMap::new(),
        }
    }

    /// Our pid for each, in order; `None` where no process here is that one (ended, not visible, or the kernel does not
    /// tell).
    pub fn translate(&mut self, wanted: &[ForeignPid], now: Instant) -> Vec<Option<u32>> {
        if self.found.len() + self.missed.len() > MAX_KNOWN {
            self.found.clear();
            self.missed.clear();
        }
        let mut open: Vec<ForeignPid> = wanted.iter().copied().filter(|w| !self.settled(w, now)).collect();
        if !open.is_empty() {
            self.search(&mut open);
            self.missed.extend(open.into_iter().map(|w| (w, now)));
        }
        wanted.iter().map(|w| self.found.get(w).copied()).collect()
    }

    /// Whether the answer is known without a pass over `/proc`.
    fn settled(&mut self, wanted: &ForeignPid, now: Instant) -> bool {
        let alive = |pid: u32| Stat::read(&self.root, pid).is_ok_and(|s| s.start_time == wanted.start_time);
        if let Some(&pid) = self.found.get(wanted) {
            if alive(pid) {
                return true;
            }
            self.found.remove(wanted);
        } else if self.own == Some(wanted.namespace) && alive(wanted.pid) {
            self.found.insert(*wanted, wanted.pid);
            return true;
        }
        match self.missed.get(wanted) {
            Some(at) if now.saturating_duration_since(*at) < RETRY => true,
            _ => {
                self.missed.remove(wanted);
                false
            }
        }
    }

    /// One pass over the processes; what is found leaves `open`.
    fn search(&mut self, open: &mut Vec<ForeignPid>) {
        let Ok(entries) = std::fs::read_dir(self.root.path("proc")) else {
            return;
        };
        let pids = entries
            .take(MAX_PROCESSES)
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            if open.is_empty() {
                return;
            }
            // The start time rules out nearly all, before anything else is read.
            let Ok(stat) = Stat::read(&self.root, pid) else {
                continue;
            };
            if !open.iter().any(|w| w.start_time == stat.start_time) {
                continue;
            }
            let Ok(status) = Status::read(&self.root, pid) else {
                continue;
            };
            // Unreadable for other users' processes; start and inner pid then have to do.
            let namespace = self.root.namespace(format!("proc/{pid}/ns/pid")).ok();
            let is = |w: &ForeignPid| {
                w.start_time == stat.start_time
                    && status.ns_pids.last() == Some(&w.pid)
                    && namespace.is_none_or(|n| n == w.namespace)
            };
            if let Some(at) = open.iter().position(is) {
                self.found.insert(open.swap_remove(at), pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;

    fn put(root: &Path, pid: u32, start: u64, ns_pids: &str, namespace: Option<u64>) {
        let dir = root.join(format!("proc/{pid}/ns"));
        fs::create_dir_all(&dir).unwrap();
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 3 0\n");
        fs::write(dir.join("../stat"), stat).unwrap();
        fs::write(dir.join("../status"), format!("NSpid:\t{ns_pids}\n")).unwrap();
        if let Some(n) = namespace {
            std::os::unix::fs::symlink(format!("pid:[{n}]"), dir.join("pid")).unwrap();
        }
    }

    const SEVEN: ForeignPid = ForeignPid {
        namespace: 55,
        pid: 7,
        start_time: 900,
    };

    #[test]
    fn pid_start_and_namespace_must_all_agree() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 100, 901, "100 7", Some(55));
        put(dir.path(), 101, 900, "101 8", Some(55));
        put(dir.path(), 102, 900, "102 7", Some(56));
        put(dir.path(), 103, 900, "103 7", Some(55));
        fs::write(dir.path().join("proc/uptime"), "not a process").unwrap();
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        assert_eq!(translator.translate(&[SEVEN], Instant::now()), [Some(103)]);
    }

    #[test]
    fn an_unreadable_namespace_does_not_hide_a_process() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 103, 900, "103 7", None);
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        assert_eq!(translator.translate(&[SEVEN], Instant::now()), [Some(103)]);
    }

    #[test]
    fn a_miss_is_looked_for_again_later_and_an_end_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 1, 1, "1", None);
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        let start = Instant::now();
        assert_eq!(translator.translate(&[SEVEN], start), [None]);
        put(dir.path(), 103, 900, "103 7", Some(55));
        assert_eq!(translator.translate(&[SEVEN], start + RETRY / 2), [None]);
        assert_eq!(translator.translate(&[SEVEN], start + RETRY), [Some(103)]);
        fs::remove_dir_all(dir.path().join("proc/103")).unwrap();
        assert_eq!(translator.translate(&[SEVEN], start + RETRY), [None]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        for pid in 0..3 * MAX_KNOWN as u32 {
            translator.translate(&[ForeignPid { pid, ..SEVEN }], Instant::now());
        }
        assert!(translator.missed.len() <= MAX_KNOWN + 1);
    }

    #[test]
    fn this_process_is_itself() {
        let root = Root::default();
        let pid = std::process::id();
        let start_time = Stat::read(&root, pid).unwrap().start_time;
        let namespace = root.namespace("proc/self/ns/pid").unwrap();
        let mut translator = PidTranslator::default();
        let wanted = [
            ForeignPid {
                namespace,
                pid,
                start_time,
            },
            ForeignPid {
                namespace,
                pid,
                start_time: start_time + 1,
            },
        ];
        assert_eq!(translator.translate(&wanted, Instant::now()), [Some(pid), None]);
    }
}
