//! Several devices in one process, and graphs that others capture.

use super::*;

#[test]
fn inner_waits_for_streams_of_other_devices() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let other = device::cuda(1).unwrap();
    let there = other.cuda_context().unwrap().new_stream().unwrap();
    for _ in 0..3 {
        let buffer = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
        buffer.record_stream(&there).unwrap();
        drop(buffer);
        let pending = || alloc.stats().pending_bytes() > 0;
        assert!(pending(), "a stream of the other device uses it");
        for _ in 0..4 {
            alloc.poll();
        }
        if pending() {
            // Too busy for that, so the memory goes only once both devices were waited for.
            let busy = there.record_event(None).unwrap();
            assert!(!busy.is_complete());
            alloc.release_cached().unwrap();
            assert!(busy.is_complete() && !pending());
        }
    }
    let asked = std::env::var("FAKE_CUDA_EVENT_QUERIES").unwrap();
    let waited = alloc.stats().num_sync_all_streams;
    assert_eq!(waited > 0, asked == "1000", "{waited}");
}

/// Nobody asked how far it is, or who did was not told.
#[test]
fn inner_waits_for_what_was_allocated_for_other_devices() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let other = device::cuda(1).unwrap();
    let stream = other.cuda_context().unwrap().new_stream().unwrap();
    drop(alloc.alloc::<u8>(30 * MIB, Stream::from(&stream)).unwrap());
    let busy = stream.record_event(None).unwrap();
    assert!(!busy.is_complete());
    alloc.release_cached().unwrap();
    assert!(busy.is_complete(), "its memory went");
}

#[test]
fn inner_waits_for_what_other_devices_used_before_a_capture() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let other = device::cuda(1).unwrap();
    let stream = other.cuda_context().unwrap().new_stream().unwrap();
    let used = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    used.record_stream(&stream).unwrap();
    let busy = stream.record_event(None).unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a stream that lives.
    unsafe { begin_capture(stream.cu_stream(), mode) }.unwrap();
    drop(used);
    // SAFETY: as above; this driver's graphs are none.
    unsafe { end_capture(stream.cu_stream()) }.unwrap();
    alloc.release_cached().unwrap();
    assert!(busy.is_complete(), "no event could be recorded on it");
}

/// With its last handle another device is closed, and what was queued there is done.
#[test]
fn inner_other_devices_may_be_closed() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let before = free(alloc.device());
    for record in [false, true] {
        let other = device::cuda(1).unwrap();
        let there = other.cuda_context().unwrap().new_stream().unwrap();
        let used = match record {
            true => alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap(),
            false => alloc.alloc::<u8>(30 * MIB, Stream::from(&there)).unwrap(),
        };
        used.record_stream(&there).unwrap();
        drop(used);
        alloc.retire_stream(Stream::from(&there)).unwrap();
        drop((other, there));
        alloc.release_cached().unwrap();
        assert_eq!((free(alloc.device()), alloc.stats().pending_bytes()), (before, 0));
    }
}

#[test]
fn inner_second_device_is_another() {
    if !is_inner() {
        return;
    }
    let first = device::cuda(0).unwrap();
    let second = device::cuda(1).unwrap();
    assert_ne!(first.info().uuid, second.info().uuid);
    let alloc = Allocator::new(
        second,
        Config {
            publish: Publish::Off,
            ..Config::default()
        },
    )
    .unwrap();
    let addr = alloc.alloc_raw(512, Stream::DEFAULT).unwrap();
    assert!(matches!(
        alloc.free_raw_on(addr, 0),
        Err(Error::WrongDevice { expected: 1, given: 0 })
    ));
    alloc.free_raw_on(addr, 1).unwrap();
    assert!(matches!(device::cuda(2), Err(Error::NoDevice { ordinal: 2, .. })));
}

#[test]
fn inner_leaves_the_threads_context_as_it_was() {
    if !is_inner() {
        return;
    }
    let current = || cudarc::driver::result::ctx::get_current().unwrap();
    let first = device::cuda(0).unwrap();
    assert_eq!(current(), None, "opening a device makes it nobody's current one");
    let context = first.cuda_context().unwrap();
    context.bind_to_thread().unwrap();
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device::cuda(1).unwrap(), config).unwrap();
    let mut buffer = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
    buffer.fill_words(1).unwrap();
    drop(buffer);
    alloc.release_cached().unwrap();
    assert_eq!(current(), Some(context.cu_ctx()));
    std::thread::spawn(move || {
        drop(alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap());
        assert_eq!(current(), None, "a thread without a context stays so");
        drop(alloc);
        assert_eq!(current(), None, "with the allocator the device goes");
    })
    .join()
    .unwrap();
    drop(device::cuda(1).unwrap());
    assert_eq!(current(), Some(context.cu_ctx()));
}

/// Whether a kernel of a device could write a buffer.
fn reaches(device: &Device, buffer: &mut Buffer<u32>) -> bool {
    let context = device.cuda_context().unwrap();
    context.bind_to_thread().unwrap();
    // SAFETY: the buffer's own bytes, in the context's default stream, done at once by this driver.
    unsafe { memset_d8_async(buffer.device_ptr(), 0, 4 * buffer.len(), std::ptr::null_mut()) }.is_ok()
}

#[test]
fn inner_peers_reach_what_is_mapped() {
    if !is_inner() {
        return;
    }
    let [home, peer, other] = [0, 1, 2].map(|ordinal| device::cuda(ordinal).unwrap());
    for segments in [SegmentMode::Virtual, SegmentMode::Stitched] {
        let home = device::cuda(0).unwrap();
        let config = Config {
            segments,
            publish: Publish::Off,
            ..Config::default()
        };
        let alloc = Allocator::new(home.clone(), config).unwrap();
        let new = |mib: usize| alloc.alloc::<u32>(mib * MIB / 4, Stream::DEFAULT).unwrap();
        // Large blocks, one of them stitched.
        let mut held: Vec<_> = (0..8).map(|_| Some(new(16))).collect();
        held.iter_mut().step_by(2).for_each(|block| *block = None);
        held.push(Some(new(64)));
        let mut held: Vec<_> = held.into_iter().flatten().collect();
        for block in &mut held {
            assert_eq!(
                (reaches(&peer, block), reaches(&home, block)),
                (false, true),
                "{segments:?}"
            );
        }
        assert!(home.enable_peer_access(&peer).unwrap());
        assert!(home.enable_peer_access(&peer).unwrap(), "twice is as good");
        assert!(home.enable_peer_access(&home).unwrap());
        // What was there, and what comes, by new memory and by other mappings of what is there.
        drop(held.remove(0));
        held.push(new(256));
        held.push(new(30));
        alloc.release_cached().unwrap();
        held.push(new(300));
        for block in &mut held {
            assert!(reaches(&peer, block) && reaches(&home, block), "{segments:?}");
            assert!(!reaches(&other, block), "nobody named it");
        }
    }
    let own = Allocator::new(
        peer.clone(),
        Config {
            publish: Publish::Off,
            ..Config::default()
        },
    )
    .unwrap();
    let mut block = own.alloc::<u32>(MIB, Stream::DEFAULT).unwrap();
    assert!(!reaches(&home, &mut block), "one way");
    let sim = device::sim(SimConfig::default());
    assert!(!home.enable_peer_access(&sim).unwrap() && !sim.enable_peer_access(&home).unwrap());
}

#[test]
fn inner_peers_reach_what_was_not_unmapped() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let peer = device::cuda(1).unwrap();
    let new = |mib: usize| alloc.alloc::<u32>(mib * MIB / 4, Stream::DEFAULT).unwrap();
    drop(new(64));
    assert_eq!(
        alloc
            .release_cached()
            .unwrap_err()
            .to_string()
            .matches("cuMemUnmap")
            .count(),
        1
    );
    assert!(alloc.device().enable_peer_access(&peer).unwrap());
    let reserved = alloc.stats().all().reserved_bytes.current;
    let mut kept = new(64);
    assert_eq!(
        alloc.stats().all().reserved_bytes.current,
        reserved,
        "it is still there"
    );
    assert!(reaches(&peer, &mut kept));
}

#[test]
fn inner_no_device_reaches_another() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let peer = device::cuda(1).unwrap();
    let mut block = alloc.alloc::<u32>(MIB, Stream::DEFAULT).unwrap();
    assert!(!alloc.device().enable_peer_access(&peer).unwrap());
    assert!(!reaches(&peer, &mut block));
}

#[test]
fn inner_a_peer_that_is_refused_is_none() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    let peer = device::cuda(1).unwrap();
    let new = || alloc.alloc::<u32>(16 * MIB, Stream::DEFAULT).unwrap();
    let _first = new();
    let second = new();
    let error = alloc.device().enable_peer_access(&peer).unwrap_err();
    assert_eq!(error.call, "cuMemSetAccess");
    drop(second);
    alloc.release_cached().unwrap();
    let mut later = new();
    assert!(!reaches(&peer, &mut later), "it would reach some of the memory");
    assert!(alloc.device().enable_peer_access(&peer).unwrap());
    assert!(reaches(&peer, &mut later));
}

/// Graphs are captured by others, too: on the same device, or with another device's allocator.
#[test]
fn inner_ends_no_capture_that_it_was_not_told_of() {
    if !is_inner() {
        return;
    }
    let captured = device::cuda(1).unwrap();
    let stream = captured.cuda_context().unwrap().new_stream().unwrap();
    for ordinal in [0, 1] {
        for segments in [SegmentMode::Plain, SegmentMode::Stitched] {
            let config = Config {
                segments,
                publish: Publish::Off,
                ..Config::default()
            };
            let alloc = Allocator::new(device::cuda(ordinal).unwrap(), config).unwrap();
            let other = alloc.device().cuda_context().unwrap().new_stream().unwrap();
            let new = |mib: usize, stream| alloc.alloc::<u8>(mib * MIB, stream).unwrap();
            let used = new(30, Stream::DEFAULT);
            used.record_stream(&other).unwrap();
            let by_graph = new(30, Stream::DEFAULT);
            by_graph.record_stream(&stream).unwrap();
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
            // SAFETY: a stream that lives.
            unsafe { begin_capture(stream.cu_stream(), mode) }.unwrap();
            drop((used, by_graph));
            for mib in [40, 50, 60] {
                drop(new(mib, Stream::from(&other)));
                drop(new(mib, Stream::from(&stream)));
                alloc.poll();
            }
            assert_eq!(alloc.stats().pending_bytes(), 30 << 20, "what the graph's stream uses");
            // SAFETY: as above; this driver's graphs are none.
            let ended = unsafe { end_capture(stream.cu_stream()) };
            assert!(ended.is_ok(), "{ordinal}, {segments:?}");
            alloc.release_cached().unwrap();
            assert_eq!(alloc.stats().pending_bytes(), 0);
        }
    }
}

/// Who waits for one device waits for nothing that is captured on another, as was seen on two H100.
#[test]
fn inner_gives_a_cache_back_while_another_device_captures() {
    if !is_inner() {
        return;
    }
    let stream = device::cuda(1).unwrap().cuda_context().unwrap().new_stream().unwrap();
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device::cuda(0).unwrap(), config).unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a stream that lives.
    unsafe { begin_capture(stream.cu_stream(), mode) }.unwrap();
    drop(alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap());
    assert!(alloc.release_cached().unwrap() > 0);
    // SAFETY: as above; this driver's graphs are none.
    unsafe { end_capture(stream.cu_stream()) }.unwrap();
}

/// A copy that is queued while a graph is captured becomes part of it, and is over when the graph is: it is refused, and the capture goes on,
/// which the wait for the copy would end (seen on an H200).
#[test]
fn inner_ends_no_capture_by_a_copy() {
    if !is_inner() {
        return;
    }
    let config = Config {
        publish: Publish::Off,
        ..Config::default()
    };
    let alloc = Allocator::new(device::cuda(0).unwrap(), config).unwrap();
    let stream = alloc.device().cuda_context().unwrap().new_stream().unwrap();
    let mut buffer = alloc.alloc::<u8>(MIB, Stream::from(&stream)).unwrap();
    buffer.write(&vec![1; MIB]).unwrap();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a stream that lives.
    unsafe { begin_capture(stream.cu_stream(), mode) }.unwrap();
    let mut host = vec![7; MIB];
    let refused = [buffer.read(&mut host), buffer.write(&host)];
    buffer.fill_words(0x0303_0303).unwrap();
    // SAFETY: as above; this driver's graphs are none.
    unsafe { end_capture(stream.cu_stream()) }.unwrap();
    assert!(
        refused
            .iter()
            .all(|result| matches!(result, Err(Error::Device(error)) if error.code == 900)),
        "{refused:?}"
    );
    assert_eq!(host, vec![7; MIB]);
    buffer.read(&mut host).unwrap();
}
