//! Jobs: the processes that are ranks of one distributed program, side by side.
//!
//! A launcher (`torchrun`, `srun`, `mpirun`) tells each process its rank, and each publishes a channel of its own. Nothing names
//! the job unless its user does, so which processes belong together follows from what is known of them: see [`Jobs::of`].

use std::collections::{BTreeMap, HashMap, HashSet};

use gpumem_probe::Reading;
use gpumem_text::units;

use super::device::DeviceKey;
use super::outlier::{Comparison, Holdings, Outlier};
use super::process::{Owner, Process, ProcessId, ProcessState};

/// Two or more live ranks of one job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// Its label, else the name of its program.
    pub name: String,
    /// The command line of its first rank.
    pub command: String,
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

    /// Checks whether none of its ranks is known to be elsewhere.
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
    /// Live processes of one user with the same job label and the same number of ranks are a job. If they have no label, or a
    /// rank occurs twice because two jobs have the same label, they must also have the same program and the same parent, the
    /// launcher. The parent does not tell jobs apart if each rank was started by a shell of its own, or if it is not visible
    /// here: what is left of one program is a job, too. In no case is it a job if a rank occurs twice.
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
            command: first.command.clone(),
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

    /// Returns the command by which a row is sorted: that of the first rank for all ranks of a job.
    pub(crate) fn command<'a>(&'a self, process: &'a Process) -> &'a str {
        self.get(process.id).map_or(&process.command, |(job, _)| &job.command)
    }

    /// Returns how a row differs from those of the other ranks. Only the row on the rank's own device does.
    pub(crate) fn outlier(&self, id: ProcessId) -> Option<Outlier> {
        let (_, rank) = self.get(id)?;
        rank.outlier.filter(|_| rank.id == id)
    }
}

/// A process with a rank.
struct Member<'a> {
    rank: u32,
    /// Its rows; that of a channel comes first.
    rows: Vec<&'a Process>,
}

/// Joins the rows of each live process that has a rank. The rank of a row without a channel is that of its process's channel.
fn members(processes: &[Process]) -> Vec<Member<'_>> {
    let mut members: BTreeMap<(u32, u32, &str, &str), Vec<&Process>> = BTreeMap::new();
    let publishes = |p: &&Process| matches!(p.id.owner, Owner::Channel(_));
    // A disputed channel says that it is a rank of somebody else's job.
    let ranked = || {
        let live = |p: &&Process| p.state.alive() && !matches!(p.state, ProcessState::Disputed(_));
        processes.iter().filter(live).filter_map(|p| Some((p, p.rank?)))
    };
    for (row, rank) in ranked().filter(|(row, _)| publishes(row)) {
        let key = (row.pid, rank, row.job.as_str(), row.user.as_str());
        members.entry(key).or_default().push(row);
    }
    for (row, rank) in ranked().filter(|(row, _)| !publishes(row)) {
        let process = (row.pid, rank, row.job.as_str());
        let same_process = members
            .range_mut((process.0, process.1, process.2, "")..)
            .take_while(|(key, _)| (key.0, key.1, key.2) == process);
        // The user of a process in another container is not known.
        let mut its = same_process.filter(|(key, _)| row.user.is_empty() || key.3 == row.user);
        if let Some((_, rows)) = its.next() {
            rows.push(row);
        }
    }
    let members = members.into_iter();
    members.map(|((_, rank, ..), rows)| Member { rank, rows }).collect()
}

/// Splits processes that look alike into jobs of two or more.
fn split(members: Vec<Member<'_>>) -> Vec<Vec<Member<'_>>> {
    let labelled = members.first().is_some_and(|member| !member.rows[0].job.is_empty());
    if labelled && distinct(&members) {
        return [members].into_iter().filter(|members| members.len() > 1).collect();
    }
    let mut of_parent: BTreeMap<Option<u32>, Vec<Member<'_>>> = BTreeMap::new();
    for member in members {
        // Process 1 adopts those whose parent has ended.
        let parent = member.rows[0].parent.filter(|&parent| parent > 1);
        of_parent.entry(parent).or_default().push(member);
    }
    let (jobs, alone): (Vec<_>, Vec<_>) = of_parent
        .into_iter()
        .partition(|(parent, members)| parent.is_some() && members.len() > 1);
    let alone: Vec<Member<'_>> = alone.into_iter().flat_map(|(_, members)| members).collect();
    let jobs = jobs.into_iter().map(|(_, members)| members).chain([alone]);
    jobs.filter(|members| members.len() > 1 && distinct(members)).collect()
}

/// Checks whether no two processes have the same rank.
fn distinct(members: &[Member<'_>]) -> bool {
    let mut seen = HashSet::new();
    members.iter().all(|member| seen.insert(member.rank))
}

/// Returns the program of a command line and its first argument, without directories and options: `python train.py`. Ranks may
/// have different options (`--local-rank=3`).
fn program(command: &str) -> String {
    let words = command.split(' ').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.filter(|word| !word.starts_with('-')).take(2).collect();
    let bare = |word: &&str| word.rsplit('/').next().unwrap_or(word).to_owned();
    words.iter().map(bare).collect::<Vec<_>>().join(" ")
}

impl Member<'_> {
    /// Adds up its rows by device.
    fn summarize(&self) -> Rank {
        let mut devices: Vec<(&Process, Holdings)> = Vec::new();
        for row in &self.rows {
            match devices.iter_mut().find(|(first, _)| first.id.device == row.id.device) {
                Some((_, holds)) => *holds = sum(*holds, holdings(row)),
                None => devices.push((row, holdings(row))),
            }
        }
        let most = |(_, holds): &(&Process, Holdings)| (holds.reserved, holds.nvml);
        // The first of several that hold the same.
        let place = (0..devices.len()).rev().max_by_key(|&n| most(&devices[n])).unwrap_or(0);
        let (row, holds) = devices.swap_remove(place);
        let elsewhere = devices.into_iter().map(|(row, holds)| Elsewhere {
            device: row.id.device,
            device_label: row.device_label.clone(),
            bytes: holds.nvml.or(holds.reserved),
        });
        let mut elsewhere: Vec<Elsewhere> = elsewhere.filter(|there| there.bytes != Some(0)).collect();
        elsewhere.sort_by(|a, b| a.device_label.cmp(&b.device_label));
        Rank {
            rank: self.rank,
            id: row.id,
            pid: row.pid,
            device_label: row.device_label.clone(),
            holds,
            elsewhere,
            outlier: None,
        }
    }
}

/// Returns what a row says that its process holds.
fn holdings(row: &Process) -> Holdings {
    let figures = row.figures.as_ref();
    Holdings {
        reserved: figures.map(|f| f.reserved),
        allocated: figures.map(|f| f.allocated),
        peak_allocated: figures.map(|f| f.peak_allocated),
        // An incomplete map gives a lower bound, which cannot be compared.
        largest_free: figures.filter(|f| f.complete).map(|f| f.largest_free),
        nvml: match row.nvml {
            Reading::Value(bytes) => Some(bytes),
            _ => None,
        },
    }
}

/// Adds what two channels of one process hold on one device.
fn sum(a: Holdings, b: Holdings) -> Holdings {
    let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (one, other) => one.or(other),
    };
    Holdings {
        reserved: add(a.reserved, b.reserved),
        allocated: add(a.allocated, b.allocated),
        peak_allocated: add(a.peak_allocated, b.peak_allocated),
        largest_free: a.largest_free.max(b.largest_free),
        nvml: add(a.nvml, b.nvml),
    }
}

#[cfg(test)]
#[path = "ranks_tests.rs"]
mod tests;
