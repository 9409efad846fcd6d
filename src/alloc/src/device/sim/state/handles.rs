//! Streams by their handles: a driver gives the handle of a stream that was destroyed to another one.

use std::collections::HashMap;

use gpumem_channel::NO_STREAM;

use super::State;
use crate::device::{Call, Result};
use crate::stream::Stream;

/// One stream: its handle, and how many of the same handle were destroyed before it.
pub(super) type Name = (Stream, u64);

/// What became of handles. Any number is the handle of a stream unless something is known of it.
#[derive(Debug, Default)]
pub(super) struct Handles(HashMap<Stream, Handle>);

#[derive(Debug, Default)]
struct Handle {
    destroyed: u64,
    is_gone: bool,
}

impl Handles {
    /// The stream that has the handle now; `None` if it was destroyed, or there cannot be one.
    pub(super) fn name_of(&self, stream: Stream) -> Option<Name> {
        match self.0.get(&stream) {
            None if stream.0 == NO_STREAM => None,
            None => Some((stream, 0)),
            Some(handle) => (!handle.is_gone).then_some((stream, handle.destroyed)),
        }
    }

    pub(super) fn is_alive(&self, name: Name) -> bool {
        self.name_of(name.0) == Some(name)
    }
}

impl State {
    /// The stream that a call names: of one that was destroyed, or of none, the real driver dies.
    pub(in crate::device::sim) fn named(&mut self, call: Call, stream: Stream) -> Result<Name> {
        match self.handles.name_of(stream) {
            Some(name) => Ok(name),
            None => self.violation(call, format!("stream {:#x} was destroyed, or never was", stream.0)),
        }
    }

    /// No other stream ever has it.
    pub(in crate::device::sim) fn stream_id(&mut self, stream: Stream) -> Option<u64> {
        // A driver asked about a stream that is gone dies, as in all calls that name one.
        let (_, destroyed) = self.named(Call::Record, stream).ok()?;
        if self.captured.contains(&stream.0) {
            return None;
        }
        Some(stream.0.wrapping_mul(1 << 20).wrapping_add(destroyed))
    }

    pub(in crate::device::sim) fn create_stream(&mut self, stream: Stream) {
        match self.handles.0.get_mut(&stream) {
            Some(handle) if handle.is_gone => handle.is_gone = false,
            _ => self
                .violations
                .push(format!("cuStreamCreate: there is a stream {:#x}", stream.0)),
        }
    }

    pub(in crate::device::sim) fn destroy_stream(&mut self, stream: Stream) {
        let handle = self.handles.0.entry(stream).or_default();
        if handle.is_gone || stream == Stream::DEFAULT {
            self.violations.push(format!(
                "cuStreamDestroy: there is no stream {:#x} to destroy",
                stream.0
            ));
            return;
        }
        handle.destroyed += 1;
        handle.is_gone = true;
        // What was queued goes on.
        self.forget_queues();
    }
}
