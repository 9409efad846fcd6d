//! Writes a [`Snapshot`]: one traversal, two formats.

mod json;
mod pickle;
mod walk;

use std::io::{self, BufWriter, Write};

use crate::ids::{FrameId, StackId, TextId, ValueId};
use crate::types::Snapshot;

/// Why a snapshot could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The writer failed.
    #[error("writing the snapshot: {0}")]
    Io(#[from] io::Error),
    /// A value that JSON cannot represent (only in metadata and keys of other versions).
    #[error("JSON has no {0}: write a pickle")]
    Json(&'static str),
}

impl Snapshot {
    /// Writes a pickle of protocol 4, which PyTorch's web viewer, `python -m torch.cuda._memory_viz` and `pickle.load` read.
    ///
    /// Notes on the web viewer: it offers the devices that have a list in [`Snapshot::device_traces`], even an empty
    /// one. It goes backwards from the segments through the events, so a block whose last event is a `free_requested`
    /// must be present as [`BlockState::ActivePendingFree`](crate::BlockState::ActivePendingFree). Older versions do
    /// not support numbers above 2^63.
    ///
    /// Call stacks and texts are written once. The output is streamed, and needs memory only for the numbers of these.
    /// Equal snapshots give equal bytes.
    ///
    /// ```
    /// # use gpumem_snapshot::Snapshot;
    /// let mut bytes = Vec::new();
    /// Snapshot::default().write_pickle(&mut bytes)?;
    /// assert!(Snapshot::from_bytes(&bytes)?.segments.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_pickle(&self, to: impl Write) -> Result<(), WriteError> {
        let mut sink = pickle::Pickle::new(BufWriter::new(to));
        sink.header()?;
        walk::snapshot(&mut sink, self)?;
        sink.stop()
    }

    /// Writes JSON, which PyTorch's web viewer reads too. JSON has no references, so each event repeats its call stack.
    ///
    /// Tuples become lists, and numeric keys become texts, as with Python's `json`. Bytes and non-finite floats are
    /// errors; PyTorch's own keys have none.
    pub fn write_json(&self, to: impl Write) -> Result<(), WriteError> {
        let mut sink = json::Json::new(BufWriter::new(to));
        walk::snapshot(&mut sink, self)?;
        sink.stop()
    }
}

/// An item that can be written once and referred to later.
#[derive(Clone, Copy)]
enum Thing {
    Text(TextId),
    Frame(FrameId),
    Stack(StackId),
    Value(ValueId),
}

/// The kind of a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Tuple,
    Dict,
}

/// An output format.
///
/// A container is written as `begin`, then for each item `item` and the item (in dicts `item`, the key, `value`, the
/// value), then `end`. For an item that may be shared, `recall` is called first. If it returns true the item is already
/// written; otherwise the item is written, and then `keep` is called.
trait Sink {
    fn none(&mut self) -> Result<(), WriteError>;
    fn bool(&mut self, value: bool) -> Result<(), WriteError>;
    fn int(&mut self, value: i64) -> Result<(), WriteError>;
    fn unsigned(&mut self, value: u64) -> Result<(), WriteError>;
    fn float(&mut self, value: f64) -> Result<(), WriteError>;
    fn text(&mut self, text: &str) -> Result<(), WriteError>;
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError>;
    fn begin(&mut self, kind: Kind, length: usize) -> Result<(), WriteError>;
    fn item(&mut self) -> Result<(), WriteError>;
    fn value(&mut self) -> Result<(), WriteError>;
    fn end(&mut self) -> Result<(), WriteError>;
    fn recall(&mut self, thing: Thing) -> Result<bool, WriteError>;
    fn keep(&mut self, thing: Thing) -> Result<(), WriteError>;
}
