//! What cannot be meant is told and changes nothing.

use std::ptr::null_mut;

use libloading::os::unix::Library;

use super::abi::{Abi, PoolId, stream};
use super::{current_context, library, passes};

const MIB: usize = 1 << 20;
/// Segments that are one allocation of the driver's each.
const PLAIN: (&str, &str) = ("GPUMEM_ALLOC_CONF", "segments:plain");

/// A call that must be refused, and words of the message.
type Case<'a> = (&'a dyn Fn(&Abi), &'a str);

#[test]
fn what_cannot_be_meant_is_told_and_changes_nothing() {
    let stderr = passes(
        "misuse::inner_misuse_changes_nothing",
        &[("FAKE_CUDA_DEVICES", "2"), PLAIN],
    );
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("gpumem: gpumem_"))
        .collect();
    assert_eq!(
        lines.len(),
        3,
        "one line a kind of error (misuse, no device, no file): {stderr}"
    );
    let stderr = passes("misuse::inner_no_device", &[("FAKE_CUDA_INIT", "100")]);
    assert!(stderr.contains("CUDA_ERROR_NO_DEVICE"), "{stderr}");
    passes(
        "misuse::inner_driver_fails_once",
        &[("FAKE_CUDA_FAIL", "cuMemAlloc:2"), PLAIN],
    );
    passes("misuse::inner_stream_is_gone", &[]);
    passes("misuse::inner_old_programs_get_what_they_know", &[]);
}

#[test]
fn inner_misuse_changes_nothing() {
    let Some(abi) = library() else { return };
    let none = null_mut();
    let (first, second) = (abi.alloc(MIB, 0, none), abi.alloc(MIB, 1, none));
    let before = (abi.figures(0), abi.figures(1));
    let cases: &[Case<'_>] = &[
        (
            &|abi| assert!(abi.alloc(-1isize as usize, 0, none).is_null()),
            "larger than any device",
        ),
        (
            &|abi| assert!(abi.cupy_malloc(none, isize::MIN as usize, 0).is_null()),
            "larger than any device",
        ),
        (
            &|abi| assert!(abi.torch_alloc(usize::MAX / 4, 0, none).is_null()),
            "larger than any device",
        ),
        (&|abi| assert_eq!(abi.adopt_torch(), -1), "no PyTorch"),
        (
            &|abi| assert_eq!(abi.set_torch_version(std::ptr::null()), -1),
            "no version was given",
        ),
        (
            &|abi| assert_eq!(abi.python_stacks(Library::this().into_raw(), 1), -1),
            "no functions of a Python",
        ),
        (&|abi| assert!(abi.alloc(MIB, -1, none).is_null()), "no device -1"),
        (&|abi| assert!(abi.alloc(MIB, 2, none).is_null()), "device 2: "),
        (&|abi| assert!(abi.alloc(MIB, 128, none).is_null()), "no device 128"),
        (
            &|abi| assert!(abi.alloc(MIB, i32::MIN, none).is_null()),
            "no device -2147483648",
        ),
        (
            &|abi| abi.free(stream(0xdead_0000), MIB, 0, none),
            "0xdead0000 is not a live allocation on device 0",
        ),
        (
            &|abi| abi.torch_free(stream(0xdead_0000), MIB, 0, none),
            "gpumem_torch_free: 0xdead0000 is not a live allocation on device 0",
        ),
        (
            &|abi| abi.free(stream(first.addr() + 512), MIB, 0, none),
            "not a live allocation on device 0",
        ),
        (
            &|abi| abi.free(first, MIB, 1, none),
            "not a live allocation on device 1: it is one of device 0",
        ),
        (
            &|abi| abi.free(second, MIB, 5, none),
            "not a live allocation on device 5",
        ),
        (&|abi| abi.free(second, MIB, 999, none), "no device 999"),
        (
            &|abi| abi.cupy_free(none, second, 0),
            "not a live allocation on device 0",
        ),
        (
            &|abi| abi.record_stream(stream(7), none),
            "0x7 is not a live allocation",
        ),
        (&|abi| assert_eq!(abi.empty_cache(128), -1), "no device 128"),
        (&|abi| assert_eq!(abi.empty_cache(-2), -1), "no device -2"),
        (&|abi| abi.init(-1), "-1 devices"),
        (&|abi| abi.memory_fraction(f64::NAN, 0), "a fraction of NaN"),
        (&|abi| abi.memory_fraction(1.5, 0), "a fraction of 1.5"),
        (&|abi| abi.memory_fraction(0.0, 0), "a fraction of 0"),
        (
            &|abi| assert!(abi.base_alloc(stream(first.addr() + 512), null_mut()).is_null()),
            "not a live allocation",
        ),
        (
            &|abi| assert_eq!(abi.stats(0, null_mut()), -1),
            "no struct gpumem_device_stats",
        ),
        (
            &|abi| assert_eq!(abi.stats(0, [0u64; 200].as_mut_ptr()), -1),
            "set the field size",
        ),
        (
            &|abi| assert_eq!(abi.stats(-1, [8u64].as_mut_ptr()), -1),
            "no device -1",
        ),
        (&|abi| assert_eq!(abi.mark(std::ptr::null()), -1), "no name was given"),
        (
            &|abi| assert_eq!(abi.scope_push(std::ptr::null()), -1),
            "no name was given",
        ),
        (&|abi| assert_eq!(abi.scope_pop(), -1), "no scope is open"),
        (
            &|abi| abi.end_allocate_to_pool(0, PoolId(1, 0)),
            "no pool (1, 0) was begun",
        ),
        (&|abi| abi.release_pool(-1, PoolId(1, 0)), "no device -1"),
        (
            &|abi| assert_eq!(abi.pool_held(0, PoolId(1, 0), null_mut(), 0), -1),
            "no pool (1, 0) was begun",
        ),
        (&|abi| assert_eq!(abi.pool_uses(-1, PoolId(1, 0)), -1), "no device -1"),
        (&|abi| assert_eq!(abi.has_history(128), -1), "no device 128"),
        (
            &|abi| abi.begin_allocate_to_pool(0, PoolId(0, 0), none),
            "the id (0, 0) is that of memory which is no pool's",
        ),
        (&|abi| assert_eq!(abi.compact(128), -1), "no device 128"),
        (&|abi| assert_eq!(abi.compact(-2), -1), "no device -2"),
        (
            &|abi| assert_eq!(abi.record_history(0, 3, 10), -1),
            "3 is no value of enum gpumem_stacks",
        ),
        (
            &|abi| assert_eq!(abi.record_history(0, 0, u64::MAX), -1),
            "at most 67108864 can be kept",
        ),
        (&|abi| assert_eq!(abi.record_history(5, 0, 10), -1), "device 5: "),
        (&|abi| assert_eq!(abi.stop_history(128), -1), "no device 128"),
        (&|abi| assert_eq!(abi.reset_peaks(128), -1), "no device 128"),
        (
            &|abi| assert_eq!(abi.peak_report(0, null_mut(), 0), -1),
            "no history is recorded",
        ),
        (
            &|abi| assert_eq!(abi.leak_report(5, 1, null_mut(), 0), -1),
            "nothing was allocated on device 5 yet",
        ),
        (
            &|abi| assert_eq!(abi.snapshot(0, std::ptr::null()), -1),
            "no path was given",
        ),
        (
            &|abi| assert_eq!(abi.snapshot(0, c"".as_ptr()), -1),
            "writing the snapshot : ",
        ),
        (
            &|abi| assert_eq!(abi.snapshot(5, c"x".as_ptr()), -1),
            "nothing was allocated on device 5 yet",
        ),
        (
            &|abi| {
                assert_eq!(abi.record_history(0, 0, 0), 0);
                assert_eq!(abi.peak_report(0, null_mut(), 100), -1);
                assert_eq!(abi.stop_history(0), 0);
            },
            "no buffer was given, with room for 100 bytes",
        ),
    ];
    for (n, (call, words)) in cases.iter().enumerate() {
        call(&abi);
        abi.refused(words);
        assert_eq!(abi.error_count(), n as u64 + 1);
    }
    assert_eq!((abi.figures(0), abi.figures(1)), before);

    let mut size = 1usize;
    assert!(abi.base_alloc(none, &mut size).is_null() && size == 0);
    abi.refused("not a live allocation");
    let base = abi.base_alloc(first, &mut size);
    assert!(base <= first && first.addr() + MIB <= base.addr() + size && abi.error().is_none());
    // What is nothing, and fine.
    let count = abi.error_count();
    abi.free(none, 0, 0, none);
    abi.record_stream(none, none);
    assert!(abi.alloc(0, 0, none).is_null() && abi.torch_alloc(0, 0, none).is_null());
    assert_eq!((abi.error(), abi.error_count()), (None, count));

    let pool = PoolId(3, 4);
    abi.begin_allocate_to_pool(0, pool, [0usize; 4].as_mut_ptr().cast());
    abi.refused("an empty std::function");
    abi.begin_allocate_to_pool(0, pool, stream(9));
    abi.refused("no std::function");
    abi.begin_allocate_to_pool(0, pool, none);
    assert_eq!(abi.empty_cache(0), -1);
    abi.refused("a CUDA graph is being captured");
    abi.end_allocate_to_pool(0, pool);
    assert_eq!(abi.error(), None);
    abi.end_allocate_to_pool(0, pool);
    abi.refused("nothing is allocated to pool (3, 4) now");
    abi.release_pool(0, pool);
    assert_eq!(abi.error(), None);
    abi.release_pool(0, pool);
    abi.refused("no pool (3, 4) was begun on this device");

    for _ in 0..256 {
        assert_eq!(abi.scope_push(c"deeper".as_ptr()), 0);
    }
    assert_eq!(abi.scope_push(c"deeper".as_ptr()), -1);
    abi.refused("256 scopes are open");

    abi.free(first, MIB, 0, none);
    abi.free(first, MIB, 0, none);
    abi.refused("freed before");
    // Messages belong to their thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            abi.free(stream(512), 1, 0, null_mut());
            abi.refused("0x200");
        });
    });
    assert_eq!(abi.error(), None);
}

/// Before the first allocation as after it. The environment is not to blame, and the thread's device is what it was.
#[test]
fn a_fraction_of_no_memory_keeps_the_current_context() {
    let stderr = passes("misuse::inner_a_fraction_is_no_memory", &[]);
    assert!(!stderr.contains("GPUMEM_ALLOC_CONF"), "{stderr}");
}

#[test]
fn inner_a_fraction_is_no_memory() {
    let Some(abi) = library() else { return };
    for _ in 0..2 {
        for fraction in [0.0, 1e-300, 1e-10] {
            abi.memory_fraction(fraction, 0);
            abi.refused("it must be at least 0.000001 and at most 1");
            assert_eq!(current_context(), null_mut());
        }
        // It has changed nothing.
        assert!(!abi.alloc(MIB, 0, null_mut()).is_null());
        assert_eq!(current_context(), null_mut());
    }
    abi.memory_fraction(1e-6, 0);
    assert!(abi.alloc(40 * MIB, 0, null_mut()).is_null());
    abi.refused("budget 8.4 KiB");
    assert_eq!((current_context(), abi.error_count()), (null_mut(), 7));
}

#[test]
fn inner_no_device() {
    let Some(abi) = library() else { return };
    for _ in 0..2 {
        assert!(abi.alloc(MIB, 0, null_mut()).is_null());
        abi.refused("device 0: CUDA_ERROR_NO_DEVICE");
    }
    assert_eq!((abi.empty_cache(-1), abi.figures(0)["num_ooms"]), (0, 0));
}

#[test]
fn inner_driver_fails_once() {
    let Some(abi) = library() else { return };
    let first = abi.alloc(30 * MIB, 0, null_mut());
    assert!(abi.alloc(30 * MIB, 0, null_mut()).is_null());
    abi.refused("cuMemAlloc failed: CUDA_ERROR_UNKNOWN (999)");
    let second = abi.alloc(30 * MIB, 0, null_mut());
    assert!(!second.is_null() && second != first);
    assert_eq!(
        abi.figures(0)["all.reserved_bytes.current"],
        60 << 20,
        "the failed attempt left nothing"
    );
}

#[test]
fn inner_stream_is_gone() {
    let Some(abi) = library() else { return };
    let first = abi.alloc(4 * MIB, 0, null_mut());
    let gone = super::driver_stream();
    let second = abi.alloc(4 * MIB, 0, gone);
    super::destroy_driver_stream(gone);
    abi.record_stream(first, gone);
    abi.free(first, 4 * MIB, 0, null_mut());
    abi.free(second, 4 * MIB, 0, gone);
    let again = abi.alloc(4 * MIB, 0, null_mut());
    assert!(
        !again.is_null() && again != first && again != second,
        "nobody knows whether their users are done"
    );
    abi.free(again, 4 * MIB, 0, null_mut());
    assert!(abi.empty_cache(0) > 0);
    let figures = abi.figures(0);
    assert_eq!(
        (figures["all.active.current"], figures["all.reserved_bytes.current"]),
        (0, 0),
        "nothing is lost"
    );
}

/// The header says so: it is one of the calls that fail and have done something.
#[test]
fn a_limit_holds_where_the_driver_does_not_take_the_cache_back() {
    let told = include_str!("../../../../src/alloc/c/include/gpumem_alloc.h");
    let failed = told.split_once("A call that failed").unwrap().1;
    let failed = failed.split_once("gpumem_last_error() has").unwrap().0;
    assert!(failed.contains("gpumem_memory_fraction"), "{failed}");
    passes(
        "misuse::inner_a_limit_holds",
        &[("FAKE_CUDA_FAIL", "cuMemFree:1"), PLAIN],
    );
}

#[test]
fn inner_a_limit_holds() {
    let Some(abi) = library() else { return };
    abi.free(abi.alloc(40 * MIB, 0, null_mut()), 40 * MIB, 0, null_mut());
    abi.memory_fraction(1.0 / 256.0, 0);
    abi.refused("cuMemFree failed");
    assert!(abi.alloc(50 * MIB, 0, null_mut()).is_null());
    abi.refused("budget 32.0 MiB");
    abi.memory_fraction(1.0 / 256.0, 0);
    let held = abi.alloc(32 * MIB, 0, null_mut());
    assert!(!held.is_null(), "{:?}", abi.error());
}

#[test]
fn inner_old_programs_get_what_they_know() {
    let Some(abi) = library() else { return };
    abi.alloc(MIB, 0, null_mut());
    let mut words = [16u64, 77, 77];
    assert_eq!(abi.stats(0, words.as_mut_ptr()), 0);
    assert_eq!(words, [16, 1, 77], "a struct of two fields");
    let mut words = vec![77u64; 500];
    words[0] = 4000;
    assert_eq!(abi.stats(0, words.as_mut_ptr()), 0);
    assert_eq!((words[0] < 4000, words[499]), (true, 77), "a struct of a later version");
}

#[test]
fn what_keeps_all_devices_from_publishing_is_said_once() {
    let environment = [("GPUMEM_DIR", "/proc/no/such/place"), ("FAKE_CUDA_DEVICES", "3"), PLAIN];
    let said = passes("misuse::inner_uses_three_devices", &environment);
    assert_eq!(said.matches("not publishing").count(), 1, "{said}");
}

#[test]
fn inner_uses_three_devices() {
    let Some(abi) = library() else { return };
    for device in 0..3 {
        let held = abi.alloc(1 << 20, device, null_mut());
        assert!(!held.is_null());
        abi.free(held, 1 << 20, device, null_mut());
    }
}
