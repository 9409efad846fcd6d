//! The processes of a GPU: the compute, graphics and MPS lists merged, by pid and GPU instance.

use std::collections::BTreeMap;

use gpumem_text::units;

use super::calls::{Calls, Code, Device, List};
use super::gpu::unless_lost;
use crate::{GpuProcess, MigDevice, ProcessKind, Reading};

/// The processes by pid and instance, so that the order is stable.
type Merged = BTreeMap<(u32, Option<u32>), GpuProcess>;

/// NVML's `NVML_VALUE_NOT_AVAILABLE` and, for instances, "none".
const NOT_AVAILABLE: u64 = u64::MAX;
const NO_INSTANCE: u32 = u32::MAX;

/// Returns the processes of a GPU, except those on its MIG devices, which go to `mig`.
///
/// # Errors
/// The GPU is lost.
pub(super) fn read(
    calls: &Calls,
    device: &Device<'_>,
    mig: &mut [(Device<'_>, MigDevice)],
    records: &mut Vec<u64>,
) -> Result<Reading<Vec<GpuProcess>>, Code> {
    let mut all_listed = true;
    for (device, part) in &mut *mig {
        part.processes = list(calls, device, part.instance, records)?;
        all_listed &= part.processes.value().is_some();
    }
    let whole = list(calls, device, None, records)?;
    Ok(match whole {
        Reading::Value(mut list) => {
            let listed = |p: &GpuProcess| mig.iter().any(|(_, part)| lists_process(part, p));
            list.retain(|process| !listed(process));
            Reading::Value(list)
        }
        // With MIG on, only administrators may read the whole GPU's list. Others may read the MIG devices' lists.
        Reading::NoPermission | Reading::NotSupported if !mig.is_empty() && all_listed => Reading::Value(Vec::new()),
        none => none,
    })
}

/// Whether this MIG device lists the process too.
fn lists_process(part: &MigDevice, process: &GpuProcess) -> bool {
    let list = part.processes.value().map_or(&[][..], Vec::as_slice);
    list.iter().any(|p| (p.pid, p.mig) == (process.pid, process.mig))
}

/// Merges the lists of a device. Fails if neither the compute nor the graphics list can be read. Cards without graphics
/// have no graphics list, and drivers before R450 have no list of MPS clients.
fn list(
    calls: &Calls,
    device: &Device<'_>,
    instance: Option<u32>,
    records: &mut Vec<u64>,
) -> Result<Reading<Vec<GpuProcess>>, Code> {
    let mut merged = Merged::new();
    let mut add = |list, kind, mps| add_list(calls, device, (list, kind, mps), instance, records, &mut merged);
    let compute = add(List::Compute, ProcessKind::Compute, false);
    let graphics = add(List::Graphics, ProcessKind::Graphics, false);
    let mps = add(List::Mps, ProcessKind::Compute, true);
    let answer = if graphics.is_ok() { graphics } else { compute };
    if let Some(lost) = mps.err().filter(|code| code.is_lost()) {
        return Err(lost);
    }
    unless_lost(answer.map(|()| merged.into_values().collect()))
}

fn add_list(
    calls: &Calls,
    device: &Device<'_>,
    (list, kind, mps): (List, ProcessKind, bool),
    instance: Option<u32>,
    records: &mut Vec<u64>,
    merged: &mut Merged,
) -> Result<(), Code> {
    let (count, words) = calls.processes(device, list, records)?;
    for record in records.chunks_exact(words).take(count) {
        let process = decode(record, kind, instance, mps);
        merged
            .entry((process.pid, process.mig))
            .and_modify(|p| combine(p, &process))
            .or_insert(process);
    }
    Ok(())
}

/// Decodes a record: {pid: u32, (padding), bytes: u64, GPU instance: u32, compute instance: u32, ...} in memory order;
/// in version 1 it ends with the bytes.
fn decode(record: &[u64], kind: ProcessKind, instance: Option<u32>, mps: bool) -> GpuProcess {
    let first_half = |word: u64| {
        let [a, b, c, d, ..] = word.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    };
    let listed = record
        .get(2)
        .map(|&word| first_half(word))
        .filter(|&i| i != NO_INSTANCE);
    GpuProcess {
        pid: first_half(record[0]),
        kind,
        used: if record[1] == NOT_AVAILABLE {
            Reading::NotSupported
        } else {
            Reading::Value(record[1])
        },
        mig: listed.or(instance),
        mps,
    }
}

/// Rejects figures that are larger than the device's memory. Some drivers return such figures.
pub(super) fn reject_impossible(list: &mut [GpuProcess], total: u64) {
    for process in list {
        if let Reading::Value(bytes) = process.used
            && bytes > total
        {
            process.used = Reading::Failed(format!("NVML says {}, more than the device has", units::bytes(bytes)));
        }
    }
}

/// Merges two entries of a process. Each list gives all that the process has on the GPU, so the larger figure is kept,
/// not the sum.
fn combine(known: &mut GpuProcess, other: &GpuProcess) {
    known.mps |= other.mps;
    if known.kind != other.kind {
        known.kind = ProcessKind::Both;
    }
    if let Some(&more) = other.used.value()
        && known.used.value().is_none_or(|&have| more > have)
    {
        known.used = Reading::Value(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(kind: ProcessKind, used: Reading<u64>) -> GpuProcess {
        GpuProcess {
            pid: 1,
            kind,
            used,
            mig: None,
            mps: false,
        }
    }

    #[test]
    fn process_in_both_lists_is_counted_once() {
        let mut known = process(ProcessKind::Compute, Reading::Value(5));
        combine(&mut known, &process(ProcessKind::Graphics, Reading::Value(7)));
        assert_eq!(known, process(ProcessKind::Both, Reading::Value(7)));
        combine(&mut known, &process(ProcessKind::Graphics, Reading::NotSupported));
        assert_eq!(known, process(ProcessKind::Both, Reading::Value(7)));
    }

    #[test]
    fn figure_replaces_a_missing_one() {
        let mut known = process(ProcessKind::Compute, Reading::NotSupported);
        combine(&mut known, &process(ProcessKind::Compute, Reading::Value(0)));
        assert_eq!(known, process(ProcessKind::Compute, Reading::Value(0)));
    }
}
