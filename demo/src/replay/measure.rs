//! Timed passes over a trace.

use std::time::Instant;

use super::ReplayError;
use super::idle::Idle;
use super::replayer::{Costs, Refused, Replayer};
use super::report::{Failures, FirstFailure, MemoryPart, Pass, Report, TimePart};
use crate::trace::{Op, Trace};

/// How often the replay's own cost is measured; the lowest counts.
const IDLE_PASSES: u32 = 3;

/// One pass over the operations.
struct Passed {
    ns: u64,
    /// Indices of refused requests.
    refused: Vec<usize>,
    /// Why the first one was refused.
    why: Option<String>,
}

fn pass(trace: &Trace, replayer: &mut impl Replayer) -> Result<Passed, ReplayError> {
    let mut passed = Passed {
        ns: 0,
        refused: Vec::new(),
        why: None,
    };
    let began = Instant::now();
    for (at, op) in trace.ops.iter().enumerate() {
        match *op {
            Op::Alloc { slot, stream, bytes } => {
                if let Err(refused) = replayer.alloc(slot, bytes, stream) {
                    passed.refuse(at, refused)?;
                }
            }
            Op::Free { slot } => {
                if let Err(why) = replayer.free(slot) {
                    return Err(broken(at, "free", why));
                }
            }
        }
    }
    passed.ns = began.elapsed().as_nanos() as u64;
    Ok(passed)
}

impl Passed {
    #[cold]
    fn refuse(&mut self, at: usize, refused: Refused) -> Result<(), ReplayError> {
        match refused {
            Refused::Memory(why) => {
                self.why.get_or_insert_with(|| why.to_string());
                self.refused.push(at);
                Ok(())
            }
            Refused::Broken(why) => Err(broken(at, "allocation", why)),
        }
    }
}

#[cold]
fn broken(at: usize, what: &str, why: String) -> ReplayError {
    ReplayError::while_doing(&format!("operation {}, {what}", at + 1), why)
}

/// Replays `passes` times and returns a report without the fields that only the caller knows. If the device is `simulated`,
/// the times do not include the cost of driver calls.
pub(super) fn measure(
    trace: &Trace,
    passes: u32,
    replayer: &mut impl Replayer,
    simulated: bool,
) -> Result<Report, ReplayError> {
    let failed = |doing: &'static str| move |why: String| ReplayError::while_doing(doing, why);
    let mut memory = MemoryPart::default();
    let mut time = TimePart {
        own_ns_per_op: own_ns(trace)?,
        ..TimePart::default()
    };
    let mut failures = Failures::default();
    for number in 1..=passes.max(1) {
        let before = replayer.costs();
        let passed = pass(trace, replayer)?;
        let after = replayer.costs();
        let peaks = replayer.peaks().map_err(failed("asking for the peaks"))?;
        if number == 1 {
            memory.peak_requested = match &passed.refused[..] {
                [] => trace.peak_requested,
                refused => trace.peak_requested_without(refused),
            };
            memory.peak_allocated = peaks.allocated;
            memory.peak_reserved = peaks.reserved;
        }
        memory.peak_reserved_of_all_passes = peaks.reserved;
        let count = passed.refused.len() as u64;
        failures.count += count;
        if let (None, Some(at), Some(message)) = (&failures.first, passed.refused.first(), passed.why) {
            let bytes = match trace.ops[*at] {
                Op::Alloc { bytes, .. } => bytes,
                Op::Free { .. } => 0,
            };
            failures.first = Some(FirstFailure {
                pass: number,
                operation: *at as u64 + 1,
                bytes,
                message,
            });
        }
        time.passes.push(timed(trace, passed.ns, &before, &after, count));
        replayer.clear().map_err(failed("freeing what the trace leaves"))?;
    }
    time.settle(simulated);
    memory.ratio = memory
        .peak_reserved
        .filter(|_| memory.peak_requested > 0)
        .map(|reserved| reserved as f64 / memory.peak_requested as f64);
    Ok(Report {
        memory,
        time,
        out_of_memory: failures,
        ..Report::default()
    })
}

fn timed(trace: &Trace, ns: u64, before: &Costs, after: &Costs, out_of_memory: u64) -> Pass {
    let ns = ns.saturating_sub(after.untimed_ns - before.untimed_ns);
    let earlier = |name: &str| {
        before
            .calls
            .iter()
            .find(|(n, _)| *n == name)
            .map_or(0, |(_, count)| *count)
    };
    let calls = after.calls.iter().map(|(name, count)| (*name, count - earlier(name)));
    Pass {
        ns,
        ns_per_op: ns as f64 / trace.ops.len() as f64,
        driver_calls: calls
            .filter(|(_, count)| *count > 0)
            .map(|(name, n)| (name.to_owned(), n))
            .collect(),
        driver_ns: after
            .calls_ns
            .zip(before.calls_ns)
            .map(|(after, before)| after - before),
        out_of_memory,
    }
}

/// Measures the cost of the loop itself per operation, in nanoseconds.
fn own_ns(trace: &Trace) -> Result<f64, ReplayError> {
    let mut idle = Idle(vec![0; trace.slots]);
    let mut least = u64::MAX;
    for _ in 0..IDLE_PASSES {
        least = least.min(pass(trace, &mut idle)?.ns);
        idle.0.fill(0);
    }
    Ok(least as f64 / trace.ops.len() as f64)
}
