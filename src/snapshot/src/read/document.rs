//! The content of a file before it is converted to a snapshot: Python values in arenas.

use std::sync::Arc;

use super::error::ReadError;
use super::limits::{Meter, room, shared};
use crate::ids::TextId;

/// A value in 8 bytes. Most of a file's memory consists of these. Large and shared data is in the arenas, and has a
/// number here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Small(i32),
    /// The bits of an integer with a sign.
    Int(u32),
    /// An integer above `i64::MAX`.
    Unsigned(u32),
    /// The bits of a float.
    Float(u32),
    Text(TextId),
    Object(ObjectId),
    /// A class named by a pickle that stands for plain values. It is never called.
    Class(Class),
}

/// The classes that a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A kind of dict: `OrderedDict`, `defaultdict`.
    Dict,
    /// The factory of a `defaultdict`.
    Default,
}

/// The value of a numeric node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Unsigned(u64),
    Float(f64),
}

/// A key and its value.
pub(crate) type Pair = (Node, Node);

/// An object of a [`Document`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(u32);

/// A large value, or a container, which may contain itself.
#[derive(Debug)]
pub(crate) enum Object {
    Bytes(Arc<[u8]>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    /// Pairs in the order in which they were set; the last of equal keys counts.
    Dict(Vec<Pair>),
}

impl Object {
    /// Returns the bytes of memory of its content.
    fn room(&self) -> usize {
        match self {
            Object::Bytes(bytes) => shared(bytes),
            Object::List(items) | Object::Tuple(items) => room(items),
            Object::Dict(pairs) => room(pairs),
        }
    }
}

/// The objects that nodes refer to.
#[derive(Debug, Default)]
pub(crate) struct Document {
    objects: Vec<Object>,
    /// The bits of numbers that do not fit into a node.
    words: Vec<u64>,
}

impl Document {
    /// Adds an object whose items are already charged.
    pub(crate) fn add(&mut self, object: Object, meter: &mut Meter) -> Result<Node, ReadError> {
        let number = ObjectId(self.objects.len() as u32);
        meter.push(&mut self.objects, object)?;
        Ok(Node::Object(number))
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8], meter: &mut Meter) -> Result<Node, ReadError> {
        meter.charge(shared(bytes))?;
        self.add(Object::Bytes(bytes.into()), meter)
    }

    pub(crate) fn add_number(&mut self, number: Number, meter: &mut Meter) -> Result<Node, ReadError> {
        let place = self.words.len() as u32;
        let (node, bits) = match number {
            Number::Int(value) => match i32::try_from(value) {
                Ok(small) => return Ok(Node::Small(small)),
                Err(_) => (Node::Int(place), value.cast_unsigned()),
            },
            Number::Unsigned(value) => (Node::Unsigned(place), value),
            Number::Float(value) => (Node::Float(place), value.to_bits()),
        };
        meter.push(&mut self.words, bits)?;
        Ok(node)
    }

    pub(crate) fn number(&self, node: Node) -> Option<Number> {
        let bits = |place: u32| self.words[place as usize];
        match node {
            Node::Small(value) => Some(Number::Int(i64::from(value))),
            Node::Int(place) => Some(Number::Int(bits(place).cast_signed())),
            Node::Unsigned(place) => Some(Number::Unsigned(bits(place))),
            Node::Float(place) => Some(Number::Float(f64::from_bits(bits(place)))),
            _ => None,
        }
    }

    /// Returns an object; every [`ObjectId`] came from [`Document::add`].
    pub(crate) fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id.0 as usize]
    }

    pub(crate) fn object_mut(&mut self, id: ObjectId) -> &mut Object {
        &mut self.objects[id.0 as usize]
    }

    /// Whether the node is a list, tuple or dict.
    pub(crate) fn holds_others(&self, node: Node) -> bool {
        matches!(node, Node::Object(id) if !matches!(self.object(id), Object::Bytes(_)))
    }

    /// Removes everything and keeps the arenas' memory for reuse.
    pub(crate) fn clear(&mut self, meter: &mut Meter) {
        for object in self.objects.drain(..) {
            meter.release(object.room());
        }
        self.words.clear();
    }

    /// Returns the bytes of memory of its content.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.objects.iter().map(Object::room).sum::<usize>() + room(&self.objects) + room(&self.words)
    }

    /// Returns the kind of a node, for messages.
    pub(crate) fn kind(&self, node: Node) -> &'static str {
        match node {
            Node::None => "None",
            Node::Bool(_) => "a bool",
            Node::Small(_) | Node::Int(_) | Node::Unsigned(_) => "an integer",
            Node::Float(_) => "a float",
            Node::Text(_) => "a text",
            Node::Class(_) => "a class",
            Node::Object(id) => match self.object(id) {
                Object::Bytes(_) => "bytes",
                Object::List(_) => "a list",
                Object::Tuple(_) => "a tuple",
                Object::Dict(_) => "a dict",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a hundred megabytes has about as many of them.
    #[test]
    fn node_has_8_bytes() {
        assert_eq!(size_of::<Node>(), 8);
    }
}
