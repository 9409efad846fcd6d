//! Findings about CUDA contexts that processes have on GPUs which they do not use otherwise.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use gpumem_text::units;

use super::{Ranked, finding};
use crate::model::{DeviceKey, Process, Severity, World};

/// Bytes that NVML counts for a process that has nothing but a context on a device. 518 MiB were measured on an H200.
const CONTEXT: RangeInclusive<u64> = 300 << 20..=800 << 20;

/// How to keep a rank off the other devices.
const ADVICE: &str =
    "set the device before the first CUDA call: torch.cuda.set_device(local_rank), or CUDA_VISIBLE_DEVICES";

/// Rows with the bytes that NVML counts for them.
type Counted<'a> = Vec<(&'a Process, u64)>;

/// Returns a finding for each device with contexts of processes that have their memory on another one; those of a job are apart.
/// The bytes at stake are those of the contexts.
pub(super) fn about_contexts(world: &World) -> Vec<Ranked> {
    let mut left: BTreeMap<(DeviceKey, Option<usize>), Counted<'_>> = BTreeMap::new();
    let alive: Vec<&Process> = world
        .processes
        .iter()
        .filter(|p| p.state.alive() && !p.simulated)
        .collect();
    let mut rows_of: BTreeMap<u32, Vec<&Process>> = BTreeMap::new();
    for &process in &alive {
        rows_of.entry(process.pid).or_default().push(process);
    }
    for process in alive {
        let rows = rows_of.get(&process.pid).map_or(&[][..], Vec::as_slice);
        if let Some(bytes) = context(process, rows) {
            let job = world.jobs.place(process.id).map(|(job, _)| job);
            left.entry((process.id.device, job)).or_default().push((process, bytes));
        }
    }
    left.into_values().filter_map(|of| describe(world, &of)).collect()
}

/// Returns the bytes of a row that is only a context, as far as is known; `rows` are those of its process.
fn context(row: &Process, rows: &[&Process]) -> Option<u64> {
    let bytes = *row.nvml.value().filter(|bytes| CONTEXT.contains(bytes))?;
    let here = |other: &&&Process| other.id.device == row.id.device;
    let reserves = |p: &Process| p.figures.as_ref().map_or(0, |f| f.reserved);
    let holds = |p: &Process| p.nvml.value().copied().unwrap_or(0).max(reserves(p));
    let reserves_here = rows.iter().filter(here).any(|p| reserves(p) > 0);
    let elsewhere = rows.iter().filter(|p| !here(p)).map(|p| holds(p)).max().unwrap_or(0);
    (!reserves_here && elsewhere > *CONTEXT.end() && elsewhere / 2 > bytes).then_some(bytes)
}

fn describe(world: &World, of: &[(&Process, u64)]) -> Option<Ranked> {
    let (first, _) = *of.first()?;
    let device = &first.device_label;
    let bytes = of.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let size = units::bytes(bytes);
    let text = match (world.jobs.get(first.id), of.len()) {
        (Some((job, rank)), n) => {
            let owners: Vec<u32> = job
                .ranks
                .iter()
                .filter(|rank| rank.id.device == first.id.device)
                .map(|rank| rank.rank)
                .collect();
            let whose = match owners.as_slice() {
                [owner] => format!(", which is rank {owner}'s"),
                _ => String::new(),
            };
            let (who, what) = match n {
                1 => (format!("rank {} of {} holds", rank.rank, job.name), "a context"),
                n => (format!("{n} ranks of {} hold", job.name), "contexts"),
            };
            format!("{who} {size} on {device}{whose}: {what} ({ADVICE})")
        }
        (None, 1) => format!(
            "{} holds {size}, and more on another GPU: probably only a context (CUDA_VISIBLE_DEVICES keeps it off)",
            world.name_of(first)
        ),
        (None, n) => {
            format!("{n} processes hold {size} on {device}, and more on other GPUs: probably only contexts ({ADVICE})")
        }
    };
    Some((bytes, finding(Severity::Info, Some(first.id), text)))
}
