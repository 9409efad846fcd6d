//! Converts a document into a snapshot: the known keys, and the defaults of keys that old versions did not write.

use super::document::{Document, Node, Pair};
use super::error::{ReadError, at, printable};
use super::fields::required;
use super::values::Converter;
use crate::ids::StackId;
use crate::names;
use crate::types::{Action, Annotation, Block, BlockState, Segment, SegmentType, Snapshot, TraceEntry};

/// Size of PyTorch's segments for small blocks, in bytes.
const SMALL_SEGMENT: u64 = 2 << 20;

impl Converter<'_> {
    /// Converts a whole document: a dict, or only the list of segments that `torch.cuda.memory_snapshot()` returns.
    pub(crate) fn snapshot(&mut self, document: &Document, node: Node) -> Result<Snapshot, ReadError> {
        let mut snapshot = Snapshot::default();
        if document.list(node).is_ok() {
            self.part(&mut snapshot, document, (Node::Text(names::SEGMENTS), node))?;
            return Ok(snapshot);
        }
        let (_, mut pairs) = document.dict(node)?;
        if !is_snapshot(document, node) {
            let mut within = pairs.iter().filter(|(_, value)| is_snapshot(document, *value));
            pairs = match (within.next(), within.count()) {
                (None, _) => return Err(no_snapshot()),
                (Some((_, one)), 0) => document.dict(*one)?.1,
                (Some(_), more) => return Err(several(more + 1)),
            };
        }
        for pair in pairs {
            self.part(&mut snapshot, document, *pair)?;
        }
        Ok(snapshot)
    }

    /// Converts one key of the outermost dict.
    pub(crate) fn part(&mut self, into: &mut Snapshot, document: &Document, pair: Pair) -> Result<(), ReadError> {
        let (key, value) = pair;
        match key {
            // The segments of a truncated file are not kept.
            Node::Text(names::SEGMENTS) if self.damage.as_ref().is_some_and(|damage| damage.cut.is_some()) => {}
            Node::Text(names::SEGMENTS) => {
                into.segments = self.list(document, value, Converter::segment).map_err(at("segments"))?;
            }
            Node::Text(names::DEVICE_TRACES) => {
                let mut device = 0;
                let traces = self.list(document, value, |this, document, trace| {
                    device += 1;
                    this.entries(document, trace, device - 1)
                });
                into.device_traces = traces.map_err(at("device_traces"))?;
            }
            Node::Text(names::ALLOCATOR_SETTINGS) => {
                document.dict(value).map_err(at("allocator_settings"))?;
                into.allocator_settings = Some(self.value(document, value).map_err(at("allocator_settings"))?);
            }
            Node::Text(names::EXTERNAL_ANNOTATIONS) => {
                let annotations = self.list(document, value, Converter::annotation);
                into.external_annotations = annotations.map_err(at("external_annotations"))?;
            }
            Node::Text(other) => {
                let value = self.value(document, value);
                let value = value
                    .map_err(|error| error.within(|| format!("\"{}\"", printable(self.tables.get_text(other)))))?;
                self.meter.push(&mut into.extra, (other, value))?;
            }
            other => return Err(ReadError::shape("keys that are texts", document.kind(other))),
        }
        Ok(())
    }

    fn list<T>(
        &mut self,
        document: &Document,
        node: Node,
        mut item: impl FnMut(&mut Self, &Document, Node) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let (_, nodes) = document.list(node)?;
        self.meter.visit(nodes.len() as u64)?;
        let mut items = Vec::new();
        self.meter.reserve(&mut items, nodes.len())?;
        for (i, node) in nodes.iter().enumerate() {
            let item = item(self, document, *node);
            items.push(item.map_err(|error| error.within(|| format!("[{i}]")))?);
        }
        Ok(items)
    }

    /// Converts the entries of a device's trace.
    fn entries(&mut self, document: &Document, node: Node, device: usize) -> Result<Vec<TraceEntry>, ReadError> {
        let last = document.list(node)?.1.len();
        let mut number = 0;
        let entries = self.list(document, node, |this, document, node| {
            number += 1;
            let entry = this.entry(document, node);
            // The file may end within the last one.
            let is_cut = number == last && this.damage.as_ref().is_some_and(|damage| damage.cut.is_some());
            if is_cut && matches!(entry, Err(ReadError::Shape { .. })) {
                return Ok(None);
            }
            this.unless_odd(entry, || format!("device_traces[{device}][{}]", number - 1))
        });
        Ok(entries?.into_iter().flatten().collect())
    }

    /// Returns a dict's pairs. They are counted each time: a list may contain the same dict of a million keys a million
    /// times.
    fn pairs<'d>(&mut self, document: &'d Document, node: Node) -> Result<&'d [Pair], ReadError> {
        let (_, pairs) = document.dict(node)?;
        self.meter.visit(pairs.len() as u64)?;
        Ok(pairs)
    }

    pub(crate) fn segment(&mut self, document: &Document, node: Node) -> Result<Segment, ReadError> {
        let pairs = self.pairs(document, node)?;
        let (mut address, mut total_size, mut blocks) = (None, None, None);
        let (mut allocated, mut active, mut requested, mut kind) = (None, None, None, None);
        let (mut device, mut stream, mut pool, mut expandable) = (0, 0, (0, 0), false);
        let (mut frames, mut extra) = (StackId::EMPTY, Vec::new());
        for &(key, value) in pairs {
            match key {
                Node::Text(names::DEVICE) => device = document.device(value).map_err(at("device"))?,
                Node::Text(names::ADDRESS) => address = Some(document.word(value).map_err(at("address"))?),
                Node::Text(names::TOTAL_SIZE) => total_size = Some(document.size(value).map_err(at("total_size"))?),
                Node::Text(names::ALLOCATED_SIZE) => {
                    allocated = Some(document.size(value).map_err(at("allocated_size"))?);
                }
                Node::Text(names::ACTIVE_SIZE) => active = Some(document.size(value).map_err(at("active_size"))?),
                Node::Text(names::REQUESTED_SIZE) => {
                    requested = Some(document.size(value).map_err(at("requested_size"))?);
                }
                Node::Text(names::STREAM) => stream = document.signed(value).map_err(at("stream"))?,
                Node::Text(names::SEGMENT_TYPE) => kind = Some(document.text(value).map_err(at("segment_type"))?),
                Node::Text(names::SEGMENT_POOL_ID) => pool = document.pair(value).map_err(at("segment_pool_id"))?,
                Node::Text(names::IS_EXPANDABLE) => {
                    expandable = document.boolean(value).map_err(at("is_expandable"))?
                }
                Node::Text(names::FRAMES) => frames = self.stack(document, value).map_err(at("frames"))?,
                Node::Text(names::BLOCKS) => blocks = Some(value),
                _ => self.meter.push(&mut extra, (key, value))?,
            }
        }
        if address.is_none() && is_snapshot(document, node) {
            let found = "a whole snapshot: a list of them is not read, save one to a file of its own";
            return Err(ReadError::shape("a segment", found));
        }
        let address = required(address, "address")?;
        let total_size = required(total_size, "total_size")?;
        let blocks = self
            .blocks(document, required(blocks, "blocks")?, address)
            .map_err(at("blocks"))?;
        let sum = |of: fn(&Block) -> u64, when: fn(BlockState) -> bool| {
            let counted = blocks.iter().filter(|block| when(block.state));
            counted.fold(0, |sum: u64, block| sum.saturating_add(of(block)))
        };
        Ok(Segment {
            device,
            address,
            total_size,
            allocated_size: allocated.unwrap_or_else(|| sum(|b| b.size, |state| state == BlockState::ActiveAllocated)),
            active_size: active.unwrap_or_else(|| sum(|b| b.size, BlockState::active)),
            requested_size: requested.unwrap_or_else(|| sum(|b| b.requested_size, BlockState::active)),
            stream,
            segment_type: match kind {
                Some(name) => SegmentType::named(name),
                None if total_size <= SMALL_SEGMENT => SegmentType::Small,
                None => SegmentType::Large,
            },
            segment_pool_id: pool,
            is_expandable: expandable,
            frames,
            blocks,
            extra: self.extra(document, extra)?,
        })
    }

    fn blocks(&mut self, document: &Document, node: Node, address: u64) -> Result<Vec<Block>, ReadError> {
        let mut next = address;
        self.list(document, node, |this, document, node| {
            let block = this.block(document, node, next)?;
            next = block.address.wrapping_add(block.size);
            Ok(block)
        })
    }

    fn block(&mut self, document: &Document, node: Node, next: u64) -> Result<Block, ReadError> {
        let pairs = self.pairs(document, node)?;
        let (mut address, mut size, mut requested, mut state, mut frames) = (None, None, None, None, None);
        let (mut history, mut extra) = (None, Vec::new());
        for &(key, value) in pairs {
            match key {
                Node::Text(names::ADDRESS) => address = Some(document.word(value).map_err(at("address"))?),
                Node::Text(names::SIZE) => size = Some(document.size(value).map_err(at("size"))?),
                Node::Text(names::REQUESTED_SIZE) => {
                    requested = Some(document.size(value).map_err(at("requested_size"))?);
                }
                Node::Text(names::STATE) => state = Some(document.text(value).map_err(at("state"))?),
                Node::Text(names::FRAMES) => frames = Some(self.stack(document, value).map_err(at("frames"))?),
                _ => {
                    if key == Node::Text(names::HISTORY) {
                        history = Some(value);
                    }
                    extra.push((key, value));
                }
            }
        }
        let size = required(size, "size")?;
        if let Some(history) = history {
            let (past_size, past_frames) = self.history(document, history).map_err(at("history"))?;
            requested = requested.or(past_size);
            frames = frames.or(past_frames);
        }
        Ok(Block {
            address: address.unwrap_or(next),
            size,
            requested_size: requested.unwrap_or(size),
            state: match required(state, "state")? {
                names::ACTIVE_AWAITING_FREE => BlockState::ActivePendingFree,
                name => BlockState::named(name),
            },
            frames: frames.unwrap_or(StackId::EMPTY),
            extra: self.extra(document, extra)?,
        })
    }

    /// Before PyTorch 2.1 a block's size and call stack were in the newest entry of its history.
    fn history(&mut self, document: &Document, node: Node) -> Result<(Option<u64>, Option<StackId>), ReadError> {
        let (mut size, mut frames) = (None, None);
        let (_, items) = document.list(node)?;
        let Some(newest) = items.first() else {
            return Ok((size, frames));
        };
        for &(key, value) in self.pairs(document, *newest)? {
            match key {
                Node::Text(names::REAL_SIZE) => size = Some(document.size(value).map_err(at("real_size"))?),
                Node::Text(names::FRAMES) => frames = Some(self.stack(document, value).map_err(at("frames"))?),
                _ => {}
            }
        }
        Ok((size, frames))
    }

    pub(crate) fn entry(&mut self, document: &Document, node: Node) -> Result<TraceEntry, ReadError> {
        let pairs = self.pairs(document, node)?;
        let (mut action, mut addr, mut device_free, mut size) = (None, None, None, None);
        let (mut frames, mut compile_context, mut user_metadata) = (None, None, None);
        let (mut stream, mut time_us, mut extra) = (0, 0, Vec::new());
        for &(key, value) in pairs {
            match key {
                Node::Text(names::ACTION) => action = Some(document.text(value).map_err(at("action"))?),
                Node::Text(names::ADDR) => addr = Some(document.word(value).map_err(at("addr"))?),
                Node::Text(names::DEVICE_FREE) => device_free = Some(document.word(value).map_err(at("device_free"))?),
                Node::Text(names::SIZE) => size = Some(document.size(value).map_err(at("size"))?),
                Node::Text(names::STREAM) => stream = document.signed(value).map_err(at("stream"))?,
                Node::Text(names::TIME_US) => time_us = document.size(value).map_err(at("time_us"))?,
                Node::Text(names::FRAMES) => frames = Some(self.stack(document, value).map_err(at("frames"))?),
                Node::Text(names::COMPILE_CONTEXT) => {
                    compile_context = Some(document.text(value).map_err(at("compile_context"))?);
                }
                Node::Text(names::USER_METADATA) => {
                    user_metadata = Some(self.value(document, value).map_err(at("user_metadata"))?);
                }
                _ => self.meter.push(&mut extra, (key, value))?,
            }
        }
        let action = Action::named(required(action, "action")?);
        let (addr, size) = match action {
            Action::Oom => (device_free.unwrap_or(0), size.unwrap_or(0)),
            Action::Snapshot | Action::UserDefined | Action::Annotate | Action::Other(_) => {
                (addr.unwrap_or(0), size.unwrap_or(0))
            }
            _ => (required(addr, "addr")?, required(size, "size")?),
        };
        Ok(TraceEntry {
            action,
            addr,
            size,
            stream,
            time_us,
            frames,
            compile_context,
            user_metadata,
            extra: self.extra(document, extra)?,
        })
    }

    pub(crate) fn annotation(&mut self, document: &Document, node: Node) -> Result<Annotation, ReadError> {
        let pairs = self.pairs(document, node)?;
        let (mut device, mut time_us, mut metadata) = (0, 0, Vec::new());
        for &(key, value) in pairs {
            match key {
                Node::Text(names::DEVICE) => device = document.device(value).map_err(at("device"))?,
                Node::Text(names::TIME_US) => time_us = document.size(value).map_err(at("time_us"))?,
                _ => self.meter.push(&mut metadata, (key, value))?,
            }
        }
        Ok(Annotation {
            device,
            time_us,
            metadata: self.extra(document, metadata)?,
        })
    }
}

/// Whether the node is a dict with the keys that every snapshot has.
pub(crate) fn is_snapshot(document: &Document, node: Node) -> bool {
    let is = |(key, _): &Pair| matches!(key, Node::Text(names::SEGMENTS | names::DEVICE_TRACES));
    document.dict(node).is_ok_and(|(_, pairs)| pairs.iter().any(is))
}

/// Returns the error for a dict of several snapshots.
pub(crate) fn several(snapshots: usize) -> ReadError {
    let found = format!("a dict of {snapshots} snapshots: save one to a file of its own");
    ReadError::shape("one snapshot", found)
}

/// Returns the error for a dict without any key of a snapshot.
pub(crate) fn no_snapshot() -> ReadError {
    ReadError::shape("the keys segments and device_traces", "a dict without either")
}
