//! Private pools as PyTorch uses them: a filter is a `std::function` of libstdc++, made here by hand.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::abi::{PoolId, stream};
use super::{library, passes};

const MIB: usize = 1 << 20;

/// Names the file that lets calls of the driver go on, to an inner test.
const GO_ON: &str = "GPUMEM_TESTS_GO_ON";

/// `std::function<bool(cudaStream_t)>`
#[repr(C)]
struct Function {
    data: [usize; 2],
    manager: unsafe extern "C" fn(*mut [usize; 2], *const [usize; 2], c_int) -> bool,
    invoker: unsafe extern "C" fn(*const [usize; 2], *mut *mut c_void) -> bool,
}

static COPIES: AtomicUsize = AtomicUsize::new(0);

/// Copies (2) or destroys (3) what is called.
unsafe extern "C" fn manage(to: *mut [usize; 2], from: *const [usize; 2], operation: c_int) -> bool {
    match operation {
        2 => {
            // SAFETY: libstdc++ passes both.
            unsafe { *to = *from };
            COPIES.fetch_add(1, Ordering::Relaxed);
        }
        3 => {
            COPIES.fetch_sub(1, Ordering::Relaxed);
        }
        other => panic!("operation {other}"),
    }
    false
}

/// Whether the stream is the one in what is called.
unsafe extern "C" fn invoke(data: *const [usize; 2], stream: *mut *mut c_void) -> bool {
    // SAFETY: libstdc++ passes both.
    unsafe { (*data)[0] == (*stream).addr() }
}

/// What a pool leaves goes back without a wait for the device.
const SHARING: (&str, &str) = ("GPUMEM_ALLOC_CONF", "cross_stream_reuse:on");

#[test]
fn graphs_keep_what_they_use() {
    assert_eq!(passes("pools::inner_pools", &[SHARING]), "");
}

/// What other threads send to a pool is on its way there when it is released, and begun anew.
#[test]
fn threads_begin_the_pools_that_they_released() {
    assert_eq!(passes("pools::inner_threads_have_pools", &[]), "");
}

/// One thread's memory is on its way back to the driver, and another thread makes a pool, for which what is left of a third one has to go first.
#[test]
fn who_releases_a_pool_does_not_wait_for_who_makes_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("go-on");
    let file = file.to_str().unwrap();
    let wait = format!("cuMemFree:{file}");
    let environment = [("FAKE_CUDA_WAIT", wait.as_str()), (GO_ON, file), SHARING];
    assert_eq!(passes("pools::inner_a_release_takes_long", &environment), "");
}

#[test]
fn inner_a_release_takes_long() {
    let Some(abi) = library() else { return };
    let go_on = std::env::var_os(GO_ON).unwrap();
    let [long, left, other, new] = [1, 2, 3, 4].map(|number| PoolId(number, 1));
    let begin = |pool| abi.begin_allocate_to_pool(0, pool, null_mut());
    for pool in [long, left, other, other] {
        begin(pool);
        let held = abi.alloc(30 * MIB, 0, null_mut());
        abi.end_allocate_to_pool(0, pool);
        abi.free(held, 30 * MIB, 0, null_mut());
    }
    let soon = || std::thread::sleep(Duration::from_millis(50));
    std::thread::scope(|scope| {
        let frees = scope.spawn(|| abi.release_pool(0, long));
        let waits = Path::new(&go_on).with_extension("waits");
        while !waits.exists() && !frees.is_finished() {
            soon();
        }
        abi.release_pool(0, left);
        let makes = scope.spawn(|| begin(new));
        soon();
        abi.release_pool(0, other);
        let waits = [frees.is_finished(), makes.is_finished()];
        std::fs::write(go_on, "").unwrap();
        assert_eq!(waits, [false; 2]);
    });
    abi.end_allocate_to_pool(0, new);
    [other, new].into_iter().for_each(|pool| abi.release_pool(0, pool));
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 0);
    assert_eq!(abi.error_count(), 0);
}

#[test]
fn inner_threads_have_pools() {
    let Some(abi) = library() else { return };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let abi = &abi;
            scope.spawn(move || {
                let pool = PoolId(thread, 1);
                // Everybody's requests on the default stream.
                let mut function = Function {
                    data: [0, 0],
                    manager: manage,
                    invoker: invoke,
                };
                // Fewer pools than there may be, if no capture ends before the next one begins.
                for size in 1..300 {
                    abi.begin_allocate_to_pool(0, pool, (&raw mut function).cast());
                    let ptr = abi.alloc(size * 5000, 0, null_mut());
                    abi.end_allocate_to_pool(0, pool);
                    abi.free(ptr, 0, 0, null_mut());
                    abi.release_pool(0, pool);
                    assert_eq!(abi.error(), None);
                }
            });
        }
    });
    assert!(abi.empty_cache(0) >= 0);
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 0);
    assert_eq!(abi.error_count(), 0);
}

#[test]
fn inner_pools() {
    let Some(abi) = library() else { return };
    let (captured, other) = (null_mut(), stream(0x6000));
    let pool = PoolId(7, 1);
    let mut function = Function {
        data: [0, 0],
        manager: manage,
        invoker: invoke,
    };
    abi.begin_allocate_to_pool(0, pool, (&raw mut function).cast());
    assert_eq!(abi.error(), None);
    // The program's own goes when the call returns.
    // SAFETY: it is still there; the program does with it what it likes.
    unsafe { (&raw mut function.data[0]).write_volatile(0x6000) };
    assert_eq!(COPIES.load(Ordering::Relaxed), 1);
    let inside = abi.torch_alloc(30 * MIB, 0, captured);
    let outside = abi.torch_alloc(30 * MIB, 0, other);
    abi.free(inside, 30 * MIB, 0, captured);
    let again = abi.torch_alloc(30 * MIB, 0, captured);
    assert_eq!(again, inside, "what was freed in the pool serves the pool");
    let mut held = [0; 2];
    assert_eq!(
        (abi.pool_held(0, pool, held.as_mut_ptr(), 2), abi.pool_uses(0, pool)),
        (1, 1)
    );
    assert_eq!(held, [inside.addr() as u64, 0]);
    assert_eq!(abi.pool_held(0, pool, null_mut(), 0), 1);
    abi.free(again, 30 * MIB, 0, captured);
    abi.end_allocate_to_pool(0, pool);
    assert_eq!((abi.error(), COPIES.load(Ordering::Relaxed)), (None, 0));

    // A filter hears the handle that the calling thread's own stream was named by.
    function.data[0] = 2;
    abi.begin_allocate_to_pool(0, PoolId(8, 1), (&raw mut function).cast());
    let own = abi.torch_alloc(30 * MIB, 0, stream(2));
    abi.end_allocate_to_pool(0, PoolId(8, 1));
    abi.free(own, 30 * MIB, 0, stream(2));
    abi.release_pool(0, PoolId(8, 1));
    assert_eq!(
        abi.figures(0)["all.reserved_bytes.current"],
        60 * MIB as u64,
        "it was the pool's"
    );

    // The graph is replayed; nobody else has its memory.
    abi.free(outside, 30 * MIB, 0, other);
    assert_eq!(abi.empty_cache(0), 30 * MIB as i64);
    let next = abi.alloc(30 * MIB, 0, captured);
    assert!(next != inside);
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 60 * MIB as u64);
    // Another graph shares the pool, on this thread whatever the stream.
    abi.begin_allocate_to_pool(0, pool, null_mut());
    assert_eq!(abi.alloc(30 * MIB, 0, captured), inside);
    abi.end_allocate_to_pool(0, pool);
    abi.release_pool(0, pool);
    abi.free(inside, 30 * MIB, 0, captured);
    assert_eq!(
        abi.figures(0)["all.reserved_bytes.current"],
        60 * MIB as u64,
        "one graph is left"
    );
    abi.release_pool(0, pool);
    assert_eq!(abi.pool_uses(0, pool), 0);
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 30 * MIB as u64);
    assert_eq!(abi.error(), None);
}
