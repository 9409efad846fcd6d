//! Private pools as PyTorch uses them: a filter is a `std::function` of libstdc++, made here by hand.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{PoolId, stream};
use crate::{library, passes};

const MIB: usize = 1 << 20;

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

#[test]
fn graphs_keep_what_they_use() {
    assert_eq!(passes("pools::inner_pools", &[]), "");
}

/// What other threads send to a pool is on its way there when it is released, and begun anew.
#[test]
fn threads_begin_the_pools_that_they_released() {
    assert_eq!(passes("pools::inner_threads_have_pools", &[]), "");
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
    abi.free(again, 30 * MIB, 0, captured);
    abi.end_allocate_to_pool(0, pool);
    assert_eq!((abi.error(), COPIES.load(Ordering::Relaxed)), (None, 0));

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
    assert_eq!(abi.figures(0)["all.reserved_bytes.current"], 30 * MIB as u64);
    assert_eq!(abi.error(), None);
}
