//! Filling the tables while reading: memory for new entries is charged before it is allocated.

use super::error::ReadError;
use super::limits::{Meter, in_map, shared};
use crate::ids::{FrameId, StackId, TextId, ValueId};
use crate::tables::{Frame, Tables, Value};

/// Returns the bytes that an item takes in its table besides what it points to: its element in a growing vector, and
/// its entry in a map.
const fn entry<T>() -> usize {
    3 * size_of::<T>() + in_map::<(T, u32)>()
}

impl Tables {
    pub(crate) fn charged_text(&mut self, text: &str, meter: &mut Meter) -> Result<TextId, ReadError> {
        if let Some(known) = self.find_text(text) {
            return Ok(known);
        }
        meter.charge(entry::<std::sync::Arc<str>>() + shared(text.as_bytes()))?;
        Ok(self.text(text))
    }

    pub(crate) fn charged_frame(&mut self, frame: Frame, meter: &mut Meter) -> Result<FrameId, ReadError> {
        if let Some(known) = self.find_frame(&frame) {
            return Ok(known);
        }
        meter.charge(entry::<Frame>())?;
        Ok(self.frame(frame))
    }

    pub(crate) fn charged_stack(&mut self, frames: &[FrameId], meter: &mut Meter) -> Result<StackId, ReadError> {
        if let Some(known) = self.find_stack(frames) {
            return Ok(known);
        }
        meter.charge(entry::<std::sync::Arc<[FrameId]>>() + shared(frames))?;
        Ok(self.stack(frames))
    }

    /// Adds a value for which `own` bytes were charged; they are released if an equal one exists.
    pub(crate) fn charged_value(&mut self, value: Value, own: usize, meter: &mut Meter) -> Result<ValueId, ReadError> {
        if let Some(known) = self.find_value(&value) {
            meter.release(own);
            return Ok(known);
        }
        meter.charge(entry::<Value>())?;
        Ok(self.value(value))
    }
}
