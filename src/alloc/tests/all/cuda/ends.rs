//! The end of an allocator whose memory the driver does not take.

use cudarc::driver::result::stream::{begin_capture, end_capture};
use cudarc::driver::sys::CUstreamCaptureMode;
use gpumem_alloc::device;
use gpumem_alloc::{SegmentMode, Stream};

use super::{MIB, allocator, free, inner, is_inner};

/// What an inner test says on stderr.
fn said(test: &str, env: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    gpumem_fake_cuda::install(folder.path()).unwrap();
    let output = inner(test, folder.path(), env);
    let text = String::from_utf8(output.stderr).unwrap();
    // A test of which nothing is expected to be said has run, too.
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{test}: {text}");
    let lines = text.lines().filter(|line| line.starts_with("gpumem: "));
    lines.map(str::to_owned).collect()
}

/// It cannot be waited for the device then, and what queued work may use must not go.
#[test]
fn what_a_capture_keeps_goes_later_and_is_said_once() {
    let said = said("cuda::ends::inner_ends_during_a_capture", &[]);
    let begins = "gpumem: 30.0 MiB of device 0 could not be given back when an allocator ended (cuCtxSynchronize failed: \
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)): it is tried again";
    assert!(
        said.len() == 3 && said.iter().all(|line| line.starts_with(begins)),
        "{said:?}"
    );
}

#[test]
fn inner_ends_during_a_capture() {
    if !is_inner() {
        return;
    }
    for segments in [SegmentMode::Plain, SegmentMode::Virtual, SegmentMode::Stitched] {
        let other = device::cuda(0).unwrap();
        let stream = other.cuda_context().unwrap().new_stream().unwrap();
        let before = free(&other);
        let alloc = allocator(segments);
        let held = alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: a stream that lives.
        unsafe { begin_capture(stream.cu_stream(), mode) }.unwrap();
        drop((alloc, held));
        assert_eq!(free(&other), before - (30 << 20));
        // Whoever waits for the device ends the capture.
        // SAFETY: as above; this driver's graphs are none.
        assert!(unsafe { end_capture(stream.cu_stream()) }.is_err());
        let next = allocator(segments);
        assert_eq!(free(&other), before, "{segments:?}");
        drop(next);
    }
}

/// As when a program ends that has closed CUDA before: there is nothing to be said.
#[test]
fn memory_that_went_with_its_context_is_not_missed() {
    for gone in ["cuCtxSynchronize:1:709", "cuCtxSynchronize:1:4", "cuMemFree:1:201"] {
        let said = said(
            "cuda::ends::inner_ends_without_its_context",
            &[("FAKE_CUDA_FAIL", gone)],
        );
        assert_eq!(said, Vec::<String>::new(), "{gone}");
    }
}

#[test]
fn inner_ends_without_its_context() {
    if !is_inner() {
        return;
    }
    let other = device::cuda(0).unwrap();
    let before = free(&other);
    let alloc = allocator(SegmentMode::Plain);
    drop(alloc.alloc::<u8>(30 * MIB, Stream::DEFAULT).unwrap());
    drop(alloc);
    drop(allocator(SegmentMode::Plain));
    assert_eq!(free(&other), before - (30 << 20), "it is not asked again");
}
