//! The part of pickle's virtual machine that makes plain values (Python: `pickletools`, PEP 307, PEP 3154, PEP 574).
//!
//! Nothing is imported, called or instantiated: those opcodes are errors. The meter counts all memory. There is no
//! recursion.

use super::cursor::Cursor;
use super::damage::Damage;
use super::document::{Class, Document, Node, Number};
use super::error::{PickleError, ReadError, printable};
use super::limits::Meter;
use super::opcode::Opcode;
use crate::ids::TextId;
use crate::tables::Tables;

/// Reads a pickle into the document, and returns its value.
pub(crate) fn load(
    bytes: &[u8],
    document: &mut Document,
    tables: &mut Tables,
    meter: &mut Meter,
    mut damage: Option<&mut Damage>,
) -> Result<Node, ReadError> {
    let mut machine = Machine {
        input: Cursor::new(bytes),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        document,
        tables,
        meter,
    };
    loop {
        let start = machine.input.position();
        match machine.step() {
            Ok(None) => {}
            Ok(Some(answer)) => {
                if let Some(damage) = damage {
                    damage.more = machine.input.position() < bytes.len() as u64;
                }
                return Ok(answer);
            }
            Err(Stop::Pickle(kind)) => {
                let is_cut = matches!(kind, PickleError::Truncated { .. });
                let error = ReadError::Pickle { offset: start, kind };
                if is_cut
                    && let Some(damage) = damage.take()
                    && let Ok(Some(answer)) = machine.unwind()
                {
                    damage.cut.get_or_insert_with(|| error.to_string());
                    return Ok(answer);
                }
                return Err(error);
            }
            Err(Stop::Other(error)) => return Err(error.within(|| format!("pickle, byte {start}"))),
        }
    }
}

/// Why the machine stops early.
pub(super) enum Stop {
    Pickle(PickleError),
    Other(ReadError),
}

impl From<PickleError> for Stop {
    fn from(error: PickleError) -> Stop {
        Stop::Pickle(error)
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Stop {
        Stop::Other(error)
    }
}

pub(super) struct Machine<'a> {
    input: Cursor<'a>,
    pub(super) stack: Vec<Node>,
    /// Heights of the stack at the marks.
    pub(super) marks: Vec<usize>,
    memo: Vec<Option<Node>>,
    pub(super) document: &'a mut Document,
    tables: &'a mut Tables,
    pub(super) meter: &'a mut Meter,
}

impl<'a> Machine<'a> {
    pub(super) fn push(&mut self, node: Node) -> Result<(), Stop> {
        Ok(self.meter.push(&mut self.stack, node)?)
    }

    fn push_number(&mut self, number: Number) -> Result<(), Stop> {
        let node = self.document.add_number(number, self.meter)?;
        self.push(node)
    }

    /// Executes one opcode. Returns the value of the pickle if it was the last.
    fn step(&mut self) -> Result<Option<Node>, Stop> {
        let byte = self.input.byte()?;
        let opcode = Opcode(byte);
        match byte {
            Opcode::PROTO => match self.input.byte()? {
                2..=5 => {}
                other => return Err(PickleError::Protocol(other).into()),
            },
            // Only a hint for reading ahead.
            Opcode::FRAME => drop(self.input.take(8)?),
            Opcode::STOP => return Ok(Some(self.pop(opcode)?)),
            Opcode::MARK => self.meter.push(&mut self.marks, self.stack.len())?,
            Opcode::POP => self.pop_or_mark(opcode)?,
            Opcode::POP_MARK => {
                let mark = self.mark(opcode)?;
                self.stack.truncate(mark);
            }
            Opcode::DUP => {
                let top = self.top(opcode)?;
                self.push(top)?;
            }
            Opcode::NONE => self.push(Node::None)?,
            Opcode::NEWTRUE => self.push(Node::Bool(true))?,
            Opcode::NEWFALSE => self.push(Node::Bool(false))?,
            Opcode::BININT => {
                let bits = self.input.u32()?;
                self.push(Node::Small(bits.cast_signed()))?;
            }
            Opcode::BININT1 => {
                let value = self.input.byte()?;
                self.push(Node::Small(i32::from(value)))?;
            }
            Opcode::BININT2 => {
                let value = self.input.u16()?;
                self.push(Node::Small(i32::from(value)))?;
            }
            Opcode::LONG1 => {
                let length = u32::from(self.input.byte()?);
                self.long(length)?;
            }
            Opcode::LONG4 => {
                let length = self.input.u32()?;
                self.long(length)?;
            }
            Opcode::BINFLOAT => {
                let bits = self.input.u64()?.swap_bytes();
                self.push_number(Number::Float(f64::from_bits(bits)))?;
            }
            Opcode::SHORT_BINUNICODE | Opcode::BINUNICODE | Opcode::BINUNICODE8 => {
                let text = self.text(byte)?;
                self.push(Node::Text(text))?;
            }
            Opcode::SHORT_BINBYTES | Opcode::BINBYTES | Opcode::BINBYTES8 => {
                let bytes = self.counted(byte)?;
                let node = self.document.add_bytes(bytes, self.meter)?;
                self.push(node)?;
            }
            Opcode::BINPUT | Opcode::LONG_BINPUT | Opcode::MEMOIZE => self.put(byte)?,
            Opcode::BINGET => {
                let number = u32::from(self.input.byte()?);
                self.get(number)?;
            }
            Opcode::LONG_BINGET => {
                let number = self.input.u32()?;
                self.get(number)?;
            }
            _ => self.container(byte)?,
        }
        Ok(None)
    }

    /// Returns the class that an opcode names, if it stands for plain values.
    pub(super) fn class(&mut self, opcode: Opcode) -> Result<Option<Class>, PickleError> {
        let known = |module: &[u8], name: &[u8]| match (module, name) {
            (b"collections", b"OrderedDict" | b"defaultdict") => Some(Class::Dict),
            (b"builtins" | b"__builtin__", b"dict" | b"list" | b"int" | b"float" | b"str") => Some(Class::Default),
            _ => None,
        };
        if opcode.0 == Opcode::GLOBAL {
            let begin = self.input.clone();
            let class = known(self.input.line()?, self.input.line()?);
            if class.is_none() {
                self.input = begin;
            }
            return Ok(class);
        }
        let [.., Node::Text(module), Node::Text(name)] = self.stack[self.floor()..] else {
            return Ok(None);
        };
        let text = |id| self.tables.get_text(id).as_bytes();
        let class = known(text(module), text(name));
        if class.is_some() {
            self.stack.truncate(self.stack.len() - 2);
        }
        Ok(class)
    }

    /// Returns the error for an opcode that is not run.
    pub(super) fn refuse(&mut self, opcode: Opcode) -> PickleError {
        match opcode.0 {
            Opcode::GLOBAL | Opcode::INST => match (self.input.line(), self.input.line()) {
                (Ok(module), Ok(name)) => {
                    let text = |bytes| printable(&String::from_utf8_lossy(bytes));
                    let name = format!("{}.{}", text(module), text(name));
                    PickleError::Import { opcode, name }
                }
                (Err(error), _) | (_, Err(error)) => error,
            },
            Opcode::STACK_GLOBAL => match self.stack[self.floor()..] {
                [.., Node::Text(module), Node::Text(name)] => {
                    let text = |id| printable(self.tables.get_text(id));
                    let name = format!("{}.{}", text(module), text(name));
                    PickleError::Import { opcode, name }
                }
                _ => PickleError::Code(opcode),
            },
            Opcode::REDUCE
            | Opcode::BUILD
            | Opcode::OBJ
            | Opcode::NEWOBJ
            | Opcode::NEWOBJ_EX
            | Opcode::EXT1
            | Opcode::EXT2
            | Opcode::EXT4
            | Opcode::PERSID
            | Opcode::BINPERSID => PickleError::Code(opcode),
            byte if opcode.name().is_none() => PickleError::Unknown(byte),
            _ => PickleError::Unsupported(opcode),
        }
    }

    /// Returns the height of the last mark, below which an opcode may not take items.
    pub(super) fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    pub(super) fn top(&self, opcode: Opcode) -> Result<Node, PickleError> {
        let top = self.stack[self.floor()..].last();
        top.copied().ok_or(PickleError::Stack(opcode))
    }

    fn pop(&mut self, opcode: Opcode) -> Result<Node, PickleError> {
        let top = self.top(opcode)?;
        self.stack.pop();
        Ok(top)
    }

    /// Executes POP, which removes a mark if that is on top.
    fn pop_or_mark(&mut self, opcode: Opcode) -> Result<(), PickleError> {
        match self.marks.last() {
            Some(mark) if *mark == self.stack.len() => drop(self.marks.pop()),
            _ => drop(self.pop(opcode)?),
        }
        Ok(())
    }

    pub(super) fn mark(&mut self, opcode: Opcode) -> Result<usize, PickleError> {
        self.marks.pop().ok_or(PickleError::Stack(opcode))
    }

    /// Stores the top of the stack in the memo.
    fn put(&mut self, byte: u8) -> Result<(), Stop> {
        let number = match byte {
            Opcode::BINPUT => usize::from(self.input.byte()?),
            Opcode::LONG_BINPUT => self.input.u32()? as usize,
            _ => self.memo.len(),
        };
        // Pickle numbers the memo from 0, so a number beyond the bytes read is invalid.
        if number as u64 > self.input.position() {
            return Err(PickleError::Memo(number as u32).into());
        }
        let top = self.top(Opcode(byte))?;
        if number >= self.memo.len() {
            let more = number + 1 - self.memo.len();
            self.meter.reserve(&mut self.memo, more)?;
            self.memo.resize(number + 1, None);
        }
        self.memo[number] = Some(top);
        Ok(())
    }

    fn get(&mut self, number: u32) -> Result<(), Stop> {
        let kept = self.memo.get(number as usize).copied().flatten();
        self.push(kept.ok_or(PickleError::Memo(number))?)
    }

    /// Reads a little-endian integer in two's complement.
    fn long(&mut self, length: u32) -> Result<(), Stop> {
        let bytes = self.input.take(u64::from(length))?;
        self.push_number(long(bytes).ok_or(PickleError::Integer(length))?)
    }

    /// Reads bytes after their length, which has 1, 4 or 8 bytes.
    fn counted(&mut self, byte: u8) -> Result<&'a [u8], PickleError> {
        let length = match byte {
            Opcode::SHORT_BINUNICODE | Opcode::SHORT_BINBYTES => u64::from(self.input.byte()?),
            Opcode::BINUNICODE | Opcode::BINBYTES => u64::from(self.input.u32()?),
            _ => self.input.u64()?,
        };
        self.input.take(length)
    }

    /// Reads a text. Python also writes lone surrogates, for file names that are not UTF-8; they become U+FFFD.
    fn text(&mut self, byte: u8) -> Result<TextId, Stop> {
        let bytes = self.counted(byte)?;
        // Each byte that is not UTF-8 becomes three bytes.
        let copy = if str::from_utf8(bytes).is_ok() {
            0
        } else {
            3 * bytes.len()
        };
        self.meter.charge(copy)?;
        let text = self.tables.charged_text(&String::from_utf8_lossy(bytes), self.meter)?;
        self.meter.release(copy);
        Ok(text)
    }
}

/// Decodes an integer of at most 64 bits, which has one more byte if it is unsigned with the highest bit set.
fn long(bytes: &[u8]) -> Option<Number> {
    let (low, high) = bytes.split_at(bytes.len().min(8));
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut word = [if negative { 0xff } else { 0 }; 8];
    word[..low.len()].copy_from_slice(low);
    match (i64::from_le_bytes(word), high) {
        (value, []) => Some(Number::Int(value)),
        (value, [0]) if value < 0 => Some(Number::Unsigned(value.cast_unsigned())),
        _ => None,
    }
}
