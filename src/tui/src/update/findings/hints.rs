//! Findings about processes that do not publish and take memory in advance, as their command lines and variables tell.

use std::collections::BTreeMap;

use gpumem_probe::{HintKind, Preallocation};
use gpumem_text::units;

use super::{Ranked, finding};
use crate::model::{Basis, Process, ProcessState, Severity, World, claim, kv_cache_text};

/// Least bytes that a finding is made for: more than a context.
const MIN_PREALLOCATED: u64 = 1 << 30;

/// Returns a finding for each cause. Processes with the same one, such as the workers of an engine, share it. The bytes at stake are
/// what NVML counts for them.
pub(super) fn about_hints(world: &World) -> Vec<Ranked> {
    let mut alike: BTreeMap<Cause, Vec<(&Process, u64)>> = BTreeMap::new();
    let silent = |p: &&Process| matches!(p.state, ProcessState::NotPublishing | ProcessState::OtherUser);
    for process in world.processes.iter().filter(silent) {
        let Some(&bytes) = process.nvml.value().filter(|&&bytes| bytes >= MIN_PREALLOCATED) else {
            continue;
        };
        if let Some(cause) = cause(process, bytes, world) {
            alike.entry(cause).or_default().push((process, bytes));
        }
    }
    let each = alike.into_iter().filter_map(|(cause, of)| {
        let (first, _) = *of.first()?;
        let name = match of.len() {
            1 => world.name_of(first),
            n => format!("{} and {} more", world.name_of(first), n - 1),
        };
        let bytes = of.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let counted = units::bytes(bytes);
        let text = match cause {
            Cause::InAdvance(claim) => format!("{name}: {claim}. NVML's {counted} say nothing of what is in use"),
            Cause::Recorded(record) => format!("{name}: {record}. NVML counts {counted}"),
        };
        Some((bytes, finding(Severity::Info, Some(first.id), text)))
    });
    each.collect()
}

/// Why a process holds so much, in words.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// It takes memory in advance, whatever it uses of it.
    InAdvance(String),
    /// A record says what it uses.
    Recorded(String),
}

/// Says why a process holds so much, if its hints tell and what it holds agrees with them.
fn cause(process: &Process, bytes: u64, world: &World) -> Option<Cause> {
    let hints = || process.hints.iter().map(|hint| &hint.kind);
    // With kvcached an engine takes the memory of its KV cache as it needs it.
    if let Some(record) = hints().find_map(|kind| match kind {
        HintKind::KvCached(record) => Some(record),
        _ => None,
    }) {
        return Some(Cause::Recorded(kv_cache_text(record)));
    }
    let device = world.devices.iter().find(|d| d.key == process.id.device);
    let memory = device.and_then(|d| d.memory.value());
    let total = memory.filter(|m| m.basis == Basis::Driver).map(|m| m.total);
    let of_pytorch = hints().any(|kind| *kind == HintKind::PyTorch);
    let agrees = |kind: &&HintKind| match kind {
        HintKind::Vllm {
            kv_cache: None,
            share: Some(share),
            ..
        }
        | HintKind::Sglang { share: Some(share) } => total.is_some_and(|total| bytes >= share.of(total) / 2),
        HintKind::Vllm { .. } | HintKind::Sglang { share: None } | HintKind::TensorRtLlm { .. } => true,
        // The program may have turned it off itself. Where it did, it rarely holds this much.
        HintKind::Jax(Preallocation::Share(share)) => total.is_some_and(|total| bytes >= share.of(total) / 10 * 9),
        // TensorBoard loads TensorFlow into programs that use something else.
        HintKind::TensorFlow { .. } => !of_pytorch && total.is_some_and(|total| bytes >= total / 4 * 3),
        _ => false,
    };
    hints().filter(agrees).find_map(claim).map(Cause::InAdvance)
}
