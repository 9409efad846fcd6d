//! Writes JSON on one line.

use std::io::{self, Write};

use super::{Kind, Sink, Thing, WriteError};

pub(super) struct Json<W> {
    to: W,
    /// The open containers, and whether each has an item.
    open: Vec<(Kind, bool)>,
    /// Whether a key of a dict comes next, which is always written as a text.
    key: bool,
}

impl<W: Write> Json<W> {
    pub(super) fn new(to: W) -> Self {
        Json {
            to,
            open: Vec::new(),
            key: false,
        }
    }

    pub(super) fn stop(mut self) -> Result<(), WriteError> {
        Ok(self.to.flush()?)
    }

    fn put(&mut self, text: &str) -> Result<(), WriteError> {
        Ok(self.to.write_all(text.as_bytes())?)
    }

    /// Writes a value that is not a text; as a key it becomes one.
    fn plain(&mut self, value: impl std::fmt::Display) -> Result<(), WriteError> {
        if self.key {
            write!(self.to, "\"{value}\"")?;
        } else {
            write!(self.to, "{value}")?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for Json<W> {
    fn none(&mut self) -> Result<(), WriteError> {
        self.plain("null")
    }

    fn bool(&mut self, value: bool) -> Result<(), WriteError> {
        self.plain(value)
    }

    fn int(&mut self, value: i64) -> Result<(), WriteError> {
        self.plain(value)
    }

    fn unsigned(&mut self, value: u64) -> Result<(), WriteError> {
        self.plain(value)
    }

    fn float(&mut self, value: f64) -> Result<(), WriteError> {
        match serde_json::Number::from_f64(value) {
            Some(number) => self.plain(number),
            None => Err(WriteError::Json("float that is infinite or not a number")),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), WriteError> {
        Ok(serde_json::to_writer(&mut self.to, text).map_err(io::Error::from)?)
    }

    fn bytes(&mut self, _: &[u8]) -> Result<(), WriteError> {
        Err(WriteError::Json("bytes"))
    }

    fn begin(&mut self, kind: Kind, _: usize) -> Result<(), WriteError> {
        if self.key {
            return Err(WriteError::Json("keys that are lists"));
        }
        self.open.push((kind, false));
        self.put(if kind == Kind::Dict { "{" } else { "[" })
    }

    fn item(&mut self) -> Result<(), WriteError> {
        if let Some((kind, items)) = self.open.last_mut() {
            self.key = *kind == Kind::Dict;
            if std::mem::replace(items, true) {
                self.put(",")?;
            }
        }
        Ok(())
    }

    fn value(&mut self) -> Result<(), WriteError> {
        self.key = false;
        self.put(":")
    }

    fn end(&mut self) -> Result<(), WriteError> {
        match self.open.pop() {
            Some((Kind::Dict, _)) => self.put("}"),
            Some(_) => self.put("]"),
            None => Ok(()),
        }
    }

    fn recall(&mut self, _: Thing) -> Result<bool, WriteError> {
        Ok(false)
    }

    fn keep(&mut self, _: Thing) -> Result<(), WriteError> {
        Ok(())
    }
}
