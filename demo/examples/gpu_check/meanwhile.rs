//! Threads that use their memory while another one releases and moves memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gpumem_alloc::device::Device;
use gpumem_alloc::{Allocator, Buffer, Error as AllocError, SegmentMode, Stream};
use gpumem_demo::{Kernels, pattern};
use gpumem_text::units::MIB;

use crate::{BUDGET, Bench, Found, ensure};

const THREADS: u64 = 3;
const STEPS: u64 = 1500;

/// Lets three threads fill, check and free blocks, each on its own stream, while a fourth keeps releasing, compacting and
/// joining.
pub(crate) fn memory_goes_meanwhile(bench: &Bench, segments: SegmentMode) -> Found {
    let before = bench.free()?;
    let allocator = bench.allocator(segments)?;
    let done = AtomicBool::new(false);
    let (words, (rounds, longest)) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|me| {
                let (allocator, device) = (&allocator, &bench.device);
                scope.spawn(move || work(device, allocator, me).map_err(|error| error.to_string()))
            })
            .collect();
        let tidy = scope.spawn(|| tidy(&allocator, &done));
        let mut words: Result<u64, String> = Ok(0);
        for worker in workers {
            let found = worker.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()));
            words = words.and_then(|words| Ok(words + found?));
        }
        done.store(true, Ordering::Relaxed);
        let tidied = tidy.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()));
        Ok::<_, String>((words?, tidied?))
    })?;
    let reserved = allocator.stats().all().reserved_bytes.peak;
    drop(allocator);
    // The driver keeps the memory of its streams.
    let left = before.saturating_sub(bench.free()?);
    ensure(left <= 64 * MIB, format!("{left} bytes were not given back"))?;
    Ok(format!(
        "{words} words, up to {} MiB; {rounds} rounds of tidying up, the longest {:.1} ms",
        reserved / MIB,
        longest.as_secs_f64() * 1e3
    ))
}

/// Returns the number of words compared.
fn work(device: &Device, allocator: &Allocator, me: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let context = device.cuda_context().ok_or("no CUDA device")?;
    let (kernels, stream) = (Kernels::new(context)?, context.new_stream()?);
    let name = Stream::from(&stream);
    let mut live: Vec<(Buffer<u64>, u64)> = Vec::new();
    let mut words = 0;
    for step in 0..STEPS {
        let dice = pattern(me, step);
        if live.len() > 20 || (dice & 3 == 0 && !live.is_empty()) {
            let (buffer, seed) = live.swap_remove((dice >> 8) as usize % live.len());
            kernels.queue_check(&buffer, seed)?;
            words += buffer.len() as u64;
            continue;
        }
        let len = (64u64 << (dice >> 8 & 15)) + (dice >> 16 & 0x3f);
        let mut buffer = match allocator.alloc::<u64>(len as usize, name) {
            Ok(buffer) => buffer,
            Err(AllocError::OutOfMemory(report)) => return Err(format!("{BUDGET} are too few: {report}").into()),
            Err(error) => return Err(error.into()),
        };
        kernels.fill(&mut buffer, u64::MAX, step)?;
        live.push((buffer, step));
    }
    for (buffer, seed) in &live {
        kernels.queue_check(buffer, *seed)?;
    }
    let found = kernels.verdict()?;
    ensure(found.intact(), format!("thread {me}: {found:?}"))?;
    drop(live);
    allocator.retire_stream(name)?;
    Ok(words)
}

/// Releases, compacts and joins until `done`; returns the number of rounds and the longest one.
fn tidy(allocator: &Allocator, done: &AtomicBool) -> Result<(u64, Duration), String> {
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let outcome = match rounds % 3 {
            0 => allocator.release_cached().map(drop),
            1 => allocator.compact().map(drop),
            _ => match allocator.join_holes(32 * MIB, Stream::DEFAULT) {
                Err(AllocError::HolesTooSmall { .. } | AllocError::NotVirtual) => Ok(()),
                joined => joined.map(drop),
            },
        };
        outcome.map_err(|error| error.to_string())?;
        longest = longest.max(began.elapsed());
        rounds += 1;
    }
    Ok((rounds, longest))
}
