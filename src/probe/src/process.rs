//! Processes by pid: user, command, start time and host memory.
//!
//! A pid may be reused at any moment. So the start time in ticks is read before and after everything else, and must be
//! the same. See [`details`] for what comes from `sysinfo`.

mod command;
mod details;
mod label;
mod users;

use std::collections::HashMap;
use std::io;

use command::Named;
pub use users::Users;

use crate::stat::Stat;
use crate::{Process, Root};

/// Why a process cannot be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoProcess {
    /// No such process here: it has ended, or the pid is of another pid namespace, or `/proc` hides other users'
    /// processes.
    NotHere,
    /// It exists, but may not be inspected.
    NoPermission,
    /// Reading failed; the text is the error.
    Failed(String),
}

impl From<io::Error> for NoProcess {
    fn from(e: io::Error) -> Self {
        // A process that ends between opening and reading answers ESRCH.
        if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) {
            NoProcess::NotHere
        } else if e.kind() == io::ErrorKind::PermissionDenied {
            NoProcess::NoPermission
        } else {
            NoProcess::Failed(e.to_string())
        }
    }
}

/// Looks processes up by pid, and remembers what does not change.
pub struct Processes {
    root: Root,
    users: Users,
    details: details::Reader,
    known: HashMap<u32, Known>,
}

/// The description of a process, kept between look-ups.
struct Known {
    start_time: u64,
    comm: String,
    uid: Option<u32>,
    rss: u64,
    command: String,
    label: String,
    /// Number of look-ups since it was read.
    age: u32,
}

/// Number of look-ups after which everything but the start time is read again: a program may rename itself, change its
/// user or grow. Reading 20 processes takes 1 ms.
const MAX_AGE: u32 = 10;
/// How many processes that are no longer requested may stay in `sysinfo`'s memory, about 600 bytes each.
const MAX_FORGOTTEN: usize = 64;

impl Default for Processes {
    fn default() -> Self {
        let root = Root::default();
        Processes {
            users: Users::new(root.clone()),
            root,
            details: details::Reader::default(),
            known: HashMap::new(),
        }
    }
}

impl Processes {
    /// Describes the processes with these pids, in this order. Forgets what it knew of other pids.
    pub fn look_up(&mut self, pids: &[u32]) -> Vec<Result<Process, NoProcess>> {
        let found = pids.iter().map(|&pid| self.one(pid)).collect();
        self.known.retain(|pid, _| pids.contains(pid));
        self.details.trim(pids.len() + MAX_FORGOTTEN);
        found
    }

    fn one(&mut self, pid: u32) -> Result<Process, NoProcess> {
        let stat = Stat::read(&self.root, pid).inspect_err(|_| {
            self.known.remove(&pid);
        })?;
        let fresh = |k: &&mut Known| k.start_time == stat.start_time && k.comm == stat.comm && k.age < MAX_AGE;
        let known = match self.known.get_mut(&pid).filter(fresh) {
            Some(known) => {
                known.age += 1;
                known
            }
            None => {
                let known = self.learn(pid, &stat)?;
                self.known.entry(pid).insert_entry(known).into_mut()
            }
        };
        Ok(Process {
            pid,
            user: known.uid.map_or_else(|| "?".into(), |uid| self.users.name(uid)),
            command: known.command.clone(),
            label: known.label.clone(),
            start_time: stat.start_time,
            parent: Some(stat.parent).filter(|&parent| parent > 0),
            rss: known.rss,
            stopped: stat.is_stopped(),
            hints: [].into(),
        })
    }

    /// Reads the description of a process, and checks that the pid was not reused meanwhile.
    fn learn(&mut self, pid: u32, stat: &Stat) -> Result<Known, NoProcess> {
        let details = self.details.read(pid)?;
        let Named { command, label } = command::read(&self.root, pid, stat)?;
        if Stat::read(&self.root, pid)?.start_time != stat.start_time {
            return Err(NoProcess::NotHere);
        }
        Ok(Known {
            start_time: stat.start_time,
            comm: stat.comm.clone(),
            uid: details.uid,
            rss: details.rss,
            command,
            label,
            age: 0,
        })
    }
}

#[cfg(test)]
mod tests;
