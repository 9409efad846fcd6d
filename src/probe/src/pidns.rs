//! Pids of other pid namespaces. A publisher in a container says "I am pid 7 of namespace N, started at tick T"; here
//! it has another pid.
//!
//! `/proc/PID/status` lists a process's pid in each namespace (`NSpid`, since Linux 4.1), the last one being its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::Root;
use crate::stat::{Stat, Status};

/// A process as it identifies itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForeignPid {
    /// Inode of its pid namespace (`/proc/self/ns/pid`).
    pub namespace: u64,
    /// Its pid in that namespace.
    pub pid: u32,
    /// Its start time in clock ticks since boot, the same in every pid namespace.
    pub start_time: u64,
    /// The user who makes the claim, according to the kernel: the owner of the channel's file.
    pub uid: u32,
}

/// The result of checking a claim to be a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim is true: it is the process with this pid here.
    Holds(u32),
    /// The process has this pid here, but belongs to another user: neither its real, effective nor saved user id is the
    /// claimant's.
    OtherUser(u32),
    /// No such process here: it has ended, or is not visible, or the kernel does not tell.
    NotHere,
}

/// Translates pids of other namespaces into pids here. One pass over `/proc` serves all requested processes, and a
/// process that was not found is not searched for again for a while.
pub struct PidTranslator {
    root: Root,
    own: Option<u64>,
    known: HashMap<ForeignPid, (Claim, Instant)>,
}

/// How long an answer is valid. A pass over `/proc` costs about 10 microseconds a process, and a process can change its
/// user.
const RETRY: Duration = Duration::from_secs(10);
/// Most processes that one pass looks at, and most answers that are remembered.
const MAX_PROCESSES: usize = 1 << 16;
const MAX_KNOWN: usize = 4096;

impl Default for PidTranslator {
    fn default() -> Self {
        Self::new(Root::default())
    }
}

impl PidTranslator {
    /// Makes a translator that reads `/proc` below `root`.
    pub fn new(root: Root) -> Self {
        let own = root.namespace("proc/self/ns/pid").ok();
        PidTranslator {
            root,
            own,
            known: HashMap::new(),
        }
    }

    /// Checks each claim, in order.
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
        // The pid may have been reused before its status was read.
        if !self.has_started(wanted.pid, wanted.start_time) {
            return false;
        }
        self.known.insert(*wanted, (claim(wanted, wanted.pid, &status), now));
        true
    }

    fn has_started(&self, pid: u32, at: u64) -> bool {
        Stat::read(&self.root, pid).is_ok_and(|stat| stat.start_time == at)
    }

    /// Makes one pass over the processes and removes those it finds from `open`.
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
            // The start time rules out nearly all processes before anything else is read.
            let Ok(stat) = Stat::read(&self.root, pid) else {
                continue;
            };
            if !open.iter().any(|w| w.start_time == stat.start_time) {
                continue;
            }
            let Ok(status) = Status::read(&self.root, pid) else {
                continue;
            };
            // Unreadable for other users' processes; then start time and inner pid have to suffice.
            let namespace = self.root.namespace(format!("proc/{pid}/ns/pid")).ok();
            if !self.has_started(pid, stat.start_time) {
                continue;
            }
            let is = |w: &ForeignPid| {
                w.start_time == stat.start_time
                    && status.ns_pids.last() == Some(&w.pid)
                    && namespace.is_none_or(|n| n == w.namespace)
            };
            // Several claims may name the same process.
            for found in open.extract_if(.., |w| is(w)) {
                self.known.insert(found, (claim(&found, pid, &status), now));
            }
        }
    }
}

/// Checks a claim to be the process that has this pid and status.
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

    /// The real, effective and saved user ids count; the one for files does not.
    #[test]
    fn process_belongs_to_its_own_user_only() {
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
        // A process may change its user.
        fs::write(dir.path().join("proc/103/status"), "Uid:\t9\t9\t9\t9\nNSpid:\t103 7\n").unwrap();
        assert_eq!(
            translator.translate(&claims, start + RETRY),
            [other, other, other, holds, other]
        );
    }

    #[test]
    fn unreadable_namespace_does_not_hide_a_process() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), 103, 900, "103 7", None);
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        assert_eq!(translator.translate(&[SEVEN], Instant::now()), [Claim::Holds(103)]);
    }

    #[test]
    fn missing_process_is_retried_and_its_end_noticed() {
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
    fn remembered_answers_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        let mut translator = PidTranslator::new(Root::at(dir.path()));
        for pid in 0..3 * MAX_KNOWN as u32 {
            translator.translate(&[ForeignPid { pid, ..SEVEN }], Instant::now());
        }
        assert!(translator.known.len() <= MAX_KNOWN + 1);
    }

    #[test]
    fn this_process_is_translated_to_itself() {
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
