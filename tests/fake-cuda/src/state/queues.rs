//! Streams and events.

use super::State;
use crate::result;

impl State {
    pub(crate) fn new_stream(&mut self) -> u64 {
        let id = self.id();
        self.streams.insert(id, ());
        id
    }

    /// The default streams (0, 1, 2) are always there.
    pub(crate) fn stream(&self, stream: u64) -> Result<(), i32> {
        if stream <= 2 || self.streams.contains_key(&stream) {
            Ok(())
        } else {
            Err(result::INVALID_HANDLE)
        }
    }

    pub(crate) fn drop_stream(&mut self, stream: u64) -> Result<(), i32> {
        self.streams.remove(&stream).ok_or(result::INVALID_HANDLE)
    }

    /// Where events are done late streams are always busy.
    pub(crate) fn query_stream(&self, stream: u64) -> Result<(), i32> {
        self.stream(stream)?;
        match self.settings.event_queries {
            0 => Ok(()),
            _ => Err(result::NOT_READY),
        }
    }

    pub(crate) fn new_event(&mut self) -> u64 {
        let id = self.id();
        self.events.insert(id, 0);
        id
    }

    pub(crate) fn record(&mut self, event: u64) -> Result<(), i32> {
        let queries = self.settings.event_queries;
        self.events
            .get_mut(&event)
            .map(|left| *left = queries)
            .ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn query(&mut self, event: u64) -> Result<(), i32> {
        let left = self.events.get_mut(&event).ok_or(result::INVALID_HANDLE)?;
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(result::NOT_READY)
    }

    pub(crate) fn wait(&mut self, event: u64) -> Result<(), i32> {
        self.events
            .get_mut(&event)
            .map(|left| *left = 0)
            .ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn drop_event(&mut self, event: u64) -> Result<(), i32> {
        self.events.remove(&event).map(|_| ()).ok_or(result::INVALID_HANDLE)
    }

    pub(crate) fn finish_all(&mut self) {
        self.events.values_mut().for_each(|left| *left = 0);
    }
}
