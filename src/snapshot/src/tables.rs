//! Deduplicated data of a snapshot: texts, frames, call stacks, and values without a fixed shape.
//!
//! A real file of 3 MB had 700,000 references to 668 frames. Equal items have the same number within one [`Tables`];
//! numbers of different tables are unrelated.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::ids::{FrameId, StackId, TextId, ValueId};
use crate::names;

/// One line of a call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Name of the function.
    pub name: TextId,
    /// Name of its source file.
    pub filename: TextId,
    /// Line in that file; 0 if the compiler recorded none, -1 if Python has none for an instruction.
    pub line: i64,
    /// A dict of the unknown keys (`fx_node_op` and the like).
    pub extra: Option<ValueId>,
}

/// A Python value whose shape is not fixed: settings, metadata, keys of newer versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer that fits 64 bits with a sign.
    Int(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    /// A float, as its bits (so that equal values have one number).
    Float(u64),
    /// A str.
    Text(TextId),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list.
    List(Arc<[ValueId]>),
    /// A tuple. JSON has none: there it becomes a list.
    Tuple(Arc<[ValueId]>),
    /// A dict, in its order; no key twice.
    Dict(Arc<[(ValueId, ValueId)]>),
}

/// Items and their numbers.
#[derive(Clone, Debug)]
struct Interner<T> {
    things: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Interner<T> {
    fn new() -> Interner<T> {
        Interner {
            things: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn find<Q>(&self, thing: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.numbers.get(thing).copied()
    }

    fn number<Q>(&mut self, thing: &Q, own: impl FnOnce() -> T) -> u32
    where
        T: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(number) = self.find(thing) {
            return number;
        }
        // Each item takes more than a byte, so memory runs out long before the numbers do.
        let number = self.things.len() as u32;
        let thing = own();
        self.things.push(thing.clone());
        self.numbers.insert(thing, number);
        number
    }
}

/// The texts, frames, call stacks and free-form values of one [`Snapshot`](crate::Snapshot).
///
/// Numbers come from these methods and are valid in their own table only. With a number of another table, look-ups
/// return another item or nothing.
#[derive(Clone, Debug)]
pub struct Tables {
    texts: Interner<Arc<str>>,
    frames: Interner<Frame>,
    stacks: Interner<Arc<[FrameId]>>,
    values: Interner<Value>,
}

impl Default for Tables {
    fn default() -> Self {
        let mut tables = Tables {
            texts: Interner::new(),
            frames: Interner::new(),
            stacks: Interner::new(),
            values: Interner::new(),
        };
        for name in names::ALL {
            tables.text(name);
        }
        tables.stack(&[]);
        tables
    }
}

impl Tables {
    /// Adds a text if it is new, and returns its number.
    pub fn text(&mut self, text: &str) -> TextId {
        TextId(self.texts.number(text, || text.into()))
    }

    /// Returns the number of a text, if it is in the table.
    pub fn find_text(&self, text: &str) -> Option<TextId> {
        self.texts.find(text).map(TextId)
    }

    /// Adds a frame if it is new, and returns its number.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        FrameId(self.frames.number(&frame, || frame))
    }

    /// Adds a call stack, innermost frame first, if it is new, and returns its number.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        StackId(self.stacks.number(frames, || frames.into()))
    }

    /// Adds a value if it is new, and returns its number.
    pub fn value(&mut self, value: Value) -> ValueId {
        ValueId(self.values.number(&value, || value.clone()))
    }

    /// Returns the number of a frame, if it is in the table.
    pub(crate) fn find_frame(&self, frame: &Frame) -> Option<FrameId> {
        self.frames.find(frame).map(FrameId)
    }

    /// Returns the number of a call stack, if it is in the table.
    pub(crate) fn find_stack(&self, frames: &[FrameId]) -> Option<StackId> {
        self.stacks.find(frames).map(StackId)
    }

    /// Returns the number of a value, if it is in the table.
    pub(crate) fn find_value(&self, value: &Value) -> Option<ValueId> {
        self.values.find(value).map(ValueId)
    }

    /// Adds a dict with texts as keys, and returns its number. No key may occur twice.
    pub fn dict(&mut self, pairs: impl IntoIterator<Item = (impl AsRef<str>, Value)>) -> ValueId {
        let pairs = pairs.into_iter().map(|(key, value)| {
            let key = Value::Text(self.text(key.as_ref()));
            (self.value(key), self.value(value))
        });
        let pairs = pairs.collect();
        self.value(Value::Dict(pairs))
    }

    /// Returns the text of a number; empty if the number is unknown.
    pub fn get_text(&self, text: TextId) -> &str {
        self.texts.things.get(text.index()).map_or("", |text| text)
    }

    /// Returns the frame of a number.
    pub fn get_frame(&self, frame: FrameId) -> Option<&Frame> {
        self.frames.things.get(frame.index())
    }

    /// Returns the frames of a call stack, innermost first.
    pub fn get_stack(&self, stack: StackId) -> &[FrameId] {
        self.stacks.things.get(stack.index()).map_or(&[], |stack| stack)
    }

    /// Returns the value of a number.
    pub fn get_value(&self, value: ValueId) -> &Value {
        self.values.things.get(value.index()).unwrap_or(&Value::None)
    }

    /// Iterates over all frames, each once.
    pub fn all_frames(&self) -> impl Iterator<Item = &Frame> {
        self.frames.things.iter()
    }

    /// Returns the number of distinct call stacks, including the empty one.
    pub fn stacks(&self) -> usize {
        self.stacks.things.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn equal_items_share_a_number() {
        let mut tables = Tables::default();
        assert_eq!(tables.text("segments"), names::SEGMENTS);
        assert_eq!(tables.text("line"), names::LINE);
        assert_eq!(tables.get_text(names::FREE_COMPLETED), "free_completed");
        assert_eq!(tables.stack(&[]), StackId::EMPTY);
        let name = tables.text("forward");
        let frame = Frame {
            name,
            filename: tables.text("model.py"),
            line: 3,
            extra: None,
        };
        let first = tables.frame(frame);
        assert_eq!(tables.frame(frame), first);
        assert_eq!((tables.stack(&[first, first]), tables.stacks()), (StackId(1), 2));
        assert_eq!((tables.stack(&[first, first]), tables.stacks()), (StackId(1), 2));
        assert_eq!(tables.get_frame(first), Some(&frame));
        assert_eq!(tables.find_text("backward"), None);
        let nan = Value::Float(f64::NAN.to_bits());
        assert_eq!(tables.value(nan.clone()), tables.value(nan));
    }
}
