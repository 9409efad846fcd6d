//! The CUDA device against a libcuda.so in host memory, and what is said when there is none.
//!
//! The library is opened by name, so the path must be set before the process starts: the outer tests run this binary
//! again with the environment they need.
#![allow(unsafe_code, reason = "streams are handles of the driver")]

mod ends;
mod managed;
mod opening;
mod several;

use std::path::Path;
use std::process::{Command, Output};

use cudarc::driver::result::memset_d8_async;
use cudarc::driver::result::stream::{begin_capture, end_capture};
use cudarc::driver::sys::{CUpointer_attribute, CUstreamCaptureMode, cuPointerGetAttribute};
use gpumem_alloc::device::{self, Call, Device, SimConfig};
use gpumem_alloc::{Allocator, Buffer, Config, Error, PoolConfig, Publish, SegmentMode, Stream};

const MIB: usize = 1 << 20;

/// Set in the inner run.
const INNER: &str = "GPUMEM_INNER_TEST";

/// What a message must contain, in an inner run.
const EXPECTED: &str = "GPUMEM_INNER_EXPECTED";

/// Runs one inner test in a process of its own.
fn inner(test: &str, library: &Path, env: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("LD_LIBRARY_PATH", library)
        .env(INNER, "1")
        .envs(env.iter().copied())
        .output()
        .unwrap()
}

fn passes(test: &str, library: &Path, env: &[(&str, &str)]) {
    let output = inner(test, library, env);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{test}: {text}");
}

#[test]
fn the_cuda_device_works_against_a_driver() {
    let folder = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(folder.path()).unwrap();
    let library = folder.path();
    passes("cuda::inner_allocates_copies_and_leaves_nothing", library, &[]);
    passes("cuda::inner_calls_the_driver_as_often_as_it_says", library, &[]);
    passes("cuda::managed::inner_managed_memory_is_advised_and_freed", library, &[]);
    passes("cuda::inner_joins_holes_and_keeps_contents", library, &[]);
    passes(
        "cuda::inner_waits_for_events_of_other_streams",
        library,
        &[("FAKE_CUDA_EVENT_QUERIES", "3")],
    );
    passes("cuda::inner_destroyed_stream_loses_nothing", library, &[]);
    passes("cuda::inner_tells_apart_the_streams_that_each_thread_has", library, &[]);
    passes("cuda::several::inner_ends_no_capture_by_a_copy", library, &[]);
    for queries in ["3", "1000"] {
        passes(
            "cuda::several::inner_waits_for_streams_of_other_devices",
            library,
            &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_EVENT_QUERIES", queries)],
        );
    }
    passes(
        "cuda::several::inner_waits_for_what_was_allocated_for_other_devices",
        library,
        &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_EVENT_QUERIES", "1000")],
    );
    for test in [
        "cuda::several::inner_waits_for_what_other_devices_used_before_a_capture",
        "cuda::several::inner_other_devices_may_be_closed",
    ] {
        passes(
            test,
            library,
            &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_EVENT_QUERIES", "1000")],
        );
    }
    passes(
        "cuda::inner_out_of_memory_is_reported",
        library,
        &[("FAKE_CUDA_TOTAL", "67108864")],
    );
    passes(
        "cuda::several::inner_second_device_is_another",
        library,
        &[("FAKE_CUDA_DEVICES", "2")],
    );
    passes(
        "cuda::several::inner_leaves_the_threads_context_as_it_was",
        library,
        &[("FAKE_CUDA_DEVICES", "2")],
    );
    passes(
        "cuda::several::inner_peers_reach_what_is_mapped",
        library,
        &[("FAKE_CUDA_DEVICES", "3")],
    );
    passes(
        "cuda::several::inner_no_device_reaches_another",
        library,
        &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_PEERS", "0")],
    );
    // The first two let the device itself reach two blocks, after one call for each device that is opened.
    passes(
        "cuda::several::inner_a_peer_that_is_refused_is_none",
        library,
        &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_FAIL", "cuMemSetAccess:5:1")],
    );
    passes(
        "cuda::several::inner_gives_a_cache_back_while_another_device_captures",
        library,
        &[("FAKE_CUDA_DEVICES", "2")],
    );
    passes(
        "cuda::several::inner_ends_no_capture_that_it_was_not_told_of",
        library,
        &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_EVENT_QUERIES", "1")],
    );
    // As above.
    passes(
        "cuda::several::inner_peers_reach_what_was_not_unmapped",
        library,
        &[("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_FAIL", "cuMemUnmap:3")],
    );
    passes("cuda::inner_network_cards_reach_what_is_made_for_them", library, &[]);
    // Devices say it, or the driver refuses what they say.
    for how in ["0", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        passes(
            "cuda::inner_refuses_what_network_cards_cannot_reach",
            library,
            &[("FAKE_CUDA_RDMA", how)],
        );
    }
    passes(
        "cuda::opening::inner_says_no_device",
        library,
        &[("FAKE_CUDA_INIT", "100")],
    );
    for (call, code) in [("cuInit", "12345"), ("cuInit", "-1"), ("cuInit", "-2147483648")] {
        let expected = format!("({call}: {code})");
        passes(
            "cuda::opening::inner_says_the_number_of_an_error_without_a_name",
            library,
            &[("FAKE_CUDA_INIT", code), (EXPECTED, &expected)],
        );
    }
    for call in [
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuDeviceGetAttribute",
        "cuDeviceGetUuid",
        "cuDeviceGetName",
        "cuDeviceTotalMem",
        "cuMemGetAllocationGranularity",
    ] {
        let (fail, expected) = (format!("{call}:1:-1"), format!("({call}: -1)"));
        passes(
            "cuda::opening::inner_says_the_number_of_an_error_without_a_name",
            library,
            &[("FAKE_CUDA_FAIL", &fail), (EXPECTED, &expected)],
        );
    }
    for again in [
        "cuDeviceGet:2:-1",
        "cuDevicePrimaryCtxRetain:2:-1",
        "cuDeviceGetAttribute:3:-1",
    ] {
        passes(
            "cuda::opening::inner_opens_without_cudarc",
            library,
            &[("FAKE_CUDA_FAIL", again)],
        );
    }
    passes(
        "cuda::inner_refuses_virtual_segments",
        library,
        &[("FAKE_CUDA_VMM", "0")],
    );
    passes(
        "cuda::inner_survives_a_failing_map",
        library,
        &[("FAKE_CUDA_FAIL", "cuMemMap:4")],
    );
    let (first, loaded) = (library.join("libcuda.so"), library.join("libcuda.so.1"));
    std::fs::copy(first, &loaded).unwrap();
    passes(
        "cuda::opening::inner_calls_the_driver_that_is_loaded",
        library,
        &[("LD_PRELOAD", loaded.to_str().unwrap())],
    );
    std::fs::remove_file(loaded).unwrap();
    for (content, expected) in [
        (None, "libcuda.so was not found"),
        (Some("not a library"), "cannot be loaded: "),
    ] {
        let driver = library.join("libcuda.so");
        match content {
            Some(content) => std::fs::write(driver, content).unwrap(),
            None => std::fs::remove_file(driver).unwrap(),
        }
        passes(
            "cuda::opening::inner_says_when_there_is_no_driver",
            library,
            &[(EXPECTED, expected)],
        );
    }
}

fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

/// Bytes free on the device now.
fn free(device: &Device) -> u64 {
    device.memory().unwrap().free
}

fn allocator(segments: SegmentMode) -> Allocator {
    let config = Config {
        segments,
        publish: Publish::Off,
        ..Config::default()
    };
    Allocator::new(device::cuda(0).unwrap(), config).unwrap()
}

#[test]
fn inner_allocates_copies_and_leaves_nothing() {
    if !is_inner() {
        return;
    }
    for segments in [SegmentMode::Plain, SegmentMode::Virtual] {
        let alloc = allocator(segments);
        let device = alloc.device().clone();
        let stream = device.cuda_context().unwrap().new_stream().unwrap();
        let before = free(&device);
        let mut buffer = alloc.alloc::<u32>(3 * MIB, Stream::from(&stream)).unwrap();
        let values: Vec<u32> = (0..3 * MIB as u32).collect();
        buffer.write(&values).unwrap();
        let mut back = vec![0; values.len()];
        buffer.read(&mut back).unwrap();
        assert_eq!(back, values);
        buffer.fill_words(0xabcd).unwrap();
        buffer.read(&mut back).unwrap();
        assert!(back.iter().all(|v| *v == 0xabcd));
        drop((buffer, alloc));
        assert_eq!(free(&device), before);
    }
}

/// What is counted of the driver's calls is what the simulated device counts, which is asked for the same.
#[test]
fn inner_calls_the_driver_as_often_as_it_says() {
    if !is_inner() {
        return;
    }
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let counted = [device::cuda(0).unwrap(), device::sim(SimConfig::default())].map(|device| {
            let config = Config {
                publish: Publish::Off,
                segments,
                ..Config::default()
            };
            let alloc = Allocator::new(device.clone(), config).unwrap();
            let buffers: Vec<Buffer<u8>> = (1..20)
                .map(|n| alloc.alloc(n * 3 * MIB, Stream::DEFAULT).unwrap())
                .collect();
            buffers[3].record_stream(Stream(0)).unwrap();
            drop(buffers);
            let large = alloc.alloc::<u8>(200 * MIB, Stream::DEFAULT).unwrap();
            alloc.release_cached().unwrap();
            drop((large, alloc));
            assert!(device.calls_ns() > 0);
            Call::ALL.map(|call| (call.name(), device.calls(call)))
        });
        assert_eq!(counted[0], counted[1], "{segments:?}");
        assert!(counted[0].iter().filter(|(_, count)| *count > 0).count() >= 3);
    }
}

#[test]
fn inner_joins_holes_and_keeps_contents() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Virtual);
    let device = alloc.device().clone();
    let before = free(&device);
    let mut blocks: Vec<_> = (0..8)
        .map(|_| Some(alloc.alloc::<u32>(16 * MIB / 4, Stream::DEFAULT).unwrap()))
        .collect();
    for (i, block) in blocks.iter_mut().enumerate() {
        block.as_mut().unwrap().fill_words(i as u32).unwrap();
    }
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    let held = free(&device);
    let report = alloc.join_holes(64 << 20, Stream::DEFAULT).unwrap();
    assert!(report.contiguous >= 64 << 20 && report.chunks_moved > 0);
    let mut large = alloc.alloc::<u32>(64 * MIB / 4, Stream::DEFAULT).unwrap();
    large.fill_words(99).unwrap();
    assert_eq!(free(&device), held, "no new memory");
    println!("{report:?}");
    for (i, block) in blocks.iter().enumerate() {
        let Some(block) = block else { continue };
        let mut words = vec![0; block.len()];
        block.read(&mut words).unwrap();
        assert!(words.iter().all(|word| *word == i as u32));
    }
    drop((blocks, large, alloc));
    assert_eq!(free(&device), before);
}

#[test]
fn inner_waits_for_events_of_other_streams() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Plain);
    let context = alloc.device().cuda_context().unwrap();
    let (a, b) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let buffer = alloc.alloc::<u8>(30 * MIB, Stream::from(&a)).unwrap();
    let addr = buffer.device_ptr();
    buffer.record_stream(&b).unwrap();
    drop(buffer);
    assert_eq!(alloc.stats().all().active.current, 1, "it waits for the other stream");
    let other = alloc.alloc::<u8>(30 * MIB, Stream::from(&a)).unwrap();
    assert_ne!(other.device_ptr(), addr);
    for _ in 0..4 {
        alloc.poll();
    }
    assert_eq!(alloc.stats().all().active.current, 1, "only the new one");
    assert_eq!(
        alloc.alloc::<u8>(30 * MIB, Stream::from(&a)).unwrap().device_ptr(),
        addr
    );
}

/// By the number of CUDA's handle two threads would be given the same memory at the same time, each in the order of its own stream.
#[test]
fn inner_tells_apart_the_streams_that_each_thread_has() {
    if !is_inner() {
        return;
    }
    for segments in SegmentMode::ALL {
        let alloc = allocator(segments);
        let context = alloc.device().cuda_context().unwrap();
        let default = Stream::from(&context.default_stream());
        let pool = alloc.pool("tenant", PoolConfig::default()).unwrap();
        let buffer = alloc.alloc::<u8>(1000, default).unwrap();
        let raw = alloc.alloc_raw(1000, default).unwrap();
        let nobodys = Stream(2);
        let refused = [
            alloc.alloc::<u8>(1000, nobodys).map(drop),
            alloc.alloc_raw(30 << 20, nobodys).map(drop),
            alloc.reserve(1000, nobodys),
            pool.alloc::<u8>(1000, nobodys).map(drop),
            buffer.record_stream(nobodys),
            alloc.record_stream_raw(raw, nobodys),
            alloc.free_raw_after(raw, 0, nobodys),
        ];
        for (at, refused) in refused.into_iter().enumerate() {
            assert!(matches!(refused, Err(Error::PerThreadStream)), "{at}: {refused:?}");
        }
        let own = Stream::from(&context.per_thread_stream());
        assert_eq!((own, own.handle()), (Stream::per_thread(), 2));
        let of_others = [(); 2].map(|()| std::thread::spawn(Stream::per_thread).join().unwrap());
        assert!(of_others[0] != of_others[1] && !of_others.contains(&own));
        buffer.record_stream(own).unwrap();
        alloc.record_stream_raw(raw, of_others[0]).unwrap();
        let mut written = alloc.alloc::<u8>(1000, own).unwrap();
        written.write(&[7; 1000]).unwrap();
        // In another thread this one's stream has no handle.
        let read = std::thread::spawn(move || {
            let mut bytes = [0; 1000];
            written.read(&mut bytes).map(|()| bytes)
        });
        assert_eq!(read.join().unwrap().unwrap(), [7; 1000]);
        alloc.free_raw_after(raw, 0, own).unwrap();
        drop(buffer);
        alloc.poll();
        assert_eq!(alloc.stats().all().allocation.current, 0);
        // SAFETY: the default stream's other handle, which the driver has as long as there is a context.
        let legacy = unsafe { context.wrap_borrowed_stream(std::ptr::without_provenance_mut(1)) };
        assert_eq!(Stream::from(&legacy), Stream::DEFAULT);
    }
}

#[test]
fn inner_destroyed_stream_loses_nothing() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Plain);
    let device = alloc.device().clone();
    let before = free(&device);
    let gone = device.cuda_context().unwrap().new_stream().unwrap();
    let name = Stream::from(&gone);
    let buffer = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    buffer.record_stream(name).unwrap();
    drop(gone);
    drop(buffer);
    assert_eq!(alloc.stats().all().active.current, 1);
    assert_eq!(alloc.release_cached().unwrap(), 30 << 20);
    assert_eq!(alloc.stats().all().active.current, 0);
    assert_eq!(free(&device), before);
}

#[test]
fn inner_out_of_memory_is_reported() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Virtual);
    let _held = alloc.alloc::<u8>(40 * MIB, Stream::DEFAULT).unwrap();
    let Err(Error::OutOfMemory(report)) = alloc.alloc::<u8>(40 * MIB, Stream::DEFAULT) else {
        panic!("it must not fit")
    };
    assert_eq!((report.device_free, report.device_total), (Some(24 << 20), 64 << 20));
    assert!(report.to_string().contains("smaller by 16.0 MiB"), "{report}");
}

#[test]
fn inner_refuses_virtual_segments() {
    if !is_inner() {
        return;
    }
    let config = Config {
        segments: SegmentMode::Virtual,
        publish: Publish::Off,
        ..Config::default()
    };
    let error = Allocator::new(device::cuda(0).unwrap(), config)
        .unwrap_err()
        .to_string();
    assert!(error.contains("SegmentMode::Plain"), "{error}");
    drop(allocator(SegmentMode::Plain).alloc::<u8>(1, Stream::DEFAULT).unwrap());
}

#[test]
fn inner_survives_a_failing_map() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Virtual);
    let device = alloc.device().clone();
    let before = free(&device);
    let error = alloc.alloc::<u8>(64 * MIB, Stream::DEFAULT).unwrap_err();
    assert!(
        error.to_string().contains("cuMemMap failed: CUDA_ERROR_UNKNOWN (999)"),
        "{error}"
    );
    assert_eq!(free(&device), before, "nothing is left of the attempt");
    drop(alloc.alloc::<u8>(64 * MIB, Stream::DEFAULT).unwrap());
}

fn for_rdma(segments: SegmentMode, asked: Option<bool>) -> Result<Allocator, Error> {
    let config = Config {
        segments,
        gpu_direct_rdma: asked,
        publish: Publish::Off,
        ..Config::default()
    };
    Allocator::new(device::cuda(0).unwrap(), config)
}

/// Whether the driver says that network cards reach what is allocated.
fn is_reached(alloc: &Allocator) -> bool {
    let buffer = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    let (mut value, attribute) = (-1, CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE);
    let value_at = (&raw mut value).cast();
    // SAFETY: writes one number.
    unsafe { cuPointerGetAttribute(value_at, attribute, buffer.device_ptr()) }
        .result()
        .unwrap();
    value == 1
}

#[test]
fn inner_network_cards_reach_what_is_made_for_them() {
    if !is_inner() {
        return;
    }
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        for (asked, reached) in [(None, true), (Some(true), true), (Some(false), false)] {
            assert_eq!(is_reached(&for_rdma(segments, asked).unwrap()), reached, "{asked:?}");
        }
    }
    assert!(is_reached(&allocator(SegmentMode::Plain)));
}

#[test]
fn inner_refuses_what_network_cards_cannot_reach() {
    if !is_inner() {
        return;
    }
    let device = device::cuda(0).unwrap();
    assert!(!device.info().gpu_direct_rdma);
    assert_eq!(free(&device), device.info().total, "nothing is left of the trial");
    let error = for_rdma(SegmentMode::Stitched, Some(true)).unwrap_err().to_string();
    assert!(error.contains("gpu_direct_rdma: this device cannot"), "{error}");
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        assert!(!is_reached(&for_rdma(segments, None).unwrap()));
    }
}
