//! The functions doing what they are for.

use std::collections::HashSet;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Mutex;

use gpumem_tests::{World, said};

use super::abi::{Ptr, stream};
use super::{inner_with_stderr, library, passes};

const MIB: usize = 1 << 20;

#[test]
fn it_allocates_counts_and_gives_back() {
    assert_eq!(passes("usage::inner_allocates_counts_and_gives_back", &[]), "");
    let late = [("FAKE_CUDA_EVENT_QUERIES", "3")];
    assert_eq!(passes("usage::inner_waits_for_other_streams", &late), "");
    let job = [("GPUMEM_JOB", "train-07")];
    assert_eq!(passes("usage::inner_names_are_published", &job), "");
    let devices = [("FAKE_CUDA_DEVICES", "2")];
    assert_eq!(passes("usage::inner_threads_share_two_devices", &devices), "");
    let small = [("FAKE_CUDA_TOTAL", "134217728")];
    let stderr = passes("usage::inner_takes_a_fraction", &small);
    assert!(stderr.contains("out of GPU memory: 70.0 MiB requested"), "{stderr}");
    passes("usage::inner_is_told_of_too_little_memory", &[]);
}

/// There is much to complain about, and nowhere to say it.
#[test]
fn a_full_stderr_is_no_reason_to_fail() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let told = [
        ("GPUMEM_DIR", "/proc/no/such/place"),
        ("GPUMEM_ALLOC_CONF", "budget_mb:64,nonsense:1"),
    ];
    let output = inner_with_stderr(
        &World::without_gpu(),
        "usage::inner_fails_and_goes_on",
        &told,
        full.into(),
    );
    let stdout = said(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[test]
fn inner_fails_and_goes_on() {
    let Some(abi) = library() else { return };
    assert!(abi.alloc(usize::MAX, 0, null_mut()).is_null());
    abi.refused("larger than any device");
    let held = abi.alloc(MIB, 0, null_mut());
    assert!(!held.is_null(), "{:?}", abi.error());
    abi.free(held, MIB, 0, null_mut());
    assert_eq!(abi.error_count(), 1);
}

/// What the environment says holds for programs that know nothing of us; what it says wrong is said, once, and nothing breaks.
#[test]
fn the_environment_configures_it() {
    let told = [("GPUMEM_ALLOC_CONF", "budget_mb:64, roundup_power2_divisions:1")];
    assert_eq!(
        passes("usage::inner_has_a_budget", &told)
            .matches("budget 64.0 MiB")
            .count(),
        1
    );
    for (wrong, complaint) in [
        ("max_splt_size_mb:64", "GPUMEM_ALLOC_CONF, column 1: there is no option"),
        (
            "max_split_size_mb=64",
            "GPUMEM_ALLOC_CONF, column 18: expected a colon between an option and its value",
        ),
    ] {
        let stderr = passes(
            "usage::inner_allocates_counts_and_gives_back",
            &[("GPUMEM_ALLOC_CONF", wrong)],
        );
        assert!(
            stderr.contains(complaint) && stderr.contains("goes on with its defaults"),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
    }
    // What PyTorch takes and this allocator has no use for is said, once, and the rest holds.
    let idle = "budget_mb:64,roundup_power2_divisions:1,expandable_segments:True,max_split_size_mb:512,pinned_use_background_threads:True";
    let stderr = passes("usage::inner_has_a_budget", &[("GPUMEM_ALLOC_CONF", idle)]);
    for said in [
        "gpumem: GPUMEM_ALLOC_CONF: max_split_size_mb: no effect with expandable_segments:True",
        "gpumem: GPUMEM_ALLOC_CONF: pinned_use_background_threads: no effect",
    ] {
        assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
    }
    assert!(!stderr.contains("defaults"), "{stderr}");
    let stderr = passes(
        "usage::inner_allocates_counts_and_gives_back",
        &[("GPUMEM_ALLOC_CONF", "garbage_collection_threshold:0.8")],
    );
    assert!(
        stderr.contains("garbage_collection_threshold: no effect without a budget") && stderr.lines().count() == 1,
        "{stderr}"
    );
    // A fraction that the program sets is a budget too.
    let collecting = [
        ("GPUMEM_ALLOC_CONF", "garbage_collection_threshold:0.8"),
        ("FAKE_CUDA_TOTAL", "134217728"),
    ];
    let stderr = passes("usage::inner_takes_a_fraction", &collecting);
    assert!(
        !stderr.contains("defaults") && !stderr.contains("no effect"),
        "{stderr}"
    );
}

/// Before anything is allocated.
#[test]
fn what_is_wrong_with_the_environment_can_be_asked() {
    for (conf, wrong) in [
        ("", ""),
        ("max_split_size_mb:64,pinned_use_background_threads:True", ""),
        ("nonsense:1", "GPUMEM_ALLOC_CONF, column 1: there is no option"),
    ] {
        let told = [("GPUMEM_ALLOC_CONF", conf), ("WRONG", wrong)];
        assert_eq!(passes("usage::inner_asks_what_is_wrong", &told), "", "{conf}");
    }
}

#[test]
fn inner_asks_what_is_wrong() {
    let Some(abi) = library() else { return };
    let wrong = std::env::var("WRONG").unwrap();
    let length = usize::try_from(abi.conf_error(null_mut(), 0)).unwrap();
    let mut text = vec![1; length + 1];
    assert_eq!(abi.conf_error(text.as_mut_ptr(), text.len()), length as i64);
    // SAFETY: it was written with the zero byte that ends it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap();
    assert!(
        text.starts_with(&wrong) && text.is_empty() == wrong.is_empty(),
        "{text}"
    );
}

#[test]
fn inner_has_a_budget() {
    let Some(abi) = library() else { return };
    assert!(abi.alloc(65 * MIB, 0, null_mut()).is_null());
    let held = abi.alloc(64 * MIB, 0, null_mut());
    assert!(!held.is_null());
    abi.free(held, 64 * MIB, 0, null_mut());
}

#[test]
fn inner_allocates_counts_and_gives_back() {
    let Some(abi) = library() else { return };
    abi.init(1);
    assert!(
        abi.figures(0).iter().all(|(name, n)| name == "size" || *n == 0),
        "nothing yet"
    );
    let held = [
        abi.alloc(1000, 0, null_mut()),
        abi.torch_alloc(3 * MIB, 0, stream(1)),
        abi.cupy_malloc(stream(0x50), MIB, 0),
    ];
    assert!(held.iter().all(|ptr| !ptr.is_null() && ptr.addr().is_multiple_of(512)));
    let figures = abi.figures(0);
    let allocated = 1024 + 4 * MIB as u64;
    assert_eq!(
        ["allocation.current", "requested_bytes.current", "allocated_bytes.peak"]
            .map(|name| figures[&format!("all.{name}")]),
        [3, allocated - 24, allocated]
    );
    assert_eq!(figures["small_pool.allocation.allocated"], 2);
    assert_eq!(
        figures["all.reserved_bytes.current"],
        figures["all.allocated_bytes.current"] + figures["free_bytes"]
    );
    assert!(figures["largest_free_bytes"] > 0 && figures["free_blocks"] > 0 && figures["num_device_alloc"] > 0);
    let reserved = figures["all.reserved_bytes.current"];

    abi.free(held[0], 1000, 0, null_mut());
    // The legacy default stream by its other name.
    abi.torch_free(held[1], 3 * MIB, 0, null_mut());
    abi.cupy_free(stream(0x50), held[2], 0);
    assert_eq!(abi.alloc(1000, 0, null_mut()), held[0], "the cache has it");
    abi.free(held[0], 1000, 0, null_mut());
    assert_eq!(
        (abi.figures(0)["all.active.current"], abi.empty_cache(0)),
        (0, reserved as i64)
    );
    assert_eq!(
        (abi.empty_cache(-1), abi.figures(0)["all.reserved_bytes.current"]),
        (0, 0)
    );

    abi.free(abi.alloc(MIB, 0, null_mut()), MIB, 0, null_mut());
    abi.reset();
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 0);
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

#[test]
fn inner_waits_for_other_streams() {
    let Some(abi) = library() else { return };
    let home = null_mut();
    let [recorded, freed_there, plain] = [(); 3].map(|()| abi.alloc(4 * MIB, 0, home));
    let away = super::driver_stream();
    abi.record_stream(recorded, away);
    abi.free(recorded, 4 * MIB, 0, home);
    abi.free(freed_there, 4 * MIB, 0, away);
    abi.free(plain, 4 * MIB, 0, home);
    let figures = abi.figures(0);
    assert_eq!(
        (figures["all.allocation.current"], figures["all.active.current"]),
        (0, 2)
    );
    assert_eq!(abi.alloc(4 * MIB, 0, home), plain, "the one that nobody else uses");
    abi.free(plain, 4 * MIB, 0, home);
    abi.reset();
    assert_eq!((abi.figures(0)["all.active.current"], abi.error_count()), (0, 0));
}

#[test]
fn inner_names_are_published() {
    let Some(abi) = library() else { return };
    let long = std::ffi::CString::new("x".repeat(100_000)).unwrap();
    for name in [c"outer".as_ptr(), c"in\xffner".as_ptr(), c"".as_ptr(), long.as_ptr()] {
        assert_eq!(abi.scope_push(name), 0);
        assert!(!abi.alloc(2 * MIB, 0, null_mut()).is_null());
        assert_eq!(abi.mark(name), 0);
    }
    let mut names: Vec<String> = Vec::new();
    let found = gpumem_channel::discover();
    let mut reader = gpumem_channel::Reader::open(&found.found[0].path).unwrap();
    let snapshot = reader.refresh().unwrap();
    assert_eq!(Ok(&*snapshot.identity.job), std::env::var("GPUMEM_JOB").as_deref());
    for block in snapshot.devices[0].blocks() {
        names.push(snapshot.string(block.tag).to_owned());
    }
    assert!(names.iter().any(|name| name == "outer"), "{names:?}");
    assert!(names.iter().any(|name| name == "in\u{fffd}ner"), "{names:?}");
    for _ in 0..4 {
        assert_eq!(abi.scope_pop(), 0);
    }
    // One that is set is beside those that nest.
    let mut tags = Vec::new();
    let mut taken = || {
        let addr = abi.alloc(3 * MIB, 0, null_mut()) as u64;
        let snapshot = reader.refresh().unwrap();
        let block = snapshot.devices[0].blocks().find(|block| block.addr == addr).unwrap();
        tags.push(snapshot.string(block.tag).to_owned());
    };
    let set = |name: &CStr| assert_eq!(abi.scope_set(name.as_ptr()), 0);
    set(c"one");
    taken();
    assert_eq!(abi.scope_push(c"nested".as_ptr()), 0);
    taken();
    set(c"two");
    taken();
    assert_eq!(abi.scope_pop(), 0);
    taken();
    assert_eq!(abi.scope_push(c"nested".as_ptr()), 0);
    set(c"");
    taken();
    assert_eq!(abi.scope_pop(), 0);
    taken();
    assert_eq!(abi.scope_set(std::ptr::null()), 0);
    assert_eq!(tags, ["one", "nested", "two", "two", "nested", ""]);
    assert_eq!(abi.error_count(), 0);
}

#[test]
fn inner_threads_share_two_devices() {
    let Some(abi) = library() else { return };
    let abi = &abi;
    let mut owners = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let device = thread % 2;
                    let mut held: Vec<(usize, usize)> = Vec::new();
                    for step in 0..2000 {
                        let size = 1 + (step * 7919 + thread as usize * 104_729) % (5 * MIB);
                        let ptr = abi.alloc(size, device, stream(0x100 + thread as usize));
                        assert!(!ptr.is_null(), "{:?}", abi.error());
                        held.push((ptr.addr(), size));
                        if held.len() > 20 {
                            let (addr, size) = held.swap_remove(step % 20);
                            abi.free(stream(addr), size, device, stream(0x100 + thread as usize));
                        }
                    }
                    (device, held)
                })
            })
            .collect();
        owners.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    });
    let distinct: HashSet<usize> = owners
        .iter()
        .flat_map(|(_, held)| held)
        .map(|(addr, _)| *addr)
        .collect();
    assert_eq!(distinct.len(), 160, "each has its own memory");
    for device in [0, 1] {
        assert_eq!(abi.figures(device)["all.allocation.current"], 80);
    }
    // Another thread than the one that allocated.
    for (device, held) in owners {
        for (addr, size) in held {
            abi.free(stream(addr), size, device, null_mut());
        }
    }
    for device in [0, 1] {
        assert_eq!(abi.figures(device)["all.allocation.current"], 0);
    }
    assert_eq!(abi.error_count(), 0);
}

#[test]
fn inner_takes_a_fraction() {
    let Some(abi) = library() else { return };
    abi.memory_fraction(0.5, 0);
    assert_eq!(abi.error(), None);
    let large = abi.alloc(40 * MIB, 0, null_mut());
    assert!(!large.is_null());
    let refused: Ptr = abi.torch_alloc(70 * MIB, 0, null_mut());
    assert!(refused.is_null(), "without PyTorch nothing is thrown");
    abi.refused("gpumem_torch_alloc: CUDA out of memory. out of GPU memory: 70.0 MiB requested");
    assert_eq!(abi.figures(0)["num_ooms"], 1);
    abi.memory_fraction(1.0, 0);
    let more = abi.alloc(70 * MIB, 0, null_mut());
    assert!(!more.is_null(), "{:?}", abi.error());
    abi.free(more, 70 * MIB, 0, null_mut());
    abi.memory_fraction(0.4, 0);
    assert_eq!(abi.error(), None);
    assert_eq!(
        abi.figures(0)["all.reserved_bytes.current"],
        40 * MIB as u64,
        "the cache went back"
    );
    abi.free(large, 40 * MIB, 0, null_mut());
}

/// What the function below was told.
static TOLD: Mutex<Vec<(i32, usize)>> = Mutex::new(Vec::new());

extern "C" fn told(device: i32, size: usize) {
    TOLD.lock().unwrap().push((device, size));
    // It may call whatever there is.
    library().unwrap().empty_cache(-1);
}

#[test]
fn inner_is_told_of_too_little_memory() {
    let Some(abi) = library() else { return };
    let asks = |size| assert!(abi.torch_alloc(size, 0, null_mut()).is_null());
    asks(1 << 45);
    abi.set_oom_fn(Some(told));
    asks(1 << 45);
    // It is no memory that is missing here, and nobody asks for PyTorch here.
    asks(usize::MAX);
    assert!(abi.torch_alloc(1, 77, null_mut()).is_null());
    assert!(abi.alloc(1 << 45, 0, null_mut()).is_null());
    assert_eq!(*TOLD.lock().unwrap(), [(0, 1 << 45)]);
    abi.set_oom_fn(None);
    asks(1 << 45);
    assert_eq!(TOLD.lock().unwrap().len(), 1);
}
