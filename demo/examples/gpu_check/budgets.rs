//! The memory taken from the GPU, and its limits.

use gpumem_alloc::{
    Allocator, Config, Error as AllocError, OomReport, Overflow, PoolConfig, Publish, SegmentMode, Stream,
};
use gpumem_text::units::MIB;

use crate::{BUDGET, Bench, Found, ensure};

pub(crate) fn driver_agrees(bench: &Bench, segments: SegmentMode) -> Found {
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

pub(crate) fn budget_is_kept(bench: &Bench) -> Found {
    let allocator = bench.allocator(SegmentMode::Plain)?;
    let _half = allocator.alloc::<u8>((BUDGET / 2) as usize, Stream::DEFAULT)?;
    match allocator.alloc::<u8>((BUDGET / 2 + MIB) as usize, Stream::DEFAULT) {
        Err(AllocError::OutOfMemory(report)) => Ok(report.to_string()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("more than the budget was handed out".into()),
    }
}

/// Returns the report of a request that must be refused.
fn refused<T>(result: Result<T, AllocError>) -> Result<OomReport, Box<dyn std::error::Error>> {
    match result {
        Err(AllocError::OutOfMemory(report)) => Ok(*report),
        Err(error) => Err(error.into()),
        Ok(_) => Err("more than the budget was handed out".into()),
    }
}

/// Checks that a smaller budget returns the cache to the GPU and refuses requests beyond it, and that removing it does neither.
pub(crate) fn budget_changes(bench: &Bench, segments: SegmentMode) -> Found {
    let before = bench.free()?;
    let allocator = bench.allocator(segments)?;
    let get = |mib: u64| allocator.alloc::<u64>((mib * MIB / 8) as usize, Stream::DEFAULT);
    let mut held = get(300)?;
    bench.kernels.fill(&mut held, 300 * MIB, 5)?;
    drop(get(900)?);
    allocator.set_budget(Some(512 * MIB))?;
    let reserved = allocator.stats().all().reserved_bytes.current;
    ensure(reserved <= 512 * MIB, format!("{} MiB are reserved", reserved / MIB))?;
    let taken = before.saturating_sub(bench.free()?);
    ensure(
        taken == reserved,
        format!("reserved {reserved}, but the driver has {taken} less"),
    )?;
    let report = refused(get(300))?;
    let room = report.device_free.is_some_and(|free| free > 300 * MIB);
    ensure(room && report.budget == Some(512 * MIB), format!("{report:?}"))?;
    allocator.set_memory_fraction(0.5)?;
    let half = allocator.budget();
    ensure(
        half == Some(bench.device.info().total / 2),
        format!("half of the card: {half:?}"),
    )?;
    drop(get(900)?);
    let found = bench.kernels.check(&held, 5)?;
    ensure(found.intact(), format!("{found:?}"))?;
    drop((held, allocator));
    let left = before.saturating_sub(bench.free()?);
    ensure(left == 0, format!("{left} bytes were not given back"))?;
    Ok(report.to_string())
}

/// Checks that a pool keeps its budget: requests beyond it are refused or overflow, as configured, and a pool of higher
/// priority gets the caches of the others.
pub(crate) fn pools_keep_their_budgets(bench: &Bench) -> Found {
    let before = bench.free()?;
    let config = Config {
        budget: Some(400 * MIB),
        publish: Publish::Off,
        ..Config::default()
    };
    let allocator = Allocator::new(bench.device.clone(), config)?;
    let pool = |name: &str, budget, overflow, priority| {
        let config = PoolConfig {
            budget,
            overflow,
            priority,
        };
        allocator.pool(name, config)
    };
    let words = |mib: u64| (mib * MIB / 8) as usize;
    let strict = pool("strict", Some(100 * MIB), Overflow::Refuse, 0)?;
    let soft = pool("soft", Some(100 * MIB), Overflow::Shared, 0)?;
    let mut held = Vec::new();
    for pool in [&strict, &soft] {
        held.push(pool.alloc::<u64>(words(80), Stream::DEFAULT)?);
    }
    let report = refused(strict.alloc::<u64>(words(40), Stream::DEFAULT))?;
    let named = report.pool.as_ref().is_some_and(|pool| pool.name == "strict");
    let room = report.device_free.is_some_and(|free| free > 1024 * MIB);
    ensure(named && room, format!("{report:?}"))?;
    held.push(soft.alloc::<u64>(words(40), Stream::DEFAULT)?);
    let figures = soft.stats();
    ensure(
        (figures.num_overflows, figures.reserved_bytes.current) == (1, 80 * MIB),
        format!("{figures:?}"),
    )?;
    for (buffer, seed) in held.iter_mut().zip(0..) {
        let bytes = buffer.bytes();
        bench.kernels.fill(buffer, bytes, seed)?;
    }
    // 200 of 400 MiB are held. One pool gets the other's cache when it requests the rest.
    let low = pool("low", None, Overflow::Refuse, -1)?;
    drop(low.alloc::<u64>(words(150), Stream::DEFAULT)?);
    let high = pool("high", None, Overflow::Refuse, 1)?;
    let last = high.alloc::<u64>(words(150), Stream::DEFAULT)?;
    ensure(
        low.stats().reserved_bytes.current == 0,
        "the less important pool kept its cache",
    )?;
    for (buffer, seed) in held.iter().zip(0..) {
        let found = bench.kernels.check(buffer, seed)?;
        ensure(found.intact(), format!("{found:?}"))?;
    }
    drop((held, last));
    drop((strict, soft, low, high));
    // Queued work may use their memory until the device has been synchronized.
    allocator.release_cached()?;
    let reserved = allocator.stats().all().reserved_bytes.current;
    ensure(
        reserved < 80 * MIB,
        format!("{} MiB of dropped pools stayed", reserved / MIB),
    )?;
    drop(allocator);
    let left = before.saturating_sub(bench.free()?);
    ensure(left == 0, format!("{left} bytes were not given back"))?;
    Ok(report.to_string())
}

/// Checks that a smaller budget of a pool returns the memory beyond it to the GPU, except for blocks, and refuses requests.
pub(crate) fn budget_of_a_pool_changes(bench: &Bench, segments: SegmentMode) -> Found {
    let before = bench.free()?;
    let allocator = bench.allocator(segments)?;
    let config = PoolConfig {
        budget: Some(1024 * MIB),
        overflow: Overflow::Refuse,
        priority: 0,
    };
    let pool = allocator.pool("tenant", config)?;
    let get = |mib: u64| pool.alloc::<u64>((mib * MIB / 8) as usize, Stream::DEFAULT);
    let mut held = get(300)?;
    bench.kernels.fill(&mut held, 300 * MIB, 7)?;
    drop(get(600)?);
    pool.set_budget(Some(400 * MIB))?;
    let reserved = pool.stats().reserved_bytes.current;
    let taken = before.saturating_sub(bench.free()?);
    ensure(
        (300 * MIB..=400 * MIB).contains(&reserved) && taken == allocator.stats().all().reserved_bytes.current,
        format!("the pool has {reserved}, and the driver {taken} less"),
    )?;
    let report = refused(get(200))?;
    let named = report.pool.as_ref().is_some_and(|pool| pool.name == "tenant");
    let room = report.device_free.is_some_and(|free| free > 1024 * MIB);
    ensure(named && room, format!("{report:?}"))?;
    pool.set_budget(None)?;
    drop(get(600)?);
    let found = bench.kernels.check(&held, 7)?;
    ensure(found.intact(), format!("{found:?}"))?;
    drop((held, pool, allocator));
    let left = before.saturating_sub(bench.free()?);
    ensure(left == 0, format!("{left} bytes were not given back"))?;
    Ok(report.to_string())
}
