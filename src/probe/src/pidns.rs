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
    /// The user who says so, as the kernel tells it: the owner of a file.
    pub uid: u32,
}

/// What there is to a claim to be a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is the process with this pid here.
    Holds(u32),
    /// That process, which has this pid here, is not the claimant's: neither its real, nor its effective, nor its saved user id is.
    OtherUser(u32),
    /// No process here is that one: it ended, or is not visible, or the kernel does not tell.
    NotHere,
}

/// Finds our pids for foreign ones. One pass over `/proc` serves all that are asked for, and one that was not found is
/// not looked for again for a while.
pub struct PidTranslator {
    root: Root,
    own: Option<u64>,
    known: HashMap<ForeignPid, (Claim, Instant)>,
}

/// How long an answer stands: a pass over `/proc` costs about 10 microseconds a process, and a process can change its user.
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
            known: HashMap::new(),
        }
    }

    /// What there is to each claim, in order.
    pub fn translate(&mut self, wanted: &[ForeignPid], now: Instant) -> Vec<Claim> {
        if self.known.len() > MAX_KNOWN {
            self.known.clear();
        }
        let mut open: Vec<ForeignPid> = wanted.iter().copied().filter(|w| !self.settled(w, now)).collect();
        if !open.is_empty() {
            self.search(&mut open, now);
            self.known.extend(open.into_iter().map(|w| (w, (Claim::NotHere, now))));
        }
        let claim = |w| self.known.get(w).map_or(Claim::NotHere, |(claim, _)| *claim);
        wanted.iter().map(claim).collect()
    }

    /// Whether the answer is known without a pass over `/proc`.
    fn settled(&mut self, wanted: &ForeignPid, now: Instant) -> bool {
        let stands = |(claim, at): &(Claim, Instant)| {
            now.saturating_duration_since(*at) < RETRY
                && match *claim {
                    Claim::Holds(pid) | Claim::OtherUser(pid) => self.has_started(pid, wanted.start_time),
                    Claim::NotHere => true,
                }
        };
        if self.known.get(wanted).is_some_and(stands) {
            return true;
        }
        self.known.remove(wanted);
        if self.own != Some(wanted.namespace) || !self.has_started(wanted.pid, wanted.start_time) {
            return false;
        }
        let Ok(status) = Status::read(&self.root, wanted.pid) else {
            return false;
        };
        // The pid may have become another process's before its status was read.
        if !self.has_started(wanted.pid, wanted.start_time) {
            return false;
        }
        self.known.insert(*wanted, (claim(wanted, wanted.pid, &status), now));
        true
    }

    fn has_started(&self, pid: u32, at: u64) -> bool {
        Stat::read(&self.root, pid).is_ok_and(|stat| stat.start_time == at)
    }

    /// One pass over the processes; what is found leaves `open`.
    fn search(&mut self, open: &mut Vec<ForeignPid>, now: Instant) {
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
            if !self.has_started(pid, stat.start_time) {
                continue;
            }
            let is = |w: &ForeignPid| {
                w.start_time == stat.start_time
                    && status.ns_pids.last() == Some(&w.pid)
                    && namespace.is_none_or(|n| n == w.namespace)
            };
            // Several may claim to be the same one.
            for found in open.extract_if(.., |w| is(w)) {
                self.known.insert(found, (claim(&found, pid, &status), now));
            }
        }
    }
}

/// What there is to a claim to be the process that has this pid and status.
fn claim(claimed: &ForeignPid, pid: u32, status: &Status) -> Claim {
    match status.uids.is_some_and(|uids| uids.contains(&claimed.uid)) {
        true => Claim::Holds(pid),
        false => Claim::OtherUser(pid),
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
        fs::write(dir.join("../status"), format!("Uid:\t1\t2\t3\t9\nNSpid:\t{ns_pids}\n")).unwrap();
        if let Some(n) = namespace {
            std::os::unix::fs::symlink(format!("pid:[{n}]"), dir.join("pid")).unwrap();
        }
    }

    const SEVEN: ForeignPid = ForeignPid {
        namespace: 55,
        pid: 7,
        start_time: 900,
        uid: 2,
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
        assert_eq!(translator.translate(&[SEVEN], Instant::now()), [Claim::Holds(103)]);
    }

    /// Its real, effective and saved ids count; the one for files does not.
    #[test]
    fn a_process_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 103, 900, "103 7", Some(55));
        let claims = [1, 2, 3, 9, 0].map(|uid| ForeignPid { uid, ..SEVEN });
        let (holds, other) = (Claim::Holds(103), Claim::OtherUser(103));
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        let start = Instant::now();
        assert_eq!(
            translator.translate(&claims, start),
            [holds, holds, holds, other, other]
        );
        // It may change its user.
        fs::write(dir.path().join("proc/103/status"), "Uid:\t9\t9\t9\t9\nNSpid:\t103 7\n").unwrap();
        assert_eq!(
            translator.translate(&claims, start + RETRY),
            [other, other, other, holds, other]
        );
    }

    #[test]
    fn an_unreadable_namespace_does_not_hide_a_process() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 103, 900, "103 7", None);
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        assert_eq!(translator.translate(&[SEVEN], Instant::now()), [Claim::Holds(103)]);
    }

    #[test]
    fn a_miss_is_looked_for_again_later_and_an_end_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 1, 1, "1", None);
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        let start = Instant::now();
        assert_eq!(translator.translate(&[SEVEN], start), [Claim::NotHere]);
        put(dir.path(), 103, 900, "103 7", Some(55));
        assert_eq!(translator.translate(&[SEVEN], start + RETRY / 2), [Claim::NotHere]);
        assert_eq!(translator.translate(&[SEVEN], start + RETRY), [Claim::Holds(103)]);
        fs::remove_dir_all(dir.path().join("proc/103")).unwrap();
        assert_eq!(translator.translate(&[SEVEN], start + RETRY), [Claim::NotHere]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        for pid in 0..3 * MAX_KNOWN as u32 {
            translator.translate(&[ForeignPid { pid, ..SEVEN }], Instant::now());
        }
        assert!(translator.known.len() <= MAX_KNOWN + 1);
    }

    #[test]
    fn this_process_is_itself() {
        let root = Root::default();
        let pid = std::process::id();
        let start_time = Stat::read(&root, pid).unwrap().start_time;
        let namespace = root.namespace("proc/self/ns/pid").unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let mut translator = PidTranslator::default();
        let us = ForeignPid {
            namespace,
            pid,
            start_time,
            uid,
        };
        let later = ForeignPid {
            start_time: start_time + 1,
            ..us
        };
        let other = ForeignPid { uid: uid + 1, ..us };
        assert_eq!(
            translator.translate(&[us, later, other], Instant::now()),
            [Claim::Holds(pid), Claim::NotHere, Claim::OtherUser(pid)]
        );
    }
}
