//! Graph captures that the allocator is not told about.

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use gpumem_alloc::{SegmentMode, Stream};
use gpumem_text::units::MIB;

use crate::{Bench, Found, ensure};

const BYTES: usize = 256 << 20;

/// Captures a stream whose memory another one may reuse. Querying that stream would end the capture.
pub(crate) fn captures_go_on(bench: &Bench, segments: SegmentMode) -> Found {
    let context = bench.device.cuda_context().ok_or("no CUDA device")?;
    let (captured, other) = (context.new_stream()?, context.new_stream()?);
    let allocator = bench.allocator(segments)?;
    drop(allocator.alloc::<u8>(BYTES, Stream::from(&captured))?);
    captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let buffer = allocator.alloc::<u8>(BYTES, Stream::from(&other))?;
    let status = captured.capture_status()?;
    ensure(
        status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        format!("the capture is {status:?}"),
    )?;
    captured.end_capture(CUgraphInstantiate_flags(0))?;
    let during = allocator.stats().all().reserved_bytes.current;
    drop(buffer);
    let both = [&captured, &other].map(|stream| allocator.alloc::<u8>(BYTES, Stream::from(stream)));
    let after = allocator.stats().all().reserved_bytes.current;
    ensure(both.iter().all(Result::is_ok), "no memory afterwards".to_owned())?;
    ensure(after == during, format!("{after} bytes after it, {during} in it"))?;
    Ok(format!("{} MiB", after / MIB))
}
