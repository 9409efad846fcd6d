//! A process's owner and its host memory, through `sysinfo`.
//!
//! The command line does not come from there: `sysinfo` reads all of it, and any user can make it long. One process
//! with 600,000 arguments made this program 33 MiB bigger. User names do not come from there either: `sysinfo` omits
//! user ids from 65536 and users who are not in `/etc/passwd`.

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use super::NoProcess;

#[derive(Debug)]
pub(super) struct Details {
    /// Real user id.
    pub(super) uid: Option<u32>,
    /// Resident memory in bytes, from `statm`: proc(5) calls the figure in `stat` inaccurate.
    pub(super) rss: u64,
}

/// Reads details of processes. `sysinfo` remembers every process it was asked for until it finds that the process has
/// ended.
#[derive(Default)]
pub(super) struct Reader(Option<System>);

impl Reader {
    /// Reads the details of a process. The caller must check before and after that the pid was not reused: `sysinfo`
    /// gives start times in seconds, which do not tell two processes apart.
    pub(super) fn read(&mut self, pid: u32) -> Result<Details, NoProcess> {
        let system = match &mut self.0 {
            Some(system) => system,
            none => none.insert(System::new().map_err(|e| NoProcess::Failed(e.to_string()))?),
        };
        let pid = Pid::from_u32(pid);
        // `nothing()` still includes a list of all threads.
        let wanted = ProcessRefreshKind::nothing()
            .with_memory()
            .with_user(UpdateKind::Always)
            .without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, wanted);
        let process = system.process(pid).ok_or(NoProcess::NotHere)?;
        Ok(Details {
            uid: process.user_id().map(|uid| **uid),
            rss: process.memory(),
        })
    }

    /// Forgets all processes if there are more than `most`; `sysinfo` cannot forget single ones.
    pub(super) fn trim(&mut self, most: usize) {
        if self.0.as_ref().is_some_and(|system| system.processes().len() > most) {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_process_has_an_owner_and_memory() {
        let details = Reader::default().read(std::process::id()).unwrap();
        assert_eq!(details.uid, Some(rustix::process::getuid().as_raw()));
        assert!(details.rss > 100 << 10, "{details:?}");
    }

    #[test]
    fn unused_pid_is_not_here() {
        for pid in [0, 0x7fff_ffff, u32::MAX] {
            assert_eq!(Reader::default().read(pid).unwrap_err(), NoProcess::NotHere);
        }
    }

    #[test]
    fn remembered_processes_are_trimmed() {
        let mut reader = Reader::default();
        reader.read(std::process::id()).unwrap();
        reader.trim(1);
        assert!(reader.0.is_some());
        reader.trim(0);
        assert!(reader.0.is_none());
        reader.read(std::process::id()).unwrap();
    }
}
