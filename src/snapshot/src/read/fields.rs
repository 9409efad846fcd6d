//! Converts single values of a file to their Rust types.

use super::document::{Document, Node, Number, Object, ObjectId, Pair};
use super::error::ReadError;
use crate::ids::TextId;

impl Document {
    fn found(&self, node: Node) -> String {
        match (node, self.number(node)) {
            (_, Some(Number::Int(value))) => value.to_string(),
            (_, Some(Number::Unsigned(value))) => value.to_string(),
            (_, Some(Number::Float(value))) => format!("the float {value}"),
            (Node::Bool(value), _) => format!("the bool {value}"),
            _ => self.kind(node).to_owned(),
        }
    }

    fn wrong<T>(&self, node: Node, expected: &'static str) -> Result<T, ReadError> {
        Err(ReadError::shape(expected, self.found(node)))
    }

    /// Returns the number of a node. Floats that are whole numbers are accepted, because tools that use tables of
    /// floats write them.
    fn whole(&self, node: Node) -> Option<Number> {
        /// Up to here every integer is exact as a float.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match self.number(node) {
            Some(Number::Float(value)) if value.fract() == 0.0 && value.abs() <= EXACT => {
                Some(Number::Int(value as i64))
            }
            number => number,
        }
    }

    /// Converts a size, time or count.
    pub(crate) fn size(&self, node: Node) -> Result<u64, ReadError> {
        match self.whole(node) {
            Some(Number::Int(value)) if value >= 0 => Ok(value.cast_unsigned()),
            Some(Number::Unsigned(value)) => Ok(value),
            _ => self.wrong(node, "a number of bytes or microseconds"),
        }
    }

    /// Converts an address or number of 64 bits. PyTorch's own pickler writes numbers above 2^63 as negative.
    pub(crate) fn word(&self, node: Node) -> Result<u64, ReadError> {
        match self.whole(node) {
            Some(Number::Int(value)) => Ok(value.cast_unsigned()),
            Some(Number::Unsigned(value)) => Ok(value),
            _ => self.wrong(node, "an integer"),
        }
    }

    pub(crate) fn signed(&self, node: Node) -> Result<i64, ReadError> {
        match self.whole(node) {
            Some(Number::Int(value)) => Ok(value),
            _ => self.wrong(node, "an integer of 64 bits"),
        }
    }

    /// Converts a line number. Python's -1 for an instruction without a line is 2^64 - 1 in PyTorch's snapshots.
    pub(crate) fn line(&self, node: Node) -> Result<i64, ReadError> {
        match self.number(node) {
            Some(Number::Unsigned(value)) => Ok(value.cast_signed()),
            _ => self.signed(node),
        }
    }

    pub(crate) fn device(&self, node: Node) -> Result<i32, ReadError> {
        let value = self.signed(node)?;
        i32::try_from(value).or_else(|_| self.wrong(node, "a device's number"))
    }

    pub(crate) fn boolean(&self, node: Node) -> Result<bool, ReadError> {
        match node {
            Node::Bool(value) => Ok(value),
            _ => self.wrong(node, "a bool"),
        }
    }

    pub(crate) fn text(&self, node: Node) -> Result<TextId, ReadError> {
        match node {
            Node::Text(text) => Ok(text),
            _ => self.wrong(node, "a text"),
        }
    }

    /// Converts the private pool's pair of numbers, which is a list in JSON.
    pub(crate) fn pair(&self, node: Node) -> Result<(u64, u64), ReadError> {
        match self.list(node) {
            Ok((_, &[first, second])) => Ok((self.word(first)?, self.word(second)?)),
            _ => self.wrong(node, "two integers"),
        }
    }

    /// Returns a list or tuple and its items.
    pub(crate) fn list(&self, node: Node) -> Result<(ObjectId, &[Node]), ReadError> {
        if let Node::Object(id) = node
            && let Object::List(items) | Object::Tuple(items) = self.object(id)
        {
            return Ok((id, items));
        }
        self.wrong(node, "a list")
    }

    /// Returns a dict and its pairs, in the order in which they were set.
    pub(crate) fn dict(&self, node: Node) -> Result<(ObjectId, &[Pair]), ReadError> {
        if let Node::Object(id) = node
            && let Object::Dict(pairs) = self.object(id)
        {
            return Ok((id, pairs));
        }
        self.wrong(node, "a dict")
    }
}

/// Returns the value of a required key.
pub(crate) fn required<T>(value: Option<T>, name: &'static str) -> Result<T, ReadError> {
    value.ok_or_else(|| ReadError::shape("this key, which every snapshot has", "nothing").within(|| name.to_owned()))
}
