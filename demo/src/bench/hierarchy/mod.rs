//! `bench hierarchy`: the latency and bandwidth of each level of a card's memory hierarchy.
//!
//! Latency is that of a pointer chase: 64-bit pointers in a random cyclic order, one thread, one load at a time, timed by the
//! SM's own clock and the GPU's global timer within the kernel. Cycles are what compares L1 and shared memory across cards,
//! nanoseconds what compares L2 and device memory, which have clocks of their own.

mod arithmetic;
mod assemble;
mod check;
mod curve;
mod example;
#[cfg(test)]
mod fake;
mod kept;
mod perform;
mod plan;
mod published;
mod report;
pub(super) mod ring;
mod step;
mod text;

use std::time::Instant;

use super::error::Stop;
use super::protocol::Progress;
use crate::rig::Rig;
use perform::Bench;

pub use check::CheckError;
pub use example::example;
pub use kept::{Kept, KeptReports, keep, kept};
pub use report::{Bandwidth, Card, Latency, Level, Peer, Point, Published, Region, Report, Rung, SCHEMA, Spread};

/// Whom a run tells how far it is, and asks whether to go on.
pub(crate) trait Watch {
    /// A step begins.
    fn progress(&mut self, progress: &Progress) -> Result<(), Stop>;
    /// A call of the device begins.
    fn go_on(&self) -> Result<(), Stop>;
}

/// Measures everything with `budget` bytes of the device's memory.
///
/// # Errors
/// When the device fails, or `watch` says to stop.
pub(crate) fn measure(rig: &mut dyn Rig, budget: u64, watch: &mut dyn Watch) -> Result<Report, Stop> {
    let began = Instant::now();
    let card = rig.card().clone();
    let steps = plan::steps(&card, budget);
    let guesses: Vec<u64> = steps.iter().map(|step| step.guess_ms()).collect();
    let mut figures = Vec::new();
    let mut bench = Bench::new(rig);
    for (at, step) in steps.iter().enumerate() {
        let (before, after) = guesses.split_at(at);
        watch.progress(&Progress {
            done: at as u64,
            of: steps.len() as u64,
            what: step.title(),
            left_ms: arithmetic::time_left(before.iter().sum(), after.iter().sum(), elapsed_ms(began)),
        })?;
        let figure = bench.perform(*step, watch)?;
        figures.push((*step, figure));
    }
    let mut report = assemble::report(&card, &figures);
    report.budget = budget;
    report.duration_ms = elapsed_ms(began);
    Ok(report)
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
