//! Checks the allocator, the kernels and the demos on a real GPU: `gpu_check [ORDINAL] [TRACE...]`.
//!
//! Replays the recorded allocations of the given files, or of two short ones. Kernels fill every block and check it before it
//! is freed.
//!
//! Prints one line per check. Exit code: 0 when all passed, 1 when one failed, 77 when there is no GPU to check on (it then
//! prints SKIPPED and why). Takes up to 3 GiB of the GPU's memory for some seconds. Other traces take what they need, up to
//! half of the free memory.

mod budgets;
mod captures;
mod contents;
mod meanwhile;
mod recorded;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use gpumem_alloc::device::{self, Device};
use gpumem_alloc::{Allocator, Config, Error as AllocError, Publish, SegmentMode};
use gpumem_demo::trace::Trace;
use gpumem_demo::{Chosen, DeviceChoice, Ended, Fix, Fragmentation, Kernels, RunArgs, Train, run};
use gpumem_text::units::MIB;

use budgets::{budget_changes, budget_is_kept, budget_of_a_pool_changes, driver_agrees, pools_keep_their_budgets};
use captures::captures_go_on;
use contents::{
    damage_is_found, foreign_is_refused, holes_are_joined, kernels_and_host_agree, the_rest_of_a_view_goes, traffic,
};
use meanwhile::memory_goes_meanwhile;
use recorded::{recorded, streams_end};

/// The findings of a check, or why it failed.
type Found = Result<String, Box<dyn Error>>;

const BUDGET: u64 = 2048 * MIB;

fn main() -> ExitCode {
    let ordinal = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(0);
    let device = match device::cuda(ordinal) {
        Ok(device) => device,
        Err(error) => {
            println!("SKIPPED: {error}");
            return ExitCode::from(77);
        }
    };
    let Some(Ok(kernels)) = device.cuda_context().map(Kernels::new) else {
        println!("FAIL the kernels do not load");
        return ExitCode::FAILURE;
    };
    println!("{}", device.info().name);
    let bench = Bench {
        device,
        kernels,
        ordinal,
        traces: std::env::args_os().skip(2).map(PathBuf::from).collect(),
    };
    let mut failed = 0;
    for (name, check) in CHECKS {
        let began = Instant::now();
        let (verdict, found) = match check(&bench) {
            Ok(found) => ("PASS", found),
            Err(error) => ("FAIL", error.to_string()),
        };
        failed += usize::from(verdict == "FAIL");
        println!("{verdict} {name:<44} {:>7.2} s  {found}", began.elapsed().as_secs_f64());
    }
    println!("{} of {} checks passed", CHECKS.len() - failed, CHECKS.len());
    ExitCode::from(u8::from(failed > 0))
}

struct Bench {
    device: Device,
    kernels: Kernels,
    ordinal: u32,
    traces: Vec<PathBuf>,
}

type Check = fn(&Bench) -> Found;
const CHECKS: &[(&str, Check)] = &[
    ("kernels write what the host computes", kernels_and_host_agree),
    ("the check finds one damaged word", damage_is_found),
    ("a buffer of another device is refused", foreign_is_refused),
    ("plain segments: contents survive traffic", |b| {
        traffic(b, SegmentMode::Plain)
    }),
    ("virtual segments: contents survive traffic", |b| {
        traffic(b, SegmentMode::Virtual)
    }),
    ("stitched: contents survive traffic", |b| {
        traffic(b, SegmentMode::Stitched)
    }),
    ("plain: contents survive recorded programs", |b| {
        recorded(b, SegmentMode::Plain)
    }),
    ("virtual: contents survive recorded programs", |b| {
        recorded(b, SegmentMode::Virtual)
    }),
    ("stitched: contents survive recorded programs", |b| {
        recorded(b, SegmentMode::Stitched)
    }),
    ("plain: streams end before their buffers", |b| {
        streams_end(b, SegmentMode::Plain)
    }),
    ("stitched: streams end before their buffers", |b| {
        streams_end(b, SegmentMode::Stitched)
    }),
    ("joined holes: live blocks keep their contents", holes_are_joined),
    (
        "stitched: the rest of a block's view goes back",
        the_rest_of_a_view_goes,
    ),
    ("plain: the driver counts what is reserved", |b| {
        driver_agrees(b, SegmentMode::Plain)
    }),
    ("virtual: the driver counts what is reserved", |b| {
        driver_agrees(b, SegmentMode::Virtual)
    }),
    ("stitched: the driver counts what is reserved", |b| {
        driver_agrees(b, SegmentMode::Stitched)
    }),
    ("a budget is kept, and the card is not asked", budget_is_kept),
    ("plain: a budget changes", |b| budget_changes(b, SegmentMode::Plain)),
    ("stitched: a budget changes", |b| {
        budget_changes(b, SegmentMode::Stitched)
    }),
    ("pools keep their budgets", pools_keep_their_budgets),
    ("plain: the budget of a pool changes", |b| {
        budget_of_a_pool_changes(b, SegmentMode::Plain)
    }),
    ("stitched: the budget of a pool changes", |b| {
        budget_of_a_pool_changes(b, SegmentMode::Stitched)
    }),
    ("plain: captures go on", |b| captures_go_on(b, SegmentMode::Plain)),
    ("stitched: captures go on", |b| captures_go_on(b, SegmentMode::Stitched)),
    ("plain: memory goes while others use theirs", |b| {
        memory_goes_meanwhile(b, SegmentMode::Plain)
    }),
    ("virtual: memory goes while others use theirs", |b| {
        memory_goes_meanwhile(b, SegmentMode::Virtual)
    }),
    ("stitched: memory goes while others use theirs", |b| {
        memory_goes_meanwhile(b, SegmentMode::Stitched)
    }),
    ("demo fragmentation, fix release", |b| {
        demo(b, Fragmentation { fix: Fix::Release })
    }),
    ("demo fragmentation, fix remap", |b| {
        demo(b, Fragmentation { fix: Fix::Remap })
    }),
    ("demo fragmentation, fix workspace", |b| {
        demo(b, Fragmentation { fix: Fix::Workspace })
    }),
    ("demo train", |b| {
        demo(
            b,
            Train {
                steps: 10,
                ..Train::default()
            },
        )
    }),
];

impl Bench {
    fn allocator(&self, segments: SegmentMode) -> Result<Allocator, AllocError> {
        let config = Config {
            budget: Some(BUDGET),
            segments,
            publish: Publish::Off,
            ..Config::default()
        };
        Allocator::new(self.device.clone(), config)
    }

    fn traces(&self) -> Result<Vec<Trace>, Box<dyn Error>> {
        if self.traces.is_empty() {
            let short: [&[u8]; 2] = [
                include_bytes!("../../tests/data/llm_serving_2000.csv.gz"),
                include_bytes!("../../tests/data/multi_stream_2000.csv.gz"),
            ];
            return Ok(short.into_iter().map(Trace::read).collect::<Result<_, _>>()?);
        }
        Ok(self
            .traces
            .iter()
            .map(|path| Trace::open(path))
            .collect::<Result<_, _>>()?)
    }

    fn free(&self) -> Result<u64, Box<dyn Error>> {
        Ok(self.device.memory()?.free)
    }
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

fn demo(bench: &Bench, demo: impl Into<Chosen>) -> Found {
    let before = bench.free()?;
    let args = RunArgs {
        device: Some(DeviceChoice::Cuda(bench.ordinal)),
        pace: Some(std::time::Duration::ZERO),
        ..RunArgs::default()
    };
    let Ended::Done(outcome) = run(demo, &args, &mut std::io::sink(), None)? else {
        return Err("it ended early".into());
    };
    ensure(outcome.as_promised(), format!("{outcome:?}"))?;
    ensure(bench.free()? == before, "memory is missing afterwards")?;
    Ok(format!(
        "{} words checked in {} steps",
        outcome.words_checked, outcome.steps_done
    ))
}
