//! Converts shared parts of a file once: call stacks, and values without a fixed shape.

use std::collections::HashMap;

use super::damage::Damage;
use super::document::{Document, Node, Number, Object, ObjectId, Pair};
use super::error::{ReadError, at};
use super::fields::required;
use super::limits::{Meter, in_map, room, shared};
use crate::ids::{FrameId, StackId, ValueId};
use crate::names;
use crate::tables::{Frame, Tables, Value};

/// Most levels of nesting in a value. PyTorch's settings have two.
const DEPTH: u32 = 32;

/// Largest capacity that a map keeps for the next document. Clearing a map takes time for its whole capacity, however
/// few items it has.
const ROOM: usize = 1024;

/// Converts a document's values and adds them to the tables.
pub(crate) struct Converter<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) meter: &'a mut Meter,
    stacks: HashMap<ObjectId, StackId>,
    frames: HashMap<ObjectId, FrameId>,
    /// The converted objects; `None` while an object's items are being converted. If it is met again then, it contains
    /// itself.
    values: HashMap<ObjectId, Option<Built>>,
    /// Number of bytes charged for these maps.
    charged: usize,
    /// The damage found so far; `None` if damage is an error.
    pub(crate) damage: Option<Damage>,
}

/// A value that has been added to the tables.
#[derive(Clone, Copy)]
struct Built {
    id: ValueId,
    /// Number of values in it when expanded: shared values count each time they occur.
    nodes: u64,
    /// Levels of nesting.
    height: u32,
}

impl<'a> Converter<'a> {
    pub(crate) fn new(tables: &'a mut Tables, meter: &'a mut Meter, damage: Option<Damage>) -> Self {
        Converter {
            tables,
            meter,
            stacks: HashMap::new(),
            frames: HashMap::new(),
            values: HashMap::new(),
            charged: 0,
            damage,
        }
    }

    /// Returns the entry, or `None` for a malformed entry if damage is allowed. `place` names its position.
    pub(crate) fn unless_odd<T>(
        &mut self,
        entry: Result<T, ReadError>,
        place: impl FnOnce() -> String,
    ) -> Result<Option<T>, ReadError> {
        match (entry, &mut self.damage) {
            (Ok(entry), _) => Ok(Some(entry)),
            (Err(error), Some(damage)) => damage.odd(error.within(place)).map(|()| None),
            (Err(error), None) => Err(error),
        }
    }

    /// Clears the maps for the next document, whose numbers mean other objects.
    pub(crate) fn next_document(&mut self) {
        empty(&mut self.stacks);
        empty(&mut self.frames);
        empty(&mut self.values);
        self.meter.release(std::mem::take(&mut self.charged));
    }

    /// Charges one more entry in a map.
    fn meet<T>(&mut self) -> Result<(), ReadError> {
        self.meter.charge(in_map::<(ObjectId, T)>())?;
        self.charged += in_map::<(ObjectId, T)>();
        Ok(())
    }

    /// Converts a list of frames.
    pub(crate) fn stack(&mut self, document: &Document, node: Node) -> Result<StackId, ReadError> {
        let (id, items) = document.list(node)?;
        if let Some(&known) = self.stacks.get(&id) {
            return Ok(known);
        }
        self.meet::<StackId>()?;
        let mut frames = Vec::new();
        self.meter.reserve(&mut frames, items.len())?;
        for (i, node) in items.iter().enumerate() {
            let frame = self.frame(document, *node);
            frames.push(frame.map_err(|error| error.within(|| format!("[{i}]")))?);
        }
        let stack = self.tables.charged_stack(&frames, self.meter)?;
        self.meter.release(room(&frames));
        self.stacks.insert(id, stack);
        Ok(stack)
    }

    fn frame(&mut self, document: &Document, node: Node) -> Result<FrameId, ReadError> {
        let (id, pairs) = document.dict(node)?;
        if let Some(&known) = self.frames.get(&id) {
            return Ok(known);
        }
        self.meet::<FrameId>()?;
        let (mut name, mut filename, mut line) = (None, None, None);
        let mut extra = Vec::new();
        for &(key, value) in pairs {
            match key {
                Node::Text(names::NAME) => name = Some(document.text(value).map_err(at("name"))?),
                Node::Text(names::FILENAME) => filename = Some(document.text(value).map_err(at("filename"))?),
                Node::Text(names::LINE) => line = Some(document.line(value).map_err(at("line"))?),
                _ => self.meter.push(&mut extra, (key, value))?,
            }
        }
        let frame = Frame {
            name: required(name, "name")?,
            filename: required(filename, "filename")?,
            line: required(line, "line")?,
            extra: self.extra(document, extra)?,
        };
        let frame = self.tables.charged_frame(frame, self.meter)?;
        self.frames.insert(id, frame);
        Ok(frame)
    }

    /// Converts the unknown keys of an object into a dict; `None` if there are none.
    pub(crate) fn extra(&mut self, document: &Document, extra: Vec<Pair>) -> Result<Option<ValueId>, ReadError> {
        if extra.is_empty() {
            return Ok(None);
        }
        let built = self.dict(document, &extra, 0)?;
        self.meter.release(room(&extra));
        self.expanded(built).map(Some)
    }

    /// Converts any value.
    pub(crate) fn value(&mut self, document: &Document, node: Node) -> Result<ValueId, ReadError> {
        let built = self.nested(document, node, 0)?;
        self.expanded(built)
    }

    /// Counts a value as if nothing in it were shared: a few nested shared lists could be terabytes as JSON.
    fn expanded(&mut self, built: Built) -> Result<ValueId, ReadError> {
        self.meter.visit(built.nodes)?;
        Ok(built.id)
    }

    fn nested(&mut self, document: &Document, node: Node, depth: u32) -> Result<Built, ReadError> {
        let value = match (node, document.number(node)) {
            (_, Some(Number::Int(value))) => Value::Int(value),
            (_, Some(Number::Unsigned(value))) => Value::Unsigned(value),
            (_, Some(Number::Float(value))) => Value::Float(value.to_bits()),
            (Node::Bool(value), _) => Value::Bool(value),
            (Node::Text(text), _) => Value::Text(text),
            (Node::Object(id), _) => return self.object(document, id, depth),
            _ => Value::None,
        };
        Ok(Built {
            id: self.tables.charged_value(value, 0, self.meter)?,
            nodes: 1,
            height: 1,
        })
    }

    fn object(&mut self, document: &Document, id: ObjectId, depth: u32) -> Result<Built, ReadError> {
        match self.values.get(&id) {
            Some(Some(built)) => return Ok(*built),
            Some(None) => return Err(ReadError::shape("a value that ends", "one that holds itself")),
            None if depth >= DEPTH => return Err(too_deep()),
            None => self.meet::<Option<Built>>()?,
        }
        self.values.insert(id, None);
        let built = match document.object(id) {
            // Charged when they were added to the document.
            Object::Bytes(bytes) => {
                let id = self.tables.charged_value(Value::Bytes(bytes.clone()), 0, self.meter)?;
                Sum::default().built(id)?
            }
            Object::Dict(pairs) => self.dict(document, pairs, depth)?,
            Object::List(items) => self.sequence(document, items, depth, |items| Value::List(items.into()))?,
            Object::Tuple(items) => self.sequence(document, items, depth, |items| Value::Tuple(items.into()))?,
        };
        self.values.insert(id, Some(built));
        Ok(built)
    }

    fn sequence(
        &mut self,
        document: &Document,
        items: &[Node],
        depth: u32,
        kind: impl FnOnce(Vec<ValueId>) -> Value,
    ) -> Result<Built, ReadError> {
        let mut sum = Sum::default();
        let mut ids = Vec::new();
        self.meter.reserve(&mut ids, items.len())?;
        for item in items {
            let built = self.nested(document, *item, depth + 1)?;
            ids.push(sum.add(built));
        }
        let (own, room) = (shared(&ids), room(&ids));
        self.meter.charge(own)?;
        let id = self.tables.charged_value(kind(ids), own, self.meter)?;
        self.meter.release(room);
        sum.built(id)
    }

    /// Converts a dict. Of equal keys the first determines the position and the last the value, as in Python.
    fn dict(&mut self, document: &Document, pairs: &[Pair], depth: u32) -> Result<Built, ReadError> {
        let mut sum = Sum::default();
        let mut ids: Vec<(ValueId, ValueId)> = Vec::new();
        self.meter.reserve(&mut ids, pairs.len())?;
        let map = pairs.len() * in_map::<(ValueId, usize)>();
        self.meter.charge(map)?;
        let mut places = HashMap::with_capacity(pairs.len());
        for &(key, value) in pairs {
            if document.holds_others(key) {
                let found = document.kind(key);
                return Err(ReadError::shape("a key that is a text or a number", found));
            }
            let key = self.nested(document, key, depth + 1)?;
            let value = self.nested(document, value, depth + 1)?;
            let pair = (sum.add(key), sum.add(value));
            match places.insert(pair.0, ids.len()) {
                None => ids.push(pair),
                Some(place) => {
                    ids[place] = pair;
                    places.insert(pair.0, place);
                }
            }
        }
        let (own, room) = (shared(&ids), room(&ids));
        self.meter.charge(own)?;
        let id = self.tables.charged_value(Value::Dict(ids.into()), own, self.meter)?;
        self.meter.release(room + map);
        sum.built(id)
    }
}

/// Clears a map, and releases its memory after a large document, because many small ones may follow.
fn empty<T>(map: &mut HashMap<ObjectId, T>) {
    if map.capacity() > ROOM {
        *map = HashMap::new();
    } else {
        map.clear();
    }
}

/// The sum of nodes, and the levels, below a value.
#[derive(Default)]
struct Sum {
    nodes: u64,
    height: u32,
}

impl Sum {
    fn add(&mut self, built: Built) -> ValueId {
        self.nodes = self.nodes.saturating_add(built.nodes);
        self.height = self.height.max(built.height);
        built.id
    }

    fn built(self, id: ValueId) -> Result<Built, ReadError> {
        // Shared values can also contain shared values.
        if self.height >= DEPTH {
            return Err(too_deep());
        }
        Ok(Built {
            id,
            nodes: self.nodes.saturating_add(1),
            height: self.height + 1,
        })
    }
}

fn too_deep() -> ReadError {
    ReadError::shape("at most 32 levels", "more")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Limits;

    #[test]
    fn large_document_does_not_slow_down_later_small_ones() {
        let (mut tables, mut meter) = (Tables::default(), Limits::default().meter(0, 0));
        let (mut document, mut converter) = (Document::default(), Converter::new(&mut tables, &mut meter, None));
        let text = |text| Node::Text(text);
        for _ in 0..5000 {
            let frame = [
                (text(names::NAME), text(names::NAME)),
                (text(names::FILENAME), text(names::NAME)),
                (text(names::LINE), Node::Small(1)),
            ];
            let frame = document.add(Object::Dict(frame.into()), converter.meter).unwrap();
            let stack = document.add(Object::List(vec![frame]), converter.meter).unwrap();
            converter.stack(&document, stack).unwrap();
            converter.value(&document, stack).unwrap();
        }
        let room = |converter: &Converter<'_>| {
            [
                converter.stacks.capacity(),
                converter.frames.capacity(),
                converter.values.capacity(),
            ]
        };
        assert!(room(&converter).iter().all(|room| *room >= 5000));
        let before = converter.meter.used();
        converter.next_document();
        assert!(converter.meter.used() < before - 5000 * 3 * size_of::<(ObjectId, StackId)>() as u64);
        assert!(
            room(&converter).iter().all(|room| *room <= 1024),
            "{:?}",
            room(&converter)
        );
    }
}
