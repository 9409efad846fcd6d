//! Contents of blocks on real streams: recorded programs, and streams that end.

use gpumem_alloc::{Allocator, Buffer, Config, Publish, SegmentMode, Stream};
use gpumem_demo::pattern;
use gpumem_demo::trace::Op;
use gpumem_text::units::MIB;

use crate::{Bench, Found, ensure};

const PASSES: u32 = 2;

/// Replays recorded programs at full speed on as many real streams as they had. Every block is filled and checked on its own
/// stream without waiting in between, and no stream may see another one's words.
pub(crate) fn recorded(bench: &Bench, segments: SegmentMode) -> Found {
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
        for pass in 0..PASSES {
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
            let reserved = allocator.stats().all().reserved_bytes.peak;
            let ratio = reserved as f64 / trace.peak_requested as f64;
            ratios.push(match pass {
                0 => format!("{ratio:.3}"),
                _ => format!("({ratio:.3})"),
            });
        }
        drop(allocator);
    }
    // The driver keeps the memory of its streams.
    let left = before.saturating_sub(bench.free()?);
    ensure(left <= 64 * MIB, format!("{left} bytes were not given back"))?;
    Ok(format!(
        "{operations} operations, reserved / requested in the first pass (and all) {}",
        ratios.join(" ")
    ))
}

/// Creates, retires and destroys streams with work still queued while their buffers live on. The buffers keep their contents,
/// no destroyed stream is queried, and others get the memory only when the work is done.
pub(crate) fn streams_end(bench: &Bench, segments: SegmentMode) -> Found {
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
    // The driver keeps the memory of its streams.
    let left = before.saturating_sub(bench.free()?);
    ensure(left <= 64 * MIB, format!("{left} bytes were not given back"))?;
    Ok(format!("{STREAMS} streams, up to {} MiB", reserved / MIB))
}
