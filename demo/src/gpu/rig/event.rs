//! Events that time work.

use cudarc::driver::{DriverError, result, sys};

use super::own_stream::OwnStream;
use crate::gpu::{GpuError, while_doing};

/// An event that has the time.
#[derive(Debug)]
pub(super) struct Event(pub(super) sys::CUevent);

impl Event {
    pub(super) fn new() -> Result<Event, GpuError> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
        event.map(Event).map_err(while_doing("making an event"))
    }

    pub(super) fn record(&self) -> Result<(), DriverError> {
        // SAFETY: the event lives as long as this object; the stream is the default one.
        unsafe { result::event::record(self.0, result::stream::null()) }
    }

    /// Records it on a stream.
    pub(super) fn record_on(&self, stream: &OwnStream) -> Result<(), DriverError> {
        // SAFETY: event and stream live as long as these objects.
        unsafe { result::event::record(self.0, stream.handle()) }
    }

    /// Waits for the event, and returns the nanoseconds since `earlier`.
    pub(super) fn ns_since(&self, earlier: &Event) -> Result<u64, DriverError> {
        // SAFETY: both events live, and were recorded on the same stream.
        let ms = unsafe {
            result::event::synchronize(self.0)?;
            result::event::elapsed(earlier.0, self.0)?
        };
        Ok((f64::from(ms) * 1e6) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is this object's. Destroying one whose context is gone fails, which changes nothing.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
