//! The processes of a GPU: the compute and the graphics list as one, by pid and GPU instance.

use std::collections::BTreeMap;

use super::calls::{Calls, Code, Device, List};
use super::gpu::reading;
use crate::{GpuProcess, MigDevice, ProcessKind, Reading};

/// By pid and instance, so the result is in a stable order.
type Merged = BTreeMap<(u32, Option<u32>), GpuProcess>;

/// NVML's `NVML_VALUE_NOT_AVAILABLE` and, for instances, "none".
const NOT_AVAILABLE: u64 = u64::MAX;
const NO_INSTANCE: u32 = u32::MAX;

pub(super) fn read(
    calls: &Calls,
    device: &Device<'_>,
    mig: &[(Device<'_>, MigDevice)],
    records: &mut Vec<u64>,
) -> Reading<Vec<GpuProcess>> {
    let mut merged = Merged::new();
    let mut answer = add(calls, device, None, records, &mut merged);
    // With MIG on, the whole GPU's list is for administrators only; each MIG device's own list is not.
    if !mig.is_empty() && (answer.is_err() || merged.is_empty()) {
        for (device, description) in mig {
            let one = add(calls, device, description.instance, records, &mut merged);
            answer = answer.or(one);
        }
    }
    reading(answer.map(|()| merged.into_values().collect()))
}

/// Adds both lists of a device. It is an error when neither can be had; cards without graphics have no graphics list.
fn add(
    calls: &Calls,
    device: &Device<'_>,
    instance: Option<u32>,
    records: &mut Vec<u64>,
    merged: &mut Merged,
) -> Result<(), Code> {
    let compute = add_list(
        calls,
        device,
        (List::Compute, ProcessKind::Compute),
        instance,
        records,
        merged,
    );
    let graphics = add_list(
        calls,
        device,
        (List::Graphics, ProcessKind::Graphics),
        instance,
        records,
        merged,
    );
    if compute.is_ok() || graphics.is_ok() {
        Ok(())
    } else {
        compute
    }
}

fn add_list(
    calls: &Calls,
    device: &Device<'_>,
    (list, kind): (List, ProcessKind),
    instance: Option<u32>,
    records: &mut Vec<u64>,
    merged: &mut Merged,
) -> Result<(), Code> {
    let (count, words) = calls.processes(device, list, records)?;
    for record in records.chunks_exact(words).take(count) {
        let process = decode(record, kind, instance);
        merged
            .entry((process.pid, process.mig))
            .and_modify(|p| combine(p, &process))
            .or_insert(process);
    }
    Ok(())
}

/// A record is {pid: u32, (padding), bytes: u64, GPU instance: u32, compute instance: u32, ...} in memory order; in
/// version 1 it ends with the bytes.
fn decode(record: &[u64], kind: ProcessKind, instance: Option<u32>) -> GpuProcess {
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
    }
}

/// The two lists give the same figure for a process, all it has on the GPU: the larger one is kept, not the sum.
fn combine(known: &mut GpuProcess, other: &GpuProcess) {
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
        }
    }

    #[test]
    fn a_process_in_both_lists_is_counted_once() {
        let mut known = process(ProcessKind::Compute, Reading::Value(5));
        combine(&mut known, &process(ProcessKind::Graphics, Reading::Value(7)));
        assert_eq!(known, process(ProcessKind::Both, Reading::Value(7)));
        combine(&mut known, &process(ProcessKind::Graphics, Reading::NotSupported));
        assert_eq!(known, process(ProcessKind::Both, Reading::Value(7)));
    }

    #[test]
    fn a_figure_beats_none() {
        let mut known = process(ProcessKind::Compute, Reading::NotSupported);
        combine(&mut known, &process(ProcessKind::Compute, Reading::Value(0)));
        assert_eq!(known, process(ProcessKind::Compute, Reading::Value(0)));
    }
}
