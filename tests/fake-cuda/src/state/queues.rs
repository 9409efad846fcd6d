//! Streams and events.

use super::{Capture, Event, State};
use crate::{device, result, stream};

/// Returns the current device, or device 0 if there is none: streams and events may be made without a context here.
fn here() -> i32 {
    device::current().unwrap_or(0)
}

impl State {
    pub(crate) fn retain_context(&mut self, device: i32) {
        *self.contexts.entry(device).or_default() += 1;
    }

    /// The last release destroys the context's streams and events.
    pub(crate) fn release_context(&mut self, device: i32) -> Result<(), i32> {
        let held = self.contexts.get_mut(&device).ok_or(result::INVALID_CONTEXT)?;
        *held -= 1;
        if *held == 0 {
            self.contexts.remove(&device);
            self.streams.retain(|_, its| *its != device);
            self.events.retain(|_, event| event.device != device);
        }
        Ok(())
    }

    pub(crate) fn has_context(&self, device: i32) -> bool {
        self.contexts.contains_key(&device)
    }

    pub(crate) fn new_stream(&mut self) -> u64 {
        let id = self.id();
        self.streams.insert(id, here());
        id
    }

    /// Checks that a stream exists. The default streams (0, 1, 2) always do.
    pub(crate) fn stream(&self, stream: u64) -> Result<(), i32> {
        if stream <= 2 || self.streams.contains_key(&stream) {
            return Ok(());
        }
        if self.settings.dead_streams_kill {
            eprintln!("fake CUDA: a call names stream {stream:#x}, which does not exist");
            std::process::abort();
        }
        Err(result::INVALID_HANDLE)
    }

    /// Returns the device of a stream. A default stream is on the current one.
    pub(crate) fn device_of(&self, stream: u64) -> Result<i32, i32> {
        self.stream(stream)?;
        Ok(self.streams.get(&stream).copied().unwrap_or_else(here))
    }

    pub(crate) fn drop_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.streams.remove(&stream).map(|_| ()).ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn begin_capture(&mut self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        match &self.capture {
            Some(_) => Err(result::STREAM_CAPTURE_UNSUPPORTED),
            None => {
                self.capture = Some(Capture { stream, ended: false });
                Ok(())
            }
        }
    }

    pub(crate) fn end_capture(&mut self, stream: u64) -> Result<(), i32> {
        match self.capture.take_if(|capture| capture.stream == stream) {
            Some(Capture { ended: false, .. }) => Ok(()),
            _ => Err(result::STREAM_CAPTURE_INVALIDATED),
        }
    }

    fn is_captured(&self, stream: u64) -> bool {
        self.capture_status(stream) != 0
    }

    /// Returns 1 while a graph is captured from the stream, and 2 once a call has invalidated the capture.
    pub(crate) fn capture_status(&self, stream: u64) -> i32 {
        match &self.capture {
            Some(capture) if capture.stream == stream => 1 + i32::from(capture.ended),
            _ => 0,
        }
    }

    /// Invalidates a capture if this call does so on two H100 with driver 580: a wait for the device does, and so do many other calls, for
    /// any device, if the thread's capture mode is not relaxed.
    pub(super) fn mind_capture(&mut self, name: &str) -> Result<(), i32> {
        let Some(capture) = &self.capture else {
            return Ok(());
        };
        let careless = [
            "cuEventQuery",
            "cuStreamQuery",
            "cuStreamSynchronize",
            "cuMemAlloc",
            "cuMemFree",
        ]
        .contains(&name);
        let waits = name == "cuCtxSynchronize" && self.device_of(capture.stream) == Ok(here());
        self.end_if(waits || careless && !stream::relaxed())
    }

    fn end_if(&mut self, ends: bool) -> Result<(), i32> {
        match &mut self.capture {
            Some(capture) if ends => {
                capture.ended = true;
                Err(result::STREAM_CAPTURE_UNSUPPORTED)
            }
            _ => Ok(()),
        }
    }

    /// Waits for a stream. This invalidates a capture from it, even if the thread's capture mode is relaxed.
    pub(crate) fn wait_for_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        self.end_if(self.is_captured(stream))?;
        self.finish_all();
        Ok(())
    }

    /// Checks a stream for a query of its id. This invalidates a capture from it, even if the thread's capture mode is relaxed.
    pub(crate) fn name_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        self.end_if(self.is_captured(stream))
    }

    /// Returns "not ready" whenever events take several queries.
    pub(crate) fn query_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        self.end_if(self.is_captured(stream))?;
        match self.settings.event_queries {
            0 => Ok(()),
            _ => Err(result::NOT_READY),
        }
    }

    pub(crate) fn new_event(&mut self) -> u64 {
        let id = self.id();
        let device = here();
        self.events.insert(id, Event { device, left: 0 });
        id
    }

    /// The event and the stream must be on the same device.
    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Result<(), i32> {
        let (device, queries) = (self.device_of(stream)?, self.settings.event_queries);
        let event = self.events.get_mut(&event).filter(|event| event.device == device);
        event.map(|event| event.left = queries).ok_or(result::INVALID_HANDLE)
    }

    /// Makes the event wait for everything that a device has queued. This invalidates a capture.
    pub(crate) fn record_all(&mut self, device: i32, event: u64) -> Result<(), i32> {
        let captures = self.capture.as_ref().map(|capture| capture.stream);
        let ends = captures.is_some_and(|stream| self.device_of(stream) == Ok(device));
        self.end_if(ends)?;
        let queries = self.settings.event_queries;
        let event = self.events.get_mut(&event).filter(|event| event.device == device);
        event.map(|event| event.left = queries).ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn query(&mut self, event: u64) -> Result<(), i32> {
        let left = self.events.get_mut(&event).map(|event| &mut event.left);
        let left = left.ok_or(result::INVALID_HANDLE)?;
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(result::NOT_READY)
    }

    pub(crate) fn wait(&mut self, event: u64) -> Result<(), i32> {
        self.events
            .get_mut(&event)
            .map(|event| event.left = 0)
            .ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn drop_event(&mut self, event: u64) -> Result<(), i32> {
        self.events.remove(&event).map(|_| ()).ok_or(result::INVALID_HANDLE)
    }

    /// Completes everything that is queued on the current device.
    pub(crate) fn finish_all(&mut self) {
        let here = self.events.values_mut().filter(|event| event.device == here());
        here.for_each(|event| event.left = 0);
    }
}
