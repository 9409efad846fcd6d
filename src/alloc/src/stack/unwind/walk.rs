//! The call stack of this thread, by what is remembered of the functions it goes through.
#![allow(unsafe_code, reason = "it reads registers and the memory of the stack")]

use std::arch::asm;
use std::cell::RefCell;
use std::ops::Range;

use super::own;
use super::tables::{self, Cfa, Loads, Rule};
use crate::spread::ByAddress;

/// Places in functions that a thread remembers; beyond so many it begins anew. 205 KB.
const MOST_PLACES: usize = 7 << 10;

thread_local! {
    pub(super) static WALKER: RefCell<Option<Walker>> = const { RefCell::new(None) };
}

pub(super) struct Walker {
    pub(super) rules: ByAddress<Rule>,
    pub(super) loads: Loads,
    /// The thread's own stack.
    stack: Range<u64>,
}

#[derive(Clone, Copy)]
struct Registers {
    instruction: u64,
    stack: u64,
    frame: u64,
}

/// The return addresses of this thread, from the caller of this function on, the innermost first: how many. `None` where something less
/// simple is needed for it.
#[inline(never)]
pub(super) fn walk(addresses: &mut [u64]) -> Option<usize> {
    let (instruction, stack, frame);
    // SAFETY: only looks.
    unsafe {
        asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) instruction, out(reg) stack, out(reg) frame,
            options(nomem, nostack, preserves_flags));
    }
    let here = Registers {
        instruction,
        stack,
        frame,
    };
    let walk = |walker: &RefCell<Option<Walker>>| {
        let mut walker = walker.try_borrow_mut().ok()?;
        let walker = match &mut *walker {
            Some(walker) => walker,
            none => none.insert(Walker::new()),
        };
        walker.walk(here, addresses)
    };
    // A thread that ends has none any more.
    WALKER.try_with(walk).ok()?
}

impl Walker {
    fn new() -> Walker {
        Walker {
            rules: ByAddress::default(),
            loads: (0, 0),
            // Where the system does not say, nothing is in it.
            stack: own::own().unwrap_or_default(),
        }
    }

    fn walk(&mut self, from: Registers, addresses: &mut [u64]) -> Option<usize> {
        if !self.stack.contains(&from.stack) {
            return None;
        }
        // What is remembered of a library that is gone is not of what is there now. What is on the stack stays meanwhile.
        let loads = tables::loads()?;
        if std::mem::replace(&mut self.loads, loads) != loads {
            self.rules.clear();
        }
        self.walk_from(from, addresses)
    }

    fn walk_from(&mut self, from: Registers, addresses: &mut [u64]) -> Option<usize> {
        let mut at = from;
        for (count, address) in addresses.iter_mut().enumerate() {
            match self.rule(at.instruction)? {
                Rule::Other => return None,
                Rule::Outermost => return Some(count),
                Rule::Called { cfa, frame_pointer } => at = self.caller(at, cfa, frame_pointer)?,
            }
            if at.instruction == 0 {
                return Some(count);
            }
            *address = at.instruction;
            // A call is before where it returns to, and may be the last of its function.
            at.instruction -= 1;
        }
        Some(addresses.len())
    }

    fn caller(&self, at: Registers, cfa: Cfa, frame_pointer: Option<i32>) -> Option<Registers> {
        let stack = match cfa {
            Cfa::StackPointer(offset) => at.stack.checked_add_signed(offset.into())?,
            Cfa::FramePointer(offset) => at.frame.checked_add_signed(offset.into())?,
        };
        // Towards the thread's begin, or it would never end.
        if stack <= at.stack {
            return None;
        }
        let word = |address: u64| {
            let inside = address.is_multiple_of(8) && address >= at.stack && address.checked_add(8)? <= self.stack.end;
            // SAFETY: a word of the thread's own stack, between where it is and where it began.
            inside.then(|| unsafe { std::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() })
        };
        Some(Registers {
            instruction: word(stack - 8)?,
            stack,
            frame: match frame_pointer {
                None => at.frame,
                Some(offset) => word(stack.checked_add_signed(offset.into())?)?,
            },
        })
    }

    /// `None` as well where libraries were loaded or unloaded just now.
    fn rule(&mut self, instruction: u64) -> Option<Rule> {
        if let Some(rule) = self.rules.get(&instruction) {
            return Some(*rule);
        }
        let (rule, loads) = tables::rule(instruction)?;
        if loads != self.loads {
            return None;
        }
        if self.rules.len() >= MOST_PLACES {
            self.rules.clear();
        }
        self.rules.try_reserve(1).ok()?;
        self.rules.insert(instruction, rule);
        Some(rule)
    }
}
