//! The processes that have a rank, and which of them belong together.

use std::collections::{BTreeMap, HashSet};

use gpumem_probe::Reading;

use super::{Elsewhere, Rank};
use crate::model::outlier::Holdings;
use crate::model::process::{Owner, Process, ProcessState};

/// A process with a rank.
pub(super) struct Member<'a> {
    pub(super) rank: u32,
    /// Its rows; that of a channel comes first.
    pub(super) rows: Vec<&'a Process>,
}

/// Joins the rows of each live process that has a rank. The rank of a row without a channel is that of its process's channel.
pub(super) fn members(processes: &[Process]) -> Vec<Member<'_>> {
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
pub(super) fn split(members: Vec<Member<'_>>) -> Vec<Vec<Member<'_>>> {
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
pub(super) fn program(command: &str) -> String {
    let words = command.split(' ').filter(|word| !word.is_empty());
    let words: Vec<&str> = words.filter(|word| !word.starts_with('-')).take(2).collect();
    let bare = |word: &&str| word.rsplit('/').next().unwrap_or(word).to_owned();
    words.iter().map(bare).collect::<Vec<_>>().join(" ")
}

impl Member<'_> {
    /// Adds up its rows by device.
    pub(super) fn summarize(&self) -> Rank {
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
