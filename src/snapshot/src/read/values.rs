//! What many things in a file share, looked at once: call stacks, and values whose shape is not fixed.

use std::collections::HashMap;

use super::damage::Damage;
use super::document::{Document, Node, Number, Object, ObjectId, Pair};
use super::error::{ReadError, at};
use super::fields::required;
use super::limits::{Meter, in_map, room, shared};
use crate::ids::{FrameId, StackId, ValueId};
use crate::names;
use crate::tables::{Frame, Tables, Value};

/// Levels of a value. PyTorch's settings have two.
const DEPTH: u32 = 32;

/// Things for which a map keeps its room for the next document. Emptying takes time for all the room, however little is in it.
const ROOM: usize = 1024;

/// Takes a document's values into the tables.
pub(crate) struct Converter<'a> {
    pub(crate) tables: &'a mut Tables,
    pub(crate) meter: &'a mut Meter,
    stacks: HashMap<ObjectId, StackId>,
    frames: HashMap<ObjectId, FrameId>,
    /// `None` while its own items are looked at: met again, it holds itself.
    values: HashMap<ObjectId, Option<Built>>,
    /// Bytes charged for these maps.
    charged: usize,
    /// What is lacking; none where nothing may.
    pub(crate) damage: Option<Damage>,
}

/// A value that is in the tables.
#[derive(Clone, Copy)]
struct Built {
    id: ValueId,
    /// Values it has when written out, shared ones as often as they appear.
    nodes: u64,
    /// Levels.
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

    /// What an entry is, or none for an odd one where such may be; `place`: where it is.
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

    /// Another document follows, whose numbers mean other objects.
    pub(crate) fn next_document(&mut self) {
        empty(&mut self.stacks);
        empty(&mut self.frames);
        empty(&mut self.values);
        self.meter.give_back(std::mem::take(&mut self.charged));
    }

    /// One more thing of the document is met.
    fn meet<T>(&mut self) -> Result<(), ReadError> {
        self.meter.charge(in_map::<(ObjectId, T)>())?;
        self.charged += in_map::<(ObjectId, T)>();
        Ok(())
    }

    /// A list of frames.
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
        self.meter.give_back(room(&frames));
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

    /// The keys of a thing that are not known, as a dict; none without any.
    pub(crate) fn extra(&mut self, document: &Document, extra: Vec<Pair>) -> Result<Option<ValueId>, ReadError> {
        if extra.is_empty() {
            return Ok(None);
        }
        let built = self.dict(document, &extra, 0)?;
        self.meter.give_back(room(&extra));
        self.expanded(built).map(Some)
    }

    /// Any value.
    pub(crate) fn value(&mut self, document: &Document, node: Node) -> Result<ValueId, ReadError> {
        let built = self.nested(document, node, 0)?;
        self.expanded(built)
    }

    /// Counts a value as if nothing in it were shared: a few lists that share lists would be terabytes as JSON.
    fn expanded(&mut self, built: Built) -> Result<ValueId, ReadError> {
        self.meter.look(built.nodes)?;
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
            // Charged where the document got them.
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
        self.meter.give_back(room);
        sum.built(id)
    }

    /// Of equal keys the place of the first and the value of the last, as in Python.
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
        self.meter.give_back(room + map);
        sum.built(id)
    }
}

/// Forgets what is in a map, and its room after a large document: many small ones may follow.
fn empty<T>(map: &mut HashMap<ObjectId, T>) {
    if map.capacity() > ROOM {
        *map = HashMap::new();
    } else {
        map.clear();
    }
}

/// Nodes and levels below a value.
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
        // Also what is shared can lie on top of what is shared.
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
    fn a_large_document_leaves_no_room_to_be_emptied_after_every_small_one() {
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
