//! What a file holds before it is known to be a snapshot: Python's values, in arenas.

use std::sync::Arc;

use super::error::ReadError;
use super::limits::{GROWTH, Meter};
use crate::tables::TextId;

/// A value. What is large or may be shared is elsewhere and has a number here, as in Python.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(TextId),
    Bytes(u32),
    Object(ObjectId),
}

/// A key and its value.
pub(crate) type Pair = (Node, Node);

/// A list, tuple or dict of a [`Document`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(u32);

/// What can hold others, and itself.
#[derive(Debug)]
pub(crate) enum Object {
    List(Vec<Node>),
    Tuple(Vec<Node>),
    /// As set, one after the other: of equal keys the last counts.
    Dict(Vec<Pair>),
}

/// The objects that nodes refer to.
#[derive(Debug, Default)]
pub(crate) struct Document {
    objects: Vec<Object>,
    bytes: Vec<Arc<[u8]>>,
}

impl Document {
    pub(crate) fn add(&mut self, object: Object, meter: &mut Meter) -> Result<Node, ReadError> {
        let size = match &object {
            Object::List(items) | Object::Tuple(items) => size_of_val(items.as_slice()),
            Object::Dict(pairs) => size_of_val(pairs.as_slice()),
        };
        meter.charge(GROWTH * size_of::<Object>() + size)?;
        let number = ObjectId(self.objects.len() as u32);
        self.objects.push(object);
        Ok(Node::Object(number))
    }

    pub(crate) fn add_bytes(&mut self, bytes: &[u8], meter: &mut Meter) -> Result<Node, ReadError> {
        meter.charge((GROWTH + 1) * size_of::<Arc<[u8]>>() + bytes.len())?;
        self.bytes.push(bytes.into());
        Ok(Node::Bytes(self.bytes.len() as u32 - 1))
    }

    /// The object of a number; every [`ObjectId`] came from [`Document::add`].
    pub(crate) fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id.0 as usize]
    }

    pub(crate) fn object_mut(&mut self, id: ObjectId) -> &mut Object {
        &mut self.objects[id.0 as usize]
    }

    pub(crate) fn bytes(&self, number: u32) -> Arc<[u8]> {
        self.bytes[number as usize].clone()
    }

    /// Forgets everything; the memory is used again.
    pub(crate) fn clear(&mut self) {
        self.objects.clear();
        self.bytes.clear();
    }

    /// What a node is, for people.
    pub(crate) fn kind(&self, node: Node) -> &'static str {
        match node {
            Node::None => "None",
            Node::Bool(_) => "a bool",
            Node::Int(_) | Node::Unsigned(_) => "an integer",
            Node::Float(_) => "a float",
            Node::Text(_) => "a text",
            Node::Bytes(_) => "bytes",
            Node::Object(id) => match self.object(id) {
                Object::List(_) => "a list",
                Object::Tuple(_) => "a tuple",
                Object::Dict(_) => "a dict",
            },
        }
    }
}
