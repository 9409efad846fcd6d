//! `bench claims`: what courses claim about GPU memory, checked on a machine.
//!
//! Each claim is a small benchmark with a verdict, which is a pure function of its figures. A claim is added in its own file here
//! and as a row of `CLAIMS`. What a claim needs of a GPU is a method of `rig::claims`.
//!
//! The card is calibrated before and after each claim by the time of the same kernel. Where the two differ by more than 20 %, or the
//! samples of a figure differ too much from each other, others keep the card busy and there is no verdict.

mod bench;
mod cached_cost;
mod checkpointing;
mod coalescing;
mod empty_cache;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fake_rig;
mod figure;
mod fragmentation;
mod free_waits;
mod hbm_pcie;
mod in_place;
mod latency;
mod malloc_async;
mod malloc_cost;
mod malloc_threads;
mod managed;
mod naive_loop;
mod perform;
mod pinned;
mod report;
mod run;
mod save;
mod soa_aos;
mod tensors;
#[cfg(test)]
mod tests;
mod text;
mod three_streams;
mod training_state;
mod verdict;

use super::error::Stop;
use bench::{Bench, Found};

pub use figure::Figure;
pub use report::{Place, Report, Row, SCHEMA, Verdict};
pub(super) use run::{NAME, run};

/// A claim and its benchmark.
#[derive(Debug)]
struct Claim {
    /// Its name on the command line, at most 16 characters.
    name: &'static str,
    /// The claim in the words of courses.
    words: &'static str,
    /// Where it comes from.
    source: &'static str,
    /// How it is measured, in a sentence or two.
    method: &'static str,
    needs: Needs,
    /// How long it takes on a large card, in milliseconds.
    guess_ms: u64,
    measure: fn(&mut Bench<'_>) -> Result<Found, Stop>,
}

/// What a claim's benchmark needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// A GPU.
    Gpu,
    /// gpumem-alloc on a GPU or on the simulated device.
    Allocator,
    /// The simulated device, whether there is a GPU or not.
    Simulation,
}

/// Every claim, in the order of the table.
static CLAIMS: [Claim; 27] = [
    malloc_cost::MALLOC_COST,
    cached_cost::CACHED_COST,
    malloc_threads::MALLOC_THREADS,
    free_waits::FREE_WAITS,
    malloc_async::MALLOC_ASYNC,
    naive_loop::NAIVE_LOOP,
    empty_cache::EMPTY_CACHE,
    pinned::PINNED_COPIES,
    pinned::PAGEABLE_ASYNC,
    three_streams::THREE_STREAMS,
    coalescing::COALESCING,
    soa_aos::SOA_AOS,
    managed::FIRST_TOUCH,
    managed::PREFETCH,
    managed::MIGRATION,
    latency::LATENCY_REGISTER,
    latency::LATENCY_SHARED,
    latency::LATENCY_L2,
    latency::LATENCY_HBM,
    hbm_pcie::HBM_PCIE,
    in_place::IN_PLACE,
    checkpointing::CHECKPOINTING,
    training_state::ADAM,
    training_state::MIXED_PRECISION,
    save::SAVE,
    fragmentation::MAX_SPLIT,
    fragmentation::EXPANDABLE,
];

/// Returns the names of all claims, for the command line.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CLAIMS.iter().map(|claim| claim.name)
}
