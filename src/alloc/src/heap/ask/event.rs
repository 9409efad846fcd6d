//! Events: recorded and queried by who does not hold the heap's lock.

use std::sync::{Arc, OnceLock};

use crate::device::{Driver, EventHandle};
use crate::error::DeviceError;
use crate::stream::Stream;

/// An event on a stream, recorded or yet to be. It goes back to the driver when nobody has it any more, so that whoever asks how far it is
/// may do so while others learn that it is done.
#[derive(Clone, Debug)]
pub(in crate::heap) struct Event(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: all streams.
    stream: Option<Stream>,
    handle: OnceLock<EventHandle>,
    driver: Arc<dyn Driver>,
}

impl Event {
    /// One that is to be recorded.
    pub(in crate::heap) fn new(driver: &Arc<dyn Driver>, stream: Stream) -> Event {
        Event::on(driver, Some(stream))
    }

    /// One that is to be recorded behind what all streams have queued.
    pub(in crate::heap) fn behind_all(driver: &Arc<dyn Driver>) -> Event {
        Event::on(driver, None)
    }

    fn on(driver: &Arc<dyn Driver>, stream: Option<Stream>) -> Event {
        Event(Arc::new(Inner {
            stream,
            handle: OnceLock::new(),
            driver: Arc::clone(driver),
        }))
    }

    /// Records it, once. Where the driver refuses it stays as it is.
    pub(in crate::heap) fn record(&self) {
        let recorded = match self.0.stream {
            Some(stream) => self.0.driver.record(stream),
            None => self.0.driver.record_all(),
        };
        if let Ok(handle) = recorded {
            self.0.handle.get_or_init(|| handle);
        }
    }

    /// Whether it was recorded. What waits for one that was not waits for a later one of its stream, or for the device.
    pub(in crate::heap) fn is_recorded(&self) -> bool {
        self.0.handle.get().is_some()
    }

    /// Whether the work before it is done.
    pub(in crate::heap) fn query(&self) -> Result<bool, DeviceError> {
        self.0
            .handle
            .get()
            .map_or(Ok(false), |handle| self.0.driver.query(*handle))
    }

    /// Whether both are the same.
    pub(in crate::heap) fn is(&self, other: &Event) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.driver.retire(handle);
        }
    }
}
