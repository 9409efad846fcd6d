//! Jobs: the processes that are ranks of one distributed program, side by side.
//!
//! A launcher (`torchrun`, `srun`, `mpirun`) tells each process its rank, and each publishes a channel of its own. Nothing names
//! the job unless its user does, so which processes belong together follows from what is known of them: see [`Jobs::of`].

mod member;

use std::collections::{BTreeMap, HashMap};

use gpumem_text::units;

use super::device::DeviceKey;
use super::outlier::{Comparison, Holdings, Outlier};
use super::process::{Process, ProcessId};
use member::{Member, members, program, split};

/// Two or more live ranks of one job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// Its label, else the name of its program.
    pub name: String,
    /// [`Process::label`] of its first rank.
    pub label: String,
    /// Number of ranks on all machines together, as the ranks publish it.
    pub world_size: Option<u32>,
    /// The ranks on this machine, in order.
    pub ranks: Vec<Rank>,
    /// The median of each figure over the ranks.
    pub median: Holdings,
    /// Whether the ranks differ so much that none is called an outlier.
    pub uneven: bool,
}

/// A rank of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rank {
    /// Its number.
    pub rank: u32,
    /// Its row on the device where it reserves most.
    pub id: ProcessId,
    /// Its pid, as in [`Process::pid`].
    pub pid: u32,
    /// The label of that device.
    pub device_label: String,
    /// What it holds there.
    pub holds: Holdings,
    /// Its memory on other devices.
    pub elsewhere: Vec<Elsewhere>,
    /// How it differs from the other ranks, if it does.
    pub outlier: Option<Outlier>,
}

/// Memory of a rank on another device than its own, often only a CUDA context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// The device.
    pub device: DeviceKey,
    /// Its label.
    pub device_label: String,
    /// Bytes there as NVML counts them, else what the rank reserved; `None` if neither is known.
    pub bytes: Option<u64>,
}

/// Memory of a job's ranks on a device that is not theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visitors {
    /// The label of the device.
    pub device_label: String,
    /// The ranks, in order.
    pub ranks: Vec<u32>,
    /// Their bytes together, as far as they are known.
    pub bytes: u64,
}

impl Job {
    /// Returns for each device the ranks that have memory on it although they use another one.
    pub(crate) fn visitors(&self) -> Vec<Visitors> {
        let mut all: BTreeMap<DeviceKey, Visitors> = BTreeMap::new();
        for rank in &self.ranks {
            for elsewhere in &rank.elsewhere {
                let visitors = all.entry(elsewhere.device).or_insert_with(|| Visitors {
                    device_label: elsewhere.device_label.clone(),
                    ranks: Vec::new(),
                    bytes: 0,
                });
                visitors.ranks.push(rank.rank);
                visitors.bytes = visitors.bytes.saturating_add(elsewhere.bytes.unwrap_or(0));
            }
        }
        all.into_values().collect()
    }

    /// Checks whether all of its ranks are here. True if their number is not known.
    pub(crate) fn is_complete(&self) -> bool {
        self.world_size.is_none_or(|size| size as usize <= self.ranks.len())
    }

    /// Returns the number of its ranks here, and of all if some are not known to be here: `8 of 16 ranks here`.
    pub(crate) fn extent(&self) -> String {
        let here = self.ranks.len() as u64;
        match self.world_size {
            Some(size) if !self.is_complete() => format!("{here} of {} here", units::plural(size.into(), "rank")),
            _ => units::plural(here, "rank"),
        }
    }

    /// Returns the place of a rank in [`Job::ranks`].
    pub(crate) fn place(&self, rank: &Rank) -> usize {
        self.ranks.iter().position(|r| r.id == rank.id).unwrap_or(0)
    }
}

/// All jobs, and the ranks to which rows of the process table belong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs {
    jobs: Vec<Job>,
    /// The job and the place in [`Job::ranks`] of each row.
    places: HashMap<ProcessId, (usize, usize)>,
}

impl Jobs {
    /// Finds the jobs among the rows of the process table.
    ///
    /// Live processes of one user that publish the same job label and the same number of ranks are a job. Without a label, those
    /// of the same program and with the same parent, the launcher, are one. Of those whose parent is not visible here, or has no
    /// other rank because a script starts each of them, the ones of the same program are one job together. Two jobs with one
    /// label, of which each has a rank 0, are told apart by their parents, too. Where a rank still occurs twice, there is no job.
    pub(crate) fn of(processes: &[Process]) -> Jobs {
        let mut alike: BTreeMap<_, Vec<Member<'_>>> = BTreeMap::new();
        for member in members(processes) {
            let process = member.rows[0];
            let program = match process.job.is_empty() {
                true => program(&process.command),
                false => String::new(),
            };
            let key = (&process.user, process.world_size, &process.job, program);
            alike.entry(key).or_default().push(member);
        }
        let mut jobs = Jobs::default();
        for members in alike.into_values() {
            for members in split(members) {
                jobs.push(members);
            }
        }
        jobs
    }

    /// Adds a job.
    fn push(&mut self, mut members: Vec<Member<'_>>) {
        members.sort_by_key(|member| (member.rank, member.rows[0].id));
        for (place, member) in members.iter().enumerate() {
            let rows = member.rows.iter().map(|row| (row.id, (self.jobs.len(), place)));
            self.places.extend(rows);
        }
        let mut ranks: Vec<Rank> = members.iter().map(Member::summarize).collect();
        let holdings: Vec<Holdings> = ranks.iter().map(|rank| rank.holds).collect();
        let compared = Comparison::of(&holdings);
        for (rank, outlier) in ranks.iter_mut().zip(compared.outliers) {
            rank.outlier = outlier;
        }
        let Some(first) = members.first().map(|member| member.rows[0]) else {
            return;
        };
        let name = match first.job.is_empty() {
            true => program(&first.command)
                .split(' ')
                .next_back()
                .unwrap_or_default()
                .to_owned(),
            false => first.job.clone(),
        };
        self.jobs.push(Job {
            name,
            label: first.label.clone(),
            world_size: first.world_size,
            ranks,
            median: compared.median,
            uneven: compared.uneven,
        });
    }

    /// Iterates over the jobs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    /// Returns the job of a row, and its rank there.
    pub(crate) fn get(&self, id: ProcessId) -> Option<(&Job, &Rank)> {
        let (job, place) = self.place(id)?;
        let job = self.jobs.get(job)?;
        Some((job, job.ranks.get(place)?))
    }

    /// Returns where a row stands among the rows of all jobs: the job, and the place of the rank in it.
    pub(crate) fn place(&self, id: ProcessId) -> Option<(usize, usize)> {
        self.places.get(&id).copied()
    }

    /// Returns the label by which a row is sorted: that of the first rank for all ranks of a job.
    pub(crate) fn label<'a>(&'a self, process: &'a Process) -> &'a str {
        self.get(process.id).map_or(&process.label, |(job, _)| &job.label)
    }

    /// Returns how a row differs from those of the other ranks. Only the row on the rank's own device does.
    pub(crate) fn outlier(&self, id: ProcessId) -> Option<Outlier> {
        let (_, rank) = self.get(id)?;
        rank.outlier.filter(|_| rank.id == id)
    }
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
mod tests;
