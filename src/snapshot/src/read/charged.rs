//! The tables as a reader fills them: what is new in them is charged before it is there.

use super::error::ReadError;
use super::limits::{Meter, in_map, shared};
use crate::ids::{FrameId, StackId, TextId, ValueId};
use crate::tables::{Frame, Tables, Value};

/// What a thing takes in its table besides what it points to: its place in a vector that grows and copies, and in a map.
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

    /// A value with the bytes that it was charged for, which are given back if there is an equal one.
    pub(crate) fn charged_value(&mut self, value: Value, own: usize, meter: &mut Meter) -> Result<ValueId, ReadError> {
        if let Some(known) = self.find_value(&value) {
            meter.give_back(own);
            return Ok(known);
        }
        meter.charge(entry::<Value>())?;
        Ok(self.value(value))
    }
}
