//! Opening a device, or not.

use gpumem_alloc::device;
use gpumem_alloc::{SegmentMode, Stream};

use super::{EXPECTED, MIB, allocator, is_inner};

#[test]
fn inner_says_no_device() {
    if !is_inner() {
        return;
    }
    let error = device::cuda(0).unwrap_err().to_string();
    assert!(
        error.contains("CUDA_ERROR_NO_DEVICE: ") && error.contains("nvidia-smi"),
        "{error}"
    );
}

#[test]
fn inner_says_the_number_of_an_error_without_a_name() {
    if !is_inner() {
        return;
    }
    let expected = std::env::var(EXPECTED).unwrap();
    let error = device::cuda(0).unwrap_err().to_string();
    assert!(
        error.contains("an error this driver has no name for (") && error.contains(&expected),
        "{error}"
    );
}

/// cudarc's enum of errors does not know the one that the calls would have which it repeats.
#[test]
fn inner_opens_without_cudarc() {
    if !is_inner() {
        return;
    }
    let alloc = allocator(SegmentMode::Stitched);
    drop(alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap());
}

#[test]
fn inner_says_when_there_is_no_driver() {
    if !is_inner() {
        return;
    }
    // A machine with a driver finds that behind the broken library, and its device is as good.
    if let Err(error) = device::cuda(0) {
        let error = error.to_string();
        assert!(error.contains(&std::env::var(EXPECTED).unwrap()), "{error}");
    }
}

/// What the program was linked with, or has loaded, is what all others in it call.
#[test]
fn inner_calls_the_driver_that_is_loaded() {
    if !is_inner() {
        return;
    }
    drop(
        allocator(SegmentMode::Stitched)
            .alloc::<u8>(MIB, Stream::DEFAULT)
            .unwrap(),
    );
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut drivers: Vec<_> = maps.lines().filter_map(|line| line.split("/libcuda.").nth(1)).collect();
    drivers.dedup();
    assert_eq!(drivers, ["so.1"]);
}
