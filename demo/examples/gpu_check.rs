//! Checks the allocator, the kernels and the demos on a real GPU: `gpu_check [ORDINAL] [TRACE...]`.
//!
//! Replays the recorded allocations of these files, of two short ones if there are none, with kernels that fill every block and
//! compare it before it is freed.
//!
//! Prints a line a check. Exit code: 0 when all passed, 1 when one failed, 77 when there is no GPU to check on (it then
//! prints SKIPPED and why). Takes up to 3 GiB of the card, for some
//! seconds; for other traces what they want, up to half of what is free.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use gpumem_alloc::device::{self, Device};
use gpumem_alloc::{Allocator, Buffer, Config, Error as AllocError, Publish, SegmentMode, Stream};
use gpumem_demo::trace::{Op, Trace};
use gpumem_demo::{DemoArgs, DeviceChoice, Ended, Fix, Kernels, MIB, pattern, run};

/// What a check found, or why it failed.
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
    ("demo fragmentation, fix release", |b| {
        demo(b, "fragmentation", Fix::Release)
    }),
    ("demo fragmentation, fix remap", |b| {
        demo(b, "fragmentation", Fix::Remap)
    }),
    ("demo fragmentation, fix workspace", |b| {
        demo(b, "fragmentation", Fix::Workspace)
    }),
    ("demo train", |b| demo(b, "train", Fix::default())),
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
                include_bytes!("../tests/data/llm_serving_2000.csv.gz"),
                include_bytes!("../tests/data/multi_stream_2000.csv.gz"),
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

fn kernels_and_host_agree(bench: &Bench) -> Found {
    let allocator = bench.allocator(SegmentMode::Plain)?;
    let words = 3_000_017;
    let mut buffer = allocator.alloc::<u64>(words, Stream::DEFAULT)?;
    let bytes = buffer.bytes();
    bench.kernels.fill(&mut buffer, bytes, 42)?;
    let mut found = vec![0; words];
    buffer.read(&mut found)?;
    let wrong = found
        .iter()
        .zip(0u64..)
        .filter(|(word, index)| **word != pattern(42, *index))
        .count();
    ensure(wrong == 0, format!("{wrong} words differ"))?;
    Ok(format!("{words} words"))
}

fn damage_is_found(bench: &Bench) -> Found {
    let allocator = bench.allocator(SegmentMode::Plain)?;
    let mut buffer = allocator.alloc::<u64>(1 << 20, Stream::DEFAULT)?;
    let bytes = buffer.bytes();
    bench.kernels.fill(&mut buffer, bytes, 7)?;
    ensure(
        bench.kernels.check(&buffer, 7)?.intact(),
        "an intact block was called damaged",
    )?;
    let mut words = vec![0; 1 << 20];
    buffer.read(&mut words)?;
    words[777_777] ^= 1;
    buffer.write(&words)?;
    let checked = bench.kernels.check(&buffer, 7)?;
    ensure(
        (checked.mismatches, checked.first) == (1, Some(777_777)),
        format!("{checked:?}"),
    )?;
    let foreign = bench.kernels.check(&buffer, 8)?;
    ensure(
        foreign.mismatches == 1 << 20,
        format!("another seed's pattern: {foreign:?}"),
    )?;
    Ok("bit 0 of word 777777".into())
}

fn foreign_is_refused(bench: &Bench) -> Found {
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let elsewhere = Allocator::new(device::sim(device::SimConfig::default()), config)?;
    let mut foreign = elsewhere.alloc::<u64>(1 << 20, Stream::DEFAULT)?;
    match bench.kernels.fill(&mut foreign, 1 << 23, 1) {
        Err(error) => Ok(error.to_string()),
        Ok(()) => Err("a kernel was launched on a simulated address".into()),
    }
}

/// Random allocations and frees; every block is filled when it is allocated and checked when it is freed.
fn traffic(bench: &Bench, segments: SegmentMode) -> Found {
    let before = bench.free()?;
    let allocator = bench.allocator(segments)?;
    let mut live: Vec<(Buffer<u64>, u64)> = Vec::new();
    let (mut checked, mut full, mut joined) = (0, 0, 0);
    for step in 0..4000u64 {
        let dice = pattern(99, step);
        if live.len() > 150 || (dice & 3 == 0 && !live.is_empty()) {
            let (buffer, seed) = live.swap_remove((dice >> 8) as usize % live.len());
            let found = bench.kernels.check(&buffer, seed)?;
            ensure(found.intact(), format!("step {step}: {found:?}"))?;
            checked += found.words;
            continue;
        }
        // From 512 bytes to 32 MiB, every order of magnitude as often.
        let words = (64u64 << (dice >> 8 & 15)) + (dice >> 16 & 0x3f);
        match allocator.alloc::<u64>(words as usize * 2, Stream::DEFAULT) {
            Ok(mut buffer) => {
                let bytes = buffer.bytes();
                bench.kernels.fill(&mut buffer, bytes, step)?;
                live.push((buffer, step));
            }
            Err(AllocError::OutOfMemory(_)) => full += 1,
            Err(error) => return Err(error.into()),
        }
        if segments == SegmentMode::Virtual && step % 500 == 499 {
            match allocator.join_holes(64 * MIB, Stream::DEFAULT) {
                Ok(report) => joined += report.chunks_moved,
                Err(AllocError::HolesTooSmall { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    for (buffer, seed) in live.drain(..) {
        let found = bench.kernels.check(&buffer, seed)?;
        ensure(found.intact(), format!("at the end: {found:?}"))?;
        checked += found.words;
    }
    let reserved = allocator.stats().all().reserved_bytes.peak;
    drop(allocator);
    ensure(
        bench.free()? == before,
        format!("{} bytes were not given back", before.abs_diff(bench.free()?)),
    )?;
    Ok(format!(
        "{checked} words, up to {} MiB, {full} refused, {joined} chunks moved",
        reserved / MIB
    ))
}

/// Recorded programs at full speed, on as many real streams as they had: every block is filled on its stream when it is allocated and
/// compared on its stream before it is freed; nothing is waited for in between, and a stream must never see another's words.
fn recorded(bench: &Bench, segments: SegmentMode) -> Found {
    let context = bench.device.cuda_context().ok_or("no CUDA device")?;
    let before = bench.free()?;
    let mut operations = 0;
    let mut ratios = Vec::new();
    for trace in bench.traces()? {
        let streams: Vec<_> = trace
            .streams
            .iter()
            .map(|_| context.new_stream())
            .collect::<Result<_, _>>()?;
        let allocator = Allocator::new(
            bench.device.clone(),
            Config {
                budget: Some(before / 2),
                segments,
                publish: Publish::Off,
                ..Config::default()
            },
        )?;
        let mut held: Vec<Option<(Buffer<u64>, u64)>> = (0..trace.slots).map(|_| None).collect();
        let mut seed = 0;
        for pass in 0..2 {
            for op in &trace.ops {
                operations += 1;
                match *op {
                    Op::Alloc { slot, stream, bytes } => {
                        let stream = Stream::from(&streams[usize::from(stream)]);
                        let mut buffer = allocator.alloc::<u64>(bytes.div_ceil(8) as usize, stream)?;
                        seed += 1;
                        bench.kernels.fill(&mut buffer, u64::MAX, seed)?;
                        held[slot as usize] = Some((buffer, seed));
                    }
                    Op::Free { slot } => {
                        if let Some((buffer, seed)) = held[slot as usize].take() {
                            bench.kernels.queue_check(&buffer, seed)?;
                        }
                    }
                }
            }
            for (buffer, seed) in held.iter_mut().filter_map(Option::take) {
                bench.kernels.queue_check(&buffer, seed)?;
            }
            let found = bench.kernels.verdict()?;
            ensure(found.intact(), format!("pass {pass}: {found:?}"))?;
            if pass == 0 {
                let reserved = allocator.stats().all().reserved_bytes.peak;
                ratios.push(format!("{:.3}", reserved as f64 / trace.peak_requested as f64));
            }
        }
        drop(allocator);
    }
    // The driver keeps what its streams took.
    let left = before.saturating_sub(bench.free()?);
    ensure(left <= 64 * MIB, format!("{left} bytes were not given back"))?;
    Ok(format!(
        "{operations} operations, reserved / requested {}",
        ratios.join(" ")
    ))
}

/// Streams that are made, retired and destroyed with work still queued, while buffers of theirs live on: these keep their contents, nothing
/// is asked of a stream that is gone, and others get its memory only when its work is done.
fn streams_end(bench: &Bench, segments: SegmentMode) -> Found {
    const STREAMS: u64 = 500;
    let context = bench.device.cuda_context().ok_or("no CUDA device")?;
    let before = bench.free()?;
    let allocator = bench.allocator(segments)?;
    let mut outlived: Vec<(Buffer<u64>, u64)> = Vec::new();
    for seed in 0..STREAMS {
        let stream = context.new_stream()?;
        let name = Stream::from(&stream);
        for n in 0..3 {
            let words = 1 + pattern(7, 4 * seed + n) % (8 * MIB / 8);
            let mut buffer = allocator.alloc::<u64>(words as usize, name)?;
            bench.kernels.fill(&mut buffer, u64::MAX, seed)?;
            bench.kernels.queue_check(&buffer, seed)?;
            if n == 0 {
                outlived.push((buffer, seed));
            }
        }
        allocator.retire_stream(name)?;
        drop(stream);
        if outlived.len() > 10 {
            let (buffer, seed) = outlived.remove(0);
            let mut words = vec![0; buffer.len().min(1000)];
            buffer.read_at(0, &mut words)?;
            let intact = (0..).zip(&words).all(|(at, word)| *word == pattern(seed, at));
            ensure(intact, format!("a buffer of stream {seed}"))?;
        }
    }
    let found = bench.kernels.verdict()?;
    ensure(found.intact(), format!("{found:?}"))?;
    let reserved = allocator.stats().all().reserved_bytes.peak;
    drop(outlived);
    drop(allocator);
    // The driver keeps what its streams took.
    let left = before.saturating_sub(bench.free()?);
    ensure(left <= 64 * MIB, format!("{left} bytes were not given back"))?;
    Ok(format!("{STREAMS} streams, up to {} MiB", reserved / MIB))
}

fn holes_are_joined(bench: &Bench) -> Found {
    let allocator = bench.allocator(SegmentMode::Virtual)?;
    let mut blocks = Vec::new();
    for seed in 0..32u64 {
        let mut buffer = allocator.alloc::<u64>((64 * MIB / 8) as usize, Stream::DEFAULT)?;
        bench.kernels.fill(&mut buffer, 64 * MIB, seed)?;
        blocks.push((buffer, seed));
    }
    blocks.retain(|(_, seed)| seed % 2 == 0);
    let report = allocator.join_holes(1024 * MIB, Stream::DEFAULT)?;
    ensure(report.contiguous >= 1024 * MIB, format!("{report:?}"))?;
    let mut large = allocator.alloc::<u64>((1024 * MIB / 8) as usize, Stream::DEFAULT)?;
    bench.kernels.fill(&mut large, 1024 * MIB, 1000)?;
    let mut words = 0;
    for (buffer, seed) in blocks.iter().map(|(b, s)| (b, *s)).chain([(&large, 1000)]) {
        let found = bench.kernels.check(buffer, seed)?;
        ensure(found.intact(), format!("block {seed}: {found:?}"))?;
        words += found.words;
    }
    ensure(
        allocator.stats().all().reserved_bytes.peak == BUDGET,
        "joining took new memory",
    )?;
    Ok(format!(
        "{words} words; {} chunks in {:.1} ms",
        report.chunks_moved,
        report.duration.as_secs_f64() * 1e3
    ))
}

fn driver_agrees(bench: &Bench, segments: SegmentMode) -> Found {
    let before = bench.free()?;
    let allocator = bench.allocator(segments)?;
    let blocks = [3, 17, 64, 128, 300].map(|mib| allocator.alloc::<u8>((mib * MIB) as usize, Stream::DEFAULT));
    let reserved = allocator.stats().all().reserved_bytes.current;
    let taken = before.saturating_sub(bench.free()?);
    ensure(blocks.iter().all(Result::is_ok), "a block was refused")?;
    ensure(
        taken == reserved,
        format!("reserved {reserved}, but the driver has {taken} less"),
    )?;
    drop(blocks);
    allocator.release_cached()?;
    let left = before.saturating_sub(bench.free()?);
    ensure(left == 0, format!("{left} bytes are missing after the release"))?;
    Ok(format!("{} MiB", reserved / MIB))
}

fn budget_is_kept(bench: &Bench) -> Found {
    let allocator = bench.allocator(SegmentMode::Plain)?;
    let _half = allocator.alloc::<u8>((BUDGET / 2) as usize, Stream::DEFAULT)?;
    match allocator.alloc::<u8>((BUDGET / 2 + MIB) as usize, Stream::DEFAULT) {
        Err(AllocError::OutOfMemory(report)) => Ok(report.to_string()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("more than the budget was handed out".into()),
    }
}

fn demo(bench: &Bench, name: &str, fix: Fix) -> Found {
    let before = bench.free()?;
    let args = DemoArgs {
        demo: name.into(),
        device: DeviceChoice::Cuda(bench.ordinal),
        fix,
        steps: 10,
        pace: Some(std::time::Duration::ZERO),
        ..DemoArgs::default()
    };
    let Ended::Done(outcome) = run(&args, &mut std::io::sink(), None)? else {
        return Err("it ended early".into());
    };
    ensure(outcome.as_promised(), format!("{outcome:?}"))?;
    ensure(bench.free()? == before, "memory is missing afterwards")?;
    Ok(format!(
        "{} words checked in {} steps",
        outcome.words_checked, outcome.steps_done
    ))
}
