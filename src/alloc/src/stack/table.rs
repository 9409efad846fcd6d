//! Every distinct call stack of the process, once. Programs allocate from few places: thousands of events share dozens of stacks.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::symbols::{StackFrame, Symbols};
use crate::lock::{Held, Shared};
use crate::spread::Spread;

/// Distinct stacks a process may have; further ones share [`Stack::OTHER`]. With frames of 8 bytes and at most 64 of them, 34 MB.
const MAX_STACKS: usize = 65_536;

/// Where in the program something was done: return addresses, the innermost first, or [frames that it named](Stack::set_source). Equal stacks
/// are the same number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stack(u32);

struct Table {
    /// Without those that have no addresses.
    stacks: Vec<Arc<[u64]>>,
    numbers: HashMap<Arc<[u64]>, u32, Spread>,
    bytes: usize,
}

// Made by the compiler: a child that is forked while a thread makes it would wait for that thread for ever.
static TABLE: Shared<Table> = Shared::new(Table {
    stacks: Vec::new(),
    numbers: HashMap::with_hasher(Spread::new()),
    bytes: 0,
});

/// None in a forked child whose parent had it locked.
fn table() -> Option<Held<'static, Table>> {
    TABLE.lock()
}

/// How many stacks the process keeps, and their bytes.
pub(crate) fn kept() -> (u64, u64) {
    let Some(table) = table() else { return (0, 0) };
    let entries = table.stacks.len() * (2 * size_of::<Arc<[u64]>>() + size_of::<u32>());
    (table.numbers.len() as u64, (table.bytes + entries) as u64)
}

impl Stack {
    /// None was recorded.
    pub const NONE: Stack = Stack(0);
    /// One of those that came when the process had as many as it keeps.
    pub const OTHER: Stack = Stack(1);
    /// The first with addresses.
    const FIRST: u32 = 2;

    /// The stack of these return addresses.
    pub(crate) fn of(addresses: &[u64]) -> Stack {
        if addresses.is_empty() {
            return Stack::NONE;
        }
        let Some(mut table) = table() else {
            return Stack::NONE;
        };
        if let Some(number) = table.numbers.get(addresses) {
            return Stack(*number);
        }
        if table.numbers.len() >= MAX_STACKS {
            return Stack::OTHER;
        }
        let stack: Arc<[u64]> = addresses.into();
        let number = Stack::FIRST + table.stacks.len() as u32;
        // Two counters beside the addresses.
        table.bytes += size_of_val(addresses) + 2 * size_of::<usize>();
        table.stacks.push(Arc::clone(&stack));
        table.numbers.insert(stack, number);
        Stack(number)
    }

    /// The return addresses, or numbers of frames that were [named](Stack::name_frame), innermost first. In a forked child they may not be to
    /// be had: none then.
    pub fn addresses(self) -> Arc<[u64]> {
        let kept = || table()?.stacks.get(self.0.checked_sub(Stack::FIRST)? as usize).cloned();
        kept().unwrap_or_default()
    }

    /// Functions, files and lines, innermost first, as far as the program's files tell; without the allocator's own. Reads those
    /// files: milliseconds, and much more for the first look into a large library.
    pub fn frames(self) -> Vec<StackFrame> {
        Symbols::new().frames(self).to_vec()
    }
}

/// A line a frame.
impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stack::NONE => f.write_str("(no call stack recorded)"),
            Stack::OTHER => write!(f, "(not kept: more than {MAX_STACKS} call stacks)"),
            stack => {
                for (i, frame) in stack.frames().iter().enumerate() {
                    write!(f, "{}{frame}", if i == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
        }
    }
}
