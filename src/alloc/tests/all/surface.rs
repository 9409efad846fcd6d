//! The public surface on the simulated device.

use gpumem_alloc::device::{self, Call, DeviceKind, SimConfig};
use gpumem_alloc::{Allocator, Config, Divisions, Error, Help, Publish, SegmentMode, Stream};

const MIB: usize = 1 << 20;

fn allocator(config: Config) -> Allocator {
    Allocator::new(
        device::sim(SimConfig::default()),
        Config {
            publish: Publish::Off,
            ..config
        },
    )
    .unwrap()
}

fn virtual_mode() -> Config {
    Config {
        segments: SegmentMode::Virtual,
        ..Config::default()
    }
}

#[test]
fn a_buffer_comes_from_the_cache_and_goes_back() {
    let alloc = allocator(Config {
        segments: SegmentMode::Plain,
        ..Config::default()
    });
    let first = alloc.alloc::<f32>(1000, Stream::DEFAULT).unwrap();
    assert_eq!(
        (first.len(), first.bytes(), first.allocated_bytes()),
        (1000, 4000, 4096)
    );
    let addr = first.device_ptr();
    drop(first);
    let again = alloc.alloc::<f32>(1000, Stream::DEFAULT).unwrap();
    assert_eq!(again.device_ptr(), addr);
    assert_eq!(alloc.device().as_sim().unwrap().calls(Call::Alloc), 1);
    let all = alloc.stats().all();
    assert_eq!((all.requested_bytes.current, all.allocated_bytes.current), (4000, 4096));
    assert_eq!(all.reserved_bytes.current, 2 << 20);
}

#[test]
fn the_last_buffer_keeps_the_allocator_alive_and_nothing_leaks() {
    let device = device::sim(SimConfig::default());
    let sim = device.as_sim().unwrap().clone();
    let alloc = Allocator::new(
        device,
        Config {
            publish: Publish::Off,
            ..virtual_mode()
        },
    )
    .unwrap();
    let buffer = alloc.alloc::<u8>(100 * MIB, Stream(1)).unwrap();
    drop(alloc);
    assert!(sim.live().bytes >= 100 << 20);
    drop(buffer);
    assert_eq!(sim.live(), device::Live::default());
    assert_eq!(sim.violations(), Vec::<String>::new());
}

/// The last of everything may go on any thread: the allocator ends there, and gives all back.
#[test]
fn buffers_may_be_dropped_on_other_threads_after_the_allocator() {
    for round in 0..50 {
        let device = device::sim(SimConfig::default());
        let sim = device.as_sim().unwrap().clone();
        let config = Config {
            publish: Publish::Off,
            ..Config::default()
        };
        let alloc = Allocator::new(device, config).unwrap();
        std::thread::scope(|scope| {
            for i in 0..4 {
                let buffer = alloc
                    .alloc::<u8>(if i == round % 4 { 0 } else { 1000 * i }, Stream::DEFAULT)
                    .unwrap();
                let again = buffer.allocator().unwrap();
                scope.spawn(move || {
                    let other = again.alloc::<u8>(512, Stream::DEFAULT).unwrap();
                    drop(again);
                    drop(buffer);
                    drop(other);
                });
            }
            drop(alloc);
        });
        assert_eq!(sim.live(), device::Live::default());
    }
}

/// Also where a request that is not empty would be served at once.
#[test]
fn an_empty_buffer_takes_no_memory_where_some_is_free() {
    for segments in SegmentMode::ALL {
        for divisions in [1, 4] {
            let alloc = allocator(Config {
                segments,
                roundup_power2_divisions: Divisions::all(divisions).unwrap(),
                ..Config::default()
            });
            for bytes in [4096, 30 * MIB] {
                drop(alloc.alloc::<u8>(bytes, Stream::DEFAULT).unwrap());
            }
            let before = alloc.stats();
            let empty = alloc.alloc::<u8>(0, Stream::DEFAULT).unwrap();
            assert_eq!((empty.device_ptr(), empty.allocated_bytes()), (0, 0), "{segments:?}");
            assert_eq!(alloc.stats(), before);
            drop(empty);
            assert_eq!(alloc.stats(), before);
        }
    }
}

#[test]
fn zero_and_huge_sizes_are_defined() {
    let alloc = allocator(Config::default());
    let mut empty = alloc.alloc::<f64>(0, Stream::DEFAULT).unwrap();
    assert_eq!((empty.device_ptr(), empty.len()), (0, 0));
    empty.write(&[]).unwrap();
    empty.record_stream(Stream(7)).unwrap();
    assert_eq!(alloc.alloc_raw(0, Stream::DEFAULT).unwrap(), 0);
    alloc.free_raw(0).unwrap();
    alloc.record_stream_raw(0, Stream(7)).unwrap();
    assert!(matches!(
        alloc.alloc::<u64>(usize::MAX, Stream::DEFAULT),
        Err(Error::TooLarge { requested: None })
    ));
    assert!(matches!(
        alloc.alloc::<u8>(usize::MAX, Stream::DEFAULT),
        Err(Error::TooLarge { .. })
    ));
    assert!(matches!(
        alloc.alloc::<u8>(1 << 46, Stream::DEFAULT),
        Err(Error::OutOfMemory(_))
    ));
}

/// "As much as there can be" is what a test of a program would say of a simulated device.
#[test]
fn a_simulated_device_may_be_as_large_as_can_be() {
    for segments in SegmentMode::ALL {
        let huge = SimConfig {
            total: u64::MAX,
            ..SimConfig::default()
        };
        let config = Config {
            segments,
            publish: Publish::Off,
            ..Config::default()
        };
        let alloc = Allocator::new(device::sim(huge), config).unwrap();
        assert_eq!(alloc.device().info().kind, DeviceKind::Simulated);
        let mut held = Vec::new();
        for bytes in [1, 5000, 3 * MIB, 60 * MIB, 200 * MIB] {
            held.push(alloc.alloc::<u8>(bytes, Stream(1)).unwrap());
        }
        held.truncate(3);
        held.push(alloc.alloc(220 * MIB, Stream(2)).unwrap());
        assert!(held.iter().all(|buffer| buffer.device_ptr().is_multiple_of(256)));
        alloc.compact().unwrap();
        alloc.release_cached().unwrap();
    }
}

#[test]
fn raw_pointers_that_are_not_ours_are_errors() {
    let alloc = allocator(Config::default());
    let other = allocator(Config::default());
    let addr = alloc.alloc_raw(4096, Stream::DEFAULT).unwrap();
    let buffer = alloc.alloc::<u8>(4096, Stream::DEFAULT).unwrap();
    for foreign in [addr + 512, buffer.device_ptr(), 0xdead_0000, u64::MAX] {
        assert!(matches!(alloc.free_raw(foreign), Err(Error::UnknownPointer { .. })));
        assert!(alloc.record_stream_raw(foreign, Stream(1)).is_err());
    }
    assert!(matches!(other.free_raw(addr), Err(Error::UnknownPointer { .. })));
    assert!(matches!(
        alloc.free_raw_on(addr, 3),
        Err(Error::WrongDevice { expected: 0, given: 3 })
    ));
    alloc.free_raw_on(addr, 0).unwrap();
    assert!(
        matches!(alloc.free_raw(addr), Err(Error::UnknownPointer { .. })),
        "double free"
    );
    assert_eq!(alloc.stats().all().allocation.current, 1);
}

#[test]
fn contents_come_back_and_lengths_are_checked() {
    let alloc = allocator(Config::default());
    let mut buffer = alloc.alloc::<u32>(1000, Stream::DEFAULT).unwrap();
    let values: Vec<u32> = (0..1000).collect();
    buffer.write(&values).unwrap();
    let mut back = vec![0; 1000];
    buffer.read(&mut back).unwrap();
    assert_eq!(back, values);
    buffer.fill_words(7).unwrap();
    buffer.read(&mut back).unwrap();
    assert!(back.iter().all(|v| *v == 7));
    assert!(matches!(
        buffer.read(&mut back[..1]),
        Err(Error::LengthMismatch { host: 1, buffer: 1000 })
    ));
    assert!(buffer.write(&values[1..]).is_err());
}

#[test]
fn parts_are_copied_and_parts_outside_are_errors() {
    let alloc = allocator(Config::default());
    let mut buffer = alloc.alloc::<[u16; 3]>(1000, Stream::DEFAULT).unwrap();
    buffer.fill_words(0).unwrap();
    buffer.write_at(998, &[[1, 2, 3], [4, 5, 6]]).unwrap();
    let mut back = [[9; 3]; 3];
    buffer.read_at(997, &mut back).unwrap();
    assert_eq!(back, [[0; 3], [1, 2, 3], [4, 5, 6]]);
    for (offset, len) in [(999, 2), (1001, 0), (usize::MAX, 2)] {
        let refused = buffer.write_at(offset, &back[..len]).unwrap_err();
        assert!(matches!(refused, Error::OutOfBounds { buffer: 1000, .. }), "{refused}");
        assert!(buffer.read_at(offset, &mut back[..len]).is_err());
    }
    buffer.write_at(1000, &[]).unwrap();
}

/// The demo in small: every other block is freed, a request larger than any hole fails, the holes are joined.
#[test]
fn holes_are_joined_without_touching_live_blocks() {
    let config = Config {
        budget: Some(134 << 20),
        release_on_oom: false,
        ..virtual_mode()
    };
    let alloc = allocator(config);
    let sim = alloc.device().as_sim().unwrap().clone();
    let sizes = [10, 20, 6, 30, 8, 16, 40, 4];
    let mut blocks: Vec<_> = sizes
        .iter()
        .map(|mib| Some(alloc.alloc::<u32>(mib * MIB / 4, Stream::DEFAULT).unwrap()))
        .collect();
    for (i, block) in blocks.iter_mut().enumerate() {
        block.as_mut().unwrap().fill_words(0x1000 + i as u32).unwrap();
    }
    for block in blocks.iter_mut().step_by(2) {
        *block = None;
    }
    let wanted = 46 * MIB;
    let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(wanted, Stream::DEFAULT) else {
        panic!("it must not fit")
    };
    assert!(
        report.largest_free < wanted as u64 && report.total_free > wanted as u64,
        "{report}"
    );
    assert!(
        report.helps.iter().any(|help| matches!(help, Help::JoinHoles { .. })),
        "{report}"
    );
    let live_before: Vec<u64> = blocks.iter().flatten().map(|b| b.device_ptr()).collect();
    let reserved = alloc.stats().all().reserved_bytes.current;
    let joined = alloc.join_holes(wanted as u64, Stream::DEFAULT).unwrap();
    assert!(joined.contiguous >= wanted as u64 && joined.chunks_moved > 0);
    let large = alloc.alloc::<u8>(wanted, Stream::DEFAULT).unwrap();
    assert_eq!(alloc.stats().all().reserved_bytes.current, reserved, "no new memory");
    assert_eq!(
        blocks.iter().flatten().map(|b| b.device_ptr()).collect::<Vec<_>>(),
        live_before
    );
    for (i, block) in blocks.iter().enumerate() {
        let Some(block) = block else { continue };
        let mut words = vec![0; block.len()];
        block.read(&mut words).unwrap();
        assert!(
            words.iter().all(|word| *word == 0x1000 + i as u32),
            "block {i} kept its contents"
        );
    }
    drop((large, blocks));
    assert_eq!(sim.violations(), Vec::<String>::new());
}

#[test]
fn the_budget_changes_at_run_time() {
    for segments in SegmentMode::ALL {
        let alloc = allocator(Config {
            segments,
            ..Config::default()
        });
        assert_eq!(alloc.budget(), None);
        let held = alloc.alloc::<u8>(40 * MIB, Stream::DEFAULT).unwrap();
        drop(alloc.alloc::<u8>(60 * MIB, Stream::DEFAULT).unwrap());
        let reserved = |alloc: &Allocator| alloc.stats().all().reserved_bytes.current as usize;
        assert_eq!(reserved(&alloc), 100 * MIB);
        alloc.set_budget(Some(32 << 20)).unwrap();
        assert_eq!(reserved(&alloc), 40 * MIB, "the cache went back, what is held stayed");
        let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(8 * MIB, Stream::DEFAULT) else {
            panic!("there is no room under the budget");
        };
        assert_eq!((report.budget, report.reserved), (Some(32 << 20), 40 << 20));
        drop(held);
        drop(alloc.alloc::<u8>(8 * MIB, Stream::DEFAULT).unwrap());
        assert!(reserved(&alloc) <= 40 * MIB);
        alloc.set_memory_fraction(0.5).unwrap();
        let total = alloc.device().info().total;
        assert_eq!(alloc.budget(), Some(total / 2));
        for bad in [0.0, -1.0, 1.1, f64::NAN] {
            assert!(matches!(alloc.set_memory_fraction(bad), Err(Error::Config { .. })));
        }
        assert!(matches!(alloc.set_budget(Some(0)), Err(Error::Config { .. })));
        assert_eq!(alloc.budget(), Some(total / 2), "a bad argument changes nothing");
        alloc.set_budget(None).unwrap();
        drop(alloc.alloc::<u8>(200 * MIB, Stream::DEFAULT).unwrap());
    }
}

#[test]
fn the_bytes_of_a_pointers_block_are_told() {
    for config in [Config::default(), virtual_mode()] {
        let alloc = allocator(config);
        for bytes in [1, 512, 1000, 3 << 20, (20 << 20) + 1] {
            let before = alloc.stats().all().allocated_bytes.current;
            // Twice: the second one may come by another way.
            for _ in 0..2 {
                let addr = alloc.alloc_raw(bytes, Stream::DEFAULT).unwrap();
                let counted = alloc.stats().all().allocated_bytes.current - before;
                assert_eq!(alloc.bytes_of_raw(addr).unwrap(), counted);
                assert!(counted >= bytes, "{bytes}: {counted}");
                assert!(matches!(
                    alloc.bytes_of_raw(addr + 512),
                    Err(Error::UnknownPointer { .. })
                ));
                alloc.free_raw(addr).unwrap();
                assert!(matches!(alloc.bytes_of_raw(addr), Err(Error::UnknownPointer { .. })));
            }
        }
    }
}

#[test]
fn the_drivers_allocation_behind_a_pointer_is_told() {
    let alloc = allocator(Config {
        segments: SegmentMode::Plain,
        ..Config::default()
    });
    let first = alloc.alloc_raw(MIB as u64 / 2, Stream::DEFAULT).unwrap();
    let second = alloc.alloc_raw(MIB as u64 / 2, Stream::DEFAULT).unwrap();
    let base = alloc.base_of_raw(second).unwrap();
    assert_eq!((base.addr, base.bytes), (first, 2 << 20));
    assert!(alloc.owns_raw(second) && !alloc.owns_raw(second + 512));
    assert!(matches!(
        alloc.base_of_raw(first + 512),
        Err(Error::UnknownPointer { .. })
    ));
    let alloc = allocator(virtual_mode());
    let chunked = alloc.alloc_raw(8 << 20, Stream::DEFAULT).unwrap();
    let error = alloc.base_of_raw(chunked).unwrap_err();
    assert!(error.to_string().contains("mapped in chunks"), "{error}");
}
