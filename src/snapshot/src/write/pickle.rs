//! Writes pickle protocol 4, using only opcodes that PyTorch's web viewer supports (except for bytes, which it does not
//! support).

use std::io::Write;

use super::{Kind, Sink, Thing, WriteError};
use crate::read::Opcode;

/// Number of items added to a list or dict at a time, as in Python's pickler. The web viewer passes them as arguments
/// of one call, whose number JavaScript engines limit.
const BATCH: usize = 1000;

/// The number of an item that is not written yet.
const NEW: u32 = u32::MAX;

pub(super) struct Pickle<W> {
    to: W,
    open: Vec<Open>,
    /// Memo numbers of written items, by kind and number.
    kept: [Vec<u32>; 4],
    count: u32,
}

/// A container that is being written.
struct Open {
    kind: Kind,
    length: usize,
    /// Number of items since the last mark.
    batch: usize,
}

impl<W: Write> Pickle<W> {
    pub(super) fn new(to: W) -> Self {
        Pickle {
            to,
            open: Vec::new(),
            kept: Default::default(),
            count: 0,
        }
    }

    pub(super) fn header(&mut self) -> Result<(), WriteError> {
        self.put(&[Opcode::PROTO, 4])
    }

    pub(super) fn stop(mut self) -> Result<(), WriteError> {
        self.put(&[Opcode::STOP])?;
        Ok(self.to.flush()?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        Ok(self.to.write_all(bytes)?)
    }

    fn flush_batch(&mut self, kind: Kind) -> Result<(), WriteError> {
        match kind {
            Kind::List => self.put(&[Opcode::APPENDS]),
            Kind::Dict => self.put(&[Opcode::SETITEMS]),
            Kind::Tuple => Ok(()),
        }
    }

    /// Writes the opcode for the size of the length, the length, and the bytes.
    fn counted(&mut self, [short, long, longer]: [u8; 3], bytes: &[u8]) -> Result<(), WriteError> {
        let length = bytes.len() as u64;
        match (u8::try_from(length), u32::try_from(length)) {
            (Ok(length), _) => self.put(&[short, length])?,
            (_, Ok(length)) => {
                self.put(&[long])?;
                self.put(&length.to_le_bytes())?;
            }
            _ => {
                self.put(&[longer])?;
                self.put(&length.to_le_bytes())?;
            }
        }
        self.put(bytes)
    }

    /// Writes an integer in as few bytes of two's complement as possible.
    fn long(&mut self, value: i128) -> Result<(), WriteError> {
        let bytes = value.to_le_bytes();
        let sign = if value < 0 { 0xff } else { 0 };
        let mut length = bytes.len();
        while length > 1 && bytes[length - 1] == sign && (bytes[length - 2] ^ sign) & 0x80 == 0 {
            length -= 1;
        }
        self.put(&[Opcode::LONG1, length as u8])?;
        self.put(&bytes[..length])
    }
}

impl<W: Write> Sink for Pickle<W> {
    fn none(&mut self) -> Result<(), WriteError> {
        self.put(&[Opcode::NONE])
    }

    fn bool(&mut self, value: bool) -> Result<(), WriteError> {
        self.put(&[if value { Opcode::NEWTRUE } else { Opcode::NEWFALSE }])
    }

    fn int(&mut self, value: i64) -> Result<(), WriteError> {
        match (u8::try_from(value), u16::try_from(value), i32::try_from(value)) {
            (Ok(byte), ..) => self.put(&[Opcode::BININT1, byte]),
            (_, Ok(short), _) => {
                let [low, high] = short.to_le_bytes();
                self.put(&[Opcode::BININT2, low, high])
            }
            (.., Ok(int)) => {
                self.put(&[Opcode::BININT])?;
                self.put(&int.to_le_bytes())
            }
            _ => self.long(i128::from(value)),
        }
    }

    fn unsigned(&mut self, value: u64) -> Result<(), WriteError> {
        match i64::try_from(value) {
            Ok(value) => self.int(value),
            Err(_) => self.long(i128::from(value)),
        }
    }

    fn float(&mut self, value: f64) -> Result<(), WriteError> {
        self.put(&[Opcode::BINFLOAT])?;
        self.put(&value.to_be_bytes())
    }

    fn text(&mut self, text: &str) -> Result<(), WriteError> {
        let opcodes = [Opcode::SHORT_BINUNICODE, Opcode::BINUNICODE, Opcode::BINUNICODE8];
        self.counted(opcodes, text.as_bytes())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let opcodes = [Opcode::SHORT_BINBYTES, Opcode::BINBYTES, Opcode::BINBYTES8];
        self.counted(opcodes, bytes)
    }

    fn begin(&mut self, kind: Kind, length: usize) -> Result<(), WriteError> {
        let batch = 0;
        self.open.push(Open { kind, length, batch });
        match (kind, length) {
            (Kind::List, _) => self.put(&[Opcode::EMPTY_LIST]),
            (Kind::Dict, _) => self.put(&[Opcode::EMPTY_DICT]),
            (Kind::Tuple, 0..=3) => Ok(()),
            (Kind::Tuple, _) => self.put(&[Opcode::MARK]),
        }
    }

    fn item(&mut self) -> Result<(), WriteError> {
        let Some(open) = self.open.last_mut() else {
            return Ok(());
        };
        let kind = open.kind;
        if kind == Kind::Tuple {
            return Ok(());
        }
        let (first, full) = (open.batch == 0, open.batch == BATCH);
        open.batch = if full { 1 } else { open.batch + 1 };
        if full {
            self.flush_batch(kind)?;
        }
        if first || full {
            self.put(&[Opcode::MARK])?;
        }
        Ok(())
    }

    fn value(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn end(&mut self) -> Result<(), WriteError> {
        match self.open.pop() {
            Some(Open {
                kind: Kind::Tuple,
                length,
                ..
            }) => self.put(&[match length {
                0 => Opcode::EMPTY_TUPLE,
                1 => Opcode::TUPLE1,
                2 => Opcode::TUPLE2,
                3 => Opcode::TUPLE3,
                _ => Opcode::TUPLE,
            }]),
            Some(open) if open.batch > 0 => self.flush_batch(open.kind),
            _ => Ok(()),
        }
    }

    fn recall(&mut self, thing: Thing) -> Result<bool, WriteError> {
        let (kind, number) = place(thing);
        match self.kept[kind].get(number) {
            None | Some(&NEW) => Ok(false),
            Some(&kept) => {
                match u8::try_from(kept) {
                    Ok(byte) => self.put(&[Opcode::BINGET, byte])?,
                    Err(_) => {
                        self.put(&[Opcode::LONG_BINGET])?;
                        self.put(&kept.to_le_bytes())?;
                    }
                }
                Ok(true)
            }
        }
    }

    fn keep(&mut self, thing: Thing) -> Result<(), WriteError> {
        let (kind, number) = place(thing);
        let kept = &mut self.kept[kind];
        if number >= kept.len() {
            kept.resize(number + 1, NEW);
        }
        kept[number] = self.count;
        self.count += 1;
        self.put(&[Opcode::MEMOIZE])
    }
}

fn place(thing: Thing) -> (usize, usize) {
    match thing {
        Thing::Text(id) => (0, id.index()),
        Thing::Frame(id) => (1, id.index()),
        Thing::Stack(id) => (2, id.index()),
        Thing::Value(id) => (3, id.index()),
    }
}
