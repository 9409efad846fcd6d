//! What a file holds before it is known to be a snapshot: Python's values, in arenas.

use std::sync::Arc;

use super::error::ReadError;
use super::limits::{Meter, room, shared};
use crate::ids::TextId;

/// A value, in 8 bytes: most of a file's memory are these. What is large or may be shared is elsewhere and has a number here.
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
    /// A class that a pickle names and that stands for plain values. It is never called.
    Class(Class),
}

/// The classes that a pickle may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A dict that can do more: `OrderedDict`, `defaultdict`.
    Dict,
    /// What a `defaultdict` makes where nothing is.
    Default,
}

/// What a node says that is a number.
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

/// What is large, and what can hold others, and itself.
#[derive(Debug)]
pub(crate) enum Object {
    Bytes(Arc<[u8]>),
    List(Vec<Node>),
    Tuple(Vec<Node>),
    /// As set, one after the other: of equal keys the last counts.
    Dict(Vec<Pair>),
}

impl Object {
    /// Bytes of memory of what it holds.
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
    /// The bits of numbers that a node has no room for.
    words: Vec<u64>,
}

impl Document {
    /// An object whose items are charged already.
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

    /// The object of a number; every [`ObjectId`] came from [`Document::add`].
    pub(crate) fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id.0 as usize]
    }

    pub(crate) fn object_mut(&mut self, id: ObjectId) -> &mut Object {
        &mut self.objects[id.0 as usize]
    }

    /// Whether it is a list, tuple or dict.
    pub(crate) fn holds_others(&self, node: Node) -> bool {
        matches!(node, Node::Object(id) if !matches!(self.object(id), Object::Bytes(_)))
    }

    /// Forgets everything; the arenas' memory is used again.
    pub(crate) fn clear(&mut self, meter: &mut Meter) {
        for object in self.objects.drain(..) {
            meter.give_back(object.room());
        }
        self.words.clear();
    }

    /// Bytes of memory of what is in it.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.objects.iter().map(Object::room).sum::<usize>() + room(&self.objects) + room(&self.words)
    }

    /// What a node is, for people.
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

    /// A file of a hundred megabytes has as many of them.
    #[test]
    fn a_node_has_8_bytes() {
        assert_eq!(size_of::<Node>(), 8);
    }
}
