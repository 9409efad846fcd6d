//! Streams and events.

use super::{Capture, Event, State};
use crate::{device, result, stream};

/// The current device. Streams and events may be made without one here.
fn here() -> i32 {
    device::current().unwrap_or(0)
}

impl State {
    pub(crate) fn retain_context(&mut self, device: i32) {
        *self.contexts.entry(device).or_default() += 1;
    }

    /// With the last of it go its streams and events.
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

    /// The default streams (0, 1, 2) are always there.
    pub(crate) fn stream(&self, stream: u64) -> Result<(), i32> {
        if stream <= 2 || self.streams.contains_key(&stream) {
            return Ok(());
        }
        if self.settings.dead_streams_kill {
            eprintln!("fake CUDA: stream {stream:#x} is none, and a call names it");
            std::process::abort();
        }
        Err(result::INVALID_HANDLE)
    }

    /// The device that a stream is on: a default stream is on the current one.
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

    /// 1 while a graph is captured from the stream, 2 once something has ended that before its end.
    pub(crate) fn capture_status(&self, stream: u64) -> i32 {
        match &self.capture {
            Some(capture) if capture.stream == stream => 1 + i32::from(capture.ended),
            _ => 0,
        }
    }

    /// What ends the capture of a graph, as it was seen on two H100 with driver 580: to wait for its device, and where the thread was not told
    /// to be relaxed much else, of any device.
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

    /// Waits for a stream, which ends the capture of a graph from it, also where the thread is relaxed.
    pub(crate) fn wait_for_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        self.end_if(self.is_captured(stream))?;
        self.finish_all();
        Ok(())
    }

    /// Asks for a stream's number, which ends the capture of a graph from it, also where the thread is relaxed.
    pub(crate) fn name_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        self.end_if(self.is_captured(stream))
    }

    /// Where events are done late streams are always busy.
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

    /// Both must be of the same device.
    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Result<(), i32> {
        let (device, queries) = (self.device_of(stream)?, self.settings.event_queries);
        let event = self.events.get_mut(&event).filter(|event| event.device == device);
        event.map(|event| event.left = queries).ok_or(result::INVALID_HANDLE)
    }

    /// The event waits for all that a device has queued. That ends the capture of a graph.
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

    /// What is queued on the current device is done.
    pub(crate) fn finish_all(&mut self) {
        let here = self.events.values_mut().filter(|event| event.device == here());
        here.for_each(|event| event.left = 0);
    }
}
