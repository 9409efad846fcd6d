//! Devices of one process that reach each other's memory.

use std::ptr::{null_mut, without_provenance_mut};

use super::abi::{Abi, Ptr};
use super::{driver, library, passes, use_device};

const MIB: usize = 1 << 20;

#[test]
fn devices_reach_each_others_memory() {
    assert_eq!(
        passes("peers::inner_each_reaches_each", &[("FAKE_CUDA_DEVICES", "3")]),
        ""
    );
    let many = [("FAKE_CUDA_DEVICES", "16")];
    assert_eq!(passes("peers::inner_opened_at_the_same_time", &many), "");
}

#[test]
fn devices_that_do_not_reach_each_other_are_told_of_once() {
    let said = |environment: &[(&str, &str)]| passes("peers::inner_none_reaches_another", environment);
    let can_fail = "copies between devices 1 and 0 can fail: ";
    let stderr = said(&[("FAKE_CUDA_DEVICES", "3"), ("FAKE_CUDA_PEERS", "0")]);
    assert_eq!(stderr.matches("between devices").count(), 1, "{stderr}");
    assert!(
        stderr.contains(can_fail) && stderr.contains("segments:plain"),
        "{stderr}"
    );
    let refused = [
        ("FAKE_CUDA_DEVICES", "3"),
        ("FAKE_CUDA_FAIL", "cuDeviceCanAccessPeer:1"),
    ];
    let stderr = said(&refused);
    assert!(
        stderr.contains(can_fail) && stderr.contains("CUDA_ERROR_UNKNOWN"),
        "{stderr}"
    );
    // Plain memory is CUDA's business.
    let plain = [
        ("FAKE_CUDA_DEVICES", "3"),
        ("FAKE_CUDA_PEERS", "0"),
        ("GPUMEM_ALLOC_CONF", "segments:plain"),
    ];
    assert_eq!(passes("peers::inner_plain_memory", &plain), "");
}

#[test]
fn what_runs_out_of_memory_of_several_devices_is_said() {
    let small = [("FAKE_CUDA_DEVICES", "2"), ("FAKE_CUDA_TOTAL", "67108864")];
    passes("peers::inner_says_what_runs_out_of_memory", &small);
}

fn alloc(abi: &Abi, device: i32) -> Ptr {
    let pointer = abi.alloc(24 * MIB, device, null_mut());
    assert!(!pointer.is_null());
    pointer
}

/// Whether a kernel of a device could write memory.
fn reaches(device: i32, pointer: Ptr) -> bool {
    use_device(device);
    let fill = |fill: unsafe extern "C" fn(u64, u8, usize, u64) -> i32| {
        // SAFETY: a block of so many bytes that was allocated here.
        unsafe { fill(pointer.addr() as u64, 0, 24 * MIB, 0) }
    };
    driver(c"cuMemsetD8Async", fill) == 0
}

#[test]
fn inner_each_reaches_each() {
    let Some(abi) = library() else { return };
    let mut held = vec![alloc(&abi, 0)];
    assert!(!reaches(1, held[0]), "nothing was allocated there");
    for device in [1, 0, 2, 1] {
        held.push(alloc(&abi, device));
    }
    for device in 0..3 {
        assert!(held.iter().all(|pointer| reaches(device, *pointer)), "{device}");
    }
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}

#[test]
fn inner_opened_at_the_same_time() {
    let Some(abi) = library() else { return };
    let abi = &abi;
    let held: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|device| scope.spawn(move || alloc(abi, device).addr()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for device in 0..16 {
        let all = held.iter().all(|addr| reaches(device, without_provenance_mut(*addr)));
        assert!(all, "{device}");
    }
}

#[test]
fn inner_none_reaches_another() {
    let Some(abi) = library() else { return };
    let [first, second, _] = [0, 1, 2].map(|device| alloc(&abi, device));
    let held = [first, second];
    assert!(reaches(0, held[0]) && reaches(1, held[1]));
    assert!(!reaches(1, held[0]) && !reaches(0, held[1]));
}

#[test]
fn inner_says_what_runs_out_of_memory() {
    let Some(abi) = library() else { return };
    let refused = |device| {
        assert!(abi.alloc(70 * MIB, device, null_mut()).is_null());
        abi.error().unwrap()
    };
    let text = "out of GPU memory: 70.0 MiB requested";
    alloc(&abi, 0);
    let alone = refused(0);
    assert!(alone.starts_with(&format!("gpumem_alloc: {text}")), "{alone}");
    for device in [1, 0] {
        alloc(&abi, device);
        let said = refused(device);
        assert!(
            said.starts_with(&format!("gpumem_alloc: device {device}: {text}")),
            "{said}"
        );
    }
}

#[test]
fn inner_plain_memory() {
    let Some(abi) = library() else { return };
    for device in 0..3 {
        alloc(&abi, device);
    }
    assert_eq!((abi.error_count(), abi.error()), (0, None));
}
