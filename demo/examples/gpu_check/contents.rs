//! Contents of blocks under random allocations.

use gpumem_alloc::device;
use gpumem_alloc::{Allocator, Buffer, Config, Error as AllocError, Publish, SegmentMode, Stream};
use gpumem_demo::pattern;
use gpumem_text::units::MIB;

use crate::{BUDGET, Bench, Found, ensure};

pub(crate) fn kernels_and_host_agree(bench: &Bench) -> Found {
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

pub(crate) fn damage_is_found(bench: &Bench) -> Found {
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

pub(crate) fn foreign_is_refused(bench: &Bench) -> Found {
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

/// Allocates and frees at random. Every block is filled when it is allocated and checked when it is freed.
pub(crate) fn traffic(bench: &Bench, segments: SegmentMode) -> Found {
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
        // From 1 KiB to 32 MiB, every order of magnitude equally often.
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

pub(crate) fn holes_are_joined(bench: &Bench) -> Found {
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

/// Checks that the rest of a freed block's view returns to the driver while a smaller block lies in the view.
pub(crate) fn the_rest_of_a_view_goes(bench: &Bench) -> Found {
    let before = bench.free()?;
    let allocator = bench.allocator(SegmentMode::Stitched)?;
    let fill = |bytes: u64, seed: u64| -> Result<_, Box<dyn std::error::Error>> {
        let mut buffer = allocator.alloc::<u64>((bytes / 8) as usize, Stream::DEFAULT)?;
        bench.kernels.fill(&mut buffer, bytes, seed)?;
        Ok((buffer, seed))
    };
    let mut blocks = Vec::new();
    for seed in 0..32 {
        blocks.push(fill(48 * MIB, seed)?);
    }
    blocks.retain(|(_, seed)| seed % 2 == 0);
    drop(fill(400 * MIB, 100)?);
    blocks.push(fill(49 * MIB, 101)?);
    let reserved = || allocator.stats().all().reserved_bytes.current;
    let (first, released) = (reserved(), allocator.release_cached()?);
    let held: u64 = blocks.iter().map(|(buffer, _)| buffer.bytes()).sum();
    // Chunks that a block shares with free memory beside it stay. The view had 400 MiB.
    ensure(
        released > 0 && reserved() <= held + 128 * MIB,
        format!("{} of {first} bytes went back while {held} are held", released),
    )?;
    blocks.push(fill(300 * MIB, 102)?);
    let mut words = 0;
    for (buffer, seed) in &blocks {
        let found = bench.kernels.check(buffer, *seed)?;
        ensure(found.intact(), format!("block {seed}: {found:?}"))?;
        words += found.words;
    }
    drop(blocks);
    drop(allocator);
    ensure(bench.free()? == before, "memory is missing afterwards")?;
    Ok(format!("{words} words; {} MiB went back beside them", released / MIB))
}
