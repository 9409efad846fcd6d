//! Processes by pid: who, what, since when, how much host memory.
//!
//! Read from `/proc` directly: the start time in ticks, the namespace's pids and the command must be of one and the
//! same process, and of a tree that tests can bring; no crate gives these together.

mod command;
mod users;

use std::collections::HashMap;
use std::io;

use users::Users;

use crate::stat::{Stat, Status};
use crate::{Process, Root};

/// Why there is nothing to say about a pid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoProcess {
    /// No such process here: it has ended, or the pid is of another pid namespace, or `/proc` hides other users'
    /// processes.
    NotHere,
    /// It is there and may not be looked at.
    NoPermission,
    /// Reading failed; the text says how.
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

/// Looks processes up and remembers what does not change.
pub struct Processes {
    root: Root,
    page: u64,
    users: Users,
    known: HashMap<u32, Known>,
}

/// What is kept of a process between look-ups.
struct Known {
    start_time: u64,
    comm: String,
    uid: Option<u32>,
    command: String,
    /// Look-ups since the command was read.
    age: u32,
}

/// A program may rename itself or start another in its place; its command line is read again after this many look-ups.
const COMMAND_AGE: u32 = 10;

impl Default for Processes {
    fn default() -> Self {
        Self::new(Root::default())
    }
}

impl Processes {
    /// Looks below `root`.
    pub fn new(root: Root) -> Self {
        Processes {
            users: Users::new(root.clone()),
            page: rustix::param::page_size() as u64,
            known: HashMap::new(),
            root,
        }
    }

    /// The processes with these pids, in this order. What is remembered of other pids is forgotten.
    pub fn look_up(&mut self, pids: &[u32]) -> Vec<Result<Process, NoProcess>> {
        let found = pids.iter().map(|&pid| self.one(pid)).collect();
        self.known.retain(|pid, _| pids.contains(pid));
        found
    }

    fn one(&mut self, pid: u32) -> Result<Process, NoProcess> {
        let stat = Stat::read(&self.root, pid).inspect_err(|_| {
            self.known.remove(&pid);
        })?;
        let fresh = |k: &&mut Known| k.start_time == stat.start_time && k.comm == stat.comm && k.age < COMMAND_AGE;
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
            start_time: stat.start_time,
            rss: stat.rss_pages.saturating_mul(self.page),
        })
    }

    /// Reads what is kept, and makes sure that the pid was not given to another process meanwhile.
    fn learn(&self, pid: u32, stat: &Stat) -> Result<Known, NoProcess> {
        let uid = Status::read(&self.root, pid)?.uid;
        let command = command::read(&self.root, pid, stat)?;
        if Stat::read(&self.root, pid)?.start_time != stat.start_time {
            return Err(NoProcess::NotHere);
        }
        Ok(Known {
            start_time: stat.start_time,
            comm: stat.comm.clone(),
            uid,
            command,
            age: 0,
        })
    }
}

#[cfg(test)]
mod tests;
