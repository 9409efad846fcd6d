//! Pickle's opcodes that make or fill lists, tuples and dicts.

use super::document::{Class, Node, Object, Pair};
use super::error::PickleError;
use super::limits::heap;
use super::opcode::Opcode;
use super::pickle::{Machine, Stop};

impl Machine<'_> {
    /// Executes an opcode that makes or fills a list, tuple or dict; all others are errors.
    pub(super) fn container(&mut self, byte: u8) -> Result<(), Stop> {
        let opcode = Opcode(byte);
        match byte {
            Opcode::EMPTY_LIST => self.push_object(Object::List(Vec::new())),
            Opcode::EMPTY_DICT => self.push_object(Object::Dict(Vec::new())),
            Opcode::EMPTY_TUPLE => self.push_object(Object::Tuple(Vec::new())),
            Opcode::LIST => {
                let mark = self.mark(opcode)?;
                let items = self.split_off(mark)?;
                self.push_object(Object::List(items))
            }
            Opcode::TUPLE => {
                let mark = self.mark(opcode)?;
                let items = self.split_off(mark)?;
                self.push_object(Object::Tuple(items))
            }
            Opcode::TUPLE1 | Opcode::TUPLE2 | Opcode::TUPLE3 => {
                let length = usize::from(byte - Opcode::TUPLE1) + 1;
                let floor = self.floor();
                let from = self.stack.len().checked_sub(length).filter(|from| *from >= floor);
                let items = self.split_off(from.ok_or(PickleError::Stack(opcode))?)?;
                self.push_object(Object::Tuple(items))
            }
            Opcode::DICT => {
                let mark = self.mark(opcode)?;
                self.meter.charge(heap(size_of_val(&self.stack[mark..])))?;
                let pairs = pairs(opcode, &self.stack[mark..])?.collect();
                self.stack.truncate(mark);
                self.push_object(Object::Dict(pairs))
            }
            Opcode::APPEND => {
                self.top(opcode)?;
                let from = self.stack.len() - 1;
                self.append(opcode, from)
            }
            Opcode::APPENDS => {
                let mark = self.mark(opcode)?;
                self.append(opcode, mark)
            }
            Opcode::SETITEM => {
                let floor = self.floor();
                let from = self.stack.len().checked_sub(2).filter(|from| *from >= floor);
                self.set(opcode, from.ok_or(PickleError::Stack(opcode))?)
            }
            Opcode::SETITEMS => {
                let mark = self.mark(opcode)?;
                self.set(opcode, mark)
            }
            Opcode::GLOBAL | Opcode::STACK_GLOBAL => match self.class(opcode)? {
                Some(class) => self.push(Node::Class(class)),
                None => Err(self.refuse(opcode).into()),
            },
            Opcode::REDUCE => self.reduce(opcode),
            _ => Err(self.refuse(opcode).into()),
        }
    }

    /// Executes a call, which is allowed only if it makes an empty dict.
    fn reduce(&mut self, opcode: Opcode) -> Result<(), Stop> {
        let floor = self.floor();
        let from = self.stack.len().checked_sub(2).filter(|from| *from >= floor);
        let makes_dict = from.is_some_and(|from| {
            let is_plain = |node: &Node| matches!(node, Node::None | Node::Class(Class::Default));
            let Node::Object(id) = self.stack[from + 1] else {
                return false;
            };
            let arguments = match self.document.object(id) {
                Object::Tuple(items) => items,
                _ => return false,
            };
            self.stack[from] == Node::Class(Class::Dict) && arguments.iter().all(is_plain)
        });
        match from {
            Some(from) if makes_dict => {
                self.stack.truncate(from);
                self.push_object(Object::Dict(Vec::new()))
            }
            _ => Err(self.refuse(opcode).into()),
        }
    }

    /// Returns the unfinished value at the end of a truncated file: completes the lists and dicts on the stack with
    /// their pending items.
    pub(super) fn unwind(&mut self) -> Result<Option<Node>, Stop> {
        loop {
            let mark = self.marks.pop();
            self.fold(mark.unwrap_or(1))?;
            if mark.is_none() {
                return Ok(self.stack.first().copied());
            }
        }
    }

    /// Moves the complete items of the stack from `from` on into the container below.
    fn fold(&mut self, from: usize) -> Result<(), Stop> {
        let target = from.checked_sub(1).and_then(|below| self.stack.get(below));
        let Some(Node::Object(id)) = target.copied() else {
            self.stack.truncate(from);
            return Ok(());
        };
        match self.document.object(id) {
            Object::List(_) => self.append(Opcode(Opcode::APPENDS), from),
            Object::Dict(_) => {
                let is_text = |node: &Node| matches!(node, Node::Text(_));
                let keys = self.stack[from..].iter().step_by(2).take_while(|key| is_text(key));
                let whole = from + 2 * keys.count();
                // An item in the position of a key belongs to the value before it.
                if let [Node::Object(list), _, ..] = self.stack[whole.min(self.stack.len()).saturating_sub(1)..]
                    && whole > from
                    && let Object::List(_) = self.document.object(list)
                {
                    self.append(Opcode(Opcode::APPENDS), whole)?;
                }
                let pairs = (self.stack.len().min(whole) - from) / 2;
                self.stack.truncate(from + 2 * pairs);
                self.set(Opcode(Opcode::SETITEMS), from)
            }
            _ => {
                self.stack.truncate(from);
                Ok(())
            }
        }
    }

    fn push_object(&mut self, object: Object) -> Result<(), Stop> {
        let node = self.document.add(object, self.meter)?;
        self.push(node)
    }

    /// Removes the stack from `from` on and returns it as items of an object.
    fn split_off(&mut self, from: usize) -> Result<Vec<Node>, Stop> {
        self.meter.charge(heap(size_of_val(&self.stack[from..])))?;
        Ok(self.stack.drain(from..).collect())
    }

    /// Moves the stack from `from` on into the list below.
    fn append(&mut self, opcode: Opcode, from: usize) -> Result<(), Stop> {
        let target = from.checked_sub(1).filter(|below| *below >= self.floor());
        let Node::Object(id) = self.stack[target.ok_or(PickleError::Stack(opcode))?] else {
            let expected = "a list";
            return Err(PickleError::Kind { opcode, expected }.into());
        };
        let Object::List(items) = self.document.object_mut(id) else {
            let expected = "a list";
            return Err(PickleError::Kind { opcode, expected }.into());
        };
        self.meter.reserve(items, self.stack.len() - from)?;
        items.extend(self.stack.drain(from..));
        Ok(())
    }

    /// Moves the pairs of the stack from `from` on into the dict below.
    fn set(&mut self, opcode: Opcode, from: usize) -> Result<(), Stop> {
        let target = from.checked_sub(1).filter(|below| *below >= self.floor());
        let Node::Object(id) = self.stack[target.ok_or(PickleError::Stack(opcode))?] else {
            let expected = "a dict";
            return Err(PickleError::Kind { opcode, expected }.into());
        };
        let Object::Dict(dict) = self.document.object_mut(id) else {
            let expected = "a dict";
            return Err(PickleError::Kind { opcode, expected }.into());
        };
        let new = pairs(opcode, &self.stack[from..])?;
        self.meter.reserve(dict, new.len())?;
        dict.extend(new);
        self.stack.truncate(from);
        Ok(())
    }
}

/// Groups items of the stack into keys and values.
fn pairs(opcode: Opcode, items: &[Node]) -> Result<impl ExactSizeIterator<Item = Pair> + '_, PickleError> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(PickleError::Stack(opcode));
    }
    Ok(pairs.iter().map(|[key, value]| (*key, *value)))
}
