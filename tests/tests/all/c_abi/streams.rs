//! Streams that end before what was allocated on them.

use std::ptr::null_mut;

use super::abi::{Abi, PoolId, Ptr, stream};
use super::{library, passes};

const MIB: usize = 1 << 20;

#[test]
fn a_retired_stream_is_never_called_again() {
    let late = [("FAKE_CUDA_EVENT_QUERIES", "40")];
    assert_eq!(passes("streams::inner_streams_come_and_go", &late), "");
    passes("streams::inner_what_cannot_be_retired_is_refused", &[]);
    for environment in [&[][..], &late] {
        assert_eq!(passes("streams::inner_streams_are_destroyed_first", environment), "");
    }
    passes(
        "streams::inner_a_capture_does_not_keep_streams_of_other_devices",
        &[("FAKE_CUDA_DEVICES", "3")],
    );
}

/// The real driver crashes on the handle of a stream that is gone.
#[test]
fn a_stream_that_was_destroyed_untold_is_never_named() {
    for (queries, segments, reuse) in [
        ("0", "stitched", "off"),
        ("40", "plain", "off"),
        ("40", "stitched", "on"),
        ("0", "virtual", "on"),
    ] {
        let conf = format!("segments:{segments},cross_stream_reuse:{reuse}");
        let environment = [
            ("FAKE_CUDA_DEAD_STREAMS_KILL", "1"),
            ("FAKE_CUDA_EVENT_QUERIES", queries),
            ("FAKE_CUDA_TOTAL", "1073741824"),
            ("GPUMEM_ALLOC_CONF", conf.as_str()),
        ];
        assert_eq!(passes("streams::inner_streams_are_destroyed_untold", &environment), "");
    }
}

#[test]
fn a_block_that_another_stream_reads_goes_to_its_own_stream() {
    for segments in ["stitched", "virtual", "plain"] {
        let conf = format!("segments:{segments}");
        let environment = [
            ("GPUMEM_ALLOC_CONF", conf.as_str()),
            ("FAKE_CUDA_DEAD_STREAMS_KILL", "1"),
        ];
        assert_eq!(
            passes("streams::inner_a_third_stream_has_other_memory", &environment),
            ""
        );
    }
}

/// CUDA's handle 2.
#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let late = [("FAKE_CUDA_EVENT_QUERIES", "40")];
    assert_eq!(passes("streams::inner_a_thread_has_its_own_memory_at_once", &late), "");
    let sharing = [("GPUMEM_ALLOC_CONF", "cross_stream_reuse:on")];
    assert_eq!(passes("streams::inner_idle_threads_share", &sharing), "");
    for environment in [&[][..], &late] {
        assert_eq!(passes("streams::inner_threads_come_and_go", environment), "");
    }
}

fn own() -> Ptr {
    stream(2)
}

fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

#[test]
fn inner_a_thread_has_its_own_memory_at_once() {
    let Some(abi) = library() else { return };
    let take = |abi: &Abi| abi.alloc(30 * MIB, 0, own()).addr();
    let mine = take(&abi);
    abi.free(stream(mine), 30 * MIB, 0, own());
    let others = elsewhere(|| take(&abi));
    assert_ne!(others, mine, "the first thread's work may use it");
    assert_eq!(take(&abi), mine);
    // Freed by a thread that used it, which is not the one that took it.
    elsewhere(|| abi.free(stream(mine), 30 * MIB, 0, own()));
    assert_ne!(take(&abi), mine, "the other thread's work may use it");
    assert_eq!((abi.error_count(), abi.error()), (0, None));
    // Once the device is full, and was waited for.
    let waited = (0..300).map(|_| (elsewhere(|| take(&abi)) == mine, abi.figures(0)["num_sync_all_streams"]));
    let (_, waits) = waited.into_iter().find(|(came_back, _)| *came_back).unwrap();
    assert_eq!((waits, abi.error()), (1, None));
}

#[test]
fn inner_idle_threads_share() {
    let Some(abi) = library() else { return };
    let take = || abi.alloc(30 * MIB, 0, own()).addr();
    let free = |addr| abi.free(stream(addr), 30 * MIB, 0, own());
    let mine = take();
    free(mine);
    assert_eq!(
        elsewhere(|| {
            let its = take();
            free(its);
            its
        }),
        mine
    );
    assert_eq!(take(), mine, "of a thread that has ended");
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

/// More of them than are kept apart.
#[test]
fn inner_threads_come_and_go() {
    let Some(abi) = library() else { return };
    let kept = abi.alloc(4 * MIB, 0, null_mut()).addr();
    for at in 0..5000 {
        elsewhere(|| {
            let [mine, used] = [(); 2].map(|()| abi.alloc(2 * MIB, 0, own()));
            assert!(!mine.is_null() && !used.is_null(), "{at}: {:?}", abi.error());
            abi.record_stream(stream(kept), own());
            abi.free(mine, 2 * MIB, 0, own());
            let last = [null_mut(), own()][usize::from(at % 100 > 0)];
            abi.free(used, 2 * MIB, 0, last);
            assert_eq!(abi.error(), None, "{at}");
        });
    }
    abi.free(stream(kept), 4 * MIB, 0, null_mut());
    let figures = abi.figures(0);
    assert_eq!(figures["all.allocation.current"], 0);
    // What 5,000 threads take is 20 GiB. Sixteen of them end before anything is asked, and then each event forty times.
    assert!(figures["all.reserved_bytes.peak"] <= 1 << 30, "{figures:?}");
    assert!(abi.empty_cache(0) > 0);
    let figures = abi.figures(0);
    assert_eq!(
        (figures["all.active.current"], figures["all.reserved_bytes.current"]),
        (0, 0)
    );
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

#[test]
fn inner_streams_come_and_go() {
    let Some(abi) = library() else { return };
    let kept = abi.alloc(4 * MIB, 0, null_mut());
    for _ in 0..200 {
        let stream = super::driver_stream();
        let [mine, freed_later] = [(); 2].map(|()| abi.alloc(2 * MIB, 0, stream));
        assert!(!mine.is_null() && !freed_later.is_null());
        abi.record_stream(kept, stream);
        abi.free(mine, 2 * MIB, 0, stream);
        assert_eq!(abi.retire_stream(stream), 0);
        super::destroy_driver_stream(stream);
        // As PyTorch does it, with the stream that it was taken for.
        abi.free(freed_later, 2 * MIB, 0, stream);
    }
    abi.free(kept, 4 * MIB, 0, null_mut());
    let figures = abi.figures(0);
    assert_eq!(figures["all.allocation.current"], 0);
    assert!(figures["all.reserved_bytes.peak"] <= 200 << 20, "{figures:?}");
    abi.empty_cache(0);
    let figures = abi.figures(0);
    assert_eq!(
        (figures["all.active.current"], figures["all.reserved_bytes.current"]),
        (0, 0)
    );
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

/// As `torch.cuda.ExternalStream` has it: the owner waits for its stream and destroys it, and tensors outlive it.
#[test]
fn inner_streams_are_destroyed_untold() {
    let Some(abi) = library() else { return };
    let kept = abi.alloc(8 * MIB, 0, null_mut());
    let mut outlive = Vec::new();
    for n in 0..50 {
        let ends = super::driver_stream();
        let [large, small, outlives] = [32 * MIB, 4096, MIB].map(|size| abi.alloc(size, 0, ends));
        assert!(
            !large.is_null() && !small.is_null() && !outlives.is_null(),
            "{:?}",
            abi.error()
        );
        abi.record_stream(kept, ends);
        abi.record_stream(large, null_mut());
        abi.free(large, 32 * MIB, 0, ends);
        abi.free(small, 4096, 0, ends);
        outlive.push((outlives.addr(), ends.addr()));
        super::destroy_driver_stream(ends);
        let next = super::driver_stream();
        for stream in [null_mut(), next] {
            let held: Vec<Ptr> = (0..8).map(|_| abi.alloc((n % 7 + 1) * MIB, 0, stream)).collect();
            held.into_iter().for_each(|ptr| abi.free(ptr, 0, 0, stream));
        }
        super::destroy_driver_stream(next);
        if n % 10 == 0 {
            // By a thread that never used CUDA.
            elsewhere(|| {
                outlive
                    .drain(..)
                    .for_each(|(ptr, ends)| abi.free(stream(ptr), MIB, 0, stream(ends)))
            });
        }
    }
    abi.free(kept, 8 * MIB, 0, null_mut());
    outlive
        .into_iter()
        .for_each(|(ptr, ends)| abi.free(stream(ptr), MIB, 0, stream(ends)));
    // Memory pressure, and the ways in which memory goes back.
    let large = abi.alloc(900 * MIB, 0, null_mut());
    assert!(!large.is_null(), "{:?}", abi.error());
    abi.free(large, 900 * MIB, 0, null_mut());
    assert!(abi.compact(0) >= 0 && abi.empty_cache(0) >= 0);
    let figures = abi.figures(0);
    assert_eq!(
        (figures["all.active.current"], figures["all.reserved_bytes.current"]),
        (0, 0)
    );
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

/// `del x` while B reads x, an allocation on C, and A waits for B before A allocates again.
#[test]
fn inner_a_third_stream_has_other_memory() {
    let Some(abi) = library() else { return };
    // The device is there, and so is the driver.
    abi.free(abi.alloc(MIB, 0, null_mut()), MIB, 0, null_mut());
    let [a, c] = [(); 2].map(|()| super::driver_stream());
    for _ in 0..60 {
        let x = abi.alloc(64 * MIB, 0, a);
        abi.free(x, 64 * MIB, 0, a);
        let z = abi.alloc(64 * MIB, 0, c);
        assert!(!z.is_null() && z != x);
        let again = abi.alloc(64 * MIB, 0, a);
        assert_eq!(again, x, "its own stream has it at once");
        abi.free(again, 64 * MIB, 0, a);
        abi.free(z, 64 * MIB, 0, c);
    }
    assert_eq!(abi.figures(0)["num_sync_all_streams"], 0);
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

/// More of them than are kept apart.
#[test]
fn inner_streams_are_destroyed_first() {
    let Some(abi) = library() else { return };
    abi.free(abi.alloc(MIB, 0, null_mut()), MIB, 0, null_mut());
    for _ in 0..5000 {
        let stream = super::driver_stream();
        let ptr = abi.alloc(2048, 0, stream);
        assert!(!ptr.is_null(), "{:?}", abi.error());
        super::destroy_driver_stream(stream);
        abi.free(ptr, 2048, 0, stream);
        assert_eq!(abi.retire_stream(stream), 0);
    }
    assert_eq!(abi.figures(0)["num_sync_all_streams"], 1);
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

#[test]
fn inner_what_cannot_be_retired_is_refused() {
    let Some(abi) = library() else { return };
    for (handle, why) in [
        (null_mut(), "the default stream is never destroyed"),
        (stream(1), "the default stream is never destroyed"),
        (stream(2), "the default stream is never destroyed"),
    ] {
        assert_eq!(abi.retire_stream(handle), -1);
        abi.refused(why);
    }
    assert_eq!(abi.retire_stream(stream(77)), 0, "nobody knows it");
}

#[test]
fn inner_a_capture_does_not_keep_streams_of_other_devices() {
    let Some(abi) = library() else { return };
    let take = |device, stream| {
        let ptr = abi.alloc(30 * MIB, device, stream);
        assert!(!ptr.is_null());
        ptr
    };
    // Memory that was used on the stream, which the driver does not know any more when it is freed.
    take(0, null_mut());
    let ending = super::driver_stream();
    let of_each = [0, 1, 2].map(|device| take(device, ending));
    let pool = PoolId(7, 1);
    abi.begin_allocate_to_pool(1, pool, null_mut());
    assert_eq!(abi.retire_stream(ending), -1);
    abi.refused("a CUDA graph is being captured");
    abi.end_allocate_to_pool(1, pool);
    abi.release_pool(1, pool);
    super::destroy_driver_stream(ending);
    let again = [0, 1, 2].map(|device| {
        abi.free(of_each[device as usize], 30 * MIB, device, ending);
        take(device, null_mut())
    });
    let reused = [0, 1, 2].map(|device| again[device] == of_each[device]);
    assert_eq!(reused, [true, false, true], "the others are done with the stream");
    assert_eq!((abi.retire_stream(ending), abi.error()), (0, None));
}
