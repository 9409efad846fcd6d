//! What explains a process's memory, found from outside: its command line, its environment, its libraries and records that it leaves in
//! shared memory. Nothing is asked of the process.
//!
//! All of it may be hostile text: reads are bounded, only values that were understood or cleaned are kept, and of the environment only the
//! variables of a list.

mod engines;
mod frameworks;
mod kvcached;
mod libraries;
mod pinned;
mod variables;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use crate::arguments::Arguments;
use kvcached::Records;
use libraries::Libraries;
use pinned::Pinned;
use variables::Variables;

use crate::stat::{Stat, Status};
use crate::{Hint, HintKind, HintSource, Process, Root};

/// How many parents of a worker are looked at. The workers of vLLM are grandchildren of the process with the options.
const PARENTS: usize = 4;

/// Reads the hints of processes, once for each process.
#[derive(Default)]
pub struct HintReader {
    root: Root,
    /// By pid and start time.
    known: HashMap<(u32, u64), Known>,
}

/// What was found of a process.
struct Known {
    hints: Arc<[Hint]>,
    /// Where its KV cache's record is. The record changes all the time.
    records: Option<Records>,
    /// Its pinned host memory, which changes, too; `None` if it does not use the driver.
    pinned: Option<Pinned>,
}

impl HintReader {
    /// Fills in the hints of these processes, and forgets those of others. Reads at most `most` processes that it does not know
    /// yet; the rest are left to later calls.
    pub fn fill(&mut self, processes: &mut [Process], most: usize) {
        let listed = |pid, start| processes.iter().any(|p| (p.pid, p.start_time) == (pid, start));
        self.known.retain(|&(pid, start), _| listed(pid, start));
        let mut left = most;
        for process in processes {
            let (pid, start) = (process.pid, process.start_time);
            // One that has ended is not counted, or a few of them would keep all others waiting.
            if left > 0 && !self.known.contains_key(&(pid, start)) && self.is_there(pid, start) {
                left -= 1;
                let known = learn(&self.root, pid);
                // The pid may have been reused meanwhile.
                if let Some(known) = known.ok().filter(|_| self.is_there(pid, start)) {
                    self.known.insert((pid, start), known);
                }
            }
            if let Some(known) = self.known.get_mut(&(pid, start)) {
                process.hints = known.now(&self.root, pid, &mut left);
            }
        }
    }

    fn is_there(&self, pid: u32, start_time: u64) -> bool {
        Stat::read(&self.root, pid).is_ok_and(|stat| stat.start_time == start_time)
    }
}

impl Known {
    /// Returns the hints, with the record and the pinned memory as they are now. `left` is the number of processes that may still be read.
    fn now(&mut self, root: &Root, pid: u32, left: &mut usize) -> Arc<[Hint]> {
        let record = self.records.as_ref().and_then(|records| records.read(root, pid));
        let pinned = self.pinned.as_mut().and_then(|pinned| pinned.now(root, pid, left));
        if record.is_none() && pinned.is_none() {
            return self.hints.clone();
        }
        let record = record.map(|record| Hint {
            source: HintSource::SharedMemory,
            kind: HintKind::KvCached(record),
        });
        let pinned = pinned.map(|bytes| Hint {
            source: HintSource::Mappings,
            kind: HintKind::PinnedHost(bytes),
        });
        let at = self.hints.iter().take_while(|hint| is_engine(&hint.kind)).count();
        let (engine, rest) = self.hints.split_at(at);
        let all = engine.iter().chain(&record).chain(rest).chain(&pinned);
        all.cloned().collect()
    }
}

/// Whether a hint names the engine, which comes first.
fn is_engine(kind: &HintKind) -> bool {
    matches!(
        kind,
        HintKind::Vllm { .. } | HintKind::Sglang { .. } | HintKind::TensorRtLlm { .. } | HintKind::LlamaCpp { .. }
    )
}

fn learn(root: &Root, pid: u32) -> io::Result<Known> {
    let status = Status::read(root, pid)?;
    let Started { engine, environment } = started(root, pid, &status)?;
    let (variables, libraries) = (Variables::read(root, environment), Libraries::read(root, pid));
    let uses_driver = libraries.as_ref().is_ok_and(|libraries| libraries.driver);
    let uses_kvcached = libraries.as_ref().is_ok_and(|libraries| libraries.kvcached);
    let (hints, variables) = inside(pid, environment, variables, libraries);
    Ok(Known {
        hints: engine.into_iter().chain(hints).collect(),
        records: uses_kvcached.then(|| Records::of(&status, &variables)).flatten(),
        pinned: uses_driver.then(Pinned::default),
    })
}

/// Returns what the variables and libraries of a process say, and the variables. The variables may be those of a parent.
fn inside(
    pid: u32,
    environment: u32,
    variables: io::Result<Variables>,
    libraries: io::Result<Libraries>,
) -> (Vec<Hint>, Variables) {
    let denied = |e: &io::Error| e.kind() == io::ErrorKind::PermissionDenied;
    let is_denied = variables.as_ref().is_err_and(denied) || libraries.as_ref().is_err_and(denied);
    let (variables, libraries) = (variables.unwrap_or_default(), libraries.unwrap_or_default());
    let mut hints = frameworks::hints(libraries, &variables, environment);
    if is_denied {
        hints.push(Hint {
            source: HintSource::Environment(pid),
            kind: HintKind::NoPermission,
        });
    }
    (hints, variables)
}

/// How a process was started.
struct Started {
    /// The engine that it belongs to.
    engine: Option<Hint>,
    /// The process whose environment it has.
    environment: u32,
}

/// Looks for the command line of a process, which for a worker is that of a parent: of the same user, and started before.
fn started(root: &Root, pid: u32, status: &Status) -> io::Result<Started> {
    let mut arguments = Arguments::read(root, pid)?;
    let (mut at, mut environment) = (pid, None);
    for _ in 0..=PARENTS {
        if !arguments.are_a_title() {
            environment = environment.or(Some(at));
        }
        let engine = engines::engine(&arguments).map(|kind| Hint {
            source: HintSource::CommandLine(at),
            kind,
        });
        if engine.is_some() || !arguments.are_of_a_worker() {
            let environment = environment.unwrap_or(pid);
            return Ok(Started { engine, environment });
        }
        let Some(parent) = parent(root, at, status) else { break };
        let Ok(theirs) = Arguments::read(root, parent) else {
            break;
        };
        (at, arguments) = (parent, theirs);
    }
    Ok(Started {
        engine: None,
        environment: environment.unwrap_or(pid),
    })
}

/// Returns the parent of a process, if it has the same user.
fn parent(root: &Root, pid: u32, status: &Status) -> Option<u32> {
    let stat = Stat::read(root, pid).ok()?;
    let parent = Some(stat.parent).filter(|&parent| parent > 1)?;
    let real = |status: &Status| status.uids.map(|[real, ..]| real);
    let theirs = Status::read(root, parent).ok()?;
    let is_older = Stat::read(root, parent).ok()?.start_time <= stat.start_time;
    (is_older && real(&theirs) == real(status)).then_some(parent)
}

#[cfg(test)]
mod tests;
