//! Writes the keys of a snapshot in PyTorch's order (`torch/csrc/cuda/Module.cpp`).

use super::{Kind, Sink, Thing, WriteError};
use crate::ids::{FrameId, StackId, TextId, ValueId};
use crate::names;
use crate::tables::{Tables, Value};
use crate::types::{Action, Annotation, Block, Segment, Snapshot, TraceEntry};

type Written = Result<(), WriteError>;

pub(super) fn snapshot(sink: &mut impl Sink, snapshot: &Snapshot) -> Written {
    let mut walk = Walk {
        sink,
        tables: &snapshot.tables,
    };
    walk.snapshot(snapshot)
}

struct Walk<'a, S> {
    sink: &'a mut S,
    tables: &'a Tables,
}

impl<S: Sink> Walk<'_, S> {
    fn snapshot(&mut self, snapshot: &Snapshot) -> Written {
        let settings = usize::from(snapshot.allocator_settings.is_some());
        self.sink.begin(Kind::Dict, 3 + settings + snapshot.extra.len())?;
        self.key(names::SEGMENTS)?;
        self.list(&snapshot.segments, Walk::segment)?;
        self.key(names::DEVICE_TRACES)?;
        self.list(&snapshot.device_traces, |walk, trace| walk.list(trace, Walk::entry))?;
        if let Some(settings) = snapshot.allocator_settings {
            self.key(names::ALLOCATOR_SETTINGS)?;
            self.any(settings)?;
        }
        self.key(names::EXTERNAL_ANNOTATIONS)?;
        self.list(&snapshot.external_annotations, Walk::annotation)?;
        for (key, value) in &snapshot.extra {
            self.key(*key)?;
            self.any(*value)?;
        }
        self.sink.end()
    }

    fn segment(&mut self, segment: &Segment) -> Written {
        self.sink.begin(Kind::Dict, 12 + self.pairs(segment.extra).len())?;
        self.int(names::DEVICE, i64::from(segment.device))?;
        self.unsigned(names::ADDRESS, segment.address)?;
        self.unsigned(names::TOTAL_SIZE, segment.total_size)?;
        self.unsigned(names::ALLOCATED_SIZE, segment.allocated_size)?;
        self.unsigned(names::ACTIVE_SIZE, segment.active_size)?;
        self.unsigned(names::REQUESTED_SIZE, segment.requested_size)?;
        self.int(names::STREAM, segment.stream)?;
        self.name(names::SEGMENT_TYPE, segment.segment_type.name())?;
        self.key(names::SEGMENT_POOL_ID)?;
        self.sink.begin(Kind::Tuple, 2)?;
        for id in [segment.segment_pool_id.0, segment.segment_pool_id.1] {
            self.sink.item()?;
            self.sink.unsigned(id)?;
        }
        self.sink.end()?;
        self.key(names::IS_EXPANDABLE)?;
        self.sink.bool(segment.is_expandable)?;
        self.stack(segment.frames)?;
        self.key(names::BLOCKS)?;
        self.list(&segment.blocks, Walk::block)?;
        self.extra(segment.extra)?;
        self.sink.end()
    }

    fn block(&mut self, block: &Block) -> Written {
        self.sink.begin(Kind::Dict, 5 + self.pairs(block.extra).len())?;
        self.unsigned(names::ADDRESS, block.address)?;
        self.unsigned(names::SIZE, block.size)?;
        self.unsigned(names::REQUESTED_SIZE, block.requested_size)?;
        self.name(names::STATE, block.state.name())?;
        self.stack(block.frames)?;
        self.extra(block.extra)?;
        self.sink.end()
    }

    fn entry(&mut self, entry: &TraceEntry) -> Written {
        let optional = [
            entry.time_us != 0,
            entry.frames.is_some(),
            entry.compile_context.is_some(),
            entry.user_metadata.is_some(),
        ];
        let optional = optional.into_iter().filter(|there| *there).count();
        self.sink
            .begin(Kind::Dict, 4 + optional + self.pairs(entry.extra).len())?;
        self.name(names::ACTION, entry.action.name())?;
        let addr = if entry.action == Action::Oom {
            names::DEVICE_FREE
        } else {
            names::ADDR
        };
        self.unsigned(addr, entry.addr)?;
        self.unsigned(names::SIZE, entry.size)?;
        self.int(names::STREAM, entry.stream)?;
        if entry.time_us != 0 {
            self.unsigned(names::TIME_US, entry.time_us)?;
        }
        if let Some(context) = entry.compile_context {
            self.name(names::COMPILE_CONTEXT, context)?;
        }
        if let Some(metadata) = entry.user_metadata {
            self.key(names::USER_METADATA)?;
            self.any(metadata)?;
        }
        if let Some(frames) = entry.frames {
            self.stack(frames)?;
        }
        self.extra(entry.extra)?;
        self.sink.end()
    }

    fn annotation(&mut self, annotation: &Annotation) -> Written {
        self.sink.begin(Kind::Dict, 2 + self.pairs(annotation.metadata).len())?;
        self.extra(annotation.metadata)?;
        self.int(names::DEVICE, i64::from(annotation.device))?;
        self.unsigned(names::TIME_US, annotation.time_us)?;
        self.sink.end()
    }

    /// Writes the key `frames` and its list.
    fn stack(&mut self, stack: StackId) -> Written {
        self.key(names::FRAMES)?;
        if self.sink.recall(Thing::Stack(stack))? {
            return Ok(());
        }
        self.list(self.tables.get_stack(stack), |walk, frame| walk.frame(*frame))?;
        self.sink.keep(Thing::Stack(stack))
    }

    fn frame(&mut self, id: FrameId) -> Written {
        if self.sink.recall(Thing::Frame(id))? {
            return Ok(());
        }
        let Some(frame) = self.tables.get_frame(id) else {
            return self.sink.none();
        };
        self.sink.begin(Kind::Dict, 3 + self.pairs(frame.extra).len())?;
        self.name(names::NAME, frame.name)?;
        self.name(names::FILENAME, frame.filename)?;
        self.int(names::LINE, frame.line)?;
        self.extra(frame.extra)?;
        self.sink.end()?;
        self.sink.keep(Thing::Frame(id))
    }

    fn list<T>(&mut self, items: &[T], write: impl Fn(&mut Self, &T) -> Written) -> Written {
        self.sink.begin(Kind::List, items.len())?;
        for item in items {
            self.sink.item()?;
            write(self, item)?;
        }
        self.sink.end()
    }

    /// Writes any value. The reader bounds the recursion depth.
    fn any(&mut self, id: ValueId) -> Written {
        match self.tables.get_value(id) {
            Value::None => self.sink.none(),
            Value::Bool(value) => self.sink.bool(*value),
            Value::Int(value) => self.sink.int(*value),
            Value::Unsigned(value) => self.sink.unsigned(*value),
            Value::Float(bits) => self.sink.float(f64::from_bits(*bits)),
            Value::Text(text) => self.text(*text),
            Value::Bytes(bytes) => self.sink.bytes(bytes),
            Value::List(items) => self.container(id, Kind::List, items),
            Value::Tuple(items) => self.container(id, Kind::Tuple, items),
            Value::Dict(pairs) => {
                if self.sink.recall(Thing::Value(id))? {
                    return Ok(());
                }
                self.sink.begin(Kind::Dict, pairs.len())?;
                self.extra(Some(id))?;
                self.sink.end()?;
                self.sink.keep(Thing::Value(id))
            }
        }
    }

    fn container(&mut self, id: ValueId, kind: Kind, items: &[ValueId]) -> Written {
        if self.sink.recall(Thing::Value(id))? {
            return Ok(());
        }
        self.sink.begin(kind, items.len())?;
        for item in items {
            self.sink.item()?;
            self.any(*item)?;
        }
        self.sink.end()?;
        self.sink.keep(Thing::Value(id))
    }

    fn pairs(&self, extra: Option<ValueId>) -> &[(ValueId, ValueId)] {
        match extra.map(|extra| self.tables.get_value(extra)) {
            Some(Value::Dict(pairs)) => pairs,
            _ => &[],
        }
    }

    /// Writes the pairs of a dict into the open one.
    fn extra(&mut self, extra: Option<ValueId>) -> Written {
        let tables = self.tables;
        let Some(Value::Dict(pairs)) = extra.map(|extra| tables.get_value(extra)) else {
            return Ok(());
        };
        for (key, value) in pairs.iter() {
            self.sink.item()?;
            self.any(*key)?;
            self.sink.value()?;
            self.any(*value)?;
        }
        Ok(())
    }

    fn key(&mut self, key: TextId) -> Written {
        self.sink.item()?;
        self.text(key)?;
        self.sink.value()
    }

    fn text(&mut self, text: TextId) -> Written {
        if self.sink.recall(Thing::Text(text))? {
            return Ok(());
        }
        self.sink.text(self.tables.get_text(text))?;
        self.sink.keep(Thing::Text(text))
    }

    fn int(&mut self, key: TextId, value: i64) -> Written {
        self.key(key)?;
        self.sink.int(value)
    }

    fn unsigned(&mut self, key: TextId, value: u64) -> Written {
        self.key(key)?;
        self.sink.unsigned(value)
    }

    fn name(&mut self, key: TextId, name: TextId) -> Written {
        self.key(key)?;
        self.text(name)
    }
}
